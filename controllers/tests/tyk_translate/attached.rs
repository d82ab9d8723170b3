//! An attached definition: what it may hold, how it joins the route's settings, and when it cannot.

use std::collections::BTreeMap;

use routewright::tyk::{
    Settings,
    objects::{Key, route::Method},
    translate::{
        EVERY_PATH, EXTENSION, Owner, Refusal, attach, base as document,
        stamp::{self, HASH, OWNER},
        translate,
    },
    verdict::{ApiPlan, OperationPlan},
};
use serde_json::{Value, json};

use crate::support::*;

fn with(document: Value) -> ApiPlan {
    ApiPlan {
        base: base(document),
        ..plan()
    }
}

/// A definition as people write it: authentication, limits, validation of an operation, a description.
fn library() -> Value {
    json!({
        "openapi": "3.0.3",
        "info": {"title": "Library", "version": "2.1.0", "description": "Books."},
        "servers": [{"url": "https://library.example.com"}],
        "tags": [{"name": "books"}],
        "paths": {
            "/books": {"get": {
                "operationId": "listBooks",
                "tags": ["books"],
                "responses": {"200": {"description": "All of them"}},
            }},
        },
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "Authorization"}}},
        "security": [{"key": []}],
        "x-tyk-api-gateway": {
            "info": {"name": "library", "state": {"active": false, "internal": true}},
            "server": {"authentication": {"enabled": true, "securitySchemes": {"key": {"enabled": true}}}},
            "upstream": {"rateLimit": {"enabled": true, "rate": 10, "per": "1s"}},
            "middleware": {
                "global": {
                    "cache": {"enabled": true, "timeout": 5},
                    "transformRequestHeaders": {
                        "enabled": true,
                        "add": [{"name": "x-env", "value": "base"}, {"name": "X-Base", "value": "1"}],
                        "remove": ["X-Secret", "x-seen"],
                    },
                },
                "operations": {"listBooks": {"validateRequest": {"enabled": true}}},
            },
        },
    })
}

// --- check ------------------------------------------------------------------------------------------------

#[test]
fn a_definition_of_a_library_is_fine() {
    assert_eq!(document::check(&library()), Ok(()));
    assert_eq!(document::check(&json!({"x-tyk-api-gateway": {}})), Ok(()));
}

#[test]
fn a_definition_without_extension_is_invalid() {
    for bad in [
        json!({}),
        json!({"openapi": "3.0.3", "info": {}, "paths": {}}),
        json!({"x-tyk-api-gateway": []}),
        json!({"x-tyk-api-gateway": null}),
    ] {
        let faults = document::check(&bad).unwrap_err();
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].starts_with("x-tyk-api-gateway: must be an object"),
            "{faults:?}"
        );
    }
    assert!(document::check(&json!([])).is_err());
    assert!(document::check(&json!("text")).is_err());
}

#[test]
fn a_definition_must_not_set_what_the_route_sets() {
    let paths = [
        "info.id",
        "info.dbId",
        "server.listenPath",
        "server.customDomain",
        "server.gatewayTags",
        "upstream.url",
        "upstream.loadBalancing",
        "upstream.preserveHostHeader",
    ];
    for path in paths {
        let (part, key) = path.split_once('.').unwrap();
        let mut bad = library();
        bad[EXTENSION][part][key] = json!("");
        let faults = document::check(&bad).unwrap_err();
        assert_eq!(
            faults,
            [format!(
                "x-tyk-api-gateway.{path}: comes from the route; remove it from the definition"
            )]
        );
        // An empty key in YAML sets nothing.
        bad[EXTENSION][part][key] = Value::Null;
        assert_eq!(document::check(&bad), Ok(()));
    }
}

