//! What scenarios of exposure stand on: the test plays the operator that owns buckets and clusters (companion mode),
//! looks at conditions and children, and counts the requests of an account. No expectation about the product is here.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::audit::{AuditLog, Mark, Request};
use crate::cluster::Scenario;
use crate::error::{Error, Result};
use crate::operator::Operator;
use crate::wait;

/// Deadline of what should happen at once, on a machine that does much else.
pub const SOON: Duration = Duration::from_secs(90);
/// How long nothing more may come for a count to stand.
pub const CALM: Duration = Duration::from_millis(1500);
/// Name of the GarageCluster that [`Stage::bucket`] refers to.
pub const GARAGE: &str = "garage";
/// Root domain of that cluster's websites.
pub const DOMAIN: &str = ".example.test";

/// The objects of one namespace, by kind and name, and the log of what was asked.
#[derive(Clone)]
pub struct Stage {
    client: Client,
    namespace: String,
    log: AuditLog,
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "GarageBucket" | "GarageReferenceGrant" => ("garage.rajsingh.info", "v1beta1"),
        "GarageCluster" => ("garage.rajsingh.info", "v1beta2"),
        "Ingress" | "IngressClass" => ("networking.k8s.io", "v1"),
        "HTTPRoute" | "Gateway" | "GatewayClass" => ("gateway.networking.k8s.io", "v1"),
        "ReferenceGrant" => ("gateway.networking.k8s.io", "v1beta1"),
        "OperatorContext" | "TykOasApiDefinition" => ("tyk.tyk.io", "v1alpha1"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1"),
        "ClusterRole" | "Role" => ("rbac.authorization.k8s.io", "v1"),
        "Lease" => ("coordination.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    // kube's plural of a word in -ay is another one.
    if kind == "Gateway" {
        resource.plural = "gateways".to_owned();
    }
    resource
}

fn cluster_scoped(kind: &str) -> bool {
    matches!(
        kind,
        "IngressClass" | "GatewayClass" | "CustomResourceDefinition" | "ClusterRole" | "Namespace"
    )
}

impl Stage {
    /// The stage of a scenario.
    ///
    /// # Errors
    /// [`Error::Missing`] on a cluster without an audit log.
    pub async fn new(s: &Scenario) -> Result<Self> {
        Self::in_namespace(s, s.ns()).await
    }

    /// The same in another namespace.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub async fn in_namespace(s: &Scenario, namespace: &str) -> Result<Self> {
        Ok(Self {
            client: s.client().await?,
            namespace: namespace.to_owned(),
            log: s.cluster.audit()?,
        })
    }

    /// Its namespace.
    pub fn ns(&self) -> &str {
        &self.namespace
    }

    /// The end of the audit log now.
    ///
    /// # Errors
    /// As [`AuditLog::mark`].
    pub fn mark(&self) -> Result<Mark> {
        self.log.mark()
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = resource(kind);
        if cluster_scoped(kind) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        }
    }

