//! What is to be done for one route, Tyk by Tyk: which APIs should stand, which should go, which stay untouched, and what
//! must be remembered before the first of it. Pure: the table of the design page on Tyk, §4, row by row.
//!
//! The model has decided which APIs are wanted and which may stay; here this meets what was written before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::memory::{MOST, Memory, Place};
use crate::tyk::{
    Settings,
    objects::{Key, hex},
    translate::{self, Owner, TykApi, attach, identity, stamp},
    verdict::{ApiPlan, CertificateUse, Connection, RouteVerdict},
};

/// An API that the model wants.
#[derive(Clone, PartialEq)]
pub struct Made {
    /// Its id.
    pub id: String,
    /// The parent that it is for.
    pub gateway: Key,
    /// Host and path, for messages.
    pub label: String,
    /// Where it is written to.
    pub connection: Arc<Connection>,
    /// Its document, or why there is none.
    pub document: Result<Arc<TykApi>, Refused>,
    /// Certificates that it names.
    pub certificates: Vec<CertificateUse>,
}

// A document may hold what a definition holds: it is shown nowhere.
impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made")
            .field("id", &self.id)
            .field("label", &self.label)
            .field("refused", &self.document.as_ref().err())
            .finish_non_exhaustive()
    }
}

/// Why an API has no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Reason of the condition Accepted.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// What is wanted of a route. The default wants nothing: everything goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The APIs that should stand.
    pub made: Vec<Made>,
    /// Ids that stay as they are if they are there.
    pub keep: BTreeSet<String>,
}

impl Wanted {
    /// By the model's answer.
    pub fn of(verdict: &RouteVerdict, settings: &Settings) -> Self {
        Self {
            made: verdict.apis.iter().map(|plan| make(plan, settings)).collect(),
            keep: verdict.keep.values().flatten().cloned().collect(),
        }
    }

    /// A digest of the documents, with the owner that they are written for and the Tyk of each: eight hexadecimal digits,
    /// equal in every process.
    pub fn digest(&self, owner: &Owner) -> String {
        let mut parts: Vec<(&str, String, String)> = self
            .made
            .iter()
            .filter_map(|made| {
                let document = &made.document.as_ref().ok()?.document;
                Some((
                    made.id.as_str(),
                    made.connection.digest(),
                    stamp::digest(document),
                ))
            })
            .collect();
        parts.sort();
        let mut digest = Sha256::new();
        let mut part = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        for text in [&owner.cluster, &owner.controller, &owner.uid] {
            part(text);
        }
        for (id, tyk, document) in &parts {
            [*id, tyk.as_str(), document.as_str()]
                .into_iter()
                .for_each(&mut part);
        }
        hex(digest.finalize().iter().take(4))
    }
}

fn make(plan: &ApiPlan, settings: &Settings) -> Made {
    // The model asks the same; but nothing is written that was not asked about.
    let document = match attach::conflict(plan) {
        Ok(Some(message)) => Err(Refused {
            reason: "AttachmentConflict",
            message,
        }),
        Ok(None) | Err(_) => translate::translate(plan, settings)
            .map(Arc::new)
            .map_err(|refusal| Refused {
                reason: "TranslationFailed",
                message: refusal.to_string(),
            }),
    };
    let host = match &plan.host {
        Some(host) => format!("host {host}"),
        None => "any host".to_owned(),
    };
    Made {
        id: identity(plan),
        gateway: plan.gateway.clone(),
        label: format!("{host}, path {}", plan.path),
        connection: Arc::clone(&plan.connection),
        document,
        certificates: plan.certificates.clone(),
    }
}

/// What one Tyk that a Gateway leads to is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The way there.
    pub connection: Arc<Connection>,
    /// How it is remembered.
    pub place: Place,
    /// These should stand.
    pub apis: Vec<Standing>,
    /// These should not.
    pub remove: BTreeSet<String>,
    /// To be in the certificate store.
    pub certificates: BTreeSet<CertificateUse>,
}

impl Task {
    /// Ids of what should stand.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.apis.iter().map(|standing| standing.api.id.as_str())
    }
}

