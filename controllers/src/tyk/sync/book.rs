//! What an actor knows of its connection: which documents stand and whose they are, certificates, links, what is to be
//! looked at when, and whom to tell. Pure: the time comes as an argument, nothing is asked. Small: no document is kept.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Done, Job, Settings, Trouble,
    marks::{self, Place, Wanted},
    orphans::{Orphan, Sweep},
    shown,
};
use crate::{
    telemetry::tyk::Standing,
    tyk::{
        client::{TykError, TykErrorClass},
        objects::{Fingerprint, Key},
        translate::{Owner, certificate_id},
        verdict::{CertificateUse, Connection, Mode, share_data_plane},
    },
};

/// How one document stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// As written; the digest of what Tyk showed of it.
    Stands(u128),
    /// Taken for written, not looked at yet.
    Trusted,
    /// To be looked at before anything else. `lost`: it stood once and was found otherwise.
    Unsure { lost: bool },
    /// A batch is at it.
    Touched { lost: bool },
    /// Accepted and not served.
    NotLoaded,
    /// Served under another path.
    Renamed {
        path: String,
        attempts: u32,
        again: Instant,
    },
    /// Known to be gone.
    Gone,
    /// A list showed it as its route's; nobody has spoken of it.
    Found,
    /// Its route is gone, and it follows.
    Leaving,
}

/// What is known of one id.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) owner: Arc<Owner>,
    pub(super) hash: u128,
    pub(super) place: Place,
    /// Of one that is trusted: [`shown::normal`] of what was sent.
    pub(super) normal: u64,
    /// The digest of what Tyk showed while it stood, of one that was found otherwise since.
    pub(super) stood: Option<u128>,
    /// Since when looks find nothing, of one that stands.
    pub(super) missed: Option<Instant>,
    pub(super) nonce: u32,
    /// How often it was found edited in place since its document changed.
    pub(super) edits: u8,
    pub(super) state: State,
    /// Changes with the state: tells whether an answer is about this one.
    pub(super) version: u64,
    due: Option<Instant>,
}

impl Entry {
    /// One of which no more is known than whose it is.
    pub(super) fn unread(owner: Arc<Owner>, state: State) -> Self {
        Self {
            owner,
            hash: 0,
            place: Place::default(),
            normal: 0,
            stood: None,
            missed: None,
            nonce: 0,
            edits: 0,
            state,
            version: 0,
            due: None,
        }
    }

    pub(super) fn holds(&self) -> bool {
        matches!(
            self.state,
            State::Stands(_) | State::Trusted | State::Touched { .. } | State::NotLoaded | State::Leaving
        )
    }
}

/// An id or a certificate to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Check {
    Api(Arc<str>),
    Certificate(Arc<str>),
    /// Everything, once; never among those that are scheduled.
    Sweep,
}

#[derive(Debug, Default)]
pub(super) struct Route {
    pub(super) ids: BTreeSet<Arc<str>>,
    certificates: BTreeSet<Arc<str>>,
}

/// Whether a link works.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// Why not, since when it does not.
    pub(super) down: Option<TykError>,
    pub(super) failures: u32,
    pub(super) probe: Option<Instant>,
    /// To ask it again, and to know whose it is.
    pub(super) connection: Option<Arc<Connection>>,
}

/// A write that is due.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) id: Arc<str>,
    pub(super) job: usize,
    pub(super) wanted: Wanted,
    /// Known to have stood under our name: it is asked only whether it still is ours.
    pub(super) known: bool,
    pub(super) attempts: u32,
    pub(super) lost: bool,
    /// What Tyk showed of it before it was found otherwise.
    pub(super) stood: Option<u128>,
    /// Tyk is known to have none under this id.
    pub(super) lacking: bool,
    pub(super) exists: bool,
}

/// A removal that is due.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) id: Arc<str>,
    pub(super) job: usize,
    /// Its file is there though it is not loaded.
    pub(super) unloadable: bool,
}

/// What is to be done for one job.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) done: Done,
    pub(super) writes: Vec<Write>,
    pub(super) removals: Vec<Removal>,
    pub(super) certificates: Vec<(Arc<str>, CertificateUse)>,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.removals.is_empty() && self.certificates.is_empty()
    }
}

