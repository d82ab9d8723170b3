//! A release with Gateway API on Tyk over time: switched on, off and on again, removed while Tyk is away, and when it is
//! back.

use std::collections::BTreeSet;

use routewright_e2e::audit::Mark;
use routewright_e2e::stage::Stage;
use routewright_e2e::tyk::{NAME, Tyk, Which};
use routewright_e2e::{Cluster, Result, scenario, wait};
use serde_json::{Value, json};

use crate::TURN;
use crate::release::{Release, SOON, without_crds};

const FINALIZER: &str = "routewright.dev/tyk-httproute";
const MEMORY: &str = "routewright.dev/tyk-apis";

fn values(on: bool, more: Value) -> Value {
    let mut values = json!({
        "tyk": {"enabled": on}, "replicaCount": 2, "crds": {"garage": {"enabled": false}, "tyk": {"enabled": true}},
        "admissionPolicy": {"enabled": false}, "networkPolicy": {"enabled": true},
    });
    for (key, value) in more.as_object().unwrap() {
        values["tyk"][key] = value.clone();
    }
    values
}

fn accepted(route: &Value) -> Option<()> {
    let entry = route.pointer("/status/parents")?.as_array()?.first()?;
    let conditions = entry["conditions"].as_array()?;
    conditions
        .iter()
        .any(|c| c["type"] == "Accepted" && c["status"] == "True")
        .then_some(())
}

/// The route is held, and has its API in Tyk.
async fn served(stage: &Stage, tyk: &Tyk) -> Result<()> {
    let held = |route: &Value| {
        accepted(route)?;
        let metadata = &route["metadata"];
        (metadata["finalizers"] == json!([FINALIZER]) && metadata["annotations"][MEMORY].is_string())
            .then_some(())
    };
    stage
        .until("accepted and held", "HTTPRoute", "site", held)
        .await?;
    documents(tyk, 1).await
}

async fn documents(tyk: &Tyk, count: usize) -> Result<()> {
    wait::eventually("documents in Tyk", SOON, || async {
        let apis = tyk.apis().await.map_err(|e| e.to_string())?;
        match apis.len() == count {
            true => Ok(()),
            false => Err(format!("{:?}", apis.keys())),
        }
    })
    .await
}

/// Nothing of the operator is on route, Gateway and class.
async fn free(stage: &Stage, class: &str) -> Result<()> {
    let route = stage.there("HTTPRoute", "site").await?;
    assert!(route["metadata"].get("finalizers").is_none(), "{route}");
    let parents = route.pointer("/status/parents").and_then(Value::as_array);
    assert!(parents.is_none_or(Vec::is_empty), "{route}");
    let class = stage.there("GatewayClass", class).await?;
    assert!(class["metadata"].get("finalizers").is_none(), "{class}");
    for object in [class, stage.there("Gateway", "front").await?] {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let untouched = conditions.iter().all(|c| c["status"] == "Unknown");
        assert!(untouched, "{object}");
    }
    Ok(())
}

fn scale(cluster: &Cluster, ns: &str, replicas: u8) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let deployment = format!("deploy/{NAME}");
    cluster.kubectl(["-n", ns, "scale", &deployment, &replicas])?;
    let wait = ["-n", ns, "rollout", "status", &deployment, "--timeout=300s"];
    cluster.kubectl(wait).map(drop)
}

