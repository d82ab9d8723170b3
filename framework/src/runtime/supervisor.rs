//! What runs when: starts a controller when the APIs that it requires are served and the lease is held, stops it when
//! either goes, restarts it when it ends or panics. Knows no product: controllers are names and factories.

use std::{
    fmt::Debug,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    controller::DRAIN,
    hub::{Cached, Handle, WatchGuard},
    jitter::{Backoff, Jitter},
    leadership::Leadership,
    lock,
    metrics::{ControllerLabel, Metrics, StateLabel},
    presence::{ApiState, Presence},
};
use crate::ApiKind;

/// First wait before a controller that ended is started again, and the longest one.
const RESTART: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A controller that ran for so long starts its back-off anew.
const STABLE: Duration = Duration::from_secs(120);
/// How long a stopped controller may take beyond its own drain limit.
const STOP_MARGIN: Duration = Duration::from_secs(2);
/// How long the cache of a kind that appeared may take before its owners are looked at anyway.
const WARM_LIMIT: Duration = Duration::from_secs(10);

/// Where a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Its feature is off.
    Disabled,
    /// An API that it requires is not served (or not known to be). Not an error.
    WaitingForApi,
    /// Its caches are warm or warming; another process leads.
    WaitingForLease,
    /// It is started and waits for its caches.
    Syncing,
    /// It reconciles.
    Running,
    /// It was told to stop and finishes what runs.
    Stopping,
    /// It ended or panicked, and is started again after a wait.
    Restarting,
}

impl State {
    /// All states, for gauges.
    pub const ALL: [Self; 7] = [
        Self::Disabled,
        Self::WaitingForApi,
        Self::WaitingForLease,
        Self::Syncing,
        Self::Running,
        Self::Stopping,
        Self::Restarting,
    ];

    /// Stable name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::WaitingForApi => "WaitingForApi",
            Self::WaitingForLease => "WaitingForLease",
            Self::Syncing => "Syncing",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Restarting => "Restarting",
        }
    }
}

/// What a controller gets at each start.
#[derive(Clone)]
pub struct StartContext {
    /// Stop when this is cancelled: drain, then return.
    pub stop: CancellationToken,
    report: Arc<dyn Fn(State) + Send + Sync>,
}

impl StartContext {
    /// For a start without a supervisor.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            report: Arc::new(|_| ()),
        }
    }

    /// Its caches are ready and it reconciles.
    pub fn running(&self) {
        if !self.stop.is_cancelled() {
            (self.report)(State::Running);
        }
    }
}

impl Debug for StartContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartContext").finish_non_exhaustive()
    }
}

type Warm = Arc<dyn Fn() -> Vec<WatchGuard> + Send + Sync>;
type Run = Arc<dyn Fn(StartContext) -> BoxFuture<'static, ()> + Send + Sync>;

/// One controller as the supervisor sees it.
#[derive(Clone)]
pub struct Unit {
    name: String,
    features: Vec<&'static str>,
    enabled: bool,
    requires: Vec<ApiKind>,
    lease: bool,
    drain: Duration,
    warm: Warm,
    run: Run,
}

impl Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit")
            .field("name", &self.name)
            .field("requires", &self.requires)
            .finish_non_exhaustive()
    }
}

impl Unit {
    /// A controller under a unique name. `run` is called at each start, and returns after the stop of its context.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(StartContext) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            features: Vec::new(),
            enabled: true,
            requires: Vec::new(),
            lease: true,
            drain: DRAIN,
            warm: Arc::new(Vec::new),
            run: Arc::new(run),
        }
    }

    /// Names of the features that switch it on, for `/readyz?verbose`.
    #[must_use]
    pub fn features(mut self, features: &[&'static str]) -> Self {
        self.features = features.to_vec();
        self
    }

    /// Whether it may run at all.
    #[must_use]
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Kinds that must be served.
    #[must_use]
    pub fn requires(mut self, kinds: &[ApiKind]) -> Self {
        self.requires = kinds.to_vec();
        self
    }

    /// Runs on followers too.
    #[must_use]
    pub fn without_lease(mut self) -> Self {
        self.lease = false;
        self
    }

    /// How long it takes at most to finish what runs; as its `ControllerSpec::drain`. It is cancelled a little later.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Watches that run as long as the required APIs are served, with or without the lease.
    #[must_use]
    pub fn warm(mut self, start: impl Fn() -> Vec<WatchGuard> + Send + Sync + 'static) -> Self {
        self.warm = Arc::new(start);
        self
    }
}

