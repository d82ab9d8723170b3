//! `GarageBucket`: a bucket in a Garage, and how its website is made reachable.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{ClusterReference, Open, Quantity, conditions};

/// Desired state of a GarageBucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "garage.rajsingh.info",
    version = "v1beta1",
    kind = "GarageBucket",
    plural = "garagebuckets",
    shortname = "gb",
    category = "garage",
    namespaced,
    status = "GarageBucketStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A bucket in a Garage cluster and, optionally, the Ingress or HTTPRoute that exposes its website.",
    validation = (
        "!has(oldSelf.status) || !has(oldSelf.status.bucketId) || oldSelf.status.bucketId == '' || \
         (has(self.spec.bucketId) == has(oldSelf.spec.bucketId) && \
          (!has(self.spec.bucketId) || self.spec.bucketId == oldSelf.spec.bucketId)) || \
         (has(self.spec.bucketId) && self.spec.bucketId == oldSelf.status.bucketId)",
        "spec.bucketId cannot change once status.bucketId is set",
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Alias", type_ = "string", json_path = ".status.globalAlias"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Exposed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="WebsiteExposed")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="WebsiteExposed")].reason"#
    ),
    printcolumn(name = "Host", type_ = "string", json_path = ".status.websiteExposure.hostnames[0]"),
    printcolumn(
        name = "Via",
        type_ = "string",
        json_path = ".status.websiteExposure.type",
        priority = 1
    ),
    printcolumn(name = "Website", type_ = "boolean", json_path = ".status.websiteEnabled", priority = 1),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size", priority = 1),
    printcolumn(
        name = "Objects",
        type_ = "integer",
        json_path = ".status.quotaUsage.objectCount",
        priority = 1
    ),
    printcolumn(name = "Bucket ID", type_ = "string", json_path = ".status.bucketId", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="WebsiteExposed")].message"#,
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[x_kube(validation = (
    "!has(self.websiteExposure) || (has(self.website) && has(self.website.enabled) && self.website.enabled)",
    "spec.websiteExposure needs spec.website.enabled: true",
))]
pub struct GarageBucketSpec {
    /// The GarageCluster that holds the bucket. Cannot change.
    #[x_kube(validation = (
        "self.name == oldSelf.name && has(self.__namespace__) == has(oldSelf.__namespace__) && \
         (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)",
        "spec.clusterRef cannot change: create another bucket",
    ))]
    pub cluster_ref: ClusterReference,
    /// Global alias of the bucket; metadata.name when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub global_alias: Option<String>,
    /// Aliases that hold for one key only. Not managed: the bucket controller of Routewright refuses a bucket that asks for
    /// them; another operator may act upon them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_aliases: Option<Vec<Open>>,
    /// Limits of the bucket. Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<BucketQuotas>,
    /// Whether and how Garage serves the bucket as a website.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website: Option<BucketWebsite>,
    /// Makes the website reachable from outside by an Ingress or a Gateway API HTTPRoute named `<bucket>-website`.
    /// Needs website.enabled: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_exposure: Option<WebsiteExposure>,
    /// Rights of keys on the bucket. Not managed: the bucket controller of Routewright refuses a bucket that asks for them;
    /// another operator may act upon them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_permissions: Option<Vec<Open>>,
    /// ID of an existing bucket to adopt. Cannot change once status.bucketId is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub bucket_id: Option<String>,
    /// Lifecycle rules of objects. Carried only: they have no effect, and an event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Open>,
    /// What happens to the bucket in Garage when this object is deleted. Delete removes it if it is empty and waits
    /// otherwise; Retain leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Delete"))]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// What happens to the bucket in Garage when its GarageBucket is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Remove the bucket if it is empty; keep the object and say so while it is not.
    #[default]
    Delete,
    /// Leave the bucket alone.
    Retain,
    /// A policy that this version does not know. Never a reason to remove anything: treat it as `Retain`.
    #[serde(other, skip_serializing)]
    #[schemars(skip)]
    Unknown,
}

/// Limits of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketQuotas {
    /// Largest total size of the objects, in bytes, as a quantity (`10Gi`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Quantity>,
    /// Largest number of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_objects: Option<i64>,
}

/// Website mode of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct BucketWebsite {
    /// Whether Garage serves the bucket as a website.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Document served for a path that ends in `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("default" = "index.html"))]
    pub index_document: Option<String>,
    /// Document served for errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub error_document: Option<String>,
}

