//! A fence: nothing below runs without a lease that was renewed recently. Knows no lease protocol; it asks.

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::Either;
use tower::{Layer, Service};

use crate::{Outcome, ReconcileError, Request};

/// Whether this process may act now. Cheap: asked before every reconcile.
pub trait Lease: Send + Sync + 'static {
    /// The lease is ours and was renewed recently.
    fn held(&self) -> bool;
}

/// For tests and tools. In an operator give the `Leadership` itself: it counts what was refused, so that the supervisor looks at
/// it again.
impl<F: Fn() -> bool + Send + Sync + 'static> Lease for F {
    fn held(&self) -> bool {
        self()
    }
}

/// Layer of [`LeaderGate`].
#[derive(Clone)]
pub struct LeaderGateLayer(pub Arc<dyn Lease>);

impl<S> Layer<S> for LeaderGateLayer {
    type Service = LeaderGate<S>;
    fn layer(&self, inner: S) -> Self::Service {
        LeaderGate {
            inner,
            lease: Arc::clone(&self.0),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct LeaderGate<S> {
    inner: S,
    lease: Arc<dyn Lease>,
}

impl<S, K> Service<Request<K>> for LeaderGate<S>
where
    S: Service<Request<K>, Response = Outcome, Error = ReconcileError>,
{
    type Response = Outcome;
    type Error = ReconcileError;
    type Future = Either<Ready<Result<Outcome, ReconcileError>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<K>) -> Self::Future {
        if self.lease.held() {
            Either::Right(self.inner.call(request))
        } else {
            Either::Left(ready(Ok(Outcome::Skipped("not the leader"))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    #[tokio::test]
    async fn without_the_lease_nothing_runs() {
        let held = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&held);
        let stack = ServiceBuilder::new()
            .layer(LeaderGateLayer(Arc::new(move || asked.load(Ordering::SeqCst))))
            .service(service_fn(|_: Request<()>| async { Ok(Outcome::Done) }));
        let run = || stack.clone().oneshot(Request::new(Arc::new(())));
        assert_eq!(run().await, Ok(Outcome::Skipped("not the leader")));
        held.store(true, Ordering::SeqCst);
        assert_eq!(run().await, Ok(Outcome::Done));
    }
}
