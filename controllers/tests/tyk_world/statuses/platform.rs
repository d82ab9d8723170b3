//! Rows of GatewayClasses, Gateways and listeners.

use serde_json::{Value, json};

use super::{super::world::*, At, FINE, Row, objects::*, row};

pub(super) fn classes() -> Vec<Row> {
    const REFUSED: [&str; 2] = [
        "Accepted False/InvalidParameters",
        "SupportedVersion True/SupportedVersion",
    ];
    let parameters = |group: &str, kind: &str, name: &str, namespace: Option<&str>| {
        let mut value = json!({"group": group, "kind": kind, "name": name});
        if let Some(namespace) = namespace {
            value["namespace"] = json!(namespace);
        }
        value
    };
    let refused = |name: &'static str, given: Vec<Value>, words: &'static [&'static str]| {
        row(given, At::Class(name), &REFUSED, words)
    };
    let ours = "tyk.tyk.io";
    vec![
        row(
            [],
            At::Class("tyk"),
            &["Accepted True/Accepted", "SupportedVersion True/SupportedVersion"],
            &[],
        ),
        refused(
            "nothing",
            vec![class_by("nothing", Value::Null)],
            &["spec.parametersRef: missing", "must refer to an OperatorContext"],
        ),
        refused(
            "other-kind",
            vec![class_by(
                "other-kind",
                parameters("", "Secret", "connection", Some("web")),
            )],
            &["spec.parametersRef", "group tyk.tyk.io, kind OperatorContext"],
        ),
        refused(
            "no-namespace",
            vec![class_by(
                "no-namespace",
                parameters(ours, "OperatorContext", "tyk", None),
            )],
            &["spec.parametersRef.namespace: missing"],
        ),
        refused(
            "no-context",
            vec![class_by(
                "no-context",
                parameters(ours, "OperatorContext", "absent", Some("web")),
            )],
            &["spec.parametersRef", "OperatorContext web/absent does not exist"],
        ),
        refused(
            "neither",
            class_with("neither", json!({})).into(),
            &[
                "OperatorContext web/neither",
                "neither spec.env nor spec.secretRef",
            ],
        ),
        refused(
            "no-secret",
            class_without_secret("no-secret").into(),
            &[
                "OperatorContext web/no-secret",
                "spec.secretRef",
                "Secret web/absent does not exist",
            ],
        ),
        refused(
            "no-url",
            class_with("no-url", json!({"env": {"mode": "ce", "auth": "open sesame"}})).into(),
            &["OperatorContext web/no-url", "no url", "spec.env.url", "TYK_URL"],
        ),
        refused(
            "no-auth",
            class_with(
                "no-auth",
                json!({"env": {"mode": "ce", "url": "http://tyk:8080"}}),
            )
            .into(),
            &[
                "OperatorContext web/no-auth",
                "no auth",
                "spec.env.auth",
                "TYK_AUTH",
            ],
        ),
        refused(
            "no-mode",
            class_with(
                "no-mode",
                json!({"env": {"url": "http://tyk:8080", "auth": "open sesame"}}),
            )
            .into(),
            &[
                "OperatorContext web/no-mode",
                "no mode",
                "spec.env.mode",
                "TYK_MODE",
            ],
        ),
    ]
}

