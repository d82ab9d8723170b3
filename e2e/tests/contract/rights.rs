//! A switch that is off takes its rights and its requests with it, and what is granted is used.

use std::collections::BTreeSet;

use routewright_e2e::audit::Mark;
use routewright_e2e::garage::{Garage, GarageOptions};
use routewright_e2e::operator::{Operator, RELEASE};
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both};
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

#[tokio::test]
async fn what_is_granted_is_used() {
    scenario("what_is_granted_is_used", async |s| {
        s.cluster.gateway_crds("standard").await?;
        let stage = Stage::new(&s).await?;
        let garage = Garage::deploy(s.cluster, s.ns(), "garage", &GarageOptions::default()).await?;
        // Given the operator with everything on
        let mut values = both(s.ns());
        values["garageBuckets"] = json!({"enabled": true});
        let operator = Operator::process(s.cluster, values).await?;
        // When buckets live a whole life: made in Garage, exposed either way, in the way of somebody, gone
        stage
            .apply(json!({
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "metadata": {"name": "garage"},
                "spec": {
                    "connectTo": {
                        "adminApiEndpoint": format!("http://{}", garage.address(routewright_e2e::garage::ADMIN)),
                        "adminTokenSecretRef": {"name": "garage-admin-token", "key": "token"},
                    },
                    "webApi": {"rootDomain": ".example.test"},
                },
            }))
            .await?;
        for kind in [Kind::Ingress, Kind::Route] {
            let name = if kind == Kind::Ingress { "one" } else { "two" };
            let mut exposure = kind.exposure(&[], json!({}));
            exposure["backendRef"] = json!({"name": "garage", "port": 3902});
            stage.apply(routewright_e2e::stage::squatter(kind, &format!("{name}-website"), json!({}))).await?;
            stage.new_bucket(name, &exposure).await?;
            stage.says(name, "ReconcileFailed", "nobody").await?;
            stage.delete(kind.name(), &format!("{name}-website")).await?;
            kind.settled(&stage, name).await?;
            stage.expose(name, &Value::Null).await?;
            stage.gone(kind.name(), &format!("{name}-website")).await?;
            stage.delete("GarageBucket", name).await?;
            stage.gone("GarageBucket", name).await?;
        }
        // Then every right was used, but those that only make other ways possible
        let verb = |v: &str| if v == "apply" { "patch".to_owned() } else { v.to_owned() };
        let used: BTreeSet<String> = stage
            .everything(&operator, Mark::START)?
            .into_iter()
            .filter(|r| r.code < 400 || r.code == 409 || r.code == 404)
            .map(|r| format!("{} {}", verb(&r.verb), r.resource))
            .collect();
        let rights = granted(&s, &operator)?;
        let idle: BTreeSet<&String> = rights.difference(&used).collect();
        say(format!("rights: {} granted, not used here: {idle:?}", rights.len()));
        let spare = SPARE.map(str::to_owned);
        let surprising: Vec<_> = idle.into_iter().filter(|r| !spare.contains(*r)).collect();
        assert!(surprising.is_empty(), "granted and never used: {surprising:?}; used: {used:#?}");
        Ok(())
    })
    .await;
}

/// Rights that a scenario does not use: a get beside every list and watch (client libraries take them for one right),
/// the create that a server-side apply of a missing object needs besides patch, a repeated event, and the labels of
/// namespaces, read only while a grant selects by them.
const SPARE: [&str; 12] = [
    "get customresourcedefinitions",
    "get garagebuckets",
    "get garageclusters",
    "get garagereferencegrants",
    "create ingresses",
    "create httproutes",
    "patch events",
    "get namespaces",
    "list namespaces",
    "watch namespaces",
    "list customresourcedefinitions",
    "watch customresourcedefinitions",
];
