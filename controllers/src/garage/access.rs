//! From a GarageCluster to a client of its Admin API: where it is, the token's Secret (read by name, never cached as an
//! object), and for how long a client is used before the Secret is read again. What is then called is decided elsewhere.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use reconcile_kit::{ErrorClass, error::classify};
use routewright_crds::GarageCluster;
use tokio::time::Instant;

use super::{
    admin::{AdminClient, AdminHttp, Endpoint, Fenced, GarageAdmin, Token},
    handle::{
        HandleReason, HandleSpec, HandleTarget, HandleVerdict, TokenRef, TokenState, target, token_state,
        usable,
    },
};

/// Port of the Admin API when the spec names none.
const DEFAULT_ADMIN_PORT: u16 = 3903;

/// A client is used for so long before its token is read anew.
pub const TOKEN_FRESH: Duration = Duration::from_secs(55);

/// Where the Admin API of a cluster is said to be. For a handle as its spec says; for a cluster with tiers the Service
/// `<cluster>` and the static token of `spec.admin`.
pub fn admin_spec(cluster: &GarageCluster, cluster_domain: &str) -> HandleSpec {
    HandleSpec::of(cluster).unwrap_or_else(|| {
        let admin = cluster.spec.admin.as_ref();
        let from_address = admin
            .and_then(|a| a.bind_address.as_deref())
            .and_then(|address| address.rsplit_once(':'))
            .and_then(|(_, port)| port.parse::<u16>().ok());
        let from_port = admin
            .and_then(|a| a.bind_port)
            .and_then(|port| u16::try_from(port).ok());
        let port = from_address
            .or(from_port)
            .filter(|port| *port > 0)
            .unwrap_or(DEFAULT_ADMIN_PORT);
        let host = format!(
            "{}.{}.svc.{cluster_domain}",
            cluster.name_any(),
            cluster.namespace().unwrap_or_default()
        );
        HandleSpec {
            endpoint: Some(format!("http://{host}:{port}")),
            token: admin
                .and_then(|a| a.admin_token_secret_ref.as_ref())
                .map(|r| TokenRef {
                    name: r.name.clone(),
                    key: r.key.clone(),
                }),
        }
    })
}

/// Why there is no client for a cluster. The message names the field and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAccess {
    /// Stable name.
    pub reason: HandleReason,
    /// For people.
    pub message: String,
}

impl From<HandleVerdict> for NoAccess {
    fn from(verdict: HandleVerdict) -> Self {
        Self {
            reason: verdict.reason,
            message: verdict.message,
        }
    }
}

/// Clients of Admin APIs. A seam: controllers are tested with a Garage in memory.
#[async_trait]
pub trait Access: Send + Sync + 'static {
    /// A client for the Admin API that this cluster's own spec names (see [`super::follow`]). `fresh`: read the token
    /// anew.
    async fn admin(&self, cluster: &GarageCluster, fresh: bool) -> Result<Arc<dyn GarageAdmin>, NoAccess>;
}

/// From an address and a token to a client of the Admin API there.
pub type Connect = Arc<dyn Fn(Endpoint, Token) -> Result<Arc<dyn GarageAdmin>, NoAccess> + Send + Sync>;

/// [`Access`] by Secrets and, unless told otherwise, HTTP.
pub struct HttpAccess {
    client: Client,
    cluster_domain: String,
    connect: Connect,
    known: Mutex<HashMap<(String, String), Known>>,
}

struct Known {
    target: HandleTarget,
    admin: Arc<dyn GarageAdmin>,
    read: Instant,
}

impl HttpAccess {
    /// Calls that change something are refused while `may_write` says no.
    pub fn new(
        client: Client,
        http: AdminHttp,
        cluster_domain: &str,
        may_write: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let connect = move |endpoint, token| {
            let client = AdminClient::new(http.clone(), endpoint, token).map_err(|fault| NoAccess {
                reason: HandleReason::InvalidToken,
                message: fault.to_string(),
            })?;
            let admin: Arc<dyn GarageAdmin> = Arc::new(Fenced::new(client, Arc::clone(&may_write)));
            Ok(admin)
        };
        Self::connecting(client, cluster_domain, Arc::new(connect))
    }

    /// Tokens are read through `client`; what is reached with them is `connect`'s to say.
    pub fn connecting(client: Client, cluster_domain: &str, connect: Connect) -> Self {
        Self {
            client,
            cluster_domain: cluster_domain.to_owned(),
            connect,
            known: Mutex::default(),
        }
    }

    fn recall(&self, key: &(String, String), target: &HandleTarget) -> Option<Arc<dyn GarageAdmin>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(key)?;
        let usable = entry.target == *target && entry.read.elapsed() < TOKEN_FRESH;
        usable.then(|| Arc::clone(&entry.admin))
    }

    async fn token(&self, namespace: &str, reference: &TokenRef) -> TokenState {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match secrets.get(&reference.name).await {
            Ok(secret) => {
                let data = secret
                    .data
                    .map(|data| data.into_iter().map(|(k, v)| (k, v.0)).collect());
                token_state(Some(&data.unwrap_or_default()), reference)
            }
            Err(error) => match classify(&error) {
                (ErrorClass::NotFound, _) => TokenState::SecretMissing,
                (_, text) => TokenState::Unreadable(text),
            },
        }
    }
}

/// The refusal in the words of this cluster's spec: one with tiers keeps its token under `spec.admin`.
fn refusal(cluster: &GarageCluster, verdict: HandleVerdict) -> NoAccess {
    let mut refused = NoAccess::from(verdict);
    if HandleSpec::of(cluster).is_none() {
        refused.message = refused
            .message
            .replace(
                "spec.connectTo.adminTokenSecretRef",
                "spec.admin.adminTokenSecretRef",
            )
            .replace("spec.connectTo.adminApiEndpoint", "Admin API of this cluster");
    }
    refused
}

#[async_trait]
impl Access for HttpAccess {
    async fn admin(&self, cluster: &GarageCluster, fresh: bool) -> Result<Arc<dyn GarageAdmin>, NoAccess> {
        let spec = admin_spec(cluster, &self.cluster_domain);
        let target = target(&spec).map_err(|verdict| refusal(cluster, verdict))?;
        let key = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        if !fresh && let Some(admin) = self.recall(&key, &target) {
            return Ok(admin);
        }
        let state = self.token(&key.0, &target.token).await;
        let token = usable(&target, state).map_err(|verdict| refusal(cluster, verdict))?;
        let admin = (self.connect)(target.endpoint.clone(), token)?;
        let entry = Known {
            target,
            admin: Arc::clone(&admin),
            read: Instant::now(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Tokens of clusters that are gone, or that nobody asks for, are not kept.
        known.retain(|_, entry| entry.read.elapsed() < TOKEN_FRESH);
        known.insert(key, entry);
        Ok(admin)
    }
}
