//! What each situation costs, request by request. The log of the in-process API server is compared line by line, so a
//! request too many fails a row as well as one too few.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Operator, USER, eventually, lines, of_operator, quiet, ready, server, site, until_ready};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use reconcile_kit::testing::{ApiServer, Fault, Matcher, ResourceDef, Times, Verb, schema};
use serde_json::{Value, json};

const CREATED: &str = "APPLY v1 configmaps shop/a by lab -> 201";
const CHANGED: &str = "APPLY v1 configmaps shop/a by lab -> 200";
const REFUSED: &str = "APPLY v1 configmaps shop/a by lab -> 409";
const LOOKED: &str = "GET(metadata) v1 configmaps shop/a -> 200";
const STATUS: &str = "APPLY example.org/v1 sites/status shop/a by lab-status -> 200";
const EVENT: &str = "POST events.k8s.io/v1 events shop/* -> 201";
const NOTHING: [&str; 0] = [];

/// An operator that has placed the map `a`.
async fn placed() -> (ApiServer, Operator) {
    let server = server();
    let operator = Operator::start(&server);
    server.create(site("a", "map", "one"));
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    (server, operator)
}

fn text(server: &ApiServer) -> Option<Value> {
    server
        .get("ConfigMap", "shop", "a")
        .map(|map| map["data"]["text"].clone())
}

fn change(server: &ApiServer, spec: Value) {
    server.edit("Site", "shop", "a", json!({ "spec": spec }));
}

/// What `act` makes the operator ask for.
async fn cost<T>(server: &ApiServer, act: impl FnOnce() -> T) -> Vec<String> {
    let mark = server.mark();
    act();
    quiet(server).await;
    lines(server, mark)
}

#[tokio::test(start_paused = true)]
async fn a_first_creation_is_one_apply_one_status_and_one_event() {
    let server = server();
    let _operator = Operator::start(&server);
    quiet(&server).await;
    let asked = cost(&server, || server.create(site("a", "map", "one"))).await;
    assert_eq!(asked, [CREATED, STATUS, EVENT]);
}

#[tokio::test(start_paused = true)]
async fn a_spec_change_is_one_apply_and_one_status() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || change(&server, json!({"text": "two"}))).await;
    assert_eq!(asked, [CHANGED, STATUS]);
    assert_eq!(text(&server), Some(json!("two")));
}

#[tokio::test(start_paused = true)]
async fn nothing_changed_costs_nothing() {
    let (server, operator) = placed().await;
    // The echo of the own status write, triggers without a reason, foreign keys on the child, time.
    let asked = cost(&server, || {
        operator.triggers.push_name(Some("shop"), "a");
        server.edit(
            "Site",
            "shop",
            "a",
            json!({"metadata": {"labels": {"team": "web"}}}),
        );
        server.edit(
            "ConfigMap",
            "shop",
            "a",
            json!({"metadata": {"annotations": {"x": "y"}}}),
        );
        server.edit("ConfigMap", "shop", "a", json!({"data": {"another": "key"}}));
    })
    .await;
    assert_eq!(asked, NOTHING);
    tokio::time::sleep(std::time::Duration::from_secs(24 * 3600)).await;
    let asked = cost(&server, || ()).await;
    assert_eq!(asked, NOTHING, "after a day");
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_break_or_expire_cost_nothing_but_themselves() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || server.end_watches("*")).await;
    assert_eq!(asked, NOTHING, "a clean end");
    let asked = cost(&server, || server.cut_watches("*")).await;
    assert_eq!(asked, NOTHING, "a broken connection");
    let mark = server.mark();
    let asked = cost(&server, || {
        server.compact();
        server.fault(
            Matcher::watches().user(USER),
            Fault::WatchExpired,
            Times::Count(3),
        );
        server.end_watches("*");
    })
    .await;
    assert_eq!(asked, NOTHING, "expired: listed again");
    let lists = of_operator(&server, mark)
        .iter()
        .filter(|c| c.verb == Verb::List)
        .count();
    assert_eq!(lists, 3, "one list per watch");
}

#[tokio::test(start_paused = true)]
async fn a_restart_costs_the_lists_of_its_watches_and_nothing_else() {
    let (server, operator) = placed().await;
    operator.stop().await;
    let mark = server.mark();
    let _operator = Operator::start(&server);
    quiet(&server).await;
    let mut asked: Vec<_> = of_operator(&server, mark).iter().map(|c| c.verb).collect();
    asked.sort();
    let lists_and_watches = [
        Verb::List,
        Verb::List,
        Verb::List,
        Verb::Watch,
        Verb::Watch,
        Verb::Watch,
    ];
    assert_eq!(asked, lists_and_watches);
}

