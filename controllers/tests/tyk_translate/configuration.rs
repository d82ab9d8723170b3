//! Source: How Routes Become APIs, API Configuration; Backends. One test for each row.

use routewright::tyk::{
    objects::route::Method,
    translate::{TykApi, UNRESOLVED},
};
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

/// The page shows what is made, byte for byte.
#[test]
fn the_example_of_the_docs_is_what_is_made() {
    let mut plan = plan();
    plan.host = Some("shop.example.com".to_owned());
    plan.tags = vec!["edge".to_owned()];
    plan.connection = connection("");
    plan.operations = methods(&[Method::Get], &request(&[("X-Env", "prod")], &[]));
    let made = serde_json::to_string_pretty(&api(&plan).document).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/tyk/documents.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once("```json\n").unwrap();
    let (shown, after) = rest.split_once("```").unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page, format!("{before}```json\n{made}\n```{after}")).unwrap();
        return;
    }
    assert_eq!(
        shown.trim_end(),
        made,
        "docs/src/tyk/documents.md: UPDATE_DOCS=1 mends it"
    );
}

#[test]
fn title_id_and_name_are_the_id_and_the_state_is_active() {
    let TykApi { id, document } = api(&plan());
    assert_eq!(document["info"]["title"], json!(id));
    assert_eq!(
        extension(&plan(), "/info"),
        json!({"id": id, "name": id, "orgId": "org1", "state": {"active": true}})
    );
}

/// An open-source gateway is often used without organisation.
#[test]
fn without_an_organisation_no_org_id_is_sent() {
    let mut plan = plan();
    plan.connection = connection("");
    assert_eq!(extension(&plan, "/info/orgId"), Value::Null);
}

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

#[test]
fn the_custom_domain_is_the_effective_hostname() {
    let mut plan = plan();
    plan.host = Some("api.example.com".to_owned());
    assert_eq!(
        extension(&plan, "/server/customDomain"),
        json!({"enabled": true, "name": "api.example.com"})
    );
}

#[test]
fn a_wildcard_becomes_a_pattern() {
    let mut plan = plan();
    plan.host = Some("*.example.com".to_owned());
    assert_eq!(
        extension(&plan, "/server/customDomain/name"),
        json!("{h:.+}.example.com")
    );
}

#[test]
fn without_a_hostname_there_is_no_custom_domain() {
    assert_eq!(extension(&plan(), "/server/customDomain"), Value::Null);
}

#[test]
fn certificates_are_attached_to_apis_with_a_hostname() {
    // given two Secrets with one leaf, and another; in an organisation
    let mut plan = plan();
    plan.host = Some("api.example.com".to_owned());
    plan.certificates = vec![certificate("bb"), certificate("aa"), certificate("bb")];
    // then ids are organisation and leaf, once each, sorted
    assert_eq!(
        extension(&plan, "/server/customDomain/certificates"),
        json!(["org1aa", "org1bb"])
    );
    // and without organisation the leaf alone
    plan.connection = connection("");
    assert_eq!(
        extension(&plan, "/server/customDomain/certificates"),
        json!(["aa", "bb"])
    );
}

#[test]
fn without_a_hostname_no_certificate_is_attached() {
    let mut plan = plan();
    plan.certificates = vec![certificate("aa")];
    assert!(!text(&plan).contains("org1aa"));
}

#[test]
fn gateway_tags_are_those_of_the_data_plane() {
    let mut plan = plan();
    plan.tags = vec!["edge".to_owned(), "eu".to_owned()];
    assert_eq!(
        extension(&plan, "/server/gatewayTags"),
        json!({"enabled": true, "tags": ["edge", "eu"]})
    );
}

#[test]
fn without_tags_there_are_no_gateway_tags() {
    assert_eq!(extension(&plan(), "/server/gatewayTags"), Value::Null);
}

