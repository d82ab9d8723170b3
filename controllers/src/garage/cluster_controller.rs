//! `garage-cluster`: the phase of connect-only GarageClusters. Planner, effect (one probe) and report; clusters with
//! tiers belong to whoever runs them and are not touched.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use reconcile_kit::{
    Children, Condition, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request, Settled,
    StatusField, Verdict, layers::effects::Effects, owner::OwnerPatch, status::StatusContract,
};
use routewright_crds::GarageCluster;
use serde_json::Value;

use super::{
    access::Access,
    handle::{
        HANDLE_INTERVAL, HandlePhase, HandleReason, HandleSpec, HandleVerdict, TokenState, handle_phase,
    },
};

/// What is ours in the status of a handle.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-garage-cluster",
    conditions: &["Ready"],
    fields: &["phase"],
};

/// What is known of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Not a handle, or being deleted.
    NotOurs,
    /// A handle that was not probed yet.
    Handle(HandleSpec),
    /// A handle after its probe.
    Probed(HandleVerdict),
}

/// The controller.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterPlanner;

impl Planner for ClusterPlanner {
    type Object = GarageCluster;
    type Verdict = Finding;
    const NAME: &'static str = "garage-cluster";

    fn needs(_: &GarageCluster) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<GarageCluster>) -> Result<Plan<Finding>, ReconcileError> {
        let deleted = request.object.metadata.deletion_timestamp.is_some();
        let handle = HandleSpec::of(&request.object).filter(|_| !deleted);
        Ok(Plan::report(handle.map_or(Finding::NotOurs, Finding::Handle)))
    }

    fn report(_: &GarageCluster, verdict: &Verdict<Finding>, _: &Children) -> Report {
        let Verdict::Report(Finding::Probed(probed)) = verdict else {
            return Report::untouched(Outcome::Done);
        };
        let running = probed.phase == HandlePhase::Running;
        let outcome = if running {
            Outcome::RequeueAfter(probed.retry)
        } else {
            Outcome::Waiting {
                reason: "admin api",
                retry: probed.retry,
            }
        };
        Report::new(outcome)
            .condition(Condition::new(
                "Ready",
                running,
                probed.reason.as_str(),
                probed.message.clone(),
            ))
            .field("phase", StatusField::Set(probed.phase.as_str().into()))
    }

    fn conditions(cluster: &GarageCluster) -> &[MetaCondition] {
        cluster
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default()
    }

    fn status_field(cluster: &GarageCluster, field: &str) -> Option<Value> {
        let status = cluster.status.as_ref()?;
        (field == "phase")
            .then(|| status.phase.clone().map(Value::from))
            .flatten()
    }

    fn report_error(cluster: &GarageCluster, error: &ReconcileError) -> Report {
        let untouched = Report::untouched(Outcome::Done);
        if HandleSpec::of(cluster).is_none() {
            return untouched;
        }
        let mut report = untouched.note(true, "ReconcileFailed", error.message.clone());
        report.outcome = Outcome::RequeueAfter(HANDLE_INTERVAL);
        report
    }
}

/// Asks the Admin API.
pub struct Probe(pub Arc<dyn Access>);

impl Effects<ClusterPlanner> for Probe {
    async fn perform(
        &self,
        request: &Request<GarageCluster>,
        mut settled: Settled<Finding>,
        _: &OwnerPatch,
    ) -> Result<Settled<Finding>, ReconcileError> {
        if let Verdict::Report(Finding::Handle(spec)) = &settled.verdict {
            let probed = match self.0.admin(&request.object, true).await {
                Err(refused) => HandleVerdict {
                    phase: HandlePhase::Pending,
                    reason: refused.reason,
                    message: refused.message,
                    retry: HANDLE_INTERVAL,
                },
                Ok(admin) => probed(spec, admin.health().await),
            };
            settled.verdict = Verdict::Report(Finding::Probed(probed));
        }
        // Nothing of a handle lives outside Kubernetes.
        settled.released = true;
        Ok(settled)
    }
}

fn probed(
    spec: &HandleSpec,
    health: Result<super::admin::ClusterHealth, super::admin::AdminError>,
) -> HandleVerdict {
    // Any usable token: its value has no part in the verdict.
    match super::admin::Token::new("probed") {
        Ok(token) => handle_phase(spec, &TokenState::Usable(token), Some(&health)),
        Err(fault) => HandleVerdict {
            phase: HandlePhase::Pending,
            reason: HandleReason::InvalidToken,
            message: fault.to_string(),
            retry: HANDLE_INTERVAL,
        },
    }
}
