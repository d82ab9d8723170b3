//! What is read of a document: its mark, its path, what holds its place in the gateway, and digests to compare. Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use crate::tyk::translate::{
    EXTENSION, Owner, TykApi,
    stamp::{HASH, digest, stamp},
};

/// Root key that is changed to make a gateway look at a document again: an API that was renamed once gets its path back
/// by a changed document only.
pub(super) const NONCE: &str = "x-routewright-nonce";

/// Root key that says which Tyk a document was written to, as the annotation of its route does. Two names may lead to one
/// Tyk, and what was written by one of them is not to be removed by the other.
pub(super) const HERE: &str = "x-routewright-tyk";

/// Where an API is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Host and listen path: no two APIs of a gateway can have the same.
    pub(super) slot: u64,
    /// Digests of the tags of the gateways that load it; none: those without tags.
    pub(super) planes: Box<[u64]>,
}

impl Place {
    /// Of a document, stamped or not.
    pub(super) fn of(document: &Value) -> Self {
        Self {
            slot: slot(document),
            planes: planes(document),
        }
    }
}

/// What is known of an API that is to be sent. The document itself is made when it is needed ([`sent`]): a batch would hold
/// those of all its routes until the reload.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Of the mark.
    pub(super) hash: u128,
    pub(super) place: Place,
    /// Its listen path.
    pub(super) path: String,
    /// See [`NONCE`].
    pub(super) nonce: u32,
}

impl Wanted {
    /// Of what is sent for `api` to the Tyk `here`.
    pub(super) fn of(api: &TykApi, owner: &Owner, here: &str, nonce: u32) -> Self {
        Self::read(&sent(api, owner, here, nonce), nonce)
    }

    /// Of a document as it is sent.
    pub(super) fn read(document: &Value, nonce: u32) -> Self {
        Self {
            hash: mark(document).unwrap_or_default(),
            place: Place::of(document),
            path: path(document).unwrap_or_default().to_owned(),
            nonce,
        }
    }
}

/// The document that is sent for `api` to the Tyk `here`.
pub(super) fn sent(api: &TykApi, owner: &Owner, here: &str, nonce: u32) -> Value {
    let mut api = api.clone();
    if let Some(root) = api.document.as_object_mut() {
        root.insert(HERE.to_owned(), Value::from(here));
        if nonce > 0 {
            root.insert(NONCE.to_owned(), Value::from(nonce));
        }
    }
    stamp(api, owner).document
}

fn part<'v>(document: &'v Value, pointer: &str) -> Option<&'v Value> {
    document.get(EXTENSION)?.pointer(pointer)
}

/// The digest in the document's mark, shortened.
pub(super) fn mark(document: &Value) -> Option<u128> {
    short(document.get(HASH)?.as_str()?)
}

fn short(hex: &str) -> Option<u128> {
    u128::from_str_radix(hex.get(..32)?, 16).ok()
}

/// Digest of all of a document as Tyk shows it.
pub(super) fn loaded(document: &Value) -> u128 {
    short(&digest(document)).unwrap_or_default()
}

/// The listen path.
pub(super) fn path(document: &Value) -> Option<&str> {
    part(document, "/server/listenPath/value")?.as_str()
}

/// The nonce; 0 for none.
pub(super) fn nonce(document: &Value) -> u32 {
    document
        .get(NONCE)
        .and_then(Value::as_u64)
        .and_then(|nonce| u32::try_from(nonce).ok())
        .unwrap_or_default()
}

fn hashed(values: [Option<&Value>; 2]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in values {
        // Tyk leaves out what is empty or false.
        let value = value
            .filter(|value| !value.is_null() && value.as_bool() != Some(false) && value.as_str() != Some(""));
        value.map(ToString::to_string).hash(&mut hasher);
    }
    hasher.finish()
}

fn slot(document: &Value) -> u64 {
    hashed([
        part(document, "/server/listenPath/value"),
        part(document, "/server/customDomain/name"),
    ])
}

fn planes(document: &Value) -> Box<[u64]> {
    let tags = part(document, "/server/gatewayTags").filter(|tags| {
        let enabled = tags.get("enabled").and_then(Value::as_bool);
        enabled == Some(true)
    });
    let tags = tags.and_then(|tags| tags.get("tags")?.as_array());
    let tag = |tag: &Value| hashed([Some(tag), None]);
    tags.into_iter().flatten().map(tag).collect()
}

/// Whether a document was written to a Tyk by another name than this.
pub(super) fn elsewhere(document: &Value, here: &str) -> bool {
    let there = document.get(HERE).and_then(Value::as_str);
    there.is_some_and(|there| there != here)
}

/// Whether a document belongs to this owner. The uid is for people: names are unique in a cluster.
pub(super) fn owned(document: &Value, owner: &Owner) -> bool {
    Owner::of(document).is_some_and(|found| {
        (&found.cluster, &found.controller, &found.route) == (&owner.cluster, &owner.controller, &owner.route)
    })
}

/// An owner for people.
pub(super) fn owner_name(owner: &Owner) -> String {
    format!(
        "HTTPRoute {} of cluster {} (controllerName {})",
        owner.route, owner.cluster, owner.controller
    )
}

/// The owner of a document for people.
pub(super) fn owner_text(document: &Value) -> String {
    match Owner::of(document) {
        Some(owner) => owner_name(&owner),
        None => "nobody (it has no x-routewright-owner)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tyk::objects::Key;
    use serde_json::json;

    fn api() -> TykApi {
        TykApi {
            id: "gwapi-1".to_owned(),
            document: json!({EXTENSION: {"server": {"listenPath": {"value": "/a"}}, "upstream": {"url": "http://b"}}}),
        }
    }

    fn owner(uid: &str) -> Owner {
        Owner {
            cluster: "c".to_owned(),
            controller: "example.org/tyk".to_owned(),
            route: Key::new("n", "r"),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn a_nonce_changes_the_mark_and_nothing_that_is_served() {
        let (plain, again) = (
            Wanted::of(&api(), &owner("1"), "here", 0),
            Wanted::of(&api(), &owner("1"), "here", 1),
        );
        assert_ne!(plain.hash, again.hash);
        assert_eq!((&plain.place, &plain.path), (&again.place, &again.path));
        let document = sent(&api(), &owner("1"), "here", 1);
        assert_eq!((nonce(&document), mark(&document)), (1, Some(again.hash)));
    }

    #[test]
    fn the_owner_is_the_route_of_the_cluster_whatever_its_uid() {
        let sent = sent(&api(), &owner("1"), "here", 0);
        assert!(owned(&sent, &owner("2")));
        let other = Owner {
            cluster: "d".to_owned(),
            ..owner("1")
        };
        assert!(!owned(&sent, &other));
        let beside = Owner {
            controller: "example.org/beside".to_owned(),
            ..owner("1")
        };
        assert!(!owned(&sent, &beside));
        assert!(!owned(&json!({}), &owner("1")));
    }
}
