//! `garage-bucket`: planner, effects and report around the bucket state machine. What happens to a bucket in Garage is
//! decided in `bucket`; here stands what has to be true before it is asked at all, and what is said afterwards.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::ResourceExt;
use reconcile_kit::{
    Children, Condition, ErrorClass, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request, Settled,
    StatusField, Verdict, layers::effects::Effects, owner::OwnerPatch, runtime::Handle,
    status::StatusContract,
};
use routewright_crds::{GarageBucket, GarageCluster, GarageReferenceGrant};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    access::{Access, NoAccess},
    admin::AdminErrorClass,
    bucket::{
        DriveError, End, Known, Observed, Phase, RefusalReason, StatusProjection, Step, Usage, Wanted, drive,
        next, usage_to_publish,
    },
};
use crate::exposure::{
    cluster::{self, Unavailable},
    grant,
    plan::{Facts, FoundCluster, NotReady},
    resolve::{cluster_of, needs_namespace_labels, reference},
};

/// Our finalizer on buckets.
pub const FINALIZER: &str = "routewright.dev/garage-bucket";

/// The finalizer of another operator of this group: who carries it is managed by that one.
pub const FOREIGN_FINALIZER: &str = "garagebucket.garage.rajsingh.info/finalizer";

/// What is ours in the status of a bucket.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-garage-bucket",
    conditions: &[READY],
    fields: &[
        "bucketId",
        "phase",
        "globalAlias",
        "createdAt",
        "websiteEnabled",
        "websiteUrl",
        "websiteConfig",
        "quotaUsage",
        "size",
    ],
};

const READY: &str = "Ready";
const SHORT: Duration = Duration::from_secs(60);
/// How often a bucket is compared with what Garage holds.
pub const DRIFT: Duration = Duration::from_secs(300);

/// What is known of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Another operator's finalizer is on it.
    NotOurs,
    /// Nothing is asked of Garage yet.
    Blocked {
        /// Reason of the condition.
        reason: &'static str,
        /// For people.
        message: String,
        /// Being deleted, and nothing can be left in Garage that we know of.
        released: bool,
    },
    /// This is to be made true in Garage.
    Work(Box<Work>),
    /// This came of it.
    Ended {
        /// The end of the run.
        end: Box<End>,
        /// The figures that status shows.
        usage: Option<Usage>,
    },
}

/// What a run needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The cluster whose Garage it is.
    pub cluster: Arc<GarageCluster>,
    /// What is wanted.
    pub wanted: Wanted,
    /// What was written down.
    pub known: Known,
}

/// Whether this bucket gets our finalizer.
pub fn wants_finalizer(bucket: &GarageBucket) -> bool {
    !is_foreign(bucket)
}

fn is_foreign(bucket: &GarageBucket) -> bool {
    bucket
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == FOREIGN_FINALIZER)
}

/// The controller.
pub struct BucketPlanner {
    facts: Arc<dyn Facts>,
    buckets: Handle<GarageBucket>,
}

impl BucketPlanner {
    /// `buckets`: to see who else records a bucket id.
    pub fn new(facts: Arc<dyn Facts>, buckets: Handle<GarageBucket>) -> Self {
        Self { facts, buckets }
    }

    /// Another bucket object of the same cluster that records this id.
    fn claimed_by(&self, bucket: &GarageBucket) -> Option<String> {
        let recorded = bucket.status.as_ref().and_then(|s| s.bucket_id.as_deref());
        let id = recorded
            .or(bucket.spec.bucket_id.as_deref())
            .filter(|id| !id.is_empty())?;
        let cluster = cluster_of(bucket);
        let other = self.buckets.store().filter(|other| {
            other.metadata.uid != bucket.metadata.uid
                && other.status.as_ref().and_then(|s| s.bucket_id.as_deref()) == Some(id)
                && cluster_of(other) == cluster
        });
        other
            .first()
            .map(|o| format!("{}/{}", o.namespace().unwrap_or_default(), o.name_any()))
    }
}

