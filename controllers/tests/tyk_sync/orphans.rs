//! Documents that no route answers for any more: of routes that went, and what an earlier process left.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use routewright::{
    telemetry::tyk::TykMeter,
    tyk::{
        objects::Key,
        sync::{Routes, Settings, Syncing as _, Trouble},
        translate::{Owner, stamp},
        verdict::{Connection, Mode},
    },
};
use routewright_tyk_double::{Fault, Side};

use crate::stage::{BOTH, Stage, api, document, id, job, owner, removal, settings, trusted};

/// The routes of the cluster, or that they are not all known.
#[derive(Default)]
struct There(Mutex<Option<BTreeSet<Key>>>);

impl There {
    fn say(&self, routes: Option<&[&str]>) {
        let key = |name: &&str| Key::new("shop", *name);
        *self.0.lock().unwrap() = routes.map(|routes| routes.iter().map(key).collect());
    }
}

impl Routes for There {
    fn installation(&self) -> Option<(String, String)> {
        Some(("cluster-1".to_owned(), "routewright.dev/tyk".to_owned()))
    }
    fn exists(&self, route: &Key) -> Option<bool> {
        Some(self.0.lock().unwrap().as_ref()?.contains(route))
    }
    fn leads_to(&self, _: &Connection) -> bool {
        true
    }
}

fn key(route: &str) -> Key {
    Key::new("shop", route)
}

/// Looks soon after it begins.
fn soon() -> Settings {
    Settings {
        sweep_after: Duration::from_millis(20),
        meter: TykMeter::default(),
        ..settings()
    }
}

/// A process that knows these routes, before the same Tyk as `stage`.
fn sweeper(stage: &Stage, routes: Option<&[&str]>) -> (Stage, Arc<There>) {
    let next = Stage::process(Arc::clone(&stage.tyk), stage.mode, soon());
    let there = Arc::new(There::default());
    there.say(routes);
    next.actors.ask(there.clone());
    (next, there)
}

fn lists(stage: &Stage) -> usize {
    let of = match stage.mode {
        Mode::OpenSource => "GET /tyk/apis/oas",
        Mode::Dashboard => "GET /api/apis?p=-2",
    };
    stage.log().iter().filter(|line| *line == of).count()
}

fn signed(n: u32, path: &str, owner: &Owner) -> serde_json::Value {
    stamp(api(n, path), owner).document
}

/// Waits until nobody was asked for a while, and nobody waits for an answer. By turns of the runtime that everybody here
/// shares: where it stands still, its clock runs on, and whoever has something to do has had no turn.
async fn calm(stage: &Stage) {
    let (mut seen, mut turns) = (usize::MAX, 0);
    while turns < 15 {
        let now = stage.log().len();
        turns += 1;
        if now != seen || stage.tyk().pending() > 0 {
            (seen, turns) = (now, 0);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_a_route_leaves_behind_goes_and_nothing_else_does() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a"), api(2, "/b")])).await;
        stage.clean(job("b", vec![api(3, "/c")])).await;
        // when a route goes without having removed anything
        stage.actors.forget(&key("a"));
        stage
            .eventually("its APIs go", || stage.tyk().loaded().len() == 1)
            .await;
        // then the other one's stands, nobody is told, and nobody is asked any more
        assert!(stage.tyk().loaded().contains_key(&id(3)));
        calm(&stage).await;
        let before = stage.log().len();
        stage.actors.forget(&key("a"));
        calm(&stage).await;
        assert_eq!((stage.log().len(), stage.told()), (before, vec![]));
    }
}

#[tokio::test]
async fn a_route_that_comes_back_at_once_keeps_what_it_wants() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a"), api(2, "/b")])).await;
        // when it comes back and wants one of two
        stage.actors.forget(&key("a"));
        stage.clean(job("a", vec![api(2, "/b")])).await;
        stage
            .eventually("the other one goes", || stage.tyk().loaded().len() == 1)
            .await;
        calm(&stage).await;
        // then that one was never away
        assert!(stage.tyk().loaded().contains_key(&id(2)), "{mode:?}");
        assert_eq!(stage.tyk().counts().deletes, 1);
    }
}

