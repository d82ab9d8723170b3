//! How long a Tyk that asks for patience is waited for: as long as it says, and not longer than one operation may take;
//! and how often a way to Tyk that cannot be had is asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
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
            http::{Access, Limits, Pools},
        },
        objects::{Fingerprint, Key},
        sync::{Actors, Connector, Settings, Syncing as _},
        verdict::{CertificateUse, Connection, Mode},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::stage::{BOTH, api, id, trusted};

/// Answers the first request like this and every other one with an empty document; how many there were.
async fn server(first: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).await.is_err() {
                    break;
                }
                head.push(byte[0]);
            }
            let whole = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let answer = match count.fetch_add(1, Ordering::SeqCst) {
                0 => first.as_str(),
                _ => whole,
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, asked)
}

fn client(mode: Mode, url: String, limits: Limits) -> Arc<dyn TykApi> {
    let pools = Pools::new(None, limits).unwrap();
    let access = Access {
        url,
        org: "org1".to_owned(),
        credential: "secret".to_owned(),
        insecure: false,
    };
    let meter = TykMeter::default();
    match mode {
        Mode::OpenSource => Arc::new(Gateway::new(&pools, &access, Arc::new(|| true), meter).unwrap()),
        Mode::Dashboard => Arc::new(Dashboard::new(&pools, &access, Arc::new(|| true), meter).unwrap()),
    }
}

fn answer(status: &str, after: &str) -> String {
    format!("HTTP/1.1 {status}\r\nretry-after: {after}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

#[tokio::test]
async fn retry_after_beats_the_wait_of_the_client() {
    for mode in BOTH {
        for status in ["429 Too Many Requests", "503 Service Unavailable"] {
            // given a client that would wait for an hour, and a Tyk that asks for no wait at all
            let (url, asked) = server(answer(status, "0")).await;
            let limits = Limits {
                wait: Duration::from_secs(3600),
                operation: Duration::from_secs(36_000),
                ..Limits::default()
            };
            let client = client(mode, url, limits);
            // then it is asked again at once
            let found = tokio::time::timeout(Duration::from_secs(30), client.get("gwapi-1"));
            let found = found.await.expect("within half a minute").unwrap();
            assert!(found.is_some());
            assert_eq!(asked.load(Ordering::SeqCst), 2, "{mode:?} {status}");
        }
    }
}

#[tokio::test]
async fn retry_after_is_not_waited_for_beyond_the_operation() {
    for mode in BOTH {
        for after in ["3600", "86400", "18446744073709551615"] {
            let (url, asked) = server(answer("429 Too Many Requests", after)).await;
            let client = client(mode, url, Limits::default());
            // when it asks for more than an operation may take, it fails at once, and says why
            let found = tokio::time::timeout(Duration::from_secs(20), client.get("gwapi-1"));
            let error = found.await.expect("it does not wait").unwrap_err();
            assert_eq!(error.class, TykErrorClass::Busy, "{error}");
            assert!(error.message.contains("429"), "{error}");
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{mode:?} {after}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_that_is_none_is_passed_over() {
    for mode in BOTH {
        for after in [
            "soon",
            "-1",
            "18446744073709551616",
            "Wed, 21 Oct 2099 07:28:00 GMT",
            "",
        ] {
            let (url, asked) = server(answer("503 Service Unavailable", after)).await;
            let limits = Limits {
                wait: Duration::from_millis(1),
                ..Limits::default()
            };
            client(mode, url, limits).get("gwapi-1").await.unwrap();
            assert_eq!(asked.load(Ordering::SeqCst), 2, "{mode:?} {after}");
        }
    }
}

/// The right to read the credential is gone.
#[derive(Default)]
struct Unreadable(AtomicUsize);

impl Unreadable {
    fn refused() -> TykError {
        TykError::new(
            TykErrorClass::Failing,
            "Secret tyk/credential cannot be read: forbidden",
        )
    }
}

#[async_trait]
impl Connector for Unreadable {
    async fn connect(&self, _: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(Self::refused())
    }

    async fn bundle(&self, _: &CertificateUse) -> Result<Bundle, TykError> {
        Err(Self::refused())
    }
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_may_not_be_read_is_asked_for_ever_more_rarely() {
    for mode in BOTH {
        // Given a process that starts and trusts what an earlier one has written
        let connector = Arc::new(Unreadable::default());
        let settings = Settings::default();
        let actors = Actors::new(
            connector.clone(),
            Arc::new(|_: &Key| ()),
            Arc::new(|| true),
            settings,
        );
        let connection = Arc::new(Connection {
            url: "http://tyk.tyk.svc:8080".to_owned(),
            org: "org1".to_owned(),
            mode,
            context: Key::new("tyk", "context"),
            fingerprint: Fingerprint("one".to_owned()),
        });
        let done = actors.submit(&connection, trusted("r", vec![api(1, "/a")])).await;
        assert!(done.is_clean(), "{:?} of {}", done, id(1));
        // When its credential cannot be read for ten minutes, then it is asked for some dozen times
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = connector.0.load(Ordering::SeqCst);
        assert!((5..40).contains(&asked), "{mode:?}: {asked} times");
    }
}
