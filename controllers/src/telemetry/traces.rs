//! Traces over OTLP/gRPC, set up by the variables that OpenTelemetry's specification names. One trace per reconcile; its
//! children are the calls to the API server and to Garage. Nothing is installed where no endpoint is named.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry::{
    Context, KeyValue, TraceId,
    trace::{Link, SpanKind, TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter as OtlpExporter, WithTonicConfig,
    tonic_types::transport::{Certificate, ClientTlsConfig},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{
        BatchSpanProcessor, Config, SamplingDecision, SamplingResult, SdkTracer, SdkTracerProvider,
        ShouldSample, SpanData, SpanExporter,
    },
};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

/// Name of the span that every trace begins with.
const ROOT: &str = "reconcile";
/// How long what was not sent yet may take at the end.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// An environment variable by its name; `None` also where it is empty, as the specification wants.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of the process.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where traces go to, or `None` where there should be none.
///
/// # Errors
/// A variable asks for what this program cannot do.
pub fn endpoint(env: Env<'_>) -> Result<Option<String>, String> {
    if env("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let of_traces = |name: &str| {
        let (own, shared) = (
            format!("OTEL_EXPORTER_OTLP_TRACES_{name}"),
            format!("OTEL_EXPORTER_OTLP_{name}"),
        );
        let found = |name: String| env(&name).map(|value| (name, value));
        found(own).or_else(|| found(shared))
    };
    match env("OTEL_TRACES_EXPORTER").as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => {
            return Err(format!(
                "OTEL_TRACES_EXPORTER {other:?}: otlp and none are what there is"
            ));
        }
    }
    let Some((_, endpoint)) = of_traces("ENDPOINT") else {
        return Ok(None);
    };
    if let Some((name, protocol)) = of_traces("PROTOCOL").filter(|(_, protocol)| protocol != "grpc") {
        return Err(format!(
            "{name} {protocol:?}: only grpc is built in; point {} at the collector's gRPC port (4317)",
            without_user(&endpoint)
        ));
    }
    Ok(Some(endpoint))
}

/// User and password of an address do not belong into a log.
fn without_user(endpoint: &str) -> String {
    let (scheme, rest) = endpoint
        .split_once("://")
        .map_or(("", endpoint), |(scheme, rest)| (scheme, rest));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let between = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{between}{host}")
}

/// Running traces. Dropped without [`Traces::flush`], what was not sent yet is lost.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// Where they go to, for the log.
    pub endpoint: String,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Traces {
    /// Starts traces if the environment asks for them. `extra_ca`: PEM certificates that are trusted besides the system's.
    /// Must be called inside the runtime: the connection lives in it.
    ///
    /// # Errors
    /// A variable that cannot be used.
    pub fn start(env: Env<'_>, extra_ca: Option<&[u8]>) -> Result<Option<Self>, String> {
        let Some(endpoint) = endpoint(env)? else {
            return Ok(None);
        };
        let told = without_user(&endpoint);
        let mut exporter = OtlpExporter::builder().with_tonic();
        if endpoint.starts_with("https://") {
            exporter = exporter.with_tls_config(tls(env, extra_ca)?);
        }
        // Everything else that has a variable is read by the exporter itself.
        let exporter = exporter
            .build()
            .map_err(|error: ExporterBuildError| format!("OTEL_EXPORTER_OTLP_*: {error}"))?;
        let exporter = Telling {
            inner: exporter,
            endpoint: told.clone(),
            broken: AtomicBool::new(false),
        };
        let provider = SdkTracerProvider::builder()
            .with_sampler(OnlyReconciles(Config::default().sampler))
            .with_resource(resource(env))
            // A thread and a bounded queue of its own: what does not fit is dropped.
            .with_span_processor(BatchSpanProcessor::builder(exporter).build())
            .build();
        Ok(Some(Self {
            tracer: provider.tracer("routewright"),
            provider,
            endpoint: told,
        }))
    }

    /// What turns spans into traces, with a filter of its own: whatever the log shows, a trace is whole.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        // kube_runtime has a span around each reconcile that would be a second root; kube_client's are the API calls.
        let wanted = Targets::new()
            .with_target("reconcile_kit", LevelFilter::INFO)
            .with_target("routewright", LevelFilter::INFO)
            .with_target("kube_client", LevelFilter::DEBUG);
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(wanted)
    }

    /// Sends what was not sent yet, for a few seconds at most. Nothing is sent afterwards.
    pub async fn flush(self) {
        let provider = self.provider;
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(endpoint = %self.endpoint, "the last traces could not be sent: {error}");
        }
    }
}

