//! Stories of the supervisor, and of all parts together on the in-process API server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::{Log, until};
use crate::{
    ApiKind, BoxReconcile, Outcome, Request,
    owned::{ChildCache, Lookup},
    runtime::{
        ApiState, ChildCaches, ControllerSpec, Leadership, Metrics, Origin, Presence, Probes, Scope,
        Selector, StartContext, Supervisor, Triggers, Unit, WatchHub, WriteGuard, lock,
        probes::{self, ServeError},
        run_controller,
        supervisor::State,
        triggers::on_change_of_self,
    },
    testing::{ApiServer, Fault, Matcher, Times},
};

const THING: ApiKind = ApiKind::new("example.org", "v1", "Thing", "things");

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.org", version = "v1", kind = "Thing", namespaced)]
struct ThingSpec {
    size: Option<u32>,
}

struct World {
    presence: Presence,
    leadership: Leadership,
    supervisor: Supervisor,
}

fn world(api: ApiState, leads: bool) -> World {
    let presence = Presence::fixed([(THING, api)]);
    let leadership = Leadership::fixed(leads);
    let supervisor = Supervisor::new(presence.clone(), leadership.clone(), Metrics::default());
    World {
        presence,
        leadership,
        supervisor,
    }
}

impl World {
    fn state(&self) -> State {
        self.supervisor.status()[0].state
    }
}

