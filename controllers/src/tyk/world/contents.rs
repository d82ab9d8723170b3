//! Which Secrets and ConfigMaps are read, and when: those that answers name, each version once. Their metadata is watched,
//! their content is read by GET and not kept. Here is the book-keeping; no call is made and no clock is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use reconcile_kit::runtime::jitter::{Jitter, doubled};
use tokio::time::Instant;

use super::super::objects::{Event, Key, Kind, Object};

/// First wait after a read that failed, and the longest one.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Wait while the right is missing: people give it, not time.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// What came of a read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Read {
    /// The object and its resourceVersion.
    Found(Box<Object>, String),
    /// The API server knows no such object.
    NotFound,
    /// The right is missing; what the API server said.
    Forbidden(String),
    /// Anything that passes.
    Failed(String),
}

#[derive(Debug, Default)]
struct Entry {
    /// The version that the model knows, or that may not be read.
    version: Option<String>,
    /// The model knows its content, or why it has none.
    known: bool,
    /// It was tried at least once.
    tried: bool,
    running: bool,
    failures: u32,
    due: Option<Instant>,
    forbidden: bool,
}

/// What the feed has to do.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Steps {
    /// For the model.
    pub(super) events: Vec<Event>,
    /// Whether nothing is known of an object that is there.
    pub(super) unknown: Vec<(Kind, Key, bool)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Contents {
    entries: BTreeMap<(Kind, Key), Entry>,
    jitter: Jitter,
}

/// Whether `a` is older than `b`; unknown counts as older.
fn older(a: &str, b: &str) -> bool {
    match (a.parse::<u128>(), b.parse::<u128>()) {
        (Ok(a), Ok(b)) => a < b,
        _ => a != b,
    }
}

impl Contents {
    pub(super) fn new(jitter: Jitter) -> Self {
        Self {
            entries: BTreeMap::new(),
            jitter,
        }
    }

    /// Whether answers name it.
    pub(super) fn names(&self, kind: Kind, key: &Key) -> bool {
        self.entries.contains_key(&(kind, key.clone()))
    }

    /// What is named.
    pub(super) fn named(&self) -> impl Iterator<Item = &(Kind, Key)> {
        self.entries.keys()
    }

    /// These are named, and no others. `announced`: the resourceVersion that the metadata shows; `None` if there is no
    /// such object.
    pub(super) fn want(
        &mut self,
        named: &BTreeSet<(Kind, Key)>,
        announced: impl Fn(Kind, &Key) -> Option<String>,
        now: Instant,
    ) -> Steps {
        let mut steps = Steps::default();
        self.entries.retain(|(kind, key), entry| {
            let wanted = named.contains(&(*kind, key.clone()));
            if !wanted {
                if entry.known {
                    steps.events.push(Event::Gone(*kind, key.clone()));
                }
                steps.unknown.push((*kind, key.clone(), false));
            }
            wanted
        });
        for (kind, key) in named {
            if !self.names(*kind, key) {
                self.entries.insert((*kind, key.clone()), Entry::default());
                let more = self.announced(*kind, key, announced(*kind, key), now);
                steps.events.extend(more.events);
                steps.unknown.extend(more.unknown);
            }
        }
        steps
    }

    /// The metadata shows this version, or that the object is gone.
    pub(super) fn announced(
        &mut self,
        kind: Kind,
        key: &Key,
        version: Option<String>,
        now: Instant,
    ) -> Steps {
        let mut steps = Steps::default();
        let Some(entry) = self.entries.get_mut(&(kind, key.clone())) else {
            return steps;
        };
        match version {
            None => {
                if entry.known {
                    steps.events.push(Event::Gone(kind, key.clone()));
                }
                steps.unknown.push((kind, key.clone(), false));
                // What a read that still runs brings is looked at when it comes.
                *entry = Entry {
                    running: entry.running,
                    ..Entry::default()
                };
            }
            Some(version) => {
                let news = entry.version.as_ref().is_none_or(|known| older(known, &version));
                if news {
                    steps.unknown.push((kind, key.clone(), !entry.known));
                    entry.due = Some(entry.due.map_or(now, |due| due.min(now)));
                }
            }
        }
        steps
    }

