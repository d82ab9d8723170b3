//! Objects as the watches hold them: identity, what is written to them, and nothing else. The decoded object goes to the
//! model once, when it comes in: a spec is in memory in the model's form only.
//!
//! Reading never fails for what an API server may hand out. An object whose spec nobody can read is told to the model
//! as such ([`Watched::take`] gives the reason) and never looks like an absent one.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Resource,
    core::{ClusterResourceScope, NamespaceResourceScope, ObjectMeta},
};
use reconcile_kit::ApiKind;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::super::objects::{self, DecodeError, GATEWAY_GROUP, Key, Kind, Object, TYK_GROUP};
use crate::ground::PREFIX;

/// A kind that is watched.
pub trait Marker: Send + Sync + 'static {
    /// The kind in the model.
    const KIND: Kind;
    /// Where it is served.
    const API: ApiKind;
    /// Its status is written by a controller, so it is kept as it is.
    const STATUS: bool;
    /// Scope of the kind, for kube.
    type Scope: 'static;

    /// The object for the model; `None` for a kind of which the watch shows the metadata only.
    fn decode(value: &Value) -> Result<Option<Object>, DecodeError>;
}

macro_rules! marker {
    ($(#[$doc:meta])* $name:ident, $watched:ident, $kind:expr, $api:ident = $group:expr, $version:literal, $text:literal, $plural:literal,
     $scope:ty, $status:literal, $decode:expr) => {
        $(#[$doc])*
        pub const $api: ApiKind = ApiKind::new($group, $version, $text, $plural);

        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl Marker for $name {
            const KIND: Kind = $kind;
            const API: ApiKind = $api;
            const STATUS: bool = $status;
            type Scope = $scope;

            fn decode(value: &Value) -> Result<Option<Object>, DecodeError> {
                let decode: fn(&Value) -> Result<Option<Object>, DecodeError> = $decode;
                decode(value)
            }
        }

        $(#[$doc])*
        pub type $watched = Watched<$name>;
    };
}

marker!(
    /// GatewayClass
    ClassMarker, WatchedClass, Kind::GatewayClass,
    CLASSES = GATEWAY_GROUP, "v1", "GatewayClass", "gatewayclasses",
    ClusterResourceScope, true, |value| Ok(Some(Object::GatewayClass(objects::GatewayClass::decode(value)?)))
);
marker!(
    /// Gateway
    GatewayMarker, WatchedGateway, Kind::Gateway,
    GATEWAYS = GATEWAY_GROUP, "v1", "Gateway", "gateways",
    NamespaceResourceScope, true, |value| Ok(Some(Object::Gateway(objects::Gateway::decode(value)?)))
);
marker!(
    /// HTTPRoute
    RouteMarker, WatchedRoute, Kind::HttpRoute,
    ROUTES = GATEWAY_GROUP, "v1", "HTTPRoute", "httproutes",
    NamespaceResourceScope, true, |value| Ok(Some(Object::HttpRoute(objects::HttpRoute::decode(value)?)))
);
marker!(
    /// ReferenceGrant, in the version that every bundle serves.
    GrantMarker, WatchedGrant, Kind::ReferenceGrant,
    GRANTS = GATEWAY_GROUP, "v1beta1", "ReferenceGrant", "referencegrants",
    NamespaceResourceScope, false, |value| Ok(Some(Object::ReferenceGrant(objects::ReferenceGrant::decode(value)?)))
);
marker!(
    /// OperatorContext
    ContextMarker, WatchedContext, Kind::OperatorContext,
    CONTEXTS = TYK_GROUP, "v1alpha1", "OperatorContext", "operatorcontexts",
    NamespaceResourceScope, false, |value| Ok(Some(Object::OperatorContext(objects::OperatorContext::decode(value)?)))
);
marker!(
    /// TykOasApiDefinition
    DefinitionMarker, WatchedDefinition, Kind::TykOasApiDefinition,
    DEFINITIONS = TYK_GROUP, "v1alpha1", "TykOasApiDefinition", "tykoasapidefinitions",
    NamespaceResourceScope, true,
    |value| Ok(Some(Object::TykOasApiDefinition(objects::TykOasApiDefinition::decode(value)?)))
);
marker!(
    /// Service
    ServiceMarker, WatchedService, Kind::Service,
    SERVICES = "", "v1", "Service", "services",
    NamespaceResourceScope, false, |value| Ok(Some(Object::Service(objects::Service::decode(value)?)))
);
marker!(
    /// EndpointSlice
    SliceMarker, WatchedSlice, Kind::EndpointSlice,
    SLICES = "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices",
    NamespaceResourceScope, false, |value| Ok(Some(Object::EndpointSlice(objects::EndpointSlice::decode(value)?)))
);
marker!(
    /// Secret, its metadata.
    SecretMarker, WatchedSecret, Kind::Secret,
    SECRETS = "", "v1", "Secret", "secrets",
    NamespaceResourceScope, false, |_| Ok(None)
);
marker!(
    /// ConfigMap, its metadata.
    ConfigMapMarker, WatchedConfigMap, Kind::ConfigMap,
    CONFIG_MAPS = "", "v1", "ConfigMap", "configmaps",
    NamespaceResourceScope, false, |_| Ok(None)
);

/// What the model is handed: the object, or why it cannot be read.
pub type Content = Result<Box<Object>, DecodeError>;

/// A watched object: name, namespace, uid, resourceVersion, generation, deletionTimestamp, finalizers and our own
/// annotations; of kinds whose status we write, the status too.
pub struct Watched<M> {
    metadata: ObjectMeta,
    conditions: Vec<Condition>,
    // Text: a tree of a route's status takes several times the memory, and is looked at seldom.
    status: Option<Box<str>>,
    content: Arc<Mutex<Option<Content>>>,
    targets: bool,
    marker: PhantomData<fn() -> M>,
}

impl<M> Watched<M> {
    /// It is a definition with targetRefs.
    pub fn has_targets(&self) -> bool {
        self.targets
    }

    /// What the model is to be told. Given once; `None` afterwards, and for kinds that show their metadata only.
    pub fn take(&self) -> Option<Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// status.conditions, as far as they are conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// A top-level field of status.
    pub fn status_field(&self, field: &str) -> Option<Value> {
        let mut status: serde_json::Map<String, Value> =
            serde_json::from_str(self.status.as_deref()?).ok()?;
        status.remove(field)
    }

    /// Namespace (empty for a cluster-scoped kind) and name.
    pub fn key(&self) -> Key {
        Key::new(
            self.metadata.namespace.clone().unwrap_or_default(),
            self.metadata.name.clone().unwrap_or_default(),
        )
    }

    /// One of our own annotations.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether a controller of this kind has something to look at: everything but a new resourceVersion alone. A status
    /// that somebody else changed counts; the echo of an own write costs one look that finds nothing to do.
    pub fn differs(&self, old: &Self) -> bool {
        let (a, b) = (&self.metadata, &old.metadata);
        a.uid != b.uid
            || a.generation != b.generation
            || a.deletion_timestamp != b.deletion_timestamp
            || a.finalizers != b.finalizers
            || a.annotations != b.annotations
            || self.status != old.status
    }
}

impl<M> Clone for Watched<M> {
    fn clone(&self) -> Self {
        Self {
            metadata: self.metadata.clone(),
            conditions: self.conditions.clone(),
            status: self.status.clone(),
            content: Arc::clone(&self.content),
            targets: self.targets,
            marker: PhantomData,
        }
    }
}

impl<M> fmt::Debug for Watched<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("metadata", &self.metadata)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl<M: Marker> Resource for Watched<M> {
    type DynamicType = ();
    type Scope = M::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        M::API.kind.into()
    }
    fn group((): &()) -> Cow<'_, str> {
        M::API.group.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        M::API.version.into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        M::API.plural.into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de, M: Marker> Deserialize<'de> for Watched<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let metadata = metadata(&value);
        if metadata.name.is_none() {
            return Err(D::Error::custom("metadata.name: must be set"));
        }
        let status = value
            .get("status")
            .filter(|status| M::STATUS && !status.is_null());
        let content = M::decode(&value).map(|object| object.map(Box::new)).transpose();
        let targets = match &content {
            Some(Ok(object)) => match &**object {
                Object::TykOasApiDefinition(definition) => !definition.targets.is_empty(),
                _ => false,
            },
            _ => false,
        };
        Ok(Self {
            metadata,
            conditions: status.map(conditions).unwrap_or_default(),
            status: status.map(|status| status.to_string().into()),
            content: Arc::new(Mutex::new(content)),
            targets,
            marker: PhantomData,
        })
    }
}

/// The parts of metadata that are kept. Read one by one: an odd timestamp must not take the object away.
fn metadata(value: &Value) -> ObjectMeta {
    let metadata = value.get("metadata").unwrap_or(&Value::Null);
    let text = |name: &str| {
        let text = metadata.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let finalizers: Option<Vec<String>> = metadata
        .get("finalizers")
        .and_then(|list| serde_json::from_value(list.clone()).ok());
    let annotations: BTreeMap<String, String> = metadata
        .get("annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| {
            name.strip_prefix(PREFIX)
                .is_some_and(|rest| rest.starts_with('/'))
        })
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        generation: metadata.get("generation").and_then(Value::as_i64),
        deletion_timestamp: metadata
            .get("deletionTimestamp")
            .filter(|at| !at.is_null())
            .map(|at| {
                Time(
                    at.as_str()
                        .and_then(|at| at.parse().ok())
                        .unwrap_or(Timestamp::UNIX_EPOCH),
                )
            }),
        finalizers: finalizers.filter(|list| !list.is_empty()),
        annotations: Some(annotations).filter(|map| !map.is_empty()),
        ..ObjectMeta::default()
    }
}

