//! Decoding of every kind but HTTPRoute, and what holds for all of them.

use super::*;
use crate::tyk::objects::{
    Fingerprint, Problem,
    context::DataPlane,
    core::{IngressAddress, ServicePort},
    gateway::{AllowedNamespaces, LabelSelector},
    text::TOKENS,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn object(api_version: &str, kind: &str, body: Value) -> Object {
    let mut value =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "ns"}});
    for (name, part) in body.as_object().unwrap() {
        value[name] = part.clone();
    }
    Object::decode(&value).unwrap().unwrap()
}

fn said(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

macro_rules! decoded {
    ($kind:ident, $api:expr, $body:expr) => {
        match object($api, stringify!($kind), $body) {
            Object::$kind(object) => object,
            other => panic!("{other:?}"),
        }
    };
}

#[test]
fn every_kind_is_found_by_group_version_and_kind() {
    for (api_version, kind, id) in [
        ("gateway.networking.k8s.io/v1", "GatewayClass", Kind::GatewayClass),
        ("gateway.networking.k8s.io/v1beta1", "Gateway", Kind::Gateway),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", Kind::HttpRoute),
        (
            "gateway.networking.k8s.io/v1beta1",
            "ReferenceGrant",
            Kind::ReferenceGrant,
        ),
        ("tyk.tyk.io/v1alpha1", "OperatorContext", Kind::OperatorContext),
        (
            "tyk.tyk.io/v1alpha1",
            "TykOasApiDefinition",
            Kind::TykOasApiDefinition,
        ),
        ("v1", "Service", Kind::Service),
        ("discovery.k8s.io/v1", "EndpointSlice", Kind::EndpointSlice),
        ("v1", "Secret", Kind::Secret),
        ("v1", "ConfigMap", Kind::ConfigMap),
        ("v1", "Namespace", Kind::Namespace),
    ] {
        let found = object(api_version, kind, json!({}));
        let (found_kind, key) = found.id();
        assert_eq!((found_kind, key.name.as_str()), (id, "a"));
        assert_eq!(id.as_str(), kind);
        let namespaced = id.scope() == Scope::Namespaced;
        assert_eq!(key.namespace, if namespaced { "ns" } else { "" });
    }
}

#[test]
fn a_kind_or_version_that_is_not_looked_at_is_passed_over() {
    for (api_version, kind) in [
        ("apps/v1", "Deployment"),
        ("gateway.networking.k8s.io/v1alpha2", "HTTPRoute"),
        ("gateway.networking.k8s.io/v1", "GRPCRoute"),
        ("serving.knative.dev/v1", "Service"),
    ] {
        let value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        assert_eq!(Object::decode(&value), Ok(None), "{api_version} {kind}");
    }
}

#[test]
fn what_has_no_identity_is_an_error_that_names_the_field() {
    let service = |metadata: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
    for (value, says) in [
        (json!(7), "the document: must be an object"),
        (json!({}), "apiVersion: must be set"),
        (json!({"apiVersion": "v1"}), "kind: must be set"),
        (
            json!({"apiVersion": "v1", "kind": "Service"}),
            "metadata.name: must be set",
        ),
        (
            service(json!({"name": "a/b"})),
            "metadata.name: \"a/b\" is no name of a Kubernetes object",
        ),
        (
            service(json!({"name": "a", "namespace": "b.c"})),
            "metadata.namespace: \"b.c\" is no name of a namespace",
        ),
    ] {
        assert_eq!(Object::decode(&value).unwrap_err().to_string(), says);
    }
    let found = Object::decode(&service(json!({"name": "a"}))).unwrap().unwrap();
    assert_eq!(found.id().1.namespace, "default");
}

#[test]
fn gateway_class() {
    let class = decoded!(
        GatewayClass,
        "gateway.networking.k8s.io/v1",
        json!({"spec": {"controllerName": "example.com/x", "parametersRef": {
            "group": "tyk.tyk.io", "kind": "OperatorContext", "name": "prod", "namespace": "tyk"}}})
    );
    assert_eq!(class.controller_name, "example.com/x");
    let parameters = class.parameters.unwrap();
    assert_eq!(
        (parameters.name.as_str(), parameters.namespace.as_deref()),
        ("prod", Some("tyk"))
    );
    for odd in [
        json!({}),
        json!({"spec": 7}),
        json!({"spec": {"controllerName": 7}}),
    ] {
        let class = decoded!(GatewayClass, "gateway.networking.k8s.io/v1", odd);
        assert_eq!((class.controller_name.as_str(), class.parameters), ("", None));
    }
    // A reference that does not decode is a reference to nothing, not no reference.
    let odd = json!({"spec": {"controllerName": "x/y", "parametersRef": 7}});
    assert!(
        decoded!(GatewayClass, "gateway.networking.k8s.io/v1", odd)
            .parameters
            .is_some()
    );
}

#[test]
fn gateway_and_listeners() {
    let gateway = decoded!(
        Gateway,
        "gateway.networking.k8s.io/v1",
        json!({"spec": {
        "gatewayClassName": "tyk",
        "infrastructure": {"parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": "edge"}},
        "addresses": [{"value": "1.2.3.4"}],
        "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.Example.com"},
            {"name": "https", "port": 443, "protocol": "HTTPS",
             "tls": {"certificateRefs": [{"name": "cert"}, {"name": "c", "namespace": "other", "group": "g", "kind": "K"}]},
             "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {
                "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}},
              "kinds": [{"kind": "HTTPRoute"}, {"group": "x", "kind": "Y"}]}},
        ]}})
    );
    assert_eq!((gateway.class.as_str(), gateway.problems.len()), ("tyk", 0));
    assert_eq!(
        gateway.addresses,
        [("IPAddress".to_owned(), "1.2.3.4".to_owned())]
    );
    assert_eq!(gateway.parameters.unwrap().name, "edge");
    let [http, https] = gateway.listeners.as_slice() else {
        panic!()
    };
    assert_eq!((http.port, http.hostname.as_deref()), (80, Some("*.example.com")));
    assert_eq!((&http.namespaces, &http.tls), (&AllowedNamespaces::Same, &None));
    let tls = https.tls.as_ref().unwrap();
    assert_eq!(
        (tls.mode.as_str(), tls.certificates[0].kind.as_str()),
        ("Terminate", "Secret")
    );
    assert_eq!(tls.certificates[1].namespace.as_deref(), Some("other"));
    assert_eq!(
        https.kinds,
        [
            ("gateway.networking.k8s.io".to_owned(), "HTTPRoute".to_owned()),
            ("x".to_owned(), "Y".to_owned())
        ]
    );
    let selector = LabelSelector {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        expressions: vec![("k".to_owned(), "In".to_owned(), vec!["v".to_owned()])],
    };
    assert_eq!(https.namespaces, AllowedNamespaces::Selector(selector));
}

