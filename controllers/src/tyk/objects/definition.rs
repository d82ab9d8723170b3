//! TykOasApiDefinition, as far as an attached definition needs it.

use super::{Meta, Problem};

/// A TykOasApiDefinition. Without `targets` it is another operator's business and nothing is said about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TykOasApiDefinition {
    /// Metadata.
    pub meta: Meta,
    /// spec.targetRefs
    pub targets: Vec<TargetRef>,
    /// spec.tykOAS.configmapRef; `None` when missing.
    pub config_map: Option<ConfigMapRef>,
    /// Field paths of the object itself that set what the route sets, e.g. `spec.customDomain`.
    pub route_owned: Vec<String>,
    /// Fields that do not decode.
    pub problems: Vec<Problem>,
}

/// What a definition is attached to, in its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetRef {
    /// API group, as written.
    pub group: String,
    /// Kind, as written.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// Where the document is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMapRef {
    /// Name of the ConfigMap.
    pub name: String,
    /// Namespace, if written. Another than the definition's own is refused.
    pub namespace: Option<String>,
    /// spec.tykOAS.configmapRef.keyName, if written.
    pub key: Option<String>,
}
