//! Tyk that is slow, hangs, fails, refuses, talks nonsense, is away and comes back.

use std::{sync::atomic::Ordering, time::Duration};

use routewright::tyk::{
    client::TykErrorClass,
    objects::{Fingerprint, Key},
    sync::{Syncing as _, Trouble},
    verdict::{Connection, Mode},
};
use routewright_tyk_double::Fault;
use serde_json::json;

use crate::stage::{BOTH, SECRET, Stage, api, id, job, removal, version};

fn apis(mode: Mode) -> &'static str {
    match mode {
        Mode::OpenSource => "/tyk/apis/oas",
        Mode::Dashboard => "/api/apis/oas",
    }
}

fn failure(done: &routewright::tyk::sync::Done, n: u32) -> &routewright::tyk::client::TykError {
    match &done.troubled[&id(n)] {
        Trouble::Failed(error) => error,
        trouble => panic!("{trouble:?}"),
    }
}

#[tokio::test]
async fn what_passes_is_repeated_and_nobody_hears_of_it() {
    for mode in BOTH {
        let faults: [fn(Fault) -> Fault; 6] = [
            |fault| fault.status(503, "later"),
            |fault| fault.status(429, "slower"),
            Fault::drop_before,
            Fault::drop_after,
            |fault| fault.status_after(502, "lost"),
            |fault| fault.slow(Duration::from_millis(100)),
        ];
        for (number, fault) in faults.into_iter().enumerate() {
            for method in ["GET", "POST", "PUT", "DELETE"] {
                let stage = Stage::new(mode).await;
                let wrong = || {
                    stage.tyk().clear_faults();
                    stage.tyk().inject(fault(Fault::on(method, apis(mode))));
                };
                wrong();
                stage.clean(job("a", vec![api(1, "/a")])).await;
                wrong();
                stage.clean(job("a", vec![version(1, "/a", 2)])).await;
                wrong();
                stage.clean(removal("a", &[1])).await;
                assert!(stage.tyk().loaded().is_empty(), "{mode:?} {number} {method}");
            }
        }
    }
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_is_not_repeated_on_the_dashboard() {
    let stage = Stage::new(Mode::Dashboard).await;
    stage
        .tyk()
        .inject(Fault::on("POST", apis(Mode::Dashboard)).drop_after());
    stage.clean(job("a", vec![api(1, "/a")])).await;
    let posts = stage.log().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(posts, 1, "{:#?}", stage.log());
}

#[tokio::test]
async fn what_tyk_refuses_is_not_repeated_and_is_told_without_the_credential() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let text = format!("wrong\n document {SECRET}");
        stage
            .tyk()
            .inject(Fault::on("POST", apis(mode)).status(400, &text).always());
        let done = stage.submit(job("a", vec![api(1, "/a")])).await;
        let error = failure(&done, 1);
        assert_eq!(error.class, TykErrorClass::Refused);
        assert!(error.message.contains("wrong document (credential)"), "{error}");
        let posts = stage.log().iter().filter(|line| line.starts_with("POST")).count();
        assert_eq!(posts, 1);
    }
}

#[tokio::test]
async fn a_page_that_is_not_tyks_is_told() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage
            .tyk()
            .inject(Fault::on("GET", apis(mode)).garbage().always());
        let done = stage.submit(job("a", vec![api(1, "/a")])).await;
        let error = failure(&done, 1);
        assert!(error.message.contains("check url"), "{error}");
        assert_eq!(stage.tyk().counts().writes, 0);
    }
}

#[tokio::test]
async fn while_tyk_is_away_requests_are_few_and_when_it_is_back_routes_are_told() {
    for mode in BOTH {
        let stage = Stage::impatient(mode).await;
        let tyk = stage.tyk();
        stage.clean(job("first", vec![api(9999, "/first")])).await;
        tyk.freeze();
        // when two hundred routes come while nobody answers
        let jobs = (0..200).map(|n| stage.submit(job(&format!("r{n}"), vec![api(n, &format!("/p{n}"))])));
        let done = futures::future::join_all(jobs).await;
        assert!(done.iter().all(|done| done.troubled.len() == 1));
        // then the next ones are answered without a question
        let before = tyk.requests().len();
        let done = stage.submit(job("r0", vec![api(0, "/p0")])).await;
        assert_eq!(failure(&done, 0).class, TykErrorClass::Unreachable);
        assert!(before < 120, "{before} requests");
        // but what stands is known to stand
        stage.clean(job("first", vec![api(9999, "/first")])).await;
        // when it is back, all that failed are told, and can stand
        tyk.thaw();
        stage.eventually("all told", || stage.told().len() >= 200).await;
        let jobs = (0..200).map(|n| stage.clean(job(&format!("r{n}"), vec![api(n, &format!("/p{n}"))])));
        futures::future::join_all(jobs).await;
        assert_eq!(tyk.loaded().len(), 201);
    }
}

#[tokio::test]
async fn whether_anybody_answers_is_asked_once_and_told_when_it_changes() {
    for mode in BOTH {
        let stage = Stage::impatient(mode).await;
        let tyk = stage.tyk();
        let reach = async |n: u32| {
            let route = Key::new("shop", format!("r{n}"));
            stage.actors.reach(&stage.connection, &route).await
        };
        // given a Tyk that does not answer: fifty routes are one question
        tyk.freeze();
        let answers = futures::future::join_all((0..50).map(reach)).await;
        for answer in answers {
            assert_eq!(answer.unwrap_err().class, TykErrorClass::Unreachable);
        }
        // when it is back, then each is told, and nobody asks again
        tyk.thaw();
        stage.eventually("all told", || stage.told().len() >= 50).await;
        let before = tyk.requests().len();
        for answer in futures::future::join_all((0..50).map(reach)).await {
            answer.unwrap();
        }
        assert_eq!(tyk.requests().len(), before, "{mode:?}");
        // and a process without the lease asks nothing
        let other = stage.again();
        other.leads.store(false, Ordering::SeqCst);
        other
            .actors
            .reach(&other.connection, &Key::new("shop", "r"))
            .await
            .unwrap();
        assert_eq!(tyk.requests().len(), before, "{mode:?}");
    }
}

