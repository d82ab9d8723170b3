//! Stories of buckets and handles: the whole operator on the in-process API server, with a Garage in memory, and the
//! exact log of what it asked of either. What a bucket needs in Garage step by step is tested beside `garage::bucket`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;

mod bad_input;
mod buckets;
mod coexistence;
mod crash;
mod faults;
mod handles;
mod http;
mod rivals;
mod rows;
mod sight;
mod world;
