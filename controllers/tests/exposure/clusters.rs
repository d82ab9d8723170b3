//! What a bucket refers to: its cluster, and the grants that let it refer to one of another namespace.

use std::time::Duration;

use reconcile_kit::testing::{Call, Verb};
use serde_json::{Value, json};

use super::support::*;

const APPLIED: [&str; 2] = [
    "APPLY httproutes blog-website -> 200",
    "APPLY garagebuckets/status blog -> 200",
];

fn change_cluster(story: &Story, change: Value) {
    story
        .server
        .edit("GarageCluster", "web", "garage", json!({"spec": change}));
}

fn backend(story: &Story) -> Value {
    story.route().unwrap()["spec"]["rules"][0]["backendRefs"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn what_changes_in_the_cluster_reaches_the_child() {
    let mut story = Story::exposed(by_route()).await;
    assert_eq!(
        (&backend(&story)["name"], &backend(&story)["port"]),
        (&json!("garage"), &json!(3902))
    );

    change_cluster(&story, json!({"webApi": {"rootDomain": "pages.test"}}));
    assert_eq!(story.settle().await, APPLIED);
    assert_eq!(
        story.route().unwrap()["spec"]["hostnames"],
        json!(["blog.pages.test"])
    );
    assert_eq!(story.block()["hostnames"], json!(["blog.pages.test"]));

    change_cluster(&story, json!({"webApi": {"bindPort": 8080}}));
    story.settle().await;
    assert_eq!(backend(&story)["port"], 8080);

    change_cluster(&story, json!({"gateway": {"replicas": 1}}));
    story.settle().await;
    assert_eq!(backend(&story)["name"], "garage-gateway");

    change_cluster(&story, json!({"storage": {"replicas": 3}}));
    assert_eq!(story.settle().await, NOTHING, "nothing that matters to us");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_root_domain_is_no_domain_is_named() {
    let mut story = Story::exposed(by_ingress()).await;
    let before = story.ingress();
    change_cluster(&story, json!({"webApi": {"rootDomain": "."}}));
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning ReconcileFailed"
        ]
    );
    assert!(
        story
            .says()
            .contains("GarageCluster web/garage: spec.webApi.rootDomain"),
        "{}",
        story.says()
    );
    assert_eq!(story.ingress(), before);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_kind_that_is_not_served_is_waited_for() {
    let server = server(false);
    server.delete(
        "CustomResourceDefinition",
        "",
        "garageclusters.garage.rajsingh.info",
    );
    put(&server, bucket(by_ingress()));
    let mut story = Story::on(server, &both()).await;
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal ReconcileFailed"
        ]
    );
    assert_eq!(
        story.says(),
        "False/ReconcileFailed: GarageCluster web/garage: the API server does not serve GarageCluster v1beta2: install its CRD"
    );
    let calls = story.pass(Duration::from_secs(600)).await;
    let count = about(&calls, "garageclusters").len();
    assert!(
        count <= 2,
        "{count} requests in 10 minutes for a kind that is not there"
    );

    let crd = routewright_crds::all()
        .unwrap()
        .into_iter()
        .find(|crd| crd.spec.names.kind == "GarageCluster");
    story.server.create(json!(crd.unwrap()));
    put(&story.server, cluster());
    eventually(&story.server, "the Ingress", || story.ingress()).await;
    assert_eq!(story.settle().await, INGRESS_CREATED);
}

// ---- grants ---------------------------------------------------------------------------------------------------------

fn grant(from: Value) -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
        "metadata": {"namespace": "storage", "name": "web"},
        "spec": {"from": [from], "to": [{"kind": "GarageCluster", "name": "garage"}]},
    })
}

fn by_name() -> Value {
    grant(json!({"kind": "GarageBucket", "namespace": "web"}))
}

fn by_label() -> Value {
    grant(json!({"kind": "GarageBucket", "namespaceSelector": {"matchLabels": {"team": "web"}}}))
}

