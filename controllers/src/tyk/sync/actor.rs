//! The actor of one connection: takes jobs, gathers them, runs one batch at a time, looks at what stands at a bounded
//! rate, and finds out when Tyk is back. One task and one timer, however many routes there are.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use super::{
    Connector, Done, Drifted, Job, Routes, Settings, Trouble,
    batch::{Batch, refused},
    book::{Book, Check, State, breaks, next_look},
    line::{Line, PROBE, blame},
    marks,
    orphans::{Found, Sweep},
    shown,
    sweep::sweep,
};
use crate::tyk::{
    client::{Listed, TykApi, TykError, TykErrorClass, http::MayWrite},
    objects::{Fingerprint, Key},
    translate::Owner,
    verdict::{Connection, Mode},
};

/// A job and who waits for it.
pub(super) struct Queued {
    pub(super) connection: Arc<Connection>,
    pub(super) job: Job,
    pub(super) reply: oneshot::Sender<Done>,
    pub(super) since: Instant,
}

/// What the actor shares with those who hand in jobs.
pub(super) struct Shared {
    book: Mutex<Book>,
    reload: Mutex<Duration>,
    news: Notify,
    latest: Mutex<Arc<Connection>>,
    /// What the contexts that lead there say today, as far as they were heard of.
    today: Mutex<BTreeMap<Key, Fingerprint>>,
    /// One at a time finds out whether a link works.
    pub(super) reaching: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self {
            book: Mutex::new(Book::new(connection.mode, &connection.digest())),
            reload: Mutex::new(Duration::ZERO),
            news: Notify::new(),
            latest: Mutex::new(Arc::clone(connection)),
            today: Mutex::default(),
            reaching: tokio::sync::Mutex::default(),
        }
    }

    /// There is something to look at that came without a job for the actor.
    pub(super) fn wake(&self) {
        self.news.notify_one();
    }

    /// This is the newest way there.
    pub(super) fn lead_by(&self, connection: &Arc<Connection>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(connection);
        let mut today = self.today.lock().unwrap_or_else(PoisonError::into_inner);
        today.insert(connection.context.clone(), connection.fingerprint.clone());
    }

    /// Whether its context has no other credential by now.
    fn is_of_today(&self, connection: &Connection) -> bool {
        let today = self.today.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = today.get(&connection.context);
        fingerprint.is_none_or(|fingerprint| *fingerprint == connection.fingerprint)
    }

    pub(super) fn latest(&self) -> Arc<Connection> {
        Arc::clone(&self.latest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link does not work.
    pub(super) fn broke(&self, connection: &Arc<Connection>, error: &TykError, settings: &Settings) {
        let tyk = &connection.url;
        let news = self.book().broke(connection, error, Instant::now(), settings);
        if news {
            warn!(%tyk, context = %connection.context, %error, "Tyk does not answer as it should; it is asked again until it does");
        }
        let left = self.book().no_way(&connection.fingerprint, error);
        if left > 0 {
            warn!(%tyk, left, "nothing leads to this Tyk any more: APIs of HTTPRoutes that are gone are left there");
        }
    }

    /// A link works.
    pub(super) fn works(&self, connection: &Arc<Connection>) {
        if self.book().works(connection) {
            info!(tyk = %connection.url, context = %connection.context, "Tyk answers again");
        }
    }

    /// A reload took so long.
    pub(super) fn reloaded(&self, took: Duration) {
        *self.reload.lock().unwrap_or_else(PoisonError::into_inner) = took;
    }

    /// How long to gather: a reload costs with every API that is loaded, so that many APIs make longer windows. The tick
    /// of a second that a gateway waits anyway does not count.
    fn window(&self, settings: &Settings) -> Duration {
        let took = *self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let load = took.saturating_sub(Duration::from_secs(1));
        settings.gather + load.min(settings.gather_most)
    }
}

/// What an actor is made of.
pub(super) struct Seams {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) drifted: Drifted,
    pub(super) may_write: MayWrite,
    pub(super) settings: Settings,
    pub(super) routes: OnceLock<Arc<dyn Routes>>,
}

