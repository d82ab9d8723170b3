//! The effects of `tyk-httproute`: remembers, hands the jobs in, and takes down what came of them. The order is what
//! matters here: finalizer and memory before the first write, memory shortened after the confirmed delete.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt;
use reconcile_kit::{
    ErrorClass, Note, Outcome, ReconcileError, Request, Settled, Verdict,
    events::{EventSink, reference},
    layers::{
        effects::Effects,
        policy::{delay, jittered},
    },
    owner::{OwnerPatch, OwnerWrite},
};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    intent::{Intent, Leftover, Task, intent},
    ledger::Ledger,
    memory::{Memory, Place},
    names,
    places::{Record, lead},
    planner::{Finding, Known, RoutePlanner, Said, Work},
};
use crate::{
    telemetry::tyk::failed,
    tyk::{
        client::{TykError, TykErrorClass},
        objects::Key,
        sync::{Contexts, Done, Job, Syncing, Trouble},
        translate::certificate_id,
        verdict::Connection,
        world::WatchedRoute,
    },
};

/// How long it is believed what a context leads to: as long as a crowd of routes takes to be deleted at once.
const BELIEVED: Duration = Duration::from_secs(2);

/// Makes Tyk agree.
pub struct Drive {
    sync: Arc<dyn Syncing>,
    contexts: Arc<dyn Contexts>,
    record: Arc<dyn Record>,
    world: Arc<dyn Known>,
    events: Arc<dyn EventSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Runs in a row that left something to be done.
    failures: HashMap<Key, u32>,
    /// Routes that wait for a context, by context.
    blocked: BTreeMap<Key, BTreeSet<Key>>,
    believed: HashMap<Key, (Instant, Result<Arc<Connection>, TykError>)>,
}

