//! The annotation of a route: anybody who may write the route may write it. Which Tyks it may lead to, what becomes of a
//! copied one, and what it is trusted for after a restart.

use std::time::Duration;

use reconcile_kit::{
    runtime::{Metrics, leadership::Leadership},
    testing::{Fault as ServerFault, Matcher, Times, Verb},
};
use routewright::{
    app::{App, Doors, Options},
    tyk::{
        controllers,
        httproute::places::{KubeRecord, Record, whole},
        objects::{Fingerprint, Key},
        verdict::{Connection, Mode},
    },
};
use routewright_tyk_double::{Double, Fault};
use serde_json::{Value, json};

use super::{
    bench::*,
    places::{CREDENTIAL, Kind, ORG},
    support,
    table::{definition, oas},
    tyks::Where,
};

const ANNOTATION: &str = "routewright.dev/tyk-apis";

fn connection(url: &str) -> Connection {
    Connection {
        url: url.into(),
        org: ORG.into(),
        mode: Mode::OpenSource,
        context: Key::new("tyk", "main"),
        fingerprint: Fingerprint("f".into()),
    }
}

// ---- a copied annotation ----

/// Route `shop/r` with an API, and in a new process a copy of it under another name, annotation included, looked at first.
async fn copied(place: &Where, parents: Value) -> (Bench, Vec<String>) {
    let mut bench = Bench::at_with(place, [route(&["/a"])]).await;
    let annotation = bench.whole_annotation().unwrap();
    let mut copy = route_named("b", "b.example.com", &["/b"]);
    copy["spec"]["parentRefs"] = parents;
    copy["metadata"]["annotations"] = json!({ANNOTATION: annotation});
    bench.server.create(copy);
    bench.restart();
    let mark = bench.server.mark();
    look(&mut bench, 6).await;
    let asked = lines(&bench.server.calls_since(mark));
    (bench, asked)
}

async fn look(bench: &mut Bench, times: usize) {
    for _ in 0..times {
        for name in ["b", "r"] {
            bench.tell();
            bench.look("shop", name).await;
        }
    }
}

fn edge() -> Value {
    json!([{"name": "edge", "namespace": "infra"}])
}

#[tokio::test]
async fn a_copied_annotation_ends_after_one_look_and_disturbs_nobody() {
    for kind in [Kind::Gateway, Kind::Dashboard] {
        let (mut bench, asked) = copied(&Where::Http(kind), edge()).await;
        let of_b = asked.iter().filter(|line| line.contains("httproutes b")).count();
        assert!(of_b <= 3, "{of_b} metadata patches of b: {asked:#?}");
        assert_eq!(bench.event("DeletionFailed").len(), 1, "{:?}", bench.events());
        let said = &bench.event("DeletionFailed")[0];
        assert!(
            !said.contains("shop/r"),
            "the event must not name the owner: {said}"
        );
        // when the copy leaves its Gateway, and when it goes
        let nobody = json!({"spec": {"parentRefs": [{"name": "nobody"}]}});
        bench.server.edit("HTTPRoute", "shop", "b", nobody);
        look(&mut bench, 3).await;
        assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
        bench.server.delete("HTTPRoute", "shop", "b");
        look(&mut bench, 3).await;
        assert!(bench.server.get("HTTPRoute", "shop", "b").is_none());
        // then the first one has what it wants, and never lost it
        assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
        assert_eq!(bench.accepted(), "True/Accepted: 1 API");
        let deletes = bench.tyk.writes();
        let of_r = deletes
            .iter()
            .filter(|line| line.contains(&ids(&["/a"])[0]))
            .count();
        assert_eq!(of_r, 0, "{deletes:?}");
    }
}

// ---- places ----

/// A route that is to be deleted, with this annotation, and no Gateway of ours. (What is to be said of it is an event at the
/// first look; of another one only what is new.)
fn claim(server: &reconcile_kit::testing::ApiServer, name: &str, annotation: &str) {
    server.create(claiming(name, annotation));
    server.delete("HTTPRoute", "shop", name);
}

fn claiming(name: &str, annotation: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "shop", "name": name, "annotations": {ANNOTATION: annotation},
                     "finalizers": ["routewright.dev/tyk-httproute"]},
        "spec": {"parentRefs": [{"name": "nobody"}]},
    })
}

