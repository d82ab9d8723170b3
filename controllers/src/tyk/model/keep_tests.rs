//! What may stay in Tyk while a route cannot be written and what may not; routes that have no document; how many APIs
//! a route may make; and which parent of a route comes first.

use std::collections::BTreeSet;

use super::{
    super::{
        objects::{
            HttpRoute, Kind,
            gateway::AllowedNamespaces,
            route::{HeaderEdit, Method, PathRewrite, Rule},
        },
        translate::{identity, identity_of},
        verdict::Disposition,
    },
    fixtures::*,
};

fn accepted(world: &World, name: &str) -> String {
    said(&world.parent(name).conditions, "Accepted")
}

fn all_accepted(world: &World) -> Vec<String> {
    let parents = &world.route("r").parents;
    parents.iter().map(|p| said(&p.conditions, "Accepted")).collect()
}

fn paths(name: &str, created: i64, paths: &[&str]) -> HttpRoute {
    let rules = paths.iter().map(|p| rule(p, vec![backend("web", 80)])).collect();
    let mut object = with_rules(name, &["a.example.com"], rules);
    object.meta.created = created;
    object
}

fn id(path: &str) -> String {
    let host = Some("a.example.com");
    identity_of(&key("shop", "r"), &key("infra", "edge"), host, path)
}

/// Ids that may stand though nothing is written; only of a route that is kept.
fn kept(world: &World) -> BTreeSet<String> {
    let verdict = world.route("r");
    assert_eq!(verdict.gateways[&key("infra", "edge")], Disposition::Keep);
    assert!(verdict.apis.is_empty());
    verdict.keep[&key("infra", "edge")].clone()
}

/// Route r with /a and /b, whose definition has lost its ConfigMap.
fn unresolved() -> World {
    let mut world = World::new().with(paths("r", 10, &["/a", "/b"]));
    let written: BTreeSet<String> = world.route("r").apis.iter().map(identity).collect();
    assert!(world.route("r").keep.is_empty(), "there is nothing to keep");
    world.put(definition("shop", "d", 0, vec![target("HTTPRoute", "r")]));
    assert_eq!(accepted(&world, "r"), "False BaseDocumentUnresolved");
    assert_eq!(kept(&world), written);
    world
}

#[test]
fn a_path_that_goes_is_not_kept_with_the_rest() {
    let mut world = unresolved();
    let changes = world.put(paths("r", 10, &["/b"]));
    assert!(changes.routes.contains(&key("shop", "r")));
    assert_eq!(kept(&world), [id("/b")].into());
    // and another route may have it
    world.put(paths("young", 20, &["/a"]));
    assert_eq!(accepted(&world, "young"), "True Accepted");
    // while what is kept is in its way
    world.put(paths("young", 20, &["/b"]));
    assert!(outdone(&world, "young"));
}

#[test]
fn a_claim_that_is_lost_is_not_kept_with_the_rest() {
    let mut world = unresolved();
    let changes = world.put(paths("old", 1, &["/a"]));
    assert!(changes.routes.contains(&key("shop", "r")));
    assert_eq!(accepted(&world, "old"), "True Accepted");
    assert_eq!(accepted(&world, "r"), "False BaseDocumentUnresolved");
    assert_eq!(kept(&world), [id("/b")].into());
    // and it may stand again when the older one goes
    world.gone(Kind::HttpRoute, "shop", "old");
    assert_eq!(kept(&world), [id("/a"), id("/b")].into());
}

#[test]
fn what_only_an_invalid_listener_would_serve_is_not_kept() {
    let mut world = unresolved()
        .with(tls_secret("infra", "cert", "leaf"))
        .with(gateway(
            "infra",
            "edge",
            vec![https("tls", 443, "a.example.com", &[secret_ref(None, "cert")])],
        ));
    assert_eq!(kept(&world), [id("/a"), id("/b")].into());
    world.gone(Kind::Secret, "infra", "cert");
    assert_eq!(kept(&world), [].into());
    // then nobody else is kept from the place
    world.put(gateway("infra", "second", vec![http("web", 80)]));
    let mut young = paths("young", 20, &["/a"]);
    young.parents = vec![parent("infra", "second")];
    world.put(young);
    assert_eq!(accepted(&world, "young"), "True Accepted");
}

