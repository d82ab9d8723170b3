//! `routewright cleanup`: takes back what would keep objects from being deleted once the operator is gone. The chart runs
//! it on uninstall. Buckets in Garage are not touched; APIs in Tyk are deleted.

mod roads;
mod speakers;
pub mod stop;
pub mod tyk;

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use reconcile_kit::ErrorClass;
use reconcile_kit::error::classify;
use routewright_crds::GarageBucket;
use serde_json::json;

use super::{Failure, connect, namespaces::WatchNamespaces};
use crate::{
    garage::bucket_controller::FINALIZER,
    telemetry::tyk::TykMeter,
    tyk::{
        CONTROLLER_NAME,
        client::http::{Limits, Pools},
        controllers::{Reach, reach},
        httproute::places::{InMemory, KubeRecord, Record, record_name},
        objects::Key,
    },
};

/// Flags of `cleanup`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, group = clap::ArgGroup::new("what").required(true).multiple(true).args(["garage", "tyk"]))]
pub struct CleanupArgs {
    /// Take the operator's finalizer off GarageBuckets. Buckets in Garage stay as they are. Stop the operator first.
    #[arg(long)]
    pub garage: bool,

    /// Delete the operator's APIs from Tyk, so that their routes are served no more, and take its finalizers, its annotation
    /// and its status off HTTPRoutes, Gateways, GatewayClasses and TykOasApiDefinitions. Stop the operator first.
    #[arg(long)]
    pub tyk: bool,

    /// With --tyk: leave the APIs in Tyk, with annotation and status. Only what keeps objects from being deleted is taken off.
    #[arg(long, requires = "tyk")]
    pub keep_apis: bool,

    /// With --garage: where buckets are looked at.
    #[command(flatten)]
    pub namespaces: WatchNamespaces,

    /// With --tyk: the operator's controllerName. What other controllers wrote is left alone.
    #[arg(long, env = "TYK_CONTROLLER_NAME", default_value = CONTROLLER_NAME, value_name = "NAME")]
    pub tyk_controller_name: String,

    /// With --tyk: the operator's name of the cluster, in the owner of its APIs. Empty: the uid of the namespace kube-system.
    #[arg(long, env = "TYK_CLUSTER_ID", default_value = "", value_name = "ID")]
    pub tyk_cluster_id: String,

    /// With --tyk: file with PEM certificates that are trusted besides the system's.
    #[arg(long, env = "EXTRA_CA_FILE", value_name = "FILE")]
    pub extra_ca_file: Option<PathBuf>,

    /// With --tyk: how long deleting APIs is tried, in seconds. What is left then is named, and everything else is done.
    #[arg(long, default_value_t = 90, value_name = "SECONDS")]
    pub tyk_timeout: u64,

    /// Do nothing and fail while this Deployment is there with the feature on: for a Job that must only run on uninstall. In
    /// the namespace of --namespace.
    #[arg(
        long,
        value_name = "NAME",
        requires = "namespace",
        conflicts_with = "stop_deployment"
    )]
    pub unless_deployed: Option<String>,

    /// Scale this Deployment to 0 before. In the namespace of --namespace.
    #[arg(long, value_name = "NAME", requires = "namespace")]
    pub stop_deployment: Option<String>,

    /// With --stop-deployment: do nothing and fail if the Deployment does not belong to this Helm release.
    #[arg(long, value_name = "RELEASE", requires = "stop_deployment")]
    pub helm_release: Option<String>,

    /// Wait before until no Pod with these labels runs, for 90 s at most. In the namespace of --namespace.
    #[arg(long, value_name = "SELECTOR", requires = "namespace")]
    pub after_pods: Option<String>,

    /// Where the operator runs.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// With --tyk: name of the operator's installation. With --namespace, OperatorContexts that its GatewayClasses named
    /// earlier are found in the ConfigMap NAME-tyk-places there.
    #[arg(long, env = "INSTANCE", value_name = "NAME", default_value = "routewright")]
    pub instance: String,
}

impl CleanupArgs {
    /// The features that are cleaned up.
    fn features(&self) -> Vec<stop::Feature> {
        let garage = self.garage.then_some(stop::Feature::GarageBuckets);
        let tyk = self.tyk.then_some(stop::Feature::Tyk);
        garage.into_iter().chain(tyk).collect()
    }
}

const AFTER_HELP: &str = "\
Works on the cluster of the kubeconfig (KUBECONFIG, ~/.kube/config), or of the Pod that it runs in. With --tyk it also speaks \
to each Tyk, under the url of its OperatorContext: run it where that name resolves. An operator that still runs puts \
everything back.

Exit codes:
  0  nothing of it is left; it may be run again at any time
  1  an API is left in Tyk, or the API server refused something; standard error names each; or no uninstall is under way
     (--unless-deployed, --helm-release), and nothing was changed
  2  wrong usage";

/// How often a failed pass is repeated, and how long is waited before.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);
/// Objects per page.
const PAGE: u32 = 500;

