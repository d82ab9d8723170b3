//! `garage-bucket`: planner, effects and report around the bucket state machine. What happens to a bucket in Garage is
//! decided in `bucket`; here stands what has to be true before it is asked at all, and what is said afterwards.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::ResourceExt;
use reconcile_kit::{
    Children, Condition, ErrorClass, Needs, Note, Outcome, Plan, Planner, ReconcileError, Report, Request,
    Settled, StatusField, Verdict,
    events::{EventSink, reference as event_reference},
    layers::effects::Effects,
    owner::OwnerPatch,
    status::{StatusContract, StatusMode},
};
use routewright_crds::{GarageBucket, GarageCluster, GarageReferenceGrant};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    access::{Access, NoAccess},
    admin::{AdminErrorClass, BucketId, GarageAdmin},
    bucket::{
        self, Creation, DriveError, End, Known, Observed, Phase, RefusalReason, StatusProjection, Step,
        Usage, Wanted, drive, next, usage_to_publish,
    },
    claims::recorded,
    creations::{Creations, GRACE, Noted},
    follow::{Followed, follow},
    rivals::Rivals,
};
use crate::exposure::{
    cluster::{self, Unavailable},
    grant,
    lookup::Unseen,
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
    mode: StatusMode::Apply,
};

const READY: &str = "Ready";
const SHORT: Duration = Duration::from_secs(60);
/// With its jitter still longer than [`GRACE`].
const AFTER_GRACE: Duration = Duration::from_secs(GRACE.as_secs() * 7 / 6);
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
        reason: BlockReason,
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

/// Why Garage is not asked. What stands there stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockReason {
    /// The spec cannot be acted upon.
    InvalidSpec,
    /// No grant lets this bucket use its cluster.
    GrantDenied,
    /// The cluster is missing, not Running, or its Admin API cannot be used.
    ClusterNotReady,
    /// The cluster may exist, and this installation cannot see it.
    ClusterNotVisible,
}

impl BlockReason {
    /// Every reason, for tests and documentation.
    pub const ALL: [Self; 4] = [
        Self::InvalidSpec,
        Self::GrantDenied,
        Self::ClusterNotReady,
        Self::ClusterNotVisible,
    ];

    /// The published spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidSpec => "InvalidSpec",
            Self::GrantDenied => "GrantDenied",
            Self::ClusterNotReady => "ClusterNotReady",
            Self::ClusterNotVisible => "ClusterNotVisible",
        }
    }

    /// The phase of a bucket that is not being deleted. `None`: as it was.
    fn phase(self, recorded: bool) -> Option<Phase> {
        match self {
            Self::InvalidSpec | Self::GrantDenied => Some(Phase::Failed),
            // An outage passes, and the bucket in Garage is what it was.
            Self::ClusterNotReady | Self::ClusterNotVisible if recorded => None,
            Self::ClusterNotReady | Self::ClusterNotVisible => Some(Phase::Pending),
        }
    }
}

/// Reasons besides those of [`BlockReason`] and [`RefusalReason`].
pub const READY_REASON: &str = "BucketReady";
/// Garage does not answer, or not in time.
pub const UNAVAILABLE_REASON: &str = "GarageUnavailable";
/// Anything else that went wrong.
pub const FAILED_REASON: &str = "ReconcileFailed";
/// Event about a deletion that waits for a cluster which cannot be seen.
pub const HELD_REASON: &str = "DeletionHeld";
/// Event about a bucket that stays in Garage although its object goes, because there is no cluster to ask.
pub const LEFT_REASON: &str = "LeftInGarage";
/// Event about a part of the spec that is passed over.
pub const IGNORED_REASON: &str = "FieldNotManaged";

/// What a run needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The cluster whose spec says where the Admin API is: that of the bucket, or the one that it refers to.
    pub cluster: Arc<GarageCluster>,
    /// What messages about that cluster begin with.
    pub prefix: String,
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
    rivals: Rivals,
}

