//! Gateway API on Tyk.

use serde_json::{Value, json};

use super::*;

const URL: &str = "http://tyk.web:8080";
const TIME: &str = "2026-01-01T00:00:00Z";

fn good(types: &[&str]) -> Value {
    let all = types.iter();
    all.map(|type_| json!({"type": type_, "status": "True", "reason": type_, "message": "1 API", "observedGeneration": 1}))
        .collect()
}

fn platform() -> Vec<Value> {
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "web", "name": name},
               "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": [{"port": 80}]}})
    };
    let context = |name: &str, spec: Value| {
        json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
               "metadata": {"namespace": "web", "name": name}, "spec": spec})
    };
    vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "web", "name": "connection"},
               "data": {"TYK_AUTH": "b3BlbiBzZXNhbWU="}}),
        context(
            "tyk",
            json!({"env": {"mode": "ce", "url": "http://tyk.web:8080/"}, "secretRef": {"name": "connection"}}),
        ),
        context(
            "plane",
            json!({"dataPlane": {"serviceRef": {"name": "gateways"}}}),
        ),
        service("gateways"),
        service("backend"),
        service("other"),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "tyk", "generation": 1, "finalizers": ["gateway-exists-finalizer.gateway.networking.k8s.io"]},
            "spec": {"controllerName": "routewright.dev/tyk", "parametersRef":
                {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": "tyk", "namespace": "web"}},
            "status": {"conditions": good(&["Accepted", "SupportedVersion"])},
        }),
        gateway("public"),
    ]
}

fn gateway(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "web", "name": name, "generation": 1, "creationTimestamp": TIME},
        "spec": {
            "gatewayClassName": "tyk",
            "infrastructure": {"parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": "plane"}},
            "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}],
        },
        "status": {
            "conditions": good(&["Accepted", "Programmed"]),
            "addresses": [{"type": "IPAddress", "value": "10.0.0.7"}],
            "listeners": [{"name": "http", "attachedRoutes": 1, "conditions": good(&["Accepted", "ResolvedRefs", "Programmed"])}],
        },
    })
}

fn route(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "web", "name": name, "uid": format!("u-{name}"), "generation": 1, "creationTimestamp": TIME,
            "finalizers": ["routewright.dev/tyk-httproute"], "annotations": {"routewright.dev/tyk-apis": "web/tyk@1=2"}},
        "spec": {
            "parentRefs": [{"name": "public"}],
            "hostnames": ["shop.example.com"],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": "/orders"}, "method": "GET"}],
                "backendRefs": [{"name": "backend", "port": 80, "weight": 2}, {"name": "other", "port": 80, "weight": 6}],
            }],
        },
        "status": {"parents": [entry("public")]},
    })
}

