//! Which objects are about which bucket id, and which of them has the bucket. Two objects may come to record one id:
//! restored from a backup, or adopted by two processes. One of them has it, always the same one. Within one process no two
//! objects adopt a bucket at the same moment, and of two that go, one after the other, only one leaves it to the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{ResourceExt as _, runtime::reflector::ObjectRef};
use reconcile_kit::runtime::{Change, Listener, Triggers};
use routewright_crds::{DeletionPolicy, GarageBucket};

/// Objects by the bucket ids that they record or ask for. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Claims(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    about: Mutex<HashMap<String, Vec<Key>>>,
    /// Who is about to record an id, by the id, until the cache shows it.
    taking: Mutex<HashMap<String, Vec<Key>>>,
    /// Who is being deleted and has left its bucket to another one, by uid; and to whom.
    left: Mutex<HashMap<String, String>>,
}

/// Namespace and name.
pub type Key = (String, String);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(bucket: &GarageBucket) -> Key {
    (bucket.namespace().unwrap_or_default(), bucket.name_any())
}

/// `status.bucketId`
pub fn recorded(bucket: &GarageBucket) -> Option<&str> {
    let id = bucket.status.as_ref()?.bucket_id.as_deref()?;
    (!id.is_empty()).then_some(id)
}

fn wanted(bucket: &GarageBucket) -> Option<&str> {
    bucket.spec.bucket_id.as_deref().filter(|id| !id.is_empty())
}

/// The ids that an object is about, each once.
fn ids(bucket: &GarageBucket) -> impl Iterator<Item = &str> {
    let first = recorded(bucket);
    first
        .into_iter()
        .chain(wanted(bucket).filter(move |id| Some(*id) != first))
}

impl Claims {
    fn map(&self) -> MutexGuard<'_, HashMap<String, Vec<Key>>> {
        lock(&self.0.about)
    }

    /// Notes that this object is about to record `id`, unless another one is whose claim `counts`: that one.
    pub fn take(&self, bucket: &GarageBucket, id: &str, counts: impl Fn(&Key) -> bool) -> Option<Key> {
        let own = key(bucket);
        let mut taking = lock(&self.0.taking);
        let takers = taking.entry(id.to_owned()).or_default();
        let other = takers.iter().find(|taker| **taker != own && counts(taker));
        if let Some(other) = other {
            return Some(other.clone());
        }
        if !takers.contains(&own) {
            takers.push(own);
        }
        None
    }

    /// It is not about to record anything, or has recorded it visibly.
    pub fn untake(&self, bucket: &GarageBucket) {
        let own = key(bucket);
        lock(&self.0.taking).retain(|_, takers| {
            takers.retain(|taker| *taker != own);
            !takers.is_empty()
        });
    }

    /// To whom this object, which is being deleted, leaves its bucket by the word of `holder`: for good, once that was
    /// said. `holder` is told whom it must not name: who has left the bucket itself.
    pub fn leaving(
        &self,
        bucket: &GarageBucket,
        holder: impl FnOnce(&dyn Fn(&GarageBucket) -> bool) -> Option<String>,
    ) -> Option<String> {
        let uid = |bucket: &GarageBucket| bucket.metadata.uid.clone().unwrap_or_default();
        // Held meanwhile: of two that ask at once one is answered after the other.
        let mut left = lock(&self.0.left);
        if let Some(to) = left.get(&uid(bucket)) {
            return Some(to.clone());
        }
        let to = holder(&|other| left.contains_key(&uid(other)))?;
        left.insert(uid(bucket), to.clone());
        Some(to)
    }

    fn remove(&self, bucket: &GarageBucket) {
        let (mut map, gone) = (self.map(), key(bucket));
        for id in ids(bucket) {
            if let Some(keys) = map.get_mut(id) {
                keys.retain(|key| *key != gone);
                if keys.is_empty() {
                    map.remove(id);
                }
            }
        }
    }

    fn add(&self, bucket: &GarageBucket) {
        let mut map = self.map();
        for id in ids(bucket) {
            map.entry(id.to_owned()).or_default().push(key(bucket));
        }
    }

    /// The others that are about one of the ids that this one is about.
    pub fn others(&self, bucket: &GarageBucket) -> Vec<Key> {
        let (map, own) = (self.map(), key(bucket));
        let keys = ids(bucket).filter_map(|id| map.get(id)).flatten();
        let mut others: Vec<Key> = keys.filter(|key| **key != own).cloned().collect();
        others.sort();
        others.dedup();
        others
    }

    /// Keeps the index, and wakes the others when one that is about their bucket comes, changes sides or goes.
    pub fn listener(&self, triggers: &Triggers<GarageBucket>) -> Listener<GarageBucket> {
        let (claims, triggers) = (self.clone(), triggers.clone());
        let wake = move |claims: &Self, bucket: &GarageBucket| {
            for (namespace, name) in claims.others(bucket) {
                triggers.push(ObjectRef::new(&name).within(&namespace));
            }
        };
        Box::new(move |change| match change {
            Change::Applied { old: Some(old), new } if same(old, new) => {}
            Change::Applied { old, new } => {
                if let Some(old) = old {
                    claims.remove(old);
                    wake(&claims, old);
                }
                claims.add(new);
                // It is in the index now, or is not about that id any more.
                claims.untake(new);
                wake(&claims, new);
            }
            Change::Deleted { old } => {
                claims.remove(old);
                claims.untake(old);
                lock(&claims.0.left).remove(old.metadata.uid.as_deref().unwrap_or_default());
                wake(&claims, old);
            }
            Change::Stopped => claims.map().clear(),
            Change::Ready => {}
        })
    }
}

