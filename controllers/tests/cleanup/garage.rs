//! `routewright cleanup --garage` on the in-process API server: whose finalizer goes, and what is left alone.

use crate::support::{OPERATOR, server};
use reconcile_kit::testing::{ApiServer, Fault, Matcher, Times, Verb};
use routewright::cli::cleanup::free;
use serde_json::{Value, json};

const OURS: &str = "routewright.dev/garage-bucket";
const THEIRS: &str = "example.org/theirs";

fn bucket(server: &ApiServer, namespace: &str, name: &str, finalizers: &[&str]) {
    server.create(json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": namespace, "name": name, "finalizers": finalizers},
        "spec": {"clusterRef": {"name": "garage"}},
    }));
}

fn finalizers(server: &ApiServer, namespace: &str, name: &str) -> Value {
    let bucket = server.get("GarageBucket", namespace, name).unwrap();
    bucket["metadata"].get("finalizers").cloned().unwrap_or(json!([]))
}

#[tokio::test(start_paused = true)]
async fn the_own_finalizer_goes_and_no_other() {
    // Given buckets with our finalizer, with another one, with both, with none
    let server = server(false);
    bucket(&server, "web", "ours", &[OURS]);
    bucket(&server, "web", "both", &[THEIRS, OURS]);
    bucket(&server, "web", "theirs", &[THEIRS]);
    bucket(&server, "storage", "elsewhere", &[OURS]);
    bucket(&server, "web", "free", &[]);
    let mark = server.mark();
    // When it runs for one namespace
    let freed = free(&server.client_as(OPERATOR), &["web"]).await.unwrap();
    // Then ours is gone there, the others stay, and nothing else was written
    assert_eq!(freed, 2);
    assert_eq!(finalizers(&server, "web", "ours"), json!([]));
    assert_eq!(finalizers(&server, "web", "both"), json!([THEIRS]));
    assert_eq!(finalizers(&server, "web", "theirs"), json!([THEIRS]));
    assert_eq!(finalizers(&server, "storage", "elsewhere"), json!([OURS]));
    assert_eq!(server.writes_since(mark).len(), 2);
    // When it runs for all, then the last one is free; and there is nothing left to do
    assert_eq!(free(&server.client_as(OPERATOR), &[]).await.unwrap(), 1);
    assert_eq!(finalizers(&server, "storage", "elsewhere"), json!([]));
    assert_eq!(free(&server.client_as(OPERATOR), &[]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_and_then_said() {
    let server = server(false);
    let client = server.client_as(OPERATOR);
    // Given more buckets than a page holds, one of which changes under it
    for n in 0..520 {
        bucket(&server, "web", &format!("b{n}"), &[OURS]);
    }
    let patch = Matcher::verb(Verb::MergePatch).name("b7");
    server.fault(patch, Fault::Conflict, Times::Count(1));
    // Then every one is freed, and each counts once
    assert_eq!(free(&client, &[]).await.unwrap(), 520);
    assert_eq!(finalizers(&server, "web", "b519"), json!([]));
    // Given an API server that does not answer well for long, then it gives up and says why
    bucket(&server, "web", "last", &[OURS]);
    let outage = server.fault(Matcher::reads().user(OPERATOR), Fault::Status(503), Times::Always);
    assert!(free(&client, &[]).await.is_err());
    server.unfault(outage);
    assert_eq!(free(&client, &[]).await.unwrap(), 1);
    // Given no such kind, then there is nothing to do
    server.unserve("garage.rajsingh.info", "garagebuckets");
    assert_eq!(free(&client, &[]).await.unwrap(), 0);
}