/// A document about which a call failed while Tyk answered others.
#[derive(Debug)]
pub(super) struct Ailing {
    /// Of the version that was to be written; `None` for a removal.
    hash: Option<u128>,
    error: TykError,
    attempts: u32,
    /// Not asked again before.
    again: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) mode: Mode,
    /// Which Tyk it is about, as an annotation names it.
    pub(super) here: String,
    pub(super) entries: HashMap<Arc<str>, Entry>,
    pub(super) routes: HashMap<Key, Route>,
    slots: HashMap<u64, BTreeSet<Arc<str>>>,
    /// Certificates that are in the store or taken to be; `false`: known not to be, so that a job is trusted no more.
    certificates: HashMap<Arc<str>, bool>,
    /// The chain that stands in the store under an id, and the Secret that it is of: the id is that of the leaf alone.
    chains: HashMap<Arc<str>, (Key, Fingerprint)>,
    checks: BTreeSet<(Instant, Check)>,
    pub(super) links: BTreeMap<Fingerprint, Health>,
    failed: BTreeMap<Key, Instant>,
    told: VecDeque<Key>,
    telling: BTreeSet<Key>,
    /// Routes whose write waits for another API to go, by slot.
    blocked: HashMap<u64, BTreeSet<Key>>,
    /// Documents about which calls fail while Tyk answers others.
    pub(super) ailing: BTreeMap<Arc<str>, Ailing>,
    /// When Tyk showed a document last.
    pub(super) shown: Option<Instant>,
    /// Since when looks have found nothing, and nothing else.
    dry: Option<Instant>,
    /// To be removed without anybody waiting.
    pub(super) orphans: BTreeMap<Arc<str>, Orphan>,
    /// Whether documents of routes that are gone were looked for.
    pub(super) sweep: Sweep,
    /// Something may be written that is not loaded.
    pub(super) dirty: bool,
    /// Something is to be looked at that the actor does not know of yet.
    pub(super) fresh: bool,
    /// Checks in a row that found nothing.
    pub(super) misses: u32,
    /// Checks that are made before their time.
    pub(super) hurry: u32,
    version: u64,
}

/// So many misses in a row mean that everything is lost.
const LOST: u32 = 3;
/// So often a document is written again that is edited in place, before only its mark is watched.
const EDITS: u8 = 3;

/// A route that failed is waited for so long: more than twice the longest time between two of its tries.
const WANTED: Duration = Duration::from_secs(900);

impl Book {
    pub(super) fn new(mode: Mode, here: &str) -> Self {
        Self {
            mode,
            here: here.to_owned(),
            entries: HashMap::new(),
            routes: HashMap::new(),
            slots: HashMap::new(),
            certificates: HashMap::new(),
            chains: HashMap::new(),
            checks: BTreeSet::new(),
            links: BTreeMap::new(),
            failed: BTreeMap::new(),
            told: VecDeque::new(),
            telling: BTreeSet::new(),
            blocked: HashMap::new(),
            ailing: BTreeMap::new(),
            shown: None,
            dry: None,
            orphans: BTreeMap::new(),
            sweep: Sweep::Done,
            // What an earlier process wrote last may not be loaded.
            dirty: mode == Mode::OpenSource,
            fresh: false,
            misses: 0,
            hurry: 0,
            version: 0,
        }
    }

