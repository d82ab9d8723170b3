//! The contract of exposure on a real cluster: one cluster for all of it, one namespace and one operator per scenario.
//! What disturbs the whole cluster is in `disturbed`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod foreign;
mod garage;
mod ha;
mod leader;
mod requests;
mod rights;
mod rows;
