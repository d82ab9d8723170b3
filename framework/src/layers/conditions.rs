//! Settled or error → Outcome: asks the planner for the report and makes the object say it, once. The only writer of
//! own status; publishes events on transitions. A failure is said on the object and passed on to Policy. What somebody else
//! overwrites again and again is written ever more rarely.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
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

use super::{planner::Boxed, policy::delay};
use crate::{
    ApiKind, ChildState, Children, ErrorClass, Note, Outcome, Planner, ReconcileError, Report, Request,
    Settled, StatusField,
    api::Target,
    condition::find,
    contest::{self, About, Left, Word, keep_own, parts, timeless},
    events::{EventSink, KubeEvents, reference},
    owner::Patched,
    runtime::{Metrics, metrics::ControllerLabel},
    status::{
        LiveStatus, StatusChange, StatusContract, StatusMemory, StatusMode, Transition, change, is_stale,
        outside,
    },
    status_writer::{KubeStatusWriter, StatusAnswer, StatusError, StatusWriter},
    undeclared::{Refusals, Undeclared, without},
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
    undeclared: Undeclared,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    /// It was written once more over what another client had written.
    rewrote: bool,
    /// Something of it was held back or refused; it may be said this much later.
    later: Option<Duration>,
}

impl Said {
    const DONE: Self = Self {
        rewrote: false,
        later: None,
    };

    fn held(wait: Duration) -> Self {
        Self {
            later: Some(wait),
            ..Self::DONE
        }
    }
}

/// What was said about one object.
#[derive(Default)]
struct Remembered {
    uid: String,
    notes: HashSet<Note>,
    /// The resourceVersion and the body of a write that another manager's ownership refused.
    refused: Option<(String, Value)>,
    /// Values of this object that the schema does not take.
    mistyped: Refusals,
}

