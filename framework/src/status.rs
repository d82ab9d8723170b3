//! Own status: which body to apply, if any. Pure, but for the memory of what was written and not seen back.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};
use kube::{Resource, core::ObjectMeta};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

pub use crate::entries::EntryTransition;
use crate::{
    Report, StatusField,
    condition::{find, same},
    contest::Contests,
    entries::patch_of,
    runtime::{Change, Listener},
};

/// What one status contract covers. Several controllers may share one contract, and then its field manager.
#[derive(Clone, Debug)]
pub struct StatusContract {
    /// Field manager; constant for ever.
    pub manager: &'static str,
    /// Condition types that are ours: at the top of status, and inside the entries of lists ([`StatusField::Entries`]).
    /// One that a report no longer names is removed; every other type is somebody else's.
    pub conditions: &'static [&'static str],
    /// Top-level fields of `status`, conditions aside.
    pub fields: &'static [&'static str],
    /// How it is written.
    pub mode: StatusMode,
}

/// How status is written. Each way is guarded by the resourceVersion that was planned from, and none may be chosen for
/// how simple it looks: it follows from who else writes the same status and from the list types of its schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusMode {
    /// Server-side apply without force: what another field manager owns is theirs and is left alone.
    #[default]
    Apply,
    /// Server-side apply with force: the API says that these fields are ours, whoever wrote them before (defaults, an
    /// older controller). Not for lists that the schema calls atomic and that others write too.
    Force,
    /// Merge patch of the contract's fields: for atomic lists that others write too, where apply would take the whole
    /// list over. If the contract has conditions at the top of status, the whole list of conditions is sent.
    Patch,
}

/// The part of an object's status that a contract covers, as the cache (or a later own write) knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveStatus {
    /// All conditions, foreign types included.
    pub conditions: Vec<MetaCondition>,
    /// Contract fields that are there.
    pub fields: BTreeMap<&'static str, Value>,
}

/// A status that has to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// `status` of the body: everything that the contract owns for an apply, the difference for a patch.
    pub body: Value,
    /// The conditions of the contract after the write.
    pub conditions: Vec<MetaCondition>,
    /// The fields of the contract after the write.
    pub fields: BTreeMap<&'static str, Value>,
    /// Condition types whose status or reason is new, or that are gone.
    pub transitions: Vec<Transition>,
    /// The same for conditions of entries in lists.
    pub entry_transitions: Vec<EntryTransition>,
}

/// A condition that changed its status or reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Condition type.
    pub type_: String,
    /// The status now; `None` when the condition is gone.
    pub status: Option<String>,
    /// The reason now.
    pub reason: String,
    /// The message now.
    pub message: String,
}

/// What to write so that `report` is what the object says; `None` when it says so already, or when the report does not
/// want a write.
pub fn change(
    contract: &StatusContract,
    report: &Report,
    generation: Option<i64>,
    live: &LiveStatus,
    now: &Time,
) -> Option<StatusChange> {
    if report.untouched {
        return None;
    }
    let mut changed = false;
    let mut conditions = Vec::new();
    let mut transitions = Vec::new();
    for type_ in contract.conditions {
        let before = find(&live.conditions, type_);
        let after = match report.conditions.iter().find(|c| c.type_ == *type_) {
            Some(condition) => Some(condition.stamped(before, generation, now)),
            None if report.keep_conditions => before.cloned(),
            None => None,
        };
        changed |= match (before, &after) {
            (Some(before), Some(after)) => !same(before, after),
            (None, None) => false,
            _ => true,
        };
        transitions.extend(transition(type_, before, after.as_ref()));
        conditions.extend(after);
    }
    let conditions_changed = changed;
    let mut fields = live.fields.clone();
    fields.retain(|name, _| contract.fields.contains(name));
    let mut entry_transitions = Vec::new();
    for (name, field) in &report.fields {
        match field {
            StatusField::Set(value) if fields.get(name) == Some(value) => {}
            StatusField::Set(value) => {
                changed = true;
                fields.insert(*name, value.clone());
            }
            StatusField::Clear => changed |= fields.remove(name).is_some(),
            StatusField::Entries(entries) => {
                let before = fields.get(name);
                let merged = entries.merge(name, before, contract.conditions, generation, now);
                if merged.changed {
                    changed = true;
                    entry_transitions.extend(merged.transitions);
                    fields.insert(*name, Value::Array(merged.list));
                }
            }
        }
    }
    changed.then(|| {
        let body = match contract.mode {
            StatusMode::Apply | StatusMode::Force => share(contract, report, &conditions, &fields),
            StatusMode::Patch => {
                let list = conditions_changed.then(|| with_foreign(contract, live, &conditions));
                difference(live, list, &fields)
            }
        };
        StatusChange {
            body,
            conditions,
            fields,
            transitions,
            entry_transitions,
        }
    })
}

