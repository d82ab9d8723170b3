//! `routewright cleanup --tyk`: APIs, finalizers, memory, entries and conditions go; what others wrote stays; what could
//! not be deleted is told and holds nothing up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kube::{
    api::{Api, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use reconcile_kit::testing::{ApiServer, Fault, Matcher, ResourceDef, Times, Verb};
use routewright::{
    cli::cleanup::tyk::{CLASS_FINALIZER, Report, Way, clean},
    tyk::{
        client::{TykError, TykErrorClass},
        httproute::{
            memory::Place,
            names::{ANNOTATION, FINALIZER},
            places::{Record, whole},
        },
        objects::{Fingerprint, Key},
        sync::{Contexts, Done, Job, Secrets, Syncing, Trouble},
        verdict::{Connection, Mode},
    },
};
use serde_json::{Value, json};

use crate::support::OPERATOR;

const CONTROLLER: &str = "routewright.dev/tyk";
const THEIRS: &str = "example.org/theirs";
const A: &str = "aaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbb";
const C: &str = "cccccccccccccccccccc";

/// A Tyk as the clean-up sees it: ids with the route that owns them, contexts, and what is wrong.
#[derive(Default)]
struct Tyk {
    apis: Mutex<BTreeMap<String, String>>,
    contexts: BTreeSet<String>,
    /// Calls that fail before it answers.
    down: Mutex<usize>,
    jobs: Mutex<Vec<Job>>,
}

impl Tyk {
    fn new(contexts: &[&str], apis: &[(&str, &str)]) -> Arc<Self> {
        let apis = apis
            .iter()
            .map(|(id, owner)| (format!("gwapi-{id}"), (*owner).to_owned()));
        Arc::new(Self {
            apis: Mutex::new(apis.collect()),
            contexts: contexts.iter().map(|c| (*c).to_owned()).collect(),
            ..Self::default()
        })
    }

    fn ids(&self) -> Vec<String> {
        self.apis.lock().unwrap().keys().cloned().collect()
    }
}

fn connection(context: &Key) -> Connection {
    Connection {
        url: "http://tyk:8080".to_owned(),
        org: String::new(),
        mode: Mode::OpenSource,
        context: context.clone(),
        fingerprint: Fingerprint("f".to_owned()),
    }
}

#[async_trait]
impl Contexts for Tyk {
    async fn connection(&self, context: &Key, _: Secrets) -> Result<Arc<Connection>, TykError> {
        match self.contexts.contains(&context.to_string()) {
            true => Ok(Arc::new(connection(context))),
            false => Err(TykError::new(
                TykErrorClass::NoConnection,
                "OperatorContext does not exist",
            )),
        }
    }
}

/// GatewayClasses have named all contexts but `tyk/strange`.
#[async_trait]
impl Record for Tyk {
    async fn places(&self, context: &Key) -> Result<BTreeSet<String>, String> {
        Ok(match context.name.as_str() {
            "strange" => BTreeSet::new(),
            _ => BTreeSet::from([whole(&connection(context))]),
        })
    }
    async fn add(&self, _: &Connection) {}
}

#[async_trait]
impl Syncing for Tyk {
    async fn submit(&self, _: &Arc<Connection>, job: Job) -> Done {
        let mut done = Done::default();
        let mut down = self.down.lock().unwrap();
        for id in &job.remove {
            let mut apis = self.apis.lock().unwrap();
            let trouble = if *down > 0 {
                Trouble::Failed(TykError::new(TykErrorClass::Unreachable, "connection refused"))
            } else {
                match apis.get(id) {
                    Some(owner) if *owner != job.owner.route.to_string() => {
                        Trouble::Foreign { owner: owner.clone() }
                    }
                    _ => {
                        apis.remove(id);
                        continue;
                    }
                }
            };
            done.remaining.insert(id.clone(), trouble);
        }
        *down = down.saturating_sub(1);
        self.jobs.lock().unwrap().push(job);
        done
    }

    fn forget(&self, _: &Key) {}
}

fn way(tyk: &Arc<Tyk>) -> Way {
    Way {
        sync: Arc::<Tyk>::clone(tyk),
        contexts: Arc::<Tyk>::clone(tyk),
        record: Arc::<Tyk>::clone(tyk),
        cluster: "here".to_owned(),
        limit: Duration::from_secs(30),
    }
}

fn memory(ids: &[&str]) -> String {
    let place = Place::of(&connection(&Key::new("tyk", "edge")));
    format!("{place}={}", ids.join(","))
}

/// Gateway API and the kinds of Tyk are served.
fn server() -> ApiServer {
    let server = crate::support::server(true);
    server
        .serve(ResourceDef::gateway_class())
        .serve(ResourceDef::gateway());
    server
}

fn entry(controller: &str, gateway: &str) -> Value {
    json!({
        "controllerName": controller,
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway},
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}],
    })
}

