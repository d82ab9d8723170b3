//! What tests use of the stand-in: writing and loading, faults, crash points, changes behind one's back. That it agrees
//! with a real gateway is shown by the suite `gateway_contract` of the crate `routewright`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::time::Duration;

use reqwest::{Client, Method};
use routewright_tyk_double::{Double, Fault, Handle, Running, Side};
use serde_json::{Value, json};

async fn gateway() -> Running {
    Double::gateway().secret("s").start().await.unwrap()
}

fn document(id: &str, path: &str) -> Value {
    json!({
        "openapi": "3.0.3", "info": {"title": id, "version": "1"},
        "paths": {"/(?s).*": {"get": {"operationId": "get", "responses": {"default": {"description": ""}}}}},
        "x-tyk-api-gateway": {
            "info": {"id": id, "orgId": "org1", "name": id, "state": {"active": true}},
            "server": {"listenPath": {"value": path, "strip": true}},
            "upstream": {"url": "http://127.0.0.1:9"},
        },
    })
}

async fn ask(tyk: &Handle, method: Method, path: &str, body: &str) -> Result<(u16, Value), reqwest::Error> {
    let answer = Client::new()
        .request(method, format!("{}{path}", tyk.url()))
        .header("x-tyk-authorization", "s")
        .header("authorization", "s")
        .body(body.to_owned())
        .send()
        .await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(json!(text))))
}

async fn post(tyk: &Handle, id: &str, path: &str) -> u16 {
    let body = document(id, path).to_string();
    ask(tyk, Method::POST, "/tyk/apis/oas", &body).await.unwrap().0
}

