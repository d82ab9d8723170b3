//! Hosts, the order of paths, certificates.

use routewright::tyk::{
    objects::{Fingerprint, Key, core::Certificate},
    translate::certificate_id,
    verdict::{ApiPlan, CertificateUse},
};
use sha2::{Digest as _, Sha256};

use crate::{Backends, Case, gateway::Switches, methods::at, support::target};

fn on(host: &str, path: &str, backends: &Backends) -> ApiPlan {
    ApiPlan {
        host: Some(host.to_owned()),
        ..at(path, backends)
    }
}

pub(crate) fn an_exact_host(backends: &Backends) -> Case {
    let mut other = on("two.example.test", "/exact", backends);
    other.targets = vec![target(&backends.b.authority, 1)];
    Case::new([on("one.example.test", "/exact", backends), other], |gateway| {
        let ask = |host: &str| gateway.ask_with("GET", "/exact/x", &[("Host", host)]);
        assert_eq!(ask("one.example.test").echo()["backend"], "a");
        assert_eq!(ask("one.example.test:8080").echo()["backend"], "a");
        assert_eq!(ask("two.example.test").echo()["backend"], "b");
        assert_eq!(ask("three.example.test").status, 404);
        // Limit: names are compared with regard to case.
        assert_eq!(ask("One.example.test").status, 404);
    })
}

pub(crate) fn a_wildcard_host(backends: &Backends) -> Case {
    Case::new([on("*.wild.test", "/wild", backends)], |gateway| {
        let status = |host: &str| gateway.ask_with("GET", "/wild", &[("Host", host)]).status;
        for host in ["a.wild.test", "a.b.wild.test", "a.wild.test:8080"] {
            assert_eq!(status(host), 200, "{host}");
        }
        for host in ["wild.test", "xwild.test", "a.wild.test.com", "wild.example.test"] {
            assert_eq!(status(host), 404, "{host}");
        }
    })
}

pub(crate) fn the_root_path(backends: &Backends) -> Case {
    let mut replaced = on("root2.example.test", "/", backends);
    replaced.operations = crate::support::every_method(&crate::support::full_path("/new"));
    let mut prefixed = on("root3.example.test", "/", backends);
    prefixed.prefix = Some("/new".to_owned());
    Case::new(
        [on("root.example.test", "/", backends), replaced, prefixed],
        |gateway| {
            let target = |host: &str, sent: &str| gateway.ask_with("GET", sent, &[("Host", host)]).target();
            for sent in ["/", "/?x=1", "/a", "/a/b/", "/a%2Fb?x"] {
                assert_eq!(target("root.example.test", sent), sent);
            }
            assert_eq!(target("root2.example.test", "/a/b?x=1"), "/new?x=1");
            assert_eq!(target("root2.example.test", "/"), "/new");
            assert_eq!(target("root3.example.test", "/a/b?x=1"), "/new/a/b?x=1");
            assert_eq!(target("root3.example.test", "/").trim_end_matches('/'), "/new");
        },
    )
}

pub(crate) fn the_longest_path_wins(backends: &Backends) -> Case {
    let host = "order.example.test";
    let mut longer = on(host, "/a/b", backends);
    longer.targets = vec![target(&backends.b.authority, 1)];
    Case::new([on(host, "/", backends), longer], move |gateway| {
        let who = |path: &str| gateway.ask_with("GET", path, &[("Host", host)]).echo()["backend"].clone();
        assert_eq!(who("/a/b"), "b");
        assert_eq!(who("/a/b/c"), "b");
        assert_eq!(who("/a"), "a");
        assert_eq!(who("/other"), "a");
    })
}

/// Limits: an API with a hostname comes before one without, and the longer path before the nearer hostname.
pub(crate) fn the_order_of_hosts(backends: &Backends) -> Case {
    let b = |mut plan: ApiPlan| {
        plan.targets = vec![target(&backends.b.authority, 1)];
        plan
    };
    let plans = [
        at("/ranked", backends),
        b(on("api.ranked.test", "/ranked", backends)),
        on("api.near.test", "/", backends),
        b(on("*.near.test", "/ranked", backends)),
    ];
    Case::new(plans, |gateway| {
        let who = |host: &str, path: &str| {
            gateway.ask_with("GET", path, &[("Host", host)]).echo()["backend"].clone()
        };
        assert_eq!(who("api.ranked.test", "/ranked"), "b");
        assert_eq!(who("other.ranked.test", "/ranked"), "a");
        assert_eq!(who("api.near.test", "/ranked"), "b");
        assert_eq!(who("api.near.test", "/other"), "a");
    })
}

pub(crate) fn strict_routes_match_by_segment(backends: &Backends) -> Case {
    Case::new([at("/segment", backends)], |gateway| {
        assert_eq!(gateway.ask("GET", "/segment").status, 200);
        assert_eq!(gateway.ask("GET", "/segment/x").status, 200);
        assert_eq!(gateway.ask("GET", "/SEGMENT").status, 404);
        if gateway.switches == Switches::Off {
            // Limit: without strict routes longer words match too, and arrive mangled.
            assert_eq!(
                gateway.ask("GET", "/segment-archive").target(),
                "/segment/-archive"
            );
            return;
        }
        assert_eq!(gateway.ask("GET", "/segment-archive").status, 404);
        assert_eq!(gateway.ask("GET", "/segments").status, 404);
    })
}

/// The id that a document names is the one that the certificate store gives, so nobody has to be asked for it.
pub(crate) fn certificate_ids_are_known_beforehand(backends: &Backends) -> Case {
    let signed = rcgen::generate_simple_self_signed(vec!["cert.example.test".to_owned()]).unwrap();
    let leaf = Sha256::digest(signed.cert.der())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let certificate = Certificate {
        leaf: Fingerprint(leaf),
        bundle: Fingerprint("b".to_owned()),
        names: Default::default(),
    };
    let id = certificate_id("org1", &certificate);
    let mut plan = on("cert.example.test", "/certified", backends);
    plan.certificates = vec![CertificateUse {
        certificate,
        secret: Key::new("infra", "cert"),
    }];
    let pem = format!("{}{}", signed.cert.pem(), signed.signing_key.serialize_pem());
    Case::new([plan], move |gateway| {
        // The API is served although the store does not know the certificate yet.
        let answer = gateway.ask_with("GET", "/certified", &[("Host", "cert.example.test")]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = gateway.control("POST", "/tyk/certs?org_id=org1", pem.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let stored: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(stored["id"], id.as_str());
        gateway.control("DELETE", &format!("/tyk/certs/{id}?org_id=org1"), b"");
    })
}
