//! All actors of a process: started when a job comes, found by connection, and asked without them what is known already.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use reconcile_kit::runtime::jitter::Jitter;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Connector, Done, Drifted, Job, Routes, Syncing, Trouble,
    actor::{Actor, Queued, Seams, Shared, answered},
    book::{self, breaks},
};
use crate::{
    telemetry::tyk::TykMeter,
    tyk::{
        client::{TykError, TykErrorClass, http::MayWrite},
        objects::Key,
        verdict::{Connection, Mode},
    },
};

/// What actors may do, and how fast.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A batch begins when no further job has come for so long.
    pub gather: Duration,
    /// But the first of its jobs waits no longer than this. A gateway reloads at a tick of a second: who is left behind by
    /// a crowd of routes waits for the next.
    pub crowd: Duration,
    /// The most that the window grows by what a reload costs.
    pub gather_most: Duration,
    /// A write to the host and path of another own API waits so long for that one's removal to be handed in.
    pub hold: Duration,
    /// Documents and certificates that are looked at per second, at most.
    pub checks_per_second: u32,
    /// What stands is looked at again after so long, give or take a fifth.
    pub check_every: Duration,
    /// One of what stands is looked at no later than this after the last look, so that a gateway which lost everything is
    /// noticed.
    pub canary: Duration,
    /// Requests at once, per connection.
    pub parallel: usize,
    /// First and longest wait between two questions to a Tyk that is down.
    pub backoff: (Duration, Duration),
    /// So many routes are told at once, and the pause after it.
    pub burst: (usize, Duration),
    /// Waits before what does not show after a reload is asked for again.
    pub settle: Vec<Duration>,
    /// A gateway that shows nothing under an id is believed when it still does after so long. One that is starting answers
    /// before it has loaded its files.
    pub recheck: Duration,
    /// A gateway that has shown a document within this time has loaded its files.
    pub proof: Duration,
    /// Documents of routes that are gone are looked for so long after a start, give or take a fifth: by then routes have
    /// come back that somebody restores together with the operator, and what they have is known.
    pub sweep_after: Duration,
    /// An actor that has nothing to do and knows nothing ends after this.
    pub idle: Duration,
    /// Spreads looks and waits.
    pub jitter: Arc<Jitter>,
    /// Counters.
    pub meter: TykMeter,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gather: Duration::from_millis(20),
            crowd: Duration::from_millis(300),
            gather_most: Duration::from_secs(5),
            hold: Duration::from_secs(3),
            checks_per_second: 20,
            check_every: Duration::from_secs(300),
            canary: Duration::from_secs(30),
            parallel: 8,
            backoff: (Duration::from_secs(1), Duration::from_secs(60)),
            burst: (50, Duration::from_millis(100)),
            settle: vec![
                Duration::from_millis(300),
                Duration::from_millis(700),
                Duration::from_secs(1),
            ],
            recheck: Duration::from_secs(2),
            proof: Duration::from_secs(2),
            sweep_after: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            jitter: Arc::new(Jitter::random()),
            meter: TykMeter::default(),
        }
    }
}

type Place = (String, String, Mode);

fn place(connection: &Connection) -> Place {
    let (url, org) = connection.tyk();
    (url.to_owned(), org.to_owned(), connection.mode)
}

struct Running {
    shared: Arc<Shared>,
    jobs: mpsc::UnboundedSender<Queued>,
}

/// The actors of a process, one per connection, started when a job comes. Cheap to clone; they end with the last clone.
#[derive(Clone)]
pub struct Actors {
    seams: Arc<Seams>,
    actors: Arc<Mutex<HashMap<Place, Running>>>,
}