#[tokio::test]
async fn nothing_is_deleted_after_it_was_written_whenever_the_route_comes_back() {
    for mode in BOTH {
        for side in [Side::Before, Side::After] {
            let stage = Stage::new(mode).await;
            stage.clean(job("a", vec![api(1, "/a")])).await;
            // given a removal that is under way
            let mut pause = stage.tyk().pause_at(stage.tyk().steps() + 1, side);
            stage.actors.forget(&key("a"));
            pause.reached().await;
            // when the route is there again and wants the same
            let (done, ()) = tokio::join!(stage.submit(job("a", vec![api(1, "/a")])), async {
                tokio::task::yield_now().await;
                pause.release();
            });
            // then it stands, and so it stays
            assert!(done.is_clean(), "{mode:?} {side:?}: {done:?}");
            calm(&stage).await;
            assert_eq!(stage.tyk().loaded().len(), 1, "{mode:?} {side:?}");
            stage.clean(job("a", vec![api(1, "/a")])).await;
        }
    }
}

#[tokio::test]
async fn coming_and_going_ends_as_the_last_word_says() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..15 {
            let mut last = None;
            for _ in 0..=next(4) {
                if next(2) == 0 {
                    stage.actors.forget(&key("a"));
                    last = None;
                } else {
                    let n = u32::try_from(next(2)).unwrap() + 1;
                    stage.clean(job("a", vec![api(n, &format!("/{n}"))])).await;
                    last = Some(n);
                }
                tokio::time::sleep(Duration::from_millis(next(40))).await;
            }
            calm(&stage).await;
            let loaded = stage.tyk().loaded();
            match last {
                // What another word of the same life wanted is the business of its reconcile, which knows of it.
                Some(n) => {
                    assert!(loaded.contains_key(&id(n)), "{mode:?}, round {round}");
                    let [(_, known)] = &stage.actors.known(&key("a"))[..] else {
                        panic!("{mode:?}, round {round}");
                    };
                    let loaded: BTreeSet<String> = loaded.into_keys().collect();
                    assert_eq!(*known, loaded, "{mode:?}, round {round}");
                }
                None => assert!(loaded.is_empty(), "{mode:?}, round {round}: {:?}", loaded.keys()),
            }
        }
    }
}

#[tokio::test]
async fn a_document_that_is_somebody_elses_by_now_stays() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a"), api(2, "/b")])).await;
        // given an id that another cluster's document has taken
        let mut other = owner("a");
        other.cluster = "cluster-2".to_owned();
        stage.tyk().remove(&id(1));
        stage.tyk().create(signed(1, "/theirs", &other));
        let theirs = stage.tyk().loaded()[&id(1)].clone();
        stage.actors.forget(&key("a"));
        stage
            .eventually("ours goes", || !stage.tyk().loaded().contains_key(&id(2)))
            .await;
        calm(&stage).await;
        assert_eq!(stage.tyk().loaded()[&id(1)], theirs);
    }
}

#[tokio::test]
async fn who_names_what_another_route_has_does_not_get_it() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        stage.clean(job("b", vec![api(2, "/b")])).await;
        let before = stage.tyk().loaded();
        // when one names the other's to be removed, nobody is asked, and it is told whose it is
        let asked = stage.log().len();
        let mut forged = job("b", vec![api(2, "/b")]);
        forged.remove = vec![id(1)];
        let done = stage.submit(forged.clone()).await;
        assert!(
            format!("{:?}", done.remaining[&id(1)]).contains("HTTPRoute shop/a"),
            "{done:?}"
        );
        assert_eq!((stage.log().len(), stage.tyk().loaded()), (asked, before));
        // then each is known to have its own
        for (route, n) in [("a", 1), ("b", 2)] {
            let known = stage.actors.known(&key(route));
            assert_eq!(known[0].1, [id(n)].into());
        }
        // and it does not keep the other's from going with its route, nor take it along
        stage.actors.forget(&key("a"));
        stage.submit(forged).await;
        stage
            .eventually("it goes", || !stage.tyk().loaded().contains_key(&id(1)))
            .await;
        calm(&stage).await;
        assert!(stage.tyk().loaded().contains_key(&id(2)), "{mode:?}");
    }
}

