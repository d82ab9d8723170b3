//! The document of an attached definition: what it may hold, what is in it, and how the route's settings join it.
//!
//! The route supplies routing, the definition the rest. Validated loosely: Tyk has the last word on what it does not
//! share with the route.

use serde_json::{Map, Value, json};

use super::{
    EVERY_PATH, EXTENSION, Own, Refusal,
    middleware::{REQUEST_HEADERS, RESPONSE_HEADERS, not_found_rule, transform},
    spelling,
};
use crate::tyk::objects::route::{HeaderEdit, Method};

/// What the route sets, below the extension. A definition that sets any of it is invalid.
pub const ROUTE_OWNED: [(&str, &str); 8] = [
    ("info", "id"),
    ("info", "dbId"),
    ("server", "listenPath"),
    ("server", "customDomain"),
    ("server", "gatewayTags"),
    ("upstream", "url"),
    ("upstream", "loadBalancing"),
    ("upstream", "preserveHostHeader"),
];

/// Objects that the route's settings are put into; when a definition has them they must be objects.
const OBJECTS: [&[&str]; 12] = [
    &["info"],
    &["paths"],
    &[EXTENSION, "info"],
    &[EXTENSION, "server"],
    &[EXTENSION, "upstream"],
    &[EXTENSION, "errorOverrides"],
    &[EXTENSION, "errorOverrides", "value"],
    &[EXTENSION, "middleware"],
    &[EXTENSION, "middleware", "global"],
    &[EXTENSION, "middleware", "global", REQUEST_HEADERS],
    &[EXTENSION, "middleware", "global", RESPONSE_HEADERS],
    &[EXTENSION, "middleware", "operations"],
];

/// Whether a document may be attached to a route.
///
/// # Errors
///
/// Each fault as `field path: message`: no extension, a setting that comes from the route, a key that Tyk would take for
/// another, or something that is no object (no list) where the route's settings go.
pub fn check(document: &Value) -> Result<(), Vec<String>> {
    let Some(root) = document.as_object() else {
        return Err(vec![
            "the document must be an object: an OpenAPI description".to_owned(),
        ]);
    };
    let Some(extension) = root.get(EXTENSION).and_then(Value::as_object) else {
        return Err(vec![format!(
            "{EXTENSION}: must be an object; without it the document is no API of Tyk"
        )]);
    };
    let mut faults = Vec::new();
    for (part, key) in ROUTE_OWNED {
        let set = extension.get(part).and_then(|part| part.get(key));
        if set.is_some_and(|value| !value.is_null()) {
            faults.push(format!(
                "{EXTENSION}.{part}.{key}: comes from the route; remove it from the definition"
            ));
        }
    }
    for path in OBJECTS {
        let found = path.iter().try_fold(document, |value, key| value.get(key));
        if found.is_some_and(|value| !value.is_object() && !value.is_null()) {
            faults.push(format!("{}: must be an object", path.join(".")));
        }
    }
    for (place, entries) in [
        ("paths", root.get("paths")),
        (
            "x-tyk-api-gateway.middleware.operations",
            pointer(extension, &["middleware", "operations"]),
        ),
    ] {
        for (key, value) in entries.and_then(Value::as_object).into_iter().flatten() {
            // An OpenAPI document may carry extensions beside its paths.
            let elsewhere = place == "paths" && key.starts_with("x-");
            if !elsewhere && !value.is_object() {
                faults.push(format!("{place}.{key}: must be an object"));
            }
        }
    }
    let forbidden = pointer(extension, &["errorOverrides", "value", "403"]);
    if forbidden.is_some_and(|rules| !rules.is_array() && !rules.is_null()) {
        faults.push(format!("{FORBIDDEN}: must be a list"));
    }
    faults.extend(spelling::faults(root));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Where the rule for methods that no rule matches goes.
const FORBIDDEN: &str = "x-tyk-api-gateway.errorOverrides.value.403";

fn pointer<'a>(map: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(map.get(*first)?, |value, key| value.get(*key))
}

/// One operation of a definition's document.
#[derive(Debug)]
pub(super) struct Theirs<'a> {
    pub(super) path: &'a str,
    pub(super) method: Method,
    pub(super) id: Option<&'a str>,
    /// Its entry in `middleware.operations`.
    pub(super) settings: Option<&'a Map<String, Value>>,
}

impl Theirs<'_> {
    /// Whether it switches a middleware on.
    pub(super) fn has(&self, middleware: &str) -> bool {
        self.settings
            .and_then(|settings| settings.get(middleware))
            .is_some_and(enabled)
    }
}

fn enabled(middleware: &Value) -> bool {
    middleware.get("enabled").and_then(Value::as_bool) == Some(true)
}

/// The operations of a document, by path and method.
pub(super) fn operations(root: &Map<String, Value>) -> Vec<Theirs<'_>> {
    let settings = entries(root);
    let mut found = Vec::new();
    for (path, item) in root.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for method in Method::ALL {
            let Some(operation) = item.get(method.as_str()) else {
                continue;
            };
            let id = operation.get("operationId").and_then(Value::as_str);
            found.push(Theirs {
                path,
                method,
                id,
                settings: id.and_then(|id| settings?.get(id)?.as_object()),
            });
        }
    }
    found.sort_by_key(|operation| (operation.path, operation.method));
    found
}

/// `middleware.operations` of a document.
pub(super) fn entries(root: &Map<String, Value>) -> Option<&Map<String, Value>> {
    pointer(root, &[EXTENSION, "middleware", "operations"])?.as_object()
}

/// Whether a document allows some operations, and thereby forbids all others.
pub(super) fn has_allow_list(root: &Map<String, Value>) -> bool {
    operations(root).iter().any(|operation| operation.has("allow"))
}

