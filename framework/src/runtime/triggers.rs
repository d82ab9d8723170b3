//! What wakes a controller: a set of object references. It de-duplicates, never drops, and is bounded by the number of
//! objects. Level, not edge: a trigger says nothing but "look at this object".

use std::{
    any::TypeId,
    collections::{HashMap, HashSet, hash_map::RandomState},
    fmt::Debug,
    hash::BuildHasher,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::Stream;
use indexmap::IndexSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource,
    core::{ClusterResourceScope, ObjectMeta},
    runtime::reflector::ObjectRef,
};
use tokio::{task::AbortHandle, time::Instant};

use super::{
    hub::{Cached, Change, Handle, Listener, Lookup},
    jitter::LONGEST_WAIT,
    lock,
    metrics::Queue,
};

/// Limit of the objects that are noted while no controller takes.
const IDLE_LIMIT: usize = 1_024;

/// The triggers of one controller. Cheap to clone: all clones are one set.
pub struct Triggers<K: Resource<DynamicType = ()>>(Arc<Mutex<Inner<K>>>);

struct Inner<K: Resource<DynamicType = ()>> {
    waiting: IndexSet<ObjectRef<K>>,
    timers: HashMap<ObjectRef<K>, (Instant, AbortHandle)>,
    waker: Option<Waker>,
    counts: Counts,
}

/// What is measured: an object waits from its push to the begin of its reconcile, wherever it waits in between.
#[derive(Default)]
struct Counts {
    queue: Queue,
    /// While no controller takes, there is no queue: what was pushed is of no interest, as a start looks at everything.
    running: bool,
    /// Hashes of the objects that were reconciled and not found gone since: something may be kept for them.
    reconciled: HashSet<u64>,
    /// By hash: two objects with one would be counted as one, which costs less than their names.
    since: HashMap<u64, Instant>,
    hasher: RandomState,
}

impl Counts {
    fn key(&self, namespace: Option<&str>, name: &str) -> u64 {
        self.hasher.hash_one((namespace.unwrap_or_default(), name))
    }

    fn pushed(&mut self, namespace: Option<&str>, name: &str) {
        if !self.running {
            return;
        }
        let key = self.key(namespace, name);
        if let std::collections::hash_map::Entry::Vacant(entry) = self.since.entry(key) {
            entry.insert(Instant::now());
            self.queue.adds.inc();
            self.queue.depth.inc();
        }
    }

    fn taken(&mut self, namespace: Option<&str>, name: &str) -> Option<Instant> {
        if self.since.is_empty() {
            return None;
        }
        let key = self.key(namespace, name);
        let since = self.since.remove(&key)?;
        self.queue.depth.dec();
        Some(since)
    }
}

impl<K: Resource<DynamicType = ()>> Clone for Triggers<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource<DynamicType = ()>> Debug for Triggers<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggers").field("len", &self.len()).finish()
    }
}

impl<K: Resource<DynamicType = ()>> Default for Triggers<K> {
    fn default() -> Self {
        Self::new(Queue::default())
    }
}

impl<K: Resource<DynamicType = ()>> Triggers<K> {
    /// An empty set that is counted by `queue`.
    pub fn new(queue: Queue) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            waiting: IndexSet::new(),
            timers: HashMap::new(),
            waker: None,
            counts: Counts {
                queue,
                ..Counts::default()
            },
        })))
    }

    /// Look at this object. While no controller takes, only a limited number of objects is noted besides those that were
    /// reconciled before: a start looks at everything.
    pub fn push(&self, reference: ObjectRef<K>) {
        let mut inner = lock(&self.0);
        if !inner.counts.running && inner.waiting.len() >= IDLE_LIMIT {
            let key = inner.counts.key(reference.namespace.as_deref(), &reference.name);
            if !inner.counts.reconciled.contains(&key) {
                return;
            }
        }
        inner
            .counts
            .pushed(reference.namespace.as_deref(), &reference.name);
        if inner.waiting.insert(reference)
            && let Some(waker) = inner.waker.take()
        {
            waker.wake();
        }
    }

    /// Look at the object with this name; `namespace` is `None` for cluster-scoped kinds.
    pub fn push_name(&self, namespace: Option<&str>, name: &str) {
        let reference = ObjectRef::new(name);
        self.push(match namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        });
    }

    /// Look at this object.
    pub fn push_object(&self, meta: &ObjectMeta) {
        self.push_name(
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        );
    }

    /// Look at every object of the cache: leadership was won, an API appeared or vanished, a setting changed.
    pub fn push_all(&self, objects: &Lookup<K>)
    where
        K: Cached,
    {
        for object in objects.all() {
            self.push_object(object.meta());
        }
    }

    /// How many objects wait and were not yet taken.
    pub fn len(&self) -> usize {
        lock(&self.0).waiting.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A controller begins to take: what waits, waits from now on. The queue is none any more when the guard goes.
    pub(super) fn running(&self) -> RunningQueue<K> {
        let mut inner = lock(&self.0);
        let Inner { waiting, counts, .. } = &mut *inner;
        counts.running = true;
        for reference in waiting.iter() {
            counts.pushed(reference.namespace.as_deref(), &reference.name);
        }
        RunningQueue(self.clone())
    }

    /// Takes all that wait, in their order, and wakes `waker` when the next one comes.
    pub(super) fn take_all(&self, waker: &Waker) -> IndexSet<ObjectRef<K>> {
        let mut inner = lock(&self.0);
        inner.waker = Some(waker.clone());
        std::mem::take(&mut inner.waiting)
    }

    /// The triggers as they are taken, oldest first; never ends. There should be one at a time; what a dropped one did not take
    /// waits for the next one.
    pub fn stream(&self) -> TriggerStream<K> {
        TriggerStream(self.clone())
    }
}