#[tokio::test]
async fn a_tyk_that_is_away_is_asked_again_until_they_are_gone() {
    for mode in BOTH {
        for fault in [
            Fault::on("DELETE", "/").times(4).status(503, "later"),
            Fault::on("", "/").times(12).drop_before(),
        ] {
            let stage = Stage::new(mode).await;
            stage.clean(job("a", vec![api(1, "/a")])).await;
            stage.tyk().inject(fault);
            stage.actors.forget(&key("a"));
            stage
                .eventually("it goes", || stage.tyk().loaded().is_empty())
                .await;
            calm(&stage).await;
            assert!(stage.told().is_empty(), "nobody waits for it");
        }
    }
}

#[tokio::test]
async fn a_place_that_a_gone_route_held_is_free_for_another() {
    let stage = Stage::new(Mode::OpenSource).await;
    stage.clean(job("old", vec![api(1, "/p")])).await;
    stage.actors.forget(&key("old"));
    stage.clean(job("new", vec![api(2, "/p")])).await;
    assert_eq!(stage.tyk().listen_path(&id(2)).as_deref(), Some("/p"));
    assert_eq!(stage.tyk().listen_path(&id(1)), None);
}

#[tokio::test]
async fn after_a_restart_one_list_finds_what_has_no_route() {
    for mode in BOTH {
        // given two routes of ours, one of another cluster, one of another installation, and what nobody of us wrote
        let stage = Stage::new(mode).await;
        let tyk = stage.tyk();
        stage.clean(job("here", vec![api(1, "/a"), api(2, "/b")])).await;
        stage.clean(job("gone", vec![api(3, "/c"), api(4, "/d")])).await;
        let mut other = owner("gone");
        other.cluster = "cluster-2".to_owned();
        tyk.create(signed(5, "/e", &other));
        let mut beside = owner("gone");
        beside.controller = "example.org/beside".to_owned();
        tyk.create(signed(7, "/h", &beside));
        tyk.create(document(&id(6), "shop.example.com", "/f", "http://somebody"));
        tyk.create(document("by-hand", "shop.example.com", "/g", "http://somebody"));
        let before = tyk.loaded();
        tyk.forget_requests();
        // when a new process begins, whose routes are `here` alone, and which is handed one of its two APIs
        let (next, _) = sweeper(&stage, Some(&["here"]));
        next.clean(trusted("here", vec![api(1, "/a")])).await;
        next.eventually("the gone one's go", || {
            let loaded = tyk.loaded();
            !loaded.contains_key(&id(3)) && !loaded.contains_key(&id(4))
        })
        .await;
        // then its route learns of the other, and decides
        next.eventually("told", || next.told() == [key("here")]).await;
        let [(_, known)] = &next.actors.known(&key("here"))[..] else {
            panic!("one Tyk");
        };
        assert_eq!(*known, [id(1), id(2)].into());
        // and everything else is as it was
        calm(&next).await;
        let mut wanted = before;
        wanted.retain(|name, _| *name != id(3) && *name != id(4));
        assert_eq!(tyk.loaded(), wanted, "{mode:?}");
        // and it was asked once
        assert_eq!(lists(&next), 1);
        next.clean(trusted("here", vec![api(1, "/a")])).await;
        let mut both = job("here", vec![api(1, "/a")]);
        both.remove = vec![id(2)];
        next.clean(both).await;
        assert!(!tyk.loaded().contains_key(&id(2)));
        assert_eq!(lists(&next), 1, "{mode:?}");
    }
}

#[tokio::test]
async fn a_tyk_that_no_route_leads_to_is_swept_too_and_left_alone_then() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.tyk().create(signed(1, "/a", &owner("gone")));
        let (next, _) = sweeper(&stage, Some(&[]));
        for _ in 0..3 {
            next.actors.sweep(&next.connection);
        }
        next.eventually("it goes", || stage.tyk().loaded().is_empty())
            .await;
        calm(&next).await;
        next.actors.sweep(&next.connection);
        calm(&next).await;
        assert_eq!(lists(&next), 1, "{mode:?}");
    }
}

