//! Many routes at once, by a clock of the test: how long they wait for one another before Tyk is asked to reload, and for
//! how long a Tyk is asked that does not answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use routewright::tyk::{
    client::{Bundle, Listed, StoredCertificate, TykApi, TykError, TykErrorClass},
    objects::{Fingerprint, Key},
    sync::{Actors, Connector, Settings, Syncing as _},
    verdict::{CertificateUse, Connection, Mode},
};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use crate::stage::{api, job};

/// A gateway that loads what it was given at the next tick of a second, as Tyk does.
#[derive(Default)]
struct Ticking {
    began: Option<Instant>,
    files: Mutex<HashMap<String, Value>>,
    loaded: Mutex<HashMap<String, Value>>,
    reloads: AtomicUsize,
}

#[async_trait]
impl TykApi for Ticking {
    fn mode(&self) -> Mode {
        Mode::OpenSource
    }
    async fn get(&self, id: &str) -> Result<Option<Value>, TykError> {
        Ok(self.loaded.lock().unwrap().get(id).cloned())
    }
    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        Ok(Vec::new())
    }
    async fn put(&self, id: &str, document: &Value, _: bool) -> Result<(), TykError> {
        self.files.lock().unwrap().insert(id.to_owned(), document.clone());
        Ok(())
    }
    async fn delete(&self, id: &str) -> Result<bool, TykError> {
        self.files.lock().unwrap().remove(id);
        Ok(false)
    }
    async fn reload(&self) -> Result<(), TykError> {
        self.reloads.fetch_add(1, Ordering::SeqCst);
        let began = self.began.unwrap();
        sleep_until(began + Duration::from_secs(began.elapsed().as_secs() + 1)).await;
        *self.loaded.lock().unwrap() = self.files.lock().unwrap().clone();
        Ok(())
    }
    async fn certificate(&self, _: &str) -> Result<Option<StoredCertificate>, TykError> {
        Ok(None)
    }
    async fn upload(&self, _: &str, _: &Bundle) -> Result<String, TykError> {
        panic!("there are no certificates")
    }
    async fn replace(&self, _: &str, _: &Bundle) -> Result<String, TykError> {
        panic!("there are no certificates")
    }
}

struct Reached(Arc<Ticking>);

#[async_trait]
impl Connector for Reached {
    async fn connect(&self, _: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        Ok(Arc::clone(&self.0) as Arc<dyn TykApi>)
    }
    async fn bundle(&self, _: &CertificateUse) -> Result<Bundle, TykError> {
        panic!("there are no certificates")
    }
}

fn connection() -> Arc<Connection> {
    Arc::new(Connection {
        url: "http://tyk".to_owned(),
        org: "org1".to_owned(),
        mode: Mode::OpenSource,
        context: Key::new("tyk", "main"),
        fingerprint: Fingerprint("f".into()),
    })
}

/// What came of one route: handed in and answered so long after the beginning.
#[derive(Debug)]
struct Answered {
    handed_in: Duration,
    answered: Duration,
}

/// Routes that come one after the other, `apart`; how long each took, and how often Tyk was asked to reload since.
async fn crowd(routes: u32, apart: Duration) -> (Vec<Answered>, usize) {
    let tyk = Arc::new(Ticking {
        began: Some(Instant::now()),
        ..Ticking::default()
    });
    let actors = Actors::new(
        Arc::new(Reached(Arc::clone(&tyk))),
        Arc::new(|_| ()),
        Arc::new(|| true),
        Settings::default(),
    );
    let connection = connection();
    // given an actor that has been at work before: the first batch of a process reloads once more
    let done = actors
        .submit(&connection, job("first", vec![api(0, "/first")]))
        .await;
    assert!(done.is_clean(), "{done:?}");
    let (before, began) = (tyk.reloads.load(Ordering::SeqCst), Instant::now());
    // when they come
    let waits = (1..=routes).map(|n| {
        let (actors, connection) = (actors.clone(), Arc::clone(&connection));
        async move {
            sleep(apart * n).await;
            let handed_in = began.elapsed();
            let job = job(&format!("r{n}"), vec![api(n, &format!("/p{n}"))]);
            let done = actors.submit(&connection, job).await;
            assert!(done.is_clean(), "{done:?}");
            Answered {
                handed_in,
                answered: began.elapsed(),
            }
        }
    });
    let answered = join_all(waits).await;
    // then all of them are served
    assert_eq!(tyk.loaded.lock().unwrap().len(), routes as usize + 1);
    (answered, tyk.reloads.load(Ordering::SeqCst) - before)
}

#[tokio::test(start_paused = true)]
async fn a_route_alone_waits_for_nobody() {
    let (answered, reloads) = crowd(1, Duration::from_millis(500)).await;
    assert_eq!(reloads, 1);
    // It came in the middle between two ticks, and was there for the next.
    assert!(answered[0].answered < Duration::from_millis(1050), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_trickles_in_shares_one_reload() {
    let (answered, reloads) = crowd(25, Duration::from_millis(10)).await;
    assert_eq!(reloads, 1, "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_without_end_does_not_hold_up_who_came_first() {
    // given routes that come for four seconds, none of them long after the one before
    let (answered, reloads) = crowd(400, Duration::from_millis(10)).await;
    // then each tick serves some, and nobody waits for more than the rest of one, the gathering and another
    assert!((4..=6).contains(&reloads), "{reloads} reloads");
    for one in &answered {
        let took = one.answered - one.handed_in;
        assert!(took < Duration::from_millis(2350), "{one:?}");
    }
}

/// Nobody there.
struct Nobody(AtomicUsize);

#[async_trait]
impl Connector for Nobody {
    async fn connect(&self, _: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(TykError::new(TykErrorClass::Unreachable, "no such host"))
    }
    async fn bundle(&self, _: &CertificateUse) -> Result<Bundle, TykError> {
        panic!("there are no certificates")
    }
}

#[tokio::test(start_paused = true)]
async fn a_tyk_that_nobody_wants_any_more_is_not_asked_for_ever() {
    let nobody = Arc::new(Nobody(AtomicUsize::new(0)));
    let connector: Arc<dyn Connector> = nobody.clone();
    let actors = Actors::new(
        connector,
        Arc::new(|_| ()),
        Arc::new(|| true),
        Settings::default(),
    );
    let route = Key::new("shop", "r");
    // given a route that wants a Tyk which never answers: it is asked for as long as the route comes back
    for _ in 0..10 {
        actors.reach(&connection(), &route).await.unwrap_err();
        sleep(Duration::from_secs(300)).await;
    }
    let asked = nobody.0.load(Ordering::SeqCst);
    assert!(asked >= 40, "{asked} questions in 50 minutes");
    // when its connection is mended, so that it does not come here any more, then the questions end
    sleep(Duration::from_secs(1800)).await;
    let asked = nobody.0.load(Ordering::SeqCst);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(nobody.0.load(Ordering::SeqCst), asked);
}
