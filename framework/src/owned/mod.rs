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

use crate::{ApiKind, Child};

/// What the cache says about a child.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// It is there.
    Present(Arc<Child>),
    /// The cache is complete and it is not there.
    Absent,
    /// There is no complete cache of this kind (yet).
    NotReady,
}

/// Caches of children, by kind. No API call.
pub trait ChildCache: Send + Sync + 'static {
    /// The child of this kind and name.
    fn child(&self, kind: &ApiKind, namespace: &str, name: &str) -> Lookup;
}
