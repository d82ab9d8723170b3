//! Attached definitions: their authentication, lists and operations beside what the route sets.

use std::{collections::BTreeMap, fs, path::Path};

use routewright::tyk::{
    objects::route::Method,
    translate::{attach, base, identity},
    verdict::{ApiPlan, OperationPlan},
};
use serde_json::{Value, json};

use crate::{
    Backends, Case,
    gateway::Gateway,
    methods::at,
    support::{self, every_method, methods, redirect, request},
};

/// A definition that asks for a key, with operations and their middleware.
fn with_key(paths: Value, operations: Value, global: Value) -> Value {
    json!({
        "openapi": "3.0.3",
        "info": {"title": "Library", "version": "1.0.0"},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "Authorization"}}},
        "security": [{"key": []}],
        "x-tyk-api-gateway": {
            "server": {"authentication": {"enabled": true, "securitySchemes": {"key": {"enabled": true}}}},
            "middleware": {"operations": operations, "global": global},
        },
    })
}

/// A definition without authentication.
fn open(paths: Value, operations: Value, global: Value) -> Value {
    let mut document = with_key(paths, operations, global);
    document.as_object_mut().unwrap().remove("security");
    document["x-tyk-api-gateway"]
        .as_object_mut()
        .unwrap()
        .remove("server");
    document
}

fn operation(id: &str) -> Value {
    json!({"operationId": id, "responses": {"200": {"description": "ok"}}})
}

fn attach(mut plan: ApiPlan, document: Value) -> ApiPlan {
    assert_eq!(base::check(&document), Ok(()));
    plan.base = support::base(document);
    assert_eq!(attach::conflict(&plan), Ok(None));
    plan
}