type Client = (Arc<Connection>, Arc<dyn TykApi>);
type Looked = (
    Check,
    u64,
    Fingerprint,
    Result<Result<Look, TykError>, Box<dyn std::any::Any + Send>>,
);
/// What a batch leaves: whether the link worked, what broke it, the client it ended with.
struct Ran {
    line: Arc<Line>,
    replies: Vec<oneshot::Sender<Done>>,
    /// `None`: it broke off.
    done: Option<Vec<Done>>,
    jobs: Vec<Job>,
    /// The last so many of `jobs` nobody waits for.
    orphans: usize,
}

enum Look {
    Document(Option<Box<serde_json::Value>>),
    /// The gateway is starting: it says nothing about documents.
    Starting,
    Certificate(bool),
    /// A client that is answered.
    Client(Arc<dyn TykApi>),
    /// Documents of this installation that nobody has spoken of, and the client that was asked.
    Swept(Vec<(String, Owner)>, Arc<dyn TykApi>),
}

pub(super) struct Actor {
    seams: Arc<Seams>,
    shared: Arc<Shared>,
    url: String,
    jobs: mpsc::UnboundedReceiver<Queued>,
    queue: VecDeque<Queued>,
    clients: HashMap<Fingerprint, Client>,
    batch: Option<BoxFuture<'static, Ran>>,
    rested: Instant,
    looks: FuturesUnordered<BoxFuture<'static, Looked>>,
    next_look: Instant,
    next_telling: Instant,
    last_look: Instant,
    led: bool,
}

/// Clients that are kept: contexts with another credential for the same Tyk.
const CLIENTS: usize = 8;
/// Looks at once.
const LOOKS: usize = 4;

impl Actor {
    pub(super) fn new(
        seams: Arc<Seams>,
        shared: Arc<Shared>,
        url: &str,
        jobs: mpsc::UnboundedReceiver<Queued>,
    ) -> Self {
        let now = Instant::now();
        Self {
            seams,
            shared,
            url: url.to_owned(),
            jobs,
            queue: VecDeque::new(),
            clients: HashMap::new(),
            batch: None,
            rested: now,
            looks: FuturesUnordered::new(),
            next_look: now,
            next_telling: now,
            last_look: now,
            led: true,
        }
    }

    /// Runs until there is nothing to do for a while; `end` says whether it may end then.
    pub(super) async fn run(mut self, end: impl Fn(&mpsc::UnboundedReceiver<Queued>) -> bool) {
        let mode = self.shared.book().mode;
        let mut share = self.seams.settings.meter.share(mode);
        let mut idle = Instant::now();
        let shared = Arc::clone(&self.shared);
        self.sweep_again();
        loop {
            self.fence();
            self.retire();
            self.start();
            self.look();
            self.tell();
            share.set(self.shared.book().standing());
            let busy = self.batch.is_some() || !self.queue.is_empty() || !self.looks.is_empty();
            if busy || !self.shared.book().is_empty() {
                idle = Instant::now();
            } else if idle.elapsed() >= self.seams.settings.idle && end(&self.jobs) {
                return;
            }
            let wake = self.wake(idle);
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        self.take(job);
                        while let Ok(more) = self.jobs.try_recv() {
                            self.take(more);
                        }
                    }
                    None => return,
                },
                ran = async {
                    match self.batch.as_mut() {
                        Some(batch) => batch.await,
                        None => std::future::pending().await,
                    }
                } => {
                    self.batch = None;
                    self.ran(ran);
                }
                Some(looked) = self.looks.next(), if !self.looks.is_empty() => self.looked(looked),
                () = shared.news.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Two jobs of one route that wait become one: the later.
    fn take(&mut self, job: Queued) {
        let route = &job.job.owner.route;
        // Whoever waited for the earlier one has gone away: a route has one reconcile at a time.
        self.queue
            .retain(|other| other.job.owner.route != *route || !other.reply.is_closed());
        self.queue.push_back(job);
    }

    /// While this process may not write, others may: nothing is known then, and nothing is asked.
    fn fence(&mut self) {
        let leads = (self.seams.may_write)();
        if !leads && self.led && self.batch.is_none() {
            self.shared.book().clear();
        }
        let begins = leads && !self.led;
        if leads || self.batch.is_none() {
            self.led = leads;
        }
        if begins {
            self.sweep_again();
        }
    }

