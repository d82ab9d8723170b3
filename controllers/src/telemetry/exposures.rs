//! A gauge of website exposures by kind and reason, counted from the buckets in the cache as they change. It shows what
//! conditions say, whoever wrote them.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};
use reconcile_kit::{
    condition::find,
    runtime::{Change, Listener, Metrics},
};
use routewright_crds::GarageBucket;

use crate::exposure::{
    ExposureKind,
    resolve::{Selection, selection},
    status::{CONDITION, Reason},
};

/// Labels of the gauge.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Label {
    /// `Ingress` or `HTTPRoute`.
    kind: &'static str,
    /// Reason of the condition; `Pending` where there is none yet, `Other` where it is not one of ours.
    reason: &'static str,
}

/// The gauge `exposures`.
#[derive(Clone, Debug)]
pub struct Exposures(Family<Label, Gauge>);

const PENDING: &str = "Pending";
const OTHER: &str = "Other";

impl Exposures {
    /// Registers the gauge with every series at 0, so that one that never was can be told from one that is not read.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self(Family::default());
        metrics.register(|r| {
            r.register(
                "exposures",
                "Website exposures by kind and reason of their condition",
                this.0.clone(),
            );
        });
        this.reset();
        this
    }

    fn reset(&self) {
        self.0.clear();
        for kind in [ExposureKind::Ingress, ExposureKind::HttpRoute] {
            let reasons = Reason::ALL.iter().map(|reason| reason.as_str());
            for reason in reasons.chain([PENDING]) {
                let kind = kind.as_str();
                self.0.get_or_create(&Label { kind, reason }).set(0);
            }
        }
    }

    /// Counts what a cache of buckets is told.
    pub fn follow(&self) -> Listener<GarageBucket> {
        let this = self.clone();
        Box::new(move |change| {
            let (old, new) = match change {
                Change::Applied { old, new } => (old.as_deref().and_then(label), label(new)),
                Change::Deleted { old } => (label(old), None),
                Change::Ready => return,
                Change::Stopped => return this.reset(),
            };
            if old == new {
                return;
            }
            if let Some(old) = old {
                this.0.get_or_create(&old).dec();
            }
            if let Some(new) = new {
                this.0.get_or_create(&new).inc();
            }
        })
    }
}

/// Where a bucket is counted, if at all: it must ask for exactly one kind.
fn label(bucket: &GarageBucket) -> Option<Label> {
    let Selection::Kind(kind) = selection(bucket) else {
        return None;
    };
    let conditions = bucket.status.as_ref().and_then(|s| s.conditions.as_deref());
    let reason = match find(conditions.unwrap_or_default(), CONDITION) {
        None => PENDING,
        Some(condition) => Reason::ALL
            .iter()
            .map(|reason| reason.as_str())
            .find(|reason| *reason == condition.reason)
            // Somebody else's word must not become a label.
            .unwrap_or(OTHER),
    };
    Some(Label {
        kind: kind.as_str(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};
    use std::sync::Arc;

    fn bucket(exposure: Value, reason: Option<&str>) -> Arc<GarageBucket> {
        let conditions: Vec<Value> = reason
            .iter()
            .map(|reason| {
                json!({"type": CONDITION, "status": "False", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        Arc::new(
            from_value(json!({
                "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
                "metadata": {"name": "blog", "namespace": "sites"},
                "spec": {"clusterRef": {"name": "garage"}, "websiteExposure": exposure},
                "status": {"conditions": conditions},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn a_bucket_is_counted_where_its_condition_is_and_nowhere_else() {
        let metrics = Metrics::new("op");
        let follow = Exposures::new(&metrics).follow();
        let counted = |kind: &str, reason: &str| {
            let series = format!("op_exposures{{kind=\"{kind}\",reason=\"{reason}\"}} ");
            let text = metrics.encode();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(&series).map(str::to_owned));
            line.map(|value| value.parse::<i64>().unwrap())
        };
        let (ingress, route) = (
            json!({"ingress": {}}),
            json!({"gateway": {"parentRefs": [{"name": "public"}]}}),
        );
        // Every series is there from the start.
        assert_eq!(counted("HTTPRoute", "GatewayAPIUnavailable"), Some(0));

        let steps = [
            bucket(json!(null), None),
            bucket(ingress.clone(), None),
            bucket(ingress.clone(), Some("Exposed")),
            bucket(route.clone(), Some("Exposed")),
            bucket(route, Some("NotReady")),
            bucket(ingress, Some("by-somebody-else-42")),
        ];
        let places = [
            None,
            Some(("Ingress", "Pending")),
            Some(("Ingress", "Exposed")),
            Some(("HTTPRoute", "Exposed")),
            Some(("HTTPRoute", "NotReady")),
            Some(("Ingress", "Other")),
        ];
        let mut old = None;
        for (new, place) in steps.iter().zip(places) {
            follow(&Change::Applied {
                old: old.replace(Arc::clone(new)),
                new: Arc::clone(new),
            });
            let all: i64 = metrics
                .encode()
                .lines()
                .filter(|line| line.starts_with("op_exposures{"))
                .map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap())
                .sum();
            assert_eq!(all, i64::from(place.is_some()));
            if let Some((kind, reason)) = place {
                assert_eq!(counted(kind, reason), Some(1), "{kind} {reason}");
            }
        }
        follow(&Change::Deleted { old: old.unwrap() });
        assert_eq!(counted("Ingress", "Other"), Some(0));
        follow(&Change::Stopped);
        assert_eq!(counted("Ingress", "Other"), None);
    }
}
