//! TykOasApiDefinitions: the source's conditions, precedence, and what a definition does to its route.

use serde_json::json;

use super::{
    super::{
        objects::{ConfigMap, Key, Kind, Problem},
        verdict::Disposition,
    },
    fixtures::*,
};

fn status(world: &World, name: &str) -> String {
    said(
        std::slice::from_ref(&world.definition("shop", name).condition),
        "Accepted",
    )
}

fn on_route() -> World {
    World::new()
        .with(route("r", &[]))
        .with(config_map("shop"))
        .with(definition("shop", "d", 1, vec![target("HTTPRoute", "r")]))
}

fn parent_said(world: &World) -> String {
    said(&world.parent("r").conditions, "Accepted")
}

#[test]
fn definition_true_attached() {
    let world = on_route();
    assert_eq!(status(&world, "d"), "True Attached");
    assert!(world.definition("shop", "d").ours);
    let base = world.route("r").apis[0].base.as_ref().unwrap();
    assert_eq!(base.definition, key("shop", "d"));
}

#[test]
fn definition_false_not_attached() {
    let mut world = on_route();
    world.gone(Kind::HttpRoute, "shop", "r");
    assert_eq!(status(&world, "d"), "False NotAttached");
    // it is not ours to say, if nobody's target is ours
    assert!(!world.definition("shop", "d").ours);
    // and the same for a route without a Gateway of ours
    let mut foreign = route("r", &[]);
    foreign.parents = vec![parent("infra", "absent")];
    world.put(foreign);
    assert_eq!(status(&world, "d"), "False NotAttached");
    assert!(!world.definition("shop", "d").ours);
    // when it comes, it applies
    let changes = world.put(route("r", &[]));
    assert!(changes.definitions.contains(&key("shop", "d")));
    assert_eq!(status(&world, "d"), "True Attached");
}

#[test]
fn of_two_installations_the_one_speaks_whose_the_first_target_is() {
    // given another installation of Gateway API on Tyk, with a Gateway and a route
    let mut beside = class();
    beside.meta.key = Key::cluster("beside");
    beside.controller_name = "example.org/beside".into();
    let mut far = gateway("infra", "far", vec![]);
    far.class = "beside".into();
    let mut theirs = route("theirs", &[]);
    theirs.parents = vec![parent("infra", "far")];
    let of = |targets| definition("shop", "d", 1, targets);
    let (r, t) = (target("HTTPRoute", "r"), target("HTTPRoute", "theirs"));
    let mut world = on_route().with(beside.clone()).with(far).with(theirs);
    // when its route is meant, first or alone, then it is for it to say
    for targets in [vec![t.clone()], vec![t.clone(), r.clone()]] {
        world.put(of(targets));
        assert_eq!(world.0.definition(&key("shop", "d")), None);
    }
    // when ours is meant first, then we say what becomes of both
    world.put(of(vec![r.clone(), t.clone()]));
    assert_eq!(status(&world, "d"), "False NotAttached");
    // when its class is gone, or leads to no Tyk, then its route is just one that is not ours
    world.put(of(vec![t]));
    beside.parameters = None;
    let changes = world.put(beside);
    assert!(changes.definitions.contains(&key("shop", "d")));
    assert_eq!(status(&world, "d"), "False NotAttached");
    world.gone(Kind::GatewayClass, "", "beside");
    assert_eq!(status(&world, "d"), "False NotAttached");
}

/// Both would speak otherwise, each of what it knows, for ever.
#[test]
fn a_route_of_two_installations_is_that_of_its_first_parent() {
    let mut beside = class();
    beside.meta.key = Key::cluster("beside");
    beside.controller_name = "example.org/beside".into();
    let mut far = gateway("infra", "far", vec![]);
    far.class = "beside".into();
    let shared = |gateways: [&str; 2]| {
        let mut object = route("r", &[]);
        object.parents = gateways.map(|name| parent("infra", name)).into();
        object
    };
    let mut world = on_route().with(beside).with(far).with(shared(["edge", "far"]));
    assert_eq!(status(&world, "d"), "True Attached");
    let changes = world.put(shared(["far", "edge"]));
    assert!(changes.definitions.contains(&key("shop", "d")));
    assert_eq!(world.0.definition(&key("shop", "d")), None);
    // a Gateway that is nobody's is passed over
    world.put(shared(["absent", "edge"]));
    assert_eq!(status(&world, "d"), "True Attached");
}

