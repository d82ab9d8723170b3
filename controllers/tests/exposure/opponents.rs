//! Other clients and our objects: what an adopted object brings along, what another client adds, a second release that owns
//! the same object; and API servers whose errors read differently each time.

use std::time::Duration;

use reconcile_kit::testing::{Fault, Matcher, Times};
use serde_json::{Value, json};

use super::support::*;

const HOUR: Duration = Duration::from_secs(3600);

/// An Ingress with a catch-all and TLS that another client made, adopted by the annotation.
async fn adopted() -> Story {
    adopted_into(by_ingress(), "old").await
}

async fn adopted_into(exposure: Value, secret: &str) -> Story {
    let server = server(true);
    let theirs = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": "web", "name": "blog-website", "annotations": {"example.org/theirs": "yes"}},
        "spec": {
            "defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}},
            "tls": [{"hosts": ["blog.site.test"], "secretName": secret}],
        },
    });
    server.create_as("restore-tool", theirs);
    put(&server, cluster());
    put(&server, bucket(exposure));
    let mut story = Story::on(server, &both()).await;
    story.settle().await;
    let uid = story.bucket()["metadata"]["uid"].clone();
    story.server.edit(
        "Ingress",
        "web",
        "blog-website",
        json!({"metadata": {"annotations": {"routewright.dev/adopt": uid}}}),
    );
    story.settle().await;
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
    story
}

#[tokio::test(start_paused = true)]
async fn an_adopted_ingress_has_no_catch_all_any_more() {
    let mut story = adopted().await;
    let spec = story.ingress().unwrap()["spec"].clone();
    assert_eq!(
        (&spec["defaultBackend"], &spec["tls"]),
        (&Value::Null, &Value::Null),
        "{}; {spec}",
        story.says()
    );
    let writes = about(&story.pass(HOUR).await, "ingresses");
    assert!(
        writes.iter().all(|l| l.contains("WATCH")),
        "it settles: {writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn tls_goes_from_an_adopted_ingress_with_the_bucket_s_own() {
    let mut story = adopted().await;
    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"tlsSecretName": "cert"}}}}));
    story.settle().await;
    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"tlsSecretName": null}}}}));
    story.settle().await;
    let spec = story.ingress().unwrap()["spec"].clone();
    assert_eq!(spec["tls"], Value::Null, "{}; {spec}", story.says());
}

#[tokio::test(start_paused = true)]
async fn tls_that_was_there_as_wanted_and_is_dropped_goes_from_an_adopted_ingress() {
    // what a restore brings back: the very TLS that the bucket names
    let exposure = json!({"ingress": {"ingressClassName": "public", "tlsSecretName": "cert"}});
    let mut story = adopted_into(exposure, "cert").await;
    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"tlsSecretName": null}}}}));
    story.settle().await;
    let spec = story.ingress().unwrap()["spec"].clone();
    assert_eq!(spec["tls"], Value::Null, "{}; {spec}", story.says());
}

