//! Whatever takes a route's finalizer and memory away, its APIs go with it, and nobody else's: told by the whole operator
//! with its own clients and actors before the stand-in.

use routewright::tyk::translate::Owner;
use routewright_tyk_double::Fault;
use serde_json::{Value, json};

use super::{
    bench::{id, paths, route, route_named},
    places::Kind,
    real::Real,
};

/// As somebody writes it who has a whole object at hand and knows of nobody else: no finalizer, no annotation, no status.
fn overwrite(real: &Real, mut object: Value) {
    object["metadata"]["resourceVersion"] = real.route().unwrap()["metadata"]["resourceVersion"].clone();
    real.server.update(object);
}

/// Nothing can be deleted in Tyk until it is said otherwise.
fn hold(real: &Real) {
    let apis = match real.kind {
        Kind::Gateway | Kind::Tyk(_) => "/tyk/apis",
        Kind::Dashboard => "/api/apis",
    };
    let fault = Fault::on("DELETE", apis).times(100_000).status(503, "later");
    real.tyk.handle().inject(fault);
}

/// Documents that are not ours: of another cluster's route of the same name, and of nobody. To be left to the last byte.
fn foreign(real: &Real) -> Vec<(String, Value)> {
    let mut theirs = real.tyk.files()[&id("/a")].clone();
    let place = |document: &mut Value, n: u8| {
        let id = format!("gwapi-{n:020x}");
        document["x-tyk-api-gateway"]["info"]["id"] = json!(id);
        document["x-tyk-api-gateway"]["server"]["listenPath"]["value"] = json!(format!("/theirs-{n}"));
        id
    };
    let one = place(&mut theirs, 1);
    theirs["x-routewright-owner"]["cluster"] = json!("cluster-2");
    real.tyk.put(theirs.clone());
    let two = place(&mut theirs, 2);
    theirs.as_object_mut().unwrap().remove("x-routewright-owner");
    real.tyk.put(theirs);
    let files = real.tyk.files();
    [one, two].map(|id| (id.clone(), files[&id].clone())).into()
}

