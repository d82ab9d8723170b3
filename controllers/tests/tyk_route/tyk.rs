//! A Tyk that is a map, behind the same seam as the real actors: with owners, trouble, and places to die at. No assertion
//! about the product.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use routewright::tyk::{
    client::{TykError, TykErrorClass},
    objects::Key,
    sync::{Contexts, Done, Job, Secrets, Syncing, Trouble},
    translate::{Owner, certificate_id, stamp, stamp::HASH},
    verdict::Connection,
};
use serde_json::Value;

/// Where a process dies among its calls to Tyk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The call is not made.
    Before,
    /// The call takes effect, and its answer never comes.
    After,
}

#[derive(Default)]
struct Inner {
    /// Documents by URL and id.
    documents: BTreeMap<(String, String), Value>,
    certificates: BTreeSet<(String, String)>,
    writes: Vec<String>,
    reads: usize,
    broken: Option<TykError>,
    refuses_certificates: bool,
    taken: BTreeMap<String, Trouble>,
    death: Option<(usize, Death)>,
    dead: bool,
    /// How long a job waits for its reload.
    reload: Duration,
    waiting: usize,
    most_waiting: usize,
}

/// All Tyks there are. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Tyk(Arc<Mutex<Inner>>);

impl Tyk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// A job takes so long from now on.
    pub(crate) fn reloads_in(&self, time: Duration) {
        self.lock().reload = time;
    }

    /// The most jobs that ever waited at once.
    pub(crate) fn most_waiting(&self) -> usize {
        self.lock().most_waiting
    }

    /// Every call ends with this, or works again.
    pub(crate) fn breaks(&self, how: Option<TykErrorClass>) {
        self.lock().broken = how.map(|class| TykError::new(class, "PUT /tyk/apis: no answer"));
    }

    pub(crate) fn refuse_certificates(&self, refuses: bool) {
        self.lock().refuses_certificates = refuses;
    }

    /// Writing this id ends with trouble although the call is answered.
    pub(crate) fn trouble(&self, id: &str, trouble: Trouble) {
        self.lock().taken.insert(id.to_owned(), trouble);
    }

    pub(crate) fn no_trouble(&self) {
        self.lock().taken.clear();
    }

    /// The documents of one Tyk by id.
    pub(crate) fn at(&self, url: &str) -> BTreeMap<String, Value> {
        let inner = self.lock();
        let of = inner.documents.iter().filter(|((at, _), _)| at == url);
        of.map(|((_, id), document)| (id.clone(), document.clone()))
            .collect()
    }

    pub(crate) fn ids(&self, url: &str) -> Vec<String> {
        self.at(url).into_keys().collect()
    }

    /// Puts a document there as somebody else.
    pub(crate) fn put(&self, url: &str, id: &str, document: Value) {
        self.lock()
            .documents
            .insert((url.to_owned(), id.to_owned()), document);
    }

    pub(crate) fn lose(&self, url: &str) {
        self.lock().documents.retain(|(at, _), _| at != url);
    }

    pub(crate) fn certificates(&self) -> usize {
        self.lock().certificates.len()
    }

    /// Writes since the last time, `POST <id>`.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().writes)
    }

    /// Reads since the last time.
    pub(crate) fn reads(&self) -> usize {
        std::mem::take(&mut self.lock().reads)
    }

    /// The process dies at its n-th write from now.
    pub(crate) fn die_at(&self, write: usize, how: Death) {
        self.lock().death = Some((write, how));
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    pub(crate) fn revive(&self) {
        let mut inner = self.lock();
        inner.dead = false;
        inner.death = None;
    }

    /// A write, unless this is where the process dies. Reads of a dead process hang too.
    async fn write(&self, what: String, change: impl FnOnce(&mut Inner)) {
        let dies = {
            let mut inner = self.lock();
            let how = match &mut inner.death {
                Some((0, how)) => Some(*how),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            };
            if how != Some(Death::Before) && !inner.dead {
                inner.writes.push(what);
                change(&mut inner);
            }
            inner.dead |= how.is_some();
            inner.dead
        };
        if dies {
            std::future::pending::<()>().await;
        }
        // Others get a turn between two calls, as they do over a network.
        tokio::task::yield_now().await;
    }

    async fn read(&self, url: &str, id: &str) -> Result<Option<Value>, TykError> {
        let (dead, answer) = {
            let mut inner = self.lock();
            inner.reads += 1;
            let answer = match &inner.broken {
                Some(error) => Err(error.clone()),
                None => Ok(inner.documents.get(&(url.to_owned(), id.to_owned())).cloned()),
            };
            (inner.dead, answer)
        };
        if dead {
            std::future::pending::<()>().await;
        }
        answer
    }
}

/// What one process believes of Tyk.
#[derive(Default)]
pub(crate) struct Actors {
    tyk: Tyk,
    seen: Mutex<HashMap<(String, String), String>>,
}

