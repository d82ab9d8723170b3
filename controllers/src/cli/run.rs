//! `routewright run`: flags and environment to options, then the operator until a signal. Every flag has an environment
//! variable; the flag wins.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::Duration,
};

use clap::{ArgAction, Args};
use kube::Client;
use reconcile_kit::runtime::{
    Metrics, Scope,
    probes::{Endpoint, ServeError},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Failure, connect, logging, namespaces::WatchNamespaces, parse_switch};
use crate::app::{self, App, METRICS_PREFIX, Options};
use crate::exposure::tenancy::{self, Guards};
use crate::garage::admin::AdminHttp;
use crate::telemetry::traces::{Traces, environment};
use crate::tyk::{self, controllers, objects::Key};

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Make Ingresses for buckets that ask for one. Off: no right on Ingresses is needed and none is looked at.
    #[arg(long, env = "ENABLE_INGRESS", value_name = "BOOL", action = ArgAction::Set, value_parser = parse_switch, num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub enable_ingress: bool,

    /// Make HTTPRoutes for buckets that ask for one. Off: no right on HTTPRoutes is needed for it, and none is looked at.
    /// Gateway API on Tyk is another matter: --enable-tyk.
    #[arg(long, env = "ENABLE_GATEWAY_API", value_name = "BOOL", action = ArgAction::Set, value_parser = parse_switch, num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub enable_gateway_api: bool,

    /// Manage buckets in Garage too. Off: another operator does, and only exposure is done here.
    #[arg(long, env = "ENABLE_GARAGE_BUCKETS", value_name = "BOOL", action = ArgAction::Set, value_parser = parse_switch, num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub enable_garage_buckets: bool,

    /// Gateway API on Tyk: serve GatewayClasses of --tyk-controller-name, with their Gateways and HTTPRoutes, by Tyk. Off:
    /// none is looked at for Tyk, and APIs in Tyk stay as they are. Not together with --watch-namespaces.
    #[arg(long, env = "ENABLE_TYK", value_name = "BOOL", action = ArgAction::Set, value_parser = parse_switch, num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub enable_tyk: bool,

    /// Report on TykOasApiDefinitions with targetRefs, also while --enable-tyk is off or Gateway API is not served; off:
    /// they are never touched. Left out: as --enable-tyk.
    #[arg(long, env = "ENABLE_TYK_DEFINITIONS", value_name = "BOOL", action = ArgAction::Set, value_parser = parse_switch, num_args = 0..=1, default_missing_value = "true")]
    pub enable_tyk_definitions: Option<bool>,

    /// GatewayClasses with this controllerName are served by Tyk.
    #[arg(long, env = "TYK_CONTROLLER_NAME", value_name = "NAME", default_value = tyk::CONTROLLER_NAME)]
    pub tyk_controller_name: String,

    /// Which cluster this is, in the owner key of every API in Tyk. Left out: the uid of the namespace kube-system.
    #[arg(long, env = "TYK_CLUSTER_ID", value_name = "ID")]
    pub tyk_cluster_id: Option<String>,

    /// Where is looked.
    #[command(flatten)]
    pub namespaces: WatchNamespaces,

    /// DNS domain of the cluster.
    #[arg(
        long,
        env = "CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local"
    )]
    pub cluster_domain: String,

    /// Reconciles at once per controller; 4 times as many of routes on Tyk, which wait for Tyk together.
    #[arg(long, env = "CONCURRENCY", value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// Name of this installation: the label app.kubernetes.io/instance of everything it makes, and the name of its Lease.
    #[arg(long, env = "INSTANCE", value_name = "NAME", default_value = "routewright")]
    pub instance: String,

    /// Act only while holding a Lease, so that several replicas can run.
    #[arg(long, env = "LEADER_ELECT", value_name = "BOOL", action = ArgAction::Set, value_parser = parse_switch, num_args = 0..=1, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,

    /// Where metrics are served.
    #[arg(
        long,
        env = "METRICS_ADDR",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub metrics_addr: SocketAddr,

    /// Where /livez and /readyz are served.
    #[arg(
        long,
        env = "PROBE_ADDR",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8081"
    )]
    pub probe_addr: SocketAddr,

    /// Form of the log lines.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: logging::Format,

    /// What is logged: error, warn, info, debug, trace, or a filter such as info,kube_client=debug.
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub log_level: String,

    /// File with PEM certificates that are trusted besides the system's, for Garage's Admin API, Tyk and the trace
    /// collector.
    #[arg(long, env = "EXTRA_CA_FILE", value_name = "FILE")]
    pub extra_ca_file: Option<std::path::PathBuf>,

    /// DNS names that tenants may expose, separated by commas; each allows itself and every name below it. Empty: any.
    #[arg(
        long,
        env = "ALLOWED_HOSTNAME_SUFFIXES",
        value_delimiter = ',',
        value_name = "DOMAIN"
    )]
    pub allowed_hostname_suffixes: Vec<String>,

    /// What the key of an annotation on an Ingress may begin with, separated by commas. Empty: anything.
    #[arg(
        long,
        env = "ALLOWED_INGRESS_ANNOTATION_PREFIXES",
        value_delimiter = ',',
        value_name = "PREFIX"
    )]
    pub allowed_ingress_annotation_prefixes: Vec<String>,

    /// What the key of an annotation on an HTTPRoute may begin with, separated by commas. Empty: anything.
    #[arg(
        long,
        env = "ALLOWED_HTTPROUTE_ANNOTATION_PREFIXES",
        value_delimiter = ',',
        value_name = "PREFIX"
    )]
    pub allowed_httproute_annotation_prefixes: Vec<String>,

    /// What the key of a label on an Ingress or HTTPRoute may begin with, separated by commas. Empty: anything.
    #[arg(
        long,
        env = "ALLOWED_LABEL_PREFIXES",
        value_delimiter = ',',
        value_name = "PREFIX"
    )]
    pub allowed_label_prefixes: Vec<String>,

    /// Name of this Pod; its identity in the election and in events.
    #[arg(long, env = "POD_NAME", hide = true)]
    pub pod_name: Option<String>,

    /// Namespace of this Pod; where the Lease lives.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", hide = true)]
    pub pod_namespace: String,
}

