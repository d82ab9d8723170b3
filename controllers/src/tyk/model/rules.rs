//! Rules of one route, put together by path: one API holds one upstream and one operation per method. A rule that does
//! not go with an earlier one of its path is dropped whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::super::{
    objects::{
        HttpRoute,
        route::{BackendRef, Filters, HeaderEdit, Match, Method, PathRewrite, Redirect, Rule},
    },
    translate,
    verdict::{OperationPlan, StaticRedirect},
};

/// What one path amounts to.
#[derive(Debug, Default)]
pub(super) struct Group<'a> {
    /// Indices of its rules.
    pub(super) rules: Vec<usize>,
    /// The rule whose backends count (all of them agree); none if there are only redirects.
    pub(super) backends: Option<usize>,
    /// ReplacePrefixMatch, if it changes anything.
    pub(super) prefix: Option<String>,
    pub(super) operations: BTreeMap<Method, OperationPlan>,
    filters: BTreeMap<Method, &'a Filters>,
    /// The rule that decided `prefix`.
    prefixed_by: Option<usize>,
}

impl Group<'_> {
    /// About how many bytes the document of the path has, without targets and what is attached: not less than half of it,
    /// and seldom more than twice.
    pub(super) fn bytes(&self, path: &str) -> usize {
        /// What every document has, the owner's mark with it.
        const FRAME: usize = 1_500;
        /// What every operation has.
        const OPERATION: usize = 120;
        /// Pattern and target of a rewrite, without the texts of the route.
        const REWRITE: usize = 600;
        /// A fixed answer, without its location.
        const ANSWER: usize = 180;
        /// A character of a path in a pattern, as itself or percent-encoded.
        const ENCODED: usize = 10;
        let mut operations = self.operations.values();
        let rewritten = operations.any(|operation| operation.full_path.is_some());
        let operation = |operation: &OperationPlan| {
            let rewrite = match (rewritten, &operation.full_path, &self.prefix) {
                (true, None, Some(prefix)) => REWRITE + path.len() * (ENCODED + 1) + prefix.len(),
                (true, ..) => REWRITE + path.len(),
                (false, ..) => 0,
            };
            let full = operation.full_path.as_ref().map_or(0, String::len);
            let redirect = operation
                .redirect
                .as_ref()
                .map_or(0, |redirect| ANSWER + redirect.location.len());
            OPERATION + rewrite + full + redirect
        };
        let operations: usize = self.operations.values().map(operation).sum();
        let edits = edits(
            self.operations
                .values()
                .map(|operation| &operation.request_headers),
        ) + edits(
            self.operations
                .values()
                .map(|operation| &operation.response_headers),
        );
        FRAME + path.len() * 2 + operations + edits
    }
}

/// Header changes stand in a document once if all methods share them.
fn edits<'a>(edits: impl Iterator<Item = &'a Arc<HeaderEdit>> + Clone) -> usize {
    let mut others = edits.clone();
    let first = others.next();
    if first.is_some_and(|first| others.all(|edit| Arc::ptr_eq(first, edit) || first == edit)) {
        return first.map_or(0, |edit| bytes(edit));
    }
    edits.map(|edit| bytes(edit)).sum()
}

fn bytes(edit: &HeaderEdit) -> usize {
    /// Braces, keys and quotes of one header.
    const FRAME: usize = 24;
    let set = edit
        .set
        .iter()
        .map(|(name, value)| name.len() + value.len() + FRAME);
    let removed = edit.remove.iter().map(|name| name.len() + FRAME);
    set.chain(removed).sum()
}

/// Rules by path, and what was dropped.
#[derive(Debug, Default)]
pub(super) struct Rules<'a> {
    pub(super) groups: BTreeMap<&'a str, Group<'a>>,
    /// Index of the rule, and why: each text begins with a field path.
    pub(super) dropped: Vec<(usize, String)>,
}

/// Scheme (is it HTTPS?) and port of the listeners that admit the route.
pub(super) type Entrances = BTreeSet<(bool, u16)>;

/// Where a redirect leads: is it HTTPS, the port, the host.
pub(super) type Destination<'a> = (bool, u16, &'a str);

/// Groups the rules of a route for listeners. `back`: whether what leads there comes to the APIs of the route again, if the
/// path is theirs.
pub(super) fn group<'a>(
    route: &'a HttpRoute,
    entrances: &Entrances,
    back: &dyn Fn(Destination<'_>) -> bool,
) -> Rules<'a> {
    let namespace = route.meta.key.namespace.as_str();
    let mut all = Rules::default();
    for (index, rule) in route.rules.iter().enumerate() {
        if !rule.problems.is_empty() {
            let why = super::text::list(rule.problems.iter().map(ToString::to_string));
            all.dropped.push((index, why));
            continue;
        }
        match admit(&all.groups, route, namespace, rule, entrances, back) {
            Ok(operation) => add(&mut all.groups, index, rule, &operation),
            Err(why) => all.dropped.push((index, format!("spec.rules[{index}].{why}"))),
        }
    }
    all
}

