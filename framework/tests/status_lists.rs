//! Lists in status that others write too, in the three ways of writing status, against the in-process API server:
//! nobody's entry is lost, nothing is written twice, and bursts are paced.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{Gateway, Route, USER, eventually, of_operator, quiet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use reconcile_kit::{
    owner::{OwnerWrite, OwnerWriter},
    prelude::*,
    status_writer::{StatusError, StatusWriter},
    testing::{ApiServer, Call, ResourceDef, Verb},
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const US: &str = "example.org/us";
const THEM: &str = "example.org/them";

/// Accepts every parent whose name does not begin with `no`; one event per parent that it does not accept.
struct Accepting;

/// The parents as they are spelled in spec, defaults written out.
fn parents(route: &Route) -> Vec<Value> {
    route.spec["parentRefs"].as_array().cloned().unwrap_or_default()
}

impl Planner for Accepting {
    type Object = Route;
    type Verdict = ();
    const NAME: &'static str = "accepting";

    fn needs(_: &Route) -> Needs {
        Needs::default()
    }
    async fn plan(&self, _: &Request<Route>) -> Result<Plan<()>, ReconcileError> {
        Ok(Plan::report(()))
    }
    fn report(route: &Route, _: &Verdict<()>, _: &Children) -> Report {
        let mut report = Report::new(Outcome::Done);
        let entries = parents(route)
            .into_iter()
            .filter(|p| p["name"] != "foreign")
            .map(|parent| {
                let yes = !parent["name"].as_str().unwrap().starts_with("no");
                let reason = if yes { "Accepted" } else { "NoMatchingParent" };
                if !yes {
                    report.notes.push(Note {
                        warning: true,
                        reason: reason.into(),
                        message: parent["name"].to_string(),
                    });
                }
                Entry {
                    identity: parent,
                    rest: Map::new(),
                    conditions: vec![Condition::new("Accepted", yes, reason, "")],
                }
            });
        let entries = Entries {
            ours: Some(("controllerName", US.to_owned())),
            identity: "parentRef",
            entries: entries.collect(),
            limits: reconcile_kit::Limits {
                entries: 32,
                conditions: 8,
            },
        };
        report.field("parents", StatusField::Entries(entries))
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

/// Says of every listener that it is accepted.
struct Listening;

impl Planner for Listening {
    type Object = Gateway;
    type Verdict = ();
    const NAME: &'static str = "listening";

    fn needs(_: &Gateway) -> Needs {
        Needs::default()
    }
    async fn plan(&self, _: &Request<Gateway>) -> Result<Plan<()>, ReconcileError> {
        Ok(Plan::report(()))
    }
    fn report(gateway: &Gateway, _: &Verdict<()>, _: &Children) -> Report {
        let listeners = gateway.spec["listeners"].as_array().cloned().unwrap_or_default();
        let entries = listeners.into_iter().map(|listener| Entry {
            identity: listener["name"].clone(),
            rest: Map::from_iter([
                ("attachedRoutes".to_owned(), json!(0)),
                ("supportedKinds".to_owned(), json!([])),
            ]),
            conditions: vec![Condition::new("Accepted", true, "Accepted", "")],
        });
        let entries = Entries {
            ours: None,
            identity: "name",
            entries: entries.collect(),
            limits: reconcile_kit::Limits::default(),
        };
        Report::new(Outcome::Done).field("listeners", StatusField::Entries(entries))
    }
    fn conditions(_: &Gateway) -> &[MetaCondition] {
        &[]
    }
    fn status_field(gateway: &Gateway, field: &str) -> Option<Value> {
        gateway.status.get(field).cloned()
    }
    fn report_error(_: &Gateway, _: &ReconcileError) -> Report {
        Report::untouched(Outcome::Done)
    }
}

const CONTRACT: StatusContract = StatusContract {
    manager: "lab-status",
    conditions: &["Accepted", "ResolvedRefs"],
    fields: &["parents"],
    mode: StatusMode::Patch,
};

fn world() -> ApiServer {
    let server = ApiServer::new();
    server.serve(ResourceDef::http_route());
    server.namespace("shop");
    server
}

fn parts(server: &ApiServer, pace: Option<Duration>) -> Parts<Accepting> {
    parts_of(server, Accepting, CONTRACT, pace)
}

fn parts_of<P: Planner>(
    server: &ApiServer,
    planner: P,
    contract: StatusContract,
    pace: Option<Duration>,
) -> Parts<P> {
    let client = server.client_as(USER);
    let metrics = Metrics::new("lab");
    let mut reporting = Reporting::kube(client.clone(), contract, P::NAME);
    if let Some(pace) = pace {
        reporting = reporting.paced(pace);
    }
    common::childless(client, planner, reporting, metrics)
}

/// One look at the object as a cache holds it.
async fn look(stack: &BoxReconcile<Route>, route: &Value) -> Outcome {
    let route: Route = serde_json::from_value(route.clone()).unwrap();
    let outcome = stack
        .clone()
        .oneshot(reconcile_kit::Request::new(Arc::new(route)));
    outcome.await.unwrap()
}

fn parent(name: &str) -> Value {
    json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name})
}

