//! Deletion: in every order, with Tyk away, with nothing that leads there any more, and with what is not ours.

use routewright::tyk::{
    client::TykErrorClass,
    objects::Key,
    translate::{Owner, TykApi, stamp},
};
use serde_json::json;

use super::{
    bench::*,
    tyks::{Where, everywhere},
};

everywhere!(
    deleting_a_route_deletes_its_apis_and_then_removes_the_finalizer,
    if_tyk_is_unreachable_the_finalizer_stays_it_is_an_event_and_it_is_tried_again,
    whatever_goes_before_the_route_it_goes_too,
    without_a_way_to_tyk_the_cleanup_is_blocked_until_there_is_one,
    no_finalizer_sticks_once_tyk_answers_not_found,
    a_finalizer_without_a_memory_holds_nothing_back,
    an_annotation_that_names_the_apis_of_another_route_does_them_no_harm,
    an_annotation_that_was_taken_away_is_written_again,
    a_route_that_is_created_again_owns_what_the_first_one_left,
    other_finalizers_stay_and_hold_what_they_hold,
);

async fn deleted(bench: &mut Bench) {
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
}

async fn deleting_a_route_deletes_its_apis_and_then_removes_the_finalizer(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
    bench.server.delete("HTTPRoute", "shop", "r");
    assert_eq!(bench.settle().await, ["PATCH(merge) httproutes r -> 200"]);
    assert_eq!(bench.route(), None);
    assert_eq!(bench.tyk.ids(URL), NOTHING);
    assert_eq!(bench.events(), NOTHING);
}

async fn if_tyk_is_unreachable_the_finalizer_stays_it_is_an_event_and_it_is_tried_again(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    bench.tyk.breaks(Some(TykErrorClass::Unreachable));
    deleted(&mut bench).await;
    // then the route stays Terminating, and one event says why
    assert!(bench.has_finalizer());
    assert!(bench.route().unwrap()["metadata"]["deletionTimestamp"].is_string());
    for _ in 0..3 {
        assert_eq!(bench.retry().await, NOTHING);
    }
    assert_eq!(bench.event("DeletionFailed").len(), 1, "{:?}", bench.events());
    // when Tyk answers again, then it goes
    bench.tyk.breaks(None);
    bench.retry().await;
    assert_eq!((bench.route(), bench.tyk.ids(URL)), (None, vec![]));
}

async fn whatever_goes_before_the_route_it_goes_too(place: Where) {
    // class and Gateway are not needed
    for order in [
        vec![("GatewayClass", "", "tyk")],
        vec![("Gateway", "infra", "edge")],
        vec![("Gateway", "infra", "edge"), ("GatewayClass", "", "tyk")],
        vec![("Service", "shop", "web"), ("Gateway", "infra", "edge")],
    ] {
        for together in [true, false] {
            let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
            for (kind, namespace, name) in &order {
                bench.server.delete(kind, namespace, name);
                if !together {
                    bench.settle().await;
                }
            }
            deleted(&mut bench).await;
            assert_eq!(bench.route(), None, "{order:?} {together}: {:?}", bench.events());
            assert_eq!(bench.tyk.ids(URL), NOTHING, "{order:?}");
        }
    }
}

async fn without_a_way_to_tyk_the_cleanup_is_blocked_until_there_is_one(place: Where) {
    for (kind, name) in [("OperatorContext", "main"), ("Secret", "credential")] {
        for first in [true, false] {
            let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
            let back = match kind {
                "Secret" => secret(name),
                _ => bench.context(name, URL),
            };
            if first {
                bench.server.delete(kind, "tyk", name);
                bench.settle().await;
                bench.server.delete("HTTPRoute", "shop", "r");
            } else {
                bench.server.delete("HTTPRoute", "shop", "r");
                bench.server.delete(kind, "tyk", name);
            }
            bench.settle().await;
            // then the finalizer stays, and one event names context and count
            assert!(bench.has_finalizer(), "{kind}");
            bench.retry().await;
            let blocked = bench.event("CleanupBlocked");
            assert_eq!(blocked.len(), 1, "{:?}", bench.events());
            assert!(
                blocked[0].contains("2 APIs") && blocked[0].contains("OperatorContext tyk/main"),
                "{blocked:?}"
            );
            // when it is back, then the route goes at the next look
            bench.server.create(back.clone());
            bench.retry().await;
            assert_eq!((bench.route(), bench.tyk.ids(URL)), (None, vec![]), "{kind}");
        }
    }
}

async fn no_finalizer_sticks_once_tyk_answers_not_found(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    // given a Tyk that lost everything, class and Gateway gone
    bench.tyk.lose(URL);
    bench.server.delete("Gateway", "infra", "edge");
    bench.server.delete("GatewayClass", "", "tyk");
    deleted(&mut bench).await;
    assert_eq!(bench.route(), None);
}

