//! Compares a document that was sent with the same document as Tyk shows it: Tyk drops what is empty, sorts header lists,
//! merges equal targets, and adds paths, operations and servers of its own. Pure; decides nothing about drift.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::{Map, Value, json};

use crate::tyk::translate::{EXTENSION, canonical};

/// Keys whose lists Tyk sorts.
const SORTED: [&str; 2] = ["add", "remove"];
/// Lists of equal backends that Tyk merges.
const TARGETS: &str = "targets";
/// Requirements of authentication: an empty list in them has a meaning.
const SECURITY: &str = "security";
/// Addresses that Tyk puts before those that were sent.
const SERVERS: &str = "servers";

/// Digest of what a document asks for, equal for a document as it is sent and as a gateway shows it. A difference proves
/// nothing: a Tyk may add what is not known here. [`holds`] decides then, with both at hand.
pub(super) fn normal(document: &Value) -> u64 {
    let mut document = tidy("", document).unwrap_or_default();
    if let Some(root) = document.as_object_mut() {
        root.remove(SERVERS);
        strip_additions(root);
    }
    let mut hasher = DefaultHasher::new();
    canonical(&document).hash(&mut hasher);
    hasher.finish()
}

/// Whether everything that was sent is there. What is there besides is not looked at.
pub(super) fn holds(shown: &Value, sent: &Value) -> bool {
    let (shown, sent) = (tidy("", shown), tidy("", sent));
    sent.is_none_or(|sent| within("", shown.as_ref(), &sent))
}

fn within(key: &str, shown: Option<&Value>, sent: &Value) -> bool {
    match (shown, sent) {
        (Some(Value::Object(shown)), Value::Object(sent)) => {
            sent.iter().all(|(key, sent)| within(key, shown.get(key), sent))
        }
        (Some(Value::Array(shown)), Value::Array(sent)) if key == SERVERS => {
            sent.iter().all(|server| shown.contains(server))
        }
        (Some(Value::Array(shown)), Value::Array(sent)) => {
            shown.len() == sent.len()
                && shown
                    .iter()
                    .zip(sent)
                    .all(|(shown, sent)| within("", Some(shown), sent))
        }
        (Some(shown), sent) => shown == sent,
        (None, _) => false,
    }
}

/// A value without what is empty and with its lists in one order; `None` when nothing is left.
fn tidy(key: &str, value: &Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(Value::Bool(true)),
        Value::String(text) => (!text.is_empty()).then(|| Value::String(text.clone())),
        // 1 and 1.0 are one number for Tyk.
        Value::Number(number) => number.as_f64().filter(|number| *number != 0.0).map(Value::from),
        Value::Array(items) if key == SECURITY => Some(Value::Array(items.clone())),
        Value::Array(items) => {
            let mut items: Vec<Value> = match key {
                TARGETS => merged(items),
                _ => items.iter().filter_map(|item| tidy("", item)).collect(),
            };
            if SORTED.contains(&key) {
                items.sort_by_cached_key(canonical);
            }
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(fields) => {
            let fields: Map<String, Value> = fields
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), tidy(key, value)?)))
                .collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
    }
}

/// Targets by URL, each with the sum of its weights. Others than targets of a load balancer stay as they are.
fn merged(items: &[Value]) -> Vec<Value> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for item in items {
        let Some(url) = item.get("url").and_then(Value::as_str) else {
            return items.iter().filter_map(|item| tidy("", item)).collect();
        };
        let weight = item.get("weight").and_then(Value::as_f64).unwrap_or_default();
        match sums.iter_mut().find(|(known, _)| *known == url) {
            Some((_, sum)) => *sum += weight,
            None => sums.push((url, weight)),
        }
    }
    sums.sort_by_key(|(url, _)| *url);
    let target = |(url, weight): (&str, f64)| json!({"url": url, "weight": weight});
    sums.into_iter().map(target).collect()
}