#[test]
fn without_a_connection_only_what_the_route_still_has_is_kept() {
    let mut world = World::new().with(paths("r", 10, &["/a", "/b"]));
    let written: BTreeSet<String> = world.route("r").apis.iter().map(identity).collect();
    let mut dead = context();
    dead.env.as_mut().unwrap().auth = None;
    world.put(dead);
    assert_eq!(accepted(&world, "r"), "False EnvironmentUnresolved");
    assert_eq!(kept(&world), written);
    // a path goes
    world.put(paths("r", 10, &["/b"]));
    assert_eq!(kept(&world), [id("/b")].into());
    // a rule is not supported any more
    let mut bad = paths("r", 10, &["/a"]);
    bad.rules.push(broken_rule(1, "/b", "retry"));
    world.put(bad);
    assert_eq!(kept(&world), [id("/a")].into());
    // the listener admits the route no more; that is said once the connection is back
    let mut closed = http("web", 80);
    closed.namespaces = AllowedNamespaces::Same;
    world.put(gateway("infra", "edge", vec![closed]));
    assert_eq!(accepted(&world, "r"), "False EnvironmentUnresolved");
    assert_eq!(kept(&world), [].into());
    world.put(context());
    assert_eq!(accepted(&world, "r"), "False NotAllowedByListeners");
    assert!(world.route("r").keep.is_empty());
}

#[test]
fn a_deleted_route_keeps_nothing() {
    let mut world = unresolved();
    let mut object = paths("r", 10, &["/a", "/b"]);
    object.meta.deleting = true;
    world.put(object);
    assert!(world.route("r").keep.is_empty());
}

// --- No document ---

fn with_header(path: &str, value: &str) -> Rule {
    let mut found = rule(path, vec![backend("web", 80)]);
    found.filters.request_headers = HeaderEdit {
        set: [("X-A".to_owned(), value.to_owned())].into(),
        ..HeaderEdit::default()
    };
    found
}

#[test]
fn httproute_accepted_false_translation_failed_and_the_message_gives_the_error() {
    // given a value that must not be in a document, as decoding would have said
    let rules = vec![
        rule("/a", vec![backend("web", 80)]),
        with_header("/b", "$secret_env.KEY"),
    ];
    let mut world = World::new().with(with_rules("r", &["a.example.com"], rules));
    assert_eq!(accepted(&world, "r"), "False TranslationFailed");
    let words = message(&world.parent("r").conditions, "Accepted");
    assert!(words.starts_with("spec.rules[1]: path /b: "), "{words}");
    assert!(words.contains("replaces by a secret"), "{words}");
    assert!(!words.contains("KEY"), "the value is repeated: {words}");
    // then what stands may stay, in its place
    assert_eq!(kept(&world), [id("/a"), id("/b")].into());
    world.put(paths("young", 500, &["/b"]));
    assert!(outdone(&world, "young"));
    // when an older route has the path, it is no matter of this one
    world.put(paths("old", 1, &["/b"]));
    assert_eq!(accepted(&world, "r"), "True Accepted");
    assert_eq!(world.places("r"), ["a.example.com /a"]);
}

fn rewriting(path: &str, method: Method, rewrite: PathRewrite) -> Rule {
    let mut found = method_rule(path, method, vec![backend("web", 80)]);
    found.filters.rewrite = Some(rewrite);
    found
}

