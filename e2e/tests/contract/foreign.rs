//! Somebody else's object under the name that a bucket wants.

use std::time::{Duration, Instant};

use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both, squatter};
use routewright_e2e::{Result, Scenario, scenario, wait};
use serde_json::json;

#[tokio::test]
async fn a_foreign_ingress_is_left_alone_and_ours_follows() {
    scenario("a_foreign_ingress_is_left_alone_and_ours_follows", async |s| {
        foreign(&s, Kind::Ingress).await
    })
    .await;
}

#[tokio::test]
async fn a_foreign_route_is_left_alone_and_ours_follows() {
    scenario("a_foreign_route_is_left_alone_and_ours_follows", async |s| {
        foreign(&s, Kind::Route).await
    })
    .await;
}

async fn foreign(s: &Scenario, kind: Kind) -> Result<()> {
    s.cluster.gateway_crds("standard").await?;
    let stage = Stage::new(s).await?;
    let operator = Operator::process(s.cluster, both(s.ns())).await?;
    stage.usual_garage().await?;
    let name = kind.name();
    // Given an object of that name, controlled by somebody else
    let owner = stage
        .apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}))
        .await?;
    let mut theirs = squatter(kind, "site-website", json!({"theirs": "yes"}));
    theirs["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    stage.apply(theirs).await?;
    let before = stage.there(name, "site-website").await?;
    // When a bucket wants the name, then the condition names the object and its owner
    let bucket = stage.bucket("site", &kind.exposure(&[], json!({}))).await?;
    let object = format!("{name} {}/site-website", s.ns());
    let said = stage.says("site", "ReconcileFailed", &object).await?;
    assert!(
        said["message"].as_str().unwrap().contains("ConfigMap theirs"),
        "{said}"
    );
    // And the object is the same, to the last byte
    stage.calm(&operator).await?;
    assert_eq!(stage.there(name, "site-website").await?, before);
    // When its owner lets go of it, then it is still not ours
    stage
        .merge(
            name,
            "site-website",
            json!({"metadata": {"ownerReferences": null}}),
        )
        .await?;
    let ownerless = stage.there(name, "site-website").await?;
    stage
        .says("site", "ReconcileFailed", "controlled by nobody")
        .await?;
    wait::throughout("not taken over", Duration::from_secs(2), || async {
        let now = stage
            .there(name, "site-website")
            .await
            .map_err(|e| e.to_string())?;
        if now == ownerless {
            Ok(())
        } else {
            Err(format!("changed: {now}"))
        }
    })
    .await?;
    // When it goes, then ours is there, long before a timer of minutes would bring a look (how long it takes of the
    // operator's own time is shown with the in-process API server)
    let begun = Instant::now();
    stage.delete(name, "site-website").await?;
    let ours = |o: &serde_json::Value| {
        (o.pointer("/metadata/ownerReferences/0/uid")? == &bucket["metadata"]["uid"]).then_some(())
    };
    stage.until("ours", name, "site-website", ours).await?;
    say(format!(
        "{name}: ours was there {} ms after theirs had gone",
        begun.elapsed().as_millis()
    ));
    kind.settled(&stage, "site").await?;

    // Given an ownerless object under another bucket's name
    stage.apply(squatter(kind, "shop-website", json!({}))).await?;
    let bucket = stage.bucket("shop", &kind.exposure(&[], json!({}))).await?;
    let said = stage
        .says("shop", "ReconcileFailed", "routewright.dev/adopt")
        .await?;
    assert!(
        said["message"].as_str().unwrap().contains("shop-website"),
        "{said}"
    );
    // When its own side hands it over by the bucket's uid, then it becomes ours
    let adopt = json!({"metadata": {"annotations": {"routewright.dev/adopt": bucket["metadata"]["uid"]}}});
    stage.merge(name, "shop-website", adopt).await?;
    let ours = |o: &serde_json::Value| {
        (o.pointer("/metadata/ownerReferences/0/uid")? == &bucket["metadata"]["uid"]).then_some(())
    };
    stage.until("adopted", name, "shop-website", ours).await?;
    kind.settled(&stage, "shop").await
}
