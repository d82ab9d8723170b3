//! Buckets on a real cluster: beside another operator that owns them, and in a real Garage through handles and grants.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod companion;
mod garage;
