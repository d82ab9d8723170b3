//! The metrics of the framework and a tower layer that counts API requests. Names follow controller-runtime's habits;
//! the prefix is a parameter. No object name is ever a label.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, atomic::AtomicU64},
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use kube::client::Body;
use pin_project_lite::pin_project;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tower::{Layer, Service};

use super::lock;

/// Label of a controller.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ControllerLabel {
    /// Unique controller name.
    pub controller: String,
}

/// Label of an end of a reconcile.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResultLabel {
    /// Unique controller name.
    pub controller: String,
    /// `done`, `requeue`, `waiting`, `skipped` or `error`.
    pub result: &'static str,
}

/// Label of a failed reconcile.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ClassLabel {
    /// Unique controller name.
    pub controller: String,
    /// Error class.
    pub class: &'static str,
}

/// Label of a state of a controller.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StateLabel {
    /// Unique controller name.
    pub controller: String,
    /// One of the supervisor's states.
    pub state: &'static str,
}

/// Label of a watch.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct WatchLabel {
    /// `Ingress.networking.k8s.io/v1`.
    pub kind: String,
    /// Label or field selector; empty for everything.
    pub selector: String,
}

/// Label of a kind.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabel {
    /// `Ingress.networking.k8s.io/v1`.
    pub kind: String,
}

/// Label of an applied child.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ApplyLabel {
    /// Kind of the child.
    pub kind: String,
    /// `unchanged`, `created`, `updated`, `foreign`, `noop` and so on.
    pub result: &'static str,
}

/// Label of an API request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabel {
    /// What the client did: `get`, `list`, `watch`, `patch`, `patch_status` and so on.
    pub verb: &'static str,
    /// Plural resource name, empty for requests that are about none.
    pub kind: String,
    /// HTTP status code, or `error` when no answer came.
    pub code: String,
}

/// A gauge of a point in time or another fraction.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// All metrics of the framework. Cheap to clone; all clones count into the same registry.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// Finished reconciles.
    pub reconciles: Family<ResultLabel, Counter>,
    /// Failed reconciles by class.
    pub reconcile_errors: Family<ClassLabel, Counter>,
    /// Duration of reconciles.
    pub reconcile_duration: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    /// Reconciles that panicked.
    pub reconcile_panics: Family<ControllerLabel, Counter>,
    /// Reconciles that run now.
    pub reconcile_active: Family<ControllerLabel, Gauge>,
    /// Objects that wait for a reconcile and were not yet taken.
    pub queue_depth: Family<ControllerLabel, Gauge>,
    /// API requests.
    pub api_requests: Family<RequestLabel, Counter>,
    /// Children applied.
    pub child_apply: Family<ApplyLabel, Counter>,
    /// Objects in a cache.
    pub cache_objects: Family<WatchLabel, Gauge>,
    /// Objects that a cache cannot decode.
    pub cache_undecodable: Family<WatchLabel, Gauge>,
    /// Failures of a watch.
    pub watch_errors: Family<WatchLabel, Counter>,
    /// Seconds since 1970 of the last event of a watch.
    pub watch_last_event: Family<WatchLabel, FloatGauge>,
    /// 1 for the state that a controller is in, 0 for the others.
    pub controller_state: Family<StateLabel, Gauge>,
    /// Restarts of a controller whose task ended or panicked.
    pub controller_restarts: Family<ControllerLabel, Counter>,
    /// 1 if a kind is served, 0 if it is absent.
    pub api_served: Family<KindLabel, Gauge>,
    /// 1 while this process leads.
    pub leader: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn durations() -> Histogram {
    // 1 ms to 65 s
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Metrics {
    /// Metrics with names that start with `prefix` and an underscore.
    pub fn new(prefix: &str) -> Self {
        let mut r = Registry::with_prefix(prefix);
        let metrics = Self {
            registry: Arc::default(),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_duration: Family::new_with_constructor(durations),
            reconcile_panics: Family::default(),
            reconcile_active: Family::default(),
            queue_depth: Family::default(),
            api_requests: Family::default(),
            child_apply: Family::default(),
            cache_objects: Family::default(),
            cache_undecodable: Family::default(),
            watch_errors: Family::default(),
            watch_last_event: Family::default(),
            controller_state: Family::default(),
            controller_restarts: Family::default(),
            api_served: Family::default(),
            leader: Gauge::default(),
        };
        // Counters get `_total` from the encoder.
        r.register("reconcile", "Finished reconciles", metrics.reconciles.clone());
        r.register(
            "reconcile_errors",
            "Failed reconciles by error class",
            metrics.reconcile_errors.clone(),
        );
        r.register(
            "reconcile_duration_seconds",
            "Duration of reconciles",
            metrics.reconcile_duration.clone(),
        );
        r.register(
            "reconcile_panics",
            "Reconciles that panicked",
            metrics.reconcile_panics.clone(),
        );
        r.register(
            "reconcile_active",
            "Reconciles that run now",
            metrics.reconcile_active.clone(),
        );
        r.register(
            "queue_depth",
            "Objects that wait for a reconcile",
            metrics.queue_depth.clone(),
        );
        r.register(
            "api_requests",
            "Requests to the API server",
            metrics.api_requests.clone(),
        );
        r.register(
            "child_apply",
            "Owned children applied, by result",
            metrics.child_apply.clone(),
        );
        r.register(
            "cache_objects",
            "Objects in a cache",
            metrics.cache_objects.clone(),
        );
        r.register(
            "cache_undecodable",
            "Objects that do not fit their type",
            metrics.cache_undecodable.clone(),
        );
        r.register(
            "watch_errors",
            "Failures of a watch",
            metrics.watch_errors.clone(),
        );
        r.register(
            "watch_last_event_timestamp_seconds",
            "Time of the last event of a watch",
            metrics.watch_last_event.clone(),
        );
        r.register(
            "controller_state",
            "1 for the state that a controller is in",
            metrics.controller_state.clone(),
        );
        r.register(
            "controller_restarts",
            "Restarts of a controller that ended or panicked",
            metrics.controller_restarts.clone(),
        );
        r.register("api_served", "1 if a kind is served", metrics.api_served.clone());
        r.register("leader", "1 while this process leads", metrics.leader.clone());
        *lock(&metrics.registry) = r;
        metrics
    }

    /// Adds metrics of a product to the same registry.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut lock(&self.registry));
    }

    /// The text that a scrape gets (OpenMetrics).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &lock(&self.registry));
        text
    }

    /// A layer for kube's client stack that counts requests.
    pub fn api_layer(&self) -> ApiMetricsLayer {
        ApiMetricsLayer(self.api_requests.clone())
    }
}

