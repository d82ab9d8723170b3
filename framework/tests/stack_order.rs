//! What each layer of the whole stack is for, and why it stands where it stands. The stack is built from a list, so that
//! a layer can be left out and two neighbours can change places; the properties say what breaks then.
//!
//! What does not fit together by type is refused here as the compiler refuses it (`layers::order` proves that).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

use std::{
    collections::BTreeSet,
    fmt::Debug,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt;
use k8s_openapi::{
    api::core::v1::{ConfigMap, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Condition as MetaCondition,
};
use kube::core::ObjectMeta;
use reconcile_kit::{
    ApiKind, Child, ChildPlan, ChildState, Children, Condition, Desired, ErrorClass, HoldReason, Needs, Note,
    Outcome, Plan, Planner, ReconcileError, Report, Request, Settled, Verdict,
    api::Target,
    events::EventSink,
    layers::{
        api_presence::{ApiPresenceLayer, Presence},
        catch_panic::CatchPanicLayer,
        conditions::{ConditionsLayer, Reporting},
        effects::{Effects, EffectsLayer},
        feature_gate::FeatureGateLayer,
        finalizer::FinalizerLayer,
        leader_gate::LeaderGateLayer,
        metadata::{Labelled, MetadataLayer, OperatorMetadata},
        metrics::MetricsLayer,
        owned_children::{Owned, OwnedChildrenLayer},
        planner::PlannerService,
        policy::{Backoff, PolicyLayer},
        timeout::TimeoutLayer,
        trace::TraceLayer,
    },
    owned::{ChildCache, ChildWriter, Lookup, WriteMemory, decide::Intent, writer::WriteError},
    owner::{OwnerPatch, OwnerWrite, OwnerWriter},
    runtime::Metrics,
    stack::{INNER_TIMEOUT, OUTER_TIMEOUT},
    status::{StatusContract, StatusMode},
    status_writer::{StatusAnswer, StatusError, StatusWriter},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tracing::{
    Id,
    field::{Field, Visit},
    span::{Attributes, Record},
};
use tracing_subscriber::{
    layer::{Context, SubscriberExt},
    registry,
};

// ---- the stack as a list ----

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Trace,
    Metrics,
    Policy,
    LeaderGate,
    OuterCatch,
    OuterTimeout,
    Conditions,
    InnerTimeout,
    InnerCatch,
    Finalizer,
    Effects,
    OwnedChildren,
    Metadata,
    ApiPresence,
    FeatureGate,
}
use Slot::*;

/// As `Parts::stack_with` has it.
const WITH_EFFECTS: [Slot; 15] = [
    Trace,
    Metrics,
    Policy,
    LeaderGate,
    OuterCatch,
    OuterTimeout,
    Conditions,
    InnerTimeout,
    InnerCatch,
    Finalizer,
    Effects,
    OwnedChildren,
    Metadata,
    ApiPresence,
    FeatureGate,
];

/// As `Parts::stack` has it.
fn plain() -> Vec<Slot> {
    WITH_EFFECTS
        .into_iter()
        .filter(|s| !matches!(s, Finalizer | Effects))
        .collect()
}

type Boxed<T> = BoxCloneSyncService<Request<ConfigMap>, T, ReconcileError>;

/// A stack so far, by what it answers.
enum Built {
    Plan(Boxed<Plan<u32>>),
    Labelled(Boxed<Labelled<u32>>),
    Settled(Boxed<Settled<u32>>),
    Outcome(Boxed<Outcome>),
}

/// It does not compile.
#[derive(Debug)]
struct Mismatch;

fn generic<L>(layer: &L, inner: Built) -> Built
where
    L: Layer<Boxed<Plan<u32>>, Service: Fits<Plan<u32>>>
        + Layer<Boxed<Labelled<u32>>, Service: Fits<Labelled<u32>>>
        + Layer<Boxed<Settled<u32>>, Service: Fits<Settled<u32>>>
        + Layer<Boxed<Outcome>, Service: Fits<Outcome>>,
{
    match inner {
        Built::Plan(s) => Built::Plan(layer.layer(s).erased()),
        Built::Labelled(s) => Built::Labelled(layer.layer(s).erased()),
        Built::Settled(s) => Built::Settled(layer.layer(s).erased()),
        Built::Outcome(s) => Built::Outcome(layer.layer(s).erased()),
    }
}

trait Fits<T> {
    fn erased(self) -> Boxed<T>;
}

impl<S, T> Fits<T> for S
where
    S: tower::Service<Request<ConfigMap>, Response = T, Error = ReconcileError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    fn erased(self) -> Boxed<T> {
        BoxCloneSyncService::new(self)
    }
}

impl World {
    fn wrap(&self, slot: Slot, inner: Built) -> Result<Built, Mismatch> {
        Ok(match (slot, inner) {
            (Trace, Built::Outcome(s)) => Built::Outcome(TraceLayer("toy").layer(s).erased()),
            (Metrics, Built::Outcome(s)) => {
                Built::Outcome(MetricsLayer::new("toy", &self.metrics).layer(s).erased())
            }
            (Policy, Built::Outcome(s)) => {
                Built::Outcome(PolicyLayer(self.backoff.clone()).layer(s).erased())
            }
            (LeaderGate, Built::Outcome(s)) => {
                let lease = Arc::clone(&self.lease);
                let held = move || match lease.load(Ordering::SeqCst) {
                    BROKEN => panic!("the fence broke"),
                    lease => lease == HELD,
                };
                Built::Outcome(LeaderGateLayer(Arc::new(held)).layer(s).erased())
            }
            (OuterCatch | InnerCatch, inner) => generic(&CatchPanicLayer, inner),
            (OuterTimeout, inner) => generic(&TimeoutLayer(OUTER_TIMEOUT), inner),
            (InnerTimeout, inner) => generic(&TimeoutLayer(INNER_TIMEOUT), inner),
            (Conditions, Built::Settled(s)) => {
                const CONTRACT: StatusContract = StatusContract {
                    manager: "kit",
                    conditions: &["Ready"],
                    fields: &[],
                    mode: StatusMode::Apply,
                };
                let reporting = Reporting::new(CONTRACT, Arc::new(self.clone()), Arc::new(self.clone()));
                Built::Outcome(ConditionsLayer::<Toy>::new(Arc::new(reporting)).layer(s).erased())
            }
            (Finalizer, Built::Settled(s)) => {
                let layer = FinalizerLayer::new("kit/f", |_: &ConfigMap| true, Arc::new(self.clone()), "kit");
                Built::Settled(layer.layer(s).erased())
            }
            (Effects, Built::Settled(s)) => {
                let layer =
                    EffectsLayer::<Toy, World>::new(Arc::new(self.clone()), Arc::new(self.clone()), "kit");
                Built::Settled(layer.layer(s).erased())
            }
            (OwnedChildren, Built::Labelled(s)) => {
                let owned = Owned {
                    manager: "kit".into(),
                    prefix: "kit".into(),
                    cache: Arc::new(self.clone()),
                    writer: Arc::new(self.clone()),
                    memory: WriteMemory::default(),
                    metrics: self.metrics.clone(),
                    squatters: None,
                };
                Built::Settled(OwnedChildrenLayer(Arc::new(owned)).layer(s).erased())
            }
            (Metadata, Built::Plan(s)) => {
                let metadata = OperatorMetadata::standard("kit", "one", "toy");
                Built::Labelled(MetadataLayer(Arc::new(metadata)).layer(s).erased())
            }
            (ApiPresence, Built::Plan(s)) => {
                let presence = if self.served {
                    Presence::Served
                } else {
                    Presence::Absent
                };
                let layer = ApiPresenceLayer::<Toy>::new(Arc::new(move |_: &ApiKind| presence));
                Built::Plan(layer.layer(s).erased())
            }
            (FeatureGate, Built::Plan(s)) => {
                let on: &[&'static str] = if self.feature { &["toys"] } else { &[] };
                Built::Plan(FeatureGateLayer::<Toy>::new(on.into()).layer(s).erased())
            }
            _ => return Err(Mismatch),
        })
    }

    fn stack(&self, slots: &[Slot]) -> Result<Boxed<Outcome>, Mismatch> {
        let planner = PlannerService::new(Arc::new(Toy(self.clone())));
        let mut built = Built::Plan(planner.erased());
        for slot in slots.iter().rev() {
            built = self.wrap(*slot, built)?;
        }
        match built {
            Built::Outcome(stack) => Ok(stack),
            _ => Err(Mismatch),
        }
    }
}

// ---- the world around it ----

const HELD: u8 = 1;
const BROKEN: u8 = 2;
const TOY_API: ApiKind = ApiKind::new("toys.example.org", "v1", "Toy", "toys");

/// Everything that a stack touches, with a log of what it did in which order.
#[derive(Clone)]
struct World {
    lease: Arc<AtomicU8>,
    served: bool,
    feature: bool,
    /// What misbehaves.
    mode: &'static str,
    deleted: bool,
    metrics: Metrics,
    backoff: Backoff,
    log: Arc<Mutex<Vec<String>>>,
}

fn world(mode: &'static str) -> World {
    World {
        lease: Arc::new(AtomicU8::new(HELD)),
        served: true,
        feature: true,
        mode,
        deleted: false,
        metrics: Metrics::new("kit"),
        backoff: Backoff::default(),
        log: Arc::default(),
    }
}

impl World {
    fn note(&self, what: impl Into<String>) {
        self.log.lock().unwrap().push(what.into());
    }
    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
    fn has(&self, start: &str) -> bool {
        self.log().iter().any(|l| l.starts_with(start))
    }
    fn request(&self) -> Request<ConfigMap> {
        let mut object = ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("ns".into()),
                name: Some(self.mode.into()),
                uid: Some("u".into()),
                resource_version: Some("5".into()),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        if self.deleted {
            object.metadata.finalizers = Some(vec!["kit/f".into()]);
            object.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        Request::new(Arc::new(object))
    }
}

struct Toy(World);

impl Planner for Toy {
    type Object = ConfigMap;
    type Verdict = u32;
    const NAME: &'static str = "toy";

    fn needs(_: &ConfigMap) -> Needs {
        Needs {
            features: &["toys"],
            apis: &[TOY_API],
        }
    }
    async fn plan(&self, request: &Request<ConfigMap>) -> Result<Plan<u32>, ReconcileError> {
        self.0.note("plan");
        match self.0.mode {
            "plan-fails" => return Err(ReconcileError::new(ErrorClass::Transient, "no")),
            "plan-panics" => panic!("the planner broke"),
            "plan-hangs" => std::future::pending().await,
            _ => {}
        }
        let child = Desired::new(TOY_API, request.object.as_ref(), json!({"spec": {"size": 1}}));
        Ok(Plan::report(7).with(ChildPlan::Want(Box::new(child))))
    }
    fn report(object: &ConfigMap, verdict: &Verdict<u32>, children: &Children) -> Report {
        assert_ne!(
            object.metadata.name.as_deref(),
            Some("report-panics"),
            "the report broke"
        );
        let reason = match verdict {
            Verdict::Hold(HoldReason::ApiAbsent(_)) => "ApiAbsent",
            Verdict::Hold(HoldReason::FeatureOff(_)) => "FeatureOff",
            Verdict::Hold(_) => "Held",
            Verdict::Report(_) if children.0.iter().any(|c| c.state == ChildState::Created) => "Created",
            Verdict::Report(_) => "Nothing",
        };
        Report::new(Outcome::Done).condition(Condition::new("Ready", true, reason, ""))
    }
    fn report_error(_: &ConfigMap, error: &ReconcileError) -> Report {
        Report::new(Outcome::Done).condition(Condition::new("Ready", false, "Failed", error.message.clone()))
    }
    fn conditions(_: &ConfigMap) -> &[MetaCondition] {
        &[]
    }
    fn status_field(_: &ConfigMap, _: &str) -> Option<Value> {
        None
    }
}

impl ChildCache for World {
    fn child(&self, _: &ApiKind, _: &str, _: &str) -> Lookup {
        Lookup::Absent
    }
}

#[async_trait]
impl ChildWriter for World {
    async fn create(&self, _: Target<'_>, intent: &Intent) -> Result<Child, WriteError> {
        assert_ne!(self.mode, "child-write-panics", "the writer broke");
        self.note(format!("create with {} labels", intent.labels.len()));
        let mut object = intent.body.clone();
        object["metadata"]["uid"] = json!("c");
        object["metadata"]["resourceVersion"] = json!("6");
        Ok(Child::from_value(object).unwrap())
    }
    async fn update(&self, _: Target<'_>, _: &Intent, _: &str) -> Result<Child, WriteError> {
        unreachable!()
    }
    async fn take_over(&self, _: Target<'_>, _: &ObjectMeta) -> Result<(), WriteError> {
        unreachable!()
    }
    async fn patch(&self, _: Target<'_>, _: &str, _: Vec<Value>) -> Result<Child, WriteError> {
        unreachable!()
    }
    async fn delete(&self, _: Target<'_>, _: &str, _: &str) -> Result<(), WriteError> {
        unreachable!()
    }
    async fn metadata(&self, _: Target<'_>) -> Result<Option<ObjectMeta>, WriteError> {
        unreachable!()
    }
}

#[async_trait]
impl OwnerWriter for World {
    async fn write(
        &self,
        _: Target<'_>,
        _: &str,
        _: &str,
        write: &OwnerWrite,
    ) -> Result<Value, ReconcileError> {
        assert_ne!(self.mode, "owner-write-panics", "the writer broke");
        let OwnerWrite::Finalizers(list) = write else {
            unreachable!()
        };
        self.note(format!("finalizers {list:?}"));
        Ok(json!({"metadata": {
            "namespace": "ns", "name": self.mode, "uid": "u", "resourceVersion": "6", "generation": 1, "finalizers": list,
        }}))
    }
}

impl Effects<Toy> for World {
    async fn perform(
        &self,
        request: &Request<ConfigMap>,
        mut settled: Settled<u32>,
        _: &OwnerPatch,
    ) -> Result<Settled<u32>, ReconcileError> {
        self.note(if request.deleting { "undo" } else { "effect" });
        settled.released = request.deleting;
        Ok(settled)
    }
}

#[async_trait]
impl StatusWriter for World {
    async fn apply(
        &self,
        _: &StatusContract,
        _: Target<'_>,
        _: &str,
        body: &Value,
    ) -> Result<StatusAnswer, StatusError> {
        if self.mode == "status-hangs" {
            std::future::pending::<()>().await;
        }
        let condition = &body["conditions"][0];
        self.note(format!("say {} {}", condition["reason"], condition["message"]).replace('"', ""));
        Ok(StatusAnswer {
            version: "9".into(),
            ..StatusAnswer::default()
        })
    }
    async fn remove(
        &self,
        _: &StatusContract,
        _: Target<'_>,
        _: &str,
        _: &[String],
    ) -> Result<StatusAnswer, StatusError> {
        unreachable!()
    }
}

#[async_trait]
impl EventSink for World {
    async fn publish(&self, _: &ObjectReference, _: &Note) {}
}

/// Keeps what the root span said, and whether the reconcile was counted when the span was left last.
#[derive(Clone)]
struct Spans {
    said: Arc<Mutex<Vec<String>>>,
    counted: Arc<Mutex<bool>>,
    metrics: Metrics,
}

impl Spans {
    /// Runs with the spans of this world kept.
    fn keep<T>(world: &World, run: impl FnOnce() -> T) -> (T, Self) {
        let spans = Self {
            said: Arc::default(),
            counted: Arc::default(),
            metrics: world.metrics.clone(),
        };
        let result = tracing::subscriber::with_default(registry().with(spans.clone()), run);
        (result, spans)
    }
    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

struct Said<'a>(&'a Spans);
impl Visit for Said<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0
            .said
            .lock()
            .unwrap()
            .push(format!("{}={value:?}", field.name()));
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        span.record(&mut Said(self));
    }
    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(&mut Said(self));
    }
    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        *self.counted.lock().unwrap() = self.metrics.encode().contains("result=\"success\"} 1");
    }
}

