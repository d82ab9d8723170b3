//! Stories of routes in Tyk: what `tyk-httproute` writes to Tyk and to the route, in which order, and what is left when
//! something fails in between. Told by the controller's whole stack on the in-process API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod coexistence;
mod crash;
mod deletion;
mod lifecycle;
mod moving;
mod pace;
mod real;
mod secrecy;
mod table;
mod trouble;
mod tyk;
mod whole;