fn route(server: &ApiServer, name: &str, finalizers: &[&str], memory: &str, parents: &[Value]) {
    let mut route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "web", "name": name, "finalizers": finalizers, "annotations": {"team": "shop"}},
        "spec": {"parentRefs": [{"name": "public"}]},
    });
    if !memory.is_empty() {
        route["metadata"]["annotations"][ANNOTATION] = json!(memory);
    }
    server.create(route);
    if !parents.is_empty() {
        server.set_status("HTTPRoute", "web", name, json!({ "parents": parents }));
    }
}

fn class(server: &ApiServer, name: &str, controller: &str) {
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": name, "finalizers": [CLASS_FINALIZER]}, "spec": {"controllerName": controller},
    }));
    server.set_status(
        "GatewayClass",
        "",
        name,
        json!({
            "conditions": [condition("Accepted"), condition("SupportedVersion")],
            "supportedFeatures": [{"name": "Gateway"}],
        }),
    );
}

fn gateway(server: &ApiServer, name: &str, class: &str) {
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"namespace": "web", "name": name},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    }));
    server.set_status(
        "Gateway",
        "web",
        name,
        json!({
            "conditions": [condition("Accepted"), condition("Programmed"), condition("example.org/Seen")],
            "addresses": [{"type": "IPAddress", "value": "192.0.2.1"}],
            "listeners": [{"name": "http", "attachedRoutes": 1, "conditions": []}],
        }),
    );
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": kind.trim_start_matches("example.org/"), "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn get(server: &ApiServer, name: &str) -> Value {
    server.get("HTTPRoute", "web", name).unwrap()
}

fn types(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .map(|c| {
            format!(
                "{} {}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap()
            )
        })
        .collect()
}