// ---- properties ----

/// Why a property does not hold.
type Broken = String;
type Check = fn(&[Slot]) -> Result<(), Broken>;
type Property = (&'static str, Check);

fn on_paused_clock<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

type End = Result<Outcome, ReconcileError>;

/// One run, for a day at the most; `None`: the panic came through.
async fn run(stack: &Boxed<Outcome>, world: &World) -> Result<Option<End>, Broken> {
    let day = Duration::from_secs(24 * 3600);
    let run = AssertUnwindSafe(stack.clone().oneshot(world.request())).catch_unwind();
    match tokio::time::timeout(day, run).await {
        Ok(end) => Ok(end.ok()),
        Err(_) => Err("it never ended".into()),
    }
}

fn once(world: &World, slots: &[Slot]) -> Result<Option<End>, Broken> {
    let stack = world.stack(slots).map_err(|_| "does not compile".to_owned())?;
    on_paused_clock(run(&stack, world))
}

fn must(holds: bool, what: impl Debug) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(format!("{what:?}")) }
}

fn failed_as(end: &Option<End>, class: ErrorClass) -> bool {
    matches!(end, Some(Ok(Outcome::Failed { class: c, .. })) if *c == class)
}

fn the_trace_ends_with_the_final_outcome(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-fails");
    let (end, spans) = Spans::keep(&world, || once(&world, slots));
    let said = end.map(|_| spans.said())?;
    let all = [
        "outcome=\"error\"",
        "error.class=\"transient\"",
        "object.name=\"plan-fails\"",
    ];
    must(all.iter().all(|want| said.iter().any(|s| s == want)), said)
}

