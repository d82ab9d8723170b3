//! Many tenants: what an installation does not allow is refused by name, and two buckets with one hostname are told.

use routewright::{app::Options, exposure::tenancy::Guards};
use serde_json::{Value, json};

use super::support::*;

fn only(suffix: &str) -> Options {
    Options {
        guards: Guards {
            hostname_suffixes: vec![suffix.to_owned()],
            ..Guards::default()
        },
        ..both()
    }
}

#[tokio::test(start_paused = true)]
async fn a_hostname_that_is_not_allowed_makes_no_object() {
    for exposure in [by_ingress(), by_route()] {
        let mut story = Story::begin(true, &only("example.org"), [cluster(), bucket(exposure)]).await;
        assert_eq!(
            story.settle().await,
            [
                "APPLY garagebuckets/status blog -> 200",
                "EVENT Warning ReconcileFailed"
            ]
        );
        assert_eq!(
            story.says(),
            "False/ReconcileFailed: GarageBucket web/blog: spec.websiteExposure.hostnames is not set, and the default \
             hostname \"blog.site.test\" is not allowed here: use example.org or a name below"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_comes_later_leaves_what_stands_and_says_so() {
    // given: a site that stands
    let mut story = Story::exposed(by_ingress()).await;
    assert_eq!(story.hosts(), ["blog.site.test"]);
    // when: the operator is started with a limit that the site does not keep
    assert_eq!(
        story.restart(&only("example.org")).await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning ReconcileFailed"
        ]
    );
    // then: it stands, and the message says what it serves
    assert_eq!(story.hosts(), ["blog.site.test"]);
    assert!(
        story
            .says()
            .ends_with("; until then Ingress web/blog-website goes on serving blog.site.test"),
        "{}",
        story.says()
    );
    // and: a limit that it keeps makes it whole again without a write to the object
    assert_eq!(
        story.restart(&only("site.test")).await,
        ["APPLY garagebuckets/status blog -> 200", "EVENT Normal Exposed"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_is_not_allowed_is_refused_by_its_key() {
    let mut options = both();
    options.guards.ingress_annotation_prefixes = vec!["cert-manager.io/".into()];
    let mut exposure = by_ingress();
    exposure["ingress"]["annotations"] = json!({"nginx.ingress.kubernetes.io/server-snippet": "return 200;"});
    let mut story = Story::begin(true, &options, [cluster(), bucket(exposure)]).await;
    story.settle().await;
    assert!(story.ingress().is_none());
    assert!(
        story.says().contains(
            "spec.websiteExposure.ingress.annotations \"nginx.ingress.kubernetes.io/server-snippet\""
        ),
        "{}",
        story.says()
    );
    // An annotation that is allowed makes the object.
    let mut exposure = by_ingress();
    exposure["ingress"]["annotations"] = json!({"cert-manager.io/cluster-issuer": "public"});
    story.expose(exposure);
    story.settle().await;
    assert!(story.says().starts_with("True/Exposed"), "{}", story.says());
}

/// A bucket `web/shop` with an alias of its own, and this hostname.
fn shop(exposure: Value) -> Value {
    let mut shop = bucket(exposure);
    shop["metadata"]["name"] = json!("shop");
    shop["status"]["globalAlias"] = json!("shop");
    shop["status"]["bucketId"] = json!("b2");
    shop
}

fn listing(mut exposure: Value, host: &str) -> Value {
    exposure["hostnames"] = json!([host]);
    exposure
}

fn told(story: &Story) -> Vec<String> {
    let mut events = story.events();
    events.retain(|event| event.contains("HostnameShared"));
    events
}

#[tokio::test(start_paused = true)]
async fn a_bucket_of_another_namespace_is_not_named() {
    let shared = || listing(by_route(), "www.example.org");
    let mut elsewhere = shop(shared());
    elsewhere["metadata"]["namespace"] = json!("storage");
    elsewhere["metadata"]["name"] = json!("a-shop");
    let mut there = cluster();
    there["metadata"]["namespace"] = json!("storage");
    let mut story = Story::begin(true, &both(), [there, cluster(), elsewhere]).await;
    story.settle().await;
    put(&story.server, bucket(shared()));
    story.settle().await;
    let says = story.says();
    assert!(
        says.ends_with("; www.example.org is also exposed by an older GarageBucket of another namespace"),
        "{says}"
    );
    assert!(!says.contains("storage") && !told(&story).concat().contains("storage"));
}

/// The rewritten hostname of both is the same one; the object that Kubernetes made first has it first.
#[tokio::test(start_paused = true)]
async fn two_buckets_with_one_hostname_are_told_once_on_the_younger_one() {
    // given: two buckets, the older one (by name, as both are of one second) not exposed
    let shared = || listing(by_route(), "www.example.org");
    let mut story = Story::begin(true, &both(), [cluster(), bucket(Value::Null), shop(shared())]).await;
    story.settle().await;
    assert_eq!(told(&story), [""; 0]);
    // when: the older one is exposed under the hostname of the younger one
    story.expose(shared());
    story.settle().await;
    // then: the younger one has an event and says it, and the older one does not
    let text = "www.example.org is also exposed by GarageBucket web/blog, which is older";
    assert_eq!(told(&story), [format!("Warning HostnameShared: {text}")]);
    let (_, reason, message) = condition(&story.server, "shop").unwrap();
    assert_eq!(reason, "NotReady");
    assert!(message.ends_with(&format!("; {text}")), "{message}");
    assert!(!story.says().contains("also exposed"), "{}", story.says());
    // and: a restart writes nothing
    assert_eq!(story.restart(&both()).await, NOTHING);
    assert_eq!(told(&story).len(), 1);
    // and: when the older one is not exposed any more, nothing is said any more
    story.expose(Value::Null);
    story.settle().await;
    let (_, _, message) = condition(&story.server, "shop").unwrap();
    assert!(!message.contains("also exposed"), "{message}");
    assert_eq!(told(&story).len(), 1);
}