impl Actors {
    pub(crate) fn new(tyk: &Tyk) -> Self {
        Self {
            tyk: tyk.clone(),
            seen: Mutex::default(),
        }
    }

    async fn api(
        &self,
        connection: &Connection,
        job: &Job,
        api: &routewright::tyk::translate::TykApi,
        done: &mut Done,
    ) -> Result<(), Trouble> {
        let api = stamp(api.clone(), &job.owner);
        let hash = api.document[HASH].as_str().unwrap().to_owned();
        let at = (connection.url.clone(), api.id.clone());
        let seen = self.seen.lock().unwrap().get(&at).cloned();
        if seen.as_ref() == Some(&hash) || (seen.is_none() && job.trusted) {
            self.seen.lock().unwrap().insert(at, hash);
            return Ok(());
        }
        let stands = self.tyk.read(&at.0, &at.1).await.map_err(Trouble::Failed)?;
        if let Some(stands) = &stands {
            is_ours(stands, &job.owner)?;
        }
        if let Some(trouble) = self.tyk.lock().taken.get(&api.id) {
            return Err(trouble.clone());
        }
        if stands.as_ref() != Some(&api.document) {
            if seen.is_some() && stands.is_none() {
                done.mended.insert(api.id.clone());
            }
            let document = api.document;
            let what = format!("POST {}", at.1);
            self.tyk
                .write(what, |inner| {
                    inner.documents.insert(at.clone(), document);
                })
                .await;
        }
        self.seen.lock().unwrap().insert(at, hash);
        Ok(())
    }

    async fn remove(&self, connection: &Connection, job: &Job, id: &str) -> Result<(), Trouble> {
        let at = (connection.url.clone(), id.to_owned());
        let stands = self.tyk.read(&at.0, &at.1).await.map_err(Trouble::Failed)?;
        if let Some(stands) = &stands {
            is_ours(stands, &job.owner)?;
            self.tyk
                .write(format!("DELETE {id}"), |inner| {
                    inner.documents.remove(&at);
                })
                .await;
        }
        self.seen.lock().unwrap().remove(&at);
        Ok(())
    }
}

fn is_ours(document: &Value, owner: &Owner) -> Result<(), Trouble> {
    match Owner::of(document) {
        Some(found) if found.cluster == owner.cluster && found.route == owner.route => Ok(()),
        Some(found) => Err(Trouble::Foreign {
            owner: format!("HTTPRoute {}", found.route),
        }),
        None => Err(Trouble::Foreign {
            owner: "nobody that signed it".to_owned(),
        }),
    }
}

#[async_trait]
impl Syncing for Actors {
    async fn submit(&self, connection: &Arc<Connection>, job: Job) -> Done {
        let reload = self.tyk.lock().reload;
        if !reload.is_zero() {
            {
                let mut inner = self.tyk.lock();
                inner.waiting += 1;
                inner.most_waiting = inner.most_waiting.max(inner.waiting);
            }
            tokio::time::sleep(reload).await;
            self.tyk.lock().waiting -= 1;
        }
        let mut done = Done::default();
        for used in &job.certificates {
            let id = certificate_id(&connection.org, &used.certificate);
            let at = (connection.url.clone(), id.clone());
            if self.tyk.lock().refuses_certificates {
                let why = TykError::new(
                    TykErrorClass::Refused,
                    "POST /tyk/certs: 403 certificate is expired",
                );
                done.certificates.insert(id, why);
            } else if !self.tyk.lock().certificates.contains(&at) {
                self.tyk
                    .write(format!("CERT {}", &id[..4]), |inner| {
                        inner.certificates.insert(at);
                    })
                    .await;
            }
        }
        for api in &job.apis {
            if let Err(trouble) = self.api(connection, &job, api, &mut done).await {
                done.troubled.insert(api.id.clone(), trouble);
            }
        }
        for id in &job.remove {
            if let Err(trouble) = self.remove(connection, &job, id).await {
                done.remaining.insert(id.clone(), trouble);
            }
        }
        done
    }

    async fn reach(&self, _: &Arc<Connection>, _: &Key) -> Result<(), TykError> {
        self.tyk.lock().broken.clone().map_or(Ok(()), Err)
    }

    fn forget(&self, _: &Key) {}
}

/// Where contexts lead, as far as a test says.
#[derive(Clone, Default)]
pub(crate) struct Ways(pub(crate) Arc<Mutex<BTreeMap<Key, Arc<Connection>>>>);

#[async_trait]
impl Contexts for Ways {
    async fn connection(&self, context: &Key, _: Secrets) -> Result<Arc<Connection>, TykError> {
        self.0.lock().unwrap().get(context).cloned().ok_or_else(|| {
            TykError::new(
                TykErrorClass::NoConnection,
                format!("OperatorContext {context} does not exist"),
            )
        })
    }
}
