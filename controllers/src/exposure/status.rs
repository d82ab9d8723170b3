//! What an exposure controller says: the condition `WebsiteExposed`, `status.websiteExposure`, events, and when to look
//! again. Pure: from a bucket, a finding and the settled children. The table of contract §4, row by row.

use std::{fmt, time::Duration};

use kube::ResourceExt;
use reconcile_kit::{
    Child, ChildState, Children, Condition, ConditionStatus, ErrorClass, HoldReason, Outcome, ReconcileError,
    Report, StatusField, Verdict,
    condition::find,
    settled::SettledChild,
    status::{StatusContract, StatusMode},
};
use routewright_crds::{GarageBucket, WebsiteExposureStatus};
use serde_json::{Value, json};

use super::{
    ExposureKind,
    class::{ClassState, IngressClasses},
    ingress::addresses,
    names::child_name,
    plan::{Finding, hostnames_of, speaks},
    readiness::readiness,
    resolve::{
        Blocked, BlockedReason, ConditionEffect, Resolved, Selection, StatusEffect, Via, selection, set_aside,
    },
    sharing::Shared,
};

/// The condition type.
pub const CONDITION: &str = "WebsiteExposed";

/// The status field.
pub const FIELD: &str = "websiteExposure";

/// What both exposure controllers own in a bucket's status, under one field manager.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-website-exposure",
    conditions: &[CONDITION],
    fields: &[FIELD],
    mode: StatusMode::Apply,
};

const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(300);

/// Reasons of `WebsiteExposed`, in their published spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The object stands; for an HTTPRoute every parent serves it too.
    Exposed,
    /// The object stands, and the Gateway (or its own end) is waited for.
    NotReady,
    /// Garage has not recorded the bucket's alias yet.
    WaitingForAlias,
    /// An Ingress is wanted and `--enable-ingress` is off.
    IngressDisabled,
    /// An HTTPRoute is wanted and `--enable-gateway-api` is off or the Gateway API is not served.
    GatewayAPIUnavailable,
    /// Anything else; the message says what.
    ReconcileFailed,
}

impl Reason {
    /// All reasons, for docs and tests.
    pub const ALL: [Self; 6] = [
        Self::Exposed,
        Self::NotReady,
        Self::WaitingForAlias,
        Self::IngressDisabled,
        Self::GatewayAPIUnavailable,
        Self::ReconcileFailed,
    ];

    /// The published spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exposed => "Exposed",
            Self::NotReady => "NotReady",
            Self::WaitingForAlias => "WaitingForAlias",
            Self::IngressDisabled => "IngressDisabled",
            Self::GatewayAPIUnavailable => "GatewayAPIUnavailable",
            Self::ReconcileFailed => "ReconcileFailed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn condition(reason: Reason, message: impl Into<String>) -> Condition {
    Condition::new(CONDITION, reason == Reason::Exposed, reason.as_str(), message)
}

/// The kind that status says was exposed last.
pub fn recorded(bucket: &GarageBucket) -> Option<ExposureKind> {
    let exposure = bucket.status.as_ref()?.website_exposure.as_ref()?;
    [ExposureKind::Ingress, ExposureKind::HttpRoute]
        .into_iter()
        .find(|kind| exposure.type_.as_deref() == Some(kind.as_str()) && exposure.name.is_some())
}

fn set(status: WebsiteExposureStatus) -> StatusField {
    StatusField::Set(json!(status))
}

fn type_only(kind: ExposureKind) -> WebsiteExposureStatus {
    WebsiteExposureStatus {
        type_: Some(kind.as_str().to_owned()),
        ..WebsiteExposureStatus::default()
    }
}

/// Type, and the name only where the bucket's child `stands` or existed when it was last seen: a later removal looks for
/// the name on record, and `LeftBehind` names it.
fn type_and_known_name(kind: ExposureKind, bucket: &GarageBucket, stands: bool) -> WebsiteExposureStatus {
    WebsiteExposureStatus {
        name: (stands || recorded(bucket) == Some(kind)).then(|| child_name(&bucket.name_any())),
        ..type_only(kind)
    }
}

