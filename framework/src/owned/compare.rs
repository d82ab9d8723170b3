//! Whether a live object already says what we want: subset comparison, and a hash of the intent. Pure.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Every field that `desired` names has the same value in `live`. Lists pairwise and of one length; fields that only
/// `live` has (server defaults, other writers' keys) do not count.
pub fn is_subset(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(want), Value::Object(have)) => want
            .iter()
            .all(|(key, value)| have.get(key).is_some_and(|h| is_subset(value, h))),
        (Value::Array(want), Value::Array(have)) => {
            want.len() == have.len() && want.iter().zip(have).all(|(w, h)| is_subset(w, h))
        }
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

/// Where `live` holds more than `desired` at and below a JSON pointer, as JSON pointers, outermost first. Values that
/// differ are no surplus; empty values count as absent.
pub fn surplus(desired: &Value, live: &Value, pointer: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(
        desired.pointer(pointer),
        live.pointer(pointer),
        pointer,
        &mut found,
    );
    found
}

fn collect(desired: Option<&Value>, live: Option<&Value>, at: &str, found: &mut Vec<String>) {
    match (desired, live) {
        (None, Some(live)) if !is_empty(live) => found.push(at.to_owned()),
        (Some(Value::Object(want)), Some(Value::Object(have))) => {
            for (key, value) in have {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                collect(want.get(key), Some(value), &at, found);
            }
        }
        (Some(Value::Array(want)), Some(Value::Array(have))) => {
            for (index, value) in have.iter().enumerate() {
                collect(want.get(index), Some(value), &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Whether a JSON pointer leads through a list of `value`.
pub fn crosses_list(value: &Value, pointer: &str) -> bool {
    let mut at = value;
    for key in pointer.split('/').skip(1) {
        let next = match at {
            Value::Object(map) => map.get(&key.replace("~1", "/").replace("~0", "~")),
            _ => return at.is_array(),
        };
        let Some(next) = next else { return false };
        at = next;
    }
    false
}

/// Hash of an intent, independent of the order of keys. 32 hex digits.
pub fn intent_hash(intent: &Value) -> String {
    let mut hasher = Sha256::new();
    feed(intent, &mut hasher);
    hasher
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn feed(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Object(map) => {
            hasher.update(b"{");
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(key, _)| key.as_str());
            for (key, value) in keys {
                feed(&Value::String(key.clone()), hasher);
                feed(value, hasher);
            }
            hasher.update(b"}");
        }
        Value::Array(list) => {
            hasher.update(b"[");
            list.iter().for_each(|item| feed(item, hasher));
            hasher.update(b"]");
        }
        Value::String(text) => {
            // The length keeps neighbours apart.
            hasher.update(b"s");
            hasher.update(text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        }
        other => {
            hasher.update(other.to_string().as_bytes());
            hasher.update(b";");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn server_defaults_are_tolerated_and_edits_are_not() {
        let want = json!({"spec": {"rules": [{"host": "a", "port": 80}], "class": "x"}});
        let mut live =
            json!({"spec": {"rules": [{"host": "a", "port": 80.0, "weight": 1}], "class": "x", "more": {}}});
        assert!(is_subset(&want, &live));
        live["spec"]["rules"][0]["host"] = json!("b");
        assert!(!is_subset(&want, &live));
        live["spec"]["rules"] = json!([{"host": "a", "port": 80}, {"host": "b", "port": 80}]);
        assert!(!is_subset(&want, &live), "a longer list is an edit");
        live["spec"]["rules"] = json!(null);
        assert!(!is_subset(&want, &live));
    }

    #[test]
    fn a_surplus_is_what_only_the_live_object_has_below_a_pointer() {
        let want = json!({"spec": {"rules": [{"host": "a"}]}});
        let live = json!({"spec": {
            "rules": [{"host": "b", "x/y": 1}, {"host": "c"}], "tls": [{}], "backend": {"name": "n"}, "none": [],
        }});
        let found = |pointer| surplus(&want, &live, pointer);
        assert_eq!(found("/spec/rules"), ["/spec/rules/0/x~1y", "/spec/rules/1"]);
        assert_eq!(found("/spec/backend"), ["/spec/backend"]);
        assert_eq!(found("/spec/none"), [""; 0]);
        assert_eq!(found("/spec/absent"), [""; 0]);
        assert!(crosses_list(&live, "/spec/rules/0/x~1y") && !crosses_list(&live, "/spec/backend/name"));
    }

    #[test]
    fn the_hash_ignores_the_order_of_keys_and_sees_everything_else() {
        let a: Value = serde_json::from_str(r#"{"a":1,"b":["x","yz"]}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"b":["x","yz"],"a":1}"#).unwrap();
        assert_eq!(intent_hash(&a), intent_hash(&b));
        for other in [
            json!({"a":1,"b":["xy","z"]}),
            json!({"a":2,"b":["x","yz"]}),
            json!({"a":"1","b":["x","yz"]}),
        ] {
            assert_ne!(intent_hash(&a), intent_hash(&other), "{other}");
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a-c]{1,2}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn everything_is_a_subset_of_itself_and_of_itself_with_more(value in json_value(), extra in json_value()) {
            prop_assert!(is_subset(&value, &value));
            if let Value::Object(mut grown) = value.clone() {
                grown.insert("only-live".into(), extra);
                prop_assert!(is_subset(&value, &Value::Object(grown)));
            }
        }

        #[test]
        fn equal_hashes_mean_equal_values(a in json_value(), b in json_value()) {
            prop_assert_eq!(intent_hash(&a) == intent_hash(&b), a == b);
        }
    }
}
