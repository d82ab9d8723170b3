//! The metrics of the framework and a tower layer that counts API requests. What controller-runtime and client-go count
//! too has their names, so that dashboards fit; the rest has the product's prefix. No object name is ever a label.

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
        MetricType,
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
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
    /// `success`, `requeue_after`, `waiting`, `skipped` or `error`.
    pub result: &'static str,
}

/// Label of a queue, as client-go writes it.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct QueueLabel {
    /// Unique controller name.
    pub name: String,
    /// The same: controller-runtime has both.
    pub controller: String,
}

/// Label of a request, as client-go writes it.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct CodeLabel {
    /// HTTP status code, or `<error>` when no answer came.
    pub code: String,
    /// HTTP method.
    pub method: String,
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
    registry: Arc<Mutex<Registered>>,
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
    /// Reconciles that may run at once.
    pub max_concurrent: Family<ControllerLabel, Gauge>,
    queue_depth: Family<QueueLabel, Gauge>,
    queue_adds: Family<QueueLabel, Counter>,
    queue_retries: Family<QueueLabel, Counter>,
    queue_wait: Family<QueueLabel, Histogram, fn() -> Histogram>,
    queue_work: Family<QueueLabel, Histogram, fn() -> Histogram>,
    requests: Family<CodeLabel, Counter>,
    /// API requests.
    pub api_requests: Family<RequestLabel, Counter>,
    /// Statuses that were written again over what somebody else had written.
    pub status_rewrites: Family<ControllerLabel, Counter>,
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

struct Registered {
    registry: Registry,
    prefix: String,
    names: Vec<String>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Adds metrics to a registry and keeps their names, so that documentation can be compared with them.
pub struct Registrar<'a>(&'a mut Registered);

impl Registrar<'_> {
    /// A metric of the product: its name gets the prefix.
    pub fn register(&mut self, name: &str, help: &str, metric: impl Metric) {
        let name = format!("{}_{name}", self.0.prefix);
        self.register_as(&name, help, metric);
    }

    /// A metric under a name that others coined.
    pub fn register_as(&mut self, name: &str, help: &str, metric: impl Metric) {
        // The encoder adds this.
        let suffix = match metric.metric_type() {
            MetricType::Counter => "_total",
            _ => "",
        };
        self.0.names.push(format!("{name}{suffix}"));
        self.0.registry.register(name, help, metric);
    }
}

impl std::fmt::Debug for Registrar<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registrar").finish_non_exhaustive()
    }
}

fn durations() -> Histogram {
    // 1 ms to 65 s
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Metrics {
    /// Metrics. What only this framework counts has names that start with `prefix` and an underscore.
    pub fn new(prefix: &str) -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registered {
                registry: Registry::default(),
                prefix: prefix.to_owned(),
                names: Vec::new(),
            })),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_duration: Family::new_with_constructor(durations),
            reconcile_panics: Family::default(),
            reconcile_active: Family::default(),
            max_concurrent: Family::default(),
            queue_depth: Family::default(),
            queue_adds: Family::default(),
            queue_retries: Family::default(),
            queue_wait: Family::new_with_constructor(durations),
            queue_work: Family::new_with_constructor(durations),
            requests: Family::default(),
            api_requests: Family::default(),
            status_rewrites: Family::default(),
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
        metrics.register(|r| metrics.register_known(r));
        metrics.register(|r| metrics.register_own(r));
        metrics
    }

    /// Names that users of controllers know.
    fn register_known(&self, r: &mut Registrar<'_>) {
        r.register_as(
            "controller_runtime_reconcile",
            "Finished reconciles",
            self.reconciles.clone(),
        );
        r.register_as(
            "controller_runtime_reconcile_errors",
            "Failed reconciles by error class",
            self.reconcile_errors.clone(),
        );
        r.register_as(
            "controller_runtime_reconcile_panics",
            "Reconciles that panicked",
            self.reconcile_panics.clone(),
        );
        r.register_as(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles",
            self.reconcile_duration.clone(),
        );
        r.register_as(
            "controller_runtime_active_workers",
            "Reconciles that run now",
            self.reconcile_active.clone(),
        );
        r.register_as(
            "controller_runtime_max_concurrent_reconciles",
            "Reconciles that may run at once",
            self.max_concurrent.clone(),
        );
        r.register_as(
            "workqueue_depth",
            "Objects that wait for a reconcile",
            self.queue_depth.clone(),
        );
        r.register_as(
            "workqueue_adds",
            "Objects that were put in the queue",
            self.queue_adds.clone(),
        );
        r.register_as(
            "workqueue_retries",
            "Reconciles that failed and are tried again",
            self.queue_retries.clone(),
        );
        r.register_as(
            "workqueue_queue_duration_seconds",
            "How long an object waited for its reconcile",
            self.queue_wait.clone(),
        );
        r.register_as(
            "workqueue_work_duration_seconds",
            "How long an object was worked at",
            self.queue_work.clone(),
        );
        r.register_as(
            "rest_client_requests",
            "Requests to the API server by status code and method",
            self.requests.clone(),
        );
    }

    /// Names of our own.
    fn register_own(&self, r: &mut Registrar<'_>) {
        r.register(
            "api_requests",
            "Requests to the API server by what they were for",
            self.api_requests.clone(),
        );
        r.register(
            "status_rewrites",
            "Statuses that were written again over what somebody else had written",
            self.status_rewrites.clone(),
        );
        r.register(
            "child_apply",
            "Owned children applied, by result",
            self.child_apply.clone(),
        );
        r.register("cache_objects", "Objects in a cache", self.cache_objects.clone());
        r.register(
            "cache_undecodable",
            "Objects that do not fit their type",
            self.cache_undecodable.clone(),
        );
        r.register("watch_errors", "Failures of a watch", self.watch_errors.clone());
        r.register(
            "watch_last_event_timestamp_seconds",
            "Time of the last event of a watch",
            self.watch_last_event.clone(),
        );
        r.register(
            "controller_state",
            "1 for the state that a controller is in",
            self.controller_state.clone(),
        );
        r.register(
            "controller_restarts",
            "Restarts of a controller that ended or panicked",
            self.controller_restarts.clone(),
        );
        r.register("api_served", "1 if a kind is served", self.api_served.clone());
        r.register("leader", "1 while this process leads", self.leader.clone());
    }

    /// Adds metrics of a product to the same registry.
    pub fn register(&self, add: impl FnOnce(&mut Registrar<'_>)) {
        add(&mut Registrar(&mut lock(&self.registry)));
    }

    /// The names of all metrics, also of those that have no series yet, as a scrape shows them (a histogram without its
    /// suffixes).
    pub fn names(&self) -> Vec<String> {
        lock(&self.registry).names.clone()
    }

    /// The text that a scrape gets (OpenMetrics).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &lock(&self.registry).registry);
        text
    }

    /// A layer for kube's client stack that counts requests.
    pub fn api_layer(&self) -> ApiMetricsLayer {
        ApiMetricsLayer {
            requests: self.api_requests.clone(),
            codes: self.requests.clone(),
        }
    }

    /// The counters of one controller's queue.
    pub fn queue(&self, controller: &str) -> Queue {
        let label = QueueLabel {
            name: controller.to_owned(),
            controller: controller.to_owned(),
        };
        let controller = ControllerLabel {
            controller: controller.to_owned(),
        };
        Queue {
            depth: self.queue_depth.get_or_create_owned(&label),
            adds: self.queue_adds.get_or_create_owned(&label),
            retries: self.queue_retries.get_or_create_owned(&label),
            wait: self.queue_wait.get_or_create_owned(&label),
            work: self.queue_work.get_or_create_owned(&label),
            max_concurrent: self.max_concurrent.get_or_create_owned(&controller),
        }
    }
}

