//! What is watched for Gateway API on Tyk, and how little of it. Nothing is started here.
//!
//! Of EndpointSlices only those of headless Services matter, since every other Service is reached by its name. Kubernetes
//! labels the ones that it makes for them; those that somebody else manages may lack the label, so they are watched too.

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::core::PartialObjectMeta;
use reconcile_kit::{
    ApiKind,
    runtime::{Handle, Scope, Selector, WatchHub, hub::WatchGuard},
};

use super::{
    Caches,
    watched::{
        CLASSES, CONTEXTS, DEFINITIONS, GATEWAYS, GRANTS, ROUTES, WatchedConfigMap, WatchedContext,
        WatchedGrant, WatchedSecret, WatchedService, WatchedSlice,
    },
};

/// Kinds that must be served: while one is not, nothing is concluded from the others.
pub const REQUIRED: [ApiKind; 6] = [CLASSES, GATEWAYS, ROUTES, GRANTS, CONTEXTS, DEFINITIONS];

/// CRDs whose bundle-version is looked at.
const BUNDLE: [ApiKind; 4] = [CLASSES, GATEWAYS, ROUTES, GRANTS];

/// Set by Kubernetes on EndpointSlices of headless Services.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Slices that Kubernetes does not make itself, without those that have the label all the same.
const MANUAL: &str =
    "!service.kubernetes.io/headless,endpointslice.kubernetes.io/managed-by!=endpointslice-controller.k8s.io";

/// Handles of everything that the model is fed from.
#[derive(Clone, Debug)]
pub(super) struct Watches {
    pub(super) own: Caches,
    pub(super) grants: Handle<WatchedGrant>,
    pub(super) contexts: Handle<WatchedContext>,
    pub(super) services: Handle<WatchedService>,
    pub(super) slices: [Handle<WatchedSlice>; 2],
    pub(super) secrets: Handle<WatchedSecret>,
    pub(super) config_maps: Handle<WatchedConfigMap>,
    pub(super) namespaces: Handle<PartialObjectMeta<Namespace>>,
    /// With the names of the CRDs.
    pub(super) crds: Vec<(String, Handle<PartialObjectMeta<CustomResourceDefinition>>)>,
}

impl Caches {
    /// Those of a hub.
    pub fn new(hub: &WatchHub) -> Self {
        let (scope, all) = (Scope::All, Selector::default());
        Self {
            classes: hub.typed(&scope, &all),
            gateways: hub.typed(&scope, &all),
            routes: hub.typed(&scope, &all),
            definitions: hub.typed(&scope, &all),
        }
    }
}

impl Watches {
    pub(super) fn new(hub: &WatchHub) -> Self {
        let (scope, all) = (Scope::All, Selector::default());
        let slices = [HEADLESS, MANUAL].map(|labels| hub.typed(&scope, &Selector::labels(labels)));
        let crds = BUNDLE.map(|kind| {
            let name = format!("{}.{}", kind.plural, kind.group);
            // As presence watches it: the same watch.
            let selector = Selector::fields(format!("metadata.name={name}"));
            (name, hub.metadata::<CustomResourceDefinition>(&scope, &selector))
        });
        Self {
            own: Caches::new(hub),
            grants: hub.typed(&scope, &all),
            contexts: hub.typed(&scope, &all),
            services: hub.typed(&scope, &all),
            slices,
            secrets: hub.metadata_as(&scope, &all),
            config_maps: hub.metadata_as(&scope, &all),
            namespaces: hub.metadata(&scope, &all),
            crds: crds.into(),
        }
    }

    /// Starts them all, and keeps them running until the guards are dropped.
    pub(super) fn start(&self) -> Vec<WatchGuard> {
        let mut guards = vec![
            self.own.classes.start(),
            self.own.gateways.start(),
            self.own.routes.start(),
            self.own.definitions.start(),
            self.grants.start(),
            self.contexts.start(),
            self.services.start(),
            self.secrets.start(),
            self.config_maps.start(),
            self.namespaces.start(),
        ];
        guards.extend(self.slices.iter().map(Handle::start));
        guards.extend(self.crds.iter().map(|(_, crd)| crd.start()));
        guards
    }
}
