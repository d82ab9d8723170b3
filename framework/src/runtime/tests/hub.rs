//! Stories of the watch hub.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::until;
use crate::{
    ApiKind, ErrorClass,
    runtime::{
        Change, Handle, Listener, Metrics, Scope, Selector, WatchHub, lock,
        script::{Script, forbidden},
    },
};

const INGRESSES: &str = "networking.k8s.io/v1/ingresses";
const INGRESS: ApiKind = ApiKind::new("networking.k8s.io", "v1", "Ingress", "ingresses");

fn object(host: impl Into<Value>) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "managedFields": [{ "manager": "m", "operation": "Apply" }] },
        "spec": { "rules": [{ "host": host.into() }] },
    })
}

fn hub(api: &Script) -> WatchHub {
    WatchHub::new(api.client(), Metrics::default())
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn listener(&self) -> Listener<Ingress> {
        let told = self.clone();
        Box::new(move |change| {
            lock(&told.0).push(match change {
                Change::Applied { old: None, new } => format!("new {}", new.name_any()),
                Change::Applied { old: Some(_), new } => format!("changed {}", new.name_any()),
                Change::Deleted { old } => format!("deleted {}", old.name_any()),
                Change::Ready => "ready".to_owned(),
                Change::Stopped => "stopped".to_owned(),
            });
        })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }

    fn has(&self, what: &str) -> bool {
        lock(&self.0).iter().any(|t| t == what)
    }
}

fn host(handle: &Handle<Ingress>, name: &str) -> Option<String> {
    let ingress = handle.store().get("ns", name)?;
    ingress.spec.as_ref()?.rules.as_ref()?.first()?.host.clone()
}

#[tokio::test(start_paused = true)]
async fn a_late_list_makes_the_cache_ready_late_and_nothing_is_known_before() {
    let api = Script::default();
    api.put(INGRESSES, "ns", "a", object("a.example"));
    api.fault(|_, _| Some((503, "overloaded".to_owned())));
    let (hub, told) = (hub(&api), Told::default());
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _listening = handle.listen(told.listener());
    let _running = handle.start();
    until("a visible problem", || handle.problem().is_some()).await;
    assert!(!handle.is_ready());
    assert_eq!(told.take(), Vec::<String>::new());

    api.heal();
    handle.ready().await;
    assert_eq!(told.take(), ["new a", "ready"]);
    assert_eq!(host(&handle, "a").as_deref(), Some("a.example"));
    assert!(handle.problem().is_none());
    let cached = handle.store().get("ns", "a").unwrap();
    assert!(cached.metadata.managed_fields.is_none());
    // somebody who comes late is told the same
    let late = Told::default();
    let _late = handle.listen(late.listener());
    assert_eq!(late.take(), ["new a", "ready"]);
}

