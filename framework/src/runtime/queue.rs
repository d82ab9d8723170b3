//! The ready queue of one running controller: which object is reconciled next, and when. First come, first served; an
//! object never runs twice at once; a slow object holds up no other.
//!
//! * Triggers come before retries, but one start in four is a retry's if one waits.
//! * A run that lasts longer than [`STEPS_ASIDE`] leaves its slot to others. As many runs as there are slots may have
//!   stepped aside, so that at most twice as many run at once.
//! * An object whose last run took longer than [`SLOW`] is known to be slow for [`REMEMBERED`]. At most half as many of them
//!   run at once as there are slots.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures::Stream;
use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::time::{DelayQueue, delay_queue};

use super::{jitter::LONGEST_WAIT, lock, triggers::Triggers};

/// After this time a run leaves its slot to others. Most runs are shorter by far.
pub(super) const STEPS_ASIDE: Duration = Duration::from_millis(500);
/// An object whose run takes this long is slow.
pub(super) const SLOW: Duration = Duration::from_secs(5);
/// For how long that is remembered after its last slow run; longer than the longest back-off.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Lanes: what was triggered, and retries, of objects that are quick and of those that are known to be slow.
const TRIGGERED: usize = 0;
const RETRIES: usize = 1;
const SLOW_TRIGGERED: usize = 2;
const SLOW_RETRIES: usize = 3;

/// Which lane is asked first at each start: one in four is a retry's, so that nothing starves.
const TURNS: [[usize; 4]; 8] = {
    const TRIGGER: [usize; 4] = [TRIGGERED, SLOW_TRIGGERED, RETRIES, SLOW_RETRIES];
    const RETRY: [usize; 4] = [RETRIES, SLOW_RETRIES, SLOW_TRIGGERED, TRIGGERED];
    const SLOW_RETRY: [usize; 4] = [SLOW_RETRIES, RETRIES, SLOW_TRIGGERED, TRIGGERED];
    [
        TRIGGER, TRIGGER, TRIGGER, RETRY, TRIGGER, TRIGGER, TRIGGER, SLOW_RETRY,
    ]
};

type Name<K> = Arc<ObjectRef<K>>;

/// The queue. Cheap to clone: all clones are one queue.
pub(super) struct ReadyQueue<K: Resource<DynamicType = ()>>(Arc<Mutex<Lanes<K>>>);

impl<K: Resource<DynamicType = ()>> Clone for ReadyQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// How a run ended, as far as its object is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It was worked on.
    Worked,
    /// It may only have been put off (a back-off, no lease): that says nothing about how slow it is.
    PutOff,
}

struct Lanes<K: Resource<DynamicType = ()>> {
    slots: usize,
    /// All that wait, each with its lane. In another lane an object is only left over from before its trigger.
    waiting: HashMap<Name<K>, usize>,
    lanes: [VecDeque<Name<K>>; 4],
    running: HashMap<Name<K>, Run>,
    timers: DelayQueue<Name<K>>,
    timer_keys: HashMap<Name<K>, delay_queue::Key>,
    /// When the last slow run of an object ended.
    known_slow: HashMap<Name<K>, Instant>,
    turn: usize,
    waker: Option<Waker>,
}

struct Run {
    started: Instant,
    known_slow: bool,
    aside: bool,
    /// Triggered meanwhile: it runs once more.
    again: bool,
}

impl<K: Resource<DynamicType = ()>> ReadyQueue<K> {
    /// An empty queue with this number of slots.
    pub(super) fn new(slots: u16) -> Self {
        Self(Arc::new(Mutex::new(Lanes {
            slots: usize::from(slots.max(1)),
            waiting: HashMap::new(),
            lanes: std::array::from_fn(|_| VecDeque::new()),
            running: HashMap::new(),
            timers: DelayQueue::new(),
            timer_keys: HashMap::new(),
            known_slow: HashMap::new(),
            turn: 0,
            waker: None,
        })))
    }

    /// The objects to reconcile, each at the moment when it may start. Never ends.
    pub(super) fn admit(&self, triggers: Triggers<K>) -> Admission<K> {
        Admission {
            queue: self.clone(),
            triggers,
            wake_up: None,
        }
    }

    /// A run ended; look at its object again after `retry`.
    pub(super) fn finished(&self, object: &ObjectRef<K>, ran: Ran, retry: Option<Duration>) {
        let mut lanes = lock(&self.0);
        let Some((name, run)) = lanes.running.remove_entry(object) else {
            return;
        };
        if run.started.elapsed() >= SLOW {
            lanes.known_slow.insert(Arc::clone(&name), Instant::now());
        } else if ran == Ran::Worked {
            lanes.known_slow.remove(&name);
        }
        if run.again {
            lanes.enqueue(name, true);
        } else if let Some(retry) = retry {
            let key = lanes.timers.insert(Arc::clone(&name), retry.min(LONGEST_WAIT));
            if let Some(old) = lanes.timer_keys.insert(name, key) {
                lanes.timers.try_remove(&old);
            }
        }
        if let Some(waker) = lanes.waker.take() {
            waker.wake();
        }
    }