/// Tyk compares keys without regard to case, and two letters outside of ASCII fold into it.
#[test]
fn a_key_that_tyk_takes_for_another_is_named_with_its_place() {
    for (pointer, spelled, known) in [
        ("", "Paths", "paths"),
        ("", "path\u{17f}", "paths"),
        ("info", "Title", "title"),
        ("paths./books", "GET", "get"),
        ("paths./books.get", "operationID", "operationId"),
        (EXTENSION, "Server", "server"),
        ("x-tyk-api-gateway.server", "CustomDomain", "customDomain"),
        ("x-tyk-api-gateway.server", "cu\u{17f}tomDomain", "customDomain"),
        ("x-tyk-api-gateway.server", "listenpath", "listenPath"),
        ("x-tyk-api-gateway.upstream", "LOADBALANCING", "loadBalancing"),
        ("x-tyk-api-gateway.middleware", "Operations", "operations"),
        (
            "x-tyk-api-gateway.middleware.operations.listBooks",
            "Allow",
            "allow",
        ),
        (
            "x-tyk-api-gateway.middleware.operations.listBooks",
            "bloc\u{212a}",
            "block",
        ),
        (
            "x-tyk-api-gateway.middleware.operations.listBooks.allow",
            "Enabled",
            "enabled",
        ),
        (
            "x-tyk-api-gateway.middleware.global.transformRequestHeaders.add.0",
            "Name",
            "name",
        ),
        ("x-tyk-api-gateway.errorOverrides", "Value", "value"),
    ] {
        let mut bad = library();
        bad[EXTENSION]["errorOverrides"] = json!({});
        bad[EXTENSION]["middleware"]["operations"]["listBooks"]["allow"] = json!({"enabled": false});
        assert_eq!(document::check(&bad), Ok(()));
        let place = pointer.split('.').filter(|key| !key.is_empty());
        let object = place.fold(&mut bad, |value, key| match key.parse::<usize>() {
            Ok(index) => &mut value[index],
            Err(_) => &mut value[key],
        });
        // Also when it is null: that may take a setting away.
        object[spelled] = Value::Null;
        let here = match pointer {
            "" => "the document".to_owned(),
            pointer => pointer.replace(".0", "[0]"),
        };
        assert_eq!(
            document::check(&bad),
            Err(vec![format!(
                "{here}: to Tyk the key {spelled:?} is {known}; write it like that, or remove it"
            )])
        );
    }
}

/// Names that the user gives are compared by Tyk as they are written; and OpenAPI allows extensions.
#[test]
fn keys_of_the_user_may_be_spelled_in_any_way() {
    assert_eq!(
        document::check(&json!({
            "x-Größe": 1,
            "paths": {"/Info": {"x-Get": 1}, "/PATHS/ſ": {}},
            "components": {"securitySchemes": {"Enabled": {}, "größe": {}}},
            "x-tyk-api-gateway": {
                "server": {"authentication": {"securitySchemes": {"Enabled": {}, "größe": {}}}},
                "middleware": {"operations": {"Allow": {}, "größe": {}}},
                "errorOverrides": {"value": {"Enabled": []}},
            },
        })),
        Ok(())
    );
    let faults = document::check(&json!({"x-tyk-api-gateway": {"server": {"größe": 1}}})).unwrap_err();
    assert_eq!(
        faults,
        ["x-tyk-api-gateway.server: the key \"größe\" is none of Tyk's; use ASCII letters"]
    );
}

#[test]
fn overrides_of_a_refusal_that_are_no_list_are_a_fault() {
    let overrides = |rules: Value| json!({"x-tyk-api-gateway": {"errorOverrides": {"enabled": true, "value": {"403": rules}}}});
    for bad in [json!("no"), json!({}), json!(1), json!(false)] {
        assert_eq!(
            document::check(&overrides(bad)),
            Err(vec![
                "x-tyk-api-gateway.errorOverrides.value.403: must be a list".to_owned()
            ])
        );
    }
    for good in [json!([]), json!(null)] {
        assert_eq!(document::check(&overrides(good)), Ok(()));
    }
}

