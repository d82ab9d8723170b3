//! Which buckets expose the same hostname: an index of what their status says is exposed, kept by the changes of the
//! bucket cache. Pure; who is told about it is decided by the caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use reconcile_kit::runtime::{Change, Listener, Triggers};
use routewright_crds::GarageBucket;

/// A bucket in the index. The order is by age; buckets of one second are ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exposing {
    /// Seconds since 1970 of its creation.
    created: i64,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Exposing {
    /// The place of a bucket in the order.
    pub fn of(bucket: &GarageBucket) -> Self {
        Self {
            created: bucket
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(i64::MAX, |at| at.0.as_second()),
            namespace: bucket.namespace().unwrap_or_default().into(),
            name: bucket.name_any().into(),
        }
    }
}

/// A hostname that an older bucket exposes too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The hostname.
    pub hostname: String,
    /// Namespace of the older bucket.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Shared {
    /// The message for a bucket of `namespace`. It does not name a bucket of another namespace: any hostname can be tried.
    pub fn tell(&self, namespace: &str) -> String {
        let Self {
            hostname,
            namespace: there,
            name,
        } = self;
        if there == namespace {
            format!("{hostname} is also exposed by GarageBucket {there}/{name}, which is older")
        } else {
            format!("{hostname} is also exposed by an older GarageBucket of another namespace")
        }
    }
}

/// Hostname → buckets, the oldest first.
#[derive(Debug, Default)]
pub struct Index(HashMap<Box<str>, Vec<Exposing>>);

impl Index {
    /// Takes the step from what a bucket exposed to what it exposes. Returns the buckets to look at again: of each
    /// hostname that came or went, the next younger one, as it names the next older one and no other. So a change costs
    /// one look per hostname, however many buckets share it.
    pub fn step(&mut self, bucket: &Exposing, old: &[String], new: &[String]) -> Vec<Exposing> {
        let mut concerned = Vec::new();
        for host in old.iter().filter(|host| !new.contains(host)) {
            let Some(list) = self.0.get_mut(host.as_str()) else {
                continue;
            };
            if let Ok(at) = list.binary_search(bucket) {
                list.remove(at);
                concerned.extend(list.get(at).cloned());
            }
            if list.is_empty() {
                self.0.remove(host.as_str());
            }
        }
        for host in new.iter().filter(|host| !old.contains(host)) {
            let list = self.0.entry(host.as_str().into()).or_default();
            if let Err(at) = list.binary_search(bucket) {
                // Most hostnames have one bucket.
                list.reserve_exact(1);
                list.insert(at, bucket.clone());
                concerned.extend(list.get(at + 1).cloned());
            }
        }
        concerned.sort();
        concerned.dedup();
        concerned
    }

    /// Of these hostnames, which would be exposed by this bucket: those that an older one exposes, with the next older
    /// one of each.
    pub fn older(&self, bucket: &Exposing, hostnames: &[String]) -> Vec<Shared> {
        let shared = |host: &String| {
            let list = self.0.get(host.as_str())?;
            let before = list.partition_point(|other| other < bucket).checked_sub(1)?;
            let other = list.get(before)?;
            Some(Shared {
                hostname: host.clone(),
                namespace: other.namespace.to_string(),
                name: other.name.to_string(),
            })
        };
        hostnames.iter().filter_map(shared).collect()
    }
}

/// The hostnames that a bucket's status says are exposed.
fn exposed(bucket: &GarageBucket) -> &[String] {
    bucket
        .status
        .as_ref()
        .and_then(|status| status.website_exposure.as_ref()?.hostnames.as_deref())
        .unwrap_or_default()
}

/// The index of a process, shared by both controllers.
#[derive(Clone, Debug, Default)]
pub struct SharedIndex(Arc<Mutex<Index>>);

