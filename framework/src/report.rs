//! What a controller says about an object: conditions, status fields, events. Data only; written by the Conditions layer.

use serde_json::{Map, Value};

use crate::{Condition, Outcome};

/// What to say, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Conditions to state. A type of the status contract that is not named here is removed, unless `keep_conditions`.
    pub conditions: Vec<Condition>,
    /// Leave every condition of the contract that is not named above as it is.
    pub keep_conditions: bool,
    /// Top-level fields of `status` in the contract. A contract field that is not named here is kept as it is.
    pub fields: Vec<(&'static str, StatusField)>,
    /// Write nothing at all to status.
    pub untouched: bool,
    /// Extra events, each published once until its text changes.
    pub notes: Vec<Note>,
    /// When to look again.
    pub outcome: Outcome,
}

/// A top-level field of `status`.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusField {
    /// Should be this value.
    Set(Value),
    /// Should not be there.
    Clear,
    /// A list with entries of ours, each with conditions: merged into the live one.
    Entries(Entries),
}

/// What a list in status should say as far as it is ours. Everything else in it stays as it is and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries {
    /// Which entries are ours: those with this value under this key, e.g. `("controllerName", "example.org/us")`; the
    /// key is written with them. `None`: the whole list is ours.
    pub ours: Option<(&'static str, String)>,
    /// The key that tells our entries apart, e.g. `parentRef` or `name`. Its values are compared as they stand: spell
    /// out what the API server fills in.
    pub identity: &'static str,
    /// Our entries. Live ones of ours that are not named here go (a second one of the same identity too), new ones are
    /// put at the end, in this order. None of ours at all, now and before: nothing is written.
    pub entries: Vec<Entry>,
    /// How much the API takes.
    pub limits: Limits,
}

/// How much the schema of a list takes. What would be over is left out from the end, entries of others never: one entry
/// too many, and the API server would refuse all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of the list, those of others included.
    pub entries: usize,
    /// Conditions of one entry.
    pub conditions: usize,
}

impl Default for Limits {
    /// No limit.
    fn default() -> Self {
        Self {
            entries: usize::MAX,
            conditions: usize::MAX,
        }
    }
}

/// One entry of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Value under [`Entries::identity`].
    pub identity: Value,
    /// Every other key of the entry, besides its conditions. A live key that is not named here goes.
    pub rest: Map<String, Value>,
    /// Its conditions. One of a type of the contract that is not named here goes; other types are somebody else's and
    /// stay. Transitions are logged; events about them are the report's own, as notes.
    pub conditions: Vec<Condition>,
}

/// An event besides the transitions of conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// `Warning` rather than `Normal`.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: std::borrow::Cow<'static, str>,
    /// For people.
    pub message: String,
}

impl Report {
    /// Says nothing and touches no status.
    pub fn untouched(outcome: Outcome) -> Self {
        Self {
            untouched: true,
            keep_conditions: true,
            ..Self::new(outcome)
        }
    }

    /// No condition, every field kept.
    pub fn new(outcome: Outcome) -> Self {
        Self {
            conditions: Vec::new(),
            keep_conditions: false,
            fields: Vec::new(),
            untouched: false,
            notes: Vec::new(),
            outcome,
        }
    }

    /// With this condition.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// With this status field.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: StatusField) -> Self {
        self.fields.push((name, value));
        self
    }

    /// With this event.
    #[must_use]
    pub fn note(mut self, warning: bool, reason: &'static str, message: impl Into<String>) -> Self {
        self.notes.push(Note {
            warning,
            reason: reason.into(),
            message: message.into(),
        });
        self
    }
}
