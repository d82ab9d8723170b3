//! Exposure: rows, children, invariants.

use serde_json::{Value, json};

use super::*;

fn cluster() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "garage"},
        "spec": {"storage": {}, "webApi": {"rootDomain": ".site.test"}}, "status": {"phase": "Running"},
    })
}

fn said(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "WebsiteExposed", "status": status, "reason": reason, "message": message, "observedGeneration": 2}])
}

fn bucket(exposure: Value, status: Value) -> Value {
    let mut bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog", "uid": "u-1", "generation": 2},
        "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true}},
        "status": {"bucketId": "b1", "globalAlias": "blog"},
    });
    if !exposure.is_null() {
        bucket["spec"]["websiteExposure"] = exposure;
    }
    for (field, value) in status.as_object().unwrap() {
        bucket["status"][field] = value.clone();
    }
    bucket
}

fn child(kind: &str, group: &str, component: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": format!("{group}/v1"), "kind": kind,
        "metadata": {
            "namespace": "web", "name": "blog-website", "uid": "i-1", "generation": 3,
            "labels": {
                "app.kubernetes.io/managed-by": "routewright", "app.kubernetes.io/instance": "one",
                "app.kubernetes.io/component": component, "routewright.dev/bucket": "blog", "mine": "yes",
            },
            "annotations": {"routewright.dev/applied-hash": "x"},
            "ownerReferences": [{"apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "name": "blog",
                                 "uid": "u-1", "controller": true}],
        },
        "spec": spec, "status": status,
    })
}

fn by_ingress() -> Snapshot {
    let exposure =
        json!({"ingress": {"ingressClassName": "public", "tlsSecretName": "tls", "labels": {"mine": "yes"}}});
    let status = json!({
        "conditions": said("True", "Exposed", "Ingress web/blog-website"),
        "websiteExposure": {"type": "Ingress", "name": "blog-website", "hostnames": ["blog.site.test"],
                            "addresses": ["192.0.2.1"]},
    });
    let spec = json!({
        "ingressClassName": "public",
        "tls": [{"hosts": ["blog.site.test"], "secretName": "tls"}],
        "rules": [{"host": "blog.site.test", "http": {"paths": [
            {"path": "/.well-known/acme-challenge/x", "pathType": "Exact", "backend": {"service": {"name": "solver", "port": {"number": 1}}}},
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "garage", "port": {"name": "web"}}}}]}}],
    });
    let live = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let ingress = child("Ingress", "networking.k8s.io", "ingress-exposure", spec, live);
    world(vec![cluster(), bucket(exposure, status), ingress])
}

fn by_route() -> Snapshot {
    let exposure = json!({"hostnames": ["www.example.org", "blog.site.test"],
                          "gateway": {"parentRefs": [{"name": "public", "sectionName": "http"}]}});
    let status = json!({
        "conditions": said("True", "Exposed", "HTTPRoute web/blog-website"),
        "websiteExposure": {"type": "HTTPRoute", "name": "blog-website",
            "hostnames": ["www.example.org", "blog.site.test"],
            "parents": [{"parent": "web/public", "sectionName": "http", "accepted": true, "resolvedRefs": true, "ready": true}]},
    });
    let spec = json!({
        "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "namespace": "web", "sectionName": "http"}],
        "hostnames": ["www.example.org", "blog.site.test"],
        "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "blog.site.test"}}],
            "backendRefs": [{"group": "", "kind": "Service", "name": "garage", "port": 3902, "weight": 1}],
        }],
    });
    let good =
        |type_: &str| json!({"type": type_, "status": "True", "reason": type_, "observedGeneration": 3});
    let live = json!({"parents": [{
        "controllerName": "example.org/another", "parentRef": {"name": "public", "sectionName": "http"},
        "conditions": [good("Accepted"), good("ResolvedRefs")],
    }]});
    let route = child(
        "HTTPRoute",
        "gateway.networking.k8s.io",
        "httproute-exposure",
        spec,
        live,
    );
    world(vec![cluster(), bucket(exposure, status), route])
}

#[test]
fn exposed_buckets_are_right() {
    let rules = [
        "exposure.spec",
        "exposure.metadata",
        "exposure.owner",
        "exposure.condition",
        "exposure.block",
        "exposure.I1",
        "exposure.I2",
        "exposure.I5",
        "exposure.removed",
        "exposure.orphan",
    ];
    right(&by_ingress(), &rules);
    right(&by_route(), &rules);
}

