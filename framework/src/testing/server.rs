//! The handle that tests hold: clients, kinds, the request log, faults, RBAC and direct access to the objects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tower::BoxError;

use super::failure::Failure;
use super::faults::{Crash, Denial, Fault, KillPoint, Matcher, Rule, RuleId, Times};
use super::kinds::ResourceDef;
use super::log::{Call, Mark};
use super::patch;
use super::store::{DeleteOptions, Gc, Id, Store, Target, Written};
use super::watch;

/// Body of the answers: whole, or a watch stream.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// User of [`ApiServer::client`].
pub const DEFAULT_USER: &str = "admin";

/// Field manager of direct access, when the test names none.
pub const TEST_MANAGER: &str = "test";

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) log: Vec<Call>,
    pub(super) rules: Vec<Rule>,
    pub(super) denials: Vec<Denial>,
    pub(super) kill_point: Option<KillPoint>,
    pub(super) dead: Option<(Matcher, Crash)>,
    pub(super) next_rule: u64,
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
    pub(super) server: ApiServer,
    pub(super) user: Arc<str>,
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
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

    /// Whether a kind (`Kind` or `Kind.group`) is served in any version.
    pub fn serves(&self, kind: &str) -> bool {
        self.lock().store.def_of_kind(kind).is_some()
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

    /// Ends what [`ApiServer::terminate_namespace`] holds: everything in it is deleted, and it goes when it is empty.
    pub fn release_namespace(&self, name: &str) -> &Self {
        self.lock().store.release_namespace(name);
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

    /// An object by group and plural resource, if it is there, in the version in which it is stored.
    pub fn find(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let id = Id {
            resource: (group.to_owned(), resource.to_owned()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.lock().store.get(&id).map(|object| (*object).clone())
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
    pub(super) fn take_fault(&mut self, call: &Call) -> Option<Fault> {
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
    pub(super) fn count_write(&mut self, call: &Call, code: u16) -> bool {
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
