//! Gateway API on Tyk, on a real cluster: real requests through the chain, what is asked of the API server and of Tyk, and
//! what is left after kills, other writers and deletions. Behaviour that needs no cluster is in controllers/tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod chain;
mod costs;
mod kills;
mod removal;
mod stand;
mod together;
mod world;
