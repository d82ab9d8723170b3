//! Filters.

use std::collections::BTreeMap;

use routewright::tyk::{
    objects::route::Method,
    verdict::{ApiPlan, OperationPlan},
};

use crate::{
    Backends, Case,
    methods::at,
    support::{every_method, full_path, methods, redirect, request, response, target, unresolved},
};

pub(crate) fn request_headers_are_set_and_removed(backends: &Backends) -> Case {
    let mut plan = at("/request", backends);
    plan.operations = every_method(&request(
        &[
            ("X-Set", "new"),
            ("X-Empty", ""),
            ("X-Text", "a, b; c=\"d\" {e} ü"),
        ],
        &["X-Gone"],
    ));
    Case::new([plan], |gateway| {
        for method in ["GET", "POST", "PROPFIND"] {
            let sent = [
                ("x-set", "old"),
                ("X-Gone", "1"),
                ("x-gone", "2"),
                ("X-Kept", "k"),
            ];
            let headers = gateway.ask_with(method, "/request/x%0A", &sent).echo()["headers"].clone();
            assert_eq!(headers["x-set"], "new", "{method}");
            assert_eq!(headers["x-empty"], "");
            assert_eq!(headers["x-text"], "a, b; c=\"d\" {e} ü");
            assert_eq!(headers["x-kept"], "k");
            assert!(headers.get("x-gone").is_none(), "{headers}");
        }
    })
}

pub(crate) fn response_headers_are_set_and_removed(backends: &Backends) -> Case {
    let mut plan = at("/response", backends);
    plan.operations = every_method(&response(&[("X-Old", "new"), ("X-More", "1")], &["X-Powered-By"]));
    Case::new([plan], |gateway| {
        for method in ["GET", "HEAD", "POST", "PROPFIND"] {
            let answer = gateway.ask(method, "/response");
            assert_eq!(answer.header("x-old"), Some("new"), "{method}");
            assert_eq!(answer.header("x-more"), Some("1"));
            assert_eq!(answer.header("x-powered-by"), None);
        }
    })
}

pub(crate) fn headers_of_single_methods(backends: &Backends) -> Case {
    let mut plan = at("/single", backends);
    plan.operations = BTreeMap::from([
        (Method::Get, request(&[("X-Set", "get")], &[])),
        (Method::Post, request(&[("X-Set", "post")], &["X-Gone"])),
        (Method::Put, response(&[("X-Old", "put")], &[])),
    ]);
    Case::new([plan], |gateway| {
        let headers = |method: &str| {
            gateway
                .ask_with(method, "/single/x%0A", &[("X-Gone", "1")])
                .echo()["headers"]
                .clone()
        };
        assert_eq!(headers("GET")["x-set"], "get");
        assert_eq!(headers("GET")["x-gone"], "1");
        assert_eq!(headers("POST")["x-set"], "post");
        assert!(headers("POST").get("x-gone").is_none());
        assert!(headers("PUT").get("x-set").is_none());
        assert_eq!(gateway.ask("PUT", "/single").header("x-old"), Some("put"));
        assert_eq!(gateway.ask("GET", "/single").header("x-old"), Some("1"));
        assert_eq!(gateway.ask("DELETE", "/single").status, 404);
    })
}

fn prefixed(path: &str, prefix: &str, backends: &Backends) -> ApiPlan {
    ApiPlan {
        prefix: Some(prefix.to_owned()),
        ..at(path, backends)
    }
}

pub(crate) fn a_replaced_prefix(backends: &Backends) -> Case {
    let plans = [
        prefixed("/prefix", "/new", backends),
        prefixed("/prefix2/deep", "/prefix2", backends),
    ];
    Case::new(plans, |gateway| {
        for (sent, arrives) in [
            ("/prefix", "/new"),
            ("/prefix/", "/new"),
            ("/prefix/x", "/new/x"),
            ("/prefix/x/?y=/prefix", "/new/x/?y=/prefix"),
            ("/prefix/a%2Fb", "/new/a%2Fb"),
            ("/prefix2/deep/prefix2/deep", "/prefix2/prefix2/deep"),
        ] {
            assert_eq!(gateway.ask("GET", sent).target(), arrives, "{sent}");
        }
    })
}

