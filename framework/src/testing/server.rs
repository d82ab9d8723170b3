//! The HTTP face of the test server: paths, verbs, parameters, answers, log and faults; and the handle that tests
//! hold. What requests mean is in the store.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use super::discovery;
use super::failure::Failure;
use super::faults::{Crash, Denial, Fault, KillPoint, Matcher, Rule, RuleId, Times};
use super::kinds::ResourceDef;
use super::log::{Answer, Call, Mark, Verb};
use super::patch;
use super::selector::Selector;
use super::store::{DeleteOptions, Deleted, Gc, Id, Store, Target, Written};
use super::watch::{self, Interest, connection_reset};

/// Body of the answers: whole, or a watch stream.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// User of [`ApiServer::client`].
pub const DEFAULT_USER: &str = "admin";

/// Field manager of direct access, when the test names none.
pub const TEST_MANAGER: &str = "test";

struct Inner {
    store: Store,
    log: Vec<Call>,
    rules: Vec<Rule>,
    denials: Vec<Denial>,
    kill_point: Option<KillPoint>,
    dead: Option<(Matcher, Crash)>,
    next_rule: u64,
}

/// An API server inside the test's process. Cheap to clone; all clones are one server.
///
/// ```
/// # use reconcile_kit::testing::{ApiServer, ResourceDef};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// let server = ApiServer::new();
/// server.namespace("shop");
/// let maps = kube::Api::<ConfigMap>::namespaced(server.client(), "shop");
/// assert!(maps.list(&Default::default()).await.unwrap().items.is_empty());
/// assert_eq!(format!("{:?}", server.calls()), "[LIST v1 configmaps shop/* -> 200]");
/// # }
/// ```
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Mutex<Inner>>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

/// [`ApiServer`] as a service for one user.
#[derive(Clone, Debug)]
pub struct UserService {
    server: ApiServer,
    user: Arc<str>,
}

impl ApiServer {
    /// A server with the kinds of a bare cluster: Namespace, ConfigMap, Secret, Service, Event, Lease, Ingress,
    /// IngressClass, CustomResourceDefinition; and the namespaces `default` and `kube-system`. Its clock starts at
    /// 2026-01-01T00:00:00Z and follows tokio's.
    pub fn new() -> Self {
        Self::starting_at(jiff::Timestamp::constant(1_767_225_600, 0))
    }

    /// The same with another start of the clock.
    pub fn starting_at(epoch: jiff::Timestamp) -> Self {
        let server = Self::empty(epoch);
        for def in [
            ResourceDef::namespace(),
            ResourceDef::config_map(),
            ResourceDef::secret(),
            ResourceDef::service(),
            ResourceDef::event(),
            ResourceDef::lease(),
            ResourceDef::ingress(),
            ResourceDef::ingress_class(),
            ResourceDef::crd(),
        ] {
            server.serve(def);
        }
        server.namespace("default").namespace("kube-system");
        server
    }

    /// A server that serves nothing yet.
    pub fn empty(epoch: jiff::Timestamp) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                store: Store::new(epoch),
                log: Vec::new(),
                rules: Vec::new(),
                denials: Vec::new(),
                kill_point: None,
                dead: None,
                next_rule: 0,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- clients ----

    /// A client of the user `admin`. It does not retry. Needs a tokio runtime around it.
    pub fn client(&self) -> kube::Client {
        self.client_as(DEFAULT_USER)
    }

    /// A client whose requests are logged, denied and disturbed under this user name.
    pub fn client_as(&self, user: &str) -> kube::Client {
        kube::Client::new(self.service_as(user), "default")
    }

    /// The service below a client, for stacks that put own layers around it.
    pub fn service_as(&self, user: &str) -> UserService {
        UserService {
            server: self.clone(),
            user: Arc::from(user),
        }
    }

    // ---- kinds ----

    /// Serves one version of a kind, as if its CRD had been established.
    pub fn serve(&self, def: ResourceDef) -> &Self {
        self.lock().store.serve(def);
        self
    }

    /// Stops serving a kind in all versions, as the deletion of its CRD does: watches see every instance deleted and
    /// end a second later, requests get the text 404.
    pub fn unserve(&self, group: &str, plural: &str) -> &Self {
        self.lock().store.unserve(&(group.to_owned(), plural.to_owned()));
        self
    }

    /// Stops serving one version: its watches end after a second without a word about the instances.
    pub fn unserve_version(&self, group: &str, version: &str, plural: &str) -> &Self {
        self.lock().store.unserve_version(group, version, plural);
        self
    }

    // ---- the request log ----

