//! Active reconciles, durations, outcomes, error classes, panics: counted under names that users of controllers know.
//! A reconcile that is dropped half-way leaves `active` too. No object names as labels.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::{
    ErrorClass, Outcome, ReconcileError, Request,
    runtime::{
        Metrics as Registry,
        metrics::{ClassLabel, ControllerLabel, ResultLabel},
    },
};

const ERROR: &str = "error";

/// Layer of [`Metrics`].
#[derive(Clone)]
pub struct MetricsLayer(Arc<Counters>);

/// The counters of one controller; those of every no-op are looked up once.
struct Counters {
    controller: &'static str,
    active: Gauge,
    duration: Histogram,
    done: Counter,
    /// Looked up so that it is there, and 0, before the first failure: an increase can be seen.
    failed: Counter,
    all: Registry,
}

impl MetricsLayer {
    /// Counts under the label `controller`.
    pub fn new(controller: &'static str, metrics: &Registry) -> Self {
        let label = ControllerLabel {
            controller: controller.to_owned(),
        };
        let result = |result| {
            metrics.reconciles.get_or_create_owned(&ResultLabel {
                controller: controller.to_owned(),
                result,
            })
        };
        // A counter that begins at 1 would hide its first panic from `increase()`.
        drop(metrics.reconcile_panics.get_or_create(&label));
        Self(Arc::new(Counters {
            controller,
            active: metrics.reconcile_active.get_or_create_owned(&label),
            duration: metrics.reconcile_duration.get_or_create_owned(&label),
            done: result(Outcome::Done.label()),
            failed: result(ERROR),
            all: metrics.clone(),
        }))
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = Metrics<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Metrics {
            inner,
            counters: Arc::clone(&self.0),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Metrics<S> {
    inner: S,
    counters: Arc<Counters>,
}

impl Counters {
    fn count(&self, result: &Result<Outcome, ReconcileError>) {
        let controller = || self.controller.to_owned();
        let class = match result {
            Ok(Outcome::Done) => {
                self.done.inc();
                return;
            }
            Ok(Outcome::Failed { class, .. }) => *class,
            Ok(outcome) => {
                let label = ResultLabel {
                    controller: controller(),
                    result: outcome.label(),
                };
                self.all.reconciles.get_or_create(&label).inc();
                return;
            }
            Err(error) => error.class,
        };
        self.failed.inc();
        let label = ClassLabel {
            controller: controller(),
            class: class.label(),
        };
        self.all.reconcile_errors.get_or_create(&label).inc();
        if class == ErrorClass::Panic {
            self.all
                .reconcile_panics
                .get_or_create(&ControllerLabel {
                    controller: controller(),
                })
                .inc();
        }
    }
}

/// In `active` for as long as it lives.
struct Active(Arc<Counters>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.dec();
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
        self.counters.active.inc();
        let active = Active(Arc::clone(&self.counters));
        MetricsFuture {
            inner: self.inner.call(request),
            active,
            started: Instant::now(),
        }
    }
}

pin_project! {
    /// Future of [`Metrics`].
    pub struct MetricsFuture<F> {
        #[pin]
        inner: F,
        active: Active,
        started: Instant,
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
        this.active
            .0
            .duration
            .observe(this.started.elapsed().as_secs_f64());
        this.active.0.count(&result);
        Poll::Ready(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    #[tokio::test]
    async fn results_classes_and_panics_are_counted() {
        let metrics = Registry::new("kit");
        let stack = ServiceBuilder::new()
            .layer(MetricsLayer::new("c", &metrics))
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
        let text = metrics.encode();
        for line in [
            r#"controller_runtime_reconcile_total{controller="c",result="success"} 1"#,
            r#"controller_runtime_reconcile_total{controller="c",result="skipped"} 1"#,
            r#"controller_runtime_reconcile_total{controller="c",result="error"} 2"#,
            r#"controller_runtime_reconcile_errors_total{controller="c",class="panic"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="c",class="conflict"} 1"#,
            r#"controller_runtime_reconcile_panics_total{controller="c"} 1"#,
            r#"controller_runtime_active_workers{controller="c"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="c"} 4"#,
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_dropped_reconcile_is_not_active_any_more() {
        let metrics = Registry::new("kit");
        let stack = ServiceBuilder::new()
            .layer(MetricsLayer::new("c", &metrics))
            .service(service_fn(|_: Request<()>| {
                std::future::pending::<Result<Outcome, ReconcileError>>()
            }));
        let run = tokio::spawn(stack.oneshot(Request::new(Arc::new(()))));
        while !metrics
            .encode()
            .contains(r#"controller_runtime_active_workers{controller="c"} 1"#)
        {
            tokio::task::yield_now().await;
        }
        run.abort();
        let _ = run.await;
        assert!(
            metrics
                .encode()
                .contains(r#"controller_runtime_active_workers{controller="c"} 0"#)
        );
    }
}