pub(crate) fn a_removed_prefix(backends: &Backends) -> Case {
    Case::new([prefixed("/removed", "/", backends)], |gateway| {
        for (sent, arrives) in [
            ("/removed", "/"),
            ("/removed/", "/"),
            ("/removed/x/", "/x/"),
            ("/removed?x=1", "/?x=1"),
        ] {
            assert_eq!(gateway.ask("GET", sent).target(), arrives, "{sent}");
        }
    })
}

pub(crate) fn a_replaced_prefix_of_every_target(backends: &Backends) -> Case {
    let mut plan = prefixed("/balanced", "/new", backends);
    plan.targets.push(target(&backends.b.authority, 1));
    Case::new([plan], |gateway| {
        let mut who = Vec::new();
        for _ in 0..4 {
            let echo = gateway.ask("GET", "/balanced/x?y=1").echo();
            assert_eq!(echo["target"], "/new/x?y=1");
            who.push(echo["backend"].as_str().unwrap().to_owned());
        }
        who.sort();
        assert_eq!(who, ["a", "a", "b", "b"]);
    })
}

/// Values that a naive rewrite strips or misreads: at the listen path, below it, starting with its text, the root,
/// with slashes at the end, encoded, with `$`.
const FULL: [&str; 14] = [
    "/new",
    "/",
    "/full",
    "/full/sub",
    "/fullx",
    "/n/",
    "/full/",
    "/a%20b",
    "/a%2Fb",
    "/%C3%BC",
    "/a$b",
    "/x$",
    "/a;b=c,d",
    "/a:b@c~+&",
];

pub(crate) fn replaced_full_paths(backends: &Backends) -> Case {
    let mut plans = Vec::new();
    for (n, value) in FULL.into_iter().enumerate() {
        let listen = format!("/full{n}");
        // The value has to stand to its own listen path as it stands to `/full`.
        let value = value.replace("/full", &listen);
        let mut one = at(&listen, backends);
        one.operations = every_method(&full_path(&value));
        let mut balanced = at(&format!("/fullb{n}"), backends);
        balanced.targets.push(target(&backends.b.authority, 1));
        balanced.operations = every_method(&full_path(&value.replace(&listen, &format!("/fullb{n}"))));
        plans.extend([one, balanced]);
    }
    Case::new(plans, |gateway| {
        for (n, value) in FULL.into_iter().enumerate() {
            for listen in [format!("/full{n}"), format!("/fullb{n}")] {
                let wanted = value.replace("/full", &listen);
                for (tail, query) in [
                    ("", ""),
                    ("/x/y", ""),
                    ("/a%2Fb%0A", "?a=1&b=%zz;c"),
                    ("", "?q=/full$1"),
                    ("/", "?"),
                ] {
                    for method in ["GET", "POST"] {
                        let sent = format!("{listen}{tail}{query}");
                        let answer = gateway.ask(method, &sent);
                        let arrived = answer.target();
                        assert_eq!(
                            arrived.trim_end_matches('?'),
                            format!("{wanted}{query}").trim_end_matches('?'),
                            "{sent}"
                        );
                    }
                }
                // A request line in absolute form.
                let sent = format!("http://{}{listen}/x?y", gateway.address());
                assert_eq!(gateway.ask("GET", &sent).target(), format!("{wanted}?y"));
                // Limit: a method outside of OpenAPI is not rewritten, and arrives without the path of the match.
                let answer = gateway.ask("PROPFIND", &format!("{listen}/x?y"));
                assert_eq!(answer.target(), "/x?y");
            }
        }
    })
}

