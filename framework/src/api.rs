//! The few raw calls that the framework makes with JSON bodies of its own, so that nothing is lost in typed structs.
//! Only transport: who calls what when is decided elsewhere.

use kube::{
    Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::{ObjectMeta, Request, Status},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::ApiKind;

/// Where an object lives.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Kind of the object.
    pub kind: &'a ApiKind,
    /// Its namespace; empty for a kind without namespaces.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Target<'_> {
    fn request(&self) -> Request {
        let base = if self.kind.group.is_empty() { "api" } else { "apis" };
        let (version, plural) = (self.kind.api_version(), &self.kind.plural);
        Request::new(match self.namespace {
            "" => format!("/{base}/{version}/{plural}"),
            namespace => format!("/{base}/{version}/namespaces/{namespace}/{plural}"),
        })
    }
}

impl std::fmt::Display for Target<'_> {
    /// `Ingress ns/name`, `GatewayClass name`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace {
            "" => write!(f, "{} {}", self.kind.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind.kind, self.name),
        }
    }
}

/// A metadata-only answer.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// The object's metadata, managedFields included.
    #[serde(default)]
    pub metadata: ObjectMeta,
}

/// A list of which only the length matters.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    items: Vec<IgnoredAny>,
}

fn build_error(error: kube::core::request::Error) -> kube::Error {
    kube::Error::BuildRequest(error)
}

async fn send<T: serde::de::DeserializeOwned>(
    client: &Client,
    mut request: http::Request<Vec<u8>>,
    operation: &'static str,
) -> Result<T, kube::Error> {
    request.extensions_mut().insert(operation);
    client.request(request).await
}

/// Server-side apply of the main resource. The body decides by its `metadata` whether it may create or only change.
pub async fn apply(
    client: &Client,
    target: Target<'_>,
    manager: &str,
    force: bool,
    body: &Value,
) -> Result<Value, kube::Error> {
    let mut params = PatchParams::apply(manager);
    params.force = force;
    let request = target
        .request()
        .patch(target.name, &params, &Patch::Apply(body))
        .map_err(build_error)?;
    send(client, request, "patch").await
}

/// Server-side apply of `/status`.
pub async fn apply_status(
    client: &Client,
    target: Target<'_>,
    manager: &str,
    force: bool,
    body: &Value,
) -> Result<Value, kube::Error> {
    let mut params = PatchParams::apply(manager);
    params.force = force;
    let request = target
        .request()
        .patch_subresource("status", target.name, &params, &Patch::Apply(body))
        .map_err(build_error)?;
    send(client, request, "patch_status").await
}

/// JSON patch of the main resource or of a subresource. Guard it with a `replace` of /metadata/resourceVersion.
pub async fn json_patch(
    client: &Client,
    target: Target<'_>,
    subresource: Option<&'static str>,
    manager: &str,
    operations: &Value,
) -> Result<Value, kube::Error> {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let body = serde_json::to_vec(operations).map_err(kube::Error::SerdeError)?;
    // kube's own Patch::Json wants typed operations; the bytes are the same.
    let patch = Patch::<Value>::Merge(Value::Null);
    let mut request = match subresource {
        None => target.request().patch(target.name, &params, &patch),
        Some(sub) => target
            .request()
            .patch_subresource(sub, target.name, &params, &patch),
    }
    .map_err(build_error)?;
    *request.body_mut() = body;
    request.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json-patch+json"),
    );
    send(
        client,
        request,
        if subresource == Some("status") {
            "patch_status"
        } else {
            "patch"
        },
    )
    .await
}

/// Merge patch of the main resource or of a subresource; put `metadata.resourceVersion` into it as its guard.
pub async fn merge_patch(
    client: &Client,
    target: Target<'_>,
    subresource: Option<&'static str>,
    manager: &str,
    patch: &Value,
) -> Result<Value, kube::Error> {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(patch);
    let request = match subresource {
        None => target.request().patch(target.name, &params, &patch),
        Some(sub) => target
            .request()
            .patch_subresource(sub, target.name, &params, &patch),
    }
    .map_err(build_error)?;
    send(
        client,
        request,
        if subresource == Some("status") {
            "patch_status"
        } else {
            "patch"
        },
    )
    .await
}

/// Deletes this version of the object with this uid and no other; any version if it is empty. Absent already is success.
pub async fn delete(
    client: &Client,
    target: Target<'_>,
    uid: &str,
    version: &str,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: (!version.is_empty()).then(|| version.to_owned()),
        }),
        ..DeleteParams::background()
    };
    let request = target
        .request()
        .delete(target.name, &params)
        .map_err(build_error)?;
    match send::<Value>(client, request, "delete").await {
        Err(kube::Error::Api(status)) if is_object_missing(&status) => Ok(()),
        other => other.map(drop),
    }
}

/// Metadata of one object; `None` if it does not exist. An unserved kind is an error.
pub async fn metadata(client: &Client, target: Target<'_>) -> Result<Option<ObjectMeta>, kube::Error> {
    let request = target
        .request()
        .get_metadata(target.name, &kube::api::GetParams::default())
        .map_err(build_error)?;
    match send::<Metadata>(client, request, "get_metadata").await {
        Ok(found) => Ok(Some(found.metadata)),
        Err(kube::Error::Api(status)) if is_object_missing(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the object is in the list of its kind: asked with the right to list, which a watch has anyway, where a
/// controller has none to get.
pub async fn is_listed(client: &Client, target: Target<'_>) -> Result<bool, kube::Error> {
    let named = ListParams::default().fields(&format!("metadata.name={}", target.name));
    let request = target.request().list_metadata(&named).map_err(build_error)?;
    let found: Listed = send(client, request, "list_metadata").await?;
    Ok(!found.items.is_empty())
}

/// 404 for the object, not for its kind (see apiserver facts §6: an unserved kind answers in plain text).
pub fn is_object_missing(status: &Status) -> bool {
    status.code == 404 && status.reason == "NotFound"
}
