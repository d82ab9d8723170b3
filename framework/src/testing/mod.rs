//! Test support (feature `testing`): an API server inside the process, and the conformity suite that compares it with
//! a real one. Nothing here runs in production.
//!
//! ```text
//! server     paths, verbs, answers, the handle ApiServer       faults, log    what is disturbed, what was asked
//! store      objects, deletion, garbage, namespaces, CRDs      kinds, schema  what is served, as data
//! ssa, fields  server-side apply                               watch, selector, patch, discovery, failure
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
mod discovery;
mod failure;
mod faults;
mod fields;
mod kinds;
mod log;
mod patch;
pub mod schema;
mod selector;
mod server;
mod ssa;
mod store;
mod watch;

pub use faults::{Crash, Fault, Matcher, RuleId, Times};
pub use kinds::ResourceDef;
pub use log::{Answer, Call, Mark, Verb};
pub use schema::{ListKind, Schema};
pub use server::{AnswerBody, ApiServer, DEFAULT_USER, TEST_MANAGER, UserService};
pub use store::Gc;