    /// Every request so far.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().log.clone()
    }

    /// This place in the log.
    pub fn mark(&self) -> Mark {
        Mark(self.lock().log.len())
    }

    /// Requests since a mark.
    pub fn calls_since(&self, mark: Mark) -> Vec<Call> {
        self.lock().log.get(mark.0..).unwrap_or_default().to_vec()
    }

    /// Requests since a mark that wanted to change something, refused ones included.
    pub fn writes_since(&self, mark: Mark) -> Vec<Call> {
        self.calls_since(mark)
            .into_iter()
            .filter(|c| c.verb.is_write())
            .collect()
    }

    /// GETs and LISTs since a mark.
    pub fn reads_since(&self, mark: Mark) -> Vec<Call> {
        self.calls_since(mark)
            .into_iter()
            .filter(|c| c.verb.is_read())
            .collect()
    }

    /// Waits until a request in the log satisfies `wanted`, and gives it. Checks again whenever the log may have
    /// grown; the caller sets the deadline (`tokio::time::timeout`).
    pub async fn wait_for_call(&self, since: Mark, wanted: impl Fn(&Call) -> bool) -> Call {
        loop {
            if let Some(call) = self.calls_since(since).into_iter().find(|c| wanted(c)) {
                return call;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    // ---- faults ----

    /// Disturbs the next `times` requests that match. The first matching fault wins.
    pub fn fault(&self, matcher: Matcher, fault: Fault, times: Times) -> RuleId {
        let mut inner = self.lock();
        let id = inner.next_rule();
        inner.rules.push(Rule {
            id,
            matcher,
            fault,
            left: times,
        });
        id
    }

    /// Removes a fault.
    pub fn unfault(&self, id: RuleId) -> &Self {
        self.lock().rules.retain(|r| r.id != id);
        self
    }

    /// Removes all faults, the kill point included.
    pub fn clear_faults(&self) -> &Self {
        let mut inner = self.lock();
        inner.rules.clear();
        inner.kill_point = None;
        inner.dead = None;
        drop(inner);
        self
    }

    /// After `writes` more successful writes that match, every later request of the matcher's user (of everybody,
    /// when it names none) hangs or fails, and open watches break: the crash of a client between two writes.
    /// `writes = 0` kills at once.
    pub fn kill_after(&self, matcher: Matcher, writes: usize, how: Crash) -> &Self {
        self.set_kill_point(matcher, writes, how, false)
    }

    /// The same, but the answer of the last write is lost too: it is done and the client does not know.
    pub fn kill_during(&self, matcher: Matcher, writes: usize, how: Crash) -> &Self {
        self.set_kill_point(matcher, writes, how, true)
    }

    fn set_kill_point(
        &self,
        matcher: Matcher,
        writes_left: usize,
        how: Crash,
        lose_last_answer: bool,
    ) -> &Self {
        let mut inner = self.lock();
        if writes_left == 0 {
            inner.die(KillPoint {
                matcher,
                writes_left,
                how,
                lose_last_answer,
            });
        } else {
            inner.kill_point = Some(KillPoint {
                matcher,
                writes_left,
                how,
                lose_last_answer,
            });
        }
        drop(inner);
        self
    }

    /// Lets killed clients speak again (the next process after the crash).
    pub fn revive(&self) -> &Self {
        let mut inner = self.lock();
        inner.dead = None;
        inner.kill_point = None;
        drop(inner);
        self
    }

    /// Whether the kill point was reached.
    pub fn is_killed(&self) -> bool {
        self.lock().dead.is_some()
    }

    /// Breaks the open watches of a plural resource (`*`: all) with a connection error. Says how many.
    pub fn cut_watches(&self, plural: &str) -> usize {
        self.lock()
            .store
            .watchers
            .cut(|i, _| plural == "*" || i.resource.1 == plural)
    }

    /// Ends the open watches of a plural resource (`*`: all) with a clean EOF. Says how many.
    pub fn end_watches(&self, plural: &str) -> usize {
        self.lock()
            .store
            .watchers
            .end(|i, _| plural == "*" || i.resource.1 == plural)
    }

    /// Number of open watches of a plural resource (`*`: all).
    pub fn open_watches(&self, plural: &str) -> usize {
        self.lock()
            .store
            .watchers
            .count(|i, _| plural == "*" || i.resource.1 == plural)
    }

    /// Forgets the event history: a watch or a continued list from before gets 410 Expired.
    pub fn compact(&self) -> &Self {
        self.lock().store.compact();
        self
    }

    /// Sends a bookmark to every watch that asked for them.
    pub fn send_bookmarks(&self) -> &Self {
        let inner = self.lock();
        inner.store.watchers.bookmark(inner.store.revision());
        drop(inner);
        self
    }

    // ---- RBAC ----

    /// Refuses `verb` (an RBAC verb: get, list, watch, create, update, patch, delete, deletecollection) on
    /// `resource` (`ingresses`, `httproutes/status`) to `user`. `*` stands for all, each of the three.
    pub fn deny(&self, user: &str, verb: &str, resource: &str) -> RuleId {
        self.add_denial(user, verb, resource, None)
    }

    /// The same in one namespace only.
    pub fn deny_in(&self, namespace: &str, user: &str, verb: &str, resource: &str) -> RuleId {
        self.add_denial(user, verb, resource, Some(namespace.to_owned()))
    }

    fn add_denial(&self, user: &str, verb: &str, resource: &str, namespace: Option<String>) -> RuleId {
        let mut inner = self.lock();
        let id = inner.next_rule();
        inner.denials.push(Denial {
            id,
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace,
        });
        id
    }

    /// Takes a refusal back.
    pub fn undeny(&self, id: RuleId) -> &Self {
        self.lock().denials.retain(|d| d.id != id);
        self
    }

    // ---- direct access: not logged, never disturbed, seen by watches ----

    /// Creates a namespace, if it is not there.
    pub fn namespace(&self, name: &str) -> &Self {
        if self.get("Namespace", "", name).is_none() {
            self.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        }
        self
    }

    /// Marks a namespace as terminating and keeps it so, contents included.
    pub fn terminate_namespace(&self, name: &str) -> &Self {
        self.lock().store.hold_namespace(name);
        self
    }

    /// Creates an object by POST as field manager `test`. Gives it as stored.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn create(&self, object: Value) -> Value {
        self.create_as(TEST_MANAGER, object)
    }

    /// Creates an object by POST as this field manager.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn create_as(&self, manager: &str, object: Value) -> Value {
        self.direct(manager, &object, "", |store, target| {
            store.create(target, object.clone())
        })
    }

    /// Replaces an object (PUT) as this field manager. Without resourceVersion in the body the live one is taken.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn update_as(&self, manager: &str, mut object: Value) -> Value {
        if object["metadata"]["resourceVersion"].is_null() {
            let field = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let (kind, meta) = (field(&object["kind"]), &object["metadata"]);
            if let Some(live) = self.get(&kind, &field(&meta["namespace"]), &field(&meta["name"])) {
                object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            }
        }
        self.direct(manager, &object, "", |store, target| {
            store.put(target, object.clone())
        })
    }

    /// Replaces an object (PUT) as field manager `test`.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn update(&self, object: Value) -> Value {
        self.update_as(TEST_MANAGER, object)
    }

    /// Server-side apply with force as this field manager.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn apply_as(&self, manager: &str, object: Value) -> Value {
        self.direct(manager, &object, "", |store, target| {
            store.apply(target, &object, true)
        })
    }

    /// Merge patch as this field manager. `kind` is `Kind` or `Kind.group`; `namespace` is empty for cluster scope.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn edit_as(&self, manager: &str, kind: &str, namespace: &str, name: &str, change: Value) -> Value {
        let head = self.head(kind, namespace, name);
        self.direct(manager, &head, "", |store, target| {
            store.patch(target, |o| patch::merge(o, &change))
        })
    }

    /// Merge patch as field manager `test`.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn edit(&self, kind: &str, namespace: &str, name: &str, change: Value) -> Value {
        self.edit_as(TEST_MANAGER, kind, namespace, name, change)
    }

    /// Replaces the whole status as field manager `test`.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn set_status(&self, kind: &str, namespace: &str, name: &str, status: Value) -> Value {
        let head = self.head(kind, namespace, name);
        self.direct(TEST_MANAGER, &head, "status", |store, target| {
            store.patch(target, |mut object| {
                object["status"] = status.clone();
                Ok(object)
            })
        })
    }

    /// An object, if it is there. `kind` is `Kind` or `Kind.group`; `namespace` is empty for cluster scope.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let inner = self.lock();
        let def = inner.store.def_of_kind(kind)?;
        let id = Id {
            resource: (def.group.clone(), def.plural.clone()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        inner
            .store
            .get(&id)
            .map(|o| watch::present(&o, &def.api_version(), false))
    }

    /// An object as a type, if it is there.
    ///
    /// # Panics
    /// When it does not decode.
    pub fn get_typed<K: serde::de::DeserializeOwned>(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<K> {
        self.get(kind, namespace, name)
            .map(|object| serde_json::from_value(object).expect("stored object decodes"))
    }

    /// All objects of a kind, sorted by namespace and name. An empty namespace means all.
    pub fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let inner = self.lock();
        let Some(def) = inner.store.def_of_kind(kind) else {
            return Vec::new();
        };
        let resource = (def.group.clone(), def.plural.clone());
        inner
            .store
            .list(&resource, namespace)
            .iter()
            .map(|o| (**o).clone())
            .collect()
    }

    /// Deletes an object in the background; false when it is not there. With finalizers it stays, terminating.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let mut inner = self.lock();
        let Some(def) = inner.store.def_of_kind(kind) else {
            return false;
        };
        let target = Target {
            def: &def,
            namespace,
            name,
            subresource: "",
            manager: TEST_MANAGER,
            dry_run: false,
        };
        inner.store.delete(&target, &DeleteOptions::default()).is_ok()
    }

    /// Decides when dependents of deleted owners go.
    pub fn set_gc(&self, gc: Gc) -> &Self {
        self.lock().store.gc = gc;
        self
    }

    /// Deletes what has lost its owners, with [`Gc::Manual`].
    pub fn collect_garbage(&self) -> &Self {
        self.lock().store.collect_garbage();
        self
    }

    /// The current resourceVersion of the server.
    pub fn revision(&self) -> u64 {
        self.lock().store.revision()
    }

    fn head(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let def = self.lock().store.def_of_kind(kind);
        let def = def.unwrap_or_else(|| panic!("the test server does not serve {kind}"));
        json!({
            "apiVersion": def.api_version(),
            "kind": def.kind,
            "metadata": { "name": name, "namespace": namespace },
        })
    }

    fn direct(
        &self,
        manager: &str,
        object: &Value,
        subresource: &str,
        write: impl FnOnce(&mut Store, &Target<'_>) -> Result<Written, Failure>,
    ) -> Value {
        let field = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (field(&object["apiVersion"]), field(&object["kind"]));
        let (namespace, name) = (
            field(&object["metadata"]["namespace"]),
            field(&object["metadata"]["name"]),
        );
        let mut inner = self.lock();
        let def = inner.store.def_of(&api_version, &kind);
        let Some(def) = def else {
            drop(inner);
            panic!("the test server does not serve {api_version} {kind}");
        };
        let target = Target {
            def: &def,
            namespace: &namespace,
            name: &name,
            subresource,
            manager,
            dry_run: false,
        };
        let outcome = write(&mut inner.store, &target);
        drop(inner);
        match outcome {
            Ok(written) => watch::present(&written.object, &api_version, false),
            Err(failure) => panic!(
                "the test server refused {kind} {namespace}/{name}: {}",
                failure.json().unwrap_or_default()
            ),
        }
    }
}

