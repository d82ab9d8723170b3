//! Who may act: one process holds a Lease. `election` keeps the Lease; here is what it means for the rest of the process:
//! the leader is the holder that has renewed recently by its own monotonic clock.

use std::{
    fmt::Debug,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::{Client, Config, client::ClientBuilder};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    election::{Candidate, RELEASE_LIMIT, WallClock, wall_clock},
    jitter::Jitter,
    lock,
    metrics::Metrics,
};
use crate::layers::leader_gate::Lease;

/// The Lease, and how it is used.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process. Must be unique per process, also after a restart, e.g. the Pod's name and a random end: a
    /// process takes a Lease with its identity for its own.
    pub identity: String,
    /// Beginning of the field manager of the writes to the Lease; the identity is its end.
    pub field_manager: String,
    /// How long other candidates wait after they last saw a renewal, in seconds.
    pub duration: u64,
    /// How long before the end of `duration` renewing begins, in seconds. Must be shorter than `duration`.
    pub grace: u64,
    /// How long this process still acts after sending its last successful renewal. Must be shorter than `duration`: the
    /// difference is room for requests on their way. Must be longer than `duration - grace`, the time between renewals.
    pub fence: Duration,
}

/// A [`LeaseConfig`] that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election: {0}")]
pub struct InvalidLease(String);

impl LeaseConfig {
    /// 15 seconds, renewed every 5, acting for 10.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
        field_manager: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            field_manager: field_manager.into(),
            duration: 15,
            grace: 10,
            fence: Duration::from_secs(10),
        }
    }

    /// Checks that the fields fit together.
    ///
    /// # Errors
    /// The field that does not fit, and why.
    pub fn validate(&self) -> Result<(), InvalidLease> {
        let refuse = |why: String| Err(InvalidLease(why));
        for (field, value) in [
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("identity", &self.identity),
            ("field_manager", &self.field_manager),
        ] {
            if value.is_empty() {
                return refuse(format!("{field} is empty"));
            }
        }
        let (duration, grace) = (self.duration, self.grace);
        if duration == 0 || i32::try_from(duration).is_err() {
            return refuse(format!("duration {duration} s: must be 1 to {} s", i32::MAX));
        }
        if grace == 0 || grace >= duration {
            return refuse(format!(
                "grace {grace} s: must be at least 1 s and shorter than the duration of {duration} s"
            ));
        }
        let (fence, renew) = (self.fence, duration - grace);
        if fence >= Duration::from_secs(duration) {
            return refuse(format!(
                "fence {fence:?}: must be shorter than the duration of {duration} s, or two processes act at once"
            ));
        }
        if fence <= Duration::from_secs(renew) {
            return refuse(format!(
                "fence {fence:?}: must be longer than the {renew} s between two renewals (duration - grace)"
            ));
        }
        Ok(())
    }
}

/// A client for the Lease alone: no retries of its own, short time-outs.
///
/// # Errors
/// A configuration that gives no client.
pub fn lease_client(config: &Config) -> Result<Client, kube::Error> {
    let mut config = config.clone();
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(2));
    config.read_timeout = Some(Duration::from_secs(2));
    config.write_timeout = Some(Duration::from_secs(2));
    Ok(ClientBuilder::try_from(config)?.build())
}

/// Whether this process leads. Cheap to clone and to ask.
#[derive(Clone)]
pub struct Leadership(Arc<Shared>);

struct Shared {
    clock: Arc<Clock>,
    always: bool,
    held: AtomicBool,
    refusals: AtomicU64,
    leads: watch::Sender<bool>,
    stop: CancellationToken,
    task: std::sync::Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Until when the last renewal lets us act.
#[derive(Debug)]
struct Clock {
    base: Instant,
    fence: Duration,
    /// Nanoseconds after `base`; 0 is the past.
    deadline: AtomicU64,
    renewed: Notify,
}

impl Clock {
    fn new(fence: Duration) -> Self {
        Self {
            base: Instant::now(),
            fence,
            deadline: AtomicU64::new(0),
            renewed: Notify::new(),
        }
    }

    fn renewed_at(&self, sent: Instant) {
        let deadline = (sent + self.fence).duration_since(self.base);
        let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self.deadline.fetch_max(nanos, Ordering::AcqRel);
        self.renewed.notify_one();
    }

    fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(self.base + Duration::from_nanos(nanos)),
        }
    }

    fn fresh(&self) -> bool {
        self.deadline().is_some_and(|d| Instant::now() < d)
    }

    fn forget(&self) {
        self.deadline.store(0, Ordering::Release);
    }
}

impl Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership")
            .field("leads", &self.is_leader())
            .finish_non_exhaustive()
    }
}

impl Lease for Leadership {
    fn held(&self) -> bool {
        self.may_act()
    }
}

impl Leadership {
    /// Without election: always the leader.
    pub fn always() -> Self {
        Self::build(Duration::ZERO, true)
    }

    /// Decided by hand with [`Leadership::set`]; for tests and for tools.
    pub fn fixed(leads: bool) -> Self {
        let this = Self::build(Duration::from_secs(100 * 365 * 24 * 3_600), false);
        this.set(leads);
        this
    }

    /// Changes a fixed leadership.
    pub fn set(&self, leads: bool) {
        if leads {
            self.0.clock.renewed_at(Instant::now());
        } else {
            self.0.clock.forget();
        }
        self.0.held.store(leads, Ordering::Release);
        self.0.leads.send_replace(leads);
    }

