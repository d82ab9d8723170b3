//! From watches to the model: what listeners are told is queued, and one task takes the queue in, batch by batch. Nothing
//! is concluded before every cache is complete and everything that answers name was asked for.
//!
//! When a watch is stopped and started again, what it does not show any more is gone; until it is complete, nothing is
//! concluded.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use indexmap::IndexMap;
use kube::{Client, Resource, ResourceExt, core::PartialObjectMeta};
use reconcile_kit::{
    ErrorClass,
    error::classify,
    runtime::{
        Change, Handle,
        hub::{Cached, ListenGuard},
        jitter::Jitter,
    },
};
use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep_until, timeout},
};

use super::{
    World,
    contents::{Contents, Read, Steps},
    lock,
    watched::{Content, Marker, Watched},
    watches::Watches,
};
use crate::tyk::{
    objects::{self, Event, Key, Kind, Object},
    verdict::Changes,
};

/// Annotation of Gateway API's CRDs.
const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
/// The namespace whose uid stands for the cluster.
const CLUSTER: &str = "kube-system";
/// Reads at once.
const READS: usize = 8;
/// A read must be answered within this time.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// News wait no longer than this for contents that they name for the first time.
const HOLD_LIMIT: Duration = Duration::from_secs(3);
/// A batch of so many events is taken in beside the other tasks, and in parts of this size.
const LARGE: usize = 200;

/// What a listener says. `source` is the number of its watch.
enum Message {
    Seen {
        source: usize,
        key: Key,
        content: Content,
        /// A controller of this kind has something to look at.
        look: bool,
    },
    Gone {
        source: usize,
        key: Key,
    },
    /// The metadata of a Secret or ConfigMap is another, or gone.
    Announced(Kind, Key),
    /// A CRD of Gateway API, with its bundle-version if it has one; or that there is no such CRD.
    Crd(usize, Option<Option<String>>),
    Ready(usize),
    CrdReady(usize),
    Stopped(usize),
    CrdStopped(usize),
}

/// The queue. Listeners hold a lock of their watch: nothing here takes long.
#[derive(Clone, Default)]
struct Inbox(Arc<(Mutex<Vec<Message>>, Notify)>);

impl Inbox {
    fn push(&self, message: Message) {
        lock(&self.0.0).push(message);
        self.0.1.notify_one();
    }

    fn drain(&self) -> Vec<Message> {
        std::mem::take(&mut *lock(&self.0.0))
    }

    async fn arrived(&self) {
        self.0.1.notified().await;
    }
}

/// One watch.
#[derive(Debug)]
struct Source {
    kind: Kind,
    complete: bool,
    /// What it shows.
    keys: BTreeSet<Key>,
    /// What it has shown since it was started; `None` once it is complete.
    fresh: Option<BTreeSet<Key>>,
}

/// One of Gateway API's CRDs.
struct Crd {
    name: String,
    ready: bool,
    version: Option<Option<String>>,
}

/// See the module.
pub(super) struct Feed {
    world: World,
    client: Client,
    watches: Watches,
    inbox: Inbox,
    sources: Vec<Source>,
    crds: Vec<Crd>,
    told_bundles: bool,
    /// What the model was not told yet, the last word for each object.
    pending: IndexMap<(Kind, Key), Event>,
    bundles: Option<Event>,
    looks: Changes,
    contents: Contents,
    /// Since when news are held back.
    held: Option<Instant>,
    open: bool,
    reads: FuturesUnordered<BoxFuture<'static, (Kind, Key, Read)>>,
    permits: Arc<Semaphore>,
    _listening: Vec<ListenGuard>,
}

/// Kinds from which it follows which Secrets and ConfigMaps are named.
fn names_contents(kind: Kind) -> bool {
    !matches!(kind, Kind::HttpRoute | Kind::EndpointSlice | Kind::Namespace)
}

