//! What we wrote and what is known equal, until the cache shows it: no second write, no second compare. And how often
//! an outside edit was reverted lately. Memory only; bounded by the number of children.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    ApiKind, Child,
    runtime::{Change, Listener},
};

/// A write that never shows up in the cache is believed for this long.
const BELIEVED: Duration = Duration::from_secs(30);
/// More reverts than this within [`CONTEST_WINDOW`] make a contest.
pub const CONTEST_REVERTS: usize = 5;
/// See [`CONTEST_REVERTS`].
pub const CONTEST_WINDOW: Duration = Duration::from_secs(600);
/// Pause between two reverts of a contested child.
pub const CONTEST_PAUSE: Duration = Duration::from_secs(300);

/// Children of one owner.
type OfOwner = HashMap<ChildKey, Remembered>;

/// Shared by all reconciles of a controller.
// By namespace, then owner, so that an owner is forgotten without a walk through all of them.
#[derive(Clone, Debug, Default)]
pub struct WriteMemory(Arc<Mutex<Map>>);

/// One child, from the side of one owner: two owners that want the same name share nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChildKey {
    /// Kind.
    pub kind: ApiKind,
    /// Namespace, of the child and of its owner.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Name of the owner.
    pub owner: String,
}

/// What is remembered of one child.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// The last answer to a write of ours, until the cache has caught up.
    pub written: Option<Written>,
    /// The uid that was deleted by us, while the cache still shows it, and for a while after.
    pub removed: Option<Removed>,
    /// What was compared, or answered by the server, as equal.
    pub equal: Option<Arc<Equal>>,
    /// It went without our doing, and was not made again since: the uid of the owner that it had.
    pub vanished: Option<String>,
    /// The owner that lost one before.
    bereft: Option<String>,
    /// Times of reverts within the window: of edits, and of deletions.
    reverts: VecDeque<Instant>,
    /// Who the contest is with, once asked.
    pub opponent: Option<String>,
}

/// A version of a child that says what an intent wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equal {
    /// The child's uid.
    pub uid: String,
    /// The child's resourceVersion.
    pub version: String,
    /// Hash of the intent.
    pub hash: String,
    /// Hash of what the API server made of the intent (see [`rendering`](super::decide::rendering)), if it is known:
    /// the server spells some values in its own way.
    pub rendering: Option<String>,
}

impl Remembered {
    /// Whether this very object was made to say this intent before: a second write of it undoes what another client did.
    pub fn has_applied(&self, uid: &str, hash: &str) -> bool {
        self.equal
            .as_ref()
            .is_some_and(|e| e.uid == uid && e.hash == hash)
    }

    /// Nothing of it is awaited from the cache.
    fn is_settled(&self) -> bool {
        let recent = |at: Instant| at.elapsed() <= BELIEVED;
        !self.written.as_ref().is_some_and(|w| recent(w.at))
            && !self.removed.as_ref().is_some_and(|r| recent(r.at))
    }
}

/// An answer to a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object as the server returned it.
    pub live: Arc<Child>,
    /// Hash of the intent that was written.
    pub hash: String,
    at: Instant,
}

/// An answer to a delete.
#[derive(Clone, Debug)]
pub struct Removed {
    uid: String,
    at: Instant,
}

/// Whether version `a` is older than `b`. Versions of one server compare as numbers; others only by equality.
fn older(a: &str, b: &str) -> bool {
    match (a.parse::<u128>(), b.parse::<u128>()) {
        (Ok(a), Ok(b)) => a < b,
        _ => a != b,
    }
}

type Map = HashMap<String, HashMap<String, OfOwner>>;

fn find<'a>(map: &'a mut Map, key: &ChildKey) -> Option<&'a mut Remembered> {
    map.get_mut(&key.namespace)?.get_mut(&key.owner)?.get_mut(key)
}

fn entry<'a>(map: &'a mut Map, key: &ChildKey) -> &'a mut Remembered {
    let owners = map.entry(key.namespace.clone()).or_default();
    let children = owners.entry(key.owner.clone()).or_default();
    children.entry(key.clone()).or_default()
}

/// Changes what is remembered of one owner; what is empty then goes.
fn change_owner(map: &mut Map, namespace: &str, owner: &str, change: impl FnOnce(&mut OfOwner)) {
    let Some(owners) = map.get_mut(namespace) else {
        return;
    };
    if let Some(children) = owners.get_mut(owner) {
        change(children);
        if children.is_empty() {
            owners.remove(owner);
        }
    }
    if owners.is_empty() {
        map.remove(namespace);
    }
}