impl Reporting {
    /// With nothing remembered.
    pub fn new(contract: StatusContract, writer: Arc<dyn StatusWriter>, events: Arc<dyn EventSink>) -> Self {
        Self {
            contract,
            writer,
            events,
            memory: StatusMemory::default(),
            undeclared: Undeclared::default(),
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
/// A failure that usually passes appears on the object after this time: a hiccup of an API server is no status write, no
/// event and no alert, least of all while the server is overloaded.
const QUIET_FOR: Duration = Duration::from_secs(10);
/// A foreign object in the way of a child, or an old child that has not gone yet, is looked at again after this: no watch
/// may tell of its end.
const BLOCKED_RETRY: Duration = Duration::from_secs(300);
/// A status that belongs to another field manager is looked at again after this; a write is tried if the object changed.
const REFUSED_RETRY: Duration = Duration::from_secs(300);

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
        let since = request.failing_since.unwrap_or_else(Instant::now);
        let inner = self.inner.call(request);
        let (reporting, rewrites) = (Arc::clone(&self.reporting), self.rewrites.clone());
        Box::pin(async move {
            let (report, failure, of_api_server) = match inner.await {
                Ok(settled) => {
                    if settled.released && object.meta().deletion_timestamp.is_some() {
                        return Ok(Outcome::Done);
                    }
                    let mut report = P::report(&object, &settled.verdict, &settled.children);
                    report.outcome = report.outcome.no_later_than(settled.requeue);
                    add_retries(&mut report, &settled.children);
                    let mut failure = failed_child(&settled.children);
                    if let Some(error) = &mut failure {
                        error.no_later_than = report.outcome.retry();
                    }
                    (report, failure, true)
                }
                Err(error) => (
                    P::report_error(&object, &error),
                    Some(error.clone()),
                    error.of_api_server,
                ),
            };
            if let Some(error) = &failure
                && is_quiet(error.class, of_api_server, attempt, since.elapsed())
            {
                return Err(error.clone());
            }
            let outcome = report.outcome.clone();
            let paced = failure.is_none();
            // However the run ended: what is said must find the version that its own patches led to.
            let patched = patches.latest();
            let said = reporting.say::<P>(&object, report, patched, paced).await?;
            if said.rewrote {
                rewrites.inc();
            }
            match failure {
                Some(error) => Err(error),
                None => Ok(outcome.no_later_than(said.later)),
            }
        })
    }
}

/// Failures that are not worth a word on the object, `lasted` since the first of them. What a controller's own external
/// systems answer is.
fn is_quiet(class: ErrorClass, of_api_server: bool, attempt: u32, lasted: Duration) -> bool {
    match class {
        ErrorClass::Shutdown => true,
        ErrorClass::NotReady => lasted < QUIET_FOR,
        ErrorClass::Transient | ErrorClass::RateLimited(_) | ErrorClass::Timeout => {
            of_api_server && lasted < QUIET_FOR
        }
        ErrorClass::Conflict => attempt < QUIET_CONFLICTS,
        _ => false,
    }
}

/// The failure that decides when to look again: the one that passes first, but a server that asks for patience gets it.
fn failed_child(children: &Children) -> Option<ReconcileError> {
    let urgency = |class: &ErrorClass| match class {
        ErrorClass::Shutdown => (0, Duration::ZERO),
        ErrorClass::RateLimited(Some(wait)) => (1, Duration::MAX.saturating_sub(*wait)),
        class => (2, delay(*class, 1).unwrap_or_default()),
    };
    let failures = children.0.iter().filter_map(|child| match &child.state {
        ChildState::Failed(class, message) => Some((class, message)),
        _ => None,
    });
    let (class, message) = failures.min_by_key(|(class, _)| urgency(class))?;
    Some(ReconcileError::new(*class, message.clone()))
}

/// What stands in the way of a child is the framework's own finding, so that its retry and its event are the framework's
/// too.
fn add_retries(report: &mut Report, children: &Children) {
    for child in &children.0 {
        let retry = match &child.state {
            ChildState::Contested { retry, .. } => *retry,
            ChildState::Foreign { .. } | ChildState::Waiting => BLOCKED_RETRY,
            _ => continue,
        };
        let outcome = std::mem::replace(&mut report.outcome, Outcome::Done);
        report.outcome = outcome.no_later_than(Some(retry));
        if let ChildState::Contested { manager, .. } = &child.state {
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

/// How often a status body is cut down to what the installed schema takes.
const MAX_CUTS: usize = 6;

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
            return Ok(Said::DONE);
        }
        if let Some(what) = outside(&self.contract, &report) {
            let text = format!("the controller {} reports {what}; nothing is written", P::NAME);
            self.publish_alone(object, notes, OUTSIDE_CONTRACT, &text).await;
            return Err(ReconcileError::new(ErrorClass::Invalid, text));
        }
        let pending = self.memory.recall(namespace, name, uid, cached);
        let mut live = match &pending {
            Some(pending) => pending.live.clone(),
            None => self.live::<P>(object),
        };
        if pending.is_some() && is_stale(&self.contract, &report, meta.generation, &live) {
            // The cache shows an object from before our last write: its next event looks again.
            return Ok(Said::held(STALE_RETRY));
        }
        // The version that `live` is of, if the cache shows it.
        let shown = (pending.is_none() && patched.is_none()).then_some(cached);
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
        for text in overflows(&report, &live) {
            // Said even on the first look: nothing on the object tells of it.
            written = true;
            notes.push(warning(TRUNCATED, text));
        }
        let mut logged = Vec::new();
        let mut said = Said::DONE;
        let whole = report;
        for round in 0_usize.. {
            let cut = self.cut(namespace, name, uid, &whole);
            if let Some((_, until)) = &cut {
                said.later = Some(until.saturating_duration_since(Instant::now()).max(QUIET_FOR));
            }
            let report = cut.as_ref().map_or(&whole, |(report, _)| report);
            let now = Time(Timestamp::now());
            let Some(mut change) = change(&self.contract, report, meta.generation, &live, &now) else {
                break;
            };
            if self.was_refused(namespace, name, uid, &version, &change.body) {
                notes.extend(self.refusals(namespace, name));
                said.later = Some(REFUSED_RETRY);
                break;
            }
            let word = Word::new(&self.contract, report, &live);
            if self.memory.contests().stands(about, &word, shown) {
                break;
            }
            let judged = self.memory.contests().judge(about, &word, Instant::now());
            if judged.tell {
                self.tell(object, target, &change, &live).await;
            }
            if let Some(wait) = judged.wait {
                self.publish(object, notes, &[], false).await;
                return Ok(Said::held(wait));
            }
            if let Some(before) = &judged.said {
                keep_own(&self.contract, before, &mut change.transitions);
            }
            let pace = self.pace.as_ref();
            if let Some(wait) = pace.filter(|_| paced).and_then(|p| p.wait(namespace, name, uid)) {
                return Ok(Said::held(wait));
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
                    let left = leftovers(&self.contract, report, &change, &answer);
                    let answer = if left.is_empty() {
                        answer
                    } else {
                        self.writer
                            .remove(&self.contract, target, &answer.version, &left)
                            .await
                            .map_err(|error| refusal(target, error))?
                    };
                    logged = transition_notes(&change, report);
                    notes.extend(logged.iter().cloned());
                    let status = LiveStatus {
                        conditions: answer.conditions,
                        fields: as_answered(report, change.fields, answer.fields),
                    };
                    let left = Left {
                        parts: parts(&self.contract, report, &status),
                        said: contest::said(&self.contract, &change.conditions),
                        version: &answer.version,
                    };
                    // A write that changes nothing undoes nothing.
                    let rewrote = judged.again && answer.version != version;
                    let contests = self.memory.contests();
                    contests.wrote(about, &word, rewrote, left, Instant::now());
                    self.memory
                        .wrote(namespace, name, uid, (&version, &answer.version), status);
                    for t in &change.transitions {
                        log(target, None, t);
                    }
                    if rewrote {
                        said.rewrote = true;
                        log_again(target);
                        break;
                    }
                    for t in &change.entry_transitions {
                        log(target, Some((t.field, &t.entry)), &t.condition);
                    }
                    break;
                }
                Err(StatusError::Undeclared(paths)) => {
                    let is_new = round < MAX_CUTS && self.undeclared.learn(&paths);
                    learnt(target, &paths, "does not know this field", is_new)?;
                }
                Err(StatusError::Mistyped(paths)) => {
                    let is_new = round < MAX_CUTS
                        && self.remembered(namespace, name, uid, |known| {
                            known.mistyped.learn(&paths, Some(&whole))
                        });
                    learnt(target, &paths, "wants another type here", is_new)?;
                }
                Err(StatusError::NoSubresource) => {
                    let text = format!(
                        "write status of {target}: {} has no status subresource, so its objects have no status: add \
                         `subresources: {{status: {{}}}}` to its CRD",
                        target.kind
                    );
                    self.publish_alone(object, notes, NOT_WRITTEN, &text).await;
                    return Err(ReconcileError::new(ErrorClass::Invalid, text));
                }
                Err(StatusError::OwnedByAnother(text)) => {
                    let text = format!(
                        "status of {target} belongs to another field manager and is left alone: {text}"
                    );
                    notes.push(warning(OWNED_BY_ANOTHER, text));
                    said.later = Some(REFUSED_RETRY);
                    refused = Some((version.clone(), timeless(&change.body)));
                    // Said even on the first look: nothing else tells of it.
                    written = true;
                    break;
                }
                Err(StatusError::Gone) => return Ok(Said::DONE),
                Err(StatusError::Failed(error)) if error.class == ErrorClass::Invalid && !relieved => {
                    // An entry that we leave out stays as far as others own it, and lacks then what the schema wants.
                    let over = self.held_back(report, &live);
                    if over.is_empty() {
                        return Err(error);
                    }
                    let removed = self.writer.remove(&self.contract, target, &version, &over).await;
                    let removed = removed.map_err(|error| refusal(target, error))?;
                    relieved = true;
                    let before = std::mem::replace(&mut version, removed.version);
                    live = LiveStatus {
                        conditions: removed.conditions,
                        fields: as_answered(report, live.fields, removed.fields),
                    };
                    self.memory
                        .wrote(namespace, name, uid, (&before, &version), live.clone());
                }
                Err(error) => return Err(refusal(target, error)),
            }
        }
        self.publish(object, notes, &logged, written).await;
        if refused.is_some() {
            self.remembered(namespace, name, uid, |known| known.refused = refused);
        }
        Ok(said)
    }

