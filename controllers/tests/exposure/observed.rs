//! Status mirrors what was observed: a name only where the child exists, the live hostnames, and addresses in an
//! order and at a pace of their own.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;

fn left_behind(story: &Story) -> Vec<String> {
    let mut events = story.events();
    events.retain(|event| event.starts_with("Warning LeftBehind: "));
    events
}

#[tokio::test(start_paused = true)]
async fn of_a_child_that_never_was_no_event_says_that_it_stays() {
    for wanted in [Value::Null, by_route()] {
        let mut off = both();
        off.enable_ingress = false;
        let mut story = Story::begin(true, &off, [cluster(), bucket(by_ingress())]).await;
        story.settle().await;
        assert!(
            story.says().starts_with("False/IngressDisabled"),
            "{}",
            story.says()
        );
        assert_eq!(story.block(), json!({"type": "Ingress"}));
        story.expose(wanted);
        story.settle().await;
        assert_eq!(left_behind(&story), NOTHING, "there never was an Ingress");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_site_that_waited_for_its_alias_no_event_says_that_it_stays() {
    let mut waiting = bucket(by_ingress());
    waiting["status"].as_object_mut().unwrap().remove("globalAlias");
    let mut story = Story::begin(true, &both(), [cluster(), waiting]).await;
    story.settle().await;
    assert!(
        story.says().starts_with("False/WaitingForAlias"),
        "{}",
        story.says()
    );
    assert_eq!(story.block(), json!({"type": "Ingress"}));
    let mut off = both();
    off.enable_ingress = false;
    story.restart(&off).await;
    story.expose(Value::Null);
    story.settle().await;
    assert_eq!(left_behind(&story), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn of_another_owners_object_no_event_says_that_it_is_to_be_deleted() {
    let server = server(true);
    server.create(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": "web", "name": "blog-website"},
        "spec": {"defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}}},
    }));
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let mut story = Story::on(server, &both()).await;
    story.settle().await;
    assert!(story.says().contains("is not this bucket's"), "{}", story.says());
    let mut off = both();
    off.enable_ingress = false;
    story.restart(&off).await;
    story.expose(Value::Null);
    story.settle().await;
    assert_eq!(left_behind(&story), NOTHING);
}

fn balanced(story: &Story, addresses: &[&str]) {
    let list: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let status = json!({"loadBalancer": {"ingress": list}});
    story.server.set_status("Ingress", "web", "blog-website", status);
}

#[tokio::test(start_paused = true)]
async fn the_order_of_addresses_is_no_change_and_sets_that_alternate_are_written_once_a_minute() {
    let mut story = Story::exposed(by_ingress()).await;
    balanced(&story, &["192.0.2.2", "192.0.2.1"]);
    assert_eq!(story.settle().await, ["APPLY garagebuckets/status blog -> 200"]);
    assert_eq!(story.block()["addresses"], json!(["192.0.2.1", "192.0.2.2"]));
    // when only the order changes
    balanced(&story, &["192.0.2.1", "192.0.2.2"]);
    assert_eq!(story.settle().await, NOTHING);
    // when two sets alternate for three minutes
    let mark = story.server.mark();
    for round in 0..60 {
        balanced(
            &story,
            if round % 2 == 0 {
                &["192.0.2.9"]
            } else {
                &["192.0.2.1", "192.0.2.2"]
            },
        );
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let writes = lines(&story.server.calls_since(mark)).len();
    assert!((1..=4).contains(&writes), "{writes} writes in three minutes");
    // then the last set is shown in the end
    balanced(&story, &["192.0.2.9"]);
    story.pass(Duration::from_secs(70)).await;
    assert_eq!(story.block()["addresses"], json!(["192.0.2.9"]));
    assert_eq!(lines(&story.pass(Duration::from_secs(600)).await), NOTHING);
}
