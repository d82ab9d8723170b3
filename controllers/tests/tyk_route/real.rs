//! The whole operator with its own clients and actors, over HTTP to the stand-in for Tyk as an open-source gateway and as
//! a Dashboard, and to a Tyk Gateway if one is given. In real time: nothing here waits for a fixed one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reconcile_kit::{
    runtime::{Metrics, leadership::Leadership},
    testing::{ApiServer, Crash, Mark, Matcher},
};
use routewright::{
    app::{App, Doors, Options},
    ground::Ground,
    telemetry::tyk::TykMeter,
    tyk::{
        client::{
            connect::KubeConnector,
            http::{Limits, MayWrite, Pools},
        },
        controllers::{self, Reach},
        httproute::contexts::KubeContexts,
        sync::{Actors, Settings},
        translate::{Owner, stamp::OWNER},
    },
};
use routewright_tyk_double::{Fault, Side};
use serde_json::{Value, json};

use super::{
    bench::{self, OPERATOR, id, ids, installed, paths, route, route_named, rule},
    places::{Kind, ORG, Place},
    support,
};

/// Nothing takes so long.
const LIMIT: Duration = Duration::from_secs(180);

/// A process: its own thread, so that it can be ended between any two of its steps.
struct Process {
    app: App,
    runtime: tokio::runtime::Runtime,
    /// See [`support::turns`].
    turns: Arc<AtomicUsize>,
}

impl Process {
    /// Starts in a thread of its own: a runtime must not start in another.
    fn start(server: &ApiServer, kind: &Kind) -> Self {
        let (server, kind) = (server.clone(), kind.clone());
        let start = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let app = runtime.block_on(async { operator(&server, &kind) });
            let turns = support::turns(&runtime);
            Self { app, runtime, turns }
        };
        std::thread::spawn(start).join().unwrap()
    }

    fn kill(self) {
        let Self { app, runtime, .. } = self;
        let end = move || {
            let inside = runtime.enter();
            drop(app);
            drop(inside);
            runtime.shutdown_timeout(Duration::from_millis(200));
        };
        std::thread::spawn(end).join().unwrap();
    }
}

fn operator(server: &ApiServer, kind: &Kind) -> App {
    let options = Options {
        tyk: controllers::Options {
            enabled: true,
            definitions: true,
            cluster: Some("cluster-1".into()),
            ..Default::default()
        },
        ..support::options()
    };
    // What stands is looked at within the time of a test.
    let quick = Settings {
        check_every: Duration::from_millis(400),
        canary: Duration::from_millis(200),
        checks_per_second: 1_000,
        backoff: (Duration::from_millis(50), Duration::from_millis(400)),
        settle: match kind {
            Kind::Tyk(_) => Settings::default().settle,
            Kind::Gateway | Kind::Dashboard => vec![Duration::from_millis(20); 3],
        },
        sweep_after: Duration::from_millis(500),
        ..Settings::default()
    };
    let reach = move |ground: &Ground, drifted| {
        let may_write: MayWrite = Arc::new(|| true);
        let pools = Arc::new(Pools::new(None, Limits::default()).unwrap());
        let client = ground.client.clone();
        let connector =
            KubeConnector::new(client.clone(), pools, Arc::clone(&may_write), TykMeter::default());
        Reach {
            sync: Arc::new(Actors::new(
                Arc::new(connector),
                drifted,
                may_write,
                quick.clone(),
            )),
            contexts: Arc::new(KubeContexts(client)),
        }
    };
    let doors = Doors {
        tyk: Some(Arc::new(reach)),
        ..Doors::default()
    };
    let client = server.client_as(OPERATOR);
    App::start_with(client, Leadership::always(), Metrics::default(), &options, doors).unwrap()
}

pub(crate) struct Real {
    pub(crate) kind: Kind,
    pub(crate) server: ApiServer,
    pub(crate) tyk: Place,
    process: Option<Process>,
    mark: Mark,
}

fn context(kind: &Kind, url: &str) -> Value {
    let mut context = bench::context("main", url);
    context["spec"]["env"]["mode"] = json!(kind.mode());
    context["spec"]["env"]["org"] = json!(ORG);
    context
}

