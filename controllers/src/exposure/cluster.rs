//! What a GarageCluster means for exposure: which Service fronts the web API, on which port, under which root domain,
//! and whether the cluster can be relied on now.

use routewright_crds::{GarageCluster, GarageClusterSpec, GarageClusterStatus, WebApi};

use super::hostname::{HostnameProblem, RootDomain};

/// Port of the web API when nothing else is said.
pub const DEFAULT_WEB_PORT: u16 = 3902;

/// Name of the web port on a cluster's Service.
pub const WEB_PORT_NAME: &str = "web";

/// Which parts of a cluster exist. Presence counts, not the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A storage tier only: Service `<cluster>`.
    Storage,
    /// Storage and gateway tier: traffic goes to Service `<cluster>-gateway`.
    Unified,
    /// A gateway tier in front of another cluster: Service `<cluster>`.
    EdgeGateway,
    /// No tier. The Garage runs elsewhere and there is no Service.
    Handle,
}

impl Shape {
    /// The shape that the spec describes.
    pub fn of(spec: &GarageClusterSpec) -> Self {
        match (spec.storage.is_some(), spec.gateway.is_some()) {
            (true, true) => Self::Unified,
            (true, false) => Self::Storage,
            (false, true) => Self::EdgeGateway,
            (false, false) => Self::Handle,
        }
    }

    /// Name of the Service that fronts the web API of a cluster of this name; none for a handle.
    pub fn web_service(self, cluster: &str) -> Option<String> {
        match self {
            Self::Unified => Some(format!("{cluster}-gateway")),
            Self::Storage | Self::EdgeGateway => Some(cluster.to_owned()),
            Self::Handle => None,
        }
    }
}

/// Why a cluster cannot be relied on now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// It is being deleted.
    Deleting,
    /// Its phase is not `Running`.
    NotRunning,
}

/// Whether the cluster is `Running` and not being deleted.
pub fn availability(cluster: &GarageCluster) -> Result<(), Unavailable> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(Unavailable::Deleting);
    }
    match phase(cluster) {
        Some(GarageClusterStatus::RUNNING) => Ok(()),
        _ => Err(Unavailable::NotRunning),
    }
}

/// `status.phase`.
pub fn phase(cluster: &GarageCluster) -> Option<&str> {
    cluster
        .status
        .as_ref()?
        .phase
        .as_deref()
        .filter(|phase| !phase.is_empty())
}

/// Whether the cluster serves websites. It does unless it says otherwise.
pub fn web_enabled(spec: &GarageClusterSpec) -> bool {
    spec.web_api.as_ref().and_then(|web| web.enabled).unwrap_or(true)
}

/// Root domain of the web API.
///
/// The one of the spec, else `<cluster>.<namespace>.svc`. `Ok(None)` for a handle that does not say: what a Garage that
/// runs elsewhere is configured with cannot be guessed. `Err` for one that no hostname can be made from.
pub fn root_domain(cluster: &GarageCluster) -> Result<Option<RootDomain>, HostnameProblem> {
    let configured = cluster
        .spec
        .web_api
        .as_ref()
        .and_then(|web| web.root_domain.as_deref());
    match configured {
        Some(text) => RootDomain::parse(text).map(Some),
        None if Shape::of(&cluster.spec) == Shape::Handle => Ok(None),
        None => {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
            RootDomain::parse(&format!(".{name}.{namespace}.svc")).map(Some)
        }
    }
}

/// What is wrong with the port settings of the web API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortProblem {
    /// `webApi.bindAddress` is no `0.0.0.0:<port>` or `[::]:<port>`.
    BindAddress,
    /// `webApi.bindPort` is outside 1..=65535.
    BindPort,
}

impl PortProblem {
    /// Field of the GarageCluster.
    pub fn field(self) -> &'static str {
        match self {
            Self::BindAddress => "spec.webApi.bindAddress",
            Self::BindPort => "spec.webApi.bindPort",
        }
    }

    /// What it should be.
    pub fn hint(self) -> &'static str {
        match self {
            Self::BindAddress => "must be 0.0.0.0:<port> or [::]:<port>, so that its Service reaches it",
            Self::BindPort => "must be a port from 1 to 65535",
        }
    }
}

/// Number of the web port: that of `bindAddress` if set, else `bindPort` if not zero, else 3902.
pub fn web_port(web: Option<&WebApi>) -> Result<u16, PortProblem> {
    if let Some(address) = web
        .and_then(|web| web.bind_address.as_deref())
        .filter(|a| !a.is_empty())
    {
        return ["0.0.0.0:", "[::]:"]
            .iter()
            .find_map(|wildcard| address.strip_prefix(wildcard))
            .and_then(parse_port)
            .ok_or(PortProblem::BindAddress);
    }
    match web.and_then(|web| web.bind_port) {
        None | Some(0) => Ok(DEFAULT_WEB_PORT),
        Some(port) => port_number(port).ok_or(PortProblem::BindPort),
    }
}

