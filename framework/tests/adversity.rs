//! What goes wrong around an operator, told by whole operators on the in-process API server: another client that undoes
//! what it does, remedies that come late, values that the schema does not take, missing rights and watches.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{INGRESS, Lab, MAP, Site, USER, lines, quiet, ready, server, site, until_ready};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use reconcile_kit::{
    prelude::*,
    testing::{ApiServer, Fault, Matcher, ResourceDef, Times, Verb, schema},
};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3_600);
const CONTRACT: StatusContract = StatusContract {
    manager: "lab-status",
    conditions: &["Ready"],
    fields: &["place"],
    mode: StatusMode::Apply,
};

/// The lab's planner, but for what a test makes of it.
#[derive(Clone, Default)]
struct Mine {
    /// Instead of the object's own text.
    text: Option<&'static str>,
}

impl Planner for Mine {
    type Object = Site;
    type Verdict = ();
    const NAME: &'static str = "lab";

    fn needs(_: &Site) -> Needs {
        Needs::default()
    }
    async fn plan(&self, request: &Request<Site>) -> Result<Plan<()>, ReconcileError> {
        let mut changed = request.clone();
        if let Some(text) = self.text {
            let mut site = (*request.object).clone();
            site.spec.text = text.to_owned();
            changed.object = Arc::new(site);
        }
        Lab.plan(&changed).await
    }
    /// As the example of the front page: no retry of its own.
    fn report(site: &Site, verdict: &Verdict<()>, children: &Children) -> Report {
        let mut report = Lab::report(site, verdict, children);
        report.outcome = Outcome::Done;
        let failed = children.0.iter().find_map(|child| match &child.state {
            ChildState::Failed(_, message) => Some(message),
            _ => None,
        });
        if let (Some(message), Some(condition)) = (failed, report.conditions.first_mut()) {
            condition.message.clone_from(message);
        }
        report
    }
    fn report_error(site: &Site, error: &ReconcileError) -> Report {
        Lab::report_error(site, error)
    }
    fn conditions(site: &Site) -> &[MetaCondition] {
        Lab::conditions(site)
    }
    fn status_field(site: &Site, field: &str) -> Option<Value> {
        Lab::status_field(site, field)
    }
}

/// How an operator is started.
#[derive(Clone)]
struct How {
    user: &'static str,
    manager: &'static str,
    instance: &'static str,
    squatters: bool,
    /// Kinds whose caches are put into the operator's hands.
    cached: &'static [&'static str],
    planner: Mine,
    contract: StatusContract,
}

impl Default for How {
    fn default() -> Self {
        Self {
            user: USER,
            manager: "lab",
            instance: "default",
            squatters: true,
            cached: &["ConfigMap", "Ingress"],
            planner: Mine::default(),
            contract: CONTRACT,
        }
    }
}

struct Running {
    triggers: Triggers<Site>,
    metrics: Metrics,
    _stop: tokio_util::sync::DropGuard,
}

fn start(server: &ApiServer, how: How) -> Running {
    start_by(server.client_as(how.user), how)
}

fn start_by(client: kube::Client, how: How) -> Running {
    let metrics = Metrics::new("lab");
    let hub = WatchHub::new(client.clone(), metrics.clone());
    let ours = Selector::labels(format!(
        "app.kubernetes.io/managed-by=lab,app.kubernetes.io/instance={}",
        how.instance
    ));
    let sites = hub.typed::<Site>(&Scope::All, &Selector::default());
    let maps = hub.children(MAP, &Scope::All, &ours);
    let ingresses = hub.children(INGRESS, &Scope::All, &ours);
    let triggers = Triggers::<Site>::default();
    let wake = triggers.clone();
    let wake = Arc::new(move |namespace: &str, name: &str| wake.push_name(Some(namespace), name));
    let mut caches = vec![(MAP, maps.clone()), (INGRESS, ingresses.clone())];
    caches.retain(|(kind, _)| how.cached.contains(&kind.kind));
    let mut owned = Owned::new(
        client.clone(),
        how.manager,
        "example.org",
        Arc::new(caches),
        &metrics,
    );
    owned.squatters = how.squatters.then(|| Squatters::new(client.clone(), wake));
    let kept = (
        maps.listen(owned.memory.follow(MAP)),
        ingresses.listen(owned.memory.follow(INGRESS)),
        maps.listen(on_change_of_child(&triggers)),
        ingresses.listen(on_change_of_child(&triggers)),
        sites.listen(on_change_of_self(&triggers, |_, _| true)),
        (sites.start(), maps.start(), ingresses.start()),
    );
    let reporting = Reporting::kube(client, how.contract, Lab::NAME);
    let metadata = OperatorMetadata::standard("lab", how.instance, Lab::NAME);
    let parts = Parts::new(how.planner, owned, reporting, metadata, metrics.clone());
    let forget = Arc::new(parts.forget());
    let mut spec = ControllerSpec::new(Lab::NAME, sites, triggers.clone(), parts.stack())
        .wait_for(&maps)
        .wait_for(&ingresses);
    spec.forget = Some(forget);
    let (stop, _) = common::run(spec, (kept, hub));
    Running {
        triggers,
        metrics,
        _stop: stop.drop_guard(),
    }
}

