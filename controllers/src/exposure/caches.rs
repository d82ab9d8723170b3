//! What the exposure controllers know: one handle per watched kind, answering the questions of `plan::Facts`, and the
//! listeners that say which buckets a change concerns. No decision, no write.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{core::v1::Namespace, networking::v1::IngressClass},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{ResourceExt, core::PartialObjectMeta, runtime::reflector::ObjectRef};
use reconcile_kit::{
    ApiKind, Child, ErrorClass,
    layers::api_presence::{Presence, PresenceSnapshot},
    owned::{ChildCache, Lookup},
    runtime::{Change, Handle, Listener, Scope, Selector, Triggers, WatchHub, hub::Undecodable},
};
use routewright_crds::{GarageBucket, GarageCluster, GarageReferenceGrant};

use super::{
    ExposureKind,
    class::{IngressClasses, KnownClass},
    grant::has_selector,
    lookup::{Found, Unseen, View},
    plan::{Facts, FoundCluster, NotReady},
    resolve::cluster_of,
    sharing::{Shared, SharedIndex},
    tenancy::Guards,
};

/// `GarageBucket.garage.rajsingh.info/v1beta1`
pub const BUCKETS: ApiKind = ApiKind::new("garage.rajsingh.info", "v1beta1", "GarageBucket", "garagebuckets");
/// `GarageCluster.garage.rajsingh.info/v1beta2`
pub const CLUSTERS: ApiKind = ApiKind::new(
    "garage.rajsingh.info",
    "v1beta2",
    "GarageCluster",
    "garageclusters",
);
/// Name of the CRD of GarageCluster.
const CLUSTER_CRD: &str = "garageclusters.garage.rajsingh.info";
/// `GarageReferenceGrant.garage.rajsingh.info/v1beta1`
pub const GRANTS: ApiKind = ApiKind::new(
    "garage.rajsingh.info",
    "v1beta1",
    "GarageReferenceGrant",
    "garagereferencegrants",
);

/// Handles of everything that the exposure controllers look at. Nothing is started here.
#[derive(Clone)]
pub struct Caches {
    /// The reconciled kind.
    pub buckets: Handle<GarageBucket>,
    /// Their clusters.
    pub clusters: Handle<GarageCluster>,
    /// Consent across namespaces.
    pub grants: Handle<GarageReferenceGrant>,
    /// Labels of namespaces; runs only while a grant selects by them.
    pub namespaces: Handle<PartialObjectMeta<Namespace>>,
    /// Runs only where Ingresses may be touched and cluster-scoped kinds looked at.
    pub classes: Handle<IngressClass>,
    /// Our Ingresses.
    pub ingresses: Handle<Child>,
    /// Our HTTPRoutes.
    pub routes: Handle<Child>,
    /// Hostnames and the buckets that expose them.
    pub shared: SharedIndex,
    guards: Arc<Guards>,
    view: View,
    /// The CRD of GarageCluster; kept up to date by the presence of that kind.
    cluster_crd: Handle<PartialObjectMeta<CustomResourceDefinition>>,
    classes_watched: bool,
}

impl Caches {
    /// `children`: label selector of the children of this installation. `enable_ingress`: Ingresses may be looked at.
    pub fn new(
        hub: &WatchHub,
        scope: &Scope,
        children: &Selector,
        presence: Arc<dyn PresenceSnapshot>,
        enable_ingress: bool,
    ) -> Self {
        let all = Selector::default();
        Self {
            buckets: hub.typed(scope, &all),
            clusters: hub.typed(scope, &all),
            grants: hub.typed(scope, &all),
            namespaces: hub.metadata::<Namespace>(&Scope::All, &all),
            classes: hub.typed(&Scope::All, &all),
            ingresses: hub.children(ExposureKind::Ingress.api(), scope, children),
            routes: hub.children(ExposureKind::HttpRoute.api(), scope, children),
            shared: SharedIndex::default(),
            guards: Arc::default(),
            view: View {
                scope: scope.clone(),
                presence,
            },
            cluster_crd: hub.metadata(
                &Scope::All,
                &Selector::fields(format!("metadata.name={CLUSTER_CRD}")),
            ),
            classes_watched: enable_ingress && *scope == Scope::All,
        }
    }

    /// With the limits of the installation.
    #[must_use]
    pub fn guarded(mut self, guards: Guards) -> Self {
        self.guards = Arc::new(guards);
        self
    }

    /// Our children of this kind.
    pub fn children(&self, kind: ExposureKind) -> &Handle<Child> {
        match kind {
            ExposureKind::Ingress => &self.ingresses,
            ExposureKind::HttpRoute => &self.routes,
        }
    }