    /// There is no such object.
    pub(super) fn gone(&self, object: &ObjectRef<K>) {
        self.finished(object, Ran::Worked, None);
    }
}

impl<K: Resource<DynamicType = ()>> Lanes<K> {
    fn is_slow(&mut self, name: &Name<K>) -> bool {
        match self.known_slow.get(name) {
            None => false,
            Some(since) if since.elapsed() < REMEMBERED => true,
            Some(_) => {
                self.known_slow.remove(name);
                false
            }
        }
    }

    fn enqueue(&mut self, name: Name<K>, triggered: bool) {
        if let Some(run) = self.running.get_mut(&name) {
            run.again = true;
            return;
        }
        let lane = match (self.is_slow(&name), triggered) {
            (true, true) => SLOW_TRIGGERED,
            (true, false) => SLOW_RETRIES,
            (false, true) => TRIGGERED,
            (false, false) => RETRIES,
        };
        match self.waiting.get(&name).copied() {
            // A trigger may be the repair: it need not wait with the retries.
            Some(RETRIES | SLOW_RETRIES) if triggered => {}
            Some(_) => return,
            None => {}
        }
        self.waiting.insert(Arc::clone(&name), lane);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.push_back(name);
        }
    }

    /// Takes the first object of a lane.
    fn pop(&mut self, lane: usize) -> Option<Name<K>> {
        loop {
            let name = self.lanes.get_mut(lane)?.pop_front()?;
            if self.waiting.get(&name) == Some(&lane) {
                self.waiting.remove(&name);
                return Some(name);
            }
        }
    }

    /// Lets runs that last step aside; tells when the next one will, if that may free a slot.
    fn step_aside(&mut self, now: Instant) -> Option<Instant> {
        let mut room = self
            .slots
            .saturating_sub(self.running.values().filter(|r| r.aside).count());
        let mut next: Option<Instant> = None;
        for run in self.running.values_mut().filter(|r| !r.aside) {
            let at = run.started + STEPS_ASIDE;
            if at > now {
                next = Some(next.map_or(at, |n| n.min(at)));
            } else if room > 0 {
                run.aside = true;
                room -= 1;
            }
        }
        next.filter(|_| room > 0)
    }

    /// The next object that may start.
    fn start_next(&mut self, now: Instant) -> Option<Name<K>> {
        let holding = self.running.values().filter(|r| !r.aside).count();
        if holding >= self.slots {
            return None;
        }
        let slow = self.running.values().filter(|r| r.known_slow).count();
        let room_for_slow = slow < (self.slots / 2).max(1);
        let turn = *TURNS.get(self.turn % TURNS.len())?;
        let mut open = turn
            .iter()
            .filter(|lane| room_for_slow || ![SLOW_TRIGGERED, SLOW_RETRIES].contains(*lane));
        let name = open.find_map(|lane| self.pop(*lane))?;
        self.turn = self.turn.wrapping_add(1);
        if let Some(timer) = self.timer_keys.remove(&name) {
            self.timers.try_remove(&timer);
        }
        let known_slow = self.is_slow(&name);
        let run = Run {
            started: now,
            known_slow,
            aside: false,
            again: false,
        };
        self.running.insert(Arc::clone(&name), run);
        Some(name)
    }
}

/// See [`ReadyQueue::admit`].
pub(super) struct Admission<K: Resource<DynamicType = ()>> {
    queue: ReadyQueue<K>,
    triggers: Triggers<K>,
    wake_up: Option<Pin<Box<Sleep>>>,
}

