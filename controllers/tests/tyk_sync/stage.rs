//! What the stories stand on: a stand-in, actors that reach it, jobs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use routewright::{
    telemetry::tyk::TykMeter,
    tyk::{
        client::{
            Bundle, TykApi, TykError, TykErrorClass,
            dashboard::Dashboard,
            gateway::Gateway,
            http::{Access, Limits, MayWrite, Pools},
        },
        objects::{Fingerprint, Key},
        sync::{Actors, Connector, Done, Job, Settings, Syncing as _},
        translate::{Owner, TykApi as Api},
        verdict::{CertificateUse, Connection, Mode},
    },
};
use routewright_tyk_double::{Double, Handle, Running};
use serde_json::{Value, json};

pub(crate) const SECRET: &str = "secret-of-the-test";
pub(crate) const BOTH: [Mode; 2] = [Mode::OpenSource, Mode::Dashboard];

/// Credentials by context and bundles by Secret, where the operator asks Kubernetes.
pub(crate) struct Given {
    pools: Pools,
    may_write: MayWrite,
    meter: TykMeter,
    pub(crate) credential: Mutex<String>,
    pub(crate) bundles: Mutex<BTreeMap<Key, Vec<u8>>>,
    pub(crate) connects: AtomicUsize,
    /// user_owners and user_group_owners of the context.
    pub(crate) owners: Mutex<(Vec<String>, Vec<String>)>,
}

#[async_trait]
impl Connector for Given {
    async fn connect(&self, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        self.connects.fetch_add(1, Ordering::SeqCst);
        let access = Access {
            url: connection.url.clone(),
            org: connection.org.clone(),
            credential: self.credential.lock().unwrap().clone(),
            insecure: false,
        };
        let (may_write, meter) = (Arc::clone(&self.may_write), self.meter.clone());
        Ok(match connection.mode {
            Mode::OpenSource => Arc::new(Gateway::new(&self.pools, &access, may_write, meter)?),
            Mode::Dashboard => {
                let (users, groups) = self.owners.lock().unwrap().clone();
                let dashboard = Dashboard::new(&self.pools, &access, may_write, meter)?;
                Arc::new(dashboard.owned_by(users, groups))
            }
        })
    }

    async fn bundle(&self, used: &CertificateUse) -> Result<Bundle, TykError> {
        let bundles = self.bundles.lock().unwrap();
        let found = bundles.get(&used.secret).cloned();
        found
            .map(Bundle)
            .ok_or_else(|| TykError::new(TykErrorClass::NoConnection, "Secret does not exist"))
    }
}

/// Fast enough for a test; no look but those that a story asks for.
pub(crate) fn settings() -> Settings {
    Settings {
        check_every: Duration::from_secs(3600),
        canary: Duration::from_secs(3600),
        backoff: (Duration::from_millis(50), Duration::from_millis(400)),
        burst: (50, Duration::from_millis(5)),
        settle: vec![Duration::from_millis(20); 2],
        hold: Duration::from_millis(300),
        checks_per_second: 1000,
        ..Settings::default()
    }
}

/// Holds on as long as a slow machine may take for what comes a little later.
pub(crate) fn patient() -> Settings {
    Settings {
        hold: Duration::from_secs(30),
        ..settings()
    }
}

/// No answer of a stand-in takes so long, on no machine.
pub(crate) fn limits() -> Limits {
    Limits {
        attempt: Duration::from_secs(20),
        operation: Duration::from_secs(50),
        wait: Duration::from_millis(10),
        ..Limits::default()
    }
}

/// For stories of a Tyk that does not answer.
fn impatient() -> Limits {
    Limits {
        attempt: Duration::from_millis(400),
        operation: Duration::from_secs(2),
        ..limits()
    }
}

/// One Tyk and one process.
pub(crate) struct Stage {
    pub(crate) tyk: Arc<Running>,
    pub(crate) mode: Mode,
    pub(crate) actors: Actors,
    pub(crate) given: Arc<Given>,
    pub(crate) leads: Arc<AtomicBool>,
    pub(crate) drifted: Arc<Mutex<Vec<Key>>>,
    pub(crate) connection: Arc<Connection>,
}

impl Stage {
    pub(crate) async fn new(mode: Mode) -> Self {
        Self::with(mode, settings()).await
    }

    pub(crate) async fn with(mode: Mode, settings: Settings) -> Self {
        Self::process(Self::tyk_of(mode).await, mode, settings)
    }

    /// A process that soon gives a request up.
    pub(crate) async fn impatient(mode: Mode) -> Self {
        Self::process_within(Self::tyk_of(mode).await, mode, settings(), impatient())
    }

    async fn tyk_of(mode: Mode) -> Arc<Running> {
        let double = match mode {
            Mode::OpenSource => Double::gateway(),
            Mode::Dashboard => Double::dashboard(),
        };
        Arc::new(double.secret(SECRET).org("org1").start().await.unwrap())
    }

    /// A new process before the same Tyk.
    pub(crate) fn again(&self) -> Self {
        Self::process(Arc::clone(&self.tyk), self.mode, settings())
    }

    pub(crate) fn process(tyk: Arc<Running>, mode: Mode, settings: Settings) -> Self {
        Self::process_within(tyk, mode, settings, limits())
    }

