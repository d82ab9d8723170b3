//! Joins Gateway API on Tyk with the framework: what is watched while which APIs are served, which answers wake whom,
//! which layers get which seams. No decision.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use reconcile_kit::{
    ApiKind, BoxReconcile, Planner,
    at_once::AtOnce,
    events::KubeEvents,
    owner::KubeOwnerWriter,
    runtime::{
        Change, ControllerSpec, Handle, Listener, Origin, Scope, Selector, Triggers,
        controller::Forget,
        hub::{Cached, ListenGuard},
        supervisor::Unit,
        triggers::on_change_of_self,
    },
    stack::External,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Settings,
    client::{
        TykError,
        connect::KubeConnector,
        http::{Limits, MayWrite, Pools},
    },
    definition::{self, DefinitionPlanner},
    gateway::{self, GatewayPlanner},
    gatewayclass::{self, ClassPlanner, InUse},
    httproute::{
        Drive, Known, RoutePlanner,
        contexts::KubeContexts,
        names,
        places::{InMemory, KubeRecord, Record},
        planner,
    },
    objects::Key,
    sync::{self, Actors, Contexts, Drifted, Syncing},
    world::{
        Caches, WatchedRoute, World,
        watched::{DEFINITIONS, Marker, Watched, WatchedContext, WatchedSecret},
        watches::REQUIRED,
    },
};
use crate::{childless, ground::Ground, telemetry::tyk::TykMeter};

/// Feature of everything but definitions.
pub const FEATURE: &str = "enable-tyk";
/// Feature of definitions.
pub const DEFINITIONS_FEATURE: &str = "enable-tyk-definitions";
/// Name of the unit that feeds the model.
pub const WORLD: &str = "tyk-world";
/// A Gateway's status is written no more often than this: its counts of routes change in bursts.
const PACE: Duration = Duration::from_millis(500);

/// A reconcile of a route waits for a reload of Tyk nearly all of its time, and those that wait together share one: so
/// many times more of them at once than of others, or a thousand routes would need a thousand sixteenths of reloads. Each
/// holds its documents meanwhile.
const WAITING: u16 = 4;

/// What the operator is started with, as far as Tyk is concerned.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--enable-tyk`
    pub enabled: bool,
    /// `--enable-tyk-definitions`
    pub definitions: bool,
    /// `--tyk-controller-name` and `--cluster-domain`
    pub settings: Settings,
    /// `--tyk-cluster-id`
    pub cluster: Option<String>,
    /// The ConfigMap that records where OperatorContexts led; `None`: it is known as long as the process runs.
    pub record: Option<Key>,
}

/// Kinds whose presence decides when these controllers run. None, and so no request, while the flags are off.
pub fn kinds(options: &Options) -> Vec<(ApiKind, Origin)> {
    let kinds: &[ApiKind] = match (options.enabled, options.definitions) {
        (true, _) => &REQUIRED,
        (false, true) => &[DEFINITIONS],
        (false, false) => &[],
    };
    kinds.iter().map(|kind| (*kind, Origin::Crd)).collect()
}