/// How long a stop may take; with the last traces, which come afterwards, shorter than the Pod's grace period.
const STOP_LIMIT: Duration = Duration::from_secs(26);

impl RunArgs {
    fn options(&self) -> Result<Options, Failure> {
        let namespaces = self.namespaces.named();
        if let Some(bad) = namespaces.iter().find(|n| !is_label(n)) {
            return Err(Failure::usage(format!(
                "--watch-namespaces: {bad:?} is not the name of a namespace"
            )));
        }
        if !is_label(&self.instance) {
            return Err(Failure::usage(format!(
                "--instance {:?}: must be at most 63 lower-case letters, digits and '-'",
                self.instance
            )));
        }
        if !self.cluster_domain.split('.').all(is_label) {
            return Err(Failure::usage(format!(
                "--cluster-domain {:?}: is not a DNS domain such as cluster.local",
                self.cluster_domain
            )));
        }
        let tyk = self.tyk()?;
        if tyk.enabled && !namespaces.is_empty() {
            return Err(Failure::usage(
                "--watch-namespaces: not together with --enable-tyk: GatewayClasses live in no namespace, and routes of all \
                 namespaces share the hosts and paths of one Tyk. Leave it out, or run a second installation for Tyk",
            ));
        }
        Ok(Options {
            enable_ingress: self.enable_ingress,
            enable_gateway_api: self.enable_gateway_api,
            enable_garage_buckets: self.enable_garage_buckets,
            scope: if namespaces.is_empty() {
                Scope::All
            } else {
                Scope::Namespaces(namespaces)
            },
            cluster_domain: self.cluster_domain.clone(),
            concurrency: self.concurrency,
            instance: self.instance.clone(),
            pod: self.pod_name.clone(),
            extra_ca: self.extra_ca()?,
            guards: self.guards()?,
            tyk,
        })
    }

