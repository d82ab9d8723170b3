//! Stories of presence, on the in-process API server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};

use super::until;
use crate::{
    ApiKind,
    runtime::{ApiState, Metrics, Origin, Presence, WatchHub, lock},
    testing::{ApiServer, Call, Fault, Mark, Matcher, Times, Verb},
};

const ROUTE: ApiKind = ApiKind::new("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");
const GATEWAY: ApiKind = ApiKind::new("gateway.networking.k8s.io", "v1", "Gateway", "gateways");
const INGRESS: ApiKind = ApiKind::new("networking.k8s.io", "v1", "Ingress", "ingresses");

fn crd(kind: &ApiKind, versions: &[(&str, bool)]) -> Value {
    let versions: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(n, (name, served))| {
            json!({
                "name": name, "served": served, "storage": n == 0,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", kind.plural, kind.group) },
        "spec": {
            "group": kind.group, "scope": "Namespaced", "versions": versions,
            "names": { "plural": kind.plural, "singular": kind.kind.to_lowercase(), "kind": kind.kind,
                       "listKind": format!("{}List", kind.kind) },
        },
    })
}

fn watch(server: &ApiServer, kinds: &[(ApiKind, Origin)]) -> (Presence, WatchHub) {
    let hub = WatchHub::new(server.client(), Metrics::default());
    let presence = Presence::start(&server.client(), &hub, &Metrics::default(), kinds.iter().copied());
    (presence, hub)
}

fn discoveries(server: &ApiServer, since: Mark) -> Vec<Call> {
    let mut calls = server.calls_since(since);
    calls.retain(|c| c.verb == Verb::Discovery);
    calls
}

/// Every state that was ever published.
fn history(presence: &Presence, kind: ApiKind) -> Arc<Mutex<Vec<ApiState>>> {
    let seen = Arc::new(Mutex::new(vec![presence.get(&kind)]));
    let (presence, keep, mut changed) = (presence.clone(), Arc::clone(&seen), presence.changed());
    tokio::spawn(async move {
        while changed.changed().await.is_ok() {
            let state = presence.get(&kind);
            let mut seen = lock(&keep);
            if seen.last() != Some(&state) {
                seen.push(state);
            }
        }
    });
    seen
}

#[tokio::test(start_paused = true)]
async fn a_kind_appears_and_vanishes_with_its_crd() {
    let server = ApiServer::new();
    let (presence, _hub) = watch(&server, &[(ROUTE, Origin::Crd), (INGRESS, Origin::Builtin)]);
    until("an answer", || presence.get(&ROUTE) == ApiState::Absent).await;
    until("the built-in one", || presence.get(&INGRESS) == ApiState::Served).await;
    let begun = tokio::time::Instant::now();
    server.create(crd(&ROUTE, &[("v1", true)]));
    until("appears", || presence.get(&ROUTE) == ApiState::Served).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    server.delete(
        "CustomResourceDefinition",
        "",
        "httproutes.gateway.networking.k8s.io",
    );
    until("vanishes", || presence.get(&ROUTE) == ApiState::Absent).await;
    server.create(crd(&ROUTE, &[("v1", true)]));
    until("appears again", || presence.get(&ROUTE) == ApiState::Served).await;
    assert_eq!(presence.get(&INGRESS), ApiState::Served);
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_asks_nothing_but_watches() {
    let server = ApiServer::new();
    server.create(crd(&ROUTE, &[("v1", true)]));
    let kinds = [
        (ROUTE, Origin::Crd),
        (GATEWAY, Origin::Crd),
        (INGRESS, Origin::Builtin),
    ];
    let (presence, _hub) = watch(&server, &kinds);
    until("answers", || presence.get(&GATEWAY) == ApiState::Absent).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mark = server.mark();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let asked = server.calls_since(mark);
    assert!(
        asked.iter().all(|c| matches!(c.verb, Verb::WatchMetadata)),
        "{asked:#?}"
    );
    assert!(presence.all_served(&[ROUTE, INGRESS]));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_served_is_absent() {
    let server = ApiServer::new();
    server.create(crd(&ROUTE, &[("v1", true), ("v1beta1", true)]));
    let (presence, _hub) = watch(&server, &[(ROUTE, Origin::Crd)]);
    until("served", || presence.get(&ROUTE) == ApiState::Served).await;
    server.update(crd(&ROUTE, &[("v1", false), ("v1beta1", true)]));
    until("switched off", || presence.get(&ROUTE) == ApiState::Absent).await;
    server.update(crd(&ROUTE, &[("v1", true), ("v1beta1", true)]));
    until("switched on", || presence.get(&ROUTE) == ApiState::Served).await;
}

#[tokio::test(start_paused = true)]
async fn errors_ends_and_storms_never_say_absent_and_are_bounded() {
    let server = ApiServer::new();
    server.create(crd(&ROUTE, &[("v1", true)]));
    let (presence, _hub) = watch(&server, &[(ROUTE, Origin::Crd)]);
    until("served", || presence.get(&ROUTE) == ApiState::Served).await;
    let seen = history(&presence, ROUTE);
    for fault in [
        Fault::ConnectionError,
        Fault::Status(503),
        Fault::Status(403),
        Fault::Hang,
        Fault::WatchEnds,
        Fault::WatchExpired,
    ] {
        let mark = server.mark();
        let id = server.fault(Matcher::any(), fault.clone(), Times::Always);
        server.cut_watches("customresourcedefinitions");
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = server.calls_since(mark).len();
        assert!(asked < 150, "{fault:?}: {asked} requests in 10 minutes");
        server.unfault(id);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(*lock(&seen), [ApiState::Served]);
    // and it still notices
    server.delete(
        "CustomResourceDefinition",
        "",
        "httproutes.gateway.networking.k8s.io",
    );
    until("vanishes", || presence.get(&ROUTE) == ApiState::Absent).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_crds_discovery_is_polled() {
    let server = ApiServer::new();
    let hub = WatchHub::new(server.client_as("op"), Metrics::default());
    let denied = [
        server.deny("op", "list", "customresourcedefinitions"),
        server.deny("op", "watch", "customresourcedefinitions"),
    ];
    let presence = Presence::start(
        &server.client_as("op"),
        &hub,
        &Metrics::default(),
        [(ROUTE, Origin::Crd)],
    );
    until("an answer", || presence.get(&ROUTE) == ApiState::Absent).await;
    server.create(crd(&ROUTE, &[("v1", true)]));
    until("appears", || presence.get(&ROUTE) == ApiState::Served).await;
    server.delete(
        "CustomResourceDefinition",
        "",
        "httproutes.gateway.networking.k8s.io",
    );
    until("vanishes", || presence.get(&ROUTE) == ApiState::Absent).await;
    // the missing right is visible where all watches are
    assert!(
        hub.status()[0]
            .problem
            .as_ref()
            .unwrap()
            .message
            .contains("forbidden")
    );
    let mark = server.mark();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let polls = discoveries(&server, mark).len();
    assert!((15..=26).contains(&polls), "{polls} polls in 10 minutes");
    // granted: back to watching
    for id in denied {
        server.undeny(id);
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let mark = server.mark();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(discoveries(&server, mark).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_flap_is_not_told_but_a_real_end_is() {
    let server = ApiServer::new();
    server.create(crd(&ROUTE, &[("v1", true)]));
    let (presence, _hub) = watch(&server, &[(ROUTE, Origin::Crd)]);
    until("served", || presence.get(&ROUTE) == ApiState::Served).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let seen = history(&presence, ROUTE);
    server.delete(
        "CustomResourceDefinition",
        "",
        "httproutes.gateway.networking.k8s.io",
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.create(crd(&ROUTE, &[("v1", true)]));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*lock(&seen), [ApiState::Served]);
}

#[tokio::test(start_paused = true)]
async fn discovery_that_fails_is_one_warning_and_its_end_one_line() {
    let server = ApiServer::new();
    let log = super::Log::default();
    let _logging = log.start();
    let broken = server.fault(Matcher::verb(Verb::Discovery), Fault::Status(503), Times::Always);
    let (presence, _hub) = watch(&server, &[(INGRESS, Origin::Builtin)]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let warned = log.lines("discovery fails");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("networking.k8s.io"), "{warned:?}");
    server.unfault(broken);
    until("served", || presence.get(&INGRESS) == ApiState::Served).await;
    assert_eq!(log.lines("discovery works again").len(), 1);
}
