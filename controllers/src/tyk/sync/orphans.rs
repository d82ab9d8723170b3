//! Documents that no route answers for any more: of routes that went without their APIs having been removed, and what a
//! sweep found. The part of the [`Book`] that knows them; pure, like the book.
//!
//! The rule that keeps it safe: who hands in a job for an id has it from that moment on ([`Book::claim`]). Both sides hold
//! the book's lock, and a connection runs one batch at a time, so a removal either comes before the job's write or never.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use reconcile_kit::runtime::jitter::doubled;
use tokio::time::Instant;

use super::{
    Done, Job, Routes, Settings, Trouble,
    book::{Book, Due, Entry, Removal, State},
};
use crate::tyk::{
    client::{TykError, TykErrorClass},
    objects::{Fingerprint, Key},
    translate::Owner,
};

/// How it came to be known that a document is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its route went.
    Forgotten,
    /// A list showed it, and its route was not there.
    Swept,
}

impl Found {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Forgotten => "forgotten",
            Self::Swept => "swept",
        }
    }
}

/// A document that is to go without anybody waiting for it.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    owner: Arc<Owner>,
    found: Found,
    since: Instant,
    attempts: u32,
    next: Instant,
}

/// Whether a connection was swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// It is time then, after so many vain tries.
    Due(Instant, u32),
    /// It is on its way, for the n-th time.
    Running(u32),
    /// Not again before this process leads anew.
    Done,
}

/// First and longest wait before another try.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// What will not pass by itself is tried so often.
const TRIES: u32 = 10;
/// Before a world that is not complete is asked again.
const INCOMPLETE: Duration = Duration::from_secs(5);

impl Book {
    /// The route is gone. What is not known to be gone with it goes now; whether there is any.
    pub(super) fn forget(&mut self, route: &Key, next: Instant) -> bool {
        let Some(gone) = self.forget_route(route) else {
            return false;
        };
        let mut any = false;
        for id in gone {
            // Only the route's own goes with it.
            if self.entries.contains_key(&id) && !self.belongs(&id, route) {
                continue;
            }
            let Some(entry) = self.entries.get(&id).filter(|entry| entry.state != State::Gone) else {
                self.drop_entry(&id);
                continue;
            };
            let owner = Arc::clone(&entry.owner);
            // What was never loaded is removed in another way.
            if entry.state != State::NotLoaded {
                self.put(&id, State::Leaving);
            }
            self.schedule(&id, None);
            self.orphaned(&id, owner, Found::Forgotten, next);
            any = true;
        }
        any
    }

    fn orphaned(&mut self, id: &Arc<str>, owner: Arc<Owner>, found: Found, next: Instant) {
        let orphan = Orphan {
            owner,
            found,
            since: Instant::now(),
            attempts: 0,
            next,
        };
        self.orphans.insert(Arc::clone(id), orphan);
    }

    /// Somebody answers for what this job names: none of it is removed in the background any more.
    pub(super) fn claim(&mut self, job: &Job) {
        if self.orphans.is_empty() {
            return;
        }
        let written = job.apis.iter().map(|api| api.id.as_str());
        for id in written.chain(job.remove.iter().map(String::as_str)) {
            let theirs = |orphan: &Orphan| orphan.owner.route == job.owner.route;
            if self.orphans.get(id).is_some_and(theirs) {
                self.orphans.remove(id);
            }
        }
    }

    /// A list shows this document of ours, which nobody has spoken of. `there`: its route exists.
    pub(super) fn found(&mut self, id: &str, owner: Owner, there: bool, now: Instant) {
        if self.entries.contains_key(id) {
            return;
        }
        let (id, owner): (Arc<str>, _) = (id.into(), Arc::new(owner));
        let route = owner.route.clone();
        let entry = Entry::unread(
            Arc::clone(&owner),
            if there { State::Found } else { State::Leaving },
        );
        self.entries.insert(Arc::clone(&id), entry);
        if there {
            // The route decides: it is told, and learns of it by `known`.
            self.adopt(&id, &route);
        } else {
            self.orphaned(&id, owner, Found::Swept, now);
        }
    }

