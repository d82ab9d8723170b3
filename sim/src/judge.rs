//! Watches every step: each write of the operator is held against what was there before it. What is found is a
//! violation, whatever state the world is in. What the world must come to in the end is the oracle's matter.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reconcile_kit::runtime::Leadership;
use serde_json::{Value, json};

use crate::{
    determinism,
    net::{Asked, Witness, Write},
    outside::Outside,
    rights::Rights,
};

/// Prefix of the operator's annotations and finalizers.
const PREFIX: &str = "routewright.dev/";
/// The annotation by which a creation in Garage survives a crash; the group's name.
const RESERVATION: &str = "garage.rajsingh.info/bucket-reservation-alias";
/// What the operator puts on GatewayClasses; the standard's name.
const CLASS_FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: &'static str,
    /// When, in seconds of the history.
    pub at: u64,
    /// What was seen.
    pub detail: String,
}

#[derive(Default)]
struct State {
    violations: Vec<Violation>,
    leaders: BTreeMap<String, BTreeMap<usize, Leadership>>,
    secrets: Vec<String>,
    writes: u64,
    renewals: u64,
    tampered: bool,
    written: BTreeMap<(String, String), u64>,
    disturbed: BTreeMap<(String, &'static str), u64>,
    refused: BTreeSet<(String, u16)>,
    granted: BTreeMap<String, Rights>,
    excused: BTreeMap<String, Duration>,
    story: Vec<String>,
}

/// What was seen of one history. Clones are the same one.
#[derive(Clone, Default)]
pub struct Judge(Arc<Mutex<State>>);

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Name of the installation.
    pub installation: String,
    /// Number of the replica.
    pub replica: usize,
    /// `--tyk-controller-name`
    pub controller: String,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.installation, self.replica)
    }
}

impl Judge {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These texts must be seen nowhere.
    pub fn keep_secret(&self, text: &str) {
        self.lock().secrets.push(text.to_owned());
    }

    /// A replica takes part in the election; `None`: it is gone.
    pub fn elects(&self, who: &Who, leadership: Option<Leadership>) {
        let mut state = self.lock();
        let replicas = state.leaders.entry(who.installation.clone()).or_default();
        match leadership {
            Some(leadership) => replicas.insert(who.replica, leadership),
            None => replicas.remove(&who.replica),
        };
    }

    /// The replica of an installation that leads.
    pub fn leader(&self, installation: &str) -> Option<usize> {
        let state = self.lock();
        let mut replicas = state.leaders.get(installation)?.iter();
        let found = replicas.find(|(_, leadership)| leadership.is_leader());
        found.map(|(replica, _)| *replica)
    }

    /// How many replicas of an installation lead.
    pub fn leading(&self, installation: &str) -> usize {
        let state = self.lock();
        let replicas = state.leaders.get(installation).into_iter().flatten();
        replicas.filter(|(_, leadership)| leadership.is_leader()).count()
    }

    /// Two replicas may lead until then.
    pub fn excuse(&self, installation: &str, until: Duration) {
        self.lock().excused.insert(installation.to_owned(), until);
    }

    /// Something is wrong.
    pub fn violated(&self, rule: &'static str, detail: impl Into<String>) {
        let mut state = self.lock();
        // The first of a kind tells the story; a thousand more tell nothing.
        if state.violations.iter().filter(|found| found.rule == rule).count() < 3 {
            let at = determinism::now().as_secs();
            state.violations.push(Violation {
                rule,
                at,
                detail: detail.into(),
            });
        }
    }

    /// Everything that was found.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// Writes of operators so far, without the Lease and events.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Somebody changes documents in a Tyk, or it loses them.
    pub fn tamper(&self) {
        self.lock().tampered = true;
    }

    /// Writes of Leases so far.
    pub fn renewals(&self) -> u64 {
        self.lock().renewals
    }

    /// How often which kind of write was seen, by field manager.
    pub fn written(&self) -> BTreeMap<(String, String), u64> {
        self.lock().written.clone()
    }

    /// How often which fault met which kind of request.
    pub fn disturbed(&self) -> BTreeMap<(String, &'static str), u64> {
        self.lock().disturbed.clone()
    }

    /// A line of the history.
    pub fn tell(&self, line: String) {
        let at = determinism::now();
        self.lock()
            .story
            .push(format!("{:>7.1} s  {line}", at.as_secs_f64()));
    }

    /// The history so far, as people read it.
    pub fn story(&self) -> Vec<String> {
        self.lock().story.clone()
    }

    /// No other replica leads while one acts.
    fn check_leaders(&self, who: &Who, what: &str) {
        let others: Vec<usize> = {
            let state = self.lock();
            let excused = state.excused.get(&who.installation);
            if excused.is_some_and(|until| *until > determinism::now()) {
                return;
            }
            let replicas = state.leaders.get(&who.installation);
            replicas
                .into_iter()
                .flatten()
                .filter(|(replica, leadership)| **replica != who.replica && leadership.is_leader())
                .map(|(replica, _)| *replica)
                .collect()
        };
        if !others.is_empty() {
            let detail = format!("{who} does {what} while replica {others:?} leads");
            self.violated("two replicas act in one term", detail);
        }
    }