fn told(server: &ApiServer) -> Vec<String> {
    let events = server.list("Event", "shop");
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|e| format!("{} {}: {}", text(e, "type"), text(e, "reason"), text(e, "note")))
        .collect()
}

fn applies(server: &ApiServer, user: &str, resource: &str) -> usize {
    let of = server.calls();
    let of = of.iter().filter(|c| {
        c.user == user
            && c.resource == resource
            && c.subresource.is_empty()
            && c.verb.is_write()
            && c.succeeded()
    });
    of.count()
}

#[tokio::test(start_paused = true)]
async fn a_name_that_becomes_free_is_taken_although_nobody_watches_it() {
    for squatters in [true, false] {
        let server = server();
        server.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}, "data": {"text": "theirs"},
        }));
        let _running = start(
            &server,
            How {
                squatters,
                ..How::default()
            },
        );
        server.create(site("a", "map", "one"));
        until_ready(&server, "a", "False/Foreign").await;
        quiet(&server).await;
        server.delete("ConfigMap", "shop", "a");
        let mark = server.mark();
        tokio::time::sleep(24 * HOUR).await;
        assert_eq!(
            ready(&server, "a").as_deref(),
            Some("True/Placed"),
            "squatters watched: {squatters}; a day after the name is free; asked since: {:?}",
            lines(&server, mark)
        );
    }
}

/// An own object that is terminating, that no cache shows, and whose end no watch of children tells.
#[tokio::test(start_paused = true)]
async fn an_old_child_that_goes_and_is_in_no_cache_is_replaced_within_seconds() {
    for (squatters, limit) in [(true, 5), (false, 330)] {
        let server = server();
        server.create(site("a", "map", "one"));
        let of_instance = |instance| How {
            instance,
            squatters,
            ..How::default()
        };
        let before = start(&server, of_instance("before"));
        until_ready(&server, "a", "True/Placed").await;
        quiet(&server).await;
        drop(before);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let held = json!({"metadata": {"finalizers": ["example.org/theirs"]}});
        server.edit("ConfigMap", "shop", "a", held);
        server.delete("ConfigMap", "shop", "a");
        server.edit("Site", "shop", "a", json!({"spec": {"text": "two"}}));
        let _after = start(&server, of_instance("after"));
        until_ready(&server, "a", "False/Going").await;
        quiet(&server).await;
        let begin = tokio::time::Instant::now();
        server.edit(
            "ConfigMap",
            "shop",
            "a",
            json!({"metadata": {"finalizers": null}}),
        );
        while ready(&server, "a").as_deref() != Some("True/Placed") && begin.elapsed() < HOUR {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(begin.elapsed().as_secs() <= limit, "after {:?}", begin.elapsed());
    }
}

/// The user's watch of a resource hears nothing from now on.
fn deafen(server: &ApiServer, user: &str, resource: &str) {
    let deaf = Matcher::watches().resource(resource).user(user);
    server.fault(deaf, Fault::Hang, Times::Always);
    server.end_watches(resource);
}

#[tokio::test(start_paused = true)]
async fn who_sees_an_old_spec_does_not_put_a_child_back() {
    let server = server();
    server.create(site("a", "map", "one"));
    let _blind = start(&server, other());
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    deafen(&server, "other", "sites");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let sees = start(&server, How::default());
    server.edit("Site", "shop", "a", json!({"spec": {"text": "two"}}));
    quiet(&server).await;
    let text = || server.get("ConfigMap", "shop", "a").unwrap()["data"]["text"].clone();
    assert_eq!(text(), "two");
    // It goes, and the blind one is alone.
    drop(sees);
    let wrote = applies(&server, "other", "configmaps");
    server.edit(
        "ConfigMap",
        "shop",
        "a",
        json!({"metadata": {"annotations": {"x": "y"}}}),
    );
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        (text(), applies(&server, "other", "configmaps")),
        (json!("two"), wrote)
    );
}

