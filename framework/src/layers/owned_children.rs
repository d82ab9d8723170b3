//! Plan → Settled: applies what is wanted, removes what is not, refuses what is foreign. The decisions are pure
//! (`owned::decide`), the calls sit behind `ChildWriter`; here they meet. A held plan touches nothing.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Client, Resource, core::ObjectMeta};
use tower::{Layer, Service};

use super::{metadata::Labelled, planner::Boxed};
use crate::{
    ApiKind, Child, ChildPlan, ChildState, Children, Desired, ErrorClass, HoldReason, ReconcileError,
    Request, Settled, Verdict,
    api::Target,
    owned::{
        ChildCache, ChildWriter, Decision, KubeChildWriter, Lookup, Stamp, WriteMemory,
        decide::{Intent, Ownership, ownership, rendering, trimming, want},
        memory::{ChildKey, Remembered},
        squatter::Squatters,
        writer::WriteError,
    },
    runtime::{Metrics, metrics::ApplyLabel},
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
    /// Counters.
    pub metrics: Metrics,
    /// Watches on foreign objects; without them only the slow retry notices that one went.
    pub squatters: Option<Squatters>,
}

/// No name is known where a child is deleted, or made to leave the cache, over and over.
const DELETER: &str = "another client that deletes it or changes its labels";

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
    S: Service<Request<K>, Response = Labelled<V>, Error = ReconcileError>,
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
            let Labelled(plan) = plan.await?;
            let mut children = Vec::with_capacity(plan.children.len());
            if !plan.children.is_empty() {
                let stamp = owned.stamp(object.as_ref())?;
                for child in plan.children {
                    let child = owned
                        .settle(&stamp, object.meta().namespace.as_deref(), child)
                        .await;
                    owned.count(&child);
                    children.push(child);
                }
            }
            owned.keep_planned(object.meta(), &plan.verdict, &children);
            Ok(Settled {
                verdict: plan.verdict,
                children: Children(children),
                requeue: plan.requeue,
                released: false,
            })
        })
    }
}

