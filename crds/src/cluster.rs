//! `GarageCluster`: where a Garage is and how its web and admin APIs are reached.
//!
//! Routewright reads clusters; it runs none. Of a cluster that another operator runs it reads which tiers exist and the
//! web API; of a connect-only handle also how to reach the Admin API. Everything else is open.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{ClusterReference, Open, SecretKeyReference, conditions, unless_false};

/// Desired state of a GarageCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "garage.rajsingh.info",
    version = "v1beta2",
    kind = "GarageCluster",
    plural = "garageclusters",
    shortname = "gc",
    category = "garage",
    namespaced,
    status = "GarageClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A Garage cluster: its tiers when an operator runs it, or only the address of one that runs elsewhere.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Web Root", type_ = "string", json_path = ".spec.webApi.rootDomain"),
    printcolumn(
        name = "Endpoint",
        type_ = "string",
        json_path = ".spec.connectTo.adminApiEndpoint",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[x_kube(validation = (
    "has(self.storage) || has(self.gateway) || has(self.connectTo)",
    "spec: set at least one of storage, gateway and connectTo",
))]
#[x_kube(validation = (
    "!has(self.gateway) || has(self.storage) || has(self.connectTo)",
    "spec.gateway needs spec.storage (same cluster) or spec.connectTo (another one)",
))]
#[x_kube(validation = (
    "!has(self.storage) || !has(self.connectTo)",
    "spec.storage and spec.connectTo exclude each other: a cluster stores data or connects to one that does",
))]
#[x_kube(validation = (
    "has(self.storage) || has(self.gateway) || !has(self.connectTo) || has(self.connectTo.clusterRef) || \
     (has(self.connectTo.adminApiEndpoint) && has(self.connectTo.adminTokenSecretRef))",
    "spec.connectTo: a cluster without tiers needs clusterRef, or adminApiEndpoint and adminTokenSecretRef",
))]
pub struct GarageClusterSpec {
    /// Storage tier. Its presence matters to Routewright, its content does not.
    #[serde(
        default,
        deserialize_with = "unless_false",
        skip_serializing_if = "Option::is_none"
    )]
    pub storage: Option<Open>,
    /// Gateway tier. Its presence matters to Routewright, its content does not.
    #[serde(
        default,
        deserialize_with = "unless_false",
        skip_serializing_if = "Option::is_none"
    )]
    pub gateway: Option<Open>,
    /// The Garage to connect to. Alone, without storage and gateway, the object is a handle for a Garage that runs
    /// elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_to: Option<ConnectTo>,
    /// Web API, which serves buckets as websites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_api: Option<WebApi>,
    /// S3 API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_api: Option<S3Api>,
    /// K2V API. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k2v_api: Option<Open>,
    /// Admin API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminApi>,
    /// Network settings. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Open>,
}

/// Where a Garage that this object does not run can be reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ConnectTo {
    /// Another GarageCluster of the same namespace. Its Admin API and its token are used when adminApiEndpoint is left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterReference>,
    /// Base URL of the Admin API, for example `http://garage.example.com:3903`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub admin_api_endpoint: Option<String>,
    /// Secret with the token of the Admin API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_token_secret_ref: Option<SecretKeyReference>,
    /// Secret with the RPC secret. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc_secret_ref: Option<Open>,
}

/// Web API of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct WebApi {
    /// Whether the cluster serves websites; true when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Domain under which a bucket is `<alias>.<rootDomain>`, a leading dot allowed. Lower case, or Garage never
    /// matches it. `.<cluster>.<namespace>.svc` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub root_domain: Option<String>,
    /// Port of the web API; 3902 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub bind_port: Option<i32>,
    /// Listen address `0.0.0.0:<port>` or `[::]:<port>`. Its port wins over bindPort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub bind_address: Option<String>,
    /// Whether Garage adds the host to its metrics. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_host_to_metrics: Option<bool>,
}

/// S3 API of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct S3Api {
    /// Port of the S3 API; 3900 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub bind_port: Option<i32>,
    /// Listen address. Its port wins over bindPort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub bind_address: Option<String>,
    /// S3 region; `garage` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub region: Option<String>,
    /// Domain of virtual-host style S3 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub root_domain: Option<String>,
}

/// Admin API of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct AdminApi {
    /// Port of the Admin API; 3903 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub bind_port: Option<i32>,
    /// Listen address. Its port wins over bindPort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub bind_address: Option<String>,
    /// Secret with the token of the Admin API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_token_secret_ref: Option<SecretKeyReference>,
}

/// Observed state of a GarageCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct GarageClusterStatus {
    /// `Running` when the cluster can be used; buckets and exposure wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub phase: Option<String>,
    /// metadata.generation that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Addresses of the APIs, as the operator of the cluster publishes them. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Open>,
    /// Latest observations, one per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
}

impl GarageClusterStatus {
    /// The phase in which a cluster can be used.
    pub const RUNNING: &'static str = "Running";
    /// The phase of a handle that cannot be used yet.
    pub const PENDING: &'static str = "Pending";
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tier_that_is_false_is_absent() {
        let spec = |value: serde_json::Value| serde_json::from_value::<GarageClusterSpec>(value).unwrap();
        let tiers = |value| {
            let spec = spec(value);
            (spec.storage.is_some(), spec.gateway.is_some())
        };
        assert_eq!(tiers(json!({ "storage": {}, "gateway": false })), (true, false));
        assert_eq!(
            tiers(json!({ "gateway": false, "connectTo": {} })),
            (false, false)
        );
        assert_eq!(tiers(json!({ "storage": null, "gateway": null })), (false, false));
        assert_eq!(tiers(json!({ "storage": false, "gateway": true })), (false, true));
        assert_eq!(
            tiers(json!({ "storage": { "replicas": 0 }, "gateway": {} })),
            (true, true)
        );
        // What is absent is not written out.
        assert_eq!(
            serde_json::to_value(spec(json!({ "gateway": false }))).unwrap(),
            json!({})
        );
    }
}