impl Real {
    pub(crate) async fn begin(kind: &Kind, routes: impl IntoIterator<Item = Value>) -> Self {
        let tyk = kind.start().await;
        let server = installed();
        server.delete("OperatorContext", "tyk", "main");
        server.create(context(kind, &tyk.handle().url()));
        for route in routes {
            server.create(route);
        }
        let mark = server.mark();
        let process = Some(Process::start(&server, kind));
        let mut real = Self {
            kind: kind.clone(),
            server,
            tyk,
            process,
            mark,
        };
        real.until("what there is was looked at", Self::has_looked).await;
        real.quiet().await;
        real
    }

    /// Every route and the Gateway say what they come to.
    fn has_looked(&self) -> bool {
        let routes = self.server.list("HTTPRoute", "");
        let gateway = self.server.get("Gateway", "infra", "edge").unwrap();
        let says = |route: &Value| {
            let said = &route["status"]["parents"][0]["conditions"][0]["observedGeneration"];
            *said == route["metadata"]["generation"]
        };
        routes.iter().all(says) && gateway["status"]["listeners"][0]["attachedRoutes"] == routes.len()
    }

    pub(crate) fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    pub(crate) fn start(&mut self) {
        self.process = Some(Process::start(&self.server, &self.kind));
    }

    fn steps(&self) -> usize {
        self.tyk.handle().steps()
    }

