//! A panic below becomes an error of class Panic. Catches building the future and polling it; decides nothing else.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::CatchUnwind};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{ErrorClass, ReconcileError};

/// Layer of [`CatchPanic`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanicLayer;

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;
    fn layer(&self, inner: S) -> Self::Service {
        CatchPanic(inner)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct CatchPanic<S>(S);

impl<S, R> Service<R> for CatchPanic<S>
where
    S: Service<R, Error = ReconcileError>,
{
    type Response = S::Response;
    type Error = ReconcileError;
    type Future = CatchPanicFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match catch_unwind(AssertUnwindSafe(|| self.0.call(request))) {
            Ok(inner) => CatchPanicFuture::Running {
                inner: AssertUnwindSafe(inner).catch_unwind(),
            },
            Err(_) => CatchPanicFuture::Panicked,
        }
    }
}

pin_project! {
    /// Future of [`CatchPanic`].
    #[project = Projected]
    #[allow(missing_docs)] // the macro takes no docs on fields of variants
    pub enum CatchPanicFuture<F> {
        /// The inner future.
        Running {
            #[pin]
            inner: CatchUnwind<AssertUnwindSafe<F>>,
        },
        /// The call itself panicked.
        Panicked,
    }
}

impl<F, T> Future for CatchPanicFuture<F>
where
    F: Future<Output = Result<T, ReconcileError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            Projected::Running { inner } => ready!(inner.poll(cx)).unwrap_or_else(|_| Err(panicked())),
            Projected::Panicked => Err(panicked()),
        })
    }
}

/// The payload stays in the log (the panic hook prints it): it may hold what does not belong on a condition.
fn panicked() -> ReconcileError {
    ReconcileError::new(
        ErrorClass::Panic,
        "internal error: the reconcile panicked; the operator's log has the details",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    async fn run(f: fn(u8) -> Result<u8, ReconcileError>, lazily: bool) -> Result<u8, ReconcileError> {
        let inner = service_fn(move |n: u8| {
            let now = (!lazily).then(|| f(n));
            async move { now.unwrap_or_else(|| f(n)) }
        });
        ServiceBuilder::new()
            .layer(CatchPanicLayer)
            .service(inner)
            .oneshot(1)
            .await
    }

    #[tokio::test]
    async fn a_panic_while_calling_or_polling_is_an_error_of_class_panic() {
        for lazily in [false, true] {
            let error = run(|_| panic!("secret"), lazily).await.unwrap_err();
            assert_eq!(error.class, ErrorClass::Panic);
            assert!(!error.message.contains("secret"));
        }
    }

    #[tokio::test]
    async fn what_does_not_panic_passes_through() {
        assert_eq!(run(|n| Ok(n + 1), true).await, Ok(2));
        let error = ReconcileError::new(ErrorClass::Invalid, "no");
        assert_eq!(
            run(|_| Err(ReconcileError::new(ErrorClass::Invalid, "no")), true).await,
            Err(error)
        );
    }
}
