//! Requests of the checks and their notes: sends raw HTTP through a client and writes down what came back, in words
//! that are equal on every server.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::testing::fields::{FieldSet, show_path};

/// How long a check waits for something that the control plane does in the background.
const PATIENCE: Duration = Duration::from_secs(60);

/// One kind that checks run for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) plural: &'static str,
}

impl Kind {
    fn root(&self) -> String {
        if self.api_version.contains('/') {
            format!("/apis/{}", self.api_version)
        } else {
            format!("/api/{}", self.api_version)
        }
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) code: u16,
    pub(super) json: Value,
}

impl Seen {
    pub(super) fn uid(&self) -> String {
        self.json["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(super) fn version(&self) -> String {
        self.json["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// A request under construction.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    content_type: &'static str,
    accept: &'static str,
    user: Option<&'static str>,
    body: Option<Value>,
}

impl Ask {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            content_type: "application/json",
            accept: "application/json",
            user: None,
            body: None,
        }
    }

    pub(super) fn param(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) fn metadata_only(mut self, list: bool) -> Self {
        self.accept = if list {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        };
        self
    }

    pub(super) fn aggregated(mut self) -> Self {
        self.accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        self
    }

    pub(super) fn on_behalf_of(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self
    }

    /// The same request to another path.
    pub(super) fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    pub(super) fn subresource(mut self, name: &str) -> Self {
        self.path.push('/');
        self.path.push_str(name);
        self
    }

    fn build(self) -> Request<Body> {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(self.query)
            .finish();
        let uri = if query.is_empty() {
            self.path
        } else {
            format!("{}?{query}", self.path)
        };
        let mut request = Request::builder()
            .method(self.method)
            .uri(uri)
            .header(http::header::ACCEPT, self.accept)
            .header(http::header::CONTENT_TYPE, self.content_type);
        if let Some(user) = self.user {
            request = request.header("impersonate-user", user);
        }
        let bytes = self.body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        request
            .body(Body::from(bytes))
            .expect("a request of constant parts")
    }
}

/// Sends requests and keeps the notes of one check.
pub struct Notes {
    client: Client,
    namespace: String,
    lines: Vec<String>,
    uids: Vec<String>,
    versions: Vec<String>,
    last_version: BTreeMap<String, String>,
}

impl Notes {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            lines: Vec::new(),
            uids: Vec::new(),
            versions: Vec::new(),
            last_version: BTreeMap::new(),
        }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    // ---- requests ----

    pub(super) fn path(&self, kind: Kind, name: &str) -> String {
        self.path_in(kind, &self.namespace, name)
    }

    pub(super) fn path_in(&self, kind: Kind, namespace: &str, name: &str) -> String {
        let slash = if name.is_empty() { "" } else { "/" };
        format!(
            "{}/namespaces/{namespace}/{}{slash}{name}",
            kind.root(),
            kind.plural
        )
    }

    pub(super) fn post(&self, kind: Kind, manager: &str, body: Value) -> Ask {
        Ask::new(Method::POST, self.path(kind, ""))
            .param("fieldManager", manager)
            .body(body)
    }

    pub(super) fn put(&self, kind: Kind, name: &str, manager: &str, body: Value) -> Ask {
        Ask::new(Method::PUT, self.path(kind, name))
            .param("fieldManager", manager)
            .body(body)
    }

    fn patch(&self, kind: Kind, name: &str, manager: &str, content_type: &'static str, body: Value) -> Ask {
        let mut ask = Ask::new(Method::PATCH, self.path(kind, name)).body(body);
        if !manager.is_empty() {
            ask = ask.param("fieldManager", manager);
        }
        ask.content_type = content_type;
        ask
    }

    /// Server-side apply without force; the name comes from the body.
    pub(super) fn apply_gently(&self, kind: Kind, manager: &str, body: Value) -> Ask {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.patch(kind, &name, manager, "application/apply-patch+yaml", body)
    }

    /// Server-side apply with force.
    pub(super) fn apply(&self, kind: Kind, manager: &str, body: Value) -> Ask {
        self.apply_gently(kind, manager, body).param("force", "true")
    }

    /// Server-side apply to a path whose name may differ from the body's.
    pub(super) fn apply_at(&self, kind: Kind, name: &str, manager: &str, body: Value) -> Ask {
        self.patch(kind, name, manager, "application/apply-patch+yaml", body)
            .param("force", "true")
    }

    pub(super) fn merge(&self, kind: Kind, name: &str, manager: &str, body: Value) -> Ask {
        self.patch(kind, name, manager, "application/merge-patch+json", body)
    }

