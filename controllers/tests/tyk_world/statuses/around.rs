//! What else follows from objects: addresses of a Gateway, and events.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{support, world::*},
    objects::*,
    page::rows_of_page,
    start,
};

#[tokio::test(start_paused = true)]
async fn given_this_service_then_these_addresses() {
    let balancer = |ingress: Value| {
        let mut service = service("x");
        service["spec"]["type"] = json!("LoadBalancer");
        service["status"] = json!({"loadBalancer": {"ingress": ingress}});
        service
    };
    let edited = |fields: Value| {
        let mut service = service("x");
        for (field, value) in fields.as_object().unwrap() {
            service["spec"][field] = value.clone();
        }
        service
    };
    let ip = |value: &str| json!({"type": "IPAddress", "value": value});
    let name = |value: &str| json!({"type": "Hostname", "value": value});
    let rows = [
        (
            "lb-both",
            balancer(json!([{"ip": "192.0.2.1"}, {"hostname": "lb.example.org"}])),
            json!([ip("192.0.2.1"), name("lb.example.org")]),
        ),
        ("lb-none", balancer(json!([])), Value::Null),
        (
            "external",
            edited(
                json!({"type": "ExternalName", "externalName": "gw.example.org", "clusterIP": null, "ports": null}),
            ),
            json!([name("gw.example.org")]),
        ),
        (
            "node-port",
            edited(json!({"type": "NodePort"})),
            json!([ip("10.0.0.7")]),
        ),
        (
            "headless",
            edited(json!({"clusterIP": "None"})),
            json!([name("headless.web.svc.cluster.local")]),
        ),
    ];
    let server = ready();
    for (key, service, _) in &rows {
        support::put(&server, named(service.clone(), key));
        server.create(context(key, json!({"dataPlane": {"serviceRef": {"name": key}}})));
        server.create(on_plane(key, key));
    }
    let mark = server.mark();
    let operator = start(&server, &on());
    support::quiet(&server, mark).await;
    for (key, _, addresses) in rows {
        let gateway = server.get("Gateway", "web", key).unwrap();
        assert_eq!(gateway["status"]["addresses"], addresses, "{key}: {gateway:#}");
    }
    operator.shutdown().await;
}

/// Events that follow from the objects alone; the others of the page are shown where they happen.
const ELSEWHERE: [&str; 11] = [
    // The framework's own, shown by its tests `adversity` and `status_lists`.
    "StatusNotWritten",
    "StatusTruncated",
    "ReportOutsideContract",
    "StatusContested",
    "StatusOwnedByAnother",
    "CertUploadFailed",
    "DeletionFailed",
    "CleanupBlocked",
    "DriftMended",
    "ReconcileFailed",
    "AcceptedRemoved",
];

/// Reason, objects, kind and name of the one that it is about, words of the message.
type Warned = (
    &'static str,
    Vec<Value>,
    &'static str,
    &'static str,
    &'static [&'static str],
);

#[tokio::test(start_paused = true)]
async fn given_these_objects_then_this_event() {
    let mut reserved = route_to("e-reserved", "public");
    reserved["spec"]["rules"][0]["matches"] = json!([{"path": {"type": "PathPrefix", "value": "/hello"}}]);
    let mut shared = named(gateway(), "e-shared");
    shared["spec"]["listeners"][0]["hostname"] = json!("shared.example.com");
    let mut wild = route_to("e-wild", "public");
    wild["spec"]["hostnames"] = json!(["*.wild.example.com", "a.wild.example.com"]);
    let dashboard =
        json!({"env": {"mode": "pro", "url": "http://dashboard:3000", "auth": "open sesame", "org": "o"}});
    let tagged = json!({"dataPlane": {"serviceRef": {"name": "gateways"}, "tags": ["a"]}});
    let rows: Vec<Warned> = vec![
        (
            "NoDataPlane",
            vec![without_plane("e-no-plane")],
            "Gateway",
            "e-no-plane",
            &[
                "every Tyk Gateway that is not segmented",
                "set spec.infrastructure.parametersRef",
            ],
        ),
        (
            "NoGatewayTags",
            class_with("e-dashboard", dashboard)
                .into_iter()
                .chain([of_class(named(gateway(), "e-no-tags"), "e-dashboard")])
                .collect(),
            "Gateway",
            "e-no-tags",
            &["spec.dataPlane.tags", "OperatorContext web/plane"],
        ),
        (
            "GatewayTagsIgnored",
            vec![context("e-tagged", tagged), on_plane("e-tags", "e-tagged")],
            "Gateway",
            "e-tags",
            &["spec.dataPlane.tags", "OperatorContext web/e-tagged"],
        ),
        (
            "SharedHost",
            vec![shared],
            "Gateway",
            "e-shared",
            &[
                "shared.example.com with Gateway",
                "routewright.dev/gateway-namespaces",
            ],
        ),
        (
            "ReservedPath",
            vec![reserved],
            "HTTPRoute",
            "e-reserved",
            &["/hello", "control_api_port"],
        ),
        (
            "OverlappingHosts",
            vec![wild],
            "HTTPRoute",
            "e-wild",
            &["*.wild.example.com", "a.wild.example.com"],
        ),
    ];
    let server = ready();
    for object in rows.iter().flat_map(|(_, given, ..)| given) {
        server.create(object.clone());
    }
    let mark = server.mark();
    let operator = start(&server, &on());
    support::quiet(&server, mark).await;
    let events = server.list("Event", "web");
    // None is empty, also not one about a condition without a message
    for event in &events {
        assert_ne!(event["note"], "", "{event:#}");
    }
    for (reason, _, kind, name, words) in &rows {
        let about = |event: &&Value| {
            event["reason"] == *reason
                && event["regarding"]["kind"] == *kind
                && event["regarding"]["name"] == *name
        };
        let found: Vec<&Value> = events.iter().filter(about).collect();
        assert_eq!(found.len(), 1, "{reason} of {kind} {name} in {events:#?}");
        assert_eq!(found[0]["type"], "Warning");
        let note = found[0]["note"].as_str().unwrap();
        for word in *words {
            assert!(note.contains(word), "{note:?} lacks {word:?}");
        }
    }
    // and these are all of the page
    let shown: BTreeMap<&str, &str> = rows
        .iter()
        .map(|(reason, _, kind, ..)| (*reason, *kind))
        .collect();
    let page: BTreeMap<String, String> = rows_of_page("events", 2)
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .filter(|(reason, _)| !ELSEWHERE.contains(&reason.as_str()))
        .collect();
    let shown: BTreeMap<String, String> = shown
        .into_iter()
        .map(|(reason, kind)| (reason.into(), kind.into()))
        .collect();
    assert_eq!(shown, page);
    operator.shutdown().await;
}