pub(super) fn gateways() -> Vec<Row> {
    const FINE: [&str; 2] = ["Accepted True/Accepted", "Programmed True/Programmed"];
    const UNADDRESSED: [&str; 2] = ["Accepted True/Accepted", "Programmed False/UnsupportedAddress"];
    let mut rows = vec![
        row([], At::Gateway("public"), &FINE, &[]),
        row(
            [gateway_with(
                "some-valid",
                json!([http("http", 80), {"name": "tcp", "protocol": "TCP", "port": 81}]),
            )],
            At::Gateway("some-valid"),
            &["Accepted True/ListenersNotValid", "Programmed True/Programmed"],
            &["some listeners are not valid", "tcp: UnsupportedProtocol"],
        ),
        row(
            [gateway_with(
                "none-valid",
                json!([{"name": "tcp", "protocol": "TCP", "port": 81}]),
            )],
            At::Gateway("none-valid"),
            &["Accepted False/ListenersNotValid", "Programmed False/Invalid"],
            &["no listener is valid", "tcp: UnsupportedProtocol"],
        ),
        row(
            [
                class_by("unreadable", Value::Null),
                of_class(named(gateway(), "unreadable-class"), "unreadable"),
            ],
            At::Gateway("unreadable-class"),
            &["Accepted False/Invalid", "Programmed False/Invalid"],
            &["GatewayClass unreadable", "spec.parametersRef: missing"],
        ),
        row(
            [with(
                named(gateway(), "odd-field"),
                "/spec/tls",
                json!({"frontend": {"default": {}}}),
            )],
            At::Gateway("odd-field"),
            &["Accepted False/Invalid", "Programmed False/Invalid"],
            &["spec.tls.frontend", "remove the field"],
        ),
        row(
            [on_plane("no-plane", "absent")],
            At::Gateway("no-plane"),
            &["Accepted False/InvalidParameters", "Programmed False/Invalid"],
            &[
                "spec.infrastructure.parametersRef",
                "OperatorContext web/absent does not exist",
            ],
        ),
        row(
            class_without_secret("pending")
                .into_iter()
                .chain([of_class(named(gateway(), "pending"), "pending")]),
            At::Gateway("pending"),
            &["Accepted True/Accepted", "Programmed False/Pending"],
            &["GatewayClass pending", "Secret web/absent does not exist"],
        ),
        row(
            [without_plane("no-parameters")],
            At::Gateway("no-parameters"),
            &UNADDRESSED,
            &[
                "set spec.infrastructure.parametersRef",
                "spec.dataPlane.serviceRef",
            ],
        ),
        row(
            [
                context("no-service-ref", json!({"dataPlane": {"tags": ["a"]}})),
                on_plane("no-service-ref", "no-service-ref"),
            ],
            At::Gateway("no-service-ref"),
            &UNADDRESSED,
            &[
                "set spec.dataPlane.serviceRef",
                "OperatorContext web/no-service-ref",
            ],
        ),
        row(
            [
                context(
                    "no-service",
                    json!({"dataPlane": {"serviceRef": {"name": "absent"}}}),
                ),
                on_plane("no-service", "no-service"),
            ],
            At::Gateway("no-service"),
            &UNADDRESSED,
            &[
                "OperatorContext web/no-service",
                "spec.dataPlane.serviceRef",
                "Service web/absent does not exist",
            ],
        ),
    ];
    let mut waiting = named(service("balancer"), "balancer");
    waiting["spec"]["type"] = json!("LoadBalancer");
    rows.push(row(
        [
            waiting,
            context(
                "balancer",
                json!({"dataPlane": {"serviceRef": {"name": "balancer"}}}),
            ),
            on_plane("no-address", "balancer"),
        ],
        At::Gateway("no-address"),
        &["Accepted True/Accepted", "Programmed False/AddressNotAssigned"],
        &["Service web/balancer", "no address yet"],
    ));
    rows
}

