//! The objects that were seen last, with the indexes that the stages need. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::objects::{
        ConfigMap, EndpointSlice, GATEWAY_GROUP, Gateway, GatewayClass, HttpRoute, Key, Kind, Namespace,
        Object, OperatorContext, ReferenceGrant, Secret, Service, TykOasApiDefinition,
    },
    graph::{Cell, Target, What},
};

/// What a put or a removal touched.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Cells whose readers must look again.
    pub(super) cells: Vec<Cell>,
    /// GatewayClasses to look at.
    pub(super) classes: BTreeSet<String>,
    /// Gateways to look at.
    pub(super) gateways: BTreeSet<Key>,
    /// Targets whose definition must be chosen again.
    pub(super) attachments: BTreeSet<(Target, Key)>,
    /// Routes to look at.
    pub(super) routes: BTreeSet<Key>,
    /// Definitions to look at.
    pub(super) definitions: BTreeSet<Key>,
}

/// Objects by kind and key.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) classes: BTreeMap<Key, GatewayClass>,
    pub(super) gateways: BTreeMap<Key, Gateway>,
    pub(super) routes: BTreeMap<Key, HttpRoute>,
    pub(super) grants: BTreeMap<Key, ReferenceGrant>,
    pub(super) contexts: BTreeMap<Key, OperatorContext>,
    pub(super) definitions: BTreeMap<Key, TykOasApiDefinition>,
    pub(super) services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, EndpointSlice>,
    pub(super) secrets: BTreeMap<Key, Secret>,
    pub(super) config_maps: BTreeMap<Key, ConfigMap>,
    pub(super) namespaces: BTreeMap<Key, Namespace>,
    /// bundle-version by CRD; not known at first.
    pub(super) bundles: Option<BTreeMap<String, Option<String>>>,
    /// Secrets and ConfigMaps that are there and may not be read, with the reason.
    unreadable: BTreeMap<(Kind, Key), String>,
    gateways_of: BTreeMap<String, BTreeSet<Key>>,
    slices_of: BTreeMap<Key, BTreeSet<Key>>,
    attached_to: BTreeMap<(Target, Key), BTreeSet<Key>>,
}

/// The target that a reference of a definition means; `None` for a kind that is not supported.
pub(super) fn target(
    definition: &Key,
    reference: &super::super::objects::definition::TargetRef,
) -> Option<(Target, Key)> {
    if reference.group != GATEWAY_GROUP {
        return None;
    }
    let key = Key::new(&definition.namespace, &reference.name);
    match reference.kind.as_str() {
        "Gateway" => Some((Target::Gateway, key)),
        "HTTPRoute" => Some((Target::Route, key)),
        _ => None,
    }
}

fn add<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Key>>, at: K, key: &Key) {
    index.entry(at).or_default().insert(key.clone());
}

fn take<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    if let Some(set) = index.get_mut(at) {
        set.remove(key);
        if set.is_empty() {
            index.remove(at);
        }
    }
}

/// Puts or removes; the old value if that changed anything.
fn swap<T: PartialEq>(map: &mut BTreeMap<Key, T>, key: &Key, new: Option<T>) -> Option<Option<T>> {
    match new {
        Some(new) if map.get(key) == Some(&new) => None,
        Some(new) => Some(map.insert(key.clone(), new)),
        None => map.remove(key).map(Some),
    }
}

