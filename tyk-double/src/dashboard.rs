//! The REST API of Tyk Dashboard, as far as it is documented: no Dashboard was run to check it.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::{
    certificate,
    document::{self, Definition, EXTENSION},
    gateway::Request,
    handle::Shared,
    multipart,
    reply::{Body, Reply},
    state::{File, State},
};

const MISSING: &str = "Could not retrieve API detail.";

pub(crate) fn changes(request: &Request) -> bool {
    request.method != "GET"
}

pub(crate) fn answer(shared: &Shared, request: &Request) -> Reply {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    match (request.method.as_str(), segments.as_slice()) {
        ("GET", ["apis"]) => list(shared, page(request)),
        ("POST", ["apis", "oas"]) => post(shared, &request.body),
        ("GET", ["apis", "oas", id]) => get(shared, id),
        ("PUT", ["apis", "oas", id]) => put(shared, id, &request.body),
        ("DELETE", ["apis", "oas", id]) => delete(shared, id),
        ("PUT", ["apis", id, "access"]) => access(shared, id, &request.body),
        ("GET", ["certs"]) => certificates(shared, request),
        ("POST", ["certs"]) => upload(shared, request),
        ("GET", ["certs", id]) => match shared.state().certificates.entries.get(*id) {
            Some(entry) => Reply::json(200, entry.stored.details()),
            None => Reply::refusal(404, "Certificate not found"),
        },
        ("DELETE", ["certs", id]) => {
            if shared.state().certificates.entries.remove(*id).is_none() {
                return Reply::refusal(404, "Certificate not found");
            }
            shared.log(|| format!("certificate {id} removed"));
            Reply::json(200, json!({"status": "ok", "message": "removed"}))
        }
        _ => Reply::refusal(404, "Not Found"),
    }
}

/// The answer to a wrong key.
pub(crate) fn denied() -> Reply {
    Reply::refusal(401, "Not authorised")
}

/// Number of the page, and everything for -2.
fn page(request: &Request) -> Option<usize> {
    let number: i64 = request.query.get("p").and_then(|p| p.parse().ok()).unwrap_or(1);
    (number > 0).then(|| usize::try_from(number).unwrap_or(1))
}

const PAGE: usize = 10;

fn paged(list: Vec<Value>, page: Option<usize>) -> (Vec<Value>, usize) {
    let pages = list.len().div_ceil(PAGE).max(1);
    match page {
        None => (list, 1),
        Some(number) => (
            list.into_iter().skip((number - 1) * PAGE).take(PAGE).collect(),
            pages,
        ),
    }
}

fn list(shared: &Shared, page: Option<usize>) -> Reply {
    let state = shared.state();
    let all = state
        .files
        .values()
        .map(|file| {
            let definition = &file.definition;
            json!({"api_definition": {
                "id": file.database, "api_id": definition.id, "is_oas": true, "active": true,
                "name": document::text(&definition.extension, "/info/name"),
                "org_id": shared.settings.org, "domain": definition.domain,
                "proxy": {"listen_path": definition.path},
            }})
        })
        .collect();
    let (apis, pages) = paged(all, page);
    Reply::json(200, json!({"apis": apis, "pages": pages}))
}

/// The id of a document, also by its key in the database.
fn id_of(state: &State, id: &str) -> Option<String> {
    if state.files.contains_key(id) {
        return Some(id.to_owned());
    }
    let by_key = state.files.iter().find(|(_, file)| file.database == id);
    by_key.map(|(id, _)| id.clone())
}

fn get(shared: &Shared, id: &str) -> Reply {
    let state = shared.state();
    let file = id_of(&state, id).and_then(|id| state.files.get(&id));
    let Some(file) = file else {
        return Reply::refusal(400, MISSING);
    };
    Reply {
        status: 200,
        body: Body::Raw(
            crate::fill::shown(
                &file.document,
                &file.definition,
                &file.definition.path,
                &shared.listen,
            )
            .to_string(),
        ),
    }
}

/// Another API with the listen path.
fn taken(shared: &Shared, state: &State, definition: &Definition) -> bool {
    !shared.settings.duplicate_slugs
        && state.files.values().any(|file| {
            file.definition.id != definition.id
                && file.definition.path.trim_end_matches('/') == definition.path.trim_end_matches('/')
        })
}

