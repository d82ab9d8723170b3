//! The REST API: what a write does, when it shows, what is refused and with which words.

use serde_json::{Value, json};

use crate::{Backends, Case, gateway::Gateway};

/// A small document.
fn document(id: &str, path: &str) -> Value {
    json!({
        "openapi": "3.0.3", "info": {"title": id, "version": "1.0.0"},
        "paths": {"/(?s).*": {"get": operation("get")}},
        "x-tyk-api-gateway": {
            "info": {"id": id, "orgId": "org1", "name": id, "state": {"active": true}},
            "server": {"listenPath": {"value": path, "strip": true}},
            "upstream": {"url": "http://127.0.0.1:9"},
        },
    })
}

fn operation(id: &str) -> Value {
    json!({"operationId": id, "responses": {"default": {"description": ""}}})
}

/// Sends a document and gives back status and answer.
fn send(gateway: &Gateway, method: &str, id: &str, document: &Value) -> (u16, Value) {
    let tail = if id.is_empty() {
        String::new()
    } else {
        format!("/{id}")
    };
    let body = if document.is_null() {
        String::new()
    } else {
        document.to_string()
    };
    let answer = gateway.control(method, &format!("/tyk/apis/oas{tail}"), body.as_bytes());
    (
        answer.status,
        serde_json::from_str(&answer.body).unwrap_or(Value::Null),
    )
}

fn post(gateway: &Gateway, document: &Value) -> (u16, Value) {
    send(gateway, "POST", "", document)
}

fn get(gateway: &Gateway, id: &str) -> (u16, Value) {
    send(gateway, "GET", id, &Value::Null)
}

fn delete(gateway: &Gateway, id: &str) -> u16 {
    send(gateway, "DELETE", id, &Value::Null).0
}