    /// Reads to begin now; each is to be answered by [`Contents::done`].
    pub(super) fn begin(&mut self, now: Instant) -> Vec<(Kind, Key)> {
        let due = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| !entry.running && entry.due.is_some_and(|due| due <= now));
        due.map(|((kind, key), entry)| {
            entry.running = true;
            entry.due = None;
            (*kind, key.clone())
        })
        .collect()
    }

    /// When the next read is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let idle = self.entries.values().filter(|entry| !entry.running);
        idle.filter_map(|entry| entry.due).min()
    }

    /// Something that is there was never tried yet.
    pub(super) fn first_reads(&self) -> bool {
        self.entries
            .values()
            .any(|entry| !entry.tried && (entry.running || entry.due.is_some()))
    }

    /// A read is over; `version` as in [`Contents::announced`], as of now.
    pub(super) fn done(
        &mut self,
        kind: Kind,
        key: &Key,
        read: Read,
        version: Option<String>,
        now: Instant,
    ) -> Steps {
        let mut steps = Steps::default();
        let Some(entry) = self.entries.get_mut(&(kind, key.clone())) else {
            return steps;
        };
        entry.running = false;
        entry.tried = true;
        let Some(announced) = version else {
            // It went meanwhile.
            entry.due = None;
            return steps;
        };
        let name = kind.as_str();
        match read {
            Read::Found(object, version) => {
                if older(&version, &announced) {
                    // Changed again since it was read: what is newer is on its way.
                    entry.due = Some(now);
                }
                if std::mem::take(&mut entry.forbidden) || entry.failures > 0 {
                    tracing::info!(kind = name, object = %key, "can be read again");
                }
                (entry.version, entry.known, entry.failures) = (Some(version), true, 0);
                steps.events.push(Event::Seen(object));
                steps.unknown.push((kind, key.clone(), false));
            }
            Read::Forbidden(said) => {
                let (namespace, plural) = (
                    &key.namespace,
                    if kind == Kind::Secret {
                        "secrets"
                    } else {
                        "configmaps"
                    },
                );
                if !std::mem::replace(&mut entry.forbidden, true) {
                    tracing::warn!(kind = name, object = %key, "may not be read and counts as missing: {said}");
                }
                (entry.version, entry.known) = (None, true);
                entry.failures = entry.failures.saturating_add(1);
                entry.due = Some(now + self.jitter.around(FORBIDDEN, 0.2));
                let why = format!(
                    "cannot be read: the operator lacks the right get on {plural} in namespace {namespace}"
                );
                steps.events.push(Event::Unreadable(kind, key.clone(), why));
                steps.unknown.push((kind, key.clone(), false));
            }
            Read::NotFound | Read::Failed(_) => {
                if entry.failures == 0 {
                    let said = match &read {
                        Read::Failed(said) => said.as_str(),
                        // Its metadata says that it is there: one of the two is behind.
                        _ => "not found, though it was announced",
                    };
                    tracing::warn!(kind = name, object = %key, "cannot be read and is tried again: {said}");
                }
                let wait = doubled(AGAIN.0, AGAIN.1, entry.failures);
                entry.failures = entry.failures.saturating_add(1);
                entry.due = Some(now + self.jitter.around(wait, 0.2));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tyk::objects::Secret;

    fn key() -> Key {
        Key::new("team", "login")
    }
    fn named() -> BTreeSet<(Kind, Key)> {
        [(Kind::Secret, key())].into()
    }
    fn found(version: &str) -> Read {
        let secret = Secret {
            key: key(),
            ..Secret::default()
        };
        Read::Found(Box::new(Object::Secret(secret)), version.to_owned())
    }
    fn at(version: &str) -> Option<String> {
        Some(version.to_owned())
    }
    fn contents() -> (Contents, Instant) {
        (Contents::new(Jitter::seeded(1)), Instant::now())
    }
    fn unknown(steps: &Steps) -> Option<bool> {
        steps.unknown.last().map(|(.., is)| *is)
    }

    #[tokio::test]
    async fn each_version_of_what_is_named_is_read_once() {
        // Given a Secret that is there and that an answer names
        let (mut contents, now) = contents();
        let steps = contents.want(&named(), |_, _| at("5"), now);
        // then nothing is known of it, and it is read at once
        assert_eq!(unknown(&steps), Some(true));
        assert!(contents.first_reads());
        assert_eq!(contents.begin(now), [(Kind::Secret, key())]);
        assert_eq!(contents.begin(now), [], "one read at a time");
        // when it was read, then the model is told
        let steps = contents.done(Kind::Secret, &key(), found("5"), at("5"), now);
        assert_eq!((steps.events.len(), unknown(&steps)), (1, Some(false)));
        assert!(!contents.first_reads());
        // and neither the same version nor being named again reads it once more
        contents.announced(Kind::Secret, &key(), at("5"), now);
        contents.want(&named(), |_, _| at("5"), now);
        assert_eq!((contents.begin(now), contents.next()), (vec![], None));
        // but a new version does, and what was known stays known meanwhile
        assert_eq!(
            unknown(&contents.announced(Kind::Secret, &key(), at("6"), now)),
            Some(false)
        );
        assert_eq!(contents.begin(now).len(), 1);
        // even if it brings one that is announced later only
        contents.done(Kind::Secret, &key(), found("8"), at("6"), now);
        contents.announced(Kind::Secret, &key(), at("8"), now);
        assert_eq!(contents.begin(now), []);
    }

    #[tokio::test]
    async fn what_changed_while_it_was_read_is_read_again() {
        let (mut contents, now) = contents();
        contents.want(&named(), |_, _| at("5"), now);
        contents.begin(now);
        // Given a change during the read, when an old answer comes, then it is used and read again
        contents.announced(Kind::Secret, &key(), at("9"), now);
        assert_eq!(contents.begin(now), [], "one at a time");
        let steps = contents.done(Kind::Secret, &key(), found("5"), at("9"), now);
        assert_eq!(steps.events.len(), 1);
        assert_eq!(contents.begin(now).len(), 1);
        // Given that it goes during the read, then the answer is dropped and nothing is known
        let steps = contents.announced(Kind::Secret, &key(), None, now);
        assert_eq!(steps.events, [Event::Gone(Kind::Secret, key())]);
        let steps = contents.done(Kind::Secret, &key(), found("9"), None, now);
        assert_eq!(steps, Steps::default());
        assert_eq!(contents.next(), None);
    }

    #[tokio::test]
    async fn a_failed_read_keeps_what_was_known_and_is_tried_again() {
        let (mut contents, now) = contents();
        contents.want(&named(), |_, _| at("5"), now);
        contents.begin(now);
        // Given a first read that fails, then nothing is known, and it is due later
        let steps = contents.done(Kind::Secret, &key(), Read::Failed("broke".into()), at("5"), now);
        assert_eq!(steps, Steps::default());
        assert!(!contents.first_reads(), "nobody waits for the second try");
        let next = contents.next().unwrap();
        assert!(next > now);
        assert_eq!(contents.begin(now), []);
        // when it is not found though announced, then the same, and later
        contents.begin(next);
        contents.done(Kind::Secret, &key(), Read::NotFound, at("5"), next);
        assert!(contents.next().unwrap() - next > next - now);
        // when it is found, then a later failure leaves the model as it is
        let later = contents.next().unwrap();
        contents.begin(later);
        contents.done(Kind::Secret, &key(), found("5"), at("5"), later);
        let steps = contents.announced(Kind::Secret, &key(), at("6"), later);
        assert_eq!((steps.events.len(), unknown(&steps)), (0, Some(false)));
        contents.begin(later);
        let steps = contents.done(Kind::Secret, &key(), Read::Failed("broke".into()), at("6"), later);
        assert_eq!(steps, Steps::default());
    }

    #[tokio::test]
    async fn without_the_right_it_counts_as_missing_and_the_right_is_named() {
        let (mut contents, now) = contents();
        contents.want(&named(), |_, _| at("5"), now);
        contents.begin(now);
        let steps = contents.done(Kind::Secret, &key(), Read::Forbidden("no".into()), at("5"), now);
        let [Event::Unreadable(Kind::Secret, _, why)] = &steps.events[..] else {
            panic!("{steps:?}")
        };
        assert!(why.contains("get on secrets in namespace team"), "{why}");
        assert_eq!(unknown(&steps), Some(false));
        // It is tried again after a minute or so, and works then.
        let next = contents.next().unwrap();
        assert!(next - now > Duration::from_secs(40));
        contents.begin(next);
        let steps = contents.done(Kind::Secret, &key(), found("5"), at("5"), next);
        assert!(matches!(steps.events[..], [Event::Seen(_)]));
    }

    #[tokio::test]
    async fn what_nobody_names_any_more_is_forgotten() {
        let (mut contents, now) = contents();
        contents.want(&named(), |_, _| at("5"), now);
        contents.begin(now);
        contents.done(Kind::Secret, &key(), found("5"), at("5"), now);
        let steps = contents.want(&BTreeSet::new(), |_, _| None, now);
        assert_eq!(steps.events, [Event::Gone(Kind::Secret, key())]);
        contents.announced(Kind::Secret, &key(), at("6"), now);
        assert_eq!((contents.begin(now), contents.named().count()), (vec![], 0));
    }
}
