//! References that Tyk replaces by secrets and variables, when it loads a document or serves a request. None may come
//! from a user's value: who writes a route would read the gateway's secrets.

use serde_json::Value;

use super::Refusal;

/// What starts a reference. Compared without regard to case.
pub const TOKENS: [&str; 9] = [
    "$secret_",
    "$tyk_",
    "$kv{",
    "env://",
    "vault://",
    "consul://",
    "secrets://",
    "file://",
    "kv://",
];

/// The first kind of reference that a text holds.
pub fn find(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    TOKENS.into_iter().find(|token| lower.contains(token))
}

/// Looks at every key and every string of a document.
///
/// # Errors
///
/// [`Refusal::Token`] with the place of the first one found.
pub fn none_in(document: &Value) -> Result<(), Refusal> {
    fn walk(value: &Value, place: &str) -> Result<(), Refusal> {
        let check = |text: &str, place: &str| match find(text) {
            Some(token) => Err(Refusal::Token {
                place: place.to_owned(),
                token,
            }),
            None => Ok(()),
        };
        match value {
            Value::String(text) => check(text, place),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .try_for_each(|(n, item)| walk(item, &format!("{place}[{n}]"))),
            Value::Object(map) => map.iter().try_for_each(|(key, item)| {
                check(key, place)?;
                let below = if place.is_empty() {
                    key.clone()
                } else {
                    format!("{place}.{key}")
                };
                walk(item, &below)
            }),
            _ => Ok(()),
        }
    }
    walk(document, "")
}