impl Feed {
    /// Listens to the watches, before they are started.
    pub(super) fn new(world: World, client: Client, watches: Watches) -> Self {
        let inbox = Inbox::default();
        let mut feed = Self {
            crds: Vec::new(),
            sources: Vec::new(),
            told_bundles: false,
            pending: IndexMap::new(),
            bundles: None,
            looks: Changes::default(),
            contents: Contents::new(Jitter::random()),
            held: None,
            open: false,
            reads: FuturesUnordered::new(),
            permits: Arc::new(Semaphore::new(READS)),
            _listening: Vec::new(),
            world,
            client,
            watches: watches.clone(),
            inbox,
        };
        feed.watch(&watches.own.classes);
        feed.watch(&watches.own.gateways);
        feed.watch(&watches.own.routes);
        feed.watch(&watches.own.definitions);
        feed.watch(&watches.grants);
        feed.watch(&watches.contexts);
        feed.watch(&watches.services);
        feed.watch(&watches.secrets);
        feed.watch(&watches.config_maps);
        watches.slices.iter().for_each(|slices| feed.watch(slices));
        feed.watch_namespaces(&watches);
        for (name, crd) in &watches.crds {
            feed.watch_crd(name, crd);
        }
        feed
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    fn source(&mut self, kind: Kind) -> usize {
        self.sources.push(Source {
            kind,
            complete: false,
            keys: BTreeSet::new(),
            fresh: Some(BTreeSet::new()),
        });
        self.sources.len() - 1
    }

    fn listen<K: Cached>(
        &mut self,
        handle: &Handle<K>,
        message: impl Fn(&Change<K>) -> Option<Message> + Send + Sync + 'static,
    ) {
        let inbox = self.inbox.clone();
        let listener = handle.listen(Box::new(move |change| {
            if let Some(message) = message(change) {
                inbox.push(message);
            }
        }));
        self._listening.push(listener);
    }

    fn watch<M: Marker>(&mut self, handle: &Handle<Watched<M>>) {
        let source = self.source(M::KIND);
        let contents = matches!(M::KIND, Kind::Secret | Kind::ConfigMap);
        self.listen(handle, move |change| match change {
            Change::Applied { new, .. } if contents => Some(Message::Announced(M::KIND, new.key())),
            Change::Deleted { old } if contents => Some(Message::Announced(M::KIND, old.key())),
            Change::Applied { old, new } => Some(Message::Seen {
                source,
                key: new.key(),
                content: new.take()?,
                look: M::STATUS && old.as_ref().is_none_or(|old| new.differs(old)),
            }),
            Change::Deleted { old } => Some(Message::Gone {
                source,
                key: old.key(),
            }),
            Change::Ready => Some(Message::Ready(source)),
            Change::Stopped => Some(Message::Stopped(source)),
        });
    }

    fn watch_namespaces(&mut self, watches: &Watches) {
        let source = self.source(Kind::Namespace);
        let world = self.world.clone();
        self.listen(&watches.namespaces, move |change| match change {
            Change::Applied { new, .. } => {
                let name = new.name_any();
                if name == CLUSTER
                    && let Some(uid) = new.uid()
                {
                    lock(&world.0.cluster).get_or_insert(uid);
                }
                let mut labels = new.labels().clone();
                labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
                let key = Key::cluster(name);
                let namespace = objects::Namespace {
                    key: key.clone(),
                    labels,
                };
                Some(Message::Seen {
                    source,
                    key,
                    content: Ok(Box::new(Object::Namespace(namespace))),
                    look: false,
                })
            }
            Change::Deleted { old } => Some(Message::Gone {
                source,
                key: Key::cluster(old.name_any()),
            }),
            Change::Ready => Some(Message::Ready(source)),
            Change::Stopped => Some(Message::Stopped(source)),
        });
    }

    fn watch_crd<K>(&mut self, name: &str, handle: &Handle<PartialObjectMeta<K>>)
    where
        PartialObjectMeta<K>: Cached + Resource,
    {
        let at = self.crds.len();
        self.crds.push(Crd {
            name: name.to_owned(),
            ready: false,
            version: None,
        });
        self.listen(handle, move |change| {
            Some(match change {
                Change::Applied { new, .. } => {
                    Message::Crd(at, Some(new.annotations().get(BUNDLE_VERSION).cloned()))
                }
                Change::Deleted { .. } => Message::Crd(at, None),
                Change::Ready => Message::CrdReady(at),
                Change::Stopped => Message::CrdStopped(at),
            })
        });
    }

    /// Takes in what comes, for ever; nothing is lost when this is dropped and called again.
    pub(super) async fn run(&mut self) {
        loop {
            for message in self.inbox.drain() {
                self.take(message);
            }
            self.step().await;
            let due = self.due();
            let timer = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let read = tokio::select! {
                () = self.inbox.arrived() => None,
                Some(read) = self.reads.next() => Some(read),
                () = timer => None,
            };
            if let Some((kind, key, read)) = read {
                let version = self.announced(kind, &key);
                let steps = self.contents.done(kind, &key, read, version, Instant::now());
                self.take_steps(steps);
            }
        }
    }

    /// When there is something to do though nothing comes; never before every watch is complete, since nothing is done
    /// until then.
    fn due(&self) -> Option<Instant> {
        let due = [self.contents.next(), self.held.map(|since| since + HOLD_LIMIT)];
        due.into_iter().flatten().min().filter(|_| self.complete())
    }

    fn complete(&self) -> bool {
        self.sources.iter().all(|source| source.complete)
    }

    /// The world is not fed any more: nothing may be concluded.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.held = None;
        lock(&self.world.0.state).close();
        self.world.0.ready.send_replace(false);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Seen {
                source,
                key,
                content,
                look,
            } => self.seen(source, key, content, look),
            Message::Gone { source, key } => self.gone(source, &key),
            Message::Announced(kind, key) => {
                if self.contents.names(kind, &key) {
                    let version = self.announced(kind, &key);
                    let steps = self.contents.announced(kind, &key, version, Instant::now());
                    self.take_steps(steps);
                }
            }
            Message::Ready(source) => self.completed(source),
            Message::Stopped(source) => {
                if let Some(source) = self.sources.get_mut(source) {
                    source.complete = false;
                    source.fresh = Some(BTreeSet::new());
                }
                self.close();
            }
            Message::Crd(at, version) => {
                if let Some(crd) = self.crds.get_mut(at) {
                    crd.version = version;
                }
                self.told_bundles = false;
            }
            Message::CrdReady(at) => {
                if let Some(crd) = self.crds.get_mut(at) {
                    crd.ready = true;
                }
                self.told_bundles = false;
            }
            Message::CrdStopped(at) => {
                // What is known stays; a new start shows what is there then.
                if let Some(crd) = self.crds.get_mut(at) {
                    (crd.ready, crd.version) = (false, None);
                }
            }
        }
        if !self.told_bundles && self.crds.iter().all(|crd| crd.ready) {
            self.told_bundles = true;
            let there = self
                .crds
                .iter()
                .filter_map(|crd| Some((crd.name.clone(), crd.version.clone()?)));
            self.bundles = Some(Event::Bundles(there.collect()));
        }
    }

    fn seen(&mut self, source: usize, key: Key, content: Content, look: bool) {
        let Some(source) = self.sources.get_mut(source) else {
            return;
        };
        source.keys.insert(key.clone());
        if let Some(fresh) = &mut source.fresh {
            fresh.insert(key.clone());
        }
        let kind = source.kind;
        if look {
            self.look(kind, &key);
        }
        match content {
            Ok(object) => {
                lock(&self.world.0.state).unknown(kind, &key, false);
                self.pending.insert((kind, key), Event::Seen(object));
            }
            Err(why) => {
                tracing::warn!(%kind, object = %key, "cannot be read; what was known of it stays: {why}");
                let known = match self.pending.get(&(kind, key.clone())) {
                    Some(event) => matches!(event, Event::Seen(_)),
                    None => lock(&self.world.0.state).model().has(kind, &key),
                };
                // An answer must not take it for absent.
                lock(&self.world.0.state).unknown(kind, &key, !known);
            }
        }
    }

    fn gone(&mut self, at: usize, key: &Key) {
        let Some(source) = self.sources.get_mut(at) else {
            return;
        };
        source.keys.remove(key);
        if let Some(fresh) = &mut source.fresh {
            fresh.remove(key);
        }
        let kind = source.kind;
        let elsewhere = |(index, source): (usize, &Source)| {
            index != at && source.kind == kind && source.keys.contains(key)
        };
        if self.sources.iter().enumerate().any(elsewhere) {
            return;
        }
        self.look(kind, key);
        lock(&self.world.0.state).unknown(kind, key, false);
        self.pending
            .insert((kind, key.clone()), Event::Gone(kind, key.clone()));
    }

    fn look(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::GatewayClass => self.looks.classes.insert(key.name.clone()),
            Kind::Gateway => self.looks.gateways.insert(key.clone()),
            Kind::HttpRoute => self.looks.routes.insert(key.clone()),
            Kind::TykOasApiDefinition => self.looks.definitions.insert(key.clone()),
            _ => false,
        };
    }

    /// The first full list of a start is there: what it did not show is gone.
    fn completed(&mut self, at: usize) {
        let Some(source) = self.sources.get_mut(at) else {
            return;
        };
        source.complete = true;
        let fresh = source.fresh.take().unwrap_or_default();
        let gone: Vec<Key> = source.keys.difference(&fresh).cloned().collect();
        for key in gone {
            self.gone(at, &key);
        }
        let kind = self.sources.get(at).map(|source| source.kind);
        if let Some(kind @ (Kind::Secret | Kind::ConfigMap)) = kind {
            let named: Vec<_> = self
                .contents
                .named()
                .filter(|(of, _)| *of == kind)
                .cloned()
                .collect();
            for (kind, key) in named {
                let version = self.announced(kind, &key);
                let steps = self.contents.announced(kind, &key, version, Instant::now());
                self.take_steps(steps);
            }
        }
    }

    /// The resourceVersion of a Secret or ConfigMap as its metadata shows it.
    fn announced(&self, kind: Kind, key: &Key) -> Option<String> {
        announced(&self.watches, kind, key)
    }

    fn take_steps(&mut self, steps: Steps) {
        let mut state = lock(&self.world.0.state);
        for (kind, key, is) in steps.unknown {
            state.unknown(kind, &key, is);
        }
        drop(state);
        for event in steps.events {
            let at = match &event {
                Event::Seen(object) => {
                    let (kind, key) = object.id();
                    (kind, key.clone())
                }
                Event::Gone(kind, key) | Event::Unreadable(kind, key, _) => (*kind, key.clone()),
                Event::Bundles(_) => continue,
            };
            self.pending.insert(at, event);
        }
    }

    /// Takes in what is pending, reads what it names, and tells what came of it as soon as that may be told.
    async fn step(&mut self) {
        if !self.complete() {
            return;
        }
        // The first time (and after a stop) routes come last: they are many, and each hangs on what is read before.
        let routes = (!self.open).then(|| self.take_routes());
        self.apply().await;
        self.begin_reads();
        let waiting = self.contents.first_reads();
        if let Some(routes) = routes {
            self.pending.extend(routes);
            if waiting {
                return;
            }
            self.apply().await;
            self.open = true;
        } else if waiting {
            let since = *self.held.get_or_insert_with(Instant::now);
            if since.elapsed() < HOLD_LIMIT {
                return;
            }
        }
        self.held = None;
        let looks = std::mem::take(&mut self.looks);
        lock(&self.world.0.state).look(looks);
        self.world.publish();
    }

    fn take_routes(&mut self) -> IndexMap<(Kind, Key), Event> {
        let (routes, others) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|((kind, _), _)| *kind == Kind::HttpRoute);
        self.pending = others;
        routes
    }

    /// Tells the model what is pending, and asks it what is named now.
    async fn apply(&mut self) {
        loop {
            let bundles = self.bundles.take();
            if self.pending.is_empty() && bundles.is_none() {
                return;
            }
            let named = self.pending.keys().any(|(kind, _)| names_contents(*kind));
            let events: Vec<Event> = std::mem::take(&mut self.pending)
                .into_values()
                .chain(bundles)
                .collect();
            if events.len() < LARGE {
                lock(&self.world.0.state).apply(events);
            } else {
                let world = self.world.clone();
                let apply = tokio::task::spawn_blocking(move || {
                    // In parts: what lives only while answers are made is as large as the part, and nothing is told
                    // before the last one.
                    let mut events = events.into_iter();
                    while events.len() > 0 {
                        lock(&world.0.state).apply(events.by_ref().take(LARGE));
                    }
                });
                if let Err(error) = apply.await {
                    // A bug; the panic has told where. The next events are taken in all the same.
                    tracing::error!("taking events in failed: {error}");
                }
            }
            if named {
                let named = lock(&self.world.0.state).model().named();
                let watches = &self.watches;
                let steps =
                    self.contents
                        .want(&named, |kind, key| announced(watches, kind, key), Instant::now());
                self.take_steps(steps);
            }
        }
    }

    fn begin_reads(&mut self) {
        for (kind, key) in self.contents.begin(Instant::now()) {
            let (client, permits) = (self.client.clone(), Arc::clone(&self.permits));
            self.reads.push(Box::pin(async move {
                // Never closed.
                let _permit = permits.acquire().await;
                let read = match timeout(READ_LIMIT, read(&client, kind, &key)).await {
                    Ok(read) => read,
                    Err(_) => Read::Failed("no answer in time".to_owned()),
                };
                (kind, key, read)
            }));
        }
    }
}