#[test]
fn a_listener_field_that_does_not_decode_is_named_and_admits_nothing() {
    let listener = |extra: Value| {
        let mut listener = json!({"name": "l", "port": 80, "protocol": "HTTP"});
        for (name, value) in extra.as_object().unwrap() {
            listener[name] = value.clone();
        }
        decoded!(
            Gateway,
            "gateway.networking.k8s.io/v1",
            json!({"spec": {"gatewayClassName": "c", "listeners": [listener]}})
        )
        .listeners
        .remove(0)
    };
    for (extra, path) in [
        (json!({"name": null}), "spec.listeners[0].name"),
        (json!({"port": null}), "spec.listeners[0].port"),
        (json!({"port": 70000}), "spec.listeners[0].port"),
        (json!({"protocol": 7}), "spec.listeners[0].protocol"),
        (json!({"hostname": "env://x"}), "spec.listeners[0].hostname"),
        (
            json!({"tls": {"frontendValidation": {}}}),
            "spec.listeners[0].tls.frontendValidation",
        ),
        (
            json!({"tls": {"certificateRefs": [{}]}}),
            "spec.listeners[0].tls.certificateRefs[0].name",
        ),
    ] {
        let found = said(&listener(extra).problems);
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with(&format!("{path}: "))),
            "{path}: {found:?}"
        );
    }
    for namespaces in [
        json!(7),
        json!({"from": 7}),
        json!({"from": "Nobody"}),
        json!({"from": "Selector"}),
        json!({"from": "Selector", "selector": 7}),
        json!({"from": "Selector", "selector": {"matchLabels": {"a": 7}}}),
        json!({"from": "Selector", "selector": {"future": {}}}),
        json!({"from": "Selector", "selector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}}),
    ] {
        let found = listener(json!({"allowedRoutes": {"namespaces": namespaces}}));
        assert!(
            matches!(found.namespaces, AllowedNamespaces::Unknown(_)),
            "{namespaces}"
        );
        assert_eq!(found.problems.len(), 1, "{namespaces}");
    }
    for (namespaces, expected) in [
        (json!(null), AllowedNamespaces::Same),
        (json!({}), AllowedNamespaces::Same),
        (json!({"from": "All"}), AllowedNamespaces::All),
        (
            json!({"from": "Selector", "selector": {}}),
            AllowedNamespaces::Selector(LabelSelector::default()),
        ),
    ] {
        let found = listener(json!({"allowedRoutes": {"namespaces": namespaces}}));
        assert_eq!((found.namespaces, found.problems.len()), (expected, 0));
    }
}

#[test]
fn a_gateway_that_asks_for_client_certificates_has_a_problem() {
    let gateway = decoded!(
        Gateway,
        "gateway.networking.k8s.io/v1",
        json!({"spec": {"gatewayClassName": "c", "listeners": [], "tls": {"frontend": {"default": {}}}}})
    );
    assert!(
        said(&gateway.problems)[0].starts_with("spec.tls.frontend: client certificates are not verified")
    );
}

#[test]
fn reference_grant_and_an_entry_that_grants_nothing() {
    let grant = decoded!(
        ReferenceGrant,
        "gateway.networking.k8s.io/v1beta1",
        json!({"spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "apps"}, {"kind": "x"}, 7],
            "to": [{"group": "", "kind": "Service"}, {"group": "", "kind": "Secret", "name": "c"},
                   {"group": "", "kind": "Secret", "name": 7}, {"group": "core"}],
        }})
    );
    let route = (
        "gateway.networking.k8s.io".to_owned(),
        "HTTPRoute".to_owned(),
        "apps".to_owned(),
    );
    assert_eq!(grant.from, [route]);
    // gateway-api bug 30: the core group is the empty string, and nothing else is.
    assert_eq!(
        grant.to,
        [
            (String::new(), "Service".to_owned(), None),
            (String::new(), "Secret".to_owned(), Some("c".to_owned()))
        ]
    );
}

