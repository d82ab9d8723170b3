//! The two exposure controllers as planners: what one of them plans for a bucket, given what the caches hold and which
//! of the two the bucket's spec selects. Reads caches; calls nothing. What is said about it is in `status`.

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::ResourceExt;
use reconcile_kit::{
    ApiKind, Child, ChildPlan, Children, Desired, ErrorClass, Needs, Plan, Planner, ReconcileError, Report,
    Request, Verdict,
    layers::api_presence::{Presence, PresenceSnapshot},
    plan::ApplyOptions,
};
use routewright_crds::{GarageBucket, GarageCluster, GarageReferenceGrant};
use serde_json::{Value, json};

use super::{
    ExposureKind,
    class::IngressClasses,
    httproute,
    ingress::{self, addresses, keep_acme_solver, tolerate_acme_solver},
    lookup::Unseen,
    names::child_name,
    pace::AddressPace,
    resolve::{
        Blocked, ChildEffect, ClusterLookup, Inputs, Resolved, Selection, Via, cluster_of,
        needs_namespace_labels, resolve, selection, set_aside,
    },
    sharing::Shared,
    status,
    tenancy::{Guards, UNLIMITED},
};

/// One of the two exposure controllers.
pub trait Exposer: Send + Sync + 'static {
    /// The kind it owns.
    const KIND: ExposureKind;
    /// Its name: metric label and component of its children.
    const NAME: &'static str;
    /// The feature flag that lets it touch its kind.
    const FEATURE: &'static str;
    /// What an object needs that selects it.
    const NEEDS: Needs;
}

const INGRESS: ApiKind = ExposureKind::Ingress.api();
const HTTP_ROUTE: ApiKind = ExposureKind::HttpRoute.api();

/// `ingress-exposure`: also the one that speaks when no kind or more than one is selected.
#[derive(Debug)]
pub struct IngressExposer;

impl Exposer for IngressExposer {
    const KIND: ExposureKind = ExposureKind::Ingress;
    const NAME: &'static str = "ingress-exposure";
    const FEATURE: &'static str = "enable-ingress";
    const NEEDS: Needs = Needs {
        features: &[Self::FEATURE],
        apis: &[INGRESS],
    };
}

/// `httproute-exposure`.
#[derive(Debug)]
pub struct HttpRouteExposer;

impl Exposer for HttpRouteExposer {
    const KIND: ExposureKind = ExposureKind::HttpRoute;
    const NAME: &'static str = "httproute-exposure";
    const FEATURE: &'static str = "enable-gateway-api";
    const NEEDS: Needs = Needs {
        features: &[Self::FEATURE],
        apis: &[HTTP_ROUTE],
    };
}

/// What the caches hold besides the bucket. A seam: decisions are tested with plain values.
pub trait Facts: Send + Sync + 'static {
    /// The cluster, or whether its kind is not served.
    fn cluster(&self, namespace: &str, name: &str) -> Result<FoundCluster, NotReady>;
    /// Whether the CRD of GarageCluster is certainly gone, and every GarageCluster with it. A kind that is not served may
    /// only lack the version that this operator reads.
    fn clusters_are_gone(&self) -> bool {
        false
    }
    /// All grants of a namespace that can be seen.
    fn grants(&self, namespace: &str) -> Result<Vec<Arc<GarageReferenceGrant>>, NotReady>;
    /// Why some grants of a namespace cannot be seen, if so.
    fn unseen_grants(&self, _: &str) -> Option<Unseen> {
        None
    }
    /// Labels of a namespace; `None` if it is not there or may not be read.
    fn namespace_labels(&self, namespace: &str) -> Result<Option<BTreeMap<String, String>>, NotReady>;
    /// The IngressClasses, as far as they may be read.
    fn ingress_classes(&self) -> IngressClasses {
        IngressClasses::default()
    }
    /// The live child, whoever owns it.
    fn child(&self, kind: ExposureKind, namespace: &str, name: &str) -> Option<Arc<Child>>;
    /// Why children of this kind cannot be seen at all, if a right is missing for it.
    fn refused(&self, kind: ExposureKind) -> Option<String>;
    /// What this installation lets its tenants ask for.
    fn guards(&self) -> &Guards {
        &UNLIMITED
    }
    /// Of these hostnames of a bucket, those that an older bucket exposes too.
    fn shared(&self, _: &GarageBucket, _: &[String]) -> Vec<Shared> {
        Vec::new()
    }
}

/// What a controller may do about its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Its flag is on and its kind is served.
    Full,
    /// Its flag is off.
    FlagOff,
    /// Its kind is not served, so there is no object of it.
    NotServed,
    /// It is not known yet whether its kind is served.
    Unknown,
}

