//! What follows from what came of an intent: what is remembered from now on, which parents are told of trouble, which
//! events are due, and when to look again. Pure.

use std::collections::{BTreeMap, BTreeSet};

use reconcile_kit::{Condition, ErrorClass, Note};

use super::{
    intent::{Intent, Leftover, Refused, Task},
    memory::{Memory, Place},
};
use crate::tyk::{
    client::{TykError, TykErrorClass},
    objects::Key,
    sync::{Done, Trouble},
    translate::certificate_id,
    verdict::ParentVerdict,
};

/// Warning: a certificate is not in Tyk's store.
pub const CERT_UPLOAD_FAILED: &str = "CertUploadFailed";
/// Warning: an API could not be deleted, or is not ours to delete.
pub const DELETION_FAILED: &str = "DeletionFailed";
/// Warning: nothing leads to the Tyk where APIs wait for their deletion.
pub const CLEANUP_BLOCKED: &str = "CleanupBlocked";
/// Normal: what Tyk had lost or held otherwise stands again.
pub const DRIFT_MENDED: &str = "DriftMended";

/// How many things of a kind a message names before it counts the rest.
const NAMED: usize = 3;

/// Takes down what came of an intent.
#[derive(Debug)]
pub struct Ledger {
    /// What is remembered from now on.
    pub memory: Memory,
    /// By Gateway: why Accepted is False, the first reason and what is the matter.
    troubles: BTreeMap<Key, (&'static str, Vec<String>)>,
    /// Ids that do not stand as wanted.
    pub troubled: BTreeSet<String>,
    notes: Vec<Note>,
    /// Where APIs wait for their deletion and nothing leads to: how many, and why.
    unled: Vec<(Place, usize, String)>,
    /// What happened once, to be told once.
    pub happened: Vec<Note>,
    /// Contexts that must lead somewhere, or with another credential, before this can end.
    pub blocked_on: BTreeSet<Key>,
    failures: Vec<ErrorClass>,
    /// This process may not write any more.
    pub fenced: bool,
}

impl Ledger {
    /// Before anything is done.
    pub fn new(intent: &Intent) -> Self {
        let mut ledger = Self {
            memory: intent.before.clone(),
            troubles: BTreeMap::new(),
            troubled: BTreeSet::new(),
            notes: Vec::new(),
            unled: Vec::new(),
            happened: Vec::new(),
            blocked_on: BTreeSet::new(),
            failures: Vec::new(),
            fenced: false,
        };
        for (gateway, label, Refused { reason, message }) in &intent.refused {
            ledger.trouble(gateway, reason, format!("{label}: {message}"));
        }
        ledger
    }

    fn trouble(&mut self, gateway: &Key, reason: &'static str, message: String) {
        let known = self
            .troubles
            .entry(gateway.clone())
            .or_insert_with(|| (reason, Vec::new()));
        // The order of reasons on the design page: a conflict comes before a failure.
        if reason == "AttachmentConflict" {
            known.0 = reason;
        }
        known.1.push(message);
    }

    fn failed(&mut self, error: &TykError) {
        self.fenced |= error.class == TykErrorClass::Fenced;
        self.failures.push(class(error.class));
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note {
            warning: true,
            reason: reason.into(),
            message,
        });
    }

