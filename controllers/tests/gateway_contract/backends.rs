//! Where requests go.

use std::collections::BTreeMap;

use crate::{
    Backends, Case,
    gateway::Gateway,
    methods::at,
    support::{target, unresolved},
};

/// Who answered how many of some requests; failures count as "500".
fn answers(gateway: &Gateway, path: &str, number: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..number {
        let answer = gateway.ask("GET", path);
        let who = match answer.status {
            200 => answer.echo()["backend"].as_str().unwrap().to_owned(),
            status => status.to_string(),
        };
        *counts.entry(who).or_default() += 1;
    }
    counts
}

pub(crate) fn weights_are_shares(backends: &Backends) -> Case {
    let mut plan = at("/shares", backends);
    plan.targets = vec![target(&backends.a.authority, 7), target(&backends.b.authority, 3)];
    Case::new([plan], |gateway| {
        let counts = answers(gateway, "/shares/x", 100);
        assert_eq!(
            counts,
            BTreeMap::from([("a".to_owned(), 70), ("b".to_owned(), 30)])
        );
        assert_eq!(gateway.ask("GET", "/shares/x?y").target(), "/shares/x?y");
    })
}

pub(crate) fn unresolved_answers_500(backends: &Backends) -> Case {
    let mut one = at("/unresolved", backends);
    one.targets = vec![unresolved(1)];
    let mut none = at("/nothing", backends);
    none.targets.clear();
    Case::new([one, none], |gateway| {
        for path in ["/unresolved", "/unresolved/x", "/nothing"] {
            assert_eq!(gateway.ask("GET", path).status, 500, "{path}");
        }
    })
}

pub(crate) fn an_unresolved_share_fails(backends: &Backends) -> Case {
    let mut plan = at("/partly", backends);
    plan.targets = vec![unresolved(1), target(&backends.a.authority, 4)];
    Case::new([plan], |gateway| {
        let counts = answers(gateway, "/partly", 50);
        assert_eq!(
            counts,
            BTreeMap::from([("500".to_owned(), 10), ("a".to_owned(), 40)])
        );
    })
}

pub(crate) fn the_host_header_arrives_as_sent(backends: &Backends) -> Case {
    Case::new([at("/host", backends)], |gateway| {
        let answer = gateway.ask_with("GET", "/host", &[("Host", "shop.example.net:8080")]);
        assert_eq!(answer.echo()["headers"]["host"], "shop.example.net:8080");
    })
}
