//! Somebody else writes the same routes: status entries, finalizers, annotations.

use std::time::Duration;

use reconcile_kit::testing::{Fault, Matcher, Times};
use serde_json::{Value, json};

use super::bench::*;

fn theirs(n: i64) -> Value {
    json!({"controllerName": "example.org/theirs", "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "far"},
           "conditions": [{"type": "Odd", "status": "Unknown", "reason": "Odd", "message": "kept",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"},
                          {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": n,
                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

/// As another controller writes it: reads, puts its own entry in, and writes the list.
fn they_write(bench: &Bench, n: i64) {
    let mut status = bench.route().unwrap()["status"].clone();
    if !status.is_object() {
        status = json!({"parents": []});
    }
    let list = status["parents"].as_array_mut().unwrap();
    list.retain(|entry| entry["controllerName"] != "example.org/theirs");
    list.push(theirs(n));
    bench.server.set_status("HTTPRoute", "shop", "r", status);
}

fn entry(bench: &Bench, controller: &str) -> Option<Value> {
    let route = bench.route()?;
    let list = route["status"]["parents"].as_array()?;
    list.iter().find(|e| e["controllerName"] == controller).cloned()
}

#[tokio::test(start_paused = true)]
async fn nobody_loses_an_entry_and_nobody_writes_in_a_loop() {
    let mut bench = Bench::new().await;
    bench.server.create(route(&["/a"]));
    they_write(&bench, 1);
    bench.settle().await;
    for n in 2..12 {
        // given writes of both, each after the other's
        they_write(&bench, n);
        assert_eq!(bench.settle().await, NOTHING, "their write is no reason for ours");
        bench.edit(paths(&[if n % 2 == 0 { "/b" } else { "/a" }]));
        let ours = bench.settle().await;
        let writes = ours.iter().filter(|line| line.contains("/status")).count();
        assert_eq!(writes, 1, "{ours:?}");
        assert_eq!(
            entry(&bench, "example.org/theirs"),
            Some(theirs(n)),
            "to the last key"
        );
        assert!(entry(&bench, "routewright.dev/tyk").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn who_drops_our_entry_gets_it_back_once_per_time() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    for n in 1..5 {
        bench
            .server
            .set_status("HTTPRoute", "shop", "r", json!({"parents": [theirs(n)]}));
        if n > 2 {
            // over and over: it waits, 1 s and then twice as long each time
            assert_eq!(bench.settle().await, NOTHING);
            tokio::time::sleep(Duration::from_secs(n.unsigned_abs() - 2)).await;
        }
        assert_eq!(bench.settle().await, ["PATCH(merge) httproutes/status r -> 200"]);
        assert!(entry(&bench, "routewright.dev/tyk").is_some());
        assert_eq!(entry(&bench, "example.org/theirs"), Some(theirs(n)));
    }
    assert_eq!(bench.tyk.writes(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_somebody_else_in_between_is_a_conflict_and_not_a_loss() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    bench.edit(paths(&["/b"]));
    // given a status that somebody writes between our look and our write
    let mine = Matcher::writes().user(OPERATOR).resource("httproutes/status");
    bench.server.fault(mine, Fault::Conflict, Times::Count(1));
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    assert_eq!(bench.tyk.ids(URL), ids(&["/b"]));
}

#[tokio::test(start_paused = true)]
async fn installations_with_names_of_their_own_share_a_route_and_neither_touches_the_others_part() {
    const BESIDE: &str = "example.org/beside";
    let mut bench = Bench::with([route(&["/a"])]).await;
    let (alone, served) = (bench.route(), bench.tyk.at(URL));
    // given another installation, with a class of its own, a Gateway and a Tyk
    let mut class = class("beside", "second");
    class["spec"]["controllerName"] = json!(BESIDE);
    for object in [context("second", OTHER), class, gateway("far", "beside")] {
        bench.server.create(object);
    }
    // when it sees a route of the first one alone, then it has nothing to do with it
    bench.become_(BESIDE);
    assert_eq!(bench.settle().await, NOTHING);
    assert_eq!(bench.tyk.writes(), NOTHING);
    assert_eq!((bench.route(), bench.tyk.at(URL)), (alone, served.clone()));
    // when the route has a parent of each, then both serve it
    let both = json!({"spec": {"parentRefs": [{"name": "edge", "namespace": "infra"}, {"name": "far", "namespace": "infra"}]}});
    bench.edit(both);
    bench.settle().await;
    assert_eq!(
        (bench.tyk.at(URL), bench.tyk.ids(OTHER).len()),
        (served.clone(), 1)
    );
    bench.become_("routewright.dev/tyk");
    bench.settle().await;
    let names = |bench: &Bench| {
        let route = bench.route().unwrap();
        let finalizers = route["metadata"]["finalizers"].as_array().unwrap().len();
        let annotations = route["metadata"]["annotations"].as_object().unwrap().len();
        (
            finalizers,
            annotations,
            route["status"]["parents"].as_array().unwrap().len(),
        )
    };
    assert_eq!(names(&bench), (2, 2, 2));
    assert_eq!((bench.tyk.at(URL), bench.tyk.ids(OTHER).len()), (served, 1));
    // when the parent of the first one goes, then its part goes, and the other one's stays
    bench.edit(json!({"spec": {"parentRefs": [{"name": "far", "namespace": "infra"}]}}));
    bench.settle().await;
    assert_eq!(names(&bench), (1, 1, 1));
    assert_eq!((bench.tyk.ids(URL).len(), bench.tyk.ids(OTHER).len()), (0, 1));
    assert!(entry(&bench, BESIDE).is_some() && !bench.has_finalizer());
    // when the route is deleted, then it waits for the one that still has something of it
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert!(bench.route().is_some());
    bench.become_(BESIDE);
    bench.settle().await;
    assert_eq!(bench.route(), None);
    assert_eq!(bench.tyk.ids(OTHER).len(), 0);
}