fn entry(gateway: &str) -> Value {
    json!({"controllerName": "routewright.dev/tyk", "conditions": good(&["Accepted", "ResolvedRefs"]),
           "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway}})
}

fn document(route: &str) -> Value {
    let id = "gwapi-00112233445566778899";
    let target = |name: &str, weight: u64| json!({"url": format!("http://{name}.web.svc.cluster.local:80/orders"), "weight": weight});
    json!({
        "openapi": "3.0.3", "info": {"title": id, "version": "1"},
        "x-routewright-owner": {"cluster": "c-1", "controller": "routewright.dev/tyk",
                                "route": {"namespace": "web", "name": route, "uid": format!("u-{route}")}},
        "x-routewright-hash": "h",
        "paths": {"/(?s).*": {"get": {"operationId": "get"}}},
        "x-tyk-api-gateway": {
            "info": {"id": id, "name": id, "state": {"active": true}},
            "server": {"listenPath": {"value": "/orders", "strip": true},
                       "customDomain": {"enabled": true, "name": "shop.example.com"}},
            "middleware": {"operations": {"get": {"allow": {"enabled": true}}}},
            "upstream": {"url": "http://backend.web.svc.cluster.local:80/orders", "preserveHostHeader": {"enabled": true},
                         "loadBalancing": {"enabled": true, "targets": [target("backend", 1), target("other", 3)]}},
        },
    })
}

fn served() -> Snapshot {
    let mut objects = platform();
    objects.push(route("shop"));
    let mut snapshot = world(objects);
    snapshot.tyk.insert(URL.to_owned(), vec![document("shop")]);
    snapshot
}

fn held(snapshot: &mut Snapshot) -> &mut Value {
    &mut snapshot.tyk.get_mut(URL).unwrap()[0]
}

const RULE: &str = "/spec/rules/0";

fn in_rule(snapshot: &mut Snapshot, field: &str, value: Value) {
    set(snapshot, "HTTPRoute", "shop", &format!("{RULE}/{field}"), value);
}

#[test]
fn a_served_route_is_right() {
    let judgement = right(
        &served(),
        &[
            "tyk.class",
            "tyk.class.finalizer",
            "tyk.gateway",
            "tyk.gateway.addresses",
            "tyk.listener",
            "tyk.attached",
            "tyk.entries",
            "tyk.route.accepted",
            "tyk.route.resolved",
            "tyk.route.partial",
            "tyk.route.finalizer",
            "tyk.document",
            "tyk.document.frame",
            "tyk.document.upstream",
            "tyk.document.methods",
            "tyk.leftover",
            "tyk.once",
        ],
    );
    assert!(judgement.skipped.is_empty(), "{judgement:#?}");
}

#[test]
fn everything_wrong_is_found() {
    each_is_found(
        served,
        &[
            ("tyk.class", |s| remove(s, "OperatorContext", "tyk")),
            ("tyk.class", |s| remove(s, "Secret", "connection")),
            ("tyk.class.finalizer", |s| {
                set(s, "GatewayClass", "tyk", "/metadata/finalizers", json!([]))
            }),
            ("tyk.gateway", |s| remove(s, "OperatorContext", "plane")),
            ("tyk.gateway", |s| remove(s, "Service", "gateways")),
            ("tyk.gateway", |s| {
                set(s, "Gateway", "public", "/metadata/generation", json!(2))
            }),
            ("tyk.gateway", |s| remove(s, "Secret", "connection")),
            ("tyk.gateway.addresses", |s| {
                set(s, "Service", "gateways", "/spec/clusterIP", json!("10.0.0.8"))
            }),
            ("tyk.listener", |s| {
                set(s, "Gateway", "public", "/spec/listeners/0/port", json!(81))
            }),
            ("tyk.listener", |s| {
                set(s, "Gateway", "public", "/spec/listeners/0/protocol", json!("TCP"))
            }),
            ("tyk.listener", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/spec/listeners",
                    json!([
            {"name": "http", "protocol": "HTTP", "port": 80}, {"name": "more", "protocol": "HTTP", "port": 80}]),
                )
            }),
            ("tyk.listener", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/spec/listeners/0",
                    json!(
            {"name": "http", "protocol": "HTTPS", "port": 80, "tls": {"certificateRefs": [{"name": "absent"}]}}),
                )
            }),
            ("tyk.attached", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/status/listeners/0/attachedRoutes",
                    json!(0),
                )
            }),
            ("tyk.attached", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/spec/listeners/0/hostname",
                    json!("other.example.com"),
                )
            }),
            ("tyk.entries", |s| remove(s, "Gateway", "public")),
            ("tyk.entries", |s| {
                set(s, "HTTPRoute", "shop", "/status/parents", json!([]))
            }),
            ("tyk.entries", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "shop",
                    "/status/parents",
                    json!([entry("public"), entry("public")]),
                )
            }),
            ("tyk.route.accepted", |s| {
                let section = json!("absent");
                set(
                    s,
                    "HTTPRoute",
                    "shop",
                    "/spec/parentRefs/0/sectionName",
                    section.clone(),
                );
                set(
                    s,
                    "HTTPRoute",
                    "shop",
                    "/status/parents/0/parentRef/sectionName",
                    section,
                );
            }),
            ("tyk.route.accepted", |s| {
                set(s, "HTTPRoute", "shop", "/metadata/generation", json!(2))
            }),
            ("tyk.route.accepted", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/spec/listeners/0/allowedRoutes",
                    json!({"namespaces": {
            "from": "Selector", "selector": {"matchLabels": {"guest": "yes"}}}}),
                )
            }),
            ("tyk.route.accepted", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/spec/listeners/0/hostname",
                    json!("other.example.com"),
                )
            }),
            ("tyk.route.accepted", |s| {
                in_rule(s, "timeouts", json!({"request": "5s"}))
            }),
            ("tyk.route.accepted", |s| {
                in_rule(
                    s,
                    "matches",
                    json!([{"path": {"type": "Exact", "value": "/orders"}}]),
                )
            }),
            ("tyk.route.accepted", |s| {
                in_rule(s, "matches", json!([{"headers": [{"name": "a", "value": "b"}]}]))
            }),
            ("tyk.route.accepted", |s| {
                in_rule(s, "filters", json!([{"type": "RequestMirror"}]))
            }),
            ("tyk.route.resolved", |s| remove(s, "Service", "backend")),
            ("tyk.route.resolved", |s| {
                in_rule(
                    s,
                    "backendRefs",
                    json!([{"name": "backend", "namespace": "else", "port": 80}]),
                )
            }),
            ("tyk.route.resolved", |s| {
                in_rule(s, "backendRefs", json!([{"name": "backend", "port": 81}]))
            }),
            ("tyk.route.resolved", |s| {
                set(s, "Service", "backend", "/spec/type", json!("ExternalName"))
            }),
            ("tyk.route.partial", |s| {
                let rule = json!({"retry": {"attempts": 1}});
                object(s, "HTTPRoute", "shop")["spec"]["rules"]
                    .as_array_mut()
                    .unwrap()
                    .push(rule);
            }),
            ("tyk.route.partial", |s| {
                let partial = json!({"type": "PartiallyInvalid", "status": "True", "reason": "UnsupportedValue", "observedGeneration": 1,
                "message": "Dropped Rule 0"});
                object(s, "HTTPRoute", "shop")["status"]["parents"][0]["conditions"]
                    .as_array_mut()
                    .unwrap()
                    .push(partial);
            }),
            ("tyk.route.finalizer", |s| {
                set(s, "HTTPRoute", "shop", "/metadata/finalizers", json!([]))
            }),
            ("tyk.document", |s| s.tyk.get_mut(URL).unwrap().clear()),
            ("tyk.document", |s| {
                held(s)["x-tyk-api-gateway"]["server"]["listenPath"]["value"] = json!("/orders-renamed")
            }),
            ("tyk.leftover", |s| {
                held(s)["x-tyk-api-gateway"]["server"]["listenPath"]["value"] = json!("/orders-renamed")
            }),
            ("tyk.leftover", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "shop",
                    "/spec/hostnames",
                    json!(["another.example.com"]),
                )
            }),
            ("tyk.leftover", |s| remove(s, "Gateway", "public")),
            ("tyk.document.frame", |s| {
                held(s)["x-tyk-api-gateway"]["info"]["state"]["active"] = json!(false)
            }),
            ("tyk.document.frame", |s| {
                held(s)["x-routewright-owner"]["route"]["uid"] = json!("u-before")
            }),
            ("tyk.document.upstream", |s| {
                in_rule(s, "backendRefs", json!([{"name": "backend", "port": 80}]))
            }),
            ("tyk.document.upstream", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "shop",
                    "/spec/rules/0/backendRefs/0/weight",
                    json!(3),
                )
            }),
            ("tyk.document.upstream", |s| remove(s, "Service", "other")),
            ("tyk.document.methods", |s| {
                in_rule(
                    s,
                    "matches",
                    json!([{"path": {"value": "/orders"}, "method": "POST"}]),
                )
            }),
            ("tyk.document.methods", |s| {
                in_rule(s, "matches", json!([{"path": {"value": "/orders"}}]))
            }),
            ("tyk.orphan", |s| remove(s, "HTTPRoute", "shop")),
            ("tyk.once", |s| s.tyk.get_mut(URL).unwrap().push(document("shop"))),
        ],
    );
}

