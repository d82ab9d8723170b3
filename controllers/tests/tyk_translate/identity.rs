//! Source: How Routes Become APIs, API Identity.

use std::collections::BTreeSet;

use routewright::tyk::{
    objects::{Key, route::Method},
    translate::identity,
};

use crate::support::*;

/// The form of an id.
#[test]
fn the_id_is_gwapi_and_20_hexadecimal_characters() {
    let id = identity(&plan());
    let digits = id.strip_prefix("gwapi-").unwrap();
    assert_eq!(digits.len(), 20);
    assert!(digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')), "{id}");
}

/// Written down once: another value would orphan every API of every installation.
#[test]
fn the_id_does_not_change_between_versions() {
    let mut wildcard = plan();
    wildcard.host = Some("*.example.com".to_owned());
    let ids = [identity(&plan()), identity(&wildcard)];
    insta::assert_snapshot!(ids.join(" "), @"gwapi-f37bd0d6506eb6e7153a gwapi-9a85eef02da464c043d5");
}

/// What makes another API.
#[test]
fn the_id_derives_from_route_path_gateway_and_hostname() {
    let base = plan();
    let mut others = vec![base.clone(); 6];
    others[0].route.namespace = "crew".to_owned();
    others[1].route.name = "store".to_owned();
    others[2].path = "/order".to_owned();
    others[3].gateway = Key::new("infra", "inner");
    others[4].gateway = Key::new("edge", "edge");
    others[5].host = Some("example.com".to_owned());
    let ids: BTreeSet<String> = others.iter().chain([&base]).map(identity).collect();
    assert_eq!(ids.len(), 7, "each of the fields counts");
}

/// What an API does may change under its id.
#[test]
fn the_id_derives_from_nothing_else() {
    let base = plan();
    let mut other = plan();
    other.tags = vec!["edge".to_owned()];
    other.targets = vec![unresolved(1)];
    other.prefix = Some("/new".to_owned());
    other.operations = methods(&[Method::Get], &request(&[("X-A", "1")], &[]));
    other.certificates = vec![certificate("aa")];
    assert_eq!(identity(&base), identity(&other));
}
