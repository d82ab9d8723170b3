//! A bucket comes, changes and goes: what is written on it, what is asked of Garage, and in which order.

use std::time::Duration;

use reconcile_kit::testing::{Fault, Matcher, Times};
use routewright::garage::admin::{BucketQuotas, GarageAdmin as _, WebsiteDocuments};
use serde_json::{Value, json};

use super::{support::*, world::*};

/// Annotations that this operator wrote come back as a change of the object.
const LOOKED_AGAIN: &str = "GetBucketInfo";
const DELETED: [&str; 1] = ["PATCH(merge) garagebuckets blog -> 200"];

fn status(story: &Story, field: &str) -> Value {
    story.bucket()["status"][field].clone()
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_made_in_two_phases_and_then_costs_one_look_in_five_minutes() {
    let world = World::new();
    let mut story = world.story([token(TOKEN), handle()]).await;
    story.settle().await;
    put(&story.server, blog());
    assert_eq!(
        story.settle().await,
        [
            // finalizer, reservation, id, alias, what came of it
            "PATCH(merge) garagebuckets blog -> 200",
            "PATCH(merge) garagebuckets blog -> 200",
            "PATCH(merge) garagebuckets/status blog -> 200",
            "PATCH(merge) garagebuckets blog -> 200",
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal BucketReady",
        ]
    );
    assert_eq!(
        world.calls(),
        [
            "GetBucketInfo blog",
            "GetBucketInfo garage-rsv-…",
            "CreateBucket garage-rsv-…",
            "AddBucketAlias blog",
            "RemoveBucketAlias garage-rsv-…",
            "UpdateBucket",
            LOOKED_AGAIN,
        ]
    );
    let bucket = world.only().await;
    assert_eq!(bucket.global_aliases, ["blog"]);
    assert_eq!(
        story.bucket()["metadata"]["finalizers"],
        json!(["routewright.dev/garage-bucket"])
    );
    let mut shown = story.bucket()["status"].clone();
    let conditions = shown.as_object_mut().unwrap().remove("conditions").unwrap();
    assert_eq!(
        shown,
        json!({
            "bucketId": bucket.id.as_str(), "globalAlias": "blog", "phase": "Ready",
            "createdAt": "2026-01-01T00:00:00Z", "size": "0 B",
            "websiteEnabled": true, "websiteUrl": "http://blog.site.test",
            "websiteConfig": {"indexDocument": "index.html"},
            "quotaUsage": {"sizeBytes": 0, "objectCount": 0},
        })
    );
    assert_eq!(
        conditions[0]["observedGeneration"],
        story.bucket()["metadata"]["generation"]
    );
    world.calls();

    assert_eq!(after(&mut story, 3000).await, NOTHING);
    let polls = world.calls();
    assert!((9..=11).contains(&polls.len()), "{polls:?}");
    assert!(polls.iter().all(|call| call == "GetBucketInfo"), "{polls:?}");

    assert_eq!(writes(story.restart(&flags()).await), NOTHING);
    assert_eq!(world.calls(), ["GetBucketInfo"], "a restart compares once");
}

#[tokio::test(start_paused = true)]
async fn each_change_of_the_spec_reaches_garage_once() {
    let world = World::new();
    let mut story = world.ready(blog()).await;

    story.edit(json!({"spec": {"globalAlias": "weblog"}}));
    assert_eq!(
        written(&mut story).await,
        [
            "PATCH(merge) garagebuckets blog -> 200",
            "PATCH(merge) garagebuckets blog -> 200",
            "APPLY garagebuckets/status blog -> 200",
        ],
        "the new name is written down before it is bound, the old one forgotten after it was taken away"
    );
    assert_eq!(
        world.calls(),
        [
            "GetBucketInfo",
            "AddBucketAlias weblog",
            "RemoveBucketAlias blog",
            LOOKED_AGAIN
        ]
    );
    assert_eq!(status(&story, "globalAlias"), "weblog");
    assert_eq!(status(&story, "websiteUrl"), "http://weblog.site.test");

    story.edit(json!({"spec": {
        "website": {"errorDocument": "404.html"}, "quotas": {"maxSize": "1Gi", "maxObjects": 5},
    }}));
    assert_eq!(
        written(&mut story).await,
        ["APPLY garagebuckets/status blog -> 200"]
    );
    assert_eq!(
        world.calls(),
        ["GetBucketInfo", "UpdateBucket"],
        "one call for both"
    );
    let bucket = world.only().await;
    assert_eq!(
        bucket.website_config,
        Some(WebsiteDocuments {
            index_document: "index.html".into(),
            error_document: Some("404.html".into())
        })
    );
    assert_eq!(
        bucket.quotas,
        BucketQuotas {
            max_size: Some(1 << 30),
            max_objects: Some(5)
        }
    );
    world.calls();

    story.edit(json!({"spec": {"website": {"enabled": false}}}));
    assert_eq!(
        written(&mut story).await,
        ["APPLY garagebuckets/status blog -> 200"]
    );
    assert_eq!(world.calls(), ["GetBucketInfo", "UpdateBucket"]);
    assert!(!world.only().await.website_access);
    world.calls();
    assert_eq!(status(&story, "websiteEnabled"), false);
    assert_eq!(status(&story, "websiteUrl"), Value::Null);
    assert_eq!(status(&story, "websiteConfig"), Value::Null);
    assert_eq!(writes(story.restart(&flags()).await), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_in_garage_is_set_back_at_the_next_look() {
    use routewright::garage::admin::{BucketUpdate, GarageAdmin, WebsiteUpdate};
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    let off = BucketUpdate {
        website: Some(WebsiteUpdate::Disable),
        quotas: None,
    };
    world.garage.update_bucket(&id, &off).await.unwrap();
    world.calls();
    assert_eq!(
        after(&mut story, 340).await,
        NOTHING,
        "status says already what is true again"
    );
    assert_eq!(world.calls()[..2], ["GetBucketInfo", "UpdateBucket"]);

    world.garage.lose(&id);
    after(&mut story, 340).await;
    assert_eq!(phase(&story), "Failed");
    assert!(
        ready(&story).starts_with("False/BucketLost: status.bucketId: "),
        "{}",
        ready(&story)
    );
    assert!(world.buckets().await.is_empty(), "nothing is made in its place");
}

#[tokio::test(start_paused = true)]
async fn figures_are_shown_when_they_say_something() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    world.garage.set_content(&id, 1000, 100_000);
    let calls = after(&mut story, 1300).await;
    assert_eq!(calls, ["APPLY garagebuckets/status blog -> 200"]);
    assert_eq!(status(&story, "size"), "97.6 KiB");
    world.garage.set_content(&id, 1000, 100_001);
    assert_eq!(after(&mut story, 3600).await, NOTHING, "less than 1 %");
    world.garage.set_content(&id, 2000, 100_001);
    assert_eq!(
        after(&mut story, 1300).await,
        ["APPLY garagebuckets/status blog -> 200"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_goes_with_its_object() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    delete(&story);
    gone(&story).await;
    assert_eq!(written(&mut story).await, DELETED);
    // A creation whose answer was lost may have happened after all, late.
    assert_eq!(world.calls(), ["DeleteBucket", "GetBucketInfo garage-rsv-…"]);
    assert!(world.buckets().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bucket_with_objects_stays_until_it_is_empty() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    world.garage.set_content(&id, 1, 5);
    world.calls();
    delete(&story);
    assert_eq!(
        written(&mut story).await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal BucketNotEmpty"
        ]
    );
    assert_eq!(phase(&story), "Deleting");
    assert!(
        ready(&story).starts_with("False/BucketNotEmpty: spec.deletionPolicy: "),
        "{}",
        ready(&story)
    );
    assert_eq!(after(&mut story, 300).await, NOTHING);
    let tries = world.calls();
    assert!((4..=7).contains(&tries.len()), "{tries:?}");
    world.garage.set_content(&id, 0, 0);
    gone(&story).await;
    assert!(world.buckets().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retained_bucket_is_not_touched_even_if_nobody_could_reach_it() {
    for unreachable in [false, true] {
        let world = World::new();
        let mut story = world.ready(blog_with(json!({"deletionPolicy": "Retain"}))).await;
        if unreachable {
            story.server.delete("Secret", "web", "garage-admin");
            story.pass(Duration::from_secs(70)).await;
        }
        world.calls();
        delete(&story);
        gone(&story).await;
        assert_eq!(world.calls(), NOTHING);
        assert_eq!(world.buckets().await, [["blog"]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_never_came_to_be_goes_without_a_garage() {
    let world = World::new();
    let mut story = world.story([handle(), blog()]).await;
    story.settle().await;
    assert_eq!(phase(&story), "Pending");
    assert_eq!(
        story.bucket()["metadata"]["finalizers"],
        json!(["routewright.dev/garage-bucket"])
    );
    delete(&story);
    gone(&story).await;
    assert_eq!(world.calls(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn with_its_cluster_gone_a_bucket_goes_too() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    story.server.delete("GarageCluster", "web", "garage");
    story.settle().await;
    assert_eq!(
        phase(&story),
        "Ready",
        "nothing is known of the bucket but what was known"
    );
    assert_eq!(
        ready(&story),
        "False/ClusterNotReady: GarageCluster web/garage: not found; create it or correct spec.clusterRef"
    );
    delete(&story);
    gone(&story).await;
    assert_eq!(world.calls(), NOTHING);
    assert_eq!(world.buckets().await, [["blog"]], "nobody is left to be asked");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_of_another_operator_is_not_touched_by_any_word() {
    for deleted in [false, true] {
        let world = World::new();
        let mut bucket = blog();
        bucket["metadata"]["finalizers"] = json!(["garagebucket.garage.rajsingh.info/finalizer"]);
        let mut story = world.story([token(TOKEN), handle(), bucket]).await;
        story.settle().await;
        if deleted {
            delete(&story);
        } else {
            story.edit(json!({"spec": {"globalAlias": "weblog"}}));
        }
        assert_eq!(written(&mut story).await, NOTHING);
        assert_eq!(after(&mut story, 900).await, NOTHING);
        assert_eq!(world.calls(), NOTHING);
        assert_eq!(story.bucket()["status"], Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn a_taken_alias_is_refused_without_a_trace_in_garage_and_heals() {
    use routewright::garage::admin::GarageAdmin;
    let world = World::new();
    let other = world.garage.create_bucket("blog").await.unwrap();
    let mut story = world.story([token(TOKEN), handle(), blog()]).await;
    story.settle().await;
    assert_eq!(phase(&story), "Failed");
    assert!(
        ready(&story).starts_with("False/AliasTaken: metadata.name: "),
        "{}",
        ready(&story)
    );
    assert!(
        !ready(&story).contains(other.id.as_str()),
        "who knows the id could adopt it"
    );
    assert_eq!(world.buckets().await, [["blog"]]);
    world.garage.lose(&other.id);
    after(&mut story, 340).await;
    assert_eq!(phase(&story), "Ready");
}

#[tokio::test(start_paused = true)]
async fn an_alias_that_is_taken_while_the_bucket_is_made_costs_no_record_of_it() {
    use routewright::garage::{
        admin::{AdminErrorClass, Call},
        testing::Fault,
    };
    let world = World::new();
    for _ in 0..8 {
        let fault = Fault::Before(AdminErrorClass::AliasTaken);
        world.garage.fail(Call::AddBucketAlias, fault);
    }
    let mut story = world.story([token(TOKEN), handle(), blog()]).await;
    story.settle().await;
    assert_eq!(phase(&story), "Failed");
    assert!(
        ready(&story).starts_with("False/AliasTaken: "),
        "{}",
        ready(&story)
    );
    let made = status(&story, "bucketId");
    assert_eq!(
        made,
        world.only().await.id.as_str(),
        "what was made stays recorded"
    );
    after(&mut story, 8 * 340).await;
    assert_eq!(phase(&story), "Ready");
    assert_eq!(
        made,
        world.only().await.id.as_str(),
        "and is the one that is used"
    );
}

#[tokio::test(start_paused = true)]
async fn two_objects_do_not_have_one_bucket() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    let mut second = blog_with(json!({"bucketId": id.as_str(), "globalAlias": "second"}));
    second["metadata"]["name"] = json!("second");
    put(&story.server, second);
    story.settle().await;
    let second = story.server.get("GarageBucket", "web", "second");
    assert_eq!(
        ready_of(second.as_ref()),
        "False/BucketClaimed: spec.bucketId: GarageBucket web/blog already has this bucket"
    );
    story.server.delete("GarageBucket", "web", "second");
    eventually(&story.server, "the end of the second", || {
        story
            .server
            .get("GarageBucket", "web", "second")
            .is_none()
            .then_some(())
    })
    .await;
    assert_eq!(world.buckets().await, [["blog"]]);
}

/// A second object that records the same bucket: adopted at the same moment, or restored from a backup.
fn second(story: &Story, id: &str, spec: Value) {
    let mut second = blog_with(spec);
    second["metadata"]["name"] = json!("second");
    second["spec"]["bucketId"] = json!(id);
    second["spec"]["globalAlias"] = json!("second");
    second["status"] = json!({"bucketId": id});
    put(&story.server, second);
}

#[tokio::test(start_paused = true)]
async fn of_two_objects_that_record_one_bucket_the_older_has_it_and_the_other_changes_nothing() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.calls();
    // Given a younger object that says the opposite about the website
    second(&story, id.as_str(), json!({"website": {"enabled": false}}));
    story.settle().await;
    let says = |story: &Story| ready_of(story.server.get("GarageBucket", "web", "second").as_ref());
    assert_eq!(
        says(&story),
        "False/BucketClaimed: status.bucketId: the older GarageBucket web/blog has this bucket too and keeps it; this \
         object changes nothing in Garage. Delete it, which leaves the bucket alone, or delete the other one"
    );
    // then it says so once, and nobody's settings are fought over
    assert_eq!(after(&mut story, 1200).await, NOTHING);
    assert!(world.garage.writes().is_empty(), "{:?}", world.calls());
    let bucket = world.only().await;
    assert!(bucket.website_access && bucket.global_aliases == ["blog"]);
    assert_eq!(ready(&story), "True/BucketReady: Garage holds what is wanted");

    // when the older one is deleted, then it leaves the bucket to the other, which looks at once
    delete(&story);
    gone(&story).await;
    story.settle().await;
    assert_eq!(says(&story), "True/BucketReady: Garage holds what is wanted");
    let bucket = world.only().await;
    assert_eq!(bucket.id, id);
    assert!(!bucket.website_access && bucket.has_alias("second"));
}

#[tokio::test(start_paused = true)]
async fn the_younger_of_two_goes_without_the_bucket_and_both_go_with_it() {
    for both in [false, true] {
        let world = World::new();
        let mut story = world.ready(blog()).await;
        let id = world.only().await.id;
        tokio::time::sleep(Duration::from_secs(2)).await;
        second(&story, id.as_str(), json!({}));
        story.settle().await;
        if both {
            world.shut(true);
            delete(&story);
        }
        story.server.delete("GarageBucket", "web", "second");
        story.settle().await;
        world.shut(false);
        story.pass(Duration::from_secs(400)).await;
        assert_eq!(
            story.server.get("GarageBucket", "web", "second"),
            None,
            "both {both}"
        );
        assert_eq!(story.server.get("GarageBucket", "web", "blog").is_none(), both);
        assert_eq!(world.buckets().await.is_empty(), both);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_adopted_twice_at_once_is_worked_at_by_one_object_only() {
    // Whose record lands first is chance: none is slow, or the one of either is.
    for slow in [None, Some("blog"), Some("second")] {
        // Given a bucket that nobody has
        let world = World::new();
        let mut story = world.story([token(TOKEN), handle()]).await;
        story.settle().await;
        let id = world.garage.create_bucket("shared").await.unwrap().id;
        world.calls();
        if let Some(name) = slow {
            let record = Matcher::writes()
                .user(OPERATOR)
                .resource("garagebuckets/status")
                .name(name);
            story
                .server
                .fault(record, Fault::Delay(Duration::from_millis(500)), Times::Count(1));
        }
        // when two objects reach for it in the same moment
        for name in ["blog", "second"] {
            let mut bucket = blog_with(json!({"bucketId": id.as_str(), "globalAlias": name}));
            bucket["metadata"]["name"] = json!(name);
            put(&story.server, bucket);
        }
        story.pass(Duration::from_secs(400)).await;
        // then one of them has it, the other is told so and has left no trace on it
        let says = |name: &str| ready_of(story.server.get("GarageBucket", "web", name).as_ref());
        let has = |name: &&str| says(name).starts_with("True/BucketReady: ");
        let (winner, loser) = if has(&"blog") {
            ("blog", "second")
        } else {
            ("second", "blog")
        };
        assert!(has(&winner), "{slow:?}: {}", says(winner));
        assert!(
            says(loser).starts_with("False/BucketClaimed: "),
            "{slow:?}: {}",
            says(loser)
        );
        let mut aliases = ["shared", winner];
        aliases.sort_unstable();
        assert_eq!(world.only().await.global_aliases, aliases, "{slow:?}");
        let bound: Vec<String> = world.calls();
        assert!(
            !bound.iter().any(|c| c.contains(&format!("Alias {loser}"))),
            "{slow:?}: {bound:?}"
        );
        // and when that one goes, the bucket stays, and its alias too
        story.server.delete("GarageBucket", "web", loser);
        story.pass(Duration::from_secs(60)).await;
        assert_eq!(story.server.get("GarageBucket", "web", loser), None, "{slow:?}");
        assert_eq!(world.only().await.global_aliases, aliases, "{slow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_go_one_after_the_other_each_does_not_leave_the_bucket_to_the_other() {
    // Given two objects that record one bucket, and the older one goes and leaves it to the younger
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    second(&story, id.as_str(), json!({}));
    story.settle().await;
    let slow = Matcher::writes()
        .user(OPERATOR)
        .resource("garagebuckets")
        .name("blog");
    story
        .server
        .fault(slow, Fault::Delay(Duration::from_secs(3)), Times::Count(1));
    delete(&story);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // when the younger one is deleted while the older is still seen on its way out
    story.server.delete("GarageBucket", "web", "second");
    story.pass(Duration::from_secs(400)).await;
    // then the bucket goes with the last of them
    assert_eq!(story.server.get("GarageBucket", "web", "blog"), None);
    assert_eq!(story.server.get("GarageBucket", "web", "second"), None);
    assert_eq!(world.buckets().await, Vec::<Vec<String>>::new());
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_found_to_be_claimed_through_another_handle_of_the_same_garage() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut other = handle();
    other["metadata"]["name"] = json!("other");
    other["spec"]["connectTo"] = json!({"clusterRef": {"name": "garage"}});
    put(&story.server, other);
    second(&story, id.as_str(), json!({"clusterRef": {"name": "other"}}));
    story.pass(Duration::from_secs(70)).await;
    let says = ready_of(story.server.get("GarageBucket", "web", "second").as_ref());
    assert!(says.starts_with("False/BucketClaimed: "), "{says}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_placed_keeps_no_bucket_from_others_until_it_can() {
    // Given a bucket through a handle that is gone since
    let world = World::new();
    let mut story = world.ready(blog()).await;
    let id = world.only().await.id;
    story.server.delete("GarageCluster", "web", "garage");
    story.settle().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // When another object reaches for it through another handle of that Garage
    let mut other = handle();
    other["metadata"]["name"] = json!("other");
    put(&story.server, other);
    second(&story, id.as_str(), json!({"clusterRef": {"name": "other"}}));
    story.pass(Duration::from_secs(70)).await;
    // Then it has the bucket
    let second = |story: &Story| ready_of(story.server.get("GarageBucket", "web", "second").as_ref());
    assert!(
        second(&story).starts_with("True/BucketReady: "),
        "{}",
        second(&story)
    );
    // And when the older object's cluster is back, that one has it again
    put(&story.server, handle());
    story.pass(Duration::from_secs(70)).await;
    assert!(
        second(&story).starts_with("False/BucketClaimed: "),
        "{}",
        second(&story)
    );
    assert!(
        ready(&story).starts_with("True/BucketReady: "),
        "{}",
        ready(&story)
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_spec_asks_for_and_nobody_does_is_refused_before_anything_is_done() {
    for (spec, field) in [
        (
            json!({"localAliases": [{"keyRef": "app", "alias": "data"}]}),
            "spec.localAliases",
        ),
        (
            json!({"keyPermissions": [{"keyRef": {"name": "app"}, "read": true}]}),
            "spec.keyPermissions",
        ),
    ] {
        let world = World::new();
        let mut story = world.story([token(TOKEN), handle(), blog_with(spec)]).await;
        story.settle().await;
        let says = ready(&story);
        assert!(
            says.starts_with(&format!("False/Unsupported: {field}: ")),
            "{says}"
        );
        assert!(says.contains("Remove the field"), "{says}");
        assert_eq!(phase(&story), "Failed");
        assert!(world.garage.writes().is_empty() && world.buckets().await.is_empty());
        assert_eq!(after(&mut story, 600).await, NOTHING, "said once");
        story.edit(json!({"spec": {"localAliases": null, "keyPermissions": null}}));
        story.settle().await;
        assert_eq!(phase(&story), "Ready");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_of_objects_are_passed_over_in_the_open() {
    let world = World::new();
    let rules = json!({"lifecycle": {"rules": [{"id": "old", "expirationDays": 3}]}});
    let mut story = world.story([token(TOKEN), handle(), blog_with(rules)]).await;
    let calls = story.settle().await;
    assert_eq!(phase(&story), "Ready");
    let said = |calls: &[String]| {
        calls
            .iter()
            .filter(|c| *c == "EVENT Warning FieldNotManaged")
            .count()
    };
    assert_eq!(said(&calls), 1, "{calls:#?}");
    assert_eq!(after(&mut story, 1200).await, NOTHING, "and once only");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_takes_effect_late_leaves_nothing_behind() {
    use routewright::garage::{
        admin::{AdminErrorClass, Call, GarageAdmin},
        testing::Fault,
    };
    // Given a creation that is not answered, and whose object is deleted at once
    let world = World::new();
    world
        .garage
        .fail(Call::CreateBucket, Fault::Before(AdminErrorClass::Timeout));
    let mut story = world.story([token(TOKEN), handle()]).await;
    story.settle().await;
    put(&story.server, blog());
    let server = story.server.clone();
    eventually(&server, "the creation", || {
        world.garage.writes().contains(&Call::CreateBucket).then_some(())
    })
    .await;
    let reservation = world.garage.log().last().unwrap().1.clone();
    delete(&story);
    // When there is no bucket to be found, then the object does not go yet
    eventually(&server, "the word about it", || {
        ready(&story)
            .starts_with("False/CreationUnanswered: status.bucketId: ")
            .then_some(())
    })
    .await;
    assert_eq!(phase(&story), "Deleting");
    // but the bucket comes into being after all
    world.garage.create_bucket(&reservation).await.unwrap();
    assert_eq!(world.buckets().await.len(), 1);
    // then it is found before the object goes
    gone(&story).await;
    assert_eq!(world.buckets().await, Vec::<Vec<String>>::new());
}

#[tokio::test(start_paused = true)]
async fn a_second_bucket_that_a_lost_creation_made_goes_at_the_next_look() {
    use routewright::garage::{
        admin::{AdminErrorClass, Call, GarageAdmin},
        testing::Fault,
    };
    // Given a creation that was not answered, and one that was
    let world = World::new();
    let fault = Fault::Before(AdminErrorClass::Timeout);
    world.garage.fail(Call::CreateBucket, fault);
    let mut story = world.story([token(TOKEN), handle(), blog()]).await;
    story.pass(Duration::from_secs(20)).await;
    assert_eq!(phase(&story), "Ready");
    let log = world.garage.log();
    let reservation = log
        .iter()
        .find(|(call, _)| *call == Call::CreateBucket)
        .unwrap()
        .1
        .clone();
    // when the first one takes effect after all
    world.garage.create_bucket(&reservation).await.unwrap();
    assert_eq!(world.buckets().await.len(), 2);
    // then the second bucket is discarded, and the look for it is made once
    story.pass(Duration::from_secs(340)).await;
    assert_eq!(world.buckets().await, [["blog"]]);
    world.calls();
    story.pass(Duration::from_secs(1000)).await;
    let calls = world.calls();
    assert!(calls.iter().all(|call| call == "GetBucketInfo"), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn from_another_namespace_only_a_grant_lets_a_bucket_be_made() {
    let world = World::new();
    let mut bucket = blog_with(json!({"clusterRef": {"name": "garage", "namespace": "web"}}));
    bucket["metadata"]["namespace"] = json!("storage");
    let mut story = world.story([token(TOKEN), handle(), bucket]).await;
    story.settle().await;
    let says = |story: &Story| ready_of(story.server.get("GarageBucket", "storage", "blog").as_ref());
    assert!(
        says(&story).starts_with("False/GrantDenied: "),
        "{}",
        says(&story)
    );
    assert!(
        says(&story).contains("create a GarageReferenceGrant in namespace web"),
        "{}",
        says(&story)
    );
    assert_eq!(world.calls(), NOTHING);
    put(
        &story.server,
        json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
            "metadata": {"namespace": "web", "name": "buckets"},
            "spec": {"from": [{"kind": "GarageBucket", "namespace": "storage"}]},
        }),
    );
    story.settle().await;
    assert!(says(&story).starts_with("True/BucketReady: "), "{}", says(&story));
    world.calls();

    // Taken away again: nothing more is changed there, but the bucket may still go.
    story.server.delete("GarageReferenceGrant", "web", "buckets");
    story.settle().await;
    assert!(
        says(&story).starts_with("False/GrantDenied: "),
        "{}",
        says(&story)
    );
    story.server.edit(
        "GarageBucket",
        "storage",
        "blog",
        json!({"spec": {"website": {"enabled": false}}}),
    );
    story.settle().await;
    assert_eq!(world.calls(), NOTHING);
    story.server.delete("GarageBucket", "storage", "blog");
    story.settle().await;
    assert_eq!(story.server.get("GarageBucket", "storage", "blog"), None);
    assert!(world.buckets().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retained_bucket_is_found_again_by_its_id_alone() {
    let world = World::new();
    let mut story = world.ready(blog_with(json!({"deletionPolicy": "Retain"}))).await;
    let id = world.only().await.id;
    delete(&story);
    gone(&story).await;
    put(&story.server, blog());
    story.settle().await;
    assert!(
        ready(&story).starts_with("False/AliasTaken: "),
        "{}",
        ready(&story)
    );
    assert_eq!(
        world.buckets().await,
        [["blog"]],
        "a name is no right to a bucket"
    );
    world.calls();
    story.edit(json!({"spec": {"bucketId": id.as_str()}}));
    story.settle().await;
    assert_eq!(ready(&story), "True/BucketReady: Garage holds what is wanted");
    assert_eq!(status(&story, "bucketId"), id.as_str());
    let calls = world.calls();
    assert!(
        calls.iter().all(|call| call.starts_with("GetBucketInfo")),
        "{calls:?}"
    );
    assert_eq!(writes(story.restart(&flags()).await), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_while_its_bucket_is_made_leaves_nothing() {
    for at in 1..=5 {
        let world = World::new();
        let mut story = world.story([token(TOKEN), handle()]).await;
        story.settle().await;
        let (server, mark) = (story.server.clone(), story.server.mark());
        put(&server, blog());
        let done = || {
            let calls = server.calls_since(mark);
            let mine = |c: &&reconcile_kit::testing::Call| {
                c.user == OPERATOR && c.verb.is_write() && c.resource == "garagebuckets" && c.succeeded()
            };
            calls.iter().filter(mine).count()
        };
        while done() < at {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        delete(&story);
        gone(&story).await;
        assert!(world.buckets().await.is_empty(), "after write {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_away_is_said_once_and_its_buckets_come_back_with_it() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    world.shut(true);
    let calls = after(&mut story, 600).await;
    let words = |resource: &str| calls.iter().filter(|line| line.contains(resource)).count();
    assert_eq!(words("garageclusters/status"), 1, "{calls:#?}");
    assert!((1..=2).contains(&words("garagebuckets/status")), "{calls:#?}");
    assert_eq!(
        ready(&story),
        "False/ClusterNotReady: GarageCluster web/garage: status.phase is Pending (AdminAPIUnreachable, see its condition \
         Ready); waiting for Running; the bucket in Garage stays as it is meanwhile"
    );
    assert_eq!(phase(&story), "Ready", "the bucket is there as it was");
    assert_eq!(status(&story, "globalAlias"), "blog", "what is known is kept");
    world.shut(false);
    let back = after(&mut story, 70).await;
    assert_eq!(
        ready(&story),
        "True/BucketReady: Garage holds what is wanted",
        "{back:#?}"
    );
    assert_eq!(phase(&story), "Ready");
}

#[tokio::test(start_paused = true)]
async fn a_grant_by_label_wakes_the_bucket_when_the_namespace_gets_the_label() {
    let world = World::new();
    let mut bucket = blog_with(json!({"clusterRef": {"name": "garage", "namespace": "web"}}));
    bucket["metadata"]["namespace"] = json!("storage");
    let grant = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
        "metadata": {"namespace": "web", "name": "buckets"},
        "spec": {"from": [{"kind": "GarageBucket", "namespaceSelector": {"matchLabels": {"team": "blue"}}}]},
    });
    let mut story = world.story([token(TOKEN), handle(), grant, bucket]).await;
    story.settle().await;
    let says = |story: &Story| ready_of(story.server.get("GarageBucket", "storage", "blog").as_ref());
    assert!(
        says(&story).starts_with("False/GrantDenied: "),
        "{}",
        says(&story)
    );
    story.server.edit(
        "Namespace",
        "",
        "storage",
        json!({"metadata": {"labels": {"team": "blue"}}}),
    );
    story.settle().await;
    assert!(says(&story).starts_with("True/BucketReady: "), "{}", says(&story));
    world.calls();

    // And when it loses the label, nothing more is changed for it, and nothing taken away
    let label = json!({"metadata": {"labels": {"team": null}}});
    story.server.edit("Namespace", "", "storage", label);
    story.settle().await;
    let bucket = story.server.get("GarageBucket", "storage", "blog").unwrap();
    assert!(
        says(&story).starts_with("False/GrantDenied: "),
        "{}",
        says(&story)
    );
    assert_eq!(bucket["status"]["phase"], "Failed");
    assert!(bucket["status"]["bucketId"].is_string());
    assert_eq!(world.calls(), NOTHING);
    assert_eq!(world.buckets().await, [["blog"]]);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_goes_matters_only_if_no_other_one_is_left() {
    let world = World::new();
    let mut bucket = blog_with(json!({"clusterRef": {"name": "garage", "namespace": "web"}}));
    bucket["metadata"]["namespace"] = json!("storage");
    let grant = |name: &str, to: Value| {
        json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
            "metadata": {"namespace": "web", "name": name},
            "spec": {"from": [{"kind": "GarageBucket", "namespace": "storage"}], "to": to},
        })
    };
    // Given one that names the cluster, one without targets, which covers every cluster, and one for another
    let grants = [
        grant("named", json!([{"kind": "GarageCluster", "name": "garage"}])),
        grant("all", json!([])),
        grant("another", json!([{"kind": "GarageCluster", "name": "other"}])),
    ];
    let mut story = world.story([token(TOKEN), handle(), bucket]).await;
    for grant in grants {
        put(&story.server, grant);
    }
    story.settle().await;
    let says = |story: &Story| ready_of(story.server.get("GarageBucket", "storage", "blog").as_ref());
    assert!(says(&story).starts_with("True/BucketReady: "), "{}", says(&story));
    for (gone, allowed) in [("named", true), ("all", false)] {
        story.server.delete("GarageReferenceGrant", "web", gone);
        story.settle().await;
        assert_eq!(
            says(&story).starts_with("True/"),
            allowed,
            "without {gone}: {}",
            says(&story)
        );
    }
    assert_eq!(world.buckets().await, [["blog"]]);
}
