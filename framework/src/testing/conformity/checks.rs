//! The checks: which requests are made. What is expected of them is in `expected.txt`.

use std::future::Future;
use std::pin::Pin;

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::NOBODY;
use super::notes::{Ask, Kind, Notes};

const CONFIG_MAP: Kind = Kind {
    kind: "ConfigMap",
    api_version: "v1",
    plural: "configmaps",
};
const INGRESS: Kind = Kind {
    kind: "Ingress",
    api_version: "networking.k8s.io/v1",
    plural: "ingresses",
};
const ROUTE: Kind = Kind {
    kind: "HTTPRoute",
    api_version: "gateway.networking.k8s.io/v1",
    plural: "httproutes",
};
const GATEWAY: Kind = Kind {
    kind: "Gateway",
    api_version: "gateway.networking.k8s.io/v1",
    plural: "gateways",
};
const SECRET: Kind = Kind {
    kind: "Secret",
    api_version: "v1",
    plural: "secrets",
};
const LEASE: Kind = Kind {
    kind: "Lease",
    api_version: "coordination.k8s.io/v1",
    plural: "leases",
};
const EVENT: Kind = Kind {
    kind: "Event",
    api_version: "events.k8s.io/v1",
    plural: "events",
};
const WIDGET: Kind = Kind {
    kind: "Widget",
    api_version: "conformity.reconcile-kit.dev/v1",
    plural: "widgets",
};
const GADGET: Kind = Kind {
    kind: "Gadget",
    api_version: "conformity.reconcile-kit.dev/v1",
    plural: "gadgets",
};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

type Check = for<'a> fn(&'a mut Notes, Kind) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

macro_rules! checks {
    ($($name:literal for [$($kind:expr),+]: $check:ident;)+) => {
        const ALL: &[(&str, &[Kind], Check)] = &[
            $(($name, &[$($kind),+], |notes, kind| Box::pin($check(notes, kind))),)+
        ];
    };
}

checks! {
    "create by POST" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: create;
    "create only by apply" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE, LEASE]: create_only;
    "update only this uid" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: update_only;
    "apply twice" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: apply_twice;
    "labels shared with others" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: shared_labels;
    "what is applied no more" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: pruning;
    "ownership after POST" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: ownership_patch;
    "PUT" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: put;
    "merge and JSON patch" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: patches;
    "bodies that do not fit" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: misfits;
    "delete with preconditions" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: preconditions;
    "finalizers" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: finalizers;
    "list and selectors" for [CONFIG_MAP, INGRESS, WIDGET]: lists;
    "watch" for [CONFIG_MAP, WIDGET]: watches;
    "status of a map list" for [WIDGET]: status_map;
    "status of an atomic list" for [ROUTE]: status_atomic;
    "status patched beside others" for [ROUTE]: status_beside;
    "status by force" for [GATEWAY]: status_forced;
    "status of a built-in kind" for [INGRESS]: status_builtin;
    "owned lists" for [WIDGET]: list_kinds;
    "owner references" for [CONFIG_MAP, INGRESS, WIDGET, ROUTE]: owners;
    "garbage collection" for [CONFIG_MAP]: garbage;
    "namespace lifecycle" for [CONFIG_MAP, WIDGET]: namespaces;
    "kind that is not served" for [GADGET]: unserved;
    "CRD lifecycle" for [GADGET]: crd_lifecycle;
    "CRD changes" for [GADGET]: crd_changes;
    "secrets" for [SECRET]: secrets;
    "defaults of HTTPRoute" for [ROUTE]: route_defaults;
    "validation of HTTPRoute" for [ROUTE]: route_validation;
    "validation of Ingress" for [INGRESS]: ingress_validation;
    "leases and events" for [LEASE]: leases_and_events;
    "dry run" for [CONFIG_MAP, WIDGET]: dry_run;
    "delete collection" for [CONFIG_MAP]: delete_collection;
    "discovery" for [WIDGET]: discovery;
    "RBAC refusals" for [INGRESS, CONFIG_MAP]: rbac;
}

/// Runs the checks whose name contains `filter` and hands over name and notes, or why one was skipped.
pub(super) async fn all(
    client: Client,
    namespace: &str,
    filter: &str,
    mut done: impl FnMut(String, Result<Vec<String>, String>),
) {
    let mut notes = Notes::new(client.clone(), namespace);
    prepare(&mut notes).await;
    let mut served = Vec::new();
    for kind in [ROUTE, GATEWAY] {
        let listed = notes.send(notes.list(kind)).await;
        if listed.code == 200 {
            served.push(kind.kind);
        }
    }
    for (name, kinds, check) in ALL {
        for kind in *kinds {
            let name = format!("{name} / {}", kind.kind);
            if !name.contains(filter) {
                continue;
            }
            if kind.api_version == ROUTE.api_version && !served.contains(&kind.kind) {
                done(name, Err(format!("{} is not served", kind.kind)));
                continue;
            }
            let mut notes = Notes::new(client.clone(), namespace);
            check(&mut notes, *kind).await;
            clean(&mut notes).await;
            done(name, Ok(notes.into_lines()));
        }
    }
    for crd in ["widgets", "gadgets"] {
        notes
            .send(Ask::new(
                Method::DELETE,
                format!("{CRDS}/{crd}.conformity.reconcile-kit.dev"),
            ))
            .await;
    }
}

async fn prepare(notes: &mut Notes) {
    let namespace = notes.namespace().to_owned();
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    notes
        .send(Ask::new(Method::POST, "/api/v1/namespaces").body(body))
        .await;
    notes.send(Ask::new(Method::POST, CRDS).body(widget_crd())).await;
    let listed = notes.list(WIDGET);
    notes
        .until("widgets are served", listed, |seen| seen.code == 200)
        .await;
}

/// Removes what a check left, so that the next one starts empty.
async fn clean(notes: &mut Notes) {
    for kind in [CONFIG_MAP, SECRET, INGRESS, WIDGET, ROUTE, GATEWAY, LEASE, EVENT] {
        let all = notes.send(notes.list(kind)).await;
        for item in all.json["items"].as_array().cloned().unwrap_or_default() {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            if name == "kube-root-ca.crt" {
                continue;
            }
            if !item["metadata"]["finalizers"].is_null() {
                notes
                    .send(notes.merge(kind, name, "clean", json!({ "metadata": { "finalizers": null } })))
                    .await;
            }
            notes.send(notes.delete(kind, name, Value::Null)).await;
        }
    }
}

fn widget_crd() -> Value {
    let conditions = json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": { "type": "string" },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "reason": { "type": "string" },
                "message": { "type": "string" },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "observedGeneration": { "type": "integer", "format": "int64" },
            },
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 100 },
            "color": { "type": "string", "default": "red", "enum": ["red", "green"] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "roles": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": { "type": "string" },
                        "number": { "type": "integer" },
                        "protocol": { "type": "string", "default": "TCP" },
                    },
                },
            },
            "env": { "type": "object", "additionalProperties": { "type": "string" } },
            "target": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": { "kind": { "type": "string" }, "name": { "type": "string" } },
            },
            "note": { "type": "string", "nullable": true },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.conformity.reconcile-kit.dev" },
        "spec": {
            "group": "conformity.reconcile-kit.dev",
            "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": spec,
                        "status": {
                            "type": "object",
                            "properties": { "phase": { "type": "string" }, "conditions": conditions },
                        },
                    },
                }},
            }],
        },
    })
}

fn gadget_crd() -> Value {
    let mut crd = widget_crd();
    crd["metadata"]["name"] = json!("gadgets.conformity.reconcile-kit.dev");
    crd["spec"]["names"] =
        json!({ "kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList" });
    crd
}

/// A valid object; `variant` changes its content.
fn body(kind: Kind, name: &str, variant: u32) -> Value {
    let mut out = json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": name } });
    let host = format!("v{variant}.example.org");
    match kind.kind {
        "ConfigMap" => out["data"] = json!({ "k": variant.to_string() }),
        "Ingress" => {
            out["spec"] = json!({ "rules": [{ "host": host, "http": { "paths": [{
                "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "s", "port": { "number": 80 } } },
            }]}}]});
        }
        "HTTPRoute" => {
            out["spec"] = json!({
                "parentRefs": [{ "name": "gw" }],
                "hostnames": [host],
                "rules": [{ "backendRefs": [{ "name": "s", "port": 80 }] }],
            });
        }
        "Gateway" => {
            out["spec"] = json!({
                "gatewayClassName": "nobodys",
                "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP", "hostname": host }],
            })
        }
        "Lease" => {
            out["spec"] = json!({ "holderIdentity": format!("v{variant}"), "leaseDurationSeconds": 15 })
        }
        _ => out["spec"] = json!({ "size": variant }),
    }
    out
}

fn with(mut object: Value, change: Value) -> Value {
    // Unlike a merge patch this keeps nulls: they are part of some bodies.
    fn put(into: &mut Value, change: Value) {
        match change {
            Value::Object(fields) if into.is_object() && !fields.is_empty() => {
                for (name, v) in fields {
                    if !into[name.as_str()].is_object() {
                        into[name.as_str()] = json!({});
                    }
                    put(&mut into[name.as_str()], v);
                }
            }
            other => *into = other,
        }
    }
    put(&mut object, change);
    object
}

fn meta(object: Value, change: Value) -> Value {
    with(object, json!({ "metadata": change }))
}

const RANDOM_UID: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc";

async fn create(n: &mut Notes, k: Kind) {
    n.step("POST", n.post(k, "rw", body(k, "a", 1))).await;
    n.step("POST again", n.post(k, "rw", body(k, "a", 1))).await;
    n.step(
        "with a resourceVersion",
        n.post(k, "rw", meta(body(k, "b", 1), json!({ "resourceVersion": "1" }))),
    )
    .await;
    let own = n
        .send(n.post(k, "rw", meta(body(k, "c", 1), json!({ "uid": RANDOM_UID }))))
        .await;
    n.note(format!(
        "with a uid -> {} kept {}",
        own.code,
        own.uid() == RANDOM_UID
    ));
    let fields = json!([{ "manager": "x", "operation": "Apply", "apiVersion": k.api_version, "fieldsType": "FieldsV1", "fieldsV1": {} }]);
    n.step(
        "with managedFields",
        n.post(k, "rw", meta(body(k, "d", 1), json!({ "managedFields": fields }))),
    )
    .await;
    n.step(
        "other namespace in the body",
        n.post(k, "rw", meta(body(k, "e", 1), json!({ "namespace": "other" }))),
    )
    .await;
    let missing = n.path_in(k, "conformity-missing", "");
    n.step(
        "namespace missing",
        Ask::new(Method::POST, missing).body(body(k, "e", 1)),
    )
    .await;
    n.step(
        "without a name",
        n.post(k, "rw", meta(body(k, "e", 1), json!({ "name": "" }))),
    )
    .await;
    n.step_brief("bad name", n.post(k, "rw", body(k, "A_b", 1))).await;
    let generated = n
        .send(n.post(k, "rw", meta(body(k, "", 1), json!({ "generateName": "gen-" }))))
        .await;
    let name = generated.json["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    n.note(format!(
        "generateName -> {} {} of {} characters",
        generated.code,
        name.starts_with("gen-"),
        name.len()
    ));
    n.step_brief(
        "another kind",
        n.post(k, "rw", with(body(k, "e", 1), json!({ "kind": "Nonsense" }))),
    )
    .await;
    n.step("GET", n.get(k, "a")).await;
    n.step("GET absent", n.get(k, "zzz")).await;
    let partial = n.send(n.get(k, "a").metadata_only(false)).await;
    n.note(format!(
        "GET metadata -> {} {} {} {:?}",
        partial.code,
        partial.json["kind"],
        partial.json["apiVersion"],
        partial.json.as_object().map(|o| o.len())
    ));
}

