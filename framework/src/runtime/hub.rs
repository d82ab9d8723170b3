//! Watches and caches: one supervised watch per (kind, scope, selector), shared by all who ask for it. Knows nothing of
//! leadership (followers keep their caches warm) and never concludes from an error, an end or a 404 that something is
//! absent: what is known stays until the API server says otherwise, or until the watch is stopped.
//!
//! The loop is our own on kube's `watcher` events: `reflect`/`subscribe` lose deletes, block on a slow reader and say
//! nothing about objects that vanished while nobody watched.

use std::{
    any::{Any, TypeId},
    collections::{HashMap, HashSet},
    fmt::Debug,
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwapOption;
use futures::{FutureExt, StreamExt, pin_mut};
use kube::{
    Api, Client, Resource,
    core::{ObjectMeta, PartialObjectMeta},
    runtime::{
        reflector::{self, ObjectRef, Store},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    decode::{Bad, Guarded},
    jitter::{Backoff, Jitter},
    lock,
    metrics::{Metrics, WatchLabel},
    pace::{Pulse, paced},
};
use crate::{
    ApiKind, Child, ErrorClass,
    error::{classify, classify_status},
};

/// First wait after a failed watch or list, and the longest one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Longest wait while a right is missing.
const FORBIDDEN_LIMIT: Duration = Duration::from_secs(30);
/// A list that brings nothing for so long is started anew.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// What can be cached.
pub trait Cached:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin + 'static>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin + 'static>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Where to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every namespace; also for cluster-scoped kinds.
    #[default]
    All,
    /// These namespaces, one watch each, feeding one store.
    Namespaces(Vec<String>),
}

/// What to watch of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Label selector; everything if `None`.
    pub labels: Option<String>,
    /// Field selector; everything if `None`.
    pub fields: Option<String>,
}

impl Selector {
    /// Objects with these labels.
    pub fn labels(selector: impl Into<String>) -> Self {
        Self {
            labels: Some(selector.into()),
            fields: None,
        }
    }

    /// Objects with these fields, e.g. `metadata.name=x`.
    pub fn fields(selector: impl Into<String>) -> Self {
        Self {
            labels: None,
            fields: Some(selector.into()),
        }
    }

    fn text(&self) -> String {
        let parts = [self.labels.as_deref(), self.fields.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(";")
    }
}

/// What listeners are told. Between two `Ready` of one start nothing is told twice.
#[derive(Debug)]
pub enum Change<K> {
    /// An object is new (`old` is `None`) or differs by resourceVersion. Under a new uid it is a `Deleted` first.
    Applied {
        /// As the cache knew it.
        old: Option<Arc<K>>,
        /// As it is.
        new: Arc<K>,
    },
    /// An object is gone, or left the selector.
    Deleted {
        /// As the cache knew it last.
        old: Arc<K>,
    },
    /// The first full list is in the store (and was told).
    Ready,
    /// The watch was stopped and its store dropped: nothing is known any more, and nothing may be concluded.
    Stopped,
}

/// What a cache says about one object. Only `Absent` allows the conclusion that the object does not exist.
///
/// ```no_run
/// # use reconcile_kit::runtime::{Handle, hub::Found};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # fn example(maps: &Handle<ConfigMap>) -> String {
/// match maps.find("shop", "settings") {
///     Found::Present(map) => format!("{} keys", map.data.iter().flatten().count()),
///     Found::Absent => "create the ConfigMap".to_owned(),
///     Found::NotWatched => "the operator does not watch the namespace shop".to_owned(),
///     Found::NotPermitted(problem) => format!("the operator may not read it: {}", problem.message),
///     Found::NotDecodable { error, .. } => format!("it does not fit its type: {error}"),
///     Found::Unknown => "not yet known, try again".to_owned(),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Found<K> {
    /// The object is in the cache.
    Present(Arc<K>),
    /// The list of its namespace is complete, and the object is not in it.
    Absent,
    /// The scope of the watch leaves its namespace out: the cache never knows.
    NotWatched,
    /// The API server refuses to list or watch its namespace.
    NotPermitted(Problem),
    /// The object exists and does not fit its type.
    NotDecodable {
        /// Where and how it does not fit.
        error: String,
        /// The last version that fitted, if this start has seen one.
        last: Option<Arc<K>>,
    },
    /// The watch does not run, or its first list is not complete.
    Unknown,
}

impl<K> Found<K> {
    /// The object, if it is in the cache.
    pub fn present(self) -> Option<Arc<K>> {
        match self {
            Self::Present(object) => Some(object),
            _ => None,
        }
    }
}

/// What a cache knows of the objects of one namespace as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All of them: what the cache does not show does not exist.
    Complete,
    /// The scope of the watch leaves the namespace out.
    NotWatched,
    /// The API server refuses to list or watch the namespace.
    NotPermitted(Problem),
    /// The watch does not run, or its first list is not complete.
    Unknown,
}

