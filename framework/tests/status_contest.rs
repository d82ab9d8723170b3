//! Two operators that watch one object and disagree about its status, against the in-process API server: each writes
//! ever more rarely, whatever the way of writing, and says once what is wrong. Mistakes are mended at once all the same,
//! and a world that changes quickly is followed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{Route, Site, USER, of_operator, quiet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use reconcile_kit::{
    prelude::*,
    runtime::hub::Cached,
    testing::{ApiServer, Call, ResourceDef},
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3600);
/// The other operator's user.
const OTHER: &str = "other";
const TIME: &str = "2026-01-01T00:00:00Z";

/// What an operator has to say of every object; it may change its mind.
type Mind = Arc<Mutex<&'static str>>;

fn mind(word: &'static str) -> Mind {
    Arc::new(Mutex::new(word))
}

/// Says its mind in a condition and a field.
struct Voice(Mind);

impl Planner for Voice {
    type Object = Site;
    type Verdict = &'static str;
    const NAME: &'static str = "voice";

    fn needs(_: &Site) -> Needs {
        Needs::default()
    }
    async fn plan(&self, _: &Request<Site>) -> Result<Plan<&'static str>, ReconcileError> {
        Ok(Plan::report(*self.0.lock().unwrap()))
    }
    fn report(_: &Site, verdict: &Verdict<&'static str>, _: &Children) -> Report {
        let Verdict::Report(word) = verdict else {
            return Report::untouched(Outcome::Done);
        };
        Report::new(Outcome::Done)
            .condition(Condition::new("Ready", true, word, ""))
            .field("place", StatusField::Set(json!({ "word": word })))
    }
    fn conditions(site: &Site) -> &[MetaCondition] {
        site.status.as_ref().map_or(&[], |s| &s.conditions)
    }
    fn status_field(site: &Site, field: &str) -> Option<Value> {
        (field == "place")
            .then(|| site.status.as_ref()?.place.clone())
            .flatten()
    }
    fn report_error(_: &Site, _: &ReconcileError) -> Report {
        Report::untouched(Outcome::Done)
    }
}

/// Says its mind in an entry of a list that others write too.
struct Entering(Mind);

impl Planner for Entering {
    type Object = Route;
    type Verdict = &'static str;
    const NAME: &'static str = "voice";

    fn needs(_: &Route) -> Needs {
        Needs::default()
    }
    async fn plan(&self, _: &Request<Route>) -> Result<Plan<&'static str>, ReconcileError> {
        Ok(Plan::report(*self.0.lock().unwrap()))
    }
    fn report(_: &Route, verdict: &Verdict<&'static str>, _: &Children) -> Report {
        let Verdict::Report(word) = verdict else {
            return Report::untouched(Outcome::Done);
        };
        let entry = Entry {
            identity: json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "a"}),
            rest: Map::new(),
            conditions: vec![Condition::new("Accepted", true, word, "")],
        };
        let entries = Entries {
            ours: Some(("controllerName", "example.org/us".to_owned())),
            identity: "parentRef",
            entries: vec![entry],
            limits: reconcile_kit::Limits::default(),
        };
        Report::new(Outcome::Done)
            .field("parents", StatusField::Entries(entries))
            .note(false, word, "said of a parent")
    }
    fn conditions(_: &Route) -> &[MetaCondition] {
        &[]
    }
    fn status_field(route: &Route, field: &str) -> Option<Value> {
        route.status.get(field).cloned()
    }
    fn report_error(_: &Route, _: &ReconcileError) -> Report {
        Report::untouched(Outcome::Done)
    }
}

const SITE: StatusContract = StatusContract {
    manager: "lab-status",
    conditions: &["Ready"],
    fields: &["place"],
    mode: StatusMode::Apply,
};
/// An edit by somebody else is written over; without force it would be left alone.
const FORCED: StatusContract = StatusContract {
    mode: StatusMode::Force,
    ..SITE
};
const ROUTE: StatusContract = StatusContract {
    manager: "lab-status",
    conditions: &["Accepted"],
    fields: &["parents"],
    mode: StatusMode::Patch,
};

