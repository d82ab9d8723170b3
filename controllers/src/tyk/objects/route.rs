//! HTTPRoute, decoded rule by rule: what cannot be served is a [`Problem`] of its rule, never a lost route.

mod filters;
mod rule;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    DecodeError, GATEWAY_GROUP, Key, Meta, Problem, Scope,
    text::hostname,
    walk::{Node, Place},
};

/// An HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpRoute {
    /// Metadata.
    pub meta: Meta,
    /// spec.parentRefs in order.
    pub parents: Vec<ParentRef>,
    /// spec.hostnames, lower-cased, in order, without duplicates.
    pub hostnames: Vec<String>,
    /// spec.rules in order; one rule for `/` when the field is left out. Indices are those of the spec.
    pub rules: Vec<Rule>,
    /// Problems of the whole route (a hostname, a field of spec that is not known): nothing of it can be served.
    pub problems: Vec<Problem>,
    /// metadata.finalizers of a route that is being deleted, empty for any other: who still holds it back.
    pub held_by: Vec<String>,
    /// The operator's own annotations of a route that is being deleted, empty for any other: what may be left of it.
    pub marks: BTreeMap<String, String>,
}

/// What the operator's own annotations begin with.
const OWN: &str = "routewright.dev/";

/// One entry of spec.parentRefs, as the user wrote it, group and kind defaulted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParentRef {
    /// group; `gateway.networking.k8s.io` when left out.
    pub group: String,
    /// kind; `Gateway` when left out.
    pub kind: String,
    /// namespace, if written (default: the route's).
    pub namespace: Option<String>,
    /// name
    pub name: String,
    /// sectionName, if written and not empty.
    pub section_name: Option<String>,
    /// port, if written.
    pub port: Option<u16>,
}

impl ParentRef {
    /// The Gateway that it names, if it names one. `route`: whose parent it is.
    pub fn gateway(&self, route: &Key) -> Option<Key> {
        let names_one = self.group == GATEWAY_GROUP && self.kind == "Gateway";
        names_one.then(|| Key::new(self.namespace.as_ref().unwrap_or(&route.namespace), &self.name))
    }
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Matches in order; PathPrefix `/` when left out. Not complete when there are problems.
    pub matches: Vec<Match>,
    /// Filters. Not complete when there are problems.
    pub filters: Filters,
    /// Where the filters stand in the list, for messages.
    pub filter_at: FilterPlaces,
    /// Backend references, each at its index in the spec, also when the rule has problems: they are resolved (and reported
    /// in ResolvedRefs) whether or not the rule is served. One that does not decode is without a name, and a problem.
    pub backends: Vec<BackendRef>,
    /// Why the rule cannot be served; empty for a good rule. The whole rule is dropped for any of them.
    pub problems: Vec<Problem>,
}

/// Places of filters in a rule's list, which is merged otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterPlaces {
    /// RequestRedirect
    pub redirect: usize,
    /// URLRewrite
    pub rewrite: usize,
}

impl FilterPlaces {
    fn read(rule: &Node<'_, '_>) -> Self {
        let filters = rule.get("filters").and_then(Value::as_array);
        let at = |name: &str| {
            let mut filters = filters.into_iter().flatten();
            let named = |filter: &Value| filter.get("type").and_then(Value::as_str) == Some(name);
            filters.position(named).unwrap_or_default()
        };
        Self {
            redirect: at("RequestRedirect"),
            rewrite: at("URLRewrite"),
        }
    }
}

/// One match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Match {
    /// Path prefix: starts with `/`, without trailing slashes unless it is `/`.
    pub path: String,
    /// Method; `None` for every method that OpenAPI knows.
    pub method: Option<Method>,
}

/// The methods that an OpenAPI path item may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// DELETE
    Delete,
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// PATCH
    Patch,
    /// POST
    Post,
    /// PUT
    Put,
    /// TRACE
    Trace,
}

impl Method {
    /// All of them, in order of their names.
    pub const ALL: [Self; 8] = [
        Self::Delete,
        Self::Get,
        Self::Head,
        Self::Options,
        Self::Patch,
        Self::Post,
        Self::Put,
        Self::Trace,
    ];

    /// Lower case, as OpenAPI spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Get => "get",
            Self::Head => "head",
            Self::Options => "options",
            Self::Patch => "patch",
            Self::Post => "post",
            Self::Put => "put",
            Self::Trace => "trace",
        }
    }
}

/// Filters of a rule, merged: their order has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filters {
    /// RequestHeaderModifier
    pub request_headers: HeaderEdit,
    /// ResponseHeaderModifier
    pub response_headers: HeaderEdit,
    /// URLRewrite of the path
    pub rewrite: Option<PathRewrite>,
    /// RequestRedirect
    pub redirect: Option<Redirect>,
}

