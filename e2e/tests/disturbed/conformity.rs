//! The suite that the in-process API server passes, against the real one.

use reconcile_kit::testing::conformity;
use routewright_e2e::node::Service;
use routewright_e2e::scenario;
use routewright_e2e::sh::say;

use crate::ALONE;

#[tokio::test]
async fn the_real_api_server_behaves_as_the_test_server_is_made_to() {
    let _alone = ALONE.lock().await;
    scenario(
        "the_real_api_server_behaves_as_the_test_server_is_made_to",
        async |s| {
            // Given an API server that serves what the suite asks for
            crate::kinds::route_served(&s).await?;
            // One that knows its first versions no more, as a server of some age.
            s.cluster.own_node()?.restart(Service::Apiserver)?;
            // When the suite runs against it
            let results = conformity::run(s.client().await?, s.ns()).await;
            // Then every check gives the notes that the test server gives
            let failed: Vec<String> = results
                .iter()
                .filter(|r| r.is_failure())
                .map(ToString::to_string)
                .collect();
            assert!(
                failed.is_empty(),
                "{} of {} checks differ\n{}",
                failed.len(),
                results.len(),
                failed.join("\n")
            );
            assert!(results.len() > 50, "all checks ran");
            let skipped = results
                .iter()
                .filter(|r| matches!(r.outcome, conformity::CheckOutcome::Skipped(_)))
                .count();
            say(format!("conformity: {} checks, {skipped} skipped", results.len()));
            Ok(())
        },
    )
    .await;
}