/// See [`Metrics::queue`].
#[derive(Clone, Debug)]
pub struct Queue {
    /// Objects that wait.
    pub depth: Gauge,
    /// Objects that began to wait.
    pub adds: Counter,
    /// Reconciles that failed and are tried again.
    pub retries: Counter,
    /// How long objects waited.
    pub wait: Histogram,
    /// How long objects were worked at.
    pub work: Histogram,
    /// Reconciles at once.
    pub max_concurrent: Gauge,
}

impl Default for Queue {
    /// Counts for nobody.
    fn default() -> Self {
        Self {
            depth: Gauge::default(),
            adds: Counter::default(),
            retries: Counter::default(),
            wait: durations(),
            work: durations(),
            max_concurrent: Gauge::default(),
        }
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
pub struct ApiMetricsLayer {
    requests: Family<RequestLabel, Counter>,
    codes: Family<CodeLabel, Counter>,
}

impl<S> Layer<S> for ApiMetricsLayer {
    type Service = ApiMetricsService<S>;
    fn layer(&self, inner: S) -> Self::Service {
        ApiMetricsService {
            inner,
            counters: self.clone(),
        }
    }
}

/// See [`Metrics::api_layer`].
#[derive(Clone, Debug)]
pub struct ApiMetricsService<S> {
    inner: S,
    counters: ApiMetricsLayer,
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
            method: request.method().clone(),
            counters: self.counters.clone(),
            inner: self.inner.call(request),
        }
    }
}

pin_project! {
    /// See [`Metrics::api_layer`].
    pub struct ApiMetricsFuture<F> {
        verb: &'static str,
        kind: String,
        method: http::Method,
        counters: ApiMetricsLayer,
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
        let code = answer.as_ref().ok().map(|response| response.status());
        let code = code.as_ref().map(http::StatusCode::as_str);
        this.counters
            .codes
            .get_or_create(&CodeLabel {
                code: code.unwrap_or("<error>").to_owned(),
                method: this.method.as_str().to_owned(),
            })
            .inc();
        this.counters
            .requests
            .get_or_create(&RequestLabel {
                verb: this.verb,
                kind: std::mem::take(this.kind),
                code: code.unwrap_or("error").to_owned(),
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
        for line in [
            r#"rest_client_requests_total{code="404",method="GET"} 1"#,
            r#"rest_client_requests_total{code="<error>",method="GET"} 1"#,
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn names_are_known_before_there_is_a_series() {
        let metrics = Metrics::new("op");
        metrics.register(|r| r.register("things", "Things", Counter::<u64>::default()));
        let names = metrics.names();
        for name in [
            "controller_runtime_reconcile_total",
            "workqueue_depth",
            "op_leader",
            "op_things_total",
        ] {
            assert!(names.iter().any(|n| n == name), "{name} not in {names:?}");
        }
        assert!(metrics.encode().contains("op_things_total 0"));
    }
}