impl Inner {
    fn next_rule(&mut self) -> RuleId {
        self.next_rule += 1;
        RuleId(self.next_rule)
    }

    fn die(&mut self, point: KillPoint) {
        let whose = point.matcher.whose();
        self.kill_point = None;
        let user = whose.only_user().map(str::to_owned);
        self.store
            .watchers
            .cut(|_, u| user.as_deref().is_none_or(|w| w == u));
        self.dead = Some((whose, point.how));
    }

    /// The fault for a request, used up once.
    fn take_fault(&mut self, call: &Call) -> Option<Fault> {
        let at = self.rules.iter().position(|r| r.matcher.matches(call))?;
        let rule = &mut self.rules[at];
        let fault = rule.fault.clone();
        match &mut rule.left {
            Times::Always => {}
            Times::Count(0 | 1) => {
                self.rules.remove(at);
            }
            Times::Count(n) => *n -= 1,
        }
        Some(fault)
    }

    /// Counts a write towards the kill point; true when its answer is to be lost.
    fn count_write(&mut self, call: &Call, code: u16) -> bool {
        let Some(point) = &mut self.kill_point else {
            return false;
        };
        if !call.verb.is_write() || !(200..300).contains(&code) || !point.matcher.matches(call) {
            return false;
        }
        point.writes_left -= 1;
        if point.writes_left > 0 {
            return false;
        }
        let point = point.clone();
        let lose = point.lose_last_answer;
        self.die(point);
        lose
    }
}

