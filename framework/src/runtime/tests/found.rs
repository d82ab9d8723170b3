//! Stories of what a cache knows of one object, and of one namespace beside others.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::networking::v1::Ingress;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::until;
use crate::{
    ErrorClass,
    runtime::{
        Change, Handle, Metrics, Scope, Selector, WatchHub,
        hub::{Coverage, Found},
        lock,
    },
    testing::{ApiServer, Fault, Matcher, Times},
};

const OPERATOR: &str = "operator";

fn ingress(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "defaultBackend": { "service": { "name": "s", "port": { "number": 80 } } } },
    })
}

fn server() -> ApiServer {
    let server = ApiServer::new();
    for namespace in ["a", "b", "c"] {
        server.namespace(namespace);
    }
    server
}

fn watch(server: &ApiServer, scope: &Scope) -> Handle<Ingress> {
    let hub = WatchHub::new(server.client_as(OPERATOR), Metrics::default());
    hub.typed::<Ingress>(scope, &Selector::default())
}

fn namespaces(list: &[&str]) -> Scope {
    Scope::Namespaces(list.iter().map(|n| (*n).to_owned()).collect())
}

fn word<K>(found: Found<K>) -> &'static str {
    match found {
        Found::Present(_) => "present",
        Found::Absent => "absent",
        Found::NotWatched => "not watched",
        Found::NotPermitted(_) => "not permitted",
        Found::NotDecodable { .. } => "not decodable",
        Found::Unknown => "unknown",
    }
}

fn deny(server: &ApiServer, namespace: &str) -> Vec<crate::testing::RuleId> {
    ["list", "watch", "get"]
        .map(|verb| server.deny_in(namespace, OPERATOR, verb, "*"))
        .to_vec()
}