#[test]
fn operator_context_without_its_secret() {
    let context = decoded!(
        OperatorContext,
        "tyk.tyk.io/v1alpha1",
        json!({"spec": {
            "env": {"mode": "pro", "url": "http://d", "auth": "hunter2", "org": "o", "insecureSkipVerify": true,
                    "user_owners": ["u"], "user_group_owners": ["g"], "ingress": {"httpPort": 8080}},
            "secretRef": {"name": "s", "namespace": "n"},
            "dataPlane": {"serviceRef": {"name": "gw"}, "tags": ["edge", "eu", "edge"]},
        }})
    );
    assert_eq!(
        (&context.problems, &context.connection_problems),
        (&vec![], &vec![])
    );
    assert!(!format!("{context:?}").contains("hunter2"));
    let env = context.env.unwrap();
    assert_eq!(
        (env.mode.as_deref(), env.url.as_deref(), env.org.as_deref()),
        (Some("pro"), Some("http://d"), Some("o"))
    );
    assert_eq!(
        (env.auth, env.insecure_skip_verify),
        (Some(Fingerprint::of(b"hunter2")), Some(true))
    );
    assert_eq!(context.secret_ref, Some(("s".to_owned(), Some("n".to_owned()))));
    let plane = DataPlane {
        service_ref: Some(("gw".to_owned(), None)),
        tags: Some(vec!["edge".to_owned(), "eu".to_owned()]),
    };
    assert_eq!(context.data_plane, Some(plane));
}

