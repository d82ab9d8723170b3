//! What must not happen while Tyk starts, and while a credential is replaced.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use routewright::tyk::{
    client::{Bundle, TykApi, TykError, TykErrorClass},
    objects::Fingerprint,
    sync::{Actors, Connector, Settings, Syncing as _, Trouble},
    translate::stamp,
    verdict::{CertificateUse, Connection, Mode},
};
use routewright_tyk_double::Fault;
use tokio::time::Instant;

use crate::stage::{BOTH, Given, Stage, api, id, job, owner, removal, settings, version};

#[tokio::test]
async fn what_a_gateway_that_is_starting_does_not_show_yet_is_not_taken_for_gone() {
    // given an API that stands, and a gateway that starts anew: it answers before it has loaded its files
    let stage = Stage::new(Mode::OpenSource).await;
    stage.clean(job("a", vec![api(1, "/a")])).await;
    let path = format!("/tyk/apis/oas/{}", id(1));
    let starting = Fault::on("GET", &path).status(404, "API not found");
    stage.tyk().inject(starting);
    // when its route goes in this moment
    let done = stage.submit(removal("a", &[1])).await;
    // then it is gone for good, or is said to be there
    assert!(
        stage.tyk().files().is_empty() || !done.remaining.is_empty(),
        "said to be gone, and served by the next reload: {:#?}",
        stage.log()
    );
}

#[tokio::test]
async fn an_update_does_not_overwrite_what_somebody_else_has_put_there_meanwhile() {
    for mode in BOTH {
        // given an API that stands, and that another cluster's has taken the place of since
        let stage = Stage::new(mode).await;
        let tyk = stage.tyk();
        stage.clean(job("a", vec![api(1, "/a")])).await;
        let mut other = owner("a");
        other.cluster = "cluster-2".to_owned();
        tyk.create(stamp(api(1, "/a"), &other).document);
        let before = tyk.loaded();
        // when the route changes
        let done = stage.submit(job("a", vec![version(1, "/a", 2)])).await;
        // then the other one's stays, and is named
        assert_eq!(tyk.loaded()[&id(1)], before[&id(1)], "{mode:?}");
        assert!(
            matches!(done.troubled.get(&id(1)), Some(Trouble::Foreign { .. })),
            "{mode:?} {done:?}"
        );
    }
}

/// As the operator's own: a connection that is not what the context says today leads nowhere.
struct Rotating {
    given: Arc<Given>,
    today: Mutex<String>,
    asked_with_the_old_one: Mutex<Instant>,
}

#[async_trait]
impl Connector for Rotating {
    async fn connect(&self, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        if connection.fingerprint.0 != *self.today.lock().unwrap() {
            *self.asked_with_the_old_one.lock().unwrap() = Instant::now();
            let why = "OperatorContext tyk/context or its Secret has changed meanwhile";
            return Err(TykError::new(TykErrorClass::NoConnection, why));
        }
        self.given.connect(connection).await
    }

    async fn bundle(&self, used: &CertificateUse) -> Result<Bundle, TykError> {
        self.given.bundle(used).await
    }
}

#[tokio::test]
async fn a_credential_that_was_replaced_is_not_asked_with_for_ever() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let connector = Arc::new(Rotating {
            given: Arc::clone(&stage.given),
            today: Mutex::new("one".to_owned()),
            asked_with_the_old_one: Mutex::new(Instant::now()),
        });
        let actors = Actors::new(
            Arc::<Rotating>::clone(&connector),
            Arc::new(|_| {}),
            Arc::new(|| true),
            Settings {
                backoff: (Duration::from_millis(20), Duration::from_millis(50)),
                canary: Duration::from_millis(20),
                check_every: Duration::from_millis(50),
                ..settings()
            },
        );
        // given an API that stands, and a Tyk that takes another credential from now on
        let done = actors
            .submit(&stage.connection, job("a", vec![api(1, "/a")]))
            .await;
        assert!(done.is_clean(), "{done:?}");
        let denied = if mode == Mode::OpenSource { 403 } else { 401 };
        let refusal = Fault::on("GET", "/").status(denied, "Not authorised").always();
        stage.tyk().inject(refusal);
        let end = Instant::now() + Duration::from_secs(20);
        let refused = || stage.tyk().requests().iter().any(|r| r.status == Some(denied));
        while !refused() {
            assert!(Instant::now() < end, "a look finds it out");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // when the Secret says so too
        *connector.today.lock().unwrap() = "two".to_owned();
        stage.tyk().clear_faults();
        let connection = Arc::new(Connection {
            fingerprint: Fingerprint("two".to_owned()),
            ..(*stage.connection).clone()
        });
        let done = actors.submit(&connection, job("a", vec![api(1, "/a")])).await;
        assert!(done.is_clean(), "{done:?}");
        // then there comes a time when nobody tries the old one any more
        let quiet = || connector.asked_with_the_old_one.lock().unwrap().elapsed() > Duration::from_secs(2);
        let end = Instant::now() + Duration::from_secs(10);
        while !quiet() {
            assert!(
                Instant::now() < end,
                "{mode:?}: the old credential is tried for ever"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
