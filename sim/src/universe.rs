//! What histories are about: the kinds, the platform that stands at the start, objects that users may make, the names that
//! they use, and what other software of a cluster does by itself. No assertion.

use reconcile_kit::testing::{ApiServer, ResourceDef, Schema};
use serde_json::{Value, json};

use routewright::garage::admin::GarageAdmin as _;

use crate::{host::Host, outside::Sites, world::Flags};

/// Garages: URL of the Admin API and its token.
pub const GARAGES: [(&str, &str); 2] = [
    (
        "http://garage.web.svc.cluster.local:3903",
        "admin-token-of-the-platform",
    ),
    (
        "http://garage.evil.svc.cluster.local:3903",
        "admin-token-of-the-tenant",
    ),
];
/// Tyks that exist; the last one is the attacker's own server.
pub const TYKS: [&str; 3] = [
    "http://tyk.tyk.svc:8080",
    "http://other.tyk.svc:8080",
    "http://listener.evil.svc:8081",
];
/// How an annotation names the third Tyk: the first eight digits of SHA-256 over its URL and a line feed.
pub const EVIL_DIGEST: &str = "36fe1041";
/// Controller names of the operator's two releases.
pub const CONTROLLERS: [&str; 2] = ["routewright.dev/tyk", "routewright.dev/two"];
/// What the platform's Tyks want to be sent.
pub const TYK_SECRET: &str = "s3cret-credential-of-the-platform";
/// What the attacker has for a credential.
pub const EVIL_SECRET: &str = "credential-of-the-tenant";

/// The alias of a bucket that a user created in Garage by hand.
pub const FOREIGN_ALIAS: &str = "by-hand";

/// Documents that a user put into the first Tyk by hand.
pub fn foreign_documents() -> Vec<Value> {
    let document = |id: &str, path: &str| {
        json!({"openapi": "3.0.3", "info": {"title": id, "version": "1"}, "paths": {},
               "x-tyk-api-gateway": {"info": {"id": id, "name": id, "state": {"active": true}},
                                     "upstream": {"url": "http://10.0.0.1"},
                                     "server": {"listenPath": {"value": path, "strip": true}}}})
    };
    vec![document("by-hand", "/by-hand/"), document("another", "/another/")]
}

/// What is outside before the operator comes.
pub fn populate_outside(sites: &Sites, host: &mut Host) {
    if let Some(site) = sites.tyks().get(TYKS[0]) {
        for document in foreign_documents() {
            site.handle.create(document);
        }
    }
    for site in sites.garages().values() {
        let garage = site.garage.clone();
        let made = host.run(async move { garage.create_bucket(FOREIGN_ALIAS).await });
        assert!(made.is_ok(), "an empty Garage takes a bucket");
    }
}

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub kind: &'static str,
    /// `group/version`, or `v1`.
    pub api_version: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// Its objects lie in namespaces.
    pub namespaced: bool,
}

const fn kind(kind: &'static str, api_version: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind {
        kind,
        api_version,
        plural,
        namespaced,
    }
}

/// Every kind of the world.
pub const KINDS: [Kind; 18] = [
    kind(
        "GarageBucket",
        "garage.rajsingh.info/v1beta1",
        "garagebuckets",
        true,
    ),
    kind(
        "GarageCluster",
        "garage.rajsingh.info/v1beta2",
        "garageclusters",
        true,
    ),
    kind(
        "GarageReferenceGrant",
        "garage.rajsingh.info/v1beta1",
        "garagereferencegrants",
        true,
    ),
    kind("Ingress", "networking.k8s.io/v1", "ingresses", true),
    kind("IngressClass", "networking.k8s.io/v1", "ingressclasses", false),
    kind("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes", true),
    kind("Gateway", "gateway.networking.k8s.io/v1", "gateways", true),
    kind(
        "GatewayClass",
        "gateway.networking.k8s.io/v1",
        "gatewayclasses",
        false,
    ),
    kind(
        "ReferenceGrant",
        "gateway.networking.k8s.io/v1beta1",
        "referencegrants",
        true,
    ),
    kind("OperatorContext", "tyk.tyk.io/v1alpha1", "operatorcontexts", true),
    kind(
        "TykOasApiDefinition",
        "tyk.tyk.io/v1alpha1",
        "tykoasapidefinitions",
        true,
    ),
    kind("Service", "v1", "services", true),
    kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
    kind("Secret", "v1", "secrets", true),
    kind("ConfigMap", "v1", "configmaps", true),
    kind("Namespace", "v1", "namespaces", false),
    kind("Lease", "coordination.k8s.io/v1", "leases", true),
    kind(
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        false,
    ),
];

