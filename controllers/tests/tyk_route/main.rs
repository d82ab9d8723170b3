//! Stories of routes in Tyk: what `tyk-httproute` writes to Tyk and to the route, in which order, and what is left when
//! something fails in between. Told by the controller's whole stack on the in-process API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "../support/tyk_places.rs"]
mod places;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tyk_gateway.rs"]
mod tyk_gateway;
#[path = "../support/tyk_objects.rs"]
mod tyk_objects;

mod bench;
mod claims;
mod coexistence;
mod crash;
mod deletion;
mod http;
mod lifecycle;
mod moving;
mod orphans;
mod pace;
mod real;
mod secrecy;
mod table;
mod trouble;
mod tyk;
mod tyks;
mod whole;
