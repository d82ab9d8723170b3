//! HTTPRoutes: the source's statements on backends, rejected parts, API identity, conditions, updates.

use super::{
    super::{
        httproute::names::{ANNOTATION, FINALIZER},
        objects::{
            HttpRoute, Kind, Problem, Service,
            route::{HeaderEdit, Method, PathRewrite, Redirect},
        },
        translate,
        verdict::Disposition,
    },
    fixtures::*,
};

fn accepted(world: &World, name: &str) -> String {
    said(&world.parent(name).conditions, "Accepted")
}

fn why(world: &World, name: &str) -> String {
    message(&world.parent(name).conditions, "Accepted").to_owned()
}

fn refs(world: &World, name: &str) -> String {
    said(&world.parent(name).conditions, "ResolvedRefs")
}

fn disposition(world: &World, name: &str) -> Disposition {
    world.route(name).gateways[&key("infra", "edge")]
}

fn with_backends(backends: Vec<super::super::objects::route::BackendRef>) -> World {
    World::new().with(with_rules("r", &[], vec![rule("/", backends)]))
}

// --- Backends ---

#[test]
fn backend_service_with_port_set() {
    let world = with_backends(vec![backend("web", 80)]);
    assert_eq!(world.targets("r"), [("web.shop.svc.cluster.local:80".into(), 1)]);
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
}

#[test]
fn backend_several_services_by_weight_default_1_and_0_left_out() {
    let world = with_backends(vec![
        weighted("web", 80, 30),
        weighted("api", 80, 70),
        weighted("off", 80, 0),
        weighted("web", 8080, 0),
    ])
    .with(service("shop", "api", &[80]))
    .with(service("shop", "off", &[80]));
    assert_eq!(
        world.targets("r"),
        [
            ("api.shop.svc.cluster.local:80".into(), 7),
            ("web.shop.svc.cluster.local:80".into(), 3)
        ]
    );
}

#[test]
fn backend_headless_service_uses_the_addresses_of_its_pods() {
    let mut world = with_backends(vec![weighted("db", 80, 1), weighted("web", 80, 1)])
        .with(headless("shop", "db", &[80, 81]))
        .with(slice("shop", "db-1", "db", 80, &["10.1.0.2", "10.1.0.1"]))
        .with(slice("shop", "db-2", "db", 80, &["10.1.0.1", "fd00::1"]))
        .with(slice("shop", "db-3", "db", 81, &["10.1.0.9"]))
        .with(slice("shop", "web-1", "web", 80, &["10.1.0.8"]));
    // the Service's half is shared by three addresses
    assert_eq!(
        world.targets("r"),
        [
            ("10.1.0.1:1080".into(), 1),
            ("10.1.0.2:1080".into(), 1),
            ("[fd00::1]:1080".into(), 1),
            ("web.shop.svc.cluster.local:80".into(), 3)
        ]
    );
    // and without a ready address its share fails
    world.gone(Kind::EndpointSlice, "shop", "db-1");
    world.gone(Kind::EndpointSlice, "shop", "db-2");
    assert_eq!(
        world.targets("r"),
        [("?".into(), 1), ("web.shop.svc.cluster.local:80".into(), 1)]
    );
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
}

#[test]
fn backend_in_another_namespace_needs_a_reference_grant() {
    let mut reference = backend("web", 80);
    reference.namespace = Some("other".into());
    let mut world = with_backends(vec![reference]);
    // given no grant: the same words whether or not the Service exists
    let words = message(&world.parent("r").conditions, "ResolvedRefs").to_owned();
    assert_eq!(refs(&world, "r"), "False RefNotPermitted");
    world.put(service("other", "web", &[80]));
    assert_eq!(message(&world.parent("r").conditions, "ResolvedRefs"), words);
    // with a grant it is used, without it is not
    world.put(grant("other", "HTTPRoute", "shop", "Service", Some("web")));
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
    assert_eq!(world.targets("r"), [("web.other.svc.cluster.local:80".into(), 1)]);
    let changes = world.gone(Kind::ReferenceGrant, "other", "grant");
    assert!(changes.routes.contains(&key("shop", "r")));
    assert_eq!(world.targets("r"), [("?".into(), 1)]);
}

#[test]
fn backend_of_any_other_kind_or_group_or_without_port_is_invalid_kind() {
    let mut kind = backend("web", 80);
    kind.kind = "Bucket".into();
    let mut group = backend("web", 80);
    group.group = "example.org".into();
    let mut no_port = backend("web", 80);
    no_port.port = None;
    for reference in [kind, group, no_port] {
        let world = with_backends(vec![reference]);
        assert_eq!(refs(&world, "r"), "False InvalidKind");
        assert_eq!(accepted(&world, "r"), "True Accepted");
        assert!(
            message(&world.parent("r").conditions, "ResolvedRefs")
                .starts_with("spec.rules[0].backendRefs[0]: ")
        );
    }
}

#[test]
fn backend_of_type_external_name_is_invalid_kind() {
    let external = Service {
        type_: "ExternalName".into(),
        external_name: Some("evil.example.com".into()),
        ..service("shop", "web", &[80])
    };
    let world = with_backends(vec![backend("web", 80)]).with(external);
    assert_eq!(refs(&world, "r"), "False InvalidKind");
    assert_eq!(world.targets("r"), [("?".into(), 1)]);
}

#[test]
fn backend_that_is_not_resolved_still_makes_the_api() {
    let mut world = with_backends(vec![weighted("web", 80, 1), weighted("absent", 80, 3)]);
    // as a weighted target among several
    assert_eq!(
        world.targets("r"),
        [("?".into(), 3), ("web.shop.svc.cluster.local:80".into(), 1)]
    );
    assert_eq!(accepted(&world, "r"), "True Accepted");
    assert_eq!(refs(&world, "r"), "False BackendNotFound");
    assert_eq!(disposition(&world, "r"), Disposition::Serve);
    // and it heals when the Service comes
    let changes = world.put(service("shop", "absent", &[80]));
    assert!(changes.routes.contains(&key("shop", "r")));
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
}