    pub(super) fn json_patch(&self, kind: Kind, name: &str, manager: &str, body: Value) -> Ask {
        self.patch(kind, name, manager, "application/json-patch+json", body)
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Ask {
        Ask::new(Method::GET, self.path(kind, name))
    }

    pub(super) fn list(&self, kind: Kind) -> Ask {
        Ask::new(Method::GET, self.path(kind, ""))
    }

    pub(super) fn delete(&self, kind: Kind, name: &str, options: Value) -> Ask {
        let ask = Ask::new(Method::DELETE, self.path(kind, name));
        if options.is_null() { ask } else { ask.body(options) }
    }

    /// Sends without a note.
    pub(super) async fn send(&mut self, ask: Ask) -> Seen {
        let response = match self.client.send(ask.build()).await {
            Ok(response) => response,
            Err(error) => {
                return Seen {
                    code: 0,
                    json: json!({ "message": error.to_string() }),
                };
            }
        };
        let code = response.status().as_u16();
        let bytes = response
            .into_body()
            .collect()
            .await
            .map(|b| b.to_bytes())
            .unwrap_or_default();
        let json = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| json!({ "text": String::from_utf8_lossy(&bytes).into_owned() }));
        self.learn(&json);
        Seen { code, json }
    }

    fn learn(&mut self, json: &Value) {
        let meta = &json["metadata"];
        let learn = |seen: &Value, known: &mut Vec<String>| {
            if let Some(text) = seen
                .as_str()
                .filter(|t| !t.is_empty() && !known.iter().any(|k| k == t))
            {
                known.push(text.to_owned());
            }
        };
        learn(&meta["uid"], &mut self.uids);
        learn(&json["details"]["uid"], &mut self.uids);
        learn(&meta["resourceVersion"], &mut self.versions);
        for item in json["items"].as_array().into_iter().flatten() {
            self.learn(item);
        }
    }

    /// Sends and notes code, error or ownership.
    pub(super) async fn step(&mut self, label: &str, ask: Ask) -> Seen {
        let seen = self.send(ask).await;
        let text = if seen.code >= 400 || seen.code == 0 {
            error(&seen)
        } else {
            self.success(&seen)
        };
        self.note(format!("{label} -> {} {text}", seen.code));
        seen
    }

    /// Sends and notes only code and reason, where the text is the server's own business.
    pub(super) async fn step_brief(&mut self, label: &str, ask: Ask) -> Seen {
        let seen = self.send(ask).await;
        let reason = seen.json["reason"].as_str().unwrap_or_default();
        self.note(format!("{label} -> {} {reason}", seen.code));
        seen
    }

    fn success(&mut self, seen: &Seen) -> String {
        let json = &seen.json;
        if json["kind"] == "Status" {
            let details: Map<String, Value> = json["details"].as_object().cloned().unwrap_or_default();
            return format!("Status {} {}", json["status"], Value::Object(details));
        }
        let meta = &json["metadata"];
        let key = format!("{}/{}", json["kind"], meta["name"]);
        let version = seen.version();
        let change = match self.last_version.insert(key, version.clone()) {
            None => "new",
            Some(old) if old == version => "same",
            Some(_) => "changed",
        };
        let mut out = format!("version {change}");
        if let Some(generation) = meta["generation"].as_i64() {
            out.push_str(&format!(", generation {generation}"));
        }
        if !meta["deletionTimestamp"].is_null() {
            out.push_str(", terminating");
        }
        // The server sorts by time, in whole seconds: sort again, so that notes do not depend on it.
        let mut owners = Vec::new();
        for entry in meta["managedFields"].as_array().into_iter().flatten() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let sub = match text("subresource") {
                "" => String::new(),
                sub => format!("/{sub}"),
            };
            let fields: Vec<String> = FieldSet::from_json(&entry["fieldsV1"])
                .paths()
                .iter()
                .map(|p| show_path(p))
                .collect();
            owners.push(format!(
                "; {} {}{sub}: {}",
                text("manager"),
                text("operation"),
                fields.join(" ")
            ));
        }
        owners.sort();
        out.push_str(&owners.concat());
        out
    }

    /// Notes a part of a JSON value.
    pub(super) fn show(&mut self, label: &str, value: &Value) {
        self.note(format!("{label}: {}", sorted(value)));
    }

    pub(super) fn note(&mut self, line: impl AsRef<str>) {
        let mut line =
            replace_word(line.as_ref(), &self.namespace, "NS", &['.', '-'], &['.']).replace('\n', "\\n");
        for (i, uid) in self.uids.iter().enumerate() {
            line = line.replace(uid, &format!("UID{}", i + 1));
        }
        for version in self.versions.iter().filter(|v| v.len() > 2) {
            // On a young server a version may look like the status code of an answer.
            let (head, tail) = line.split_at(end_of_code(&line));
            line = format!("{head}{}", replace_word(tail, version, "VERSION", &['-'], &['-']));
        }
        self.lines.push(line);
    }

    /// Asks again until `done`, then notes `label`; after a minute notes that it did not happen.
    pub(super) async fn until(&mut self, label: &str, ask: Ask, done: impl Fn(&Seen) -> bool) -> Seen {
        let start = tokio::time::Instant::now();
        loop {
            let seen = self.send(ask.clone()).await;
            if done(&seen) {
                self.note(label);
                return seen;
            }
            if start.elapsed() > PATIENCE {
                self.note(format!("never: {label}"));
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Opens a watch, without a note.
    pub(super) async fn watch(&mut self, ask: Ask) -> WatchStream {
        match self.client.send(ask.param("watch", "true").build()).await {
            Ok(response) => WatchStream {
                code: response.status().as_u16(),
                body: Some(response.into_body()),
                buffer: Vec::new(),
            },
            Err(_) => WatchStream {
                code: 0,
                body: None,
                buffer: Vec::new(),
            },
        }
    }

    /// Notes the next `count` events, errors without their text.
    pub(super) async fn events_brief(&mut self, label: &str, stream: &mut WatchStream, count: usize) {
        let before = self.lines.len();
        self.events(label, stream, count).await;
        for line in self.lines.iter_mut().skip(before) {
            if let Some(at) = line.find(" \"too old resource version") {
                line.truncate(at);
            }
        }
    }

    /// Notes the next `count` events of a watch, or what comes until it ends.
    pub(super) async fn events(&mut self, label: &str, stream: &mut WatchStream, count: usize) {
        if stream.code != 200 {
            self.note(format!("{label} -> {}", stream.code));
            return;
        }
        for _ in 0..count {
            let event = tokio::time::timeout(PATIENCE, stream.next()).await;
            let text = match event {
                Err(_) => "nothing within a minute".to_owned(),
                Ok(None) => "EOF".to_owned(),
                Ok(Some(event)) => {
                    let object = &event["object"];
                    self.learn(object);
                    match event["type"].as_str().unwrap_or_default() {
                        "ERROR" => format!(
                            "ERROR {} {} {}",
                            object["code"], object["reason"], object["message"]
                        ),
                        "BOOKMARK" => format!(
                            "BOOKMARK {} {}",
                            object["kind"],
                            sorted(&object["metadata"]["annotations"])
                        ),
                        other => {
                            let parts: Vec<&str> = object
                                .as_object()
                                .map(|o| o.keys().map(String::as_str).collect())
                                .unwrap_or_default();
                            let mut parts = parts;
                            parts.sort_unstable();
                            format!(
                                "{other} {} {} labels {} [{}]",
                                object["kind"],
                                object["metadata"]["name"],
                                sorted(&object["metadata"]["labels"]),
                                parts.join(" ")
                            )
                        }
                    }
                }
            };
            let end = text == "EOF" || text.starts_with("nothing");
            self.note(format!("{label} -> {text}"));
            if end {
                return;
            }
        }
    }
}

/// An open watch.
pub(super) struct WatchStream {
    code: u16,
    body: Option<Body>,
    buffer: Vec<u8>,
}

impl WatchStream {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let frame: Option<Bytes> = self.body.as_mut()?.frame().await?.ok()?.into_data().ok();
            self.buffer.extend_from_slice(&frame.unwrap_or_default());
        }
    }
}

