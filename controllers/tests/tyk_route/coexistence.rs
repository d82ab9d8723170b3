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
