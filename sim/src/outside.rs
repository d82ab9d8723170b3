//! What lies outside of the cluster: the Garages and the Tyks of the simulated world, and the ways to them, each with its
//! own troubles. What they answer is the stand-ins' matter.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use routewright::{
    garage::{
        access::{Connect, NoAccess},
        admin::{
            AdminError, AdminErrorClass, BucketId, BucketInfo, BucketUpdate, Call, ClusterHealth, Endpoint,
            Fenced, GarageAdmin, Token,
        },
        testing::FakeGarage,
    },
    tyk::client::http::Wire,
};
use routewright_tyk_double::{Double, Handle, Running};
use tokio::sync::{mpsc, oneshot};

use crate::{host::Host, random::Random};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a service outside fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It answers.
    #[default]
    Well,
    /// Each answer is late by this number of milliseconds.
    Slow(u32),
    /// Nothing answers: the connection is refused.
    Down,
    /// Every second call takes effect and its answer is lost.
    Lossy,
    /// It answers 5xx.
    Failing,
}

/// A call that changed something outside.
#[derive(Clone, Debug)]
pub struct Outside {
    /// Who asked: installation and replica.
    pub who: String,
    /// Where: the URL without path.
    pub place: String,
    /// What: `DeleteBucket`, `POST /tyk/apis/oas/…`.
    pub call: String,
    /// What it was about: the bucket, the document that was sent.
    pub about: String,
    /// What was there before: aliases of a bucket, a document.
    pub before: String,
}

/// Hears what changes outside.
pub type Listener = Arc<dyn Fn(Outside) + Send + Sync>;

/// A Garage of the world.
pub struct GarageSite {
    /// Its buckets.
    pub garage: FakeGarage,
    /// The token that it takes.
    pub token: String,
    mood: Mutex<Mood>,
    turn: AtomicU64,
}

/// A Tyk of the world.
pub struct TykSite {
    /// Looking in, editing behind the operator's back.
    pub handle: Handle,
    _running: Running,
    requests: mpsc::UnboundedSender<Request>,
    mood: Mutex<Mood>,
    turn: AtomicU64,
    credentials: Mutex<BTreeSet<String>>,
    lost: AtomicBool,
}

struct Request {
    request: http::Request<Bytes>,
    answer: oneshot::Sender<Option<http::Response<Bytes>>>,
}

/// Everything outside.
#[derive(Clone, Default)]
pub struct Sites {
    garages: Arc<Mutex<BTreeMap<String, Arc<GarageSite>>>>,
    tyks: Arc<Mutex<BTreeMap<String, Arc<TykSite>>>>,
}

impl Sites {
    /// Puts a Garage behind this URL.
    pub fn add_garage(&self, url: &str, token: &str) {
        let site = GarageSite {
            garage: FakeGarage::counting_from(1_000 * lock(&self.garages).len() as u64),
            token: token.to_owned(),
            mood: Mutex::default(),
            turn: AtomicU64::new(0),
        };
        lock(&self.garages).insert(url.to_owned(), Arc::new(site));
    }

    /// Puts a Tyk behind this URL, on `host`'s runtime.
    pub fn add_tyk(&self, host: &mut Host, url: &str, double: Double) {
        let (requests, mut inbox) = mpsc::unbounded_channel::<Request>();
        let running = host.within(|| double.start_unbound());
        let handle = running.handle();
        let answering = handle.clone();
        host.run(async move {
            tokio::spawn(async move {
                while let Some(Request { request, answer }) = inbox.recv().await {
                    let tyk = answering.clone();
                    tokio::spawn(async move {
                        let _ = answer.send(tyk.ask(request).await);
                    });
                }
            });
        });
        let site = TykSite {
            handle,
            _running: running,
            requests,
            mood: Mutex::default(),
            turn: AtomicU64::new(0),
            credentials: Mutex::default(),
            lost: AtomicBool::new(false),
        };
        lock(&self.tyks).insert(url.to_owned(), Arc::new(site));
    }

    /// The Garages by URL.
    pub fn garages(&self) -> BTreeMap<String, Arc<GarageSite>> {
        lock(&self.garages).clone()
    }

    /// The Tyks by URL.
    pub fn tyks(&self) -> BTreeMap<String, Arc<TykSite>> {
        lock(&self.tyks).clone()
    }

    /// Everything answers again.
    pub fn calm(&self) {
        for site in self.garages().values() {
            site.set_mood(Mood::Well);
        }
        for site in self.tyks().values() {
            site.set_mood(Mood::Well);
            site.handle.clear_faults();
            site.handle.thaw();
        }
    }

