//! The Tyks of a story: in memory, or over HTTP. The same words for both, so that a story is told before each.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use routewright::tyk::{
    client::{TykError, TykErrorClass},
    sync::{Syncing, Trouble},
};
use serde_json::Value;

use super::{
    http::Http,
    places::Kind,
    tyk::{Actors, Death, Tyk},
};

/// Where a story is told.
#[derive(Clone, Debug)]
pub(crate) enum Where {
    /// Before a Tyk that is a map, with a clock that stands still.
    Memory,
    /// Over HTTP, in real time.
    Http(Kind),
}

/// Tests of these stories in all places.
macro_rules! everywhere {
    ($($story:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $story() {
                super::$story($crate::tyks::Where::Memory).await;
            })*
        }
        mod in_a_gateway {
            $(#[tokio::test]
            async fn $story() {
                super::$story($crate::tyks::Where::Http($crate::places::Kind::Gateway)).await;
            })*
        }
        mod in_a_dashboard {
            $(#[tokio::test]
            async fn $story() {
                super::$story($crate::tyks::Where::Http($crate::places::Kind::Dashboard)).await;
            })*
        }
        mod in_a_tyk_gateway {
            $(#[tokio::test]
            async fn $story() {
                if let Some(kind) = $crate::places::Kind::given() {
                    super::$story($crate::tyks::Where::Http(kind)).await;
                }
            })*
        }
    };
}
pub(crate) use everywhere;

pub(crate) enum Tyks {
    Memory(Tyk),
    Http(Http),
}

impl Where {
    /// `env.mode` of a context.
    pub(crate) fn mode(&self) -> &'static str {
        match self {
            Self::Memory => "ce",
            Self::Http(kind) => kind.mode(),
        }
    }

    pub(crate) async fn start(&self, url: &str) -> Tyks {
        match self {
            Self::Memory => Tyks::Memory(Tyk::default()),
            Self::Http(kind) => {
                let http = Http::new(kind);
                http.start(url).await;
                Tyks::Http(http)
            }
        }
    }
}

impl Tyks {
    /// How a new process reaches them.
    pub(crate) fn actors(&self, client: Client) -> Arc<dyn Syncing> {
        match self {
            Self::Memory(tyk) => Arc::new(Actors::new(tyk)),
            Self::Http(http) => Arc::new(http.actors(client)),
        }
    }

    /// Every call ends with this, or works again.
    pub(crate) fn breaks(&self, how: Option<TykErrorClass>) {
        match self {
            Self::Memory(tyk) => tyk.breaks(how),
            Self::Http(http) => http.breaks(how),
        }
    }

    pub(crate) fn refuse_certificates(&self, refuses: bool) {
        match self {
            Self::Memory(tyk) => tyk.refuse_certificates(refuses),
            Self::Http(http) => http.refuse_certificates(refuses),
        }
    }

    /// One Tyk does not take its document of this id.
    pub(crate) fn refuse(&self, url: &str, id: &str) {
        match self {
            Self::Memory(tyk) => {
                let why = TykError::new(TykErrorClass::Refused, "400 not this one");
                tyk.trouble(id, Trouble::Failed(why));
            }
            Self::Http(http) => http.refuse(url),
        }
    }

    /// Everything is taken again.
    pub(crate) fn no_trouble(&self) {
        match self {
            Self::Memory(tyk) => tyk.no_trouble(),
            Self::Http(http) => http.breaks(None),
        }
    }

    /// The documents of one Tyk by id.
    pub(crate) fn at(&self, url: &str) -> BTreeMap<String, Value> {
        match self {
            Self::Memory(tyk) => tyk.at(url),
            Self::Http(http) => http.documents(url),
        }
    }

    pub(crate) fn ids(&self, url: &str) -> Vec<String> {
        self.at(url).into_keys().collect()
    }

    /// Puts a document there as somebody else.
    pub(crate) fn put(&self, url: &str, id: &str, document: Value) {
        match self {
            Self::Memory(tyk) => tyk.put(url, id, document),
            Self::Http(http) => http.put(url, document),
        }
    }

    pub(crate) fn lose(&self, url: &str) {
        match self {
            Self::Memory(tyk) => tyk.lose(url),
            Self::Http(http) => http.lose(url),
        }
    }

    pub(crate) fn certificates(&self) -> usize {
        match self {
            Self::Memory(tyk) => tyk.certificates(),
            Self::Http(http) => http.certificates(),
        }
    }

    /// Writes since the last time, `POST <id>`, `DELETE <id>`, `CERT …`.
    pub(crate) fn writes(&self) -> Vec<String> {
        match self {
            Self::Memory(tyk) => tyk.writes(),
            Self::Http(http) => http.writes(),
        }
    }

    /// Reads since the last time.
    pub(crate) fn reads(&self) -> usize {
        match self {
            Self::Memory(tyk) => tyk.reads(),
            Self::Http(http) => http.reads(),
        }
    }

    /// Another name of a Tyk that is there; in memory there is none.
    pub(crate) fn alias(&self, url: &str, name: &str) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Http(http) => {
                http.alias(url, name);
                true
            }
        }
    }

    // --- in memory alone ---

    fn memory(&self) -> &Tyk {
        match self {
            Self::Memory(tyk) => tyk,
            Self::Http(_) => panic!("only a Tyk in memory can do that"),
        }
    }

    /// Writing this id ends with trouble although the call is answered.
    pub(crate) fn trouble(&self, id: &str, trouble: Trouble) {
        self.memory().trouble(id, trouble);
    }

    /// The process dies at its n-th write from now.
    pub(crate) fn die_at(&self, write: usize, how: Death) {
        self.memory().die_at(write, how);
    }

    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::Memory(tyk) => tyk.is_dead(),
            Self::Http(_) => false,
        }
    }

    pub(crate) fn revive(&self) {
        if let Self::Memory(tyk) = self {
            tyk.revive();
        }
    }
}
