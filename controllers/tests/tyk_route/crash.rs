//! Killed before or after any write to the API server and any write to Tyk: a new process comes to the same end, and no
//! API is left behind. The points are read from the log of an undisturbed run.

use reconcile_kit::testing::{Crash, Matcher};
use serde_json::{Value, json};

use super::{bench::*, tyk::Death};

struct Tale {
    name: &'static str,
    /// The route that stands before the tale begins.
    before: Option<Value>,
    act: fn(&Bench),
}

fn tales() -> Vec<Tale> {
    vec![
        Tale {
            name: "creation",
            before: None,
            act: |b| drop(b.server.create(route(&["/a", "/b"]))),
        },
        Tale {
            name: "one path for another, another backend",
            before: Some(route(&["/a", "/b"])),
            act: |b| {
                let mut other = rule("/a");
                other["backendRefs"] = json!([{"name": "api", "port": 80}]);
                b.edit(json!({"spec": {"rules": [other, rule("/c")]}}));
            },
        },
        Tale {
            name: "no parent of ours any more",
            before: Some(route(&["/a", "/b"])),
            act: |b| b.edit(json!({"spec": {"parentRefs": [{"name": "far", "namespace": "infra"}]}})),
        },
        Tale {
            name: "another Tyk",
            before: Some(route(&["/a", "/b"])),
            act: |b| {
                b.server.create(context("second", OTHER));
                b.server.edit(
                    "GatewayClass",
                    "",
                    "tyk",
                    json!({"spec": {"parametersRef": {"name": "second"}}}),
                );
            },
        },
        Tale {
            name: "deletion",
            before: Some(route(&["/a", "/b"])),
            act: |b| assert!(b.server.delete("HTTPRoute", "shop", "r")),
        },
    ]
}

async fn begin(tale: &Tale) -> Bench {
    Bench::with(tale.before.clone()).await
}

/// What is left at the end, without what differs from run to run.
fn end(bench: &Bench) -> Value {
    let route = bench.route().map(|route| {
        let mut parents = route["status"]["parents"].clone();
        for entry in parents.as_array_mut().into_iter().flatten() {
            for condition in entry["conditions"].as_array_mut().into_iter().flatten() {
                condition["lastTransitionTime"] = json!("");
                condition["observedGeneration"] = json!(0);
            }
        }
        json!({"parents": parents, "annotation": bench.annotation(), "finalizer": bench.has_finalizer()})
    });
    let documents = |url| {
        let mut all = bench.tyk.at(url);
        for document in all.values_mut() {
            // Made from the uid.
            for key in ["x-routewright-owner", "x-routewright-hash"] {
                document.as_object_mut().unwrap().remove(key);
            }
        }
        all
    };
    json!({"route": route, "tyk": documents(URL), "other": documents(OTHER)})
}

#[derive(Clone, Copy, Debug)]
enum Point {
    /// After so many writes to the API server; is the last one answered?
    Api(usize, bool),
    /// At the n-th write to Tyk.
    Tyk(usize, Death),
}

/// The points of a tale, from an undisturbed run; a line about them, and the end of that run.
async fn points(tale: &Tale) -> (Vec<Point>, String, Value) {
    let mut bench = begin(tale).await;
    (tale.act)(&bench);
    let lines = bench.settle().await;
    let writes = lines.iter().filter(|line| line.starts_with("PATCH")).count();
    let calls = bench.tyk.writes();
    let line = format!(
        "{}: {writes} writes to the API server, {} to Tyk\n",
        tale.name,
        calls.len()
    );
    let api = (0..=writes).flat_map(|n| [Point::Api(n, true), Point::Api(n, false)]);
    let tyk = (0..calls.len()).flat_map(|n| [Point::Tyk(n, Death::Before), Point::Tyk(n, Death::After)]);
    let all = api.filter(|p| !matches!(p, Point::Api(0, false))).chain(tyk);
    (all.collect(), line, end(&bench))
}

/// The tale up to the point; the process is dead, and the next one begins.
async fn killed(tale: &Tale, point: Point) -> Bench {
    let mut bench = begin(tale).await;
    (tale.act)(&bench);
    let mine = Matcher::writes().user(OPERATOR);
    match point {
        Point::Api(n, true) => drop(bench.server.kill_after(mine, n, Crash::Hang)),
        Point::Api(n, false) => drop(bench.server.kill_during(mine, n, Crash::Hang)),
        Point::Tyk(n, how) => bench.tyk.die_at(n, how),
    }
    bench.until_dead().await;
    bench.restart();
    bench
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_point_a_new_process_comes_to_the_same_end() {
    let (mut count, mut report) = (0, String::new());
    for tale in tales() {
        let (points, line, undisturbed) = points(&tale).await;
        report.push_str(&line);
        for point in points {
            let case = format!("{}, {point:?}", tale.name);
            let mut bench = killed(&tale, point).await;
            bench.settle().await;
            assert_eq!(end(&bench), undisturbed, "{case}");
            bench.restart();
            bench.tyk.writes();
            assert_eq!(
                bench.settle().await,
                NOTHING,
                "{case}: and then there is nothing left to do"
            );
            assert_eq!(bench.tyk.writes(), NOTHING, "{case}");
            count += 1;
        }
    }
    println!("{report}{count} kill points");
    assert!(count >= 50, "{count} points:\n{report}");
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_and_then_deleted_no_api_is_left() {
    let mut count = 0;
    for tale in tales() {
        let (points, _, _) = points(&tale).await;
        for point in points {
            let mut bench = killed(&tale, point).await;
            bench.server.delete("HTTPRoute", "shop", "r");
            bench.settle().await;
            let case = format!("{}, {point:?}", tale.name);
            assert_eq!(bench.route(), None, "{case}: {:?}", bench.events());
            assert_eq!(
                (bench.tyk.ids(URL), bench.tyk.ids(OTHER)),
                (vec![], vec![]),
                "{case}"
            );
            count += 1;
        }
    }
    println!("{count} kill points");
    assert!(count >= 50, "{count}");
}