/// How the watch of one namespace is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// The namespace; `None` is all of them.
    pub namespace: Option<String>,
    /// Its first list is complete.
    pub synced: bool,
    /// The API server has refused it more than once in a row: a right is missing.
    pub refused: bool,
    /// Why it does not work at the moment.
    pub problem: Option<Problem>,
}

impl SourceStatus {
    /// What the API server says, if it refuses the namespace.
    pub fn refusal(&self) -> Option<&Problem> {
        self.problem.as_ref().filter(|_| self.refused)
    }
}

/// Why a watch does not work at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `Forbidden` is a missing right, `NotServed` an absent kind; most others pass.
    pub class: ErrorClass,
    /// What the API server said.
    pub message: String,
}

/// An object that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Where and how it does not fit.
    pub error: String,
}

/// How a watch is doing.
#[derive(Clone, Debug)]
pub struct WatchStatus {
    /// `Ingress.networking.k8s.io/v1`.
    pub kind: String,
    /// Selector; empty for everything.
    pub selector: String,
    /// Somebody wants it.
    pub running: bool,
    /// Its first full list is in the store.
    pub ready: bool,
    /// Objects in the store.
    pub objects: usize,
    /// Objects that do not fit their type.
    pub undecodable: usize,
    /// Why it does not work at the moment.
    pub problem: Option<Problem>,
}

/// All watches of the process. Cheap to clone.
#[derive(Clone)]
pub struct WatchHub {
    client: Client,
    metrics: Metrics,
    watches: Arc<Mutex<HashMap<WatchKey, Entry>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct WatchKey {
    rust: TypeId,
    kind: String,
    scope: Scope,
    selector: Selector,
    metadata_only: bool,
}

struct Entry {
    handle: Box<dyn Any + Send + Sync>,
    status: Arc<dyn Fn() -> WatchStatus + Send + Sync>,
}

impl Debug for WatchHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchHub").finish_non_exhaustive()
    }
}

impl WatchHub {
    /// A hub whose watches go through `client` (its own retry must be off: back-off is the hub's).
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            client,
            metrics,
            watches: Arc::default(),
        }
    }

    /// The watch of a typed kind, not started by this. The same arguments give the same watch.
    pub fn typed<K>(&self, scope: &Scope, selector: &Selector) -> Handle<K>
    where
        K: Cached + Resource<DynamicType = ()>,
    {
        self.handle((), scope, selector, false)
    }

    /// The watch of a typed kind of whose objects only the metadata is asked for.
    pub fn metadata<K>(&self, scope: &Scope, selector: &Selector) -> Handle<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
        PartialObjectMeta<K>: Cached + Resource<DynamicType = ()>,
    {
        self.handle((), scope, selector, true)
    }

    /// The watch of a kind of whose objects only the metadata is asked for, and of that only what `K` keeps.
    pub fn metadata_as<K>(&self, scope: &Scope, selector: &Selector) -> Handle<K>
    where
        K: Cached + Resource<DynamicType = ()>,
    {
        self.handle((), scope, selector, true)
    }

    /// The watch of a kind whose objects are cached as [`Child`].
    pub fn children(&self, kind: ApiKind, scope: &Scope, selector: &Selector) -> Handle<Child> {
        self.handle(Arc::new(kind.api_resource()), scope, selector, false)
    }

    /// How all watches are doing.
    pub fn status(&self) -> Vec<WatchStatus> {
        let reports: Vec<_> = lock(&self.watches)
            .values()
            .map(|e| Arc::clone(&e.status))
            .collect();
        let mut all: Vec<_> = reports.iter().map(|report| report()).collect();
        all.sort_by(|a, b| (&a.kind, &a.selector).cmp(&(&b.kind, &b.selector)));
        all
    }

    fn handle<K: Cached>(
        &self,
        dyntype: K::DynamicType,
        scope: &Scope,
        selector: &Selector,
        metadata_only: bool,
    ) -> Handle<K> {
        let mut scope = scope.clone();
        if let Scope::Namespaces(list) = &mut scope {
            list.sort();
            list.dedup();
        }
        let kind = if K::group(&dyntype).is_empty() {
            format!("{}/{}", K::kind(&dyntype), K::version(&dyntype))
        } else {
            format!(
                "{}.{}/{}",
                K::kind(&dyntype),
                K::group(&dyntype),
                K::version(&dyntype)
            )
        };
        let key = WatchKey {
            rust: TypeId::of::<K>(),
            kind: kind.clone(),
            scope: scope.clone(),
            selector: selector.clone(),
            metadata_only,
        };
        let mut watches = lock(&self.watches);
        if let Some(handle) = watches
            .get(&key)
            .and_then(|e| e.handle.downcast_ref::<Handle<K>>())
        {
            return handle.clone();
        }
        let handle = Handle(Arc::new(Shared {
            label: WatchLabel {
                kind,
                selector: selector.text(),
            },
            dyntype,
            scope: Arc::new(scope),
            selector: selector.clone(),
            metadata_only,
            client: self.client.clone(),
            metrics: self.metrics.clone(),
            gate: Mutex::new(Gate {
                listeners: Vec::new(),
                next: 0,
                epoch: 0,
                state: None,
            }),
            control: Mutex::new(Control { users: 0, task: None }),
            cache: ArcSwapOption::empty(),
            ready: watch::Sender::new(false),
            problem: ArcSwapOption::empty(),
        }));
        let reporter = handle.clone();
        watches.insert(
            key,
            Entry {
                handle: Box::new(handle.clone()),
                status: Arc::new(move || reporter.status()),
            },
        );
        handle
    }
}