fn same(old: &GarageBucket, new: &GarageBucket) -> bool {
    recorded(old) == recorded(new)
        && wanted(old) == wanted(new)
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
}

/// Who, among `others`, has the bucket that `bucket` records or wants to adopt; `None`: nobody but itself.
///
/// An object that only wants it yields to everybody who records it. Among those that record it the oldest living one has
/// it. One that is being deleted leaves it to those that live on. Of those that are being deleted each removes the bucket
/// itself, unless an older one of them retains it: the older one may have left it to this one, perhaps in another process.
pub fn holder<'a>(bucket: &GarageBucket, others: &'a [Arc<GarageBucket>]) -> Option<&'a GarageBucket> {
    let own = recorded(bucket);
    let id = own.or_else(|| wanted(bucket))?;
    let deleting = |b: &GarageBucket| b.metadata.deletion_timestamp.is_some();
    let age = |b: &GarageBucket| (b.metadata.creation_timestamp.clone(), key(b));
    let has = |other: &GarageBucket| {
        let older = age(other) < age(bucket);
        match (own.is_some(), deleting(bucket), deleting(other)) {
            (false, ..) => true,
            (true, false, other_goes) => older && !other_goes,
            (true, true, other_goes) => !other_goes || (older && retains(other)),
        }
    };
    others
        .iter()
        .map(Arc::as_ref)
        .filter(|other| {
            other.metadata.uid != bucket.metadata.uid && recorded(other) == Some(id) && has(other)
        })
        .min_by_key(|other| (deleting(other), age(other)))
}

