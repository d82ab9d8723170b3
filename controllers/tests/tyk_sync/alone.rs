//! One document about which calls fail while Tyk answers everything else: its route's trouble alone.

use std::{sync::Arc, time::Duration};

use routewright::{
    telemetry::tyk::TykMeter,
    tyk::{
        client::{
            TykApi as _, TykErrorClass,
            gateway::Gateway,
            http::{Access, Limits, Pools},
        },
        sync::{Done, Settings, Trouble},
        verdict::Mode,
    },
};
use routewright_tyk_double::{Double, Fault};
use tokio::time::Instant;

use crate::stage::{BOTH, SECRET, Stage, api, id, job, limits, settings, version};

fn path(mode: Mode, n: u32) -> String {
    match mode {
        Mode::OpenSource => format!("/tyk/apis/oas/{}", id(n)),
        Mode::Dashboard => format!("/api/apis/oas/{}", id(n)),
    }
}

/// The ways in which the calls about document 1 fail.
fn poisons(mode: Mode) -> Vec<(&'static str, Fault)> {
    let on = || Fault::on("GET", &path(mode, 1)).always();
    vec![
        ("dropped", on().drop_before()),
        ("503", on().status(503, "no")),
        ("403", on().status(403, "Access denied by the firewall")),
    ]
}

fn class(done: &Done) -> TykErrorClass {
    match &done.troubled[&id(1)] {
        Trouble::Failed(error) => error.class,
        trouble => panic!("{trouble:?}"),
    }
}

#[tokio::test]
async fn one_document_that_cannot_be_asked_for_breaks_nobody_elses_changes() {
    for mode in BOTH {
        for (what, poison) in poisons(mode) {
            let stage = Stage::new(mode).await;
            stage.clean(job("b", vec![version(2, "/b", 0)])).await;
            stage.tyk().inject(poison);
            // when both are handed in together, and the healthy one alone while the other one waits for its next try
            for round in 1..=4 {
                let (a, b) = tokio::join!(
                    stage.submit(job("a", vec![api(1, "/a")])),
                    stage.submit(job("b", vec![version(2, "/b", round)])),
                );
                assert!(b.is_clean(), "{mode:?} {what} {round}: {b:?}");
                assert_eq!(a.troubled.len(), 1, "{mode:?} {what} {round}: {a:?}");
                assert_ne!(class(&a), TykErrorClass::Refused);
            }
            stage.clean(job("b", vec![version(2, "/b", 9)])).await;
            // then no route hears of a connection that is down, and when the fault ends, the document is served
            assert!(stage.told().is_empty(), "{mode:?} {what}: {:?}", stage.told());
            stage.tyk().clear_faults();
            let end = Instant::now() + Duration::from_secs(20);
            while !stage.submit(job("a", vec![api(1, "/a")])).await.is_clean() {
                assert!(Instant::now() < end, "{mode:?} {what}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

#[tokio::test]
async fn some_documents_that_are_answered_503_break_nobody_elses_changes() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("b", vec![version(99, "/b", 0)])).await;
        for n in 1..=4 {
            let fault = Fault::on("GET", &path(mode, n)).always();
            stage.tyk().inject(fault.status(503, "no"));
        }
        for round in 1..=3 {
            let apis = (1..=4).map(|n| api(n, &format!("/{n}"))).collect();
            let (_, b) = tokio::join!(
                stage.submit(job("a", apis)),
                stage.submit(job("b", vec![version(99, "/b", round)])),
            );
            assert!(b.is_clean(), "{mode:?} {round}: {b:?}");
        }
    }
}

#[tokio::test]
async fn a_document_that_fails_again_is_left_alone_for_a_while_but_another_version_is_not() {
    let settings = Settings {
        backoff: (Duration::from_secs(3600), Duration::from_secs(3600)),
        ..settings()
    };
    for mode in BOTH {
        let stage = Stage::with(mode, settings.clone()).await;
        stage.clean(job("b", vec![api(2, "/b")])).await;
        let poison = Fault::on("GET", &path(mode, 1)).always();
        stage.tyk().inject(poison.drop_before());
        for _ in 0..2 {
            let done = stage.submit(job("a", vec![api(1, "/a")])).await;
            assert_eq!(class(&done), TykErrorClass::Unreachable);
        }
        // then it is answered without a question
        let asked = stage.log().len();
        let done = stage.submit(job("a", vec![api(1, "/a")])).await;
        assert_eq!(
            (class(&done), stage.log().len()),
            (TykErrorClass::Unreachable, asked)
        );
        // when another version comes, it is tried at once
        stage.tyk().clear_faults();
        stage.clean(job("a", vec![version(1, "/a", 2)])).await;
    }
}

#[tokio::test]
async fn a_look_at_one_document_that_fails_says_nothing_about_the_connection() {
    for mode in BOTH {
        let watchful = Settings {
            check_every: Duration::from_millis(50),
            ..settings()
        };
        let stage = Stage::with(mode, watchful).await;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        stage.clean(job("b", vec![api(2, "/b")])).await;
        let path = path(mode, 1);
        stage.tyk().inject(Fault::on("GET", &path).always().drop_before());
        let looks = || stage.log().iter().filter(|line| line.ends_with(&path)).count();
        let before = looks();
        stage.eventually("looked at", || looks() > before + 4).await;
        // then what others want is done
        for round in 2..=4 {
            stage.clean(job("b", vec![version(2, "/b", round)])).await;
        }
        assert!(stage.told().is_empty(), "{mode:?}: {:?}", stage.told());
    }
}

#[tokio::test]
async fn a_reload_that_is_not_over_in_time_is_given_more_time_the_next_time() {
    // given a gateway whose reload takes longer than an operation may
    let double = Double::gateway()
        .secret(SECRET)
        .org("org1")
        .start()
        .await
        .unwrap();
    let slow = |times| {
        // (the message to the other nodes comes first)
        let fault = Fault::on("GET", "/tyk/reload/").skip(1).times(times);
        double.handle().inject(fault.slow(Duration::from_millis(500)));
    };
    let pools = Pools::new(
        None,
        Limits {
            operation: Duration::from_millis(300),
            ..limits()
        },
    )
    .unwrap();
    let access = Access {
        url: double.handle().url(),
        org: "org1".to_owned(),
        credential: SECRET.to_owned(),
        insecure: false,
    };
    let client = || Gateway::new(&pools, &access, Arc::new(|| true), TykMeter::default()).unwrap();
    slow(1);
    let error = client().reload().await.unwrap_err();
    assert_eq!(error.class, TykErrorClass::Unreachable);
    // then the next one, by whatever client, is waited for
    double.handle().clear_faults();
    slow(1);
    let mut tries = 0;
    while client().reload().await.is_err() {
        tries += 1;
        assert!(tries < 3, "it is given more time each time");
        double.handle().clear_faults();
        slow(1);
    }
}