async fn create_only(n: &mut Notes, k: Kind) {
    let v = |version: &str| meta(body(k, "a", 1), json!({ "resourceVersion": version }));
    n.step("absent, version 1", n.apply(k, "rw", v("1"))).await;
    n.step("exists, version 1", n.apply(k, "rw", v("1"))).await;
    n.step(
        "exists, version 9223372036854775807",
        n.apply(k, "rw", v("9223372036854775807")),
    )
    .await;
    n.step("exists, other manager, version 1", n.apply(k, "other", v("1")))
        .await;
    n.step("exists, version 0", n.apply(k, "rw", v("0"))).await;
    n.step("exists, version empty", n.apply(k, "rw", v(""))).await;
    n.step("exists, version abc", n.apply(k, "rw", v("abc"))).await;
    let b = |version: &str| meta(body(k, "b", 1), json!({ "resourceVersion": version }));
    n.step("absent, version abc", n.apply(k, "rw", b("abc"))).await;
    n.step("absent, version 0", n.apply(k, "rw", b("0"))).await;
    n.step(
        "absent, version 999999999",
        n.apply(
            k,
            "rw",
            meta(body(k, "c", 1), json!({ "resourceVersion": "999999999" })),
        ),
    )
    .await;
    n.step(
        "another manager adopts",
        n.apply_gently(
            k,
            "other",
            meta(body(k, "c", 1), json!({ "labels": { "x": "y" } })),
        ),
    )
    .await;
}

async fn update_only(n: &mut Notes, k: Kind) {
    let u = |name: &str, uid: &str| meta(body(k, name, 2), json!({ "uid": uid }));
    n.step("absent, some uid", n.apply(k, "rw", u("a", RANDOM_UID)))
        .await;
    let made = n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("other uid", n.apply(k, "rw", u("a", RANDOM_UID))).await;
    n.step("right uid", n.apply(k, "rw", u("a", &made.uid()))).await;
    n.step("right uid again", n.apply(k, "rw", u("a", &made.uid())))
        .await;
    n.step(
        "right uid, stale version",
        n.apply(
            k,
            "rw",
            meta(u("a", &made.uid()), json!({ "resourceVersion": made.version() })),
        ),
    )
    .await;
    let live = n.send(n.get(k, "a")).await;
    let exact = meta(u("a", &made.uid()), json!({ "resourceVersion": live.version() }));
    n.step("right uid, right version", n.apply(k, "rw", exact)).await;
    n.send(n.delete(k, "a", Value::Null)).await;
    n.step("uid of the deleted one", n.apply(k, "rw", u("a", &made.uid())))
        .await;
    n.send(n.post(k, "other", body(k, "a", 1))).await;
    n.step(
        "uid of the deleted one, made anew by another",
        n.apply(k, "rw", u("a", &made.uid())),
    )
    .await;
}

