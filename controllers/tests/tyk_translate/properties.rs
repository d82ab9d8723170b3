//! What holds for every plan: ids, bytes, and no substitution token in any document.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use routewright::tyk::{
    Settings,
    objects::{
        Key,
        route::{HeaderEdit, Method},
        text,
    },
    translate::{EVERY_PATH, EXTENSION, Refusal, TykApi, attach, base, certain, identity, translate},
    verdict::{ApiPlan, OperationPlan, StaticRedirect, Target},
};
use serde_json::{Value, json};

use crate::support;

/// Text that comes close to what Tyk looks for, and sometimes is it.
fn awkward() -> impl Strategy<Value = String> {
    let parts = prop_oneof![
        Just("$secret_".to_owned()),
        Just("env.X".to_owned()),
        Just("$tyk_context.x".to_owned()),
        Just("ENV".to_owned()),
        Just("://".to_owned()),
        Just("kv".to_owned()),
        Just("$".to_owned()),
        Just("{".to_owned()),
        Just("1".to_owned()),
        Just("vault://a#b".to_owned()),
        Just("/".to_owned()),
        "[a-z%?]{0,3}",
    ];
    prop::collection::vec(parts, 0..4).prop_map(|parts| parts.concat())
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("/".to_owned()),
        "/[a-z.]{1,6}",
        awkward().prop_map(|text| format!("/{text}")),
    ]
}

fn headers() -> impl Strategy<Value = HeaderEdit> {
    (
        prop::collection::btree_map("X-[A-Z]", awkward(), 0..3),
        prop::collection::btree_set("X-[A-Z]", 0..3),
    )
        .prop_map(|(set, remove)| HeaderEdit {
            remove: remove
                .into_iter()
                .filter(|name| !set.contains_key(name))
                .collect(),
            set,
        })
}

fn operation() -> impl Strategy<Value = OperationPlan> {
    (
        headers(),
        headers(),
        prop::option::of(path()),
        prop::option::weighted(
            0.2,
            awkward().prop_map(|location| StaticRedirect {
                location,
                status: 302,
            }),
        ),
    )
        .prop_map(
            |(request_headers, response_headers, full_path, redirect)| OperationPlan {
                request_headers: request_headers.into(),
                response_headers: response_headers.into(),
                full_path,
                redirect,
            },
        )
}

fn targets() -> impl Strategy<Value = Vec<Target>> {
    let authority = prop_oneof![
        Just(None),
        "[a-z]{1,3}:80".prop_map(Some),
        awkward().prop_map(Some)
    ];
    prop::collection::vec(
        (authority, 1..9_u32).prop_map(|(authority, weight)| Target { authority, weight }),
        0..4,
    )
}

fn plan() -> impl Strategy<Value = ApiPlan> {
    (
        prop::option::of(prop_oneof!["[a-z]{1,3}\\.[a-z]{2}", "\\*\\.[a-z]{2}", awkward()]),
        path(),
        prop::collection::vec(awkward(), 0..2),
        targets(),
        prop::option::of(path()),
        prop::collection::btree_map(prop::sample::select(Method::ALL.to_vec()), operation(), 1..9),
    )
        .prop_map(|(host, path, tags, targets, prefix, operations)| ApiPlan {
            host,
            path,
            tags,
            targets,
            prefix,
            operations,
            ..support::plan()
        })
}

#[test]
fn a_plain_plan_is_certain_and_one_that_may_be_refused_is_not() {
    let mut plan = support::plan();
    plan.operations = support::every_method(&support::request(&[("X-A", "$5")], &[]));
    assert!(certain(&plan));
    for change in [
        (|plan| plan.operations.clear()) as fn(&mut ApiPlan),
        |plan| plan.path = "/$secret_env.X".to_owned(),
        |plan| plan.prefix = Some("/env://X".to_owned()),
        |plan| plan.tags = vec!["$tyk_context.x".to_owned()],
        |plan| plan.operations = support::every_method(&support::request(&[("X-A", "$kv{x}")], &[])),
        |plan| {
            plan.operations
                .values_mut()
                .for_each(|operation| operation.full_path = Some("/f".to_owned()));
        },
    ] {
        let mut other = plan.clone();
        change(&mut other);
        assert!(!certain(&other), "{other:?}");
    }
}

fn made(plan: &ApiPlan) -> Result<TykApi, Refusal> {
    translate(plan, &Settings::default())
}

