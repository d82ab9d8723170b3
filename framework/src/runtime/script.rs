//! A tiny scripted API for the tests of this module: list, watch, faults and a log. It knows no semantics of writes;
//! the in-process API server of `testing` does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::BoxError;

use super::lock;

/// Answers a request instead of the script: status and body.
pub(crate) type Fault = Box<dyn Fn(&http::Method, &str) -> Option<(u16, String)> + Send>;

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

type Chunk = Result<http_body::Frame<Bytes>, BoxError>;

#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    version: u64,
    expired: u64,
    /// by (collection, namespace, name)
    objects: BTreeMap<(String, String, String), Value>,
    history: Vec<(u64, String, String, Value)>,
    watches: Vec<(String, String, mpsc::UnboundedSender<Chunk>)>,
    /// Answers of other paths.
    fixed: BTreeMap<String, (u16, String)>,
    fault: Option<Fault>,
    log: Vec<String>,
}

impl Script {
    pub(crate) fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move { script.answer(&request) }
        });
        Client::new(service, "default")
    }

    /// Creates or changes an object of the collection, e.g. `networking.k8s.io/v1/ingresses`.
    pub(crate) fn put(&self, collection: &str, namespace: &str, name: &str, mut object: Value) {
        let mut inner = lock(&self.0);
        inner.version += 1;
        let version = inner.version;
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        let known = inner.objects.get(&key);
        let meta = &mut object["metadata"];
        meta["name"] = json!(name);
        if !namespace.is_empty() {
            meta["namespace"] = json!(namespace);
        }
        meta["resourceVersion"] = json!(version.to_string());
        if meta["uid"].is_null() {
            meta["uid"] = known.map_or_else(
                || json!(format!("uid-{version}")),
                |k| k["metadata"]["uid"].clone(),
            );
        }
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        inner.objects.insert(key, object.clone());
        inner.send(collection, namespace, json!({ "type": kind, "object": object }));
    }

    pub(crate) fn delete(&self, collection: &str, namespace: &str, name: &str) {
        let mut inner = lock(&self.0);
        inner.version += 1;
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        let mut object = inner.objects.remove(&key).expect("an object to delete");
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        inner.send(
            collection,
            namespace,
            json!({ "type": "DELETED", "object": object }),
        );
    }

    /// Ends all watches without a word.
    pub(crate) fn cut(&self) {
        lock(&self.0).watches.clear();
    }

    /// Forgets history: a watch from before is answered with 410.
    pub(crate) fn expire(&self) {
        let mut inner = lock(&self.0);
        inner.version += 1;
        inner.expired = inner.version;
    }

    pub(crate) fn fault(
        &self,
        fault: impl Fn(&http::Method, &str) -> Option<(u16, String)> + Send + 'static,
    ) {
        lock(&self.0).fault = Some(Box::new(fault));
    }

    pub(crate) fn heal(&self) {
        lock(&self.0).fault = None;
    }

    /// The answer of a path that is no collection.
    #[allow(dead_code)]
    pub(crate) fn fix(&self, path: &str, code: u16, body: &Value) {
        lock(&self.0)
            .fixed
            .insert(path.to_owned(), (code, body.to_string()));
    }

    /// What was asked since the last call, as `METHOD path?query`.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0).log)
    }

    pub(crate) fn watches(&self) -> usize {
        let mut inner = lock(&self.0);
        inner.watches.retain(|(_, _, sender)| !sender.is_closed());
        inner.watches.len()
    }

    fn answer(&self, request: &Request<Body>) -> Result<Answer, BoxError> {
        let mut inner = lock(&self.0);
        let uri = request.uri().to_string();
        inner.log.push(format!("{} {uri}", request.method()));
        if let Some((code, body)) = inner.fault.as_ref().and_then(|f| f(request.method(), &uri)) {
            if code == 0 {
                return Err("connection refused".into());
            }
            return Ok(whole(code, body));
        }
        let path = request.uri().path();
        if let Some((code, body)) = inner.fixed.get(path) {
            return Ok(whole(*code, body.clone()));
        }
        let query = request.uri().query().unwrap_or_default();
        let (collection, namespace) = collection(path);
        let here = |of: &str, ns: &str| of == collection && (namespace.is_empty() || ns == namespace);
        if !query.contains("watch=true") {
            let items: Vec<_> = inner
                .objects
                .iter()
                .filter(|((of, ns, name), _)| {
                    here(of, ns)
                        && query
                            .split_once("metadata.name%3D")
                            .is_none_or(|(_, rest)| rest.split('&').next() == Some(name))
                })
                .map(|(_, o)| o.clone())
                .collect();
            let list = json!({
                "apiVersion": "v1", "kind": "List",
                "metadata": { "resourceVersion": inner.version.to_string() },
                "items": items,
            });
            return Ok(whole(200, list.to_string()));
        }
        let since: u64 = query
            .split('&')
            .find_map(|p| p.strip_prefix("resourceVersion="))
            .and_then(|v| v.parse().ok())
            .unwrap_or_default();
        let (sender, receiver) = mpsc::unbounded();
        if since < inner.expired {
            let gone = json!({ "type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 410, "reason": "Expired", "message": "too old resource version",
            }});
            let _ = sender.unbounded_send(chunk(&gone));
        } else {
            for (version, of, ns, event) in &inner.history {
                if *version > since && here(of, ns) {
                    let _ = sender.unbounded_send(chunk(event));
                }
            }
            inner.watches.push((collection, namespace, sender));
        }
        Ok(Response::new(UnsyncBoxBody::new(StreamBody::new(receiver))))
    }
}

impl Inner {
    fn send(&mut self, collection: &str, namespace: &str, event: Value) {
        self.watches.retain(|(of, ns, sender)| {
            if of != collection || !(ns.is_empty() || ns == namespace) {
                return true;
            }
            sender.unbounded_send(chunk(&event)).is_ok()
        });
        self.history
            .push((self.version, collection.to_owned(), namespace.to_owned(), event));
    }
}

fn chunk(event: &Value) -> Chunk {
    Ok(http_body::Frame::data(Bytes::from(format!("{event}\n"))))
}

fn whole(code: u16, body: String) -> Answer {
    Response::builder()
        .status(code)
        .body(UnsyncBoxBody::new(
            Full::from(body).map_err(|never| match never {}),
        ))
        .expect("a response")
}

/// `/apis/g/v/namespaces/ns/plural` → (`g/v/plural`, `ns`)
fn collection(path: &str) -> (String, String) {
    let path = path.trim_start_matches("/apis/").trim_start_matches("/api/");
    let parts: Vec<_> = path.split('/').collect();
    match parts.iter().position(|p| *p == "namespaces") {
        Some(at) if parts.len() > at + 2 => (
            format!("{}/{}", parts[..at].join("/"), parts[at + 2]),
            parts[at + 1].to_owned(),
        ),
        _ => (path.to_owned(), String::new()),
    }
}

/// The answer of the API server to a request without the right.
pub(crate) fn forbidden(message: &str) -> (u16, String) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": 403, "reason": "Forbidden", "message": message,
    });
    (403, status.to_string())
}
