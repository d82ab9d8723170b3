//! IngressClasses: the class of the live Ingress counts, however it came and however it is named.

use reconcile_kit::runtime::Scope;
use serde_json::{Value, json};

use super::support::*;

const PLAIN: &str = "True/Exposed: Ingress web/blog-website";

fn class_of(story: &Story) -> Value {
    story.ingress().unwrap()["spec"]["ingressClassName"].clone()
}

fn missing(story: &Story) -> Vec<String> {
    let mut events = story.events();
    events.retain(|event| event.starts_with("Warning IngressClassMissing: "));
    events
}

/// A class of this name.
fn class(name: &str, default: bool) -> Value {
    let mut class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": name},
        "spec": {"controller": "example.org/controller"},
    });
    if default {
        class["metadata"]["annotations"] = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    }
    class
}

#[tokio::test(start_paused = true)]
async fn an_ingress_that_lost_its_class_is_not_plainly_exposed() {
    let mut story = Story::exposed(by_ingress()).await;
    assert_eq!(
        (story.says().as_str(), class_of(&story)),
        (PLAIN, json!("public"))
    );
    // when the bucket no longer names a class; the default is not filled in on an update
    story.edit(json!({"spec": {"websiteExposure": {"ingress": {"ingressClassName": null}}}}));
    story.settle().await;
    // then
    assert_eq!(class_of(&story), Value::Null);
    let says = story.says();
    assert!(
        says.starts_with(&format!(
            "{PLAIN}; it names no class, and the default IngressClass public is filled in only"
        )),
        "{says}"
    );
    assert_eq!(missing(&story).len(), 1);
    // and the way that the message names helps
    story.server.delete("Ingress", "web", "blog-website");
    story.settle().await;
    assert_eq!(
        (story.says().as_str(), class_of(&story)),
        (PLAIN, json!("public"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_default_class_that_comes_later_is_not_that_of_an_ingress_without_one() {
    let server = server(false);
    server.delete("IngressClass", "", "public");
    put(&server, cluster());
    put(&server, bucket(json!({"ingress": {}})));
    let mut story = Story::on(server, &both()).await;
    story.settle().await;
    assert!(
        story.says().contains("no IngressClass is the default"),
        "{}",
        story.says()
    );
    story.server.create(class("public", true));
    story.settle().await;
    assert_eq!(class_of(&story), Value::Null);
    assert!(
        story
            .says()
            .contains("the default IngressClass public is filled in only when"),
        "{}",
        story.says()
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_by_annotation_is_a_class() {
    let exposure = json!({"ingress": {"annotations": {"kubernetes.io/ingress.class": "gce"}}});
    let mut story = Story::begin(false, &both(), [cluster(), bucket(exposure)]).await;
    assert_eq!(story.settle().await, INGRESS_CREATED);
    assert_eq!(story.says(), PLAIN);
    assert_eq!(class_of(&story), Value::Null);
    assert!(missing(&story).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_class_that_another_manager_sets_counts() {
    let server = server(false);
    server.delete("IngressClass", "", "public");
    server.create(class("other", false));
    put(&server, cluster());
    put(&server, bucket(json!({"ingress": {}})));
    let mut story = Story::on(server, &both()).await;
    story.settle().await;
    assert!(story.says().contains("it names no class"), "{}", story.says());
    let patch = json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "other"}}});
    story.server.edit("Ingress", "web", "blog-website", patch);
    story.settle().await;
    assert_eq!(story.says(), PLAIN);
}

#[tokio::test(start_paused = true)]
async fn where_classes_may_not_be_read_a_site_without_an_address_says_that_its_class_is_not_checked() {
    let mut narrow = both();
    narrow.scope = Scope::Namespaces(vec!["web".into()]);
    let exposure = json!({"ingress": {"ingressClassName": "publik"}});
    let mut story = Story::begin(false, &narrow, [cluster(), bucket(exposure)]).await;
    assert_eq!(
        story.settle().await,
        INGRESS_CREATED,
        "no warning: it may be right"
    );
    let says = story.says();
    assert!(
        says.starts_with(&format!("{PLAIN}; its IngressClass publik cannot be checked")),
        "{says}"
    );
    // when a controller gives it an address, then in the same write the rest of the message goes
    let address = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}});
    story.server.set_status("Ingress", "web", "blog-website", address);
    assert_eq!(story.settle().await, ["APPLY garagebuckets/status blog -> 200"]);
    assert_eq!(story.says(), PLAIN);
    assert_eq!(about(&story.server.calls(), "ingressclasses"), NOTHING);
}
