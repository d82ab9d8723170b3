//! Settled or error → Outcome: asks the planner for the report and makes the object say it, once. The only writer of
//! own status; publishes events on transitions. A failure is said on the object and passed on to Policy. What somebody else
//! overwrites again and again is written ever more rarely.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time},
    jiff::Timestamp,
};
use kube::{Client, Resource};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tower::{Layer, Service};

use super::planner::Boxed;
use crate::{
    ApiKind, ChildState, Children, Entry, ErrorClass, Note, Outcome, Planner, ReconcileError, Report,
    Request, Settled, StatusField,
    api::Target,
    condition::find,
    contest::{self, About, Word, keep_own, parts, timeless},
    events::{EventSink, KubeEvents, reference},
    owner::Patched,
    runtime::{Metrics, metrics::ControllerLabel},
    status::{LiveStatus, StatusChange, StatusContract, StatusMemory, StatusMode, Transition, change},
    status_writer::{KubeStatusWriter, StatusAnswer, StatusError, StatusWriter},
};

/// Everything that reporting needs besides the planner.
pub struct Reporting {
    /// What is ours in status.
    pub contract: StatusContract,
    /// The calls.
    pub writer: Arc<dyn StatusWriter>,
    /// Where events go.
    pub events: Arc<dyn EventSink>,
    /// What was written and not seen back.
    pub memory: StatusMemory,
    undeclared: Mutex<BTreeSet<String>>,
    // By namespace, then name: looked up without building a key.
    said: Mutex<HashMap<String, HashMap<String, Remembered>>>,
    pace: Option<Pace>,
}

/// No object's status is written more often than this.
struct Pace {
    least: Duration,
    // By namespace and name: uid and time of the last write.
    last: Mutex<HashMap<(String, String), (String, Instant)>>,
}

/// How it ended to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// It stands, or nothing more can be done about it.
    Done,
    /// It was written once more over what somebody else had written.
    Again,
    /// Not yet; it may be said this much later.
    Held(Duration),
}

/// What was said about one object.
struct Remembered {
    uid: String,
    notes: HashSet<Note>,
    /// The resourceVersion and the body of a write that another manager's ownership refused.
    refused: Option<(String, Value)>,
}

impl Reporting {
    /// With nothing remembered.
    pub fn new(contract: StatusContract, writer: Arc<dyn StatusWriter>, events: Arc<dyn EventSink>) -> Self {
        Self {
            contract,
            writer,
            events,
            memory: StatusMemory::default(),
            undeclared: Mutex::default(),
            said: Mutex::default(),
            pace: None,
        }
    }

    /// Through this client, as `controller`; with nothing remembered.
    pub fn kube(client: Client, contract: StatusContract, controller: &str) -> Self {
        let events = KubeEvents::new(client.clone(), controller, None);
        Self::new(contract, Arc::new(KubeStatusWriter(client)), Arc::new(events))
    }

    /// Shares what was written with another controller of the same contract.
    #[must_use]
    pub fn sharing(mut self, memory: &StatusMemory) -> Self {
        self.memory = memory.clone();
        self
    }

    /// Writes the status of one object at most this often, for what changes in bursts (a count of attached objects):
    /// the first write goes out at once, the next no earlier than this much later, with what holds by then. A write
    /// that is held back makes the outcome look again when it is due, and its events wait with it. What a failed
    /// reconcile says is not held back: its retries are paced by Policy.
    #[must_use]
    pub fn paced(mut self, least: Duration) -> Self {
        self.pace = Some(Pace {
            least,
            last: Mutex::default(),
        });
        self
    }

    /// The object is gone: forget what was said about it.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.memory.forget(namespace, name);
        if let Some(pace) = &self.pace {
            let mut last = pace.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.remove(&(namespace.to_owned(), name.to_owned()));
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = said.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                said.remove(namespace);
            }
        }
    }
}

/// Layer of [`Conditions`].
pub struct ConditionsLayer<P> {
    reporting: Arc<Reporting>,
    rewrites: Counter,
    planner: PhantomData<fn() -> P>,
}

impl<P> ConditionsLayer<P> {
    /// Reports through this.
    pub fn new(reporting: Arc<Reporting>) -> Self {
        Self {
            reporting,
            rewrites: Counter::default(),
            planner: PhantomData,
        }
    }

    /// Counts there how often a status was written again because somebody else had changed it.
    #[must_use]
    pub fn counting(mut self, metrics: &Metrics) -> Self
    where
        P: Planner,
    {
        let label = ControllerLabel {
            controller: P::NAME.to_owned(),
        };
        self.rewrites = metrics.status_rewrites.get_or_create_owned(&label);
        self
    }
}

impl<P, S> Layer<S> for ConditionsLayer<P> {
    type Service = Conditions<P, S>;
    fn layer(&self, inner: S) -> Self::Service {
        Conditions {
            inner,
            reporting: Arc::clone(&self.reporting),
            rewrites: self.rewrites.clone(),
            planner: PhantomData,
        }
    }
}

/// See the module.
pub struct Conditions<P, S> {
    inner: S,
    reporting: Arc<Reporting>,
    rewrites: Counter,
    planner: PhantomData<fn() -> P>,
}

impl<P, S: Clone> Clone for Conditions<P, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            reporting: Arc::clone(&self.reporting),
            rewrites: self.rewrites.clone(),
            planner: PhantomData,
        }
    }
}

impl<P, S: fmt::Debug> fmt::Debug for Conditions<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Conditions").field(&self.inner).finish()
    }
}

/// So many conflicts in a row before one is said on the object: the next look usually mends it.
const QUIET_CONFLICTS: u32 = 3;

