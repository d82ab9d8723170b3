//! The keep/remove table, row by row: what happens to the APIs of a route when something is in the way.

use routewright::tyk::client::TykErrorClass;
use serde_json::{Value, json};

use super::{
    bench::*,
    tyks::{Where, everywhere},
};

everywhere!(
    what_may_pass_keeps_the_api_as_it_was_written_last,
    what_may_pass_creates_no_api_where_there_is_none,
    an_unreadable_definition_never_opens_an_api_and_a_readable_one_protects_it,
    what_is_over_removes_the_api,
    a_rule_a_path_or_a_host_that_is_gone_takes_its_api_along,
    a_claim_that_is_lost_removes_the_api_and_one_that_is_won_brings_it,
    a_shared_data_plane_serves_a_place_once,
    tyk_unreachable_keeps_what_stands_and_is_translation_failed,
    a_reference_that_does_not_resolve_answers_500_by_the_unresolved_backend,
);

pub(super) fn definition(document: Value) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "doc"},
               "data": {"oas.json": document.to_string()}}),
        json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
               "metadata": {"namespace": "shop", "name": "auth"},
               "spec": {"tykOAS": {"configmapRef": {"name": "doc", "keyName": "oas.json"}},
                        "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r"}]}}),
    ]
}

pub(super) fn oas() -> Value {
    json!({"openapi": "3.0.3", "info": {"title": "auth", "version": "1"}, "paths": {},
           "x-tyk-api-gateway": {"info": {"name": "auth", "state": {"active": true}},
                                 "server": {"authentication": {"enabled": true}}}})
}

