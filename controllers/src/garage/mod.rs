//! Buckets and handles in Garage: what the controllers `garage-bucket` and `garage-cluster` decide, and the
//! one client through which they act.
//!
//! * [`admin`] speaks Garage's Admin API v2 and nothing else.
//! * [`bucket`] decides, one step at a time, what has to happen to a bucket, and drives those steps.
//! * [`handle`] decides the phase of a connect-only GarageCluster.
//! * [`testing`] is a Garage in memory, with faults and kill points.
//!
//! * [`follow`] finds the cluster whose spec says where the Admin API is; [`access`] finds endpoint and token of a cluster's Admin API.
//! * [`claims`] says which object has a bucket that several record, and [`rivals`] asks it; [`creations`] remembers what was
//!   not answered.
//! * [`bucket_controller`], [`cluster_controller`] and [`controllers`] join them with the framework.
//!
//! What has to be written on the owner goes through
//! [`bucket::OwnerPatch`].

pub mod access;
pub mod admin;
pub mod bucket;
pub mod bucket_controller;
pub mod claims;
pub mod cluster_controller;
pub mod controllers;
pub mod creations;
pub mod follow;
pub mod handle;
pub mod rivals;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