impl BucketPlanner {
    /// `rivals`: to see who else records a bucket id.
    pub fn new(facts: Arc<dyn Facts>, rivals: Rivals) -> Self {
        Self { facts, rivals }
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
            BlockReason::InvalidSpec,
            "spec.clusterRef.kubeConfigSecretRef: is not supported; remove it".to_owned(),
        );
    }
    let alias = bucket
        .spec
        .global_alias
        .as_deref()
        .filter(|alias| !alias.is_empty());
    let (field, alias) = match alias {
        Some(alias) => ("spec.globalAlias", alias.to_owned()),
        None => ("metadata.name", bucket.name_any()),
    };
    if !deleting && !facts.guards().allows_alias(&alias) {
        return blocked(
            BlockReason::InvalidSpec,
            format!(
                "{field}: the alias {alias:?} is a hostname for Garage's web API and is not allowed here: set a \
                 spec.globalAlias without '.', or {} or a name below",
                facts.guards().hostname_suffixes.join(" or ")
            ),
        );
    }
    let unseen = |unseen: &Unseen| {
        let meanwhile = match (deleting, &known.bucket_id) {
            (true, _) => {
                "; until then the bucket in Garage is not removed. Or set spec.deletionPolicy: Retain, which leaves it there"
            }
            (false, Some(_)) => "; the bucket in Garage stays as it is meanwhile",
            (false, None) => "",
        };
        blocked(
            BlockReason::ClusterNotVisible,
            format!("GarageCluster {namespace}/{name}: {unseen}{meanwhile}"),
        )
    };
    let found = facts.cluster(namespace, name);
    // Where nothing of a namespace is seen, whether a grant is missing there is not known.
    if let Ok(FoundCluster::Unseen(why @ Unseen::NotWatched { .. })) = &found {
        return unseen(why);
    }
    // A grant that was taken away must not keep a bucket from being removed.
    if !deleting && let Some(denied) = denied(bucket, facts)? {
        return blocked(BlockReason::GrantDenied, denied);
    }
    let cluster = match found? {
        FoundCluster::Found(cluster) => cluster,
        FoundCluster::Unseen(why) => return unseen(&why),
        missing @ (FoundCluster::Missing | FoundCluster::NotServed) => {
            // A cluster that is certainly gone cannot be asked; the bucket, if any, went with it or stays.
            let (why, gone) = match missing {
                FoundCluster::NotServed => (
                    "the API server does not serve GarageCluster v1beta2; install its CRD",
                    facts.clusters_are_gone(),
                ),
                _ => ("not found; create it or correct spec.clusterRef", true),
            };
            let message = format!("GarageCluster {namespace}/{name}: {why}");
            let released = deleting && gone;
            return Ok(Finding::Blocked {
                reason: BlockReason::ClusterNotReady,
                message,
                released,
            });
        }
    };
    if !deleting && let Err(why) = cluster::availability(&cluster) {
        let state = match why {
            Unavailable::Deleting => "is being deleted".to_owned(),
            Unavailable::NotRunning => not_running(&cluster),
        };
        let meanwhile = match known.bucket_id {
            Some(_) => "; the bucket in Garage stays as it is meanwhile",
            None => "",
        };
        return blocked(
            BlockReason::ClusterNotReady,
            format!("GarageCluster {namespace}/{name}: {state}{meanwhile}"),
        );
    }
    let Followed { cluster: at, prefix } = match follow(&cluster, &|ns, name| facts.cluster(ns, name))? {
        Ok(followed) => followed,
        Err(nowhere) => {
            let message = format!("GarageCluster {namespace}/{name}: {}", nowhere.message);
            return blocked(BlockReason::ClusterNotReady, message);
        }
    };
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
        cluster: at,
        prefix,
        wanted,
        known,
    })))
}