/// What the controller of `kind` says.
pub fn report(
    kind: ExposureKind,
    bucket: &GarageBucket,
    verdict: &Verdict<Finding>,
    children: &Children,
) -> Report {
    match verdict {
        Verdict::Hold(reason) => held(kind, bucket, reason),
        Verdict::Report(finding) => match finding {
            Finding::Silent => Report::untouched(Outcome::Done),
            Finding::Aside { leftover } => with_removal(
                kind,
                Report::untouched(Outcome::Done),
                leftover.as_deref(),
                children,
            ),
            Finding::Unset { leftover } => {
                let report = Report::new(Outcome::Done).field(FIELD, StatusField::Clear);
                with_removal(kind, report, leftover.as_deref(), children)
            }
            Finding::Blocked { blocked, serving } => {
                let removal = with_removal(
                    kind,
                    blocked_report(kind, bucket, blocked, serving),
                    None,
                    children,
                );
                failed_removal(kind, bucket, removal, children)
            }
            Finding::Exposed {
                resolved,
                classes,
                shared,
                held,
            } => {
                let report = exposed(kind, bucket, resolved, classes, held.as_deref(), children);
                also_shared(report, shared, &resolved.namespace)
            }
        },
    }
}

/// What the controller of `kind` says when its reconcile failed; Policy decides the retry.
pub fn report_error(kind: ExposureKind, bucket: &GarageBucket, error: &ReconcileError) -> Report {
    let untouched = Report::untouched(Outcome::Done);
    if set_aside(bucket).is_some() {
        return untouched;
    }
    if !speaks(kind, bucket) {
        return untouched.note(true, "CleanupFailed", error.message.clone());
    }
    if selection(bucket) == Selection::Unset {
        // There is no condition to say it on.
        return untouched.note(true, "CleanupFailed", error.message.clone());
    }
    let report =
        Report::new(Outcome::Done).condition(condition(Reason::ReconcileFailed, error.message.clone()));
    match (error.class, selection(bucket)) {
        (ErrorClass::Forbidden, Selection::Kind(_)) => {
            report.field(FIELD, set(type_and_known_name(kind, bucket, false)))
        }
        _ => report,
    }
}

/// A flag is off or an API is not served.
fn held(kind: ExposureKind, bucket: &GarageBucket, reason: &HoldReason) -> Report {
    let (reason, message) = match (kind, reason) {
        // Not known yet: nothing may be concluded. The answer triggers.
        (_, HoldReason::ApiUnknown(_)) => {
            return Report::untouched(Outcome::Waiting {
                reason: "api presence",
                retry: SHORT,
            });
        }
        (_, HoldReason::Terminating) => return Report::untouched(Outcome::Done),
        (ExposureKind::Ingress, HoldReason::FeatureOff(_)) => (
            Reason::IngressDisabled,
            "Ingress support is switched off: start the operator with --enable-ingress (chart value ingress.enabled), \
             or use spec.websiteExposure.gateway",
        ),
        (ExposureKind::Ingress, HoldReason::ApiAbsent(_)) => (
            Reason::ReconcileFailed,
            "the API server does not serve networking.k8s.io/v1 Ingress",
        ),
        (ExposureKind::HttpRoute, HoldReason::FeatureOff(_)) => (
            Reason::GatewayAPIUnavailable,
            "Gateway API support is switched off: start the operator with --enable-gateway-api (chart value \
             gatewayAPI.enabled), or use spec.websiteExposure.ingress",
        ),
        (ExposureKind::HttpRoute, HoldReason::ApiAbsent(_)) => (
            Reason::GatewayAPIUnavailable,
            "the API server does not serve gateway.networking.k8s.io/v1 HTTPRoute: install the Gateway API CRDs; the \
             operator notices without a restart",
        ),
    };
    Report::new(Outcome::RequeueAfter(LONG))
        .condition(condition(reason, message))
        .field(FIELD, set(type_and_known_name(kind, bucket, false)))
}

