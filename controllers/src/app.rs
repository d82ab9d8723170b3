//! The operator as a whole: clients, caches, leadership, presence, controllers, endpoints; started and stopped in the
//! right order. What a flag means is told by `cli`; what a controller does, by its own folder.

use std::sync::Arc;

use axum::Router;
use kube::Config;
use reconcile_kit::runtime::{
    Clients, Metrics, Scope, Selector, WatchHub,
    hub::ListenGuard,
    leadership::{InvalidLease, Leadership, LeaseConfig, lease_client},
    presence::{Origin, Presence},
    probes::{Endpoint, Probes, Server, metrics_router, probe_router},
    supervisor::Supervisor,
    write_guard::WriteGuard,
};
use reconcile_kit::{ErrorClass, ReconcileError};
use tokio_util::sync::CancellationToken;

use crate::exposure::{
    ExposureKind,
    caches::{BUCKETS, CLUSTERS, Caches, GRANTS},
    controllers::{self as exposure, Flags},
    tenancy::Guards,
};
use crate::{
    garage::{access::Access, controllers as garage},
    ground::Ground,
    telemetry::{exposures::Exposures, tyk::TykMeter},
    tyk::controllers as tyk,
};

/// Value of `app.kubernetes.io/managed-by` on everything that the operator makes.
pub const MANAGED_BY: &str = "routewright";

/// Prefix of all metrics.
pub const METRICS_PREFIX: &str = "routewright";

/// What the operator is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--enable-ingress`
    pub enable_ingress: bool,
    /// `--enable-gateway-api`
    pub enable_gateway_api: bool,
    /// `--enable-garage-buckets`
    pub enable_garage_buckets: bool,
    /// `--watch-namespaces`
    pub scope: Scope,
    /// `--cluster-domain`
    pub cluster_domain: String,
    /// `--concurrency`
    pub concurrency: u16,
    /// `--instance`: tells the children of several installations apart.
    pub instance: String,
    /// Name of this Pod.
    pub pod: Option<String>,
    /// PEM certificates that are trusted besides the system's, for Garage.
    pub extra_ca: Option<Vec<u8>>,
    /// `--allowed-hostname-suffixes` and its sisters
    pub guards: Guards,
    /// `--enable-tyk` and its sisters
    pub tyk: tyk::Options,
}

/// The Lease of an installation.
pub fn lease_config(namespace: &str, instance: &str, identity: &str) -> LeaseConfig {
    LeaseConfig::new(
        namespace,
        format!("{instance}-leader"),
        identity,
        "routewright-lease",
    )
}

/// Clients whose requests are counted and whose writes stop with the lease. Back-off is the framework's: kube's own is off.
///
/// # Errors
/// A configuration that gives no client.
pub fn clients(config: &Config, metrics: &Metrics, leadership: &Leadership) -> Result<Clients, kube::Error> {
    Clients::new(config, metrics, &WriteGuard::new(leadership.clone()))
}

