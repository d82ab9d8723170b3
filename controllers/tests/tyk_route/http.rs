//! Tyks over HTTP behind the same words as the one in memory, reached by the operator's own clients and actors. What a
//! story calls `http://tyk.tyk.svc:8080` is started when it is asked first. No assertion about the product.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use kube::Client;
use routewright::{
    telemetry::tyk::TykMeter,
    tyk::{
        client::{
            Bundle, TykApi, TykError, TykErrorClass,
            connect::KubeConnector,
            dashboard::Dashboard,
            gateway::Gateway,
            http::{Access, Limits, MayWrite, Pools},
        },
        sync::{Actors, Connector, Settings},
        verdict::{CertificateUse, Connection, Mode},
    },
};
use routewright_tyk_double::{Asked, Fault};
use serde_json::Value;

use super::places::{CREDENTIAL, Kind, Place};

/// All Tyks of a story.
pub(crate) struct Http(Arc<Inner>);

struct Inner {
    kind: Kind,
    places: tokio::sync::Mutex<()>,
    started: Mutex<BTreeMap<String, Arc<Place>>>,
    /// In force at every Tyk, also at those that are started later.
    faults: Mutex<Vec<Fault>>,
    writes_since: Mutex<Instant>,
    reads_since: Mutex<Instant>,
}

impl Drop for Http {
    fn drop(&mut self) {
        // Whoever still writes for a process that is gone finds nobody.
        self.0.started.lock().unwrap().clear();
    }
}

impl Inner {
    async fn place(&self, url: &str) -> Arc<Place> {
        let _one_at_a_time = self.places.lock().await;
        if let Some(place) = self.at(url) {
            return place;
        }
        let place = Arc::new(self.kind.start().await);
        for fault in self.faults.lock().unwrap().iter() {
            place.handle().inject(fault.clone());
        }
        let mut started = self.started.lock().unwrap();
        started.insert(url.to_owned(), Arc::clone(&place));
        place
    }

    fn at(&self, url: &str) -> Option<Arc<Place>> {
        self.started.lock().unwrap().get(url).cloned()
    }
}

impl Http {
    pub(crate) fn new(kind: &Kind) -> Self {
        let now = Instant::now();
        Self(Arc::new(Inner {
            kind: kind.clone(),
            places: tokio::sync::Mutex::default(),
            started: Mutex::default(),
            faults: Mutex::default(),
            writes_since: Mutex::new(now),
            reads_since: Mutex::new(now),
        }))
    }

    /// The Tyk behind this URL is there.
    pub(crate) async fn start(&self, url: &str) {
        self.0.place(url).await;
    }

    /// Actors of a new process.
    pub(crate) fn actors(&self, client: Client) -> Actors {
        let real = matches!(self.0.kind, Kind::Tyk(_));
        let defaults = Settings::default();
        let settings = Settings {
            // No look but those that a story asks for.
            check_every: Duration::from_secs(3_600),
            canary: Duration::from_secs(3_600),
            backoff: (Duration::from_millis(50), Duration::from_millis(400)),
            burst: (50, Duration::from_millis(5)),
            settle: match real {
                true => defaults.settle,
                false => vec![Duration::from_millis(20); 2],
            },
            hold: Duration::from_millis(300),
            checks_per_second: 1_000,
            ..Settings::default()
        };
        let limits = Limits {
            wait: Duration::from_millis(10),
            operation: Duration::from_secs(10),
            ..Limits::default()
        };
        let may_write: MayWrite = Arc::new(|| true);
        let pools = Arc::new(Pools::new(None, limits).unwrap());
        let connector = Connecting {
            inner: Arc::clone(&self.0),
            pools: Arc::clone(&pools),
            secrets: KubeConnector::new(client, pools, Arc::clone(&may_write), TykMeter::default()),
            may_write: Arc::clone(&may_write),
        };
        Actors::new(Arc::new(connector), Arc::new(|_| {}), may_write, settings)
    }

    /// Another name of a Tyk that is there.
    pub(crate) fn alias(&self, url: &str, name: &str) {
        let place = self.0.at(url).unwrap();
        self.0.started.lock().unwrap().insert(name.to_owned(), place);
    }

    // --- what goes wrong ---