    /// The way to the Garages for one process.
    pub fn connect(
        &self,
        who: &str,
        seed: u64,
        may_write: Arc<dyn Fn() -> bool + Send + Sync>,
        listener: Listener,
    ) -> Connect {
        let (sites, who) = (self.clone(), who.to_owned());
        Arc::new(move |endpoint: Endpoint, token: Token| {
            let url = endpoint.to_string().trim_end_matches('/').to_owned();
            let client = GarageClient {
                site: lock(&sites.garages).get(&url).cloned(),
                url,
                token,
                who: who.clone(),
                random: Mutex::new(Random::seeded(seed)),
                listener: Arc::clone(&listener),
            };
            let admin: Arc<dyn GarageAdmin> = Arc::new(Fenced::new(client, Arc::clone(&may_write)));
            Ok::<_, NoAccess>(admin)
        })
    }

    /// The way to the Tyks for one process.
    pub fn wire(&self, who: &str, seed: u64, listener: Listener) -> Wire {
        let (sites, who) = (self.clone(), who.to_owned());
        let random = Arc::new(Mutex::new(Random::seeded(seed)));
        Arc::new(move |request: reqwest::Request| {
            let (sites, who, random) = (sites.clone(), who.clone(), Arc::clone(&random));
            let listener = Arc::clone(&listener);
            Box::pin(async move { sites.carry(&who, &random, &listener, request).await })
        })
    }

    async fn carry(
        &self,
        who: &str,
        random: &Mutex<Random>,
        listener: &Listener,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, reqwest::Error> {
        let url = request.url().clone();
        let place = format!(
            "{}://{}{}",
            url.scheme(),
            url.host_str().unwrap_or_default(),
            url.port().map(|port| format!(":{port}")).unwrap_or_default()
        );
        tokio::time::sleep(latency(random)).await;
        let site = lock(&self.tyks).get(&place).cloned();
        let Some(site) = site else {
            return Err(unreachable_error());
        };
        let mood = *lock(&site.mood);
        let turn = site.turn.fetch_add(1, Ordering::Relaxed);
        match mood {
            Mood::Down => return Err(unreachable_error()),
            Mood::Failing => {
                let answer = http::Response::builder()
                    .status(503)
                    .body(Vec::from(&b"{\"message\":\"later\"}"[..]));
                return answer.map_or_else(|_| Err(unreachable_error()), |answer| Ok(answer.into()));
            }
            Mood::Slow(millis) => tokio::time::sleep(Duration::from_millis(u64::from(millis))).await,
            Mood::Well | Mood::Lossy => {}
        }
        let mut onward = http::Request::new(
            request
                .body()
                .and_then(reqwest::Body::as_bytes)
                .map(Bytes::copy_from_slice)
                .unwrap_or_default(),
        );
        *onward.method_mut() = request.method().clone();
        let path = url.query().map_or_else(
            || url.path().to_owned(),
            |query| format!("{}?{query}", url.path()),
        );
        if let Ok(uri) = path.parse() {
            *onward.uri_mut() = uri;
        }
        *onward.headers_mut() = request.headers().clone();
        for name in ["x-tyk-authorization", "authorization"] {
            if let Some(value) = request.headers().get(name).and_then(|value| value.to_str().ok()) {
                lock(&site.credentials).insert(value.to_owned());
            }
        }
        if request.method() != http::Method::GET {
            let id = url.path().rsplit('/').next().unwrap_or_default();
            let sent = String::from_utf8_lossy(onward.body()).into_owned();
            let id = serde_json::from_str::<serde_json::Value>(&sent)
                .ok()
                .and_then(|document| Some(document["x-tyk-api-gateway"]["info"]["id"].as_str()?.to_owned()))
                .unwrap_or_else(|| id.to_owned());
            let before = site.handle.files().get(&id).map(ToString::to_string);
            listener(Outside {
                who: who.to_owned(),
                place: place.clone(),
                call: format!("{} {}", request.method(), url.path()),
                about: sent,
                before: before.unwrap_or_default(),
            });
        }
        let (answer, answered) = oneshot::channel();
        let _ = site.requests.send(Request {
            request: onward,
            answer,
        });
        let answer = answered.await.ok().flatten();
        if mood == Mood::Lossy && turn % 2 == 0 {
            return Err(unreachable_error());
        }
        tokio::time::sleep(latency(random)).await;
        answer.map_or_else(
            || Err(unreachable_error()),
            |answer| Ok(answer.map(|body| body.to_vec()).into()),
        )
    }
}

fn latency(random: &Mutex<Random>) -> Duration {
    Duration::from_micros(lock(random).between(200, 6_000))
}

/// Only reqwest can construct its errors: this one is that of a status. A client would take random numbers for TLS.
fn unreachable_error() -> reqwest::Error {
    let mut answer = http::Response::new(Vec::new());
    *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    match reqwest::Response::from(answer).error_for_status() {
        Err(error) => error,
        Ok(_) => unreachable!("503 is an error"),
    }
}

impl GarageSite {
    /// Changes how it fares.
    pub fn set_mood(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }
}

impl TykSite {
    /// Every credential that came with a request.
    pub fn credentials(&self) -> BTreeSet<String> {
        lock(&self.credentials).clone()
    }

