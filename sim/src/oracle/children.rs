//! The generated Ingress or HTTPRoute: its complete spec and metadata, what its status makes of the bucket, and the
//! invariants of every object that carries our labels.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Judgement,
    exposure::{self, Kind, Port, Wanted},
    snapshot::{Flags, GARAGE, GATEWAY, Object, World, at, condition, list, text, text_map, texts},
};

const ACME: &str = "/.well-known/acme-challenge/";
const OUR_PREFIX: &str = "routewright.dev/";

/// Decisions 1, 6, 9: the child is exactly what is wanted.
pub(crate) fn judge_child(flags: &Flags, wanted: &Wanted<'_>, child: Object<'_>, judgement: &mut Judgement) {
    let (expected, found) = match wanted.kind {
        Kind::Ingress => (ingress_spec(wanted), normal_ingress(wanted, child.spec())),
        Kind::HttpRoute => (route_spec(wanted), normal_route(child)),
    };
    judgement.check("exposure.spec", child, expected == found, &expected, &found);
    judge_metadata(flags, wanted, child, judgement);
}

/// One rule per hostname, path `/`, no default backend.
fn ingress_spec(wanted: &Wanted<'_>) -> Value {
    let port = match &wanted.backend.port {
        Port::Name(name) => json!({ "name": name }),
        Port::Number(number) => json!({ "number": number }),
    };
    let path = json!({
        "path": "/", "pathType": "Prefix",
        "backend": { "service": { "name": wanted.backend.name, "port": port } },
    });
    let rule = |host: &String| json!({ "host": host, "http": { "paths": [path] } });
    let rules: Vec<Value> = wanted.hostnames.iter().map(rule).collect();
    let mut spec = json!({ "rules": rules });
    if let Some(class) = text(wanted.settings, "/ingressClassName") {
        spec["ingressClassName"] = json!(class);
    }
    if let Some(secret) = text(wanted.settings, "/tlsSecretName") {
        spec["tls"] = json!([{ "hosts": wanted.hostnames, "secretName": secret }]);
    }
    spec
}

/// The live spec without what may differ: solver paths of cert-manager under our hosts (decision 10).
fn normal_ingress(wanted: &Wanted<'_>, live: &Value) -> Value {
    let mut spec = live.clone();
    if let Some(rules) = spec.get_mut("rules").and_then(Value::as_array_mut) {
        for rule in rules.iter_mut() {
            let ours = text(rule, "/host").is_some_and(|host| wanted.hostnames.iter().any(|h| h == host));
            if let Some(paths) = rule.pointer_mut("/http/paths").and_then(Value::as_array_mut)
                && ours
            {
                paths.retain(|path| !is_solver(path));
            }
        }
        rules.retain(|rule| {
            let emptied = rule.pointer("/http/paths") == Some(&json!([]));
            !emptied
        });
    }
    // Lenient: without a class in the spec the API server may have put the default one.
    if text(wanted.settings, "/ingressClassName").is_none()
        && let Some(fields) = spec.as_object_mut()
    {
        fields.remove("ingressClassName");
    }
    spec
}

fn is_solver(path: &Value) -> bool {
    text(path, "/path").is_some_and(|path| path.starts_with(ACME))
}

/// Decision 1: all hostnames, one rule, a rewrite as soon as one hostname needs it.
fn route_spec(wanted: &Wanted<'_>) -> Value {
    let backend = &wanted.backend;
    let mut reference = json!({
        "group": backend.group, "kind": backend.kind, "name": backend.name, "weight": 1,
    });
    if backend.namespace != wanted.bucket.namespace() {
        reference["namespace"] = json!(backend.namespace);
    }
    if let Port::Number(port) = backend.port {
        reference["port"] = json!(port);
    }
    let mut rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
        "backendRefs": [reference],
    });
    if let Some(canonical) = &wanted.rewrite {
        rule["filters"] = json!([{ "type": "URLRewrite", "urlRewrite": { "hostname": canonical } }]);
    }
    let parents = list(wanted.settings, "/parentRefs").iter();
    let namespace = wanted.bucket.namespace();
    let parents: Vec<Value> = parents.map(|parent| normal_parent(parent, namespace)).collect();
    json!({ "parentRefs": parents, "hostnames": wanted.hostnames, "rules": [rule] })
}