    fn faults(&self, faults: Vec<Fault>) {
        for place in self.0.started.lock().unwrap().values() {
            place.handle().clear_faults();
            for fault in &faults {
                place.handle().inject(fault.clone());
            }
        }
        *self.0.faults.lock().unwrap() = faults;
    }

    pub(crate) fn breaks(&self, how: Option<TykErrorClass>) {
        let all = Fault::on("", "/").always();
        self.faults(match how {
            None => Vec::new(),
            Some(TykErrorClass::Unreachable) => vec![all.drop_before()],
            Some(TykErrorClass::Failing) => vec![all.status(503, "later")],
            Some(other) => panic!("no fault makes {other:?}"),
        });
    }

    pub(crate) fn refuse_certificates(&self, refuses: bool) {
        let refusal = |path| {
            let fault = Fault::on("POST", path).always();
            fault.status(403, "certificate is expired")
        };
        self.faults(match refuses {
            true => vec![refusal("/tyk/certs"), refusal("/api/certs")],
            false => Vec::new(),
        });
    }

    /// This Tyk takes no document.
    pub(crate) fn refuse(&self, url: &str) {
        let place = self.0.at(url).unwrap();
        for (method, path) in [("POST", "/tyk/apis"), ("POST", "/api/apis"), ("PUT", "/api/apis")] {
            let fault = Fault::on(method, path).always();
            place.handle().inject(fault.status(400, "not this one"));
        }
    }

    // --- what there is ---

    pub(crate) fn documents(&self, url: &str) -> BTreeMap<String, Value> {
        self.0.at(url).map(|place| place.loaded()).unwrap_or_default()
    }

    pub(crate) fn put(&self, url: &str, document: Value) {
        self.0.at(url).unwrap().put(document);
    }

    pub(crate) fn lose(&self, url: &str) {
        if let Some(place) = self.0.at(url) {
            place.lose_files();
        }
    }

    pub(crate) fn certificates(&self) -> usize {
        let started = self.0.started.lock().unwrap();
        started.values().map(|place| place.certificates()).sum()
    }

    /// What all were asked since the last time, in the order in which it came.
    fn asked(&self, since: &Mutex<Instant>) -> Vec<Asked> {
        let before = std::mem::replace(&mut *since.lock().unwrap(), Instant::now());
        let started = self.0.started.lock().unwrap();
        let requests = started.values().flat_map(|place| place.handle().requests());
        let mut asked: Vec<Asked> = requests.filter(|asked| asked.at >= before).collect();
        asked.sort_by_key(|asked| asked.at);
        asked
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for asked in self.asked(&self.0.writes_since) {
            let path = asked.path.split('?').next().unwrap();
            let last = path.rsplit('/').next().unwrap();
            let certificate = path.contains("/certs");
            if asked.status.is_some_and(|status| status < 300) {
                match (asked.method.as_str(), certificate) {
                    ("GET", _) => {}
                    ("DELETE", _) => lines.push(format!("DELETE {last}")),
                    (_, true) => lines.push("CERT".to_owned()),
                    _ => lines.push(format!("POST {}", asked.document.unwrap_or_default())),
                }
            }
        }
        lines
    }

    pub(crate) fn reads(&self) -> usize {
        let asked = self.asked(&self.0.reads_since);
        let reads = asked
            .iter()
            .filter(|asked| asked.method == "GET" && asked.path.contains("/apis"));
        reads.count()
    }
}

/// Leads what a story calls a Tyk to the one that was started for it.
struct Connecting {
    inner: Arc<Inner>,
    pools: Arc<Pools>,
    secrets: KubeConnector,
    may_write: MayWrite,
}

#[async_trait]
impl Connector for Connecting {
    async fn connect(&self, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        let place = self.inner.place(&connection.url).await;
        let access = Access {
            url: place.handle().url(),
            org: connection.org.clone(),
            credential: CREDENTIAL.to_owned(),
            insecure: false,
        };
        let (may_write, meter) = (Arc::clone(&self.may_write), TykMeter::default());
        Ok(match connection.mode {
            Mode::OpenSource => Arc::new(Gateway::new(&self.pools, &access, may_write, meter)?),
            Mode::Dashboard => Arc::new(Dashboard::new(&self.pools, &access, may_write, meter)?),
        })
    }

    async fn bundle(&self, used: &CertificateUse) -> Result<Bundle, TykError> {
        self.secrets.bundle(used).await
    }
}
