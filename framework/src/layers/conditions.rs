//! Settled or error → Outcome: asks the planner for the report and makes the object say it, once. The only writer of
//! own status; publishes events on transitions. A failure is said on the object and passed on to Policy.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::Resource;
use serde_json::Value;
use tower::{Layer, Service};

use super::planner::Boxed;
use crate::{
    ApiKind, ChildState, Children, ErrorClass, Note, Outcome, Planner, ReconcileError, Report, Request,
    Settled, StatusField,
    api::Target,
    condition::find,
    events::{EventSink, reference},
    status::{LiveStatus, StatusChange, StatusContract, StatusMemory, change},
    status_writer::{StatusError, StatusWriter},
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
    notes: Mutex<HashMap<(String, String), HashSet<Note>>>,
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
            notes: Mutex::default(),
        }
    }

    /// Shares what was written with another controller of the same contract.
    #[must_use]
    pub fn sharing(mut self, memory: &StatusMemory) -> Self {
        self.memory = memory.clone();
        self
    }

    /// The object is gone: forget what was said about it.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.memory.forget(namespace, name);
        let key = (namespace.to_owned(), name.to_owned());
        self.notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key);
    }
}

/// Layer of [`Conditions`].
pub struct ConditionsLayer<P>(Arc<Reporting>, PhantomData<fn() -> P>);

impl<P> ConditionsLayer<P> {
    /// Reports through this.
    pub fn new(reporting: Arc<Reporting>) -> Self {
        Self(reporting, PhantomData)
    }
}

impl<P, S> Layer<S> for ConditionsLayer<P> {
    type Service = Conditions<P, S>;
    fn layer(&self, inner: S) -> Self::Service {
        Conditions {
            inner,
            reporting: Arc::clone(&self.0),
            planner: PhantomData,
        }
    }
}

/// See the module.
pub struct Conditions<P, S> {
    inner: S,
    reporting: Arc<Reporting>,
    planner: PhantomData<fn() -> P>,
}