/// A controller that counts how often it began, was told to stop, and was dropped.
#[derive(Clone, Default)]
struct Counts {
    begun: Arc<AtomicUsize>,
    stopped: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts {
    fn unit(&self, drain: Duration) -> Unit {
        let counts = self.clone();
        Unit::new("things", move |context: StartContext| {
            let counts = counts.clone();
            async move {
                let _dropped = OnDrop(Arc::clone(&counts.dropped));
                counts.begun.fetch_add(1, Ordering::Relaxed);
                context.running();
                context.stop.cancelled().await;
                tokio::time::sleep(drain).await;
                counts.stopped.fetch_add(1, Ordering::Relaxed);
            }
            .boxed()
        })
        .requires(&[THING])
    }

    fn get(&self) -> (usize, usize, usize) {
        let of = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        (of(&self.begun), of(&self.stopped), of(&self.dropped))
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_waits_for_a_kind_logs_which_and_once() {
    let log = Log::default();
    let _logging = log.start();
    let lines = || log.lines("install their CRDs");
    // Given a controller, and nothing known of its kind, then nothing is said
    let world = world(ApiState::Unknown, true);
    world
        .supervisor
        .add(Counts::default().unit(Duration::from_secs(1)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lines(), [""; 0]);
    // when it is known not to be served, then that is one line, however often it is heard
    for _ in 0..3 {
        world.presence.set(THING, ApiState::Absent);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(lines().len(), 1, "{:#?}", lines());
    assert!(lines()[0].contains(&THING.to_string()), "{:#?}", lines());
    // and once more when it goes again
    world.presence.set(THING, ApiState::Served);
    until("running", || world.state() == State::Running).await;
    world.presence.set(THING, ApiState::Absent);
    until("stopped", || world.state() == State::WaitingForApi).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lines().len(), 2, "{:#?}", lines());
}

#[tokio::test(start_paused = true)]
async fn a_controller_waits_for_its_api_then_for_the_lease_and_goes_with_either() {
    let world = world(ApiState::Unknown, false);
    let counts = Counts::default();
    world.supervisor.add(counts.unit(Duration::from_secs(1)));
    assert_eq!(world.state(), State::WaitingForApi);
    assert_eq!(world.supervisor.status()[0].missing, [THING]);
    world.presence.set(THING, ApiState::Served);
    until("waiting for the lease", || {
        world.state() == State::WaitingForLease
    })
    .await;
    assert_eq!(counts.get(), (0, 0, 0));
    world.leadership.set(true);
    until("running", || world.state() == State::Running).await;
    assert_eq!(counts.get(), (1, 0, 0));

    // the API goes: it may finish what runs
    world.presence.set(THING, ApiState::Absent);
    until("stopped", || world.state() == State::WaitingForApi).await;
    assert_eq!(counts.get(), (1, 1, 1));
    // and comes back
    world.presence.set(THING, ApiState::Served);
    until("running", || world.state() == State::Running).await;

    // the lease goes: nothing goes on
    world.leadership.set(false);
    until("dropped", || world.state() == State::WaitingForLease).await;
    assert_eq!(counts.get(), (2, 1, 2));
    world.leadership.set(true);
    until("running", || world.state() == State::Running).await;
    world.supervisor.shutdown().await;
    assert_eq!(counts.get(), (3, 2, 3));
    assert_eq!(world.supervisor.status()[0].restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_gone_for_a_moment_is_noticed_if_somebody_was_refused() {
    let world = world(ApiState::Served, true);
    let counts = Counts::default();
    world.supervisor.add(counts.unit(Duration::ZERO));
    until("running", || world.state() == State::Running).await;
    // nobody was refused: nothing was missed
    world.leadership.set(false);
    world.leadership.set(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counts.get(), (1, 0, 0));
    // a write was refused: its trigger is gone, so all objects are looked at anew
    world.leadership.set(false);
    assert!(WriteGuard::new(world.leadership.clone()).check().is_err());
    world.leadership.set(true);
    until("the second start", || counts.get() == (2, 0, 1)).await;
    assert_eq!(world.supervisor.status()[0].restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_that_goes_while_it_drains_ends_the_draining() {
    let world = world(ApiState::Served, true);
    let counts = Counts::default();
    world.supervisor.add(counts.unit(Duration::from_secs(20)));
    until("running", || world.state() == State::Running).await;
    let (supervisor, begun) = (world.supervisor.clone(), Instant::now());
    let ending = tokio::spawn(async move { supervisor.shutdown().await });
    until("stopping", || world.state() == State::Stopping).await;
    world.leadership.set(false);
    ending.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(counts.get(), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_runs_but_not_for_ever() {
    for (drain, finished) in [(20, 1), (3_600, 0)] {
        let world = world(ApiState::Served, true);
        let counts = Counts::default();
        world.supervisor.add(counts.unit(Duration::from_secs(drain)));
        until("running", || world.state() == State::Running).await;
        let begun = Instant::now();
        world.supervisor.shutdown().await;
        assert!(begun.elapsed() <= Duration::from_secs(28));
        assert_eq!(counts.get(), (1, finished, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_may_drain_for_as_long_as_it_says() {
    for (allowed, finished, longest) in [(60, 1, 41), (5, 0, 8)] {
        let world = world(ApiState::Served, true);
        let counts = Counts::default();
        let unit = counts.unit(Duration::from_secs(40));
        world.supervisor.add(unit.drain(Duration::from_secs(allowed)));
        until("running", || world.state() == State::Running).await;
        let begun = Instant::now();
        world.supervisor.shutdown().await;
        assert!(
            begun.elapsed() <= Duration::from_secs(longest),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(counts.get(), (1, finished, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_caches_of_optional_kinds_outlast_the_controllers_that_read_them() {
    let world = world(ApiState::Served, true);
    let counts = Counts::default();
    world.supervisor.add(counts.unit(Duration::from_secs(20)));
    let finished = Arc::new(Mutex::new(None));
    let (note, of) = (Arc::clone(&finished), counts.clone());
    world.supervisor.supervise_kind(
        THING,
        || async {}.boxed(),
        move || *lock(&note) = Some(of.get()),
        |_| (),
    );
    until("running", || world.state() == State::Running).await;
    world.supervisor.shutdown().await;
    assert_eq!(*lock(&finished), Some((1, 1, 1)), "stopped last");
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_or_ends_is_started_again_with_patience_and_hurts_no_other() {
    let world = world(ApiState::Served, true);
    let healthy = Counts::default();
    world.supervisor.add(healthy.unit(Duration::ZERO));
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    world.supervisor.add(Unit::new("sick", move |context| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match n {
                0 => panic!("a bug"),
                1..12 => {}
                _ => {
                    context.running();
                    context.stop.cancelled().await;
                }
            }
        }
        .boxed()
    }));
    let begun = Instant::now();
    until("a second try", || tries.load(Ordering::Relaxed) == 2).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let sick = |world: &World| world.supervisor.status()[1].clone();
    assert!(sick(&world).restarts < 10, "{:?}", sick(&world));
    let alive = |world: &World| get(probes_of(world, &ApiServer::new()), "/livez");
    assert_eq!(alive(&world).await.0, 200);
    while tries.load(Ordering::Relaxed) < 12 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (code, text) = alive(&world).await;
    assert_eq!(code, 503, "{text}");
    assert!(text.contains("sick"), "{text}");
    assert!(begun.elapsed() > Duration::from_secs(200));
    until("running", || sick(&world).state == State::Running).await;
    // stable again: alive again
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(alive(&world).await.0, 200);
    assert_eq!(healthy.get(), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_controller_never_starts() {
    let world = world(ApiState::Served, true);
    let counts = Counts::default();
    world
        .supervisor
        .add(counts.unit(Duration::ZERO).features(&["things"]).enabled(false));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.state(), counts.get()), (State::Disabled, (0, 0, 0)));
    world.supervisor.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_comes_and_goes_and_its_owners_are_looked_at_once_each_time() {
    let world = world(ApiState::Unknown, true);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (a, b, c) = (Arc::clone(&told), Arc::clone(&told), Arc::clone(&told));
    world.supervisor.supervise_kind(
        THING,
        move || {
            lock(&a).push("start".to_owned());
            tokio::time::sleep(Duration::from_secs(2)).boxed()
        },
        move || lock(&b).push("stop".to_owned()),
        move |state| lock(&c).push(format!("{state:?}")),
    );
    let take = || std::mem::take(&mut *lock(&told));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(take(), Vec::<String>::new());
    world.presence.set(THING, ApiState::Absent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(take(), ["stop", "Absent"]);
    world.presence.set(THING, ApiState::Served);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(take(), ["start"], "not before its cache is warm");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(take(), ["Served"]);
    // gone again while it warms up
    world.presence.set(THING, ApiState::Absent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.presence.set(THING, ApiState::Served);
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.presence.set(THING, ApiState::Absent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = take();
    assert_eq!(seen[..3], ["stop", "Absent", "start"]);
    assert_eq!(seen[seen.len() - 2..], ["stop", "Absent"]);
}

// ---- all together ----

fn thing_crd() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.org" },
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    })
}

fn thing(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Thing",
        "metadata": { "name": name, "namespace": "default" }, "spec": { "size": 1 },
    })
}

struct Operator {
    hub: WatchHub,
    supervisor: Supervisor,
    leadership: Leadership,
    runs: Arc<Mutex<Vec<String>>>,
}

fn operator(server: &ApiServer, leads: bool) -> Operator {
    let metrics = Metrics::default();
    let hub = WatchHub::new(server.client_as("op"), metrics.clone());
    let presence = Presence::start(&server.client_as("op"), &hub, &metrics, [(THING, Origin::Crd)]);
    let leadership = Leadership::fixed(leads);
    let supervisor = Supervisor::new(presence, leadership.clone(), metrics);
    let runs = Arc::new(Mutex::new(Vec::new()));
    let things = hub.typed::<Thing>(&Scope::All, &Selector::default());
    let (warm, log) = (things.clone(), Arc::clone(&runs));
    let unit = Unit::new("things", move |context: StartContext| {
        let (things, log) = (things.clone(), Arc::clone(&log));
        async move {
            let triggers = Triggers::default();
            let _listening = things.listen(on_change_of_self(&triggers, |_, _| false));
            let stack = BoxReconcile::new(tower::service_fn(move |request: Request<Thing>| {
                lock(&log).push(request.object.name_any());
                async { Ok(Outcome::Done) }
            }));
            let spec = ControllerSpec::new("things", things, triggers, stack);
            run_controller(spec, context.stop.clone(), || context.running()).await;
        }
        .boxed()
    });
    supervisor.add(
        unit.requires(&[THING])
            .features(&["things"])
            .warm(move || vec![warm.start()]),
    );
    Operator {
        hub,
        supervisor,
        leadership,
        runs,
    }
}

impl Operator {
    fn state(&self) -> State {
        self.supervisor.status()[0].state
    }

    fn take(&self) -> Vec<String> {
        let mut runs = std::mem::take(&mut *lock(&self.runs));
        runs.sort();
        runs
    }

    fn probes(&self) -> axum::Router {
        probes::probe_router(Probes {
            supervisor: self.supervisor.clone(),
            hub: self.hub.clone(),
            leadership: self.leadership.clone(),
        })
    }
}

fn probes_of(world: &World, server: &ApiServer) -> axum::Router {
    probes::probe_router(Probes {
        supervisor: world.supervisor.clone(),
        hub: WatchHub::new(server.client(), Metrics::default()),
        leadership: world.leadership.clone(),
    })
}

async fn get(router: axum::Router, path: &str) -> (u16, String) {
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_appears_is_reconciled_without_a_restart_and_one_that_vanishes_is_forgotten() {
    let server = ApiServer::new();
    let operator = operator(&server, true);
    until("waiting", || operator.state() == State::WaitingForApi).await;
    let (code, text) = get(operator.probes(), "/readyz?verbose").await;
    assert_eq!(code, 200, "waiting for an API is no fault: {text}");
    assert!(text.contains("controller things: WaitingForApi, missing Thing.example.org/v1 (things)"));

    let begun = Instant::now();
    server.create(thing_crd());
    server.create(thing("a"));
    server.create(thing("b"));
    until("both", || lock(&operator.runs).len() == 2).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(operator.take(), ["a", "b"]);
    assert_eq!(operator.state(), State::Running);

    server.delete("CustomResourceDefinition", "", "things.example.org");
    until("stopped", || operator.state() == State::WaitingForApi).await;
    let things = operator.hub.typed::<Thing>(&Scope::All, &Selector::default());
    assert!(
        things.store().reflector().is_none(),
        "the store went with the kind"
    );
    operator.take();

    server.create(thing_crd());
    server.create(thing("c"));
    until("again", || operator.take() == ["c"]).await;
    operator.supervisor.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_has_warm_caches_and_sees_every_object_when_it_leads() {
    let server = ApiServer::new();
    server.create(thing_crd());
    server.create(thing("a"));
    let operator = operator(&server, false);
    let things = operator.hub.typed::<Thing>(&Scope::All, &Selector::default());
    until("a warm cache", || things.is_ready()).await;
    assert_eq!(operator.state(), State::WaitingForLease);
    server.create(thing("b"));
    until("followed", || things.store().len() == 2).await;
    assert_eq!(operator.take(), Vec::<String>::new());
    let mark = server.mark();
    operator.leadership.set(true);
    until("both", || lock(&operator.runs).len() == 2).await;
    assert_eq!(operator.take(), ["a", "b"]);
    assert_eq!(server.calls_since(mark), [], "taking over costs no request");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_a_visible_state_and_mends_itself() {
    let server = ApiServer::new();
    server.create(thing_crd());
    server.create(thing("a"));
    let denied = server.deny("op", "list", "things");
    let operator = operator(&server, true);
    until("syncing", || operator.state() == State::Syncing).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (code, text) = get(operator.probes(), "/readyz?verbose").await;
    assert_eq!(code, 503, "{text}");
    assert!(text.contains("things.example.org is forbidden"), "{text}");
    server.undeny(denied);
    until("running", || operator.state() == State::Running).await;
    until("the run", || operator.take() == ["a"]).await;
    assert_eq!(get(operator.probes(), "/readyz").await, (200, "ok\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn no_trigger_is_lost_over_a_storm_and_nothing_runs_twice_after_it() {
    let server = ApiServer::new();
    server.create(thing_crd());
    for n in 0..50 {
        server.create(thing(&format!("t{n:02}")));
    }
    let operator = operator(&server, true);
    until("all", || lock(&operator.runs).len() == 50).await;
    operator.take();
    for fault in [
        Fault::Status(503),
        Fault::ConnectionError,
        Fault::TooManyRequests { retry_after: 1 },
        Fault::WatchExpired,
    ] {
        let mark = server.mark();
        let id = server.fault(Matcher::any(), fault.clone(), Times::Always);
        server.cut_watches("things");
        server.edit(
            "Thing",
            "default",
            "t07",
            json!({ "spec": { "size": server.revision() } }),
        );
        server.delete("Thing", "default", "t13");
        server.create(thing("t13"));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(server.calls_since(mark).len() < 60, "{fault:?}");
        assert_eq!(operator.state(), State::Running);
        server.unfault(id);
        server.compact();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut runs = operator.take();
        runs.dedup();
        assert_eq!(runs, ["t07", "t13"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_port_that_is_in_use_is_one_clear_error_and_metrics_are_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stop = tokio_util::sync::CancellationToken::new();
    let metrics = Metrics::new("op");
    metrics.leader.set(1);
    let server = probes::serve_metrics(([127, 0, 0, 1], 0).into(), metrics.clone(), stop.clone())
        .await
        .unwrap();
    let error = probes::serve_metrics(server.address, metrics, stop)
        .await
        .unwrap_err();
    assert!(matches!(error, ServeError::InUse { .. }));
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\nop_leader 1\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_child_cache_is_not_ready_without_its_kind_and_its_owners_hear_of_both() {
    let server = ApiServer::new();
    let metrics = Metrics::default();
    let hub = WatchHub::new(server.client(), metrics.clone());
    let presence = Presence::start(&server.client(), &hub, &metrics, [(THING, Origin::Crd)]);
    let supervisor = Supervisor::new(presence, Leadership::always(), metrics);
    let things = hub.children(
        THING,
        &Scope::All,
        &Selector::labels("app.kubernetes.io/managed-by=test"),
    );
    let caches = ChildCaches::new([(THING, things.clone())]);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&heard);
    supervisor.supervise_watch(THING, &things, move |state| lock(&log).push(state));
    let lookup = |name: &str| match caches.child(&THING, "default", name) {
        Lookup::Present(_) => "present",
        Lookup::Absent => "absent",
        Lookup::NotReady => "not ready",
        Lookup::Unwatched => "unwatched",
    };
    until("absent", || *lock(&heard) == [ApiState::Absent]).await;
    assert_eq!(lookup("a"), "not ready");
    server.create(thing_crd());
    let mut labelled = thing("a");
    labelled["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "test" });
    server.create(labelled);
    server.create(thing("b"));
    until("served", || lock(&heard).len() == 2).await;
    until("seen", || lookup("a") == "present").await;
    assert_eq!(lookup("b"), "absent", "not ours");
    server.delete("CustomResourceDefinition", "", "things.example.org");
    until("gone", || lock(&heard).len() == 3).await;
    assert_eq!(lookup("a"), "not ready");
    assert_eq!(
        *lock(&heard),
        [ApiState::Absent, ApiState::Served, ApiState::Absent]
    );
}