/// Adds what there is to say about a child that is not wanted.
fn with_removal(kind: ExposureKind, report: Report, leftover: Option<&str>, children: &Children) -> Report {
    let report = match leftover {
        Some(object) => {
            let flag = match kind {
                ExposureKind::Ingress => "--enable-ingress",
                ExposureKind::HttpRoute => "--enable-gateway-api",
            };
            let text = format!(
                "{object} is no longer wanted and stays, because {flag} is off: delete it by hand, or switch the flag on"
            );
            report.note(true, "LeftBehind", text)
        }
        None => report,
    };
    children
        .0
        .iter()
        .fold(report, |report, child| match &child.state {
            ChildState::Failed(class, message)
                if !matches!(class, ErrorClass::Conflict | ErrorClass::NotReady) =>
            {
                report.note(true, "CleanupFailed", message.clone())
            }
            _ => report,
        })
}

/// A removal that the condition itself has to tell of.
fn failed_removal(kind: ExposureKind, bucket: &GarageBucket, report: Report, children: &Children) -> Report {
    let mut all = children.0.iter();
    match all.find(|child| matches!(child.state, ChildState::Failed(..))) {
        // The name stays on record, so that what is still there is looked for.
        Some(child) => {
            let block = type_and_known_name(kind, bucket, child.live.is_some());
            Report {
                fields: vec![(FIELD, set(block))],
                ..report
            }
        }
        None => report,
    }
}

fn blocked_report(
    kind: ExposureKind,
    bucket: &GarageBucket,
    blocked: &Blocked,
    serving: &[String],
) -> Report {
    let effect = blocked.effect();
    let mut message = blocked.to_string();
    if !serving.is_empty() {
        message.push_str(&format!(
            "; until then {} {}/{} goes on serving {}",
            kind.as_str(),
            bucket.namespace().unwrap_or_default(),
            child_name(&bucket.name_any()),
            serving.join(", ")
        ));
    }
    let outcome = match effect.retry {
        None => Outcome::Done,
        Some(retry) => match blocked {
            Blocked::WaitingForAlias => Outcome::Waiting {
                reason: "alias",
                retry,
            },
            Blocked::ClusterUnavailable { .. } => Outcome::Waiting {
                reason: "cluster",
                retry,
            },
            _ => Outcome::RequeueAfter(retry),
        },
    };
    let live = bucket
        .status
        .as_ref()
        .and_then(|s| find(s.conditions.as_deref().unwrap_or_default(), CONDITION));
    let with = |reason: BlockedReason| {
        let reason = match reason {
            BlockedReason::ReconcileFailed => Reason::ReconcileFailed,
            BlockedReason::WaitingForAlias => Reason::WaitingForAlias,
        };
        Some(condition(reason, message.clone()))
    };
    let (kept, said) = match effect.condition {
        ConditionEffect::Untouched => (true, None),
        ConditionEffect::Removed => (false, None),
        ConditionEffect::False(reason) => (false, with(reason)),
        // What stands goes on standing while the cluster is away. Any other word would grow old: about a flag that is
        // on by now, the other kind, or what was wrong with the cluster before.
        ConditionEffect::FalseUnlessPresent(_) if live.is_some() && stands(kind, bucket) => (true, None),
        ConditionEffect::FalseUnlessPresent(reason) => (false, with(reason)),
        ConditionEffect::MessageOnly => match live {
            Some(live) => (false, Some(reworded(live, message.clone()))),
            None => (true, None),
        },
    };
    let mut report = Report::new(outcome);
    report.keep_conditions = kept;
    report.conditions.extend(said);
    match effect.status {
        // What is on record of the other kind is being removed.
        StatusEffect::Kept if !kept && recorded(bucket).is_some_and(|other| other != kind) => {
            report.field(FIELD, set(type_only(kind)))
        }
        StatusEffect::Kept => report,
        StatusEffect::Cleared => report.field(FIELD, StatusField::Clear),
        StatusEffect::TypeOnly => report.field(FIELD, set(type_only(kind))),
        StatusEffect::TypeAndName => {
            report.field(FIELD, set(type_and_known_name(kind, bucket, !serving.is_empty())))
        }
    }
}

