//! Objects of several teams that record one bucket id: a claim counts only where it is certain that it is about the same
//! Garage.

use serde_json::{Value, json};

use super::{support::*, world::*};

/// A handle `storage/their-own`, Running by its own status, with this address.
fn their_handle(url: &str) -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "storage", "name": "their-own"},
        "spec": {"connectTo": {"adminApiEndpoint": url, "adminTokenSecretRef": {"name": "theirs"}}},
    })
}

/// A Secret that the handle names; what is in it is not what the Garage takes.
fn their_token() -> Value {
    let mut secret = token("wrong");
    secret["metadata"] = json!({"namespace": "storage", "name": "theirs"});
    secret
}

/// An older object of another team, which records the id of the blog's bucket.
async fn recorded_by_rival(world: &World, more: impl IntoIterator<Item = Value>) -> Story {
    let mut rival = blog();
    rival["metadata"] = json!({"namespace": "storage", "name": "rival"});
    rival["spec"]["clusterRef"] = json!({"name": "their-own"});
    let objects = [token(TOKEN), handle(), rival].into_iter().chain(more);
    let mut story = world.story(objects).await;
    story.settle().await;
    put(&story.server, blog());
    story.settle().await;
    assert!(ready(&story).starts_with("True/BucketReady"), "{}", ready(&story));
    // As an old copy has it, or as a server of their own said.
    let id = world.only().await.id;
    let status = json!({"bucketId": id.as_str()});
    story
        .server
        .set_status("GarageBucket", "storage", "rival", status);
    story.settle().await;
    story
}

async fn keeps_its_bucket(world: &World, story: &mut Story) {
    assert!(ready(story).starts_with("True/BucketReady"), "{}", ready(story));
    world.calls();
    story.edit(json!({"spec": {"website": {"enabled": false}}}));
    story.settle().await;
    assert!(
        world.calls().iter().any(|call| call.starts_with("UpdateBucket")),
        "it is changed as before"
    );
    delete(story);
    story.settle().await;
    assert!(world.buckets().await.is_empty(), "and goes with its object");
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_cluster_is_not_there_takes_no_bucket_from_its_holder() {
    let world = World::new();
    let mut story = recorded_by_rival(&world, []).await;
    keeps_its_bucket(&world, &mut story).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_takes_no_token_of_the_rival_takes_no_bucket_either() {
    let world = World::new();
    // The very address of the holder's Garage; the Secret is not there, so the handle is Pending.
    let theirs = their_handle("http://garage.example.com:3903");
    let mut story = recorded_by_rival(&world, [theirs]).await;
    keeps_its_bucket(&world, &mut story).await;
}

#[tokio::test(start_paused = true)]
async fn a_verified_handle_of_the_same_garage_still_counts() {
    let world = World::new();
    let theirs = their_handle("http://GARAGE.example.com:3903/");
    let mut story = recorded_by_rival(&world, [theirs]).await;
    // when the address takes their token, then the older object has the bucket, and the other is woken to say so
    put(&story.server, their_token());
    story.pass(std::time::Duration::from_secs(120)).await;
    assert!(
        ready(&story).starts_with("False/BucketClaimed"),
        "{}",
        ready(&story)
    );
    // and when it no longer does, the bucket is free again
    story.server.delete("Secret", "storage", "theirs");
    story.pass(std::time::Duration::from_secs(120)).await;
    assert!(ready(&story).starts_with("True/BucketReady"), "{}", ready(&story));
}
