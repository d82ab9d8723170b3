//! Plan → Settled: applies what is wanted, removes what is not, refuses what is foreign. The decisions are pure
//! (`owned::decide`), the calls sit behind `ChildWriter`; here they meet. A held plan touches nothing.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use tower::{Layer, Service};

use super::planner::Boxed;
use crate::{
    Child, ChildPlan, ChildState, Children, Desired, ErrorClass, Plan, ReconcileError, Request, Settled,
    api::Target,
    owned::{
        ChildCache, ChildWriter, Decision, Lookup, Stamp, WriteMemory,
        decide::{Intent, Ownership, ownership, want},
        memory::ChildKey,
        squatter::Squatters,
        writer::WriteError,
    },
    settled::SettledChild,
};

/// Everything that applying children needs besides the plan.
#[derive(Clone)]
pub struct Owned {
    /// Field manager; constant for ever.
    pub manager: Arc<str>,
    /// Prefix of our annotations on children, e.g. `example.org` for `example.org/applied-hash`.
    pub prefix: Arc<str>,
    /// Caches of children.
    pub cache: Arc<dyn ChildCache>,
    /// The calls.
    pub writer: Arc<dyn ChildWriter>,
    /// What was written and not seen back.
    pub memory: WriteMemory,
    /// Watches on foreign objects; without them only the slow retry notices that one went.
    pub squatters: Option<Squatters>,
}

/// Layer of [`OwnedChildren`].
#[derive(Clone)]
pub struct OwnedChildrenLayer(pub Arc<Owned>);