/// A process. Of two installations the field manager is the same; only the user differs.
struct Process<K: kube::Resource<DynamicType = ()>> {
    triggers: Triggers<K>,
    metrics: Metrics,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl<K: Cached + kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned> Process<K> {
    fn start<P: Planner<Object = K>>(
        server: &ApiServer,
        user: &str,
        planner: P,
        contract: StatusContract,
    ) -> Self {
        let (client, metrics) = (server.client_as(user), Metrics::new("lab"));
        let hub = WatchHub::new(client.clone(), metrics.clone());
        let objects = hub.typed::<K>(&Scope::All, &Selector::default());
        let triggers = Triggers::<K>::default();
        let kept = (
            objects.listen(on_change_of_self(&triggers, |_, _| true)),
            objects.start(),
        );
        let reporting = Reporting::kube(client.clone(), contract, P::NAME);
        let parts = common::childless(client, planner, reporting, metrics.clone());
        let forget = Arc::new(parts.forget());
        let mut spec = ControllerSpec::new(P::NAME, objects, triggers.clone(), parts.stack());
        spec.forget = Some(forget);
        let (stop, task) = common::run(spec, (kept, hub));
        Self {
            triggers,
            metrics,
            stop,
            task,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Statuses that it counted as written again.
    fn rewrites(&self) -> u64 {
        let text = self.metrics.encode();
        let line = text.lines().find(|l| l.starts_with("lab_status_rewrites_total"));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }
}

fn writes(server: &ApiServer, user: &str) -> usize {
    let is_write = |c: &&Call| c.user == user && c.subresource == "status" && c.verb.is_write();
    server.calls().iter().filter(is_write).count()
}

/// Events by reason, of both.
fn told(server: &ApiServer) -> Vec<String> {
    let mut told: Vec<String> = server
        .list("Event", "shop")
        .iter()
        .map(|e| e["reason"].as_str().unwrap().to_owned())
        .collect();
    told.sort();
    told
}

fn site_world() -> ApiServer {
    let server = common::server();
    server.create(common::site("s", "", ""));
    server
}

fn route_world() -> ApiServer {
    let server = ApiServer::new();
    server.serve(ResourceDef::http_route());
    server.namespace("shop");
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "r", "namespace": "shop"}, "spec": {"hostnames": ["a.example.org"]},
    }));
    server
}

/// What the site's status says, if its two halves say the same.
fn word(server: &ApiServer) -> Value {
    let status = server.get("Site", "shop", "s").unwrap()["status"].clone();
    let word = status["conditions"][0]["reason"].clone();
    assert_eq!(status["place"]["word"], word, "{status}");
    word
}

/// An hour of two that disagree: three words at once, then 1, 2, 4 … 512 s and 10 minutes between two.
fn is_slow(server: &ApiServer, what: &str) {
    for user in [USER, OTHER] {
        let writes = writes(server, user);
        assert!((12..=18).contains(&writes), "{what}, {user}: {writes} writes");
    }
    assert_eq!(
        told(server),
        ["Here", "StatusContested", "StatusContested", "There"],
        "{what}: each says its word once, and that somebody else says otherwise"
    );
}

