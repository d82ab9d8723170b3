//! What a stage may read, and the record of what it read. Each stage is a function of a View; that the record is
//! complete is what makes the incremental answer equal the one from scratch.

use std::{cell::RefCell, sync::Arc};

use super::{
    super::{
        Settings,
        objects::{
            ConfigMap, EndpointSlice, HttpRoute, Key, Kind, Namespace, OperatorContext, ReferenceGrant,
            Secret, Service, TYK_GROUP, TykOasApiDefinition, class::ParametersRef,
        },
    },
    Answers,
    class::ClassFacts,
    definition::Attached,
    gateway::GatewayFacts,
    graph::{Cell, Target, What},
    store::Store,
};

/// A reading window on objects and earlier answers.
pub(super) struct View<'a> {
    pub(super) settings: &'a Settings,
    store: &'a Store,
    answers: &'a Answers,
    reads: RefCell<Vec<Cell>>,
}

impl<'a> View<'a> {
    pub(super) fn new(settings: &'a Settings, store: &'a Store, answers: &'a Answers) -> Self {
        Self {
            settings,
            store,
            answers,
            reads: RefCell::default(),
        }
    }

    /// What was read.
    pub(super) fn into_reads(self) -> Vec<Cell> {
        self.reads.into_inner()
    }

    fn note(&self, what: What, key: &Key) {
        self.reads.borrow_mut().push(Cell::new(what, key));
    }

    pub(super) fn context(&self, key: &Key) -> Option<&'a OperatorContext> {
        self.note(What::Object(Kind::OperatorContext), key);
        self.store.contexts.get(key)
    }

    pub(super) fn secret(&self, key: &Key) -> Option<&'a Secret> {
        self.note(What::Object(Kind::Secret), key);
        self.store.secrets.get(key)
    }

    pub(super) fn service(&self, key: &Key) -> Option<&'a Service> {
        self.note(What::Object(Kind::Service), key);
        self.store.services.get(key)
    }

    pub(super) fn namespace(&self, name: &str) -> Option<&'a Namespace> {
        let key = Key::cluster(name);
        self.note(What::Object(Kind::Namespace), &key);
        self.store.namespaces.get(&key)
    }

    pub(super) fn config_map(&self, key: &Key) -> Option<&'a ConfigMap> {
        self.note(What::Object(Kind::ConfigMap), key);
        self.store.config_maps.get(key)
    }

    /// What is wrong with a Secret or ConfigMap that was looked for and not found, continuing "Secret a/b …".
    pub(super) fn absence(&self, kind: Kind, key: &Key) -> &'a str {
        self.store.absence(kind, key)
    }

    /// Whether a route is there; for who only asks that.
    pub(super) fn route_object(&self, key: &Key) -> Option<&'a HttpRoute> {
        self.note(What::Object(Kind::HttpRoute), key);
        self.store.routes.get(key)
    }

    pub(super) fn slices(&self, service: &Key) -> impl Iterator<Item = &'a EndpointSlice> {
        self.note(What::Slices, service);
        self.store.slices(service)
    }

    pub(super) fn grants(&self, namespace: &str) -> impl Iterator<Item = &'a ReferenceGrant> {
        self.note(What::Grants, &Key::new(namespace, ""));
        self.store.grants_in(namespace)
    }

    /// Definitions of a target. Not noted: the store marks the target itself.
    pub(super) fn definitions_of(&self, target: Target, key: &Key) -> Vec<&'a TykOasApiDefinition> {
        self.store.attached_to(target, key)
    }

    /// Facts of a class; `None` if it is not there or not ours.
    pub(super) fn class(&self, name: &str) -> Option<&'a Arc<ClassFacts>> {
        let key = Key::cluster(name);
        self.note(What::Class, &key);
        self.answers.classes.get(name).map(|answer| &answer.facts)
    }

    /// Facts of a Gateway; `None` if it is not there or not ours.
    pub(super) fn gateway(&self, key: &Key) -> Option<&'a Arc<GatewayFacts>> {
        self.note(What::Gateway, key);
        self.answers.gateways.get(key).map(|answer| &answer.facts)
    }

    /// Whether a Gateway is there, of whatever class.
    pub(super) fn gateway_exists(&self, key: &Key) -> bool {
        self.note(What::Object(Kind::Gateway), key);
        self.store.gateways.contains_key(key)
    }

    /// Whether a Gateway is another installation's: its class leads to an OperatorContext and names another controller.
    pub(super) fn elsewhere(&self, gateway: &Key) -> bool {
        self.note(What::Object(Kind::Gateway), gateway);
        let Some(gateway) = self.store.gateways.get(gateway) else {
            return false;
        };
        let class = Key::cluster(&gateway.class);
        self.note(What::Object(Kind::GatewayClass), &class);
        self.store.classes.get(&class).is_some_and(|class| {
            let to_tyk = |p: &ParametersRef| p.group == TYK_GROUP && p.kind == "OperatorContext";
            class.controller_name != self.settings.controller_name
                && class.parameters.as_ref().is_some_and(to_tyk)
        })
    }

    /// The definition that counts for a target.
    pub(super) fn attached(&self, target: Target, key: &Key) -> Option<&'a Arc<Attached>> {
        self.note(What::Attachment(target), key);
        self.answers.attached.get(&(target, key.clone()))
    }

    /// Whether a route has a parent of ours.
    pub(super) fn route_ours(&self, key: &Key) -> bool {
        self.note(What::RouteOurs, key);
        self.answers.routes.contains_key(key)
    }
}