fn the_trace_knows_how_often_it_failed_before(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-fails");
    let stack = world.stack(slots).map_err(|_| "does not compile".to_owned())?;
    let twice = async {
        run(&stack, &world).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        run(&stack, &world).await
    };
    let (end, spans) = Spans::keep(&world, || on_paused_clock(twice));
    let said = end.map(|_| spans.said())?;
    must(
        said.iter()
            .filter(|s| s.starts_with("attempt"))
            .eq(["attempt=0", "attempt=1"]),
        said,
    )
}

fn the_trace_covers_the_counting(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    let (end, spans) = Spans::keep(&world, || once(&world, slots));
    must(*spans.counted.lock().unwrap(), end)
}

fn a_failure_is_counted_with_its_class(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-fails");
    once(&world, slots)?;
    let text = world.metrics.encode();
    must(
        text.contains(r#"controller_runtime_reconcile_errors_total{controller="toy",class="transient"} 1"#),
        text,
    )
}

fn a_trigger_that_waits_out_its_back_off_is_counted(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-fails");
    let stack = world.stack(slots).map_err(|_| "does not compile".to_owned())?;
    on_paused_clock(async {
        run(&stack, &world).await?;
        run(&stack, &world).await
    })?;
    let text = world.metrics.encode();
    must(
        text.contains(r#"controller_runtime_reconcile_total{controller="toy",result="requeue_after"} 1"#),
        text,
    )
}

fn a_failure_is_an_outcome_with_a_retry(slots: &[Slot]) -> Result<(), Broken> {
    let end = once(&world("plan-fails"), slots)?;
    must(
        matches!(end, Some(Ok(Outcome::Failed { retry: Some(_), .. }))),
        end,
    )
}

fn a_trigger_without_the_lease_keeps_the_retry(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-fails");
    let stack = world.stack(slots).map_err(|_| "does not compile".to_owned())?;
    let end = on_paused_clock(async {
        run(&stack, &world).await?;
        world.lease.store(0, Ordering::SeqCst);
        run(&stack, &world).await
    })?;
    // The trigger has replaced the timer: an answer without a time would be the end of the retry.
    must(matches!(end, Some(Ok(Outcome::RequeueAfter(_)))), end)
}

fn without_the_lease_nothing_is_planned(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    world.lease.store(0, Ordering::SeqCst);
    let end = once(&world, slots)?;
    must(
        matches!(end, Some(Ok(Outcome::Skipped(_)))) && world.log().is_empty(),
        (end, world.log()),
    )
}

fn a_fence_that_breaks_is_no_failure_of_the_object(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    world.lease.store(BROKEN, Ordering::SeqCst);
    let end = once(&world, slots)?;
    // It goes to the controller's last resort, and no object's back-off grows for it.
    must(
        end.is_none() && world.backoff.failing() == 0 && world.log().is_empty(),
        (end, world.log()),
    )
}

fn a_time_limit_that_cannot_be_set_is_a_failure_and_not_the_end(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    let stack = world.stack(slots).map_err(|_| "does not compile".to_owned())?;
    let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let run = AssertUnwindSafe(stack.oneshot(world.request())).catch_unwind();
    let end = timeless.block_on(run).ok();
    must(failed_as(&end, ErrorClass::Panic), end)
}

fn reporting_that_hangs_comes_to_an_end(slots: &[Slot]) -> Result<(), Broken> {
    let end = once(&world("status-hangs"), slots)?;
    must(failed_as(&end, ErrorClass::Timeout), end)
}

fn reporting_that_panics_is_of_class_panic_and_not_the_end(slots: &[Slot]) -> Result<(), Broken> {
    let end = once(&world("report-panics"), slots)?;
    must(failed_as(&end, ErrorClass::Panic), end)
}

fn what_takes_too_long_is_said_on_the_object(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-hangs");
    let end = once(&world, slots)?;
    let said = world.has("say Failed the reconcile did not end within 60 s");
    must(said && failed_as(&end, ErrorClass::Timeout), (end, world.log()))
}

fn panics_are_said(modes: &[&'static str], slots: &[Slot]) -> Result<(), Broken> {
    for mode in modes {
        let world = world(mode);
        let end = once(&world, slots)?;
        let said = world.has("say Failed internal error");
        must(
            said && failed_as(&end, ErrorClass::Panic),
            (mode, end, world.log()),
        )?;
    }
    Ok(())
}

fn a_planner_that_panics_is_said_on_the_object(slots: &[Slot]) -> Result<(), Broken> {
    panics_are_said(&["plan-panics"], slots)
}

fn a_write_that_panics_is_said_on_the_object(slots: &[Slot]) -> Result<(), Broken> {
    let modes: &[_] = if slots.contains(&Finalizer) {
        &["child-write-panics", "owner-write-panics"]
    } else {
        &["child-write-panics"]
    };
    panics_are_said(modes, slots)
}

fn a_runtime_that_dies_is_not_said_on_the_object(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("plan-hangs");
    let stack = world.stack(slots).map_err(|_| "does not compile".to_owned())?;
    let dying = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut run = Box::pin(AssertUnwindSafe(stack.oneshot(world.request())).catch_unwind());
    // Begun in one runtime and polled once more when that is gone: its time limits panic.
    let begun = dying.block_on(poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx).is_pending())));
    drop(dying);
    let end = futures::executor::block_on(run).ok();
    let silent = !world.has("say");
    must(
        begun && silent && failed_as(&end, ErrorClass::Panic),
        (end, world.log()),
    )
}