impl<S> Layer<S> for OwnedChildrenLayer {
    type Service = OwnedChildren<S>;
    fn layer(&self, inner: S) -> Self::Service {
        OwnedChildren {
            inner,
            owned: Arc::clone(&self.0),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct OwnedChildren<S> {
    inner: S,
    owned: Arc<Owned>,
}

impl<S, K, V> Service<Request<K>> for OwnedChildren<S>
where
    S: Service<Request<K>, Response = Plan<V>, Error = ReconcileError>,
    S::Future: Send + 'static,
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    V: Send + 'static,
{
    type Response = Settled<V>;
    type Error = ReconcileError;
    type Future = Boxed<Settled<V>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<K>) -> Self::Future {
        let object = Arc::clone(&request.object);
        let plan = self.inner.call(request);
        let owned = Arc::clone(&self.owned);
        Box::pin(async move {
            let plan = plan.await?;
            let mut children = Vec::with_capacity(plan.children.len());
            if !plan.children.is_empty() {
                let stamp = owned.stamp(object.as_ref())?;
                for child in plan.children {
                    children.push(match child {
                        ChildPlan::Want(desired) => owned.want(&stamp, &desired).await,
                        ChildPlan::Gone {
                            kind,
                            namespace,
                            name,
                            verify,
                        } => {
                            owned
                                .gone(
                                    &stamp,
                                    ChildKey {
                                        kind,
                                        namespace,
                                        name,
                                    },
                                    verify,
                                )
                                .await
                        }
                    });
                }
            }
            Ok(Settled {
                verdict: plan.verdict,
                children: Children(children),
                requeue: plan.requeue,
                released: false,
                owner_version: None,
            })
        })
    }
}

impl Owned {
    fn stamp<K: Resource<DynamicType = ()>>(&self, owner: &K) -> Result<Stamp, ReconcileError> {
        let meta = owner.meta();
        let (Some(name), Some(uid)) = (&meta.name, &meta.uid) else {
            return Err(ReconcileError::new(
                ErrorClass::Invalid,
                "the owner has no name or no uid",
            ));
        };
        Ok(Stamp {
            owner: OwnerReference {
                api_version: K::api_version(&()).into_owned(),
                kind: K::kind(&()).into_owned(),
                name: name.clone(),
                uid: uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            },
            hash_annotation: format!("{}/applied-hash", self.prefix),
            adopt_annotation: format!("{}/adopt", self.prefix),
            manager: self.manager.to_string(),
        })
    }

    async fn want(&self, stamp: &Stamp, desired: &Desired) -> SettledChild {
        let key = ChildKey {
            kind: desired.kind,
            namespace: desired.namespace.clone(),
            name: desired.name.clone(),
        };
        let target = target(&key);
        let cached = match self.cache.child(&key.kind, &key.namespace, &key.name) {
            Lookup::Present(child) => Some(child),
            Lookup::Absent => None,
            Lookup::NotReady => {
                let text = format!("the cache of {} is not complete yet", key.kind);
                return settled(key, ChildState::Failed(ErrorClass::NotReady, text), None);
            }
        };
        let known = self.memory.recall(&key, cached.as_deref());
        let intent = Intent::new(desired, stamp);
        let (state, live) = match want(desired, &intent, stamp, cached.as_ref(), &known) {
            Decision::Unchanged { live, compared } => {
                if compared {
                    self.memory.equal(&key, &live, &intent.hash);
                }
                (ChildState::Unchanged, Some(live))
            }
            Decision::Terminating { live } => (ChildState::Waiting, Some(live)),
            Decision::Foreign { live, owner } => (ChildState::Foreign { owner }, Some(live)),
            Decision::Create => self.create(&key, stamp, &intent).await,
            Decision::TakeOver { live } => self.take_over(&key, &intent, live).await,
            Decision::Update { live, outside_edit } => {
                match outside_edit.then(|| self.memory.revert(&key)).flatten() {
                    Some(retry) => {
                        let manager = self.opponent(&key).await;
                        (ChildState::Contested { manager, retry }, Some(live))
                    }
                    None => {
                        let uid = live.uid().to_owned();
                        self.finish(
                            &key,
                            &intent,
                            self.writer.update(target, &intent, &uid).await,
                            ChildState::Updated,
                        )
                    }
                }
            }
        };
        if let Some(squatters) = &self.squatters {
            if matches!(state, ChildState::Foreign { .. }) {
                squatters.watch(&key, &stamp.owner.name);
            } else {
                squatters.release(&key);
            }
        }
        settled(key, state, live)
    }

    async fn create(
        &self,
        key: &ChildKey,
        stamp: &Stamp,
        intent: &Intent,
    ) -> (ChildState, Option<Arc<Child>>) {
        let target = target(key);
        match self.writer.create(target, intent).await {
            Err(WriteError::Stale) => {}
            other => return self.finish(key, intent, other, ChildState::Created),
        }
        // The name is taken, and the cache does not show by whom: it lacks our labels.
        let meta = match self.writer.metadata(target).await {
            Ok(Some(meta)) => meta,
            Ok(None) => return stale(target),
            Err(error) => return self.finish(key, intent, Err(error), ChildState::Created),
        };
        let live = Child::of_metadata(meta);
        match ownership(&live, stamp) {
            Ownership::Foreign(owner) => (ChildState::Foreign { owner }, Some(Arc::new(live))),
            _ if live.terminating() => (ChildState::Waiting, Some(Arc::new(live))),
            _ => {
                let uid = live.uid().to_owned();
                self.finish(
                    key,
                    intent,
                    self.writer.update(target, intent, &uid).await,
                    ChildState::Updated,
                )
            }
        }
    }

    async fn take_over(
        &self,
        key: &ChildKey,
        intent: &Intent,
        live: Arc<Child>,
    ) -> (ChildState, Option<Arc<Child>>) {
        let target = target(key);
        let taken = match self.writer.metadata(target).await {
            // managedFields are not cached; what they say must be of the object that was decided about.
            Ok(Some(meta)) if meta.uid == live.metadata.uid => self.writer.take_over(target, &meta).await,
            Ok(_) => Err(WriteError::Stale),
            Err(error) => Err(error),
        };
        let answer = match taken {
            Ok(()) => self.writer.update(target, intent, live.uid()).await,
            Err(error) => Err(error),
        };
        self.finish(key, intent, answer, ChildState::Updated)
    }

    fn finish(
        &self,
        key: &ChildKey,
        intent: &Intent,
        answer: Result<Child, WriteError>,
        state: ChildState,
    ) -> (ChildState, Option<Arc<Child>>) {
        match answer {
            Ok(live) => {
                let live = Arc::new(live);
                self.memory.wrote(key, Arc::clone(&live), intent.hash.clone());
                let action = if state == ChildState::Created {
                    "created"
                } else {
                    "updated"
                };
                tracing::info!(
                    kind = key.kind.kind,
                    namespace = key.namespace,
                    name = key.name,
                    "child {action}"
                );
                (state, Some(live))
            }
            Err(WriteError::Stale) => stale(target(key)),
            Err(WriteError::Failed(error)) => (ChildState::Failed(error.class, error.message), None),
        }
    }

    async fn gone(&self, stamp: &Stamp, key: ChildKey, verify: bool) -> SettledChild {
        if let Some(squatters) = &self.squatters {
            squatters.release(&key);
        }
        let live = match self.cache.child(&key.kind, &key.namespace, &key.name) {
            Lookup::Present(child) => Some(child),
            Lookup::Absent => self.memory.recall(&key, None).written.map(|w| w.live),
            // Nobody may look at this kind: nothing is removed blindly.
            Lookup::NotReady => {
                let text = format!("the cache of {} is not complete yet", key.kind);
                return settled(key, ChildState::Failed(ErrorClass::NotReady, text), None);
            }
        };
        let live = match live {
            None if verify => match self.writer.metadata(target(&key)).await {
                Ok(found) => found.map(|metadata| Arc::new(Child::of_metadata(metadata))),
                Err(error) => {
                    let (class, text) = error_of(error, target(&key));
                    return settled(key, ChildState::Failed(class, text), None);
                }
            },
            live => live,
        };
        let Some(live) = live else {
            self.memory.forget(&key);
            return settled(key, ChildState::Absent, None);
        };
        if ownership(&live, stamp) != Ownership::Ours {
            // Somebody else's object of this name is none of ours to remove.
            return settled(key, ChildState::Absent, None);
        }
        if live.terminating() {
            return settled(key, ChildState::Removed, Some(live));
        }
        match self.writer.delete(target(&key), live.uid()).await {
            Ok(()) => {
                self.memory.forget(&key);
                tracing::info!(
                    kind = key.kind.kind,
                    namespace = key.namespace,
                    name = key.name,
                    "child removed"
                );
                settled(key, ChildState::Removed, None)
            }
            // Replaced meanwhile: what stands there now is looked at when the cache shows it.
            Err(error) => {
                let (class, text) = error_of(error, target(&key));
                settled(key, ChildState::Failed(class, text), Some(live))
            }
        }
    }

    /// Who undoes our changes: asked once per contest.
    async fn opponent(&self, key: &ChildKey) -> String {
        if let Some(known) = self.memory.recall(key, None).opponent {
            return known;
        }
        let meta = self.writer.metadata(target(key)).await.ok().flatten();
        let latest = meta
            .and_then(|m| m.managed_fields)
            .unwrap_or_default()
            .into_iter()
            .filter(|e| {
                e.manager.as_deref() != Some(&*self.manager)
                    && e.subresource.as_deref().is_none_or(str::is_empty)
            })
            .max_by_key(|e| e.time.clone());
        let name = latest
            .and_then(|e| e.manager)
            .unwrap_or_else(|| "another field manager".to_owned());
        self.memory.set_opponent(key, &name);
        name
    }
}

fn target(key: &ChildKey) -> Target<'_> {
    Target {
        kind: &key.kind,
        namespace: &key.namespace,
        name: &key.name,
    }
}

fn settled(key: ChildKey, state: ChildState, live: Option<Arc<Child>>) -> SettledChild {
    SettledChild {
        kind: key.kind,
        namespace: key.namespace,
        name: key.name,
        state,
        live,
    }
}

fn error_of(error: WriteError, target: Target<'_>) -> (ErrorClass, String) {
    match error {
        WriteError::Stale => (
            ErrorClass::Conflict,
            format!("{target} was changed or replaced meanwhile"),
        ),
        WriteError::Failed(error) => (error.class, error.message),
    }
}

fn stale(target: Target<'_>) -> (ChildState, Option<Arc<Child>>) {
    let (class, text) = error_of(WriteError::Stale, target);
    (ChildState::Failed(class, text), None)
}
