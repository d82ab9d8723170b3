//! Kinds of Kubernetes itself: Service, EndpointSlice, Secret, ConfigMap, Namespace. A Secret's content is read once,
//! when it is decoded, and only conclusions are kept.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::ByteString;
use serde_json::Value;

use super::{
    DecodeError, Fingerprint, Key, Meta, Scope,
    context::ConnectionFields,
    document::{self, Document},
    tls,
    walk::{Node, Place},
};

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
    /// spec.ports, those of TCP: HTTP is reached through no other.
    pub ports: Vec<ServicePort>,
    /// Whether it has ports of other protocols.
    pub other_ports: bool,
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
    /// Ports of TCP by name (empty for unnamed); a port without number is left out.
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
    /// DNS names that the leaf is for, lower-case and sorted: alternative names and the common name, as Tyk reads them.
    pub names: Arc<[String]>,
}

impl Certificate {
    /// Returns whether a gateway may serve the certificate for a hostname, or for some name below a wildcard. One without
    /// names is served for none, and may stand anywhere.
    pub fn is_for(&self, host: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| certifies(name, host))
    }
}

/// A wildcard in a certificate stands for one label; one of Gateway API for one or more.
fn certifies(name: &str, host: &str) -> bool {
    if name == host {
        return true;
    }
    match (host.strip_prefix('*'), name.strip_prefix("*.")) {
        // Some name below the wildcard is certified.
        (Some(below), _) => name.strip_suffix(below).is_some_and(|front| !front.is_empty()),
        (None, Some(parent)) => host.split_once('.').is_some_and(|(_, rest)| rest == parent),
        (None, None) => false,
    }
}

/// A ConfigMap; values are decoded where a definition asks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// Namespace and name.
    pub key: Key,
    /// Every key whose value is a JSON or YAML document, or why it is none. Values are shared, not copied.
    pub documents: BTreeMap<String, Result<Document, String>>,
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its name (cluster-scoped).
    pub key: Key,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// The object at `name` of the root, if there is one; what does not decode counts as absent.
fn part<'v>(value: &'v Value, name: &'static str) -> Option<Node<'static, 'v>> {
    Node::of(Place::Root(name), value.get(name)?, &mut Vec::new())
}

impl Service {
    /// Reads a Service.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut service = Self {
            key: Meta::decode(value, Scope::Namespaced)?.key,
            type_: "ClusterIP".to_owned(),
            ..Self::default()
        };
        let ignored = &mut Vec::new();
        if let Some(spec) = part(value, "spec") {
            if let Some(type_) = spec.filled("type", ignored) {
                service.type_ = type_.to_owned();
            }
            service.cluster_ip = spec.filled("clusterIP", ignored).map(str::to_owned);
            service.external_name = spec.filled("externalName", ignored).map(str::to_owned);
            let other = &mut service.other_ports;
            service.ports = spec.each("ports", ignored, |port, problems| {
                if port
                    .filled("protocol", problems)
                    .is_some_and(|name| name != "TCP")
                {
                    *other = true;
                    return None;
                }
                Some(ServicePort {
                    name: port.text("name", problems).unwrap_or_default().to_owned(),
                    port: port.port("port", problems)?,
                    app_protocol: port.filled("appProtocol", problems).map(str::to_owned),
                })
            });
        }
        if let Some(status) = part(value, "status") {
            service.ingress = status
                .with("loadBalancer", ignored, |balancer, problems| {
                    balancer.each("ingress", problems, |entry, problems| {
                        let hostname = entry.filled("hostname", problems).map(str::to_owned);
                        let ip = entry.filled("ip", problems).map(str::to_owned);
                        hostname
                            .map(IngressAddress::Hostname)
                            .or_else(|| ip.map(IngressAddress::Ip))
                    })
                })
                .unwrap_or_default();
        }
        Ok(service)
    }
}

impl EndpointSlice {
    /// Reads an EndpointSlice. What is no IP address is left out: it would become the host of an upstream URL.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let key = Meta::decode(value, Scope::Namespaced)?.key;
        let service = value
            .pointer("/metadata/labels/kubernetes.io~1service-name")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let ignored = &mut Vec::new();
        let Some(slice) = Node::of(Place::Root("endpointSlice"), value, ignored) else {
            return Ok(Self::default());
        };
        let ports = slice.each("ports", ignored, |port, problems| {
            // HTTP is reached through no other; one Service may have a port of each protocol under one name.
            if port
                .filled("protocol", problems)
                .is_some_and(|name| name != "TCP")
            {
                return None;
            }
            let name = port.text("name", problems).unwrap_or_default();
            Some((name.to_owned(), port.port("port", problems)?))
        });
        let ready = if slice.get("addressType").and_then(Value::as_str) == Some("FQDN") {
            Vec::new()
        } else {
            slice.each("endpoints", ignored, |endpoint, problems| {
                let ready = endpoint
                    .with("conditions", problems, |conditions, problems| {
                        conditions.flag("ready", problems)
                    })
                    .flatten();
                if ready == Some(false) {
                    return None;
                }
                let address = endpoint.list("addresses", problems).first()?.as_str()?;
                address.parse::<IpAddr>().ok().map(|address| address.to_string())
            })
        };
        Ok(Self {
            key,
            service,
            ports,
            ready,
        })
    }
}

impl Secret {
    /// Reads a Secret and keeps conclusions only. `stringData` of a manifest beats `data`, as on the API server.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let key = Meta::decode(value, Scope::Namespaced)?.key;
        let type_ = value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("Opaque")
            .to_owned();
        let bytes = |name: &str| -> Option<Vec<u8>> {
            if let Some(text) = value.get("stringData").and_then(|data| data.get(name)) {
                return text.as_str().map(|text| text.as_bytes().to_vec());
            }
            let encoded = value.get("data")?.get(name)?;
            serde_json::from_value::<ByteString>(encoded.clone())
                .ok()
                .map(|decoded| decoded.0)
        };
        let tls = (type_ == TLS_TYPE)
            .then(|| tls::certificate(bytes("tls.crt").as_deref(), bytes("tls.key").as_deref()));
        let connection =
            ConnectionFields::from_secret(|name| bytes(name).and_then(|bytes| String::from_utf8(bytes).ok()));
        Ok(Self {
            key,
            type_,
            tls,
            connection,
        })
    }
}

/// Type of a Secret with a certificate.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

impl ConfigMap {
    /// Reads a ConfigMap. Only values that look like a Tyk OAS document are parsed; of any other, and of one that holds
    /// what no document may hold, the reason is kept.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut map = Self {
            key: Meta::decode(value, Scope::Namespaced)?.key,
            ..Self::default()
        };
        let values = |name: &str| value.get(name).and_then(Value::as_object).into_iter().flatten();
        for (name, _) in values("binaryData") {
            map.documents.insert(
                name.clone(),
                Err("is binary, not a JSON or YAML document".to_owned()),
            );
        }
        for (name, text) in values("data") {
            let parsed = text
                .as_str()
                .ok_or_else(|| "is no text".to_owned())
                .and_then(document::parse);
            map.documents.insert(name.clone(), parsed);
        }
        Ok(map)
    }
}

impl Namespace {
    /// Reads a Namespace. The label with its own name, which the API server sets, is added where it is missing.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let key = Meta::decode(value, Scope::Cluster)?.key;
        let mut labels: BTreeMap<String, String> = value
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect();
        labels.insert("kubernetes.io/metadata.name".to_owned(), key.name.clone());
        Ok(Self { key, labels })
    }
}
