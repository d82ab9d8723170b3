//! The operator of the crate's front page, run as it stands there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;
#[path = "../examples/operator.rs"]
#[allow(dead_code, unreachable_pub)]
mod operator;

use common::eventually;
use reconcile_kit::testing::{ApiServer, ResourceDef};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn page(text: &str) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Page", "metadata": {"name": "home", "namespace": "shop"},
        "spec": {"text": text},
    })
}

fn world() -> ApiServer {
    let server = ApiServer::new();
    server.serve(ResourceDef::custom("example.org", "v1", "Page", "pages"));
    server.namespace("shop");
    server
}

async fn says(server: &ApiServer, status: &str, reason: &str, generation: u64) {
    eventually(
        server,
        &format!("{status}/{reason} of generation {generation}"),
        || {
            let page = server.get("Page", "shop", "home")?;
            let ready = &page["status"]["conditions"][0];
            let said = ready["status"] == status
                && ready["reason"] == reason
                && ready["observedGeneration"] == generation;
            said.then_some(())
        },
    )
    .await;
}

#[test]
fn a_whole_operator_takes_less_than_120_lines() {
    let lines = include_str!("../examples/operator.rs").lines().count();
    assert!(lines < 120, "{lines} lines");
}

#[tokio::test(start_paused = true)]
async fn a_page_is_published_changed_and_leaves_nothing_behind() {
    let server = world();
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator::run(server.client_as("pages"), stop.clone()));
    let text = || {
        server
            .get("ConfigMap", "shop", "home")
            .map(|m| m["data"]["index.html"].clone())
    };

    server.create(page("hello"));
    says(&server, "True", "Published", 1).await;
    assert_eq!(text(), Some(json!("hello")));

    server.edit("Page", "shop", "home", json!({"spec": {"text": "bye"}}));
    says(&server, "True", "Published", 2).await;
    assert_eq!(text(), Some(json!("bye")));

    server.edit(
        "ConfigMap",
        "shop",
        "home",
        json!({"data": {"index.html": "defaced"}}),
    );
    eventually(&server, "the edit to be undone", || {
        (text() == Some(json!("bye"))).then_some(())
    })
    .await;

    server.delete("Page", "shop", "home");
    eventually(&server, "nothing left", || {
        (server.list("Page", "shop").is_empty() && server.list("ConfigMap", "shop").is_empty()).then_some(())
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(server.open_watches("*"), 0, "nothing is watched any more");
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_name_is_taken_says_so_and_is_published_when_the_name_is_free() {
    let server = world();
    server.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "home", "namespace": "shop"},
        "data": {"index.html": "mine"},
    }));
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator::run(server.client_as("pages"), stop.clone()));

    server.create(page("hello"));
    says(&server, "False", "NameTaken", 1).await;
    let theirs = server.get("ConfigMap", "shop", "home").unwrap();
    assert_eq!(theirs["data"]["index.html"], "mine");

    server.delete("ConfigMap", "shop", "home");
    says(&server, "True", "Published", 1).await;
    stop.cancel();
    running.await.unwrap();
}
