//! ReferenceGrants: whether a reference into another namespace is allowed.

use super::{super::objects::ReferenceGrant, view::View};

/// Who refers to what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    /// Group of the referrer.
    pub(super) from_group: &'a str,
    /// Kind of the referrer.
    pub(super) from_kind: &'a str,
    /// Namespace of the referrer.
    pub(super) from_namespace: &'a str,
    /// Group of the target, empty for core.
    pub(super) group: &'a str,
    /// Kind of the target.
    pub(super) kind: &'a str,
    /// Namespace of the target.
    pub(super) namespace: &'a str,
    /// Name of the target.
    pub(super) name: &'a str,
}

fn allows(grant: &ReferenceGrant, reference: &Reference<'_>) -> bool {
    let from = grant.from.iter().any(|(group, kind, namespace)| {
        group == reference.from_group && kind == reference.from_kind && namespace == reference.from_namespace
    });
    from && grant.to.iter().any(|(group, kind, name)| {
        group == reference.group
            && kind == reference.kind
            && name.as_ref().is_none_or(|name| name == reference.name)
    })
}

/// Whether a reference is allowed: within its namespace always, else by a grant in the target's namespace.
pub(super) fn permitted(view: &View<'_>, reference: &Reference<'_>) -> bool {
    reference.namespace == reference.from_namespace
        || view
            .grants(reference.namespace)
            .any(|grant| allows(grant, reference))
}