/// A key for an API.
fn key(gateway: &Gateway, id: &str) -> String {
    let body = json!({
        "org_id": "org1",
        "rate": 1000, "per": 1, "quota_max": -1, "expires": -1,
        "access_rights": {id: {"api_id": id, "api_name": id, "versions": ["Default"]}},
    });
    let answer = gateway.control("POST", "/tyk/keys", body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let made: Value = serde_json::from_str(&answer.body).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

pub(crate) fn authentication_of_a_definition(backends: &Backends) -> Case {
    let document = || with_key(json!({}), json!({}), json!({}));
    let whole = attach(at("/closed", backends), document());
    let mut some = at("/closed-some", backends);
    some.operations = methods(&[Method::Get], &request(&[("X-Set", "1")], &[]));
    let some = attach(some, document());
    let ids = [identity(&whole), identity(&some)];
    Case::new([whole, some], move |gateway| {
        for (path, id) in ["/closed/x", "/closed-some/x"].into_iter().zip(&ids) {
            // Without a key and with a wrong one.
            assert_eq!(gateway.ask("GET", path).status, 401, "{path}");
            let wrong = gateway.ask_with("GET", path, &[("Authorization", "wrong")]);
            assert_eq!(wrong.status, 403, "{path}: {}", wrong.body);
            let right = key(gateway, id);
            let answer = gateway.ask_with("GET", path, &[("Authorization", &right)]);
            assert_eq!(answer.target(), path);
        }
        // Methods that no rule matches: 404, whoever asks.
        let right = key(gateway, &ids[1]);
        for method in ["POST", "HEAD", "PROPFIND"] {
            for token in ["", "wrong", &right] {
                let answer = gateway.ask_with(method, "/closed-some/x", &[("Authorization", token)]);
                assert_eq!(answer.status, 404, "{method} {token:?}: {}", answer.body);
            }
        }
    })
}

/// What docs/src/tyk/authentication.md does with keys, with its document and its words. The limit of the document, ten
/// requests a second for an API, is not reached.
pub(crate) fn keys_as_the_page_makes_them(backends: &Backends) -> Case {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| fs::read_to_string(top.join(file)).unwrap();
    let sample = read("samples/tyk/authentication.yaml");
    let (sample, _) = sample.split_once("\n---").unwrap();
    let sample: Value = serde_saphyr::from_str(sample).unwrap();
    let document: Value = serde_saphyr::from_str(sample["data"]["oas.yaml"].as_str().unwrap()).unwrap();
    const BODY: &str = r#"{"access_rights": {"$id": {"api_id": "$id"}}}"#;
    let page = read("docs/src/tyk/authentication.md").replace("\\\"", "\"");
    assert!(page.contains(BODY), "the page makes keys in another way");
    let plans = ["/keys-one", "/keys-other"].map(|path| attach(at(path, backends), document.clone()));
    let ids = [identity(&plans[0]), identity(&plans[1])];
    Case::new(plans, move |gateway| {
        let status = |path: &str, key: &str| {
            let headers = [("Authorization", key)];
            let headers = if key.is_empty() { &[][..] } else { &headers };
            gateway.ask_with("GET", path, headers).status
        };
        let made = |body: &str| {
            let answer = gateway.control("POST", "/tyk/keys", body.as_bytes());
            assert_eq!(answer.status, 200, "{}", answer.body);
            let made: Value = serde_json::from_str(&answer.body).unwrap();
            made["key"].as_str().unwrap().to_owned()
        };
        // Given a key for one of two APIs, then it opens that one alone
        let key = made(&BODY.replace("$id", &ids[0]));
        assert_eq!(
            (status("/keys-one", ""), status("/keys-one", "somebody")),
            (401, 403)
        );
        assert_eq!(
            (status("/keys-one", &key), status("/keys-other", &key)),
            (200, 403)
        );
        // When it is taken away, then it opens nothing, and cannot be taken away again
        let away = || gateway.control("DELETE", &format!("/tyk/keys/{key}"), b"");
        assert_eq!(away().status, 200);
        assert_eq!(status("/keys-one", &key), 403);
        let again = away();
        assert_eq!(again.status, 404);
        assert!(
            again.body.contains("There is no such key found"),
            "{}",
            again.body
        );
        // And a key that names no API is refused, also by whoever has the secret; nobody else makes any
        for (body, wanted) in [
            ("{}", 500),
            (r#"{"access_rights": {}}"#, 500),
            ("[]", 400),
            ("{", 400),
        ] {
            let answer = gateway.control("POST", "/tyk/keys", body.as_bytes());
            assert_eq!(answer.status, wanted, "{body}: {}", answer.body);
        }
        let body = BODY.replace("$id", &ids[0]);
        let stranger = gateway.send("POST", "/tyk/keys", &[("x-tyk-authorization", "guess")], &body);
        assert_eq!(stranger.status, 403, "{}", stranger.body);
        // Given a key that was made before its API, then it opens it once it is there
        let early = made(&BODY.replace("$id", "gwapi-keys-early"));
        let mut document = gateway.get(&ids[0]);
        let extension = &mut document["x-tyk-api-gateway"];
        extension["info"]["id"] = json!("gwapi-keys-early");
        extension["server"]["listenPath"]["value"] = json!("/keys-early");
        let answer = gateway.control("POST", "/tyk/apis/oas", document.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
        gateway.reload();
        assert_eq!(
            (status("/keys-early", ""), status("/keys-early", &early)),
            (401, 200)
        );
        gateway.clean(&["gwapi-keys-early".to_owned()]);
    })
}

pub(crate) fn a_redirect_is_open_despite_authentication(backends: &Backends) -> Case {
    let document = || with_key(json!({}), json!({}), json!({}));
    let mut whole = at("/moved-closed", backends);
    whole.operations = every_method(&redirect("https://example.org/", 308));
    let mut some = at("/moved-some", backends);
    some.operations = BTreeMap::from([
        (Method::Get, redirect("https://example.org/", 308)),
        (Method::Post, OperationPlan::default()),
    ]);
    Case::new([attach(whole, document()), attach(some, document())], |gateway| {
        assert_eq!(gateway.ask("POST", "/moved-closed/x").status, 308);
        assert_eq!(gateway.ask("GET", "/moved-some/x").status, 308);
        assert_eq!(gateway.ask("POST", "/moved-some/x").status, 401);
        assert_eq!(gateway.ask("PUT", "/moved-some/x").status, 404);
    })
}

/// What the definition forbids stays forbidden; what no rule matches is not there.
pub(crate) fn an_allow_list_of_a_definition(backends: &Backends) -> Case {
    let with = |enabled: bool| {
        open(
            json!({"/books": {"get": operation("list"), "post": operation("add")}}),
            json!({"list": {"allow": {"enabled": enabled}}, "add": {"allow": {"enabled": enabled}}}),
            json!({}),
        )
    };
    let document = || with(true);
    let whole = attach(at("/allow", backends), document());
    // Entries that are switched off are no list.
    let mut off = at("/allow-off", backends);
    off.operations = methods(&[Method::Get], &OperationPlan::default());
    let off = attach(off, with(false));
    let mut some = at("/allow-some", backends);
    some.operations = methods(&[Method::Get, Method::Put], &OperationPlan::default());
    Case::new([whole, off, attach(some, document())], |gateway| {
        let status = |method: &str, path: &str| gateway.ask(method, path).status;
        for (method, path, wanted) in [
            ("GET", "/allow-off/other", 200),
            ("POST", "/allow-off/books", 404),
            ("PROPFIND", "/allow-off/books", 404),
            ("GET", "/allow/books", 200),
            ("POST", "/allow/books", 200),
            ("GET", "/allow/other", 403),
            ("PUT", "/allow/books", 403),
            ("GET", "/allow-some/books", 200),
            ("GET", "/allow-some/other", 403),
            ("PUT", "/allow-some/books", 403),
            ("POST", "/allow-some/books", 404),
            ("HEAD", "/allow-some/books", 404),
            ("DELETE", "/allow-some/x%0A", 404),
            // A method outside of OpenAPI cannot have an answer of its own: the definition's list forbids it.
            ("PROPFIND", "/allow-some/books", 403),
        ] {
            assert_eq!(status(method, path), wanted, "{method} {path}");
        }
    })
}

/// Blocked stays closed; where some methods are not matched it answers 404 as they do (docs/src/tyk/limits.md).
pub(crate) fn a_block_of_a_definition(backends: &Backends) -> Case {
    let document = || {
        open(
            json!({"/secret": {"get": operation("secret")}, "/a": {"get": operation("short")}}),
            json!({"secret": {"block": {"enabled": true}}, "short": {"block": {"enabled": true}}}),
            json!({}),
        )
    };
    let whole = attach(at("/block", backends), document());
    let mut some = at("/block-some", backends);
    some.operations = methods(&[Method::Get], &OperationPlan::default());
    Case::new([whole, attach(some, document())], |gateway| {
        let status = |method: &str, path: &str| gateway.ask(method, path).status;
        for (method, path, wanted) in [
            ("GET", "/block/secret", 403),
            ("GET", "/block/a", 403),
            ("GET", "/block/other", 200),
            ("GET", "/block-some/secret", 404),
            ("GET", "/block-some/a", 404),
            ("GET", "/block-some/other", 200),
            ("POST", "/block-some/other", 404),
        ] {
            assert_eq!(status(method, path), wanted, "{method} {path}");
        }
    })
}

/// Paths of a definition are below the path of the match.
pub(crate) fn operations_of_a_definition(backends: &Backends) -> Case {
    let mut add = operation("add");
    add["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": {
        "type": "object", "required": ["title"], "properties": {"title": {"type": "string"}},
    }}}});
    let mut plan = at("/library", backends);
    plan.operations = methods(&[Method::Get, Method::Post], &OperationPlan::default());
    let plan = attach(
        plan,
        open(
            json!({"/books": {"post": add, "get": operation("list")}}),
            json!({
                "add": {"validateRequest": {"enabled": true, "errorResponseCode": 422}},
                "list": {"mockResponse": {"enabled": true, "code": 418, "body": "tea"}},
            }),
            json!({}),
        ),
    );
    Case::new([plan], |gateway| {
        let json = [("Content-Type", "application/json")];
        let status = |path: &str, body: &str| gateway.send("POST", path, &json, body).status;
        assert_eq!(status("/library/books", r#"{"title": "Emma"}"#), 200);
        assert_eq!(status("/library/books", "{}"), 422);
        assert_eq!(status("/library/other", "{}"), 200);
        assert_eq!(gateway.ask("GET", "/library/books").status, 418);
        assert_eq!(gateway.ask("GET", "/library/other").status, 200);
        assert_eq!(gateway.ask("PUT", "/library/books").status, 404);
    })
}

pub(crate) fn header_changes_of_route_and_definition(backends: &Backends) -> Case {
    let mut plan = at("/merged", backends);
    let mut operation_plan = request(&[("X-Env", "route")], &["X-Base"]);
    operation_plan.response_headers = request(&[("X-Old", "route")], &[]).request_headers;
    plan.operations = every_method(&operation_plan);
    let document = open(
        json!({"/books": {"get": operation("list")}}),
        json!({"list": {"transformRequestHeaders": {"enabled": true, "add": [{"name": "X-List", "value": "1"}]}}}),
        json!({
            "transformRequestHeaders": {
                "enabled": true,
                "add": [{"name": "x-env", "value": "base"}, {"name": "X-Base", "value": "1"}, {"name": "X-Other", "value": "1"}],
                "remove": ["X-Gone"],
            },
            "transformResponseHeaders": {
                "enabled": true, "add": [{"name": "x-old", "value": "base"}], "remove": ["X-Powered-By"],
            },
        }),
    );
    // Changes of a single method, beside those of the definition for all.
    let mut single = at("/merged-one", backends);
    single
        .operations
        .insert(Method::Get, request(&[("X-Env", "route")], &["X-Other"]));
    let mut theirs = document.clone();
    theirs["x-tyk-api-gateway"]["middleware"]["operations"] = json!({});
    Case::new([attach(plan, document), attach(single, theirs)], |gateway| {
        for (path, of_list) in [("/merged/books", Some("1")), ("/merged/other", None)] {
            let answer = gateway.ask_with("GET", path, &[("X-Gone", "1")]);
            let headers = answer.echo()["headers"].clone();
            assert_eq!(headers["x-env"], "route", "{path}");
            assert_eq!(headers["x-other"], "1");
            assert!(headers.get("x-base").is_none() && headers.get("x-gone").is_none());
            assert_eq!(headers.get("x-list").and_then(Value::as_str), of_list);
            assert_eq!(answer.header("x-old"), Some("route"));
            assert_eq!(answer.header("x-powered-by"), None);
        }
        let headers = |method: &str| gateway.ask(method, "/merged-one/x").echo()["headers"].clone();
        assert_eq!(headers("GET")["x-env"], "route");
        assert!(headers("GET").get("x-other").is_none());
        assert_eq!(headers("POST")["x-env"], "base");
        assert_eq!(headers("POST")["x-other"], "1");
    })
}

/// A definition that opens, validates and rewrites a method which no rule matches: it is not there.
pub(crate) fn settings_for_unmatched_methods_do_nothing(backends: &Backends) -> Case {
    let document = |allow: bool| {
        with_key(
            json!({"/books": {"post": operation("add"), "get": operation("list")}}),
            json!({
                "add": {
                    "ignoreAuthentication": {"enabled": true},
                    "validateRequest": {"enabled": true},
                    "urlRewrite": {"enabled": true, "pattern": ".*", "rewriteTo": "/elsewhere"},
                    "block": {"enabled": false},
                },
                "list": {"allow": {"enabled": allow}},
            }),
            json!({}),
        )
    };
    let with = |path: &str, allow: bool| {
        let mut plan = at(path, backends);
        plan.operations = methods(&[Method::Get], &OperationPlan::default());
        attach(plan, document(allow))
    };
    Case::new([with("/dead", false), with("/dead-allow", true)], |gateway| {
        for path in ["/dead", "/dead-allow"] {
            assert_eq!(gateway.ask("GET", &format!("{path}/books")).status, 401, "{path}");
            for below in ["/books", "/other"] {
                let answer = gateway.send("POST", &format!("{path}{below}"), &[], "{}");
                assert_eq!(answer.status, 404, "{path}{below}: {}", answer.body);
            }
        }
    })
}

/// Another method of the same path is no collision: each keeps its own.
pub(crate) fn the_same_middleware_for_another_method(backends: &Backends) -> Case {
    let document = |middleware: Value| {
        open(
            json!({"/books/{id}": {
                "post": operation("add"),
                "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
            }}),
            json!({"add": middleware}),
            json!({}),
        )
    };
    let mut headers = at("/other-headers", backends);
    headers
        .operations
        .insert(Method::Get, request(&[("X-Set", "route")], &[]));
    let headers = attach(
        headers,
        document(
            json!({"transformRequestHeaders": {"enabled": true, "add": [{"name": "X-Set", "value": "base"}]}}),
        ),
    );
    let mut moved = at("/other-mock", backends);
    moved
        .operations
        .insert(Method::Get, redirect("https://example.org/", 301));
    let moved = attach(
        moved,
        document(json!({"mockResponse": {"enabled": true, "code": 418, "body": "tea"}})),
    );
    Case::new([headers, moved], |gateway| {
        let set =
            |method: &str, path: &str| gateway.ask(method, path).echo()["headers"].get("x-set").cloned();
        assert_eq!(set("GET", "/other-headers/books/1"), Some(json!("route")));
        assert_eq!(set("POST", "/other-headers/books/1"), Some(json!("base")));
        assert_eq!(set("POST", "/other-headers/other"), None);
        let status = |method: &str, path: &str| gateway.ask(method, path).status;
        assert_eq!(status("GET", "/other-mock/books/1"), 301);
        assert_eq!(status("POST", "/other-mock/books/1"), 418);
        assert_eq!(status("POST", "/other-mock/other"), 200);
    })
}

/// Why other spellings of keys are refused: to Tyk they are the same. What the check forbids is done here on purpose.
pub(crate) fn another_spelling_of_a_key_is_the_same_to_tyk(backends: &Backends) -> Case {
    let with = |path: &str, document: Value| {
        assert!(base::check(&document).is_err(), "{document}");
        ApiPlan {
            base: support::base(document),
            ..at(path, backends)
        }
    };
    let domain = |key: &str, host: &str| json!({"x-tyk-api-gateway": {"server": {key: {"enabled": true, "name": host}}}});
    let upper = with("/spelled-upper", domain("CustomDomain", "upper.spelled.test"));
    let long_s = with("/spelled-s", domain("cu\u{17f}tomDomain", "long-s.spelled.test"));
    let tags = with(
        "/spelled-tags",
        json!({"x-tyk-api-gateway": {"server": {"gatewayTag\u{17f}": {"enabled": true, "tags": ["x"]}}}}),
    );
    let blocked = with(
        "/spelled-operation",
        json!({
            "paths": {"/books": {"get": operation("books")}},
            "x-tyk-api-gateway": {"middleware": {"operations": {"books": {"bloc\u{212a}": {"ENABLED": true}}}}},
        }),
    );
    let ids = [&upper, &long_s, &tags].map(identity);
    Case::new([upper, long_s, tags, blocked], move |gateway| {
        let server = |id: &str| gateway.get(id)["x-tyk-api-gateway"]["server"].clone();
        for (id, host, path) in [
            (&ids[0], "upper.spelled.test", "/spelled-upper"),
            (&ids[1], "long-s.spelled.test", "/spelled-s"),
        ] {
            // The API serves a host that no listener granted, and no other.
            assert_eq!(server(id)["customDomain"]["name"], host, "{}", server(id));
            let status = |host: &str| gateway.ask_with("GET", path, &[("Host", host)]).status;
            assert_eq!((status(host), status("other.spelled.test")), (200, 404), "{path}");
        }
        assert_eq!(server(&ids[2])["gatewayTags"]["tags"], json!(["x"]));
        let status = |path: &str| gateway.ask("GET", path).status;
        assert_eq!(status("/spelled-operation/books"), 403);
        assert_eq!(status("/spelled-operation/other"), 200);
    })
}