/// An API that should stand, and what to call it.
#[derive(Clone, PartialEq)]
pub struct Standing {
    /// The parent that it is for.
    pub gateway: Key,
    /// Host and path.
    pub label: String,
    /// Id and document.
    pub api: Arc<TykApi>,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Standing")
            .field(&self.api.id)
            .field(&self.label)
            .finish()
    }
}

/// What is remembered at a Tyk that no Gateway of the route leads to any more. It is looked at when the tasks are done.
#[derive(Clone, Debug, PartialEq)]
pub struct Leftover {
    /// Which Tyk.
    pub tyk: String,
    /// Contexts that led there once; any that still does will do.
    pub contexts: BTreeSet<Key>,
    /// These should not stand there.
    pub remove: BTreeSet<String>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intent {
    /// To be remembered before the first write.
    pub before: Memory,
    /// First, and all at once.
    pub tasks: Vec<Task>,
    /// Then.
    pub leftovers: Vec<Leftover>,
    /// APIs that have no document, with their Gateway; what stands of them stays.
    pub refused: Vec<(Key, String, Refused)>,
}

/// Meets what is wanted with what is remembered.
///
/// * An id that is wanted at the Tyk where it is remembered stands there, and is written again if it differs.
/// * An id that may be kept, or whose document is refused, stays wherever it is remembered; nothing is created from it.
/// * Every other id is removed where it is remembered.
pub fn intent(wanted: &Wanted, memory: Memory) -> Intent {
    // One way to each Tyk: two contexts may lead to one, and a route's APIs there are one matter. But certificates are of
    // an organisation, and a gateway may be told of several.
    let mut ways: BTreeMap<(String, &str), Arc<Connection>> = BTreeMap::new();
    for made in &wanted.made {
        let way = ways
            .entry((made.connection.digest(), &made.connection.org))
            .or_insert_with(|| Arc::clone(&made.connection));
        if made.connection.context < way.context {
            *way = Arc::clone(&made.connection);
        }
    }
    let mut places: BTreeMap<&str, Place> = BTreeMap::new();
    for ((tyk, _), way) in &ways {
        let place = places.entry(tyk).or_insert_with(|| Place::of(way));
        if way.context < place.context {
            *place = Place::of(way);
        }
    }
    let mut before = memory.under(|tyk| places.get(tyk).map(|place| place.context.clone()));
    let mut intent = Intent::default();
    let mut tasks: BTreeMap<(String, &str), Task> = ways
        .iter()
        .filter_map(|((tyk, org), connection)| {
            let task = Task {
                place: places.get(tyk.as_str())?.clone(),
                connection: Arc::clone(connection),
                apis: Vec::new(),
                remove: BTreeSet::new(),
                certificates: BTreeSet::new(),
            };
            Some(((tyk.clone(), *org), task))
        })
        .collect();
    let mut stays: BTreeSet<&str> = wanted.keep.iter().map(String::as_str).collect();
    for made in &wanted.made {
        let Some(task) = tasks.get_mut(&(made.connection.digest(), &*made.connection.org)) else {
            continue;
        };
        let full = || Refused {
            reason: "TranslationFailed",
            message: format!(
                "{} APIs of this route wait for their deletion in Tyk, and no more can be remembered: see the events of \
                 the route",
                before.len()
            ),
        };
        let document = match &made.document {
            Ok(_) if before.len() >= MOST && !before.has(&task.place, &made.id) => Err(full()),
            Ok(api) => Ok(api),
            Err(refused) => Err(refused.clone()),
        };
        match document {
            Ok(api) => {
                before.add(&task.place, made.id.as_str());
                task.certificates.extend(made.certificates.iter().cloned());
                task.apis.push(Standing {
                    gateway: made.gateway.clone(),
                    label: made.label.clone(),
                    api: Arc::clone(api),
                });
            }
            Err(refused) => {
                stays.insert(&made.id);
                intent
                    .refused
                    .push((made.gateway.clone(), made.label.clone(), refused));
            }
        }
    }
    let mut leftovers: BTreeMap<&str, Leftover> = BTreeMap::new();
    for (place, ids) in before.places() {
        let goes = ids.iter().filter(|id| !stays.contains(id.as_str()));
        let here = tasks.values().filter(|task| task.place.tyk == place.tyk);
        let stand: BTreeSet<&str> = here.flat_map(Task::ids).collect();
        let goes: Vec<String> = goes.filter(|id| !stand.contains(id.as_str())).cloned().collect();
        match tasks.values_mut().find(|task| task.place.tyk == place.tyk) {
            Some(task) => task.remove.extend(goes),
            None => {
                if goes.is_empty() {
                    continue;
                }
                let leftover = leftovers.entry(&place.tyk).or_insert_with(|| Leftover {
                    tyk: place.tyk.clone(),
                    contexts: BTreeSet::new(),
                    remove: BTreeSet::new(),
                });
                leftover.contexts.insert(place.context.clone());
                leftover.remove.extend(goes);
            }
        }
    }
    intent.leftovers = leftovers.into_values().collect();
    intent.tasks = tasks
        .into_values()
        .filter(|task| !task.apis.is_empty() || !task.remove.is_empty())
        .collect();
    intent.before = before;
    intent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tyk::{objects::Fingerprint, verdict::Mode};
    use serde_json::json;

    fn connection(context: &str, url: &str) -> Arc<Connection> {
        Arc::new(Connection {
            url: url.into(),
            org: "o".into(),
            mode: Mode::OpenSource,
            context: Key::new("tyk", context),
            fingerprint: Fingerprint("f".into()),
        })
    }

    fn id(n: u8) -> String {
        format!("gwapi-{n:020x}")
    }

    fn made(n: u8, connection: &Arc<Connection>) -> Made {
        Made {
            id: id(n),
            gateway: Key::new("infra", "edge"),
            label: format!("any host, path /{n}"),
            connection: Arc::clone(connection),
            document: Ok(Arc::new(TykApi {
                id: id(n),
                document: json!({ "n": n }),
            })),
            certificates: Vec::new(),
        }
    }

    fn refused(n: u8, connection: &Arc<Connection>) -> Made {
        Made {
            document: Err(Refused {
                reason: "AttachmentConflict",
                message: "both".into(),
            }),
            ..made(n, connection)
        }
    }

    fn memory(places: &[(&Arc<Connection>, &[u8])]) -> Memory {
        let mut memory = Memory::default();
        for (connection, ids) in places {
            for n in *ids {
                memory.add(&Place::of(connection), id(*n));
            }
        }
        memory
    }

    /// Of each task: what stands, what goes.
    fn tasks(intent: &Intent) -> Vec<(Vec<String>, Vec<String>)> {
        let of = |task: &Task| {
            let stand = task.apis.iter().map(|s| s.api.id.clone()).collect();
            (stand, task.remove.iter().cloned().collect())
        };
        intent.tasks.iter().map(of).collect()
    }

    fn goes(intent: &Intent) -> Vec<(Vec<String>, Vec<String>)> {
        let of = |leftover: &'_ Leftover| leftover.remove.iter().cloned().collect();
        let contexts = |leftover: &'_ Leftover| -> Vec<String> {
            leftover.contexts.iter().map(|c| c.name.clone()).collect()
        };
        intent.leftovers.iter().map(|l| (contexts(l), of(l))).collect()
    }

