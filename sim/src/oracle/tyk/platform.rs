//! GatewayClass, OperatorContext, Gateway and its listeners.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::{
        Judgement, hosts,
        snapshot::{GATEWAY, Object, TYK, World, at, condition, list, secret_value, selects, text, texts},
    },
    Installation, Tri,
    claims::Claims,
    routes::Route,
};

const IN_USE: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// A Tyk, as two classes may both lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// Normalised URL.
    pub(super) url: String,
    pub(super) is_open_source: bool,
    pub(super) org: Option<String>,
}

impl Connection {
    fn is_same(&self, other: &Self) -> bool {
        let org = self.is_open_source || self.org == other.org;
        self.url == other.url && self.is_open_source == other.is_open_source && org
    }
}

/// A URL without trailing slash and default port, in lower case.
pub(super) fn normal_url(url: &str) -> String {
    let url = url.trim_end_matches('/').to_ascii_lowercase();
    let port = if url.starts_with("https://") {
        ":443"
    } else {
        ":80"
    };
    url.strip_suffix(port).unwrap_or(&url).to_owned()
}

/// What a class comes to.
#[derive(Clone, Debug)]
pub(super) enum ClassState<'a> {
    /// No context, or it cannot be read.
    Unreadable,
    /// Secret, mode, url or auth is missing.
    NoConnection(Object<'a>),
    /// Lenient: neither `env` nor `secretRef`, or a value that the contract says nothing about.
    Open,
    Connected(Object<'a>, Connection),
}

/// A class of our controllerName.
pub(super) struct Class<'a> {
    pub(super) object: Object<'a>,
    pub(super) state: ClassState<'a>,
}

/// A Gateway of a class of this installation.
pub(super) struct Gateway<'a> {
    pub(super) object: Object<'a>,
    pub(super) class: usize,
    /// The Gateway's own context is wrong.
    pub(super) bad_context: bool,
    pub(super) connection: Option<Connection>,
    pub(super) tags: BTreeSet<String>,
    service: Option<(String, String)>,
    pub(super) listeners: Vec<Listener<'a>>,
    /// Why it cannot be judged.
    pub(super) open: Option<&'static str>,
}

/// A listener of such a Gateway.
pub(super) struct Listener<'a> {
    pub(super) value: &'a Value,
    pub(super) name: &'a str,
    pub(super) port: i64,
    pub(super) hostname: Option<String>,
    /// Reasons that `Accepted` may have; `Accepted` for True.
    accepted: Vec<&'static str>,
    /// Reasons that `ResolvedRefs` may have; `ResolvedRefs` for True.
    resolved: Vec<&'static str>,
    conflicts: Vec<&'static str>,
    /// Whether APIs are served through it.
    pub(super) valid: Tri,
    /// Whether it is meant for hosts at all, and for HTTPRoutes.
    pub(super) admits: Tri,
}

/// Classes and Gateways of an installation.
pub(super) struct Platform<'a> {
    pub(super) classes: Vec<Class<'a>>,
    pub(super) gateways: Vec<Gateway<'a>>,
}

impl<'a> Platform<'a> {
    pub(super) fn of(world: &World<'a>, installation: &Installation<'_>) -> Self {
        let ours = |class: &Object<'_>| {
            text(class.spec(), "/controllerName") == Some(&installation.tyk.controller_name)
        };
        let classes: Vec<Class<'a>> = world
            .all(GATEWAY, "GatewayClass")
            .into_iter()
            .filter(ours)
            .map(|object| Class {
                object,
                state: class_state(world, object),
            })
            .collect();
        let gateways = world
            .all(GATEWAY, "Gateway")
            .into_iter()
            .filter_map(|gateway| {
                let name = text(gateway.spec(), "/gatewayClassName");
                let class = classes
                    .iter()
                    .position(|class| Some(class.object.name()) == name)?;
                Some(gateway_state(
                    world,
                    installation,
                    gateway,
                    class,
                    &classes[class],
                ))
            })
            .collect();
        Self { classes, gateways }
    }

    /// The Gateway of this installation with this name.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<usize> {
        self.gateways
            .iter()
            .position(|gateway| gateway.object.namespace() == namespace && gateway.object.name() == name)
    }

    /// Whether two Gateways share a data plane: one Tyk, and open source, or either untagged, or a tag in common.
    pub(super) fn share(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.gateways[one], &self.gateways[other]);
        match (&one.connection, &other.connection) {
            (Some(a), Some(b)) if a.is_same(b) => {
                a.is_open_source
                    || one.tags.is_empty()
                    || other.tags.is_empty()
                    || !one.tags.is_disjoint(&other.tags)
            }
            _ => false,
        }
    }
}