/// Where it listens; empty if it is not loaded.
fn listens(gateway: &Gateway, id: &str) -> String {
    let (_, found) = get(gateway, id);
    found["x-tyk-api-gateway"]["server"]["listenPath"]["value"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn put_loaded(gateway: &Gateway, document: &Value) {
    assert_eq!(post(gateway, document).0, 200, "{document}");
    gateway.reload();
}

/// Removes what a story made.
fn gone(gateway: &Gateway, ids: &[&str]) {
    for id in ids {
        delete(gateway, id);
    }
    gateway.reload();
}

fn alone(check: impl Fn(&Gateway) + 'static) -> Case {
    Case::new([], check)
}

pub(crate) fn the_secret_is_asked_for(_: &Backends) -> Case {
    alone(|gateway| {
        for headers in [&[][..], &[("x-tyk-authorization", "wrong")]] {
            let answer = gateway.ask_with("GET", "/tyk/apis/oas", headers);
            assert_eq!(answer.status, 403);
            assert_eq!(
                serde_json::from_str::<Value>(&answer.body).unwrap(),
                json!({"status": "error", "message": "Attempted administrative access with invalid or missing key!"})
            );
        }
    })
}

pub(crate) fn a_write_shows_after_the_reload(_: &Backends) -> Case {
    alone(|gateway| {
        let (status, made) = post(gateway, &document("rest-write", "/rest-write"));
        assert_eq!(
            (status, made),
            (
                200,
                json!({"key": "rest-write", "status": "ok", "action": "added"})
            )
        );
        assert_eq!(get(gateway, "rest-write").0, 404);
        assert_eq!(gateway.ask("GET", "/rest-write").status, 404);
        gateway.reload();
        assert_eq!(get(gateway, "rest-write").0, 200);
        assert_eq!(
            gateway.ask("GET", "/rest-write").status,
            500,
            "nothing listens there"
        );
        // POST overwrites, and GET shows what is loaded.
        post(gateway, &document("rest-write", "/rest-moved"));
        assert_eq!(listens(gateway, "rest-write"), "/rest-write");
        gateway.reload();
        assert_eq!(listens(gateway, "rest-write"), "/rest-moved");
        let (_, all) = get(gateway, "");
        let ids: Vec<_> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["info"]["title"])
            .collect();
        assert!(ids.contains(&&json!("rest-write")));
        // What GET gives can be written again, and nothing changes.
        let (_, shown) = get(gateway, "rest-write");
        assert_eq!(send(gateway, "PUT", "rest-write", &shown).0, 200);
        gateway.reload();
        assert_eq!(get(gateway, "rest-write").1, shown);
        gone(gateway, &["rest-write"]);
        assert_eq!(get(gateway, "rest-write").0, 404);
    })
}

pub(crate) fn put_and_delete_want_what_is_loaded(_: &Backends) -> Case {
    alone(|gateway| {
        let missing = json!({"status": "error", "message": "API not found"});
        let one = document("rest-one", "/rest-one");
        assert_eq!(send(gateway, "PUT", "rest-one", &one), (404, missing.clone()));
        assert_eq!(
            send(gateway, "DELETE", "rest-one", &Value::Null),
            (404, missing.clone())
        );
        post(gateway, &one);
        assert_eq!(delete(gateway, "rest-one"), 404, "written, not loaded");
        gateway.reload();
        let (status, answer) = send(gateway, "PUT", "rest-one", &one);
        assert_eq!(
            (status, answer),
            (
                200,
                json!({"key": "rest-one", "status": "ok", "action": "modified"})
            )
        );
        let (status, answer) = send(gateway, "PUT", "rest-one", &document("rest-two", "/rest-two"));
        assert_eq!(
            (status, answer["message"].as_str().unwrap()),
            (
                400,
                "Request APIID does not match that in Definition! For Update operations these must match."
            )
        );
        // Deleted: loaded until the reload, the second time an error, and a PUT brings it back.
        assert_eq!(delete(gateway, "rest-one"), 200);
        assert_eq!(get(gateway, "rest-one").0, 200);
        assert_eq!(
            send(gateway, "DELETE", "rest-one", &Value::Null),
            (500, json!({"status": "error", "message": "Delete failed"}))
        );
        assert_eq!(send(gateway, "PUT", "rest-one", &one).0, 200);
        gateway.reload();
        assert_eq!(get(gateway, "rest-one").0, 200);
        gone(gateway, &["rest-one"]);
        assert_eq!(get(gateway, "rest-one"), (404, missing));
    })
}

/// Accepted, not in memory, its file stays; the way out is a document that loads.
pub(crate) fn a_document_that_cannot_load(_: &Backends) -> Case {
    alone(|gateway| {
        let id = "rest-stuck";
        put_loaded(gateway, &document(id, "no-slash"));
        assert_eq!(get(gateway, id).0, 404);
        assert_eq!(delete(gateway, id), 404);
        put_loaded(gateway, &document(id, "/rest-stuck"));
        assert_eq!(get(gateway, id).0, 200);
        gone(gateway, &[id]);
    })
}

pub(crate) fn ids_are_names_of_files(_: &Backends) -> Case {
    alone(|gateway| {
        for id in ["a/b", ".."] {
            let (status, answer) = post(gateway, &document(id, "/rest-id"));
            assert_eq!(
                (status, answer["message"].as_str().unwrap()),
                (400, "Invalid API ID")
            );
        }
        let (status, answer) = post(gateway, &document(&"x".repeat(300), "/rest-id"));
        assert_eq!(
            (status, answer["message"].as_str().unwrap()),
            (500, "file object creation failed, write error")
        );
        // Without an id one is made.
        let mut nameless = document("rest-nameless", "/rest-nameless");
        nameless["x-tyk-api-gateway"]["info"]
            .as_object_mut()
            .unwrap()
            .remove("id");
        let (status, answer) = post(gateway, &nameless);
        let id = answer["key"].as_str().unwrap().to_owned();
        assert_eq!((status, id.is_empty()), (200, false));
        gateway.reload();
        assert_eq!(listens(gateway, &id), "/rest-nameless");
        gone(gateway, &[&id]);
    })
}

pub(crate) fn what_is_refused_and_how(_: &Backends) -> Case {
    alone(|gateway| {
        let refused = |document: &Value| {
            let (status, answer) = post(gateway, document);
            assert_eq!(status, 400, "{document}");
            answer["message"].as_str().unwrap().to_owned()
        };
        let without = |pointer: &str, name: &str| {
            let mut changed = document("rest-bad", "/rest-bad");
            let level = changed.pointer_mut(pointer).unwrap();
            level.as_object_mut().unwrap().remove(name);
            changed
        };
        let with = |pointer: &str, name: &str, value: Value| {
            let mut changed = document("rest-bad", "/rest-bad");
            changed.pointer_mut(pointer).unwrap()[name] = value;
            changed
        };
        const X: &str = "/x-tyk-api-gateway";
        let answer = gateway.control("POST", "/tyk/apis/oas", b"{");
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("request malformed"), "{}", answer.body);
        let no_extension = "the payload should contain x-tyk-api-gateway";
        assert_eq!(refused(&json!({})), no_extension);
        assert_eq!(refused(&without("", "x-tyk-api-gateway")), no_extension);
        for (document, says) in [
            (without(X, "upstream"), "x-tyk-api-gateway: upstream is required"),
            (without(X, "info"), "x-tyk-api-gateway: info is required"),
            (
                without(&format!("{X}/server"), "listenPath"),
                "x-tyk-api-gateway.server: listenPath is required",
            ),
            (
                without(&format!("{X}/upstream"), "url"),
                "x-tyk-api-gateway.upstream: Must validate at least one schema (anyOf)\nx-tyk-api-gateway.upstream: url \
                 is required",
            ),
            (
                with(&format!("{X}/info"), "name", json!("")),
                "x-tyk-api-gateway.info.name: Does not match pattern '\\S+'",
            ),
            (
                without(&format!("{X}/info"), "state"),
                "x-tyk-api-gateway.info: state is required",
            ),
            (
                with("/paths/~1(?s).*/get", "responses", json!({})),
                "paths./(?s).*.get.responses: Must have at least 1 properties",
            ),
            (
                with("/paths/~1(?s).*", "connect", operation("connect")),
                "paths./(?s).*: Additional property connect is not allowed",
            ),
            (
                with("/paths/~1(?s).*", "post", operation("get")),
                "invalid paths: operations \"GET /(?s).*\" and \"POST /(?s).*\" have the same operation id \"get\"",
            ),
            (
                with("", "foo", json!(1)),
                "(root): Additional property foo is not allowed",
            ),
            (
                with(&format!("{X}/upstream"), "url", json!("http://a b/")),
                "x-tyk-api-gateway.upstream.url: Does not match format 'uri-reference'",
            ),
            (
                with(&format!("{X}/server/listenPath"), "value", json!("/x{a:(b)}")),
                "failed to add Tyk servers: using capture group is not allowed in server patterns",
            ),
            (
                with(&format!("{X}/server/listenPath"), "value", json!("/x{a:b{2}}")),
                "failed to add Tyk servers: unexpected closing curly brace",
            ),
        ] {
            assert_eq!(refused(&document), says);
        }
        let parameters = with("/paths", "/books/{id}", json!({"get": operation("book")}));
        assert!(refused(&parameters).contains("must define exactly all path parameters (missing: [id])"));
        let zero = with(
            &format!("{X}/upstream"),
            "loadBalancing",
            json!({"enabled": true, "targets": [
                {"url": "http://127.0.0.1:9", "weight": 0}, {"url": "http://127.0.0.1:8", "weight": 0},
            ]}),
        );
        assert!(refused(&zero).contains("all load balancing targets have weight 0"));
        // The same for an update, whether the API is there or not.
        let (status, answer) = send(gateway, "PUT", "rest-none", &json!({}));
        assert_eq!((status, answer["message"].as_str().unwrap()), (400, no_extension));
        gateway.reload();
        assert_eq!(get(gateway, "rest-bad").0, 404, "nothing was written");
    })
}

