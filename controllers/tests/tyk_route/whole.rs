//! The whole operator: watches, model, triggers and the controllers of Tyk side by side, with a Tyk in memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use reconcile_kit::{
    runtime::{Metrics, leadership::Leadership},
    testing::{ApiServer, Call},
};
use routewright::{
    app::{App, Doors, Options},
    tyk::{
        client::TykErrorClass,
        controllers::{self, Reach},
        httproute::contexts::KubeContexts,
        objects::Key,
        sync::Drifted,
    },
};
use serde_json::{Value, json};

use super::{
    bench::{
        self, OPERATOR, URL, class, context, gateway, id, ids, installed, paths, route, route_named, secret,
    },
    support::{self, eventually},
    tyk::{Actors, Tyk},
};

struct Whole {
    server: ApiServer,
    tyk: Tyk,
    drifted: Arc<Mutex<Option<Drifted>>>,
    app: Option<App>,
    mark: reconcile_kit::testing::Mark,
}

impl Whole {
    async fn begin(routes: impl IntoIterator<Item = Value>) -> Self {
        let server = installed();
        for route in routes {
            server.create(route);
        }
        let mark = server.mark();
        let mut whole = Self {
            server,
            tyk: Tyk::default(),
            drifted: Arc::default(),
            app: None,
            mark,
        };
        whole.start();
        whole.quiet().await;
        whole.tyk.writes();
        whole.tyk.reads();
        whole
    }

    fn start(&mut self) {
        let options = Options {
            tyk: controllers::Options {
                enabled: true,
                definitions: true,
                cluster: Some("cluster-1".into()),
                ..Default::default()
            },
            ..support::options()
        };
        let (tyk, kept) = (self.tyk.clone(), Arc::clone(&self.drifted));
        let doors = Doors {
            tyk: Some(Arc::new(move |ground, drifted| {
                *kept.lock().unwrap() = Some(drifted);
                Reach {
                    sync: Arc::new(Actors::new(&tyk)),
                    contexts: Arc::new(KubeContexts(ground.client.clone())),
                }
            })),
            ..Doors::default()
        };
        let client = self.server.client_as(OPERATOR);
        let app = App::start_with(client, Leadership::always(), Metrics::default(), &options, doors);
        self.app = Some(app.unwrap());
    }

    async fn restart(&mut self) -> Vec<String> {
        self.app.take().unwrap().shutdown().await;
        self.quiet().await;
        self.start();
        self.quiet().await
    }

    /// Waits until the operator asks for nothing for a while; its reads and writes besides watches, events and lists.
    async fn quiet(&mut self) -> Vec<String> {
        let mut seen = usize::MAX;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let calls = self.server.calls_since(self.mark);
            if calls.len() == seen {
                self.mark = self.server.mark();
                return support::lines(&calls);
            }
            seen = calls.len();
        }
    }

    /// Everything that the operator asks for in this time.
    async fn pass(&mut self, time: Duration) -> Vec<Call> {
        tokio::time::sleep(time).await;
        let calls = self.server.calls_since(self.mark);
        self.mark = self.server.mark();
        calls
    }

    fn accepted(&self, name: &str) -> String {
        let route = self.server.get("HTTPRoute", "shop", name).unwrap_or_default();
        let conditions = route["status"]["parents"][0]["conditions"].as_array().cloned();
        let found = conditions.into_iter().flatten().find(|c| c["type"] == "Accepted");
        found.map_or("-".into(), |c| {
            format!("{}: {}", c["reason"], c["message"]).replace('"', "")
        })
    }

    fn attached(&self) -> Value {
        let gateway = self.server.get("Gateway", "infra", "edge").unwrap();
        gateway["status"]["listeners"][0]["attachedRoutes"].clone()
    }

    fn events(&self, reason: &str) -> usize {
        let events = self.server.list("Event", "");
        events.iter().filter(|event| event["reason"] == reason).count()
    }
}

