//! What a reconcile costs that has nothing to do: microseconds and allocations of the whole stack around a planner that
//! does nothing, and (for comparison) with a condition that stands already and with a child that does.
//!
//! `cargo bench -p reconcile-kit --bench noop`. Fails if a trivial no-op takes more than 5 allocations; time is printed,
//! not judged, because machines differ.
#![allow(
    unsafe_code, // a counting allocator cannot be written without; it only counts and passes on
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time},
    jiff::Timestamp,
};
use reconcile_kit::{
    owned::{ChildCache, Lookup},
    prelude::*,
    testing::ApiServer,
};
use serde_json::{Value, json};
use tower::ServiceExt;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(old, layout, size) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

const ROUNDS: u32 = 60;

/// Goal of the trivial no-op.
const MOST_ALLOCATIONS: f64 = 5.0;

const MAP: ApiKind = ApiKind::new("", "v1", "ConfigMap", "configmaps");

/// Says nothing, or one condition, or one child besides.
struct Idle<const SAYS: bool, const OWNS: bool>;

impl<const SAYS: bool, const OWNS: bool> Planner for Idle<SAYS, OWNS> {
    type Object = ConfigMap;
    type Verdict = ();
    const NAME: &'static str = "idle";

    fn needs(_: &ConfigMap) -> Needs {
        Needs::default()
    }
    async fn plan(&self, request: &Request<ConfigMap>) -> Result<Plan<()>, ReconcileError> {
        let plan = Plan::report(());
        if !OWNS {
            return Ok(plan);
        }
        let child = Desired::new(MAP, request.object.as_ref(), json!({"data": {"k": "v"}}));
        Ok(plan.with(ChildPlan::Want(Box::new(child))))
    }
    fn report(_: &ConfigMap, _: &Verdict<()>, _: &Children) -> Report {
        if SAYS {
            Report::new(Outcome::Done).condition(Condition::new("Ready", true, "Idle", ""))
        } else {
            Report::untouched(Outcome::Done)
        }
    }
    fn report_error(_: &ConfigMap, _: &ReconcileError) -> Report {
        Report::untouched(Outcome::Done)
    }
    fn conditions(_: &ConfigMap) -> &[MetaCondition] {
        static READY: std::sync::LazyLock<[MetaCondition; 1]> = std::sync::LazyLock::new(|| {
            let ready = Condition::new("Ready", true, "Idle", "");
            [ready.stamped(None, Some(1), &Time(Timestamp::UNIX_EPOCH))]
        });
        &*READY
    }
    fn status_field(_: &ConfigMap, _: &str) -> Option<Value> {
        None
    }
}

/// No cache at all: the child is known from its creation only.
struct Empty;

impl ChildCache for Empty {
    fn child(&self, _: &ApiKind, _: &str, _: &str) -> Lookup {
        Lookup::Absent
    }
}

async fn measure<P: Planner<Object = ConfigMap>>(name: &str, planner: P, runs: u32) -> f64 {
    let server = ApiServer::new();
    let object: ConfigMap = serde_json::from_value(server.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "default"},
    })))
    .unwrap();
    let mut object = object;
    object.metadata.generation = Some(1);
    let object = Arc::new(object);
    // The child has the owner's name, so that the owner lives elsewhere.
    server.delete("ConfigMap", "default", "owner");

    let metrics = Metrics::new("bench");
    let owned = Owned::new(server.client(), "bench", "example.org", Arc::new(Empty), &metrics);
    let contract = StatusContract {
        manager: "bench",
        conditions: &["Ready"],
        fields: &[],
        mode: StatusMode::Apply,
    };
    let reporting = Reporting::kube(server.client(), contract, P::NAME);
    let metadata = OperatorMetadata::standard("bench", "one", P::NAME);
    let stack = Parts::new(planner, owned, reporting, metadata, metrics).stack();
    let run = || stack.clone().oneshot(Request::new(Arc::clone(&object)));
    for _ in 0..runs {
        run().await.unwrap();
    }
    let mark = server.mark();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    // The best of many short rounds: what else the machine does is not our cost.
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..runs {
            run().await.unwrap();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(runs));
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let allocations =
        u32::try_from(allocations).map_or(f64::MAX, f64::from) / f64::from(runs) / f64::from(ROUNDS);
    let asked = server.calls_since(mark).len();
    println!("{name:<34} {best:>8.3} us {allocations:>8.2} allocations {asked:>4} requests");
    allocations
}

fn main() {
    let debug = cfg!(debug_assertions);
    let runs = if debug { 50 } else { 5_000 };
    if debug {
        println!("a debug build: the times mean nothing");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let trivial = runtime.block_on(async {
        let trivial = measure("nothing to say, nothing to own", Idle::<false, false>, runs).await;
        measure("a condition that stands", Idle::<true, false>, runs).await;
        measure(
            "a child that stands (just written)",
            Idle::<false, true>,
            runs / 10,
        )
        .await;
        trivial
    });
    if trivial > MOST_ALLOCATIONS {
        println!("more than {MOST_ALLOCATIONS} allocations in a no-op");
        std::process::exit(1);
    }
}