#[test]
fn every_wrong_ingress_is_found() {
    each_is_found(
        by_ingress,
        &[
            ("exposure.spec", |s| {
                set(
                    s,
                    "Ingress",
                    "blog-website",
                    "/spec/defaultBackend",
                    json!({"service": {"name": "x"}}),
                )
            }),
            ("exposure.I1", |s| {
                set(
                    s,
                    "Ingress",
                    "blog-website",
                    "/spec/defaultBackend",
                    json!({"service": {"name": "x"}}),
                )
            }),
            ("exposure.I1", |s| {
                set(s, "Ingress", "blog-website", "/spec/rules", json!([]))
            }),
            ("exposure.spec", |s| {
                set(
                    s,
                    "Ingress",
                    "blog-website",
                    "/spec/rules/0/host",
                    json!("other.site.test"),
                )
            }),
            ("exposure.spec", |s| {
                set(s, "Ingress", "blog-website", "/spec/tls", Value::Null)
            }),
            ("exposure.spec", |s| {
                set(s, "GarageCluster", "garage", "/spec/gateway", json!({}))
            }),
            ("exposure.spec", |s| {
                set(
                    s,
                    "GarageCluster",
                    "garage",
                    "/spec/webApi/rootDomain",
                    json!(".other.test"),
                )
            }),
            ("exposure.metadata", |s| {
                set(s, "Ingress", "blog-website", "/metadata/labels/mine", json!("no"))
            }),
            ("exposure.owner", |s| {
                set(
                    s,
                    "Ingress",
                    "blog-website",
                    "/metadata/ownerReferences/0/blockOwnerDeletion",
                    json!(true),
                )
            }),
            ("exposure.child", |s| remove(s, "Ingress", "blog-website")),
            ("exposure.block", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/status/websiteExposure/addresses",
                    json!([]),
                )
            }),
            ("exposure.condition", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/status/conditions/0/observedGeneration",
                    json!(1),
                )
            }),
            ("exposure.condition", |s| {
                set(s, "GarageBucket", "blog", "/status/conditions", json!([]))
            }),
            ("exposure.unset", |s| {
                set(s, "GarageBucket", "blog", "/spec/websiteExposure", Value::Null)
            }),
            ("exposure.removed", |s| {
                set(s, "GarageBucket", "blog", "/spec/websiteExposure", Value::Null)
            }),
            ("exposure.removed", |s| {
                set(s, "GarageBucket", "blog", "/spec/website/enabled", json!(false))
            }),
            ("exposure.removed", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/spec/websiteExposure",
                    json!({"gateway": {"parentRefs": [{"name": "g"}]}}),
                )
            }),
            ("exposure.orphan", |s| remove(s, "GarageBucket", "blog")),
            ("exposure.I5", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/metadata/managedFields",
                    json!([
            {"manager": "routewright-website-exposure", "fieldsV1": {"f:status": {"f:websiteUrl": {}}}}]),
                )
            }),
            ("exposure.I2", |s| {
                s.objects.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "web", "name": "x",
            "labels": {"app.kubernetes.io/managed-by": "routewright", "app.kubernetes.io/component": "ingress-exposure"}}}))
            }),
            ("exposure.I2", |s| {
                set(s, "Ingress", "blog-website", "/metadata/name", json!("other"))
            }),
            ("exposure.adopt", |s| {
                set(
                    s,
                    "Ingress",
                    "blog-website",
                    "/metadata/ownerReferences",
                    json!([]),
                );
                set(
                    s,
                    "Ingress",
                    "blog-website",
                    "/metadata/annotations",
                    json!({"routewright.dev/adopt": "u-1"}),
                );
            }),
        ],
    );
}

#[test]
fn every_wrong_route_is_found() {
    each_is_found(
        by_route,
        &[
            ("exposure.spec", |s| {
                set(s, "HTTPRoute", "blog-website", "/spec/rules/0/filters", json!([]))
            }),
            ("exposure.spec", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "blog-website",
                    "/spec/rules/0/backendRefs/0/port",
                    json!(1),
                )
            }),
            ("exposure.spec", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "blog-website",
                    "/spec/parentRefs/0/name",
                    json!("other"),
                )
            }),
            ("exposure.spec", |s| {
                set(
                    s,
                    "GarageCluster",
                    "garage",
                    "/spec/webApi/bindAddress",
                    json!("0.0.0.0:4000"),
                )
            }),
            ("exposure.condition", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "blog-website",
                    "/status/parents/0/conditions/0/observedGeneration",
                    json!(2),
                )
            }),
            ("exposure.condition", |s| {
                set(
                    s,
                    "HTTPRoute",
                    "blog-website",
                    "/status/parents/0/conditions/1/status",
                    json!("False"),
                )
            }),
            ("exposure.block", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/status/websiteExposure/parents/0/ready",
                    json!(false),
                )
            }),
            ("exposure.block", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/status/websiteExposure/hostnames",
                    json!(["blog.site.test"]),
                )
            }),
        ],
    );
}

/// The bucket says this, and nothing else of the world is wrong.
fn says(mut snapshot: Snapshot, status: &str, reason: &str, message: &str) {
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/status/conditions",
        said(status, reason, message),
    );
    right(&snapshot, &["exposure.condition"]);
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/status/conditions",
        said("False", "Nonsense", message),
    );
    assert!(broken(&snapshot).contains("exposure.condition"));
}

