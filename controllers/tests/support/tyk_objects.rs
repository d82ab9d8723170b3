//! Gateway API on Tyk as objects: what a cluster has before a test begins, and routes. No assertion about the product.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use reconcile_kit::testing::{ApiServer, ResourceDef, Schema};
use serde_json::{Value, json};

use crate::support;

/// Where the first Tyk is, as far as nobody is asked there.
pub const URL: &str = "http://tyk.tyk.svc:8080";

const GROUP: &str = "gateway.networking.k8s.io";

fn crd(kind: &str, plural: &str, version: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}"),
                     "annotations": {"gateway.networking.k8s.io/bundle-version": "v1.6.1"}},
        "spec": {"group": GROUP, "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

/// The API server with everything installed, and the platform on it.
pub fn installed() -> ApiServer {
    let server = support::server(false);
    server.namespace("tyk").namespace("infra").namespace("shop");
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    server.serve(
        ResourceDef::custom("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
            .without_status()
            .with_schema(Schema::from_openapi(&open).open()),
    );
    for (crd, def) in [
        (
            crd("GatewayClass", "gatewayclasses", "v1", "Cluster"),
            ResourceDef::gateway_class(),
        ),
        (
            crd("Gateway", "gateways", "v1", "Namespaced"),
            ResourceDef::gateway(),
        ),
        (
            crd("HTTPRoute", "httproutes", "v1", "Namespaced"),
            ResourceDef::http_route(),
        ),
        (
            crd("ReferenceGrant", "referencegrants", "v1beta1", "Namespaced"),
            ResourceDef::custom(GROUP, "v1beta1", "ReferenceGrant", "referencegrants").without_status(),
        ),
    ] {
        server.create(crd);
        server.serve(def);
    }
    for object in platform() {
        server.create(object);
    }
    server
}

/// Credential, context, class, Gateway `infra/edge` and the Services `web` and `api` in `shop`.
pub fn platform() -> Vec<Value> {
    vec![
        secret("credential"),
        context("main", URL),
        class("tyk", "main"),
        gateway("edge", "tyk"),
        service("tyk", "gateway"),
        service("shop", "web"),
        service("shop", "api"),
    ]
}

/// A Secret with the credential; `s3cret-credential` must be seen nowhere.
pub fn secret(name: &str) -> Value {
    let bytes = k8s_openapi::ByteString(b"s3cret-credential".to_vec());
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "tyk", "name": name},
           "type": "Opaque", "data": {"TYK_AUTH": bytes}})
}

pub fn context(name: &str, url: &str) -> Value {
    json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
           "metadata": {"namespace": "tyk", "name": name},
           "spec": {"env": {"mode": "ce", "url": url, "org": "o1"}, "secretRef": {"name": "credential"},
                    "dataPlane": {"serviceRef": {"name": "gateway"}, "tags": [name]}}})
}

pub fn class(name: &str, context: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name},
           "spec": {"controllerName": "routewright.dev/tyk",
                    "parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "namespace": "tyk",
                                      "name": context}}})
}

pub fn gateway(name: &str, class: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
           "metadata": {"namespace": "infra", "name": name},
           "spec": {"gatewayClassName": class, "listeners": [
               {"name": "web", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}}]}})
}

pub fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
           "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "http", "port": 80}]}})
}

/// Route `shop/r` on Gateway `infra/edge` for a.example.com with these paths.
pub fn route(paths: &[&str]) -> Value {
    route_named("r", "a.example.com", paths)
}

pub fn route_named(name: &str, host: &str, paths: &[&str]) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
           "metadata": {"namespace": "shop", "name": name},
           "spec": {"parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": [host],
                    "rules": paths.iter().map(|p| rule(p)).collect::<Vec<_>>()}})
}

pub fn rule(path: &str) -> Value {
    json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [{"name": "web", "port": 80}]})
}

pub fn paths(paths: &[&str]) -> Value {
    json!({"spec": {"rules": paths.iter().map(|p| rule(p)).collect::<Vec<_>>()}})
}

/// An HTTPS listener of `infra/edge` for *.example.com beside the other one, with a certificate; its key, as PEM.
pub fn serve_https(server: &ApiServer) -> String {
    let made = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    let data = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
    server.create(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "infra", "name": "cert"},
        "data": {"tls.crt": data(&made.cert.pem()), "tls.key": data(&key)}}),
    );
    let ports = json!({"spec": {"ports": [{"port": 80}, {"port": 443}]}});
    server.edit("Service", "tyk", "gateway", ports);
    let listeners = json!([
        {"name": "web", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}},
        {"name": "tls", "protocol": "HTTPS", "port": 443, "hostname": "*.example.com",
         "allowedRoutes": {"namespaces": {"from": "All"}}, "tls": {"certificateRefs": [{"name": "cert"}]}},
    ]);
    server.edit(
        "Gateway",
        "infra",
        "edge",
        json!({"spec": {"listeners": listeners}}),
    );
    key
}
