//! Objects for the tests of the model: a small world that works, and what it takes to change it.

use reconcile_kit::Condition;
use serde_json::json;

use super::super::{
    CONTROLLER_NAME, Settings,
    objects::{
        ConfigMap, EndpointSlice, Event, Fingerprint, GATEWAY_GROUP, Gateway, GatewayClass, HttpRoute, Key,
        Kind, Meta, Namespace, Object, OperatorContext, Problem, ReferenceGrant, Secret, Service, TYK_GROUP,
        TykOasApiDefinition,
        class::ParametersRef,
        context::{ConnectionFields, DataPlane},
        core::{Certificate, ServicePort},
        definition::{ConfigMapRef, TargetRef},
        gateway::{AllowedNamespaces, CertificateRef, Listener, ListenerTls},
        route::{BackendRef, Match, Method, ParentRef, Rule},
    },
    verdict::{Changes, DefinitionVerdict, GatewayVerdict, ListenerVerdict, ParentVerdict, RouteVerdict},
};
use super::Model;

pub(super) fn key(namespace: &str, name: &str) -> Key {
    Key::new(namespace, name)
}

pub(super) fn meta(namespace: &str, name: &str, created: i64) -> Meta {
    Meta {
        key: key(namespace, name),
        uid: format!("{namespace}-{name}"),
        generation: 1,
        created,
        deleting: false,
    }
}

pub(super) fn context_ref(namespace: Option<&str>, name: &str) -> ParametersRef {
    ParametersRef {
        group: TYK_GROUP.into(),
        kind: "OperatorContext".into(),
        name: name.into(),
        namespace: namespace.map(Into::into),
    }
}

/// Class `tyk` with context infra/class.
pub(super) fn class() -> GatewayClass {
    GatewayClass {
        meta: Meta {
            key: Key::cluster("tyk"),
            ..meta("", "tyk", 0)
        },
        controller_name: CONTROLLER_NAME.into(),
        parameters: Some(context_ref(Some("infra"), "class")),
        gateway_namespaces: None,
    }
}

pub(super) fn env(mode: &str, url: &str) -> ConnectionFields {
    ConnectionFields {
        mode: Some(mode.into()),
        url: Some(url.into()),
        auth: Some(Fingerprint("auth".into())),
        org: Some("org".into()),
        ..ConnectionFields::default()
    }
}

/// infra/class: a Dashboard, and gateways with tag `edge` behind Service infra/tyk.
pub(super) fn context() -> OperatorContext {
    OperatorContext {
        key: key("infra", "class"),
        env: Some(env("pro", "http://dashboard.tyk.svc:3000")),
        data_plane: Some(DataPlane {
            service_ref: Some(("tyk".into(), None)),
            tags: Some(vec!["edge".into()]),
        }),
        ..OperatorContext::default()
    }
}

pub(super) fn tags(namespace: &str, name: &str, tags: &[&str]) -> OperatorContext {
    OperatorContext {
        key: key(namespace, name),
        data_plane: Some(DataPlane {
            service_ref: None,
            tags: Some(tags.iter().map(|t| (*t).to_owned()).collect()),
        }),
        ..OperatorContext::default()
    }
}

pub(super) fn port(number: u16) -> ServicePort {
    ServicePort {
        name: format!("p{number}"),
        port: number,
        app_protocol: None,
    }
}

pub(super) fn service(namespace: &str, name: &str, ports: &[u16]) -> Service {
    Service {
        key: key(namespace, name),
        type_: "ClusterIP".into(),
        cluster_ip: Some("10.0.0.1".into()),
        ports: ports.iter().map(|p| port(*p)).collect(),
        ..Service::default()
    }
}

pub(super) fn headless(namespace: &str, name: &str, ports: &[u16]) -> Service {
    Service {
        cluster_ip: Some("None".into()),
        ..service(namespace, name, ports)
    }
}

pub(super) fn slice(
    namespace: &str,
    name: &str,
    service: &str,
    number: u16,
    ready: &[&str],
) -> EndpointSlice {
    EndpointSlice {
        key: key(namespace, name),
        service: Some(service.into()),
        // the port of the Pods, under the name of the Service's port
        ports: vec![(format!("p{number}"), number + 1_000)],
        ready: ready.iter().map(|a| (*a).to_owned()).collect(),
    }
}

pub(super) fn http(name: &str, number: u16) -> Listener {
    Listener {
        name: name.into(),
        port: number,
        protocol: "HTTP".into(),
        namespaces: AllowedNamespaces::All,
        ..Listener::default()
    }
}

pub(super) fn secret_ref(namespace: Option<&str>, name: &str) -> CertificateRef {
    CertificateRef {
        kind: "Secret".into(),
        name: name.into(),
        namespace: namespace.map(Into::into),
        ..CertificateRef::default()
    }
}