    /// The same context with another credential: the earlier one is of no use any more, and is neither used nor asked whether
    /// it works again.
    fn retire(&mut self) {
        let shared = &self.shared;
        self.clients
            .retain(|_, (connection, _)| shared.is_of_today(connection));
        shared.book().links.retain(|_, health| {
            let connection = health.connection.as_ref();
            connection.is_none_or(|connection| shared.is_of_today(connection))
        });
    }

    /// What others left behind is looked for some time after this process began to lead.
    fn sweep_again(&self) {
        if self.seams.routes.get().is_some() {
            let settings = &self.seams.settings;
            let at = Instant::now() + settings.jitter.around(settings.sweep_after, 0.2);
            self.shared.book().sweep = Sweep::Due(at, 0);
        }
    }

    /// A way to Tyk that is not known to be closed.
    fn way(&self) -> Option<Arc<Connection>> {
        let latest = self.shared.latest();
        let closed = self
            .shared
            .book()
            .links
            .get(&latest.fingerprint)
            .is_some_and(|health| health.down.is_some());
        if closed {
            return self.working().map(|(connection, _)| connection);
        }
        Some(latest)
    }

    /// When a batch without jobs begins.
    fn orphans_at(&self) -> Option<Instant> {
        let at = self.shared.book().orphans_at()?;
        self.way()?;
        Some(at.max(self.rested + self.shared.window(&self.seams.settings)))
    }

    /// When a sweep begins.
    fn sweep_at(&self) -> Option<Instant> {
        let Sweep::Due(at, _) = self.shared.book().sweep else {
            return None;
        };
        (self.looks.len() < LOOKS && self.way().is_some()).then_some(at)
    }

    /// When there is something to do without being asked.
    fn wake(&self, idle: Instant) -> Instant {
        let now = Instant::now();
        let mut wake = now + Duration::from_secs(3600);
        let settings = &self.seams.settings;
        if self.batch.is_none() && !self.queue.is_empty() {
            wake = wake.min(self.ready_at(now));
        }
        if self.led {
            let orphans = self.batch.is_none().then(|| self.orphans_at()).flatten();
            for at in [orphans, self.sweep_at()].into_iter().flatten() {
                wake = wake.min(at);
            }
        }
        // While every way is down, a probe comes first: looks that are due then wait for it.
        let latest = self.shared.latest();
        let works = self.working().is_some();
        let book = self.shared.book();
        let asks = self.looks.is_empty() && !book.links.contains_key(&latest.fingerprint);
        if !self.led {
            wake = wake.min(now + Duration::from_secs(1));
        } else if self.looks.len() < LOOKS
            && (works || asks)
            && let Some(due) = book.check_at(now)
        {
            wake = wake.min(due.min(self.last_look + settings.canary).max(self.next_look));
        }
        for health in book.links.values() {
            if let Some(probe) = health.probe {
                wake = wake.min(probe);
            }
        }
        if book.tells() {
            wake = wake.min(self.next_telling);
        }
        if book.is_empty() {
            wake = wake.min(idle + settings.idle);
        }
        // A loop that finds nothing to do must not spin.
        wake.max(now + Duration::from_millis(1))
    }

    /// When the batch may begin.
    fn ready_at(&self, now: Instant) -> Instant {
        let since = self.queue.iter().map(|queued| queued.since).min().unwrap_or(now);
        let settings = &self.seams.settings;
        let latest = self.queue.iter().map(|queued| queued.since).max();
        let gathered =
            (latest.unwrap_or(now) + settings.gather).min(since + settings.crowd.max(settings.gather));
        let rested = self.rested + self.shared.window(settings);
        let mut ready = gathered.max(rested);
        if self.queue.iter().all(|queued| self.held(queued)) {
            ready = ready
                .max(now + settings.gather)
                .min((since + settings.hold).max(gathered));
        }
        ready
    }

    /// Whether a job writes to a place that another API holds, whose removal nobody has handed in yet.
    fn held(&self, queued: &Queued) -> bool {
        if queued.since.elapsed() >= self.seams.settings.hold {
            return false;
        }
        let book = self.shared.book();
        let now = Instant::now();
        queued.job.apis.iter().any(|api| {
            let place = marks::Place::of(&api.document);
            let going = |other: &str| {
                let mut removals = self.queue.iter().flat_map(|queued| &queued.job.remove);
                removals.any(|id| id == other) || book.leaves(other, now)
            };
            book.holder(&api.id, &place, &going).is_some()
        })
    }

