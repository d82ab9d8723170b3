//! Who else is about the bucket of an object, among the objects of the same Garage: what the index says, and what this
//! process is about to do and the cache does not show yet.

use std::sync::Arc;

use kube::ResourceExt;
use reconcile_kit::runtime::Handle;
use routewright_crds::GarageBucket;

use super::{
    access::admin_spec,
    admin::{BucketId, Endpoint},
    claims::{Claims, holder},
    follow::follow,
};
use crate::exposure::{
    plan::{Facts, FoundCluster},
    resolve::cluster_of,
};

/// Answers from caches and memory. Clones share both.
#[derive(Clone)]
pub struct Rivals {
    facts: Arc<dyn Facts>,
    buckets: Handle<GarageBucket>,
    claims: Claims,
}

impl Rivals {
    /// Of these buckets, by this index of them.
    pub fn new(facts: Arc<dyn Facts>, buckets: Handle<GarageBucket>, claims: Claims) -> Self {
        Self {
            facts,
            buckets,
            claims,
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
        if let Some((namespace, name)) = self.claims.take(bucket, id.as_str()) {
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

    /// Two clusters may be handles of one Garage; a copy of a Garage has the same ids and is another one.
    fn same_garage(&self, a: &GarageBucket, b: &GarageBucket) -> bool {
        let place = |bucket: &GarageBucket| {
            let (namespace, name) = cluster_of(bucket);
            let FoundCluster::Found(cluster) = self.facts.cluster(namespace, name).ok()? else {
                return None;
            };
            let followed = follow(&cluster, &|ns, name| self.facts.cluster(ns, name))
                .ok()?
                .ok()?;
            // The domain takes no part: two Services are the same or not.
            let endpoint = admin_spec(&followed.cluster, "").endpoint?;
            Endpoint::parse(&endpoint).ok().map(|endpoint| endpoint.place())
        };
        if cluster_of(a) == cluster_of(b) {
            return true;
        }
        // Ids are 256 random bits: who cannot be placed now records the same bucket, not another one of the same id.
        match (place(a), place(b)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }
}