/// Row "GatewayClass": the context of parametersRef and its connection.
fn class_state<'a>(world: &World<'a>, class: Object<'_>) -> ClassState<'a> {
    let reference = at(class.spec(), "/parametersRef");
    let Some(namespace) = text(reference, "/namespace") else {
        return ClassState::Unreadable;
    };
    let Some(context) = context(world, reference, namespace) else {
        return ClassState::Unreadable;
    };
    match connection(world, context) {
        Found::Yes(connection) => ClassState::Connected(context, connection),
        Found::No => ClassState::NoConnection(context),
        Found::Open => ClassState::Open,
    }
}

/// The OperatorContext that a reference names.
fn context<'a>(world: &World<'a>, reference: &Value, namespace: &str) -> Option<Object<'a>> {
    let right = text(reference, "/group") == Some(TYK) && text(reference, "/kind") == Some("OperatorContext");
    let name = text(reference, "/name").filter(|_| right)?;
    world.get(TYK, "OperatorContext", namespace, name)
}

enum Found<T> {
    Yes(T),
    No,
    Open,
}

/// The connection of a context: `env`, and the keys of the Secret, which win.
fn connection(world: &World<'_>, context: Object<'_>) -> Found<Connection> {
    let env = at(context.spec(), "/env");
    let reference = at(context.spec(), "/secretRef");
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    for field in ["mode", "url", "auth", "org"] {
        if let Some(value) = env
            .get(field)
            .and_then(Value::as_str)
            .filter(|value| !value.is_empty())
        {
            values.insert(field, value.to_owned());
        }
    }
    if !env.is_object() && !reference.is_object() {
        return Found::Open;
    }
    if reference.is_object() {
        let namespace = text(reference, "/namespace").unwrap_or(context.namespace());
        let name = text(reference, "/name").unwrap_or_default();
        let Some(secret) = world.get("", "Secret", namespace, name) else {
            return Found::No;
        };
        for (field, key) in [
            ("mode", "TYK_MODE"),
            ("url", "TYK_URL"),
            ("auth", "TYK_AUTH"),
            ("org", "TYK_ORG"),
        ] {
            let value = secret_value(secret, key).and_then(|value| String::from_utf8(value).ok());
            if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
                values.insert(field, value.trim().to_owned());
            }
        }
    }
    let (Some(mode), Some(url), Some(_)) = (values.get("mode"), values.get("url"), values.get("auth")) else {
        return Found::No;
    };
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    if !["ce", "pro"].contains(&mode.as_str()) || !is_url || url.contains(['@', '?', '#', ' ']) {
        return Found::Open;
    }
    Found::Yes(Connection {
        url: normal_url(url),
        is_open_source: mode == "ce",
        org: values.get("org").cloned(),
    })
}

/// The Gateway with its data plane: its own context field by field over that of the class.
fn gateway_state<'a>(
    world: &World<'a>,
    installation: &Installation<'_>,
    gateway: Object<'a>,
    class_index: usize,
    class: &Class<'a>,
) -> Gateway<'a> {
    let reference = at(gateway.spec(), "/infrastructure/parametersRef");
    let own = context(world, reference, gateway.namespace());
    let bad_context = reference.is_object() && own.is_none();
    let (class_context, connection) = match &class.state {
        ClassState::Connected(context, connection) => (Some(*context), Some(connection.clone())),
        ClassState::NoConnection(context) => (Some(*context), None),
        ClassState::Unreadable | ClassState::Open => (None, None),
    };
    let mut tags = BTreeSet::new();
    let mut service = None;
    for context in [class_context, own].into_iter().flatten() {
        let plane = at(context.spec(), "/dataPlane");
        if plane.get("tags").is_some_and(Value::is_array) {
            tags = texts(plane, "/tags").into_iter().collect();
        }
        if let Some(name) = text(plane, "/serviceRef/name") {
            let namespace = text(plane, "/serviceRef/namespace").unwrap_or(context.namespace());
            service = Some((namespace.to_owned(), name.to_owned()));
        }
    }
    let ports = service.as_ref().and_then(|(namespace, name)| {
        let service = world.get("", "Service", namespace, name)?;
        let ports = list(service.spec(), "/ports").iter();
        let ports: Vec<i64> = ports.filter_map(|port| at(port, "/port").as_i64()).collect();
        (!ports.is_empty()).then_some(ports)
    });
    Gateway {
        object: gateway,
        class: class_index,
        bad_context,
        connection,
        tags,
        service,
        listeners: listeners(world, gateway, ports.as_deref()),
        open: gateway_is_open(installation, gateway, class),
    }
}