    /// A job with a document about which calls fail has batches of its own: such a call may take as long as an operation may.
    /// Such a job waits for the others, up to the time that a write waits for its place.
    fn set_apart(&self, held: &mut [bool]) {
        let book = self.shared.book();
        let ailing: Vec<bool> = self
            .queue
            .iter()
            .map(|queued| book.is_ailing(&queued.job))
            .collect();
        let free = |ailing: &bool, held: &bool| !*ailing && !*held;
        let others = ailing.iter().zip(&*held).any(|(ailing, held)| free(ailing, held));
        let hold = self.seams.settings.hold;
        let mut waiting = self.queue.iter().zip(&ailing);
        let turn = !others || waiting.any(|(queued, ailing)| *ailing && queued.since.elapsed() >= hold);
        for (held, ailing) in held.iter_mut().zip(ailing) {
            *held |= ailing != turn;
        }
    }

    /// Begins a batch if one is due.
    fn start(&mut self) {
        let now = Instant::now();
        // Whoever does not wait any more has nothing sent.
        self.queue.retain(|queued| !queued.reply.is_closed());
        if self.batch.is_some() {
            return;
        }
        // Orphans go with any batch, and make one if there is none.
        let alone = self.queue.is_empty();
        if alone && !(self.led && self.orphans_at().is_some_and(|at| at <= now)) {
            return;
        }
        if !alone && self.ready_at(now) > now {
            return;
        }
        let mut held: Vec<bool> = self.queue.iter().map(|queued| self.held(queued)).collect();
        self.set_apart(&mut held);
        let free = self.queue.iter().zip(&held).find(|(_, held)| !**held);
        let connection = match free {
            Some((queued, _)) => Some(Arc::clone(&queued.connection)),
            None if alone => self.way(),
            None => None,
        };
        let Some(connection) = connection else {
            return;
        };
        let (mut jobs, mut replies, mut rest) = (Vec::new(), Vec::new(), VecDeque::new());
        for (queued, held) in std::mem::take(&mut self.queue).into_iter().zip(held) {
            if !held && queued.connection.fingerprint == connection.fingerprint {
                jobs.push(queued.job);
                replies.push(queued.reply);
            } else {
                rest.push_back(queued);
            }
        }
        self.queue = rest;
        let mut orphans = Vec::new();
        let (routes, settings) = (self.seams.routes.get(), &self.seams.settings);
        let gone = self.shared.book().orphan_jobs(routes, settings, now);
        for (job, found) in gone {
            jobs.push(job);
            orphans.push(found);
        }
        if jobs.is_empty() {
            return;
        }
        let client = self
            .clients
            .get(&connection.fingerprint)
            .map(|(_, api)| Arc::clone(api));
        let (seams, shared) = (Arc::clone(&self.seams), Arc::clone(&self.shared));
        self.batch = Some(
            async move {
                let api = match client {
                    Some(api) => Ok(api),
                    None => connect(&seams, &connection).await,
                };
                let api = match api {
                    Ok(api) => api,
                    Err(error) => {
                        let done = vain(&shared, &connection.org, &jobs, &orphans, &error);
                        let nobody: Arc<dyn TykApi> = Arc::new(Nobody(connection.mode, error.clone()));
                        let line = line(&seams, &connection, nobody);
                        let _ = line
                            .call(|_| std::future::ready(Err::<(), _>(error.clone())))
                            .await;
                        return Ran {
                            line,
                            replies,
                            done: Some(done),
                            jobs,
                            orphans: orphans.len(),
                        };
                    }
                };
                let line = line(&seams, &connection, api);
                let count = orphans.len();
                let (connector, settings) = (&seams.connector, &seams.settings);
                let batch = Batch::new(&shared, &line, connector, settings, jobs.clone(), orphans);
                let done = AssertUnwindSafe(batch.run()).catch_unwind().await.ok();
                Ran {
                    line,
                    replies,
                    done,
                    jobs,
                    orphans: count,
                }
            }
            .boxed(),
        );
    }