#[test]
fn every_fault_of_a_definition_is_named_with_its_place() {
    let faults = document::check(&json!({
        "info": "Library",
        "paths": {"/books": [], "x-note": "fine"},
        "x-tyk-api-gateway": {
            "info": {"id": "mine"},
            "server": [],
            "middleware": {"operations": {"listBooks": true}},
        },
    }))
    .unwrap_err();
    insta::assert_snapshot!(faults.join("\n"));
}

// --- join -------------------------------------------------------------------------------------------------

#[test]
fn a_whole_document_with_a_definition() {
    let mut plan = with(library());
    plan.operations = methods(
        &[Method::Get, Method::Post],
        &request(&[("X-Env", "route")], &["X-Seen"]),
    );
    assert_eq!(attach::conflict(&plan), Ok(None));
    insta::assert_json_snapshot!(api(&plan).document);
}

#[test]
fn the_route_keeps_what_is_its_own_and_the_definition_the_rest() {
    let alone = api(&plan()).document;
    let plan = with(library());
    let joined = api(&plan).document;
    for path in [
        "/info/id",
        "/info/name",
        "/info/state",
        "/server/listenPath",
        "/server/customDomain",
        "/upstream/url",
        "/upstream/preserveHostHeader",
    ] {
        assert_eq!(
            joined[EXTENSION].pointer(path),
            alone[EXTENSION].pointer(path),
            "{path}"
        );
    }
    assert_eq!(joined["info"]["title"], alone["info"]["title"]);
    for kept in ["components", "security", "servers", "tags"] {
        assert_eq!(joined[kept], library()[kept], "{kept}");
    }
    for kept in [
        "/server/authentication",
        "/upstream/rateLimit",
        "/middleware/operations/listBooks",
    ] {
        assert_eq!(
            joined[EXTENSION].pointer(kept),
            library()[EXTENSION].pointer(kept),
            "{kept}"
        );
    }
    assert_eq!(joined["info"]["version"], "2.1.0");
    assert_eq!(joined["paths"]["/books"], library()["paths"]["/books"]);
    assert!(joined["paths"].get(EVERY_PATH).is_some());
}

/// Names are compared as HTTP compares them.
#[test]
fn global_headers_of_route_and_definition_are_merged_by_name() {
    let mut plan = with(library());
    plan.operations = every_method(&request(&[("X-Env", "route")], &["X-Base"]));
    assert_eq!(
        extension(&plan, "/middleware/global/transformRequestHeaders"),
        json!({
            "enabled": true,
            "add": [{"name": "X-Env", "value": "route"}],
            "remove": ["X-Secret", "x-seen", "X-Base"],
        })
    );
    // A route without header filters changes nothing of it.
    plan.operations = every_method(&OperationPlan::default());
    assert_eq!(
        extension(&plan, "/middleware/global/transformRequestHeaders"),
        library()[EXTENSION]["middleware"]["global"]["transformRequestHeaders"]
    );
}

#[test]
fn global_headers_that_a_definition_switched_off_stay_off() {
    let mut theirs = library();
    theirs[EXTENSION]["middleware"]["global"]["transformRequestHeaders"]["enabled"] = json!(false);
    let mut plan = with(theirs);
    plan.operations = every_method(&request(&[("X-Env", "route")], &[]));
    assert_eq!(
        extension(&plan, "/middleware/global/transformRequestHeaders"),
        json!({"enabled": true, "add": [{"name": "X-Env", "value": "route"}]})
    );
}

/// A definition cannot give an API to somebody else.
#[test]
fn a_definition_cannot_bring_an_owner() {
    let mut theirs = library();
    theirs[OWNER] = json!({"cluster": "x"});
    theirs[HASH] = json!("0");
    let document = api(&with(theirs)).document;
    assert_eq!((document.get(OWNER), document.get(HASH)), (None, None));
}

/// The last line: a definition that was not checked is refused all the same.
#[test]
fn a_document_that_cannot_be_made_says_why() {
    let mut plan =
        with(json!({"x-tyk-api-gateway": {"errorOverrides": {"enabled": true, "value": {"403": "no"}}}}));
    plan.operations = methods(&[Method::Get], &OperationPlan::default());
    let refused = translate(&plan, &Settings::default()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the attached definition's document: x-tyk-api-gateway.errorOverrides.value.403: must be a list"
    );
    plan.operations.clear();
    assert_eq!(translate(&plan, &Settings::default()), Err(Refusal::NoMethod));
}