/// One watch and its cache. Cheap to clone; lives as long as the hub, started and stopped in between.
pub struct Handle<K: Cached>(Arc<Shared<K>>);

impl<K: Cached> Clone for Handle<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Cached> Debug for Handle<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.0.label.kind).finish()
    }
}

/// What is told of changes, see [`Handle::listen`].
pub type Listener<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

type SharedListener<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

struct Shared<K: Cached> {
    label: WatchLabel,
    dyntype: K::DynamicType,
    scope: Arc<Scope>,
    selector: Selector,
    metadata_only: bool,
    client: Client,
    metrics: Metrics,
    /// Held while an event is applied and told, so that a new listener misses nothing and hears nothing twice.
    gate: Mutex<Gate<K>>,
    control: Mutex<Control>,
    cache: ArcSwapOption<Cache<K>>,
    ready: watch::Sender<bool>,
    problem: ArcSwapOption<Problem>,
}

struct Control {
    users: usize,
    task: Option<AbortOnDropHandle<()>>,
}

struct Gate<K: Cached> {
    listeners: Vec<(u64, SharedListener<K>)>,
    next: u64,
    /// Number of the current start; events of an earlier one are void.
    epoch: u64,
    state: Option<State<K>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: Option<String>,
    name: String,
}

/// What readers see of one start.
#[derive(Debug)]
struct Cache<K: Cached> {
    store: Store<K>,
    complete: AtomicBool,
    /// In the order of the scope. Locked for moments only, never while a listener is called.
    sources: Mutex<Vec<SourceStatus>>,
    /// Locked like `sources`.
    bad: Mutex<HashMap<Key, Box<Bad>>>,
}

/// The cache of one start.
struct State<K: Cached> {
    writer: reflector::store::Writer<K>,
    store: Store<K>,
    cache: Arc<Cache<K>>,
    /// Objects of the first full list, until it is complete in every namespace.
    first: Option<HashMap<Key, K>>,
    sources: Vec<Source>,
}

/// One namespace (or all).
struct Source {
    namespace: Option<String>,
    /// What the list that runs now has shown.
    seen: HashSet<Key>,
    /// Refusals in a row. A single one may be an API server that has not read all of its rules yet.
    refusals: u32,
}

/// After this many consecutive refusals a right is missing.
const REFUSED: u32 = 2;

/// Keeps a watch running; stopped when the last one of a watch is dropped.
#[must_use = "the watch stops when this is dropped"]
pub struct WatchGuard(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(stop) = self.0.take() {
            stop();
        }
    }
}

impl Debug for WatchGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchGuard").finish_non_exhaustive()
    }
}

/// Keeps a listener registered.
#[must_use = "the listener is removed when this is dropped"]
pub struct ListenGuard(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for ListenGuard {
    fn drop(&mut self) {
        if let Some(remove) = self.0.take() {
            remove();
        }
    }
}

impl Debug for ListenGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenGuard").finish_non_exhaustive()
    }
}

/// The cache of one start of a watch; empty if it is not running. Look it up anew instead of keeping it.
#[derive(Clone, Debug)]
pub struct Lookup<K: Cached> {
    cache: Option<Arc<Cache<K>>>,
    scope: Arc<Scope>,
    dyntype: K::DynamicType,
}

impl<K: Cached> Cache<K> {
    /// Why an object does not fit its type.
    fn error(&self, namespace: Option<&str>, name: &str) -> Option<String> {
        let bad = lock(&self.bad);
        if bad.is_empty() {
            return None;
        }
        let key = Key {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        bad.get(&key).map(|bad| bad.error.clone())
    }
}

impl<K: Cached> Lookup<K> {
    fn objects(&self) -> Option<&Store<K>> {
        self.cache.as_deref().map(|c| &c.store)
    }

    /// The first full list is in it: what it does not show is not there, except in namespaces that the API server refuses,
    /// see [`Lookup::coverage`].
    pub fn is_complete(&self) -> bool {
        self.cache
            .as_ref()
            .is_some_and(|c| c.complete.load(Ordering::Acquire))
    }

    /// The same cache if it is complete. Use it before [`Lookup::all`], [`Lookup::filter`] and [`Lookup::len`] where an
    /// incomplete cache must not look like an empty cluster.
    pub fn complete(self) -> Option<Self> {
        self.is_complete().then_some(self)
    }

    /// What is known of the objects of this namespace as a whole.
    pub fn coverage(&self, namespace: &str) -> Coverage {
        self.covered(Some(namespace))
    }