    /// A batch is over.
    fn ran(&mut self, ran: Ran) {
        let Ran {
            line,
            replies,
            done,
            mut jobs,
            orphans,
        } = ran;
        let orphans = jobs.split_off(jobs.len().saturating_sub(orphans));
        self.rested = Instant::now();
        let link = line.connection.fingerprint.clone();
        self.shared.book().unsettle();
        self.orphans_ran(&orphans, jobs.len(), done.as_deref());
        match line.broken() {
            Some(error) if error.class == TykErrorClass::Fenced => {}
            Some(error) => {
                self.broke(&line.connection, &error);
                let mut book = self.shared.book();
                for (job, done) in jobs.iter().zip(done.iter().flatten()) {
                    if !done.is_clean() {
                        book.fail(&job.owner.route);
                    }
                }
            }
            None if line.worked() => self.works(&line.connection),
            None => {}
        }
        if line
            .broken()
            .is_some_and(|error| error.class != TykErrorClass::Unreachable)
        {
            // The next one reads the credential again.
            self.clients.remove(&link);
        } else {
            if self.clients.len() >= CLIENTS && !self.clients.contains_key(&link) {
                self.clients.clear();
            }
            self.clients
                .insert(link, (Arc::clone(&line.connection), line.api()));
        }
        match done {
            Some(done) => {
                for (reply, done) in replies.into_iter().zip(done) {
                    let _ = reply.send(done);
                }
            }
            None => {
                error!(tyk = %self.url, "a batch of Tyk documents broke off by a panic; its jobs are handed in again");
                let failed = TykError::new(
                    TykErrorClass::Failing,
                    "an internal error; see the log of the operator",
                );
                let answers = refused(&self.shared, &line.connection.org, &jobs, &failed);
                for (reply, done) in replies.into_iter().zip(answers) {
                    let _ = reply.send(done);
                }
            }
        }
    }

    /// What came of the jobs that nobody waits for; their answers stand behind the first `before`.
    fn orphans_ran(&self, jobs: &[Job], before: usize, done: Option<&[Done]>) {
        let (settings, now) = (&self.seams.settings, Instant::now());
        for (number, job) in jobs.iter().enumerate() {
            let done = done.and_then(|done| done.get(before + number));
            let given_up = self.shared.book().orphans_done(job, done, settings, now);
            for (id, why) in given_up {
                warn!(
                    api = &*id, route = %job.owner.route, tyk = %self.url,
                    "Tyk API of an HTTPRoute that is gone could not be removed and is left until the next start: {why}"
                );
            }
        }
    }

    fn broke(&self, connection: &Arc<Connection>, error: &TykError) {
        self.shared.broke(connection, error, &self.seams.settings);
    }

    fn works(&self, connection: &Arc<Connection>) {
        self.shared.works(connection);
    }

    /// Begins looks that are due: probes of links that are down, and what stands.
    fn look(&mut self) {
        if !self.led {
            return;
        }
        let now = Instant::now();
        let probes: Vec<Fingerprint> = {
            let mut book = self.shared.book();
            let due = book
                .links
                .iter_mut()
                .filter(|(_, health)| health.probe.is_some_and(|at| at <= now));
            due.map(|(link, health)| {
                health.probe = None;
                link.clone()
            })
            .collect()
        };
        for link in probes {
            self.probe(link);
        }
        self.sweep(now);
        let settings = self.seams.settings.clone();
        while self.looks.len() < LOOKS && now >= self.next_look {
            let Some((connection, api)) = self.working() else {
                let latest = self.shared.latest();
                let known = self.shared.book().links.contains_key(&latest.fingerprint);
                // A job that waits will find out by itself.
                let busy = self.batch.is_some() || !self.queue.is_empty() || !self.looks.is_empty();
                if !known && !busy && self.shared.book().check_at(now).is_some() {
                    // After a start nothing but trust may have been handed in, and after a change of credential nothing.
                    self.last_look = now;
                    self.ask(latest);
                }
                return;
            };
            let mut book = self.shared.book();
            if self.last_look + settings.canary <= now && book.hurry == 0 {
                book.hurry = 1;
            }
            let Some(check) = book.next_check(now) else {
                book.hurry = 0;
                drop(book);
                self.last_look = now;
                return;
            };
            let version = match &check {
                Check::Api(id) => book.entries.get(id).map_or(0, |entry| entry.version),
                Check::Certificate(_) | Check::Sweep => 0,
            };
            drop(book);
            self.last_look = now;
            self.next_look = now + Duration::from_secs(1) / settings.checks_per_second.max(1);
            let link = connection.fingerprint.clone();
            self.looks.push(
                async move {
                    let asked = async {
                        Ok(match &check {
                            Check::Api(id) => match api.get(id).await {
                                Ok(None) if !api.ready().await => Look::Starting,
                                Ok(document) => Look::Document(document.map(Box::new)),
                                Err(error) => return Err(blame(&api, error).await),
                            },
                            Check::Certificate(id) => match api.certificate(id).await {
                                Ok(found) => Look::Certificate(found.is_some_and(|found| found.has_private)),
                                Err(error) => return Err(blame(&api, error).await),
                            },
                            Check::Sweep => Look::Document(None),
                        })
                    };
                    let answer = AssertUnwindSafe(asked).catch_unwind().await;
                    (check, version, link, answer)
                }
                .boxed(),
            );
        }
    }