impl<K: Resource<DynamicType = ()>> Stream for Admission<K> {
    type Item = ObjectRef<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let triggered = this.triggers.take_all(cx.waker());
        let mut lanes = lock(&this.queue.0);
        lanes.waker = Some(cx.waker().clone());
        for name in triggered {
            lanes.enqueue(Arc::new(name), true);
        }
        while let Poll::Ready(Some(due)) = lanes.timers.poll_expired(cx) {
            let name = due.into_inner();
            lanes.timer_keys.remove(&name);
            lanes.enqueue(name, false);
        }
        loop {
            let now = Instant::now();
            let next_aside = lanes.step_aside(now);
            if let Some(name) = lanes.start_next(now) {
                return Poll::Ready(Some(ObjectRef::clone(&name)));
            }
            let Some(at) = next_aside.filter(|_| !lanes.waiting.is_empty()) else {
                return Poll::Pending;
            };
            let wake_up = this.wake_up.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if wake_up.deadline() != at {
                wake_up.as_mut().reset(at);
            }
            ready!(wake_up.as_mut().poll(cx));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    struct Story {
        queue: ReadyQueue<ConfigMap>,
        triggers: Triggers<ConfigMap>,
        admission: Admission<ConfigMap>,
    }

    fn name(name: &str) -> ObjectRef<ConfigMap> {
        ObjectRef::new(name).within("ns")
    }

    impl Story {
        fn new(slots: u16) -> Self {
            let (queue, triggers) = (ReadyQueue::new(slots), Triggers::default());
            let admission = queue.admit(triggers.clone());
            Self {
                queue,
                triggers,
                admission,
            }
        }

        fn push(&self, names: &[&str]) {
            for each in names {
                self.triggers.push(name(each));
            }
        }

        fn started(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.admission.next().now_or_never().flatten())
                .map(|r| r.name)
                .collect()
        }

        fn done(&self, names: &[&str]) {
            for each in names {
                self.queue.finished(&name(each), Ran::Worked, None);
            }
        }

        async fn pass(&self, time: Duration) {
            tokio::time::advance(time).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_run_in_the_order_of_their_triggers_and_none_twice_at_once() {
        let mut story = Story::new(2);
        story.push(&["c", "a", "b", "a"]);
        assert_eq!(story.started(), ["c", "a"]);
        story.push(&["a", "d", "a"]);
        assert_eq!(story.started(), Vec::<String>::new());
        story.done(&["a"]);
        // its second run waits behind those that came before
        assert_eq!(story.started(), ["b"]);
        story.done(&["b", "c"]);
        assert_eq!(story.started(), ["d", "a"]);
        story.done(&["a", "d"]);
        assert_eq!(story.started(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn triggers_come_before_retries_which_do_not_starve() {
        let mut story = Story::new(1);
        let second = Some(Duration::from_secs(1));
        for each in ["r1", "r2"] {
            story.push(&[each]);
            assert_eq!(story.started(), [each]);
            story.queue.finished(&name(each), Ran::Worked, second);
        }
        story.pass(Duration::from_secs(2)).await;
        story.push(&["a", "b", "c", "d", "e", "f", "g"]);
        let mut order = Vec::new();
        while let Some(next) = story.started().pop() {
            story.done(&[&next]);
            order.push(next);
        }
        // (two runs were before them)
        assert_eq!(order, ["a", "r1", "b", "c", "d", "r2", "e", "f", "g"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_lasts_leaves_its_slot_to_others() {
        let mut story = Story::new(2);
        story.push(&["h1", "h2", "h3", "h4", "h5", "good"]);
        assert_eq!(story.started(), ["h1", "h2"]);
        story.pass(STEPS_ASIDE).await;
        assert_eq!(story.started(), ["h3", "h4"]);
        // twice as many as there are slots, and no more
        story.pass(STEPS_ASIDE * 10).await;
        assert_eq!(story.started(), Vec::<String>::new());
        story.pass(Duration::from_secs(60)).await;
        story.done(&["h1", "h2"]);
        assert_eq!(story.started(), ["h5", "good"]);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_known_to_be_slow_hold_half_of_the_slots_and_their_repair_comes_first() {
        let mut story = Story::new(4);
        let slow = ["s1", "s2", "s3", "s4"];
        story.push(&slow);
        assert_eq!(story.started(), slow);
        story.pass(Duration::from_secs(60)).await;
        for (n, each) in (1..).zip(slow) {
            let retry = Duration::from_millis(200 * n);
            story.queue.finished(&name(each), Ran::Worked, Some(retry));
            story.pass(Duration::from_millis(1)).await;
        }
        story.pass(Duration::from_secs(1)).await;
        assert_eq!(story.started(), ["s1", "s2"], "half of the slots");
        story.pass(Duration::from_secs(30)).await;
        story.push(&["good", "better", "s4"]);
        assert_eq!(story.started(), ["good", "better"]);
        story.done(&["good", "better", "s1"]);
        // what was only put off is as slow as before, what ends quickly is not
        assert_eq!(story.started(), ["s4"]);
        story
            .queue
            .finished(&name("s4"), Ran::PutOff, Some(Duration::from_secs(3_600)));
        assert_eq!(story.started(), ["s3"]);
        story.done(&["s2", "s3"]);
        story.push(&["s1", "s2", "s3", "s4"]);
        // s3 ended quickly
        let mut started = story.started();
        started.sort();
        assert_eq!(started, ["s1", "s2", "s3"].map(str::to_owned), "{started:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_comes_in_time_and_a_trigger_replaces_it() {
        let mut story = Story::new(1);
        story.push(&["a"]);
        story.started();
        story
            .queue
            .finished(&name("a"), Ran::Worked, Some(Duration::from_secs(10)));
        story.pass(Duration::from_secs(9)).await;
        assert_eq!(story.started(), Vec::<String>::new());
        story.pass(Duration::from_millis(1_001)).await;
        assert_eq!(story.started(), ["a"]);
        story.queue.finished(&name("a"), Ran::Worked, Some(Duration::MAX));
        story.push(&["a"]);
        assert_eq!(story.started(), ["a"]);
        story.queue.gone(&name("a"));
        story.pass(Duration::from_secs(10_000_000)).await;
        assert_eq!(story.started(), Vec::<String>::new());
    }
}
