//! Stories of website exposure, told by the whole operator on the in-process API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use serde_json::json;
use support::{
    both, bucket, by_ingress, by_route, cluster, eventually, lines, put, quiet, reason, server, start,
};

#[tokio::test(start_paused = true)]
async fn an_ingress_appears_when_it_is_asked_for_and_goes_when_it_is_not() {
    let server = server(false);
    put(&server, cluster());
    put(&server, bucket(json!(null)));
    let operator = start(&server, &both());
    let mark = server.mark();
    quiet(&server, mark).await;

    let mark = server.mark();
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": by_ingress()}}),
    );
    assert_eq!(
        reason(&server, "blog", "Exposed").await,
        "Ingress web/blog-website"
    );
    let ingress = server.get("Ingress", "web", "blog-website").unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "blog.site.test");
    assert_eq!(
        ingress["metadata"]["labels"]["app.kubernetes.io/component"],
        "ingress-exposure"
    );
    let calls = quiet(&server, mark).await;
    assert_eq!(calls.len(), 3, "one apply, one status, one event: {calls:#?}");

    let mark = server.mark();
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": null}}),
    );
    eventually(&server, "removal", || {
        server
            .get("Ingress", "web", "blog-website")
            .is_none()
            .then_some(())
    })
    .await;
    eventually(&server, "no condition", || {
        support::condition(&server, "blog").is_none().then_some(())
    })
    .await;
    let calls = quiet(&server, mark).await;
    assert_eq!(calls.len(), 3, "one delete, one status, one event: {calls:#?}");
    operator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_waits_for_the_gateway_api_and_then_for_its_gateway() {
    let server = server(false);
    put(&server, cluster());
    put(&server, bucket(by_route()));
    let operator = start(&server, &both());
    reason(&server, "blog", "GatewayAPIUnavailable").await;

    support::install_gateway_api(&server);
    let message = reason(&server, "blog", "NotReady").await;
    assert!(message.contains("Gateway web/public"), "{message}");
    let route = server.get("HTTPRoute", "web", "blog-website").unwrap();
    assert_eq!(route["spec"]["hostnames"], json!(["blog.site.test"]));

    let generation = route["metadata"]["generation"].clone();
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "Fine", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    server.set_status(
        "HTTPRoute",
        "web",
        "blog-website",
        json!({"parents": [{
            "controllerName": "example.org/gateway", "parentRef": {"name": "public"},
            "conditions": [condition("Accepted"), condition("ResolvedRefs")],
        }]}),
    );
    assert_eq!(
        reason(&server, "blog", "Exposed").await,
        "HTTPRoute web/blog-website"
    );
    operator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_nothing_changed_writes_nothing_and_reads_nothing() {
    let server = server(true);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let operator = start(&server, &both());
    reason(&server, "blog", "Exposed").await;
    let mark = server.mark();
    quiet(&server, mark).await;
    operator.shutdown().await;

    let mark = server.mark();
    let operator = start(&server, &both());
    assert_eq!(quiet(&server, mark).await, [""; 0]);
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert_eq!(lines(&server.calls_since(mark)), [""; 0], "an hour passes");
    operator.shutdown().await;
}