impl WriteMemory {
    fn lock(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered, given what the cache shows: what the cache has caught up with is forgotten here.
    pub fn recall(&self, key: &ChildKey, cached: Option<&Child>) -> Remembered {
        let mut map = self.lock();
        let Some(entry) = find(&mut map, key) else {
            return Remembered::default();
        };
        if entry.written.as_ref().is_some_and(|w| {
            // Our version or a later one. An older version is the cache's past, whatever its uid.
            cached.is_some_and(|c| !older(c.version(), w.live.version())) || w.at.elapsed() > BELIEVED
        }) {
            entry.written = None;
        }
        if entry.removed.as_ref().is_some_and(|removed| {
            cached.is_some_and(|c| c.uid() != removed.uid) || removed.at.elapsed() > BELIEVED
        }) {
            entry.removed = None;
        }
        entry.clone()
    }

    /// The server answered a write with this object.
    pub fn wrote(&self, key: &ChildKey, live: Arc<Child>, hash: String, rendering: Option<String>) {
        let mut map = self.lock();
        let entry = entry(&mut map, key);
        entry.equal = Some(Arc::new(Equal {
            uid: live.uid().to_owned(),
            version: live.version().to_owned(),
            hash: hash.clone(),
            rendering,
        }));
        (entry.removed, entry.vanished) = (None, None);
        entry.written = Some(Written {
            live,
            hash,
            at: Instant::now(),
        });
    }

    /// Compared and found equal.
    pub fn equal(&self, key: &ChildKey, child: &Child, hash: &str) {
        let mut map = self.lock();
        let entry = entry(&mut map, key);
        let before = entry.equal.take();
        let before = before.filter(|e| e.uid == child.uid() && e.hash == hash);
        entry.equal = Some(Arc::new(Equal {
            uid: child.uid().to_owned(),
            version: child.version().to_owned(),
            hash: hash.to_owned(),
            rendering: before.and_then(|e| e.rendering.clone()),
        }));
    }

    /// The server took our delete of this uid.
    pub fn removed(&self, key: &ChildKey, uid: &str) {
        let removed = Removed {
            uid: uid.to_owned(),
            at: Instant::now(),
        };
        *entry(&mut self.lock(), key) = Remembered {
            removed: Some(removed),
            ..Remembered::default()
        };
    }

    /// An outside edit, or deletion, should be reverted. `Some(wait)`: it is a contest, wait this long first. A contest
    /// is over when nothing was reverted for [`CONTEST_WINDOW`].
    pub fn contest(&self, key: &ChildKey) -> Option<Duration> {
        let now = Instant::now();
        let mut map = self.lock();
        let entry = find(&mut map, key)?;
        let since = |at: Option<&Instant>| at.map(|at| now.duration_since(*at));
        if since(entry.reverts.back()).is_some_and(|since| since > CONTEST_WINDOW) {
            entry.reverts.clear();
        }
        if entry.reverts.len() >= CONTEST_REVERTS {
            let waited = since(entry.reverts.back())?;
            return (waited < CONTEST_PAUSE).then(|| CONTEST_PAUSE - waited);
        }
        while since(entry.reverts.front()).is_some_and(|since| since > CONTEST_WINDOW) {
            entry.reverts.pop_front();
        }
        entry.opponent = None;
        None
    }

    /// An outside edit or deletion was reverted. A write that failed is none: an API server that is down is no opponent.
    pub fn reverted(&self, key: &ChildKey) {
        let mut map = self.lock();
        let entry = entry(&mut map, key);
        entry.reverts.push_back(Instant::now());
        if entry.reverts.len() > CONTEST_REVERTS {
            entry.reverts.pop_front();
        }
    }

    /// The other side of a contest.
    pub fn set_opponent(&self, key: &ChildKey, manager: &str) {
        entry(&mut self.lock(), key).opponent = Some(manager.to_owned());
    }

    /// The child does not stand, or is not ours.
    pub fn forget(&self, key: &ChildKey) {
        let mut map = self.lock();
        change_owner(&mut map, &key.namespace, &key.owner, |children| {
            children.remove(key);
        });
    }

    /// Forgets children of this owner that its plan no longer names, once the cache has caught up with them: names that
    /// change with the spec would pile up for as long as the owner lives. `planned` is how many children the plan has.
    pub fn keep_planned(
        &self,
        namespace: &str,
        owner: &str,
        planned: usize,
        is_planned: impl Fn(&ChildKey) -> bool,
    ) {
        let mut map = self.lock();
        change_owner(&mut map, namespace, owner, |children| {
            if children.len() > planned {
                children.retain(|key, entry| is_planned(key) || !entry.is_settled());
            }
        });
    }

    /// The owner is gone: forget its children.
    pub fn forget_owner(&self, namespace: &str, owner: &str) {
        change_owner(&mut self.lock(), namespace, owner, HashMap::clear);
    }

    /// How many children are remembered.
    pub fn len(&self) -> usize {
        self.lock()
            .values()
            .flat_map(HashMap::values)
            .map(HashMap::len)
            .sum()
    }

    /// None is remembered.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// A listener for the watch of a child kind; add it **before** the one that triggers owners. Without it a child that
    /// vanishes before its owner was looked at again would be believed in (no cache shows it, and it was written), and
    /// nothing would ever look again.
    pub fn follow(&self, kind: ApiKind) -> Listener<Child> {
        let memory = self.clone();
        Box::new(move |change| {
            let Change::Deleted { old } = change else { return };
            let Some(owner) = old.controller() else { return };
            let key = ChildKey {
                kind,
                namespace: old.metadata.namespace.clone().unwrap_or_default(),
                name: old.metadata.name.clone().unwrap_or_default(),
                owner: owner.name.clone(),
            };
            let mut map = memory.lock();
            // A later incarnation of ours stays; the cache is behind.
            let later = |e: &Remembered| e.written.as_ref().is_some_and(|w| w.live.uid() != old.uid());
            // Our own delete has come to its end: nobody need ask whether it did.
            let ours = |e: &Remembered| e.removed.as_ref().is_some_and(|r| r.uid == old.uid());
            if let Some(entry) = find(&mut map, &key).filter(|e| !later(e) && !ours(e)) {
                // Another owner of the same name has no part in what befell the one before.
                let same = entry.bereft.as_ref().is_none_or(|uid| *uid == owner.uid);
                let reverts = std::mem::take(&mut entry.reverts);
                *entry = Remembered {
                    vanished: Some(owner.uid.clone()),
                    bereft: Some(owner.uid.clone()),
                    reverts: if same { reverts } else { VecDeque::new() },
                    ..Remembered::default()
                };
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn child(uid: &str, version: &str) -> Arc<Child> {
        Arc::new(Child::from_value(json!({"metadata": {"uid": uid, "resourceVersion": version}})).unwrap())
    }
    fn key() -> ChildKey {
        ChildKey {
            kind: ApiKind::new("g", "v1", "K", "ks"),
            namespace: "ns".into(),
            name: "n".into(),
            owner: "o".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_what_we_deleted_is_known_and_that_of_others_is_not() {
        let memory = WriteMemory::default();
        let kind = key().kind;
        let gone = |uid: &str| {
            let owner =
                json!([{"apiVersion": "g/v1", "kind": "O", "name": "o", "uid": "x", "controller": true}]);
            let old =
                json!({"metadata": {"namespace": "ns", "name": "n", "uid": uid, "ownerReferences": owner}});
            memory.follow(kind)(&Change::Deleted {
                old: Arc::new(Child::from_value(old).unwrap()),
            });
            memory.recall(&key(), None).removed.is_some()
        };
        memory.removed(&key(), "u");
        assert!(gone("u"), "nobody need ask the server");
        assert!(!gone("other"));
        memory.removed(&key(), "u");
        tokio::time::advance(BELIEVED + Duration::from_secs(1)).await;
        assert!(memory.recall(&key(), None).removed.is_none(), "for a while only");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_believed_until_the_cache_shows_it_or_time_is_up() {
        let memory = WriteMemory::default();
        let remembered = |cached: Option<&Child>| memory.recall(&key(), cached).written.is_some();
        memory.wrote(&key(), child("u", "10"), "h".into(), None);
        assert!(remembered(None), "not in the cache yet");
        assert!(remembered(Some(&child("u", "9"))), "the cache is older");
        assert!(!remembered(Some(&child("u", "10"))), "the cache has caught up");
        memory.wrote(&key(), child("u", "10"), "h".into(), None);
        assert!(!remembered(Some(&child("u", "11"))), "the cache is newer");
        memory.wrote(&key(), child("u", "10"), "h".into(), None);
        assert!(
            remembered(Some(&child("predecessor", "3"))),
            "the cache still shows the one before"
        );
        assert!(
            !remembered(Some(&child("successor", "12"))),
            "replaced by another object"
        );
        memory.wrote(&key(), child("u", "10"), "h".into(), None);
        tokio::time::advance(BELIEVED + Duration::from_secs(1)).await;
        assert!(!remembered(None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_sixth_revert_within_ten_minutes_waits() {
        let memory = WriteMemory::default();
        for _ in 0..CONTEST_REVERTS {
            assert_eq!(memory.contest(&key()), None);
            memory.reverted(&key());
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        let wait = memory.contest(&key()).expect("contested");
        assert_eq!(wait, CONTEST_PAUSE - Duration::from_secs(10));
        tokio::time::advance(wait).await;
        assert_eq!(memory.contest(&key()), None, "one more revert after the pause");
        memory.reverted(&key());
        assert!(memory.contest(&key()).is_some());
        tokio::time::advance(CONTEST_WINDOW + Duration::from_secs(1)).await;
        assert_eq!(memory.contest(&key()), None, "a quiet window ends the contest");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revert_that_never_happened_makes_no_contest() {
        let memory = WriteMemory::default();
        for _ in 0..20 {
            assert_eq!(memory.contest(&key()), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_deleted_counts_as_gone_while_the_cache_still_shows_it() {
        let memory = WriteMemory::default();
        let removed = |cached: Option<&Child>| memory.recall(&key(), cached).removed.is_some();
        memory.removed(&key(), "u");
        assert!(removed(Some(&child("u", "10"))));
        assert!(!removed(Some(&child("successor", "12"))));
        memory.removed(&key(), "u");
        tokio::time::advance(BELIEVED + Duration::from_secs(1)).await;
        assert!(!removed(Some(&child("u", "10"))), "the delete did not take");
    }

    fn deleted(uid: &str) -> Change<Child> {
        let old = json!({"metadata": {"uid": uid, "resourceVersion": "9", "namespace": "ns", "name": "n",
            "ownerReferences": [{"apiVersion": "g/v1", "kind": "O", "name": "o", "uid": "U", "controller": true}]}});
        Change::Deleted {
            old: Arc::new(Child::from_value(old).unwrap()),
        }
    }

    #[tokio::test]
    async fn a_child_that_vanished_is_not_believed_in_and_a_later_one_is() {
        let memory = WriteMemory::default();
        let listener = memory.follow(key().kind);
        memory.wrote(&key(), child("u", "10"), "h".into(), None);
        listener(&deleted("predecessor"));
        assert!(memory.recall(&key(), None).written.is_some());
        listener(&deleted("u"));
        let known = memory.recall(&key(), None);
        assert!(known.written.is_none() && known.equal.is_none());
        assert_eq!(known.vanished.as_deref(), Some("U"));
        memory.wrote(&key(), child("v", "12"), "h".into(), None);
        assert!(memory.recall(&key(), None).vanished.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_deletes_a_child_again_and_again_is_an_opponent_like_one_who_edits_it() {
        let memory = WriteMemory::default();
        let listener = memory.follow(key().kind);
        for n in 0..CONTEST_REVERTS {
            memory.wrote(&key(), child("u", &n.to_string()), "h".into(), None);
            listener(&deleted("u"));
            assert_eq!(memory.contest(&key()), None, "deletion {n}");
            memory.reverted(&key());
        }
        memory.wrote(&key(), child("u", "99"), "h".into(), None);
        listener(&deleted("u"));
        assert_eq!(memory.contest(&key()), Some(CONTEST_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_the_plan_no_longer_has_are_forgotten_once_the_cache_knows() {
        let memory = WriteMemory::default();
        let named = |name: usize| ChildKey {
            name: name.to_string(),
            ..key()
        };
        for n in 0..100 {
            memory.wrote(&named(n), child("u", "10"), "h".into(), None);
            memory.removed(&named(n.saturating_sub(1)), "u");
            memory.keep_planned("ns", "o", 1, |key| key.name == n.to_string());
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        assert!(memory.len() <= 3, "{} names", memory.len());
        memory.keep_planned("ns", "another", 0, |_| false);
        assert!(!memory.is_empty());
        tokio::time::advance(BELIEVED + Duration::from_secs(1)).await;
        memory.keep_planned("ns", "o", 0, |_| false);
        assert!(memory.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_contest_that_goes_on_stays_one_and_needs_no_second_burst() {
        let memory = WriteMemory::default();
        let mut reverts = 0;
        for _ in 0..3_600 {
            if memory.contest(&key()).is_none() {
                memory.reverted(&key());
                reverts += 1;
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(reverts <= CONTEST_REVERTS + 12, "{reverts} in an hour");
    }

    #[tokio::test]
    async fn an_owner_that_went_takes_its_children_out_of_memory() {
        let memory = WriteMemory::default();
        let other = ChildKey {
            owner: "other".into(),
            ..key()
        };
        memory.wrote(&key(), child("u", "10"), "h".into(), None);
        memory.wrote(&other, child("v", "11"), "h".into(), None);
        memory.forget_owner("ns", "o");
        assert_eq!(memory.len(), 1);
        assert!(memory.recall(&other, None).written.is_some());
    }
}
