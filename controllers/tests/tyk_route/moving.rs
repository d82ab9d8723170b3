//! Routes that move from one Tyk to another, and routes in two.

use routewright::tyk::{client::TykErrorClass, translate::Owner};
use serde_json::{Value, json};

use super::{
    bench::*,
    tyks::{Where, everywhere},
};

everywhere!(
    a_host_and_path_that_go_from_one_route_to_another_are_served_by_the_other_one,
    a_hostname_that_goes_from_one_route_to_another_takes_all_its_paths_along,
    a_class_that_names_another_context_moves_its_routes_and_leaves_nothing_behind,
    what_does_not_stand_at_its_new_place_is_not_taken_from_its_old_one,
    a_context_that_leads_elsewhere_blocks_the_cleanup_and_nothing_else,
    taking_a_place_out_of_the_annotation_leaves_what_stands_there,
    a_tyk_that_never_answered_is_not_remembered_once_the_context_leads_elsewhere,
    gateways_of_two_classes_are_two_tyks_each_with_its_own_trouble,
    another_context_of_the_same_tyk_moves_nothing,
    another_name_of_the_same_tyk_takes_nothing_away,
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

async fn a_tyk_that_never_answered_is_not_remembered_once_the_context_leads_elsewhere(place: Where) {
    // given a route that stands, and a context whose url is mistyped for a while: nothing is ever sent there
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    let point = |bench: &Bench, url: &str| {
        let change = json!({"spec": {"env": {"url": url}}});
        bench.server.edit("OperatorContext", "tyk", "main", change);
    };
    bench.tyk.breaks(Some(TykErrorClass::Unreachable));
    point(&bench, OTHER);
    bench.settle().await;
    assert!(bench.accepted().starts_with("False/TranslationFailed"));
    // when it is mended
    bench.tyk.breaks(None);
    point(&bench, URL);
    bench.retry().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    // then nothing is left of the mistake, and the route can be deleted
    assert_eq!(bench.annotation(), bench.remembers(&["/a"]));
    assert_eq!(bench.event("CleanupBlocked"), NOTHING);
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!((bench.route(), bench.tyk.ids(URL)), (None, vec![]));
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
    let old = bench.remembers(&["/a"]).unwrap();
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

/// Route `shop/<name>` as Tyk and status show it: its ids in the first Tyk, and its Accepted.
fn other(bench: &Bench, name: &str) -> (Vec<String>, String) {
    let route = bench.server.get("HTTPRoute", "shop", name).unwrap();
    let documents = bench.tyk.at(URL);
    let own = documents
        .iter()
        .filter(|(_, document)| Owner::of(document).unwrap().route.name == name);
    let conditions = &route["status"]["parents"][0]["conditions"];
    let accepted = conditions
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "Accepted");
    (
        own.map(|(id, _)| id.clone()).collect(),
        accepted.map_or("-".to_owned(), |c| c["message"].as_str().unwrap().to_owned()),
    )
}

/// Where a document listens.
fn place(document: &Value) -> (String, String) {
    let server = &document["x-tyk-api-gateway"]["server"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        text(&server["customDomain"]["name"]),
        text(&server["listenPath"]["value"]),
    )
}

async fn a_host_and_path_that_go_from_one_route_to_another_are_served_by_the_other_one(place: Where) {
    // The one that takes over is looked at before or after the one that gives up.
    for taker in ["a-taker", "z-taker"] {
        let mut bench = Bench::at_with(
            &place,
            [route(&["/x", "/y"]), route_named(taker, "a.example.com", &["/z"])],
        )
        .await;
        // when one edit takes a path from one route, and another gives it to the other
        bench.edit(paths(&["/y"]));
        let rules = paths(&["/z", "/x"]);
        bench.server.edit("HTTPRoute", "shop", taker, rules);
        bench.settle().await;
        bench.settle().await;
        // then each place is served once, under the path that was asked for, by the route that has it now
        let mut places: Vec<_> = bench.tyk.at(URL).values().map(self::place).collect();
        places.sort();
        let wanted = ["/x", "/y", "/z"].map(|path| ("a.example.com".to_owned(), path.to_owned()));
        assert_eq!(places, wanted, "{taker}");
        let (ids, accepted) = other(&bench, taker);
        assert_eq!((ids.len(), accepted.as_str()), (2, "2 APIs"), "{taker}");
        assert_eq!(bench.accepted(), "True/Accepted: 1 API", "{taker}");
        assert_eq!(bench.event("DriftMended"), NOTHING, "{taker}");
    }
}

async fn a_hostname_that_goes_from_one_route_to_another_takes_all_its_paths_along(place: Where) {
    for taker in ["a-taker", "z-taker"] {
        let mut bench = Bench::at_with(
            &place,
            [
                route(&["/x", "/y"]),
                route_named(taker, "b.example.com", &["/x", "/y"]),
            ],
        )
        .await;
        // when two routes exchange their hostnames
        bench.edit(json!({"spec": {"hostnames": ["b.example.com"]}}));
        let hosts = json!({"spec": {"hostnames": ["a.example.com"]}});
        bench.server.edit("HTTPRoute", "shop", taker, hosts);
        bench.settle().await;
        bench.settle().await;
        // then all four places are served, each by the route that names it now
        let documents = bench.tyk.at(URL);
        let mut places: Vec<_> = documents
            .values()
            .map(|document| {
                let (host, path) = self::place(document);
                (host, path, Owner::of(document).unwrap().route.name)
            })
            .collect();
        places.sort();
        let wanted = [
            ("a", "/x", taker),
            ("a", "/y", taker),
            ("b", "/x", "r"),
            ("b", "/y", "r"),
        ];
        let wanted = wanted
            .map(|(host, path, route)| (format!("{host}.example.com"), path.to_owned(), route.to_owned()));
        assert_eq!(places, wanted, "{taker}");
        assert_eq!(other(&bench, taker).1, "2 APIs", "{taker}");
        assert_eq!(bench.accepted(), "True/Accepted: 2 APIs", "{taker}");
    }
}

/// A gateway of the open-source kind, in memory and over HTTP.
macro_rules! open_source {
    ($($story:ident),* $(,)?) => {
        mod of_open_source_in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $story() {
                super::$story(crate::tyks::Where::Memory).await;
            })*
        }
        mod of_open_source_in_a_gateway {
            $(#[tokio::test]
            async fn $story() {
                super::$story(crate::tyks::Where::Http(crate::places::Kind::Gateway)).await;
            })*
        }
    };
}
open_source!(
    a_context_with_another_organisation_leads_to_the_same_gateway,
    a_class_that_names_a_context_of_another_organisation_takes_nothing_away,
);