/// How the website is exposed: exactly one of ingress and gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "has(self.ingress) != has(self.gateway)",
    "spec.websiteExposure: set exactly one of ingress and gateway",
))]
#[x_kube(validation = (
    "!has(self.ingress) || !has(self.backendRef) || \
     ((!has(self.backendRef.group) || self.backendRef.group == '') && \
      (!has(self.backendRef.kind) || self.backendRef.kind == 'Service'))",
    "spec.websiteExposure.backendRef: an Ingress can only point to a core Service (group \"\", kind Service); \
     use gateway for other kinds",
))]
pub struct WebsiteExposure {
    /// Hostnames under which the website is reached. Left out: `<alias>.<webApi.rootDomain>`. An Ingress accepts only
    /// hostnames that Garage resolves to this bucket by itself; an HTTPRoute rewrites the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 253)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    #[x_kube(validation = (
        "self.all(h, self.exists_one(x, x.lowerAscii() == h.lowerAscii()))",
        "spec.websiteExposure.hostnames: each hostname may be listed once",
    ))]
    #[x_kube(validation = (
        "self.all(h, !h.contains('*'))",
        "spec.websiteExposure.hostnames: wildcards are not supported, list each hostname",
    ))]
    #[x_kube(validation = (
        "self.all(h, !isIP(h))",
        "spec.websiteExposure.hostnames: an IP address is not a hostname",
    ))]
    #[x_kube(validation = (
        "self.all(h, h.contains('*') || isIP(h) || \
         h.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$'))",
        "spec.websiteExposure.hostnames: must be lower-case DNS names without port and trailing dot, labels of at most 63 characters",
    ))]
    pub hostnames: Option<Vec<String>>,
    /// Backend instead of the cluster's own Service, for example a ServiceImport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<BackendReference>,
    /// Expose by an Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressExposure>,
    /// Expose by a Gateway API HTTPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayExposure>,
}

/// The backend that traffic goes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendReference {
    /// API group of the backend; the core group when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// Kind of the backend; Service when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// Namespace of the backend; the bucket's when left out. Another one needs a Gateway API ReferenceGrant there and
    /// is not possible for an Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the backend.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Port number of the backend. Left out: an HTTPRoute uses the cluster's web port, an Ingress the port named `web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Settings of the generated Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressExposure {
    /// Class of the Ingress; the cluster's default class when left out or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ingress_class_name: Option<String>,
    /// Secret of the bucket's namespace with the certificate for all hostnames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tls_secret_name: Option<String>,
    /// Labels for the Ingress. Those of the operator win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations for the Ingress. Those of the operator win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Settings of the generated HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayExposure {
    /// Gateways that the route attaches to.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub parent_refs: Vec<ParentReference>,
    /// Labels for the HTTPRoute. Those of the operator win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations for the HTTPRoute. Those of the operator win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// A Gateway, or one listener of it, as in Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// API group of the parent; `gateway.networking.k8s.io` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// Kind of the parent; Gateway when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// Namespace of the parent; the bucket's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the parent.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Listener of the Gateway; all that accept the route when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
    /// Port of the listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Observed state of a GarageBucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct GarageBucketStatus {
    /// ID of the bucket in Garage. Exposure starts when it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub bucket_id: Option<String>,
    /// Pending, Creating, Ready, Deleting, Failed or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub phase: Option<String>,
    /// Global alias that Garage has recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_alias: Option<String>,
    /// When Garage created the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// Total size of the objects, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Whether Garage serves the bucket as a website.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_enabled: Option<bool>,
    /// Address of the website inside Garage's own naming.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// Documents of the website that Garage has recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_config: Option<WebsiteConfigStatus>,
    /// Use of the quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_usage: Option<QuotaUsage>,
    /// What exposes the website.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_exposure: Option<WebsiteExposureStatus>,
    /// metadata.generation that the bucket controller has acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Latest observations, one per type. `WebsiteExposed` tells whether the website is reachable as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
}

/// Documents of a website, as Garage has recorded them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct WebsiteConfigStatus {
    /// Document served for a path that ends in `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_document: Option<String>,
    /// Document served for errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_document: Option<String>,
}

/// Use of a bucket and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct QuotaUsage {
    /// Total size of the objects in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Limit of the total size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<i64>,
    /// Share of the size limit in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_percent: Option<i32>,
    /// Number of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_count: Option<i64>,
    /// Limit of the number of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_limit: Option<i64>,
    /// Share of the object limit in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_percent: Option<i32>,
}

/// The object that exposes a website, as it was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteExposureStatus {
    /// Kind of the object: Ingress or HTTPRoute.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Ingress", "HTTPRoute"]))]
    pub type_: Option<String>,
    /// Name of the object, in the bucket's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Hostnames that the object serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hostnames: Option<Vec<String>>,
    /// Addresses of the load balancer, as an Ingress publishes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Option<Vec<String>>,
    /// State of each parent of an HTTPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub parents: Option<Vec<ExposureParentStatus>>,
}

/// State of one parent of the HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExposureParentStatus {
    /// Parent as `namespace/name`.
    #[schemars(length(min = 1))]
    pub parent: String,
    /// API group of the parent when it is not Gateway API's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind of the parent when it is not a Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Listener, when the reference names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// Port, when the reference names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Whether the parent has accepted the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
    /// Whether the parent could resolve the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_refs: Option<bool>,
    /// Whether the parent serves the route: the value that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What is missing, in the Gateway's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
