//! An object of somebody else under our child's name: refused, named, never changed by a byte, and replaced by ours within
//! seconds of its going.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::*;

/// An Ingress or HTTPRoute `web/blog-website` of somebody else.
fn squatter(kind: &str, owner: Value, labels: Value) -> Value {
    let mut object = match kind {
        "Ingress" => json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "spec": {"defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}}},
        }),
        _ => json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "spec": {"parentRefs": [{"name": "shop"}]},
        }),
    };
    object["metadata"] = json!({"namespace": "web", "name": "blog-website", "labels": labels});
    if !owner.is_null() {
        object["metadata"]["ownerReferences"] = json!([owner]);
    }
    object
}

fn shop() -> Value {
    // `Gc` of the test server takes what has lost its owner, so the owner is one that is there.
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "shop", "uid": "", "controller": true})
}

fn our_labels() -> Value {
    json!({"app.kubernetes.io/managed-by": "routewright", "app.kubernetes.io/instance": "one"})
}

fn selected(kind: &str) -> Value {
    if kind == "Ingress" {
        by_ingress()
    } else {
        by_route()
    }
}

fn plural(kind: &str) -> &'static str {
    if kind == "Ingress" {
        "ingresses"
    } else {
        "httproutes"
    }
}

/// A story with the squatter there first.
async fn squatted(kind: &str, owned: bool, labels: Value) -> (Story, Value) {
    let server = server(true);
    let config = server.create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "web", "name": "shop"}}),
    );
    let mut owner = if owned { shop() } else { Value::Null };
    if owned {
        owner["uid"] = config["metadata"]["uid"].clone();
    }
    let theirs = server.create(squatter(kind, owner, labels));
    put(&server, cluster());
    put(&server, bucket(selected(kind)));
    (Story::on(server, &both()).await, theirs)
}

