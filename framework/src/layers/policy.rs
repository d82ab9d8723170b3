//! The only retry: an error's class decides when to look again, and failures per object are counted. A trigger that arrives
//! during a back-off may bring what was missing: it is answered within 5 s, at once if the spec changed, and ever less
//! often while triggers come in without an end. Says nothing to anybody.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::future::Either;
use kube::Resource;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::{ErrorClass, Outcome, ReconcileError, Request, runtime::jitter::LONGEST_WAIT};

/// Back-off of one controller, shared by all of its reconciles.
#[derive(Clone, Debug, Default)]
pub struct Backoff(Arc<State>);

#[derive(Debug, Default)]
struct State {
    // 0 means the map need not be locked: the common case.
    failing: AtomicUsize,
    entries: Mutex<HashMap<Key, Entry>>,
}

/// Namespace and name: an object that vanished is known by nothing else.
type Key = (String, String);

#[derive(Clone, Debug)]
struct Entry {
    uid: String,
    generation: Option<i64>,
    failures: u32,
    /// When the first failure in a row began.
    since: Instant,
    /// Triggers wait until then.
    not_before: Instant,
    /// The timer does not fire before this.
    timer: Instant,
    /// Failures in a row of reconciles that a trigger asked for, before the timer was due.
    triggered: u32,
}

/// First delay after an error that should pass.
const FIRST: Duration = Duration::from_secs(1);
/// Longest delay between two tries.
const LONGEST: Duration = Duration::from_secs(300);
/// A trigger waits no longer than this after a failure: it may tell that the remedy is there.
const HOLD_OFF: Duration = Duration::from_secs(5);
/// After this many triggers in a row without a remedy, triggers wait longer.
const PATIENCE: u32 = 3;
/// Longest wait of triggers that go on without a remedy.
const LONGEST_HOLD_OFF: Duration = Duration::from_secs(30);
/// First delay after a conflict: our view is stale, and the event that mends it is on its way.
const CONFLICT: Duration = Duration::from_millis(200);

/// Delay after the `failures`-th failure in a row (from 1), before jitter. `None`: do not look again by timer.
pub fn delay(class: ErrorClass, failures: u32) -> Option<Duration> {
    let grown = |first: Duration| {
        first
            .saturating_mul(1 << failures.saturating_sub(1).min(16))
            .min(LONGEST)
    };
    match class {
        ErrorClass::Conflict | ErrorClass::NotReady => Some(grown(CONFLICT)),
        // What a server asks for is believed up to our own longest delay.
        ErrorClass::RateLimited(after) => Some(grown(FIRST).max(after.unwrap_or_default()).min(LONGEST)),
        ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::Panic | ErrorClass::NotFound => {
            Some(grown(FIRST))
        }
        ErrorClass::Forbidden | ErrorClass::Invalid | ErrorClass::Foreign | ErrorClass::NotServed => {
            Some(LONGEST)
        }
        ErrorClass::Shutdown => None,
    }
}

/// How long triggers wait after the `failures`-th failure in a row, of which the last `triggered` were asked for by
/// triggers. A server that asked for patience gets all of it.
fn hold_off(class: ErrorClass, failures: u32, triggered: u32) -> Option<Duration> {
    let whole = delay(class, failures)?;
    let grown = match class {
        ErrorClass::RateLimited(_) => return Some(whole),
        ErrorClass::Conflict | ErrorClass::NotReady => whole,
        _ => delay(ErrorClass::Transient, failures)?,
    };
    let noisy = HOLD_OFF.saturating_mul(1 << triggered.saturating_sub(PATIENCE).min(16));
    Some(grown.min(noisy).min(LONGEST_HOLD_OFF).min(whole))
}

/// `delay` ± 10 %, the same for the same object and attempt, so that tests repeat and objects spread.
pub fn jittered(delay: Duration, seed: impl Hash) -> Duration {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let permille = 900 + u32::try_from(hasher.finish() % 201).unwrap_or(100);
    delay.min(LONGEST_WAIT) * permille / 1000
}