    fn adopt(&mut self, id: &Arc<str>, route: &Key) {
        self.routes
            .entry(route.clone())
            .or_default()
            .ids
            .insert(Arc::clone(id));
        self.tell(route);
    }

    /// When an orphan is to be removed next.
    pub(super) fn orphans_at(&self) -> Option<Instant> {
        self.orphans.values().map(|orphan| orphan.next).min()
    }

    /// Whether an id is about to be removed in the background.
    pub(super) fn leaves(&self, id: &str, now: Instant) -> bool {
        self.orphans.get(id).is_some_and(|orphan| orphan.next <= now)
    }

    /// What is to be removed now, as jobs of those whose it was.
    pub(super) fn orphan_jobs(
        &mut self,
        routes: Option<&Arc<dyn Routes>>,
        settings: &Settings,
        now: Instant,
    ) -> Vec<(Job, Found)> {
        let due: Vec<Arc<str>> = self
            .orphans
            .iter()
            .filter(|(_, orphan)| orphan.next <= now)
            .map(|(id, _)| Arc::clone(id))
            .collect();
        let mut jobs: BTreeMap<(Key, String, bool), (Job, Found)> = BTreeMap::new();
        for id in due {
            let Some(orphan) = self.orphans.get_mut(&id) else {
                continue;
            };
            let owner = Arc::clone(&orphan.owner);
            let there = routes.and_then(|routes| routes.exists(&owner.route));
            let wait = match (orphan.found, there) {
                // It came since: it decides.
                (Found::Swept, Some(true)) => {
                    self.orphans.remove(&id);
                    self.put(&id, State::Found);
                    self.adopt(&id, &owner.route);
                    continue;
                }
                (Found::Swept, None) => Some(INCOMPLETE),
                // One of the same name is there: what it wants of this it will say in a moment, and then nothing is
                // removed that is written again at once.
                (Found::Forgotten, Some(true)) if now < orphan.since + settings.hold => Some(settings.gather),
                _ => None,
            };
            if let Some(wait) = wait {
                orphan.next = now + wait.max(Duration::from_millis(1));
                continue;
            }
            let swept = orphan.found == Found::Swept;
            let found = orphan.found;
            let key = (owner.route.clone(), owner.cluster.clone(), swept);
            let (job, _) = jobs.entry(key).or_insert_with(|| {
                let job = Job {
                    owner: (*owner).clone(),
                    apis: Vec::new(),
                    remove: Vec::new(),
                    certificates: Vec::new(),
                    trusted: false,
                };
                (job, found)
            });
            job.remove.push(id.to_string());
        }
        jobs.into_values().collect()
    }

    /// What such a job asks for. The route itself is not known again by it.
    pub(super) fn orphans_due(&mut self, job: &Job, number: usize) -> Due {
        let mut due = Due::default();
        for id in &job.remove {
            let id: Arc<str> = id.as_str().into();
            // Claimed since the job was made.
            if self.orphans.contains_key(&id) {
                self.removal(id, number, true, &mut due);
            }
        }
        due
    }

    /// What came of such a job. Those that are given up, with why.
    pub(super) fn orphans_done(
        &mut self,
        job: &Job,
        done: Option<&Done>,
        settings: &Settings,
        now: Instant,
    ) -> Vec<(Arc<str>, String)> {
        let mut given_up = Vec::new();
        for id in &job.remove {
            let id: Arc<str> = id.as_str().into();
            let trouble = match done {
                Some(done) => done.remaining.get(&*id),
                None => Some(&Trouble::NotLoaded),
            };
            let error = match trouble {
                None | Some(Trouble::Foreign { .. }) => {
                    self.unorphan(&id);
                    continue;
                }
                Some(Trouble::Failed(error)) => Some(error),
                Some(_) => None,
            };
            let Some(orphan) = self.orphans.get_mut(&id) else {
                continue;
            };
            orphan.attempts = orphan.attempts.saturating_add(1);
            let wait = doubled(AGAIN.0, AGAIN.1, orphan.attempts - 1);
            orphan.next = now + settings.jitter.around(wait, 0.2);
            let lasts = error.is_some_and(|error| !error.passes() && error.class != TykErrorClass::Fenced);
            if lasts && orphan.attempts >= TRIES {
                given_up.push((
                    Arc::clone(&id),
                    error.map(|error| error.message.clone()).unwrap_or_default(),
                ));
                self.unorphan(&id);
            }
        }
        given_up
    }