impl Owned {
    /// Through this client as field manager `manager`, with nothing remembered and no watch on foreign objects.
    pub fn new(
        client: Client,
        manager: &str,
        prefix: &str,
        cache: Arc<dyn ChildCache>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            manager: manager.into(),
            prefix: prefix.into(),
            cache,
            writer: Arc::new(KubeChildWriter::new(client, manager)),
            memory: WriteMemory::default(),
            metrics: metrics.clone(),
            squatters: None,
        }
    }

    /// The owner is gone: forget its children.
    pub fn forget(&self, namespace: &str, owner: &str) {
        self.memory.forget_owner(namespace, owner);
        if let Some(squatters) = &self.squatters {
            squatters.forget_owner(namespace, owner);
        }
    }

    /// Drops what is remembered and watched about children that the plan no longer names. A held plan says nothing about
    /// names; it wants none of them now.
    fn keep_planned<V>(&self, owner: &ObjectMeta, verdict: &Verdict<V>, children: &[SettledChild]) {
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let name = owner.name.as_deref().unwrap_or_default();
        let is_planned = |key: &ChildKey| {
            children
                .iter()
                .any(|child| child.kind == key.kind && child.name == key.name)
        };
        if !matches!(verdict, Verdict::Hold(_)) {
            self.memory
                .keep_planned(namespace, name, children.len(), is_planned);
        }
        if let Some(squatters) = &self.squatters {
            squatters.keep_wanted(namespace, name, is_planned);
        }
    }

    /// Applies or removes one child of a plan. `namespace` is the owner's: its children live there, or the garbage collector
    /// would take them.
    async fn settle(&self, stamp: &Stamp, namespace: Option<&str>, child: ChildPlan) -> SettledChild {
        let (kind, of, name) = match &child {
            ChildPlan::Want(desired) => (desired.kind, &desired.namespace, &desired.name),
            ChildPlan::Gone {
                kind,
                namespace,
                name,
                ..
            } => (*kind, namespace, name),
        };
        let key = ChildKey {
            kind,
            namespace: of.clone(),
            name: name.clone(),
            owner: stamp.owner.name.clone(),
        };
        let is_own = namespace.is_some_and(|own| !own.is_empty() && own == of);
        if !is_own {
            let text = format!(
                "{} is no possible child of {} {}: owners and children are namespaced and of one namespace",
                target(&key),
                stamp.owner.kind,
                stamp.owner.name
            );
            return settled(key, ChildState::Failed(ErrorClass::Invalid, text), None);
        }
        match child {
            ChildPlan::Want(desired) => self.want(stamp, key, &desired).await,
            ChildPlan::Gone { verify, .. } => self.gone(stamp, key, verify).await,
        }
    }

    fn count(&self, child: &SettledChild) {
        let label = ApplyLabel {
            kind: child.kind.to_string(),
            result: child.state.label(),
        };
        self.metrics.child_apply.get_or_create(&label).inc();
    }

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
            generation: meta.generation,
            terminating: meta.deletion_timestamp.is_some(),
            prefix: Arc::clone(&self.prefix),
            manager: Arc::clone(&self.manager),
        })
    }

    /// Class and message for a child that no cache shows.
    fn unseen(&self, lookup: &Lookup, kind: &ApiKind) -> (ErrorClass, String) {
        match lookup {
            Lookup::Unwatched => (
                ErrorClass::Invalid,
                format!(
                    "the operator has no watch of {kind}, so it can own none: register one with the caches of the controller"
                ),
            ),
            _ => {
                let text = match self.cache.problem(kind) {
                    Some(problem) => format!("the cache of {kind} is not complete yet: {problem}"),
                    None => format!("the cache of {kind} is not complete yet"),
                };
                (ErrorClass::NotReady, text)
            }
        }
    }

    async fn want(&self, stamp: &Stamp, key: ChildKey, desired: &Desired) -> SettledChild {
        let cached = match self.cache.child(&key.kind, &key.namespace, &key.name) {
            Lookup::Present(child) => Some(child),
            Lookup::Absent => None,
            unseen => {
                let (class, text) = self.unseen(&unseen, &key.kind);
                return settled(key, ChildState::Failed(class, text), None);
            }
        };
        let known = self.memory.recall(&key, cached.as_deref());
        let run = Run {
            owned: self,
            key: &key,
            stamp,
            desired,
            intent: &Intent::new(desired, stamp),
            known: &known,
        };
        let (state, live) = run.settle(cached.as_ref()).await;
        if let Some(squatters) = &self.squatters {
            match (&state, &live) {
                (ChildState::Foreign { .. }, Some(live)) => drop(squatters.watch(&key, live)),
                // The watch of children does not show it, so that it does not show its end either.
                (ChildState::Waiting, Some(live)) if cached.is_none() => drop(squatters.watch(&key, live)),
                _ => squatters.release(&key),
            }
        }
        settled(key, state, live)
    }

    async fn gone(&self, stamp: &Stamp, key: ChildKey, verify: bool) -> SettledChild {
        if let Some(squatters) = &self.squatters {
            squatters.release(&key);
        }
        let live = match self.cache.child(&key.kind, &key.namespace, &key.name) {
            Lookup::Present(child) => {
                let known = self.memory.recall(&key, Some(&child));
                if known.removed.is_some() {
                    return settled(key, ChildState::Removed, Some(child));
                }
                // A write of ours that the cache has not shown yet is newer than the cache.
                Some(known.written.map_or(child, |w| w.live))
            }
            Lookup::Absent => {
                let known = self.memory.recall(&key, None);
                if known.removed.is_some() {
                    return settled(key, ChildState::Absent, None);
                }
                known.written.map(|w| w.live)
            }
            // Nobody may look at this kind: nothing is removed blindly.
            unseen => {
                let (class, text) = self.unseen(&unseen, &key.kind);
                return settled(key, ChildState::Failed(class, text), None);
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
        if stamp.is_behind(&live) {
            let text = behind(target(&key));
            return settled(key, ChildState::Failed(ErrorClass::NotReady, text), Some(live));
        }
        match self.writer.delete(target(&key), live.uid(), live.version()).await {
            Ok(()) => {
                self.memory.removed(&key, live.uid());
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

/// One wanted child in one reconcile.
struct Run<'a> {
    owned: &'a Owned,
    key: &'a ChildKey,
    stamp: &'a Stamp,
    desired: &'a Desired,
    intent: &'a Intent,
    known: &'a Remembered,
}

/// What became of a wanted child.
type Ended = (ChildState, Option<Arc<Child>>);

impl Run<'_> {
    async fn settle(&self, cached: Option<&Arc<Child>>) -> Ended {
        match want(self.desired, self.intent, self.stamp, cached, self.known) {
            Decision::Unchanged { live, compared } => {
                if compared {
                    self.owned.memory.equal(self.key, &live, &self.intent.hash);
                }
                (ChildState::Unchanged, Some(live))
            }
            Decision::Terminating { live } => (ChildState::Waiting, Some(live)),
            Decision::Foreign { live, owner } => (ChildState::Foreign { owner }, Some(live)),
            Decision::Held { live } => (ChildState::Held(HoldReason::Terminating), live),
            Decision::Behind { live } => self.behind(live),
            Decision::Create => match self.squatter() {
                Some(taken) => taken,
                None => self.create_again().await,
            },
            Decision::TakeOver { live } => match self.contested(&live, false).await {
                Some(contested) => contested,
                // The rewrite of who owns what is a version of its own, so nothing can be kept here.
                None => self.take_over(live).await,
            },
            Decision::Trim { live, .. } => match self.contested(&live, true).await {
                Some(contested) => contested,
                None => {
                    self.finish(Ok(Arc::clone(&live)), ChildState::Updated, Some(&live))
                        .await
                }
            },
            Decision::Update { live, outside_edit } => match self.contested(&live, outside_edit).await {
                Some(contested) => contested,
                None => {
                    let intent = self.intent.clone().keeping(self.desired, &live);
                    let answer = self
                        .owned
                        .writer
                        .update(target(self.key), &intent, live.uid())
                        .await;
                    let reverts = outside_edit || self.has_applied(&live);
                    let before = reverts.then_some(&live);
                    self.finish(answer.map(Arc::new), ChildState::Updated, before)
                        .await
                }
            },
        }
    }

    /// Whether this very object was made to say this very intent before: a write now undoes what another client did,
    /// whichever field of it that was.
    fn has_applied(&self, live: &Child) -> bool {
        self.known.has_applied(live.uid(), &self.intent.hash)
    }

    /// The child is left alone for a while if another client undoes each of our writes.
    async fn contested(&self, live: &Arc<Child>, outside_edit: bool) -> Option<Ended> {
        if !outside_edit && !self.has_applied(live) {
            return None;
        }
        let retry = self.owned.memory.contest(self.key)?;
        let manager = self.owned.opponent(self.key).await;
        Some((ChildState::Contested { manager, retry }, Some(Arc::clone(live))))
    }

    fn behind(&self, live: Arc<Child>) -> Ended {
        let text = behind(target(self.key));
        (ChildState::Failed(ErrorClass::NotReady, text), Some(live))
    }

    /// What is known to have the name and not to be ours to change.
    fn squatter(&self) -> Option<Ended> {
        let live = self.owned.squatters.as_ref()?.seen(self.key)?;
        match ownership(&live, self.stamp) {
            Ownership::Foreign(owner) => Some((ChildState::Foreign { owner }, Some(live))),
            _ if live.terminating() => Some((ChildState::Waiting, Some(live))),
            _ => None,
        }
    }

    /// Creates it, unless another client deletes it as fast as we create it: another operator, or the garbage collector
    /// because the end of the owner has not been heard of yet. An installation with other labels takes it out of our cache
    /// in the same way.
    async fn create_again(&self) -> Ended {
        let vanished = self.known.vanished.as_ref() == Some(&self.stamp.owner.uid);
        if let Some(retry) = vanished.then(|| self.owned.memory.contest(self.key)).flatten() {
            let manager = DELETER.to_owned();
            return (ChildState::Contested { manager, retry }, None);
        }
        let made = self.create().await;
        if vanished && matches!(made.0, ChildState::Created | ChildState::Updated) {
            self.owned.memory.reverted(self.key);
        }
        made
    }

    async fn create(&self) -> Ended {
        let (target, writer) = (target(self.key), &self.owned.writer);
        match writer.create(target, self.intent).await {
            Err(WriteError::Stale) => {}
            other => return self.finish(other.map(Arc::new), ChildState::Created, None).await,
        }
        // The name is taken, and the cache does not show by whom: it lacks our labels.
        let meta = match writer.metadata(target).await {
            Ok(Some(meta)) => meta,
            Ok(None) => return stale(target),
            Err(error) => return self.finish(Err(error), ChildState::Created, None).await,
        };
        let live = Child::of_metadata(meta);
        match ownership(&live, self.stamp) {
            Ownership::Foreign(owner) => (ChildState::Foreign { owner }, Some(Arc::new(live))),
            _ if live.terminating() => (ChildState::Waiting, Some(Arc::new(live))),
            _ if self.stamp.is_behind(&live) => self.behind(Arc::new(live)),
            _ => {
                // After our apply, no field tells that another manager wrote it for our owner.
                let taken = if applied_by(&live.metadata, &self.owned.manager) {
                    Ok(())
                } else {
                    writer.take_over(target, &live.metadata).await
                };
                let answer = match taken {
                    Ok(()) => writer.update(target, self.intent, live.uid()).await,
                    Err(error) => Err(error),
                };
                self.finish(answer.map(Arc::new), ChildState::Updated, None).await
            }
        }
    }

    async fn take_over(&self, live: Arc<Child>) -> Ended {
        let (target, writer) = (target(self.key), &self.owned.writer);
        let known = match live.with_managed_fields() {
            Some(meta) => Ok(Some(meta)),
            None => writer.metadata(target).await,
        };
        let taken = match known {
            // What they say must be of the object that was decided about.
            Ok(Some(meta)) if meta.uid == live.metadata.uid => writer.take_over(target, &meta).await,
            Ok(_) => Err(WriteError::Stale),
            Err(error) => Err(error),
        };
        let answer = match taken {
            Ok(()) => writer.update(target, self.intent, live.uid()).await,
            Err(error) => Err(error),
        };
        let before = self.has_applied(&live).then_some(&live);
        self.finish(answer.map(Arc::new), ChildState::Updated, before)
            .await
    }

    /// Takes away what the apply could not, because another manager owns it, and remembers how it stands then. `before`:
    /// the write undoes what another client did to this version.
    async fn finish(
        &self,
        answer: Result<Arc<Child>, WriteError>,
        state: ChildState,
        before: Option<&Arc<Child>>,
    ) -> Ended {
        let (key, memory) = (self.key, &self.owned.memory);
        let answer = match answer {
            Ok(live) => match trimming(self.desired, &live) {
                Some(operations) => {
                    let patched = self
                        .owned
                        .writer
                        .patch(target(key), live.version(), operations)
                        .await;
                    patched.map(Arc::new)
                }
                None => Ok(live),
            },
            Err(error) => Err(error),
        };
        match answer {
            Ok(live) => {
                let rendering = rendering(self.desired, &live);
                memory.wrote(key, Arc::clone(&live), self.intent.hash.clone(), Some(rendering));
                // An apply that changes nothing undoes nothing: the API server has a spelling of its own.
                if before.is_some_and(|before| before.version() != live.version()) {
                    memory.reverted(key);
                }
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
            Err(WriteError::Failed(error)) => {
                log_detail(target(key), &error);
                (ChildState::Failed(error.class, error.message), None)
            }
        }
    }
}

/// What of an answer changes from try to try is in the log alone.
fn log_detail(target: Target<'_>, error: &ReconcileError) {
    if let Some(detail) = &error.detail {
        tracing::info!(
            kind = target.kind.kind,
            namespace = target.namespace,
            name = target.name,
            "the API server said: {detail}"
        );
    }
}

fn behind(target: Target<'_>) -> String {
    format!("{target} was written for a later generation of its owner than the one that the cache shows")
}

/// Whether the main resource has an `Apply` entry of this manager.
fn applied_by(meta: &ObjectMeta, manager: &str) -> bool {
    meta.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().is_none_or(str::is_empty)
    })
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
        WriteError::Failed(error) => {
            log_detail(target, &error);
            (error.class, error.message)
        }
    }
}

fn stale(target: Target<'_>) -> (ChildState, Option<Arc<Child>>) {
    let (class, text) = error_of(WriteError::Stale, target);
    (ChildState::Failed(class, text), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        HoldReason, Plan,
        layers::tests::{TOY_API, desired, object},
    };
    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use serde_json::{Value, json};
    use std::sync::Mutex;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    /// A cache that shows `cached`, a server that holds `stands`, and a log of the calls.
    #[derive(Clone, Default)]
    struct World {
        cached: Arc<Mutex<Option<Value>>>,
        stands: Arc<Mutex<Option<Value>>>,
        calls: Arc<Mutex<Vec<String>>>,
        broken: Arc<std::sync::atomic::AtomicBool>,
    }
    impl World {
        fn breaks(&self, broken: bool) {
            self.broken.store(broken, std::sync::atomic::Ordering::SeqCst);
        }
        fn log(&self, call: impl Into<String>) {
            self.calls.lock().unwrap().push(call.into());
        }
        fn store(&self, intent: &Intent) -> Child {
            let mut object = intent.body.clone();
            let before = self.stands.lock().unwrap().clone().unwrap_or_default();
            let version = before["metadata"]["resourceVersion"]
                .as_str()
                .map_or(1, |v| v.parse::<u64>().unwrap());
            object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            object["metadata"]["uid"] = json!("child-uid");
            object["metadata"]["managedFields"] = json!([{"manager": "kit-toy", "operation": "Apply"}]);
            *self.stands.lock().unwrap() = Some(object.clone());
            Child::from_value(object).unwrap()
        }
        fn sync(&self) {
            *self.cached.lock().unwrap() = self.stands.lock().unwrap().clone();
        }
        fn edit(&self, edit: impl FnOnce(&mut Value)) {
            let mut object = self.stands.lock().unwrap();
            let object = object.as_mut().unwrap();
            let version = object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap();
            object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            edit(object);
        }
        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut self.calls.lock().unwrap())
        }
    }
    impl ChildCache for World {
        fn child(&self, _: &crate::ApiKind, _: &str, _: &str) -> Lookup {
            match &*self.cached.lock().unwrap() {
                Some(object) => Lookup::Present(Arc::new(Child::from_value(object.clone()).unwrap())),
                None => Lookup::Absent,
            }
        }
    }
    #[async_trait]
    impl ChildWriter for World {
        async fn create(&self, target: Target<'_>, intent: &Intent) -> Result<Child, WriteError> {
            self.log(format!("create {target}"));
            if self.stands.lock().unwrap().is_some() {
                Err(WriteError::Stale)
            } else {
                Ok(self.store(intent))
            }
        }
        async fn update(&self, _: Target<'_>, intent: &Intent, uid: &str) -> Result<Child, WriteError> {
            self.log(format!("update {uid}"));
            if self.broken.load(std::sync::atomic::Ordering::SeqCst) {
                return Err(WriteError::Failed(ReconcileError::new(
                    ErrorClass::Transient,
                    "down",
                )));
            }
            Ok(self.store(intent))
        }
        async fn take_over(&self, _: Target<'_>, _: &ObjectMeta) -> Result<(), WriteError> {
            self.log("take over");
            Ok(())
        }
        async fn patch(
            &self,
            _: Target<'_>,
            version: &str,
            operations: Vec<Value>,
        ) -> Result<Child, WriteError> {
            self.log(format!("patch {version} {}", Value::from(operations)));
            let mut stands = self.stands.lock().unwrap().clone().unwrap();
            if let Some(spec) = stands["spec"].as_object_mut() {
                spec.retain(|key, _| key == "size");
            }
            *self.stands.lock().unwrap() = Some(stands);
            self.edit(|_| {});
            Ok(Child::from_value(self.stands.lock().unwrap().clone().unwrap()).unwrap())
        }
        async fn delete(&self, _: Target<'_>, uid: &str, _: &str) -> Result<(), WriteError> {
            self.log(format!("delete {uid}"));
            *self.stands.lock().unwrap() = None;
            Ok(())
        }
        async fn metadata(&self, _: Target<'_>) -> Result<Option<ObjectMeta>, WriteError> {
            self.log("metadata");
            let stands = self.stands.lock().unwrap();
            Ok(stands
                .as_ref()
                .map(|o| serde_json::from_value(o["metadata"].clone()).unwrap()))
        }
    }

    type Stack = tower::util::BoxCloneSyncService<Request<ConfigMap>, Settled<u32>, ReconcileError>;

    /// The layer alone around a planner that always wants this.
    fn stack(world: &World, children: Vec<ChildPlan>) -> Stack {
        let owned = Owned {
            manager: "kit-toy".into(),
            prefix: "kit".into(),
            cache: Arc::new(world.clone()),
            writer: Arc::new(world.clone()),
            memory: WriteMemory::default(),
            metrics: Metrics::default(),
            squatters: None,
        };
        stack_on(Arc::new(owned), children)
    }
    fn stack_on(owned: Arc<Owned>, children: Vec<ChildPlan>) -> Stack {
        Stack::new(
            ServiceBuilder::new()
                .layer(OwnedChildrenLayer(owned))
                .service(service_fn(move |_| {
                    let plan = Plan {
                        children: children.clone(),
                        ..Plan::report(0)
                    };
                    async move { Ok(Labelled(plan)) }
                })),
        )
    }
    fn wanted() -> Vec<ChildPlan> {
        vec![ChildPlan::Want(Box::new(desired("n")))]
    }
    fn unwanted(verify: bool) -> Vec<ChildPlan> {
        vec![ChildPlan::Gone {
            kind: TOY_API,
            namespace: "ns".into(),
            name: "n".into(),
            verify,
        }]
    }
    async fn run(stack: &Stack) -> ChildState {
        stack
            .clone()
            .oneshot(object("owner"))
            .await
            .unwrap()
            .children
            .0
            .remove(0)
            .state
    }

    #[tokio::test]
    async fn created_once_then_nothing_is_called() {
        let world = World::default();
        let stack = stack(&world, wanted());
        assert_eq!(run(&stack).await, ChildState::Created);
        assert_eq!(world.calls(), ["create Toy ns/n"]);
        assert_eq!(
            run(&stack).await,
            ChildState::Unchanged,
            "the cache does not show it yet"
        );
        world.sync();
        assert_eq!(run(&stack).await, ChildState::Unchanged);
        let restarted = self::stack(&world, wanted());
        assert_eq!(
            run(&restarted).await,
            ChildState::Unchanged,
            "after a restart too"
        );
        assert_eq!(world.calls(), [""; 0]);
    }

    #[tokio::test]
    async fn an_outside_edit_is_reverted_by_one_call_and_a_foreign_key_stays() {
        let world = World::default();
        let stack = stack(&world, wanted());
        run(&stack).await;
        world.edit(|o| o["metadata"]["labels"] = json!({"users": "own"}));
        world.sync();
        assert_eq!(run(&stack).await, ChildState::Unchanged);
        world.edit(|o| o["spec"]["size"] = json!(2));
        world.sync();
        world.calls();
        assert_eq!(run(&stack).await, ChildState::Updated);
        assert_eq!(world.calls(), ["update child-uid"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_contest_is_given_up_for_a_while_and_the_other_side_named_once() {
        let world = World::default();
        let stack = stack(&world, wanted());
        run(&stack).await;
        let mut states = vec![];
        for size in 10..18 {
            world.edit(|o| {
                o["spec"]["size"] = json!(size);
                o["metadata"]["managedFields"] = json!([
                    {"manager": "kit-toy", "operation": "Apply"},
                    {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
                ]);
            });
            world.sync();
            states.push(run(&stack).await);
        }
        assert_eq!(states.iter().filter(|s| **s == ChildState::Updated).count(), 5);
        let ChildState::Contested { manager, retry } = &states[7] else {
            panic!("{states:?}")
        };
        assert_eq!((manager.as_str(), retry.as_secs()), ("kubectl-edit", 300));
        assert_eq!(world.calls().iter().filter(|c| *c == "metadata").count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_down_is_no_opponent() {
        let world = World::default();
        let stack = stack(&world, wanted());
        run(&stack).await;
        world.edit(|o| o["spec"]["size"] = json!(2));
        world.sync();
        world.breaks(true);
        for _ in 0..10 {
            assert!(matches!(
                run(&stack).await,
                ChildState::Failed(ErrorClass::Transient, _)
            ));
        }
        world.breaks(false);
        assert_eq!(
            run(&stack).await,
            ChildState::Updated,
            "at once, not after a pause"
        );
    }

    #[tokio::test]
    async fn a_foreign_object_is_refused_and_named_whether_the_cache_shows_it_or_not() {
        let foreign = json!({"apiVersion": "toys.example.org/v1", "kind": "Toy", "metadata": {
            "name": "n", "namespace": "ns", "uid": "x", "resourceVersion": "7",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "y", "controller": true}],
        }});
        for shown in [false, true] {
            let world = World::default();
            *world.stands.lock().unwrap() = Some(foreign.clone());
            if shown {
                world.sync();
            }
            assert_eq!(
                run(&stack(&world, wanted())).await,
                ChildState::Foreign {
                    owner: "Pod p".into()
                }
            );
            let expected: &[&str] = if shown {
                &[]
            } else {
                &["create Toy ns/n", "metadata"]
            };
            assert_eq!(world.calls(), expected);
            assert_eq!(
                run(&stack(&world, unwanted(true))).await,
                ChildState::Absent,
                "nor is it removed"
            );
            assert_eq!(
                *world.stands.lock().unwrap(),
                Some(foreign.clone()),
                "not a byte changed"
            );
        }
    }

    #[tokio::test]
    async fn ours_without_labels_is_found_by_name_and_mended() {
        let world = World::default();
        run(&stack(&world, wanted())).await;
        world.calls();
        // The labels are gone, so the cache does not show it, and the process is new.
        assert_eq!(run(&stack(&world, wanted())).await, ChildState::Updated);
        assert_eq!(world.calls(), ["create Toy ns/n", "metadata", "update child-uid"]);
    }

    #[tokio::test]
    async fn ours_without_labels_and_written_by_another_manager_is_taken_over_too() {
        let world = World::default();
        run(&stack(&world, wanted())).await;
        world.edit(|o| o["metadata"]["managedFields"] = json!([{"manager": "old", "operation": "Update"}]));
        world.calls();
        assert_eq!(run(&stack(&world, wanted())).await, ChildState::Updated);
        assert_eq!(
            world.calls(),
            ["create Toy ns/n", "metadata", "take over", "update child-uid"]
        );
    }

    #[tokio::test]
    async fn what_was_removed_is_neither_removed_again_nor_changed_while_the_cache_lags() {
        let world = World::default();
        let owned = Arc::new(Owned {
            manager: "kit-toy".into(),
            prefix: "kit".into(),
            cache: Arc::new(world.clone()),
            writer: Arc::new(world.clone()),
            memory: WriteMemory::default(),
            metrics: Metrics::default(),
            squatters: None,
        });
        let wanting = stack_on(Arc::clone(&owned), wanted());
        let unwanting = stack_on(owned, unwanted(false));
        run(&wanting).await;
        world.sync();
        world.calls();
        assert_eq!(run(&unwanting).await, ChildState::Removed);
        assert_eq!(run(&unwanting).await, ChildState::Removed);
        assert_eq!(run(&wanting).await, ChildState::Waiting);
        assert_eq!(world.calls(), ["delete child-uid"]);
        world.sync();
        assert_eq!(run(&wanting).await, ChildState::Created);
    }

    #[tokio::test]
    async fn written_by_another_manager_it_is_taken_over_once() {
        let world = World::default();
        run(&stack(&world, wanted())).await;
        world.edit(|o| o["metadata"]["managedFields"] = json!([{"manager": "old", "operation": "Update"}]));
        world.sync();
        world.calls();
        let stack = stack(&world, wanted());
        assert_eq!(run(&stack).await, ChildState::Updated);
        assert_eq!(world.calls(), ["metadata", "take over", "update child-uid"]);
        world.sync();
        assert_eq!(run(&stack).await, ChildState::Unchanged);
        assert_eq!(world.calls(), [""; 0]);
    }

    #[tokio::test]
    async fn removed_by_uid_once_and_waited_for_while_terminating() {
        let world = World::default();
        run(&stack(&world, wanted())).await;
        world.edit(|o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        world.sync();
        world.calls();
        assert_eq!(run(&stack(&world, wanted())).await, ChildState::Waiting);
        assert_eq!(run(&stack(&world, unwanted(false))).await, ChildState::Removed);
        assert_eq!(world.calls(), [""; 0], "on its way out already");
        world.edit(|o| o["metadata"]["deletionTimestamp"] = json!(null));
        world.sync();
        let stack = stack(&world, unwanted(false));
        assert_eq!(run(&stack).await, ChildState::Removed);
        world.sync();
        assert_eq!(run(&stack).await, ChildState::Absent);
        assert_eq!(world.calls(), ["delete child-uid"]);
    }

    #[tokio::test]
    async fn owners_and_children_are_namespaced_and_of_one_namespace() {
        let world = World::default();
        let foreign = |namespace: &str| Desired {
            namespace: namespace.into(),
            ..desired("n")
        };
        for namespace in ["", "another"] {
            let wanted = vec![ChildPlan::Want(Box::new(foreign(namespace)))];
            let unwanted = vec![ChildPlan::Gone {
                kind: TOY_API,
                namespace: namespace.into(),
                name: "n".into(),
                verify: true,
            }];
            for plan in [wanted, unwanted] {
                let ChildState::Failed(class, text) = run(&stack(&world, plan)).await else {
                    panic!()
                };
                assert_eq!(class, ErrorClass::Invalid);
                assert!(text.contains("is no possible child of ConfigMap owner"), "{text}");
            }
        }
        // An owner of a cluster-scoped kind has no namespace.
        let mut request = object("owner");
        Arc::get_mut(&mut request.object).unwrap().metadata.namespace = None;
        let settled = stack(&world, vec![ChildPlan::Want(Box::new(foreign("")))])
            .oneshot(request)
            .await;
        let state = settled.unwrap().children.0.remove(0).state;
        assert!(matches!(state, ChildState::Failed(ErrorClass::Invalid, _)));
        assert_eq!(world.calls(), [""; 0]);
    }

    #[tokio::test]
    async fn more_than_wanted_is_taken_away_by_one_call_and_after_an_apply_by_one_more() {
        let world = World::default();
        let whole = || {
            let mut child = desired("n");
            child.options.whole = &["/spec"];
            vec![ChildPlan::Want(Box::new(child))]
        };
        let stack = stack(&world, whole());
        run(&stack).await;
        world.sync();
        world.calls();
        world.edit(|o| o["spec"]["more"] = json!({"a": 1}));
        world.sync();
        assert_eq!(run(&stack).await, ChildState::Updated);
        assert_eq!(
            world.calls(),
            [r#"patch 3 [{"op":"remove","path":"/spec/more"}]"#]
        );
        world.sync();
        assert_eq!(run(&stack).await, ChildState::Unchanged);
        // Again and again it is a contest like any other.
        let mut states = vec![];
        for n in 0..9 {
            world.edit(|o| o["spec"]["more"] = json!(n));
            world.sync();
            states.push(run(&stack).await);
        }
        assert_eq!(states.iter().filter(|s| **s == ChildState::Updated).count(), 4);
        assert!(matches!(states[8], ChildState::Contested { .. }));
    }

    #[tokio::test]
    async fn what_a_later_generation_wanted_is_neither_changed_nor_removed_by_an_earlier_one() {
        let world = World::default();
        run(&stack(&world, wanted())).await;
        world.edit(|o| {
            o["metadata"]["annotations"]["kit/applied-generation"] = json!("2");
            o["spec"]["size"] = json!(2);
        });
        world.calls();
        for shown in [true, false] {
            for plan in [wanted(), unwanted(true)] {
                if shown {
                    world.sync();
                } else {
                    *world.cached.lock().unwrap() = None;
                }
                let state = run(&stack(&world, plan)).await;
                assert!(
                    matches!(state, ChildState::Failed(ErrorClass::NotReady, _)),
                    "{state:?}"
                );
            }
        }
        assert!(
            world
                .calls()
                .iter()
                .all(|c| c == "create Toy ns/n" || c == "metadata")
        );
    }

    #[tokio::test]
    async fn a_held_plan_touches_nothing() {
        let world = World::default();
        run(&stack(&world, wanted())).await;
        world.sync();
        world.calls();
        let owned = Owned {
            manager: "kit-toy".into(),
            prefix: "kit".into(),
            cache: Arc::new(world.clone()),
            writer: Arc::new(world.clone()),
            memory: WriteMemory::default(),
            metrics: Metrics::default(),
            squatters: None,
        };
        let held = ServiceBuilder::new()
            .layer(OwnedChildrenLayer(Arc::new(owned)))
            .service(service_fn(|_: Request<ConfigMap>| async {
                Ok(Labelled(Plan::<u32>::hold(HoldReason::FeatureOff("f"))))
            }))
            .oneshot(object("owner"))
            .await
            .unwrap();
        assert!(held.children.0.is_empty());
        assert_eq!(world.calls(), [""; 0]);
    }
}
