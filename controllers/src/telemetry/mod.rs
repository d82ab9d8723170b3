//! What the operator tells about itself besides its log: metrics of the product, and traces. No decision of any
//! controller lives here.

pub mod exposures;
pub mod traces;
pub mod tyk;

use reconcile_kit::runtime::Metrics;

/// The names of all metrics of the operator, for documentation and dashboards to be compared with.
pub fn metric_names() -> Vec<String> {
    let metrics = Metrics::new(crate::app::METRICS_PREFIX);
    exposures::Exposures::new(&metrics);
    tyk::TykMeter::new(&metrics);
    metrics.names()
}
