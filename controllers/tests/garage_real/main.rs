//! Against a real Garage on loopback: the Admin API client, the bucket driver, the whole operator, the host rules.
//!
//! The program is found by `GARAGE_BIN`, or in the tool cache of the e2e crate. Without it these tests fail, unless
//! `ROUTEWRIGHT_SKIP_REAL_GARAGE=1` says that they may be left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod hosts;
mod proxy;
mod real;
mod sweep;
