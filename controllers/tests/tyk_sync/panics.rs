//! A panic on the way to one Tyk is the trouble of those who wait for it, and of nobody else.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use routewright::tyk::{
    client::{Bundle, Listed, StoredCertificate, TykApi, TykError},
    objects::{Fingerprint, Key},
    sync::{Actors, Connector, Done, Syncing as _, Trouble},
    verdict::{CertificateUse, Connection, Mode},
};
use serde_json::Value;

use crate::stage::{BOTH, Given, Stage, api, id, job, settings};

/// Where it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Connecting,
    Asking,
    Writing,
}

/// The way of a stage, which breaks to the context `frail`.
struct Frail {
    given: Arc<Given>,
    at: Where,
    breaks: Arc<AtomicBool>,
    /// How often it broke.
    broke: Arc<AtomicUsize>,
}

struct Breaking {
    api: Arc<dyn TykApi>,
    at: Where,
    breaks: Arc<AtomicBool>,
    /// How often it broke.
    broke: Arc<AtomicUsize>,
}

impl Breaking {
    fn pass(&self, at: Where) {
        if self.at == at && self.breaks.load(Ordering::SeqCst) {
            self.broke.fetch_add(1, Ordering::SeqCst);
            panic!("a defect of the program");
        }
    }
}

#[async_trait]
impl TykApi for Breaking {
    fn mode(&self) -> Mode {
        self.api.mode()
    }
    async fn get(&self, id: &str) -> Result<Option<Value>, TykError> {
        self.pass(Where::Asking);
        self.api.get(id).await
    }
    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        self.pass(Where::Asking);
        self.api.list().await
    }
    async fn put(&self, id: &str, document: &Value, exists: bool) -> Result<(), TykError> {
        self.pass(Where::Writing);
        self.api.put(id, document, exists).await
    }
    async fn delete(&self, id: &str) -> Result<bool, TykError> {
        self.api.delete(id).await
    }
    async fn reload(&self) -> Result<(), TykError> {
        self.api.reload().await
    }
    async fn certificate(&self, id: &str) -> Result<Option<StoredCertificate>, TykError> {
        self.api.certificate(id).await
    }
    async fn upload(&self, id: &str, bundle: &Bundle) -> Result<String, TykError> {
        self.api.upload(id, bundle).await
    }
    async fn replace(&self, id: &str, bundle: &Bundle) -> Result<String, TykError> {
        self.api.replace(id, bundle).await
    }
}

#[async_trait]
impl Connector for Frail {
    async fn connect(&self, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        let api = self.given.connect(connection).await?;
        if connection.context.name != "frail" {
            return Ok(api);
        }
        let breaking = Breaking {
            api,
            at: self.at,
            breaks: Arc::clone(&self.breaks),
            broke: Arc::clone(&self.broke),
        };
        breaking.pass(Where::Connecting);
        Ok(Arc::new(breaking))
    }

    async fn bundle(&self, used: &CertificateUse) -> Result<Bundle, TykError> {
        self.given.bundle(used).await
    }
}

fn internal(done: &Done) -> bool {
    let troubles = done.troubled.get(&id(1));
    troubles.is_some_and(
        |trouble| matches!(trouble, Trouble::Failed(error) if error.message.contains("internal error")),
    )
}

fn way(stage: &Stage, name: &str) -> Arc<Connection> {
    Arc::new(Connection {
        context: Key::new("tyk", name),
        fingerprint: Fingerprint(name.to_owned()),
        ..(*stage.connection).clone()
    })
}

#[tokio::test]
async fn a_panic_of_the_question_whether_tyk_is_back_does_not_leave_it_away_for_ever() {
    // given a Tyk that is away
    let stage = Stage::impatient(Mode::OpenSource).await;
    let (breaks, broke, told) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let tell = Arc::clone(&told);
    let actors = Actors::new(
        Arc::new(Frail {
            given: Arc::clone(&stage.given),
            at: Where::Asking,
            breaks: Arc::clone(&breaks),
            broke: Arc::clone(&broke),
        }),
        Arc::new(move |_| {
            tell.fetch_add(1, Ordering::SeqCst);
        }),
        Arc::new(|| true),
        settings(),
    );
    stage.tyk().freeze();
    let job = job("a", vec![api(1, "/a")]);
    assert!(!actors.submit(&way(&stage, "frail"), job).await.is_clean());
    // when the question whether it is back breaks off, and then it is back
    breaks.store(true, Ordering::SeqCst);
    stage
        .eventually("a question broke off", || broke.load(Ordering::SeqCst) > 0)
        .await;
    breaks.store(false, Ordering::SeqCst);
    stage.tyk().thaw();
    // then that is found out, and the route is told
    stage.eventually("told", || told.load(Ordering::SeqCst) > 0).await;
}

#[tokio::test]
async fn a_panic_on_one_way_is_an_error_there_and_nothing_elsewhere() {
    for mode in BOTH {
        for at in [Where::Connecting, Where::Asking, Where::Writing] {
            // given two Tyks, and a way to one of them that breaks
            let (frail, sound) = (Stage::new(mode).await, Stage::new(mode).await);
            let breaks = Arc::new(AtomicBool::new(true));
            let told: Arc<Mutex<Vec<Key>>> = Arc::default();
            let tell = Arc::clone(&told);
            let actors = Actors::new(
                Arc::new(Frail {
                    given: Arc::clone(&frail.given),
                    at,
                    breaks: Arc::clone(&breaks),
                    broke: Arc::default(),
                }),
                Arc::new(move |key: &Key| tell.lock().unwrap().push(key.clone())),
                Arc::new(|| true),
                settings(),
            );
            let (to_frail, to_sound) = (way(&frail, "frail"), way(&sound, "sound"));
            // when jobs for both come at once
            let (broken, whole) = tokio::join!(
                actors.submit(&to_frail, job("a", vec![api(1, "/a")])),
                actors.submit(&to_sound, job("b", vec![api(2, "/b")])),
            );
            // then one is answered with an error, and the other stands
            assert!(internal(&broken), "{mode:?} {at:?}: {broken:?}");
            assert!(whole.is_clean(), "{mode:?} {at:?}: {whole:?}");
            // and both go on: what failed stands when it can
            let more = actors.submit(&to_sound, job("c", vec![api(3, "/c")])).await;
            assert!(more.is_clean(), "{more:?}");
            breaks.store(false, Ordering::SeqCst);
            let end = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
            loop {
                let done = actors.submit(&to_frail, job("a", vec![api(1, "/a")])).await;
                if done.is_clean() {
                    break;
                }
                assert!(tokio::time::Instant::now() < end, "{mode:?} {at:?}: {done:?}");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            assert_eq!((frail.tyk().loaded().len(), sound.tyk().loaded().len()), (1, 2));
        }
    }
}