#[test]
fn each_row_of_refusal_has_its_reason() {
    type Change = fn(&mut Snapshot);
    let rows: [(Change, &str, &str); 12] = [
        (
            |s| s.installations[0].enable_ingress = false,
            "IngressDisabled",
            "--enable-ingress",
        ),
        (
            |s| set(s, "GarageCluster", "garage", "/status/phase", json!("Pending")),
            "ReconcileFailed",
            "GarageCluster web/garage: Pending",
        ),
        (
            |s| remove(s, "GarageCluster", "garage"),
            "ReconcileFailed",
            "GarageCluster web/garage: not found",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/spec/clusterRef/namespace",
                    json!("storage"),
                )
            },
            "ReconcileFailed",
            "create a GarageReferenceGrant",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/status/globalAlias",
                    json!("garage-rsv-1"),
                )
            },
            "WaitingForAlias",
            "waiting",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/spec/websiteExposure/hostnames",
                    json!(["a", "a"]),
                )
            },
            "ReconcileFailed",
            "hostnames[1]",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/spec/websiteExposure/hostnames",
                    json!(["www.example.org"]),
                )
            },
            "ReconcileFailed",
            "hostnames[0]",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/spec/websiteExposure/backendRef",
                    json!({"kind": "ServiceImport", "name": "x"}),
                )
            },
            "ReconcileFailed",
            "backendRef",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageCluster",
                    "garage",
                    "/spec/webApi/rootDomain",
                    json!("Bad."),
                )
            },
            "ReconcileFailed",
            "webApi.rootDomain",
        ),
        (
            |s| set(s, "GarageCluster", "garage", "/spec", json!({"connectTo": {}})),
            "ReconcileFailed",
            "backendRef is needed, and webApi.rootDomain",
        ),
        (
            |s| {
                set(s, "GarageBucket", "blog", "/spec/website", json!({}));
                remove(s, "Ingress", "blog-website");
            },
            "ReconcileFailed",
            "website.enabled",
        ),
        (
            |s| {
                set(s, "GarageCluster", "garage", "/spec/webApi/enabled", json!(false));
                remove(s, "Ingress", "blog-website");
            },
            "ReconcileFailed",
            "webApi.enabled",
        ),
    ];
    for (change, reason, message) in rows {
        let mut snapshot = by_ingress();
        change(&mut snapshot);
        says(snapshot, "False", reason, message);
    }
    let mut without_api = by_route();
    without_api
        .served
        .remove(&("gateway.networking.k8s.io".to_owned(), "HTTPRoute".to_owned()));
    remove(&mut without_api, "HTTPRoute", "blog-website");
    says(
        without_api,
        "False",
        "GatewayAPIUnavailable",
        "the API server does not serve HTTPRoute",
    );
}

#[test]
fn foreign_and_terminating_children_have_their_rows() {
    let mut foreign = by_ingress();
    set(
        &mut foreign,
        "Ingress",
        "blog-website",
        "/metadata",
        json!({"namespace": "web", "name": "blog-website"}),
    );
    says(
        foreign,
        "False",
        "ReconcileFailed",
        "Ingress web/blog-website has no owner",
    );
    let mut terminating = by_ingress();
    set(
        &mut terminating,
        "Ingress",
        "blog-website",
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    says(terminating, "False", "NotReady", "being deleted");
}

#[test]
fn a_cluster_that_is_away_keeps_what_was_said_of_the_kind() {
    let mut kept = by_ingress();
    set(
        &mut kept,
        "GarageCluster",
        "garage",
        "/status/phase",
        json!("Pending"),
    );
    set(
        &mut kept,
        "GarageBucket",
        "blog",
        "/status/conditions/0/observedGeneration",
        json!(1),
    );
    right(&kept, &["exposure.condition"]);
    let message = json!("HTTPRoute web/blog-website");
    set(
        &mut kept,
        "GarageBucket",
        "blog",
        "/status/conditions/0/message",
        message,
    );
    assert!(
        broken(&kept).contains("exposure.condition"),
        "it speaks of the other kind"
    );
}

#[test]
fn what_cannot_be_judged_is_counted() {
    type Change = fn(&mut Snapshot);
    let changes: [(Change, &str); 5] = [
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/metadata/annotations",
                    json!({"routewright.dev/reconcile": "paused"}),
                )
            },
            "exposure: paused",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/metadata/deletionTimestamp",
                    json!("2026-01-01T00:00:00Z"),
                )
            },
            "exposure: the bucket is being deleted",
        ),
        (
            |s| set(s, "GarageBucket", "blog", "/status/bucketId", json!("")),
            "exposure: status.bucketId is empty",
        ),
        (
            |s| s.installations[0].namespaces = Some(vec!["other".to_owned()]),
            "exposure: no installation watches the namespace",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/metadata/managedFields",
                    json!([{"manager": "another", "fieldsV1":
            {"f:status": {"f:conditions": {"k:{\"type\":\"WebsiteExposed\"}": {"f:message": {}}}}}}]),
                )
            },
            "exposure: another manager owns the condition",
        ),
    ];
    for (change, reason) in changes {
        let mut snapshot = by_ingress();
        set(
            &mut snapshot,
            "GarageBucket",
            "blog",
            "/status/conditions",
            json!([]),
        );
        change(&mut snapshot);
        assert_eq!(right(&snapshot, &[]).skipped.get(reason), Some(&1), "{reason}");
    }
}
