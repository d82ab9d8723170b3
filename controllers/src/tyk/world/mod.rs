//! The living model: watches feed it, controllers ask it. Here: asking. Nothing is decided and nothing is written.
//!
//! `watched` is what the watches hold, `state` the model with what is not known yet; `feed` takes events in, `contents`
//! reads the Secrets and ConfigMaps that answers name.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Client, Resource};
use reconcile_kit::runtime::{Handle, WatchHub, hub::WatchGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Settings,
    model::Model,
    objects::{Event, Key, Kind},
    verdict::{Changes, ClassVerdict, Connection, DefinitionVerdict, GatewayVerdict, RouteVerdict},
};

mod contents;
mod feed;
mod state;
pub mod watched;
pub mod watches;

use feed::Feed;
use state::State;
pub use watched::{Watched, WatchedClass, WatchedDefinition, WatchedGateway, WatchedRoute};
use watches::Watches;

/// What is known about an object's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<T> {
    /// It is not there, or nothing of ours.
    None,
    /// It hangs on an object that was announced and whose content has not been read yet. Nothing may be concluded.
    Pending(Kind, Key),
    /// The answer.
    Known(T),
}

/// Told whom to look at: whose answer changed, whose answer need not wait any more, and who changed itself. Called with
/// nothing locked; it must be quick.
pub type Told = Box<dyn Fn(&Changes) + Send + Sync>;

/// What controllers ask. Cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    told: Mutex<Vec<Arc<Told>>>,
    ready: watch::Sender<bool>,
    /// The caches of those kinds that answers are about; `None` without watches.
    caches: Option<Caches>,
    cluster: Mutex<Option<String>>,
}

/// Caches of the kinds that controllers write to.
#[derive(Clone, Debug)]
pub struct Caches {
    /// GatewayClasses
    pub classes: Handle<WatchedClass>,
    /// Gateways
    pub gateways: Handle<WatchedGateway>,
    /// HTTPRoutes
    pub routes: Handle<WatchedRoute>,
    /// TykOasApiDefinitions
    pub definitions: Handle<WatchedDefinition>,
}

/// What feeds a world. Cheap to clone.
#[derive(Clone)]
pub struct Feeding {
    feed: Arc<tokio::sync::Mutex<Feed>>,
    watches: Watches,
}

impl fmt::Debug for Feeding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feeding").finish_non_exhaustive()
    }
}

impl Feeding {
    /// Starts every watch, and keeps them running until the guards are dropped.
    pub fn start(&self) -> Vec<WatchGuard> {
        self.watches.start()
    }

