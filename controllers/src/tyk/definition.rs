//! `tyk-oas-definition`: the condition Accepted of TykOasApiDefinitions with targetRefs. What is said is decided by the
//! model; while there is no Gateway API on Tyk, that is said instead. A definition without targetRefs is another
//! operator's and never touched, but for an Accepted that this operator left there when it had some: that is withdrawn. An
//! Accepted that another field manager owns is never touched either: the write is without force, and a refusal becomes an
//! event.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, ManagedFieldsEntry};
use kube::{Api, Client, api::ListParams};
use reconcile_kit::{
    Children, Condition, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request, Verdict,
    error::classify,
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
    conditions: &[ACCEPTED],
    fields: &[],
    mode: StatusMode::Apply,
};

/// The condition.
const ACCEPTED: &str = "Accepted";
/// Field managers of this operator's controllers of Gateway API on Tyk begin with this.
const MANAGERS: &str = "routewright-tyk-";

/// The controller.
pub struct DefinitionPlanner {
    /// Asks whose an Accepted is. Watches do not show it.
    pub client: Client,
    /// Who decides; `None` while Gateway API on Tyk is switched off.
    pub world: Option<World>,
    /// What is served.
    pub presence: Presence,
}

impl DefinitionPlanner {
    /// The answer; `Known(None)`: nothing is to be said any more.
    fn find(&self, definition: &WatchedDefinition) -> Found<Option<Condition>> {
        let Some(world) = &self.world else {
            let why = "Gateway API on Tyk is switched off in this operator; tyk.enabled of its chart (--enable-tyk) switches it on";
            return Found::Known(Some(unavailable(why)));
        };
        let absent: Vec<String> = REQUIRED
            .iter()
            .filter(|kind| self.presence.get(kind) == ApiState::Absent)
            .map(ToString::to_string)
            .collect();
        if !absent.is_empty() {
            let why = format!(
                "the API server does not serve {}: install the CRDs",
                absent.join(", ")
            );
            return Found::Known(Some(unavailable(&why)));
        }
        match world.definition(&definition.key()) {
            Answer::None => Found::NotOurs,
            Answer::Pending(..) => Found::Waiting,
            Answer::Known(verdict) => Found::Known(Some(verdict.condition)),
        }
    }

    /// Whether a definition without targetRefs still says what this operator once said of it. A list of one: it needs no
    /// right that watching does not need.
    async fn left_behind(&self, definition: &WatchedDefinition) -> Result<bool, ReconcileError> {
        if !definition.conditions().iter().any(|c| c.type_ == ACCEPTED) {
            return Ok(false);
        }
        let key = definition.key();
        let api: Api<WatchedDefinition> = Api::namespaced(self.client.clone(), &key.namespace);
        let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let found = api.list_metadata(&one).await.map_err(|error| {
            let (class, why) = classify(&error);
            ReconcileError::new(
                class,
                format!("read metadata of TykOasApiDefinition {key}: {why}"),
            )
        })?;
        Ok(found.items.iter().any(|definition| {
            owns_accepted(definition.metadata.managed_fields.as_deref().unwrap_or_default())
        }))
    }
}

/// The condition Accepted is this operator's and nobody else's, as `metadata.managedFields` tells.
pub fn owns_accepted(managed: &[ManagedFieldsEntry]) -> bool {
    let mut owners = managed
        .iter()
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            let conditions = fields.and_then(|fields| fields.pointer("/f:status/f:conditions"));
            let accepted = conditions.and_then(|conditions| conditions.get("k:{\"type\":\"Accepted\"}"));
            accepted.is_some_and(|accepted| accepted.get("f:status").is_some())
        })
        .map(|entry| {
            entry
                .manager
                .as_deref()
                .is_some_and(|name| name.starts_with(MANAGERS))
        })
        .peekable();
    owners.peek().is_some() && owners.all(|ours| ours)
}

impl Planner for DefinitionPlanner {
    type Object = WatchedDefinition;
    type Verdict = Found<Option<Condition>>;
    const NAME: &'static str = "tyk-oas-definition";

    fn needs(_: &WatchedDefinition) -> Needs {
        Needs::default()
    }

    async fn plan(
        &self,
        request: &Request<WatchedDefinition>,
    ) -> Result<Plan<Self::Verdict>, ReconcileError> {
        let definition = &request.object;
        Ok(Plan::report(if definition.has_targets() {
            self.find(definition)
        } else if self.left_behind(definition).await? {
            Found::Known(None)
        } else {
            Found::NotOurs
        }))
    }

    fn report(_: &WatchedDefinition, verdict: &Verdict<Self::Verdict>, _: &Children) -> Report {
        match verdict {
            Verdict::Report(Found::Known(said)) => {
                let mut report = Report::new(Outcome::Done);
                report.conditions.extend(said.clone());
                report
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