fn route(parents: &[&str]) -> Value {
    let parents: Vec<Value> = parents.iter().map(|name| parent(name)).collect();
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "r", "namespace": "shop"}, "spec": {"parentRefs": parents, "hostnames": ["a.example.org"]},
    })
}

fn point_at(server: &ApiServer, parents: &[&str]) -> Value {
    let parents = route(parents)["spec"]["parentRefs"].clone();
    server.edit("HTTPRoute", "shop", "r", json!({"spec": {"parentRefs": parents}}))
}

fn entry(controller: &str, name: &str, time: &str) -> Value {
    json!({
        "controllerName": controller, "parentRef": parent(name),
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
            "lastTransitionTime": time,
        }],
    })
}

fn get(server: &ApiServer) -> Value {
    server.get("HTTPRoute", "shop", "r").unwrap()
}

fn list(server: &ApiServer) -> Vec<Value> {
    get(server)["status"]["parents"].as_array().cloned().unwrap()
}

fn names(server: &ApiServer) -> Vec<String> {
    let name = |e: &Value| format!("{}:{}", e["controllerName"], e["parentRef"]["name"]);
    let mut names: Vec<_> = list(server).iter().map(name).collect();
    for text in &mut names {
        *text = text.replace('"', "").replace("example.org/", "");
    }
    names
}

fn writes(calls: &[Call]) -> Vec<String> {
    let writes = calls
        .iter()
        .filter(|c| c.verb.is_write() && c.resource == "httproutes");
    writes.map(|c| format!("{c}")).collect()
}

// ---- one look after the other ----

