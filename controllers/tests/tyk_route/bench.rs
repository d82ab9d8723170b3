//! The controller's whole stack beside an API server, a world that is told what the server holds, and a Tyk: run by hand,
//! object by object, until nothing changes. No assertion about the product but that it comes to an end.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use reconcile_kit::{
    ApiKind, BoxReconcile, ErrorClass, Outcome, Request,
    layers::{conditions::Reporting, metadata::OperatorMetadata, owned_children::Owned},
    owned::{ChildCache, KubeChildWriter, Lookup, WriteMemory},
    owner::KubeOwnerWriter,
    runtime::Metrics,
    stack::{External, Parts},
    testing::{ApiServer, Call, Mark, ResourceDef},
};
use routewright::tyk::{
    Settings,
    httproute::{
        Drive, RoutePlanner,
        names::{self, ANNOTATION, FINALIZER},
        places::InMemory,
        planner::{CONTRACT, Known},
    },
    objects::{Event, Fingerprint, Key, Object},
    verdict::{Connection, Mode},
    world::{Answer, WatchedRoute, World},
};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) use super::tyk_objects::*;
use super::{
    tyk::Ways,
    tyks::{Tyks, Where},
};

/// Who the operator is for the API server.
pub(crate) const OPERATOR: &str = "system:serviceaccount:routewright:routewright";
/// Where another Tyk is.
pub(crate) const OTHER: &str = "http://other.tyk.svc:8080";
pub(crate) const NOTHING: [&str; 0] = [];

const KINDS: [&str; 10] = [
    "GatewayClass",
    "Gateway",
    "HTTPRoute",
    "ReferenceGrant",
    "OperatorContext",
    "TykOasApiDefinition",
    "Service",
    "Secret",
    "ConfigMap",
    "Namespace",
];

struct Childless;
impl ChildCache for Childless {
    fn child(&self, _: &ApiKind, _: &str, _: &str) -> Lookup {
        Lookup::NotReady
    }
}

/// One process.
struct Process {
    stack: BoxReconcile<WatchedRoute>,
    drive: Arc<Drive>,
}

pub(crate) struct Bench {
    pub(crate) server: ApiServer,
    pub(crate) tyk: Tyks,
    pub(crate) ways: Ways,
    /// Where contexts led while a class named them; outlives a process.
    pub(crate) record: InMemory,
    settings: Settings,
    place: Where,
    world: World,
    told: Mutex<BTreeSet<(String, String, String)>>,
    process: Process,
    mark: Mark,
    /// What the last look at `shop/r` came to.
    pub(crate) last: Outcome,
}

impl Bench {
    /// Tyk in memory, class, Gateway and Services; no route yet.
    pub(crate) async fn new() -> Self {
        Self::at(&Where::Memory).await
    }

    /// The same with a Tyk somewhere else.
    pub(crate) async fn at(place: &Where) -> Self {
        let server = server();
        for object in platform() {
            server.create(object);
        }
        let mut mode = context("main", URL);
        mode["spec"]["env"]["mode"] = json!(place.mode());
        server.edit("OperatorContext", "tyk", "main", json!({"spec": mode["spec"]}));
        let settings = Settings::default();
        let world = World::still(settings.clone(), "cluster-1", []);
        let (tyk, ways) = (place.start(URL).await, Ways::default());
        let record = InMemory::default();
        let process = process(&server, &settings, &world, &tyk, (&ways, &record));
        let mark = server.mark();
        Self {
            server,
            tyk,
            ways,
            record,
            settings,
            place: place.clone(),
            world,
            told: Mutex::default(),
            process,
            mark,
            last: Outcome::Done,
        }
    }

    /// With these routes, and what followed is past.
    pub(crate) async fn with(routes: impl IntoIterator<Item = Value>) -> Self {
        Self::at_with(&Where::Memory, routes).await
    }

    pub(crate) async fn at_with(place: &Where, routes: impl IntoIterator<Item = Value>) -> Self {
        let mut bench = Self::at(place).await;
        for route in routes {
            bench.server.create(route);
        }
        bench.settle().await;
        bench.tyk.writes();
        bench.tyk.reads();
        bench
    }