impl Drive {
    /// Through these.
    pub fn new(
        sync: Arc<dyn Syncing>,
        contexts: Arc<dyn Contexts>,
        record: Arc<dyn Record>,
        world: Arc<dyn Known>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        Self {
            sync,
            contexts,
            record,
            world,
            events,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The route is gone: nothing is kept of it.
    pub fn forget(&self, route: &Key) {
        self.sync.forget(route);
        self.world.failing(route, BTreeSet::new());
        self.quiet(route);
    }

    /// Routes that wait until some context leads somewhere: worth a look when a GatewayClass changed.
    pub fn blocked(&self) -> BTreeSet<Key> {
        self.blocked_if(|_| true)
    }

    /// Routes that wait for this context: worth a look when it changed.
    pub fn blocked_by_context(&self, context: &Key) -> BTreeSet<Key> {
        self.blocked_if(|blocked| blocked == context)
    }

    /// Routes that wait for a context that names this Secret: worth a look when it changed. Secrets change all the time.
    pub fn blocked_by_secret(&self, secret: &Key) -> BTreeSet<Key> {
        self.blocked_if(|blocked| self.world.secret_of(blocked).as_ref() == Some(secret))
    }

    /// Routes that wait for one of the contexts that changed. What was known of these contexts is forgotten.
    fn blocked_if(&self, changed: impl Fn(&Key) -> bool) -> BTreeSet<Key> {
        let contexts: Vec<Key> = self.state().blocked.keys().cloned().collect();
        let changed: BTreeSet<Key> = contexts.into_iter().filter(|context| changed(context)).collect();
        if changed.is_empty() {
            return BTreeSet::new();
        }
        let mut state = self.state();
        state.believed.retain(|context, _| !changed.contains(context));
        let routes = changed.iter().filter_map(|context| state.blocked.get(context));
        routes.flatten().cloned().collect()
    }

    fn quiet(&self, route: &Key) {
        let mut state = self.state();
        state.failures.remove(route);
        state.blocked.retain(|_, routes| {
            routes.remove(route);
            !routes.is_empty()
        });
    }

    /// When to look again.
    fn outcome(&self, route: &Key, ledger: &Ledger) -> Outcome {
        self.state().blocked.retain(|context, routes| {
            if !ledger.blocked_on.contains(context) {
                routes.remove(route);
            }
            !routes.is_empty()
        });
        let Some(class) = ledger.failure() else {
            self.state().failures.remove(route);
            return Outcome::Done;
        };
        let mut state = self.state();
        for context in &ledger.blocked_on {
            state
                .blocked
                .entry(context.clone())
                .or_default()
                .insert(route.clone());
        }
        let failures = state.failures.entry(route.clone()).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        Outcome::Failed {
            class,
            retry: delay(class, failures).map(|wait| jittered(wait, (route, failures))),
        }
    }

    /// What the route remembers, and what is known to stand though nothing on the route says so any more: whoever writes a
    /// route whole, or takes the annotation away, does not leave its APIs behind. What nothing leads to any more is not
    /// taken up again: whoever took that out of the annotation wants it left there.
    async fn recalled(&self, work: &Work) -> Memory {
        let mut memory = work.memory.clone();
        for (connection, ids) in self.sync.known(&work.owner.route) {
            let there = connection.digest();
            let made = &work.wanted.made;
            let wanted = |id: &String| {
                made.iter()
                    .any(|made| made.id == *id && made.connection.digest() == there)
            };
            let forgotten: Vec<String> = ids
                .into_iter()
                .filter(|id| !memory.knows(&there, id) && !wanted(id))
                .collect();
            if forgotten.is_empty() {
                continue;
            }
            let led = made.iter().any(|made| made.connection.digest() == there);
            let today = match led {
                true => Some(connection),
                false => self.connection(&connection.context).await.ok(),
            };
            let Some(today) = today.filter(|today| today.digest() == there) else {
                continue;
            };
            let place = Place::of(&today);
            for id in forgotten {
                memory.add(&place, id);
            }
        }
        memory
    }

    /// Nothing is remembered at a place where nobody has ever answered: if its URL was mistyped, what was remembered there
    /// would hold the route back once it is mended. Why not, for the tasks that are not begun.
    async fn reach(&self, route: &Key, intent: &mut Intent, known: &Memory) -> BTreeMap<usize, TykError> {
        let mut unreached = BTreeMap::new();
        for (number, task) in intent.tasks.iter().enumerate() {
            let new = |id: &&str| !known.knows(&task.place.tyk, id);
            let new: Vec<&str> = task.ids().filter(new).collect();
            if new.is_empty() {
                continue;
            }
            let span = span("reach", &task.connection, 0, 0);
            let reached = self.sync.reach(&task.connection, route);
            if let Err(error) = reached.instrument(span.clone()).await {
                failed(&span, error.class.label());
                for id in new {
                    intent.before.take(&task.place, id);
                }
                unreached.insert(number, error);
            }
        }
        unreached
    }

    /// `digest`: of the documents that are wanted.
    async fn task(&self, work: &Work, intent: &Intent, task: &Task, digest: &str) -> Done {
        let job = Job {
            owner: work.owner.clone(),
            apis: task
                .apis
                .iter()
                .map(|standing| Arc::clone(&standing.api))
                .collect(),
            remove: task.remove.iter().cloned().collect(),
            certificates: task.certificates.iter().cloned().collect(),
            // If the annotation lists more ids than are wanted, the process may have ended between recording and writing
            // them. If its digest is another one, the documents have changed since they were written.
            trusted: work.confirmed
                && work.digest.as_deref() == Some(digest)
                && intent.leftovers.is_empty()
                && task.remove.is_empty()
                && task
                    .apis
                    .iter()
                    .all(|standing| work.memory.has(&task.place, &standing.api.id)),
        };
        self.submit(&task.connection, job).await
    }

    /// Hands a job in and waits for what comes of it: the part of Tyk in the trace of a reconcile. The calls themselves are
    /// made for many routes at once and belong to none.
    async fn submit(&self, connection: &Arc<Connection>, job: Job) -> Done {
        let span = span("submit", connection, job.apis.len(), job.remove.len());
        let done = self.sync.submit(connection, job).instrument(span.clone()).await;
        if let Some(trouble) = done.trouble() {
            failed(&span, trouble);
        }
        done
    }

    /// A way to the Tyk of a leftover; else what each context leads to instead.
    async fn way(&self, leftover: &Leftover) -> Result<Arc<Connection>, Vec<(Key, TykError)>> {
        let mut vain = Vec::new();
        for context in &leftover.contexts {
            match self.connection(context).await {
                Ok(connection) if connection.digest() == leftover.tyk => return Ok(connection),
                Ok(_) => {
                    let why = "it leads to another Tyk now (its url or org is another)";
                    vain.push((context.clone(), TykError::new(TykErrorClass::NoConnection, why)));
                }
                Err(error) => vain.push((context.clone(), error)),
            }
        }
        Err(vain)
    }

    async fn connection(&self, context: &Key) -> Result<Arc<Connection>, TykError> {
        if let Some((at, known)) = self.state().believed.get(context)
            && at.elapsed() < BELIEVED
        {
            return known.clone();
        }
        let named = self.world.names(context);
        let found = lead(&*self.contexts, &*self.record, named, context).await;
        let found = found.map_err(|astray| astray.brief(context));
        let mut state = self.state();
        state.believed.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        state
            .believed
            .insert(context.clone(), (Instant::now(), found.clone()));
        found
    }

    async fn leftover(&self, work: &Work, leftover: &Leftover, ledger: &mut Ledger) {
        // What moves stays where it is until it stands at its new place.
        let asked: BTreeSet<String> = leftover.remove.difference(&ledger.troubled).cloned().collect();
        if asked.is_empty() {
            return;
        }
        match self.way(leftover).await {
            Err(vain) => {
                let why: Vec<(Key, String, bool)> = vain
                    .into_iter()
                    .map(|(context, error)| {
                        let passes = error.class != TykErrorClass::NoConnection;
                        (context, error.message, passes)
                    })
                    .collect();
                ledger.blocked(leftover, &asked, &why);
            }
            Ok(connection) => {
                let job = Job {
                    owner: work.owner.clone(),
                    apis: Vec::new(),
                    remove: asked.iter().cloned().collect(),
                    certificates: Vec::new(),
                    trusted: false,
                };
                let mut done = self.submit(&connection, job).await;
                if !self.world.names(&connection.context) {
                    plain(&mut done);
                }
                ledger.leftover(leftover, &asked, &done);
            }
        }
    }
}

/// Replaces the answers of a Tyk in the errors: a Tyk that no GatewayClass leads to may be any server, and its answers do not
/// belong into the events of a route.
fn plain(done: &mut Done) {
    for trouble in done.remaining.values_mut() {
        if let Trouble::Failed(error) = trouble {
            tracing::info!(%error, "APIs of an HTTPRoute could not be deleted from a Tyk that no GatewayClass names now");
            error.message = match error.class {
                TykErrorClass::Unreachable => "it does not answer",
                TykErrorClass::Failing | TykErrorClass::Busy => "it answers with an error that may pass",
                TykErrorClass::Denied => "it does not take the credential",
                TykErrorClass::Refused => "it refuses the request",
                TykErrorClass::NoConnection => "no connection can be made",
                TykErrorClass::Fenced => "this process does not hold the lease",
            }
            .to_owned();
        }
    }
}

/// What is asked of a Tyk, in the trace of a reconcile.
fn span(what: &'static str, connection: &Connection, apis: usize, removals: usize) -> tracing::Span {
    let url = reqwest::Url::parse(&connection.url).ok();
    tracing::info_span!(
        "tyk",
        otel.name = what,
        otel.kind = "client",
        server.address = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default(),
        tyk.context = %connection.context,
        tyk.apis = apis,
        tyk.removals = removals,
        otel.status_code = tracing::field::Empty,
        error.class = tracing::field::Empty,
    )
}

/// What comes of a task that is not begun.
fn vain(task: &Task, error: &TykError) -> Done {
    let failed = |id: &str| (id.to_owned(), Trouble::Failed(error.clone()));
    let org = &task.connection.org;
    let certificates = task.certificates.iter();
    Done {
        troubled: task.ids().map(failed).collect(),
        remaining: task.remove.iter().map(|id| failed(id)).collect(),
        certificates: certificates
            .map(|used| (certificate_id(org, &used.certificate), error.clone()))
            .collect(),
        mended: BTreeSet::new(),
    }
}

/// The metadata of a route as this run knows it.
struct Noted<'a> {
    owner: &'a OwnerPatch,
    finalizer: Cow<'static, str>,
    annotation: Cow<'static, str>,
    finalizers: Vec<String>,
    text: Option<String>,
    /// The digest in the text.
    digest: Option<String>,
}

impl Noted<'_> {
    /// Whether the finalizer is there.
    fn holds(&self) -> bool {
        self.finalizers.iter().any(|f| *f == self.finalizer)
    }

