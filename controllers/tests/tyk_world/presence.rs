//! Kinds that come and go while the operator runs.

use std::time::Duration;

use reconcile_kit::testing::Verb;
use serde_json::json;

use super::{support, world::*};

#[tokio::test(start_paused = true)]
async fn gateway_api_that_appears_is_served_without_a_restart() {
    // Given a cluster without Gateway API
    let server = bare();
    let mut story = Story::on(server, on()).await;
    let calls = story.pass(Duration::from_secs(60)).await;
    assert!(!calls.iter().any(|call| call.verb.is_write()));
    // when it is installed, with a class and a Gateway
    install(&story.server);
    for object in platform() {
        support::put(&story.server, object);
    }
    // then they are served
    story.says("GatewayClass", "tyk", "Accepted True/Accepted").await;
    story
        .says("Gateway", "public", "Programmed True/Programmed")
        .await;
}

#[tokio::test(start_paused = true)]
async fn while_one_required_kind_is_gone_nothing_is_concluded_and_its_return_heals() {
    let mut story = Story::begin().await;
    let before = story.get("Gateway", "public")["status"].clone();
    // Given all is served, when ReferenceGrant goes
    let crd = "referencegrants.gateway.networking.k8s.io";
    story.server.delete("CustomResourceDefinition", "", crd);
    story.server.unserve(GROUP, "referencegrants");
    tokio::time::sleep(Duration::from_secs(60)).await;
    // and the Service goes too, then nothing is said
    story.server.delete("Service", "web", "gateways");
    let calls = story.pass(Duration::from_secs(120)).await;
    assert!(!calls.iter().any(|call| call.verb.is_write()), "no write");
    assert_eq!(story.get("Gateway", "public")["status"], before);
    // when it is back, then what happened meanwhile is said
    story.server.create(bundle_crd("ReferenceGrant", "v1.6.1"));
    story.server.serve(served("ReferenceGrant"));
    story
        .says("Gateway", "public", "Programmed False/UnsupportedAddress")
        .await;
}

#[tokio::test(start_paused = true)]
async fn with_tyk_off_nothing_of_it_is_asked_for() {
    let server = ready();
    let mark = server.mark();
    let mut story = Story::on(server, support::options()).await;
    story.pass(Duration::from_secs(60)).await;
    let asked: Vec<String> = story
        .server
        .calls_since(mark)
        .iter()
        .filter(|call| {
            let crd = call.resource == "customresourcedefinitions";
            matches!(
                call.resource.as_str(),
                "gateways"
                    | "gatewayclasses"
                    | "httproutes"
                    | "referencegrants"
                    | "secrets"
                    | "configmaps"
                    | "services"
                    | "operatorcontexts"
                    | "tykoasapidefinitions"
            ) || (crd && format!("{call}").contains("gateway.networking"))
                || (call.verb == Verb::Discovery && format!("{call}").contains("gateway.networking"))
        })
        .map(|call| call.to_string())
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_definition_says_that_gateway_api_is_not_served_and_is_decided_when_it_is() {
    let server = bare();
    server.create(json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
        "metadata": {"namespace": "web", "name": "access"},
        "spec": {"tykOAS": {"configmapRef": {"name": "doc"}}, "targetRefs": [{"group": GROUP, "kind": "Gateway", "name": "public"}]},
    }));
    let story = Story::on(server, on()).await;
    story
        .says(
            "TykOasApiDefinition",
            "access",
            "Accepted Unknown/GatewayAPIUnavailable",
        )
        .await;
    install(&story.server);
    story
        .says("TykOasApiDefinition", "access", "Accepted False/DocumentInvalid")
        .await;
    // and again when it goes
    for (_, plural, ..) in BUNDLE {
        story
            .server
            .delete("CustomResourceDefinition", "", &format!("{plural}.{GROUP}"));
        story.server.unserve(GROUP, plural);
    }
    story
        .says(
            "TykOasApiDefinition",
            "access",
            "Accepted Unknown/GatewayAPIUnavailable",
        )
        .await;
}
