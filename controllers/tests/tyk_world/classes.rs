//! GatewayClasses.

use reconcile_kit::testing::ResourceDef;
use serde_json::{Value, json};

use super::{support, world::*};

#[tokio::test(start_paused = true)]
async fn gatewayclass_accepted_and_the_bundle_reach_status_in_one_write_and_stay() {
    // Given a class with everything it needs, used by a Gateway, when the operator starts
    let mut story = Story::on(ready(), on()).await;
    // then the Secret is read once, class and Gateway get one status write each, and the class its finalizer
    let lines = story.settle().await;
    assert_eq!(
        lines,
        [
            "APPLY gatewayclasses/status tyk -> 200",
            "APPLY gateways/status public -> 200",
            "EVENT Normal Accepted",
            "EVENT Normal Accepted",
            "EVENT Normal Programmed",
            "EVENT Normal SupportedVersion",
            "GET secrets connection -> 200",
            "PATCH(merge) gatewayclasses tyk -> 200",
        ]
    );
    assert_eq!(
        story.conditions("GatewayClass", "tyk"),
        ["Accepted True/Accepted", "SupportedVersion True/SupportedVersion"]
    );
    let class = story.get("GatewayClass", "tyk");
    assert_eq!(
        class["status"]["conditions"][0]["observedGeneration"],
        class["metadata"]["generation"]
    );
    let features: Vec<&str> = class["status"]["supportedFeatures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|feature| feature["name"].as_str().unwrap())
        .collect();
    assert!(
        features.is_sorted() && features.contains(&"HTTPRoute"),
        "{features:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_gatewayclass_cannot_be_deleted_while_gateways_use_it() {
    let mut story = Story::begin().await;
    let finalizers = |story: &Story| story.get("GatewayClass", "tyk")["metadata"]["finalizers"].clone();
    assert_eq!(
        finalizers(&story),
        json!(["gateway-exists-finalizer.gateway.networking.k8s.io"])
    );
    // Given a class that is in use, when it is deleted, then it stays, and is managed as before
    story.server.delete("GatewayClass", "", "tyk");
    story.settle().await;
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted True/Accepted",
        "still managed"
    );
    assert!(
        story
            .conditions("Gateway", "public")
            .contains(&"Programmed True/Programmed".to_owned())
    );
    // when the last Gateway goes, then it goes
    story.server.delete("Gateway", "web", "public");
    story.settle().await;
    assert_eq!(story.get("GatewayClass", "tyk"), json!(null));
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_goes_with_the_last_gateway_and_comes_with_the_first() {
    let mut story = Story::begin().await;
    story.server.delete("Gateway", "web", "public");
    assert_eq!(story.settle().await, ["PATCH(merge) gatewayclasses tyk -> 200"]);
    assert_eq!(
        story.get("GatewayClass", "tyk")["metadata"]["finalizers"],
        json!(null)
    );
    // Finalizers of others stay where they are.
    story.edit(
        "GatewayClass",
        "tyk",
        json!({"metadata": {"finalizers": ["example.org/keep"]}}),
    );
    story.settle().await;
    support::put(&story.server, gateway());
    story.settle().await;
    assert_eq!(
        story.get("GatewayClass", "tyk")["metadata"]["finalizers"],
        json!([
            "example.org/keep",
            "gateway-exists-finalizer.gateway.networking.k8s.io"
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn gatewayclass_accepted_false_invalid_parameters_reaches_status_and_heals() {
    let mut story = Story::begin().await;
    // Given a class that is accepted, when its Secret goes, then class and Gateway say so, once each
    story.server.delete("Secret", "web", "connection");
    let lines = story.settle().await;
    assert!(
        writes(&lines).contains(&"APPLY gatewayclasses/status tyk -> 200"),
        "{lines:?}"
    );
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted False/InvalidParameters"
    );
    let said = message(&story.get("GatewayClass", "tyk")["status"], "Accepted");
    assert!(said.contains("Secret web/connection does not exist"), "{said}");
    // when it comes back, then it is read and all is well again
    story.server.create(secret());
    let lines = story.settle().await;
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("GET")).count(),
        1,
        "{lines:?}"
    );
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted True/Accepted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_of_another_controller_is_never_touched_nor_are_its_gateways() {
    // Given a class of somebody else, with a Gateway and a route
    let server = ready();
    let mut other = class();
    other["metadata"]["name"] = json!("other");
    other["spec"]["controllerName"] = json!("example.org/gateway");
    support::put(&server, other);
    let mut theirs = gateway();
    theirs["metadata"]["name"] = json!("theirs");
    theirs["spec"]["gatewayClassName"] = json!("other");
    support::put(&server, theirs);
    // when the operator runs, then nothing of it is written
    let mut story = Story::on(server, on()).await;
    let lines = story.settle().await;
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("other") || line.contains("theirs")),
        "{lines:?}"
    );
    // and a Gateway that moves to it keeps the status that it had
    let before = story.get("Gateway", "public")["status"].clone();
    story.edit(
        "Gateway",
        "public",
        json!({"spec": {"gatewayClassName": "other"}}),
    );
    let lines = story.settle().await;
    assert!(!lines.iter().any(|line| line.contains("gateways")), "{lines:?}");
    assert_eq!(story.get("Gateway", "public")["status"], before);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_bundle_is_said_and_the_class_stays_accepted() {
    let mut story = Story::begin().await;
    // Given an upgrade to a bundle that nobody knows yet, when one CRD says so
    let annotation =
        json!({"metadata": {"annotations": {"gateway.networking.k8s.io/bundle-version": "v1.99.0"}}});
    story.server.edit(
        "CustomResourceDefinition",
        "",
        "gateways.gateway.networking.k8s.io",
        annotation,
    );
    // then the class says it, and nothing else is written
    let lines = story.settle().await;
    assert_eq!(
        writes(&lines),
        [
            "APPLY gatewayclasses/status tyk -> 200",
            "EVENT Warning UnsupportedVersion"
        ]
    );
    assert_eq!(
        story.conditions("GatewayClass", "tyk"),
        [
            "Accepted True/Accepted",
            "SupportedVersion False/UnsupportedVersion"
        ]
    );
}

/// A class on a CRD of an older bundle, whose `supportedFeatures` has this schema.
async fn on_an_old_bundle(features: Option<Value>) {
    let server = ready();
    server.delete("GatewayClass", "", "tyk");
    let text = || json!({"type": "string"});
    let mut status = json!({"conditions": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "properties": {
            "type": text(), "status": text(), "reason": text(), "message": text(), "lastTransitionTime": text(),
            "observedGeneration": {"type": "integer"}}},
    }});
    if let Some(features) = features {
        status["supportedFeatures"] = features;
    }
    let old = bundle_crd("GatewayClass", "v1.0.0");
    let mut old = ResourceDef::from_crd(&json!({"spec": {
        "group": GROUP, "scope": "Cluster", "names": old["spec"]["names"],
        "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "status": {"type": "object", "properties": status}},
        }}}],
    }}));
    server.serve(old.remove(0));
    server.create(class());
    let mut story = Story::on(server, on()).await;
    let lines = story.settle().await;
    // then it is accepted all the same, and nothing is tried again
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted True/Accepted"
    );
    assert_eq!(
        story.get("GatewayClass", "tyk")["status"]["supportedFeatures"],
        json!(null)
    );
    let tries = lines
        .iter()
        .filter(|line| line.contains("gatewayclasses/status"))
        .count();
    assert_eq!(tries, 2, "{lines:?}");
    story.edit("GatewayClass", "tyk", json!({"spec": {"description": "again"}}));
    let lines = story.settle().await;
    assert_eq!(lines, ["APPLY gatewayclasses/status tyk -> 200"], "learnt once");
}

#[tokio::test(start_paused = true)]
async fn an_old_bundle_without_supported_features_costs_the_field_and_not_accepted() {
    on_an_old_bundle(None).await;
}

#[tokio::test(start_paused = true)]
async fn an_old_bundle_that_wants_texts_costs_the_field_and_not_accepted() {
    on_an_old_bundle(Some(json!({"type": "array", "items": {"type": "string"}}))).await;
    on_an_old_bundle(Some(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
    ))
    .await;
}
