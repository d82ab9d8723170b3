//! Stories of one running controller.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::until;
use crate::{
    BoxReconcile, ErrorClass, Outcome, ReconcileError, Request,
    layers::policy::{Backoff, PolicyLayer},
    runtime::{
        ControllerSpec, Handle, Metrics, Scope, Selector, Triggers, WatchHub, controller::Ended, lock,
        run_controller, script::Script, triggers::on_change_of_self,
    },
};

const INGRESSES: &str = "networking.k8s.io/v1/ingresses";

fn stack<F, Fut>(run: F) -> BoxReconcile<Ingress>
where
    F: Fn(Arc<Ingress>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
{
    BoxReconcile::new(tower::service_fn(move |request: Request<Ingress>| {
        run(request.object)
    }))
}

struct World {
    api: Script,
    objects: Handle<Ingress>,
    triggers: Triggers<Ingress>,
    _keep: Box<dyn std::any::Any>,
}

fn world(names: &[&str]) -> World {
    let api = Script::default();
    for name in names {
        api.put(INGRESSES, "ns", name, json!({ "metadata": {} }));
    }
    let hub = WatchHub::new(api.client(), Metrics::default());
    let objects = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let triggers = Triggers::default();
    let keep = (
        objects.start(),
        objects.listen(on_change_of_self(&triggers, |_, _| false)),
        hub,
    );
    World {
        api,
        objects,
        triggers,
        _keep: Box::new(keep),
    }
}

impl World {
    fn spec(&self, stack: BoxReconcile<Ingress>) -> ControllerSpec<Ingress> {
        ControllerSpec::new("test", self.objects.clone(), self.triggers.clone(), stack)
    }
}

#[tokio::test(start_paused = true)]
async fn every_object_is_reconciled_never_twice_at_once_and_no_trigger_is_lost() {
    let world = world(&["a", "b", "c"]);
    let runs = Arc::new(Mutex::new(HashMap::<String, (usize, usize)>::new()));
    let seen = Arc::clone(&runs);
    let spec = world.spec(stack(move |object| {
        let seen = Arc::clone(&seen);
        async move {
            let name = object.name_any();
            {
                let mut runs = lock(&seen);
                let (active, count) = runs.entry(name.clone()).or_default();
                assert_eq!(*active, 0, "two reconciles of {name} at once");
                *active += 1;
                *count += 1;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            lock(&seen).entry(name).or_default().0 -= 1;
            Ok(Outcome::Done)
        }
    }));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run_controller(spec, stop.clone(), || ()));
    let count = |name: &str| lock(&runs).get(name).map_or(0, |r| r.1);
    until("all three", || {
        lock(&runs).values().filter(|r| r.0 > 0).count() == 3
    })
    .await;
    // twenty changes while it runs are one more run, which comes after the last of them
    for generation in 0..20 {
        world.api.put(
            INGRESSES,
            "ns",
            "a",
            json!({ "metadata": { "generation": generation } }),
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until("the second run", || count("a") == 2).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((count("a"), count("b"), count("c")), (2, 1, 1));
    stop.cancel();
    assert_eq!(task.await.unwrap(), Ended::Drained);
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_caches_are_ready_ends_it() {
    let world = world(&["a"]);
    world.api.fault(|_, _| Some((503, String::new())));
    let stop = CancellationToken::new();
    let spec = world.spec(stack(|_| async { panic!("not before the caches are ready") }));
    let task = tokio::spawn(run_controller(spec, stop.clone(), || ()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.cancel();
    assert_eq!(task.await.unwrap(), Ended::BeforeSync);
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_other_caches_that_its_planner_reads() {
    let world = world(&["a"]);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let (open, opened) = tokio::sync::oneshot::channel::<()>();
    let mut spec = world.spec(stack(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Outcome::Done) }
    }));
    spec.waits.push(Box::pin(async {
        let _ = opened.await;
    }));
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(run_controller(spec, stop, || ()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    open.send(()).unwrap();
    until("the run", || ran.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_reconciles_finish_but_not_for_ever() {
    for (needs, want) in [(10, Ended::Drained), (3_600, Ended::Cancelled)] {
        let world = world(&["a"]);
        let (begun, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (b, f) = (Arc::clone(&begun), Arc::clone(&finished));
        let spec = world.spec(stack(move |_| {
            let (b, f) = (Arc::clone(&b), Arc::clone(&f));
            async move {
                b.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(needs)).await;
                f.fetch_add(1, Ordering::Relaxed);
                Ok(Outcome::RequeueAfter(Duration::from_secs(1)))
            }
        }));
        let stop = CancellationToken::new();
        let task = tokio::spawn(run_controller(spec, stop.clone(), || ()));
        until("the run", || begun.load(Ordering::Relaxed) == 1).await;
        let stopped = tokio::time::Instant::now();
        stop.cancel();
        assert_eq!(task.await.unwrap(), want);
        assert!(stopped.elapsed() <= Duration::from_secs(26));
        assert_eq!(
            finished.load(Ordering::Relaxed),
            usize::from(want == Ended::Drained)
        );
        // neither the requeue nor the stuck one goes on
        tokio::time::sleep(Duration::from_secs(7_200)).await;
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        assert_eq!(
            finished.load(Ordering::Relaxed),
            usize::from(want == Ended::Drained)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_an_error_that_passed_the_stack_is_tried_again_with_patience() {
    for class in [ErrorClass::Panic, ErrorClass::Transient] {
        let world = world(&["bad", "good"]);
        let (bad, good) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (b, g) = (Arc::clone(&bad), Arc::clone(&good));
        let spec = world.spec(stack(move |object| {
            let is_bad = object.name_any() == "bad";
            if is_bad { &b } else { &g }.fetch_add(1, Ordering::Relaxed);
            async move {
                match class {
                    _ if !is_bad => Ok(Outcome::RequeueAfter(Duration::from_secs(60))),
                    ErrorClass::Panic => panic!("a bug in a reconcile"),
                    _ => Err(ReconcileError::new(class, "no")),
                }
            }
        }));
        let stop = CancellationToken::new();
        let _guard = stop.clone().drop_guard();
        tokio::spawn(run_controller(spec, stop, || ()));
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        // 5, 10, 20, 40, 80, 160, 300, 300 … seconds
        let tries = bad.load(Ordering::Relaxed);
        assert!((15..=20).contains(&tries), "{tries} tries in an hour");
        let rounds = good.load(Ordering::Relaxed);
        assert!((54..=67).contains(&rounds), "{rounds} rounds in an hour");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_an_object_is_forgotten_with_it() {
    let world = world(&["a"]);
    let forgotten = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&forgotten);
    let mut spec = world.spec(stack(|_| async {
        Ok(Outcome::RequeueAfter(Duration::from_secs(3_600)))
    }));
    spec.forget = Some(Arc::new(move |namespace, name| {
        lock(&keep).push((namespace.to_owned(), name.to_owned()));
    }));
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(run_controller(spec, stop, || ()));
    until("the cache", || world.objects.is_ready()).await;
    world.api.delete(INGRESSES, "ns", "a");
    until("the end", || !lock(&forgotten).is_empty()).await;
    assert_eq!(*lock(&forgotten), [("ns".to_owned(), "a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_wants_no_further_look_does_not_end_the_controller() {
    let bad: Vec<String> = (0..10).map(|n| format!("bad{n}")).collect();
    let mut names: Vec<&str> = bad.iter().map(String::as_str).collect();
    names.push("good");
    let world = world(&names);
    let good = Arc::new(AtomicUsize::new(0));
    let g = Arc::clone(&good);
    let spec = world.spec(stack(move |object| {
        let is_good = object.name_any() == "good";
        if is_good {
            g.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            Ok(match (is_good, object.name_any().ends_with('1')) {
                (true, _) => Outcome::RequeueAfter(Duration::from_secs(60)),
                (_, true) => Outcome::Waiting {
                    reason: "ever",
                    retry: Duration::MAX,
                },
                _ => Outcome::RequeueAfter(Duration::MAX),
            })
        }
    }));
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let task = tokio::spawn(run_controller(spec, stop, || ()));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let rounds = good.load(Ordering::Relaxed);
    assert!(!task.is_finished(), "it ended after {rounds} rounds");
    assert!((54..=67).contains(&rounds), "{rounds} rounds in an hour");
}

/// Objects whose reconcile hangs for the time of the inner net, beside good ones.
async fn beside_hanging_ones(hanging: usize, before: Duration) -> Duration {
    let names: Vec<String> = (0..hanging).map(|n| format!("hangs{n}")).collect();
    let world = world(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let good = Arc::new(AtomicUsize::new(0));
    let (g, backoff) = (Arc::clone(&good), Backoff::default());
    let inner = tower::service_fn(move |request: Request<Ingress>| {
        let is_good = request.object.name_any().starts_with("good");
        let g = Arc::clone(&g);
        async move {
            if !is_good {
                tokio::time::sleep(Duration::from_secs(60)).await;
                return Err(ReconcileError::new(ErrorClass::Timeout, "no answer"));
            }
            g.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::Done)
        }
    });
    let stack = tower::ServiceBuilder::new()
        .layer(PolicyLayer(backoff))
        .service(inner);
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let spec = world.spec(BoxReconcile::new(stack));
    tokio::spawn(run_controller(spec, stop, || ()));
    until("the cache", || world.objects.is_ready()).await;
    tokio::time::sleep(before).await;
    let mut longest = Duration::ZERO;
    for n in 0..20 {
        let name = format!("good{n}");
        let begin = tokio::time::Instant::now();
        world.api.put(INGRESSES, "ns", &name, json!({ "metadata": {} }));
        while good.load(Ordering::Relaxed) <= n {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(
                begin.elapsed() < Duration::from_secs(600),
                "{name} is not reconciled"
            );
        }
        longest = longest.max(begin.elapsed());
        tokio::time::sleep(Duration::from_millis(7_300)).await;
    }
    longest
}

#[tokio::test(start_paused = true)]
async fn objects_that_hang_hold_up_no_other_one() {
    let longest = beside_hanging_ones(20, Duration::ZERO).await;
    assert!(longest < Duration::from_secs(1), "at the beginning: {longest:?}");
    let longest = beside_hanging_ones(100, Duration::from_secs(1_800)).await;
    assert!(
        longest < Duration::from_secs(1),
        "in the steady state: {longest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_skipped_is_looked_at_again_without_a_trigger() {
    let world = world(&["a"]);
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let spec = world.spec(stack(move |_| {
        let first = count.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            Ok(match first {
                true => Outcome::Skipped("not the leader"),
                false => Outcome::Done,
            })
        }
    }));
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(run_controller(spec, stop, || ()));
    until("the second run", || runs.load(Ordering::Relaxed) == 2).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}
