//! HTTPRoute, decoded rule by rule: what cannot be served is a [`Problem`] of its rule, never a lost route.

use std::collections::{BTreeMap, BTreeSet};

use super::{Meta, Problem};

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
}

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

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Matches in order; PathPrefix `/` when left out. Not complete when there are problems.
    pub matches: Vec<Match>,
    /// Filters. Not complete when there are problems.
    pub filters: Filters,
    /// Backend references in order, as far as they decode, also when the rule has problems: they are resolved (and
    /// reported in ResolvedRefs) whether or not the rule is served.
    pub backends: Vec<BackendRef>,
    /// Why the rule cannot be served; empty for a good rule. The whole rule is dropped for any of them.
    pub problems: Vec<Problem>,
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
    /// name
    pub name: String,
    /// port, if written.
    pub port: Option<u16>,
    /// weight; 1 when left out, at most 1 000 000.
    pub weight: u32,
}
