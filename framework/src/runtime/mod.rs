//! The running half: watches, triggers, presence, leadership, supervision, metrics and probes. Nothing here decides what
//! a controller does, and nothing here writes to the cluster but the lease.
//!
//! Data goes one way: [`hub`] (watch → cache) → [`triggers`] → [`controller`] (the stack on kube's `applier`). What
//! runs when is decided by [`supervisor`] from [`presence`] (is the API served?) and [`leadership`] (may we write?).

pub mod children;
pub mod client;
pub mod controller;
mod decode;
mod election;
pub mod hub;
pub mod jitter;
pub mod leadership;
mod lease;
pub mod metrics;
pub(crate) mod pace;
pub mod presence;
pub mod probes;
mod queue;
#[cfg(test)]
mod script;
pub mod supervisor;
#[cfg(test)]
mod tests;
pub mod triggers;
pub mod write_guard;

pub use children::ChildCaches;
pub use client::Clients;
pub use controller::{ControllerSpec, run_controller};
pub use hub::{Change, Handle, Listener, Scope, Selector, WatchHub};
pub use leadership::{Leadership, LeaseConfig};
pub use metrics::Metrics;
pub use presence::{ApiState, Origin, Presence};
pub use probes::Probes;
pub use supervisor::{StartContext, Supervisor, Unit};
pub use triggers::Triggers;
pub use write_guard::WriteGuard;

/// A std lock whose holder panicked is still good enough: every critical section here leaves whole values behind.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