/// Everything that the contract owns.
fn share(
    contract: &StatusContract,
    report: &Report,
    conditions: &[MetaCondition],
    fields: &BTreeMap<&'static str, Value>,
) -> Value {
    let mut body = Map::new();
    if !conditions.is_empty() {
        body.insert("conditions".into(), json!(conditions));
    }
    for (name, value) in fields {
        let entries = report.fields.iter().find_map(|(field, value)| match value {
            StatusField::Entries(entries) if field == name => Some(entries),
            _ => None,
        });
        let own = match (entries, value.as_array()) {
            (Some(entries), Some(list)) => entries.share(list, contract.conditions),
            _ => value.clone(),
        };
        body.insert((*name).to_owned(), own);
    }
    Value::Object(body)
}

/// The whole list of conditions: ours in their places, and everybody else's.
fn with_foreign(contract: &StatusContract, live: &LiveStatus, ours: &[MetaCondition]) -> Vec<MetaCondition> {
    let kept = live.conditions.iter().filter_map(|before| {
        match contract.conditions.contains(&before.type_.as_str()) {
            true => find(ours, &before.type_).cloned(),
            false => Some(before.clone()),
        }
    });
    let new = ours.iter().filter(|c| find(&live.conditions, &c.type_).is_none());
    kept.chain(new.cloned()).collect()
}

/// The merge patch from the live fields to `fields`.
fn difference(
    live: &LiveStatus,
    conditions: Option<Vec<MetaCondition>>,
    fields: &BTreeMap<&'static str, Value>,
) -> Value {
    let mut body = Map::new();
    if let Some(conditions) = conditions {
        body.insert("conditions".into(), json!(conditions));
    }
    for name in live.fields.keys().filter(|name| !fields.contains_key(*name)) {
        body.insert((*name).to_owned(), Value::Null);
    }
    for (name, value) in fields {
        let before = live.fields.get(name);
        if before != Some(value) {
            body.insert((*name).to_owned(), patch_of(before, value));
        }
    }
    Value::Object(body)
}

/// Whether `live` was reported on at a later generation than `generation`. Where `live` is an own write that the cache has
/// not shown yet, the object in hand is older than what we said already. In one version of an object it says nothing: a
/// restore may bring the status of another cluster along.
pub(crate) fn is_stale(
    contract: &StatusContract,
    report: &Report,
    generation: Option<i64>,
    live: &LiveStatus,
) -> bool {
    let Some(generation) = generation else {
        return false;
    };
    let mut conditions = contract
        .conditions
        .iter()
        .filter_map(|type_| find(&live.conditions, type_));
    conditions.any(|c| c.observed_generation > Some(generation))
        || report.fields.iter().any(|(name, field)| match field {
            StatusField::Entries(entries) => entries.is_newer(live.fields.get(name), generation),
            _ => false,
        })
}

/// What a report sets that its contract does not cover: a bug of the planner, as nothing would tell whose it is.
pub(crate) fn outside(contract: &StatusContract, report: &Report) -> Option<String> {
    let mut conditions = report.conditions.iter();
    if let Some(condition) = conditions.find(|c| !contract.conditions.contains(&c.type_)) {
        return Some(format!(
            "the condition {}: add it to StatusContract::conditions of {}",
            condition.type_, contract.manager
        ));
    }
    let (name, _) = report
        .fields
        .iter()
        .find(|(name, _)| !contract.fields.contains(name))?;
    Some(format!(
        "the field status.{name}: add it to StatusContract::fields of {}",
        contract.manager
    ))
}

fn transition(
    type_: &str,
    before: Option<&MetaCondition>,
    after: Option<&MetaCondition>,
) -> Option<Transition> {
    match (before, after) {
        (Some(b), Some(a)) if a.status == b.status && a.reason == b.reason => None,
        (None, None) => None,
        (_, Some(a)) => Some(Transition {
            type_: type_.to_owned(),
            status: Some(a.status.clone()),
            reason: a.reason.clone(),
            message: a.message.clone(),
        }),
        (Some(_), None) => Some(Transition {
            type_: type_.to_owned(),
            status: None,
            reason: String::new(),
            message: String::new(),
        }),
    }
}

