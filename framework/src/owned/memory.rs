//! What we wrote and what is known equal, until the cache shows it: no second write, no second compare. And how often
//! an outside edit was reverted lately. Memory only; bounded by the number of children.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{ApiKind, Child};

/// A write that never shows up in the cache is believed for this long.
const BELIEVED: Duration = Duration::from_secs(30);
/// More reverts than this within [`CONTEST_WINDOW`] make a contest.
pub const CONTEST_REVERTS: usize = 5;
/// See [`CONTEST_REVERTS`].
pub const CONTEST_WINDOW: Duration = Duration::from_secs(600);
/// Pause between two reverts of a contested child.
pub const CONTEST_PAUSE: Duration = Duration::from_secs(300);

/// Shared by all reconciles of a controller.
#[derive(Clone, Debug, Default)]
pub struct WriteMemory(Arc<Mutex<HashMap<ChildKey, Remembered>>>);

/// One child.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChildKey {
    /// Kind.
    pub kind: ApiKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What is remembered of one child.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// The last answer to a write of ours, until the cache has caught up.
    pub written: Option<Written>,
    /// (uid, resourceVersion, intent hash) that were compared, or answered by the server, as equal.
    pub equal: Option<(String, String, String)>,
    /// Times of reverts within the window.
    reverts: VecDeque<Instant>,
    /// Who the contest is with, once asked.
    pub opponent: Option<String>,
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

/// Whether version `a` is older than `b`. Versions of one server compare as numbers; others only by equality.
fn older(a: &str, b: &str) -> bool {
    match (a.parse::<u128>(), b.parse::<u128>()) {
        (Ok(a), Ok(b)) => a < b,
        _ => a != b,
    }
}

impl WriteMemory {
    fn lock(&self) -> MutexGuard<'_, HashMap<ChildKey, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered, given what the cache shows: a write that the cache has caught up with is forgotten here.
    pub fn recall(&self, key: &ChildKey, cached: Option<&Child>) -> Remembered {
        let mut map = self.lock();
        let Some(entry) = map.get_mut(key) else {
            return Remembered::default();
        };
        let caught_up = entry.written.as_ref().is_some_and(|w| match cached {
            // Another object, or our version or a later one.
            Some(c) => c.uid() != w.live.uid() || !older(c.version(), w.live.version()),
            None => false,
        });
        if caught_up || entry.written.as_ref().is_some_and(|w| w.at.elapsed() > BELIEVED) {
            entry.written = None;
        }
        entry.clone()
    }

    /// The server answered a write with this object.
    pub fn wrote(&self, key: &ChildKey, live: Arc<Child>, hash: String) {
        let mut map = self.lock();
        let entry = map.entry(key.clone()).or_default();
        entry.equal = Some((live.uid().to_owned(), live.version().to_owned(), hash.clone()));
        entry.written = Some(Written {
            live,
            hash,
            at: Instant::now(),
        });
    }

    /// Compared and found equal.
    pub fn equal(&self, key: &ChildKey, child: &Child, hash: &str) {
        self.lock().entry(key.clone()).or_default().equal = Some((
            child.uid().to_owned(),
            child.version().to_owned(),
            hash.to_owned(),
        ));
    }

    /// An outside edit is about to be reverted. `Some(wait)`: it is a contest, wait this long first.
    pub fn revert(&self, key: &ChildKey) -> Option<Duration> {
        let now = Instant::now();
        let mut map = self.lock();
        let entry = map.entry(key.clone()).or_default();
        while entry
            .reverts
            .front()
            .is_some_and(|at| now.duration_since(*at) > CONTEST_WINDOW)
        {
            entry.reverts.pop_front();
        }
        if entry.reverts.len() < CONTEST_REVERTS {
            entry.opponent = None;
        } else if let Some(last) = entry.reverts.back() {
            let waited = now.duration_since(*last);
            if waited < CONTEST_PAUSE {
                return Some(CONTEST_PAUSE - waited);
            }
        }
        entry.reverts.push_back(now);
        None
    }

    /// The other side of a contest.
    pub fn set_opponent(&self, key: &ChildKey, manager: &str) {
        self.lock().entry(key.clone()).or_default().opponent = Some(manager.to_owned());
    }

    /// The child was deleted, or is not ours.
    pub fn forget(&self, key: &ChildKey) {
        self.lock().remove(key);
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
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_believed_until_the_cache_shows_it_or_time_is_up() {
        let memory = WriteMemory::default();
        let remembered = |cached: Option<&Child>| memory.recall(&key(), cached).written.is_some();
        memory.wrote(&key(), child("u", "10"), "h".into());
        assert!(remembered(None), "not in the cache yet");
        assert!(remembered(Some(&child("u", "9"))), "the cache is older");
        assert!(!remembered(Some(&child("u", "10"))), "the cache has caught up");
        memory.wrote(&key(), child("u", "10"), "h".into());
        assert!(!remembered(Some(&child("u", "11"))), "the cache is newer");
        memory.wrote(&key(), child("u", "10"), "h".into());
        assert!(
            !remembered(Some(&child("other", "3"))),
            "replaced by another object"
        );
        memory.wrote(&key(), child("u", "10"), "h".into());
        tokio::time::advance(BELIEVED + Duration::from_secs(1)).await;
        assert!(!remembered(None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_sixth_revert_within_ten_minutes_waits() {
        let memory = WriteMemory::default();
        for _ in 0..CONTEST_REVERTS {
            assert_eq!(memory.revert(&key()), None);
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        let wait = memory.revert(&key()).expect("contested");
        assert_eq!(wait, CONTEST_PAUSE - Duration::from_secs(10));
        tokio::time::advance(wait).await;
        assert_eq!(memory.revert(&key()), None, "one more revert after the pause");
        assert!(memory.revert(&key()).is_some());
        tokio::time::advance(CONTEST_WINDOW + Duration::from_secs(1)).await;
        assert_eq!(memory.revert(&key()), None, "a quiet window ends the contest");
    }
}