fn what_was_settled_is_said_on_the_object(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    let end = once(&world, slots)?;
    must(
        world.has("say Created") && end == Some(Ok(Outcome::Done)),
        (end, world.log()),
    )
}

fn the_finalizer_is_there_before_the_first_effect(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    once(&world, slots)?;
    let order: Vec<_> = world
        .log()
        .into_iter()
        .filter(|l| l.starts_with("fin") || l == "effect")
        .collect();
    must(order == ["finalizers [\"kit/f\"]", "effect"], order)
}

fn effects_are_undone_before_the_finalizer_goes(slots: &[Slot]) -> Result<(), Broken> {
    let mut world = world("fine");
    world.deleted = true;
    once(&world, slots)?;
    let order: Vec<_> = world
        .log()
        .into_iter()
        .filter(|l| l.starts_with("fin") || l == "undo")
        .collect();
    must(order == ["undo", "finalizers []"], world.log())
}

fn children_carry_the_operators_labels(slots: &[Slot]) -> Result<(), Broken> {
    let world = world("fine");
    once(&world, slots)?;
    must(world.has("create with 3 labels"), world.log())
}

fn an_api_that_is_absent_holds_and_is_named_before_a_flag(slots: &[Slot]) -> Result<(), Broken> {
    for feature in [true, false] {
        let mut world = world("fine");
        (world.served, world.feature) = (false, feature);
        once(&world, slots)?;
        must(
            world.has("say ApiAbsent") && !world.has("plan") && !world.has("create"),
            world.log(),
        )?;
    }
    Ok(())
}

