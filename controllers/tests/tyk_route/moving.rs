//! Routes that move from one Tyk to another, and routes in two.

use routewright::tyk::client::TykErrorClass;
use serde_json::json;

use super::{
    bench::*,
    tyks::{Where, everywhere},
};

everywhere!(
    a_class_that_names_another_context_moves_its_routes_and_leaves_nothing_behind,
    what_does_not_stand_at_its_new_place_is_not_taken_from_its_old_one,
    a_context_that_leads_elsewhere_blocks_the_cleanup_and_nothing_else,
    taking_a_place_out_of_the_annotation_leaves_what_stands_there,
    gateways_of_two_classes_are_two_tyks_each_with_its_own_trouble,
    another_context_of_the_same_tyk_moves_nothing,
);

async fn repoint(bench: &Bench, context: &str) {
    let change = json!({"spec": {"parametersRef": {"name": context}}});
    bench.server.edit("GatewayClass", "", "tyk", change);
}

async fn a_class_that_names_another_context_moves_its_routes_and_leaves_nothing_behind(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
    bench.add_context("second", OTHER);
    repoint(&bench, "second").await;
    bench.settle().await;
    assert_eq!(
        (bench.tyk.ids(URL), bench.tyk.ids(OTHER)),
        (vec![], ids(&["/a", "/b"]))
    );
    assert_eq!(bench.accepted(), "True/Accepted: 2 APIs");
    // and what is written comes before what is deleted
    let writes = bench.tyk.writes();
    assert_eq!(
        writes.iter().position(|w| w.starts_with("DELETE")),
        Some(2),
        "{writes:?}"
    );
    assert!(bench.annotation().unwrap().starts_with("tyk/second@"));
    assert_eq!(bench.events(), NOTHING);
}

async fn what_does_not_stand_at_its_new_place_is_not_taken_from_its_old_one(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    bench.add_context("second", OTHER);
    bench.tyk.breaks(Some(TykErrorClass::Unreachable));
    repoint(&bench, "second").await;
    bench.settle().await;
    assert!(bench.accepted().starts_with("False/TranslationFailed"));
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
    bench.tyk.breaks(None);
    bench.retry().await;
    assert_eq!((bench.tyk.ids(URL), bench.tyk.ids(OTHER)), (vec![], ids(&["/a"])));
}

async fn a_context_that_leads_elsewhere_blocks_the_cleanup_and_nothing_else(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
    let old = bench.annotation().unwrap();
    bench.server.edit(
        "OperatorContext",
        "tyk",
        "main",
        json!({"spec": {"env": {"url": OTHER}}}),
    );
    bench.settle().await;
    // then the route lives at its new place, the old one is remembered, and one event says what blocks
    assert_eq!(bench.accepted(), "True/Accepted: 2 APIs");
    assert_eq!(
        (bench.tyk.ids(URL), bench.tyk.ids(OTHER)),
        (ids(&["/a", "/b"]), ids(&["/a", "/b"]))
    );
    assert!(bench.annotation().unwrap().contains(&old));
    bench.retry().await;
    let blocked = bench.event("CleanupBlocked");
    assert_eq!(blocked.len(), 1, "{:?}", bench.events());
    assert!(blocked[0].contains("another Tyk"), "{blocked:?}");
    // when another context of that name cannot be had but the old way is back, then it is cleaned
    bench.add_context("second", OTHER);
    bench.server.edit(
        "OperatorContext",
        "tyk",
        "main",
        json!({"spec": {"env": {"url": URL}}}),
    );
    repoint(&bench, "second").await;
    bench.retry().await;
    assert_eq!(
        (bench.tyk.ids(URL), bench.tyk.ids(OTHER)),
        (vec![], ids(&["/a", "/b"]))
    );
    assert_eq!(bench.event("CleanupBlocked").len(), 1);
}

async fn taking_a_place_out_of_the_annotation_leaves_what_stands_there(place: Where) {
    // given a route whose old Tyk cannot be reached any more
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    bench.server.edit(
        "OperatorContext",
        "tyk",
        "main",
        json!({"spec": {"env": {"url": OTHER}}}),
    );
    bench.settle().await;
    // when somebody takes the place that the event names out of the annotation, as it says
    let old = remembers(&["/a"]).unwrap();
    let text = bench.annotation().unwrap();
    let rest: Vec<&str> = text.split(';').filter(|part| *part != old).collect();
    assert_eq!(rest.len(), 1, "{text}");
    bench.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": rest[0]}}}));
    bench.settle().await;
    // then nothing is in the way of its deletion
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!(bench.route(), None);
    assert_eq!((bench.tyk.ids(URL), bench.tyk.ids(OTHER)), (ids(&["/a"]), vec![]));
}

async fn gateways_of_two_classes_are_two_tyks_each_with_its_own_trouble(place: Where) {
    let mut bench = Bench::at(&place).await;
    for object in [
        bench.context("second", OTHER),
        class("two", "second"),
        gateway("far", "two"),
    ] {
        bench.server.create(object);
    }
    let mut object = route(&["/a"]);
    object["spec"]["parentRefs"] =
        json!([{"name": "edge", "namespace": "infra"}, {"name": "far", "namespace": "infra"}]);
    bench.server.create(object);
    bench.settle().await;
    assert_eq!((bench.tyk.ids(URL).len(), bench.tyk.ids(OTHER).len()), (1, 1));
    assert_eq!(
        (bench.said("Accepted", 0), bench.said("Accepted", 1)),
        ("True/Accepted: 1 API".into(), "True/Accepted: 1 API".into())
    );
    // when one id has trouble, then its Gateway alone says so
    let far = bench.tyk.ids(OTHER).remove(0);
    bench.tyk.refuse(OTHER, &far);
    bench.server.delete("Service", "shop", "web");
    bench.settle().await;
    assert!(bench.said("Accepted", 0).starts_with("True"));
    assert!(bench.said("Accepted", 1).starts_with("False/TranslationFailed"));
    // and deletion takes both
    bench.tyk.no_trouble();
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!(
        (bench.route(), bench.tyk.ids(URL), bench.tyk.ids(OTHER)),
        (None, vec![], vec![])
    );
}

async fn another_context_of_the_same_tyk_moves_nothing(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    bench.add_context("second", URL);
    // its tags are others, so the document is written again; but it is the same API in the same Tyk
    repoint(&bench, "second").await;
    bench.server.delete("OperatorContext", "tyk", "main");
    bench.settle().await;
    assert_eq!(bench.tyk.writes(), [format!("POST {}", id("/a"))]);
    assert!(bench.annotation().unwrap().starts_with("tyk/second@"));
    assert_eq!(bench.events(), NOTHING);
}