    /// Whether IngressClasses are looked at at all.
    pub fn watches_classes(&self) -> bool {
        self.classes_watched
    }

    /// Whether some grant selects namespaces by label.
    pub fn wants_namespaces(&self) -> bool {
        !self.grants.store().filter(has_selector).is_empty()
    }
}

impl Facts for Caches {
    fn cluster(&self, namespace: &str, name: &str) -> Result<FoundCluster, NotReady> {
        let found = self.view.find(&CLUSTERS, &self.clusters, namespace, name)?;
        Ok(match found {
            Found::NotServed => FoundCluster::NotServed,
            Found::Missing => FoundCluster::Missing,
            Found::Unseen(unseen) => FoundCluster::Unseen(unseen),
            Found::Object(cluster) => FoundCluster::Found(cluster),
        })
    }

    fn clusters_are_gone(&self) -> bool {
        self.cluster_crd.is_ready() && self.cluster_crd.store().get_cluster(CLUSTER_CRD).is_none()
    }

    fn grants(&self, namespace: &str) -> Result<Vec<Arc<GarageReferenceGrant>>, NotReady> {
        match self.view.presence.presence(&GRANTS) {
            Presence::Absent => return Ok(Vec::new()),
            Presence::Unknown => return Err(NotReady(GRANTS.kind)),
            Presence::Served => {}
        }
        match self.view.blind_spot(&GRANTS, &self.grants, namespace)? {
            Some(_) => Ok(Vec::new()),
            None => Ok(self
                .grants
                .store()
                .filter(|grant| grant.metadata.namespace.as_deref() == Some(namespace))),
        }
    }

    fn unseen_grants(&self, namespace: &str) -> Option<Unseen> {
        if self.view.presence.presence(&GRANTS) != Presence::Served {
            return None;
        }
        let blind = self.view.blind_spot(&GRANTS, &self.grants, namespace).ok()?;
        blind.or_else(|| {
            let here = |one: &Undecodable| one.namespace.as_deref() == Some(namespace);
            let bad = self.grants.undecodable().into_iter().find(here)?;
            Some(Unseen::Undecodable {
                error: format!("{}: {}", bad.name, bad.error),
            })
        })
    }

    fn namespace_labels(&self, namespace: &str) -> Result<Option<BTreeMap<String, String>>, NotReady> {
        if self.namespaces.is_ready() {
            let found = self.namespaces.store().get_cluster(namespace);
            return Ok(found.map(|found| found.labels().clone()));
        }
        match self.namespaces.problem() {
            // With rights in some namespaces only, selectors cannot be evaluated: they grant nothing.
            Some(problem) if problem.class == ErrorClass::Forbidden => Ok(None),
            _ => Err(NotReady("Namespace")),
        }
    }

    fn ingress_classes(&self) -> IngressClasses {
        if !self.classes_watched || !self.classes.is_ready() {
            return IngressClasses::Unreadable;
        }
        let known = |class: &Arc<IngressClass>| KnownClass {
            name: class.name_any(),
            default: is_default_class(class),
        };
        let mut all: Vec<KnownClass> = self.classes.store().all().iter().map(known).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        IngressClasses::Known(all)
    }

    fn child(&self, kind: ExposureKind, namespace: &str, name: &str) -> Option<Arc<Child>> {
        self.children(kind).store().get(namespace, name)
    }

    fn refused(&self, kind: ExposureKind) -> Option<String> {
        let watch = self.children(kind);
        if watch.is_ready() {
            return None;
        }
        let problem = watch.problem()?;
        (problem.class == ErrorClass::Forbidden).then_some(problem.message)
    }

    fn guards(&self) -> &Guards {
        &self.guards
    }

    fn shared(&self, bucket: &GarageBucket, hostnames: &[String]) -> Vec<Shared> {
        self.shared.older(bucket, hostnames)
    }
}

fn is_default_class(class: &IngressClass) -> bool {
    let annotation = class
        .annotations()
        .get("ingressclass.kubernetes.io/is-default-class");
    annotation.is_some_and(|value| value == "true")
}

impl ChildCache for Caches {
    fn child(&self, kind: &ApiKind, namespace: &str, name: &str) -> Lookup {
        let handle = match kind.kind {
            "Ingress" => &self.ingresses,
            "HTTPRoute" => &self.routes,
            _ => return Lookup::NotReady,
        };
        match handle.store().get(namespace, name) {
            _ if !handle.is_ready() => Lookup::NotReady,
            Some(child) => Lookup::Present(child),
            // It is there, and nothing is known of it.
            None if handle.is_undecodable(namespace, name) => Lookup::NotReady,
            None => Lookup::Absent,
        }
    }
}