/// A younger route for the same host and path: its status names the winner, and Tyk has no document for it.
fn with_loser() -> Snapshot {
    let mut snapshot = served();
    let mut loser = route("younger");
    loser["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    loser["metadata"]["finalizers"] = json!([]);
    loser["metadata"]["annotations"] = json!({});
    let conditions = loser["status"]["parents"][0]["conditions"]
        .as_array_mut()
        .unwrap();
    conditions.push(json!({"type": "PartiallyInvalid", "status": "True", "reason": "UnsupportedValue", "observedGeneration": 1,
        "message": "Dropped Rule 0: host shop.example.com, path /orders belong to HTTPRoute web/shop"}));
    snapshot.objects.push(loser);
    set(
        &mut snapshot,
        "Gateway",
        "public",
        "/status/listeners/0/attachedRoutes",
        json!(2),
    );
    snapshot
}

#[test]
fn the_oldest_route_has_a_place() {
    right(&with_loser(), &["tyk.route.partial"]);
    each_is_found(
        with_loser,
        &[
            ("tyk.leftover", |s| {
                s.tyk.get_mut(URL).unwrap().push(document("younger"))
            }),
            ("tyk.document", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "younger",
                    "/metadata/creationTimestamp",
                    json!("2025-01-01T00:00:00Z"),
                )
            }),
            ("tyk.document", |s| remove(s, "HTTPRoute", "shop")),
            ("tyk.route.partial", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "younger",
                    "/status/parents/0/conditions/2/message",
                    json!("Dropped Rule 0"),
                )
            }),
            ("tyk.attached", |s| {
                set(
                    s,
                    "Gateway",
                    "public",
                    "/status/listeners/0/attachedRoutes",
                    json!(1),
                )
            }),
        ],
    );
}

