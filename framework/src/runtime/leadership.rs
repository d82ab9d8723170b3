//! Who may act: one process holds a Lease. The lease protocol is kube-lease-manager's; its value alone is not trusted,
//! because it stays true while the API server cannot be reached. Leader is who holds the value *and* has renewed
//! recently by its own monotonic clock.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use kube_lease_manager::LeaseManagerBuilder;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::{BoxError, Layer, Service};

use super::{
    jitter::{Backoff, Jitter},
    lock,
    metrics::Metrics,
};
use crate::layers::leader_gate::Lease;

/// No answer to a lease request within this time counts as a failure: there must be room for another try.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How long giving the lease back may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The lease.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique per process, e.g. the Pod's name and uid.
    pub identity: String,
    /// Field manager of the writes to the Lease.
    pub field_manager: String,
    /// How long others wait after the last renewal, in seconds.
    pub duration: u64,
    /// How long before the end of `duration` renewing begins, in seconds.
    pub grace: u64,
    /// How long after sending the last successful renewal this process still acts. Must be shorter than `duration`: the
    /// difference is room for clocks and for requests on their way.
    pub fence: Duration,
}

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
}

/// Makes a client for the lease alone, with the given layer outermost.
pub type LeaseClient = Arc<dyn Fn(&RenewalLayer) -> Result<Client, kube::Error> + Send + Sync>;

/// A lease client from a configuration: no retries of its own, short time-outs.
pub fn lease_client(config: &Config) -> LeaseClient {
    let mut config = config.clone();
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(2));
    config.read_timeout = Some(Duration::from_secs(2));
    config.write_timeout = Some(Duration::from_secs(2));
    Arc::new(move |layer| Ok(ClientBuilder::try_from(config.clone())?.with_layer(layer).build()))
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

    /// Begins to compete for the lease, until [`Leadership::release`] or until the last clone is dropped.
    pub fn start(config: LeaseConfig, client: LeaseClient, metrics: &Metrics) -> Self {
        let this = Self::build(config.fence, false);
        let task = tokio::spawn(compete(
            Arc::downgrade(&this.0),
            Arc::clone(&this.0.clock),
            this.0.stop.clone(),
            config,
            client,
            metrics.clone(),
        ));
        *lock(&this.0.task) = Some(AbortOnDropHandle::new(task));
        this
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
        self.0.held.store(false, Ordering::Release);
        self.0.leads.send_replace(false);
        self.0.stop.cancel();
        let task = lock(&self.0.task).take();
        if let Some(task) = task {
            let _ = timeout(RELEASE_LIMIT + Duration::from_secs(1), task).await;
        }
    }
}

