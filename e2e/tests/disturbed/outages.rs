//! An API server that stops, restarts or answers with errors: the operator recovers, loses nothing, asks little.

use std::time::{Duration, Instant};

use routewright_e2e::audit::Mark;
use routewright_e2e::node::Service;
use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both, exposed, tally};
use routewright_e2e::{Result, Scenario, scenario, wait};
use serde_json::{Value, json};

use crate::ALONE;

/// An operator that has exposed a bucket of each kind.
async fn given(s: &Scenario) -> Result<(Stage, Operator)> {
    crate::kinds::route_served(s).await?;
    let stage = Stage::new(s).await?;
    let operator = Operator::process(s.cluster, both(s.ns())).await?;
    stage.usual_garage().await?;
    stage
        .bucket("site", &Kind::Ingress.exposure(&[], json!({})))
        .await?;
    stage
        .bucket("shop", &Kind::Route.exposure(&[], json!({})))
        .await?;
    Kind::Ingress.settled(&stage, "site").await?;
    Kind::Route.settled(&stage, "shop").await?;
    stage.calm(&operator).await?;
    Ok((stage, operator))
}

/// Both buckets as they were, a new one is exposed, a change of an old one arrives, and an edit is undone.
async fn goes_on(stage: &Stage, operator: &Operator, new: &str) -> Result<()> {
    wait::eventually("goes on", Duration::from_secs(90), || async {
        stage
            .bucket(new, &Kind::Ingress.exposure(&[], json!({})))
            .await
            .map(drop)
            .map_err(|e| e.to_string())
    })
    .await?;
    wait::eventually("the new bucket is exposed", Duration::from_secs(90), || async {
        stage
            .reason(new, "Exposed")
            .await
            .map(drop)
            .map_err(|e| e.to_string())
    })
    .await?;
    for old in ["site", "shop"] {
        let bucket = stage.there("GarageBucket", old).await?;
        assert_eq!(
            exposed(&bucket).map(|c| &c["reason"]),
            Some(&Value::from("Exposed")),
            "{bucket}"
        );
    }
    stage
        .merge(
            "Ingress",
            "site-website",
            json!({"metadata": {"labels": {"app.kubernetes.io/component": "x"}}}),
        )
        .await?;
    stage
        .until("put right", "Ingress", "site-website", |o| {
            (o["metadata"]["labels"]["app.kubernetes.io/component"] == "ingress-exposure").then_some(())
        })
        .await?;
    operator.ready().await
}

/// What was asked since the mark, printed, and not more than a limit.
fn few(what: &str, stage: &Stage, operator: &Operator, mark: Mark, limit: usize) -> Result<()> {
    let all: Vec<_> = stage
        .everything(operator, mark)?
        .into_iter()
        .filter(|r| r.resource != "leases")
        .collect();
    say(format!("{what}: {} requests: {:?}", all.len(), tally(&all)));
    assert!(
        all.len() <= limit,
        "{what}: {} requests: {:?}",
        all.len(),
        tally(&all)
    );
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_restarts_loses_nothing() {
    let _alone = ALONE.lock().await;
    scenario("an_api_server_that_restarts_loses_nothing", async |s| {
        let (stage, operator) = given(&s).await?;
        let node = s.cluster.own_node()?;
        // When the API server is killed, so that every watch is cut, and something happens behind the operator's back once it is there again
        let mark = stage.mark()?;
        let begun = Instant::now();
        node.kill(Service::Apiserver)?;
        node.start(Service::Apiserver)?;
        node.wait_api()?;
        // The connection that was used last is cut, and may be found so by this request.
        wait::eventually("it is deleted", Duration::from_secs(90), || async {
            let deleted = stage.delete("Ingress", "site-website").await;
            deleted.map_err(|e| e.to_string())
        })
        .await?;
        say(format!(
            "the API server was away for {:.1} s",
            begun.elapsed().as_secs_f32()
        ));
        // Then what was lost is made again, and all goes on with few requests
        wait::eventually("made again", Duration::from_secs(90), || async {
            stage
                .there("Ingress", "site-website")
                .await
                .map(drop)
                .map_err(|e| e.to_string())
        })
        .await?;
        goes_on(&stage, &operator, "late").await?;
        few("API server restarted", &stage, &operator, mark, 120)
    })
    .await;
}

#[tokio::test]
async fn an_api_server_that_hangs_is_waited_for() {
    let _alone = ALONE.lock().await;
    scenario("an_api_server_that_hangs_is_waited_for", async |s| {
        let (stage, operator) = given(&s).await?;
        let node = s.cluster.own_node()?;
        let mark = stage.mark()?;
        // When the API server is frozen for longer than a lease lasts
        node.pause(Service::Apiserver)?;
        let frozen = wait::throughout("the operator lives", Duration::from_secs(20), || async {
            match operator.pid() {
                Ok(pid) if pid.alive() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        let verbose = operator.probe("/readyz?verbose").await;
        node.resume(Service::Apiserver)?;
        frozen?;
        assert!(verbose?.contains("leader: false"), "a leader without a lease");
        // Then it leads again and all goes on
        goes_on(&stage, &operator, "late").await?;
        few("API server frozen for 20 s", &stage, &operator, mark, 150)
    })
    .await;
}

#[tokio::test]
async fn an_api_server_without_its_store_is_not_hammered() {
    let _alone = ALONE.lock().await;
    scenario("an_api_server_without_its_store_is_not_hammered", async |s| {
        let (stage, operator) = given(&s).await?;
        let node = s.cluster.own_node()?;
        let mark = stage.mark()?;
        // When etcd is frozen, so that every write and many reads end with a 5xx or a time-out, and there is work to do
        stage
            .merge(
                "Ingress",
                "site-website",
                json!({"metadata": {"labels": {"app.kubernetes.io/component": "x"}}}),
            )
            .await?;
        node.pause(Service::Etcd)?;
        let lived = wait::throughout("the operator lives", Duration::from_secs(25), || async {
            match operator.pid() {
                Ok(pid) if pid.alive() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        node.resume(Service::Etcd)?;
        lived?;
        node.wait_api()?;
        // Then all goes on, and the errors were few
        goes_on(&stage, &operator, "late").await?;
        few("etcd frozen for 25 s", &stage, &operator, mark, 150)
    })
    .await;
}