impl Default for Metrics {
    /// For tests: a registry of its own.
    fn default() -> Self {
        Self::new("test")
    }
}

/// See [`Metrics::api_layer`].
#[derive(Clone, Debug)]
pub struct ApiMetricsLayer(Family<RequestLabel, Counter>);

impl<S> Layer<S> for ApiMetricsLayer {
    type Service = ApiMetricsService<S>;
    fn layer(&self, inner: S) -> Self::Service {
        ApiMetricsService {
            inner,
            requests: self.0.clone(),
        }
    }
}

/// See [`Metrics::api_layer`].
#[derive(Clone, Debug)]
pub struct ApiMetricsService<S> {
    inner: S,
    requests: Family<RequestLabel, Counter>,
}

impl<S, B> Service<Request<Body>> for ApiMetricsService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ApiMetricsFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // kube names the operation in an extension; raw requests have only their method.
        let verb = request
            .extensions()
            .get::<&'static str>()
            .copied()
            .unwrap_or_else(|| method(request.method()));
        ApiMetricsFuture {
            kind: resource(request.uri().path()).to_owned(),
            verb,
            requests: self.requests.clone(),
            inner: self.inner.call(request),
        }
    }
}

pin_project! {
    /// See [`Metrics::api_layer`].
    pub struct ApiMetricsFuture<F> {
        verb: &'static str,
        kind: String,
        requests: Family<RequestLabel, Counter>,
        #[pin]
        inner: F,
    }
}

impl<F, B, E> Future for ApiMetricsFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx));
        this.requests
            .get_or_create(&RequestLabel {
                verb: this.verb,
                kind: std::mem::take(this.kind),
                code: match &answer {
                    Ok(response) => response.status().as_str().to_owned(),
                    Err(_) => "error".to_owned(),
                },
            })
            .inc();
        Poll::Ready(answer)
    }
}

fn method(method: &http::Method) -> &'static str {
    match *method {
        http::Method::GET => "get",
        http::Method::POST => "create",
        http::Method::PUT => "replace",
        http::Method::PATCH => "patch",
        http::Method::DELETE => "delete",
        _ => "other",
    }
}

/// The plural resource name in an API path, with its subresource; empty for discovery and the like.
fn resource(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    match parts.next() {
        Some("api") => {}
        Some("apis") => {
            parts.next();
        }
        _ => return "",
    }
    parts.next();
    match (parts.next(), parts.next(), parts.next()) {
        (Some("namespaces"), Some(_), Some(resource)) => resource,
        (Some(resource), _, _) => resource,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_is_read_from_the_path() {
        for (path, want) in [
            (
                "/apis/networking.k8s.io/v1/namespaces/a/ingresses/x/status",
                "ingresses",
            ),
            ("/apis/networking.k8s.io/v1/ingresses", "ingresses"),
            ("/api/v1/namespaces/a/secrets/x", "secrets"),
            ("/api/v1/namespaces/a", "namespaces"),
            ("/api/v1/nodes", "nodes"),
            ("/apis/networking.k8s.io/v1", ""),
            ("/version", ""),
        ] {
            assert_eq!(resource(path), want, "{path}");
        }
    }

    #[tokio::test]
    async fn requests_are_counted_by_verb_resource_and_code() {
        let metrics = Metrics::new("op");
        let api = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path().ends_with("gone") {
                return Err(tower::BoxError::from("connection refused"));
            }
            Ok(Response::builder().status(404).body(Body::empty())?)
        });
        let mut service = metrics.api_layer().layer(api);
        for path in [
            "/api/v1/namespaces/a/secrets/x",
            "/api/v1/namespaces/a/secrets/gone",
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let _ = service.call(request).await;
        }
        let text = metrics.encode();
        assert!(
            text.contains(r#"op_api_requests_total{verb="get",kind="secrets",code="404"} 1"#),
            "{text}"
        );
        assert!(
            text.contains(r#"op_api_requests_total{verb="get",kind="secrets",code="error"} 1"#),
            "{text}"
        );
    }
}