impl<K> Triggers<K>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// Look at this object after `wait`, but at most [`LONGEST_WAIT`]. One timer per object: the earlier one wins.
    pub fn push_after(&self, reference: ObjectRef<K>, wait: Duration) {
        let at = Instant::now() + wait.min(LONGEST_WAIT);
        let mut inner = lock(&self.0);
        if let Some((known, timer)) = inner.timers.get(&reference) {
            if *known <= at {
                return;
            }
            timer.abort();
        }
        let weak = Arc::downgrade(&self.0);
        let due = reference.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            if let Some(inner) = weak.upgrade() {
                let this = Triggers(inner);
                lock(&this.0).timers.remove(&due);
                this.push(due);
            }
        });
        inner.timers.insert(reference, (at, task.abort_handle()));
    }
}

impl<K: Resource<DynamicType = ()>> Drop for Inner<K> {
    fn drop(&mut self) {
        for (_, timer) in self.timers.values() {
            timer.abort();
        }
    }
}

/// See [`Triggers::running`].
pub(super) struct RunningQueue<K: Resource<DynamicType = ()>>(Triggers<K>);

impl<K: Resource<DynamicType = ()>> RunningQueue<K> {
    /// The reconcile of this object begins.
    pub(super) fn begun(&self, meta: &ObjectMeta) {
        let mut inner = lock(&self.0.0);
        let name = meta.name.as_deref().unwrap_or_default();
        let key = inner.counts.key(meta.namespace.as_deref(), name);
        inner.counts.reconciled.insert(key);
        if let Some(since) = inner.counts.taken(meta.namespace.as_deref(), name) {
            let wait = since.elapsed().as_secs_f64();
            inner.counts.queue.wait.observe(wait);
        }
    }

    /// There is no such object to reconcile.
    pub(super) fn gone(&self, namespace: Option<&str>, name: &str) {
        let mut inner = lock(&self.0.0);
        let key = inner.counts.key(namespace, name);
        inner.counts.reconciled.remove(&key);
        inner.counts.taken(namespace, name);
    }

    /// The counters.
    pub(super) fn counters(&self) -> Queue {
        lock(&self.0.0).counts.queue.clone()
    }
}

impl<K: Resource<DynamicType = ()>> Drop for RunningQueue<K> {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.0);
        inner.counts.running = false;
        inner.counts.since = HashMap::new();
        inner.counts.queue.depth.set(0);
    }
}

/// See [`Triggers::stream`].
#[derive(Debug)]
pub struct TriggerStream<K: Resource<DynamicType = ()>>(Triggers<K>);

