//! One concern, one layer, one file. Outermost first: Trace, Metrics, Policy, LeaderGate, CatchPanic, Timeout,
//! Conditions, Timeout, CatchPanic, Finalizer, Effects, OwnedChildren, Metadata, ApiPresence, FeatureGate, planner.

pub mod api_presence;
pub mod catch_panic;
pub mod conditions;
pub mod effects;
pub mod feature_gate;
pub mod finalizer;
pub mod leader_gate;
pub mod metadata;
pub mod metrics;
pub mod owned_children;
pub mod planner;
pub mod policy;
pub mod timeout;
pub mod trace;

#[cfg(test)]
pub(crate) mod tests;
