//! Kubernetes objects as the model sees them: compact, decoded tolerantly, without secrets.
//!
//! Here live the types and what they share; decoding stands beside each type. No verdict is made here: what a field
//! *means* together with other objects belongs to `model`. What one object alone can be refused for (an unsupported
//! filter, a token in a value) is a [`Problem`] that travels with it.

use std::fmt;

pub mod class;
pub mod context;
pub mod core;
pub mod decode;
pub mod definition;
pub mod document;
pub mod gateway;
pub mod grant;
pub mod route;
pub mod text;
mod tls;
mod walk;

pub use self::core::{ConfigMap, EndpointSlice, Namespace, Secret, Service};
pub use class::GatewayClass;
pub use context::OperatorContext;
pub use decode::{DecodeError, Scope};
pub use definition::TykOasApiDefinition;
pub use gateway::Gateway;
pub use grant::ReferenceGrant;
pub use route::HttpRoute;

/// API group of Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// API group of OperatorContext and TykOasApiDefinition.
pub const TYK_GROUP: &str = "tyk.tyk.io";

/// Namespace and name. Ordered by namespace, then name, as Gateway API breaks ties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A namespaced name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// A cluster-scoped name.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The metadata that decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// metadata.uid; empty in a manifest.
    pub uid: String,
    /// metadata.generation; 0 in a manifest.
    pub generation: i64,
    /// metadata.creationTimestamp in seconds since 1970; `i64::MAX` when there is none, so that a manifest without one
    /// is younger than what the cluster has.
    pub created: i64,
    /// metadata.deletionTimestamp is set.
    pub deleting: bool,
}

impl Meta {
    /// Order of precedence: oldest first, then namespace and name.
    pub fn age(&self) -> (i64, &Key) {
        (self.created, &self.key)
    }
}

/// Something in one object that cannot be served, with its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Field path from the object's root, e.g. `spec.rules[1].retry`.
    pub path: String,
    /// Why, and the way out. Never repeats a value that may be a secret.
    pub message: String,
}

impl Problem {
    /// A problem at a place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

pub(in crate::tyk) use crate::hex::hex;

/// A digest that tells equal from different and gives nothing away: hex SHA-256, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub String);

/// The kinds that the model looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// gateway.networking.k8s.io GatewayClass
    GatewayClass,
    /// gateway.networking.k8s.io Gateway
    Gateway,
    /// gateway.networking.k8s.io HTTPRoute
    HttpRoute,
    /// gateway.networking.k8s.io ReferenceGrant
    ReferenceGrant,
    /// tyk.tyk.io OperatorContext
    OperatorContext,
    /// tyk.tyk.io TykOasApiDefinition
    TykOasApiDefinition,
    /// Service
    Service,
    /// discovery.k8s.io EndpointSlice
    EndpointSlice,
    /// Secret
    Secret,
    /// ConfigMap
    ConfigMap,
    /// Namespace
    Namespace,
}

/// One object of a kind that the model looks at.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A GatewayClass.
    GatewayClass(GatewayClass),
    /// A Gateway.
    Gateway(Gateway),
    /// An HTTPRoute.
    HttpRoute(HttpRoute),
    /// A ReferenceGrant.
    ReferenceGrant(ReferenceGrant),
    /// An OperatorContext.
    OperatorContext(OperatorContext),
    /// A TykOasApiDefinition.
    TykOasApiDefinition(TykOasApiDefinition),
    /// A Service.
    Service(Service),
    /// An EndpointSlice.
    EndpointSlice(EndpointSlice),
    /// A Secret, without its content.
    Secret(Secret),
    /// A ConfigMap that a definition may name.
    ConfigMap(ConfigMap),
    /// A Namespace.
    Namespace(Namespace),
}

impl Object {
    /// Its kind and key, as [`Event::Gone`] would name it.
    pub fn id(&self) -> (Kind, &Key) {
        match self {
            Self::GatewayClass(o) => (Kind::GatewayClass, &o.meta.key),
            Self::Gateway(o) => (Kind::Gateway, &o.meta.key),
            Self::HttpRoute(o) => (Kind::HttpRoute, &o.meta.key),
            Self::ReferenceGrant(o) => (Kind::ReferenceGrant, &o.key),
            Self::OperatorContext(o) => (Kind::OperatorContext, &o.key),
            Self::TykOasApiDefinition(o) => (Kind::TykOasApiDefinition, &o.meta.key),
            Self::Service(o) => (Kind::Service, &o.key),
            Self::EndpointSlice(o) => (Kind::EndpointSlice, &o.key),
            Self::Secret(o) => (Kind::Secret, &o.key),
            Self::ConfigMap(o) => (Kind::ConfigMap, &o.key),
            Self::Namespace(o) => (Kind::Namespace, &o.key),
        }
    }
}

/// What happened to an object. The order of events between objects means nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It is there, and this is how it looks now.
    Seen(Box<Object>),
    /// It is gone.
    Gone(Kind, Key),
    /// A Secret or ConfigMap that is there and may not be read: it counts as missing, and who misses it gives this reason
    /// instead (continuing "Secret a/b …").
    Unreadable(Kind, Key, String),
    /// `gateway.networking.k8s.io/bundle-version` of each CRD of Gateway API, by CRD name; `None` without the
    /// annotation. Not known until the first such event.
    Bundles(std::collections::BTreeMap<String, Option<String>>),
}
