//! Every object of this project's groups that is shown to a user, in `samples/` and in the YAML blocks of README and
//! docs, decodes with the API types and holds only fields that the CRD of its kind declares, with values that fit.
//! Rules in CEL are not run here: a real API server does that.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use routewright_crds::{
    GROUP, GarageBucket, GarageCluster, GarageReferenceGrant, OperatorContext, TYK_GROUP,
    TykOasApiDefinition, all,
};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
}

/// Objects of a YAML text, with where they come from.
fn documents(origin: &str, text: &str) -> Vec<(String, Value)> {
    serde_saphyr::from_multiple::<Value>(text)
        .unwrap_or_else(|e| panic!("{origin} is no YAML: {e}"))
        .into_iter()
        .enumerate()
        .map(|(i, object)| (format!("{origin}, document {}", i + 1), object))
        .collect()
}

/// The fenced `yaml` blocks of a Markdown text.
fn blocks(origin: &str, text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (i, line) in text.lines().enumerate() {
        match &mut open {
            None if line.trim() == "```yaml" => open = Some((i + 1, String::new())),
            None => {}
            Some(_) if line.trim() == "```" => {
                let (start, body) = open.take().unwrap();
                found.push((format!("{origin}:{start}"), body));
            }
            Some((_, body)) => {
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{origin}: a yaml block is not closed");
    found
}

/// The schema of a kind in a version, as the API server gets it.
fn schema(kind: &str, version: &str) -> Option<Value> {
    let crd = all()
        .unwrap()
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)?;
    let served = crd.spec.versions.into_iter().find(|v| v.name == version)?;
    serde_json::to_value(served.schema?.open_api_v3_schema?).ok()
}

/// What is wrong with `value` under `schema`. Stricter than the API server: a field that the schema does not declare is
/// wrong even where the schema would keep it.
fn mistakes(path: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
    let wrong = |what: &str| format!("{path}: {what}");
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        _ => true,
    };
    if !fits {
        found.push(wrong(&format!("is no {}", schema["type"])));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(wrong(&format!("{value} is none of {allowed:?}")));
    }
    match value {
        Value::Object(map) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                if !map.contains_key(name) {
                    found.push(wrong(&format!("{name} is missing")));
                }
            }
            for (name, inner) in map {
                let below = format!("{path}.{name}");
                let of_map = &schema["additionalProperties"];
                if let Some(declared) = schema["properties"].get(name) {
                    mistakes(&below, inner, declared, found);
                } else if of_map.is_object() {
                    mistakes(&below, inner, of_map, found);
                } else if !open(schema) {
                    found.push(format!("{below}: no such field"));
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                mistakes(&format!("{path}[{i}]"), item, &schema["items"], found);
            }
        }
        _ => {}
    }
}

/// An object that is carried and not interpreted: it declares no field at all.
fn open(schema: &Value) -> bool {
    schema["properties"].is_null() && schema["x-kubernetes-preserve-unknown-fields"] == json!(true)
}

/// Checks one object; says whether it belongs to one of our groups.
fn check(origin: &str, object: &Value) -> bool {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let Some((GROUP | TYK_GROUP, version)) = api_version.split_once('/') else {
        return false;
    };
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some(mut schema) = schema(kind, version) else {
        panic!("{origin}: {kind} {api_version} is not one of our CRDs");
    };
    // What every object has is not in a CRD's schema; the API server checks it by itself.
    schema["properties"]["apiVersion"] = json!({ "type": "string" });
    schema["properties"]["kind"] = json!({ "type": "string" });
    schema["properties"]["metadata"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut found = Vec::new();
    mistakes(kind, object, &schema, &mut found);
    assert!(found.is_empty(), "{origin}:\n  {}", found.join("\n  "));

    let decoded = match kind {
        "GarageBucket" => serde_json::from_value::<GarageBucket>(object.clone()).map(drop),
        "GarageCluster" => serde_json::from_value::<GarageCluster>(object.clone()).map(drop),
        "GarageReferenceGrant" => serde_json::from_value::<GarageReferenceGrant>(object.clone()).map(drop),
        "OperatorContext" => serde_json::from_value::<OperatorContext>(object.clone()).map(drop),
        "TykOasApiDefinition" => serde_json::from_value::<TykOasApiDefinition>(object.clone()).map(drop),
        _ => panic!("{origin}: no type for {kind}"),
    };
    decoded.unwrap_or_else(|e| panic!("{origin}: {e}"));
    true
}

#[test]
fn samples_fit_the_crds() {
    let mut paths = Vec::new();
    files(&root().join("samples"), "yaml", &mut paths);
    let mut ours = Vec::new();
    for path in paths {
        let origin = path.file_name().unwrap().to_string_lossy().into_owned();
        for (place, object) in documents(&origin, &fs::read_to_string(&path).unwrap()) {
            if check(&place, &object) {
                ours.push(object["kind"].as_str().unwrap().to_owned());
            }
        }
    }
    for kind in [
        "GarageBucket",
        "GarageCluster",
        "GarageReferenceGrant",
        "OperatorContext",
        "TykOasApiDefinition",
    ] {
        assert!(ours.iter().any(|k| k == kind), "samples/ holds no {kind}");
    }
}

#[test]
fn examples_in_the_docs_fit_the_crds() {
    let mut paths = vec![root().join("README.md")];
    files(&root().join("docs"), "md", &mut paths);
    let mut ours = 0;
    for path in paths {
        let shown = path.strip_prefix(root()).unwrap().display().to_string();
        for (place, block) in blocks(&shown, &fs::read_to_string(&path).unwrap()) {
            // Only whole objects are checked; a fragment has no apiVersion.
            if block.contains("apiVersion:") {
                ours += documents(&place, &block)
                    .iter()
                    .filter(|(place, object)| check(place, object))
                    .count();
            }
        }
    }
    assert!(ours > 0, "the docs show no object of {GROUP}");
}

#[test]
fn a_misspelt_field_is_found() {
    // given a bucket with one field that does not exist and one of the wrong type
    let object = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1",
        "kind": "GarageBucket",
        "metadata": { "name": "x" },
        "spec": {
            "clusterRef": { "name": "garage" },
            "website": { "enabled": "yes" },
            "websiteExposure": { "hostnames": [], "ingres": {} },
        },
    });
    // when it is compared with the schema
    let mut found = Vec::new();
    mistakes(
        "spec",
        &object["spec"],
        &schema("GarageBucket", "v1beta1").unwrap()["properties"]["spec"],
        &mut found,
    );
    // then both are named
    assert_eq!(
        found,
        [
            "spec.website.enabled: is no \"boolean\"",
            "spec.websiteExposure.ingres: no such field",
        ]
    );
}