    /// A task is done.
    pub fn task(&mut self, task: &Task, done: &Done) {
        for standing in &task.apis {
            let Some(trouble) = done.troubled.get(&standing.api.id) else {
                continue;
            };
            self.troubled.insert(standing.api.id.clone());
            let why = match trouble {
                Trouble::Foreign { owner } => {
                    self.failures.push(ErrorClass::Foreign);
                    format!(
                        "the id {} is taken by an API of {owner}, which is not touched; delete it in Tyk if nobody needs it",
                        standing.api.id
                    )
                }
                Trouble::Renamed { path } => {
                    self.failures.push(ErrorClass::Foreign);
                    format!(
                        "Tyk serves it under {path}, because another API has its listen path; remove that one from Tyk"
                    )
                }
                Trouble::NotLoaded => {
                    self.failures.push(ErrorClass::Transient);
                    format!(
                        "Tyk took {} and does not serve it; the log of the gateway says why",
                        standing.api.id
                    )
                }
                Trouble::Failed(error) => {
                    self.failed(error);
                    match error.class {
                        // Not about the document: whose connection it is tells where to look.
                        TykErrorClass::Unreachable
                        | TykErrorClass::Failing
                        | TykErrorClass::Busy
                        | TykErrorClass::Denied => {
                            format!("OperatorContext {}: {}", task.place.context, error.message)
                        }
                        _ => error.message.clone(),
                    }
                }
            };
            self.trouble(
                &standing.gateway,
                "TranslationFailed",
                format!("{}: {why}", standing.label),
            );
        }
        self.removed(&task.place, &task.remove, done);
        let org = &task.connection.org;
        for used in &task.certificates {
            let Some(error) = done.certificates.get(&certificate_id(org, &used.certificate)) else {
                continue;
            };
            self.failed(error);
            let message = format!(
                "the certificate of Secret {} is not in Tyk's store, so that HTTPS does not serve it; the APIs are \
                 written: {}",
                used.secret, error.message
            );
            self.warn(CERT_UPLOAD_FAILED, message);
        }
        if !done.mended.is_empty() {
            let ids: Vec<&str> = done.mended.iter().map(String::as_str).collect();
            self.happened.push(Note {
                warning: false,
                reason: DRIFT_MENDED.into(),
                message: format!(
                    "{} changed or lost in Tyk by somebody else, written again: {}",
                    apis(ids.len()),
                    some(ids.len(), ids)
                ),
            });
        }
    }

    /// A leftover was asked for at a context that leads there.
    pub fn leftover(&mut self, leftover: &Leftover, asked: &BTreeSet<String>, done: &Done) {
        let places: Vec<Place> = leftover
            .contexts
            .iter()
            .map(|context| Place {
                context: context.clone(),
                tyk: leftover.tyk.clone(),
            })
            .collect();
        for (n, place) in places.iter().enumerate() {
            if n == 0 {
                self.removed(place, asked, done);
            } else {
                self.forget(place, asked, done);
            }
        }
    }

    /// No context leads to a leftover. `why`: by context.
    pub fn blocked(&mut self, leftover: &Leftover, asked: &BTreeSet<String>, why: &[(Key, String, bool)]) {
        self.blocked_on.extend(leftover.contexts.iter().cloned());
        let asked_in_vain = why.iter().any(|(_, _, passes)| *passes);
        self.failures.push(if asked_in_vain {
            ErrorClass::Transient
        } else {
            ErrorClass::NotFound
        });
        for (context, why, _) in why {
            let place = Place {
                context: context.clone(),
                tyk: leftover.tyk.clone(),
            };
            self.unled.push((place, asked.len(), why.clone()));
        }
    }

    /// One event for all places: a route may name many.
    fn unled(&self, annotation: &str) -> Option<Note> {
        let (place, count, why) = self.unled.first()?;
        let mut message = format!(
            "{} of this route cannot be deleted from the Tyk of OperatorContext {}: {why}. It is tried again and goes on \
             when the context leads there; to leave what stands there, take {place} out of the annotation {annotation}",
            apis(*count),
            place.context
        );
        if self.unled.len() > 1 {
            let others: Vec<String> = self
                .unled
                .iter()
                .skip(1)
                .map(|(place, ..)| place.to_string())
                .collect();
            message.push_str(&format!("; the same of {}", some(others.len(), others)));
        }
        Some(Note {
            warning: true,
            reason: CLEANUP_BLOCKED.into(),
            message,
        })
    }

