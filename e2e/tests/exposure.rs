//! Website exposure with everything real: API server, operator from its chart, Garage, gateway, requests. The test
//! plays the operator that owns buckets and clusters (companion mode).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use routewright_e2e::garage::{Garage, GarageOptions, PAGE};
use routewright_e2e::operator::{Operator, RELEASE};
use routewright_e2e::{Error, Result, Scenario, contour, scenario, wait};
use serde_json::{Value, json};

/// A GarageCluster with both tiers that says it runs, as another operator would leave it.
fn cluster(s: &Scenario, name: &str) -> Result<()> {
    apply(
        s,
        json!({
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
            "metadata": {"name": name, "namespace": s.ns()},
            "spec": {"storage": {}, "gateway": {}, "webApi": {"rootDomain": ".example.test"}},
        }),
    )?;
    status(s, "garagecluster", name, json!({"phase": "Running"}))
}

/// A GarageBucket that exists in Garage under its own name.
async fn bucket(s: &Scenario, garage: &Garage, name: &str, exposure: Value) -> Result<()> {
    let id = garage.create_website(name).await?;
    garage.put_page(name, &format!("<h1>{name}</h1>")).await?;
    apply(
        s,
        json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": {"name": name, "namespace": s.ns()},
            "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true}, "websiteExposure": exposure},
        }),
    )?;
    status(
        s,
        "garagebucket",
        name,
        json!({"bucketId": id, "globalAlias": name, "phase": "Ready"}),
    )
}

fn apply(s: &Scenario, object: Value) -> Result<()> {
    s.cluster.apply(&object.to_string()).map(|_| ())
}

fn status(s: &Scenario, kind: &str, name: &str, status: Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    let words = [
        "-n",
        s.ns(),
        "patch",
        kind,
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    s.cluster.kubectl(words).map(|_| ())
}

/// Waits until the bucket is exposed.
fn exposed(s: &Scenario, name: &str) -> Result<()> {
    let bucket = format!("garagebucket/{name}");
    let wait = [
        "-n",
        s.ns(),
        "wait",
        "--for=condition=WebsiteExposed",
        &bucket,
        "--timeout=180s",
    ];
    s.cluster.kubectl(wait).map(|_| ()).map_err(|e| {
        let object = s.cluster.kubectl(["-n", s.ns(), "get", &bucket, "-o", "yaml"]);
        Error::other(format!("{e}\n{}", object.unwrap_or_default()))
    })
}

#[tokio::test]
async fn pages_come_through_ingress_and_route_and_a_restart_writes_nothing() {
    scenario("pages_come_through_ingress_and_route_and_a_restart_writes_nothing", async |s| {
        // Given a gateway, a Garage with two buckets, and the operator with both controllers on
        let address = contour::install(s.cluster).await?;
        let options = GarageOptions { root_domain: Some(".example.test".to_owned()), gateway: true };
        let garage = Garage::deploy(s.cluster, s.ns(), "garage", &options).await?;
        let values = json!({
            "ingress": {"enabled": true}, "gatewayAPI": {"enabled": true}, "watchNamespaces": [s.ns()],
        });
        let operator = Operator::pod(s.cluster, values).await?;
        // When one bucket asks for an Ingress under its default name and one for a route under names of its own
        cluster(&s, "garage")?;
        let by_ingress = json!({"ingress": {"ingressClassName": contour::INGRESS_CLASS}});
        bucket(&s, &garage, "site", by_ingress).await?;
        let parent = json!({"name": contour::GATEWAY, "namespace": contour::NAMESPACE});
        let by_route = json!({
            "hostnames": ["www.shop.example.org", "shop.example.test"], "gateway": {"parentRefs": [parent]},
        });
        bucket(&s, &garage, "shop", by_route).await?;
        // Then both are exposed and the pages come back under exactly these names
        exposed(&s, "site")?;
        exposed(&s, "shop")?;
        for (host, page) in [
            ("site.example.test", "<h1>site</h1>"),
            ("www.shop.example.org", "<h1>shop</h1>"),
            ("shop.example.test", "<h1>shop</h1>"),
        ] {
            wait::eventually(&format!("page under {host}"), PAGE, || async {
                let answer = s.cluster.fetch(host, address, 80, "/").await.map_err(|e| e.to_string())?;
                if answer.text() == page { Ok(()) } else { Err(format!("{} {}", answer.status, answer.text())) }
            })
            .await?;
        }
        assert_eq!(s.cluster.fetch("other.example.test", address, 80, "/").await?.status, 404);
        // When the operator is replaced while nothing has changed, then it writes nothing but its lease
        let log = s.cluster.audit()?;
        let mark = log.mark()?;
        s.cluster.kubectl(["-n", operator.ns(), "rollout", "restart", &format!("deploy/{RELEASE}")])?;
        operator.ready().await?;
        wait::eventually("both controllers running", PAGE, || async {
            let text = operator.probe("/readyz?verbose").await.map_err(|e| e.to_string())?;
            if text.matches("Running").count() >= 2 { Ok(()) } else { Err(text) }
        })
        .await?;
        let written: Vec<_> = log
            .of_account(mark, operator.ns(), RELEASE)?
            .into_iter()
            .filter(|r| r.is_write() && r.resource != "leases")
            .collect();
        assert!(written.is_empty(), "{written:#?}");
        Ok(())
    })
    .await;
}
