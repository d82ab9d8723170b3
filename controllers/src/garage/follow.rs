//! From a connect-only GarageCluster to the one whose spec says where the Admin API is.
//!
//! Pure. A handle may name another GarageCluster of its namespace instead of an address; address and token are then that
//! one's.

use std::sync::Arc;

use kube::ResourceExt as _;
use routewright_crds::{ClusterReference, GarageCluster};

use super::handle::{HandleReason, HandleSpec, HandleVerdict};
use crate::exposure::plan::{FoundCluster, NotReady};

/// Most references that are followed, one after the other.
const MAX_HOPS: usize = 8;

/// The end of the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    /// The cluster whose spec holds address and token.
    pub cluster: Arc<GarageCluster>,
    /// What messages about that cluster begin with; empty when no reference was followed.
    pub prefix: String,
}

/// Follows `spec.connectTo.clusterRef` from `cluster` on, as long as there is no address of its own. `find` looks for a
/// cluster by namespace and name.
///
/// # Errors
/// Outside: a cache is not complete. Inside: the reference leads nowhere; the verdict says why.
pub fn follow(
    cluster: &Arc<GarageCluster>,
    find: &dyn Fn(&str, &str) -> Result<FoundCluster, NotReady>,
) -> Result<Result<Followed, HandleVerdict>, NotReady> {
    let mut at = Arc::clone(cluster);
    let mut prefix = String::new();
    let mut passed: Vec<String> = Vec::new();
    while let Some(reference) = reference_of(&at) {
        let refuse = |reason, message: String| {
            let text = format!("{prefix}spec.connectTo.clusterRef{message}");
            Ok(Err(HandleVerdict::pending(reason, text)))
        };
        let namespace = at.namespace().unwrap_or_default();
        let elsewhere = reference.namespace.as_deref().filter(|n| !n.is_empty());
        if elsewhere.is_some_and(|n| n != namespace) {
            let text = format!(
                ".namespace: must be left out: a handle uses a GarageCluster of its own namespace, {namespace}"
            );
            return refuse(HandleReason::InvalidSpec, text);
        }
        if reference.kube_config_secret_ref.is_some() {
            return refuse(
                HandleReason::InvalidSpec,
                ".kubeConfigSecretRef: is not supported; set adminApiEndpoint and adminTokenSecretRef instead".into(),
            );
        }
        passed.push(at.name_any());
        if passed.contains(&reference.name) || passed.len() > MAX_HOPS {
            let text = format!(
                ": leads in a circle or too far ({} -> {}); name the cluster that runs Garage, or set adminApiEndpoint \
                 and adminTokenSecretRef",
                passed.join(" -> "),
                reference.name
            );
            return refuse(HandleReason::InvalidSpec, text);
        }
        match find(&namespace, &reference.name)? {
            FoundCluster::Found(found) => {
                prefix.push_str(&format!(
                    "spec.connectTo.clusterRef: GarageCluster {}: ",
                    reference.name
                ));
                at = found;
            }
            FoundCluster::Unseen(unseen) => {
                let text = format!(": GarageCluster {}: {unseen}", reference.name);
                return refuse(HandleReason::InvalidSpec, text);
            }
            FoundCluster::Missing | FoundCluster::NotServed => {
                let text = format!(
                    ": GarageCluster {} does not exist in this namespace; create it, or set adminApiEndpoint and \
                     adminTokenSecretRef",
                    reference.name
                );
                return refuse(HandleReason::ClusterNotFound, text);
            }
        }
    }
    Ok(Ok(Followed { cluster: at, prefix }))
}

