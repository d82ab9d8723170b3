//! Writes own status by server-side apply on `/status`, guarded by the resourceVersion that was planned from and never
//! by force: a condition that another manager owns is not ours to overwrite.

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    ReconcileError,
    api::{self, Target},
    error::is_undeclared_field,
    status::StatusContract,
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
    /// Anything else.
    Failed(ReconcileError),
}

/// What a status write left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusAnswer {
    /// The object's new resourceVersion.
    pub version: String,
    /// All conditions after the write.
    pub conditions: Vec<MetaCondition>,
}

/// Status writes. A seam, so that the layer can be tested alone.
#[async_trait]
pub trait StatusWriter: Send + Sync + 'static {
    /// Makes `body` the whole of what the contract's manager owns.
    async fn apply(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        body: &Value,
    ) -> Result<StatusAnswer, StatusError>;

    /// Removes the condition at this index, which an older manager holds a share of.
    async fn remove_condition(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        index: usize,
    ) -> Result<StatusAnswer, StatusError>;
}

/// [`StatusWriter`] by a kube client.
#[derive(Clone)]
pub struct KubeStatusWriter(pub Client);

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: kube::core::ObjectMeta,
    #[serde(default)]
    status: Option<AnswerStatus>,
}

#[derive(Default, Deserialize)]
struct AnswerStatus {
    #[serde(default)]
    conditions: Vec<MetaCondition>,
}

fn answered(target: Target<'_>, answer: Result<Value, kube::Error>) -> Result<StatusAnswer, StatusError> {
    let status = match answer {
        Ok(value) => {
            let answer: Answer = serde_json::from_value(value).unwrap_or(Answer {
                metadata: kube::core::ObjectMeta::default(),
                status: None,
            });
            return Ok(StatusAnswer {
                version: answer.metadata.resource_version.unwrap_or_default(),
                conditions: answer.status.unwrap_or_default().conditions,
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
        500 if is_undeclared_field(&status) => match undeclared(&status.message) {
            paths if paths.is_empty() => failed(target, &kube::Error::Api(status)),
            paths => StatusError::Undeclared(paths),
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

/// The paths that a "field not declared in schema" answer names.
fn undeclared(message: &str) -> Vec<String> {
    message
        .match_indices(": field not declared in schema")
        .filter_map(|(end, _)| message.get(..end)?.split_whitespace().next_back())
        .filter(|path| path.starts_with(".status."))
        .map(str::to_owned)
        .collect()
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
        let body = json!({
            "apiVersion": target.kind.api_version(), "kind": target.kind.kind,
            "metadata": {"name": target.name, "namespace": target.namespace, "resourceVersion": version},
            "status": body,
        });
        answered(
            target,
            api::apply_status(&self.0, target, contract.manager, false, &body).await,
        )
    }

    async fn remove_condition(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        index: usize,
    ) -> Result<StatusAnswer, StatusError> {
        let operations = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "remove", "path": format!("/status/conditions/{index}")},
        ]);
        let answer = api::json_patch(&self.0, target, Some("status"), contract.manager, &operations).await;
        answered(target, answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undeclared_paths_are_read_from_the_servers_text() {
        let text = "failed to create typed patch object (ns/n; g/v1, Kind=K): errors:\n  .status.a.b: field not \
                    declared in schema\n  .status.c: field not declared in schema";
        assert_eq!(undeclared(text), [".status.a.b", ".status.c"]);
        assert!(
            undeclared("failed to create typed patch object: .spec.x: field not declared in schema")
                .is_empty()
        );
        assert!(undeclared("something else").is_empty());
    }
}
