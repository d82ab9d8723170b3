//! A machine of the simulated world: a runtime of its own on the one thread, with simulated time. It can stand still and
//! go on, lose power, and have a wall clock of its own. Knows nothing of Kubernetes.

use std::{future::Future, time::Duration};

use tokio::runtime::{Builder, Runtime};

use crate::determinism;

/// A machine.
pub struct Host {
    runtime: Runtime,
    /// How far its wall clock is ahead, in milliseconds.
    pub skew: i64,
    /// When its own clock stands at, of the world's time.
    reached: Duration,
    frozen: bool,
}

impl Host {
    /// Boots at the world's present time.
    pub fn boot(skew: i64) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O can be made");
        Self {
            runtime,
            skew,
            reached: determinism::now(),
            frozen: false,
        }
    }

    /// Stands still until [`Host::thaw`]: no task runs, but its clocks go on, as under SIGSTOP.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Goes on.
    pub fn thaw(&mut self) {
        self.frozen = false;
    }

    /// Whether it stands still.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Runs everything that is to happen until `until` of the world's time. A machine that stood still finds its clock
    /// moved on at once.
    pub fn run_until(&mut self, until: Duration) {
        if self.frozen {
            return;
        }
        let (from, begun) = (self.reached, determinism::now());
        self.reached = until;
        determinism::set_skew(self.skew);
        let run = async {
            if from < begun {
                tokio::time::advance(begun - from).await;
            }
            tokio::time::sleep(until.saturating_sub(begun.max(from))).await;
        };
        determinism::on_machine(|| self.runtime.block_on(run));
        determinism::set_skew(0);
    }

    /// Runs `work` on this machine, without letting its time pass.
    pub fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        determinism::set_skew(self.skew);
        let done = determinism::on_machine(|| self.runtime.block_on(work));
        determinism::set_skew(0);
        done
    }

    /// Makes `tokio::spawn` and timers work in `work` as on this machine.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.runtime.enter();
        work()
    }
}