#[test]
fn backend_port_that_the_service_does_not_have_is_not_found() {
    let world = with_backends(vec![backend("web", 81)]);
    assert_eq!(refs(&world, "r"), "False BackendNotFound");
}

/// The CRD allows names that no Service can have; and the name becomes part of a host.
#[test]
fn backend_of_a_name_that_no_service_can_have_is_not_found() {
    for name in ["My_Svc", "a.b", "a/b", "env://x"] {
        // given a Service of the name nevertheless
        let world = with_backends(vec![weighted(name, 80, 1), weighted("web", 80, 1)]).with(service(
            "shop",
            name,
            &[80],
        ));
        // then the route is served, and the share of the reference fails
        assert_eq!(accepted(&world, "r"), "True Accepted");
        assert_eq!(refs(&world, "r"), "False BackendNotFound");
        let words = message(&world.parent("r").conditions, "ResolvedRefs");
        assert_eq!(
            words,
            format!("spec.rules[0].backendRefs[0]: {name:?} is no name that a Service can have")
        );
        assert_eq!(
            world.targets("r"),
            [("?".into(), 1), ("web.shop.svc.cluster.local:80".into(), 1)]
        );
    }
}

#[test]
fn backend_after_one_that_does_not_decode_is_named_by_its_own_index() {
    // given what stands for a reference that does not decode
    let mut odd = rule(
        "/odd",
        vec![
            super::super::objects::route::BackendRef::default(),
            backend("gone", 80),
        ],
    );
    odd.problems = vec![Problem::new("spec.rules[0].backendRefs[0].name", "must be set")];
    let world = World::new().with(with_rules(
        "r",
        &[],
        vec![odd, rule("/", vec![backend("web", 80)])],
    ));
    // then ResolvedRefs says nothing of it, and counts it
    assert_eq!(refs(&world, "r"), "False BackendNotFound");
    assert_eq!(
        message(&world.parent("r").conditions, "ResolvedRefs"),
        "spec.rules[0].backendRefs[1]: Service shop/gone does not exist"
    );
}

#[test]
fn backend_of_another_protocol_than_http_is_unsupported_protocol() {
    let mut object = service("shop", "web", &[80]);
    object.ports[0].app_protocol = Some("kubernetes.io/h2c".into());
    let mut world = with_backends(vec![backend("web", 80)]).with(object.clone());
    assert_eq!(refs(&world, "r"), "False UnsupportedProtocol");
    assert_eq!(world.targets("r"), [("?".into(), 1)]);
    object.ports[0].app_protocol = Some("http".into());
    world.put(object);
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
}

#[test]
fn no_backends_is_an_api_without_targets() {
    let world = with_backends(vec![]);
    assert!(world.targets("r").is_empty());
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
}

// --- Redirects: what depends on listeners ---

fn redirecting(scheme: Option<&str>, port: Option<u16>) -> super::super::objects::HttpRoute {
    let mut object = route("r", &[]);
    object.rules = vec![rule("/old", vec![])];
    object.rules[0].filters.redirect = Some(Redirect {
        scheme: scheme.map(Into::into),
        hostname: "new.example.com".into(),
        port,
        path: "/new".into(),
        status: 302,
    });
    object
}

fn locations(world: &World) -> Vec<String> {
    let mut found: Vec<String> = world
        .route("r")
        .apis
        .iter()
        .flat_map(|api| api.operations.values())
        .map(|operation| operation.redirect.clone().unwrap().location)
        .collect();
    found.dedup();
    found
}

#[test]
fn redirect_scheme_and_port_are_set_or_the_same_on_every_listener_that_admits_the_route() {
    let certificate = [secret_ref(None, "cert")];
    let listeners = |names: &[&str]| {
        let all = [
            http("web", 80),
            http("alt", 8080),
            https("tls", 443, "a.example.com", &certificate),
        ];
        let chosen = all
            .into_iter()
            .filter(|l| names.contains(&l.name.as_str()))
            .collect();
        World::new()
            .with(tls_secret("infra", "cert", "leaf"))
            .with(gateway("infra", "edge", chosen))
    };
    for (names, scheme, port, want) in [
        (&["web"][..], None, None, Ok("http://new.example.com/new")),
        (&["alt"], None, None, Ok("http://new.example.com:8080/new")),
        (&["tls"], None, None, Ok("https://new.example.com/new")),
        (
            &["web", "tls"],
            Some("https"),
            None,
            Ok("https://new.example.com/new"),
        ),
        (
            &["web", "tls"],
            Some("https"),
            Some(8443),
            Ok("https://new.example.com:8443/new"),
        ),
        (&["web", "alt"], None, Some(80), Ok("http://new.example.com/new")),
        (
            &["web", "alt"],
            Some("http"),
            None,
            Ok("http://new.example.com/new"),
        ),
        (
            &["web", "tls"],
            None,
            Some(80),
            Err("spec.rules[0].filters[0].requestRedirect.scheme"),
        ),
        (
            &["web", "alt"],
            None,
            None,
            Err("spec.rules[0].filters[0].requestRedirect.port"),
        ),
    ] {
        let world = listeners(names).with(redirecting(scheme, port));
        match want {
            Ok(location) => assert_eq!(locations(&world), [location], "{names:?} {scheme:?} {port:?}"),
            Err(place) => {
                assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
                assert!(why(&world, "r").starts_with(place), "{}", why(&world, "r"));
            }
        }
    }
}

// --- Unsupported features ---