#[test]
fn a_token_in_tags_or_organisation_makes_a_context_unreadable() {
    for token in TOKENS {
        let context = decoded!(
            OperatorContext,
            "tyk.tyk.io/v1alpha1",
            json!({"spec": {"env": {"org": token}, "dataPlane": {"tags": ["a", format!("x{token}"), ""]}}})
        );
        // Apart, because a Gateway's own context has a data plane only.
        let found = said(&context.connection_problems);
        assert!(found[0].starts_with("spec.env.org: must not hold"), "{found:?}");
        let found = said(&context.problems);
        assert!(
            found[0].starts_with("spec.dataPlane.tags[1]: must not hold"),
            "{found:?}"
        );
        assert_eq!(found[1], "spec.dataPlane.tags[2]: must not be empty");
        assert_eq!(context.env.unwrap().org, None);
        assert_eq!(context.data_plane.unwrap().tags, Some(vec!["a".to_owned()]));
        let secret = decoded!(Secret, "v1", json!({"stringData": {"TYK_ORG": token}}));
        assert_eq!(
            (secret.connection.org, secret.connection.problems.len()),
            (None, 1)
        );
    }
    for (odd, of_the_connection) in [
        (json!(7), false),
        (json!({"env": 7}), true),
        (json!({"dataPlane": []}), false),
        (json!({"secretRef": {}}), true),
    ] {
        let context = decoded!(OperatorContext, "tyk.tyk.io/v1alpha1", json!({ "spec": odd }));
        let numbers = (context.problems.len(), context.connection_problems.len());
        assert_eq!(numbers, if of_the_connection { (0, 1) } else { (1, 0) }, "{odd}");
    }
}

/// A credential in the URL is neither kept nor repeated, whether or not the rest is a URL.
#[test]
fn a_url_with_a_credential_is_refused_and_not_kept() {
    for (url, says) in [
        (
            "http://u:hunter2@tyk:8080",
            "must not hold a user name or password",
        ),
        ("http://hunter2@tyk", "must not hold a user name or password"),
        ("u:hunter2@tyk", "must not hold a user name or password"),
        ("http://tyk?token=hunter2", "must not have a query or a fragment"),
        ("http://tyk#hunter2", "must not have a query or a fragment"),
    ] {
        let context = decoded!(
            OperatorContext,
            "tyk.tyk.io/v1alpha1",
            json!({"spec": {"env": {"mode": "ce", "url": url}}})
        );
        let found = said(&context.connection_problems);
        assert!(
            found[0].starts_with(&format!("spec.env.url: {says}")),
            "{found:?}"
        );
        assert!(!format!("{context:?}").contains("hunter2"), "{context:?}");
        assert_eq!(context.env.unwrap().url, None);

        let secret = decoded!(Secret, "v1", json!({"stringData": {"TYK_URL": url}}));
        let found = said(&secret.connection.problems);
        assert!(
            found[0].starts_with(&format!("data.TYK_URL: {says}")),
            "{found:?}"
        );
        assert!(!format!("{secret:?}").contains("hunter2"), "{secret:?}");
        assert_eq!(secret.connection.url, None);
    }
}

#[test]
fn definition_with_targets() {
    let definition = decoded!(
        TykOasApiDefinition,
        "tyk.tyk.io/v1alpha1",
        json!({"spec": {
            "tykOAS": {"configmapRef": {"name": "doc", "keyName": "oas.json"}},
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"}],
            "contextRef": {"name": "c"}, "categories": ["x"],
        }})
    );
    assert_eq!((definition.problems.len(), definition.route_owned.len()), (0, 0));
    assert_eq!(definition.targets[0].name, "shop");
    assert_eq!(definition.config_map.unwrap().key.as_deref(), Some("oas.json"));
}