async fn apply_twice(n: &mut Notes, k: Kind) {
    n.step("first", n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("again", n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("again, not forced", n.apply_gently(k, "rw", body(k, "a", 1)))
        .await;
    for (label, change) in [
        ("annotations {}", json!({ "annotations": {} })),
        ("labels {}", json!({ "labels": {} })),
        ("annotations null", json!({ "annotations": null })),
        ("finalizers []", json!({ "finalizers": [] })),
        ("ownerReferences []", json!({ "ownerReferences": [] })),
        ("creationTimestamp null", json!({ "creationTimestamp": null })),
    ] {
        let changed = meta(body(k, "a", 1), change);
        n.step(label, n.apply(k, "rw", changed.clone())).await;
        // On custom resources nearly each repetition is a write, depending on the state of the server's cache.
        let mut versions = std::collections::BTreeSet::new();
        for _ in 0..8 {
            versions.insert(n.send(n.apply(k, "rw", changed.clone())).await.version());
        }
        n.note(format!("{label} again and again: writes {}", versions.len() > 2));
    }
    n.step("plain again", n.apply(k, "rw", body(k, "a", 1))).await;
    n.step(
        "another manager, not forced",
        n.apply_gently(k, "other", body(k, "a", 1)),
    )
    .await;
    n.step("another manager, forced", n.apply(k, "other", body(k, "a", 1)))
        .await;
    n.step("ours after that", n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("ours once more", n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("changed content", n.apply(k, "rw", body(k, "a", 2))).await;
    n.step(
        "changed metadata",
        n.apply(
            k,
            "rw",
            meta(body(k, "a", 2), json!({ "annotations": { "n": "1" } })),
        ),
    )
    .await;
    if k.kind == "HTTPRoute" {
        let full = || {
            let mut route = body(k, "full", 1);
            route["spec"] = json!({
                "parentRefs": [{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw" }],
                "hostnames": ["v1.example.org"],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "backendRefs": [{ "group": "", "kind": "Service", "name": "s", "port": 80, "weight": 1 }],
                }],
            });
            route
        };
        n.step("defaults written", n.apply(k, "rw", full())).await;
        n.step("defaults written again", n.apply(k, "rw", full())).await;
        n.step(
            "defaults written, another manager",
            n.apply_gently(k, "other", full()),
        )
        .await;
        n.step("defaults written, ours", n.apply(k, "rw", full())).await;
    }
}

async fn shared_labels(n: &mut Notes, k: Kind) {
    let label = |v: &str| meta(body(k, "a", 1), json!({ "labels": { "a": v } }));
    n.step(
        "user makes a=1",
        n.post(
            k,
            "user",
            meta(body(k, "a", 1), json!({ "labels": { "a": "1", "u": "1" } })),
        ),
    )
    .await;
    n.step("we apply a=2, not forced", n.apply_gently(k, "rw", label("2")))
        .await;
    n.step("we apply a=2", n.apply(k, "rw", label("2"))).await;
    n.step(
        "user patches a=3",
        n.merge(k, "a", "user", json!({ "metadata": { "labels": { "a": "3" } } })),
    )
    .await;
    n.step("we apply a=2, not forced", n.apply_gently(k, "rw", label("2")))
        .await;
    n.step("we apply a=2", n.apply(k, "rw", label("2"))).await;
    n.step(
        "user deletes a",
        n.merge(k, "a", "user", json!({ "metadata": { "labels": { "a": null } } })),
    )
    .await;
    n.step("we apply a=2, not forced", n.apply_gently(k, "rw", label("2")))
        .await;
    let bare = json!({ "apiVersion": k.api_version, "kind": k.kind, "metadata": { "name": "a", "labels": { "a": "2" } } });
    n.step("other applies a=2", n.apply_gently(k, "other", bare.clone()))
        .await;
    n.step("we drop a", n.apply(k, "rw", body(k, "a", 1))).await;
    let empty = json!({ "apiVersion": k.api_version, "kind": k.kind, "metadata": { "name": "a" } });
    let last = n.step("other drops a", n.apply(k, "other", empty)).await;
    n.show("labels", &last.json["metadata"]["labels"]);
    n.step("we apply a=2", n.apply(k, "rw", label("2"))).await;
    n.step(
        "third patches a=2",
        n.merge(k, "a", "third", json!({ "metadata": { "labels": { "a": "2" } } })),
    )
    .await;
    let last = n.step("we drop a", n.apply(k, "rw", body(k, "a", 1))).await;
    n.show("labels", &last.json["metadata"]["labels"]);
}

/// A body with more content than `body`.
fn richer(k: Kind, name: &str) -> Value {
    let mut out = meta(
        body(k, name, 1),
        json!({ "labels": { "one": "1", "two": "2" }, "annotations": { "n": "1" } }),
    );
    match k.kind {
        "ConfigMap" => out["data"]["extra"] = json!("x"),
        "Ingress" => out["spec"]["tls"] = json!([{ "hosts": ["v1.example.org"], "secretName": "t" }]),
        "HTTPRoute" => {}
        _ => {
            out["spec"]["tags"] = json!(["t"]);
            out["spec"]["env"] = json!({ "A": "1" });
            out["spec"]["note"] = json!("n");
        }
    }
    out
}

fn poorer(k: Kind, name: &str) -> Value {
    let mut out = body(k, name, 1);
    if k.kind == "HTTPRoute" {
        out["spec"].as_object_mut().map(|spec| spec.remove("hostnames"));
    }
    out
}

async fn pruning(n: &mut Notes, k: Kind) {
    n.step("rich", n.apply(k, "rw", richer(k, "a"))).await;
    n.step(
        "one label less",
        n.apply(k, "rw", meta(richer(k, "a"), json!({ "labels": { "one": "1" } }))),
    )
    .await;
    let less = n.step("poor", n.apply(k, "rw", poorer(k, "a"))).await;
    content(n, &less.json);
    n.step("poor again", n.apply(k, "rw", poorer(k, "a"))).await;
    n.step("made by POST", n.post(k, "rw", richer(k, "b"))).await;
    let kept = n
        .step("then poor by apply", n.apply(k, "rw", poorer(k, "b")))
        .await;
    content(n, &kept.json);
    n.step("rich, with a co-owner", n.apply(k, "rw", richer(k, "c")))
        .await;
    n.step("the co-owner", n.apply(k, "other", richer(k, "c"))).await;
    let kept = n.step("poor", n.apply(k, "rw", poorer(k, "c"))).await;
    content(n, &kept.json);
    let last = n.step("co-owner poor", n.apply(k, "other", poorer(k, "c"))).await;
    content(n, &last.json);
}

fn content(n: &mut Notes, object: &Value) {
    n.show("labels", &object["metadata"]["labels"]);
    n.show("annotations", &object["metadata"]["annotations"]);
    n.show("spec", &object["spec"]);
    n.show("data", &object["data"]);
}

async fn ownership_patch(n: &mut Notes, k: Kind) {
    let made = n.step("POST", n.post(k, "rw", richer(k, "a"))).await;
    let rewrite = |version: &str| {
        json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Apply" },
        ])
    };
    n.step(
        "rewrite with a stale version",
        n.json_patch(k, "a", "rw", rewrite("1")),
    )
    .await;
    n.step("rewrite", n.json_patch(k, "a", "rw", rewrite(&made.version())))
        .await;
    n.step("same body by apply", n.apply(k, "rw", richer(k, "a")))
        .await;
    n.step("same body again", n.apply(k, "rw", richer(k, "a"))).await;
    let poor = n.step("poor", n.apply(k, "rw", poorer(k, "a"))).await;
    content(n, &poor.json);
    n.send(n.post(k, "rw", body(k, "b", 1))).await;
    let both = n.step("POST and apply", n.apply(k, "rw", richer(k, "b"))).await;
    let collapse = json!([
        { "op": "replace", "path": "/metadata/resourceVersion", "value": both.version() },
        { "op": "replace", "path": "/metadata/managedFields/1/operation", "value": "Apply" },
    ]);
    n.step("collapsed to one", n.json_patch(k, "b", "rw", collapse))
        .await;
    n.step(
        "wiped",
        n.merge(k, "b", "rw", json!({ "metadata": { "managedFields": [{}] } })),
    )
    .await;
    n.step(
        "managedFields in an apply",
        n.apply(k, "rw", meta(body(k, "b", 1), json!({ "managedFields": [] }))),
    )
    .await;
    let fields = json!([{ "manager": "x", "operation": "Apply", "apiVersion": k.api_version, "fieldsType": "FieldsV1", "fieldsV1": {} }]);
    n.step(
        "managedFields in an apply",
        n.apply(k, "rw", meta(body(k, "b", 1), json!({ "managedFields": fields }))),
    )
    .await;
}

async fn put(n: &mut Notes, k: Kind) {
    n.step("absent", n.put(k, "a", "rw", body(k, "a", 1))).await;
    n.step(
        "absent, with a uid",
        n.put(k, "a", "rw", meta(body(k, "a", 1), json!({ "uid": RANDOM_UID }))),
    )
    .await;
    let made = n.send(n.post(k, "rw", body(k, "a", 1))).await;
    let at = |object: Value, version: String| meta(object, json!({ "resourceVersion": version }));
    n.step("same", n.put(k, "a", "rw", at(body(k, "a", 1), made.version())))
        .await;
    let next = n
        .step(
            "changed",
            n.put(k, "a", "rw", at(body(k, "a", 2), made.version())),
        )
        .await;
    n.step("stale", n.put(k, "a", "rw", at(body(k, "a", 3), made.version())))
        .await;
    n.step("without a version", n.put(k, "a", "rw", body(k, "a", 3)))
        .await;
    n.step("version 0", n.put(k, "a", "rw", at(body(k, "a", 3), "0".into())))
        .await;
    n.step(
        "other uid",
        n.put(
            k,
            "a",
            "rw",
            meta(
                body(k, "a", 3),
                json!({ "uid": RANDOM_UID, "resourceVersion": next.version() }),
            ),
        ),
    )
    .await;
    n.step("other name", n.put(k, "b", "rw", body(k, "a", 3))).await;
}

async fn patches(n: &mut Notes, k: Kind) {
    let label = |v: &str| json!({ "metadata": { "labels": { "a": v } } });
    n.step("merge, absent", n.merge(k, "a", "rw", label("1"))).await;
    let made = n.send(n.post(k, "rw", body(k, "a", 1))).await;
    n.step("merge", n.merge(k, "a", "rw", label("1"))).await;
    n.step("merge again", n.merge(k, "a", "rw", label("1"))).await;
    n.step(
        "merge, stale",
        n.merge(
            k,
            "a",
            "rw",
            json!({ "metadata": { "resourceVersion": made.version() } }),
        ),
    )
    .await;
    n.step(
        "merge, other uid",
        n.merge(k, "a", "rw", json!({ "metadata": { "uid": RANDOM_UID } })),
    )
    .await;
    n.step(
        "merge, right uid",
        n.merge(
            k,
            "a",
            "rw",
            with(label("2"), json!({ "metadata": { "uid": made.uid() } })),
        ),
    )
    .await;
    n.step(
        "merge, unknown field",
        n.merge(k, "a", "rw", json!({ "nonsense": 1 })),
    )
    .await;
    n.step_brief(
        "merge, wrong type",
        n.merge(k, "a", "rw", json!({ "metadata": { "labels": 5 } })),
    )
    .await;
    n.step_brief("merge, no object", n.merge(k, "a", "rw", json!([])))
        .await;
    let op = |op: &str, path: &str, value: Value| json!([{ "op": op, "path": path, "value": value }]);
    n.step(
        "json, test fails",
        n.json_patch(k, "a", "rw", op("test", "/metadata/labels/a", json!("9"))),
    )
    .await;
    n.step(
        "json, test holds",
        n.json_patch(k, "a", "rw", op("test", "/metadata/labels/a", json!("2"))),
    )
    .await;
    n.step(
        "json, path missing",
        n.json_patch(k, "a", "rw", op("replace", "/metadata/annotations/x", json!("9"))),
    )
    .await;
    n.step(
        "json, remove missing",
        n.json_patch(
            k,
            "a",
            "rw",
            json!([{ "op": "remove", "path": "/metadata/annotations" }]),
        ),
    )
    .await;
    n.step(
        "json, stale version",
        n.json_patch(
            k,
            "a",
            "rw",
            op("replace", "/metadata/resourceVersion", json!(made.version())),
        ),
    )
    .await;
    n.step(
        "json, add",
        n.json_patch(k, "a", "rw", op("add", "/metadata/labels/b", json!("1"))),
    )
    .await;
    n.step(
        "json, finalizer",
        n.json_patch(
            k,
            "a",
            "rw",
            op("add", "/metadata/finalizers", json!(["conformity.dev/x"])),
        ),
    )
    .await;
    n.step_brief(
        "json, no patch",
        n.json_patch(k, "a", "rw", json!({ "op": "add" })),
    )
    .await;
    n.step(
        "json, absent",
        n.json_patch(k, "b", "rw", op("add", "/metadata/labels", json!({}))),
    )
    .await;
}

async fn misfits(n: &mut Notes, k: Kind) {
    let unknown = with(body(k, "a", 1), json!({ "nonsense": 1 }));
    n.step("apply, unknown field", n.apply(k, "rw", unknown.clone()))
        .await;
    n.step(
        "apply, unknown field, strict",
        n.apply(k, "rw", unknown.clone())
            .param("fieldValidation", "Strict"),
    )
    .await;
    n.step(
        "apply, unknown metadata",
        n.apply(k, "rw", meta(body(k, "a", 1), json!({ "nonsense": 1 }))),
    )
    .await;
    n.step(
        "apply, wrong type",
        n.apply(k, "rw", meta(body(k, "a", 1), json!({ "labels": { "a": 5 } }))),
    )
    .await;
    n.step_brief(
        "apply, wrong container",
        n.apply(k, "rw", meta(body(k, "a", 1), json!({ "labels": "a" }))),
    )
    .await;
    n.step("apply, other name", n.apply_at(k, "b", "rw", body(k, "a", 1)))
        .await;
    n.step(
        "apply, other namespace",
        n.apply(k, "rw", meta(body(k, "a", 1), json!({ "namespace": "other" }))),
    )
    .await;
    let mut kindless = body(k, "a", 1);
    kindless.as_object_mut().map(|o| o.remove("kind"));
    n.step_brief("apply, no kind", n.apply(k, "rw", kindless)).await;
    n.step("apply, no manager", n.apply(k, "", body(k, "a", 1))).await;
    n.step(
        "apply, long manager",
        n.apply(k, &"m".repeat(129), body(k, "a", 1)),
    )
    .await;
    let missing = n.path_in(k, "conformity-missing", "a");
    n.step(
        "apply, namespace missing",
        n.apply(k, "rw", body(k, "a", 1)).at(missing),
    )
    .await;
    n.step_brief("POST, unknown field", n.post(k, "rw", unknown))
        .await;
    n.step_brief(
        "POST, wrong type",
        n.post(k, "rw", meta(body(k, "z", 1), json!({ "labels": { "a": 5 } }))),
    )
    .await;
    n.step(
        "long label",
        n.apply(
            k,
            "rw",
            meta(body(k, "z", 1), json!({ "labels": { "a": "x".repeat(64) } })),
        ),
    )
    .await;
    if k.kind == "Widget" {
        let spec = |change: Value| with(body(k, "w", 1), json!({ "spec": change }));
        n.step("spec, unknown", n.apply(k, "rw", spec(json!({ "nonsense": 1 }))))
            .await;
        n.step(
            "spec, wrong scalar",
            n.apply(k, "rw", spec(json!({ "size": "one" }))),
        )
        .await;
        n.step("spec, too large", n.apply(k, "rw", spec(json!({ "size": 101 }))))
            .await;
        n.step("spec, too small", n.apply(k, "rw", spec(json!({ "size": 0 }))))
            .await;
        n.step(
            "spec, not in enum",
            n.apply(k, "rw", spec(json!({ "color": "blue" }))),
        )
        .await;
        n.step("spec, null", n.apply(k, "rw", spec(json!({ "tags": null }))))
            .await;
        n.step(
            "spec, null with default",
            n.apply(k, "rw", spec(json!({ "color": null }))),
        )
        .await;
        n.step(
            "spec, null and nullable",
            n.apply(k, "rw", spec(json!({ "note": null }))),
        )
        .await;
        let mut none = body(k, "w", 1);
        none["spec"] = json!({});
        n.step(
            "spec, required missing",
            n.post(k, "rw", with(none, json!({ "metadata": { "name": "w2" } }))),
        )
        .await;
        n.step(
            "POST, wrong scalar",
            n.post(
                k,
                "rw",
                with(
                    spec(json!({ "size": "one" })),
                    json!({ "metadata": { "name": "w3" } }),
                ),
            ),
        )
        .await;
    }
}

async fn preconditions(n: &mut Notes, k: Kind) {
    let pre = |uid: Value, version: Value| json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": uid, "resourceVersion": version } });
    n.step("absent", n.delete(k, "a", Value::Null)).await;
    n.step(
        "absent, with a uid",
        n.delete(k, "a", pre(json!(RANDOM_UID), Value::Null)),
    )
    .await;
    let made = n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("other uid", n.delete(k, "a", pre(json!(RANDOM_UID), Value::Null)))
        .await;
    n.step("empty uid", n.delete(k, "a", pre(json!(""), Value::Null)))
        .await;
    n.send(n.apply(k, "rw", body(k, "a", 2))).await;
    n.send(n.get(k, "a")).await;
    n.step(
        "stale version",
        n.delete(k, "a", pre(json!(made.uid()), json!(made.version()))),
    )
    .await;
    n.step("right uid", n.delete(k, "a", pre(json!(made.uid()), Value::Null)))
        .await;
    n.step("gone", n.get(k, "a")).await;
}

async fn finalizers(n: &mut Notes, k: Kind) {
    let held = || {
        meta(
            body(k, "a", 1),
            json!({ "finalizers": ["conformity.dev/a", "conformity.dev/b"] }),
        )
    };
    n.step("applied", n.apply(k, "rw", held())).await;
    n.step("deleted", n.delete(k, "a", Value::Null)).await;
    n.step("deleted again", n.delete(k, "a", Value::Null)).await;
    n.step("POST", n.post(k, "rw", body(k, "a", 1))).await;
    n.step(
        "create only",
        n.apply(k, "rw", meta(held(), json!({ "resourceVersion": "1" }))),
    )
    .await;
    n.step(
        "applied still",
        n.apply(k, "rw", meta(held(), json!({ "labels": { "late": "1" } }))),
    )
    .await;
    n.step(
        "new finalizer",
        n.merge(
            k,
            "a",
            "rw",
            json!({ "metadata": { "finalizers": ["conformity.dev/a", "conformity.dev/c"] } }),
        ),
    )
    .await;
    n.step(
        "one less",
        n.merge(
            k,
            "a",
            "rw",
            json!({ "metadata": { "finalizers": ["conformity.dev/a"] } }),
        ),
    )
    .await;
    n.step(
        "none left",
        n.merge(k, "a", "rw", json!({ "metadata": { "finalizers": null } })),
    )
    .await;
    n.step("gone", n.get(k, "a")).await;
}

fn names(seen: &Value) -> Value {
    seen["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|i| i["metadata"]["name"].clone())
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

async fn lists(n: &mut Notes, k: Kind) {
    for (name, labels) in [
        ("a", json!({ "app": "x", "tier": "1" })),
        ("b", json!({ "app": "y" })),
        ("c", json!({ "tier": "2" })),
        ("d", json!({ "app": "x" })),
    ] {
        n.send(n.apply(k, "rw", meta(body(k, name, 1), json!({ "labels": labels }))))
            .await;
    }
    for selector in [
        "app=x",
        "app==x",
        "app!=x",
        "app in (x,y)",
        "app notin (x)",
        "app",
        "!app",
        "app=x,tier",
        "app in (x, y),tier!=1",
        "tier in ()",
    ] {
        let seen = n.send(n.list(k).param("labelSelector", selector)).await;
        n.show(&format!("labels {selector} -> {}", seen.code), &names(&seen.json));
    }
    for selector in ["metadata.name=b", "metadata.name!=b", "metadata.namespace=other"] {
        let seen = n.send(n.list(k).param("fieldSelector", selector)).await;
        n.show(&format!("fields {selector} -> {}", seen.code), &names(&seen.json));
    }
    n.step_brief(
        "fields unknown",
        n.list(k).param("fieldSelector", "spec.nonsense=1"),
    )
    .await;
    n.step_brief("labels broken", n.list(k).param("labelSelector", "a=b=c=,"))
        .await;
    let app = n.list(k).param("labelSelector", "app");
    let first = n.send(app.clone().param("limit", "2")).await;
    n.show("limit 2", &names(&first.json));
    n.show("remaining", &first.json["metadata"]["remainingItemCount"]);
    let token = first.json["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let rest = n.send(app.param("limit", "2").param("continue", &token)).await;
    n.show("continued", &names(&rest.json));
    n.show("continue at the end", &rest.json["metadata"]["continue"]);
    let whole = n.send(n.list(k).param("labelSelector", "app")).await;
    n.note(format!("{} {}", whole.json["kind"], whole.json["apiVersion"]));
    n.note(format!("items have a kind: {}", whole.json["items"][0]["kind"]));
    let partial = n
        .send(n.list(k).param("labelSelector", "app").metadata_only(true))
        .await;
    n.note(format!("{} {}", partial.json["kind"], partial.json["apiVersion"]));
    n.note(format!(
        "items: {} {}",
        partial.json["items"][0]["kind"], partial.json["items"][0]["apiVersion"]
    ));
    n.step_brief(
        "continue broken",
        n.list(k).param("limit", "1").param("continue", "nonsense"),
    )
    .await;
}

async fn watches(n: &mut Notes, k: Kind) {
    let label = |v: &str| meta(body(k, "a", 1), json!({ "labels": { "w": v } }));
    n.send(n.apply(k, "rw", label("1"))).await;
    let start = n.send(n.list(k)).await.version();
    let from = |n: &Notes| {
        n.list(k)
            .param("resourceVersion", &start)
            .param("timeoutSeconds", "30")
    };
    let mut plain = n.watch(from(n)).await;
    let mut selected = n.watch(from(n).param("labelSelector", "w=1")).await;
    let mut one = n.watch(from(n).param("fieldSelector", "metadata.name=b")).await;
    let mut partial = n.watch(from(n).metadata_only(false)).await;
    n.send(n.apply(k, "rw", meta(body(k, "b", 1), json!({ "labels": { "w": "2" } }))))
        .await;
    n.send(n.apply(k, "rw", label("2"))).await;
    n.send(n.apply(k, "rw", label("1"))).await;
    n.send(n.delete(k, "a", Value::Null)).await;
    n.send(n.delete(k, "b", Value::Null)).await;
    n.events("plain", &mut plain, 5).await;
    n.events("label w=1", &mut selected, 3).await;
    n.events("name b", &mut one, 2).await;
    n.events("metadata", &mut partial, 5).await;
    let mut replay = n.watch(from(n)).await;
    n.events("the same again from the past", &mut replay, 5).await;
    n.send(n.apply(k, "rw", label("1"))).await;
    let by_name = |n: &Notes| {
        n.list(k)
            .param("fieldSelector", "metadata.name=a")
            .param("timeoutSeconds", "1")
    };
    let mut whole = n.watch(by_name(n)).await;
    n.events("without a version", &mut whole, 3).await;
    let mut zero = n.watch(by_name(n).param("resourceVersion", "0")).await;
    n.events("version 0", &mut zero, 3).await;
    let streaming = by_name(n)
        .param("sendInitialEvents", "true")
        .param("resourceVersionMatch", "NotOlderThan")
        .param("allowWatchBookmarks", "true");
    let mut streaming = n.watch(streaming).await;
    n.events("streaming list", &mut streaming, 2).await;
    n.step_brief(
        "streaming list without a match",
        n.list(k)
            .param("watch", "true")
            .param("sendInitialEvents", "true")
            .param("timeoutSeconds", "1"),
    )
    .await;
    let mut old = n
        .watch(
            n.list(k)
                .param("resourceVersion", "1")
                .param("timeoutSeconds", "5"),
        )
        .await;
    n.events_brief("version 1", &mut old, 2).await;
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn status_of(k: Kind, name: &str, status: Value) -> Value {
    json!({ "apiVersion": k.api_version, "kind": k.kind, "metadata": { "name": name }, "status": status })
}

async fn status_map(n: &mut Notes, k: Kind) {
    let s = |conditions: Value| status_of(k, "a", json!({ "conditions": conditions }));
    let apply = |n: &Notes, manager: &str, body: Value| n.apply(k, manager, body).subresource("status");
    n.step("absent", apply(n, "x", s(json!([condition("A", "True")]))))
        .await;
    let made = n
        .step(
            "made, with a status",
            n.apply(
                k,
                "rw",
                with(body(k, "a", 1), json!({ "status": { "phase": "P" } })),
            ),
        )
        .await;
    n.show("status", &made.json["status"]);
    n.step("x applies A", apply(n, "x", s(json!([condition("A", "True")]))))
        .await;
    n.step("x again", apply(n, "x", s(json!([condition("A", "True")]))))
        .await;
    n.step("y applies B", apply(n, "y", s(json!([condition("B", "True")]))))
        .await;
    n.step(
        "y applies A, not forced",
        n.apply_gently(
            k,
            "y",
            s(json!([condition("A", "False"), condition("B", "True")])),
        )
        .subresource("status"),
    )
    .await;
    let both = n
        .step("x changes A", apply(n, "x", s(json!([condition("A", "False")]))))
        .await;
    n.show("status", &both.json["status"]);
    n.step(
        "stale version",
        apply(
            n,
            "x",
            meta(
                s(json!([condition("A", "True")])),
                json!({ "resourceVersion": made.version() }),
            ),
        ),
    )
    .await;
    n.step(
        "version 1, as create-only",
        apply(
            n,
            "x",
            meta(
                s(json!([condition("A", "True")])),
                json!({ "resourceVersion": "1" }),
            ),
        ),
    )
    .await;
    n.step(
        "wrong uid",
        apply(
            n,
            "x",
            meta(s(json!([condition("A", "False")])), json!({ "uid": RANDOM_UID })),
        ),
    )
    .await;
    n.step(
        "labels in the body",
        apply(
            n,
            "x",
            meta(
                s(json!([condition("A", "False")])),
                json!({ "labels": { "l": "1" } }),
            ),
        ),
    )
    .await;
    n.step(
        "empty labels in the body",
        apply(
            n,
            "x",
            meta(s(json!([condition("A", "False")])), json!({ "labels": {} })),
        ),
    )
    .await;
    n.step(
        "spec in the body",
        apply(
            n,
            "x",
            with(
                s(json!([condition("A", "False")])),
                json!({ "spec": { "size": 5 } }),
            ),
        ),
    )
    .await;
    let one = n.step("x drops A", apply(n, "x", s(json!([])))).await;
    n.show("status", &one.json["status"]);
    n.step(
        "unknown field",
        apply(n, "x", status_of(k, "a", json!({ "nonsense": 1 }))),
    )
    .await;
    n.step("not in enum", apply(n, "x", s(json!([condition("A", "Maybe")]))))
        .await;
    n.step(
        "condition twice",
        apply(
            n,
            "x",
            s(json!([condition("A", "True"), condition("A", "False")])),
        ),
    )
    .await;
    n.step(
        "merge patch",
        n.merge(k, "a", "m", json!({ "status": { "phase": "Q" } }))
            .subresource("status"),
    )
    .await;
    n.step(
        "merge patch again",
        n.merge(k, "a", "m", json!({ "status": { "phase": "Q" } }))
            .subresource("status"),
    )
    .await;
    n.step(
        "merge patch, stale",
        n.merge(
            k,
            "a",
            "m",
            json!({ "metadata": { "resourceVersion": made.version() }, "status": { "phase": "R" } }),
        )
        .subresource("status"),
    )
    .await;
    n.step(
        "merge patch, wrong uid",
        n.merge(
            k,
            "a",
            "m",
            json!({ "metadata": { "uid": RANDOM_UID }, "status": { "phase": "Q" } }),
        )
        .subresource("status"),
    )
    .await;
    n.step(
        "PUT without a version",
        n.put(k, "a", "m", status_of(k, "a", json!({ "phase": "S" })))
            .subresource("status"),
    )
    .await;
    let live = n.send(n.get(k, "a")).await;
    let put = n
        .step(
            "PUT",
            n.put(
                k,
                "a",
                "m",
                meta(
                    status_of(k, "a", json!({ "phase": "S" })),
                    json!({ "resourceVersion": live.version() }),
                ),
            )
            .subresource("status"),
        )
        .await;
    n.show("spec", &put.json["spec"]);
    n.show("status", &put.json["status"]);
    n.step("main by apply keeps it", n.apply(k, "rw", body(k, "a", 2)))
        .await;
    let live = n.send(n.get(k, "a")).await;
    n.step(
        "PUT on main keeps it",
        n.put(
            k,
            "a",
            "rw",
            meta(body(k, "a", 3), json!({ "resourceVersion": live.version() })),
        ),
    )
    .await;
    n.step("GET", n.get(k, "a").subresource("status")).await;
}

async fn status_atomic(n: &mut Notes, k: Kind) {
    let parent = |controller: &str, section: &str| {
        json!({
            "parentRef": { "name": "gw", "sectionName": section },
            "controllerName": controller,
            "conditions": [condition("Accepted", "True")],
        })
    };
    let s = |parents: Value| status_of(k, "a", json!({ "parents": parents }));
    let made = n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    n.step(
        "x applies",
        n.apply(k, "x", s(json!([parent("a.b/x", "one")])))
            .subresource("status"),
    )
    .await;
    n.step(
        "y applies, not forced",
        n.apply_gently(k, "y", s(json!([parent("a.b/y", "one")])))
            .subresource("status"),
    )
    .await;
    let only = n
        .step(
            "y applies",
            n.apply(k, "y", s(json!([parent("a.b/y", "one")])))
                .subresource("status"),
        )
        .await;
    n.show("status", &only.json["status"]);
    let merge = |parents: Value, version: &str| {
        let mut patch = json!({ "status": { "parents": parents } });
        if !version.is_empty() {
            patch["metadata"] = json!({ "resourceVersion": version });
        }
        patch
    };
    let both = json!([parent("a.b/y", "one"), parent("a.b/z", "two")]);
    n.step(
        "merge, stale",
        n.merge(k, "a", "z", merge(both.clone(), &made.version()))
            .subresource("status"),
    )
    .await;
    let next = n
        .step(
            "merge",
            n.merge(k, "a", "z", merge(both.clone(), &only.version()))
                .subresource("status"),
        )
        .await;
    n.step(
        "merge again",
        n.merge(k, "a", "z", merge(both.clone(), &next.version()))
            .subresource("status"),
    )
    .await;
    n.step(
        "merge without a version",
        n.merge(k, "a", "z", merge(json!([parent("a.b/z", "two")]), ""))
            .subresource("status"),
    )
    .await;
    n.step("no conditions", n.merge(k, "a", "z", json!({ "status": { "parents": [{ "parentRef": { "name": "gw" }, "controllerName": "a.b/c", "conditions": [] }] } })).subresource("status")).await;
    let mut twice = parent("a.b/z", "two");
    twice["conditions"] = json!([condition("A", "True"), condition("A", "False")]);
    n.step(
        "condition twice",
        n.merge(k, "a", "z", merge(json!([twice]), ""))
            .subresource("status"),
    )
    .await;
    n.step_brief(
        "controller name without slash",
        n.merge(k, "a", "z", merge(json!([parent("nobody", "two")]), ""))
            .subresource("status"),
    )
    .await;
    let mut untimed = parent("a.b/z", "two");
    untimed["conditions"][0]
        .as_object_mut()
        .map(|c| c.remove("lastTransitionTime"));
    n.step(
        "no time",
        n.merge(k, "a", "z", merge(json!([untimed]), ""))
            .subresource("status"),
    )
    .await;
    n.step(
        "absent",
        n.merge(k, "b", "z", merge(json!([]), "")).subresource("status"),
    )
    .await;
    n.step(
        "status by main is ignored",
        n.merge(k, "a", "z", merge(json!([]), "")),
    )
    .await;
    let mut late = parent("a.b/z", "two");
    late["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:01Z");
    n.step(
        "only the time",
        n.merge(k, "a", "z", merge(json!([late]), ""))
            .subresource("status"),
    )
    .await;
}

/// What writing entries beside those of others relies on.
async fn status_beside(n: &mut Notes, k: Kind) {
    let parent = |controller: &str, parent: Value, conditions: Value| json!({ "parentRef": parent, "controllerName": controller, "conditions": conditions });
    let accepted = || json!([condition("Accepted", "True")]);
    let patch = |version: &str, status: Value| json!({ "metadata": { "resourceVersion": version }, "status": status });
    let merge = |n: &Notes, manager: &str, version: &str, status: Value| {
        n.merge(k, "a", manager, patch(version, status))
            .subresource("status")
    };
    let made = n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    n.show("status at first", &made.json["status"]);
    let theirs = parent("a.b/they", json!({ "name": "gw" }), accepted());
    let first = n
        .step(
            "they write",
            merge(n, "they", &made.version(), json!({ "parents": [theirs] })),
        )
        .await;
    n.show("status", &first.json["status"]);
    let both = |live: &Value, ours: Value| {
        let mut list = live["status"]["parents"].as_array().cloned().unwrap_or_default();
        list.push(ours);
        json!({ "parents": list })
    };
    let ours = |conditions: Value| parent("a.b/we", json!({ "name": "gw", "port": 80 }), conditions);
    n.step(
        "we write on an old view",
        merge(n, "we", &made.version(), both(&first.json, ours(accepted()))),
    )
    .await;
    let second = n
        .step(
            "we write",
            merge(n, "we", &first.version(), both(&first.json, ours(accepted()))),
        )
        .await;
    n.show("status", &second.json["status"]);
    n.step(
        "the same on an old view",
        merge(n, "we", &first.version(), both(&first.json, ours(accepted()))),
    )
    .await;
    n.step(
        "the same",
        merge(n, "we", &second.version(), both(&first.json, ours(accepted()))),
    )
    .await;
    let mut foreign = condition("example.org/Policy", "True");
    foreign["lastTransitionTime"] = json!("2026-01-01T00:00:00.123456+00:00");
    let third = n
        .step(
            "a condition of somebody in our entry, twice the same entry",
            merge(n, "other", &second.version(), {
                let mut status = both(&first.json, ours(json!([foreign, condition("Accepted", "True")])));
                if let Some(list) = status["parents"].as_array_mut() {
                    list.push(ours(accepted()));
                }
                status
            }),
        )
        .await;
    n.show("status", &third.json["status"]);
    n.step(
        "an unknown field of an entry",
        merge(n, "we", &third.version(), {
            let mut odd = ours(accepted());
            odd["odd"] = json!(1);
            both(&first.json, odd)
        }),
    )
    .await;
    let live = n.send(n.get(k, "a")).await;
    n.show("status", &live.json["status"]);
    let many: Vec<Value> = (0..33)
        .map(|i| parent("a.b/we", json!({ "name": format!("gw{i}") }), accepted()))
        .collect();
    n.step_brief(
        "more than 32",
        merge(n, "we", &live.version(), json!({ "parents": many })),
    )
    .await;
    n.step_brief(
        "no list",
        merge(n, "we", &live.version(), json!({ "parents": null })),
    )
    .await;
    let empty = n
        .step(
            "an empty list",
            merge(n, "we", &live.version(), json!({ "parents": [] })),
        )
        .await;
    n.show("status", &empty.json["status"]);
    n.step(
        "an empty list again",
        merge(n, "we", &empty.version(), json!({ "parents": [] })),
    )
    .await;
    n.step(
        "finalizer and annotation in one patch",
        n.merge(
            k,
            "a",
            "we",
            json!({ "metadata": {
                "resourceVersion": empty.version(),
                "finalizers": ["example.org/f"], "annotations": { "example.org/a": "1", "example.org/absent": null },
            }}),
        ),
    )
    .await;
    let held = n.send(n.get(k, "a")).await;
    n.show("finalizers", &held.json["metadata"]["finalizers"]);
    n.show("annotations", &held.json["metadata"]["annotations"]);
    n.step(
        "both gone in one patch",
        n.merge(
            k,
            "a",
            "we",
            json!({ "metadata": {
                "resourceVersion": held.version(), "finalizers": [], "annotations": { "example.org/a": null },
            }}),
        ),
    )
    .await;
}

/// A status that is ours by the API: defaults stand in it, or what an earlier controller wrote.
async fn status_forced(n: &mut Notes, k: Kind) {
    let s = |status: Value| status_of(k, "a", status);
    let listener = |conditions: Value| json!({ "name": "http", "attachedRoutes": 1, "supportedKinds": [], "conditions": conditions });
    let made = n.step("made", n.apply(k, "rw", body(k, "a", 1))).await;
    n.show("status", &made.json["status"]);
    let ours = json!({
        "conditions": [condition("Accepted", "True"), condition("Programmed", "True")],
        "listeners": [listener(json!([condition("Accepted", "True"), condition("Programmed", "True")]))],
    });
    n.step(
        "the one before us, by PUT",
        n.put(
            k,
            "a",
            "before",
            meta(
                s(json!({
                    "conditions": [condition("Accepted", "False"), condition("Theirs", "True")],
                    "listeners": [listener(json!([condition("Accepted", "False"), condition("Theirs", "True")]))],
                })),
                json!({ "resourceVersion": made.version() }),
            ),
        )
        .subresource("status"),
    )
    .await;
    n.step_brief(
        "ours, not forced",
        n.apply_gently(k, "we", s(ours.clone())).subresource("status"),
    )
    .await;
    n.step(
        "ours, forced, on an old view",
        n.apply(
            k,
            "we",
            meta(s(ours.clone()), json!({ "resourceVersion": made.version() })),
        )
        .subresource("status"),
    )
    .await;
    let live = n.send(n.get(k, "a")).await;
    let first = n
        .step_brief(
            "ours, forced",
            n.apply(
                k,
                "we",
                meta(s(ours.clone()), json!({ "resourceVersion": live.version() })),
            )
            .subresource("status"),
        )
        .await;
    n.show("status", &first.json["status"]);
    let again = n
        .step_brief("ours again", n.apply(k, "we", s(ours)).subresource("status"))
        .await;
    n.show("version is the same", &json!(again.version() == first.version()));
    let fewer = n
        .step_brief(
            "fewer conditions",
            n.apply(
                k,
                "we",
                s(json!({
                    "conditions": [condition("Accepted", "True")],
                    "listeners": [listener(json!([condition("Accepted", "True")]))],
                })),
            )
            .subresource("status"),
        )
        .await;
    n.show("status", &fewer.json["status"]);
    // What another manager has in the entry holds it back, without what the schema requires of it.
    let none = s(json!({ "conditions": [condition("Accepted", "True")], "listeners": [] }));
    n.step_brief(
        "no listener",
        n.apply(k, "we", none.clone()).subresource("status"),
    )
    .await;
    let remove = json!([
        { "op": "replace", "path": "/metadata/resourceVersion", "value": fewer.version() },
        { "op": "remove", "path": "/status/listeners/0" },
    ]);
    let removed = n
        .step_brief(
            "the listener is removed",
            n.json_patch(k, "a", "we", remove).subresource("status"),
        )
        .await;
    n.show("listeners", &removed.json["status"]["listeners"]);
    n.step_brief("no listener again", n.apply(k, "we", none).subresource("status"))
        .await;
}

async fn status_builtin(n: &mut Notes, k: Kind) {
    let s = |ip: &str| status_of(k, "a", json!({ "loadBalancer": { "ingress": [{ "ip": ip }] } }));
    n.step("absent", n.apply(k, "lb", s("10.0.0.1")).subresource("status"))
        .await;
    n.step(
        "made, with a status",
        n.apply(k, "rw", with(body(k, "a", 1), s("10.0.0.9"))),
    )
    .await;
    n.step("applied", n.apply(k, "lb", s("10.0.0.1")).subresource("status"))
        .await;
    n.step(
        "applied again",
        n.apply(k, "lb", s("10.0.0.1")).subresource("status"),
    )
    .await;
    n.step(
        "wrong uid",
        n.apply(k, "lb", meta(s("10.0.0.2"), json!({ "uid": RANDOM_UID })))
            .subresource("status"),
    )
    .await;
    let merged = n.step("merge", n.merge(k, "a", "m", json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "h.example.org" }] } }, "spec": { "rules": [] } })).subresource("status")).await;
    n.show("status", &merged.json["status"]);
    n.step("spec change", n.apply(k, "rw", body(k, "a", 2))).await;
}