async fn compete(
    shared: std::sync::Weak<Shared>,
    clock: Arc<Clock>,
    stop: CancellationToken,
    config: LeaseConfig,
    client: LeaseClient,
    metrics: Metrics,
) {
    let publish = |held: bool| {
        let Some(shared) = shared.upgrade() else { return };
        let held = held && !stop.is_cancelled();
        shared.held.store(held, Ordering::Release);
        let leads = held && clock.fresh();
        let changed = shared
            .leads
            .send_if_modified(|old| std::mem::replace(old, leads) != leads);
        if changed {
            metrics.leader.set(i64::from(leads));
            tracing::info!(leads, lease = %config.name, "leadership");
        }
    };
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5), Jitter::random());
    let layer = RenewalLayer {
        clock: Arc::clone(&clock),
        identity: config.identity.clone(),
    };
    let duration = Duration::from_secs(config.duration);
    loop {
        // A new incarnation begins without any claim.
        clock.forget();
        publish(false);
        let build = async {
            let client = client(&layer).map_err(|e| e.to_string())?;
            LeaseManagerBuilder::new(client, &config.name)
                .with_namespace(&config.namespace)
                .with_identity(&config.identity)
                .with_duration(config.duration)
                .with_grace(config.grace)
                .with_field_manager(&config.field_manager)
                .build()
                .await
                .map_err(|e| e.to_string())
        };
        let manager = tokio::select! {
            () = stop.cancelled() => return,
            built = build => match built {
                Ok(manager) => manager,
                Err(error) => {
                    tracing::warn!(lease = %config.name, "the lease cannot be read and is tried again: {error}");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(backoff.next_wait()) => continue,
                    }
                }
            },
        };
        backoff.reset();
        let (mut value, task) = manager.watch().await;
        let task = AbortOnDropHandle::new(task);
        let mut stale_since: Option<Instant> = None;
        loop {
            let held = *value.borrow_and_update();
            publish(held);
            // Still "ours" after one duration without a renewal: the manager is stuck, or the Lease was deleted.
            stale_since = match stale_since {
                _ if !held || clock.fresh() => None,
                since => since.or_else(|| Some(Instant::now())),
            };
            let next = match (held, stale_since) {
                (false, _) => None,
                (true, None) => clock.deadline(),
                (true, Some(since)) => Some(since + duration),
            };
            if stale_since.is_some() && next.is_some_and(|n| Instant::now() >= n) {
                tracing::warn!(lease = %config.name, "the lease could not be renewed; competing anew");
                break;
            }
            tokio::select! {
                () = stop.cancelled() => {
                    publish(false);
                    // All receivers gone is how the manager is told to give the lease back.
                    drop(value);
                    if timeout(RELEASE_LIMIT, task).await.is_err() {
                        tracing::warn!(lease = %config.name, "the lease could not be given back in time");
                    }
                    return;
                }
                changed = value.changed() => if changed.is_err() { break },
                () = clock.renewed.notified() => {}
                () = async {
                    match next {
                        Some(next) => sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
        drop((value, task));
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff.next_wait()) => {}
        }
    }
}

/// Notes when each successful renewal was *sent*. A renewal is a PATCH whose answer shows us as the holder.
#[derive(Clone, Debug)]
pub struct RenewalLayer {
    clock: Arc<Clock>,
    identity: String,
}

#[cfg(test)]
impl RenewalLayer {
    /// A layer, and whether it has seen a renewal.
    pub(crate) fn for_test(identity: &str) -> (Self, impl Fn() -> bool) {
        let clock = Arc::new(Clock::new(Duration::from_secs(10)));
        let layer = Self {
            clock: Arc::clone(&clock),
            identity: identity.to_owned(),
        };
        (layer, move || clock.fresh())
    }
}

impl<S> Layer<S> for RenewalLayer {
    type Service = Renewal<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Renewal {
            inner,
            layer: self.clone(),
        }
    }
}

/// See [`RenewalLayer`].
#[derive(Clone, Debug)]
pub struct Renewal<S> {
    inner: S,
    layer: RenewalLayer,
}

impl<S, B> Service<Request<Body>> for Renewal<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let renewal = request.method() == Method::PATCH;
        let sent = Instant::now();
        let answer = self.inner.call(request);
        let layer = self.layer.clone();
        Box::pin(async move {
            let whole = async {
                let (head, body) = answer.await.map_err(Into::into)?.into_parts();
                let body = body.collect().await.map_err(Into::into)?.to_bytes();
                Ok::<_, BoxError>((head, body))
            };
            let (head, body) = timeout(ANSWER_LIMIT, whole).await??;
            if renewal && head.status.is_success() && holder(&body).as_deref() == Some(&layer.identity) {
                layer.clock.renewed_at(sent);
            }
            Ok(Response::from_parts(head, Body::from(body)))
        })
    }
}

fn holder(lease: &[u8]) -> Option<String> {
    let lease: serde_json::Value = serde_json::from_slice(lease).ok()?;
    lease
        .get("spec")?
        .get("holderIdentity")?
        .as_str()
        .map(str::to_owned)
}
