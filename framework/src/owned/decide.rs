//! What to do about one child, from its plan, the cache and what is remembered. Pure: no call, no clock.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::{
    compare::{crosses_list, intent_hash, is_subset, surplus},
    memory::{Remembered, Written},
};
use crate::{Child, Desired};

/// What the framework writes on every child besides what the plan wants.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// The owner, with `controller: true` and without `blockOwnerDeletion`.
    pub owner: OwnerReference,
    /// The owner's generation that was planned from, where its kind has one.
    pub generation: Option<i64>,
    /// The owner is being deleted.
    pub terminating: bool,
    /// Prefix of our annotations: `<prefix>/applied-hash` carries the hash of the applied intent, `<prefix>/applied-generation`
    /// the owner's generation that it was planned from, and by `<prefix>/adopt` an object's own side allows us, by our
    /// owner's uid, to take it over.
    pub prefix: Arc<str>,
    /// Our field manager.
    pub manager: Arc<str>,
}

const HASH: &str = "applied-hash";
const GENERATION: &str = "applied-generation";
const ADOPT: &str = "adopt";

impl Stamp {
    /// The value of our annotation with this name.
    fn annotation<'a>(&self, live: &'a Child, name: &str) -> Option<&'a str> {
        let is_it = |key: &str| {
            let rest = key
                .strip_prefix(&*self.prefix)
                .and_then(|rest| rest.strip_prefix('/'));
            rest == Some(name)
        };
        let mut all = live.metadata.annotations.iter().flatten();
        all.find(|(key, _)| is_it(key)).map(|(_, value)| value.as_str())
    }

    /// Whether the object was applied for a later generation of this very owner: the cache that was planned from is
    /// behind, and what it plans is over.
    pub fn is_behind(&self, live: &Child) -> bool {
        let owned = live.controller().is_some_and(|owner| owner.uid == self.owner.uid);
        let applied = self
            .annotation(live, GENERATION)
            .and_then(|g| g.parse::<i64>().ok());
        owned
            && applied
                .zip(self.generation)
                .is_some_and(|(applied, known)| applied > known)
    }
}

/// A child's intent, ready to be compared and sent.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Labels as they should be.
    pub labels: BTreeMap<String, String>,
    /// Annotations as they should be, hash included.
    pub annotations: BTreeMap<String, String>,
    /// The whole body for server-side apply, without uid and resourceVersion.
    pub body: Value,
    /// Hash of the body without the hash annotation.
    pub hash: String,
    /// Annotation that every write adds and no comparison looks at: the owner's generation.
    generation: Option<(Arc<str>, i64)>,
}

impl Intent {
    /// Stamps owner and hash on what the plan wants. Empty maps are left out: the API server would count them as a
    /// change at every apply (apiserver facts §3).
    pub fn new(desired: &Desired, stamp: &Stamp) -> Self {
        let mut metadata = Map::new();
        metadata.insert("name".into(), desired.name.clone().into());
        metadata.insert("namespace".into(), desired.namespace.clone().into());
        if !desired.labels.is_empty() {
            metadata.insert("labels".into(), json!(desired.labels));
        }
        if !desired.annotations.is_empty() {
            metadata.insert("annotations".into(), json!(desired.annotations));
        }
        metadata.insert("ownerReferences".into(), json!([owner_json(&stamp.owner)]));
        let mut body = match desired.body.clone() {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        body.insert("apiVersion".into(), desired.kind.api_version().into());
        body.insert("kind".into(), desired.kind.kind.into());
        body.insert("metadata".into(), Value::Object(metadata));
        let mut body = Value::Object(body);
        let hash = intent_hash(&body);
        let mut annotations = desired.annotations.clone();
        annotations.insert(format!("{}/{HASH}", stamp.prefix), hash.clone());
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("annotations".into(), json!(annotations));
        }
        Self {
            labels: desired.labels.clone(),
            annotations,
            body,
            hash,
            generation: stamp.generation.map(|g| (Arc::clone(&stamp.prefix), g)),
        }
    }

    /// The intent with what of the live object is to be kept. Then it holds for that version of the object alone: what is
    /// kept may be taken away meanwhile, and must not come back by us.
    #[must_use]
    pub fn keeping(self, desired: &Desired, live: &Child) -> Self {
        let Some(keep) = desired.options.keep else {
            return self;
        };
        let mut body = self.body.clone();
        keep(&mut body, &live.rest());
        if body == self.body {
            return self;
        }
        let kept = Self { body, ..self };
        Self {
            body: kept.body_with("resourceVersion", live.version()),
            ..kept
        }
    }

