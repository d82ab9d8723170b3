//! Cut at every change, before and after it was done: a new process that is handed the same jobs comes to the same end.

use std::time::Duration;

use routewright::tyk::{sync::Job, translate::stamp, verdict::Mode};
use routewright_tyk_double::Side;
use serde_json::Value;

use crate::stage::{BOTH, Stage, api, document, id, job, owner, removal, state, version};

/// A life: creation, change, a path that moves between ids, removal.
fn life() -> Vec<Vec<Job>> {
    let mut moved = job("b", vec![api(4, "/b")]);
    moved.remove = vec![id(2)];
    vec![
        vec![
            job("a", vec![api(1, "/a")]),
            job("b", vec![api(2, "/b"), api(3, "/c")]),
        ],
        vec![job("a", vec![version(1, "/a", 2)]), {
            moved.apis.push(api(3, "/c").into());
            moved
        }],
        vec![removal("a", &[1]), job("c", vec![api(5, "/a")])],
    ]
}

async fn foreign(stage: &Stage) {
    let mut other = owner("a");
    other.cluster = "cluster-2".to_owned();
    stage.tyk().create(stamp(api(77, "/theirs"), &other).document);
    stage.tyk().create(document(
        &id(78),
        "shop.example.com",
        "/nobodys",
        "http://somebody",
    ));
}

/// Hands in everything of a step at once, until all of it stands.
async fn settle(stage: &Stage, jobs: &[Job]) {
    for _ in 0..20 {
        let done = futures::future::join_all(jobs.iter().map(|job| stage.submit(job.clone()))).await;
        if done.iter().all(routewright::tyk::sync::Done::is_clean) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    panic!("does not settle: {:#?}", stage.log());
}

async fn uncut(mode: Mode) -> (std::collections::BTreeMap<String, Value>, usize) {
    let stage = Stage::new(mode).await;
    foreign(&stage).await;
    for step in life() {
        settle(&stage, &step).await;
    }
    (state(&stage.tyk()), stage.tyk().steps())
}

#[tokio::test]
async fn no_cut_changes_the_end() {
    for mode in BOTH {
        let (wanted, steps) = uncut(mode).await;
        let mut points = 0;
        for step in 1..=steps {
            for side in [Side::Before, Side::After] {
                let stage = Stage::new(mode).await;
                foreign(&stage).await;
                // given a process that dies at this change
                let mut pause = stage.tyk().pause_at(step, side);
                let (mut stage, mut cut) = (stage, false);
                for jobs in life() {
                    if !cut {
                        tokio::select! {
                            () = settle(&stage, &jobs) => continue,
                            () = pause.reached() => {}
                        }
                        cut = true;
                        // It writes no more: the lease is gone with it.
                        stage.leads.store(false, std::sync::atomic::Ordering::SeqCst);
                        pause.discard();
                        pause = stage.tyk().pause_at(usize::MAX, Side::Before);
                        points += 1;
                        stage = stage.again();
                    }
                    // when a new one is handed the same
                    settle(&stage, &jobs).await;
                }
                // then the end is the same, and what is not ours is as it was
                let found = state(&stage.tyk());
                assert_eq!(found, wanted, "{mode:?}, change {step}, {side:?}");
            }
        }
        println!("{mode:?}: {points} cuts at {steps} changes");
        assert!(points >= steps, "{points} of {steps}");
    }
}