/// The kind of this name.
pub fn kind_of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.kind == name)
}

/// Path of an object, or of its kind if `name` is empty.
pub fn path(kind: &Kind, namespace: &str, name: &str) -> String {
    let base = if kind.api_version.contains('/') {
        "apis"
    } else {
        "api"
    };
    let place = if kind.namespaced && !namespace.is_empty() {
        format!("/namespaces/{namespace}")
    } else {
        String::new()
    };
    let name = if name.is_empty() {
        String::new()
    } else {
        format!("/{name}")
    };
    format!("/{base}/{}{place}/{}{name}", kind.api_version, kind.plural)
}

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// CRDs of Gateway API as the standard bundle has them, as far as the API server's presence goes.
pub fn gateway_crd(kind: &str, plural: &str, version: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GATEWAY_GROUP}"),
                     "annotations": {"gateway.networking.k8s.io/bundle-version": "v1.6.1"}},
        "spec": {"group": GATEWAY_GROUP, "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

/// Serves the kinds of Gateway API.
pub fn install_gateway_api(server: &ApiServer) {
    for (kind, plural, version, scope, def) in [
        (
            "GatewayClass",
            "gatewayclasses",
            "v1",
            "Cluster",
            ResourceDef::gateway_class(),
        ),
        ("Gateway", "gateways", "v1", "Namespaced", ResourceDef::gateway()),
        (
            "HTTPRoute",
            "httproutes",
            "v1",
            "Namespaced",
            ResourceDef::http_route(),
        ),
        (
            "ReferenceGrant",
            "referencegrants",
            "v1beta1",
            "Namespaced",
            ResourceDef::reference_grant(),
        ),
    ] {
        if server
            .get(
                "CustomResourceDefinition",
                "",
                &format!("{plural}.{GATEWAY_GROUP}"),
            )
            .is_none()
        {
            server.create(gateway_crd(kind, plural, version, scope));
        }
        server.serve(def);
    }
}

/// Namespaces of the world. `evil` is the tenant's who means harm.
pub const NAMESPACES: [&str; 6] = ["web", "shop", "evil", "infra", "tyk", "routewright"];

/// The API server with everything installed, and the platform on it.
pub fn server() -> ApiServer {
    let server = ApiServer::new();
    for namespace in NAMESPACES {
        server.namespace(namespace);
    }
    for crd in routewright_crds::all().expect("the CRDs are generated") {
        server.create(json!(crd));
    }
    install_gateway_api(&server);
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    server.serve(
        ResourceDef::custom("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
            .without_status()
            .with_schema(Schema::from_openapi(&open).open()),
    );
    for object in platform() {
        server.create(object);
    }
    server
}

fn secret(namespace: &str, name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name},
           "type": "Opaque", "data": {key: k8s_openapi::ByteString(value.as_bytes().to_vec())}})
}

fn context(namespace: &str, name: &str, url: &str, secret: (&str, &str)) -> Value {
    json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
           "metadata": {"namespace": namespace, "name": name},
           "spec": {"env": {"mode": "ce", "url": url, "org": "o1"}, "secretRef": {"namespace": secret.0, "name": secret.1},
                    "dataPlane": {"serviceRef": {"name": "gateway", "namespace": "tyk"}, "tags": [name]}}})
}

/// The same with Tyk Dashboard behind it.
fn dashboard(mut context: Value) -> Value {
    context["spec"]["env"]["mode"] = json!("pro");
    context
}

/// The same for gateways that load every API.
fn untagged(mut context: Value) -> Value {
    context["spec"]["dataPlane"]["tags"] = json!(null);
    context
}

/// The Gateway with a context of its own.
fn through(mut gateway: Value, context: &str) -> Value {
    gateway["spec"]["infrastructure"] =
        json!({"parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": context}});
    gateway
}

fn class(name: &str, controller: &str, context: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name},
           "spec": {"controllerName": controller,
                    "parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "namespace": "tyk",
                                      "name": context}}})
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
           "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "http", "port": 80}]}})
}