/// A parentRef with group, kind and namespace written out.
fn normal_parent(parent: &Value, namespace: &str) -> Value {
    let mut normal = json!({
        "group": at(parent, "/group").as_str().unwrap_or(GATEWAY),
        "kind": text(parent, "/kind").unwrap_or("Gateway"),
        "namespace": text(parent, "/namespace").unwrap_or(namespace),
        "name": text(parent, "/name").unwrap_or_default(),
    });
    for field in ["sectionName", "port"] {
        if let Some(value) = parent.get(field).filter(|value| !value.is_null()) {
            normal[field] = value.clone();
        }
    }
    normal
}

/// The live spec with the defaults of the API server written out.
fn normal_route(route: Object<'_>) -> Value {
    let mut spec = route.spec().clone();
    let namespace = route.namespace();
    let parents = list(&spec, "/parentRefs").iter();
    spec["parentRefs"] = parents.map(|parent| normal_parent(parent, namespace)).collect();
    if let Some(rules) = spec.get_mut("rules").and_then(Value::as_array_mut) {
        for rule in rules {
            for backend in rule
                .get_mut("backendRefs")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                normalise_backend(backend, namespace);
            }
            if rule.get("filters") == Some(&json!([]))
                && let Some(fields) = rule.as_object_mut()
            {
                fields.remove("filters");
            }
        }
    }
    spec
}

fn normalise_backend(backend: &mut Value, namespace: &str) {
    for (field, default) in [
        ("group", json!("")),
        ("kind", json!("Service")),
        ("weight", json!(1)),
    ] {
        if backend.get(field).is_none_or(Value::is_null) {
            backend[field] = default;
        }
    }
    if text(backend, "/namespace") == Some(namespace)
        && let Some(fields) = backend.as_object_mut()
    {
        fields.remove("namespace");
    }
}

/// Labels, annotations and owner: the operator's win over the user's, keys of others stay.
fn judge_metadata(flags: &Flags, wanted: &Wanted<'_>, child: Object<'_>, judgement: &mut Judgement) {
    let bucket = wanted.bucket;
    let mut labels = text_map(wanted.settings, "/labels");
    labels.extend(our_labels(flags, wanted.kind));
    if bucket.name().len() <= 63 {
        labels.insert("routewright.dev/bucket".to_owned(), bucket.name().to_owned());
    }
    let mut annotations = text_map(wanted.settings, "/annotations");
    annotations.retain(|key, _| !key.starts_with(OUR_PREFIX));
    for (field, expected) in [
        ("/metadata/labels", labels),
        ("/metadata/annotations", annotations),
    ] {
        let found = text_map(child.0, field);
        let fits = expected.iter().all(|(key, value)| found.get(key) == Some(value));
        judgement.check(
            "exposure.metadata",
            child,
            fits,
            format!("{expected:?}"),
            format!("{found:?}"),
        );
    }
    let owner = child.controller().unwrap_or(&Value::Null);
    let fits = text(owner, "/kind") == Some("GarageBucket")
        && text(owner, "/name") == Some(bucket.name())
        && at(owner, "/blockOwnerDeletion") != &Value::Bool(true);
    judgement.check(
        "exposure.owner",
        child,
        fits,
        format!("controlled by {bucket}, blockOwnerDeletion not set"),
        owner,
    );
}

fn our_labels(flags: &Flags, kind: Kind) -> BTreeMap<String, String> {
    [
        ("managed-by", "routewright"),
        ("instance", flags.instance.as_str()),
        ("component", kind.component()),
    ]
    .into_iter()
    .map(|(key, value)| (format!("app.kubernetes.io/{key}"), value.to_owned()))
    .collect()
}

/// Addresses of the load balancer, each once.
pub(crate) fn addresses(child: Object<'_>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for entry in list(child.status(), "/loadBalancer/ingress") {
        for address in ["/ip", "/hostname"].iter().filter_map(|field| text(entry, field)) {
            if !all.iter().any(|known| known == address) {
                all.push(address.to_owned());
            }
        }
    }
    // The load balancer may list them in another order at any time.
    all.sort();
    all
}

/// Whether a route is served by its parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    NotReady,
    /// Lenient: the contract leaves the case open.
    Either,
}

