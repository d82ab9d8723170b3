//! Source: How Routes Become APIs, API Configuration; Matches; Backends.

use routewright::tyk::{objects::route::Method, translate::TykApi};
use serde_json::{Value, json};

use crate::support::*;

/// The whole document of a route with a wildcard host and some methods: read it once, then trust the parts.
#[test]
fn a_whole_document() {
    let mut plan = plan();
    plan.host = Some("*.example.com".to_owned());
    plan.tags = vec!["edge".to_owned()];
    plan.operations = methods(
        &[Method::Get, Method::Post],
        &request(&[("X-Env", "prod")], &["X-Debug"]),
    );
    insta::assert_json_snapshot!(api(&plan).document);
}

/// `info.title`, `info.id`, `info.name`: "The ID of the API". `info.state.active`: "true".
#[test]
fn title_id_and_name_are_the_id_and_the_state_is_active() {
    let TykApi { id, document } = api(&plan());
    assert_eq!(document["info"]["title"], json!(id));
    assert_eq!(
        extension(&plan(), "/info"),
        json!({"id": id, "name": id, "orgId": "org1", "state": {"active": true}})
    );
}

/// `server.listenPath`: "The path value of the match, with strip set to true."
#[test]
fn the_listen_path_is_the_path_value_with_strip() {
    for path in ["/orders", "/a/b", "/"] {
        let mut plan = plan();
        plan.path = path.to_owned();
        assert_eq!(
            extension(&plan, "/server/listenPath"),
            json!({"value": path, "strip": true})
        );
    }
}

/// `server.customDomain`: "The effective hostname."
#[test]
fn the_custom_domain_is_the_effective_hostname() {
    let mut plan = plan();
    plan.host = Some("api.example.com".to_owned());
    assert_eq!(
        extension(&plan, "/server/customDomain"),
        json!({"enabled": true, "name": "api.example.com"})
    );
}

/// `server.customDomain`: "A wildcard such as *.example.com becomes {h:.+}.example.com."
#[test]
fn a_wildcard_becomes_a_pattern() {
    let mut plan = plan();
    plan.host = Some("*.example.com".to_owned());
    assert_eq!(
        extension(&plan, "/server/customDomain/name"),
        json!("{h:.+}.example.com")
    );
}

/// "If neither sets a hostname, the API has no custom domain."
#[test]
fn without_a_hostname_there_is_no_custom_domain() {
    assert_eq!(extension(&plan(), "/server/customDomain"), Value::Null);
}