/// A cache that a decision needs is not complete yet, so nothing may be concluded from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady(
    /// The kind.
    pub &'static str,
);

impl From<NotReady> for ReconcileError {
    fn from(cache: NotReady) -> Self {
        Self::new(
            ErrorClass::NotReady,
            format!("the cache of {} is not complete yet", cache.0),
        )
    }
}

/// A cluster out of a cache.
#[derive(Clone, Debug)]
pub enum FoundCluster {
    /// The kind GarageCluster is not served.
    NotServed,
    /// There is certainly no such cluster.
    Missing,
    /// It may exist, and cannot be seen.
    Unseen(Unseen),
    /// This one.
    Found(Arc<GarageCluster>),
}

/// What a planner found out.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing to do and nothing to say: being deleted, or no bucket yet.
    Silent,
    /// The other controller speaks. `leftover`: a child of ours that stays because its flag is off.
    Aside {
        /// `Ingress ns/name`.
        leftover: Option<String>,
    },
    /// No exposure is asked for. `leftover` as above.
    Unset {
        /// `Ingress ns/name`.
        leftover: Option<String>,
    },
    /// Nothing can be exposed now.
    Blocked {
        /// Why.
        blocked: Blocked,
        /// Hostnames that the child of before still serves.
        serving: Vec<String>,
    },
    /// This should stand.
    Exposed {
        /// What.
        resolved: Box<Resolved>,
        /// The IngressClasses, by which the live Ingress is judged. Not asked for a route.
        classes: IngressClasses,
        /// Hostnames of it that an older bucket exposes too.
        shared: Vec<Shared>,
        /// Load-balancer addresses to show in place of the live ones, which changed too recently.
        held: Option<Vec<String>>,
    },
}

/// An exposure controller.
pub struct ExposurePlanner<E> {
    facts: Arc<dyn Facts>,
    enabled: bool,
    presence: Arc<dyn PresenceSnapshot>,
    pace: Arc<AddressPace>,
    exposer: PhantomData<fn() -> E>,
}

impl<E: Exposer> ExposurePlanner<E> {
    /// `enabled`: the feature flag.
    pub fn new(facts: Arc<dyn Facts>, enabled: bool, presence: Arc<dyn PresenceSnapshot>) -> Self {
        Self {
            facts,
            enabled,
            presence,
            pace: Arc::default(),
            exposer: PhantomData,
        }
    }

    /// What the planner keeps per bucket: to be forgotten with it.
    pub fn pace(&self) -> Arc<AddressPace> {
        Arc::clone(&self.pace)
    }

    /// Shows load-balancer addresses that change too fast later.
    fn hold_addresses(&self, bucket: &GarageBucket, plan: &mut Plan<Finding>) {
        let Verdict::Report(Finding::Exposed { resolved, held, .. }) = &mut plan.verdict else {
            return;
        };
        let (namespace, uid) = (&resolved.namespace, bucket.uid().unwrap_or_default());
        let Some(live) = own_child(E::KIND, bucket, self.facts.as_ref()) else {
            return;
        };
        if let Some((shown, wait)) =
            self.pace
                .hold(namespace, &bucket.name_any(), &uid, &addresses(&live.rest()))
        {
            *held = Some(shown);
            plan.requeue = Some(plan.requeue.map_or(wait, |before| before.min(wait)));
        }
    }
}

/// Whether this controller writes condition and status of the bucket.
pub fn speaks(kind: ExposureKind, bucket: &GarageBucket) -> bool {
    match selection(bucket) {
        Selection::Kind(selected) => selected == kind,
        Selection::Unset | Selection::Both | Selection::Neither => kind == ExposureKind::Ingress,
    }
}

impl<E: Exposer> Planner for ExposurePlanner<E> {
    type Object = GarageBucket;
    type Verdict = Finding;
    const NAME: &'static str = E::NAME;

    fn needs(bucket: &GarageBucket) -> Needs {
        let mine = selection(bucket) == Selection::Kind(E::KIND);
        // A bucket that nothing is done about needs nothing.
        if mine && set_aside(bucket).is_none() {
            E::NEEDS
        } else {
            Needs::default()
        }
    }

    async fn plan(&self, request: &Request<GarageBucket>) -> Result<Plan<Finding>, ReconcileError> {
        let reach = match self.presence.presence(&E::KIND.api()) {
            _ if !self.enabled => Reach::FlagOff,
            Presence::Served => Reach::Full,
            Presence::Absent => Reach::NotServed,
            Presence::Unknown => Reach::Unknown,
        };
        let mut plan = plan(E::KIND, &request.object, reach, self.facts.as_ref())?;
        if E::KIND == ExposureKind::Ingress {
            self.hold_addresses(&request.object, &mut plan);
        }
        Ok(plan)
    }