#[tokio::test(start_paused = true)]
async fn a_child_that_was_handed_over_is_not_deleted_by_who_has_not_heard_of_it() {
    let server = server();
    server.create(site("a", "map", "one"));
    let _running = start(&server, How::default());
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    deafen(&server, USER, "configmaps");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let theirs =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "theirs", "controller": true}]);
    server.edit(
        "ConfigMap",
        "shop",
        "a",
        json!({"metadata": {"ownerReferences": theirs}}),
    );
    let mark = server.mark();
    server.edit("Site", "shop", "a", json!({"spec": {"serve": ""}}));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let deletes = lines(&server, mark)
        .into_iter()
        .filter(|l| l.starts_with("DELETE"));
    let answers: Vec<_> = deletes.collect();
    assert!(
        !answers.is_empty() && answers.iter().all(|l| l.ends_with("-> 409")),
        "{answers:?}"
    );
    assert!(server.get("ConfigMap", "shop", "a").is_some());
}

/// Needs something that is missing.
struct Needy(Arc<AtomicBool>);

impl Planner for Needy {
    type Object = Site;
    type Verdict = ();
    const NAME: &'static str = "lab";
    fn needs(_: &Site) -> Needs {
        Needs::default()
    }
    async fn plan(&self, _: &Request<Site>) -> Result<Plan<()>, ReconcileError> {
        match self.0.load(Ordering::SeqCst) {
            true => Ok(Plan::report(())),
            false => Err(ReconcileError::new(
                ErrorClass::NotFound,
                "Secret s does not exist",
            )),
        }
    }
    fn report(_: &Site, _: &Verdict<()>, _: &Children) -> Report {
        Report::new(Outcome::Done).condition(Condition::new("Ready", true, "Fine", ""))
    }
    fn report_error(_: &Site, error: &ReconcileError) -> Report {
        Report::new(Outcome::Done).condition(Condition::new("Ready", false, "Failed", error.message.clone()))
    }
    fn conditions(site: &Site) -> &[MetaCondition] {
        Lab::conditions(site)
    }
    fn status_field(_: &Site, _: &str) -> Option<Value> {
        None
    }
}

fn start_childless<P: Planner<Object = Site>>(
    server: &ApiServer,
    planner: P,
    contract: StatusContract,
) -> (Triggers<Site>, tokio_util::sync::DropGuard) {
    let (client, metrics) = (server.client_as(USER), Metrics::new("lab"));
    let hub = WatchHub::new(client.clone(), metrics.clone());
    let objects = hub.typed::<Site>(&Scope::All, &Selector::default());
    let triggers = Triggers::<Site>::default();
    let kept = (
        objects.listen(on_change_of_self(&triggers, |_, _| true)),
        objects.start(),
    );
    let reporting = Reporting::kube(client.clone(), contract, P::NAME);
    let parts = common::childless(client, planner, reporting, metrics);
    let spec = ControllerSpec::new(P::NAME, objects, triggers.clone(), parts.stack());
    let (stop, _) = common::run(spec, (kept, hub));
    (triggers, stop.drop_guard())
}

