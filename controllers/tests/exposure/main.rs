//! Stories of website exposure, told by the whole operator on the in-process API server, with the exact log of what it
//! asked. One file per subject; what they are told with is in `support`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../support/mod.rs"]
mod support;

mod alone;
mod children;
mod classes;
mod clusters;
mod crash;
mod faults;
mod flags;
mod foreign;
mod grid;
mod namespaces;
mod observed;
mod opponents;
mod presence;
mod routes;
mod rows;
mod tenants;
