//! What a reconcile is asked to do. Nothing about how it was triggered: level, not edge.

use std::sync::Arc;

use crate::owner::Patches;

/// One reconcile of one object, as the cache knew it when it began.
#[derive(Debug)]
pub struct Request<K> {
    /// The object from the cache.
    pub object: Arc<K>,
    /// How many reconciles of this object failed in a row before this one; 0 at first. Set by the Policy layer.
    pub attempt: u32,
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
            deleting: self.deleting,
            patches: self.patches.clone(),
        }
    }
}