/// A port number from a field of the API; `None` outside 1..=65535.
pub fn port_number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Digits only: no sign, no blanks.
fn parse_port(text: &str) -> Option<u16> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
        .filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use routewright_crds::{ConnectTo, Open};
    use serde_json::{Value, json};

    fn cluster(spec: Value) -> GarageCluster {
        serde_json::from_value(json!({
            "apiVersion": "garage.rajsingh.info/v1beta2",
            "kind": "GarageCluster",
            "metadata": { "name": "garage", "namespace": "storage" },
            "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_service_follows_the_tiers_that_are_present() {
        let open = || Some(Open(json!({ "replicas": 0 })));
        let spec = |storage, gateway, connect: bool| GarageClusterSpec {
            storage,
            gateway,
            connect_to: connect.then(ConnectTo::default),
            ..Default::default()
        };
        for (spec, shape, service) in [
            (spec(open(), None, false), Shape::Storage, Some("garage")),
            (
                spec(open(), open(), false),
                Shape::Unified,
                Some("garage-gateway"),
            ),
            (spec(None, open(), true), Shape::EdgeGateway, Some("garage")),
            (spec(None, None, true), Shape::Handle, None),
        ] {
            assert_eq!(Shape::of(&spec), shape);
            assert_eq!(shape.web_service("garage").as_deref(), service);
        }
    }

    #[test]
    fn only_a_running_cluster_that_stays_is_available() {
        let mut cluster = cluster(json!({ "storage": {} }));
        assert_eq!(
            availability(&cluster),
            Err(Unavailable::NotRunning),
            "no status yet"
        );
        for phase in ["Pending", "Degraded", "Ready", "Failed", ""] {
            cluster.status = Some(GarageClusterStatus {
                phase: Some(phase.into()),
                ..Default::default()
            });
            assert_eq!(availability(&cluster), Err(Unavailable::NotRunning), "{phase}");
        }
        cluster.status = Some(GarageClusterStatus {
            phase: Some("Running".into()),
            ..Default::default()
        });
        assert_eq!(availability(&cluster), Ok(()));
        cluster.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(availability(&cluster), Err(Unavailable::Deleting));
    }

    #[test]
    fn the_web_api_is_on_unless_switched_off() {
        assert!(web_enabled(&cluster(json!({ "storage": {} })).spec));
        assert!(web_enabled(&cluster(json!({ "storage": {}, "webApi": {} })).spec));
        assert!(web_enabled(
            &cluster(json!({ "storage": {}, "webApi": { "enabled": true } })).spec
        ));
        assert!(!web_enabled(
            &cluster(json!({ "storage": {}, "webApi": { "enabled": false } })).spec
        ));
    }

    #[test]
    fn the_root_domain_has_a_default_except_for_a_handle() {
        let root = |spec| root_domain(&cluster(spec)).map(|r| r.map(|r| r.as_str().to_owned()));
        assert_eq!(
            root(json!({ "storage": {} })),
            Ok(Some("garage.storage.svc".into()))
        );
        assert_eq!(
            root(json!({ "storage": {}, "webApi": { "rootDomain": ".example.com" } })),
            Ok(Some("example.com".into()))
        );
        assert_eq!(
            root(json!({ "connectTo": {}, "webApi": { "rootDomain": "example.com" } })),
            Ok(Some("example.com".into()))
        );
        assert_eq!(root(json!({ "connectTo": {} })), Ok(None));
        assert_eq!(
            root(json!({ "connectTo": {}, "webApi": { "rootDomain": "" } })),
            Err(HostnameProblem::Empty)
        );
    }

    #[test]
    fn the_port_of_the_bind_address_wins() {
        let port = |web: Value| web_port(Some(&serde_json::from_value(web).unwrap()));
        assert_eq!(web_port(None), Ok(3902));
        for (web, expected) in [
            (json!({}), Ok(3902)),
            (json!({ "bindPort": 0 }), Ok(3902)),
            (json!({ "bindPort": 8080 }), Ok(8080)),
            (json!({ "bindPort": 70000 }), Err(PortProblem::BindPort)),
            (json!({ "bindPort": -1 }), Err(PortProblem::BindPort)),
            (json!({ "bindAddress": "", "bindPort": 8080 }), Ok(8080)),
            (json!({ "bindAddress": "0.0.0.0:80", "bindPort": 8080 }), Ok(80)),
            (json!({ "bindAddress": "[::]:65535" }), Ok(65535)),
        ] {
            assert_eq!(port(web.clone()), expected, "{web}");
        }
        for bad in [
            "127.0.0.1:80",
            ":80",
            "0.0.0.0",
            "[::]",
            "[::]:0",
            "[::]:65536",
            "[::]:+80",
            " [::]:80",
            "[::]:80 ",
            "[::]:",
        ] {
            assert_eq!(
                port(json!({ "bindAddress": bad })),
                Err(PortProblem::BindAddress),
                "{bad:?}"
            );
        }
    }
}