/// Whether condition and status tell of an object of this kind that stands.
fn stands(kind: ExposureKind, bucket: &GarageBucket) -> bool {
    let conditions = bucket.status.as_ref().and_then(|s| s.conditions.as_deref());
    let reason = find(conditions.unwrap_or_default(), CONDITION).and_then(|c| Reason::parse(&c.reason));
    matches!(reason, Some(Reason::Exposed | Reason::NotReady)) && recorded(bucket) == Some(kind)
}

/// The live condition with another message.
fn reworded(live: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition, message: String) -> Condition {
    let status = match live.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    let reason = Reason::parse(&live.reason).unwrap_or(Reason::ReconcileFailed);
    Condition::new(CONDITION, status, reason.as_str(), message)
}

fn exposed(
    kind: ExposureKind,
    bucket: &GarageBucket,
    resolved: &Resolved,
    classes: &IngressClasses,
    held: Option<&[String]>,
    children: &Children,
) -> Report {
    let Some(child) = children.find(&kind.api(), &resolved.name) else {
        // A plan that wants a child always settles it.
        return Report::untouched(Outcome::Done);
    };
    match &child.state {
        ChildState::Contested { .. } if child.live.is_none() => {
            let message = format!(
                "{resolved} is deleted by somebody as fast as it is made: it is made again every 5 minutes; find out who \
                 deletes it and stop that"
            );
            Report::new(Outcome::Done)
                .condition(condition(Reason::NotReady, message))
                .field(FIELD, set(type_only(kind)))
        }
        ChildState::Unchanged | ChildState::Created | ChildState::Updated | ChildState::Contested { .. } => {
            standing(kind, resolved, classes, held, child)
        }
        ChildState::Foreign { owner } => {
            let message = format!(
                "{resolved} exists and is not this bucket's (controlled by {owner}), so it is left alone: delete or \
                 rename it, or, if nobody controls it, hand it over with the annotation routewright.dev/adopt set to \
                 the bucket's uid"
            );
            Report::new(Outcome::RequeueAfter(LONG))
                .condition(condition(Reason::ReconcileFailed, message))
                .field(FIELD, set(type_only(kind)))
        }
        ChildState::Waiting => {
            let live = child.live.as_deref();
            let message = format!(
                "{resolved} is being deleted and held back by {}: it is created anew once it is gone",
                finalizers(live)
            );
            let status = seen(kind, resolved, held, live);
            Report::new(Outcome::Waiting {
                reason: "terminating child",
                retry: SHORT,
            })
            .condition(condition(Reason::NotReady, message))
            .field(FIELD, set(status))
        }
        ChildState::Failed(class, message) => {
            let report =
                Report::new(Outcome::Done).condition(condition(Reason::ReconcileFailed, message.clone()));
            match class {
                ErrorClass::Forbidden => {
                    let block = type_and_known_name(kind, bucket, child.live.is_some());
                    report.field(FIELD, set(block))
                }
                _ => report,
            }
        }
        ChildState::Absent | ChildState::Removed | ChildState::Held(_) => Report::untouched(Outcome::Done),
    }
}

/// Who keeps an object that is being deleted: `the finalizer a` or `the finalizers a, b`.
fn finalizers(live: Option<&Child>) -> String {
    let list = live.and_then(|live| live.metadata.finalizers.as_deref());
    match list.unwrap_or_default() {
        [] => "a finalizer".to_owned(),
        [one] => format!("the finalizer {one}"),
        more => format!("the finalizers {}", more.join(", ")),
    }
}

/// Adds that an older bucket exposes the same hostname: which of the two is served is the controller's choice. On the
/// condition too, so that it is seen for as long as it lasts, and told once however often the operator starts.
fn also_shared(mut report: Report, shared: &[Shared], namespace: &str) -> Report {
    let said = shared
        .iter()
        .map(|shared| shared.tell(namespace))
        .collect::<Vec<_>>()
        .join(", ");
    let stands = |reason| matches!(Reason::parse(reason), Some(Reason::Exposed | Reason::NotReady));
    match report.conditions.first_mut() {
        Some(condition) if !said.is_empty() && stands(condition.reason) => {
            condition.message = format!("{}; {said}", condition.message);
            report.note(true, "HostnameShared", said)
        }
        _ => report,
    }
}

