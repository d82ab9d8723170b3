//! OperatorContext: connection to Tyk and data plane. Never holds what is secret.

use super::{Fingerprint, Key, Problem};

/// An OperatorContext. The connection counts only in a GatewayClass's context; in a Gateway's own context `env` and
/// `secret_ref` are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorContext {
    /// Namespace and name.
    pub key: Key,
    /// spec.env
    pub env: Option<ConnectionFields>,
    /// spec.secretRef: name, and namespace if written (default: the context's own).
    pub secret_ref: Option<(String, Option<String>)>,
    /// spec.dataPlane
    pub data_plane: Option<DataPlane>,
    /// Fields that do not decode. Any of them makes the context unreadable.
    pub problems: Vec<Problem>,
}

/// Fields of a connection, from `spec.env` or from a Secret's `TYK_…` keys. A Secret's value beats that of `env`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFields {
    /// `ce` or `pro`, as written.
    pub mode: Option<String>,
    /// Base URL, as written: of the gateway for `ce`, of the Dashboard for `pro`.
    pub url: Option<String>,
    /// The credential, as a fingerprint. `None` when absent or empty.
    pub auth: Option<Fingerprint>,
    /// Organisation id.
    pub org: Option<String>,
    /// Certificates of the API are not verified.
    pub insecure_skip_verify: Option<bool>,
    /// Dashboard users that own what is created.
    pub user_owners: Vec<String>,
    /// Dashboard groups that own what is created.
    pub user_group_owners: Vec<String>,
}

/// Which gateways serve, and where they are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlane {
    /// Service of the gateways: name, and namespace if written (default: the context's own).
    pub service_ref: Option<(String, Option<String>)>,
    /// Segment tags, in the order written, without duplicates. `None` when the field is left out, so that a Gateway's
    /// context which sets only `serviceRef` keeps the tags of the class.
    pub tags: Option<Vec<String>>,
}