/// A request, taken apart.
struct Parsed {
    call: Call,
    path: String,
    query: HashMap<String, String>,
    accept: String,
    body: Bytes,
    has_resource: bool,
}

fn parse(user: &str, method: &Method, uri: &http::Uri, headers: &HeaderMap, body: Bytes) -> Parsed {
    let path = uri.path().to_owned();
    let query: HashMap<String, String> = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect();
    let header = |name: http::header::HeaderName| -> String {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let accept = header(http::header::ACCEPT);
    let content_type = header(http::header::CONTENT_TYPE);
    let segments: Vec<String> = path
        .split('/')
        .filter(|s| !s.is_empty())
        .map(|s| {
            form_urlencoded::parse(format!("x={}", s.replace('+', "%2B")).as_bytes())
                .next()
                .map_or_else(String::new, |(_, v)| v.into_owned())
        })
        .collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest): (&str, &str, &[&str]) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (group, version, rest),
        _ => ("", "", &[]),
    };
    let (namespace, resource, name, subresource) = match rest {
        ["namespaces"] => ("", "namespaces", "", ""),
        ["namespaces", ns] => ("", "namespaces", *ns, ""),
        ["namespaces", ns, sub @ ("status" | "finalize")] => ("", "namespaces", *ns, *sub),
        ["namespaces", ns, resource] => (*ns, *resource, "", ""),
        ["namespaces", ns, resource, name] => (*ns, *resource, *name, ""),
        ["namespaces", ns, resource, name, sub @ ..] => {
            (*ns, *resource, *name, sub.first().copied().unwrap_or(""))
        }
        [resource] => ("", *resource, "", ""),
        [resource, name] => ("", *resource, *name, ""),
        [resource, name, sub, ..] => ("", *resource, *name, *sub),
        [] => ("", "", "", ""),
    };
    let metadata_only = accept.contains("as=PartialObjectMetadata");
    let truthy = |name: &str| {
        query
            .get(name)
            .is_some_and(|v| v == "true" || v == "1" || v.is_empty())
    };
    let has_resource = !resource.is_empty();
    let verb = if !has_resource {
        Verb::Discovery
    } else if *method == Method::GET || *method == Method::HEAD {
        match (truthy("watch"), name.is_empty(), metadata_only) {
            (true, _, false) => Verb::Watch,
            (true, _, true) => Verb::WatchMetadata,
            (false, true, false) => Verb::List,
            (false, true, true) => Verb::ListMetadata,
            (false, false, false) => Verb::Get,
            (false, false, true) => Verb::GetMetadata,
        }
    } else if *method == Method::POST {
        Verb::Create
    } else if *method == Method::PUT {
        Verb::Update
    } else if *method == Method::PATCH {
        if content_type.starts_with("application/apply-patch") {
            Verb::Apply
        } else if content_type.starts_with("application/json-patch") {
            Verb::JsonPatch
        } else {
            Verb::MergePatch
        }
    } else if name.is_empty() {
        Verb::DeleteCollection
    } else {
        Verb::Delete
    };
    let selectors: Vec<&str> = ["labelSelector", "fieldSelector"]
        .iter()
        .filter_map(|n| query.get(*n).map(String::as_str))
        .filter(|s| !s.is_empty())
        .collect();
    let call = Call {
        user: user.to_owned(),
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        resource: if has_resource {
            resource.to_owned()
        } else {
            path.clone()
        },
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        field_manager: query.get("fieldManager").cloned().unwrap_or_default(),
        selector: selectors.join(";"),
        answer: Answer::Pending,
        body: if body.is_empty() {
            None
        } else {
            serde_json::from_slice(&body).ok()
        },
    };
    Parsed {
        call,
        path,
        query,
        accept,
        body,
        has_resource,
    }
}

