//! Created, updated, moved, removed, found otherwise, taken over: what one process does to one Tyk.

use std::time::Duration;

use routewright::tyk::{
    client::TykErrorClass,
    objects::Key,
    sync::{Settings, Trouble},
    translate::stamp,
};
use serde_json::{Value, json};

use crate::stage::{
    BOTH, Stage, api, document, id, job, owner, patient, removal, settings, trusted, version,
};

#[tokio::test]
async fn an_api_is_created_updated_and_removed_and_costs_nothing_in_between() {
    for mode in BOTH {
        // given nothing in Tyk
        let stage = Stage::new(mode).await;
        let tyk = stage.tyk();
        // when a job comes, it stands
        stage.clean(job("a", vec![api(1, "/a")])).await;
        assert_eq!(tyk.listen_path(&id(1)).as_deref(), Some("/a"));
        // when it comes again, nobody is asked
        let before = tyk.counts().requests;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        assert_eq!(tyk.counts().requests, before, "{mode:?}");
        // when it is changed, the change stands
        stage.clean(job("a", vec![version(1, "/a", 2)])).await;
        let url = tyk.loaded()[&id(1)]
            .pointer("/x-tyk-api-gateway/upstream/url")
            .cloned();
        assert_eq!(url, Some(json!("http://backend-2.shop.svc.cluster.local:80/a")));
        // when it is to go, it is gone; and asked again, nobody is asked
        stage.clean(removal("a", &[1])).await;
        assert!(tyk.loaded().is_empty() && tyk.files().is_empty());
        let before = tyk.counts().requests;
        stage.clean(removal("a", &[1])).await;
        assert_eq!(tyk.counts().requests, before, "{mode:?}");
    }
}

#[tokio::test]
async fn many_jobs_make_one_batch_and_one_reload() {
    let stage = Stage::new(BOTH[0]).await;
    stage.clean(job("first", vec![api(999, "/first")])).await;
    let before = stage.tyk().counts();
    // when fifty routes come at once
    let jobs = (0..50).map(|n| stage.clean(job(&format!("r{n}"), vec![api(n, &format!("/p{n}"))])));
    futures::future::join_all(jobs).await;
    // then there are fifty writes and a reload or two
    let after = stage.tyk().counts();
    assert_eq!(after.writes - before.writes, 50);
    let reloads = stage
        .log()
        .iter()
        .filter(|line| line.contains("block=true"))
        .count();
    assert!(reloads <= 4, "{reloads} reloads");
}

#[tokio::test]
async fn a_burst_goes_through_a_few_connections_that_are_kept() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        // when three hundred routes come at once
        let jobs = (0..300).map(|n| stage.clean(job(&format!("r{n}"), vec![api(n, &format!("/p{n}"))])));
        futures::future::join_all(jobs).await;
        // then each request does not open a connection, and look up the host, of its own
        let counts = stage.tyk().counts();
        assert!(counts.requests >= 600, "{counts:?}");
        assert!(counts.connections <= 40, "{counts:?}");
    }
}

#[tokio::test]
async fn another_owners_document_is_neither_overwritten_nor_deleted() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let tyk = stage.tyk();
        // given a document of another cluster, and one that nobody signed
        let mut other = owner("a");
        other.cluster = "cluster-2".to_owned();
        tyk.create(stamp(api(1, "/a"), &other).document);
        tyk.create(document(&id(2), "shop.example.com", "/b", "http://somebody"));
        let before = tyk.loaded();
        // when ours has the same ids
        let done = stage
            .submit(job("a", vec![api(1, "/a"), api(2, "/b"), api(3, "/c")]))
            .await;
        // then both are named and stay, and the third stands
        for (n, says) in [(1, "cluster-2"), (2, "nobody")] {
            match &done.troubled[&id(n)] {
                Trouble::Foreign { owner } => assert!(owner.contains(says), "{owner}"),
                trouble => panic!("{trouble:?}"),
            }
        }
        assert_eq!(done.troubled.len(), 2);
        // and they are not removed either, whatever anybody remembers
        let done = stage.submit(removal("a", &[1, 2])).await;
        assert_eq!(done.remaining.len(), 2, "{done:?}");
        for n in [1, 2] {
            assert_eq!(tyk.loaded()[&id(n)], before[&id(n)]);
        }
    }
}

