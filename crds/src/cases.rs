//! Admission cases: for every rule of the CRDs one object that passes and one that does not.
//!
//! Data only. A test with a real API server sends each case and compares; see [`cel_cases`].

use serde_json::{Value, json};

/// What the API server must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The object is stored.
    Accept,
    /// The object is refused with 422 and a message that contains this text.
    Reject(&'static str),
}

/// One object to be sent to a real API server that has the CRDs of this crate.
#[derive(Clone, Debug, PartialEq)]
pub struct CelCase {
    /// Unique, in words. The name of the object is unique as well.
    pub name: &'static str,
    /// Stored beforehand, status included, in the same namespace under the same name: the case is then an update of
    /// this one. `None`: the case is a creation.
    pub old: Option<Value>,
    /// The object that is sent. It has no namespace; a test gives it one.
    pub object: Value,
    /// The answer.
    pub expected: Expected,
}

/// Every admission case. Each rule has at least one object that it accepts and one that it refuses.
pub fn cel_cases() -> Vec<CelCase> {
    let mut cases = Vec::new();
    bucket_cases(&mut cases);
    cluster_cases(&mut cases);
    grant_cases(&mut cases);
    tyk_cases(&mut cases);
    for (i, case) in cases.iter_mut().enumerate() {
        for object in std::iter::once(&mut case.object).chain(&mut case.old) {
            if let Some(fields) = object.as_object_mut() {
                fields.insert("metadata".into(), json!({ "name": format!("case-{i}") }));
            }
        }
    }
    cases
}

use Expected::{Accept, Reject};