/// Two Gateways of a Dashboard with these tags, and a route that has both as parents.
fn two_gateways(one: Value, other: Value) -> Snapshot {
    let mut snapshot = served();
    set(
        &mut snapshot,
        "OperatorContext",
        "tyk",
        "/spec/env/mode",
        json!("pro"),
    );
    set(
        &mut snapshot,
        "OperatorContext",
        "plane",
        "/spec/dataPlane/tags",
        one,
    );
    let mut plane = object(&mut snapshot, "OperatorContext", "plane").clone();
    plane["metadata"]["name"] = json!("plane-2");
    plane["spec"]["dataPlane"]["tags"] = other;
    let mut second = gateway("second");
    second["spec"]["infrastructure"]["parametersRef"]["name"] = json!("plane-2");
    snapshot.objects.extend([plane, second]);
    set(
        &mut snapshot,
        "HTTPRoute",
        "shop",
        "/spec/parentRefs",
        json!([{"name": "public"}, {"name": "second"}]),
    );
    set(
        &mut snapshot,
        "HTTPRoute",
        "shop",
        "/status/parents",
        json!([entry("public"), entry("second")]),
    );
    held(&mut snapshot)["x-tyk-api-gateway"]["server"]["gatewayTags"] =
        json!({"enabled": true, "tags": ["a"]});
    snapshot
}

