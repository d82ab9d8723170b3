//! What should stand: plans as data, and the trait that makes them. Nothing here writes.

use std::{fmt::Debug, future::Future, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::{Resource, core::NamespaceResourceScope};
use serde_json::Value;

use crate::{ApiKind, Children, ReconcileError, Report, Request};

/// The part of a controller that its domain writes.
pub trait Planner: Send + Sync + 'static {
    /// The reconciled kind.
    type Object: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static;
    /// What the plan found out besides the children; comparable, so that plans can be snapshotted.
    type Verdict: Debug + PartialEq + Send + 'static;
    /// Unique controller name: metric label, `app.kubernetes.io/component` of children.
    const NAME: &'static str;

    /// Features and APIs that this object wants. Pure and cheap; nothing if it selects another kind.
    fn needs(object: &Self::Object) -> Needs;

    /// What should stand. Reads caches, writes nothing to Kubernetes.
    fn plan(
        &self,
        request: &Request<Self::Object>,
    ) -> impl Future<Output = Result<Plan<Self::Verdict>, ReconcileError>> + Send;

    /// What to say, given what stands. Pure; messages must be stable between retries.
    fn report(object: &Self::Object, verdict: &Verdict<Self::Verdict>, children: &Children) -> Report;

    /// The object's conditions, as cached.
    fn conditions(object: &Self::Object) -> &[MetaCondition];

    /// A top-level field of the object's status, as cached; `None` if absent. Asked for the contract's fields only.
    fn status_field(object: &Self::Object, field: &str) -> Option<Value>;

    /// What to say when the reconcile failed. The retry is Policy's; the report's own outcome is ignored.
    fn report_error(object: &Self::Object, error: &ReconcileError) -> Report;
}

/// Features and APIs that an object wants. Static, so that asking allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of feature flags that must be on.
    pub features: &'static [&'static str],
    /// Kinds that must be served.
    pub apis: &'static [ApiKind],
}

/// What should stand for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<V> {
    /// Children to apply or to remove, in this order. Empty while held.
    pub children: Vec<ChildPlan>,
    /// Why nothing is touched, or what was found.
    pub verdict: Verdict<V>,
    /// Look again after this time even if nothing changes.
    pub requeue: Option<Duration>,
}

impl<V> Plan<V> {
    /// Touch no child, `Gone` included, and say why.
    pub fn hold(reason: HoldReason) -> Self {
        Self {
            children: Vec::new(),
            verdict: Verdict::Hold(reason),
            requeue: None,
        }
    }

    /// No child wanted or unwanted; only a report.
    pub fn report(verdict: V) -> Self {
        Self {
            children: Vec::new(),
            verdict: Verdict::Report(verdict),
            requeue: None,
        }
    }
}

impl<V> Plan<V> {
    /// With this child.
    #[must_use]
    pub fn with(mut self, child: ChildPlan) -> Self {
        self.children.push(child);
        self
    }
}

/// A plan's finding.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<V> {
    /// Children are left alone.
    Hold(HoldReason),
    /// The planner's own finding.
    Report(V),
}

/// Why a plan holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// A feature flag is off.
    FeatureOff(&'static str),
    /// A required API is not served.
    ApiAbsent(ApiKind),
    /// Presence of a required API has not been determined yet.
    ApiUnknown(ApiKind),
    /// The object is being deleted and nothing of ours hangs on it.
    Terminating,
}

/// One child of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildPlan {
    /// This object should stand like this.
    Want(Box<Desired>),
    /// This object should not stand, if it is ours.
    Gone {
        /// Kind of the child.
        kind: ApiKind,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The cache may not show it (labels stripped while nobody watched): ask the API server once when it does not.
        verify: bool,
    },
}

/// A child as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Kind of the child.
    pub kind: ApiKind,
    /// Its namespace: the owner's.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Labels that the object's owner asked for; operator keys are added by the Metadata layer and win.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Annotations that the object's owner asked for.
    pub annotations: std::collections::BTreeMap<String, String>,
    /// Everything but apiVersion, kind and metadata (usually `{"spec": …}`), API defaults written out, no nulls.
    pub body: Value,
    /// How it is compared and applied.
    pub options: ApplyOptions,
}

impl Desired {
    /// A child with its owner's namespace and name, and nothing but the operator's own labels.
    ///
    /// Owners and children are namespaced: an owner of a cluster-scoped kind does not compile.
    ///
    /// ```compile_fail
    /// # use reconcile_kit::{ApiKind, Desired};
    /// # const MAP: ApiKind = ApiKind::new("", "v1", "ConfigMap", "configmaps");
    /// let owner = k8s_openapi::api::core::v1::Namespace::default();
    /// Desired::new(MAP, &owner, serde_json::json!({}));
    /// ```
    ///
    /// ```
    /// # use reconcile_kit::{ApiKind, Desired};
    /// # const MAP: ApiKind = ApiKind::new("", "v1", "ConfigMap", "configmaps");
    /// let owner = k8s_openapi::api::core::v1::Secret::default();
    /// Desired::new(MAP, &owner, serde_json::json!({}));
    /// ```
    pub fn new<K: Resource<Scope = NamespaceResourceScope>>(kind: ApiKind, owner: &K, body: Value) -> Self {
        let meta = owner.meta();
        Self {
            kind,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            labels: Default::default(),
            annotations: Default::default(),
            body,
            options: ApplyOptions::default(),
        }
    }
}

/// Removes from a live object what is tolerated though it differs; gets the live object and the desired body.
pub type Tolerate = fn(live: &mut Value, desired: &Value);

/// Puts into a body that is about to be applied what of the live object is tolerated; gets the body and the live object.
pub type Keep = fn(body: &mut Value, live: &Value);

/// How a child is compared and applied.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// Differences that are not reverted.
    pub tolerate: Option<Tolerate>,
    /// What keeps them when something else of the object is applied: an atomic list would lose them otherwise.
    pub keep: Option<Keep>,
    /// JSON pointers (`/spec/rules`) below which the child holds what is desired and nothing else, tolerated differences
    /// aside: a field that the body does not name is removed there, whichever manager set it. Elsewhere the fields of other
    /// managers, and the API server's defaults, stay.
    pub whole: &'static [&'static str],
    /// The child is created and changed while its owner is being deleted, too. Without it the child is left to the
    /// garbage collector from then on, or each would undo what the other does.
    pub while_deleting: bool,
}

impl PartialEq for ApplyOptions {
    // Function addresses are no identity; that there is one is what a plan says.
    fn eq(&self, other: &Self) -> bool {
        self.tolerate.is_some() == other.tolerate.is_some()
            && self.keep.is_some() == other.keep.is_some()
            && self.whole == other.whole
            && self.while_deleting == other.while_deleting
    }
}
