//! Gateways: the source's statements on addresses, listeners, TLS, conditions, and listener reasons.

use super::{
    super::objects::{
        Gateway, Kind, Problem, Secret, Service, core::IngressAddress, gateway::AllowedNamespaces,
    },
    fixtures::*,
};

fn edge(listeners: Vec<super::super::objects::gateway::Listener>) -> World {
    World::new().with(gateway("infra", "edge", listeners))
}

fn accepted(world: &World) -> String {
    said(&world.edge().conditions, "Accepted")
}

fn programmed(world: &World) -> String {
    said(&world.edge().conditions, "Programmed")
}

fn addresses(service: Service) -> (Vec<(&'static str, String)>, String) {
    let world = World::new().with(service);
    (world.edge().addresses.clone(), programmed(&world))
}

fn balancer(ingress: Vec<IngressAddress>) -> Service {
    Service {
        type_: "LoadBalancer".into(),
        ingress,
        ..service("infra", "tyk", &[80])
    }
}

#[test]
fn gateway_address_of_a_load_balancer_with_an_ingress() {
    let found = addresses(balancer(vec![
        IngressAddress::Hostname("lb.example.com".into()),
        IngressAddress::Ip("192.0.2.1".into()),
    ]));
    assert_eq!(
        found.0,
        [
            ("Hostname", "lb.example.com".into()),
            ("IPAddress", "192.0.2.1".into())
        ]
    );
    assert_eq!(found.1, "True Programmed");
}

#[test]
fn gateway_address_of_a_load_balancer_with_no_ingress_yet() {
    let found = addresses(balancer(vec![]));
    assert_eq!(found, (vec![], "False AddressNotAssigned".into()));
}

#[test]
fn gateway_address_of_an_external_name() {
    let external = Service {
        type_: "ExternalName".into(),
        external_name: Some("tyk.example.com".into()),
        cluster_ip: None,
        ..service("infra", "tyk", &[])
    };
    assert_eq!(addresses(external).0, [("Hostname", "tyk.example.com".into())]);
}

/// Kubernetes lets names be written that `status.addresses` does not take; one of them would cost the whole status.
#[test]
fn an_address_is_spelled_as_gateway_api_takes_it_or_left_out() {
    // given a name that is written as a fully qualified one
    let external = |name: &str| Service {
        type_: "ExternalName".into(),
        external_name: Some(name.into()),
        cluster_ip: None,
        ..service("infra", "tyk", &[])
    };
    let good = ("Hostname", "tyk.example.com".to_owned());
    assert_eq!(
        addresses(external("Tyk.Example.com.")),
        (vec![good.clone()], "True Programmed".into())
    );
    // given a balancer with an address that is none beside a good one, then the good one counts
    let odd = || {
        vec![
            IngressAddress::Ip("010.0.0.1".into()),
            IngressAddress::Hostname("a_b.example.com".into()),
        ]
    };
    let mut mixed = odd();
    mixed.push(IngressAddress::Hostname("tyk.example.com".into()));
    assert_eq!(addresses(balancer(mixed)), (vec![good], "True Programmed".into()));
    // and without a good one there is none, and the message names what there is
    for (service, wrong) in [(balancer(odd()), "010.0.0.1"), (external("a_b"), "a_b")] {
        let world = World::new().with(service);
        assert!(world.edge().addresses.is_empty());
        assert_eq!(programmed(&world), "False AddressNotAssigned");
        let words = message(&world.edge().conditions, "Programmed");
        assert!(
            words.contains(wrong) && words.contains("Service infra/tyk"),
            "{words}"
        );
    }
}

#[test]
fn gateway_address_of_other_types_is_the_cluster_ip() {
    for type_ in ["ClusterIP", "NodePort"] {
        let other = Service {
            type_: type_.into(),
            ..service("infra", "tyk", &[80])
        };
        assert_eq!(addresses(other).0, [("IPAddress", "10.0.0.1".into())]);
    }
}

#[test]
fn gateway_address_of_a_headless_service() {
    let found = addresses(headless("infra", "tyk", &[80])).0;
    assert_eq!(found, [("Hostname", "tyk.infra.svc.cluster.local".into())]);
}

#[test]
fn spec_addresses_is_ignored_and_said() {
    let mut object = gateway("infra", "edge", vec![http("web", 80)]);
    object.addresses = vec![("IPAddress".into(), "203.0.113.7".into())];
    let world = World::new().with(object);
    assert_eq!(world.edge().addresses, [("IPAddress", "10.0.0.1".into())]);
    assert_eq!(programmed(&world), "True Programmed");
    assert!(
        message(&world.edge().conditions, "Programmed").contains("spec.addresses is ignored (203.0.113.7)")
    );
}

#[test]
fn an_address_of_any_value_is_had_if_there_is_one_of_its_type() {
    let mut object = gateway("infra", "edge", vec![http("web", 80)]);
    object.addresses = vec![("IPAddress".into(), String::new())];
    let mut world = World::new().with(object.clone());
    assert_eq!(message(&world.edge().conditions, "Programmed"), "");
    object.addresses = vec![("Hostname".into(), String::new())];
    world.put(object);
    let words = message(&world.edge().conditions, "Programmed");
    assert!(
        words.contains("spec.addresses is ignored (any Hostname)"),
        "{words}"
    );
}

#[test]
fn each_listener_must_use_http_or_https() {
    let mut tcp = http("tcp", 80);
    tcp.protocol = "TCP".into();
    let mut passthrough = https("pass", 443, "a.example.com", &[]);
    passthrough.tls.as_mut().unwrap().mode = "Passthrough".into();
    let world = edge(vec![tcp, passthrough, http("web", 8080)]);
    for name in ["tcp", "pass"] {
        let listener = world.listener(name);
        assert_eq!(
            said(&listener.conditions, "Accepted"),
            "False UnsupportedProtocol"
        );
        assert_eq!(said(&listener.conditions, "Programmed"), "False Invalid");
        assert!(listener.supported_kinds.is_empty());
    }
    assert_eq!(
        said(&world.listener("web").conditions, "Accepted"),
        "True Accepted"
    );
}

#[test]
fn each_listener_must_use_a_port_that_the_service_exposes() {
    let world = edge(vec![http("web", 80), http("other", 81)]);
    assert_eq!(
        said(&world.listener("web").conditions, "Accepted"),
        "True Accepted"
    );
    let other = world.listener("other");
    assert_eq!(said(&other.conditions, "Accepted"), "False PortUnavailable");
    assert!(message(&other.conditions, "Accepted").contains("port 81 is not a port of Service infra/tyk"));
}

#[test]
fn any_port_is_good_if_the_service_has_no_ports() {
    // given an ExternalName Service without ports; or none at all
    let external = Service {
        type_: "ExternalName".into(),
        external_name: Some("tyk.example.com".into()),
        ..service("infra", "tyk", &[])
    };
    let mut world = edge(vec![http("web", 12_345)]).with(external);
    assert_eq!(
        said(&world.listener("web").conditions, "Accepted"),
        "True Accepted"
    );
    world.gone(Kind::Service, "infra", "tyk");
    assert_eq!(
        said(&world.listener("web").conditions, "Accepted"),
        "True Accepted"
    );
}

#[test]
fn each_listener_must_not_conflict_by_protocol() {
    let certificate = [secret_ref(None, "cert")];
    let world = edge(vec![
        http("plain", 443),
        https("secure", 443, "a.example.com", &certificate),
        http("web", 80),
    ])
    .with(tls_secret("infra", "cert", "leaf"));
    // no winner: both are refused, the third is not
    for name in ["plain", "secure"] {
        let conditions = &world.listener(name).conditions;
        for type_ in ["Accepted", "Programmed"] {
            assert_eq!(said(conditions, type_), "False ProtocolConflict", "{name}");
        }
        assert_eq!(said(conditions, "Conflicted"), "True ProtocolConflict");
    }
    assert_eq!(said(&world.listener("web").conditions, "Conflicted"), "-");
    assert_eq!(accepted(&world), "True ListenersNotValid");
}

/// What cannot be read must not look like "any host".
#[test]
fn a_listener_with_a_bad_hostname_is_refused_alone_and_admits_nothing() {
    let certificate = [secret_ref(None, "cert")];
    let bad = |mut listener: super::super::objects::gateway::Listener, index: usize| {
        listener.hostname = None;
        let place = format!("spec.listeners[{index}].hostname");
        listener.problems = vec![Problem::new(place, "is an IP address")];
        listener
    };
    let mut object = route("r", &[]);
    object.parents = vec![
        section(parent("infra", "edge"), "a"),
        section(parent("infra", "edge"), "b"),
    ];
    let world = edge(vec![
        http("a", 80),
        bad(http("b", 80), 1),
        https("c", 443, "x.example.com", &certificate),
        bad(https("d", 443, "", &certificate), 3),
    ])
    .with(tls_secret("infra", "cert", "leaf"))
    .with(object);
    for (name, accepted, routes) in [
        ("a", "True Accepted", 1),
        ("b", "False UnsupportedValue", 0),
        ("c", "True Accepted", 0),
        ("d", "False UnsupportedValue", 0),
    ] {
        let listener = world.listener(name);
        assert_eq!(said(&listener.conditions, "Accepted"), accepted, "{name}");
        assert_eq!(said(&listener.conditions, "Conflicted"), "-", "{name}");
        assert_eq!(said(&listener.conditions, "OverlappingTLSConfig"), "-", "{name}");
        assert_eq!(listener.attached_routes, routes, "{name}");
    }
    let parents = &world.route("r").parents;
    assert_eq!(said(&parents[0].conditions, "Accepted"), "True Accepted");
    assert_eq!(
        said(&parents[1].conditions, "Accepted"),
        "False NoMatchingListenerHostname"
    );
    let words = message(&parents[1].conditions, "Accepted");
    assert!(words.ends_with("what is no hostname, on listener b"), "{words}");
}

#[test]
fn each_listener_must_not_conflict_by_hostname() {
    let world = edge(vec![
        named(http("a", 80), "x.example.com"),
        named(http("b", 80), "x.example.com"),
        named(http("c", 80), "y.example.com"),
        named(http("d", 8080), "x.example.com"),
    ]);
    for (name, said_) in [
        ("a", "True HostnameConflict"),
        ("b", "True HostnameConflict"),
        ("c", "-"),
        ("d", "-"),
    ] {
        assert_eq!(said(&world.listener(name).conditions, "Conflicted"), said_);
    }
}

#[test]
fn the_listener_port_is_used_only_for_the_check() {
    // given listeners of two ports with the same hostname
    let world = edge(vec![
        named(http("a", 80), "x.example.com"),
        named(http("b", 8080), "x.example.com"),
    ])
    .with(route("r", &[]));
    // then there is one API, which knows nothing of ports
    assert_eq!(world.places("r"), ["x.example.com /"]);
}

#[test]
fn each_certificate_ref_must_refer_to_a_tls_secret_with_a_matching_certificate_and_key() {
    let opaque = Secret {
        type_: "Opaque".into(),
        ..tls_secret("infra", "opaque", "x")
    };
    let mismatch = Secret {
        tls: Some(Err("tls.key does not match tls.crt".into())),
        ..tls_secret("infra", "mismatch", "x")
    };
    let mut config = secret_ref(None, "good");
    config.kind = "ConfigMap".into();
    let mut group = secret_ref(None, "good");
    group.group = "example.org".into();
    for (certificates, words) in [
        (
            vec![secret_ref(None, "absent")],
            "Secret infra/absent does not exist",
        ),
        (vec![secret_ref(None, "opaque")], "not of type kubernetes.io/tls"),
        (
            vec![secret_ref(None, "mismatch")],
            "tls.key does not match tls.crt",
        ),
        (vec![config], "must refer to a Secret"),
        (vec![group], "must refer to a Secret"),
        (vec![], "needs a certificate"),
        (
            vec![secret_ref(None, "good"), secret_ref(None, "absent")],
            "tls.certificateRefs[1]",
        ),
    ] {
        let world = edge(vec![
            https("tls", 443, "a.example.com", &certificates),
            http("web", 80),
        ])
        .with(opaque.clone())
        .with(mismatch.clone())
        .with(tls_secret("infra", "good", "leaf"));
        let conditions = &world.listener("tls").conditions;
        assert_eq!(
            said(conditions, "ResolvedRefs"),
            "False InvalidCertificateRef",
            "{words}"
        );
        assert_eq!(said(conditions, "Programmed"), "False Invalid");
        assert_eq!(said(conditions, "Accepted"), "True Accepted");
        assert!(
            message(conditions, "ResolvedRefs").contains(words),
            "{conditions:?}"
        );
        assert_eq!(accepted(&world), "True ListenersNotValid");
    }
}

#[test]
fn a_secret_in_another_namespace_needs_a_reference_grant_and_nothing_is_revealed() {
    let certificates = [secret_ref(Some("vault"), "cert"), secret_ref(None, "absent")];
    let listeners = || vec![https("tls", 443, "a.example.com", &certificates), http("web", 80)];
    let refs = |world: &World| {
        let conditions = &world.listener("tls").conditions;
        (
            said(conditions, "ResolvedRefs"),
            message(conditions, "ResolvedRefs").to_owned(),
        )
    };
    // given no grant: the same words whether or not the Secret exists, and before what else is wrong
    let without = refs(&edge(listeners()));
    let mut world = edge(listeners()).with(tls_secret("vault", "cert", "leaf"));
    assert_eq!(refs(&world), without);
    assert_eq!(without.0, "False RefNotPermitted");
    // when grants do not quite match
    for wrong in [
        grant("vault", "HTTPRoute", "infra", "Secret", None),
        grant("vault", "Gateway", "shop", "Secret", None),
        grant("vault", "Gateway", "infra", "Service", None),
        grant("vault", "Gateway", "infra", "Secret", Some("other")),
        grant("infra", "Gateway", "infra", "Secret", None),
    ] {
        world.put(wrong);
        assert_eq!(refs(&world).0, "False RefNotPermitted");
    }
    // when one does, then it is used
    world.put(grant("vault", "Gateway", "infra", "Secret", Some("cert")));
    assert_eq!(refs(&world).0, "False InvalidCertificateRef");
    world.put(tls_secret("infra", "absent", "other"));
    assert_eq!(refs(&world).0, "True ResolvedRefs");
}

#[test]
fn certificates_are_attached_to_apis_with_an_effective_hostname_only() {
    let certificate = [secret_ref(None, "cert")];
    let mut hostless = https("any", 8080, "", &certificate);
    hostless.hostname = None;
    let world = edge(vec![https("tls", 443, "*.example.com", &certificate), hostless])
        .with(tls_secret("infra", "cert", "leaf"))
        .with(route("r", &[]));
    let apis = &world.route("r").apis;
    assert_eq!(world.places("r"), ["any /", "*.example.com /"]);
    assert!(apis[0].certificates.is_empty());
    assert_eq!(apis[1].certificates[0].certificate.leaf.0, "leaf");
    assert_eq!(apis[1].certificates[0].secret, key("infra", "cert"));
}

#[test]
fn gateway_accepted_true_listeners_not_valid_and_the_valid_ones_are_used() {
    let world = edge(vec![
        named(http("bad", 81), "bad.example.com"),
        named(http("web", 80), "ok.example.com"),
    ])
    .with(route("r", &[]));
    assert_eq!(accepted(&world), "True ListenersNotValid");
    assert!(message(&world.edge().conditions, "Accepted").contains("bad: PortUnavailable"));
    assert_eq!(programmed(&world), "True Programmed");
    assert_eq!(world.places("r"), ["ok.example.com /"]);
}

#[test]
fn gateway_accepted_false_listeners_not_valid() {
    let world = edge(vec![http("bad", 81)]);
    assert_eq!(accepted(&world), "False ListenersNotValid");
    assert_eq!(programmed(&world), "False Invalid");
}

#[test]
fn gateway_accepted_and_programmed_false_invalid_when_the_class_context_cannot_be_read() {
    let mut world = World::new();
    world.gone(Kind::OperatorContext, "infra", "class");
    assert_eq!(accepted(&world), "False Invalid");
    assert_eq!(programmed(&world), "False Invalid");
    assert_eq!(
        said(&world.listener("web").conditions, "Programmed"),
        "False Invalid"
    );
}

/// Differs from the source, which says Invalid: Gateway API's own reason, and what its suite asks for.
#[test]
fn gateway_with_a_bad_infrastructure_parameters_ref_is_invalid_parameters() {
    let mut wrong_kind = context_ref(None, "own");
    wrong_kind.group = "invalid.io".into();
    for reference in [wrong_kind, context_ref(None, "absent")] {
        let mut object = gateway("infra", "edge", vec![http("web", 80)]);
        object.parameters = Some(reference);
        let world = World::new().with(object).with(route("r", &[]));
        assert_eq!(accepted(&world), "False InvalidParameters");
        assert_eq!(programmed(&world), "False Invalid");
        assert_eq!(
            said(&world.parent("r").conditions, "Accepted"),
            "False NoMatchingParent"
        );
    }
}

fn own_context(change: impl Fn(&mut super::super::objects::OperatorContext)) -> World {
    let mut object = gateway("infra", "edge", vec![http("web", 80)]);
    object.parameters = Some(context_ref(None, "own"));
    let mut own = tags("infra", "own", &["blue"]);
    change(&mut own);
    World::new().with(object).with(own).with(route("r", &[]))
}

#[test]
fn the_gateways_own_context_overrides_the_data_plane_only() {
    // given an own context with another connection, and tags
    let world = own_context(|own| own.env = Some(env("ce", "http://elsewhere:8080")));
    let api = &world.route("r").apis[0];
    // then the tags are its own, the Service and the connection those of the class
    assert_eq!(api.tags, ["blue"]);
    assert_eq!(api.connection.url, "http://dashboard.tyk.svc:3000");
    assert_eq!(world.edge().addresses, [("IPAddress", "10.0.0.1".into())]);
    // and so they are when the connection that nobody reads does not decode
    let world = own_context(|own| {
        own.connection_problems
            .push(Problem::new("spec.env.org", "must not hold \"$secret_\""));
    });
    assert_eq!(accepted(&world), "True Accepted");
    assert_eq!(world.route("r").apis[0].tags, ["blue"]);
    // and one that sets the Service keeps the tags of the class
    let world = own_context(|own| {
        let plane = own.data_plane.as_mut().unwrap();
        plane.tags = None;
        plane.service_ref = Some(("web".into(), Some("shop".into())));
    });
    assert_eq!(world.route("r").apis[0].tags, ["edge"]);
}

/// The way out is in the object that a message names.
#[test]
fn what_is_wrong_with_a_data_plane_names_the_context_that_says_it() {
    // given an own context with tags, and a Service that the class names and that does not exist
    let mut world = own_context(|_| ());
    world.gone(Kind::Service, "infra", "tyk");
    let words = message(&world.edge().conditions, "Programmed");
    assert!(
        words.starts_with("OperatorContext infra/class: spec.dataPlane.serviceRef: Service infra/tyk"),
        "{words}"
    );
    // given an own context with a Service, and tags of the class that an open-source gateway ignores
    let mut open = context();
    open.env = Some(env("ce", "http://tyk:8080"));
    let world = own_context(|own| {
        let plane = own.data_plane.as_mut().unwrap();
        plane.tags = None;
        plane.service_ref = Some(("web".into(), Some("shop".into())));
    })
    .with(open);
    let words = &world.edge().notices[0].message;
    assert!(
        words.contains("spec.dataPlane.tags of OperatorContext infra/class"),
        "{words}"
    );
}

#[test]
fn gateway_programmed_false_unsupported_address() {
    // given no data plane anywhere; a context without serviceRef; a Service that does not exist
    let mut bare = context();
    bare.data_plane = None;
    let mut no_service = context();
    no_service.data_plane.as_mut().unwrap().service_ref = None;
    let mut gone = World::new();
    gone.gone(Kind::Service, "infra", "tyk");
    for world in [World::new().with(bare), World::new().with(no_service), gone] {
        assert_eq!(programmed(&world), "False UnsupportedAddress");
        assert_eq!(accepted(&world), "True Accepted");
        assert!(world.edge().addresses.is_empty());
    }
}

#[test]
fn gateway_programmed_false_address_not_assigned() {
    let world = World::new().with(balancer(vec![]));
    assert_eq!(programmed(&world), "False AddressNotAssigned");
}

#[test]
fn gateways_without_a_data_plane_context_still_get_apis_without_tags_and_a_warning() {
    let mut bare = context();
    bare.data_plane = None;
    let world = World::new().with(bare).with(route("r", &[]));
    assert_eq!(world.places("r"), ["any /"]);
    assert!(world.route("r").apis[0].tags.is_empty());
    let notice = &world.edge().notices[0];
    assert!(notice.warning);
    assert!(
        notice
            .message
            .contains("every Tyk Gateway that is not segmented loads the APIs")
    );
}

#[test]
fn listener_reason_unsupported_protocol() {
    each_listener_must_use_http_or_https();
}

#[test]
fn listener_reason_port_unavailable() {
    each_listener_must_use_a_port_that_the_service_exposes();
}

#[test]
fn listener_reasons_protocol_conflict_and_hostname_conflict() {
    each_listener_must_not_conflict_by_protocol();
    each_listener_must_not_conflict_by_hostname();
}

#[test]
fn listener_reason_invalid_certificate_ref() {
    each_certificate_ref_must_refer_to_a_tls_secret_with_a_matching_certificate_and_key();
}

#[test]
fn listener_reason_ref_not_permitted() {
    a_secret_in_another_namespace_needs_a_reference_grant_and_nothing_is_revealed();
}

#[test]
fn listener_reason_invalid_route_kinds() {
    let grpc = ("gateway.networking.k8s.io".to_owned(), "GRPCRoute".to_owned());
    let http_route = ("gateway.networking.k8s.io".to_owned(), "HTTPRoute".to_owned());
    let mut only = http("only", 80);
    only.kinds = vec![grpc.clone()];
    let mut mixed = http("mixed", 8080);
    mixed.kinds = vec![http_route, grpc];
    let world = edge(vec![only, mixed]).with(route("r", &[]));
    for name in ["only", "mixed"] {
        assert_eq!(
            said(&world.listener(name).conditions, "ResolvedRefs"),
            "False InvalidRouteKinds"
        );
    }
    // with one legal kind left, the listener is kept
    assert!(world.listener("only").supported_kinds.is_empty());
    assert_eq!(
        world.listener("mixed").supported_kinds,
        [("gateway.networking.k8s.io", "HTTPRoute")]
    );
    assert_eq!(
        said(&world.listener("mixed").conditions, "Programmed"),
        "True Programmed"
    );
    assert_eq!(
        (
            world.listener("only").attached_routes,
            world.listener("mixed").attached_routes
        ),
        (0, 1)
    );
}

#[test]
fn a_listener_that_does_not_decode_is_refused_by_itself() {
    let mut odd = http("odd", 8080);
    odd.problems = vec![Problem::new("spec.listeners[0].port", "must be a number")];
    let world = edge(vec![odd, http("web", 80)]);
    assert_eq!(
        said(&world.listener("odd").conditions, "Accepted"),
        "False UnsupportedValue"
    );
    assert_eq!(
        said(&world.listener("web").conditions, "Accepted"),
        "True Accepted"
    );
}

#[test]
fn overlapping_hostnames_of_https_listeners_are_said_on_both() {
    let certificate = [secret_ref(None, "cert")];
    let world = edge(vec![
        https("wild", 443, "*.example.com", &certificate),
        https("one", 443, "a.example.com", &certificate),
        https("other", 443, "a.example.org", &certificate),
        named(http("plain", 80), "a.example.com"),
    ])
    .with(tls_secret("infra", "cert", "leaf"));
    for (name, said_) in [
        ("wild", "True OverlappingHostnames"),
        ("one", "True OverlappingHostnames"),
        ("other", "-"),
        ("plain", "-"),
    ] {
        assert_eq!(
            said(&world.listener(name).conditions, "OverlappingTLSConfig"),
            said_,
            "{name}"
        );
    }
    // and it keeps neither from serving
    assert_eq!(accepted(&world), "True Accepted");
}

#[test]
fn allowed_routes_admit_by_namespace() {
    let from = |namespaces| {
        let mut listener = http("web", 80);
        listener.namespaces = namespaces;
        edge(vec![listener])
            .with(route("r", &[]))
            .with(namespace("shop", &[("team", "red")]))
    };
    let selector = |value: &str| {
        AllowedNamespaces::Selector(super::super::objects::gateway::LabelSelector {
            labels: [("team".to_owned(), value.to_owned())].into(),
            ..Default::default()
        })
    };
    for (namespaces, admitted) in [
        (AllowedNamespaces::Same, false),
        (AllowedNamespaces::All, true),
        (selector("red"), true),
        (selector("blue"), false),
        (AllowedNamespaces::Unknown("Nobody".into()), false),
    ] {
        let world = from(namespaces);
        let want = if admitted {
            "True Accepted"
        } else {
            "False NotAllowedByListeners"
        };
        assert_eq!(said(&world.parent("r").conditions, "Accepted"), want);
    }
    // and a Namespace that is not seen has its name as a label
    let by_name = AllowedNamespaces::Selector(super::super::objects::gateway::LabelSelector {
        labels: [("kubernetes.io/metadata.name".to_owned(), "shop".to_owned())].into(),
        ..Default::default()
    });
    let mut world = from(by_name);
    world.gone(Kind::Namespace, "", "shop");
    assert_eq!(said(&world.parent("r").conditions, "Accepted"), "True Accepted");
}

#[test]
fn a_gateway_that_does_not_decode_is_invalid() {
    let object = Gateway {
        problems: vec![Problem::new("spec.listeners", "must be a list")],
        ..gateway("infra", "edge", vec![])
    };
    let world = World::new().with(object);
    assert_eq!(accepted(&world), "False Invalid");
    assert!(message(&world.edge().conditions, "Accepted").contains("spec.listeners: must be a list"));
}

#[test]
fn without_a_connection_nothing_is_programmed() {
    let mut no_auth = context();
    no_auth.env.as_mut().unwrap().auth = None;
    let world = World::new().with(no_auth);
    assert_eq!(accepted(&world), "True Accepted");
    assert_eq!(programmed(&world), "False Pending");
    assert_eq!(
        said(&world.listener("web").conditions, "Programmed"),
        "False Pending"
    );
}