    fn covered(&self, namespace: Option<&str>) -> Coverage {
        let watched = match (&*self.scope, namespace) {
            (Scope::All, _) => true,
            (Scope::Namespaces(list), Some(namespace)) => list.iter().any(|n| n == namespace),
            (Scope::Namespaces(_), None) => false,
        };
        if !watched {
            return Coverage::NotWatched;
        }
        let Some(cache) = &self.cache else {
            return Coverage::Unknown;
        };
        let complete = cache.complete.load(Ordering::Acquire);
        let sources = lock(&cache.sources);
        let source = sources
            .iter()
            .find(|s| s.namespace.is_none() || s.namespace.as_deref() == namespace);
        match source {
            Some(source) => match source.refusal() {
                Some(refusal) => Coverage::NotPermitted(refusal.clone()),
                None if complete && source.synced => Coverage::Complete,
                None => Coverage::Unknown,
            },
            None => Coverage::Unknown,
        }
    }

    /// What is known of an object; `namespace` is empty for cluster-scoped kinds.
    pub fn find(&self, namespace: &str, name: &str) -> Found<K> {
        self.found(Some(namespace).filter(|n| !n.is_empty()), name)
    }

    /// What is known of a cluster-scoped object.
    pub fn find_cluster(&self, name: &str) -> Found<K> {
        self.found(None, name)
    }

    fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
        let coverage = self.covered(namespace);
        let cache = self.cache.as_ref();
        if let Some(cache) = cache.filter(|c| c.complete.load(Ordering::Acquire)) {
            let last = match namespace {
                Some(namespace) => self.get(namespace, name),
                None => self.get_cluster(name),
            };
            if let Some(error) = cache.error(namespace, name) {
                return Found::NotDecodable { error, last };
            }
            // What was known before a right went stays known.
            if let Some(object) = last {
                return Found::Present(object);
            }
        }
        match coverage {
            Coverage::Complete => Found::Absent,
            Coverage::NotWatched => Found::NotWatched,
            Coverage::NotPermitted(problem) => Found::NotPermitted(problem),
            Coverage::Unknown => Found::Unknown,
        }
    }

    /// A namespaced object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let key = ObjectRef::new_with(name, self.dyntype.clone()).within(namespace);
        // kube falls back to a cluster-scoped object of that name
        self.objects()?.get(&key).filter(|o| o.meta().namespace.is_some())
    }

    /// A cluster-scoped object.
    pub fn get_cluster(&self, name: &str) -> Option<Arc<K>> {
        self.objects()?
            .get(&ObjectRef::new_with(name, self.dyntype.clone()))
    }

    /// All objects, as they are now.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects().map(Store::state).unwrap_or_default()
    }

    /// All objects that `wanted` takes; it must be quick.
    pub fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.objects().map(|s| s.state_filter(wanted)).unwrap_or_default()
    }

    /// How many objects.
    pub fn len(&self) -> usize {
        self.objects().map_or(0, Store::len)
    }

    /// No object, or not running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// kube's own store, for `applier`; `None` if the watch is not running.
    pub fn reflector(&self) -> Option<Store<K>> {
        self.objects().cloned()
    }
}