/// What the entries of one parent come to.
#[derive(Clone, Copy, Debug)]
struct ParentState {
    accepted: bool,
    resolved: bool,
    readiness: Readiness,
    entries: usize,
}

/// Decision 7: every parentRef has an entry with Accepted and ResolvedRefs True at the route's generation.
pub(crate) fn readiness(route: Object<'_>) -> Readiness {
    let parents = list(route.spec(), "/parentRefs").iter();
    let states: Vec<Readiness> = parents
        .map(|parent| parent_state(route, parent).readiness)
        .collect();
    if states.is_empty() || states.contains(&Readiness::NotReady) {
        Readiness::NotReady
    } else if states.contains(&Readiness::Either) {
        Readiness::Either
    } else {
        Readiness::Ready
    }
}

fn parent_state(route: Object<'_>, parent: &Value) -> ParentState {
    let namespace = route.namespace();
    let wanted = normal_parent(parent, namespace);
    // Entries without Accepted are those of policy controllers.
    let entries: Vec<&Value> = list(route.status(), "/parents")
        .iter()
        .filter(|entry| normal_parent(at(entry, "/parentRef"), namespace) == wanted)
        .filter(|entry| condition(entry, "Accepted").is_some())
        .collect();
    let generation = route.generation();
    let ready = |entry: &&&Value| entry_is_ready(entry, generation);
    let refuses = |entry: &&Value| {
        ["Accepted", "ResolvedRefs"].iter().any(|type_| {
            condition(entry, type_).is_some_and(|condition| {
                text(condition, "/status") == Some("False")
                    && at(condition, "/observedGeneration").as_i64() == Some(generation)
            })
        })
    };
    let ready_entries = entries.iter().filter(ready).count();
    let readiness = match (entries.len(), ready_entries) {
        (_, 0) => Readiness::NotReady,
        (all, ready) if all == ready => Readiness::Ready,
        _ if entries.iter().any(refuses) => Readiness::NotReady,
        // One controller is ready, another one has not looked yet.
        _ => Readiness::Either,
    };
    ParentState {
        accepted: entries.iter().any(|entry| holds(entry, "Accepted", generation)),
        resolved: entries
            .iter()
            .any(|entry| holds(entry, "ResolvedRefs", generation)),
        readiness,
        entries: entries.len(),
    }
}

/// A condition that is True at this generation.
fn holds(entry: &Value, type_: &str, generation: i64) -> bool {
    condition(entry, type_).is_some_and(|condition| {
        text(condition, "/status") == Some("True")
            && at(condition, "/observedGeneration").as_i64() == Some(generation)
    })
}

fn entry_is_ready(entry: &Value, generation: i64) -> bool {
    let status = |type_: &str| condition(entry, type_).and_then(|condition| text(condition, "/status"));
    holds(entry, "Accepted", generation)
        && holds(entry, "ResolvedRefs", generation)
        && status("Ready").is_none_or(|ready| ready == "True")
        && status("PartiallyInvalid") != Some("True")
}

/// The `parents` of the status block: each parentRef with the flags that decided.
pub(crate) fn parents(route: Object<'_>) -> Value {
    let show = |parent: &Value| {
        let normal = normal_parent(parent, route.namespace());
        let state = parent_state(route, parent);
        let name = format!(
            "{}/{}",
            text(&normal, "/namespace").unwrap_or_default(),
            text(&normal, "/name").unwrap_or_default()
        );
        // Lenient: flags of several entries for one parent are not compared.
        let flag = |value: bool| {
            if state.entries > 1 {
                Value::Null
            } else {
                json!(value)
            }
        };
        let mut shown = json!({
            "parent": name,
            "accepted": flag(state.accepted),
            "resolvedRefs": flag(state.resolved),
            "ready": match state.readiness {
                Readiness::Ready => json!(true),
                Readiness::NotReady => json!(false),
                Readiness::Either => Value::Null,
            },
        });
        for field in ["sectionName", "port"] {
            if let Some(value) = normal.get(field) {
                shown[field] = value.clone();
            }
        }
        shown
    };
    list(route.spec(), "/parentRefs").iter().map(show).collect()
}