/// The reference that has to be followed: that of a handle without an address.
pub fn reference_of(cluster: &GarageCluster) -> Option<&ClusterReference> {
    let without = HandleSpec::of(cluster)?
        .endpoint
        .is_none_or(|e| e.trim().is_empty());
    let reference = cluster.spec.connect_to.as_ref()?.cluster_ref.as_ref()?;
    (without && !reference.name.is_empty()).then_some(reference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cluster(name: &str, spec: Value) -> Arc<GarageCluster> {
        let object = json!({
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
            "metadata": { "name": name, "namespace": "team" }, "spec": spec,
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn to(name: &str) -> Value {
        json!({ "connectTo": { "clusterRef": { "name": name } } })
    }

    /// From the first of these clusters on, among all of them.
    fn walk(clusters: &[Arc<GarageCluster>]) -> Result<(String, String), (HandleReason, String)> {
        let find = |namespace: &str, name: &str| {
            assert_eq!(namespace, "team");
            let found = clusters.iter().find(|c| c.name_any() == name);
            Ok(found.map_or(FoundCluster::Missing, |c| FoundCluster::Found(Arc::clone(c))))
        };
        match follow(&clusters[0], &find).unwrap() {
            Ok(end) => Ok((end.cluster.name_any(), end.prefix)),
            Err(verdict) => Err((verdict.reason, verdict.message)),
        }
    }

    #[test]
    fn an_address_of_its_own_and_a_tier_end_the_way() {
        let own =
            json!({ "connectTo": { "adminApiEndpoint": "http://g", "clusterRef": { "name": "other" } } });
        for spec in [
            own,
            json!({ "storage": {} }),
            json!({ "gateway": {}, "connectTo": { "clusterRef": { "name": "b" } } }),
        ] {
            assert_eq!(walk(&[cluster("a", spec)]), Ok(("a".into(), String::new())));
        }
    }

    #[test]
    fn references_are_followed_to_whoever_knows_the_address() {
        let prefix = "spec.connectTo.clusterRef: GarageCluster b: ";
        let tiers = [cluster("a", to("b")), cluster("b", json!({ "storage": {} }))];
        assert_eq!(walk(&tiers), Ok(("b".into(), prefix.into())));
        let chain = [
            cluster("a", to("b")),
            cluster("b", to("c")),
            cluster("c", json!({ "storage": {} })),
        ];
        let (end, said) = walk(&chain).unwrap();
        assert_eq!(end, "c");
        assert_eq!(
            said,
            format!("{prefix}spec.connectTo.clusterRef: GarageCluster c: ")
        );
    }

    #[test]
    fn what_leads_nowhere_says_where_it_broke_off() {
        let with = |reference: Value| cluster("a", json!({ "connectTo": { "clusterRef": reference } }));
        let far: Vec<_> = (0..20)
            .map(|n| cluster(&format!("c{n}"), to(&format!("c{}", n + 1))))
            .collect();
        for (clusters, reason, says) in [
            (
                vec![cluster("a", to("b"))],
                HandleReason::ClusterNotFound,
                "GarageCluster b does not exist in this namespace",
            ),
            (
                vec![cluster("a", to("a"))],
                HandleReason::InvalidSpec,
                "leads in a circle or too far (a -> a)",
            ),
            (
                vec![cluster("a", to("b")), cluster("b", to("a"))],
                HandleReason::InvalidSpec,
                "(a -> b -> a)",
            ),
            (far, HandleReason::InvalidSpec, "too far"),
            (
                vec![with(json!({ "name": "b", "namespace": "prod" }))],
                HandleReason::InvalidSpec,
                "clusterRef.namespace: ",
            ),
            (
                vec![with(
                    json!({ "name": "b", "kubeConfigSecretRef": { "name": "far", "key": "k" } }),
                )],
                HandleReason::InvalidSpec,
                "clusterRef.kubeConfigSecretRef: is not supported",
            ),
        ] {
            let (why, message) = walk(&clusters).unwrap_err();
            assert_eq!(why, reason, "{message}");
            assert!(
                message.contains(says) && message.contains("spec.connectTo.clusterRef"),
                "{message}"
            );
        }
        let same = with(json!({ "name": "b", "namespace": "team" }));
        assert!(
            walk(&[same, cluster("b", json!({ "storage": {} }))]).is_ok(),
            "its own namespace may be named"
        );
    }

    #[test]
    fn a_cache_that_is_not_complete_is_waited_for() {
        let find = |_: &str, _: &str| Err(NotReady("GarageCluster"));
        assert_eq!(
            follow(&cluster("a", to("b")), &find),
            Err(NotReady("GarageCluster"))
        );
    }
}