#[tokio::test(start_paused = true)]
async fn five_ways_of_not_having_an_object_are_told_apart() {
    let server = server();
    server.create(ingress("a", "one"));
    deny(&server, "b");
    let handle = watch(&server, &namespaces(&["a", "b"]));
    let find = |namespace: &str, name: &str| word(handle.find(namespace, name));
    // before it runs
    assert_eq!(find("a", "one"), "unknown");
    assert_eq!(find("c", "one"), "not watched");
    let running = handle.start();
    assert_eq!(find("a", "one"), "unknown");
    assert!(handle.store().complete().is_none());
    handle.ready().await;
    assert_eq!(find("a", "one"), "present");
    assert_eq!(find("a", "two"), "absent");
    assert_eq!(find("b", "one"), "not permitted");
    assert_eq!(find("c", "one"), "not watched");
    assert_eq!(handle.coverage("a"), Coverage::Complete);
    assert_eq!(handle.coverage("c"), Coverage::NotWatched);
    let Coverage::NotPermitted(problem) = handle.coverage("b") else {
        panic!("{:?}", handle.coverage("b"))
    };
    assert!(
        problem.message.contains("cannot list resource"),
        "{}",
        problem.message
    );
    let sources: Vec<_> = handle
        .sources()
        .into_iter()
        .map(|s| (s.namespace, s.synced))
        .collect();
    assert_eq!(
        sources,
        [(Some("a".to_owned()), true), (Some("b".to_owned()), false)]
    );
    assert_eq!(handle.store().complete().unwrap().all().len(), 1);
    drop(running);
    assert_eq!(find("a", "one"), "unknown");
    assert_eq!(handle.coverage("a"), Coverage::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_its_type_is_there_and_shows_its_last_good_version() {
    let server = server();
    for name in ["early", "late"] {
        server.create(ingress("a", name));
    }
    let api = super::super::script::Script::default();
    let object = |number: Value| {
        let mut object = ingress("a", "x");
        object["spec"]["defaultBackend"]["service"]["port"]["number"] = number;
        object
    };
    api.put(
        "networking.k8s.io/v1/ingresses",
        "a",
        "early",
        object(json!("text")),
    );
    api.put("networking.k8s.io/v1/ingresses", "a", "late", object(json!(80)));
    let hub = WatchHub::new(api.client(), Metrics::default());
    let handle = hub.typed::<Ingress>(&Scope::All, &Selector::default());
    let _running = handle.start();
    handle.ready().await;
    assert!(matches!(
        handle.find("a", "early"),
        Found::NotDecodable { last: None, .. }
    ));
    assert!(matches!(handle.find("a", "late"), Found::Present(_)));
    api.put(
        "networking.k8s.io/v1/ingresses",
        "a",
        "late",
        object(json!("text")),
    );
    until("the mark", || {
        matches!(
            handle.find("a", "late"),
            Found::NotDecodable { last: Some(_), .. }
        )
    })
    .await;
    let Found::NotDecodable { error, .. } = handle.find("a", "late") else {
        panic!()
    };
    assert!(error.contains("number"), "{error}");
    api.put("networking.k8s.io/v1/ingresses", "a", "late", object(json!(81)));
    until("the good one", || {
        matches!(handle.find("a", "late"), Found::Present(_))
    })
    .await;
    api.delete("networking.k8s.io/v1/ingresses", "a", "early");
    until("the end", || matches!(handle.find("a", "early"), Found::Absent)).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_without_rights_holds_up_no_other_and_is_taken_in_when_the_rights_come() {
    let server = server();
    for namespace in ["a", "b"] {
        server.create(ingress(namespace, "one"));
    }
    let denied = deny(&server, "b");
    let log = super::Log::default();
    let _logging = log.start();
    let handle = watch(&server, &namespaces(&["a", "b"]));
    let told = Arc::new(Mutex::new(Vec::new()));
    let (listener, asked) = (Arc::clone(&told), handle.clone());
    let _listening = handle.listen(Box::new(move |change| {
        // a listener may ask the watch that tells it
        let _ = (
            asked.status(),
            asked.undecodable(),
            asked.is_undecodable("a", "x"),
        );
        lock(&listener).push(match change {
            Change::Applied { new, .. } => format!(
                "{} in b: {}",
                new.metadata.namespace.as_deref().unwrap(),
                word(asked.find("b", "two"))
            ),
            Change::Deleted { .. } => "deleted".to_owned(),
            Change::Ready => format!("ready, in b: {}", word(asked.find("b", "two"))),
            Change::Stopped => "stopped".to_owned(),
        });
    }));
    let running = handle.start();
    let begin = Instant::now();
    handle.ready().await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(
        std::mem::take(&mut *lock(&told)),
        ["a in b: not permitted", "ready, in b: not permitted"]
    );
    // its refusal is one problem, which what happens elsewhere does not take back
    let problem = handle.problem().unwrap();
    assert_eq!(problem.class, ErrorClass::Forbidden);
    for n in 0..5 {
        server.create(ingress("a", &format!("more{n}")));
        sleep(Duration::from_secs(40)).await;
        assert_eq!(handle.problem().as_ref(), Some(&problem));
    }
    lock(&told).clear();
    let (fails, works) = (log.lines("the watch fails"), log.lines("works again"));
    assert_eq!((fails.len(), works.len()), (1, 0), "{fails:?}");
    assert!(fails[0].contains("namespace=\"b\""), "{fails:?}");
    // the rights come
    for rule in denied {
        server.undeny(rule);
    }
    until("the other namespace", || {
        !lock(&told).is_empty() && handle.problem().is_none()
    })
    .await;
    assert_eq!(
        std::mem::take(&mut *lock(&told)),
        ["b in b: unknown", "ready, in b: absent"]
    );
    // and go: the known ones stay known, of others nothing is concluded
    deny(&server, "b");
    server.compact();
    server.cut_watches("ingresses");
    until("the refusal", || word(handle.find("b", "two")) == "not permitted").await;
    assert_eq!(word(handle.find("b", "one")), "present");
    assert_eq!(word(handle.find("a", "two")), "absent");
    drop(running);
    assert_eq!(lock(&told).last().map(String::as_str), Some("stopped"));
}

#[tokio::test(start_paused = true)]
async fn without_rights_in_any_namespace_nothing_is_ready_and_a_single_refusal_is_no_missing_right() {
    let server = server();
    for namespace in ["a", "b"] {
        deny(&server, namespace);
    }
    let handle = watch(&server, &namespaces(&["a", "b"]));
    let _running = handle.start();
    sleep(Duration::from_secs(600)).await;
    assert!(!handle.is_ready());
    assert_eq!(handle.problem().unwrap().class, ErrorClass::Forbidden);
    // an API server that has not read its rules yet
    let server = self::server();
    let young = Matcher::any().namespace("b");
    server.fault(young, Fault::Status(403), Times::Count(1));
    let handle = watch(&server, &namespaces(&["a", "b"]));
    let _running = handle.start();
    handle.ready().await;
    assert_eq!(handle.coverage("b"), Coverage::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_that_works_again_says_so() {
    let server = server();
    let handle = watch(&server, &Scope::All);
    let _running = handle.start();
    handle.ready().await;
    let broken = server.fault(Matcher::watches(), Fault::ConnectionError, Times::Always);
    server.cut_watches("ingresses");
    until("the problem", || handle.problem().is_some()).await;
    // it fails often enough to pause for long
    sleep(Duration::from_secs(100)).await;
    server.unfault(broken);
    until("the watch", || server.open_watches("ingresses") == 1).await;
    sleep(Duration::from_secs(6)).await;
    assert!(handle.problem().is_none(), "no event came, and none was needed");
    // and the next hiccup costs a short pause again
    sleep(Duration::from_secs(40)).await;
    server.fault(Matcher::watches(), Fault::ConnectionError, Times::Count(1));
    server.cut_watches("ingresses");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.open_watches("ingresses"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_bookmarks_stop_coming_is_opened_anew() {
    let server = server();
    let handle = watch(&server, &Scope::All);
    let _running = handle.start();
    handle.ready().await;
    until("the watch", || server.open_watches("ingresses") == 1).await;
    let mark = server.mark();
    for _ in 0..4 {
        sleep(Duration::from_secs(60)).await;
        server.send_bookmarks();
    }
    assert_eq!(
        server.calls_since(mark).len(),
        0,
        "as long as they come it is left alone"
    );
    // the connection dies without a word
    sleep(Duration::from_secs(95)).await;
    assert!(
        server.calls_since(mark).len() <= 2,
        "{:?}",
        server.calls_since(mark)
    );
    assert!(
        !server.calls_since(mark).is_empty(),
        "the dead watch is not noticed"
    );
    server.create(ingress("a", "one"));
    until("the event", || word(handle.find("a", "one")) == "present").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_no_bookmarks_is_not_asked_more_often() {
    let server = server();
    let handle = watch(&server, &Scope::All);
    let _running = handle.start();
    handle.ready().await;
    until("the watch", || server.open_watches("ingresses") == 1).await;
    let mark = server.mark();
    sleep(Duration::from_secs(280)).await;
    assert_eq!(server.calls_since(mark).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn whole_objects_and_their_metadata_are_two_watches() {
    let server = server();
    server.create(ingress("a", "one"));
    let hub = WatchHub::new(server.client_as(OPERATOR), Metrics::default());
    type Meta = PartialObjectMeta<Ingress>;
    let metadata = hub.metadata::<Ingress>(&Scope::All, &Selector::default());
    let typed = hub.typed::<Meta>(&Scope::All, &Selector::default());
    let _running = (metadata.start(), typed.start());
    metadata.ready().await;
    typed.ready().await;
    assert_eq!(hub.status().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stops_is_never_ready_and_empty_at_once() {
    let server = server();
    server.create(ingress("a", "one"));
    let handle = watch(&server, &Scope::All);
    let (seen, asked) = (Arc::new(Mutex::new(Vec::new())), handle.clone());
    let note = Arc::clone(&seen);
    let _listening = handle.listen(Box::new(move |change| {
        if matches!(change, Change::Stopped) {
            lock(&note).push((
                asked.is_ready(),
                word(asked.find("a", "one")),
                asked.status().running,
            ));
        }
    }));
    let running = handle.start();
    handle.ready().await;
    drop(running);
    assert_eq!(*lock(&seen), [(false, "unknown", false)]);
}
