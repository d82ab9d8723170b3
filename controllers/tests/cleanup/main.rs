//! `routewright cleanup` on the in-process API server: what goes, and what is left alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod garage;
#[path = "../support/mod.rs"]
mod support;
mod tyk;
