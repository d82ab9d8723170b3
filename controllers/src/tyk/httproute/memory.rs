//! What a route remembers of its APIs: one annotation that names, for each Tyk, the ids that were written or are about
//! to be. A hint of where to look, never a right: whose a document is, its owner key says. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::tyk::{objects::Key, verdict::Connection};

/// The most ids that a route remembers: eight times what it may have at once. The rest of an annotation is not read.
pub const MOST: usize = 2_048;

/// The most places of which an annotation is read. A route has one for each Tyk that its Gateways lead to, and those that
/// they led to before.
pub const MOST_PLACES: usize = 16;

/// What all ids begin with, and the annotation leaves out.
const PREFIX: &str = crate::tyk::translate::ID;

/// Begins the part of the annotation that holds a digest of the documents. It has no `=`: earlier versions pass it over.
const DIGEST: char = '#';

/// A Tyk, and the context that leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The OperatorContext with the credential.
    pub context: Key,
    /// Which Tyk it led to: 8 hexadecimal digits over URL and (of a Dashboard) organisation.
    pub tyk: String,
}

impl Place {
    /// Where a connection leads.
    pub fn of(connection: &Connection) -> Self {
        Self {
            context: connection.context.clone(),
            tyk: connection.digest(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (context, tyk) = text.split_once('@')?;
        let (namespace, name) = context.split_once('/')?;
        let named = |part: &str| {
            // It becomes a part of a request's path.
            let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.len() <= 253
                && part.starts_with(ends)
                && part.ends_with(ends)
                && part.chars().all(|c| ends(c) || c == '-' || c == '.')
        };
        (named(namespace) && named(name) && is_hex(tyk, 8)).then(|| Self {
            context: Key::new(namespace, name),
            tyk: tyk.to_owned(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.context, self.tyk)
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Ids by place. No place without ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory(BTreeMap<Place, BTreeSet<String>>);

impl Memory {
    /// Reads the annotation. Anybody may have written it: what is no place and no id is passed over.
    pub fn parse(text: &str) -> Self {
        let mut memory = Self::default();
        let mut left = MOST;
        for part in text.split(';').filter(|part| !part.trim().starts_with(DIGEST)) {
            let Some((place, ids)) = part.split_once('=') else {
                continue;
            };
            let Some(place) = Place::parse(place.trim()) else {
                continue;
            };
            let ids = ids.split(',').map(str::trim).filter(|id| is_hex(id, 20));
            for id in ids {
                if left == 0 {
                    return memory;
                }
                if memory.0.len() >= MOST_PLACES && !memory.0.contains_key(&place) {
                    break;
                }
                left -= usize::from(memory.add(&place, format!("{PREFIX}{id}")));
            }
        }
        memory
    }

    /// The digest of the documents that stood when the annotation was written: eight hexadecimal digits.
    pub fn digest(text: &str) -> Option<String> {
        let mut parts = text
            .split(';')
            .filter_map(|part| part.trim().strip_prefix(DIGEST));
        parts.next().filter(|digest| is_hex(digest, 8)).map(str::to_owned)
    }

    /// The annotation's value with a digest of the documents that stand; `None` when nothing is remembered.
    pub fn text_with(&self, digest: Option<&str>) -> Option<String> {
        let text = self.text()?;
        Some(match digest {
            Some(digest) => format!("{text};{DIGEST}{digest}"),
            None => text,
        })
    }

    /// Nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ids there are.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Places and their ids, sorted.
    pub fn places(&self) -> impl Iterator<Item = (&Place, &BTreeSet<String>)> {
        self.0.iter()
    }

    /// Whether an id is remembered at a place.
    pub fn has(&self, place: &Place, id: &str) -> bool {
        self.0.get(place).is_some_and(|ids| ids.contains(id))
    }

    /// Whether an id is remembered at a Tyk, under whatever context.
    pub fn knows(&self, tyk: &str, id: &str) -> bool {
        let mut places = self.0.iter();
        places.any(|(place, ids)| place.tyk == tyk && ids.contains(id))
    }

    /// Remembers an id; whether it is new.
    pub fn add(&mut self, place: &Place, id: impl Into<String>) -> bool {
        match self.0.get_mut(place) {
            Some(ids) => ids.insert(id.into()),
            None => self.0.entry(place.clone()).or_default().insert(id.into()),
        }
    }

    /// Forgets an id.
    pub fn take(&mut self, place: &Place, id: &str) {
        if let Some(ids) = self.0.get_mut(place) {
            ids.remove(id);
            if ids.is_empty() {
                self.0.remove(place);
            }
        }
    }

    /// The same ids, those of one Tyk under one context: `context` says which for the Tyks that it knows.
    #[must_use]
    pub fn under(self, context: impl Fn(&str) -> Option<Key>) -> Self {
        let mut memory = Self::default();
        for (mut place, ids) in self.0 {
            if let Some(known) = context(&place.tyk) {
                place.context = known;
            }
            memory.0.entry(place).or_default().extend(ids);
        }
        memory
    }

    /// The annotation's value; `None` when nothing is remembered. The same memory, the same text.
    pub fn text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_string())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (place, ids)) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(";")?;
            }
            write!(f, "{place}=")?;
            for (n, id) in ids.iter().enumerate() {
                if n > 0 {
                    f.write_str(",")?;
                }
                f.write_str(id.strip_prefix(PREFIX).unwrap_or(id))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tyk::{objects::Fingerprint, verdict::Mode};
    use proptest::prelude::*;

    const A: &str = "0123456789abcdef0123";
    const B: &str = "1123456789abcdef0123";

    fn connection(url: &str, org: &str) -> Connection {
        Connection {
            url: url.into(),
            org: org.into(),
            mode: Mode::OpenSource,
            context: Key::new("tyk", "main"),
            fingerprint: Fingerprint("f".into()),
        }
    }

    fn place(context: &str, tyk: &str) -> Place {
        Place {
            context: Key::new("tyk", context),
            tyk: tyk.into(),
        }
    }

    #[test]
    fn one_spelling_sorted_and_short() {
        let mut memory = Memory::default();
        memory.add(&place("z", "00000002"), format!("gwapi-{B}"));
        memory.add(&place("a", "00000001"), format!("gwapi-{B}"));
        memory.add(&place("a", "00000001"), format!("gwapi-{A}"));
        let text = memory.text().unwrap();
        assert_eq!(text, format!("tyk/a@00000001={A},{B};tyk/z@00000002={B}"));
        assert_eq!(Memory::parse(&text), memory);
        assert_eq!((memory.len(), Memory::default().text()), (3, None));
    }

    #[test]
    fn url_and_organisation_tell_tyks_apart_and_the_credential_does_not() {
        let one = connection("http://tyk:8080", "o");
        let mut rotated = one.clone();
        rotated.fingerprint = Fingerprint("other".into());
        assert_eq!(Place::of(&one), Place::of(&rotated));
        assert_eq!(Place::of(&one).tyk.len(), 8);
        let other = connection("http://tyk:8080", "p");
        assert_ne!(one.digest(), connection("http://tyk:8081", "o").digest());
        // An open-source gateway has the same ids for every organisation: it is one Tyk.
        let of = |mode| {
            let one = Connection { mode, ..one.clone() };
            let other = Connection {
                mode,
                ..other.clone()
            };
            one.digest() == other.digest()
        };
        assert!(of(Mode::OpenSource) && !of(Mode::Dashboard));
    }

    #[test]
    fn foreign_garbage_is_passed_over_and_what_stands_beside_it_is_read() {
        let good = format!("tyk/a@00000001={A}");
        for bad in [
            "",
            ";;;",
            "=",
            "tyk/a@00000001",
            "tyk/a@00000001=",
            "tyk/a@0000000=0123456789abcdef0123",
            "tyk/a@0000000G=0123456789abcdef0123",
            "tyk@00000001=0123456789abcdef0123",
            "/a@00000001=0123456789abcdef0123",
            "tyk/../../x@00000001=0123456789abcdef0123",
            "tyk/..@00000001=0123456789abcdef0123",
            "./a@00000001=0123456789abcdef0123",
            "tyk/a@00000001=gwapi-0123456789abcdef0123",
            "tyk/a@00000001=0123456789ABCDEF0123",
            "tyk/a@00000001=0123456789abcdef012",
            "{\"json\": true}",
            "ü/ü@ü=ü",
        ] {
            assert_eq!(Memory::parse(bad), Memory::default(), "{bad}");
            assert_eq!(
                Memory::parse(&format!("{bad};{good}")).text(),
                Some(good.clone()),
                "{bad}"
            );
        }
        // blanks of a hand edit are no harm, and the next write takes them out
        let spaced = format!(" tyk/a@00000001 = {A} , {A},; ");
        assert_eq!(Memory::parse(&spaced).text(), Some(good));
    }

    #[test]
    fn there_is_an_end_to_what_is_read() {
        let ids: Vec<String> = (0..9_999).map(|n| format!("{n:020x}")).collect();
        let memory = Memory::parse(&format!("tyk/a@00000001={};tyk/b@00000001={A}", ids.join(",")));
        assert_eq!(memory.len(), MOST);
        // and it fits into an annotation
        assert!(memory.text().unwrap().len() < 64 * 1024);
    }

    #[test]
    fn a_few_places_are_read_and_no_more() {
        let places: Vec<String> = (0..99).map(|n| format!("tyk/c{n}@{n:08x}={A},{B}")).collect();
        let memory = Memory::parse(&places.join(";"));
        assert_eq!(
            (memory.places().count(), memory.len()),
            (MOST_PLACES, 2 * MOST_PLACES)
        );
    }

    #[test]
    fn a_digest_stands_behind_the_ids_and_is_no_part_of_them() {
        let ids = format!("tyk/a@00000001={A}");
        let memory = Memory::parse(&ids);
        let text = memory.text_with(Some("89abcdef")).unwrap();
        assert_eq!(text, format!("{ids};#89abcdef"));
        assert_eq!(Memory::parse(&text), memory);
        assert_eq!(Memory::digest(&text).as_deref(), Some("89abcdef"));
        for none in [
            ids.as_str(),
            "",
            "#",
            "#89abcdeF",
            "#89abcde",
            "x#89abcdef",
            "#89abcdef=1",
        ] {
            assert_eq!(Memory::digest(none), None, "{none}");
        }
        assert_eq!(Memory::default().text_with(Some("89abcdef")), None);
    }

    #[test]
    fn ids_of_one_tyk_come_under_one_context() {
        let text = format!("tyk/a@00000001={A};tyk/b@00000001={A},{B};tyk/c@00000002={A}");
        let memory = Memory::parse(&text).under(|tyk| (tyk == "00000001").then(|| Key::new("tyk", "new")));
        let expected = format!("tyk/c@00000002={A};tyk/new@00000001={A},{B}");
        assert_eq!(memory.text(), Some(expected));
    }

    #[test]
    fn the_last_id_takes_its_place_along() {
        let mut memory = Memory::parse(&format!("tyk/a@00000001={A}"));
        memory.take(&place("a", "00000001"), &format!("gwapi-{B}"));
        memory.take(&place("b", "00000001"), &format!("gwapi-{A}"));
        assert_eq!(memory.len(), 1);
        memory.take(&place("a", "00000001"), &format!("gwapi-{A}"));
        assert!(memory.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_what_was_read_is_read_again(text in "[a-c/@=,;0-1 ü.-]{0,80}|tyk/a@0{8}=([01]{20},?){0,4};?") {
            let memory = Memory::parse(&text);
            let printed = memory.text().unwrap_or_default();
            prop_assert_eq!(Memory::parse(&printed), memory);
        }
    }
}
