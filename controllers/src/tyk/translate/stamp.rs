//! Whose an API is, and whether it is still what was written: two root keys that Tyk keeps as they are.

use std::borrow::Cow;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{super::objects::hex, TykApi, canonical};
use crate::tyk::objects::Key;

/// Root key with the owner.
pub const OWNER: &str = "x-routewright-owner";
/// Root key with the digest of the document.
pub const HASH: &str = "x-routewright-hash";

/// The route that an API belongs to. An API with another owner is neither overwritten nor deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Tells clusters apart that write to one Tyk.
    pub cluster: String,
    /// The installation, by its controllerName: several share a cluster, and a route may be served by each of them.
    pub controller: String,
    /// Namespace and name of the HTTPRoute.
    pub route: Key,
    /// Its metadata.uid.
    pub uid: String,
}

impl Owner {
    /// Reads the owner of a document; `None` when it has none or not a whole one.
    pub fn of(document: &Value) -> Option<Self> {
        let text = |path: &[&str]| {
            path.iter()
                .try_fold(document.get(OWNER)?, |value, key| value.get(*key))?
                .as_str()
                .map(ToOwned::to_owned)
        };
        Some(Self {
            cluster: text(&["cluster"])?,
            controller: text(&["controller"])?,
            route: Key::new(text(&["route", "namespace"])?, text(&["route", "name"])?),
            uid: text(&["route", "uid"])?,
        })
    }

    fn value(&self) -> Value {
        json!({
            "cluster": self.cluster,
            "controller": self.controller,
            "route": {"namespace": self.route.namespace, "name": self.route.name, "uid": self.uid},
        })
    }
}

/// The API with its owner and, over everything else, its digest.
pub fn stamp(mut api: TykApi, owner: &Owner) -> TykApi {
    if let Some(root) = api.document.as_object_mut() {
        root.remove(HASH);
        root.insert(OWNER.to_owned(), owner.value());
    }
    let digest = digest(&api.document);
    if let Some(root) = api.document.as_object_mut() {
        root.insert(HASH.to_owned(), Value::String(digest));
    }
    api
}

/// Digest of a document without its own digest: hex SHA-256 of the canonical bytes.
pub fn digest(document: &Value) -> String {
    let mut bare = Cow::Borrowed(document);
    if document.get(HASH).is_some()
        && let Some(root) = bare.to_mut().as_object_mut()
    {
        root.remove(HASH);
    }
    hex(Sha256::digest(canonical(&bare)).iter())
}
