//! Who else is about the bucket of an object, among the objects of the same Garage: what the index says, and what this
//! process is about to do and the cache does not show yet.

use std::sync::Arc;

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use reconcile_kit::runtime::{Change, Handle, Listener, Triggers};
use routewright_crds::{GarageBucket, GarageCluster};

use super::{
    access::admin_spec,
    admin::{BucketId, Endpoint, Place},
    claims::{Claims, Key, holder},
    follow::follow,
    handle::HandleSpec,
};
use crate::exposure::{
    cluster::availability,
    plan::{Facts, FoundCluster},
    resolve::cluster_of,
};

/// Answers from caches and memory. Clones share both.
#[derive(Clone)]
pub struct Rivals {
    facts: Arc<dyn Facts>,
    buckets: Handle<GarageBucket>,
    claims: Claims,
    cluster_domain: Arc<str>,
}

impl Rivals {
    /// Of these buckets, by this index of them.
    pub fn new(
        facts: Arc<dyn Facts>,
        buckets: Handle<GarageBucket>,
        claims: Claims,
        cluster_domain: &str,
    ) -> Self {
        Self {
            facts,
            buckets,
            claims,
            cluster_domain: cluster_domain.into(),
        }
    }

    /// The object of the same Garage (`namespace/name`) that has the bucket which this one is about. If this one is being
    /// deleted it has left the bucket to that one for good: that one, deleted a moment later, must not leave it to this one.
    pub fn claimed_by(&self, bucket: &GarageBucket) -> Option<String> {
        if bucket.metadata.deletion_timestamp.is_none() {
            return self.holder(bucket, &|_| false);
        }
        self.claims
            .leaving(bucket, |has_left| self.holder(bucket, has_left))
    }

    fn holder(&self, bucket: &GarageBucket, has_left: &dyn Fn(&GarageBucket) -> bool) -> Option<String> {
        let store = self.buckets.store();
        let others: Vec<Arc<GarageBucket>> = self
            .claims
            .others(bucket)
            .into_iter()
            .filter_map(|(namespace, name)| store.get(&namespace, &name))
            .filter(|other| !has_left(other) && self.same_garage(bucket, other))
            .collect();
        holder(bucket, &others).map(|o| format!("{}/{}", o.namespace().unwrap_or_default(), o.name_any()))
    }

    /// Right before `bucket` records this id: the object that has it, or records it at this moment. `None`: nobody, and
    /// nobody else will until the cache shows the record.
    pub fn take(&self, bucket: &GarageBucket, id: &BucketId) -> Option<String> {
        let store = self.buckets.store();
        let counts = |(namespace, name): &Key| {
            // An object that the cache does not show is gone, or too new to be judged.
            let other = store.get(namespace, name);
            other.is_none_or(|other| self.same_garage(bucket, &other))
        };
        if let Some((namespace, name)) = self.claims.take(bucket, id.as_str(), counts) {
            return Some(format!("{namespace}/{name}"));
        }
        // The index is older than the note above, so a record that came in between is in one of them.
        let holder = self.holder(bucket, &|_| false);
        if holder.is_some() {
            self.claims.untake(bucket);
        }
        holder
    }

    /// The record of an id was refused: nobody has taken anything.
    pub fn untake(&self, bucket: &GarageBucket) {
        self.claims.untake(bucket);
    }

    /// Wakes the others that are about the bucket of an object when that one's cluster moves, or is verified or no longer:
    /// its claim counts from then on, or counts no longer.
    pub fn on_cluster(&self, triggers: &Triggers<GarageBucket>) -> Listener<GarageCluster> {
        let (rivals, triggers) = (self.clone(), triggers.clone());
        Box::new(move |change| {
            let cluster = match change {
                Change::Applied { old: Some(old), new }
                    if old.spec == new.spec && is_verified(old) == is_verified(new) =>
                {
                    return;
                }
                Change::Applied { new, .. } => new,
                Change::Deleted { old } => old,
                Change::Ready | Change::Stopped => return,
            };
            let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
            let of_it = |b: &GarageBucket| cluster_of(b) == (namespace.as_str(), name.as_str());
            for bucket in rivals.buckets.store().filter(of_it) {
                for (namespace, name) in rivals.claims.others(&bucket) {
                    triggers.push(ObjectRef::new(&name).within(&namespace));
                }
            }
        })
    }

