//! ReferenceGrant (v1 and v1beta1 alike).

use super::Key;

/// A ReferenceGrant in the namespace of what it grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceGrant {
    /// Namespace and name.
    pub key: Key,
    /// spec.from as (group, kind, namespace).
    pub from: Vec<(String, String, String)>,
    /// spec.to as (group, kind, name); no name means all. The core group is the empty string.
    pub to: Vec<(String, String, Option<String>)>,
}
