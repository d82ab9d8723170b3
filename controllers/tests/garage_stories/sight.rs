//! "Not watched", "not readable" and "not served" are not "absent": a bucket is let go only where its cluster is certainly
//! gone, and then an event says that the bucket stays.

use reconcile_kit::runtime::Scope;
use serde_json::{Value, json};

use super::{support::*, world::*};

/// The blog in namespace `storage`, with its cluster in `web`.
fn abroad(spec: Value) -> Value {
    let mut bucket = blog_with(spec);
    bucket["spec"]["clusterRef"] = json!({"name": "garage", "namespace": "web"});
    bucket["metadata"]["namespace"] = json!("storage");
    bucket
}

fn grant() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
        "metadata": {"namespace": "web", "name": "buckets"},
        "spec": {"from": [{"kind": "GarageBucket", "namespace": "storage"}]},
    })
}

fn there(story: &Story) -> Option<Value> {
    story.server.get("GarageBucket", "storage", "blog")
}

fn events(story: &Story, namespace: &str, reason: &str) -> Vec<String> {
    let events = story.server.list("Event", namespace);
    let of = events.iter().filter(|event| event["reason"] == reason);
    of.map(|event| event["note"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The bucket abroad is Ready, and then the operator is started for its own namespace only.
async fn narrowed(world: &World, spec: Value) -> Story {
    let mut story = world.story([token(TOKEN), handle(), grant(), abroad(spec)]).await;
    story.settle().await;
    let says = ready_of(there(&story).as_ref());
    assert!(says.starts_with("True/BucketReady: "), "{says}");
    let mut narrow = flags();
    narrow.scope = Scope::Namespaces(vec!["storage".into()]);
    story.restart(&narrow).await;
    story
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_not_watched_is_told_and_keeps_the_object() {
    let world = World::new();
    let mut story = narrowed(&world, json!({})).await;
    // It is not the grant that is missing.
    let says = ready_of(there(&story).as_ref());
    assert!(
        says.starts_with(
            "False/ClusterNotVisible: GarageCluster web/garage: namespace web is not watched: add it to"
        ),
        "{says}"
    );
    world.calls();
    story.server.delete("GarageBucket", "storage", "blog");
    story.settle().await;
    let says = ready_of(there(&story).as_ref());
    assert!(
        says.contains("is not removed") && says.contains("deletionPolicy: Retain"),
        "{says}"
    );
    let held = events(&story, "storage", "DeletionHeld");
    assert!(
        held.len() == 1 && held[0].contains("--watch-namespaces"),
        "{held:?}"
    );
    assert_eq!(world.calls(), NOTHING);
    // when it is watched again, then it goes with its bucket
    story.restart(&flags()).await;
    story.settle().await;
    assert!(there(&story).is_none());
    assert!(world.buckets().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn retain_is_the_other_way_out() {
    let world = World::new();
    let mut story = narrowed(&world, json!({})).await;
    story.server.delete("GarageBucket", "storage", "blog");
    story.settle().await;
    assert!(there(&story).is_some());
    let retain = json!({"spec": {"deletionPolicy": "Retain"}});
    story.server.edit("GarageBucket", "storage", "blog", retain);
    story.settle().await;
    assert!(there(&story).is_none());
    assert_eq!(world.buckets().await.len(), 1);
}

/// A cluster that no longer fits its type, as an older CRD of another operator lets it in.
fn misfit(story: &Story) {
    let mut cluster = story.server.get("GarageCluster", "web", "garage").unwrap();
    cluster["spec"]["webApi"] = json!({"rootDomain": {"not": "a text"}});
    let mut crd = story
        .server
        .get(
            "CustomResourceDefinition",
            "",
            "garageclusters.garage.rajsingh.info",
        )
        .unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    story.server.update(crd);
    story.server.update(cluster);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_fit_its_type_keeps_the_object_too() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    story.stop().await;
    misfit(&story);
    delete(&story);
    story.restart(&flags()).await;
    assert!(story.server.get("GarageBucket", "web", "blog").is_some());
    let says = ready(&story);
    assert!(
        says.starts_with("False/ClusterNotVisible: GarageCluster web/garage: exists and cannot be read")
            && says.contains("webApi"),
        "{says}"
    );
    assert_eq!(events(&story, "web", "DeletionHeld").len(), 1);
    assert_eq!(world.calls(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_lets_the_object_go_and_the_bucket_that_stays_is_told() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    story.server.delete("GarageCluster", "web", "garage");
    story.settle().await;
    delete(&story);
    story.settle().await;
    assert!(story.server.get("GarageBucket", "web", "blog").is_none());
    let left = events(&story, "web", "LeftInGarage");
    let id = world.only().await.id;
    assert!(left.len() == 1 && left[0].contains(id.as_str()), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_is_gone_lets_the_object_go_and_one_without_our_version_does_not() {
    for gone in [true, false] {
        let world = World::new();
        let mut story = world.ready(blog()).await;
        let name = "garageclusters.garage.rajsingh.info";
        if gone {
            story.server.delete("CustomResourceDefinition", "", name);
            story.server.unserve("garage.rajsingh.info", "garageclusters");
        } else {
            let mut crd = story.server.get("CustomResourceDefinition", "", name).unwrap();
            crd["spec"]["versions"][0]["served"] = json!(false);
            story.server.update(crd);
        }
        story.pass(std::time::Duration::from_secs(120)).await;
        delete(&story);
        story.pass(std::time::Duration::from_secs(120)).await;
        let object = story.server.get("GarageBucket", "web", "blog");
        assert_eq!(object.is_none(), gone, "{:?}", world.calls());
        assert_eq!(events(&story, "web", "LeftInGarage").len(), usize::from(gone));
    }
}

/// The namespace controller takes Role and RoleBinding away before the last bucket is gone.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_goes_needs_only_the_right_to_patch_buckets() {
    for spec in [json!({}), json!({"deletionPolicy": "Retain"})] {
        let world = World::new();
        let mut scoped = flags();
        scoped.scope = Scope::Namespaces(vec!["storage".into(), "web".into()]);
        let server = server(false);
        for object in [token(TOKEN), handle(), grant(), abroad(spec.clone())] {
            put(&server, object);
        }
        let mut story = Story::beside(server, &scoped, Some(world.access())).await;
        story.settle().await;
        for (verb, resource) in [
            ("get", "*"),
            ("list", "*"),
            ("watch", "*"),
            ("create", "*"),
            ("patch", "garagebuckets/status"),
            ("patch", "events"),
        ] {
            story.server.deny_in("storage", OPERATOR, verb, resource);
        }
        story.server.delete("GarageBucket", "storage", "blog");
        story.settle().await;
        assert!(
            there(&story).is_none(),
            "{spec}: {}",
            ready_of(there(&story).as_ref())
        );
        assert_eq!(world.buckets().await.is_empty(), spec == json!({}));
    }
}