    /// Publishes one more note, although nothing is written that would tell of it.
    async fn publish_alone<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        mut notes: Vec<Note>,
        reason: &'static str,
        text: &str,
    ) {
        notes.push(warning(reason, text.to_owned()));
        self.publish(object, notes, &[], true).await;
    }

    /// The report without what the installed schema does not take, if there is any: every look would be a write. Until when.
    fn cut(&self, namespace: &str, name: &str, uid: &str, report: &Report) -> Option<(Report, Instant)> {
        let mine = self.said_of(namespace, name, uid, |known| known.mistyped.over(report));
        let mut over = mine.unwrap_or_default();
        over.extend(self.undeclared.over(report));
        let until = over.iter().map(|(_, until)| *until).min()?;
        Some((without(report, &over), until))
    }

    /// What was said of this very object, if anything.
    fn said_of<T>(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        look: impl FnOnce(&Remembered) -> T,
    ) -> Option<T> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let names = said.get(namespace)?;
        names.get(name).filter(|said| said.uid == uid).map(look)
    }

    /// The same, with an empty memory of an object of which nothing was said.
    fn remembered<T>(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        change: impl FnOnce(&mut Remembered) -> T,
    ) -> T {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let names = said.entry(namespace.to_owned()).or_default();
        let known = names.entry(name.to_owned()).or_default();
        if known.uid != uid {
            *known = Remembered {
                uid: uid.to_owned(),
                ..Remembered::default()
            };
        }
        change(known)
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

    /// The very same write was refused: nothing has changed that could make it pass.
    fn was_refused(&self, namespace: &str, name: &str, uid: &str, version: &str, body: &Value) -> bool {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(namespace)
            .and_then(|names| names.get(name))
            .filter(|said| said.uid == uid)
            .and_then(|said| said.refused.as_ref())
            .is_some_and(|(at, refused)| at == version && *refused == timeless(body))
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
                        ..Remembered::default()
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

/// Reason of the event about a kind without the status subresource.
const NOT_WRITTEN: &str = "StatusNotWritten";

/// Reason of the event about a report that its contract does not cover.
const OUTSIDE_CONTRACT: &str = "ReportOutsideContract";

/// Reason of the event about entries for which a list has no room.
const TRUNCATED: &str = "StatusTruncated";

/// A cache that is older than our last write is looked at again after this, if nothing wakes the controller before.
const STALE_RETRY: Duration = Duration::from_secs(30);

fn warning(reason: &'static str, message: String) -> Note {
    Note {
        warning: true,
        reason: reason.into(),
        message,
    }
}

/// What of a report the lists that it names have no room for.
fn overflows(report: &Report, live: &LiveStatus) -> Vec<String> {
    let over = report.fields.iter().filter_map(|(name, field)| match field {
        StatusField::Entries(entries) => entries.overflow(name, live.fields.get(name)),
        _ => None,
    });
    over.collect()
}

/// Says once what is left out. An error if leaving it out has not helped.
fn learnt(target: Target<'_>, paths: &[String], what: &str, is_new: bool) -> Result<(), ReconcileError> {
    let text = paths.join(", ");
    if !is_new {
        return Err(ReconcileError::new(
            ErrorClass::Invalid,
            format!("write status of {target}: the installed CRD {what}: {text}; upgrade the CRD"),
        ));
    }
    tracing::warn!(
        kind = target.kind.kind,
        namespace = target.namespace,
        name = target.name,
        paths = text,
        "the installed CRD {what}: left out for an hour; upgrade the CRD"
    );
    Ok(())
}

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
        StatusError::Stale
        | StatusError::Gone
        | StatusError::Undeclared(_)
        | StatusError::Mistyped(_)
        | StatusError::NoSubresource => {
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

/// Fields of the report as they were answered, with what the API server filled in; other fields as they were written.
fn as_answered(
    report: &Report,
    mut fields: BTreeMap<&'static str, Value>,
    mut answered: Map<String, Value>,
) -> BTreeMap<&'static str, Value> {
    for (name, _) in &report.fields {
        if let Some(value) = answered.remove(*name) {
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

fn type_is(condition: &MetaCondition, type_: &str) -> bool {
    condition.type_ == type_
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
        let failed = || Err(ReconcileError::new(ErrorClass::Invalid, "no"));
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
                true => Err(ReconcileError::new(ErrorClass::Invalid, "no")),
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
                _ => Err(ReconcileError::new(ErrorClass::Invalid, "no")),
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
        let error = ReconcileError::new(ErrorClass::Panic, "too slow");
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

    #[tokio::test(start_paused = true)]
    async fn what_the_next_look_mends_is_not_said_and_what_lasts_is() {
        let seconds = Duration::from_secs;
        let limited = ErrorClass::RateLimited(None);
        for (class, attempt, lasted, said) in [
            (ErrorClass::Conflict, 0, 99, 0),
            (ErrorClass::Conflict, 3, 1, 1),
            (ErrorClass::NotReady, 9, 9, 0),
            (ErrorClass::NotReady, 9, 11, 1),
            (ErrorClass::Transient, 3, 9, 0),
            (ErrorClass::Transient, 4, 15, 1),
            (limited, 0, 0, 0),
            (limited, 4, 15, 1),
            (ErrorClass::Timeout, 0, 0, 0),
            (ErrorClass::Forbidden, 0, 0, 1),
            (ErrorClass::Shutdown, 9, 99, 0),
        ] {
            let seam = Seam::default();
            let mut request = object("n");
            request.attempt = attempt;
            request.failing_since = Some(Instant::now());
            tokio::time::advance(seconds(lasted)).await;
            let answer = move || with_child(ChildState::Failed(class, "x".into()));
            assert!(stack(&seam, answer).oneshot(request).await.is_err());
            assert_eq!(seam.bodies().len(), said, "{class:?} {attempt} {lasted}");
        }
    }

    #[tokio::test]
    async fn what_an_external_system_answers_is_said_at_once_and_what_the_api_server_answers_is_not() {
        for (of_api_server, said) in [(false, 1), (true, 0)] {
            let seam = Seam::default();
            let answer = move || {
                Err(ReconcileError {
                    of_api_server,
                    ..ReconcileError::new(ErrorClass::Transient, "no")
                })
            };
            assert!(stack(&seam, answer).oneshot(object("n")).await.is_err());
            assert_eq!(seam.bodies().len(), said);
        }
    }

    #[test]
    fn of_children_that_failed_the_one_that_passes_first_decides_and_patience_that_was_asked_for_is_kept() {
        let limited = |s| ErrorClass::RateLimited(Some(Duration::from_secs(s)));
        for (failed, decides) in [
            (
                vec![ErrorClass::Forbidden, ErrorClass::Transient],
                ErrorClass::Transient,
            ),
            (vec![ErrorClass::Forbidden, limited(5)], limited(5)),
            (vec![ErrorClass::Transient, limited(5), limited(30)], limited(30)),
            (
                vec![ErrorClass::Invalid, ErrorClass::Foreign],
                ErrorClass::Invalid,
            ),
            (vec![limited(5), ErrorClass::Shutdown], ErrorClass::Shutdown),
        ] {
            let children = failed.iter().map(|class| SettledChild {
                kind: TOY_API,
                namespace: "ns".into(),
                name: "n".into(),
                state: ChildState::Failed(*class, "x".into()),
                live: None,
            });
            let decided = failed_child(&Children(children.collect())).unwrap();
            assert_eq!(decided.class, decides, "{failed:?}");
        }
    }

    #[tokio::test]
    async fn a_plan_that_polls_does_so_while_a_child_fails() {
        let seam = Seam::default();
        let answer = || {
            with_child(ChildState::Failed(ErrorClass::Forbidden, "no right".into())).map(|settled| Settled {
                requeue: Some(Duration::from_secs(60)),
                ..settled
            })
        };
        let error = stack(&seam, answer).oneshot(object("n")).await.unwrap_err();
        assert_eq!(error.no_later_than, Some(Duration::from_secs(60)));
    }

    #[tokio::test]
    async fn what_stands_in_the_way_of_a_child_is_looked_at_again_whatever_the_report_says() {
        for state in [
            ChildState::Foreign {
                owner: "nobody".into(),
            },
            ChildState::Waiting,
        ] {
            let seam = Seam::default();
            let outcome = stack(&seam, move || with_child(state.clone()))
                .oneshot(object("n"))
                .await;
            assert_eq!(outcome, Ok(Outcome::RequeueAfter(BLOCKED_RETRY)));
        }
    }

    #[tokio::test]
    async fn a_report_outside_of_its_contract_is_one_clear_error() {
        let seam = Seam::default();
        let contract = StatusContract {
            conditions: &["Other"],
            ..CONTRACT
        };
        let reporting = Arc::new(Reporting::new(
            contract,
            Arc::new(seam.clone()),
            Arc::new(seam.clone()),
        ));
        let stack = Stack::new(
            ServiceBuilder::new()
                .layer(ConditionsLayer::<Toy>::new(reporting))
                .service(service_fn(|_| async { fine() })),
        );
        for _ in 0..3 {
            let error = stack.clone().oneshot(object("n")).await.unwrap_err();
            assert_eq!(error.class, ErrorClass::Invalid);
            assert!(
                error
                    .message
                    .contains("controller toy reports the condition Ready"),
                "{error}"
            );
        }
        assert_eq!(seam.bodies().len(), 0);
        assert_eq!(seam.reasons(), ["ReportOutsideContract true"], "said once");
    }

    #[tokio::test]
    async fn a_kind_without_the_status_subresource_is_said_and_an_error() {
        let seam = Seam::failing([StatusError::NoSubresource, StatusError::NoSubresource]);
        let stack = stack(&seam, fine);
        for _ in 0..2 {
            let error = stack.clone().oneshot(object("n")).await.unwrap_err();
            assert_eq!(error.class, ErrorClass::Invalid);
            assert!(error.message.contains("has no status subresource"), "{error}");
        }
        assert_eq!(seam.reasons(), ["StatusNotWritten true"], "said once");
    }

    #[tokio::test]
    async fn a_schema_that_refuses_again_and_again_is_an_error_and_no_silence() {
        let refused = (0..99).map(|n| StatusError::Undeclared(vec![format!(".status.size.{n}")]));
        let seam = Seam::failing(refused);
        let error = stack(&seam, fine).oneshot(object("n")).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid);
        assert_eq!(seam.bodies().len(), MAX_CUTS + 1);
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
            (
                Ok(Outcome::RequeueAfter(REFUSED_RETRY)),
                vec!["StatusOwnedByAnother true".to_owned()]
            )
        );
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