#[test]
fn rules_of_one_path_must_use_the_same_backends() {
    let world = World::new().with(service("shop", "api", &[80])).with(with_rules(
        "r",
        &[],
        vec![
            method_rule("/a", Method::Get, vec![backend("web", 80)]),
            method_rule("/a", Method::Post, vec![backend("api", 80)]),
        ],
    ));
    // the earlier one stays
    let parent = world.parent("r");
    assert_eq!(said(&parent.conditions, "Accepted"), "True Accepted");
    assert_eq!(
        said(&parent.conditions, "PartiallyInvalid"),
        "True UnsupportedValue"
    );
    let words = message(&parent.conditions, "PartiallyInvalid");
    assert!(
        words.starts_with("Dropped Rule 1: spec.rules[1].backendRefs: "),
        "{words}"
    );
    let operations: Vec<_> = world.route("r").apis[0].operations.keys().copied().collect();
    assert_eq!(operations, [Method::Get]);
}

#[test]
fn equal_backends_in_other_words_are_the_same() {
    let mut own = weighted("web", 80, 2);
    own.namespace = Some("shop".into());
    let world = World::new().with(service("shop", "api", &[80])).with(with_rules(
        "r",
        &[],
        vec![
            method_rule(
                "/a",
                Method::Get,
                vec![weighted("web", 80, 1), weighted("api", 80, 2)],
            ),
            method_rule(
                "/a",
                Method::Post,
                vec![weighted("api", 80, 4), own, weighted("gone", 80, 0)],
            ),
        ],
    ));
    assert_eq!(said(&world.parent("r").conditions, "PartiallyInvalid"), "-");
    assert_eq!(world.route("r").apis[0].operations.len(), 2);
}

#[test]
fn rules_of_one_path_must_use_the_same_filters_for_overlapping_methods() {
    let filtered = |method: Option<Method>, value: &str| {
        let mut one = rule("/a", vec![backend("web", 80)]);
        one.matches = vec![matching("/a", method)];
        one.filters.request_headers = HeaderEdit {
            set: [("X-A".to_owned(), value.to_owned())].into(),
            ..HeaderEdit::default()
        };
        one
    };
    let partially = |rules| {
        let world = World::new().with(with_rules("r", &[], rules));
        said(&world.parent("r").conditions, "PartiallyInvalid")
    };
    let (get, post) = (Some(Method::Get), Some(Method::Post));
    assert_eq!(partially(vec![filtered(get, "1"), filtered(post, "2")]), "-");
    assert_eq!(partially(vec![filtered(get, "1"), filtered(get, "1")]), "-");
    assert_eq!(
        partially(vec![filtered(get, "1"), filtered(get, "2")]),
        "True UnsupportedValue"
    );
    assert_eq!(
        partially(vec![filtered(get, "1"), filtered(None, "2")]),
        "True UnsupportedValue"
    );
}

#[test]
fn replace_prefix_match_counts_for_every_method_of_a_path() {
    let rewriting = |method, rewrite| {
        let mut one = method_rule("/a", method, vec![backend("web", 80)]);
        one.filters.rewrite = rewrite;
        one
    };
    let prefix = |p: &str| Some(PathRewrite::Prefix(p.into()));
    let full = || Some(PathRewrite::Full("/f".into()));
    for (first, second, fits) in [
        (prefix("/x"), prefix("/x"), true),
        (prefix("/x"), prefix("/y"), false),
        (prefix("/x"), None, false),
        (None, prefix("/x"), false),
        (None, prefix("/a"), true),
        (full(), prefix("/x"), true),
        (full(), None, true),
    ] {
        let world = World::new().with(with_rules(
            "r",
            &[],
            vec![
                rewriting(Method::Get, first.clone()),
                rewriting(Method::Post, second.clone()),
            ],
        ));
        let said_ = said(&world.parent("r").conditions, "PartiallyInvalid");
        assert_eq!(said_ == "-", fits, "{first:?} {second:?}");
    }
}

#[test]
fn a_redirect_rule_needs_no_backends_to_agree() {
    let mut object = redirecting(Some("https"), None);
    object.rules[0].matches = vec![matching("/old", Some(Method::Get))];
    object
        .rules
        .push(method_rule("/old", Method::Post, vec![backend("web", 80)]));
    let world = World::new().with(object);
    assert_eq!(said(&world.parent("r").conditions, "PartiallyInvalid"), "-");
    let api = &world.route("r").apis[0];
    assert!(api.operations[&Method::Get].redirect.is_some());
    assert!(api.operations[&Method::Post].redirect.is_none());
    assert_eq!(world.targets("r"), [("web.shop.svc.cluster.local:80".into(), 1)]);
}

#[test]
fn if_it_can_serve_none_of_the_route_accepted_is_false_unsupported_value() {
    let world = World::new().with(with_rules(
        "r",
        &[],
        vec![broken_rule(0, "/", "retry"), broken_rule(1, "/x", "timeouts")],
    ));
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
    assert!(why(&world, "r").contains("spec.rules[0].retry: "));
    assert!(why(&world, "r").contains("spec.rules[1].timeouts: "));
    assert_eq!(said(&world.parent("r").conditions, "PartiallyInvalid"), "-");
    assert_eq!(disposition(&world, "r"), Disposition::Remove);
    assert!(world.route("r").apis.is_empty());
}

#[test]
fn if_it_can_serve_some_paths_partially_invalid_is_true_unsupported_value() {
    let world = World::new().with(with_rules(
        "r",
        &[],
        vec![
            rule("/ok", vec![backend("web", 80)]),
            broken_rule(1, "/x", "retry"),
        ],
    ));
    assert_eq!(accepted(&world, "r"), "True Accepted");
    let parent = world.parent("r");
    assert_eq!(
        said(&parent.conditions, "PartiallyInvalid"),
        "True UnsupportedValue"
    );
    assert_eq!(world.places("r"), ["any /ok"]);
}