/// I1, I2 and orphans, for every object with our labels, whatever its bucket says.
pub(crate) fn judge_invariants(world: &World<'_>, judgement: &mut Judgement) {
    for kind in Kind::ALL {
        for child in world.all(kind.group(), kind.name()) {
            if is_labelled(child, kind) {
                let installations = &world.snapshot.installations;
                let kept_right = installations.iter().any(|flags| {
                    flags.has_garage_half() && kind.is_enabled(flags) && flags.watches(child.namespace())
                });
                if kept_right && is_exposed(world, child) {
                    judge_no_catch_all(child, kind, judgement);
                } else {
                    // While a row keeps the child as it is, the edits of other clients stay too.
                    judgement.skip("exposure: the child is kept as it is");
                }
                judge_place(world, child, judgement);
            }
        }
    }
    for service in world.all("", "Service") {
        let ours = Kind::ALL.iter().any(|kind| is_labelled(service, *kind));
        judgement.check(
            "exposure.I2",
            service,
            !ours,
            "no generated Service",
            "our labels",
        );
    }
}

/// Whether the cluster of a bucket is there and Running: else everything stays as it is.
fn is_running(world: &World<'_>, bucket: Object<'_>) -> bool {
    let name = text(bucket.spec(), "/clusterRef/name").unwrap_or_default();
    let namespace = text(bucket.spec(), "/clusterRef/namespace").unwrap_or(bucket.namespace());
    let cluster = world.get(GARAGE, "GarageCluster", namespace, name);
    cluster
        .is_some_and(|cluster| text(cluster.status(), "/phase") == Some("Running") && !cluster.is_deleting())
}

/// Whether the bucket of a child says that the child is as it should be.
fn is_exposed(world: &World<'_>, child: Object<'_>) -> bool {
    let owners = list(child.0, "/metadata/ownerReferences");
    owners.iter().any(|owner| {
        let name = text(owner, "/name").unwrap_or_default();
        let bucket = world.get(GARAGE, "GarageBucket", child.namespace(), name);
        let bucket = bucket.filter(|bucket| is_running(world, *bucket));
        let condition = bucket.and_then(|bucket| bucket.condition("WebsiteExposed"));
        condition.is_some_and(|condition| text(condition, "/status") == Some("True"))
    })
}

fn is_labelled(child: Object<'_>, kind: Kind) -> bool {
    child.label("app.kubernetes.io/managed-by") == Some("routewright")
        && child.label("app.kubernetes.io/component") == Some(kind.component())
}

/// I1: nothing matches a host that is not listed.
fn judge_no_catch_all(child: Object<'_>, kind: Kind, judgement: &mut Judgement) {
    let spec = child.spec();
    let hosts: Vec<String> = match kind {
        Kind::HttpRoute => texts(spec, "/hostnames"),
        Kind::Ingress => list(spec, "/rules")
            .iter()
            .map(|rule| text(rule, "/host").unwrap_or_default().to_owned())
            .collect(),
    };
    let closed = !hosts.is_empty()
        && hosts.iter().all(|host| !host.is_empty() && !host.contains('*'))
        && at(spec, "/defaultBackend").is_null();
    judgement.check(
        "exposure.I1",
        child,
        closed,
        "listed hosts and no default backend",
        spec,
    );
}

/// I2: a child stands in its bucket's namespace under its bucket's name. No child without a bucket that wants one.
fn judge_place(world: &World<'_>, child: Object<'_>, judgement: &mut Judgement) {
    let Some(owner) = child.controller() else {
        // The user removed the ownerReference: the object is foreign from then on.
        return judgement.skip("exposure: our labels on an object without owner");
    };
    let name = text(owner, "/name").unwrap_or_default();
    if text(owner, "/kind") != Some("GarageBucket") {
        return judgement.skip("exposure: our labels on an object of another owner");
    }
    judgement.check(
        "exposure.I2",
        child,
        child.name() == format!("{name}-website"),
        format!("{name}-website"),
        child.name(),
    );
    let bucket = world.get(GARAGE, "GarageBucket", child.namespace(), name);
    let lives = bucket.is_some_and(|bucket| Some(bucket.uid()) == text(owner, "/uid"));
    judgement.check(
        "exposure.orphan",
        child,
        lives || child.is_deleting(),
        format!(
            "GarageBucket {}/{name}, or no {}",
            child.namespace(),
            exposure::kinds()
        ),
        "no such bucket",
    );
}
