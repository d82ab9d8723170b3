//! A child object as the cache keeps it: metadata typed, the rest as compact JSON text, managedFields reduced to the
//! names of their managers unless somebody has to be relieved of them. Decoding cannot fail on anything but broken metadata, so no child can stall its watch.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource,
    core::{ApiResource, ObjectMeta},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

/// A cached object of any kind.
#[derive(Clone, Debug, Default)]
pub struct Child {
    /// Metadata without managedFields.
    pub metadata: ObjectMeta,
    /// Managers with an `Apply` entry on the main resource.
    pub appliers: Box<[Box<str>]>,
    /// managedFields as JSON text, kept only where a manager other than a single applier wrote an ownerReference:
    /// taking such a child over needs them.
    shared: Option<Box<str>>,
    /// The object without metadata, as JSON text: a tenth of a decoded tree in memory.
    rest: Box<str>,
}

impl Child {
    /// From a whole object.
    pub fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        let Value::Object(mut map) = value else {
            return Err(serde_json::Error::custom(
                "a Kubernetes object must be a JSON object",
            ));
        };
        let mut metadata = map.remove("metadata").unwrap_or(Value::Object(Map::new()));
        let managed = metadata.as_object_mut().and_then(|m| m.remove("managedFields"));
        let entries = managed
            .as_ref()
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let main = || {
            entries.iter().filter(|e| {
                let sub = e.get("subresource").and_then(Value::as_str);
                sub.is_none_or(str::is_empty)
            })
        };
        let applied = |e: &&Value| e.get("operation").and_then(Value::as_str) == Some("Apply");
        let appliers = main()
            .filter(applied)
            .filter_map(|e| e.get("manager").and_then(Value::as_str).map(Box::from))
            .collect();
        let owners = || {
            main().filter(|e| {
                e.pointer("/fieldsV1/f:metadata/f:ownerReferences")
                    .is_some_and(|owners| owners.as_object().is_some_and(|o| !o.is_empty()))
            })
        };
        let shared = owners().count() > 1 || owners().any(|e| !applied(&e));
        Ok(Self {
            metadata: serde_json::from_value(metadata)?,
            appliers,
            shared: shared.then(|| Value::from(entries).to_string().into_boxed_str()),
            rest: Value::Object(map).to_string().into_boxed_str(),
        })
    }

    /// Metadata alone is known.
    pub fn of_metadata(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }

    /// Metadata with managedFields, where they were worth keeping.
    pub fn with_managed_fields(&self) -> Option<ObjectMeta> {
        Some(ObjectMeta {
            managed_fields: serde_json::from_str(self.shared.as_deref()?).ok()?,
            ..self.metadata.clone()
        })
    }

    /// Everything but metadata, decoded anew at every call.
    pub fn rest(&self) -> Value {
        serde_json::from_str(&self.rest).unwrap_or_default()
    }

    /// A top-level part (`spec`, `status`), decoded anew at every call.
    pub fn part(&self, name: &str) -> Value {
        match self.rest() {
            Value::Object(mut map) => map.remove(name).unwrap_or_default(),
            _ => Value::Null,
        }
    }

    /// The ownerReference with `controller: true`.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata
            .owner_references
            .as_deref()?
            .iter()
            .find(|o| o.controller == Some(true))
    }

    /// `metadata.uid`, empty if absent.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `metadata.resourceVersion`, empty if absent.
    pub fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// On its way out.
    pub fn terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl<'de> Deserialize<'de> for Child {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Resource for Child {
    type DynamicType = Arc<ApiResource>;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }
    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        dt.group.as_str().into()
    }
    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        dt.version.as_str().into()
    }
    fn api_version(dt: &Self::DynamicType) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }
    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
