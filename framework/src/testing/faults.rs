//! Faults: which requests are disturbed, how, and how often. Only data and matching; the server acts on it.

use std::time::Duration;

use super::log::{Call, Verb};

/// Which requests. Every condition that is set must hold; none set means all requests.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    user: Option<String>,
    verbs: Option<Vec<Verb>>,
    group: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    field_manager: Option<String>,
}

impl Matcher {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Every request that changes something.
    pub fn writes() -> Self {
        Self::verbs(&[
            Verb::Create,
            Verb::Update,
            Verb::MergePatch,
            Verb::JsonPatch,
            Verb::Apply,
            Verb::Delete,
            Verb::DeleteCollection,
        ])
    }

    /// Every GET and LIST, metadata or whole, but no watch.
    pub fn reads() -> Self {
        Self::verbs(&[Verb::Get, Verb::GetMetadata, Verb::List, Verb::ListMetadata])
    }

    /// Every watch.
    pub fn watches() -> Self {
        Self::verbs(&[Verb::Watch, Verb::WatchMetadata])
    }

    /// One verb.
    pub fn verb(verb: Verb) -> Self {
        Self::verbs(&[verb])
    }

    /// Any of these verbs.
    pub fn verbs(verbs: &[Verb]) -> Self {
        Self {
            verbs: Some(verbs.to_vec()),
            ..Self::default()
        }
    }

    /// Only of this user.
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Only this API group; empty for core.
    pub fn group(mut self, group: &str) -> Self {
        self.group = Some(group.to_owned());
        self
    }

    /// Only this plural resource, for example `ingresses`; with a slash also the subresource: `buckets/status`.
    /// Without a slash the object itself is meant, and every subresource.
    pub fn resource(mut self, resource: &str) -> Self {
        match resource.split_once('/') {
            Some((resource, sub)) => {
                self.resource = Some(resource.to_owned());
                self.subresource = Some(sub.to_owned());
            }
            None => self.resource = Some(resource.to_owned()),
        }
        self
    }

    /// Only this subresource; empty means the object itself.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Only this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only this object name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only this field manager.
    pub fn field_manager(mut self, manager: &str) -> Self {
        self.field_manager = Some(manager.to_owned());
        self
    }

    /// The same matcher for every verb, for requests of a client that died while writing.
    pub(crate) fn whose(&self) -> Self {
        Self {
            user: self.user.clone(),
            ..Self::default()
        }
    }

    pub(crate) fn only_user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether a request is meant.
    pub fn matches(&self, call: &Call) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
        is(&self.user, &call.user)
            && self.verbs.as_ref().is_none_or(|verbs| verbs.contains(&call.verb))
            && is(&self.group, &call.group)
            && is(&self.resource, &call.resource)
            && is(&self.subresource, &call.subresource)
            && is(&self.namespace, &call.namespace)
            && is(&self.name, &call.name)
            && is(&self.field_manager, &call.field_manager)
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Refused with 409 Conflict ("has been modified"); nothing is done.
    Conflict,
    /// Refused with 429 and `Retry-After` in seconds; nothing is done.
    TooManyRequests {
        /// Seconds.
        retry_after: u32,
    },
    /// Refused with any other status; nothing is done. 403, 500, 503 and 504 carry the usual reason.
    Status(u16),
    /// The connection breaks before the server sees the request.
    ConnectionError,
    /// The server does it; the client sees a broken connection.
    AnswerLost,
    /// The server does it; the client waits for ever.
    AnswerHangs,
    /// The request waits this long (tokio time) before the server does it.
    Delay(Duration),
    /// The server does it at once; the answer comes after this time (tokio time).
    AnswerDelay(Duration),
    /// Nothing is done and no answer comes.
    Hang,
    /// A watch starts and ends at once without events (a clean EOF).
    WatchEnds,
    /// A watch starts with the 410 Expired error event: the client has to list again.
    WatchExpired,
}

/// How long a fault stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// For so many matching requests.
    Count(usize),
    /// Until it is removed.
    Always,
}

/// Names a fault or an RBAC rule, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: RuleId,
    pub(crate) matcher: Matcher,
    pub(crate) fault: Fault,
    pub(crate) left: Times,
}

/// How a dead client's requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// They never come back.
    Hang,
    /// They fail with a connection error.
    Error,
}

/// After so many more successful writes, nothing works any more.
#[derive(Clone, Debug)]
pub(crate) struct KillPoint {
    pub(crate) matcher: Matcher,
    pub(crate) writes_left: usize,
    pub(crate) how: Crash,
    /// The write at the kill point is done, but its answer is lost as well.
    pub(crate) lose_last_answer: bool,
}

/// An RBAC refusal.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) id: RuleId,
    pub(crate) user: String,
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
}

impl Denial {
    /// Whether `verb` on `resource` (with subresource, `a/b`) is refused. `*` matches all.
    pub(crate) fn covers(&self, user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
        let is = |wanted: &str, found: &str| wanted == "*" || wanted == found;
        is(&self.user, user)
            && is(&self.verb, verb)
            && is(&self.resource, resource)
            && self.namespace.as_deref().is_none_or(|ns| ns == namespace)
    }
}
