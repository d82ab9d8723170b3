//! Rules of a route, decoded one by one: what can be served, what is dropped, and what the oracle does not know.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::snapshot::{Object, at, list, map, text};

/// Methods that a path is matched with; `None` for all.
pub(super) type Methods = Option<BTreeSet<String>>;

const METHODS: [&str; 8] = [
    "GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE",
];

/// What a rule puts in front of the path that is stripped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    None,
    Prefix(String),
    Full,
}

/// A rule that can be served.
#[derive(Clone, Debug)]
pub(super) struct Rule<'a> {
    pub(super) paths: BTreeMap<String, Methods>,
    pub(super) backends: &'a Vec<Value>,
    /// Header filters and a full path, in a form that compares by meaning.
    filters: BTreeSet<String>,
    pub(super) rewrite: Rewrite,
}

/// The rules of a route.
#[derive(Clone, Debug)]
pub(super) struct Rules<'a> {
    pub(super) kept: Vec<Rule<'a>>,
    pub(super) dropped: usize,
    /// Why the rules cannot be judged.
    pub(super) open: Option<&'static str>,
    /// Paths that the route may serve, if it is open.
    pub(super) literal: BTreeSet<String>,
}

/// What one rule comes to.
enum Decoded<'a> {
    Rule(Rule<'a>),
    Dropped,
    Open(&'static str),
}

/// Decodes the rules, and drops those that do not agree with an earlier one about a path.
pub(super) fn rules<'a>(route: Object<'a>) -> Rules<'a> {
    let mut all = Rules {
        kept: Vec::new(),
        dropped: 0,
        open: None,
        literal: BTreeSet::new(),
    };
    for value in list(route.spec(), "/rules") {
        let matches = list(value, "/matches");
        let path = |one: &Value| text(one, "/path/value").unwrap_or("/").to_owned();
        all.literal.extend(matches.iter().map(path));
        if matches.is_empty() {
            all.literal.insert("/".to_owned());
        }
        match decode(route, value) {
            Decoded::Open(reason) => all.open = Some(reason),
            Decoded::Dropped => all.dropped += 1,
            Decoded::Rule(rule) => match all.kept.iter().all(|earlier| agree(route, earlier, &rule)) {
                true => all.kept.push(rule),
                false => all.dropped += 1,
            },
        }
    }
    all
}

fn decode<'a>(route: Object<'_>, value: &'a Value) -> Decoded<'a> {
    let known = ["name", "matches", "filters", "backendRefs"];
    let unknown = |key: &&String| !known.contains(&key.as_str());
    if let Some(key) = value.as_object().and_then(|fields| fields.keys().find(unknown)) {
        return match at(value, &format!("/{key}")) {
            // Lenient: an empty field may count as left out.
            Value::Null => Decoded::Open("tyk: a field of a rule that is null"),
            Value::Object(fields) if fields.is_empty() => {
                Decoded::Open("tyk: a field of a rule that is empty")
            }
            _ => Decoded::Dropped,
        };
    }
    let mut rule = Rule {
        paths: BTreeMap::new(),
        backends: list(value, "/backendRefs"),
        filters: BTreeSet::new(),
        rewrite: Rewrite::None,
    };
    let matches = match_all(value);
    for one in &matches {
        match decode_match(one) {
            Ok((path, method)) => add(&mut rule.paths, path, method),
            Err(decoded) => return decoded.into(),
        }
    }
    for filter in list(value, "/filters") {
        if let Err(decoded) = decode_filter(&mut rule, filter) {
            return decoded.into();
        }
    }
    if rule
        .backends
        .iter()
        .any(|backend| !list(backend, "/filters").is_empty())
    {
        return Decoded::Dropped;
    }
    let _ = route;
    Decoded::Rule(rule)
}

/// The matches of a rule; without any it matches every path.
fn match_all(rule: &Value) -> Vec<Value> {
    match list(rule, "/matches").as_slice() {
        [] => vec![Value::Object(serde_json::Map::new())],
        all => all.to_vec(),
    }
}

/// Why a part of a rule is not served.
enum Unserved {
    Dropped,
    Open(&'static str),
}

impl From<Unserved> for Decoded<'_> {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Dropped => Self::Dropped,
            Unserved::Open(reason) => Self::Open(reason),
        }
    }
}

fn add(paths: &mut BTreeMap<String, Methods>, path: String, method: Option<String>) {
    let entry = paths.entry(path).or_insert_with(|| Some(BTreeSet::new()));
    match (entry.as_mut(), method) {
        (Some(methods), Some(method)) => {
            methods.insert(method);
        }
        (_, None) => *entry = None,
        (None, _) => {}
    }
}