#[test]
fn a_definition_that_would_be_weaker_than_written_has_a_problem() {
    let spec = |extra: Value| {
        let mut spec = json!({"targetRefs": [{"group": "g", "kind": "Gateway", "name": "x"}]});
        for (name, value) in extra.as_object().unwrap() {
            spec[name] = value.clone();
        }
        decoded!(
            TykOasApiDefinition,
            "tyk.tyk.io/v1alpha1",
            json!({ "spec": spec })
        )
    };
    assert_eq!(
        spec(json!({"customDomain": {"enabled": true}})).route_owned,
        ["spec.customDomain"]
    );
    for name in [
        "clientCertificate",
        "mutualTLS",
        "jwtAuth",
        "certificatePinning",
        "versioning",
        "future",
    ] {
        let found = said(&spec(json!({name: {}})).problems);
        assert!(
            found[0].starts_with(&format!("spec.{name}: is not supported together with targetRefs")),
            "{found:?}"
        );
    }
    let narrow =
        spec(json!({"targetRefs": [{"group": "g", "kind": "Gateway", "name": "x", "sectionName": "s"}]}));
    assert_eq!(
        said(&narrow.problems),
        ["spec.targetRefs[0].sectionName: is not supported; remove the field"]
    );
    for missing in [
        json!({}),
        json!({"tykOAS": {}}),
        json!({"tykOAS": {"configmapRef": {"keyName": "k"}}}),
    ] {
        assert_eq!(spec(missing).config_map, None);
    }
    // Without targets nothing is said, whatever it holds.
    let foreign = decoded!(
        TykOasApiDefinition,
        "tyk.tyk.io/v1alpha1",
        json!({"spec": {"clientCertificate": {}, "customDomain": {}}})
    );
    assert_eq!((foreign.problems.len(), foreign.route_owned.len()), (0, 0));
}

#[test]
fn service() {
    let service = decoded!(
        Service,
        "v1",
        json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}, {"name": "x", "port": 81, "appProtocol": "http"}, {"port": 0}]},
               "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "lb"}, {}]}}})
    );
    assert_eq!(
        (service.type_.as_str(), service.cluster_ip.as_deref()),
        ("ClusterIP", Some("None"))
    );
    let ports = [
        ServicePort {
            name: String::new(),
            port: 80,
            app_protocol: None,
        },
        ServicePort {
            name: "x".into(),
            port: 81,
            app_protocol: Some("http".into()),
        },
    ];
    assert_eq!(service.ports, ports);
    assert_eq!(
        service.ingress,
        [
            IngressAddress::Ip("1.2.3.4".into()),
            IngressAddress::Hostname("lb".into())
        ]
    );
    assert!(!service.other_ports);
    let empty = decoded!(
        Service,
        "v1",
        json!({"spec": {"clusterIP": "", "type": "ExternalName", "externalName": "x.com"}})
    );
    assert_eq!(
        (empty.cluster_ip, empty.external_name.as_deref()),
        (None, Some("x.com"))
    );
}

/// A port of UDP is no port for HTTP: neither for a listener nor for a backend, whatever it says of itself.
#[test]
fn ports_of_other_protocols_than_tcp_do_not_count() {
    let ports = |list: Value| decoded!(Service, "v1", json!({"spec": {"ports": list}}));
    let both = ports(json!([
        {"name": "h3", "port": 443, "protocol": "UDP", "appProtocol": "h3"},
        {"name": "https", "port": 443, "protocol": "TCP"},
        {"name": "s", "port": 132, "protocol": "SCTP"},
    ]));
    let names: Vec<&str> = both.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!((names, both.other_ports), (vec!["https"], true));
    // It has ports, so it is not one that leaves every port open.
    let none = ports(json!([{"port": 443, "protocol": "UDP"}]));
    assert!(none.ports.is_empty() && none.other_ports);
}