/// Does it and says how much there was to do.
#[allow(clippy::print_stdout, clippy::print_stderr)]
pub async fn run(args: CleanupArgs) -> Result<(), Failure> {
    let failed = |error: kube::Error| Failure::other(format!("cleanup: {}", connect::one_line(&error)));
    let client = Client::try_from(connect::config().await?).map_err(failed)?;
    let operator = args.namespace.as_deref().unwrap_or_default();
    if let Some(name) = &args.unless_deployed {
        stop::refuse_while_deployed(&client, operator, name, &args.features()).await?;
    }
    if let Some(name) = &args.stop_deployment {
        if let Some(release) = &args.helm_release {
            stop::refuse_unless_released(&client, operator, name, release).await?;
        }
        stop::scale_down(&client, operator, name).await?;
    }
    if let Some(labels) = &args.after_pods {
        stop::gone(&client, operator, labels).await?;
    }
    if args.garage {
        let named = args.namespaces.named();
        let namespaces: Vec<&str> = named.iter().map(String::as_str).collect();
        let freed = free(&client, &namespaces).await.map_err(failed)?;
        println!("GarageBuckets freed of {FINALIZER}: {freed}");
    }
    if args.tyk {
        let way = if args.keep_apis {
            None
        } else {
            Some(way(&args, &client).await?)
        };
        let report = tyk::clean(&client, &args.tyk_controller_name, way.as_ref())
            .await
            .map_err(failed)?;
        println!("{report}");
        for not_ours in &report.foreign {
            eprintln!(
                "not deleted, since {}: {} of HTTPRoute {}",
                not_ours.why, not_ours.id, not_ours.route
            );
        }
        for left in &report.left {
            eprintln!("{left}");
        }
        for refused in &report.refused {
            eprintln!("not done: {refused}");
        }
        if !report.is_clean() {
            return Err(Failure::other(format!(
                "cleanup: APIs left in Tyk: {}, objects not cleaned up: {}; see above, mend it, and run it again",
                report.left.len(),
                report.refused.len()
            )));
        }
    }
    Ok(())
}

/// Takes the finalizer off the GarageBuckets of these namespaces, of all when there are none; how many had it. What
/// fails is tried some times.
///
/// # Errors
/// The last try's.
pub async fn free(client: &Client, namespaces: &[&str]) -> Result<usize, kube::Error> {
    let mut scopes: Vec<Api<GarageBucket>> = Vec::new();
    scopes.extend(namespaces.iter().map(|n| Api::namespaced(client.clone(), n)));
    if scopes.is_empty() {
        scopes.push(Api::all(client.clone()));
    }
    let mut freed = 0;
    for scope in scopes {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = freed;
            match pass(client, &scope, &mut freed).await {
                Ok(()) => break,
                // No such kind: nothing can hold a finalizer.
                Err(error) if classify(&error).0 == ErrorClass::NotServed => break,
                // Tries without any progress are what counts.
                Err(error) if freed == before && tries >= TRIES => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    Ok(freed)
}

/// One look at every bucket. What has changed meanwhile fails and is looked at again.
async fn pass(client: &Client, scope: &Api<GarageBucket>, freed: &mut usize) -> Result<(), kube::Error> {
    let mut page = ListParams::default().limit(PAGE);
    let mut again = None;
    loop {
        // Metadata only: a bucket that does not decode holds its finalizer too.
        let buckets = scope.list_metadata(&page).await?;
        for bucket in &buckets.items {
            if !bucket.finalizers().iter().any(|f| f == FINALIZER) {
                continue;
            }
            let rest: Vec<&String> = bucket.finalizers().iter().filter(|f| *f != FINALIZER).collect();
            // With the version that was read: somebody else's finalizer must not be lost.
            let patch =
                json!({"metadata": {"resourceVersion": bucket.resource_version(), "finalizers": rest}});
            let namespace = bucket.namespace().unwrap_or_default();
            let api: Api<GarageBucket> = Api::namespaced(client.clone(), &namespace);
            let params = PatchParams {
                field_manager: Some("routewright-cleanup".to_owned()),
                ..PatchParams::default()
            };
            match api
                .patch_metadata(&bucket.name_any(), &params, &Patch::Merge(&patch))
                .await
            {
                Ok(_) => *freed += 1,
                Err(error) => match classify(&error).0 {
                    ErrorClass::NotFound => {}
                    // Somebody wrote in between; the others do not wait for this one.
                    ErrorClass::Conflict => again = Some(error),
                    _ => return Err(error),
                },
            }
        }
        match buckets.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return again.map_or(Ok(()), Err),
        }
    }
}

/// How Tyk is reached: as the operator does, without a lease.
async fn way(args: &CleanupArgs, client: &Client) -> Result<tyk::Way, Failure> {
    let extra_ca = args.extra_ca_file.as_deref().map(std::fs::read).transpose();
    let extra_ca = extra_ca.map_err(|error| Failure::usage(format!("--extra-ca-file: {error}")))?;
    let pools = Pools::new(extra_ca.as_deref(), Limits::default())
        .map_err(|error| Failure::usage(format!("--extra-ca-file: {error}")))?;
    let cluster = if args.tyk_cluster_id.is_empty() {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let found = namespaces.get_metadata("kube-system").await;
        let found =
            found.map_err(|error| Failure::other(format!("cleanup: namespace kube-system: {error}")))?;
        found.metadata.uid.unwrap_or_default()
    } else {
        args.tyk_cluster_id.clone()
    };
    let Reach { sync, contexts } = reach(
        client,
        Arc::new(pools),
        Arc::new(|| true),
        // Nobody is left to tell.
        Arc::new(|_| {}),
        TykMeter::default(),
    );
    let record: Arc<dyn Record> = match &args.namespace {
        Some(namespace) => {
            let key = Key::new(namespace, record_name(&args.instance));
            Arc::new(KubeRecord::new(client.clone(), key))
        }
        None => Arc::new(InMemory::default()),
    };
    Ok(tyk::Way {
        sync,
        contexts,
        record,
        cluster,
        limit: Duration::from_secs(args.tyk_timeout),
    })
}
