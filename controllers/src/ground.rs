//! What all controllers of the operator stand on: one client, shared watches, presence, lease, metrics, supervisor; and
//! how the cache of a kind that may come and go is kept. No decision of any controller lives here.

use std::sync::Arc;

use kube::Client;
use reconcile_kit::{
    ApiKind, ErrorClass,
    layers::leader_gate::Lease,
    runtime::{
        Handle, Metrics, Scope, WatchHub,
        hub::Cached,
        presence::{ApiState, Presence},
        supervisor::Supervisor,
    },
};

/// Prefix of our annotations.
pub const PREFIX: &str = "routewright.dev";

/// What controllers run on.
#[derive(Clone)]
pub struct Ground {
    /// Client for everything; its own retry must be off.
    pub client: Client,
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
}

/// Completes when a cache is complete, or cannot be and says why.
pub fn complete<K: Cached>(handle: &Handle<K>) -> impl Future<Output = ()> + Send + 'static {
    let handle = handle.clone();
    async move {
        let refused = async {
            while handle
                .problem()
                .is_none_or(|problem| problem.class != ErrorClass::Forbidden)
            {
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
