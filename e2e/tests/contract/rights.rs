//! A switch that is off takes its rights and its requests with it. That what is granted is used is shown with the chart.

use std::collections::BTreeSet;

use routewright_e2e::audit::Mark;
use routewright_e2e::operator::{Operator, RELEASE};
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage};
use routewright_e2e::{Result, Scenario, scenario};
use serde_json::{Value, json};

#[tokio::test]
async fn without_ingress_nothing_is_asked_about_ingresses() {
    scenario("without_ingress_nothing_is_asked_about_ingresses", async |s| {
        without(&s, Kind::Ingress).await
    })
    .await;
}

#[tokio::test]
async fn without_gateway_api_nothing_is_asked_about_routes() {
    scenario("without_gateway_api_nothing_is_asked_about_routes", async |s| {
        without(&s, Kind::Route).await
    })
    .await;
}

/// Everything that the rules of a release name, as `verb resource`.
fn granted(s: &Scenario, operator: &Operator) -> Result<BTreeSet<String>> {
    let name = format!("{RELEASE}.{}", operator.ns());
    let mut all = BTreeSet::new();
    for words in [
        vec!["get", "clusterrole", &name, "-o", "json"],
        vec!["-n", s.ns(), "get", "role", &name, "-o", "json"],
    ] {
        let role: Value = serde_json::from_str(&s.cluster.kubectl(words)?).unwrap();
        for rule in role["rules"].as_array().unwrap() {
            let list = |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap() };
            for verb in list("verbs") {
                all.extend(
                    list("resources")
                        .into_iter()
                        .map(|resource| format!("{verb} {resource}")),
                );
            }
        }
    }
    Ok(all)
}

async fn without(s: &Scenario, off: Kind) -> Result<()> {
    s.cluster.gateway_crds("standard").await?;
    let stage = Stage::new(s).await?;
    // Given the operator with one of the two kinds on
    let on = off.other();
    let operator = Operator::process(
        s.cluster,
        json!({
            "ingress": {"enabled": on == Kind::Ingress}, "gatewayAPI": {"enabled": on == Kind::Route},
            "watchNamespaces": [s.ns()],
        }),
    )
    .await?;
    // Then its rights do not name the other
    let rights = granted(s, &operator)?;
    assert!(!rights.iter().any(|r| r.contains(off.plural())), "{rights:?}");
    assert!(rights.contains(&format!("create {}", on.plural())), "{rights:?}");
    // When buckets ask for both, are switched, unset and deleted
    stage.usual_garage().await?;
    stage.bucket("on", &on.exposure(&[], json!({}))).await?;
    stage.bucket("off", &off.exposure(&[], json!({}))).await?;
    let reason = if off == Kind::Ingress {
        "IngressDisabled"
    } else {
        "GatewayAPIUnavailable"
    };
    // Then one is served, and the other is told which switch it needs
    on.settled(&stage, "on").await?;
    let said = stage.reason("off", reason).await?;
    assert!(said["message"].as_str().unwrap().contains("--enable-"), "{said}");
    stage.expose("off", &on.exposure(&[], json!({}))).await?;
    on.settled(&stage, "off").await?;
    stage.expose("off", &off.exposure(&[], json!({}))).await?;
    stage.reason("off", reason).await?;
    stage.gone(on.name(), "off-website").await?;
    stage.expose("on", &Value::Null).await?;
    stage.gone(on.name(), "on-website").await?;
    stage.delete("GarageBucket", "off").await?;
    stage.calm(&operator).await?;
    // And of all requests since its start, none was about the other kind, and none was refused
    let all = stage.everything(&operator, Mark::START)?;
    assert!(all.len() > 10, "{all:#?}");
    let about: Vec<_> = all
        .iter()
        .filter(|r| r.resource.contains(off.plural()) || r.resource == "ingressclasses")
        .collect();
    assert!(about.is_empty(), "{about:#?}");
    let refused: Vec<_> = all.iter().filter(|r| r.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    say(format!(
        "{} off: {} requests, none about {}",
        off.name(),
        all.len(),
        off.plural()
    ));
    Ok(())
}