fn conditions(status: &Value) -> Vec<Condition> {
    let list = status.get("conditions").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use reconcile_kit::runtime::hub::Cached;
    use serde_json::json;

    use super::*;

    fn cacheable<K: Cached + Resource<DynamicType = ()>>() {}

    fn route() -> Value {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {
                "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"], "labels": {"a": "b"},
                "annotations": {"routewright.dev/tyk-apis": "x", "routewright.development/a": "no", "other": "no"},
            },
            "spec": {"parentRefs": [{"name": "gw"}]},
            "status": {"parents": [{"controllerName": "a/b", "odd": [1]}], "later": 1},
        })
    }

    #[test]
    fn an_object_keeps_what_is_written_to_it_and_hands_its_spec_over_once() {
        cacheable::<WatchedRoute>();
        // Given a route as the API server shows it, when it is read
        let watched: WatchedRoute = serde_json::from_value(route()).unwrap();
        // then metadata is what writes need, and annotations are ours alone
        assert_eq!(watched.key(), Key::new("team", "shop"));
        assert_eq!(watched.annotation("routewright.dev/tyk-apis"), Some("x"));
        assert_eq!(watched.meta().annotations.as_ref().unwrap().len(), 1);
        assert_eq!(
            (watched.meta().generation, &watched.meta().labels),
            (Some(3), &None)
        );
        // and status is what it was, unknown fields too
        assert_eq!(watched.status_field("parents").unwrap()[0]["odd"], json!([1]));
        assert_eq!(watched.status_field("nothing"), None);
        // and the spec is given away once, to whoever asks first
        let copy = watched.clone();
        let Some(Ok(object)) = watched.take() else {
            panic!("nothing handed over")
        };
        assert_eq!(object.id(), (Kind::HttpRoute, &Key::new("team", "shop")));
        assert_eq!(copy.take(), None);
    }

    #[test]
    fn items_of_a_list_without_kind_are_read_too() {
        let item =
            json!({"metadata": {"name": "web", "namespace": "team"}, "spec": {"clusterIP": "10.0.0.1"}});
        let watched: WatchedService = serde_json::from_value(item).unwrap();
        assert!(matches!(*watched.take().unwrap().unwrap(), Object::Service(_)));
    }

    #[test]
    fn an_object_that_nobody_can_read_is_there_all_the_same() {
        // Given a Gateway whose name the model does not take, with an odd deletionTimestamp
        let mut odd = route();
        odd["metadata"]["name"] = json!("Shop_1");
        odd["metadata"]["deletionTimestamp"] = json!(7);
        // when it is read, then it is there, deleting, and says why it cannot be told to the model
        let watched: WatchedGateway = serde_json::from_value(odd).unwrap();
        assert_eq!(watched.key().name, "Shop_1");
        assert!(watched.meta().deletion_timestamp.is_some());
        assert!(watched.take().unwrap().is_err());
    }

    #[test]
    fn a_secret_shows_no_content() {
        let secret = json!({"metadata": {"name": "s", "namespace": "n", "annotations": {"a": "b"}}, "data": {"a": "c2VjcmV0"}});
        let watched: WatchedSecret = serde_json::from_value(secret).unwrap();
        assert_eq!(watched.take(), None);
        assert!(!format!("{watched:?}").contains("c2Vj"));
    }

    #[test]
    fn only_what_a_controller_looks_at_makes_a_difference() {
        let read = |value: Value| -> WatchedRoute { serde_json::from_value(value).unwrap() };
        let with = |change: fn(&mut Value)| {
            let mut value = route();
            change(&mut value);
            read(value).differs(&read(route()))
        };
        assert!(!with(|v| v["metadata"]["resourceVersion"] = json!("8")));
        assert!(!with(|v| v["metadata"]["annotations"]["other"] = json!("else")));
        assert!(with(
            |v| v["metadata"]["annotations"]["routewright.dev/tyk-apis"] = json!("y")
        ));
        assert!(with(|v| v["metadata"]["generation"] = json!(4)));
        assert!(with(|v| v["metadata"]["finalizers"] = json!([])));
        assert!(with(|v| v["status"]["parents"] = json!([])));
        assert!(with(|v| v["metadata"]["uid"] = json!("another")));
    }
}
