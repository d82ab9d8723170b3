//! Source: Filters. One test for each row that is supported, and one for each combination of filters on one path.

use std::collections::BTreeMap;

use routewright::tyk::{
    Settings,
    objects::route::Method,
    translate::{Refusal, translate},
    verdict::{ApiPlan, OperationPlan},
};
use serde_json::{Value, json};

use crate::support::*;

const REQUEST: &str = "/middleware/global/transformRequestHeaders";
const RESPONSE: &str = "/middleware/global/transformResponseHeaders";

fn all(operation: &OperationPlan) -> ApiPlan {
    ApiPlan {
        operations: every_method(operation),
        ..plan()
    }
}

/// `urlRewrite` of a method as (pattern, rewriteTo).
fn rewrite(plan: &ApiPlan, method: &str) -> Option<(String, String)> {
    let found = extension(plan, &format!("/middleware/operations/{method}/urlRewrite"));
    if found.is_null() {
        return None;
    }
    assert_eq!(found["enabled"], true);
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    Some((text("pattern"), text("rewriteTo")))
}

// --- headers ----------------------------------------------------------------------------------------------

#[test]
fn request_header_set() {
    let plan = all(&request(&[("X-Env", "prod"), ("X-A", "")], &[]));
    assert_eq!(
        extension(&plan, REQUEST),
        json!({"enabled": true, "add": [{"name": "X-A", "value": ""}, {"name": "X-Env", "value": "prod"}]})
    );
}

#[test]
fn request_header_remove() {
    let plan = all(&request(&[], &["X-Debug", "Cookie"]));
    assert_eq!(
        extension(&plan, REQUEST),
        json!({"enabled": true, "remove": ["Cookie", "X-Debug"]})
    );
}

#[test]
fn response_header_set() {
    let plan = all(&response(&[("Server", "shop")], &[]));
    assert_eq!(
        extension(&plan, RESPONSE),
        json!({"enabled": true, "add": [{"name": "Server", "value": "shop"}]})
    );
}

#[test]
fn response_header_remove() {
    let plan = all(&response(&[], &["X-Powered-By"]));
    assert_eq!(
        extension(&plan, RESPONSE),
        json!({"enabled": true, "remove": ["X-Powered-By"]})
    );
}

/// Shared by all matched methods: global, also when other methods answer 404.
#[test]
fn header_changes_of_all_matched_methods_are_global() {
    let mut plan = plan();
    plan.operations = methods(&[Method::Get, Method::Post], &request(&[("X-A", "1")], &[]));
    assert_ne!(extension(&plan, REQUEST), Value::Null);
    assert_eq!(
        extension(&plan, "/middleware/operations/get"),
        json!({"allow": {"enabled": true}})
    );
}

#[test]
fn header_changes_that_differ_between_methods_stand_at_the_operations() {
    let mut plan = plan();
    plan.operations = BTreeMap::from([
        (Method::Get, request(&[("X-A", "1")], &[])),
        (Method::Post, request(&[("X-A", "2")], &["X-B"])),
        (Method::Put, OperationPlan::default()),
    ]);
    assert_eq!(extension(&plan, "/middleware/global"), Value::Null);
    assert_eq!(
        extension(&plan, "/middleware/operations"),
        json!({
            "get": {
                "allow": {"enabled": true},
                "transformRequestHeaders": {"enabled": true, "add": [{"name": "X-A", "value": "1"}]},
            },
            "post": {
                "allow": {"enabled": true},
                "transformRequestHeaders": {
                    "enabled": true, "add": [{"name": "X-A", "value": "2"}], "remove": ["X-B"],
                },
            },
            "put": {"allow": {"enabled": true}},
        })
    );
}

/// Each direction for itself: what is shared is global although the other is not.
#[test]
fn request_and_response_are_looked_at_on_their_own() {
    let with = |value: &str| OperationPlan {
        request_headers: edit(&[("X-A", value)], &[]).into(),
        response_headers: edit(&[("X-R", "r")], &[]).into(),
        ..OperationPlan::default()
    };
    let mut plan = plan();
    plan.operations = BTreeMap::from([(Method::Get, with("1")), (Method::Post, with("2"))]);
    assert_eq!(extension(&plan, REQUEST), Value::Null);
    assert_ne!(extension(&plan, RESPONSE), Value::Null);
    assert_eq!(
        extension(&plan, "/middleware/operations/get/transformResponseHeaders"),
        Value::Null
    );
}

