//! Documents that were there before the process that looks at them: edited while no process ran, not shown by a gateway
//! that is starting, put there by another client.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use routewright::tyk::{
    client::{Bundle, Listed, StoredCertificate, TykApi, TykError},
    objects::{Fingerprint, Key},
    sync::{Actors, Connector, Job, Settings, Syncing as _, Trouble},
    translate::{TykApi as Api, stamp},
    verdict::{CertificateUse, Connection, Mode},
};
use routewright_tyk_double::Fault;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stage::{BOTH, Stage, api, id, job, owner, removal, settings, trusted, version};

/// One with authentication, header filters in another order than Tyk's, equal targets and what Tyk drops.
fn guarded(n: u32) -> Api {
    let mut api = api(n, "/a");
    let extension = &mut api.document["x-tyk-api-gateway"];
    extension["server"]["authentication"] = json!({
        "enabled": true, "securitySchemes": {"authToken": {"enabled": true, "header": {"enabled": true, "name": "Authorization"}}},
    });
    extension["middleware"]["global"] = json!({"transformRequestHeaders": {"enabled": true, "add": [
        {"name": "X-B", "value": "2"}, {"name": "X-A", "value": "1"}]}});
    extension["upstream"]["loadBalancing"] = json!({"enabled": true, "targets": [
        {"url": "http://a", "weight": 1}, {"url": "http://b", "weight": 1}, {"url": "http://a", "weight": 1}]});
    extension["info"]["state"]["internal"] = json!(false);
    api.document["components"] = json!({"securitySchemes": {"authToken": {"type": "apiKey", "in": "header", "name": "Authorization"}}});
    api.document["security"] = json!([{"authToken": []}]);
    api.document["info"]["description"] = json!("");
    api
}

/// Hands the job in as often as its route is notified; returns whether anything was mended.
async fn taken_over(next: &Stage, job: impl Fn() -> Job) -> bool {
    let mut mended = !next.clean(job()).await.mended.is_empty();
    let mut heard = 0;
    // what is trusted is looked at within milliseconds, and told
    for _ in 0..30 {
        sleep(Duration::from_millis(10)).await;
        let told = next.told().len();
        if told > heard {
            heard = told;
            mended |= !next.clean(job()).await.mended.is_empty();
        }
    }
    mended
}

#[tokio::test]
async fn what_was_switched_off_while_nobody_ran_is_switched_on_again_and_told() {
    let edits: [fn(&mut Value); 4] = [
        |document| document["x-tyk-api-gateway"]["server"]["authentication"]["enabled"] = json!(false),
        |document| document["security"] = json!([]),
        |document| {
            document["x-tyk-api-gateway"]["upstream"]["loadBalancing"]["targets"][0]["url"] =
                json!("http://elsewhere");
        },
        |document| {
            let middleware = &mut document["x-tyk-api-gateway"]["middleware"];
            middleware["global"]["transformRequestHeaders"]["add"][0]["value"] = json!("3");
        },
    ];
    for mode in BOTH {
        for (number, edit) in edits.into_iter().enumerate() {
            for is_trusted in [true, false] {
                let stage = Stage::new(mode).await;
                stage.clean(job("a", vec![guarded(1)])).await;
                let before = stage.tyk().loaded();
                assert!(stage.tyk().edit(&id(1), edit));
                assert_ne!(stage.tyk().loaded(), before);
                // when a new process takes it over
                let next = stage.again();
                let handed = || match is_trusted {
                    true => trusted("a", vec![guarded(1)]),
                    false => job("a", vec![guarded(1)]),
                };
                let mended = taken_over(&next, handed).await;
                // then it is as it was, and the job says so
                assert!(mended, "{mode:?} {number} {is_trusted}: {:#?}", next.log());
                assert_eq!(stage.tyk().loaded(), before, "{mode:?} {number} {is_trusted}");
            }
        }
    }
}

