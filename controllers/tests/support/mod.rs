//! The whole operator on the in-process API server: what stories about exposure are told with.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reconcile_kit::{
    runtime::{
        Metrics, Scope,
        leadership::Leadership,
        probes::{Probes, probe_router},
    },
    testing::{Answer, ApiServer, Call, Mark, ResourceDef, Verb},
};
use routewright::{
    app::{App, Doors, Options},
    exposure::tenancy::Guards,
    garage::access::Access,
    ground::Ground,
    tyk::{
        client::{TykError, TykErrorClass},
        controllers::Reach,
        objects::Key,
        sync::{Contexts, Done, Job, Secrets, Syncing},
        verdict::Connection,
    },
};
use serde_json::{Value, json};

/// User that the operator acts as.
pub const OPERATOR: &str = "system:serviceaccount:routewright:routewright";

/// Grows with the turns that a runtime of one thread has, some hundred a second: time that passes while it stands still does
/// not count.
pub fn turns(runtime: &tokio::runtime::Runtime) -> Arc<AtomicUsize> {
    let turns = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&turns);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    turns
}

/// Flags off, everything else by default.
pub fn options() -> Options {
    Options {
        enable_ingress: false,
        enable_gateway_api: false,
        enable_garage_buckets: false,
        scope: Scope::All,
        cluster_domain: "cluster.local".into(),
        concurrency: 16,
        instance: "one".into(),
        pod: Some("pod-1".into()),
        extra_ca: None,
        guards: Guards::default(),
        tyk: Default::default(),
    }
}

/// Both exposure flags on.
pub fn both() -> Options {
    Options {
        enable_ingress: true,
        enable_gateway_api: true,
        ..options()
    }
}

/// A server with namespaces, the Garage CRDs, an IngressClass and, by `gateway_api`, HTTPRoute.
pub fn server(gateway_api: bool) -> ApiServer {
    let server = ApiServer::new();
    server.namespace("web").namespace("storage");
    for crd in routewright_crds::all().unwrap() {
        server.create(json!(crd));
    }
    server.create(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": "public", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "example.org/controller"},
    }));
    if gateway_api {
        install_gateway_api(&server);
    }
    server
}

/// The CRD object by which the API server begins to serve HTTPRoute.
pub fn install_gateway_api(server: &ApiServer) {
    server.serve(ResourceDef::http_route());
    server.create(http_route_crd());
}

fn http_route_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "httproutes.gateway.networking.k8s.io"},
        "spec": {
            "group": "gateway.networking.k8s.io", "scope": "Namespaced",
            "names": {"kind": "HTTPRoute", "listKind": "HTTPRouteList", "plural": "httproutes", "singular": "httproute"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// A Running cluster `web/garage` under the root domain `.site.test`.
pub fn cluster() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "garage"},
        "spec": {"storage": {"replicas": 1}, "webApi": {"rootDomain": ".site.test"}},
        "status": {"phase": "Running"},
    })
}

/// A bucket `web/blog` with alias `blog` and a website, exposed as `exposure` says.
pub fn bucket(exposure: Value) -> Value {
    let mut bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog"},
        "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true}},
        "status": {"bucketId": "b1", "globalAlias": "blog", "phase": "Ready"},
    });
    if !exposure.is_null() {
        bucket["spec"]["websiteExposure"] = exposure;
    }
    bucket
}

/// Exposed by an Ingress.
pub fn by_ingress() -> Value {
    json!({"ingress": {"ingressClassName": "public"}})
}

/// Exposed by an HTTPRoute.
pub fn by_route() -> Value {
    json!({"gateway": {"parentRefs": [{"name": "public"}]}})
}

/// Creates an object together with its status.
pub fn put(server: &ApiServer, object: Value) {
    let status = object.get("status").cloned();
    let (kind, namespace, name) = (
        object["kind"].as_str().unwrap().to_owned(),
        object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        object["metadata"]["name"].as_str().unwrap().to_owned(),
    );
    server.create(object);
    if let Some(status) = status {
        server.set_status(&kind, &namespace, &name, status);
    }
}

/// A Tyk that takes everything at once and holds nothing.
struct Willing;

