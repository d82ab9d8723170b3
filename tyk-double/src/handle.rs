//! What a test does with a running stand-in: faults, changes behind the operator's back, crash points, and looking in.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    certificate::Stored,
    document::{Definition, EXTENSION},
    double::{Double, Mode},
    fault::Fault,
    plane::Plane,
    server,
    state::{Api, File, State},
    steps::{Pause, Side, Steps},
    tls::Served,
};

/// A request to the REST API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When it came.
    pub at: Instant,
    /// Method.
    pub method: String,
    /// Path, with the query if there is one.
    pub path: String,
    /// Id of the document that was sent, if one was.
    pub document: Option<String>,
    /// Status that was answered; none if nothing was, or not yet.
    pub status: Option<u16>,
}

/// How often what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents written (POST and PUT that were taken).
    pub writes: u64,
    /// Documents removed.
    pub deletes: u64,
    /// Certificates taken.
    pub uploads: u64,
    /// Reloads that were asked for.
    pub reloads: u64,
    /// Times that the files were read.
    pub loads: u64,
    /// All requests to the REST API.
    pub requests: u64,
    /// Connections that were opened without TLS.
    pub connections: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) writes: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) uploads: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) connections: AtomicU64,
}

/// Requests to remember; older ones are forgotten in halves.
const REMEMBERED: usize = 200_000;

#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) asked: Vec<Asked>,
    /// Number of the first of them.
    first: usize,
}

impl Journal {
    pub(crate) fn begin(&mut self, method: &str, path: &str) -> usize {
        if self.asked.len() >= REMEMBERED {
            self.first += REMEMBERED / 2;
            self.asked.drain(..REMEMBERED / 2);
        }
        self.asked.push(Asked {
            at: Instant::now(),
            method: method.to_owned(),
            path: path.to_owned(),
            document: None,
            status: None,
        });
        self.first + self.asked.len() - 1
    }

    pub(crate) fn sends(&mut self, number: usize, document: Option<String>) {
        if let Some(asked) = self.at(number) {
            asked.document = document;
        }
    }

    pub(crate) fn end(&mut self, number: usize, status: u16) {
        if let Some(asked) = self.at(number) {
            asked.status = Some(status);
        }
    }

    fn at(&mut self, number: usize) -> Option<&mut Asked> {
        self.asked.get_mut(number.checked_sub(self.first)?)
    }
}

pub(crate) struct Shared {
    pub(crate) settings: Double,
    pub(crate) address: SocketAddr,
    pub(crate) data: SocketAddr,
    pub(crate) tls: Option<SocketAddr>,
    /// Host and port as they stand in server URLs.
    pub(crate) listen: String,
    pub(crate) state: Mutex<State>,
    pub(crate) plane: Mutex<Arc<Plane>>,
    pub(crate) served: Arc<Served>,
    pub(crate) faults: Mutex<Vec<Fault>>,
    pub(crate) journal: Mutex<Journal>,
    /// Requests that are being answered.
    pub(crate) pending: AtomicUsize,
    pub(crate) steps: Steps,
    pub(crate) counters: Counters,
    /// Told after each load.
    pub(crate) loads: watch::Sender<u64>,
    pub(crate) wanted: AtomicBool,
    pub(crate) frozen: watch::Sender<bool>,
    pub(crate) deaf: AtomicBool,
    /// True at the end: connections are cut.
    pub(crate) over: watch::Sender<bool>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Reads the files, unless it was told not to.
    pub(crate) fn load(&self) {
        if self.deaf.load(Ordering::SeqCst) {
            let loads = *self.loads.borrow();
            self.loads.send_replace(loads + 1);
            return;
        }
        let mut state = self.state();
        state.load();
        self.serve(&state);
        self.loads.send_modify(|loads| *loads += 1);
    }

    /// Makes the data plane serve what is loaded.
    pub(crate) fn serve(&self, state: &State) {
        *locked(&self.plane) = Arc::new(Plane::of(state, self.settings.switches));
        self.served.replace(&state.certificates);
    }

    pub(crate) fn plane(&self) -> Arc<Plane> {
        Arc::clone(&locked(&self.plane))
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if self.settings.log {
            use std::io::Write as _;
            let _ = writeln!(std::io::stdout(), "{}", line());
        }
    }
}