/// A request that is redirected goes nowhere: its header changes do not make those of the others local.
#[test]
fn a_redirect_does_not_keep_request_headers_from_being_global() {
    let mut plan = plan();
    plan.operations = BTreeMap::from([
        (Method::Get, redirect("https://example.org/", 301)),
        (Method::Post, request(&[("X-A", "1")], &[])),
    ]);
    assert_ne!(extension(&plan, REQUEST), Value::Null);
    assert_eq!(
        extension(&plan, "/middleware/operations/post"),
        json!({"allow": {"enabled": true}})
    );
}

// --- prefix rewrite ---------------------------------------------------------------------------------------

#[test]
fn replace_prefix_match_is_in_the_upstream_url() {
    let mut plan = plan();
    plan.prefix = Some("/v2/orders".to_owned());
    assert_eq!(
        extension(&plan, "/upstream/url"),
        json!("http://svc.team.svc.cluster.local:8080/v2/orders")
    );
    assert_eq!(
        extension(&plan, "/server/listenPath/value"),
        json!("/orders"),
        "what is matched stays"
    );
}

#[test]
fn replace_prefix_match_is_in_every_target() {
    let mut plan = plan();
    plan.prefix = Some("/new".to_owned());
    plan.targets = vec![target("a:80", 1), target("b:80", 1), unresolved(1)];
    let targets = extension(&plan, "/upstream/loadBalancing/targets");
    let urls: Vec<_> = targets.as_array().unwrap().iter().map(|t| &t["url"]).collect();
    assert_eq!(
        urls,
        [
            "http://a:80/new",
            "http://b:80/new",
            "http://unresolved.backend.invalid"
        ]
    );
}

#[test]
fn replace_prefix_match_with_a_slash_removes_the_path() {
    let mut plan = plan();
    plan.prefix = Some("/".to_owned());
    assert_eq!(
        extension(&plan, "/upstream/url"),
        json!("http://svc.team.svc.cluster.local:8080")
    );
}

/// A text without a reference to a secret or variable, as the gateway itself reads patterns.
const TOKEN_FREE: &str = concat!(
    r"(?:[^$]|(?:\$(?:k(?:v)?|s(?:e(?:c(?:r(?:e(?:t)?)?)?)?)?|t(?:y(?:k)?)?)?)*",
    r"\$(?:[^$kst]|k(?:[^$v]|v(?:[^$\x7b]))|s(?:[^$e]|e(?:[^$c]|c(?:[^$r]|r(?:[^$e]|e(?:[^$t]|t(?:[^$_]))))))",
    r"|t(?:[^$y]|y(?:[^$k]|k(?:[^$_])))))*",
    r"(?:\$(?:k(?:v)?|s(?:e(?:c(?:r(?:e(?:t)?)?)?)?)?|t(?:y(?:k)?)?)?)*",
);

// --- full path --------------------------------------------------------------------------------------------

/// The upstream has no path; the rewrite puts the listen path in front, which strip takes away again.
#[test]
fn replace_full_path_is_rewritten_with_the_query_kept() {
    let plan = all(&full_path("/new"));
    assert_eq!(
        extension(&plan, "/upstream/url"),
        json!("http://svc.team.svc.cluster.local:8080")
    );
    for method in Method::ALL {
        assert_eq!(
            rewrite(&plan, method.as_str()).unwrap(),
            (format!(r"^[^?]*(\?{TOKEN_FREE})?.*$"), "/orders/new$1".to_owned())
        );
    }
}

#[test]
fn replace_full_path_on_the_root_path() {
    let mut plan = all(&full_path("/new"));
    plan.path = "/".to_owned();
    assert_eq!(rewrite(&plan, "get").unwrap().1, "/new$1");
}

