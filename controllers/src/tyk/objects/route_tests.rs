//! The decoding half of the source's tables on matches, backends, filters and unsupported features, and what else one
//! route alone can be refused for. Tests are named after the statement that they show.

use super::*;
use crate::tyk::objects::{Problem, text::TOKENS};
use serde_json::{Value, json};

fn route(spec: Value) -> HttpRoute {
    HttpRoute::decode(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "shop", "namespace": "team"},
        "spec": spec,
    }))
    .unwrap()
}

/// A route with this rule as its second one.
fn rule(rule: Value) -> Rule {
    let mut route = route(json!({"rules": [{}, rule]}));
    assert_eq!(route.rules.len(), 2, "no rule is ever lost");
    assert_eq!(route.problems, [], "a rule's problem is not the route's");
    assert_eq!(route.rules[0].problems, [], "nor its neighbour's");
    route.rules.remove(1)
}

fn said(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// Asserts that a rule has exactly one problem, at `spec.rules[1].<path>`, and that its message holds `words`.
fn refused(body: Value, path: &str, words: &str) {
    let found = rule(body.clone());
    let expected = format!("spec.rules[1].{path}: ");
    assert!(
        matches!(said(&found.problems).as_slice(), [one] if one.starts_with(&expected) && one.contains(words)),
        "{body}\n  wanted {expected}…{words}…\n  got {:?}",
        said(&found.problems)
    );
}

fn good(body: Value) -> Rule {
    let found = rule(body.clone());
    assert_eq!(said(&found.problems), [""; 0], "{body}");
    found
}

fn path_match(path: Value) -> Value {
    json!({"matches": [{"path": path}]})
}

fn filter(type_: &str, field: &str, body: Value) -> Value {
    json!({"filters": [{"type": type_, field: body}]})
}

fn request_headers(body: Value) -> Value {
    filter("RequestHeaderModifier", "requestHeaderModifier", body)
}

fn rewrite(body: Value) -> Value {
    filter("URLRewrite", "urlRewrite", body)
}

fn redirect(body: Value) -> Value {
    filter("RequestRedirect", "requestRedirect", body)
}

// --- Matches -----------------------------------------------------------------------------------------------------

#[test]
fn matches_path_with_type_path_prefix_is_supported() {
    let found = good(path_match(json!({"type": "PathPrefix", "value": "/orders"})));
    assert_eq!(found.matches[0].path, "/orders");
    assert_eq!(found.matches[0].method, None);
}

#[test]
fn matches_path_without_type_is_path_prefix() {
    assert_eq!(
        good(path_match(json!({"value": "/orders"}))).matches[0].path,
        "/orders"
    );
    assert_eq!(good(path_match(json!({}))).matches[0].path, "/");
    for everything in [
        json!({}),
        json!({"matches": []}),
        json!({"matches": null}),
        json!({"matches": [{}]}),
    ] {
        let found = good(everything);
        assert_eq!(
            found.matches,
            [Match {
                path: "/".into(),
                method: None
            }]
        );
    }
}

#[test]
fn matches_path_with_type_exact_or_regular_expression_is_not_supported() {
    for type_ in ["Exact", "RegularExpression"] {
        refused(
            path_match(json!({"type": type_, "value": "/a"})),
            "matches[0].path.type",
            &format!("{type_} is not supported; use PathPrefix"),
        );
    }
}

#[test]
fn matches_method_is_supported_for_the_methods_that_openapi_defines() {
    for (text, method) in [
        ("GET", Method::Get),
        ("PUT", Method::Put),
        ("POST", Method::Post),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("HEAD", Method::Head),
        ("PATCH", Method::Patch),
        ("TRACE", Method::Trace),
    ] {
        assert_eq!(
            good(json!({"matches": [{"method": text}]})).matches[0].method,
            Some(method)
        );
    }
}

#[test]
fn matches_method_is_not_supported_for_other_methods_such_as_connect() {
    for method in ["CONNECT", "PROPFIND", "get", ""] {
        refused(
            json!({"matches": [{"method": method}]}),
            "matches[0].method",
            "is not supported",
        );
    }
}

#[test]
fn matches_headers_are_not_supported() {
    refused(
        json!({"matches": [{}, {"headers": [{"name": "a", "value": "b"}]}]}),
        "matches[1].headers",
        "matching by header is not supported",
    );
    good(json!({"matches": [{"headers": []}]}));
}

#[test]
fn matches_query_params_are_not_supported() {
    refused(
        json!({"matches": [{"queryParams": [{"name": "a", "value": "b"}]}]}),
        "matches[0].queryParams",
        "matching by query parameter is not supported",
    );
    good(json!({"matches": [{"queryParams": null}]}));
}

#[test]
fn a_path_that_tyk_would_read_otherwise_is_refused() {
    for (value, words) in [
        ("orders", "must start with /"),
        ("", "must start with /"),
        ("/a//b", "must not hold //"),
        ("/a/../b", "must not hold . or .."),
        ("/a/.", "must not hold . or .."),
        ("/a{id}", "braces"),
        ("/a%20b", "must not hold %"),
        ("/a b", "spaces"),
        ("/a?b=c", "must not hold a query"),
        ("/a#b", "must not hold a fragment"),
        ("/a\nb", "control characters"),
        ("/ä", "may hold letters"),
        ("/$tyk_context.path", "which Tyk replaces"),
    ] {
        refused(
            path_match(json!({"value": value})),
            "matches[0].path.value",
            words,
        );
    }
    refused(
        path_match(json!({"value": format!("/{}", "a".repeat(1024))})),
        "matches[0].path.value",
        "1024 bytes",
    );
}

#[test]
fn a_trailing_slash_of_a_prefix_means_nothing() {
    assert_eq!(good(path_match(json!({"value": "/a/"}))).matches[0].path, "/a");
    assert_eq!(good(path_match(json!({"value": "/"}))).matches[0].path, "/");
}

// --- Backends ----------------------------------------------------------------------------------------------------

fn backends(list: Value) -> Value {
    json!({"backendRefs": list})
}

#[test]
fn backends_a_kubernetes_service_with_port_set_is_supported() {
    let found = good(backends(json!([{"name": "web", "port": 8080}])));
    let expected = BackendRef {
        group: String::new(),
        kind: "Service".into(),
        namespace: None,
        name: "web".into(),
        port: Some(8080),
        weight: 1,
    };
    assert_eq!(found.backends, [expected]);
}

#[test]
fn backends_weight_is_1_when_left_out_and_0_is_kept() {
    let found = good(backends(json!([
        {"name": "a", "port": 1}, {"name": "b", "port": 1, "weight": 0}, {"name": "c", "port": 1, "weight": 1_000_000}
    ])));
    let weights: Vec<u32> = found.backends.iter().map(|backend| backend.weight).collect();
    assert_eq!(weights, [1, 0, 1_000_000]);
    for weight in [json!(-1), json!(1_000_001), json!("1"), json!(1.5)] {
        refused(
            backends(json!([{"name": "a", "port": 1, "weight": weight}])),
            "backendRefs[0].weight",
            "from 0 to 1000000",
        );
    }
}

#[test]
fn backends_any_other_kind_or_no_port_is_no_problem_of_the_rule() {
    // It becomes ResolvedRefs False with InvalidKind, so the reference must survive as it is.
    let found = good(backends(json!([
        {"group": "example.com", "kind": "Bucket", "name": "Some_Name"}, {"name": "web"}
    ])));
    assert_eq!(
        (found.backends[0].group.as_str(), found.backends[0].kind.as_str()),
        ("example.com", "Bucket")
    );
    assert_eq!(found.backends[1].port, None);
}

/// ResolvedRefs names a reference by its index in the spec, whatever is wrong with those before it.
#[test]
fn backends_keep_their_index_when_one_does_not_decode() {
    let found = rule(backends(json!([
        {"port": 80}, "web", {"name": "a", "namespace": "A b", "port": 80}, {"name": "gone", "port": 80}
    ])));
    assert_eq!(found.problems.len(), 3, "{:?}", said(&found.problems));
    let names: Vec<&str> = found
        .backends
        .iter()
        .map(|backend| backend.name.as_str())
        .collect();
    assert_eq!(names, ["", "", "", "gone"]);
    let unreadable: Vec<bool> = found.backends.iter().map(BackendRef::is_unreadable).collect();
    assert_eq!(unreadable, [true, true, true, false]);
}

#[test]
fn backends_filters_on_a_backend_reference_are_not_supported() {
    let with_filter = json!([
        {"name": "a", "port": 1},
        {"name": "b", "port": 1, "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {}}]},
    ]);
    refused(
        backends(with_filter.clone()),
        "backendRefs[1].filters",
        "filters on a backend reference are not supported",
    );
    // Both are still resolved, so that ResolvedRefs tells about them.
    assert_eq!(rule(backends(with_filter)).backends.len(), 2);
    good(backends(json!([{"name": "a", "port": 1, "filters": []}])));
}

/// A Service of no valid name is one that is not found (shown where references are resolved): the rule stays.
#[test]
fn a_backend_namespace_that_would_break_out_of_the_host_is_refused() {
    for name in ["a.b", "a/b", "env://x", "A", "a@b", "a b"] {
        let found = good(backends(json!([{"name": name, "port": 1}])));
        assert_eq!(found.backends[0].name, name);
        refused(
            backends(json!([{"name": "a", "port": 1, "namespace": name}])),
            "backendRefs[0].namespace",
            "is no name of a namespace",
        );
    }
    refused(
        backends(json!([{"port": 1}])),
        "backendRefs[0].name",
        "must be set",
    );
    refused(
        backends(json!([{"name": "a", "port": 0}])),
        "backendRefs[0].port",
        "from 1 to 65535",
    );
}

// --- Filters -----------------------------------------------------------------------------------------------------

#[test]
fn filters_request_header_modifier_set_and_remove_are_supported() {
    let found = good(request_headers(json!({
        "set": [{"name": "x-one", "value": "1"}, {"name": "X-Empty", "value": ""}], "remove": ["x-two", "HOST-ID"]
    })));
    let edit = found.filters.request_headers;
    assert_eq!(
        edit.set,
        BTreeMap::from([("X-One".into(), "1".into()), ("X-Empty".into(), String::new())])
    );
    assert_eq!(edit.remove, BTreeSet::from(["X-Two".into(), "Host-Id".into()]));
}

#[test]
fn filters_request_header_modifier_add_is_not_supported() {
    refused(
        request_headers(json!({"add": [{"name": "a", "value": "b"}]})),
        "filters[0].requestHeaderModifier.add",
        "use set",
    );
    good(request_headers(json!({"add": []})));
}

#[test]
fn filters_response_header_modifier_set_and_remove_are_supported_and_add_is_not() {
    let body = |edit: Value| filter("ResponseHeaderModifier", "responseHeaderModifier", edit);
    let found = good(body(
        json!({"set": [{"name": "server", "value": "x"}], "remove": ["via"]}),
    ));
    assert_eq!(found.filters.response_headers.set["Server"], "x");
    assert!(found.filters.response_headers.remove.contains("Via"));
    assert!(found.filters.request_headers.is_empty());
    refused(
        body(json!({"add": [{"name": "a", "value": "b"}]})),
        "filters[0].responseHeaderModifier.add",
        "adding headers is not supported",
    );
}

#[test]
fn equal_header_names_are_merged_and_the_first_counts() {
    let edit = good(request_headers(json!({
        "set": [{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}], "remove": ["x-A", "x-b", "X-B"]
    })))
    .filters
    .request_headers;
    assert_eq!(edit.set, BTreeMap::from([("X-A".into(), "1".into())]));
    assert_eq!(
        edit.remove,
        BTreeSet::from(["X-B".into()]),
        "set wins over remove"
    );
}

#[test]
fn header_values_and_names_that_may_not_stand_in_a_document_are_refused() {
    for token in TOKENS {
        refused(
            request_headers(json!({"set": [{"name": "a", "value": format!("x{token}hunter2")}]})),
            "filters[0].requestHeaderModifier.set[0].value",
            "which Tyk replaces",
        );
        refused(
            request_headers(json!({"remove": ["a", format!("{token}hunter2")]})),
            "filters[0].requestHeaderModifier.remove[1]",
            "which Tyk replaces",
        );
    }
    for value in ["a\r\nX-Evil: 1", "a\tb", "\u{0}"] {
        refused(
            request_headers(json!({"set": [{"name": "a", "value": value}]})),
            "filters[0].requestHeaderModifier.set[0].value",
            "control characters",
        );
    }
    for name in ["a b", "a:b", "ä", ""] {
        let found = rule(request_headers(json!({"set": [{"name": name, "value": "v"}]})));
        assert_eq!(found.problems.len(), 1, "{name:?}");
        assert!(found.filters.request_headers.is_empty());
    }
}

#[test]
fn a_message_never_repeats_a_header_value() {
    let found = rule(request_headers(json!({"set": [
        {"name": "authorization", "value": "Bearer hunter2\u{1}"}, {"name": "b", "value": "hunter2 env://X"}
    ]})));
    assert_eq!(found.problems.len(), 2);
    assert!(!said(&found.problems).concat().contains("hunter2"));
}

#[test]
fn host_cannot_be_set_or_removed() {
    refused(
        request_headers(json!({"set": [{"name": "hOST", "value": "a"}]})),
        "filters[0].requestHeaderModifier.set[0].name",
        "Host cannot be changed",
    );
    refused(
        request_headers(json!({"remove": ["host"]})),
        "filters[0].requestHeaderModifier.remove[0]",
        "Host cannot be changed",
    );
}

#[test]
fn filters_url_rewrite_replace_prefix_match_is_supported() {
    for (value, prefix) in [
        ("/new", "/new"),
        ("/new/", "/new"),
        ("/", "/"),
        ("", "/"),
        ("/a%20b", "/a%20b"),
    ] {
        let found = good(rewrite(
            json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": value}}),
        ));
        assert_eq!(found.filters.rewrite, Some(PathRewrite::Prefix(prefix.into())));
    }
    for (value, words) in [
        ("new", "must start with /"),
        ("/a%2fb", "%2F"),
        ("/a?b", "query"),
        ("/ä", "percent-encoded"),
    ] {
        refused(
            rewrite(json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": value}})),
            "filters[0].urlRewrite.path.replacePrefixMatch",
            words,
        );
    }
}

#[test]
fn replace_prefix_match_needs_exactly_one_match() {
    let mut body = rewrite(json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/n"}}));
    body["matches"] = json!([{"path": {"value": "/a"}}, {"path": {"value": "/b"}}]);
    refused(body, "matches", "exactly one match");
}

#[test]
fn filters_url_rewrite_replace_full_path_is_supported() {
    for value in ["/new", "/new/", "/", "/a%2Fb", "/$b"] {
        let found = good(rewrite(
            json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": value}}),
        ));
        assert_eq!(found.filters.rewrite, Some(PathRewrite::Full(value.into())));
    }
}

#[test]
fn filters_url_rewrite_replace_full_path_cannot_contain_dollar_digit() {
    refused(
        rewrite(json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a$1"}})),
        "filters[0].urlRewrite.path.replaceFullPath",
        "$ followed by a digit",
    );
    let mut body = rewrite(json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a"}}));
    body["matches"] = json!([{"path": {"value": "/x$1"}}]);
    refused(body, "matches", "$ followed by a digit");
    good(path_match(json!({"value": "/x$1"})));
}

#[test]
fn filters_url_rewrite_with_hostname_is_not_supported() {
    refused(
        rewrite(json!({"hostname": "other.example.com"})),
        "filters[0].urlRewrite.hostname",
        "rewriting the hostname is not supported",
    );
}

fn plain_redirect() -> Value {
    json!({"hostname": "new.example.com", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}})
}

#[test]
fn filters_request_redirect_is_supported_if_hostname_is_set_and_path_is_replace_full_path() {
    let found = good(redirect(plain_redirect()));
    let expected = Redirect {
        scheme: None,
        hostname: "new.example.com".into(),
        port: None,
        path: "/x".into(),
        status: 302,
    };
    assert_eq!(found.filters.redirect, Some(expected));
    let mut body = plain_redirect();
    body["scheme"] = json!("https");
    body["port"] = json!(8443);
    body["statusCode"] = json!(308);
    let found = good(redirect(body)).filters.redirect.unwrap();
    assert_eq!(
        (found.scheme.as_deref(), found.port, found.status),
        (Some("https"), Some(8443), 308)
    );
}

#[test]
fn filters_request_redirect_that_depends_on_the_request_is_not_supported() {
    let mut no_host = plain_redirect();
    no_host.as_object_mut().unwrap().remove("hostname");
    refused(
        redirect(no_host),
        "filters[0].requestRedirect.hostname",
        "must be set",
    );
    let mut no_path = plain_redirect();
    no_path.as_object_mut().unwrap().remove("path");
    refused(
        redirect(no_path),
        "filters[0].requestRedirect.path",
        "ReplaceFullPath",
    );
    let mut prefix = plain_redirect();
    prefix["path"] = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/x"});
    let found = rule(redirect(prefix));
    assert!(said(&found.problems)[0].starts_with(
        "spec.rules[1].filters[0].requestRedirect.path.type: ReplacePrefixMatch is not supported in a redirect"
    ));
}

#[test]
fn filters_request_redirect_parts_are_checked() {
    for (field, value, path, words) in [
        ("scheme", json!("ftp"), "scheme", "use http or https"),
        ("hostname", json!("*.example.com"), "hostname", "wildcard"),
        ("hostname", json!("a/b"), "hostname", "DNS name"),
        ("hostname", json!("env://x"), "hostname", "DNS name"),
        (
            "statusCode",
            json!(309),
            "statusCode",
            "301, 302, 303, 307 and 308",
        ),
        (
            "statusCode",
            json!("302"),
            "statusCode",
            "301, 302, 303, 307 and 308",
        ),
        ("port", json!(0), "port", "from 1 to 65535"),
        (
            "path",
            json!({"type": "ReplaceFullPath", "replaceFullPath": "/$secret_env.x"}),
            "path.replaceFullPath",
            "which Tyk replaces",
        ),
        (
            "path",
            json!({"type": "ReplaceFullPath", "replaceFullPath": "/\r\nSet-Cookie: a"}),
            "path.replaceFullPath",
            "control characters",
        ),
        (
            "query",
            json!("a=b"),
            "query",
            "is not supported; remove the field",
        ),
    ] {
        let mut body = plain_redirect();
        body[field] = value;
        refused(
            redirect(body),
            &format!("filters[0].requestRedirect.{path}"),
            words,
        );
    }
}

#[test]
fn a_redirect_excludes_backends_and_rewrites() {
    let mut body = redirect(plain_redirect());
    body["backendRefs"] = json!([{"name": "web", "port": 80}]);
    refused(
        body,
        "backendRefs",
        "must be empty in a rule with a RequestRedirect",
    );
    let both = json!({"filters": [
        {"type": "RequestRedirect", "requestRedirect": plain_redirect()},
        {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}}},
    ]});
    refused(both, "filters", "exclude each other");
}

#[test]
fn filters_request_mirror_cors_external_auth_and_extension_ref_are_not_supported() {
    for (type_, field) in [
        ("RequestMirror", "requestMirror"),
        ("CORS", "cors"),
        ("ExternalAuth", "externalAuth"),
        ("ExtensionRef", "extensionRef"),
    ] {
        refused(
            filter(type_, field, json!({"anything": [1]})),
            &format!("filters[0].{field}"),
            &format!("{type_} is not supported"),
        );
    }
}

#[test]
fn a_filter_type_of_a_later_release_is_named_and_its_rule_dropped() {
    refused(
        filter("Teleport", "teleport", json!({})),
        "filters[0].type",
        "Teleport is not supported; remove the filter",
    );
}

#[test]
fn a_filter_is_whole_and_stands_once() {
    refused(json!({"filters": [{}]}), "filters[0].type", "must be set");
    refused(
        json!({"filters": [{"type": "URLRewrite"}]}),
        "filters[0].urlRewrite",
        "must be set for URLRewrite",
    );
    refused(
        json!({"filters": [
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["a"]}},
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["b"]}},
        ]}),
        "filters[1].type",
        "may stand once",
    );
    refused(
        json!({"filters": [{"type": "URLRewrite", "urlRewrite": {}, "cors": {}}]}),
        "filters[0].cors",
        "is not supported; remove the field",
    );
}