/// How a controller is doing.
#[derive(Clone, Debug)]
pub struct UnitStatus {
    /// Its name.
    pub name: String,
    /// The features that switch it on.
    pub features: Vec<&'static str>,
    /// Where it is.
    pub state: State,
    /// Required kinds that are not served.
    pub missing: Vec<ApiKind>,
    /// How often it ended or panicked in this process.
    pub restarts: u64,
    /// How often in a row without having been stable in between.
    pub restarts_in_a_row: u32,
}

/// The registry of controllers. Cheap to clone.
#[derive(Clone)]
pub struct Supervisor {
    presence: Presence,
    leadership: Leadership,
    metrics: Metrics,
    stop: CancellationToken,
    /// Every controller has finished: no one needs a cache of an optional kind now.
    finished: CancellationToken,
    boards: Arc<Mutex<Vec<Arc<Board>>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
    followers: Arc<Mutex<JoinSet<()>>>,
}

struct Board {
    unit: Unit,
    now: Mutex<Now>,
    metrics: Metrics,
}

#[derive(Clone, Copy)]
struct Now {
    state: State,
    since: Instant,
    restarts: u64,
    in_a_row: u32,
}

impl Now {
    /// It reconciles, and has done so for a while.
    fn stable(&self) -> bool {
        self.state == State::Running && self.since.elapsed() >= STABLE
    }
}

impl Board {
    fn set(&self, state: State) {
        let old = {
            let mut now = lock(&self.now);
            if now.stable() {
                now.in_a_row = 0;
            }
            let old = std::mem::replace(&mut now.state, state);
            if old != state {
                now.since = Instant::now();
            }
            old
        };
        for each in State::ALL {
            let label = StateLabel {
                controller: self.unit.name.clone(),
                state: each.label(),
            };
            self.metrics
                .controller_state
                .get_or_create(&label)
                .set(i64::from(each == state));
        }
        if old != state {
            tracing::info!(controller = %self.unit.name, from = old.label(), to = state.label(), "controller");
        }
    }
}

impl Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

impl Supervisor {
    /// A supervisor without controllers.
    pub fn new(presence: Presence, leadership: Leadership, metrics: Metrics) -> Self {
        Self {
            presence,
            leadership,
            metrics,
            stop: CancellationToken::new(),
            finished: CancellationToken::new(),
            boards: Arc::default(),
            tasks: Arc::default(),
            followers: Arc::default(),
        }
    }

    /// Takes a controller under supervision.
    pub fn add(&self, unit: Unit) {
        let board = Arc::new(Board {
            unit,
            now: Mutex::new(Now {
                state: State::Disabled,
                since: Instant::now(),
                restarts: 0,
                in_a_row: 0,
            }),
            metrics: self.metrics.clone(),
        });
        lock(&self.boards).push(Arc::clone(&board));
        if !board.unit.enabled {
            board.set(State::Disabled);
            return;
        }
        board.set(State::WaitingForApi);
        let this = Conditions {
            presence: self.presence.clone(),
            presence_changed: self.presence.changed(),
            leadership: self.leadership.clone(),
            leadership_changed: self.leadership.changed(),
            refusals: None,
            stop: self.stop.clone(),
        };
        lock(&self.tasks).spawn(supervise(board, this));
    }

    /// Keeps the cache of an optional kind of an always-on owner: `start` when it is served, returning what completes
    /// when the cache is warm; `stop` when it is gone; `after` once after each change, when the cache is warm (or takes
    /// too long), so that every object of the owner is looked at.
    pub fn supervise_kind(
        &self,
        kind: ApiKind,
        start: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
        stop: impl Fn() + Send + Sync + 'static,
        after: impl Fn(ApiState) + Send + Sync + 'static,
    ) {
        let (presence, ended) = (self.presence.clone(), self.finished.clone());
        lock(&self.followers).spawn(async move {
            let mut backoff = Backoff::new(RESTART.0, RESTART.1, Jitter::random());
            loop {
                let follow = follow_kind(&presence, &ended, kind, &start, &stop, &after);
                if AssertUnwindSafe(follow).catch_unwind().await.is_ok() {
                    return;
                }
                tracing::error!(%kind, "following an optional kind panicked");
                tokio::select! {
                    () = ended.cancelled() => return,
                    () = tokio::time::sleep(backoff.next_wait()) => {}
                }
            }
        });
    }