    fn tyk(&self) -> Result<controllers::Options, Failure> {
        // As the CRD of GatewayClass wants it.
        let name = &self.tyk_controller_name;
        let (domain, path) = name.split_once('/').unwrap_or((name, ""));
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c);
        if !domain.split('.').all(is_label) || path.is_empty() || !path.bytes().all(fits) || name.len() > 253
        {
            return Err(Failure::usage(format!(
                "--tyk-controller-name {name:?}: must be a domain and a path, such as {}",
                tyk::CONTROLLER_NAME
            )));
        }
        let cluster = self
            .tyk_cluster_id
            .as_deref()
            .map(str::trim)
            .filter(|id| !id.is_empty());
        if let Some(id) = cluster
            && (id.len() > 253 || !id.bytes().all(|c| c.is_ascii_graphic()))
        {
            return Err(Failure::usage(format!(
                "--tyk-cluster-id {id:?}: must be at most 253 printable ASCII characters without blanks"
            )));
        }
        Ok(controllers::Options {
            enabled: self.enable_tyk,
            definitions: self.enable_tyk_definitions.unwrap_or(self.enable_tyk),
            settings: tyk::Settings {
                controller_name: name.clone(),
                cluster_domain: self.cluster_domain.clone(),
            },
            cluster: cluster.map(str::to_owned),
            record: Some(Key::new(
                &self.pod_namespace,
                tyk::httproute::places::record_name(&self.instance),
            )),
        })
    }

    fn guards(&self) -> Result<Guards, Failure> {
        let flag = |name: &str, read: Result<Vec<String>, String>| {
            read.map_err(|why| Failure::usage(format!("--{name}: {why}")))
        };
        Ok(Guards {
            hostname_suffixes: flag(
                "allowed-hostname-suffixes",
                tenancy::hostname_suffixes(&self.allowed_hostname_suffixes),
            )?,
            ingress_annotation_prefixes: flag(
                "allowed-ingress-annotation-prefixes",
                tenancy::key_prefixes(&self.allowed_ingress_annotation_prefixes),
            )?,
            httproute_annotation_prefixes: flag(
                "allowed-httproute-annotation-prefixes",
                tenancy::key_prefixes(&self.allowed_httproute_annotation_prefixes),
            )?,
            label_prefixes: flag(
                "allowed-label-prefixes",
                tenancy::key_prefixes(&self.allowed_label_prefixes),
            )?,
        })
    }

    fn extra_ca(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(path) = &self.extra_ca_file else {
            return Ok(None);
        };
        let failed = |why: String| Failure::usage(format!("--extra-ca-file {}: {why}", path.display()));
        let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        match AdminHttp::new(Some(&pem)) {
            Ok(_) => Ok(Some(pem)),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Unique per process, also after a restart of the container: there the process has the same id again, and would take
    /// the Lease of the one before for its own.
    fn identity(&self) -> String {
        let host = self.pod_name.as_deref().unwrap_or("local");
        let random = RandomState::new().hash_one(std::process::id());
        format!("{host}-{random:016x}")
    }
}

/// A DNS label.
fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(args: RunArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let mut stop_signal = StopSignal::new()?;
    let traces = Traces::start(&environment, options.extra_ca.as_deref()).map_err(Failure::usage)?;
    let level = logging::start(args.log_format, &args.log_level, traces.as_ref())?;
    let config = connect::config().await?;
    let unusable =
        |error: kube::Error| Failure::usage(format!("no Kubernetes client: {}", connect::one_line(&error)));
    // Before anything starts: certificates of the configuration are read here.
    drop(Client::try_from(config.clone()).map_err(unusable)?);
    let busy = |error: ServeError| Failure::usage(error.to_string());
    let probes = Endpoint::open("--probe-addr", args.probe_addr)
        .await
        .map_err(busy)?;
    let scrapes = Endpoint::open("--metrics-addr", args.metrics_addr)
        .await
        .map_err(busy)?;
    let metrics = Metrics::new(METRICS_PREFIX);
    let lease = args
        .leader_elect
        .then(|| app::lease_config(&args.pod_namespace, &args.instance, &args.identity()));
    let leadership =
        app::leadership(&config, lease, &metrics).map_err(|error| Failure::usage(error.to_string()))?;
    let clients = app::clients(&config, &metrics, &leadership).map_err(unusable)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        api_server = %config.cluster_url,
        ingress = options.enable_ingress,
        gateway_api = options.enable_gateway_api,
        garage_buckets = options.enable_garage_buckets,
        tyk = options.tyk.enabled,
        tyk_definitions = options.tyk.definitions,
        traces = traces.as_ref().map(|traces| traces.endpoint.as_str()),
        probes = %probes.address,
        metrics = %scrapes.address,
        "routewright starts"
    );
    let stop = CancellationToken::new();
    let operator =
        App::start(clients, leadership, metrics, &options).map_err(|error| Failure::usage(error.message))?;
    let _servers = operator.serve(probes, scrapes, logging::router(level), &stop);
    let name = stop_signal.received().await;
    tracing::info!(signal = name, "stopping: finishing what runs");
    if tokio::time::timeout(STOP_LIMIT, operator.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("stopped before everything was finished");
    }
    stop.cancel();
    if let Some(traces) = traces {
        traces.flush().await;
    }
    tracing::info!("stopped");
    Ok(())
}

/// SIGTERM and SIGINT, from the moment on when this is made: one that comes while the operator starts is not lost.
struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    fn new() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::other(format!("signals: {error}"));
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
