//! Writes own status on `/status`, guarded by the resourceVersion that was planned from, in the way that the contract
//! asks for. Without force: a condition that another manager owns is not ours to overwrite, but what stands under our
//! own manager's name by plain updates (an older release, an early status field) is.

use async_trait::async_trait;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time},
    jiff::Timestamp,
};
use kube::{Client, core::Status};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    ErrorClass, ReconcileError,
    api::{self, Target},
    error::is_undeclared_field,
    status::{StatusContract, StatusMode},
};

/// A status write that did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusError {
    /// Somebody wrote the object in between.
    Stale,
    /// The object is gone.
    Gone,
    /// Another field manager owns what we would change.
    OwnedByAnother(String),
    /// The installed schema does not know these paths (`.status.a.b`).
    Undeclared(Vec<String>),
    /// The installed schema wants values of another type at these paths.
    Mistyped(Vec<String>),
    /// The object is there, and its kind has no status subresource.
    NoSubresource,
    /// Anything else.
    Failed(ReconcileError),
}

/// What a status write left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusAnswer {
    /// The object's new resourceVersion.
    pub version: String,
    /// All conditions after the write, in their order. Of one that cannot be decoded only the type is known.
    pub conditions: Vec<MetaCondition>,
    /// The other top-level fields of status after the write, defaults of the API server included.
    pub fields: Map<String, Value>,
}

/// Status writes. A seam, so that the layer can be tested alone.
#[async_trait]
pub trait StatusWriter: Send + Sync + 'static {
    /// Makes `body` the whole of what the contract's manager owns, or merges it in, by the contract's mode.
    async fn apply(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        body: &Value,
    ) -> Result<StatusAnswer, StatusError>;

    /// Removes what an older manager holds a share of: JSON pointers below `/status`, later list items first.
    async fn remove(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        paths: &[String],
    ) -> Result<StatusAnswer, StatusError>;
}

/// [`StatusWriter`] by a kube client.
#[derive(Clone)]
pub struct KubeStatusWriter(pub Client);

/// Tolerant: what somebody else wrote into status must not cost us the version.
fn decode(mut answer: Value) -> Option<StatusAnswer> {
    let version = answer.pointer("/metadata/resourceVersion")?.as_str()?.to_owned();
    let mut fields = match answer.get_mut("status").map(Value::take) {
        Some(Value::Object(status)) => status,
        _ => Map::new(),
    };
    let conditions = fields.remove("conditions");
    let conditions = conditions
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|c| MetaCondition::deserialize(c).unwrap_or_else(|_| of_type(c)))
        .collect();
    Some(StatusAnswer {
        version,
        conditions,
        fields,
    })
}

