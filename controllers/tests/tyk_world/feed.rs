//! What the model hears of the cluster: the world asked directly, without controllers.

use std::{sync::Arc, sync::Mutex, time::Duration};

use reconcile_kit::{
    runtime::{Metrics, WatchHub, hub::WatchGuard},
    testing::{ApiServer, Fault, Matcher, Times, Verb},
};
use routewright::tyk::{
    Settings,
    objects::Key,
    verdict::{Changes, RouteVerdict},
    world::{Answer, Feeding, World},
};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{support, world::*};

/// A world that is fed from a server.
struct Fed {
    world: World,
    hub: WatchHub,
    told: Arc<Mutex<Vec<Changes>>>,
    feeding: Feeding,
    watching: Vec<WatchGuard>,
    _running: AbortOnDropHandle<()>,
}

impl Fed {
    async fn from(server: &ApiServer, cluster: Option<&str>) -> Self {
        let client = server.client_as(support::OPERATOR);
        let hub = WatchHub::new(client.clone(), Metrics::default());
        let (world, feeding, _) =
            World::of_cluster(&hub, client, Settings::default(), cluster.map(str::to_owned));
        let told = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&told);
        world.listen(Box::new(move |changes| {
            hear.lock().unwrap().push(changes.clone())
        }));
        let watching = feeding.start();
        let run = feeding.clone();
        let running = AbortOnDropHandle::new(tokio::spawn(async move {
            run.run(CancellationToken::new(), || ()).await;
        }));
        world.ready().await;
        Self {
            world,
            hub,
            told,
            feeding,
            watching,
            _running: running,
        }
    }

    fn route(&self, name: &str) -> Answer<RouteVerdict> {
        self.world.route(&Key::new("web", name))
    }

    /// Addresses to which the route's one API goes, sorted.
    fn targets(&self, name: &str) -> Option<Vec<String>> {
        let Answer::Known(verdict) = self.route(name) else {
            return None;
        };
        let targets = verdict
            .apis
            .first()?
            .targets
            .iter()
            .filter_map(|target| target.authority.clone());
        let mut targets: Vec<String> = targets.collect();
        targets.sort();
        Some(targets)
    }

    async fn reaches(&self, server: &ApiServer, name: &str, wanted: &[&str]) {
        let what = format!("targets {wanted:?} of {name}");
        support::eventually(server, &what, || {
            self.targets(name)
                .is_some_and(|targets| targets == wanted)
                .then_some(())
        })
        .await;
    }
}

fn slice(name: &str, labels: Value, address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "web", "name": name, "labels": labels},
        "ports": [{"name": "http", "port": 8080}, {"name": "https", "port": 8443}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    })
}