    /// The body with one more metadata field.
    pub fn body_with(&self, field: &str, value: &str) -> Value {
        let mut body = self.body.clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), value.into());
            if let (Some((prefix, generation)), Some(Value::Object(annotations))) =
                (&self.generation, metadata.get_mut("annotations"))
            {
                annotations.insert(format!("{prefix}/{GENERATION}"), generation.to_string().into());
            }
        }
        body
    }
}

fn owner_json(owner: &OwnerReference) -> Value {
    json!({
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
        "controller": true,
    })
}

/// What to do about a wanted child.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It stands as wanted. `compared`: found so just now, worth remembering.
    Unchanged {
        /// As it stands.
        live: Arc<Child>,
        /// Compared rather than recalled.
        compared: bool,
    },
    /// Create it, and only create.
    Create,
    /// Change exactly this object.
    Update {
        /// As it stands.
        live: Arc<Child>,
        /// Our own intent is unchanged: somebody else edited a field of ours.
        outside_edit: bool,
    },
    /// Ours, but written by another field manager: take over its fields first, or dropped keys would never go.
    TakeOver {
        /// As it stands.
        live: Arc<Child>,
    },
    /// Says all that is wanted, and more where it should hold nothing else: take these JSON pointers away.
    Trim {
        /// As it stands.
        live: Arc<Child>,
        /// What to remove.
        surplus: Vec<String>,
    },
    /// Written for a later generation of the owner than the one that was planned from: wait for the cache.
    Behind {
        /// As it stands.
        live: Arc<Child>,
    },
    /// The owner is being deleted: leave the child to the garbage collector.
    Held {
        /// As it stands, if it does.
        live: Option<Arc<Child>>,
    },
    /// Ours and on its way out: wait.
    Terminating {
        /// As it stands.
        live: Arc<Child>,
    },
    /// Not ours: leave alone.
    Foreign {
        /// As it stands.
        live: Arc<Child>,
        /// Who owns it, for people.
        owner: String,
    },
}

/// What to do about a child that should stand like `intent`.
pub fn want(
    desired: &Desired,
    intent: &Intent,
    stamp: &Stamp,
    cached: Option<&Arc<Child>>,
    known: &Remembered,
) -> Decision {
    let decision = compare(desired, intent, stamp, cached, known);
    let live = match &decision {
        Decision::Create => None,
        Decision::Update { live, .. } | Decision::TakeOver { live } | Decision::Trim { live, .. } => {
            Some(live)
        }
        _ => return decision,
    };
    if let Some(live) = live.filter(|live| stamp.is_behind(live)) {
        return Decision::Behind {
            live: Arc::clone(live),
        };
    }
    if stamp.terminating && !desired.options.while_deleting {
        return Decision::Held { live: live.cloned() };
    }
    decision
}

fn compare(
    desired: &Desired,
    intent: &Intent,
    stamp: &Stamp,
    cached: Option<&Arc<Child>>,
    known: &Remembered,
) -> Decision {
    // A write of ours that the cache has not shown yet is newer than the cache.
    let (live, written) = match (&known.written, cached) {
        (Some(Written { live, hash, .. }), _) => (live, Some(hash)),
        (None, Some(live)) => (live, None),
        (None, None) => return Decision::Create,
    };
    let live = Arc::clone(live);
    if known.removed.is_some() {
        // We deleted it ourselves, and the cache does not know yet.
        return Decision::Terminating { live };
    }
    match ownership(&live, stamp) {
        Ownership::Foreign(owner) => return Decision::Foreign { live, owner },
        _ if live.terminating() => return Decision::Terminating { live },
        Ownership::Adoptable => {
            return Decision::Update {
                live,
                outside_edit: false,
            };
        }
        Ownership::Ours => {}
    }
    if written == Some(&intent.hash) {
        return Decision::Unchanged {
            live,
            compared: false,
        };
    }
    let equal = known
        .equal
        .as_ref()
        .filter(|equal| equal.uid == live.uid() && equal.hash == intent.hash);
    if equal.is_some_and(|equal| equal.version == live.version()) {
        return Decision::Unchanged {
            live,
            compared: false,
        };
    }
    if !live.appliers.iter().any(|manager| **manager == *stamp.manager) {
        return Decision::TakeOver { live };
    }
    let rendering = equal.and_then(|equal| equal.rendering.as_deref());
    let same_intent = stamp.annotation(&live, HASH) == Some(intent.hash.as_str());
    let standing = if same_intent {
        standing(desired, intent, stamp, &live, rendering)
    } else {
        Standing::Differs
    };
    match standing {
        Standing::AsWanted => Decision::Unchanged { live, compared: true },
        Standing::WithSurplus(surplus) => Decision::Trim { live, surplus },
        Standing::Differs => Decision::Update {
            live,
            outside_edit: same_intent,
        },
    }
}