    fn wanted(made: Vec<Made>, keep: &[u8]) -> Wanted {
        Wanted {
            made,
            keep: keep.iter().map(|n| id(*n)).collect(),
        }
    }

    #[test]
    fn what_is_wanted_is_remembered_before_it_is_written_and_the_rest_goes() {
        let tyk = connection("main", "http://tyk");
        let wanted = wanted(vec![made(1, &tyk), made(2, &tyk)], &[]);
        let intent = intent(&wanted, memory(&[(&tyk, &[2, 3])]));
        assert_eq!(intent.before, memory(&[(&tyk, &[1, 2, 3])]));
        assert_eq!(tasks(&intent), [(vec![id(1), id(2)], vec![id(3)])]);
        assert!(intent.leftovers.is_empty());
    }

    #[test]
    fn the_digest_changes_with_every_document_and_with_nothing_else() {
        let tyk = connection("main", "http://tyk");
        let owner = |uid: &str| Owner {
            cluster: "c".into(),
            controller: "example.org/tyk".into(),
            route: Key::new("shop", "r"),
            uid: uid.into(),
        };
        let of = |made: Vec<Made>| wanted(made, &[]).digest(&owner("1"));
        let digest = of(vec![made(1, &tyk), made(2, &tyk)]);
        assert_eq!(digest.len(), 8);
        // order, labels and another credential are no difference
        let mut rotated = (*tyk).clone();
        rotated.fingerprint = Fingerprint("other".into());
        let mut named = made(1, &Arc::new(rotated));
        named.label = "another".into();
        assert_eq!(of(vec![made(2, &tyk), named]), digest);
        // another document, one less, another Tyk, another owner are
        let mut other = made(1, &tyk);
        other.document = Ok(Arc::new(TykApi {
            id: id(1),
            document: json!({"n": 7}),
        }));
        assert_ne!(of(vec![other, made(2, &tyk)]), digest);
        assert_ne!(of(vec![made(1, &tyk)]), digest);
        let far = connection("main", "http://far");
        assert_ne!(of(vec![made(1, &far), made(2, &tyk)]), digest);
        let again = wanted(vec![made(1, &tyk), made(2, &tyk)], &[]).digest(&owner("2"));
        assert_ne!(again, digest);
    }