    /// Takes down which ids are gone and which are not.
    fn removed(&mut self, place: &Place, asked: &BTreeSet<String>, done: &Done) {
        self.forget(place, asked, done);
        let (mut foreign, mut failed) = (Vec::new(), Vec::new());
        for id in asked {
            match done.remaining.get(id) {
                None => {}
                // Ours is gone, or never was: nothing to wait for. Whose it is, is no business of a route that names it.
                Some(Trouble::Foreign { owner }) => {
                    tracing::info!(api = %id, context = %place.context, %owner, "an HTTPRoute names an API that is not its own");
                    foreign.push(id.clone());
                }
                Some(Trouble::Failed(error)) => {
                    self.failed(error);
                    // No timer is as good as the change that mends it.
                    if matches!(error.class, TykErrorClass::Denied | TykErrorClass::NoConnection) {
                        self.blocked_on.insert(place.context.clone());
                    }
                    failed.push(error.message.clone());
                }
                Some(Trouble::NotLoaded | Trouble::Renamed { .. }) => {
                    self.failures.push(ErrorClass::Transient);
                    failed.push(format!("{id} still stands"));
                }
            }
        }
        if !foreign.is_empty() {
            let message = format!(
                "{} that this route remembers at OperatorContext {} are not its own and were left alone: {}",
                apis(foreign.len()),
                place.context,
                some(foreign.len(), foreign)
            );
            // Told once and forgotten with the id.
            self.happened.push(Note {
                warning: true,
                reason: DELETION_FAILED.into(),
                message,
            });
        }
        if !failed.is_empty() {
            let count = failed.len();
            failed.sort();
            failed.dedup();
            let message = format!(
                "{} of this route could not be deleted from the Tyk of OperatorContext {}; it is tried again: {}",
                apis(count),
                place.context,
                some(failed.len(), failed)
            );
            self.warn(DELETION_FAILED, message);
        }
    }

    fn forget(&mut self, place: &Place, asked: &BTreeSet<String>, done: &Done) {
        for id in asked {
            if matches!(done.remaining.get(id), None | Some(Trouble::Foreign { .. })) {
                self.memory.take(place, id);
            }
        }
    }

    /// Gateways some of whose APIs do not stand.
    pub fn failing(&self) -> BTreeSet<Key> {
        self.troubles.keys().cloned().collect()
    }

    /// Events that hold while it is like this. `annotation`: where the route remembers.
    pub fn notes(&self, annotation: &str) -> Vec<Note> {
        self.notes.iter().cloned().chain(self.unled(annotation)).collect()
    }

    /// The class that is tried again soonest; `None` when nothing is left to do.
    pub fn failure(&self) -> Option<ErrorClass> {
        let soon = |class: &ErrorClass| match class {
            ErrorClass::Transient => 0,
            ErrorClass::RateLimited(_) => 1,
            ErrorClass::NotFound => 2,
            _ => 3,
        };
        self.failures.iter().copied().min_by_key(soon)
    }

    /// What is said of a parent: what the model says, unless its APIs do not stand.
    pub fn conditions(&self, parent: &ParentVerdict) -> Vec<Condition> {
        let accepted = |c: &&Condition| c.type_ == "Accepted" && c.status == true.into();
        let Some((reason, troubles)) = self.troubles.get(&parent.gateway) else {
            return parent.conditions.clone();
        };
        if !parent.conditions.iter().any(|c| accepted(&c)) {
            return parent.conditions.clone();
        }
        let more = troubles.len().saturating_sub(1);
        let mut message = troubles.first().cloned().unwrap_or_default();
        if more > 0 {
            message.push_str(&format!("; and {more} more"));
        }
        parent
            .conditions
            .iter()
            // What is dropped of a route says nothing while nothing of it can be relied on.
            .filter(|c| c.type_ != "PartiallyInvalid")
            .map(|c| match c.type_ {
                "Accepted" => Condition::new("Accepted", false, reason, message.clone()),
                _ => c.clone(),
            })
            .collect()
    }
}

