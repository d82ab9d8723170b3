//! The decision, told as cases: given a bucket and its cluster, what is exposed or what is said.

use super::super::tenancy::UNLIMITED;
use super::*;
use proptest::prelude::*;
use serde_json::from_value;

/// A bucket `sites/blog` of cluster `garage`, created in Garage with alias `blog`, website on, with this exposure.
fn bucket_json(exposure: Value) -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1",
        "kind": "GarageBucket",
        "metadata": { "name": "blog", "namespace": "sites", "uid": "u-1" },
        "spec": {
            "clusterRef": { "name": "garage" },
            "website": { "enabled": true },
            "websiteExposure": exposure,
        },
        "status": { "bucketId": "abc", "globalAlias": "blog" },
    })
}

fn bucket(exposure: Value) -> GarageBucket {
    from_value(bucket_json(exposure)).unwrap()
}

/// The bucket after a change of one place in its JSON; `null` removes it.
fn changed(exposure: Value, pointer: &str, value: Value) -> GarageBucket {
    let mut object = bucket_json(exposure);
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(field);
    } else {
        parent.insert(field.to_owned(), value);
    }
    from_value(object).unwrap()
}

/// A running cluster `garage` in this namespace under the root domain `.example.com`.
fn cluster_in(namespace: &str, spec: Value) -> GarageCluster {
    let mut spec = spec;
    let web = spec.as_object_mut().unwrap().entry("webApi").or_insert(json!({}));
    if web.get("rootDomain").is_none() {
        web["rootDomain"] = json!(".example.com");
    }
    raw_cluster(namespace, spec, "Running")
}

fn raw_cluster(namespace: &str, spec: Value, phase: &str) -> GarageCluster {
    from_value(json!({
        "apiVersion": "garage.rajsingh.info/v1beta2",
        "kind": "GarageCluster",
        "metadata": { "name": "garage", "namespace": namespace },
        "spec": spec,
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn storage() -> GarageCluster {
    cluster_in("sites", json!({ "storage": {} }))
}

fn decide(bucket: &GarageBucket, cluster: &GarageCluster) -> Result<Resolved, Blocked> {
    decide_with(bucket, ClusterLookup::Found(cluster), &[])
}

fn decide_with(
    bucket: &GarageBucket,
    cluster: ClusterLookup<'_>,
    grants: &[&GarageReferenceGrant],
) -> Result<Resolved, Blocked> {
    resolve(&Inputs {
        bucket,
        cluster,
        grants: grants.to_vec(),
        unseen_grants: None,
        namespace_labels: None,
        guards: &UNLIMITED,
    })
}

fn grant() -> GarageReferenceGrant {
    from_value(json!({
        "apiVersion": "garage.rajsingh.info/v1beta1",
        "kind": "GarageReferenceGrant",
        "metadata": { "name": "g", "namespace": "storage" },
        "spec": { "from": [{ "kind": "GarageBucket", "namespace": "sites" }] },
    }))
    .unwrap()
}

/// The field and whole message of a refusal.
fn refusal(result: Result<Resolved, Blocked>) -> (String, String) {
    match result {
        Err(Blocked::Invalid(invalid)) => (invalid.field.clone(), invalid.to_string()),
        other => panic!("expected an invalid field, got {other:?}"),
    }
}

fn gateway() -> Value {
    json!({ "gateway": { "parentRefs": [{ "name": "public" }] } })
}

fn with(mut exposure: Value, field: &str, value: Value) -> Value {
    exposure[field] = value;
    exposure
}

// ---- what is generated ----------------------------------------------------------------------------------------------

#[test]
fn an_ingress_for_the_canonical_host_by_default() {
    let resolved = decide(&bucket(json!({ "ingress": {} })), &storage()).unwrap();
    assert_eq!(resolved.to_string(), "Ingress sites/blog-website");
    assert_eq!(
        resolved.body(),
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": "blog-website", "namespace": "sites", "labels": { "routewright.dev/bucket": "blog" },
            },
            "spec": {
                "rules": [{
                    "host": "blog.example.com",
                    "http": { "paths": [{
                        "path": "/", "pathType": "Prefix",
                        "backend": { "service": { "name": "garage", "port": { "name": "web" } } },
                    }] },
                }],
            },
        })
    );
}

#[test]
fn an_ingress_with_everything_has_one_rule_per_hostname_and_tls_for_all() {
    let exposure = json!({
        "hostnames": ["blog.example.com", "blog"],
        "backendRef": { "name": "proxy", "namespace": "sites", "port": 8080 },
        "ingress": {
            "ingressClassName": "nginx",
            "tlsSecretName": "blog-tls",
            "labels": { "team": "web", "routewright.dev/bucket": "mine" },
            "annotations": { "cert-manager.io/cluster-issuer": "letsencrypt" },
        },
    });
    let body = decide(&bucket(exposure), &storage()).unwrap().body();
    let path = json!({
        "path": "/", "pathType": "Prefix",
        "backend": { "service": { "name": "proxy", "port": { "number": 8080 } } },
    });
    assert_eq!(
        body,
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": "blog-website", "namespace": "sites",
                "labels": { "routewright.dev/bucket": "blog", "team": "web" },
                "annotations": { "cert-manager.io/cluster-issuer": "letsencrypt" },
            },
            "spec": {
                "ingressClassName": "nginx",
                "tls": [{ "hosts": ["blog.example.com", "blog"], "secretName": "blog-tls" }],
                "rules": [
                    { "host": "blog.example.com", "http": { "paths": [path] } },
                    { "host": "blog", "http": { "paths": [path] } },
                ],
            },
        })
    );
}

#[test]
fn empty_settings_of_an_ingress_are_left_out() {
    let exposure = json!({
        "hostnames": [],
        "ingress": { "ingressClassName": "", "tlsSecretName": "", "labels": {}, "annotations": {} },
    });
    let body = decide(&bucket(exposure), &storage()).unwrap().body();
    assert_eq!(
        body,
        decide(&bucket(json!({ "ingress": {} })), &storage())
            .unwrap()
            .body()
    );
}