/// What the platform team has set up.
pub fn platform() -> Vec<Value> {
    vec![
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
               "metadata": {"name": "public", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
               "spec": {"controller": "example.org/controller"}}),
        secret("web", "garage-token", "token", GARAGES[0].1),
        secret("evil", "garage-token", "token", GARAGES[1].1),
        secret("tyk", "credential", "TYK_AUTH", TYK_SECRET),
        secret("evil", "credential", "TYK_AUTH", EVIL_SECRET),
        context("tyk", "main", TYKS[0], ("tyk", "credential")),
        dashboard(context("tyk", "second", TYKS[1], ("tyk", "credential"))),
        class("tyk", CONTROLLERS[0], "main"),
        class("two", CONTROLLERS[1], "second"),
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "foreign"},
               "spec": {"controllerName": "example.org/gateways"}}),
        service("tyk", "gateway"),
        service("shop", "web"),
        service("shop", "api"),
        service("web", "garage"),
        service("evil", "mine"),
    ]
}

fn handle(namespace: &str, url: &str) -> Value {
    json!({"apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
           "metadata": {"namespace": namespace, "name": "garage"},
           "spec": {"connectTo": {"adminApiEndpoint": url, "adminTokenSecretRef": {"name": "garage-token", "key": "token"}},
                    "webApi": {"rootDomain": format!(".{namespace}.test")}}})
}

fn bucket(namespace: &str, name: &str, exposure: Value) -> Value {
    json!({"apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
           "metadata": {"namespace": namespace, "name": name},
           "spec": {"clusterRef": {"name": "garage"}, "globalAlias": format!("{namespace}-{name}"),
                    "website": {"enabled": true}, "websiteExposure": exposure}})
}

fn gateway(namespace: &str, name: &str, class: &str, hostname: Option<&str>) -> Value {
    let mut listener = json!({"name": "web", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}});
    if let Some(hostname) = hostname {
        listener["hostname"] = json!(hostname);
    }
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
           "metadata": {"namespace": namespace, "name": name},
           "spec": {"gatewayClassName": class, "listeners": [listener]}})
}

fn route(
    namespace: &str,
    name: &str,
    parent: (&str, &str),
    host: &str,
    paths: &[&str],
    backend: &str,
) -> Value {
    let rules: Vec<Value> = paths
        .iter()
        .map(|path| {
            json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}],
                   "backendRefs": [{"name": backend, "port": 80}]})
        })
        .collect();
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
           "metadata": {"namespace": namespace, "name": name},
           "spec": {"parentRefs": [{"namespace": parent.0, "name": parent.1}], "hostnames": [host], "rules": rules}})
}

/// Objects that users and tenants make.
pub fn templates() -> Vec<Value> {
    let backend = json!({"name": "garage", "port": 3902});
    vec![
        handle("web", GARAGES[0].0),
        handle("evil", GARAGES[1].0),
        bucket(
            "web",
            "blog",
            json!({"ingress": {"ingressClassName": "public", "hostnames": ["blog.example.com"]}, "backendRef": backend}),
        ),
        bucket(
            "web",
            "docs",
            json!({"gateway": {"parentRefs": [{"name": "public"}]}, "hostnames": ["docs.example.com"], "backendRef": backend}),
        ),
        bucket("web", "plain", Value::Null),
        bucket("evil", "blog", json!({"ingress": {}, "backendRef": backend})),
        gateway("infra", "edge", "tyk", None),
        gateway("infra", "inner", "tyk", Some("*.example.com")),
        gateway("web", "public", "foreign", None),
        gateway("evil", "mine", "tyk", None),
        gateway("infra", "two", "two", None),
        route(
            "shop",
            "e",
            ("infra", "two"),
            "a.example.com",
            &["/", "/e"],
            "web",
        ),
        route("shop", "a", ("infra", "edge"), "a.example.com", &["/"], "web"),
        route(
            "shop",
            "b",
            ("infra", "edge"),
            "b.example.com",
            &["/", "/x"],
            "api",
        ),
        route(
            "shop",
            "c",
            ("infra", "inner"),
            "a.example.com",
            &["/", "/c"],
            "web",
        ),
        route(
            "evil",
            "d",
            ("infra", "edge"),
            "a.example.com",
            &["/", "/evil"],
            "mine",
        ),
        json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
               "metadata": {"namespace": "shop", "name": "from-evil"},
               "spec": {"from": [{"group": GATEWAY_GROUP, "kind": "HTTPRoute", "namespace": "evil"}],
                        "to": [{"group": "", "kind": "Service"}]}}),
        json!({"apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
               "metadata": {"namespace": "web", "name": "from-evil"},
               "spec": {"from": [{"kind": "GarageBucket", "namespace": "evil"}],
                        "to": [{"kind": "GarageCluster", "name": "garage"}]}}),
        untagged(dashboard(context(
            "infra",
            "untagged",
            TYKS[1],
            ("infra", "credential"),
        ))),
        secret("infra", "credential", "TYK_AUTH", TYK_SECRET),
        through(gateway("infra", "three", "two", None), "untagged"),
        route(
            "shop",
            "f",
            ("infra", "three"),
            "a.example.com",
            &["/", "/f"],
            "api",
        ),
        context("evil", "trap", TYKS[2], ("tyk", "credential")),
        context("evil", "own", TYKS[2], ("evil", "credential")),
        service("evil", "garage"),
    ]
}