/// A running stand-in. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("mode", &self.shared.settings.mode)
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Answers a request to the REST API as if it had come over the network; `None` where the connection is cut. Faults,
    /// stops and the journal apply.
    pub async fn ask(&self, request: http::Request<bytes::Bytes>) -> Option<http::Response<bytes::Bytes>> {
        let answer = server::control(Arc::clone(&self.shared), request).await;
        answer.ok().map(server::whole)
    }

    // --- where ------------------------------------------------------------------------------------------------------

    /// `http://127.0.0.1:port` of the REST API (and of the data plane, unless that has a place of its own).
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// Address of the REST API.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Address of the data plane.
    pub fn data_address(&self) -> SocketAddr {
        self.shared.data
    }

    /// Address of the data plane over TLS, if there is one.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.shared.tls
    }

    /// Which of the two REST APIs.
    pub fn mode(&self) -> Mode {
        self.shared.settings.mode
    }

    /// What callers must send.
    pub fn secret(&self) -> &str {
        &self.shared.settings.secret
    }

    // --- faults -----------------------------------------------------------------------------------------------------

    /// From now on this goes wrong, after the faults that were injected before.
    pub fn inject(&self, fault: Fault) {
        locked(&self.shared.faults).push(fault);
    }

    /// Nothing goes wrong any more. What hangs, hangs.
    pub fn clear_faults(&self) {
        locked(&self.shared.faults).clear();
    }

    /// Nobody is answered until [`Handle::thaw`].
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Answers again, also those that have been waiting.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Reloads are answered and nothing is loaded, as on a node that is stuck.
    pub fn ignore_reloads(&self, ignore: bool) {
        self.shared.deaf.store(ignore, Ordering::SeqCst);
    }

    /// Stops the request whose change has this number (from 1; documents, certificates and reloads count), before or after
    /// the change. [`Handle::steps`] is the number of the last one.
    pub fn pause_at(&self, step: usize, side: Side) -> Pause {
        self.shared.steps.stop(step, side)
    }

    /// Changes so far, each with a number; also such that were refused.
    pub fn steps(&self) -> usize {
        self.shared.steps.count()
    }

    // --- behind the operator's back ---------------------------------------------------------------------------------

    /// A new start with an empty folder, as a Pod without a volume has it. Certificates stay: they are in Redis.
    pub fn lose_files(&self) {
        self.change(|state| {
            state.files.clear();
            state.loaded.clear();
        });
        self.shared.log(|| "all files are lost".to_owned());
    }

    /// The certificate store is emptied.
    pub fn lose_certificates(&self) {
        self.change(|state| state.certificates.entries.clear());
    }

    /// A new start with the files there are: everything is loaded as if for the first time.
    pub fn restart(&self) {
        self.change(|state| {
            state.loaded.clear();
            state.load();
        });
    }

    /// Somebody changes a document, and it is loaded. `false`: there is none.
    pub fn edit(&self, id: &str, change: impl FnOnce(&mut Value)) -> bool {
        let mut found = false;
        self.change(|state| {
            let Some(old) = state.files.get(id) else { return };
            let mut document = old.document.clone();
            change(&mut document);
            let file = File::new(document, old.database.clone());
            state.files.insert(id.to_owned(), file);
            state.load();
            found = true;
        });
        found
    }

    /// Somebody creates a document (its id stands in it), and it is loaded.
    pub fn create(&self, document: Value) {
        self.change(|state| {
            let id = Definition::of(&document).id;
            let database = format!("{:024x}", state.fresh());
            state.files.insert(id, File::new(document, database));
            state.load();
        });
    }

    /// Somebody removes a document, and it is gone. `false`: there is none.
    pub fn remove(&self, id: &str) -> bool {
        let mut found = false;
        self.change(|state| {
            found = state.files.remove(id).is_some();
            state.loaded.remove(id);
        });
        found
    }

    /// A loaded API listens elsewhere, as after a collision: until its document changes. `false`: there is none.
    pub fn rename(&self, id: &str, path: &str) -> bool {
        let mut found = false;
        self.change(|state| {
            if let Some(api) = state.loaded.get_mut(id) {
                *api = Api::new(Arc::clone(&api.file), path.to_owned());
                found = true;
            }
        });
        found
    }

    /// What was written becomes what is loaded, without anybody asking.
    pub fn load(&self) {
        self.shared.load();
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state();
        change(&mut state);
        self.shared.serve(&state);
    }

    // --- looking in -------------------------------------------------------------------------------------------------

    /// Documents by id, as GET shows them.
    pub fn loaded(&self) -> BTreeMap<String, Value> {
        let state = self.shared.state();
        state
            .loaded
            .iter()
            .map(|(id, api)| (id.clone(), api.shown(&self.shared.listen).clone()))
            .collect()
    }

    /// Documents by id, as they were written.
    pub fn files(&self) -> BTreeMap<String, Value> {
        let state = self.shared.state();
        state
            .files
            .iter()
            .map(|(id, file)| (id.clone(), file.document.clone()))
            .collect()
    }

    /// Where a loaded API listens.
    pub fn listen_path(&self, id: &str) -> Option<String> {
        self.shared.state().loaded.get(id).map(|api| api.path.clone())
    }

    /// Of the Dashboard: the owners that an API was given, as they were sent.
    pub fn owners(&self, id: &str) -> Option<Value> {
        self.shared.state().owners.get(id).cloned()
    }

    /// Certificates by id.
    pub fn certificates(&self) -> BTreeMap<String, Stored> {
        let state = self.shared.state();
        let entries = state.certificates.entries.iter();
        entries
            .map(|(id, entry)| (id.clone(), entry.stored.clone()))
            .collect()
    }

    /// Requests to the REST API, in the order in which they came (the last 100 000 at least).
    pub fn requests(&self) -> Vec<Asked> {
        locked(&self.shared.journal).asked.clone()
    }

    /// Requests to the REST API that were not answered yet, nor cut.
    pub fn pending(&self) -> usize {
        self.shared.pending.load(Ordering::SeqCst)
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        *locked(&self.shared.journal) = Journal::default();
    }

    /// How often what was done since the start.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let counters = &self.shared.counters;
        Counts {
            writes: of(&counters.writes),
            deletes: of(&counters.deletes),
            uploads: of(&counters.uploads),
            reloads: of(&counters.reloads),
            connections: of(&counters.connections),
            loads: *self.shared.loads.borrow(),
            requests: {
                let journal = locked(&self.shared.journal);
                (journal.first + journal.asked.len()) as u64
            },
        }
    }

    pub(crate) fn stop(&self) {
        self.shared.over.send_replace(true);
    }

    /// Counts and ids, for the control port of the program.
    pub fn summary(&self) -> Value {
        let counts = self.counts();
        let state = self.shared.state();
        json!({
            "files": state.files.len(), "loaded": state.loaded.len(),
            "certificates": state.certificates.entries.len(),
            "writes": counts.writes, "deletes": counts.deletes, "uploads": counts.uploads,
            "reloads": counts.reloads, "loads": counts.loads, "requests": counts.requests,
            "extension": EXTENSION,
        })
    }
}