    fn build(fence: Duration, always: bool) -> Self {
        Self(Arc::new(Shared {
            clock: Arc::new(Clock::new(fence)),
            always,
            held: AtomicBool::new(always),
            refusals: AtomicU64::new(0),
            leads: watch::Sender::new(always),
            stop: CancellationToken::new(),
            task: std::sync::Mutex::new(None),
        }))
    }

    /// Begins to compete for the Lease, until [`Leadership::release`] or until the last clone is dropped. `client` must not
    /// pass a write guard that asks this leadership, see [`lease_client`].
    ///
    /// # Errors
    /// A configuration that cannot work.
    pub fn start(config: LeaseConfig, client: Client, metrics: &Metrics) -> Result<Self, InvalidLease> {
        let jitter = (Jitter::random(), Jitter::random(), Jitter::random());
        Self::start_with(config, client, metrics, jitter, wall_clock())
    }

    /// The same with jitter and time of day given.
    pub(crate) fn start_with(
        config: LeaseConfig,
        client: Client,
        metrics: &Metrics,
        jitter: (Jitter, Jitter, Jitter),
        wall_clock: WallClock,
    ) -> Result<Self, InvalidLease> {
        config.validate()?;
        let this = Self::build(config.fence, false);
        let claim = Claim {
            shared: Arc::downgrade(&this.0),
            clock: Arc::clone(&this.0.clock),
            stop: this.0.stop.clone(),
            name: config.name.clone(),
            metrics: metrics.clone(),
        };
        let candidate = Candidate::new(config, client, jitter, wall_clock);
        let stop = this.0.stop.clone();
        let task = tokio::spawn(async move {
            claim.publish();
            tokio::select! {
                () = candidate.run(&claim, &stop) => {}
                () = claim.follow() => {}
            }
        });
        *lock(&this.0.task) = Some(AbortOnDropHandle::new(task));
        Ok(this)
    }

    /// This process leads now, by its own clock too.
    pub fn is_leader(&self) -> bool {
        self.0.always || (self.0.held.load(Ordering::Acquire) && self.0.clock.fresh())
    }

    /// The same, asked by who would act now. A "no" is counted and wakes whoever waits for a change: what was refused
    /// must be looked at again, even if leadership comes back before anybody noticed that it was gone.
    pub fn may_act(&self) -> bool {
        let yes = self.is_leader();
        if !yes {
            self.0.refusals.fetch_add(1, Ordering::AcqRel);
            self.0.leads.send_modify(|_| ());
        }
        yes
    }

    /// How often [`Leadership::may_act`] said no.
    pub fn refusals(&self) -> u64 {
        self.0.refusals.load(Ordering::Acquire)
    }

    /// Wakes when leadership is won or lost (also by the clock alone).
    pub fn changed(&self) -> watch::Receiver<bool> {
        self.0.leads.subscribe()
    }

    /// After this moment no write may be started. `None`: no limit if there is no election, none allowed otherwise.
    pub fn deadline(&self) -> Option<Instant> {
        if self.0.always || !self.0.held.load(Ordering::Acquire) {
            return None;
        }
        self.0.clock.deadline()
    }

    /// Gives the lease back, so that the next one need not wait for its end. Nothing may be written afterwards.
    pub async fn release(&self) {
        if self.0.always {
            return;
        }
        self.0.stop.cancel();
        self.0.held.store(false, Ordering::Release);
        self.0.leads.send_replace(false);
        let task = lock(&self.0.task).take();
        if let Some(task) = task {
            let _ = timeout(RELEASE_LIMIT + Duration::from_secs(1), task).await;
        }
    }
}

/// What the election tells the rest of the process. Does not keep the leadership alive.
pub(super) struct Claim {
    shared: Weak<Shared>,
    clock: Arc<Clock>,
    stop: CancellationToken,
    name: String,
    metrics: Metrics,
}

impl Claim {
    /// The API server confirmed a renewal that was sent at this moment.
    pub(super) fn renewed(&self, sent: Instant) {
        self.clock.renewed_at(sent);
        self.set_held(true);
    }

    /// Another process holds the Lease, or none.
    pub(super) fn lost(&self) {
        self.clock.forget();
        self.set_held(false);
    }

    /// The last renewal still lets this process act.
    pub(super) fn is_fresh(&self) -> bool {
        self.clock.fresh()
    }

    fn set_held(&self, held: bool) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        shared.held.store(held, Ordering::Release);
        // A release may have come in between.
        if self.stop.is_cancelled() {
            shared.held.store(false, Ordering::Release);
        }
        self.publish();
    }

    fn publish(&self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let leads = shared.held.load(Ordering::Acquire) && self.clock.fresh();
        let changed = shared
            .leads
            .send_if_modified(|old| std::mem::replace(old, leads) != leads);
        self.metrics.leader.set(i64::from(leads));
        if changed {
            tracing::info!(leads, lease = %self.name, "leadership");
        }
    }

    /// Publishes the end of the fence when it comes. Never completes.
    async fn follow(&self) {
        loop {
            let end = self.clock.deadline().filter(|end| Instant::now() < *end);
            tokio::select! {
                () = self.clock.renewed.notified() => {}
                () = async {
                    match end {
                        Some(end) => sleep_until(end).await,
                        None => std::future::pending().await,
                    }
                } => self.publish(),
            }
        }
    }
}