fn error(seen: &Seen) -> String {
    let json = &seen.json;
    if let Some(text) = json["text"].as_str() {
        return format!("text {text:?}");
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut out = format!("{} {:?}", text(&json["reason"]), text(&json["message"]));
    if let Some(details) = json["details"].as_object() {
        for name in ["group", "kind", "name", "uid"] {
            if let Some(v) = details.get(name) {
                out.push_str(&format!(" {name}={}", text(v)));
            }
        }
        // How often one cause is repeated is the server's own business.
        let mut causes: Vec<String> = Vec::new();
        for cause in details
            .get("causes")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let cause = format!(" [{} {}]", text(&cause["reason"]), text(&cause["field"]));
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        out.push_str(&causes.concat());
    } else {
        out.push_str(" without details");
    }
    out
}

/// JSON with sorted keys.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let all: BTreeMap<&String, &Value> = fields.iter().collect();
            let parts: Vec<String> = all
                .iter()
                .map(|(k, v)| format!("{}:{}", json!(k), sorted(v)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// Where the status code of an answer ends (`label -> 404 …`, `label -> ERROR 410 …`); 0 for other lines.
fn end_of_code(line: &str) -> usize {
    let Some((label, answer)) = line.split_once(" -> ") else {
        return 0;
    };
    let words = answer.strip_prefix("ERROR ").unwrap_or(answer);
    let digits = words.chars().take_while(char::is_ascii_digit).count();
    if digits == 3 {
        label.len() + " -> ".len() + (answer.len() - words.len()) + digits
    } else {
        0
    }
}

/// Replaces `word` where neither a letter nor a digit nor one of the given characters stands next to it.
fn replace_word(line: &str, word: &str, with: &str, not_before: &[char], not_after: &[char]) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut before = None;
    while let Some(at) = rest.find(word) {
        let (head, tail) = (&rest[..at], &rest[at + word.len()..]);
        before = head.chars().next_back().or(before);
        let left = before.is_none_or(|c: char| !c.is_ascii_alphanumeric() && !not_before.contains(&c));
        let right = tail
            .chars()
            .next()
            .is_none_or(|c| !c.is_ascii_alphanumeric() && !not_after.contains(&c));
        out.push_str(head);
        out.push_str(if left && right { with } else { word });
        before = word.chars().next_back();
        rest = tail;
    }
    out.push_str(rest);
    out
}
