//! Real requests through Contour and Envoy to a real Garage: names, documents, neighbours, a Gateway that comes and
//! goes, certificates by HTTP-01, hand-over. The test plays the operator that owns buckets and clusters (companion mode).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod acme;
mod gateway;
mod handover;
mod names;
mod pair;
mod world;
