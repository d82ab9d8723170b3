//! Asks `needs`; holds the plan when an API that the object wants is not served. Reads a snapshot: no API call.

use std::{
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::Either;
use tower::{Layer, Service};

use super::planner::{Now, now};
use crate::{ApiKind, HoldReason, Plan, Planner, ReconcileError, Request};

/// Whether the API server serves a kind, as far as is known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// Not determined yet.
    Unknown,
    /// Served in the version asked for.
    Served,
    /// Not served.
    Absent,
}

/// A snapshot of what is served. Cheap: asked before every plan.
pub trait PresenceSnapshot: Send + Sync + 'static {
    /// Whether this kind is served in this version.
    fn presence(&self, kind: &ApiKind) -> Presence;
}

impl<F: Fn(&ApiKind) -> Presence + Send + Sync + 'static> PresenceSnapshot for F {
    fn presence(&self, kind: &ApiKind) -> Presence {
        self(kind)
    }
}

/// Layer of [`ApiPresence`].
pub struct ApiPresenceLayer<P>(Arc<dyn PresenceSnapshot>, PhantomData<fn() -> P>);

impl<P> ApiPresenceLayer<P> {
    /// Asks this snapshot.
    pub fn new(snapshot: Arc<dyn PresenceSnapshot>) -> Self {
        Self(snapshot, PhantomData)
    }
}

impl<P, S> Layer<S> for ApiPresenceLayer<P> {
    type Service = ApiPresence<P, S>;
    fn layer(&self, inner: S) -> Self::Service {
        ApiPresence {
            inner,
            snapshot: Arc::clone(&self.0),
            planner: PhantomData,
        }
    }
}

/// See the module.
pub struct ApiPresence<P, S> {
    inner: S,
    snapshot: Arc<dyn PresenceSnapshot>,
    planner: PhantomData<fn() -> P>,
}

impl<P, S: Clone> Clone for ApiPresence<P, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            snapshot: Arc::clone(&self.snapshot),
            planner: PhantomData,
        }
    }
}

impl<P, S> Service<Request<P::Object>> for ApiPresence<P, S>
where
    P: Planner,
    S: Service<Request<P::Object>, Response = Plan<P::Verdict>, Error = ReconcileError>,
{
    type Response = Plan<P::Verdict>;
    type Error = ReconcileError;
    type Future = Either<Now<Plan<P::Verdict>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<P::Object>) -> Self::Future {
        for kind in P::needs(&request.object).apis {
            let reason = match self.snapshot.presence(kind) {
                Presence::Served => continue,
                Presence::Absent => HoldReason::ApiAbsent(*kind),
                Presence::Unknown => HoldReason::ApiUnknown(*kind),
            };
            return Either::Left(now(Plan::hold(reason)));
        }
        Either::Right(self.inner.call(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tests::{TOY_API, Toy, object};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    async fn run(presence: Presence) -> Plan<u32> {
        ServiceBuilder::new()
            .layer(ApiPresenceLayer::<Toy>::new(Arc::new(move |_: &ApiKind| {
                presence
            })))
            .service(service_fn(|_| async { Ok(Plan::report(7)) }))
            .oneshot(object("n"))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn an_api_that_is_not_served_or_not_known_yet_holds() {
        assert_eq!(
            run(Presence::Absent).await,
            Plan::hold(HoldReason::ApiAbsent(TOY_API))
        );
        assert_eq!(
            run(Presence::Unknown).await,
            Plan::hold(HoldReason::ApiUnknown(TOY_API))
        );
        assert_eq!(run(Presence::Served).await, Plan::report(7));
    }
}