/// Gateways that the oracle does not judge.
fn gateway_is_open(
    installation: &Installation<'_>,
    gateway: Object<'_>,
    class: &Class<'_>,
) -> Option<&'static str> {
    let known = ["gatewayClassName", "listeners", "addresses", "infrastructure"];
    let odd = |fields: &Value, known: &[&str]| {
        fields
            .as_object()
            .is_some_and(|fields| fields.keys().any(|key| !known.contains(&key.as_str())))
    };
    let odd_listener = |listener: &Value| {
        odd(
            listener,
            &["name", "hostname", "port", "protocol", "tls", "allowedRoutes"],
        ) || odd(at(listener, "/tls"), &["mode", "certificateRefs"])
            || odd(at(listener, "/allowedRoutes"), &["namespaces", "kinds"])
    };
    if gateway.is_deleting() || class.object.is_deleting() {
        Some("tyk: the Gateway or its class is being deleted")
    } else if odd(gateway.spec(), &known) || list(gateway.spec(), "/listeners").iter().any(odd_listener) {
        Some("tyk: a field of the Gateway that the oracle does not know")
    } else if !installation.flags.watches(gateway.namespace()) {
        Some("tyk: the namespace is not watched")
    } else {
        None
    }
}

/// Listeners, each judged by itself and then against the others of its port.
fn listeners<'a>(world: &World<'a>, gateway: Object<'a>, ports: Option<&[i64]>) -> Vec<Listener<'a>> {
    let mut all: Vec<Listener<'a>> = list(gateway.spec(), "/listeners")
        .iter()
        .map(|value| alone(world, gateway, value, ports))
        .collect();
    let conflicts: Vec<Vec<&'static str>> = all.iter().map(|one| conflicts_of(one, &all)).collect();
    for (listener, conflicts) in all.iter_mut().zip(conflicts) {
        if !conflicts.is_empty() {
            // Lenient: of a port that is not exposed and a conflict on it, either may be told.
            listener.accepted.retain(|reason| *reason == "PortUnavailable");
            listener.accepted.extend(&conflicts);
            listener.valid = Tri::No;
        }
        listener.conflicts = conflicts;
    }
    all
}

/// Rows of listeners: protocol, hostname, port, kinds, certificates.
fn alone<'a>(
    world: &World<'a>,
    gateway: Object<'a>,
    value: &'a Value,
    ports: Option<&[i64]>,
) -> Listener<'a> {
    let protocol = text(value, "/protocol").unwrap_or_default();
    let port = at(value, "/port").as_i64().unwrap_or_default();
    let hostname = text(value, "/hostname").map(str::to_owned);
    let terminates = text(value, "/tls/mode").is_none_or(|mode| mode == "Terminate");
    let is_http = protocol == "HTTP" || (protocol == "HTTPS" && terminates);
    let readable = hostname.as_deref().is_none_or(hosts::is_gateway_host);
    let mut accepted = Vec::new();
    for (bad, reason) in [
        (!is_http, "UnsupportedProtocol"),
        (!readable, "UnsupportedValue"),
        (
            ports.is_some_and(|ports| !ports.contains(&port)),
            "PortUnavailable",
        ),
    ] {
        if bad {
            accepted.push(reason);
        }
    }
    let (resolved, resolves) = references(world, gateway, value, protocol == "HTTPS" && terminates);
    let valid = match (accepted.is_empty(), resolves) {
        (false, _) | (_, Tri::No) => Tri::No,
        (true, resolves) => resolves,
    };
    let admits = match (readable, names_http_routes(value), is_http) {
        (false, ..) | (_, false, _) => Tri::No,
        (true, true, true) => Tri::Yes,
        // Lenient: whether a listener of another protocol counts routes is left open.
        (true, true, false) => Tri::Maybe,
    };
    Listener {
        value,
        name: text(value, "/name").unwrap_or_default(),
        port,
        hostname,
        accepted: if accepted.is_empty() {
            vec!["Accepted"]
        } else {
            accepted
        },
        resolved,
        conflicts: Vec::new(),
        valid,
        admits,
    }
}

