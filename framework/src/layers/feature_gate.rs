//! Asks `needs`; holds the plan when a feature that the object wants is off. No API call, no planner call.

use std::{
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::Either;
use tower::{Layer, Service};

use super::planner::{Now, now};
use crate::{HoldReason, Plan, Planner, ReconcileError, Request};

/// Names of the features that are on.
pub type Features = Arc<[&'static str]>;

/// Layer of [`FeatureGate`].
pub struct FeatureGateLayer<P>(Features, PhantomData<fn() -> P>);

impl<P> FeatureGateLayer<P> {
    /// Lets through what needs these features only.
    pub fn new(on: Features) -> Self {
        Self(on, PhantomData)
    }
}

impl<P, S> Layer<S> for FeatureGateLayer<P> {
    type Service = FeatureGate<P, S>;
    fn layer(&self, inner: S) -> Self::Service {
        FeatureGate {
            inner,
            on: Arc::clone(&self.0),
            planner: PhantomData,
        }
    }
}

/// See the module.
pub struct FeatureGate<P, S> {
    inner: S,
    on: Features,
    planner: PhantomData<fn() -> P>,
}

impl<P, S: Clone> Clone for FeatureGate<P, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            on: Arc::clone(&self.on),
            planner: PhantomData,
        }
    }
}

impl<P, S> Service<Request<P::Object>> for FeatureGate<P, S>
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
        match P::needs(&request.object)
            .features
            .iter()
            .find(|feature| !self.on.contains(feature))
        {
            Some(off) => Either::Left(now(Plan::hold(HoldReason::FeatureOff(off)))),
            None => Either::Right(self.inner.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tests::{Toy, object};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    async fn run(on: &[&'static str]) -> Plan<u32> {
        let inner = service_fn(|_| async { Ok(Plan::report(7)) });
        ServiceBuilder::new()
            .layer(FeatureGateLayer::<Toy>::new(on.into()))
            .service(inner)
            .oneshot(object("n"))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_feature_that_is_off_holds() {
        assert_eq!(run(&[]).await, Plan::hold(HoldReason::FeatureOff("toys")));
        assert_eq!(run(&["toys"]).await, Plan::report(7));
    }
}