#[tokio::test]
async fn what_was_made_in_tyk_goes_with_the_release() {
    scenario("what_was_made_in_tyk_goes_with_the_release", async |s| {
        let _turn = TURN.lock().await;
        without_crds(s.cluster).await?;
        let cluster = s.cluster;
        cluster.gateway_crds("standard").await?;
        // Given a release, and a route that Tyk serves
        let release = Release::new(cluster, "routewright", s.ns())?;
        release.install(values(true, json!({}))).await?;
        let home = cluster.namespace("tyk").await?;
        let class = home.name().to_owned();
        let stage = Stage::in_namespace(&s, home.name()).await?;
        let tyk = Tyk::deploy(cluster, home.name(), Which::Double).await?;
        tyk.class(&class, "routewright.dev/tyk")?;
        for (kind, name, spec) in [
            (
                "Gateway",
                "front",
                json!({"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}),
            ),
            (
                "HTTPRoute",
                "site",
                json!({"parentRefs": [{"name": "front"}], "rules": [{"backendRefs": [{"name": NAME, "port": 80}]}]}),
            ),
        ] {
            let version = "gateway.networking.k8s.io/v1";
            stage
                .apply(json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}))
                .await?;
        }
        served(&stage, &tyk).await?;
        // When it is switched off, then the API is gone, and every trace of the operator
        release.install(values(false, json!({}))).await?;
        documents(&tyk, 0).await?;
        free(&stage, &class).await?;
        // When it is switched on again, then the route is served as before
        release.install(values(true, json!({}))).await?;
        served(&stage, &tyk).await?;
        // When it is switched off with the APIs to stay, then they do, and the route can be deleted
        release.install(values(false, json!({"keepApis": true}))).await?;
        documents(&tyk, 1).await?;
        let route = stage.there("HTTPRoute", "site").await?;
        assert!(route["metadata"].get("finalizers").is_none(), "{route}");
        assert!(accepted(&route).is_some(), "{route}");
        release.install(values(true, json!({}))).await?;
        served(&stage, &tyk).await?;
        // When it is removed while Tyk is away, then Helm says so with the Job's words, and yet nothing is held
        scale(cluster, home.name(), 0)?;
        let failed = release.uninstall_within("300s").await.unwrap_err().to_string();
        assert!(failed.contains("left in Tyk: gwapi-"), "{failed}");
        assert!(failed.contains("of HTTPRoute"), "{failed}");
        free(&stage, &class).await?;
        let route = stage.there("HTTPRoute", "site").await?;
        assert!(route["metadata"]["annotations"][MEMORY].is_string(), "{route}");
        let job = format!("job/{}-tyk-cleanup", release.full());
        let log = cluster.kubectl(["-n", s.ns(), "logs", &job])?;
        assert!(log.contains("left in Tyk: gwapi-"), "{log}");
        // When Tyk is back, the class names another context, and the release is removed again, then the record leads to Tyk
        // and nothing is left
        scale(cluster, home.name(), 1)?;
        let elsewhere = json!({"spec": {"parametersRef": {"name": "elsewhere"}}});
        stage.merge("GatewayClass", &class, elsewhere).await?;
        release.uninstall_within("300s").await?;
        // The stand-in holds its APIs in memory, so they went with its Pod; what counts is that the release is gone
        documents(&tyk, 0).await?;
        let route = stage.there("HTTPRoute", "site").await?;
        assert!(route["metadata"]["annotations"].get(MEMORY).is_none(), "{route}");
        assert!(release.helm(&["status", &release.name]).await.is_err());
        // And the Job has used exactly its rights
        let account = format!("{}-tyk-cleanup", release.full());
        let asked = cluster.audit()?.of_account(Mark::START, s.ns(), &account)?;
        let used: BTreeSet<String> = asked
            .iter()
            .filter(|r| !r.resource.starts_with('/') && r.code != 404)
            .map(|r| format!("{} {} {}", r.verb, r.resource, r.code))
            .collect();
        // A merge patch that names its field manager is told from an apply by nothing in the log.
        let expected = [
            "apply gatewayclasses 200",
            "apply gatewayclasses/status 200",
            "apply gateways/status 200",
            "apply httproutes 200",
            "apply httproutes/status 200",
            "get configmaps 200",
            "get deployments 200",
            "get namespaces 200",
            "get operatorcontexts 200",
            "get secrets 200",
            "list gatewayclasses 200",
            "list gateways 200",
            "list httproutes 200",
            "list pods 200",
            "list tykoasapidefinitions 200",
            "patch deployments/scale 200",
        ];
        assert_eq!(used, expected.map(str::to_owned).into());
        // And everything can be deleted
        for (kind, name) in [("HTTPRoute", "site"), ("Gateway", "front"), ("GatewayClass", class.as_str())] {
            stage.delete(kind, name).await?;
            stage.gone(kind, name).await?;
        }
        Ok(())
    })
    .await;
}
