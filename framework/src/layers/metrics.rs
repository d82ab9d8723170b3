//! Active reconciles, durations, outcomes, error classes, panics: counted under names that users of controllers know.
//! A reconcile that is dropped half-way leaves `active` too. No object names as labels.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::{ErrorClass, Outcome, ReconcileError, Request};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result_ {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    controller: &'static str,
    class: &'static str,
}

/// Counters of all controllers.
#[derive(Clone, Debug)]
pub struct ReconcileMetrics {
    active: Family<Controller, Gauge>,
    duration: Family<Controller, Histogram, fn() -> Histogram>,
    total: Family<Result_, Counter>,
    errors: Family<Class, Counter>,
    panics: Family<Controller, Counter>,
}

fn buckets() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

impl Default for ReconcileMetrics {
    fn default() -> Self {
        Self {
            active: Family::default(),
            duration: Family::new_with_constructor(buckets as fn() -> Histogram),
            total: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
        }
    }
}

impl ReconcileMetrics {
    /// Registers the families; their names start with the registry's prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("reconcile_active", "Reconciles that run now", self.active.clone());
        registry.register(
            "reconcile_duration_seconds",
            "Time that a reconcile took",
            self.duration.clone(),
        );
        registry.register("reconcile", "Reconciles by result", self.total.clone());
        registry.register(
            "reconcile_errors",
            "Failed reconciles by class",
            self.errors.clone(),
        );
        registry.register(
            "reconcile_panics",
            "Reconciles that panicked",
            self.panics.clone(),
        );
    }
}

/// Layer of [`Metrics`].
#[derive(Clone, Debug)]
pub struct MetricsLayer {
    controller: &'static str,
    metrics: ReconcileMetrics,
}

impl MetricsLayer {
    /// Counts under the label `controller`.
    pub fn new(controller: &'static str, metrics: ReconcileMetrics) -> Self {
        Self { controller, metrics }
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = Metrics<S>;
    fn layer(&self, inner: S) -> Self::Service {
        let label = Controller {
            controller: self.controller,
        };
        Metrics {
            inner,
            controller: self.controller,
            active: self.metrics.active.get_or_create_owned(&label),
            duration: self.metrics.duration.get_or_create_owned(&label),
            done: self.metrics.total.get_or_create_owned(&Result_ {
                controller: self.controller,
                result: Outcome::Done.label(),
            }),
            metrics: self.metrics.clone(),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Metrics<S> {
    inner: S,
    controller: &'static str,
    active: Gauge,
    duration: Histogram,
    // The common result, looked up once.
    done: Counter,
    metrics: ReconcileMetrics,
}

/// In `active` for as long as it lives.
struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<S, K> Service<Request<K>> for Metrics<S>
where
    S: Service<Request<K>, Response = Outcome, Error = ReconcileError>,
{
    type Response = Outcome;
    type Error = ReconcileError;
    type Future = MetricsFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<K>) -> Self::Future {
        self.active.inc();
        let active = Active(self.active.clone());
        MetricsFuture {
            inner: self.inner.call(request),
            _active: active,
            started: Instant::now(),
            controller: self.controller,
            duration: self.duration.clone(),
            done: self.done.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

pin_project! {
    /// Future of [`Metrics`].
    pub struct MetricsFuture<F> {
        #[pin]
        inner: F,
        _active: Active,
        started: Instant,
        controller: &'static str,
        duration: Histogram,
        done: Counter,
        metrics: ReconcileMetrics,
    }
}

impl<F> Future for MetricsFuture<F>
where
    F: Future<Output = Result<Outcome, ReconcileError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        this.duration.observe(this.started.elapsed().as_secs_f64());
        let controller = *this.controller;
        let class = match &result {
            Ok(Outcome::Failed { class, .. }) => Some(*class),
            Ok(_) => None,
            Err(error) => Some(error.class),
        };
        match (&result, class) {
            (Ok(Outcome::Done), _) => {
                this.done.inc();
            }
            (Ok(outcome), None) => {
                this.metrics
                    .total
                    .get_or_create(&Result_ {
                        controller,
                        result: outcome.label(),
                    })
                    .inc();
            }
            (_, class) => {
                let class = class.unwrap_or(ErrorClass::Transient);
                this.metrics
                    .total
                    .get_or_create(&Result_ {
                        controller,
                        result: "error",
                    })
                    .inc();
                this.metrics
                    .errors
                    .get_or_create(&Class {
                        controller,
                        class: class.label(),
                    })
                    .inc();
                if class == ErrorClass::Panic {
                    this.metrics
                        .panics
                        .get_or_create(&Controller { controller })
                        .inc();
                }
            }
        }
        Poll::Ready(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    fn text(metrics: &ReconcileMetrics) -> String {
        let mut registry = Registry::with_prefix("kit");
        metrics.register(&mut registry);
        let mut out = String::new();
        prometheus_client::encoding::text::encode(&mut out, &registry).unwrap();
        out
    }

    #[tokio::test]
    async fn results_classes_and_panics_are_counted() {
        let metrics = ReconcileMetrics::default();
        let stack = ServiceBuilder::new()
            .layer(MetricsLayer::new("c", metrics.clone()))
            .service(service_fn(|r: Request<Result<Outcome, ErrorClass>>| async move {
                r.object
                    .as_ref()
                    .clone()
                    .map_err(|class| ReconcileError::new(class, ""))
            }));
        for answer in [
            Ok(Outcome::Done),
            Ok(Outcome::Skipped("x")),
            Ok(Outcome::Failed {
                class: ErrorClass::Panic,
                retry: None,
            }),
            Err(ErrorClass::Conflict),
        ] {
            let _ = stack.clone().oneshot(Request::new(Arc::new(answer))).await;
        }
        let text = text(&metrics);
        for line in [
            r#"kit_reconcile_total{controller="c",result="done"} 1"#,
            r#"kit_reconcile_total{controller="c",result="skipped"} 1"#,
            r#"kit_reconcile_total{controller="c",result="error"} 2"#,
            r#"kit_reconcile_errors_total{controller="c",class="panic"} 1"#,
            r#"kit_reconcile_errors_total{controller="c",class="conflict"} 1"#,
            r#"kit_reconcile_panics_total{controller="c"} 1"#,
            r#"kit_reconcile_active{controller="c"} 0"#,
            r#"kit_reconcile_duration_seconds_count{controller="c"} 4"#,
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_dropped_reconcile_is_not_active_any_more() {
        let metrics = ReconcileMetrics::default();
        let stack = ServiceBuilder::new()
            .layer(MetricsLayer::new("c", metrics.clone()))
            .service(service_fn(|_: Request<()>| {
                std::future::pending::<Result<Outcome, ReconcileError>>()
            }));
        let run = tokio::spawn(stack.oneshot(Request::new(Arc::new(()))));
        while !text(&metrics).contains(r#"kit_reconcile_active{controller="c"} 1"#) {
            tokio::task::yield_now().await;
        }
        run.abort();
        let _ = run.await;
        assert!(text(&metrics).contains(r#"kit_reconcile_active{controller="c"} 0"#));
    }
}