#[test]
fn the_order_of_filters_in_a_rule_has_no_effect() {
    let filters = [
        json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a", "value": "1"}]}}),
        json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["b"]}}),
        json!({"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}}}),
    ];
    let mut seen = Vec::new();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let list: Vec<&Value> = order.iter().map(|at| &filters[*at]).collect();
        let mut rule = good(json!({ "filters": list }));
        // The place of a filter is for messages alone.
        assert_eq!(
            rule.filter_at.rewrite,
            order.iter().position(|at| *at == 2).unwrap()
        );
        rule.filter_at = Default::default();
        seen.push(rule);
    }
    assert!(seen.iter().all(|other| *other == seen[0]));
}

// --- Unsupported features ----------------------------------------------------------------------------------------

#[test]
fn unsupported_features_timeouts_retry_and_session_persistence() {
    for field in ["timeouts", "retry", "sessionPersistence"] {
        refused(json!({field: {"x": 1}}), field, "not supported; remove the field");
        good(json!({field: null}));
    }
}

#[test]
fn the_message_names_the_field_and_the_reason() {
    let found = rule(json!({"retry": {"attempts": 3}, "matches": [{"path": {"value": "/a"}}]}));
    assert_eq!(
        said(&found.problems),
        ["spec.rules[1].retry: retries are not supported; remove the field"]
    );
}

