//! Narrow, resourceVersion-guarded patches of the reconciled object itself: finalizers, annotations, early status
//! fields. What is written here is never a decision of the framework; layers and effects ask for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use kube::{Client, Resource, core::ObjectMeta};
use serde_json::{Map, Value, json};

use crate::{
    ApiKind, ErrorClass, ReconcileError, Request,
    api::{self, Target},
};

/// A patch of the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerWrite {
    /// Replace the list of finalizers.
    Finalizers(Vec<String>),
    /// Set or remove one annotation.
    Annotation {
        /// Key of the annotation.
        key: String,
        /// Its value; `None` removes it.
        value: Option<String>,
    },
    /// Finalizers and annotations in one patch, for what must not stand without the other.
    Metadata {
        /// Replace the list of finalizers; `None` leaves it as it is.
        finalizers: Option<Vec<String>>,
        /// Annotations to set, or to remove where the value is `None`.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Set top-level fields of status.
    Status(Value),
}

/// Patches of owners. A seam, so that layers can be tested alone.
#[async_trait]
pub trait OwnerWriter: Send + Sync + 'static {
    /// Performs the patch if the object still has this version; the object as it is then.
    async fn write(
        &self,
        target: Target<'_>,
        version: &str,
        manager: &str,
        write: &OwnerWrite,
    ) -> Result<Value, ReconcileError>;
}

/// [`OwnerWriter`] by a kube client.
#[derive(Clone)]
pub struct KubeOwnerWriter(pub Client);

#[async_trait]
impl OwnerWriter for KubeOwnerWriter {
    async fn write(
        &self,
        target: Target<'_>,
        version: &str,
        manager: &str,
        write: &OwnerWrite,
    ) -> Result<Value, ReconcileError> {
        let guarded = |mut patch: Value| {
            if let Some(metadata) = patch
                .as_object_mut()
                .map(|p| p.entry("metadata").or_insert_with(|| json!({})))
                .and_then(Value::as_object_mut)
            {
                metadata.insert("resourceVersion".into(), version.into());
            }
            patch
        };
        let (subresource, patch) = match write {
            OwnerWrite::Finalizers(list) => (None, guarded(json!({"metadata": {"finalizers": list}}))),
            OwnerWrite::Annotation { key, value } => (
                None,
                guarded(json!({"metadata": {"annotations": {key.as_str(): value}}})),
            ),
            OwnerWrite::Metadata {
                finalizers,
                annotations,
            } => {
                let mut metadata = Map::new();
                if let Some(list) = finalizers {
                    metadata.insert("finalizers".into(), json!(list));
                }
                // An empty map of annotations would be stored as one by some kinds, and that is a write.
                if !annotations.is_empty() {
                    metadata.insert("annotations".into(), json!(annotations));
                }
                (None, guarded(json!({ "metadata": metadata })))
            }
            OwnerWrite::Status(fields) => (Some("status"), guarded(json!({"status": fields}))),
        };
        api::merge_patch(&self.0, target, subresource, manager, &patch)
            .await
            .map_err(|error| ReconcileError::from_kube(&format!("patch {target}"), &error))
    }
}

/// The owner after the patches of a run: what is said about it afterwards starts from here, not from the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patched {
    /// Its resourceVersion.
    pub version: String,
    /// The top-level fields of status that were set.
    pub status: Map<String, Value>,
}

/// The owner after the patches of one reconcile, if it made any. Clones share it: whoever stands outside of what patched
/// knows it too, even if that was dropped or panicked.
#[derive(Clone, Debug, Default)]
pub struct Patches(Arc<Mutex<Option<Patched>>>);

impl Patches {
    fn lock(&self) -> MutexGuard<'_, Option<Patched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner as it is after the latest patch; `None` if there was none.
    pub fn latest(&self) -> Option<Patched> {
        self.lock().clone()
    }

    /// It was patched, and has this version since. `status`: fields of it that were set.
    pub fn note(&self, version: impl Into<String>, status: Map<String, Value>) {
        let mut latest = self.lock();
        let now = latest.get_or_insert_default();
        now.version = version.into();
        now.status.extend(status);
    }
}

/// The owner of one reconcile, and the version that the next patch of it must find.
pub struct OwnerPatch {
    writer: Arc<dyn OwnerWriter>,
    kind: ApiKind,
    namespace: String,
    name: String,
    manager: Arc<str>,
    /// The version in hand when the reconcile began.
    begun: String,
    patches: Patches,
}

impl OwnerPatch {
    /// For the object of this reconcile, as it is in hand or was patched since.
    pub fn new<K: Resource<DynamicType = ()>>(
        request: &Request<K>,
        manager: Arc<str>,
        writer: Arc<dyn OwnerWriter>,
    ) -> Self {
        let meta: &ObjectMeta = request.object.meta();
        Self {
            writer,
            kind: ApiKind::of::<K>(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            manager,
            begun: meta.resource_version.clone().unwrap_or_default(),
            patches: request.patches.clone(),
        }
    }

    /// Patches the owner if it is still as we know it; the object as it is then. A conflict is an error of that class.
    pub async fn write(&self, write: &OwnerWrite) -> Result<Value, ReconcileError> {
        let target = Target {
            kind: &self.kind,
            namespace: &self.namespace,
            name: &self.name,
        };
        let version = self
            .patches
            .latest()
            .map_or_else(|| self.begun.clone(), |p| p.version);
        let object = self.writer.write(target, &version, &self.manager, write).await?;
        let version = object
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .ok_or_else(|| {
                ReconcileError::new(
                    ErrorClass::Transient,
                    format!("patch {target}: the answer has no version"),
                )
            })?;
        let status = match write {
            OwnerWrite::Status(Value::Object(fields)) => fields.clone(),
            _ => Map::new(),
        };
        self.patches.note(version, status);
        Ok(object)
    }

    /// Sets or removes one annotation.
    pub async fn annotate(&self, key: &str, value: Option<&str>) -> Result<(), ReconcileError> {
        let write = OwnerWrite::Annotation {
            key: key.to_owned(),
            value: value.map(str::to_owned),
        };
        self.write(&write).await.map(drop)
    }

    /// Sets top-level fields of status before the report is written, for what must not be lost in between.
    pub async fn status(&self, fields: Value) -> Result<(), ReconcileError> {
        self.write(&OwnerWrite::Status(fields)).await.map(drop)
    }
}
