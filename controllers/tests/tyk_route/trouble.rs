//! Tyk says no, or something else than was asked: what is said, when it is tried again, and that one API's trouble is
//! nobody else's.

use reconcile_kit::{ErrorClass, Outcome};
use routewright::tyk::{
    client::{TykError, TykErrorClass},
    sync::Trouble,
};
use serde_json::json;

use super::{
    bench::*,
    tyks::{Where, everywhere},
};

everywhere!(
    what_cannot_be_deleted_is_an_event_and_does_not_touch_status,
    a_certificate_goes_into_the_store_before_the_api_that_names_it_and_stays_there,
    cert_upload_failed_is_an_event_and_the_api_is_written_all_the_same,
);

#[tokio::test(start_paused = true)]
async fn translation_failed_gives_the_error_and_one_write_says_it_however_often_it_is_tried() {
    let mut bench = Bench::new().await;
    bench.tyk.breaks(Some(TykErrorClass::Unreachable));
    bench.server.create(route(&["/a", "/b"]));
    // then status says it, and nothing is remembered where nobody has answered yet
    const STATUS: &str = "PATCH(merge) httproutes/status r -> 200";
    assert_eq!(bench.settle().await, [STATUS]);
    assert!(!bench.has_finalizer() && bench.annotation().is_none());
    let said = bench.accepted();
    assert!(
        said.contains("path /a: OperatorContext tyk/main: PUT /tyk/apis: no answer; and 1 more"),
        "{said}"
    );
    // then it is tried again, ever less often, and written no second time
    let mut waits = Vec::new();
    for _ in 0..12 {
        waits.push(bench.last.retry().unwrap());
        assert_eq!(bench.retry().await, NOTHING);
    }
    assert!(
        waits[0].as_millis() <= 2_300 && waits[11].as_secs() >= 250,
        "{waits:?}"
    );
    // when Tyk is back
    bench.tyk.breaks(None);
    assert_eq!(bench.retry().await, ["PATCH(merge) httproutes r -> 200", STATUS]);
    assert_eq!(
        (bench.accepted().as_str(), bench.last.clone()),
        ("True/Accepted: 2 APIs", Outcome::Done)
    );
}

