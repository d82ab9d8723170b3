//! Secrets and ConfigMaps: read when they are named and when they change, and not otherwise.

use std::time::Duration;

use reconcile_kit::testing::{Fault, Matcher, Times, Verb};
use serde_json::{Value, json};

use super::{support, world::*};

/// A Secret with a certificate for this name.
pub(crate) fn certificate(namespace: &str, name: &str) -> Value {
    let made = rcgen::generate_simple_self_signed([format!("{name}.example.org")]).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": namespace, "name": name},
        "data": {"tls.crt": encode(&made.cert.pem()), "tls.key": encode(&made.signing_key.serialize_pem())},
    })
}

fn https(namespace: Option<&str>) -> Value {
    let mut reference = json!({"name": "cert"});
    if let Some(namespace) = namespace {
        reference["namespace"] = json!(namespace);
    }
    json!({"spec": {"listeners": [
        {"name": "web", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": [reference]}}]}})
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_changes_is_read_once_and_nothing_is_written_unless_something_follows() {
    let mut story = Story::begin().await;
    // Given a Secret that is named, when its credential is another
    story.edit(
        "Secret",
        "connection",
        json!({"data": {"TYK_AUTH": encode("another")}}),
    );
    // then it is read once, and no status says anything else
    assert_eq!(story.settle().await, ["GET secrets connection -> 200"]);
    // when it loses its URL, then the class says so
    story.edit("Secret", "connection", json!({"data": {"TYK_URL": null}}));
    let lines = story.settle().await;
    assert_eq!(
        lines.iter().filter(|l| l.starts_with("GET")).count(),
        1,
        "{lines:?}"
    );
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted False/InvalidParameters"
    );
    // A Secret that nobody names is never read.
    story.server.create(certificate("web", "unused"));
    assert_eq!(story.settle().await, support::NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_valid_as_long_as_it_is_there() {
    let mut story = Story::begin().await;
    story.edit("Gateway", "public", https(None));
    story.settle().await;
    assert!(
        story
            .listener("web")
            .contains(&"ResolvedRefs False/InvalidCertificateRef".to_owned())
    );
    story.server.create(certificate("web", "cert"));
    let lines = story.settle().await;
    assert!(lines.contains(&"GET secrets cert -> 200".to_owned()), "{lines:?}");
    assert!(
        story
            .listener("web")
            .contains(&"ResolvedRefs True/ResolvedRefs".to_owned())
    );
    // a rotation is read, and says nothing new
    let rotated = certificate("web", "cert");
    story.edit("Secret", "cert", json!({"data": rotated["data"]}));
    assert_eq!(story.settle().await, ["GET secrets cert -> 200"]);
    // a key that does not match is told
    let other = certificate("web", "cert");
    story.edit(
        "Secret",
        "cert",
        json!({"data": {"tls.key": other["data"]["tls.key"]}}),
    );
    story.settle().await;
    assert!(
        story
            .listener("web")
            .contains(&"ResolvedRefs False/InvalidCertificateRef".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_goes_takes_the_certificate_away() {
    let mut story = Story::begin().await;
    story.server.create(certificate("storage", "cert"));
    story.edit("Gateway", "public", https(Some("storage")));
    let lines = story.settle().await;
    assert!(
        !lines.iter().any(|l| l.contains("cert")),
        "without a grant it is not even read: {lines:?}"
    );
    assert!(
        story
            .listener("web")
            .contains(&"ResolvedRefs False/RefNotPermitted".to_owned())
    );
    story.server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"namespace": "storage", "name": "certs"},
        "spec": {"from": [{"group": GROUP, "kind": "Gateway", "namespace": "web"}], "to": [{"group": "", "kind": "Secret"}]},
    }));
    story.settle().await;
    assert!(
        story
            .listener("web")
            .contains(&"ResolvedRefs True/ResolvedRefs".to_owned())
    );
    story.server.delete("ReferenceGrant", "storage", "certs");
    let lines = story.settle().await;
    assert_eq!(
        lines
            .iter()
            .filter(|l| l.starts_with("APPLY"))
            .collect::<Vec<_>>(),
        ["APPLY gateways/status public -> 200"]
    );
    assert!(
        story
            .listener("web")
            .contains(&"ResolvedRefs False/RefNotPermitted".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_for_a_while_concludes_nothing() {
    // Given an API server that fails to give the Secret
    let server = ready();
    let failing = server.fault(
        Matcher::verb(Verb::Get).resource("secrets"),
        Fault::Status(503),
        Times::Always,
    );
    let mut story = Story::on(server, on()).await;
    let calls = story.pass(Duration::from_secs(120)).await;
    // then neither class nor Gateway is told anything, and it is asked again at a bounded rate
    assert!(
        !calls
            .iter()
            .any(|call| call.verb.is_write() && call.resource.starts_with("gateway"))
    );
    let reads = calls
        .iter()
        .filter(|call| call.resource == "secrets" && call.verb == Verb::Get)
        .count();
    assert!((2..=20).contains(&reads), "{reads} reads");
    // when it can be read, then all is said
    story.server.unfault(failing);
    story.says("GatewayClass", "tyk", "Accepted True/Accepted").await;
    story
        .says("Gateway", "public", "Programmed True/Programmed")
        .await;
    // and when a change of it cannot be read, then what was known stays
    let failing = story.server.fault(
        Matcher::verb(Verb::Get).resource("secrets"),
        Fault::Status(503),
        Times::Always,
    );
    story.settle().await;
    story.edit("Secret", "connection", json!({"data": {"TYK_URL": null}}));
    story.pass(Duration::from_secs(60)).await;
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted True/Accepted"
    );
    story.server.unfault(failing);
    story
        .says("GatewayClass", "tyk", "Accepted False/InvalidParameters")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_its_return_is_noticed() {
    let server = ready();
    let denied = server.deny(support::OPERATOR, "get", "secrets");
    let mut story = Story::on(server, on()).await;
    story.settle().await;
    assert_eq!(
        story.conditions("GatewayClass", "tyk")[0],
        "Accepted False/InvalidParameters"
    );
    let said = message(&story.get("GatewayClass", "tyk")["status"], "Accepted");
    assert!(
        said.contains("lacks the right get on secrets in namespace web"),
        "{said}"
    );
    story.server.undeny(denied);
    // Rights are given by people: it is asked again in about a minute.
    tokio::time::sleep(Duration::from_secs(90)).await;
    story.says("GatewayClass", "tyk", "Accepted True/Accepted").await;
}
