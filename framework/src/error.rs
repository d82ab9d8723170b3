//! One error type with a class: the class decides the retry, the message goes to people.
//! The tables behind `classify` are measured, see apiserver facts §8 and prototype facts §4; never `is_*()` or `get_opt`.

use std::{fmt, time::Duration};

use kube::core::Status;

/// Why a reconcile failed, as far as the retry is concerned. A stable, low-cardinality label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// A fault that should pass: 5xx, connection lost, storage re-initialising, namespace terminating.
    Transient,
    /// Our view is stale: somebody wrote in between.
    Conflict,
    /// The server asks for patience; its `Retry-After`, if it gave one.
    RateLimited(Option<Duration>),
    /// A right is missing.
    Forbidden,
    /// The server will not take this object or value, now or later.
    Invalid,
    /// An object of somebody else stands in the way.
    Foreign,
    /// The kind is not served.
    NotServed,
    /// A named object (or namespace) does not exist.
    NotFound,
    /// A deadline passed.
    Timeout,
    /// A bug: the reconcile panicked.
    Panic,
    /// The process is stopping or has lost the lease.
    Shutdown,
    /// A cache of ours is not complete yet.
    NotReady,
}

impl ErrorClass {
    /// Label for metrics, traces and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::RateLimited(_) => "rate_limited",
            Self::Forbidden => "forbidden",
            Self::Invalid => "invalid",
            Self::Foreign => "foreign",
            Self::NotServed => "not_served",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Shutdown => "shutdown",
            Self::NotReady => "not_ready",
        }
    }
}

/// A failed reconcile. The message must be stable (no ids, times, attempt numbers): it may end up on a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileError {
    /// Decides the retry.
    pub class: ErrorClass,
    /// What went wrong, naming the object and, where there is one, the way out.
    pub message: String,
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReconcileError {}

impl ReconcileError {
    /// An error of `class`.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    /// What `kube` answered, with the doing that failed in front (`apply Ingress ns/name`).
    pub fn from_kube(doing: &str, error: &kube::Error) -> Self {
        let (class, text) = classify(error);
        Self::new(class, format!("{doing}: {text}"))
    }
}

/// Class and stable text of a kube error.
pub fn classify(error: &kube::Error) -> (ErrorClass, String) {
    match error {
        kube::Error::Api(status) => (classify_status(status), status_text(status)),
        kube::Error::Service(inner) => {
            // A layer of ours below the client (write guard) speaks through the boxed error.
            match inner.downcast_ref::<ReconcileError>() {
                Some(own) => (own.class, own.message.clone()),
                None => (
                    ErrorClass::Transient,
                    "the API server cannot be reached".to_owned(),
                ),
            }
        }
        kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => (
            ErrorClass::Transient,
            "the connection to the API server broke".to_owned(),
        ),
        kube::Error::Discovery(_) => (ErrorClass::NotServed, "the API is not served".to_owned()),
        kube::Error::SerdeError(e) => (
            ErrorClass::Invalid,
            format!("the API server's answer cannot be decoded: {e}"),
        ),
        other => (ErrorClass::Transient, other.to_string()),
    }
}

/// Class of an error answer by (code, reason, causes).
pub fn classify_status(status: &Status) -> ErrorClass {
    let causes = status.details.as_ref().map_or(&[][..], |d| d.causes.as_slice());
    match (status.code, status.reason.as_str()) {
        (409, _) if causes.iter().any(|c| c.reason == "FieldManagerConflict") => ErrorClass::Foreign,
        (409, _) => ErrorClass::Conflict,
        // Replaced by another object under the same name: our view is stale.
        (422, _) if causes.iter().any(|c| c.field == "metadata.uid") => ErrorClass::Conflict,
        (422 | 400 | 413 | 415, _) => ErrorClass::Invalid,
        // Text 404: the kind is not served. JSON 404 NotFound: the object or its namespace is missing.
        (404, "NotFound") => ErrorClass::NotFound,
        (404, _) => ErrorClass::NotServed,
        (401, _) => ErrorClass::Forbidden,
        (403, _) if is_terminating(status) => ErrorClass::Transient,
        (403, _)
            if status.message.contains("denied request") || status.message.contains("denied the request") =>
        {
            ErrorClass::Invalid
        }
        (403, _) => ErrorClass::Forbidden,
        (429, _) => ErrorClass::RateLimited(retry_after(status)),
        (500, "") if is_undeclared_field(status) => ErrorClass::Invalid,
        (504, "Timeout") => ErrorClass::Timeout,
        _ => ErrorClass::Transient,
    }
}

/// The server does not know a field of the body (500 without a reason; see apiserver facts §0).
pub fn is_undeclared_field(status: &Status) -> bool {
    status.code == 500 && status.message.contains("failed to create typed patch object")
}

fn is_terminating(status: &Status) -> bool {
    status.message.contains("being terminated")
        || status.message.contains("is terminating")
        || status
            .details
            .as_ref()
            .is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"))
}

fn retry_after(status: &Status) -> Option<Duration> {
    // 0 means absent, not "at once".
    let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// The message without what changes from try to try.
fn status_text(status: &Status) -> String {
    let text = status.message.trim();
    match (status.code, status.reason.as_str()) {
        (404, "NotFound") => text.to_owned(),
        (404, _) => "the API is not served".to_owned(),
        _ if text.is_empty() => format!("the API server answered {}", status.code),
        // uids differ from incarnation to incarnation
        _ if text.starts_with("uid mismatch") => "the object was replaced meanwhile".to_owned(),
        _ => text.to_owned(),
    }
}