/// Prefixes, and methods that OpenAPI defines; no headers, no query.
fn decode_match(value: &Value) -> Result<(String, Option<String>), Unserved> {
    let known = ["path", "method", "headers", "queryParams"];
    if map(value, "").keys().any(|key| !known.contains(&key.as_str())) {
        return Err(Unserved::Dropped);
    }
    if ["/headers", "/queryParams"]
        .iter()
        .any(|field| !list(value, field).is_empty())
    {
        return Err(Unserved::Dropped);
    }
    if text(value, "/path/type").is_some_and(|type_| type_ != "PathPrefix") {
        return Err(Unserved::Dropped);
    }
    let method = text(value, "/method");
    if method.is_some_and(|method| !METHODS.contains(&method)) {
        return Err(Unserved::Dropped);
    }
    let path = text(value, "/path/value").unwrap_or("/");
    if path.contains(['%', '{', '}']) {
        return Err(Unserved::Dropped);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    let odd = !path.chars().all(plain) || ["//", "/./", "/../"].iter().any(|part| path.contains(part));
    if odd || (path.len() > 1 && path.ends_with('/')) {
        return Err(Unserved::Open("tyk: a path that the oracle does not know"));
    }
    Ok((path.to_owned(), method.map(str::to_owned)))
}

fn decode_filter(rule: &mut Rule<'_>, filter: &Value) -> Result<(), Unserved> {
    match text(filter, "/type").unwrap_or_default() {
        "RequestHeaderModifier" => headers(rule, "request", at(filter, "/requestHeaderModifier")),
        "ResponseHeaderModifier" => headers(rule, "response", at(filter, "/responseHeaderModifier")),
        "URLRewrite" => rewrite(rule, at(filter, "/urlRewrite")),
        // Whether a redirect is the same for every request depends on the listeners.
        "RequestRedirect" => Err(Unserved::Open("tyk: a redirect")),
        _ => Err(Unserved::Dropped),
    }
}

/// `set` and `remove`; `add` is not supported. Of equal names the first counts.
fn headers(rule: &mut Rule<'_>, which: &str, modifier: &Value) -> Result<(), Unserved> {
    if !list(modifier, "/add").is_empty() {
        return Err(Unserved::Dropped);
    }
    let mut seen = BTreeSet::new();
    for header in list(modifier, "/set") {
        let name = text(header, "/name").unwrap_or_default().to_ascii_lowercase();
        let value = text(header, "/value").unwrap_or_default();
        if name == "host" && which == "request" {
            return Err(Unserved::Dropped);
        }
        if value.contains(['$', '{']) || value.contains("://") || value.chars().any(char::is_control) {
            return Err(Unserved::Open("tyk: a header value that may hold a token"));
        }
        if seen.insert(name.clone()) {
            rule.filters.insert(format!("{which} set {name}={value}"));
        }
    }
    for name in list(modifier, "/remove").iter().filter_map(Value::as_str) {
        rule.filters
            .insert(format!("{which} remove {}", name.to_ascii_lowercase()));
    }
    Ok(())
}

/// A path without hostname.
fn rewrite(rule: &mut Rule<'_>, rewrite: &Value) -> Result<(), Unserved> {
    if text(rewrite, "/hostname").is_some() {
        return Err(Unserved::Dropped);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    let value = |field| {
        let value = at(rewrite, field).as_str().unwrap_or_default();
        match value.chars().all(plain) {
            true => Ok(value.to_owned()),
            false => Err(Unserved::Open("tyk: a rewrite that the oracle does not know")),
        }
    };
    match text(rewrite, "/path/type") {
        Some("ReplacePrefixMatch") => {
            rule.rewrite = Rewrite::Prefix(value("/path/replacePrefixMatch")?);
        }
        Some("ReplaceFullPath") => {
            rule.filters
                .insert(format!("path {}", value("/path/replaceFullPath")?));
            rule.rewrite = Rewrite::Full;
        }
        _ => return Err(Unserved::Open("tyk: a rewrite without path")),
    }
    Ok(())
}

/// Rules of one path need the same backends, for methods in common the same filters, and one ReplacePrefixMatch.
fn agree(route: Object<'_>, one: &Rule<'_>, other: &Rule<'_>) -> bool {
    one.paths.iter().all(|(path, methods)| {
        let Some(others) = other.paths.get(path) else {
            return true;
        };
        let overlap = match (methods, others) {
            (Some(one), Some(other)) => !one.is_disjoint(other),
            _ => true,
        };
        let prefix = |rule: &Rule<'_>| match &rule.rewrite {
            Rewrite::Prefix(prefix) => Some(prefix.clone()),
            Rewrite::None => Some(path.clone()),
            Rewrite::Full => None,
        };
        let prefixes = match (prefix(one), prefix(other)) {
            (Some(one), Some(other)) => one.trim_end_matches('/') == other.trim_end_matches('/'),
            _ => true,
        };
        proportion(route, one.backends) == proportion(route, other.backends)
            && prefixes
            && (!overlap || (one.filters == other.filters && one.rewrite == other.rewrite))
    })
}

/// Backends and their weights, divided by their common divisor.
fn proportion(route: Object<'_>, backends: &[Value]) -> BTreeMap<String, u64> {
    let mut weights: BTreeMap<String, u64> = BTreeMap::new();
    for backend in backends {
        let field = |pointer: &str, default: &str| {
            let value = at(backend, pointer).as_str().filter(|value| !value.is_empty());
            value.unwrap_or(default).to_owned()
        };
        let key = [
            field("/group", ""),
            field("/kind", "Service"),
            field("/namespace", route.namespace()),
            field("/name", ""),
            at(backend, "/port").to_string(),
        ]
        .join("/");
        *weights.entry(key).or_default() += at(backend, "/weight").as_u64().unwrap_or(1);
    }
    let divisor = weights
        .values()
        .fold(0, |divisor, weight| gcd(divisor, *weight))
        .max(1);
    weights.values_mut().for_each(|weight| *weight /= divisor);
    weights
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Rules<'_> {
    /// Every path of the rules that are kept, with its methods.
    pub(super) fn paths(&self) -> BTreeMap<String, Methods> {
        let mut all: BTreeMap<String, Methods> = BTreeMap::new();
        for (path, methods) in self.kept.iter().flat_map(|rule| &rule.paths) {
            match methods {
                None => add(&mut all, path.clone(), None),
                Some(methods) => {
                    for method in methods {
                        add(&mut all, path.clone(), Some(method.clone()));
                    }
                }
            }
        }
        all
    }
}
