//! Gateway and its listeners, as far as decisions need them.

use std::collections::BTreeMap;

use super::{Meta, Problem, class::ParametersRef};

/// A Gateway of any class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Metadata.
    pub meta: Meta,
    /// spec.gatewayClassName
    pub class: String,
    /// spec.listeners
    pub listeners: Vec<Listener>,
    /// spec.infrastructure.parametersRef
    pub parameters: Option<ParametersRef>,
    /// How many addresses spec.addresses asks for, with type and value as written.
    pub addresses: Vec<(String, String)>,
    /// Fields that do not decode.
    pub problems: Vec<Problem>,
}

/// One listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// name
    pub name: String,
    /// port
    pub port: u16,
    /// protocol, as written.
    pub protocol: String,
    /// hostname, lower-cased; `None` when absent or empty.
    pub hostname: Option<String>,
    /// tls
    pub tls: Option<ListenerTls>,
    /// allowedRoutes.namespaces
    pub namespaces: AllowedNamespaces,
    /// allowedRoutes.kinds as (group, kind), the group defaulted; empty when left out.
    pub kinds: Vec<(String, String)>,
    /// Fields of this listener that do not decode.
    pub problems: Vec<Problem>,
}

/// TLS of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    /// mode, as written; `Terminate` when left out.
    pub mode: String,
    /// certificateRefs
    pub certificates: Vec<CertificateRef>,
}

/// A reference to a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRef {
    /// API group, empty for core.
    pub group: String,
    /// Kind; `Secret` when left out.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, if written (default: the Gateway's).
    pub namespace: Option<String>,
}

/// Whose routes may attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// Those of the Gateway's namespace (the default).
    #[default]
    Same,
    /// All.
    All,
    /// Those of namespaces that the selector matches.
    Selector(LabelSelector),
    /// A value of `from` that is not known: admits nothing.
    Unknown(String),
}

/// A label selector; without any requirement it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// matchLabels
    pub labels: BTreeMap<String, String>,
    /// matchExpressions as (key, operator, values).
    pub expressions: Vec<(String, String, Vec<String>)>,
}
