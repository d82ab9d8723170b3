//! What the stories are told with: a cluster with Gateway API and Tyk's kinds, and the operator beside it.

use std::time::Duration;

use reconcile_kit::testing::{ApiServer, Call, Mark, ResourceDef, Schema};
use routewright::{
    app::{App, Options},
    tyk::controllers,
};
use serde_json::{Value, json};

use crate::support::{self, eventually, lines};

pub(crate) const GROUP: &str = "gateway.networking.k8s.io";
/// CRDs of Gateway API: kind, plural, version, scope.
pub(crate) const BUNDLE: [(&str, &str, &str, &str); 4] = [
    ("GatewayClass", "gatewayclasses", "v1", "Cluster"),
    ("Gateway", "gateways", "v1", "Namespaced"),
    ("HTTPRoute", "httproutes", "v1", "Namespaced"),
    ("ReferenceGrant", "referencegrants", "v1beta1", "Namespaced"),
];

/// Gateway API on Tyk is on.
pub(crate) fn on() -> Options {
    Options {
        tyk: controllers::Options {
            enabled: true,
            definitions: true,
            ..Default::default()
        },
        ..support::options()
    }
}

/// The CRD object of a kind of Gateway API, of this bundle.
pub(crate) fn bundle_crd(kind: &str, version: &str) -> Value {
    let (kind, plural, served, scope) = *BUNDLE.iter().find(|(name, ..)| *name == kind).unwrap();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "annotations": {"gateway.networking.k8s.io/bundle-version": version},
        },
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": served, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// How the API server takes a kind of Gateway API.
pub(crate) fn served(kind: &str) -> ResourceDef {
    match kind {
        "GatewayClass" => ResourceDef::gateway_class(),
        "Gateway" => ResourceDef::gateway(),
        "HTTPRoute" => ResourceDef::http_route(),
        _ => ResourceDef::custom(GROUP, "v1beta1", "ReferenceGrant", "referencegrants").without_status(),
    }
}

/// Installs Gateway API.
pub(crate) fn install(server: &ApiServer) {
    for (kind, ..) in BUNDLE {
        server.create(bundle_crd(kind, "v1.6.1"));
        server.serve(served(kind));
    }
}

/// A server without Gateway API, with the CRDs of this product.
pub(crate) fn bare() -> ApiServer {
    let server = support::server(false);
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let slices = ResourceDef::custom("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
        .without_status()
        .with_schema(Schema::from_openapi(&open).open());
    server.serve(slices);
    server
}

/// A server with everything that one Gateway needs.
pub(crate) fn ready() -> ApiServer {
    let server = bare();
    install(&server);
    for object in platform() {
        support::put(&server, object);
    }
    server
}

/// As the data of a Secret has it.
pub(crate) fn encode(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

pub(crate) fn secret() -> Value {
    let text = encode;
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"namespace": "web", "name": "connection"},
        "data": {"TYK_MODE": text("ce"), "TYK_URL": text("http://tyk.web:8080"), "TYK_AUTH": text("open sesame")},
    })
}

pub(crate) fn class() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "tyk"},
        "spec": {"controllerName": "routewright.dev/tyk", "parametersRef":
            {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": "tyk", "namespace": "web"}},
    })
}

pub(crate) fn gateway() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "web", "name": "public"},
        "spec": {
            "gatewayClassName": "tyk",
            "infrastructure": {"parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": "plane"}},
            "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}],
        },
    })
}

pub(crate) fn route(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "web", "name": name},
        "spec": {
            "parentRefs": [{"name": "public"}],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": format!("/{name}")}}],
                "backendRefs": [{"name": "backend", "port": 80}],
            }],
        },
    })
}

pub(crate) fn context(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
        "metadata": {"namespace": "web", "name": name}, "spec": spec,
    })
}

pub(crate) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "web", "name": name},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": [
            {"name": "http", "port": 80, "protocol": "TCP"}, {"name": "https", "port": 443, "protocol": "TCP"}]},
    })
}

/// A class with its context and Secret, and a Gateway with its data plane.
pub(crate) fn platform() -> Vec<Value> {
    vec![
        secret(),
        context("tyk", json!({"secretRef": {"name": "connection"}})),
        context(
            "plane",
            json!({"dataPlane": {"serviceRef": {"name": "gateways"}}}),
        ),
        service("gateways"),
        service("backend"),
        class(),
        gateway(),
    ]
}

