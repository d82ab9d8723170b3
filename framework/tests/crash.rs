//! A process may die between any two writes, and an API server may refuse, break or fall silent at any time: what
//! stands in the end is the same, and the way there is counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod common;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{
    Operator, Outside, Site, USER, eventually, lines, of_operator, quiet, ready, server, site, until_ready,
};
use reconcile_kit::{
    prelude::*,
    runtime::triggers::on_change_of_self,
    testing::{ApiServer, Crash, Fault, Mark, Matcher, Times},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

// ---- a crash between any two writes ----

type Step = (&'static str, fn(&ApiServer));

/// What people do, step by step. Each step leaves the operator something to write.
const STEPS: &[Step] = &[
    ("two sites", |server| {
        server.create(site("a", "map", "one"));
        server.create(site("b", "ingress", "b.example.org"));
    }),
    ("a new text with an annotation", |server| {
        let spec = json!({"text": "two", "annotations": {"k": "v"}});
        server.edit("Site", "shop", "a", json!({ "spec": spec }));
    }),
    ("the annotation goes, the kind changes", |server| {
        let spec = json!({"serve": "ingress", "text": "a.example.org", "annotations": null});
        server.edit("Site", "shop", "a", json!({ "spec": spec }));
    }),
    ("a name that is taken, and free again", |server| {
        server.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": {},
        }));
        server.create(site("c", "map", "mine"));
    }),
    ("the name is free, one site goes", |server| {
        server.delete("ConfigMap", "shop", "c");
        server.delete("Site", "shop", "b");
    }),
    ("nothing to serve any more", |server| {
        server.edit("Site", "shop", "a", json!({"spec": {"serve": "none"}}));
    }),
];

/// Everything that stands, without what differs from run to run.
fn state(server: &ApiServer, outside: &Outside) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for kind in ["Site", "ConfigMap", "Ingress"] {
        for mut object in server.list(kind, "shop") {
            let meta = object["metadata"].as_object_mut().unwrap();
            let name = meta["name"].as_str().unwrap().to_owned();
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                meta.remove(field);
            }
            let fields = meta.remove("managedFields").unwrap();
            let mut managers: Vec<_> = fields.as_array().unwrap().iter().map(manager).collect();
            managers.sort();
            object["managers"] = json!(managers);
            for owner in object["metadata"]["ownerReferences"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                let named = server.get("Site", "shop", owner["name"].as_str().unwrap());
                owner["uid"] = json!(named.is_some_and(|s| s["metadata"]["uid"] == owner["uid"]));
            }
            let hash = &mut object["metadata"]["annotations"]["example.org/applied-hash"];
            *hash = json!(hash.is_string());
            for condition in object["status"]["conditions"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                condition["lastTransitionTime"].take();
            }
            all.insert(format!("{kind} {name}"), object);
        }
    }
    for (name, text) in outside.texts() {
        all.insert(format!("outside {name}"), json!(text));
    }
    all
}

fn manager(entry: &Value) -> String {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    format!(
        "{} {} {}",
        text("manager"),
        text("operation"),
        text("subresource")
    )
}

#[derive(Clone, Copy, Debug)]
struct Kill {
    after: usize,
    /// The answer to the last write is lost with the process.
    during: bool,
}

/// All steps, with a crash in between; how many writes succeeded until the end of each step, and what stands then.
async fn life(kill: Option<Kill>, effects: bool) -> (ApiServer, Vec<usize>, Vec<BTreeMap<String, Value>>) {
    let server = server();
    let outside = Outside::default();
    let with = effects.then(|| outside.clone());
    if let Some(kill) = kill {
        let writes = Matcher::writes().user(USER);
        if kill.during {
            server.kill_during(writes, kill.after, Crash::Error);
        } else {
            server.kill_after(writes, kill.after, Crash::Hang);
        }
    }
    let mut operator = Operator::start_with(&server, with.clone());
    let (mut writes, mut states) = (Vec::new(), Vec::new());
    for (_, act) in STEPS {
        act(&server);
        // Whoever is dead asks for nothing, or in vain and ever less often.
        tokio::time::sleep(Duration::from_secs(3)).await;
        if server.is_killed() {
            operator.kill().await;
            server.revive();
            operator = Operator::start_with(&server, with.clone());
        }
        quiet(&server).await;
        let done = server
            .calls()
            .iter()
            .filter(|c| c.user == USER && c.verb.is_write() && c.succeeded())
            .count();
        writes.push(done);
        states.push(state(&server, &outside));
    }
    // And whoever comes next has nothing to do.
    operator.stop().await;
    let mark = server.mark();
    let operator = Operator::start_with(&server, with);
    quiet(&server).await;
    let again = lines(&server, mark);
    assert!(again.is_empty(), "{kill:?}: {again:#?}");
    operator.stop().await;
    (server, writes, states)
}

