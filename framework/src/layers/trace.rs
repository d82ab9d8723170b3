//! One root span per reconcile, with the attributes that traces of controllers share. Costs next to nothing when off.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use kube::Resource;
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use tracing::{Span, field::Empty, info_span};

use crate::{Outcome, ReconcileError, Request};

/// Layer of [`Trace`]; the name of the controller.
#[derive(Clone, Copy, Debug)]
pub struct TraceLayer(pub &'static str);

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Trace {
            inner,
            controller: self.0,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    inner: S,
    controller: &'static str,
}

impl<S, K> Service<Request<K>> for Trace<S>
where
    S: Service<Request<K>, Response = Outcome, Error = ReconcileError>,
    K: Resource<DynamicType = ()>,
{
    type Response = Outcome;
    type Error = ReconcileError;
    type Future = TraceFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<K>) -> Self::Future {
        let meta = request.object.meta();
        // A root of its own: the runner's span lives as long as the controller.
        let span = info_span!(
            parent: None, "reconcile",
            controller = self.controller,
            "k8s.namespace.name" = meta.namespace.as_deref().unwrap_or_default(),
            "object.kind" = &*K::kind(&()),
            "object.name" = meta.name.as_deref().unwrap_or_default(),
            "object.uid" = meta.uid.as_deref().unwrap_or_default(),
            generation = meta.generation.unwrap_or_default(),
            attempt = Empty, outcome = Empty, "error.class" = Empty, "otel.status_code" = Empty,
        );
        let inner = span.in_scope(|| self.inner.call(request));
        TraceFuture { inner, span }
    }
}

pin_project! {
    /// Future of [`Trace`].
    pub struct TraceFuture<F> {
        #[pin]
        inner: F,
        span: Span,
    }
}

impl<F> Future for TraceFuture<F>
where
    F: Future<Output = Result<Outcome, ReconcileError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = {
            let _entered = this.span.enter();
            ready!(this.inner.poll(cx))
        };
        let (outcome, class) = match &result {
            Ok(Outcome::Failed { class, .. }) => ("error", Some(*class)),
            Ok(outcome) => (outcome.label(), None),
            Err(error) => ("error", Some(error.class)),
        };
        this.span.record("outcome", outcome);
        if let Some(class) = class {
            this.span.record("error.class", class.label());
            this.span.record("otel.status_code", "ERROR");
        }
        Poll::Ready(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorClass;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::{
        fmt::Debug,
        sync::{Arc, Mutex},
    };
    use tower::{ServiceBuilder, ServiceExt, service_fn};
    use tracing::{
        Event, Id, Metadata, Subscriber,
        field::{Field, Visit},
        span::{Attributes, Record},
    };

    /// Keeps what spans say. Written here because the crate has no subscriber among its dependencies.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);
    struct Into_<'a>(&'a Kept);
    impl Visit for Into_<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0
                .0
                .lock()
                .unwrap()
                .push(format!("{}={value:?}", field.name()));
        }
    }
    impl Subscriber for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            self.0
                .lock()
                .unwrap()
                .push(format!("span {} root={}", span.metadata().name(), span.is_root()));
            span.record(&mut Into_(self));
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, values: &Record<'_>) {
            values.record(&mut Into_(self));
        }
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_reconcile_is_one_root_span_that_ends_with_its_outcome() {
        let kept = Kept::default();
        let stack =
            ServiceBuilder::new()
                .layer(TraceLayer("c"))
                .service(service_fn(|_: Request<ConfigMap>| async {
                    Ok(Outcome::Failed {
                        class: ErrorClass::Conflict,
                        retry: None,
                    })
                }));
        let mut object = ConfigMap::default();
        object.metadata.name = Some("n".into());
        tracing::subscriber::with_default(kept.clone(), || {
            futures::executor::block_on(stack.oneshot(Request::new(Arc::new(object)))).unwrap()
        });
        let kept = kept.0.lock().unwrap();
        for want in [
            "span reconcile root=true",
            "controller=\"c\"",
            "object.kind=\"ConfigMap\"",
            "object.name=\"n\"",
            "outcome=\"error\"",
            "error.class=\"conflict\"",
        ] {
            assert!(kept.iter().any(|line| line == want), "{want} not in {kept:?}");
        }
    }
}