/// Whether the bucket stays when the object is deleted.
fn retains(bucket: &GarageBucket) -> bool {
    !matches!(bucket.spec.deletion_policy, None | Some(DeletionPolicy::Delete))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    /// A bucket of this name, made in this year, which is also how it is told apart.
    fn bucket(name: &str, year: u32, records: bool, deleting: bool) -> Arc<GarageBucket> {
        let mut object = json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": {
                "name": name, "namespace": "team", "uid": name, "creationTimestamp": format!("{year}-01-01T00:00:00Z"),
            },
            "spec": { "clusterRef": { "name": "garage" }, "bucketId": ID },
        });
        if records {
            object["status"] = json!({ "bucketId": ID });
        }
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_oldest_that_records_a_bucket_has_it_and_who_goes_leaves_it() {
        let (old, new) = (2020, 2025);
        for (own, other, has_it) in [
            // wanted only
            ((new, false, false), (old, true, false), false),
            ((old, false, false), (new, true, false), false),
            ((old, false, false), (new, true, true), false),
            ((old, false, false), (new, false, false), true),
            // both record it
            ((old, true, false), (new, true, false), true),
            ((new, true, false), (old, true, false), false),
            ((new, true, false), (old, true, true), true),
            ((old, true, true), (new, true, false), false),
            ((new, true, true), (old, true, false), false),
            // both go: each removes it, and the second finds it gone
            ((old, true, true), (new, true, true), true),
            ((new, true, true), (old, true, true), true),
            // made in the same second: by name
            ((old, true, false), (old, true, false), true),
            // the other only wants it
            ((new, true, true), (old, false, false), true),
        ] {
            let mine = bucket("a", own.0, own.1, own.2);
            let theirs = bucket("b", other.0, other.1, other.2);
            let holder = holder(&mine, std::slice::from_ref(&theirs)).map(|b| b.name_any());
            assert_eq!(holder.is_none(), has_it, "{own:?} {other:?}: {holder:?}");
        }
    }

    #[test]
    fn of_two_that_go_an_older_one_that_retains_the_bucket_keeps_it() {
        let retained = |b: Arc<GarageBucket>| {
            let mut b = GarageBucket::clone(&b);
            b.spec.deletion_policy = Some(DeletionPolicy::Retain);
            Arc::new(b)
        };
        let (old, new) = (bucket("a", 2020, true, true), bucket("b", 2025, true, true));
        assert!(holder(&new, &[retained(old.clone())]).is_some());
        assert!(holder(&old, &[retained(new)]).is_none(), "the older one decides");
    }

    #[test]
    fn of_three_exactly_one_has_it_whoever_goes() {
        for going in 0..8_u32 {
            let all: Vec<_> = (0..3_u32)
                .map(|n| bucket(&format!("b{n}"), 2020, true, going & (1 << n) != 0))
                .collect();
            let having: Vec<_> = all.iter().filter(|b| holder(b, &all).is_none()).collect();
            // If all go, each removes it.
            let expected = if going == 7 { 3 } else { 1 };
            assert_eq!(having.len(), expected, "{going:03b}: {having:?}");
        }
    }

    #[test]
    fn the_index_knows_who_is_about_an_id_and_wakes_the_others() {
        let claims = Claims::default();
        let triggers = Triggers::<GarageBucket>::default();
        let tell = claims.listener(&triggers);
        let (one, two) = (
            bucket("one", 2020, true, false),
            bucket("two", 2021, false, false),
        );
        tell(&Change::Applied {
            old: None,
            new: one.clone(),
        });
        assert_eq!(claims.others(&one), []);
        tell(&Change::Applied {
            old: None,
            new: two.clone(),
        });
        assert_eq!(claims.others(&one), [("team".to_owned(), "two".to_owned())]);
        assert_eq!(claims.others(&two), [("team".to_owned(), "one".to_owned())]);
        let recorded = bucket("two", 2021, true, false);
        tell(&Change::Applied {
            old: Some(two),
            new: recorded.clone(),
        });
        assert_eq!(
            claims.others(&one).len(),
            1,
            "once, though it asks for it and records it"
        );
        tell(&Change::Deleted { old: recorded });
        assert_eq!(claims.others(&one), []);
        tell(&Change::Stopped);
        assert!(claims.map().is_empty());
    }

    #[test]
    fn who_is_about_to_record_an_id_keeps_others_from_it_until_that_shows() {
        let claims = Claims::default();
        let tell = claims.listener(&Triggers::default());
        let (one, two) = (
            bucket("one", 2020, false, false),
            bucket("two", 2021, false, false),
        );
        let all = |_: &Key| true;
        assert_eq!(claims.take(&one, ID, all), None);
        assert_eq!(claims.take(&one, ID, all), None, "its own note is no hindrance");
        let first = Some(("team".to_owned(), "one".to_owned()));
        assert_eq!(claims.take(&two, ID, all), first);
        // what does not concern the id, such as an annotation, changes nothing
        tell(&Change::Applied {
            old: Some(one.clone()),
            new: one.clone(),
        });
        assert_eq!(claims.take(&two, ID, all), first);
        tell(&Change::Applied {
            old: Some(one),
            new: bucket("one", 2020, true, false),
        });
        assert_eq!(claims.take(&two, ID, all), None, "the index says it from now on");
    }

    #[test]
    fn a_note_that_does_not_count_keeps_no_object_from_an_id() {
        let claims = Claims::default();
        let (one, two) = (
            bucket("one", 2020, false, false),
            bucket("two", 2021, false, false),
        );
        let none = |_: &Key| false;
        assert_eq!(claims.take(&one, ID, none), None);
        assert_eq!(claims.take(&two, ID, none), None);
        claims.untake(&one);
        claims.untake(&two);
        assert!(lock(&claims.0.taking).is_empty());
    }

    #[test]
    fn of_two_that_go_one_leaves_the_bucket_and_never_both() {
        for first in [0, 1] {
            let claims = Claims::default();
            let all = [bucket("one", 2020, true, true), bucket("two", 2021, true, true)];
            // whoever asks first is told that the other one lives; the cache lags
            let leaves = |who: usize, other: &str| {
                let has_left = |gone: &dyn Fn(&GarageBucket) -> bool| {
                    all.iter()
                        .any(|b| b.name_any() == other && gone(b))
                        .then(|| other.to_owned())
                };
                claims.leaving(&all[who], |gone| match has_left(gone) {
                    Some(_) => None,
                    None => Some(other.to_owned()),
                })
            };
            let names = ["one", "two"];
            let second = 1 - first;
            assert_eq!(leaves(first, names[second]).as_deref(), Some(names[second]));
            assert_eq!(leaves(second, names[first]), None, "it is the last one");
            assert_eq!(
                leaves(first, names[second]).as_deref(),
                Some(names[second]),
                "for good"
            );
        }
    }
}