#[tokio::test]
async fn while_not_all_routes_are_known_nothing_is_removed() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.tyk().create(signed(1, "/a", &owner("a")));
        stage.tyk().create(signed(2, "/b", &owner("b")));
        let (next, there) = sweeper(&stage, None);
        next.actors.sweep(&next.connection);
        calm(&next).await;
        assert_eq!((stage.tyk().loaded().len(), lists(&next)), (2, 0));
        // when they are known
        there.say(Some(&["b"]));
        next.eventually("the one goes", || stage.tyk().loaded().len() == 1)
            .await;
        assert!(stage.tyk().loaded().contains_key(&id(2)), "{mode:?}");
    }
}

#[tokio::test]
async fn without_the_lease_nobody_is_asked_and_who_leads_next_looks() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.tyk().create(signed(1, "/a", &owner("gone")));
        let (next, _) = sweeper(&stage, Some(&[]));
        next.leads.store(false, Ordering::SeqCst);
        next.actors.sweep(&next.connection);
        next.submit(removal("a", &[7])).await;
        next.actors.forget(&key("a"));
        calm(&next).await;
        assert_eq!(stage.log(), Vec::<String>::new());
        // when it leads
        next.leads.store(true, Ordering::SeqCst);
        next.actors.sweep(&next.connection);
        next.eventually("it goes", || stage.tyk().loaded().is_empty())
            .await;
    }
}

#[tokio::test]
async fn a_sweep_that_fails_is_made_again() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.tyk().create(signed(1, "/a", &owner("gone")));
        let (next, _) = sweeper(&stage, Some(&[]));
        let path = if mode == Mode::OpenSource {
            "/tyk/apis"
        } else {
            "/api/apis"
        };
        stage
            .tyk()
            .inject(Fault::on("GET", path).times(4).status(503, "later"));
        next.actors.sweep(&next.connection);
        next.eventually("it goes", || stage.tyk().loaded().is_empty())
            .await;
    }
}