/// Why a process cannot take part in the election.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The Lease cannot be used as it is configured.
    #[error(transparent)]
    Lease(#[from] InvalidLease),
    /// The configuration of the API server gives no client.
    #[error("no client for the Lease: {0}")]
    Client(#[from] kube::Error),
}

/// Takes part in the election, or acts alone.
///
/// # Errors
/// A configuration that cannot be used.
pub fn leadership(
    config: &Config,
    lease: Option<LeaseConfig>,
    metrics: &Metrics,
) -> Result<Leadership, ElectionError> {
    match lease {
        Some(lease) => Ok(Leadership::start(lease, lease_client(config)?, metrics)?),
        None => {
            metrics.leader.set(1);
            Ok(Leadership::always())
        }
    }
}

/// What takes the place of HTTP on the way to outside systems. None: HTTP.
#[derive(Clone, Default)]
pub struct Doors {
    /// Garage's Admin API.
    pub garage: Option<Arc<dyn Access>>,
    /// Tyk.
    pub tyk: Option<tyk::NewReach>,
}

/// The running operator.
pub struct App {
    /// Watches.
    pub hub: WatchHub,
    /// What is served.
    pub presence: Presence,
    /// Who leads.
    pub leadership: Leadership,
    /// Controllers.
    pub supervisor: Supervisor,
    /// Counters.
    pub metrics: Metrics,
    _garage: Option<GarageHalf>,
    _tyk: tyk::Running,
}

/// What keeps the controllers of GarageBuckets and their clusters running.
struct GarageHalf {
    _exposure: exposure::Running,
    _buckets: Vec<ListenGuard>,
    _counted: ListenGuard,
}

impl App {
    /// Starts everything but the endpoints. Nothing is written before the lease is held.
    ///
    /// # Errors
    /// An option that cannot be used.
    pub fn start(
        clients: impl Into<Clients>,
        leadership: Leadership,
        metrics: Metrics,
        options: &Options,
    ) -> Result<Self, ReconcileError> {
        Self::start_with(clients, leadership, metrics, options, Doors::default())
    }

    /// The same with other ways to the outside, for tests.
    ///
    /// # Errors
    /// An option that cannot be used.
    pub fn start_with(
        clients: impl Into<Clients>,
        leadership: Leadership,
        metrics: Metrics,
        options: &Options,
        doors: Doors,
    ) -> Result<Self, ReconcileError> {
        let clients = clients.into();
        let hub = WatchHub::new(clients.watch.clone(), metrics.clone());
        let presence = Presence::start(&clients.api, &hub, &metrics, kinds(options));
        let supervisor = Supervisor::new(presence.clone(), leadership.clone(), metrics.clone());
        let ground = Ground {
            client: clients.api,
            watches: clients.watch,
            hub: hub.clone(),
            presence: presence.clone(),
            lease: Arc::new(leadership.clone()),
            metrics: metrics.clone(),
            supervisor: supervisor.clone(),
            scope: options.scope.clone(),
            managed_by: MANAGED_BY,
            instance: options.instance.clone(),
            pod: options.pod.clone(),
            concurrency: options.concurrency,
        };
        let garage = match options.garage_half() {
            true => Some(GarageHalf::start(&ground, options, doors.garage)?),
            false => None,
        };
        let meter = TykMeter::new(&metrics);
        let reach = match doors.tyk {
            Some(reach) => reach,
            None => tyk::by_http(options.extra_ca.as_deref(), meter)
                .map_err(|error| ReconcileError::new(ErrorClass::Invalid, error.to_string()))?,
        };
        let tyk = tyk::add(&ground, &options.tyk, reach);
        Ok(Self {
            hub,
            presence,
            leadership,
            supervisor,
            metrics,
            _garage: garage,
            _tyk: tyk,
        })
    }

    /// Serves probes and metrics. `more` is served beside the probes.
    pub fn serve(
        &self,
        probes: Endpoint,
        metrics: Endpoint,
        more: Router,
        stop: &CancellationToken,
    ) -> (Server, Server) {
        let told = Probes {
            supervisor: self.supervisor.clone(),
            hub: self.hub.clone(),
            leadership: self.leadership.clone(),
        };
        (
            probes.serve(probe_router(told).merge(more), stop.clone()),
            metrics.serve(metrics_router(self.metrics.clone()), stop.clone()),
        )
    }

    /// Finishes what runs, then gives the lease back.
    pub async fn shutdown(self) {
        self.supervisor.shutdown().await;
        self.leadership.release().await;
    }
}

impl GarageHalf {
    fn start(
        ground: &Ground,
        options: &Options,
        access: Option<Arc<dyn Access>>,
    ) -> Result<Self, ReconcileError> {
        let children = Selector::labels(format!(
            "app.kubernetes.io/managed-by={MANAGED_BY},app.kubernetes.io/instance={}",
            options.instance
        ));
        let snapshot = Arc::new(ground.presence.clone());
        let caches = Caches::new(
            &ground.hub,
            &options.scope,
            &children,
            snapshot,
            options.enable_ingress,
        )
        .guarded(options.guards.clone());
        let flags = Flags {
            ingress: options.enable_ingress,
            gateway_api: options.enable_gateway_api,
        };
        Ok(Self {
            _counted: caches.buckets.listen(Exposures::new(&ground.metrics).follow()),
            _exposure: exposure::add(ground, &caches, flags),
            _buckets: garage::add(
                ground,
                &caches,
                options.enable_garage_buckets,
                &options.cluster_domain,
                options.extra_ca.as_deref(),
                access,
            )?,
        })
    }
}

impl Options {
    /// Whether anything about GarageBuckets is done. Not in an installation for Tyk alone, which needs no right on any of
    /// their kinds. With every feature off the exposure controllers still say on a bucket which flag it lacks.
    pub fn garage_half(&self) -> bool {
        let asked_for = self.enable_ingress || self.enable_gateway_api || self.enable_garage_buckets;
        asked_for || !(self.tyk.enabled || self.tyk.definitions)
    }
}

/// Kinds whose presence is followed. What a flag switches off is not looked at: the flag alone decides.
fn kinds(options: &Options) -> Vec<(reconcile_kit::ApiKind, Origin)> {
    let optional = |on: bool, origin: Origin| if on { origin } else { Origin::Always };
    let mut kinds = tyk::kinds(&options.tyk);
    if !options.garage_half() {
        return kinds;
    }
    // Of two entries for one kind the first counts: what one feature needs is followed for all.
    kinds.extend([
        (BUCKETS, Origin::Crd),
        (CLUSTERS, Origin::Crd),
        (GRANTS, Origin::Crd),
        (
            ExposureKind::Ingress.api(),
            optional(options.enable_ingress, Origin::Builtin),
        ),
        (
            ExposureKind::HttpRoute.api(),
            optional(options.enable_gateway_api, Origin::Crd),
        ),
    ]);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_election_the_process_says_that_it_leads() {
        let metrics = Metrics::new("routewright");
        let config = Config::new("http://127.0.0.1:9".parse().unwrap());
        assert!(leadership(&config, None, &metrics).unwrap().may_act());
        assert_eq!(metrics.leader.get(), 1);
    }
}