/// What a live object says of an intent.
enum Standing {
    /// All of it, and nothing else where it should hold nothing else.
    AsWanted,
    /// All of it, and more at these JSON pointers.
    WithSurplus(Vec<String>),
    /// Something else.
    Differs,
}

/// What the live object says, tolerated differences aside. `known`: the rendering of the same intent by the server.
fn standing(
    desired: &Desired,
    intent: &Intent,
    stamp: &Stamp,
    live: &Child,
    known: Option<&str>,
) -> Standing {
    let has = |have: Option<&BTreeMap<String, String>>, want: &BTreeMap<String, String>| {
        want.iter()
            .all(|(key, value)| have.and_then(|h| h.get(key)) == Some(value))
    };
    let meta = &live.metadata;
    let owned = live.controller().is_some_and(|o| {
        o.name == stamp.owner.name && o.kind == stamp.owner.kind && o.api_version == stamp.owner.api_version
    });
    if !owned
        || !has(meta.labels.as_ref(), &intent.labels)
        || !has(meta.annotations.as_ref(), &intent.annotations)
    {
        return Standing::Differs;
    }
    let rest = tolerated(desired, live);
    let surplus = if is_subset(&desired.body, &rest) {
        surplus_of(desired, &rest)
    } else {
        // Whatever it is, it is more than a surplus.
        Vec::from([String::new()])
    };
    if surplus.is_empty() || known.is_some_and(|known| known == hash_of(rest.clone())) {
        Standing::AsWanted
    } else if surplus.iter().any(|at| at.is_empty() || crosses_list(&rest, at)) {
        // An apply replaces lists as a whole, and keeps in them what is tolerated.
        Standing::Differs
    } else {
        Standing::WithSurplus(surplus)
    }
}

fn tolerated(desired: &Desired, live: &Child) -> Value {
    let mut rest = live.rest();
    if let Some(tolerate) = desired.options.tolerate {
        tolerate(&mut rest, &desired.body);
    }
    rest
}

fn surplus_of(desired: &Desired, rest: &Value) -> Vec<String> {
    let whole = desired.options.whole.iter();
    whole.flat_map(|at| surplus(&desired.body, rest, at)).collect()
}

fn hash_of(mut rest: Value) -> String {
    if let Some(map) = rest.as_object_mut() {
        map.remove("status");
    }
    intent_hash(&rest)
}

/// Hash of the object without metadata and status, tolerated differences aside: the API server's spelling of an intent, if
/// it is the answer to a write of it.
pub fn rendering(desired: &Desired, live: &Child) -> String {
    hash_of(tolerated(desired, live))
}

/// The JSON patch that takes away what an apply has left over of the parts that hold nothing but what is desired; `None`
/// if there is nothing.
pub fn trimming(desired: &Desired, live: &Child) -> Option<Vec<Value>> {
    if desired.options.whole.is_empty() {
        return None;
    }
    let rest = tolerated(desired, live);
    let mut operations: Vec<Value> = Vec::new();
    for part in desired.options.whole {
        for at in surplus(&desired.body, &rest, part) {
            // Indices of a list are those of the live object, what is tolerated included: its part goes as a whole.
            let kept = crosses_list(&rest, &at).then(|| kept(desired, live));
            let operation = match kept.as_ref().and_then(|body| body.pointer(part)) {
                Some(value) => json!({"op": "replace", "path": part, "value": value}),
                None => json!({"op": "remove", "path": at}),
            };
            if !operations.contains(&operation) {
                operations.push(operation);
            }
        }
    }
    (!operations.is_empty()).then_some(operations)
}

