//! `tyk-oas-definition`: the condition Accepted of TykOasApiDefinitions with targetRefs. What is said is decided by the
//! model; while there is no Gateway API on Tyk, that is said instead. A definition without targetRefs is another
//! operator's and never touched, and so is an Accepted that another field manager owns: the write is without force, and
//! a refusal becomes an event.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use reconcile_kit::{
    Children, Condition, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request, Verdict,
    runtime::{ApiState, Presence},
    status::{StatusContract, StatusMode},
};
use serde_json::Value;

use super::{
    gatewayclass::{Found, failed, silent},
    model::unavailable,
    world::{Answer, WatchedDefinition, World, watches::REQUIRED},
};

/// What is ours in the status of a definition.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-tyk-oas-definition",
    conditions: &["Accepted"],
    fields: &[],
    mode: StatusMode::Apply,
};

/// The controller.
pub struct DefinitionPlanner {
    /// Who decides; `None` while Gateway API on Tyk is switched off.
    pub world: Option<World>,
    /// What is served.
    pub presence: Presence,
}

impl DefinitionPlanner {
    fn find(&self, definition: &WatchedDefinition) -> Found<Condition> {
        if !definition.has_targets() {
            return Found::NotOurs;
        }
        let Some(world) = &self.world else {
            let why = "Gateway API on Tyk is switched off in this operator (--enable-tyk)";
            return Found::Known(unavailable(why));
        };
        let absent: Vec<String> = REQUIRED
            .iter()
            .filter(|kind| self.presence.get(kind) == ApiState::Absent)
            .map(ToString::to_string)
            .collect();
        if !absent.is_empty() {
            let why = format!("the API server does not serve {}", absent.join(", "));
            return Found::Known(unavailable(&why));
        }
        match world.definition(&definition.key()) {
            Answer::None => Found::NotOurs,
            Answer::Pending(..) => Found::Waiting,
            Answer::Known(verdict) => Found::Known(verdict.condition),
        }
    }
}

impl Planner for DefinitionPlanner {
    type Object = WatchedDefinition;
    type Verdict = Found<Condition>;
    const NAME: &'static str = "tyk-oas-definition";

    fn needs(_: &WatchedDefinition) -> Needs {
        Needs::default()
    }

    async fn plan(
        &self,
        request: &Request<WatchedDefinition>,
    ) -> Result<Plan<Self::Verdict>, ReconcileError> {
        Ok(Plan::report(self.find(&request.object)))
    }

    fn report(_: &WatchedDefinition, verdict: &Verdict<Self::Verdict>, _: &Children) -> Report {
        match verdict {
            Verdict::Report(Found::Known(condition)) => {
                Report::new(Outcome::Done).condition(condition.clone())
            }
            _ => silent(verdict),
        }
    }

    fn conditions(definition: &WatchedDefinition) -> &[MetaCondition] {
        definition.conditions()
    }

    fn status_field(definition: &WatchedDefinition, field: &str) -> Option<Value> {
        definition.status_field(field)
    }

    fn report_error(_: &WatchedDefinition, error: &ReconcileError) -> Report {
        failed(error)
    }
}