#[test]
fn an_unknown_field_anywhere_in_a_rule_is_named() {
    for (body, path) in [
        (json!({"future": 1}), "future"),
        (json!({"matches": [{"future": 1}]}), "matches[0].future"),
        (
            json!({"matches": [{"path": {"value": "/", "future": 1}}]}),
            "matches[0].path.future",
        ),
        (
            json!({"backendRefs": [{"name": "a", "port": 1, "future": 1}]}),
            "backendRefs[0].future",
        ),
        (
            request_headers(json!({"future": 1})),
            "filters[0].requestHeaderModifier.future",
        ),
        (
            request_headers(json!({"set": [{"name": "a", "value": "b", "future": 1}]})),
            "filters[0].requestHeaderModifier.set[0].future",
        ),
        (rewrite(json!({"future": 1})), "filters[0].urlRewrite.future"),
        (
            rewrite(json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/", "future": 1}})),
            "filters[0].urlRewrite.path.future",
        ),
    ] {
        refused(body, path, "is not supported; remove the field");
    }
    good(json!({"name": "first"}));
}

#[test]
fn every_problem_of_a_rule_is_told_at_once() {
    let found = rule(json!({
        "timeouts": {"request": "1s"},
        "matches": [{"path": {"type": "Exact", "value": "/a"}, "headers": [{"name": "a", "value": "b"}]}],
        "filters": [{"type": "CORS", "cors": {}}],
        "backendRefs": [{"name": "web", "port": 80}],
    }));
    assert_eq!(found.problems.len(), 4, "{:?}", said(&found.problems));
    assert_eq!(found.backends.len(), 1);
}

// --- The route ---------------------------------------------------------------------------------------------------

#[test]
fn a_route_without_rules_has_one_for_everything() {
    for spec in [json!({}), json!({"rules": null})] {
        let found = route(spec);
        assert_eq!(found.rules.len(), 1);
        assert_eq!(
            found.rules[0].matches,
            [Match {
                path: "/".into(),
                method: None
            }]
        );
        assert_eq!(found.problems, []);
    }
    assert_eq!(route(json!({"rules": []})).rules, []);
}

#[test]
fn hostnames_are_lower_cased_without_duplicates_and_a_bad_one_is_the_routes_problem() {
    let found = route(json!({"hostnames": ["B.example.com", "a.example.com", "b.Example.com", "*.x.com"]}));
    assert_eq!(found.hostnames, ["b.example.com", "a.example.com", "*.x.com"]);
    assert_eq!(found.problems, []);
    let found = route(json!({"hostnames": ["a.example.com", "10.0.0.1", "env://x", 7]}));
    assert_eq!(
        said(&found.problems),
        [
            "spec.hostnames[3]: must be a string",
            "spec.hostnames[1]: must be a DNS name, not an IP address",
            "spec.hostnames[2]: must be a DNS name of letters, digits and hyphens",
        ]
    );
}

#[test]
fn parent_references_are_defaulted_and_their_problems_are_the_routes() {
    let found = route(json!({"parentRefs": [
        {"name": "edge"},
        {"name": "edge", "namespace": "infra", "sectionName": "https", "port": 443, "group": "g", "kind": "K"},
        {"name": "edge", "future": 1},
        {"sectionName": "x"},
    ]}));
    let plain = ParentRef {
        group: "gateway.networking.k8s.io".into(),
        kind: "Gateway".into(),
        namespace: None,
        name: "edge".into(),
        section_name: None,
        port: None,
    };
    assert_eq!(found.parents.len(), 3);
    assert_eq!(found.parents[0], plain);
    assert_eq!(found.parents[1].port, Some(443));
    assert_eq!(
        said(&found.problems),
        [
            "spec.parentRefs[2].future: is not supported; remove the field",
            "spec.parentRefs[3].name: must be set",
        ]
    );
}

#[test]
fn an_unknown_field_of_spec_is_the_routes_problem() {
    assert_eq!(
        said(&route(json!({"useDefaultGateways": "All"})).problems),
        ["spec.useDefaultGateways: is not supported; remove the field"]
    );
}

#[test]
fn what_is_no_route_at_all_is_still_a_route() {
    for spec in [
        json!(7),
        json!([]),
        json!({"rules": 7}),
        json!({"parentRefs": {}}),
        json!({"hostnames": "a"}),
    ] {
        assert_eq!(route(spec.clone()).problems.len(), 1, "{spec}");
    }
    let found = rule(json!(7));
    assert_eq!(said(&found.problems), ["spec.rules[1]: must be an object"]);
}

#[test]
fn lists_are_bounded_as_the_crd_bounds_them() {
    let many = |count: usize, item: Value| Value::Array(vec![item; count]);
    refused(json!({"matches": many(65, json!({}))}), "matches", "at most 64");
    refused(
        backends(many(17, json!({"name": "a", "port": 1}))),
        "backendRefs",
        "at most 16",
    );
    for (name, item, most) in [("rules", json!({}), 16), ("parentRefs", json!({"name": "a"}), 32)] {
        assert_eq!(route(json!({name: many(most, item.clone())})).problems, []);
        let said = said(&route(json!({name: many(most + 1, item)})).problems);
        assert_eq!(said, [format!("spec.{name}: must have at most {most} entries")]);
    }
    let hosts: Vec<String> = (0..17).map(|n| format!("h{n}.example.com")).collect();
    assert_eq!(route(json!({ "hostnames": hosts })).problems.len(), 1);
    let half = json!({"matches": many(64, json!({}))});
    assert_eq!(route(json!({"rules": [half, half]})).problems, []);
    assert_eq!(route(json!({"rules": [half, half, {}]})).problems.len(), 1);
}

#[test]
fn identity_is_read_from_metadata() {
    let found = HttpRoute::decode(&json!({
        "metadata": {
            "name": "shop", "namespace": "team", "uid": "u1", "generation": 7,
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
        },
    }))
    .unwrap();
    assert_eq!(found.meta.key.to_string(), "team/shop");
    assert_eq!((found.meta.uid.as_str(), found.meta.generation), ("u1", 7));
    assert_eq!(found.meta.created, 1_767_323_045);
    assert!(found.meta.deleting);
    let manifest = route(json!({}));
    assert_eq!((manifest.meta.created, manifest.meta.deleting), (i64::MAX, false));
}