impl<K: Resource<DynamicType = ()>> Stream for TriggerStream<K> {
    type Item = ObjectRef<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut inner = lock(&self.0.0);
        match inner.waiting.shift_remove_index(0) {
            Some(reference) => Poll::Ready(Some(reference)),
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A listener for the controller's own kind: anything but an echo of a status write. Compares generation, labels,
/// annotations, deletionTimestamp, finalizers and ownerReferences, then asks `matters` (old, new) about the rest, e.g.
/// status fields that others write. Deletes count too, so that what is kept per object is forgotten.
pub fn on_change_of_self<K>(triggers: &Triggers<K>, matters: fn(&K, &K) -> bool) -> Listener<K>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let triggers = triggers.clone();
    Box::new(move |change| match change {
        Change::Applied { old: None, new } => triggers.push_object(new.meta()),
        Change::Applied { old: Some(old), new } => {
            if differs(old.meta(), new.meta()) || matters(old, new) {
                triggers.push_object(new.meta());
            }
        }
        Change::Deleted { old } => triggers.push_object(old.meta()),
        Change::Ready | Change::Stopped => {}
    })
}

fn differs(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    // Kinds without a generation (none today) count every change as one.
    new.generation.is_none()
        || old.generation != new.generation
        || old.labels != new.labels
        || old.annotations != new.annotations
        || old.deletion_timestamp != new.deletion_timestamp
        || old.finalizers != new.finalizers
        || old.owner_references != new.owner_references
}

/// A listener for a child kind: looks at the controller owner, before and after, if it is a `K` of any version.
pub fn on_change_of_child<K, C>(triggers: &Triggers<K>) -> Listener<C>
where
    K: Resource<DynamicType = (), Scope: 'static> + Send + Sync + 'static,
    C: Resource + Send + Sync + 'static,
{
    map(triggers, |child: &C| {
        owner_of::<K>(child.meta()).into_iter().collect()
    })
}

/// The controller owner, if it is a `K` of any version.
pub fn owner_of<K>(child: &ObjectMeta) -> Option<ObjectRef<K>>
where
    K: Resource<DynamicType = (), Scope: 'static>,
{
    let owner = child
        .owner_references
        .as_deref()?
        .iter()
        .find(|o| o.controller == Some(true) && is_a::<K>(o))?;
    let reference = ObjectRef::new(&owner.name);
    if TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>() {
        Some(reference)
    } else {
        Some(reference.within(child.namespace.as_deref()?))
    }
}

fn is_a<K: Resource<DynamicType = ()>>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}

/// A listener for a kind that objects of `K` refer to: looks at what `refers` names, before and after.
pub fn map<K, C>(
    triggers: &Triggers<K>,
    refers: impl Fn(&C) -> Vec<ObjectRef<K>> + Send + Sync + 'static,
) -> Listener<C>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    C: Send + Sync + 'static,
{
    let triggers = triggers.clone();
    Box::new(move |change| {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.as_ref(), Some(new)),
            Change::Deleted { old } => (Some(old), None),
            Change::Ready | Change::Stopped => (None, None),
        };
        for object in [old, new].into_iter().flatten() {
            for reference in refers(object) {
                triggers.push(reference);
            }
        }
    })
}

