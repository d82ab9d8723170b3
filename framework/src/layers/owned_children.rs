//! Plan → Settled: applies what is wanted, removes what is not, refuses what is foreign. The decisions are pure
//! (`owned::decide`), the calls sit behind `ChildWriter`; here they meet. A held plan touches nothing.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Client, Resource};
use tower::{Layer, Service};

use super::{metadata::Labelled, planner::Boxed};
use crate::{
    Child, ChildPlan, ChildState, Children, Desired, ErrorClass, ReconcileError, Request, Settled,
    api::Target,
    owned::{
        ChildCache, ChildWriter, Decision, KubeChildWriter, Lookup, Stamp, WriteMemory,
        decide::{Intent, Ownership, ownership, want},
        memory::ChildKey,
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

/// Nobody's name is known where a child is deleted over and over.
const DELETER: &str = "somebody who deletes it";

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
                    let child = match child {
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
                                        owner: stamp.owner.name.clone(),
                                    },
                                    verify,
                                )
                                .await
                        }
                    };
                    owned.count(&child);
                    children.push(child);
                }
            }
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
            owner: stamp.owner.name.clone(),
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
            Decision::Create => match self.squatter(&key, stamp) {
                Some((owner, live)) => (ChildState::Foreign { owner }, Some(live)),
                None => {
                    let vanished = known.vanished.as_ref() == Some(&stamp.owner.uid);
                    self.create_again(&key, stamp, &intent, vanished).await
                }
            },
            Decision::TakeOver { live } => {
                // The rewrite of who owns what is a version of its own, so nothing can be kept here.
                self.take_over(&key, &intent, live).await
            }
            Decision::Update { live, outside_edit } => {
                match outside_edit.then(|| self.memory.contest(&key)).flatten() {
                    Some(retry) => {
                        let manager = self.opponent(&key).await;
                        (ChildState::Contested { manager, retry }, Some(live))
                    }
                    None => {
                        let intent = intent.keeping(desired, &live);
                        let answer = self.writer.update(target, &intent, live.uid()).await;
                        if outside_edit && answer.is_ok() {
                            self.memory.reverted(&key);
                        }
                        self.finish(&key, &intent, answer, ChildState::Updated)
                    }
                }
            }
        };
        if let Some(squatters) = &self.squatters {
            match (&state, &live) {
                (ChildState::Foreign { .. }, Some(live)) => squatters.watch(&key, live),
                _ => squatters.release(&key),
            }
        }
        settled(key, state, live)
    }

    /// Who is known to have the name, if it is somebody else.
    fn squatter(&self, key: &ChildKey, stamp: &Stamp) -> Option<(String, Arc<Child>)> {
        let live = self.squatters.as_ref()?.seen(key)?;
        match ownership(&live, stamp) {
            Ownership::Foreign(owner) => Some((owner, live)),
            _ => None,
        }
    }

    /// Creates it, unless somebody deletes it as fast as we create it: another operator, or the garbage collector because
    /// the end of the owner has not been heard of yet.
    async fn create_again(
        &self,
        key: &ChildKey,
        stamp: &Stamp,
        intent: &Intent,
        vanished: bool,
    ) -> (ChildState, Option<Arc<Child>>) {
        if let Some(retry) = vanished.then(|| self.memory.contest(key)).flatten() {
            let manager = DELETER.to_owned();
            return (ChildState::Contested { manager, retry }, None);
        }
        let made = self.create(key, stamp, intent).await;
        if vanished && made.0 == ChildState::Created {
            self.memory.reverted(key);
        }
        made
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
                // Once we have applied to it, nothing tells any more that somebody else wrote it for our owner.
                let taken = if applied_by(&live.metadata, &self.manager) {
                    Ok(())
                } else {
                    self.writer.take_over(target, &live.metadata).await
                };
                let answer = match taken {
                    Ok(()) => self.writer.update(target, intent, live.uid()).await,
                    Err(error) => Err(error),
                };
                self.finish(key, intent, answer, ChildState::Updated)
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
        let known = match live.with_managed_fields() {
            Some(meta) => Ok(Some(meta)),
            None => self.writer.metadata(target).await,
        };
        let taken = match known {
            // What they say must be of the object that was decided about.
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

/// Whether the main resource has an `Apply` entry of this manager.
fn applied_by(meta: &kube::core::ObjectMeta, manager: &str) -> bool {
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
        WriteError::Failed(error) => (error.class, error.message),
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
        async fn delete(&self, _: Target<'_>, uid: &str) -> Result<(), WriteError> {
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