proptest! {
    /// The last line of defence: whatever the decoder let through, no document holds a token.
    #[test]
    fn no_document_holds_a_substitution_token(plan in plan()) {
        if let Ok(api) = made(&plan) {
            let text = String::from_utf8(api.canonical()).unwrap();
            // The words that Tyk looks for, written down a second time.
            for token in ["$secret_", "$tyk_", "$kv{", "env://", "vault://", "consul://", "secrets://", "file://", "kv://"] {
                prop_assert!(!text.to_lowercase().contains(token), "{token} in {text}");
            }
        }
    }

    /// What is called certain has a document.
    #[test]
    fn a_certain_plan_is_never_refused(mut plan in plan(), full_paths in any::<bool>()) {
        if !full_paths {
            plan.operations.values_mut().for_each(|operation| operation.full_path = None);
        }
        if certain(&plan) {
            prop_assert!(made(&plan).is_ok(), "{:?}", made(&plan));
        }
    }

    /// Nor does the message repeat the value.
    #[test]
    fn a_refusal_names_the_place_and_not_the_value(value in "\\$secret_env\\.[A-Z]{8}") {
        let mut plan = support::plan();
        plan.operations = support::every_method(&support::request(&[("X-A", &value)], &[]));
        let message = made(&plan).unwrap_err().to_string();
        prop_assert!(message.contains("transformRequestHeaders.add[0].value"), "{message}");
        prop_assert!(!message.contains(&value["$secret_env.".len()..]), "{message}");
    }

    /// No panic, bounded output, and what is made is sound JSON with sorted keys.
    #[test]
    fn a_document_is_bounded_and_its_own_canon(plan in plan()) {
        if let Ok(api) = made(&plan) {
            let bytes = api.canonical();
            prop_assert!(bytes.len() < 64 * 1024, "{} bytes", bytes.len());
            let again = TykApi { id: api.id.clone(), document: serde_json::from_slice(&bytes).unwrap() };
            prop_assert_eq!(again.canonical(), bytes);
            prop_assert_eq!(identity(&plan), api.id);
        }
    }

    /// The order in which backends were listed, and how often the plan is translated, changes no byte.
    #[test]
    fn permuted_targets_give_equal_bytes(plan in plan(), seed in any::<u64>()) {
        let mut other = plan.clone();
        let length = other.targets.len().max(1);
        other.targets.rotate_left(usize::try_from(seed % length as u64).unwrap());
        prop_assert_eq!(made(&plan).map(|api| api.canonical()), made(&other).map(|api| api.canonical()));
    }

    /// What joins with an empty definition is what there would be without one, but for the way of the 404.
    #[test]
    fn an_empty_definition_adds_nothing(plan in plan()) {
        let mut attached = plan.clone();
        attached.base = support::base(json!({"x-tyk-api-gateway": {}}));
        prop_assert_eq!(made(&plan), made(&attached));
    }

    /// Length prefixes: two different lists of fields never read alike, however the texts are cut.
    #[test]
    fn different_fields_have_different_ids(
        one in prop::collection::vec("[ab/.-]{0,3}", 6),
        other in prop::collection::vec("[ab/.-]{0,3}", 6),
    ) {
        let plan = |fields: &[String]| ApiPlan {
            route: Key::new(&fields[0], &fields[1]),
            path: fields[2].clone(),
            gateway: Key::new(&fields[3], &fields[4]),
            host: Some(fields[5].clone()).filter(|host| !host.is_empty()),
            ..support::plan()
        };
        prop_assert_eq!(one == other, identity(&plan(&one)) == identity(&plan(&other)));
    }
}

