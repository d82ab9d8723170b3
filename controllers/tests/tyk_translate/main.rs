//! What a plan becomes in Tyk, row by row of the source's tables: identity, configuration, filters, backends,
//! attachment. Against a running gateway: `gateway_contract`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod attached;
mod configuration;
mod filters;
mod identity;
mod manifests;
mod methods;
mod properties;
mod support;
