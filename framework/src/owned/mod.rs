//! Owned children: what to do about one child (`decide`, pure), what was written and not seen back yet (`memory`),
//! how equal is equal (`compare`), the calls (`writer`), and the watch on a foreign object in the way (`squatter`).

pub mod compare;
pub mod decide;
pub mod memory;
pub mod squatter;
pub mod writer;

pub use decide::{Decision, Stamp};
pub use memory::WriteMemory;
pub use writer::{ChildWriter, KubeChildWriter};

use std::sync::Arc;

use crate::{
    ApiKind, Child,
    runtime::{Handle, hub::Found},
};

/// What the cache says about a child.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// It is there.
    Present(Arc<Child>),
    /// The cache is complete and it is not there.
    Absent,
    /// There is no complete cache of this kind (yet).
    NotReady,
    /// The controller has no watch of this kind: a bug of the operator, which no retry cures.
    Unwatched,
}

impl From<Found<Child>> for Lookup {
    fn from(found: Found<Child>) -> Self {
        match found {
            Found::Present(child) => Self::Present(child),
            Found::Absent => Self::Absent,
            // Nothing is known of it, or only that it is there.
            Found::NotWatched | Found::NotPermitted(_) | Found::NotDecodable { .. } | Found::Unknown => {
                Self::NotReady
            }
        }
    }
}

/// Caches of children, by kind. No API call.
pub trait ChildCache: Send + Sync + 'static {
    /// The child of this name, as cached.
    fn child(&self, kind: &ApiKind, namespace: &str, name: &str) -> Lookup;

    /// Why the cache of this kind is not complete, where that is known.
    fn problem(&self, kind: &ApiKind) -> Option<String> {
        let _ = kind;
        None
    }
}

/// Watches of whole kinds, which must have been asked for with the labels that every child carries.
impl ChildCache for Vec<(ApiKind, Handle<Child>)> {
    fn child(&self, kind: &ApiKind, namespace: &str, name: &str) -> Lookup {
        match self.iter().find(|(known, _)| known == kind) {
            Some((_, handle)) => handle.find(namespace, name).into(),
            None => Lookup::Unwatched,
        }
    }

    fn problem(&self, kind: &ApiKind) -> Option<String> {
        let (_, handle) = self.iter().find(|(known, _)| known == kind)?;
        handle.problem().map(|problem| problem.message)
    }
}