#[test]
fn upstream_url_is_plain_http_to_the_service() {
    assert_eq!(
        extension(&plan(), "/upstream/url"),
        json!("http://svc.team.svc.cluster.local:8080/orders")
    );
    let mut root = plan();
    root.path = "/".to_owned();
    assert_eq!(
        extension(&root, "/upstream/url"),
        json!("http://svc.team.svc.cluster.local:8080")
    );
}

#[test]
fn several_backends_are_balanced_by_weight() {
    let mut plan = plan();
    plan.targets = vec![
        target("b.team.svc.cluster.local:80", 3),
        target("a.team.svc.cluster.local:80", 7),
    ];
    assert_eq!(
        extension(&plan, "/upstream/loadBalancing"),
        json!({"enabled": true, "targets": [
            {"url": "http://a.team.svc.cluster.local:80/orders", "weight": 7},
            {"url": "http://b.team.svc.cluster.local:80/orders", "weight": 3},
        ]})
    );
    // The URL is ignored then, but a schema and people look at it.
    assert_eq!(
        extension(&plan, "/upstream/url"),
        json!("http://a.team.svc.cluster.local:80/orders")
    );
}

#[test]
fn a_single_backend_is_not_balanced() {
    assert_eq!(extension(&plan(), "/upstream/loadBalancing"), Value::Null);
}

/// The order of references has no meaning in Tyk.
#[test]
fn the_order_of_targets_changes_no_byte() {
    let mut one = plan();
    one.targets = vec![target("a:80", 1), target("b:80", 2), unresolved(3)];
    let mut other = one.clone();
    other.targets.reverse();
    assert_eq!(api(&one).canonical(), api(&other).canonical());
}

#[test]
fn addresses_of_pods_are_targets_of_their_own() {
    let mut plan = plan();
    plan.path = "/".to_owned();
    plan.targets = vec![target("10.0.0.7:8080", 1), target("[fd00::7]:8080", 1)];
    assert_eq!(
        extension(&plan, "/upstream/loadBalancing/targets"),
        json!([
            {"url": "http://10.0.0.7:8080", "weight": 1},
            {"url": "http://[fd00::7]:8080", "weight": 1},
        ])
    );
}

#[test]
fn an_unresolved_backend_has_the_invalid_upstream() {
    // One reference that cannot be resolved, none at all, and several that cannot.
    for targets in [
        vec![unresolved(1)],
        Vec::new(),
        vec![unresolved(1), unresolved(2)],
    ] {
        let mut plan = plan();
        plan.targets = targets;
        assert_eq!(extension(&plan, "/upstream/url"), json!(UNRESOLVED));
        assert_eq!(extension(&plan, "/upstream/loadBalancing"), Value::Null);
    }
}

/// Its share of the requests fails, the others are served.
#[test]
fn an_unresolved_backend_among_several_keeps_its_share() {
    let mut plan = plan();
    plan.targets = vec![unresolved(1), target("a:80", 9)];
    assert_eq!(
        extension(&plan, "/upstream/loadBalancing/targets"),
        json!([{"url": "http://a:80/orders", "weight": 9}, {"url": UNRESOLVED, "weight": 1}])
    );
    assert_eq!(extension(&plan, "/upstream/url"), json!("http://a:80/orders"));
}

#[test]
fn the_host_header_is_preserved() {
    assert_eq!(
        extension(&plan(), "/upstream/preserveHostHeader"),
        json!({"enabled": true})
    );
}

#[test]
fn there_is_no_authentication() {
    assert_eq!(extension(&plan(), "/server/authentication"), Value::Null);
}

/// What the bytes are hashed and compared for.
#[test]
fn canonical_bytes_are_sorted_and_parse_back() {
    let api = api(&plan());
    let bytes = api.canonical();
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), api.document);
    let text = String::from_utf8(bytes).unwrap();
    let keys: Vec<_> = ["\"info\"", "\"openapi\"", "\"paths\"", "\"x-tyk-api-gateway\""]
        .iter()
        .map(|key| text.find(key).unwrap())
        .collect();
    assert!(keys.is_sorted(), "{text}");
    assert!(
        !text.contains(": ") && !text.contains('\n'),
        "no white space: {text}"
    );
}
