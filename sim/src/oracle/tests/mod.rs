//! Hand-made worlds: right ones, and for each rule a wrong one that the oracle must find.

mod buckets;
mod exposure;
mod tyk;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Flags, Judgement, Snapshot, TykFlags, judge};

/// A world of these objects, with every kind served and one installation that has every feature on.
fn world(objects: Vec<Value>) -> Snapshot {
    let served = [
        ("garage.rajsingh.info", "GarageBucket"),
        ("garage.rajsingh.info", "GarageCluster"),
        ("garage.rajsingh.info", "GarageReferenceGrant"),
        ("networking.k8s.io", "Ingress"),
        ("gateway.networking.k8s.io", "GatewayClass"),
        ("gateway.networking.k8s.io", "Gateway"),
        ("gateway.networking.k8s.io", "HTTPRoute"),
        ("gateway.networking.k8s.io", "ReferenceGrant"),
        ("tyk.tyk.io", "OperatorContext"),
        ("tyk.tyk.io", "TykOasApiDefinition"),
    ];
    Snapshot {
        objects,
        served: served
            .into_iter()
            .map(|(group, kind)| (group.to_owned(), kind.to_owned()))
            .collect(),
        installations: vec![Flags {
            instance: "one".to_owned(),
            enable_ingress: true,
            enable_gateway_api: true,
            cluster_domain: "cluster.local".to_owned(),
            tyk: Some(TykFlags {
                controller_name: "routewright.dev/tyk".to_owned(),
                cluster_id: Some("c-1".to_owned()),
                definitions: true,
            }),
            ..Flags::default()
        }],
        ..Snapshot::default()
    }
}

/// The object of this kind and name.
fn object<'a>(snapshot: &'a mut Snapshot, kind: &str, name: &str) -> &'a mut Value {
    let mut all = snapshot.objects.iter_mut();
    let found = all.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn set(snapshot: &mut Snapshot, kind: &str, name: &str, pointer: &str, value: Value) {
    let object = object(snapshot, kind, name);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Array(all) => all[key.parse::<usize>().unwrap()] = value,
        other => other[key] = value,
    }
}

fn remove(snapshot: &mut Snapshot, kind: &str, name: &str) {
    snapshot
        .objects
        .retain(|object| !(object["kind"] == kind && object["metadata"]["name"] == name));
}

/// The rules that are broken.
fn broken(snapshot: &Snapshot) -> BTreeSet<&'static str> {
    judge(snapshot).violations.iter().map(|one| one.rule).collect()
}

/// Everything is right, and these rules were applied.
fn right(snapshot: &Snapshot, rules: &[&str]) -> Judgement {
    let judgement = judge(snapshot);
    let shown: Vec<String> = judgement.violations.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
    for rule in rules {
        assert!(
            judgement.judged.contains_key(rule),
            "{rule} was not applied: {judgement:#?}"
        );
    }
    judgement
}

/// A change of a right world and the rule that it breaks.
type Wrong = (&'static str, fn(&mut Snapshot));

/// Each change breaks its rule.
fn each_is_found(right: impl Fn() -> Snapshot, wrong: &[Wrong]) {
    for (number, (rule, change)) in wrong.iter().enumerate() {
        let mut snapshot = right();
        change(&mut snapshot);
        let found = broken(&snapshot);
        assert!(
            found.contains(rule),
            "change {number}: {rule} not in {found:?}: {:#?}",
            judge(&snapshot)
        );
    }
}