fn kinds_of(listener: &Value) -> Vec<bool> {
    let is_route = |kind: &Value| {
        let group = at(kind, "/group").as_str().unwrap_or(GATEWAY);
        group == GATEWAY && text(kind, "/kind") == Some("HTTPRoute")
    };
    list(listener, "/allowedRoutes/kinds")
        .iter()
        .map(is_route)
        .collect()
}

fn names_http_routes(listener: &Value) -> bool {
    let kinds = kinds_of(listener);
    kinds.is_empty() || kinds.contains(&true)
}

/// Reasons that ResolvedRefs may have, and whether the references let the listener serve.
fn references(
    world: &World<'_>,
    gateway: Object<'_>,
    listener: &Value,
    terminates: bool,
) -> (Vec<&'static str>, Tri) {
    let mut reasons = Vec::new();
    let mut serves = Tri::Yes;
    let kinds = kinds_of(listener);
    if kinds.contains(&false) {
        reasons.push("InvalidRouteKinds");
        // Lenient: with a kind that is supported beside others, serving is left open.
        serves = if kinds.contains(&true) {
            Tri::Maybe
        } else {
            Tri::No
        };
    }
    let certificates = list(listener, "/tls/certificateRefs");
    for reference in certificates.iter().filter(|_| terminates) {
        if let Some(reason) = certificate_fault(world, gateway, reference) {
            reasons.push(reason);
            serves = Tri::No;
        }
    }
    if terminates && certificates.is_empty() {
        // Lenient: what an HTTPS listener without certificates is, is left open.
        let open = ["ResolvedRefs", "InvalidCertificateRef"];
        reasons.extend(open);
        serves = if serves == Tri::Yes { Tri::Maybe } else { serves };
    }
    let protocol = text(listener, "/protocol").unwrap_or_default();
    // Lenient: whether the references of a listener of another protocol are looked at is left open.
    if reasons.is_empty() || !["HTTP", "HTTPS"].contains(&protocol) {
        reasons.push("ResolvedRefs");
    }
    (reasons, serves)
}

/// Grant first; then a Secret of type kubernetes.io/tls with certificate and key. That the two belong together is not
/// looked at: what looks whole counts as whole.
fn certificate_fault(world: &World<'_>, gateway: Object<'_>, reference: &Value) -> Option<&'static str> {
    let is_secret = at(reference, "/group").as_str().unwrap_or_default().is_empty()
        && text(reference, "/kind").is_none_or(|kind| kind == "Secret");
    let namespace = text(reference, "/namespace").unwrap_or(gateway.namespace());
    let name = text(reference, "/name").unwrap_or_default();
    if !is_secret {
        return Some("InvalidCertificateRef");
    }
    if !is_granted(
        world,
        (GATEWAY, "Gateway", gateway.namespace()),
        ("", "Secret", namespace, name),
    ) {
        return Some("RefNotPermitted");
    }
    let holds = |secret: Object<'_>, key: &str, mark: &str| {
        let value = secret_value(secret, key).unwrap_or_default();
        String::from_utf8_lossy(&value).contains(mark)
    };
    let whole = world.get("", "Secret", namespace, name).is_some_and(|secret| {
        text(secret.0, "/type") == Some("kubernetes.io/tls")
            && holds(secret, "tls.crt", "BEGIN CERTIFICATE")
            && holds(secret, "tls.key", "PRIVATE KEY")
    });
    (!whole).then_some("InvalidCertificateRef")
}

