//! Puts a finalizer on the object before the first external effect, marks requests of deleted objects, and takes the
//! finalizer off once the effects report that nothing is left. Knows nothing of what the effects are.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use kube::Resource;
use serde::de::DeserializeOwned;
use tower::{Layer, Service};

use super::planner::Boxed;
use crate::{
    ErrorClass, HoldReason, ReconcileError, Request, Settled, Verdict,
    owner::{OwnerPatch, OwnerWrite, OwnerWriter},
    settled::Children,
};

/// Layer of [`Finalizer`].
pub struct FinalizerLayer<K> {
    name: Arc<str>,
    wanted: fn(&K) -> bool,
    writer: Arc<dyn OwnerWriter>,
    manager: Arc<str>,
}

impl<K> FinalizerLayer<K> {
    /// The finalizer `name` is added to objects for which `wanted` says so; removal does not ask.
    pub fn new(
        name: impl Into<Arc<str>>,
        wanted: fn(&K) -> bool,
        writer: Arc<dyn OwnerWriter>,
        manager: &str,
    ) -> Self {
        Self {
            name: name.into(),
            wanted,
            writer,
            manager: manager.into(),
        }
    }
}

impl<K, S> Layer<S> for FinalizerLayer<K> {
    type Service = Finalizer<K, S>;
    fn layer(&self, inner: S) -> Self::Service {
        Finalizer {
            inner,
            name: Arc::clone(&self.name),
            wanted: self.wanted,
            writer: Arc::clone(&self.writer),
            manager: Arc::clone(&self.manager),
        }
    }
}

/// See the module.
pub struct Finalizer<K, S> {
    inner: S,
    name: Arc<str>,
    wanted: fn(&K) -> bool,
    writer: Arc<dyn OwnerWriter>,
    manager: Arc<str>,
}

impl<K, S: Clone> Clone for Finalizer<K, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            name: Arc::clone(&self.name),
            wanted: self.wanted,
            writer: Arc::clone(&self.writer),
            manager: Arc::clone(&self.manager),
        }
    }
}

impl<S, K, V> Service<Request<K>> for Finalizer<K, S>
where
    S: Service<Request<K>, Response = Settled<V>, Error = ReconcileError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    V: Send + 'static,
{
    type Response = Settled<V>;
    type Error = ReconcileError;
    type Future = Boxed<Settled<V>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<K>) -> Self::Future {
        let meta = request.object.meta();
        let list = meta.finalizers.clone().unwrap_or_default();
        let has = list.iter().any(|f| **f == *self.name);
        let deleting = meta.deletion_timestamp.is_some();
        if deleting && !has {
            // Nothing of ours hangs on it; whoever holds it back is not our business.
            let settled = Settled {
                verdict: Verdict::Hold(HoldReason::Terminating),
                children: Children::default(),
                requeue: None,
                released: true,
            };
            return Box::pin(std::future::ready(Ok(settled)));
        }
        let add = !deleting && !has && (self.wanted)(&request.object);
        request.deleting = deleting;
        // The clone takes part in the await below; the ready one is the one that is called.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let owner = OwnerPatch::new(&request, Arc::clone(&self.manager), Arc::clone(&self.writer));
        let name = Arc::clone(&self.name);
        Box::pin(async move {
            if add {
                let finalizers = list.iter().cloned().chain([name.to_string()]).collect();
                let patched = owner.write(&OwnerWrite::Finalizers(finalizers)).await?;
                let object = serde_json::from_value(patched).map_err(|error| {
                    ReconcileError::new(
                        ErrorClass::Invalid,
                        format!("the object cannot be decoded: {error}"),
                    )
                })?;
                request.object = Arc::new(object);
            }
            let mut settled = inner.call(request.clone()).await?;
            if deleting && settled.released {
                let finalizers = list.into_iter().filter(|f| **f != *name).collect();
                match owner.write(&OwnerWrite::Finalizers(finalizers)).await {
                    // Gone already: somebody else took the last finalizer and ours off.
                    Err(error) if error.class == ErrorClass::NotFound => {}
                    other => drop(other?),
                }
            } else {
                settled.released = false;
            }
            Ok(settled)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tests::{OwnerLog, object};
    use kube::core::ObjectMeta;
    use serde_json::json;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    async fn run(edit: impl FnOnce(&mut ObjectMeta), released: bool) -> (Vec<OwnerWrite>, Vec<bool>) {
        let log = OwnerLog::default();
        let seen = Arc::new(std::sync::Mutex::new(vec![]));
        let saw = Arc::clone(&seen);
        let inner = service_fn(move |r: Request<_>| {
            saw.lock().unwrap().push(r.deleting);
            std::future::ready(Ok(Settled {
                verdict: Verdict::Report(1_u32),
                children: Children::default(),
                requeue: None,
                released,
            }))
        });
        let mut request = object("n");
        edit(&mut Arc::get_mut(&mut request.object).unwrap().metadata);
        let layer = FinalizerLayer::new("kit/f", |_| true, Arc::new(log.clone()), "kit");
        ServiceBuilder::new()
            .layer(layer)
            .service(inner)
            .oneshot(request)
            .await
            .unwrap();
        let seen = seen.lock().unwrap().clone();
        (log.writes(), seen)
    }
    fn deleted(meta: &mut ObjectMeta, finalizers: &[&str]) {
        meta.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        meta.finalizers = Some(finalizers.iter().map(|f| (*f).to_owned()).collect());
    }

    #[tokio::test]
    async fn added_before_the_first_effect_and_only_once() {
        let (writes, seen) = run(|m| m.finalizers = Some(vec!["other".into()]), false).await;
        assert_eq!(
            writes,
            [OwnerWrite::Finalizers(vec!["other".into(), "kit/f".into()])]
        );
        assert_eq!(seen, [false]);
        let (writes, _) = run(|m| m.finalizers = Some(vec!["kit/f".into()]), false).await;
        assert_eq!(writes, []);
    }

    #[tokio::test]
    async fn removed_only_when_the_effects_are_gone_and_others_stay() {
        let (writes, seen) = run(|m| deleted(m, &["kit/f", "other"]), true).await;
        assert_eq!(writes, [OwnerWrite::Finalizers(vec!["other".into()])]);
        assert_eq!(seen, [true]);
        let (writes, seen) = run(|m| deleted(m, &["kit/f"]), false).await;
        assert_eq!((writes.len(), seen), (0, vec![true]));
    }

    #[tokio::test]
    async fn a_failure_after_the_finalizer_was_added_knows_the_new_version() {
        let inner = service_fn(|_: Request<_>| async {
            Err::<Settled<u32>, _>(ReconcileError::new(ErrorClass::Transient, "no"))
        });
        let layer = FinalizerLayer::new("kit/f", |_| true, Arc::new(OwnerLog::default()), "kit");
        let stack = ServiceBuilder::new().layer(layer).service(inner);
        let request = object("n");
        let patches = request.patches.clone();
        stack.oneshot(request).await.unwrap_err();
        assert_eq!(patches.latest().unwrap().version, "6");
    }

    #[tokio::test]
    async fn a_deleted_object_without_our_finalizer_is_left_alone() {
        let (writes, seen) = run(|m| deleted(m, &["other"]), true).await;
        assert_eq!((writes.len(), seen.len()), (0, 0));
    }
}
