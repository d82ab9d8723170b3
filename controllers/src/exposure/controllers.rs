//! Joins planner, caches and framework into the two running exposure controllers. No decision here: which caches feed
//! which triggers, which layers get which seams, and what is forgotten with an object.

use std::sync::Arc;

use futures::FutureExt;
use reconcile_kit::{
    events::KubeEvents,
    layers::{conditions::Reporting, metadata::OperatorMetadata, owned_children::Owned, policy::Backoff},
    owned::{KubeChildWriter, WriteMemory, squatter::Squatters},
    runtime::{
        ControllerSpec, Triggers,
        hub::{ListenGuard, WatchGuard},
        triggers::{all_on_ready, on_change_of_child, on_change_of_self},
    },
    stack::{Parts, Timeouts},
    status::StatusMemory,
    status_writer::KubeStatusWriter,
};
use routewright_crds::GarageBucket;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::ground::{Ground, PREFIX, complete, presence_and_cache};

use super::{
    ExposureKind,
    caches::{
        BUCKETS, CLUSTERS, Caches, GRANTS, on_class, on_cluster, on_grant, on_namespace, status_matters,
    },
    plan::{Exposer, ExposurePlanner, HttpRouteExposer, IngressExposer},
    status::CONTRACT,
};

/// Flags of the exposure controllers.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// `--enable-ingress`
    pub ingress: bool,
    /// `--enable-gateway-api`
    pub gateway_api: bool,
}

/// Keeps listeners and helper tasks alive.
#[must_use = "the controllers lose their triggers when this is dropped"]
pub struct Running {
    _listeners: Vec<ListenGuard>,
    _watches: Vec<WatchGuard>,
    _namespaces: AbortOnDropHandle<()>,
}

/// Puts both exposure controllers under supervision.
pub fn add(ground: &Ground, caches: &Caches, flags: Flags) -> Running {
    let mut listeners = Vec::new();
    let written = StatusMemory::default();
    let ingress = one::<IngressExposer>(ground, caches, flags.ingress, &written, &mut listeners);
    let route = one::<HttpRouteExposer>(ground, caches, flags.gateway_api, &written, &mut listeners);
    let both = vec![ingress.clone(), route.clone()];
    listeners.push(caches.buckets.listen(caches.shared.follow(both)));
    let wake: Arc<dyn Fn() + Send + Sync> = {
        let buckets = caches.buckets.clone();
        Arc::new(move || {
            ingress.push_all(&buckets.store());
            route.push_all(&buckets.store());
        })
    };
    ground.optional(CLUSTERS, &caches.clusters, &wake);
    ground.optional(GRANTS, &caches.grants, &wake);
    if flags.ingress {
        ground.optional(ExposureKind::Ingress.api(), &caches.ingresses, &wake);
    }
    if flags.gateway_api {
        ground.optional(ExposureKind::HttpRoute.api(), &caches.routes, &wake);
    }
    let watches = if caches.watches_classes() {
        vec![caches.classes.start()]
    } else {
        Vec::new()
    };
    Running {
        _namespaces: follow_namespaces(caches, &mut listeners),
        _listeners: listeners,
        _watches: watches,
    }
}

/// One controller; returns what wakes it.
fn one<E: Exposer>(
    ground: &Ground,
    caches: &Caches,
    enabled: bool,
    written: &StatusMemory,
    listeners: &mut Vec<ListenGuard>,
) -> Triggers<GarageBucket> {
    let triggers = Triggers::new(ground.metrics.queue(E::NAME));
    let memory = WriteMemory::default();
    listeners.extend([
        caches
            .buckets
            .listen(written.without_echoes(on_change_of_self(&triggers, status_matters))),
        caches.clusters.listen(on_cluster(caches, &triggers)),
        caches.grants.listen(on_grant(caches, &triggers)),
        caches.namespaces.listen(on_namespace(caches, &triggers)),
        caches.children(E::KIND).listen(memory.follow(E::KIND.api())),
        caches.children(E::KIND).listen(on_change_of_child(&triggers)),
        caches
            .children(E::KIND)
            .listen(all_on_ready(&triggers, &caches.buckets)),
    ]);
    if E::KIND == ExposureKind::Ingress {
        listeners.push(caches.classes.listen(on_class(caches, &triggers)));
    }

    let manager = format!("routewright-{}", E::NAME);
    let squatters = {
        let triggers = triggers.clone();
        let wake = Arc::new(move |namespace: &str, owner: &str| triggers.push_name(Some(namespace), owner));
        Squatters::new(ground.watches.clone(), wake)
    };
    let owned = Arc::new(Owned {
        manager: manager.as_str().into(),
        prefix: PREFIX.into(),
        cache: Arc::new(caches.clone()),
        writer: Arc::new(KubeChildWriter::new(ground.client.clone(), &manager)),
        memory,
        metrics: ground.metrics.clone(),
        squatters: Some(squatters),
    });
    let events = KubeEvents::new(ground.client.clone(), &manager, ground.pod.clone());
    let writer = KubeStatusWriter(ground.client.clone());
    let reporting = Arc::new(Reporting::new(CONTRACT, Arc::new(writer), Arc::new(events)).sharing(written));
    let snapshot = Arc::new(ground.presence.clone());
    let features: &[&'static str] = if enabled { &[E::FEATURE] } else { &[] };
    let planner = ExposurePlanner::<E>::new(Arc::new(caches.clone()), enabled, snapshot.clone());
    let pace = planner.pace();
    let parts = Parts {
        planner: Arc::new(planner),
        features: features.into(),
        presence: snapshot,
        metadata: Arc::new(OperatorMetadata::standard(
            ground.managed_by,
            &ground.instance,
            E::NAME,
        )),
        owned,
        reporting,
        lease: Arc::clone(&ground.lease),
        metrics: ground.metrics.clone(),
        backoff: Backoff::default(),
        timeouts: Timeouts::default(),
    };
    let of_stack = parts.forget();
    let forget = Arc::new(move |namespace: &str, name: &str| {
        of_stack(namespace, name);
        pace.forget(namespace, name);
    });
    let (waits, presence) = (caches.clone(), ground.presence.clone());
    let adjust = move |spec: &mut ControllerSpec<GarageBucket>| {
        spec.waits = vec![
            presence_and_cache(&presence, CLUSTERS, &waits.clusters).boxed(),
            presence_and_cache(&presence, GRANTS, &waits.grants).boxed(),
        ];
        if enabled {
            spec.waits
                .push(presence_and_cache(&presence, E::KIND.api(), waits.children(E::KIND)).boxed());
        }
        if E::KIND == ExposureKind::Ingress && waits.watches_classes() {
            spec.waits.push(complete(&waits.classes).boxed());
        }
    };
    let stack = parts.stack();
    let unit = ground.unit(E::NAME, &caches.buckets, triggers.clone(), stack, forget, adjust);
    let warm = caches.buckets.clone();
    ground.supervisor.add(
        unit.features(&[E::FEATURE])
            .requires(&[BUCKETS])
            .warm(move || vec![warm.start()]),
    );
    triggers
}

/// Watches labels of namespaces only while a grant selects by them.
fn follow_namespaces(caches: &Caches, listeners: &mut Vec<ListenGuard>) -> AbortOnDropHandle<()> {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    listeners.push(caches.grants.listen(Box::new(move |_| notify.notify_one())));
    let caches = caches.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut watch: Option<WatchGuard> = None;
        loop {
            match (caches.wants_namespaces(), watch.is_some()) {
                (true, false) => watch = Some(caches.namespaces.start()),
                (false, true) => watch = None,
                _ => {}
            }
            changed.notified().await;
        }
    }))
}