/// ReferenceGrant: any grant in the target's namespace whose `from` and `to` fit.
pub(super) fn is_granted(
    world: &World<'_>,
    (from_group, from_kind, from): (&str, &str, &str),
    (to_group, to_kind, to, name): (&str, &str, &str, &str),
) -> bool {
    let group = |entry: &Value| at(entry, "/group").as_str().unwrap_or_default().to_owned();
    let fits_from = |entry: &Value| {
        group(entry) == from_group
            && text(entry, "/kind") == Some(from_kind)
            && text(entry, "/namespace") == Some(from)
    };
    let fits_to = |entry: &Value| {
        group(entry) == to_group
            && text(entry, "/kind") == Some(to_kind)
            && text(entry, "/name").is_none_or(|one| one == name)
    };
    from == to
        || world.all(GATEWAY, "ReferenceGrant").into_iter().any(|grant| {
            grant.namespace() == to
                && list(grant.spec(), "/from").iter().any(fits_from)
                && list(grant.spec(), "/to").iter().any(fits_to)
        })
}

/// Conflicts with other listeners of the port. A listener that is refused for itself takes no part.
fn conflicts_of(one: &Listener<'_>, all: &[Listener<'_>]) -> Vec<&'static str> {
    let part = |listener: &Listener<'_>| {
        let apart = ["UnsupportedProtocol", "UnsupportedValue"];
        !listener.accepted.iter().any(|reason| apart.contains(reason))
    };
    let protocol = |listener: &Listener<'_>| text(listener.value, "/protocol").map(str::to_owned);
    let mut reasons = BTreeSet::new();
    for other in all.iter().filter(|other| other.name != one.name && part(other)) {
        if !part(one) || other.port != one.port {
            continue;
        }
        if protocol(one) != protocol(other) {
            reasons.insert("ProtocolConflict");
        } else if one.hostname == other.hostname {
            reasons.insert("HostnameConflict");
        }
    }
    reasons.into_iter().collect()
}

/// Whether allowedRoutes admits routes of a namespace.
pub(super) fn allows(world: &World<'_>, gateway: Object<'_>, listener: &Value, namespace: &str) -> Tri {
    let from = at(listener, "/allowedRoutes/namespaces");
    match text(from, "/from").unwrap_or("Same") {
        "All" => Tri::Yes,
        "Same" => (gateway.namespace() == namespace).into(),
        "Selector" if !at(from, "/selector").is_object() => Tri::Maybe,
        "Selector" => {
            selects(at(from, "/selector"), &world.namespace_labels(namespace)).map_or(Tri::Maybe, Tri::from)
        }
        _ => Tri::Maybe,
    }
}

// ---- status ---------------------------------------------------------------------------------------------------------

/// A condition has one of these reasons, with the status that goes with it, at the object's generation.
pub(super) fn judge_condition(
    rule: &'static str,
    object: Object<'_>,
    (holder, type_): (&Value, &str),
    reasons: &[&str],
    judgement: &mut Judgement,
) {
    let found = condition(holder, type_).unwrap_or(&Value::Null);
    let said = (
        text(found, "/reason").unwrap_or_default(),
        text(found, "/status").unwrap_or_default(),
    );
    let fits = reasons.iter().any(|reason| said == with_status(type_, reason))
        && at(found, "/observedGeneration").as_i64() == Some(object.generation());
    judgement.check(
        rule,
        object,
        fits,
        format!(
            "{type_}: {} at generation {}",
            reasons.join(" or "),
            object.generation()
        ),
        found,
    );
}

/// Reason and status. `+` marks a reason that goes with True although it names a fault.
fn with_status<'r>(type_: &str, reason: &'r str) -> (&'r str, &'static str) {
    let fault_free = ["Accepted", "ResolvedRefs", "Programmed"];
    match reason.strip_prefix('+') {
        Some(reason) => (reason, "True"),
        None if fault_free.contains(&reason) || !fault_free.contains(&type_) => (reason, "True"),
        None => (reason, "False"),
    }
}

