//! Conditions as values: set, keep transition times, compare without time. No I/O.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};

use crate::error::condition_text;

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// It does not.
    False,
    /// Not known yet.
    Unknown,
}

impl ConditionStatus {
    /// The API's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(yes: bool) -> Self {
        if yes { Self::True } else { Self::False }
    }
}

/// What a controller says about one condition type; generation and times are added when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Condition type, e.g. `Ready`.
    pub type_: &'static str,
    /// Its status.
    pub status: ConditionStatus,
    /// CamelCase reason, from a documented enum.
    pub reason: &'static str,
    /// For people; stable between retries, at most 32 768 bytes (longer text is cut).
    pub message: String,
}

impl Condition {
    /// A condition.
    pub fn new(
        type_: &'static str,
        status: impl Into<ConditionStatus>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_,
            status: status.into(),
            reason,
            message: message.into(),
        }
    }

    /// As the API stores it: `lastTransitionTime` is kept from `live` unless the status flips.
    pub fn stamped(
        &self,
        live: Option<&MetaCondition>,
        generation: Option<i64>,
        now: &Time,
    ) -> MetaCondition {
        let kept = live
            .filter(|l| l.status == self.status.as_str())
            .map(|l| l.last_transition_time.clone());
        MetaCondition {
            type_: self.type_.to_owned(),
            status: self.status.as_str().to_owned(),
            reason: self.reason.to_owned(),
            message: condition_text(&self.message).into_owned(),
            observed_generation: generation,
            last_transition_time: kept.unwrap_or_else(|| now.clone()),
        }
    }
}

/// Equal but for `lastTransitionTime`.
pub fn same(a: &MetaCondition, b: &MetaCondition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.reason == b.reason
        && a.message == b.message
        && a.observed_generation == b.observed_generation
}

/// The condition of this type, if the list has it.
pub fn find<'a>(list: &'a [MetaCondition], type_: &str) -> Option<&'a MetaCondition> {
    list.iter().find(|c| c.type_ == type_)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MAX_MESSAGE;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn transition_time_moves_only_when_the_status_flips() {
        let first = Condition::new("Ready", false, "Waiting", "a").stamped(None, Some(1), &at(10));
        assert_eq!(first.last_transition_time, at(10));
        let reworded = Condition::new("Ready", false, "Failed", "b").stamped(Some(&first), Some(2), &at(20));
        assert_eq!(reworded.last_transition_time, at(10));
        let flipped = Condition::new("Ready", true, "Done", "").stamped(Some(&reworded), Some(2), &at(30));
        assert_eq!(flipped.last_transition_time, at(30));
    }

    #[test]
    fn comparison_ignores_time_and_nothing_else() {
        let a = Condition::new("Ready", true, "Done", "x").stamped(None, Some(1), &at(10));
        let b = Condition::new("Ready", true, "Done", "x").stamped(None, Some(1), &at(99));
        assert!(same(&a, &b));
        for other in [
            Condition::new("Ready", false, "Done", "x").stamped(None, Some(1), &at(10)),
            Condition::new("Ready", true, "Other", "x").stamped(None, Some(1), &at(10)),
            Condition::new("Ready", true, "Done", "y").stamped(None, Some(1), &at(10)),
            Condition::new("Ready", true, "Done", "x").stamped(None, Some(2), &at(10)),
        ] {
            assert!(!same(&a, &other));
        }
    }

    #[test]
    fn a_message_over_the_limit_is_cut_at_a_character() {
        let long = "ü".repeat(MAX_MESSAGE);
        let message = Condition::new("Ready", true, "Done", long)
            .stamped(None, None, &at(1))
            .message;
        assert!(message.len() <= MAX_MESSAGE && message.ends_with("ü…"));
    }
}