#[test]
fn gateways_share_a_data_plane_unless_their_tags_keep_them_apart() {
    let mut apart = two_gateways(json!(["a"]), json!(["b"]));
    let mut second = document("shop");
    second["x-tyk-api-gateway"]["server"]["gatewayTags"] = json!({"enabled": true, "tags": ["b"]});
    apart.tyk.get_mut(URL).unwrap().push(second);
    right(&apart, &["tyk.document"]);
    for tags in [json!(["a", "b"]), json!([])] {
        let mut shared = two_gateways(json!(["a"]), tags);
        assert!(broken(&shared).contains("tyk.route.accepted"));
        let refused = json!({"type": "Accepted", "status": "False", "reason": "DataPlaneShared", "observedGeneration": 1});
        set(
            &mut shared,
            "HTTPRoute",
            "shop",
            "/status/parents/1/conditions/0",
            refused,
        );
        set(
            &mut shared,
            "Gateway",
            "second",
            "/status/listeners/0/attachedRoutes",
            json!(0),
        );
        right(&shared, &["tyk.document"]);
    }
}

fn refused(type_: &str, reason: &str) -> Value {
    json!({"type": type_, "status": "False", "reason": reason, "observedGeneration": 1})
}

#[test]
fn a_definition_that_cannot_be_read_keeps_what_stands() {
    let definition = json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
        "metadata": {"namespace": "web", "name": "base", "generation": 1},
        "spec": {"tykOAS": {"configmapRef": {"name": "base", "keyName": "oas.json"}},
                 "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"}]},
        "status": {"conditions": [refused("Accepted", "BaseDocumentUnresolved")]},
    });
    let mut snapshot = served();
    snapshot.objects.push(definition);
    set(
        &mut snapshot,
        "HTTPRoute",
        "shop",
        "/status/parents/0/conditions/0",
        refused("Accepted", "BaseDocumentUnresolved"),
    );
    set(
        &mut snapshot,
        "Gateway",
        "public",
        "/status/listeners/0/attachedRoutes",
        json!(0),
    );
    right(&snapshot, &["tyk.definition", "tyk.leftover"]);
    let map = |document: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "web", "name": "base"},
        "data": {"oas.json": document}})
    };
    snapshot.objects.push(map("{}"));
    assert!(broken(&snapshot).is_superset(&["tyk.definition", "tyk.route.accepted"].into()));
    snapshot.objects.pop();
    snapshot.objects.push(map(
        r#"{"openapi": "3.0.3", "info": {}, "paths": {}, "x-tyk-api-gateway": {"info": {}}}"#,
    ));
    set(
        &mut snapshot,
        "HTTPRoute",
        "shop",
        "/status/parents/0/conditions/0",
        good(&["Accepted"])[0].clone(),
    );
    set(
        &mut snapshot,
        "Gateway",
        "public",
        "/status/listeners/0/attachedRoutes",
        json!(1),
    );
    let attached =
        json!({"type": "Accepted", "status": "True", "reason": "Attached", "observedGeneration": 1});
    set(
        &mut snapshot,
        "TykOasApiDefinition",
        "base",
        "/status/conditions/0",
        attached,
    );
    right(&snapshot, &["tyk.definition", "tyk.document"]);
}

#[test]
fn what_the_oracle_does_not_know_is_counted() {
    let mut redirect = served();
    in_rule(
        &mut redirect,
        "filters",
        json!([{"type": "RequestRedirect", "requestRedirect": {"hostname": "a.b"}}]),
    );
    assert!(right(&redirect, &[]).skipped.contains_key("tyk: a redirect"));
    let mut silent = served();
    silent.tyk.clear();
    assert!(
        right(&silent, &[])
            .skipped
            .contains_key("tyk: Tyk does not answer")
    );
    let mut unserved = served();
    unserved
        .served
        .remove(&("tyk.tyk.io".to_owned(), "OperatorContext".to_owned()));
    assert!(
        right(&unserved, &[])
            .skipped
            .contains_key("tyk: a required kind is not served")
    );
    let mut foreign = served();
    held(&mut foreign)["x-routewright-owner"]["cluster"] = json!("c-2");
    assert!(
        right(&foreign, &[])
            .skipped
            .contains_key("tyk: a document of another owner is in the way")
    );
}