pub(super) fn https(name: &str, number: u16, hostname: &str, certificates: &[CertificateRef]) -> Listener {
    Listener {
        protocol: "HTTPS".into(),
        hostname: Some(hostname.into()),
        tls: Some(ListenerTls {
            mode: "Terminate".into(),
            certificates: certificates.to_vec(),
        }),
        ..http(name, number)
    }
}

pub(super) fn named(mut listener: Listener, hostname: &str) -> Listener {
    listener.hostname = Some(hostname.into());
    listener
}

pub(super) fn gateway(namespace: &str, name: &str, listeners: Vec<Listener>) -> Gateway {
    Gateway {
        meta: meta(namespace, name, 0),
        class: "tyk".into(),
        listeners,
        ..Gateway::default()
    }
}

pub(super) fn tls_secret(namespace: &str, name: &str, leaf: &str) -> Secret {
    Secret {
        key: key(namespace, name),
        type_: "kubernetes.io/tls".into(),
        tls: Some(Ok(Certificate {
            leaf: Fingerprint(leaf.into()),
            bundle: Fingerprint(format!("{leaf}-bundle")),
            names: Default::default(),
        })),
        ..Secret::default()
    }
}

/// Allows (from kind, from namespace) to use (to kind) in `namespace`.
pub(super) fn grant(
    namespace: &str,
    from_kind: &str,
    from: &str,
    to_kind: &str,
    name: Option<&str>,
) -> ReferenceGrant {
    ReferenceGrant {
        key: key(namespace, "grant"),
        from: vec![(GATEWAY_GROUP.into(), from_kind.into(), from.into())],
        to: vec![(String::new(), to_kind.into(), name.map(Into::into))],
    }
}

pub(super) fn parent(namespace: &str, name: &str) -> ParentRef {
    ParentRef {
        group: GATEWAY_GROUP.into(),
        kind: "Gateway".into(),
        namespace: Some(namespace.into()),
        name: name.into(),
        ..ParentRef::default()
    }
}

pub(super) fn section(mut parent: ParentRef, name: &str) -> ParentRef {
    parent.section_name = Some(name.into());
    parent
}

pub(super) fn backend(name: &str, number: u16) -> BackendRef {
    BackendRef {
        kind: "Service".into(),
        name: name.into(),
        port: Some(number),
        weight: 1,
        ..BackendRef::default()
    }
}

pub(super) fn weighted(name: &str, number: u16, weight: u32) -> BackendRef {
    BackendRef {
        weight,
        ..backend(name, number)
    }
}

pub(super) fn matching(path: &str, method: Option<Method>) -> Match {
    Match {
        path: path.into(),
        method,
    }
}

pub(super) fn rule(path: &str, backends: Vec<BackendRef>) -> Rule {
    Rule {
        matches: vec![matching(path, None)],
        backends,
        ..Rule::default()
    }
}

pub(super) fn method_rule(path: &str, method: Method, backends: Vec<BackendRef>) -> Rule {
    Rule {
        matches: vec![matching(path, Some(method))],
        ..rule(path, backends)
    }
}

pub(super) fn broken_rule(index: usize, path: &str, field: &str) -> Rule {
    Rule {
        problems: vec![Problem::new(
            format!("spec.rules[{index}].{field}"),
            "not supported",
        )],
        ..rule(path, vec![backend("web", 80)])
    }
}

/// A route of namespace shop through infra/edge to shop/web:80.
pub(super) fn route(name: &str, hostnames: &[&str]) -> HttpRoute {
    HttpRoute {
        meta: meta("shop", name, 100),
        parents: vec![parent("infra", "edge")],
        hostnames: hostnames.iter().map(|h| (*h).to_owned()).collect(),
        rules: vec![rule("/", vec![backend("web", 80)])],
        ..HttpRoute::default()
    }
}

pub(super) fn with_rules(name: &str, hostnames: &[&str], rules: Vec<Rule>) -> HttpRoute {
    HttpRoute {
        rules,
        ..route(name, hostnames)
    }
}

pub(super) fn target(kind: &str, name: &str) -> TargetRef {
    TargetRef {
        group: GATEWAY_GROUP.into(),
        kind: kind.into(),
        name: name.into(),
    }
}

pub(super) fn definition(
    namespace: &str,
    name: &str,
    created: i64,
    targets: Vec<TargetRef>,
) -> TykOasApiDefinition {
    TykOasApiDefinition {
        meta: meta(namespace, name, created),
        targets,
        config_map: Some(ConfigMapRef {
            name: "docs".into(),
            namespace: None,
            key: Some("api.json".into()),
        }),
        ..TykOasApiDefinition::default()
    }
}

/// A ConfigMap `docs` with key api.json.
pub(super) fn config_map(namespace: &str) -> ConfigMap {
    let document = json!({
        "info": {"title": "base", "version": "1"}, "openapi": "3.0.3", "paths": {},
        "x-tyk-api-gateway": {"middleware": {"global": {"trafficLogs": {"enabled": true}}}},
    });
    ConfigMap {
        key: key(namespace, "docs"),
        documents: [("api.json".to_owned(), Ok(document.into()))].into(),
    }
}