/// What has to be true before Garage is asked.
pub fn plan(
    bucket: &GarageBucket,
    facts: &dyn Facts,
    claimed_by: Option<String>,
) -> Result<Finding, NotReady> {
    if is_foreign(bucket) {
        return Ok(Finding::NotOurs);
    }
    let deleting = bucket.metadata.deletion_timestamp.is_some();
    let (namespace, name) = cluster_of(bucket);
    let known = Known {
        claimed_by,
        ..Known::of(bucket)
    };
    // Retained, claimed, or never begun: whoever has nothing to ask of Garage does not wait for a cluster or a token.
    if deleting
        && let Step::End(end @ End::Gone) = next(&Wanted::of(bucket, None), &known, &Observed::default())
    {
        return Ok(Finding::Ended {
            end: Box::new(end),
            usage: None,
        });
    }
    let blocked = |reason, message: String| {
        Ok(Finding::Blocked {
            reason,
            message,
            released: false,
        })
    };
    if bucket.spec.cluster_ref.kube_config_secret_ref.is_some() && !deleting {
        return blocked(
            "InvalidSpec",
            "spec.clusterRef.kubeConfigSecretRef: is not supported; remove it".to_owned(),
        );
    }
    // A grant that was taken away must not keep a bucket from being removed.
    if !deleting && let Some(denied) = denied(bucket, facts)? {
        return blocked("GrantDenied", denied);
    }
    let cluster = match facts.cluster(namespace, name)? {
        FoundCluster::Found(cluster) => cluster,
        missing => {
            let why = match missing {
                FoundCluster::NotServed => {
                    "the API server does not serve GarageCluster v1beta2; install its CRD"
                }
                _ => "not found; create it or correct spec.clusterRef",
            };
            let message = format!("GarageCluster {namespace}/{name}: {why}");
            // Without the cluster there is nobody to ask; the bucket, if any, went with it or stays as it is.
            let released = deleting && matches!(missing, FoundCluster::Missing);
            return Ok(Finding::Blocked {
                reason: "ClusterNotReady",
                message,
                released,
            });
        }
    };
    if !deleting && let Err(why) = cluster::availability(&cluster) {
        let state = match why {
            Unavailable::Deleting => "is being deleted".to_owned(),
            Unavailable::NotRunning => {
                format!(
                    "status.phase is {}; waiting for Running",
                    cluster::phase(&cluster).unwrap_or("not set")
                )
            }
        };
        return blocked(
            "ClusterNotReady",
            format!("GarageCluster {namespace}/{name}: {state}"),
        );
    }
    let web_root = if cluster::web_enabled(&cluster.spec) {
        // An unusable root domain is exposure's to tell; the URL is left out.
        cluster::root_domain(&cluster)
            .ok()
            .flatten()
            .map(|root| root.as_str().to_owned())
    } else {
        None
    };
    let wanted = Wanted::of(bucket, web_root.as_deref());
    Ok(Finding::Work(Box::new(Work {
        cluster,
        wanted,
        known,
    })))
}

fn denied(bucket: &GarageBucket, facts: &dyn Facts) -> Result<Option<String>, NotReady> {
    let (namespace, own) = (cluster_of(bucket).0, bucket.namespace().unwrap_or_default());
    if namespace == own {
        return Ok(None);
    }
    let grants = facts.grants(namespace)?;
    let grants: Vec<&GarageReferenceGrant> = grants.iter().map(Arc::as_ref).collect();
    let labels = if needs_namespace_labels(bucket, &grants) {
        facts.namespace_labels(&own)?
    } else {
        None
    };
    Ok(grant::check(reference(bucket), grants, labels.as_ref())
        .err()
        .map(|denied| denied.to_string()))
}

impl Planner for BucketPlanner {
    type Object = GarageBucket;
    type Verdict = Finding;
    const NAME: &'static str = "garage-bucket";

    fn needs(_: &GarageBucket) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<GarageBucket>) -> Result<Plan<Finding>, ReconcileError> {
        let bucket = request.object.as_ref();
        Ok(Plan::report(plan(
            bucket,
            self.facts.as_ref(),
            self.claimed_by(bucket),
        )?))
    }

    fn report(bucket: &GarageBucket, verdict: &Verdict<Finding>, _: &Children) -> Report {
        match verdict {
            Verdict::Report(finding) => report(bucket, finding),
            Verdict::Hold(_) => Report::untouched(Outcome::Done),
        }
    }

    fn conditions(bucket: &GarageBucket) -> &[MetaCondition] {
        bucket
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default()
    }

    fn status_field(bucket: &GarageBucket, field: &str) -> Option<Value> {
        let status = bucket.status.as_ref()?;
        let text = |value: &Option<String>| value.clone().map(Value::from);
        match field {
            "bucketId" => text(&status.bucket_id),
            "phase" => text(&status.phase),
            "globalAlias" => text(&status.global_alias),
            "size" => text(&status.size),
            "websiteUrl" => text(&status.website_url),
            "websiteEnabled" => status.website_enabled.map(Value::from),
            "createdAt" => serde_json::to_value(status.created_at.as_ref()?).ok(),
            "websiteConfig" => serde_json::to_value(status.website_config.as_ref()?).ok(),
            "quotaUsage" => serde_json::to_value(status.quota_usage.as_ref()?).ok(),
            _ => None,
        }
    }

    fn report_error(bucket: &GarageBucket, error: &ReconcileError) -> Report {
        if is_foreign(bucket) {
            return Report::untouched(Outcome::Done);
        }
        let reason = match error.class {
            ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::RateLimited(_) => "GarageUnavailable",
            _ => "ReconcileFailed",
        };
        let report =
            Report::new(Outcome::Done).condition(Condition::new(READY, false, reason, error.message.clone()));
        let recorded = bucket
            .status
            .as_ref()
            .is_some_and(|s| s.bucket_id.as_deref().is_some_and(|id| !id.is_empty()));
        match (bucket.metadata.deletion_timestamp.is_some(), recorded) {
            (true, _) => phase(report, Phase::Deleting),
            (false, false) => phase(report, Phase::Creating),
            // A recorded bucket keeps its phase through a fault that passes.
            (false, true) => report,
        }
    }
}