/// A bucket in `web` whose cluster is in `storage`.
async fn abroad() -> Story {
    let mut there = cluster();
    there["metadata"]["namespace"] = json!("storage");
    let mut bucket = bucket(by_route());
    bucket["spec"]["clusterRef"]["namespace"] = json!("storage");
    Story::begin(true, &both(), [there, bucket]).await
}

fn watches_namespaces(calls: &[Call]) -> bool {
    calls
        .iter()
        .any(|call| call.user == OPERATOR && call.resource == "namespaces" && call.verb != Verb::Get)
}

#[tokio::test(start_paused = true)]
async fn without_a_grant_the_message_says_which_to_create_and_its_creation_is_enough() {
    let mut story = abroad().await;
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning ReconcileFailed"
        ]
    );
    assert_eq!(
        story.says(),
        "False/ReconcileFailed: GarageBuckets of namespace web may not use GarageCluster storage/garage: create a \
         GarageReferenceGrant in namespace storage with spec.from [{kind: GarageBucket, namespace: web}] and spec.to \
         [{kind: GarageCluster, name: garage}]"
    );
    story.server.create(by_name());
    let calls = story.calls().await;
    assert_eq!(lines(&calls), ROUTE_CREATED);
    assert!(!watches_namespaces(&calls), "a grant by name needs no labels");
    assert_eq!(backend(&story)["namespace"], "storage");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_goes_is_said_and_the_route_stays() {
    let mut story = abroad().await;
    story.server.create(by_name());
    story.settle().await;
    story.gateway_says("True");
    story.settle().await;
    let (route, block) = (story.route(), story.block());
    story.server.delete("GarageReferenceGrant", "storage", "web");
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning ReconcileFailed"
        ]
    );
    assert!(
        story
            .says()
            .contains("create a GarageReferenceGrant in namespace storage"),
        "{}",
        story.says()
    );
    assert_eq!((story.route(), story.block()), (route, block));
    story.server.create(by_name());
    assert_eq!(
        story.settle().await,
        ["APPLY garagebuckets/status blog -> 200", "EVENT Normal Exposed"]
    );
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_watched_only_while_a_grant_selects_by_label() {
    let mut story = abroad().await;
    assert!(!watches_namespaces(&story.calls().await));
    assert_eq!(story.server.open_watches("namespaces"), 0);

    story.server.create(by_label());
    let calls = story.calls().await;
    assert!(watches_namespaces(&calls), "{calls:#?}");
    assert!(
        calls
            .iter()
            .filter(|c| c.resource == "namespaces")
            .all(|c| matches!(c.verb, Verb::ListMetadata | Verb::WatchMetadata))
    );
    assert_eq!(story.server.open_watches("namespaces"), 1);
    assert!(
        story.says().contains("create a GarageReferenceGrant"),
        "the label is missing: {}",
        story.says()
    );

    story.server.edit(
        "Namespace",
        "",
        "web",
        json!({"metadata": {"labels": {"team": "web"}}}),
    );
    assert_eq!(story.settle().await, ROUTE_CREATED);
    story.server.edit(
        "Namespace",
        "",
        "web",
        json!({"metadata": {"labels": {"team": null}}}),
    );
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning ReconcileFailed"
        ]
    );

    story.server.delete("GarageReferenceGrant", "storage", "web");
    assert_eq!(story.settle().await, NOTHING);
    assert_eq!(story.server.open_watches("namespaces"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_may_not_be_used_tells_nothing_about_itself() {
    let mut story = abroad().await;
    let says = story.says();
    story.settle().await;
    story
        .server
        .set_status("GarageCluster", "storage", "garage", json!({"phase": "Pending"}));
    assert_eq!(story.settle().await, NOTHING);
    story.server.delete("GarageCluster", "storage", "garage");
    assert_eq!(story.settle().await, NOTHING);
    assert_eq!(story.says(), says);
}