async fn list_kinds(n: &mut Notes, k: Kind) {
    let spec = |change: Value| with(body(k, "a", 1), json!({ "spec": change }));
    let x = n.step("x", n.apply(k, "x", spec(json!({
        "tags": ["1", "2"], "roles": ["r1", "r2"], "ports": [{ "name": "p1", "number": 1 }, { "name": "p2", "number": 2 }],
        "env": { "A": "1" }, "target": { "kind": "K", "name": "n" }, "free": { "deep": { "list": [1, { "a": 1 }] } },
    })))).await;
    n.show("spec", &x.json["spec"]);
    let y = n.step("y", n.apply(k, "y", spec(json!({
        "tags": ["3"], "roles": ["r3", "r1"], "ports": [{ "name": "p3", "number": 3 }, { "name": "p1", "number": 9 }],
        "env": { "B": "2" }, "target": { "kind": "K2" }, "free": { "deep": { "more": true } },
    })))).await;
    n.show("spec", &y.json["spec"]);
    let z = n
        .step(
            "x with less",
            n.apply(
                k,
                "x",
                spec(json!({ "roles": ["r2"], "ports": [{ "name": "p2" }] })),
            ),
        )
        .await;
    n.show("spec", &z.json["spec"]);
    let z = n.step("x with nothing", n.apply(k, "x", body(k, "a", 1))).await;
    n.show("spec", &z.json["spec"]);
    let z = n.step("y with nothing", n.apply(k, "y", body(k, "a", 1))).await;
    n.show("spec", &z.json["spec"]);
    n.step(
        "set with a duplicate",
        n.apply(k, "x", spec(json!({ "roles": ["r", "r"] }))),
    )
    .await;
    n.step(
        "POST, set with a duplicate",
        n.post(
            k,
            "x",
            with(
                spec(json!({ "roles": ["r", "r"] })),
                json!({ "metadata": { "name": "b" } }),
            ),
        ),
    )
    .await;
    n.step(
        "empty list",
        n.apply(k, "x", spec(json!({ "tags": [], "ports": [], "env": {} }))),
    )
    .await;
    let z = n
        .step(
            "empty list again",
            n.apply(k, "x", spec(json!({ "tags": [], "ports": [], "env": {} }))),
        )
        .await;
    n.show("spec", &z.json["spec"]);
}