fn untouched(real: &Real, theirs: &[(String, Value)]) {
    let files = real.tyk.files();
    for (id, document) in theirs {
        assert_eq!(files.get(id), Some(document), "{:?}", real.kind);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_is_overwritten_while_it_is_deleted_leaves_nothing_behind() {
    for kind in Kind::all() {
        let mut real = Real::begin(
            &kind,
            [route(&["/a", "/b"]), route_named("s", "b.example.com", &["/"])],
        )
        .await;
        real.until("both APIs", |r| r.loaded().len() == 3).await;
        let theirs = foreign(&real);
        // given a deletion that Tyk holds up
        hold(&real);
        real.server.delete("HTTPRoute", "shop", "r");
        real.until("an event", |r| r.event("DeletionFailed") > 0).await;
        // when it is overwritten, then the API server removes it at once
        overwrite(&real, route(&["/a", "/b"]));
        assert_eq!(real.route(), None);
        real.tyk.handle().clear_faults();
        // then its APIs go all the same, and the other route's and what is not ours stands
        real.until("the end", |r| r.loaded().len() == 3).await;
        real.quiet().await;
        assert_eq!(real.loaded().len(), 3, "{kind:?}: {:?}", real.loaded());
        untouched(&real, &theirs);
        real.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_created_again_at_once_has_its_apis_and_keeps_them() {
    for kind in Kind::all() {
        for held in [true, false] {
            let mut real = Real::begin(&kind, [route(&["/a", "/b"])]).await;
            real.until("both APIs", |r| r.stands(&["/a", "/b"])).await;
            // given one that went without its APIs
            if held {
                hold(&real);
                real.server.delete("HTTPRoute", "shop", "r");
                real.until("an event", |r| r.event("DeletionFailed") > 0).await;
                overwrite(&real, route(&["/a", "/b"]));
            } else {
                real.edit(json!({"metadata": {"finalizers": null, "annotations": null}}));
                real.server.delete("HTTPRoute", "shop", "r");
            }
            // when one of the same name comes at once, and wants one of two
            real.server.create(route(&["/b", "/c"]));
            real.tyk.handle().clear_faults();
            real.until("what it wants", |r| r.stands(&["/b", "/c"])).await;
            real.quiet().await;
            // then so it stays, and all of it is its own
            assert!(real.stands(&["/b", "/c"]), "{kind:?} {held}: {:?}", real.loaded());
            let uid = real.route().unwrap()["metadata"]["uid"].clone();
            for document in real.tyk.files().values() {
                assert_eq!(Owner::of(document).unwrap().uid, uid, "{kind:?} {held}");
            }
            real.kill();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_overwritten_with_other_paths_keeps_none_of_the_old_ones() {
    for kind in Kind::all() {
        let mut real = Real::begin(&kind, [route(&["/a", "/b"])]).await;
        real.until("both APIs", |r| r.stands(&["/a", "/b"])).await;
        overwrite(&real, route(&["/b", "/c"]));
        real.until("the new ones", |r| r.stands(&["/b", "/c"])).await;
        // and what nobody wants any more
        overwrite(&real, {
            let mut none = route(&["/b"]);
            none["spec"]["parentRefs"] = json!([{"name": "far", "namespace": "infra"}]);
            none
        });
        real.until("none", |r| r.loaded().is_empty()).await;
        real.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_that_is_taken_away_while_the_route_goes_takes_nothing_along() {
    for kind in Kind::all() {
        let mut real = Real::begin(&kind, [route(&["/a", "/b"])]).await;
        real.until("both APIs", |r| r.stands(&["/a", "/b"])).await;
        hold(&real);
        real.server.delete("HTTPRoute", "shop", "r");
        real.until("an event", |r| r.event("DeletionFailed") > 0).await;
        real.edit(json!({"metadata": {"annotations": null}}));
        real.tyk.handle().clear_faults();
        real.until("the end", |r| r.route().is_none() && r.loaded().is_empty())
            .await;
        real.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happened_while_no_operator_ran_is_found_by_the_next_one() {
    for kind in Kind::all() {
        let routes = [
            route(&["/a", "/b"]),
            route_named("s", "b.example.com", &["/", "/x"]),
        ];
        let mut real = Real::begin(&kind, routes).await;
        real.until("all APIs", |r| r.loaded().len() == 4).await;
        let theirs = foreign(&real);
        real.kill();
        // given a route that is gone, and one that is another now, and neither says what it had
        for name in ["r", "s"] {
            real.server.edit(
                "HTTPRoute",
                "shop",
                name,
                json!({"metadata": {"finalizers": null, "annotations": null}}),
            );
        }
        real.server.delete("HTTPRoute", "shop", "r");
        real.server.edit("HTTPRoute", "shop", "s", paths(&["/x"]));
        // when an operator starts
        real.start();
        // then what nobody wants goes, and what is wanted or not ours stands
        real.until("one of ours", |r| r.loaded().len() == 3).await;
        real.quiet().await;
        untouched(&real, &theirs);
        let ours: Vec<String> = real
            .loaded()
            .into_iter()
            .filter(|id| !theirs.iter().any(|(other, _)| other == id))
            .collect();
        let document = &real.tyk.files()[&ours[0]];
        assert_eq!(Owner::of(document).unwrap().route.name, "s", "{kind:?}");
        // and a route that is deleted with its finalizer, but without its memory, and an operator that knows nothing
        real.kill();
        real.server.delete("HTTPRoute", "shop", "s");
        real.server.edit(
            "HTTPRoute",
            "shop",
            "s",
            json!({"metadata": {"annotations": null}}),
        );
        real.start();
        real.until("the end", |r| {
            r.server.get("HTTPRoute", "shop", "s").is_none() && r.loaded().len() == 2
        })
        .await;
        untouched(&real, &theirs);
        real.kill();
    }
}