    /// [`Supervisor::supervise_kind`] for one watch: runs while its kind is served, its store goes with the kind.
    pub fn supervise_watch<C: Cached>(
        &self,
        kind: ApiKind,
        watch: &Handle<C>,
        after: impl Fn(ApiState) + Send + Sync + 'static,
    ) {
        let guard = Arc::new(Mutex::new(None::<WatchGuard>));
        let (slot, watch) = (Arc::clone(&guard), watch.clone());
        self.supervise_kind(
            kind,
            move || {
                *lock(&slot) = Some(watch.start());
                watch.ready().boxed()
            },
            move || {
                let stopped = lock(&guard).take();
                drop(stopped);
            },
            after,
        );
    }

    /// How all controllers are doing.
    pub fn status(&self) -> Vec<UnitStatus> {
        lock(&self.boards)
            .iter()
            .map(|board| {
                let now = *lock(&board.now);
                let missing = board.unit.requires.iter().copied();
                UnitStatus {
                    name: board.unit.name.clone(),
                    features: board.unit.features.clone(),
                    state: now.state,
                    missing: missing
                        .filter(|k| self.presence.get(k) != ApiState::Served)
                        .collect(),
                    restarts: now.restarts,
                    restarts_in_a_row: if now.stable() { 0 } else { now.in_a_row },
                }
            })
            .collect()
    }

    /// Cancelled when [`Supervisor::shutdown`] begins.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Stops all controllers, waits until they have finished what runs, then stops the caches that they read. The lease
    /// should be kept until then.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
        self.finished.cancel();
        let mut followers = std::mem::take(&mut *lock(&self.followers));
        while followers.join_next().await.is_some() {}
    }
}