#[tokio::test]
async fn a_path_moves_from_one_route_to_another_in_one_batch_whoever_comes_first() {
    for mode in BOTH {
        for new_one_first in [true, false] {
            let stage = Stage::with(mode, patient()).await;
            stage.clean(job("old", vec![api(1, "/p")])).await;
            // when the new one's job and the old one's removal come a little apart
            let new = stage.clean(job("new", vec![api(2, "/p")]));
            let old = stage.clean(removal("old", &[1]));
            let pause = tokio::time::sleep(Duration::from_millis(60));
            if new_one_first {
                tokio::join!(new, async {
                    pause.await;
                    old.await
                });
            } else {
                tokio::join!(old, async {
                    pause.await;
                    new.await
                });
            }
            // then the path is the new one's, and nothing was renamed
            assert_eq!(stage.tyk().listen_path(&id(2)).as_deref(), Some("/p"));
            assert_eq!(stage.tyk().listen_path(&id(1)), None);
        }
    }
}

#[tokio::test]
async fn a_path_whose_holder_stays_is_not_taken_and_its_release_is_told() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("old", vec![api(1, "/p")])).await;
        // when nobody removes the old one in time
        let done = stage.submit(job("new", vec![api(2, "/p")])).await;
        let Trouble::Failed(error) = &done.troubled[&id(2)] else {
            panic!("{done:?}")
        };
        assert!(error.message.contains(&id(1)), "{error}");
        assert_eq!(stage.tyk().listen_path(&id(1)).as_deref(), Some("/p"));
        // when it goes after all, the other one is told, and stands
        stage.clean(removal("old", &[1])).await;
        stage
            .eventually("told", || stage.told().contains(&Key::new("shop", "new")))
            .await;
        stage.clean(job("new", vec![api(2, "/p")])).await;
        assert_eq!(stage.tyk().listen_path(&id(2)).as_deref(), Some("/p"));
    }
}

#[tokio::test]
async fn two_routes_swap_their_paths() {
    for mode in BOTH {
        let stage = Stage::with(mode, patient()).await;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        stage.clean(job("b", vec![api(2, "/b")])).await;
        let mut a = job("a", vec![api(3, "/b")]);
        a.remove = vec![id(1)];
        let mut b = job("b", vec![api(4, "/a")]);
        b.remove = vec![id(2)];
        tokio::join!(stage.clean(a), async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            stage.clean(b).await
        });
        assert_eq!(stage.tyk().listen_path(&id(3)).as_deref(), Some("/b"));
        assert_eq!(stage.tyk().listen_path(&id(4)).as_deref(), Some("/a"));
    }
}

#[tokio::test]
async fn a_renamed_api_is_told_and_gets_its_path_back_when_the_other_one_goes() {
    let stage = Stage::new(BOTH[0]).await;
    let tyk = stage.tyk();
    // given somebody else's API at the path
    tyk.create(document("theirs", "shop.example.com", "/p", "http://theirs"));
    // when ours wants it
    let done = stage.submit(job("a", vec![api(1, "/p")])).await;
    // then Tyk gave it another path, and that is told; asked again at once, nothing is written
    assert!(
        matches!(done.troubled[&id(1)], Trouble::Renamed { .. }),
        "{done:?}"
    );
    let writes = tyk.counts().writes;
    stage.submit(job("a", vec![api(1, "/p")])).await;
    assert_eq!(tyk.counts().writes, writes);
    // when the other one is gone and a new process comes, the path is ours
    assert!(tyk.remove("theirs"));
    let next = stage.again();
    next.clean(job("a", vec![api(1, "/p")])).await;
    assert_eq!(tyk.listen_path(&id(1)).as_deref(), Some("/p"));
    // and a process that comes after it writes nothing
    let writes = tyk.counts().writes;
    stage.again().clean(job("a", vec![api(1, "/p")])).await;
    assert_eq!(tyk.counts().writes, writes);
}

#[tokio::test]
async fn a_restart_of_the_operator_writes_nothing_and_looks_later() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let apis = || (1..=5).map(|n| api(n, &format!("/p{n}"))).collect::<Vec<_>>();
        stage.clean(job("a", apis())).await;
        let before = stage.tyk().counts();
        stage.tyk().forget_requests();
        // when a new process is handed what stands, trusted
        let next = stage.again();
        next.clean(trusted("a", apis())).await;
        // then it looks by itself, and nothing is written
        let looked = |n: u32| {
            next.log()
                .iter()
                .any(|line| line.starts_with("GET") && line.ends_with(&id(n)))
        };
        next.eventually("all looked at", || (1..=5).all(looked)).await;
        let after = stage.tyk().counts();
        assert_eq!((after.writes, after.reloads), (before.writes, before.reloads));
        assert!(next.told().is_empty());
    }
}

