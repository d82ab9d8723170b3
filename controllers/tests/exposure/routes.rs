//! Readiness of an HTTPRoute: what its parents say decides, about this generation, from every parent.

use serde_json::{Value, json};

use super::support::*;

const SAID: [&str; 1] = ["APPLY garagebuckets/status blog -> 200"];
const GOOD: [(&str, &str); 2] = [("Accepted", "True"), ("ResolvedRefs", "True")];

fn public() -> Value {
    json!({"name": "public"})
}

#[tokio::test(start_paused = true)]
async fn the_gateways_own_words_are_the_message() {
    let mut story = Story::exposed(by_route()).await;
    assert!(
        story.says().starts_with(
            "False/NotReady: HTTPRoute web/blog-website: Gateway web/public: no controller has reported"
        ),
        "{}",
        story.says()
    );
    story.gateway_says("False");
    assert_eq!(story.settle().await, SAID);
    assert_eq!(
        story.says(),
        "False/NotReady: HTTPRoute web/blog-website: Gateway web/public: Accepted is False (AcceptedReason): about Accepted"
    );
    let mut parent = story.parent(public(), &[("Accepted", "True"), ("ResolvedRefs", "False")]);
    parent["conditions"][1]["reason"] = json!("RefNotPermitted");
    parent["conditions"][1]["message"] = json!("no ReferenceGrant");
    story.route_status(json!([parent]));
    assert_eq!(story.settle().await, SAID);
    assert!(
        story
            .says()
            .ends_with("ResolvedRefs is False (RefNotPermitted): no ReferenceGrant"),
        "{}",
        story.says()
    );
    story.gateway_says("True");
    assert_eq!(
        story.settle().await,
        ["APPLY garagebuckets/status blog -> 200", "EVENT Normal Exposed"]
    );
    assert_eq!(story.says(), "True/Exposed: HTTPRoute web/blog-website");
    assert_eq!(
        story.block()["parents"],
        json!([{"parent": "web/public", "accepted": true, "resolvedRefs": true, "ready": true}])
    );
}