fn standing(story: &Story, kind: &str) -> Value {
    story.server.get(kind, "web", "blog-website").unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_is_refused_by_name_and_not_changed_by_a_byte() {
    for kind in ["Ingress", "HTTPRoute"] {
        let (mut story, theirs) = squatted(kind, true, json!({"team": "shop"})).await;
        let plural = plural(kind);
        let refused = [
            format!("APPLY {plural} blog-website -> 409"),
            format!("GET(metadata) {plural} blog-website -> 200"),
        ];
        let mut expected = refused.to_vec();
        expected.extend([
            "APPLY garagebuckets/status blog -> 200".to_owned(),
            "EVENT Warning ReconcileFailed".to_owned(),
        ]);
        assert_eq!(story.settle().await, expected);
        let says = story.says();
        let text = format!(
            "False/ReconcileFailed: {kind} web/blog-website exists and is not this bucket's (controlled by ConfigMap shop)"
        );
        assert!(says.starts_with(&text), "{says}");
        assert_eq!(
            story.block(),
            json!({"type": kind}),
            "no child of the bucket exists"
        );
        assert_eq!(standing(&story, kind), theirs);

        // The slow retry asks nobody: the watch on that name knows.
        assert_eq!(lines(&story.pass(Duration::from_secs(3600)).await), NOTHING);
        assert_eq!(
            story.restart(&both()).await,
            refused,
            "a new process has to find out, and says nothing new"
        );
        assert_eq!(standing(&story, kind), theirs);
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_watch_on_its_name_is_refused_the_slow_retry_asks() {
    let server = server(true);
    put(&server, cluster());
    server.create(squatter("Ingress", Value::Null, json!({})));
    let mut story = Story::on(server, &both()).await;
    for verb in ["list", "watch"] {
        story.server.deny(OPERATOR, verb, "ingresses");
    }
    put(&story.server, bucket(by_ingress()));
    story.settle().await;
    assert!(
        story.says().contains("(controlled by nobody)"),
        "{}",
        story.says()
    );
    story.server.delete("Ingress", "web", "blog-website");
    story.pass(Duration::from_secs(400)).await;
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
}

#[tokio::test(start_paused = true)]
async fn one_with_our_labels_costs_no_request_at_all() {
    for kind in ["Ingress", "HTTPRoute"] {
        let (mut story, theirs) = squatted(kind, true, our_labels()).await;
        assert_eq!(
            story.settle().await,
            [
                "APPLY garagebuckets/status blog -> 200",
                "EVENT Warning ReconcileFailed"
            ]
        );
        assert_eq!(standing(&story, kind), theirs);
        assert_eq!(lines(&story.pass(Duration::from_secs(3600)).await), NOTHING);
        assert_eq!(story.restart(&both()).await, NOTHING);
        story.expose(Value::Null);
        let calls = story.settle().await;
        assert!(!calls.iter().any(|line| line.starts_with("DELETE")), "{calls:#?}");
        assert_eq!(
            standing(&story, kind),
            theirs,
            "not removed with the exposure either"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_it_over_when_it_loses_its_owner() {
    for labels in [json!({}), our_labels()] {
        let (mut story, _) = squatted("Ingress", true, labels).await;
        story.settle().await;
        let orphan = story.server.edit(
            "Ingress",
            "web",
            "blog-website",
            json!({"metadata": {"ownerReferences": null}}),
        );
        let calls = story.settle().await;
        let writes: Vec<_> = calls
            .iter()
            .filter(|line| line.contains("-> 20") && !line.starts_with("GET"))
            .collect();
        assert_eq!(writes, ["APPLY garagebuckets/status blog -> 200"], "{calls:#?}");
        assert!(
            story.says().contains("(controlled by nobody)"),
            "{}",
            story.says()
        );
        story.pass(Duration::from_secs(1000)).await;
        assert_eq!(standing(&story, "Ingress"), orphan);
    }
}

#[tokio::test(start_paused = true)]
async fn ours_is_there_within_seconds_of_its_going() {
    for kind in ["Ingress", "HTTPRoute"] {
        for labels in [json!({}), our_labels()] {
            let (mut story, _) = squatted(kind, true, labels).await;
            story.settle().await;
            story.pass(Duration::from_secs(130)).await;
            story.server.delete(kind, "web", "blog-website");
            let gone = Instant::now();
            eventually(&story.server, "our own", || {
                story.server.get(kind, "web", "blog-website")
            })
            .await;
            assert!(
                gone.elapsed() < Duration::from_secs(3),
                "{kind}: {:?}",
                gone.elapsed()
            );
            let expected = if kind == "Ingress" {
                INGRESS_CREATED
            } else {
                ROUTE_CREATED
            };
            assert_eq!(story.settle().await, expected);
            assert_eq!(
                story.server.open_watches(plural(kind)),
                1,
                "the watch on the squatter is over"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_handed_over_by_an_annotation_with_the_buckets_uid() {
    for labels in [json!({}), our_labels()] {
        let (mut story, _) = squatted("Ingress", false, labels).await;
        story.settle().await;
        assert!(
            story.says().contains("(controlled by nobody)"),
            "{}",
            story.says()
        );

        story.server.edit(
            "Ingress",
            "web",
            "blog-website",
            json!({"metadata": {"annotations": {"routewright.dev/adopt": "another"}}}),
        );
        story.settle().await;
        assert!(
            story.says().starts_with("False/ReconcileFailed: "),
            "another bucket's uid: {}",
            story.says()
        );

        let uid = story.bucket()["metadata"]["uid"].clone();
        story.server.edit(
            "Ingress",
            "web",
            "blog-website",
            json!({"metadata": {"annotations": {"routewright.dev/adopt": uid}}}),
        );
        let calls = story.settle().await;
        assert_eq!(
            story.says(),
            "True/Exposed: Ingress web/blog-website",
            "{calls:#?}"
        );
        let ours = standing(&story, "Ingress");
        assert_eq!(ours["metadata"]["ownerReferences"][0]["name"], "blog");
        assert_eq!(story.hosts(), ["blog.site.test"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_annotation_does_not_take_away_what_another_controls() {
    let (mut story, _) = squatted("Ingress", true, json!({})).await;
    let uid = story.bucket()["metadata"]["uid"].clone();
    let theirs = story.server.edit(
        "Ingress",
        "web",
        "blog-website",
        json!({"metadata": {"annotations": {"routewright.dev/adopt": uid}}}),
    );
    story.settle().await;
    story.pass(Duration::from_secs(1000)).await;
    assert!(
        story.says().contains("(controlled by ConfigMap shop)"),
        "{}",
        story.says()
    );
    assert_eq!(standing(&story, "Ingress"), theirs);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_created_anew_under_the_old_name_waits_for_the_old_child_to_go() {
    let mut story = Story::exposed(by_ingress()).await;
    story.server.set_gc(reconcile_kit::testing::Gc::Manual);
    story.server.delete("GarageBucket", "web", "blog");
    put(&story.server, bucket(by_ingress()));
    story.settle().await;
    assert!(
        story.says().contains("(controlled by GarageBucket blog)"),
        "{}",
        story.says()
    );
    story.server.collect_garbage();
    assert_eq!(story.settle().await, INGRESS_CREATED);
    let (bucket, ingress) = (story.bucket(), story.ingress().unwrap());
    assert_eq!(
        ingress["metadata"]["ownerReferences"][0]["uid"],
        bucket["metadata"]["uid"]
    );
}
