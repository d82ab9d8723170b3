//! What a reconcile is asked to do. Nothing about how it was triggered: level, not edge.

use std::sync::Arc;

use tokio::time::Instant;

use crate::owner::Patches;

/// One reconcile of one object, as the cache knew it when it began.
#[derive(Debug)]
pub struct Request<K> {
    /// The object from the cache.
    pub object: Arc<K>,
    /// How many reconciles of this object failed in a row before this one; 0 at first. Set by the Policy layer.
    pub attempt: u32,
    /// When the first of these failures began; `None` at first. Set by the Policy layer.
    pub failing_since: Option<Instant>,
    /// The object carries a deletionTimestamp and our finalizer: undo external effects. Set by the Finalizer layer.
    pub deleting: bool,
    /// Patches of the object by this very reconcile. Clones share them, so that they are known however it ends.
    pub patches: Patches,
}

impl<K> Request<K> {
    /// A first attempt.
    pub fn new(object: Arc<K>) -> Self {
        Self {
            object,
            attempt: 0,
            failing_since: None,
            deleting: false,
            patches: Patches::default(),
        }
    }
}

// By hand: a derive would ask for `K: Clone`.
impl<K> Clone for Request<K> {
    fn clone(&self) -> Self {
        Self {
            object: Arc::clone(&self.object),
            attempt: self.attempt,
            failing_since: self.failing_since,
            deleting: self.deleting,
            patches: self.patches.clone(),
        }
    }
}
