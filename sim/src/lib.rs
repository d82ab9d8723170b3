//! Simulates the whole operator, and judges what a quiet world must look like. Nothing here runs in production.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // test code: a panic is a failed test

pub mod oracle;