/// A listener that looks at every object of `owners` when another cache becomes ready.
pub fn all_on_ready<K, C>(triggers: &Triggers<K>, owners: &Handle<K>) -> Listener<C>
where
    K: Cached + Resource<DynamicType = ()>,
{
    let (triggers, owners) = (triggers.clone(), owners.clone());
    Box::new(move |change| {
        if matches!(change, Change::Ready) {
            triggers.push_all(&owners.store());
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use k8s_openapi::api::{
        core::v1::Namespace,
        networking::v1::{Ingress, IngressClass},
    };

    use super::*;

    fn ingress(name: &str, generation: i64) -> Ingress {
        Ingress {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("ns".to_owned()),
                generation: Some(generation),
                ..ObjectMeta::default()
            },
            ..Ingress::default()
        }
    }

    fn taken(triggers: &Triggers<Ingress>) -> Vec<String> {
        let mut stream = triggers.stream();
        let mut names: Vec<_> =
            std::iter::from_fn(|| stream.next().now_or_never().flatten().map(|r| r.name)).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn an_object_triggered_twice_is_taken_once_and_nothing_is_lost_with_a_dropped_stream() {
        let triggers = Triggers::<Ingress>::default();
        for name in ["a", "b", "a", "c", "b"] {
            triggers.push_name(Some("ns"), name);
        }
        assert_eq!(triggers.len(), 3);
        drop(triggers.stream());
        assert_eq!(taken(&triggers), ["a", "b", "c"]);
        triggers.push_name(Some("ns"), "a");
        assert_eq!(taken(&triggers), ["a"]);
    }

    #[tokio::test]
    async fn an_object_waits_from_its_push_to_its_reconcile_and_only_while_a_controller_takes() {
        let triggers = Triggers::<Ingress>::default();
        let depth = |running: &RunningQueue<Ingress>| running.counters().depth.get();
        // given: pushed while nobody takes, e.g. on a follower
        triggers.push_name(Some("ns"), "a");
        let running = triggers.running();
        assert_eq!(depth(&running), 1);
        triggers.push_name(Some("ns"), "a");
        triggers.push_name(Some("ns"), "b");
        assert_eq!(depth(&running), 2);
        // when: kube's scheduler has taken them, then: they still wait
        assert_eq!(taken(&triggers), ["a", "b"]);
        assert_eq!(depth(&running), 2);
        // when: one begins and the other one is not there, then: none waits, and one has waited
        running.begun(&ingress("a", 1).metadata);
        running.gone(Some("ns"), "b");
        assert_eq!(depth(&running), 0);
        assert_eq!(running.counters().adds.get(), 2);
        // a retry by timer was never pushed
        running.begun(&ingress("a", 1).metadata);
        assert_eq!(depth(&running), 0);
        // and: what was not begun when the controller ends is no queue
        triggers.push_name(Some("ns"), "c");
        drop(running);
        assert_eq!(triggers.running().counters().depth.get(), 1);
    }

    #[tokio::test]
    async fn a_follower_notes_no_more_objects_than_it_must() {
        let triggers = Triggers::<Ingress>::default();
        let running = triggers.running();
        running.begun(&ingress("mine", 1).metadata);
        drop(running);
        // weeks of objects that come and go
        for n in 0..50_000 {
            triggers.push_name(Some("ns"), &format!("other{n}"));
        }
        triggers.push_name(Some("ns"), "mine");
        assert_eq!(triggers.len(), IDLE_LIMIT + 1);
        assert!(taken(&triggers).contains(&"mine".to_owned()));
    }

    #[tokio::test]
    async fn a_push_wakes_the_stream_that_waits() {
        let triggers = Triggers::<Ingress>::default();
        let mut stream = triggers.stream();
        let waiting = tokio::spawn(async move { stream.next().await.map(|r| r.name) });
        tokio::task::yield_now().await;
        triggers.push_name(Some("ns"), "late");
        assert_eq!(waiting.await.unwrap().as_deref(), Some("late"));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_timers_for_an_object_the_earlier_one_fires_once() {
        let triggers = Triggers::<Ingress>::default();
        let reference = ObjectRef::<Ingress>::new("a").within("ns");
        triggers.push_after(reference.clone(), Duration::from_secs(60));
        triggers.push_after(reference.clone(), Duration::from_secs(5));
        triggers.push_after(reference, Duration::from_secs(30));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(taken(&triggers), ["a"]);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(taken(&triggers), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_status_echo_is_no_trigger_but_what_matters_is() {
        fn ingress_ips(old: &Ingress, new: &Ingress) -> bool {
            old.status != new.status
        }
        let triggers = Triggers::<Ingress>::default();
        let (plain, with_status) = (
            on_change_of_self(&triggers, |_, _| false),
            on_change_of_self(&triggers, ingress_ips),
        );
        let old = Arc::new(ingress("a", 1));
        let mut echo = ingress("a", 1);
        echo.metadata.resource_version = Some("2".to_owned());
        echo.status = Some(Default::default());
        let change = Change::Applied {
            old: Some(Arc::clone(&old)),
            new: Arc::new(echo),
        };
        plain(&change);
        assert_eq!(taken(&triggers), Vec::<String>::new());
        with_status(&change);
        assert_eq!(taken(&triggers), ["a"]);

        for edit in [
            |i: &mut Ingress| i.metadata.generation = Some(2),
            |i: &mut Ingress| i.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()),
            |i: &mut Ingress| i.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()),
            |i: &mut Ingress| i.metadata.finalizers = Some(vec!["f".to_owned()]),
            |i: &mut Ingress| i.metadata.owner_references = Some(vec![OwnerReference::default()]),
        ] {
            let mut new = ingress("a", 1);
            edit(&mut new);
            plain(&Change::Applied {
                old: Some(Arc::clone(&old)),
                new: Arc::new(new),
            });
            assert_eq!(taken(&triggers), ["a"]);
        }
        plain(&Change::Deleted { old });
        assert_eq!(taken(&triggers), ["a"]);
    }

    #[tokio::test]
    async fn a_child_triggers_its_controller_of_any_version_and_no_other_owner() {
        let owner = |api_version: &str, kind: &str, controller: bool| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "owner".to_owned(),
            controller: Some(controller),
            ..OwnerReference::default()
        };
        let child = |owner: OwnerReference| ObjectMeta {
            name: Some("child".to_owned()),
            namespace: Some("ns".to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let named = |meta: &ObjectMeta| owner_of::<Ingress>(meta).map(|r| (r.namespace, r.name));
        let wanted = Some((Some("ns".to_owned()), "owner".to_owned()));
        assert_eq!(
            named(&child(owner("networking.k8s.io/v1", "Ingress", true))),
            wanted
        );
        assert_eq!(
            named(&child(owner("networking.k8s.io/v1beta1", "Ingress", true))),
            wanted
        );
        assert_eq!(
            named(&child(owner("networking.k8s.io/v1", "Ingress", false))),
            None
        );
        assert_eq!(named(&child(owner("extensions/v1", "Ingress", true))), None);
        assert_eq!(named(&child(owner("v1", "Ingress", true))), None);
        // cluster-scoped owners have no namespace, and the core group no slash
        let of_class = child(owner("networking.k8s.io/v1", "IngressClass", true));
        assert_eq!(owner_of::<IngressClass>(&of_class).unwrap().namespace, None);
        assert!(owner_of::<Namespace>(&child(owner("v1", "Namespace", true))).is_some());
    }
}
