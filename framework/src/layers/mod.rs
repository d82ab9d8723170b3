//! One concern, one layer, one file. Outermost first: Trace, Metrics, Policy, LeaderGate, CatchPanic, Timeout,
//! Conditions, Timeout, CatchPanic, Finalizer, Effects, OwnedChildren, Metadata, ApiPresence, FeatureGate, planner.

pub mod catch_panic;
pub mod leader_gate;
pub mod metrics;
pub mod policy;
pub mod timeout;
pub mod trace;
