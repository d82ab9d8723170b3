//! Documents of attached definitions, out of the values of a ConfigMap: JSON or YAML, parsed only where it looks like a
//! Tyk OAS document. Errors give a place and never quote content.
//!
//! Every document is bounded in bytes and in depth. As a parsed value it takes up to some thirty times the memory of its
//! text, and each API of a route is made from it: so the text is what is kept, and it is parsed where an API is made.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::text::token;

/// The most bytes that a document may have as JSON without white space.
pub const MOST_BYTES: usize = 64 * 1024;
/// The most bytes of a text that is parsed: white space, comments and the like may be three times the document.
const MOST_TEXT: usize = 4 * MOST_BYTES;
/// How deep objects and lists may be nested.
const MOST_DEPTH: usize = 64;

/// A document as canonical JSON, shared by all that is made from it.
#[derive(Clone, PartialEq, Eq)]
pub struct Document(Arc<str>);

impl Document {
    /// Parses the text; null if it is not JSON, which [`From`] rules out.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self(canonical(&value).into())
    }
}

// A document may hold what a definition holds: it is shown nowhere.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.bytes())
    }
}

/// JSON without white space and with sorted keys, whatever order the map type keeps.
pub fn canonical(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort();
                out.push('{');
                for (n, key) in keys.into_iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::String(key.clone()).to_string());
                    out.push(':');
                    write(map.get(key).unwrap_or(&Value::Null), out);
                }
                out.push('}');
            }
            Value::Array(list) => {
                out.push('[');
                for (n, item) in list.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    write(item, out);
                }
                out.push(']');
            }
            plain => out.push_str(&plain.to_string()),
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The key that makes an OpenAPI document a Tyk OAS document.
pub const EXTENSION: &str = "x-tyk-api-gateway";

/// The document in a text, or why it is none.
pub(super) fn parse(text: &str) -> Result<Document, String> {
    if !text.contains(EXTENSION) {
        return Err(format!("has no {EXTENSION} object"));
    }
    if text.len() > MOST_TEXT {
        return Err(format!(
            "has {} bytes, {MOST_TEXT} are the most that are read: make the document smaller",
            text.len()
        ));
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
        serde_saphyr::from_str_with_options(text, yaml()).map_err(|error| match error.location() {
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
    if depth(&value) > MOST_DEPTH {
        return Err(format!("is nested more than {MOST_DEPTH} levels deep"));
    }
    let document = Document::from(value);
    if document.bytes() > MOST_BYTES {
        return Err(format!(
            "has {} bytes as JSON without white space, {MOST_BYTES} are the most: leave out what Tyk does not need, such as \
             examples and descriptions",
            document.bytes()
        ));
    }
    Ok(document)
}

/// Bounds what aliases may come to.
fn yaml() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: MOST_TEXT, max_depth: MOST_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MOST_BYTES },
    }
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
        let document = parse(yaml).unwrap();
        let value = document.value();
        assert_eq!(
            value["paths"]["/a"]["get"]["responses"]["200"]["description"],
            "ok"
        );
        assert_eq!(value["openapi"], "3.0.3");
        assert_eq!(parse(&value.to_string()).unwrap(), document);
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
    fn a_document_is_bounded_in_bytes_and_depth() {
        let of = |pad: usize| format!("{{\"x-pad\":\"{}\",\"x-tyk-api-gateway\":{{}}}}", "a".repeat(pad));
        let frame = of(0).len();
        assert_eq!(parse(&of(MOST_BYTES - frame)).unwrap().bytes(), MOST_BYTES);
        let said = parse(&of(MOST_BYTES - frame + 1)).unwrap_err();
        assert!(
            said.starts_with("has 65537 bytes as JSON without white space, 65536 are the most"),
            "{said}"
        );
        // White space does not count, up to a limit.
        let spaced = |pad: usize| format!("{{{}\"x-tyk-api-gateway\":{{}}}}", " ".repeat(pad));
        assert_eq!(parse(&spaced(MOST_BYTES)).unwrap().bytes(), frame - 11);
        let said = parse(&spaced(MOST_TEXT)).unwrap_err();
        assert!(
            said.ends_with("262144 are the most that are read: make the document smaller"),
            "{said}"
        );
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            parse(&format!("{{\"x-tyk-api-gateway\":{{}},\"x\":{open}{close}}}"))
        };
        assert!(nested(MOST_DEPTH - 1).is_ok());
        assert_eq!(
            nested(MOST_DEPTH).unwrap_err(),
            "is nested more than 64 levels deep"
        );
        assert!(nested(10_000).unwrap_err().starts_with("is no valid JSON"));
        let deep = format!(
            "x-tyk-api-gateway: {{}}\nx: {}{}",
            "[".repeat(10_000),
            "]".repeat(10_000)
        );
        assert!(parse(&deep).unwrap_err().starts_with("is no valid YAML"));
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