fn of_type(condition: &Value) -> MetaCondition {
    let type_ = condition.get("type").and_then(Value::as_str).unwrap_or_default();
    MetaCondition {
        type_: type_.to_owned(),
        status: String::new(),
        reason: String::new(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

fn answered(target: Target<'_>, answer: Result<Value, kube::Error>) -> Result<StatusAnswer, StatusError> {
    let status = match answer {
        Ok(value) => {
            return decode(value).ok_or_else(|| {
                StatusError::Failed(ReconcileError::new(
                    ErrorClass::Transient,
                    format!("write status of {target}: the answer has no version"),
                ))
            });
        }
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Err(failed(target, &error)),
    };
    let causes = status.details.as_ref().map_or(&[][..], |d| d.causes.as_slice());
    Err(match status.code {
        409 if causes.iter().any(|c| c.reason == "FieldManagerConflict") => {
            StatusError::OwnedByAnother(status.message.clone())
        }
        409 => StatusError::Stale,
        404 if api::is_object_missing(&status) => StatusError::Gone,
        500 if is_undeclared_field(&status) => match refused_paths(&status.message) {
            (unknown, _) if !unknown.is_empty() => StatusError::Undeclared(unknown),
            (_, mistyped) if !mistyped.is_empty() => StatusError::Mistyped(mistyped),
            _ => failed(target, &kube::Error::Api(status)),
        },
        _ => failed(target, &kube::Error::Api(status)),
    })
}

fn failed(target: Target<'_>, error: &kube::Error) -> StatusError {
    StatusError::Failed(ReconcileError::from_kube(
        &format!("write status of {target}"),
        error,
    ))
}

/// Every conflicting field belongs to our own manager's name: the API server tells updates and applies apart.
fn is_with_ourselves(status: &Status, manager: &str) -> bool {
    let causes = status.details.as_ref().map_or(&[][..], |d| d.causes.as_slice());
    let ours = format!("conflict with \"{manager}\"");
    status.code == 409
        && !causes.is_empty()
        && causes
            .iter()
            .all(|c| c.reason == "FieldManagerConflict" && c.message.starts_with(&ours))
}

/// The paths below `.status` of which a "failed to create typed patch object" answer complains: fields that the schema
/// does not have, and those that it has with another type.
fn refused_paths(message: &str) -> (Vec<String>, Vec<String>) {
    let (mut unknown, mut mistyped) = (Vec::new(), Vec::new());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(": ") {
        let path = before.split_whitespace().next_back().unwrap_or_default();
        if path.starts_with(".status.") {
            let list = match after.starts_with("field not declared in schema") {
                true => &mut unknown,
                false => &mut mistyped,
            };
            list.push(path.to_owned());
        }
        rest = after;
    }
    (unknown, mistyped)
}

impl KubeStatusWriter {
    /// `NotFound` is the answer for an object that is gone, and for a kind without the status subresource.
    async fn tell_gone(
        &self,
        target: Target<'_>,
        answer: Result<StatusAnswer, StatusError>,
    ) -> Result<StatusAnswer, StatusError> {
        if answer != Err(StatusError::Gone) {
            return answer;
        }
        match api::is_listed(&self.0, target).await {
            Ok(true) => Err(StatusError::NoSubresource),
            _ => answer,
        }
    }
}

#[async_trait]
impl StatusWriter for KubeStatusWriter {
    async fn apply(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        body: &Value,
    ) -> Result<StatusAnswer, StatusError> {
        if contract.mode == StatusMode::Patch {
            let patch = json!({"metadata": {"resourceVersion": version}, "status": body});
            let answer = api::merge_patch(&self.0, target, Some("status"), contract.manager, &patch).await;
            return self.tell_gone(target, answered(target, answer)).await;
        }
        let mut body = json!({
            "apiVersion": target.kind.api_version(), "kind": target.kind.kind,
            "metadata": {"name": target.name, "resourceVersion": version},
            "status": body,
        });
        if let (false, Some(metadata)) = (
            target.namespace.is_empty(),
            body.get_mut("metadata").and_then(Value::as_object_mut),
        ) {
            metadata.insert("namespace".into(), target.namespace.into());
        }
        let apply = |force| api::apply_status(&self.0, target, contract.manager, force, &body);
        let answer = match apply(contract.mode == StatusMode::Force).await {
            Err(kube::Error::Api(status)) if is_with_ourselves(&status, contract.manager) => {
                apply(true).await
            }
            answer => answer,
        };
        self.tell_gone(target, answered(target, answer)).await
    }

    async fn remove(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        paths: &[String],
    ) -> Result<StatusAnswer, StatusError> {
        let guard = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
        let removals = paths
            .iter()
            .map(|path| json!({"op": "remove", "path": format!("/status/{path}")}));
        let operations = Value::Array(std::iter::once(guard).chain(removals).collect());
        let answer = api::json_patch(&self.0, target, Some("status"), contract.manager, &operations).await;
        answered(target, answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_of_somebody_that_cannot_be_decoded_keeps_its_place_and_costs_nothing_else() {
        let answer = decode(json!({
            "metadata": {"resourceVersion": "7"},
            "status": {"where": {}, "conditions": [
                {"type": "Theirs", "lastTransitionTime": "yesterday"},
                {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }))
        .unwrap();
        let types: Vec<_> = answer.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!((answer.version.as_str(), types), ("7", vec!["Theirs", "Ready"]));
        assert_eq!(Value::from(answer.fields), json!({"where": {}}));
        assert_eq!(
            decode(json!({"metadata": {}})),
            None,
            "no version: nothing to remember"
        );
    }

    #[test]
    fn undeclared_paths_are_read_from_the_servers_text() {
        let text = "failed to create typed patch object (ns/n; g/v1, Kind=K): errors:\n  .status.a.b: field not \
                    declared in schema\n  .status.c: field not declared in schema";
        let none: [&str; 0] = [];
        let (unknown, mistyped) = refused_paths(text);
        assert_eq!(unknown, [".status.a.b", ".status.c"]);
        assert_eq!(mistyped, none);
        for text in [
            "failed to create typed patch object: .spec.x: field not declared in schema",
            "something else",
        ] {
            assert_eq!(refused_paths(text), (vec![], vec![]));
        }
        // Another type than the schema has: what an old CRD says of a list of texts, in either kind of list.
        let text = "failed to create typed patch object (/n; g/v1, Kind=K): errors:\n  .status.list[0]: expected string, \
                    got &{map[name:a]}\n  .status.other: element 0: associative list without keys has an element that's a map type\n  \
                    .status.new: field not declared in schema";
        let (unknown, mistyped) = refused_paths(text);
        assert_eq!(unknown, [".status.new"]);
        assert_eq!(mistyped, [".status.list[0]", ".status.other"]);
    }
}