    /// Waits until neither side was written to for longer than any timer of [`operator`], and nobody waits for an answer;
    /// the operator's writes to Kubernetes, events aside. Time counts while the thread of the operator has its turns, and
    /// this one, which answers for Tyk: where one stands still, nothing is at its end.
    pub(crate) async fn quiet(&mut self) -> Vec<String> {
        let deadline = Instant::now() + LIMIT;
        let turns = |real: &Self| {
            let process = real.process.as_ref().expect("a process");
            process.turns.load(Ordering::SeqCst)
        };
        let (mut seen, mut since) = ((usize::MAX, 0), (Instant::now(), 0, 0));
        let mut own = 0;
        loop {
            let now = (self.server.writes_since(self.mark).len(), self.steps());
            if now != seen || self.tyk.handle().pending() > 0 {
                (seen, since) = (now, (Instant::now(), turns(self), own));
            }
            own += 1;
            let had_turns = turns(self) - since.1 > 35 && own - since.2 > 20;
            if since.0.elapsed() > Duration::from_millis(700) && had_turns {
                let calls = self.server.writes_since(self.mark);
                self.mark = self.server.mark();
                return bench::lines(&calls);
            }
            assert!(
                Instant::now() < deadline,
                "no end: {:?}",
                bench::lines(&self.server.writes_since(self.mark))
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !wanted(self) {
            let tyk = self.tyk.handle();
            assert!(
                Instant::now() < deadline,
                "{:?}: {what} did not come about: {} · {:?} · {:#?}",
                self.kind,
                self.accepted(),
                self.loaded(),
                tyk.requests().iter().rev().take(20).collect::<Vec<_>>()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn route(&self) -> Option<Value> {
        self.server.get("HTTPRoute", "shop", "r")
    }

    fn accepted(&self) -> String {
        let route = self.route().unwrap_or_default();
        let conditions = route["status"]["parents"][0]["conditions"].as_array().cloned();
        let found = conditions.into_iter().flatten().find(|c| c["type"] == "Accepted");
        found.map_or("-".into(), |c| {
            format!("{}: {}", c["reason"], c["message"]).replace('"', "")
        })
    }

    /// Ids of what Tyk holds and serves.
    pub(crate) fn loaded(&self) -> Vec<String> {
        self.tyk.loaded().into_keys().collect()
    }

    pub(crate) fn stands(&self, paths: &[&str]) -> bool {
        let count = match paths.len() {
            1 => "1 API".to_owned(),
            n => format!("{n} APIs"),
        };
        let route = self.route().unwrap_or_default();
        let observed = &route["status"]["parents"][0]["conditions"][0]["observedGeneration"];
        *observed == route["metadata"]["generation"]
            && self.accepted() == format!("Accepted: {count}")
            && self.loaded() == ids(paths)
    }

    pub(crate) fn event(&self, reason: &str) -> usize {
        let events = self.server.list("Event", "");
        events.iter().filter(|event| event["reason"] == reason).count()
    }

    pub(crate) fn edit(&self, change: Value) {
        self.server.edit("HTTPRoute", "shop", "r", change);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_lives_in_both_kinds_of_tyk() {
    for kind in Kind::all() {
        let mut real = Real::begin(&kind, [route(&["/a", "/b"])]).await;
        real.until("both APIs", |r| r.stands(&["/a", "/b"])).await;
        let document = &real.tyk.files()[&id("/a")];
        let owner = Owner::of(document).unwrap();
        assert_eq!(
            (owner.cluster.as_str(), owner.route.name.as_str()),
            ("cluster-1", "r")
        );
        // when a path goes and another comes
        real.edit(paths(&["/b", "/c"]));
        real.until("the other path", |r| r.stands(&["/b", "/c"])).await;
        real.quiet().await;
        // when a new process begins, then it writes nothing on either side
        let before = real.tyk.handle().counts();
        real.kill();
        real.start();
        assert_eq!(real.quiet().await, bench::NOTHING, "{kind:?}");
        let after = real.tyk.handle().counts();
        assert_eq!(
            (after.writes, after.deletes, after.reloads),
            (before.writes, before.deletes, before.reloads),
            "{kind:?}"
        );
        // when it is deleted
        real.server.delete("HTTPRoute", "shop", "r");
        real.until("the end", |r| r.route().is_none() && r.loaded().is_empty())
            .await;
        real.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_tyk_it_heals() {
    type Harm = (&'static str, fn(&Real), fn(&Real));
    let nothing: fn(&Real) = |_| {};
    let harms: [Harm; 6] = [
        ("files lost", |r| r.tyk.lose_files(), nothing),
        (
            "edited by somebody",
            |r| r.tyk.retitle(&id("/a"), "mine"),
            nothing,
        ),
        ("removed by somebody", |r| r.tyk.remove(&id("/b")), nothing),
        (
            "frozen, and changed meanwhile",
            |r| {
                r.tyk.handle().freeze();
                r.edit(paths(&["/a", "/b", "/c"]));
                r.edit(paths(&["/a", "/b"]));
            },
            |r| r.tyk.handle().thaw(),
        ),
        (
            "errors, and changed meanwhile",
            |r| {
                r.tyk
                    .handle()
                    .inject(Fault::on("", "/").times(60).status(503, "later"));
                let mut other = rule("/b");
                other["backendRefs"] = json!([{"name": "api", "port": 80}]);
                r.edit(json!({"spec": {"rules": [rule("/a"), other]}}));
            },
            nothing,
        ),
        (
            "slow",
            |r| {
                let slow = Fault::on("", "/").times(20).slow(Duration::from_millis(100));
                r.tyk.handle().inject(slow);
                r.edit(paths(&["/a", "/b"]));
            },
            nothing,
        ),
    ];
    for kind in Kind::all() {
        let mut real = Real::begin(&kind, [route(&["/a", "/b"])]).await;
        for (harm, hurt, help) in &harms {
            let begun = real.tyk.handle().counts().requests;
            hurt(&real);
            tokio::task::yield_now().await;
            help(&real);
            let healed = |r: &Real| {
                let same = |d: &Value| d["info"]["title"] != "mine" && d.get(OWNER).is_some();
                r.stands(&["/a", "/b"]) && r.tyk.files().values().all(same)
            };
            real.until(harm, healed).await;
            real.quiet().await;
            real.until(harm, healed).await;
            let asked = real.tyk.handle().counts().requests - begun;
            println!("{kind:?}, {harm}: {asked} requests");
            assert!(asked < 1_000, "{kind:?}, {harm}: {asked} requests");
        }
        real.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tyk_down_while_a_route_goes_holds_it_back_until_it_answers() {
    for kind in Kind::all() {
        let mut real = Real::begin(&kind, [route(&["/a"])]).await;
        real.tyk
            .handle()
            .inject(Fault::on("", "/").times(100_000).status(503, "down"));
        real.server.delete("HTTPRoute", "shop", "r");
        real.until("an event", |r| r.event("DeletionFailed") > 0).await;
        assert!(real.route().is_some());
        real.tyk.handle().clear_faults();
        real.until("the end", |r| r.route().is_none() && r.loaded().is_empty())
            .await;
        assert_eq!(real.event("DeletionFailed"), 1);
        real.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_stays_to_the_last_byte_whatever_the_annotation_says() {
    for kind in Kind::all() {
        let mut real = Real::begin(&kind, [route(&["/a"]), route_named("s", "b.example.com", &["/"])]).await;
        real.until("the API", |r| r.accepted() == "Accepted: 1 API").await;
        // given a document of another cluster's route under an id that the annotation is made to name
        let mut theirs = real.tyk.files()[&id("/a")].clone();
        let foreign = "gwapi-00000000000000000001";
        theirs["x-routewright-owner"]["cluster"] = json!("cluster-2");
        theirs["x-tyk-api-gateway"]["info"]["id"] = json!(foreign);
        theirs["x-tyk-api-gateway"]["info"]["name"] = json!("theirs");
        theirs["x-tyk-api-gateway"]["server"]["listenPath"]["value"] = json!("/theirs");
        real.tyk.put(theirs);
        let before = real.tyk.files()[foreign].clone();
        let annotation = real.route().unwrap()["metadata"]["annotations"]["routewright.dev/tyk-apis"].clone();
        let place = annotation.as_str().unwrap().split('=').next().unwrap().to_owned();
        let other = real.server.get("HTTPRoute", "shop", "s").unwrap();
        let others = other["metadata"]["annotations"]["routewright.dev/tyk-apis"]
            .as_str()
            .unwrap()
            .to_owned();
        let edited = format!(
            "{};{place}=00000000000000000001;{others}",
            annotation.as_str().unwrap()
        );
        real.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": edited}}}));
        real.until("an event", |r| r.event("DeletionFailed") > 0).await;
        real.edit(json!({"metadata": {"annotations": {"routewright.dev/tyk-apis": edited}}}));
        real.server.delete("HTTPRoute", "shop", "r");
        real.until("the end", |r| r.route().is_none()).await;
        real.quiet().await;
        assert_eq!(real.tyk.files().get(foreign), Some(&before));
        assert_eq!(
            real.loaded().len(),
            2,
            "theirs and the other route's: {:?}",
            real.loaded()
        );
        real.kill();
    }
}

// --- killed at every write ---

struct Tale {
    name: &'static str,
    before: Option<Value>,
    act: fn(&Real),
    end: &'static [&'static str],
}

fn tales() -> Vec<Tale> {
    vec![
        Tale {
            name: "creation",
            before: None,
            act: |r| drop(r.server.create(route(&["/a", "/b"]))),
            end: &["/a", "/b"],
        },
        Tale {
            name: "one path for another, another backend",
            before: Some(route(&["/a", "/b"])),
            act: |r| {
                let mut other = rule("/a");
                other["backendRefs"] = json!([{"name": "api", "port": 80}]);
                r.edit(json!({"spec": {"rules": [other, rule("/c")]}}));
            },
            end: &["/a", "/c"],
        },
        Tale {
            name: "deletion",
            before: Some(route(&["/a", "/b"])),
            act: |r| assert!(r.server.delete("HTTPRoute", "shop", "r")),
            end: &[],
        },
    ]
}

impl Tale {
    fn is_told(&self, real: &Real) -> bool {
        let backend = |r: &Real| {
            let files = r.tyk.files();
            let url = files.get(&id("/a")).map(Value::to_string).unwrap_or_default();
            self.name == "creation" || url.contains("http://api.shop.svc")
        };
        match self.end {
            [] => real.route().is_none() && real.loaded().is_empty(),
            paths => real.stands(paths) && backend(real),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Point {
    Api(usize, bool),
    Tyk(usize, Side),
}

/// What happens after the process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// A new one begins.
    Again,
    /// The route is deleted, and a new one begins.
    Gone,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_on_either_side_a_new_process_comes_to_the_same_end_in_a_gateway() {
    println!("{}", sweep(&Kind::Gateway, Then::Again, 40).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_on_either_side_a_new_process_comes_to_the_same_end_in_a_dashboard() {
    println!("{}", sweep(&Kind::Dashboard, Then::Again, 28).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_on_either_side_a_new_process_comes_to_the_same_end_in_a_tyk_gateway() {
    if let Some(kind) = Kind::given() {
        println!("{}", sweep(&kind, Then::Again, 40).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_on_either_side_and_deleted_no_api_is_left_in_a_gateway() {
    println!("{}", sweep(&Kind::Gateway, Then::Gone, 30).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_on_either_side_and_deleted_no_api_is_left_in_a_tyk_gateway() {
    if let Some(kind) = Kind::given() {
        println!("{}", sweep(&kind, Then::Gone, 30).await);
    }
}

/// Every tale at every point; what was counted.
async fn sweep(kind: &Kind, then: Then, least: usize) -> String {
    let (mut count, mut missed, mut report) = (0, 0, String::new());
    for tale in tales() {
        if then == Then::Gone && tale.end.is_empty() {
            continue;
        }
        // the points of an undisturbed run
        let mut real = Real::begin(kind, tale.before.clone()).await;
        let steps = real.steps();
        (tale.act)(&real);
        real.until(tale.name, |r| tale.is_told(r)).await;
        let writes = real
            .quiet()
            .await
            .iter()
            .filter(|line| line.contains("PATCH"))
            .count();
        let steps = real.steps() - steps;
        real.kill();
        report.push_str(&format!(
            "{kind:?}, {}: {writes} writes to the API server, {steps} to Tyk\n",
            tale.name
        ));
        let api = (0..=writes).flat_map(|n| [Point::Api(n, true), Point::Api(n, false)]);
        let tyk = (1..=steps).flat_map(|n| [Point::Tyk(n, Side::Before), Point::Tyk(n, Side::After)]);
        let all = api.filter(|p| !matches!(p, Point::Api(0, false))).chain(tyk);
        for point in all {
            let case = format!("{kind:?}, {}, {point:?}", tale.name);
            let mut real = Real::begin(kind, tale.before.clone()).await;
            let mine = Matcher::writes().user(OPERATOR);
            match point {
                Point::Api(n, answered) => {
                    match answered {
                        true => real.server.kill_after(mine, n, Crash::Hang),
                        false => real.server.kill_during(mine, n, Crash::Hang),
                    };
                    (tale.act)(&real);
                    // What a Gateway's counter needs of writes differs from run to run: the last one may not come.
                    let over = |r: &Real| r.server.is_killed() || tale.is_told(r);
                    real.until(&case, over).await;
                    real.kill();
                }
                Point::Tyk(n, side) => {
                    let mut pause = real.tyk.handle().pause_at(real.steps() + n, side);
                    (tale.act)(&real);
                    // What was counted in one run of a Tyk Gateway may be more than there is in the next.
                    let reached = tokio::select! {
                        () = pause.reached() => true,
                        () = real.until(&case, |r| tale.is_told(r)) => false,
                    };
                    if !reached {
                        let asked = real.tyk.handle().requests();
                        let cut = asked.iter().filter(|asked| asked.status.is_none());
                        println!(
                            "{case} was not reached; not answered: {:?}",
                            cut.collect::<Vec<_>>()
                        );
                        missed += 1;
                    }
                    real.kill();
                    pause.discard();
                }
            }
            real.server.revive();
            if then == Then::Gone {
                real.server.delete("HTTPRoute", "shop", "r");
            }
            let is_over = |r: &Real| match then {
                Then::Again => tale.is_told(r),
                Then::Gone => r.route().is_none() && r.loaded().is_empty(),
            };
            real.start();
            real.until(&case, is_over).await;
            real.quiet().await;
            assert!(is_over(&real), "{case}: and so it stays");
            real.kill();
            if then == Then::Gone {
                real.tyk.load();
                assert_eq!(
                    real.loaded(),
                    bench::NOTHING,
                    "{case}: nor written and not loaded"
                );
            }
            count += 1;
        }
    }
    // How often a Tyk Gateway wants to be asked for a deletion differs from run to run.
    assert!(
        missed == 0 || matches!(kind, Kind::Tyk(_)),
        "{missed} points were not reached"
    );
    count -= missed;
    assert!(count >= least, "{report}{count}");
    format!("{report}{kind:?}, {then:?}: {count} kill points, {missed} not reached")
}
