//! What other implementations got wrong, as properties: each test is named after its row in the catalogue of bugs
//! (facts on Gateway API, §5) that a pure function can violate.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use reconcile_kit::Condition;

use super::{
    super::{
        CONTROLLER_NAME, Settings,
        objects::{
            Event, GATEWAY_GROUP, HttpRoute, Key, Kind, Object, Problem, core::IngressAddress,
            route::ParentRef,
        },
        verdict::{Changes, RouteVerdict},
    },
    Model,
    claims::Place,
    fixtures::*,
    incremental_tests,
    random::{self, Random, Snapshot},
};

fn model(objects: &[Object]) -> Model {
    let mut model = Model::new(Settings::default());
    model.apply_all(objects.iter().cloned().map(seen_any));
    model
}

fn seen_any(object: Object) -> Event {
    Event::Seen(Box::new(object))
}

fn world(seed: u64) -> Vec<Object> {
    random::objects(&mut Random::new(seed))
}

fn routes(objects: &[Object]) -> impl Iterator<Item = &HttpRoute> {
    objects.iter().filter_map(|object| match object {
        Object::HttpRoute(route) => Some(route),
        _ => None,
    })
}

/// The page of the documentation that explains every reason.
fn page() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join("docs/src/tyk/conditions.md")).unwrap()
}

/// Gateways of classes of ours, found the long way.
fn own_gateways(objects: &[Object]) -> BTreeSet<Key> {
    let classes: BTreeSet<&str> = objects
        .iter()
        .filter_map(|object| match object {
            Object::GatewayClass(o) if o.controller_name == CONTROLLER_NAME => Some(o.meta.key.name.as_str()),
            _ => None,
        })
        .collect();
    objects
        .iter()
        .filter_map(|object| match object {
            Object::Gateway(o) if classes.contains(o.class.as_str()) => Some(o.meta.key.clone()),
            _ => None,
        })
        .collect()
}

/// parentRefs of a route that are ours, found the long way, each once.
fn own_parents(route: &HttpRoute, own: &BTreeSet<Key>) -> Vec<ParentRef> {
    let mut found: Vec<ParentRef> = Vec::new();
    for parent in &route.parents {
        let namespace = parent
            .namespace
            .clone()
            .unwrap_or(route.meta.key.namespace.clone());
        let ours = parent.group == GATEWAY_GROUP
            && parent.kind == "Gateway"
            && own.contains(&key(&namespace, &parent.name));
        if ours && !found.contains(parent) {
            found.push(parent.clone());
        }
    }
    found
}