async fn run(server: &ApiServer, tyk: &Arc<Tyk>) -> Report {
    clean(&server.client_as(OPERATOR), CONTROLLER, Some(&way(tyk)))
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn apis_finalizers_memory_and_own_entries_go_and_no_others() {
    // Given two routes of the operator, one also another controller's, and one that is only another controller's
    let server = server();
    let tyk = Tyk::new(&["tyk/edge"], &[(A, "web/one"), (B, "web/one"), (C, "web/two")]);
    let foreign = entry("example.org/other", "elsewhere");
    let own = entry(CONTROLLER, "public");
    route(
        &server,
        "one",
        &[THEIRS, FINALIZER],
        &memory(&[A, B]),
        &[own.clone(), foreign.clone()],
    );
    route(&server, "two", &[FINALIZER], &memory(&[C]), &[own]);
    route(&server, "theirs", &[THEIRS], "", std::slice::from_ref(&foreign));
    class(&server, "tyk", CONTROLLER);
    class(&server, "other", "example.org/other");
    gateway(&server, "public", "tyk");
    gateway(&server, "elsewhere", "other");
    let mark = server.mark();
    // When it runs
    let report = run(&server, &tyk).await;
    // Then the APIs are deleted in the name of their routes
    assert_eq!(tyk.ids(), Vec::<String>::new());
    let owner = tyk.jobs.lock().unwrap()[0].owner.clone();
    assert_eq!((owner.cluster.as_str(), owner.uid.is_empty()), ("here", false));
    // And finalizer, memory and entries are gone, and what others wrote is there to the byte
    for (name, finalizers) in [
        ("one", json!([THEIRS])),
        ("two", Value::Null),
        ("theirs", json!([THEIRS])),
    ] {
        let route = get(&server, name);
        let has = route["metadata"]
            .get("finalizers")
            .cloned()
            .filter(|f| *f != json!([]));
        assert_eq!(has.unwrap_or_default(), finalizers, "{name}");
        assert_eq!(
            route["metadata"]["annotations"],
            json!({"team": "shop"}),
            "{name}"
        );
    }
    assert_eq!(get(&server, "one")["status"]["parents"], json!([foreign]));
    assert_eq!(get(&server, "two")["status"]["parents"], json!([]));
    // And the class can be deleted, and class and Gateway read as before; others' are untouched
    let ours = server.get("GatewayClass", "", "tyk").unwrap();
    assert!(
        ours["metadata"].get("finalizers").is_none_or(|f| *f == json!([])),
        "{ours}"
    );
    assert_eq!(types(&ours), ["Accepted Unknown"]);
    assert!(ours["status"].get("supportedFeatures").is_none(), "{ours}");
    let public = server.get("Gateway", "web", "public").unwrap();
    assert_eq!(types(&public), ["example.org/Seen True"]);
    assert!(
        public["status"].get("addresses").is_none() && public["status"].get("listeners").is_none(),
        "{public}"
    );
    let other = server.get("GatewayClass", "", "other").unwrap();
    assert_eq!(other["metadata"]["finalizers"], json!([CLASS_FINALIZER]));
    assert_eq!(
        types(&server.get("Gateway", "web", "elsewhere").unwrap()).len(),
        3
    );
    // And it says how much that was, in as many writes
    let expected = Report {
        deleted: 3,
        routes: 2,
        entries: 2,
        classes: 1,
        withdrawn: 2,
        ..Report::default()
    };
    assert_eq!(report, expected);
    assert_eq!(server.writes_since(mark).len(), 7);
    // When it runs again, then there is nothing to do
    let mark = server.mark();
    assert_eq!(run(&server, &tyk).await, Report::default());
    assert_eq!(server.writes_since(mark).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_keep_apis_only_what_holds_objects_goes() {
    let server = server();
    let tyk = Tyk::new(&["tyk/edge"], &[(A, "web/one")]);
    let own = entry(CONTROLLER, "public");
    route(
        &server,
        "one",
        &[FINALIZER],
        &memory(&[A]),
        std::slice::from_ref(&own),
    );
    class(&server, "tyk", CONTROLLER);
    gateway(&server, "public", "tyk");
    // When it runs without a way to Tyk
    let report = clean(&server.client_as(OPERATOR), CONTROLLER, None)
        .await
        .unwrap();
    // Then both finalizers are gone
    assert_eq!((report.routes, report.classes, report.deleted), (1, 1, 0));
    // And the API, the memory of it and what is said of it stay, for an operator that comes back
    assert_eq!(tyk.ids().len(), 1);
    let one = get(&server, "one");
    assert_eq!(one["metadata"]["annotations"][ANNOTATION], json!(memory(&[A])));
    assert_eq!(one["status"]["parents"], json!([own]));
    assert_eq!(types(&server.get("Gateway", "web", "public").unwrap()).len(), 3);
    // When the APIs are to go too, later, then they are found
    let report = run(&server, &tyk).await;
    assert_eq!((report.deleted, report.entries, tyk.ids().len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_is_told_and_holds_nothing_up() {
    // Given a route whose Tyk does not answer, one whose context is gone, one under whose id somebody else's API stands
    let server = server();
    let tyk = Tyk::new(&["tyk/edge"], &[(A, "web/one"), (C, "web/somebody")]);
    *tyk.down.lock().unwrap() = usize::MAX;
    route(&server, "one", &[FINALIZER], &memory(&[A]), &[]);
    route(
        &server,
        "lost",
        &[FINALIZER],
        &memory(&[B]).replace("tyk/edge", "tyk/gone"),
        &[],
    );
    // When it runs
    let report = run(&server, &tyk).await;
    // Then both are named with the reason, and nothing is clean
    let said: Vec<String> = report.left.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "left in Tyk: gwapi-bbbbbbbbbbbbbbbbbbbb of HTTPRoute web/lost, by OperatorContext tyk/gone: OperatorContext \
             does not exist",
            "left in Tyk: gwapi-aaaaaaaaaaaaaaaaaaaa of HTTPRoute web/one, by OperatorContext tyk/edge: connection refused",
        ]
    );
    assert!(!report.is_clean());
    // And yet no finalizer is left, and the memory still names what is in Tyk
    for (name, id) in [("one", A), ("lost", B)] {
        let route = get(&server, name);
        assert!(
            route["metadata"]
                .get("finalizers")
                .is_none_or(|f| *f == json!([])),
            "{route}"
        );
        assert!(
            route["metadata"]["annotations"][ANNOTATION]
                .as_str()
                .unwrap()
                .contains(id)
        );
    }
    // When Tyk is up again, then a second run deletes what can be reached
    *tyk.down.lock().unwrap() = 0;
    let report = run(&server, &tyk).await;
    assert_eq!((report.deleted, report.left.len()), (1, 1));
    assert!(
        get(&server, "one")["metadata"]["annotations"]
            .get(ANNOTATION)
            .is_none()
    );
    // And somebody else's API is left alone, told, and no reason to fail: it is not ours, so it is forgotten
    server.delete("HTTPRoute", "web", "lost");
    route(&server, "copy", &[FINALIZER], &memory(&[C]), &[]);
    let report = run(&server, &tyk).await;
    assert_eq!(tyk.ids(), [format!("gwapi-{C}")]);
    assert_eq!((report.foreign.len(), report.is_clean()), (1, true));
    assert!(
        get(&server, "copy")["metadata"]["annotations"]
            .get(ANNOTATION)
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_context_that_only_an_annotation_names_is_not_followed() {
    // Given a route that names a context which no class names, and none ever did
    let server = server();
    let tyk = Tyk::new(&["tyk/strange"], &[(A, "web/one")]);
    let strange = memory(&[A]).replace("tyk/edge", "tyk/strange");
    route(&server, "one", &[FINALIZER], &strange, &[]);
    // When it runs, then Tyk is not asked, the report names it, and the route is free
    let report = run(&server, &tyk).await;
    assert_eq!(
        (report.left.len(), report.routes, tyk.jobs.lock().unwrap().len()),
        (1, 1, 0)
    );
    assert!(
        report.left[0].why.contains("no GatewayClass"),
        "{:?}",
        report.left
    );
    // When a class of the operator names it, then the API goes; a class of another one leads nowhere
    for (controller, left) in [("example.org/other", 1), (CONTROLLER, 0)] {
        server.create(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": controller.replace('/', "-")},
            "spec": {"controllerName": controller, "parametersRef":
                {"group": "tyk.tyk.io", "kind": "OperatorContext", "namespace": "tyk", "name": "strange"}},
        }));
        let report = run(&server, &tyk).await;
        assert_eq!((report.left.len(), tyk.ids().len()), (left, left), "{controller}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_passes_is_outlived() {
    // Given a Tyk that answers at the third time, an entry written by somebody else meanwhile, and a route being deleted
    let server = server();
    let tyk = Tyk::new(&["tyk/edge"], &[(A, "web/one"), (B, "web/dying")]);
    *tyk.down.lock().unwrap() = 2;
    route(
        &server,
        "one",
        &[FINALIZER],
        &memory(&[A]),
        &[entry(CONTROLLER, "public")],
    );
    route(
        &server,
        "dying",
        &[FINALIZER],
        &memory(&[B]),
        &[entry(CONTROLLER, "public")],
    );
    server.delete("HTTPRoute", "web", "dying");
    let conflict = Matcher::verb(Verb::MergePatch).name("one");
    server.fault(conflict, Fault::Conflict, Times::Count(2));
    // When it runs, then everything is gone all the same, the dying route too
    let report = run(&server, &tyk).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.deleted, report.routes, tyk.ids().len()), (2, 2, 0));
    assert!(server.get("HTTPRoute", "web", "dying").is_none());
    assert_eq!(get(&server, "one")["status"]["parents"], json!([]));
    // Given a right that is missing, then the object is named, and the others are done
    route(&server, "two", &[FINALIZER], "", &[]);
    route(&server, "three", &[FINALIZER], "", &[]);
    let forbidden = Matcher::verb(Verb::MergePatch).name("two");
    server.fault(forbidden, Fault::Status(403), Times::Always);
    let report = run(&server, &tyk).await;
    assert_eq!((report.routes, report.refused.len()), (1, 1));
    assert!(
        report.refused[0].starts_with("HTTPRoute web/two: "),
        "{:?}",
        report.refused
    );
}

#[tokio::test(start_paused = true)]
async fn without_gateway_api_there_is_nothing_to_do() {
    let server = ApiServer::new();
    let tyk = Tyk::new(&[], &[]);
    assert_eq!(run(&server, &tyk).await, Report::default());
}

/// A definition with these targets, and an Accepted that each of these field managers wrote.
async fn definition(server: &ApiServer, name: &str, targets: &[(&str, &str)], managers: &[(&str, &str)]) {
    let kind = GroupVersionKind::gvk("tyk.tyk.io", "v1alpha1", "TykOasApiDefinition");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(server.client_as(OPERATOR), "web", &resource);
    let head = json!({
        "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition", "metadata": {"namespace": "web", "name": name},
    });
    let mut whole = head.clone();
    whole["spec"] = json!({"tykOAS": {"configmapRef": {"name": "x", "keyName": "y"}}});
    if !targets.is_empty() {
        let of = |(kind, name): &(&str, &str)| json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name});
        whole["spec"]["targetRefs"] = targets.iter().map(of).collect();
    }
    server.create(whole);
    for (manager, kind) in managers {
        let mut said = head.clone();
        said["status"] = json!({"conditions": [condition(kind)]});
        api.patch_status(name, &PatchParams::apply(manager), &Patch::Apply(said))
            .await
            .unwrap();
    }
}

/// The field manager of every installation.
const SPEAKER: (&str, &str) = ("routewright-tyk-oas-definition", "Accepted");

fn said_of(server: &ApiServer, name: &str) -> Vec<String> {
    types(&server.get("TykOasApiDefinition", "web", name).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_a_definition_goes_if_the_operator_said_it() {
    // Given two definitions, one judged by the operator beside another one's condition, the other by Tyk Operator
    let server = server();
    definition(&server, "ours", &[], &[SPEAKER, ("other", "example.org/Seen")]).await;
    definition(&server, "theirs", &[], &[("tyk-operator", "Accepted")]).await;
    // When it runs
    let tyk = Tyk::new(&[], &[]);
    let report = run(&server, &tyk).await;
    // Then the operator's word is gone, and nobody else's
    assert_eq!((report.withdrawn, report.is_clean()), (1, true));
    assert_eq!(said_of(&server, "ours"), ["example.org/Seen True"]);
    assert_eq!(said_of(&server, "theirs"), ["Accepted True"]);
    assert_eq!(run(&server, &tyk).await, Report::default());
}

/// A class that leads to an OperatorContext, and whose installation runs.
fn leading_class(server: &ApiServer, name: &str, controller: &str) {
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name},
        "spec": {"controllerName": controller, "parametersRef":
            {"group": "tyk.tyk.io", "kind": "OperatorContext", "namespace": "tyk", "name": "edge"}},
    }));
    let status = json!({"conditions": [condition("Accepted")]});
    server.set_status("GatewayClass", "", name, status);
}

