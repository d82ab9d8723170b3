//! The chart: as text, and installed by the real Helm on a cluster of this process alone. Scenarios that install CRDs or
//! releases take turns.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod admission;
mod combinations;
mod documents;
mod image;
mod life;
mod release;
mod text;
mod tyk;

/// Held by the scenario that may change what is cluster-wide.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
