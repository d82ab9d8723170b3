//! Merges labels and annotations on every wanted child: the operator's keys win over those that the plan brings.
//! Foreign keys on the live object are nobody's business here; server-side apply leaves them alone.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{ChildPlan, Plan, ReconcileError, Request};

/// What every child of one controller carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorMetadata {
    /// Labels that win over the plan's.
    pub labels: BTreeMap<String, String>,
    /// Annotations that win over the plan's.
    pub annotations: BTreeMap<String, String>,
}

impl OperatorMetadata {
    /// The three recommended labels by which children are selected: who manages, which installation, which controller.
    pub fn standard(managed_by: &str, instance: &str, component: &str) -> Self {
        let labels = [
            ("app.kubernetes.io/managed-by", managed_by),
            ("app.kubernetes.io/instance", instance),
            ("app.kubernetes.io/component", component),
        ];
        Self {
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            annotations: BTreeMap::new(),
        }
    }
}

/// A plan whose children carry the operator's labels. Only such a plan is applied: a child without them would be
/// created, never seen by the label-selected cache, and created again.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled<V>(pub Plan<V>);

/// Layer of [`Metadata`].
#[derive(Clone, Debug)]
pub struct MetadataLayer(pub Arc<OperatorMetadata>);

impl<S> Layer<S> for MetadataLayer {
    type Service = Metadata<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Metadata {
            inner,
            operator: Arc::clone(&self.0),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Metadata<S> {
    inner: S,
    operator: Arc<OperatorMetadata>,
}

impl<S, K, V> Service<Request<K>> for Metadata<S>
where
    S: Service<Request<K>, Response = Plan<V>, Error = ReconcileError>,
{
    type Response = Labelled<V>;
    type Error = ReconcileError;
    type Future = MetadataFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<K>) -> Self::Future {
        MetadataFuture {
            inner: self.inner.call(request),
            operator: Arc::clone(&self.operator),
        }
    }
}

pin_project! {
    /// Future of [`Metadata`].
    pub struct MetadataFuture<F> {
        #[pin]
        inner: F,
        operator: Arc<OperatorMetadata>,
    }
}

impl<F, V> Future for MetadataFuture<F>
where
    F: Future<Output = Result<Plan<V>, ReconcileError>>,
{
    type Output = Result<Labelled<V>, ReconcileError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut plan = ready!(this.inner.poll(cx))?;
        for child in &mut plan.children {
            if let ChildPlan::Want(desired) = child {
                overlay(&mut desired.labels, &this.operator.labels);
                overlay(&mut desired.annotations, &this.operator.annotations);
            }
        }
        Poll::Ready(Ok(Labelled(plan)))
    }
}

fn overlay(base: &mut BTreeMap<String, String>, top: &BTreeMap<String, String>) {
    base.extend(top.iter().map(|(key, value)| (key.clone(), value.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tests::{desired, object};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    #[tokio::test]
    async fn the_operators_keys_win_and_the_others_stay() {
        let operator = OperatorMetadata::standard("kit", "one", "c");
        let inner = service_fn(|_| async {
            let mut child = desired("n");
            child
                .labels
                .insert("app.kubernetes.io/managed-by".into(), "somebody".into());
            child.labels.insert("team".into(), "web".into());
            Ok(Plan {
                children: vec![ChildPlan::Want(Box::new(child))],
                ..Plan::report(0_u32)
            })
        });
        let Labelled(plan) = ServiceBuilder::new()
            .layer(MetadataLayer(Arc::new(operator)))
            .service(inner)
            .oneshot(object("n"))
            .await
            .unwrap();
        let ChildPlan::Want(child) = &plan.children[0] else {
            panic!()
        };
        let labels: Vec<_> = child.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            labels,
            [
                "app.kubernetes.io/component=c",
                "app.kubernetes.io/instance=one",
                "app.kubernetes.io/managed-by=kit",
                "team=web"
            ]
        );
        assert!(child.annotations.is_empty());
    }
}
