//! What the Tyk half counts: requests to Tyk, reloads, batches, documents that changed, drift, and how things stand. A
//! connection is no label: there are as many as GatewayClasses, and their URLs are none of a dashboard's business.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
};
use reconcile_kit::runtime::Metrics;

use crate::tyk::verdict::Mode;

/// The span of a job has failed, with this class; its fields `otel.status_code` and `error.class` have to be there.
pub fn failed(span: &tracing::Span, class: &'static str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.class", class);
}

/// Labels of a request to Tyk.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabel {
    /// `ce` or `pro`.
    mode: &'static str,
    /// What the client did: `get`, `create`, `update`, `delete`, `reload`, `get_certificate` and so on.
    verb: &'static str,
    /// HTTP status code; 0 when no answer came.
    code: u16,
}

/// Labels of what is counted by kind.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ChangeLabel {
    /// `ce` or `pro`.
    mode: &'static str,
    /// `created`, `updated`, `removed`, `uploaded`.
    change: &'static str,
}

/// Labels of a drift.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DriftLabel {
    /// `ce` or `pro`.
    mode: &'static str,
    /// `lost`, `changed`, `renamed`, `foreign`.
    drift: &'static str,
}

/// Labels of an orphan.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OrphanLabel {
    /// `ce` or `pro`.
    mode: &'static str,
    /// `forgotten`: its route went without it. `swept`: a list showed it.
    found: &'static str,
}

/// Labels of a state.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    /// `ce` or `pro`.
    mode: &'static str,
    /// APIs: `standing`, `unverified`, `troubled`. Connections: `up`, `down`.
    state: &'static str,
}

fn label(mode: Mode) -> &'static str {
    match mode {
        Mode::OpenSource => "ce",
        Mode::Dashboard => "pro",
    }
}

/// The counters. Cheap to clone; all clones count into the same.
#[derive(Clone, Debug)]
pub struct TykMeter {
    requests: Family<RequestLabel, Counter>,
    changes: Family<ChangeLabel, Counter>,
    drifts: Family<DriftLabel, Counter>,
    orphans: Family<OrphanLabel, Counter>,
    apis: Family<StateLabel, Gauge>,
    connections: Family<StateLabel, Gauge>,
    reloads: Histogram,
    batches: Histogram,
}

impl Default for TykMeter {
    /// Counts for nobody.
    fn default() -> Self {
        Self {
            requests: Family::default(),
            changes: Family::default(),
            drifts: Family::default(),
            orphans: Family::default(),
            apis: Family::default(),
            connections: Family::default(),
            // 10 ms to 41 s
            reloads: Histogram::new(exponential_buckets(0.01, 2.0, 13)),
            // 1 to 4096
            batches: Histogram::new(exponential_buckets(1.0, 2.0, 13)),
        }
    }
}

impl TykMeter {
    /// Registers the counters.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self::default();
        metrics.register(|r| {
            r.register(
                "tyk_requests",
                "Requests to Tyk by what they were for and status code",
                this.requests.clone(),
            );
            r.register(
                "tyk_changes",
                "Documents and certificates that were written to Tyk or removed",
                this.changes.clone(),
            );
            r.register(
                "tyk_drifts",
                "Documents in Tyk that were found otherwise than written",
                this.drifts.clone(),
            );
            r.register(
                "tyk_orphans",
                "APIs that were removed from Tyk because their HTTPRoute is gone",
                this.orphans.clone(),
            );
            r.register("tyk_apis", "APIs in Tyk by how they stand", this.apis.clone());
            r.register(
                "tyk_connections",
                "Connections to Tyk by whether they work",
                this.connections.clone(),
            );
            r.register(
                "tyk_reload_seconds",
                "Duration of blocking reloads",
                this.reloads.clone(),
            );
            r.register("tyk_batch_size", "Writes per batch", this.batches.clone());
        });
        this
    }

    /// One request, answered with `code` (0: not answered).
    pub(crate) fn request(&self, mode: Mode, verb: &'static str, code: u16) {
        let mode = label(mode);
        self.requests
            .get_or_create(&RequestLabel { mode, verb, code })
            .inc();
    }

    /// One document or certificate was written or removed.
    pub(crate) fn changed(&self, mode: Mode, change: &'static str) {
        let mode = label(mode);
        self.changes.get_or_create(&ChangeLabel { mode, change }).inc();
    }

    /// One document is not as it was written.
    pub(crate) fn drifted(&self, mode: Mode, drift: &'static str) {
        let mode = label(mode);
        self.drifts.get_or_create(&DriftLabel { mode, drift }).inc();
    }

    /// One API without a route was removed.
    pub(crate) fn orphan(&self, mode: Mode, found: &'static str) {
        let mode = label(mode);
        self.orphans.get_or_create(&OrphanLabel { mode, found }).inc();
    }

    /// A reload took so long.
    pub(crate) fn reloaded(&self, seconds: f64) {
        self.reloads.observe(seconds);
    }

    /// A batch wrote so much.
    pub(crate) fn batch(&self, writes: usize) {
        self.batches
            .observe(u32::try_from(writes).map_or(f64::MAX, f64::from));
    }

    /// A part of the gauges that goes with its owner.
    pub(crate) fn share(&self, mode: Mode) -> Share {
        Share {
            meter: self.clone(),
            mode: label(mode),
            last: Standing::default(),
        }
    }
}

/// How the APIs and the link of one connection stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// As written, looked at.
    pub(crate) standing: i64,
    /// Taken for written.
    pub(crate) unverified: i64,
    /// Not as wanted, or not known.
    pub(crate) troubled: i64,
    /// Links that work.
    pub(crate) up: i64,
    /// Links that do not.
    pub(crate) down: i64,
}

/// One connection's part of the gauges; taken off when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    meter: TykMeter,
    mode: &'static str,
    last: Standing,
}

impl Share {
    /// It stands like this now.
    pub(crate) fn set(&mut self, now: Standing) {
        let mode = self.mode;
        let add = |family: &Family<StateLabel, Gauge>, state, by: i64| {
            if by != 0 {
                family.get_or_create(&StateLabel { mode, state }).inc_by(by);
            }
        };
        let (meter, last) = (&self.meter, self.last);
        add(&meter.apis, "standing", now.standing - last.standing);
        add(&meter.apis, "unverified", now.unverified - last.unverified);
        add(&meter.apis, "troubled", now.troubled - last.troubled);
        add(&meter.connections, "up", now.up - last.up);
        add(&meter.connections, "down", now.down - last.down);
        self.last = now;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(Standing::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_goes_with_its_owner() {
        let metrics = Metrics::new("op");
        let meter = TykMeter::new(&metrics);
        let mut one = meter.share(Mode::OpenSource);
        let mut other = meter.share(Mode::OpenSource);
        let line = |n: i64| format!(r#"op_tyk_apis{{mode="ce",state="standing"}} {n}"#);
        one.set(Standing {
            standing: 3,
            ..Standing::default()
        });
        other.set(Standing {
            standing: 2,
            ..Standing::default()
        });
        assert!(metrics.encode().contains(&line(5)), "{}", metrics.encode());
        drop(one);
        assert!(metrics.encode().contains(&line(2)), "{}", metrics.encode());
    }
}
