//! How long it takes from an edit to the written API, of our own time: printed, not asserted.

use std::time::{Duration, Instant};

use serde_json::json;

use super::bench::*;

#[tokio::test]
async fn five_hundred_edits_are_five_hundred_writes_and_this_is_their_time() {
    // given a Tyk that answers at once, and a hundred other routes
    let neighbours = (0..100).map(|n| route_named(&format!("n{n}"), &format!("n{n}.example.com"), &["/"]));
    let mut bench = Bench::with(neighbours.chain([route(&["/a"])])).await;
    let mut times: Vec<Duration> = Vec::new();
    for n in 0..500 {
        let mut edited = rule("/a");
        edited["filters"] = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [
            {"name": "X-Edit", "value": n.to_string()}]}}]);
        bench.edit(json!({"spec": {"rules": [edited]}}));
        // from the object as the watch shows it: model, plan, documents, status
        let begun = Instant::now();
        bench.tell_route("shop", "r");
        bench.look("shop", "r").await;
        times.push(begun.elapsed());
    }
    let writes = bench.tyk.writes();
    assert_eq!(writes.len(), 500);
    assert!(writes.iter().all(|write| *write == format!("POST {}", id("/a"))));
    let mean = times.iter().sum::<Duration>() / 500;
    println!(
        "route edit to written API and status, own time, 500 edits: mean {mean:?}, max {:?}",
        times.iter().max().unwrap()
    );
}