/// JSON out of the words that a definition's document is read by, in places where they belong and where they do not.
fn tree() -> impl Strategy<Value = Value> {
    const WORDS: [&str; 24] = [
        "paths",
        "/books",
        "/(?s).*",
        "get",
        "post",
        "operationId",
        "a",
        "b",
        "x-tyk-api-gateway",
        "info",
        "id",
        "server",
        "listenPath",
        "upstream",
        "url",
        "middleware",
        "global",
        "transformRequestHeaders",
        "operations",
        "allow",
        "enabled",
        "mockResponse",
        "errorOverrides",
        "value",
    ];
    let word = || prop::sample::select(WORDS.to_vec()).prop_map(ToOwned::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            5 => prop::collection::btree_map(word(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A plan without anything to refuse.
fn sound() -> impl Strategy<Value = ApiPlan> {
    let operation = prop_oneof![
        4 => Just(OperationPlan::default()),
        1 => Just(support::request(&[("X-A", "1")], &["X-B"])),
        1 => Just(support::response(&[("X-A", "1")], &[])),
        1 => Just(support::full_path("/new")),
        1 => Just(support::redirect("https://example.org/", 301)),
    ];
    (
        prop::option::of("[a-z]{1,3}\\.[a-z]{2}"),
        "/[a-z.]{1,6}",
        prop::option::of("/[a-z]{1,4}"),
        prop::collection::btree_map(prop::sample::select(Method::ALL.to_vec()), operation, 1..9),
    )
        .prop_map(|(host, path, prefix, operations)| ApiPlan {
            host,
            path,
            prefix,
            operations,
            ..support::plan()
        })
}

/// A document with the right outline, filled with such JSON.
fn definition() -> impl Strategy<Value = Value> {
    // Mostly past the check for objects, so that joining gets its share.
    let map = || {
        prop::collection::btree_map(
            prop::sample::select(vec![
                "/books",
                "/(?s).*",
                "a",
                "b",
                "get",
                "value",
                "transformRequestHeaders",
            ]),
            tree(),
            0..4,
        )
        .prop_map(|map| {
            let objects = map.into_iter().filter(|(_, value)| value.is_object());
            Value::Object(objects.map(|(key, value)| (key.to_owned(), value)).collect())
        })
    };
    prop_oneof![
        tree(),
        (map(), map(), map(), map()).prop_map(|(paths, operations, global, overrides)| json!({
            "paths": paths,
            "x-tyk-api-gateway": {
                "middleware": {"operations": operations, "global": global},
                "errorOverrides": overrides,
            },
        })),
    ]
}

proptest! {
    /// Whatever the ConfigMap holds: no panic, and when a document comes out, the route has what is its own.
    #[test]
    fn any_definition_is_refused_or_joined(document in definition(), plan in sound()) {
        let mut attached = plan.clone();
        attached.base = support::base(document.clone());
        let checked = base::check(&document);
        let conflict = attach::conflict(&attached);
        let joined = made(&attached);
        // What is neither invalid nor in conflict has a document, but for a token, which the decoder looks for.
        if let (Ok(()), Ok(None)) = (&checked, &conflict) {
            prop_assert!(matches!(joined, Ok(_) | Err(Refusal::Token { .. })), "{joined:?}");
        }
        if let (Ok(()), Ok(None), Ok(joined), Ok(alone)) = (checked, conflict, joined, made(&plan)) {
            for pointer in [
                "/info/title",
                "/x-tyk-api-gateway/info/id",
                "/x-tyk-api-gateway/info/name",
                "/x-tyk-api-gateway/info/state",
                "/x-tyk-api-gateway/server/listenPath",
                "/x-tyk-api-gateway/server/customDomain",
                "/x-tyk-api-gateway/server/gatewayTags",
                "/x-tyk-api-gateway/upstream/url",
                "/x-tyk-api-gateway/upstream/loadBalancing",
                "/x-tyk-api-gateway/upstream/preserveHostHeader",
            ] {
                prop_assert_eq!(joined.document.pointer(pointer), alone.document.pointer(pointer), "{}", pointer);
            }
            // Every method that the route serves has its operation, and whatever it does on its own.
            for (method, operation) in &plan.operations {
                let key = format!("/x-tyk-api-gateway/middleware/operations/{}", method.as_str());
                let settings = joined.document.pointer(&key);
                prop_assert!(joined.document["paths"][EVERY_PATH].get(method.as_str()).is_some());
                prop_assert_eq!(
                    operation.redirect.is_some(),
                    settings.is_some_and(|settings| settings.get("mockResponse").is_some()),
                    "{} of {}", method.as_str(), joined.document
                );
            }
        }
    }
}

/// A key as somebody else spells it whom Tyk takes for the same: `how` is read letter by letter.
fn respelled(key: &str, how: &[u8]) -> String {
    key.chars()
        .zip(how)
        .map(|(letter, how)| match (how, letter.to_ascii_lowercase()) {
            (1, _) if letter.is_ascii_lowercase() => letter.to_ascii_uppercase(),
            (1, _) => letter.to_ascii_lowercase(),
            (2, 's') => '\u{17f}',
            (2, 'k') => '\u{212a}',
            _ => letter,
        })
        .collect()
}

/// Where the route's settings go and what is decided upon; a `*` stands for a name that the user gives.
fn fixed_keys() -> Vec<Vec<&'static str>> {
    let mut all: Vec<Vec<&str>> = base::ROUTE_OWNED
        .iter()
        .map(|(part, key)| vec![EXTENSION, part, key])
        .collect();
    for path in [
        "info title",
        "paths * get operationId",
        "paths * trace operationId",
        "x-tyk-api-gateway info orgId",
        "x-tyk-api-gateway info state",
        "x-tyk-api-gateway errorOverrides value",
        "x-tyk-api-gateway errorOverrides enabled",
        "x-tyk-api-gateway middleware operations * allow enabled",
        "x-tyk-api-gateway middleware operations * block enabled",
        "x-tyk-api-gateway middleware operations * mockResponse enabled",
        "x-tyk-api-gateway middleware operations * urlRewrite enabled",
        "x-tyk-api-gateway middleware operations * ignoreAuthentication",
        "x-tyk-api-gateway middleware operations * transformRequestHeaders enabled",
        "x-tyk-api-gateway middleware global transformRequestHeaders remove",
        "x-tyk-api-gateway middleware global transformResponseHeaders add",
    ] {
        all.push(path.split(' ').collect());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// No spelling of a key that Tyk reads as one of the route's gets past the check, with whatever value.
    #[test]
    fn a_respelled_key_is_refused(
        path in prop::sample::select(fixed_keys()),
        how in prop::collection::vec(prop::collection::vec(0..3_u8, 32), 8),
        value in prop_oneof![Just(json!({})), Just(Value::Null), Just(json!([])), Just(json!({"enabled": true}))],
    ) {
        let keys: Vec<String> = path
            .iter()
            .zip(&how)
            .map(|(key, how)| match *key {
                "*" => "/Books".to_owned(),
                // Without it the document is none of Tyk's.
                EXTENSION => EXTENSION.to_owned(),
                key => respelled(key, how),
            })
            .collect();
        let respelled = path.iter().zip(&keys).any(|(key, other)| *key != "*" && key != other);
        prop_assume!(respelled);
        let mut document = keys.iter().rev().fold(value, |value, key| json!({key: value}));
        let root = document.as_object_mut().unwrap();
        root.entry(EXTENSION).or_insert_with(|| json!({}));
        let faults = base::check(&document).unwrap_err();
        prop_assert!(faults.iter().any(|fault| fault.contains(": to Tyk the key ")), "{document}: {faults:?}");
    }
}

/// Filters of a rule are merged before they come here: whatever the order in which they were inserted.
#[test]
fn permuted_filters_give_equal_bytes() {
    let edits = [("X-A", "1"), ("X-B", "2"), ("X-C", "3")];
    let mut bytes = BTreeSet::new();
    for first in 0..3 {
        for second in (0..3).filter(|n| *n != first) {
            let third = 3 - first - second;
            let mut operations = BTreeMap::new();
            for method in [Method::ALL[second], Method::ALL[first], Method::ALL[third]] {
                let mut operation = OperationPlan::default();
                for n in [first, second, third] {
                    let (name, value) = edits[n];
                    let request = Arc::make_mut(&mut operation.request_headers);
                    request.set.insert(name.to_owned(), value.to_owned());
                    let response = Arc::make_mut(&mut operation.response_headers);
                    response.remove.insert(name.to_owned());
                }
                operations.insert(method, operation);
            }
            let plan = ApiPlan {
                operations,
                ..support::plan()
            };
            bytes.insert(made(&plan).unwrap().canonical());
        }
    }
    assert_eq!(bytes.len(), 1);
}

/// Each token, in each kind of value that a user writes.
#[test]
fn every_token_is_refused_in_every_value() {
    type Put = fn(&mut ApiPlan, String);
    let places: [(&str, Put); 9] = [
        ("host", |plan, value| plan.host = Some(value)),
        ("path", |plan, value| plan.path = format!("/{value}")),
        ("tag", |plan, value| plan.tags = vec![value]),
        ("backend", |plan, value| {
            plan.targets = vec![Target {
                authority: Some(value),
                weight: 1,
            }];
        }),
        ("prefix", |plan, value| plan.prefix = Some(format!("/{value}"))),
        ("full path", |plan, value| {
            plan.operations = support::every_method(&support::full_path(&format!("/{value}")));
        }),
        ("redirect", |plan, value| {
            plan.operations = support::every_method(&support::redirect(&value, 302));
        }),
        ("request header", |plan, value| {
            plan.operations = support::every_method(&support::request(&[("X-A", &value)], &[]));
        }),
        ("response header", |plan, value| {
            plan.operations = support::every_method(&support::response(&[], &[&value]));
        }),
    ];
    for token in text::TOKENS {
        for (place, put) in places {
            for value in [format!("a{token}b"), token.to_uppercase()] {
                let mut plan = support::plan();
                put(&mut plan, value);
                assert!(
                    matches!(made(&plan), Err(Refusal::Token { token: found, .. }) if found == token || token.ends_with(found)),
                    "{token} in {place}"
                );
            }
        }
    }
}

/// Who may write a definition of a namespace need not be who may know the gateway's secrets.
#[test]
fn a_token_in_an_attached_definition_is_refused() {
    let mut plan = support::plan();
    plan.base = support::base(
        json!({"x-tyk-api-gateway": {"middleware": {"global": {"transformRequestHeaders": {
            "enabled": true, "add": [{"name": "X-Key", "value": "$secret_env.key"}],
        }}}}}),
    );
    let refused = made(&plan).unwrap_err().to_string();
    assert!(
        refused.contains("transformRequestHeaders.add[0].value") && refused.contains("$secret_"),
        "{refused}"
    );
}