#[tokio::test(start_paused = true)]
async fn an_outside_edit_of_an_owned_field_is_undone_by_one_apply() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || {
        server.edit("ConfigMap", "shop", "a", json!({"data": {"text": "defaced"}}));
    })
    .await;
    assert_eq!(asked, [CHANGED]);
    assert_eq!(text(&server), Some(json!("one")));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_somebody_deletes_is_created_again_by_one_apply() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || server.delete("ConfigMap", "shop", "a")).await;
    assert_eq!(asked, [CREATED]);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_vanishes_in_the_moment_of_its_creation_is_created_again() {
    // Given: the reconcile that created it has not ended (its status write hangs), so nobody has looked again.
    let server = server();
    let _operator = Operator::start(&server);
    quiet(&server).await;
    let slow = Fault::Delay(std::time::Duration::from_secs(5));
    server.fault(Matcher::writes().resource("sites/status"), slow, Times::Count(1));
    let mark = server.mark();
    server.create(site("a", "map", "one"));
    eventually(&server, "the map", || server.get("ConfigMap", "shop", "a")).await;
    // When it is deleted before that.
    server.delete("ConfigMap", "shop", "a");
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    quiet(&server).await;
    // Then it is not believed in for having been written.
    let created = lines(&server, mark).iter().filter(|l| *l == CREATED).count();
    assert_eq!(created, 2, "{:#?}", lines(&server, mark));
    assert_eq!(text(&server), Some(json!("one")));
}