/// What a rule does per operation, if it goes with the earlier ones.
fn admit(
    groups: &BTreeMap<&str, Group<'_>>,
    route: &HttpRoute,
    namespace: &str,
    rule: &Rule,
    entrances: &Entrances,
    back: &dyn Fn(Destination<'_>) -> bool,
) -> Result<OperationPlan, String> {
    if rule.matches.is_empty() {
        return Err("matches: none".to_owned());
    }
    let redirect = match &rule.filters.redirect {
        Some(redirect) => Some(location(
            redirect,
            rule.filter_at.redirect,
            entrances,
            &|destination| {
                // The longest listen path gets a request: a path of its own is in no other's way.
                let path = redirect.path.trim_end_matches('/');
                let own = |matched: &Match| matched.path.trim_end_matches('/') == path;
                rule.matches.iter().any(own) && back(destination)
            },
        )?),
        None => None,
    };
    for Match { path, method } in &rule.matches {
        let Some(group) = groups.get(path.as_str()) else {
            captures(&Group::default(), rule, path)?;
            continue;
        };
        captures(group, rule, path)?;
        let methods = method.as_ref().map_or(&Method::ALL[..], std::slice::from_ref);
        let other = methods.iter().find_map(|method| {
            Some((
                *method,
                group.filters.get(method).filter(|f| **f != &rule.filters)?,
            ))
        });
        if let Some((method, _)) = other {
            let of = group.rules.iter().find(|i| serves(route, **i, path, method));
            return Err(format!(
                "filters: not the same as those of spec.rules[{}], which also matches path {path} with method {}",
                of.copied().unwrap_or_default(),
                method.as_str().to_uppercase()
            ));
        }
        if rule.filters.redirect.is_some() {
            continue;
        }
        if let Some(earlier) = group.backends {
            let theirs = route.rules.get(earlier).map(|rule| shares(rule, namespace));
            if theirs.as_ref() != Some(&shares(rule, namespace)) {
                return Err(format!(
                    "backendRefs: not the same as those of spec.rules[{earlier}], which also matches path {path}; \
                     rules of one path need the same backends"
                ));
            }
        }
        if let (Some(earlier), Some(prefix)) = (group.prefixed_by, prefix(rule, path))
            && group.prefix.as_deref() != prefix
        {
            return Err(format!(
                "{}.path.replacePrefixMatch: not the same as in spec.rules[{earlier}], which also matches path {path}; it \
                 counts for every method of a path",
                rewrite_of(rule)
            ));
        }
    }
    Ok(operation(&rule.filters, redirect))
}

/// A method whose full path is replaced makes every method of the path a rewrite of Tyk's, where `$1` is what was
/// captured; so neither the path nor what replaces it as a prefix may hold such.
fn captures(group: &Group<'_>, rule: &Rule, path: &str) -> Result<(), String> {
    let full = |rewrite: &Option<PathRewrite>| matches!(rewrite, Some(PathRewrite::Full(_)));
    let whole = (rule.filters.redirect.is_none() && full(&rule.filters.rewrite))
        || group
            .operations
            .values()
            .any(|operation| operation.full_path.is_some());
    if !whole {
        return Ok(());
    }
    if translate::group(path) {
        return Err(format!(
            "{}.path.replaceFullPath: path {path} holds `$` followed by a digit, which Tyk would read as a captured group",
            rewrite_of(rule)
        ));
    }
    let replaced = match (&group.prefix, &rule.filters.rewrite) {
        (Some(prefix), _) => Some(prefix),
        (None, Some(PathRewrite::Prefix(prefix))) if rule.filters.redirect.is_none() => Some(prefix),
        _ => None,
    };
    match replaced.filter(|prefix| translate::group(prefix)) {
        Some(prefix) => Err(format!(
            "{}.path: {prefix} holds `$` followed by a digit, which Tyk would read as a captured group beside the \
             replaceFullPath of another method of path {path}; write one of them without",
            rewrite_of(rule)
        )),
        None => Ok(()),
    }
}

/// Field path of a rule's URLRewrite; of the filters, if it has none.
fn rewrite_of(rule: &Rule) -> String {
    match rule.filters.rewrite {
        Some(_) => format!("filters[{}].urlRewrite", rule.filter_at.rewrite),
        None => "filters: urlRewrite".to_owned(),
    }
}

fn serves(route: &HttpRoute, rule: usize, path: &str, method: Method) -> bool {
    route.rules.get(rule).is_some_and(|rule| {
        rule.matches
            .iter()
            .any(|m| m.path == path && m.method.is_none_or(|m| m == method))
    })
}

fn add<'a>(
    groups: &mut BTreeMap<&'a str, Group<'a>>,
    index: usize,
    rule: &'a Rule,
    operation: &OperationPlan,
) {
    for Match { path, method } in &rule.matches {
        let group = groups.entry(path).or_default();
        if group.rules.last() != Some(&index) {
            group.rules.push(index);
        }
        if rule.filters.redirect.is_none() {
            group.backends.get_or_insert(index);
            if group.prefixed_by.is_none()
                && let Some(prefix) = prefix(rule, path)
            {
                group.prefixed_by = Some(index);
                group.prefix = prefix.map(str::to_owned);
            }
        }
        let methods = method.as_ref().map_or(&Method::ALL[..], std::slice::from_ref);
        for method in methods {
            group.filters.entry(*method).or_insert(&rule.filters);
            group
                .operations
                .entry(*method)
                .or_insert_with(|| operation.clone());
        }
    }
}

