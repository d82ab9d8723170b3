//! One error type with a class: the class decides the retry, the message goes to people.
//! The tables behind `classify` are measured, see apiserver facts §8 and prototype facts §4; never `is_*()` or `get_opt`.

use std::{borrow::Cow, fmt, time::Duration};

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
    /// The whole text behind the message, where that left out what changes from try to try. For the log only.
    pub detail: Option<Box<str>>,
    /// Look again no later than this, whatever the class says: what else the reconcile wanted.
    pub no_later_than: Option<Duration>,
    /// The API server answered it: saying it on the object at once would be one more request to a server in trouble.
    pub of_api_server: bool,
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
            detail: None,
            no_later_than: None,
            of_api_server: false,
        }
    }

    /// What `kube` answered, with the doing that failed in front (`apply Ingress ns/name`).
    pub fn from_kube(doing: &str, error: &kube::Error) -> Self {
        let (class, text) = classify(error);
        let detail = match error {
            kube::Error::Api(status) if !text.contains(status.message.trim()) => Some(
                bounded(&status.message, MAX_SERVER_TEXT)
                    .into_owned()
                    .into_boxed_str(),
            ),
            _ => None,
        };
        Self {
            detail,
            of_api_server: true,
            ..Self::new(class, format!("{doing}: {text}"))
        }
    }
}

/// The API limit of a condition's `message`, in bytes.
pub const MAX_MESSAGE: usize = 32_768;
/// A text of the API server is cut to this many bytes.
const MAX_SERVER_TEXT: usize = 4_096;

/// A text as a condition shows it: without what changes from try to try (the near end of a connection, ids of requests and
/// streams), and within the API's limit. Every message of a condition passes here, so that a retry that fails alike is no
/// write.
pub fn condition_text(text: &str) -> Cow<'_, str> {
    match stable(text, false) {
        Cow::Borrowed(text) => bounded(text, MAX_MESSAGE),
        Cow::Owned(text) => Cow::Owned(bounded(&text, MAX_MESSAGE).into_owned()),
    }
}

/// A text of a server as an error shows it: as [`condition_text`], and without times, UUIDs and addresses in memory, which
/// may be the subject of a text of our own.
pub fn server_text(text: &str) -> Cow<'_, str> {
    match stable(text, true) {
        Cow::Borrowed(text) => bounded(text, MAX_SERVER_TEXT),
        Cow::Owned(text) => Cow::Owned(bounded(&text, MAX_SERVER_TEXT).into_owned()),
    }
}

/// The text, cut at a character to at most `most` bytes, with an ellipsis at the cut.
pub fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let mut end = most.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(text.get(..end).unwrap_or_default().to_owned() + "…")
}

/// Stands for an id that was left out.
const ID: &str = "<id>";
/// Stands for a time that was left out.
const TIME: &str = "<time>";

/// Whether a text may hold what is left out, at no cost: most texts do not.
fn may_change(text: &str) -> bool {
    let begins_with = |word: &str, of: &str| word.get(..of.len()).is_some_and(|w| w.eq_ignore_ascii_case(of));
    text.contains("->")
        || text
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| names_of_ids().any(|of| begins_with(word, of)))
}

fn stable(text: &str, of_server: bool) -> Cow<'_, str> {
    if !of_server && !may_change(text) {
        return Cow::Borrowed(text);
    }
    // Words keep the white space behind them.
    let words = || text.split_inclusive(char::is_whitespace);
    let (mut before, mut names_id) = (String::new(), false);
    let mut out: Option<String> = None;
    let mut done = 0;
    for word in words() {
        let bare = word.trim_end();
        let name: String = bare
            .chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .take(24)
            .collect();
        let replaced = if std::mem::take(&mut names_id) && !bare.is_empty() {
            Some(ID.to_owned() + trailing(bare))
        } else {
            stable_word(bare, of_server)
        };
        if let Some(replaced) = replaced {
            let out = out.get_or_insert_with(|| text.get(..done).unwrap_or_default().to_owned());
            out.push_str(&replaced);
            out.push_str(word.get(bare.len()..).unwrap_or_default());
        } else {
            if let Some(out) = &mut out {
                out.push_str(word);
            }
            names_id = names_of_ids().any(|of| name == format!("{of}id") || (before == of && name == "id"));
        }
        done += word.len();
        if !bare.is_empty() {
            before = name;
        }
    }
    out.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// What has an id that is new at every try.
fn names_of_ids() -> impl Iterator<Item = &'static str> {
    ["request", "trace", "correlation", "stream"].into_iter()
}

/// The punctuation behind a word.
fn trailing(word: &str) -> &str {
    let kept = word.trim_end_matches([':', ',', ';', '.', ')', ']', '"']);
    word.get(kept.len()..).unwrap_or_default()
}

