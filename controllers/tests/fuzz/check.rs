//! What must hold for any input of `routewright translate`.

use std::collections::BTreeSet;

use routewright::{
    cli::translate::{
        Output,
        answer::Answer,
        answer_for,
        input::{Source, objects},
        render,
    },
    tyk::{
        Settings,
        objects::{
            HttpRoute, Object,
            document::find_token,
            route::{HeaderEdit, PathRewrite, Rule},
        },
    },
};
use serde_json::{Map, Value, json};

/// Most that one object asks for, as far as it decodes.
fn most_apis(values: &[Value]) -> usize {
    let decoded: Vec<Object> = values
        .iter()
        .filter_map(|value| Object::decode(value).ok()?)
        .collect();
    let listeners: usize = decoded
        .iter()
        .map(|object| match object {
            Object::Gateway(gateway) => gateway.listeners.len(),
            _ => 0,
        })
        .sum();
    decoded
        .iter()
        .map(|object| match object {
            Object::HttpRoute(route) => {
                let matches: usize = route.rules.iter().map(|rule| rule.matches.len()).sum();
                route.parents.len() * route.hostnames.len().max(1) * listeners * matches
            }
            _ => 0,
        })
        .sum()
}

/// Everything that must hold for any input.
pub(crate) fn check(sources: &[Source], thorough: bool) {
    let settings = Settings::default();
    let values: Vec<Value> = sources
        .iter()
        .flat_map(|source| objects(source).0)
        .map(|one| one.value)
        .collect();
    let input: usize = sources.iter().map(|source| source.text.len()).sum();
    if thorough {
        values.iter().for_each(stable);
    }
    match answer_for(sources, &settings) {
        Err(errors) => {
            assert!(!errors.is_empty());
            let said: usize = errors.iter().map(String::len).sum();
            assert!(
                said <= 64 * 1024 + 8 * input,
                "{said} bytes of errors for {input}"
            );
        }
        Ok(answer) => {
            let buckets = answer.generated.len();
            whole(&answer);
            let most = most_apis(&values);
            assert!(
                answer.apis.len() <= most + buckets * 32,
                "{} APIs, at most {most}",
                answer.apis.len()
            );
            for output in [Output::Yaml, Output::Json, Output::Table] {
                let text = render(&answer, output).unwrap();
                // A document holds a base document and values of its route, each of which may be escaped.
                let bound = 256 * 1024 + 64 * input + answer.apis.len() * (16 * 1024 + 6 * input);
                assert!(text.len() <= bound, "{} bytes for {input}", text.len());
            }
            if thorough {
                let again = answer_for(sources, &settings).unwrap();
                assert!(again == answer, "the same input, another answer");
                let yaml = render(&answer, Output::Yaml).unwrap();
                let read: Value = serde_saphyr::from_str(&yaml).expect("the printed YAML reads back");
                assert_eq!(
                    read,
                    serde_json::to_value(&answer).unwrap(),
                    "YAML says what JSON says"
                );
            }
        }
    }
}