// --- conflicts --------------------------------------------------------------------------------------------

/// A definition with one operation, at a path and method, with a middleware.
fn one(method: &str, middleware: &str) -> Value {
    json!({
        "paths": {"/books": {method: {"operationId": "books"}}},
        "x-tyk-api-gateway": {"middleware": {"operations": {"books": {middleware: {"enabled": true}}}}},
    })
}

fn conflict(document: Value, operations: BTreeMap<Method, OperationPlan>) -> Option<String> {
    attach::conflict(&ApiPlan {
        operations,
        ..with(document)
    })
    .unwrap()
}

/// What translation refuses is not passed over as "no conflict".
#[test]
fn a_plan_that_is_refused_anyway_says_so_instead_of_having_no_conflict() {
    let mut plan = with(json!({"x-tyk-api-gateway": {}}));
    plan.prefix = Some("/v$1".to_owned());
    plan.operations.insert(Method::Get, full_path("/f"));
    let refused = attach::conflict(&plan).unwrap_err();
    assert!(matches!(refused, Refusal::Group { .. }), "{refused}");
    assert_eq!(translate(&plan, &Settings::default()), Err(refused));
}

#[test]
fn without_a_definition_there_is_no_conflict() {
    assert_eq!(attach::conflict(&plan()), Ok(None));
}

#[test]
fn a_collision_names_definition_operation_and_reason() {
    let found = conflict(
        one("get", "mockResponse"),
        every_method(&redirect("https://e.org/", 301)),
    );
    assert_eq!(
        found.unwrap(),
        "TykOasApiDefinition team/auth conflicts with the route: GET /books has a mockResponse, but the route \
         redirects the method"
    );
}

/// Each middleware that the route sets for single operations, against the same one of the definition.
#[test]
fn the_same_middleware_for_the_same_method_collides() {
    let get_only = |operation: OperationPlan| {
        let mut operations = every_method(&OperationPlan::default());
        operations.insert(Method::Get, operation);
        operations
    };
    let redirected = get_only(redirect("https://e.org/", 301));
    let replaced = get_only(full_path("/new"));
    let request = get_only(request(&[("X-A", "1")], &[]));
    let response = get_only(response(&[("X-A", "1")], &[]));
    let rows = [
        (&redirected, "mockResponse"),
        (&replaced, "urlRewrite"),
        (&request, "transformRequestHeaders"),
        (&response, "transformResponseHeaders"),
    ];
    for (operations, middleware) in rows {
        assert!(
            conflict(one("get", middleware), operations.clone()).is_some(),
            "{middleware}"
        );
        // Switched off, or something else, or no operation of that name.
        let mut off = one("get", middleware);
        off[EXTENSION]["middleware"]["operations"]["books"][middleware]["enabled"] = json!(false);
        assert_eq!(conflict(off, operations.clone()), None, "{middleware} off");
        assert_eq!(
            conflict(one("get", "validateRequest"), operations.clone()),
            None,
            "{middleware} and another"
        );
    }
    // Another method: only where the route rewrites it too, because the upstream has no path.
    for (operations, middleware) in rows {
        let found = conflict(one("post", middleware), operations.clone());
        assert_eq!(
            found.is_some(),
            middleware == "urlRewrite",
            "{middleware}: {found:?}"
        );
    }
}

/// Global changes leave the definition's operations alone.
#[test]
fn header_changes_of_all_methods_collide_with_nothing() {
    for middleware in ["transformRequestHeaders", "transformResponseHeaders"] {
        let operation = OperationPlan {
            request_headers: edit(&[("X-A", "1")], &[]).into(),
            response_headers: edit(&[("X-A", "1")], &[]).into(),
            ..OperationPlan::default()
        };
        assert_eq!(
            conflict(one("get", middleware), every_method(&operation)),
            None,
            "{middleware}"
        );
    }
}

