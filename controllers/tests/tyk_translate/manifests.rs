//! From manifests to documents: decoding, model and translation together, as the controllers run them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use routewright::tyk::{
    Settings,
    model::Model,
    objects::{Event, Key, Object},
    translate::translate,
};
use serde_json::{Value, json};

/// A class with its connection, a data plane with a tag, a Gateway for HTTP that admits every route, two Services.
fn world() -> Vec<Value> {
    let service = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 8080}]},
        })
    };
    let context = |name: &str, spec: Value| {
        json!({
            "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
            "metadata": {"namespace": "infra", "name": name}, "spec": spec,
        })
    };
    vec![
        context(
            "tyk",
            json!({"env": {"mode": "ce", "url": "http://tyk.infra:8080", "auth": "x"}}),
        ),
        context(
            "edge",
            json!({"dataPlane": {"serviceRef": {"name": "tyk"}, "tags": ["edge"]}}),
        ),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "tyk"},
            "spec": {
                "controllerName": "routewright.dev/tyk",
                "parametersRef": {
                    "group": "tyk.tyk.io", "kind": "OperatorContext", "namespace": "infra", "name": "tyk",
                },
            },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": "infra", "name": "edge"},
            "spec": {
                "gatewayClassName": "tyk",
                "infrastructure": {"parametersRef": {
                    "group": "tyk.tyk.io", "kind": "OperatorContext", "name": "edge",
                }},
                "listeners": [{
                    "name": "http", "port": 8080, "protocol": "HTTP",
                    "allowedRoutes": {"namespaces": {"from": "All"}},
                }],
            },
        }),
        service("infra", "tyk"),
        service("team", "svc"),
        service("team", "other"),
    ]
}

/// Ids and canonical documents of the route team/shop, with the world around it.
fn served(route: Value) -> BTreeMap<String, String> {
    let mut model = Model::new(Settings::default());
    for object in world().into_iter().chain([route]) {
        let object = Object::decode(&object).unwrap().unwrap();
        model.apply(Event::Seen(Box::new(object)));
    }
    let verdict = model.route(&Key::new("team", "shop")).expect("a parent of ours");
    verdict
        .apis
        .iter()
        .map(|plan| translate(plan, &Settings::default()).unwrap())
        .map(|api| (api.id.clone(), String::from_utf8(api.canonical()).unwrap()))
        .collect()
}

fn route(hostnames: &[&str], rules: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "team", "name": "shop"},
        "spec": {
            "parentRefs": [{"namespace": "infra", "name": "edge"}],
            "hostnames": hostnames,
            "rules": rules,
        },
    })
}

/// The page's manifest becomes the page's document.
#[test]
fn the_manifest_of_the_docs_becomes_the_document_of_the_docs() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/tyk/documents.md");
    let text = std::fs::read_to_string(page).unwrap();
    let block = |kind: &str| {
        let (_, rest) = text.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let manifest: Value = serde_saphyr::from_str(&block("yaml")).unwrap();
    let document: Value = serde_json::from_str(&block("json")).unwrap();
    let made = served(manifest);
    let documents: Vec<Value> = made
        .values()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    assert_eq!(documents, [document]);
}

/// One rule for each entry: path, method (none for all), what it does.
fn rules(seed: &[(usize, u8)]) -> Vec<Value> {
    const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
    seed.iter()
        .enumerate()
        .map(|(n, (path, filters))| {
            // Every rule has a method of its own on its path, so that none of them is dropped, whatever the order.
            let method = METHODS[n % 4];
            let mut list = Vec::new();
            if filters & 1 != 0 {
                list.push(json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {
                    "set": [{"name": format!("X-{n}"), "value": "1"}, {"name": "X-B", "value": "2"}],
                    "remove": ["X-D", "X-C"],
                }}));
            }
            if filters & 2 != 0 {
                list.push(
                    json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {
                        "set": [{"name": "X-R", "value": "1"}],
                    }}),
                );
            }
            if filters & 4 != 0 {
                list.push(json!({"type": "URLRewrite", "urlRewrite": {
                    "path": {"type": "ReplaceFullPath", "replaceFullPath": format!("/new{n}")},
                }}));
            }
            json!({
                "matches": [
                    {"path": {"type": "PathPrefix", "value": format!("/p{path}")}, "method": method},
                    {"path": {"type": "PathPrefix", "value": format!("/q{n}")}},
                ],
                "filters": list,
                "backendRefs": [{"name": "svc", "port": 8080, "weight": 3}, {"name": "other", "port": 8080}],
            })
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The order of rules, matches, filters, backends and hostnames leaves no trace.
    #[test]
    fn permuted_rules_give_equal_ids_and_equal_bytes(
        seed in prop::collection::vec((0..2_usize, 0..8_u8), 1..5),
        order in any::<prop::sample::Index>(),
        turns in any::<bool>(),
    ) {
        let straight = rules(&seed);
        let mut permuted = straight.clone();
        let length = permuted.len();
        permuted.rotate_left(order.index(length));
        for rule in &mut permuted {
            for list in ["matches", "filters", "backendRefs"] {
                if turns && let Some(list) = rule[list].as_array_mut() {
                    list.reverse();
                }
            }
        }
        let one = served(route(&["a.example.com", "*.example.org"], &straight));
        let other = served(route(&["*.example.org", "a.example.com"], &permuted));
        // Every rule has a path of its own and shares one; each on two hosts.
        prop_assert!(one.len() >= 2 * (length + 1), "{} documents", one.len());
        prop_assert_eq!(one, other);
    }
}