    /// A further context that leads to a Tyk of the same kind.
    pub(crate) fn add_context(&self, name: &str, url: &str) {
        self.server.create(self.context(name, url));
    }

    pub(crate) fn context(&self, name: &str, url: &str) -> Value {
        let mut context = context(name, url);
        context["spec"]["env"]["mode"] = json!(self.place.mode());
        context
    }

    /// The old process is gone, a new one begins.
    pub(crate) fn restart(&mut self) {
        self.server.revive();
        self.tyk.revive();
        self.world = World::still(self.settings.clone(), "cluster-1", []);
        self.told.lock().unwrap().clear();
        let ways = (&self.ways, &self.record);
        self.process = process(&self.server, &self.settings, &self.world, &self.tyk, ways);
    }

    /// From here on it is the process of another installation, beside the same Tyks.
    pub(crate) fn become_(&mut self, controller: &str) {
        self.settings.controller_name = controller.to_owned();
        self.restart();
    }

    /// The world hears what the server holds.
    pub(crate) fn tell(&self) {
        let mut told = self.told.lock().unwrap();
        let mut there = BTreeSet::new();
        let mut events = Vec::new();
        let mut ways = std::collections::BTreeMap::new();
        for kind in KINDS {
            for object in self.server.list(kind, "") {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                there.insert((kind.to_owned(), text("namespace"), text("name")));
                if let Some(decoded) = Object::decode(&object).unwrap() {
                    events.push(Event::Seen(Box::new(decoded)));
                }
                if kind == "OperatorContext"
                    && let Some(connection) = self.leads_to(&object)
                {
                    ways.insert(connection.context.clone(), Arc::new(connection));
                }
            }
        }
        for (kind, namespace, name) in told.difference(&there) {
            let empty = json!({"apiVersion": api_version(kind), "kind": kind,
                               "metadata": {"namespace": namespace, "name": name}});
            if let Some(object) = Object::decode(&empty).unwrap() {
                let (kind, key) = object.id();
                events.push(Event::Gone(kind, key.clone()));
            }
        }
        *told = there;
        *self.ways.0.lock().unwrap() = ways;
        self.world.say(events);
    }

    /// The world hears of one route.
    pub(crate) fn tell_route(&self, namespace: &str, name: &str) {
        let route = self.server.get("HTTPRoute", namespace, name).unwrap();
        let decoded = Object::decode(&route).unwrap().unwrap();
        self.world.say([Event::Seen(Box::new(decoded))]);
    }

    /// As the operator's own reader of contexts does: the Secret must be there.
    fn leads_to(&self, context: &Value) -> Option<Connection> {
        let secret = context["spec"]["secretRef"]["name"].as_str()?;
        self.server.get("Secret", "tyk", secret)?;
        Some(Connection {
            url: context["spec"]["env"]["url"].as_str()?.to_owned(),
            org: context["spec"]["env"]["org"].as_str()?.to_owned(),
            mode: match context["spec"]["env"]["mode"].as_str()? {
                "pro" => Mode::Dashboard,
                _ => Mode::OpenSource,
            },
            context: Key::new(
                context["metadata"]["namespace"].as_str()?,
                context["metadata"]["name"].as_str()?,
            ),
            fingerprint: Fingerprint("today".into()),
        })
    }

    /// One look at one route.
    pub(crate) async fn look(&mut self, namespace: &str, name: &str) -> Outcome {
        let Some(object) = self.server.get("HTTPRoute", namespace, name) else {
            self.process.drive.forget(&Key::new(namespace, name));
            return Outcome::Done;
        };
        let route: WatchedRoute = serde_json::from_value(object).unwrap();
        let stack = self.process.stack.clone();
        let outcome = stack.oneshot(Request::new(Arc::new(route))).await.unwrap();
        if name == "r" {
            self.last = outcome.clone();
        }
        outcome
    }

