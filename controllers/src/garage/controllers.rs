//! Joins the Garage controllers with the framework: which caches wake them, which layers get which seams. No decision.

use std::sync::Arc;

use futures::FutureExt;
use reconcile_kit::{
    ErrorClass, Planner,
    error::ReconcileError,
    events::KubeEvents,
    owner::KubeOwnerWriter,
    runtime::{Triggers, hub::ListenGuard, triggers::on_change_of_self},
    stack::External,
};
use routewright_crds::{GarageBucket, GarageCluster};

use super::{
    access::{Access, HttpAccess},
    admin::AdminHttp,
    bucket_controller::{self, BucketPlanner, Drive, wants_finalizer},
    claims::Claims,
    cluster_controller::{self, ClusterPlanner, Probe, on_target},
    rivals::Rivals,
};
use crate::{
    childless,
    exposure::caches::{BUCKETS, CLUSTERS, Caches, GRANTS, on_cluster, on_grant, on_namespace},
    ground::{Ground, presence_and_cache},
};

/// Name of the feature.
pub const FEATURE: &str = "enable-garage-buckets";

/// Puts both Garage controllers under supervision. `access` takes the place of HTTP, for tests.
///
/// # Errors
/// The extra CA bundle cannot be used.
pub fn add(
    ground: &Ground,
    caches: &Caches,
    enabled: bool,
    cluster_domain: &str,
    extra_ca: Option<&[u8]>,
    access: Option<Arc<dyn Access>>,
) -> Result<Vec<ListenGuard>, ReconcileError> {
    let http = AdminHttp::new(extra_ca)
        .map_err(|error| ReconcileError::new(ErrorClass::Invalid, format!("--extra-ca-file: {error}")))?;
    let lease = Arc::clone(&ground.lease);
    let may_write = Arc::new(move || lease.held());
    let access = access.unwrap_or_else(|| {
        Arc::new(HttpAccess::new(
            ground.client.clone(),
            http,
            cluster_domain,
            may_write,
        ))
    });
    let mut listeners = Vec::new();

    let triggers = triggers::<GarageBucket>(ground, BucketPlanner::NAME);
    let claims = Claims::default();
    let rivals = Rivals::new(
        Arc::new(caches.clone()),
        caches.buckets.clone(),
        claims.clone(),
        cluster_domain,
    );
    if enabled {
        listeners.extend([
            // Before the one that wakes: who is woken finds the index up to date.
            caches.buckets.listen(claims.listener(&triggers)),
            caches.buckets.listen(on_change_of_self(&triggers, |_, _| false)),
            caches.clusters.listen(on_cluster(caches, &triggers)),
            caches.clusters.listen(rivals.on_cluster(&triggers)),
            caches.grants.listen(on_grant(caches, &triggers)),
            caches.namespaces.listen(on_namespace(caches, &triggers)),
        ]);
    }
    let planner = BucketPlanner::new(Arc::new(caches.clone()), rivals.clone());
    let manager = bucket_controller::CONTRACT.manager;
    let events = KubeEvents::new(ground.client.clone(), manager, ground.pod.clone());
    let external = External {
        effects: Arc::new(Drive::new(access.clone(), rivals, Arc::new(events))),
        finalizer: bucket_controller::FINALIZER.into(),
        wanted: wants_finalizer as fn(&GarageBucket) -> bool,
        writer: Arc::new(KubeOwnerWriter(ground.client.clone())),
        manager: bucket_controller::CONTRACT.manager,
    };
    let (parts, forget) = childless::parts(ground, planner, bucket_controller::CONTRACT, None);
    let stack = parts.stack_with(external);
    let presence = ground.presence.clone();
    let waits = caches.clone();
    let unit = ground.unit(
        BucketPlanner::NAME,
        &caches.buckets,
        triggers,
        stack,
        forget,
        move |spec| {
            spec.waits = vec![
                presence_and_cache(&presence, CLUSTERS, &waits.clusters).boxed(),
                presence_and_cache(&presence, GRANTS, &waits.grants).boxed(),
            ];
        },
    );
    let warm = caches.buckets.clone();
    ground.supervisor.add(
        unit.enabled(enabled)
            .features(&[FEATURE])
            .requires(&[BUCKETS])
            .warm(move || vec![warm.start()]),
    );

    let triggers = self::triggers::<GarageCluster>(ground, ClusterPlanner::NAME);
    if enabled {
        listeners.push(caches.clusters.listen(on_change_of_self(&triggers, |_, _| false)));
        listeners.push(caches.clusters.listen(on_target(&caches.clusters, &triggers)));
    }
    let external = External {
        effects: Arc::new(Probe {
            access,
            cluster_domain: cluster_domain.to_owned(),
        }),
        finalizer: "routewright.dev/garage-cluster".into(),
        // Nothing of a handle lives outside Kubernetes.
        wanted: (|_| false) as fn(&GarageCluster) -> bool,
        writer: Arc::new(KubeOwnerWriter(ground.client.clone())),
        manager: cluster_controller::CONTRACT.manager,
    };
    let (parts, forget) = childless::parts(
        ground,
        ClusterPlanner(Arc::new(caches.clone())),
        cluster_controller::CONTRACT,
        None,
    );
    let stack = parts.stack_with(external);
    let unit = ground.unit(
        ClusterPlanner::NAME,
        &caches.clusters,
        triggers,
        stack,
        forget,
        |_| {},
    );
    let warm = caches.clusters.clone();
    ground.supervisor.add(
        unit.enabled(enabled)
            .features(&[FEATURE])
            .requires(&[CLUSTERS])
            .warm(move || vec![warm.start()]),
    );
    Ok(listeners)
}

fn triggers<K: kube::Resource<DynamicType = ()>>(ground: &Ground, name: &'static str) -> Triggers<K> {
    Triggers::new(ground.metrics.queue(name))
}
