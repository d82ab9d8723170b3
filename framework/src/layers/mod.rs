//! One concern, one layer, one file. Outermost first: Trace, Metrics, Policy, LeaderGate, CatchPanic, Timeout,
//! Conditions, Timeout, CatchPanic, Finalizer, Effects, OwnedChildren, Metadata, ApiPresence, FeatureGate, planner.