impl<P, S> Service<Request<P::Object>> for Conditions<P, S>
where
    P: Planner,
    S: Service<Request<P::Object>, Response = Settled<P::Verdict>, Error = ReconcileError>,
    S::Future: Send + 'static,
{
    type Response = Outcome;
    type Error = ReconcileError;
    type Future = Boxed<Outcome>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<P::Object>) -> Self::Future {
        let object = Arc::clone(&request.object);
        let (attempt, patches) = (request.attempt, request.patches.clone());
        let inner = self.inner.call(request);
        let (reporting, rewrites) = (Arc::clone(&self.reporting), self.rewrites.clone());
        Box::pin(async move {
            let (report, failure) = match inner.await {
                Ok(settled) => {
                    if settled.released && object.meta().deletion_timestamp.is_some() {
                        return Ok(Outcome::Done);
                    }
                    let mut report = P::report(&object, &settled.verdict, &settled.children);
                    report.outcome = report.outcome.no_later_than(settled.requeue);
                    contested(&mut report, &settled.children);
                    (report, failed_child(&settled.children))
                }
                Err(error) => (P::report_error(&object, &error), Some(error)),
            };
            if let Some(error) = &failure
                && is_quiet(error.class, attempt)
            {
                return Err(error.clone());
            }
            let outcome = report.outcome.clone();
            let paced = failure.is_none();
            // However the run ended: what is said must find the version that its own patches led to.
            let patched = patches.latest();
            let end = reporting.say::<P>(&object, report, patched, paced).await?;
            if end == Said::Again {
                rewrites.inc();
            }
            match (failure, end) {
                (Some(error), _) => Err(error),
                (None, Said::Held(wait)) => Ok(outcome.no_later_than(Some(wait))),
                (None, _) => Ok(outcome),
            }
        })
    }
}

/// Failures that are not worth a word on the object.
fn is_quiet(class: ErrorClass, attempt: u32) -> bool {
    match class {
        ErrorClass::Shutdown | ErrorClass::NotReady => true,
        ErrorClass::Conflict => attempt < QUIET_CONFLICTS,
        _ => false,
    }
}

fn failed_child(children: &Children) -> Option<ReconcileError> {
    children.0.iter().find_map(|child| match &child.state {
        ChildState::Failed(class, message) => Some(ReconcileError::new(*class, message.clone())),
        _ => None,
    })
}

/// A contest is the framework's own finding, so its retry and its event are the framework's too.
fn contested(report: &mut Report, children: &Children) {
    for child in &children.0 {
        if let ChildState::Contested { manager, retry } = &child.state {
            let outcome = std::mem::replace(&mut report.outcome, Outcome::Done);
            report.outcome = outcome.no_later_than(Some(*retry));
            let text = format!(
                "{} {}/{}: {manager} keeps undoing what this operator sets; it is set again every 5 minutes",
                child.kind.kind, child.namespace, child.name
            );
            report.notes.push(Note {
                warning: true,
                reason: "ContestedField".into(),
                message: text,
            });
        }
    }
}

/// How often a status body is cut down to what the installed schema knows.
const MAX_CUTS: usize = 4;

impl Pace {
    /// How long a write about this object has to wait still.
    fn wait(&self, namespace: &str, name: &str, uid: &str) -> Option<Duration> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, at) = last.get(&(namespace.to_owned(), name.to_owned()))?;
        let wait = (*at + self.least).saturating_duration_since(Instant::now());
        (of == uid && !wait.is_zero()).then_some(wait)
    }

    fn wrote(&self, namespace: &str, name: &str, uid: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        last.insert(key, (uid.to_owned(), Instant::now()));
    }
}

