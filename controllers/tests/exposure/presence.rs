//! Kinds that come and go while the operator runs, and objects that do not fit their type.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::*;

const CRD: &str = "httproutes.gateway.networking.k8s.io";

#[tokio::test(start_paused = true)]
async fn a_gateway_api_that_appears_is_used_within_seconds_and_without_a_restart() {
    let mut story = Story::begin(false, &both(), [cluster(), bucket(by_route())]).await;
    story.settle().await;
    let waiting = story.pass(Duration::from_secs(600)).await;
    assert!(
        about(&waiting, "httproutes").len() <= 2,
        "{:#?}",
        about(&waiting, "httproutes")
    );
    assert!(waiting.len() <= 60, "{} requests in 10 minutes", waiting.len());

    install_gateway_api(&story.server);
    let installed = Instant::now();
    eventually(&story.server, "the route", || story.route()).await;
    assert!(
        installed.elapsed() < Duration::from_secs(5),
        "{:?}",
        installed.elapsed()
    );
    assert_eq!(story.settle().await, ROUTE_CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_api_that_goes_flips_the_condition_without_a_storm_and_may_come_back() {
    let mut story = Story::exposed(by_route()).await;
    story.gateway_says("True");
    story.settle().await;

    story.server.delete("CustomResourceDefinition", "", CRD);
    story.server.unserve("gateway.networking.k8s.io", "httproutes");
    reason(&story.server, "blog", "GatewayAPIUnavailable").await;
    assert_eq!(
        story.block(),
        json!({"type": "HTTPRoute", "name": "blog-website"})
    );
    let writes: Vec<String> = story
        .settle()
        .await
        .into_iter()
        .filter(|line| line.contains("httproutes"))
        .collect();
    assert!(
        writes.len() <= 2,
        "a creation may still have been tried: {writes:#?}"
    );
    let calls = story.pass(Duration::from_secs(600)).await;
    assert!(
        about(&calls, "httproutes").len() <= 2,
        "{:#?}",
        about(&calls, "httproutes")
    );
    assert!(calls.len() <= 60, "{} requests in 10 minutes", calls.len());
    let routes = story
        .operator
        .as_ref()
        .unwrap()
        .hub
        .status()
        .into_iter()
        .find(|w| w.kind.starts_with("HTTPRoute"))
        .unwrap();
    assert_eq!(
        (routes.running, routes.objects),
        (false, 0),
        "its store is dropped"
    );

    install_gateway_api(&story.server);
    eventually(&story.server, "the route", || story.route()).await;
    story.settle().await;
    assert!(story.says().starts_with("False/NotReady"), "{}", story.says());
}

#[tokio::test(start_paused = true)]
async fn a_switch_away_from_a_kind_that_is_not_served_leaves_nothing_to_say() {
    let mut story = Story::exposed(by_route()).await;
    story.server.delete("CustomResourceDefinition", "", CRD);
    story.server.unserve("gateway.networking.k8s.io", "httproutes");
    reason(&story.server, "blog", "GatewayAPIUnavailable").await;
    story.settle().await;
    story.edit(json!({"spec": {"websiteExposure": {"gateway": null, "ingress": {}}}}));
    assert_eq!(story.settle().await, INGRESS_CREATED);
    let events = story.events();
    assert!(
        !events.iter().any(|e| e.contains("LeftBehind")),
        "the route went with its kind: {events:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_of_the_crds_in_place_loses_nothing() {
    let mut story = Story::exposed(by_route()).await;
    story.gateway_says("True");
    story.settle().await;
    let before = story.route().unwrap()["metadata"]["uid"].clone();
    story.server.edit(
        "CustomResourceDefinition",
        "",
        CRD,
        json!({"metadata": {"annotations": {"bundle-version": "v2"}}}),
    );
    story.server.end_watches("httproutes");
    // While the watch is away somebody edits the route.
    story.server.edit(
        "HTTPRoute",
        "web",
        "blog-website",
        json!({"spec": {"hostnames": ["evil.example.net"]}}),
    );
    story.server.compact();
    let calls = story.settle().await;
    assert!(
        calls.contains(&"APPLY httproutes blog-website -> 200".to_owned()),
        "{calls:#?}"
    );
    let route = story.route().unwrap();
    assert_eq!(
        (&route["spec"]["hostnames"], &route["metadata"]["uid"]),
        (&json!(["blog.site.test"]), &before)
    );
    assert!(!story.events().iter().any(|e| e.contains("GatewayAPIUnavailable")));
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_while_the_watch_was_away_comes_back() {
    for exposure in [by_ingress(), by_route()] {
        let kind = if exposure.get("ingress").is_some() {
            "Ingress"
        } else {
            "HTTPRoute"
        };
        let mut story = Story::exposed(exposure).await;
        story.server.cut_watches("*");
        story.server.delete(kind, "web", "blog-website");
        story.server.compact();
        story.settle().await;
        assert!(story.server.get(kind, "web", "blog-website").is_some(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_object_that_does_not_fit_its_type_hurts_nobody_else() {
    // A schema without rules, as an older or a foreign CRD may have.
    let server = reconcile_kit::testing::ApiServer::new();
    server.namespace("web").namespace("storage");
    for crd in routewright_crds::all().unwrap() {
        let mut crd = json!(crd);
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"] =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        }
        server.create(crd);
    }
    install_gateway_api(&server);
    put(&server, cluster());
    put(&server, bucket(by_route()));
    let mut odd = bucket(by_route());
    odd["metadata"]["name"] = json!("odd");
    odd["spec"]["clusterRef"] = json!(["not", "a", "reference"]);
    server.create(odd);
    let mut odd = cluster();
    odd["metadata"]["name"] = json!("odd");
    odd["spec"]["webApi"] = json!("yes");
    server.create(odd);
    let mut story = Story::on(server, &both()).await;
    assert_eq!(story.settle().await, ROUTE_CREATED);
    // A route of ours that says something unheard of.
    let mut other = bucket(by_route());
    other["metadata"]["name"] = json!("other");
    put(&story.server, other);
    story.settle().await;
    story.server.set_status(
        "HTTPRoute",
        "web",
        "other-website",
        json!({"parents": [{"parentRef": 7, "conditions": "all fine"}]}),
    );
    story.gateway_says("True");
    story.settle().await;
    assert_eq!(story.says(), "True/Exposed: HTTPRoute web/blog-website");
    let (_, reason, text) = condition(&story.server, "other").unwrap();
    assert_eq!(reason, "NotReady", "{text}");
    // It is mended, and looked at.
    let mut mended = story.server.get("GarageBucket", "web", "odd").unwrap();
    mended["spec"]["clusterRef"] = json!({"name": "garage"});
    story.server.update(mended);
    story.server.set_status(
        "GarageBucket",
        "web",
        "odd",
        json!({"bucketId": "b2", "globalAlias": "odd"}),
    );
    eventually(&story.server, "its route", || {
        story.server.get("HTTPRoute", "web", "odd-website")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_its_own_crds_it_waits_says_so_and_starts_when_they_come() {
    let server = reconcile_kit::testing::ApiServer::new();
    server.namespace("web");
    let mut story = Story::on(server, &both()).await;
    assert_eq!(story.settle().await, NOTHING);
    let readyz = story.readyz().await;
    assert!(
        readyz.contains("WaitingForApi") && readyz.contains("GarageBucket"),
        "{readyz}"
    );
    let calls = story.pass(Duration::from_secs(600)).await;
    assert!(calls.len() <= 100, "{} requests in 10 minutes", calls.len());
    for crd in routewright_crds::all().unwrap() {
        story.server.create(json!(crd));
    }
    put(&story.server, cluster());
    put(&story.server, bucket(by_ingress()));
    eventually(&story.server, "the Ingress", || story.ingress()).await;
    let says = reason(&story.server, "blog", "Exposed").await;
    assert!(says.starts_with("Ingress web/blog-website"), "{says}");
    let readyz = story.readyz().await;
    assert!(!readyz.contains("WaitingForApi"), "{readyz}");
    assert_eq!(story.block()["addresses"], Value::Null);
}
