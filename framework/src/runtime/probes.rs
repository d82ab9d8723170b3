//! HTTP endpoints of the process: `/livez`, `/healthz`, `/readyz` (with `?verbose`) and `/metrics`. They tell; they
//! decide nothing.

use std::{fmt::Write as _, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{RawQuery, State as Extract},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    hub::WatchHub,
    leadership::Leadership,
    metrics::Metrics,
    supervisor::{State, Supervisor, UnitStatus},
};
use crate::ErrorClass;

/// A controller that fails so often in a row makes the process not alive, so that it is restarted.
const TOO_OFTEN: u32 = 10;

/// An endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has the port.
    #[error("{what}: the address {address} is in use; choose another one or stop the process that has it")]
    InUse {
        /// What it was for.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("{what}: cannot listen on {address}: {source}")]
    Other {
        /// What it was for.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// What the probes tell about.
#[derive(Clone, Debug)]
pub struct Probes {
    /// The controllers.
    pub supervisor: Supervisor,
    /// The watches.
    pub hub: WatchHub,
    /// Who leads.
    pub leadership: Leadership,
}

/// One opened endpoint; closed when dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens (the port that was given if port 0 was asked for).
    pub address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

/// Opens the probes.
pub async fn serve_probes(
    address: SocketAddr,
    probes: Probes,
    stop: CancellationToken,
) -> Result<Server, ServeError> {
    serve("probes", address, probe_router(probes), stop).await
}

/// Opens the metrics.
pub async fn serve_metrics(
    address: SocketAddr,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<Server, ServeError> {
    serve("metrics", address, metrics_router(metrics), stop).await
}

/// The probes as a router, to be merged with others on one address.
pub fn probe_router(probes: Probes) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(probes))
}

/// The metrics as a router.
pub fn metrics_router(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

/// Opens one address for a router.
pub async fn serve(
    what: &'static str,
    address: SocketAddr,
    router: Router,
    stop: CancellationToken,
) -> Result<Server, ServeError> {
    Ok(Endpoint::open(what, address).await?.serve(router, stop))
}

/// An address that is held and does not answer yet: a port in use is known before anything else starts.
#[derive(Debug)]
pub struct Endpoint {
    what: &'static str,
    /// Where it listens (the port that was given if port 0 was asked for).
    pub address: SocketAddr,
    listener: TcpListener,
}

impl Endpoint {
    /// Takes the address; `what` it is for, in errors.
    pub async fn open(what: &'static str, address: SocketAddr) -> Result<Self, ServeError> {
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AddrInUse => ServeError::InUse { what, address },
            _ => ServeError::Other {
                what,
                address,
                source,
            },
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            what,
            address,
            listener,
        })
    }

    /// Answers from now on, until `stop`.
    pub fn serve(self, router: Router, stop: CancellationToken) -> Server {
        let (what, address) = (self.what, self.address);
        let task = tokio::spawn(async move {
            // Handlers may ask who calls.
            let router = router.into_make_service_with_connect_info::<SocketAddr>();
            let served = axum::serve(self.listener, router).with_graceful_shutdown(stop.cancelled_owned());
            if let Err(error) = served.await {
                tracing::error!(%address, "the {what} endpoint ended: {error}");
            }
        });
        Server {
            address,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

async fn livez(Extract(probes): Extract<Arc<Probes>>) -> Response {
    let broken: Vec<_> = probes
        .supervisor
        .status()
        .into_iter()
        .filter(|u| u.restarts_in_a_row >= TOO_OFTEN)
        .map(|u| u.name)
        .collect();
    if broken.is_empty() {
        return "ok\n".into_response();
    }
    let text = format!("controllers that fail again and again: {}\n", broken.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Ready: every enabled controller is at rest or at work. Waiting for an API or for the lease is rest.
fn unit_ready(unit: &UnitStatus) -> bool {
    match unit.state {
        State::Disabled | State::WaitingForApi | State::WaitingForLease | State::Running => true,
        State::Syncing | State::Stopping | State::Restarting => false,
    }
}

async fn readyz(Extract(probes): Extract<Arc<Probes>>, RawQuery(query): RawQuery) -> Response {
    let units = probes.supervisor.status();
    let watches = probes.hub.status();
    let running = watches.iter().filter(|w| w.running);
    // A watch that was ready once keeps its store over failures; one that never was holds its readers back.
    // A missing right is told, not waited for: whoever cannot do without that cache is itself not ready.
    let cold = running
        .clone()
        .filter(|w| !w.ready)
        .filter(|w| {
            !matches!(
                w.problem.as_ref().map(|p| p.class),
                Some(ErrorClass::Forbidden | ErrorClass::NotServed)
            )
        })
        .count();
    let ready = cold == 0 && units.iter().all(unit_ready) && !probes.supervisor.stopping().is_cancelled();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let verbose = query
        .as_deref()
        .is_some_and(|q| q.split('&').any(|p| p == "verbose" || p.starts_with("verbose=")));
    if !verbose {
        return (status, if ready { "ok\n" } else { "not ready\n" }).into_response();
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "leader: {}", probes.leadership.is_leader());
    for unit in &units {
        let _ = write!(text, "controller {}: {}", unit.name, unit.state.label());
        for kind in &unit.missing {
            let _ = write!(text, ", missing {kind}");
        }
        if unit.restarts > 0 {
            let _ = write!(text, ", restarts {}", unit.restarts);
        }
        if !unit.features.is_empty() {
            let _ = write!(text, " ({})", unit.features.join(", "));
        }
        text.push('\n');
    }
    for watch in running {
        let state = if watch.ready { "ready" } else { "syncing" };
        let _ = write!(text, "watch {}", watch.kind);
        if !watch.selector.is_empty() {
            let _ = write!(text, " [{}]", watch.selector);
        }
        let _ = write!(text, ": {state}, objects {}", watch.objects);
        if watch.undecodable > 0 {
            let _ = write!(text, ", undecodable {}", watch.undecodable);
        }
        if let Some(problem) = &watch.problem {
            let _ = write!(text, ", {}: {}", problem.class.label(), problem.message);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "readyz: {}", if ready { "ok" } else { "not ready" });
    (status, text).into_response()
}

async fn scrape(Extract(metrics): Extract<Metrics>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.encode()).into_response()
}