    /// The object, if it is there.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        let found = self.api(kind).get_opt(name).await?;
        found.map(value).transpose()
    }

    /// Server-side apply of an object under a manager's name; its namespace is the stage's.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn apply_as(&self, manager: &str, object: &Value) -> Result<Value> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let params = PatchParams::apply(manager).force();
        let api = self.api(text("/kind"));
        value(
            api.patch(text("/metadata/name"), &params, &Patch::Apply(object))
                .await?,
        )
    }

    /// Server-side apply of an object as the test.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn apply(&self, object: Value) -> Result<Value> {
        self.apply_as("scenario", &object).await
    }

    /// POST of an object by a field manager.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn post(&self, manager: &str, object: &Value) -> Result<Value> {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let params = kube::api::PostParams {
            field_manager: Some(manager.to_owned()),
            ..Default::default()
        };
        let object = serde_json::from_value(object.clone()).map_err(|e| Error::other(e.to_string()))?;
        value(self.api(kind).create(&params, &object).await?)
    }

    /// PUT of an object by a field manager.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn put(&self, manager: &str, object: &Value) -> Result<Value> {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let name = object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let params = kube::api::PostParams {
            field_manager: Some(manager.to_owned()),
            ..Default::default()
        };
        let object = serde_json::from_value(object.clone()).map_err(|e| Error::other(e.to_string()))?;
        value(self.api(kind).replace(name, &params, &object).await?)
    }

    /// Merge patch of an object.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn merge(&self, kind: &str, name: &str, patch: Value) -> Result<Value> {
        let params = PatchParams {
            field_manager: Some("scenario-edit".to_owned()),
            ..PatchParams::default()
        };
        value(self.api(kind).patch(name, &params, &Patch::Merge(patch)).await?)
    }

    /// Merge patch of an object's status.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn merge_status(&self, kind: &str, name: &str, status: Value) -> Result<Value> {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams {
            field_manager: Some("scenario-status".to_owned()),
            ..PatchParams::default()
        };
        value(self.api(kind).patch_status(name, &params, &patch).await?)
    }

    /// Waits until the API server keeps, or drops, this of an object's status: it hears of a changed CRD through a watch.
    /// Nothing is written.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn schema_is(
        &self,
        kind: &str,
        name: &str,
        status: Value,
        pointer: &str,
        keeps: bool,
    ) -> Result<()> {
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"status": status}));
        wait::eventually(&format!("{kind}{pointer} kept: {keeps}"), SOON, || async {
            let tried = self.api(kind).patch_status(name, &params, &patch).await;
            let tried = value(tried.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
            match tried.pointer(pointer).is_some() == keeps {
                true => Ok(()),
                false => Err(short(&tried)),
            }
        })
        .await
    }

    /// Merge patch of an object's status as it was at a resourceVersion; false when it is another one now.
    ///
    /// # Errors
    /// When the API server refuses for another reason.
    pub async fn status_at(&self, kind: &str, name: &str, version: &Value, status: Value) -> Result<bool> {
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let api = self.api(kind);
        let done = api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match done {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(e)) if e.is_conflict() => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Deletes an object, without waiting.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api(kind).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the object is there and as `wanted` says; what `wanted` returns, or the object that was seen last.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn until<T>(
        &self,
        what: &str,
        kind: &str,
        name: &str,
        wanted: impl Fn(&Value) -> Option<T>,
    ) -> Result<T> {
        wait::eventually(&format!("{kind} {name}: {what}"), SOON, || async {
            match self.get(kind, name).await {
                Ok(Some(object)) => wanted(&object).ok_or_else(|| short(&object)),
                Ok(None) => Err("not there".to_owned()),
                Err(e) => Err(e.to_string()),
            }
        })
        .await
    }

    /// Waits until the object is there.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn there(&self, kind: &str, name: &str) -> Result<Value> {
        self.until("there", kind, name, |object| Some(object.clone()))
            .await
    }

    /// Waits until the object is gone.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn gone(&self, kind: &str, name: &str) -> Result<()> {
        wait::eventually(&format!("{kind} {name} gone"), SOON, || async {
            match self.get(kind, name).await {
                Ok(None) => Ok(()),
                Ok(Some(object)) => Err(short(&object)),
                Err(e) => Err(e.to_string()),
            }
        })
        .await
    }

    /// A GarageCluster of another operator that says it runs.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn garage(&self, name: &str, spec: Value) -> Result<()> {
        self.apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
            "metadata": {"name": name}, "spec": spec,
        }))
        .await?;
        self.merge_status("GarageCluster", name, json!({"phase": "Running"}))
            .await
            .map(drop)
    }

    /// The cluster [`GARAGE`] with both tiers and the root domain [`DOMAIN`].
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn usual_garage(&self) -> Result<()> {
        let spec = json!({"storage": {}, "gateway": {}, "webApi": {"rootDomain": DOMAIN}});
        self.garage(GARAGE, spec).await
    }

    /// A GarageBucket of [`GARAGE`] that asks for a website and this exposure; not yet in Garage.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn new_bucket(&self, name: &str, exposure: &Value) -> Result<Value> {
        let mut spec = json!({"clusterRef": {"name": GARAGE}, "website": {"enabled": true}});
        if let (Some(spec), false) = (spec.as_object_mut(), exposure.is_null()) {
            spec.insert("websiteExposure".to_owned(), exposure.clone());
        }
        self.apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": {"name": name}, "spec": spec,
        }))
        .await
    }

    /// What the other operator says once the bucket is in Garage under its own name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn made(&self, name: &str) -> Result<()> {
        let status = json!({"bucketId": format!("id-of-{name}"), "globalAlias": name, "phase": "Ready"});
        self.merge_status("GarageBucket", name, status).await.map(drop)
    }

    /// [`Self::new_bucket`] and [`Self::made`].
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn bucket(&self, name: &str, exposure: &Value) -> Result<Value> {
        let bucket = self.new_bucket(name, exposure).await?;
        self.made(name).await?;
        Ok(bucket)
    }

    /// Replaces what a bucket asks for; `Value::Null` unsets it.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn expose(&self, name: &str, exposure: &Value) -> Result<()> {
        self.new_bucket(name, exposure).await.map(drop)
    }

    /// Waits until `WebsiteExposed` of the bucket has this reason at the bucket's generation; the condition.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn reason(&self, name: &str, reason: &str) -> Result<Value> {
        self.until(reason, "GarageBucket", name, |bucket| {
            let condition = exposed(bucket)?;
            let current = condition.get("observedGeneration") == bucket.pointer("/metadata/generation");
            (current && condition.get("reason")? == reason).then(|| condition.clone())
        })
        .await
    }

    /// As [`Self::reason`], and until the message contains this.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn says(&self, name: &str, reason: &str, part: &str) -> Result<Value> {
        self.until(&format!("{reason}: {part}"), "GarageBucket", name, |bucket| {
            let condition = exposed(bucket)?;
            let said = condition.get("message")?.as_str()?.contains(part);
            (said && condition.get("reason")? == reason).then(|| condition.clone())
        })
        .await
    }

    /// Plays the Gateway: every parent of the route accepts it as it is now.
    ///
    /// # Errors
    /// When the route is not there or the API server refuses.
    pub async fn accept(&self, route: &str) -> Result<()> {
        let live = self.there("HTTPRoute", route).await?;
        let generation = live.pointer("/metadata/generation").cloned().unwrap_or_default();
        let condition = |name: &str| {
            json!({"type": name, "status": "True", "reason": name, "message": "", "observedGeneration": generation,
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let parents = live
            .pointer("/spec/parentRefs")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let parents: Vec<Value> = parents
            .into_iter()
            .map(|parent| {
                json!({"parentRef": parent, "controllerName": "example.test/scenario",
                       "conditions": [condition("Accepted"), condition("ResolvedRefs")]})
            })
            .collect();
        self.merge_status("HTTPRoute", route, json!({"parents": parents}))
            .await
            .map(drop)
    }

    /// The requests of an operator since the mark, without its lease, watches (and the lists that begin them), and
    /// what is no resource.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn asked(&self, operator: &Operator, mark: Mark) -> Result<Vec<Request>> {
        let all = self.log.of_user(mark, &operator.user())?;
        let other = |r: &Request| {
            !matches!(r.verb.as_str(), "watch" | "list")
                && r.resource != "leases"
                && !r.resource.starts_with('/')
        };
        Ok(all.into_iter().filter(other).collect())
    }

    /// Every request of an operator since the mark.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn everything(&self, operator: &Operator, mark: Mark) -> Result<Vec<Request>> {
        self.log.of_user(mark, &operator.user())
    }

    /// Waits until the operator has asked exactly this since the mark, as `verb resource code` lines with counts, and
    /// nothing more for [`CALM`]. Prints the row.
    ///
    /// # Errors
    /// What was asked instead.
    pub async fn costs(
        &self,
        row: &str,
        operator: &Operator,
        mark: Mark,
        expected: &[(&str, usize)],
    ) -> Result<()> {
        let wanted: BTreeMap<String, usize> = expected.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
        let probe = || async {
            let seen = tally(&self.asked(operator, mark).map_err(|e| e.to_string())?);
            if seen == wanted {
                Ok(())
            } else {
                Err(format!("asked {seen:?}, expected {wanted:?}"))
            }
        };
        wait::eventually(row, SOON, probe).await?;
        wait::throughout(row, CALM, probe).await?;
        crate::sh::say(format!("requests: {row}: {wanted:?}"));
        Ok(())
    }

    /// Waits until the operator has asked nothing for [`CALM`].
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn calm(&self, operator: &Operator) -> Result<()> {
        let mut seen = (usize::MAX, std::time::Instant::now());
        let begun = std::time::Instant::now();
        while begun.elapsed() < SOON {
            let now = self.asked(operator, Mark::START)?.len();
            if now != seen.0 {
                seen = (now, std::time::Instant::now());
            } else if seen.1.elapsed() > CALM {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(Error::other("the operator goes on asking"))
    }
}

/// How often each `verb resource code` occurs.
pub fn tally(requests: &[Request]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for r in requests {
        *counts
            .entry(format!("{} {} {}", r.verb, r.resource, r.code))
            .or_default() += 1;
    }
    counts
}

/// The condition `WebsiteExposed` of a bucket.
pub fn exposed(bucket: &Value) -> Option<&Value> {
    let conditions = bucket.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|c| c.get("type").is_some_and(|t| t == "WebsiteExposed"))
}

fn value(object: DynamicObject) -> Result<Value> {
    serde_json::to_value(object).map_err(|e| Error::other(e.to_string()))
}

/// What explains an object's state, in few words.
fn short(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object.to_string()
}

/// One of the two kinds, as scenarios speak of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An Ingress of a class that nobody serves.
    Ingress,
    /// An HTTPRoute of a Gateway that the scenario plays.
    Route,
}