/// Lines about routes.
fn of_routes(lines: Vec<String>) -> Vec<String> {
    lines
        .into_iter()
        .filter(|line| line.contains("httproutes"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_route_lives_through_all_controllers_with_one_status_write_per_change() {
    let mut whole = Whole::begin([]).await;
    whole.server.create(route(&["/a"]));
    let lines = of_routes(whole.quiet().await);
    let (metadata, status) = (
        "PATCH(merge) httproutes shop/r -> 200",
        "PATCH(merge) httproutes/status shop/r -> 200",
    );
    assert_eq!(lines, [metadata, status]);
    assert_eq!(
        (whole.accepted("r"), whole.attached()),
        ("Accepted: 1 API".into(), json!(1))
    );
    // when it changes
    whole.server.edit("HTTPRoute", "shop", "r", paths(&["/a", "/b"]));
    assert_eq!(of_routes(whole.quiet().await), [metadata, status]);
    assert_eq!(whole.tyk.ids(URL), ids(&["/a", "/b"]));
    // when the Gateway lets it in no more, and again
    let listener = |from: &str| {
        json!({"spec": {"listeners": [{"name": "web", "protocol": "HTTP", "port": 80,
                                       "allowedRoutes": {"namespaces": {"from": from}}}]}})
    };
    whole.server.edit("Gateway", "infra", "edge", listener("Same"));
    whole.quiet().await;
    assert_eq!((whole.tyk.ids(URL), whole.attached()), (vec![], json!(0)));
    whole.server.edit("Gateway", "infra", "edge", listener("All"));
    whole.quiet().await;
    assert_eq!(
        (whole.tyk.ids(URL), whole.attached()),
        (ids(&["/a", "/b"]), json!(1))
    );
    // when it is deleted
    whole.server.delete("HTTPRoute", "shop", "r");
    assert_eq!(of_routes(whole.quiet().await), [metadata]);
    assert_eq!((whole.tyk.ids(URL), whole.attached()), (vec![], json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing_and_an_hour_asks_for_nothing() {
    let routes = (0..20).map(|n| route_named(&format!("n{n}"), &format!("n{n}.example.com"), &["/", "/x"]));
    let mut whole = Whole::begin(routes).await;
    assert_eq!(whole.tyk.ids(URL).len(), 40);
    for _ in 0..2 {
        assert_eq!(
            whole
                .restart()
                .await
                .iter()
                .filter(|l| !l.starts_with("GET"))
                .count(),
            0
        );
        assert_eq!((whole.tyk.writes(), whole.tyk.reads()), (vec![], 0));
    }
    let calls = whole.pass(Duration::from_secs(3_600)).await;
    let asked: Vec<&Call> = calls.iter().filter(|call| call.user == OPERATOR).collect();
    let watches = asked
        .iter()
        .filter(|call| !call.verb.is_write() && !call.verb.is_read());
    assert_eq!(asked.len(), watches.count(), "{asked:?}");
    assert_eq!((whole.tyk.writes(), whole.tyk.reads()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn many_routes_at_once_are_one_status_write_each_and_few_of_their_gateway() {
    let mut whole = Whole::begin([]).await;
    whole.tyk.reloads_in(Duration::from_secs(1));
    for n in 0..200 {
        whole.server.create(route_named(
            &format!("n{n}"),
            &format!("n{n}.example.com"),
            &["/"],
        ));
    }
    let lines = whole.quiet().await;
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count("httproutes/status"), count("httproutes shop")), (200, 200));
    assert!(count("gateways/status") <= 20, "{}", count("gateways/status"));
    assert_eq!((whole.attached(), whole.tyk.writes().len()), (json!(200), 200));
    // And they waited for Tyk together: 64 slots, and as many runs again that stepped aside since they are slow
    assert_eq!(whole.tyk.most_waiting(), 128);
}

#[tokio::test(start_paused = true)]
async fn a_way_to_tyk_that_comes_back_wakes_whoever_waits_for_it() {
    for (kind, name, back) in [
        ("OperatorContext", "main", context("main", URL)),
        ("Secret", "credential", secret("credential")),
    ] {
        let mut whole = Whole::begin([route(&["/a"])]).await;
        whole.server.delete("HTTPRoute", "shop", "r");
        whole.server.delete(kind, "tyk", name);
        whole.server.delete("Gateway", "infra", "edge");
        whole.server.delete("GatewayClass", "", "tyk");
        // long enough for the retries to be minutes apart
        whole.pass(Duration::from_secs(1_500)).await;
        assert!(whole.server.get("HTTPRoute", "shop", "r").is_some(), "{kind}");
        assert_eq!(whole.events("CleanupBlocked"), 1, "{kind}");
        // when it is back, then nobody waits for a timer
        whole.server.create(back);
        whole.pass(Duration::from_secs(5)).await;
        assert!(whole.server.get("HTTPRoute", "shop", "r").is_none(), "{kind}");
        assert_eq!(whole.tyk.ids(URL), Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_that_a_blocked_route_does_not_wait_for_wake_nobody() {
    let mut whole = Whole::begin([route(&["/a"])]).await;
    whole.server.delete("OperatorContext", "tyk", "main");
    whole.server.delete("HTTPRoute", "shop", "r");
    whole.pass(Duration::from_secs(1_500)).await;
    assert_eq!(whole.events("CleanupBlocked"), 1);
    // when Secrets come and change that have nothing to do with it
    for n in 0..20 {
        whole.server.create(secret(&format!("other-{n}")));
    }
    let calls = support::lines(&whole.pass(Duration::from_secs(5)).await);
    // then no request asks where its context leads
    let asked = calls
        .iter()
        .filter(|line| line.contains("operatorcontexts"))
        .count();
    assert_eq!(asked, 0, "{calls:?}");
    // and another context changes nothing, but its own does
    whole.server.create(context("second", bench::OTHER));
    whole.pass(Duration::from_secs(5)).await;
    assert!(whole.server.get("HTTPRoute", "shop", "r").is_some());
    whole.server.create(context("main", URL));
    whole.pass(Duration::from_secs(5)).await;
    assert!(whole.server.get("HTTPRoute", "shop", "r").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_is_replaced_wakes_a_route_that_it_kept_from_going() {
    let mut whole = Whole::begin([route(&["/a"])]).await;
    whole.tyk.breaks(Some(TykErrorClass::Denied));
    whole.server.delete("HTTPRoute", "shop", "r");
    // long enough for a second look at the timer, which is minutes apart
    whole.pass(Duration::from_secs(400)).await;
    assert!(whole.server.get("HTTPRoute", "shop", "r").is_some());
    assert_eq!(whole.events("DeletionFailed"), 1);
    // when the credential is replaced, then nobody waits for a timer
    whole.tyk.breaks(None);
    let other = k8s_openapi::ByteString(b"another".to_vec());
    whole.server.edit(
        "Secret",
        "tyk",
        "credential",
        json!({"data": {"TYK_AUTH": other}}),
    );
    whole.pass(Duration::from_secs(10)).await;
    assert!(whole.server.get("HTTPRoute", "shop", "r").is_none());
    assert_eq!(whole.tyk.ids(URL), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn everything_deleted_in_one_moment_in_any_order_leaves_no_api_and_no_finalizer_behind() {
    let all = [
        ("GatewayClass", "", "tyk"),
        ("Gateway", "infra", "edge"),
        ("OperatorContext", "tyk", "main"),
        ("Secret", "tyk", "credential"),
        ("HTTPRoute", "shop", "r"),
    ];
    for turn in 0..all.len() {
        for backwards in [false, true] {
            let mut order = all.to_vec();
            order.rotate_left(turn);
            if backwards {
                order.reverse();
            }
            let mut whole = Whole::begin([route(&["/a", "/b"])]).await;
            for (kind, namespace, name) in &order {
                whole.server.delete(kind, namespace, name);
            }
            whole.pass(Duration::from_secs(30)).await;
            if whole.server.get("HTTPRoute", "shop", "r").is_some() {
                assert_eq!(whole.events("CleanupBlocked"), 1, "{order:?}");
                whole.server.create(secret("credential"));
                whole.server.create(context("main", URL));
                whole.pass(Duration::from_secs(5)).await;
            }
            assert!(whole.server.get("HTTPRoute", "shop", "r").is_none(), "{order:?}");
            assert_eq!(whole.tyk.ids(URL), Vec::<String>::new(), "{order:?}");
            assert!(whole.server.get("GatewayClass", "", "tyk").is_none(), "{order:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_told_of_a_drift_looks_again() {
    let mut whole = Whole::begin([route(&["/a"])]).await;
    whole.tyk.breaks(Some(TykErrorClass::Unreachable));
    whole.server.edit("HTTPRoute", "shop", "r", paths(&["/a", "/b"]));
    whole.pass(Duration::from_secs(1_500)).await;
    assert!(
        whole.accepted("r").starts_with("TranslationFailed"),
        "{}",
        whole.accepted("r")
    );
    assert_eq!(whole.attached(), json!(0));
    // when the actor sees the connection come back and tells, then nobody waits for a timer
    whole.tyk.breaks(None);
    let drifted = whole.drifted.lock().unwrap().clone().unwrap();
    drifted(&Key::new("shop", "r"));
    whole.quiet().await;
    assert_eq!(
        (whole.accepted("r"), whole.attached()),
        ("Accepted: 2 APIs".into(), json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_that_appears_late_and_one_that_is_exchanged_find_their_routes() {
    let mut whole = Whole::begin([route(&["/a"])]).await;
    whole.server.create(context("second", bench::OTHER));
    whole.server.create(class("two", "second"));
    whole.server.create(gateway("far", "two"));
    let parents = json!([{"name": "far", "namespace": "infra"}]);
    whole
        .server
        .edit("HTTPRoute", "shop", "r", json!({"spec": {"parentRefs": parents}}));
    whole.quiet().await;
    assert_eq!(
        (whole.tyk.ids(URL).len(), whole.tyk.ids(bench::OTHER).len()),
        (0, 1)
    );
    assert_eq!(whole.attached(), json!(0));
    eventually(&whole.server, "an entry for the new Gateway", || {
        let route = whole.server.get("HTTPRoute", "shop", "r")?;
        (route["status"]["parents"][0]["parentRef"]["name"] == "far").then_some(())
    })
    .await;
    assert!(
        !whole.tyk.ids(bench::OTHER).contains(&id("/a")),
        "another Gateway, another id"
    );
}
