//! An installation for Tyk alone: nothing about buckets is looked at, so no right on any of their kinds is needed.

use serde_json::json;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn with_tyk_alone_no_request_names_a_kind_of_the_garage_half() {
    let mut options = options();
    options.tyk.enabled = true;
    let mut story = Story::begin(true, &options, [cluster(), bucket(by_ingress())]).await;
    story.settle().await;
    story.edit(json!({"spec": {"websiteExposure": null}}));
    story.pass(std::time::Duration::from_secs(3600)).await;
    let calls: Vec<_> = story
        .server
        .calls()
        .into_iter()
        .filter(|c| c.user == OPERATOR)
        .collect();
    assert!(!calls.is_empty(), "Tyk's own kinds are looked at");
    let about_garage =
        |text: &str| text.contains("garage") || text == "ingresses" || text == "ingressclasses";
    let named: Vec<String> = calls
        .iter()
        .filter(|c| {
            [&c.resource, &c.name, &c.selector]
                .iter()
                .any(|text| about_garage(text))
        })
        .map(|c| c.to_string())
        .collect();
    assert_eq!(named, NOTHING);
    assert_eq!(story.says(), "–");
    let readyz = story.readyz().await;
    assert!(
        !readyz.contains("Garage") && !readyz.contains("exposure"),
        "{readyz}"
    );
}

#[tokio::test(start_paused = true)]
async fn beside_tyk_any_flag_of_the_garage_half_brings_it_back() {
    let mut options = both();
    options.tyk.enabled = true;
    let mut story = Story::begin(true, &options, [cluster(), bucket(by_ingress())]).await;
    story.settle().await;
    assert!(story.says().starts_with("True/Exposed"), "{}", story.says());
}
