//! Documents as they come in: what Tyk refuses with 400, with its messages, and what it reads out of the others.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::shape;

pub(crate) const EXTENSION: &str = "x-tyk-api-gateway";
/// Methods that a path item may hold.
pub(crate) const METHODS: [&str; 8] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace",
];
const NO_EXTENSION: &str = "the payload should contain x-tyk-api-gateway";

/// What decides where an API is found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    pub(crate) id: String,
    pub(crate) path: String,
    /// Host that it is for, if custom domains are on.
    pub(crate) domain: String,
    /// Not reachable from outside.
    pub(crate) internal: bool,
    /// `x-tyk-api-gateway` as Tyk holds it.
    pub(crate) extension: Value,
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    value
        .pointer(pointer)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

/// The id that a document names, if these bytes are one.
pub(crate) fn id_of(bytes: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let id = document.pointer("/x-tyk-api-gateway/info/id")?.as_str()?;
    Some(id.to_owned())
}

impl Definition {
    pub(crate) fn of(document: &Value) -> Self {
        let extension = shape::kept(document.get(EXTENSION).unwrap_or(&Value::Null));
        let on = flag(&extension, "/server/customDomain/enabled");
        Self {
            id: text(&extension, "/info/id").to_owned(),
            path: text(&extension, "/server/listenPath/value").to_owned(),
            domain: if on {
                text(&extension, "/server/customDomain/name").to_owned()
            } else {
                String::new()
            },
            internal: flag(&extension, "/info/state/internal"),
            extension,
        }
    }

    /// Whether the gateway gets it into memory: it gives up on a listen path without slash, though it accepted it.
    pub(crate) fn loads(&self) -> bool {
        self.path.starts_with('/')
    }
}

/// Whether an id can be the name of a file.
pub(crate) fn usable_id(id: &str) -> bool {
    let mut decoded = id.to_owned();
    for _ in 0..3 {
        decoded = unescaped(&decoded);
    }
    !matches!(decoded.as_str(), "" | "." | "..") && !decoded.contains(['/', '\\'])
}

/// Percent-decoded, a plus being a blank; what is no encoding stays.
fn unescaped(text: &str) -> String {
    form_urlencoded::parse(format!("k={}", text.replace('&', "%26")).as_bytes())
        .next()
        .map_or_else(String::new, |(_, value)| value.into_owned())
}

/// The document, or the message of the 400. `listen`: address of the gateway, which stands in server URLs.
pub(crate) fn check(body: &[u8], listen: &str) -> Result<Value, String> {
    let document: Value = if body.is_empty() {
        json!({})
    } else {
        serde_json::from_slice(body).map_err(|_| "request malformed")?
    };
    let root = document.as_object().ok_or("request malformed")?;
    let extension = root
        .get(EXTENSION)
        .filter(|value| !value.is_null())
        .ok_or(NO_EXTENSION)?;
    let mut faults = Vec::new();
    outside(root, &mut faults);
    inside(extension, &mut faults);
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    operations(root)?;
    balanced(extension)?;
    servers(&Definition::of(&document), listen)?;
    Ok(document)
}

/// The OpenAPI part.
fn outside(root: &Map<String, Value>, faults: &mut Vec<String>) {
    for name in ["openapi", "info", "paths"] {
        if !root.contains_key(name) {
            faults.push(format!("(root): {name} is required"));
        }
    }
    const NAMES: [&str; 8] = [
        "openapi",
        "info",
        "paths",
        "components",
        "security",
        "servers",
        "tags",
        "externalDocs",
    ];
    for name in root.keys() {
        if !NAMES.contains(&name.as_str()) && !name.starts_with("x-") {
            faults.push(format!("(root): Additional property {name} is not allowed"));
        }
    }
    for (path, item) in root.get("paths").and_then(Value::as_object).into_iter().flatten() {
        const ITEM: [&str; 5] = ["$ref", "summary", "description", "servers", "parameters"];
        for (name, operation) in item.as_object().into_iter().flatten() {
            if METHODS.contains(&name.as_str()) {
                match operation.get("responses").and_then(Value::as_object) {
                    None => faults.push(format!("paths.{path}.{name}: responses is required")),
                    Some(none) if none.is_empty() => faults.push(format!(
                        "paths.{path}.{name}.responses: Must have at least 1 properties"
                    )),
                    Some(_) => {}
                }
            } else if !ITEM.contains(&name.as_str()) && !name.starts_with("x-") {
                faults.push(format!("paths.{path}: Additional property {name} is not allowed"));
            }
        }
    }
}

