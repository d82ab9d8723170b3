//! A real cluster for the tests of Routewright: single node without Docker, scenarios, benchmarks.
//!
//! `tools` builds programs, `image` packs them, `node` runs Kubernetes in namespaces of its own, `audit` reads what
//! was asked of it; `cluster` is what scenarios see of it, `operator`, `garage`, `contour` and `tyk` are what they put on it,
//! `reader` what the documentation's reader finds on it;
//! `proof` puts known faults back for the simulator to find; `tiers` runs all tests, `demo`, `demo_tyk` and `bench` show the product. Its behaviour is stated by the scenarios in `tests/`,
//! not here.
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
pub mod bench;
pub mod cluster;
pub mod conformance;
pub mod contour;
pub mod demo;
pub mod demo_tyk;
pub mod error;
pub mod garage;
pub mod image;
pub mod kind;
pub mod net;
pub mod node;
pub mod operator;
pub mod programs;
pub mod proof;
pub mod reader;
pub mod s3;
pub mod sh;
pub mod stage;
pub mod tiers;
pub mod tools;
pub mod tyk;
pub mod wait;

pub use cluster::{Cluster, Scenario, scenario};
pub use error::{Error, Result};
