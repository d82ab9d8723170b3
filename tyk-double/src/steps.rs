//! Crash points: the places before and after a change takes effect, and a stop for tests that want to be there.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::oneshot;

/// Where a change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The request has come, nothing of it was done.
    Before,
    /// It was done, and is not answered yet.
    After,
}

/// A stop at one place. Dropped without [`Pause::release`], it lets go as [`Pause::discard`] does.
pub struct Pause {
    reached: oneshot::Receiver<()>,
    go_on: Option<oneshot::Sender<()>>,
}

impl Pause {
    /// Returns when a request stands here. Never, if no request comes that far: put a deadline around it.
    pub async fn reached(&mut self) {
        // The sender goes away only after it was used.
        let _ = (&mut self.reached).await;
    }

    /// Lets the request go on.
    pub fn release(mut self) {
        if let Some(go_on) = self.go_on.take() {
            let _ = go_on.send(());
        }
    }

    /// Lets the connection go. [`Side::Before`]: the change never happens; [`Side::After`]: nobody hears of it.
    pub fn discard(self) {}
}

struct Stop {
    reached: oneshot::Sender<()>,
    go_on: oneshot::Receiver<()>,
}

/// Counts changes and stops those that a test waits for.
#[derive(Default)]
pub(crate) struct Steps {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: usize,
    stops: BTreeMap<(usize, Side), Stop>,
}

impl Steps {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change begins: its number, from 1.
    pub(crate) fn begin(&self) -> usize {
        let mut inner = self.inner();
        inner.last += 1;
        inner.last
    }

    pub(crate) fn count(&self) -> usize {
        self.inner().last
    }

    pub(crate) fn stop(&self, step: usize, side: Side) -> Pause {
        let (reached, reached_end) = oneshot::channel();
        let (go_on, go_on_end) = oneshot::channel();
        let stop = Stop {
            reached,
            go_on: go_on_end,
        };
        self.inner().stops.insert((step, side), stop);
        Pause {
            reached: reached_end,
            go_on: Some(go_on),
        }
    }

    /// Waits if a test asked for it. `false`: the connection is to be cut.
    pub(crate) async fn pass(&self, step: usize, side: Side) -> bool {
        let stop = self.inner().stops.remove(&(step, side));
        let Some(stop) = stop else {
            return true;
        };
        let _ = stop.reached.send(());
        stop.go_on.await.is_ok()
    }
}