/// The object stands as wanted: what it and its parents say.
fn standing(
    kind: ExposureKind,
    resolved: &Resolved,
    classes: &IngressClasses,
    held: Option<&[String]>,
    child: &SettledChild,
) -> Report {
    let live = child.live.as_deref();
    // A contested object changes back and forth: the event names that, and status follows neither side.
    let judged = live.filter(|_| !matches!(child.state, ChildState::Contested { .. }));
    let mut block = seen(kind, resolved, held, live);
    if judged.is_none() {
        block.hostnames = Some(resolved.hostnames.clone());
    }
    let changed = changed_hosts(resolved, &block);
    let mut report = Report::new(Outcome::Done).field(FIELD, set(block));
    match &resolved.via {
        Via::Ingress(settings) => {
            let state = ClassState::of(judged, settings.class.as_deref(), classes);
            let message = match &state {
                ClassState::Fine => resolved.to_string(),
                state => format!("{resolved}; {state}"),
            };
            report = report.condition(condition(Reason::Exposed, message + &changed));
            if state.is_certain() {
                report = report.note(true, "IngressClassMissing", format!("{resolved}: {state}"));
            }
            report
        }
        Via::HttpRoute(settings) => {
            let readiness = readiness(&whole(live), &settings.parents);
            if readiness.ready() {
                let message = resolved.to_string() + &changed;
                return report.condition(condition(Reason::Exposed, message));
            }
            let mut report = report.condition(condition(
                Reason::NotReady,
                format!("{resolved}: {}{changed}", readiness.message()),
            ));
            report.outcome = Outcome::Waiting {
                reason: "route parents",
                retry: SHORT,
            };
            report
        }
    }
}

/// What a message adds when the live object has other hostnames than those that were applied; empty if it has not.
/// Admission may change an object while it is written, and nothing is written again over that.
fn changed_hosts(resolved: &Resolved, block: &WebsiteExposureStatus) -> String {
    let live = block.hostnames.as_deref().unwrap_or_default();
    let same = live.len() == resolved.hostnames.len() && resolved.hostnames.iter().all(|h| live.contains(h));
    if same {
        return String::new();
    }
    format!(
        "; it serves {} in place of {}: an admission webhook or policy, or another client, changes its hostnames",
        live.join(", "),
        resolved.hostnames.join(", ")
    )
}

/// Status of an object that stands.
fn seen(
    kind: ExposureKind,
    resolved: &Resolved,
    held: Option<&[String]>,
    live: Option<&Child>,
) -> WebsiteExposureStatus {
    let whole = whole(live);
    let (mut found, mut parents) = (None, None);
    match &resolved.via {
        Via::Ingress(_) => {
            let list = held.map_or_else(|| addresses(&whole), <[String]>::to_vec);
            found = Some(list).filter(|list| !list.is_empty());
        }
        Via::HttpRoute(settings) => parents = Some(readiness(&whole, &settings.parents).status()),
    }
    let hostnames = live.map(|live| hostnames_of(kind, live)).unwrap_or_default();
    WebsiteExposureStatus {
        name: Some(resolved.name.clone()),
        hostnames: Some(match hostnames.is_empty() {
            // Only its metadata is known.
            true => resolved.hostnames.clone(),
            false => hostnames,
        }),
        addresses: found,
        parents,
        ..type_only(kind)
    }
}

/// The live object with the metadata that readiness looks at.
fn whole(live: Option<&Child>) -> Value {
    let Some(live) = live else { return Value::Null };
    let mut object = live.rest();
    if let Some(map) = object.as_object_mut() {
        let meta = json!({ "namespace": live.metadata.namespace, "generation": live.metadata.generation });
        map.insert("metadata".into(), meta);
    }
    object
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
