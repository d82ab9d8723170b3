//! What to do about one child, from its plan, the cache and what is remembered. Pure: no call, no clock.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::{
    compare::{intent_hash, is_subset},
    memory::{Remembered, Written},
};
use crate::{Child, Desired};

/// What the framework writes on every child besides what the plan wants.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// The owner, with `controller: true` and without `blockOwnerDeletion`.
    pub owner: OwnerReference,
    /// Annotation that carries the hash of the applied intent.
    pub hash_annotation: String,
    /// Annotation by which an object's own side allows us, by our owner's uid, to take it over.
    pub adopt_annotation: String,
    /// Our field manager.
    pub manager: String,
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
        annotations.insert(stamp.hash_annotation.clone(), hash.clone());
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("annotations".into(), json!(annotations));
        }
        Self {
            labels: desired.labels.clone(),
            annotations,
            body,
            hash,
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
    let equal = known.equal.as_ref().is_some_and(|(uid, version, hash)| {
        uid == live.uid() && version == live.version() && *hash == intent.hash
    });
    if equal {
        return Decision::Unchanged {
            live,
            compared: false,
        };
    }
    if !live.appliers.iter().any(|manager| **manager == *stamp.manager) {
        return Decision::TakeOver { live };
    }
    let live_hash = live
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(&stamp.hash_annotation));
    let same_intent = live_hash == Some(&intent.hash);
    if same_intent && stands(desired, intent, stamp, &live) {
        return Decision::Unchanged { live, compared: true };
    }
    Decision::Update {
        live,
        outside_edit: same_intent,
    }
}

/// Whether the live object says everything that the intent says, tolerated differences aside.
fn stands(desired: &Desired, intent: &Intent, stamp: &Stamp, live: &Child) -> bool {
    let has = |have: Option<&BTreeMap<String, String>>, want: &BTreeMap<String, String>| {
        want.iter()
            .all(|(key, value)| have.and_then(|h| h.get(key)) == Some(value))
    };
    let meta = &live.metadata;
    if !has(meta.labels.as_ref(), &intent.labels) || !has(meta.annotations.as_ref(), &intent.annotations) {
        return false;
    }
    let owned = live.controller().is_some_and(|o| {
        o.name == stamp.owner.name && o.kind == stamp.owner.kind && o.api_version == stamp.owner.api_version
    });
    let mut rest = live.rest();
    if let Some(tolerate) = desired.options.tolerate {
        tolerate(&mut rest, &desired.body);
    }
    owned && is_subset(&desired.body, &rest)
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
        None if live
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(&stamp.adopt_annotation))
            .is_some_and(|uid| *uid == stamp.owner.uid) =>
        {
            Ownership::Adoptable
        }
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
            hash_annotation: "kit/applied-hash".into(),
            adopt_annotation: "kit/adopt".into(),
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
        memory.wrote(&key, live(|_| {}), hash);
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