enum Reply {
    Json(StatusCode, Value),
    Text(StatusCode, &'static str),
    Failure(Failure),
    Watch(watch::WatchBody),
}

impl Reply {
    fn code(&self) -> u16 {
        match self {
            Reply::Json(code, _) | Reply::Text(code, _) => code.as_u16(),
            Reply::Failure(failure) => failure.code().as_u16(),
            Reply::Watch(_) => 200,
        }
    }

    fn into_response(self) -> Response<AnswerBody> {
        let whole = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        let code = self.code();
        let (kind, retry_after, body) = match self {
            Reply::Json(_, value) => ("application/json", None, whole(Bytes::from(value.to_string()))),
            Reply::Text(_, text) => (
                "text/plain; charset=utf-8",
                None,
                whole(Bytes::from_static(text.as_bytes())),
            ),
            Reply::Failure(failure) => match (failure.json(), &failure) {
                (Some(value), Failure::Status(status)) => (
                    "application/json",
                    status.retry_after,
                    whole(Bytes::from(value.to_string())),
                ),
                _ => (
                    "text/plain; charset=utf-8",
                    None,
                    whole(Bytes::from_static(b"404 page not found\n")),
                ),
            },
            Reply::Watch(body) => ("application/json", None, body.boxed_unsync()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        if let Some(seconds) = retry_after {
            headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
        }
        response
    }
}

fn failure_of(fault: &Fault, def: Option<&ResourceDef>, call: &Call) -> Option<Failure> {
    Some(match fault {
        Fault::Conflict => match def {
            Some(def) => Failure::modified(def, &call.name),
            None => Failure::new(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
        },
        Fault::TooManyRequests { retry_after } => Failure::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        )
        .retry_after(*retry_after),
        Fault::Status(code) => match code {
            400 => Failure::bad_request("the server could not understand the request"),
            401 => Failure::new(401, "Unauthorized", "Unauthorized"),
            403 => Failure::new(
                403,
                "Forbidden",
                format!("{} is forbidden: refused by the test", call.resource),
            ),
            404 => Failure::Text404,
            409 => Failure::new(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => Failure::expired("too old resource version"),
            429 => Failure::new(429, "TooManyRequests", "too many requests").retry_after(1),
            500 => Failure::new(
                500,
                "InternalError",
                "Internal error occurred: injected by the test",
            ),
            503 => Failure::new(
                503,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => Failure::new(
                504,
                "Timeout",
                "request did not complete within the allotted timeout",
            ),
            other => Failure::new(*other, "", "injected by the test"),
        },
        _ => return None,
    })
}

impl ApiServer {
    async fn handle(self, user: Arc<str>, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|e| Box::new(e) as BoxError)?
            .to_bytes();
        // Impersonation, as an administrator may do it.
        let user = match parts
            .headers
            .get("impersonate-user")
            .and_then(|v| v.to_str().ok())
        {
            Some(other) => Arc::from(other),
            None => user,
        };
        let parsed = parse(&user, &parts.method, &parts.uri, &parts.headers, body);

        let (at, dead, fault) = {
            let mut inner = self.lock();
            let at = inner.log.len();
            inner.log.push(parsed.call.clone());
            let dead = inner
                .dead
                .as_ref()
                .filter(|(matcher, _)| matcher.matches(&parsed.call))
                .map(|(_, how)| *how);
            let fault = if dead.is_none() {
                inner.take_fault(&parsed.call)
            } else {
                None
            };
            (at, dead, fault)
        };
        let settle = |answer: Answer| {
            if let Some(call) = self.lock().log.get_mut(at) {
                call.answer = answer;
            }
        };
        match dead {
            Some(Crash::Hang) => return std::future::pending().await,
            Some(Crash::Error) => {
                settle(Answer::Broken);
                return Err(connection_reset());
            }
            None => {}
        }
        match &fault {
            Some(Fault::Hang) => return std::future::pending().await,
            Some(Fault::ConnectionError) => {
                settle(Answer::Broken);
                return Err(connection_reset());
            }
            Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(fault) => {
                let def =
                    self.lock()
                        .store
                        .def(&parsed.call.group, &parsed.call.version, &parsed.call.resource);
                if let Some(failure) = failure_of(fault, def.as_deref(), &parsed.call) {
                    settle(Answer::Code(failure.code().as_u16()));
                    return Ok(Reply::Failure(failure).into_response());
                }
            }
            None => {}
        }
        let (reply, lost) = {
            let mut inner = self.lock();
            let reply = inner.answer(&parsed, fault.as_ref());
            let lost = inner.count_write(&parsed.call, reply.code()) || fault == Some(Fault::AnswerLost);
            (reply, lost)
        };
        if lost {
            settle(Answer::Lost(reply.code()));
            return Err(connection_reset());
        }
        match fault {
            Some(Fault::AnswerHangs) => {
                settle(Answer::Lost(reply.code()));
                return std::future::pending().await;
            }
            Some(Fault::AnswerDelay(time)) => {
                settle(Answer::Code(reply.code()));
                tokio::time::sleep(time).await;
            }
            _ => settle(Answer::Code(reply.code())),
        }
        Ok(reply.into_response())
    }
}

impl Inner {
    fn answer(&mut self, request: &Parsed, fault: Option<&Fault>) -> Reply {
        if !request.has_resource {
            return match discovery::answer(&self.store.defs, &request.path, &request.accept) {
                Ok(Some(value)) => Reply::Json(StatusCode::OK, value),
                Ok(None) => Reply::Text(StatusCode::OK, "ok"),
                Err(()) => Reply::Failure(Failure::Text404),
            };
        }
        self.resource(request, fault).unwrap_or_else(Reply::Failure)
    }

    /// RBAC: a refusal comes before anything else, also for kinds that are not served.
    fn authorize(&self, call: &Call, verb: &str) -> Result<(), Failure> {
        let full = if call.subresource.is_empty() {
            call.resource.clone()
        } else {
            format!("{}/{}", call.resource, call.subresource)
        };
        if !self
            .denials
            .iter()
            .any(|d| d.covers(&call.user, verb, &full, &call.namespace))
        {
            return Ok(());
        }
        let scope = if call.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", call.namespace)
        };
        let qualified = if call.group.is_empty() {
            call.resource.clone()
        } else {
            format!("{}.{}", call.resource, call.group)
        };
        let subject = if call.name.is_empty() {
            qualified
        } else {
            format!("{qualified} {:?}", call.name)
        };
        let mut details = json!({ "kind": call.resource });
        if !call.name.is_empty() {
            details["name"] = json!(call.name);
        }
        if !call.group.is_empty() {
            details["group"] = json!(call.group);
        }
        Err(Failure::new(
            403,
            "Forbidden",
            format!(
                "{subject} is forbidden: User {:?} cannot {verb} resource {full:?} in API group {:?} {scope}",
                call.user, call.group
            ),
        )
        .details(details))
    }

    fn resource(&mut self, request: &Parsed, fault: Option<&Fault>) -> Result<Reply, Failure> {
        let call = &request.call;
        self.authorize(call, call.verb.rbac())?;
        let def = self
            .store
            .def(&call.group, &call.version, &call.resource)
            .ok_or(Failure::Text404)?;
        if !call.namespace.is_empty() && !def.namespaced {
            return Err(Failure::Text404);
        }
        match call.subresource.as_str() {
            "" => {}
            "status" if def.status_subresource => {}
            _ => return Err(Failure::Text404),
        }
        let param = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let metadata_only = request.accept.contains("as=PartialObjectMetadata");
        let manager = if param("fieldManager").is_empty() {
            "unknown"
        } else {
            param("fieldManager")
        };
        let target = Target {
            def: &def,
            namespace: &call.namespace,
            name: &call.name,
            subresource: &call.subresource,
            manager,
            dry_run: param("dryRun") == "All",
        };
        let id = Id {
            resource: (def.group.clone(), def.plural.clone()),
            namespace: call.namespace.clone(),
            name: call.name.clone(),
        };
        let show = |object: &Value| watch::present(object, &def.api_version(), metadata_only);
        let written = |written: Written| {
            let code = if written.created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Ok(Reply::Json(code, show(&written.object)))
        };
        if call.verb.is_write() && param("fieldManager").len() > 128 {
            return Err(patch_options(
                "fieldManager",
                "FieldValueTooLong",
                "Too long: may not be more than 128 bytes",
            ));
        }
        match call.verb {
            Verb::Get | Verb::GetMetadata => {
                let object = self
                    .store
                    .get(&id)
                    .ok_or_else(|| Failure::not_found(&def, &call.name))?;
                Ok(Reply::Json(StatusCode::OK, show(&object)))
            }
            Verb::List | Verb::ListMetadata => self.list(&def, request, metadata_only),
            Verb::Watch | Verb::WatchMetadata => self.watch(&def, request, metadata_only, fault),
            Verb::Create => {
                if def.namespaced && call.namespace.is_empty() {
                    return Err(method_not_allowed());
                }
                let body = json_body(request)?;
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                written(self.store.create(&Target { name, ..target }, body.clone())?)
            }
            Verb::Update => {
                let body = json_body(request)?;
                written(self.store.put(&target, body.clone())?)
            }
            Verb::MergePatch => {
                let body = json_body(request)?;
                written(self.store.patch(&target, |object| patch::merge(object, body))?)
            }
            Verb::JsonPatch => {
                let body = json_body(request)?;
                written(self.store.patch(&target, |object| patch::json(object, body))?)
            }
            Verb::Apply => {
                if param("fieldManager").is_empty() {
                    return Err(patch_options(
                        "fieldManager",
                        "FieldValueRequired",
                        "Required value: is required for apply patch",
                    ));
                }
                if self.store.get(&id).is_none() {
                    self.authorize(call, "create")?;
                }
                let body = json_body(request)?;
                written(
                    self.store
                        .apply(&target, body, matches!(param("force"), "true" | "1"))?,
                )
            }
            Verb::Delete => {
                let options = delete_options(request);
                match self.store.delete(&target, &options)? {
                    Deleted::Terminating(object) => Ok(Reply::Json(StatusCode::OK, show(&object))),
                    Deleted::Gone(object) => {
                        let mut details = json!({ "name": call.name, "kind": def.plural, "uid": object["metadata"]["uid"] });
                        if !def.group.is_empty() {
                            details["group"] = json!(def.group);
                        }
                        Ok(Reply::Json(
                            StatusCode::OK,
                            json!({
                                "kind": "Status",
                                "apiVersion": "v1",
                                "metadata": {},
                                "status": "Success",
                                "details": details,
                            }),
                        ))
                    }
                }
            }
            Verb::DeleteCollection => {
                let options = delete_options(request);
                let selector = Selector::parse(param("labelSelector"), param("fieldSelector"), def.builtin)?;
                let mut deleted = Vec::new();
                for object in self.store.list(&id.resource, &call.namespace) {
                    if !selector.matches(&object) {
                        continue;
                    }
                    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
                    let (namespace, name) = (field("namespace"), field("name"));
                    let one = Target {
                        namespace: &namespace,
                        name: &name,
                        ..target
                    };
                    if self.store.delete(&one, &options).is_ok() {
                        deleted.push(show(&object));
                    }
                }
                let revision = self.store.revision();
                Ok(Reply::Json(
                    StatusCode::OK,
                    list_json(&def, deleted, revision, metadata_only),
                ))
            }
            Verb::Discovery => Err(Failure::Text404),
        }
    }

    fn list(&mut self, def: &ResourceDef, request: &Parsed, metadata_only: bool) -> Result<Reply, Failure> {
        let param = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let selector = Selector::parse(param("labelSelector"), param("fieldSelector"), def.builtin)?;
        let resource = (def.group.clone(), def.plural.clone());
        let limit: usize = param("limit").parse().unwrap_or(0);
        let (mut revision, after) = match param("continue") {
            "" => (self.store.revision(), None),
            token => {
                let (revision, key) = token
                    .split_once(':')
                    .and_then(|(r, key)| Some((r.parse::<u64>().ok()?, key.to_owned())))
                    .ok_or_else(|| Failure::bad_request("continue key is not valid"))?;
                if revision < self.store.oldest_revision(&resource) {
                    return Err(Failure::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
                    ));
                }
                (revision, Some(key))
            }
        };
        if revision == 0 {
            revision = self.store.revision();
        }
        let key = |o: &Value| {
            let field = |name: &str| o["metadata"][name].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", field("namespace"), field("name"))
        };
        let mut found: Vec<Arc<Value>> = self
            .store
            .list(&resource, &request.call.namespace)
            .into_iter()
            .filter(|o| {
                selector.only_name().is_none_or(|n| o["metadata"]["name"] == n) && selector.matches(o)
            })
            .filter(|o| after.as_ref().is_none_or(|a| key(o) > *a))
            .collect();
        found.sort_by_key(|o| key(o));
        let mut more = None;
        if limit > 0 && found.len() > limit {
            let left = found.len() - limit;
            found.truncate(limit);
            more = found.last().map(|o| (format!("{revision}:{}", key(o)), left));
        }
        let items: Vec<Value> = found
            .iter()
            .map(|o| {
                let mut shown = watch::present(o, &def.api_version(), metadata_only);
                if def.builtin
                    && !metadata_only
                    && let Some(fields) = shown.as_object_mut()
                {
                    fields.remove("kind");
                    fields.remove("apiVersion");
                }
                shown
            })
            .collect();
        let mut out = list_json(def, items, revision, metadata_only);
        if !def.builtin && !metadata_only {
            out["metadata"]["continue"] = json!("");
        }
        if let Some((token, left)) = more {
            out["metadata"]["continue"] = json!(token);
            // Only a list without selectors knows how many are left.
            if param("labelSelector").is_empty() && param("fieldSelector").is_empty() {
                out["metadata"]["remainingItemCount"] = json!(left);
            }
        }
        Ok(Reply::Json(StatusCode::OK, out))
    }

    fn watch(
        &mut self,
        def: &ResourceDef,
        request: &Parsed,
        metadata_only: bool,
        fault: Option<&Fault>,
    ) -> Result<Reply, Failure> {
        let param = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let selector = Selector::parse(param("labelSelector"), param("fieldSelector"), def.builtin)?;
        let resource = (def.group.clone(), def.plural.clone());
        let interest = Interest {
            resource: resource.clone(),
            version: def.version.clone(),
            api_version: def.api_version(),
            kind: def.kind.clone(),
            namespace: request.call.namespace.clone(),
            selector,
            metadata_only,
        };
        let bookmarks = param("allowWatchBookmarks") == "true";
        let initial = param("sendInitialEvents") == "true";
        if initial && param("resourceVersionMatch") != "NotOlderThan" {
            return Err(Failure::invalid_kind(
                "meta.k8s.io",
                "ListOptions",
                "",
                &[super::failure::Cause::new(
                    "FieldValueForbidden",
                    "resourceVersionMatch",
                    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                        .into(),
                )],
            ));
        }
        let timeout = param("timeoutSeconds")
            .parse()
            .ok()
            .filter(|s| *s > 0)
            .map(Duration::from_secs);
        let from = param("resourceVersion");
        let mut first = Vec::new();
        let mut over = fault == Some(&Fault::WatchEnds);
        let current = self.store.revision();
        let number: u64 = from.parse().unwrap_or(0);
        if fault == Some(&Fault::WatchExpired)
            || (number != 0 && number < self.store.oldest_revision(&resource) && !initial)
        {
            let oldest = self.store.oldest_revision(&resource);
            let status = Failure::expired(format!("too old resource version: {from} ({oldest})"));
            first.push(watch::line("ERROR", &status.json().unwrap_or_default()));
            over = true;
        } else if !over {
            if initial || number == 0 {
                for object in self.store.list(&resource, &interest.namespace) {
                    if interest.selector.matches(&object) {
                        first.push(watch::line("ADDED", &interest.show(&object)));
                    }
                }
                if initial && bookmarks {
                    first.push(watch::bookmark(&interest, current, true));
                }
            } else {
                first.extend(
                    self.store
                        .events_after(&resource, number)
                        .iter()
                        .filter_map(|e| interest.line(e)),
                );
            }
        }
        let timeout = if over { Some(Duration::ZERO) } else { timeout };
        let body = self
            .store
            .watchers
            .open(interest, &request.call.user, bookmarks, first, timeout);
        Ok(Reply::Watch(body))
    }
}

fn list_json(def: &ResourceDef, items: Vec<Value>, revision: u64, metadata_only: bool) -> Value {
    let (kind, api_version) = if metadata_only {
        (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        )
    } else {
        (format!("{}List", def.kind), def.api_version())
    };
    json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": { "resourceVersion": revision.to_string() },
        "items": items,
    })
}