    #[test]
    fn what_may_be_kept_stays_and_is_not_created() {
        let tyk = connection("main", "http://tyk");
        let intent = intent(&wanted(vec![], &[1, 2]), memory(&[(&tyk, &[2, 3])]));
        assert_eq!(intent.before, memory(&[(&tyk, &[2, 3])]));
        assert!(intent.tasks.is_empty(), "no Gateway leads there now");
        assert_eq!(goes(&intent), [(vec!["main".to_owned()], vec![id(3)])]);
        // and with nothing to go, nobody is asked where the context leads
        let intent = super::intent(&wanted(vec![], &[1, 2]), memory(&[(&tyk, &[2])]));
        assert_eq!((intent.tasks.len(), intent.leftovers.len()), (0, 0));
    }

    #[test]
    fn a_refused_document_keeps_what_stands_and_creates_nothing() {
        let tyk = connection("main", "http://tyk");
        let both = vec![refused(1, &tyk), refused(2, &tyk), made(3, &tyk)];
        let intent = intent(&wanted(both, &[]), memory(&[(&tyk, &[2, 4])]));
        assert_eq!(intent.before, memory(&[(&tyk, &[2, 3, 4])]));
        assert_eq!(tasks(&intent), [(vec![id(3)], vec![id(4)])]);
        assert_eq!(intent.refused.len(), 2);
    }

    #[test]
    fn nothing_wanted_removes_all() {
        let (one, two) = (connection("a", "http://one"), connection("b", "http://two"));
        let intent = intent(&Wanted::default(), memory(&[(&one, &[1]), (&two, &[2, 3])]));
        let mut all = goes(&intent);
        all.sort();
        assert_eq!(
            all,
            [
                (vec!["a".to_owned()], vec![id(1)]),
                (vec!["b".to_owned()], vec![id(2), id(3)])
            ]
        );
        assert_eq!(
            super::intent(&Wanted::default(), Memory::default()),
            Intent::default()
        );
    }

    #[test]
    fn gateways_of_two_classes_are_two_tasks() {
        let (one, two) = (connection("a", "http://one"), connection("b", "http://two"));
        let intent = intent(
            &wanted(vec![made(1, &one), made(2, &two)], &[]),
            Memory::default(),
        );
        let mut all = tasks(&intent);
        all.sort();
        assert_eq!(all, [(vec![id(1)], vec![]), (vec![id(2)], vec![])]);
        assert_eq!(intent.before, memory(&[(&one, &[1]), (&two, &[2])]));
    }

    #[test]
    fn two_contexts_of_one_tyk_are_one_task_under_the_first() {
        let (a, b) = (connection("a", "http://tyk"), connection("b", "http://tyk"));
        for made in [vec![made(1, &a), made(2, &b)], vec![made(2, &b), made(1, &a)]] {
            let intent = intent(&wanted(made, &[]), memory(&[(&b, &[2, 3])]));
            let [task] = intent.tasks.as_slice() else {
                panic!("{intent:?}");
            };
            assert_eq!((task.apis.len(), &task.connection), (2, &a));
            assert_eq!(task.remove, [id(3)].into());
            assert_eq!(intent.before, memory(&[(&a, &[1, 2, 3])]));
        }
    }