/// What a rule wants in place of the path: `None` if it does not care (it replaces the full path), `Some(None)` for the
/// path itself.
fn prefix<'a>(rule: &'a Rule, path: &str) -> Option<Option<&'a str>> {
    match &rule.filters.rewrite {
        None => Some(None),
        Some(PathRewrite::Prefix(prefix)) => Some((prefix != path).then_some(prefix)),
        Some(PathRewrite::Full(_)) => None,
    }
}

/// Backends for comparison: without weight 0, in order, weights reduced.
fn shares<'a>(
    rule: &'a Rule,
    namespace: &'a str,
) -> BTreeMap<(&'a str, &'a str, &'a str, &'a str, Option<u16>), u64> {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let mut shares = BTreeMap::new();
    for backend in rule.backends.iter().filter(|backend| backend.weight > 0) {
        let BackendRef {
            group,
            kind,
            namespace: own,
            name,
            port,
            weight,
        } = backend;
        let key = (
            group.as_str(),
            kind.as_str(),
            own.as_deref().unwrap_or(namespace),
            name.as_str(),
            *port,
        );
        *shares.entry(key).or_insert(0) += u64::from(*weight);
    }
    let divisor = shares.values().fold(0, |d, share| gcd(d, *share)).max(1);
    shares.values_mut().for_each(|share| *share /= divisor);
    shares
}

fn operation(filters: &Filters, redirect: Option<StaticRedirect>) -> OperationPlan {
    let full_path = match &filters.rewrite {
        Some(PathRewrite::Full(path)) if redirect.is_none() => Some(path.clone()),
        _ => None,
    };
    OperationPlan {
        // A redirect is answered before anything reaches a backend.
        request_headers: if redirect.is_none() {
            filters.request_headers.clone().into()
        } else {
            Default::default()
        },
        response_headers: filters.response_headers.clone().into(),
        full_path,
        redirect,
    }
}

/// A redirect with scheme and port from the listeners where they are not written. `at`: its place among the filters.
/// `back`: whether what leads there comes to the same rule again.
fn location(
    redirect: &Redirect,
    at: usize,
    entrances: &Entrances,
    back: &dyn Fn(Destination<'_>) -> bool,
) -> Result<StaticRedirect, String> {
    let one = |values: BTreeSet<String>| match values.len() {
        1 => values.into_iter().next(),
        _ => None,
    };
    let name = |secure: bool| if secure { "https" } else { "http" };
    let scheme = match &redirect.scheme {
        Some(scheme) => scheme.clone(),
        None => one(entrances
            .iter()
            .map(|(secure, _)| name(*secure).to_owned())
            .collect())
        .ok_or_else(|| {
            format!(
                "filters[{at}].requestRedirect.scheme: must be set, because listeners of both schemes admit the route"
            )
        })?,
    };
    let well_known = if scheme == "https" { 443 } else { 80 };
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), _) => port,
        (None, Some(_)) => well_known,
        (None, None) => {
            let ports: BTreeSet<u16> = entrances.iter().map(|(_, port)| *port).collect();
            match ports.len() {
                1 => ports.first().copied().unwrap_or(well_known),
                _ => {
                    return Err(format!(
                        "filters[{at}].requestRedirect.port: must be set, because listeners of several ports admit the route"
                    ));
                }
            }
        }
    };
    let Redirect {
        hostname,
        path,
        status,
        ..
    } = redirect;
    let returns = back((scheme == "https", port, hostname.as_str()));
    let port = if port == well_known {
        String::new()
    } else {
        format!(":{port}")
    };
    let location = format!("{scheme}://{hostname}{port}{path}");
    if returns {
        return Err(format!(
            "filters[{at}].requestRedirect: {location} comes back to this rule, since Tyk serves a hostname and path on every \
             port: an endless loop; redirect to another hostname or path, or leave the redirect from http to https to what \
             is in front of Tyk, such as the load balancer"
        ));
    }
    Ok(StaticRedirect {
        location,
        status: *status,
    })
}