impl Backoff {
    /// The object is gone: forget its failures.
    pub fn forget(&self, namespace: &str, name: &str) {
        if self.0.failing.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&(namespace.to_owned(), name.to_owned()));
        self.0.failing.store(entries.len(), Ordering::Release);
    }

    /// How many objects are failing now.
    pub fn failing(&self) -> usize {
        self.0.failing.load(Ordering::Acquire)
    }

    fn entry<K: Resource>(&self, object: &K) -> Option<Entry> {
        if self.failing() == 0 {
            return None;
        }
        let entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(&key(object))
            .filter(|e| Some(e.uid.as_str()) == object.meta().uid.as_deref().or(Some("")))
            .cloned()
    }

    fn succeeded<K: Resource>(&self, object: &K) {
        if self.failing() > 0 {
            let (namespace, name) = key(object);
            self.forget(&namespace, &name);
        }
    }

    /// Counts a failure of the reconcile that began then; when to look again.
    fn failed<K: Resource>(&self, object: &K, begun: Instant, error: &ReconcileError) -> Option<Duration> {
        let key = key(object);
        let uid = object.meta().uid.clone().unwrap_or_default();
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.get(&key).filter(|e| e.uid == uid);
        let failures = known.map_or(0, |e| e.failures).saturating_add(1);
        let triggered = known
            .filter(|e| begun < e.timer)
            .map_or(0, |e| e.triggered.saturating_add(1));
        let since = known.map_or(begun, |e| e.since);
        let wait = delay(error.class, failures);
        let wait = match error.no_later_than {
            Some(most) => wait.map(|wait| wait.min(most)),
            None => wait,
        };
        if let (Some(wait), Some(hold_off)) = (wait, hold_off(error.class, failures, triggered)) {
            // Timers have a jitter of their own: one that fires a little early is not sent back to wait.
            let early = |wait: Duration| Instant::now() + wait * 85 / 100;
            let entry = Entry {
                uid,
                generation: object.meta().generation,
                failures,
                since,
                not_before: early(wait.min(hold_off)),
                timer: early(wait),
                triggered,
            };
            entries.insert(key, entry);
        }
        self.0.failing.store(entries.len(), Ordering::Release);
        wait
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

/// Layer of [`Policy`].
#[derive(Clone, Debug, Default)]
pub struct PolicyLayer(pub Backoff);

impl<S> Layer<S> for PolicyLayer {
    type Service = Policy<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Policy {
            inner,
            backoff: self.0.clone(),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Policy<S> {
    inner: S,
    backoff: Backoff,
}

impl<S, K> Service<Request<K>> for Policy<S>
where
    S: Service<Request<K>, Response = Outcome, Error = ReconcileError>,
    K: Resource,
{
    type Response = Outcome;
    type Error = ReconcileError;
    type Future = Either<std::future::Ready<Result<Outcome, ReconcileError>>, PolicyFuture<S::Future, K>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<K>) -> Self::Future {
        if let Some(entry) = self.backoff.entry(request.object.as_ref()) {
            let wait = entry.not_before.saturating_duration_since(Instant::now());
            // A trigger replaces the timer, so the rest of the wait has to be asked for again.
            if !wait.is_zero() && entry.generation == request.object.meta().generation {
                return Either::Left(std::future::ready(Ok(Outcome::RequeueAfter(wait))));
            }
            request.attempt = entry.failures;
            request.failing_since = Some(entry.since);
        }
        tracing::Span::current().record("attempt", request.attempt);
        let object = Arc::clone(&request.object);
        Either::Right(PolicyFuture {
            inner: self.inner.call(request),
            object,
            backoff: self.backoff.clone(),
            begun: Instant::now(),
        })
    }
}

pin_project! {
    /// Future of [`Policy`].
    pub struct PolicyFuture<F, K> {
        #[pin]
        inner: F,
        object: Arc<K>,
        backoff: Backoff,
        begun: Instant,
    }
}

impl<F, K> Future for PolicyFuture<F, K>
where
    F: Future<Output = Result<Outcome, ReconcileError>>,
    K: Resource,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let object = this.object.as_ref();
        Poll::Ready(Ok(match ready!(this.inner.poll(cx)) {
            // It did not run, which is no success.
            Ok(outcome @ Outcome::Skipped(_)) => outcome,
            Ok(outcome) => {
                this.backoff.succeeded(object);
                outcome
            }
            Err(error) => {
                let retry = this.backoff.failed(object, *this.begun, &error);
                if let Some(detail) = &error.detail {
                    tracing::info!(error = %error, "the API server said: {detail}");
                }
                tracing::debug!(class = error.class.label(), retry = ?retry, error = %error, "reconcile failed");
                Outcome::Failed {
                    class: error.class,
                    retry,
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::sync::atomic::AtomicU32;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    fn object(name: &str, generation: i64) -> Request<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.uid = Some(format!("uid-{name}"));
        object.metadata.generation = Some(generation);
        Request::new(Arc::new(object))
    }

    fn failing(class: ErrorClass) -> (impl Fn(Request<ConfigMap>) -> Run, Backoff, Arc<AtomicU32>) {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let backoff = Backoff::default();
        let stack = ServiceBuilder::new()
            .layer(PolicyLayer(backoff.clone()))
            .service(service_fn(move |r: Request<ConfigMap>| {
                counted.fetch_add(1, Ordering::SeqCst);
                let ok = r.object.metadata.name.as_deref() == Some("good");
                async move {
                    if ok {
                        Ok(Outcome::Done)
                    } else {
                        Err(ReconcileError::new(class, "no"))
                    }
                }
            }));
        (move |r| Box::pin(stack.clone().oneshot(r)) as Run, backoff, runs)
    }
    type Run = Pin<Box<dyn Future<Output = Result<Outcome, ReconcileError>>>>;

    #[tokio::test(start_paused = true)]
    async fn failures_of_one_object_grow_its_own_delay_only() {
        let (run, backoff, _) = failing(ErrorClass::Transient);
        let mut waits = vec![];
        for _ in 0..12 {
            let Outcome::Failed {
                retry: Some(wait), ..
            } = run(object("a", 1)).await.unwrap()
            else {
                panic!()
            };
            tokio::time::advance(wait).await;
            waits.push(wait);
        }
        assert_eq!(waits[0], FIRST, "the runner adds the jitter, and no one else");
        assert!(waits.windows(2).take(7).all(|w| w[1] > w[0]), "{waits:?}");
        assert!(waits[11] <= Duration::from_secs(330));
        let Outcome::Failed {
            retry: Some(other), ..
        } = run(object("b", 1)).await.unwrap()
        else {
            panic!()
        };
        assert!(other <= Duration::from_millis(1100), "b starts anew: {other:?}");
        assert_eq!(run(object("good", 1)).await, Ok(Outcome::Done));
        assert_eq!(backoff.failing(), 2, "a success of one object resets no other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_during_the_back_off_waits_it_out_unless_the_spec_changed() {
        let (run, _, runs) = failing(ErrorClass::Transient);
        run(object("a", 1)).await.unwrap();
        let Ok(Outcome::RequeueAfter(rest)) = run(object("a", 1)).await else {
            panic!()
        };
        assert!(rest <= Duration::from_millis(1100));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        run(object("a", 2)).await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_a_change_outside_can_mend_is_looked_at_at_the_next_trigger_but_ever_less_often() {
        let (run, _, runs) = failing(ErrorClass::NotServed);
        let Ok(Outcome::Failed { retry, .. }) = run(object("a", 1)).await else {
            panic!()
        };
        assert!(
            retry >= Some(Duration::from_secs(270)),
            "the timer is slow: {retry:?}"
        );
        for second in 1..=64 {
            tokio::time::advance(Duration::from_secs(1)).await;
            run(object("a", 1)).await.unwrap();
            let looked = runs.load(Ordering::SeqCst) - 1;
            assert!(looked >= 1, "second {second}: the API may be there now");
        }
        let looked = runs.load(Ordering::SeqCst) - 1;
        assert!(looked <= 7, "{looked} looks in 64 triggers");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_is_answered_within_five_seconds_however_long_it_failed() {
        for class in [ErrorClass::NotFound, ErrorClass::NotReady, ErrorClass::Forbidden] {
            let (run, _, runs) = failing(class);
            let mut wait = Duration::ZERO;
            while wait < Duration::from_secs(200) {
                tokio::time::advance(wait).await;
                let Ok(Outcome::Failed {
                    retry: Some(next), ..
                }) = run(object("a", 1)).await
                else {
                    panic!()
                };
                wait = next;
            }
            let before = runs.load(Ordering::SeqCst);
            tokio::time::advance(Duration::from_millis(500)).await;
            let Ok(Outcome::RequeueAfter(rest)) = run(object("a", 1)).await else {
                panic!("{class:?}: it has just failed")
            };
            assert!(rest <= HOLD_OFF, "{class:?}: {rest:?}");
            tokio::time::advance(rest).await;
            run(object("a", 1)).await.unwrap();
            assert_eq!(runs.load(Ordering::SeqCst), before + 1, "{class:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_else_a_failed_reconcile_wants_is_not_later_for_its_failure() {
        let stack = ServiceBuilder::new()
            .layer(PolicyLayer(Backoff::default()))
            .service(service_fn(|_: Request<ConfigMap>| async {
                Err(ReconcileError {
                    no_later_than: Some(Duration::from_secs(60)),
                    ..ReconcileError::new(ErrorClass::Forbidden, "no")
                })
            }));
        let outcome = stack.oneshot(object("a", 1)).await.unwrap();
        assert_eq!(outcome.retry(), Some(Duration::from_secs(60)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_skip_is_no_success() {
        let backoff = Backoff::default();
        let led = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let leads = Arc::clone(&led);
        let stack = ServiceBuilder::new()
            .layer(PolicyLayer(backoff.clone()))
            .service(service_fn(move |_: Request<ConfigMap>| {
                let leads = leads.load(Ordering::SeqCst);
                async move {
                    if leads {
                        Err(ReconcileError::new(ErrorClass::Transient, "no"))
                    } else {
                        Ok(Outcome::Skipped("not the leader"))
                    }
                }
            }));
        stack.clone().oneshot(object("a", 1)).await.unwrap();
        led.store(false, Ordering::SeqCst);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            stack.oneshot(object("a", 1)).await,
            Ok(Outcome::Skipped("not the leader"))
        );
        assert_eq!(backoff.failing(), 1, "the failures are still counted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_vanished_or_replaced_object_starts_anew() {
        let (run, backoff, _) = failing(ErrorClass::Forbidden);
        run(object("a", 1)).await.unwrap();
        backoff.forget("", "a");
        assert_eq!(backoff.failing(), 0);
        assert!(matches!(run(object("a", 1)).await, Ok(Outcome::Failed { .. })));
    }

    #[test]
    fn each_class_has_its_delay() {
        let s = Duration::from_secs;
        for (class, failures, expected) in [
            (ErrorClass::Transient, 1, Some(s(1))),
            (ErrorClass::Transient, 4, Some(s(8))),
            (ErrorClass::Timeout, 99, Some(s(300))),
            (ErrorClass::Panic, 2, Some(s(2))),
            (ErrorClass::NotFound, 1, Some(s(1))),
            (ErrorClass::Conflict, 1, Some(Duration::from_millis(200))),
            (ErrorClass::Conflict, 40, Some(s(300))),
            (ErrorClass::RateLimited(Some(s(30))), 1, Some(s(30))),
            (ErrorClass::RateLimited(None), 1, Some(s(1))),
            (ErrorClass::RateLimited(Some(s(86_400))), 1, Some(s(300))),
            (ErrorClass::Forbidden, 1, Some(s(300))),
            (ErrorClass::Invalid, 1, Some(s(300))),
            (ErrorClass::Foreign, 1, Some(s(300))),
            (ErrorClass::NotServed, 1, Some(s(300))),
            (ErrorClass::Shutdown, 1, None),
        ] {
            assert_eq!(delay(class, failures), expected, "{class:?} {failures}");
        }
    }
}