impl Store {
    /// Takes an object in.
    pub(super) fn put(&mut self, object: Object) -> Touched {
        let (kind, key) = object.id();
        let key = key.clone();
        let readable = self.readable(kind, &key);
        let mut touched = match object {
            Object::GatewayClass(o) => self.class(&key, Some(o)),
            Object::Gateway(o) => self.gateway(&key, Some(o)),
            Object::HttpRoute(o) => self.route(&key, Some(o)),
            Object::ReferenceGrant(o) => self.grant(&key, Some(o)),
            Object::OperatorContext(o) => self.context(&key, Some(o)),
            Object::TykOasApiDefinition(o) => self.definition(&key, Some(o)),
            Object::Service(o) => self.service(&key, Some(o)),
            Object::EndpointSlice(o) => self.slice(&key, Some(o)),
            Object::Secret(o) => self.secret(&key, Some(o)),
            Object::ConfigMap(o) => self.config_map(&key, Some(o)),
            Object::Namespace(o) => self.namespace(&key, Some(o)),
        };
        touched.cells.extend(readable);
        touched
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, kind: Kind, key: &Key) -> Touched {
        let readable = self.readable(kind, key);
        let mut touched = match kind {
            Kind::GatewayClass => self.class(key, None),
            Kind::Gateway => self.gateway(key, None),
            Kind::HttpRoute => self.route(key, None),
            Kind::ReferenceGrant => self.grant(key, None),
            Kind::OperatorContext => self.context(key, None),
            Kind::TykOasApiDefinition => self.definition(key, None),
            Kind::Service => self.service(key, None),
            Kind::EndpointSlice => self.slice(key, None),
            Kind::Secret => self.secret(key, None),
            Kind::ConfigMap => self.config_map(key, None),
            Kind::Namespace => self.namespace(key, None),
        };
        touched.cells.extend(readable);
        touched
    }

    /// Forgets an object's content, and why it may not be read.
    pub(super) fn unreadable(&mut self, kind: Kind, key: &Key, why: String) -> Touched {
        let mut touched = self.remove(kind, key);
        self.unreadable.insert((kind, key.clone()), why);
        touched.cells.push(Cell::new(What::Object(kind), key));
        touched
    }

    /// Nothing stands in the way of reading it any more; who must look again if that is news.
    fn readable(&mut self, kind: Kind, key: &Key) -> Option<Cell> {
        if self.unreadable.is_empty() {
            return None;
        }
        self.unreadable.remove(&(kind, key.clone()))?;
        Some(Cell::new(What::Object(kind), key))
    }

    /// What is wrong with an object that is not here, continuing "Secret a/b …".
    pub(super) fn absence(&self, kind: Kind, key: &Key) -> &str {
        if self.unreadable.is_empty() {
            return "does not exist";
        }
        let why = self.unreadable.get(&(kind, key.clone()));
        why.map_or("does not exist", String::as_str)
    }