#[test]
fn a_route_writes_every_default_out() {
    let resolved = decide(&bucket(gateway()), &storage()).unwrap();
    assert_eq!(resolved.to_string(), "HTTPRoute sites/blog-website");
    assert_eq!(
        resolved.body(),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {
                "name": "blog-website", "namespace": "sites", "labels": { "routewright.dev/bucket": "blog" },
            },
            "spec": {
                "parentRefs": [{
                    "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "sites", "name": "public",
                }],
                "hostnames": ["blog.example.com"],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "backendRefs": [{
                        "group": "", "kind": "Service", "name": "garage", "port": 3902, "weight": 1,
                    }],
                }],
            },
        })
    );
}

/// The example of the design: a ServiceImport in the storage namespace, a listener, a public hostname.
#[test]
fn a_route_to_a_service_import_of_another_namespace() {
    let exposure = json!({
        "hostnames": ["www.example.org"],
        "backendRef": {
            "name": "garage", "kind": "ServiceImport", "group": "multicluster.x-k8s.io", "namespace": "garage-ns",
        },
        "gateway": {
            "parentRefs": [{ "name": "public-gateway", "namespace": "gw", "sectionName": "http", "port": 80 }],
            "labels": { "team": "web" },
            "annotations": { "external-dns.alpha.kubernetes.io/ttl": "60" },
        },
    });
    assert_eq!(
        decide(&bucket(exposure), &storage()).unwrap().body(),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {
                "name": "blog-website", "namespace": "sites",
                "labels": { "routewright.dev/bucket": "blog", "team": "web" },
                "annotations": { "external-dns.alpha.kubernetes.io/ttl": "60" },
            },
            "spec": {
                "parentRefs": [{
                    "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "gw",
                    "name": "public-gateway", "sectionName": "http", "port": 80,
                }],
                "hostnames": ["www.example.org"],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "filters": [{ "type": "URLRewrite", "urlRewrite": { "hostname": "blog.example.com" } }],
                    "backendRefs": [{
                        "group": "multicluster.x-k8s.io", "kind": "ServiceImport", "namespace": "garage-ns",
                        "name": "garage", "port": 3902, "weight": 1,
                    }],
                }],
            },
        })
    );
}

#[test]
fn one_hostname_that_needs_it_makes_the_one_rule_rewrite_in_either_order() {
    for hostnames in [
        json!(["blog.example.com", "www.other.net"]),
        json!(["www.other.net", "blog.example.com"]),
    ] {
        let body = decide(
            &bucket(with(gateway(), "hostnames", hostnames.clone())),
            &storage(),
        )
        .unwrap()
        .body();
        assert_eq!(body["spec"]["hostnames"], hostnames);
        assert_eq!(body["spec"]["rules"].as_array().unwrap().len(), 1);
        assert_eq!(
            body["spec"]["rules"][0]["filters"][0]["urlRewrite"]["hostname"],
            "blog.example.com"
        );
    }
}

#[test]
fn canonical_host_and_bare_alias_need_no_rewrite() {
    let body = decide(
        &bucket(with(gateway(), "hostnames", json!(["blog", "blog.example.com"]))),
        &storage(),
    )
    .unwrap()
    .body();
    assert_eq!(body["spec"]["rules"][0].get("filters"), None);
}

#[test]
fn a_bare_alias_under_the_root_domain_is_rewritten_by_a_route_and_refused_for_an_ingress() {
    let aliased = |exposure| {
        changed(
            with(exposure, "hostnames", json!(["www.example.com"])),
            "/status/globalAlias",
            json!("www.example.com"),
        )
    };
    let body = decide(&aliased(gateway()), &storage()).unwrap().body();
    let rewrite = &body["spec"]["rules"][0]["filters"][0]["urlRewrite"]["hostname"];
    assert_eq!(rewrite, "www.example.com.example.com");
    let (field, message) = refusal(decide(&aliased(json!({ "ingress": {} })), &storage()));
    assert_eq!(field, "spec.websiteExposure.hostnames[0]");
    assert!(
        message.contains("use www.example.com.example.com, or spec.websiteExposure.gateway"),
        "{message}"
    );
}

#[test]
fn the_backend_follows_tiers_namespace_and_port() {
    let backend = |cluster: GarageCluster| {
        let namespace = cluster.metadata.namespace.clone().unwrap();
        let bucket = changed(gateway(), "/spec/clusterRef/namespace", json!(namespace));
        decide_with(&bucket, ClusterLookup::Found(&cluster), &[&grant()])
            .unwrap()
            .backend
    };
    let unified = backend(cluster_in(
        "storage",
        json!({ "storage": {}, "gateway": { "replicas": 0 } }),
    ));
    assert_eq!(
        (unified.name.as_str(), unified.namespace.as_deref()),
        ("garage-gateway", Some("storage"))
    );
    let edge = backend(cluster_in("storage", json!({ "gateway": {}, "connectTo": {} })));
    assert_eq!(edge.name, "garage");
    let own = backend(cluster_in(
        "sites",
        json!({ "storage": {}, "webApi": { "bindPort": 8080 } }),
    ));
    assert_eq!((own.namespace, own.port), (None, BackendPort::Number(8080)));
    let address = json!({ "bindPort": 8080, "bindAddress": "[::]:9000" });
    assert_eq!(
        backend(cluster_in("sites", json!({ "storage": {}, "webApi": address }))).port,
        BackendPort::Number(9000)
    );
}

#[test]
fn the_namespace_of_a_backend_is_the_buckets_by_default_and_left_out_when_equal() {
    let backend = |reference: Value| {
        let bucket = changed(
            with(gateway(), "backendRef", reference),
            "/spec/clusterRef/namespace",
            json!("storage"),
        );
        let cluster = cluster_in("storage", json!({ "storage": {} }));
        decide_with(&bucket, ClusterLookup::Found(&cluster), &[&grant()])
            .unwrap()
            .backend
    };
    assert_eq!(backend(json!({ "name": "proxy" })).namespace, None);
    assert_eq!(
        backend(json!({ "name": "proxy", "namespace": "sites" })).namespace,
        None
    );
    assert_eq!(
        backend(json!({ "name": "proxy", "namespace": "storage" }))
            .namespace
            .as_deref(),
        Some("storage")
    );
    let core = backend(json!({ "name": "proxy", "group": "", "kind": "Service", "port": 81 }));
    assert_eq!(
        (core.group.as_str(), core.kind.as_str(), core.port),
        ("", "Service", BackendPort::Number(81))
    );
}