/// Takes out what a gateway adds: paths with a parameter for each regular expression, the operations behind them, and the
/// Dashboard's own id.
fn strip_additions(root: &mut Map<String, Value>) {
    let mut named = BTreeSet::new();
    if let Some(paths) = root.get_mut("paths").and_then(Value::as_object_mut) {
        paths.retain(|path, _| !path.contains("{customRegex"));
        for operation in paths.values().filter_map(Value::as_object).flat_map(Map::values) {
            let id = operation.get("operationId").and_then(Value::as_str);
            named.extend(id.map(str::to_owned));
        }
        if paths.is_empty() {
            root.remove("paths");
        }
    }
    let Some(extension) = root.get_mut(EXTENSION) else {
        return;
    };
    let operations = extension.pointer_mut("/middleware/operations");
    if let Some(operations) = operations.and_then(Value::as_object_mut) {
        operations.retain(|id, _| named.contains(id));
    }
    if let Some(info) = extension.pointer_mut("/info").and_then(Value::as_object_mut) {
        info.remove("dbId");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Value {
        json!({
            "openapi": "3.0.3", "info": {"title": "a", "version": "1", "description": ""},
            "paths": {"/(?s).*": {"get": {"operationId": "get-a", "responses": {"200": {"description": ""}}}}},
            "security": [{"authToken": []}],
            EXTENSION: {
                "info": {"id": "a", "state": {"active": true, "internal": false}},
                "server": {"authentication": {"enabled": true}, "listenPath": {"value": "/a", "strip": true}},
                "upstream": {"url": "", "loadBalancing": {"enabled": true, "targets": [
                    {"url": "http://a", "weight": 1}, {"url": "http://b", "weight": 1}, {"url": "http://a", "weight": 1}]}},
                "middleware": {"operations": {"get-a": {"allow": {"enabled": true}, "transformRequestHeaders": {
                    "add": [{"name": "X-B", "value": "2"}, {"name": "X-A", "value": "1"}]}}}},
            },
            "x-routewright-hash": "00",
        })
    }

    /// As a gateway shows it.
    fn shown() -> Value {
        json!({
            "openapi": "3.0.3", "info": {"title": "a", "version": "1"}, "components": {},
            "servers": [{"url": "http://shop.example.com/a"}],
            "paths": {
                "/(?s).*": {"get": {"operationId": "get-a", "responses": {"200": {"description": ""}}}},
                "/{customRegex1}": {"get": {"operationId": "(?s).*GET", "responses": {"default": {"description": ""}}},
                    "parameters": [{"in": "path", "name": "customRegex1"}]}},
            "security": [{"authToken": []}],
            EXTENSION: {
                "info": {"id": "a", "dbId": "66", "state": {"active": true}},
                "server": {"authentication": {"enabled": true}, "listenPath": {"value": "/a", "strip": true}},
                "upstream": {"loadBalancing": {"enabled": true, "targets": [
                    {"url": "http://a", "weight": 2}, {"url": "http://b", "weight": 1.0}]}},
                "middleware": {"operations": {
                    "(?s).*GET": {"allow": {"enabled": true}},
                    "get-a": {"allow": {"enabled": true}, "transformRequestHeaders": {
                        "add": [{"name": "X-A", "value": "1"}, {"name": "X-B", "value": "2"}]}}}},
            },
            "x-routewright-hash": "00",
        })
    }

    #[test]
    fn a_document_is_the_same_after_tyk_has_tidied_it() {
        assert_eq!(normal(&sent()), normal(&shown()));
        assert!(holds(&shown(), &sent()));
    }

    #[test]
    fn every_edit_of_what_was_sent_is_seen() {
        let edits: [(&str, Value); 9] = [
            ("/x-tyk-api-gateway/server/authentication/enabled", json!(false)),
            ("/x-tyk-api-gateway/server/authentication", Value::Null),
            ("/security", json!([])),
            ("/security/0", json!({})),
            (
                "/x-tyk-api-gateway/upstream/loadBalancing/targets/0/url",
                json!("http://c"),
            ),
            (
                "/x-tyk-api-gateway/upstream/loadBalancing/targets/0/weight",
                json!(1),
            ),
            (
                "/x-tyk-api-gateway/middleware/operations/get-a/allow/enabled",
                json!(false),
            ),
            (
                "/x-tyk-api-gateway/middleware/operations/get-a/transformRequestHeaders/add/0/value",
                json!("3"),
            ),
            ("/paths/~1(?s).*/get/operationId", json!("other")),
        ];
        for (pointer, value) in edits {
            let mut edited = shown();
            *edited.pointer_mut(pointer).unwrap() = value;
            assert!(!holds(&edited, &sent()), "{pointer}");
            assert_ne!(normal(&edited), normal(&sent()), "{pointer}");
        }
    }

    #[test]
    fn an_addition_is_a_difference_and_takes_nothing_away() {
        let mut more = shown();
        more[EXTENSION]["server"]["port"] = json!(9000);
        assert_ne!(normal(&more), normal(&sent()));
        assert!(holds(&more, &sent()));
    }
}
