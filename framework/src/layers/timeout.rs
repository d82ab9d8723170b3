//! What runs below ends after a fixed time with an error of class Timeout. Dropping it there must be safe: restartable.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{ErrorClass, ReconcileError};

/// Layer of [`Timeout`].
#[derive(Clone, Copy, Debug)]
pub struct TimeoutLayer(pub Duration);

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Timeout { inner, limit: self.0 }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

impl<S, R> Service<R> for Timeout<S>
where
    S: Service<R, Error = ReconcileError>,
{
    type Response = S::Response;
    type Error = ReconcileError;
    type Future = TimeoutFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        TimeoutFuture {
            inner: tokio::time::timeout(self.limit, self.inner.call(request)),
            limit: self.limit,
        }
    }
}

pin_project! {
    /// Future of [`Timeout`].
    pub struct TimeoutFuture<F> {
        #[pin]
        inner: tokio::time::Timeout<F>,
        limit: Duration,
    }
}

impl<F, T> Future for TimeoutFuture<F>
where
    F: Future<Output = Result<T, ReconcileError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(ready!(this.inner.poll(cx)).unwrap_or_else(|_| {
            Err(ReconcileError::new(
                ErrorClass::Timeout,
                format!("the reconcile did not end within {} s", this.limit.as_secs()),
            ))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    async fn run(takes: u64) -> Result<u8, ReconcileError> {
        let inner = service_fn(move |n: u8| async move {
            tokio::time::sleep(Duration::from_secs(takes)).await;
            Ok(n)
        });
        ServiceBuilder::new()
            .layer(TimeoutLayer(Duration::from_secs(60)))
            .service(inner)
            .oneshot(7)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn too_slow_is_an_error_of_class_timeout_and_in_time_passes() {
        assert_eq!(run(59).await, Ok(7));
        let error = run(61).await.unwrap_err();
        assert_eq!(
            (error.class, error.message.contains("60 s")),
            (ErrorClass::Timeout, true)
        );
    }
}
