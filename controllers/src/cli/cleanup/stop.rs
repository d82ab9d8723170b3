//! Before a clean-up: the operator must not be there to put back what is taken away, and a hook of the chart acts only while
//! an uninstall is under way.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Client, ResourceExt,
    api::{Api, ListParams, Patch, PatchParams},
};
use reconcile_kit::{ErrorClass, error::classify};
use serde_json::json;
use tokio::time::Instant;

use super::super::{Failure, connect::one_line};

/// Longer than a Pod of the chart may take to end (45 s).
const LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_secs(1);
/// Absence that counts: appliers create the objects of a rendering one after the other.
const ABSENT: Duration = Duration::from_secs(5);

/// A feature of the operator that a clean-up takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Buckets in Garage.
    GarageBuckets,
    /// Gateway API on Tyk.
    Tyk,
}

impl Feature {
    /// Label of the Pods that have the feature on.
    pub const fn label(self) -> &'static str {
        match self {
            Self::GarageBuckets => "routewright.dev/garage-buckets",
            Self::Tyk => "routewright.dev/tyk",
        }
    }

    /// The chart's value that switches the feature on.
    const fn value(self) -> &'static str {
        match self {
            Self::GarageBuckets => "garageBuckets.enabled",
            Self::Tyk => "tyk.enabled",
        }
    }

    fn is_on(self, deployment: &Deployment) -> bool {
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let labels = template.and_then(|template| template.metadata.as_ref()?.labels.as_ref());
        labels
            .and_then(|labels| labels.get(self.label()))
            .map(String::as_str)
            == Some("true")
    }
}

/// Refuses while a Deployment has one of the features on, since no uninstall is under way then. A Deployment that is being
/// deleted, that has the features off, or that is absent for some seconds, is no reason to refuse.
///
/// # Errors
/// The refusal; or the API server cannot be asked.
pub async fn refuse_while_deployed(
    client: &Client,
    namespace: &str,
    name: &str,
    features: &[Feature],
) -> Result<(), Failure> {
    judge(client, namespace, name, |deployment| {
        let on: Vec<_> = features
            .iter()
            .filter(|feature| feature.is_on(deployment))
            .collect();
        if on.is_empty() {
            return Ok(());
        }
        let values: Vec<_> = on.iter().map(|feature| feature.value()).collect();
        Err(format!(
            "runs with {} and is not being deleted",
            values.join(" and ")
        ))
    })
    .await
}

/// Refuses to touch a Deployment that Helm did not install with this release: then the Job is no hook that Helm runs.
///
/// # Errors
/// The refusal; or the API server cannot be asked.
pub async fn refuse_unless_released(
    client: &Client,
    namespace: &str,
    name: &str,
    release: &str,
) -> Result<(), Failure> {
    judge(client, namespace, name, |deployment| {
        let annotation = |key: &str| deployment.annotations().get(key).map(String::as_str);
        let owner = annotation("meta.helm.sh/release-name");
        if owner == Some(release) && annotation("meta.helm.sh/release-namespace") == Some(namespace) {
            return Ok(());
        }
        Err(match owner {
            None => format!("was not installed by Helm, and so not by release {release}"),
            Some(owner) => format!("belongs to Helm release {owner}, not to {namespace}/{release}"),
        })
    })
    .await
}

/// Asks for a Deployment, and refuses for the reason that `refusal` finds in one that is there to stay.
async fn judge(
    client: &Client,
    namespace: &str,
    name: &str,
    refusal: impl Fn(&Deployment) -> Result<(), String>,
) -> Result<(), Failure> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let end = Instant::now() + LIMIT;
    let mut absent = None;
    loop {
        match api.get_opt(name).await {
            Ok(Some(deployment)) if deployment.metadata.deletion_timestamp.is_some() => return Ok(()),
            Ok(Some(deployment)) => {
                return refusal(&deployment).map_err(|why| {
                    Failure::other(format!(
                        "cleanup: nothing was changed, since no uninstall is under way: Deployment {namespace}/{name} {why}. \
                         If this Job was applied with a rendering of the chart, delete it, and render without hooks (`helm \
                         template --no-hooks`, kustomize `skipHooks: true`). To clean up all the same, scale the Deployment \
                         to 0 and run `routewright cleanup` by hand"
                    ))
                });
            }
            Ok(None) => {
                let since = *absent.get_or_insert_with(Instant::now);
                if since.elapsed() >= ABSENT {
                    return Ok(());
                }
            }
            Err(error) if Instant::now() >= end || classify(&error).0 == ErrorClass::Forbidden => {
                return Err(Failure::other(format!(
                    "cleanup: nothing was changed: Deployment {namespace}/{name} cannot be read, and it tells whether the \
                     release is being uninstalled: {}",
                    one_line(&error)
                )));
            }
            Err(_) => absent = None,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

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
