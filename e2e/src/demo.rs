//! `cargo demo`: the product from nothing to a page under its hostname, each step said. Ends with a failure when the
//! page does not come back.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::garage::{Garage, GarageOptions, PAGE};
use crate::operator::Operator;
use crate::sh::say;
use crate::{contour, wait};

/// Hostname of the demo's website.
pub const HOST: &str = "hello.example.test";
const PAGE_TEXT: &str = "<h1>Hello from a bucket</h1>\n";
const NAMESPACE: &str = "demo";

/// Runs the demo on a cluster. Returns the address under which Envoy serves the page.
///
/// # Errors
/// The step that failed.
pub async fn run(cluster: &'static Cluster) -> Result<IpAddr> {
    say("1/5 Contour and Envoy: an ingress controller");
    let address = contour::install(cluster).await?;

    say("2/5 Garage: an object store");
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
    ))?;
    let options = GarageOptions {
        root_domain: Some(".example.test".to_owned()),
        gateway: false,
    };
    let garage = Garage::deploy(cluster, NAMESPACE, "garage", &options).await?;

    say("3/5 Routewright, by its chart: buckets and Ingress exposure on");
    let values = json!({"garageBuckets": {"enabled": true}, "ingress": {"enabled": true}});
    let operator = Operator::pod(cluster, values).await?;

    say("4/5 a handle for that Garage, and a bucket that wants a website");
    cluster.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
                "metadata": {"name": "garage", "namespace": NAMESPACE},
                "spec": {
                    "connectTo": {
                        "adminApiEndpoint": format!("http://garage.{NAMESPACE}.svc:3903"),
                        "adminTokenSecretRef": {"name": "garage-admin-token", "key": "token"},
                    },
                    "webApi": {"rootDomain": ".example.test"},
                },
            },
            {
                "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
                "metadata": {"name": "hello", "namespace": NAMESPACE},
                "spec": {
                    "clusterRef": {"name": "garage"},
                    "website": {"enabled": true},
                    "websiteExposure": {
                        "backendRef": {"name": "garage"},
                        "ingress": {"ingressClassName": contour::INGRESS_CLASS},
                    },
                },
            },
        ]})
        .to_string(),
    )?;
    let exposed = [
        "wait",
        "--for=condition=WebsiteExposed",
        "garagebucket/hello",
        "--timeout=60s",
    ];
    cluster
        .kubectl(["-n", NAMESPACE].into_iter().chain(exposed))
        .map_err(|e| {
            let bucket = cluster.kubectl(["-n", NAMESPACE, "get", "garagebucket", "hello", "-o", "yaml"]);
            Error::other(format!("{e}\n{}", bucket.unwrap_or_default()))
        })?;

    say(format!(
        "5/5 a page into the bucket, and out again: GET http://{HOST}/"
    ));
    garage.put_page("hello", PAGE_TEXT).await?;
    let begun = std::time::Instant::now();
    let answer = wait::eventually("the page", PAGE, || async {
        let answer = cluster
            .fetch(HOST, address, 80, "/")
            .await
            .map_err(|e| e.to_string())?;
        if answer.text() == PAGE_TEXT {
            Ok(answer)
        } else {
            Err(format!("{} {}", answer.status, answer.text()))
        }
    })
    .await?;
    let took: Duration = begun.elapsed();
    say(format!(
        "{} {} (after {} ms)",
        answer.status,
        answer.text().trim(),
        took.as_millis()
    ));
    // What is kept outlives this process: neither the operator nor its namespace may go with it.
    std::mem::forget(operator);
    Ok(address)
}