/// Values for which a rewrite to the bare path would be stripped or read wrongly.
#[test]
fn replace_full_path_with_awkward_values() {
    for value in [
        "/",
        "/orders",
        "/orders/sub",
        "/ordersx",
        "/n/",
        "/a$b",
        "/a%20b",
        "/%2F",
        "/ü;=,",
        "/x$",
    ] {
        let plan = all(&full_path(value));
        assert_eq!(rewrite(&plan, "get").unwrap().1, format!("/orders{value}$1"));
    }
}

/// The upstream is without path for all methods, so those that keep their path need it back.
#[test]
fn methods_without_replacement_keep_the_full_path() {
    let mut plan = plan();
    plan.operations = BTreeMap::from([
        (Method::Get, full_path("/new")),
        (Method::Post, OperationPlan::default()),
    ]);
    assert_eq!(
        rewrite(&plan, "post").unwrap(),
        (
            format!(r"^(?:[a-z]+://[^/?#]*)?({TOKEN_FREE}).*$"),
            "/orders$1".to_owned()
        )
    );
    // On the root path strip takes nothing away.
    plan.path = "/".to_owned();
    assert_eq!(rewrite(&plan, "post"), None);
}

/// Both kinds of rewrite on one path, for different methods.
#[test]
fn replace_full_path_beside_replace_prefix_match() {
    let mut plan = plan();
    plan.path = "/a.b".to_owned();
    plan.prefix = Some("/new".to_owned());
    plan.operations = BTreeMap::from([
        (Method::Get, full_path("/one")),
        (Method::Post, OperationPlan::default()),
    ]);
    assert_eq!(
        extension(&plan, "/upstream/url"),
        json!("http://svc.team.svc.cluster.local:8080")
    );
    // A listen path is compared decoded, a rewrite sees it as it was sent.
    assert_eq!(
        rewrite(&plan, "post").unwrap(),
        (
            format!(
                r"^(?:[a-z]+://[^/?#]*)?(?:(?:/|%2[fF])(?:a|%61)(?:\x2e|%2[eE])(?:b|%62)({TOKEN_FREE}).*|.*)$"
            ),
            "/a.b/new$1".to_owned()
        )
    );
    // What strip leaves is already right when the prefix is removed.
    plan.prefix = Some("/".to_owned());
    assert_eq!(rewrite(&plan, "post"), None);
}

/// What a client sends is looked through for references to secrets once the URL is rewritten: none is captured, and no
/// pattern fails to fit, since then the URL is looked through as it is.
#[test]
fn no_rewrite_captures_a_substitution_token() {
    let mixed = |prefix: Option<&str>| {
        let mut plan = plan();
        plan.prefix = prefix.map(str::to_owned);
        plan.operations = BTreeMap::from([
            (Method::Get, full_path("/new")),
            (Method::Post, OperationPlan::default()),
        ]);
        plan
    };
    for (plan, method) in [
        (all(&full_path("/new")), "get"),
        (mixed(None), "post"),
        (mixed(Some("/v2")), "post"),
        (mixed(Some("/v2$")), "post"),
        (mixed(Some("/v2$tyk")), "post"),
    ] {
        let (pattern, to) = rewrite(&plan, method).unwrap();
        let pattern = regex::Regex::new(&pattern).unwrap();
        for token in [
            "$secret_env.x",
            "$tyk_context.path",
            "$kv{a:b}",
            "$secret_vault.a/b.c",
        ] {
            for url in [
                format!("/orders/x?a={token}"),
                format!("/orders/x?{token}"),
                format!("/orders?a=$secret$tyk$${token}&b=1"),
                format!("/orders/{token}/x?y=1"),
                format!("/orders{}", token.trim_start_matches('$')),
                format!("/orders_context.path{token}"),
                format!("/gwapi-00000000000000000000/x?a={token}"),
                format!("http://shop.example.com/orders/x?a={token}"),
                format!("//orders/{token}"),
            ] {
                let captures = pattern.captures(&url).unwrap();
                let captured = captures.get(1).map_or("", |group| group.as_str());
                let made = to.replace("$1", captured);
                for token in ["$secret_", "$tyk_", "$kv{"] {
                    assert!(!made.contains(token), "{url} becomes {made}");
                }
            }
        }
    }
}