fn phase(report: Report, phase: Phase) -> Report {
    report.field("phase", StatusField::Set(phase.as_str().into()))
}

/// What is said about a bucket.
pub fn report(bucket: &GarageBucket, finding: &Finding) -> Report {
    let deleting = bucket.metadata.deletion_timestamp.is_some();
    let ready = |yes: bool, reason: &'static str, message: &str| Condition::new(READY, yes, reason, message);
    match finding {
        Finding::NotOurs | Finding::Work(_) => Report::untouched(Outcome::Done),
        Finding::Blocked { reason, message, .. } => {
            let report = Report::new(Outcome::Waiting {
                reason: "cluster",
                retry: SHORT,
            })
            .condition(ready(false, reason, message));
            phase(report, if deleting { Phase::Deleting } else { Phase::Pending })
        }
        Finding::Ended { end, usage } => match end.as_ref() {
            End::Done(projection) => {
                let report = Report::new(Outcome::RequeueAfter(DRIFT)).condition(ready(
                    true,
                    "BucketReady",
                    "Garage holds what is wanted",
                ));
                let usage = usage.unwrap_or(projection.usage);
                projection
                    .fields(&usage)
                    .into_iter()
                    .fold(report, |report, (name, value)| report.field(name, value))
            }
            End::Refuse(refusal) => {
                let report = Report::new(Outcome::RequeueAfter(DRIFT)).condition(ready(
                    false,
                    refusal.reason.as_str(),
                    &refusal.message,
                ));
                phase(report, if deleting { Phase::Deleting } else { Phase::Failed })
            }
            End::Stay(refusal) => {
                let retry = if refusal.reason == RefusalReason::BucketNotEmpty {
                    SHORT
                } else {
                    DRIFT
                };
                let report = Report::new(Outcome::Waiting {
                    reason: "bucket contents",
                    retry,
                })
                .condition(ready(false, refusal.reason.as_str(), &refusal.message));
                phase(report, Phase::Deleting)
            }
            End::Gone => Report::untouched(Outcome::Done),
        },
    }
}

/// Makes Garage agree.
pub struct Drive {
    access: Arc<dyn Access>,
    shown: Mutex<HashMap<String, Instant>>,
}

impl Drive {
    /// Through these clients.
    pub fn new(access: Arc<dyn Access>) -> Self {
        Self {
            access,
            shown: Mutex::default(),
        }
    }

    /// The figures for status: not every byte is worth a write.
    fn usage(&self, bucket: &GarageBucket, projection: &StatusProjection) -> Usage {
        let uid = bucket.uid().unwrap_or_default();
        let mut times = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let since = times.get(&uid).map(Instant::elapsed);
        let before = bucket
            .status
            .as_ref()
            .and_then(|s| s.quota_usage.as_ref())
            .and_then(Usage::from_status);
        let chosen = usage_to_publish(before, since, projection.usage);
        if before != Some(chosen) {
            times.insert(uid, Instant::now());
        }
        chosen
    }
}

impl Effects<BucketPlanner> for Drive {
    async fn perform(
        &self,
        request: &Request<GarageBucket>,
        mut settled: Settled<Finding>,
        owner: &OwnerPatch,
    ) -> Result<Settled<Finding>, ReconcileError> {
        let work = match &settled.verdict {
            Verdict::Report(Finding::Work(work)) => work,
            Verdict::Report(Finding::Blocked { released, .. }) => {
                settled.released = *released;
                return Ok(settled);
            }
            Verdict::Report(Finding::Ended { end, .. }) => {
                settled.released = request.deleting && **end == End::Gone;
                return Ok(settled);
            }
            _ => return Ok(settled),
        };
        let admin = match self.access.admin(&work.cluster, false).await {
            Ok(admin) => admin,
            Err(NoAccess { message, .. }) => {
                let (namespace, name) = (
                    work.cluster.namespace().unwrap_or_default(),
                    work.cluster.name_any(),
                );
                let message = format!("GarageCluster {namespace}/{name}: {message}");
                settled.verdict = Verdict::Report(Finding::Blocked {
                    reason: "ClusterNotReady",
                    message,
                    released: false,
                });
                return Ok(settled);
            }
        };
        let mut run = drive(admin.as_ref(), owner, &work.wanted, &work.known).await;
        if let Err(DriveError::Admin(error)) = &run
            && error.class() == AdminErrorClass::Unauthorized
            && let Ok(admin) = self.access.admin(&work.cluster, true).await
        {
            // The token may have been changed since it was read.
            run = drive(admin.as_ref(), owner, &work.wanted, &work.known).await;
        }
        let end = run?;
        settled.released = request.deleting && end == End::Gone;
        if settled.released {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown.remove(&request.object.uid().unwrap_or_default());
        }
        let usage = match &end {
            End::Done(projection) => Some(self.usage(&request.object, projection)),
            _ => None,
        };
        settled.verdict = Verdict::Report(Finding::Ended {
            end: Box::new(end),
            usage,
        });
        Ok(settled)
    }
}