#[async_trait::async_trait]
impl Syncing for Willing {
    async fn submit(&self, _: &Arc<Connection>, _: Job) -> Done {
        Done::default()
    }
    fn forget(&self, _: &Key) {}
}

#[async_trait::async_trait]
impl Contexts for Willing {
    async fn connection(&self, _: &Key, _: Secrets) -> Result<Arc<Connection>, TykError> {
        Err(TykError::new(
            TykErrorClass::NoConnection,
            "there is no Tyk in these stories",
        ))
    }
}

/// Starts the operator.
pub fn start(server: &ApiServer, options: &Options) -> App {
    start_beside(server, options, None)
}

/// Starts the operator with this way to Garage; `None`: HTTP.
pub fn start_beside(server: &ApiServer, options: &Options, access: Option<Arc<dyn Access>>) -> App {
    App::start_with(
        server.client_as(OPERATOR),
        Leadership::always(),
        Metrics::default(),
        options,
        Doors {
            garage: access,
            tyk: Some(Arc::new(|_: &Ground, _| Reach {
                sync: Arc::new(Willing),
                contexts: Arc::new(Willing),
            })),
        },
    )
    .unwrap()
}

/// Waits until `wanted` gives something; fails with the server's log when it does not.
pub async fn eventually<T>(server: &ApiServer, what: &str, mut wanted: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = wanted() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!(
        "{what} did not come about; the server saw:\n{}",
        log(&server.calls())
    );
}

/// Waits until the operator has asked for nothing for a while, and returns what it asked since `mark`.
pub async fn quiet(server: &ApiServer, mark: Mark) -> Vec<String> {
    let mut seen = usize::MAX;
    loop {
        let calls = server.calls_since(mark);
        if calls.len() == seen {
            return lines(&calls);
        }
        seen = calls.len();
        tokio::time::sleep(QUIET).await;
    }
}

/// No request for so long is quiet.
const QUIET: Duration = Duration::from_secs(2);

/// The operator's calls besides watches, lists of watches and discovery.
pub fn lines(calls: &[Call]) -> Vec<String> {
    calls
        .iter()
        .filter(|call| call.user == OPERATOR)
        .filter(|call| call.verb.is_write() || matches!(call.verb, Verb::Get | Verb::GetMetadata))
        .filter(|call| !call.resource.is_empty())
        .map(short)
        .collect()
}

/// `APPLY ingresses blog-website -> 200`; an event is `EVENT Warning Reason`. Objects of other namespaces than `web` carry
/// theirs.
pub fn short(call: &Call) -> String {
    let answer = match call.answer {
        Answer::Pending => "no answer".to_owned(),
        Answer::Code(code) => code.to_string(),
        Answer::Lost(code) => format!("{code}, answer lost"),
        Answer::Broken => "connection error".to_owned(),
    };
    if call.resource == "events" {
        let text = |field: &str| {
            let body = call.body.as_ref();
            body.and_then(|b| b[field].as_str()).unwrap_or("again").to_owned()
        };
        let failed = if call.succeeded() {
            String::new()
        } else {
            format!(" -> {answer}")
        };
        return format!("EVENT {} {}{failed}", text("type"), text("reason"));
    }
    let sub = if call.subresource.is_empty() {
        String::new()
    } else {
        format!("/{}", call.subresource)
    };
    let namespace = match call.namespace.as_str() {
        "web" | "" => String::new(),
        other => format!("{other}/"),
    };
    format!(
        "{} {}{sub} {namespace}{} -> {answer}",
        call.verb, call.resource, call.name
    )
}

fn log(calls: &[Call]) -> String {
    calls.iter().map(|call| format!("  {call}\n")).collect()
}