    fn process_within(tyk: Arc<Running>, mode: Mode, settings: Settings, limits: Limits) -> Self {
        let leads = Arc::new(AtomicBool::new(true));
        let lease = Arc::clone(&leads);
        let may_write: MayWrite = Arc::new(move || lease.load(Ordering::SeqCst));
        let given = Arc::new(Given {
            pools: Pools::new(None, limits).unwrap(),
            may_write: Arc::clone(&may_write),
            meter: settings.meter.clone(),
            credential: Mutex::new(SECRET.to_owned()),
            bundles: Mutex::default(),
            connects: AtomicUsize::new(0),
            owners: Mutex::default(),
        });
        let drifted: Arc<Mutex<Vec<Key>>> = Arc::default();
        let told = Arc::clone(&drifted);
        let connector: Arc<dyn Connector> = given.clone();
        let actors = Actors::new(
            connector,
            Arc::new(move |key: &Key| told.lock().unwrap().push(key.clone())),
            may_write,
            settings,
        );
        let connection = Arc::new(Connection {
            url: tyk.url(),
            org: "org1".to_owned(),
            mode,
            context: Key::new("tyk", "context"),
            fingerprint: Fingerprint("one".to_owned()),
        });
        Self {
            tyk,
            mode,
            actors,
            given,
            leads,
            drifted,
            connection,
        }
    }

    /// A process before the gateway at `url`; the stand-in beside it is not asked.
    pub(crate) async fn before(url: &str, secret: &str, settings: Settings) -> Self {
        let mut stage = Self::with(Mode::OpenSource, settings).await;
        *stage.given.credential.lock().unwrap() = secret.to_owned();
        stage.connection = Arc::new(Connection {
            url: url.trim_end_matches('/').to_owned(),
            ..(*stage.connection).clone()
        });
        stage
    }

    pub(crate) fn tyk(&self) -> Handle {
        self.tyk.handle()
    }

    pub(crate) async fn submit(&self, job: Job) -> Done {
        tokio::time::timeout(
            Duration::from_secs(120),
            self.actors.submit(&self.connection, job),
        )
        .await
        .expect("a job is answered within two minutes")
    }

    /// Hands it in and expects that everything stands.
    pub(crate) async fn clean(&self, job: Job) -> Done {
        let done = self.submit(job).await;
        assert!(done.is_clean(), "{done:?}");
        done
    }

    pub(crate) async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let until = tokio::time::Instant::now() + Duration::from_secs(120);
        while !holds() {
            assert!(
                tokio::time::Instant::now() < until,
                "not in time: {what}\n{:#?}",
                self.tyk.requests()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn told(&self) -> Vec<Key> {
        self.drifted.lock().unwrap().clone()
    }

    /// `POST /tyk/apis/oas 200`, without looks that only ask.
    pub(crate) fn log(&self) -> Vec<String> {
        let requests = self.tyk.requests();
        requests
            .iter()
            .map(|asked| format!("{} {}", asked.method, asked.path))
            .collect()
    }
}

pub(crate) fn owner(route: &str) -> Owner {
    Owner {
        cluster: "cluster-1".to_owned(),
        controller: "routewright.dev/tyk".to_owned(),
        route: Key::new("shop", route),
        uid: format!("uid-of-{route}"),
    }
}

pub(crate) fn id(n: u32) -> String {
    format!("gwapi-{n:020x}")
}

/// A whole document that a gateway takes.
pub(crate) fn document(id: &str, host: &str, path: &str, upstream: &str) -> Value {
    json!({
        "openapi": "3.0.3",
        "info": {"title": id, "version": "1.0.0"},
        "paths": {"/(?s).*": {"get": {"operationId": format!("get-{id}"), "responses": {"200": {"description": "ok"}}}}},
        "x-tyk-api-gateway": {
            "info": {"id": id, "orgId": "org1", "name": id, "state": {"active": true}},
            "server": {
                "listenPath": {"value": path, "strip": true},
                "customDomain": {"enabled": true, "name": host},
            },
            "upstream": {"url": upstream},
            "middleware": {"operations": {format!("get-{id}"): {"allow": {"enabled": true}}}},
        },
    })
}

pub(crate) fn api(n: u32, path: &str) -> Api {
    version(n, path, 1)
}

/// Another version of the same API.
pub(crate) fn version(n: u32, path: &str, version: u32) -> Api {
    let id = id(n);
    let upstream = format!("http://backend-{version}.shop.svc.cluster.local:80{path}");
    Api {
        document: document(&id, "shop.example.com", path, &upstream),
        id,
    }
}

pub(crate) fn job(route: &str, apis: Vec<Api>) -> Job {
    Job {
        owner: owner(route),
        apis: apis.into_iter().map(Arc::new).collect(),
        remove: Vec::new(),
        certificates: Vec::new(),
        trusted: false,
    }
}

pub(crate) fn removal(route: &str, ids: &[u32]) -> Job {
    Job {
        remove: ids.iter().map(|n| id(*n)).collect(),
        ..job(route, Vec::new())
    }
}

pub(crate) fn trusted(route: &str, apis: Vec<Api>) -> Job {
    Job {
        trusted: true,
        ..job(route, apis)
    }
}

/// Documents by id without what names a process or a moment.
pub(crate) fn state(tyk: &Handle) -> BTreeMap<String, Value> {
    let mut loaded = tyk.loaded();
    for document in loaded.values_mut() {
        // Each stage is another Tyk, and the mark tells of it.
        if let Some(root) = document.as_object_mut() {
            root.remove("x-routewright-tyk");
            root.remove("x-routewright-hash");
        }
        // The Dashboard's own number: a creation whose answer was lost has another one.
        if let Some(info) = document
            .pointer_mut("/x-tyk-api-gateway/info")
            .and_then(Value::as_object_mut)
        {
            info.remove("dbId");
        }
    }
    loaded
}
