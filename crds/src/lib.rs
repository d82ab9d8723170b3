//! API types of Routewright and the CRDs generated from them.
//!
//! Only the shape of objects lives here: fields, schema, admission rules, printer columns. What an object *means*
//! (defaults that need another object, host resolution, readiness) belongs to the controllers.
//!
//! Three rules hold for every type:
//!
//! * **Strict where we look, open where we do not.** A field that a controller reads is typed and validated; everything
//!   else is kept as the user wrote it (`x-kubernetes-preserve-unknown-fields`), so that objects written for another
//!   operator of the group survive.
//! * **No nulls.** Every optional field is left out when unset, so a type can be sent by server-side apply as it is.
//!   The schema knows no `nullable` either: see [`generate`].
//! * **Types read, patches write.** A decoded object does not hold the open parts, so it must never be sent back whole
//!   (PUT). Controllers apply the fields that they own.
//!
//! `cargo crds` writes `crds/yaml`; `cargo crds --check` and a unit test fail when it is out of date.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]
// `KubeSchema` writes a twin of each struct inside a function body and keeps its `pub`.
#![allow(unreachable_pub)]
// Columns of one table look like repeated attributes to clippy.
#![allow(clippy::duplicated_attributes)]

pub mod bucket;
pub mod cases;
pub mod cluster;
pub mod common;
pub mod generate;
pub mod grant;
pub mod reference;
pub mod tyk;

pub use bucket::{
    BackendReference, BucketQuotas, BucketWebsite, DeletionPolicy, ExposureParentStatus, GarageBucket,
    GarageBucketSpec, GarageBucketStatus, GatewayExposure, IngressExposure, ParentReference,
    WebsiteConfigStatus, WebsiteExposure, WebsiteExposureStatus,
};
pub use cluster::{
    AdminApi, ConnectTo, GarageCluster, GarageClusterSpec, GarageClusterStatus, S3Api, WebApi,
};
pub use common::{ClusterReference, Open, Quantity, SecretKeyReference};
pub use generate::{all, by_group, crd};
pub use grant::{GarageReferenceGrant, GarageReferenceGrantSpec, GrantFrom, GrantTo};
pub use tyk::{
    OperatorContext, OperatorContextSpec, TYK_GROUP, TykOasApiDefinition, TykOasApiDefinitionSpec,
};

/// API group of the kinds for Garage. Users of Garage on Kubernetes already have it.
pub const GROUP: &str = "garage.rajsingh.info";
