//! `routewright cleanup` on the in-process API server: what goes, and what is left alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod garage;
#[path = "../support/tyk_places.rs"]
mod places;
#[path = "../support/process.rs"]
mod process;
mod program;
#[path = "../support/mod.rs"]
mod support;
mod tyk;
#[path = "../support/tyk_gateway.rs"]
mod tyk_gateway;
#[path = "../support/tyk_objects.rs"]
mod tyk_objects;
mod uninstall;
