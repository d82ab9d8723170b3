//! `tyk-gatewayclass`: status of GatewayClasses of our controllerName, and the finalizer that keeps one from going while
//! Gateways use it. What is said is decided by the model; a class of another controller is never touched.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::Resource;
use reconcile_kit::{
    Children, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request, Settled, StatusField, Verdict,
    layers::effects::Effects,
    owner::{OwnerPatch, OwnerWrite},
    status::{StatusContract, StatusMode},
};
use serde_json::{Value, json};

use super::{
    verdict::ClassVerdict,
    world::{Answer, WatchedClass, World},
};

/// What is ours in the status of a class. With force: whoever stood here before does not manage the class any more, as
/// its controllerName says.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-tyk-gatewayclass",
    conditions: &["Accepted", "SupportedVersion"],
    fields: &["supportedFeatures"],
    mode: StatusMode::Force,
};

/// The finalizer of Gateway API that a class has while a Gateway uses it.
pub const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// When to look again at what waits for a read: it is told when the read is there, so this is a net only.
pub(super) const NET: Duration = Duration::from_secs(300);

/// What is known of an object that a controller looks at.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<V> {
    /// Nothing of ours.
    NotOurs,
    /// Something that it hangs on is not known yet.
    Waiting,
    /// The answer.
    Known(V),
}

impl<V> From<Answer<V>> for Found<V> {
    fn from(answer: Answer<V>) -> Self {
        match answer {
            Answer::None => Self::NotOurs,
            Answer::Pending(..) => Self::Waiting,
            Answer::Known(verdict) => Self::Known(verdict),
        }
    }
}

/// The report while nothing can be said.
pub(super) fn silent<V>(verdict: &Verdict<Found<V>>) -> Report {
    let outcome = match verdict {
        Verdict::Report(Found::Waiting) => Outcome::Waiting {
            reason: "content",
            retry: NET,
        },
        _ => Outcome::Done,
    };
    Report::untouched(outcome)
}

/// The report of a failure: an event; conditions say what the model knows and nothing about our troubles.
pub(super) fn failed(error: &ReconcileError) -> Report {
    Report::untouched(Outcome::Done).note(true, "ReconcileFailed", error.message.clone())
}

/// The controller.
pub struct ClassPlanner(pub World);

impl Planner for ClassPlanner {
    type Object = WatchedClass;
    type Verdict = Found<ClassVerdict>;
    const NAME: &'static str = "tyk-gatewayclass";

    fn needs(_: &WatchedClass) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<WatchedClass>) -> Result<Plan<Self::Verdict>, ReconcileError> {
        Ok(Plan::report(self.0.class(&request.object.key().name).into()))
    }

    fn report(_: &WatchedClass, verdict: &Verdict<Self::Verdict>, _: &Children) -> Report {
        let Verdict::Report(Found::Known(class)) = verdict else {
            return silent(verdict);
        };
        let features: Vec<Value> = class
            .supported_features
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut report =
            Report::new(Outcome::Done).field("supportedFeatures", StatusField::Set(Value::Array(features)));
        report.conditions = class.conditions.clone();
        report
    }

    fn conditions(class: &WatchedClass) -> &[MetaCondition] {
        class.conditions()
    }

    fn status_field(class: &WatchedClass, field: &str) -> Option<Value> {
        class.status_field(field)
    }

    fn report_error(_: &WatchedClass, error: &ReconcileError) -> Report {
        failed(error)
    }
}

/// Puts the finalizer on a class that is in use, and takes it off one that is not.
pub struct InUse;

impl Effects<ClassPlanner> for InUse {
    async fn perform(
        &self,
        request: &Request<WatchedClass>,
        mut settled: Settled<Found<ClassVerdict>>,
        owner: &OwnerPatch,
    ) -> Result<Settled<Found<ClassVerdict>>, ReconcileError> {
        let Verdict::Report(found) = &settled.verdict else {
            return Ok(settled);
        };
        let in_use = match found {
            Found::Known(class) => class.in_use,
            Found::NotOurs | Found::Waiting => return Ok(settled),
        };
        if request.deleting {
            // The Finalizer layer takes it off then.
            settled.released = !in_use;
            return Ok(settled);
        }
        let list = request.object.meta().finalizers.clone().unwrap_or_default();
        let has = list.iter().any(|name| name == FINALIZER);
        if in_use != has {
            let mut list = list;
            list.retain(|name| name != FINALIZER);
            if in_use {
                list.push(FINALIZER.to_owned());
            }
            owner.write(&OwnerWrite::Finalizers(list)).await?;
        }
        Ok(settled)
    }
}