fn a_flag_that_is_off_holds(slots: &[Slot]) -> Result<(), Broken> {
    let mut world = world("fine");
    world.feature = false;
    once(&world, slots)?;
    must(
        world.has("say FeatureOff") && !world.has("plan") && !world.has("create"),
        world.log(),
    )
}

macro_rules! properties {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as Check)),*] };
}

/// What holds for every stack.
const COMMON: &[Property] = properties![
    the_trace_ends_with_the_final_outcome,
    the_trace_knows_how_often_it_failed_before,
    the_trace_covers_the_counting,
    a_failure_is_counted_with_its_class,
    a_trigger_that_waits_out_its_back_off_is_counted,
    a_failure_is_an_outcome_with_a_retry,
    a_trigger_without_the_lease_keeps_the_retry,
    without_the_lease_nothing_is_planned,
    a_fence_that_breaks_is_no_failure_of_the_object,
    a_time_limit_that_cannot_be_set_is_a_failure_and_not_the_end,
    reporting_that_hangs_comes_to_an_end,
    reporting_that_panics_is_of_class_panic_and_not_the_end,
    what_takes_too_long_is_said_on_the_object,
    a_planner_that_panics_is_said_on_the_object,
    a_write_that_panics_is_said_on_the_object,
    a_runtime_that_dies_is_not_said_on_the_object,
    what_was_settled_is_said_on_the_object,
    children_carry_the_operators_labels,
    an_api_that_is_absent_holds_and_is_named_before_a_flag,
    a_flag_that_is_off_holds,
];

