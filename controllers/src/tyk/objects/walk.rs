//! Walking through an untyped object: places for messages, and readers that turn what does not fit into a [`Problem`].
//!
//! A `null` is an absent field, as the API server treats it. Nothing here knows a kind.

use std::fmt;

use serde_json::{Map, Value};

use super::Problem;

/// A place in an object. Borrowed, so that a good object costs no allocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'p> {
    /// A field of the root.
    Root(&'p str),
    /// A field of another place.
    Field(&'p Place<'p>, &'p str),
    /// An item of a list.
    Item(&'p Place<'p>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => write!(f, "{}", Name(name)),
            Self::Field(parent, name) => {
                let name = Name(name);
                if name.is_plain() {
                    write!(f, "{parent}.{name}")
                } else {
                    write!(f, "{parent}[{name}]")
                }
            }
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl<'p> Place<'p> {
    /// A field below.
    pub(super) fn field<'q>(&'q self, name: &'q str) -> Place<'q>
    where
        'p: 'q,
    {
        Place::Field(self, name)
    }

    /// An item below.
    pub(super) fn item<'q>(&'q self, index: usize) -> Place<'q>
    where
        'p: 'q,
    {
        Place::Item(self, index)
    }

    /// A problem here.
    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.to_string(), message)
    }
}

/// Longest piece of a user's text that a message repeats, in characters.
const SHOWN: usize = 63;

/// A user's text as messages show it: short, printable, quoted where it is no plain word.
pub(super) struct Name<'a>(pub(super) &'a str);

impl Name<'_> {
    fn is_plain(&self) -> bool {
        !self.0.is_empty()
            && self.0.len() <= SHOWN
            && self
                .0
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return f.write_str(self.0);
        }
        let short: String = self.0.chars().take(SHOWN).collect();
        let cut = if short.len() < self.0.len() { "…" } else { "" };
        write!(f, "{:?}", format!("{short}{cut}"))
    }
}

/// An object with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'p, 'v> {
    place: Place<'p>,
    map: &'v Map<String, Value>,
}

impl<'p, 'v> Node<'p, 'v> {
    /// A value that should be an object.
    pub(super) fn of(place: Place<'p>, value: &'v Value, problems: &mut Vec<Problem>) -> Option<Self> {
        match value.as_object() {
            Some(map) => Some(Self { place, map }),
            None => {
                problems.push(place.problem("must be an object"));
                None
            }
        }
    }

    /// The place of a field.
    pub(super) fn at<'q>(&'q self, name: &'q str) -> Place<'q> {
        self.place.field(name)
    }