/// Changes to headers. A name stands once: canonical spelling (`X-Request-Id`), and not in both fields (`set` wins).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderEdit {
    /// Name → value.
    pub set: BTreeMap<String, String>,
    /// Names.
    pub remove: BTreeSet<String>,
}

impl HeaderEdit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// A rewrite of the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathRewrite {
    /// ReplacePrefixMatch: starts with `/`, without trailing slashes unless it is `/`.
    Prefix(String),
    /// ReplaceFullPath: starts with `/`.
    Full(String),
}

/// A redirect that is the same for every request, but for what the listener gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// scheme, if written: `http` or `https`.
    pub scheme: Option<String>,
    /// hostname
    pub hostname: String,
    /// port, if written.
    pub port: Option<u16>,
    /// path.replaceFullPath
    pub path: String,
    /// statusCode; 302 when left out.
    pub status: u16,
}

/// One backend reference, defaulted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BackendRef {
    /// group; empty (core) when left out.
    pub group: String,
    /// kind; `Service` when left out.
    pub kind: String,
    /// namespace, if written (default: the route's).
    pub namespace: Option<String>,
    /// name, as written; it may be none that a Service can have. Empty in place of a reference that does not decode.
    pub name: String,
    /// port, if written.
    pub port: Option<u16>,
    /// weight; 1 when left out, at most 1 000 000.
    pub weight: u32,
}

impl BackendRef {
    /// Whether it stands for a reference that does not decode: its rule has a problem that says so.
    pub fn is_unreadable(&self) -> bool {
        self.name.is_empty()
    }
}

/// Most entries of each list in a route, as the CRD has them.
const MAX_HOSTNAMES: usize = 16;
const MAX_RULES: usize = 16;
const MAX_PARENTS: usize = 32;
const MAX_MATCHES: usize = 128;

impl HttpRoute {
    /// Reads an HTTPRoute, rule by rule.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut route = Self {
            meta: Meta::decode(value, Scope::Namespaced)?,
            ..Self::default()
        };
        if route.meta.deleting {
            let finalizers = value.pointer("/metadata/finalizers").and_then(Value::as_array);
            let finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str);
            route.held_by = finalizers.map(str::to_owned).collect();
            let annotations = value.pointer("/metadata/annotations").and_then(Value::as_object);
            let own = annotations
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(OWN));
            let texts = own.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            route.marks = texts.collect();
        }
        let problems = &mut Vec::new();
        match value.get("spec").filter(|spec| !spec.is_null()) {
            None => route.rules = vec![Rule::default_rule()],
            Some(spec) => {
                if let Some(spec) = Node::of(Place::Root("spec"), spec, problems) {
                    route.read(&spec, problems);
                }
            }
        }
        route.problems = std::mem::take(problems);
        Ok(route)
    }

    fn read(&mut self, spec: &Node<'_, '_>, problems: &mut Vec<Problem>) {
        spec.only(&["parentRefs", "hostnames", "rules"], problems);
        self.parents = spec.each("parentRefs", problems, ParentRef::read);
        let place = spec.at("hostnames");
        for (index, text) in spec.texts("hostnames", problems) {
            match hostname(text, true) {
                Ok(name) if self.hostnames.contains(&name) => {}
                Ok(name) => self.hostnames.push(name),
                Err(why) => problems.push(place.item(index).problem(why)),
            }
        }
        let rules = spec.at("rules");
        self.rules = match spec.get("rules") {
            None => vec![Rule::default_rule()],
            Some(_) => spec
                .list("rules", problems)
                .iter()
                .enumerate()
                .map(|(index, rule)| Rule::read(rules.item(index), rule))
                .collect(),
        };
        for (name, most) in [
            ("parentRefs", MAX_PARENTS),
            ("hostnames", MAX_HOSTNAMES),
            ("rules", MAX_RULES),
        ] {
            if spec.list(name, &mut Vec::new()).len() > most {
                problems.push(spec.at(name).problem(format!("must have at most {most} entries")));
            }
        }
        if self.rules.iter().map(|rule| rule.matches.len()).sum::<usize>() > MAX_MATCHES {
            problems.push(rules.problem(format!("must have at most {MAX_MATCHES} matches together")));
        }
    }
}

impl ParentRef {
    fn read(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<Self> {
        node.only(
            &["group", "kind", "namespace", "name", "sectionName", "port"],
            problems,
        );
        Some(Self {
            group: node.text("group", problems).unwrap_or(GATEWAY_GROUP).to_owned(),
            kind: node.filled("kind", problems).unwrap_or("Gateway").to_owned(),
            namespace: node.filled("namespace", problems).map(str::to_owned),
            name: node.required("name", problems)?.to_owned(),
            section_name: node.filled("sectionName", problems).map(str::to_owned),
            port: node.port("port", problems),
        })
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