#[tokio::test(start_paused = true)]
async fn slices_of_headless_services_are_followed_whoever_manages_them_and_no_others() {
    let server = ready();
    server.edit(
        "Service",
        "web",
        "backend",
        json!({"spec": {"clusterIP": "None"}}),
    );
    server.create(route("shop"));
    let kubernetes = "endpointslice-controller.k8s.io";
    // Given a slice that Kubernetes made for the headless Service, one that somebody else manages, and one of another
    // Service
    server.create(slice(
        "made",
        json!({"kubernetes.io/service-name": "backend", "endpointslice.kubernetes.io/managed-by": kubernetes,
            "service.kubernetes.io/headless": ""}),
        "10.1.0.1",
    ));
    server.create(slice(
        "manual",
        json!({"kubernetes.io/service-name": "backend"}),
        "10.1.0.2",
    ));
    server.create(slice(
        "other",
        json!({"kubernetes.io/service-name": "gateways", "endpointslice.kubernetes.io/managed-by": kubernetes}),
        "10.1.0.3",
    ));
    let fed = Fed::from(&server, None).await;
    // then the route goes to both, and the third is not even held
    fed.reaches(&server, "shop", &["10.1.0.1:8080", "10.1.0.2:8080"])
        .await;
    let held: usize = fed
        .hub
        .status()
        .iter()
        .filter(|watch| watch.kind.starts_with("EndpointSlice"))
        .map(|watch| watch.objects)
        .sum();
    assert_eq!(held, 2);
    // when a slice gets the label, it moves from one watch to the other and is not lost
    for headless in [json!(""), Value::Null, json!("")] {
        server.edit(
            "EndpointSlice",
            "web",
            "manual",
            json!({"metadata": {"labels": {"service.kubernetes.io/headless": headless}}}),
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
        fed.reaches(&server, "shop", &["10.1.0.1:8080", "10.1.0.2:8080"])
            .await;
    }
    server.delete("EndpointSlice", "web", "manual");
    fed.reaches(&server, "shop", &["10.1.0.1:8080"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_went_while_nobody_watched_is_gone_afterwards() {
    let server = ready();
    for name in ["stays", "goes"] {
        server.create(route(name));
    }
    let fed = Fed::from(&server, None).await;
    assert!(matches!(fed.route("goes"), Answer::Known(_)));
    // Given watches that break, and a route and a Service that go meanwhile
    for plural in ["httproutes", "services"] {
        server.cut_watches(plural);
    }
    server.delete("HTTPRoute", "web", "goes");
    server.delete("Service", "web", "backend");
    server.compact();
    // then the model follows
    support::eventually(&server, "the end of the route", || {
        (fed.route("goes") == Answer::None).then_some(())
    })
    .await;
    support::eventually(&server, "the end of the Service", || {
        let Answer::Known(route) = fed.route("stays") else {
            return None;
        };
        route.parents[0]
            .conditions
            .iter()
            .any(|c| c.reason == "BackendNotFound")
            .then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_to_who_it_concerns_and_to_nobody_else() {
    let server = ready();
    for name in ["a", "b"] {
        server.create(route(name));
    }
    server.create(service("only-a"));
    server.edit(
        "HTTPRoute",
        "web",
        "a",
        json!({"spec": {"rules": [{"backendRefs": [{"name": "only-a", "port": 80}]}]}}),
    );
    let fed = Fed::from(&server, None).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    fed.told.lock().unwrap().clear();
    server.delete("Service", "web", "only-a");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let told = std::mem::take(&mut *fed.told.lock().unwrap());
    let only_a = Changes {
        routes: [Key::new("web", "a")].into(),
        ..Changes::default()
    };
    assert_eq!(told, [only_a]);
    // A new resourceVersion alone is no news.
    server.edit(
        "HTTPRoute",
        "web",
        "b",
        json!({"metadata": {"labels": {"x": "y"}}}),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fed.told.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_start_is_one_word_and_reads_each_content_once() {
    // Given a hundred routes and a definition with a ConfigMap
    let server = ready();
    for n in 0..100 {
        server.create(route(&format!("r{n}")));
    }
    server.create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "web", "name": "doc"},
        "data": {"k": "{}"}}),
    );
    server.create(json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
        "metadata": {"namespace": "web", "name": "access"},
        "spec": {"tykOAS": {"configmapRef": {"name": "doc", "keyName": "k"}},
            "targetRefs": [{"group": GROUP, "kind": "Gateway", "name": "public"}]},
    }));
    let mark = server.mark();
    let fed = Fed::from(&server, None).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // then all is told at once, and two reads were made
    let told = fed.told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0].routes.len(), 100);
    let reads: Vec<_> = server
        .calls_since(mark)
        .into_iter()
        .filter(|call| call.verb == Verb::Get)
        .collect();
    assert_eq!(reads.len(), 2, "{reads:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_cluster_is_named_by_the_flag_or_by_kube_system() {
    let server = ready();
    let uid = server.get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    let fed = Fed::from(&server, None).await;
    assert_eq!(json!(fed.world.cluster()), uid);
    let fed = Fed::from(&server, Some("blue")).await;
    assert_eq!(fed.world.cluster().as_deref(), Some("blue"));
}

#[tokio::test(start_paused = true)]
async fn names_may_be_as_long_as_kubernetes_allows() {
    let server = ready();
    let long = "g".repeat(253);
    let mut public = gateway();
    public["metadata"]["name"] = json!(long);
    support::put(&server, public);
    let fed = Fed::from(&server, None).await;
    assert!(matches!(
        fed.world.gateway(&Key::new("web", &long)),
        Answer::Known(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_due_while_a_watch_is_not_complete_waits_for_it() {
    // Given a Secret that cannot be read, so that its next read is due within seconds
    let server = ready();
    let of = |resource: &str| Matcher::any().resource(resource);
    let unread = Matcher::verb(Verb::Get).resource("secrets");
    let unread = server.fault(unread, Fault::Status(503), Times::Always);
    let mut fed = Fed::from(&server, None).await;
    // when watches are stopped and started again, while one kind cannot be listed
    let unlisted = server.fault(of("services"), Fault::Status(503), Times::Always);
    fed.watching.clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    fed.watching = fed.feeding.start();
    let mark = server.mark();
    // then time goes on: a feed that turned without rest would hold this clock still, and the test would not end
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reads = server.calls_since(mark).into_iter();
    assert_eq!(reads.filter(|call| call.verb == Verb::Get).count(), 0);
    // and when all can be had, all is known
    server.unfault(unlisted);
    server.unfault(unread);
    fed.world.ready().await;
    support::eventually(&server, "the class", || {
        matches!(fed.world.class("tyk"), Answer::Known(_)).then_some(())
    })
    .await;
}
