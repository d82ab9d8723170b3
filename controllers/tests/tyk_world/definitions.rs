//! TykOasApiDefinitions with targetRefs.

use reconcile_kit::testing::ApiServer;
use routewright::{app::Options, tyk::controllers};
use serde_json::{Value, json};

use super::{support, world::*};

const DOCUMENT: &str = r#"{"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {},
    "x-tyk-api-gateway": {"info": {"name": "n", "state": {"active": true}}}}"#;

fn document(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "web", "name": "doc"}, "data": {"oas.json": text},
    })
}

fn definition(target: Value) -> Value {
    json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
        "metadata": {"namespace": "web", "name": "access"},
        "spec": {"tykOAS": {"configmapRef": {"name": "doc", "keyName": "oas.json"}}, "targetRefs": [target]},
    })
}

fn of_gateway() -> Value {
    json!({"group": GROUP, "kind": "Gateway", "name": "public"})
}

fn says(story: &Story) -> String {
    story.conditions("TykOasApiDefinition", "access").join(", ")
}

async fn attached() -> Story {
    let mut story = Story::begin().await;
    story.server.create(document(DOCUMENT));
    story.server.create(definition(of_gateway()));
    let lines = story.settle().await;
    assert_eq!(
        lines,
        [
            "APPLY tykoasapidefinitions/status access -> 200",
            "EVENT Normal Attached",
            "GET configmaps doc -> 200",
        ]
    );
    story
}

