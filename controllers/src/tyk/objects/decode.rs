//! From an untyped object to one of the kinds that the model looks at: identity first, then the kind's own reader.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    ConfigMap, EndpointSlice, GATEWAY_GROUP, Gateway, GatewayClass, HttpRoute, Key, Kind, Meta, Namespace,
    Object, OperatorContext, ReferenceGrant, Secret, Service, TYK_GROUP, TykOasApiDefinition,
    text::{is_label, is_object_name},
    walk::Name,
};

/// An object that has no identity: nothing can be said about it in a status, so it is passed over and told. The API
/// server has no such object; a manifest may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Field path, e.g. `metadata.name`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl DecodeError {
    fn new(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for DecodeError {}

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In no namespace.
    Cluster,
    /// In a namespace; `default` when a manifest leaves it out.
    Namespaced,
}

/// Kinds with their API groups and the versions that are read: the same shape in each.
const KINDS: [(Kind, &str, &[&str], &str); 11] = [
    (
        Kind::GatewayClass,
        GATEWAY_GROUP,
        &["v1", "v1beta1"],
        "GatewayClass",
    ),
    (Kind::Gateway, GATEWAY_GROUP, &["v1", "v1beta1"], "Gateway"),
    (Kind::HttpRoute, GATEWAY_GROUP, &["v1", "v1beta1"], "HTTPRoute"),
    (
        Kind::ReferenceGrant,
        GATEWAY_GROUP,
        &["v1", "v1beta1"],
        "ReferenceGrant",
    ),
    (Kind::OperatorContext, TYK_GROUP, &["v1alpha1"], "OperatorContext"),
    (
        Kind::TykOasApiDefinition,
        TYK_GROUP,
        &["v1alpha1"],
        "TykOasApiDefinition",
    ),
    (Kind::Service, "", &["v1"], "Service"),
    (Kind::EndpointSlice, "discovery.k8s.io", &["v1"], "EndpointSlice"),
    (Kind::Secret, "", &["v1"], "Secret"),
    (Kind::ConfigMap, "", &["v1"], "ConfigMap"),
    (Kind::Namespace, "", &["v1"], "Namespace"),
];

impl Kind {
    /// The kind that `apiVersion` and `kind` name; `None` for one that is not looked at, in this version or at all.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        KINDS
            .into_iter()
            .find(|(_, known, versions, name)| {
                *known == group && *name == kind && versions.contains(&version)
            })
            .map(|(kind, ..)| kind)
    }

    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        KINDS
            .into_iter()
            .find(|(kind, ..)| *kind == self)
            .map_or("", |(.., name)| name)
    }

    /// Whether its objects live in namespaces.
    pub fn scope(self) -> Scope {
        match self {
            Self::GatewayClass | Self::Namespace => Scope::Cluster,
            _ => Scope::Namespaced,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Object {
    /// Reads an object as the API server or a manifest gives it. `None` for a kind or version that is not looked at.
    pub fn decode(value: &Value) -> Result<Option<Self>, DecodeError> {
        let field = |name| {
            value
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .ok_or_else(|| DecodeError::new(name, "must be set"))
        };
        if !value.is_object() {
            return Err(DecodeError::new("the document", "must be an object"));
        }
        let Some(kind) = Kind::of(field("apiVersion")?, field("kind")?) else {
            return Ok(None);
        };
        Ok(Some(match kind {
            Kind::GatewayClass => Self::GatewayClass(GatewayClass::decode(value)?),
            Kind::Gateway => Self::Gateway(Gateway::decode(value)?),
            Kind::HttpRoute => Self::HttpRoute(HttpRoute::decode(value)?),
            Kind::ReferenceGrant => Self::ReferenceGrant(ReferenceGrant::decode(value)?),
            Kind::OperatorContext => Self::OperatorContext(OperatorContext::decode(value)?),
            Kind::TykOasApiDefinition => Self::TykOasApiDefinition(TykOasApiDefinition::decode(value)?),
            Kind::Service => Self::Service(Service::decode(value)?),
            Kind::EndpointSlice => Self::EndpointSlice(EndpointSlice::decode(value)?),
            Kind::Secret => Self::Secret(Secret::decode(value)?),
            Kind::ConfigMap => Self::ConfigMap(ConfigMap::decode(value)?),
            Kind::Namespace => Self::Namespace(Namespace::decode(value)?),
        }))
    }
}

impl Meta {
    /// Reads metadata. Names are checked as the API server checks them: they become parts of upstream URLs.
    pub fn decode(value: &Value, scope: Scope) -> Result<Self, DecodeError> {
        let metadata = value.get("metadata").unwrap_or(&Value::Null);
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = text("name");
        if name.is_empty() {
            return Err(DecodeError::new("metadata.name", "must be set"));
        }
        if !is_object_name(name) {
            return Err(DecodeError::new(
                "metadata.name",
                format!("{} is no name of a Kubernetes object", Name(name)),
            ));
        }
        let namespace = match (scope, text("namespace")) {
            (Scope::Cluster, _) => "",
            (Scope::Namespaced, "") => "default",
            (Scope::Namespaced, namespace) if is_label(namespace) => namespace,
            (Scope::Namespaced, namespace) => {
                return Err(DecodeError::new(
                    "metadata.namespace",
                    format!("{} is no name of a namespace", Name(namespace)),
                ));
            }
        };
        Ok(Self {
            key: Key::new(namespace, name),
            uid: text("uid").to_owned(),
            generation: metadata
                .get("generation")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            created: text("creationTimestamp")
                .parse::<Timestamp>()
                .map_or(i64::MAX, Timestamp::as_second),
            deleting: metadata
                .get("deletionTimestamp")
                .is_some_and(|value| !value.is_null()),
        })
    }
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