/// GatewayClass: Accepted, SupportedVersion present, the finalizer while Gateways use it.
pub(super) fn judge_classes(
    world: &World<'_>,
    _: &Installation<'_>,
    platform: &Platform<'_>,
    judgement: &mut Judgement,
) {
    for class in &platform.classes {
        let object = class.object;
        let reason = match class.state {
            ClassState::Connected(..) => "Accepted",
            // Lenient: a value that the contract says nothing about may be taken.
            ClassState::Open => {
                judgement.skip("tyk: a context with values that the oracle does not know");
                continue;
            }
            _ => "InvalidParameters",
        };
        judge_condition(
            "tyk.class",
            object,
            (object.status(), "Accepted"),
            &[reason],
            judgement,
        );
        let uses = |gateway: &Object<'_>| text(gateway.spec(), "/gatewayClassName") == Some(object.name());
        let used = world.all(GATEWAY, "Gateway").iter().any(uses);
        let held = object.finalizers().iter().any(|finalizer| finalizer == IN_USE);
        judgement.check(
            "tyk.class.finalizer",
            object,
            held == used,
            format!("in use: {used}"),
            held,
        );
    }
}

/// Gateways: conditions, addresses, listeners, attachedRoutes.
pub(super) fn judge_gateways(
    world: &World<'_>,
    installation: &Installation<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    claims: &Claims,
    judgement: &mut Judgement,
) {
    for (index, gateway) in platform.gateways.iter().enumerate() {
        let class = &platform.classes[gateway.class];
        if let Some(reason) = gateway.open {
            judgement.skip(reason);
            continue;
        }
        if matches!(class.state, ClassState::Open) {
            judgement.skip("tyk: a Gateway of a class with an odd context");
            continue;
        }
        let unreadable = matches!(class.state, ClassState::Unreadable);
        judge_gateway(world, installation, gateway, unreadable, judgement);
        if !unreadable && !gateway.bad_context {
            for listener in &gateway.listeners {
                judge_listener(gateway, listener, judgement);
            }
        }
        for (number, listener) in gateway.listeners.iter().enumerate() {
            judge_attached(
                gateway,
                listener,
                claims.attached(routes, index, number),
                judgement,
            );
        }
    }
}

fn judge_gateway(
    world: &World<'_>,
    installation: &Installation<'_>,
    gateway: &Gateway<'_>,
    unreadable: bool,
    judgement: &mut Judgement,
) {
    let object = gateway.object;
    let count = |valid: Tri| gateway.listeners.iter().filter(|l| l.valid == valid).count();
    let (all, good, open) = (gateway.listeners.len(), count(Tri::Yes), count(Tri::Maybe));
    let (mut accepted, mut programmed) = (Vec::new(), Vec::new());
    if unreadable {
        accepted.push("Invalid");
        programmed.push("Invalid");
    }
    if gateway.bad_context {
        accepted.push("InvalidParameters");
        programmed.push("Invalid");
    }
    if accepted.is_empty() {
        // The fewest and the most listeners that may be valid.
        for valid in [good, good + open] {
            accepted.push(match valid {
                valid if valid == all => "Accepted",
                0 => "ListenersNotValid",
                _ => "+ListenersNotValid",
            });
            if valid == 0 {
                programmed.push("Invalid");
            }
        }
        let address = addressed(world, gateway);
        if gateway.connection.is_none() {
            programmed.push("Pending");
        }
        // Lenient: without connection and without address, either may be the reason.
        if good + open > 0 && (gateway.connection.is_some() || address != "Programmed") {
            programmed.push(address);
        }
    }
    judge_condition(
        "tyk.gateway",
        object,
        (object.status(), "Accepted"),
        &accepted,
        judgement,
    );
    judge_condition(
        "tyk.gateway",
        object,
        (object.status(), "Programmed"),
        &programmed,
        judgement,
    );
    if let Some(expected) = addresses(world, installation, gateway).filter(|_| programmed == ["Programmed"]) {
        let shown = |address: &Value| {
            let type_ = text(address, "/type").unwrap_or("IPAddress");
            format!("{type_} {}", text(address, "/value").unwrap_or_default())
        };
        let found: Vec<String> = list(object.status(), "/addresses").iter().map(shown).collect();
        judgement.check(
            "tyk.gateway.addresses",
            object,
            found == expected,
            format!("{expected:?}"),
            format!("{found:?}"),
        );
    }
}

