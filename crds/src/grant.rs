//! `GarageReferenceGrant`: consent, in the namespace of the target, to be referred to from another namespace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::Open;

/// Who may refer to what in the namespace of this grant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "garage.rajsingh.info",
    version = "v1beta1",
    kind = "GarageReferenceGrant",
    plural = "garagereferencegrants",
    shortname = "grg",
    category = "garage",
    namespaced,
    status = "Open",
    derive = "Default",
    derive = "PartialEq",
    doc = "Lets objects of other namespaces refer to objects in this one.",
    printcolumn(name = "From", type_ = "string", json_path = ".spec.from[*].namespace"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.to[*].kind"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct GarageReferenceGrantSpec {
    /// Kinds and namespaces that may refer to something here.
    #[schemars(length(min = 1, max = 128))]
    pub from: Vec<GrantFrom>,
    /// What they may refer to. Left out or empty: every GarageCluster and GarageBucket of this namespace. A GarageKey
    /// must always be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub to: Option<Vec<GrantTo>>,
}

/// Source of a permitted reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "has(self.__namespace__) != has(self.namespaceSelector)",
    "spec.from: set exactly one of namespace and namespaceSelector",
))]
pub struct GrantFrom {
    /// Kind of the referring object.
    #[schemars(extend("enum" = ["GarageKey", "GarageBucket", "GarageAdminToken"]))]
    pub kind: String,
    /// Namespace of the referring object, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Namespace of the referring object, by its labels. An empty selector selects every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// Target of a permitted reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantTo {
    /// Kind of the target.
    #[schemars(extend("enum" = ["GarageCluster", "GarageBucket", "GarageKey"]))]
    pub kind: String,
    /// Name of the target; every object of the kind when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
}