    /// It loses all its files, those of others too.
    pub fn lose_files(&self) {
        self.lost.store(true, Ordering::Relaxed);
        self.handle.lose_files();
        self.handle.load();
    }

    /// Whether it ever lost its files.
    pub fn lost_at_least_once(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Changes how it fares.
    pub fn set_mood(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }
}

struct GarageClient {
    site: Option<Arc<GarageSite>>,
    url: String,
    token: Token,
    who: String,
    random: Mutex<Random>,
    listener: Listener,
}

impl GarageClient {
    fn fail<T>(&self, class: AdminErrorClass, call: Call, why: &str) -> Result<T, AdminError> {
        Err(AdminError::new(class, call, &self.url, why))
    }

    async fn call<T>(
        &self,
        call: Call,
        about: &str,
        answer: impl AsyncFnOnce(&FakeGarage) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        tokio::time::sleep(latency(&self.random)).await;
        let Some(site) = &self.site else {
            return self.fail(AdminErrorClass::Connect, call, "connection refused");
        };
        let mood = *lock(&site.mood);
        let turn = site.turn.fetch_add(1, Ordering::Relaxed);
        match mood {
            Mood::Down => return self.fail(AdminErrorClass::Connect, call, "connection refused"),
            Mood::Failing => return self.fail(AdminErrorClass::Unavailable, call, "503"),
            Mood::Slow(millis) => tokio::time::sleep(Duration::from_millis(u64::from(millis))).await,
            Mood::Well | Mood::Lossy => {}
        }
        if !self.token.is(&site.token) {
            return self.fail(AdminErrorClass::Unauthorized, call, "403");
        }
        let change = call.writes().then(|| {
            let id = BucketId::parse(about.split(' ').next().unwrap_or_default());
            let before = id.and_then(|id| {
                site.garage
                    .all_buckets()
                    .into_iter()
                    .find(|bucket| bucket.id == id)
            });
            Outside {
                who: self.who.clone(),
                place: self.url.clone(),
                call: call.name().to_owned(),
                about: about.to_owned(),
                before: before
                    .map(|bucket| bucket.global_aliases.join(","))
                    .unwrap_or_default(),
            }
        });
        let answer = answer(&site.garage).await;
        if let Some(change) = change.filter(|_| answer.is_ok()) {
            (self.listener)(change);
        }
        if mood == Mood::Lossy && turn % 2 == 0 {
            return self.fail(AdminErrorClass::Connect, call, "the answer was lost");
        }
        tokio::time::sleep(latency(&self.random)).await;
        answer
    }
}

#[async_trait]
impl GarageAdmin for GarageClient {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        self.call(Call::GetClusterHealth, "", async |garage: &FakeGarage| {
            garage.health().await
        })
        .await
    }
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.call(Call::GetBucketInfo, id.as_str(), async |garage: &FakeGarage| {
            garage.bucket_by_id(id).await
        })
        .await
    }
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::GetBucketInfo, alias, async |garage: &FakeGarage| {
            garage.bucket_by_alias(alias).await
        })
        .await
    }
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::CreateBucket, alias, async |garage: &FakeGarage| {
            garage.create_bucket(alias).await
        })
        .await
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.call(Call::UpdateBucket, id.as_str(), async |garage: &FakeGarage| {
            garage.update_bucket(id, update).await
        })
        .await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(
            Call::AddBucketAlias,
            &format!("{} {alias}", id.as_str()),
            async |garage: &FakeGarage| garage.add_alias(id, alias).await,
        )
        .await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(
            Call::RemoveBucketAlias,
            &format!("{} {alias}", id.as_str()),
            async |garage: &FakeGarage| garage.remove_alias(id, alias).await,
        )
        .await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.call(Call::DeleteBucket, id.as_str(), async |garage: &FakeGarage| {
            garage.delete_bucket(id).await
        })
        .await
    }
}