#[test]
fn a_mock_for_a_method_that_no_rule_matches_collides() {
    let get = methods(&[Method::Get], &OperationPlan::default());
    assert!(
        conflict(one("post", "mockResponse"), get.clone())
            .unwrap()
            .contains("POST /books")
    );
    assert_eq!(conflict(one("get", "mockResponse"), get.clone()), None);
    assert_eq!(conflict(one("post", "validateRequest"), get), None);
}

#[test]
fn the_names_of_the_routes_operations_are_taken() {
    let every = every_method(&OperationPlan::default());
    let named = json!({
        "paths": {"/books": {"post": {"operationId": "get"}}},
        "x-tyk-api-gateway": {},
    });
    assert!(
        conflict(named, every.clone())
            .unwrap()
            .contains("operationId `get`")
    );
    let settings = json!({"x-tyk-api-gateway": {"middleware": {"operations": {"get": {}}}}});
    assert!(
        conflict(settings, every.clone())
            .unwrap()
            .contains("middleware.operations has `get`")
    );
    let path = json!({"paths": {EVERY_PATH: {"get": {"operationId": "x"}}}, "x-tyk-api-gateway": {}});
    assert!(conflict(path, every.clone()).unwrap().contains(EVERY_PATH));
}

/// For responses the global changes come last.
#[test]
fn a_global_response_header_against_that_of_a_single_method_collides() {
    let theirs = |name: &str| {
        json!({"x-tyk-api-gateway": {"middleware": {"global": {"transformResponseHeaders": {
            "enabled": true, "add": [{"name": name, "value": "base"}],
        }}}}})
    };
    let mut operations = every_method(&OperationPlan::default());
    operations.insert(Method::Get, response(&[("X-A", "1")], &[]));
    assert!(conflict(theirs("x-a"), operations.clone()).is_some());
    assert_eq!(conflict(theirs("X-B"), operations), None);
}

#[test]
fn a_long_list_of_collisions_is_cut() {
    let mut paths = serde_json::Map::new();
    for n in 0..200 {
        paths.insert(format!("/p{n}"), json!({"get": {"operationId": "get"}}));
    }
    let found = conflict(
        json!({"paths": paths, "x-tyk-api-gateway": {}}),
        every_method(&OperationPlan::default()),
    )
    .unwrap();
    assert!(found.ends_with("; and 195 more"), "{found}");
    assert!(found.len() < 2_000);
}

// --- owner ------------------------------------------------------------------------------------------------

#[test]
fn the_stamp_names_the_owner_and_covers_everything() {
    let owner = Owner {
        cluster: "c1".to_owned(),
        controller: "example.org/tyk".to_owned(),
        route: Key::new("team", "shop"),
        uid: "u-1".to_owned(),
    };
    let stamped = stamp::stamp(api(&plan()), &owner);
    assert_eq!(
        stamped.document[OWNER],
        json!({"cluster": "c1", "controller": "example.org/tyk", "route": {"namespace": "team", "name": "shop", "uid": "u-1"}})
    );
    assert_eq!(Owner::of(&stamped.document), Some(owner.clone()));
    assert_eq!(Owner::of(&json!({})), None);
    assert_eq!(stamped.document[HASH], stamp::digest(&stamped.document));
    assert_eq!(stamped.document[HASH].as_str().unwrap().len(), 64);
    // Stamped again it is the same; another owner or document is another digest.
    assert_eq!(stamp::stamp(stamped.clone(), &owner), stamped);
    let other = stamp::stamp(
        api(&plan()),
        &Owner {
            uid: "u-2".to_owned(),
            ..owner.clone()
        },
    );
    assert_ne!(other.document[HASH], stamped.document[HASH]);
    let mut changed = plan();
    changed.prefix = Some("/v2".to_owned());
    assert_ne!(
        stamp::stamp(api(&changed), &owner).document[HASH],
        stamped.document[HASH]
    );
}
