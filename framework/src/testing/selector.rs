//! Label and field selectors of list, watch and delete-collection.

use serde_json::Value;

use super::failure::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

/// Which objects a request is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<(String, Test)>,
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str, builtin: bool) -> Result<Self, Failure> {
        let mut out = Self::default();
        for part in split_outside_brackets(labels) {
            out.labels.push(parse_label(part).ok_or_else(|| {
                Failure::bad_request(format!(
                    "unable to parse requirement: {part:?} is no label requirement"
                ))
            })?);
        }
        for part in fields.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value, equal) = if let Some((name, value)) = part.split_once("!=") {
                (name, value, false)
            } else if let Some((name, value)) = part.split_once("==") {
                (name, value, true)
            } else if let Some((name, value)) = part.split_once('=') {
                (name, value, true)
            } else {
                return Err(Failure::bad_request(format!(
                    "invalid selector: {part:?}; can't understand {part:?}"
                )));
            };
            // Of the many fields that built-in kinds offer, those that controllers use.
            let known = matches!(name, "metadata.name" | "metadata.namespace")
                || builtin
                    && (matches!(name, "type" | "reason" | "status.phase") || name.starts_with("regarding."));
            if !known {
                return Err(Failure::bad_request(format!("field label not supported: {name}")));
            }
            out.fields.push((name.to_owned(), value.to_owned(), equal));
        }
        Ok(out)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|(name, test)| {
            let value = labels[name.as_str()].as_str();
            match test {
                Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
                Test::NotIn(values) => !value.is_some_and(|v| values.iter().any(|w| w == v)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
            }
        }) && self.fields.iter().all(|(path, wanted, equal)| {
            let found = path.split('.').fold(object, |v, step| &v[step]);
            (found.as_str().unwrap_or_default() == wanted) == *equal
        })
    }

    /// The only name that can match, for resourceNames-like rules and for speed.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|(path, _, equal)| path == "metadata.name" && *equal)
            .map(|(_, v, _)| v.as_str())
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .collect()
}

fn parse_label(part: &str) -> Option<(String, Test)> {
    let is_value =
        |v: &str| v.is_empty() || v.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let values = |list: &str| -> Option<Vec<String>> {
        let inner = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|v| v.trim().to_owned()).collect())
    };
    let one = |v: &str| is_value(v.trim()).then(|| vec![v.trim().to_owned()]);
    if let Some(name) = part.strip_prefix('!') {
        return Some((name.trim().to_owned(), Test::Absent));
    }
    if let Some((name, list)) = part.split_once(" notin ") {
        return Some((name.trim().to_owned(), Test::NotIn(values(list)?)));
    }
    if let Some((name, list)) = part.split_once(" in ") {
        return Some((name.trim().to_owned(), Test::In(values(list)?)));
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Some((name.trim().to_owned(), Test::NotIn(one(value)?)));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some((name.trim().to_owned(), Test::In(one(value)?)));
    }
    let bare = !part.contains(|c: char| c.is_whitespace() || c == '(' || c == ')');
    bare.then(|| (part.to_owned(), Test::Exists))
}