/// Programmed, as far as the address decides it.
fn addressed(world: &World<'_>, gateway: &Gateway<'_>) -> &'static str {
    let service = gateway.service.as_ref();
    let service = service.and_then(|(namespace, name)| world.get("", "Service", namespace, name));
    match service {
        None => "UnsupportedAddress",
        Some(service) if text(service.spec(), "/type") == Some("LoadBalancer") => {
            match list(service.status(), "/loadBalancer/ingress").is_empty() {
                true => "AddressNotAssigned",
                false => "Programmed",
            }
        }
        Some(service) if text(service.spec(), "/type") == Some("ExternalName") => "Programmed",
        Some(service) if text(service.spec(), "/clusterIP").is_none() => "AddressNotAssigned",
        Some(_) => "Programmed",
    }
}

/// The source's table of addresses, at most 16.
fn addresses(
    world: &World<'_>,
    installation: &Installation<'_>,
    gateway: &Gateway<'_>,
) -> Option<Vec<String>> {
    let (namespace, name) = gateway.service.as_ref()?;
    let service = world.get("", "Service", namespace, name)?;
    let ip = |value: &str| format!("IPAddress {value}");
    let host = |value: &str| format!("Hostname {value}");
    Some(match text(service.spec(), "/type").unwrap_or("ClusterIP") {
        "LoadBalancer" => {
            let entries = list(service.status(), "/loadBalancer/ingress");
            let both = |entry: &Value| text(entry, "/ip").is_some() && text(entry, "/hostname").is_some();
            if entries.iter().any(both) {
                // Lenient: which one of an entry with both counts is left open.
                return None;
            }
            let address = |entry| text(entry, "/hostname").map(host).or(text(entry, "/ip").map(ip));
            entries.iter().filter_map(address).take(16).collect()
        }
        "ExternalName" => vec![host(text(service.spec(), "/externalName").unwrap_or_default())],
        _ => match text(service.spec(), "/clusterIP") {
            Some("None") => vec![host(&format!(
                "{name}.{namespace}.svc.{}",
                installation.flags.cluster_domain
            ))],
            Some(value) => vec![ip(value)],
            None => Vec::new(),
        },
    })
}

fn judge_listener(gateway: &Gateway<'_>, listener: &Listener<'_>, judgement: &mut Judgement) {
    let object = gateway.object;
    let entries = list(object.status(), "/listeners").iter();
    let mut named = entries.filter(|entry| text(entry, "/name") == Some(listener.name));
    let entry = named.next().unwrap_or(&Value::Null);
    judge_condition(
        "tyk.listener",
        object,
        (entry, "Accepted"),
        &listener.accepted,
        judgement,
    );
    judge_condition(
        "tyk.listener",
        object,
        (entry, "ResolvedRefs"),
        &listener.resolved,
        judgement,
    );
    let mut programmed: Vec<&str> = Vec::new();
    if gateway.connection.is_none() {
        programmed.push("Pending");
    } else if listener.valid != Tri::No {
        programmed.push("Programmed");
    }
    if listener.valid != Tri::Yes {
        programmed.push("Invalid");
        programmed.extend(&listener.conflicts);
    }
    judge_condition(
        "tyk.listener",
        object,
        (entry, "Programmed"),
        &programmed,
        judgement,
    );
    if listener.accepted.contains(&"PortUnavailable") {
        // Lenient: see above.
    } else if listener.conflicts.is_empty() {
        let found = condition(entry, "Conflicted").unwrap_or(&Value::Null);
        let quiet = text(found, "/status") != Some("True");
        judgement.check(
            "tyk.listener",
            object,
            quiet,
            format!("{}: no conflict", listener.name),
            found,
        );
    } else {
        judge_condition(
            "tyk.listener",
            object,
            (entry, "Conflicted"),
            &listener.conflicts,
            judgement,
        );
    }
}

/// attachedRoutes: routes that the listener admits and whose parent is Accepted True.
fn judge_attached(
    gateway: &Gateway<'_>,
    listener: &Listener<'_>,
    (least, most): (i64, i64),
    judgement: &mut Judgement,
) {
    let entries = list(gateway.object.status(), "/listeners").iter();
    let mut named = entries.filter(|entry| text(entry, "/name") == Some(listener.name));
    let found = named
        .next()
        .map(|entry| at(entry, "/attachedRoutes").as_i64().unwrap_or_default());
    judgement.check(
        "tyk.attached",
        gateway.object,
        found.is_some_and(|found| (least..=most).contains(&found)),
        format!("{}: {least} to {most} attached routes", listener.name),
        format!("{found:?}"),
    );
}
