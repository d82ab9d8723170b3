//! Bounds in bytes: of attached documents, of what a route comes to, of its backends and headers.

use serde_json::json;

use super::{
    super::{
        objects::{
            ConfigMap,
            route::{HeaderEdit, Method, PathRewrite, Rule},
        },
        translate::translate,
        verdict::Disposition,
    },
    fixtures::*,
};

fn accepted(world: &World, name: &str) -> String {
    said(&world.parent(name).conditions, "Accepted")
}

fn disposition(world: &World, name: &str) -> Disposition {
    world.route(name).gateways[&key("infra", "edge")]
}

/// A route with `hosts` hostnames and `paths` paths, and a document of about `bytes` bytes for each of its APIs.
fn with_document(hosts: usize, paths: usize, bytes: usize) -> World {
    let hostnames: Vec<String> = (0..hosts).map(|n| format!("h{n}.example.com")).collect();
    let hostnames: Vec<&str> = hostnames.iter().map(String::as_str).collect();
    let rules = (0..paths)
        .map(|n| rule(&format!("/p{n}"), vec![backend("web", 80)]))
        .collect();
    let document = json!({"x-pad": "a".repeat(bytes), "x-tyk-api-gateway": {}});
    World::new()
        .with(ConfigMap {
            documents: [("api.json".to_owned(), Ok(document.into()))].into(),
            ..config_map("shop")
        })
        .with(definition("shop", "d", 0, vec![target("HTTPRoute", "r")]))
        .with(with_rules("r", &hostnames, rules))
}

#[test]
fn the_documents_of_a_route_are_bounded_in_bytes() {
    // given 256 APIs with a document of 4 KiB: all are made
    let world = with_document(16, 16, 4 * 1024);
    assert_eq!(accepted(&world, "r"), "True Accepted");
    assert_eq!(world.places("r").len(), 256);
    // with one of 60 KiB none is, and the message has the numbers and what to do
    let world = with_document(16, 16, 60 * 1024);
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
    assert_eq!(disposition(&world, "r"), Disposition::Remove);
    let told = message(&world.parent("r").conditions, "Accepted");
    for words in [
        "bytes of documents in Tyk, 2097152 are the most: 256 APIs, each with the 61475 bytes of TykOasApiDefinition shop/d",
        "split the route",
        "attach a smaller document",
    ] {
        assert!(told.contains(words), "{told}");
    }
    // and fewer APIs of the same document are
    assert_eq!(accepted(&with_document(16, 1, 60 * 1024), "r"), "True Accepted");
}

#[test]
fn backends_and_headers_of_a_route_count_as_bytes() {
    // given a headless Service of 2 000 Pods behind 16 hostnames with 2 paths
    let hostnames: Vec<String> = (0..16).map(|n| format!("h{n}.example.com")).collect();
    let hostnames: Vec<&str> = hostnames.iter().map(String::as_str).collect();
    let pods: Vec<String> = (0..2_000)
        .map(|n| format!("10.1.{}.{}", n / 250, n % 250))
        .collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let rules = |paths: usize| {
        let rule = |n| rule(&format!("/p{n}"), vec![backend("pods", 80)]);
        (0..paths).map(rule).collect()
    };
    let mut world = World::new()
        .with(headless("shop", "pods", &[80]))
        .with(slice("shop", "s", "pods", 80, &pods))
        .with(with_rules("r", &hostnames, rules(2)));
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
    world.put(with_rules("r", &hostnames[..8], rules(1)));
    assert_eq!(accepted(&world, "r"), "True Accepted");
    // and headers that are not the same for each method
    let heavy = |method: Method, n: usize| {
        let mut rule = method_rule("/", method, vec![backend("web", 80)]);
        let set = (0..16).map(|i| (format!("X-{i}"), format!("{n}{}", "v".repeat(4_000))));
        rule.filters.request_headers.set = set.collect();
        rule
    };
    let rules: Vec<_> = Method::ALL
        .into_iter()
        .zip(0..)
        .map(|(method, n)| heavy(method, n))
        .collect();
    world.put(with_rules("r", &hostnames, rules.clone()));
    assert_eq!(accepted(&world, "r"), "False UnsupportedValue");
    world.put(with_rules("r", &hostnames[..1], rules));
    assert_eq!(accepted(&world, "r"), "True Accepted");
}

/// What is estimated is near what is made.
#[test]
fn the_estimate_of_a_document_is_near_its_size() {
    let plain = |path: &str| vec![rule(path, vec![backend("web", 80)])];
    let with = |mut rules: Vec<Rule>, change: &dyn Fn(&mut Rule)| {
        rules.iter_mut().for_each(change);
        rules
    };
    let headers = |count: usize, value: usize| HeaderEdit {
        set: (0..count)
            .map(|n| (format!("X-{n}"), "v".repeat(value)))
            .collect(),
        remove: Default::default(),
    };
    let each = |path: &str| -> Vec<Rule> {
        let rule = |method| method_rule(path, method, vec![backend("web", 80)]);
        Method::ALL.into_iter().map(rule).collect()
    };
    let long = format!("/{}", "p".repeat(900));
    let full =
        |rule: &mut Rule| rule.filters.rewrite = Some(PathRewrite::Full(format!("/{}", "f".repeat(200))));
    for rules in [
        plain("/"),
        plain(&long),
        each("/a"),
        with(plain("/a"), &full),
        with(each(&long), &full),
        with(plain("/a"), &|rule| {
            rule.filters.request_headers = headers(16, 2_000)
        }),
        with(each("/a"), &|rule| {
            rule.filters.response_headers = headers(16, 100)
        }),
        with(
            vec![method_rule("/a", Method::Get, vec![backend("web", 80)])],
            &|rule| {
                rule.filters.request_headers = headers(2, 10);
            },
        ),
    ] {
        let object = with_rules("r", &["a.example.com"], rules);
        let groups = super::rules::group(&object, &[(false, 80)].into(), &|_| false).groups;
        let [(path, group)] = groups.iter().collect::<Vec<_>>()[..] else {
            panic!("one path")
        };
        let estimate = group.bytes(path);
        let world = World::new().with(object.clone());
        let [plan] = &world.route("r").apis[..] else {
            panic!("one API")
        };
        let made = translate(plan, &Default::default()).unwrap().canonical().len();
        assert!(made / 2 <= estimate && estimate <= made * 3, "{made} {estimate}");
    }
}
