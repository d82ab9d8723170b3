//! What a reconcile came to, and when to look again. Turned into kube's `Action` at the edge only.

use std::time::Duration;

use crate::ErrorClass;

/// The end of a reconcile that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time even if nothing changes.
    RequeueAfter(Duration),
    /// Something outside is missing; a change of it will trigger, and `retry` is the safety net.
    Waiting {
        /// Low-cardinality name of what is waited for.
        reason: &'static str,
        /// Look again after this time.
        retry: Duration,
    },
    /// Not done here and now, on purpose (not the leader, back-off not over).
    Skipped(&'static str),
    /// It failed and the failure was handled: said on the object, counted, and to be retried.
    Failed {
        /// Why, for metrics and traces.
        class: ErrorClass,
        /// Look again after this time, if at all.
        retry: Option<Duration>,
    },
}

impl Outcome {
    /// Stable label for metrics and traces; the first two are controller-runtime's words.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Done => "success",
            Self::RequeueAfter(_) => "requeue_after",
            Self::Waiting { .. } => "waiting",
            Self::Skipped(_) => "skipped",
            Self::Failed { .. } => "error",
        }
    }

    /// When to look again, if at all.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::RequeueAfter(d) | Self::Waiting { retry: d, .. } => Some(*d),
            Self::Failed { retry, .. } => *retry,
            Self::Done | Self::Skipped(_) => None,
        }
    }

    /// The same outcome, but looked at again no later than `after`.
    pub fn no_later_than(self, after: Option<Duration>) -> Self {
        let Some(after) = after else { return self };
        match self {
            Self::Done => Self::RequeueAfter(after),
            Self::RequeueAfter(d) => Self::RequeueAfter(d.min(after)),
            Self::Waiting { reason, retry } => Self::Waiting {
                reason,
                retry: retry.min(after),
            },
            Self::Failed { class, retry } => Self::Failed {
                class,
                retry: Some(retry.map_or(after, |d| d.min(after))),
            },
            Self::Skipped(why) => Self::Skipped(why),
        }
    }
}
