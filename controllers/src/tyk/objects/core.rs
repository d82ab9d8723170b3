//! Kinds of Kubernetes itself: Service, EndpointSlice, Secret, ConfigMap, Namespace. A Secret's content is read once,
//! when it is decoded, and only conclusions are kept.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Fingerprint, Key, context::ConnectionFields};

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: Key,
    /// spec.type; `ClusterIP` when left out.
    pub type_: String,
    /// spec.clusterIP; `None` when empty, `Some("None")` for a headless one.
    pub cluster_ip: Option<String>,
    /// spec.externalName
    pub external_name: Option<String>,
    /// spec.ports
    pub ports: Vec<ServicePort>,
    /// status.loadBalancer.ingress, in order.
    pub ingress: Vec<IngressAddress>,
}

/// One port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Name; empty for a single unnamed port.
    pub name: String,
    /// The Service's port.
    pub port: u16,
    /// appProtocol, as written.
    pub app_protocol: Option<String>,
}

/// One address of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngressAddress {
    /// An IP address.
    Ip(String),
    /// A host name.
    Hostname(String),
}

/// An EndpointSlice of IP addresses; slices of type FQDN have no endpoints here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub key: Key,
    /// Label kubernetes.io/service-name.
    pub service: Option<String>,
    /// Ports by name (empty for unnamed); a port without number is left out.
    pub ports: Vec<(String, u16)>,
    /// Addresses of endpoints that are ready (`ready` absent counts as ready), in order, the first of each endpoint.
    pub ready: Vec<String>,
}

/// What a Secret amounts to; its bytes are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secret {
    /// Namespace and name.
    pub key: Key,
    /// type, e.g. `kubernetes.io/tls`.
    pub type_: String,
    /// The certificate in it, if the type is `kubernetes.io/tls`; or why it is none, without quoting content.
    pub tls: Option<Result<Certificate, String>>,
    /// Its `TYK_…` keys.
    pub connection: ConnectionFields,
}

/// A certificate with a matching key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Certificate {
    /// Lower-case hex SHA-256 of the leaf's DER: Tyk's id of it without the organisation in front.
    pub leaf: Fingerprint,
    /// Digest of chain and key together: changes when anything to upload changes.
    pub bundle: Fingerprint,
}

/// A ConfigMap; values are decoded where a definition asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigMap {
    /// Namespace and name.
    pub key: Key,
    /// Every key whose value is a JSON or YAML document, or why it is none. Values are shared, not copied.
    pub documents: BTreeMap<String, Result<Arc<Value>, String>>,
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its name (cluster-scoped).
    pub key: Key,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}
