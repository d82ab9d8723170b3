//! `garage-cluster`: the phase of connect-only GarageClusters. Planner, effect (one probe) and report; clusters with
//! tiers belong to whoever runs them and are not touched.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::runtime::reflector::ObjectRef;
use reconcile_kit::{
    Children, Condition, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request, Settled,
    StatusField, Verdict,
    layers::effects::Effects,
    owner::OwnerPatch,
    runtime::{Change, Handle, Listener, Triggers},
    status::{StatusContract, StatusMode},
};
use routewright_crds::GarageCluster;
use serde_json::Value;

use super::{
    access::{Access, admin_spec},
    admin::AdminErrorClass,
    follow::{Followed, follow, reference_of},
    handle::{
        HANDLE_INTERVAL, HandlePhase, HandleSpec, HandleVerdict, probed, probed_without_health, target,
    },
};
use crate::exposure::{cluster::phase, plan::Facts};

/// What is ours in the status of a handle.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-garage-cluster",
    conditions: &["Ready"],
    fields: &["phase"],
    mode: StatusMode::Apply,
};

/// The alias that is looked up to see whether a token may read buckets.
const PROBE_ALIAS: &str = "routewright-probe";

/// What is known of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Not a handle, or being deleted.
    NotOurs,
    /// A handle that was not probed yet: the cluster whose spec says where its Admin API is.
    Handle(Followed),
    /// A handle after its probe, or without the need of one.
    Probed(HandleVerdict),
}

/// The controller.
pub struct ClusterPlanner(pub Arc<dyn Facts>);

impl Planner for ClusterPlanner {
    type Object = GarageCluster;
    type Verdict = Finding;
    const NAME: &'static str = "garage-cluster";

    fn needs(_: &GarageCluster) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<GarageCluster>) -> Result<Plan<Finding>, ReconcileError> {
        let cluster = &request.object;
        if HandleSpec::of(cluster).is_none() || cluster.metadata.deletion_timestamp.is_some() {
            return Ok(Plan::report(Finding::NotOurs));
        }
        let found = follow(cluster, &|namespace, name| self.0.cluster(namespace, name))?;
        Ok(Plan::report(found.map_or_else(Finding::Probed, Finding::Handle)))
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
pub struct Probe {
    /// The clients.
    pub access: Arc<dyn Access>,
    /// Domain of Services, for messages.
    pub cluster_domain: String,
}

impl Probe {
    async fn probe(&self, way: &Followed) -> HandleVerdict {
        let admin = match self.access.admin(&way.cluster, true).await {
            Ok(admin) => admin,
            Err(refused) => return HandleVerdict::pending(refused.reason, refused.message),
        };
        let target = match target(&admin_spec(&way.cluster, &self.cluster_domain)) {
            Ok(target) => target,
            Err(verdict) => return verdict,
        };
        let health = admin.health().await;
        if let Err(error) = &health
            && error.class() == AdminErrorClass::Unauthorized
        {
            // Garage checks the scope before it looks for anything, so the name need not exist.
            match admin.bucket_by_alias(PROBE_ALIAS).await {
                Ok(_) => return probed_without_health(&target.endpoint),
                Err(e) if e.class() == AdminErrorClass::NotFound => {
                    return probed_without_health(&target.endpoint);
                }
                Err(_) => {}
            }
        }
        probed(&target.endpoint, &health)
    }
}

impl Effects<ClusterPlanner> for Probe {
    async fn perform(
        &self,
        _: &Request<GarageCluster>,
        mut settled: Settled<Finding>,
        _: &OwnerPatch,
    ) -> Result<Settled<Finding>, ReconcileError> {
        if let Verdict::Report(Finding::Handle(way)) = &settled.verdict {
            let mut verdict = self.probe(way).await;
            if verdict.phase == HandlePhase::Pending {
                verdict.message.insert_str(0, &way.prefix);
            }
            settled.verdict = Verdict::Report(Finding::Probed(verdict));
        }
        // Nothing of a handle lives outside Kubernetes.
        settled.released = true;
        Ok(settled)
    }
}

/// Looks at the handles that refer to a cluster when that one changes. How far away the change is does not matter: the
/// handles of handles follow by their own.
pub fn on_target(
    clusters: &Handle<GarageCluster>,
    triggers: &Triggers<GarageCluster>,
) -> Listener<GarageCluster> {
    let (clusters, triggers) = (clusters.clone(), triggers.clone());
    Box::new(move |change| {
        let target = match change {
            Change::Applied { old: Some(old), new } if old.spec == new.spec && phase(old) == phase(new) => {
                return;
            }
            Change::Applied { new, .. } => new,
            Change::Deleted { old } => old,
            Change::Ready | Change::Stopped => return,
        };
        let refers = |handle: &GarageCluster| {
            handle.metadata.namespace == target.metadata.namespace
                && reference_of(handle).is_some_and(|r| Some(&r.name) == target.metadata.name.as_ref())
        };
        for handle in clusters.store().filter(refers) {
            triggers.push(ObjectRef::from_obj(&handle));
        }
    })
}
