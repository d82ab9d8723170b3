//! What stands after applying: one state per child, with the live object. Data only.

use std::{sync::Arc, time::Duration};

use crate::{ApiKind, Child, ErrorClass, HoldReason, Verdict};

/// A plan after its children were applied.
#[derive(Debug)]
pub struct Settled<V> {
    /// The plan's finding.
    pub verdict: Verdict<V>,
    /// What became of its children.
    pub children: Children,
    /// Look again after this time even if nothing changes.
    pub requeue: Option<Duration>,
    /// External effects are undone (or there were none): the finalizer may go. Set by the Effects layer.
    pub released: bool,
}

/// What became of the children of a plan.
#[derive(Clone, Debug, Default)]
pub struct Children(pub Vec<SettledChild>);

/// One child after applying.
#[derive(Clone, Debug)]
pub struct SettledChild {
    /// Kind of the child.
    pub kind: ApiKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub state: ChildState,
    /// As it stands, where known.
    pub live: Option<Arc<Child>>,
}

/// What became of one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It stood as wanted; nothing was called.
    Unchanged,
    /// It was created.
    Created,
    /// It was changed.
    Updated,
    /// It is ours and on its way out; creation waits for its end.
    Waiting,
    /// It does not stand, as wanted.
    Absent,
    /// It was ours, was not wanted, and its removal was asked for.
    Removed,
    /// An object of somebody else has the name; it was not touched.
    Foreign {
        /// Its controller as `Kind name`, or a note that nobody controls it.
        owner: String,
    },
    /// Somebody reverts our fields as fast as we set them.
    Contested {
        /// The other field manager, where it could be told.
        manager: String,
        /// Look again after this time.
        retry: Duration,
    },
    /// The call failed.
    Failed(ErrorClass, String),
    /// It was left alone.
    Held(HoldReason),
}

impl ChildState {
    /// Stable label for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Waiting => "waiting",
            Self::Absent => "absent",
            Self::Removed => "removed",
            Self::Foreign { .. } => "foreign",
            Self::Contested { .. } => "contested",
            Self::Failed(..) => "failed",
            Self::Held(_) => "held",
        }
    }
}

impl Children {
    /// The child of this kind and name, if the plan named it.
    pub fn find(&self, kind: &ApiKind, name: &str) -> Option<&SettledChild> {
        self.0.iter().find(|c| c.kind == *kind && c.name == name)
    }
}