    /// A field that is there.
    pub(super) fn get(&self, name: &str) -> Option<&'v Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Names of the fields that are there.
    pub(super) fn names(&self) -> impl Iterator<Item = &'v str> {
        self.map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, _)| name.as_str())
    }

    /// Names every field that is not in `known`.
    pub(super) fn only(&self, known: &[&str], problems: &mut Vec<Problem>) {
        for name in self.names().filter(|name| !known.contains(name)) {
            problems.push(self.at(name).problem("is not supported; remove the field"));
        }
    }

    /// A text field.
    pub(super) fn text(&self, name: &str, problems: &mut Vec<Problem>) -> Option<&'v str> {
        let value = self.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            problems.push(self.at(name).problem("must be a string"));
        }
        text
    }

    /// A text field; an empty one counts as absent.
    pub(super) fn filled(&self, name: &str, problems: &mut Vec<Problem>) -> Option<&'v str> {
        self.text(name, problems).filter(|text| !text.is_empty())
    }

    /// A text field that must be there and not empty.
    pub(super) fn required(&self, name: &str, problems: &mut Vec<Problem>) -> Option<&'v str> {
        let before = problems.len();
        let text = self.filled(name, problems);
        if text.is_none() && problems.len() == before {
            problems.push(self.at(name).problem("must be set"));
        }
        text
    }

    /// A flag.
    pub(super) fn flag(&self, name: &str, problems: &mut Vec<Problem>) -> Option<bool> {
        let value = self.get(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            problems.push(self.at(name).problem("must be true or false"));
        }
        flag
    }

    /// A whole number within bounds.
    pub(super) fn number(
        &self,
        name: &str,
        (least, most): (u32, u32),
        problems: &mut Vec<Problem>,
    ) -> Option<u32> {
        let value = self.get(name)?;
        let number = value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| (least..=most).contains(number));
        if number.is_none() {
            problems.push(
                self.at(name)
                    .problem(format!("must be a whole number from {least} to {most}")),
            );
        }
        number
    }

    /// A port number.
    pub(super) fn port(&self, name: &str, problems: &mut Vec<Problem>) -> Option<u16> {
        self.number(name, (1, 65535), problems)
            .and_then(|port| u16::try_from(port).ok())
    }

    /// A list; empty when absent.
    pub(super) fn list(&self, name: &str, problems: &mut Vec<Problem>) -> &'v [Value] {
        match self.get(name).map(Value::as_array) {
            Some(Some(items)) => items,
            Some(None) => {
                problems.push(self.at(name).problem("must be a list"));
                &[]
            }
            None => &[],
        }
    }

    /// A list of texts; empty when absent.
    pub(super) fn texts(&self, name: &str, problems: &mut Vec<Problem>) -> Vec<(usize, &'v str)> {
        let items = self.list(name, problems);
        let place = self.at(name);
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| {
                let text = item.as_str();
                if text.is_none() {
                    problems.push(place.item(index).problem("must be a string"));
                }
                Some((index, text?))
            })
            .collect()
    }

    /// Runs `read` on an object below, if it is there.
    pub(super) fn with<T>(
        &self,
        name: &str,
        problems: &mut Vec<Problem>,
        read: impl FnOnce(&Node<'_, 'v>, &mut Vec<Problem>) -> T,
    ) -> Option<T> {
        let value = self.get(name)?;
        let node = Node::of(self.at(name), value, problems)?;
        Some(read(&node, problems))
    }

    /// Runs `read` on every object of a list below; what is no object is a problem and left out.
    pub(super) fn each<T>(
        &self,
        name: &str,
        problems: &mut Vec<Problem>,
        mut read: impl FnMut(&Node<'_, 'v>, &mut Vec<Problem>) -> Option<T>,
    ) -> Vec<T> {
        let items = self.list(name, problems);
        let place = self.at(name);
        let mut read_ones = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if let Some(node) = Node::of(place.item(index), item, problems) {
                read_ones.extend(read(&node, problems));
            }
        }
        read_ones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_read_like_field_paths() {
        let spec = Place::Root("spec");
        let rules = spec.field("rules");
        let rule = rules.item(1);
        assert_eq!(rule.field("retry").to_string(), "spec.rules[1].retry");
        assert_eq!(rule.field("a.b").to_string(), r#"spec.rules[1]["a.b"]"#);
        assert_eq!(rule.field("a\nb").to_string(), r#"spec.rules[1]["a\nb"]"#);
        let long = "x".repeat(200);
        assert!(rule.field(&long).to_string().len() < 100);
    }

    #[test]
    fn null_is_absent_and_a_wrong_type_is_named() {
        let value = json!({"a": null, "b": 1, "c": "x", "d": 70000, "e": ["x", 1], "f": ""});
        let mut problems = Vec::new();
        let node = Node::of(Place::Root("spec"), &value, &mut problems).unwrap();
        assert_eq!(node.text("a", &mut problems), None);
        assert_eq!(node.text("c", &mut problems), Some("x"));
        assert_eq!(problems, []);
        assert_eq!(node.text("b", &mut problems), None);
        assert_eq!(node.port("d", &mut problems), None);
        assert_eq!(node.texts("e", &mut problems), [(0, "x")]);
        assert_eq!(node.required("f", &mut problems), None);
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "spec.b: must be a string",
                "spec.d: must be a whole number from 1 to 65535",
                "spec.e[1]: must be a string",
                "spec.f: must be set",
            ]
        );
    }
}
