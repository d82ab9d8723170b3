//! A controller's own external systems: called after the children are settled, with a narrow patch of the owner.
//! What the system is and how it is talked to is the controller's; errors come back with a class like any other.

use std::{
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use tower::{Layer, Service};

use super::planner::Boxed;
use crate::{
    Planner, ReconcileError, Request, Settled,
    owner::{OwnerPatch, OwnerWriter},
};

/// Makes an external system agree with a plan.
pub trait Effects<P: Planner>: Send + Sync + 'static {
    /// Performs what the verdict wants (or, with `request.deleting`, undoes it and sets `released` when it is gone).
    /// May change the verdict to say what came of it. Must be safe to drop at any await and to run again.
    fn perform(
        &self,
        request: &Request<P::Object>,
        settled: Settled<P::Verdict>,
        owner: &OwnerPatch,
    ) -> impl Future<Output = Result<Settled<P::Verdict>, ReconcileError>> + Send;
}

/// Layer of [`EffectsService`].
pub struct EffectsLayer<P, E> {
    planner: PhantomData<fn() -> P>,
    effects: Arc<E>,
    writer: Arc<dyn OwnerWriter>,
    manager: Arc<str>,
}

impl<P, E> EffectsLayer<P, E> {
    /// Owner patches are written as `manager`.
    pub fn new(effects: Arc<E>, writer: Arc<dyn OwnerWriter>, manager: &str) -> Self {
        Self {
            planner: PhantomData,
            effects,
            writer,
            manager: manager.into(),
        }
    }
}

impl<P, E, S> Layer<S> for EffectsLayer<P, E> {
    type Service = EffectsService<P, E, S>;
    fn layer(&self, inner: S) -> Self::Service {
        EffectsService {
            planner: PhantomData,
            inner,
            effects: Arc::clone(&self.effects),
            writer: Arc::clone(&self.writer),
            manager: Arc::clone(&self.manager),
        }
    }
}

/// See the module.
pub struct EffectsService<P, E, S> {
    planner: PhantomData<fn() -> P>,
    inner: S,
    effects: Arc<E>,
    writer: Arc<dyn OwnerWriter>,
    manager: Arc<str>,
}

impl<P, E, S: Clone> Clone for EffectsService<P, E, S> {
    fn clone(&self) -> Self {
        Self {
            planner: PhantomData,
            inner: self.inner.clone(),
            effects: Arc::clone(&self.effects),
            writer: Arc::clone(&self.writer),
            manager: Arc::clone(&self.manager),
        }
    }
}

impl<P, E, S> Service<Request<P::Object>> for EffectsService<P, E, S>
where
    P: Planner,
    E: Effects<P>,
    S: Service<Request<P::Object>, Response = Settled<P::Verdict>, Error = ReconcileError>,
    S::Future: Send + 'static,
{
    type Response = Settled<P::Verdict>;
    type Error = ReconcileError;
    type Future = Boxed<Settled<P::Verdict>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<P::Object>) -> Self::Future {
        let inner = self.inner.call(request.clone());
        let effects = Arc::clone(&self.effects);
        let owner = OwnerPatch::new(&request, Arc::clone(&self.manager), Arc::clone(&self.writer));
        Box::pin(async move { effects.perform(&request, inner.await?, &owner).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ErrorClass, Verdict,
        layers::tests::{OwnerLog, Toy, object},
        owner::{OwnerWrite, Patched},
        settled::Children,
    };
    use k8s_openapi::api::core::v1::ConfigMap;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    /// Notes its doing on the owner and doubles the verdict, or fails after the note.
    struct Doubling(bool);
    impl Effects<Toy> for Doubling {
        async fn perform(
            &self,
            request: &Request<ConfigMap>,
            mut settled: Settled<u32>,
            owner: &OwnerPatch,
        ) -> Result<Settled<u32>, ReconcileError> {
            owner.annotate("kit/doing", Some("it")).await?;
            if self.0 {
                return Err(ReconcileError::new(ErrorClass::Transient, "no"));
            }
            if let Verdict::Report(n) = &mut settled.verdict {
                *n *= 2;
            }
            settled.released = request.deleting;
            Ok(settled)
        }
    }

    async fn run(fails: bool, log: &OwnerLog) -> (Result<Settled<u32>, ReconcileError>, Option<Patched>) {
        let inner = service_fn(|_| async {
            Ok(Settled {
                verdict: Verdict::Report(21),
                children: Children::default(),
                requeue: None,
                released: false,
            })
        });
        let layer = EffectsLayer::<Toy, _>::new(Arc::new(Doubling(fails)), Arc::new(log.clone()), "kit");
        let request = object("n");
        let patches = request.patches.clone();
        let stack = ServiceBuilder::new().layer(layer).service(inner);
        (stack.oneshot(request).await, patches.latest())
    }

    fn at(version: &str) -> Option<Patched> {
        Some(Patched {
            version: version.into(),
            ..Patched::default()
        })
    }

    #[tokio::test]
    async fn effects_run_after_the_children_and_their_patch_moves_the_owner_on() {
        let log = OwnerLog::default();
        let (settled, patched) = run(false, &log).await;
        assert_eq!(settled.unwrap().verdict, Verdict::Report(42));
        assert_eq!(patched, at("6"));
        let value = Some("it".to_owned());
        assert_eq!(
            log.writes(),
            [OwnerWrite::Annotation {
                key: "kit/doing".into(),
                value
            }]
        );
    }

    #[tokio::test]
    async fn a_failure_after_a_patch_knows_the_version_that_the_patch_led_to() {
        let (settled, patched) = run(true, &OwnerLog::default()).await;
        assert_eq!(
            (settled.unwrap_err().class, patched),
            (ErrorClass::Transient, at("6"))
        );
    }
}
