//! Where an OperatorContext leads today, asked of the API server: two GETs, for what a route remembers there and no
//! Gateway leads to any more. Nothing is kept.

use std::sync::Arc;

use async_trait::async_trait;
use kube::{
    Api, Client, Resource,
    api::DynamicObject,
    core::{ApiResource, NamespaceResourceScope},
};
use reconcile_kit::{ErrorClass, error::classify};

use crate::tyk::{
    client::{TykError, TykErrorClass},
    model::connection_of,
    objects::{Key, OperatorContext, Secret},
    sync::{Contexts, Secrets},
    verdict::Connection,
    world::watched::{WatchedContext, WatchedSecret},
};

/// [`Contexts`] by a kube client.
#[derive(Clone)]
pub struct KubeContexts(pub Client);

impl KubeContexts {
    async fn get<K>(&self, key: &Key) -> Result<Option<serde_json::Value>, TykError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let resource = ApiResource::erase::<K>(&());
        let kind = resource.kind.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(self.0.clone(), &key.namespace, &resource);
        match api.get(&key.name).await {
            Ok(found) => Ok(serde_json::to_value(found).ok()),
            Err(error) => match classify(&error) {
                (ErrorClass::NotFound, _) => Ok(None),
                (ErrorClass::NotServed, _) => Err(none(format!("{kind} is not served"))),
                (_, why) => Err(TykError::new(
                    TykErrorClass::Failing,
                    format!("{kind} {key} cannot be read: {why}"),
                )),
            },
        }
    }
}

fn none(why: impl Into<String>) -> TykError {
    TykError::new(TykErrorClass::NoConnection, why)
}

#[async_trait]
impl Contexts for KubeContexts {
    async fn connection(&self, context: &Key, secrets: Secrets) -> Result<Arc<Connection>, TykError> {
        let found = self
            .get::<WatchedContext>(context)
            .await?
            .ok_or_else(|| none(format!("OperatorContext {context} does not exist")))?;
        let found = OperatorContext::decode(&found)
            .map_err(|error| none(format!("OperatorContext {context} cannot be read: {error}")))?;
        let secret = match &found.secret_ref {
            None => None,
            Some((name, namespace)) => {
                let key = Key::new(namespace.as_ref().unwrap_or(&context.namespace), name);
                if secrets == Secrets::OwnNamespace && key.namespace != context.namespace {
                    return Err(none(format!(
                        "OperatorContext {context}: spec.secretRef names another namespace, which is followed only \
                         while a GatewayClass names the context"
                    )));
                }
                self.get::<WatchedSecret>(&key)
                    .await?
                    .and_then(|secret| Secret::decode(&secret).ok())
            }
        };
        connection_of(found, secret).map(Arc::new).map_err(none)
    }
}