#[tokio::test]
async fn an_annotation_leads_no_credential_to_an_address_of_ones_choice() {
    // given a platform with its class, context and credential, and a tenant with a namespace and a server
    let evil = Double::gateway()
        .secret(CREDENTIAL)
        .org(ORG)
        .start()
        .await
        .unwrap();
    let page = Fault::on("GET", "/").status(500, "a page of an internal server");
    evil.handle().inject(page.always());
    let url = evil.handle().url();
    let server = installed();
    server.create(json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
        "metadata": {"namespace": "shop", "name": "evil"},
        "spec": {"env": {"mode": "ce", "url": url, "org": ORG}, "secretRef": {"name": "credential", "namespace": "tyk"}},
    }));
    let place = format!("shop/evil@{}", connection(&url).digest());
    claim(&server, "r", &format!("{place}=0123456789abcdef0123"));
    // when the operator runs, as it is
    let options = Options {
        tyk: controllers::Options {
            enabled: true,
            definitions: true,
            cluster: Some("cluster-1".into()),
            record: Some(Key::new("routewright", "routewright-tyk-places")),
            ..Default::default()
        },
        ..support::options()
    };
    let client = server.client_as(OPERATOR);
    let app = App::start_with(
        client,
        Leadership::always(),
        Metrics::default(),
        &options,
        Doors::default(),
    );
    let app = app.unwrap();
    let blocked = support::eventually(&server, "an event", || {
        let events = server.list("Event", "");
        events
            .into_iter()
            .find(|event| event["reason"] == "CleanupBlocked")
    })
    .await;
    app.shutdown().await;
    // then the server was not asked, and an event says why
    let asked: Vec<String> = evil.requests().iter().map(|asked| asked.path.clone()).collect();
    assert_eq!(asked, Vec::<String>::new());
    let said = blocked["note"].as_str().unwrap();
    assert!(
        said.contains("no GatewayClass of this operator names it"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_exists_in_other_namespaces_is_not_told() {
    let mut bench = Bench::new().await;
    // given a context that exists and no class names, and one that does not exist
    bench.add_context("second", OTHER);
    let digest = connection(OTHER).digest();
    for name in ["second", "absent"] {
        let annotation = format!("tyk/{name}@{digest}=0123456789abcdef0123");
        claim(&bench.server, name, &annotation);
    }
    bench.settle().await;
    // then their events are the same
    let blocked = bench.event("CleanupBlocked");
    let said: std::collections::BTreeSet<String> = blocked
        .iter()
        .map(|line| line.replace("second", "x").replace("absent", "x"))
        .collect();
    assert_eq!((blocked.len(), said.len()), (2, 1), "{blocked:#?}");
    // and when a class names the one, what is remembered there is asked for
    bench.server.create(class("two", "second"));
    // (where a context leads is known for two seconds; the operator forgets it when a class changes)
    tokio::time::sleep(Duration::from_secs(3)).await;
    bench.settle().await;
    let there = |name| bench.server.get("HTTPRoute", "shop", name).is_some();
    assert_eq!((there("second"), there("absent")), (false, true));
}

#[tokio::test(start_paused = true)]
async fn many_places_are_one_event_and_few_questions() {
    let mut bench = Bench::new().await;
    let places: Vec<String> = (0..500)
        .map(|n| format!("tyk/c{n}@{n:08x}=0123456789abcdef0123"))
        .collect();
    claim(&bench.server, "greedy", &places.join(";"));
    bench.settle().await;
    let blocked = bench.event("CleanupBlocked");
    assert_eq!(blocked.len(), 1, "{blocked:#?}");
    assert!(blocked[0].len() < 1_000, "{}", blocked[0]);
    let left = bench.server.get("HTTPRoute", "shop", "greedy").unwrap();
    let left = left["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(left.split(';').count() <= 17, "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_context_that_no_class_names_any_more_is_followed_to_where_it_led_and_nowhere_else() {
    // given a route whose class has moved away while its old Tyk was away
    let mut bench = Bench::with([route(&["/a"])]).await;
    bench.add_context("second", OTHER);
    let point = |bench: &Bench, url: &str| {
        let change = json!({"spec": {"env": {"url": url}}});
        bench.server.edit("OperatorContext", "tyk", "main", change);
    };
    // and the old context leads somewhere else since
    point(&bench, "http://evil.attacker.svc:8080");
    let class = json!({"spec": {"parametersRef": {"name": "second"}}});
    bench.server.edit("GatewayClass", "", "tyk", class);
    bench.settle().await;
    let blocked = bench.event("CleanupBlocked");
    assert_eq!(blocked.len(), 1, "{:?}", bench.events());
    assert!(!blocked[0].contains("evil"), "{blocked:?}");
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
    // when it leads back, then what is left there goes, though no class names it
    point(&bench, URL);
    bench.retry().await;
    assert_eq!((bench.tyk.ids(URL), bench.tyk.ids(OTHER)), (vec![], ids(&["/a"])));
}

#[tokio::test(start_paused = true)]
async fn without_a_record_what_a_class_names_is_deleted_all_the_same() {
    // given a route of an earlier version: its annotation has no digest, and nothing is recorded
    let mut bench = Bench::with([route(&["/a"])]).await;
    let text = bench.annotation().unwrap();
    bench.edit(json!({"metadata": {"annotations": {ANNOTATION: text}}}));
    bench.record = Default::default();
    bench.restart();
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    assert_eq!((bench.route(), bench.tyk.ids(URL)), (None, vec![]));
}

// ---- the record ----

#[tokio::test(start_paused = true)]
async fn the_record_is_written_once_and_read_by_the_next_process() {
    let server = server();
    server.namespace("routewright");
    let key = Key::new("routewright", "routewright-tyk-places");
    let record = || KubeRecord::new(server.client_as(OPERATOR), key.clone());
    let (here, far) = (connection(URL), connection(OTHER));
    let first = record();
    let mark = server.mark();
    for _ in 0..3 {
        first.add(&here).await;
        first.add(&far).await;
    }
    let calls = lines(&server.calls_since(mark));
    assert_eq!(calls.len(), 3, "one read, two writes: {calls:?}");
    // when another process asks, then it knows both; and it keeps what another client has written meanwhile
    let next = record();
    let places = next.places(&here.context).await.unwrap();
    assert_eq!(places, [whole(&here), whole(&far)].into());
    let other = Connection {
        context: Key::new("tyk", "other"),
        ..here.clone()
    };
    first.add(&other).await;
    let third = Connection {
        context: Key::new("tyk", "third"),
        ..here.clone()
    };
    next.add(&third).await;
    let all = record();
    for context in [&here.context, &other.context, &third.context] {
        assert!(
            all.places(context).await.unwrap().contains(&whole(&here)),
            "{context}"
        );
    }
    assert_eq!(all.places(&Key::new("tyk", "nobody")).await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_may_not_be_read_is_named_and_not_asked_for_again_and_again() {
    let server = server();
    server.namespace("routewright");
    server.fault(
        Matcher::verb(Verb::Get).name("places"),
        ServerFault::Status(403),
        Times::Always,
    );
    let record = KubeRecord::new(server.client_as(OPERATOR), Key::new("routewright", "places"));
    let mark = server.mark();
    for _ in 0..5 {
        record.add(&connection(URL)).await;
        let why = record.places(&Key::new("tyk", "main")).await.unwrap_err();
        assert!(why.contains("ConfigMap routewright/places"), "{why}");
    }
    assert_eq!(lines(&server.calls_since(mark)).len(), 1);
    tokio::time::sleep(Duration::from_secs(61)).await;
    record.places(&Key::new("tyk", "main")).await.unwrap_err();
    assert_eq!(lines(&server.calls_since(mark)).len(), 2);
}

// ---- what is trusted after a restart ----

/// A route with an attached definition that asks for no authentication.
async fn open() -> Bench {
    let mut open = oas();
    open["x-tyk-api-gateway"]["server"]["authentication"]["enabled"] = json!(false);
    let mut bench = Bench::new().await;
    for object in definition(open) {
        bench.server.create(object);
    }
    bench.server.create(route(&["/a"]));
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    bench.tyk.writes();
    bench
}

fn close(bench: &Bench) {
    let data = json!({"data": {"oas.json": oas().to_string()}});
    bench.server.edit("ConfigMap", "shop", "doc", data);
}

fn authentication(bench: &Bench) -> Value {
    let document = bench.tyk.at(URL)[&ids(&["/a"])[0]].clone();
    document["x-tyk-api-gateway"]["server"]["authentication"]["enabled"].clone()
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_nobody_ran_is_written_first_and_is_nobodys_fault() {
    let mut bench = open().await;
    // while no process runs, its ConfigMap comes to ask for authentication
    close(&bench);
    bench.restart();
    bench.settle().await;
    assert_eq!(authentication(&bench), json!(true));
    assert_eq!(
        (bench.accepted().as_str(), bench.events().len()),
        ("True/Accepted: 1 API", 0)
    );
    // and the next process trusts what stands
    bench.tyk.writes();
    bench.tyk.reads();
    bench.restart();
    assert_eq!(bench.settle().await, NOTHING);
    assert_eq!((bench.tyk.writes(), bench.tyk.reads()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_written_yet_is_not_noted_as_written() {
    let mut bench = open().await;
    let before = bench.whole_annotation();
    // given a change that Tyk does not take
    bench
        .tyk
        .breaks(Some(routewright::tyk::client::TykErrorClass::Unreachable));
    close(&bench);
    bench.settle().await;
    assert_eq!(bench.whole_annotation(), before);
    // when a new process comes, then it is written
    bench.tyk.breaks(None);
    bench.restart();
    bench.settle().await;
    assert_eq!(authentication(&bench), json!(true));
    assert_ne!(bench.whole_annotation(), before);
    assert_eq!(bench.event("DriftMended"), NOTHING);
}
