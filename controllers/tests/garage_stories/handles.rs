//! A connect-only cluster becomes Running and stops being it; a cluster with tiers is not ours.

use std::time::Duration;

use routewright::garage::{
    admin::{Call, ClusterHealth},
    testing::FakeGarage,
};
use serde_json::{Value, json};

use super::{support::*, world::*};

fn cluster(story: &Story) -> Option<Value> {
    story.server.get("GarageCluster", "web", "garage")
}

fn says(story: &Story) -> (Value, String) {
    let cluster = cluster(story);
    let phase = cluster.as_ref().map(|c| c["status"]["phase"].clone());
    (phase.unwrap_or_default(), ready_of(cluster.as_ref()))
}

async fn turns(story: &mut Story, phase: &str) -> String {
    for _ in 0..20 {
        let (now, condition) = says(story);
        if now == phase {
            return condition;
        }
        story.pass(Duration::from_secs(10)).await;
    }
    panic!("never {phase}: {:?}", says(story));
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_answers_is_running_and_then_costs_one_look_a_minute() {
    let world = World::new();
    let mut story = world.story([token(TOKEN), handle()]).await;
    assert_eq!(
        story.settle().await,
        [
            "GET secrets garage-admin -> 200",
            "APPLY garageclusters/status garage -> 200",
            "EVENT Normal AdminAPIReachable",
        ]
    );
    assert_eq!(says(&story).0, "Running");
    world.calls();
    let calls = lines(&story.pass(Duration::from_secs(600)).await);
    assert!((9..=12).contains(&world.probes()), "{} probes", world.probes());
    assert_eq!(calls.len(), world.probes());
    assert_eq!(writes(calls), NOTHING);
    // Its finalizer would be in the way of nothing, so there is none.
    assert_eq!(cluster(&story).unwrap()["metadata"]["finalizers"], Value::Null);
    assert_eq!(writes(story.restart(&flags()).await), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_the_token_is_said_and_heals() {
    let world = World::new();
    let mut story = world.story([handle()]).await;
    assert_eq!(
        says(&story),
        (
            json!("Pending"),
            "False/TokenNotFound: spec.connectTo.adminTokenSecretRef: Secret garage-admin does not exist in this namespace"
                .to_owned()
        )
    );
    story.settle().await;
    assert_eq!(
        after(&mut story, 300).await,
        NOTHING,
        "and no word more while nothing changes"
    );

    put(&story.server, token("another-t0ken"));
    story.pass(Duration::from_secs(70)).await;
    let (phase, condition) = says(&story);
    assert_eq!(phase, "Pending");
    assert!(condition.starts_with("False/Unauthorized: "), "{condition}");
    assert!(!condition.contains("another-t0ken"), "{condition}");

    story.server.delete("Secret", "web", "garage-admin");
    put(&story.server, token(TOKEN));
    assert!(
        turns(&mut story, "Running")
            .await
            .starts_with("True/AdminAPIReachable: ")
    );

    world.shut(true);
    assert!(
        turns(&mut story, "Pending")
            .await
            .starts_with("False/AdminAPIUnreachable: ")
    );
    world.shut(false);
    turns(&mut story, "Running").await;

    story.server.delete("Secret", "web", "garage-admin");
    assert!(
        turns(&mut story, "Pending")
            .await
            .starts_with("False/TokenNotFound: ")
    );
}

#[tokio::test(start_paused = true)]
async fn a_garage_without_a_layout_is_running_and_says_so() {
    let world = World::new();
    world.garage.set_health(ClusterHealth {
        status: "unavailable".into(),
        partitions: 0,
        partitions_quorum: 0,
    });
    let story = world.story([token(TOKEN), handle()]).await;
    let (phase, condition) = says(&story);
    assert_eq!(phase, "Running");
    assert!(condition.contains("no layout"), "{condition}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_tiers_and_a_handle_that_is_going_are_left_alone() {
    for (object, deleted) in [(super::support::cluster(), false), (handle(), true)] {
        let world = World::new();
        let mut object = object;
        object["metadata"]["finalizers"] = json!(["example.org/held"]);
        object["status"] = json!({"phase": "Pending"});
        let server = server(false);
        put(&server, token(TOKEN));
        put(&server, object);
        if deleted {
            server.delete("GarageCluster", "web", "garage");
        }
        let mut story = Story::beside(server, &flags(), Some(world.access())).await;
        assert_eq!(story.settle().await, NOTHING);
        assert_eq!(lines(&story.pass(Duration::from_secs(300)).await), NOTHING);
        assert_eq!(world.probes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_operator_writes_is_not_fought_over() {
    let world = World::new();
    let server = server(false);
    put(&server, token(TOKEN));
    let mut object = handle();
    object["status"] = json!({"phase": "Failed"});
    put(&server, object);
    let mut story = Story::beside(server, &flags(), Some(world.access())).await;
    story.settle().await;
    assert_eq!(says(&story).0, "Failed");
    let calls = after(&mut story, 1800).await;
    assert!(calls.len() <= 1, "said once: {calls:#?}");
}

#[tokio::test(start_paused = true)]
async fn with_the_flag_off_nobody_is_asked() {
    let world = World::new();
    let server = server(false);
    for object in [token(TOKEN), handle(), blog()] {
        put(&server, object);
    }
    let mut story = Story::beside(server, &options(), Some(world.access())).await;
    assert_eq!(story.settle().await, NOTHING);
    assert_eq!(lines(&story.pass(Duration::from_secs(600)).await), NOTHING);
    let none: &FakeGarage = &world.garage;
    assert!(none.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_read_the_secret_is_said_once_and_heals() {
    let world = World::new();
    let server = server(false);
    let denied = server.deny(OPERATOR, "get", "secrets");
    put(&server, token(TOKEN));
    put(&server, handle());
    let mut story = Story::beside(server, &flags(), Some(world.access())).await;
    story.settle().await;
    let (phase, condition) = says(&story);
    assert_eq!(phase, "Pending");
    assert!(
        condition
            .starts_with("False/TokenUnreadable: spec.connectTo.adminTokenSecretRef: Secret garage-admin ")
            && condition.contains("forbidden"),
        "{condition}"
    );
    let calls = lines(&story.pass(Duration::from_secs(600)).await);
    assert!((9..=12).contains(&calls.len()), "one try a minute: {calls:#?}");
    assert_eq!(writes(calls), NOTHING);
    story.server.undeny(denied);
    turns(&mut story, "Running").await;
}

/// The handle `web/garage` with only a reference, in place of an address.
fn referring(to: &str) -> Value {
    let mut handle = handle();
    handle["spec"]["connectTo"] = json!({"clusterRef": {"name": to}});
    handle
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_refers_to_a_cluster_uses_that_ones_address_and_token() {
    let mut target = tiers();
    target["metadata"]["name"] = json!("real");
    target["status"] = json!({"phase": "Degraded"});
    let world = World::new();
    let mut story = world
        .story([token(TOKEN), target, referring("real"), blog()])
        .await;
    story.settle().await;
    assert_eq!(
        says(&story),
        (
            json!("Running"),
            "True/AdminAPIReachable: Garage Admin API http://real.web.svc.cluster.local:3903 answers"
                .to_owned()
        )
    );
    assert_eq!(ready(&story), "True/BucketReady: Garage holds what is wanted");
    assert_eq!(world.buckets().await, [["blog"]]);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_refers_to_nothing_says_so_and_wakes_with_its_target() {
    let world = World::new();
    let mut story = world.story([token(TOKEN), referring("real")]).await;
    story.settle().await;
    assert_eq!(
        says(&story),
        (
            json!("Pending"),
            "False/ClusterNotFound: spec.connectTo.clusterRef: GarageCluster real does not exist in this namespace; create \
             it, or set adminApiEndpoint and adminTokenSecretRef"
                .to_owned()
        )
    );
    // A target that lacks something is named, in the words of its own spec
    let mut target = super::support::cluster();
    target["metadata"]["name"] = json!("real");
    put(&story.server, target);
    story.settle().await;
    assert_eq!(
        says(&story).1,
        "False/InvalidSpec: spec.connectTo.clusterRef: GarageCluster real: spec.admin.adminTokenSecretRef: is needed; it \
         names the Secret with the admin token"
    );
    let named = json!({"spec": {"admin": {"adminTokenSecretRef": {"name": "garage-admin"}}}});
    story.server.edit("GarageCluster", "web", "real", named);
    story.settle().await;
    assert_eq!(says(&story).0, "Running", "{}", says(&story).1);
    story.server.delete("GarageCluster", "web", "real");
    story.settle().await;
    assert_eq!(says(&story).0, "Pending");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_may_not_ask_for_health_serves_its_buckets_all_the_same() {
    let world = World::new();
    world.lacks(&[Call::GetClusterHealth]);
    let mut story = world.story([token(TOKEN), handle(), blog()]).await;
    story.settle().await;
    let (phase, condition) = says(&story);
    assert_eq!(phase, "Running");
    assert!(
        condition.starts_with("True/AdminAPIReachable: ") && condition.contains("lacks GetClusterHealth"),
        "{condition}"
    );
    assert!(ready(&story).starts_with("True/BucketReady"), "{}", ready(&story));
    // A token that may read nothing is refused as before.
    world.lacks(&[Call::GetClusterHealth, Call::GetBucketInfo]);
    let condition = turns(&mut story, "Pending").await;
    assert!(condition.starts_with("False/Unauthorized: "), "{condition}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_may_not_delete_names_the_other_way_out() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    world.lacks(&[Call::DeleteBucket]);
    delete(&story);
    story.settle().await;
    let says = ready(&story);
    assert!(
        says.starts_with("False/ReconcileFailed: ") && says.contains("spec.deletionPolicy: Retain"),
        "{says}"
    );
    story.edit(json!({"spec": {"deletionPolicy": "Retain"}}));
    story.settle().await;
    assert!(story.server.get("GarageBucket", "web", "blog").is_none());
    assert_eq!(world.buckets().await.len(), 1);
}