    /// Begins a sweep if one is due: the list, and what it leaves open.
    fn sweep(&mut self, now: Instant) {
        let routes = self.seams.routes.get();
        let (Some(routes), Some(connection)) = (routes, self.way()) else {
            return;
        };
        if self.sweep_at().is_none_or(|at| at > now) {
            return;
        }
        if !routes.leads_to(&connection) {
            self.shared.book().sweep = Sweep::Done;
            return;
        }
        // Any name does: it is about whether all of them are known.
        let whole = routes.exists(&Key::default()).is_some();
        let Some((cluster, controller)) = routes.installation().filter(|_| whole) else {
            self.shared.book().sweep_waits(now);
            return;
        };
        if !self.shared.book().sweep_begins() {
            return;
        }
        let link = connection.fingerprint.clone();
        let client = self.clients.get(&link).map(|(_, api)| Arc::clone(api));
        let (seams, shared) = (Arc::clone(&self.seams), Arc::clone(&self.shared));
        self.looks.push(
            async move {
                let asked = async {
                    let api = match client {
                        Some(api) => api,
                        None => connect(&seams, &connection).await?,
                    };
                    let unknown = |id: &str| !shared.book().entries.contains_key(id);
                    let found = sweep(
                        &api,
                        (&cluster, &controller),
                        unknown,
                        seams.settings.checks_per_second,
                    )
                    .await;
                    let found = match found {
                        Ok(found) => found,
                        Err(error) => return Err(blame(&api, error).await),
                    };
                    Ok(Look::Swept(found, api))
                };
                let answer = AssertUnwindSafe(asked).catch_unwind().await;
                (Check::Sweep, 0, link, answer)
            }
            .boxed(),
        );
    }

    /// What a sweep found. Only what is known for sure to have no route goes.
    fn swept(&self, found: Vec<(String, Owner)>) {
        let Some(routes) = self.seams.routes.get() else {
            return;
        };
        let now = Instant::now();
        let mut whole = true;
        for (id, owner) in found {
            match routes.exists(&owner.route) {
                Some(there) => self.shared.book().found(&id, owner, there, now),
                None => whole = false,
            }
        }
        self.shared.book().swept(whole, now);
    }

    fn working(&self) -> Option<Client> {
        let book = self.shared.book();
        let up = |link: &Fingerprint| book.links.get(link).is_none_or(|health| health.down.is_none());
        let mut clients = self.clients.iter();
        clients
            .find(|(link, _)| up(link))
            .map(|(_, client)| client.clone())
    }

    /// One question to a link that is down, with a credential that is read again.
    fn probe(&mut self, link: Fingerprint) {
        let Some(connection) = self.known(&link) else {
            self.shared.book().links.remove(&link);
            return;
        };
        self.ask(connection);
    }

    /// Makes a client and asks one question.
    fn ask(&mut self, connection: Arc<Connection>) {
        let link = connection.fingerprint.clone();
        let seams = Arc::clone(&self.seams);
        self.looks.push(
            async move {
                let asked = async { Ok(Look::Client(answered(&seams, &connection).await?)) };
                let answer = AssertUnwindSafe(asked).catch_unwind().await;
                (Check::Api(PROBE.into()), 0, link, answer)
            }
            .boxed(),
        );
    }

