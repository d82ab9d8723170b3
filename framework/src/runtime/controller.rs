//! One running controller: (store, triggers, stack) on kube's `applier`, which takes from our ready queue. Waits for the
//! caches, drains on stop. When it runs is the supervisor's business; what is next, the queue's.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, pin_mut};
use kube::{
    Resource,
    runtime::{
        controller::{Action, Config, Error, applier},
        reflector::ObjectRef,
    },
};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::ServiceExt;

use super::{
    hub::{Cached, Handle},
    jitter::{Jitter, doubled},
    lock,
    queue::{Ran, ReadyQueue},
    triggers::Triggers,
};
use crate::{BoxReconcile, ErrorClass, Outcome, ReconcileError, Request};

/// Reconciles at once per controller by default; more buys only latency.
pub const CONCURRENCY: u16 = 16;
/// How long running reconciles may go on after the stop, by default.
pub const DRAIN: Duration = Duration::from_secs(25);

/// Called with namespace (empty for cluster-scoped kinds) and name of an object that was triggered and is not in the
/// cache any more.
pub type Forget = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// What a controller consists of.
pub struct ControllerSpec<K: Cached + Resource<DynamicType = ()>> {
    /// Unique name, for logs.
    pub name: String,
    /// The cache of the reconciled kind; its watch must be running.
    pub objects: Handle<K>,
    /// What must be ready besides: every cache that the planner reads.
    pub waits: Vec<BoxFuture<'static, ()>>,
    /// What wakes it.
    pub triggers: Triggers<K>,
    /// What it does.
    pub stack: BoxReconcile<K>,
    /// So that what is kept per object (attempts, back-off) goes with the object.
    pub forget: Option<Forget>,
    /// Slots for reconciles; never two for one object. A run that lasts longer than half a second leaves its slot to others,
    /// up to as many again; objects whose runs take more than 5 s hold at most half of the slots.
    pub concurrency: u16,
    /// How long running reconciles may go on after the stop.
    pub drain: Duration,
    /// Jitter of the requeues.
    pub jitter: Jitter,
}

impl<K: Cached + Resource<DynamicType = ()>> ControllerSpec<K> {
    /// A controller with the default numbers that waits for its own cache only.
    pub fn new(
        name: impl Into<String>,
        objects: Handle<K>,
        triggers: Triggers<K>,
        stack: BoxReconcile<K>,
    ) -> Self {
        Self {
            name: name.into(),
            objects,
            waits: Vec::new(),
            triggers,
            stack,
            forget: None,
            concurrency: CONCURRENCY,
            drain: DRAIN,
            jitter: Jitter::random(),
        }
    }

    /// Wait for this cache too.
    #[must_use]
    pub fn wait_for<C: Cached>(mut self, cache: &Handle<C>) -> Self {
        self.waits.push(cache.ready().boxed());
        self
    }
}

impl<K: Cached + Resource<DynamicType = ()>> Debug for ControllerSpec<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How a controller ended after its stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Stopped before its caches were ready.
    BeforeSync,
    /// Everything that ran was finished.
    Drained,
    /// The drain limit passed; what still ran was cancelled.
    Cancelled,
}