#[test]
fn a_long_bucket_name_becomes_a_valid_label_value() {
    let name = "a".repeat(200);
    let resolved = decide(&changed(gateway(), "/metadata/name", json!(name)), &storage()).unwrap();
    assert_eq!(resolved.name, format!("{name}-website"));
    assert!(resolved.labels[BUCKET_LABEL].len() <= 63);
}

#[test]
fn the_default_root_domain_is_the_clusters_own() {
    let cluster = raw_cluster("sites", json!({ "storage": {} }), "Running");
    assert_eq!(
        decide(&bucket(gateway()), &cluster).unwrap().hostnames,
        ["blog.garage.sites.svc"]
    );
}

// ---- why nothing is generated: one test per row ---------------------------------------------------------------------

const NOTHING_TO_DO: Effect = Effect {
    condition: ConditionEffect::Untouched,
    child: ChildEffect::Untouched,
    status: StatusEffect::Kept,
    retry: None,
};

const FAILED: Effect = Effect {
    condition: ConditionEffect::False(BlockedReason::ReconcileFailed),
    child: ChildEffect::Kept,
    status: StatusEffect::Kept,
    retry: Some(Duration::from_secs(300)),
};

#[test]
fn a_bucket_being_deleted_is_left_alone() {
    let mut bucket = bucket(gateway());
    bucket.metadata.deletion_timestamp = Some(from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    bucket.spec.website_exposure = None;
    let blocked = decide(&bucket, &storage()).unwrap_err();
    assert_eq!(blocked, Blocked::Deleting);
    assert_eq!(blocked.effect(), NOTHING_TO_DO);
}

#[test]
fn without_bucket_id_nothing_is_touched() {
    for value in [Value::Null, json!("")] {
        let blocked = decide(&changed(gateway(), "/status/bucketId", value), &storage()).unwrap_err();
        assert_eq!(blocked, Blocked::NoBucket);
        assert_eq!(blocked.effect(), NOTHING_TO_DO);
    }
}

#[test]
fn unset_removes_object_condition_and_status() {
    let bucket = changed(gateway(), "/spec/websiteExposure", Value::Null);
    assert_eq!(selection(&bucket), Selection::Unset);
    let blocked = decide(&bucket, &storage()).unwrap_err();
    assert_eq!(blocked, Blocked::Unset);
    assert_eq!(
        blocked.effect(),
        Effect {
            condition: ConditionEffect::Removed,
            child: ChildEffect::Removed,
            status: StatusEffect::Cleared,
            retry: None
        }
    );
}

#[test]
fn a_paused_bucket_keeps_what_it_has_and_says_so() {
    let annotations = json!({ "routewright.dev/reconcile": "paused" });
    let mut paused = changed(gateway(), "/metadata/annotations", annotations.clone());
    let blocked = decide(&paused, &storage()).unwrap_err();
    assert_eq!(blocked, Blocked::Paused);
    assert_eq!(
        blocked.effect(),
        Effect {
            condition: ConditionEffect::MessageOnly,
            ..NOTHING_TO_DO
        }
    );
    assert!(
        blocked
            .to_string()
            .contains("remove the annotation routewright.dev/reconcile: paused")
    );

    // Unset while paused: the object from before stays until the pause ends.
    paused.spec.website_exposure = None;
    assert_eq!(
        decide(&paused, &storage()),
        Err(Blocked::Unset),
        "never exposed: nothing to pause"
    );
    paused.status.as_mut().unwrap().website_exposure = Some(Default::default());
    assert_eq!(decide(&paused, &storage()), Err(Blocked::Paused));

    let other = changed(
        gateway(),
        "/metadata/annotations",
        json!({ "routewright.dev/reconcile": "enabled" }),
    );
    assert!(decide(&other, &storage()).is_ok());
}

#[test]
fn both_kinds_or_none_is_refused() {
    let both = bucket(with(gateway(), "ingress", json!({})));
    let neither = bucket(json!({}));
    assert_eq!(
        (selection(&both), selection(&neither)),
        (Selection::Both, Selection::Neither)
    );
    for (bucket, text) in [
        (both, "sets both ingress and gateway"),
        (neither, "sets neither ingress nor gateway"),
    ] {
        let blocked = decide(&bucket, &storage()).unwrap_err();
        assert!(blocked.to_string().contains(text), "{blocked}");
        assert_eq!(blocked.effect(), FAILED);
    }
}

#[test]
fn selection_needs_the_spec_alone() {
    assert_eq!(
        selection(&bucket(gateway())),
        Selection::Kind(ExposureKind::HttpRoute)
    );
    assert_eq!(
        selection(&bucket(json!({ "ingress": {} }))),
        Selection::Kind(ExposureKind::Ingress)
    );
}

#[test]
fn a_website_that_is_not_on_is_withdrawn() {
    for website in [Value::Null, json!({}), json!({ "enabled": false })] {
        let blocked = decide(&changed(gateway(), "/spec/website", website), &storage()).unwrap_err();
        assert_eq!(blocked, Blocked::WebsiteOff);
        let effect = Effect {
            child: ChildEffect::Removed,
            status: StatusEffect::TypeOnly,
            ..FAILED
        };
        assert_eq!(blocked.effect(), effect);
        assert!(blocked.to_string().contains("spec.website.enabled: true"));
    }
}

#[test]
fn a_web_api_that_is_off_is_withdrawn() {
    let cluster = cluster_in("sites", json!({ "storage": {}, "webApi": { "enabled": false } }));
    let blocked = decide(&bucket(gateway()), &cluster).unwrap_err();
    assert_eq!(
        blocked,
        Blocked::WebApiOff {
            namespace: "sites".into(),
            name: "garage".into()
        }
    );
    assert_eq!(
        blocked.effect(),
        Effect {
            child: ChildEffect::Removed,
            status: StatusEffect::TypeOnly,
            ..FAILED
        }
    );
    assert!(
        blocked
            .to_string()
            .starts_with("GarageCluster sites/garage: spec.webApi.enabled is false")
    );
}

#[test]
fn a_cluster_that_cannot_be_used_now_keeps_everything_as_it_is() {
    let mut deleting = storage();
    deleting.metadata.deletion_timestamp = Some(from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let degraded = raw_cluster("sites", json!({ "storage": {} }), "Degraded");
    let mut fresh = storage();
    fresh.status = None;
    for (cluster, text) in [
        (
            ClusterLookup::NotServed,
            "the API server does not serve GarageCluster v1beta2: install its CRD",
        ),
        (None.into(), "not found: create it or correct spec.clusterRef"),
        (Some(&deleting).into(), "is being deleted"),
        (
            Some(&degraded).into(),
            "status.phase is Degraded: waiting for Running",
        ),
        (
            Some(&fresh).into(),
            "status.phase is not set: waiting for Running",
        ),
    ] {
        let blocked = decide_with(&bucket(gateway()), cluster, &[]).unwrap_err();
        assert_eq!(blocked.to_string(), format!("GarageCluster sites/garage: {text}"));
        assert_eq!(
            blocked.effect(),
            Effect {
                condition: ConditionEffect::FalseUnlessPresent(BlockedReason::ReconcileFailed),
                child: ChildEffect::Kept,
                status: StatusEffect::Kept,
                retry: Some(Duration::from_secs(60)),
            }
        );
    }
}

#[test]
fn without_a_grant_nothing_is_told_about_the_cluster() {
    let bucket = changed(gateway(), "/spec/clusterRef/namespace", json!("storage"));
    let cluster = cluster_in("storage", json!({ "storage": {} }));
    for lookup in [ClusterLookup::Found(&cluster), ClusterLookup::Missing] {
        let blocked = decide_with(&bucket, lookup, &[]).unwrap_err();
        assert!(matches!(blocked, Blocked::GrantDenied(_)));
        assert_eq!(blocked.effect(), FAILED);
        assert!(
            blocked
                .to_string()
                .contains("create a GarageReferenceGrant in namespace storage"),
            "{blocked}"
        );
    }
    assert!(decide_with(&bucket, ClusterLookup::Found(&cluster), &[&grant()]).is_ok());
}

#[test]
fn a_grant_by_label_needs_the_labels_of_the_namespace() {
    let bucket = changed(gateway(), "/spec/clusterRef/namespace", json!("storage"));
    let cluster = cluster_in("storage", json!({ "storage": {} }));
    let mut by_label = grant();
    by_label.spec.from[0].namespace = None;
    by_label.spec.from[0].namespace_selector =
        Some(from_value(json!({ "matchLabels": { "team": "web" } })).unwrap());
    assert!(needs_namespace_labels(&bucket, &[&by_label]));
    assert!(!needs_namespace_labels(&bucket, &[&by_label, &grant()]));
    let labels = BTreeMap::from([("team".to_owned(), "web".to_owned())]);
    let mut inputs = Inputs {
        bucket: &bucket,
        cluster: ClusterLookup::Found(&cluster),
        grants: vec![&by_label],
        unseen_grants: None,
        namespace_labels: Some(&labels),
        guards: &UNLIMITED,
    };
    assert!(resolve(&inputs).is_ok());
    inputs.namespace_labels = None;
    assert!(matches!(resolve(&inputs), Err(Blocked::GrantDenied(_))));
}

#[test]
fn without_an_alias_even_listed_hostnames_wait() {
    for alias in [
        Value::Null,
        json!(""),
        json!("garage-rsv-0123456789abcdef"),
        json!("cosi-rsv-x"),
    ] {
        for exposure in [
            gateway(),
            with(gateway(), "hostnames", json!(["www.other.net"])),
            json!({ "ingress": {} }),
        ] {
            let blocked = decide(
                &changed(exposure, "/status/globalAlias", alias.clone()),
                &storage(),
            )
            .unwrap_err();
            assert_eq!(blocked, Blocked::WaitingForAlias);
            assert_eq!(
                blocked.effect(),
                Effect {
                    condition: ConditionEffect::False(BlockedReason::WaitingForAlias),
                    child: ChildEffect::Kept,
                    status: StatusEffect::TypeAndName,
                    retry: Some(Duration::from_secs(60)),
                }
            );
        }
    }
}

#[test]
fn hostnames_are_checked_again() {
    let too_many: Vec<String> = (0..17).map(|i| format!("h{i}.net")).collect();
    for (hostnames, field, text) in [
        (json!(["a.net", "A.net"]), "[1]", "\"A.net\" is listed twice"),
        (json!(["A.net"]), "[0]", "\"A.net\" has upper-case letters"),
        (json!(["a.net", "*.a.net"]), "[1]", "\"*.a.net\" has a wildcard"),
        (json!(["192.0.2.1"]), "[0]", "is an IP address"),
        (json!(["a.net."]), "[0]", "ends with a dot"),
        (json!([""]), "[0]", "is empty"),
        (json!(too_many), "", "has 17 entries: at most 16"),
    ] {
        for exposure in [gateway(), json!({ "ingress": {} })] {
            let result = decide(
                &bucket(with(exposure, "hostnames", hostnames.clone())),
                &storage(),
            );
            assert_eq!(result.as_ref().unwrap_err().effect(), FAILED);
            let (found, message) = refusal(result);
            assert_eq!(found, format!("spec.websiteExposure.hostnames{field}"));
            assert!(
                message.starts_with("GarageBucket sites/blog: ") && message.contains(text),
                "{message}"
            );
        }
    }
}

#[test]
fn an_ingress_takes_only_what_garage_resolves_itself() {
    let exposure = json!({ "hostnames": ["blog.example.com", "www.other.net"], "ingress": {} });
    let (field, message) = refusal(decide(&bucket(exposure), &storage()));
    assert_eq!(field, "spec.websiteExposure.hostnames[1]");
    assert_eq!(
        message,
        "GarageBucket sites/blog: spec.websiteExposure.hostnames[1] \"www.other.net\" is not resolved to this bucket \
         by Garage, and an Ingress cannot rewrite it: use blog.example.com or blog, or spec.websiteExposure.gateway"
    );
}

#[test]
fn an_ingress_cannot_reach_a_cluster_of_another_namespace() {
    let exposures = [
        json!({ "ingress": {} }),
        json!({ "backendRef": { "name": "proxy" }, "ingress": {} }),
    ];
    for exposure in exposures {
        let bucket = changed(exposure, "/spec/clusterRef/namespace", json!("storage"));
        let cluster = cluster_in("storage", json!({ "storage": {} }));
        let (field, message) = refusal(decide_with(&bucket, ClusterLookup::Found(&cluster), &[&grant()]));
        assert_eq!(field, "spec.clusterRef.namespace");
        assert!(message.contains("use spec.websiteExposure.gateway"), "{message}");
    }
    let own = changed(
        json!({ "ingress": {} }),
        "/spec/clusterRef/namespace",
        json!("sites"),
    );
    assert!(decide(&own, &storage()).is_ok(), "its own namespace, written out");
}

#[test]
fn a_backend_is_checked_again() {
    for (reference, field) in [
        (json!({ "name": "" }), "name"),
        (json!({ "name": "x", "port": 0 }), "port"),
        (json!({ "name": "x", "port": 65536 }), "port"),
        (
            json!({ "name": "x", "group": "multicluster.x-k8s.io", "kind": "ServiceImport" }),
            "group",
        ),
        (json!({ "name": "x", "kind": "ServiceImport" }), "kind"),
        (json!({ "name": "x", "namespace": "storage" }), "namespace"),
    ] {
        let result = decide(
            &bucket(json!({ "backendRef": reference, "ingress": {} })),
            &storage(),
        );
        assert_eq!(
            refusal(result).0,
            format!("spec.websiteExposure.backendRef.{field}")
        );
        let result = decide(
            &bucket(with(gateway(), "backendRef", reference.clone())),
            &storage(),
        );
        assert_eq!(
            result.is_err(),
            ["name", "port"].contains(&field),
            "a route may point to {reference}"
        );
    }
}

#[test]
fn parents_are_checked_again() {
    const FIELD: &str = "spec.websiteExposure.gateway.parentRefs";
    let many: Vec<Value> = (0..33).map(|i| json!({ "name": format!("g{i}") })).collect();
    for (refs, field) in [
        (json!([]), String::new()),
        (json!(many), String::new()),
        (json!([{ "name": "a" }, { "name": "" }]), "[1].name".to_owned()),
        (json!([{ "name": "a", "port": 0 }]), "[0].port".to_owned()),
        // Gateway API takes no parent twice unless each entry names a part of its own.
        (
            json!([{ "name": "a" }, { "name": "b" }, { "name": "a" }]),
            "[2]".to_owned(),
        ),
        (
            json!([{ "name": "a", "sectionName": "http" }, { "name": "a", "sectionName": "http" }]),
            "[1]".to_owned(),
        ),
        (
            json!([{ "name": "a", "sectionName": "http" }, { "name": "a", "namespace": "sites" }]),
            "[1]".to_owned(),
        ),
    ] {
        let result = decide(&bucket(json!({ "gateway": { "parentRefs": refs } })), &storage());
        assert_eq!(refusal(result).0, format!("{FIELD}{field}"));
    }
}

#[test]
fn one_parent_may_be_named_for_several_parts() {
    let refs = json!([
        { "name": "a", "sectionName": "http" }, { "name": "a", "sectionName": "https" },
        { "name": "a", "namespace": "other" }, { "name": "b", "port": 80 }, { "name": "b", "port": 443 },
    ]);
    let bucket = bucket(json!({ "gateway": { "parentRefs": refs } }));
    assert!(decide(&bucket, &storage()).is_ok());
}

#[test]
fn what_the_api_server_would_refuse_on_the_object_is_refused_by_the_field_of_the_bucket() {
    let ingress = |part: &str, value: Value| {
        let mut ingress = json!({});
        ingress[part] = value;
        json!({ "ingress": ingress })
    };
    for (exposure, field, says) in [
        (
            ingress("ingressClassName", json!("My Class")),
            "ingress.ingressClassName",
            "is no name",
        ),
        (
            ingress("tlsSecretName", json!("docs_tls")),
            "ingress.tlsSecretName",
            "is no name",
        ),
        (
            ingress("labels", json!({ "a b": "c" })),
            "ingress.labels",
            "\"a b\" is no key",
        ),
        (
            ingress("labels", json!({ "team": "a b" })),
            "ingress.labels",
            "\"a b\" is no label value",
        ),
        (
            ingress("annotations", json!({ "/x": "" })),
            "ingress.annotations",
            "\"/x\" is no key",
        ),
        (
            json!({ "ingress": {
                "ingressClassName": "nginx", "annotations": { "kubernetes.io/ingress.class": "gce" },
            } }),
            "ingress.annotations",
            "is gce, and ingressClassName is nginx: remove one of them",
        ),
        (
            json!({ "gateway": { "parentRefs": [{ "name": "g" }], "labels": { "x": "-" } } }),
            "gateway.labels",
            "is no label value",
        ),
    ] {
        let (at, message) = refusal(decide(&bucket(exposure), &storage()));
        assert_eq!(at, format!("spec.websiteExposure.{field}"));
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_label_that_is_not_allowed_is_refused_by_its_key() {
    let guards = Guards {
        label_prefixes: vec!["team.example.com/".into()],
        ..Guards::default()
    };
    let labelled = |key: &str| {
        let bucket = bucket(json!({ "ingress": { "labels": { key: "x" } } }));
        let cluster = storage();
        resolve(&Inputs {
            bucket: &bucket,
            cluster: ClusterLookup::Found(&cluster),
            grants: Vec::new(),
            unseen_grants: None,
            namespace_labels: None,
            guards: &guards,
        })
    };
    assert!(labelled("team.example.com/name").is_ok());
    let (field, message) = refusal(labelled("shard"));
    assert_eq!(field, "spec.websiteExposure.ingress.labels");
    assert!(
        message.contains("\"shard\" is not allowed here: keys begin with team.example.com/"),
        "{message}"
    );
}

#[test]
fn where_nothing_of_a_namespace_is_seen_no_grant_is_asked_for() {
    let bucket = changed(gateway(), "/spec/clusterRef/namespace", json!("storage"));
    let not_watched = Unseen::NotWatched {
        namespace: "storage".into(),
    };
    let blocked = decide_with(&bucket, ClusterLookup::Unseen(&not_watched), &[]).unwrap_err();
    assert_eq!(
        blocked.to_string(),
        "GarageCluster storage/garage: namespace storage is not watched: add it to --watch-namespaces (chart value \
         watchNamespaces)"
    );
    // Only a bucket that may use the cluster learns that it cannot be read.
    let bad = Unseen::Undecodable {
        error: "spec.webApi: no".into(),
    };
    let denied = decide_with(&bucket, ClusterLookup::Unseen(&bad), &[]).unwrap_err();
    assert!(matches!(denied, Blocked::GrantDenied(_)));
    let told = decide_with(&bucket, ClusterLookup::Unseen(&bad), &[&grant()]).unwrap_err();
    assert!(
        told.to_string().contains("a field does not fit: spec.webApi: no"),
        "{told}"
    );
    // A grant that cannot be read may be the one.
    let cluster = cluster_in("storage", json!({ "storage": {} }));
    let inputs = Inputs {
        bucket: &bucket,
        cluster: ClusterLookup::Found(&cluster),
        grants: Vec::new(),
        unseen_grants: Some(Unseen::Undecodable {
            error: "buckets: spec.from: no".into(),
        }),
        namespace_labels: None,
        guards: &UNLIMITED,
    };
    let denied = resolve(&inputs).unwrap_err().to_string();
    assert!(
        denied.contains("there may be one") && denied.contains("buckets: spec.from: no"),
        "{denied}"
    );
}

#[test]
fn the_reference_to_the_cluster_is_checked_again() {
    let secret = changed(
        gateway(),
        "/spec/clusterRef/kubeConfigSecretRef",
        json!({ "name": "s" }),
    );
    assert_eq!(
        refusal(decide(&secret, &storage())).0,
        "spec.clusterRef.kubeConfigSecretRef"
    );
    let unnamed = changed(gateway(), "/spec/clusterRef/name", json!(""));
    assert_eq!(refusal(decide(&unnamed, &storage())).0, "spec.clusterRef.name");
}

#[test]
fn a_name_that_leaves_no_room_is_refused() {
    let named = |length: usize| changed(gateway(), "/metadata/name", json!("a".repeat(length)));
    assert!(decide(&named(245), &storage()).is_ok());
    assert_eq!(refusal(decide(&named(246), &storage())).0, "metadata.name");
}

#[test]
fn a_root_domain_that_no_host_can_be_made_from_is_named() {
    for (root, text) in [
        ("", "holds no domain"),
        (".", "holds no domain"),
        (".Example.com", "\".Example.com\" has upper-case letters"),
        (".example.com.", "ends with a dot"),
        (".exam_ple.com", "is not a DNS name"),
    ] {
        let cluster = raw_cluster(
            "sites",
            json!({ "storage": {}, "webApi": { "rootDomain": root } }),
            "Running",
        );
        let (field, message) = refusal(decide(&bucket(gateway()), &cluster));
        assert_eq!(field, "spec.webApi.rootDomain");
        assert!(
            message.starts_with("GarageCluster sites/garage: ") && message.contains(text),
            "{message}"
        );
    }
}

#[test]
fn an_alias_that_makes_no_host_is_named() {
    let (field, message) = refusal(decide(
        &changed(gateway(), "/status/globalAlias", json!("a..b")),
        &storage(),
    ));
    assert_eq!(field, "status.globalAlias");
    assert!(
        message.contains("\"a..b.example.com\"") && message.contains("spec.globalAlias"),
        "{message}"
    );
}

#[test]
fn a_bind_address_that_a_service_cannot_reach_is_named_where_the_number_is_needed() {
    let cluster = cluster_in(
        "sites",
        json!({ "storage": {}, "webApi": { "bindAddress": "127.0.0.1:3902" } }),
    );
    assert_eq!(
        refusal(decide(&bucket(gateway()), &cluster)).0,
        "spec.webApi.bindAddress"
    );
    assert!(
        decide(&bucket(json!({ "ingress": {} })), &cluster).is_ok(),
        "an Ingress uses the port's name"
    );
    let with_port = with(gateway(), "backendRef", json!({ "name": "proxy", "port": 80 }));
    assert!(decide(&bucket(with_port), &cluster).is_ok());
}

#[test]
fn a_handle_needs_a_backend_and_for_most_hostnames_a_root_domain() {
    let handle = |web: Value| raw_cluster("sites", json!({ "connectTo": {}, "webApi": web }), "Running");
    let rooted = handle(json!({ "rootDomain": ".example.com" }));
    let (field, message) = refusal(decide(&bucket(gateway()), &rooted));
    assert_eq!(field, "spec.websiteExposure.backendRef");
    assert!(
        message.contains("GarageCluster sites/garage runs elsewhere and has no Service"),
        "{message}"
    );

    let backed = with(gateway(), "backendRef", json!({ "name": "external" }));
    assert_eq!(
        decide(&bucket(backed.clone()), &rooted).unwrap().backend.name,
        "external"
    );

    let unrooted = handle(json!({}));
    for hostnames in [json!([]), json!(["www.other.net"])] {
        let result = decide(&bucket(with(backed.clone(), "hostnames", hostnames)), &unrooted);
        let (field, message) = refusal(result);
        assert_eq!(field, "spec.webApi.rootDomain");
        assert!(message.starts_with("GarageCluster sites/garage: "), "{message}");
    }
    let bare = with(backed, "hostnames", json!(["blog"]));
    assert_eq!(decide(&bucket(bare), &unrooted).unwrap().hostnames, ["blog"]);
}

#[test]
fn what_the_bucket_says_by_itself_comes_before_the_cluster() {
    let bucket = bucket(with(gateway(), "hostnames", json!(["A.net"])));
    assert!(matches!(
        decide_with(&bucket, ClusterLookup::Missing, &[]),
        Err(Blocked::Invalid(_))
    ));
    let off = changed(gateway(), "/spec/website/enabled", json!(false));
    assert_eq!(
        decide_with(&off, ClusterLookup::Missing, &[]),
        Err(Blocked::WebsiteOff)
    );
}

// ---- invariants -----------------------------------------------------------------------------------------------------

/// Names that collide often: aliases under and beside the root domain, hosts of both.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "blog",
        "www",
        "blog.example.com",
        "www.example.com",
        "blog.example.com.example.com",
        "example.com",
        "com",
        "www.other.net",
        "other.net",
        "a..b",
        "Blog",
        "*.example.com",
        "192.0.2.1",
        "garage-rsv-1",
        "blog.garage.sites.svc",
        "x.",
        "",
    ])
    .prop_map(str::to_owned)
}

fn root() -> impl Strategy<Value = Option<String>> {
    let known = prop::sample::select(vec![
        ".example.com",
        "example.com",
        "com",
        ".",
        "",
        ".Example.com",
        "other.net",
        "net.",
    ]);
    prop::option::of(known.prop_map(str::to_owned))
}

prop_compose! {
    fn inputs()(
        alias in name(),
        root in root(),
        hostnames in prop::collection::vec(name(), 0..4),
        tiers in 0..4usize,
        via in 0..4usize,
        backend in prop::option::of(prop::sample::select(vec![
            json!({ "name": "proxy" }),
            json!({ "name": "proxy", "port": 81 }),
            json!({ "name": "proxy", "namespace": "storage" }),
            json!({ "name": "proxy", "kind": "ServiceImport", "group": "multicluster.x-k8s.io" }),
        ])),
        elsewhere in any::<bool>(),
        granted in any::<bool>(),
        extra in prop::collection::btree_map("[a-z]{1,3}", "[a-z]{0,3}", 0..3),
    ) -> (GarageBucket, GarageCluster, Vec<GarageReferenceGrant>) {
        let settings = json!({ "labels": extra, "annotations": extra });
        let mut exposure = json!({ "hostnames": hostnames });
        if via & 1 == 0 {
            exposure["ingress"] = settings.clone();
        }
        if via & 2 == 0 && via != 0 || via == 1 {
            exposure["gateway"] = json!({ "parentRefs": [{ "name": "public" }], "labels": extra, "annotations": extra });
        }
        if let Some(backend) = backend {
            exposure["backendRef"] = backend;
        }
        let namespace = if elsewhere { "storage" } else { "sites" };
        let mut bucket = changed(exposure, "/status/globalAlias", json!(alias));
        bucket.spec.cluster_ref.namespace = Some(namespace.to_owned());
        let spec = [
            json!({ "storage": {} }), json!({ "storage": {}, "gateway": {} }), json!({ "gateway": {}, "connectTo": {} }),
            json!({ "connectTo": {} }),
        ];
        let mut spec = spec[tiers].clone();
        if let Some(root) = root {
            spec["webApi"] = json!({ "rootDomain": root });
        }
        (bucket, raw_cluster(namespace, spec, "Running"), if granted { vec![grant()] } else { vec![] })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// I1: nothing generated matches a host that is not listed; no host, no object.
    /// I2: nothing outside the bucket's namespace, no Service, no key that the user did not write.
    /// I3: a hostname goes to Garage as it is only if Garage resolves it to this bucket; else it is rewritten to one.
    #[test]
    fn invariants_hold_for_whatever_is_generated((bucket, cluster, grants) in inputs()) {
        let grants: Vec<&GarageReferenceGrant> = grants.iter().collect();
        let Ok(resolved) = decide_with(&bucket, ClusterLookup::Found(&cluster), &grants) else { return Ok(()) };
        let body = resolved.body();
        let exposure = bucket.spec.website_exposure.as_ref().unwrap();
        let alias = bucket.status.as_ref().unwrap().global_alias.clone().unwrap();
        let root = cluster::root_domain(&cluster).unwrap();

        let listed = exposure.hostnames.clone().unwrap_or_default();
        let expected = if listed.is_empty() {
            vec![root.as_ref().unwrap().canonical_host(&alias).unwrap()]
        } else {
            listed
        };
        let matched: Vec<Option<&str>> = match resolved.kind() {
            ExposureKind::Ingress => {
                prop_assert!(body["spec"].get("defaultBackend").is_none());
                body["spec"]["rules"].as_array().unwrap().iter().map(|rule| rule["host"].as_str()).collect()
            }
            ExposureKind::HttpRoute => {
                body["spec"]["hostnames"].as_array().unwrap().iter().map(Value::as_str).collect()
            }
        };
        prop_assert!(!matched.is_empty());
        prop_assert_eq!(matched, expected.iter().map(|host| Some(host.as_str())).collect::<Vec<_>>());

        prop_assert_eq!(&body["metadata"]["namespace"], "sites");
        prop_assert_eq!(&body["kind"], resolved.kind().as_str());
        let (labels, annotations) = match (&exposure.ingress, &exposure.gateway) {
            (Some(ingress), _) => (&ingress.labels, &ingress.annotations),
            (_, Some(gateway)) => (&gateway.labels, &gateway.annotations),
            _ => unreachable!("nothing is resolved without a kind"),
        };
        let mut labels = labels.clone().unwrap();
        labels.insert(BUCKET_LABEL.into(), "blog".into());
        prop_assert_eq!(&body["metadata"]["labels"], &json!(labels));
        let annotations = annotations.clone().unwrap();
        let written = body["metadata"].get("annotations").cloned();
        prop_assert_eq!(written, (!annotations.is_empty()).then(|| json!(annotations)));

        let rewrite = body.pointer("/spec/rules/0/filters/0/urlRewrite/hostname").and_then(Value::as_str);
        for host in &expected {
            let sent = rewrite.unwrap_or(host);
            match &root {
                Some(root) => prop_assert_eq!(hostname::resolve(sent, root.as_str()), Some(alias.clone()), "{}", sent),
                // Unknown root domain: right for every one that there could be.
                None => for root in ["com", "example.com", "g", "log"] {
                    prop_assert_eq!(hostname::resolve(sent, root), Some(alias.clone()), "{}", sent);
                },
            }
        }
    }

    /// Whatever is generated or refused is the same the next time: no write without a change.
    #[test]
    fn decisions_and_messages_are_stable((bucket, cluster, grants) in inputs()) {
        let grants: Vec<&GarageReferenceGrant> = grants.iter().collect();
        let decide = || decide_with(&bucket, ClusterLookup::Found(&cluster), &grants);
        match (decide(), decide()) {
            (Ok(one), Ok(two)) => prop_assert_eq!(one.body().to_string(), two.body().to_string()),
            (Err(one), Err(two)) => {
                prop_assert_eq!(one.to_string(), two.to_string());
                prop_assert!(!one.to_string().contains('\n'));
            }
            (one, two) => prop_assert!(false, "{:?} and then {:?}", one, two),
        }
    }

    /// Bodies hold neither nulls nor empty collections: either would be a change on every apply.
    #[test]
    fn bodies_hold_nothing_empty((bucket, cluster, grants) in inputs()) {
        fn walk(value: &Value, path: &str) -> Result<(), TestCaseError> {
            match value {
                Value::Null => prop_assert!(false, "{} is null", path),
                Value::Object(map) => {
                    prop_assert!(!map.is_empty(), "{} is empty", path);
                    for (key, value) in map { walk(value, &format!("{path}/{key}"))?; }
                }
                Value::Array(items) => {
                    prop_assert!(!items.is_empty(), "{} is empty", path);
                    for value in items { walk(value, path)?; }
                }
                _ => {}
            }
            Ok(())
        }
        let grants: Vec<&GarageReferenceGrant> = grants.iter().collect();
        if let Ok(resolved) = decide_with(&bucket, ClusterLookup::Found(&cluster), &grants) {
            walk(&resolved.body(), "")?;
        }
    }
}

/// The generator above reaches what the invariants are about.
#[test]
fn the_generator_produces_both_kinds_and_rewrites() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut ingresses, mut routes, mut rewrites) = (0, 0, 0);
    for _ in 0..2000 {
        let (bucket, cluster, grants) = inputs().new_tree(&mut runner).unwrap().current();
        let grants: Vec<&GarageReferenceGrant> = grants.iter().collect();
        match decide_with(&bucket, ClusterLookup::Found(&cluster), &grants).map(|resolved| resolved.via) {
            Ok(Via::Ingress(_)) => ingresses += 1,
            Ok(Via::HttpRoute(settings)) => {
                routes += 1;
                rewrites += usize::from(settings.rewrite_to.is_some());
            }
            Err(_) => {}
        }
    }
    assert!(
        ingresses > 20 && routes > 50 && rewrites > 20,
        "{ingresses} {routes} {rewrites}"
    );
}