/// Stores a document with the organisation and the key that it has, and has the gateways load it.
fn store(shared: &Shared, state: &mut State, id: &str, mut document: Value, database: String) {
    if let Some(info) = document
        .pointer_mut(&format!("/{EXTENSION}/info"))
        .and_then(Value::as_object_mut)
    {
        info.insert("id".to_owned(), json!(id));
        info.insert("dbId".to_owned(), json!(database));
        info.insert("orgId".to_owned(), json!(shared.settings.org));
    }
    state.files.insert(id.to_owned(), File::new(document, database));
    state.load();
    shared.serve(state);
    shared.counters.writes.fetch_add(1, Ordering::SeqCst);
}

fn post(shared: &Shared, body: &[u8]) -> Reply {
    let document = match document::check(body, &shared.listen) {
        Ok(document) => document,
        Err(why) => return Reply::refusal(400, why),
    };
    let mut state = shared.state();
    let definition = Definition::of(&document);
    let database = format!("{:024x}", state.fresh());
    let id = if definition.id.is_empty() {
        format!("{:032x}", state.fresh())
    } else {
        definition.id.clone()
    };
    if state.files.contains_key(&id) {
        return Reply::refusal(409, "Found API with the same ID.");
    }
    if taken(shared, &state, &definition) {
        return Reply::refusal(403, "Found API with same url.");
    }
    store(shared, &mut state, &id, document, database.clone());
    drop(state);
    shared.log(|| format!("{id} created"));
    Reply::json(
        200,
        json!({"Status": "OK", "Message": "API created", "Meta": database, "ID": id}),
    )
}

fn put(shared: &Shared, id: &str, body: &[u8]) -> Reply {
    let document = match document::check(body, &shared.listen) {
        Ok(document) => document,
        Err(why) => return Reply::refusal(400, why),
    };
    let mut state = shared.state();
    let Some(id) = id_of(&state, id) else {
        return Reply::refusal(404, "API not found.");
    };
    let mut definition = Definition::of(&document);
    definition.id = id.clone();
    if taken(shared, &state, &definition) {
        return Reply::refusal(403, "Found API with same url.");
    }
    let database = state
        .files
        .get(&id)
        .map(|file| file.database.clone())
        .unwrap_or_default();
    store(shared, &mut state, &id, document, database.clone());
    drop(state);
    shared.log(|| format!("{id} updated"));
    Reply::json(
        200,
        json!({"Status": "OK", "Message": "API updated.", "Meta": database}),
    )
}

/// Gives an API to users and groups.
fn access(shared: &Shared, id: &str, body: &[u8]) -> Reply {
    let Ok(owners) = serde_json::from_slice::<Value>(body) else {
        return Reply::refusal(400, "Request malformed");
    };
    let mut state = shared.state();
    let Some(id) = id_of(&state, id) else {
        return Reply::refusal(404, "API not found.");
    };
    state.owners.insert(id, owners);
    Reply::json(
        200,
        json!({"Status": "OK", "Message": "API updated.", "Meta": null}),
    )
}

fn delete(shared: &Shared, id: &str) -> Reply {
    let mut state = shared.state();
    let Some(id) = id_of(&state, id) else {
        return Reply::refusal(404, "API not found.");
    };
    state.files.remove(&id);
    state.owners.remove(&id);
    state.load();
    shared.serve(&state);
    drop(state);
    shared.counters.deletes.fetch_add(1, Ordering::SeqCst);
    shared.log(|| format!("{id} deleted"));
    Reply::json(
        200,
        json!({"Status": "OK", "Message": "API deleted.", "Meta": null}),
    )
}

fn certificates(shared: &Shared, request: &Request) -> Reply {
    let detailed = request.query.get("mode").is_some_and(|mode| mode == "detailed");
    let state = shared.state();
    let all = state
        .certificates
        .of("")
        .map(|one| if detailed { one.basics() } else { json!(one.id) })
        .collect();
    let (certs, pages) = paged(all, page(request));
    Reply::json(200, json!({"certs": certs, "pages": pages}))
}

fn upload(shared: &Shared, request: &Request) -> Reply {
    let Some(pem) = multipart::part(&request.content_type, &request.body, &["cert", "file"]) else {
        return Reply::refusal(400, "Could not read the uploaded file.");
    };
    match certificate::read(pem, &shared.settings.org) {
        Err(why) => Reply::refusal(400, format!("Could not create certificate.{why}")),
        Ok(entry) => match shared.state().certificates.add(entry) {
            Err(id) => Reply::refusal(
                404,
                format!("Could not create certificate.Certificate with {id} ID already exists."),
            ),
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