#[test]
fn the_message_lists_the_dropped_rules_and_names_field_and_reason() {
    let world = World::new().with(with_rules(
        "r",
        &[],
        vec![
            rule("/ok", vec![backend("web", 80)]),
            broken_rule(1, "/x", "retry"),
            broken_rule(2, "/y", "timeouts"),
        ],
    ));
    assert_eq!(
        message(&world.parent("r").conditions, "PartiallyInvalid"),
        "Dropped Rule 1: spec.rules[1].retry: not supported; Dropped Rule 2: spec.rules[2].timeouts: not supported"
    );
}

#[test]
fn a_problem_of_the_whole_route_leaves_nothing() {
    let mut object = route("r", &["a.example.com"]);
    object.problems = vec![Problem::new("spec.hostnames[1]", "is an IP address")];
    let world = World::new().with(object);
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
    assert_eq!(why(&world, "r"), "spec.hostnames[1]: is an IP address");
}

#[test]
fn a_rejected_rule_frees_its_methods_and_backends() {
    // given a bad first rule, then two that agree with each other but not with it
    let mut bad = broken_rule(0, "/a", "retry");
    bad.backends = vec![backend("absent", 80)];
    let world = World::new().with(with_rules(
        "r",
        &[],
        vec![bad, method_rule("/a", Method::Get, vec![backend("web", 80)])],
    ));
    assert_eq!(world.places("r"), ["any /a"]);
    // but its references are reported
    assert_eq!(refs(&world, "r"), "False BackendNotFound");
}

// --- Identity ---