/// A rewrite would take `$1` of the path for what it captured.
#[test]
fn a_path_with_a_group_is_refused_beside_a_rewrite() {
    let refused =
        |plan: &ApiPlan| matches!(translate(plan, &Settings::default()), Err(Refusal::Group { .. }));
    let mut listen = all(&full_path("/new"));
    listen.path = "/a$1".to_owned();
    assert!(refused(&listen));
    assert!(refused(&all(&full_path("/new$1"))));
    let mut prefix = plan();
    prefix.prefix = Some("/p$2".to_owned());
    prefix.operations.insert(Method::Get, full_path("/new"));
    assert!(refused(&prefix));
    // Without a rewrite nothing captures.
    listen.operations = every_method(&OperationPlan::default());
    assert!(!refused(&listen));
}

#[test]
fn a_replacement_that_is_no_path_is_refused() {
    for value in ["", "new", "/a?b", "/a#b", "/a\nb"] {
        let refused = translate(&all(&full_path(value)), &Settings::default()).unwrap_err();
        assert!(matches!(refused, Refusal::Path { .. }), "{value:?}: {refused}");
    }
}

// --- redirect ---------------------------------------------------------------------------------------------

#[test]
fn a_redirect_is_a_fixed_answer_for_everyone() {
    for status in [301, 302, 303, 307, 308] {
        let mut plan = all(&redirect("https://example.org/new", status));
        plan.targets.clear();
        assert_eq!(
            extension(&plan, "/middleware/operations/get"),
            json!({
                "mockResponse": {
                    "enabled": true, "code": status, "body": "",
                    "headers": [{"name": "Location", "value": "https://example.org/new"}],
                },
                "ignoreAuthentication": {"enabled": true},
            })
        );
    }
}

/// A redirect beside methods that are served.
#[test]
fn a_redirect_of_one_method_leaves_the_others() {
    let mut plan = plan();
    plan.operations = BTreeMap::from([
        (Method::Get, redirect("https://example.org/new", 301)),
        (Method::Post, full_path("/new")),
    ]);
    assert_eq!(rewrite(&plan, "get"), None);
    assert_eq!(rewrite(&plan, "post").unwrap().1, "/orders/new$1");
    assert_eq!(
        extension(&plan, "/middleware/operations/post/mockResponse"),
        Value::Null
    );
}

// --- combinations -----------------------------------------------------------------------------------------

/// Request headers, response headers, a rewrite (none, prefix, full) and a redirect, on every method or on one beside
/// another without filters: each combination that the API allows, in one picture.
#[test]
fn every_combination_of_filters() {
    let mut picture = String::new();
    for mask in 0..4 {
        for route in ["plain", "prefix", "full", "redirect"] {
            for mixed in [false, true] {
                let mut operation = OperationPlan::default();
                let mut names = vec![route];
                if mask & 1 != 0 {
                    operation.request_headers = edit(&[("X-Q", "1")], &["X-Gone"]).into();
                    names.push("request");
                }
                if mask & 2 != 0 {
                    operation.response_headers = edit(&[("X-R", "1")], &[]).into();
                    names.push("response");
                }
                let mut plan = plan();
                match route {
                    "prefix" => plan.prefix = Some("/new".to_owned()),
                    "full" => operation.full_path = Some("/full".to_owned()),
                    "redirect" => operation.redirect = redirect("https://example.org/r", 302).redirect,
                    _ => {}
                }
                plan.operations = every_method(&operation);
                if mixed {
                    names.push("on get");
                    plan.operations = every_method(&OperationPlan::default());
                    plan.operations.insert(Method::Get, operation);
                }
                let middleware = extension(&plan, "/middleware");
                picture.push_str(&format!(
                    "{}\n  url {}\n  global {}\n  get {}\n  post {}\n",
                    names.join(" + "),
                    extension(&plan, "/upstream/url").as_str().unwrap(),
                    middleware["global"],
                    middleware["operations"]["get"],
                    middleware["operations"]["post"],
                ));
            }
        }
    }
    insta::assert_snapshot!(picture);
}