    fn known(&self, link: &Fingerprint) -> Option<Arc<Connection>> {
        let book = self.shared.book();
        book.links.get(link)?.connection.clone()
    }

    /// A look was answered.
    fn looked(&mut self, (check, version, link, answer): Looked) {
        let settings = &self.seams.settings;
        let Ok(answer) = answer else {
            error!(tyk = %self.url, "a look at Tyk broke off by a panic");
            // If it was the question whether Tyk is back, it is asked again.
            let health = self.shared.book().links.get(&link).cloned();
            if let Some((connection, down)) = health.and_then(|health| health.connection.zip(health.down)) {
                self.broke(&connection, &down);
            }
            let due = next_look(settings);
            self.later(check, due, false);
            return;
        };
        let connection = self.known(&link).or_else(|| {
            let client = self
                .clients
                .get(&link)
                .map(|(connection, _)| Arc::clone(connection));
            client.or_else(|| Some(self.shared.latest()).filter(|latest| latest.fingerprint == link))
        });
        match answer {
            Err(error) => {
                let due = next_look(settings);
                let lasts = !error.passes() && !breaks(&error) && error.class != TykErrorClass::Fenced;
                if lasts && check == Check::Sweep {
                    warn!(tyk = %self.url, %error, "APIs of HTTPRoutes that are gone could not be looked for; not again before the next start");
                }
                // A question about nothing in particular: whatever kept it from being answered keeps everything.
                let of_all = matches!(&check, Check::Api(id) if &**id == PROBE);
                self.later(check, due, lasts);
                let down = self
                    .shared
                    .book()
                    .links
                    .get(&link)
                    .is_some_and(|health| health.down.is_some());
                if (down || breaks(&error) || (of_all && error.class != TykErrorClass::Fenced))
                    && let Some(connection) = connection
                {
                    self.broke(&connection, &error);
                }
            }
            Ok(look) => {
                if let Some(connection) = connection {
                    self.works(&connection);
                    if let Look::Client(api) | Look::Swept(_, api) = &look {
                        self.clients.insert(link, (connection, Arc::clone(api)));
                    }
                }
                match (look, &check) {
                    (Look::Document(document), Check::Api(id)) => {
                        self.judge(id, version, document.as_deref())
                    }
                    (Look::Certificate(there), Check::Certificate(id)) => {
                        let mut book = self.shared.book();
                        if there {
                            book.certified(id, next_look(settings));
                        } else {
                            settings.meter.drifted(book.mode, "lost");
                            book.certificate_lost(id);
                        }
                    }
                    (Look::Swept(found, _), _) => self.swept(found),
                    (Look::Starting, Check::Api(id)) => {
                        let mut book = self.shared.book();
                        book.recheck(id, Instant::now(), settings);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Puts a look back that came to nothing.
    fn later(&self, check: Check, due: Instant, lasts: bool) {
        let mut book = self.shared.book();
        match check {
            Check::Sweep => book.sweep_failed(lasts, &self.seams.settings, Instant::now()),
            check => book.later(check, due),
        }
    }

    /// What a look at a document says.
    fn judge(&self, id: &Arc<str>, version: u64, document: Option<&serde_json::Value>) {
        let settings = &self.seams.settings;
        let mut book = self.shared.book();
        let current = |entry: &&super::book::Entry| entry.version == version;
        if document.is_none()
            && book.mode == Mode::OpenSource
            && book.entries.get(id).filter(current).is_some()
            && !book.is_missed(id, Instant::now(), settings)
        {
            return;
        }
        let Some(entry) = book.entries.get(id).filter(current) else {
            return;
        };
        let route = entry.owner.route.clone();
        let (mode, trusted) = (book.mode, entry.state == State::Trusted);
        let what = match document {
            None => Some("lost"),
            Some(document) if !marks::owned(document, &entry.owner) => Some("foreign"),
            Some(document) if marks::nonce(document) != entry.nonce && trusted => {
                // An earlier process changed it for a path that Tyk had renamed, and the mark tells of both: whether it is
                // what is wanted is known to whoever hands in the document.
                book.hit();
                book.doubted(id);
                return;
            }
            Some(document) if marks::mark(document) != Some(entry.hash) => Some("changed"),
            Some(document) if trusted && shown::normal(document) != entry.normal => {
                // Edited while no process looked, or changed by Tyk in a way that is not known here.
                book.hit();
                book.doubted(id);
                return;
            }
            Some(document) => {
                let digest = marks::loaded(document);
                match entry.state {
                    State::Stands(old) if old != digest && book.fights(id) => Some("changed"),
                    _ => None,
                }
            }
        };
        let Some(what) = what else {
            let digest = document.map(marks::loaded).unwrap_or_default();
            book.hit();
            book.looked(id, digest, next_look(settings));
            return;
        };
        settings.meter.drifted(mode, what);
        warn!(api = &**id, %route, tyk = %self.url, "Tyk API {what}: its route is looked at again");
        book.drifted(id);
        if what == "lost" {
            if book.missed() {
                warn!(tyk = %self.url, "Tyk has lost its APIs; all of them are written again");
            }
        } else {
            book.hit();
        }
    }

    /// Tells routes, a few at a time.
    fn tell(&mut self) {
        let now = Instant::now();
        if !self.led || now < self.next_telling || !self.shared.book().tells() {
            return;
        }
        let (most, pause) = self.seams.settings.burst;
        let routes = self.shared.book().tellings(most);
        self.next_telling = now + pause;
        for route in routes {
            (self.seams.drifted)(&route);
        }
    }
}

fn line(seams: &Seams, connection: &Arc<Connection>, api: Arc<dyn TykApi>) -> Arc<Line> {
    Arc::new(Line::new(
        Arc::clone(&seams.connector),
        Arc::clone(&seams.may_write),
        Arc::clone(connection),
        api,
    ))
}

/// A client that is answered.
pub(super) async fn answered(seams: &Seams, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
    let api = connect(seams, connection).await?;
    api.get(PROBE).await?;
    Ok(api)
}

async fn connect(seams: &Seams, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
    let connecting = AssertUnwindSafe(seams.connector.connect(connection)).catch_unwind();
    match tokio::time::timeout(Duration::from_secs(30), connecting).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(TykError::new(
            TykErrorClass::NoConnection,
            "an internal error while connecting",
        )),
        Err(_) => Err(TykError::new(
            TykErrorClass::NoConnection,
            format!("OperatorContext {} could not be read in time", connection.context),
        )),
    }
}

/// The answers of jobs, and behind them of those that nobody waits for, when there is no client.
fn vain(shared: &Shared, org: &str, jobs: &[Job], orphans: &[Found], error: &TykError) -> Vec<Done> {
    let (waited, unwaited) = jobs.split_at(jobs.len().saturating_sub(orphans.len()));
    let mut done = refused(shared, org, waited, error);
    done.extend(unwaited.iter().map(|job| {
        let failed = |id: &String| (id.clone(), Trouble::Failed(error.clone()));
        Done {
            remaining: job.remove.iter().map(failed).collect(),
            ..Done::default()
        }
    }));
    done
}

/// Stands for a client that could not be made.
struct Nobody(Mode, TykError);

#[async_trait::async_trait]
impl TykApi for Nobody {
    fn mode(&self) -> Mode {
        self.0
    }
    async fn get(&self, _: &str) -> Result<Option<serde_json::Value>, TykError> {
        Err(self.1.clone())
    }
    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        Err(self.1.clone())
    }
    async fn put(&self, _: &str, _: &serde_json::Value, _: bool) -> Result<(), TykError> {
        Err(self.1.clone())
    }
    async fn delete(&self, _: &str) -> Result<bool, TykError> {
        Err(self.1.clone())
    }
    async fn reload(&self) -> Result<(), TykError> {
        Err(self.1.clone())
    }
    async fn certificate(&self, _: &str) -> Result<Option<crate::tyk::client::StoredCertificate>, TykError> {
        Err(self.1.clone())
    }
    async fn upload(&self, _: &str, _: &crate::tyk::client::Bundle) -> Result<String, TykError> {
        Err(self.1.clone())
    }
    async fn replace(&self, _: &str, _: &crate::tyk::client::Bundle) -> Result<String, TykError> {
        Err(self.1.clone())
    }
}