/// Trust for an endpoint with encryption: the system's roots, and what is named besides.
fn tls(env: Env<'_>, extra_ca: Option<&[u8]>) -> Result<ClientTlsConfig, String> {
    let mut tls = ClientTlsConfig::new().with_enabled_roots();
    if let Some(pem) = extra_ca {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    for name in [
        "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
    ] {
        if let Some(file) = env(name) {
            let pem = std::fs::read(&file).map_err(|error| format!("{name} {file}: {error}"))?;
            return Ok(tls.ca_certificate(Certificate::from_pem(pem)));
        }
    }
    Ok(tls)
}

/// Who sends: ours, then what the environment says.
fn resource(env: Env<'_>) -> Resource {
    let mut ours = vec![
        KeyValue::new("service.name", "routewright"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    for (variable, attributes) in [
        ("POD_NAME", ["k8s.pod.name", "service.instance.id"].as_slice()),
        ("POD_NAMESPACE", &["k8s.namespace.name"]),
    ] {
        if let Some(value) = env(variable) {
            ours.extend(attributes.iter().map(|name| KeyValue::new(*name, value.clone())));
        }
    }
    let resource = Resource::builder_empty().with_attributes(ours).with_detectors(&[
        Box::new(TelemetryResourceDetector),
        Box::new(EnvResourceDetector::new()),
    ]);
    match env("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// Samples whole reconciles and nothing else: a watch, a list or a renewal of the lease belongs to none, and would be a
/// trace of its own. Which reconciles is decided by the sampler of the environment.
#[derive(Clone, Debug)]
struct OnlyReconciles(Box<dyn ShouldSample>);

impl ShouldSample for OnlyReconciles {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let child = parent.is_some_and(|parent| parent.span().span_context().is_valid());
        if child || name == ROOT {
            return self
                .0
                .should_sample(parent, trace_id, name, kind, attributes, links);
        }
        SamplingResult {
            decision: SamplingDecision::Drop,
            attributes: Vec::new(),
            trace_state: Default::default(),
        }
    }
}

/// Says once that the collector does not answer, and once that it does again.
#[derive(Debug)]
struct Telling<E> {
    inner: E,
    endpoint: String,
    broken: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Telling<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.inner.export(batch).await;
        let was_broken = self.broken.swap(result.is_err(), Ordering::AcqRel);
        match &result {
            Err(error) if !was_broken => tracing::warn!(
                endpoint = %self.endpoint,
                "traces cannot be sent and are dropped; nothing else depends on them: {error}"
            ),
            Ok(()) if was_broken => tracing::info!(endpoint = %self.endpoint, "traces are sent again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// The trace that the present span is a part of, if it is sent.
pub fn current_trace_id() -> Option<TraceId> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    span.is_sampled().then(|| span.trace_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn traces_are_off_unless_an_endpoint_is_named() {
        let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        for (variables, wanted) in [
            (vec![], None),
            (vec![("OTEL_SERVICE_NAME", "x")], None),
            (vec![("OTEL_TRACES_EXPORTER", "otlp")], None),
            (vec![at], Some("http://collector:4317")),
            (
                vec![at, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317")],
                Some("http://traces:4317"),
            ),
            (vec![at, ("OTEL_SDK_DISABLED", "True")], None),
            (
                vec![at, ("OTEL_SDK_DISABLED", "1")],
                Some("http://collector:4317"),
            ),
            (vec![at, ("OTEL_TRACES_EXPORTER", "none")], None),
            (
                vec![at, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
                Some("http://collector:4317"),
            ),
        ] {
            assert_eq!(
                endpoint(&with(&variables)).unwrap().as_deref(),
                wanted,
                "{variables:?}"
            );
        }
    }

    #[test]
    fn what_is_not_built_in_is_refused_by_its_variable() {
        let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hidden@collector:4318");
        for (variable, value, said) in [
            ("OTEL_TRACES_EXPORTER", "zipkin", "otlp and none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "only grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "only grpc"),
        ] {
            let error = endpoint(&with(&[at, (variable, value)])).unwrap_err();
            assert!(
                error.contains(variable) && error.contains(value) && error.contains(said),
                "{error}"
            );
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn the_environment_has_the_last_word_on_who_sends() {
        let name = |variables: &[(&str, &str)]| {
            let resource = resource(&with(variables));
            resource
                .get(&"service.name".into())
                .map(|value| value.to_string())
        };
        assert_eq!(name(&[]).as_deref(), Some("routewright"));
        assert_eq!(name(&[("OTEL_SERVICE_NAME", "sites")]).as_deref(), Some("sites"));
        let resource = resource(&with(&[("POD_NAME", "rw-0"), ("POD_NAMESPACE", "ops")]));
        for (attribute, value) in [("k8s.pod.name", "rw-0"), ("k8s.namespace.name", "ops")] {
            assert_eq!(
                resource.get(&attribute.into()).map(|v| v.to_string()).as_deref(),
                Some(value)
            );
        }
    }
}
