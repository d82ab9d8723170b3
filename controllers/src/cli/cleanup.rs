//! `routewright cleanup`: takes back what would keep objects from being deleted once the operator is gone. The chart runs
//! it after the operator and its rights have been removed. Nothing outside of Kubernetes is touched.

use std::time::Duration;

use clap::Args;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use reconcile_kit::ErrorClass;
use reconcile_kit::error::classify;
use routewright_crds::GarageBucket;
use serde_json::json;

use super::{Failure, connect};
use crate::garage::bucket_controller::FINALIZER;

/// Flags of `cleanup`.
#[derive(Args, Clone, Debug)]
pub struct CleanupArgs {
    /// Take the operator's finalizer off GarageBuckets. Buckets in Garage stay as they are. Stop the operator first.
    #[arg(long, required = true)]
    pub garage: bool,

    /// Namespaces to look at, separated by commas; empty for all.
    #[arg(
        long,
        env = "WATCH_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub watch_namespaces: Vec<String>,
}

/// How often a failed pass is repeated, and how long is waited before.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);
/// Objects per page.
const PAGE: u32 = 500;

/// Does it and says how much there was to do.
#[allow(clippy::print_stdout)]
pub async fn run(args: CleanupArgs) -> Result<(), Failure> {
    let failed = |error: kube::Error| Failure::other(format!("cleanup: {}", connect::one_line(&error)));
    let client = Client::try_from(connect::config().await?).map_err(failed)?;
    let named = args.watch_namespaces.iter().map(|n| n.trim());
    let namespaces: Vec<&str> = named.filter(|n| !n.is_empty()).collect();
    let freed = free(&client, &namespaces).await.map_err(failed)?;
    println!("GarageBuckets freed of {FINALIZER}: {freed}");
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