/// The operator beside a server, from one quiet moment to the next.
pub(crate) struct Story {
    pub(crate) server: ApiServer,
    pub(crate) operator: Option<App>,
    options: Options,
    mark: Mark,
}

impl Story {
    /// Starts the operator, and waits until it is quiet; what it asked is the first answer of [`Story::settle`].
    pub(crate) async fn on(server: ApiServer, options: Options) -> Self {
        let mark = server.mark();
        let operator = Some(support::start(&server, &options));
        let mut story = Self {
            server,
            operator,
            options,
            mark,
        };
        story.settle().await;
        story.mark = mark;
        story
    }

    /// A Gateway that is served, and everything said about it already.
    pub(crate) async fn begin() -> Self {
        let mut story = Self::on(ready(), on()).await;
        story.settle().await;
        story
    }

    /// Waits until the operator asks for nothing any more; its requests since the last time, in alphabetical order.
    pub(crate) async fn settle(&mut self) -> Vec<String> {
        let mut seen = usize::MAX;
        loop {
            let calls = self.server.calls_since(self.mark);
            if calls.len() == seen {
                self.mark = self.server.mark();
                let mut lines = lines(&calls);
                lines.sort();
                return lines;
            }
            seen = calls.len();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// Lets time pass; the requests of that time, whatever they were about.
    pub(crate) async fn pass(&mut self, time: Duration) -> Vec<Call> {
        tokio::time::sleep(time).await;
        let calls = self.server.calls_since(self.mark);
        self.mark = self.server.mark();
        calls
    }

    /// Ends the process and starts another.
    pub(crate) async fn restart(&mut self) {
        self.operator.take().unwrap().shutdown().await;
        self.settle().await;
        self.operator = Some(support::start(&self.server, &self.options));
    }

    /// Conditions of an object as `Type status/reason`, in order.
    pub(crate) fn conditions(&self, kind: &str, name: &str) -> Vec<String> {
        conditions(&self.get(kind, name)["status"])
    }

    /// Conditions of the listener `name` of the Gateway `public`.
    pub(crate) fn listener(&self, name: &str) -> Vec<String> {
        conditions(&self.listener_status(name))
    }

    pub(crate) fn listener_status(&self, name: &str) -> Value {
        let gateway = self.get("Gateway", "public");
        let listeners = gateway["status"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        listeners
            .into_iter()
            .find(|l| l["name"] == name)
            .unwrap_or_default()
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let namespace = if kind == "GatewayClass" { "" } else { "web" };
        self.server.get(kind, namespace, name).unwrap_or_default()
    }

    /// Merge patch of an object in `web`, or of a class.
    pub(crate) fn edit(&self, kind: &str, name: &str, change: Value) {
        let namespace = if kind == "GatewayClass" { "" } else { "web" };
        self.server.edit(kind, namespace, name, change);
    }

    /// Waits until an object has a condition like this.
    pub(crate) async fn says(&self, kind: &str, name: &str, wanted: &str) {
        let what = format!(
            "{wanted} of {kind} {name} (now {:?})",
            self.conditions(kind, name)
        );
        eventually(&self.server, &what, || {
            self.conditions(kind, name)
                .iter()
                .any(|c| c == wanted)
                .then_some(())
        })
        .await;
    }

    /// Events as `Type Reason: note`.
    pub(crate) fn events(&self) -> Vec<String> {
        let field = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let line = |e: &Value| {
            format!(
                "{} {}: {}",
                field(e, "type"),
                field(e, "reason"),
                field(e, "note")
            )
        };
        let events = ["web", "default"].map(|namespace| self.server.list("Event", namespace));
        events.iter().flatten().map(line).collect()
    }
}

/// `Type status/reason`.
pub(crate) fn conditions(status: &Value) -> Vec<String> {
    let text = |c: &Value, name: &str| c[name].as_str().unwrap_or_default().to_owned();
    let line = |c: &Value| format!("{} {}/{}", text(c, "type"), text(c, "status"), text(c, "reason"));
    let list = status["conditions"].as_array();
    list.into_iter().flatten().map(line).collect()
}

/// The message of one condition.
pub(crate) fn message(status: &Value, type_: &str) -> String {
    let list = status["conditions"].as_array();
    let found = list.into_iter().flatten().find(|c| c["type"] == type_);
    found.map_or(String::new(), |c| {
        c["message"].as_str().unwrap_or_default().to_owned()
    })
}

/// Those lines that are writes or events.
pub(crate) fn writes(lines: &[String]) -> Vec<&str> {
    lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with("GET"))
        .collect()
}
