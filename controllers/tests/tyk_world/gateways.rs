//! Gateways and their listeners.

use std::time::Duration;

use reconcile_kit::testing::Verb;
use serde_json::{Value, json};

use super::{support, world::*};

fn gateway_writes(lines: &[String]) -> usize {
    lines
        .iter()
        .filter(|line| line.contains("gateways/status"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_gateway_gets_conditions_address_and_listeners_in_one_write() {
    let story = Story::begin().await;
    let gateway = story.get("Gateway", "public");
    assert_eq!(
        story.conditions("Gateway", "public"),
        ["Accepted True/Accepted", "Programmed True/Programmed"]
    );
    assert_eq!(
        gateway["status"]["addresses"],
        json!([{"type": "IPAddress", "value": "10.0.0.7"}])
    );
    let listener = story.listener_status("http");
    assert_eq!(
        listener["supportedKinds"],
        json!([{"group": GROUP, "kind": "HTTPRoute"}])
    );
    assert_eq!(listener["attachedRoutes"], json!(0));
    let all = gateway["status"]["conditions"].as_array().unwrap().iter();
    for condition in all.chain(listener["conditions"].as_array().unwrap()) {
        assert_eq!(
            condition["observedGeneration"], gateway["metadata"]["generation"],
            "{condition}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_nothing_changed_writes_nothing_and_an_idle_hour_asks_for_nothing() {
    let mut story = Story::begin().await;
    for name in ["a", "b"] {
        support::put(&story.server, route(name));
    }
    story.settle().await;
    // Given that all is said, when the operator starts again, then it reads the Secret once more and writes nothing
    story.restart().await;
    assert_eq!(story.settle().await, ["GET secrets connection -> 200"]);
    // and while nothing happens, nothing is asked but that watches are opened anew
    let calls = story.pass(Duration::from_secs(3600)).await;
    let asked: Vec<_> = calls
        .iter()
        .filter(|call| !matches!(call.verb, Verb::Watch | Verb::WatchMetadata))
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

/// Edits a Gateway's listener; then: conditions of the Gateway, of the listener, and one write.
async fn listener_case(listener: Value, of_gateway: &[&str], of_listener: &[&str]) {
    let mut story = Story::begin().await;
    story.edit("Gateway", "public", json!({"spec": {"listeners": [listener]}}));
    let lines = story.settle().await;
    assert_eq!(gateway_writes(&lines), 1, "{lines:?}");
    assert_eq!(story.conditions("Gateway", "public"), of_gateway);
    let said = story.listener(listener["name"].as_str().unwrap());
    for wanted in of_listener {
        assert!(said.iter().any(|c| c == wanted), "{wanted} in {said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn listener_reasons_reach_status_with_one_write() {
    let none = ["Accepted False/ListenersNotValid", "Programmed False/Invalid"];
    let https = |certificate: Value| json!({"name": "web", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": [certificate]}});
    let kinds = json!({"kinds": [{"group": GROUP, "kind": "GRPCRoute"}]});
    let cases = [
        (
            json!({"name": "web", "protocol": "TCP", "port": 80}),
            "Accepted False/UnsupportedProtocol",
        ),
        (
            json!({"name": "web", "protocol": "HTTP", "port": 81}),
            "Accepted False/PortUnavailable",
        ),
        (
            https(json!({"name": "nothing"})),
            "ResolvedRefs False/InvalidCertificateRef",
        ),
        (
            https(json!({"name": "connection"})),
            "ResolvedRefs False/InvalidCertificateRef",
        ),
        (
            https(json!({"name": "cert", "namespace": "storage"})),
            "ResolvedRefs False/RefNotPermitted",
        ),
        (
            json!({"name": "web", "protocol": "HTTP", "port": 80, "allowedRoutes": kinds}),
            "ResolvedRefs False/InvalidRouteKinds",
        ),
    ];
    for (listener, reason) in cases {
        listener_case(listener, &none, &[reason]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_that_conflict_are_told_and_the_condition_goes_with_the_conflict() {
    let mut story = Story::begin().await;
    story.edit(
        "Gateway",
        "public",
        json!({"spec": {"listeners": [
            {"name": "http", "protocol": "HTTP", "port": 80},
            {"name": "clash", "protocol": "HTTPS", "port": 80, "tls": {"certificateRefs": [{"name": "x"}]}},
            {"name": "fine", "protocol": "HTTP", "port": 443},
        ]}}),
    );
    let lines = story.settle().await;
    assert_eq!(gateway_writes(&lines), 1, "{lines:?}");
    assert!(
        story
            .listener("http")
            .contains(&"Conflicted True/ProtocolConflict".to_owned())
    );
    assert_eq!(
        story.conditions("Gateway", "public")[0],
        "Accepted True/ListenersNotValid"
    );
    story.edit(
        "Gateway",
        "public",
        json!({"spec": {"listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
    );
    story.settle().await;
    assert!(!story.listener("http").iter().any(|c| c.starts_with("Conflicted")));
    assert_eq!(
        story.listener_status("clash"),
        json!(null),
        "a listener that is gone goes from status"
    );
    assert_eq!(story.conditions("Gateway", "public")[0], "Accepted True/Accepted");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_service_is_a_change_of_the_gateway_and_of_nothing_else() {
    let mut story = Story::begin().await;
    let cases: [(Value, &str); 3] = [
        (
            json!({"spec": {"type": "LoadBalancer"}}),
            "Programmed False/AddressNotAssigned",
        ),
        (
            json!({"spec": {"type": "ExternalName", "externalName": "gw.example.org", "clusterIP": null}}),
            "Programmed True/Programmed",
        ),
        (
            json!({"spec": {"type": "ClusterIP", "externalName": null, "clusterIP": "None"}}),
            "",
        ),
    ];
    for (change, wanted) in cases {
        story.edit("Service", "gateways", change);
        let lines = story.settle().await;
        let writes: Vec<_> = writes(&lines)
            .into_iter()
            .filter(|line| !line.starts_with("EVENT"))
            .collect();
        assert_eq!(writes, ["APPLY gateways/status public -> 200"]);
        if !wanted.is_empty() {
            assert!(
                story.conditions("Gateway", "public").iter().any(|c| c == wanted),
                "{wanted}"
            );
        }
    }
    let addresses = story.get("Gateway", "public")["status"]["addresses"].clone();
    assert_eq!(
        addresses,
        json!([{"type": "Hostname", "value": "gateways.web.svc.cluster.local"}]),
        "of a headless Service"
    );
    // A Service that nobody names is nobody's business.
    story.server.create(service("unused"));
    assert_eq!(story.settle().await, support::NOTHING);
}

#[tokio::test(start_paused = true)]
async fn times_stay_and_conditions_of_others_too() {
    let mut story = Story::begin().await;
    let before = story.get("Gateway", "public")["status"]["conditions"][0]["lastTransitionTime"].clone();
    // Given somebody else's condition on the Gateway
    let mut status = story.get("Gateway", "public")["status"].clone();
    let theirs = json!({"type": "example.org/Scanned", "status": "True", "reason": "Fine", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    status["conditions"].as_array_mut().unwrap().push(theirs.clone());
    story.server.set_status("Gateway", "web", "public", status);
    assert_eq!(story.settle().await, support::NOTHING, "no answer to that");
    // when the Gateway changes and stays accepted
    tokio::time::sleep(Duration::from_secs(100)).await;
    story.edit(
        "Gateway",
        "public",
        json!({"spec": {"listeners": [{"name": "http", "protocol": "HTTP", "port": 443}]}}),
    );
    let lines = story.settle().await;
    assert_eq!(gateway_writes(&lines), 1, "{lines:?}");
    // then the time of Accepted is the old one, its generation the new one, and the other condition is as it was
    let gateway = story.get("Gateway", "public");
    let accepted = &gateway["status"]["conditions"][0];
    assert_eq!(accepted["lastTransitionTime"], before);
    assert_eq!(accepted["observedGeneration"], gateway["metadata"]["generation"]);
    assert!(
        gateway["status"]["conditions"]
            .as_array()
            .unwrap()
            .contains(&theirs)
    );
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_makes_of_our_status_is_mended_once() {
    let mut story = Story::begin().await;
    let right = story.get("Gateway", "public")["status"].clone();
    let mut wrong = right.clone();
    wrong["listeners"][0]["attachedRoutes"] = json!(7);
    wrong["conditions"][0]["status"] = json!("False");
    story.server.set_status("Gateway", "web", "public", wrong);
    let lines = story.settle().await;
    assert_eq!(gateway_writes(&lines), 1, "{lines:?}");
    let now = story.get("Gateway", "public")["status"].clone();
    assert_eq!(now["listeners"], right["listeners"]);
    assert_eq!(story.conditions("Gateway", "public")[0], "Accepted True/Accepted");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_a_data_plane_warns_once() {
    let mut story = Story::begin().await;
    story.edit("Gateway", "public", json!({"spec": {"infrastructure": null}}));
    story.settle().await;
    assert!(
        story
            .conditions("Gateway", "public")
            .contains(&"Programmed False/UnsupportedAddress".to_owned())
    );
    let warned = |story: &Story| {
        let events = story.events();
        events
            .iter()
            .filter(|e| e.starts_with("Warning") && e.contains("every"))
            .count()
    };
    let first = warned(&story);
    assert!(first >= 1, "{:#?}", story.events());
    support::put(&story.server, route("a"));
    story.settle().await;
    assert_eq!(warned(&story), first);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_routes_at_once_are_counted_right_with_few_writes() {
    let mut story = Story::begin().await;
    // Given a Gateway that is served, when a thousand routes come at once
    for n in 0..1000 {
        story.server.create(route(&format!("r{n}")));
    }
    let what = "1000 attached routes";
    support::eventually(&story.server, what, || {
        (story.listener_status("http")["attachedRoutes"] == json!(1000)).then_some(())
    })
    .await;
    // then the Gateway was written few times
    let lines = story.settle().await;
    assert!(gateway_writes(&lines) <= 20, "{} writes", gateway_writes(&lines));
    // and when they go, the last value is written too
    for n in 0..1000 {
        let name = format!("r{n}");
        story.server.edit(
            "HTTPRoute",
            "web",
            &name,
            json!({"metadata": {"finalizers": null}}),
        );
        story.server.delete("HTTPRoute", "web", &name);
    }
    support::eventually(&story.server, "no attached route", || {
        (story.listener_status("http")["attachedRoutes"] == json!(0)).then_some(())
    })
    .await;
    let lines = story.settle().await;
    assert!(gateway_writes(&lines) <= 20, "{} writes", gateway_writes(&lines));
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_namespace_decide_who_attaches() {
    let mut story = Story::begin().await;
    let mut guest = route("guest");
    guest["metadata"]["namespace"] = json!("storage");
    guest["spec"]["parentRefs"][0]["namespace"] = json!("web");
    story.server.create(guest);
    story.edit(
        "Gateway",
        "public",
        json!({"spec": {"listeners": [{"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces":
            {"from": "Selector", "selector": {"matchLabels": {"team": "guests"}}}}}]}}),
    );
    story.settle().await;
    assert_eq!(story.listener_status("http")["attachedRoutes"], json!(0));
    // when the namespace gets the label, then the Gateway is written, and no other Gateway or class
    story.server.edit(
        "Namespace",
        "",
        "storage",
        json!({"metadata": {"labels": {"team": "guests"}}}),
    );
    let lines = story.settle().await;
    assert_eq!(gateway_writes(&lines), 1, "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.contains("gatewayclasses")),
        "{lines:?}"
    );
    assert_eq!(story.listener_status("http")["attachedRoutes"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn the_class_the_context_and_the_secret_may_go_in_any_order() {
    type Object = (&'static str, &'static str, &'static str);
    let [class, gateway, context, secret]: [Object; 4] = [
        ("GatewayClass", "", "tyk"),
        ("Gateway", "web", "public"),
        ("OperatorContext", "web", "tyk"),
        ("Secret", "web", "connection"),
    ];
    for order in [
        [class, gateway, context, secret],
        [secret, context, class, gateway],
        [context, gateway, secret, class],
    ] {
        let mut story = Story::begin().await;
        for (kind, namespace, name) in order {
            story.server.delete(kind, namespace, name);
            story.settle().await;
        }
        for (kind, namespace, name) in order {
            assert_eq!(story.server.get(kind, namespace, name), None, "{order:?}");
        }
        assert_eq!(story.settle().await, support::NOTHING, "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn readyz_names_the_units_and_what_they_wait_for() {
    let story = Story::on(bare(), on()).await;
    let text = support::verbose(story.operator.as_ref().unwrap()).await;
    for unit in [
        "tyk-world",
        "tyk-gatewayclass",
        "tyk-gateway",
        "tyk-oas-definition",
    ] {
        assert!(text.contains(unit), "{unit} in {text}");
    }
    assert!(text.contains("Gateway.gateway.networking.k8s.io/v1"), "{text}");
}