/// A document with an operation that has the name of a route's own.
pub(super) fn colliding() -> serde_json::Value {
    json!({
        "info": {"title": "base", "version": "1"}, "openapi": "3.0.3",
        "paths": {"/x": {"get": {"operationId": "get", "responses": {"default": {"description": ""}}}}},
        "x-tyk-api-gateway": {},
    })
}

pub(super) fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
    Namespace {
        key: Key::cluster(name),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .chain([("kubernetes.io/metadata.name".to_owned(), name.to_owned())])
            .collect(),
    }
}

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        $(impl From<$kind> for Object {
            fn from(o: $kind) -> Self {
                Self::$kind(o)
            }
        })*
    };
}
objects!(
    GatewayClass,
    Gateway,
    HttpRoute,
    ReferenceGrant,
    OperatorContext,
    TykOasApiDefinition,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    Namespace,
);

pub(super) fn seen(object: impl Into<Object>) -> Event {
    Event::Seen(Box::new(object.into()))
}

/// A model with short questions.
pub(super) struct World(pub(super) Model);

impl World {
    /// Nothing at all.
    pub(super) fn empty() -> Self {
        Self(Model::new(Settings::default()))
    }

    /// A class, its context, the Service of the data plane (80, 443, 8080), Gateway infra/edge with an HTTP listener on
    /// 80 that admits all namespaces, and Service shop/web:80.
    pub(super) fn new() -> Self {
        Self::empty()
            .with(class())
            .with(context())
            .with(service("infra", "tyk", &[80, 443, 8080]))
            .with(gateway("infra", "edge", vec![http("web", 80)]))
            .with(service("shop", "web", &[80]))
    }

    pub(super) fn with(mut self, object: impl Into<Object>) -> Self {
        self.put(object);
        self
    }

    pub(super) fn put(&mut self, object: impl Into<Object>) -> Changes {
        self.0.apply(seen(object))
    }

    pub(super) fn gone(&mut self, kind: Kind, namespace: &str, name: &str) -> Changes {
        self.0.apply(Event::Gone(kind, key(namespace, name)))
    }

    /// infra/edge
    pub(super) fn edge(&self) -> &GatewayVerdict {
        self.0.gateway(&key("infra", "edge")).unwrap()
    }

    pub(super) fn listener(&self, name: &str) -> &ListenerVerdict {
        self.edge().listeners.iter().find(|l| l.name == name).unwrap()
    }

    pub(super) fn route(&self, name: &str) -> &RouteVerdict {
        self.0.route(&key("shop", name)).unwrap()
    }

    /// The only parent of a route.
    pub(super) fn parent(&self, name: &str) -> &ParentVerdict {
        let [parent] = self.route(name).parents.as_slice() else {
            panic!("{:?}", self.route(name).parents);
        };
        parent
    }

    pub(super) fn definition(&self, namespace: &str, name: &str) -> &DefinitionVerdict {
        self.0.definition(&key(namespace, name)).unwrap()
    }

    /// `host path` of each API of a route.
    pub(super) fn places(&self, name: &str) -> Vec<String> {
        self.route(name)
            .apis
            .iter()
            .map(|api| format!("{} {}", api.host.as_deref().unwrap_or("any"), api.path))
            .collect()
    }

    /// The targets of a route's only API as (authority, weight).
    pub(super) fn targets(&self, name: &str) -> Vec<(String, u32)> {
        let [api] = self.route(name).apis.as_slice() else {
            panic!("{:?}", self.route(name).apis);
        };
        api.targets
            .iter()
            .map(|t| (t.authority.clone().unwrap_or_else(|| "?".into()), t.weight))
            .collect()
    }
}

/// A condition as `Status Reason`; `-` if it is not there.
pub(super) fn said(conditions: &[Condition], type_: &str) -> String {
    assert!(conditions.iter().filter(|c| c.type_ == type_).count() <= 1);
    conditions
        .iter()
        .find(|c| c.type_ == type_)
        .map_or_else(|| "-".into(), |c| format!("{} {}", c.status.as_str(), c.reason))
}

/// Whether everything that the route wants is served by others: accepted, and told so.
pub(super) fn outdone(world: &World, name: &str) -> bool {
    let conditions = &world.parent(name).conditions;
    assert_eq!(said(conditions, "Accepted"), "True Accepted");
    let told = said(conditions, "PartiallyInvalid") == "True UnsupportedValue";
    assert_eq!(told, world.places(name).is_empty());
    told
}

pub(super) fn message<'a>(conditions: &'a [Condition], type_: &str) -> &'a str {
    conditions
        .iter()
        .find(|c| c.type_ == type_)
        .map_or("", |c| &c.message)
}
