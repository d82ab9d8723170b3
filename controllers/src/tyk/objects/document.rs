//! Documents of attached definitions, out of the values of a ConfigMap: JSON or YAML, parsed only where it looks like a
//! Tyk OAS document. Errors give a place and never quote content.

use serde_json::Value;

use super::text::token;

/// The key that makes an OpenAPI document a Tyk OAS document.
pub const EXTENSION: &str = "x-tyk-api-gateway";

/// The document in a text, or why it is none.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    if !text.contains(EXTENSION) {
        return Err(format!("has no {EXTENSION} object"));
    }
    let value: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| {
            format!(
                "is no valid JSON (line {}, column {})",
                error.line(),
                error.column()
            )
        })?
    } else {
        serde_saphyr::from_str(text).map_err(|error| match error.location() {
            Some(place) => format!(
                "is no valid YAML (line {}, column {})",
                place.line(),
                place.column()
            ),
            None => "is no valid YAML".to_owned(),
        })?
    };
    if !value.is_object() {
        return Err("is no object".to_owned());
    }
    if let Some((path, token)) = find_token(&value) {
        return Err(format!(
            "{path} must not hold {token:?}, which Tyk replaces by a value of its own"
        ));
    }
    Ok(value)
}

/// The first substitution token in a document, keys included, and its field path.
pub fn find_token(value: &Value) -> Option<(String, &'static str)> {
    fn below(value: &Value, path: &mut Vec<String>) -> Option<&'static str> {
        match value {
            Value::String(text) => token(text),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| step(format!("[{index}]"), item, path)),
            // A key with a token is not repeated.
            Value::Object(map) => map.iter().find_map(|(key, item)| {
                token(key).or_else(|| step(format!(".{}", super::walk::Name(key)), item, path))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }
    fn step(name: String, item: &Value, path: &mut Vec<String>) -> Option<&'static str> {
        path.push(name);
        let found = below(item, path);
        // The path stays as it is where something was found.
        if found.is_none() {
            path.pop();
        }
        found
    }
    let mut path = Vec::new();
    let token = below(value, &mut path)?;
    let path = path.concat();
    let path = path.strip_prefix('.').unwrap_or(&path);
    Some((if path.is_empty() { "the root" } else { path }.to_owned(), token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_and_yaml_give_the_same_document() {
        let yaml = "openapi: 3.0.3\npaths:\n  /a:\n    get:\n      responses:\n        200: {description: ok}\nx-tyk-api-gateway:\n  middleware: {}\n";
        let value = parse(yaml).unwrap();
        assert_eq!(
            value["paths"]["/a"]["get"]["responses"]["200"]["description"],
            "ok"
        );
        assert_eq!(value["openapi"], "3.0.3");
        assert_eq!(parse(&value.to_string()).unwrap(), value);
    }

    #[test]
    fn what_is_no_document_is_told_with_its_place_and_without_its_content() {
        for (text, says) in [
            ("hello", "has no x-tyk-api-gateway object"),
            ("openapi: 3.0.3", "has no x-tyk-api-gateway object"),
            (
                "{\"x-tyk-api-gateway\": {},\n\"password\" \"hunter2\"}",
                "is no valid JSON (line 2, column 12)",
            ),
            ("x-tyk-api-gateway: {}\nfoo: [hunter2\n", "is no valid YAML (line"),
            ("[x-tyk-api-gateway]", "is no object"),
            (
                r#"{"x-tyk-api-gateway": {"a": [{"b": "x env://HOME"}]}}"#,
                r#"x-tyk-api-gateway.a[0].b must not hold "env://""#,
            ),
            (
                r#"{"x-tyk-api-gateway": {"$secret_env.x": 1}}"#,
                r#"x-tyk-api-gateway must not hold "$secret_""#,
            ),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(says), "{said}");
            assert!(!said.contains("hunter2") && !said.contains("HOME"), "{said}");
        }
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = "x-tyk-api-gateway: {}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..12 {
            let p = n - 1;
            text.push_str(&format!(
                "a{n}: &a{n} [*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p}]\n"
            ));
        }
        assert!(parse(&text).unwrap_err().starts_with("is no valid YAML"));
        let found = find_token(&json!({"a": "b"}));
        assert_eq!(found, None);
    }
}
