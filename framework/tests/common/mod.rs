//! The lab: a small kind `Site`, an operator for it on the in-process API server, and what stories wait with. The kind
//! has what the framework's rows need: two child kinds to switch between, user annotations, a status field, and
//! (where a story asks for it) an outside system behind a finalizer.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // each test binary uses its own part

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::{CustomResource, ResourceExt, core::ObjectMeta};
use reconcile_kit::{
    layers::policy::Backoff,
    owned::{ChildCache, Lookup},
    prelude::*,
    testing::{ApiServer, Call, Mark, ResourceDef},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs a controller until its token is cancelled; `kept` lives as long.
pub fn run<K>(spec: ControllerSpec<K>, kept: impl Send + 'static) -> (CancellationToken, JoinHandle<()>)
where
    K: reconcile_kit::runtime::hub::Cached + kube::Resource<DynamicType = ()>,
{
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        run_controller(spec, stopped, || ()).await;
        drop(kept);
    });
    (stop, task)
}

/// A controller without children that reports by `reporting`.
pub fn childless<P: Planner>(
    client: kube::Client,
    planner: P,
    reporting: Reporting,
    metrics: Metrics,
) -> Parts<P> {
    let owned = Owned::new(client, "lab", "example.org", Arc::new(NoChildren), &metrics);
    let metadata = OperatorMetadata::standard("lab", "default", P::NAME);
    Parts::new(planner, owned, reporting, metadata, metrics)
}