/// What came of another organisation: the API stands, it was written once more, and nothing blocks.
async fn stands_rewritten(bench: &mut Bench, context: &str) {
    for _ in 0..2 {
        bench.settle().await;
        assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
        assert_eq!(bench.accepted(), "True/Accepted: 1 API");
        let annotation = bench.annotation().unwrap();
        assert!(
            annotation.starts_with(&format!("tyk/{context}@")) && !annotation.contains(';'),
            "{annotation}"
        );
    }
    assert_eq!(bench.tyk.writes(), [format!("POST {}", id("/a"))]);
    assert_eq!(bench.events(), NOTHING);
}

async fn a_context_with_another_organisation_leads_to_the_same_gateway(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    let other = json!({"spec": {"env": {"org": "o2"}}});
    bench.server.edit("OperatorContext", "tyk", "main", other);
    stands_rewritten(&mut bench, "main").await;
}

async fn a_class_that_names_a_context_of_another_organisation_takes_nothing_away(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    bench.add_context("second", URL);
    let other = json!({"spec": {"env": {"org": "o2"}}});
    bench.server.edit("OperatorContext", "tyk", "second", other);
    repoint(&bench, "second").await;
    stands_rewritten(&mut bench, "second").await;
}

async fn another_name_of_the_same_tyk_takes_nothing_away(place: Where) {
    // given routes in a Tyk, and a second context that reaches the same one by another name
    let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
    if !bench.tyk.alias(URL, OTHER) {
        return;
    }
    bench.add_context("second", OTHER);
    // when the class names that one
    repoint(&bench, "second").await;
    bench.settle().await;
    // then the APIs stand, for the route is there and said to be served
    assert_eq!(bench.accepted(), "True/Accepted: 2 APIs");
    assert_eq!(bench.tyk.ids(URL), ids(&["/a", "/b"]));
    // and they go with it
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!((bench.route(), bench.tyk.ids(URL)), (None, vec![]));
}
