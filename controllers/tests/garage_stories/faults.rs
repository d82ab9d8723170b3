//! What goes wrong around the bucket controller: conflicts, a Garage that is away, a changed token. And what must never
//! be seen: the token.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use reconcile_kit::testing::{Fault, Matcher, Times};
use routewright::garage::{
    admin::{AdminErrorClass, Call},
    testing::Fault as GarageFault,
};
use serde_json::json;

use super::{support::*, world::*};

fn patches() -> Matcher {
    Matcher::writes().user(OPERATOR).resource("garagebuckets")
}

#[tokio::test(start_paused = true)]
async fn a_conflict_at_any_write_leads_to_the_same_end() {
    // A creation has five writes on the bucket, a rename three.
    for at in 0..5 {
        let world = World::new();
        let mut story = world.story([token(TOKEN), handle()]).await;
        story.settle().await;
        let server = story.server.clone();
        put(&server, blog());
        // Every write from the n-th on is refused twice.
        let before = server.mark();
        let done = || {
            let calls = server.calls_since(before);
            calls
                .iter()
                .filter(|c| patches().matches(c) && c.succeeded())
                .count()
        };
        while done() < at {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        let rule = server.fault(patches(), Fault::Conflict, Times::Count(2));
        story.pass(Duration::from_secs(20)).await;
        server.unfault(rule);
        assert_eq!(
            ready(&story),
            "True/BucketReady: Garage holds what is wanted",
            "from write {at}"
        );
        assert_eq!(world.buckets().await, [["blog"]]);
        assert_eq!(
            world
                .garage
                .writes()
                .iter()
                .filter(|c| **c == Call::CreateBucket)
                .count(),
            1
        );

        server.fault(patches(), Fault::Conflict, Times::Count(2));
        story.edit(json!({"spec": {"globalAlias": "weblog"}}));
        let calls = after(&mut story, 20).await;
        assert!(
            !calls.iter().any(|line| line.contains("Warning")),
            "two conflicts are no news: {calls:#?}"
        );
        assert_eq!(story.bucket()["status"]["globalAlias"], "weblog");
        assert_eq!(world.buckets().await, [["weblog"]]);
        delete(&story);
        gone(&story).await;
        assert!(world.buckets().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_in_the_middle_of_the_first_run_costs_no_false_word() {
    // The token is read anew and the run goes on where it stood: the alias that it bound is no other bucket's.
    for call in [
        Call::GetBucketInfo,
        Call::CreateBucket,
        Call::AddBucketAlias,
        Call::RemoveBucketAlias,
        Call::UpdateBucket,
    ] {
        let world = World::new();
        let mut story = world.story([token(TOKEN), handle()]).await;
        story.settle().await;
        world
            .garage
            .fail(call, GarageFault::Before(AdminErrorClass::Unauthorized));
        put(&story.server, blog());
        let calls = story.settle().await;
        let events: Vec<_> = calls.iter().filter(|line| line.starts_with("EVENT")).collect();
        assert_eq!(events, ["EVENT Normal BucketReady"], "{call}");
        assert_eq!(
            ready(&story),
            "True/BucketReady: Garage holds what is wanted",
            "{call}"
        );
        assert_eq!(world.buckets().await, [["blog"]], "{call}");
        let created = world
            .garage
            .writes()
            .into_iter()
            .filter(|c| *c == Call::CreateBucket);
        let refused = usize::from(call == Call::CreateBucket);
        assert_eq!(created.count(), 1 + refused, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_garage_that_is_away_is_waited_for_ever_more_patiently() {
    let world = World::new();
    let mut story = world.story([token(TOKEN), tiers()]).await;
    story.settle().await;
    world.shut(true);
    put(&story.server, blog());
    let calls = story.settle().await;
    assert_eq!(phase(&story), "Creating");
    assert!(
        ready(&story).starts_with("False/GarageUnavailable: "),
        "{}",
        ready(&story)
    );
    assert_eq!(
        calls.iter().filter(|line| line.starts_with("EVENT")).count(),
        1,
        "{calls:#?}"
    );
    assert_eq!(
        after(&mut story, 1800).await,
        NOTHING,
        "the same words are no write"
    );
    world.shut(false);
    story.pass(Duration::from_secs(340)).await;
    assert_eq!(phase(&story), "Ready");

    // What is there keeps its phase through it.
    world.shut(true);
    story.pass(Duration::from_secs(340)).await;
    assert!(
        ready(&story).starts_with("False/GarageUnavailable: "),
        "{}",
        ready(&story)
    );
    assert_eq!(phase(&story), "Ready");
    delete(&story);
    story.settle().await;
    assert_eq!(phase(&story), "Deleting");
    world.shut(false);
    story.pass(Duration::from_secs(340)).await;
    assert_eq!(story.server.get("GarageBucket", "web", "blog"), None);
    assert!(world.buckets().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failing_call_is_tried_again_seconds_later_and_not_more_often() {
    let world = World::new();
    let mut story = world.ready(blog()).await;
    for _ in 0..6 {
        world.garage.fail(
            Call::GetBucketInfo,
            GarageFault::Before(AdminErrorClass::Unavailable),
        );
    }
    story.edit(json!({"spec": {"globalAlias": "weblog"}}));
    story.pass(Duration::from_secs(20)).await;
    let tries = world.calls().len();
    assert!((3..=6).contains(&tries), "{tries} tries in 20 s");
    story.pass(Duration::from_secs(120)).await;
    assert_eq!(world.buckets().await, [["weblog"]]);
    assert_eq!(phase(&story), "Ready");
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_every_call_lead_to_the_same_end() {
    for call in Call::ALL {
        for class in [AdminErrorClass::Timeout, AdminErrorClass::Garbage] {
            let world = World::new();
            world.garage.fail(call, GarageFault::AfterEffect(class));
            let mut story = world.story([token(TOKEN), handle(), blog()]).await;
            story.pass(Duration::from_secs(150)).await;
            assert_eq!(phase(&story), "Ready", "{call}: {}", ready(&story));
            assert_eq!(world.buckets().await, [["blog"]], "{call}");
            delete(&story);
            gone(&story).await;
            assert!(world.buckets().await.is_empty(), "{call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_is_given_up_and_said() {
    let world = World::new();
    world
        .garage
        .fail(Call::CreateBucket, GarageFault::HangAfterEffect);
    let mut story = world.story([token(TOKEN), handle(), blog()]).await;
    story.pass(Duration::from_secs(65)).await;
    assert_eq!(phase(&story), "Ready", "{}", ready(&story));
    assert_eq!(
        world.buckets().await,
        [["blog"]],
        "the one whose answer never came"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_a_write_on_the_bucket_is_said_and_mended() {
    let world = World::new();
    world.garage.fail(
        Call::CreateBucket,
        GarageFault::Before(AdminErrorClass::Unavailable),
    );
    world.garage.fail(
        Call::CreateBucket,
        GarageFault::Before(AdminErrorClass::Unavailable),
    );
    let mut story = world.story([token(TOKEN), tiers()]).await;
    story.settle().await;
    put(&story.server, blog());
    let calls = after(&mut story, 30).await;
    assert_eq!(
        calls,
        [
            // finalizer, reservation, the failure
            "PATCH(merge) garagebuckets blog -> 200",
            "PATCH(merge) garagebuckets blog -> 200",
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning GarageUnavailable",
            // id, alias, what came of it
            "PATCH(merge) garagebuckets/status blog -> 200",
            "PATCH(merge) garagebuckets blog -> 200",
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal BucketReady",
        ]
    );
    assert_eq!(phase(&story), "Ready");
    assert_eq!(world.buckets().await, [["blog"]]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_changed_is_read_again_and_nobody_notices() {
    let world = World::new();
    let mut story = world.story([token(TOKEN), tiers(), blog()]).await;
    story.settle().await;
    assert_eq!(phase(&story), "Ready");
    world.calls();
    world.rotate();
    story.edit(json!({"spec": {"website": {"enabled": false}}}));
    assert_eq!(
        story.settle().await,
        [
            "GET secrets garage-admin -> 200",
            "APPLY garagebuckets/status blog -> 200"
        ]
    );
    assert_eq!(
        world.calls(),
        ["GetBucketInfo", "UpdateBucket"],
        "the refused call never got in"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_kept_for_less_than_a_minute() {
    let world = World::new();
    let mut story = world.story([token(TOKEN), tiers(), blog()]).await;
    assert_eq!(
        about(&story.calls().await, "secrets").len(),
        1,
        "one read for all calls of a run"
    );
    world.calls();
    let reads = about(&story.pass(Duration::from_secs(3000)).await, "secrets").len();
    let looks = world.calls();
    assert!(looks.iter().all(|call| call == "GetBucketInfo"), "{looks:?}");
    assert_eq!(reads, looks.len(), "one for each look");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_tiers_is_told_which_of_its_own_fields_is_missing() {
    let world = World::new();
    let mut story = world.story([super::support::cluster(), blog()]).await;
    story.settle().await;
    let start = "False/ClusterNotReady: GarageCluster web/garage: spec.admin.adminTokenSecretRef: ";
    assert_eq!(
        ready(&story),
        format!("{start}is needed; it names the Secret with the admin token")
    );
    let named = json!({"spec": {"admin": {"adminTokenSecretRef": {"name": "garage-admin"}}}});
    story.server.edit("GarageCluster", "web", "garage", named);
    story.settle().await;
    assert_eq!(
        ready(&story),
        format!("{start}Secret garage-admin does not exist in this namespace")
    );
    assert_eq!(phase(&story), "Pending");
    put(&story.server, token(TOKEN));
    story.pass(Duration::from_secs(70)).await;
    assert_eq!(phase(&story), "Ready");
}

/// Everything that is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_seen_nowhere_whatever_goes_wrong_with_it() {
    const WRONG: &str = "wr0ng-but-secret-too";
    const BAD: &str = "b4dly-wr1tten with blanks and \u{e9}";
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || sink.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    // With a single subscriber, a thread without one would decide for all threads that nobody listens.
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let _second = tracing::Dispatch::new(everything.with_writer(std::io::sink).finish());

    let world = World::new();
    let mut story = world.story([token(WRONG), handle(), blog()]).await;
    for next in [BAD, WRONG, TOKEN, WRONG, TOKEN] {
        story.server.delete("Secret", "web", "garage-admin");
        put(&story.server, token(next));
        story.pass(Duration::from_secs(140)).await;
    }
    story.pass(Duration::from_secs(340)).await;
    assert_eq!(phase(&story), "Ready");
    let calls = story.server.calls();
    let written: String = calls
        .iter()
        .filter(|c| c.user == OPERATOR && c.verb.is_write())
        .map(|c| format!("{:?}\n", c.body))
        .collect();
    let objects: String = ["GarageBucket", "GarageCluster", "Event"]
        .iter()
        .map(|kind| json!(story.server.list(kind, "")).to_string())
        .collect();
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        written.contains("Unauthorized") && written.contains("InvalidToken"),
        "it did go wrong"
    );
    assert!(
        logged.contains("bucket step"),
        "the log was listened to: {} bytes",
        logged.len()
    );
    for (place, text) in [
        ("requests", &written),
        ("objects", &objects),
        ("log", &logged),
        ("metrics", &story.metrics()),
    ] {
        for secret in [TOKEN, WRONG, "b4dly-wr1tten"] {
            let encoded = json!(k8s_openapi::ByteString(secret.as_bytes().to_vec()));
            let encoded = encoded.as_str().unwrap().trim_end_matches('=').to_owned();
            for form in [secret, &encoded] {
                let at = text.find(form);
                assert_eq!(
                    at,
                    None,
                    "{place}: …{}…",
                    at.map_or("", |at| &text[at.saturating_sub(200)..at + 20])
                );
            }
        }
    }
}