/// Runs a controller until `stop`. Dropping the future cancels what runs at its next await. `running` is called when the
/// caches are ready.
pub async fn run_controller<K>(
    spec: ControllerSpec<K>,
    stop: CancellationToken,
    running: impl FnOnce() + Send,
) -> Ended
where
    K: Cached + Resource<DynamicType = ()>,
{
    let ControllerSpec {
        name,
        objects,
        waits,
        triggers,
        stack,
        forget,
        concurrency,
        drain,
        jitter,
    } = spec;
    // `applier` has no way out before its store is ready, so nothing is handed to it before.
    let caches = async {
        objects.ready().await;
        futures::future::join_all(waits).await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ended::BeforeSync,
        () = caches => {}
    }
    let Some(store) = objects.store().reflector() else {
        tracing::warn!(controller = %name, "the watch was stopped before its controller");
        return Ended::BeforeSync;
    };
    // What an earlier run of this controller was stopped in (the lease went) or meant to look at again by timer has no
    // trigger any more.
    let queue = Arc::new(triggers.running());
    triggers.push_all(&objects.store());
    let counters = queue.counters();
    counters.max_concurrent.set(i64::from(concurrency));
    running();

    let last_resort = Arc::new(LastResort::default());
    let vanished = Arc::clone(&last_resort);
    let begins = Arc::clone(&queue);
    let ready = ReadyQueue::new(concurrency);
    let (ends, nowhere) = (ready.clone(), ready.clone());
    let jitter = Arc::new(jitter);
    let results = applier(
        move |object: Arc<K>, _| {
            // The box is Sync but not meant to be shared while it is called: one clone per reconcile.
            let run = stack.clone().oneshot(Request::new(Arc::clone(&object)));
            let (jitter, last_resort) = (Arc::clone(&jitter), Arc::clone(&last_resort));
            let (counters, started) = (counters.clone(), Instant::now());
            begins.begun(object.meta());
            let ends = ends.clone();
            // `applier` polls everything in one task; a task of its own spreads the work over the threads.
            AbortOnDropHandle::new(tokio::spawn(run)).map(move |joined| {
                counters.work.observe(started.elapsed().as_secs_f64());
                let result = joined.unwrap_or_else(|join| {
                    Err(if join.is_panic() {
                        ReconcileError::new(ErrorClass::Panic, "the reconcile panicked")
                    } else {
                        ReconcileError::new(ErrorClass::Shutdown, "the reconcile was cancelled")
                    })
                });
                let (ran, retry) = match &result {
                    Ok(outcome) => {
                        last_resort.worked(object.as_ref());
                        (ran(outcome), retry(outcome))
                    }
                    Err(_) => (Ran::Worked, Some(last_resort.failed(object.as_ref()))),
                };
                if let Ok(Outcome::Failed { retry: Some(_), .. }) | Err(_) = &result {
                    counters.retries.inc();
                }
                let retry = retry.map(|wait| jitter.around(wait, 0.1));
                ends.finished(&ObjectRef::from_obj(object.as_ref()), ran, retry);
                // The queue knows when to look again, not `applier`.
                result.map(|_| Action::await_change())
            })
        },
        |_: Arc<K>, _: &ReconcileError, _| Action::await_change(),
        Arc::new(()),
        store,
        ready
            .admit(triggers.clone())
            .map(Ok::<_, Infallible>)
            .take_until(stop.clone().cancelled_owned()),
        // The queue knows how many may run.
        Config::default().concurrency(0),
    );
    let run = async move {
        pin_mut!(results);
        while let Some(result) = results.next().await {
            match result {
                Ok(_) => {}
                Err(Error::ObjectNotFound(gone)) => {
                    queue.gone(gone.namespace.as_deref(), &gone.name);
                    let name = ObjectRef::new(&gone.name);
                    nowhere.gone(&match &gone.namespace {
                        Some(namespace) => name.within(namespace),
                        None => name,
                    });
                    vanished.forget(gone.namespace.clone(), gone.name.clone());
                    if let Some(forget) = &forget {
                        forget(gone.namespace.as_deref().unwrap_or_default(), &gone.name);
                    }
                }
                Err(Error::ReconcilerFailed(error, object)) => {
                    tracing::warn!(
                        controller = %name,
                        namespace = object.namespace.as_deref().unwrap_or_default(),
                        name = %object.name,
                        class = error.class.label(),
                        "an error passed the stack and is tried again: {error}"
                    );
                }
                Err(error) => tracing::error!(controller = %name, "{error}"),
            }
        }
    };
    let limit = async {
        stop.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        biased;
        () = run => Ended::Drained,
        () = limit => Ended::Cancelled,
    }
}

/// When to look at an object again that was skipped. A change of leadership looks at everything; this is the net below.
const SKIPPED: Duration = Duration::from_secs(30);

fn retry(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Skipped(_) => Some(SKIPPED),
        outcome => outcome.retry(),
    }
}

fn ran(outcome: &Outcome) -> Ran {
    match outcome {
        // Also what a back-off answers.
        Outcome::RequeueAfter(_) | Outcome::Skipped(_) => Ran::PutOff,
        Outcome::Done | Outcome::Waiting { .. } | Outcome::Failed { .. } => Ran::Worked,
    }
}

/// Back-off for errors that the Policy layer let through, 5 s to 5 min per object.
#[derive(Default)]
struct LastResort(Mutex<HashMap<(Option<String>, String), u32>>);

impl LastResort {
    fn key<K: Resource>(object: &K) -> (Option<String>, String) {
        let meta = object.meta();
        (meta.namespace.clone(), meta.name.clone().unwrap_or_default())
    }

    fn failed<K: Resource>(&self, object: &K) -> Duration {
        let mut failures = lock(&self.0);
        let count = failures.entry(Self::key(object)).or_default();
        let wait = doubled(Duration::from_secs(5), Duration::from_secs(300), *count);
        *count = count.saturating_add(1);
        wait
    }

    fn forget(&self, namespace: Option<String>, name: String) {
        let mut failures = lock(&self.0);
        if !failures.is_empty() {
            failures.remove(&(namespace, name));
        }
    }

    fn worked<K: Resource>(&self, object: &K) {
        let mut failures = lock(&self.0);
        // No key is built as long as nothing fails.
        if !failures.is_empty() {
            failures.remove(&Self::key(object));
        }
    }
}