impl<P, S: Clone> Clone for Conditions<P, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            reporting: Arc::clone(&self.reporting),
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
        let attempt = request.attempt;
        let inner = self.inner.call(request);
        let reporting = Arc::clone(&self.reporting);
        Box::pin(async move {
            let (report, failure, version) = match inner.await {
                Ok(settled) => {
                    if settled.released && object.meta().deletion_timestamp.is_some() {
                        return Ok(Outcome::Done);
                    }
                    let mut report = P::report(&object, &settled.verdict, &settled.children);
                    report.outcome = report.outcome.no_later_than(settled.requeue);
                    contested(&mut report, &settled.children);
                    (report, failed_child(&settled.children), settled.owner_version)
                }
                Err(error) => (P::report_error(&object, &error), Some(error), None),
            };
            if let Some(error) = &failure
                && is_quiet(error.class, attempt)
            {
                return Err(error.clone());
            }
            let outcome = report.outcome.clone();
            reporting.say::<P>(&object, report, version).await?;
            match failure {
                Some(error) => Err(error),
                None => Ok(outcome),
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
                "{} {}/{}: {manager} keeps changing fields that this operator sets; they are set again every 5 minutes",
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

impl Reporting {
    async fn say<P: Planner>(
        &self,
        object: &P::Object,
        mut report: Report,
        version: Option<String>,
    ) -> Result<(), ReconcileError> {
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
        let pending = self.memory.recall(namespace, name, uid, cached);
        let live = match &pending {
            Some(pending) => pending.live.clone(),
            None => self.live::<P>(object),
        };
        // The newest version that we know of is the one that the write must find.
        let version = version
            .or(pending.map(|p| p.version))
            .unwrap_or_else(|| cached.to_owned());
        let mut notes = std::mem::take(&mut report.notes);
        let mut written = false;
        for _ in 0..MAX_CUTS {
            self.cut(&mut report);
            let now = Time(Timestamp::now());
            let Some(change) = change(&self.contract, &report, meta.generation, &live, &now) else {
                break;
            };
            match self
                .writer
                .apply(&self.contract, target, &version, &change.body)
                .await
            {
                Ok(answer) => {
                    written = true;
                    let mut answer = answer;
                    for type_ in self.contract.conditions {
                        // An older manager still holds a share of a condition that is over.
                        let left = answer.conditions.iter().position(|c| c.type_ == *type_);
                        if let Some(index) = left
                            && find(&change.conditions, type_).is_none()
                            && let Ok(next) = self
                                .writer
                                .remove_condition(&self.contract, target, &answer.version, index)
                                .await
                        {
                            answer = next;
                        }
                    }
                    notes.extend(transition_notes(&change, &report));
                    let status = LiveStatus {
                        conditions: answer.conditions,
                        fields: change.fields,
                    };
                    self.memory.wrote(namespace, name, uid, &answer.version, status);
                    for t in &change.transitions {
                        tracing::info!(
                            kind = kind.kind,
                            namespace,
                            name,
                            condition = t.type_,
                            status = t.status.as_deref().unwrap_or("removed"),
                            reason = t.reason,
                            "{}",
                            t.message
                        );
                    }
                    break;
                }
                Err(StatusError::Undeclared(paths)) => {
                    let mut known = self.undeclared.lock().unwrap_or_else(PoisonError::into_inner);
                    for path in paths {
                        if known.insert(path.clone()) {
                            tracing::warn!(
                                kind = kind.kind,
                                path,
                                "the installed CRD does not know this field: left out; upgrade the CRD"
                            );
                        }
                    }
                }
                Err(StatusError::OwnedByAnother(text)) => {
                    let text = format!(
                        "status of {target} belongs to another field manager and is left alone: {text}"
                    );
                    notes.push(Note {
                        warning: true,
                        reason: "StatusOwnedByAnother".into(),
                        message: text,
                    });
                    // Said even on the first look: nothing else tells of it.
                    written = true;
                    break;
                }
                Err(StatusError::Gone) => return Ok(()),
                Err(StatusError::Stale) => {
                    let text = format!("write status of {target}: it was changed meanwhile");
                    return Err(ReconcileError::new(ErrorClass::Conflict, text));
                }
                Err(StatusError::Failed(error)) => return Err(error),
            }
        }
        self.publish(object, notes, written).await;
        Ok(())
    }

    fn live<P: Planner>(&self, object: &P::Object) -> LiveStatus {
        let conditions = P::conditions(object);
        let ours = |c: &&_| self.contract.conditions.iter().any(|t| type_is(c, t));
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
            let mut parts = path
                .split('.')
                .skip(2)
                .map(|part| part.split('[').next().unwrap_or(part));
            let Some(field) = parts.next() else { continue };
            let rest: Vec<_> = parts.collect();
            if rest.is_empty() {
                report.fields.retain(|(name, _)| *name != field);
            }
            for (name, value) in &mut report.fields {
                if let (true, StatusField::Set(value)) = (*name == field, value) {
                    remove(value, &rest);
                }
            }
        }
    }

    /// Events: transitions, and notes that were not in the last report about this object. On the first look after a
    /// start nothing is repeated unless the status changed too.
    async fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, notes: Vec<Note>, written: bool) {
        let fresh: Vec<Note> = {
            let meta = object.meta();
            let key = (
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            );
            let mut said = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            match said.get(&key) {
                None if notes.is_empty() => Vec::new(),
                before => {
                    let first = before.is_none();
                    let fresh = notes
                        .iter()
                        .filter(|note| before.is_none_or(|b| !b.contains(*note)))
                        .filter(|_| written || !first)
                        .cloned()
                        .collect();
                    said.insert(key, notes.into_iter().collect());
                    fresh
                }
            }
        };
        if !fresh.is_empty() {
            let about = reference(object);
            for note in &fresh {
                self.events.publish(&about, note).await;
            }
        }
    }
}

fn type_is(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition, type_: &str) -> bool {
    condition.type_ == type_
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
                message: t.message.clone(),
            },
            None => Note {
                warning: false,
                reason: format!("{}Removed", t.type_).into(),
                message: format!("condition {} is over", t.type_),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Verdict,
        layers::tests::{TOY_API, Toy, object},
        settled::SettledChild,
        status_writer::StatusAnswer,
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
                    conditions: serde_json::from_value(body["conditions"].clone()).unwrap_or_default(),
                }),
            }
        }
        async fn remove_condition(
            &self,
            _: &StatusContract,
            _: Target<'_>,
            _: &str,
            _: usize,
        ) -> Result<StatusAnswer, StatusError> {
            Err(StatusError::Gone)
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

    type Answer = Result<Settled<u32>, ReconcileError>;
    type Stack = tower::util::BoxCloneSyncService<Request<ConfigMap>, Outcome, ReconcileError>;

    /// The layer alone around an inner service that always answers this.
    fn stack(seam: &Seam, answer: impl Fn() -> Answer + Send + Sync + Clone + 'static) -> Stack {
        const CONTRACT: StatusContract = StatusContract {
            manager: "kit",
            conditions: &["Ready"],
            fields: &["size"],
        };
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
            owner_version: None,
        })
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
        let patched = || {
            fine().map(|s| Settled {
                owner_version: Some("9".into()),
                ..s
            })
        };
        stack(&seam, patched).oneshot(object("n")).await.unwrap();
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
