//! Bytes as manifests: decode, model and translation, with the checks of the seeded fuzz test.
#![no_main]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../controllers/tests/fuzz/check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;
use routewright::cli::translate::input::Source;

/// What the platform owns, so that routes of the input are judged.
const PLATFORM: &str = include_str!("../../controllers/tests/translate/stories/01-simple/platform.yaml");

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let source = |name: &str, text: &str| Source {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    check::check(&[source("platform.yaml", PLATFORM), source("fuzz.yaml", text)], true);
});