// ---- limits of the installation -------------------------------------------------------------------------------------

fn limited(bucket: &GarageBucket, guards: &Guards) -> Result<Resolved, Blocked> {
    let cluster = storage();
    resolve(&Inputs {
        bucket,
        cluster: ClusterLookup::Found(&cluster),
        grants: Vec::new(),
        unseen_grants: None,
        namespace_labels: None,
        guards,
    })
}

#[test]
fn a_hostname_outside_of_the_allowed_suffixes_is_named_with_them() {
    let guards = Guards {
        hostname_suffixes: vec!["example.org".into(), "sites.net".into()],
        ..Guards::default()
    };
    // listed: by its place
    let hosts = json!(["www.example.org", "badexample.org"]);
    assert_eq!(
        refusal(limited(&bucket(with(gateway(), "hostnames", hosts)), &guards)),
        (
            "spec.websiteExposure.hostnames[1]".to_owned(),
            "GarageBucket sites/blog: spec.websiteExposure.hostnames[1] \"badexample.org\" is not allowed here: use \
             example.org or sites.net or a name below"
                .to_owned()
        )
    );
    // the default one: by where another one can be listed
    for exposure in [gateway(), json!({ "ingress": {} })] {
        assert_eq!(
            refusal(limited(&bucket(exposure), &guards)),
            (
                "spec.websiteExposure.hostnames".to_owned(),
                "GarageBucket sites/blog: spec.websiteExposure.hostnames is not set, and the default hostname \
                 \"blog.example.com\" is not allowed here: use example.org or sites.net or a name below"
                    .to_owned()
            )
        );
    }
    // what is inside goes through
    let inside = with(gateway(), "hostnames", json!(["www.example.org", "sites.net"]));
    assert_eq!(limited(&bucket(inside), &guards).unwrap().hostnames.len(), 2);
    // and the row is that of a bad hostname: an old object stays, none is made
    let effect = limited(&bucket(gateway()), &guards).unwrap_err().effect();
    assert_eq!(effect.child, ChildEffect::Kept);
    assert_eq!(effect.retry, Some(Duration::from_secs(300)));
}