impl Kind {
    /// `kind` of the object.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Route => "HTTPRoute",
        }
    }

    /// Its resource.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Ingress => "ingresses",
            Self::Route => "httproutes",
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Ingress => Self::Route,
            Self::Route => Self::Ingress,
        }
    }

    /// What a bucket asks for: this kind with two hostnames' worth of room and an annotation of its own.
    pub fn exposure(self, hostnames: &[&str], annotations: Value) -> Value {
        let mut settings = match self {
            Self::Ingress => json!({"ingressClassName": "nobody"}),
            Self::Route => json!({"parentRefs": [{"name": "nobody"}]}),
        };
        // An empty map over one with keys becomes null by server-side apply, which no schema takes.
        let empty = annotations.as_object().is_none_or(serde_json::Map::is_empty);
        if let (Some(settings), false) = (settings.as_object_mut(), empty) {
            settings.insert("annotations".to_owned(), annotations);
        }
        let mut exposure = match self {
            Self::Ingress => json!({"ingress": settings}),
            Self::Route => json!({"gateway": settings}),
        };
        if let (Some(exposure), false) = (exposure.as_object_mut(), hostnames.is_empty()) {
            exposure.insert("hostnames".to_owned(), json!(hostnames));
        }
        exposure
    }

    /// Waits until a bucket with this kind stands as far as it gets: a route needs its Gateway, played here.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn settled(self, stage: &Stage, bucket: &str) -> Result<()> {
        if self == Self::Route {
            stage.reason(bucket, "NotReady").await?;
            stage.accept(&format!("{bucket}-website")).await?;
        }
        stage.reason(bucket, "Exposed").await.map(drop)
    }

    /// As [`Self::settled`], after a change that may or may not have made a route wait.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn settled_again(self, stage: &Stage, bucket: &str) -> Result<()> {
        if self == Self::Route {
            stage.accept(&format!("{bucket}-website")).await?;
        }
        stage.reason(bucket, "Exposed").await.map(drop)
    }
}

