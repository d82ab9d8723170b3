//! A loaded document as GET shows it: filled with what Tyk adds, without what it does not know.

use serde_json::{Map, Value, json};

use crate::document::{Definition, EXTENSION, METHODS, flag, text};

/// Middleware that Tyk keeps in lists of its own; an operation with one comes back a second time if the key of its path is
/// a regular expression.
const CLASSIC: [&str; 14] = [
    "allow",
    "block",
    "ignoreAuthentication",
    "internal",
    "transformRequestMethod",
    "transformRequestBody",
    "transformResponseBody",
    "transformRequestHeaders",
    "transformResponseHeaders",
    "urlRewrite",
    "cache",
    "enforceTimeout",
    "virtualEndpoint",
    "requestSizeLimit",
];

/// `path`: where it listens now, which may not be what was sent.
pub(crate) fn shown(document: &Value, definition: &Definition, path: &str, listen: &str) -> Value {
    let mut shown = document.as_object().cloned().unwrap_or_default();
    let mut extension = definition.extension.clone();
    tidy(&mut extension);
    if let Some(value) = extension.pointer_mut("/server/listenPath/value") {
        *value = json!(path);
    }
    regex_paths(&mut shown, &mut extension);
    shown.entry("components").or_insert_with(|| json!({}));
    let mut servers = tyk_servers(definition, path, listen);
    for own in shown
        .get("servers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if !servers.contains(own) {
            servers.push(own.clone());
        }
    }
    shown.insert("servers".to_owned(), servers.into());
    shown.insert(EXTENSION.to_owned(), extension);
    Value::Object(shown)
}

fn tyk_servers(definition: &Definition, path: &str, listen: &str) -> Vec<Value> {
    let cleaned = cleaned(path);
    let tail = if cleaned == "/" { "" } else { cleaned.as_str() };
    if definition.domain.is_empty() {
        vec![
            json!({"url": format!("http://{listen}{tail}")}),
            json!({"url": if tail.is_empty() { "/" } else { tail }}),
        ]
    } else {
        vec![json!({"url": format!("http://{}{tail}", definition.domain)})]
    }
}

/// A path without `//`, `.`, `..` and slashes at its end.
pub(crate) fn cleaned(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Header lists by name, equal targets as one.
fn tidy(extension: &mut Value) {
    if let Some(targets) = extension
        .pointer_mut("/upstream/loadBalancing/targets")
        .and_then(Value::as_array_mut)
    {
        let mut merged: Vec<(String, i64)> = Vec::new();
        for target in targets.iter() {
            let url = text(target, "/url");
            let weight = target.get("weight").and_then(Value::as_i64).unwrap_or(0);
            match merged.iter_mut().find(|(known, _)| known == url) {
                Some((_, sum)) => *sum += weight,
                None => merged.push((url.to_owned(), weight)),
            }
        }
        *targets = merged
            .into_iter()
            .map(|(url, weight)| json!({"url": url, "weight": weight}))
            .collect();
    }
    sort_headers(extension);
}

fn sort_headers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields.iter_mut() {
                if name == "add"
                    && let Value::Array(list) = inner
                {
                    list.sort_by(|a, b| text(a, "/name").cmp(text(b, "/name")));
                }
                sort_headers(inner);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sort_headers),
        _ => {}
    }
}

/// Whether a segment is more than text.
fn pattern(segment: &str) -> bool {
    segment.contains(['(', ')', '*', '[', ']', '?', '+', '^', '$', '|', '\\'])
        && !(segment.starts_with('{') && segment.ends_with('}'))
}

/// The second item for keys that are regular expressions.
fn regex_paths(document: &mut Map<String, Value>, extension: &mut Value) {
    let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(operations) = extension
        .pointer_mut("/middleware/operations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let mut more = Map::new();
    for (key, item) in paths.iter() {
        let mut names = Vec::new();
        let again: Vec<String> = key
            .split('/')
            .map(|segment| {
                if pattern(segment) {
                    names.push(segment.to_owned());
                    format!("{{customRegex{}}}", names.len())
                } else {
                    segment.to_owned()
                }
            })
            .collect();
        if names.is_empty() {
            continue;
        }
        let mut second = Map::new();
        for method in METHODS {
            let Some(id) = item
                .pointer(&format!("/{method}/operationId"))
                .and_then(Value::as_str)
            else {
                continue;
            };
            let classic: Map<String, Value> = operations
                .get(id)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(name, value)| CLASSIC.contains(&name.as_str()) && flag(value, "/enabled"))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            if classic.is_empty() {
                continue;
            }
            let id = format!("{}{}", key.trim_start_matches('/'), method.to_uppercase());
            second.insert(
                method.to_owned(),
                json!({"operationId": id, "responses": {"default": {"description": ""}}}),
            );
            operations.insert(id, Value::Object(classic));
        }
        if second.is_empty() {
            continue;
        }
        let parameters: Vec<Value> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                json!({
                    "in": "path", "name": format!("customRegex{}", n + 1), "required": true,
                    "schema": {"pattern": name, "type": "string"},
                })
            })
            .collect();
        second.insert("parameters".to_owned(), parameters.into());
        more.insert(again.join("/"), Value::Object(second));
    }
    paths.extend(more);
}