/// When a failed call is worth another try.
fn class(class: TykErrorClass) -> ErrorClass {
    match class {
        TykErrorClass::Unreachable | TykErrorClass::Failing => ErrorClass::Transient,
        TykErrorClass::Busy => ErrorClass::RateLimited(None),
        TykErrorClass::Denied => ErrorClass::Forbidden,
        TykErrorClass::Refused => ErrorClass::Invalid,
        TykErrorClass::NoConnection => ErrorClass::NotFound,
        TykErrorClass::Fenced => ErrorClass::Shutdown,
    }
}

fn apis(count: usize) -> String {
    match count {
        1 => "1 API".to_owned(),
        many => format!("{many} APIs"),
    }
}

/// The first few, and how many more.
fn some(count: usize, items: impl IntoIterator<Item = impl Into<String>>) -> String {
    let named: Vec<String> = items.into_iter().take(NAMED).map(Into::into).collect();
    let more = count.saturating_sub(named.len());
    let mut text = named.join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::{
            intent::{Made, Wanted, intent},
            names::ANNOTATION,
        },
        *,
    };
    use crate::tyk::{
        objects::{Fingerprint, core::Certificate, route::ParentRef},
        translate::TykApi,
        verdict::{CertificateUse, Connection, Mode},
    };

    fn connection(url: &str) -> Arc<Connection> {
        Arc::new(Connection {
            url: url.into(),
            org: "o".into(),
            mode: Mode::OpenSource,
            context: Key::new("tyk", "main"),
            fingerprint: Fingerprint("f".into()),
        })
    }

    fn id(n: u8) -> String {
        format!("gwapi-{n:020x}")
    }

    fn made(n: u8, gateway: &str, connection: &Arc<Connection>) -> Made {
        Made {
            id: id(n),
            gateway: Key::new("infra", gateway),
            label: format!("any host, path /{n}"),
            connection: Arc::clone(connection),
            document: Ok(Arc::new(TykApi {
                id: id(n),
                document: serde_json::json!({}),
            })),
            certificates: vec![CertificateUse {
                certificate: Certificate {
                    leaf: Fingerprint("ab".into()),
                    ..certificate()
                },
                secret: Key::new("infra", "cert"),
            }],
        }
    }

    fn certificate() -> Certificate {
        Certificate {
            leaf: Fingerprint(String::new()),
            bundle: Fingerprint(String::new()),
            names: Default::default(),
        }
    }

    fn parent(gateway: &str, accepted: bool) -> ParentVerdict {
        ParentVerdict {
            parent: ParentRef::default(),
            gateway: Key::new("infra", gateway),
            conditions: vec![
                Condition::new(
                    "Accepted",
                    accepted,
                    if accepted { "Accepted" } else { "UnsupportedValue" },
                    "1 API",
                ),
                Condition::new("ResolvedRefs", true, "ResolvedRefs", ""),
                Condition::new("PartiallyInvalid", true, "UnsupportedValue", "Dropped Rule 1"),
            ],
        }
    }

    fn unreachable() -> TykError {
        TykError::new(TykErrorClass::Unreachable, "no answer")
    }

    fn said(ledger: &Ledger, gateway: &str) -> (Vec<&'static str>, String) {
        let conditions = ledger.conditions(&parent(gateway, true));
        let message = conditions[0].message.clone();
        (conditions.iter().map(|c| c.reason).collect(), message)
    }

    /// Two APIs on Gateway `edge`, one on `other`; ids 8 and 9 go.
    fn tale() -> (Intent, Place) {
        let tyk = connection("http://tyk");
        let place = Place::of(&tyk);
        let wanted = Wanted {
            made: vec![
                made(1, "edge", &tyk),
                made(2, "edge", &tyk),
                made(3, "other", &tyk),
            ],
            ..Wanted::default()
        };
        let mut memory = Memory::default();
        memory.add(&place, id(8));
        memory.add(&place, id(9));
        (intent(&wanted, memory), place)
    }

    #[test]
    fn what_is_done_is_said_as_the_model_says_it_and_what_is_gone_is_forgotten() {
        let (intent, place) = tale();
        let mut ledger = Ledger::new(&intent);
        ledger.task(&intent.tasks[0], &Done::default());
        assert_eq!(
            ledger.conditions(&parent("edge", true)),
            parent("edge", true).conditions
        );
        assert_eq!(
            (ledger.memory.len(), ledger.memory.has(&place, &id(8))),
            (3, false)
        );
        assert_eq!(
            (
                ledger.notes(ANNOTATION).len(),
                ledger.happened.len(),
                ledger.failure()
            ),
            (0, 0, None)
        );
    }

    #[test]
    fn translation_failed_names_the_first_trouble_and_counts_the_rest_on_its_gateway_only() {
        let (intent, _) = tale();
        let mut ledger = Ledger::new(&intent);
        let failed = |n| (id(n), Trouble::Failed(unreachable()));
        let done = Done {
            troubled: [failed(1), failed(2)].into(),
            ..Done::default()
        };
        ledger.task(&intent.tasks[0], &done);
        let (reasons, message) = said(&ledger, "edge");
        assert_eq!(reasons, ["TranslationFailed", "ResolvedRefs"]);
        let context = &intent.tasks[0].place.context;
        assert_eq!(
            message,
            format!("any host, path /1: OperatorContext {context}: no answer; and 1 more")
        );
        assert_eq!(
            said(&ledger, "other").0,
            ["Accepted", "ResolvedRefs", "UnsupportedValue"]
        );
        // a parent that is refused anyway keeps its reason
        assert_eq!(
            ledger.conditions(&parent("edge", false)),
            parent("edge", false).conditions
        );
        assert_eq!(ledger.failing(), [Key::new("infra", "edge")].into());
        assert_eq!(ledger.failure(), Some(ErrorClass::Transient));
    }

    #[test]
    fn every_trouble_has_words_and_a_class() {
        for (trouble, words, class) in [
            (
                Trouble::Foreign {
                    owner: "HTTPRoute a/b".into(),
                },
                "is taken by an API of HTTPRoute a/b",
                ErrorClass::Foreign,
            ),
            (
                Trouble::Renamed { path: "/x-1".into() },
                "serves it under /x-1",
                ErrorClass::Foreign,
            ),
            (Trouble::NotLoaded, "does not serve it", ErrorClass::Transient),
            (
                Trouble::Failed(TykError::new(TykErrorClass::Refused, "400")),
                "400",
                ErrorClass::Invalid,
            ),
            (
                Trouble::Failed(TykError::new(TykErrorClass::Denied, "403")),
                "403",
                ErrorClass::Forbidden,
            ),
            (
                Trouble::Failed(TykError::new(TykErrorClass::Busy, "429")),
                "429",
                ErrorClass::RateLimited(None),
            ),
        ] {
            let (intent, _) = tale();
            let mut ledger = Ledger::new(&intent);
            let done = Done {
                troubled: [(id(1), trouble)].into(),
                ..Done::default()
            };
            ledger.task(&intent.tasks[0], &done);
            let (_, message) = said(&ledger, "edge");
            assert!(message.contains(words), "{message}");
            assert_eq!(ledger.failure(), Some(class));
        }
    }

    #[test]
    fn of_several_failures_the_one_that_passes_soonest_decides() {
        let (intent, _) = tale();
        let mut ledger = Ledger::new(&intent);
        let done = Done {
            troubled: [
                (
                    id(1),
                    Trouble::Failed(TykError::new(TykErrorClass::Refused, "400")),
                ),
                (id(2), Trouble::Failed(unreachable())),
            ]
            .into(),
            ..Done::default()
        };
        ledger.task(&intent.tasks[0], &done);
        assert_eq!(ledger.failure(), Some(ErrorClass::Transient));
    }

    #[test]
    fn what_cannot_be_deleted_is_remembered_and_what_is_foreign_is_let_go() {
        let (intent, place) = tale();
        let mut ledger = Ledger::new(&intent);
        let owner = "HTTPRoute a/b".to_owned();
        let done = Done {
            remaining: [
                (id(8), Trouble::Foreign { owner }),
                (id(9), Trouble::Failed(unreachable())),
            ]
            .into(),
            ..Done::default()
        };
        ledger.task(&intent.tasks[0], &done);
        assert_eq!(
            (
                ledger.memory.has(&place, &id(8)),
                ledger.memory.has(&place, &id(9))
            ),
            (false, true)
        );
        let [happened] = ledger.happened.as_slice() else {
            panic!()
        };
        assert_eq!(happened.reason, DELETION_FAILED);
        assert!(
            happened.message.contains(&id(8)) && !happened.message.contains("a/b"),
            "{}",
            happened.message
        );
        let notes = ledger.notes(ANNOTATION);
        let [note] = &notes[..] else { panic!() };
        assert_eq!(note.reason, DELETION_FAILED);
        assert!(
            note.message.contains("1 API of this route could not be deleted"),
            "{}",
            note.message
        );
        // the parents do not suffer for what goes
        assert!(ledger.failing().is_empty());
        assert_eq!(ledger.failure(), Some(ErrorClass::Transient));
    }

    #[test]
    fn a_certificate_that_is_not_there_is_an_event_that_names_its_secret() {
        let (intent, _) = tale();
        let mut ledger = Ledger::new(&intent);
        let refused = TykError::new(TykErrorClass::Refused, "certificate is expired");
        let done = Done {
            certificates: [("oab".to_owned(), refused)].into(),
            ..Done::default()
        };
        ledger.task(&intent.tasks[0], &done);
        let notes = ledger.notes(ANNOTATION);
        let [note] = &notes[..] else {
            panic!("{:?}", ledger.notes(ANNOTATION))
        };
        assert_eq!(note.reason, CERT_UPLOAD_FAILED);
        for part in [
            "Secret infra/cert",
            "certificate is expired",
            "the APIs are written",
        ] {
            assert!(note.message.contains(part), "{}", note.message);
        }
        assert!(ledger.failing().is_empty(), "the API stands");
        assert!(ledger.failure().is_some(), "it is tried again");
    }

    #[test]
    fn a_leftover_without_a_way_is_remembered_and_names_context_count_and_way_out() {
        let old = connection("http://old");
        let mut memory = Memory::default();
        memory.add(&Place::of(&old), id(1));
        memory.add(&Place::of(&old), id(2));
        let intent = intent(&Wanted::default(), memory.clone());
        let leftover = &intent.leftovers[0];
        let mut ledger = Ledger::new(&intent);
        let context = Key::new("tyk", "main");
        let why = [(
            context.clone(),
            "OperatorContext tyk/main does not exist".to_owned(),
            false,
        )];
        ledger.blocked(leftover, &leftover.remove, &why);
        assert_eq!(ledger.memory, memory);
        let notes = ledger.notes(ANNOTATION);
        let [note] = &notes[..] else { panic!() };
        assert_eq!(note.reason, CLEANUP_BLOCKED);
        for part in [
            "2 APIs",
            "OperatorContext tyk/main",
            "does not exist",
            &Place::of(&old).to_string(),
            ANNOTATION,
        ] {
            assert!(note.message.contains(part), "{} lacks {part}", note.message);
        }
        assert_eq!(
            (ledger.failure(), ledger.blocked_on.len()),
            (Some(ErrorClass::NotFound), 1)
        );
        // and when there is a way, all is forgotten
        let mut ledger = Ledger::new(&intent);
        ledger.leftover(leftover, &leftover.remove, &Done::default());
        assert!(ledger.memory.is_empty());
    }

    #[test]
    fn a_lost_lease_is_no_trouble_of_the_route() {
        let (intent, _) = tale();
        let mut ledger = Ledger::new(&intent);
        let done = Done {
            troubled: [(id(1), Trouble::Failed(TykError::new(TykErrorClass::Fenced, "")))].into(),
            ..Done::default()
        };
        ledger.task(&intent.tasks[0], &done);
        assert!(ledger.fenced);
    }
}
