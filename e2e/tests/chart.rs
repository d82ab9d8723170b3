//! The chart as text: each toggle brings its rights and nothing else; wrong values are refused. No cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeSet;

use routewright_e2e::cluster::switched_on;
use routewright_e2e::operator::chart;
use routewright_e2e::sh;
use routewright_e2e::tools::{Part, Tools};
use serde_json::Value;

fn helm(words: &[&str]) -> Result<String, String> {
    let helm = Tools::open().unwrap().program(Part::Helm, "helm").unwrap();
    sh::run(sh::command(helm, words)).map_err(|e| e.to_string())
}

fn render(sets: &[&str]) -> Result<Vec<Value>, String> {
    let chart = chart().display().to_string();
    let mut words = vec!["template", "routewright", &chart, "-n", "ns1"];
    words.extend(sets.iter().flat_map(|s| ["--set", *s]));
    let text = helm(&words)?;
    Ok(text
        .split("\n---\n")
        .filter_map(|t| serde_saphyr::from_str::<Option<Value>>(t).unwrap())
        .collect())
}

/// Every right of a kind of role as `group/resource:verb`, with the namespaces that it holds in.
fn rights(objects: &[Value], kind: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let list = |v: &Value| -> Vec<String> {
        v.as_array()
            .into_iter()
            .flatten()
            .map(|x| x.as_str().unwrap().to_owned())
            .collect()
    };
    for role in objects.iter().filter(|o| o["kind"] == kind) {
        for rule in role["rules"].as_array().unwrap() {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    for verb in list(&rule["verbs"]) {
                        found.insert(format!("{group}/{resource}:{verb}"));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn each_toggle_brings_its_rights_and_nothing_else() {
    if !switched_on("each_toggle_brings_its_rights_and_nothing_else") {
        return;
    }
    // Given the rights of the chart with every controller off
    let base = rights(&render(&[]).unwrap(), "ClusterRole");
    let more = |set: &str| -> BTreeSet<String> {
        rights(&render(&[set]).unwrap(), "ClusterRole")
            .difference(&base)
            .cloned()
            .collect()
    };
    let writes: Vec<&String> = base
        .iter()
        .filter(|r| {
            !["get", "list", "watch"]
                .iter()
                .any(|v| r.ends_with(&format!(":{v}")))
        })
        .collect();
    assert_eq!(
        writes,
        [
            "events.k8s.io/events:create",
            "events.k8s.io/events:patch",
            "garage.rajsingh.info/garagebuckets/status:patch"
        ]
    );
    // When one is switched on, then exactly its rights are added
    let children = |resource: &str| {
        let verbs = ["get", "list", "watch", "create", "patch", "delete"];
        verbs
            .iter()
            .map(|v| format!("{resource}:{v}"))
            .collect::<BTreeSet<_>>()
    };
    let classes = ["get", "list", "watch"].map(|v| format!("networking.k8s.io/ingressclasses:{v}"));
    assert_eq!(
        more("ingress.enabled=true"),
        children("networking.k8s.io/ingresses")
            .into_iter()
            .chain(classes)
            .collect()
    );
    assert_eq!(
        more("gatewayAPI.enabled=true"),
        children("gateway.networking.k8s.io/httproutes")
    );
    let buckets = [
        "/secrets:get",
        "garage.rajsingh.info/garagebuckets:patch",
        "garage.rajsingh.info/garageclusters/status:patch",
    ];
    assert_eq!(
        more("garageBuckets.enabled=true"),
        buckets.map(str::to_owned).into()
    );
}

#[test]
fn watched_namespaces_are_the_only_ones_with_rights() {
    if !switched_on("watched_namespaces_are_the_only_ones_with_rights") {
        return;
    }
    let objects = render(&["ingress.enabled=true", "watchNamespaces={a,b}"]).unwrap();
    // Then cluster-wide there is only what has no namespace
    let wide = rights(&objects, "ClusterRole");
    assert!(
        wide.iter()
            .all(|r| r.contains("customresourcedefinitions") || r.contains("/namespaces")),
        "{wide:?}"
    );
    // And the rest is in these namespaces and the lease's
    let places: BTreeSet<&str> = objects
        .iter()
        .filter(|o| o["kind"] == "Role")
        .map(|o| o["metadata"]["namespace"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["a", "b", "ns1"].into());
    assert!(rights(&objects, "Role").contains("networking.k8s.io/ingresses:create"));
}

#[test]
fn the_pod_meets_the_restricted_standard_and_is_told_its_flags() {
    if !switched_on("the_pod_meets_the_restricted_standard_and_is_told_its_flags") {
        return;
    }
    let objects = render(&["gatewayAPI.enabled=true", "metrics.port=9000"]).unwrap();
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    let env = |name: &str| {
        let all = container["env"].as_array().unwrap();
        all.iter()
            .find(|e| e["name"] == name)
            .map(|e| e["value"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(env("ENABLE_GATEWAY_API").as_deref(), Some("true"));
    assert_eq!(env("ENABLE_INGRESS").as_deref(), Some("false"));
    assert_eq!(env("METRICS_ADDR").as_deref(), Some("0.0.0.0:9000"));
    assert_eq!(container["ports"][0]["containerPort"], 9000);
}

#[test]
fn wrong_values_are_refused_by_name() {
    if !switched_on("wrong_values_are_refused_by_name") {
        return;
    }
    for (sets, word) in [
        (&["ingres.enabled=true"][..], "ingres"),
        (&["logFormat=xml"][..], "logFormat"),
        (
            &["replicaCount=2", "leaderElection.enabled=false"][..],
            "leaderElection",
        ),
        (&["watchNamespaces={Not_A_Namespace}"][..], "watchNamespaces"),
    ] {
        let error = render(sets).unwrap_err();
        assert!(error.contains(word), "{sets:?}: {error}");
    }
    helm(&["lint", "--strict", &chart().display().to_string()]).unwrap();
}
