//! Stories of leadership. The lease protocol reads the wall clock, so these run in real time with a short lease.

use std::{sync::Arc, time::Duration};

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    client::{Body, ClientBuilder},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    ErrorClass, ReconcileError,
    runtime::{
        Leadership, LeaseConfig, Metrics, WriteGuard,
        leadership::{LeaseClient, RenewalLayer},
    },
    testing::{ApiServer, Fault, Matcher, Times},
};

fn lease_client(server: &ApiServer, user: &'static str) -> LeaseClient {
    let server = server.clone();
    Arc::new(move |layer: &RenewalLayer| {
        Ok(ClientBuilder::new(server.service_as(user), "default")
            .with_layer(layer)
            .build())
    })
}

fn compete(server: &ApiServer, user: &'static str) -> Leadership {
    compete_for(server, user, 5, Duration::from_millis(3_500))
}

/// For a lease of so many seconds, renewed each second.
fn compete_for(server: &ApiServer, user: &'static str, duration: u64, fence: Duration) -> Leadership {
    let config = LeaseConfig {
        duration,
        grace: duration - 1,
        fence,
        ..LeaseConfig::new("default", "lease", user, "test")
    };
    Leadership::start(config, lease_client(server, user), &Metrics::default())
}

/// Waits for `wanted`, and all the while checks that no two lead at once.
async fn until_one_leads(what: &str, all: &[&Leadership], wanted: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !wanted() {
        let leaders = all.iter().filter(|l| l.is_leader()).count();
        assert!(leaders <= 1, "{leaders} leaders at once");
        assert!(Instant::now() < deadline, "did not come: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_leads_and_a_released_lease_is_taken_over() {
    let server = ApiServer::new();
    // (a lease that a machine which stands still for some seconds does not lose)
    let compete = |user| compete_for(&server, user, 30, Duration::from_secs(25));
    let a = compete("a");
    let mut changed = a.changed();
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    assert!(*changed.borrow_and_update());
    assert!(a.deadline().is_some_and(|d| d > Instant::now()));
    let b = compete("b");
    // steady: over several renewals nobody else leads and the fence never closes
    let steady = Instant::now() + Duration::from_secs(4);
    while Instant::now() < steady {
        assert!(a.is_leader() && !b.is_leader());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    a.release().await;
    assert!(!a.is_leader());
    assert!(!*changed.borrow_and_update());
    let lease = server.get("Lease", "default", "lease").unwrap();
    assert!(lease["spec"]["holderIdentity"].as_str() != Some("a"), "{lease}");
    until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_stops_before_the_next_one_begins() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let b = compete(&server, "b");
    let guard = WriteGuard::new(a.clone());
    guard.check().unwrap();
    let cut = server.fault(Matcher::any().user("a"), Fault::ConnectionError, Times::Always);
    let mut changed = a.changed();
    until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
    assert!(!*changed.borrow_and_update(), "the loss was published");
    assert_eq!(guard.check().unwrap_err().class, ErrorClass::Shutdown);
    // back again: a follower, not a second leader
    server.unfault(cut);
    let quiet = Instant::now() + Duration::from_secs(3);
    until_one_leads("quiet", &[&a, &b], || Instant::now() > quiet).await;
    assert!(b.is_leader() && !a.is_leader());
    // and it still competes
    b.release().await;
    until_one_leads("a leads again", &[&a, &b], || a.is_leader()).await;
}

#[tokio::test]
async fn a_deleted_lease_is_made_anew() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    server.delete("Lease", "default", "lease");
    until_one_leads("the fence", &[&a], || !a.is_leader()).await;
    until_one_leads("a leads again", &[&a], || a.is_leader()).await;
    assert!(server.get("Lease", "default", "lease").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_right_it_does_not_lead_and_does_not_hammer() {
    let server = ApiServer::new();
    server.fault(Matcher::any(), Fault::Status(403), Times::Always);
    let a = compete(&server, "a");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!a.is_leader());
    let asked = server.calls().len();
    assert!((50..=300).contains(&asked), "{asked} requests in 10 minutes");
    a.release().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_no_write_starts_but_reads_pass() {
    let server = ApiServer::new();
    server.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": "default" } }));
    for (leadership, writes) in [(Leadership::always(), true), (compete_never(), false)] {
        let client: Client = ClientBuilder::new(server.service_as("op"), "default")
            .with_layer(&WriteGuard::new(leadership).layer())
            .build();
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        api.get("c").await.unwrap();
        let mark = server.mark();
        let patch = json!({ "metadata": { "labels": { "a": "b" } } });
        let patched = api
            .patch("c", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        let deleted = api.delete("nothing", &Default::default()).await;
        assert_eq!(server.writes_since(mark).len(), if writes { 2 } else { 0 });
        assert_eq!(patched.is_ok(), writes);
        if !writes {
            for error in [patched.unwrap_err(), deleted.unwrap_err()] {
                assert_eq!(
                    ReconcileError::from_kube("write", &error).class,
                    ErrorClass::Shutdown
                );
            }
        }
    }
}

/// Competes against an API server that is not there.
fn compete_never() -> Leadership {
    let server = ApiServer::new();
    server.fault(Matcher::any(), Fault::ConnectionError, Times::Always);
    compete(&server, "nobody")
}

#[tokio::test(start_paused = true)]
async fn only_a_renewal_that_shows_us_as_the_holder_counts() {
    let answer = |holder: &'static str, code: u16| {
        tower::service_fn(move |_: Request<Body>| async move {
            let lease = json!({ "spec": { "holderIdentity": holder } }).to_string();
            Ok::<_, tower::BoxError>(
                http::Response::builder()
                    .status(code)
                    .body(Body::from(lease.into_bytes()))?,
            )
        })
    };
    for (method, holder, code, counts) in [
        ("PATCH", "us", 200, true),
        ("PATCH", "them", 200, false),
        ("PATCH", "us", 409, false),
        ("GET", "us", 200, false),
    ] {
        let (layer, renewed) = RenewalLayer::for_test("us");
        let mut service = tower::Layer::layer(&layer, answer(holder, code));
        let request = Request::builder()
            .method(method)
            .uri("/lease")
            .body(Body::empty())
            .unwrap();
        tower::Service::call(&mut service, request).await.unwrap();
        assert_eq!(renewed(), counts, "{method} {holder} {code}");
    }
}
