//! `tyk-gateway`: status of Gateways whose class is ours: conditions, addresses, listeners with the number of attached
//! routes. What is said is decided by the model. A Gateway of another class is never touched; one that leaves our classes
//! keeps the status that it had, as Gateway API allows: whoever takes it over writes its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use reconcile_kit::{
    Children, Entries, Entry, Limits, Needs, Note, Outcome, Plan, Planner, ReconcileError, Report, Request,
    StatusField, Verdict,
    status::{StatusContract, StatusMode},
};
use serde_json::{Map, Value, json};

use super::{
    gatewayclass::{Found, failed, silent},
    verdict::{GatewayVerdict, ListenerVerdict},
    world::{WatchedGateway, World},
};

/// What is ours in the status of a Gateway, in its listeners' conditions too. With force: the class says that it is ours,
/// and what the API server or an earlier controller left there is replaced. Other conditions stay.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-tyk-gateway",
    conditions: &[
        "Accepted",
        "Programmed",
        "ResolvedRefs",
        "Conflicted",
        "OverlappingTLSConfig",
    ],
    fields: &["addresses", "listeners"],
    mode: StatusMode::Force,
};

/// What the schema of `status.listeners` takes.
const LISTENER_LIMITS: Limits = Limits {
    entries: 64,
    conditions: 8,
};

/// The controller.
pub struct GatewayPlanner(pub World);

impl Planner for GatewayPlanner {
    type Object = WatchedGateway;
    type Verdict = Found<GatewayVerdict>;
    const NAME: &'static str = "tyk-gateway";

    fn needs(_: &WatchedGateway) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<WatchedGateway>) -> Result<Plan<Self::Verdict>, ReconcileError> {
        Ok(Plan::report(self.0.gateway(&request.object.key()).into()))
    }

    fn report(_: &WatchedGateway, verdict: &Verdict<Self::Verdict>, _: &Children) -> Report {
        let Verdict::Report(Found::Known(gateway)) = verdict else {
            return silent(verdict);
        };
        let addresses: Vec<Value> = gateway
            .addresses
            .iter()
            .map(|(type_, value)| json!({"type": type_, "value": value}))
            .collect();
        let addresses = if addresses.is_empty() {
            StatusField::Clear
        } else {
            StatusField::Set(Value::Array(addresses))
        };
        let listeners = Entries {
            ours: None,
            identity: "name",
            entries: gateway.listeners.iter().map(listener).collect(),
            limits: LISTENER_LIMITS,
        };
        let mut report = Report::new(Outcome::Done)
            .field("addresses", addresses)
            .field("listeners", StatusField::Entries(listeners));
        report.conditions = gateway.conditions.clone();
        report.notes = gateway.notices.iter().map(note).collect();
        report
    }

    fn conditions(gateway: &WatchedGateway) -> &[MetaCondition] {
        gateway.conditions()
    }

    fn status_field(gateway: &WatchedGateway, field: &str) -> Option<Value> {
        gateway.status_field(field)
    }

    fn report_error(_: &WatchedGateway, error: &ReconcileError) -> Report {
        failed(error)
    }
}

/// A notice of the model as an event.
pub(super) fn note(notice: &super::verdict::Notice) -> Note {
    Note {
        warning: notice.warning,
        reason: notice.reason.into(),
        message: notice.message.clone(),
    }
}

fn listener(verdict: &ListenerVerdict) -> Entry {
    let kinds: Vec<Value> = verdict
        .supported_kinds
        .iter()
        .map(|(group, kind)| json!({"group": group, "kind": kind}))
        .collect();
    let rest = Map::from_iter([
        ("attachedRoutes".to_owned(), json!(verdict.attached_routes)),
        ("supportedKinds".to_owned(), Value::Array(kinds)),
    ]);
    Entry {
        identity: json!(verdict.name),
        rest,
        conditions: verdict.conditions.clone(),
    }
}