    /// Nothing is known and nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.failed.is_empty()
            && self.told.is_empty()
            && self.certificates.is_empty()
            && self.orphans.is_empty()
            && self.sweep == Sweep::Done
    }

    /// Another process may write from now on: nothing is known any more.
    pub(super) fn clear(&mut self) {
        let here = std::mem::take(&mut self.here);
        *self = Self::new(self.mode, &here);
    }

    /// Puts an entry in a state.
    pub(super) fn put(&mut self, id: &Arc<str>, state: State) {
        self.version += 1;
        let version = self.version;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.state = state;
            entry.version = version;
        }
    }

    /// Puts an entry under check at `due`, or under none.
    pub(super) fn schedule(&mut self, id: &Arc<str>, due: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.due, due) {
            self.checks.remove(&(old, Check::Api(Arc::clone(id))));
        }
        if let Some(due) = due {
            self.checks.insert((due, Check::Api(Arc::clone(id))));
        }
    }

    fn remember(&mut self, id: &Arc<str>, owner: &Arc<Owner>, wanted: &Wanted, state: State) {
        self.version += 1;
        let version = self.version;
        let old = self.entries.get(id);
        let (due, edits, stood) = old.map_or((None, 0, None), |old| {
            let same = old.hash == wanted.hash;
            (
                old.due,
                if same { old.edits } else { 0 },
                old.stood.filter(|_| same),
            )
        });
        let slot = old.map(|old| old.place.slot);
        if slot != Some(wanted.place.slot) {
            if let Some(slot) = slot {
                self.leave(slot, id);
            }
            self.slots
                .entry(wanted.place.slot)
                .or_default()
                .insert(Arc::clone(id));
        }
        let entry = Entry {
            owner: Arc::clone(owner),
            hash: wanted.hash,
            place: wanted.place.clone(),
            normal: 0,
            stood,
            missed: None,
            nonce: wanted.nonce,
            edits,
            state,
            version,
            due,
        };
        self.entries.insert(Arc::clone(id), entry);
    }

    fn leave(&mut self, slot: u64, id: &Arc<str>) {
        if let Some(ids) = self.slots.get_mut(&slot) {
            ids.remove(id);
            if ids.is_empty() {
                self.slots.remove(&slot);
            }
        }
    }

    pub(super) fn drop_entry(&mut self, id: &Arc<str>) {
        self.schedule(id, None);
        self.ailing.remove(id);
        if let Some(entry) = self.entries.remove(id) {
            self.leave(entry.place.slot, id);
            if let Some(route) = self.routes.get_mut(&entry.owner.route) {
                route.ids.remove(id);
            }
        }
    }

    /// Another own API that holds the place of a document and is not among `going`.
    pub(super) fn holder(
        &self,
        id: &str,
        place: &Place,
        going: &dyn Fn(&str) -> bool,
    ) -> Option<(Arc<str>, Key)> {
        let ids = self.slots.get(&place.slot)?;
        ids.iter().find_map(|other| {
            let entry = self.entries.get(other)?;
            // It is the gateways that rename the second API of a place, and the Dashboard does not show it. But behind a
            // Dashboard they may be told apart by tags.
            let meet = self.mode == Mode::OpenSource || share_data_plane(&entry.place.planes, &place.planes);
            (&**other != id && meet && entry.holds() && !going(other))
                .then(|| (Arc::clone(other), entry.owner.route.clone()))
        })
    }

    /// A route's write waits for the place.
    pub(super) fn block(&mut self, slot: u64, route: &Key) {
        self.blocked.entry(slot).or_default().insert(route.clone());
    }

    /// What a job asks for that is not so yet. `org`: that of its connection, for the ids of certificates; one open-source
    /// gateway may be reached with several. `touch`: what is due is marked as being worked at.
    pub(super) fn due(&mut self, job: &Job, org: &str, number: usize, now: Instant, touch: bool) -> Due {
        let mut due = Due::default();
        let owner = Arc::new(job.owner.clone());
        let route = &job.owner.route;
        let mut named: BTreeSet<Arc<str>> = BTreeSet::new();
        for api in &job.apis {
            let id: Arc<str> = api.id.as_str().into();
            named.insert(Arc::clone(&id));
            let old = self.entries.get(&id);
            let nonce = old.map_or(0, |old| old.nonce);
            let document = marks::sent(api, &job.owner, &self.here, nonce);
            let wanted = Wanted::read(&document, nonce);
            let hash = wanted.hash;
            let mut write = Write {
                id: Arc::clone(&id),
                job: number,
                wanted,
                known: false,
                attempts: 0,
                lost: false,
                stood: old.and_then(|old| old.stood.filter(|_| old.hash == hash)),
                lacking: false,
                exists: false,
            };
            match old.map(|old| (&old.state, old.hash == write.wanted.hash)) {
                Some((State::Stands(_) | State::Trusted, true)) => continue,
                None if job.trusted => {
                    self.remember(&id, &owner, &write.wanted, State::Trusted);
                    if let Some(entry) = self.entries.get_mut(&id) {
                        entry.normal = shown::normal(&document);
                    }
                    self.schedule(&id, Some(now));
                    self.fresh = true;
                    continue;
                }
                Some((State::Renamed { path, again, .. }, true)) if now < *again => {
                    due.done
                        .troubled
                        .insert(api.id.clone(), Trouble::Renamed { path: path.clone() });
                    continue;
                }
                Some((State::Renamed { attempts, .. }, true)) => {
                    (write.attempts, write.known) = (*attempts, true);
                    write.wanted =
                        Wanted::of(api, &job.owner, &self.here, write.wanted.nonce.wrapping_add(1));
                }
                Some((State::Stands(_), false)) => write.known = true,
                Some((State::Unsure { lost } | State::Touched { lost }, _)) => write.lost = *lost,
                Some((State::Gone | State::NotLoaded, _)) => write.lacking = true,
                _ => {}
            }
            if let Some(error) = self.spared(&id, Some(hash), now) {
                due.done.troubled.insert(api.id.clone(), Trouble::Failed(error));
                continue;
            }
            write.exists = write.known;
            if touch {
                let state = State::Touched { lost: write.lost };
                self.remember(&id, &owner, &write.wanted, state);
                self.schedule(&id, None);
            }
            due.writes.push(write);
        }
        let mut asked: BTreeSet<Arc<str>> = BTreeSet::new();
        for id in &job.remove {
            let id: Arc<str> = id.as_str().into();
            // An id that this process knows to be another route's is neither asked for nor taken for this one's.
            let other = self.entries.get(&id).map(|entry| Arc::clone(&entry.owner));
            if let Some(other) = other.filter(|other| other.route != *route) {
                let owner = marks::owner_name(&other);
                due.done
                    .remaining
                    .insert(id.to_string(), Trouble::Foreign { owner });
                continue;
            }
            if named.contains(&id) || !asked.insert(Arc::clone(&id)) {
                continue;
            }
            if let Some(error) = self.spared(&id, None, now) {
                due.done.remaining.insert(id.to_string(), Trouble::Failed(error));
                continue;
            }
            self.removal(id, number, touch, &mut due);
        }
        // An id that a job wants removed is the route's own only if an entry says so: a look has found the route's owner
        // key on the document, or the route wrote it. Anybody can write an id into an annotation.
        named.extend(asked.into_iter().filter(|id| self.belongs(id, route)));
        let mut certificates = BTreeSet::new();
        for used in &job.certificates {
            let id: Arc<str> = certificate_id(org, &used.certificate).into();
            certificates.insert(Arc::clone(&id));
            match self.certificates.get(&id) {
                _ if self.outdated(&id, used) => {}
                Some(true) => continue,
                None if job.trusted => {
                    self.chained(&id, used, false);
                    self.certificates.insert(Arc::clone(&id), true);
                    self.checks.insert((now, Check::Certificate(id)));
                    self.fresh = true;
                    continue;
                }
                Some(false) | None => {}
            }
            due.certificates.push((id, used.clone()));
        }
        let old = self.routes.entry(route.clone()).or_default();
        let ids = std::mem::replace(&mut old.ids, named.clone());
        let left = std::mem::replace(&mut old.certificates, certificates);
        for id in ids
            .difference(&named)
            .filter(|id| self.belongs(id, route))
            .cloned()
            .collect::<Vec<_>>()
        {
            // What was confirmed to be gone need not be remembered once the route has forgotten it.
            if self
                .entries
                .get(&id)
                .is_some_and(|entry| entry.state == State::Gone)
            {
                self.drop_entry(&id);
            } else if let Some(route) = self.routes.get_mut(route) {
                route.ids.insert(id);
            }
        }
        for id in left {
            let kept = |route: &Route| route.certificates.contains(&id);
            if !self.routes.get(route).is_some_and(kept) && !self.routes.values().any(kept) {
                self.forget_certificate(&id);
            }
        }
        due
    }

    /// Whether an id is known to be this route's.
    pub(super) fn belongs(&self, id: &str, route: &Key) -> bool {
        self.entries
            .get(id)
            .is_some_and(|entry| entry.owner.route == *route)
    }

    /// Records that a document which a job wants removed carries the owner key of the job's route. An id that is known
    /// already stays as it is.
    pub(super) fn record_own(&mut self, id: &Arc<str>, owner: &Owner, state: State) {
        if self.entries.contains_key(id) {
            return;
        }
        let entry = Entry::unread(Arc::new(owner.clone()), state);
        self.entries.insert(Arc::clone(id), entry);
        let route = self.routes.entry(owner.route.clone()).or_default();
        route.ids.insert(Arc::clone(id));
    }

    /// Unless it is known to be gone, it has to go.
    pub(super) fn removal(&mut self, id: Arc<str>, job: usize, touch: bool, due: &mut Due) {
        let state = self.entries.get(&id).map(|entry| &entry.state);
        if state == Some(&State::Gone) {
            return;
        }
        let unloadable = state == Some(&State::NotLoaded);
        if touch && state.is_some() {
            self.put(&id, State::Touched { lost: false });
            self.schedule(&id, None);
        }
        due.removals.push(Removal { id, job, unloadable });
    }

    fn forget_certificate(&mut self, id: &Arc<str>) {
        self.certificates.remove(id);
        self.chains.remove(id);
        let check = Check::Certificate(Arc::clone(id));
        self.checks.retain(|(_, other)| *other != check);
    }

    /// The route is gone, and nobody is told of it any more; the ids that it had.
    pub(super) fn forget_route(&mut self, route: &Key) -> Option<BTreeSet<Arc<str>>> {
        let gone = self.routes.remove(route)?;
        for id in gone.certificates {
            if !self.routes.values().any(|route| route.certificates.contains(&id)) {
                self.forget_certificate(&id);
            }
        }
        self.failed.remove(route);
        for routes in self.blocked.values_mut() {
            routes.remove(route);
        }
        Some(gone.ids)
    }

    /// It was looked at and is as wanted.
    pub(super) fn stands(&mut self, write: &Write, digest: u128, next: Instant) {
        self.ailing.remove(&write.id);
        if let Some(entry) = self.entries.get_mut(&write.id) {
            entry.hash = write.wanted.hash;
            entry.nonce = write.wanted.nonce;
            entry.stood = None;
        }
        self.put(&write.id, State::Stands(digest));
        self.schedule(&write.id, Some(next));
    }

    /// It is gone; whoever waited for its place is told.
    pub(super) fn gone(&mut self, id: &Arc<str>, owner: &Owner) {
        self.record_own(id, owner, State::Gone);
        if !self.belongs(id, &owner.route) {
            // Another route's by now: what that one has is not this one's to judge.
            return;
        }
        self.ailing.remove(id);
        let slot = self.entries.get(id).map(|entry| entry.place.slot);
        self.put(id, State::Gone);
        self.schedule(id, None);
        let Some(slot) = slot else {
            return;
        };
        let mut waiting = self.blocked.remove(&slot).unwrap_or_default();
        let now = Instant::now();
        for other in self.slots.get(&slot).into_iter().flatten() {
            if let Some(entry) = self.entries.get_mut(other)
                && let State::Renamed { again, .. } = &mut entry.state
            {
                *again = now;
                waiting.insert(entry.owner.route.clone());
            }
        }
        for route in waiting {
            self.tell(&route);
        }
    }

    /// Whether the Secret that the stored chain is of holds another one by now, behind the same leaf. Another Secret's chain
    /// of that leaf is as good: two of them must not replace one another for ever.
    pub(super) fn outdated(&self, id: &str, used: &CertificateUse) -> bool {
        let chain = self.chains.get(id);
        chain.is_some_and(|(secret, bundle)| *secret == used.secret && *bundle != used.certificate.bundle)
    }

    /// This chain is in the store, if `sure`; else it is taken to be, when nothing else is known.
    pub(super) fn chained(&mut self, id: &Arc<str>, used: &CertificateUse, sure: bool) {
        let chain = (used.secret.clone(), used.certificate.bundle.clone());
        if sure || !self.chains.contains_key(id) {
            self.chains.insert(Arc::clone(id), chain);
        }
    }

    /// A certificate is in the store.
    pub(super) fn certified(&mut self, id: &Arc<str>, next: Instant) {
        self.certificates.insert(Arc::clone(id), true);
        let check = Check::Certificate(Arc::clone(id));
        self.checks.retain(|(_, other)| *other != check);
        self.checks.insert((next, check));
    }

    /// A certificate is not in the store; the routes that need it.
    pub(super) fn uncertified(&mut self, id: &Arc<str>) -> Vec<Key> {
        let chain = self.chains.get(id).cloned();
        self.forget_certificate(id);
        let routes = self
            .routes
            .iter()
            .filter(|(_, route)| route.certificates.contains(id));
        let routes: Vec<Key> = routes.map(|(key, _)| key.clone()).collect();
        if !routes.is_empty() {
            self.certificates.insert(Arc::clone(id), false);
            // Which one was there says whether it has to be replaced: a removal may have failed.
            self.chains.extend(chain.map(|chain| (Arc::clone(id), chain)));
        }
        routes
    }

    /// A certificate is not in the store any more: who needs it is told.
    pub(super) fn certificate_lost(&mut self, id: &Arc<str>) {
        for route in self.uncertified(id) {
            self.tell(&route);
        }
    }

    /// A document is not as it was written: its route is told.
    pub(super) fn drifted(&mut self, id: &Arc<str>) {
        self.schedule(id, None);
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.edits = entry.edits.saturating_add(1);
        entry.missed = None;
        if let State::Stands(digest) = entry.state {
            entry.stood = Some(digest);
        }
        let route = entry.owner.route.clone();
        self.put(id, State::Unsure { lost: true });
        self.tell(&route);
    }

    /// Whether it is as it should be can only be said with the document at hand: its route is told.
    pub(super) fn doubted(&mut self, id: &Arc<str>) {
        self.schedule(id, None);
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let route = entry.owner.route.clone();
        self.put(id, State::Unsure { lost: false });
        self.tell(&route);
    }

    /// Whether an edit in place is still answered by writing again.
    pub(super) fn fights(&self, id: &str) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.edits < EDITS)
    }

    /// Records that a call about one document failed while Tyk answers others: from the second time on it is left alone for
    /// a while, and it does not share a batch with others.
    pub(super) fn record_ailing(
        &mut self,
        id: &Arc<str>,
        hash: Option<u128>,
        error: &TykError,
        settings: &Settings,
        now: Instant,
    ) {
        let attempts = self.ailing.get(id).map_or(0, |ailing| ailing.attempts);
        let wait = match attempts {
            0 => Duration::ZERO,
            more => {
                let (first, longest) = settings.backoff;
                let wait = reconcile_kit::runtime::jitter::doubled(first, longest, more - 1);
                settings.jitter.around(wait, 0.2)
            }
        };
        let ailing = Ailing {
            hash,
            error: error.clone(),
            attempts: attempts.saturating_add(1),
            again: now + wait,
        };
        self.ailing.insert(Arc::clone(id), ailing);
    }

    /// Why a document is not asked about yet. Another version of it is.
    fn spared(&self, id: &str, hash: Option<u128>, now: Instant) -> Option<TykError> {
        let ailing = self.ailing.get(id)?;
        (now < ailing.again && ailing.hash == hash).then(|| ailing.error.clone())
    }

    /// Whether a job names a document about which calls fail.
    pub(super) fn is_ailing(&self, job: &Job) -> bool {
        if self.ailing.is_empty() {
            return false;
        }
        let mut written = job.apis.iter().map(|api| api.id.as_str());
        written.any(|id| self.ailing.contains_key(id))
            || job.remove.iter().any(|id| self.ailing.contains_key(&**id))
    }

    /// Tyk shows a document: it has loaded its files.
    pub(super) fn record_shown(&mut self, now: Instant) {
        self.shown = Some(now);
        self.dry = None;
    }

    /// Another document that is taken to stand: whether Tyk shows it tells whether Tyk has loaded its files.
    pub(super) fn neighbour(&self, but: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        let standing = |entry: &Entry| matches!(entry.state, State::Stands(_) | State::Trusted);
        let mut others = self.entries.iter().filter(|(id, _)| !but(id));
        others.find_map(|(id, entry)| standing(entry).then(|| Arc::clone(id)))
    }

    /// A look finds nothing. Whether that is to be believed: the same document was missed for a while, or every one was.
    /// A gateway that is starting answers before it has loaded its files.
    pub(super) fn is_missed(&mut self, id: &str, now: Instant, settings: &Settings) -> bool {
        let dry = *self.dry.get_or_insert(now);
        let Some(entry) = self.entries.get_mut(id) else {
            return false;
        };
        let missed = *entry.missed.get_or_insert(now);
        let believed = now.saturating_duration_since(missed.min(dry)) >= settings.recheck;
        if !believed {
            self.recheck(id, now, settings);
        }
        believed
    }

    /// A look says nothing yet: it is made again in a moment, and not before.
    pub(super) fn recheck(&mut self, id: &str, now: Instant, settings: &Settings) {
        self.hurry = self.hurry.saturating_sub(1);
        self.later(Check::Api(id.into()), now + settings.recheck);
    }

    /// Takes a look for good: it is made again at `next`.
    pub(super) fn looked(&mut self, id: &Arc<str>, digest: u128, next: Instant) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.missed = None;
        }
        self.put(id, State::Stands(digest));
        self.schedule(id, Some(next));
    }

    /// A check found nothing. When several in a row do, everything is lost.
    pub(super) fn missed(&mut self) -> bool {
        self.misses += 1;
        self.hurry = LOST;
        let standing: Vec<Arc<str>> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Stands(_) | State::Trusted))
            .map(|(id, _)| Arc::clone(id))
            .collect();
        if self.misses < LOST || standing.is_empty() {
            return false;
        }
        for id in &standing {
            self.drifted(id);
        }
        self.misses = 0;
        self.hurry = 0;
        true
    }

    /// A check found something.
    pub(super) fn hit(&mut self) {
        self.record_shown(Instant::now());
        self.misses = 0;
        self.hurry = self.hurry.saturating_sub(1);
    }

    /// The next thing to look at, if it is time; it is taken off the list until it is answered.
    pub(super) fn next_check(&mut self, now: Instant) -> Option<Check> {
        let (due, _) = self.checks.first()?;
        if *due > now && self.hurry == 0 {
            return None;
        }
        let (_, check) = self.checks.pop_first()?;
        if let Check::Api(id) = &check
            && let Some(entry) = self.entries.get_mut(id)
        {
            entry.due = None;
        }
        Some(check)
    }

    /// Puts a check back.
    pub(super) fn later(&mut self, check: Check, due: Instant) {
        match check {
            Check::Api(id) => {
                if self
                    .entries
                    .get(&id)
                    .is_some_and(|entry| matches!(entry.state, State::Stands(_) | State::Trusted))
                {
                    self.schedule(&id, Some(due));
                }
            }
            Check::Certificate(id) => {
                if self.certificates.get(&id) == Some(&true) {
                    self.checks.insert((due, Check::Certificate(id)));
                }
            }
            Check::Sweep => {}
        }
    }

    /// When the next check is due. With `hurry`: now.
    pub(super) fn check_at(&self, now: Instant) -> Option<Instant> {
        let (due, _) = self.checks.first()?;
        Some(if self.hurry > 0 { now } else { *due })
    }

    /// Whether nothing is left of a batch that broke off.
    pub(super) fn unsettle(&mut self) {
        let touched: Vec<(Arc<str>, bool)> = self
            .entries
            .iter()
            .filter_map(|(id, entry)| match entry.state {
                State::Touched { lost } => Some((Arc::clone(id), lost)),
                _ => None,
            })
            .collect();
        for (id, lost) in touched {
            self.dirty = self.mode == Mode::OpenSource;
            self.put(&id, State::Unsure { lost });
        }
    }

    pub(super) fn tell(&mut self, route: &Key) {
        if self.telling.insert(route.clone()) {
            self.told.push_back(route.clone());
        }
    }

    /// Routes to tell now.
    pub(super) fn tellings(&mut self, most: usize) -> Vec<Key> {
        let most = most.min(self.told.len());
        let routes: Vec<Key> = self.told.drain(..most).collect();
        for route in &routes {
            self.telling.remove(route);
        }
        routes
    }

    /// Whether somebody is to be told.
    pub(super) fn tells(&self) -> bool {
        !self.told.is_empty()
    }

    /// The answer of a link that is known to be down. The route is told when it is up again.
    pub(super) fn down(&mut self, link: &Fingerprint, route: &Key) -> Option<TykError> {
        let error = self.links.get(link)?.down.clone()?;
        self.fail(route);
        Some(error)
    }

    /// A route failed because its link is down.
    pub(super) fn fail(&mut self, route: &Key) {
        self.failed.insert(route.clone(), Instant::now());
    }

    /// A link does not work. Whether that is news.
    pub(super) fn broke(
        &mut self,
        connection: &Arc<Connection>,
        error: &TykError,
        now: Instant,
        settings: &Settings,
    ) -> bool {
        let health = self.links.entry(connection.fingerprint.clone()).or_default();
        health.connection = Some(Arc::clone(connection));
        let wait =
            reconcile_kit::runtime::jitter::doubled(settings.backoff.0, settings.backoff.1, health.failures);
        health.failures = health.failures.saturating_add(1);
        // Who still wants this Tyk has come back since: a route looks again within minutes.
        self.failed
            .retain(|_, since| now.saturating_duration_since(*since) < WANTED);
        health.probe = Some(now + settings.jitter.around(wait, 0.2));
        if health.down.is_some() {
            return false;
        }
        health.down = Some(error.clone());
        true
    }

    /// A link works. Whether that is news; then those that failed are told, and some of what stood is looked at.
    pub(super) fn works(&mut self, connection: &Arc<Connection>) -> bool {
        let health = self.links.entry(connection.fingerprint.clone()).or_default();
        let news = health.down.is_some();
        *health = Health {
            connection: Some(Arc::clone(connection)),
            ..Health::default()
        };
        if news {
            for route in std::mem::take(&mut self.failed).into_keys() {
                self.tell(&route);
            }
            self.hurry = LOST;
            self.orphans_now(Instant::now());
        }
        news
    }

    /// Counts for the gauges.
    pub(super) fn standing(&self) -> Standing {
        let mut standing = Standing::default();
        for entry in self.entries.values() {
            match entry.state {
                State::Stands(_) => standing.standing += 1,
                State::Trusted | State::Found => standing.unverified += 1,
                State::Gone => {}
                _ => standing.troubled += 1,
            }
        }
        for health in self.links.values() {
            match health.down {
                None => standing.up += 1,
                Some(_) => standing.down += 1,
            }
        }
        standing
    }
}

/// Every part of a job failed alike.
pub(super) fn all_failed(due: Due, error: &TykError) -> Done {
    let mut done = due.done;
    let failed = || Trouble::Failed(error.clone());
    let writes = due.writes.iter().map(|write| (write.id.to_string(), failed()));
    done.troubled.extend(writes);
    let removals = due
        .removals
        .iter()
        .map(|removal| (removal.id.to_string(), failed()));
    done.remaining.extend(removals);
    let certificates = due
        .certificates
        .iter()
        .map(|(id, _)| (id.to_string(), error.clone()));
    done.certificates.extend(certificates);
    done
}

/// Whether an error is about the connection and not about one document.
pub(super) fn breaks(error: &TykError) -> bool {
    matches!(
        error.class,
        TykErrorClass::Unreachable
            | TykErrorClass::Busy
            | TykErrorClass::Denied
            | TykErrorClass::NoConnection
    )
}

/// The next look at what stands: jittered, so that looks spread.
pub(super) fn next_look(settings: &Settings) -> Instant {
    let wait: Duration = settings.jitter.around(settings.check_every, 0.2);
    Instant::now() + wait
}