fn announced(watches: &Watches, kind: Kind, key: &Key) -> Option<String> {
    fn version<M: Marker>(handle: &Handle<Watched<M>>, key: &Key) -> Option<String> {
        handle
            .store()
            .get(&key.namespace, &key.name)?
            .meta()
            .resource_version
            .clone()
    }
    match kind {
        Kind::Secret => version(&watches.secrets, key),
        Kind::ConfigMap => version(&watches.config_maps, key),
        _ => None,
    }
}

/// Reads a Secret or ConfigMap and keeps what it amounts to.
async fn read(client: &Client, kind: Kind, key: &Key) -> Read {
    let plural = if kind == Kind::Secret {
        "secrets"
    } else {
        "configmaps"
    };
    let path = format!("/api/v1/namespaces/{}/{plural}/{}", key.namespace, key.name);
    let request = match http::Request::get(path).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Read::Failed(error.to_string()),
    };
    let value: Value = match client.request(request).await {
        Ok(value) => value,
        Err(error) => {
            let (class, said) = classify(&error);
            return match class {
                ErrorClass::Forbidden => Read::Forbidden(said),
                ErrorClass::NotFound => Read::NotFound,
                _ => Read::Failed(said),
            };
        }
    };
    let version = value.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let version = version.unwrap_or_default().to_owned();
    let object = match kind {
        Kind::Secret => objects::Secret::decode(&value).map(Object::Secret),
        _ => objects::ConfigMap::decode(&value).map(Object::ConfigMap),
    };
    match object {
        Ok(object) => Read::Found(Box::new(object), version),
        Err(why) => Read::Failed(why.to_string()),
    }
}
