//! One concern, one layer, one file. Outermost first: Trace, Metrics, Policy, LeaderGate, CatchPanic, Timeout,
//! Conditions, Timeout, CatchPanic, Finalizer, Effects, OwnedChildren, Metadata, ApiPresence, FeatureGate, planner.

/// One example of [`order`]: a stack that must (or must not) answer `$answer`.
macro_rules! story {
    ($kind:literal, $answer:literal, $layers:literal) => {
        concat!(
            "\n```",
            $kind,
            "\n",
            "# use std::sync::Arc;\n",
            "# use reconcile_kit::{*, owner::OwnerWriter, layers::{api_presence::*, conditions::*, effects::*,\n",
            "# feature_gate::*, metadata::*, owned_children::*, planner::*, policy::*}};\n",
            "# use tower::{Service, ServiceBuilder};\n",
            "# fn answers<P: Planner, S>(_: S) where S: Service<Request<P::Object>, Response = ",
            $answer,
            ", Error = ReconcileError> {}\n",
            "# fn stack<P: Planner, E: Effects<P>>(planner: Arc<P>, effects: Arc<E>, reporting: Arc<Reporting>,\n",
            "# owned: Arc<Owned>, metadata: Arc<OperatorMetadata>, presence: Arc<dyn PresenceSnapshot>,\n",
            "# writer: Arc<dyn OwnerWriter>) {\n",
            "# answers::<P, _>(\n",
            "ServiceBuilder::new()",
            $layers,
            "\n    .service(PlannerService::new(planner))\n",
            "# );\n# }\n```\n"
        )
    };
}

pub mod api_presence;
pub mod catch_panic;
pub mod conditions;
pub mod effects;
pub mod feature_gate;
pub mod finalizer;
pub mod leader_gate;
pub mod metadata;
pub mod metrics;
pub mod order;
pub mod owned_children;
pub mod planner;
pub mod policy;
pub mod timeout;
pub mod trace;

#[cfg(test)]
pub(crate) mod tests;
