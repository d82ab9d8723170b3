//! Where tests find a Tyk over HTTP: the stand-in as gateway or Dashboard, or a Tyk Gateway that was given, behind the
//! stand-in as a front with its faults and stops. No assertion about the product.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use routewright_tyk_double::{Double, Handle, Running};
use serde_json::{Value, json};

use crate::tyk_gateway::{Given, Switches, TykGateway};

/// What the Secret of the tests holds.
pub const CREDENTIAL: &str = "s3cret-credential";
/// Organisation of the tests.
pub const ORG: &str = "o1";

/// Which Tyk.
#[derive(Clone)]
pub enum Kind {
    Gateway,
    Dashboard,
    /// A real gateway; started when one is needed, used again by the same story.
    Tyk(Arc<Pool>),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "Gateway",
            Self::Dashboard => "Dashboard",
            Self::Tyk(_) => "Tyk Gateway",
        })
    }
}

/// Real gateways that are started and not in use.
pub struct Pool {
    given: Given,
    idle: Mutex<Vec<TykGateway>>,
}

impl Kind {
    /// A Tyk Gateway of the story's own, or a line that says why there is none.
    pub fn given() -> Option<Self> {
        let given = Given::or_say()?;
        if matches!(given, Given::Url { .. }) {
            println!(
                "not run before a Tyk Gateway: each story needs one of its own, which TYK_GATEWAY_BIN is for"
            );
            return None;
        }
        Some(Self::Tyk(Arc::new(Pool {
            given,
            idle: Mutex::default(),
        })))
    }

    /// Both kinds of stand-in, and a Tyk Gateway if one is given.
    pub fn all() -> Vec<Self> {
        let given = Self::given();
        [Self::Gateway, Self::Dashboard]
            .into_iter()
            .chain(given)
            .collect()
    }

    /// `env.mode` of a context that leads there.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Gateway | Self::Tyk(_) => "ce",
            Self::Dashboard => "pro",
        }
    }

    /// An empty Tyk.
    pub async fn start(&self) -> Place {
        let (double, behind) = match self {
            Self::Gateway => (Double::gateway(), None),
            Self::Dashboard => (Double::dashboard(), None),
            Self::Tyk(pool) => {
                let idle = pool.idle.lock().unwrap().pop();
                let tyk = idle.unwrap_or_else(|| TykGateway::start(&pool.given, Switches::On, CREDENTIAL));
                let front = Double::gateway().before(tyk.address);
                (front, Some((tyk, Arc::clone(pool))))
            }
        };
        let running = double.secret(CREDENTIAL).org(ORG).start().await.unwrap();
        let place = Place { running, behind };
        if let Some(tyk) = place.tyk() {
            tyk.empty();
            tyk.empty_store(ORG);
        }
        place
    }
}

/// A Tyk that answers.
pub struct Place {
    running: Running,
    behind: Option<(TykGateway, Arc<Pool>)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((tyk, pool)) = self.behind.take() {
            if std::thread::panicking() {
                tyk.show_log();
            }
            pool.idle.lock().unwrap().push(tyk);
        }
    }
}

impl Place {
    /// Where faults are made, and what it was asked.
    pub fn handle(&self) -> Handle {
        self.running.handle()
    }

    fn tyk(&self) -> Option<&TykGateway> {
        self.behind.as_ref().map(|(tyk, _)| tyk)
    }

    /// Documents as they are loaded, by id.
    pub fn loaded(&self) -> BTreeMap<String, Value> {
        match self.tyk() {
            Some(tyk) => tyk.documents(),
            None => self.handle().loaded(),
        }
    }

    /// Documents as they were written; of a Tyk Gateway, as they are loaded.
    pub fn files(&self) -> BTreeMap<String, Value> {
        match self.tyk() {
            Some(tyk) => tyk.documents(),
            None => self.handle().files(),
        }
    }

    /// What was written is loaded, without anybody of the operator asking for it.
    pub fn load(&self) {
        match self.tyk() {
            Some(tyk) => tyk.reload(),
            None => self.handle().load(),
        }
    }

    /// How many certificates its store has.
    pub fn certificates(&self) -> usize {
        match self.tyk() {
            Some(tyk) => tyk.certificates(ORG).len(),
            None => self.handle().certificates().len(),
        }
    }

    // --- behind the operator's back ---

    /// Everything that was written is gone.
    pub fn lose_files(&self) {
        match self.tyk() {
            Some(tyk) => tyk.empty(),
            None => self.handle().lose_files(),
        }
    }

    /// Somebody puts a document there, which names its id, and it is loaded.
    pub fn put(&self, document: Value) {
        match self.tyk() {
            Some(tyk) => {
                tyk.post(&document);
                tyk.reload();
            }
            None => self.handle().create(document),
        }
    }

    /// Somebody gives a document another title.
    pub fn retitle(&self, id: &str, title: &str) {
        match self.tyk() {
            Some(tyk) => {
                let mut document = tyk.documents()[id].clone();
                document["info"]["title"] = json!(title);
                tyk.post(&document);
                tyk.reload();
            }
            None => assert!(self.handle().edit(id, |d| d["info"]["title"] = json!(title))),
        }
    }

    /// Somebody removes a document.
    pub fn remove(&self, id: &str) {
        match self.tyk() {
            Some(tyk) => {
                tyk.control("DELETE", &format!("/tyk/apis/oas/{id}"), b"");
                tyk.reload();
            }
            None => assert!(self.handle().remove(id)),
        }
    }
}