fn parents_of(verdict: Option<&RouteVerdict>) -> Vec<ParentRef> {
    verdict
        .into_iter()
        .flat_map(|v| v.parents.iter().map(|p| p.parent.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn row_03_no_status_on_routes_of_other_classes(seed in any::<u64>()) {
        let objects = world(seed);
        let model = model(&objects);
        let own = own_gateways(&objects);
        for route in routes(&objects) {
            let verdict = model.route(&route.meta.key);
            prop_assert_eq!(verdict.is_some(), !own_parents(route, &own).is_empty());
            for parent in verdict.iter().flat_map(|v| &v.parents) {
                prop_assert!(own.contains(&parent.gateway));
            }
        }
    }

    #[test]
    fn row_04_entries_stand_in_a_stable_order(seed in any::<u64>()) {
        // the order of spec.parentRefs, whatever came first
        let mut objects = world(seed);
        let before = Snapshot::of(&model(&objects));
        Random::new(seed).shuffle(&mut objects);
        prop_assert_eq!(&before, &Snapshot::of(&model(&objects)));
        let own = own_gateways(&objects);
        for route in routes(&objects) {
            prop_assert_eq!(parents_of(before.routes.get(&route.meta.key)), own_parents(route, &own));
        }
    }

    #[test]
    fn row_05_no_entry_stands_twice(seed in any::<u64>()) {
        // given every parentRef written twice
        let mut objects = world(seed);
        for object in &mut objects {
            if let Object::HttpRoute(route) = object {
                route.parents = route.parents.iter().flat_map(|p| [p.clone(), p.clone()]).collect();
            }
        }
        let model = model(&objects);
        for (_, verdict) in model.routes() {
            let parents = parents_of(Some(verdict));
            let once: BTreeSet<_> = parents.iter().collect();
            prop_assert_eq!(once.len(), parents.len());
        }
    }

    #[test]
    fn row_07_no_entry_for_a_parent_that_was_dropped(seed in any::<u64>()) {
        let objects = world(seed);
        let mut model = model(&objects);
        for route in routes(&objects) {
            // when one parentRef after the other is dropped
            let mut route = route.clone();
            while route.parents.pop().is_some() {
                model.apply(seen(route.clone()));
                for parent in parents_of(model.route(&route.meta.key)) {
                    prop_assert!(route.parents.contains(&parent));
                }
            }
            // then in the end nothing is said, and nothing is to be served
            prop_assert!(model.route(&route.meta.key).is_none());
        }
    }

    #[test]
    fn row_08_09_every_own_parent_of_a_route_has_its_entry(seed in any::<u64>()) {
        let objects = world(seed);
        let model = model(&objects);
        let own = own_gateways(&objects);
        for route in routes(&objects) {
            let entries: BTreeSet<_> = parents_of(model.route(&route.meta.key)).into_iter().collect();
            let due: BTreeSet<_> = own_parents(route, &own).into_iter().collect();
            prop_assert_eq!(entries, due);
        }
    }

    #[test]
    fn row_10_a_change_of_any_object_reaches_every_answer_it_alters(seed in any::<u64>()) {
        incremental_tests::sequence(seed);
    }

    #[test]
    fn row_12_never_more_entries_than_parent_refs(seed in any::<u64>()) {
        let objects = world(seed);
        let model = model(&objects);
        for route in routes(&objects) {
            prop_assert!(parents_of(model.route(&route.meta.key)).len() <= route.parents.len());
        }
        for (_, verdict) in model.gateways() {
            prop_assert!(verdict.addresses.len() <= 16 && verdict.conditions.len() <= 8);
            prop_assert!(verdict.listeners.iter().all(|l| l.conditions.len() <= 8));
        }
    }

    #[test]
    fn row_13_39_the_same_world_again_changes_nothing(seed in any::<u64>()) {
        let objects = world(seed);
        let mut model = model(&objects);
        for mut object in objects {
            // neither as it is, nor with another generation and uid, as after a write of status
            prop_assert_eq!(model.apply(seen_any(object.clone())), Changes::default());
            if let Object::HttpRoute(o) = &mut object {
                o.meta.generation += 1;
                o.meta.uid.push('x');
            }
            if let Object::Gateway(o) = &mut object {
                o.meta.generation += 1;
                o.meta.uid.push('x');
            }
            prop_assert_eq!(model.apply(seen_any(object)), Changes::default());
        }
    }

    #[test]
    fn row_19_an_edit_touches_the_route_and_those_who_want_its_places(seed in any::<u64>()) {
        let objects = world(seed);
        let mut model = model(&objects);
        // every place that a route claims, also one that it did not get, and one that it holds without being served
        let claimed = |model: &Model| -> BTreeMap<Key, BTreeSet<Arc<Place>>> {
            let routes = model.answers.routes.iter();
            routes
                .map(|(key, answer)| (key.clone(), answer.claims.iter().map(|c| Arc::clone(&c.place)).collect()))
                .collect()
        };
        let before = claimed(&model);
        let changed = random::route_object(&mut Random::new(seed), "shop", "a");
        let changes = model.apply(seen(changed));
        let after = claimed(&model);
        let places = |route: &Key| -> BTreeSet<&Arc<Place>> {
            [&before, &after].into_iter().filter_map(|all| all.get(route)).flatten().collect()
        };
        // every other route that changed wants a place that this one wanted or wants
        for other in changes.routes.iter().filter(|other| **other != key("shop", "a")) {
            prop_assert!(!places(other).is_disjoint(&places(&key("shop", "a"))), "{other}");
        }
        prop_assert!(changes.classes.is_empty());
    }

    #[test]
    fn row_21_messages_are_functions_of_state(seed in any::<u64>()) {
        // given two histories with the same end: no counter, time, uid or generation shows
        let objects = world(seed);
        let mut detour = Model::new(Settings::default());
        for object in world(seed ^ 1) {
            let (kind, key) = object.id();
            let key = key.clone();
            detour.apply(seen_any(object));
            detour.apply(Event::Gone(kind, key));
        }
        let mut later = objects.clone();
        for object in &mut later {
            if let Object::HttpRoute(o) = object {
                o.meta.generation = 7_654_321;
                o.meta.uid = "another".into();
            }
        }
        detour.apply_all(later.into_iter().map(seen_any));
        prop_assert_eq!(Snapshot::of(&detour), Snapshot::of(&model(&objects)));
    }

    #[test]
    fn row_22_nothing_is_said_of_what_is_not_ours(seed in any::<u64>()) {
        let mut objects = world(seed);
        for object in &mut objects {
            if let Object::GatewayClass(o) = object {
                o.controller_name = "example.org/other".into();
            }
        }
        let snapshot = Snapshot::of(&model(&objects));
        prop_assert!(snapshot.classes.is_empty() && snapshot.gateways.is_empty() && snapshot.routes.is_empty());
        prop_assert!(snapshot.definitions.values().all(|v| !v.ours));
    }

    #[test]
    fn row_29_removing_a_grant_revokes(seed in any::<u64>()) {
        let objects = world(seed);
        let mut model = model(&objects);
        for object in &objects {
            if let Object::ReferenceGrant(grant) = object {
                model.apply(Event::Gone(Kind::ReferenceGrant, grant.key.clone()));
            }
        }
        for (key, verdict) in model.routes() {
            let inside = format!(".{}.svc.cluster.local:", key.namespace);
            for target in verdict.apis.iter().flat_map(|api| &api.targets) {
                // a name within the namespace, or an address behind one
                if let Some(authority) = target.authority.as_deref().filter(|a| a.contains(".svc.")) {
                    prop_assert!(authority.contains(&inside), "{key}: {authority}");
                }
            }
            for certificate in verdict.apis.iter().flat_map(|api| api.certificates.iter().map(move |c| (api, c))) {
                prop_assert_eq!(&certificate.1.secret.namespace, &certificate.0.gateway.namespace);
            }
        }
    }

    #[test]
    fn row_33_counts_do_not_look_at_the_validity_of_listeners(seed in any::<u64>()) {
        // given one route with one parent: nobody wins or loses a place by what happens
        let mut objects = world(seed);
        objects.retain(|o| o.id().0 != Kind::HttpRoute || *o.id().1 == key("shop", "a"));
        for object in &mut objects {
            if let Object::HttpRoute(route) = object {
                route.parents.truncate(1);
            }
        }
        let mut model = model(&objects);
        let counts = |model: &Model| -> BTreeMap<Key, Vec<u32>> {
            model.gateways()
                .map(|(key, verdict)| (key.clone(), verdict.listeners.iter().map(|l| l.attached_routes).collect()))
                .collect()
        };
        let before = counts(&model);
        // when no listener has its certificate or its port any longer
        model.apply(Event::Gone(Kind::Secret, key("infra", "cert")));
        model.apply(Event::Gone(Kind::Secret, key("shop", "cert")));
        model.apply(seen(service("infra", "tyk", &[1])));
        prop_assert_eq!(counts(&model), before);
    }

    #[test]
    fn row_34_equal_meaning_is_an_equal_plan(seed in any::<u64>()) {
        let mut objects = world(seed);
        let before = model(&objects);
        let mut r = Random::new(seed);
        for object in &mut objects {
            if let Object::HttpRoute(route) = object {
                for rule in &mut route.rules {
                    r.shuffle(&mut rule.matches);
                    r.shuffle(&mut rule.backends);
                }
                r.shuffle(&mut route.hostnames);
            }
        }
        let after = model(&objects);
        for (key, verdict) in before.routes() {
            prop_assert_eq!(&verdict.apis, &after.route(key).unwrap().apis);
        }
    }

    #[test]
    fn permuted_rules_that_do_not_conflict_change_nothing(seed in any::<u64>()) {
        let mut objects = world(seed);
        let before = model(&objects);
        let mut r = Random::new(seed);
        let whole = |verdict: &RouteVerdict| {
            verdict.parents.iter().all(|p| said(&p.conditions, "PartiallyInvalid") == "-"
                && said(&p.conditions, "Accepted") == "True Accepted")
        };
        for object in &mut objects {
            if let Object::HttpRoute(route) = object
                && before.route(&route.meta.key).is_some_and(whole)
                && route.rules.iter().all(|rule| rule.problems.is_empty())
            {
                r.shuffle(&mut route.rules);
            }
        }
        let after = model(&objects);
        for (key, verdict) in before.routes().filter(|(_, verdict)| whole(verdict)) {
            let other = after.route(key).unwrap();
            prop_assert_eq!(&verdict.apis, &other.apis);
            prop_assert_eq!(&verdict.gateways, &other.gateways);
        }
    }

    #[test]
    fn permuted_parents_change_their_order_alone(seed in any::<u64>()) {
        let mut objects = world(seed);
        // no Gateway shares its data plane: the order of parents means something only there
        objects.retain(|object| !matches!(object.id().0, Kind::OperatorContext));
        objects.push(context().into());
        objects.push(tags("infra", "own", &["other"]).into());
        objects.push(tags("shop", "own", &["third"]).into());
        let apart = [("edge", "infra", None), ("inner", "infra", Some("own")), ("edge", "shop", Some("own"))];
        for (name, namespace, own) in apart {
            for object in &mut objects {
                if let Object::Gateway(o) = object && o.meta.key == key(namespace, name) {
                    o.class = "tyk".into();
                    o.parameters = own.map(|own| context_ref(None, own));
                }
            }
        }
        let before = model(&objects);
        let mut r = Random::new(seed);
        for object in &mut objects {
            if let Object::HttpRoute(route) = object {
                r.shuffle(&mut route.parents);
            }
        }
        let after = model(&objects);
        for (key, verdict) in before.routes() {
            let other = after.route(key).unwrap();
            prop_assert_eq!(&verdict.apis, &other.apis);
            prop_assert_eq!(&verdict.gateways, &other.gateways);
            let sorted = |verdict: &RouteVerdict| {
                let mut parents = verdict.parents.clone();
                parents.sort_by(|a, b| a.parent.cmp(&b.parent));
                parents
            };
            prop_assert_eq!(sorted(verdict), sorted(other));
        }
    }

    #[test]
    fn row_35_messages_are_bounded(rules in 1..400_usize, length in 1..20_000_usize) {
        let problem = |i: usize| Problem::new(format!("spec.rules[{i}].{}", "x".repeat(length)), "ü".repeat(length));
        let mut object = route("r", &[]);
        object.rules.extend((1..=rules).map(|i| {
            let mut broken = broken_rule(i, "/x", "retry");
            broken.problems = (0..20).map(|_| problem(i)).collect();
            broken
        }));
        let world = World::new().with(object.clone());
        let check = |world: &World| {
            world.parent("r").conditions.iter().all(|c| c.message.len() < 32_768)
        };
        prop_assert!(check(&world));
        object.rules.remove(0);
        prop_assert!(check(&world.with(object)));
    }

    #[test]
    fn whatever_is_said_is_a_row_of_the_page(seed in any::<u64>()) {
        let page = page();
        let model = model(&world(seed));
        let mut said: Vec<(&str, &Condition)> = Vec::new();
        for (_, verdict) in model.gateways() {
            said.extend(verdict.conditions.iter().map(|c| ("gateway", c)));
            let listeners = verdict.listeners.iter().flat_map(|listener| &listener.conditions);
            said.extend(listeners.map(|c| ("listener", c)));
        }
        for (_, verdict) in model.routes() {
            let parents = verdict.parents.iter().flat_map(|parent| &parent.conditions);
            said.extend(parents.map(|c| ("httproute", c)));
        }
        let snapshot = Snapshot::of(&model);
        said.extend(snapshot.classes.values().flat_map(|verdict| &verdict.conditions).map(|c| ("gatewayclass", c)));
        said.extend(snapshot.definitions.values().map(|verdict| ("definition", &verdict.condition)));
        for (table, c) in said {
            let row = format!("| `{}` | {} | `{}` |", c.type_, c.status.as_str(), c.reason);
            let rows = page.split(&format!("<!-- reasons:{table}:")).nth(1).unwrap_or_default();
            prop_assert!(rows.contains(&row), "{table}: {row}");
        }
    }

    #[test]
    fn row_38_one_broken_object_leaves_the_others_alone(seed in any::<u64>()) {
        let mut objects = world(seed);
        let before = model(&objects);
        let mut odd = route("odd", &[]);
        odd.problems = vec![Problem::new("spec", "is not an object")];
        objects.push(odd.into());
        let after = model(&objects);
        for (key, verdict) in before.routes() {
            prop_assert_eq!(verdict, after.route(key).unwrap());
        }
    }
}

#[test]
fn row_18_counts_are_complete() {
    // given 250 routes, more than a page of any list
    let mut world = World::new();
    for i in 0..250 {
        world.put(route(&format!("r{i}"), &[&format!("h{i}.example.com")]));
        assert_eq!(world.listener("web").attached_routes, i + 1);
    }
    for i in 0..250 {
        world.gone(Kind::HttpRoute, "shop", &format!("r{i}"));
        assert_eq!(world.listener("web").attached_routes, 249 - i);
    }
}

#[test]
fn row_30_the_core_group_is_the_empty_string() {
    let mut reference = backend("web", 80);
    reference.namespace = Some("other".into());
    let mut wrong = grant("other", "HTTPRoute", "shop", "Service", None);
    wrong.to[0].0 = "core".into();
    let world = World::new()
        .with(service("other", "web", &[80]))
        .with(wrong)
        .with(with_rules("r", &[], vec![rule("/", vec![reference])]));
    assert_eq!(
        said(&world.parent("r").conditions, "ResolvedRefs"),
        "False RefNotPermitted"
    );
}

#[test]
fn row_36_programmed_follows_the_address() {
    let balancer = |ingress| super::super::objects::Service {
        type_: "LoadBalancer".into(),
        ingress,
        ..service("infra", "tyk", &[80])
    };
    let mut world = World::new().with(balancer(vec![]));
    for _ in 0..2 {
        assert_eq!(
            said(&world.edge().conditions, "Programmed"),
            "False AddressNotAssigned"
        );
        let changes = world.put(balancer(vec![IngressAddress::Ip("192.0.2.1".into())]));
        assert!(changes.gateways.contains(&key("infra", "edge")));
        assert_eq!(said(&world.edge().conditions, "Programmed"), "True Programmed");
        world.put(balancer(vec![]));
    }
}

#[test]
fn row_37_the_loser_of_a_collision_is_told_who_won() {
    let mut old = route("old", &["a.example.com"]);
    old.meta.created = 1;
    let world = World::new().with(route("young", &["a.example.com"])).with(old);
    let words = message(&world.parent("young").conditions, "PartiallyInvalid");
    assert!(
        words.contains("host a.example.com, path / is served by HTTPRoute shop/old"),
        "{words}"
    );
}

#[test]
fn a_route_without_a_document_is_refused_and_not_counted_also_while_no_listener_serves() {
    // given a value that decoding would not let through: a seed of the property above
    let mut objects = world(9_281_684_421_120_532_168);
    objects.retain(|o| o.id().0 != Kind::HttpRoute || *o.id().1 == key("shop", "a"));
    let mut model = model(&objects);
    let reasons = |model: &Model| -> Vec<String> {
        let parents = &model.route(&key("shop", "a")).unwrap().parents;
        parents.iter().map(|p| said(&p.conditions, "Accepted")).collect()
    };
    let before = reasons(&model);
    assert!(before[0] == "False TranslationFailed", "{before:?}");
    // when no listener is valid any longer, then the answer is the same
    model.apply(seen(service("infra", "tyk", &[1])));
    assert_eq!(reasons(&model), before);
}