/// Objects of a user under the names that children of buckets will have.
pub fn squatters() -> Vec<Value> {
    let backend = json!({"service": {"name": "garage", "port": {"number": 80}}});
    vec![
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "web", "name": "blog-website"},
               "spec": {"defaultBackend": backend}}),
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"namespace": "web", "name": "docs-website"},
               "spec": {"hostnames": ["hand.example.com"]}}),
    ]
}

/// Identity of an object: kind, namespace, name.
pub fn id_of(object: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        text(&object["kind"]),
        text(&object["metadata"]["namespace"]),
        text(&object["metadata"]["name"]),
    )
}

/// What other software does by itself: the controller of the foreign Gateways accepts routes, the ingress controller
/// names an address, and where Routewright's bucket controller is off, garage-operator creates buckets.
///
/// `turn` decides the order in which the load balancer lists its addresses.
pub fn reflect(server: &ApiServer, installations: &[Flags], turn: u64) {
    for ingress in server.list("Ingress", "") {
        let (_, namespace, name) = id_of(&ingress);
        let mut addresses = vec![json!({"ip": "192.0.2.1"}), json!({"ip": "192.0.2.2"})];
        if turn % 2 == 1 {
            addresses.reverse();
        }
        let status = json!({"loadBalancer": {"ingress": addresses}});
        if ingress["status"] != status {
            server.set_status("Ingress", &namespace, &name, status);
        }
    }
    for route in server.list("HTTPRoute", "") {
        let (_, namespace, name) = id_of(&route);
        let generation = &route["metadata"]["generation"];
        let mut parents = route["status"]["parents"].as_array().cloned().unwrap_or_default();
        let before = parents.clone();
        parents.retain(|entry| entry["controllerName"] != "example.org/gateways");
        for parent in route["spec"]["parentRefs"].as_array().into_iter().flatten() {
            let of = parent["namespace"].as_str().unwrap_or(&namespace).to_owned();
            let gateway = server.get("Gateway", &of, parent["name"].as_str().unwrap_or_default());
            if gateway.is_none_or(|gateway| gateway["spec"]["gatewayClassName"] != "foreign") {
                continue;
            }
            let condition = |kind: &str| {
                json!({"type": kind, "status": "True", "reason": kind, "message": "", "observedGeneration": generation,
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            parents.push(
                json!({"parentRef": parent, "controllerName": "example.org/gateways",
                                "conditions": [condition("Accepted"), condition("ResolvedRefs")]}),
            );
        }
        if parents != before {
            let mut status = route["status"].clone();
            status["parents"] = json!(parents);
            server.set_status("HTTPRoute", &namespace, &name, status);
        }
    }
    if installations.iter().any(|flags| flags.buckets) {
        return;
    }
    for cluster in server.list("GarageCluster", "") {
        let (_, namespace, name) = id_of(&cluster);
        if cluster["status"]["phase"] != "Running" && cluster["metadata"]["deletionTimestamp"].is_null() {
            server.set_status("GarageCluster", &namespace, &name, json!({"phase": "Running"}));
        }
    }
    for bucket in server.list("GarageBucket", "") {
        let (_, namespace, name) = id_of(&bucket);
        let alias = bucket["spec"]["globalAlias"].as_str().unwrap_or(&name);
        let mut status = bucket["status"].clone();
        if status["bucketId"].is_null() || status["globalAlias"] != alias {
            status["bucketId"] = json!("b".repeat(64));
            status["globalAlias"] = json!(alias);
            status["phase"] = json!("Ready");
            server.set_status("GarageBucket", &namespace, &name, status);
        }
    }
}
