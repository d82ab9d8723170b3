//! The whole operator with a real Garage behind a proxy: at each call that a bucket makes in its life the connection is cut, or
//! the process dies, or the call arrives late. Each time the end is the one that was asked for, no bucket is left over, and
//! the buckets of others are as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::{Duration, Instant};

use reconcile_kit::testing::ApiServer;
use routewright::app::{App, Options};
use routewright::garage::admin::GarageAdmin;
use routewright::garage::testing::GarageWorld;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::proxy::{Cut, Proxy};
use super::real::{RealGarage, TOKEN};
use super::support::{options, put, server, start_beside, turns};

/// Deadline of what should happen within seconds.
const SOON: Duration = Duration::from_secs(90);

/// An operator in a runtime of its own, which ends between two instructions.
struct Process {
    runtime: Option<Runtime>,
    app: Option<App>,
    /// See [`turns`].
    turns: Arc<AtomicUsize>,
}

impl Process {
    async fn start(server: &ApiServer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = server.clone();
        let flags = Options {
            enable_garage_buckets: true,
            ..options()
        };
        let app = runtime
            .spawn(async move { start_beside(&server, &flags, None) })
            .await
            .unwrap();
        let turns = turns(&runtime);
        Self {
            runtime: Some(runtime),
            app: Some(app),
            turns,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        drop(self.app.take());
    }
}

/// The API server, the proxy and the Garage.
struct World<'a> {
    garage: &'a RealGarage,
    proxy: Proxy,
    server: ApiServer,
}

impl<'a> World<'a> {
    async fn new(garage: &'a RealGarage) -> Self {
        let proxy = Proxy::start(garage.admin_address).await;
        let server = server(false);
        let bytes = k8s_openapi::ByteString(TOKEN.as_bytes().to_vec());
        put(
            &server,
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"namespace": "web", "name": "garage-admin"}, "data": {"admin-token": bytes},
            }),
        );
        put(
            &server,
            json!({
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
                "metadata": {"namespace": "web", "name": "garage"},
                "spec": {
                    "connectTo": {
                        "adminApiEndpoint": format!("http://{}", proxy.address),
                        "adminTokenSecretRef": {"name": "garage-admin"},
                    },
                    "webApi": {"rootDomain": ".site.test"},
                },
            }),
        );
        Self {
            garage,
            proxy,
            server,
        }
    }

    fn bucket(&self) -> Option<Value> {
        self.server.get("GarageBucket", "web", "blog")
    }

    async fn until(&self, what: &str, holds: impl Fn(Option<&Value>) -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds(self.bucket().as_ref()) {
            assert!(Instant::now() < deadline, "{what}: {:#?}", self.bucket());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Until the bucket is Ready at its present generation.
    async fn ready(&self, what: &str) {
        self.until(what, |bucket| {
            let Some(bucket) = bucket else { return false };
            let conditions = bucket["status"]["conditions"].as_array();
            let ready = conditions.into_iter().flatten().find(|c| c["type"] == "Ready");
            ready.is_some_and(|c| {
                c["status"] == "True" && c["observedGeneration"] == bucket["metadata"]["generation"]
            })
        })
        .await;
    }

    async fn gone(&self, what: &str) {
        self.until(what, |bucket| bucket.is_none()).await;
    }

    /// The aliases of every bucket but those of others.
    async fn buckets(&self, others: &Others) -> Vec<BTreeSet<String>> {
        let mut buckets = GarageWorld::buckets(self.garage).await;
        for (id, aliases) in &others.0 {
            assert_eq!(buckets.remove(id).as_ref(), Some(aliases), "a bucket of others");
        }
        buckets.into_values().collect()
    }
}

/// Buckets of others, with their aliases.
struct Others(BTreeMap<routewright::garage::admin::BucketId, BTreeSet<String>>);

impl Others {
    async fn make(garage: &RealGarage) -> Self {
        let mut made = BTreeMap::new();
        for alias in ["bystander", "theirs"] {
            let bucket = garage.admin.create_bucket(alias).await.unwrap();
            made.insert(bucket.id, BTreeSet::from([alias.to_owned()]));
        }
        Self(made)
    }
}

fn blog() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog"},
        "spec": {
            "clusterRef": {"name": "garage"}, "website": {"enabled": true},
            "quotas": {"maxSize": "1Gi", "maxObjects": 9},
        },
    })
}

