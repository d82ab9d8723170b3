//! Stories of the running half on a scripted API and a paused clock.

mod controller;
mod found;
mod hub;
mod leadership;
mod presence;
mod supervisor;

use std::time::Duration;

/// Waits for a condition with a deadline on the (paused) clock; says what did not come.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "did not come: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