/// Whether a change of a bucket's status concerns us: what we decide by, or what we wrote and somebody changed.
pub fn status_matters(old: &GarageBucket, new: &GarageBucket) -> bool {
    let view = |bucket: &GarageBucket| {
        let status = bucket.status.clone().unwrap_or_default();
        let ours = status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|c| c.type_ == super::status::CONDITION);
        (
            status.bucket_id,
            status.global_alias,
            status.website_exposure,
            ours,
        )
    };
    view(old) != view(new)
}

fn reference(bucket: &GarageBucket) -> ObjectRef<GarageBucket> {
    ObjectRef::from_obj(bucket)
}

/// Buckets of a cluster that changed in a way that matters.
pub fn on_cluster(caches: &Caches, triggers: &Triggers<GarageBucket>) -> Listener<GarageCluster> {
    let (buckets, triggers) = (caches.buckets.clone(), triggers.clone());
    Box::new(move |change| {
        let cluster = match change {
            Change::Applied { old: Some(old), new } if same_for_us(old, new) => return,
            Change::Applied { new, .. } => new,
            Change::Deleted { old } => old,
            Change::Ready | Change::Stopped => return,
        };
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        for bucket in buckets
            .store()
            .filter(|b| cluster_of(b) == (namespace.as_str(), name.as_str()))
        {
            triggers.push(reference(&bucket));
        }
    })
}

fn same_for_us(old: &GarageCluster, new: &GarageCluster) -> bool {
    let phase = |c: &GarageCluster| c.status.as_ref().and_then(|s| s.phase.clone());
    old.spec == new.spec
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && old.metadata.uid == new.metadata.uid
        && phase(old) == phase(new)
}

/// Buckets of other namespaces whose cluster lives where a grant changed.
pub fn on_grant(caches: &Caches, triggers: &Triggers<GarageBucket>) -> Listener<GarageReferenceGrant> {
    let (buckets, triggers) = (caches.buckets.clone(), triggers.clone());
    Box::new(move |change| {
        let grant = match change {
            Change::Applied { old: Some(old), new } if old.spec == new.spec => return,
            Change::Applied { new, .. } => new,
            Change::Deleted { old } => old,
            Change::Ready | Change::Stopped => return,
        };
        let there = grant.namespace().unwrap_or_default();
        for bucket in buckets
            .store()
            .filter(|b| cluster_of(b).0 == there && b.namespace().as_ref() != Some(&there))
        {
            triggers.push(reference(&bucket));
        }
    })
}

/// Buckets of a namespace whose labels changed, if their cluster lives elsewhere.
pub fn on_namespace(
    caches: &Caches,
    triggers: &Triggers<GarageBucket>,
) -> Listener<PartialObjectMeta<Namespace>> {
    let (buckets, triggers) = (caches.buckets.clone(), triggers.clone());
    Box::new(move |change| {
        let concerned: Option<String> = match change {
            Change::Applied { old: Some(old), new } if old.labels() == new.labels() => return,
            // The first sight of each is covered by the end of the list.
            Change::Applied { old: None, .. } | Change::Stopped => return,
            Change::Applied { new, .. } => Some(new.name_any()),
            Change::Deleted { old } => Some(old.name_any()),
            Change::Ready => None,
        };
        let abroad = |b: &GarageBucket| b.namespace().as_deref() != Some(cluster_of(b).0);
        let here = |b: &GarageBucket| concerned.is_none() || b.namespace() == concerned;
        for bucket in buckets.store().filter(|b| abroad(b) && here(b)) {
            triggers.push(reference(&bucket));
        }
    })
}

/// Buckets exposed by an Ingress, when the classes change: a class that appears or goes, or becomes the default.
pub fn on_class(caches: &Caches, triggers: &Triggers<GarageBucket>) -> Listener<IngressClass> {
    let (buckets, triggers) = (caches.buckets.clone(), triggers.clone());
    Box::new(move |change| {
        match change {
            Change::Applied { old: Some(old), new } if is_default_class(old) == is_default_class(new) => {
                return;
            }
            Change::Stopped => return,
            _ => {}
        }
        let by_ingress = |b: &GarageBucket| {
            b.spec
                .website_exposure
                .as_ref()
                .is_some_and(|exposure| exposure.ingress.is_some())
        };
        for bucket in buckets.store().filter(by_ingress) {
            triggers.push(reference(&bucket));
        }
    })
}
