//! What all controllers of the operator stand on: one client, shared watches, presence, lease, metrics, supervisor; how
//! they are run on it; and how the cache of a kind that may come and go is kept. No decision of any controller lives here.

use std::sync::Arc;

use futures::FutureExt;
use kube::Client;
use reconcile_kit::{
    ApiKind, BoxReconcile,
    layers::leader_gate::Lease,
    runtime::{
        ControllerSpec, Handle, Metrics, Scope, Triggers, WatchHub,
        controller::Forget,
        hub::{Cached, SourceStatus},
        presence::{ApiState, Presence},
        run_controller,
        supervisor::{Supervisor, Unit},
    },
};

/// Prefix of our annotations.
pub const PREFIX: &str = "routewright.dev";

/// What controllers run on.
#[derive(Clone)]
pub struct Ground {
    /// Client for everything but watches; its own retry must be off.
    pub client: Client,
    /// Client for watches: without a time-out for answers that are quiet by nature.
    pub watches: Client,
    /// Shared watches.
    pub hub: WatchHub,
    /// What is served.
    pub presence: Presence,
    /// Who may act.
    pub lease: Arc<dyn Lease>,
    /// Counters.
    pub metrics: Metrics,
    /// Starts and stops controllers.
    pub supervisor: Supervisor,
    /// Namespaces to look at.
    pub scope: Scope,
    /// Value of `app.kubernetes.io/managed-by` on children.
    pub managed_by: &'static str,
    /// Value of `app.kubernetes.io/instance` on children.
    pub instance: String,
    /// Name of this Pod, for events.
    pub pod: Option<String>,
    /// Reconciles at once per controller.
    pub concurrency: u16,
}

impl Ground {
    /// Runs the cache of a kind while it is served, and wakes every bucket when that changes.
    pub fn optional<K: Cached>(&self, kind: ApiKind, handle: &Handle<K>, wake: &Arc<dyn Fn() + Send + Sync>) {
        let wake = Arc::clone(wake);
        self.supervisor
            .supervise_watch(kind, handle, move |_: ApiState| wake());
    }

    /// A unit that reconciles what `triggers` name. `adjust` is asked at each start.
    pub(crate) fn unit<K: Cached + kube::Resource<DynamicType = ()>>(
        &self,
        name: &'static str,
        objects: &Handle<K>,
        triggers: Triggers<K>,
        stack: BoxReconcile<K>,
        forget: Forget,
        adjust: impl Fn(&mut ControllerSpec<K>) + Send + Sync + 'static,
    ) -> Unit {
        let (objects, concurrency) = (objects.clone(), self.concurrency);
        Unit::new(name, move |start| {
            let mut spec = ControllerSpec::new(name, objects.clone(), triggers.clone(), stack.clone());
            spec.forget = Some(Arc::clone(&forget));
            spec.concurrency = concurrency;
            adjust(&mut spec);
            async move {
                let stop = start.stop.clone();
                run_controller(spec, stop, || start.running()).await;
            }
            .boxed()
        })
    }
}

/// Completes when a cache is complete, or cannot be and says why.
pub fn complete<K: Cached>(handle: &Handle<K>) -> impl Future<Output = ()> + Send + 'static {
    let handle = handle.clone();
    async move {
        let refused = async {
            let settled = |source: &SourceStatus| source.synced || source.refusal().is_some();
            loop {
                let sources = handle.sources();
                if !sources.is_empty() && sources.iter().all(settled) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        tokio::select! { () = handle.ready() => {}, () = refused => {} }
    }
}

/// Completes when it is known whether a kind is served and, if it is, its cache is complete.
pub fn presence_and_cache<K: Cached>(
    presence: &Presence,
    kind: ApiKind,
    handle: &Handle<K>,
) -> impl Future<Output = ()> + Send + 'static {
    let (presence, handle) = (presence.clone(), handle.clone());
    async move {
        let mut changed = presence.changed();
        loop {
            changed.borrow_and_update();
            match presence.get(&kind) {
                ApiState::Absent => return,
                ApiState::Served => tokio::select! {
                    () = complete(&handle) => return,
                    _ = changed.changed() => {}
                },
                ApiState::Unknown => {
                    if changed.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
