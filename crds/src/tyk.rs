//! Kinds of `tyk.tyk.io`: `OperatorContext`, where a Tyk is and which gateways serve, and `TykOasApiDefinition`, a Tyk OAS
//! document that may be attached to routes.
//!
//! Field-compatible with the CRDs that Tyk Operator publishes, and a superset of them: objects written for it are stored as
//! they are. Routewright reads `OperatorContext` whole and, of a definition, `tykOAS`, `targetRefs` and what the two
//! exclude.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Open, conditions};

/// API group of the kinds that Tyk Operator knows too.
pub const TYK_GROUP: &str = "tyk.tyk.io";

/// Desired state of an OperatorContext.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "tyk.tyk.io",
    version = "v1alpha1",
    kind = "OperatorContext",
    plural = "operatorcontexts",
    category = "tyk",
    namespaced,
    status = "OperatorContextStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "How a Tyk is reached (named by a GatewayClass), and which gateways serve (named by a GatewayClass or Gateway).",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.env.mode"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.env.url"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".spec.secretRef.name"),
    printcolumn(
        name = "Service",
        type_ = "string",
        json_path = ".spec.dataPlane.serviceRef.name"
    ),
    printcolumn(name = "Tags", type_ = "string", json_path = ".spec.dataPlane.tags"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct OperatorContextSpec {
    /// Connection to Tyk, written out. Counts only in the context of a GatewayClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Environment>,
    /// Secret with the connection: keys `TYK_MODE`, `TYK_URL`, `TYK_AUTH`, `TYK_ORG`, `TYK_TLS_INSECURE_SKIP_VERIFY`,
    /// `TYK_USER_OWNERS` and `TYK_USER_GROUP_OWNERS` (the last two separated by commas). Its values beat those of env.
    /// Counts only in the context of a GatewayClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<TykReference>,
    /// The gateways that serve, and where they are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_plane: Option<DataPlane>,
}

/// Connection to Tyk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Environment {
    /// `ce`: the API of an open-source gateway. `pro`: Tyk Dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["ce", "pro"]))]
    pub mode: Option<String>,
    /// Base URL: of the gateway for `ce`, of the Dashboard for `pro`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub url: Option<String>,
    /// Credential: the gateway's secret for `ce`, a user's API key for `pro`. Better kept in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Credential>,
    /// Organisation ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub org: Option<String>,
    /// Accept any certificate of Tyk's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    /// Ports for Ingress objects. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Open>,
    /// Dashboard users that own what is created.
    #[serde(default, rename = "user_owners", skip_serializing_if = "Option::is_none")]
    pub user_owners: Option<Vec<String>>,
    /// Dashboard groups that own what is created.
    #[serde(
        default,
        rename = "user_group_owners",
        skip_serializing_if = "Option::is_none"
    )]
    pub user_group_owners: Option<Vec<String>>,
}

/// A credential. Not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Credential(pub String);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// Names an object, in another namespace if one is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TykReference {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace; the one of the referring object when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// The gateways that serve, and where they are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct DataPlane {
    /// Service of the gateways: its address becomes the Gateway's, its ports those that listeners may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<TykReference>,
    /// Segment tags: only gateways with one of them load the APIs. Left out in the context of a Gateway: those of its
    /// class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tags: Option<Vec<String>>,
}

/// Observed state of an OperatorContext. Routewright writes none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct OperatorContextStatus {
    /// Latest observations, one per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
}