#[tokio::test]
async fn what_tyk_makes_of_a_document_is_no_edit() {
    for mode in BOTH {
        for is_trusted in [true, false] {
            let stage = Stage::new(mode).await;
            stage.clean(job("a", vec![guarded(1)])).await;
            let writes = stage.tyk().counts().writes;
            let next = stage.again();
            let handed = || match is_trusted {
                true => trusted("a", vec![guarded(1)]),
                false => job("a", vec![guarded(1)]),
            };
            assert!(!taken_over(&next, handed).await);
            assert_eq!(stage.tyk().counts().writes, writes, "{mode:?} {is_trusted}");
            // and a gateway's document is known again without the route being asked
            if mode == Mode::OpenSource && is_trusted {
                assert_eq!(next.told(), vec![], "{mode:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_document_of_somebody_else_is_not_overwritten_while_a_gateway_starts() {
    for neighbour in [true, false] {
        // given a process that has reloaded the gateway before, long ago
        let settings = Settings {
            proof: Duration::ZERO,
            ..settings()
        };
        let stage = Stage::with(Mode::OpenSource, settings).await;
        stage.clean(job("b", vec![api(2, "/b")])).await;
        if !neighbour {
            stage.clean(removal("b", &[2])).await;
        }
        // and another cluster's document, and a gateway that starts anew: it answers before it has loaded its files
        let mut other = owner("a");
        other.cluster = "cluster-2".to_owned();
        stage.tyk().create(stamp(api(1, "/a"), &other).document);
        let before = stage.tyk().loaded();
        let starting = Fault::on("GET", "/tyk/apis/oas/").times(1 + usize::from(neighbour));
        stage.tyk().inject(starting.status(404, "API not found"));
        // when a route of ours wants the same id in this moment
        let done = stage.submit(job("a", vec![version(1, "/a", 2)])).await;
        // then the other one's stays, and is named
        assert_eq!(stage.tyk().loaded(), before, "{done:?} {:#?}", stage.log());
        let foreign = matches!(done.troubled.get(&id(1)), Some(Trouble::Foreign { .. }));
        assert!(foreign, "{done:?}");
    }
}

#[tokio::test]
async fn a_creation_reloads_once_where_another_document_shows_that_all_is_loaded() {
    let settings = Settings {
        proof: Duration::ZERO,
        ..settings()
    };
    let stage = Stage::with(Mode::OpenSource, settings).await;
    stage.clean(job("b", vec![api(2, "/b")])).await;
    stage.tyk().forget_requests();
    stage.clean(job("a", vec![api(1, "/a")])).await;
    let reloads = stage
        .log()
        .iter()
        .filter(|line| line.contains("block=true"))
        .count();
    assert_eq!(reloads, 1, "{:#?}", stage.log());
}

#[tokio::test]
async fn what_is_not_shown_for_a_moment_is_neither_told_nor_written() {
    // given APIs that stand, and a gateway that starts anew with its files kept
    let settings = Settings {
        check_every: Duration::from_millis(50),
        recheck: Duration::from_millis(400),
        ..settings()
    };
    let stage = Stage::with(Mode::OpenSource, settings).await;
    let jobs = (1..=20).map(|n| stage.clean(job(&format!("r{n}"), vec![api(n, &format!("/{n}"))])));
    futures::future::join_all(jobs).await;
    let writes = stage.tyk().counts().writes;
    let seen = stage.log().len();
    let starting = Fault::on("GET", "/tyk/apis/oas/").times(8);
    stage.tyk().inject(starting.status(404, "API not found"));
    // when it is looked at then, and again when all is loaded
    stage
        .eventually("looked at again", || stage.log().len() > seen + 60)
        .await;
    assert_eq!((stage.told(), stage.tyk().counts().writes), (vec![], writes));
}

#[tokio::test]
async fn what_was_told_to_be_lost_and_is_there_again_is_not_written_nor_called_mended() {
    let settings = Settings {
        check_every: Duration::from_millis(50),
        recheck: Duration::ZERO,
        ..settings()
    };
    for is_trusted in [true, false] {
        let first = Stage::new(Mode::OpenSource).await;
        first.clean(job("a", vec![api(1, "/a")])).await;
        let stage = Stage::process(Arc::clone(&first.tyk), first.mode, settings.clone());
        if is_trusted {
            let gone = Fault::on("GET", "/tyk/apis/oas/").status(404, "API not found");
            stage.tyk().inject(gone.times(2));
            stage.clean(trusted("a", vec![api(1, "/a")])).await;
        } else {
            stage.clean(job("a", vec![api(1, "/a")])).await;
            let gone = Fault::on("GET", &format!("/tyk/apis/oas/{}", id(1)));
            stage.tyk().inject(gone.status(404, "API not found"));
        }
        stage.eventually("told", || !stage.told().is_empty()).await;
        let writes = stage.tyk().counts().writes;
        let done = stage.clean(job("a", vec![api(1, "/a")])).await;
        assert_eq!(
            (done.mended, stage.tyk().counts().writes),
            (BTreeSet::new(), writes)
        );
    }
}

/// A gateway that says of itself whether it has loaded its files.
#[derive(Default)]
struct Loading {
    files: Mutex<BTreeMap<String, Value>>,
    starting: Mutex<bool>,
}

impl Loading {
    fn starts(&self, starting: bool) {
        *self.starting.lock().unwrap() = starting;
    }
}

#[async_trait]
impl TykApi for Loading {
    fn mode(&self) -> Mode {
        Mode::OpenSource
    }
    async fn get(&self, id: &str) -> Result<Option<Value>, TykError> {
        if *self.starting.lock().unwrap() {
            return Ok(None);
        }
        Ok(self.files.lock().unwrap().get(id).cloned())
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
        Ok(())
    }
    async fn ready(&self) -> bool {
        !*self.starting.lock().unwrap()
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

struct Reached(Arc<Loading>);

#[async_trait]
impl Connector for Reached {
    async fn connect(&self, _: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        Ok(Arc::clone(&self.0) as Arc<dyn TykApi>)
    }
    async fn bundle(&self, _: &CertificateUse) -> Result<Bundle, TykError> {
        panic!("there are no certificates")
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_takes_minutes_to_load_is_waited_for_and_one_that_lost_all_is_found_out() {
    let (tyk, told) = (
        Arc::new(Loading::default()),
        Arc::new(Mutex::new(BTreeSet::new())),
    );
    let heard = Arc::clone(&told);
    let actors = Actors::new(
        Arc::new(Reached(Arc::clone(&tyk))),
        Arc::new(move |route: &Key| {
            heard.lock().unwrap().insert(route.clone());
        }),
        Arc::new(|| true),
        Settings::default(),
    );
    let connection = Arc::new(Connection {
        url: "http://tyk".to_owned(),
        org: "org1".to_owned(),
        mode: Mode::OpenSource,
        context: Key::new("tyk", "main"),
        fingerprint: Fingerprint("f".into()),
    });
    for n in 0..30 {
        let job = job(&format!("r{n}"), vec![api(n, &format!("/{n}"))]);
        assert!(actors.submit(&connection, job).await.is_clean());
    }
    // when it starts anew and loads for ten minutes, no route is notified
    tyk.starts(true);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(told.lock().unwrap().len(), 0);
    tyk.starts(false);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(told.lock().unwrap().len(), 0);
    // when it has lost everything and says that it is ready, all routes are notified within a minute
    tyk.files.lock().unwrap().clear();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(told.lock().unwrap().len(), 30);
}