async fn follow_kind(
    presence: &Presence,
    ended: &CancellationToken,
    kind: ApiKind,
    start: &(dyn Fn() -> BoxFuture<'static, ()> + Send + Sync),
    stop: &(dyn Fn() + Send + Sync),
    after: &(dyn Fn(ApiState) + Send + Sync),
) {
    let mut changed = presence.changed();
    let mut known = ApiState::Unknown;
    loop {
        changed.borrow_and_update();
        let state = presence.get(&kind);
        if state != known {
            known = state;
            if state == ApiState::Served {
                let warm = tokio::time::timeout(WARM_LIMIT, start());
                // A kind that vanishes again while its cache warms up is seen in the next round.
                tokio::select! {
                    () = ended.cancelled() => break,
                    _ = warm => {}
                    () = gone(presence, kind) => {}
                }
            } else {
                stop();
            }
            after(state);
        }
        tokio::select! {
            () = ended.cancelled() => break,
            woken = changed.changed() => if woken.is_err() { break },
        }
    }
    stop();
}

async fn gone(presence: &Presence, kind: ApiKind) {
    let mut changed = presence.changed();
    while presence.get(&kind) == ApiState::Served {
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a start depends on.
struct Conditions {
    presence: Presence,
    presence_changed: watch::Receiver<u64>,
    leadership: Leadership,
    leadership_changed: watch::Receiver<bool>,
    /// Refusals when the present run began: one more means that something was left undone.
    refusals: Option<u64>,
    stop: CancellationToken,
}

/// What a controller may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Stop,
    WaitForApi,
    WaitForLease,
    Run,
}

impl Conditions {
    /// Kinds that a unit needs and that are known not to be served.
    fn absent(&self, unit: &Unit) -> String {
        let absent = unit.requires.iter();
        let absent = absent.filter(|kind| self.presence.get(kind) == ApiState::Absent);
        absent.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn allowed(&mut self, unit: &Unit) -> Allowed {
        self.presence_changed.borrow_and_update();
        self.leadership_changed.borrow_and_update();
        if self.stop.is_cancelled() {
            Allowed::Stop
        } else if !self.presence.all_served(&unit.requires) {
            Allowed::WaitForApi
        } else if unit.lease
            && (!self.leadership.is_leader()
                || self.refusals.is_some_and(|n| n != self.leadership.refusals()))
        {
            Allowed::WaitForLease
        } else {
            Allowed::Run
        }
    }

    /// Completes when something may be different.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            _ = self.presence_changed.changed() => {}
            _ = self.leadership_changed.changed() => {}
        }
    }
}

async fn supervise(board: Arc<Board>, mut conditions: Conditions) {
    let unit = board.unit.clone();
    let mut backoff = Backoff::new(RESTART.0, RESTART.1, Jitter::random());
    let mut warm: Option<Vec<WatchGuard>> = None;
    let mut absent = String::new();
    loop {
        let allowed = conditions.allowed(&unit);
        if allowed != Allowed::WaitForApi {
            absent.clear();
        }
        match allowed {
            Allowed::Stop => {
                drop(warm.take());
                board.set(State::Stopping);
                return;
            }
            Allowed::WaitForApi => {
                // Nothing is known any more of a kind that is gone.
                drop(warm.take());
                board.set(State::WaitingForApi);
                let now = conditions.absent(&unit);
                if now != absent && !now.is_empty() {
                    tracing::info!(controller = %unit.name, missing = now, "waits for kinds that the API server does not serve: install their CRDs");
                }
                absent = now;
                conditions.changed().await;
            }
            Allowed::WaitForLease => {
                if !warmed(&unit, &mut warm) {
                    restart(&board, &mut backoff, &conditions.stop).await;
                    continue;
                }
                board.set(State::WaitingForLease);
                conditions.changed().await;
            }
            Allowed::Run => {
                if warmed(&unit, &mut warm) {
                    board.set(State::Syncing);
                    let begun = Instant::now();
                    conditions.refusals = Some(conditions.leadership.refusals());
                    let told = run_once(&board, &mut conditions).await;
                    conditions.refusals = None;
                    if told {
                        continue;
                    }
                    if begun.elapsed() >= STABLE {
                        backoff.reset();
                    }
                }
                restart(&board, &mut backoff, &conditions.stop).await;
            }
        }
    }
}

/// Starts the watches of a controller unless they run; false if that panicked.
fn warmed(unit: &Unit, warm: &mut Option<Vec<WatchGuard>>) -> bool {
    if warm.is_some() {
        return true;
    }
    match std::panic::catch_unwind(AssertUnwindSafe(|| (unit.warm)())) {
        Ok(guards) => {
            *warm = Some(guards);
            true
        }
        Err(_) => {
            tracing::error!(controller = %unit.name, "starting the watches panicked");
            false
        }
    }
}

/// Counts a controller that ended by itself, and waits before it is started again.
async fn restart(board: &Board, backoff: &mut Backoff, stop: &CancellationToken) {
    board.set(State::Restarting);
    {
        let mut now = lock(&board.now);
        now.restarts += 1;
        now.in_a_row = now.in_a_row.saturating_add(1);
    }
    let label = ControllerLabel {
        controller: board.unit.name.clone(),
    };
    board.metrics.controller_restarts.get_or_create(&label).inc();
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(backoff.next_wait()) => {}
    }
}

/// One run of a controller: true if it ended because it was told to.
async fn run_once(board: &Arc<Board>, conditions: &mut Conditions) -> bool {
    let unit = &board.unit;
    let stop = CancellationToken::new();
    let reporter = Arc::clone(board);
    let context = StartContext {
        stop: stop.clone(),
        report: Arc::new(move |state| reporter.set(state)),
    };
    let run = Arc::clone(&unit.run);
    // In a task of its own: a panic, also in the factory, ends this task and nothing else.
    let mut task = AbortOnDropHandle::new(tokio::spawn(async move {
        AssertUnwindSafe(async { run(context).await })
            .catch_unwind()
            .await
            .is_ok()
    }));
    let why = loop {
        tokio::select! {
            ended = &mut task => {
                let cleanly = matches!(ended, Ok(true));
                tracing::error!(controller = %unit.name, panicked = !cleanly, "the controller ended by itself");
                return false;
            }
            () = conditions.changed() => match conditions.allowed(unit) {
                Allowed::Run => {}
                why => break why,
            },
        }
    };
    board.set(State::Stopping);
    stop.cancel();
    // Without the lease nothing may go on; otherwise what runs may finish.
    if why == Allowed::WaitForLease {
        task.abort();
    }
    let limit = unit.drain + STOP_MARGIN;
    let lost = async {
        while conditions.leadership.is_leader() || !unit.lease {
            if conditions.leadership_changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        _ = &mut task => return true,
        () = tokio::time::sleep(limit) => {
            tracing::warn!(controller = %unit.name, "the controller did not stop in time and is cancelled");
        }
        // The lease may also go while the controller drains.
        () = lost => {}
    }
    task.abort();
    let _ = task.await;
    true
}
