//! The test server as its users see it: client, log, faults, watches. What it must share with a real API server is
//! in the conformity suite.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use reconcile_kit::testing::{ApiServer, Crash, Fault, Matcher, ResourceDef, Times, Verb};
use serde_json::{Value, json};

fn config_map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "shop" }, "data": data })
}

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.namespace("shop");
    server
}

fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "shop")
}

fn apply(manager: &str) -> PatchParams {
    PatchParams::apply(manager).force()
}

#[tokio::test]
async fn an_apply_creates_changes_and_repeats_without_a_write() {
    let server = server();
    let api = maps(server.client_as("op"));
    let body = config_map("a", json!({ "k": "1" }));

    let first = api.patch("a", &apply("m"), &Patch::Apply(&body)).await.unwrap();
    let again = api.patch("a", &apply("m"), &Patch::Apply(&body)).await.unwrap();
    let changed = config_map("a", json!({ "k": "2" }));
    let third = api
        .patch("a", &apply("m"), &Patch::Apply(&changed))
        .await
        .unwrap();

    assert_eq!(first.metadata.resource_version, again.metadata.resource_version);
    assert_ne!(first.metadata.resource_version, third.metadata.resource_version);
    assert_eq!(
        format!("{:#?}", server.calls()),
        "[\n    APPLY v1 configmaps shop/a by m -> 201,\n    APPLY v1 configmaps shop/a by m -> 200,\n    APPLY v1 configmaps shop/a by m -> 200,\n]"
    );
    assert!(server.calls().iter().all(|c| c.user == "op"));
}

#[tokio::test]
async fn a_watcher_sees_direct_changes_and_survives_a_cut() {
    let server = server();
    server.create(config_map("a", json!({})));
    let mut events = watcher(maps(server.client()), watcher::Config::default())
        .default_backoff()
        .boxed();

    let mut seen = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(60), events.try_next())
        .await
        .unwrap()
    {
        match event {
            watcher::Event::InitApply(o) => seen.push(format!("init {}", o.metadata.name.unwrap())),
            watcher::Event::Apply(o) => seen.push(format!("apply {}", o.metadata.name.unwrap())),
            watcher::Event::Delete(o) => seen.push(format!("delete {}", o.metadata.name.unwrap())),
            watcher::Event::Init => seen.push("init".into()),
            watcher::Event::InitDone => {
                seen.push("done".into());
                server.create(config_map("b", json!({})));
            }
        }
        match seen.last().map(String::as_str) {
            Some("apply b") => {
                assert_eq!(server.end_watches("configmaps"), 1);
                server.delete("ConfigMap", "shop", "a");
            }
            Some("delete a") => break,
            _ => {}
        }
    }
    assert_eq!(seen, ["init", "init a", "done", "apply b", "delete a"]);
}