#[tokio::test(start_paused = true)]
async fn an_entry_is_put_beside_those_of_others_with_one_guarded_patch_and_then_nothing() {
    let server = world();
    let stack = parts(&server, None).stack();
    server.create(route(&["a"]));
    let theirs = [
        entry(THEM, "x", "2026-01-01T00:00:00.123456Z"),
        entry(THEM, "a", "2026-01-01T00:00:00+00:00"),
    ];
    let before = server.set_status("HTTPRoute", "shop", "r", json!({"parents": theirs}));

    let mark = server.mark();
    assert_eq!(look(&stack, &before).await, Outcome::Done);
    assert_eq!(names(&server), ["them:x", "them:a", "us:a"]);
    assert_eq!(list(&server)[..2], theirs, "to the byte");
    // The cache has not seen it; and then it has.
    look(&stack, &before).await;
    let after = get(&server);
    look(&stack, &after).await;
    assert_eq!(
        get(&server)["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
    let asked = of_operator(&server, mark);
    assert_eq!(writes(&asked).len(), 1, "{asked:#?}");
    assert!(asked.iter().all(|c| c.verb != Verb::Get), "no read: {asked:#?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_of_ours_and_nothing_to_say_is_never_a_write() {
    let server = world();
    let stack = parts(&server, None).stack();
    let bare = server.create(route(&["foreign"]));
    let mark = server.mark();
    look(&stack, &bare).await;
    let theirs = server.set_status(
        "HTTPRoute",
        "shop",
        "r",
        json!({"parents": [entry(THEM, "foreign", "2026-01-01T00:00:00Z")]}),
    );
    look(&stack, &theirs).await;
    assert_eq!(writes(&of_operator(&server, mark)), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn our_last_entry_leaves_an_empty_list() {
    let server = world();
    let stack = parts(&server, None).stack();
    server.create(route(&["foreign"]));
    let own = server.set_status(
        "HTTPRoute",
        "shop",
        "r",
        json!({"parents": [entry(US, "gone", "2026-01-01T00:00:00Z")]}),
    );
    look(&stack, &own).await;
    assert_eq!(get(&server)["status"], json!({"parents": []}));
    let mark = server.mark();
    look(&stack, &get(&server)).await;
    assert_eq!(writes(&of_operator(&server, mark)), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn doubles_and_stale_parents_of_ours_go_in_one_write_and_times_stay() {
    let server = world();
    let stack = parts(&server, None).stack();
    server.create(route(&["a"]));
    let own = server.set_status(
        "HTTPRoute",
        "shop",
        "r",
        json!({"parents": [
            entry(US, "gone", "2026-01-01T00:00:00Z"), entry(US, "a", "2026-01-02T00:00:00Z"),
            entry(THEM, "a", "2026-01-03T00:00:00Z"), entry(US, "a", "2026-01-04T00:00:00Z"),
        ]}),
    );
    look(&stack, &own).await;
    assert_eq!(
        list(&server),
        [
            entry(US, "a", "2026-01-02T00:00:00Z"),
            entry(THEM, "a", "2026-01-03T00:00:00Z")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_reported_on_a_later_generation_is_written_over_unless_the_view_is_older_than_our_own_write()
{
    let server = world();
    let stack = parts(&server, None).stack();
    // given a status that a restore brought along from another cluster
    server.create(route(&["no-gateway"]));
    let mut later = entry(US, "no-gateway", "2026-01-01T00:00:00Z");
    later["conditions"][0]["observedGeneration"] = json!(5);
    let restored = server.set_status("HTTPRoute", "shop", "r", json!({"parents": [later]}));
    let mark = server.mark();
    assert_eq!(look(&stack, &restored).await, Outcome::Done);
    assert_eq!(writes(&of_operator(&server, mark)).len(), 1);
    assert_eq!(list(&server)[0]["conditions"][0]["observedGeneration"], 1);
    // when we have reported on the next generation, and the cache still shows the one before
    let next = point_at(&server, &["a"]);
    look(&stack, &next).await;
    let mark = server.mark();
    let outcome = look(&stack, &restored).await;
    assert!(matches!(outcome, Outcome::RequeueAfter(_)), "{outcome:?}");
    assert_eq!(writes(&of_operator(&server, mark)), [""; 0]);
    assert_eq!(list(&server)[0]["conditions"][0]["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_others_have_filled_takes_what_it_has_room_for_and_the_rest_is_said() {
    let server = world();
    let stack = parts(&server, None).stack();
    server.create(route(&["a", "b"]));
    let theirs: Vec<Value> = (0..31)
        .map(|n| entry(THEM, &format!("g{n}"), "2026-01-01T00:00:00Z"))
        .collect();
    let full = server.set_status("HTTPRoute", "shop", "r", json!({ "parents": theirs }));
    assert_eq!(look(&stack, &full).await, Outcome::Done);
    assert_eq!((list(&server).len(), names(&server)[31].as_str()), (32, "us:a"));
    let events = server.list("Event", "shop");
    let note = events.iter().find(|e| e["reason"] == "StatusTruncated").unwrap();
    let said = note["note"].as_str().unwrap();
    assert!(
        said.starts_with("status.parents takes 32 entries: 1 of 2 of this controller"),
        "{said}"
    );
    // nothing more is written or said of it
    let mark = server.mark();
    look(&stack, &get(&server)).await;
    assert_eq!(writes(&of_operator(&server, mark)), [""; 0]);
    assert_eq!(server.list("Event", "shop").len(), events.len());
}

#[tokio::test(start_paused = true)]
async fn an_old_view_is_refused_and_changes_nothing() {
    let server = world();
    let stack = parts(&server, None).stack();
    let old = server.create(route(&["a"]));
    let theirs = [entry(THEM, "a", "2026-01-01T00:00:00Z")];
    server.set_status("HTTPRoute", "shop", "r", json!({"parents": theirs}));
    let outcome = look(&stack, &old).await;
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                class: ErrorClass::Conflict,
                retry: Some(_)
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(list(&server), theirs);
    assert_eq!(server.list("Event", "shop").len(), 0, "no word about it");
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_comes_back_while_the_cache_lags_keeps_the_time_of_our_own_write() {
    let server = world();
    let stack = parts(&server, None).stack();
    let first = server.create(route(&["a"]));
    look(&stack, &first).await;
    let since = list(&server)[0]["conditions"][0]["lastTransitionTime"].clone();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The spec moves on, the status that the cache shows is still the one before our write.
    let mut lagging = first.clone();
    lagging["spec"]["parentRefs"] = json!([parent("a"), parent("b")]);
    look(&stack, &lagging).await;
    assert_eq!(names(&server), ["us:a", "us:b"]);
    assert_eq!(list(&server)[0]["conditions"][0]["lastTransitionTime"], since);
}

// ---- pacing ----

#[tokio::test(start_paused = true)]
async fn of_a_burst_the_first_goes_out_at_once_and_the_last_always() {
    let server = world();
    let pace = Duration::from_millis(500);
    let stack = parts(&server, Some(pace)).stack();
    server.create(route(&["a"]));
    let mark = server.mark();
    assert_eq!(look(&stack, &get(&server)).await, Outcome::Done, "at once");
    let mut due = None;
    for n in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let changed = point_at(&server, &[&format!("p{n}")]);
        due = look(&stack, &changed).await.retry();
    }
    if let Some(due) = due {
        assert!(due <= pace, "{due:?}");
        assert_ne!(names(&server), ["us:p99"]);
        tokio::time::sleep(due).await;
        assert_eq!(look(&stack, &get(&server)).await, Outcome::Done);
    }
    assert_eq!(names(&server), ["us:p99"]);
    let writes = writes(&of_operator(&server, mark)).len();
    assert!((4..=6).contains(&writes), "2 s at 2 a second: {writes}");
}

#[tokio::test(start_paused = true)]
async fn events_wait_with_the_write_that_they_tell_of_and_are_told_once() {
    let server = world();
    let stack = parts(&server, Some(Duration::from_secs(1))).stack();
    server.create(route(&["a"]));
    look(&stack, &get(&server)).await;
    let told = || server.list("Event", "shop").len();
    let refused = point_at(&server, &["no-gateway"]);
    for _ in 0..3 {
        assert!(look(&stack, &refused).await.retry().is_some());
    }
    assert_eq!(told(), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        assert_eq!(look(&stack, &refused).await, Outcome::Done);
    }
    assert_eq!(told(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_object_of_the_same_name_does_not_wait_for_the_pace_of_the_first() {
    let server = world();
    let stack = parts(&server, Some(Duration::from_secs(3600))).stack();
    look(&stack, &server.create(route(&["a"]))).await;
    server.delete("HTTPRoute", "shop", "r");
    assert_eq!(look(&stack, &server.create(route(&["b"]))).await, Outcome::Done);
    assert_eq!(names(&server), ["us:b"]);
}

// ---- a running controller ----

struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(server: &ApiServer, pace: Option<Duration>) -> Self {
        let metrics = Metrics::new("lab");
        let hub = WatchHub::new(server.client_as(USER), metrics);
        let routes = hub.typed::<Route>(&Scope::All, &Selector::default());
        let triggers = Triggers::<Route>::default();
        // Status is what is contended here: every change is looked at.
        let kept = (
            routes.listen(on_change_of_self(&triggers, |_, _| true)),
            routes.start(),
        );
        let parts = parts(server, pace);
        let forget = Arc::new(parts.forget());
        let mut spec = ControllerSpec::new(Accepting::NAME, routes, triggers, parts.stack());
        spec.forget = Some(forget);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            run_controller(spec, stopped, || ()).await;
            drop((kept, hub));
        });
        Self { stop, task }
    }
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_one_list_lose_nothing_and_come_to_rest() {
    let server = world();
    server.create(route(&["a", "b"]));
    let running = Running::start(&server, None);
    let mark = server.mark();
    // The other one adds, changes and removes entries of its own, by read, change and guarded write, between our looks.
    for round in 0..20 {
        let mut route = get(&server);
        let mut all = route["status"]["parents"].as_array().cloned().unwrap_or_default();
        all.retain(|e| e["controllerName"] != THEM);
        all.insert(0, entry(THEM, &format!("x{round}"), "2026-01-01T00:00:00Z"));
        route["status"] = json!({ "parents": all });
        server.set_status("HTTPRoute", "shop", "r", route["status"].clone());
        if round % 3 == 0 {
            point_at(
                &server,
                if round % 2 == 0 {
                    &["a", "no-gateway"]
                } else {
                    &["a", "b"]
                },
            );
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    point_at(&server, &["a", "b"]);
    quiet(&server).await;
    assert_eq!(names(&server), ["them:x19", "us:a", "us:b"]);
    let generation = get(&server)["metadata"]["generation"].clone();
    for own in &list(&server)[1..] {
        assert_eq!(own["conditions"][0]["observedGeneration"], generation);
    }
    let writes = writes(&of_operator(&server, mark));
    assert!(writes.len() <= 60, "{writes:#?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paced_controller_writes_the_last_value_without_a_further_change() {
    let server = world();
    server.create(route(&["a"]));
    let running = Running::start(&server, Some(Duration::from_secs(1)));
    eventually(&server, "the first entry", || {
        (!get(&server)["status"].is_null()).then_some(())
    })
    .await;
    let mark = server.mark();
    for n in 0..50 {
        point_at(&server, &[&format!("p{n}")]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eventually(&server, "the last entry", || {
        (names(&server) == ["us:p49"]).then_some(())
    })
    .await;
    quiet(&server).await;
    let writes = writes(&of_operator(&server, mark));
    assert!(writes.len() <= 2, "{writes:#?}");
    running.stop().await;
}

// ---- force, and one patch for two things ----

#[tokio::test(start_paused = true)]
async fn force_takes_over_what_is_ours_by_the_api_and_leaves_the_conditions_of_others() {
    let server = world();
    server.serve(ResourceDef::custom("example.org", "v1", "Site", "sites"));
    let made = server.create(common::site("s", "", ""));
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    // Somebody applied both before us.
    let theirs = json!([condition("Ready", "Unknown"), condition("Theirs", "True")]);
    let body = json!({
        "apiVersion": "example.org/v1", "kind": "Site", "metadata": {"name": "s"}, "status": {"conditions": theirs},
    });
    let client = server.client_as("they");
    let target = reconcile_kit::api::Target {
        kind: &common::SITE,
        namespace: "shop",
        name: "s",
    };
    reconcile_kit::api::apply_status(&client, target, "they", true, &body)
        .await
        .unwrap();

    for (mode, ready) in [(StatusMode::Apply, "Unknown"), (StatusMode::Force, "True")] {
        let contract = StatusContract {
            manager: "lab-status",
            conditions: &["Ready"],
            fields: &[],
            mode,
        };
        let live = server.get("Site", "shop", "s").unwrap();
        let version = live["metadata"]["resourceVersion"].as_str().unwrap();
        let body = json!({"conditions": [condition("Ready", "True")]});
        let writer = KubeStatusWriter(server.client_as(USER));
        let answer = writer.apply(&contract, target, version, &body).await;
        assert_eq!(answer.is_ok(), mode == StatusMode::Force, "{answer:?}");
        let status = server.get("Site", "shop", "s").unwrap()["status"].clone();
        assert_eq!(status["conditions"][0]["status"], ready, "{mode:?}");
        assert_eq!(status["conditions"][1]["type"], "Theirs");
        if mode == StatusMode::Force {
            // It is no licence to write on an old view.
            let old = made["metadata"]["resourceVersion"].as_str().unwrap();
            let answer = writer.apply(&contract, target, old, &body).await;
            assert_eq!(answer, Err(StatusError::Stale));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_had_another_controller_is_ours_listener_by_listener() {
    let server = world();
    server.serve(ResourceDef::gateway());
    let contract = StatusContract {
        manager: "lab-status",
        conditions: &["Accepted", "OverlappingTLSConfig"],
        fields: &["listeners"],
        mode: StatusMode::Force,
    };
    let stack = parts_of(&server, Listening, contract, None).stack();
    let listeners = |names: &[&str]| {
        let listeners = names
            .iter()
            .map(|name| json!({"name": name, "port": 80, "protocol": "HTTP"}));
        json!({"listeners": listeners.collect::<Vec<_>>(), "gatewayClassName": "ours"})
    };
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "g", "namespace": "shop"}, "spec": listeners(&["http", "more"]),
    }));
    // Given what the controller before us wrote by plain updates, of a listener that is no more too
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "False", "reason": "Theirs", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let before = ["http", "gone", "more"].map(|name| {
        let conditions = [
            condition("Accepted"),
            condition("OverlappingTLSConfig"),
            condition("Theirs"),
        ];
        json!({"name": name, "attachedRoutes": 7, "supportedKinds": [], "conditions": conditions})
    });
    server.set_status("Gateway", "shop", "g", json!({"listeners": before}));
    let live = || server.get("Gateway", "shop", "g").unwrap();
    let look = async || {
        let gateway: Gateway = serde_json::from_value(live()).unwrap();
        let request = reconcile_kit::Request::new(Arc::new(gateway));
        stack.clone().oneshot(request).await.unwrap()
    };
    let said = || {
        let listeners = live()["status"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let said = listeners.iter().map(|l| {
            let conditions = l["conditions"].as_array().unwrap().iter();
            let conditions: Vec<_> = conditions
                .map(|c| format!("{}={}", c["type"], c["status"]))
                .collect();
            format!("{} {} {}", l["name"], l["attachedRoutes"], conditions.join(" ")).replace('"', "")
        });
        said.collect::<Vec<_>>()
    };
    // When it is looked at, then what is ours by the API is as we say, and the word of others inside stays
    assert_eq!(look().await, Outcome::Done);
    assert_eq!(
        said(),
        [
            "http 0 Accepted=True Theirs=False",
            "more 0 Accepted=True Theirs=False"
        ]
    );
    let mark = server.mark();
    assert_eq!(look().await, Outcome::Done);
    assert_eq!(of_operator(&server, mark).len(), 0);
    // And a listener in which others have a word goes with its spec
    server.edit("Gateway", "shop", "g", json!({"spec": listeners(&["more"])}));
    assert_eq!(look().await, Outcome::Done);
    assert_eq!(said(), ["more 0 Accepted=True Theirs=False"]);
    let mark = server.mark();
    assert_eq!(look().await, Outcome::Done);
    assert_eq!(of_operator(&server, mark).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn finalizers_and_annotations_go_out_in_one_guarded_patch() {
    let server = world();
    let made = server.create(route(&["a"]));
    server.edit(
        "HTTPRoute",
        "shop",
        "r",
        json!({"metadata": {"annotations": {"mine": "1", "over": "x"}}}),
    );
    let kind = ApiKind::new("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");
    let target = reconcile_kit::api::Target {
        kind: &kind,
        namespace: "shop",
        name: "r",
    };
    let writer = KubeOwnerWriter(server.client_as(USER));
    let write = OwnerWrite::Metadata {
        finalizers: Some(vec!["example.org/f".into()]),
        annotations: BTreeMap::from([("over".into(), None), ("apis".into(), Some("a,b".into()))]),
    };
    let mark = server.mark();
    let old = made["metadata"]["resourceVersion"].as_str().unwrap();
    let error = writer.write(target, old, "lab", &write).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Conflict);
    let live = get(&server);
    let version = live["metadata"]["resourceVersion"].as_str().unwrap();
    let after = writer.write(target, version, "lab", &write).await.unwrap();
    assert_eq!(after["metadata"]["finalizers"], json!(["example.org/f"]));
    assert_eq!(
        after["metadata"]["annotations"],
        json!({"mine": "1", "apis": "a,b"})
    );
    let nothing_more = OwnerWrite::Metadata {
        finalizers: None,
        annotations: BTreeMap::from([("apis".into(), None)]),
    };
    let version = after["metadata"]["resourceVersion"].as_str().unwrap();
    let last = writer.write(target, version, "lab", &nothing_more).await.unwrap();
    assert_eq!(last["metadata"]["finalizers"], json!(["example.org/f"]));
    assert_eq!(last["metadata"]["annotations"], json!({"mine": "1"}));
    assert_eq!(writes(&of_operator(&server, mark)).len(), 3);
}