pub(crate) fn what_is_accepted_although_wrong(_: &Backends) -> Case {
    alone(|gateway| {
        let mut wrong = Vec::new();
        let mut with = |name: &str, change: &dyn Fn(&mut Value)| {
            let id = format!("rest-wrong-{name}");
            let mut one = document(&id, &format!("/{id}"));
            change(&mut one);
            wrong.push((id, one));
        };
        with("paths", &|one| one["paths"] = json!({}));
        with("url", &|one| {
            one["x-tyk-api-gateway"]["upstream"]["url"] = json!("")
        });
        with("url2", &|one| {
            one["x-tyk-api-gateway"]["upstream"]["url"] = json!("foo bar")
        });
        with("blank", &|one| {
            one["x-tyk-api-gateway"]["server"]["listenPath"]["value"] = json!("/rest wrong");
        });
        with("balanced", &|one| {
            one["x-tyk-api-gateway"]["upstream"]["loadBalancing"] = json!({"enabled": true, "targets": []});
        });
        with("inactive", &|one| {
            one["x-tyk-api-gateway"]["info"]["state"]["active"] = json!(false)
        });
        with("operation", &|one| {
            one["x-tyk-api-gateway"]["middleware"] =
                json!({"operations": {"none": {"allow": {"enabled": true}}}});
        });
        for (_, one) in &wrong {
            assert_eq!(post(gateway, one).0, 200, "{one}");
        }
        gateway.reload();
        for (id, _) in &wrong {
            assert_eq!(get(gateway, id).0, 200, "{id}");
            let status = gateway.ask("GET", &format!("/{id}")).status;
            let wanted = if id.ends_with("blank") { 404 } else { 500 };
            assert_eq!(status, wanted, "{id}: served, and nothing is behind it");
        }
        let ids: Vec<_> = wrong.iter().map(|(id, _)| id.as_str()).collect();
        gone(gateway, &ids);
    })
}

