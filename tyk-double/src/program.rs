//! What a document does with a request: its operations, in the order in which Tyk looks at them.

use std::{
    collections::HashMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use regex::Regex;
use serde_json::Value;

use crate::{
    document::{METHODS, flag, text},
    double::Switches,
    state::File,
};

/// Header changes: names to remove, then one value per name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Headers {
    pub(crate) remove: Vec<String>,
    pub(crate) set: Vec<(String, String)>,
}

impl Headers {
    fn of(value: Option<&Value>) -> Option<Self> {
        let value = value.filter(|value| flag(value, "/enabled"))?;
        let list = |name: &str| value.get(name).and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            remove: list("remove")
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            set: list("add")
                .map(|one| (text(one, "/name").to_owned(), text(one, "/value").to_owned()))
                .collect(),
        })
    }
}

/// A rewrite of the URL.
#[derive(Clone, Debug)]
pub(crate) struct Rewrite {
    pub(crate) pattern: Regex,
    pub(crate) to: String,
}

/// An answer without backend.
#[derive(Clone, Debug)]
pub(crate) struct Mock {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// Checks a body.
#[derive(Clone, Debug)]
pub(crate) struct Validation {
    pub(crate) status: u16,
    pub(crate) required: bool,
    pub(crate) schema: Option<Value>,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: String,
    pattern: Regex,
    pub(crate) allow: bool,
    pub(crate) block: bool,
    pub(crate) ignore: bool,
    pub(crate) request: Option<Headers>,
    pub(crate) response: Option<Headers>,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) to_method: Option<String>,
    pub(crate) mock: Option<Mock>,
    pub(crate) validation: Option<Validation>,
}

/// Turns an error of the gateway into another answer.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    pub(crate) of: u16,
    pub(crate) message: Regex,
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// A document, ready to be executed.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) id: String,
    pub(crate) operations: Vec<Operation>,
    /// Some operation is allowed, hence no other is.
    pub(crate) listed: bool,
    pub(crate) request: Option<Headers>,
    pub(crate) response: Option<Headers>,
    pub(crate) overrides: Vec<Override>,
    /// Name of the header that holds the token, if one is asked for.
    pub(crate) token: Option<String>,
    pub(crate) strip: bool,
    pub(crate) keep_host: bool,
    /// URLs, each as often as it weighs.
    targets: Vec<String>,
    turn: AtomicUsize,
}

/// Patterns are few and documents many.
fn cached(pattern: &str) -> Option<Regex> {
    static CACHE: OnceLock<Mutex<HashMap<String, Regex>>> = OnceLock::new();
    let mut cache = CACHE
        .get_or_init(Default::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cache.get(pattern) {
        return Some(found.clone());
    }
    let made = Regex::new(pattern).ok()?;
    if cache.len() < 10_000 {
        cache.insert(pattern.to_owned(), made.clone());
    }
    Some(made)
}

/// A key of `paths` as a regular expression.
pub(crate) fn key_pattern(key: &str, switches: Switches) -> Option<Regex> {
    let mut pattern = String::new();
    let mut rest = key;
    // `{name}` is one segment.
    while let Some((before, after)) = rest.split_once('{') {
        let Some((_, behind)) = after.split_once('}') else {
            break;
        };
        pattern.push_str(before);
        pattern.push_str("([^/]+)");
        rest = behind;
    }
    pattern.push_str(rest);
    let pattern = pattern.replace("/*", "/.*");
    let start = if switches.prefix_matching { "^" } else { "" };
    let end = if switches.suffix_matching { "$" } else { "" };
    cached(&format!("{start}{pattern}{end}"))
}

fn pairs(list: Option<&Value>) -> Vec<(String, String)> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|one| (text(one, "/name").to_owned(), text(one, "/value").to_owned()))
        .collect()
}

fn status(value: Option<&Value>, otherwise: u16) -> u16 {
    value
        .and_then(Value::as_u64)
        .and_then(|n| u16::try_from(n).ok())
        .unwrap_or(otherwise)
}

impl Operation {
    fn of(method: &str, pattern: Regex, operation: &Value, middleware: &Value) -> Self {
        let on = |name: &str| flag(middleware, &format!("/{name}/enabled"));
        let enabled = |name: &str| middleware.get(name).filter(|value| flag(value, "/enabled"));
        Self {
            method: method.to_uppercase(),
            pattern,
            allow: on("allow"),
            block: on("block"),
            ignore: on("ignoreAuthentication"),
            request: Headers::of(middleware.get("transformRequestHeaders")),
            response: Headers::of(middleware.get("transformResponseHeaders")),
            rewrite: enabled("urlRewrite").and_then(|value| {
                Some(Rewrite {
                    pattern: cached(text(value, "/pattern"))?,
                    to: text(value, "/rewriteTo").to_owned(),
                })
            }),
            to_method: enabled("transformRequestMethod").map(|value| text(value, "/toMethod").to_owned()),
            mock: enabled("mockResponse").map(|value| Mock {
                status: status(value.get("code"), 200),
                body: text(value, "/body").to_owned(),
                headers: pairs(value.get("headers")),
            }),
            validation: enabled("validateRequest").map(|value| Validation {
                status: status(value.get("errorResponseCode"), 422),
                required: flag(operation, "/requestBody/required"),
                schema: operation
                    .pointer("/requestBody/content/application~1json/schema")
                    .cloned(),
            }),
        }
    }

