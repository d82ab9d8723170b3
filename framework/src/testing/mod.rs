//! Test support (feature `testing`): an API server inside the process, and the conformity suite that compares it with
//! a real one. Nothing here runs in production.
//!
//! ```text
//! server      the handle ApiServer                    http, verbs   requests, answers, RBAC, lists, watches
//! store       objects, kinds, event history           write         create, PUT, patch, apply: checks and their order
//! ssa, fields field ownership                         control       deletion, garbage, namespaces, CRDs
//! kinds       what is served, as data                 schema        types, defaults, limits
//! faults, log what is disturbed, what was asked       watch, selector, patch, discovery, failure
//! ```
//!
//! What it fakes is what was measured on kube-apiserver 1.36; each piece is one check in [`conformity`], run against
//! both. What it does not do: strategic merge patch (taken as a merge patch), admission webhooks and policies, CEL,
//! conversion between versions beyond the name, Table output, OpenAPI.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // test code: a panic is a failed test

pub mod conformity;
mod control;
mod discovery;
mod failure;
mod faults;
mod fields;
mod http;
mod kinds;
mod log;
mod patch;
pub mod schema;
mod selector;
mod server;
mod ssa;
mod store;
mod verbs;
mod watch;
mod write;

pub use faults::{Crash, Fault, Matcher, RuleId, Times};
pub use kinds::ResourceDef;
pub use log::{Answer, Call, Mark, Verb};
pub use schema::{ListKind, Schema};
pub use server::{AnswerBody, ApiServer, DEFAULT_USER, TEST_MANAGER, UserService};
pub use store::Gc;
