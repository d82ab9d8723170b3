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
    ingress::addresses,
    names::child_name,
    plan::{ClassState, Finding, speaks},
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

fn type_and_name(kind: ExposureKind, bucket: &GarageBucket) -> WebsiteExposureStatus {
    WebsiteExposureStatus {
        name: Some(child_name(&bucket.name_any())),
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
                class,
                shared,
            } => also_shared(exposed(kind, bucket, resolved, *class, children), shared),
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
        (ErrorClass::Forbidden, Selection::Kind(_)) => report.field(FIELD, set(type_and_name(kind, bucket))),
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
        .field(FIELD, set(type_and_name(kind, bucket)))
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
                "{object} is not wanted any more but stays: {flag} is off; delete it by hand or switch the flag on"
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
    let failed = children
        .0
        .iter()
        .any(|child| matches!(child.state, ChildState::Failed(..)));
    if failed {
        // The name stays on record, so that what is still there is looked for.
        let fields = vec![(FIELD, set(type_and_name(kind, bucket)))];
        Report { fields, ..report }
    } else {
        report
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
        StatusEffect::TypeAndName => report.field(FIELD, set(type_and_name(kind, bucket))),
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
    class: ClassState,
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
                .field(FIELD, set(type_and_name(kind, bucket)))
        }
        ChildState::Unchanged | ChildState::Created | ChildState::Updated | ChildState::Contested { .. } => {
            standing(kind, resolved, class, child)
        }
        ChildState::Foreign { owner } => {
            let message = format!(
                "{resolved} exists and is not this bucket's (controlled by {owner}), so it is left alone: delete or \
                 rename it, or, if nobody controls it, hand it over with the annotation routewright.dev/adopt set to \
                 the bucket's uid"
            );
            Report::new(Outcome::RequeueAfter(LONG))
                .condition(condition(Reason::ReconcileFailed, message))
                .field(FIELD, set(type_and_name(kind, bucket)))
        }
        ChildState::Waiting => {
            let message = format!(
                "{resolved} is being deleted and held back by a finalizer: it is created anew once it is gone"
            );
            let status = seen(kind, resolved, child.live.as_deref());
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
                ErrorClass::Forbidden => report.field(FIELD, set(type_and_name(kind, bucket))),
                _ => report,
            }
        }
        ChildState::Absent | ChildState::Removed | ChildState::Held(_) => Report::untouched(Outcome::Done),
    }
}

/// Adds that an older bucket exposes the same hostname: which of the two is served is the controller's choice. On the
/// condition too, so that it is seen for as long as it lasts, and told once however often the operator starts.
fn also_shared(mut report: Report, shared: &[Shared]) -> Report {
    let said = shared
        .iter()
        .map(Shared::to_string)
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
fn standing(kind: ExposureKind, resolved: &Resolved, class: ClassState, child: &SettledChild) -> Report {
    let live = child.live.as_deref();
    let report = Report::new(Outcome::Done).field(FIELD, set(seen(kind, resolved, live)));
    match &resolved.via {
        Via::Ingress(settings) => {
            let suffix = match (class, settings.class.as_deref()) {
                (ClassState::Missing, Some(name)) => {
                    format!("there is no IngressClass {name}, so no controller serves it yet")
                }
                (ClassState::NoDefault | ClassState::Missing, _) => {
                    "it names no class and no IngressClass is the default, so no controller serves it yet"
                        .to_owned()
                }
                (ClassState::Fine, _) => {
                    return report.condition(condition(Reason::Exposed, resolved.to_string()));
                }
            };
            report
                .condition(condition(Reason::Exposed, format!("{resolved}; {suffix}")))
                .note(true, "IngressClassMissing", format!("{resolved}: {suffix}"))
        }
        Via::HttpRoute(settings) => {
            let readiness = readiness(&whole(live), &settings.parents);
            if readiness.ready() {
                return report.condition(condition(Reason::Exposed, resolved.to_string()));
            }
            let mut report = report.condition(condition(
                Reason::NotReady,
                format!("{resolved}: {}", readiness.message()),
            ));
            report.outcome = Outcome::Waiting {
                reason: "route parents",
                retry: SHORT,
            };
            report
        }
    }
}

/// Status of an object that stands.
fn seen(kind: ExposureKind, resolved: &Resolved, live: Option<&Child>) -> WebsiteExposureStatus {
    let whole = whole(live);
    let (mut found, mut parents) = (None, None);
    match &resolved.via {
        Via::Ingress(_) => found = Some(addresses(&whole)).filter(|list| !list.is_empty()),
        Via::HttpRoute(settings) => parents = Some(readiness(&whole, &settings.parents).status()),
    }
    WebsiteExposureStatus {
        name: Some(resolved.name.clone()),
        hostnames: Some(resolved.hostnames.clone()),
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