/// Keeps what the controllers hear through.
pub struct Running {
    _listening: Vec<ListenGuard>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// How routes get to Tyk.
pub struct Reach {
    /// The actors.
    pub sync: Arc<dyn Syncing>,
    /// Where contexts lead that no Gateway leads to.
    pub contexts: Arc<dyn Contexts>,
}

/// Makes the way to Tyk for one process, given whom to tell that something drifted.
pub type NewReach = Arc<dyn Fn(&Ground, Drifted) -> Reach + Send + Sync>;

/// The way to Tyk by HTTP, with what contexts and Secrets of the cluster say. `extra_ca`: PEM certificates that are trusted
/// besides the system's.
///
/// # Errors
/// The certificates cannot be used.
pub fn by_http(extra_ca: Option<&[u8]>, meter: TykMeter) -> Result<NewReach, TykError> {
    // Connections are shared by everything that is made here.
    let pools = Arc::new(Pools::new(extra_ca, Limits::default())?);
    Ok(Arc::new(move |ground: &Ground, drifted: Drifted| {
        let lease = Arc::clone(&ground.lease);
        let may_write = move || lease.held();
        reach(
            &ground.client,
            Arc::clone(&pools),
            Arc::new(may_write),
            drifted,
            meter.clone(),
        )
    }))
}

/// The way to Tyk of any process that may write while `may_write`.
pub fn reach(
    client: &kube::Client,
    pools: Arc<Pools>,
    may_write: MayWrite,
    drifted: Drifted,
    meter: TykMeter,
) -> Reach {
    let connector = KubeConnector::new(client.clone(), pools, Arc::clone(&may_write), meter.clone());
    let settings = sync::Settings {
        meter,
        ..sync::Settings::default()
    };
    Reach {
        sync: Arc::new(Actors::new(Arc::new(connector), drifted, may_write, settings)),
        contexts: Arc::new(KubeContexts(client.clone())),
    }
}

/// Puts the controllers under supervision. `reach` is the way to Tyk; tests have another one.
pub fn add(ground: &Ground, options: &Options, reach: NewReach) -> Running {
    let mut running = Running {
        _listening: Vec::new(),
        _tasks: Vec::new(),
    };
    if !options.enabled {
        // Told in /readyz?verbose; nothing is looked at.
        let names = [
            WORLD,
            ClassPlanner::NAME,
            GatewayPlanner::NAME,
            RoutePlanner::NAME,
        ];
        for name in names {
            ground.supervisor.add(off(name, FEATURE));
        }
        if options.definitions {
            let caches = Caches::new(&ground.hub);
            definitions(ground, &caches, None, &mut running);
        } else {
            ground
                .supervisor
                .add(off(DefinitionPlanner::NAME, DEFINITIONS_FEATURE));
        }
        return running;
    }
    let (world, feeding, caches) = World::of_cluster(
        &ground.hub,
        ground.client.clone(),
        options.settings.clone(),
        options.cluster.clone(),
    );
    let starts = feeding.clone();
    ground.supervisor.add(
        Unit::new(WORLD, move |start| {
            let feeding = feeding.clone();
            async move {
                let stop = start.stop.clone();
                feeding.run(stop, || start.running()).await;
            }
            .boxed()
        })
        .features(&[FEATURE])
        .requires(&REQUIRED)
        // Followers keep the model warm.
        .without_lease()
        .warm(move || starts.start()),
    );

    let triggers = Triggers::new(ground.metrics.queue(ClassPlanner::NAME));
    let wake = triggers.clone();
    world.listen(Box::new(move |changes| {
        changes.classes.iter().for_each(|name| wake.push_name(None, name));
    }));
    let external = External {
        effects: Arc::new(InUse),
        finalizer: gatewayclass::FINALIZER.into(),
        // It comes and goes with Gateways: the effects put it on.
        wanted: (|_| false) as fn(&_) -> bool,
        writer: Arc::new(KubeOwnerWriter(ground.client.clone())),
        manager: gatewayclass::CONTRACT.manager,
    };
    let (parts, forget) = childless::parts(ground, ClassPlanner(world.clone()), gatewayclass::CONTRACT, None);
    let stack = parts.stack_with(external);
    let unit = unit(
        ground,
        ClassPlanner::NAME,
        &caches.classes,
        triggers,
        stack,
        forget,
        Some(&world),
    );
    ground
        .supervisor
        .add(unit.features(&[FEATURE]).requires(&REQUIRED));

    let triggers = Triggers::new(ground.metrics.queue(GatewayPlanner::NAME));
    world.listen(wake_named(&triggers, |changes| &changes.gateways));
    let (parts, forget) = childless::parts(
        ground,
        GatewayPlanner(world.clone()),
        gateway::CONTRACT,
        Some(PACE),
    );
    let unit = self::unit(
        ground,
        GatewayPlanner::NAME,
        &caches.gateways,
        triggers,
        parts.stack(),
        forget,
        Some(&world),
    );
    ground
        .supervisor
        .add(unit.features(&[FEATURE]).requires(&REQUIRED));

    routes(ground, &caches, &world, options, reach, &mut running);

    if options.definitions {
        definitions(ground, &caches, Some(&world), &mut running);
    } else {
        ground
            .supervisor
            .add(off(DefinitionPlanner::NAME, DEFINITIONS_FEATURE));
    }
    running
}

fn routes(
    ground: &Ground,
    caches: &Caches,
    world: &World,
    options: &Options,
    reach: NewReach,
    running: &mut Running,
) {
    let triggers = Triggers::new(ground.metrics.queue(RoutePlanner::NAME));
    world.listen(wake_named(&triggers, |changes| &changes.routes));
    let wake = triggers.clone();
    let drifted: Drifted = Arc::new(move |key| wake.push_name(Some(&key.namespace), &key.name));
    let Reach { sync, contexts } = reach(ground, drifted);
    sync.ask(Arc::new(planner::Present {
        world: world.clone(),
        controller: options.settings.controller_name.clone(),
    }));
    let (swept, sweeping) = (world.clone(), Arc::clone(&sync));
    let known: Arc<dyn Known> = Arc::new(world.clone());
    let events = KubeEvents::new(
        ground.client.clone(),
        planner::CONTRACT.manager,
        ground.pod.clone(),
    );
    let record: Arc<dyn Record> = match &options.record {
        Some(key) => Arc::new(KubeRecord::new(ground.client.clone(), key.clone())),
        None => Arc::new(InMemory::default()),
    };
    let (known_too, events) = (Arc::clone(&known), Arc::new(events));
    let drive = Arc::new(Drive::new(sync, contexts, record, known_too, events));
    // What waits for a way to Tyk waits for one of these.
    let (scope, all) = (Scope::All, Selector::default());
    let contexts = ground.hub.typed::<WatchedContext>(&scope, &all);
    let secrets = ground.hub.metadata_as::<WatchedSecret>(&scope, &all);
    running._listening.extend([
        contexts.listen(wake_blocked(
            &drive,
            &triggers,
            |drive, context: &WatchedContext| drive.blocked_by_context(&context.key()),
        )),
        secrets.listen(wake_blocked(
            &drive,
            &triggers,
            |drive, secret: &WatchedSecret| drive.blocked_by_secret(&secret.key()),
        )),
    ]);
    let (blocked, wake) = (Arc::clone(&drive), triggers.clone());
    world.listen(Box::new(move |changes| {
        if !changes.classes.is_empty() {
            for route in blocked.blocked() {
                wake.push_name(Some(&route.namespace), &route.name);
            }
        }
    }));
    let external = External {
        effects: Arc::clone(&drive),
        finalizer: names::finalizer(&options.settings.controller_name).into(),
        // It comes with the memory, in one patch: the effects put it on.
        wanted: (|_| false) as fn(&_) -> bool,
        writer: Arc::new(AtOnce::new(
            KubeOwnerWriter(ground.client.clone()),
            ground.concurrency,
        )),
        manager: planner::CONTRACT.manager,
    };
    let planner = RoutePlanner::new(known, options.settings.clone());
    let (parts, forget) = childless::parts(ground, planner, planner::CONTRACT, None);
    let forget: Forget = Arc::new(move |namespace: &str, name: &str| {
        forget(namespace, name);
        drive.forget(&Key::new(namespace, name));
    });
    let adjust = move |spec: &mut ControllerSpec<WatchedRoute>| {
        let (world, sync) = (swept.clone(), Arc::clone(&sweeping));
        let begins = async move {
            world.ready().await;
            // Also a Tyk that no route leads to may have what a route left there.
            world
                .connections()
                .iter()
                .for_each(|connection| sync.sweep(connection));
        };
        spec.waits = vec![begins.boxed()];
        spec.concurrency = spec.concurrency.saturating_mul(WAITING);
    };
    let warm = caches.routes.clone();
    let (stack, objects) = (parts.stack_with(external), &caches.routes);
    let unit = ground
        .unit(RoutePlanner::NAME, objects, triggers, stack, forget, adjust)
        .warm(move || vec![warm.start()]);
    ground
        .supervisor
        .add(unit.features(&[FEATURE]).requires(&REQUIRED));
}

/// Wakes the routes that wait for a way to Tyk that an object is a part of.
fn wake_blocked<K: Cached>(
    drive: &Arc<Drive>,
    triggers: &Triggers<WatchedRoute>,
    waiting: fn(&Drive, &K) -> std::collections::BTreeSet<Key>,
) -> Listener<K> {
    let (drive, triggers) = (Arc::clone(drive), triggers.clone());
    Box::new(move |change| {
        if let Change::Applied { new, .. } = change {
            for route in waiting(&drive, new) {
                triggers.push_name(Some(&route.namespace), &route.name);
            }
        }
    })
}

fn definitions(ground: &Ground, caches: &Caches, world: Option<&World>, running: &mut Running) {
    let triggers = Triggers::new(ground.metrics.queue(DefinitionPlanner::NAME));
    let objects = caches.definitions.clone();
    // What changes while there is no answer is looked at too: then that is what has to be said.
    running
        ._listening
        .push(objects.listen(on_change_of_self(&triggers, |old, new| new.differs(old))));
    if let Some(world) = world {
        world.listen(wake_named(&triggers, |changes| &changes.definitions));
    }
    let (all, wake, mut changed) = (objects.clone(), triggers.clone(), ground.presence.changed());
    running
        ._tasks
        .push(AbortOnDropHandle::new(tokio::spawn(async move {
            while changed.changed().await.is_ok() {
                wake.push_all(&all.store());
            }
        })));
    let planner = DefinitionPlanner {
        client: ground.client.clone(),
        world: world.cloned(),
        presence: ground.presence.clone(),
    };
    let (parts, forget) = childless::parts(ground, planner, definition::CONTRACT, None);
    let unit = unit(
        ground,
        DefinitionPlanner::NAME,
        &objects,
        triggers,
        parts.stack(),
        forget,
        None,
    );
    ground
        .supervisor
        .add(unit.features(&[DEFINITIONS_FEATURE]).requires(&[DEFINITIONS]));
}

/// Wakes the objects that a change names.
pub(super) fn wake_named<M: Marker>(
    triggers: &Triggers<Watched<M>>,
    named: fn(&super::verdict::Changes) -> &std::collections::BTreeSet<Key>,
) -> super::world::Told {
    let triggers = triggers.clone();
    Box::new(move |changes| {
        for key in named(changes) {
            triggers.push_name(Some(&key.namespace), &key.name);
        }
    })
}

/// A unit that never runs.
fn off(name: &'static str, feature: &'static str) -> Unit {
    Unit::new(name, |_| std::future::ready(()).boxed())
        .features(match feature {
            FEATURE => &[FEATURE],
            _ => &[DEFINITIONS_FEATURE],
        })
        .enabled(false)
}

/// A unit that reconciles what `triggers` name; it starts when the world can answer, if there is one to wait for.
pub(super) fn unit<K: Cached + kube::Resource<DynamicType = ()>>(
    ground: &Ground,
    name: &'static str,
    objects: &Handle<K>,
    triggers: Triggers<K>,
    stack: BoxReconcile<K>,
    forget: Forget,
    world: Option<&World>,
) -> Unit {
    let (warm, world) = (objects.clone(), world.cloned());
    let adjust = move |spec: &mut ControllerSpec<K>| {
        if let Some(world) = &world {
            spec.waits = vec![world.ready().boxed()];
        }
    };
    ground
        .unit(name, objects, triggers, stack, forget, adjust)
        .warm(move || vec![warm.start()])
}