    /// Whether it is meant, by what is left of the path and by the whole path.
    pub(crate) fn matches(&self, method: &str, path: &str, stripped: &str) -> bool {
        self.method == method && (self.pattern.is_match(stripped) || self.pattern.is_match(path))
    }
}

impl Program {
    pub(crate) fn of(file: &File, switches: Switches) -> Self {
        let extension = &file.definition.extension;
        let document = &file.document;
        let mut keys: Vec<(&String, &Value)> = document
            .get("paths")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .collect();
        // More slashes first, then longer ones, then by the alphabet.
        let slashes = |key: &str| key.matches('/').count();
        keys.sort_by(|(a, _), (b, _)| {
            (slashes(b), b.len())
                .cmp(&(slashes(a), a.len()))
                .then_with(|| a.cmp(b))
        });
        let mut operations = Vec::new();
        for (key, item) in keys {
            let Some(pattern) = key_pattern(key, switches) else {
                continue;
            };
            for method in METHODS {
                let Some(operation) = item.get(method) else {
                    continue;
                };
                let id = text(operation, "/operationId");
                let middleware = extension
                    .pointer("/middleware/operations")
                    .and_then(|all| all.get(id));
                if let Some(middleware) = middleware {
                    operations.push(Operation::of(method, pattern.clone(), operation, middleware));
                }
            }
        }
        let url = text(extension, "/upstream/url").to_owned();
        let targets = if flag(extension, "/upstream/loadBalancing/enabled") {
            let list = extension
                .pointer("/upstream/loadBalancing/targets")
                .and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .flat_map(|one| {
                    let weight = one.get("weight").and_then(Value::as_u64).unwrap_or(0);
                    std::iter::repeat_n(
                        text(one, "/url").to_owned(),
                        usize::try_from(weight.min(10_000)).unwrap_or(0),
                    )
                })
                .collect()
        } else {
            vec![url]
        };
        let authenticated = flag(extension, "/server/authentication/enabled");
        Self {
            id: file.definition.id.clone(),
            listed: operations.iter().any(|operation| operation.allow),
            operations,
            request: Headers::of(extension.pointer("/middleware/global/transformRequestHeaders")),
            response: Headers::of(extension.pointer("/middleware/global/transformResponseHeaders")),
            overrides: overrides(extension),
            token: authenticated.then(|| token_header(document, extension)),
            strip: flag(extension, "/server/listenPath/strip"),
            keep_host: flag(extension, "/upstream/preserveHostHeader/enabled"),
            targets,
            turn: AtomicUsize::new(0),
        }
    }

    /// The next backend.
    pub(crate) fn target(&self) -> Option<&str> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.targets
            .get(turn.checked_rem(self.targets.len())?)
            .map(String::as_str)
    }
}

fn overrides(extension: &Value) -> Vec<Override> {
    let Some(value) = extension
        .get("errorOverrides")
        .filter(|value| flag(value, "/enabled"))
    else {
        return Vec::new();
    };
    let by_status = value.get("value").and_then(Value::as_object);
    by_status
        .into_iter()
        .flatten()
        .filter_map(|(of, list)| Some((of.parse().ok()?, list.as_array()?)))
        .flat_map(|(of, list)| list.iter().map(move |one| (of, one)))
        .filter_map(|(of, one)| {
            let headers = one.pointer("/response/headers").and_then(Value::as_object);
            Some(Override {
                of,
                message: cached(text(one, "/match/messagePattern"))?,
                status: status(one.pointer("/response/statusCode"), of),
                body: text(one, "/response/body").to_owned(),
                headers: headers
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                    .collect(),
            })
        })
        .collect()
}

/// Where the first scheme that is on looks for the token.
fn token_header(document: &Value, extension: &Value) -> String {
    let schemes = extension
        .pointer("/server/authentication/securitySchemes")
        .and_then(Value::as_object);
    let on = schemes
        .into_iter()
        .flatten()
        .find(|(_, scheme)| flag(scheme, "/enabled"))
        .and_then(|(name, _)| document.pointer("/components/securitySchemes")?.get(name));
    match on.map(|scheme| text(scheme, "/name")) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "Authorization".to_owned(),
    }
}

impl Validation {
    /// Whether a body is as the schema wants it; types, required members, members and items are looked at.
    pub(crate) fn accepts(&self, body: &[u8]) -> bool {
        if body.is_empty() {
            return !self.required;
        }
        match (serde_json::from_slice::<Value>(body), &self.schema) {
            (Ok(value), Some(schema)) => fits(&value, schema),
            (Err(_), Some(_)) => false,
            (_, None) => true,
        }
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    let kind = match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    let required = schema.get("required").and_then(Value::as_array);
    let complete = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .all(|name| value.get(name).is_some());
    let members = schema.get("properties").and_then(Value::as_object);
    let members = members
        .into_iter()
        .flatten()
        .all(|(name, schema)| value.get(name).is_none_or(|value| fits(value, schema)));
    let items = match (value.as_array(), schema.get("items")) {
        (Some(items), Some(schema)) => items.iter().all(|item| fits(item, schema)),
        _ => true,
    };
    kind && complete && members && items
}
