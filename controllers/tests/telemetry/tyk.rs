//! Secrets of Gateway API on Tyk are in no trace: a route's life with a credential that fails and one that works, with
//! the exporter on and every byte kept that it sends.

use reconcile_kit::testing::ApiServer;
use serde_json::{Value, json};

use crate::{
    collector::{Collector, Tap, attributes, nowhere},
    eventually,
    places::{CREDENTIAL, Kind, ORG},
    process::{Folder, Running, on_a_socket},
    tyk_objects::{context, installed, paths, route, serve_https},
};

/// What the Secret holds at first.
const WRONG: &str = "s3cret-that-is-wrong";
/// What an attached definition puts into a header.
const HEADER: &str = "s3cret-authorization";
/// What another definition, which cannot be used, has in a URL.
const TOKEN: &str = "s3cret-token";

/// As it stands in a Secret.
fn encoded(text: &str) -> String {
    let bytes = json!(k8s_openapi::ByteString(text.as_bytes().to_vec()));
    bytes.as_str().unwrap().to_owned()
}

fn credential(server: &ApiServer, text: &str) {
    let data = json!({"data": {"TYK_AUTH": encoded(text)}});
    server.edit("Secret", "tyk", "credential", data);
}

fn definition(name: &str, route: &str, upstream: Value) -> [Value; 2] {
    let mut document = json!({"openapi": "3.0.3", "info": {"title": name, "version": "1"}, "paths": {},
        "x-tyk-api-gateway": {"info": {"name": name, "state": {"active": true}},
            "middleware": {"global": {"transformRequestHeaders": {"enabled": true,
                "add": [{"name": "Authorization", "value": format!("Bearer {HEADER}")}]}}}}});
    if !upstream.is_null() {
        document["x-tyk-api-gateway"]["upstream"] = upstream;
    }
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": name},
               "data": {"oas.json": document.to_string()}}),
        json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
               "metadata": {"namespace": "shop", "name": name},
               "spec": {"tykOAS": {"configmapRef": {"name": name, "keyName": "oas.json"}},
                        "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route}]}}),
    ]
}

fn accepted(server: &ApiServer, name: &str) -> String {
    let route = server.get("HTTPRoute", "shop", name).unwrap_or_default();
    let conditions = route["status"]["parents"][0]["conditions"].as_array().cloned();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == "Accepted");
    found.map_or("-".into(), |c| {
        format!("{}: {}", c["reason"], c["message"]).replace('"', "")
    })
}