impl Reporting {
    /// Makes the object say it, unless that is held back: `paced` and said too recently, or said again and again while
    /// somebody else says otherwise.
    async fn say<P: Planner>(
        &self,
        object: &P::Object,
        mut report: Report,
        patched: Option<Patched>,
        paced: bool,
    ) -> Result<Said, ReconcileError> {
        let meta = object.meta();
        let kind = ApiKind::of::<P::Object>();
        let (namespace, name) = (
            meta.namespace.as_deref().unwrap_or(""),
            meta.name.as_deref().unwrap_or(""),
        );
        let (uid, cached) = (
            meta.uid.as_deref().unwrap_or(""),
            meta.resource_version.as_deref().unwrap_or(""),
        );
        let target = Target {
            kind: &kind,
            namespace,
            name,
        };
        let mut notes = std::mem::take(&mut report.notes);
        if report.untouched {
            // Said even on the first look: nothing on the object tells of it.
            self.publish(object, notes, &[], true).await;
            return Ok(Said::Done);
        }
        let pending = self.memory.recall(namespace, name, uid, cached);
        let mut live = match &pending {
            Some(pending) => pending.live.clone(),
            None => self.live::<P>(object),
        };
        let (version, set) = patched.map(|p| (p.version, p.status)).unzip();
        for (name, value) in set.into_iter().flatten() {
            // What the run wrote itself, and the report does not name, is there and stays.
            if let Some(name) = self.contract.fields.iter().find(|field| **field == name) {
                live.fields.insert(name, value);
            }
        }
        // The newest version that we know of is the one that the write must find.
        let mut version = version
            .or(pending.map(|p| p.version))
            .unwrap_or_else(|| cached.to_owned());
        let about = About {
            namespace,
            name,
            uid,
            generation: meta.generation,
        };
        let (mut written, mut refused, mut relieved) = (false, None, false);
        let mut logged = Vec::new();
        let mut end = Said::Done;
        for _ in 0..MAX_CUTS {
            self.cut(&mut report);
            let now = Time(Timestamp::now());
            let Some(mut change) = change(&self.contract, &report, meta.generation, &live, &now) else {
                break;
            };
            if self.was_refused(namespace, name, uid, &version, &change.body) {
                notes.extend(self.refusals(namespace, name));
                break;
            }
            let word = Word::new(&self.contract, &report, &live);
            let judged = self.memory.contests().judge(about, &word, Instant::now());
            if judged.tell {
                self.tell(object, target, &change, &live).await;
            }
            if let Some(wait) = judged.wait {
                self.publish(object, notes, &[], false).await;
                return Ok(Said::Held(wait));
            }
            if let Some(said) = &judged.said {
                keep_own(&self.contract, said, &mut change.transitions);
            }
            let pace = self.pace.as_ref();
            if let Some(wait) = pace.filter(|_| paced).and_then(|p| p.wait(namespace, name, uid)) {
                return Ok(Said::Held(wait));
            }
            match self
                .writer
                .apply(&self.contract, target, &version, &change.body)
                .await
            {
                Ok(answer) => {
                    written = true;
                    if let Some(pace) = pace {
                        pace.wrote(namespace, name, uid);
                    }
                    let left = leftovers(&self.contract, &report, &change, &answer);
                    let answer = if left.is_empty() {
                        answer
                    } else {
                        self.writer
                            .remove(&self.contract, target, &answer.version, &left)
                            .await
                            .map_err(|error| refusal(target, error))?
                    };
                    logged = transition_notes(&change, &report);
                    notes.extend(logged.iter().cloned());
                    let status = LiveStatus {
                        conditions: answer.conditions,
                        fields: as_answered(&report, change.fields, answer.fields),
                    };
                    let left = parts(&self.contract, &report, &status);
                    let said = contest::said(&self.contract, &change.conditions);
                    self.memory
                        .contests()
                        .wrote(about, &word, judged.again, left, said, Instant::now());
                    self.memory.wrote(namespace, name, uid, &answer.version, status);
                    for t in &change.transitions {
                        log(target, None, t);
                    }
                    if judged.again {
                        end = Said::Again;
                        log_again(target);
                        break;
                    }
                    for t in &change.entry_transitions {
                        log(target, Some((t.field, &t.entry)), &t.condition);
                    }
                    break;
                }
                Err(StatusError::Undeclared(paths)) => self.learn(target, paths)?,
                Err(StatusError::OwnedByAnother(text)) => {
                    let text = format!(
                        "status of {target} belongs to another field manager and is left alone: {text}"
                    );
                    notes.push(Note {
                        warning: true,
                        reason: OWNED_BY_ANOTHER.into(),
                        message: text,
                    });
                    refused = Some((version.clone(), timeless(&change.body)));
                    // Said even on the first look: nothing else tells of it.
                    written = true;
                    break;
                }
                Err(StatusError::Gone) => return Ok(Said::Done),
                Err(StatusError::Failed(error)) if error.class == ErrorClass::Invalid && !relieved => {
                    // An entry that we leave out stays as far as others own it, and lacks then what the schema wants.
                    let over = self.held_back(&report, &live);
                    if over.is_empty() {
                        return Err(error);
                    }
                    let removed = self.writer.remove(&self.contract, target, &version, &over).await;
                    let removed = removed.map_err(|error| refusal(target, error))?;
                    relieved = true;
                    version = removed.version;
                    live = LiveStatus {
                        conditions: removed.conditions,
                        fields: as_answered(&report, live.fields, removed.fields),
                    };
                    self.memory.wrote(namespace, name, uid, &version, live.clone());
                }
                Err(error) => return Err(refusal(target, error)),
            }
        }
        self.publish(object, notes, &logged, written).await;
        if refused.is_some() {
            self.note_refusal(namespace, name, refused);
        }
        Ok(end)
    }

