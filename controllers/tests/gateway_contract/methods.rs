//! Paths and methods.

use routewright::tyk::{
    objects::{Key, route::Method},
    translate::{Owner, identity, stamp},
    verdict::{ApiPlan, OperationPlan},
};

use crate::{
    Backends, Case,
    support::{full_path, methods, plan, target},
};

/// A plan for a path with one backend and every method.
pub(crate) fn at(path: &str, backends: &Backends) -> ApiPlan {
    ApiPlan {
        path: path.to_owned(),
        targets: vec![target(&backends.a.authority, 1)],
        ..plan()
    }
}

pub(crate) fn the_upstream_receives_the_full_path(backends: &Backends) -> Case {
    // Tags mean nothing to a gateway that is not segmented.
    let plan = ApiPlan {
        tags: vec!["edge".to_owned()],
        ..at("/kept", backends)
    };
    Case::new([plan], |gateway| {
        for sent in [
            "/kept",
            "/kept/x",
            "/kept/x/",
            "/kept/a%2Fb%20c",
            "/kept?x=1&x=2;y=%zz",
            "/kept/x?",
        ] {
            assert_eq!(gateway.ask("GET", sent).target(), sent);
        }
        // A single slash behind the path of the match is lost: a limit of the gateway, see docs/src/tyk/limits.md.
        assert_eq!(gateway.ask("GET", "/kept/").target(), "/kept");
        let echo = gateway
            .send("POST", "/kept/x", &[("X-Some", "thing")], "the body")
            .echo();
        assert_eq!(echo["method"], "POST");
        assert_eq!(echo["body"], "the body");
        assert_eq!(echo["headers"]["x-some"], "thing");
    })
}

/// Every character that Gateway API allows in a path and that we do not refuse.
pub(crate) fn awkward_paths_are_literal(backends: &Backends) -> Case {
    const PATHS: [&str; 16] = [
        "/awk/a.b",
        "/awk/a+b",
        "/awk/a(b)",
        "/awk/a*b",
        "/awk/a$b",
        "/awk/a:b",
        "/awk/a@b",
        "/awk/a;b",
        "/awk/a,b",
        "/awk/a=b",
        "/awk/a&b",
        "/awk/a'b",
        "/awk/a!b",
        "/awk/a~b",
        "/awk/-_b",
        "/awk/a$$",
    ];
    let mut plans = Vec::new();
    for path in PATHS {
        // As it is, and with a rewrite, for which it is text beside a captured group.
        plans.push(at(path, backends));
        let mut rewritten = at(&format!("{path}/full"), backends);
        rewritten.operations = methods(&[Method::Get], &full_path("/new"));
        rewritten
            .operations
            .insert(Method::Post, OperationPlan::default());
        rewritten.operations.insert(Method::Put, OperationPlan::default());
        plans.push(rewritten);
        let mut both = at(&format!("{path}/both"), backends);
        both.prefix = Some("/p".to_owned());
        both.operations = methods(&[Method::Get], &full_path("/new"));
        both.operations.insert(Method::Post, OperationPlan::default());
        plans.push(both);
    }
    Case::new(plans, |gateway| {
        // The gateway encodes some characters on the way out, which means the same.
        let decoded = |answer: crate::wire::Answer| {
            ["%28(", "%29)", "%2A*", "%27'", "%21!"]
                .iter()
                .fold(answer.target(), |text, pair| text.replace(&pair[..3], &pair[3..]))
        };
        for path in PATHS {
            assert_eq!(
                decoded(gateway.ask("GET", &format!("{path}/x?y"))),
                format!("{path}/x?y")
            );
            assert_eq!(gateway.ask("GET", &format!("{path}/full/x?y")).target(), "/new?y");
            let kept = format!("{path}/full/x?y");
            assert_eq!(decoded(gateway.ask("POST", &kept)), kept);
            assert_eq!(
                gateway.ask("POST", &format!("{path}/both/x?y")).target(),
                "/p/x?y",
                "{path}"
            );
        }
        assert_eq!(gateway.ask("GET", "/awk/axb").status, 404);
    })
}

pub(crate) fn a_rule_without_method_serves_every_method(backends: &Backends) -> Case {
    Case::new([at("/every", backends)], |gateway| {
        for method in [
            "GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND",
        ] {
            assert_eq!(gateway.ask(method, "/every/x").echo()["method"], method);
        }
        assert_eq!(gateway.ask("HEAD", "/every/x").status, 200);
    })
}

pub(crate) fn methods_that_no_rule_matches_answer_404(backends: &Backends) -> Case {
    let mut some = at("/some", backends);
    some.operations = methods(&[Method::Get, Method::Post], &OperationPlan::default());
    Case::new([some], |gateway| {
        for target in ["/some", "/some/x/y", "/some/x%0A"] {
            for method in ["GET", "POST"] {
                assert_eq!(gateway.ask(method, target).echo()["method"], method, "{target}");
            }
            for method in [
                "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "get",
            ] {
                let answer = gateway.ask(method, target);
                assert_eq!(answer.status, 404, "{method} {target}: {}", answer.body);
                if method != "HEAD" {
                    assert_eq!(answer.body.trim(), "Not Found");
                }
            }
        }
        // What the backend forbids stays forbidden.
        assert_eq!(gateway.ask("GET", "/some?status=403").status, 403);
    })
}

/// The root keys come back, so that owner and digest can be compared.
pub(crate) fn a_document_is_kept_with_its_owner(backends: &Backends) -> Case {
    let plan = at("/owned", backends);
    let id = identity(&plan);
    Case::new([plan], move |gateway| {
        let document = gateway.get(&id);
        let owner = Owner::of(&document).unwrap();
        assert_eq!(owner.route, Key::new("team", "shop"));
        assert_eq!(document[stamp::HASH].as_str().map(str::len), Some(64));
    })
}
