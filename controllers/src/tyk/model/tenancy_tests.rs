//! What one Gateway or certificate takes from another: shared hosts, foreign names, redirects that come back.

use std::sync::Arc;

use super::{
    super::objects::{
        Fingerprint, Gateway, Kind, Secret,
        core::Certificate,
        route::{Match, Redirect, Rule},
    },
    fixtures::*,
};

// --- Gateways ---

/// A Gateway of namespace evil without hostname.
fn open_gateway() -> Gateway {
    gateway("evil", "mine", vec![http("h", 80)])
}

fn shared(world: &World, namespace: &str, name: &str) -> String {
    let gateway = world.0.gateway(&key(namespace, name)).unwrap();
    let notice = gateway
        .notices
        .iter()
        .find(|notice| notice.reason == "SharedHost");
    let told = notice.map_or("", |notice| notice.message.as_str());
    assert!(message(&gateway.conditions, "Accepted").ends_with(told));
    assert_eq!(said(&gateway.conditions, "Accepted"), "True Accepted");
    told.to_owned()
}

#[test]
fn both_gateways_are_told_that_they_share_a_host() {
    // given a Gateway with a hostname, and one of another namespace without
    let mut world = World::new()
        .with(gateway(
            "infra",
            "edge",
            vec![named(http("web", 80), "shop.example.com")],
        ))
        .with(open_gateway());
    let (edge, mine) = (shared(&world, "infra", "edge"), shared(&world, "evil", "mine"));
    assert!(
        edge.contains("shop.example.com with Gateway evil/mine;"),
        "{edge}"
    );
    assert!(
        mine.contains("shop.example.com with Gateway infra/edge;"),
        "{mine}"
    );
    // when the other one has another hostname, neither has the notice
    let changes = world.put(gateway(
        "evil",
        "mine",
        vec![named(http("h", 80), "evil.example.com")],
    ));
    assert_eq!(
        changes.gateways,
        [key("evil", "mine"), key("infra", "edge")].into()
    );
    assert_eq!(shared(&world, "infra", "edge"), "");
    assert_eq!(shared(&world, "evil", "mine"), "");
    // a wildcard that covers it, and the same name
    for hostname in ["*.example.com", "*.com", "shop.example.com"] {
        world.put(gateway("evil", "mine", vec![named(http("h", 80), hostname)]));
        assert!(shared(&world, "infra", "edge").contains("shop.example.com with Gateway evil/mine"));
        assert!(shared(&world, "evil", "mine").contains("shop.example.com with Gateway infra/edge"));
    }
    // and one that is gone shares nothing
    world.gone(Kind::Gateway, "evil", "mine");
    assert_eq!(shared(&world, "infra", "edge"), "");
}

#[test]
fn gateways_that_share_no_data_plane_or_no_named_host_are_not_told() {
    // given two Gateways that both serve any host
    let world = World::new().with(open_gateway());
    assert_eq!(shared(&world, "infra", "edge"), "");
    // or the same host with other tags
    let mut other = open_gateway();
    other.parameters = Some(context_ref(None, "own"));
    let world = World::new()
        .with(gateway(
            "infra",
            "edge",
            vec![named(http("web", 80), "shop.example.com")],
        ))
        .with(tags("evil", "own", &["blue"]))
        .with(other);
    assert_eq!(shared(&world, "infra", "edge"), "");
    assert_eq!(shared(&world, "evil", "mine"), "");
}

#[test]
fn a_class_allows_gateways_of_certain_namespaces_only() {
    // given a class that allows Gateways of infra, and one of evil with a route
    let mut closed = class();
    closed.gateway_namespaces = Some(vec!["infra".into()]);
    let mut theirs = route("theirs", &["shop.example.com"]);
    theirs.parents = vec![parent("evil", "mine")];
    let mut world = World::new()
        .with(closed)
        .with(open_gateway())
        .with(theirs)
        .with(route("ours", &[]));
    // then that one is refused with its routes, and the others are served
    let mine = world.0.gateway(&key("evil", "mine")).unwrap();
    assert_eq!(said(&mine.conditions, "Accepted"), "False Invalid");
    assert_eq!(said(&mine.conditions, "Programmed"), "False Invalid");
    let told = message(&mine.conditions, "Accepted");
    assert!(told.contains("allows no Gateways of namespace evil"), "{told}");
    assert!(told.contains("routewright.dev/gateway-namespaces"), "{told}");
    let theirs = world.parent("theirs");
    assert_eq!(said(&theirs.conditions, "Accepted"), "False NoMatchingParent");
    assert_eq!(world.places("ours"), ["any /"]);
    // when the class allows all again, all are served
    world.put(class());
    assert_eq!(world.places("theirs"), ["shop.example.com /"]);
    // an empty list allows none
    let mut none = class();
    none.gateway_namespaces = Some(Vec::new());
    world.put(none);
    assert_eq!(said(&world.edge().conditions, "Accepted"), "False Invalid");
}

// --- Certificates ---

fn certified(name: &str, names: &[&str]) -> Secret {
    let mut secret = tls_secret("infra", name, name);
    secret.tls = Some(Ok(Certificate {
        leaf: Fingerprint(name.into()),
        bundle: Fingerprint(name.into()),
        names: names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Arc<[String]>>(),
    }));
    secret
}

