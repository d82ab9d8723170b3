//! One rule of an HTTPRoute: matches, backends, and every field that makes the rule one that cannot be served.

use serde_json::Value;

use super::{BackendRef, FilterPlaces, Filters, Match, Method, PathRewrite, Rule, filters};
use crate::tyk::objects::{
    Problem,
    text::{self, PathUse, is_label},
    walk::{Name, Node, Place},
};

/// Most entries of each list in a rule, as the CRD has them.
const MAX_MATCHES: usize = 64;
const MAX_FILTERS: usize = 16;
const MAX_BACKENDS: usize = 16;

/// Largest weight of a backend.
const MAX_WEIGHT: u32 = 1_000_000;

/// Fields of a rule that Gateway API has and Tyk cannot do.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("timeouts", "timeouts are not supported; remove the field"),
    ("retry", "retries are not supported; remove the field"),
    (
        "sessionPersistence",
        "session persistence is not supported; remove the field",
    ),
];

impl Rule {
    /// The rule of a route that has none: everything, to nowhere.
    pub(super) fn default_rule() -> Self {
        Self {
            matches: vec![Match::everything()],
            ..Self::default()
        }
    }

    /// Reads a rule.
    pub(super) fn read(place: Place<'_>, value: &Value) -> Self {
        let mut rule = Self::default();
        let problems = &mut Vec::new();
        if let Some(node) = Node::of(place, value, problems) {
            for name in node.names() {
                match name {
                    "matches" | "filters" | "backendRefs" => {}
                    // A name for people.
                    "name" => drop(node.text("name", problems)),
                    name => {
                        let known = UNSUPPORTED.into_iter().find(|(field, _)| *field == name);
                        let message =
                            known.map_or("is not supported; remove the field", |(_, message)| message);
                        problems.push(node.at(name).problem(message));
                    }
                }
            }
            rule.matches = matches(&node, problems);
            rule.filters = Filters::read(&node, problems);
            rule.filter_at = FilterPlaces::read(&node);
            rule.backends = backends(&node, problems);
            limits(&node, problems);
            rule.together(&node, problems);
        }
        rule.problems = std::mem::take(problems);
        rule
    }

    /// What parts of a rule refuse in each other.
    fn together(&self, node: &Node<'_, '_>, problems: &mut Vec<Problem>) {
        if self.filters.redirect.is_some() && !self.backends.is_empty() {
            problems.push(
                node.at("backendRefs")
                    .problem("must be empty in a rule with a RequestRedirect filter"),
            );
        }
        match &self.filters.rewrite {
            Some(PathRewrite::Prefix(_)) if self.matches.len() != 1 => problems.push(node.at("matches").problem(
                "must hold exactly one match in a rule with a ReplacePrefixMatch; write one rule for each prefix",
            )),
            // The listen path becomes part of the rewritten URL, where Tyk looks for groups.
            Some(PathRewrite::Full(_)) if self.matches.iter().any(|one| text::has_group(&one.path)) => {
                problems.push(node.at("matches").problem(
                    "must hold no path with $ followed by a digit in a rule with a ReplaceFullPath, because Tyk reads \
                     it as a captured group",
                ));
            }
            _ => {}
        }
    }
}

/// Backend references at the indices that they have in the spec.
fn backends(rule: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Vec<BackendRef> {
    let place = rule.at("backendRefs");
    let items = rule.list("backendRefs", problems);
    let mut read = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let node = Node::of(place.item(index), item, problems);
        let backend = node.and_then(|node| BackendRef::read(&node, problems));
        read.push(backend.unwrap_or_default());
    }
    read
}

fn limits(node: &Node<'_, '_>, problems: &mut Vec<Problem>) {
    for (name, most) in [
        ("matches", MAX_MATCHES),
        ("filters", MAX_FILTERS),
        ("backendRefs", MAX_BACKENDS),
    ] {
        if node.list(name, &mut Vec::new()).len() > most {
            problems.push(node.at(name).problem(format!("must have at most {most} entries")));
        }
    }
}

impl Match {
    fn everything() -> Self {
        Self {
            path: "/".to_owned(),
            method: None,
        }
    }
}

/// The matches of a rule; one for everything when there is none.
fn matches(rule: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Vec<Match> {
    let listed = rule.list("matches", &mut Vec::new());
    let read = rule.each("matches", problems, |one, problems| {
        for name in one.names() {
            let message = match name {
                "path" | "method" => continue,
                "headers" | "queryParams" => {
                    // An empty list asks for nothing.
                    if one.list(name, problems).is_empty() {
                        continue;
                    }
                    if name == "headers" {
                        "matching by header is not supported; match by path and method"
                    } else {
                        "matching by query parameter is not supported; match by path and method"
                    }
                }
                _ => "is not supported; remove the field",
            };
            problems.push(one.at(name).problem(message));
        }
        let path = match one.with("path", problems, path) {
            Some(path) => path,
            None => Some("/".to_owned()),
        };
        let method = method(one, problems);
        Some(Match { path: path?, method })
    });
    if listed.is_empty() && read.is_empty() {
        return vec![Match::everything()];
    }
    read
}

fn path(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<String> {
    node.only(&["type", "value"], problems);
    match node.text("type", problems) {
        None | Some("PathPrefix") => {}
        Some(type_ @ ("Exact" | "RegularExpression")) => {
            problems.push(
                node.at("type")
                    .problem(format!("{type_} is not supported; use PathPrefix")),
            );
            return None;
        }
        Some(other) => {
            problems.push(
                node.at("type")
                    .problem(format!("{} is not supported; use PathPrefix", Name(other))),
            );
            return None;
        }
    }
    let value = match node.get("value") {
        None => "/",
        Some(_) => node.text("value", problems)?,
    };
    if let Some(why) = text::path(value, PathUse::Match) {
        problems.push(node.at("value").problem(why));
        return None;
    }
    Some(text::trimmed(value))
}

fn method(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<Method> {
    let written = node.text("method", problems)?;
    let method = Method::ALL.into_iter().find(|method| {
        method.as_str().eq_ignore_ascii_case(written) && !written.bytes().any(|b| b.is_ascii_lowercase())
    });
    if method.is_none() {
        problems.push(node.at("method").problem(format!(
            "{} is not supported; use one of DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT and TRACE",
            Name(written)
        )));
    }
    method
}

impl BackendRef {
    fn read(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<Self> {
        node.only(
            &["group", "kind", "name", "namespace", "port", "weight", "filters"],
            problems,
        );
        if !node.list("filters", problems).is_empty() {
            problems
                .push(node.at("filters").problem(
                    "filters on a backend reference are not supported; use the filters of the rule",
                ));
        }
        let weight = match node.get("weight") {
            None => 1,
            Some(_) => node
                .number("weight", (0, MAX_WEIGHT), problems)
                .unwrap_or_default(),
        };
        let backend = Self {
            group: node.text("group", problems).unwrap_or_default().to_owned(),
            kind: node.filled("kind", problems).unwrap_or("Service").to_owned(),
            namespace: node.filled("namespace", problems).map(str::to_owned),
            name: node.required("name", problems)?.to_owned(),
            port: node.port("port", problems),
            weight,
        };
        // It becomes part of a host name, as the name does: a Service of no valid name is not found.
        if let Some(namespace) = backend.namespace.as_deref().filter(|name| !is_label(name)) {
            problems.push(
                node.at("namespace")
                    .problem(format!("{} is no name of a namespace", Name(namespace))),
            );
            return None;
        }
        Some(backend)
    }
}

impl Filters {
    fn read(rule: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Self {
        filters::read(rule, problems)
    }
}