#[test]
fn one_api_for_each_parent_gateway_effective_hostname_and_path() {
    let mut object = with_rules(
        "r",
        &["a.example.com", "b.example.com"],
        vec![
            rule("/", vec![backend("web", 80)]),
            rule("/x", vec![backend("web", 80)]),
        ],
    );
    object.parents.push(parent("infra", "inner"));
    let mut inner = gateway("infra", "inner", vec![named(http("web", 80), "a.example.com")]);
    inner.parameters = Some(context_ref(None, "inner"));
    let world = World::new()
        .with(inner)
        .with(tags("infra", "inner", &["inner"]))
        .with(object);
    let found: Vec<String> = world
        .route("r")
        .apis
        .iter()
        .map(|api| {
            format!(
                "{} {} {}",
                api.gateway.name,
                api.host.as_deref().unwrap(),
                api.path
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "edge a.example.com /",
            "edge a.example.com /x",
            "edge b.example.com /",
            "edge b.example.com /x",
            "inner a.example.com /",
            "inner a.example.com /x",
        ]
    );
}

#[test]
fn the_effective_hostname_is_the_intersection_with_that_of_the_listener() {
    let world = World::new()
        .with(gateway(
            "infra",
            "edge",
            vec![named(http("web", 80), "*.example.com")],
        ))
        .with(route("r", &["a.example.com", "*.b.example.com", "a.example.org"]));
    assert_eq!(world.places("r"), ["*.b.example.com /", "a.example.com /"]);
}

#[test]
fn if_neither_sets_a_hostname_the_api_has_no_custom_domain() {
    let world = World::new().with(route("r", &[]));
    assert_eq!(world.route("r").apis[0].host, None);
}

#[test]
fn reordered_rules_change_nothing() {
    let rules = || {
        vec![
            method_rule("/a", Method::Get, vec![backend("web", 80)]),
            rule("/b", vec![backend("web", 80)]),
            method_rule("/a", Method::Post, vec![backend("web", 80)]),
        ]
    };
    let mut world = World::new().with(with_rules("r", &[], rules()));
    let before = world.route("r").clone();
    let mut reversed = rules();
    reversed.reverse();
    let changes = world.put(with_rules("r", &[], reversed));
    assert_eq!(world.route("r"), &before);
    assert!(changes.routes.is_empty());
}

#[test]
fn rules_of_one_path_become_one_api_with_one_operation_per_method() {
    let world = World::new().with(with_rules(
        "r",
        &[],
        vec![
            method_rule("/a", Method::Get, vec![backend("web", 80)]),
            method_rule("/a", Method::Put, vec![backend("web", 80)]),
        ],
    ));
    let [api] = world.route("r").apis.as_slice() else {
        panic!();
    };
    assert_eq!(
        api.operations.keys().copied().collect::<Vec<_>>(),
        [Method::Get, Method::Put]
    );
    // without a method, all that OpenAPI knows
    let world = World::new().with(route("r", &[]));
    assert_eq!(world.route("r").apis[0].operations.len(), 8);
}

// --- Conditions ---

#[test]
fn httproute_accepted_true_accepted() {
    let world = World::new().with(route("r", &["a.example.com"]));
    assert_eq!(accepted(&world, "r"), "True Accepted");
    assert_eq!(why(&world, "r"), "1 API");
    assert_eq!(disposition(&world, "r"), Disposition::Serve);
}

/// The source writes NoMatchingParent for a Gateway that is not there or not ours. Gateway API forbids entries there:
/// there is none.
#[test]
fn a_gateway_that_is_not_there_or_not_ours_gets_no_entry() {
    let mut object = route("r", &[]);
    object.parents = vec![parent("infra", "absent"), parent("infra", "foreign")];
    let mut foreign = gateway("infra", "foreign", vec![http("web", 80)]);
    foreign.class = "foreign".into();
    let mut world = World::new().with(foreign).with(object.clone());
    assert!(world.0.route(&key("shop", "r")).is_none());
    // and one entry for the one that is ours
    object.parents.push(parent("infra", "edge"));
    world.put(object);
    assert_eq!(world.parent("r").gateway, key("infra", "edge"));
}

#[test]
fn httproute_accepted_false_no_matching_parent() {
    let refused = |world: World, words: &str| {
        assert_eq!(accepted(&world, "r"), "False NoMatchingParent", "{words}");
        assert!(why(&world, "r").contains(words), "{}", why(&world, "r"));
        assert_eq!(disposition(&world, "r"), Disposition::Remove);
        // ResolvedRefs is there all the same
        assert_eq!(refs(&world, "r"), "True ResolvedRefs");
    };
    // its OperatorContext cannot be read
    let mut world = World::new().with(route("r", &[]));
    world.gone(Kind::OperatorContext, "infra", "class");
    refused(world, "OperatorContext infra/class does not exist");
    // its class has no parameters
    let mut bare = class();
    bare.parameters = None;
    refused(
        World::new().with(route("r", &[])).with(bare),
        "spec.parametersRef: missing",
    );
    // no listener matches
    let mut object = route("r", &[]);
    object.parents = vec![section(parent("infra", "edge"), "nothing")];
    refused(
        World::new().with(object.clone()),
        "sectionName nothing; it has: web (port 80)",
    );
    object.parents[0].section_name = None;
    object.parents[0].port = Some(81);
    refused(World::new().with(object.clone()), "port 81");
    object.parents[0].section_name = Some("web".into());
    refused(World::new().with(object), "sectionName web and port 81");
}

#[test]
fn httproute_accepted_false_not_allowed_by_listeners() {
    let mut listener = http("web", 80);
    listener.namespaces = super::super::objects::gateway::AllowedNamespaces::Same;
    let world = World::new()
        .with(gateway("infra", "edge", vec![listener]))
        .with(route("r", &[]));
    assert_eq!(accepted(&world, "r"), "False NotAllowedByListeners");
    assert_eq!(refs(&world, "r"), "True ResolvedRefs");
    assert_eq!(disposition(&world, "r"), Disposition::Remove);
}

#[test]
fn httproute_accepted_false_no_matching_listener_hostname() {
    let world = World::new()
        .with(gateway(
            "infra",
            "edge",
            vec![named(http("web", 80), "*.example.com")],
        ))
        .with(route("r", &["a.example.org"]));
    assert_eq!(accepted(&world, "r"), "False NoMatchingListenerHostname");
    assert!(why(&world, "r").contains("*.example.com"));
    assert_eq!(disposition(&world, "r"), Disposition::Remove);
}

#[test]
fn httproute_accepted_false_unsupported_value() {
    if_it_can_serve_none_of_the_route_accepted_is_false_unsupported_value();
}

#[test]
fn httproute_accepted_false_environment_unresolved() {
    for change in [
        (|c: &mut super::super::objects::OperatorContext| c.env = None) as fn(&mut _),
        |c| c.secret_ref = Some(("absent".into(), None)),
        |c| c.env.as_mut().unwrap().url = None,
        |c| c.env.as_mut().unwrap().auth = None,
    ] {
        let mut object = context();
        change(&mut object);
        let world = World::new().with(object).with(route("r", &[]));
        assert_eq!(accepted(&world, "r"), "False EnvironmentUnresolved");
        // what was written stays, nothing is created
        assert_eq!(disposition(&world, "r"), Disposition::Keep);
        assert!(world.route("r").apis.is_empty());
    }
}

#[test]
fn httproute_accepted_false_data_plane_shared() {
    let mut object = route("r", &["a.example.com"]);
    object.parents = vec![parent("infra", "second"), parent("infra", "edge")];
    let world = World::new()
        .with(gateway("infra", "second", vec![http("web", 80)]))
        .with(object);
    // the first parentRef keeps it
    let parents = &world.route("r").parents;
    assert_eq!(said(&parents[0].conditions, "Accepted"), "True Accepted");
    assert_eq!(said(&parents[1].conditions, "Accepted"), "False DataPlaneShared");
    assert!(message(&parents[1].conditions, "Accepted").contains("through Gateway infra/second"));
    assert_eq!(
        world.route("r").gateways[&key("infra", "edge")],
        Disposition::Remove
    );
    assert_eq!(world.places("r"), ["a.example.com /"]);
}

#[test]
fn gateways_of_different_data_planes_both_serve_a_route() {
    let mut second = gateway("infra", "second", vec![http("web", 80)]);
    second.parameters = Some(context_ref(None, "second"));
    let mut object = route("r", &["a.example.com"]);
    object.parents.push(parent("infra", "second"));
    let mut world = World::new()
        .with(second)
        .with(tags("infra", "second", &["blue"]))
        .with(object);
    let accepted = |world: &World| -> Vec<String> {
        world
            .route("r")
            .parents
            .iter()
            .map(|p| said(&p.conditions, "Accepted"))
            .collect()
    };
    assert_eq!(accepted(&world), ["True Accepted", "True Accepted"]);
    // one common tag, and they share
    world.put(tags("infra", "second", &["blue", "edge"]));
    assert_eq!(accepted(&world), ["True Accepted", "False DataPlaneShared"]);
    // no tags at all on one side: gateways that are not segmented load the tagged APIs too
    world.put(tags("infra", "second", &[]));
    assert_eq!(accepted(&world), ["True Accepted", "False DataPlaneShared"]);
    // an open-source gateway loads everything
    let mut open = context();
    open.env.as_mut().unwrap().mode = Some("ce".into());
    world.put(open);
    assert_eq!(accepted(&world), ["True Accepted", "False DataPlaneShared"]);
}

#[test]
fn httproute_partially_invalid_true_unsupported_value() {
    the_message_lists_the_dropped_rules_and_names_field_and_reason();
}

#[test]
fn httproute_resolved_refs_false_invalid_kind() {
    backend_of_any_other_kind_or_group_or_without_port_is_invalid_kind();
}

#[test]
fn httproute_resolved_refs_false_ref_not_permitted() {
    backend_in_another_namespace_needs_a_reference_grant();
}

#[test]
fn httproute_resolved_refs_false_backend_not_found() {
    backend_that_is_not_resolved_still_makes_the_api();
}

#[test]
fn a_refused_attachment_names_what_each_listener_has_against_it() {
    use super::super::objects::gateway::AllowedNamespaces;

    // given a listener that speaks no HTTP, one for other kinds, and one for other namespaces
    let mut tcp = http("tcp", 8080);
    tcp.protocol = "TCP".into();
    let mut grpc = http("grpc", 443);
    grpc.kinds = vec![(super::super::objects::GATEWAY_GROUP.into(), "GRPCRoute".into())];
    let mut same = http("same", 80);
    same.namespaces = AllowedNamespaces::Same;
    let world = World::new()
        .with(gateway("infra", "edge", vec![tcp, grpc, same]))
        .with(route("r", &[]));
    assert_eq!(accepted(&world, "r"), "False NotAllowedByListeners");
    let words = why(&world, "r");
    for part in [
        "Gateway infra/edge",
        "namespace shop",
        "listener tcp: protocol TCP is not supported",
        "listener grpc: allowedRoutes.kinds",
        "listener same: allowedRoutes.namespaces",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // given no listener at all
    let world = World::new()
        .with(gateway("infra", "edge", vec![]))
        .with(route("r", &[]));
    assert_eq!(why(&world, "r"), "Gateway infra/edge has no listeners");
}

#[test]
fn reasons_come_in_their_order() {
    use super::super::objects::{ConfigMap, gateway::AllowedNamespaces};

    // given a route with everything wrong at once, through a second Gateway of the same data plane too
    let mut bad_context = context();
    bad_context.env.as_mut().unwrap().auth = None;
    let mut closed = named(http("web", 80), "*.example.com");
    closed.namespaces = AllowedNamespaces::Same;
    let mut object = with_rules("r", &["a.example.org"], vec![broken_rule(0, "/", "retry")]);
    let other = parent("infra", "second");
    object.parents = vec![other.clone(), section(parent("infra", "edge"), "absent")];
    let mut older = route("older", &["a.example.com"]);
    older.meta.created = 1;
    let documents = |document: Result<serde_json::Value, &str>| ConfigMap {
        documents: [(
            "api.json".to_owned(),
            document.map(Into::into).map_err(str::to_owned),
        )]
        .into(),
        ..config_map("shop")
    };
    let mut world = World::new()
        .with(bad_context)
        .with(gateway("infra", "second", vec![http("web", 80)]))
        .with(gateway("infra", "edge", vec![closed.clone()]))
        .with(definition("shop", "d", 0, vec![target("HTTPRoute", "r")]))
        .with(older)
        .with(object.clone());
    let last = |world: &World| said(&world.route("r").parents.last().unwrap().conditions, "Accepted");
    assert_eq!(last(&world), "False NoMatchingParent");
    // when one thing after the other is mended
    object.parents = vec![other, parent("infra", "edge")];
    world.put(object.clone());
    assert_eq!(last(&world), "False EnvironmentUnresolved");
    world.put(context());
    assert_eq!(last(&world), "False NotAllowedByListeners");
    closed.namespaces = AllowedNamespaces::All;
    world.put(gateway("infra", "edge", vec![closed]));
    assert_eq!(last(&world), "False NoMatchingListenerHostname");
    object.hostnames = vec!["a.example.com".into()];
    world.put(object.clone());
    // of its rules
    assert_eq!(last(&world), "False UnsupportedValue");
    object.rules = vec![rule("/", vec![backend("web", 80)])];
    object.rules[0].filters.request_headers = HeaderEdit {
        set: [("X-A".to_owned(), "$secret_env.KEY".to_owned())].into(),
        ..HeaderEdit::default()
    };
    world.put(object.clone());
    // beside an older route that serves the same, which refuses nobody
    assert_eq!(last(&world), "False BaseDocumentUnresolved");
    world.gone(Kind::HttpRoute, "shop", "older");
    assert_eq!(last(&world), "False BaseDocumentUnresolved");
    world.put(documents(Err("is not JSON")));
    assert_eq!(last(&world), "False BaseDocumentInvalid");
    world.put(documents(Ok(colliding())));
    assert_eq!(last(&world), "False AttachmentConflict");
    world.put(config_map("shop"));
    assert_eq!(last(&world), "False DataPlaneShared");
    object.parents.remove(0);
    world.put(object.clone());
    assert_eq!(last(&world), "False TranslationFailed");
    object.rules[0].filters.request_headers = HeaderEdit::default();
    world.put(object);
    assert_eq!(last(&world), "True Accepted");
}

// --- Attachment and serving ---

#[test]
fn an_invalid_listener_admits_and_counts_but_serves_nothing() {
    let world = World::new()
        .with(gateway(
            "infra",
            "edge",
            vec![https("tls", 443, "a.example.com", &[secret_ref(None, "absent")])],
        ))
        .with(route("r", &[]));
    assert_eq!(accepted(&world, "r"), "True Accepted");
    assert_eq!(world.listener("tls").attached_routes, 1);
    assert!(world.places("r").is_empty());
    assert_eq!(disposition(&world, "r"), Disposition::Serve);
    assert_eq!(
        why(&world, "r"),
        "0 APIs; listener tls of Gateway infra/edge serves nothing: InvalidCertificateRef"
    );
}

#[test]
fn a_route_counts_once_on_each_listener_that_admits_it() {
    let mut both = route("both", &["a.example.com"]);
    // twice by name and once by the whole
    both.parents = vec![
        section(parent("infra", "edge"), "web"),
        section(parent("infra", "edge"), "alt"),
    ];
    let mut one = route("one", &["b.example.com"]);
    one.parents = vec![section(parent("infra", "edge"), "web")];
    let mut world = World::new()
        .with(gateway("infra", "edge", vec![http("web", 80), http("alt", 8080)]))
        .with(both)
        .with(one)
        .with(with_rules(
            "bad",
            &["c.example.com"],
            vec![broken_rule(0, "/", "retry")],
        ));
    let counts = |world: &World| {
        (
            world.listener("web").attached_routes,
            world.listener("alt").attached_routes,
        )
    };
    assert_eq!(counts(&world), (2, 1));
    // one API, though two parentRefs lead to it
    assert_eq!(world.places("both"), ["a.example.com /"]);
    assert_eq!(world.route("both").parents.len(), 2);
    // a route with missing backends counts
    world.put(with_rules(
        "lost",
        &["d.example.com"],
        vec![rule("/", vec![backend("absent", 80)])],
    ));
    assert_eq!(counts(&world), (3, 2));
    let changes = world.gone(Kind::HttpRoute, "shop", "both");
    assert!(changes.gateways.contains(&key("infra", "edge")));
    assert_eq!(counts(&world), (2, 1));
}

// --- Claims ---

fn older(name: &str, created: i64) -> super::super::objects::HttpRoute {
    let mut object = route(name, &["a.example.com"]);
    object.meta.created = created;
    object
}

#[test]
fn the_oldest_route_serves_a_host_and_path_and_the_loser_takes_over() {
    let mut world = World::new().with(older("young", 200));
    assert_eq!(accepted(&world, "young"), "True Accepted");
    // when an older one comes, it is served
    let changes = world.put(older("old", 100));
    assert!(changes.routes.contains(&key("shop", "young")));
    assert_eq!(accepted(&world, "old"), "True Accepted");
    assert!(outdone(&world, "young"));
    let words = message(&world.parent("young").conditions, "PartiallyInvalid");
    for part in ["host a.example.com", "path /", "HTTPRoute shop/old"] {
        assert!(words.contains(part), "{words}");
    }
    // and both count, as Gateway API wants it of routes that match the same
    assert_eq!(disposition(&world, "young"), Disposition::Serve);
    assert_eq!(world.listener("web").attached_routes, 2);
    // when it goes, the younger is back
    world.gone(Kind::HttpRoute, "shop", "old");
    assert_eq!(accepted(&world, "young"), "True Accepted");
    // of two of one age, the first by name
    world.put(older("wind", 200));
    assert_eq!(accepted(&world, "wind"), "True Accepted");
    assert!(outdone(&world, "young"));
}

#[test]
fn a_lost_path_is_a_dropped_rule_and_no_other_claim_is_lost() {
    let mut world = World::new();
    let paths = |name: &str, created, paths: &[&str]| {
        let mut object = older(name, created);
        object.rules = paths.iter().map(|p| rule(p, vec![backend("web", 80)])).collect();
        object
    };
    world.put(paths("a", 1, &["/1"]));
    world.put(paths("b", 2, &["/1", "/2"]));
    world.put(paths("c", 3, &["/2", "/3"]));
    assert_eq!(world.places("a"), ["a.example.com /1"]);
    assert_eq!(world.places("b"), ["a.example.com /2"]);
    assert_eq!(world.places("c"), ["a.example.com /3"]);
    let words = message(&world.parent("b").conditions, "PartiallyInvalid");
    assert!(
        words.starts_with("Dropped Rule 0: spec.rules[0]: host a.example.com, path /1"),
        "{words}"
    );
}

#[test]
fn method_disjoint_routes_collide_too() {
    let by = |name, created, method| {
        let mut object = older(name, created);
        object.rules = vec![method_rule("/", method, vec![backend("web", 80)])];
        object
    };
    let world = World::new()
        .with(by("a", 1, Method::Get))
        .with(by("b", 2, Method::Post));
    assert!(outdone(&world, "b"));
}

#[test]
fn a_rejected_route_holds_no_claim() {
    let mut old = older("old", 1);
    old.rules = vec![broken_rule(0, "/", "retry")];
    let world = World::new().with(old).with(older("young", 2));
    assert_eq!(accepted(&world, "young"), "True Accepted");
}

/// What is kept in Tyk as it was written last still stands there: another API in its place would collide with it, and
/// would not have its authentication.
#[test]
fn a_route_whose_apis_are_kept_holds_its_claim() {
    let world = World::new()
        .with(older("old", 1))
        .with(older("young", 2))
        .with(definition("shop", "d", 0, vec![target("HTTPRoute", "old")]));
    assert_eq!(accepted(&world, "old"), "False BaseDocumentUnresolved");
    assert_eq!(disposition(&world, "old"), Disposition::Keep);
    assert!(outdone(&world, "young"));
}

#[test]
fn routes_of_a_tagged_and_of_an_untagged_gateway_want_one_place() {
    // given a Dashboard, Gateway infra/edge with a tag and infra/plain without, and a route through each
    let mut plain = gateway("infra", "plain", vec![http("web", 80)]);
    plain.parameters = Some(context_ref(None, "plain"));
    let mut second = older("second", 2);
    second.parents = vec![parent("infra", "plain")];
    let mut world = World::new()
        .with(plain)
        .with(tags("infra", "plain", &[]))
        .with(older("first", 1))
        .with(second);
    // then the gateways that are not segmented would load both, so the older one has the place
    assert!(!outdone(&world, "first"));
    assert!(outdone(&world, "second"));
    let told = message(&world.parent("second").conditions, "PartiallyInvalid");
    assert!(
        told.contains("HTTPRoute shop/first on Gateway infra/edge"),
        "{told}"
    );
    // and both have it once the tags are different
    world.put(tags("infra", "plain", &["blue"]));
    assert!(!outdone(&world, "second"));
}

#[test]
fn sharing_a_data_plane_is_a_test_of_pairs() {
    // given Gateways with tags {edge}, {edge, blue}, {blue}: the first and the last share nothing
    let through = |name: &str, created, gateway: &str| {
        let mut object = older(name, created);
        object.parents = vec![parent("infra", gateway)];
        object
    };
    let other = |name: &str| {
        let mut object = gateway("infra", name, vec![http("web", 80)]);
        object.parameters = Some(context_ref(None, name));
        object
    };
    let mut world = World::new()
        .with(other("both"))
        .with(other("blue"))
        .with(tags("infra", "both", &["edge", "blue"]))
        .with(tags("infra", "blue", &["blue"]))
        .with(through("a", 1, "edge"))
        .with(through("b", 2, "both"))
        .with(through("c", 3, "blue"));
    // then the middle one loses to the first, and as a loser is in nobody's way
    let all = |world: &World| ["a", "b", "c"].map(|name| outdone(world, name));
    assert_eq!(all(&world), [false, true, false]);
    world.gone(Kind::HttpRoute, "shop", "a");
    assert_eq!(accepted(&world, "b"), "True Accepted");
    assert!(outdone(&world, "c"));
}

#[test]
fn a_deleted_route_holds_its_claim_until_it_is_gone_and_wants_no_apis() {
    let mut old = older("old", 1);
    old.meta.deleting = true;
    old.held_by = vec![FINALIZER.into()];
    let world = World::new().with(old).with(older("young", 2));
    assert_eq!(disposition(&world, "old"), Disposition::Remove);
    assert!(world.places("old").is_empty());
    assert!(outdone(&world, "young"));
}

/// Somebody else's finalizer may hold a route for ever.
#[test]
fn a_deleted_route_that_only_others_hold_back_holds_no_claim() {
    // given a route that is being deleted and has its APIs in Tyk, as its finalizer says
    let mut old = older("old", 1);
    old.meta.deleting = true;
    old.held_by = vec![FINALIZER.into(), "example.org/backup".into()];
    let mut world = World::new().with(old.clone()).with(older("young", 2));
    assert!(outdone(&world, "young"));
    // when it was let go here, and is still there
    old.held_by = vec!["example.org/backup".into()];
    let changes = world.put(old.clone());
    // then its place is free
    assert!(changes.routes.contains(&key("shop", "young")));
    assert_eq!(world.places("young"), ["a.example.com /"]);
    assert!(!outdone(&world, "young"));
    // and another installation's finalizer is somebody else's
    old.held_by = vec![format!("{FINALIZER}-157e5edb")];
    world.put(old);
    assert!(!outdone(&world, "young"));
}

/// It may name a Tyk that cannot be reached, and then its finalizer stays.
#[test]
fn a_deleted_route_holds_only_the_places_where_it_remembers_apis() {
    // given a route that is being deleted and remembers its API in the Tyk of the Gateway
    let mut world = World::new().with(older("old", 1));
    let [api] = world.route("old").apis.as_slice() else {
        panic!("one API");
    };
    let id = translate::identity(api)
        .trim_start_matches(translate::ID)
        .to_owned();
    let digest = api.connection.digest();
    let mut old = older("old", 1);
    old.meta.deleting = true;
    old.held_by = vec![FINALIZER.into()];
    let remember = |old: &HttpRoute, text: String| {
        let mut old = old.clone();
        old.marks.insert(ANNOTATION.into(), text);
        old
    };
    world.put(older("young", 2));
    world.put(remember(&old, format!("tyk/main@{digest}={id}")));
    assert!(outdone(&world, "young"));
    // when only another Tyk is left to be asked, then its place is free
    let changes = world.put(remember(&old, format!("evil/trap@0badc0de={id}")));
    assert!(changes.routes.contains(&key("shop", "young")));
    assert!(!outdone(&world, "young"));
    // and where nothing is known it is held
    world.put(old);
    assert!(outdone(&world, "young"));
}

/// An open-source gateway loads every API that it has, of whatever organisation, and renames the second one of a place.
#[test]
fn an_organisation_is_no_data_plane_of_its_own_in_an_open_source_gateway() {
    let other_class = |mode: &str| {
        let connection = |org: &str| {
            let mut fields = env(mode, "http://tyk:8080");
            fields.org = Some(org.into());
            fields
        };
        let mut first = context();
        first.env = Some(connection("one"));
        let mut second = context();
        second.key = key("infra", "second");
        second.env = Some(connection("two"));
        let mut class = class();
        class.meta.key = super::super::objects::Key::cluster("second");
        class.parameters = Some(context_ref(Some("infra"), "second"));
        let mut far = gateway("infra", "far", vec![http("web", 80)]);
        far.class = "second".into();
        let mut young = older("young", 2);
        young.parents = vec![parent("infra", "far")];
        World::new()
            .with(first)
            .with(second)
            .with(class)
            .with(far)
            .with(older("old", 1))
            .with(young)
    };
    assert!(outdone(&other_class("ce"), "young"));
    assert!(!outdone(&other_class("pro"), "young"));
}

#[test]
fn a_route_that_is_not_there_is_not_remembered_as_failing() {
    let mut world = World::new();
    world.0.fail(&key("shop", "r"), [key("infra", "edge")].into());
    world.put(route("r", &[]));
    assert_eq!(world.listener("web").attached_routes, 1);
}

// --- Updates ---

#[test]
fn the_apis_are_updated_when_the_route_changes() {
    let mut world = World::new().with(route("r", &["a.example.com"]));
    let changes = world.put(route("r", &["b.example.com"]));
    assert_eq!(changes.routes.into_iter().collect::<Vec<_>>(), [key("shop", "r")]);
    assert!(changes.gateways.is_empty(), "the count is the same");
    assert_eq!(world.places("r"), ["b.example.com /"]);
}

#[test]
fn reserved_paths_and_overlapping_hosts_are_noticed() {
    let mut object = route("r", &["*.example.com", "a.example.com"]);
    object.rules = vec![rule("/tyk/x", vec![backend("web", 80)])];
    let world = World::new().with(object);
    let reasons: Vec<_> = world.route("r").notices.iter().map(|n| n.reason).collect();
    assert_eq!(reasons, ["OverlappingHosts", "ReservedPath"]);
}
