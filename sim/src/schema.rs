//! Edits that follow a kind's own schema: any field set, changed or unset, also to values at the edges of what the schema
//! takes. The API server refuses what goes over the edge, and so it is part of the history that it does.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// Names, hosts and URLs that mean something in the world, and some that mean nothing.
const TEXTS: [&str; 16] = [
    "garage",
    "garage-token",
    "public",
    "web",
    "evil",
    "tyk",
    "main",
    "edge",
    "credential",
    "a.example.com",
    "blog.example.com",
    ".web.test",
    "http://tyk.tyk.svc:8080",
    "",
    "UPPER_case",
    "index.html",
];

/// A merge patch for one field below `spec` of a kind with this schema; `None` if the schema has no fields.
pub fn edit(random: &mut Random, schema: &Value) -> Option<Value> {
    let spec = schema.get("properties")?.get("spec")?;
    Some(json!({"spec": change(random, spec, 0)?}))
}

fn change(random: &mut Random, schema: &Value, depth: u32) -> Option<Value> {
    let properties = schema.get("properties")?.as_object()?;
    if properties.is_empty() {
        return None;
    }
    let at = usize::try_from(random.below(properties.len() as u64)).ok()?;
    let (name, field) = properties.iter().nth(at)?;
    let deeper = (depth < 4 && random.chance(2, 3))
        .then(|| change(random, field, depth + 1))
        .flatten();
    let value = deeper.unwrap_or_else(|| {
        if random.chance(1, 4) {
            Value::Null
        } else {
            value(random, field, 0)
        }
    });
    Some(json!({name: value}))
}

/// A value that fits the schema, mostly.
fn value(random: &mut Random, schema: &Value, depth: u32) -> Value {
    if let Some(options) = schema["enum"].as_array().filter(|options| !options.is_empty()) {
        return random.pick(options).clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => json!(random.chance(1, 2)),
        "integer" | "number" => number(random, schema),
        "string" => text(random, schema),
        "array" => {
            let count = random.below(3).min(schema["maxItems"].as_u64().unwrap_or(3));
            json!(
                (0..count)
                    .map(|_| value(random, &schema["items"], depth + 1))
                    .collect::<Vec<_>>()
            )
        }
        "object" => object(random, schema, depth),
        // Anything goes: a boolean where a map is meant, too.
        _ => random
            .pick(&[json!({}), json!("x"), json!(false), json!(1)])
            .clone(),
    }
}

fn number(random: &mut Random, schema: &Value) -> Value {
    let least = schema["minimum"].as_i64().unwrap_or(0);
    let most = schema["maximum"].as_i64().unwrap_or(65_535);
    let edges = [
        least,
        most,
        least.saturating_sub(1),
        most.saturating_add(1),
        80,
        3902,
    ];
    json!(random.pick(&edges))
}

fn text(random: &mut Random, schema: &Value) -> Value {
    if random.chance(1, 8) {
        let most = schema["maxLength"].as_u64().unwrap_or(253).min(5_000);
        let length = usize::try_from(most + random.below(2)).unwrap_or(0);
        return json!("a".repeat(length));
    }
    json!(random.pick(&TEXTS))
}

fn object(random: &mut Random, schema: &Value, depth: u32) -> Value {
    let mut made = Map::new();
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let wanted = required.contains(&name.as_str()) || (depth < 3 && random.chance(1, 4));
        if wanted {
            made.insert(name.clone(), value(random, field, depth + 1));
        }
    }
    if made.is_empty() && schema["additionalProperties"].is_object() {
        made.insert(
            (*random.pick(&TEXTS)).to_owned(),
            value(random, &schema["additionalProperties"], depth + 1),
        );
    }
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_schema_is_edited_sooner_or_later() {
        let schema = json!({"properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "integer", "maximum": 5}}},
        }}}});
        let mut random = Random::seeded(1);
        let edits: Vec<Value> = (0..200).filter_map(|_| edit(&mut random, &schema)).collect();
        let has = |wanted: Value| edits.iter().any(|edit| edit["spec"] == wanted);
        assert!(has(json!({"a": null})), "unset");
        assert!(has(json!({"b": {"c": 5}})), "at the edge");
        assert!(has(json!({"b": {"c": 6}})), "over it");
        assert!(has(json!({"b": null})), "a whole block");
    }
}