/// Names of the Secrets whose certificates the only API of `r` has.
fn attached(world: &World) -> Vec<String> {
    let [api] = world.route("r").apis.as_slice() else {
        panic!("{:?}", world.places("r"));
    };
    api.certificates
        .iter()
        .map(|used| used.secret.name.clone())
        .collect()
}

#[test]
fn a_certificate_is_attached_only_where_it_is_for_the_host() {
    let listener = https(
        "tls",
        443,
        "*.example.com",
        &[secret_ref(None, "one"), secret_ref(None, "two")],
    );
    let mut world = World::new()
        .with(gateway("infra", "edge", vec![listener]))
        .with(certified("one", &["a.example.com"]))
        .with(certified("two", &["*.example.com"]));
    for (host, names) in [
        ("a.example.com", &["one", "two"][..]),
        ("b.example.com", &["two"]),
        // A wildcard of a certificate stands for one label.
        ("x.b.example.com", &[]),
        ("*.example.com", &["one", "two"]),
        ("*.b.example.com", &[]),
    ] {
        world.put(route("r", &[host]));
        assert_eq!(attached(&world), names, "{host}");
    }
}

#[test]
fn a_listener_says_which_names_of_its_certificate_are_not_its_own() {
    let told = |world: &World| {
        let conditions = &world.listener("tls").conditions;
        assert_eq!(said(conditions, "ResolvedRefs"), "True ResolvedRefs");
        message(conditions, "ResolvedRefs").to_owned()
    };
    let listener = https("tls", 443, "shop.example.com", &[secret_ref(None, "cert")]);
    let edge = |others: Vec<_>| gateway("infra", "edge", [vec![listener.clone()], others].concat());
    let mut world = World::new()
        .with(edge(Vec::new()))
        .with(certified("cert", &["shop.example.com"]));
    assert_eq!(told(&world), "");
    // a name that is no listener's
    world.put(certified("cert", &["bank.example.com", "shop.example.com"]));
    let words = "the certificate of Secret infra/cert is also for bank.example.com, which no listener of this Gateway has";
    assert!(told(&world).starts_with(words), "{}", told(&world));
    // unless another listener of the Gateway has it
    world.put(edge(vec![named(http("web", 80), "bank.example.com")]));
    assert_eq!(told(&world), "");
    // a certificate for something else
    world.put(certified("cert", &["bank.example.com"]));
    let words = "no certificate is for shop.example.com: Tyk answers it with another one";
    assert!(told(&world).starts_with(words), "{}", told(&world));
}

// --- Redirects that come back ---

fn redirecting(matched: &str, scheme: &str, host: &str, to: &str) -> Rule {
    let mut rule = Rule {
        matches: vec![Match {
            path: matched.into(),
            method: None,
        }],
        ..Rule::default()
    };
    rule.filters.redirect = Some(Redirect {
        scheme: Some(scheme.into()),
        hostname: host.into(),
        port: None,
        path: to.into(),
        status: 301,
    });
    rule
}

#[test]
fn a_redirect_to_https_on_its_own_host_and_path_is_refused() {
    let secure = https("tls", 443, "shop.example.com", &[secret_ref(None, "cert")]);
    let world = || {
        World::new()
            .with(gateway("infra", "edge", vec![http("web", 80), secure.clone()]))
            .with(certified("cert", &["shop.example.com"]))
    };
    let accepted = |world: &World| said(&world.parent("r").conditions, "Accepted");
    // given a route on the HTTP listener alone that redirects its host to https
    let to_https = |host: &str, matched: &str, to: &str| {
        let mut object = with_rules(
            "r",
            &[host],
            vec![redirecting(matched, "https", "shop.example.com", to)],
        );
        object.parents = vec![section(parent("infra", "edge"), "web")];
        object
    };
    for (host, matched, to) in [
        ("shop.example.com", "/", "/"),
        ("shop.example.com", "/a", "/a/"),
        ("*.example.com", "/", "/"),
    ] {
        let world = world().with(to_https(host, matched, to));
        assert_eq!(
            accepted(&world),
            "False UnsupportedValue",
            "{host} {matched} {to}"
        );
        let told = message(&world.parent("r").conditions, "Accepted").to_owned();
        assert!(
            told.starts_with("spec.rules[0].filters[0].requestRedirect: https://shop.example.com/"),
            "{told}"
        );
        assert!(
            told.contains("comes back to this rule") && told.contains("redirect to another hostname or path"),
            "{told}"
        );
    }
    // another host or path is no loop
    for (host, matched, to) in [
        ("old.example.com", "/", "/"),
        ("shop.example.com", "/a", "/"),
        ("shop.example.com", "/", "/a"),
    ] {
        let world = world().with(to_https(host, matched, to));
        assert_eq!(accepted(&world), "True Accepted", "{host} {matched} {to}");
    }
    // nor is it one where the Gateway has no such listener: TLS may end in front of Tyk, which decides then
    let plain = World::new().with(to_https("shop.example.com", "/", "/"));
    assert_eq!(accepted(&plain), "True Accepted");
    // the same scheme comes back too
    let same = with_rules(
        "r",
        &["shop.example.com"],
        vec![redirecting("/", "http", "shop.example.com", "/")],
    );
    assert_eq!(accepted(&World::new().with(same)), "False UnsupportedValue");
}