    /// Makes annotation and finalizer say that this is remembered. One patch, and none if they say so already.
    async fn note(&mut self, memory: &Memory, digest: Option<String>) -> Result<(), ReconcileError> {
        let text = memory.text_with(digest.as_deref());
        let has = self.holds();
        let wants = text.is_some();
        if text == self.text && has == wants {
            return Ok(());
        }
        if has != wants {
            self.finalizers.retain(|f| *f != self.finalizer);
            if wants {
                self.finalizers.push(self.finalizer.to_string());
            }
        }
        let mut annotations = BTreeMap::new();
        if text != self.text {
            annotations.insert(self.annotation.to_string(), text.clone());
        }
        let write = OwnerWrite::Metadata {
            finalizers: (has != wants).then(|| self.finalizers.clone()),
            annotations,
        };
        self.owner.write(&write).await?;
        (self.text, self.digest) = (text, digest);
        Ok(())
    }
}

impl Effects<RoutePlanner> for Drive {
    async fn perform(
        &self,
        request: &Request<WatchedRoute>,
        mut settled: Settled<Finding>,
        owner: &OwnerPatch,
    ) -> Result<Settled<Finding>, ReconcileError> {
        let Verdict::Report(Finding::Work(work)) = &settled.verdict else {
            return Ok(settled);
        };
        let key = &work.owner.route;
        let memory = self.recalled(work).await;
        let remembered = !memory.is_empty();
        let wanted = work.wanted.digest(&work.owner);
        let mut intent = intent(&work.wanted, memory.clone());
        let unreached = self.reach(key, &mut intent, &memory).await;
        let controller = &work.owner.controller;
        let annotation = names::annotation(controller);
        let mut noted = Noted {
            owner,
            finalizer: names::finalizer(controller),
            finalizers: request.object.finalizers().to_vec(),
            text: request
                .object
                .annotations()
                .get(annotation.as_ref())
                .filter(|text| !text.is_empty())
                .cloned(),
            digest: work.digest.clone(),
            annotation,
        };
        let new = intent.before != work.memory || !noted.holds();
        for (number, task) in intent.tasks.iter().enumerate() {
            if !unreached.contains_key(&number) {
                self.record.add(&task.connection).await;
            }
        }
        if !request.deleting && !intent.before.is_empty() && new {
            // The new digest goes with the ids if nothing makes the next process believe it before it is true: the status
            // does not say yet that what is wanted stands. Else it comes when it does.
            let old = work.digest.clone().filter(|_| work.confirmed);
            noted
                .note(&intent.before, old.or_else(|| Some(wanted.clone())))
                .await?;
        }
        let mut ledger = Ledger::new(&intent);
        let tasks =
            intent
                .tasks
                .iter()
                .enumerate()
                .map(async |(number, task)| match unreached.get(&number) {
                    Some(error) => vain(task, error),
                    None => self.task(work, &intent, task, &wanted).await,
                });
        let done = futures::future::join_all(tasks).await;
        for (task, done) in intent.tasks.iter().zip(&done) {
            ledger.task(task, done);
        }
        for leftover in &intent.leftovers {
            self.leftover(work, leftover, &mut ledger).await;
        }
        let about = reference(request.object.as_ref());
        for note in &ledger.happened {
            self.events.publish(&about, note).await;
        }
        if ledger.fenced {
            return Err(ReconcileError::new(
                ErrorClass::Shutdown,
                "this process does not lead",
            ));
        }
        let nothing_left = ledger.memory.is_empty();
        if request.deleting && nothing_left {
            // The layer that called takes the finalizer off.
            settled.released = true;
        } else {
            // Without any document of its own a route keeps what was written last, and the digest of it.
            let made = !work.wanted.made.is_empty();
            let stands = made && unreached.is_empty() && ledger.failing().is_empty();
            let digest = match stands {
                true => Some(wanted),
                false => noted.digest.clone(),
            };
            noted.note(&ledger.memory, digest).await?;
        }
        if nothing_left && remembered {
            self.sync.forget(key);
        }
        self.world.failing(key, ledger.failing());
        let outcome = self.outcome(key, &ledger);
        let notices = work.notices.iter().map(|notice| Note {
            warning: notice.warning,
            reason: notice.reason.into(),
            message: notice.message.clone(),
        });
        let said = Said {
            controller: controller.clone(),
            parents: work
                .parents
                .iter()
                .map(|parent| (parent.parent.clone(), ledger.conditions(parent)))
                .collect(),
            notes: notices
                .chain(ledger.notes(&names::annotation(controller)))
                .collect(),
            outcome,
        };
        settled.verdict = Verdict::Report(Finding::Said(Box::new(said)));
        Ok(settled)
    }
}