async fn a_finalizer_without_a_memory_holds_nothing_back(place: Where) {
    for text in [json!(null), json!(""), json!("nonsense;=;{}")] {
        let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
        bench.server.edit(
            "HTTPRoute",
            "shop",
            "r",
            json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": text}}}),
        );
        deleted(&mut bench).await;
        assert_eq!(bench.route(), None, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_of_another_owner_is_never_touched_whatever_the_annotation_says() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    let other = Owner {
        cluster: "cluster-2".into(),
        controller: "routewright.dev/tyk".into(),
        route: Key::new("shop", "r"),
        uid: "u".into(),
    };
    let document = |id: &str, owner: &Owner| {
        let api = TykApi {
            id: id.to_owned(),
            document: json!({"info": {"title": id}}),
        };
        stamp(api, owner).document
    };
    let (theirs, nobodys) = ("gwapi-00000000000000000001", "gwapi-00000000000000000002");
    bench.tyk.put(URL, theirs, document(theirs, &other));
    bench.tyk.put(URL, nobodys, json!({"info": {"title": "by hand"}}));
    let before = (
        bench.tyk.at(URL)[theirs].clone(),
        bench.tyk.at(URL)[nobodys].clone(),
    );
    // when somebody writes these ids into the annotation
    let text = bench.annotation().unwrap();
    let place = text.split('=').next().unwrap().to_owned();
    let edited = format!("{text};{place}=00000000000000000001,00000000000000000002");
    bench.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": edited}}}));
    bench.settle().await;
    // then nothing happens to them, an event says so, and they are forgotten
    assert_eq!(
        (&bench.tyk.at(URL)[theirs], &bench.tyk.at(URL)[nobodys]),
        (&before.0, &before.1)
    );
    assert_eq!(bench.annotation(), bench.remembers(&["/a"]));
    let told = bench.event("DeletionFailed");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("2 APIs") && told[0].contains(theirs), "{told:?}");
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    // and the same while the route is deleted: it is told, and holds nothing back
    bench.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": edited}}}));
    deleted(&mut bench).await;
    assert_eq!(bench.route(), None);
    assert_eq!(bench.tyk.ids(URL), [theirs, nobodys]);
    assert_eq!(
        (&bench.tyk.at(URL)[theirs], &bench.tyk.at(URL)[nobodys]),
        (&before.0, &before.1)
    );
    assert_eq!(bench.event("DeletionFailed").len(), 2, "{:?}", bench.events());
}

async fn an_annotation_that_names_the_apis_of_another_route_does_them_no_harm(place: Where) {
    let mut bench = Bench::at_with(
        &place,
        [route(&["/a"]), route_named("s", "b.example.com", &["/"])],
    )
    .await;
    let all = bench.tyk.ids(URL);
    let other = bench.server.get("HTTPRoute", "shop", "s").unwrap();
    let stolen = other["metadata"]["annotations"]["routewright.dev/tyk-apis"]
        .as_str()
        .unwrap()
        .to_owned();
    bench.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": stolen}}}));
    bench.settle().await;
    assert_eq!(bench.tyk.ids(URL), all);
    assert_eq!(bench.annotation(), bench.remembers(&["/a"]));
    assert_eq!(bench.tyk.writes(), NOTHING);
}

async fn an_annotation_that_was_taken_away_is_written_again(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    bench.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": null}, "finalizers": null}}));
    assert_eq!(bench.settle().await, ["PATCH(merge) httproutes r -> 200"]);
    assert_eq!(
        (bench.annotation(), bench.has_finalizer()),
        (bench.remembers(&["/a"]), true)
    );
    assert_eq!(bench.tyk.writes(), NOTHING);
}

async fn a_route_that_is_created_again_owns_what_the_first_one_left(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    // given a route whose finalizer was taken by force
    bench.edit(json!({"metadata": {"finalizers": null}}));
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
    // when one of the same name comes, then the API is its own, with its uid
    bench.server.create(route(&["/a"]));
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    let owner = Owner::of(&bench.tyk.at(URL)[&id("/a")]).unwrap();
    assert_eq!(owner.uid, bench.route().unwrap()["metadata"]["uid"]);
    deleted(&mut bench).await;
    assert_eq!((bench.route(), bench.tyk.ids(URL)), (None, vec![]));
}

async fn other_finalizers_stay_and_hold_what_they_hold(place: Where) {
    let mut object = route(&["/a"]);
    object["metadata"]["finalizers"] = json!(["example.org/theirs"]);
    let mut bench = Bench::at_with(&place, [object]).await;
    deleted(&mut bench).await;
    assert_eq!(
        bench.route().unwrap()["metadata"]["finalizers"],
        json!(["example.org/theirs"])
    );
    assert_eq!(bench.tyk.ids(URL), NOTHING);
    // and what waits for somebody else is left alone
    bench.restart();
    assert_eq!(bench.settle().await, NOTHING);
}