/// The cache of a controller without children.
pub struct NoChildren;
impl ChildCache for NoChildren {
    fn child(&self, _: &ApiKind, _: &str, _: &str) -> Lookup {
        Lookup::Absent
    }
}

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "example.org", version = "v1", kind = "Site", status = "SiteStatus")]
#[kube(namespaced, schema = "disabled")]
#[serde(default)]
pub struct SiteSpec {
    /// `map`, `ingress`, or nothing at all.
    pub serve: String,
    /// The map's text or the Ingress's host.
    pub text: String,
    pub annotations: BTreeMap<String, String>,
    /// Asks for `tls: null`, which the server drops: desired and live never compare equal.
    pub quirk: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct SiteStatus {
    pub conditions: Vec<MetaCondition>,
    pub place: Option<Value>,
}

/// An object of Gateway API, as little of it as is needed.
macro_rules! kind {
    ($type:ident, $kind:literal, $plural:literal) => {
        #[derive(Clone, Debug, Default, Deserialize, Serialize)]
        pub struct $type {
            pub metadata: ObjectMeta,
            #[serde(default)]
            pub spec: Value,
            #[serde(default)]
            pub status: Value,
        }
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = kube::core::NamespaceResourceScope;
            fn kind(_: &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                "gateway.networking.k8s.io".into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
kind!(Route, "HTTPRoute", "httproutes");
kind!(Gateway, "Gateway", "gateways");

pub const MAP: ApiKind = ApiKind::new("", "v1", "ConfigMap", "configmaps");
pub const INGRESS: ApiKind = ApiKind::new("networking.k8s.io", "v1", "Ingress", "ingresses");
pub const SITE: ApiKind = ApiKind::new("example.org", "v1", "Site", "sites");
/// The operator's user on the server.
pub const USER: &str = "lab";
pub const FINALIZER: &str = "example.org/outside";
const CONTRACT: StatusContract = StatusContract {
    manager: "lab-status",
    conditions: &["Ready"],
    fields: &["place"],
    mode: StatusMode::Apply,
};

#[derive(Debug)]
pub struct Lab;

fn body(site: &Site) -> Value {
    let text = &site.spec.text;
    if site.spec.serve == "map" {
        return json!({"data": {"text": text}});
    }
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let mut spec = json!({"rules": [{"host": text, "http": {"paths": [path]}}]});
    if site.spec.quirk {
        spec["tls"] = Value::Null;
    }
    json!({ "spec": spec })
}

impl Planner for Lab {
    type Object = Site;
    type Verdict = ();
    const NAME: &'static str = "lab";

    fn needs(_: &Site) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<Site>) -> Result<Plan<()>, ReconcileError> {
        let site = request.object.as_ref();
        let mut plan = Plan::report(());
        for (kind, name) in [(MAP, "map"), (INGRESS, "ingress")] {
            if site.spec.serve == name && site.metadata.deletion_timestamp.is_none() {
                let mut child = Desired::new(kind, site, body(site));
                child.annotations = site.spec.annotations.clone();
                plan = plan.with(ChildPlan::Want(Box::new(child)));
            } else {
                plan = plan.with(ChildPlan::Gone {
                    kind,
                    namespace: site.namespace().unwrap(),
                    name: site.name_any(),
                    verify: false,
                });
            }
        }
        Ok(plan)
    }

    fn report(site: &Site, _: &Verdict<()>, children: &Children) -> Report {
        let kind = match site.spec.serve.as_str() {
            "map" => MAP,
            "ingress" => INGRESS,
            _ => return Report::new(Outcome::Done).field("place", StatusField::Clear),
        };
        let child = children.find(&kind, &site.name_any()).expect("planned");
        let (yes, reason, message, outcome) = match &child.state {
            ChildState::Foreign { owner } => (
                false,
                "Foreign",
                format!("owned by {owner}"),
                Outcome::Waiting {
                    reason: "foreign",
                    retry: Duration::from_secs(300),
                },
            ),
            ChildState::Failed(class, _) => (false, "Failed", class.label().to_owned(), Outcome::Done),
            ChildState::Waiting => (false, "Going", String::new(), Outcome::Done),
            ChildState::Contested { manager, .. } => (false, "Contested", manager.clone(), Outcome::Done),
            _ => (true, "Placed", String::new(), Outcome::Done),
        };
        let place = json!({"kind": kind.kind, "text": site.spec.text});
        Report::new(outcome)
            .condition(Condition::new("Ready", yes, reason, message))
            .field("place", StatusField::Set(place))
    }

    fn report_error(_: &Site, error: &ReconcileError) -> Report {
        let condition = Condition::new("Ready", false, "Failed", error.class.label());
        Report::new(Outcome::Done).condition(condition)
    }

    fn conditions(site: &Site) -> &[MetaCondition] {
        site.status.as_ref().map_or(&[], |s| &s.conditions)
    }

    fn status_field(site: &Site, field: &str) -> Option<Value> {
        (field == "place")
            .then(|| site.status.as_ref()?.place.clone())
            .flatten()
    }
}

/// An outside system: texts by name. It is not rolled back when the operator dies.
#[derive(Clone, Debug, Default)]
pub struct Outside(Arc<Mutex<BTreeMap<String, String>>>);

impl Outside {
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap().clone()
    }
}

impl Effects<Lab> for Outside {
    async fn perform(
        &self,
        request: &Request<Site>,
        mut settled: Settled<()>,
        owner: &OwnerPatch,
    ) -> Result<Settled<()>, ReconcileError> {
        let (name, text) = (request.object.name_any(), request.object.spec.text.clone());
        if request.deleting {
            self.0.lock().unwrap().remove(&name);
            settled.released = true;
            return Ok(settled);
        }
        // Said before it is done, so that whoever comes after a crash knows.
        if request.object.annotations().get(FINALIZER) != Some(&text) {
            owner.annotate(FINALIZER, Some(&text)).await?;
        }
        self.0.lock().unwrap().insert(name, text);
        Ok(settled)
    }
}

/// A running operator.
pub struct Operator {
    pub triggers: Triggers<Site>,
    pub metrics: Metrics,
    pub backoff: Backoff,
    pub lease: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Operator {
    pub fn start(server: &ApiServer) -> Self {
        Self::start_with(server, None)
    }

    pub fn start_with(server: &ApiServer, outside: Option<Outside>) -> Self {
        let client = server.client_as(USER);
        let metrics = Metrics::new("lab");
        let hub = WatchHub::new(client.clone(), metrics.clone());
        let ours = Selector::labels("app.kubernetes.io/managed-by=lab");
        let sites = hub.typed::<Site>(&Scope::All, &Selector::default());
        let maps = hub.children(MAP, &Scope::All, &ours);
        let ingresses = hub.children(INGRESS, &Scope::All, &ours);
        let triggers = Triggers::<Site>::default();
        let wake = triggers.clone();
        let wake = Arc::new(move |namespace: &str, name: &str| wake.push_name(Some(namespace), name));

        let caches = Arc::new(vec![(MAP, maps.clone()), (INGRESS, ingresses.clone())]);
        let mut owned = Owned::new(client.clone(), "lab", "example.org", caches, &metrics);
        owned.squatters = Some(Squatters::new(client.clone(), wake));
        let kept = (
            maps.listen(owned.memory.follow(MAP)),
            ingresses.listen(owned.memory.follow(INGRESS)),
            maps.listen(on_change_of_child(&triggers)),
            ingresses.listen(on_change_of_child(&triggers)),
            sites.listen(on_change_of_self(&triggers, |_, _| false)),
            (sites.start(), maps.start(), ingresses.start()),
        );
        let reporting = Reporting::kube(client.clone(), CONTRACT, Lab::NAME);
        let metadata = OperatorMetadata::standard("lab", "default", Lab::NAME);
        let mut parts = Parts::new(Lab, owned, reporting, metadata, metrics.clone());
        let lease = Arc::new(AtomicBool::new(true));
        let held = Arc::clone(&lease);
        parts.lease = Arc::new(move || held.load(Ordering::SeqCst));
        let backoff = parts.backoff.clone();
        let forget = Arc::new(parts.forget());
        let stack = match outside {
            None => parts.stack(),
            Some(outside) => parts.stack_with(External {
                effects: Arc::new(outside),
                finalizer: FINALIZER.into(),
                wanted: |_| true,
                writer: Arc::new(KubeOwnerWriter(client)),
                manager: "lab",
            }),
        };
        let mut spec = ControllerSpec::new(Lab::NAME, sites, triggers.clone(), stack)
            .wait_for(&maps)
            .wait_for(&ingresses);
        spec.forget = Some(forget);
        let (stop, task) = run(spec, (kept, hub));
        Self {
            triggers,
            metrics,
            backoff,
            lease,
            stop,
            task,
        }
    }

    /// The process ends at once, wherever it is.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// The process is asked to end.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// A server with the kind and a namespace `shop`.
pub fn server() -> ApiServer {
    let server = ApiServer::new();
    server.serve(ResourceDef::custom("example.org", "v1", "Site", "sites"));
    server.namespace("shop");
    server
}

pub fn site(name: &str, serve: &str, text: &str) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Site", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"serve": serve, "text": text},
    })
}

/// Waits (on tokio's clock, which the stories pause) until `found` finds something.
pub async fn eventually<T>(server: &ApiServer, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(found) = found() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: not within a minute; requests: {:#?}", server.calls())
}

/// Waits until the operator has asked for nothing for two seconds.
pub async fn quiet(server: &ApiServer) {
    for _ in 0..300 {
        let mark = server.mark();
        tokio::time::sleep(Duration::from_secs(2)).await;
        if of_operator(server, mark).is_empty() {
            return;
        }
    }
    panic!("never quiet; the last requests: {:#?}", server.calls());
}

/// What the operator asked for since `mark`.
pub fn of_operator(server: &ApiServer, mark: Mark) -> Vec<Call> {
    let mut calls = server.calls_since(mark);
    calls.retain(|c| c.user == USER);
    calls
}

/// The same as text, but for watches and their lists.
pub fn lines(server: &ApiServer, mark: Mark) -> Vec<String> {
    of_operator(server, mark)
        .iter()
        .map(|call| format!("{call}"))
        .filter(|line| !line.starts_with("LIST") && !line.starts_with("WATCH"))
        .collect()
}

/// A condition of a Site, as `status/reason`.
pub fn ready(server: &ApiServer, name: &str) -> Option<String> {
    let site = server.get("Site", "shop", name)?;
    let list = site["status"]["conditions"].as_array()?.clone();
    let condition = list.iter().find(|c| c["type"] == "Ready")?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some(format!("{}/{}", text("status"), text("reason")))
}

/// Waits for the condition.
pub async fn until_ready(server: &ApiServer, name: &str, wanted: &str) {
    eventually(server, &format!("{name} to be {wanted}"), || {
        (ready(server, name).as_deref() == Some(wanted)).then_some(())
    })
    .await;
}