    /// Feeds the world until `stop`; `running` is called when answers can be given. Afterwards nothing may be concluded
    /// until it runs again.
    pub async fn run(&self, stop: CancellationToken, running: impl FnOnce()) {
        let mut feed = self.feed.lock().await;
        let ready = feed.world().ready();
        let told = async {
            ready.await;
            running();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = feed.run() => {}
            () = told => {}
        }
        feed.close();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new(settings: Settings, cluster: Option<String>, caches: Option<Caches>) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State::new(Model::new(settings))),
            told: Mutex::default(),
            ready: watch::Sender::new(false),
            caches,
            cluster: Mutex::new(cluster),
        }))
    }

    /// A world that is fed from the cluster, once its feeding runs. `cluster`: what the flag says.
    pub fn of_cluster(
        hub: &WatchHub,
        client: Client,
        settings: Settings,
        cluster: Option<String>,
    ) -> (Self, Feeding, Caches) {
        let watches = Watches::new(hub);
        let caches = watches.own.clone();
        let world = Self::new(settings, cluster, Some(caches.clone()));
        let feed = Feed::new(world.clone(), client, watches.clone());
        let feeding = Feeding {
            feed: Arc::new(tokio::sync::Mutex::new(feed)),
            watches,
        };
        (world, feeding, caches)
    }

    /// A world that knows what these events say, and hears nothing else: for tests of who asks.
    pub fn still(settings: Settings, cluster: &str, events: impl IntoIterator<Item = Event>) -> Self {
        let world = Self::new(settings, Some(cluster.to_owned()), None);
        lock(&world.0.state).apply(events);
        world.publish();
        world
    }

    /// Tells a world of [`World::still`] more.
    pub fn say(&self, events: impl IntoIterator<Item = Event>) {
        lock(&self.0.state).apply(events);
        self.publish();
    }

    /// Answer for a GatewayClass; `None` if it is not there or not ours.
    pub fn class(&self, name: &str) -> Answer<ClassVerdict> {
        let cached = |caches: &Caches| current(&caches.classes, &Key::cluster(name));
        self.ask(Kind::GatewayClass, &Key::cluster(name), cached, |model| {
            model.class(name)
        })
    }

    /// Answer for a Gateway; `None` if it is not there or its class is not ours.
    pub fn gateway(&self, key: &Key) -> Answer<GatewayVerdict> {
        let cached = |caches: &Caches| current(&caches.gateways, key);
        self.ask(Kind::Gateway, key, cached, |model| model.gateway(key))
    }

    /// Answer for an HTTPRoute; `None` if it is not there or has no parent of ours.
    pub fn route(&self, key: &Key) -> Answer<RouteVerdict> {
        let cached = |caches: &Caches| current(&caches.routes, key);
        self.ask(Kind::HttpRoute, key, cached, |model| model.route(key))
    }

    /// Answer for a TykOasApiDefinition; `None` if it is not there or has no targetRefs.
    pub fn definition(&self, key: &Key) -> Answer<DefinitionVerdict> {
        let cached = |caches: &Caches| current(&caches.definitions, key);
        self.ask(Kind::TykOasApiDefinition, key, cached, |model| {
            model.definition(key)
        })
    }

    /// Which cluster this is, for owner keys: what the flag says, or the uid of the namespace kube-system; `None` as
    /// long as that is not known.
    pub fn cluster(&self) -> Option<String> {
        lock(&self.0.cluster).clone()
    }

    /// Whether there is an HTTPRoute of this name, whosever it is; `None` while not all of them are known. What either the
    /// cache or the model shows is there.
    pub fn exists(&self, route: &Key) -> Option<bool> {
        if !*self.0.ready.borrow() {
            return None;
        }
        let cached = |caches: &Caches| caches.routes.store().get(&route.namespace, &route.name).is_some();
        if self.0.caches.as_ref().is_some_and(cached) {
            return Some(true);
        }
        let state = lock(&self.0.state);
        let unread = state.waits(Kind::HttpRoute, route).is_some();
        let there = state.model().has(Kind::HttpRoute, route);
        (there || !unread).then_some(there)
    }

    /// The Tyks that classes of ours lead to.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let state = lock(&self.0.state);
        state.model().connections().cloned().collect()
    }

    /// Whether a GatewayClass of this installation names an OperatorContext now, readable or not.
    pub fn names(&self, context: &Key) -> bool {
        lock(&self.0.state).model().names(context)
    }

    /// The Secret that a context names.
    pub fn secret_of(&self, context: &Key) -> Option<Key> {
        lock(&self.0.state).model().secret_of(context)
    }

    /// The route could not be served through these Gateways: their listeners do not count it, until the next word.
    pub fn failing(&self, route: &Key, gateways: BTreeSet<Key>) {
        let changes = lock(&self.0.state).fail(route, gateways);
        self.tell(&changes);
    }

    /// Adds somebody to be told.
    pub fn listen(&self, told: Told) {
        lock(&self.0.told).push(Arc::new(told));
    }

    /// Completes when answers can be given: every cache is complete, and what they name was asked for.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ready = self.0.ready.subscribe();
        async move {
            if ready.wait_for(|ready| *ready).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn publish(&self) {
        let changes = lock(&self.0.state).publish();
        self.0.ready.send_replace(true);
        self.tell(&changes);
    }

    fn tell(&self, changes: &Changes) {
        if *changes == Changes::default() {
            return;
        }
        let told: Vec<Arc<Told>> = lock(&self.0.told).clone();
        told.iter().for_each(|told| told(changes));
    }

    /// An answer about what the cache shows now: a cache that is ahead of the model is caught up with in a moment, and
    /// the change then wakes who asked.
    fn ask<T: Clone>(
        &self,
        kind: Kind,
        key: &Key,
        cached: impl Fn(&Caches) -> Option<(String, i64)>,
        answer: impl Fn(&Model) -> Option<&T>,
    ) -> Answer<T> {
        let state = lock(&self.0.state);
        if let Some((kind, key)) = state.waits(kind, key) {
            return Answer::Pending(kind, key);
        }
        let model = state.model();
        if let Some(caches) = &self.0.caches {
            let cached = cached(caches);
            let cached = cached
                .as_ref()
                .map(|(uid, generation)| (uid.as_str(), *generation));
            if cached != model.stamp(kind, key) {
                return Answer::Pending(kind, key.clone());
            }
        }
        answer(model).cloned().map_or(Answer::None, Answer::Known)
    }
}

/// uid and generation of an object as its cache shows it.
fn current<M: watched::Marker>(handle: &Handle<Watched<M>>, key: &Key) -> Option<(String, i64)> {
    let store = handle.store();
    let object = if key.namespace.is_empty() {
        store.get_cluster(&key.name)
    } else {
        store.get(&key.namespace, &key.name)
    }?;
    let meta = object.meta();
    Some((
        meta.uid.clone().unwrap_or_default(),
        meta.generation.unwrap_or_default(),
    ))
}
