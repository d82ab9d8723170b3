//! The life of our own child beside people and other controllers: switched, edited, labelled, deleted, contested, held
//! back by a finalizer, taken over from another manager.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;

const REVERTED: [&str; 1] = ["APPLY ingresses blog-website -> 200"];

#[tokio::test(start_paused = true)]
async fn a_switch_of_kind_is_one_delete_and_one_creation() {
    let mut story = Story::exposed(by_ingress()).await;
    story.edit(json!({"spec": {"websiteExposure": {"ingress": null, "gateway": by_route()["gateway"]}}}));
    let mut expected = ROUTE_CREATED.to_vec();
    expected.insert(2, "DELETE ingresses blog-website -> 200");
    expected.sort_unstable();
    assert_eq!(story.settle_sorted().await, expected);
    assert!(story.ingress().is_none());
    assert_eq!(story.block()["type"], "HTTPRoute");

    story.edit(json!({"spec": {"websiteExposure": {"gateway": null, "ingress": {}}}}));
    let mut expected = INGRESS_CREATED.to_vec();
    expected.push("DELETE httproutes blog-website -> 200");
    expected.sort_unstable();
    assert_eq!(story.settle_sorted().await, expected);
    assert!(story.route().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_fails_holds_nobody_up_and_is_told() {
    let mut story = Story::exposed(by_ingress()).await;
    let denied = story.server.deny(OPERATOR, "delete", "ingresses");
    story.edit(json!({"spec": {"websiteExposure": {"ingress": null, "gateway": by_route()["gateway"]}}}));
    let expected = [
        "APPLY garagebuckets/status blog -> 200",
        "APPLY httproutes blog-website -> 201",
        "DELETE ingresses blog-website -> 403",
        "EVENT Normal NotReady",
        "EVENT Warning CleanupFailed",
    ];
    let mut calls = story.settle_sorted().await;
    // One more try may follow when the bucket's own status comes back.
    calls.dedup();
    assert_eq!(calls, expected, "{:#?}", story.events());
    let events = story.events();
    assert!(
        events
            .iter()
            .any(|e| e.starts_with("Warning CleanupFailed: ") && e.contains("Ingress web/blog-website")),
        "{events:#?}"
    );
    let metrics = story.metrics();
    assert!(metrics.contains("failed"), "{metrics}");

    let calls = lines(&story.pass(Duration::from_secs(600)).await);
    assert!((1..=4).contains(&calls.len()), "no hot loop: {calls:#?}");
    assert!(
        calls
            .iter()
            .all(|line| line == "DELETE ingresses blog-website -> 403"),
        "said once: {calls:#?}"
    );

    story.server.undeny(denied);
    let calls = lines(&story.pass(Duration::from_secs(400)).await);
    assert_eq!(calls, ["DELETE ingresses blog-website -> 200"]);
    assert!(story.ingress().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_fails_when_nothing_is_wanted_is_told_and_tried_again() {
    for exposure in [by_ingress(), by_route()] {
        let mut story = Story::exposed(exposure).await;
        let denied = story.server.deny(OPERATOR, "delete", "*");
        story.expose(Value::Null);
        story.settle().await;
        let events = story.events();
        assert!(
            events.iter().any(|e| e.starts_with("Warning CleanupFailed: ")),
            "{events:#?}"
        );
        assert_eq!(story.says(), "–");
        story.server.undeny(denied);
        story.pass(Duration::from_secs(400)).await;
        assert!(story.ingress().is_none() && story.route().is_none());
        assert_eq!(story.block(), Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_any_end_state_asks_for_nothing() {
    let none = json!(null);
    let ready = |story: &Story| story.gateway_says("True");
    let no = |_: &Story| ();
    type Prepare = Box<dyn Fn(&Story)>;
    let states: [(&str, Value, Prepare, &str); 7] = [
        ("unset", none, Box::new(no), "–"),
        ("exposed by Ingress", by_ingress(), Box::new(no), "True/Exposed"),
        (
            "exposed by HTTPRoute",
            by_route(),
            Box::new(ready),
            "True/Exposed",
        ),
        ("not ready", by_route(), Box::new(no), "False/NotReady"),
        (
            "waiting for the alias",
            by_ingress(),
            Box::new(|s| s.bucket_status(json!({"globalAlias": null}))),
            "False/WaitingForAlias",
        ),
        (
            "website off",
            by_ingress(),
            Box::new(|s| s.edit(json!({"spec": {"website": {"enabled": false}}}))),
            "False/ReconcileFailed",
        ),
        (
            "bad hostname",
            json!({"hostnames": ["www.example.net"], "ingress": {}}),
            Box::new(no),
            "False/ReconcileFailed",
        ),
    ];
    for (name, exposure, prepare, says) in states {
        let mut story = Story::exposed(exposure).await;
        prepare(&story);
        story.settle().await;
        assert_eq!(story.says().split(':').next(), Some(says), "{name}");
        for round in 1..=2 {
            assert_eq!(story.restart(&both()).await, NOTHING, "{name}, restart {round}");
        }
        assert_eq!(
            lines(&story.pass(Duration::from_secs(3600)).await),
            NOTHING,
            "{name}: an hour passes"
        );
        story.server.end_watches("*");
        story.server.compact();
        assert_eq!(story.settle().await, NOTHING, "{name}: everything is listed anew");
    }
    let mut story = Story::begin(true, &options(), [cluster(), bucket(by_ingress())]).await;
    assert!(story.says().starts_with("False/IngressDisabled"));
    assert_eq!(story.restart(&options()).await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_a_user_adds_stays() {
    let mut story = Story::exposed(by_ingress()).await;
    let change =
        json!({"metadata": {"labels": {"team": "web"}, "annotations": {"external-dns.example/ttl": "60"}}});
    story
        .server
        .edit_as("kubectl", "Ingress", "web", "blog-website", change);
    assert_eq!(story.settle().await, NOTHING);

    let exposure = json!({"labels": {"tier": "front"}, "annotations": {"cert-manager.io/issuer": "le"}});
    story.edit(json!({"spec": {"websiteExposure": {"ingress": exposure}}}));
    assert_eq!(
        story.settle().await,
        [
            "APPLY ingresses blog-website -> 200",
            "APPLY garagebuckets/status blog -> 200"
        ]
    );
    let of = |story: &Story, part: &str, key: &str| story.ingress().unwrap()["metadata"][part][key].clone();
    assert_eq!(of(&story, "labels", "team"), "web");
    assert_eq!(of(&story, "labels", "tier"), "front");
    assert_eq!(of(&story, "annotations", "cert-manager.io/issuer"), "le");

    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"labels": null, "annotations": null}}}}));
    story.settle().await;
    assert_eq!(
        of(&story, "labels", "tier"),
        Value::Null,
        "dropped from the spec: gone"
    );
    assert_eq!(of(&story, "annotations", "cert-manager.io/issuer"), Value::Null);
    assert_eq!(of(&story, "labels", "team"), "web", "of others: stays");
    assert_eq!(of(&story, "annotations", "external-dns.example/ttl"), "60");
}

#[tokio::test(start_paused = true)]
async fn operator_keys_win_over_the_users() {
    let exposure = json!({"ingress": {"labels": {
        "app.kubernetes.io/managed-by": "me", "routewright.dev/bucket": "other", "team": "web",
    }}});
    let story = Story::exposed(exposure).await;
    let labels = story.ingress().unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "routewright");
    assert_eq!(labels["routewright.dev/bucket"], "blog");
    assert_eq!(labels["team"], "web");
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_what_we_set_is_reverted_by_one_apply() {
    let mut story = Story::exposed(by_ingress()).await;
    let edits = [
        json!({"spec": {"rules": [{"host": "evil.example.net"}]}}),
        json!({"spec": {"ingressClassName": "other"}}),
        json!({"metadata": {"annotations": {"routewright.dev/applied-hash": "0"}}}),
        json!({"metadata": {"labels": {"routewright.dev/bucket": null}}}),
    ];
    for edit in edits {
        story
            .server
            .edit_as("kubectl", "Ingress", "web", "blog-website", edit.clone());
        assert_eq!(story.settle().await, REVERTED, "{edit}");
        assert_eq!(story.hosts(), ["blog.site.test"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_without_our_labels_is_found_again_by_its_owner() {
    let mut story = Story::exposed(by_ingress()).await;
    let bare = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null, "app.kubernetes.io/instance": null}}});
    story
        .server
        .edit_as("kubectl", "Ingress", "web", "blog-website", bare.clone());
    let expected = [
        "APPLY ingresses blog-website -> 409",
        "GET(metadata) ingresses blog-website -> 200",
        "APPLY ingresses blog-website -> 200",
    ];
    assert_eq!(story.settle().await, expected);
    assert_eq!(
        story.ingress().unwrap()["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "routewright"
    );

    // Stripped while nobody watched, and not wanted any more when the operator is back.
    story.stop().await;
    story
        .server
        .edit_as("kubectl", "Ingress", "web", "blog-website", bare);
    story.expose(Value::Null);
    let calls = story.restart(&both()).await;
    assert!(
        calls.contains(&"DELETE ingresses blog-website -> 200".to_owned()),
        "{calls:#?}"
    );
    assert!(story.ingress().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_deleted_comes_back() {
    let mut story = Story::exposed(by_ingress()).await;
    story.server.delete("Ingress", "web", "blog-website");
    assert_eq!(story.settle().await, ["APPLY ingresses blog-website -> 201"]);
    let mut story = Story::exposed(by_route()).await;
    story.gateway_says("True");
    story.settle().await;
    story.server.delete("HTTPRoute", "web", "blog-website");
    assert_eq!(
        story.settle().await,
        ROUTE_CREATED,
        "the new one has to be accepted anew"
    );
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_deleted_as_fast_as_it_is_made_is_given_up_for_five_minutes() {
    let mut story = Story::exposed(by_ingress()).await;
    let mut made = 0;
    for _ in 0..10 {
        if story.ingress().is_some() {
            story.server.delete("Ingress", "web", "blog-website");
        }
        let calls = story.settle().await;
        made += calls
            .iter()
            .filter(|line| line.starts_with("APPLY ingresses"))
            .count();
    }
    assert_eq!(made, 5);
    assert!(
        story.says().starts_with(
            "False/NotReady: Ingress web/blog-website is deleted by somebody as fast as it is made"
        ),
        "{}",
        story.says()
    );
    let told = story.events();
    let told = told.iter().filter(|e| e.starts_with("Warning ContestedField: "));
    assert_eq!(told.count(), 1);
    story.pass(Duration::from_secs(340)).await;
    assert!(
        story.ingress().is_some() && story.says().starts_with("True/Exposed: "),
        "{}",
        story.says()
    );
}

#[tokio::test(start_paused = true)]
async fn the_solver_of_a_certificate_is_let_do_its_work() {
    let mut story = Story::exposed(by_ingress()).await;
    let rules = |story: &Story| story.ingress().unwrap()["spec"]["rules"].clone();
    let ours = rules(&story);
    let solver = json!({"path": "/.well-known/acme-challenge/abc", "pathType": "ImplementationSpecific",
        "backend": {"service": {"name": "cm-acme-http-solver", "port": {"number": 8089}}}});
    let mut solving = ours.clone();
    solving[0]["http"]["paths"]
        .as_array_mut()
        .unwrap()
        .insert(0, solver);
    story.server.edit_as(
        "cert-manager",
        "Ingress",
        "web",
        "blog-website",
        json!({"spec": {"rules": solving}}),
    );
    assert_eq!(story.settle().await, NOTHING);
    assert_eq!(rules(&story), solving);
    assert_eq!(story.restart(&both()).await, NOTHING);
    story.server.edit_as(
        "cert-manager",
        "Ingress",
        "web",
        "blog-website",
        json!({"spec": {"rules": ours}}),
    );
    assert_eq!(story.settle().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_contest_slows_down_and_names_the_other_side() {
    let mut story = Story::exposed(by_ingress()).await;
    let edit = |story: &Story| {
        story.server.edit_as(
            "gitops",
            "Ingress",
            "web",
            "blog-website",
            json!({"spec": {"ingressClassName": "theirs"}}),
        )
    };
    for round in 1..=5 {
        edit(&story);
        assert_eq!(story.settle().await, REVERTED, "round {round}");
    }
    edit(&story);
    assert_eq!(
        story.settle().await,
        [
            "GET(metadata) ingresses blog-website -> 200",
            "EVENT Warning ContestedField"
        ]
    );
    let events = story.events();
    assert!(
        events
            .iter()
            .any(|e| e.starts_with("Warning ContestedField: ") && e.contains("gitops")),
        "{events:#?}"
    );
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");

    // Half an hour of somebody who never gives up, every ten seconds.
    let (mut reverts, mut others) = (0, 0);
    for _ in 0..180 {
        edit(&story);
        let calls = lines(&story.pass(Duration::from_secs(10)).await);
        let applies = calls.iter().filter(|line| *line == REVERTED[0]).count();
        (reverts, others) = (reverts + applies, others + calls.len() - applies);
    }
    assert!((5..=20).contains(&reverts), "{reverts} reverts of 180 edits");
    assert!(
        others <= 2 * reverts,
        "{others} other requests beside {reverts} reverts"
    );
}

#[tokio::test(start_paused = true)]
async fn our_own_child_on_its_way_out_is_waited_for_and_never_patched() {
    let mut story = Story::exposed(by_ingress()).await;
    story.server.edit_as(
        "cloud",
        "Ingress",
        "web",
        "blog-website",
        json!({"metadata": {"finalizers": ["cloud.example/lb"]}}),
    );
    assert_eq!(story.settle().await, NOTHING);
    story.server.delete("Ingress", "web", "blog-website");
    assert_eq!(
        story.settle().await,
        ["APPLY garagebuckets/status blog -> 200", "EVENT Normal NotReady"]
    );
    assert_eq!(
        story.says(),
        "False/NotReady: Ingress web/blog-website is being deleted and held back by the finalizer cloud.example/lb: it is \
         created anew once it is gone"
    );
    let going = story.ingress();
    story.edit(json!({"spec": {"websiteExposure": {"hostnames": ["blog"]}}}));
    assert_eq!(story.settle().await, ["APPLY garagebuckets/status blog -> 200"]);
    assert_eq!(story.ingress(), going);

    story.server.edit_as(
        "cloud",
        "Ingress",
        "web",
        "blog-website",
        json!({"metadata": {"finalizers": null}}),
    );
    assert_eq!(story.settle().await, INGRESS_CREATED);
    assert_eq!(story.hosts(), ["blog"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_of_an_older_manager_is_taken_over_once_and_prunes_from_then_on() {
    let server = server(false);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let uid = server.get("GarageBucket", "web", "blog").unwrap()["metadata"]["uid"].clone();
    let older = |key: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {
                "namespace": "web", "name": "blog-website", "labels": {
                    "app.kubernetes.io/managed-by": "routewright", "app.kubernetes.io/instance": "one", key: "yes",
                },
                "ownerReferences": [{"apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "name": "blog",
                    "uid": uid, "controller": true}],
            },
            "spec": {
                "tls": [{"hosts": ["old.example.net"], "secretName": "old"}],
                "rules": [{"host": "old.example.net", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                    "backend": {"service": {"name": "garage", "port": {"name": "web"}}}}]}}],
            },
        })
    };
    server.create_as("older", older("first"));
    server.update_as("older", older("second"));
    let mut story = Story::on(server, &both()).await;
    let calls = story.settle().await;
    let writes: Vec<&str> = calls
        .iter()
        .map(String::as_str)
        .filter(|line| line.contains(" ingresses ") && !line.starts_with("GET"))
        .collect();
    assert_eq!(
        writes,
        [
            "PATCH(json) ingresses blog-website -> 200",
            "APPLY ingresses blog-website -> 200"
        ],
        "{calls:#?}"
    );
    let ingress = story.ingress().unwrap();
    assert_eq!(story.hosts(), ["blog.site.test"]);
    assert_eq!(
        ingress["spec"].get("tls"),
        None,
        "what the older manager wrote is pruned"
    );
    assert_eq!(story.restart(&both()).await, NOTHING, "once");
    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"tlsSecretName": "new"}}}}));
    assert_eq!(
        story.settle().await,
        [
            "APPLY ingresses blog-website -> 200",
            "APPLY garagebuckets/status blog -> 200"
        ]
    );
    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"tlsSecretName": null}}}}));
    story.settle().await;
    assert_eq!(story.ingress().unwrap()["spec"].get("tls"), None);
}