    /// Says once that somebody else writes the same status.
    async fn tell<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        target: Target<'_>,
        change: &StatusChange,
        live: &LiveStatus,
    ) {
        let note = Note {
            warning: true,
            reason: CONTESTED.into(),
            message: format!(
                "somebody else overwrites this status again and again: {}. Does a second operator, or a second \
                 installation of this one, watch this object? Let only one of them do so. Until then it is written again \
                 ever more rarely, down to once in 10 minutes",
                contradiction(change, live)
            ),
        };
        tracing::warn!(
            kind = target.kind.kind,
            namespace = target.namespace,
            name = target.name,
            "{}",
            note.message
        );
        self.events.publish(&reference(object), &note).await;
    }

    /// Entries of ours in live lists that are over.
    fn held_back(&self, report: &Report, live: &LiveStatus) -> Vec<String> {
        if self.contract.mode == StatusMode::Patch {
            return Vec::new();
        }
        entries_over(report, |name| live.fields.get(name), self.contract.conditions)
    }

    /// These paths are left out from now on. An error if that was known already: it did not help.
    fn learn(&self, target: Target<'_>, paths: Vec<String>) -> Result<(), ReconcileError> {
        let mut known = self.undeclared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut learnt = false;
        let text = paths.join(", ");
        for path in paths {
            if known.contains(&path) {
                continue;
            }
            tracing::warn!(
                kind = target.kind.kind,
                path,
                "the installed CRD does not know this field: left out; upgrade the CRD"
            );
            learnt |= known.insert(path);
        }
        if learnt {
            return Ok(());
        }
        Err(ReconcileError::new(
            ErrorClass::Invalid,
            format!("write status of {target}: the installed CRD does not know {text}; upgrade the CRD"),
        ))
    }

    /// The very same write was refused: nothing has changed that could make it pass.
    fn was_refused(&self, namespace: &str, name: &str, uid: &str, version: &str, body: &Value) -> bool {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(namespace)
            .and_then(|names| names.get(name))
            .filter(|said| said.uid == uid)
            .and_then(|said| said.refused.as_ref())
            .is_some_and(|(at, refused)| at == version && *refused == timeless(body))
    }

    fn note_refusal(&self, namespace: &str, name: &str, refused: Option<(String, Value)>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = said.get_mut(namespace).and_then(|names| names.get_mut(name)) {
            said.refused = refused;
        }
    }

    /// What was said of the refusal, to be said no second time.
    fn refusals(&self, namespace: &str, name: &str) -> Vec<Note> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.get(namespace).and_then(|names| names.get(name));
        said.into_iter()
            .flat_map(|said| said.notes.iter().filter(|n| n.reason == OWNED_BY_ANOTHER))
            .cloned()
            .collect()
    }

    fn live<P: Planner>(&self, object: &P::Object) -> LiveStatus {
        let conditions = P::conditions(object);
        // A patch has to carry everybody's conditions.
        let all = self.contract.mode == StatusMode::Patch;
        let ours = |c: &&_| all || self.contract.conditions.iter().any(|t| type_is(c, t));
        LiveStatus {
            conditions: conditions.iter().filter(ours).cloned().collect(),
            fields: self
                .contract
                .fields
                .iter()
                .filter_map(|name| Some((*name, P::status_field(object, name)?)))
                .collect(),
        }
    }

    /// Leaves out what the installed schema does not know, or every look would be a write.
    fn cut(&self, report: &mut Report) {
        let known = self.undeclared.lock().unwrap_or_else(PoisonError::into_inner);
        for path in known.iter() {
            let path = names(path);
            let Some((field, rest)) = path.split_first() else {
                continue;
            };
            if rest.is_empty() {
                report.fields.retain(|(name, _)| name != field);
            }
            for (name, value) in &mut report.fields {
                match value {
                    StatusField::Set(value) if name == field => remove(value, rest),
                    StatusField::Entries(entries) if name == field => {
                        for entry in &mut entries.entries {
                            cut_entry(entry, entries.identity, rest);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Events: transitions, and notes that were not in the last report about this object. On the first look after a
    /// start nothing is repeated unless the status changed too, or the object waits for its deletion: what keeps it is in no
    /// status, and events are soon forgotten. A warning is a line in the log as well, unless it is `logged` already.
    async fn publish<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        notes: Vec<Note>,
        logged: &[Note],
        written: bool,
    ) {
        let meta = object.meta();
        let part = |field: &Option<String>| field.clone().unwrap_or_default();
        let fresh: Vec<Note> = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let before = said
                .get_mut(meta.namespace.as_deref().unwrap_or_default())
                .and_then(|names| names.get_mut(meta.name.as_deref().unwrap_or_default()))
                .filter(|said| Some(said.uid.as_str()) == meta.uid.as_deref());
            match before {
                Some(before) => {
                    let is_new = |note: &&Note| !before.notes.contains(*note);
                    let fresh = notes.iter().filter(is_new).cloned().collect();
                    // Nothing is built where nothing is said: the common case.
                    if !notes.is_empty() || !before.notes.is_empty() {
                        before.notes = notes.into_iter().collect();
                    }
                    fresh
                }
                // Also with nothing to say: what is said next is news, and not the first look.
                None => {
                    let told = written || meta.deletion_timestamp.is_some();
                    let fresh = if told { notes.clone() } else { Vec::new() };
                    let first = Remembered {
                        uid: part(&meta.uid),
                        notes: notes.into_iter().collect(),
                        refused: None,
                    };
                    said.entry(part(&meta.namespace))
                        .or_default()
                        .insert(part(&meta.name), first);
                    fresh
                }
            }
        };
        if !fresh.is_empty() {
            let about = reference(object);
            for note in &fresh {
                if note.warning && !logged.contains(note) {
                    tracing::warn!(
                        kind = %K::kind(&()),
                        namespace = meta.namespace.as_deref().unwrap_or_default(),
                        name = meta.name.as_deref().unwrap_or_default(),
                        reason = %note.reason,
                        "{}",
                        note.message
                    );
                }
                self.events.publish(&about, note).await;
            }
        }
    }
}

/// Reason of the event about a status that is not ours to write.
const OWNED_BY_ANOTHER: &str = "StatusOwnedByAnother";

/// Reason of the event about a status that somebody else writes too.
const CONTESTED: &str = "StatusContested";

/// What stands against what we would write: the first thing that differs.
fn contradiction(change: &StatusChange, live: &LiveStatus) -> String {
    let word = |c: &MetaCondition| format!("{} ({})", c.status, c.reason);
    let against = live.conditions.iter().find_map(|theirs| {
        let ours = find(&change.conditions, &theirs.type_)?;
        let differs =
            (&ours.status, &ours.reason, &ours.message) != (&theirs.status, &theirs.reason, &theirs.message);
        differs.then_some((theirs, ours))
    });
    if let Some((theirs, ours)) = against {
        return format!(
            "its condition {} is {}, and would be {}",
            ours.type_,
            word(theirs),
            word(ours)
        );
    }
    if let Some(ours) = change
        .conditions
        .iter()
        .find(|c| find(&live.conditions, &c.type_).is_none())
    {
        return format!(
            "its condition {} is not there, and would be {}",
            ours.type_,
            word(ours)
        );
    }
    let names = change.fields.keys().chain(live.fields.keys());
    let differing = names
        .copied()
        .find(|name| change.fields.get(name) != live.fields.get(name));
    match differing {
        Some(name) => format!("status.{name} differs from what it would be"),
        None => "a condition is there that would not be".to_owned(),
    }
}

fn log_again(target: Target<'_>) {
    tracing::info!(
        kind = target.kind.kind,
        namespace = target.namespace,
        name = target.name,
        "status was changed by somebody else and is written again"
    );
}

fn refusal(target: Target<'_>, error: StatusError) -> ReconcileError {
    match error {
        StatusError::Failed(error) => error,
        StatusError::OwnedByAnother(text) => {
            let text = format!("write status of {target}: it belongs to another field manager: {text}");
            ReconcileError::new(ErrorClass::Foreign, text)
        }
        StatusError::Stale | StatusError::Gone | StatusError::Undeclared(_) => {
            let text = format!("write status of {target}: it was changed meanwhile");
            ReconcileError::new(ErrorClass::Conflict, text)
        }
    }
}

/// What a transition says; a condition without a message still is one, and nobody should read an empty line.
fn words(transition: &Transition) -> String {
    match (&transition.status, transition.message.is_empty()) {
        (Some(status), true) => format!("condition {} is {status}", transition.type_),
        (None, true) => format!("condition {} is over", transition.type_),
        (_, false) => transition.message.clone(),
    }
}

/// One line per change.
fn log(target: Target<'_>, entry: Option<(&str, &str)>, transition: &Transition) {
    let (field, entry) = entry.unzip();
    tracing::info!(
        kind = target.kind.kind,
        namespace = target.namespace,
        name = target.name,
        field,
        entry,
        condition = transition.type_,
        status = transition.status.as_deref().unwrap_or("removed"),
        reason = transition.reason,
        "{}",
        words(transition)
    );
}

/// Lists of entries as they were answered, with what the API server filled in; other fields as they were written.
fn as_answered(
    report: &Report,
    mut fields: BTreeMap<&'static str, Value>,
    mut answered: Map<String, Value>,
) -> BTreeMap<&'static str, Value> {
    for (name, field) in &report.fields {
        if let (StatusField::Entries(_), Some(value)) = (field, answered.remove(*name)) {
            fields.insert(name, value);
        }
    }
    fields
}

/// What is over and still there after our write, because an older manager holds a share of it. Later items of the list
/// come first, so that removing one moves no other.
fn leftovers(
    contract: &StatusContract,
    report: &Report,
    change: &StatusChange,
    answer: &StatusAnswer,
) -> Vec<String> {
    // A patch leaves nothing of what it replaces.
    if contract.mode == StatusMode::Patch {
        return Vec::new();
    }
    let over = |c: &MetaCondition| {
        contract.conditions.iter().any(|t| type_is(c, t)) && find(&change.conditions, &c.type_).is_none()
    };
    let conditions = answer.conditions.iter().enumerate().rev();
    let conditions = conditions
        .filter(|(_, c)| over(c))
        .map(|(index, _)| format!("conditions/{index}"));
    let fields = answer.fields.keys().filter(|name| {
        contract.fields.contains(&name.as_str()) && !change.fields.contains_key(name.as_str())
    });
    let entries = entries_over(report, |name| answer.fields.get(name), contract.conditions);
    conditions.chain(fields.cloned()).chain(entries).collect()
}

/// What is over in the lists of entries that a report names.
fn entries_over<'a>(
    report: &Report,
    list: impl Fn(&str) -> Option<&'a Value>,
    types: &[&str],
) -> Vec<String> {
    let fields = report.fields.iter();
    let over = fields.filter_map(|(name, field)| match field {
        StatusField::Entries(entries) => Some(entries.leftovers(name, list(name)?, types)),
        _ => None,
    });
    over.flatten().collect()
}

/// The names in `.status.a.b[key="x.y"].c`, without `status` and without what selects list items.
fn names(path: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let split = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == '.' && depth == 0
    };
    let parts = path.split(split).skip(2);
    parts.map(|part| part.split('[').next().unwrap_or(part)).collect()
}