#[tokio::test(start_paused = true)]
async fn what_was_missing_and_comes_is_used_within_seconds() {
    let server = server();
    server.create(site("a", "", ""));
    let there = Arc::new(AtomicBool::new(false));
    let (triggers, _stop) = start_childless(&server, Needy(Arc::clone(&there)), CONTRACT);
    until_ready(&server, "a", "False/Failed").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    // what a listener on Secrets does
    there.store(true, Ordering::SeqCst);
    triggers.push_name(Some("shop"), "a");
    let begin = tokio::time::Instant::now();
    while ready(&server, "a").as_deref() != Some("True/Fine") && begin.elapsed() < HOUR {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        begin.elapsed() <= Duration::from_secs(5),
        "used {:?} after the trigger that told of it",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_mended_annotation_is_looked_at_within_seconds() {
    let server = server();
    server.create(site("a", "", ""));
    let there = Arc::new(AtomicBool::new(false));
    let (_triggers, _stop) = start_childless(&server, Needy(Arc::clone(&there)), CONTRACT);
    until_ready(&server, "a", "False/Failed").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    there.store(true, Ordering::SeqCst);
    server.edit(
        "Site",
        "shop",
        "a",
        json!({"metadata": {"annotations": {"mended": "yes"}}}),
    );
    let begin = tokio::time::Instant::now();
    while ready(&server, "a").as_deref() != Some("True/Fine") && begin.elapsed() < HOUR {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        begin.elapsed() <= Duration::from_secs(5),
        "looked at after {:?}",
        begin.elapsed()
    );
}

/// Says in a field what the object's text is, as a number where it is one.
struct Counting;

impl Planner for Counting {
    type Object = Site;
    type Verdict = ();
    const NAME: &'static str = "lab";
    fn needs(_: &Site) -> Needs {
        Needs::default()
    }
    async fn plan(&self, _: &Request<Site>) -> Result<Plan<()>, ReconcileError> {
        Ok(Plan::report(()))
    }
    fn report(site: &Site, _: &Verdict<()>, _: &Children) -> Report {
        let text = &site.spec.text;
        let count = text.parse::<i64>().map_or(json!(text), |n| json!(n));
        Report::new(Outcome::Done)
            .condition(Condition::new("Ready", true, "Fine", ""))
            .field("place", StatusField::Set(json!({"count": count, "kind": "K"})))
    }
    fn report_error(_: &Site, _: &ReconcileError) -> Report {
        Report::untouched(Outcome::Done)
    }
    fn conditions(site: &Site) -> &[MetaCondition] {
        Lab::conditions(site)
    }
    fn status_field(site: &Site, field: &str) -> Option<Value> {
        Lab::status_field(site, field)
    }
}

fn sites_with(place: schema::Schema) -> ResourceDef {
    ResourceDef::custom("example.org", "v1", "Site", "sites").with_schema(schema::object([
        ("spec", schema::any()),
        (
            "status",
            schema::object([("conditions", schema::list(schema::any())), ("place", place)]),
        ),
    ]))
}

fn place(server: &ApiServer, name: &str) -> Value {
    server.get("Site", "shop", name).unwrap()["status"]["place"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_bad_value_of_one_object_costs_no_other_its_field() {
    let server = server();
    server.serve(sites_with(schema::object([
        ("count", schema::integer()),
        ("kind", schema::string()),
    ])));
    let (triggers, _stop) = start_childless(&server, Counting, CONTRACT);
    server.create(site("good", "", "5"));
    until_ready(&server, "good", "True/Fine").await;
    quiet(&server).await;
    assert_eq!(place(&server, "good"), json!({"count": 5, "kind": "K"}));
    // one object whose value has another type
    server.create(site("bad", "", "many"));
    quiet(&server).await;
    assert_eq!(place(&server, "bad"), json!({"kind": "K"}));
    assert_eq!(
        ready(&server, "bad").as_deref(),
        Some("True/Fine"),
        "it costs no condition"
    );
    // the healthy one is looked at again
    triggers.push_name(Some("shop"), "good");
    quiet(&server).await;
    assert_eq!(
        place(&server, "good"),
        json!({"count": 5, "kind": "K"}),
        "the healthy one lost its field"
    );
}

#[tokio::test(start_paused = true)]
async fn a_field_comes_when_the_crd_has_it() {
    let server = server();
    server.serve(sites_with(schema::object([("kind", schema::string())])));
    let (triggers, _stop) = start_childless(&server, Counting, CONTRACT);
    server.create(site("a", "", "5"));
    until_ready(&server, "a", "True/Fine").await;
    quiet(&server).await;
    assert_eq!(place(&server, "a"), json!({"kind": "K"}));
    // the CRD is upgraded, as the log says
    server.serve(sites_with(schema::object([
        ("count", schema::integer()),
        ("kind", schema::string()),
    ])));
    server.cut_watches("sites");
    server.edit("Site", "shop", "a", json!({"spec": {"text": "6"}}));
    tokio::time::sleep(24 * HOUR).await;
    triggers.push_name(Some("shop"), "a");
    quiet(&server).await;
    assert_eq!(
        place(&server, "a"),
        json!({"count": 6, "kind": "K"}),
        "a day after the upgrade of the CRD"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_server_normalises_is_nobodys_contest() {
    let server = server();
    let _running = start(&server, How::default());
    let mut object = site("a", "ingress", "a.example.org");
    object["spec"]["quirk"] = json!(true);
    server.create(object);
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    // the child's status moves, as that of any Deployment
    for n in 0..8 {
        let status = json!({"loadBalancer": {"ingress": [{"ip": format!("10.0.0.{n}")}]}});
        server.set_status("Ingress", "shop", "a", status);
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    quiet(&server).await;
    let events: Vec<_> = told(&server)
        .into_iter()
        .filter(|e| !e.contains("Placed"))
        .collect();
    assert_eq!(
        (events, ready(&server, "a").as_deref()),
        (Vec::<String>::new(), Some("True/Placed")),
        "no client changed what we set; applies: {}",
        applies(&server, USER, "ingresses")
    );
}

#[tokio::test(start_paused = true)]
async fn a_default_inside_a_status_field_is_nobodys_contest() {
    let server = server();
    server.serve(sites_with(schema::object([
        ("count", schema::integer()),
        ("kind", schema::string()),
        ("colour", schema::string().or("red")),
    ])));
    let (triggers, _stop) = start_childless(&server, Counting, CONTRACT);
    server.create(site("a", "", "5"));
    until_ready(&server, "a", "True/Fine").await;
    quiet(&server).await;
    let mark = server.mark();
    for n in 0..8 {
        server.edit(
            "Site",
            "shop",
            "a",
            json!({"metadata": {"annotations": {"n": n.to_string()}}}),
        );
        triggers.push_name(Some("shop"), "a");
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    quiet(&server).await;
    let writes = lines(&server, mark);
    let events: Vec<_> = told(&server)
        .into_iter()
        .filter(|e| !e.contains("Fine"))
        .collect();
    assert_eq!(
        (events, writes),
        (Vec::<String>::new(), Vec::<String>::new()),
        "no other client wrote this status"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restored_status_of_a_higher_generation_is_written_over() {
    let server = server();
    server.create(site("a", "map", "one"));
    server.set_status(
        "Site",
        "shop",
        "a",
        json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "OfAnotherCluster", "message": "", "observedGeneration": 5,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}),
    );
    let how = How {
        contract: StatusContract {
            mode: StatusMode::Force,
            ..CONTRACT
        },
        ..How::default()
    };
    let running = start(&server, how);
    let mark = server.mark();
    tokio::time::sleep(24 * HOUR).await;
    running.triggers.push_name(Some("shop"), "a");
    quiet(&server).await;
    let asked = lines(&server, mark);
    assert_eq!(
        ready(&server, "a").as_deref(),
        Some("True/Placed"),
        "after a day; asked: {asked:?}"
    );
}

/// Two operators about one child for an hour; what each wrote to it.
async fn an_hour_of(one: How, two: How) -> (usize, usize, String) {
    let server = server();
    server.create(site("a", "map", "same"));
    let _one = start(&server, one.clone());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _two = start(&server, two.clone());
    tokio::time::sleep(HOUR).await;
    let count = |user| applies(&server, user, "configmaps");
    let text = format!("{} requests; events {:?}", server.calls().len(), told(&server));
    (count(one.user), count(two.user), text)
}

/// At first a few at once, then one in five minutes; where it takes two requests, twice as many.
const IN_AN_HOUR: std::ops::RangeInclusive<usize> = 6..=20;

fn assert_rare(one: usize, two: usize, requests: usize, text: &str) {
    for writes in [one, two] {
        assert!(
            IN_AN_HOUR.contains(&writes.div_ceil(requests)),
            "{one} and {two} writes to one child in an hour; {text}"
        );
    }
    assert!(
        text.contains("Warning ContestedField: ConfigMap shop/a: "),
        "{text}"
    );
}

fn other() -> How {
    How {
        user: "other",
        ..How::default()
    }
}

#[tokio::test(start_paused = true)]
async fn two_releases_that_own_the_same_child_write_ever_more_rarely() {
    let one = How {
        instance: "one",
        ..How::default()
    };
    let two = How {
        instance: "two",
        ..other()
    };
    let (one, two, text) = an_hour_of(one, two).await;
    assert_rare(one, two, 1, &text);
    assert!(
        text.contains("another client that deletes it or changes its labels"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn two_of_one_name_with_other_flags_write_ever_more_rarely() {
    let one = How {
        planner: Mine { text: Some("one") },
        ..How::default()
    };
    let two = How {
        planner: Mine { text: Some("two") },
        ..other()
    };
    let (one, two, text) = an_hour_of(one, two).await;
    assert_rare(one, two, 1, &text);
}

#[tokio::test(start_paused = true)]
async fn two_releases_with_other_managers_write_ever_more_rarely() {
    let two = How {
        manager: "lab2",
        ..other()
    };
    let (one, two, text) = an_hour_of(How::default(), two).await;
    assert_rare(one, two, 2, &text);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_strips_the_hash_is_answered_ever_more_rarely() {
    let server = server();
    server.create(site("a", "map", "same"));
    let _running = start(&server, How::default());
    until_ready(&server, "a", "True/Placed").await;
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < HOUR {
        let map = server.get("ConfigMap", "shop", "a").unwrap();
        if !map["metadata"]["annotations"]["example.org/applied-hash"].is_null() {
            let none = json!({"metadata": {"annotations": {"example.org/applied-hash": null}}});
            server.edit("ConfigMap", "shop", "a", none);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let writes = applies(&server, USER, "configmaps");
    assert_rare(writes, writes, 1, &told(&server).join("; "));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_our_own_mind_is_no_contest_however_often() {
    let server = server();
    server.create(site("a", "map", "0"));
    let _running = start(&server, How::default());
    until_ready(&server, "a", "True/Placed").await;
    for n in 0..40 {
        server.edit(
            "Site",
            "shop",
            "a",
            json!({"spec": {"text": (n % 2).to_string()}}),
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    quiet(&server).await;
    // (the first edit says what stands)
    assert_eq!(applies(&server, USER, "configmaps"), 40);
    assert_eq!(ready(&server, "a").as_deref(), Some("True/Placed"));
}

#[tokio::test(start_paused = true)]
async fn one_503_is_not_said_on_the_object_and_a_lasting_one_is() {
    let server = server();
    let _running = start(&server, How::default());
    quiet(&server).await;
    let one = Matcher::verb(Verb::Apply).resource("configmaps").user(USER);
    server.fault(one, Fault::Status(503), Times::Count(1));
    let mark = server.mark();
    server.create(site("a", "map", "one"));
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    let asked = lines(&server, mark);
    let status = asked.iter().filter(|l| l.contains("sites/status")).count();
    assert_eq!(status, 1, "{asked:#?}\n{:#?}", told(&server));
    // a lasting one appears
    let all = Matcher::verb(Verb::Apply).resource("configmaps").user(USER);
    server.fault(all, Fault::Status(503), Times::Always);
    server.edit("Site", "shop", "a", json!({"spec": {"text": "two"}}));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(
        ready(&server, "a").as_deref(),
        Some("True/Placed"),
        "after nine seconds"
    );
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(
        ready(&server, "a").as_deref(),
        Some("False/Failed"),
        "after twenty"
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_watches_is_said_on_the_object() {
    let server = server();
    let how = How {
        cached: &["Ingress"],
        ..How::default()
    };
    let _running = start(&server, how);
    let mark = server.mark();
    server.create(site("a", "map", "one"));
    until_ready(&server, "a", "False/Failed").await;
    let said = server.get("Site", "shop", "a").unwrap()["status"]["conditions"].to_string();
    assert!(
        said.contains("the operator has no watch of ConfigMap/v1"),
        "{said}; asked: {:?}; events: {:?}",
        lines(&server, mark),
        told(&server)
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_forbidden_is_said_on_the_object() {
    let server = server();
    for verb in ["list", "watch"] {
        server.deny(USER, verb, "configmaps");
    }
    let client = server.client_as(USER);
    let metrics = Metrics::new("lab");
    let hub = WatchHub::new(client.clone(), metrics.clone());
    let ours = Selector::labels("app.kubernetes.io/managed-by=lab");
    let sites = hub.typed::<Site>(&Scope::All, &Selector::default());
    let maps = hub.children(MAP, &Scope::All, &ours);
    let ingresses = hub.children(INGRESS, &Scope::All, &ours);
    let triggers = Triggers::<Site>::default();
    let caches = Arc::new(vec![(MAP, maps.clone()), (INGRESS, ingresses.clone())]);
    let owned = Owned::new(client.clone(), "lab", "example.org", caches, &metrics);
    let kept = (
        maps.listen(on_change_of_child(&triggers)),
        sites.listen(on_change_of_self(&triggers, |_, _| true)),
        (sites.start(), maps.start(), ingresses.start()),
    );
    let reporting = Reporting::kube(client, CONTRACT, Lab::NAME);
    let metadata = OperatorMetadata::standard("lab", "default", Lab::NAME);
    let parts = Parts::new(Mine::default(), owned, reporting, metadata, metrics);
    // not waited for: as where a cache is optional
    let spec = ControllerSpec::new(Lab::NAME, sites, triggers, parts.stack());
    let (stop, _) = common::run(spec, (kept, hub));
    let _guard = stop.drop_guard();
    let mark = server.mark();
    server.create(site("a", "map", "one"));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(ready(&server, "a"), None, "it may pass");
    tokio::time::sleep(Duration::from_secs(11)).await;
    let said = server.get("Site", "shop", "a").unwrap()["status"]["conditions"].to_string();
    assert!(
        said.contains("the cache of ConfigMap/v1 is not complete yet: ")
            && said.contains("cannot list resource"),
        "{said}; asked: {:?}",
        lines(&server, mark)
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_the_status_subresource_is_an_event_and_an_error() {
    let server = server();
    // A controller has the rights of its watch alone.
    server.deny("*", "get", "sites");
    server.serve(ResourceDef::custom("example.org", "v1", "Site", "sites").without_status());
    let running = start(&server, How::default());
    let mark = server.mark();
    server.create(site("a", "map", "one"));
    tokio::time::sleep(HOUR).await;
    let events = told(&server);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("Warning StatusNotWritten: "), "{events:?}");
    let metrics = running.metrics.encode();
    let invalid = metrics
        .lines()
        .any(|l| l.contains("invalid") && !l.ends_with(" 0"));
    let asked = lines(&server, mark);
    assert!(invalid, "{metrics}; asked {asked:?}");
    assert!(asked.len() < 60, "{} requests in an hour: {asked:?}", asked.len());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_goes_before_its_status_is_written_needs_no_right_but_the_watchs() {
    let server = server();
    let _running = start(&server, How::default());
    // Given a status that reaches the server after its object has gone
    let status = Matcher::writes().resource("sites/status");
    server.fault(status, Fault::Delay(Duration::from_secs(2)), Times::Count(1));
    let mark = server.mark();
    server.create(site("a", "map", "one"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.delete("Site", "shop", "a");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = lines(&server, mark);
    let missed = |line: &&String| line.contains("sites/status") && line.contains("404");
    assert_eq!(asked.iter().filter(missed).count(), 1, "{asked:?}");
    assert!(
        !asked.iter().any(|line| line.starts_with("GET sites")),
        "{asked:?}"
    );
}

/// As a Service: its ports are a list with keys, to which several managers may add.
const SERVICE: ApiKind = ApiKind::new("example.org", "v1", "Door", "doors");

/// Wants a Service with one port.
struct Serving;

impl Planner for Serving {
    type Object = Site;
    type Verdict = ();
    const NAME: &'static str = "lab";
    fn needs(_: &Site) -> Needs {
        Needs::default()
    }
    async fn plan(&self, request: &Request<Site>) -> Result<Plan<()>, ReconcileError> {
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}]);
        let child = Desired::new(
            SERVICE,
            request.object.as_ref(),
            json!({"spec": {"ports": ports}}),
        );
        Ok(Plan::report(()).with(ChildPlan::Want(Box::new(child))))
    }
    fn report(_: &Site, _: &Verdict<()>, children: &Children) -> Report {
        let contested = children
            .0
            .iter()
            .any(|child| matches!(child.state, ChildState::Contested { .. }));
        let reason = if contested { "Contested" } else { "Placed" };
        Report::new(Outcome::Done).condition(Condition::new("Ready", !contested, reason, ""))
    }
    fn report_error(_: &Site, error: &ReconcileError) -> Report {
        Report::new(Outcome::Done).condition(Condition::new("Ready", false, "Failed", error.message.clone()))
    }
    fn conditions(site: &Site) -> &[MetaCondition] {
        Lab::conditions(site)
    }
    fn status_field(_: &Site, _: &str) -> Option<Value> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_that_another_manager_adds_is_nobodys_contest() {
    let server = server();
    let port = schema::object([
        ("name", schema::string()),
        ("port", schema::integer()),
        ("protocol", schema::string()),
        ("targetPort", schema::integer()),
    ]);
    let spec = schema::object([("ports", schema::list(port).keyed(["port"]))]);
    let door = ResourceDef::custom("example.org", "v1", "Door", "doors");
    server.serve(door.with_schema(schema::object([("spec", spec)])));
    let client = server.client_as(USER);
    let metrics = Metrics::new("lab");
    let hub = WatchHub::new(client.clone(), metrics.clone());
    let ours = Selector::labels("app.kubernetes.io/managed-by=lab");
    let sites = hub.typed::<Site>(&Scope::All, &Selector::default());
    let services = hub.children(SERVICE, &Scope::All, &ours);
    let triggers = Triggers::<Site>::default();
    let caches = Arc::new(vec![(SERVICE, services.clone())]);
    let owned = Owned::new(client.clone(), "lab", "example.org", caches, &metrics);
    let kept = (
        services.listen(owned.memory.follow(SERVICE)),
        services.listen(on_change_of_child(&triggers)),
        sites.listen(on_change_of_self(&triggers, |_, _| true)),
        (sites.start(), services.start()),
    );
    let reporting = Reporting::kube(client, CONTRACT, Lab::NAME);
    let metadata = OperatorMetadata::standard("lab", "default", Lab::NAME);
    let parts = Parts::new(Serving, owned, reporting, metadata, metrics);
    let spec = ControllerSpec::new(Lab::NAME, sites, triggers, parts.stack()).wait_for(&services);
    let (stop, _) = common::run(spec, (kept, hub));
    let _guard = stop.drop_guard();
    server.create(site("a", "", ""));
    until_ready(&server, "a", "True/Placed").await;
    quiet(&server).await;
    // another manager owns a port of its own in the same list, once
    server.apply_as(
        "mesh",
        json!({
            "apiVersion": "example.org/v1", "kind": "Door", "metadata": {"name": "a", "namespace": "shop"},
            "spec": {"ports": [{"name": "metrics", "port": 9090, "protocol": "TCP", "targetPort": 9090}]},
        }),
    );
    quiet(&server).await;
    let ports = server.get("Door", "shop", "a").unwrap()["spec"]["ports"].clone();
    assert_eq!(ports.as_array().unwrap().len(), 2, "{ports}");
    // and the object changes now and then in fields that are not ours
    for n in 0..8 {
        let note = json!({"metadata": {"annotations": {"n": n.to_string()}}});
        server.edit("Door", "shop", "a", note);
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    quiet(&server).await;
    let ports = server.get("Door", "shop", "a").unwrap()["spec"]["ports"].clone();
    // One more apply than the creation: it finds out that no own field was changed.
    assert_eq!(
        (ready(&server, "a").as_deref(), applies(&server, USER, "doors")),
        (Some("True/Placed"), 2),
        "(condition, applies); ports {ports}; events {:?}",
        told(&server)
    );
}
