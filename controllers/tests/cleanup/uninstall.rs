//! The Jobs of the chart act on uninstall alone: while the release is deployed they change nothing, and their error says why and
//! what to do.

use std::process::{Output, Stdio};

use kube::Client;
use reconcile_kit::testing::{ApiServer, Fault, Matcher, ResourceDef, Times};
use routewright::cli::cleanup::stop::{Feature, refuse_unless_released, refuse_while_deployed};
use serde_json::{Value, json};

use crate::{
    process::{Folder, on_a_socket, program},
    support::OPERATOR,
};

const PLACE: (&str, &str) = ("rw", "rw-routewright");

/// A cluster that serves Deployments, with a namespace for the release.
fn server() -> ApiServer {
    let server = crate::support::server(true);
    server.namespace(PLACE.0);
    server
        .serve(ResourceDef::custom("apps", "v1", "Deployment", "deployments"))
        .serve(ResourceDef::gateway_class())
        .serve(ResourceDef::gateway());
    server
}

/// The operator's Deployment as the chart makes it, with these features on.
fn deployment(features: &[Feature]) -> Value {
    let labels: serde_json::Map<String, Value> = features
        .iter()
        .map(|feature| (feature.label().to_owned(), json!("true")))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": PLACE.0, "name": PLACE.1, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "routewright"}]}},
        },
    })
}

/// The same, installed by Helm.
fn of_release(release: &str) -> Value {
    let mut deployment = deployment(&[Feature::Tyk]);
    deployment["metadata"]["annotations"] =
        json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": PLACE.0});
    deployment
}

/// A bucket and a route that the operator holds.
fn held(server: &ApiServer) {
    server.create(json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "site", "finalizers": ["routewright.dev/garage-bucket"]},
        "spec": {"clusterRef": {"name": "garage"}},
    }));
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "web", "name": "site", "finalizers": ["routewright.dev/tyk-httproute"]},
        "spec": {"parentRefs": [{"name": "edge"}]},
    }));
}

async fn cleanup(server: &ApiServer, words: &[&str]) -> Output {
    let folder = Folder::new();
    let config = folder.kubeconfig(&format!("http://{}", on_a_socket(server).await));
    let mut command = program(Some(&config), &["cleanup"]);
    command.args(words).env("POD_NAMESPACE", PLACE.0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_is_applied_with_the_rest_changes_nothing() {
    for (feature, words, says) in [
        (
            Feature::GarageBuckets,
            &["--garage", "--unless-deployed=rw-routewright"][..],
            "runs with garageBuckets.enabled and is not being deleted",
        ),
        (
            Feature::Tyk,
            &["--tyk", "--keep-apis", "--unless-deployed=rw-routewright"],
            "runs with tyk.enabled and is not being deleted",
        ),
        (
            Feature::Tyk,
            &[
                "--tyk",
                "--keep-apis",
                "--stop-deployment=rw-routewright",
                "--helm-release=rw",
            ],
            "was not installed by Helm",
        ),
    ] {
        // Given a release that stands, with objects that it holds
        let server = server();
        server.create(deployment(&[feature]));
        held(&server);
        let mark = server.mark();
        // When the Job runs with the arguments that the chart gives it
        let output = cleanup(&server, words).await;
        // Then it fails, says why and what to do, and has written nothing
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        for part in [
            "nothing was changed",
            "Deployment rw/rw-routewright",
            says,
            "--no-hooks",
        ] {
            assert!(error.contains(part), "{words:?}: no {part:?} in {error}");
        }
        assert!(server.writes_since(mark).is_empty(), "{words:?}");
    }
}

async fn deployed(client: &Client, features: &[Feature]) -> Result<(), String> {
    refuse_while_deployed(client, PLACE.0, PLACE.1, features)
        .await
        .map_err(|failure| failure.message)
}

#[tokio::test(start_paused = true)]
async fn a_release_that_goes_or_has_the_feature_off_does_not_refuse() {
    let server = server();
    let client = server.client_as(OPERATOR);
    let both = [Feature::GarageBuckets, Feature::Tyk];
    // Given no Deployment, then it is absent for some seconds before that counts
    let start = tokio::time::Instant::now();
    deployed(&client, &both).await.unwrap();
    assert!(start.elapsed().as_secs() >= 5);
    // Given one that the same rendering brings a moment later, then that counts
    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        server.create(deployment(&[Feature::Tyk]));
    };
    let (refused, ()) = tokio::join!(deployed(&client, &both), late);
    assert!(refused.unwrap_err().contains("tyk.enabled and is not"));
    // Given one with the other feature on, as after an upgrade that switches this one off
    deployed(&client, &[Feature::GarageBuckets]).await.unwrap();
    // Given one that is being deleted
    server.delete("Deployment", PLACE.0, PLACE.1);
    let mut going = deployment(&both);
    going["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    server.create(going);
    let refused = deployed(&client, &both).await.unwrap_err();
    assert!(
        refused.contains("garageBuckets.enabled and tyk.enabled"),
        "{refused}"
    );
    server.delete("Deployment", PLACE.0, PLACE.1);
    deployed(&client, &both).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_the_deployment_of_the_own_helm_release_is_stopped() {
    for (object, release, refusal) in [
        (of_release("rw"), "rw", None),
        (
            of_release("other"),
            "rw",
            Some("belongs to Helm release other, not to rw/rw"),
        ),
        (
            deployment(&[Feature::Tyk]),
            "rw",
            Some("was not installed by Helm"),
        ),
    ] {
        let server = server();
        server.create(object);
        let judged = refuse_unless_released(&server.client_as(OPERATOR), PLACE.0, PLACE.1, release).await;
        match (judged, refusal) {
            (Ok(()), None) => {}
            (Err(failure), Some(why)) => assert!(failure.message.contains(why), "{}", failure.message),
            (judged, refusal) => panic!("{judged:?}, expected {refusal:?}"),
        }
    }
    // A release of the same name in another namespace is another one
    let server = server();
    let mut object = of_release("rw");
    object["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = json!("elsewhere");
    server.create(object);
    refuse_unless_released(&server.client_as(OPERATOR), PLACE.0, PLACE.1, "rw")
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_tell_is_no_uninstall() {
    // Given no right to read the Deployment, or an API server that fails for long
    for status in [403, 503] {
        let server = server();
        server.create(deployment(&[Feature::Tyk]));
        server.fault(
            Matcher::reads().user(OPERATOR),
            Fault::Status(status),
            Times::Always,
        );
        let refused = deployed(&server.client_as(OPERATOR), &[Feature::Tyk])
            .await
            .unwrap_err();
        assert!(
            refused.contains("nothing was changed") && refused.contains("cannot be read"),
            "{refused}"
        );
    }
}