impl<K: Cached> Handle<K> {
    /// Starts the watch unless it runs, and keeps it running until the guard is dropped.
    pub fn start(&self) -> WatchGuard {
        let mut control = lock(&self.0.control);
        control.users += 1;
        if control.users == 1 {
            control.task = Some(Shared::begin(&self.0));
        }
        drop(control);
        let weak = Arc::downgrade(&self.0);
        WatchGuard(Some(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.release();
            }
        })))
    }

    /// The cache as it is now.
    pub fn store(&self) -> Lookup<K> {
        Lookup {
            cache: self.0.cache.load_full(),
            scope: Arc::clone(&self.0.scope),
            dyntype: self.0.dyntype.clone(),
        }
    }

    /// What is known of an object; `namespace` is empty for cluster-scoped kinds. One look at one moment, unlike [`Handle::is_ready`] and then a look.
    pub fn find(&self, namespace: &str, name: &str) -> Found<K> {
        self.store().find(namespace, name)
    }

    /// What is known of a cluster-scoped object.
    pub fn find_cluster(&self, name: &str) -> Found<K> {
        self.store().find_cluster(name)
    }

    /// What is known of the objects of this namespace as a whole.
    pub fn coverage(&self, namespace: &str) -> Coverage {
        self.store().coverage(namespace)
    }

    /// How the watch of each namespace is doing; empty if the watch does not run.
    pub fn sources(&self) -> Vec<SourceStatus> {
        let cache = self.0.cache.load_full();
        cache.map(|c| lock(&c.sources).clone()).unwrap_or_default()
    }

    /// The first full list is in the store. With [`Scope::Namespaces`] the namespaces that the API server refuses are left
    /// out, as long as there is another one: see [`Handle::coverage`].
    pub fn is_ready(&self) -> bool {
        *self.0.ready.borrow()
    }

    /// Completes when the first full list is in the store, of whichever start. Owns what it needs.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ready = self.0.ready.subscribe();
        // A watch that nobody can start any more never becomes ready.
        async move {
            if ready.wait_for(|r| *r).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Adds a listener. It is told the present state first (`Applied` for each object, and `Ready` if it is), then every
    /// change; `Ready` comes again when a namespace that was refused has been listed. It is called with a lock held: it must be
    /// quick and must not start, stop or listen to the same watch. It may ask the watch everything.
    pub fn listen(&self, listener: Listener<K>) -> ListenGuard {
        let listener: SharedListener<K> = Arc::from(listener);
        let mut gate = lock(&self.0.gate);
        let id = gate.next;
        gate.next += 1;
        gate.listeners.push((id, Arc::clone(&listener)));
        if let Some(state) = gate.state.as_ref().filter(|s| s.first.is_none()) {
            let one = [(id, listener)];
            for new in state.store.state() {
                tell(&one, &Change::Applied { old: None, new });
            }
            tell(&one, &Change::Ready);
        }
        drop(gate);
        let weak: Weak<Shared<K>> = Arc::downgrade(&self.0);
        ListenGuard(Some(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                let mut gate = lock(&shared.gate);
                let at = gate.listeners.iter().position(|(i, _)| *i == id);
                let removed = at.map(|at| gate.listeners.remove(at));
                // What the listener holds may reach back here when it is dropped.
                drop(gate);
                drop(removed);
            }
        })))
    }

    /// Why the watch does not work at the moment.
    pub fn problem(&self) -> Option<Problem> {
        self.0.problem.load_full().map(|p| Problem::clone(&p))
    }

    /// Objects that do not fit their type. The store keeps what it knew of them before.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        let Some(cache) = self.0.cache.load_full() else {
            return Vec::new();
        };
        let mut all: Vec<_> = lock(&cache.bad)
            .iter()
            .map(|(key, bad)| Undecodable {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                error: bad.error.clone(),
            })
            .collect();
        all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        all
    }

    /// This object exists and does not fit its type.
    pub fn is_undecodable(&self, namespace: &str, name: &str) -> bool {
        let namespace = Some(namespace).filter(|n| !n.is_empty());
        let cache = self.0.cache.load_full();
        cache.is_some_and(|c| c.error(namespace, name).is_some())
    }

    /// How the watch is doing.
    pub fn status(&self) -> WatchStatus {
        let cache = self.0.cache.load_full();
        WatchStatus {
            kind: self.0.label.kind.clone(),
            selector: self.0.label.selector.clone(),
            running: cache.is_some(),
            ready: self.is_ready(),
            objects: self.store().len(),
            undecodable: cache.map_or(0, |c| lock(&c.bad).len()),
            problem: self.problem(),
        }
    }

    /// `Ingress.networking.k8s.io/v1`.
    pub fn kind(&self) -> &str {
        &self.0.label.kind
    }
}

/// A listener that panics is a bug of its own and must not end the watch for the others.
fn tell<K>(listeners: &[(u64, SharedListener<K>)], change: &Change<K>) {
    for (_, listener) in listeners {
        if std::panic::catch_unwind(AssertUnwindSafe(|| listener(change))).is_err() {
            tracing::error!("a listener of a watch panicked");
        }
    }
}