    /// Looks at every route until nothing changes any more; what the operator wrote to Kubernetes since the last time.
    /// A route whose retry is further away than a second waits for it.
    pub(crate) async fn settle(&mut self) -> Vec<String> {
        for _ in 0..20 {
            self.tell();
            let before = self.server.revision();
            let mut soon = false;
            for route in self.server.list("HTTPRoute", "") {
                let text = |field: &str| route["metadata"][field].as_str().unwrap().to_owned();
                let outcome = self.look(&text("namespace"), &text("name")).await;
                let stale = matches!(
                    outcome,
                    Outcome::Failed {
                        class: ErrorClass::Conflict | ErrorClass::NotReady,
                        ..
                    }
                );
                soon |=
                    stale || matches!(outcome, Outcome::RequeueAfter(wait) if wait < Duration::from_secs(1));
            }
            if soon {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            if self.server.revision() == before {
                let calls = self.server.calls_since(self.mark);
                self.mark = self.server.mark();
                return lines(&calls);
            }
        }
        panic!("no end: {:?}", lines(&self.server.calls_since(self.mark)));
    }

    /// The same until the process dies.
    pub(crate) async fn until_dead(&mut self) {
        let run = tokio::time::timeout(Duration::from_secs(30), self.settle()).await;
        assert!(
            self.server.is_killed() || self.tyk.is_dead(),
            "it was not reached: {run:?}"
        );
    }

    /// Waits for the retry of the last look, and looks again. In real time something else brings about a look before.
    pub(crate) async fn retry(&mut self) -> Vec<String> {
        let mut wait = self.last.retry().expect("a retry");
        if matches!(self.place, Where::Http(_)) {
            wait = wait.min(Duration::from_secs(1));
        }
        tokio::time::sleep(wait).await;
        self.settle().await
    }

    /// What the annotation says of these APIs in the first Tyk.
    pub(crate) fn remembers(&self, paths: &[&str]) -> Option<String> {
        let found = ids(paths);
        let short: Vec<&str> = found.iter().map(|id| id.trim_start_matches("gwapi-")).collect();
        let tyk = Connection {
            url: URL.into(),
            org: "o1".into(),
            mode: match self.place.mode() {
                "pro" => Mode::Dashboard,
                _ => Mode::OpenSource,
            },
            context: Key::default(),
            fingerprint: Fingerprint(String::new()),
        }
        .digest();
        (!short.is_empty()).then(|| format!("tyk/main@{tyk}={}", short.join(",")))
    }

    pub(crate) fn edit(&self, change: Value) {
        self.server.edit("HTTPRoute", "shop", "r", change);
    }

    /// The route `shop/r`.
    pub(crate) fn route(&self) -> Option<Value> {
        self.server.get("HTTPRoute", "shop", "r")
    }

    /// `True/Accepted: message` of the n-th own entry; `-` without one.
    pub(crate) fn said(&self, type_: &str, n: usize) -> String {
        let route = self.route().unwrap_or_default();
        let own = route["status"]["parents"].as_array().cloned().unwrap_or_default();
        let own: Vec<Value> = own
            .into_iter()
            .filter(|entry| entry["controllerName"] == "routewright.dev/tyk")
            .collect();
        let conditions = own.get(n).and_then(|entry| entry["conditions"].as_array());
        let found = conditions.into_iter().flatten().find(|c| c["type"] == type_);
        found.map_or("-".to_owned(), |c| {
            let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}: {}", text("status"), text("reason"), text("message"))
        })
    }

    pub(crate) fn accepted(&self) -> String {
        self.said("Accepted", 0)
    }

    /// attachedRoutes of the first listener of `infra/edge`.
    pub(crate) fn attached(&self) -> u32 {
        match self.world.gateway(&Key::new("infra", "edge")) {
            Answer::Known(verdict) => verdict.listeners[0].attached_routes,
            other => panic!("{other:?}"),
        }
    }

    /// The places and ids in the annotation.
    pub(crate) fn annotation(&self) -> Option<String> {
        let text = self.whole_annotation()?;
        Some(text.split(";#").next().unwrap_or_default().to_owned())
    }

    /// The annotation with the digest of the documents behind it.
    pub(crate) fn whole_annotation(&self) -> Option<String> {
        let route = self.route()?;
        route["metadata"]["annotations"][ANNOTATION]
            .as_str()
            .map(str::to_owned)
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        let route = self.route().unwrap_or_default();
        let list = route["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        list.contains(&json!(FINALIZER))
    }

    /// Events about routes so far, `Warning Reason: note`.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let events = self.server.list("Event", "");
        let line = |e: &Value| format!("{} {}: {}", text(e, "type"), text(e, "reason"), text(e, "note"));
        events.iter().map(line).collect()
    }

