//! Website exposure: from a bucket and what is known around it to one Ingress or HTTPRoute, and back from that object
//! to what can be said about it.
//!
//! Everything here is pure: values in, values out, no client, no clock. Read in this order: [`resolve`] decides,
//! [`hostname`], [`cluster`], [`grant`] and [`tenancy`] are the questions it asks, [`ingress`] and [`httproute`] write the decision
//! down as an object, [`readiness`] and [`class`] read the live object.

pub mod caches;
pub mod class;
pub mod cluster;
pub mod controllers;
pub mod grant;
pub mod hostname;
pub mod httproute;
pub mod ingress;
pub mod lookup;
pub mod names;
pub mod pace;
pub mod plan;
pub mod readiness;
pub mod resolve;
pub mod sharing;
pub mod status;
pub mod tenancy;

use reconcile_kit::ApiKind;

/// The kind that exposes a website.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExposureKind {
    /// `networking.k8s.io/v1` Ingress.
    Ingress,
    /// `gateway.networking.k8s.io/v1` HTTPRoute.
    HttpRoute,
}

impl ExposureKind {
    /// Spelling of the API: `Ingress`, `HTTPRoute`.
    pub fn as_str(self) -> &'static str {
        self.api().kind
    }

    /// Group, version, kind and plural.
    pub const fn api(self) -> ApiKind {
        match self {
            Self::Ingress => ApiKind::new("networking.k8s.io", "v1", "Ingress", "ingresses"),
            Self::HttpRoute => ApiKind::new("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
        }
    }
}
