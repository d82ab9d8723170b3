//! Refuses to *start* a write after the deadline of the lease. For kube's client stack as a layer, for other clients as a
//! check before each write. Reads pass, and so does the lease itself: it has a client of its own.

use std::task::{Context, Poll};

use futures::{
    TryFutureExt,
    future::{Either, MapErr, Ready, ready},
};
use http::{Method, Request};
use tower::{BoxError, Layer, Service};

use super::leadership::Leadership;
use crate::{ErrorClass, ReconcileError};

/// Asks whether a write may start. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WriteGuard(Leadership);

impl WriteGuard {
    /// Writes may start while `leadership` lasts.
    pub fn new(leadership: Leadership) -> Self {
        Self(leadership)
    }

    /// An error of class `Shutdown` if no write may start now.
    pub fn check(&self) -> Result<(), ReconcileError> {
        if self.0.may_act() {
            return Ok(());
        }
        Err(ReconcileError::new(
            ErrorClass::Shutdown,
            "this process does not hold the lease any more; nothing is written",
        ))
    }

    /// For kube's client stack (`ClientBuilder::with_layer`).
    pub fn layer(&self) -> WriteGuardLayer {
        WriteGuardLayer(self.clone())
    }
}

/// See [`WriteGuard::layer`].
#[derive(Clone, Debug)]
pub struct WriteGuardLayer(WriteGuard);

impl<S> Layer<S> for WriteGuardLayer {
    type Service = Guarded<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Guarded {
            inner,
            guard: self.0.clone(),
        }
    }
}

/// See [`WriteGuard::layer`].
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    guard: WriteGuard,
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<Ready<Result<S::Response, BoxError>>, MapErr<S::Future, fn(S::Error) -> BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let allowed = if reads { Ok(()) } else { self.guard.check() };
        match allowed {
            Err(refused) => Either::Left(ready(Err(refused.into()))),
            Ok(()) => Either::Right(
                self.inner
                    .call(request)
                    .map_err(S::Error::into as fn(S::Error) -> BoxError),
            ),
        }
    }
}