/// The desired body with what of the live object is to be kept.
fn kept(desired: &Desired, live: &Child) -> Value {
    let mut body = desired.body.clone();
    if let Some(keep) = desired.options.keep {
        keep(&mut body, &live.rest());
    }
    body
}

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Its controller is our owner.
    Ours,
    /// Nobody controls it and its annotation names our owner's uid.
    Adoptable,
    /// Anybody else's, or nobody's.
    Foreign(String),
}

/// Whose this object is, from the side of `stamp.owner`.
pub fn ownership(live: &Child, stamp: &Stamp) -> Ownership {
    match live.controller() {
        Some(owner) if owner.uid == stamp.owner.uid => Ownership::Ours,
        Some(owner) => Ownership::Foreign(format!("{} {}", owner.kind, owner.name)),
        None if stamp.annotation(live, ADOPT) == Some(stamp.owner.uid.as_str()) => Ownership::Adoptable,
        None => Ownership::Foreign("nobody".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiKind, plan::ApplyOptions};

    const KIND: ApiKind = ApiKind::new("networking.k8s.io", "v1", "Ingress", "ingresses");

    fn stamp() -> Stamp {
        Stamp {
            owner: OwnerReference {
                api_version: "g/v1".into(),
                kind: "Owner".into(),
                name: "o".into(),
                uid: "owner-uid".into(),
                controller: Some(true),
                block_owner_deletion: None,
            },
            generation: Some(3),
            terminating: false,
            prefix: "kit".into(),
            manager: "kit-c".into(),
        }
    }
    fn desired() -> Desired {
        Desired {
            kind: KIND,
            namespace: "ns".into(),
            name: "n".into(),
            labels: BTreeMap::from([("l".into(), "1".into())]),
            annotations: BTreeMap::new(),
            body: json!({"spec": {"a": [1, 2]}}),
            options: ApplyOptions::default(),
        }
    }
    /// As the server would return it after our apply, changed by `edit`.
    fn live(edit: impl FnOnce(&mut Value)) -> Arc<Child> {
        let mut object = Intent::new(&desired(), &stamp()).body;
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["resourceVersion"] = json!("5");
        object["metadata"]["managedFields"] = json!([{"manager": "kit-c", "operation": "Apply"}]);
        edit(&mut object);
        Arc::new(Child::from_value(object).unwrap())
    }
    fn decide(cached: Option<&Arc<Child>>, known: &Remembered) -> Decision {
        want(
            &desired(),
            &Intent::new(&desired(), &stamp()),
            &stamp(),
            cached,
            known,
        )
    }
    fn name(decision: &Decision) -> String {
        let text = format!("{decision:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }

    #[test]
    fn each_state_of_the_cache_has_its_decision() {
        let none = Remembered::default();
        let case = |edit: fn(&mut Value)| decide(Some(&live(edit)), &none);
        assert!(matches!(decide(None, &none), Decision::Create));
        assert!(matches!(case(|_| {}), Decision::Unchanged { compared: true, .. }));
        assert!(matches!(
            case(|o| o["spec"]["a"] = json!([1])),
            Decision::Update {
                outside_edit: true,
                ..
            }
        ));
        assert!(matches!(
            case(|o| o["metadata"]["labels"] = json!({})),
            Decision::Update {
                outside_edit: true,
                ..
            }
        ));
        assert!(matches!(
            case(|o| o["metadata"]["annotations"]["kit/applied-hash"] = json!("old")),
            Decision::Update {
                outside_edit: false,
                ..
            }
        ));
        assert!(matches!(
            case(|o| o["metadata"]["labels"]["user"] = json!("x")),
            Decision::Unchanged { .. }
        ));
        assert_eq!(
            name(&case(
                |o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
            )),
            "Terminating"
        );
        assert_eq!(
            name(&case(|o| o["metadata"]["managedFields"] = json!([]))),
            "TakeOver"
        );
    }

    #[test]
    fn what_is_not_ours_is_left_alone_and_its_owner_named() {
        let none = Remembered::default();
        let case = |edit: fn(&mut Value)| match decide(Some(&live(edit)), &none) {
            Decision::Foreign { owner, .. } => owner,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            case(|o| o["metadata"]["ownerReferences"][0]["uid"] = json!("x")),
            "Owner o"
        );
        assert_eq!(case(|o| o["metadata"]["ownerReferences"] = json!([])), "nobody");
        assert_eq!(
            case(|o| {
                o["metadata"]["ownerReferences"] = json!([]);
                o["metadata"]["annotations"]["kit/adopt"] = json!("another-uid");
            }),
            "nobody"
        );
        let adopted = live(|o| {
            o["metadata"]["ownerReferences"] = json!([]);
            o["metadata"]["annotations"]["kit/adopt"] = json!("owner-uid");
        });
        assert!(matches!(
            decide(Some(&adopted), &none),
            Decision::Update {
                outside_edit: false,
                ..
            }
        ));
        let controlled = live(|o| {
            o["metadata"]["ownerReferences"][0]["uid"] = json!("x");
            o["metadata"]["annotations"]["kit/adopt"] = json!("owner-uid");
        });
        assert_eq!(
            name(&decide(Some(&controlled), &none)),
            "Foreign",
            "an owner beats the annotation"
        );
    }

    #[test]
    fn an_intent_of_an_older_generation_changes_nothing_and_of_the_same_or_a_later_one_does() {
        let applied = |generation: &str, owner: &str| {
            live(|o| {
                o["spec"]["a"] = json!([1]);
                o["metadata"]["annotations"]["kit/applied-generation"] = json!(generation);
                o["metadata"]["ownerReferences"][0]["uid"] = json!(owner);
            })
        };
        for (generation, behind) in [("2", false), ("3", false), ("4", true), ("odd", false)] {
            let live = applied(generation, "owner-uid");
            assert_eq!(stamp().is_behind(&live), behind, "{generation}");
            let expected = if behind { "Behind" } else { "Update" };
            assert_eq!(
                name(&decide(Some(&live), &Remembered::default())),
                expected,
                "{generation}"
            );
        }
        assert!(!stamp().is_behind(&applied("4", "another-owner")));
        let body = Intent::new(&desired(), &stamp()).body_with("uid", "u");
        assert_eq!(body["metadata"]["annotations"]["kit/applied-generation"], "3");
        let standing = live(|o| o["metadata"]["annotations"]["kit/applied-generation"] = json!("9"));
        let decision = decide(Some(&standing), &Remembered::default());
        assert_eq!(name(&decision), "Unchanged", "no write is no step back");
    }

    #[test]
    fn a_child_of_an_owner_that_goes_is_neither_made_nor_changed() {
        let stamp = Stamp {
            terminating: true,
            ..stamp()
        };
        let decide = |desired: &Desired, cached: Option<&Arc<Child>>| {
            let intent = Intent::new(desired, &stamp);
            name(&want(desired, &intent, &stamp, cached, &Remembered::default()))
        };
        let mut desired = desired();
        let edited = live(|o| o["spec"]["a"] = json!([1]));
        assert_eq!(decide(&desired, None), "Held");
        assert_eq!(decide(&desired, Some(&edited)), "Held");
        assert_eq!(decide(&desired, Some(&live(|_| {}))), "Unchanged");
        desired.options.while_deleting = true;
        assert_eq!(decide(&desired, None), "Create");
        assert_eq!(decide(&desired, Some(&edited)), "Update");
    }

    #[test]
    fn only_more_than_wanted_is_taken_away_alone_and_what_else_differs_by_an_apply_first() {
        let mut desired = desired();
        desired.options.whole = &["/spec/a", "/spec/b", "/spec/c"];
        desired.body = json!({"spec": {"a": [{"x": 1}], "b": {"y": 1}}});
        let stood = |edit: fn(&mut Value)| {
            live(|o| {
                let body = Intent::new(&desired, &stamp()).body;
                o["spec"] = body["spec"].clone();
                o["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
                edit(o);
            })
        };
        let decide = |edit: fn(&mut Value)| {
            let intent = Intent::new(&desired, &stamp());
            want(
                &desired,
                &intent,
                &stamp(),
                Some(&stood(edit)),
                &Remembered::default(),
            )
        };
        assert_eq!(name(&decide(|o| o["spec"]["theirs"] = json!(1))), "Unchanged");
        let Decision::Trim { surplus, .. } = decide(|o| {
            o["spec"]["b"]["z"] = json!(1);
            o["spec"]["c"] = json!({"catch": "all"});
        }) else {
            panic!()
        };
        assert_eq!(surplus, ["/spec/b/z", "/spec/c"]);
        assert_eq!(name(&decide(|o| o["spec"]["a"][0]["z"] = json!(1))), "Update");
        assert_eq!(name(&decide(|o| o["spec"]["c"] = json!([]))), "Unchanged");
        let left = stood(|o| {
            o["spec"]["a"][0]["z"] = json!(1);
            o["spec"]["c"] = json!({"catch": "all"});
        });
        assert_eq!(
            trimming(&desired, &left),
            Some(vec![
                json!({"op": "replace", "path": "/spec/a", "value": [{"x": 1}]}),
                json!({"op": "remove", "path": "/spec/c"}),
            ])
        );
        assert_eq!(trimming(&desired, &stood(|_| {})), None);
    }

    #[test]
    fn the_servers_own_spelling_of_an_intent_is_no_edit() {
        let intent = Intent::new(&desired(), &stamp());
        let spelled = |status: i32| {
            live(|o| {
                o["spec"]["a"] = json!(["1", "2"]);
                o["status"] = json!({"seen": status});
                o["metadata"]["resourceVersion"] = json!(status.to_string());
            })
        };
        let equal = super::super::memory::Equal {
            uid: "u".into(),
            version: "0".into(),
            hash: intent.hash.clone(),
            rendering: Some(rendering(&desired(), &spelled(7))),
        };
        let mut known = Remembered::default();
        known.equal = Some(Arc::new(equal));
        assert_eq!(name(&decide(Some(&spelled(8)), &known)), "Unchanged");
        assert_eq!(name(&decide(Some(&spelled(8)), &Remembered::default())), "Update");
        let edited = live(|o| o["spec"]["a"] = json!(["1", "3"]));
        assert_eq!(name(&decide(Some(&edited), &known)), "Update");
    }

    #[tokio::test]
    async fn our_own_write_counts_before_the_cache_shows_it() {
        let memory = super::super::WriteMemory::default();
        let key = super::super::memory::ChildKey {
            kind: KIND,
            namespace: "ns".into(),
            name: "n".into(),
            owner: "o".into(),
        };
        let hash = Intent::new(&desired(), &stamp()).hash;
        memory.wrote(&key, live(|_| {}), hash, None);
        let stale = live(|o| {
            o["metadata"]["resourceVersion"] = json!("4");
            o["spec"]["a"] = json!([]);
        });
        assert!(matches!(
            decide(None, &memory.recall(&key, None)),
            Decision::Unchanged { compared: false, .. }
        ));
        let known = memory.recall(&key, Some(&stale));
        assert!(matches!(
            decide(Some(&stale), &known),
            Decision::Unchanged { compared: false, .. }
        ));
    }

    #[test]
    fn what_is_kept_is_applied_too_and_only_to_the_version_that_has_it() {
        // Given a child whose list others may add to, and whose additions are kept
        let mut desired = desired();
        desired.options.keep = Some(|body, live| {
            let theirs: Vec<Value> = live["spec"]["a"].as_array().cloned().unwrap_or_default();
            if let Some(list) = body["spec"]["a"].as_array_mut() {
                let more: Vec<Value> = theirs.into_iter().filter(|item| !list.contains(item)).collect();
                list.extend(more);
            }
        });
        let intent = || Intent::new(&desired, &stamp());
        // When nothing was added, then the intent is what it was
        let same = intent().keeping(&desired, &live(|_| {}));
        assert_eq!((&same.body, &same.hash), (&intent().body, &intent().hash));
        // When something was, then it is in the body, with the version, and the intent is still the same one
        let kept = intent().keeping(&desired, &live(|o| o["spec"]["a"] = json!([9, 1, 2])));
        assert_eq!(kept.body["spec"]["a"], json!([1, 2, 9]));
        assert_eq!(kept.body["metadata"]["resourceVersion"], "5");
        assert_eq!(kept.hash, intent().hash);
        assert_eq!(kept.annotations, intent().annotations);
    }

    #[test]
    fn a_body_has_no_empty_maps_in_metadata_and_no_uid() {
        let mut bare = desired();
        bare.labels.clear();
        let body = Intent::new(&bare, &stamp()).body;
        assert!(body["metadata"].get("labels").is_none());
        assert!(body["metadata"].get("uid").is_none() && body["metadata"].get("resourceVersion").is_none());
        assert_eq!(
            body["metadata"]["ownerReferences"][0].get("blockOwnerDeletion"),
            None
        );
    }
}