pub(crate) fn a_replaced_full_path_beside_kept_ones(backends: &Backends) -> Case {
    let mut plan = at("/beside", backends);
    plan.operations = methods(&[Method::Post, Method::Put], &OperationPlan::default());
    plan.operations.insert(Method::Get, full_path("/new"));
    Case::new([plan], |gateway| {
        assert_eq!(gateway.ask("GET", "/beside/x?y=1").target(), "/new?y=1");
        for sent in [
            "/beside",
            "/beside/x",
            "/beside/x/?y=1",
            "/beside/a%2Fb?z=%zz",
            "/beside/beside",
        ] {
            assert_eq!(gateway.ask("POST", sent).target(), sent);
        }
        let sent = format!("http://{}/beside/x?y", gateway.address());
        assert_eq!(gateway.ask("PUT", &sent).target(), "/beside/x?y");
        assert_eq!(gateway.ask("DELETE", "/beside").status, 404);
    })
}

pub(crate) fn a_replaced_full_path_beside_a_replaced_prefix(backends: &Backends) -> Case {
    let with = |path: &str, prefix: &str| {
        let mut plan = prefixed(path, prefix, backends);
        plan.operations = BTreeMap::from([
            (Method::Get, full_path("/one")),
            (Method::Post, OperationPlan::default()),
        ]);
        plan
    };
    let plans = [
        with("/both/a.b", "/new"),
        with("/gone", "/"),
        with("/self", "/self/v2"),
    ];
    Case::new(plans, |gateway| {
        for (sent, arrives) in [
            ("/both/a.b", "/new"),
            ("/both/a.b/x?y=1", "/new/x?y=1"),
            ("/both/a%2Eb/x", "/new/x"),
            ("/gone/x?y", "/x?y"),
            ("/self/x", "/self/v2/x"),
            ("/self", "/self/v2"),
        ] {
            assert_eq!(gateway.ask("POST", sent).target(), arrives, "{sent}");
        }
        for path in ["/both/a.b/x", "/gone/x", "/self/x"] {
            assert_eq!(gateway.ask("GET", &format!("{path}?q")).target(), "/one?q");
        }
    })
}

pub(crate) fn a_redirect_is_answered_by_the_gateway(backends: &Backends) -> Case {
    let mut plans = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        let mut plan = at(&format!("/moved{status}"), backends);
        plan.targets = vec![unresolved(1)];
        plan.operations = every_method(&redirect("https://example.org:8443/new?no", status));
        plans.push(plan);
    }
    Case::new(plans, |gateway| {
        for status in [301, 302, 303, 307, 308] {
            for method in [
                "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE",
            ] {
                for tail in ["", "/x?y=1", "/x%0A"] {
                    let answer = gateway.ask(method, &format!("/moved{status}{tail}"));
                    assert_eq!(answer.status, status, "{method} {tail}: {}", answer.body);
                    assert_eq!(answer.header("location"), Some("https://example.org:8443/new?no"));
                }
            }
        }
    })
}

pub(crate) fn a_redirect_of_one_method(backends: &Backends) -> Case {
    let mut plan = at("/partly-moved", backends);
    let mut moved = redirect("https://example.org/", 301);
    moved.response_headers = response(&[("X-Moved", "1")], &[]).response_headers;
    plan.operations = BTreeMap::from([(Method::Get, moved), (Method::Post, full_path("/new"))]);
    Case::new([plan], |gateway| {
        let answer = gateway.ask("GET", "/partly-moved/x");
        assert_eq!((answer.status, answer.header("x-moved")), (301, Some("1")));
        assert_eq!(gateway.ask("POST", "/partly-moved/x?y").target(), "/new?y");
        assert_eq!(gateway.ask("PUT", "/partly-moved").status, 404);
    })
}

