//! A deterministic simulator of Routewright: the whole operator, several replicas and installations of it, on the
//! in-process API server and the stand-ins of Garage and Tyk, on one thread, in simulated time. One seed, one history.
//!
//! ```text
//! determinism   random numbers and clocks of the thread          host      a machine: runtime, freeze, power loss
//! net           API server as one process sees it                outside   Garages and Tyks and the ways to them
//! world         everything together, step by step                judge     every write, in the moment it takes effect
//! universe      the objects that histories are about             history   what happens: written from a seed, as data
//! schema        edits of any field of a kind          rights    what the service account may do, from the page
//! cluster       upgrades, Leases, namespaces, CRDs
//! oracle        what must stand in the end, from the contracts   play      one history from start to verdict; shrinking
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // test code: a panic is a failed test
#![allow(clippy::explicit_auto_deref)] // without the star, `pick` would be inferred to give a `str`

pub mod cluster;
pub mod determinism;
pub mod history;
pub mod host;
pub mod judge;
pub mod net;
pub mod oracle;
pub mod outside;
pub mod play;
pub mod random;
pub mod rights;
pub mod schema;
pub mod universe;
pub mod world;