    pub(crate) fn event(&self, reason: &str) -> Vec<String> {
        let of = |line: &String| {
            line.split_once(' ')
                .is_some_and(|(_, rest)| rest.starts_with(reason))
        };
        self.events().into_iter().filter(of).collect()
    }
}

fn process(
    server: &ApiServer,
    settings: &Settings,
    world: &World,
    tyk: &Tyks,
    (ways, record): (&Ways, &InMemory),
) -> Process {
    let client = server.client_as(OPERATOR);
    let metrics = Metrics::default();
    let known: Arc<dyn Known> = Arc::new(world.clone());
    let events = reconcile_kit::events::KubeEvents::new(client.clone(), CONTRACT.manager, None);
    let drive = Arc::new(Drive::new(
        tyk.actors(client.clone()),
        Arc::new(ways.clone()),
        Arc::new(record.clone()),
        Arc::clone(&known),
        Arc::new(events),
    ));
    let owned = Owned {
        manager: CONTRACT.manager.into(),
        prefix: "routewright.dev".into(),
        cache: Arc::new(Childless),
        writer: Arc::new(KubeChildWriter::new(client.clone(), CONTRACT.manager)),
        memory: WriteMemory::default(),
        metrics: metrics.clone(),
        squatters: None,
    };
    let parts = Parts::new(
        RoutePlanner::new(known, settings.clone()),
        owned,
        Reporting::kube(client.clone(), CONTRACT, CONTRACT.manager),
        OperatorMetadata::default(),
        metrics,
    );
    let stack = parts.stack_with(External {
        effects: Arc::clone(&drive),
        finalizer: names::finalizer(&settings.controller_name).into(),
        wanted: |_| false,
        writer: Arc::new(KubeOwnerWriter(client)),
        manager: CONTRACT.manager,
    });
    Process { stack, drive }
}

/// The operator's writes and reads besides events, `PATCH(merge) httproutes/status r -> 200`.
pub(crate) fn lines(calls: &[Call]) -> Vec<String> {
    let own = calls
        .iter()
        .filter(|call| call.user == OPERATOR && call.resource != "events");
    own.map(|call| {
        let sub = match call.subresource.as_str() {
            "" => String::new(),
            sub => format!("/{sub}"),
        };
        let code = call.code().map_or("-".to_owned(), |code| code.to_string());
        format!("{} {}{sub} {} -> {code}", call.verb, call.resource, call.name)
    })
    .collect()
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "GatewayClass" | "Gateway" | "HTTPRoute" => "gateway.networking.k8s.io/v1",
        "ReferenceGrant" => "gateway.networking.k8s.io/v1beta1",
        "OperatorContext" | "TykOasApiDefinition" => "tyk.tyk.io/v1alpha1",
        _ => "v1",
    }
}

/// Serves every kind and has the namespaces.
pub(crate) fn server() -> ApiServer {
    let server = ApiServer::new();
    server.namespace("tyk").namespace("infra").namespace("shop");
    for def in [
        ResourceDef::gateway_class(),
        ResourceDef::gateway(),
        ResourceDef::http_route(),
        ResourceDef::custom(
            "gateway.networking.k8s.io",
            "v1beta1",
            "ReferenceGrant",
            "referencegrants",
        ),
        ResourceDef::custom("tyk.tyk.io", "v1alpha1", "OperatorContext", "operatorcontexts"),
        ResourceDef::custom(
            "tyk.tyk.io",
            "v1alpha1",
            "TykOasApiDefinition",
            "tykoasapidefinitions",
        ),
    ] {
        server.serve(def);
    }
    server
}

/// The id of an API of `shop/r` on `infra/edge`.
pub(crate) fn id(path: &str) -> String {
    let (route, gateway) = (Key::new("shop", "r"), Key::new("infra", "edge"));
    routewright::tyk::translate::identity_of(&route, &gateway, Some("a.example.com"), path)
}

/// Sorted ids of `shop/r`.
pub(crate) fn ids(paths: &[&str]) -> Vec<String> {
    let mut ids: Vec<String> = paths.iter().map(|p| id(p)).collect();
    ids.sort();
    ids
}
