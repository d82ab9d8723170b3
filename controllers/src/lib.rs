//! Routewright: website exposure for Garage buckets, and Gateway API on Tyk.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod app;
mod childless;
pub mod cli;
pub mod exposure;
pub mod garage;
pub mod ground;
mod hex;
pub mod telemetry;
pub mod tyk;
