//! The REST API of the open-source gateway, as functions of the state.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use serde_json::{Value, json};

use crate::{
    certificate,
    document::{self, Definition, EXTENSION},
    handle::Shared,
    reply::{Body, Reply},
    state::File,
};

/// A request, read to its end.
pub(crate) struct Request {
    pub(crate) method: String,
    /// Segments behind the first (`tyk` or `api`), decoded.
    pub(crate) segments: Vec<String>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// What is to be done after the function returned.
pub(crate) enum Done {
    Answer(Reply),
    /// Load, and answer when it happened.
    Reload,
    /// Load some time, and answer now.
    ReloadLater,
}

const MISSING: &str = "API not found";

pub(crate) fn ok() -> Reply {
    Reply::json(200, json!({"status": "ok", "message": ""}))
}

fn done(id: &str, action: &str) -> Reply {
    Reply::json(200, json!({"key": id, "status": "ok", "action": action}))
}

/// Whether a request changes something.
pub(crate) fn changes(request: &Request) -> bool {
    request.method != "GET" || request.segments.first().is_some_and(|first| first == "reload")
}

pub(crate) fn answer(shared: &Shared, request: &Request) -> Done {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    let reply = match (request.method.as_str(), segments.as_slice()) {
        ("GET", ["reload", "group"]) => {
            shared.counters.reloads.fetch_add(1, Ordering::SeqCst);
            return Done::ReloadLater;
        }
        ("GET", ["reload"]) => {
            shared.counters.reloads.fetch_add(1, Ordering::SeqCst);
            return if request.query.get("block").is_some_and(|value| value == "true") {
                Done::Reload
            } else {
                Done::ReloadLater
            };
        }
        ("GET", ["apis", "oas"]) => list(shared),
        ("POST", ["apis", "oas"]) => post(shared, &request.body),
        ("GET", ["apis", "oas", id]) => get(shared, id),
        ("PUT", ["apis", "oas", id]) => put(shared, id, &request.body),
        ("DELETE", ["apis", "oas", id]) => delete(shared, id),
        ("GET", ["certs"] | ["certs", ""]) => certificates(shared, &request.query),
        ("POST", ["certs"]) => upload(shared, request),
        ("GET", ["certs", id]) => {
            let state = shared.state();
            match state.certificates.entries.get(*id) {
                Some(entry) => Reply::json(200, entry.stored.details()),
                None => Reply::error(404, "Certificate with given SHA256 fingerprint not found"),
            }
        }
        ("DELETE", ["certs", id]) => {
            if shared.state().certificates.entries.remove(*id).is_some() {
                shared.log(|| format!("certificate {id} removed"));
            }
            Reply::json(200, json!({"status": "ok", "message": "removed"}))
        }
        ("POST", ["keys"]) => key(shared, &request.body),
        ("DELETE", ["keys", key]) => match shared.state().keys.remove(*key) {
            Some(_) => done(key, "deleted"),
            None => Reply::error(404, "There is no such key found"),
        },
        ("DELETE", ["apis", "oas"]) => Reply::error(404, MISSING),
        (_, ["apis", "oas"] | ["apis", "oas", _] | ["certs"] | ["certs", _]) => {
            Reply::error(405, "Method not supported")
        }
        _ => Reply::text(404, "Not Found"),
    };
    Done::Answer(reply)
}

fn list(shared: &Shared) -> Reply {
    let state = shared.state();
    let mut text = String::from("[");
    for (number, api) in state.loaded.values().enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&api.shown(&shared.listen).to_string());
    }
    text.push(']');
    Reply {
        status: 200,
        body: Body::Raw(text),
    }
}

fn get(shared: &Shared, id: &str) -> Reply {
    match shared.state().loaded.get(id) {
        Some(api) => Reply {
            status: 200,
            body: Body::Raw(api.shown(&shared.listen).to_string()),
        },
        None => Reply::error(404, MISSING),
    }
}

fn write(shared: &Shared, id: &str, document: Value, action: &str) -> Reply {
    if id.len() + ".json".len() > 255 {
        return Reply::error(500, "file object creation failed, write error");
    }
    let file = File::new(document, String::new());
    shared.state().files.insert(id.to_owned(), file);
    shared.counters.writes.fetch_add(1, Ordering::SeqCst);
    shared.log(|| format!("{id} {action}"));
    done(id, action)
}

fn post(shared: &Shared, body: &[u8]) -> Reply {
    let mut document = match document::check(body, &shared.listen) {
        Ok(document) => document,
        Err(why) => return Reply::error(400, why),
    };
    let mut id = Definition::of(&document).id;
    if id.is_empty() {
        id = format!("{:032x}", shared.state().fresh());
        if let Some(info) = document
            .pointer_mut(&format!("/{EXTENSION}/info"))
            .and_then(Value::as_object_mut)
        {
            info.insert("id".to_owned(), json!(id));
        }
    }
    if !document::usable_id(&id) {
        return Reply::error(400, "Invalid API ID");
    }
    write(shared, &id, document, "added")
}