/// A part of a bucket's life.
struct Tale {
    name: &'static str,
    /// The bucket is Ready before.
    made: bool,
    act: fn(&World<'_>),
    /// The alias that it ends with; none: it is gone.
    alias: Option<&'static str>,
}

const TALES: [Tale; 3] = [
    Tale {
        name: "creation",
        made: false,
        act: |w| put(&w.server, blog()),
        alias: Some("blog"),
    },
    Tale {
        name: "another alias, no website, another quota",
        made: true,
        act: |w| {
            let change = json!({"spec": {
                "globalAlias": "weblog", "website": {"enabled": false}, "quotas": {"maxObjects": 10},
            }});
            w.server.edit("GarageBucket", "web", "blog", change);
        },
        alias: Some("weblog"),
    },
    Tale {
        name: "deletion",
        made: true,
        act: |w| {
            w.server.delete("GarageBucket", "web", "blog");
        },
        alias: None,
    },
];

async fn begin(world: &World<'_>, tale: &Tale) -> Process {
    let process = Process::start(&world.server).await;
    if tale.made {
        put(&world.server, blog());
        world.ready("before the tale").await;
    } else {
        let running =
            || world.server.get("GarageCluster", "web", "garage").unwrap()["status"]["phase"] == "Running";
        let deadline = Instant::now() + SOON;
        while !running() {
            assert!(Instant::now() < deadline, "the handle does not run");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    settled(world, &process).await;
    process
}

/// Until no call was made for a while in which the operator had its turns; own writes on the object bring a last look.
async fn settled(world: &World<'_>, process: &Process) {
    let turns = || process.turns.load(Ordering::SeqCst);
    let (mut since, mut then) = (Instant::now(), turns());
    world.proxy.calls();
    while since.elapsed() < Duration::from_millis(700) || turns() - then < 35 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if !world.proxy.calls().is_empty() {
            (since, then) = (Instant::now(), turns());
        }
    }
}

async fn end(world: &World<'_>, tale: &Tale, others: &Others, case: &str) {
    match tale.alias {
        None => {
            world.gone(case).await;
            assert_eq!(
                world.buckets(others).await,
                Vec::<BTreeSet<String>>::new(),
                "{case}"
            );
        }
        Some(alias) => {
            world.ready(case).await;
            let expected = vec![BTreeSet::from([alias.to_owned()])];
            assert_eq!(world.buckets(others).await, expected, "{case}");
            let held = world.garage.admin.bucket_by_alias(alias).await.unwrap();
            let bucket = world.bucket().unwrap();
            assert_eq!(bucket["status"]["bucketId"], held.id.as_str(), "{case}");
            assert_eq!(held.website_access, alias == "blog", "{case}");
            let (size, objects) = if alias == "blog" {
                (1 << 30, 9)
            } else {
                (1 << 30, 10)
            };
            assert_eq!(
                (held.quotas.max_size, held.quotas.max_objects),
                (Some(size), Some(objects)),
                "{case}"
            );
        }
    }
}

/// The calls of an undisturbed tale.
async fn calls(garage: &RealGarage, tale: &Tale, others: &Others) -> Vec<String> {
    let world = World::new(garage).await;
    let process = begin(&world, tale).await;
    (tale.act)(&world);
    end(&world, tale, others, tale.name).await;
    let calls = world.proxy.calls();
    clean(world, process, others).await;
    calls
}

/// Removes what a case has left.
async fn clean(world: World<'_>, process: Process, others: &Others) {
    if world.bucket().is_some() {
        world.server.delete("GarageBucket", "web", "blog");
        world.gone("the end of the case").await;
    }
    drop(process);
    assert_eq!(
        world.buckets(others).await,
        Vec::<BTreeSet<String>>::new(),
        "left over"
    );
}

/// Whether the call may change something.
fn writes(call: &str) -> bool {
    !call.starts_with("Get")
}

/// What is tried at a call.
fn cuts(call: &str) -> Vec<Cut> {
    let mut cuts = vec![Cut::Before, Cut::Hold];
    if writes(call) {
        cuts.extend([Cut::After, Cut::HoldAnswer, Cut::Late(Duration::from_millis(600))]);
    }
    cuts
}

/// Every cut at every call of a tale, on a Garage of its own; how many, and the calls.
async fn sweep(tale: &Tale) -> Option<(usize, String)> {
    let garage = RealGarage::start(".site.test").await?;
    let others = Others::make(&garage).await;
    let names = calls(&garage, tale, &others).await;
    let mut points = 0;
    for (at, name) in names.iter().enumerate() {
        for cut in cuts(name) {
            let case = format!("{}, call {at} ({name}), {cut:?}", tale.name);
            let world = World::new(&garage).await;
            let mut process = begin(&world, tale).await;
            world.proxy.arm(at, cut);
            (tale.act)(&world);
            if tokio::time::timeout(SOON, world.proxy.cut()).await.is_err() {
                panic!(
                    "{case}: the call was not made; made were {:?}",
                    world.proxy.calls()
                );
            }
            if matches!(cut, Cut::Hold | Cut::HoldAnswer) {
                drop(process);
                process = Process::start(&world.server).await;
            }
            if let Cut::Late(_) = cut {
                let deadline = Instant::now() + SOON;
                while world.proxy.arrived() == 0 {
                    assert!(Instant::now() < deadline, "{case}: never arrived");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            end(&world, tale, &others, &case).await;
            clean(world, process, &others).await;
            points += 1;
        }
    }
    Some((points, format!("{}: {}\n", tale.name, names.join("; "))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_or_killed_at_any_call_the_operator_leaks_and_steals_no_bucket_of_a_real_garage() {
    let begun = Instant::now();
    let swept = futures::future::join_all(TALES.iter().map(sweep)).await;
    let Some(swept) = swept.into_iter().collect::<Option<Vec<_>>>() else {
        return;
    };
    let points: usize = swept.iter().map(|(points, _)| points).sum();
    let report: String = swept.into_iter().map(|(_, line)| line).collect();
    println!(
        "{report}{points} points of a real Garage in {:.0?}",
        begun.elapsed()
    );
    assert!(points >= 40, "only {points} points:\n{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_arrives_after_its_object_was_deleted_leaves_no_bucket_in_a_real_garage() {
    // Given a creation that is on its way to Garage while its connection is gone already
    let Some(garage) = RealGarage::start(".site.test").await else {
        return;
    };
    let others = Others::make(&garage).await;
    let world = World::new(&garage).await;
    let process = begin(&world, &TALES[0]).await;
    let late = Duration::from_secs(4);
    // the looks for the alias and for the reservation come first
    world.proxy.arm(2, Cut::Late(late));
    put(&world.server, blog());
    tokio::time::timeout(SOON, world.proxy.cut()).await.unwrap();
    assert_eq!(
        world.proxy.calls().last().map(String::as_str),
        Some("CreateBucket")
    );
    // when the object is deleted before it arrives
    world.server.delete("GarageBucket", "web", "blog");
    world.gone("the object goes once it was looked for again").await;
    // then it did arrive, and its bucket went with the object
    assert_eq!(world.proxy.arrived(), 1);
    assert_eq!(world.buckets(&others).await, Vec::<BTreeSet<String>>::new());
    drop(process);
}