#[tokio::test]
async fn what_was_edited_while_nobody_looked_is_found_and_mended() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        stage.clean(job("a", vec![api(1, "/a")])).await;
        let url = "/x-tyk-api-gateway/upstream/url";
        assert!(stage.tyk().edit(&id(1), |document| {
            *document.pointer_mut(url).unwrap() = json!("http://elsewhere");
        }));
        // when a new process trusts it
        let next = stage.again();
        next.clean(trusted("a", vec![api(1, "/a")])).await;
        next.eventually("told", || next.told() == [Key::new("shop", "a")])
            .await;
        // then the job that follows mends it, trusted or not
        let done = next.clean(trusted("a", vec![api(1, "/a")])).await;
        assert!(done.mended.contains(&id(1)));
        let found: Option<Value> = stage.tyk().loaded()[&id(1)].pointer(url).cloned();
        assert_eq!(found, Some(json!("http://backend-1.shop.svc.cluster.local:80/a")));
        assert!(
            next.clean(trusted("a", vec![api(1, "/a")]))
                .await
                .mended
                .is_empty(),
            "named once"
        );
    }
}

fn watchful() -> Settings {
    Settings {
        check_every: Duration::from_millis(100),
        ..settings()
    }
}

#[tokio::test]
async fn drift_is_told_once_and_mended() {
    for mode in BOTH {
        let stage = Stage::with(mode, watchful()).await;
        let tyk = stage.tyk();
        for (n, path) in [(1, "/a"), (2, "/b"), (3, "/c")] {
            stage.clean(job(&format!("r{n}"), vec![api(n, path)])).await;
        }
        // when one is edited in place and another is removed
        tyk.edit(&id(1), |document| {
            *document.pointer_mut("/x-tyk-api-gateway/info/name").unwrap() = json!("mine");
        });
        tyk.remove(&id(2));
        // then their routes are told, once each
        let told = |n: u32| {
            stage
                .told()
                .iter()
                .filter(|key| key.name == format!("r{n}"))
                .count()
        };
        stage
            .eventually("both told", || told(1) == 1 && told(2) == 1)
            .await;
        for (n, path) in [(1, "/a"), (2, "/b")] {
            let done = stage.clean(job(&format!("r{n}"), vec![api(n, path)])).await;
            assert!(done.mended.contains(&id(n)), "{mode:?} {n}: {done:?}");
        }
        assert_eq!((told(1), told(2), told(3)), (1, 1, 0));
    }
}

#[tokio::test]
async fn a_gateway_that_lost_its_files_gets_all_of_them_again() {
    let stage = Stage::with(BOTH[0], watchful()).await;
    let jobs = || (1..=40).map(|n| job(&format!("r{n}"), vec![api(n, &format!("/p{n}"))]));
    futures::future::join_all(jobs().map(|job| stage.clean(job))).await;
    // when a Pod without a volume starts again
    stage.tyk().lose_files();
    // then all routes are told, each once, and all comes back
    stage.eventually("all told", || stage.told().len() == 40).await;
    futures::future::join_all(jobs().map(|job| stage.clean(job))).await;
    assert_eq!(stage.tyk().loaded().len(), 40);
}

#[tokio::test]
async fn a_gateway_that_restarts_with_its_files_is_left_alone() {
    let stage = Stage::with(BOTH[0], watchful()).await;
    stage.clean(job("a", vec![api(1, "/a")])).await;
    let writes = stage.tyk().counts().writes;
    stage.tyk().restart();
    let looks = stage.log().len();
    stage
        .eventually("looked at again", || stage.log().len() > looks + 3)
        .await;
    assert_eq!(stage.tyk().counts().writes, writes);
    assert!(stage.told().is_empty());
}

#[tokio::test]
async fn without_the_lease_nothing_is_written() {
    let stage = Stage::new(BOTH[0]).await;
    stage.leads.store(false, std::sync::atomic::Ordering::SeqCst);
    let done = stage.submit(job("a", vec![api(1, "/a")])).await;
    match &done.troubled[&id(1)] {
        Trouble::Failed(error) => assert_eq!(error.class, TykErrorClass::Fenced),
        trouble => panic!("{trouble:?}"),
    }
    assert_eq!(stage.tyk().counts().requests, 0);
}