impl fmt::Debug for Actors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actors").finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Actors {
    /// Actors that reach Tyk through `connector`, write only while `may_write`, and tell `drifted` of routes whose job is
    /// to be handed in again.
    pub fn new(
        connector: Arc<dyn Connector>,
        drifted: Drifted,
        may_write: MayWrite,
        settings: Settings,
    ) -> Self {
        Self {
            seams: Arc::new(Seams {
                connector,
                drifted,
                may_write,
                settings,
                routes: OnceLock::new(),
            }),
            actors: Arc::default(),
        }
    }

    /// Hands a job to the actor of its connection, unless the answer is known already.
    fn hand_in(&self, connection: &Arc<Connection>, job: Job) -> Result<oneshot::Receiver<Done>, Done> {
        let mut actors = locked(&self.actors);
        let running = self.actor(&mut actors, connection);
        if !(self.seams.may_write)() {
            let message = "Tyk was not asked: this process does not hold the lease";
            let error = TykError::new(TykErrorClass::Fenced, message);
            let due = running
                .shared
                .book()
                .due(&job, &connection.org, 0, Instant::now(), false);
            return Err(book::all_failed(due, &error));
        }
        running.shared.lead_by(connection);
        {
            let mut book = running.shared.book();
            book.claim(&job);
            let due = book.due(&job, &connection.org, 0, Instant::now(), false);
            if due.is_empty() {
                if std::mem::take(&mut book.fresh) {
                    running.shared.wake();
                }
                return Err(due.done);
            }
            if let Some(error) = book.down(&connection.fingerprint, &job.owner.route) {
                return Err(book::all_failed(due, &error));
            }
        }
        let (reply, answer) = oneshot::channel();
        let queued = Queued {
            connection: Arc::clone(connection),
            job,
            reply,
            since: Instant::now(),
        };
        // The actor is there: it ends only under the lock that is held here.
        let _ = running.jobs.send(queued);
        Ok(answer)
    }

    /// The actor of a connection, started if there is none.
    fn actor<'a>(
        &self,
        actors: &'a mut HashMap<Place, Running>,
        connection: &Arc<Connection>,
    ) -> &'a Running {
        let place = place(connection);
        actors
            .entry(place.clone())
            .or_insert_with(|| self.start(connection, place))
    }

    fn start(&self, connection: &Arc<Connection>, place: Place) -> Running {
        let (jobs, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(connection));
        let actor = Actor::new(
            Arc::clone(&self.seams),
            Arc::clone(&shared),
            &connection.url,
            inbox,
        );
        let actors = Arc::downgrade(&self.actors);
        tokio::spawn(actor.run(move |inbox| {
            let Some(actors) = actors.upgrade() else {
                return true;
            };
            let mut actors = locked(&actors);
            if !inbox.is_empty() {
                return false;
            }
            actors.remove(&place);
            true
        }));
        Running { shared, jobs }
    }
}

#[async_trait]
impl Syncing for Actors {
    async fn submit(&self, connection: &Arc<Connection>, job: Job) -> Done {
        let names: Vec<String> = job.apis.iter().map(|api| api.id.clone()).collect();
        let removed = job.remove.clone();
        match self.hand_in(connection, job) {
            Err(done) => done,
            Ok(answer) => answer.await.unwrap_or_else(|_| {
                let error = TykError::new(TykErrorClass::Failing, "this process is being stopped");
                let failed = |id| (id, Trouble::Failed(error.clone()));
                Done {
                    troubled: names.into_iter().map(failed).collect(),
                    remaining: removed.into_iter().map(failed).collect(),
                    ..Done::default()
                }
            }),
        }
    }

    async fn reach(&self, connection: &Arc<Connection>, route: &Key) -> Result<(), TykError> {
        if !(self.seams.may_write)() {
            // The job will be told so.
            return Ok(());
        }
        let shared = {
            let mut actors = locked(&self.actors);
            Arc::clone(&self.actor(&mut actors, connection).shared)
        };
        shared.lead_by(connection);
        let link = &connection.fingerprint;
        let known = || {
            let mut book = shared.book();
            let down = book.down(link, route);
            down.map(Err)
                .or_else(|| book.links.contains_key(link).then_some(Ok(())))
        };
        if let Some(known) = known() {
            return known;
        }
        let _one = shared.reaching.lock().await;
        if let Some(known) = known() {
            return known;
        }
        match answered(&self.seams, connection).await {
            Ok(_) => {
                shared.works(connection);
                Ok(())
            }
            Err(error) => {
                if breaks(&error) {
                    shared.broke(connection, &error, &self.seams.settings);
                    shared.book().fail(route);
                    shared.wake();
                }
                Err(error)
            }
        }
    }

    fn forget(&self, route: &Key) {
        let next = Instant::now() + self.seams.settings.gather;
        for running in locked(&self.actors).values() {
            if running.shared.book().forget(route, next) {
                running.shared.wake();
            }
        }
    }

    fn known(&self, route: &Key) -> Vec<(Arc<Connection>, BTreeSet<String>)> {
        let actors = locked(&self.actors);
        let known = actors.values().map(|running| {
            let ids = running.shared.book().known(route);
            (running.shared.latest(), ids)
        });
        known.filter(|(_, ids)| !ids.is_empty()).collect()
    }

    fn sweep(&self, connection: &Arc<Connection>) {
        if !(self.seams.may_write)() {
            return;
        }
        // An actor sweeps by itself when it begins.
        self.actor(&mut locked(&self.actors), connection);
    }

    fn ask(&self, routes: Arc<dyn Routes>) {
        let _ = self.seams.routes.set(routes);
    }
}