fn bucket(spec: Value) -> Value {
    json!({ "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "spec": spec })
}

fn cluster(spec: Value) -> Value {
    json!({ "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "spec": spec })
}

fn grant(spec: Value) -> Value {
    json!({ "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant", "spec": spec })
}

/// A bucket with website on and this exposure.
fn exposing(exposure: Value) -> Value {
    bucket(json!({
        "clusterRef": { "name": "garage" },
        "website": { "enabled": true },
        "websiteExposure": exposure,
    }))
}

fn with_hostnames(hostnames: Value) -> Value {
    exposing(json!({ "hostnames": hostnames, "ingress": {} }))
}

fn bucket_cases(cases: &mut Vec<CelCase>) {
    let mut create = |name, object, expected| {
        cases.push(CelCase {
            name,
            old: None,
            object,
            expected,
        })
    };

    create(
        "bucket: the smallest",
        bucket(json!({ "clusterRef": { "name": "garage" } })),
        Accept,
    );
    create(
        "bucket: no clusterRef",
        bucket(json!({})),
        Reject("spec.clusterRef"),
    );
    create(
        "bucket: clusterRef without name",
        bucket(json!({ "clusterRef": {} })),
        Reject("spec.clusterRef.name"),
    );
    create(
        "bucket: kubeConfigSecretRef",
        bucket(
            json!({ "clusterRef": { "name": "garage", "kubeConfigSecretRef": { "name": "s", "key": "k" } } }),
        ),
        Reject("clusterRef.kubeConfigSecretRef is reserved"),
    );
    create(
        "bucket: fields of other operators are kept",
        bucket(json!({
            "clusterRef": { "name": "garage", "namespace": "storage" },
            "globalAlias": "site",
            "localAliases": [{ "keyRef": "k", "alias": "a" }],
            "keyPermissions": [{ "keyRef": { "name": "k" }, "read": true }],
            "lifecycle": { "rules": [{ "id": "r", "status": "Enabled", "expirationDays": 3 }] },
            "quotas": { "maxSize": "10Gi", "maxObjects": 5 },
            "website": { "enabled": true, "errorDocument": "e.html", "routing": { "new": 1 } },
            "somethingNew": { "a": [1, 2] },
        })),
        Accept,
    );
    create(
        "bucket: maxSize as a number",
        bucket(json!({ "clusterRef": { "name": "garage" }, "quotas": { "maxSize": 5_000_000 } })),
        Accept,
    );
    create(
        "bucket: negative maxSize",
        bucket(json!({ "clusterRef": { "name": "garage" }, "quotas": { "maxSize": "-1" } })),
        Reject("spec.quotas.maxSize"),
    );
    create(
        "bucket: negative maxObjects",
        bucket(json!({ "clusterRef": { "name": "garage" }, "quotas": { "maxObjects": -1 } })),
        Reject("spec.quotas.maxObjects"),
    );
    create(
        "bucket: deletionPolicy Retain",
        bucket(json!({ "clusterRef": { "name": "garage" }, "deletionPolicy": "Retain" })),
        Accept,
    );
    create(
        "bucket: unknown deletionPolicy",
        bucket(json!({ "clusterRef": { "name": "garage" }, "deletionPolicy": "Orphan" })),
        Reject("spec.deletionPolicy"),
    );

    create("exposure: ingress", exposing(json!({ "ingress": {} })), Accept);
    create(
        "exposure: ingress with everything",
        exposing(json!({
            "hostnames": ["www.example.com", "site"],
            "backendRef": { "group": "", "kind": "Service", "name": "web", "port": 8080 },
            "ingress": {
                "ingressClassName": "nginx", "tlsSecretName": "tls",
                "labels": { "a": "b" }, "annotations": { "cert-manager.io/cluster-issuer": "x" },
            },
        })),
        Accept,
    );
    create(
        "exposure: gateway with everything",
        exposing(json!({
            "hostnames": ["www.example.com"],
            "backendRef": {
                "group": "multicluster.x-k8s.io", "kind": "ServiceImport", "name": "garage", "namespace": "garage-ns",
            },
            "gateway": {
                "parentRefs": [
                    { "name": "public", "namespace": "gw", "sectionName": "https", "port": 443,
                      "group": "gateway.networking.k8s.io", "kind": "Gateway" },
                    { "name": "private" },
                ],
                "labels": { "a": "b" }, "annotations": { "c": "d" },
            },
        })),
        Accept,
    );
    create(
        "exposure: neither ingress nor gateway",
        exposing(json!({})),
        Reject("spec.websiteExposure: set exactly one of ingress and gateway"),
    );
    create(
        "exposure: both ingress and gateway",
        exposing(json!({ "ingress": {}, "gateway": { "parentRefs": [{ "name": "g" }] } })),
        Reject("spec.websiteExposure: set exactly one of ingress and gateway"),
    );
    create(
        "exposure: website absent",
        bucket(json!({ "clusterRef": { "name": "garage" }, "websiteExposure": { "ingress": {} } })),
        Reject("spec.websiteExposure needs spec.website.enabled: true"),
    );
    create(
        "exposure: website.enabled absent",
        bucket(json!({
            "clusterRef": { "name": "garage" }, "website": {}, "websiteExposure": { "ingress": {} },
        })),
        Reject("spec.websiteExposure needs spec.website.enabled: true"),
    );
    create(
        "exposure: website.enabled false",
        bucket(json!({
            "clusterRef": { "name": "garage" },
            "website": { "enabled": false },
            "websiteExposure": { "ingress": {} },
        })),
        Reject("spec.websiteExposure needs spec.website.enabled: true"),
    );

    create("hostnames: none", with_hostnames(json!([])), Accept);
    create(
        "hostnames: single label, digits, punycode, 63 characters in a label",
        with_hostnames(json!([
            "site",
            "1.example.com",
            "xn--bcher-kva.example",
            "a".repeat(63)
        ])),
        Accept,
    );
    create(
        "hostnames: 253 characters",
        with_hostnames(json!([long_host(253)])),
        Accept,
    );
    create(
        "hostnames: 254 characters",
        with_hostnames(json!([long_host(254)])),
        Reject("spec.websiteExposure.hostnames"),
    );
    create(
        "hostnames: sixteen",
        with_hostnames(
            (0..16)
                .map(|i| Value::from(format!("h{i}.{}", long_host(240))))
                .collect(),
        ),
        Accept,
    );
    create(
        "hostnames: seventeen",
        with_hostnames(
            (0..17)
                .map(|i| Value::from(format!("h{i}.example.com")))
                .collect(),
        ),
        Reject("spec.websiteExposure.hostnames"),
    );
    create(
        "hostnames: empty",
        with_hostnames(json!([""])),
        Reject("spec.websiteExposure.hostnames"),
    );
    for (name, host) in [
        ("hostnames: upper case", "WWW.example.com"),
        ("hostnames: port", "www.example.com:80"),
        ("hostnames: trailing dot", "www.example.com."),
        ("hostnames: empty label", "www..example.com"),
        ("hostnames: label that starts with a dash", "-www.example.com"),
        ("hostnames: label that ends with a dash", "www-.example.com"),
        ("hostnames: underscore", "my_site.example.com"),
        ("hostnames: line break at the end", "www.example.com\n"),
    ] {
        create(
            name,
            with_hostnames(json!([host])),
            Reject("hostnames: must be lower-case DNS names"),
        );
    }
    create(
        "hostnames: 64 characters in a label",
        with_hostnames(json!([format!("{}.example.com", "a".repeat(64))])),
        Reject("hostnames: must be lower-case DNS names"),
    );
    create(
        "hostnames: wildcard",
        with_hostnames(json!(["*.example.com"])),
        Reject("hostnames: wildcards are not supported"),
    );
    create(
        "hostnames: IPv4 address",
        with_hostnames(json!(["192.0.2.1"])),
        Reject("hostnames: an IP address is not a hostname"),
    );
    create(
        "hostnames: IPv6 address",
        with_hostnames(json!(["2001:db8::1"])),
        Reject("hostnames: an IP address is not a hostname"),
    );
    create(
        "hostnames: twice",
        with_hostnames(json!(["a.example.com", "b.example.com", "a.example.com"])),
        Reject("hostnames: each hostname may be listed once"),
    );
    create(
        "hostnames: twice in different case",
        with_hostnames(json!(["a.example.com", "A.example.com"])),
        Reject("hostnames: each hostname may be listed once"),
    );

    create(
        "backendRef: kind left out, for an ingress",
        exposing(json!({ "backendRef": { "name": "web" }, "ingress": {} })),
        Accept,
    );
    create(
        "backendRef: another kind, for an ingress",
        exposing(json!({ "backendRef": { "kind": "ServiceImport", "name": "web" }, "ingress": {} })),
        Reject("spec.websiteExposure.backendRef: an Ingress can only point to a core Service"),
    );
    create(
        "backendRef: another group, for an ingress",
        exposing(json!({
            "backendRef": { "group": "multicluster.x-k8s.io", "kind": "Service", "name": "web" }, "ingress": {},
        })),
        Reject("spec.websiteExposure.backendRef: an Ingress can only point to a core Service"),
    );
    create(
        "backendRef: no name",
        exposing(json!({ "backendRef": { "kind": "Service" }, "ingress": {} })),
        Reject("spec.websiteExposure.backendRef.name"),
    );
    create(
        "backendRef: port 0",
        exposing(json!({ "backendRef": { "name": "web", "port": 0 }, "ingress": {} })),
        Reject("spec.websiteExposure.backendRef.port"),
    );
    create(
        "backendRef: port 65536",
        exposing(json!({ "backendRef": { "name": "web", "port": 65536 }, "ingress": {} })),
        Reject("spec.websiteExposure.backendRef.port"),
    );
    create(
        "parentRefs: left out",
        exposing(json!({ "gateway": {} })),
        Reject("spec.websiteExposure.gateway.parentRefs"),
    );
    create(
        "parentRefs: empty",
        exposing(json!({ "gateway": { "parentRefs": [] } })),
        Reject("spec.websiteExposure.gateway.parentRefs"),
    );
    create(
        "parentRefs: no name",
        exposing(json!({ "gateway": { "parentRefs": [{ "name": "a" }, { "sectionName": "http" }] } })),
        Reject("spec.websiteExposure.gateway.parentRefs[1].name"),
    );
    create(
        "parentRefs: empty name",
        exposing(json!({ "gateway": { "parentRefs": [{ "name": "" }] } })),
        Reject("spec.websiteExposure.gateway.parentRefs[0].name"),
    );

    let mut update = |name, old, object, expected| {
        cases.push(CelCase {
            name,
            old: Some(old),
            object,
            expected,
        })
    };
    let in_cluster = |reference: Value| bucket(json!({ "clusterRef": reference }));
    update(
        "clusterRef: unchanged",
        in_cluster(json!({ "name": "garage", "namespace": "storage" })),
        bucket(json!({ "clusterRef": { "name": "garage", "namespace": "storage" }, "globalAlias": "other" })),
        Accept,
    );
    update(
        "clusterRef: another name",
        in_cluster(json!({ "name": "garage" })),
        in_cluster(json!({ "name": "other" })),
        Reject("spec.clusterRef cannot change"),
    );
    update(
        "clusterRef: another namespace",
        in_cluster(json!({ "name": "garage", "namespace": "a" })),
        in_cluster(json!({ "name": "garage", "namespace": "b" })),
        Reject("spec.clusterRef cannot change"),
    );
    update(
        "clusterRef: namespace removed",
        in_cluster(json!({ "name": "garage", "namespace": "a" })),
        in_cluster(json!({ "name": "garage" })),
        Reject("spec.clusterRef cannot change"),
    );
    let adopting = |id: Option<&str>, recorded: Option<&str>| {
        let mut object = bucket(json!({ "clusterRef": { "name": "garage" } }));
        if let (Some(id), Some(spec)) = (id, object.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.insert("bucketId".into(), id.into());
        }
        if let (Some(id), Some(fields)) = (recorded, object.as_object_mut()) {
            fields.insert("status".into(), json!({ "bucketId": id }));
        }
        object
    };
    update(
        "bucketId: changed before it is recorded",
        adopting(Some("a"), None),
        adopting(Some("b"), None),
        Accept,
    );
    update(
        "bucketId: unchanged once recorded",
        adopting(Some("a"), Some("a")),
        adopting(Some("a"), None),
        Accept,
    );
    update(
        "bucketId: changed once recorded",
        adopting(Some("a"), Some("a")),
        adopting(Some("b"), None),
        Reject("spec.bucketId cannot change"),
    );
    update(
        "bucketId: removed once recorded",
        adopting(Some("a"), Some("a")),
        adopting(None, None),
        Reject("spec.bucketId cannot change"),
    );
    update(
        "bucketId: set to the recorded one",
        adopting(None, Some("a")),
        adopting(Some("a"), None),
        Accept,
    );
    update(
        "bucketId: set to another once recorded",
        adopting(None, Some("a")),
        adopting(Some("b"), None),
        Reject("spec.bucketId cannot change"),
    );
    update(
        "exposure: from ingress to gateway",
        exposing(json!({ "ingress": {} })),
        exposing(json!({ "gateway": { "parentRefs": [{ "name": "g" }] } })),
        Accept,
    );
    update(
        "exposure: website switched off under it",
        exposing(json!({ "ingress": {} })),
        bucket(json!({
            "clusterRef": { "name": "garage" },
            "website": { "enabled": false },
            "websiteExposure": { "ingress": {} },
        })),
        Reject("spec.websiteExposure needs spec.website.enabled: true"),
    );
}

/// A hostname of exactly this many characters, made of short labels.
fn long_host(length: usize) -> String {
    let mut host = "abcdefghi.".repeat(length / 10);
    host.push_str(&"z".repeat(length - host.len()));
    if host.ends_with('.') {
        host.pop();
        host.push('z');
    }
    host
}

fn cluster_cases(cases: &mut Vec<CelCase>) {
    let mut create = |name, object, expected| {
        cases.push(CelCase {
            name,
            old: None,
            object,
            expected,
        })
    };
    let handle = json!({
        "adminApiEndpoint": "http://garage.example.com:3903",
        "adminTokenSecretRef": { "name": "garage-admin", "key": "token" },
    });
    create(
        "cluster: storage",
        cluster(json!({ "storage": { "replicas": 3, "data": { "size": "1Ti" } } })),
        Accept,
    );
    create(
        "cluster: storage and gateway",
        cluster(json!({ "storage": {}, "gateway": { "replicas": 0 } })),
        Accept,
    );
    create(
        "cluster: gateway and connectTo",
        cluster(json!({ "gateway": {}, "connectTo": handle })),
        Accept,
    );
    create(
        "cluster: handle with an endpoint",
        cluster(json!({ "connectTo": handle })),
        Accept,
    );
    create(
        "cluster: handle with a clusterRef",
        cluster(json!({ "connectTo": { "clusterRef": { "name": "garage" } } })),
        Accept,
    );
    create(
        "cluster: fields of other operators are kept",
        cluster(json!({
            "storage": {},
            "replication": { "factor": 3 },
            "zone": "z1",
            "network": { "service": { "type": "LoadBalancer" } },
            "k2vApi": {},
            "s3Api": { "region": "garage", "bindPort": 3900, "cors": true },
            "admin": { "bindPort": 3903, "metricsRequireToken": true },
            "webApi": { "enabled": true, "rootDomain": ".example.com", "bindPort": 3902, "bindAddress": "[::]:3902" },
        })),
        Accept,
    );
    create(
        "cluster: nothing",
        cluster(json!({})),
        Reject("spec: set at least one of storage, gateway and connectTo"),
    );
    create(
        "cluster: gateway alone",
        cluster(json!({ "gateway": {} })),
        Reject("spec.gateway needs spec.storage"),
    );
    create(
        "cluster: storage and connectTo",
        cluster(json!({ "storage": {}, "connectTo": handle })),
        Reject("spec.storage and spec.connectTo exclude each other"),
    );
    create(
        "cluster: handle without token",
        cluster(json!({ "connectTo": { "adminApiEndpoint": "http://garage.example.com:3903" } })),
        Reject("spec.connectTo: a cluster without tiers needs"),
    );
    create(
        "cluster: empty connectTo",
        cluster(json!({ "connectTo": {} })),
        Reject("spec.connectTo: a cluster without tiers needs"),
    );
    create(
        "cluster: kubeConfigSecretRef",
        cluster(json!({ "connectTo": { "clusterRef": { "name": "g", "kubeConfigSecretRef": {} } } })),
        Reject("clusterRef.kubeConfigSecretRef is reserved"),
    );
    create(
        "cluster: web port out of range",
        cluster(json!({ "storage": {}, "webApi": { "bindPort": 70000 } })),
        Reject("spec.webApi.bindPort"),
    );
}

fn grant_cases(cases: &mut Vec<CelCase>) {
    let mut create = |name, object, expected| {
        cases.push(CelCase {
            name,
            old: None,
            object,
            expected,
        })
    };
    create(
        "grant: by namespace",
        grant(json!({ "from": [{ "kind": "GarageBucket", "namespace": "sites" }] })),
        Accept,
    );
    create(
        "grant: by selector, to one cluster",
        grant(json!({
            "from": [{ "kind": "GarageBucket", "namespaceSelector": { "matchLabels": { "team": "web" } } }],
            "to": [{ "kind": "GarageCluster", "name": "garage" }],
        })),
        Accept,
    );
    create(
        "grant: empty selector",
        grant(json!({ "from": [{ "kind": "GarageKey", "namespaceSelector": {} }] })),
        Accept,
    );
    create("grant: from left out", grant(json!({})), Reject("spec.from"));
    create(
        "grant: from empty",
        grant(json!({ "from": [] })),
        Reject("spec.from"),
    );
    create(
        "grant: neither namespace nor selector",
        grant(json!({ "from": [{ "kind": "GarageBucket" }] })),
        Reject("spec.from: set exactly one of namespace and namespaceSelector"),
    );
    create(
        "grant: both namespace and selector",
        grant(json!({ "from": [{ "kind": "GarageBucket", "namespace": "a", "namespaceSelector": {} }] })),
        Reject("spec.from: set exactly one of namespace and namespaceSelector"),
    );
    create(
        "grant: from another kind",
        grant(json!({ "from": [{ "kind": "Pod", "namespace": "a" }] })),
        Reject("spec.from[0].kind"),
    );
    create(
        "grant: to another kind",
        grant(
            json!({ "from": [{ "kind": "GarageBucket", "namespace": "a" }], "to": [{ "kind": "Secret" }] }),
        ),
        Reject("spec.to[0].kind"),
    );
}

fn tyk(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "tyk.tyk.io/v1alpha1", "kind": kind, "spec": spec })
}

/// No rule in CEL here: the schema alone, which must take what was written for Tyk Operator.
fn tyk_cases(cases: &mut Vec<CelCase>) {
    let mut create = |name, object, expected| {
        cases.push(CelCase {
            name,
            old: None,
            object,
            expected,
        })
    };
    create(
        "context: everything that Tyk Operator knows, and a field of a later version",
        tyk(
            "OperatorContext",
            json!({
                "env": {
                    "mode": "pro", "url": "http://dashboard:3000", "auth": "key", "org": "org", "insecureSkipVerify": true,
                    "ingress": { "httpPort": 8080, "httpsPort": 8443 }, "user_owners": ["a"], "user_group_owners": ["b"],
                    "later": [1],
                },
                "secretRef": { "name": "conf", "namespace": "tyk" },
                "dataPlane": { "serviceRef": { "name": "gateway" }, "tags": ["edge"] },
            }),
        ),
        Accept,
    );
    create(
        "context: an unknown mode",
        tyk("OperatorContext", json!({ "env": { "mode": "hybrid" } })),
        Reject("spec.env.mode"),
    );
    create(
        "context: a Secret without name",
        tyk("OperatorContext", json!({ "secretRef": {} })),
        Reject("spec.secretRef.name"),
    );
    create(
        "context: tags that are no list",
        tyk("OperatorContext", json!({ "dataPlane": { "tags": "edge" } })),
        Reject("spec.dataPlane.tags"),
    );
    create(
        "definition: attached",
        tyk(
            "TykOasApiDefinition",
            json!({
                "tykOAS": { "configmapRef": { "name": "doc", "keyName": "oas.json" } },
                "targetRefs": [{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop" }],
            }),
        ),
        Accept,
    );
    create(
        "definition: as Tyk Operator knows it",
        tyk(
            "TykOasApiDefinition",
            json!({
                "tykOAS": { "configmapRef": { "name": "doc", "namespace": "x", "keyName": "oas.json" } },
                "contextRef": { "name": "prod", "namespace": "tyk" }, "categories": ["a"],
                "clientCertificate": { "enabled": true, "allowlist": ["x"] }, "later": {},
                "customDomain": { "enabled": true, "name": "a.example.com" },
                "versioning": { "enabled": false },
            }),
        ),
        Accept,
    );
    create(
        "definition: without reference, which its condition tells",
        tyk("TykOasApiDefinition", json!({ "tykOAS": {} })),
        Accept,
    );
    create(
        "definition: without tykOAS",
        tyk("TykOasApiDefinition", json!({})),
        Reject("spec.tykOAS"),
    );
    create(
        "definition: a target without name",
        tyk(
            "TykOasApiDefinition",
            json!({ "tykOAS": {}, "targetRefs": [{ "group": "gateway.networking.k8s.io", "kind": "Gateway" }] }),
        ),
        Reject("spec.targetRefs[0].name"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GarageBucket, GarageCluster, GarageReferenceGrant, OperatorContext, TykOasApiDefinition};

    #[test]
    fn names_are_unique() {
        let cases = cel_cases();
        let names: std::collections::BTreeSet<_> = cases.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn long_host_is_as_long_as_asked() {
        for length in [240, 241, 249, 250, 253, 254] {
            let host = long_host(length);
            assert_eq!(host.len(), length);
            assert!(!host.ends_with('.') && !host.contains(".."));
        }
    }

    #[test]
    fn what_the_server_accepts_can_be_decoded_and_written_without_nulls() {
        for case in cel_cases().into_iter().filter(|c| c.expected == Accept) {
            let kind = case.object["kind"].as_str().unwrap_or_default();
            let written = match kind {
                "GarageBucket" => round_trip::<GarageBucket>(&case),
                "GarageCluster" => round_trip::<GarageCluster>(&case),
                "GarageReferenceGrant" => round_trip::<GarageReferenceGrant>(&case),
                "OperatorContext" => round_trip::<OperatorContext>(&case),
                "TykOasApiDefinition" => round_trip::<TykOasApiDefinition>(&case),
                other => panic!("{}: kind {other}", case.name),
            };
            assert!(!written.contains("null"), "{}: {written}", case.name);
        }
    }

    fn round_trip<K: serde::de::DeserializeOwned + serde::Serialize>(case: &CelCase) -> String {
        let object: K =
            serde_json::from_value(case.object.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        serde_json::to_string(&object).unwrap()
    }

    #[test]
    fn parts_that_are_not_used_cannot_make_an_object_undecodable() {
        let object = json!({
            "apiVersion": "garage.rajsingh.info/v1beta1",
            "kind": "GarageBucket",
            "metadata": { "name": "b" },
            "spec": {
                "clusterRef": { "name": "c" },
                "deletionPolicy": "Someday",
                "lifecycle": { "rules": "odd" },
                "keyPermissions": [{ "keyRef": 3 }],
                "brandNew": [[1]],
            },
            "status": { "phase": "Pondering", "keys": 7, "websiteExposure": { "type": "Tunnel" } },
        });
        let bucket: GarageBucket = serde_json::from_value(object).unwrap();
        assert_eq!(bucket.spec.deletion_policy, Some(crate::DeletionPolicy::Unknown));
        assert_eq!(bucket.status.unwrap().phase.as_deref(), Some("Pondering"));
    }
}