impl<K: Cached> Shared<K> {
    /// A new store and the task that fills it.
    fn begin(this: &Arc<Self>) -> AbortOnDropHandle<()> {
        let writer = reflector::store::Writer::<K>::new(this.dyntype.clone());
        let store = writer.as_reader();
        let namespaces: Vec<Option<String>> = match &*this.scope {
            Scope::All => vec![None],
            Scope::Namespaces(list) => list.iter().cloned().map(Some).collect(),
        };
        let mut gate = lock(&this.gate);
        gate.epoch += 1;
        let epoch = gate.epoch;
        let cache = Arc::new(Cache {
            store: store.clone(),
            complete: AtomicBool::new(false),
            sources: Mutex::new(
                namespaces
                    .iter()
                    .map(|namespace| SourceStatus {
                        namespace: namespace.clone(),
                        synced: false,
                        refused: false,
                        problem: None,
                    })
                    .collect(),
            ),
            bad: Mutex::default(),
        });
        this.cache.store(Some(Arc::clone(&cache)));
        gate.state = Some(State {
            writer,
            store,
            cache,
            first: Some(HashMap::new()),
            sources: namespaces
                .iter()
                .map(|namespace| Source {
                    namespace: namespace.clone(),
                    seen: HashSet::new(),
                    refusals: 0,
                })
                .collect(),
        });
        if namespaces.is_empty() {
            this.finish_first(&mut gate);
        }
        drop(gate);
        let this = Arc::clone(this);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let sources = namespaces
                .into_iter()
                .enumerate()
                .map(|(source, namespace)| Arc::clone(&this).supervise(epoch, source, namespace));
            futures::future::join_all(sources).await;
        }))
    }

    /// One guard less; the last one stops the watch and drops the store.
    fn release(&self) {
        let mut control = lock(&self.control);
        control.users = control.users.saturating_sub(1);
        if control.users > 0 {
            return;
        }
        let task = control.task.take();
        let mut gate = lock(&self.gate);
        gate.epoch += 1;
        let state = gate.state.take();
        // In this order: a reader that finds the watch ready and then no cache would take it for an empty one.
        self.ready.send_replace(false);
        self.cache.store(None);
        self.problem.store(None);
        tell(&gate.listeners, &Change::Stopped);
        drop(gate);
        self.metrics.cache_objects.get_or_create(&self.label).set(0);
        self.metrics.cache_undecodable.get_or_create(&self.label).set(0);
        drop(control);
        drop(task);
        drop(state);
    }

    /// Runs the loop of one namespace for ever; a panic in it is a bug, counted, and means a new list.
    async fn supervise(self: Arc<Self>, epoch: u64, source: usize, namespace: Option<String>) {
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1, Jitter::random());
        loop {
            let run = self.follow(epoch, source, namespace.as_deref());
            if AssertUnwindSafe(run).catch_unwind().await.is_err() {
                let problem = Problem {
                    class: ErrorClass::Panic,
                    message: "the watch loop panicked".to_owned(),
                };
                self.failed(epoch, source, problem);
            }
            sleep(backoff.next_wait()).await;
        }
    }

    async fn follow(&self, epoch: u64, source: usize, namespace: Option<&str>) {
        let pulse = Pulse::default();
        let client = paced(&self.client, self.metadata_only, &pulse);
        let api: Api<Guarded<K>> = match namespace {
            None => Api::all_with(client, &self.dyntype),
            Some(namespace) => Api::namespaced_with(client, namespace, &self.dyntype),
        };
        let config = watcher::Config {
            label_selector: self.selector.labels.clone(),
            field_selector: self.selector.fields.clone(),
            ..watcher::Config::default()
        };
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1, Jitter::random());
        loop {
            let events = watcher(api.clone(), config.clone());
            pin_mut!(events);
            let mut listing = true;
            loop {
                let next = if listing {
                    let Ok(next) = timeout(LIST_LIMIT, events.next()).await else {
                        let problem = Problem {
                            class: ErrorClass::Timeout,
                            message: "the list stopped half-way".to_owned(),
                        };
                        self.failed(epoch, source, problem);
                        break;
                    };
                    next
                } else {
                    loop {
                        tokio::select! {
                            next = events.next() => break next,
                            // Nothing may happen for hours on a quiet kind: that the watch stays open says that it works.
                            () = pulse.stays_open() => {
                                self.worked(epoch, source);
                                backoff.reset();
                            }
                        }
                    }
                };
                match next {
                    None => break,
                    Some(Ok(event)) => {
                        match &event {
                            // `Init` precedes every attempt and a page may be followed by an error: no success yet.
                            Event::Init => listing = true,
                            Event::InitApply(_) => {}
                            Event::InitDone => {
                                listing = false;
                                backoff.reset();
                            }
                            Event::Apply(_) | Event::Delete(_) => backoff.reset(),
                        }
                        if !matches!(event, Event::Init) {
                            self.worked(epoch, source);
                        }
                        self.apply(epoch, source, event);
                        // Pages come without an await in between.
                        tokio::task::consume_budget().await;
                    }
                    Some(Err(error)) => {
                        let problem = problem(&error);
                        let limit = match problem.class {
                            // People mend this, not time.
                            ErrorClass::Forbidden => FORBIDDEN_LIMIT,
                            _ => BACKOFF.1,
                        };
                        self.failed(epoch, source, problem);
                        sleep(backoff.next_wait_up_to(limit)).await;
                    }
                }
            }
            sleep(backoff.next_wait()).await;
        }
    }

    fn worked(&self, epoch: u64, source: usize) {
        if self.problem.load().is_some() {
            let mut gate = lock(&self.gate);
            if gate.epoch == epoch {
                self.set_problem(&mut gate, source, None);
            }
        }
        if let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) {
            self.metrics
                .watch_last_event
                .get_or_create(&self.label)
                .set(now.as_secs_f64());
        }
    }

    fn failed(&self, epoch: u64, source: usize, problem: Problem) {
        self.metrics.watch_errors.get_or_create(&self.label).inc();
        let mut gate = lock(&self.gate);
        if gate.epoch == epoch {
            self.set_problem(&mut gate, source, Some(problem));
            if self.is_first_done(&gate) {
                self.finish_first(&mut gate);
            }
        }
    }

    /// Notes how the watch of one namespace is doing; each change is one line in the log.
    fn set_problem(&self, gate: &mut Gate<K>, source: usize, problem: Option<Problem>) {
        let Some(state) = &mut gate.state else { return };
        let Some(this) = state.sources.get_mut(source) else {
            return;
        };
        this.refusals = match &problem {
            Some(problem) if problem.class == ErrorClass::Forbidden => this.refusals.saturating_add(1),
            _ => 0,
        };
        let mut sources = lock(&state.cache.sources);
        let Some(status) = sources.get_mut(source) else {
            return;
        };
        status.refused = this.refusals >= REFUSED;
        if status.problem == problem {
            return;
        }
        let namespace = status.namespace.as_deref();
        match &problem {
            Some(problem) => tracing::warn!(
                kind = %self.label.kind,
                namespace,
                class = problem.class.label(),
                "the watch fails and is tried again: {}",
                problem.message
            ),
            None => tracing::info!(kind = %self.label.kind, namespace, "the watch works again"),
        }
        status.problem = problem;
        // A problem that should pass comes first: a refusal is in the way of its own namespace only.
        let problems = || sources.iter().filter(|s| s.problem.is_some());
        let told = problems().find(|s| s.refusal().is_none());
        let told = told.or_else(|| problems().next());
        self.problem
            .store(told.and_then(|s| s.problem.clone()).map(Arc::new));
    }

    /// The first list of every namespace is there, or the API server refuses it for good. Without a single list nothing is
    /// known.
    fn is_first_done(&self, gate: &Gate<K>) -> bool {
        let Some(state) = gate.state.as_ref().filter(|s| s.first.is_some()) else {
            return false;
        };
        let sources = lock(&state.cache.sources);
        sources.iter().any(|source| source.synced)
            && sources
                .iter()
                .all(|source| source.synced || source.refusal().is_some())
    }

    fn apply(&self, epoch: u64, source: usize, event: Event<Guarded<K>>) {
        let mut gate = lock(&self.gate);
        if gate.epoch != epoch {
            return;
        }
        match event {
            Event::Init => {
                if let Some(s) = gate.state.as_mut().and_then(|s| s.sources.get_mut(source)) {
                    s.seen = HashSet::new();
                }
            }
            Event::InitApply(object) => {
                let key = key_of(object.meta());
                self.upsert(&mut gate, key.clone(), object);
                if let Some(s) = gate.state.as_mut().and_then(|s| s.sources.get_mut(source)) {
                    s.seen.insert(key);
                }
            }
            Event::Apply(object) => self.upsert(&mut gate, key_of(object.meta()), object),
            Event::Delete(object) => self.remove(&mut gate, &key_of(object.meta())),
            Event::InitDone => self.listed(&mut gate, source),
        }
        if let Some(state) = &gate.state {
            let objects = i64::try_from(state.store.len()).unwrap_or(i64::MAX);
            let bad = i64::try_from(lock(&state.cache.bad).len()).unwrap_or(i64::MAX);
            self.metrics.cache_objects.get_or_create(&self.label).set(objects);
            self.metrics.cache_undecodable.get_or_create(&self.label).set(bad);
        }
    }

    /// The end of a list: what it did not show is gone. Nothing is buffered for a relist: each object was compared as it
    /// came, so the store is never held twice.
    fn listed(&self, gate: &mut Gate<K>, source: usize) {
        let Some(state) = &mut gate.state else { return };
        let Some(this) = state.sources.get_mut(source) else {
            return;
        };
        let seen = std::mem::take(&mut this.seen);
        let namespace = this.namespace.clone();
        let here = |key: &Key| namespace.is_none() || key.namespace == namespace;
        let mut gone: HashSet<Key> = lock(&state.cache.bad).keys().cloned().collect();
        match &state.first {
            Some(first) => gone.extend(first.keys().cloned()),
            None => gone.extend(state.store.state().iter().map(|o| key_of(o.meta()))),
        }
        gone.retain(|key| here(key) && !seen.contains(key));
        for key in gone {
            self.remove(gate, &key);
        }
        let Some(state) = &gate.state else { return };
        let late = {
            let mut sources = lock(&state.cache.sources);
            let Some(status) = sources.get_mut(source) else {
                return;
            };
            !std::mem::replace(&mut status.synced, true) && state.first.is_none()
        };
        if self.is_first_done(gate) {
            self.finish_first(gate);
        } else if late {
            // A namespace that was refused before: answers about it are others now.
            tell(&gate.listeners, &Change::Ready);
        }
    }

    /// The first full list of every namespace is there: into the store at once, then told.
    fn finish_first(&self, gate: &mut Gate<K>) {
        let Some(state) = &mut gate.state else { return };
        for (_, object) in state.first.take().unwrap_or_default() {
            state.writer.apply_watcher_event(&Event::InitApply(object));
        }
        state.writer.apply_watcher_event(&Event::InitDone);
        for new in state.store.state() {
            tell(&gate.listeners, &Change::Applied { old: None, new });
        }
        state.cache.complete.store(true, Ordering::Release);
        self.ready.send_replace(true);
        tell(&gate.listeners, &Change::Ready);
    }

    fn upsert(&self, gate: &mut Gate<K>, key: Key, object: Guarded<K>) {
        let Gate { listeners, state, .. } = gate;
        let Some(state) = state else { return };
        let mut object = match object {
            Guarded::Good(object) => object,
            Guarded::Bad(bad) => return self.keep_old(state, listeners, key, bad),
        };
        object.meta_mut().managed_fields = None;
        if let Some(first) = &mut state.first {
            lock(&state.cache.bad).remove(&key);
            first.insert(key, object);
            return;
        }
        let reference = self.reference(&key);
        let mut old = state.store.get(&reference);
        if let Some(known) = &old {
            if known.meta().uid != object.meta().uid {
                tell(
                    listeners,
                    &Change::Deleted {
                        old: Arc::clone(known),
                    },
                );
                old = None;
            } else if known.meta().resource_version == object.meta().resource_version {
                lock(&state.cache.bad).remove(&key);
                return;
            }
        }
        state.writer.apply_watcher_event(&Event::Apply(object));
        // Last: a reader in between must not find it absent.
        lock(&state.cache.bad).remove(&key);
        if let Some(new) = state.store.get(&reference) {
            tell(listeners, &Change::Applied { old, new });
        }
    }

    /// An object turned bad: the old copy stays and is marked, unless it is another incarnation's.
    fn keep_old(
        &self,
        state: &mut State<K>,
        listeners: &[(u64, SharedListener<K>)],
        key: Key,
        bad: Box<Bad>,
    ) {
        let (version, uid, error) = (
            bad.metadata.resource_version.clone(),
            bad.metadata.uid.clone(),
            bad.error.clone(),
        );
        // First: a reader in between must not find it absent.
        let known = lock(&state.cache.bad).insert(key.clone(), bad);
        if known.is_none_or(|known| known.metadata.resource_version != version) {
            tracing::warn!(
                kind = %self.label.kind,
                namespace = key.namespace.as_deref().unwrap_or_default(),
                name = %key.name,
                "an object does not fit its type and is left out: {error}"
            );
        }
        if let Some(first) = &mut state.first {
            if first.get(&key).is_some_and(|o| o.meta().uid != uid) {
                first.remove(&key);
            }
        } else if let Some(old) = state
            .store
            .get(&self.reference(&key))
            .filter(|o| o.meta().uid != uid)
        {
            state.writer.apply_watcher_event(&Event::Delete(K::clone(&old)));
            tell(listeners, &Change::Deleted { old });
        }
    }

    fn remove(&self, gate: &mut Gate<K>, key: &Key) {
        let Gate { listeners, state, .. } = gate;
        let Some(state) = state else { return };
        lock(&state.cache.bad).remove(key);
        if let Some(first) = &mut state.first {
            first.remove(key);
        } else if let Some(old) = state.store.get(&self.reference(key)) {
            state.writer.apply_watcher_event(&Event::Delete(K::clone(&old)));
            tell(listeners, &Change::Deleted { old });
        }
    }

    fn reference(&self, key: &Key) -> ObjectRef<K> {
        let reference = ObjectRef::new_with(&key.name, self.dyntype.clone());
        match &key.namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        }
    }
}

