//! Buckets and handles in Garage: what the controllers `garage-bucket` and `garage-cluster` decide, and the
//! one client through which they act.
//!
//! * [`admin`] speaks Garage's Admin API v2 and nothing else.
//! * [`bucket`] decides, one step at a time, what has to happen to a bucket, and drives those steps.
//! * [`handle`] decides the phase of a connect-only GarageCluster.
//! * [`testing`] is a Garage in memory, with faults and kill points.
//!
//! No Kubernetes client lives here: what has to be written on the owner goes through
//! [`bucket::OwnerPatch`].

pub mod admin;
pub mod bucket;
pub mod handle;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