fn put(shared: &Shared, id: &str, body: &[u8]) -> Reply {
    let document = match document::check(body, &shared.listen) {
        Ok(document) => document,
        Err(why) => return Reply::error(400, why),
    };
    if !document::usable_id(id) {
        return Reply::error(400, "Invalid API ID");
    }
    if !shared.state().loaded.contains_key(id) {
        return Reply::error(404, MISSING);
    }
    if Definition::of(&document).id != id {
        return Reply::error(
            400,
            "Request APIID does not match that in Definition! For Update operations these must match.",
        );
    }
    write(shared, id, document, "modified")
}

fn delete(shared: &Shared, id: &str) -> Reply {
    if !document::usable_id(id) {
        return Reply::error(400, "Invalid API ID");
    }
    let mut state = shared.state();
    if !state.loaded.contains_key(id) {
        return Reply::error(404, MISSING);
    }
    if state.files.remove(id).is_none() {
        return Reply::error(500, "Delete failed");
    }
    drop(state);
    shared.counters.deletes.fetch_add(1, Ordering::SeqCst);
    shared.log(|| format!("{id} deleted"));
    done(id, "deleted")
}

fn certificates(shared: &Shared, query: &BTreeMap<String, String>) -> Reply {
    let org = query.get("org_id").map(String::as_str).unwrap_or_default();
    let state = shared.state();
    let list: Vec<Value> = if query.get("mode").is_some_and(|mode| mode == "detailed") {
        state.certificates.of(org).map(|one| one.basics()).collect()
    } else {
        state.certificates.of(org).map(|one| json!(one.id)).collect()
    };
    let detailed = query.get("mode").is_some_and(|mode| mode == "detailed");
    // Go writes an empty list that was never made as null.
    let list = if list.is_empty() && !detailed {
        Value::Null
    } else {
        list.into()
    };
    Reply::json(200, json!({"certs": list}))
}

fn upload(shared: &Shared, request: &Request) -> Reply {
    let org = request
        .query
        .get("org_id")
        .map(String::as_str)
        .unwrap_or_default();
    match certificate::read(&request.body, org) {
        Err(why) => Reply::error(403, why),
        Ok(entry) => match shared.state().certificates.add(entry) {
            Err(id) => Reply::error(403, format!("Certificate with {id} id already exists")),
            Ok(id) => {
                shared.counters.uploads.fetch_add(1, Ordering::SeqCst);
                shared.log(|| format!("certificate {id} added"));
                Reply::json(
                    200,
                    json!({"id": id, "status": "ok", "message": "Certificate added"}),
                )
            }
        },
    }
}

/// A token for the APIs that the body names, whether they are loaded or not.
fn key(shared: &Shared, body: &[u8]) -> Reply {
    let session = serde_json::from_slice::<Value>(body).ok();
    let Some(session) = session.filter(Value::is_object) else {
        return Reply::error(400, "Request malformed");
    };
    let apis = session.get("access_rights").and_then(Value::as_object);
    let apis: Vec<String> = apis.into_iter().flatten().map(|(id, _)| id.clone()).collect();
    // A key for every API is a setting of Tyk's that is off unless somebody sets it.
    if apis.is_empty() {
        return Reply::error(500, "Failed to create key, ensure security settings are correct.");
    }
    let mut state = shared.state();
    let key = format!("{}{:032x}", document::text(&session, "/org_id"), state.fresh());
    state.keys.insert(key.clone(), apis);
    done(&key, "added")
}

/// Liveness and readiness.
pub(crate) fn health(ready: bool) -> Reply {
    let description = if ready { "Tyk GW Ready" } else { "Tyk GW" };
    Reply::json(
        200,
        json!({
            "status": "pass", "version": "v5.14.0", "description": description,
            "details": {"redis": {"status": "pass", "componentType": "datastore"}},
        }),
    )
}

/// The answer to a wrong secret.
pub(crate) fn denied() -> Reply {
    Reply::error(
        403,
        "Attempted administrative access with invalid or missing key!",
    )
}

/// Loads now or has it loaded, as the settings say.
pub(crate) async fn reload(shared: &Arc<Shared>, wait: bool) {
    if shared.settings.tick.is_zero() {
        cost(shared).await;
        shared.load();
        return;
    }
    let mut loads = shared.loads.subscribe();
    let before = *loads.borrow_and_update();
    shared.wanted.store(true, Ordering::SeqCst);
    if wait {
        // The sender lives as long as the stand-in.
        let _ = loads.wait_for(|now| *now > before).await;
    }
}

/// The time that a load takes.
pub(crate) async fn cost(shared: &Shared) {
    let per_api = shared.settings.load_cost;
    if !per_api.is_zero() {
        let number = u32::try_from(shared.state().files.len()).unwrap_or(u32::MAX);
        tokio::time::sleep(per_api.saturating_mul(number)).await;
    }
}
