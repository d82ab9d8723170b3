//! What an operator needs to name, in one `use`. Only re-exports.

pub use crate::{
    ApiKind, BoxReconcile, Child, ChildPlan, ChildState, Children, Condition, ConditionStatus, Desired,
    Entries, Entry, ErrorClass, HoldReason, Needs, Note, Outcome, Plan, Planner, ReconcileError, Report,
    Request, Settled, StatusField, Verdict,
    events::KubeEvents,
    layers::{
        api_presence::Presence, conditions::Reporting, effects::Effects, metadata::OperatorMetadata,
        owned_children::Owned,
    },
    owned::squatter::Squatters,
    owner::{KubeOwnerWriter, OwnerPatch},
    runtime::{
        ControllerSpec, Metrics, Scope, Selector, Triggers, WatchHub,
        controller::Ended,
        run_controller,
        triggers::{on_change_of_child, on_change_of_self},
    },
    stack::{External, Parts},
    status::{StatusContract, StatusMode},
    status_writer::KubeStatusWriter,
};