/// Desired state of a TykOasApiDefinition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "tyk.tyk.io",
    version = "v1alpha1",
    kind = "TykOasApiDefinition",
    plural = "tykoasapidefinitions",
    shortname = "tykoas",
    category = "tyk",
    namespaced,
    status = "TykOasApiDefinitionStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A Tyk OAS API definition out of a ConfigMap. With targetRefs it makes no API of its own but adds to those of \
           HTTPRoutes; without, it is left to Tyk Operator.",
    printcolumn(name = "Domain", type_ = "string", json_path = ".status.domain.name"),
    printcolumn(name = "ListenPath", type_ = "string", json_path = ".status.listenPath"),
    printcolumn(name = "Proxy.TargetURL", type_ = "string", json_path = ".status.targetURL"),
    printcolumn(name = "Enabled", type_ = "boolean", json_path = ".status.enabled"),
    printcolumn(
        name = "SyncStatus",
        type_ = "string",
        json_path = ".status.latestTransaction.status"
    ),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].reason"#
    ),
    printcolumn(
        name = "IngressTemplate",
        type_ = "boolean",
        json_path = ".status.ingressTemplate",
        priority = 1
    ),
    printcolumn(
        name = "Categories",
        type_ = "string",
        json_path = ".spec.categories",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].message"#,
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct TykOasApiDefinitionSpec {
    /// Where the document is.
    #[serde(rename = "tykOAS")]
    pub tyk_oas: TykOas,
    /// What the definition is attached to, in its own namespace: HTTPRoutes, or Gateways, whose routes without a
    /// definition of their own then have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub target_refs: Option<Vec<TargetReference>>,
    /// OperatorContext of a definition without targetRefs. With them the connection is that of the GatewayClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_ref: Option<TykReference>,
    /// Categories in the Dashboard. Carried only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
    /// Public keys of upstreams. Not together with targetRefs: put it into the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pinning: Option<Open>,
    /// Certificates of clients. Not together with targetRefs: put it into the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<Open>,
    /// Domain of the API. Not together with targetRefs: the route gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_domain: Option<Open>,
    /// Policies of JWT authentication. Not together with targetRefs: put it into the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_auth: Option<Open>,
    /// Certificates for upstreams. Not together with targetRefs: put it into the document.
    #[serde(default, rename = "mutualTLS", skip_serializing_if = "Option::is_none")]
    pub mutual_tls: Option<Open>,
    /// Signatures of upstream requests. Not together with targetRefs: put it into the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_request_signing: Option<Open>,
    /// Versions of the API. Not together with targetRefs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioning: Option<Open>,
}

/// Where a document is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct TykOas {
    /// The ConfigMap. Reported as DocumentInvalid when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configmap_ref: Option<ConfigMapKeyReference>,
}

/// One key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyReference {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the ConfigMap; the definition's own when left out. With targetRefs no other is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Key with the document, as JSON or YAML. Reported as DocumentInvalid when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub key_name: Option<String>,
}

/// What a definition is attached to, in its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetReference {
    /// API group: `gateway.networking.k8s.io`.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Kind: `HTTPRoute` or `Gateway`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Observed state of a TykOasApiDefinition. Routewright writes `conditions` of definitions with targetRefs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct TykOasApiDefinitionStatus {
    /// ID of the API. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the API. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the API is active. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Listen path of the API. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_path: Option<String>,
    /// Upstream of the API. Written by Tyk Operator.
    #[serde(default, rename = "targetURL", skip_serializing_if = "Option::is_none")]
    pub target_url: Option<String>,
    /// Domain of the API. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Open>,
    /// Whether it is a template for Ingress objects. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_template: Option<bool>,
    /// Outcome of the last write. Written by Tyk Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_transaction: Option<Open>,
    /// Latest observations, one per type. `Accepted` tells whether an attached definition applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_context_as_tyk_operator_knows_it_decodes_and_its_credential_is_not_shown() {
        let context: OperatorContext = serde_json::from_value(json!({
            "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext", "metadata": {"name": "prod"},
            "spec": {"env": {"mode": "pro", "url": "http://d:3000", "auth": "hunter2", "org": "o",
                "insecureSkipVerify": true, "ingress": {"httpPort": 8080}, "user_owners": ["a"], "user_group_owners": []}},
        }))
        .unwrap();
        let env = context.spec.env.clone().unwrap();
        assert_eq!(env.user_owners, Some(vec!["a".to_owned()]));
        assert!(!format!("{context:?}").contains("hunter2"));
        let again = serde_json::to_value(&context).unwrap();
        assert_eq!(again["spec"]["env"]["auth"], "hunter2");
        assert_eq!(again["spec"]["env"]["user_group_owners"], json!([]));
    }

    #[test]
    fn a_definition_as_tyk_operator_knows_it_decodes() {
        let definition: TykOasApiDefinition = serde_json::from_value(json!({
            "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition", "metadata": {"name": "a"},
            "spec": {"tykOAS": {"configmapRef": {"name": "c", "namespace": "n", "keyName": "k"}},
                     "mutualTLS": {"enabled": true, "domainToCertificateMapping": []}},
            "status": {"id": "x", "targetURL": "http://u", "latestTransaction": {"status": "Successful"}},
        }))
        .unwrap();
        let reference = definition.spec.tyk_oas.configmap_ref.unwrap();
        assert_eq!(
            (reference.name.as_str(), reference.key_name.as_deref()),
            ("c", Some("k"))
        );
        assert_eq!(definition.status.unwrap().target_url.as_deref(), Some("http://u"));
    }
}
