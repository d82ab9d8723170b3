//! Where requests go: upstream URL, targets with weights, and the path in front of what strip leaves.

use serde_json::{Map, Value, json};

use super::rewrite;
use crate::tyk::verdict::{ApiPlan, Target};

/// Upstream URL of what cannot be resolved (source: Backends). Its name does not exist, which Tyk answers with 500.
pub const UNRESOLVED: &str = "http://unresolved.backend.invalid";

/// The part of `upstream` that the route sets.
///
/// Several targets are sorted, the resolved ones first: their order means nothing, and equal meaning is equal bytes.
/// `url` is filled with the first one also when load balancing makes Tyk ignore it.
pub(super) fn upstream(plan: &ApiPlan) -> Map<String, Value> {
    let path = rewrite::upstream_path(plan);
    let mut targets: Vec<&Target> = plan.targets.iter().collect();
    targets.sort_by_key(|target| (target.authority.is_none(), *target));
    let mut upstream = Map::new();
    let first = targets
        .first()
        .map_or_else(|| UNRESOLVED.to_owned(), |t| url(t, path));
    if targets.len() > 1 && targets.iter().any(|t| t.authority.is_some()) {
        let list: Vec<Value> = targets
            .iter()
            .map(|target| json!({"url": url(target, path), "weight": target.weight}))
            .collect();
        upstream.insert(
            "loadBalancing".to_owned(),
            json!({"enabled": true, "targets": list}),
        );
    }
    upstream.insert("url".to_owned(), Value::String(first));
    upstream.insert("preserveHostHeader".to_owned(), json!({"enabled": true}));
    upstream
}

fn url(target: &Target, path: &str) -> String {
    match &target.authority {
        Some(authority) => format!("http://{authority}{path}"),
        None => UNRESOLVED.to_owned(),
    }
}