fn owner(k: Kind, name: &str, uid: &str, controller: bool) -> Value {
    let mut out = json!({ "apiVersion": k.api_version, "kind": k.kind, "name": name, "uid": uid });
    if controller {
        out["controller"] = json!(true);
    }
    out
}

async fn owners(n: &mut Notes, k: Kind) {
    let one = n
        .send(n.post(CONFIG_MAP, "rw", body(CONFIG_MAP, "one", 1)))
        .await
        .uid();
    let two = n
        .send(n.post(CONFIG_MAP, "rw", body(CONFIG_MAP, "two", 1)))
        .await
        .uid();
    let child = |refs: Value| meta(body(k, "child", 1), json!({ "ownerReferences": refs }));
    n.step(
        "one controller",
        n.apply(k, "x", child(json!([owner(CONFIG_MAP, "one", &one, true)]))),
    )
    .await;
    n.step(
        "a second one",
        n.apply(k, "y", child(json!([owner(CONFIG_MAP, "two", &two, true)]))),
    )
    .await;
    let both = n
        .step(
            "a second owner",
            n.apply(k, "y", child(json!([owner(CONFIG_MAP, "two", &two, false)]))),
        )
        .await;
    n.note(format!(
        "owners: {}",
        both.json["metadata"]["ownerReferences"]
            .as_array()
            .map_or(0, Vec::len)
    ));
    n.step_brief(
        "incomplete",
        n.apply(
            k,
            "z",
            child(json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": two }])),
        ),
    )
    .await;
    let less = n.step("x lets go", n.apply(k, "x", body(k, "child", 1))).await;
    n.note(format!(
        "owners: {}",
        less.json["metadata"]["ownerReferences"]
            .as_array()
            .map_or(0, Vec::len)
    ));
}

async fn garbage(n: &mut Notes, k: Kind) {
    let child = |name: &str, refs: Value| meta(body(k, name, 1), json!({ "ownerReferences": refs }));
    let policy = |p: &str| json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": p });
    let gone = |seen: &super::notes::Seen| seen.code == 404;
    for p in ["Background", "Foreground", "Orphan"] {
        let uid = n.send(n.apply(k, "rw", body(k, "owner", 1))).await.uid();
        n.send(n.apply(k, "rw", child("child", json!([owner(k, "owner", &uid, true)]))))
            .await;
        let deleted = n.send(n.delete(k, "owner", policy(p))).await;
        n.note(format!("{p} -> {} {}", deleted.code, deleted.json["kind"]));
        n.until("owner gone", n.get(k, "owner"), gone).await;
        if p == "Orphan" {
            let free = n
                .until("child free", n.get(k, "child"), |s| {
                    s.json["metadata"]["ownerReferences"].is_null()
                })
                .await;
            n.show("child's owners", &free.json["metadata"]["ownerReferences"]);
            n.step("child", n.get(k, "child")).await;
            n.send(n.delete(k, "child", Value::Null)).await;
        } else {
            n.until("child gone", n.get(k, "child"), gone).await;
        }
    }
    n.send(n.apply(
        k,
        "rw",
        child("late", json!([owner(k, "owner", RANDOM_UID, true)])),
    ))
    .await;
    n.until("child of an absent owner gone", n.get(k, "late"), gone)
        .await;
    let one = n.send(n.apply(k, "rw", body(k, "one", 1))).await.uid();
    let two = n.send(n.apply(k, "rw", body(k, "two", 1))).await.uid();
    n.send(n.apply(
        k,
        "rw",
        child(
            "shared",
            json!([owner(k, "one", &one, true), owner(k, "two", &two, false)]),
        ),
    ))
    .await;
    n.send(n.delete(k, "one", Value::Null)).await;
    let left = n
        .until("one owner left", n.get(k, "shared"), |s| {
            s.json["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)
        })
        .await;
    n.note(format!(
        "left: {}",
        left.json["metadata"]["ownerReferences"][0]["name"]
    ));
    n.send(n.delete(k, "two", Value::Null)).await;
    n.until("shared child gone", n.get(k, "shared"), gone).await;
    n.send(n.apply(k, "rw", child("strange", json!([{ "apiVersion": "nonsense.example.org/v1", "kind": "Nonsense", "name": "x", "uid": RANDOM_UID }])))).await;
    let child_of_two = n.send(n.apply(k, "rw", body(k, "two", 1))).await.uid();
    let held = meta(
        child("held", json!([owner(k, "two", &child_of_two, true)])),
        json!({ "finalizers": ["conformity.dev/a"] }),
    );
    n.send(n.apply(k, "rw", held)).await;
    n.send(n.delete(k, "two", Value::Null)).await;
    n.until("held child terminates", n.get(k, "held"), |s| {
        !s.json["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    let elsewhere = "/api/v1/namespaces/default/configmaps".to_owned();
    let far = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "conformity-far" } });
    let far = n
        .send(Ask::new(Method::POST, elsewhere.clone()).body(far))
        .await
        .uid();
    let made = n
        .send(n.apply(
            k,
            "rw",
            child("abroad", json!([owner(k, "conformity-far", &far, true)])),
        ))
        .await;
    n.note(format!("owner in another namespace -> {}", made.code));
    n.until(
        "child of an owner in another namespace gone",
        n.get(k, "abroad"),
        gone,
    )
    .await;
    n.send(Ask::new(Method::DELETE, format!("{elsewhere}/conformity-far")))
        .await;
    n.step_brief("child of an owner of no served kind stays", n.get(k, "strange"))
        .await;
}

async fn namespaces(n: &mut Notes, k: Kind) {
    let name = format!("{}-{}", n.namespace(), k.plural);
    let path = format!("/api/v1/namespaces/{name}");
    let body_of =
        |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let made = n
        .send(Ask::new(Method::POST, "/api/v1/namespaces").body(body_of(&name)))
        .await;
    n.show("spec", &made.json["spec"]);
    n.show("status", &made.json["status"]);
    n.show("labels", &made.json["metadata"]["labels"]);
    n.step(
        "POST again",
        Ask::new(Method::POST, "/api/v1/namespaces").body(body_of(&name)),
    )
    .await;
    let inside = n.path_in(k, &name, "");
    let held = meta(body(k, "held", 1), json!({ "finalizers": ["conformity.dev/a"] }));
    n.send(Ask::new(Method::POST, inside.clone()).body(held)).await;
    let deleted = n.send(Ask::new(Method::DELETE, path.clone())).await;
    n.note(format!(
        "deleted -> {} {} {}",
        deleted.code, deleted.json["kind"], deleted.json["status"]["phase"]
    ));
    n.until("terminating", Ask::new(Method::GET, path.clone()), |s| {
        s.json["status"]["phase"] == "Terminating"
    })
    .await;
    n.step(
        "POST inside",
        Ask::new(Method::POST, inside.clone()).body(body(k, "late", 1)),
    )
    .await;
    let apply = n.apply(k, "rw", body(k, "late", 1)).at(format!("{inside}/late"));
    n.step("apply inside", apply).await;
    n.until(
        "content terminates",
        Ask::new(Method::GET, format!("{inside}/held")),
        |s| !s.json["metadata"]["deletionTimestamp"].is_null(),
    )
    .await;
    let free = n
        .merge(k, "held", "rw", json!({ "metadata": { "finalizers": null } }))
        .at(format!("{inside}/held"));
    let freed = n.send(free).await;
    n.note(format!("content freed -> {}", freed.code));
    n.until("namespace gone", Ask::new(Method::GET, path), |s| s.code == 404)
        .await;
}

async fn unserved(n: &mut Notes, k: Kind) {
    n.step("GET", n.get(k, "a")).await;
    n.step("LIST", n.list(k)).await;
    n.step("POST", n.post(k, "rw", body(k, "a", 1))).await;
    n.step("apply", n.apply(k, "rw", body(k, "a", 1))).await;
    n.step("DELETE", n.delete(k, "a", Value::Null)).await;
    n.step(
        "other version",
        Ask::new(Method::GET, "/apis/conformity.reconcile-kit.dev/v2/widgets"),
    )
    .await;
    n.step(
        "other group",
        Ask::new(Method::GET, "/apis/nonsense.reconcile-kit.dev/v1/widgets"),
    )
    .await;
    n.step(
        "discovery of the version",
        Ask::new(Method::GET, "/apis/conformity.reconcile-kit.dev/v2"),
    )
    .await;
    n.step(
        "discovery of the group",
        Ask::new(Method::GET, "/apis/nonsense.reconcile-kit.dev"),
    )
    .await;
    let mut watch = n.watch(n.list(k)).await;
    n.events("WATCH", &mut watch, 1).await;
}

async fn crd_lifecycle(n: &mut Notes, k: Kind) {
    let path = format!("{CRDS}/gadgets.conformity.reconcile-kit.dev");
    let get = || Ask::new(Method::GET, path.clone());
    let established = |seen: &super::notes::Seen| {
        seen.json["status"]["conditions"].as_array().is_some_and(|c| {
            c.iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
        })
    };
    let made = n
        .send(
            Ask::new(Method::POST, CRDS)
                .param("fieldManager", "rw")
                .body(gadget_crd()),
        )
        .await;
    n.note(format!("POST -> {}", made.code));
    let crd = n.until("established", get(), established).await;
    for c in crd.json["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default()
    {
        n.note(format!(
            "condition {} {} {} {}",
            c["type"], c["status"], c["reason"], c["message"]
        ));
    }
    n.show("accepted names", &crd.json["status"]["acceptedNames"]);
    n.show("stored versions", &crd.json["status"]["storedVersions"]);
    n.until("served", n.list(k), |s| s.code == 200).await;
    n.until(
        "discovered",
        Ask::new(Method::GET, "/apis/conformity.reconcile-kit.dev/v1"),
        |s| s.json.to_string().contains("gadgets/status"),
    )
    .await;
    n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    n.send(n.apply(k, "rw", body(k, "b", 1))).await;
    let start = n.send(n.list(k)).await.version();
    let from = |n: &Notes| {
        n.list(k)
            .param("resourceVersion", &start)
            .param("timeoutSeconds", "50")
    };
    let mut plain = n.watch(from(n)).await;
    let mut partial = n.watch(from(n).metadata_only(false)).await;
    let deleted = n.send(Ask::new(Method::DELETE, path.clone())).await;
    n.note(format!("deleted -> {} {}", deleted.code, deleted.json["kind"]));
    n.events("watch", &mut plain, 3).await;
    n.events("watch of metadata", &mut partial, 3).await;
    n.until("not served", n.list(k), |s| {
        s.code == 404 && s.json["text"] == "404 page not found\n"
    })
    .await;
    n.until("gone", get(), |s| s.code == 404).await;
    n.step("CRD GET", get()).await;

    n.send(Ask::new(Method::POST, CRDS).body(gadget_crd())).await;
    n.until("established anew", get(), established).await;
    n.until("served anew", n.list(k), |s| s.code == 200).await;
    let mut old = n.watch(from(n)).await;
    n.events_brief("watch from before", &mut old, 2).await;
    n.send(n.apply(
        k,
        "rw",
        meta(body(k, "held", 1), json!({ "finalizers": ["conformity.dev/a"] })),
    ))
    .await;
    n.send(Ask::new(Method::DELETE, path.clone())).await;
    let ending = |seen: &super::notes::Seen| {
        seen.json["status"]["conditions"].as_array().is_some_and(|c| {
            c.iter()
                .any(|c| c["type"] == "Terminating" && c["status"] == "True")
        })
    };
    let crd = n.until("CRD terminating", get(), ending).await;
    n.note(format!("still established: {}", established(&crd)));
    n.until("instance terminating", n.get(k, "held"), |s| {
        !s.json["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    n.step_brief("LIST", n.list(k)).await;
    n.until("POST refused", n.post(k, "rw", body(k, "late", 1)), |s| {
        s.code != 201
    })
    .await;
    n.step("POST", n.post(k, "rw", body(k, "late", 1))).await;
    n.step("apply", n.apply(k, "rw", body(k, "late", 1))).await;
    n.step_brief(
        "edit of an existing one",
        n.merge(k, "held", "rw", json!({ "metadata": { "labels": { "a": "1" } } })),
    )
    .await;
    n.step_brief(
        "freed",
        n.merge(k, "held", "rw", json!({ "metadata": { "finalizers": null } })),
    )
    .await;
    n.until("CRD gone", get(), |s| s.code == 404).await;
    n.until("kind gone", n.list(k), |s| s.code == 404).await;
}

async fn crd_changes(n: &mut Notes, k: Kind) {
    let path = format!("{CRDS}/gadgets.conformity.reconcile-kit.dev");
    let change = |n: &Notes, patch: Value| n.merge(k, "", "rw", patch).at(path.clone());
    n.until("no CRD from before", Ask::new(Method::GET, path.clone()), |s| {
        s.code == 404
    })
    .await;
    let mut crd = gadget_crd();
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v1beta1");
    second["storage"] = json!(false);
    crd["spec"]["versions"] = json!([crd["spec"]["versions"][0], second]);
    n.send(Ask::new(Method::POST, CRDS).body(crd.clone())).await;
    n.until("served", n.list(k), |s| s.code == 200).await;
    let beta = Kind {
        api_version: "conformity.reconcile-kit.dev/v1beta1",
        ..k
    };
    n.until("served as beta", n.list(beta), |s| s.code == 200).await;
    n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    let seen = n.send(n.get(beta, "a")).await;
    n.note(format!("read as {}", seen.json["apiVersion"]));
    n.step("applied as beta", n.apply(beta, "rw", body(beta, "a", 1)))
        .await;

    let version = n.send(n.list(k)).await.version();
    let mut stream = n
        .watch(
            n.list(k)
                .param("resourceVersion", &version)
                .param("timeoutSeconds", "50"),
        )
        .await;
    n.send(change(n, json!({ "metadata": { "labels": { "a": "1" } } })))
        .await;
    n.send(n.apply(k, "rw", body(k, "b", 1))).await;
    n.events("a label on the CRD leaves watches alone", &mut stream, 1)
        .await;
    crd["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }]);
    let changed = n
        .send(change(
            n,
            json!({ "spec": { "versions": crd["spec"]["versions"] } }),
        ))
        .await;
    n.note(format!("column added -> {}", changed.code));
    n.events("watch", &mut stream, 1).await;
    n.until("listed again", n.list(k), |s| s.code == 200).await;
    let mut old = n
        .watch(
            n.list(k)
                .param("resourceVersion", &version)
                .param("timeoutSeconds", "5"),
        )
        .await;
    n.events_brief("watch from before", &mut old, 2).await;

    let version = n.send(n.list(k)).await.version();
    let mut stream = n
        .watch(
            n.list(beta)
                .param("resourceVersion", &version)
                .param("timeoutSeconds", "50"),
        )
        .await;
    crd["spec"]["versions"][1]["served"] = json!(false);
    let changed = n
        .send(change(
            n,
            json!({ "spec": { "versions": crd["spec"]["versions"] } }),
        ))
        .await;
    n.note(format!("beta off -> {}", changed.code));
    n.events("watch of beta", &mut stream, 1).await;
    n.until("beta not served", n.list(beta), |s| s.code == 404).await;
    n.until("v1 still served", n.list(k), |s| s.code == 200).await;
    n.step_brief("the object is there", n.get(k, "a")).await;
    n.send(Ask::new(Method::DELETE, path.clone())).await;
    n.until("CRD gone", Ask::new(Method::GET, path.clone()), |s| s.code == 404)
        .await;
    n.until("kind gone", n.list(k), |s| s.code == 404).await;
}

async fn secrets(n: &mut Notes, k: Kind) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" },
        "stringData": { "user": "u" }, "data": { "token": "dA==" },
    });
    let made = n.step("POST", n.post(k, "rw", secret)).await;
    n.show("data", &made.json["data"]);
    n.show("type", &made.json["type"]);
    let applied = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "b" }, "data": { "token": "dA==" } });
    n.step("apply", n.apply(k, "rw", applied.clone())).await;
    n.step("apply again", n.apply(k, "rw", applied)).await;
}

async fn route_defaults(n: &mut Notes, k: Kind) {
    let route = |name: &str, spec: Value| with(body(k, name, 1), json!({ "spec": null })).merge_spec(spec);
    let empty = n.step("empty", n.apply(k, "rw", route("a", json!({})))).await;
    n.show("spec", &empty.json["spec"]);
    let full = json!({
        "parentRefs": [{ "name": "gw" }],
        "rules": [
            { "backendRefs": [{ "name": "s", "port": 80, "filters": [{ "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "m", "port": 80 } } }] }] },
            { "matches": [{ "headers": [{ "name": "h", "value": "v" }], "queryParams": [{ "name": "q", "value": "v" }] }, { "path": { "value": "/x" } }, { "path": { "type": "Exact" } }] },
            { "filters": [{ "type": "RequestRedirect", "requestRedirect": { "hostname": "other.example.org" } }] },
            { "filters": [{ "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "m", "port": 80 }, "fraction": { "numerator": 1 } } }] },
        ],
    });
    let seen = n.step("many", n.apply(k, "rw", route("b", full.clone()))).await;
    n.show("spec", &seen.json["spec"]);
    n.step("many again", n.apply(k, "rw", route("b", full))).await;
    let sparse = json!({ "hostnames": [], "rules": [{ "filters": [], "timeouts": {}, "backendRefs": [] }] });
    n.step("empty parts", n.apply(k, "rw", route("c", sparse.clone())))
        .await;
    let seen = n
        .step("empty parts again", n.apply(k, "rw", route("c", sparse)))
        .await;
    n.show("spec", &seen.json["spec"]);
}

trait MergeSpec {
    fn merge_spec(self, spec: Value) -> Value;
}

impl MergeSpec for Value {
    fn merge_spec(mut self, spec: Value) -> Value {
        self["spec"] = spec;
        self
    }
}

async fn route_validation(n: &mut Notes, k: Kind) {
    let hosts = |count: usize| {
        (0..count)
            .map(|i| format!("h{i}.example.org"))
            .collect::<Vec<_>>()
    };
    let parents = |count: usize| {
        (0..count)
            .map(|i| json!({ "name": format!("gw{i}") }))
            .collect::<Vec<_>>()
    };
    for (label, spec) in [
        (
            "parent twice",
            json!({ "parentRefs": [{ "name": "gw" }, { "name": "gw" }] }),
        ),
        (
            "parent with and without section",
            json!({ "parentRefs": [{ "name": "gw" }, { "name": "gw", "sectionName": "s" }] }),
        ),
        ("17 hostnames", json!({ "hostnames": hosts(17) })),
        ("33 parents", json!({ "parentRefs": parents(33) })),
        ("no rules", json!({ "rules": [] })),
        (
            "service without port",
            json!({ "rules": [{ "backendRefs": [{ "name": "s" }] }] }),
        ),
        (
            "relative path",
            json!({ "rules": [{ "matches": [{ "path": { "value": "x" } }] }] }),
        ),
        (
            "unknown filter",
            json!({ "rules": [{ "filters": [{ "type": "Nonsense" }] }] }),
        ),
        ("null hostnames", json!({ "hostnames": null })),
    ] {
        n.step(label, n.apply(k, "rw", body(k, "a", 1).merge_spec(spec)))
            .await;
    }
    for (label, spec) in [
        ("upper case hostname", json!({ "hostnames": ["A.example.org"] })),
        ("hostname with port", json!({ "hostnames": ["a.example.org:80"] })),
        ("hostname with address", json!({ "hostnames": ["10.0.0.1"] })),
        (
            "hostname twice",
            json!({ "hostnames": ["a.example.org", "a.example.org"] }),
        ),
        ("unknown field in a rule", json!({ "rules": [{ "nonsense": 1 }] })),
        ("number as name", json!({ "parentRefs": [{ "name": 5 }] })),
    ] {
        n.step_brief(label, n.apply(k, "rw", body(k, "a", 1).merge_spec(spec)))
            .await;
    }
}

async fn ingress_validation(n: &mut Notes, k: Kind) {
    let rule = |host: &str, path: Value| json!({ "rules": [{ "host": host, "http": { "paths": [path] } }] });
    let path = |path: &str, kind: &str| json!({ "path": path, "pathType": kind, "backend": { "service": { "name": "s", "port": { "number": 80 } } } });
    let good = path("/", "Prefix");
    for (label, spec) in [
        ("upper case host", rule("A.example.org", good.clone())),
        ("address as host", rule("10.0.0.1", good.clone())),
        ("relative path", rule("a.example.org", path("x", "Prefix"))),
        ("unknown path type", rule("a.example.org", path("/", "Nonsense"))),
        (
            "empty class",
            json!({ "ingressClassName": "", "rules": [{ "host": "a.example.org" }] }),
        ),
        ("nothing at all", json!({ "ingressClassName": "c" })),
        (
            "bad tls host",
            json!({ "tls": [{ "hosts": ["A.example.org"] }], "rules": [{ "host": "a.example.org" }] }),
        ),
    ] {
        n.step_brief(label, n.apply(k, "rw", body(k, "a", 1).merge_spec(spec)))
            .await;
    }
    let mut untyped = path("/", "Prefix");
    untyped.as_object_mut().map(|p| p.remove("pathType"));
    n.step(
        "no path type",
        n.apply(
            k,
            "rw",
            body(k, "a", 1).merge_spec(rule("a.example.org", untyped)),
        ),
    )
    .await;
    let classed = meta(
        body(k, "a", 1),
        json!({ "annotations": { "kubernetes.io/ingress.class": "x" } }),
    );
    n.step_brief(
        "class annotation and other class name",
        n.apply(
            k,
            "rw",
            with(classed, json!({ "spec": { "ingressClassName": "y" } })),
        ),
    )
    .await;
    n.step_brief(
        "annotations too large",
        n.apply(
            k,
            "rw",
            meta(
                body(k, "a", 1),
                json!({ "annotations": { "a": "x".repeat(262_145) } }),
            ),
        ),
    )
    .await;
    let twice = json!({ "rules": [{ "host": "a.example.org" }, { "host": "a.example.org" }] });
    n.step("host twice", n.apply(k, "rw", body(k, "b", 1).merge_spec(twice)))
        .await;
    n.step(
        "tls null",
        n.apply(k, "rw", with(body(k, "c", 1), json!({ "spec": { "tls": null } }))),
    )
    .await;
    n.step(
        "tls null again",
        n.apply(k, "rw", with(body(k, "c", 1), json!({ "spec": { "tls": null } }))),
    )
    .await;
    n.step(
        "tls empty",
        n.apply(k, "rw", with(body(k, "c", 1), json!({ "spec": { "tls": [] } }))),
    )
    .await;
    n.step(
        "unknown field in spec",
        n.apply(
            k,
            "rw",
            with(body(k, "d", 1), json!({ "spec": { "nonsense": 1 } })),
        ),
    )
    .await;
    n.step(
        "wrong type in spec",
        n.apply(
            k,
            "rw",
            with(body(k, "d", 1), json!({ "spec": { "ingressClassName": 5 } })),
        ),
    )
    .await;
    n.step_brief(
        "POST, wrong type in spec",
        n.post(
            k,
            "rw",
            with(body(k, "d", 1), json!({ "spec": { "ingressClassName": 5 } })),
        ),
    )
    .await;
    n.step_brief(
        "POST, unknown field in spec",
        n.post(
            k,
            "rw",
            with(body(k, "d", 1), json!({ "spec": { "nonsense": 1 } })),
        ),
    )
    .await;
}

async fn leases_and_events(n: &mut Notes, k: Kind) {
    n.step("PUT creates", n.put(k, "a", "rw", body(k, "a", 1))).await;
    n.step("PUT without a version", n.put(k, "a", "rw", body(k, "a", 2)))
        .await;
    let live = n.send(n.get(k, "a")).await;
    n.step(
        "PUT",
        n.put(
            k,
            "a",
            "rw",
            meta(body(k, "a", 2), json!({ "resourceVersion": live.version() })),
        ),
    )
    .await;
    n.step(
        "apply",
        n.apply(
            k,
            "op",
            with(
                body(k, "b", 1),
                json!({ "spec": { "renewTime": "2026-01-01T00:00:00.000000Z" } }),
            ),
        ),
    )
    .await;
    n.step(
        "apply again",
        n.apply(
            k,
            "op",
            with(
                body(k, "b", 1),
                json!({ "spec": { "renewTime": "2026-01-01T00:00:00.000000Z" } }),
            ),
        ),
    )
    .await;
    n.step(
        "apply renewed",
        n.apply(
            k,
            "op",
            with(
                body(k, "b", 1),
                json!({ "spec": { "renewTime": "2026-01-01T00:00:01.000000Z" } }),
            ),
        ),
    )
    .await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "conformity.dev/c", "reportingInstance": "i",
        "action": "Test", "reason": "Test", "type": "Normal", "note": "hello",
        "regarding": { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": n.namespace() },
    });
    n.step_brief("event", n.post(EVENT, "rw", event)).await;
    let series = json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" } });
    n.step_brief("event series", n.merge(EVENT, "e", "rw", series))
        .await;
}

async fn dry_run(n: &mut Notes, k: Kind) {
    n.step_brief("apply", n.apply(k, "rw", body(k, "a", 1)).param("dryRun", "All"))
        .await;
    n.step_brief("not there", n.get(k, "a")).await;
    n.send(n.apply(k, "rw", body(k, "a", 1))).await;
    let seen = n
        .send(
            n.merge(k, "a", "rw", json!({ "metadata": { "labels": { "a": "1" } } }))
                .param("dryRun", "All"),
        )
        .await;
    n.show("patched", &seen.json["metadata"]["labels"]);
    let live = n.send(n.get(k, "a")).await;
    n.show("live", &live.json["metadata"]["labels"]);
    n.step_brief("DELETE", n.delete(k, "a", Value::Null).param("dryRun", "All"))
        .await;
    n.step_brief("still there", n.get(k, "a")).await;
}

async fn delete_collection(n: &mut Notes, k: Kind) {
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        n.send(n.apply(
            k,
            "rw",
            meta(body(k, name, 1), json!({ "labels": { "g": label } })),
        ))
        .await;
    }
    let all = Ask::new(Method::DELETE, n.path(k, "")).param("labelSelector", "g=1");
    let seen = n.send(all).await;
    n.note(format!("-> {} {}", seen.code, seen.json["kind"]));
    n.show("deleted", &names(&seen.json));
    let left = n.send(n.list(k).param("labelSelector", "g")).await;
    n.show("left", &names(&left.json));
}

async fn discovery(n: &mut Notes, _: Kind) {
    let group = n
        .send(Ask::new(Method::GET, "/apis/conformity.reconcile-kit.dev"))
        .await;
    n.show("group", &group.json);
    let version = n
        .send(Ask::new(Method::GET, "/apis/conformity.reconcile-kit.dev/v1"))
        .await;
    for resource in version.json["resources"].as_array().cloned().unwrap_or_default() {
        let mut resource = resource;
        if let Some(fields) = resource.as_object_mut() {
            fields.remove("storageVersionHash");
            if let Some(verbs) = fields.get_mut("verbs").and_then(Value::as_array_mut) {
                verbs.sort_by_key(Value::to_string);
            }
        }
        n.show("resource", &resource);
    }
    n.note(format!(
        "{} {}",
        version.json["kind"], version.json["groupVersion"]
    ));
    let groups = n.send(Ask::new(Method::GET, "/apis")).await;
    let listed = groups.json["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|g| g["name"] == "conformity.reconcile-kit.dev");
    n.note(format!("{} lists it: {listed}", groups.json["kind"]));
    let core = n.send(Ask::new(Method::GET, "/api")).await;
    n.note(format!("{} {}", core.json["kind"], core.json["versions"]));
    let aggregated = n.send(Ask::new(Method::GET, "/apis").aggregated()).await;
    n.note(format!(
        "{} {}",
        aggregated.json["kind"], aggregated.json["apiVersion"]
    ));
    for item in aggregated.json["items"].as_array().cloned().unwrap_or_default() {
        if item["metadata"]["name"] != "conformity.reconcile-kit.dev" {
            continue;
        }
        let resource = &item["versions"][0]["resources"][0];
        for part in ["resource", "responseKind", "scope", "singularResource"] {
            n.show(part, &resource[part]);
        }
        n.show("subresource", &resource["subresources"][0]["subresource"]);
        n.show("freshness", &item["versions"][0]["freshness"]);
    }
    let version = n.send(Ask::new(Method::GET, "/version")).await;
    n.note(format!("version {}", version.json["major"]));
    for path in ["/healthz", "/livez", "/readyz"] {
        let seen = n.send(Ask::new(Method::GET, path)).await;
        n.show(path, &seen.json);
    }
    n.step("unknown path", Ask::new(Method::GET, "/nonsense")).await;
}

async fn rbac(n: &mut Notes, k: Kind) {
    n.step("GET", n.get(k, "a").on_behalf_of(NOBODY)).await;
    n.step("LIST", n.list(k).on_behalf_of(NOBODY)).await;
    let everywhere = Ask::new(
        Method::GET,
        n.path(k, "")
            .replace(&format!("/namespaces/{}", n.namespace()), ""),
    );
    n.step("LIST everywhere", everywhere.on_behalf_of(NOBODY)).await;
    n.step("WATCH", n.list(k).param("watch", "true").on_behalf_of(NOBODY))
        .await;
    n.step("POST", n.post(k, "rw", body(k, "a", 1)).on_behalf_of(NOBODY))
        .await;
    n.step("apply", n.apply(k, "rw", body(k, "a", 1)).on_behalf_of(NOBODY))
        .await;
    n.step("PUT", n.put(k, "a", "rw", body(k, "a", 1)).on_behalf_of(NOBODY))
        .await;
    n.step(
        "status",
        n.merge(k, "a", "rw", json!({}))
            .subresource("status")
            .on_behalf_of(NOBODY),
    )
    .await;
    n.step("DELETE", n.delete(k, "a", Value::Null).on_behalf_of(NOBODY))
        .await;
    n.step(
        "DELETE of a collection",
        Ask::new(Method::DELETE, n.path(k, "")).on_behalf_of(NOBODY),
    )
    .await;
    n.step("a kind that is not served", n.list(GADGET).on_behalf_of(NOBODY))
        .await;
    n.step_brief("discovery", Ask::new(Method::GET, "/apis").on_behalf_of(NOBODY))
        .await;
}