#[tokio::test(start_paused = true)]
async fn trouble_of_one_api_is_said_of_its_gateway_and_the_others_stand() {
    let mut bench = Bench::new().await;
    bench
        .tyk
        .trouble(&id("/b"), Trouble::Renamed { path: "/b-x".into() });
    bench.server.create(route(&["/a", "/b"]));
    bench.settle().await;
    assert!(
        bench.accepted().contains("Tyk serves it under /b-x"),
        "{}",
        bench.accepted()
    );
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
    assert!(matches!(
        bench.last,
        Outcome::Failed {
            class: ErrorClass::Foreign,
            ..
        }
    ));
    // when the other API is gone
    bench.tyk.no_trouble();
    bench.retry().await;
    assert_eq!(bench.accepted(), "True/Accepted: 2 APIs");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_taken_is_not_overwritten_and_its_owner_is_named() {
    let mut bench = Bench::new().await;
    bench
        .tyk
        .put(URL, &id("/a"), json!({"info": {"title": "by hand"}}));
    bench.server.create(route(&["/a"]));
    bench.settle().await;
    let said = bench.accepted();
    assert!(
        said.contains("is taken by an API of nobody that signed it"),
        "{said}"
    );
    assert_eq!(bench.tyk.at(URL)[&id("/a")]["info"]["title"], "by hand");
    // and when the route goes, it goes without it
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!(bench.route(), None);
    assert_eq!(bench.tyk.at(URL)[&id("/a")]["info"]["title"], "by hand");
}

async fn what_cannot_be_deleted_is_an_event_and_does_not_touch_status(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
    bench.tyk.breaks(Some(TykErrorClass::Failing));
    bench.edit(paths(&["/a"]));
    bench.settle().await;
    // the API that stays is as it was, so it stands; the one that goes is remembered
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    assert_eq!(bench.annotation(), bench.remembers(&["/a", "/b"]));
    assert_eq!(bench.event("DeletionFailed").len(), 1);
    bench.tyk.breaks(None);
    bench.retry().await;
    assert_eq!(
        (bench.annotation(), bench.tyk.ids(URL)),
        (bench.remembers(&["/a"]), ids(&["/a"]))
    );
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_no_failure_of_the_route() {
    let mut bench = Bench::new().await;
    bench.tyk.trouble(
        &id("/a"),
        Trouble::Failed(TykError::new(TykErrorClass::Fenced, "not the leader")),
    );
    bench.server.create(route(&["/a"]));
    assert_eq!(
        bench.settle().await,
        ["PATCH(merge) httproutes r -> 200"],
        "nothing is said"
    );
    assert_eq!((bench.accepted().as_str(), bench.events().len()), ("-", 0));
    bench.tyk.no_trouble();
    bench.restart();
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
}

#[tokio::test(start_paused = true)]
async fn what_tyk_lost_and_got_back_is_an_event() {
    let mut bench = Bench::with([route(&["/a"])]).await;
    bench.tyk.lose(URL);
    // when its actor forgets that it stands, as it does when it finds a difference, and the route changes
    bench.server.delete("Service", "shop", "web");
    bench.settle().await;
    let told = bench.event("DriftMended");
    assert_eq!(told.len(), 1, "{:?}", bench.events());
    assert!(
        told[0].starts_with("Normal") && told[0].contains(&id("/a")),
        "{told:?}"
    );
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
}

async fn a_certificate_goes_into_the_store_before_the_api_that_names_it_and_stays_there(place: Where) {
    let mut bench = Bench::at(&place).await;
    serve_https(&bench.server);
    bench.server.create(route(&["/a"]));
    bench.settle().await;
    let writes = bench.tyk.writes();
    assert!(
        writes[0].starts_with("CERT") && writes[1].starts_with("POST"),
        "{writes:?}"
    );
    // when the listener names it no more, and when the route goes
    bench.server.edit(
        "Gateway",
        "infra",
        "edge",
        json!({"spec": {"listeners": [
        {"name": "web", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}}]}}),
    );
    bench.settle().await;
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!(bench.tyk.certificates(), 1);
}

async fn cert_upload_failed_is_an_event_and_the_api_is_written_all_the_same(place: Where) {
    let mut bench = Bench::at(&place).await;
    serve_https(&bench.server);
    bench.tyk.refuse_certificates(true);
    bench.server.create(route(&["/a"]));
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
    bench.retry().await;
    let told = bench.event("CertUploadFailed");
    assert_eq!(told.len(), 1, "{:?}", bench.events());
    assert!(
        told[0].starts_with("Warning") && told[0].contains("Secret infra/cert"),
        "{told:?}"
    );
    // when Tyk takes it, then nothing is left to do
    bench.tyk.refuse_certificates(false);
    bench.retry().await;
    assert_eq!((bench.tyk.certificates(), bench.last.clone()), (1, Outcome::Done));
}

#[tokio::test(start_paused = true)]
async fn a_listener_does_not_count_a_route_whose_apis_do_not_stand() {
    let mut bench = Bench::with([route(&["/a"]), route_named("s", "b.example.com", &["/"])]).await;
    assert_eq!(bench.attached(), 2);
    bench.tyk.trouble(&id("/a"), Trouble::NotLoaded);
    bench.edit(
        json!({"spec": {"rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/a"}}],
        "backendRefs": [{"name": "api", "port": 80}]}]}}),
    );
    bench.settle().await;
    assert_eq!(bench.attached(), 1);
    bench.tyk.no_trouble();
    bench.retry().await;
    assert_eq!(bench.attached(), 2);
    // and who is gone is not counted
    bench.server.delete("HTTPRoute", "shop", "s");
    bench.settle().await;
    assert_eq!(bench.attached(), 1);
}
