//! Names of Kubernetes kinds as constants: what a controller needs or owns. No discovery here.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Mutex, PoisonError},
};

use kube::{
    Resource,
    core::{ApiResource, GroupVersionKind},
};

/// A namespaced Kubernetes kind, as static text. Compare by value; cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version, e.g. `v1`.
    pub version: &'static str,
    /// Kind, e.g. `Ingress`.
    pub kind: &'static str,
    /// Plural resource name, e.g. `ingresses`.
    pub plural: &'static str,
}

impl ApiKind {
    /// A kind from its four names.
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
        }
    }

    /// The kind of a typed resource.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: leak(K::group(&())),
            version: leak(K::version(&())),
            kind: leak(K::kind(&())),
            plural: leak(K::plural(&())),
        }
    }

    /// `group/version`, or just the version for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The form that kube's dynamic API wants.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(self.group, self.version, self.kind),
            self.plural,
        )
    }
}

/// Type names are static in all but name: where they are not, each text is kept once for good.
fn leak(name: Cow<'static, str>) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    match name {
        Cow::Borrowed(name) => name,
        Cow::Owned(name) => {
            let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = kept.get(name.as_str()) {
                return known;
            }
            let name: &'static str = name.leak();
            kept.insert(name);
            name
        }
    }
}

impl fmt::Display for ApiKind {
    /// `Ingress.networking.k8s.io/v1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}/{}", self.kind, self.version)
        } else {
            write!(f, "{}.{}/{}", self.kind, self.group, self.version)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_constant_is_kept_once() {
        let name = |text: &str| leak(Cow::Owned(text.to_owned()));
        assert!(std::ptr::eq(name("Zone"), name("Zone")));
        assert_eq!((name("Zone"), name("Flag")), ("Zone", "Flag"));
    }
}
