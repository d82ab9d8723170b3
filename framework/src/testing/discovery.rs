//! Discovery documents, plain and aggregated, from the list of served kinds. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::ResourceDef;

/// Kubernetes version that the server claims.
pub(crate) const GIT_VERSION: &str = "v1.36.3";

fn verbs(def: &ResourceDef) -> Value {
    let _ = def;
    json!([
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch"
    ])
}

fn singular(def: &ResourceDef) -> String {
    def.kind.to_lowercase()
}

fn groups(defs: &[Arc<ResourceDef>]) -> Vec<(&str, Vec<&str>)> {
    let mut out: Vec<(&str, Vec<&str>)> = Vec::new();
    for def in defs.iter().filter(|d| !d.group.is_empty()) {
        match out.iter_mut().find(|(group, _)| *group == def.group) {
            Some((_, versions)) if versions.contains(&def.version.as_str()) => {}
            Some((_, versions)) => versions.push(&def.version),
            None => out.push((&def.group, vec![&def.version])),
        }
    }
    for (_, versions) in &mut out {
        versions.sort_by_key(|v| std::cmp::Reverse(rank(v)));
    }
    out
}

/// Order of versions: GA before beta before alpha, higher numbers first.
fn rank(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse().unwrap_or(0);
    let rest = version.trim_start_matches('v');
    if let Some((major, minor)) = rest.split_once("beta") {
        (1, number(major), number(minor))
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (0, number(major), number(minor))
    } else {
        (2, number(rest), 0)
    }
}

fn group_json(group: &str, versions: &[&str]) -> Value {
    let entry = |v: &&str| json!({ "groupVersion": format!("{group}/{v}"), "version": v });
    json!({
        "name": group,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

fn resource_list(defs: &[Arc<ResourceDef>], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for def in defs.iter().filter(|d| d.group == group && d.version == version) {
        resources.push(json!({
            "name": def.plural,
            "singularName": singular(def),
            "namespaced": def.namespaced,
            "kind": def.kind,
            "verbs": verbs(def),
        }));
        if def.status_subresource {
            resources.push(json!({
                "name": format!("{}/status", def.plural),
                "singularName": "",
                "namespaced": def.namespaced,
                "kind": def.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": resources,
        })
    })
}

fn aggregated(defs: &[Arc<ResourceDef>], core: bool) -> Value {
    let all: Vec<(&str, Vec<&str>)> = if core {
        vec![("", vec!["v1"])]
    } else {
        groups(defs)
    };
    let items: Vec<Value> = all
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = defs
                        .iter()
                        .filter(|d| d.group == *group && d.version == **version)
                        .map(|def| {
                            let kind = json!({ "group": def.group, "version": def.version, "kind": def.kind });
                            let mut out = json!({
                                "resource": def.plural,
                                "responseKind": kind,
                                "scope": if def.namespaced { "Namespaced" } else { "Cluster" },
                                "singularResource": singular(def),
                                "verbs": verbs(def),
                            });
                            if def.status_subresource {
                                out["subresources"] = json!([{
                                    "subresource": "status",
                                    "responseKind": kind,
                                    "verbs": ["get", "patch", "update"],
                                }]);
                            }
                            out
                        })
                        .collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            json!({ "metadata": if core { json!({}) } else { json!({ "name": group }) }, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// The answer to a path that names no resource: `Ok(Some)` JSON, `Ok(None)` plain "ok", `Err` not found.
pub(crate) fn answer(defs: &[Arc<ResourceDef>], path: &str, accept: &str) -> Result<Option<Value>, ()> {
    let wants_aggregated = accept.contains("g=apidiscovery.k8s.io");
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["api"] if wants_aggregated => Ok(Some(aggregated(defs, true))),
        ["api"] => Ok(Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
        }))),
        ["apis"] if wants_aggregated => Ok(Some(aggregated(defs, false))),
        ["apis"] => {
            let groups: Vec<Value> = groups(defs).iter().map(|(g, v)| group_json(g, v)).collect();
            Ok(Some(
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }),
            ))
        }
        ["api", version] => resource_list(defs, "", version).map(Some).ok_or(()),
        ["apis", group] => groups(defs)
            .iter()
            .find(|(g, _)| g == group)
            .map(|(g, v)| {
                let mut out = group_json(g, v);
                out["kind"] = json!("APIGroup");
                out["apiVersion"] = json!("v1");
                Some(out)
            })
            .ok_or(()),
        ["apis", group, version] => resource_list(defs, group, version).map(Some).ok_or(()),
        ["version"] => Ok(Some(json!({
            "major": "1",
            "minor": "36",
            "gitVersion": GIT_VERSION,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "gc",
            "platform": "linux/amd64",
        }))),
        ["healthz" | "livez" | "readyz", ..] => Ok(None),
        _ => Err(()),
    }
}