#[tokio::test(start_paused = true)]
async fn two_that_disagree_write_ever_more_rarely_in_every_way_of_writing() {
    for mode in [StatusMode::Apply, StatusMode::Force, StatusMode::Patch] {
        // Given two installations that watch the same objects and say different things of them
        let server = site_world();
        let contract = StatusContract { mode, ..SITE.clone() };
        let us = Process::start(&server, USER, Voice(mind("Here")), contract.clone());
        let they = Process::start(&server, OTHER, Voice(mind("There")), contract);
        // When an hour passes, then neither has written more than a few times
        tokio::time::sleep(HOUR).await;
        is_slow(&server, &format!("{mode:?}"));
        let contested = server.list("Event", "shop");
        let contested = contested
            .iter()
            .find(|e| e["reason"] == "StatusContested")
            .unwrap();
        assert_eq!(contested["type"], "Warning");
        let note = contested["note"].as_str().unwrap();
        assert!(
            note.contains("condition Ready is True (There), and would be True (Here)")
                || note.contains("condition Ready is True (Here), and would be True (There)"),
            "{note}"
        );
        assert!(note.contains("second installation"), "{note}");
        assert_eq!(us.rewrites() as usize, writes(&server, USER) - 1);
        // And when the other one is stopped, then our word stands after a while and nothing is written any more
        they.stop().await;
        let waits = tokio::time::Instant::now();
        while word(&server) != "Here" {
            assert!(waits.elapsed() < HOUR, "{mode:?}: our word does not stand");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mark = server.mark();
        tokio::time::sleep(HOUR).await;
        assert_eq!(
            of_operator(&server, mark)
                .iter()
                .filter(|c| c.verb.is_write())
                .count(),
            0
        );
        us.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_that_disagree_about_one_entry_of_a_list_write_ever_more_rarely_too() {
    let server = route_world();
    let us = Process::start(&server, USER, Entering(mind("Here")), ROUTE);
    let they = Process::start(&server, OTHER, Entering(mind("There")), ROUTE);
    // A third writer's entry in the same list comes and goes all the time; that is nobody's contest.
    for round in 0..60 {
        tokio::time::sleep(HOUR / 60).await;
        let mut parents = server.get("HTTPRoute", "shop", "r").unwrap()["status"]["parents"].clone();
        parents
            .as_array_mut()
            .unwrap()
            .retain(|e| e["controllerName"] == "example.org/us");
        let condition = json!({"type": "Accepted", "status": "True", "reason": "R", "message": "", "lastTransitionTime": TIME});
        parents.as_array_mut().unwrap().push(json!({
            "controllerName": "example.org/them", "parentRef": {"name": format!("x{round}")}, "conditions": [condition],
        }));
        server.set_status("HTTPRoute", "shop", "r", json!({ "parents": parents }));
    }
    is_slow(&server, "entries");
    us.stop().await;
    they.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_overwrites_at_every_write_of_ours_is_answered_ever_more_rarely() {
    let server = site_world();
    let us = Process::start(&server, USER, Voice(mind("Here")), FORCED);
    quiet(&server).await;
    // It has no guard: it answers at once, for an hour.
    for _ in 0..36_000 {
        if word(&server) == "Here" {
            let condition = json!({"type": "Ready", "status": "False", "reason": "Not", "message": "", "lastTransitionTime": TIME});
            server.set_status(
                "Site",
                "shop",
                "s",
                json!({"conditions": [condition], "place": {"word": "Not"}}),
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let writes = writes(&server, USER);
    assert!((12..=18).contains(&writes), "{writes}");
    assert_eq!(told(&server), ["Here", "StatusContested"]);
    us.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mistaken_edit_heals_at_once_and_is_no_news() {
    let server = site_world();
    let us = Process::start(&server, USER, Voice(mind("Here")), FORCED);
    quiet(&server).await;
    for day in 0..5 {
        for edit in 0..2 {
            let begun = tokio::time::Instant::now();
            server.set_status("Site", "shop", "s", json!({"conditions": [], "place": null}));
            common::eventually(&server, "the status as it was", || {
                (server.get("Site", "shop", "s").unwrap()["status"]["place"]["word"] == "Here").then_some(())
            })
            .await;
            assert!(
                begun.elapsed() < Duration::from_millis(100),
                "day {day}, edit {edit}"
            );
        }
        tokio::time::sleep(24 * HOUR).await;
    }
    assert_eq!(told(&server), ["Here"], "the object says what it said before");
    assert_eq!(us.rewrites(), 10);
    us.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_world_that_flips_is_followed_at_once_however_often() {
    let server = site_world();
    let mind = mind("Here");
    let us = Process::start(&server, USER, Voice(Arc::clone(&mind)), SITE);
    quiet(&server).await;
    for round in 0..40 {
        let next = if round % 2 == 0 { "There" } else { "Here" };
        *mind.lock().unwrap() = next;
        us.triggers.push_name(Some("shop"), "s");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(word(&server), next, "round {round}");
    }
    assert_eq!(us.rewrites(), 0);
    let told = told(&server);
    assert_eq!(told.len(), 41, "each is news: {told:?}");
    assert!(!told.contains(&"StatusContested".to_owned()));
    us.stop().await;
}
