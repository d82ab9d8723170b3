//! From a connection to a client: the context and its Secret are read again when a client is made, so that a credential
//! is held by clients alone; and TLS Secrets are read when a certificate is uploaded. Nothing is cached but connections.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client, api::DynamicObject, core::ApiResource};
use reconcile_kit::{ErrorClass, error::classify};
use serde_json::Value;

use super::{
    Bundle, TykApi, TykError, TykErrorClass,
    dashboard::Dashboard,
    gateway::Gateway,
    http::{Access, MayWrite, Pools},
};
use crate::{
    telemetry::tyk::TykMeter,
    tyk::{
        model::connection_of,
        objects::{Key, OperatorContext, Secret},
        sync::Connector,
        verdict::{CertificateUse, Connection, Mode},
        world::watched::WatchedContext,
    },
};

/// [`Connector`] by the API server and HTTP.
pub struct KubeConnector {
    client: Client,
    pools: Arc<Pools>,
    may_write: MayWrite,
    meter: TykMeter,
}

impl fmt::Debug for KubeConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeConnector").finish_non_exhaustive()
    }
}

fn none(why: impl Into<String>) -> TykError {
    TykError::new(TykErrorClass::NoConnection, why)
}

impl KubeConnector {
    /// Contexts and Secrets are read through `client`; `may_write` is asked before every write to Tyk.
    pub fn new(client: Client, pools: Arc<Pools>, may_write: MayWrite, meter: TykMeter) -> Self {
        Self {
            client,
            pools,
            may_write,
            meter,
        }
    }

    async fn secret(&self, key: &Key) -> Result<Option<KubeSecret>, TykError> {
        let api: Api<KubeSecret> = Api::namespaced(self.client.clone(), &key.namespace);
        found(api.get(&key.name).await, "Secret", key)
    }
}

/// `None` for what does not exist.
fn found<T>(answer: Result<T, kube::Error>, kind: &str, key: &Key) -> Result<Option<T>, TykError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) => match classify(&error) {
            (ErrorClass::NotFound, _) => Ok(None),
            (_, why) => Err(TykError::new(
                TykErrorClass::Failing,
                format!("{kind} {key} cannot be read: {why}"),
            )),
        },
    }
}

fn value(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// The text of a Secret's key, without blanks around it; `None` when empty.
fn text(secret: Option<&KubeSecret>, key: &str) -> Option<String> {
    let bytes = &secret?.data.as_ref()?.get(key)?.0;
    let text = std::str::from_utf8(bytes).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[async_trait]
impl Connector for KubeConnector {
    async fn connect(&self, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        let key = &connection.context;
        let resource = ApiResource::erase::<WatchedContext>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let raw = found(api.get(&key.name).await, "OperatorContext", key)?
            .map(|object| value(&object))
            .ok_or_else(|| none(format!("OperatorContext {key} does not exist")))?;
        let context = OperatorContext::decode(&raw)
            .map_err(|error| none(format!("OperatorContext {key} cannot be read: {error}")))?;
        let secret = match &context.secret_ref {
            None => None,
            Some((name, namespace)) => {
                self.secret(&Key::new(namespace.as_ref().unwrap_or(&key.namespace), name))
                    .await?
            }
        };
        let decoded = secret
            .as_ref()
            .and_then(|secret| Secret::decode(&value(secret)).ok());
        let env = context.env.clone().unwrap_or_default();
        let insecure = decoded
            .as_ref()
            .and_then(|secret| secret.connection.insecure_skip_verify)
            .or(env.insecure_skip_verify)
            .unwrap_or_default();
        let owners = |given: Option<&Vec<String>>, own: &Vec<String>| {
            let given = given.filter(|given| !given.is_empty());
            given.unwrap_or(own).clone()
        };
        let fields = decoded.as_ref().map(|secret| &secret.connection);
        let users = owners(fields.map(|fields| &fields.user_owners), &env.user_owners);
        let groups = owners(
            fields.map(|fields| &fields.user_group_owners),
            &env.user_group_owners,
        );
        let today = connection_of(context, decoded).map_err(none)?;
        if today != *connection {
            return Err(none(format!(
                "OperatorContext {key} or its Secret has changed meanwhile; what it says now is used next"
            )));
        }
        let credential = text(secret.as_ref(), "TYK_AUTH")
            .or_else(|| Some(raw.pointer("/spec/env/auth")?.as_str()?.to_owned()))
            .ok_or_else(|| none(format!("OperatorContext {key}: no credential (auth, TYK_AUTH)")))?;
        let access = Access {
            url: connection.url.clone(),
            org: connection.org.clone(),
            credential,
            insecure,
        };
        let (may_write, meter) = (Arc::clone(&self.may_write), self.meter.clone());
        Ok(match connection.mode {
            Mode::OpenSource => Arc::new(Gateway::new(&self.pools, &access, may_write, meter)?),
            Mode::Dashboard => {
                let dashboard = Dashboard::new(&self.pools, &access, may_write, meter)?;
                Arc::new(dashboard.owned_by(users, groups))
            }
        })
    }

    async fn bundle(&self, used: &CertificateUse) -> Result<Bundle, TykError> {
        let key = &used.secret;
        let secret = self
            .secret(key)
            .await?
            .ok_or_else(|| none(format!("Secret {key} does not exist")))?;
        let decoded =
            Secret::decode(&value(&secret)).map_err(|error| none(format!("Secret {key}: {error}")))?;
        match decoded.tls {
            Some(Ok(certificate)) if certificate == used.certificate => {}
            Some(Err(why)) => return Err(none(format!("Secret {key}: {why}"))),
            _ => {
                return Err(none(format!(
                    "Secret {key} has changed meanwhile; what it holds now is used next"
                )));
            }
        }
        let part = |name: &str| {
            let data = secret.data.as_ref();
            data.and_then(|data| data.get(name))
                .map(|bytes| bytes.0.as_slice())
        };
        let (chain, private) = (
            part("tls.crt").unwrap_or_default(),
            part("tls.key").unwrap_or_default(),
        );
        Ok(Bundle([chain, b"\n", private, b"\n"].concat()))
    }
}