pub(super) fn listeners() -> Vec<Row> {
    let broken = |name: &'static str,
                  listener: Value,
                  says: &'static [&'static str],
                  words: &'static [&'static str]| {
        row(
            [gateway_with(name, json!([listener]))],
            At::Listener(name, "l"),
            says,
            words,
        )
    };
    let mut passthrough = https("l", "a.example.com", json!({"name": "good"}));
    passthrough["tls"]["mode"] = json!("Passthrough");
    let mut odd = http("l", 80);
    odd["hostname"] = json!("not a hostname");
    let mut kinds = http("l", 80);
    kinds["allowedRoutes"] = json!({"kinds": [{"group": GROUP, "kind": "GRPCRoute"}]});
    const UNPROTOCOL: &[&str] = &[
        "Accepted False/UnsupportedProtocol",
        "ResolvedRefs True/ResolvedRefs",
        "Programmed False/Invalid",
    ];
    const UNCERTIFIED: &[&str] = &[
        "Accepted True/Accepted",
        "ResolvedRefs False/InvalidCertificateRef",
        "Programmed False/Invalid",
    ];
    const OVERLAP: &[&str] = &[
        FINE[0],
        FINE[1],
        FINE[2],
        "OverlappingTLSConfig True/OverlappingHostnames",
    ];
    let good = || json!({"name": "good"});
    vec![
        row([], At::Listener("public", "http"), &FINE, &[]),
        broken(
            "l-tcp",
            json!({"name": "l", "protocol": "TCP", "port": 80}),
            UNPROTOCOL,
            &["protocol TCP", "use HTTP or HTTPS"],
        ),
        broken(
            "l-pass",
            passthrough,
            UNPROTOCOL,
            &["tls.mode Passthrough", "use Terminate"],
        ),
        broken(
            "l-odd",
            odd,
            &[
                "Accepted False/UnsupportedValue",
                "ResolvedRefs True/ResolvedRefs",
                "Programmed False/Invalid",
            ],
            &["spec.listeners[0].hostname"],
        ),
        broken(
            "l-port",
            http("l", 81),
            &[
                "Accepted False/PortUnavailable",
                "ResolvedRefs True/ResolvedRefs",
                "Programmed False/Invalid",
            ],
            &["port 81", "Service web/gateways", "it has: 80; 443"],
        ),
        row(
            [gateway_with(
                "l-protocols",
                json!([http("l", 443), https("m", "b.example.com", good())]),
            )],
            At::Listener("l-protocols", "l"),
            &[
                "Accepted False/ProtocolConflict",
                "ResolvedRefs True/ResolvedRefs",
                "Programmed False/ProtocolConflict",
                "Conflicted True/ProtocolConflict",
            ],
            &["port 443", "listener m"],
        ),
        row(
            [gateway_with("l-hosts", json!([http("l", 80), http("m", 80)]))],
            At::Listener("l-hosts", "l"),
            &[
                "Accepted False/HostnameConflict",
                "ResolvedRefs True/ResolvedRefs",
                "Programmed False/HostnameConflict",
                "Conflicted True/HostnameConflict",
            ],
            &["port 80", "listener m"],
        ),
        broken(
            "l-no-secret",
            https("l", "c.example.com", json!({"name": "absent"})),
            UNCERTIFIED,
            &["tls.certificateRefs[0]", "Secret web/absent does not exist"],
        ),
        broken(
            "l-type",
            https("l", "d.example.com", json!({"name": "connection"})),
            UNCERTIFIED,
            &[
                "tls.certificateRefs[0]",
                "Secret web/connection",
                "kubernetes.io/tls",
            ],
        ),
        broken(
            "l-denied",
            https(
                "l",
                "e.example.com",
                json!({"name": "good", "namespace": "storage"}),
            ),
            &[
                "Accepted True/Accepted",
                "ResolvedRefs False/RefNotPermitted",
                "Programmed False/Invalid",
            ],
            &[
                "tls.certificateRefs[0]",
                "no ReferenceGrant in namespace storage",
                "Secret storage/good",
            ],
        ),
        broken(
            "l-kinds",
            kinds,
            &[
                "Accepted True/Accepted",
                "ResolvedRefs False/InvalidRouteKinds",
                "Programmed False/Invalid",
            ],
            &["allowedRoutes.kinds", "GRPCRoute", "only HTTPRoute is"],
        ),
        row(
            class_without_secret("l-pending").into_iter().chain([of_class(
                gateway_with("l-pending", json!([http("l", 80)])),
                "l-pending",
            )]),
            At::Listener("l-pending", "l"),
            &[
                "Accepted True/Accepted",
                "ResolvedRefs True/ResolvedRefs",
                "Programmed False/Pending",
            ],
            &["Secret web/absent does not exist"],
        ),
        row(
            [gateway_with(
                "l-overlap",
                json!([
                    https("l", "*.example.com", good()),
                    https("m", "f.example.com", good())
                ]),
            )],
            At::Listener("l-overlap", "l"),
            OVERLAP,
            &["listener m"],
        ),
    ]
}