/// A client's reference to a secret reaches no backend as the secret where paths are rewritten: it is cut off before it is
/// whole. What only looks like one arrives as it was sent.
pub(crate) fn a_rewrite_captures_no_token(backends: &Backends) -> Case {
    let mut full = at("/leak-full", backends);
    full.operations = every_method(&full_path("/new"));
    let mut beside = at("/leak-beside", backends);
    beside.operations = methods(&[Method::Post], &OperationPlan::default());
    beside.operations.insert(Method::Get, full_path("/new"));
    let mut both = beside.clone();
    both.path = "/leak-both".to_owned();
    both.prefix = Some("/v2".to_owned());
    let mut part = both.clone();
    part.path = "/leak-part".to_owned();
    part.prefix = Some("/v2$".to_owned());
    Case::new([full, beside, both, part], |gateway| {
        let secret = "$secret_env.of_the_test";
        let asked = [
            ("GET", "/leak-full", "/new"),
            ("POST", "/leak-beside", "/leak-beside/x"),
            ("POST", "/leak-both", "/v2/x"),
            ("POST", "/leak-part", "/v2$/x"),
        ];
        for (method, listen, arrives) in asked {
            for (query, left) in [
                (secret.to_owned(), "$secret".to_owned()),
                (format!("a=1&b={secret}&c=2"), "a=1&b=$secret".to_owned()),
                (format!("a=$sec$tyk${secret}"), "a=$sec$tyk$$secret".to_owned()),
                ("a=$tyk_context.path".to_owned(), "a=$tyk".to_owned()),
                (
                    "a=$SECRET_env.x&b=$secrets&c=$".to_owned(),
                    "a=$SECRET_env.x&b=$secrets&c=$".to_owned(),
                ),
                (
                    "a=%24secret_env.of_the_test".to_owned(),
                    "a=%24secret_env.of_the_test".to_owned(),
                ),
            ] {
                let answer = gateway.ask(method, &format!("{listen}/x?{query}"));
                assert_eq!(
                    answer.target(),
                    format!("{arrives}?{left}"),
                    "{method} {listen} {query}"
                );
                assert!(!answer.body.contains("the-secret-itself"));
            }
            // In the path, and in what the prefix begins.
            for path in [
                format!("{listen}/{secret}/x"),
                format!("{listen}secret_env.of_the_test"),
                format!("{listen}/x%2F{secret}"),
            ] {
                let answer = gateway.ask(method, &path);
                assert!(
                    !answer.body.contains("the-secret-itself"),
                    "{path}: {}",
                    answer.body
                );
            }
        }
    })
}

/// Reached under its id a path is another one than that of the match: nothing is captured, and nothing replaced.
pub(crate) fn a_rewrite_under_the_id_of_an_api_leaks_nothing(backends: &Backends) -> Case {
    let mut plan = prefixed("/leak-id", "/v2", backends);
    plan.operations = methods(&[Method::Post], &OperationPlan::default());
    plan.operations.insert(Method::Get, full_path("/new"));
    let id = routewright::tyk::translate::identity(&plan);
    Case::new([plan], move |gateway| {
        for method in ["GET", "POST"] {
            let answer = gateway.ask(method, &format!("/{id}/x?a=$secret_env.of_the_test"));
            assert!(!answer.body.contains("the-secret-itself"), "{}", answer.body);
        }
    })
}

/// A client's reference to a secret stays text, in the path, the query and a header: nothing here captures it.
pub(crate) fn a_clients_token_is_not_replaced(backends: &Backends) -> Case {
    let mut headers = at("/token-headers", backends);
    headers.operations = every_method(&request(&[("X-Set", "1")], &[]));
    let plans = [
        at("/token", backends),
        prefixed("/token-prefix", "/new", backends),
        headers,
    ];
    Case::new(plans, |gateway| {
        let token = "$secret_env.of_the_test";
        for path in ["/token", "/token-prefix", "/token-headers"] {
            let answer = gateway.ask_with("GET", &format!("{path}/{token}?q={token}"), &[("X-Token", token)]);
            assert!(
                answer.target().ends_with(&format!("/{token}?q={token}")),
                "{}",
                answer.body
            );
            assert_eq!(answer.echo()["headers"]["x-token"], token);
            assert!(!answer.body.contains("the-secret-itself"));
        }
    })
}