/// What is in the way, and what Accepted says then.
type Hindrance = (&'static str, fn(&Bench));

fn keeps() -> Vec<Hindrance> {
    vec![
        ("EnvironmentUnresolved", |b| {
            b.server.delete("Secret", "tyk", "credential");
        }),
        ("BaseDocumentUnresolved", |b| {
            let [_, definition] = definition(oas());
            b.server.create(definition);
        }),
        ("BaseDocumentInvalid", |b| {
            let mut bad = oas();
            bad.as_object_mut().unwrap().remove("x-tyk-api-gateway");
            definition(bad).into_iter().for_each(|o| drop(b.server.create(o)));
        }),
        ("AttachmentConflict", |b| {
            let mut both = oas();
            both["paths"] =
                json!({"/(?s).*": {"get": {"operationId": "x", "responses": {"200": {"description": "y"}}}}});
            definition(both)
                .into_iter()
                .for_each(|o| drop(b.server.create(o)));
        }),
    ]
}

fn removes() -> Vec<Hindrance> {
    vec![
        ("NoMatchingParent", |b| {
            b.edit(json!({"spec": {"parentRefs": [{"name": "edge", "namespace": "infra", "sectionName": "no"}]}}));
        }),
        ("NotAllowedByListeners", |b| {
            let listener = json!({"name": "web", "protocol": "HTTP", "port": 80});
            b.server.edit(
                "Gateway",
                "infra",
                "edge",
                json!({"spec": {"listeners": [listener]}}),
            );
        }),
        ("NoMatchingListenerHostname", |b| {
            let listener = json!({"name": "web", "protocol": "HTTP", "port": 80, "hostname": "z.example.org",
                                  "allowedRoutes": {"namespaces": {"from": "All"}}});
            b.server.edit(
                "Gateway",
                "infra",
                "edge",
                json!({"spec": {"listeners": [listener]}}),
            );
        }),
        ("UnsupportedValue", |b| {
            let mut bad = rule("/a");
            bad["timeouts"] = json!({"request": "5s"});
            b.edit(json!({"spec": {"rules": [bad]}}));
        }),
        ("-", |b| {
            b.server.delete("Gateway", "infra", "edge");
        }),
    ]
}

fn reason(bench: &Bench) -> String {
    let said = bench.accepted();
    let reason = said.split_once('/').map_or(said.as_str(), |(_, rest)| rest);
    reason.split(':').next().unwrap().to_owned()
}

async fn what_may_pass_keeps_the_api_as_it_was_written_last(place: Where) {
    for (wanted, hinder) in keeps() {
        let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
        let before = bench.tyk.at(URL);
        hinder(&bench);
        bench.settle().await;
        assert_eq!(reason(&bench), wanted);
        assert_eq!(bench.tyk.at(URL), before, "{wanted}");
        assert_eq!(bench.annotation(), bench.remembers(&["/a", "/b"]), "{wanted}");
        // and a restart changes nothing of that
        bench.restart();
        assert_eq!(bench.settle().await, NOTHING, "{wanted}");
        assert_eq!(bench.tyk.writes(), NOTHING, "{wanted}");
    }
}

async fn what_may_pass_creates_no_api_where_there_is_none(place: Where) {
    for (wanted, hinder) in keeps() {
        let mut bench = Bench::at(&place).await;
        hinder(&bench);
        bench.server.create(route(&["/a"]));
        bench.settle().await;
        assert_eq!(reason(&bench), wanted);
        assert_eq!(
            (bench.tyk.ids(URL), bench.annotation()),
            (vec![], None),
            "{wanted}"
        );
        assert!(!bench.has_finalizer(), "{wanted}");
    }
}

async fn an_unreadable_definition_never_opens_an_api_and_a_readable_one_protects_it(place: Where) {
    // given a route that begins its life with a definition whose ConfigMap is not there
    let mut bench = Bench::at(&place).await;
    let [map, definition] = definition(oas());
    bench.server.create(definition);
    bench.server.create(route(&["/a"]));
    bench.settle().await;
    assert_eq!(bench.tyk.ids(URL), NOTHING);
    // when the ConfigMap comes, then the API comes with it
    bench.server.create(map);
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    let protects = |bench: &Bench| {
        let document = bench.tyk.at(URL)[&id("/a")].clone();
        document["x-tyk-api-gateway"]["server"]["authentication"]["enabled"] == json!(true)
    };
    assert!(protects(&bench));
    // when it goes again, then the last definition that was read stays in use
    bench.server.delete("ConfigMap", "shop", "doc");
    bench.settle().await;
    assert_eq!(reason(&bench), "BaseDocumentUnresolved");
    assert!(protects(&bench));
    // and a new path does not come into being unprotected, while an old one that the route gave up goes
    bench.edit(paths(&["/new"]));
    bench.settle().await;
    assert_eq!(bench.tyk.ids(URL), NOTHING);
}

async fn what_is_over_removes_the_api(place: Where) {
    for (wanted, hinder) in removes() {
        let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
        hinder(&bench);
        bench.settle().await;
        assert_eq!(reason(&bench), wanted);
        assert_eq!(
            (bench.tyk.ids(URL), bench.annotation()),
            (vec![], None),
            "{wanted}"
        );
        assert!(!bench.has_finalizer(), "{wanted}");
        assert_eq!(bench.events(), NOTHING, "{wanted}");
    }
}

async fn a_rule_a_path_or_a_host_that_is_gone_takes_its_api_along(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a", "/b"])]).await;
    bench.edit(paths(&["/b"]));
    bench.settle().await;
    assert_eq!(bench.tyk.ids(URL), ids(&["/b"]));
    bench.edit(json!({"spec": {"hostnames": ["other.example.com"]}}));
    bench.settle().await;
    assert_eq!(bench.tyk.ids(URL).len(), 1);
    assert_ne!(bench.tyk.ids(URL), ids(&["/b"]));
}

async fn a_claim_that_is_lost_removes_the_api_and_one_that_is_won_brings_it(place: Where) {
    // given an older route on the host and path of a younger one
    let mut bench = Bench::at_with(&place, [route_named("a-older", "a.example.com", &["/x"])]).await;
    bench.server.create(route(&["/a", "/x"]));
    bench.settle().await;
    assert!(
        bench
            .said("PartiallyInvalid", 0)
            .starts_with("True/UnsupportedValue: Dropped Rule 1")
    );
    assert_eq!(bench.annotation(), bench.remembers(&["/a"]));
    // when the older one goes, then the younger one takes over
    bench.server.delete("HTTPRoute", "shop", "a-older");
    bench.settle().await;
    assert_eq!(bench.annotation(), bench.remembers(&["/a", "/x"]));
    assert_eq!(bench.said("PartiallyInvalid", 0), "-");
    assert_eq!(bench.tyk.ids(URL), ids(&["/a", "/x"]));
}

async fn a_shared_data_plane_serves_a_place_once(place: Where) {
    let mut bench = Bench::at(&place).await;
    bench.server.create(gateway("second", "tyk"));
    let mut object = route(&["/a"]);
    object["spec"]["parentRefs"] =
        json!([{"name": "edge", "namespace": "infra"}, {"name": "second", "namespace": "infra"}]);
    bench.server.create(object);
    bench.settle().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    assert!(bench.said("Accepted", 1).starts_with("False/DataPlaneShared"));
    assert_eq!(bench.tyk.ids(URL), ids(&["/a"]));
}

async fn tyk_unreachable_keeps_what_stands_and_is_translation_failed(place: Where) {
    let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
    let before = bench.tyk.at(URL);
    bench.tyk.breaks(Some(TykErrorClass::Unreachable));
    bench.server.delete("Service", "shop", "web");
    bench.settle().await;
    assert!(
        bench
            .accepted()
            .starts_with("False/TranslationFailed: host a.example.com, path /a: "),
        "{}",
        bench.accepted()
    );
    assert_eq!(
        (bench.tyk.at(URL), bench.annotation()),
        (before, bench.remembers(&["/a"]))
    );
    bench.tyk.breaks(None);
    bench.retry().await;
    assert_eq!(bench.accepted(), "True/Accepted: 1 API");
    assert_ne!(bench.tyk.writes(), NOTHING);
}

async fn a_reference_that_does_not_resolve_answers_500_by_the_unresolved_backend(place: Where) {
    for (reference, wanted) in [
        (
            json!({"name": "web", "namespace": "infra", "port": 80}),
            "RefNotPermitted",
        ),
        (json!({"name": "absent", "port": 80}), "BackendNotFound"),
        (json!({"name": "web", "kind": "Lamp", "port": 80}), "InvalidKind"),
    ] {
        let mut bench = Bench::at_with(&place, [route(&["/a"])]).await;
        let mut rule = rule("/a");
        rule["backendRefs"] = json!([reference]);
        bench.edit(json!({"spec": {"rules": [rule]}}));
        bench.settle().await;
        let resolved = bench.said("ResolvedRefs", 0);
        assert!(resolved.starts_with(&format!("False/{wanted}")), "{resolved}");
        let document = bench.tyk.at(URL)[&id("/a")].to_string();
        assert!(document.contains("http://unresolved.backend.invalid"), "{wanted}");
    }
}
