//! Actors and clients against the stand-in for Tyk, both APIs: what is written, what is asked, what comes of it, and what
//! happens when anything of it goes wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod alone;
mod between;
mod certificates;
mod cluster;
mod crash;
mod crowd;
mod faults;
mod life;
mod orphans;
mod panics;
mod patience;
mod real;
mod stage;
mod takeover;
#[path = "../support/tls.rs"]
mod tls;
#[path = "../support/tyk_gateway.rs"]
mod tyk_gateway;