#[tokio::test(start_paused = true)]
async fn every_parent_counts_and_has_its_own_entry() {
    let refs = json!([
        {"name": "public", "sectionName": "http"}, {"name": "public", "sectionName": "https"},
        {"name": "inner", "namespace": "storage", "port": 8443},
    ]);
    let mut story = Story::exposed(json!({"gateway": {"parentRefs": refs}})).await;
    let all: Vec<Value> = refs
        .as_array()
        .unwrap()
        .iter()
        .map(|r| story.parent(r.clone(), &GOOD))
        .collect();
    story.route_status(json!(all[..2]));
    story.settle().await;
    assert!(
        story
            .says()
            .contains("Gateway storage/inner, port 8443: no controller has reported"),
        "{}",
        story.says()
    );
    assert!(!story.says().contains("web/public"), "{}", story.says());
    let flags = |story: &Story| -> Vec<Value> {
        story.block()["parents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["ready"].clone())
            .collect()
    };
    assert_eq!(flags(&story), [json!(true), json!(true), json!(false)]);

    story.route_status(json!(all));
    story.settle().await;
    assert_eq!(story.says(), "True/Exposed: HTTPRoute web/blog-website");
    let keys: Vec<String> = story.block()["parents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| format!("{} {} {}", p["parent"], p["sectionName"], p["port"]))
        .collect();
    assert_eq!(
        keys,
        [
            "\"web/public\" \"http\" null",
            "\"web/public\" \"https\" null",
            "\"storage/inner\" null 8443"
        ]
    );

    let mut mixed = all.clone();
    mixed[1] = story.parent(
        refs[1].clone(),
        &[("Accepted", "False"), ("ResolvedRefs", "True")],
    );
    story.route_status(json!(mixed));
    story.settle().await;
    assert!(
        story
            .says()
            .contains("Gateway web/public, listener https: Accepted is False"),
        "{}",
        story.says()
    );
}

#[tokio::test(start_paused = true)]
async fn a_word_about_no_generation_or_an_older_one_is_stale_and_said_so() {
    let mut story = Story::exposed(by_route()).await;
    let mut undated = story.parent(public(), &GOOD);
    for condition in undated["conditions"].as_array_mut().unwrap() {
        condition.as_object_mut().unwrap().remove("observedGeneration");
    }
    story.route_status(json!([undated]));
    story.settle().await;
    assert!(
        story.says().contains("Accepted has no observedGeneration"),
        "{}",
        story.says()
    );
    assert_eq!(story.block()["parents"][0]["ready"], false);

    story.gateway_says("True");
    story.settle().await;
    assert!(story.says().starts_with("True/Exposed"));
    story.edit(json!({"spec": {"websiteExposure": {"hostnames": ["www.example.net"]}}}));
    let expected = [
        "APPLY httproutes blog-website -> 200",
        "APPLY garagebuckets/status blog -> 200",
        "EVENT Normal NotReady",
    ];
    assert_eq!(story.settle().await, expected);
    assert!(
        story
            .says()
            .contains("Accepted is about an older generation of the route"),
        "{}",
        story.says()
    );
    story.gateway_says("True");
    story.settle().await;
    assert!(story.says().starts_with("True/Exposed"));
}

#[tokio::test(start_paused = true)]
async fn several_controllers_need_one_that_serves_and_none_that_refuses() {
    let mut story = Story::exposed(by_route()).await;
    let entry = |story: &Story, controller: &str, conditions: &[(&str, &str)]| {
        let mut entry = story.parent(public(), conditions);
        entry["controllerName"] = json!(controller);
        entry
    };
    let good = entry(&story, "a.example/gateway", &GOOD);
    let pending = entry(&story, "b.example/gateway", &[("Accepted", "Unknown")]);
    let policy = entry(&story, "p.example/policies", &[("PolicyAttached", "False")]);
    let refusing = entry(
        &story,
        "b.example/gateway",
        &[("Accepted", "False"), ("ResolvedRefs", "True")],
    );
    let partial = entry(
        &story,
        "a.example/gateway",
        &[GOOD[0], GOOD[1], ("PartiallyInvalid", "True")],
    );
    let unready = entry(
        &story,
        "a.example/gateway",
        &[GOOD[0], GOOD[1], ("Ready", "False")],
    );
    for (parents, says, text) in [
        (json!([policy]), "False/NotReady", "no controller has reported"),
        (json!([pending, policy]), "False/NotReady", "Accepted is not True"),
        (json!([policy, pending, good]), "True/Exposed", ""),
        (json!([good, refusing]), "False/NotReady", "Accepted is False"),
        (json!([partial]), "False/NotReady", "PartiallyInvalid is True"),
        (json!([unready]), "False/NotReady", "Ready is False"),
        (json!([good]), "True/Exposed", ""),
    ] {
        story.route_status(parents.clone());
        story.settle().await;
        assert!(
            story.says().starts_with(says) && story.says().contains(text),
            "{parents}: {}",
            story.says()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_flaps_does_not_write_the_bucket_twice() {
    let mut story = Story::exposed(by_route()).await;
    story.gateway_says("True");
    story.settle().await;
    // The same again, in other words: times, reasons of what is True, conditions of others.
    for round in 0..10 {
        let mut parent = story.parent(public(), &[GOOD[0], GOOD[1], ("Programmed", "True")]);
        parent["conditions"][0]["lastTransitionTime"] = json!(format!("2026-01-01T00:00:{round:02}Z"));
        parent["conditions"][0]["reason"] = json!(format!("Round{round}"));
        story.route_status(json!([parent]));
        assert_eq!(story.settle().await, NOTHING);
    }
    // Away and back before anybody looked.
    for _ in 0..50 {
        story.gateway_says("False");
        story.gateway_says("True");
    }
    let calls = story.settle().await;
    assert!(
        calls.len() <= 4 && story.says().starts_with("True/Exposed"),
        "{calls:#?}"
    );
    // Each real change is one write and one event, and no apply of the route.
    for (word, event) in [
        ("False", "EVENT Warning NotReady"),
        ("True", "EVENT Normal Exposed"),
    ] {
        story.gateway_says(word);
        let calls = story.settle().await;
        assert_eq!((calls.len(), calls[0].as_str()), (2, SAID[0]), "{calls:#?}");
        assert!(
            calls[1] == event || calls[1] == "EVENT Normal NotReady" || calls[1].starts_with("EVENT again"),
            "{calls:#?}"
        );
    }
}