async fn says(server: &ApiServer, name: &str, part: &str) {
    let what = format!("{part} of {name}");
    eventually(&what, async || {
        accepted(server, name).contains(part).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routes_life_with_a_credential_that_fails_and_one_that_works_sends_no_secret() {
    for kind in Kind::all() {
        let tyk = kind.start().await;
        let (collector, tap) = (Collector::default(), Tap::default());
        let endpoint = format!("http://{}", tap.before(collector.listen(nowhere())).await);
        let server = installed();
        server.delete("OperatorContext", "tyk", "main");
        let mut main = context("main", &tyk.handle().url());
        main["spec"]["env"]["mode"] = json!(kind.mode());
        main["spec"]["env"]["org"] = json!(ORG);
        server.create(main);
        credential(&server, WRONG);
        let key = serve_https(&server);
        for object in definition("auth", "r", Value::Null) {
            server.create(object);
        }
        for object in definition(
            "bad",
            "bad",
            json!({"url": format!("http://user:{TOKEN}@elsewhere")}),
        ) {
            server.create(object);
        }
        let folder = Folder::new();
        let api = format!("http://{}", on_a_socket(&server).await);
        let mut operator = Running::start_with(
            &folder,
            &api,
            // Everything that can be said.
            &["--enable-tyk", "--log-format=json", "--log-level=trace"],
            &[
                ("LEADER_ELECT", "false"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ],
        );
        // given a credential that Tyk does not take
        server.create(route(&["/a", "/b"]));
        let mut bad = route(&["/bad"]);
        bad["metadata"]["name"] = json!("bad");
        server.create(bad);
        says(&server, "r", "TranslationFailed").await;
        says(&server, "bad", "BaseDocumentInvalid").await;
        // when it is replaced by the right one, the route changes, and goes
        credential(&server, CREDENTIAL);
        says(&server, "r", "Accepted: 2 APIs").await;
        assert!(
            tyk.loaded().values().any(|d| d.to_string().contains(HEADER)),
            "it is written to Tyk, as asked"
        );
        assert_eq!(tyk.certificates(), 1);
        server.edit("HTTPRoute", "shop", "r", paths(&["/a"]));
        says(&server, "r", "Accepted: 1 API").await;
        // and the wrong one comes back while the route goes
        credential(&server, WRONG);
        server.delete("HTTPRoute", "shop", "r");
        eventually("DeletionFailed", async || {
            let events = server.list("Event", "");
            events
                .iter()
                .any(|event| event["reason"] == "DeletionFailed")
                .then_some(())
        })
        .await;
        credential(&server, CREDENTIAL);
        eventually("the end", async || {
            server.get("HTTPRoute", "shop", "r").is_none().then_some(())
        })
        .await;
        let metrics = reqwest::get(format!("http://{}/metrics", operator.metrics));
        let metrics = metrics.await.unwrap().text().await.unwrap();
        let ready = reqwest::get(format!("http://{}/readyz?verbose", operator.probes));
        let ready = ready.await.unwrap().text().await.unwrap();
        let (code, log) = tokio::task::spawn_blocking(move || operator.terminate())
            .await
            .unwrap();
        assert_eq!(code, Some(0), "{log}");

        // then there is something to look through, failures and successes of the route
        let ends: Vec<_> = collector
            .reconciles()
            .iter()
            .map(|span| attributes(&span.attributes))
            .filter(|said| said["controller"] == "tyk-httproute" && said["object.name"] == "r")
            .map(|said| said["outcome"].clone())
            .collect();
        assert!(ends.iter().any(|end| end == "success"), "{ends:?}");
        assert!(ends.iter().any(|end| end != "success"), "{ends:?}");
        // and what Tyk had to do with each, in its trace
        let spans = collector.spans();
        let of_tyk = |span: &&super::Span| ["reach", "submit"].contains(&span.name.as_str());
        let submits: Vec<_> = spans.iter().filter(of_tyk).collect();
        let with = |class: Option<&str>| {
            let said = submits.iter().map(|span| attributes(&span.attributes));
            said.filter(|said| said.get("error.class").map(String::as_str) == class)
                .count()
        };
        assert!(with(Some("denied")) >= 2 && with(None) >= 3, "{submits:#?}");
        for submit in &submits {
            let parent = spans.iter().find(|span| span.span_id == submit.parent_span_id);
            assert_eq!(parent.map(|span| span.name.as_str()), Some("reconcile"));
            let said = attributes(&submit.attributes);
            assert_eq!(
                (said["server.address"].as_str(), said["tyk.context"].as_str()),
                ("127.0.0.1", "tyk/main")
            );
        }
        let sent = tap.bytes();
        let sent = String::from_utf8_lossy(&sent).into_owned();
        assert!(sent.contains("tyk-httproute"), "the tap hears what is sent");
        assert!(log.contains("tyk-httproute"));
        let mut objects = server.list("Event", "");
        assert!(objects.len() > 1);
        for kind in [
            "HTTPRoute",
            "Gateway",
            "GatewayClass",
            "TykOasApiDefinition",
            "OperatorContext",
        ] {
            objects.extend(server.list(kind, ""));
        }
        let objects = json!(objects).to_string();
        // and no secret in any of it
        let line = key.lines().nth(1).unwrap().to_owned();
        let secrets = [WRONG, CREDENTIAL, HEADER, TOKEN, line.as_str()].map(str::to_owned);
        let hidden = secrets.iter().map(|secret| encoded(secret));
        let places = [
            ("what the exporter sent", &sent),
            ("the log", &log),
            ("events and objects", &objects),
            ("metrics", &metrics),
            ("readiness", &ready),
        ];
        println!(
            "{kind:?}: {} spans, {} bytes sent, {} of log, {} of objects, {} of metrics: no secret",
            collector.spans().len(),
            sent.len(),
            log.len(),
            objects.len(),
            metrics.len()
        );
        for secret in secrets.iter().cloned().chain(hidden) {
            for (place, text) in places {
                let at = text.find(&secret);
                let around = at.map(|at| {
                    text[at.saturating_sub(600)..]
                        .chars()
                        .take(700)
                        .collect::<String>()
                });
                assert!(at.is_none(), "{kind:?}: {secret} is in {place}: {around:?}");
            }
        }
    }
}
