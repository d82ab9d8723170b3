//! A gateway to ask: the stand-in; or the given Tyk Gateway, or one that is started for the test, with Redis, and stopped
//! after it.

use std::net::SocketAddr;

use routewright::tyk::translate::TykApi;
use routewright_tyk_double as double;
use serde_json::Value;

pub(crate) use crate::tyk_gateway::Switches;
use crate::{
    tyk_gateway::{self, TykGateway},
    wire::{self, Answer},
};

/// Secret of what is started for the test.
const SECRET: &str = "secret-of-the-test";

/// Which gateway is asked.
pub(crate) enum Given {
    /// The stand-in.
    Double,
    /// A Tyk Gateway.
    Tyk(tyk_gateway::Given),
}

/// A gateway that answers.
pub(crate) struct Gateway {
    address: SocketAddr,
    secret: String,
    pub(crate) switches: Switches,
    /// Stopped with the rest.
    tyk: Option<TykGateway>,
    /// The stand-in, and the threads that it runs on.
    _double: Option<(double::Running, tokio::runtime::Runtime)>,
}

impl Gateway {
    pub(crate) fn start(given: &Given, switches: Switches) -> Self {
        match given {
            Given::Double => Self::stand_in(switches),
            Given::Tyk(given) => {
                let tyk = TykGateway::start(given, switches, SECRET);
                Self {
                    address: tyk.address,
                    secret: tyk.secret.clone(),
                    switches,
                    tyk: Some(tyk),
                    _double: None,
                }
            }
        }
    }

    fn stand_in(switches: Switches) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let settings = double::Double::gateway().secret(SECRET).switches(match switches {
            Switches::On => double::Switches::ON,
            Switches::Off => double::Switches::OFF,
        });
        let settings = settings.environment("TYK_SECRET_OF_THE_TEST", "the-secret-itself");
        let running = runtime.block_on(settings.start()).unwrap();
        Self {
            address: running.address(),
            secret: SECRET.to_owned(),
            switches,
            tyk: None,
            _double: Some((running, runtime)),
        }
    }

    // --- data ---------------------------------------------------------------------------------------------

    pub(crate) fn ask(&self, method: &str, target: &str) -> Answer {
        wire::send(self.address, method, target, &[], b"")
    }

    pub(crate) fn ask_with(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        wire::send(self.address, method, target, headers, b"")
    }

    pub(crate) fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        wire::send(self.address, method, target, headers, body.as_bytes())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    // --- control ------------------------------------------------------------------------------------------

    pub(crate) fn control(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        let headers = [("x-tyk-authorization", self.secret.as_str())];
        wire::send(self.address, method, target, &headers, body)
    }

    pub(crate) fn post(&self, api: &TykApi) {
        let answer = self.control("POST", "/tyk/apis/oas", &api.canonical());
        assert_eq!(
            answer.status, 200,
            "{}: {}\n{}",
            api.id, answer.body, api.document
        );
    }

    /// The document as it is loaded.
    pub(crate) fn get(&self, id: &str) -> Value {
        let answer = self.control("GET", &format!("/tyk/apis/oas/{id}"), b"");
        assert_eq!(answer.status, 200, "{id} is not loaded: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    pub(crate) fn reload(&self) {
        let answer = self.control("GET", "/tyk/reload/?block=true", b"");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Leaves nothing behind in a gateway that is not ours to stop.
    pub(crate) fn clean(&self, ids: &[String]) {
        if self.tyk.as_ref().is_some_and(|tyk| !tyk.is_own()) {
            for id in ids {
                self.control("DELETE", &format!("/tyk/apis/oas/{id}"), b"");
            }
            self.reload();
        }
    }

    pub(crate) fn show_log(&self) {
        if let Some(tyk) = &self.tyk {
            tyk.show_log();
        }
    }
}