#[tokio::test]
async fn faults_hit_what_they_match_as_often_as_they_say() {
    let server = server();
    let api = maps(server.client());
    server.fault(
        Matcher::verb(Verb::Get).resource("configmaps"),
        Fault::Status(500),
        Times::Count(2),
    );

    let codes: Vec<u16> = {
        let mut codes = Vec::new();
        for _ in 0..3 {
            match api.get("a").await {
                Err(kube::Error::Api(status)) => codes.push(status.code),
                other => panic!("{other:?}"),
            }
        }
        codes
    };
    assert_eq!(codes, [500, 500, 404]);

    server.fault(Matcher::writes(), Fault::AnswerLost, Times::Count(1));
    let lost = api
        .patch("a", &apply("m"), &Patch::Apply(&config_map("a", json!({}))))
        .await;
    assert!(matches!(lost, Err(kube::Error::Service(_))), "{lost:?}");
    assert!(server.get("ConfigMap", "shop", "a").is_some(), "the write landed");
    assert_eq!(
        format!("{}", server.calls().last().unwrap()),
        "APPLY v1 configmaps shop/a by m -> 201, answer lost"
    );

    server.fault(
        Matcher::any(),
        Fault::TooManyRequests { retry_after: 3 },
        Times::Count(1),
    );
    let Err(kube::Error::Api(status)) = api.list(&ListParams::default()).await else {
        panic!("not refused")
    };
    assert_eq!(
        (status.code, status.details.clone().unwrap().retry_after_seconds),
        (429, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn delays_and_hangs_follow_the_paused_clock() {
    let server = server();
    let api = maps(server.client());
    server.fault(
        Matcher::reads(),
        Fault::Delay(Duration::from_secs(40)),
        Times::Count(1),
    );
    let start = tokio::time::Instant::now();
    api.list(&ListParams::default()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 40);

    let hang = server.fault(Matcher::reads(), Fault::Hang, Times::Always);
    let waited = tokio::time::timeout(Duration::from_secs(600), api.list(&ListParams::default())).await;
    assert!(waited.is_err());
    server.unfault(hang);
    api.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_kill_point_stops_one_user_between_two_writes() {
    let server = server();
    let (victim, other) = (maps(server.client_as("victim")), maps(server.client_as("other")));
    server.kill_during(Matcher::writes().user("victim"), 2, Crash::Error);

    let put = |api: Api<ConfigMap>, name: &'static str| async move {
        api.patch(name, &apply("m"), &Patch::Apply(&config_map(name, json!({}))))
            .await
            .is_ok()
    };
    assert!(put(victim.clone(), "a").await);
    assert!(
        !put(victim.clone(), "b").await,
        "the answer of the last write is lost"
    );
    assert!(!put(victim.clone(), "c").await);
    assert!(put(other, "d").await);
    let names: Vec<String> = server
        .list("ConfigMap", "shop")
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap().into())
        .collect();
    assert_eq!(names, ["a", "b", "d"]);
    assert!(server.is_killed());
    server.revive();
    assert!(put(victim, "c").await);
}

#[tokio::test]
async fn a_denied_user_gets_the_text_of_the_api_server() {
    let server = server();
    server.deny("op", "create", "ingresses");
    let body = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "i" },
        "spec": { "defaultBackend": { "service": { "name": "s", "port": { "number": 80 } } } },
    });
    let api: Api<Ingress> = Api::namespaced(server.client_as("op"), "shop");
    let Err(kube::Error::Api(status)) = api.patch("i", &apply("m"), &Patch::Apply(&body)).await else {
        panic!()
    };
    assert_eq!(
        status.message,
        "ingresses.networking.k8s.io \"i\" is forbidden: User \"op\" cannot create resource \"ingresses\" in API group \"networking.k8s.io\" in the namespace \"shop\""
    );
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_ends_its_watches_after_a_second() {
    let server = server();
    server.serve(ResourceDef::http_route());
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": "r", "namespace": "shop" }, "spec": {},
    }));
    let resource = kube::api::ApiResource {
        group: "gateway.networking.k8s.io".into(),
        version: "v1".into(),
        api_version: "gateway.networking.k8s.io/v1".into(),
        kind: "HTTPRoute".into(),
        plural: "httproutes".into(),
    };
    let api: Api<kube::api::DynamicObject> = Api::all_with(server.client(), &resource);
    let list = api.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let stream = api.watch(&WatchParams::default(), &version).await.unwrap();
    let start = tokio::time::Instant::now();

    server.unserve("gateway.networking.k8s.io", "httproutes");

    let events: Vec<_> = stream.collect().await;
    assert_eq!(start.elapsed().as_secs(), 1);
    assert!(
        matches!(events.as_slice(), [Ok(WatchEvent::Deleted(_))]),
        "{events:?}"
    );
    let Err(kube::Error::Api(status)) = api.list(&ListParams::default()).await else {
        panic!()
    };
    assert_eq!(
        (status.code, status.message.as_str()),
        (404, "404 page not found\n")
    );
}

