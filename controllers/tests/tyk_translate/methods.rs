//! Source: API Identity, one operation for each method; 404 for the rest. Both ways in which Tyk is told.

use routewright::tyk::objects::route::Method;
use serde_json::{Value, json};

use crate::support::*;

const FORBIDDEN: &str = "/errorOverrides/value/403";

#[test]
fn one_operation_for_each_matched_method() {
    let mut plan = plan();
    plan.operations = methods(&[Method::Post, Method::Get], &request(&[("X-A", "1")], &[]));
    assert_eq!(operations(&plan), ["get", "post"]);
    assert_eq!(
        operations(&every()),
        [
            "delete", "get", "head", "options", "patch", "post", "put", "trace"
        ]
    );
}

/// `plan` under a name that the test above does not shadow.
fn every() -> routewright::tyk::verdict::ApiPlan {
    plan()
}

/// When every method of OpenAPI is matched nothing is forbidden, also methods outside of OpenAPI.
#[test]
fn a_rule_without_method_forbids_nothing() {
    assert_eq!(extension(&plan(), "/errorOverrides"), Value::Null);
    assert_eq!(extension(&plan(), "/middleware"), Value::Null);
}

/// The first way: an allow list, and its refusal (no other 403) turned into what the gateway says where it has no API.
#[test]
fn unmatched_methods_get_404() {
    let mut plan = plan();
    plan.operations = methods(&[Method::Get, Method::Post], &Default::default());
    assert_eq!(
        extension(&plan, "/middleware"),
        json!({"operations": {"get": {"allow": {"enabled": true}}, "post": {"allow": {"enabled": true}}}})
    );
    assert_eq!(
        extension(&plan, "/errorOverrides"),
        json!({"enabled": true, "value": {"403": [{
            "match": {"messagePattern": "^Requested endpoint is forbidden$"},
            "response": {
                "statusCode": 404,
                "body": "Not Found",
                "headers": {"Content-Type": "text/plain; charset=utf-8"},
            },
        }]}})
    );
}

/// The second way: entries of the route would widen the allow list of a definition, so the other methods get an answer.
#[test]
fn beside_an_allow_list_unmatched_methods_get_a_mock() {
    let mut plan = plan();
    plan.operations = methods(&[Method::Get], &Default::default());
    plan.base = base(json!({
        "paths": {"/shelves": {"get": {"operationId": "list"}}},
        "x-tyk-api-gateway": {"middleware": {"operations": {"list": {"allow": {"enabled": true}}}}},
    }));
    assert_eq!(extension(&plan, "/middleware/operations/get"), Value::Null);
    for method in ["delete", "head", "options", "patch", "post", "put", "trace"] {
        let operation = extension(&plan, &format!("/middleware/operations/{method}"));
        assert_eq!(operation["mockResponse"]["code"], 404, "{method}");
        assert_eq!(operation["ignoreAuthentication"]["enabled"], true, "{method}");
        assert_eq!(operation["allow"], Value::Null, "{method}");
    }
    assert_eq!(extension(&plan, FORBIDDEN), Value::Null);
    assert_eq!(
        extension(&plan, "/middleware/operations/list"),
        json!({"allow": {"enabled": true}}),
        "the definition's own entry stays"
    );
}

/// An entry that is switched off is no allow list.
#[test]
fn a_disabled_allow_entry_is_no_allow_list() {
    let mut plan = plan();
    plan.operations = methods(&[Method::Get], &Default::default());
    plan.base = base(json!({
        "paths": {"/shelves": {"get": {"operationId": "list"}}},
        "x-tyk-api-gateway": {"middleware": {"operations": {"list": {"allow": {"enabled": false}}}}},
    }));
    assert_eq!(operations(&plan), ["get"]);
    assert_ne!(extension(&plan, FORBIDDEN), Value::Null);
}

/// The first rule that fits counts: the definition's own rules stay, behind.
#[test]
fn a_definitions_own_error_overrides_stay() {
    let theirs = json!({"response": {"statusCode": 403, "body": "No."}});
    let with = |enabled: bool| {
        let mut plan = plan();
        plan.operations = methods(&[Method::Get], &Default::default());
        plan.base = base(json!({"x-tyk-api-gateway": {"errorOverrides": {
            "enabled": enabled, "value": {"403": [theirs.clone()], "500": [theirs.clone()]},
        }}}));
        extension(&plan, "/errorOverrides")
    };
    let found = with(true);
    assert_eq!(found["value"]["403"].as_array().unwrap().len(), 2);
    assert_eq!(found["value"]["403"][1], theirs);
    assert_eq!(found["value"]["500"], json!([theirs]));
    // What the definition has switched off is not switched on by the way.
    let found = with(false);
    assert_eq!(found["enabled"], true);
    assert_eq!(found["value"]["403"].as_array().unwrap().len(), 1);
    assert_eq!(found["value"]["500"], Value::Null);
}

/// What a definition says about a method that answers 404 must not come before the 404; what it allows or blocks there
/// still means something for other methods.
#[test]
fn a_definitions_settings_for_unmatched_methods_are_left_out() {
    let mut plan = plan();
    plan.operations = methods(&[Method::Get], &Default::default());
    plan.base = base(json!({
        "paths": {"/shelves": {"get": {"operationId": "list"}, "post": {"operationId": "add"}}},
        "x-tyk-api-gateway": {"middleware": {"operations": {
            "list": {"validateRequest": {"enabled": true}},
            "add": {
                "allow": {"enabled": true},
                "ignoreAuthentication": {"enabled": true},
                "validateRequest": {"enabled": true},
            },
        }}},
    }));
    let operations = extension(&plan, "/middleware/operations");
    assert_eq!(operations["list"], json!({"validateRequest": {"enabled": true}}));
    assert_eq!(operations["add"], json!({"allow": {"enabled": true}}));
    let document = api(&plan).document;
    assert_eq!(
        document["paths"]["/shelves"]["post"]["operationId"], "add",
        "the description stays"
    );
}