/// What holds besides for a stack with effects.
const OF_EFFECTS: &[Property] = properties![
    the_finalizer_is_there_before_the_first_effect,
    effects_are_undone_before_the_finalizer_goes,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Without(Slot),
    Swapped(Slot, Slot),
}
use Change::*;

/// Does not compile: `layers::order` shows why.
const REFUSED: &str = "does not compile";

/// What each change breaks (among other things).
const TABLE: &[(Change, &str)] = &[
    (Without(Trace), "the_trace_ends_with_the_final_outcome"),
    (Without(Metrics), "a_failure_is_counted_with_its_class"),
    (Without(Policy), "a_failure_is_an_outcome_with_a_retry"),
    (Without(LeaderGate), "without_the_lease_nothing_is_planned"),
    (
        Without(OuterCatch),
        "reporting_that_panics_is_of_class_panic_and_not_the_end",
    ),
    (Without(OuterTimeout), "reporting_that_hangs_comes_to_an_end"),
    (Without(Conditions), REFUSED),
    (Without(InnerTimeout), "what_takes_too_long_is_said_on_the_object"),
    (Without(InnerCatch), "a_planner_that_panics_is_said_on_the_object"),
    (
        Without(Finalizer),
        "the_finalizer_is_there_before_the_first_effect",
    ),
    (Without(Effects), "effects_are_undone_before_the_finalizer_goes"),
    (Without(OwnedChildren), REFUSED),
    (Without(Metadata), REFUSED),
    (
        Without(ApiPresence),
        "an_api_that_is_absent_holds_and_is_named_before_a_flag",
    ),
    (Without(FeatureGate), "a_flag_that_is_off_holds"),
    (Swapped(Trace, Metrics), "the_trace_covers_the_counting"),
    (
        Swapped(Metrics, Policy),
        "a_trigger_that_waits_out_its_back_off_is_counted",
    ),
    (
        Swapped(Policy, LeaderGate),
        "a_trigger_without_the_lease_keeps_the_retry",
    ),
    (
        Swapped(LeaderGate, OuterCatch),
        "a_fence_that_breaks_is_no_failure_of_the_object",
    ),
    (
        Swapped(OuterCatch, OuterTimeout),
        "a_time_limit_that_cannot_be_set_is_a_failure_and_not_the_end",
    ),
    (
        Swapped(OuterTimeout, Conditions),
        "reporting_that_hangs_comes_to_an_end",
    ),
    (
        Swapped(Conditions, InnerTimeout),
        "what_takes_too_long_is_said_on_the_object",
    ),
    (
        Swapped(InnerTimeout, InnerCatch),
        "a_runtime_that_dies_is_not_said_on_the_object",
    ),
    (
        Swapped(InnerCatch, Finalizer),
        "a_write_that_panics_is_said_on_the_object",
    ),
    (
        Swapped(Finalizer, Effects),
        "effects_are_undone_before_the_finalizer_goes",
    ),
    (Swapped(Effects, OwnedChildren), REFUSED),
    (Swapped(OwnedChildren, Metadata), REFUSED),
    (Swapped(Metadata, ApiPresence), REFUSED),
    (
        Swapped(ApiPresence, FeatureGate),
        "an_api_that_is_absent_holds_and_is_named_before_a_flag",
    ),
    // Neighbours only where there are no effects.
    (
        Swapped(InnerCatch, OwnedChildren),
        "a_write_that_panics_is_said_on_the_object",
    ),
];