#[test]
fn a_prefix_with_dollar_digit_does_not_go_with_a_replaced_full_path() {
    let full = || rewriting("/a", Method::Get, PathRewrite::Full("/f".into()));
    let prefix = || rewriting("/a", Method::Post, PathRewrite::Prefix("/v$1".into()));
    for (rules, stays) in [
        (vec![full(), prefix()], Method::Get),
        (vec![prefix(), full()], Method::Post),
    ] {
        let world = World::new().with(with_rules("r", &[], rules));
        // the later rule is dropped, and nothing of the earlier is lost
        let conditions = &world.parent("r").conditions;
        assert_eq!(said(conditions, "Accepted"), "True Accepted");
        let words = message(conditions, "PartiallyInvalid");
        assert!(
            words.starts_with("Dropped Rule 1: spec.rules[1].filters[0].urlRewrite.path: /v$1 holds"),
            "{words}"
        );
        let [api] = world.route("r").apis.as_slice() else {
            panic!();
        };
        assert_eq!(api.operations.keys().copied().collect::<Vec<_>>(), [stays]);
    }
    // by itself it is good
    let world = World::new().with(with_rules("r", &[], vec![prefix()]));
    assert_eq!(said(&world.parent("r").conditions, "PartiallyInvalid"), "-");
    // and the path of a match is the same
    let own = rewriting("/a$1", Method::Get, PathRewrite::Full("/f".into()));
    let world = World::new().with(with_rules("r", &[], vec![own]));
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
}

// --- How many ---

#[test]
fn a_route_with_too_many_apis_is_unsupported_and_told_the_way_out() {
    let listeners = |n: usize| {
        (0..n)
            .map(|i| named(http(&format!("l{i}"), 80), &format!("h{i}.example.com")))
            .collect::<Vec<_>>()
    };
    let many = |n: usize| {
        let rules = (0..n).map(|i| rule(&format!("/{i}"), vec![backend("web", 80)]));
        with_rules("r", &[], rules.collect())
    };
    let mut world = World::new()
        .with(gateway("infra", "edge", listeners(16)))
        .with(many(16));
    assert_eq!(accepted(&world, "r"), "True Accepted");
    assert_eq!(world.route("r").apis.len(), 256);
    // when there is one path more
    world.put(many(17));
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
    let words = message(&world.parent("r").conditions, "Accepted");
    for part in ["272 APIs", "256 are the most", "split the route"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(
        world.route("r").gateways[&key("infra", "edge")],
        Disposition::Remove
    );
    // then it is in nobody's way
    let mut young = with_rules("young", &["h1.example.com"], vec![rule("/1", vec![])]);
    young.meta.created = 500;
    world.put(young);
    assert_eq!(accepted(&world, "young"), "True Accepted");
    // and all its Gateways count together
    world.put(gateway("infra", "second", listeners(1)));
    let mut both = many(16);
    both.parents.push(parent("infra", "second"));
    world.put(both);
    assert_eq!(all_accepted(&world), ["False UnsupportedValue"; 2]);
}

// --- Which parent comes first ---

#[test]
fn a_refused_parent_gives_its_gateway_no_precedence() {
    let mut object = route("r", &["a.example.com"]);
    object.parents = vec![
        section(parent("infra", "edge"), "absent"),
        parent("infra", "second"),
        section(parent("infra", "edge"), "web"),
    ];
    let world = World::new()
        .with(gateway("infra", "second", vec![http("web", 80)]))
        .with(object);
    assert_eq!(
        all_accepted(&world),
        ["False NoMatchingParent", "True Accepted", "False DataPlaneShared"]
    );
}

#[test]
fn each_host_goes_to_the_first_parent_that_serves_it() {
    let mut object = route("r", &["a.example.com", "b.example.com"]);
    object.parents = vec![
        section(parent("infra", "edge"), "a"),
        parent("infra", "second"),
        section(parent("infra", "edge"), "b"),
    ];
    let listeners = ["a", "b"].map(|name| named(http(name, 80), &format!("{name}.example.com")));
    let world = World::new()
        .with(gateway("infra", "edge", listeners.to_vec()))
        .with(gateway("infra", "second", vec![http("web", 80)]))
        .with(object);
    assert_eq!(
        all_accepted(&world),
        ["True Accepted", "True Accepted", "False DataPlaneShared"]
    );
    let served: Vec<_> = world
        .route("r")
        .apis
        .iter()
        .map(|api| (api.gateway.name.as_str(), api.host.as_deref().unwrap()))
        .collect();
    assert_eq!(served, [("edge", "a.example.com"), ("second", "b.example.com")]);
}
