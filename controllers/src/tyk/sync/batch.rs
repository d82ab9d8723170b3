//! One batch: certificates, all deletions, all writes, one reload, a look at each. Order is what keeps it safe: what an
//! id holds is looked at before it is touched, the old one of a path goes before the new one comes, and nothing counts
//! before it was seen.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::time::Instant;
use tracing::info;

use super::{
    Connector, Done, Job, Settings, Trouble,
    actor::Shared,
    book::{Removal, State, Write, all_failed, breaks, next_look},
    line::Line,
    marks,
    orphans::Found as Orphaned,
    shown,
};
use crate::tyk::{
    client::{TykError, TykErrorClass},
    translate::EXTENSION,
    verdict::{CertificateUse, Mode},
};

/// Deletions that did not take are repeated so often.
const ROUNDS: u32 = 3;
/// A document that Tyk keeps under another path is written again so often, each time later.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));

pub(super) struct Batch<'a> {
    pub(super) shared: &'a Shared,
    pub(super) line: &'a Line,
    pub(super) connector: &'a Arc<dyn Connector>,
    pub(super) settings: &'a Settings,
    pub(super) jobs: Vec<Job>,
    /// How those jobs came about that nobody waits for; they are the last of `jobs`.
    orphans: Vec<Orphaned>,
    done: Vec<Done>,
    wrote: bool,
    /// It was reloaded in this batch: what is not shown since is not there.
    loaded: bool,
    count: usize,
}