#[test]
fn endpoint_slice_counts_an_endpoint_as_ready_unless_it_says_otherwise() {
    let slice = |address_type: &str| {
        decoded!(
            EndpointSlice,
            "discovery.k8s.io/v1",
            json!({
                "metadata": {"name": "a", "namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": address_type,
                "ports": [{"port": 8080}, {"name": "m", "port": 9090}, {"name": "none"}],
                "endpoints": [
                    {"addresses": ["10.0.0.1", "10.0.0.9"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                    {"addresses": ["10.0.0.3"]},
                    {"addresses": ["FD00:0::1"], "conditions": {"ready": null}},
                    {"addresses": ["env://x"]}, {"addresses": []}, {},
                ],
            })
        )
    };
    let found = slice("IPv4");
    assert_eq!(found.service.as_deref(), Some("web"));
    assert_eq!(found.ports, [(String::new(), 8080), ("m".to_owned(), 9090)]);
    assert_eq!(found.ready, ["10.0.0.1", "10.0.0.3", "fd00::1"]);
    assert_eq!(slice("FQDN").ready, [""; 0]);
}

#[test]
fn secret_keeps_conclusions_only() {
    let made = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let secret = decoded!(
        Secret,
        "v1",
        json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": chain, "tls.key": key}})
    );
    assert_eq!(
        secret.tls.clone().unwrap().unwrap().leaf,
        Fingerprint::of(made.cert.der())
    );
    let shown = format!("{secret:?}");
    assert!(
        !shown.contains("PRIVATE") && !shown.contains("CERTIFICATE"),
        "{shown}"
    );
    // base64 in data: "hunter2"
    let secret = decoded!(
        Secret,
        "v1",
        json!({"data": {"TYK_AUTH": "aHVudGVyMg==", "TYK_MODE": "Y2U=", "TYK_URL": "!!!"},
               "stringData": {"TYK_USER_OWNERS": " a, b,", "TYK_TLS_INSECURE_SKIP_VERIFY": "true\n"}})
    );
    let connection = secret.connection;
    assert_eq!(connection.auth, Some(Fingerprint::of(b"hunter2")));
    assert_eq!((connection.mode.as_deref(), connection.url), (Some("ce"), None));
    assert_eq!(
        (connection.user_owners, connection.insecure_skip_verify),
        (vec!["a".to_owned(), "b".to_owned()], Some(true))
    );
    assert_eq!((secret.type_.as_str(), secret.tls), ("Opaque", None));
}

#[test]
fn config_map_keeps_a_document_or_a_reason_for_every_key() {
    let map = decoded!(
        ConfigMap,
        "v1",
        json!({"data": {"a": "{\"x-tyk-api-gateway\": {}}", "b": "x-tyk-api-gateway: {}\n", "c": "hello"}, "binaryData": {"d": "AA=="}})
    );
    assert_eq!(map.documents["a"], map.documents["b"]);
    assert!(map.documents["a"].is_ok());
    assert_eq!(
        map.documents["c"],
        Err("has no x-tyk-api-gateway object".to_owned())
    );
    assert!(map.documents["d"].is_err());
}

#[test]
fn namespace_has_the_label_with_its_name() {
    let namespace = decoded!(
        Namespace,
        "v1",
        json!({"metadata": {"name": "a", "labels": {"team": "x", "odd": 7}}})
    );
    let labels: Vec<(&str, &str)> = namespace
        .labels
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(labels, [("kubernetes.io/metadata.name", "a"), ("team", "x")]);
}

#[test]
fn a_raw_object_of_8_kb_becomes_a_compact_one() {
    // given a route as the API server sends it, most of it managed fields, annotations and the status of others
    let field = json!({"manager": "m", "fieldsV1": {"f:spec": {"f:rules": {}}, "padding": "x".repeat(600)}});
    let entry =
        json!({"controllerName": "other.example.com/x", "conditions": [{"message": "y".repeat(500)}]});
    let raw = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "a", "namespace": "b", "managedFields": vec![field; 8],
                     "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "z".repeat(1500)}},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["a.example.com"],
                 "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "w", "port": 80}]}]},
        "status": {"parents": vec![entry; 4]},
    });
    assert!(raw.to_string().len() > 8 * 1024);
    // when it is decoded, then nothing of that is held: its text, names of fields included, is small
    let Some(Object::HttpRoute(route)) = Object::decode(&raw).unwrap() else {
        panic!()
    };
    let held = format!("{route:?}");
    assert!(held.len() < 1024, "{} bytes: {held}", held.len());
    assert!(!held.contains("xxx") && !held.contains("yyy") && !held.contains("zzz"));
}

/// Any JSON, with names that the decoders look at.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "spec",
        "rules",
        "matches",
        "path",
        "type",
        "value",
        "filters",
        "backendRefs",
        "name",
        "namespace",
        "port",
        "weight",
        "hostnames",
        "parentRefs",
        "listeners",
        "tls",
        "certificateRefs",
        "allowedRoutes",
        "namespaces",
        "from",
        "selector",
        "matchExpressions",
        "env",
        "dataPlane",
        "tags",
        "targetRefs",
        "tykOAS",
        "configmapRef",
        "data",
        "stringData",
        "tls.crt",
        "tls.key",
        "status",
        "loadBalancer",
        "ingress",
        "endpoints",
        "addresses",
        "conditions",
        "ready",
        "to",
        "requestHeaderModifier",
        "set",
        "remove",
        "urlRewrite",
        "requestRedirect",
        "labels",
        "future",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/.:$%{}*-]{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "PathPrefix",
            "HTTP",
            "Selector",
            "URLRewrite",
            "ReplaceFullPath",
            "kubernetes.io/tls"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|fields| {
                Value::Object(
                    fields
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

proptest! {
    /// gateway-api bug 38: one odd object must not block the others. Whatever an object holds, with an identity it
    /// decodes, and every rule is there at its index.
    #[test]
    fn an_object_with_an_identity_always_decodes(kind in 0usize..11, spec in any_json(), status in any_json(), data in any_json()) {
        let (api_version, kind) = [
            ("gateway.networking.k8s.io/v1", "GatewayClass"), ("gateway.networking.k8s.io/v1", "Gateway"),
            ("gateway.networking.k8s.io/v1", "HTTPRoute"), ("gateway.networking.k8s.io/v1", "ReferenceGrant"),
            ("tyk.tyk.io/v1alpha1", "OperatorContext"), ("tyk.tyk.io/v1alpha1", "TykOasApiDefinition"), ("v1", "Service"),
            ("discovery.k8s.io/v1", "EndpointSlice"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Namespace"),
        ][kind];
        let value = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec, "status": status,
            "type": "kubernetes.io/tls", "data": data, "endpoints": spec, "ports": status, "stringData": spec,
        });
        let decoded = Object::decode(&value);
        prop_assert!(matches!(decoded, Ok(Some(_))), "{decoded:?}");
        if let Ok(Some(Object::HttpRoute(route))) = decoded {
            let rules = value["spec"]["rules"].as_array().map_or(0, Vec::len);
            prop_assert!(route.rules.len() == rules || rules == 0);
        }
    }

    /// gateway-api bug 30: what a grant's group says is taken as it is; nothing but the empty string is the core group.
    #[test]
    fn only_the_empty_group_is_the_core_group(group in "[a-z.]{0,8}") {
        let grant = decoded!(
            ReferenceGrant,
            "gateway.networking.k8s.io/v1",
            json!({"spec": {"from": [], "to": [{"group": group, "kind": "Service"}]}})
        );
        prop_assert_eq!(grant.to[0].0.is_empty(), group.is_empty());
        prop_assert_eq!(&grant.to[0].0, &group);
    }

    /// gateway-api bug 34, the decoding part: the order of fields in an object changes nothing.
    #[test]
    fn decoding_is_a_function_of_the_value(value in any_json()) {
        let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "a"}, "spec": value});
        let again: Value = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(Object::decode(&object), Object::decode(&again));
    }
}