/// Values of a chart with both exposure controllers on, in one namespace.
pub fn both(ns: &str) -> Value {
    json!({"ingress": {"enabled": true}, "gatewayAPI": {"enabled": true}, "watchNamespaces": [ns]})
}

/// Somebody's object under a name that a bucket wants.
pub fn squatter(kind: Kind, name: &str, labels: Value) -> Value {
    let (version, spec) = match kind {
        Kind::Ingress => (
            "networking.k8s.io/v1",
            json!({"ingressClassName": "theirs", "defaultBackend": {"service": {"name": "theirs", "port": {"number": 80}}}}),
        ),
        Kind::Route => (
            "gateway.networking.k8s.io/v1",
            json!({"hostnames": ["theirs.example.org"]}),
        ),
    };
    json!({"apiVersion": version, "kind": kind.name(), "metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// Ends the operator as Kubernetes would, starts it again, and waits until both controllers run and have looked at
/// what there is.
///
/// # Errors
/// When it does not end or does not get ready.
pub async fn restart(operator: &mut Operator) -> Result<()> {
    operator.terminate()?;
    operator.restart()?;
    operator.ready().await?;
    looked(operator).await
}

/// Waits until both exposure controllers have looked at every bucket since the start.
///
/// # Errors
/// [`Error::Timeout`].
pub async fn looked(operator: &Operator) -> Result<()> {
    looked_by(operator, &["ingress-exposure", "httproute-exposure"]).await
}

/// Waits until these controllers have looked at everything since the start.
///
/// # Errors
/// [`Error::Timeout`].
pub async fn looked_by(operator: &Operator, controllers: &[&str]) -> Result<()> {
    wait::eventually("the controllers have looked at everything", SOON, || async {
        let text = operator.metrics().await.map_err(|e| e.to_string())?;
        let done = controllers.iter().all(|c| {
            [
                format!("routewright_controller_state{{controller=\"{c}\",state=\"Running\"}} 1"),
                format!("workqueue_depth{{name=\"{c}\",controller=\"{c}\"}} 0"),
                format!("controller_runtime_active_workers{{controller=\"{c}\"}} 0"),
            ]
            .iter()
            .all(|wanted| text.lines().any(|line| line == wanted))
        });
        if done { Ok(()) } else { Err(text) }
    })
    .await
}