/// The bucket's condition as `status/reason: message`.
pub fn condition(server: &ApiServer, name: &str) -> Option<(String, String, String)> {
    let bucket = server.get("GarageBucket", "web", name)?;
    let condition = bucket["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == "WebsiteExposed")?
        .clone();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// Waits for the condition's reason.
pub async fn reason(server: &ApiServer, name: &str, wanted: &str) -> String {
    let what = format!(
        "WebsiteExposed {wanted} of {name} (now {:?})",
        condition(server, name)
    );
    eventually(server, &what, || {
        condition(server, name).filter(|c| c.1 == wanted).map(|c| c.2)
    })
    .await
}

/// Nothing was read and nothing written.
pub const NOTHING: [&str; 0] = [];
/// An Ingress came into being, and the bucket says so.
pub const INGRESS_CREATED: [&str; 3] = [
    "APPLY ingresses blog-website -> 201",
    "APPLY garagebuckets/status blog -> 200",
    "EVENT Normal Exposed",
];
/// An HTTPRoute came into being and waits for its Gateway.
pub const ROUTE_CREATED: [&str; 3] = [
    "APPLY httproutes blog-website -> 201",
    "APPLY garagebuckets/status blog -> 200",
    "EVENT Normal NotReady",
];

/// The operator beside one bucket, `web/blog`, from one quiet moment to the next.
pub struct Story {
    /// The API server.
    pub server: ApiServer,
    /// The operator, while it runs.
    pub operator: Option<App>,
    /// A new way to Garage for every process; HTTP when absent.
    access: Option<NewAccess>,
    mark: Mark,
}

/// Makes the way to Garage for one process.
pub type NewAccess = Arc<dyn Fn(&ApiServer) -> Arc<dyn Access> + Send + Sync>;

impl Story {
    /// Starts the operator on a server with these objects, and waits until it is quiet.
    pub async fn begin(
        gateway_api: bool,
        options: &Options,
        objects: impl IntoIterator<Item = Value>,
    ) -> Self {
        let server = server(gateway_api);
        for object in objects {
            put(&server, object);
        }
        Self::on(server, options).await
    }

    /// The same on a given server. What the operator asked so far is the first answer of [`Story::settle`].
    pub async fn on(server: ApiServer, options: &Options) -> Self {
        Self::beside(server, options, None).await
    }

    /// The same with another way to Garage than HTTP.
    pub async fn beside(server: ApiServer, options: &Options, access: Option<NewAccess>) -> Self {
        let mark = server.mark();
        let operator = Some(start_beside(
            &server,
            options,
            access.as_ref().map(|new| new(&server)),
        ));
        let mut story = Self {
            server,
            operator,
            access,
            mark,
        };
        let first = story.mark;
        story.settle().await;
        story.mark = first;
        story
    }

    /// A cluster and a bucket with this exposure; what led there is past.
    pub async fn exposed(exposure: Value) -> Self {
        let mut story = Self::begin(true, &both(), [cluster(), bucket(exposure)]).await;
        story.settle().await;
        story
    }

    /// Waits until the operator asks for nothing any more; its requests since the last time, in order.
    pub async fn settle(&mut self) -> Vec<String> {
        lines(&self.calls().await)
    }

    /// The same in alphabetical order, for what two controllers do side by side.
    pub async fn settle_sorted(&mut self) -> Vec<String> {
        let mut lines = self.settle().await;
        lines.sort();
        lines
    }

    /// The same as whole calls, watches and lists included.
    pub async fn calls(&mut self) -> Vec<Call> {
        let mut seen = usize::MAX;
        loop {
            let calls = self.server.calls_since(self.mark);
            if calls.len() == seen {
                self.mark = self.server.mark();
                return calls;
            }
            seen = calls.len();
            tokio::time::sleep(QUIET).await;
        }
    }

    /// Lets time pass; the requests of that time, whatever they were about.
    pub async fn pass(&mut self, time: Duration) -> Vec<Call> {
        tokio::time::sleep(time).await;
        let calls = self.server.calls_since(self.mark);
        self.mark = self.server.mark();
        calls
    }

    /// Merge patch of the bucket.
    pub fn edit(&self, change: Value) {
        self.server.edit("GarageBucket", "web", "blog", change);
    }

    /// Sets the bucket's exposure.
    pub fn expose(&self, exposure: Value) {
        self.edit(json!({"spec": {"websiteExposure": null}}));
        if !exposure.is_null() {
            self.edit(json!({"spec": {"websiteExposure": exposure}}));
        }
    }

    /// Changes the bucket's status as its own controller would; `null` removes a field.
    pub fn bucket_status(&self, change: Value) {
        let mut status = self.bucket()["status"].clone();
        let fields = status.as_object_mut().unwrap();
        for (field, value) in change.as_object().unwrap() {
            match value {
                Value::Null => fields.remove(field),
                value => fields.insert(field.clone(), value.clone()),
            };
        }
        self.server.set_status("GarageBucket", "web", "blog", status);
    }

    /// Sets the cluster's phase.
    pub fn phase(&self, phase: &str) {
        self.server
            .set_status("GarageCluster", "web", "garage", json!({"phase": phase}));
    }

    /// The bucket.
    pub fn bucket(&self) -> Value {
        self.server.get("GarageBucket", "web", "blog").unwrap()
    }

    /// `True/Exposed: message`, or `–`.
    pub fn says(&self) -> String {
        condition(&self.server, "blog").map_or("–".into(), |(status, reason, text)| {
            format!("{status}/{reason}: {text}")
        })
    }

    /// `status.websiteExposure`.
    pub fn block(&self) -> Value {
        self.bucket()["status"]["websiteExposure"].clone()
    }

    /// The Ingress.
    pub fn ingress(&self) -> Option<Value> {
        self.server.get("Ingress", "web", "blog-website")
    }

    /// The HTTPRoute.
    pub fn route(&self) -> Option<Value> {
        self.server.get("HTTPRoute", "web", "blog-website")
    }

    /// Hosts of the Ingress.
    pub fn hosts(&self) -> Vec<String> {
        let ingress = self.ingress().expect("an Ingress");
        let rules = ingress["spec"]["rules"].as_array().unwrap();
        rules
            .iter()
            .map(|rule| rule["host"].as_str().unwrap().to_owned())
            .collect()
    }

    /// All events about the bucket, `Type Reason: note`.
    pub fn events(&self) -> Vec<String> {
        let events = self.server.list("Event", "web");
        let text = |event: &Value| {
            let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", field("type"), field("reason"), field("note"))
        };
        events.iter().map(text).collect()
    }

    /// The Gateways' word on the route, about its present generation.
    pub fn route_status(&self, parents: Value) {
        self.server
            .set_status("HTTPRoute", "web", "blog-website", json!({"parents": parents}));
    }

    /// An entry of `status.parents` of the route for one parent, about its present generation.
    pub fn parent(&self, reference: Value, conditions: &[(&str, &str)]) -> Value {
        let generation = self.route().unwrap()["metadata"]["generation"].clone();
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({"type": type_, "status": status, "reason": format!("{type_}Reason"),
                    "message": format!("about {type_}"), "observedGeneration": generation,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        json!({"controllerName": "example.org/gateway", "parentRef": reference, "conditions": conditions})
    }

    /// The one Gateway `public` serves the route, or says no.
    pub fn gateway_says(&self, accepted: &str) {
        let conditions = [("Accepted", accepted), ("ResolvedRefs", "True")];
        self.route_status(json!([self.parent(json!({"name": "public"}), &conditions)]));
    }

    /// Stops the operator in good order.
    pub async fn stop(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.shutdown().await;
        }
    }

    /// Stops it and starts it again with these options; everything that it asks while doing so.
    pub async fn restart(&mut self, options: &Options) -> Vec<String> {
        self.stop().await;
        self.mark = self.server.mark();
        let access = self.access.as_ref().map(|new| new(&self.server));
        self.operator = Some(start_beside(&self.server, options, access));
        self.settle().await
    }

    /// What the metrics endpoint shows.
    pub fn metrics(&self) -> String {
        self.operator.as_ref().unwrap().metrics.encode()
    }

    /// What `/readyz?verbose` says.
    pub async fn readyz(&self) -> String {
        verbose(self.operator.as_ref().unwrap()).await
    }
}

/// What `/readyz?verbose` of an operator says.
pub async fn verbose(operator: &App) -> String {
    use tower::ServiceExt;
    let router = probe_router(Probes {
        supervisor: operator.supervisor.clone(),
        hub: operator.hub.clone(),
        leadership: operator.leadership.clone(),
    });
    let request = http::Request::get("/readyz?verbose")
        .body(axum::body::Body::empty())
        .unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// How many of these calls are the operator's and about this plural resource.
pub fn about(calls: &[Call], resource: &str) -> Vec<String> {
    calls
        .iter()
        .filter(|call| call.user == OPERATOR && call.resource == resource)
        .map(|call| format!("{call}"))
        .collect()
}
