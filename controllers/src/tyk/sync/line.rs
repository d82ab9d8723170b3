//! One client as a batch uses it: the fence before everything, one more connection when the credential is refused, and
//! nothing more is asked once it is clear that Tyk does not answer. A call about one document that fails is that document's
//! failure as long as Tyk answers a question about another id.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{Connector, book::breaks};
use crate::tyk::{
    client::{TykApi, TykError, TykErrorClass, http::MayWrite},
    verdict::Connection,
};

/// So many documents in a row that failed with 5xx mean that Tyk fails, not the documents.
const FAILING: u32 = 3;

/// No API has this id: identities are digests of something.
pub(super) const PROBE: &str = "gwapi-00000000000000000000";

/// The longest wait for the answer that tells a failure of one document from one of the connection.
const ANSWERED: Duration = Duration::from_secs(5);

/// Whether a failure may be that of one document alone. A request for patience never is.
fn suspect(error: &TykError) -> bool {
    breaks(error) && error.class != TykErrorClass::Busy
}

/// Whether Tyk answers a question about an id that no document has.
pub(super) async fn answers(api: &Arc<dyn TykApi>) -> bool {
    matches!(tokio::time::timeout(ANSWERED, api.get(PROBE)).await, Ok(Ok(_)))
}

/// The error of a look at one document: it is not about the connection when Tyk answers another question.
pub(super) async fn blame(api: &Arc<dyn TykApi>, error: TykError) -> TykError {
    match suspect(&error) && answers(api).await {
        true => TykError::new(TykErrorClass::Failing, error.message),
        false => error,
    }
}

pub(super) struct Line {
    connector: Arc<dyn Connector>,
    may_write: MayWrite,
    pub(super) connection: Arc<Connection>,
    api: Mutex<Arc<dyn TykApi>>,
    again: tokio::sync::Mutex<bool>,
    broken: Mutex<Option<TykError>>,
    failing: AtomicU32,
    worked: AtomicBool,
    probing: tokio::sync::Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    pub(super) fn new(
        connector: Arc<dyn Connector>,
        may_write: MayWrite,
        connection: Arc<Connection>,
        api: Arc<dyn TykApi>,
    ) -> Self {
        Self {
            connector,
            may_write,
            connection,
            api: Mutex::new(api),
            again: tokio::sync::Mutex::new(false),
            broken: Mutex::new(None),
            failing: AtomicU32::new(0),
            worked: AtomicBool::new(false),
            probing: tokio::sync::Mutex::default(),
        }
    }

    /// The client, which may be another one than in the beginning.
    pub(super) fn api(&self) -> Arc<dyn TykApi> {
        Arc::clone(&lock(&self.api))
    }

    /// Why nothing is asked any more.
    pub(super) fn broken(&self) -> Option<TykError> {
        lock(&self.broken).clone()
    }

    /// Whether anything was answered.
    pub(super) fn worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// Makes a call about one document or certificate, if it makes sense to.
    pub(super) async fn call<R, F>(&self, ask: impl Fn(Arc<dyn TykApi>) -> F) -> Result<R, TykError>
    where
        F: Future<Output = Result<R, TykError>>,
    {
        self.make(ask, false).await
    }

    /// Makes a call that is about everything.
    pub(super) async fn call_for_all<R, F>(&self, ask: impl Fn(Arc<dyn TykApi>) -> F) -> Result<R, TykError>
    where
        F: Future<Output = Result<R, TykError>>,
    {
        self.make(ask, true).await
    }

    async fn make<R, F>(&self, ask: impl Fn(Arc<dyn TykApi>) -> F, for_all: bool) -> Result<R, TykError>
    where
        F: Future<Output = Result<R, TykError>>,
    {
        if let Some(error) = self.broken() {
            return Err(error);
        }
        if !(self.may_write)() {
            let message = "Tyk was not asked: this process does not hold the lease";
            let error = TykError::new(TykErrorClass::Fenced, message);
            *lock(&self.broken) = Some(error.clone());
            return Err(error);
        }
        let used = self.api();
        let mut answer = ask(Arc::clone(&used)).await;
        if matches!(&answer, Err(error) if error.class == TykErrorClass::Denied) {
            answer = match self.connect_again(&used).await {
                Ok(Some(api)) => ask(api).await,
                Ok(None) => answer,
                Err(error) => Err(error),
            };
        }
        match &answer {
            Err(error) if !for_all && suspect(error) => self.suspect(error).await,
            Err(error) if breaks(error) || error.class == TykErrorClass::Fenced => self.break_off(error),
            Err(error) if error.class == TykErrorClass::Failing => {
                if self.failing.fetch_add(1, Ordering::Relaxed) + 1 >= FAILING {
                    match for_all {
                        true => self.break_off(error),
                        false => self.suspect(error).await,
                    }
                }
            }
            _ => {
                self.failing.store(0, Ordering::Relaxed);
                self.worked.store(true, Ordering::Relaxed);
            }
        }
        answer
    }

    fn break_off(&self, error: &TykError) {
        lock(&self.broken).get_or_insert_with(|| error.clone());
    }

    /// A call about one document failed: finds out whether the connection fails.
    async fn suspect(&self, error: &TykError) {
        let _one = self.probing.lock().await;
        if self.broken().is_some() {
            return;
        }
        if answers(&self.api()).await {
            self.failing.store(0, Ordering::Relaxed);
            self.worked.store(true, Ordering::Relaxed);
        } else {
            self.break_off(error);
        }
    }

    /// The credential may have been changed: one more client, once. `None`: that was done before.
    async fn connect_again(&self, used: &Arc<dyn TykApi>) -> Result<Option<Arc<dyn TykApi>>, TykError> {
        let mut again = self.again.lock().await;
        let now = self.api();
        if !Arc::ptr_eq(used, &now) {
            return Ok(Some(now));
        }
        if *again {
            return Ok(None);
        }
        *again = true;
        let api = self.connector.connect(&self.connection).await?;
        *lock(&self.api) = Arc::clone(&api);
        Ok(Some(api))
    }
}
