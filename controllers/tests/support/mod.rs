//! The whole operator on the in-process API server: what stories about exposure are told with.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::time::Duration;

use reconcile_kit::{
    runtime::{Metrics, Scope, leadership::Leadership},
    testing::{ApiServer, Call, Mark, ResourceDef, Verb},
};
use routewright::app::{App, Options};
use serde_json::{Value, json};

/// User that the operator acts as.
pub const OPERATOR: &str = "system:serviceaccount:routewright:routewright";

/// Flags off, everything else by default.
pub fn options() -> Options {
    Options {
        enable_ingress: false,
        enable_gateway_api: false,
        enable_garage_buckets: false,
        scope: Scope::All,
        cluster_domain: "cluster.local".into(),
        concurrency: 16,
        instance: "one".into(),
        pod: Some("pod-1".into()),
        extra_ca: None,
    }
}

/// Both exposure flags on.
pub fn both() -> Options {
    Options {
        enable_ingress: true,
        enable_gateway_api: true,
        ..options()
    }
}

/// A server with namespaces, the Garage CRDs, an IngressClass and, by `gateway_api`, HTTPRoute.
pub fn server(gateway_api: bool) -> ApiServer {
    let server = ApiServer::new();
    server.namespace("web").namespace("storage");
    for crd in routewright_crds::all().unwrap() {
        server.create(json!(crd));
    }
    server.create(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": "public", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "example.org/controller"},
    }));
    if gateway_api {
        install_gateway_api(&server);
    }
    server
}

/// The CRD object by which the API server begins to serve HTTPRoute.
pub fn install_gateway_api(server: &ApiServer) {
    server.serve(ResourceDef::http_route());
    server.create(http_route_crd());
}

fn http_route_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "httproutes.gateway.networking.k8s.io"},
        "spec": {
            "group": "gateway.networking.k8s.io", "scope": "Namespaced",
            "names": {"kind": "HTTPRoute", "listKind": "HTTPRouteList", "plural": "httproutes", "singular": "httproute"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// A Running cluster `web/garage` under the root domain `.site.test`.
pub fn cluster() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "garage"},
        "spec": {"storage": {"replicas": 1}, "webApi": {"rootDomain": ".site.test"}},
        "status": {"phase": "Running"},
    })
}

/// A bucket `web/blog` with alias `blog` and a website, exposed as `exposure` says.
pub fn bucket(exposure: Value) -> Value {
    let mut bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog"},
        "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true}},
        "status": {"bucketId": "b1", "globalAlias": "blog", "phase": "Ready"},
    });
    if !exposure.is_null() {
        bucket["spec"]["websiteExposure"] = exposure;
    }
    bucket
}

/// Exposed by an Ingress.
pub fn by_ingress() -> Value {
    json!({"ingress": {"ingressClassName": "public"}})
}

/// Exposed by an HTTPRoute.
pub fn by_route() -> Value {
    json!({"gateway": {"parentRefs": [{"name": "public"}]}})
}

/// Creates an object together with its status.
pub fn put(server: &ApiServer, object: Value) {
    let status = object.get("status").cloned();
    let (kind, namespace, name) = (
        object["kind"].as_str().unwrap().to_owned(),
        object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        object["metadata"]["name"].as_str().unwrap().to_owned(),
    );
    server.create(object);
    if let Some(status) = status {
        server.set_status(&kind, &namespace, &name, status);
    }
}

/// Starts the operator.
pub fn start(server: &ApiServer, options: &Options) -> App {
    App::start(
        server.client_as(OPERATOR),
        Leadership::always(),
        Metrics::default(),
        options,
    )
    .unwrap()
}

/// Waits until `wanted` gives something; fails with the server's log when it does not.
pub async fn eventually<T>(server: &ApiServer, what: &str, mut wanted: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = wanted() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!(
        "{what} did not come about; the server saw:\n{}",
        log(&server.calls())
    );
}

/// Waits until the operator has asked for nothing for a while, and returns what it asked since `mark`.
pub async fn quiet(server: &ApiServer, mark: Mark) -> Vec<String> {
    let mut seen = usize::MAX;
    loop {
        let calls = server.calls_since(mark);
        if calls.len() == seen {
            return lines(&calls);
        }
        seen = calls.len();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// The operator's calls besides watches, lists of watches and discovery.
pub fn lines(calls: &[Call]) -> Vec<String> {
    calls
        .iter()
        .filter(|call| call.user == OPERATOR)
        .filter(|call| call.verb.is_write() || matches!(call.verb, Verb::Get | Verb::GetMetadata))
        .filter(|call| !call.resource.is_empty())
        .map(|call| format!("{call}"))
        .collect()
}

fn log(calls: &[Call]) -> String {
    calls.iter().map(|call| format!("  {call}\n")).collect()
}

/// The bucket's condition as `status/reason: message`.
pub fn condition(server: &ApiServer, name: &str) -> Option<(String, String, String)> {
    let bucket = server.get("GarageBucket", "web", name)?;
    let condition = bucket["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == "WebsiteExposed")?
        .clone();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// Waits for the condition's reason.
pub async fn reason(server: &ApiServer, name: &str, wanted: &str) -> String {
    let what = format!(
        "WebsiteExposed {wanted} of {name} (now {:?})",
        condition(server, name)
    );
    eventually(server, &what, || {
        condition(server, name).filter(|c| c.1 == wanted).map(|c| c.2)
    })
    .await
}