fn bare_gateway(server: &ApiServer, name: &str, class: &str) {
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"namespace": "web", "name": name},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    }));
}

fn route_on(server: &ApiServer, name: &str, gateways: &[&str]) {
    let parents: Vec<Value> = gateways.iter().map(|name| json!({ "name": name })).collect();
    server.create(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"namespace": "web", "name": name},
        "spec": {"parentRefs": parents},
    }));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_another_installation_speaks_for_is_left_alone() {
    // Given two installations, each with a class, a Gateway and a route, and a class of neither that is no Tyk's
    let server = server();
    let beside = "example.org/beside";
    leading_class(&server, "tyk", CONTROLLER);
    leading_class(&server, "beside", beside);
    class(&server, "other", "example.org/other");
    bare_gateway(&server, "public", "tyk");
    bare_gateway(&server, "far", "beside");
    bare_gateway(&server, "elsewhere", "other");
    route_on(&server, "one", &["public"]);
    route_on(&server, "two", &["far"]);
    route_on(&server, "both", &["far", "public"]);
    // And definitions of which the first target that is anybody's is the other's or also the other's, or ours, or nobody's
    let theirs: [(&str, &[(&str, &str)]); 4] = [
        ("both", &[("HTTPRoute", "both")]),
        ("far", &[("Gateway", "far")]),
        ("two", &[("HTTPRoute", "two"), ("HTTPRoute", "one")]),
        (
            "later",
            &[
                ("Gateway", "elsewhere"),
                ("HTTPRoute", "gone"),
                ("Gateway", "far"),
                ("Gateway", "public"),
            ],
        ),
    ];
    let ours: [(&str, &[(&str, &str)]); 4] = [
        ("public", &[("Gateway", "public"), ("Gateway", "far")]),
        ("one", &[("HTTPRoute", "one"), ("HTTPRoute", "two")]),
        ("nobody", &[("Gateway", "elsewhere"), ("HTTPRoute", "gone")]),
        ("before", &[]),
    ];
    for (name, targets) in theirs.iter().chain(&ours) {
        definition(&server, name, targets, &[SPEAKER]).await;
    }
    // When the one is cleaned up
    let tyk = Tyk::new(&[], &[]);
    let mark = server.mark();
    let report = run(&server, &tyk).await;
    // Then it takes its own words back, and does not touch what the other one says
    assert!(report.is_clean(), "{report:?}");
    for (name, _) in ours {
        assert_eq!(said_of(&server, name), [] as [&str; 0], "{name}");
    }
    for (name, _) in theirs {
        assert_eq!(said_of(&server, name), ["Accepted True"], "{name}");
    }
    // The class and the four
    assert_eq!((report.withdrawn, server.writes_since(mark).len()), (5, 5));
    // When the other one is cleaned up too, then nothing is left, though both classes are there
    let report = clean(&server.client_as(OPERATOR), beside, Some(&way(&tyk)))
        .await
        .unwrap();
    assert_eq!((report.withdrawn, report.is_clean()), (5, true));
    for (name, _) in theirs {
        assert_eq!(said_of(&server, name), [] as [&str; 0], "{name}");
    }
}