fn stable_word(word: &str, of_server: bool) -> Option<String> {
    // `10.0.0.1:48211->10.0.0.2:443`: the near end has a port of its own at each try.
    if let Some((near, far)) = word.split_once("->")
        && near.rsplit_once(':').is_some_and(|(_, port)| is_number(port))
    {
        return Some(far.to_owned());
    }
    if let Some((name, _)) = word.split_once(['=', ':'])
        && word.len() > name.len() + 1
        && names_of_ids().any(|of| {
            let name: String = name
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric())
                .collect();
            name.strip_suffix("id") == Some(of)
        })
    {
        return Some(format!("{name}={ID}{}", trailing(word)));
    }
    if !of_server {
        return None;
    }
    let core = word.trim_matches(|c: char| !c.is_alphanumeric());
    let stands = if is_uuid(core) || is_pointer(core) {
        ID
    } else if is_time(core) || is_long_duration(core) {
        TIME
    } else {
        return None;
    };
    Some(word.replacen(core, stands, 1))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

fn is_pointer(text: &str) -> bool {
    let digits = text.strip_prefix("0x");
    digits.is_some_and(|digits| digits.len() > 5 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// `2026-12-01T10:00:00Z` and its like.
fn is_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else {
        return false;
    };
    let is_date = date.len() == 10 && date.split('-').count() == 3 && date.split('-').all(is_number);
    is_date && time.get(..2).is_some_and(is_number) && time.get(2..3) == Some(":")
}

/// A measured duration, as `1.000231817s`.
fn is_long_duration(text: &str) -> bool {
    let number = text.trim_end_matches(['s', 'm', 'µ', 'n']);
    let fraction = number.split_once('.').filter(|(whole, _)| is_number(whole));
    number.len() < text.len() && fraction.is_some_and(|(_, part)| part.len() > 3 && is_number(part))
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
        other => (
            ErrorClass::Transient,
            server_text(&other.to_string()).into_owned(),
        ),
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
        // A token that is being renewed, or one that the server does not know yet.
        (401, _) => ErrorClass::Transient,
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
        (404, "NotFound") => server_text(text).into_owned(),
        (404, _) => "the API is not served".to_owned(),
        _ if text.is_empty() => format!("the API server answered {}", status.code),
        // uids differ from incarnation to incarnation
        _ if text.starts_with("uid mismatch") => "the object was replaced meanwhile".to_owned(),
        _ => server_text(text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_from_try_to_try_is_left_out_of_a_condition() {
        for (said, stable) in [
            (
                "failed calling webhook \"v.example.org\": read tcp 10.0.0.1:48211->10.0.0.2:443: connection reset by peer",
                "failed calling webhook \"v.example.org\": read tcp 10.0.0.2:443: connection reset by peer",
            ),
            (
                "lookup a on [fd00::a]:53: read udp [fd00::1]:51234->[fd00::a]:53: i/o timeout",
                "lookup a on [fd00::a]:53: read udp [fd00::a]:53: i/o timeout",
            ),
            (
                "denied (request id: 4f3a), ask them",
                "denied (request id: <id>), ask them",
            ),
            ("denied, requestID=4f3a-11;", "denied, requestID=<id>;"),
            (
                "stream error: stream ID 123; CANCEL",
                "stream error: stream ID <id>; CANCEL",
            ),
        ] {
            assert_eq!(condition_text(said), stable);
            assert_eq!(server_text(said), stable);
            assert_eq!(condition_text(stable), stable, "twice is once");
        }
        for kept in [
            "Ingress web/blog-website",
            "the port 3902 of Service a:b->c is none",
            "it holds until 2027-01-01T00:00:00Z for 7a1b2c3d-0000-4000-8000-000000000000",
            "request the id of a stream",
            "",
            "  two  spaces and a line\nmore ",
        ] {
            assert!(
                matches!(condition_text(kept), Cow::Borrowed(text) if text == kept),
                "{kept}"
            );
        }
        assert_eq!(
            server_text(
                "at 2027-01-01T00:00:00.1Z \"7a1b2c3d-0000-4000-8000-000000000000\" 0xc000123456 took 1.0002s"
            ),
            "at <time> \"<id>\" <id> took <time>"
        );
    }

    #[test]
    fn a_token_that_is_not_known_yet_is_no_missing_right() {
        let status = |code, reason: &str| Status {
            code,
            reason: reason.to_owned(),
            ..Status::default()
        };
        assert_eq!(
            classify_status(&status(401, "Unauthorized")),
            ErrorClass::Transient
        );
        assert_eq!(classify_status(&status(403, "Forbidden")), ErrorClass::Forbidden);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_to_a_number_of_bytes() {
        assert_eq!(bounded("äöü", 6), "äöü");
        assert_eq!(bounded("äöüä", 7), "äö…");
        let long = "x".repeat(100_000);
        assert!(server_text(&long).len() <= MAX_SERVER_TEXT && condition_text(&long).len() <= MAX_MESSAGE);
    }
}