async fn sweep(effects: bool) {
    let (_, writes, states) = life(None, effects).await;
    let total = *writes.last().unwrap();
    let mut points = 0;
    for after in 0..=total {
        for during in [false, true] {
            if during && after == 0 {
                continue;
            }
            points += 1;
            let kill = Kill { after, during };
            let (server, counted, reached) = life(Some(kill), effects).await;
            for (step, (wanted, reached)) in states.iter().zip(&reached).enumerate() {
                assert_eq!(
                    wanted,
                    reached,
                    "{kill:?}, step {:?}\n{:#?}",
                    STEPS[step].0,
                    server.calls()
                );
            }
            // An event may be lost with the process; a write may have to be made again because its answer was.
            let counted = *counted.last().unwrap();
            assert!(
                counted + 2 >= total && counted <= total + 3,
                "{kill:?}: {counted} writes instead of {total}"
            );
        }
    }
    assert!(
        total > 15 && points > 2 * 15,
        "{total} writes, {points} points: this is no sweep"
    );
    println!("effects: {effects}: {total} writes, {points} kill points, all with the same end");
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_writes_has_the_same_end() {
    sweep(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_writes_has_the_same_end_with_an_outside_system() {
    sweep(true).await;
}

// ---- an API server that misbehaves ----

/// An operator that has placed `a`.
async fn placed() -> (ApiServer, Operator) {
    let server = server();
    let operator = Operator::start(&server);
    server.create(site("a", "map", "one"));
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    (server, operator)
}

fn text(server: &ApiServer) -> Option<Value> {
    server
        .get("ConfigMap", "shop", "a")
        .map(|map| map["data"]["text"].clone())
}

fn change(server: &ApiServer, text: &str) {
    server.edit("Site", "shop", "a", json!({"spec": {"text": text}}));
}

/// Does something to requests for a while, and says what the operator asked for meanwhile and how long it took after.
async fn disturbed(server: &ApiServer, requests: Matcher, fault: Fault, seconds: u64) -> (usize, u64) {
    let mark = server.mark();
    let rule = server.fault(requests.user(USER), fault, Times::Always);
    server.cut_watches("*");
    change(server, "two");
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let asked = of_operator(server, mark).len();
    assert_eq!(text(server), Some(json!("one")), "the fault works");
    server.unfault(rule);
    let over = tokio::time::Instant::now();
    let deadline = Duration::from_secs(600);
    let done = || text(server) == Some(json!("two")) && placed_at(server, 2);
    tokio::time::timeout(deadline, eventually(server, "recovery", || done().then_some(())))
        .await
        .expect("recovery");
    (asked, over.elapsed().as_secs())
}

/// The condition says that this generation is placed.
fn placed_at(server: &ApiServer, generation: u64) -> bool {
    let status = server.get("Site", "shop", "a").unwrap()["status"].clone();
    let observed = &status["conditions"][0]["observedGeneration"];
    ready(server, "a").as_deref() == Some("True/Placed") && *observed == generation
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_conflicts_is_met_with_few_requests() {
    let (server, _operator) = placed().await;
    let (asked, recovered) = disturbed(&server, Matcher::writes(), Fault::Conflict, 60).await;
    // 0.2 s, doubled: nine looks in a minute, each with a refused apply and from the third on a refused status.
    assert!((5..=30).contains(&asked), "{asked} requests");
    assert!(recovered <= 60, "{recovered} s");
    println!("conflicts for 60 s: {asked} requests, recovered {recovered} s after");
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_an_api_server_is_met_with_few_requests() {
    for fault in [Fault::Status(503), Fault::Status(500), Fault::ConnectionError] {
        let (server, _operator) = placed().await;
        let (asked, recovered) = disturbed(&server, Matcher::any(), fault.clone(), 60).await;
        // Three watches with back-off, and the site itself once it is known to have changed.
        assert!((5..=60).contains(&asked), "{fault:?}: {asked} requests");
        assert!(recovered <= 60, "{fault:?}: {recovered} s");
        println!("{fault:?} for 60 s: {asked} requests, recovered {recovered} s after");
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_is_believed() {
    let (server, _operator) = placed().await;
    let fault = Fault::TooManyRequests { retry_after: 20 };
    let (asked, recovered) = disturbed(&server, Matcher::writes(), fault, 60).await;
    assert!((2..=10).contains(&asked), "{asked} requests: one look every 20 s");
    assert!(recovered <= 45, "{recovered} s");
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_failing_writes_are_no_contest_and_no_hot_loop() {
    let (server, _operator) = placed().await;
    let mark = server.mark();
    let rule = server.fault(Matcher::writes().user(USER), Fault::Status(503), Times::Always);
    server.edit("ConfigMap", "shop", "a", json!({"data": {"text": "defaced"}}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = of_operator(&server, mark).len();
    assert!(asked <= 40, "{asked} requests in ten minutes");
    server.unfault(rule);
    tokio::time::sleep(Duration::from_secs(330)).await;
    assert_eq!(
        text(&server),
        Some(json!("one")),
        "undone at the next look, which is at most five minutes away"
    );
    assert_eq!(ready(&server, "a").unwrap(), "True/Placed");
}

#[tokio::test(start_paused = true)]
async fn what_changes_while_the_watches_are_cut_is_seen_afterwards() {
    let (server, _operator) = placed().await;
    let deaf = server.fault(
        Matcher::watches().user(USER),
        Fault::ConnectionError,
        Times::Always,
    );
    server.cut_watches("*");
    let mark = server.mark();
    // A change, an edit of the child, a new site, and one that comes and goes unseen.
    change(&server, "two");
    server.delete("ConfigMap", "shop", "a");
    server.create(site("b", "map", "b"));
    server.create(site("never", "map", "seen"));
    server.delete("Site", "shop", "never");
    tokio::time::sleep(Duration::from_secs(30)).await;
    server.compact();
    server.unfault(deaf);
    until_ready(&server, "b", "True/Placed").await;
    eventually(&server, "a", || {
        (text(&server) == Some(json!("two"))).then_some(())
    })
    .await;
    quiet(&server).await;
    // Which watch hears first is chance: a change of what is gone already is refused and tried again, an old text may be
    // written once more. Tries begin at 0.2 s and double, and no watch stays away for more than a minute: ten of them.
    let mut asked = lines(&server, mark);
    asked.retain(|l| l.contains("configmaps"));
    let created = asked.iter().filter(|l| l.ends_with("201")).count();
    assert!(created == 2 && asked.len() <= 13, "{asked:#?}");
    assert!(server.get("ConfigMap", "shop", "never").is_none());
}

/// How often a ConfigMap was made.
fn made(server: &ApiServer, mark: Mark) -> usize {
    let asked = lines(server, mark);
    let creations = asked
        .iter()
        .filter(|line| line.contains("configmaps") && line.ends_with("201"));
    creations.count()
}

#[tokio::test(start_paused = true)]
async fn a_child_that_the_garbage_collector_takes_is_not_made_without_end_while_the_end_of_its_owner_is_not_heard()
 {
    // Given an owner whose deletion does not come through its watch
    let (server, _operator) = placed().await;
    let deaf = Matcher::watches().user(USER).resource("sites");
    let deaf = server.fault(deaf, Fault::ConnectionError, Times::Always);
    server.cut_watches("sites");
    let mark = server.mark();
    server.delete("Site", "shop", "a");
    // when the garbage collector takes its child, and whatever is made for an owner that is no more
    tokio::time::sleep(Duration::from_secs(100)).await;
    // then a few are made, and then none for minutes
    assert!(made(&server, mark) <= 5, "{:#?}", lines(&server, mark));
    // and nothing is left when the end is heard of; an owner of the same name gets its child
    server.unfault(deaf);
    quiet(&server).await;
    assert!(server.list("ConfigMap", "shop").is_empty());
    server.create(site("a", "map", "again"));
    until_ready(&server, "a", "True/Placed").await;
}

#[tokio::test(start_paused = true)]
async fn who_deletes_a_child_as_fast_as_it_is_made_is_answered_every_five_minutes() {
    let (server, _operator) = placed().await;
    let mark = server.mark();
    for _ in 0..6000 {
        if text(&server).is_some() {
            server.delete("ConfigMap", "shop", "a");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (made, asked) = (made(&server, mark), lines(&server, mark));
    assert!((6..=8).contains(&made), "{made} in ten minutes: {asked:#?}");
    let told = server.list("Event", "shop");
    let told: Vec<_> = told.iter().filter(|e| e["reason"] == "ContestedField").collect();
    // once for each time that it is given up
    assert!(told.len() <= 2, "{told:#?}");
    assert!(
        told[0]["note"]
            .as_str()
            .unwrap()
            .contains("another client that deletes it or changes its labels keeps undoing")
    );
    // and whoever stops leaves it standing
    tokio::time::sleep(Duration::from_secs(301)).await;
    until_ready(&server, "a", "True/Placed").await;
    assert_eq!(text(&server), Some(json!("one")));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_after_the_write_landed_costs_one_more_look() {
    for lost in [Fault::AnswerLost, Fault::AnswerHangs] {
        let server = server();
        let _operator = Operator::start(&server);
        quiet(&server).await;
        let mark = server.mark();
        server.fault(Matcher::writes().user(USER), lost.clone(), Times::Count(2));
        server.create(site("a", "map", "one"));
        tokio::time::sleep(Duration::from_secs(200)).await;
        until_ready(&server, "a", "True/Placed").await;
        quiet(&server).await;
        let asked = lines(&server, mark);
        assert!(asked.len() <= 7, "{lost:?}: {asked:#?}");
        assert_eq!(server.list("ConfigMap", "shop").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_one_object_holds_back_no_other() {
    let (server, operator) = placed().await;
    server.deny_in("shop", USER, "create", "ingresses");
    server.create(site("denied", "ingress", "x.example.org"));
    until_ready(&server, "denied", "False/Failed").await;
    for n in 0..20 {
        server.create(site(&format!("s{n}"), "map", "fine"));
    }
    for n in 0..20 {
        until_ready(&server, &format!("s{n}"), "True/Placed").await;
    }
    assert_eq!(operator.backoff.failing(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_controller_was_stopped_in_is_looked_at_when_it_starts_again() {
    // Given: a controller that never finishes, with listeners and triggers that outlive it (as when the lease goes).
    let server = server();
    server.create(site("a", "map", "one"));
    let hub = WatchHub::new(server.client_as(USER), Metrics::new("lab"));
    let sites = hub.typed::<Site>(&Scope::All, &Selector::default());
    let triggers = Triggers::<Site>::default();
    let _kept = (
        sites.listen(on_change_of_self(&triggers, |_, _| false)),
        sites.start(),
    );
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let stack = BoxReconcile::new(tower::service_fn(move |_: Request<Site>| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Done)
        }
    }));
    let start = || {
        let stop = CancellationToken::new();
        let mut spec = ControllerSpec::new("c", sites.clone(), triggers.clone(), stack.clone());
        spec.drain = Duration::ZERO;
        (stop.clone(), tokio::spawn(run_controller(spec, stop, || ())))
    };
    let (stop, first) = start();
    eventually(&server, "the first run", || {
        (runs.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    // When it is stopped in the middle, and started again.
    stop.cancel();
    assert_eq!(first.await.unwrap(), Ended::Cancelled);
    let (stop, second) = start();
    // Then the object is looked at, though nothing triggers it.
    eventually(&server, "the second run", || {
        (runs.load(Ordering::SeqCst) == 2).then_some(())
    })
    .await;
    stop.cancel();
    second.await.unwrap();
}