#[test]
fn definition_false_base_document_unresolved_and_the_route_keeps_its_apis() {
    let mut world = on_route();
    world.gone(Kind::ConfigMap, "shop", "docs");
    assert_eq!(status(&world, "d"), "False BaseDocumentUnresolved");
    assert_eq!(parent_said(&world), "False BaseDocumentUnresolved");
    assert_eq!(
        world.route("r").gateways[&key("infra", "edge")],
        Disposition::Keep
    );
    // never an open API instead
    assert!(world.route("r").apis.is_empty());
}

#[test]
fn definition_false_document_invalid_and_the_route_base_document_invalid() {
    let config = |document: Result<serde_json::Value, String>| ConfigMap {
        documents: [("api.json".to_owned(), document.map(Into::into))].into(),
        ..config_map("shop")
    };
    let definition = |change: fn(&mut super::super::objects::TykOasApiDefinition)| {
        let mut object = definition("shop", "d", 1, vec![target("HTTPRoute", "r")]);
        change(&mut object);
        on_route().with(object)
    };
    for (world, words) in [
        (
            definition(|d| d.config_map = None),
            "spec.tykOAS.configmapRef: missing",
        ),
        (
            definition(|d| d.config_map.as_mut().unwrap().key = None),
            "spec.tykOAS.configmapRef.keyName: missing",
        ),
        (
            definition(|d| d.config_map.as_mut().unwrap().key = Some("other".into())),
            "ConfigMap shop/docs has no key other",
        ),
        (
            definition(|d| d.config_map.as_mut().unwrap().namespace = Some("vault".into())),
            "spec.tykOAS.configmapRef.namespace",
        ),
        (
            definition(|d| d.problems.push(Problem::new("spec.tykOAS", "must be an object"))),
            "spec.tykOAS: must be an object",
        ),
        (
            definition(|d| d.route_owned.push("spec.customDomain".into())),
            "spec.customDomain: comes from the route",
        ),
        (
            on_route().with(config(Ok(json!({"openapi": "3.0.3"})))),
            "x-tyk-api-gateway",
        ),
        (
            on_route().with(config(Err("line 3: is not JSON".into()))),
            "line 3: is not JSON",
        ),
    ] {
        assert_eq!(status(&world, "d"), "False DocumentInvalid", "{words}");
        let message = &world.definition("shop", "d").condition.message;
        assert!(message.contains(words), "{message}");
        assert_eq!(parent_said(&world), "False BaseDocumentInvalid");
        let route = message_of_route(&world);
        assert!(
            route.contains(words) && route.contains("TykOasApiDefinition shop/d"),
            "{route}"
        );
        assert_eq!(
            world.route("r").gateways[&key("infra", "edge")],
            Disposition::Keep
        );
        assert!(world.route("r").apis.is_empty());
    }
}

fn message_of_route(world: &World) -> String {
    message(&world.parent("r").conditions, "Accepted").to_owned()
}