/// Status bodies that were written and that the cache has not shown yet, and who else writes them.
#[derive(Clone, Debug, Default)]
pub struct StatusMemory(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    // 0 means the map need not be locked: the common case.
    pending: AtomicUsize,
    entries: Mutex<HashMap<(String, String), Pending>>,
    contests: Contests,
}

/// A write that never shows up in the cache is believed for this long: after a restore of the cluster the versions of
/// objects stay older.
const BELIEVED: Duration = Duration::from_secs(30);

/// A write that was answered.
#[derive(Clone, Debug)]
pub struct Pending {
    uid: String,
    at: Instant,
    /// The resourceVersion that the write found.
    from: String,
    /// The resourceVersion that the write gave the object.
    pub version: String,
    /// The contract's part of status after the write.
    pub live: LiveStatus,
}

impl StatusMemory {
    /// The object has this status now, as of `version`; the write found it at `from`.
    pub fn wrote(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        (from, version): (&str, &str),
        live: LiveStatus,
    ) {
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = Pending {
            uid: uid.to_owned(),
            at: Instant::now(),
            from: from.to_owned(),
            version: version.to_owned(),
            live,
        };
        entries.insert((namespace.to_owned(), name.to_owned()), pending);
        self.0.pending.store(entries.len(), Ordering::Release);
    }

    /// The write that the cache has not shown yet, if there is one for this very object.
    pub fn recall(&self, namespace: &str, name: &str, uid: &str, version: &str) -> Option<Pending> {
        if self.0.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        let key = (namespace.to_owned(), name.to_owned());
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = entries.get(&key)?;
        let behind = match (version.parse::<u128>(), pending.version.parse::<u128>()) {
            (Ok(cached), Ok(written)) => cached < written,
            _ => version != pending.version,
        };
        if pending.uid == uid && behind && pending.at.elapsed() <= BELIEVED {
            return Some(pending.clone());
        }
        entries.remove(&key);
        self.0.pending.store(entries.len(), Ordering::Release);
        None
    }

    /// Whether an object came from one version to another by our own write and nothing else.
    fn is_echo(&self, old: &ObjectMeta, new: &ObjectMeta) -> bool {
        if self.0.pending.load(Ordering::Acquire) == 0 {
            return false;
        }
        let part = |field: &Option<String>| field.clone().unwrap_or_default();
        let entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = entries.get(&(part(&new.namespace), part(&new.name)));
        pending.is_some_and(|pending| {
            new.uid.as_deref() == Some(pending.uid.as_str())
                && old.resource_version.as_deref() == Some(pending.from.as_str())
                && new.resource_version.as_deref() == Some(pending.version.as_str())
        })
    }

    /// The listener, without the changes that our own status writes are: they bring nothing that was not known. A write
    /// whose answer comes after its event still triggers.
    pub fn without_echoes<K>(&self, listener: Listener<K>) -> Listener<K>
    where
        K: Resource + Send + Sync + 'static,
    {
        let memory = self.clone();
        Box::new(move |change| match change {
            Change::Applied { old: Some(old), new } if memory.is_echo(old.meta(), new.meta()) => {}
            change => listener(change),
        })
    }