/// Another operator's Accepted on `web/access`.
fn they_say(server: &ApiServer, status: &str) {
    let theirs = json!([{"type": "Accepted", "status": status, "reason": "Theirs", "message": "by them",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = json!({"conditions": theirs});
    server.set_status("TykOasApiDefinition", "web", "access", status);
}

#[tokio::test(start_paused = true)]
async fn definition_attached_reaches_status_with_one_write() {
    let story = attached().await;
    assert_eq!(says(&story), "Accepted True/Attached");
    let definition = story.get("TykOasApiDefinition", "access");
    assert_eq!(
        definition["status"]["conditions"][0]["observedGeneration"],
        definition["metadata"]["generation"]
    );
}

#[tokio::test(start_paused = true)]
async fn definition_reasons_follow_target_and_document() {
    let mut story = attached().await;
    // the ConfigMap is edited
    story.edit("ConfigMap", "doc", json!({"data": {"oas.json": "{}"}}));
    let lines = story.settle().await;
    assert_eq!(
        writes(&lines),
        [
            "APPLY tykoasapidefinitions/status access -> 200",
            "EVENT Warning DocumentInvalid"
        ]
    );
    assert_eq!(says(&story), "Accepted False/DocumentInvalid");
    // it goes
    story.server.delete("ConfigMap", "web", "doc");
    story.settle().await;
    assert_eq!(says(&story), "Accepted False/BaseDocumentUnresolved");
    story.server.create(document(DOCUMENT));
    story.settle().await;
    assert_eq!(says(&story), "Accepted True/Attached");
    // the target goes
    story.server.delete("Gateway", "web", "public");
    story.settle().await;
    assert_eq!(says(&story), "Accepted False/NotAttached");
    // another kind is named
    let other = json!([{"group": "", "kind": "Service", "name": "backend"}]);
    story.edit(
        "TykOasApiDefinition",
        "access",
        json!({"spec": {"targetRefs": other}}),
    );
    story.settle().await;
    assert_eq!(says(&story), "Accepted False/UnsupportedTarget");
}

#[tokio::test(start_paused = true)]
async fn the_younger_of_two_definitions_of_one_target_is_told() {
    let mut story = attached().await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let mut second = definition(of_gateway());
    second["metadata"]["name"] = json!("zweite");
    story.server.create(second);
    story.settle().await;
    assert_eq!(
        story.conditions("TykOasApiDefinition", "zweite"),
        ["Accepted False/AttachmentConflict"]
    );
    assert_eq!(says(&story), "Accepted True/Attached");
}

#[tokio::test(start_paused = true)]
async fn definition_unknown_gateway_api_unavailable_while_tyk_is_off() {
    // Given Gateway API on Tyk off and definitions on
    let options = Options {
        tyk: controllers::Options {
            definitions: true,
            ..Default::default()
        },
        ..support::options()
    };
    let server = ready();
    server.create(definition(of_gateway()));
    let mut plain = definition(of_gateway());
    plain["metadata"]["name"] = json!("plain");
    plain["spec"].as_object_mut().unwrap().remove("targetRefs");
    server.create(plain);
    let mark = server.mark();
    let mut story = Story::on(server, options).await;
    // then those with targetRefs say so, and nothing of Gateway API is looked at
    let lines = story.settle().await;
    assert_eq!(
        lines,
        [
            "APPLY tykoasapidefinitions/status access -> 200",
            "EVENT Warning GatewayAPIUnavailable"
        ]
    );
    assert_eq!(says(&story), "Accepted Unknown/GatewayAPIUnavailable");
    assert!(
        !story
            .server
            .calls_since(mark)
            .iter()
            .any(|call| call.resource == "gateways" || call.resource == "secrets")
    );
}

#[tokio::test(start_paused = true)]
async fn while_definitions_are_off_none_is_touched_nor_looked_at() {
    let server = ready();
    server.create(definition(of_gateway()));
    let mark = server.mark();
    let mut story = Story::on(server, support::options()).await;
    assert_eq!(story.settle().await, support::NOTHING);
    let calls = story.server.calls_since(mark);
    assert!(
        !calls.iter().any(|call| call.resource == "tykoasapidefinitions"),
        "no request at all"
    );
}

#[tokio::test(start_paused = true)]
async fn an_accepted_of_another_manager_is_left_alone_and_an_event_says_so() {
    let server = ready();
    server.create(document(DOCUMENT));
    server.create(definition(of_gateway()));
    server.apply_as(
        "tyk-operator",
        json!({
            "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
            "metadata": {"namespace": "web", "name": "access"},
        }),
    );
    they_say(&server, "False");
    let mut story = Story::on(server, on()).await;
    story.settle().await;
    assert_eq!(says(&story), "Accepted False/Theirs");
    let events = story.events();
    assert!(
        events.iter().any(|e| e.contains("StatusOwnedByAnother")),
        "{events:#?}"
    );
}

fn targets(story: &Story, targets: Value) {
    story.edit(
        "TykOasApiDefinition",
        "access",
        json!({"spec": {"targetRefs": targets}}),
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_loses_its_targets_says_nothing_any_more() {
    for none in [Value::Null, json!([])] {
        // Given a definition that is attached, when its targetRefs go
        let mut story = attached().await;
        targets(&story, none);
        // then its Accepted goes with one write, and an event says so
        let lines = story.settle().await;
        assert_eq!(
            lines,
            [
                "APPLY tykoasapidefinitions/status access -> 200",
                "EVENT Normal AcceptedRemoved"
            ]
        );
        assert_eq!(says(&story), "");
        // and the operator looks at it no more, also after a restart
        for key in ["else", "oas.json"] {
            let other = json!({"spec": {"tykOAS": {"configmapRef": {"keyName": key}}}});
            story.edit("TykOasApiDefinition", "access", other);
            assert_eq!(story.settle().await, support::NOTHING);
        }
        story.restart().await;
        assert_eq!(writes(&story.settle().await), support::NOTHING);
        // when they are back, then so is the answer
        targets(&story, json!([of_gateway()]));
        story
            .says("TykOasApiDefinition", "access", "Accepted True/Attached")
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn targets_that_went_while_no_process_ran_are_noticed_by_the_next_also_with_tyk_off() {
    // Given an attached definition, and an operator that is stopped
    let mut story = attached().await;
    story.operator.take().unwrap().shutdown().await;
    targets(&story, Value::Null);
    // when one starts that has Gateway API on Tyk switched off, then the old answer goes all the same
    let options = Options {
        tyk: controllers::Options {
            definitions: true,
            ..Default::default()
        },
        ..support::options()
    };
    let mut story = Story::on(story.server, options).await;
    assert_eq!(
        writes(&story.settle().await),
        [
            "APPLY tykoasapidefinitions/status access -> 200",
            "EVENT Normal AcceptedRemoved"
        ]
    );
    assert_eq!(says(&story), "");
}

#[tokio::test(start_paused = true)]
async fn without_targets_an_accepted_of_another_manager_stays() {
    // Given a definition without targetRefs whose Accepted another operator wrote
    let server = ready();
    let mut plain = definition(of_gateway());
    plain["spec"].as_object_mut().unwrap().remove("targetRefs");
    server.create(plain);
    they_say(&server, "True");
    // when this one starts, and when it changes, then nothing is written
    let mut story = Story::on(server, on()).await;
    let lines = story.settle().await;
    assert!(!lines.iter().any(|l| l.contains("tykoas")), "{lines:?}");
    let other = json!({"spec": {"tykOAS": {"configmapRef": {"keyName": "else"}}}});
    story.edit("TykOasApiDefinition", "access", other);
    assert_eq!(story.settle().await, support::NOTHING);
    assert_eq!(says(&story), "Accepted True/Theirs");
}