#[tokio::test]
async fn what_is_no_tyk_is_not_reached() {
    // given somebody else's web server where Tyk should be
    let app = axum::Router::new().fallback(|| async { (axum::http::StatusCode::NOT_FOUND, "no such page") });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let connection = std::sync::Arc::new(Connection {
            url: url.clone(),
            ..(*stage.connection).clone()
        });
        let error = stage.actors.reach(&connection, &Key::new("shop", "r")).await;
        let error = error.unwrap_err();
        assert!(error.message.contains("404"), "{mode:?} {error}");
    }
    server.abort();
}

#[tokio::test]
async fn a_credential_that_was_rotated_is_read_again() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        *stage.given.credential.lock().unwrap() = "an old one".to_owned();
        // given a wrong credential
        let done = stage.submit(job("a", vec![api(1, "/a")])).await;
        let error = failure(&done, 1);
        assert_eq!(error.class, TykErrorClass::Denied, "{error}");
        assert!(!error.message.contains("an old one"));
        // when the Secret changes, so does the fingerprint, and nobody waits for a probe
        *stage.given.credential.lock().unwrap() = SECRET.to_owned();
        let connection = std::sync::Arc::new(Connection {
            fingerprint: Fingerprint("two".to_owned()),
            ..(*stage.connection).clone()
        });
        let done = stage
            .actors
            .submit(&connection, job("a", vec![api(1, "/a")]))
            .await;
        assert!(done.is_clean(), "{done:?}");
        // when it changes behind a client that is in use, one more connection is made and nobody hears of it
        let connects = stage.given.connects.load(Ordering::SeqCst);
        let denied = if mode == Mode::OpenSource {
            (
                403,
                "Attempted administrative access with invalid or missing key!",
            )
        } else {
            (401, "Not authorised")
        };
        // Only what this job asks: a probe of the earlier credential may be under way.
        let asked = format!("{}/{}", apis(mode), id(2));
        stage
            .tyk()
            .inject(Fault::on("", &asked).status(denied.0, denied.1));
        let done = stage
            .actors
            .submit(&connection, job("b", vec![api(2, "/b")]))
            .await;
        assert!(done.is_clean(), "{done:?}");
        assert_eq!(stage.given.connects.load(Ordering::SeqCst), connects + 1);
    }
}

#[tokio::test]
async fn accepted_and_not_loaded_is_told_and_can_be_removed() {
    let stage = Stage::new(Mode::OpenSource).await;
    stage.clean(job("other", vec![api(2, "/b")])).await;
    stage.tyk().ignore_reloads(true);
    let done = stage.submit(job("a", vec![api(1, "/a")])).await;
    assert_eq!(done.troubled[&id(1)], Trouble::NotLoaded);
    stage.tyk().ignore_reloads(false);
    stage.clean(removal("a", &[1])).await;
    assert_eq!(stage.tyk().files().len(), 1);
}

#[tokio::test]
async fn what_an_earlier_process_deleted_and_did_not_reload_is_not_taken_to_stand() {
    // given a file that is gone while its API is still loaded
    let stage = Stage::new(Mode::OpenSource).await;
    stage.clean(job("a", vec![api(1, "/a")])).await;
    let client = routewright::tyk::sync::Connector::connect(&*stage.given, &stage.connection)
        .await
        .unwrap();
    client.delete(&id(1)).await.unwrap();
    assert_eq!(stage.tyk().loaded().len(), 1);
    // when a new process wants it
    stage.again().clean(job("a", vec![api(1, "/a")])).await;
    // then it is there for good
    stage.tyk().load();
    assert_eq!(stage.tyk().loaded().len(), 1);
}

#[tokio::test]
async fn a_dashboard_that_wants_unique_paths_says_what_to_set() {
    let tyk = routewright_tyk_double::Double::dashboard()
        .secret(SECRET)
        .duplicate_slugs(false)
        .start()
        .await
        .unwrap();
    let stage = Stage::process(
        std::sync::Arc::new(tyk),
        Mode::Dashboard,
        crate::stage::settings(),
    );
    stage.clean(job("a", vec![api(1, "/")])).await;
    // another hostname, which a gateway tells apart
    let mut other = api(2, "/");
    other.document["x-tyk-api-gateway"]["server"]["customDomain"]["name"] = json!("b.example.com");
    let done = stage.submit(job("b", vec![other])).await;
    let error = failure(&done, 2);
    assert!(error.message.contains("enable_duplicate_slugs"), "{error}");
}

#[tokio::test]
async fn a_waiter_that_goes_away_cancels_nothing_that_was_sent() {
    let stage = Stage::new(Mode::OpenSource).await;
    stage
        .tyk()
        .inject(Fault::on("POST", apis(Mode::OpenSource)).slow(Duration::from_millis(200)));
    // given a waiter that leaves while its document is being written
    let waiting = stage.submit(job("a", vec![api(1, "/a")]));
    assert!(
        tokio::time::timeout(Duration::from_millis(120), waiting)
            .await
            .is_err()
    );
    // then the document comes to stand all the same, and the next job learns it
    stage.clean(job("a", vec![api(1, "/a")])).await;
    assert_eq!(stage.tyk().counts().writes, 1);
    assert!(!stage.told().contains(&Key::new("shop", "a")));
}
