//! The API server's audit log as an oracle: who asked for what, how often. Reading only; no expectations.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::{IoContext, Result};

/// An audit log file.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// The beginning of the log.
    pub const START: Mark = Mark(0);
}

/// One finished request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// User name, e.g. `system:serviceaccount:ns:name`.
    pub user: String,
    /// Kubernetes verb; server-side apply is `apply`.
    pub verb: String,
    /// `resource` or `resource/subresource`; the path for what is no resource.
    pub resource: String,
    /// Namespace, empty for cluster-scoped and non-resource requests.
    pub namespace: String,
    /// Object name, empty for lists.
    pub name: String,
    /// Status code.
    pub code: u16,
    /// Field manager that the request named.
    pub field_manager: Option<String>,
    /// What the client calls itself.
    pub user_agent: String,
    /// The Pod whose token was shown, empty for other users.
    pub pod: String,
    /// When the API server got it.
    pub received: Timestamp,
}

impl Request {
    /// Whether it reads objects: get and list, not watch.
    pub fn is_read(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list")
    }

    /// Whether it changes objects, successfully or not.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "apply" | "delete" | "deletecollection"
        )
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    request_received_timestamp: Timestamp,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Option<Status>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// Where the API server says which Pod a token was made for.
const POD: &str = "authentication.kubernetes.io/pod-name";

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl AuditLog {
    /// The log at this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The end of the log now. A request is in the log when its answer has been sent, so what was answered before
    /// this call lies before the mark.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn mark(&self) -> Result<Mark> {
        Ok(Mark(self.path.metadata().at("look at", &self.path)?.len()))
    }

    /// The requests that were finished after the mark. A watch counts once, when it begins.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn since(&self, mark: Mark) -> Result<Vec<Request>> {
        let mut file = File::open(&self.path).at("open", &self.path)?;
        file.seek(SeekFrom::Start(mark.0)).at("read", &self.path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at("read", &self.path)?;
        Ok(parse(&String::from_utf8_lossy(&bytes)))
    }

    /// The requests of one user since the mark.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of_user(&self, mark: Mark, user: &str) -> Result<Vec<Request>> {
        Ok(self.since(mark)?.into_iter().filter(|r| r.user == user).collect())
    }

    /// The requests of a service account since the mark.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of_account(&self, mark: Mark, namespace: &str, name: &str) -> Result<Vec<Request>> {
        self.of_user(mark, &format!("system:serviceaccount:{namespace}:{name}"))
    }
}

/// How often each (verb, resource, code) occurs; prints as one line per row.
pub fn count(requests: &[Request]) -> BTreeMap<(String, String, u16), usize> {
    let mut counts = BTreeMap::new();
    for r in requests {
        *counts
            .entry((r.verb.clone(), r.resource.clone(), r.code))
            .or_default() += 1;
    }
    counts
}

fn parse(text: &str) -> Vec<Request> {
    // The last line may be half written; it will be whole next time.
    let whole = text
        .rfind('\n')
        .and_then(|end| text.get(..end))
        .unwrap_or_default();
    whole
        .lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter_map(request)
        .collect()
}

fn request(line: Line) -> Option<Request> {
    // A long-running request is logged when it begins and when it ends.
    let wanted = if line.verb == "watch" {
        "ResponseStarted"
    } else {
        "ResponseComplete"
    };
    let failed_watch = line.verb == "watch"
        && line.stage == "ResponseComplete"
        && line.response_status.as_ref().is_some_and(|s| s.code >= 300);
    if line.stage != wanted && line.stage != "Panic" && !failed_watch {
        return None;
    }
    let query = line.request_uri.split_once('?').map_or("", |(_, q)| q);
    let parameter = |name: &str| {
        query
            .split('&')
            .filter_map(|p| p.split_once('='))
            .find(|(n, _)| *n == name)
    };
    let field_manager = parameter("fieldManager").map(|(_, v)| v.to_owned());
    // The log has no content type. Server-side apply must name a field manager, other patches seldom do.
    let apply = line.verb == "patch" && (field_manager.is_some() || parameter("force").is_some());
    let object = line.object_ref.unwrap_or_default();
    let resource = match (object.resource.as_str(), object.subresource.as_str()) {
        ("", _) => line.request_uri.split('?').next().unwrap_or_default().to_owned(),
        (resource, "") => resource.to_owned(),
        (resource, sub) => format!("{resource}/{sub}"),
    };
    let pod = line.user.extra.get(POD).and_then(|names| names.first());
    Some(Request {
        pod: pod.cloned().unwrap_or_default(),
        received: line.request_received_timestamp,
        user: line.user.username,
        verb: if apply { "apply".to_owned() } else { line.verb },
        resource,
        namespace: object.namespace,
        name: object.name,
        code: line.response_status.map_or(0, |s| s.code),
        field_manager,
        user_agent: line.user_agent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(stage: &str, verb: &str, uri: &str, code: u16) -> String {
        let object = json!({"resource": "ingresses", "namespace": "a", "name": "x", "subresource": "status"});
        let user = json!({"username": "system:serviceaccount:a:op", "extra": {POD: ["op-0"]}});
        json!({"stage": stage, "verb": verb, "requestURI": uri, "user": user, "objectRef": object,
               "responseStatus": {"code": code}, "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z"})
        .to_string()
            + "\n"
    }

    #[test]
    fn apply_is_told_from_patch_and_a_watch_counts_once() {
        let path = std::env::temp_dir().join(format!("routewright-audit-{}.log", std::process::id()));
        let log = AuditLog::new(path.clone());
        std::fs::write(&path, line("ResponseComplete", "get", "/x", 200)).unwrap();
        let mark = log.mark().unwrap();
        let text = [
            std::fs::read_to_string(&path).unwrap(),
            line("ResponseComplete", "patch", "/x?fieldManager=m&force=true", 201),
            line("ResponseComplete", "patch", "/x", 200),
            line("ResponseStarted", "watch", "/x?watch=1", 200),
            line("ResponseComplete", "watch", "/x?watch=1", 200),
            line("ResponseComplete", "watch", "/x?watch=1", 403),
            "{\"half\":".to_owned(),
        ]
        .concat();
        std::fs::write(&path, text).unwrap();
        // When the log is read from the mark
        let requests = log.of_account(mark, "a", "op").unwrap();
        // Then earlier lines and the second stage of the watch do not count
        let verbs: Vec<(&str, u16)> = requests.iter().map(|r| (r.verb.as_str(), r.code)).collect();
        assert_eq!(
            verbs,
            [("apply", 201), ("patch", 200), ("watch", 200), ("watch", 403)]
        );
        assert_eq!(requests[0].field_manager.as_deref(), Some("m"));
        assert_eq!(requests[0].pod, "op-0");
        assert_eq!(requests[0].received.to_string(), "2026-01-01T00:00:00.000001Z");
        assert_eq!(
            count(&requests)[&("patch".into(), "ingresses/status".into(), 200)],
            1
        );
        assert_eq!(requests.iter().filter(|r| r.is_write()).count(), 2);
        std::fs::remove_file(&path).unwrap();
    }
}
