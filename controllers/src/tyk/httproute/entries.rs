//! The own entries of `status.parents`: what they should say, and what those that stand say of the past. Pure.

use reconcile_kit::{Condition, Entries, Entry, Limits};
use serde_json::{Map, Value, json};

use crate::tyk::{objects::route::ParentRef, verdict::ParentVerdict};

/// The field of status.
pub const FIELD: &str = "parents";
/// The key of an entry that says whose it is.
const CONTROLLER: &str = "controllerName";
/// The key of an entry that says what it is about.
const PARENT: &str = "parentRef";

/// What the schema of `status.parents` takes: entries of all controllers together, conditions of one entry.
const LIMITS: Limits = Limits {
    entries: 32,
    conditions: 8,
};

/// What the own entries should say; without parents there should be none.
pub fn entries(controller: &str, parents: Vec<(ParentRef, Vec<Condition>)>) -> Entries {
    Entries {
        ours: Some((CONTROLLER, controller.to_owned())),
        identity: PARENT,
        entries: parents
            .into_iter()
            .map(|(parent, conditions)| Entry {
                identity: reference(&parent),
                rest: Map::new(),
                conditions,
            })
            .collect(),
        limits: LIMITS,
    }
}

/// As the API server stores it: group and kind spelled out, the rest as the user wrote it.
fn reference(parent: &ParentRef) -> Value {
    let mut value = json!({"group": parent.group, "kind": parent.kind, "name": parent.name});
    let optional = [
        ("namespace", parent.namespace.as_deref().map(Value::from)),
        ("sectionName", parent.section_name.as_deref().map(Value::from)),
        ("port", parent.port.map(Value::from)),
    ];
    if let Some(map) = value.as_object_mut() {
        map.extend(
            optional
                .into_iter()
                .filter_map(|(key, v)| Some((key.to_owned(), v?))),
        );
    }
    value
}

/// Whether the entries that stand say of every parent what the model says now, Accepted True among it: then Tyk confirmed
/// the APIs as this generation wants them. `live`: `status.parents`.
pub fn confirmed(
    live: Option<&Value>,
    controller: &str,
    parents: &[ParentVerdict],
    generation: Option<i64>,
) -> bool {
    let live = live.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let accepted = |parent: &&ParentVerdict| {
        let mut conditions = parent.conditions.iter();
        conditions.any(|c| c.type_ == "Accepted" && c.status == true.into())
    };
    let mut served = parents.iter().filter(accepted).peekable();
    served.peek().is_some()
        && served.all(|parent| {
            let identity = reference(&parent.parent);
            let of = |entry: &&Value| {
                entry.get(CONTROLLER).and_then(Value::as_str) == Some(controller)
                    && entry.get(PARENT) == Some(&identity)
            };
            live.iter()
                .find(of)
                .is_some_and(|entry| parent.conditions.iter().all(|c| stands(entry, c, generation)))
        })
}

fn stands(entry: &Value, wanted: &Condition, generation: Option<i64>) -> bool {
    let conditions = entry.get("conditions").and_then(Value::as_array);
    let is = |condition: &&Value| {
        let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        text("type") == wanted.type_
            && text("status") == wanted.status.as_str()
            && text("reason") == wanted.reason
            && text("message") == wanted.message
            && condition.get("observedGeneration").and_then(Value::as_i64) == generation
    };
    conditions.is_some_and(|conditions| conditions.iter().find(is).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tyk::objects::{GATEWAY_GROUP, Key};

    fn parent(name: &str) -> ParentRef {
        ParentRef {
            group: GATEWAY_GROUP.into(),
            kind: "Gateway".into(),
            name: name.into(),
            ..ParentRef::default()
        }
    }

    fn verdict(name: &str, accepted: bool, message: &str) -> ParentVerdict {
        ParentVerdict {
            parent: parent(name),
            gateway: Key::new("infra", name),
            conditions: vec![Condition::new(
                "Accepted",
                accepted,
                if accepted { "Accepted" } else { "UnsupportedValue" },
                message,
            )],
        }
    }

    fn live(controller: &str, name: &str, generation: i64) -> Value {
        json!({"controllerName": controller, "parentRef": reference(&parent(name)), "conditions": [
            {"type": "Other"},
            {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "1 API",
             "observedGeneration": generation}]})
    }

    #[test]
    fn a_reference_is_spelled_as_the_api_server_stores_it() {
        let mut full = parent("edge");
        full.namespace = Some("infra".into());
        full.section_name = Some("web".into());
        full.port = Some(80);
        let entries = entries("c", vec![(parent("edge"), vec![]), (full, vec![])]);
        let identities: Vec<&Value> = entries.entries.iter().map(|e| &e.identity).collect();
        let plain = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": "edge"});
        let whole = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": "infra", "name": "edge",
                           "sectionName": "web", "port": 80});
        assert_eq!(identities, [&plain, &whole]);
    }

    #[test]
    fn only_own_entries_of_this_generation_that_say_the_same_confirm() {
        let parents = [verdict("edge", true, "1 API"), verdict("other", false, "no")];
        let confirms = |live: Value| confirmed(Some(&live), "ours", &parents, Some(3));
        assert!(confirms(json!([
            live("theirs", "edge", 1),
            live("ours", "edge", 3)
        ])));
        for live in [
            json!([]),
            json!("garbage"),
            json!([live("ours", "edge", 2)]),
            json!([live("theirs", "edge", 3)]),
            json!([live("ours", "other", 3)]),
        ] {
            assert!(!confirms(live.clone()), "{live}");
        }
        let more = [verdict("edge", true, "2 APIs")];
        let live = json!([live("ours", "edge", 3)]);
        assert!(!confirmed(Some(&live), "ours", &more, Some(3)), "another count");
        assert!(!confirmed(Some(&live), "ours", &[], Some(3)), "nothing is served");
        assert!(!confirmed(None, "ours", &parents, Some(3)));
    }
}
