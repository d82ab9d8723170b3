//! `reconcile-kit`: how a controller runs, and nothing about what it decides.
//!
//! A reconcile is a [`tower::Service`] from [`Request`] to [`Outcome`]; every concern (tracing, metrics, back-off,
//! leadership, panics, time-outs, conditions, finalizers, external effects, owned children, metadata, API presence,
//! feature flags) is one layer in one file of [`layers`], usable and tested alone. A [`Planner`] holds the only part
//! that a domain has to write: a pure plan and a pure report.
//!
//! This crate names no product: prefixes, managers and label values are parameters.
//!
//! A whole operator (`examples/operator.rs`, which the tests run against an API server):
//!
//! ```no_run
#![doc = include_str!("../examples/operator.rs")]
//! ```
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod api;
pub mod at_once;
pub mod child;
pub mod condition;
mod contest;
pub mod entries;
pub mod error;
pub mod events;
pub mod kind;
pub mod layers;
pub mod outcome;
pub mod owned;
pub mod owner;
pub mod plan;
pub mod prelude;
pub mod report;
pub mod request;
pub mod runtime;
pub mod settled;
pub mod stack;
pub mod status;
pub mod status_writer;
#[cfg(feature = "testing")]
pub mod testing;
mod undeclared;

pub use child::Child;
pub use condition::{Condition, ConditionStatus};
pub use error::{ErrorClass, ReconcileError};
pub use kind::ApiKind;
pub use outcome::Outcome;
pub use plan::{ChildPlan, Desired, HoldReason, Needs, Plan, Planner, Verdict};
pub use report::{Entries, Entry, Limits, Note, Report, StatusField};
pub use request::Request;
pub use settled::{ChildState, Children, Settled};

/// The whole stack of one controller behind one type: cloneable per reconcile, shareable between tasks.
pub type BoxReconcile<K> = tower::util::BoxCloneSyncService<Request<K>, Outcome, ReconcileError>;