async fn reload(tyk: &Handle) {
    let (status, _) = ask(tyk, Method::GET, "/tyk/reload/?block=true", "")
        .await
        .unwrap();
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_document_is_there_after_the_reload() {
    let tyk = gateway().await;
    assert_eq!(post(&tyk, "a", "/a").await, 200);
    let get = || ask(&tyk, Method::GET, "/tyk/apis/oas/a", "");
    assert_eq!(get().await.unwrap().0, 404);
    reload(&tyk).await;
    assert_eq!(get().await.unwrap().1["info"]["title"], "a");
    let delete = || ask(&tyk, Method::DELETE, "/tyk/apis/oas/a", "");
    assert_eq!(delete().await.unwrap().0, 200);
    assert_eq!(
        delete().await.unwrap(),
        (500, json!({"status": "error", "message": "Delete failed"}))
    );
    reload(&tyk).await;
    assert_eq!(get().await.unwrap().0, 404);
    let asked: Vec<_> = tyk
        .requests()
        .into_iter()
        .map(|one| one.status.unwrap())
        .collect();
    assert_eq!(asked, [200, 404, 200, 200, 200, 500, 200, 404]);
    assert_eq!((tyk.counts().writes, tyk.counts().deletes), (1, 1));
}

/// A key with a parameter is no reason to leave a document out; a listen path without slash is.
#[tokio::test]
async fn a_path_with_a_parameter_loads() {
    let tyk = gateway().await;
    let mut one = document("a", "/a");
    one["paths"]["/books/{id}"] = json!({
        "get": {"operationId": "book", "responses": {"default": {"description": ""}}},
        "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
    });
    one["x-tyk-api-gateway"]["middleware"] = json!({"operations": {"book": {"allow": {"enabled": true}}}});
    tyk.create(one);
    tyk.create(document("b", "no-slash"));
    assert_eq!(tyk.loaded().into_keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(tyk.files().len(), 2);
}

#[tokio::test]
async fn faults_hit_the_requests_that_they_name() {
    let tyk = gateway().await;
    tyk.inject(Fault::on("POST", "/tyk/apis").status(503, "later"));
    assert_eq!(post(&tyk, "a", "/a").await, 503);
    assert!(tyk.files().is_empty());
    tyk.inject(Fault::on("POST", "/tyk/apis").drop_after());
    let body = document("a", "/a").to_string();
    assert!(ask(&tyk, Method::POST, "/tyk/apis/oas", &body).await.is_err());
    assert_eq!(tyk.files().len(), 1);
    tyk.inject(Fault::on("GET", "/tyk/reload").drop_before());
    assert!(
        ask(&tyk, Method::GET, "/tyk/reload/?block=true", "")
            .await
            .is_err()
    );
    assert!(tyk.loaded().is_empty());
    tyk.inject(Fault::on("", "/tyk").garbage());
    assert!(
        ask(&tyk, Method::GET, "/tyk/apis/oas", "")
            .await
            .unwrap()
            .1
            .is_string()
    );
    assert_eq!(
        ask(&tyk, Method::GET, "/tyk/apis/oas", "").await.unwrap().1,
        json!([])
    );
    tyk.inject(Fault::on("GET", "/tyk").hang());
    let slow = ask(&tyk, Method::GET, "/tyk/apis/oas", "");
    assert!(
        tokio::time::timeout(Duration::from_millis(50), slow)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_change_can_be_stopped_on_both_sides() {
    let tyk = gateway().await;
    let handle = tyk.handle();
    for (side, written, discard) in [
        (Side::Before, 0, true),
        (Side::After, 1, true),
        (Side::Before, 1, false),
    ] {
        let mut pause = tyk.pause_at(tyk.steps() + 1, side);
        let other = handle.clone();
        let id = format!("a{discard}");
        let caller = tokio::spawn(async move {
            let body = document(&id, "/a").to_string();
            ask(&other, Method::POST, "/tyk/apis/oas", &body).await
        });
        pause.reached().await;
        assert_eq!(tyk.files().len(), written, "{side:?}");
        if discard {
            pause.discard();
            assert!(caller.await.unwrap().is_err());
            assert_eq!(tyk.files().len(), written, "{side:?}");
        } else {
            pause.release();
            assert_eq!(caller.await.unwrap().unwrap().0, 200);
            assert_eq!(tyk.files().len(), written + 1);
        }
    }
}

#[tokio::test]
async fn things_happen_behind_ones_back() {
    let tyk = gateway().await;
    post(&tyk, "a", "/a").await;
    post(&tyk, "b", "/b").await;
    reload(&tyk).await;
    assert!(tyk.edit("a", |document| document["x-mine"] = json!(false)));
    assert_eq!(tyk.loaded()["a"]["x-mine"], false);
    assert!(tyk.rename("b", "/b-b") && tyk.remove("a"));
    reload(&tyk).await;
    assert_eq!(tyk.listen_path("b").as_deref(), Some("/b-b"));
    assert_eq!(tyk.loaded().len(), 1);
    tyk.restart();
    assert_eq!(tyk.listen_path("b").as_deref(), Some("/b"));
    tyk.lose_files();
    assert!(tyk.loaded().is_empty());
    assert_eq!(ask(&tyk, Method::GET, "/ready", "").await.unwrap().0, 200);
}

#[tokio::test]
async fn reloads_happen_at_the_tick() {
    let tyk = Double::gateway()
        .secret("s")
        .reload_tick(Duration::from_millis(40))
        .start()
        .await
        .unwrap();
    post(&tyk, "a", "/a").await;
    tokio::join!(reload(&tyk), reload(&tyk), reload(&tyk));
    assert_eq!(tyk.loaded().len(), 1);
    assert_eq!(tyk.counts().reloads, 3);
}

#[tokio::test]
async fn the_dashboard_needs_no_reload() {
    let tyk = Double::dashboard()
        .secret("s")
        .duplicate_slugs(false)
        .start()
        .await
        .unwrap();
    let send = |method: Method, path: &'static str, id: &'static str, listen: &'static str| {
        let body = document(id, listen).to_string();
        let tyk = tyk.handle();
        async move { ask(&tyk, method, path, &body).await.unwrap() }
    };
    let (status, made) = send(Method::POST, "/api/apis/oas", "a", "/a").await;
    assert_eq!((status, made["ID"].as_str()), (200, Some("a")));
    let (status, shown) = send(Method::GET, "/api/apis/oas/a", "", "").await;
    assert_eq!(
        (status, &shown["x-tyk-api-gateway"]["info"]["dbId"]),
        (200, &made["Meta"])
    );
    let again = send(Method::POST, "/api/apis/oas", "a", "/x").await;
    assert_eq!(
        (again.0, &again.1["Message"]),
        (409, &json!("Found API with the same ID."))
    );
    assert_eq!(send(Method::POST, "/api/apis/oas", "b", "/a").await.0, 403);
    let missing = send(Method::GET, "/api/apis/oas/none", "", "").await;
    assert_eq!(
        (missing.0, &missing.1["Message"]),
        (400, &json!("Could not retrieve API detail."))
    );
    assert_eq!(send(Method::PUT, "/api/apis/oas/a", "a", "/c").await.0, 200);
    let (_, list) = send(Method::GET, "/api/apis?p=-2", "", "").await;
    assert_eq!(list["apis"][0]["api_definition"]["proxy"]["listen_path"], "/c");
    assert_eq!(send(Method::DELETE, "/api/apis/oas/a", "", "").await.0, 200);
    assert_eq!(send(Method::DELETE, "/api/apis/oas/a", "", "").await.0, 404);
}

#[tokio::test]
async fn the_dashboard_takes_certificates_as_forms() {
    let tyk = Double::dashboard().secret("s").start().await.unwrap();
    let made = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).unwrap();
    let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    let mut answers = Vec::new();
    for _ in 0..2 {
        let body = format!(
            "--x\r\nContent-Disposition: form-data; name=\"cert\"; filename=\"cert.pem\"\r\n\r\n{pem}\r\n--x--\r\n"
        );
        let answer = Client::new()
            .post(format!("{}/api/certs", tyk.url()))
            .header("authorization", "s")
            .header("content-type", "multipart/form-data; boundary=x")
            .body(body)
            .send()
            .await
            .unwrap();
        answers.push(answer.status().as_u16());
    }
    assert_eq!(answers, [200, 404]);
    assert!(tyk.certificates().values().all(|one| one.has_private));
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_shown_nowhere() {
    let tyk = Double::gateway().secret("another-one").start().await.unwrap();
    let (status, body) = ask(&tyk, Method::GET, "/tyk/apis/oas", "").await.unwrap();
    assert_eq!(
        (status, body["message"].as_str().unwrap()),
        (
            403,
            "Attempted administrative access with invalid or missing key!"
        )
    );
    assert!(!format!("{:?}", *tyk).contains("another-one"));
    assert!(!format!("{:?}", Double::gateway().secret("another-one")).contains("another-one"));
}

#[tokio::test]
async fn a_front_has_faults_and_stops_and_another_tyk_has_the_documents() {
    let tyk = gateway().await;
    let front = Double::gateway().before(tyk.address()).start().await.unwrap();
    // given a front, then what it is asked is answered behind it, with the secret that is wanted there
    assert_eq!(post(&front, "a", "/a").await, 200);
    reload(&front).await;
    assert_eq!(tyk.loaded().len(), 1);
    assert_eq!((front.loaded().len(), front.steps()), (0, 2));
    let counts = front.counts();
    assert_eq!((counts.writes, counts.reloads, counts.requests), (1, 1, 2));
    assert_eq!(front.requests()[0].document.as_deref(), Some("a"));
    // when a connection is cut before or after, then the one behind has not heard of it, or has
    for (side, files) in [(Side::Before, 1), (Side::After, 2)] {
        let mut pause = front.pause_at(front.steps() + 1, side);
        let handle = front.handle();
        let body = document("b", "/b").to_string();
        let asking = tokio::spawn(async move { ask(&handle, Method::POST, "/tyk/apis/oas", &body).await });
        pause.reached().await;
        assert_eq!(front.pending(), 1);
        pause.discard();
        assert!(asking.await.unwrap().is_err());
        assert_eq!((tyk.files().len(), front.pending()), (files, 0), "{side:?}");
    }
    front.inject(Fault::on("", "/").status(503, "later"));
    assert_eq!(post(&front, "c", "/c").await, 503);
    assert_eq!(tyk.files().len(), 2);
    // when it is gone, then nobody answers
    drop(tyk);
    assert!(ask(&front, Method::GET, "/tyk/apis/oas", "").await.is_err());
}