fn key_of(meta: &ObjectMeta) -> Key {
    Key {
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

fn problem(error: &watcher::Error) -> Problem {
    let (class, message) = match error {
        watcher::Error::InitialListFailed(e) => {
            let (class, text) = classify(e);
            (class, format!("list: {text}"))
        }
        watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => {
            let (class, text) = match e {
                // The text body of a 404 or 5xx is parsed as an event: says nothing about what is served.
                kube::Error::SerdeError(_) => (
                    ErrorClass::Transient,
                    "the answer is no stream of events".to_owned(),
                ),
                e => classify(e),
            };
            (class, format!("watch: {text}"))
        }
        watcher::Error::WatchError(status) => (classify_status(status), format!("watch: {}", status.message)),
        watcher::Error::NoResourceVersion => (
            ErrorClass::Invalid,
            "list: an answer without resourceVersion".to_owned(),
        ),
    };
    Problem { class, message }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::runtime::script::Script;

    #[tokio::test(start_paused = true)]
    async fn what_a_stopped_watch_still_brings_does_not_reach_the_next_one() {
        let hub = WatchHub::new(Script::default().client(), Metrics::default());
        let handle = hub.typed::<ConfigMap>(&Scope::All, &Selector::default());
        let event = || {
            let object = ConfigMap {
                metadata: ObjectMeta {
                    name: Some("late".to_owned()),
                    namespace: Some("ns".to_owned()),
                    ..ObjectMeta::default()
                },
                ..ConfigMap::default()
            };
            Event::Apply(Guarded::Good(object))
        };
        drop(handle.start());
        let old = lock(&handle.0.gate).epoch;
        let _running = handle.start();
        handle.ready().await;
        handle.0.apply(old, 0, event());
        assert!(handle.store().get("ns", "late").is_none());
        handle.0.apply(old + 1, 0, event());
        assert!(handle.store().get("ns", "late").is_some());
    }
}