#[test]
fn an_annotation_outside_of_the_allowed_prefixes_is_named_with_them() {
    let guards = Guards {
        ingress_annotation_prefixes: vec!["cert-manager.io/".into()],
        httproute_annotation_prefixes: vec!["external-dns.alpha.kubernetes.io/".into(), "team/".into()],
        ..Guards::default()
    };
    let annotated = |mut exposure: Value, kind: &str, key: &str| {
        exposure[kind]["annotations"] = json!({ "cert-manager.io/issuer": "x", key: "y" });
        bucket(exposure)
    };
    let ingress = json!({ "ingress": {} });
    let snippet = "nginx.ingress.kubernetes.io/server-snippet";
    assert_eq!(
        refusal(limited(&annotated(ingress.clone(), "ingress", snippet), &guards)),
        (
            "spec.websiteExposure.ingress.annotations".to_owned(),
            format!(
                "GarageBucket sites/blog: spec.websiteExposure.ingress.annotations \"{snippet}\" is not allowed \
                 here: keys begin with cert-manager.io/"
            )
        )
    );
    assert!(
        limited(
            &annotated(ingress, "ingress", "cert-manager.io/cluster-issuer"),
            &guards
        )
        .is_ok()
    );
    // each kind by its own list
    assert_eq!(
        refusal(limited(&annotated(gateway(), "gateway", "team/x"), &guards)),
        (
            "spec.websiteExposure.gateway.annotations".to_owned(),
            "GarageBucket sites/blog: spec.websiteExposure.gateway.annotations \"cert-manager.io/issuer\" is not \
             allowed here: keys begin with external-dns.alpha.kubernetes.io/ or team/"
                .to_owned()
        )
    );
}