#[tokio::test]
async fn children_go_with_their_owner() {
    let server = server();
    let owner = server.create(config_map("owner", json!({})));
    let mut child = config_map("child", json!({}));
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    server.create(child);
    maps(server.client())
        .delete("owner", &DeleteParams::default())
        .await
        .unwrap();
    assert!(server.list("ConfigMap", "shop").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watcher_relists_after_an_expired_version_and_a_broken_connection() {
    let server = server();
    server.create(config_map("a", json!({})));
    let mut events = watcher(maps(server.client()), watcher::Config::default())
        .default_backoff()
        .boxed();
    let mut next = async || loop {
        if let Some(Ok(event)) = events.next().await {
            return format!("{event:?}").split(['(', ' ']).next().unwrap().to_owned();
        }
    };
    for wanted in ["Init", "InitApply", "InitDone"] {
        assert_eq!(next().await, wanted);
    }
    let mark = server.mark();
    server.fault(Matcher::watches(), Fault::WatchExpired, Times::Count(1));
    // The watch is opened by the next poll; only then the fault can meet it.
    assert_eq!(next().await, "Init");
    assert_eq!(next().await, "InitApply");
    assert_eq!(next().await, "InitDone");
    let asked: Vec<Verb> = server.calls_since(mark).iter().map(|c| c.verb).collect();
    assert_eq!(asked, [Verb::Watch, Verb::List]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_is_an_error_and_an_ended_one_is_not() {
    let server = server();
    let api = maps(server.client());
    let open = async || api.watch(&WatchParams::default(), "0").await.unwrap().boxed();

    let mut stream = open().await;
    assert_eq!(server.cut_watches("configmaps"), 1);
    assert!(matches!(stream.next().await, Some(Err(_))));

    let mut stream = open().await;
    assert_eq!(server.end_watches("*"), 1);
    assert!(stream.next().await.is_none());
    assert_eq!(server.open_watches("*"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_comes_after_the_write() {
    let server = server();
    let api = maps(server.client());
    server.fault(
        Matcher::writes(),
        Fault::AnswerDelay(Duration::from_secs(30)),
        Times::Count(1),
    );
    let body = config_map("a", json!({}));
    let (params, patch) = (apply("m"), Patch::Apply(&body));
    let given_up = tokio::time::timeout(Duration::from_secs(5), api.patch("a", &params, &patch)).await;
    assert!(given_up.is_err(), "the client gave up");
    assert!(
        server.get("ConfigMap", "shop", "a").is_some(),
        "the server had done it"
    );

    server.fault(Matcher::writes(), Fault::AnswerHangs, Times::Count(1));
    let hung = tokio::time::timeout(
        Duration::from_secs(500),
        api.delete("a", &DeleteParams::default()),
    )
    .await;
    assert!(hung.is_err());
    assert!(server.get("ConfigMap", "shop", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_killed_client_that_hangs_stays_hung() {
    let server = server();
    let api = maps(server.client());
    server.kill_after(Matcher::writes(), 1, Crash::Hang);
    api.patch("a", &apply("m"), &Patch::Apply(&config_map("a", json!({}))))
        .await
        .unwrap();
    let next = tokio::time::timeout(Duration::from_secs(3600), api.list(&ListParams::default())).await;
    assert!(next.is_err());
    assert_eq!(
        server.calls().last().unwrap().to_string(),
        "LIST v1 configmaps shop/* -> no answer"
    );
}

#[tokio::test]
async fn a_namespace_that_is_held_empties_one_by_one_and_goes_when_it_is_released() {
    let server = server();
    let api = maps(server.client());
    for name in ["a", "b"] {
        server.create(config_map(name, json!({})));
    }
    server.terminate_namespace("shop");
    assert!(server.delete("ConfigMap", "shop", "a"));
    let late = serde_json::from_value(config_map("c", json!({}))).unwrap();
    let refused = api.create(&PostParams::default(), &late).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("is being terminated"), "{refused}");
    assert!(server.get("ConfigMap", "shop", "b").is_some());
    assert!(server.get("Namespace", "", "shop").is_some());

    server.release_namespace("shop");

    assert!(server.get("ConfigMap", "shop", "b").is_none());
    assert!(server.get("Namespace", "", "shop").is_none());
    server.namespace("shop").create(config_map("c", json!({})));
}

#[tokio::test]
async fn fields_that_a_crd_lost_are_hidden_until_it_has_them_again_or_the_object_is_written() {
    let server = server();
    let crd = |fields: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"},
               "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                            {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}}]}})
    };
    let (all, fewer) = (
        crd(json!({"a": {"type": "string"}, "b": {"type": "string"}})),
        crd(json!({"a": {"type": "string"}})),
    );
    let spec = |name: &str| server.get("Thing", "shop", name).unwrap()["spec"].clone();
    server.create(all.clone());
    for name in ["kept", "written"] {
        server.create(json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"namespace": "shop", "name": name},
                             "spec": {"a": "1", "b": "2"}}));
    }
    let before = server.get("Thing", "shop", "kept").unwrap();
    server.update(fewer);
    assert_eq!(spec("kept"), json!({"a": "1"}));
    server.edit("Thing", "shop", "written", json!({"spec": {"a": "3"}}));
    server.update(all);
    assert_eq!(server.get("Thing", "shop", "kept").unwrap(), before);
    assert_eq!(spec("written"), json!({"a": "3"}));
}

#[tokio::test]
async fn crd_objects_make_kinds_appear_and_vanish() {
    let server = server();
    let client = server.client();
    let gvk = kube::core::GroupVersionKind::gvk("example.org", "v1", "Bucket");
    assert!(kube::discovery::pinned_kind(&client, &gvk).await.is_err());

    server.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "buckets.example.org" },
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": { "kind": "Bucket", "plural": "buckets" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    }));
    let (resource, capabilities) = kube::discovery::pinned_kind(&client, &gvk).await.unwrap();
    assert_eq!(
        (resource.plural.as_str(), capabilities.subresources.len()),
        ("buckets", 1)
    );
    server.delete("CustomResourceDefinition", "", "buckets.example.org");
    assert!(kube::discovery::pinned_kind(&client, &gvk).await.is_err());
}

#[test]
#[should_panic(expected = "the test server does not serve v9 Nonsense")]
fn direct_access_to_an_unserved_kind_is_a_failed_test() {
    server().create(json!({ "apiVersion": "v9", "kind": "Nonsense", "metadata": { "name": "x" } }));
}

#[test]
fn direct_access_is_seen_but_not_logged() {
    let server = server();
    server.create_as("user", config_map("a", json!({ "k": "1" })));
    server.apply_as("rw", config_map("a", json!({ "k": "2" })));
    server.edit(
        "ConfigMap",
        "shop",
        "a",
        json!({ "metadata": { "labels": { "x": "y" } } }),
    );
    let live: ConfigMap = server.get_typed("ConfigMap", "shop", "a").unwrap();
    assert_eq!(live.data.unwrap()["k"], "2");
    let managers: Vec<String> = live
        .metadata
        .managed_fields
        .unwrap()
        .into_iter()
        .map(|m| m.manager.unwrap())
        .collect();
    // The creator keeps the map itself: nobody took that away.
    assert_eq!(managers, ["rw", "test", "user"]);
    server.update(config_map("a", json!({ "k": "3" })));
    assert_eq!(server.get("ConfigMap", "shop", "a").unwrap()["data"]["k"], "3");
    assert!(server.delete("ConfigMap", "shop", "a"));
    assert!(!server.delete("ConfigMap", "shop", "a"));
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn thousands_of_objects_under_a_watch() {
    let server = server();
    let api = maps(server.client());
    let stream = api.watch(&WatchParams::default(), "0").await.unwrap();
    for i in 0..3000 {
        server.apply_as("m", config_map(&format!("m{i}"), json!({ "k": "v" })));
    }
    let seen: Vec<_> = stream.take(3000).collect().await;
    assert!(seen.iter().all(Result::is_ok));
    let listed = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 3000);
    for i in 0..3000 {
        api.get(&format!("m{i}")).await.unwrap();
    }
    assert_eq!(server.calls().len(), 3002);
}
