//! Decoding that cannot fail a whole list: an object that does not fit its type becomes a value with its identity and
//! the reason. managedFields never get past this point ([`Child`] keeps the names that it needs).

use std::{any::TypeId, borrow::Cow};

use kube::{
    Resource,
    core::{DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use crate::Child;

/// A decoded object, or what is known of one that cannot be decoded.
#[derive(Clone, Debug)]
pub(crate) enum Guarded<K> {
    Good(K),
    Bad(Box<Bad>),
}

/// Identity (namespace, name, uid, resourceVersion) and reason.
#[derive(Clone, Debug)]
pub(crate) struct Bad {
    pub(crate) metadata: ObjectMeta,
    pub(crate) error: String,
}

impl<'de, K: DeserializeOwned + Resource + 'static> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if TypeId::of::<K>() == TypeId::of::<Child>() {
            // Takes the tree apart by value, and reads managedFields itself.
            let identity = identity(&value);
            return Ok(match serde_json::from_value::<K>(value) {
                Ok(object) => Self::Good(object),
                Err(error) => Self::bad(identity, error.to_string()),
            });
        }
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Ok(match K::deserialize(&value) {
            Ok(object) => Self::Good(object),
            // Once more, slower, for the path to the field.
            Err(plain) => Self::bad(
                identity(&value),
                serde_path_to_error::deserialize::<_, K>(&value)
                    .err()
                    .map_or_else(|| plain.to_string(), |e| e.to_string()),
            ),
        })
    }
}

impl<K> Guarded<K> {
    fn bad(metadata: ObjectMeta, error: String) -> Self {
        Self::Bad(Box::new(Bad { metadata, error }))
    }
}

fn identity(value: &Value) -> ObjectMeta {
    let text = |name: &str| {
        value
            .get("metadata")
            .and_then(|m| m.get(name))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    // The hub decides the scope at run time, for any kind.
    type Scope = DynamicResourceScope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }
    fn api_version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(dt)
    }
    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Good(object) => object.meta(),
            Self::Bad(bad) => &bad.metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Good(object) => object.meta_mut(),
            Self::Bad(bad) => &mut bad.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::Ingress;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bad_object_keeps_its_identity_and_says_where_it_is_bad() {
        let decoded: Guarded<Ingress> = serde_json::from_value(json!({
            "metadata": { "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7" },
            "spec": { "rules": [{ "host": 5 }] },
        }))
        .unwrap();
        let Guarded::Bad(bad) = decoded else {
            panic!("{decoded:?}")
        };
        assert_eq!(bad.metadata.name.as_deref(), Some("a"));
        assert_eq!(bad.metadata.resource_version.as_deref(), Some("7"));
        assert!(bad.error.contains("spec.rules[0].host"), "{}", bad.error);
    }

    #[test]
    fn managed_fields_are_dropped_but_a_child_keeps_its_appliers() {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": "a", "managedFields": [{ "manager": "m", "operation": "Apply" }] },
            "spec": {},
        });
        let Guarded::Good(typed) = serde_json::from_value::<Guarded<Ingress>>(object.clone()).unwrap() else {
            panic!("not decoded")
        };
        assert_eq!(typed.metadata.managed_fields, None);
        let Guarded::Good(child) = serde_json::from_value::<Guarded<Child>>(object).unwrap() else {
            panic!("not decoded")
        };
        assert_eq!(child.metadata.managed_fields, None);
        assert_eq!(&*child.appliers, ["m".into()]);
    }
}