    fn check_secrets(&self, who: &Who, place: &str, text: &str) {
        let found = self
            .lock()
            .secrets
            .iter()
            .any(|secret| text.contains(secret.as_str()));
        if found {
            self.violated("a secret leaves", format!("{who}: {place}: {text}"));
        }
    }

    /// A call that changed something outside of the cluster.
    pub fn heard(&self, who: &Who, call: &Outside) {
        self.tell(format!(
            "{who}: {} {} ({})",
            call.call,
            call.place,
            short(&call.about)
        ));
        self.check_leaders(who, &call.call);
        let mut state = self.lock();
        state.writes += 1;
        let sort = call.call.split('/').next().unwrap_or_default().trim().to_owned();
        *state.written.entry(("outside".into(), sort)).or_default() += 1;
    }

    /// A witness for one process, which has these rights by its own flags. The cluster lets pass what [`Judge::grant`]
    /// gave last.
    pub fn witness(&self, who: Who, rights: Rights) -> Arc<dyn Witness> {
        Arc::new(Process {
            judge: self.clone(),
            who,
            rights,
        })
    }

    /// Gives an installation rights in the cluster, as its chart does.
    pub fn grant(&self, installation: &str, rights: Rights) {
        self.lock().granted.insert(installation.to_owned(), rights);
    }

    /// No request without a right.
    fn check_right(&self, who: &Who, allowed: bool, asked: &Asked) {
        if !allowed {
            let detail = format!(
                "{who}: {} {} {}/{}{}",
                kind_of_request(asked),
                asked.group,
                asked.namespace,
                asked.name,
                asked.selected
            );
            self.violated("rights are enough", detail);
        }
    }
}

/// `PATCH garagebuckets/status`, `WATCH gateways`.
fn kind_of_request(asked: &Asked) -> String {
    let sub = if asked.subresource.is_empty() { "" } else { "/" };
    let verb = if asked.watch {
        "WATCH"
    } else {
        asked.method.as_str()
    };
    format!("{verb} {}{sub}{}", asked.resource, asked.subresource)
}

fn short(text: &str) -> String {
    text.chars().take(400).collect()
}

struct Process {
    judge: Judge,
    who: Who,
    rights: Rights,
}

impl Witness for Process {
    fn asked(&self, asked: &Asked, sent: &Value) {
        self.judge.check_right(&self.who, self.rights.allow(asked), asked);
        if asked.writes() {
            let place = format!("{} {}/{}", asked.method, asked.resource, asked.subresource);
            self.judge.check_secrets(&self.who, &place, &sent.to_string());
        }
    }

    fn refused(&self, asked: &Asked, status: u16) {
        let place = format!(
            "{} {}/{} -> {status}",
            asked.method, asked.resource, asked.subresource
        );
        self.judge.tell(format!(
            "{}: {place} {}/{}",
            self.who, asked.namespace, asked.name
        ));
        self.judge.lock().refused.insert((place, status));
    }

    fn disturbed(&self, asked: &Asked, fault: &'static str) {
        let key = (kind_of_request(asked), fault);
        *self.judge.lock().disturbed.entry(key).or_default() += 1;
    }

    fn is_allowed(&self, asked: &Asked) -> bool {
        let state = self.judge.lock();
        let granted = state.granted.get(&self.who.installation);
        granted.is_none_or(|rights| rights.allow(asked))
    }

    fn wrote(&self, write: &Write<'_>) {
        let asked = write.asked;
        let what = kind_of_request(asked);
        if asked.method == http::Method::PATCH && write.before.is_none() {
            self.judge
                .check_right(&self.who, self.rights.may_create(asked), asked);
        }
        if asked.resource == "leases" {
            self.judge.lock().renewals += 1;
            let holder = write
                .after
                .map_or(json!(null), |lease| lease["spec"]["holderIdentity"].clone());
            let before = write
                .before
                .map_or(json!(null), |lease| lease["spec"]["holderIdentity"].clone());
            if holder != before {
                self.judge
                    .tell(format!("{}: Lease {before} -> {holder}", self.who));
            }
            return;
        }
        let name = if asked.name.is_empty() {
            write.sent["metadata"]["name"].as_str().unwrap_or_default()
        } else {
            &asked.name
        };
        let detail = format!("{what} {}/{name}", asked.namespace);
        if asked.resource == "events" {
            let text = |field: &str| write.sent[field].as_str().unwrap_or_default().to_owned();
            self.judge.tell(format!(
                "{}: event {}: {}",
                self.who,
                text("reason"),
                text("note")
            ));
            if text("reason") == "DriftMended" && !self.judge.lock().tampered {
                self.judge.violated(
                    "only what somebody changed is called drift",
                    format!("{}: {}", self.who, text("note")),
                );
            }
            return;
        }
        let status = write.sent["status"].to_string();
        let status = if status == "null" { "" } else { &status };
        self.judge
            .tell(format!("{}: {detail} {}", self.who, short(status)));
        self.judge.check_leaders(&self.who, &detail);
        {
            let mut state = self.judge.lock();
            state.writes += 1;
            *state
                .written
                .entry((asked.manager.clone(), what.clone()))
                .or_default() += 1;
        }
        for wrong in foreign(&self.who, write) {
            self.judge.violated(
                "an object of another owner is changed",
                format!("{}: {detail}: {wrong}", self.who),
            );
        }
    }
}