impl SharedIndex {
    /// See [`Index::older`].
    pub fn older(&self, bucket: &GarageBucket, hostnames: &[String]) -> Vec<Shared> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.older(&Exposing::of(bucket), hostnames)
    }

    /// Keeps the index, and wakes whoever a change concerns.
    pub fn follow(&self, triggers: Vec<Triggers<GarageBucket>>) -> Listener<GarageBucket> {
        let this = self.clone();
        Box::new(move |change| {
            let (bucket, old, new): (_, &[String], &[String]) = match change {
                Change::Applied { old, new } => {
                    (new, old.as_deref().map(exposed).unwrap_or_default(), exposed(new))
                }
                Change::Deleted { old } => (old, exposed(old), &[]),
                Change::Ready => return,
                Change::Stopped => {
                    this.0.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
                    return;
                }
            };
            if old == new {
                return;
            }
            let concerned = {
                let mut index = this.0.lock().unwrap_or_else(PoisonError::into_inner);
                index.step(&Exposing::of(bucket), old, new)
            };
            for other in concerned {
                for triggers in &triggers {
                    triggers.push(ObjectRef::new(&other.name).within(&other.namespace));
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(created: i64, name: &str) -> Exposing {
        Exposing {
            created,
            namespace: "sites".into(),
            name: name.into(),
        }
    }

    fn hosts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn names(list: &[Exposing]) -> Vec<&str> {
        list.iter().map(|one| &*one.name).collect()
    }

    #[test]
    fn the_younger_one_is_told_of_the_older_one_whichever_came_first_into_the_index() {
        let www = hosts(&["www.example.com"]);
        let (old, young) = (at(1, "old"), at(2, "young"));
        let mut index = Index::default();
        // given: the younger bucket is exposed first
        assert_eq!(names(&index.step(&young, &[], &www)), [""; 0]);
        assert_eq!(index.older(&young, &www), []);
        // when: the older one follows, then: the younger one is looked at again and told
        assert_eq!(names(&index.step(&old, &[], &www)), ["young"]);
        assert_eq!(
            index.older(&young, &www)[0].tell("sites"),
            "www.example.com is also exposed by GarageBucket sites/old, which is older"
        );
        assert_eq!(index.older(&old, &www), []);
        // when: the older one gives the hostname up, then: the younger one is looked at again and is alone
        assert_eq!(names(&index.step(&old, &www, &[])), ["young"]);
        assert_eq!(index.older(&young, &www), []);
        index.step(&young, &www, &[]);
        assert!(
            index.0.is_empty(),
            "nothing is kept of hostnames that nobody exposes"
        );
    }

    #[test]
    fn buckets_of_the_same_second_are_told_apart_by_name() {
        let www = hosts(&["www.example.com"]);
        let mut index = Index::default();
        index.step(&at(1, "a"), &[], &www);
        index.step(&at(1, "b"), &[], &www);
        assert_eq!(index.older(&at(1, "a"), &www), []);
        assert_eq!(index.older(&at(1, "b"), &www)[0].name, "a");
    }

    proptest! {
        /// After any steps: whoever would be told something else than before was among those to look at again.
        #[test]
        fn nobody_whose_word_changes_is_missed(steps in proptest::collection::vec((0_i64..5, 0_u8..8), 1..30)) {
            let all = hosts(&["a", "b", "c"]);
            let chosen = |bits: u8| -> Vec<String> {
                all.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, h)| h.clone()).collect()
            };
            let mut index = Index::default();
            let mut exposes: HashMap<i64, Vec<String>> = HashMap::new();
            for (who, bits) in steps {
                let told = |index: &Index, exposes: &HashMap<i64, Vec<String>>| -> HashMap<i64, Vec<Shared>> {
                    (0..5).map(|b| {
                        let own = exposes.get(&b).cloned().unwrap_or_default();
                        (b, index.older(&at(b, &b.to_string()), &own))
                    }).collect()
                };
                let before = told(&index, &exposes);
                let (old, new) = (exposes.get(&who).cloned().unwrap_or_default(), chosen(bits));
                let again = index.step(&at(who, &who.to_string()), &old, &new);
                exposes.insert(who, new);
                let after = told(&index, &exposes);
                for b in (0..5).filter(|b| *b != who && before[b] != after[b]) {
                    prop_assert!(again.contains(&at(b, &b.to_string())), "{} was missed", b);
                }
            }
        }
    }
}
