//! A route's life: created, changed, seen again by a new process. The exact writes on both sides.

use serde_json::json;

use super::bench::*;

const METADATA: &str = "PATCH(merge) httproutes r -> 200";
const STATUS: &str = "PATCH(merge) httproutes/status r -> 200";

#[tokio::test(start_paused = true)]
async fn a_finalizer_and_a_memory_come_before_the_first_write_and_status_after_tyk_confirmed() {
    // given a Gateway, when a route is created
    let mut bench = Bench::new().await;
    bench.server.create(route(&["/a", "/b"]));
    // then it is two writes to the route: what is remembered, and what Tyk confirmed
    assert_eq!(bench.settle().await, [METADATA, STATUS]);
    assert!(bench.has_finalizer());
    assert_eq!(bench.annotation(), bench.remembers(&["/a", "/b"]));
    assert_eq!(bench.tyk.ids(URL), ids(&["/a", "/b"]));
    assert_eq!(bench.accepted(), "True/Accepted: 2 APIs");
    assert_eq!(
        bench.said("ResolvedRefs", 0).split(':').next(),
        Some("True/ResolvedRefs")
    );
    assert_eq!(bench.events(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn the_apis_of_a_route_are_updated_when_the_route_changes() {
    let mut bench = Bench::with([route(&["/a", "/b"])]).await;
    // when a backend changes, then that API is written and no other, and the digest of what stands is another one
    bench.edit(json!({"spec": {"rules": [rule("/a"), {
        "matches": [{"path": {"type": "PathPrefix", "value": "/b"}}],
        "backendRefs": [{"name": "api", "port": 80}]}]}}));
    assert_eq!(bench.settle().await, [METADATA, STATUS]);
    assert_eq!(bench.annotation(), bench.remembers(&["/a", "/b"]));
    assert_eq!(bench.tyk.writes(), [format!("POST {}", id("/b"))]);
    // when a path is exchanged for another
    bench.edit(paths(&["/a", "/c"]));
    // then the new one is remembered before it is written, and the old one is forgotten when it is gone
    assert_eq!(bench.settle().await, [METADATA, METADATA, STATUS]);
    let (posted, deleted) = (format!("POST {}", id("/c")), format!("DELETE {}", id("/b")));
    assert_eq!(bench.tyk.writes(), [posted, deleted]);
    assert_eq!(bench.annotation(), bench.remembers(&["/a", "/c"]));
    // when the order of rules changes, then nothing does but the generation in status
    bench.edit(paths(&["/c", "/a"]));
    assert_eq!(bench.settle().await, [STATUS]);
    assert_eq!(bench.tyk.writes(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_else_a_route_depends_on_updates_its_apis_too() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    // when the Service goes
    bench.server.delete("Service", "shop", "web");
    bench.settle().await;
    // then the API stands with the unresolved backend, and ResolvedRefs says why
    assert_eq!(bench.tyk.writes(), [format!("POST {}", id("/a"))]);
    let document = bench.tyk.at(URL)[&id("/a")].to_string();
    assert!(
        document.contains("http://unresolved.backend.invalid"),
        "{document}"
    );
    assert!(bench.said("ResolvedRefs", 0).starts_with("False/BackendNotFound"));
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_nothing_changed_writes_and_asks_nothing() {
    let mut bench = Bench::with([route(&["/a", "/b"]), route_named("s", "b.example.com", &["/"])]).await;
    for _ in 0..3 {
        bench.restart();
        assert_eq!(bench.settle().await, NOTHING);
        assert_eq!((bench.tyk.writes(), bench.tyk.reads()), (vec![], 0));
    }
    assert_eq!(bench.events(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn idle_costs_nothing_on_either_side() {
    let mut bench = Bench::with([route(&["/a", "/b"])]).await;
    for _ in 0..5 {
        assert_eq!(bench.look("shop", "r").await, reconcile_kit::Outcome::Done);
    }
    assert_eq!(bench.settle().await, NOTHING);
    assert_eq!((bench.tyk.writes(), bench.tyk.reads()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_no_process_ran_is_written_by_the_next() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    // given an edit that nobody has seen yet, when a new process begins
    bench.edit(json!({"spec": {"rules": [{
        "matches": [{"path": {"type": "PathPrefix", "value": "/a"}}],
        "backendRefs": [{"name": "api", "port": 80}]}]}}));
    bench.restart();
    bench.settle().await;
    assert_eq!(bench.tyk.writes(), [format!("POST {}", id("/a"))]);
}

#[tokio::test(start_paused = true)]
async fn a_route_of_another_class_is_left_alone() {
    let mut bench = Bench::new().await;
    let mut foreign = class("theirs", "main");
    foreign["spec"]["controllerName"] = json!("example.org/theirs");
    bench.server.create(foreign);
    bench.server.create(gateway("far", "theirs"));
    let mut object = route(&["/a"]);
    object["spec"]["parentRefs"] = json!([{"name": "far", "namespace": "infra"}]);
    bench.server.create(object);
    assert_eq!(bench.settle().await, NOTHING);
    assert!(!bench.has_finalizer());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_route_gets_no_finalizer_because_nothing_hangs_on_it() {
    let mut bench = Bench::new().await;
    let mut object = route(&["/a"]);
    object["spec"]["parentRefs"][0]["sectionName"] = json!("absent");
    bench.server.create(object);
    assert_eq!(bench.settle().await, [STATUS]);
    assert!(
        bench.accepted().starts_with("False/NoMatchingParent"),
        "{}",
        bench.accepted()
    );
    assert!(!bench.has_finalizer());
}

#[tokio::test(start_paused = true)]
async fn a_route_whose_parents_are_not_ours_any_more_is_let_go_without_a_trace() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    // given somebody else's entry beside ours
    let theirs = json!({"controllerName": "example.org/theirs", "parentRef": {"name": "far"}, "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let mut status = bench.route().unwrap()["status"].clone();
    status["parents"]
        .as_array_mut()
        .unwrap()
        .insert(0, theirs.clone());
    bench.server.set_status("HTTPRoute", "shop", "r", status);
    // when it names another Gateway
    bench.edit(json!({"spec": {"parentRefs": [{"name": "far", "namespace": "infra"}]}}));
    bench.settle().await;
    // then APIs, entry, finalizer and annotation are gone, and the other entry is what it was
    assert_eq!(bench.tyk.ids(URL), NOTHING);
    let left = bench.route().unwrap();
    assert_eq!(left["status"]["parents"].as_array().unwrap().len(), 1);
    assert_eq!(
        left["status"]["parents"][0]["controllerName"],
        "example.org/theirs"
    );
    assert_eq!((bench.has_finalizer(), bench.annotation()), (false, None));
}