    fn report(bucket: &GarageBucket, verdict: &Verdict<Finding>, children: &Children) -> Report {
        status::report(E::KIND, bucket, verdict, children)
    }

    fn conditions(bucket: &GarageBucket) -> &[MetaCondition] {
        bucket
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default()
    }

    fn status_field(bucket: &GarageBucket, field: &str) -> Option<Value> {
        let exposure = bucket.status.as_ref()?.website_exposure.as_ref()?;
        (field == status::FIELD).then(|| json!(exposure))
    }

    fn report_error(bucket: &GarageBucket, error: &ReconcileError) -> Report {
        status::report_error(E::KIND, bucket, error)
    }
}

/// What the controller of `kind` plans.
pub fn plan(
    kind: ExposureKind,
    bucket: &GarageBucket,
    reach: Reach,
    facts: &dyn Facts,
) -> Result<Plan<Finding>, ReconcileError> {
    if let Some(blocked) = set_aside(bucket) {
        return Ok(Plan::report(match blocked {
            Blocked::Paused if speaks(kind, bucket) => Finding::Blocked {
                blocked,
                serving: Vec::new(),
            },
            _ => Finding::Silent,
        }));
    }
    Ok(match selection(bucket) {
        Selection::Kind(selected) if selected == kind => wanted(kind, bucket, facts)?,
        Selection::Kind(_) => {
            let (children, leftover) = removal(kind, bucket, reach, facts)?;
            Plan {
                children,
                ..Plan::report(Finding::Aside { leftover })
            }
        }
        Selection::Unset => {
            let (children, leftover) = removal(kind, bucket, reach, facts)?;
            let unset = kind == ExposureKind::Ingress;
            let finding = if unset {
                Finding::Unset { leftover }
            } else {
                Finding::Aside { leftover }
            };
            Plan {
                children,
                ..Plan::report(finding)
            }
        }
        both @ (Selection::Both | Selection::Neither) => Plan::report(if kind == ExposureKind::Ingress {
            let blocked = Blocked::Ambiguous {
                both: both == Selection::Both,
            };
            Finding::Blocked {
                blocked,
                serving: Vec::new(),
            }
        } else {
            Finding::Silent
        }),
    })
}

/// Removes our child, or names the one that has to stay.
fn removal(
    kind: ExposureKind,
    bucket: &GarageBucket,
    reach: Reach,
    facts: &dyn Facts,
) -> Result<(Vec<ChildPlan>, Option<String>), ReconcileError> {
    let recorded = status::recorded(bucket) == Some(kind);
    match reach {
        // Whoever may not look at the kind has removed nothing; where nothing was recorded there is nothing to miss.
        Reach::Full if recorded || facts.refused(kind).is_none() => {
            Ok((vec![gone(kind, bucket, facts)?], None))
        }
        Reach::FlagOff if recorded => Ok((Vec::new(), Some(child_of(kind, bucket)))),
        Reach::Unknown => Err(NotReady(kind.as_str()).into()),
        Reach::Full | Reach::FlagOff | Reach::NotServed => Ok((Vec::new(), None)),
    }
}

/// The removal of our child.
fn gone(kind: ExposureKind, bucket: &GarageBucket, facts: &dyn Facts) -> Result<ChildPlan, ReconcileError> {
    visible(kind, bucket, facts)?;
    Ok(ChildPlan::Gone {
        kind: kind.api(),
        namespace: bucket.namespace().unwrap_or_default(),
        name: child_name(&bucket.name_any()),
        // Status says that there was one: if the cache does not show it, its labels may have been stripped.
        verify: status::recorded(bucket) == Some(kind),
    })
}

/// An error where a right is missing to see the child: waiting for a cache that never comes would be silence.
fn visible(kind: ExposureKind, bucket: &GarageBucket, facts: &dyn Facts) -> Result<(), ReconcileError> {
    match facts.refused(kind) {
        None => Ok(()),
        Some(why) => Err(ReconcileError::new(
            ErrorClass::Forbidden,
            format!("watch {}: {why}", child_of(kind, bucket)),
        )),
    }
}

/// `Ingress ns/name`
fn child_of(kind: ExposureKind, bucket: &GarageBucket) -> String {
    let namespace = bucket.namespace().unwrap_or_default();
    format!("{} {namespace}/{}", kind.as_str(), child_name(&bucket.name_any()))
}