#[tokio::test(start_paused = true)]
async fn a_catch_all_that_somebody_adds_to_ours_is_taken_away_by_one_request() {
    let mut story = Story::exposed(by_ingress()).await;
    let edit = json!({"spec": {"defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}}}});
    story.server.edit("Ingress", "web", "blog-website", edit);
    let asked = story.settle().await;
    let spec = story.ingress().unwrap()["spec"].clone();
    assert_eq!(
        spec["defaultBackend"],
        Value::Null,
        "{}; {asked:?}; {spec}",
        story.says()
    );
    assert_eq!(asked.len(), 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_adds_to_our_route_is_taken_away() {
    let mut story = Story::exposed(by_route()).await;
    let wanted = story.route().unwrap()["spec"].clone();
    for (part, value) in [
        ("hostnames", json!(["blog.site.test", "everything.test"])),
        ("parentRefs", json!([wanted["parentRefs"][0], {"name": "theirs"}])),
    ] {
        story
            .server
            .edit("HTTPRoute", "web", "blog-website", json!({"spec": {part: value}}));
        story.settle().await;
        assert_eq!(story.route().unwrap()["spec"], wanted, "{part}");
    }
    let mut rules = wanted["rules"].clone();
    rules[0]["timeouts"] = json!({"request": "1s"});
    story.server.edit(
        "HTTPRoute",
        "web",
        "blog-website",
        json!({"spec": {"rules": rules}}),
    );
    let asked = story.settle().await;
    assert_eq!(story.route().unwrap()["spec"], wanted, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn tries_that_fail_alike_are_one_status_write() {
    let server = server(true);
    put(&server, cluster());
    server.fault(
        Matcher::writes().resource("ingresses"),
        Fault::Status(500),
        Times::Always,
    );
    put(&server, bucket(by_ingress()));
    let mark = server.mark();
    let _operator = start_saying_the_time(&server);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let calls = server.calls_since(mark);
    let count = |resource: &str, sub: &str| {
        let of = calls.iter().filter(|c| {
            c.user == OPERATOR && c.resource == resource && c.subresource == sub && c.verb.is_write()
        });
        of.count()
    };
    let (tries, status) = (count("ingresses", ""), count("garagebuckets", "status"));
    assert!(
        status <= 1,
        "{tries} tries, {status} status writes in ten minutes; the last: {:?}",
        condition(&server, "blog")
    );
}

/// Every answer with an error names a port of its own, as a failing webhook does.
fn start_saying_the_time(server: &reconcile_kit::testing::ApiServer) -> routewright::app::App {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    let number = Arc::new(AtomicUsize::new(40_000));
    let inner = server.service_as(OPERATOR);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (number, mut inner) = (Arc::clone(&number), inner.clone());
        async move {
            let answer = tower::Service::call(&mut inner, request).await?;
            let answer = answer.map(axum::body::Body::new);
            if answer.status() != 500 {
                return Ok::<_, tower::BoxError>(answer);
            }
            let (mut head, body) = answer.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await?;
            let mut status: Value = serde_json::from_slice(&body)?;
            let n = number.fetch_add(1, Ordering::SeqCst);
            status["message"] = json!(format!(
                "Internal error occurred: failed calling webhook \"v.example.org\": read tcp 10.0.0.1:{n}->10.0.0.2:443: connection reset by peer"
            ));
            head.headers.remove(http::header::CONTENT_LENGTH);
            Ok(http::Response::from_parts(
                head,
                axum::body::Body::from(status.to_string()),
            ))
        }
    });
    let client = kube::Client::new(service, "default");
    routewright::app::App::start_with(
        client,
        reconcile_kit::runtime::leadership::Leadership::always(),
        reconcile_kit::runtime::Metrics::default(),
        &both(),
        routewright::app::Doors::default(),
    )
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_releases_write_one_ingress_ever_more_rarely() {
    let server = server(true);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let _one = start(&server, &both());
    tokio::time::sleep(Duration::from_secs(3)).await;
    // a second release: as the chart does it, the instance is the release's name
    let mut two = both();
    two.instance = "two".into();
    let mark = server.mark();
    let _two = start(&server, &two);
    tokio::time::sleep(HOUR).await;
    let calls = server.calls_since(mark);
    let asked = about(&calls, "ingresses");
    let asked: Vec<&String> = asked
        .iter()
        .filter(|l| !l.contains("WATCH") && !l.contains("LIST"))
        .collect();
    let writes = asked
        .iter()
        .filter(|l| l.contains("-> 200") && l.contains("APPLY"))
        .count();
    assert!(
        writes <= 45,
        "{writes} writes to one Ingress and {} requests about it in an hour; the last: {:#?}; {:?}",
        asked.len(),
        &asked[asked.len() - 6..],
        condition(&server, "blog")
    );
}
