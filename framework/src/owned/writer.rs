//! The calls for children, each with the guard that makes it safe: create never adopts, change and delete name the uid.

use std::sync::Arc;

use async_trait::async_trait;
use kube::{Client, core::ObjectMeta};
use serde_json::{Value, json};

use super::decide::Intent;
use crate::{Child, ErrorClass, ReconcileError, api, api::Target};

/// A failed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Create: the name is taken. Change: the object is gone or was replaced.
    Stale,
    /// Anything else.
    Failed(ReconcileError),
}

/// The calls for children. A seam, so that the layer can be tested alone.
#[async_trait]
pub trait ChildWriter: Send + Sync + 'static {
    /// Creates, and never touches what is there.
    async fn create(&self, target: Target<'_>, intent: &Intent) -> Result<Child, WriteError>;
    /// Changes the object with this uid, and never creates.
    async fn update(&self, target: Target<'_>, intent: &Intent, uid: &str) -> Result<Child, WriteError>;
    /// Turns the fields of whoever wrote our ownerReference into ours, so that dropped keys are pruned from now on.
    async fn take_over(&self, target: Target<'_>, meta: &ObjectMeta) -> Result<(), WriteError>;
    /// Changes exactly this version of the object by JSON patch operations.
    async fn patch(
        &self,
        target: Target<'_>,
        version: &str,
        operations: Vec<Value>,
    ) -> Result<Child, WriteError>;
    /// Deletes the object with this uid while it has this version: a later one may belong to another owner.
    async fn delete(&self, target: Target<'_>, uid: &str, version: &str) -> Result<(), WriteError>;
    /// Metadata with managedFields; `None` if there is no such object.
    async fn metadata(&self, target: Target<'_>) -> Result<Option<ObjectMeta>, WriteError>;
}

/// [`ChildWriter`] by a kube client.
#[derive(Clone)]
pub struct KubeChildWriter {
    client: Client,
    manager: Arc<str>,
}

impl KubeChildWriter {
    /// Writes as field manager `manager`, which must never change: ownership hangs on it.
    pub fn new(client: Client, manager: &str) -> Self {
        Self {
            client,
            manager: manager.into(),
        }
    }

    async fn apply(&self, doing: &str, target: Target<'_>, body: &Value) -> Result<Child, WriteError> {
        let live = api::apply(&self.client, target, &self.manager, true, body)
            .await
            .map_err(|error| failed(doing, target, &error))?;
        decode(doing, target, live)
    }
}

fn decode(doing: &str, target: Target<'_>, live: Value) -> Result<Child, WriteError> {
    Child::from_value(live).map_err(|error| {
        WriteError::Failed(ReconcileError::new(
            ErrorClass::Transient,
            format!("{doing} {target}: the answer cannot be decoded: {error}"),
        ))
    })
}

fn failed(doing: &str, target: Target<'_>, error: &kube::Error) -> WriteError {
    let error = ReconcileError::from_kube(&format!("{doing} {target}"), error);
    if error.class == ErrorClass::Conflict {
        WriteError::Stale
    } else {
        WriteError::Failed(error)
    }
}

/// A resourceVersion below the first that a server ever gives: an apply with it can only create (apiserver facts §1).
const NEVER: &str = "1";

#[async_trait]
impl ChildWriter for KubeChildWriter {
    async fn create(&self, target: Target<'_>, intent: &Intent) -> Result<Child, WriteError> {
        self.apply("create", target, &intent.body_with("resourceVersion", NEVER))
            .await
    }

    async fn update(&self, target: Target<'_>, intent: &Intent, uid: &str) -> Result<Child, WriteError> {
        self.apply("update", target, &intent.body_with("uid", uid)).await
    }

    async fn take_over(&self, target: Target<'_>, meta: &ObjectMeta) -> Result<(), WriteError> {
        let Some(fields) = rewritten(meta, &self.manager) else {
            return Ok(());
        };
        let operations = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "replace", "path": "/metadata/managedFields", "value": fields},
        ]);
        api::json_patch(&self.client, target, None, &self.manager, &operations)
            .await
            .map(drop)
            .map_err(|error| failed("take over", target, &error))
    }

    async fn patch(
        &self,
        target: Target<'_>,
        version: &str,
        operations: Vec<Value>,
    ) -> Result<Child, WriteError> {
        let guard = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
        let operations = std::iter::once(guard).chain(operations).collect();
        let live = api::json_patch(&self.client, target, None, &self.manager, &operations)
            .await
            .map_err(|error| failed("update", target, &error))?;
        decode("update", target, live)
    }

    async fn delete(&self, target: Target<'_>, uid: &str, version: &str) -> Result<(), WriteError> {
        api::delete(&self.client, target, uid, version)
            .await
            .map_err(|error| failed("delete", target, &error))
    }

    async fn metadata(&self, target: Target<'_>) -> Result<Option<ObjectMeta>, WriteError> {
        api::metadata(&self.client, target)
            .await
            .map_err(|error| failed("get", target, &error))
    }
}

/// managedFields in which one `Apply` entry of `manager` holds what the writers of our ownerReference held; everybody
/// else's entries stay. `None` if nobody but us wrote it.
fn rewritten(meta: &ObjectMeta, manager: &str) -> Option<Vec<Value>> {
    let owner = meta
        .owner_references
        .as_deref()?
        .iter()
        .find(|o| o.controller == Some(true))?;
    let key = format!("k:{{\"uid\":\"{}\"}}", owner.uid);
    let entries: Vec<Value> = meta
        .managed_fields
        .as_deref()?
        .iter()
        .filter_map(|e| serde_json::to_value(e).ok())
        .collect();
    let main = |e: &Value| {
        e.get("subresource")
            .is_none_or(|s| s.as_str().is_none_or(str::is_empty))
    };
    let text = |e: &Value, field: &str| {
        e.get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let writers: Vec<String> = entries
        .iter()
        .filter(|e| main(e))
        .filter(|e| {
            e.pointer("/fieldsV1/f:metadata/f:ownerReferences")
                .is_some_and(|o| o.get(&key).is_some())
        })
        .map(|e| text(e, "manager"))
        .collect();
    let ours =
        |e: &Value| main(e) && (text(e, "manager") == manager || writers.contains(&text(e, "manager")));
    let (mine, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(ours);
    let latest = mine.last()?.clone();
    if mine.len() == 1 && text(&latest, "manager") == manager && text(&latest, "operation") == "Apply" {
        return None;
    }
    let mut union = Value::Object(serde_json::Map::new());
    for entry in &mine {
        merge(&mut union, entry.get("fieldsV1").unwrap_or(&Value::Null));
    }
    let entry = json!({
        "manager": manager, "operation": "Apply", "apiVersion": latest.get("apiVersion"),
        "time": latest.get("time"), "fieldsType": "FieldsV1", "fieldsV1": union,
    });
    Some(std::iter::once(entry).chain(others).collect())
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            merge(into.entry(key.clone()).or_insert_with(|| json!({})), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(entries: Value) -> ObjectMeta {
        serde_json::from_value(json!({
            "ownerReferences": [{"apiVersion": "g/v1", "kind": "O", "name": "o", "uid": "U", "controller": true}],
            "managedFields": entries,
        }))
        .unwrap()
    }

    #[test]
    fn the_writers_of_our_owner_reference_become_us_and_everybody_else_stays() {
        let owner = json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"U\"}": {}}}});
        let fields = rewritten(
            &meta(json!([
                {"manager": "old", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": owner},
                {"manager": "old", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:spec": {"f:tls": {}}}},
                {"manager": "old", "operation": "Update", "subresource": "status", "apiVersion": "v1",
                 "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}},
                {"manager": "user", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}}},
            ])),
            "new",
        )
        .unwrap();
        assert_eq!(fields.len(), 3);
        assert_eq!(
            (&fields[0]["manager"], &fields[0]["operation"]),
            (&json!("new"), &json!("Apply"))
        );
        assert!(fields[0].pointer("/fieldsV1/f:spec/f:tls").is_some());
        assert!(fields[0].pointer("/fieldsV1/f:metadata/f:labels").is_none());
        assert_eq!(fields[1]["subresource"], json!("status"));
        assert_eq!(fields[2]["manager"], json!("user"));
    }

    #[test]
    fn nothing_to_take_over_where_only_we_applied() {
        let ours = json!([{"manager": "new", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"U\"}": {}}}}}]);
        assert_eq!(rewritten(&meta(ours), "new"), None);
    }
}