    #[test]
    fn two_organisations_of_one_gateway_are_two_tasks_of_one_place() {
        let a = connection("a", "http://tyk");
        let b = Arc::new(Connection {
            org: "other".into(),
            ..(*connection("b", "http://tyk")).clone()
        });
        for made in [vec![made(1, &a), made(2, &b)], vec![made(2, &b), made(1, &a)]] {
            // given what was remembered under either context
            let intent = intent(&wanted(made, &[]), memory(&[(&b, &[2, 3]), (&a, &[1, 4])]));
            // then each is written as its organisation wants it, and what goes goes once
            let mut all = tasks(&intent);
            all.sort();
            assert_eq!(all, [(vec![id(1)], vec![id(3), id(4)]), (vec![id(2)], vec![])]);
            assert!(intent.tasks.iter().all(|task| task.place == Place::of(&a)));
            assert_eq!(intent.before, memory(&[(&a, &[1, 2, 3, 4])]));
            assert!(intent.leftovers.is_empty());
        }
    }

    #[test]
    fn a_context_that_was_replaced_by_another_of_the_same_tyk_moves_nothing() {
        let (old, new) = (connection("old", "http://tyk"), connection("new", "http://tyk"));
        let intent = intent(&wanted(vec![made(1, &new)], &[]), memory(&[(&old, &[1])]));
        assert_eq!(tasks(&intent), [(vec![id(1)], vec![])]);
        assert_eq!(intent.before, memory(&[(&new, &[1])]));
        assert!(intent.leftovers.is_empty());
    }

    #[test]
    fn another_url_is_another_tyk_and_the_old_one_is_cleaned() {
        let (old, new) = (connection("main", "http://old"), connection("main", "http://new"));
        let intent = intent(&wanted(vec![made(1, &new)], &[]), memory(&[(&old, &[1, 2])]));
        assert_eq!(tasks(&intent), [(vec![id(1)], vec![])]);
        assert_eq!(goes(&intent), [(vec!["main".to_owned()], vec![id(1), id(2)])]);
        assert_eq!(intent.before, memory(&[(&old, &[1, 2]), (&new, &[1])]));
    }

    #[test]
    fn what_is_kept_or_refused_stays_where_it_was_written() {
        let (old, new) = (connection("main", "http://old"), connection("main", "http://new"));
        let wanted = wanted(vec![refused(1, &new), made(2, &new)], &[3]);
        let intent = intent(&wanted, memory(&[(&old, &[1, 2, 3, 4])]));
        assert_eq!(tasks(&intent), [(vec![id(2)], vec![])]);
        assert_eq!(goes(&intent), [(vec!["main".to_owned()], vec![id(2), id(4)])]);
    }

    #[test]
    fn a_full_memory_takes_nothing_new_and_says_so() {
        let (old, new) = (connection("main", "http://old"), connection("main", "http://new"));
        let mut full = Memory::default();
        for n in 0..MOST {
            full.add(&Place::of(&old), format!("gwapi-{n:020x}"));
        }
        full.take(&Place::of(&old), &id(0));
        full.add(&Place::of(&new), id(0));
        let intent = intent(&wanted(vec![made(0, &new), made(1, &new)], &[]), full.clone());
        assert_eq!(intent.before, full);
        assert_eq!(tasks(&intent), [(vec![id(0)], vec![])]);
        let [(_, label, refused)] = intent.refused.as_slice() else {
            panic!();
        };
        assert_eq!(label, "any host, path /1");
        assert!(refused.message.contains("2048 APIs"), "{}", refused.message);
    }

    #[test]
    fn nothing_of_a_document_is_shown() {
        let tyk = connection("main", "http://tyk");
        let mut api = made(1, &tyk);
        api.document = Ok(Arc::new(TykApi {
            id: id(1),
            document: json!({"header": "Authorization: s3cret"}),
        }));
        let wanted = wanted(vec![api], &[]);
        let intent = intent(&wanted, Memory::default());
        let shown = format!("{wanted:?} {intent:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
