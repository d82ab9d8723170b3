//! A real cluster for the tests of Routewright: single node without Docker, scenarios, benchmarks.
//!
//! `tools` builds programs, `image` packs them, `node` runs Kubernetes in namespaces of its own, `audit` reads what
//! was asked of it. The product's behaviour is stated by the scenarios in `tests/`, not here.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod audit;
pub mod error;
pub mod image;
pub mod net;
pub mod node;
pub mod sh;
pub mod tools;

pub use error::{Error, Result};