    /// Whether a claim of `other` is about the Garage of `bucket`. Two clusters may be handles of one Garage; a copy of a
    /// Garage under another address has the same ids and is another one. A claim from another cluster counts only where
    /// that cluster is verified: its Admin API took its token at the address that its spec names now. A cluster that
    /// leads nowhere, or to an address that it may not use, takes no bucket from anybody.
    fn same_garage(&self, bucket: &GarageBucket, other: &GarageBucket) -> bool {
        if cluster_of(bucket) == cluster_of(other) {
            return true;
        }
        match (self.place(bucket, false), self.place(other, true)) {
            (Some(own), Some(other)) => own == other,
            _ => false,
        }
    }

    /// Where the Admin API of a bucket's cluster is.
    fn place(&self, bucket: &GarageBucket, verified: bool) -> Option<Place> {
        let (namespace, name) = cluster_of(bucket);
        let FoundCluster::Found(cluster) = self.facts.cluster(namespace, name).ok()? else {
            return None;
        };
        let followed = follow(&cluster, &|ns, name| self.facts.cluster(ns, name))
            .ok()?
            .ok()?;
        if verified && !(is_verified(&cluster) && is_verified(&followed.cluster)) {
            return None;
        }
        let endpoint = admin_spec(&followed.cluster, &self.cluster_domain).endpoint?;
        let endpoint = Endpoint::parse(&endpoint).ok()?;
        Some(endpoint.place(&self.cluster_domain))
    }
}

/// Whether the cluster is Running, and a handle by its spec of now.
fn is_verified(cluster: &GarageCluster) -> bool {
    if availability(cluster).is_err() {
        return false;
    }
    if HandleSpec::of(cluster).is_none() {
        return true;
    }
    let conditions = cluster.status.as_ref().and_then(|s| s.conditions.as_deref());
    let ready = conditions.unwrap_or_default().iter().find(|c| c.type_ == "Ready");
    ready
        .and_then(|c| c.observed_generation)
        .is_none_or(|of| Some(of) == cluster.metadata.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_handle_is_verified_for_the_spec_that_was_probed() {
        let cluster = |spec: Value, phase: &str, of: Option<i64>| -> GarageCluster {
            let mut conditions = Vec::new();
            if let Some(of) = of {
                conditions.push(json!({
                    "type": "Ready", "status": "True", "reason": "AdminAPIReachable", "message": "",
                    "observedGeneration": of, "lastTransitionTime": "2026-01-01T00:00:00Z",
                }));
            }
            serde_json::from_value(json!({
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
                "metadata": { "name": "nas", "namespace": "team", "generation": 2 },
                "spec": spec, "status": { "phase": phase, "conditions": conditions },
            }))
            .unwrap()
        };
        let handle = || json!({ "connectTo": { "adminApiEndpoint": "http://garage.example.com:3903" } });
        for (cluster, verified) in [
            (cluster(handle(), "Running", Some(2)), true),
            (cluster(handle(), "Running", None), true),
            (cluster(handle(), "Running", Some(1)), false),
            (cluster(handle(), "Pending", Some(2)), false),
            // The Service of a cluster with tiers is its own, whatever else changes.
            (cluster(json!({ "storage": {} }), "Running", Some(1)), true),
            (cluster(json!({ "storage": {} }), "Failed", None), false),
        ] {
            assert_eq!(is_verified(&cluster), verified, "{cluster:?}");
        }
    }
}
