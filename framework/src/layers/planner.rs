//! The innermost service: asks the planner. One box per call, for the planner's own future.

use std::{
    fmt,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower::Service;

use crate::{Plan, Planner, ReconcileError, Request};

/// A planner as a service from [`Request`] to [`Plan`].
pub struct PlannerService<P>(Arc<P>);

impl<P> PlannerService<P> {
    /// Of this planner.
    pub fn new(planner: Arc<P>) -> Self {
        Self(planner)
    }
}

impl<P> Clone for PlannerService<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> fmt::Debug for PlannerService<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlannerService")
    }
}

/// A boxed future that may move between threads.
pub type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, ReconcileError>> + Send>>;

/// A future that is ready.
pub type Now<T> = Ready<Result<T, ReconcileError>>;

/// Ready with success.
pub fn now<T>(value: T) -> Now<T> {
    ready(Ok(value))
}

impl<P: Planner> Service<Request<P::Object>> for PlannerService<P> {
    type Response = Plan<P::Verdict>;
    type Error = ReconcileError;
    type Future = Boxed<Plan<P::Verdict>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<P::Object>) -> Self::Future {
        let planner = Arc::clone(&self.0);
        Box::pin(async move { planner.plan(&request).await })
    }
}
