//! The conformity suite against the test server, and against a real API server when one is named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io::Write;

use reconcile_kit::testing::conformity::{self, NOBODY};
use reconcile_kit::testing::{ApiServer, ResourceDef};

/// The test server with everything that the suite asks for.
fn server() -> ApiServer {
    let server = ApiServer::new();
    server.serve(ResourceDef::http_route());
    server.serve(ResourceDef::gateway());
    server.deny(NOBODY, "*", "*");
    server
}

fn report(results: &[conformity::CheckResult]) {
    let failed: Vec<String> = results
        .iter()
        .filter(|r| r.is_failure())
        .map(std::string::ToString::to_string)
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} checks failed\n{}",
        failed.len(),
        results.len(),
        failed.join("\n")
    );
}

#[tokio::test(start_paused = true)]
async fn the_test_server_behaves_like_a_real_one() {
    if let Ok(path) = std::env::var("CONFORMITY_OBSERVE_TEST_SERVER") {
        let mut file = std::fs::File::create(path).unwrap();
        conformity::observe(server().client(), "probes", "", |notes| {
            file.write_all(notes.as_bytes()).unwrap()
        })
        .await;
        return;
    }
    let results = conformity::run(server().client(), "probes").await;
    assert!(results.len() > 50, "all checks ran");
    report(&results);
}

/// Against the API server of `CONFORMITY_KUBECONFIG`. With `CONFORMITY_OBSERVE` set, prints the notes in the format of
/// `expected.txt` instead of comparing them.
#[tokio::test]
#[ignore = "needs a real API server: CONFORMITY_KUBECONFIG"]
async fn a_real_server_behaves_as_expected() {
    let path = std::env::var("CONFORMITY_KUBECONFIG").expect("CONFORMITY_KUBECONFIG names a kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let filter = std::env::var("CONFORMITY_ONLY").unwrap_or_default();
    if let Ok(path) = std::env::var("CONFORMITY_OBSERVE") {
        let mut file = std::fs::File::create(path).unwrap();
        conformity::observe(client, "probes", &filter, |notes| {
            file.write_all(notes.as_bytes()).unwrap()
        })
        .await;
        return;
    }
    report(&conformity::run_only(client, "probes", &filter).await);
}