fn foreign(labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "labels": labels},
        "data": {"text": "theirs"},
    })
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_without_labels_is_refused_once_and_left_alone() {
    let server = server();
    server.create(foreign(json!({"app": "theirs"})));
    let before = server.get("ConfigMap", "shop", "a");
    let _operator = Operator::start(&server);
    quiet(&server).await;
    let asked = cost(&server, || server.create(site("a", "map", "one"))).await;
    assert_eq!(asked, [REFUSED, LOOKED, STATUS, EVENT]);
    assert_eq!(ready(&server, "a").unwrap(), "False/Foreign");
    // Changes of it that do not concern its ownership are not looked at.
    let asked = cost(&server, || {
        server.edit(
            "ConfigMap",
            "shop",
            "a",
            json!({"data": {"text": "still theirs"}}),
        );
        server.edit("ConfigMap", "shop", "a", json!({"data": {"text": "theirs"}}));
    })
    .await;
    assert_eq!(asked, NOTHING);
    let mut after = server.get("ConfigMap", "shop", "a").unwrap();
    for field in ["resourceVersion", "managedFields"] {
        after["metadata"][field] = before.as_ref().unwrap()["metadata"][field].clone();
    }
    assert_eq!(Some(after), before, "not a byte of it is ours");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_with_our_labels_is_seen_without_asking() {
    let server = server();
    server.create(foreign(json!({"app.kubernetes.io/managed-by": "lab"})));
    let _operator = Operator::start(&server);
    quiet(&server).await;
    let asked = cost(&server, || server.create(site("a", "map", "one"))).await;
    assert_eq!(asked, [STATUS, EVENT]);
    assert_eq!(ready(&server, "a").unwrap(), "False/Foreign");
}

#[tokio::test(start_paused = true)]
async fn when_a_squatter_goes_the_child_is_created_within_seconds() {
    for labels in [json!({}), json!({"app.kubernetes.io/managed-by": "lab"})] {
        let server = server();
        server.create(foreign(labels));
        let _operator = Operator::start(&server);
        server.create(site("a", "map", "one"));
        until_ready(&server, "a", "False/Foreign").await;
        quiet(&server).await;
        let start = tokio::time::Instant::now();
        let mark = server.mark();
        server.delete("ConfigMap", "shop", "a");
        until_ready(&server, "a", "True/Placed").await;
        assert!(start.elapsed().as_secs() < 5, "not by the slow retry");
        quiet(&server).await;
        assert_eq!(lines(&server, mark), [CREATED, STATUS, EVENT]);
        assert_eq!(
            server.open_watches("configmaps"),
            1,
            "the name is not watched any more"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_squatter_that_comes_back_later_is_refused_again() {
    let (server, _operator) = placed().await;
    let mark = server.mark();
    // Ours goes and theirs comes before the operator looks.
    server.delete("ConfigMap", "shop", "a");
    server.create(foreign(json!({})));
    until_ready(&server, "a", "False/Foreign").await;
    quiet(&server).await;
    assert_eq!(lines(&server, mark), [REFUSED, LOOKED, STATUS, EVENT]);
    assert_eq!(text(&server), Some(json!("theirs")));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_name_stops_waiting_when_he_is_gone() {
    let server = server();
    server.create(foreign(json!({})));
    let _operator = Operator::start(&server);
    server.create(site("a", "map", "one"));
    until_ready(&server, "a", "False/Foreign").await;
    quiet(&server).await;
    assert_eq!(server.open_watches("configmaps"), 2, "all of ours, and this name");
    server.delete("Site", "shop", "a");
    eventually(&server, "the watch to end", || {
        (server.open_watches("configmaps") == 1).then_some(())
    })
    .await;
}

/// As an older release wrote it: POST, then PUT, under another field manager, with the uid of our owner.
fn by_older_release(server: &ApiServer) {
    let owner = server.get("Site", "shop", "a").unwrap()["metadata"]["uid"].clone();
    let map = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "a", "namespace": "shop",
                "labels": {"app.kubernetes.io/managed-by": "lab"},
                "annotations": {"dropped": "since then"},
                "ownerReferences": [{"apiVersion": "example.org/v1", "kind": "Site", "name": "a", "uid": owner, "controller": true}],
            },
            "data": {"text": text, "gone": "since then"},
        })
    };
    server.create_as("older", map("zero"));
    server.update_as("older", map("one"));
}

#[tokio::test(start_paused = true)]
async fn what_another_manager_wrote_for_our_owner_is_taken_over_once_and_pruned_from_then_on() {
    let server = server();
    server.create(site("a", "map", "one"));
    by_older_release(&server);
    let operator = Operator::start(&server);
    let mark = server.mark();
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    let rewrite = "PATCH(json) v1 configmaps shop/a by lab -> 200";
    assert_eq!(lines(&server, mark), [rewrite, CHANGED, STATUS, EVENT]);

    let map = server.get("ConfigMap", "shop", "a").unwrap();
    assert_eq!(
        map["data"],
        json!({"text": "one"}),
        "what we do not want is pruned"
    );
    assert_eq!(map["metadata"]["annotations"]["dropped"], Value::Null);
    let managers = map["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1, "{managers:#?}");

    // From then on dropped keys go like any of ours.
    change(&server, json!({"annotations": {"k": "v"}}));
    quiet(&server).await;
    change(&server, json!({"annotations": null}));
    quiet(&server).await;
    let map = server.get("ConfigMap", "shop", "a").unwrap();
    assert_eq!(map["metadata"]["annotations"]["k"], Value::Null);
    operator.stop().await;
    let mark = server.mark();
    let _operator = Operator::start(&server);
    quiet(&server).await;
    assert_eq!(lines(&server, mark), NOTHING, "once, not at every start");
}

#[tokio::test(start_paused = true)]
async fn labels_that_are_stripped_are_put_back() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || {
        let none = json!({"metadata": {"labels": {
            "app.kubernetes.io/managed-by": null, "app.kubernetes.io/instance": null, "app.kubernetes.io/component": null,
        }}});
        server.edit("ConfigMap", "shop", "a", none);
    })
    .await;
    // The cache does not show it any more, so that its name has to be asked about.
    assert_eq!(asked, [REFUSED, LOOKED, CHANGED]);
    let labels = &server.get("ConfigMap", "shop", "a").unwrap()["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], "lab");
}

#[tokio::test(start_paused = true)]
async fn a_kind_switch_is_one_delete_and_a_creation() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || {
        change(&server, json!({"serve": "ingress", "text": "a.example.org"}))
    })
    .await;
    let delete = "DELETE v1 configmaps shop/a -> 200";
    let create = "APPLY networking.k8s.io/v1 ingresses shop/a by lab -> 201";
    assert_eq!(asked, [delete, create, STATUS]);
    assert_eq!(
        (
            server.list("ConfigMap", "shop").len(),
            server.list("Ingress", "shop").len()
        ),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn switching_there_and_back_before_the_caches_know_costs_no_blind_write() {
    let (server, operator) = placed().await;
    // Given: the watch of maps is deaf for a while.
    let deaf = server.fault(
        Matcher::watches().resource("configmaps"),
        Fault::Hang,
        Times::Always,
    );
    server.end_watches("configmaps");
    let mark = server.mark();
    change(&server, json!({"serve": "none"}));
    eventually(&server, "the delete", || {
        server.get("ConfigMap", "shop", "a").is_none().then_some(())
    })
    .await;
    operator.triggers.push_name(Some("shop"), "a");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    change(&server, json!({"serve": "map"}));
    until_ready(&server, "a", "False/Going").await;
    // When it hears again.
    server.unfault(deaf);
    server.cut_watches("*");
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    // Then there was one delete and one creation.
    let maps: Vec<_> = lines(&server, mark)
        .into_iter()
        .filter(|l| l.contains("configmaps"))
        .collect();
    assert_eq!(maps, ["DELETE v1 configmaps shop/a -> 200", CREATED]);
}

#[tokio::test(start_paused = true)]
async fn a_child_on_its_way_out_is_waited_for() {
    let (server, _operator) = placed().await;
    let finalizers = json!({"metadata": {"finalizers": ["example.org/theirs"]}});
    server.edit("ConfigMap", "shop", "a", finalizers);
    quiet(&server).await;
    let asked = cost(&server, || {
        server.delete("ConfigMap", "shop", "a");
    })
    .await;
    assert_eq!(asked, [STATUS, EVENT]);
    assert_eq!(ready(&server, "a").unwrap(), "False/Going");
    let asked = cost(&server, || {
        server.edit(
            "ConfigMap",
            "shop",
            "a",
            json!({"metadata": {"finalizers": null}}),
        );
    })
    .await;
    assert_eq!(asked.len(), 3, "{asked:#?}");
    assert_eq!(asked[..2], [CREATED, STATUS]);
    assert!(asked[2].contains("events"), "the second of a series: {asked:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_own_write_that_the_cache_does_not_show_yet_is_not_repeated() {
    let server = server();
    let operator = Operator::start(&server);
    quiet(&server).await;
    let mark = server.mark();
    server.fault(Matcher::watches(), Fault::Hang, Times::Always);
    server.create(site("a", "map", "one"));
    eventually(&server, "the map", || server.get("ConfigMap", "shop", "a")).await;
    // Given: no watch tells of the map or of the status.
    for _ in 0..5 {
        server.end_watches("*");
        operator.triggers.push_name(Some("shop"), "a");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    quiet(&server).await;
    let mut written = lines(&server, mark);
    written.retain(|l| !l.contains("events"));
    assert_eq!(written, [CREATED, STATUS]);
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_changes_nothing_is_not_tried_again() {
    // `tls: null` is dropped by the server: what we want and what stands never compare equal.
    let server = server();
    let operator = Operator::start(&server);
    let mut site = site("a", "ingress", "a.example.org");
    site["spec"]["quirk"] = json!(true);
    server.create(site);
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    let asked = cost(&server, || {
        let edit = json!({"metadata": {"annotations": {"x": "y"}}});
        server.edit("Ingress", "shop", "a", edit);
    })
    .await;
    assert_eq!(asked, NOTHING, "the server's own spelling of it is known");
    let asked = cost(&server, || operator.triggers.push_name(Some("shop"), "a")).await;
    assert_eq!(asked, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn empty_maps_and_lists_in_metadata_are_never_sent() {
    let (server, _operator) = placed().await;
    change(&server, json!({"serve": "ingress", "text": "a.example.org"}));
    quiet(&server).await;
    let mut bodies = 0;
    for call in server.calls().iter().filter(|c| c.verb == Verb::Apply) {
        bodies += 1;
        let metadata = call.body.as_ref().unwrap()["metadata"].as_object().unwrap();
        for (key, value) in metadata {
            let empty = match value {
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                Value::Null => true,
                _ => false,
            };
            assert!(!empty, "{key} in {call}");
        }
    }
    assert_eq!(bodies, 4, "two children, two statuses");
}

#[tokio::test(start_paused = true)]
async fn a_status_field_that_the_schema_does_not_know_costs_one_request_and_never_the_condition() {
    let server = server();
    let conditions = ResourceDef::custom("example.org", "v1", "Site", "sites");
    let known = schema::object([
        ("spec", schema::any()),
        (
            "status",
            schema::object([("conditions", schema::list(schema::any()))]),
        ),
    ]);
    server.serve(conditions.with_schema(known));
    let _operator = Operator::start(&server);
    quiet(&server).await;
    let asked = cost(&server, || server.create(site("a", "map", "one"))).await;
    let unknown = "APPLY example.org/v1 sites/status shop/a by lab-status -> 500";
    assert_eq!(asked, [CREATED, unknown, STATUS, EVENT]);
    let asked = cost(&server, || change(&server, json!({"text": "two"}))).await;
    assert_eq!(asked, [CHANGED, STATUS], "known from then on");
}

fn status_of(type_: &str, reason: &str) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Site", "metadata": {"name": "a", "namespace": "shop"},
        "status": {"conditions": [{
            "type": type_, "status": "True", "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    })
}

async fn apply_status(server: &ApiServer, manager: &str, body: Value) {
    let resource = common::SITE.api_resource();
    let api: Api<DynamicObject> = Api::namespaced_with(server.client(), "shop", &resource);
    let params = PatchParams::apply(manager).force();
    api.patch_status("a", &params, &Patch::Apply(body)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_another_manager_is_refused_once_and_left_alone() {
    let server = server();
    server.create(site("a", "map", "one"));
    apply_status(&server, "theirs", status_of("Ready", "Theirs")).await;
    let operator = Operator::start(&server);
    let mark = server.mark();
    quiet(&server).await;
    let refused = "APPLY example.org/v1 sites/status shop/a by lab-status -> 409";
    assert_eq!(lines(&server, mark), [CREATED, refused, EVENT]);
    let asked = cost(&server, || operator.triggers.push_name(Some("shop"), "a")).await;
    assert_eq!(asked, NOTHING, "nothing has changed");
    assert_eq!(ready(&server, "a").unwrap(), "True/Theirs");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_an_older_release_wrote_by_update_under_our_name_is_ours() {
    let server = server();
    server.create(site("a", "map", "one"));
    let resource = common::SITE.api_resource();
    let api: Api<DynamicObject> = Api::namespaced_with(server.client(), "shop", &resource);
    let params = PatchParams {
        field_manager: Some("lab-status".into()),
        ..PatchParams::default()
    };
    let old = Patch::Merge(status_of("Ready", "AsItWasCalledThen"));
    api.patch_status("a", &params, &old).await.unwrap();
    let _operator = Operator::start(&server);
    let mark = server.mark();
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    let refused = "APPLY example.org/v1 sites/status shop/a by lab-status -> 409";
    assert_eq!(lines(&server, mark), [CREATED, refused, STATUS, EVENT]);
    // What had the same value then (the generation) is shared until it changes for the first time.
    let asked = cost(&server, || change(&server, json!({"text": "two"}))).await;
    assert_eq!(asked, [CHANGED, refused, STATUS]);
    let asked = cost(&server, || change(&server, json!({"text": "three"}))).await;
    assert_eq!(asked, [CHANGED, STATUS], "once per field");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_condition_and_field_in_which_an_older_manager_holds_a_share_are_removed() {
    let (server, _operator) = placed().await;
    // Given: an older release applied the very same status, so that dropping ours leaves its share.
    let mut same = server.get("Site", "shop", "a").unwrap();
    let status = same["status"].take();
    let mut theirs = status.clone();
    let foreign = status_of("Theirs", "R")["status"]["conditions"][0].clone();
    theirs["conditions"].as_array_mut().unwrap().push(foreign);
    let body = json!({
        "apiVersion": "example.org/v1", "kind": "Site", "metadata": {"name": "a", "namespace": "shop"},
        "status": theirs,
    });
    apply_status(&server, "older", body).await;
    quiet(&server).await;
    // When there is nothing to say any more.
    let asked = cost(&server, || change(&server, json!({"serve": "none"}))).await;
    // Then what is left of ours is taken away, and nothing of anybody else.
    let remove = "PATCH(json) example.org/v1 sites/status shop/a by lab-status -> 200";
    assert_eq!(
        asked,
        ["DELETE v1 configmaps shop/a -> 200", STATUS, remove, EVENT]
    );
    let status = &server.get("Site", "shop", "a").unwrap()["status"];
    assert_eq!(status["place"], Value::Null);
    let types: Vec<_> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["type"].clone())
        .collect();
    assert_eq!(types, ["Theirs"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_goes_takes_its_child_along_without_a_request() {
    let (server, _operator) = placed().await;
    let asked = cost(&server, || server.delete("Site", "shop", "a")).await;
    assert_eq!(asked, NOTHING, "garbage collection does it");
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "shop");
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
}