/// The header changes that a document makes for all operations: entries of `add`, entries of `remove`.
pub(super) fn global(root: &Map<String, Value>, middleware: &str) -> (Vec<Value>, Vec<Value>) {
    let Some(found) =
        pointer(root, &[EXTENSION, "middleware", "global", middleware]).filter(|found| enabled(found))
    else {
        return (Vec::new(), Vec::new());
    };
    let list = |key: &str| {
        found
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    (list("add"), list("remove"))
}

/// The header that an entry of `add` or `remove` is about.
pub(super) fn header(entry: &Value) -> Option<&str> {
    entry
        .as_str()
        .or_else(|| entry.get("name").and_then(Value::as_str))
}

/// Whether a change is about a header.
pub(super) fn touches(edit: &HeaderEdit, name: &str) -> bool {
    edit.set
        .keys()
        .chain(&edit.remove)
        .any(|own| own.eq_ignore_ascii_case(name))
}

/// The document of an API: a definition's (or none), completed by what the route sets.
pub(super) fn join(mut root: Map<String, Value>, own: &Own) -> Result<Map<String, Value>, Refusal> {
    let global = [
        (REQUEST_HEADERS, &own.middleware.request),
        (RESPONSE_HEADERS, &own.middleware.response),
    ]
    .map(|(name, edit)| (name, merged(&root, name, edit)));
    let unmatched: Vec<String> = operations(&root)
        .iter()
        .filter(|operation| !own.middleware.matched.contains(&operation.method))
        .filter_map(|operation| operation.id.map(ToOwned::to_owned))
        .collect();

    root.remove(super::stamp::OWNER);
    root.remove(super::stamp::HASH);
    root.entry("openapi").or_insert_with(|| "3.0.3".into());

    let info = object(&mut root, "info")?;
    info.insert("title".to_owned(), own.id.clone().into());
    info.entry("version").or_insert_with(|| "1.0.0".into());

    let item = object(object(&mut root, "paths")?, EVERY_PATH)?;
    for (method, _) in &own.middleware.operations {
        item.insert(
            method.as_str().to_owned(),
            json!({"operationId": method.as_str(), "responses": {"default": {"description": ""}}}),
        );
    }

    let extension = object(&mut root, EXTENSION)?;
    let info = object(extension, "info")?;
    info.insert("id".to_owned(), own.id.clone().into());
    info.insert("name".to_owned(), own.id.clone().into());
    info.insert("state".to_owned(), json!({"active": true}));
    info.remove("dbId");
    if own.org.is_empty() {
        info.remove("orgId");
    } else {
        info.insert("orgId".to_owned(), own.org.clone().into());
    }

    let server = object(extension, "server")?;
    server.insert(
        "listenPath".to_owned(),
        json!({"value": own.listen_path, "strip": true}),
    );
    for (key, value) in [
        ("customDomain", &own.custom_domain),
        ("gatewayTags", &own.gateway_tags),
    ] {
        match value {
            Some(value) => server.insert(key.to_owned(), value.clone()),
            None => server.remove(key),
        };
    }

    let upstream = object(extension, "upstream")?;
    upstream.remove("loadBalancing");
    upstream.extend(own.upstream.clone());

    for (name, transform) in global {
        if let Some(transform) = transform {
            object(object(extension, "middleware")?, "global")?.insert(name.to_owned(), transform);
        }
    }
    for id in &unmatched {
        let settings = object(object(object(extension, "middleware")?, "operations")?, id)?;
        // Nothing of it may come before the 404; only what allows and blocks still means something for other methods.
        settings.retain(|middleware, _| matches!(middleware.as_str(), "allow" | "block"));
    }
    for (method, operation) in &own.middleware.operations {
        let settings = operation.settings();
        if !settings.is_empty() {
            object(object(extension, "middleware")?, "operations")?
                .insert(method.as_str().to_owned(), Value::Object(settings));
        }
    }
    if own.middleware.not_found {
        override_forbidden(extension)?;
    }
    Ok(root)
}

/// The route's header changes for all operations, the definition's others with them; `None` where the route has none.
fn merged(theirs: &Map<String, Value>, name: &str, edit: &HeaderEdit) -> Option<Value> {
    if edit.is_empty() {
        return None;
    }
    let (mut add, mut remove) = global(theirs, name);
    for list in [&mut add, &mut remove] {
        list.retain(|entry| !header(entry).is_some_and(|name| touches(edit, name)));
    }
    Some(transform(&add, &remove, edit))
}

/// Puts the rule for forbidden methods in front of the definition's own, since the first that fits counts.
fn override_forbidden(extension: &mut Map<String, Value>) -> Result<(), Refusal> {
    let overrides = object(extension, "errorOverrides")?;
    if overrides.get("enabled").and_then(Value::as_bool) != Some(true) {
        // What a definition has switched off stays off.
        overrides.clear();
    }
    overrides.insert("enabled".to_owned(), Value::Bool(true));
    let forbidden = object(overrides, "value")?
        .entry("403")
        .or_insert_with(|| Value::Array(Vec::new()));
    if forbidden.is_null() {
        *forbidden = Value::Array(Vec::new());
    }
    match forbidden {
        Value::Array(rules) => {
            rules.insert(0, not_found_rule());
            Ok(())
        }
        _ => Err(Refusal::Base(format!("{FORBIDDEN}: must be a list"))),
    }
}

/// The object under a key, made when it is absent.
fn object<'a>(map: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Map<String, Value>, Refusal> {
    let value = map.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .ok_or_else(|| Refusal::Base(format!("{key}: must be an object")))
}
