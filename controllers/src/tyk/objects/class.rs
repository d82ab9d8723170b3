//! GatewayClass, as far as decisions need it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    DecodeError, Meta, Scope,
    walk::{Node, Place},
};

/// A GatewayClass of any controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayClass {
    /// Metadata.
    pub meta: Meta,
    /// spec.controllerName
    pub controller_name: String,
    /// spec.parametersRef
    pub parameters: Option<ParametersRef>,
    /// Namespaces whose Gateways may be of the class, sorted; `None` for all. See [`GATEWAY_NAMESPACES`].
    pub gateway_namespaces: Option<Vec<String>>,
}

/// Annotation of a GatewayClass: names of the namespaces whose Gateways may be of the class, with commas or white space
/// between them. An empty one allows none.
pub const GATEWAY_NAMESPACES: &str = "routewright.dev/gateway-namespaces";

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

impl GatewayClass {
    /// Reads a GatewayClass. What does not decode counts as absent: an empty controllerName is nobody's.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut class = Self {
            meta: Meta::decode(value, Scope::Cluster)?,
            ..Self::default()
        };
        let ignored = &mut Vec::new();
        // What is no text allows none: the annotation is there to close.
        let annotations = value.pointer("/metadata/annotations").and_then(Value::as_object);
        let allowed = annotations.and_then(|all| all.get(GATEWAY_NAMESPACES));
        class.gateway_namespaces = allowed.map(|allowed| {
            let names = allowed.as_str().unwrap_or_default();
            let names = names.split(|c: char| c == ',' || c.is_whitespace());
            let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
            names.into_iter().map(str::to_owned).collect()
        });
        if let Some(spec) = value
            .get("spec")
            .and_then(|spec| Node::of(Place::Root("spec"), spec, ignored))
        {
            class.controller_name = spec
                .text("controllerName", ignored)
                .unwrap_or_default()
                .to_owned();
            class.parameters = ParametersRef::below(&spec, ignored);
        }
        Ok(class)
    }
}

impl ParametersRef {
    /// The field `parametersRef` of a node. What does not decode is left empty and refers to nothing.
    pub(super) fn below(node: &Node<'_, '_>, problems: &mut Vec<super::Problem>) -> Option<Self> {
        node.get("parametersRef")?;
        let read = node.with("parametersRef", problems, |reference, problems| Self {
            group: reference.text("group", problems).unwrap_or_default().to_owned(),
            kind: reference.text("kind", problems).unwrap_or_default().to_owned(),
            name: reference.text("name", problems).unwrap_or_default().to_owned(),
            namespace: reference.filled("namespace", problems).map(str::to_owned),
        });
        Some(read.unwrap_or_default())
    }
}