#[tokio::test(start_paused = true)]
async fn what_vanished_while_nobody_watched_is_told_and_what_did_not_change_is_not() {
    let api = Script::default();
    for name in ["gone", "same", "changed", "replaced"] {
        api.put(INGRESSES, "ns", name, object("old.example"));
    }
    let (hub, told) = (hub(&api), Told::default());
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::labels("app=x"));
    let _running = handle.start();
    handle.ready().await;
    let _listening = handle.listen(told.listener());
    told.take();

    // the watch is cut, and until it is back the world moves on and history expires
    api.fault(|_, _| Some((0, String::new())));
    api.cut();
    api.delete(INGRESSES, "ns", "gone");
    api.delete(INGRESSES, "ns", "replaced");
    api.put(INGRESSES, "ns", "replaced", object("other.example"));
    api.put(INGRESSES, "ns", "changed", object("new.example"));
    api.put(INGRESSES, "ns", "born", object("born.example"));
    api.expire();
    until("a visible problem", || handle.problem().is_some()).await;
    assert_eq!(
        handle.store().len(),
        4,
        "a failing watch says nothing about objects"
    );
    api.heal();

    until("the relist", || told.has("deleted gone")).await;
    let mut seen = told.take();
    seen.sort();
    assert_eq!(
        seen,
        [
            "changed changed",
            "deleted gone",
            "deleted replaced",
            "new born",
            "new replaced"
        ]
    );
    assert_eq!(host(&handle, "changed").as_deref(), Some("new.example"));
    assert!(handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_is_left_out_and_stalls_nothing() {
    let api = Script::default();
    api.put(INGRESSES, "ns", "good", object("good.example"));
    api.put(INGRESSES, "ns", "bad", object(5));
    let hub = hub(&api);
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let told = Told::default();
    let _listening = handle.listen(told.listener());
    let _running = handle.start();
    handle.ready().await;
    assert_eq!(told.take(), ["new good", "ready"]);
    let bad = handle.undecodable();
    assert_eq!((bad.len(), bad[0].name.as_str()), (1, "bad"));
    assert!(bad[0].error.contains("spec.rules[0].host"), "{}", bad[0].error);

    // a good one turns bad: the copy from before stays, marked
    api.put(INGRESSES, "ns", "good", object(6));
    until("the mark", || handle.undecodable().len() == 2).await;
    assert_eq!(host(&handle, "good").as_deref(), Some("good.example"));
    assert_eq!(told.take(), Vec::<String>::new());
    // also over a relist
    api.expire();
    api.cut();
    api.put(INGRESSES, "ns", "bell", object("bell.example"));
    until("the relist", || told.has("new bell")).await;
    assert_eq!(host(&handle, "good").as_deref(), Some("good.example"));
    told.take();

    // both get well, or go
    api.put(INGRESSES, "ns", "bad", object("bad.example"));
    api.delete(INGRESSES, "ns", "good");
    until("both", || told.has("deleted good")).await;
    assert_eq!(told.take(), ["new bad", "deleted good"]);
    assert_eq!(handle.undecodable(), []);
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_under_a_new_uid_does_not_keep_the_copy_of_another() {
    let api = Script::default();
    api.put(INGRESSES, "ns", "a", object("a.example"));
    let hub = hub(&api);
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _running = handle.start();
    handle.ready().await;
    let mut other = object(5);
    other["metadata"]["uid"] = json!("another");
    api.put(INGRESSES, "ns", "a", other);
    until("the mark", || !handle.undecodable().is_empty()).await;
    assert!(handle.store().get("ns", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_feed_one_store_that_is_ready_when_all_are_listed() {
    let api = Script::default();
    for namespace in ["one", "two", "other"] {
        api.put(INGRESSES, namespace, "a", object("a.example"));
    }
    api.fault(|_, uri| uri.contains("/namespaces/two/").then(|| (500, String::new())));
    let hub = hub(&api);
    let scope = Scope::Namespaces(vec!["one".to_owned(), "two".to_owned()]);
    let told = Told::default();
    let handle = hub.typed::<Ingress>(&scope, &Selector::default());
    let _listening = handle.listen(told.listener());
    let _running = handle.start();
    until("one watch", || api.watches() == 1).await;
    // while the second namespace is late, the first one moves on
    api.put(INGRESSES, "one", "b", object("b.example"));
    api.delete(INGRESSES, "one", "a");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!handle.is_ready());
    assert_eq!(told.take(), Vec::<String>::new());

    api.heal();
    handle.ready().await;
    let mut seen = told.take();
    assert_eq!(seen.pop().as_deref(), Some("ready"));
    seen.sort();
    assert_eq!(seen, ["new a", "new b"]);
    assert!(handle.store().get("one", "a").is_none());
    assert!(handle.store().get("two", "a").is_some());

    // a relist of one namespace touches only that one
    api.fault(|_, _| Some((500, String::new())));
    api.expire();
    api.cut();
    api.delete(INGRESSES, "two", "a");
    api.heal();
    until("the relist", || told.has("deleted a")).await;
    assert_eq!(told.take(), ["deleted a"]);
    assert!(handle.store().get("one", "b").is_some());
}

#[tokio::test(start_paused = true)]
async fn stopping_drops_the_store_and_a_new_start_has_a_new_one() {
    let api = Script::default();
    api.put(INGRESSES, "ns", "a", object("a.example"));
    let (hub, told) = (hub(&api), Told::default());
    let handle = hub.children(INGRESS, &Scope::All, &Selector::default());
    let typed = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _listening = typed.listen(told.listener());
    let (first, second) = (typed.start(), typed.start());
    typed.ready().await;
    drop(first);
    assert!(typed.is_ready(), "somebody still wants it");
    drop(second);
    assert_eq!(told.take(), ["new a", "ready", "stopped"]);
    assert!(!typed.is_ready());
    assert!(typed.store().reflector().is_none());
    until("the end of the watch", || api.watches() == 0).await;

    api.delete(INGRESSES, "ns", "a");
    api.put(INGRESSES, "ns", "b", object("b.example"));
    let _again = typed.start();
    typed.ready().await;
    assert_eq!(told.take(), ["new b", "ready"]);
    // the same kind as children is a cache of its own
    let _children = handle.start();
    handle.ready().await;
    assert_eq!(&*handle.store().get("ns", "b").unwrap().appliers, ["m".into()]);
    let again = hub.children(INGRESS, &Scope::All, &Selector::default());
    assert!(again.is_ready(), "the same arguments give the same watch");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_visible_with_the_words_of_the_api_server() {
    let api = Script::default();
    api.fault(|_, _| Some(forbidden("ingresses is forbidden: User x cannot list")));
    let hub = hub(&api);
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _running = handle.start();
    until("the problem", || handle.problem().is_some()).await;
    let problem = hub.status()[0].problem.clone().unwrap();
    assert_eq!(problem.class, ErrorClass::Forbidden);
    assert_eq!(
        problem.message,
        "list: ingresses is forbidden: User x cannot list"
    );
    // granted: no restart needed
    api.heal();
    handle.ready().await;
    assert_eq!(hub.status()[0].problem, None);
}

#[tokio::test(start_paused = true)]
async fn requests_stay_few_whatever_goes_wrong() {
    type Fault = fn(&http::Method, &str) -> Option<(u16, String)>;
    let faults: [(&str, Fault); 7] = [
        ("refused", |_, _| Some((0, String::new()))),
        ("5xx", |_, _| Some((503, "no".to_owned()))),
        ("kind absent", |_, _| {
            Some((404, "404 page not found\n".to_owned()))
        }),
        ("watch denied", |_, uri| {
            uri.contains("watch=true").then(|| forbidden("no watch"))
        }),
        // the first page comes, the second never does
        ("half a list", |_, uri| {
            let page = json!({
                "apiVersion": "v1", "kind": "List", "metadata": { "continue": "more" },
                "items": [{ "metadata": { "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1" } }],
            });
            Some(match uri.contains("continue=more") {
                true => (503, "no".to_owned()),
                false => (200, page.to_string()),
            })
        }),
        // the list works and every watch ends at once, without an error
        ("ends at once", |_, uri| {
            uri.contains("watch=true").then(|| (200, String::new()))
        }),
        ("no events", |_, uri| {
            uri.contains("watch=true")
                .then(|| (200, "404 page not found\n".to_owned()))
        }),
    ];
    for (what, fault) in faults {
        let api = Script::default();
        api.fault(fault);
        let hub = hub(&api);
        let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
        let _running = handle.start();
        tokio::time::sleep(Duration::from_secs(600)).await;
        // the second half of a list belongs to the first
        let mut log = api.take_log();
        log.retain(|asked| !asked.contains("continue="));
        let asked = log.len();
        assert!(
            (20..=75).contains(&asked),
            "{what}: {asked} requests in 10 minutes"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_begins_is_given_up() {
    let hanging = kube::Client::new(
        tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
        }),
        "default",
    );
    let hub = WatchHub::new(hanging, Metrics::default());
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _running = handle.start();
    until("the problem", || handle.problem().is_some()).await;
    assert_eq!(handle.problem().unwrap().class, ErrorClass::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_does_not_deafen_the_others() {
    let api = Script::default();
    api.put(INGRESSES, "ns", "a", object("a.example"));
    let (hub, told) = (hub(&api), Told::default());
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _bad = handle.listen(Box::new(|_| panic!("a bug in a listener")));
    let _good = handle.listen(told.listener());
    let _running = handle.start();
    handle.ready().await;
    api.put(INGRESSES, "ns", "b", object("b.example"));
    until("the event", || told.has("new b")).await;
    assert_eq!(told.take(), ["new a", "ready", "new b"]);
}
