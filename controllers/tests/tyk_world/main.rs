//! Stories of Gateway API on Tyk as far as Kubernetes alone is concerned: classes, Gateways, listeners, definitions. Told
//! by the whole operator on the in-process API server, with the exact log of what it asked. What is decided is shown by
//! the tests of the model; here is shown that it reaches status: once, at the right object, and at no other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../support/mod.rs"]
mod support;

mod classes;
mod contents;
mod definitions;
mod feed;
mod gateways;
mod presence;
mod statuses;
mod world;
