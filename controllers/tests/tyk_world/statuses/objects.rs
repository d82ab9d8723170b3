//! Objects that rows are made of: those of the platform with something changed.

use serde_json::{Value, json};

use super::super::world::*;

pub(super) fn named(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

pub(super) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

pub(super) fn class_by(name: &str, parameters: Value) -> Value {
    with(named(class(), name), "/spec/parametersRef", parameters)
}

/// A class with a context of its own.
pub(super) fn class_with(name: &str, spec: Value) -> [Value; 2] {
    let parameters =
        json!({"group": "tyk.tyk.io", "kind": "OperatorContext", "name": name, "namespace": "web"});
    [context(name, spec), class_by(name, parameters)]
}

/// A class whose connection cannot be read, since there is no such Secret; it has the platform's data plane.
pub(super) fn class_without_secret(name: &str) -> [Value; 2] {
    let spec = json!({"secretRef": {"name": "absent"}, "dataPlane": {"serviceRef": {"name": "gateways"}}});
    class_with(name, spec)
}

/// A Gateway of the class `tyk` on the platform's data plane with these listeners.
pub(super) fn gateway_with(name: &str, listeners: Value) -> Value {
    with(named(gateway(), name), "/spec/listeners", listeners)
}

pub(super) fn of_class(gateway: Value, class: &str) -> Value {
    with(gateway, "/spec/gatewayClassName", json!(class))
}

pub(super) fn on_plane(name: &str, plane: &str) -> Value {
    with(
        named(gateway(), name),
        "/spec/infrastructure/parametersRef/name",
        json!(plane),
    )
}

pub(super) fn without_plane(name: &str) -> Value {
    let mut gateway = named(gateway(), name);
    gateway["spec"].as_object_mut().unwrap().remove("infrastructure");
    gateway
}

pub(super) fn http(name: &str, port: u16) -> Value {
    json!({"name": name, "protocol": "HTTP", "port": port})
}

pub(super) fn https(name: &str, hostname: &str, certificate: Value) -> Value {
    json!({"name": name, "protocol": "HTTPS", "port": 443, "hostname": hostname,
           "tls": {"certificateRefs": [certificate]}})
}

/// A route on `public` with a hostname of its own, so that no row takes a place from another.
pub(super) fn route_to(name: &str, gateway: &str) -> Value {
    let mut route = route(name);
    route["spec"]["hostnames"] = json!([format!("{name}.example.com")]);
    route["spec"]["parentRefs"] = json!([{"name": gateway}]);
    route
}

pub(super) fn to_backend(name: &str, backend: Value) -> Value {
    with(
        route_to(name, "public"),
        "/spec/rules/0/backendRefs",
        json!([backend]),
    )
}

/// `web/NAME` with this document in a ConfigMap of the same name.
pub(super) fn definition(name: &str, target: Value, document: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "web", "name": name},
               "data": {"oas.json": document}}),
        without_map(name, target),
    ]
}

/// The same without the ConfigMap.
pub(super) fn without_map(name: &str, target: Value) -> Value {
    json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
        "metadata": {"namespace": "web", "name": name},
        "spec": {"tykOAS": {"configmapRef": {"name": name, "keyName": "oas.json"}}, "targetRefs": [target]},
    })
}

pub(super) fn route_target(name: &str) -> Value {
    json!({"group": GROUP, "kind": "HTTPRoute", "name": name})
}

pub(super) const OAS: &str = r#"{"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {},
    "x-tyk-api-gateway": {"info": {"name": "n", "state": {"active": true}}}}"#;
pub(super) const OAS_WITH_OUR_PATH: &str = r#"{"openapi": "3.0.3", "info": {"title": "t", "version": "1"},
    "paths": {"/(?s).*": {"get": {"operationId": "x", "responses": {"200": {"description": "y"}}}}},
    "x-tyk-api-gateway": {"info": {"name": "n", "state": {"active": true}}}}"#;
pub(super) const OAS_WITH_LISTEN_PATH: &str = r#"{"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {},
    "x-tyk-api-gateway": {"info": {"name": "n", "state": {"active": true}}, "server": {"listenPath": {"value": "/x"}}}}"#;
