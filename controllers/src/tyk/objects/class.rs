//! GatewayClass, as far as decisions need it.

use super::Meta;

/// A GatewayClass of any controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayClass {
    /// Metadata.
    pub meta: Meta,
    /// spec.controllerName
    pub controller_name: String,
    /// spec.parametersRef
    pub parameters: Option<ParametersRef>,
}

/// A reference to parameters: of a GatewayClass, or (never with a namespace) of a Gateway's infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParametersRef {
    /// API group, as written.
    pub group: String,
    /// Kind, as written.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, if written.
    pub namespace: Option<String>,
}