fn json_body(request: &Parsed) -> Result<&Value, Failure> {
    if let Some(body) = &request.call.body {
        return Ok(body);
    }
    let error = serde_json::from_slice::<Value>(&request.body).err();
    Err(Failure::bad_request(format!(
        "the body is no JSON: {}",
        error.map_or_else(|| "it is empty".to_owned(), |e| e.to_string())
    )))
}

fn delete_options(request: &Parsed) -> DeleteOptions {
    let body = request.call.body.clone().unwrap_or_default();
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let param = |name: &str| request.query.get(name).cloned();
    DeleteOptions {
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        propagation: text(&body["propagationPolicy"]).or_else(|| param("propagationPolicy")),
        dry_run: body["dryRun"][0] == "All" || param("dryRun").is_some_and(|v| v == "All"),
    }
}

fn patch_options(field: &str, reason: &'static str, message: &str) -> Failure {
    Failure::invalid_kind(
        "meta.k8s.io",
        "PatchOptions",
        "",
        &[super::failure::Cause::new(reason, field, message.to_owned())],
    )
}

fn method_not_allowed() -> Failure {
    Failure::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
    .details(json!({}))
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, BoxError>> + Send>>;

impl Service<Request<Body>> for UserService {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        Box::pin(self.server.clone().handle(self.user.clone(), request))
    }
}

impl Service<Request<Body>> for ApiServer {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        Box::pin(self.clone().handle(Arc::from(DEFAULT_USER), request))
    }
}