/// The extension.
fn inside(extension: &Value, faults: &mut Vec<String>) {
    let require = |pointer: &str, names: &[&str], faults: &mut Vec<String>| {
        let Some(level) = extension.pointer(pointer) else {
            return;
        };
        for name in names {
            if level.get(name).is_none() {
                faults.push(format!(
                    "{EXTENSION}{}: {name} is required",
                    pointer.replace('/', ".")
                ));
            }
        }
    };
    require("", &["info", "server", "upstream"], faults);
    require("/info", &["name", "state"], faults);
    require("/info/state", &["active"], faults);
    require("/server", &["listenPath"], faults);
    require("/server/listenPath", &["value"], faults);
    let balances = flag(extension, "/upstream/loadBalancing/enabled");
    if let Some(upstream) = extension.get("upstream")
        && upstream.get("url").is_none()
        && !balances
    {
        faults.push(format!(
            "{EXTENSION}.upstream: Must validate at least one schema (anyOf)"
        ));
        faults.push(format!("{EXTENSION}.upstream: url is required"));
    }
    for pointer in ["/info/name", "/server/listenPath/value"] {
        if extension
            .pointer(pointer)
            .and_then(Value::as_str)
            .is_some_and(|value| value.trim().is_empty())
        {
            faults.push(format!(
                "{EXTENSION}{}: Does not match pattern '\\S+'",
                pointer.replace('/', ".")
            ));
        }
    }
    let url = text(extension, "/upstream/url");
    // A blank in the authority, or an escape that is none.
    let authority = url
        .split_once("://")
        .map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    let escape = |rest: &str| {
        rest.as_bytes()
            .get(..2)
            .is_none_or(|digits| !digits.iter().all(u8::is_ascii_hexdigit))
    };
    if authority.contains(' ') || url.split('%').skip(1).any(escape) {
        faults.push(format!(
            "{EXTENSION}.upstream.url: Does not match format 'uri-reference'"
        ));
    }
}

/// Ids of operations, and parameters of paths.
fn operations(root: &Map<String, Value>) -> Result<(), String> {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for (path, item) in root.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for method in METHODS {
            let Some(operation) = item.get(method) else {
                continue;
            };
            let place = format!("{} {path}", method.to_uppercase());
            if let Some(id) = operation.get("operationId").and_then(Value::as_str)
                && !id.is_empty()
                && let Some(other) = seen.insert(id, place.clone())
            {
                let (first, second) = if other < place {
                    (other, place)
                } else {
                    (place, other)
                };
                return Err(format!(
                    "invalid paths: operations \"{first}\" and \"{second}\" have the same operation id \"{id}\""
                ));
            }
            let declared = |list: Option<&Value>| -> Vec<String> {
                list.and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter(|one| one.get("in").and_then(Value::as_str) == Some("path"))
                    .map(|one| text(one, "/name").to_owned())
                    .collect()
            };
            let mut have = declared(item.get("parameters"));
            have.extend(declared(operation.get("parameters")));
            let missing: Vec<&str> = path
                .split('{')
                .skip(1)
                .filter_map(|rest| rest.split_once('}'))
                .map(|(name, _)| name)
                .filter(|name| !have.iter().any(|one| one == name))
                .collect();
            if !missing.is_empty() {
                return Err(format!(
                    "invalid paths: path \"{path}\" must define exactly all path parameters (missing: [{}])",
                    missing.join(" ")
                ));
            }
        }
    }
    Ok(())
}

/// Weights.
fn balanced(extension: &Value) -> Result<(), String> {
    let targets = extension
        .pointer("/upstream/loadBalancing/targets")
        .and_then(Value::as_array);
    let none = targets.is_some_and(|targets| {
        !targets.is_empty()
            && targets
                .iter()
                .all(|one| one.get("weight").and_then(Value::as_i64).unwrap_or(0) <= 0)
    });
    let single = targets.is_some_and(|targets| {
        targets.len() == 1
            && targets
                .iter()
                .all(|one| one.get("weight").and_then(Value::as_i64).unwrap_or(0) == 0)
    });
    if flag(extension, "/upstream/loadBalancing/enabled") && none && !single {
        return Err(
            "Validation of API Definition failed. Reason: all load balancing targets have weight 0, at least one target \
             must have weight > 0."
                .to_owned(),
        );
    }
    Ok(())
}

/// What stands between braces, each without its name.
pub(crate) fn templates(text: &str) -> Result<Vec<String>, &'static str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0usize, 0usize);
    for (at, c) in text.char_indices() {
        match c {
            '{' => {
                if depth == 0 {
                    start = at + 1;
                }
                depth += 1;
            }
            '}' if depth == 0 => return Err("unexpected closing curly brace"),
            '}' => {
                depth -= 1;
                if depth == 0 {
                    found.push(text.get(start..at).unwrap_or_default().to_owned());
                }
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("open");
    }
    Ok(found)
}

/// Tyk writes a server URL for each API, and refuses what cannot be one.
fn servers(definition: &Definition, listen: &str) -> Result<(), String> {
    let host = if definition.domain.is_empty() {
        listen
    } else {
        &definition.domain
    };
    let url = format!("http://{host}{}", definition.path);
    let failed = |why: &str| Err(format!("failed to add Tyk servers: {why}"));
    let found = match templates(&url) {
        Ok(found) => found,
        Err("open") => {
            return failed(&format!(
                "failed to parse: expected closing curly brace at position {}",
                url.len()
            ));
        }
        Err(why) => return failed(why),
    };
    for template in found {
        let pattern = template.split_once(':').map_or(".*", |(_, pattern)| pattern);
        if pattern.contains(['{', '}']) {
            return failed("unexpected closing curly brace");
        }
        match Regex::new(pattern) {
            Err(_) => return failed("failed to compile pattern"),
            Ok(regex) if regex.captures_len() > 1 => {
                return failed("using capture group is not allowed in server patterns");
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