pub(crate) fn what_a_document_looks_like_afterwards(_: &Backends) -> Case {
    alone(|gateway| {
        let mut sent = document("rest-shown", "/rest-shown");
        sent["x-routewright-hash"] = json!("h");
        sent["info"]["x-mine"] = json!(1);
        let extension = &mut sent["x-tyk-api-gateway"];
        extension["x-mine"] = json!(1);
        extension["server"]["unknown"] = json!(true);
        extension["upstream"]["loadBalancing"] = json!({"enabled": true, "targets": [
            {"url": "http://127.0.0.1:9/a", "weight": 1}, {"url": "http://127.0.0.1:9/b", "weight": 1},
            {"url": "http://127.0.0.1:9/a", "weight": 1},
        ]});
        extension["middleware"] = json!({
            "global": {"transformRequestHeaders": {"enabled": true, "remove": ["X-Gone"], "add": [
                {"name": "X-B", "value": "2"}, {"name": "X-A", "value": "1"},
            ]}},
            "operations": {"get": {
                "allow": {"enabled": true},
                "mockResponse": {"enabled": true, "code": 404, "body": ""},
                "ignoreAuthentication": {"enabled": true, "ignoreCase": false},
            }},
        });
        put_loaded(gateway, &sent);
        let (_, shown) = get(gateway, "rest-shown");
        assert_eq!(shown["x-routewright-hash"], "h", "unknown root keys stay");
        assert_eq!(shown["info"]["x-mine"], 1);
        assert_eq!(shown["components"], json!({}));
        let url = format!("http://{}/rest-shown", gateway.address());
        assert!(
            shown["servers"]
                .as_array()
                .unwrap()
                .contains(&json!({"url": url})),
            "{shown}"
        );
        let extension = &shown["x-tyk-api-gateway"];
        assert!(extension.get("x-mine").is_none() && extension["server"].get("unknown").is_none());
        assert_eq!(
            extension["upstream"]["loadBalancing"]["targets"],
            json!([{"url": "http://127.0.0.1:9/a", "weight": 2}, {"url": "http://127.0.0.1:9/b", "weight": 1}])
        );
        assert_eq!(
            extension["middleware"]["global"]["transformRequestHeaders"]["add"],
            json!([{"name": "X-A", "value": "1"}, {"name": "X-B", "value": "2"}])
        );
        assert_eq!(
            extension["middleware"]["operations"]["get"],
            json!({
                "allow": {"enabled": true},
                "mockResponse": {"enabled": true, "code": 404},
                "ignoreAuthentication": {"enabled": true},
            })
        );
        // A key that is a regular expression comes back a second time.
        assert!(shown["paths"].get("/{customRegex1}").is_some(), "{shown}");
        gone(gateway, &["rest-shown"]);
    })
}

pub(crate) fn a_rename_sticks(_: &Backends) -> Case {
    alone(|gateway| {
        let nonce = |n: u32| {
            let mut late = document("rest-late", "/rest-taken");
            late["x-nonce"] = json!(n);
            late
        };
        put_loaded(gateway, &document("rest-first", "/rest-taken"));
        put_loaded(gateway, &nonce(0));
        assert_eq!(listens(gateway, "rest-first"), "/rest-taken");
        assert_eq!(listens(gateway, "rest-late"), "/rest-taken-rest-late");
        gone(gateway, &["rest-first"]);
        assert_eq!(listens(gateway, "rest-late"), "/rest-taken-rest-late");
        assert_eq!(gateway.ask("GET", "/rest-taken").status, 404);
        put_loaded(gateway, &nonce(0));
        assert_eq!(
            listens(gateway, "rest-late"),
            "/rest-taken-rest-late",
            "equal bytes change nothing"
        );
        put_loaded(gateway, &nonce(1));
        assert_eq!(listens(gateway, "rest-late"), "/rest-taken");
        // Deleting the old and posting the new, then one reload, hands a path over.
        delete(gateway, "rest-late");
        put_loaded(gateway, &document("rest-heir", "/rest-taken"));
        assert_eq!(listens(gateway, "rest-heir"), "/rest-taken");
        gone(gateway, &["rest-heir"]);
    })
}