/// What a write has changed that belongs to another owner.
fn foreign(who: &Who, write: &Write<'_>) -> Vec<String> {
    let asked = write.asked;
    let child = matches!(asked.resource.as_str(), "ingresses" | "httproutes")
        && (asked.manager.contains("exposure") || asked.method == http::Method::DELETE);
    if child && asked.subresource.is_empty() {
        return child_write(write);
    }
    let (Some(before), Some(after)) = (write.before, write.after) else {
        // Objects that go with their last finalizer were deleted by another client.
        let gone = write
            .before
            .is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null());
        let record = asked.resource == "configmaps" && asked.namespace == OPERATOR_NAMESPACE;
        return if record || (gone && asked.method == http::Method::PATCH) {
            Vec::new()
        } else {
            vec![format!("it makes or deletes {}", asked.resource)]
        };
    };
    let mut wrong = Vec::new();
    if before["spec"] != after["spec"] {
        wrong.push(format!("spec: {} -> {}", before["spec"], after["spec"]));
    }
    for field in ["labels", "ownerReferences"] {
        if before["metadata"][field] != after["metadata"][field] {
            wrong.push(format!("metadata.{field}"));
        }
    }
    let annotations = |object: &Value| -> BTreeMap<String, Value> {
        let all = object["metadata"]["annotations"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        all.into_iter()
            .filter(|(key, _)| !key.starts_with(PREFIX) && key != RESERVATION)
            .collect()
    };
    if annotations(before) != annotations(after) {
        wrong.push("metadata.annotations".to_owned());
    }
    let finalizers = |object: &Value| -> Vec<String> {
        let all = object["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.iter()
            .filter_map(Value::as_str)
            .filter(|name| !name.starts_with(PREFIX) && *name != CLASS_FINALIZER)
            .map(str::to_owned)
            .collect()
    };
    if finalizers(before) != finalizers(after) {
        wrong.push("metadata.finalizers".to_owned());
    }
    if asked.resource == "httproutes" {
        let parents = |object: &Value| -> Vec<Value> {
            let all = object["status"]["parents"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            all.into_iter()
                .filter(|entry| entry["controllerName"] != who.controller.as_str())
                .collect()
        };
        if parents(before) != parents(after) {
            wrong.push("status.parents of another controller".to_owned());
        }
    }
    wrong
}

/// Namespace of the operator.
pub const OPERATOR_NAMESPACE: &str = "routewright";

/// An Ingress or HTTPRoute that the operator makes, changes or deletes.
fn child_write(write: &Write<'_>) -> Vec<String> {
    let controller = |object: &Value| -> Option<Value> {
        let owners = object["metadata"]["ownerReferences"].as_array()?;
        owners.iter().find(|owner| owner["controller"] == true).cloned()
    };
    let mut wrong = Vec::new();
    let bucket = |owner: &Option<Value>| {
        owner
            .as_ref()
            .is_some_and(|owner| owner["kind"] == "GarageBucket")
    };
    if let Some(before) = write.before {
        let owner = controller(before);
        let adopted =
            before["metadata"]["annotations"]["routewright.dev/adopt"].is_string() && owner.is_none();
        if !bucket(&owner) && !adopted {
            wrong.push(format!("the object was not the operator's: owner {owner:?}"));
        }
    }
    if let Some(after) = write.after {
        if write.asked.method != http::Method::DELETE && !bucket(&controller(after)) {
            wrong.push("the object has no GarageBucket as controller".to_owned());
        }
        if let Some(before) = write.before {
            let (a, b) = (controller(before), controller(after));
            let of = |object: &Value| -> Option<i64> {
                let applied = &object["metadata"]["annotations"]["routewright.dev/applied-generation"];
                applied.as_str()?.parse().ok()
            };
            let same = a.as_ref().map(|o| &o["uid"]) == b.as_ref().map(|o| &o["uid"]);
            if same
                && let (Some(a), Some(b)) = (of(before), of(after))
                && a > b
            {
                wrong.push(format!("generation {b} of its bucket replaces generation {a}"));
            }
            if a.is_some() && a.as_ref().map(|o| &o["uid"]) != b.as_ref().map(|o| &o["uid"]) {
                wrong.push("the object changes hands".to_owned());
            }
        }
    }
    wrong
}