#[test]
fn definition_false_attachment_conflict_for_the_younger() {
    let mut world = on_route().with(definition("shop", "a", 2, vec![target("HTTPRoute", "r")]));
    assert_eq!(status(&world, "d"), "True Attached");
    assert_eq!(status(&world, "a"), "False AttachmentConflict");
    assert!(world.definition("shop", "a").condition.message.contains("shop/d"));
    // of one age: by name
    world.put(definition("shop", "a", 1, vec![target("HTTPRoute", "r")]));
    assert_eq!(status(&world, "a"), "True Attached");
    assert_eq!(status(&world, "d"), "False AttachmentConflict");
    // an invalid one does not let the next in: that would change how the API is protected
    let mut invalid = definition("shop", "a", 1, vec![target("HTTPRoute", "r")]);
    invalid.config_map = None;
    world.put(invalid);
    assert_eq!(status(&world, "a"), "False DocumentInvalid");
    assert_eq!(status(&world, "d"), "False AttachmentConflict");
    // and when it goes, the next applies
    world.gone(Kind::TykOasApiDefinition, "shop", "a");
    assert_eq!(status(&world, "d"), "True Attached");
    assert_eq!(parent_said(&world), "True Accepted");
}

#[test]
fn definition_false_unsupported_target() {
    let mut service = target("Service", "web");
    service.group = String::new();
    let mut group = target("HTTPRoute", "r");
    group.group = "example.org".into();
    for wrong in [service, group, target("GRPCRoute", "r")] {
        let world = on_route().with(definition("shop", "d", 1, vec![target("HTTPRoute", "r"), wrong]));
        assert_eq!(status(&world, "d"), "False UnsupportedTarget");
        let message = &world.definition("shop", "d").condition.message;
        assert!(message.starts_with("spec.targetRefs[1]: "), "{message}");
        // the good one is still served
        assert!(world.route("r").apis[0].base.is_some());
    }
}

#[test]
fn definition_unknown_gateway_api_unavailable() {
    let condition = super::unavailable("Gateway API on Tyk is off (--enable-tyk)");
    assert_eq!(
        said(std::slice::from_ref(&condition), "Accepted"),
        "Unknown GatewayAPIUnavailable"
    );
}

#[test]
fn a_definition_without_target_refs_is_another_operators_business() {
    let world = World::new().with(definition("shop", "d", 1, vec![]));
    assert!(world.0.definition(&key("shop", "d")).is_none());
}

#[test]
fn a_gateways_definition_applies_to_routes_without_their_own() {
    let gateways = definition("infra", "g", 1, vec![target("Gateway", "edge")]);
    let mut world = World::new()
        .with(config_map("infra"))
        .with(config_map("shop"))
        .with(gateways)
        .with(route("r", &["a.example.com"]))
        .with(route("other", &["b.example.com"]));
    let base = |world: &World, name: &str| {
        world.route(name).apis[0]
            .base
            .as_ref()
            .unwrap()
            .definition
            .clone()
    };
    assert_eq!(base(&world, "r"), key("infra", "g"));
    // a route's own replaces it whole, for that route
    let changes = world.put(definition("shop", "d", 2, vec![target("HTTPRoute", "r")]));
    assert!(!changes.routes.contains(&key("shop", "other")));
    assert_eq!(base(&world, "r"), key("shop", "d"));
    assert_eq!(base(&world, "other"), key("infra", "g"));
    // and that is no conflict
    assert_eq!(status(&world, "d"), "True Attached");
    let own = &world.definition("infra", "g").condition;
    assert_eq!(said(std::slice::from_ref(own), "Accepted"), "True Attached");
}

#[test]
fn a_definition_that_collides_with_its_route_is_an_attachment_conflict() {
    // given a definition with an operation that has the name of the route's own
    let colliding = ConfigMap {
        documents: [("api.json".to_owned(), Ok(colliding().into()))].into(),
        ..config_map("shop")
    };
    let mut world = on_route().with(colliding);
    // then the route keeps what it had, and no open API comes in its place
    assert_eq!(parent_said(&world), "False AttachmentConflict");
    assert!(
        message_of_route(&world).contains("GET /x"),
        "{}",
        message_of_route(&world)
    );
    assert_eq!(
        world.route("r").gateways[&key("infra", "edge")],
        Disposition::Keep
    );
    assert!(world.route("r").apis.is_empty());
    // and the definition is the one that counts
    assert_eq!(status(&world, "d"), "True Attached");
    world.put(config_map("shop"));
    assert_eq!(parent_said(&world), "True Accepted");
}
