//! The caches of children by kind, as the OwnedChildren layer asks them. Looks the store up anew each time: it comes and
//! goes with its kind.

use std::{collections::HashMap, sync::Arc};

use super::hub::Handle;
use crate::{
    ApiKind, Child,
    owned::{ChildCache, Lookup},
};

/// One watch per kind of child. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ChildCaches(Arc<HashMap<ApiKind, Handle<Child>>>);

impl ChildCaches {
    /// These watches.
    pub fn new(watches: impl IntoIterator<Item = (ApiKind, Handle<Child>)>) -> Self {
        Self(Arc::new(watches.into_iter().collect()))
    }

    /// The watch of a kind.
    pub fn watch(&self, kind: &ApiKind) -> Option<&Handle<Child>> {
        self.0.get(kind)
    }
}

impl ChildCache for ChildCaches {
    fn child(&self, kind: &ApiKind, namespace: &str, name: &str) -> Lookup {
        match self.0.get(kind) {
            Some(watch) => watch.find(namespace, name).into(),
            None => Lookup::Unwatched,
        }
    }

    fn problem(&self, kind: &ApiKind) -> Option<String> {
        self.0.get(kind)?.problem().map(|problem| problem.message)
    }
}
