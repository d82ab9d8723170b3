//! The operator as its chart installs it: as a Pod and as a process. What it does with objects is for other files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::time::Duration;

use routewright_e2e::operator::{Operator, RELEASE};
use routewright_e2e::{scenario, wait};
use serde_json::json;

#[tokio::test]
async fn it_runs_as_a_pod_from_its_chart_and_can_be_upgraded() {
    scenario("it_runs_as_a_pod_from_its_chart_and_can_be_upgraded", async |s| {
        // Given the chart with one controller on, in a namespace that enforces the restricted standard
        let operator = Operator::pod(
            s.cluster,
            json!({"ingress": {"enabled": true}, "watchNamespaces": [s.ns()]}),
        )
        .await?;
        // Then it is ready, says so, and has metrics
        operator.ready().await?;
        assert!(operator.probe("/readyz").await?.contains("ok"));
        assert!(!operator.metrics().await?.is_empty());
        assert!(!operator.logs()?.is_empty());
        // And its account has the rights of the toggle, in the watched namespace alone
        let may = |ns: &str| {
            let user = format!("--as={}", operator.user());
            s.cluster
                .kubectl(["-n", ns, "auth", "can-i", "create", "ingresses", &user])
        };
        assert_eq!(may(s.ns())?.trim(), "yes");
        assert!(may("default").is_err());
        // And nothing that it asks for is refused
        if let Ok(log) = s.cluster.audit() {
            let asked = log.of_account(routewright_e2e::audit::Mark::START, operator.ns(), RELEASE)?;
            assert!(!asked.is_empty());
            let refused: Vec<_> = asked.into_iter().filter(|r| r.code == 403).collect();
            assert!(refused.is_empty(), "{refused:#?}");
        }
        // When the toggle is switched off, then the rights go with it
        operator.upgrade(json!({"watchNamespaces": [s.ns()]})).await?;
        // (the API server hears of its own rules through a watch)
        let patience = Duration::from_secs(60);
        wait::eventually("the right is gone", patience, || async {
            may(s.ns()).map_or(Ok(()), Err)
        })
        .await?;
        operator.ready().await
    })
    .await;
}

#[tokio::test]
async fn it_runs_as_a_process_that_can_be_frozen_and_killed() {
    scenario("it_runs_as_a_process_that_can_be_frozen_and_killed", async |s| {
        // Given the operator as a process and a second one of the same release
        let values = json!({"ingress": {"enabled": true}, "watchNamespaces": [s.ns()]});
        let mut operator = Operator::process(s.cluster, values).await?;
        assert!(!operator.metrics().await?.is_empty());
        let sibling = operator.sibling()?;
        sibling.ready().await?;
        assert_ne!(sibling.pid(), operator.pid()?);
        // When it is frozen, then it does not answer; and goes on afterwards
        operator.pause()?;
        assert!(operator.probe("/livez").await.is_err());
        operator.resume()?;
        operator.ready().await?;
        // When it is killed, then it is gone until it is started again
        operator.kill()?;
        assert!(operator.probe("/livez").await.is_err());
        operator.restart()?;
        operator.ready().await?;
        // When it is asked to end, then it ends
        operator.terminate()?;
        assert!(!operator.pid()?.alive());
        wait::throughout("the sibling stays", Duration::from_millis(300), || async {
            if sibling.pid().alive() {
                Ok(())
            } else {
                Err("ended".to_owned())
            }
        })
        .await
    })
    .await;
}