#[tokio::test]
async fn each_one_is_counted_and_logged_once() {
    use reconcile_kit::runtime::Metrics;
    let metrics = Metrics::new("op");
    let settings = Settings {
        meter: TykMeter::new(&metrics),
        ..soon()
    };
    let stage = Stage::with(Mode::OpenSource, settings).await;
    stage
        .actors
        .ask(Arc::new(There(Mutex::new(Some(BTreeSet::new())))));
    stage.tyk().create(signed(1, "/a", &owner("gone")));
    stage.clean(job("b", vec![api(2, "/b"), api(3, "/c")])).await;
    stage.actors.forget(&key("b"));
    stage
        .eventually("all go", || stage.tyk().loaded().is_empty())
        .await;
    calm(&stage).await;
    let text = metrics.encode();
    for line in [
        r#"op_tyk_orphans_total{mode="ce",found="forgotten"} 2"#,
        r#"op_tyk_orphans_total{mode="ce",found="swept"} 1"#,
        r#"op_tyk_changes_total{mode="ce",change="removed"} 3"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// A new process, in which route `b` names an id of route `a` to be removed before anybody spoke of `a`.
async fn copied_annotation(mode: Mode) -> Stage {
    let stage = Stage::new(mode).await;
    stage.clean(job("a", vec![api(1, "/a")])).await;
    let next = stage.again();
    let done = next.submit(removal("b", &[1])).await;
    let foreign = matches!(done.remaining.get(&id(1)), Some(Trouble::Foreign { .. }));
    assert!(foreign, "{done:?}");
    next.clean(trusted("a", vec![api(1, "/a")])).await;
    next
}

#[tokio::test]
async fn an_id_of_another_route_is_not_known_as_ones_own() {
    for mode in BOTH {
        let next = copied_annotation(mode).await;
        let known = next.actors.known(&key("b"));
        assert!(
            known.iter().all(|(_, ids)| ids.is_empty()),
            "{mode:?}: b is known to have {known:?}"
        );
        assert_eq!(next.actors.known(&key("a"))[0].1, [id(1)].into());
    }
}

#[tokio::test]
async fn a_route_that_goes_leaves_another_route_its_apis_whatever_it_named() {
    for mode in BOTH {
        let next = copied_annotation(mode).await;
        next.actors.forget(&key("b"));
        // (as long as an orphan may wait for its route, and a little more)
        tokio::time::sleep(Duration::from_millis(400)).await;
        calm(&next).await;
        assert!(
            next.tyk().loaded().contains_key(&id(1)),
            "{mode:?}: {:#?}",
            next.log()
        );
        // and the other one's is looked at as before
        assert_eq!(next.actors.known(&key("a"))[0].1, [id(1)].into());
    }
}

#[tokio::test]
async fn a_removal_that_is_answered_late_does_not_forget_what_another_route_has_by_then() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        let next = stage.again();
        // given a removal in the name of `b` that is under way while `a` is spoken of
        let apis = match mode {
            Mode::OpenSource => "/tyk/apis/oas",
            Mode::Dashboard => "/api/apis/oas",
        };
        let slow = Fault::on("GET", &format!("{apis}/{}", id(1))).slow(Duration::from_millis(150));
        stage.tyk().inject(slow);
        let (done, ()) = tokio::join!(next.submit(removal("b", &[1])), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            next.clean(trusted("a", vec![api(1, "/a")])).await;
        });
        assert_eq!(done.remaining.len(), 1, "{mode:?}: {done:?}");
        // then it is known as `a`'s, and not as `b`'s
        assert_eq!(next.actors.known(&key("a"))[0].1, [id(1)].into(), "{mode:?}");
        assert!(next.actors.known(&key("b")).is_empty(), "{mode:?}");
    }
}

#[tokio::test]
async fn a_removal_that_fails_after_its_owner_was_seen_is_remembered_as_the_routes_own() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        // given a new process whose removal Tyk does not carry out
        let next = stage.again();
        stage
            .tyk()
            .inject(Fault::on("DELETE", "/").status(400, "not now").always());
        let done = next.submit(removal("a", &[1])).await;
        assert_eq!(done.remaining.len(), 1, "{mode:?}: {done:?}");
        assert_eq!(next.actors.known(&key("a"))[0].1, [id(1)].into(), "{mode:?}");
        // then the API goes with its route
        stage.tyk().clear_faults();
        next.actors.forget(&key("a"));
        next.eventually("it goes", || stage.tyk().loaded().is_empty())
            .await;
    }
}

/// No GatewayClass leads anywhere.
struct Astray(Arc<There>);

impl Routes for Astray {
    fn installation(&self) -> Option<(String, String)> {
        self.0.installation()
    }
    fn exists(&self, route: &Key) -> Option<bool> {
        self.0.exists(route)
    }
    fn leads_to(&self, _: &Connection) -> bool {
        false
    }
}

#[tokio::test]
async fn a_tyk_that_only_an_annotation_leads_to_is_not_swept() {
    for mode in BOTH {
        // given a "Tyk" of a tenant, with documents in the name of routes that exist and that do not
        let evil = Stage::new(mode).await;
        evil.tyk().create(signed(7, "/x", &owner("a")));
        evil.tyk().create(signed(8, "/y", &owner("gone")));
        let next = Stage::process(Arc::clone(&evil.tyk), mode, soon());
        let there = Arc::new(There::default());
        there.say(Some(&["a", "b"]));
        next.actors.ask(Arc::new(Astray(there)));
        // when the annotation of route `b` leads there
        next.submit(removal("b", &[9])).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        calm(&next).await;
        // then its documents are not believed
        assert_eq!(
            next.actors.known(&key("a")),
            vec![],
            "{mode:?}; told: {:?}",
            next.told()
        );
        assert_eq!((lists(&next), evil.tyk().loaded().len()), (0, 2), "{mode:?}");
    }
}