    fn class(&mut self, key: &Key, new: Option<GatewayClass>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.classes, key, new).is_some() {
            touched.classes.insert(key.name.clone());
            touched
                .cells
                .push(Cell::new(What::Object(Kind::GatewayClass), key));
        }
        touched
    }

    fn gateway(&mut self, key: &Key, new: Option<Gateway>) -> Touched {
        let mut touched = Touched::default();
        let class = new.as_ref().map(|o| o.class.clone());
        let Some(old) = swap(&mut self.gateways, key, new) else {
            return touched;
        };
        touched.gateways.insert(key.clone());
        touched.cells.push(Cell::new(What::Object(Kind::Gateway), key));
        if let Some(old) = old {
            take(&mut self.gateways_of, &old.class, key);
            touched.classes.insert(old.class);
        }
        if let Some(class) = class {
            add(&mut self.gateways_of, class.clone(), key);
            touched.classes.insert(class);
        }
        touched
    }

    fn route(&mut self, key: &Key, new: Option<HttpRoute>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.routes, key, new).is_some() {
            touched.routes.insert(key.clone());
            touched.cells.push(Cell::new(What::Object(Kind::HttpRoute), key));
        }
        touched
    }

    fn grant(&mut self, key: &Key, new: Option<ReferenceGrant>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.grants, key, new).is_some() {
            touched
                .cells
                .push(Cell::new(What::Grants, &Key::new(&key.namespace, "")));
        }
        touched
    }

    fn context(&mut self, key: &Key, new: Option<OperatorContext>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.contexts, key, new).is_some() {
            touched
                .cells
                .push(Cell::new(What::Object(Kind::OperatorContext), key));
        }
        touched
    }

    fn definition(&mut self, key: &Key, new: Option<TykOasApiDefinition>) -> Touched {
        let mut touched = Touched::default();
        let targets: BTreeSet<_> = new
            .iter()
            .flat_map(|o| o.targets.iter().filter_map(|t| target(key, t)))
            .collect();
        let Some(old) = swap(&mut self.definitions, key, new) else {
            return touched;
        };
        touched.definitions.insert(key.clone());
        for at in old
            .iter()
            .flat_map(|o| o.targets.iter().filter_map(|t| target(key, t)))
        {
            take(&mut self.attached_to, &at, key);
            touched.attachments.insert(at);
        }
        for at in targets {
            add(&mut self.attached_to, at.clone(), key);
            touched.attachments.insert(at);
        }
        touched
    }

    fn service(&mut self, key: &Key, new: Option<Service>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.services, key, new).is_some() {
            touched.cells.push(Cell::new(What::Object(Kind::Service), key));
        }
        touched
    }

    fn slice(&mut self, key: &Key, new: Option<EndpointSlice>) -> Touched {
        let mut touched = Touched::default();
        let of = |o: &EndpointSlice| {
            o.service
                .as_ref()
                .map(|service| Key::new(&key.namespace, service))
        };
        let now = new.as_ref().and_then(of);
        let Some(old) = swap(&mut self.slices, key, new) else {
            return touched;
        };
        if let Some(service) = old.as_ref().and_then(of) {
            take(&mut self.slices_of, &service, key);
            touched.cells.push(Cell::new(What::Slices, &service));
        }
        if let Some(service) = now {
            touched.cells.push(Cell::new(What::Slices, &service));
            add(&mut self.slices_of, service, key);
        }
        touched
    }

    fn secret(&mut self, key: &Key, new: Option<Secret>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.secrets, key, new).is_some() {
            touched.cells.push(Cell::new(What::Object(Kind::Secret), key));
        }
        touched
    }

    fn config_map(&mut self, key: &Key, new: Option<ConfigMap>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.config_maps, key, new).is_some() {
            touched.cells.push(Cell::new(What::Object(Kind::ConfigMap), key));
        }
        touched
    }

    fn namespace(&mut self, key: &Key, new: Option<Namespace>) -> Touched {
        let mut touched = Touched::default();
        if swap(&mut self.namespaces, key, new).is_some() {
            touched.cells.push(Cell::new(What::Object(Kind::Namespace), key));
        }
        touched
    }

    /// Whether a Gateway names the class.
    pub(super) fn class_in_use(&self, class: &str) -> bool {
        self.gateways_of.contains_key(class)
    }

    /// EndpointSlices of a Service, by name.
    pub(super) fn slices(&self, service: &Key) -> impl Iterator<Item = &EndpointSlice> {
        self.slices_of
            .get(service)
            .into_iter()
            .flatten()
            .filter_map(|key| self.slices.get(key))
    }

    /// ReferenceGrants of a namespace.
    pub(super) fn grants_in(&self, namespace: &str) -> impl Iterator<Item = &ReferenceGrant> {
        self.grants
            .range(Key::new(namespace, "")..)
            .map(|(_, grant)| grant)
            .take_while(move |grant| grant.key.namespace == namespace)
    }

    /// Definitions that name a target, the one that counts first: the oldest, then by namespace and name.
    pub(super) fn attached_to(&self, target: Target, key: &Key) -> Vec<&TykOasApiDefinition> {
        let mut found: Vec<_> = self
            .attached_to
            .get(&(target, key.clone()))
            .into_iter()
            .flatten()
            .filter_map(|key| self.definitions.get(key))
            .collect();
        found.sort_by(|a, b| a.meta.age().cmp(&b.meta.age()));
        found
    }

    /// Whether an object of this kind and key is there.
    pub(super) fn has(&self, kind: Kind, key: &Key) -> bool {
        match kind {
            Kind::GatewayClass => self.classes.contains_key(key),
            Kind::Gateway => self.gateways.contains_key(key),
            Kind::HttpRoute => self.routes.contains_key(key),
            Kind::ReferenceGrant => self.grants.contains_key(key),
            Kind::OperatorContext => self.contexts.contains_key(key),
            Kind::TykOasApiDefinition => self.definitions.contains_key(key),
            Kind::Service => self.services.contains_key(key),
            Kind::EndpointSlice => self.slices.contains_key(key),
            Kind::Secret => self.secrets.contains_key(key),
            Kind::ConfigMap => self.config_maps.contains_key(key),
            Kind::Namespace => self.namespaces.contains_key(key),
        }
    }
}