    /// It is no orphan any more. Unless a route speaks of it, nothing is known of it then.
    fn unorphan(&mut self, id: &Arc<str>) {
        self.orphans.remove(id);
        let named = |entry: &Entry| {
            self.routes
                .get(&entry.owner.route)
                .is_some_and(|route| route.ids.contains(id))
        };
        if self.entries.get(id).is_some_and(|entry| !named(entry)) {
            self.drop_entry(id);
        }
    }

    /// Nothing leads to this Tyk, and has not for long: those that wait for it are given up. Their number.
    pub(super) fn no_way(&mut self, link: &Fingerprint, error: &TykError) -> usize {
        let failures = self.links.get(link).map_or(0, |health| health.failures);
        if error.class != TykErrorClass::NoConnection || failures < TRIES {
            return 0;
        }
        self.sweep = Sweep::Done;
        let ids: Vec<Arc<str>> = self.orphans.keys().map(Arc::clone).collect();
        ids.iter().for_each(|id| self.unorphan(id));
        ids.len()
    }

    /// The link works again: nobody need wait.
    pub(super) fn orphans_now(&mut self, now: Instant) {
        for orphan in self.orphans.values_mut() {
            orphan.next = orphan.next.min(now);
        }
        if let Sweep::Due(at, tries) = self.sweep
            && tries > 0
        {
            self.sweep = Sweep::Due(at.min(now), tries);
        }
    }

    /// It cannot begin yet.
    pub(super) fn sweep_waits(&mut self, now: Instant) {
        if let Sweep::Due(_, tries) = self.sweep {
            self.sweep = Sweep::Due(now + INCOMPLETE, tries);
        }
    }

    /// It begins, if it is due.
    pub(super) fn sweep_begins(&mut self) -> bool {
        let Sweep::Due(_, tries) = self.sweep else {
            return false;
        };
        self.sweep = Sweep::Running(tries);
        true
    }

    /// A sweep came to nothing.
    pub(super) fn sweep_failed(&mut self, lasts: bool, settings: &Settings, now: Instant) {
        let Sweep::Running(tries) = self.sweep else {
            return;
        };
        self.sweep = if lasts {
            Sweep::Done
        } else {
            let wait = settings.jitter.around(doubled(AGAIN.0, AGAIN.1, tries), 0.2);
            Sweep::Due(now + wait, tries.saturating_add(1))
        };
    }

    /// A sweep is over. `whole`: of every document it is known whether its route is there.
    pub(super) fn swept(&mut self, whole: bool, now: Instant) {
        self.sweep = match (self.sweep, whole) {
            (Sweep::Running(tries), false) => Sweep::Due(now + INCOMPLETE, tries),
            _ => Sweep::Done,
        };
    }

    /// Ids that this route has here, for all that is known.
    pub(super) fn known(&self, route: &Key) -> BTreeSet<String> {
        let ids = self.routes.get(route).into_iter().flat_map(|route| &route.ids);
        ids.filter(|id| {
            let entry = self.entries.get(*id).filter(|entry| entry.owner.route == *route);
            entry.is_some_and(|entry| !matches!(entry.state, State::Gone | State::Leaving))
        })
        .map(ToString::to_string)
        .collect()
    }

    /// The document under the id of a removal carries another owner key than the removal's: forgets what was believed of it
    /// in the name of this owner. What another route has under the id stays known.
    pub(super) fn not_ours(&mut self, removal: &Removal, owner: &Owner) {
        let theirs = |orphan: &Orphan| orphan.owner.route != owner.route;
        if !self.orphans.get(&removal.id).is_some_and(theirs) {
            self.orphans.remove(&removal.id);
        }
        if self.belongs(&removal.id, &owner.route) {
            self.drop_entry(&removal.id);
        }
        self.ailing.remove(&removal.id);
        if let Some(route) = self.routes.get_mut(&owner.route) {
            route.ids.remove(&removal.id);
        }
    }
}