    /// The object is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&(namespace.to_owned(), name.to_owned()));
        self.0.pending.store(entries.len(), Ordering::Release);
        self.0.contests.forget(namespace, name);
    }

    /// Who else writes the same.
    pub(crate) fn contests(&self) -> &Contests {
        &self.0.contests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Outcome};
    use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};

    const CONTRACT: StatusContract = StatusContract {
        manager: "kit",
        conditions: &["Exposed"],
        fields: &["where", "what"],
        mode: StatusMode::Apply,
    };

    fn now() -> Time {
        Time(Timestamp::from_second(100).unwrap())
    }
    fn exposed(yes: bool) -> Report {
        Report::new(Outcome::Done).condition(Condition::new("Exposed", yes, "R", "m"))
    }
    fn after(live: &LiveStatus, report: &Report) -> LiveStatus {
        let change = change(&CONTRACT, report, Some(1), live, &now()).expect("a write");
        let foreign = live.conditions.iter().filter(|c| c.type_ != "Exposed").cloned();
        LiveStatus {
            conditions: foreign.chain(change.conditions).collect(),
            fields: change.fields,
        }
    }

    #[test]
    fn saying_it_twice_writes_once() {
        let report = exposed(true).field("where", StatusField::Set(json!("here")));
        let live = after(&LiveStatus::default(), &report);
        assert_eq!(live.fields["where"], json!("here"));
        let later = Time(Timestamp::from_second(999).unwrap());
        assert_eq!(change(&CONTRACT, &report, Some(1), &live, &later), None);
    }

    #[test]
    fn foreign_conditions_and_fields_are_never_in_the_body() {
        let mut live = LiveStatus::default();
        live.conditions
            .push(Condition::new("Ready", true, "Theirs", "").stamped(None, Some(1), &now()));
        let body = change(&CONTRACT, &exposed(true), Some(1), &live, &now())
            .unwrap()
            .body;
        assert_eq!(body["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(body["conditions"][0]["type"], "Exposed");
        assert_eq!(body.as_object().unwrap().len(), 1);
    }

    #[test]
    fn what_a_report_does_not_name_is_dropped_among_conditions_and_kept_among_fields() {
        let full = exposed(true)
            .field("where", StatusField::Set(json!(1)))
            .field("what", StatusField::Set(json!(2)));
        let live = after(&LiveStatus::default(), &full);
        let cleared = after(
            &live,
            &Report::new(Outcome::Done).field("where", StatusField::Clear),
        );
        assert!(cleared.conditions.is_empty());
        assert_eq!(cleared.fields, BTreeMap::from([("what", json!(2))]));
        let mut kept = Report::new(Outcome::Done).field("what", StatusField::Set(json!(3)));
        kept.keep_conditions = true;
        assert_eq!(after(&live, &kept).conditions, live.conditions);
    }

    #[test]
    fn a_later_generation_is_seen_and_an_untouched_report_writes_nothing() {
        let live = after(&LiveStatus::default(), &exposed(true));
        let is_stale = |generation| is_stale(&CONTRACT, &exposed(false), generation, &live);
        assert!(is_stale(Some(0)), "observed 1 > known 0");
        assert!(!is_stale(Some(1)) && !is_stale(None));
        assert!(change(&CONTRACT, &exposed(false), Some(2), &live, &now()).is_some());
        assert_eq!(
            change(
                &CONTRACT,
                &Report::untouched(Outcome::Done),
                Some(1),
                &live,
                &now()
            ),
            None
        );
    }

    #[test]
    fn a_transition_is_a_new_status_or_reason_not_a_new_message() {
        let live = after(&LiveStatus::default(), &exposed(true));
        let transitions = |report: &Report| {
            change(&CONTRACT, report, Some(1), &live, &now())
                .unwrap()
                .transitions
        };
        let say = |yes, reason, message| {
            Report::new(Outcome::Done).condition(Condition::new("Exposed", yes, reason, message))
        };
        assert_eq!(transitions(&say(true, "R", "other words")), []);
        assert_eq!(transitions(&say(true, "Q", "m")).len(), 1);
        assert_eq!(transitions(&say(false, "R", "m")).len(), 1);
        assert_eq!(transitions(&Report::new(Outcome::Done))[0].status, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_own_write_counts_until_the_cache_shows_it_or_time_is_up() {
        let memory = StatusMemory::default();
        memory.wrote("ns", "n", "u", ("9", "10"), LiveStatus::default());
        assert!(memory.recall("ns", "n", "u", "9").is_some());
        assert!(memory.recall("ns", "n", "u", "10").is_none());
        memory.wrote("ns", "n", "u", ("9", "10"), LiveStatus::default());
        assert!(memory.recall("ns", "n", "another", "9").is_none());
        assert!(
            memory.recall("ns", "n", "u", "9").is_none(),
            "forgotten with the other object"
        );
        memory.wrote("ns", "n", "u", ("9", "10"), LiveStatus::default());
        tokio::time::advance(BELIEVED + Duration::from_secs(1)).await;
        assert!(
            memory.recall("ns", "n", "u", "9").is_none(),
            "a restored cluster counts from an earlier version"
        );
    }

    #[tokio::test]
    async fn an_own_write_wakes_nobody_and_whatever_else_changed_does() {
        let memory = StatusMemory::default();
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&heard);
        let listener = memory.without_echoes::<ConfigMap>(Box::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        let object = |uid: &str, version: &str| {
            let mut object = ConfigMap::default();
            object.metadata.namespace = Some("ns".into());
            object.metadata.name = Some("n".into());
            object.metadata.uid = Some(uid.into());
            object.metadata.resource_version = Some(version.into());
            Arc::new(object)
        };
        let is_heard = |uid: &str, from: &str, to: &str| {
            heard.store(0, Ordering::SeqCst);
            listener(&Change::Applied {
                old: Some(object(uid, from)),
                new: object(uid, to),
            });
            heard.load(Ordering::SeqCst) == 1
        };
        assert!(is_heard("u", "9", "10"));
        memory.wrote("ns", "n", "u", ("9", "10"), LiveStatus::default());
        assert!(!is_heard("u", "9", "10"));
        assert!(is_heard("u", "8", "10"), "another change came in between");
        assert!(is_heard("u", "9", "11") && is_heard("v", "9", "10"));
        listener(&Change::Deleted {
            old: object("u", "10"),
        });
        assert_eq!(heard.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn what_a_report_sets_outside_of_its_contract_is_named() {
        assert_eq!(outside(&CONTRACT, &exposed(true)), None);
        let condition = exposed(true).condition(Condition::new("Ready", true, "R", ""));
        assert!(
            outside(&CONTRACT, &condition)
                .unwrap()
                .starts_with("the condition Ready:")
        );
        let field = exposed(true).field("who", StatusField::Clear);
        assert!(
            outside(&CONTRACT, &field)
                .unwrap()
                .starts_with("the field status.who:")
        );
    }

    const PATCHED: StatusContract = StatusContract {
        mode: StatusMode::Patch,
        ..CONTRACT
    };

    fn condition(type_: &'static str, yes: bool) -> MetaCondition {
        Condition::new(type_, yes, "R", "m").stamped(None, Some(1), &now())
    }

    #[test]
    fn a_patch_says_what_changes_and_nothing_else() {
        let live = LiveStatus {
            conditions: vec![condition("Exposed", true)],
            fields: BTreeMap::from([("where", json!({"a": 1, "b": 2})), ("what", json!(1))]),
        };
        let report = exposed(true)
            .field("where", StatusField::Set(json!({"b": 2})))
            .field("what", StatusField::Clear);
        let patch = change(&PATCHED, &report, Some(1), &live, &now()).unwrap().body;
        assert_eq!(patch, json!({"where": {"a": null}, "what": null}));
        let full = change(&CONTRACT, &report, Some(1), &live, &now()).unwrap().body;
        assert_eq!((&full["where"], full.get("what")), (&json!({"b": 2}), None));
    }

    #[test]
    fn a_patch_of_conditions_carries_everybody_elses_in_their_places() {
        let live = LiveStatus {
            conditions: vec![
                condition("Before", true),
                condition("Exposed", true),
                condition("After", true),
            ],
            fields: BTreeMap::new(),
        };
        let types = |report: &Report| {
            let body = change(&PATCHED, report, Some(1), &live, &now()).unwrap().body;
            let list = body["conditions"].as_array().unwrap().clone();
            list.iter()
                .map(|c| format!("{}={}", c["type"], c["status"]).replace('"', ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            types(&exposed(false)),
            ["Before=True", "Exposed=False", "After=True"]
        );
        assert_eq!(types(&Report::new(Outcome::Done)), ["Before=True", "After=True"]);
    }

    #[test]
    fn an_entry_of_a_later_generation_is_seen_and_written_over() {
        let entries = |generation: i64| json!([{"name": "x", "conditions": [{"type": "Exposed", "observedGeneration": generation}]}]);
        let report = exposed(false).field(
            "where",
            StatusField::Entries(crate::Entries {
                ours: None,
                identity: "name",
                entries: vec![],
                limits: crate::Limits::default(),
            }),
        );
        let live = |generation| LiveStatus {
            conditions: vec![],
            fields: BTreeMap::from([("where", entries(generation))]),
        };
        for contract in [CONTRACT, PATCHED] {
            assert!(is_stale(&contract, &report, Some(1), &live(2)));
            assert!(!is_stale(&contract, &report, Some(1), &live(1)));
            for observed in [1, 2] {
                let body = change(&contract, &report, Some(1), &live(observed), &now())
                    .unwrap()
                    .body;
                assert_eq!(body["where"], json!([]), "an empty list, not none");
            }
        }
    }
}