fn type_is(condition: &MetaCondition, type_: &str) -> bool {
    condition.type_ == type_
}

/// Leaves out of an entry what the installed schema does not know.
fn cut_entry(entry: &mut Entry, identity: &str, path: &[&str]) {
    match path {
        [] => {}
        [first, rest @ ..] if *first == identity => remove(&mut entry.identity, rest),
        [last] => drop(entry.rest.remove(*last)),
        [first, rest @ ..] => {
            if let Some(inner) = entry.rest.get_mut(*first) {
                remove(inner, rest);
            }
        }
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match (value, path) {
        (Value::Array(list), path) => list.iter_mut().for_each(|item| remove(item, path)),
        (Value::Object(map), [last]) => drop(map.remove(*last)),
        (Value::Object(map), [first, rest @ ..]) => {
            if let Some(inner) = map.get_mut(*first) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

/// Waiting for something outside is news; anything else that is not true is a warning.
fn transition_notes(change: &StatusChange, report: &Report) -> Vec<Note> {
    let waiting = matches!(report.outcome, Outcome::Waiting { .. });
    change
        .transitions
        .iter()
        .map(|t| match &t.status {
            Some(status) => Note {
                warning: status != "True" && !waiting,
                reason: t.reason.clone().into(),
                message: words(t),
            },
            None => Note {
                warning: false,
                reason: format!("{}Removed", t.type_).into(),
                message: words(t),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Verdict,
        layers::{
            catch_panic::CatchPanicLayer,
            effects::{Effects, EffectsLayer},
            tests::{OwnerLog, TOY_API, Toy, object},
            timeout::TimeoutLayer,
        },
        owner::OwnerPatch,
        settled::SettledChild,
    };
    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
    use serde_json::json;
    use std::collections::VecDeque;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    /// Answers with `answers` in turn, then with success; records bodies and events.
    #[derive(Clone, Default)]
    struct Seam {
        answers: Arc<Mutex<VecDeque<StatusError>>>,
        written: Arc<Mutex<Vec<(String, Value)>>>,
        events: Arc<Mutex<Vec<Note>>>,
        left: Arc<Mutex<Vec<&'static str>>>,
        removed: Arc<Mutex<Vec<String>>>,
    }
    #[async_trait]
    impl StatusWriter for Seam {
        async fn apply(
            &self,
            _: &StatusContract,
            _: Target<'_>,
            version: &str,
            body: &Value,
        ) -> Result<StatusAnswer, StatusError> {
            self.written
                .lock()
                .unwrap()
                .push((version.to_owned(), body.clone()));
            match self.answers.lock().unwrap().pop_front() {
                Some(error) => Err(error),
                None => Ok(StatusAnswer {
                    version: (version.parse::<u64>().unwrap() + 1).to_string(),
                    conditions: self
                        .left
                        .lock()
                        .unwrap()
                        .iter()
                        .map(|type_| of_type(type_))
                        .chain(
                            serde_json::from_value::<Vec<_>>(body["conditions"].clone()).unwrap_or_default(),
                        )
                        .collect(),
                    fields: Map::new(),
                }),
            }
        }
        async fn remove(
            &self,
            _: &StatusContract,
            _: Target<'_>,
            version: &str,
            paths: &[String],
        ) -> Result<StatusAnswer, StatusError> {
            self.removed.lock().unwrap().extend(paths.iter().cloned());
            self.left.lock().unwrap().clear();
            Ok(StatusAnswer {
                version: version.to_owned(),
                ..StatusAnswer::default()
            })
        }
    }
    #[async_trait]
    impl EventSink for Seam {
        async fn publish(&self, _: &ObjectReference, note: &Note) {
            self.events.lock().unwrap().push(note.clone());
        }
    }
    impl Seam {
        fn failing(answers: impl IntoIterator<Item = StatusError>) -> Self {
            let seam = Self::default();
            seam.answers.lock().unwrap().extend(answers);
            seam
        }
        fn bodies(&self) -> Vec<Value> {
            self.written
                .lock()
                .unwrap()
                .iter()
                .map(|(_, body)| body.clone())
                .collect()
        }
        fn reasons(&self) -> Vec<String> {
            self.events
                .lock()
                .unwrap()
                .iter()
                .map(|n| format!("{} {}", n.reason, n.warning))
                .collect()
        }
    }

    fn of_type(type_: &'static str) -> MetaCondition {
        crate::Condition::new(type_, true, "R", "").stamped(None, None, &Time(Timestamp::UNIX_EPOCH))
    }

    type Answer = Result<Settled<u32>, ReconcileError>;
    type Stack = tower::util::BoxCloneSyncService<Request<ConfigMap>, Outcome, ReconcileError>;

    const CONTRACT: StatusContract = StatusContract {
        manager: "kit",
        conditions: &["Ready"],
        fields: &["size"],
        mode: StatusMode::Apply,
    };

    /// The layer alone around an inner service that always answers this.
    fn stack(seam: &Seam, answer: impl Fn() -> Answer + Send + Sync + Clone + 'static) -> Stack {
        let reporting = Reporting::new(CONTRACT, Arc::new(seam.clone()), Arc::new(seam.clone()));
        Stack::new(
            ServiceBuilder::new()
                .layer(ConditionsLayer::<Toy>::new(Arc::new(reporting)))
                .service(service_fn(move |_| {
                    let answer = answer();
                    async move { answer }
                })),
        )
    }
    fn fine() -> Answer {
        Ok(Settled {
            verdict: Verdict::Report(7),
            children: Children::default(),
            requeue: None,
            released: false,
        })
    }
    #[tokio::test]
    async fn a_failure_is_written_to_the_version_that_the_run_left_behind() {
        let seam = Seam::default();
        let failed = || Err(ReconcileError::new(ErrorClass::Transient, "no"));
        let request = object("n");
        request.patches.note("41", Map::new());
        stack(&seam, failed).oneshot(request).await.unwrap_err();
        let versions: Vec<String> = seam.written.lock().unwrap().iter().map(|w| w.0.clone()).collect();
        assert_eq!(versions, ["41"]);
    }

    #[tokio::test]
    async fn a_field_that_the_run_set_itself_is_kept_though_the_cache_does_not_show_it_yet() {
        for fails in [false, true] {
            let seam = Seam::default();
            let answer = move || match fails {
                true => Err(ReconcileError::new(ErrorClass::Transient, "no")),
                false => fine(),
            };
            let request = object("n");
            let set = serde_json::from_value(json!({"size": "7", "foreign": "x"})).unwrap();
            request.patches.note("41", set);
            let _ = stack(&seam, answer).oneshot(request).await;
            let body = seam.bodies().remove(0);
            assert_eq!(
                (&body["size"], &body["foreign"]),
                (&json!("7"), &Value::Null),
                "fails: {fails}"
            );
        }
    }

    /// Records a field of status on the owner, and then ends in this way.
    struct Ending(&'static str);
    impl Effects<Toy> for Ending {
        async fn perform(
            &self,
            _: &Request<ConfigMap>,
            _: Settled<u32>,
            owner: &OwnerPatch,
        ) -> Result<Settled<u32>, ReconcileError> {
            owner.status(json!({"size": "7"})).await?;
            match self.0 {
                "slow" => std::future::pending().await,
                "panic" => panic!("as the story wants it"),
                _ => Err(ReconcileError::new(ErrorClass::Transient, "no")),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_a_run_ends_its_failure_is_said_on_top_of_what_the_run_wrote() {
        for how in ["error", "slow", "panic"] {
            let seam = Seam::default();
            let reporting = Reporting::new(CONTRACT, Arc::new(seam.clone()), Arc::new(seam.clone()));
            let stack = ServiceBuilder::new()
                .layer(ConditionsLayer::<Toy>::new(Arc::new(reporting)))
                .layer(TimeoutLayer(Duration::from_secs(60)))
                .layer(CatchPanicLayer)
                .layer(EffectsLayer::<Toy, _>::new(
                    Arc::new(Ending(how)),
                    Arc::new(OwnerLog::default()),
                    "kit",
                ))
                .service(service_fn(|_: Request<ConfigMap>| async { fine() }));
            stack.oneshot(object("n")).await.unwrap_err();
            let (version, body) = seam.written.lock().unwrap().remove(0);
            assert_eq!((version.as_str(), &body["size"]), ("6", &json!("7")), "{how}");
        }
    }

    fn with_child(state: ChildState) -> Answer {
        let child = SettledChild {
            kind: TOY_API,
            namespace: "ns".into(),
            name: "n".into(),
            state,
            live: None,
        };
        fine().map(|settled| Settled {
            children: Children(vec![child]),
            ..settled
        })
    }

    #[tokio::test]
    async fn a_report_is_written_once_though_the_cache_lags() {
        let seam = Seam::default();
        let stack = stack(&seam, fine);
        assert_eq!(stack.clone().oneshot(object("n")).await, Ok(Outcome::Done));
        // The same object again: the cache has not seen the write, and no event is repeated.
        assert_eq!(stack.clone().oneshot(object("n")).await, Ok(Outcome::Done));
        assert_eq!(seam.bodies().len(), 1);
        assert_eq!(seam.bodies()[0]["conditions"][0]["reason"], "Fine");
        assert_eq!(seam.reasons(), ["Fine false"]);
    }

    #[tokio::test]
    async fn what_keeps_an_object_that_is_deleted_is_said_again_after_a_start() {
        let (lives, goes) = (false, true);
        let stories: [(&[bool], usize); 4] = [
            // The first look after a start: it was said before.
            (&[lives, lives], 0),
            (&[lives, goes], 0),
            (&[goes], 1),
            (&[goes, goes, goes], 1),
        ];
        for (looks, said) in stories {
            let seam = Seam::default();
            let reporting = Reporting::new(CONTRACT, Arc::new(seam.clone()), Arc::new(seam.clone()));
            for going in looks {
                let mut object = ConfigMap::clone(&object("n").object);
                object.metadata.deletion_timestamp = going.then_some(Time(Timestamp::UNIX_EPOCH));
                let held = Note {
                    warning: true,
                    reason: "CleanupFailed".into(),
                    message: "by what is left elsewhere".into(),
                };
                reporting.publish(&object, vec![held], &[], false).await;
            }
            assert_eq!(seam.reasons(), vec!["CleanupFailed true"; said], "{looks:?}");
        }
    }

    #[tokio::test]
    async fn a_failure_is_said_on_the_object_and_passed_on() {
        let seam = Seam::default();
        let error = ReconcileError::new(ErrorClass::Timeout, "too slow");
        let failing = error.clone();
        let result = stack(&seam, move || Err(failing.clone()))
            .oneshot(object("n"))
            .await;
        assert_eq!(result, Err(error));
        assert_eq!(seam.bodies()[0]["conditions"][0]["message"], "too slow");
        assert_eq!(seam.reasons(), ["Failed true"]);
    }

    #[tokio::test]
    async fn a_failed_child_is_said_and_its_class_passed_on() {
        let seam = Seam::default();
        let answer = || with_child(ChildState::Failed(ErrorClass::Forbidden, "no right".into()));
        let error = stack(&seam, answer).oneshot(object("n")).await.unwrap_err();
        assert_eq!(error, ReconcileError::new(ErrorClass::Forbidden, "no right"));
        assert_eq!(seam.bodies().len(), 1);
    }

    #[tokio::test]
    async fn what_the_next_look_mends_is_not_said() {
        for (class, attempt, said) in [
            (ErrorClass::Conflict, 0, 0),
            (ErrorClass::Conflict, 3, 1),
            (ErrorClass::NotReady, 9, 0),
            (ErrorClass::Shutdown, 9, 0),
        ] {
            let seam = Seam::default();
            let mut request = object("n");
            request.attempt = attempt;
            let answer = move || with_child(ChildState::Failed(class, "x".into()));
            assert!(stack(&seam, answer).oneshot(request).await.is_err());
            assert_eq!(seam.bodies().len(), said, "{class:?} {attempt}");
        }
    }

    #[tokio::test]
    async fn the_write_must_find_the_version_that_was_planned_from_or_patched_to() {
        let seam = Seam::default();
        stack(&seam, fine).oneshot(object("n")).await.unwrap();
        let request = object("n");
        request.patches.note("9", Map::new());
        stack(&seam, fine).oneshot(request).await.unwrap();
        let versions: Vec<_> = seam
            .written
            .lock()
            .unwrap()
            .iter()
            .map(|(v, _)| v.clone())
            .collect();
        assert_eq!(versions, ["5", "9"]);
    }

    #[tokio::test]
    async fn each_refusal_of_the_write_has_its_end() {
        let end = |error| async move {
            let seam = Seam::failing([error]);
            let result = stack(&seam, fine).oneshot(object("n")).await.map_err(|e| e.class);
            (result, seam.reasons())
        };
        assert_eq!(end(StatusError::Stale).await, (Err(ErrorClass::Conflict), vec![]));
        assert_eq!(end(StatusError::Gone).await, (Ok(Outcome::Done), vec![]));
        let failed = StatusError::Failed(ReconcileError::new(ErrorClass::Transient, "x"));
        assert_eq!(end(failed).await, (Err(ErrorClass::Transient), vec![]));
        let (result, reasons) = end(StatusError::OwnedByAnother("them".into())).await;
        assert_eq!(
            (result, reasons),
            (Ok(Outcome::Done), vec!["StatusOwnedByAnother true".to_owned()])
        );
    }

    #[test]
    fn what_the_schema_does_not_know_is_left_out_for_ever() {
        let reporting = Reporting::new(
            StatusContract {
                manager: "kit",
                conditions: &[],
                fields: &["where"],
                mode: StatusMode::Apply,
            },
            Arc::new(Seam::default()),
            Arc::new(Seam::default()),
        );
        reporting
            .undeclared
            .lock()
            .unwrap()
            .extend([".status.where.a".to_owned(), ".status.where.l.x".to_owned()]);
        let value = json!({"a": 1, "b": 2, "l": [{"x": 1, "y": 2}]});
        let mut report = Report::new(Outcome::Done).field("where", StatusField::Set(value));
        reporting.cut(&mut report);
        assert_eq!(
            report.fields,
            [("where", StatusField::Set(json!({"b": 2, "l": [{"y": 2}]})))]
        );
        reporting
            .undeclared
            .lock()
            .unwrap()
            .insert(".status.where".to_owned());
        reporting.cut(&mut report);
        assert_eq!(report.fields, []);
    }

    #[tokio::test]
    async fn an_unknown_field_never_costs_the_condition() {
        let seam = Seam::failing([StatusError::Undeclared(vec![".status.size.x".into()])]);
        assert_eq!(stack(&seam, fine).oneshot(object("n")).await, Ok(Outcome::Done));
        assert_eq!(seam.bodies().len(), 2);
    }

    #[tokio::test]
    async fn a_field_that_cannot_be_left_out_is_an_error_and_no_endless_try() {
        let unknown = || StatusError::Undeclared(vec![".status.conditions[type=\"Ready\"].x".into()]);
        let seam = Seam::failing([unknown(), unknown(), unknown()]);
        let error = stack(&seam, fine).oneshot(object("n")).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid);
        assert!(error.message.contains("upgrade the CRD"), "{error}");
        assert_eq!(seam.bodies().len(), 2);
    }

    #[test]
    fn names_of_a_path_do_not_stumble_over_what_selects_list_items() {
        assert_eq!(names(".status.a[name=\"x.y\"].b[0].c"), ["a", "b", "c"]);
        assert_eq!(names(".status"), [""; 0]);
    }

    #[tokio::test]
    async fn a_refused_write_is_not_sent_again_until_something_changed() {
        let refused = || StatusError::OwnedByAnother("them".into());
        let seam = Seam::failing([refused(), refused()]);
        let stack = stack(&seam, fine);
        for _ in 0..3 {
            stack.clone().oneshot(object("n")).await.unwrap();
        }
        assert_eq!(seam.bodies().len(), 1);
        assert_eq!(seam.reasons(), ["StatusOwnedByAnother true"]);
        let mut request = object("n");
        let changed = Arc::get_mut(&mut request.object).unwrap();
        changed.metadata.resource_version = Some("6".into());
        stack.oneshot(request).await.unwrap();
        assert_eq!(seam.bodies().len(), 2, "the object changed");
        assert_eq!(seam.reasons(), ["StatusOwnedByAnother true"], "said once");
    }

    #[tokio::test]
    async fn what_an_older_manager_holds_back_is_removed_from_the_end() {
        let contract = StatusContract {
            manager: "kit",
            conditions: &["Ready", "Old"],
            fields: &["size"],
            mode: StatusMode::Apply,
        };
        let list = ["Theirs", "Old", "Ready"].map(of_type);
        let answer = StatusAnswer {
            version: "9".into(),
            conditions: list.into(),
            fields: Map::from_iter(["size", "theirs"].map(|name| (name.to_owned(), json!(1)))),
        };
        let change = StatusChange {
            body: json!({}),
            conditions: vec![],
            fields: Default::default(),
            transitions: vec![],
            entry_transitions: vec![],
        };
        assert_eq!(
            leftovers(&contract, &Report::new(Outcome::Done), &change, &answer),
            ["conditions/2", "conditions/1", "size"]
        );
        let seam = Seam::default();
        seam.left.lock().unwrap().push("Ready");
        let quiet = || {
            fine().map(|s| Settled {
                verdict: Verdict::Report(0),
                ..s
            })
        };
        stack(&seam, quiet).oneshot(object("n")).await.unwrap();
        assert_eq!(
            seam.removed.lock().unwrap().len(),
            0,
            "named in the report: it stays"
        );
    }

    #[tokio::test]
    async fn what_was_said_of_an_object_goes_with_it() {
        let seam = Seam::default();
        let reporting = Reporting::new(
            StatusContract {
                manager: "kit",
                conditions: &["Ready"],
                fields: &[],
                mode: StatusMode::Apply,
            },
            Arc::new(seam.clone()),
            Arc::new(seam.clone()),
        );
        let object = object("n").object;
        let report = Report::new(Outcome::Done).condition(crate::Condition::new("Ready", true, "Fine", ""));
        reporting
            .say::<Toy>(&object, report.clone(), None, true)
            .await
            .unwrap();
        assert_eq!(reporting.said.lock().unwrap().len(), 1);
        reporting.forget("ns", "n");
        assert_eq!(reporting.said.lock().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn a_contest_is_an_event_and_a_slow_retry() {
        let seam = Seam::default();
        let answer = || {
            let retry = std::time::Duration::from_secs(300);
            with_child(ChildState::Contested {
                manager: "them".into(),
                retry,
            })
        };
        let outcome = stack(&seam, answer).oneshot(object("n")).await.unwrap();
        assert_eq!(
            outcome,
            Outcome::RequeueAfter(std::time::Duration::from_secs(300))
        );
        assert!(seam.reasons().contains(&"ContestedField true".to_owned()));
    }
}
