//! Before a clean-up: the operator must not be there to put back what is taken away.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Client,
    api::{Api, ListParams, Patch, PatchParams},
};
use reconcile_kit::{ErrorClass, error::classify};
use serde_json::json;
use tokio::time::Instant;

use super::super::{Failure, connect::one_line};

/// Longer than a Pod of the chart may take to end (45 s).
const LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_secs(1);

/// Scales a Deployment to 0; one that is not there has stopped.
///
/// # Errors
/// What the API server says.
pub async fn scale_down(client: &Client, namespace: &str, name: &str) -> Result<(), Failure> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    match api.patch_scale(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(error) if classify(&error).0 == ErrorClass::NotFound => Ok(()),
        Err(error) => Err(Failure::other(format!(
            "cleanup: Deployment {namespace}/{name} cannot be scaled to 0: {}",
            one_line(&error)
        ))),
    }
}

/// Waits until no Pod with these labels runs any more.
///
/// # Errors
/// Some still do after a while; or the API server cannot be asked.
pub async fn gone(client: &Client, namespace: &str, labels: &str) -> Result<(), Failure> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let running = ListParams::default()
        .labels(labels)
        .fields("status.phase!=Succeeded,status.phase!=Failed");
    let end = Instant::now() + LIMIT;
    loop {
        let problem = match api.list_metadata(&running).await {
            Ok(pods) if pods.items.is_empty() => return Ok(()),
            Ok(pods) => {
                let names = pods.items.into_iter().filter_map(|pod| pod.metadata.name);
                format!("still running: {}", names.collect::<Vec<_>>().join(", "))
            }
            Err(error) if classify(&error).0 == ErrorClass::Forbidden => {
                return Err(Failure::other(format!("cleanup: {}", one_line(&error))));
            }
            Err(error) => one_line(&error),
        };
        if Instant::now() >= end {
            return Err(Failure::other(format!(
                "cleanup: Pods {labels} of namespace {namespace} must be gone first, since they would put back what is \
                 taken away; {problem}"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