fn wanted(
    kind: ExposureKind,
    bucket: &GarageBucket,
    facts: &dyn Facts,
) -> Result<Plan<Finding>, ReconcileError> {
    let (namespace, name) = cluster_of(bucket);
    let own = bucket.namespace().unwrap_or_default();
    let cluster = facts.cluster(namespace, name)?;
    let grants = if namespace == own {
        Vec::new()
    } else {
        facts.grants(namespace)?
    };
    let grants: Vec<&GarageReferenceGrant> = grants.iter().map(Arc::as_ref).collect();
    let labels = if needs_namespace_labels(bucket, &grants) {
        facts.namespace_labels(&own)?
    } else {
        None
    };
    let inputs = Inputs {
        bucket,
        cluster: match &cluster {
            FoundCluster::NotServed => ClusterLookup::NotServed,
            FoundCluster::Missing => ClusterLookup::Missing,
            FoundCluster::Unseen(unseen) => ClusterLookup::Unseen(unseen),
            FoundCluster::Found(cluster) => ClusterLookup::Found(cluster),
        },
        grants,
        unseen_grants: (namespace != own)
            .then(|| facts.unseen_grants(namespace))
            .flatten(),
        namespace_labels: labels.as_ref(),
        guards: facts.guards(),
    };
    Ok(match resolve(&inputs) {
        Ok(resolved) => {
            visible(kind, bucket, facts)?;
            let classes = match &resolved.via {
                Via::Ingress(_) => facts.ingress_classes(),
                Via::HttpRoute(_) => IngressClasses::default(),
            };
            let shared = facts.shared(bucket, &resolved.hostnames);
            let children = vec![ChildPlan::Want(Box::new(desired(&resolved)))];
            Plan {
                children,
                ..Plan::report(Finding::Exposed {
                    resolved: Box::new(resolved),
                    classes,
                    shared,
                    held: None,
                })
            }
        }
        Err(blocked) => {
            let (mut children, mut serving) = (Vec::new(), Vec::new());
            match blocked.effect().child {
                ChildEffect::Untouched => {}
                ChildEffect::Removed => children.push(gone(kind, bucket, facts)?),
                ChildEffect::Kept => {
                    let live = own_child(kind, bucket, facts);
                    serving = live.map(|child| hostnames_of(kind, &child)).unwrap_or_default();
                }
            }
            Plan {
                children,
                ..Plan::report(Finding::Blocked { blocked, serving })
            }
        }
    })
}

/// The live child, if the bucket controls it.
fn own_child(kind: ExposureKind, bucket: &GarageBucket, facts: &dyn Facts) -> Option<Arc<Child>> {
    let namespace = bucket.namespace().unwrap_or_default();
    let child = facts.child(kind, &namespace, &child_name(&bucket.name_any()))?;
    let owned = child
        .controller()
        .is_some_and(|owner| Some(&owner.uid) == bucket.metadata.uid.as_ref());
    owned.then_some(child)
}

/// The child as the framework applies it: the resolved body without what the layers add.
pub fn desired(resolved: &Resolved) -> Desired {
    let spec = resolved
        .body()
        .get_mut("spec")
        .map(Value::take)
        .unwrap_or_default();
    let options = match resolved.kind() {
        ExposureKind::Ingress => ApplyOptions {
            tolerate: Some(tolerate_acme_solver),
            keep: Some(keep_acme_solver),
            whole: ingress::WHOLE,
            ..ApplyOptions::default()
        },
        ExposureKind::HttpRoute => ApplyOptions {
            whole: httproute::WHOLE,
            ..ApplyOptions::default()
        },
    };
    Desired {
        kind: resolved.kind().api(),
        namespace: resolved.namespace.clone(),
        name: resolved.name.clone(),
        labels: resolved.labels.clone(),
        annotations: resolved.annotations.clone(),
        body: json!({ "spec": spec }),
        options,
    }
}

/// The hostnames that a live child serves, each once.
pub(super) fn hostnames_of(kind: ExposureKind, child: &Child) -> Vec<String> {
    let spec = child.part("spec");
    let hosts = |list: Option<&Value>, host: fn(&Value) -> Option<&str>| -> Vec<String> {
        let entries = list.and_then(Value::as_array).into_iter().flatten();
        let mut found: Vec<String> = Vec::new();
        for host in entries.filter_map(host) {
            if !found.iter().any(|known| known == host) {
                found.push(host.to_owned());
            }
        }
        found
    };
    match kind {
        ExposureKind::Ingress => hosts(spec.get("rules"), |rule| rule.get("host").and_then(Value::as_str)),
        ExposureKind::HttpRoute => hosts(spec.get("hostnames"), Value::as_str),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