#[tokio::test]
async fn a_forgotten_route_is_not_looked_at() {
    use routewright::tyk::sync::Syncing as _;
    let stage = Stage::with(BOTH[0], watchful()).await;
    stage.clean(job("a", vec![api(1, "/a")])).await;
    stage.clean(job("b", vec![api(2, "/b")])).await;
    stage.actors.forget(&Key::new("shop", "a"));
    // (a look at it may be under way)
    let seen = stage.log().len();
    stage
        .eventually("the other one is looked at", || stage.log().len() > seen + 3)
        .await;
    stage.tyk().remove(&id(1));
    let seen = stage.log().len();
    stage
        .eventually("the other one is looked at", || stage.log().len() > seen + 3)
        .await;
    assert!(stage.told().is_empty());
}

#[tokio::test]
async fn behind_a_dashboard_gateways_of_other_tags_have_places_of_their_own() {
    let tagged = |n: u32, tags: Value| {
        let mut api = api(n, "/p");
        if tags != json!([]) {
            api.document["x-tyk-api-gateway"]["server"]["gatewayTags"] =
                json!({"enabled": true, "tags": tags});
        }
        api
    };
    for (one, other, meet) in [
        (json!(["a"]), json!(["b"]), false),
        (json!(["a", "b"]), json!(["b", "c"]), true),
        (json!(["a"]), json!([]), true),
        (json!([]), json!([]), true),
    ] {
        let stage = Stage::new(BOTH[1]).await;
        stage.clean(job("old", vec![tagged(1, one.clone())])).await;
        let done = stage.submit(job("new", vec![tagged(2, other.clone())])).await;
        assert_eq!(!done.is_clean(), meet, "{one} {other}: {done:?}");
    }
}

#[tokio::test]
async fn a_document_that_was_renamed_once_is_trusted_as_far_as_it_is_what_is_wanted() {
    for wanted in [1, 2] {
        // given a document that a process had to write twice, because its path was taken
        let stage = Stage::new(BOTH[0]).await;
        let tyk = stage.tyk();
        tyk.create(document("theirs", "shop.example.com", "/p", "http://theirs"));
        stage.submit(job("a", vec![version(1, "/p", 1)])).await;
        assert!(tyk.remove("theirs"));
        let next = stage.again();
        next.clean(job("a", vec![version(1, "/p", 1)])).await;
        assert_eq!(tyk.listen_path(&id(1)).as_deref(), Some("/p"));
        let writes = tyk.counts().writes;
        // when a further process takes for written what is wanted now
        let last = stage.again();
        last.clean(trusted("a", vec![version(1, "/p", wanted)])).await;
        last.eventually("told", || last.told() == [Key::new("shop", "a")])
            .await;
        // then the job that follows finds out whether it is, and writes if it is not
        let done = last.clean(trusted("a", vec![version(1, "/p", wanted)])).await;
        assert!(done.mended.is_empty(), "nobody harmed it");
        assert_eq!(tyk.counts().writes - writes, u64::from(wanted - 1));
        let url = tyk.loaded()[&id(1)]
            .pointer("/x-tyk-api-gateway/upstream/url")
            .cloned();
        assert_eq!(
            url,
            Some(json!(format!(
                "http://backend-{wanted}.shop.svc.cluster.local:80/p"
            )))
        );
        assert_eq!(tyk.listen_path(&id(1)).as_deref(), Some("/p"));
    }
}

#[tokio::test]
async fn what_the_dashboard_holds_belongs_to_the_owners_of_the_context() {
    use routewright_tyk_double::Fault;
    let stage = Stage::new(BOTH[1]).await;
    // given none, nothing is said of it
    stage.clean(job("a", vec![api(1, "/a")])).await;
    assert_eq!(stage.tyk().owners(&id(1)), None);
    // given some, then what is created and what is updated is theirs
    let next = stage.again();
    *next.given.owners.lock().unwrap() = (vec!["u1".to_owned()], vec!["g1".to_owned(), "g2".to_owned()]);
    next.clean(job("a", vec![version(1, "/a", 2), api(2, "/b")]))
        .await;
    let theirs = json!({"userIds": ["u1"], "userGroupIds": ["g1", "g2"]});
    for n in [1, 2] {
        assert_eq!(stage.tyk().owners(&id(n)), Some(theirs.clone()));
    }
    // when that is refused, then it is told, and nothing stands that is everybody's
    let refused = Fault::on("PUT", "/api/apis/")
        .status(403, "Ownership is off")
        .always();
    stage.tyk().inject(refused);
    let done = next.submit(job("b", vec![api(3, "/c")])).await;
    assert!(format!("{done:?}").contains("user_owners"), "{done:?}");
    assert!(!stage.tyk().loaded().contains_key(&id(3)));
    stage.tyk().clear_faults();
    next.clean(job("b", vec![api(3, "/c")])).await;
    assert_eq!(stage.tyk().owners(&id(3)), Some(theirs));
}