/// What a look before a write said.
enum Found {
    Nothing,
    Own(Box<Value>),
    Foreign(String),
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        line: &'a Line,
        connector: &'a Arc<dyn Connector>,
        settings: &'a Settings,
        jobs: Vec<Job>,
        orphans: Vec<Orphaned>,
    ) -> Self {
        Self {
            shared,
            line,
            connector,
            settings,
            jobs,
            orphans,
            done: Vec::new(),
            wrote: false,
            loaded: false,
            count: 0,
        }
    }

    fn mode(&self) -> Mode {
        self.line.connection.mode
    }

    fn owner(&self, job: usize) -> Option<&crate::tyk::translate::Owner> {
        self.jobs.get(job).map(|job| &job.owner)
    }

    /// How a job came about that nobody waits for.
    fn orphaned(&self, job: usize) -> Option<Orphaned> {
        let first = self.jobs.len() - self.orphans.len();
        self.orphans.get(job.checked_sub(first)?).copied()
    }

    fn change(&self, change: &'static str, job: usize, id: &str) {
        self.settings.meter.changed(self.mode(), change);
        let route = self.owner(job).map(|owner| owner.route.to_string());
        let route = route.unwrap_or_default();
        let tyk = &self.line.connection.url;
        match self.orphaned(job) {
            Some(found) => {
                self.settings.meter.orphan(self.mode(), found.label());
                info!(api = id, %route, %tyk, "Tyk API removed: its HTTPRoute is gone");
            }
            None => info!(api = id, %route, %tyk, "Tyk API {change}"),
        }
    }

    fn trouble(&mut self, write: &Write, trouble: Trouble) {
        if let Some(done) = self.done.get_mut(write.job) {
            done.troubled.insert(write.id.to_string(), trouble);
        }
        self.shared
            .book()
            .put(&write.id, State::Unsure { lost: write.lost });
    }

    fn remains(&mut self, removal: &Removal, trouble: Trouble) {
        let foreign = matches!(trouble, Trouble::Foreign { .. });
        if let Some(done) = self.done.get_mut(removal.job) {
            done.remaining.insert(removal.id.to_string(), trouble);
        }
        let Some(owner) = self.owner(removal.job) else {
            return;
        };
        let mut book = self.shared.book();
        if foreign {
            book.not_ours(removal, owner);
        } else if book.belongs(&removal.id, &owner.route) {
            book.put(&removal.id, State::Unsure { lost: false });
        }
    }

    /// A call about a document that is to be written failed.
    fn failed_write(&mut self, write: &Write, error: TykError) {
        self.blame(&write.id, Some(write.wanted.hash), &error);
        self.trouble(write, Trouble::Failed(error));
    }

    /// A call about a document that is to be removed failed.
    fn failed_removal(&mut self, removal: &Removal, error: TykError) {
        // Orphans have a back-off of their own.
        if self.orphaned(removal.job).is_none() {
            self.blame(&removal.id, None, &error);
        }
        self.remains(removal, Trouble::Failed(error));
    }

    /// Records a failure as one of the document, unless the connection fails.
    fn blame(&self, id: &Arc<str>, hash: Option<u128>, error: &TykError) {
        let grave = error.class == TykErrorClass::Failing || breaks(error);
        if grave && self.line.broken().is_none() {
            let mut book = self.shared.book();
            book.record_ailing(id, hash, error, self.settings, Instant::now());
        }
    }

    /// The document that a write sends.
    fn sent(&self, write: &Write) -> Option<Value> {
        let job = self.jobs.get(write.job)?;
        let api = job.apis.iter().find(|api| *api.id == *write.id)?;
        let here = self.shared.book().here.clone();
        Some(marks::sent(api, &job.owner, &here, write.wanted.nonce))
    }

    /// Runs it. One answer per job, in their order.
    pub(super) async fn run(mut self) -> Vec<Done> {
        let (mut writes, mut removals, mut certificates) = (Vec::new(), Vec::new(), Vec::new());
        let now = Instant::now();
        for (number, job) in self.jobs.iter().enumerate() {
            let due = match self.orphaned(number) {
                None => self
                    .shared
                    .book()
                    .due(job, &self.line.connection.org, number, now, true),
                Some(_) => self.shared.book().orphans_due(job, number),
            };
            self.done.push(due.done);
            writes.extend(due.writes);
            removals.extend(due.removals);
            certificates.extend(due.certificates.into_iter().map(|(id, used)| (number, id, used)));
        }
        // What an earlier process wrote or deleted last may not be loaded: no look would tell.
        let looks = !removals.is_empty() || writes.iter().any(|write| !write.known);
        let dirty = self.shared.book().dirty;
        if looks
            && dirty
            && let Err(error) = self.reload().await
        {
            return self.fail(writes, removals, certificates, &error);
        }
        let reload = self.certify(certificates).await;
        let (mut writes, mut removals) = self.look(writes, removals).await;
        for round in 0..ROUNDS {
            let going = self.delete(&mut removals).await;
            if round == 0 {
                writes = self.write(writes, &going).await;
            }
            let must = self.wrote || (round == 0 && reload) || removals.iter().any(|(_, sure)| !sure);
            if must && let Err(error) = self.reload().await {
                let removals = removals.into_iter().map(|(removal, _)| removal).collect();
                return self.fail(writes, removals, Vec::new(), &error);
            }
            removals = self.confirm(removals).await;
            if round == 0 {
                self.verify(std::mem::take(&mut writes)).await;
            }
            if removals.is_empty() {
                break;
            }
        }
        for (removal, _) in removals {
            let message = format!(
                "{} is still there after it was deleted {ROUNDS} times",
                removal.id
            );
            let error = TykError::new(TykErrorClass::Failing, message);
            self.remains(&removal, Trouble::Failed(error));
        }
        self.settings.meter.batch(self.count);
        self.done
    }

    /// Nothing more can be done.
    fn fail(
        mut self,
        writes: Vec<Write>,
        removals: Vec<Removal>,
        certificates: Vec<(usize, Arc<str>, CertificateUse)>,
        error: &TykError,
    ) -> Vec<Done> {
        for write in &writes {
            self.trouble(write, Trouble::Failed(error.clone()));
        }
        for removal in &removals {
            self.remains(removal, Trouble::Failed(error.clone()));
        }
        for (job, id, _) in certificates {
            if let Some(done) = self.done.get_mut(job) {
                done.certificates.insert(id.to_string(), error.clone());
            }
        }
        self.done
    }

    async fn reload(&mut self) -> Result<(), TykError> {
        if self.mode() == Mode::Dashboard {
            self.wrote = false;
            return Ok(());
        }
        let began = Instant::now();
        self.line
            .call_for_all(|api| async move { api.reload().await })
            .await?;
        self.shared.reloaded(began.elapsed());
        self.shared.book().dirty = false;
        (self.wrote, self.loaded) = (false, true);
        Ok(())
    }

    /// Certificates first: an API whose certificate is missing serves another one. Whether one was uploaded.
    async fn certify(&mut self, certificates: Vec<(usize, Arc<str>, CertificateUse)>) -> bool {
        let mut uploaded = false;
        let mut tried: std::collections::BTreeMap<Arc<str>, Result<(), TykError>> = Default::default();
        for (job, id, used) in certificates {
            let outcome = match tried.get(&id) {
                Some(outcome) => outcome.clone(),
                None => {
                    let outcome = self.certificate(&id, &used).await.map(|new| {
                        uploaded |= new;
                        let mut book = self.shared.book();
                        book.chained(&id, &used, new);
                        book.certified(&id, next_look(self.settings));
                    });
                    tried.insert(Arc::clone(&id), outcome.clone());
                    outcome
                }
            };
            match outcome {
                Ok(()) => {}
                Err(error) => {
                    self.shared.book().uncertified(&id);
                    if let Some(done) = self.done.get_mut(job) {
                        done.certificates.insert(id.to_string(), error);
                    }
                }
            }
        }
        uploaded
    }

    async fn certificate(&self, id: &str, used: &CertificateUse) -> Result<bool, TykError> {
        // Its chain is another now: what Tyk shows of a certificate does not tell.
        let outdated = self.shared.book().outdated(id, used);
        if !outdated {
            let known = self
                .line
                .call(|api| async move { api.certificate(id).await })
                .await?;
            if known.is_some_and(|stored| stored.has_private) {
                return Ok(false);
            }
        }
        let bundle = self.connector.bundle(used).await?;
        let bundle = &bundle;
        let got = self
            .line
            .call(|api| async move {
                match outdated {
                    true => api.replace(id, bundle).await,
                    false => api.upload(id, bundle).await,
                }
            })
            .await?;
        if got != id {
            let message = format!(
                "certificate of Secret {}: Tyk gave it the id {got} instead of {id}",
                used.secret
            );
            return Err(TykError::new(TykErrorClass::Refused, message));
        }
        self.settings.meter.changed(self.mode(), "uploaded");
        info!(certificate = id, secret = %used.secret, tyk = %self.line.connection.url, "Tyk certificate uploaded");
        Ok(true)
    }

    /// Asks for many ids, a few at a time.
    async fn ask<T>(
        &self,
        items: Vec<T>,
        id: fn(&T) -> &Arc<str>,
    ) -> Vec<(T, Result<Option<Value>, TykError>)> {
        stream::iter(items)
            .map(|item| async move {
                let id = &**id(&item);
                let answer = self.line.call(|api| async move { api.get(id).await }).await;
                if let Ok(Some(_)) = &answer {
                    self.shared.book().record_shown(Instant::now());
                }
                (item, answer)
            })
            .buffer_unordered(self.settings.parallel)
            .collect()
            .await
    }

    /// Whose is it that stands there?
    async fn look(
        &mut self,
        writes: Vec<Write>,
        removals: Vec<Removal>,
    ) -> (Vec<Write>, Vec<(Removal, bool)>) {
        let mut left = Vec::new();
        for (write, answer) in self.ask_for_writes(writes).await {
            match self.found(write.job, answer) {
                Err(error) => self.failed_write(&write, error),
                Ok(Found::Nothing) => left.push(Write {
                    exists: false,
                    ..write
                }),
                Ok(Found::Foreign(owner)) => {
                    self.trouble(&write, Trouble::Foreign { owner });
                }
                // It stood, and is to be another now.
                Ok(Found::Own(_)) if write.known => left.push(write),
                Ok(Found::Own(document)) => left.extend(self.compare(write, &document)),
            }
        }
        let mut going = Vec::new();
        let answers = self.ask(removals, |removal| &removal.id).await;
        for (removal, answer) in self.ask_again(answers).await {
            match self.found(removal.job, answer) {
                Err(error) => self.failed_removal(&removal, error),
                Ok(Found::Foreign(owner)) => self.remains(&removal, Trouble::Foreign { owner }),
                // It stands, and is removed, by another name of this Tyk: here there is none.
                Ok(Found::Own(document))
                    if self.orphaned(removal.job) != Some(Orphaned::Swept)
                        && marks::elsewhere(&document, &self.shared.book().here) =>
                {
                    if let Some(owner) = self.owner(removal.job) {
                        self.shared.book().gone(&removal.id, owner);
                    }
                }
                Ok(Found::Nothing) if !removal.unloadable => {
                    if let Some(owner) = self.owner(removal.job) {
                        self.shared.book().gone(&removal.id, owner);
                    }
                }
                Ok(_) => {
                    if let Some(owner) = self.owner(removal.job) {
                        let state = State::Touched { lost: false };
                        self.shared.book().record_own(&removal.id, owner, state);
                    }
                    going.push((removal, false));
                }
            }
        }
        (left, going)
    }

    /// Asks whose documents stand under the ids of writes. A gateway that is starting answers before it has loaded its files:
    /// unless it is known to have loaded them, what it does not show is asked for again after a reload.
    async fn ask_for_writes(&mut self, writes: Vec<Write>) -> Vec<(Write, Result<Option<Value>, TykError>)> {
        let loaded = self.has_loaded(&writes).await;
        let answers = self.ask(writes, |write| &write.id).await;
        if loaded {
            return answers;
        }
        let (unseen, mut sure): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|(write, answer)| matches!(answer, Ok(None)) && !write.lacking);
        if unseen.is_empty() {
            return sure;
        }
        let unseen = unseen.into_iter().map(|(write, _)| write);
        match self.reload().await {
            Ok(()) => sure.extend(self.ask(unseen.collect(), |write| &write.id).await),
            Err(error) => sure.extend(unseen.map(|write| (write, Err(error.clone())))),
        }
        sure
    }

    /// Whether the gateway is known to have loaded its files: it was reloaded in this batch, or shows a document that stands.
    async fn has_loaded(&self, writes: &[Write]) -> bool {
        let unsure = |write: &Write| !write.known && !write.lacking;
        if self.loaded || self.mode() == Mode::Dashboard || !writes.iter().any(unsure) {
            return true;
        }
        let neighbour = {
            let book = self.shared.book();
            if book.shown.is_some_and(|at| at.elapsed() < self.settings.proof) {
                return true;
            }
            let written: BTreeSet<&str> = writes.iter().map(|write| &*write.id).collect();
            book.neighbour(|id| written.contains(id))
        };
        let Some(neighbour) = neighbour else {
            return false;
        };
        let answers = self.ask(vec![neighbour], |id| id).await;
        answers.iter().any(|(_, answer)| matches!(answer, Ok(Some(_))))
    }

    /// A gateway that is starting answers before it has loaded its files: what it does not show need not be gone before it was
    /// reloaded.
    async fn ask_again(
        &mut self,
        answers: Vec<(Removal, Result<Option<Value>, TykError>)>,
    ) -> Vec<(Removal, Result<Option<Value>, TykError>)> {
        if self.loaded || self.mode() == Mode::Dashboard {
            return answers;
        }
        let (unseen, mut sure): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|(removal, answer)| matches!(answer, Ok(None)) && !removal.unloadable);
        if unseen.is_empty() {
            return sure;
        }
        let unseen = unseen.into_iter().map(|(removal, _)| removal);
        match self.reload().await {
            Ok(()) => sure.extend(self.ask(unseen.collect(), |removal| &removal.id).await),
            Err(error) => sure.extend(unseen.map(|removal| (removal, Err(error.clone())))),
        }
        sure
    }

    fn found(&self, job: usize, answer: Result<Option<Value>, TykError>) -> Result<Found, TykError> {
        Ok(match (answer?, self.owner(job)) {
            (Some(document), Some(owner)) if marks::owned(&document, owner) => Found::Own(Box::new(document)),
            (Some(document), _) => Found::Foreign(marks::owner_text(&document)),
            (None, _) => Found::Nothing,
        })
    }

    /// An own document that was there before this process knew it: nothing to write when it is the same.
    fn compare(&mut self, mut write: Write, document: &Value) -> Option<Write> {
        write.exists = true;
        let nonce = marks::nonce(document);
        let here = self.shared.book().here.clone();
        let job = self.jobs.get(write.job)?;
        if nonce != write.wanted.nonce
            && let Some(api) = job.apis.iter().find(|api| *api.id == *write.id)
        {
            write.wanted = marks::Wanted::of(api, &job.owner, &here, nonce);
        }
        if marks::mark(document) != Some(write.wanted.hash) {
            return Some(write);
        }
        if self.mode() == Mode::OpenSource && marks::path(document) != Some(&write.wanted.path) {
            // Renamed once: the path comes back with a changed document only.
            let api = job.apis.iter().find(|api| *api.id == *write.id)?;
            write.wanted = marks::Wanted::of(api, &job.owner, &here, nonce.wrapping_add(1));
            return Some(write);
        }
        let same = match write.stood {
            // Found edited since it was written: it is written again, unless it is what it was before.
            Some(stood) => marks::loaded(document) == stood,
            // An edit in Tyk leaves the mark as it is.
            None => shown::holds(document, &self.sent(&write)?),
        };
        if !same {
            write.lost = true;
            return Some(write);
        }
        self.stands(&write, document);
        None
    }

    fn stands(&mut self, write: &Write, document: &Value) {
        let next = next_look(self.settings);
        self.shared.book().stands(write, marks::loaded(document), next);
    }

    /// Deletes; which ids are on their way out.
    async fn delete(&mut self, removals: &mut Vec<(Removal, bool)>) -> BTreeSet<Arc<str>> {
        let mut going = BTreeSet::new();
        let asked = std::mem::take(removals);
        let answers: Vec<_> = stream::iter(asked)
            .map(|(removal, _)| async {
                let (id, line) = (&*removal.id, &*self.line);
                let answer = match self.placeholder(&removal) {
                    // Accepted once and never loaded: Tyk deletes only what is loaded.
                    Some(placeholder) => {
                        let placeholder = &placeholder;
                        let put = line.call(|api| async move { api.put(id, placeholder, true).await });
                        put.await.map(|()| false)
                    }
                    None => line.call(|api| async move { api.delete(id).await }).await,
                };
                (removal, answer)
            })
            .buffer_unordered(self.settings.parallel)
            .collect()
            .await;
        for (mut removal, answer) in answers {
            match answer {
                Ok(sure) => {
                    self.count += 1;
                    self.wrote |= !sure;
                    if self.mode() == Mode::OpenSource {
                        self.shared.book().dirty = true;
                    }
                    if removal.unloadable {
                        removal.unloadable = false;
                    } else {
                        going.insert(Arc::clone(&removal.id));
                    }
                    removals.push((removal, sure));
                }
                Err(error) => {
                    self.ambiguous(&error);
                    self.failed_removal(&removal, error);
                }
            }
        }
        going
    }

    /// A failed write may have been one.
    fn ambiguous(&mut self, error: &TykError) {
        if self.mode() == Mode::OpenSource && error.passes() {
            self.shared.book().dirty = true;
        }
    }

    /// A document that loads, serves nobody and can be deleted.
    fn placeholder(&self, removal: &Removal) -> Option<Value> {
        if !removal.unloadable || self.mode() == Mode::Dashboard {
            return None;
        }
        let id = &*removal.id;
        let job = self.jobs.get(removal.job)?;
        let document = serde_json::json!({
            "openapi": "3.0.3", "info": {"title": id, "version": "1"}, "paths": {},
            EXTENSION: {
                "info": {"id": id, "orgId": self.line.connection.org, "name": id,
                    "state": {"active": false, "internal": true}},
                "server": {"listenPath": {"value": format!("/{id}-removed/"), "strip": true}},
                "upstream": {"url": "http://removed.invalid"}}});
        let api = crate::tyk::translate::TykApi {
            id: id.to_owned(),
            document,
        };
        Some(crate::tyk::translate::stamp(api, &job.owner).document)
    }

    /// Writes; what is to be verified.
    async fn write(&mut self, writes: Vec<Write>, going: &BTreeSet<Arc<str>>) -> Vec<Write> {
        let mut free = Vec::new();
        for write in writes {
            let (id, slot) = (&*write.id, write.wanted.place.slot);
            let route = self.owner(write.job).map(|owner| owner.route.clone());
            let held = self
                .shared
                .book()
                .holder(id, &write.wanted.place, &|other| going.contains(other));
            let Some((holder, theirs)) = held else {
                free.push(write);
                continue;
            };
            if let Some(route) = &route {
                self.shared.book().block(slot, route);
            }
            let message = format!(
                "host and path still belong to {holder} of HTTPRoute {theirs}, which has to go first; tried again then"
            );
            self.trouble(
                &write,
                Trouble::Failed(TykError::new(TykErrorClass::Failing, message)),
            );
        }
        let answers: Vec<_> = stream::iter(free)
            .map(|write| async {
                let (id, exists) = (&*write.id, write.exists);
                // Made here and dropped here: what waits for the reload should not hold it.
                let answer = match self.sent(&write) {
                    Some(document) => {
                        let document = &document;
                        let put = self
                            .line
                            .call(|api| async move { api.put(id, document, exists).await });
                        put.await
                    }
                    // A write is of a document of its job.
                    None => Err(TykError::new(TykErrorClass::Failing, "an internal error")),
                };
                (write, answer)
            })
            .buffer_unordered(self.settings.parallel)
            .collect()
            .await;
        let mut written = Vec::new();
        for (write, answer) in answers {
            match answer {
                Ok(()) => {
                    self.count += 1;
                    self.wrote = true;
                    if self.mode() == Mode::OpenSource {
                        self.shared.book().dirty = true;
                    }
                    let change = if write.exists { "updated" } else { "created" };
                    self.change(change, write.job, &write.id);
                    written.push(write);
                }
                Err(error) => {
                    self.ambiguous(&error);
                    self.failed_write(&write, error);
                }
            }
        }
        written
    }

    /// Which deletions are not known to have taken.
    async fn confirm(&mut self, removals: Vec<(Removal, bool)>) -> Vec<(Removal, bool)> {
        let (sure, unsure): (Vec<_>, Vec<_>) = removals.into_iter().partition(|(_, sure)| *sure);
        let mut left = Vec::new();
        let asked = unsure.into_iter().map(|(removal, _)| removal).collect();
        let mut gone: Vec<Removal> = sure.into_iter().map(|(removal, _)| removal).collect();
        for (removal, answer) in self.ask(asked, |removal| &removal.id).await {
            match self.found(removal.job, answer) {
                Ok(Found::Nothing) => gone.push(removal),
                Ok(Found::Own(_)) => left.push((removal, false)),
                Ok(Found::Foreign(owner)) => self.remains(&removal, Trouble::Foreign { owner }),
                Err(error) => self.failed_removal(&removal, error),
            }
        }
        for removal in gone {
            self.change("removed", removal.job, &removal.id);
            if let Some(owner) = self.owner(removal.job) {
                self.shared.book().gone(&removal.id, owner);
            }
        }
        left
    }

    /// Looks at what was written: is it served, and under its path?
    async fn verify(&mut self, writes: Vec<Write>) {
        let mut left = writes;
        // Another node of several may answer, which reloads within its own tick.
        let waits = self.settings.settle.iter().copied().map(Some).chain([None]);
        for wait in waits.collect::<Vec<_>>() {
            let answers = self.ask(left, |write| &write.id).await;
            left = Vec::new();
            for (write, answer) in answers {
                left.extend(self.verified(write, answer, wait.is_none()));
            }
            match wait {
                Some(wait) if !left.is_empty() => tokio::time::sleep(wait).await,
                _ => return,
            }
        }
    }

    /// One answer; the write is given back when it is worth asking again.
    fn verified(
        &mut self,
        write: Write,
        answer: Result<Option<Value>, TykError>,
        last: bool,
    ) -> Option<Write> {
        match self.found(write.job, answer) {
            Err(error) => self.failed_write(&write, error),
            Ok(Found::Foreign(owner)) => self.trouble(&write, Trouble::Foreign { owner }),
            Ok(Found::Nothing) if !last => return Some(write),
            Ok(Found::Nothing) => {
                self.trouble(&write, Trouble::NotLoaded);
                self.shared.book().put(&write.id, State::NotLoaded);
            }
            Ok(Found::Own(document)) if marks::mark(&document) != Some(write.wanted.hash) => {
                if !last {
                    return Some(write);
                }
                let message = format!(
                    "{}: Tyk shows another version than was written a moment ago",
                    write.id
                );
                let error = TykError::new(TykErrorClass::Failing, message);
                self.trouble(&write, Trouble::Failed(error));
            }
            Ok(Found::Own(document)) => {
                let path = marks::path(&document).unwrap_or_default();
                if self.mode() == Mode::Dashboard || path == write.wanted.path {
                    // It was lost or edited, and was written again.
                    if write.lost
                        && let Some(done) = self.done.get_mut(write.job)
                    {
                        done.mended.insert(write.id.to_string());
                    }
                    self.stands(&write, &document);
                } else {
                    let path = path.to_owned();
                    self.renamed(&write, path);
                }
            }
        }
        None
    }

    fn renamed(&mut self, write: &Write, path: String) {
        self.settings.meter.drifted(self.mode(), "renamed");
        self.trouble(write, Trouble::Renamed { path: path.clone() });
        let wait = reconcile_kit::runtime::jitter::doubled(AGAIN.0, AGAIN.1, write.attempts);
        let mut book = self.shared.book();
        if let Some(entry) = book.entries.get_mut(&write.id) {
            (entry.hash, entry.nonce) = (write.wanted.hash, write.wanted.nonce);
        }
        let state = State::Renamed {
            path,
            attempts: write.attempts + 1,
            again: Instant::now() + wait,
        };
        book.put(&write.id, state);
    }
}

/// The answers of jobs of which nothing could be done.
pub(super) fn refused(shared: &Shared, org: &str, jobs: &[Job], error: &TykError) -> Vec<Done> {
    let now = Instant::now();
    let mut book = shared.book();
    jobs.iter()
        .map(|job| {
            let due = book.due(job, org, 0, now, false);
            if !due.is_empty() {
                book.fail(&job.owner.route);
            }
            all_failed(due, error)
        })
        .collect()
}
