//! What disturbs the whole cluster: kinds that come and go, an API server that stops, an operator that is killed. One
//! scenario at a time, on a cluster of this process alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod conformity;
mod kills;
mod kinds;
mod outages;

/// Held by the scenario that runs.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
