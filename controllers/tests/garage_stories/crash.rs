//! Killed before or after any write to the API server and any call to Garage: a new process comes to the same end, and no
//! bucket is left behind. The points are read from the log of an undisturbed run.

use std::time::Duration;

use reconcile_kit::testing::{Crash, Matcher};
use serde_json::{Value, json};

use super::{support::*, world::*};

struct Tale {
    name: &'static str,
    /// The bucket stands and is Ready before the tale begins.
    before: Option<Value>,
    act: fn(&Story),
}

fn tales() -> Vec<Tale> {
    vec![
        Tale {
            name: "creation",
            before: None,
            act: |s| put(&s.server, blog_with(json!({"quotas": {"maxObjects": 9}}))),
        },
        Tale {
            name: "another alias and no website",
            before: Some(blog()),
            act: |s| s.edit(json!({"spec": {"globalAlias": "weblog", "website": {"enabled": false}}})),
        },
        Tale {
            name: "deletion",
            before: Some(blog()),
            act: delete,
        },
        Tale {
            name: "deletion, retained",
            before: Some(blog_with(json!({"deletionPolicy": "Retain"}))),
            act: delete,
        },
    ]
}

async fn begin(world: &World, tale: &Tale) -> Story {
    match &tale.before {
        Some(bucket) => world.ready(bucket.clone()).await,
        None => {
            let mut story = world.story([token(TOKEN), handle()]).await;
            story.settle().await;
            world.calls();
            story
        }
    }
}

/// What is left at the end, without what differs from run to run.
async fn end(story: &Story, world: &World) -> Value {
    let buckets: Vec<Value> = story
        .server
        .list("GarageBucket", "")
        .into_iter()
        .map(|mut object| {
            let metadata = object["metadata"].as_object_mut().unwrap();
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "managedFields",
            ] {
                metadata.remove(field);
            }
            if let Some(annotations) = object
                .pointer_mut("/metadata/annotations")
                .and_then(Value::as_object_mut)
            {
                // Made from the uid.
                annotations.remove("garage.rajsingh.info/bucket-reservation-alias");
            }
            let conditions = object
                .pointer_mut("/status/conditions")
                .and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                condition["lastTransitionTime"] = json!("");
            }
            object
        })
        .collect();
    let garage = world.buckets().await;
    let held = match garage.len() {
        1 => {
            let info = world.only().await;
            json!([info.website_access, info.quotas.max_objects])
        }
        _ => Value::Null,
    };
    json!({"objects": buckets, "garage": garage, "held": held})
}

#[derive(Clone, Copy, Debug)]
enum Point {
    /// After so many writes to the API server; is the last one answered?
    Api(usize, bool),
    /// At the n-th call to Garage.
    Garage(usize, Death),
}

/// The points of a tale, from an undisturbed run; a line about them, and the end of that run.
async fn points(tale: &Tale) -> (Vec<Point>, String, Value) {
    let world = World::new();
    let mut story = begin(&world, tale).await;
    (tale.act)(&story);
    let calls = story.calls().await;
    let writes: Vec<String> = calls
        .iter()
        .filter(|c| c.user == OPERATOR && c.verb.is_write() && c.succeeded())
        .map(short)
        .collect();
    let asked = world.calls();
    let undisturbed = end(&story, &world).await;
    story.stop().await;
    let line = format!(
        "{}: {} writes, {} calls: {}\n",
        tale.name,
        writes.len(),
        asked.len(),
        asked.join("; ")
    );
    let api = (0..=writes.len()).flat_map(|n| [Point::Api(n, true), Point::Api(n, false)]);
    let garage =
        (0..asked.len()).flat_map(|n| [Point::Garage(n, Death::Before), Point::Garage(n, Death::After)]);
    let all = api.filter(|p| !matches!(p, Point::Api(0, false))).chain(garage);
    (all.collect(), line, undisturbed)
}

/// The tale up to the point; the process is dead and gone, and the next one may speak.
async fn killed(tale: &Tale, point: Point) -> (World, Story) {
    let world = World::new();
    let mut story = begin(&world, tale).await;
    let mine = Matcher::writes().user(OPERATOR);
    match point {
        Point::Api(n, true) => drop(story.server.kill_after(mine, n, Crash::Hang)),
        Point::Api(n, false) => drop(story.server.kill_during(mine, n, Crash::Hang)),
        Point::Garage(n, how) => world.die_at(n, how),
    }
    (tale.act)(&story);
    eventually(
        &story.server,
        &format!("{} {point:?}: the kill", tale.name),
        || story.server.is_killed().then_some(()),
    )
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    story.stop().await;
    story.server.revive();
    (world, story)
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_point_a_new_process_comes_to_the_same_end() {
    let (mut count, mut report) = (0, String::new());
    for tale in tales() {
        let (points, line, undisturbed) = points(&tale).await;
        report.push_str(&line);
        for point in points {
            let case = format!("{}, {point:?}", tale.name);
            let (world, mut story) = killed(&tale, point).await;
            story.restart(&flags()).await;
            assert_eq!(end(&story, &world).await, undisturbed, "{case}");
            let again = writes(story.restart(&flags()).await);
            assert_eq!(again, NOTHING, "{case}: and then there is nothing left to do");
            count += 1;
        }
    }
    println!("{report}{count} kill points");
    assert!(count >= 54, "{count} points:\n{report}");
}

#[tokio::test(start_paused = true)]
async fn killed_while_creating_and_then_deleted_no_bucket_is_left() {
    let tale = &tales()[0];
    let (points, line, _) = points(tale).await;
    for point in &points {
        let (world, mut story) = killed(tale, *point).await;
        delete(&story);
        story.restart(&flags()).await;
        // Whoever finds no bucket where one may have been asked for looks a second time, later.
        gone(&story).await;
        assert_eq!(
            story.server.list("GarageBucket", ""),
            Vec::<Value>::new(),
            "{point:?}"
        );
        assert_eq!(world.buckets().await, Vec::<Vec<String>>::new(), "{point:?}");
    }
    println!("{line}{} kill points", points.len());
    assert!(points.len() > 20, "{}", points.len());
}
