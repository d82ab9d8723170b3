//! Contour with Envoy: a real ingress controller and Gateway API implementation, for traffic that really flows.
//! Installs it once per cluster; routes are the scenarios' business.

use std::fs;
use std::net::IpAddr;

use crate::cluster::Cluster;
use crate::error::{IoContext, Result};
use crate::image;
use crate::tools::Part;

/// Namespace of Contour, Envoy and the Gateway.
pub const NAMESPACE: &str = "projectcontour";
/// Name of the IngressClass.
pub const INGRESS_CLASS: &str = "contour";
/// Name of the GatewayClass.
pub const GATEWAY_CLASS: &str = "contour";
/// Name of the Gateway; it has one listener `http` on port 80 for routes of all namespaces.
pub const GATEWAY: &str = "contour";

const MANIFEST: &str = include_str!("contour.yaml");

/// Installs Contour and the Gateway API CRDs (standard channel) and returns the address that Envoy serves on port 80.
///
/// # Errors
/// When an image cannot be made or something does not get ready.
pub async fn install(cluster: &'static Cluster) -> Result<IpAddr> {
    cluster.gateway_crds("standard").await?;
    cluster
        .once("Contour", async {
            cluster.load_part(Part::Contour).await?;
            cluster.load_part(Part::Envoy).await?;
            let module = cluster
                .tools()
                .go_module("contour", "github.com/projectcontour/contour")?;
            for file in ["00-common", "01-crds", "02-role-contour", "02-rbac"] {
                let path = module.join("examples/contour").join(format!("{file}.yaml"));
                let text = fs::read_to_string(&path).at("read", &path)?;
                // The only Job and its rights make certificates, which a test does without.
                let wanted = text.split("\n---").filter(|t| !t.contains("certgen"));
                cluster.apply(&wanted.collect::<Vec<_>>().join("\n---"))?;
            }
            cluster.established()?;
            let manifest = MANIFEST
                .replace("CONTOUR_IMAGE", image::CONTOUR)
                .replace("ENVOY_IMAGE", image::ENVOY);
            cluster.apply(&manifest)?;
            cluster.rollout(NAMESPACE, "deploy/contour").await?;
            cluster.rollout(NAMESPACE, "deploy/envoy").await?;
            let gateway = format!("gateway/{GATEWAY}");
            let wait = ["wait", "--for=condition=Programmed", &gateway, "--timeout=180s"];
            cluster.kubectl(["-n", NAMESPACE].into_iter().chain(wait))?;
            Ok(())
        })
        .await?;
    cluster.address(NAMESPACE, "envoy").await
}
