//! Stories of the election, on tokio's clock: nothing in an election reads another one.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    client::{Body, ClientBuilder},
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tower::BoxError;

use super::Log;
use crate::{
    ErrorClass, ReconcileError,
    runtime::{Leadership, LeaseConfig, Metrics, WriteGuard, election::wall_clock, jitter::Jitter},
    testing::{AnswerBody, ApiServer, Fault, Matcher, Times, Verb},
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn config(user: &str) -> LeaseConfig {
    LeaseConfig::new("default", "lease", user, "test")
}

/// Competes for a Lease of 15 s, renewed every 5, acting for 10.
fn compete(server: &ApiServer, user: &str) -> Leadership {
    Leadership::start(config(user), server.client_as(user), &Metrics::default()).unwrap()
}

/// Waits for `wanted`, and all the while checks that no two lead at once.
async fn until_one_leads(what: &str, all: &[&Leadership], wanted: impl Fn() -> bool) {
    let deadline = Instant::now() + seconds(120);
    while !wanted() {
        let leaders = all.iter().filter(|l| l.is_leader()).count();
        assert!(leaders <= 1, "{leaders} leaders at once");
        assert!(Instant::now() < deadline, "did not come: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The same for a time.
async fn one_leads_for(time: Duration, all: &[&Leadership]) {
    let end = Instant::now() + time;
    until_one_leads("the end", all, || Instant::now() >= end).await;
}

fn spec(server: &ApiServer) -> serde_json::Value {
    server
        .get("Lease", "default", "lease")
        .map(|lease| lease["spec"].clone())
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_a_released_lease_is_taken_over() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    let mut changed = a.changed();
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    assert!(*changed.borrow_and_update());
    assert!(a.deadline().is_some_and(|d| d > Instant::now()));
    let b = compete(&server, "b");
    // steady: over several renewals nobody else leads and the fence never closes
    let (steady, mark) = (Instant::now() + seconds(60), server.mark());
    while Instant::now() < steady {
        assert!(a.is_leader() && !b.is_leader());
        sleep(Duration::from_millis(50)).await;
    }
    let count = |user: &str, verb| {
        let calls = server.calls_since(mark);
        calls.iter().filter(|c| c.user == user && c.verb == verb).count()
    };
    let counts = (count("a", Verb::MergePatch), count("a", Verb::Get));
    assert_eq!(counts, (12, 0), "requests of the holder in a minute");
    assert!((10..=16).contains(&count("b", Verb::Get)), "reads of a follower");
    a.release().await;
    assert!(!a.is_leader());
    assert!(!*changed.borrow_and_update());
    assert!(spec(&server)["holderIdentity"].is_null(), "{}", spec(&server));
    let released = Instant::now();
    until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
    assert!(released.elapsed() <= seconds(6), "{:?}", released.elapsed());
    let spec = spec(&server);
    assert_eq!(spec["holderIdentity"], "b");
    assert_eq!(spec["leaseTransitions"], 1, "{spec}");
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_next_one_begins() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let b = compete(&server, "b");
    sleep(seconds(12)).await;
    let guard = WriteGuard::new(a.clone());
    guard.check().unwrap();
    let cut = server.fault(Matcher::any().user("a"), Fault::ConnectionError, Times::Always);
    let begin = Instant::now();
    let mut changed = a.changed();
    until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
    assert!(begin.elapsed() <= seconds(22), "{:?}", begin.elapsed());
    assert!(!*changed.borrow_and_update(), "the loss was published");
    assert_eq!(guard.check().unwrap_err().class, ErrorClass::Shutdown);
    // back again: a follower, not a second leader
    server.unfault(cut);
    one_leads_for(seconds(30), &[&a, &b]).await;
    assert!(b.is_leader() && !a.is_leader());
    // and it still competes
    b.release().await;
    until_one_leads("a leads again", &[&a, &b], || a.is_leader()).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_anew_by_its_holder() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let b = compete(&server, "b");
    sleep(seconds(12)).await;
    for _ in 0..5 {
        server.delete("Lease", "default", "lease");
        // (Another candidate must have seen the new one before the time of the old one is over.)
        one_leads_for(seconds(20), &[&a, &b]).await;
        assert_eq!(spec(&server)["holderIdentity"], "a");
        assert!(a.is_leader());
    }
    // its holder died: another one makes it, when the dead one cannot act
    server.fault(Matcher::any().user("a"), Fault::ConnectionError, Times::Always);
    server.delete("Lease", "default", "lease");
    until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
    assert!(!a.is_leader());
}

#[tokio::test(start_paused = true)]
async fn edits_of_the_lease_by_another_client_never_make_two_leaders() {
    for edit in [
        json!({ "holderIdentity": null }),
        json!({ "holderIdentity": "" }),
        json!({ "holderIdentity": "b" }),
        json!({ "holderIdentity": "stranger" }),
        json!({ "leaseDurationSeconds": 1 }),
        json!({ "leaseDurationSeconds": 100_000, "holderIdentity": null }),
        json!({ "renewTime": null, "acquireTime": null }),
    ] {
        let server = ApiServer::new();
        let a = compete(&server, "a");
        until_one_leads("a leads", &[&a], || a.is_leader()).await;
        let b = compete(&server, "b");
        sleep(seconds(12)).await;
        for at in 0..6 {
            sleep(seconds(30) + Duration::from_millis(at * 900)).await;
            server.edit("Lease", "default", "lease", json!({ "spec": edit }));
            one_leads_for(seconds(20), &[&a, &b]).await;
        }
        until_one_leads("one leads", &[&a, &b], || a.is_leader() || b.is_leader()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_right_it_does_not_lead_and_does_not_hammer() {
    let server = ApiServer::new();
    let forbidden = server.fault(Matcher::any(), Fault::Status(403), Times::Always);
    let log = Log::default();
    let _logging = log.start();
    let a = compete(&server, "a");
    sleep(seconds(600)).await;
    assert!(!a.is_leader());
    let warned = log.lines("cannot be read or written");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("default/lease") && warned[0].contains("create on leases"));
    let asked = server.calls().len();
    assert!((18..=30).contains(&asked), "{asked} requests in 10 minutes");
    // another problem is another line, and its end is one
    server.unfault(forbidden);
    let away = server.fault(Matcher::any(), Fault::ConnectionError, Times::Always);
    sleep(seconds(300)).await;
    server.unfault(away);
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    assert_eq!(log.lines("cannot be read or written").len(), 2);
    assert_eq!(log.lines("can be read and written again").len(), 1);
    a.release().await;
}

#[tokio::test(start_paused = true)]
async fn rights_that_come_and_go_move_the_lease() {
    let server = ApiServer::new();
    let no_create = server.deny("a", "create", "leases");
    let a = compete(&server, "a");
    sleep(seconds(300)).await;
    assert!(!a.is_leader());
    server.undeny(no_create);
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let b = compete(&server, "b");
    sleep(seconds(12)).await;
    // the holder may read and not write: the fence ends its time, and the next one leads
    let (no_patch, mark) = (server.deny("a", "patch", "leases"), server.mark());
    until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
    one_leads_for(seconds(60), &[&a, &b]).await;
    server.undeny(no_patch);
    let tries = server.calls_since(mark);
    let tries = tries
        .iter()
        .filter(|c| c.user == "a" && c.verb == Verb::MergePatch);
    assert!(tries.count() <= 20, "a follower writes nothing");
    b.release().await;
    until_one_leads("a leads again", &[&a, &b], || a.is_leader()).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_that_saw_the_lease_free_one_leads() {
    let server = ApiServer::new();
    server.create(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "lease", "namespace": "default"}, "spec": {},
    }));
    // both write under one field manager; the write of the second one is late
    let slow = Matcher::writes().user("b").resource("leases");
    server.fault(slow, Fault::Delay(seconds(2)), Times::Count(1));
    let mark = server.mark();
    let b = compete(&server, "b");
    server
        .wait_for_call(mark, |c| c.user == "b" && c.verb.is_write())
        .await;
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a, &b], || a.is_leader()).await;
    one_leads_for(seconds(60), &[&a, &b]).await;
    assert!(a.is_leader());
    let calls = server.calls_since(mark);
    let late = calls.iter().find(|c| c.user == "b" && c.verb.is_write());
    assert_eq!(late.and_then(|c| c.code()), Some(409), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_has_one_next_holder() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let (b, c) = (compete(&server, "b"), compete(&server, "c"));
    sleep(seconds(1)).await;
    for (user, millis) in [("b", 20), ("c", 900)] {
        let late = Fault::AnswerDelay(Duration::from_millis(millis));
        server.fault(Matcher::any().user(user), late, Times::Always);
    }
    a.release().await;
    let all = [&a, &b, &c];
    until_one_leads("the next one leads", &all, || b.is_leader() || c.is_leader()).await;
    one_leads_for(seconds(60), &all).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_that_follow_a_dead_leader_one_leads_although_a_write_is_late() {
    for late in [500, 2_400, 2_600, 20_000] {
        let server = ApiServer::new();
        let a = compete(&server, "a");
        until_one_leads("a leads", &[&a], || a.is_leader()).await;
        let (b, c) = (compete(&server, "b"), compete(&server, "c"));
        sleep(seconds(1)).await;
        server.fault(Matcher::any().user("a"), Fault::ConnectionError, Times::Always);
        let writes = Matcher::writes().user("c").resource("leases");
        server.fault(writes, Fault::Delay(Duration::from_millis(late)), Times::Count(1));
        let all = [&a, &b, &c];
        until_one_leads("the next one leads", &all, || b.is_leader() || c.is_leader()).await;
        one_leads_for(seconds(60), &all).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_does_not_act_before_it_has_renewed() {
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let b = compete(&server, "b");
    sleep(seconds(12)).await;
    for _ in 0..5 {
        let mark = server.mark();
        // nothing runs meanwhile, on neither of the two
        tokio::time::advance(seconds(60)).await;
        assert!(!a.is_leader() && !b.is_leader());
        assert!(
            !a.may_act(),
            "nothing was asked since: {:?}",
            server.calls_since(mark)
        );
        until_one_leads("one leads", &[&a, &b], || a.is_leader() || b.is_leader()).await;
        one_leads_for(seconds(30), &[&a, &b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_wrong_neither_steal_the_lease_nor_delay_the_next_holder() {
    let compete_at = |server: &ApiServer, user: &'static str, offset: i64| {
        let jitter = (Jitter::seeded(1), Jitter::seeded(2), Jitter::seeded(3));
        let clock = Arc::new(move || Timestamp::from_second(1_800_000_000 + offset).unwrap());
        let client = server.client_as(user);
        Leadership::start_with(config(user), client, &Metrics::default(), jitter, clock).unwrap()
    };
    for (holder, follower) in [(0, 3_600), (3_600, 0), (0, -86_400)] {
        let server = ApiServer::new();
        // (these clocks stand still, too)
        let a = compete_at(&server, "a", holder);
        until_one_leads("a leads", &[&a], || a.is_leader()).await;
        let b = compete_at(&server, "b", follower);
        let steady = Instant::now() + seconds(120);
        while Instant::now() < steady {
            assert!(a.is_leader() && !b.is_leader());
            sleep(Duration::from_millis(50)).await;
        }
        server.fault(Matcher::any().user("a"), Fault::ConnectionError, Times::Always);
        let dead = Instant::now();
        until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
        assert!(dead.elapsed() <= seconds(22), "{:?}", dead.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_dead_holder_from_the_future_is_taken_in_time() {
    let server = ApiServer::new();
    server.create(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "lease", "namespace": "default"},
        "spec": {
            "holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 4,
            "acquireTime": "2126-01-01T00:00:00.000000Z", "renewTime": "2126-01-01T00:00:00.000000Z",
        },
    }));
    let (a, begin) = (compete(&server, "a"), Instant::now());
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let took = begin.elapsed();
    assert!(took >= seconds(15) && took <= seconds(17), "{took:?}");
    assert_eq!(spec(&server)["leaseTransitions"], 5);
}

#[tokio::test(start_paused = true)]
async fn an_older_release_takes_no_lease_of_a_live_holder_and_its_own_is_respected() {
    let server = ApiServer::new();
    // as kube-lease-manager writes it: empty, then by apply, then the count
    server.create_as(
        "unknown",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lease", "namespace": "default"},
        }),
    );
    let old = Api::<Lease>::namespaced(server.client_as("old"), "default");
    let apply = || {
        let spec = json!({
            "holderIdentity": "old", "leaseDurationSeconds": 15,
            "acquireTime": Timestamp::now(), "renewTime": Timestamp::now(),
        });
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec });
        (PatchParams::apply("routewright-lease"), Patch::Apply(lease))
    };
    let (params, taken) = apply();
    old.patch("lease", &params, &taken).await.unwrap();
    let a = compete(&server, "a");
    // the old holder renews for a minute, then dies
    for _ in 0..12 {
        sleep(seconds(5)).await;
        let renewal = json!({ "spec": { "renewTime": Timestamp::now(), "leaseDurationSeconds": 15 } });
        let params = PatchParams {
            field_manager: Some("routewright-lease".to_owned()),
            ..PatchParams::default()
        };
        old.patch("lease", &params, &Patch::Merge(renewal)).await.unwrap();
        assert!(!a.is_leader());
    }
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    // an old follower that believes the lease to be free is refused
    let (params, taken) = apply();
    let refused = old.patch("lease", &params, &taken).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409),
        "{refused}"
    );
    sleep(seconds(6)).await;
    assert!(a.is_leader());
    // a released one is free for it
    a.release().await;
    let (params, taken) = apply();
    old.patch("lease", &params, &taken).await.unwrap();
    assert_eq!(spec(&server)["holderIdentity"], "old");
}

#[tokio::test(start_paused = true)]
async fn only_a_confirmed_renewal_keeps_the_fence_open_from_its_sending() {
    for fault in [
        Fault::Conflict,
        Fault::Status(503),
        Fault::Status(403),
        Fault::ConnectionError,
        Fault::AnswerLost,
        Fault::Hang,
    ] {
        let server = ApiServer::new();
        let a = compete(&server, "a");
        until_one_leads("a leads", &[&a], || a.is_leader()).await;
        let deadline = a.deadline().unwrap();
        server.fault(Matcher::writes(), fault.clone(), Times::Always);
        sleep(seconds(9)).await;
        assert_eq!(a.deadline(), Some(deadline), "{fault:?}");
        sleep(seconds(2)).await;
        assert!(!a.is_leader(), "{fault:?}");
    }
    // an answer that is late tells of the time when its request was sent
    let server = ApiServer::new();
    let a = compete(&server, "a");
    until_one_leads("a leads", &[&a], || a.is_leader()).await;
    let first = a.deadline().unwrap();
    server.fault(Matcher::writes(), Fault::AnswerDelay(seconds(2)), Times::Always);
    sleep(seconds(8)).await;
    let second = a.deadline().unwrap();
    assert!(
        second - first <= seconds(5) + Duration::from_millis(10),
        "{:?}",
        second - first
    );
    assert!(second > first);
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_request_gives_the_lease_back() {
    // the answer comes late; it never comes, although the API server has done it
    for fault in [
        Fault::AnswerDelay(seconds(1)),
        Fault::AnswerHangs,
        Fault::Delay(seconds(1)),
    ] {
        let server = ApiServer::new();
        server.fault(Matcher::writes().user("a"), fault.clone(), Times::Count(1));
        let mark = server.mark();
        let a = compete(&server, "a");
        server.wait_for_call(mark, |c| c.verb.is_write()).await;
        a.release().await;
        assert!(
            spec(&server)["holderIdentity"].is_null(),
            "{fault:?} {}",
            spec(&server)
        );
        // another one's Lease is left alone
        let b = compete(&server, "b");
        until_one_leads("b leads", &[&a, &b], || b.is_leader()).await;
        let c = compete(&server, "c");
        sleep(seconds(3)).await;
        c.release().await;
        assert!(b.is_leader());
        assert_eq!(spec(&server)["holderIdentity"], "b");
    }
}

/// A connection that loses, delays and repeats nothing that was said to be lost: each request has a fate of its own, and
/// goes on although its client has given it up.
fn through_bad_weather(
    server: &ApiServer,
    user: &'static str,
    weather: &Arc<Jitter>,
    calm: Instant,
) -> Client {
    let (service, weather) = (server.service_as(user), Arc::clone(weather));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut service, weather) = (service.clone(), Arc::clone(&weather));
        let (fate, millis) = (weather.unit(), weather.unit());
        let bad = Instant::now() < calm;
        let outcome = tokio::spawn(async move {
            let short = Duration::from_millis((millis * 50.0) as u64);
            let long = Duration::from_millis((millis * 25_000.0) as u64);
            let reset = || BoxError::from("connection reset");
            let (before, after, lost) = match fate {
                _ if !bad => (short, Duration::ZERO, false),
                f if f < 0.08 => return Err(reset()),
                f if f < 0.16 => (short, Duration::ZERO, true),
                f if f < 0.24 => (long, Duration::ZERO, false),
                f if f < 0.32 => (short, long, false),
                f if f < 0.36 => {
                    let body =
                        json!({ "kind": "Status", "code": 409, "reason": "Conflict", "status": "Failure" });
                    let body = Full::new(Bytes::from(body.to_string()));
                    let body: AnswerBody = body.map_err(|never| match never {}).boxed_unsync();
                    return Ok(Response::builder().status(409).body(body)?);
                }
                _ => (short, short, false),
            };
            sleep(before).await;
            let answer: Response<AnswerBody> = tower::Service::call(&mut service, request).await?;
            sleep(after).await;
            if lost { Err(reset()) } else { Ok(answer) }
        });
        outcome.map(|joined| joined.map_err(BoxError::from).and_then(|answer| answer))
    });
    ClientBuilder::new(service, "default").build()
}

#[tokio::test(start_paused = true)]
async fn in_any_weather_never_two_lead_and_when_it_clears_one_does() {
    const USERS: [&str; 3] = ["a", "b", "c"];
    for seed in 0..6 {
        let server = ApiServer::new();
        let weather = Arc::new(Jitter::seeded(seed));
        let calm = Instant::now() + seconds(240);
        let count = 2 + usize::try_from(seed % 2).unwrap();
        let mut all = Vec::new();
        let start = |n: usize, life: u64| {
            let user = USERS[n];
            let client = through_bad_weather(&server, user, &weather, calm);
            let s = seed * 1_000 + life * 10 + n as u64;
            let jitter = (
                Jitter::seeded(s),
                Jitter::seeded(s + 100),
                Jitter::seeded(s + 200),
            );
            let config = config(&format!("{user}-{life}"));
            Leadership::start_with(config, client, &Metrics::default(), jitter, wall_clock()).unwrap()
        };
        for n in 0..count {
            all.push(start(n, 0));
        }
        let mut life = 0;
        let mut led = 0;
        while Instant::now() < calm {
            sleep(Duration::from_millis(50)).await;
            let leaders: Vec<_> = (0..count).filter(|n| all[*n].is_leader()).collect();
            assert!(
                leaders.len() <= 1,
                "seed {seed}: {leaders:?} lead at once: {:#?}",
                server.calls()
            );
            led += leaders.len();
            // now and then one stops in good order, dies, or the Lease is deleted
            let dice = weather.unit();
            let n = usize::try_from(seed + life).unwrap() % count;
            if dice < 0.00125 {
                life += 1;
                all[n].release().await;
                all[n] = start(n, life);
            } else if dice < 0.0025 {
                life += 1;
                drop(std::mem::replace(&mut all[n], Leadership::fixed(false)));
                // what died acts no more; its successor is another process
                all[n] = start(n, life);
            }
        }
        assert!(led > 1_200, "seed {seed}: led for {led} of 4 800 looks");
        // (what is on its way from the bad time may still arrive)
        sleep(seconds(75)).await;
        let leaders: Vec<_> = (0..count).filter(|n| all[*n].is_leader()).collect();
        assert_eq!(leaders.len(), 1, "seed {seed}: {leaders:?}");
    }
}

#[test]
fn a_configuration_that_cannot_work_is_refused_by_name() {
    let good = || LeaseConfig::new("ns", "lease", "us", "op");
    good().validate().unwrap();
    for (config, word) in [
        (
            LeaseConfig {
                duration: 10,
                ..good()
            },
            "grace",
        ),
        (LeaseConfig { grace: 0, ..good() }, "grace"),
        (
            LeaseConfig {
                duration: 0,
                ..good()
            },
            "duration",
        ),
        (
            LeaseConfig {
                duration: u64::MAX,
                ..good()
            },
            "duration",
        ),
        (
            LeaseConfig {
                fence: seconds(15),
                ..good()
            },
            "fence",
        ),
        (
            LeaseConfig {
                fence: seconds(5),
                ..good()
            },
            "fence",
        ),
        (
            LeaseConfig {
                identity: String::new(),
                ..good()
            },
            "identity",
        ),
        (
            LeaseConfig {
                namespace: String::new(),
                ..good()
            },
            "namespace",
        ),
    ] {
        let refused = config.validate().unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_no_write_starts_but_reads_pass() {
    let server = ApiServer::new();
    server.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": "default" } }));
    for (leadership, writes) in [(Leadership::always(), true), (compete_never(), false)] {
        let client: Client = ClientBuilder::new(server.service_as("op"), "default")
            .with_layer(&WriteGuard::new(leadership).layer())
            .build();
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        api.get("c").await.unwrap();
        let mark = server.mark();
        let patch = json!({ "metadata": { "labels": { "a": "b" } } });
        let patched = api
            .patch("c", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        let deleted = api.delete("nothing", &Default::default()).await;
        assert_eq!(server.writes_since(mark).len(), if writes { 2 } else { 0 });
        assert_eq!(patched.is_ok(), writes);
        if !writes {
            for error in [patched.unwrap_err(), deleted.unwrap_err()] {
                assert_eq!(
                    ReconcileError::from_kube("write", &error).class,
                    ErrorClass::Shutdown
                );
            }
        }
    }
}

/// Competes against an API server that is not there.
fn compete_never() -> Leadership {
    let server = ApiServer::new();
    server.fault(Matcher::any(), Fault::ConnectionError, Times::Always);
    compete(&server, "nobody")
}