pub(crate) fn two_newcomers_are_both_renamed(_: &Backends) -> Case {
    alone(|gateway| {
        post(gateway, &document("rest-twin1", "/rest-twins"));
        put_loaded(gateway, &document("rest-twin2", "/rest-twins"));
        assert_eq!(listens(gateway, "rest-twin1"), "/rest-twins-rest-twin1");
        assert_eq!(listens(gateway, "rest-twin2"), "/rest-twins-rest-twin2");
        assert_eq!(gateway.ask("GET", "/rest-twins").status, 404);
        // One of them changes: it gets the path, the other stays where it is.
        let mut changed = document("rest-twin1", "/rest-twins");
        changed["x-nonce"] = json!(1);
        put_loaded(gateway, &changed);
        assert_eq!(listens(gateway, "rest-twin1"), "/rest-twins");
        assert_eq!(listens(gateway, "rest-twin2"), "/rest-twins-rest-twin2");
        gone(gateway, &["rest-twin1", "rest-twin2"]);
    })
}

fn pair(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn upload(gateway: &Gateway, pem: &str) -> (u16, Value) {
    let answer = gateway.control("POST", "/tyk/certs?org_id=rest", pem.as_bytes());
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

pub(crate) fn certificates(_: &Backends) -> Case {
    alone(|gateway| {
        let (chain, key) = pair("rest.example.test");
        // A certificate without its key is taken, and blocks the whole one.
        let (status, bare) = upload(gateway, &chain);
        assert_eq!(status, 200, "{bare}");
        let id = bare["id"].as_str().unwrap().to_owned();
        assert!(id.starts_with("rest") && id.len() == 4 + 64);
        let (status, refused) = upload(gateway, &format!("{chain}{key}"));
        assert_eq!(
            (status, refused["message"].as_str().unwrap()),
            (403, format!("Certificate with {id} id already exists").as_str())
        );
        let has_private = || {
            let answer = gateway.control("GET", "/tyk/certs?org_id=rest&mode=detailed", b"");
            let list: Value = serde_json::from_str(&answer.body).unwrap();
            let found = list["certs"]
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["id"] == id.as_str());
            found.map(|one| one["has_private"].as_bool().unwrap())
        };
        assert_eq!(has_private(), Some(false));
        let one = || gateway.control("GET", &format!("/tyk/certs/{id}"), b"").status;
        let remove = || {
            gateway
                .control("DELETE", &format!("/tyk/certs/{id}?org_id=rest"), b"")
                .status
        };
        assert_eq!(remove(), 200);
        assert_eq!(has_private(), None);
        let (status, whole) = upload(gateway, &format!("{key}{chain}"));
        assert_eq!((status, whole["id"].as_str().unwrap()), (200, id.as_str()));
        assert_eq!(has_private(), Some(true));
        assert_eq!(one(), 200);
        assert_eq!(
            (remove(), one(), remove()),
            (200, 404, 200),
            "removing twice is no error"
        );
    })
}

pub(crate) fn certificates_that_are_refused(_: &Backends) -> Case {
    alone(|gateway| {
        let (chain, _) = pair("rest1.example.test");
        let (_, other) = pair("rest2.example.test");
        let signing = rcgen::KeyPair::generate().unwrap();
        let mut past = rcgen::CertificateParams::new(["rest3.example.test".to_owned()]).unwrap();
        past.not_after = rcgen::date_time_ymd(2001, 1, 1);
        let past = past.self_signed(&signing).unwrap().pem();
        for (pem, says) in [
            (
                "hello".to_owned(),
                "Failed to decode certificate. It should be PEM encoded.",
            ),
            (past, "certificate is expired"),
            (
                format!("{chain}{other}"),
                "tls: private key does not match public key",
            ),
        ] {
            let (status, answer) = upload(gateway, &pem);
            assert_eq!((status, answer["message"].as_str().unwrap()), (403, says));
        }
    })
}

/// Neither liveness nor readiness looks at APIs: a gateway that lost its files is ready.
pub(crate) fn health_says_nothing_of_apis(_: &Backends) -> Case {
    alone(|gateway| {
        for path in ["/hello", "/ready"] {
            let answer = gateway.ask("GET", path);
            assert_eq!(answer.status, 200);
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(body["status"], "pass");
            assert!(body["details"].get("apis").is_none());
        }
        for (path, status) in [("/hello/x", 404), ("/liveness", 404), ("/tykx", 404)] {
            assert_eq!(gateway.ask("GET", path).status, status, "{path}");
        }
        let group = gateway.control("GET", "/tyk/reload/group", b"");
        assert_eq!(group.status, 200);
    })
}