fn changes(slots: &[Slot]) -> Vec<(Change, Vec<Slot>)> {
    let without = slots.iter().map(|slot| {
        let rest = slots.iter().copied().filter(|s| s != slot).collect();
        (Without(*slot), rest)
    });
    let swapped = (1..slots.len()).map(|i| {
        let mut other = slots.to_vec();
        other.swap(i - 1, i);
        (Swapped(slots[i - 1], slots[i]), other)
    });
    without.chain(swapped).collect()
}

/// Panics are what half of the properties are about: their messages would bury everything else.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let result = std::panic::catch_unwind(AssertUnwindSafe(run));
    std::panic::set_hook(hook);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn broken(properties: &[Property], slots: &[Slot]) -> Vec<(&'static str, Broken)> {
    let why = |(name, check): &Property| check(slots).err().map(|why| (*name, why));
    quietly(|| properties.iter().filter_map(why).collect())
}

fn stacks() -> [(Vec<Slot>, Vec<Property>); 2] {
    [
        (plain(), COMMON.to_vec()),
        (WITH_EFFECTS.to_vec(), [COMMON, OF_EFFECTS].concat()),
    ]
}

#[test]
fn every_property_holds_for_the_stack_as_it_is() {
    for (slots, properties) in stacks() {
        let broken = broken(&properties, &slots);
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

#[test]
fn removing_a_layer_or_swapping_two_neighbours_breaks_a_named_property() {
    let mut seen = BTreeSet::new();
    for (slots, properties) in stacks() {
        for (change, changed) in changes(&slots) {
            let (_, expected) = TABLE
                .iter()
                .find(|(c, _)| *c == change)
                .unwrap_or_else(|| panic!("{change:?} is not in the table"));
            seen.insert(change);
            let refused = world("fine").stack(&changed).is_err();
            assert_eq!(refused, *expected == REFUSED, "{change:?}");
            if refused {
                continue;
            }
            let broken: Vec<_> = broken(&properties, &changed)
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            println!("{change:?}: {broken:?}");
            assert!(
                broken.contains(expected),
                "{change:?} breaks {broken:?}, not {expected}"
            );
        }
    }
    assert_eq!(seen.len(), TABLE.len(), "the table has a row that no stack has");
}

#[test]
fn every_property_is_broken_by_some_change() {
    let mut idle: BTreeSet<_> = [COMMON, OF_EFFECTS]
        .concat()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for (slots, properties) in stacks() {
        for (_, changed) in changes(&slots) {
            if world("fine").stack(&changed).is_ok() {
                for (name, _) in broken(&properties, &changed) {
                    idle.remove(name);
                }
            }
        }
    }
    // These two need layers whose absence does not even compile.
    let by_type: BTreeSet<_> = [
        "children_carry_the_operators_labels",
        "what_was_settled_is_said_on_the_object",
    ]
    .into();
    assert_eq!(idle, by_type);
}