/// What holds for every answer.
fn whole(answer: &Answer) {
    let mut ids = BTreeSet::new();
    for api in &answer.apis {
        assert_eq!(find_token(&api.document), None, "a document holds a token");
        assert!(ids.insert(&api.id), "{} stands twice", api.id);
        assert!(!api.methods.is_empty());
    }
    for object in &answer.statuses {
        let status = &object["status"];
        let lists = [Some(status), None];
        // Entries of other controllers are printed as they came.
        let ours = |entry: &&Value| entry["controllerName"] == answer.controller.as_str();
        let parents = status["parents"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(ours)
            .map(Some);
        let listeners = status["listeners"].as_array().into_iter().flatten().map(Some);
        for of in lists.into_iter().chain(parents).chain(listeners).flatten() {
            let conditions = of["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(conditions.len() <= 8);
            let types: BTreeSet<&str> = conditions.iter().map(|c| c["type"].as_str().unwrap()).collect();
            assert_eq!(types.len(), conditions.len(), "a type stands twice");
            for condition in conditions {
                assert!(
                    condition["message"].as_str().unwrap().len() <= 32_768 + 4096,
                    "a message is too long"
                );
                assert!(!condition["reason"].as_str().unwrap().is_empty());
            }
            if of.get("parentRef").is_some() {
                assert!(
                    types.contains("Accepted") && types.contains("ResolvedRefs"),
                    "{types:?}"
                );
            }
        }
    }
}

/// Decoding the same object from other bytes gives the same, and so does decoding what a decoded route says.
fn stable(value: &Value) {
    let decoded = Object::decode(value);
    let again: Value = serde_json::from_str(&value.to_string()).unwrap();
    assert_eq!(Object::decode(&again), decoded);
    if let Ok(Some(Object::HttpRoute(route))) = decoded {
        for rule in &route.rules {
            assert!(
                rule.problems
                    .iter()
                    .all(|problem| problem.path.starts_with("spec.rules["))
            );
        }
        if route.problems.is_empty() && route.rules.iter().all(|rule| rule.problems.is_empty()) {
            let mut read = HttpRoute::decode(&encode(&route)).unwrap();
            read.meta = route.meta.clone();
            // Where a filter stands in its list is for messages alone.
            for (read, rule) in read.rules.iter_mut().zip(&route.rules) {
                read.filter_at = rule.filter_at;
            }
            assert_eq!(read, route);
        }
    }
}

/// The manifest that a decoded route amounts to.
fn encode(route: &HttpRoute) -> Value {
    let parents: Vec<Value> = route
        .parents
        .iter()
        .map(|parent| {
            json!({"group": parent.group, "kind": parent.kind, "namespace": parent.namespace, "name": parent.name,
                   "sectionName": parent.section_name, "port": parent.port})
        })
        .collect();
    let rules: Vec<Value> = route.rules.iter().map(encode_rule).collect();
    json!({
        "metadata": {"name": route.meta.key.name, "namespace": route.meta.key.namespace},
        "spec": {"parentRefs": parents, "hostnames": route.hostnames, "rules": rules},
    })
}

fn encode_rule(rule: &Rule) -> Value {
    let matches: Vec<Value> = rule
        .matches
        .iter()
        .map(|one| {
            let method = one.method.map(|method| method.as_str().to_uppercase());
            json!({"path": {"type": "PathPrefix", "value": one.path}, "method": method})
        })
        .collect();
    let backends: Vec<Value> = rule
        .backends
        .iter()
        .map(|backend| {
            json!({"group": backend.group, "kind": backend.kind, "namespace": backend.namespace, "name": backend.name,
                   "port": backend.port, "weight": backend.weight})
        })
        .collect();
    let mut filters = Vec::new();
    let mut filter = |type_: &str, field: &str, body: Value| {
        let mut one = Map::new();
        one.insert("type".to_owned(), json!(type_));
        one.insert(field.to_owned(), body);
        filters.push(Value::Object(one));
    };
    let edit = |edit: &HeaderEdit| {
        let set: Vec<Value> = edit
            .set
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        json!({"set": set, "remove": edit.remove})
    };
    if !rule.filters.request_headers.is_empty() {
        filter(
            "RequestHeaderModifier",
            "requestHeaderModifier",
            edit(&rule.filters.request_headers),
        );
    }
    if !rule.filters.response_headers.is_empty() {
        filter(
            "ResponseHeaderModifier",
            "responseHeaderModifier",
            edit(&rule.filters.response_headers),
        );
    }
    match &rule.filters.rewrite {
        Some(PathRewrite::Prefix(path)) => filter(
            "URLRewrite",
            "urlRewrite",
            json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}}),
        ),
        Some(PathRewrite::Full(path)) => filter(
            "URLRewrite",
            "urlRewrite",
            json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": path}}),
        ),
        None => {}
    }
    if let Some(redirect) = &rule.filters.redirect {
        filter(
            "RequestRedirect",
            "requestRedirect",
            json!({"scheme": redirect.scheme, "hostname": redirect.hostname, "port": redirect.port,
                   "path": {"type": "ReplaceFullPath", "replaceFullPath": redirect.path}, "statusCode": redirect.status}),
        );
    }
    json!({"matches": matches, "filters": filters, "backendRefs": backends})
}
