//! The conformance suite of Gateway API against the stand-in for Tyk, as `cargo e2e conformance` runs it; writes no report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use routewright_e2e::tyk::Which;
use routewright_e2e::{conformance, scenario};

#[tokio::test]
async fn what_the_source_allows_of_the_core_passes() {
    scenario("what_the_source_allows_of_the_core_passes", async |s| {
        let outcome = conformance::run(s.cluster, Which::Double, None).await?;
        assert_eq!(outcome.wrong(), Vec::<String>::new(), "{}", outcome.table());
        assert_eq!((outcome.status(), outcome.core()), ((15, 15), (27, 37)));
        Ok(())
    })
    .await;
}