/// Says what the cluster itself says, as far as that is stable.
fn not_running(cluster: &GarageCluster) -> String {
    let phase = cluster::phase(cluster).unwrap_or("not set");
    let status = cluster.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let why = conditions
        .iter()
        .find(|c| c.type_ == READY && c.status == "False" && !c.reason.is_empty())
        .map(|c| format!(" ({}, see its condition Ready)", c.reason))
        .unwrap_or_default();
    format!("status.phase is {phase}{why}; waiting for Running")
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
    let denied = grant::check(reference(bucket), grants, labels.as_ref()).err();
    Ok(denied.map(|denied| denied.where_unseen(facts.unseen_grants(namespace)).to_string()))
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
            self.rivals.claimed_by(bucket),
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
            ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::RateLimited(_) => UNAVAILABLE_REASON,
            _ => FAILED_REASON,
        };
        let deleting = bucket.metadata.deletion_timestamp.is_some();
        let mut message = error.message.clone();
        if deleting && error.class == ErrorClass::Forbidden {
            message.push_str(". Or set spec.deletionPolicy: Retain, which leaves the bucket in Garage");
        }
        let report = Report::new(Outcome::Done).condition(Condition::new(READY, false, reason, message));
        match (deleting, recorded(bucket).is_some()) {
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
            .condition(ready(false, reason.as_str(), message));
            let now = match deleting {
                true => Some(Phase::Deleting),
                false => reason.phase(recorded(bucket).is_some()),
            };
            let report = match now {
                Some(now) => phase(report, now),
                None => report,
            };
            if deleting && *reason == BlockReason::ClusterNotVisible {
                return report.note(true, HELD_REASON, message.clone());
            }
            report
        }
        Finding::Ended { end, usage } => match end.as_ref() {
            End::Done(projection) => {
                let report = Report::new(Outcome::RequeueAfter(DRIFT)).condition(ready(
                    true,
                    READY_REASON,
                    "Garage holds what is wanted",
                ));
                let usage = usage.unwrap_or(projection.usage);
                let report = projection
                    .fields(&usage)
                    .into_iter()
                    .fold(report, |report, (name, value)| report.field(name, value));
                if bucket.spec.lifecycle.is_none() {
                    return report;
                }
                report.note(
                    true,
                    IGNORED_REASON,
                    "spec.lifecycle: rules of objects are not managed and have no effect; set them with an S3 client, or \
                     remove the field",
                )
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
                let retry = match refusal.reason {
                    RefusalReason::BucketNotEmpty => SHORT,
                    RefusalReason::CreationUnanswered => AFTER_GRACE,
                    _ => DRIFT,
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
    rivals: Rivals,
    events: Arc<dyn EventSink>,
    shown: Mutex<HashMap<String, Instant>>,
    creations: Creations,
}

impl Drive {
    /// Through these clients, and with an eye on others that are about the same bucket. `events`: for an object that
    /// goes, whose status can no longer say it.
    pub fn new(access: Arc<dyn Access>, rivals: Rivals, events: Arc<dyn EventSink>) -> Self {
        Self {
            access,
            rivals,
            events,
            shown: Mutex::default(),
            creations: Creations::default(),
        }
    }

    /// Whoever goes takes along what is remembered of it.
    fn forget_if(&self, released: bool, bucket: &GarageBucket) {
        if released {
            let uid = bucket.uid().unwrap_or_default();
            self.creations.forget(&uid);
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown.remove(&uid);
        }
    }

    /// Tells that the bucket of an object that goes stays in Garage.
    async fn tell_left(&self, bucket: &GarageBucket, why: &str) {
        let known = Known::of(bucket);
        let left = match (recorded(bucket), known.reservation) {
            (Some(id), _) => format!("bucket {id}"),
            // A run may have ended between creating a bucket and recording it.
            (None, Some(alias)) => format!("bucket with the alias {alias}"),
            (None, None) => return,
        };
        let note = Note {
            warning: true,
            reason: LEFT_REASON.into(),
            message: format!(
                "{why}. The {left}, if it exists, stays in Garage: delete it with `garage bucket delete`, or adopt it with \
                 spec.bucketId"
            ),
        };
        tracing::warn!(
            namespace = bucket.namespace(),
            name = bucket.name_any(),
            "{}",
            note.message
        );
        self.events.publish(&event_reference(bucket), &note).await;
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

/// Patches of a bucket object that record an id only if nobody else does at the same moment.
struct Claiming<'a> {
    owner: &'a OwnerPatch,
    rivals: &'a Rivals,
    bucket: &'a GarageBucket,
}

#[async_trait]
impl bucket::OwnerPatch for Claiming<'_> {
    fn claim(&self, id: &BucketId) -> Option<String> {
        self.rivals.take(self.bucket, id)
    }
    async fn persist_annotation(&self, key: &str, value: Option<&str>) -> Result<(), ReconcileError> {
        self.owner.persist_annotation(key, value).await
    }
    async fn persist_status_bucket_id(&self, id: &BucketId) -> Result<(), ReconcileError> {
        let answer = self.owner.persist_status_bucket_id(id).await;
        // What may have been carried out all the same stays noted; the next run goes on with it.
        if let Err(error) = &answer
            && !matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout)
        {
            self.rivals.untake(self.bucket);
        }
        answer?;
        // Another process may have recorded the id for another object, before a change of leader. The cache shows all
        // records in the order of their versions: once it shows this one, it shows every earlier one, and the next run
        // judges by them. No other object can have recorded a bucket that was made for this one.
        match self.bucket.spec.bucket_id.as_deref() == Some(id.as_str()) {
            true => Err(ReconcileError::new(
                ErrorClass::NotReady,
                "the cache does not show the recorded bucket id yet",
            )),
            false => Ok(()),
        }
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
            Verdict::Report(Finding::Blocked {
                released, message, ..
            }) => {
                settled.released = *released;
                if settled.released {
                    self.tell_left(&request.object, message).await;
                }
                self.forget_if(settled.released, &request.object);
                return Ok(settled);
            }
            Verdict::Report(Finding::Ended { end, .. }) => {
                settled.released = request.deleting && **end == End::Gone;
                self.forget_if(settled.released, &request.object);
                return Ok(settled);
            }
            _ => return Ok(settled),
        };
        let admin = match self.access.admin(&work.cluster, false).await {
            Ok(admin) => admin,
            Err(NoAccess { message, .. }) => {
                let (namespace, name) = cluster_of(&request.object);
                let message = format!("GarageCluster {namespace}/{name}: {}{message}", work.prefix);
                settled.verdict = Verdict::Report(Finding::Blocked {
                    reason: BlockReason::ClusterNotReady,
                    message,
                    released: false,
                });
                return Ok(settled);
            }
        };
        let uid = work.wanted.uid.as_str();
        if request.deleting && work.known.bucket_id.is_none() && work.known.reservation.is_some() {
            // Deleted while it was being made, perhaps by a process that has died since.
            self.creations.presume(uid);
        }
        let creation = self.creations.of(uid);
        let mut known = Known {
            creation,
            ..work.known.clone()
        };
        let run = async |admin: &dyn GarageAdmin, known: &mut Known| {
            let noted = Noted {
                inner: admin,
                creations: &self.creations,
                uid,
            };
            let owner = Claiming {
                owner,
                rivals: &self.rivals,
                bucket: &request.object,
            };
            drive(&noted, &owner, &work.wanted, known).await
        };
        let mut ended = run(admin.as_ref(), &mut known).await;
        if let Err(DriveError::Admin(error)) = &ended
            && error.class() == AdminErrorClass::Unauthorized
            && let Ok(admin) = self.access.admin(&work.cluster, true).await
        {
            // The token may have been changed since it was read. What the first run wrote down is known.
            ended = run(admin.as_ref(), &mut known).await;
        }
        let end = ended?;
        settled.released = request.deleting && end == End::Gone;
        if creation == Creation::Late && matches!(end, End::Done(_)) {
            self.creations.forget(uid);
        }
        self.forget_if(settled.released, &request.object);
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
