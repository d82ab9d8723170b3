//! What goes wrong around the operator: rights, conflicts, outages, silence, lost answers, a panic, a lost lease. It says
//! so, loses nothing, and does not run hot.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use reconcile_kit::{
    ApiKind, Child, Outcome, Request,
    events::NoEvents,
    layers::{
        api_presence::Presence, conditions::Reporting, metadata::OperatorMetadata, owned_children::Owned,
        policy::Backoff,
    },
    owned::{ChildCache, KubeChildWriter, Lookup, WriteMemory},
    runtime::{Metrics, leadership::Leadership, write_guard::WriteGuard},
    stack::{Parts, Timeouts},
    status_writer::KubeStatusWriter,
    testing::{Fault, Matcher, Times, Verb},
};
use routewright::{
    app::App,
    exposure::{
        ExposureKind,
        plan::{Exposer, ExposurePlanner, Facts, FoundCluster, IngressExposer, NotReady},
        status::CONTRACT,
    },
};
use routewright_crds::{GarageBucket, GarageReferenceGrant};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::support::*;

const FAILED: [&str; 3] = [
    "APPLY ingresses blog-website -> 403",
    "APPLY garagebuckets/status blog -> 200",
    "EVENT Warning ReconcileFailed",
];

fn mine() -> Matcher {
    Matcher::any().user(OPERATOR)
}

// ---- rights ---------------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_write_is_a_condition_and_no_hot_loop() {
    let server = server(false);
    let denied = server.deny(OPERATOR, "patch", "ingresses");
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let mut story = Story::on(server, &both()).await;
    let calls = story.settle().await;
    assert_eq!(calls[..3], FAILED);
    assert!(
        calls.len() <= 4,
        "and perhaps one more try when the bucket's own status comes back: {calls:#?}"
    );
    let says = story.says();
    assert!(
        says.starts_with("False/ReconcileFailed: ")
            && says.contains("Ingress web/blog-website")
            && says.contains("forbidden"),
        "{says}"
    );
    assert_eq!(story.block(), json!({"type": "Ingress"}));
    let calls = lines(&story.pass(Duration::from_secs(600)).await);
    assert!(
        (1..=3).contains(&calls.len()) && calls.iter().all(|line| line == FAILED[0]),
        "{calls:#?}"
    );
    story.server.undeny(denied);
    story.pass(Duration::from_secs(400)).await;
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_watch_is_a_condition_too_and_readiness_names_it() {
    for (exposure, resource, kind) in [
        (by_ingress(), "ingresses", "Ingress"),
        (by_route(), "httproutes", "HTTPRoute"),
    ] {
        let server = server(true);
        let denied = [
            server.deny(OPERATOR, "list", resource),
            server.deny(OPERATOR, "watch", resource),
        ];
        put(&server, cluster());
        put(&server, bucket(exposure));
        let mut story = Story::on(server, &both()).await;
        let says = format!("False/ReconcileFailed: watch {kind} web/blog-website: ");
        eventually(&story.server, "the condition", || {
            story.says().starts_with(&says).then_some(())
        })
        .await;
        assert!(story.says().contains("forbidden"), "{}", story.says());
        assert_eq!(story.block(), json!({"type": kind}));
        let readyz = story.readyz().await;
        assert!(
            readyz.contains(kind) && readyz.to_lowercase().contains("forbidden"),
            "{readyz}"
        );
        story.settle().await;
        let calls = story.pass(Duration::from_secs(600)).await;
        assert_eq!(lines(&calls), NOTHING);
        assert!(
            about(&calls, resource).len() <= 40,
            "{} lists in 10 minutes",
            about(&calls, resource).len()
        );

        for denial in denied {
            story.server.undeny(denial);
        }
        eventually(&story.server, "the child", || {
            story.server.get(kind, "web", "blog-website")
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_for_the_other_kind_disturbs_nobody() {
    let server = server(true);
    for verb in ["list", "watch", "patch", "get", "delete"] {
        server.deny(OPERATOR, verb, "ingresses");
    }
    put(&server, cluster());
    put(&server, bucket(by_route()));
    let mut story = Story::on(server, &both()).await;
    assert_eq!(story.settle().await, ROUTE_CREATED);
    story.expose(Value::Null);
    let calls = story.settle().await;
    assert!(
        !calls.iter().any(|line| line.contains("CleanupFailed")),
        "there never was an Ingress: {calls:#?}"
    );
    assert_eq!(story.says(), "–");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_look_at_classes_or_to_send_events_costs_nothing_else() {
    let server = server(false);
    for (verb, resource) in [
        ("list", "ingressclasses"),
        ("watch", "ingressclasses"),
        ("create", "events"),
        ("patch", "events"),
    ] {
        server.deny(OPERATOR, verb, resource);
    }
    put(&server, cluster());
    put(
        &server,
        bucket(json!({"ingress": {"ingressClassName": "unheard-of"}})),
    );
    let mut story = Story::on(server, &both()).await;
    let calls = story.settle().await;
    assert_eq!(calls[..2], INGRESS_CREATED[..2], "{calls:#?}");
    // But for the word that the class is not checked.
    assert!(
        story.says().starts_with(
            "True/Exposed: Ingress web/blog-website; its IngressClass unheard-of cannot be checked"
        ),
        "{}",
        story.says()
    );
}

// ---- status ---------------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_status_field_that_the_crd_does_not_know_never_costs_the_condition() {
    let server = reconcile_kit::testing::ApiServer::new();
    server.namespace("web");
    for crd in routewright_crds::all().unwrap() {
        let mut crd = json!(crd);
        if crd["spec"]["names"]["kind"] == "GarageBucket" {
            for version in crd["spec"]["versions"].as_array_mut().unwrap() {
                let exposure = version
                    .pointer_mut(
                        "/schema/openAPIV3Schema/properties/status/properties/websiteExposure/properties",
                    )
                    .unwrap();
                exposure
                    .as_object_mut()
                    .unwrap()
                    .remove("addresses")
                    .expect("the field is in our CRD");
            }
        }
        server.create(crd);
    }
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let mut story = Story::on(server, &both()).await;
    story.settle().await;
    story.server.set_status(
        "Ingress",
        "web",
        "blog-website",
        json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}),
    );
    let calls = story.settle().await;
    assert!(calls.len() <= 1, "one refused try at the most: {calls:#?}");
    assert!(story.says().starts_with("True/Exposed"), "{}", story.says());
    assert_eq!(
        story.block(),
        json!({"type": "Ingress", "name": "blog-website", "hostnames": ["blog.site.test"]})
    );
    story.edit(json!({"spec": {"websiteExposure": {"hostnames": ["blog"]}}}));
    assert_eq!(
        story.settle().await,
        [
            "APPLY ingresses blog-website -> 200",
            "APPLY garagebuckets/status blog -> 200"
        ]
    );
    assert_eq!(lines(&story.pass(Duration::from_secs(600)).await), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_another_manager_is_left_alone_and_said_once() {
    let server = server(false);
    put(&server, cluster());
    let mut theirs = bucket(by_ingress());
    theirs["status"]["conditions"] = json!([{"type": "WebsiteExposed", "status": "True", "reason": "Theirs",
        "message": "by another operator", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    put(&server, theirs);
    let mut story = Story::on(server, &both()).await;
    let calls = story.settle().await;
    assert_eq!(story.says(), "True/Theirs: by another operator", "{calls:#?}");
    let said = |story: &Story| {
        story
            .events()
            .iter()
            .filter(|e| e.starts_with("Warning StatusOwnedByAnother: "))
            .count()
    };
    assert_eq!(said(&story), 1, "{:#?}", story.events());
    story.edit(json!({"spec": {"websiteExposure": {"hostnames": ["blog"]}}}));
    story.settle().await;
    story.pass(Duration::from_secs(3600)).await;
    assert_eq!(
        (story.says().as_str(), said(&story)),
        ("True/Theirs: by another operator", 1)
    );
    assert_eq!(story.hosts(), ["blog"], "the child is ours all the same");
}

// ---- conflicts, outages, silence ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_storm_of_conflicts_passes_without_a_word_too_many() {
    let mut story = Story::exposed(Value::Null).await;
    let status = Matcher::writes().user(OPERATOR).resource("garagebuckets/status");
    story.server.fault(status, Fault::Conflict, Times::Count(6));
    let child = Matcher::writes().user(OPERATOR).resource("ingresses");
    story.server.fault(child, Fault::Conflict, Times::Count(3));
    story.expose(by_ingress());
    let calls = lines(&story.pass(Duration::from_secs(300)).await);
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
    assert_eq!(story.hosts(), ["blog.site.test"]);
    assert!(calls.len() <= 40, "{} requests: {calls:#?}", calls.len());
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_server_errors_is_a_condition_afterwards_at_the_most() {
    let mut story = Story::exposed(by_ingress()).await;
    let outage = story.server.fault(mine(), Fault::Status(503), Times::Always);
    story.server.cut_watches("*");
    story.edit(json!({"spec": {"websiteExposure": {"hostnames": ["blog"]}}}));
    story.server.delete("Ingress", "web", "blog-website");
    let calls = story.pass(Duration::from_secs(60)).await;
    assert!(
        calls.len() <= 200,
        "{} requests in a minute of errors",
        calls.len()
    );
    story.server.unfault(outage);
    eventually(&story.server, "the Ingress", || story.ingress()).await;
    story.pass(Duration::from_secs(400)).await;
    assert_eq!(
        (story.says().as_str(), story.hosts()),
        ("True/Exposed: Ingress web/blog-website", vec!["blog".into()])
    );
    assert_eq!(story.settle().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn errors_of_one_resource_back_off_and_are_said() {
    let mut story = Story::exposed(Value::Null).await;
    let child = Matcher::writes().user(OPERATOR).resource("ingresses");
    let broken = story.server.fault(child, Fault::Status(500), Times::Always);
    story.expose(by_ingress());
    let calls = lines(&story.pass(Duration::from_secs(600)).await);
    let tries = calls
        .iter()
        .filter(|line| line.starts_with("APPLY ingresses "))
        .count();
    assert!(
        (8..=14).contains(&tries),
        "1 s, 2 s, 4 s … 5 min: {tries} in ten minutes"
    );
    let said = calls
        .iter()
        .filter(|line| line.starts_with("APPLY garagebuckets/status "))
        .count();
    assert_eq!(said, 1, "the same words are no new write: {calls:#?}");
    assert!(
        story
            .says()
            .starts_with("False/ReconcileFailed: create Ingress web/blog-website: "),
        "{}",
        story.says()
    );
    story.server.unfault(broken);
    story.pass(Duration::from_secs(400)).await;
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_admission_is_said_in_its_own_words_and_tried_rarely() {
    for code in [400, 422] {
        let mut story = Story::exposed(Value::Null).await;
        story.server.fault(
            Matcher::writes().user(OPERATOR).resource("ingresses"),
            Fault::Status(code),
            Times::Always,
        );
        story.expose(by_ingress());
        story.settle().await;
        assert!(
            story.says().starts_with("False/ReconcileFailed: "),
            "{}",
            story.says()
        );
        let calls = lines(&story.pass(Duration::from_secs(600)).await);
        assert!((1..=3).contains(&calls.len()), "{code}: {calls:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cut_watches_lose_nothing() {
    let mut story = Story::exposed(by_route()).await;
    for round in 0..5 {
        story.server.cut_watches("*");
        if round % 2 == 0 {
            story.server.compact();
        }
        story.edit(json!({"spec": {"websiteExposure": {"hostnames": [format!("www{round}.example.net")]}}}));
        let wanted = json!([format!("www{round}.example.net")]);
        eventually(&story.server, "the new host", || {
            (story.route().unwrap()["spec"]["hostnames"] == wanted).then_some(())
        })
        .await;
        story.gateway_says("True");
        story.server.end_watches("*");
        reason(&story.server, "blog", "Exposed").await;
        story.settle().await;
        assert!(story.says().starts_with("True/Exposed"), "{}", story.says());
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_come_late_and_out_of_order_make_no_second_write() {
    let mut story = Story::exposed(by_ingress()).await;
    // The watch of Ingresses is a minute behind everything else.
    story.server.fault(
        Matcher::watches().user(OPERATOR).resource("ingresses"),
        Fault::Delay(Duration::from_secs(20)),
        Times::Count(1),
    );
    story.server.fault(
        Matcher::reads().user(OPERATOR).resource("ingresses"),
        Fault::Delay(Duration::from_secs(20)),
        Times::Count(1),
    );
    story.server.cut_watches("ingresses");
    let mut writes = Vec::new();
    for hosts in [
        json!(["blog"]),
        json!(["blog", "blog.site.test"]),
        json!(["blog.site.test"]),
    ] {
        story.edit(json!({"spec": {"websiteExposure": {"hostnames": hosts}}}));
        writes.extend(lines(&story.pass(Duration::from_secs(1)).await));
    }
    assert_eq!(
        writes.iter().filter(|line| line.contains(" ingresses ")).count(),
        3,
        "{writes:#?}"
    );
    assert_eq!(
        lines(&story.pass(Duration::from_secs(120)).await),
        NOTHING,
        "what comes in late is known already"
    );
    assert_eq!(story.hosts(), ["blog.site.test"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_becomes_a_condition_and_is_tried_again() {
    let mut story = Story::exposed(Value::Null).await;
    story.server.fault(
        Matcher::verb(Verb::Apply).user(OPERATOR).resource("ingresses"),
        Fault::Hang,
        Times::Count(1),
    );
    story.expose(by_ingress());
    story.pass(Duration::from_secs(55)).await;
    assert_eq!(story.says(), "–");
    let says = reason(&story.server, "blog", "ReconcileFailed").await;
    assert!(!says.is_empty());
    reason(&story.server, "blog", "Exposed").await;
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_after_the_write_do_no_harm() {
    for fault in [Fault::AnswerLost, Fault::AnswerHangs] {
        for (verb, resource) in [
            (Verb::Apply, "ingresses"),
            (Verb::Apply, "garagebuckets/status"),
            (Verb::Delete, "ingresses"),
            (Verb::Apply, "httproutes"),
            (Verb::Create, "events"),
        ] {
            let mut story = Story::exposed(Value::Null).await;
            let rule = story.server.fault(
                Matcher::verb(verb).user(OPERATOR).resource(resource),
                fault.clone(),
                Times::Count(1),
            );
            story.expose(by_ingress());
            story.pass(Duration::from_secs(300)).await;
            let case = format!("{fault:?} {verb} {resource}");
            assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website", "{case}");
            story.edit(
                json!({"spec": {"websiteExposure": {"ingress": null, "gateway": by_route()["gateway"]}}}),
            );
            story.pass(Duration::from_secs(300)).await;
            assert!(story.ingress().is_none() && story.route().is_some(), "{case}");
            story.gateway_says("True");
            story.settle().await;
            assert_eq!(story.says(), "True/Exposed: HTTPRoute web/blog-website", "{case}");
            story.server.unfault(rule);
            assert_eq!(story.restart(&both()).await, NOTHING, "{case}");
        }
    }
}

// ---- the lease ------------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn after_the_lease_is_lost_nothing_is_written() {
    let server = server(true);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let lease = Leadership::fixed(true);
    let service = tower::ServiceBuilder::new()
        .layer(WriteGuard::new(lease.clone()).layer())
        .service(server.service_as(OPERATOR));
    let client = kube::Client::new(service, "default");
    let operator = App::start(client, lease.clone(), Metrics::default(), &both()).unwrap();
    reason(&server, "blog", "Exposed").await;
    let mark = server.mark();
    quiet(&server, mark).await;

    // A write is under way when the lease goes.
    let slow = Matcher::verb(Verb::Apply).user(OPERATOR).resource("ingresses");
    server.fault(slow, Fault::AnswerDelay(Duration::from_secs(3)), Times::Count(1));
    let mark = server.mark();
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": {"hostnames": ["blog"]}}}),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    lease.set(false);
    assert_eq!(
        quiet(&server, mark).await,
        ["APPLY ingresses blog-website -> 200"],
        "begun before"
    );
    let mark = server.mark();
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": null}}),
    );
    server.delete("Ingress", "web", "blog-website");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let writes: Vec<_> = server.writes_since(mark).iter().map(short).collect();
    assert_eq!(writes, NOTHING);

    lease.set(true);
    eventually(&server, "the condition is over", || {
        condition(&server, "blog").is_none().then_some(())
    })
    .await;
    operator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_watches_and_writes_nothing_until_it_leads() {
    let server = server(true);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let lease = Leadership::fixed(false);
    let operator = App::start(
        server.client_as(OPERATOR),
        lease.clone(),
        Metrics::default(),
        &both(),
    )
    .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = server.calls();
    assert!(
        about(&calls, "garagebuckets")
            .iter()
            .any(|line| line.starts_with("WATCH")),
        "its caches are warm"
    );
    assert_eq!(lines(&calls), NOTHING);
    let mark = server.mark();
    lease.set(true);
    assert_eq!(quiet(&server, mark).await, INGRESS_CREATED);
    operator.shutdown().await;
}

// ---- a panic --------------------------------------------------------------------------------------------------------

/// Facts with a bug in them.
struct Broken;

impl Facts for Broken {
    fn cluster(&self, _: &str, _: &str) -> Result<FoundCluster, NotReady> {
        panic!("a bug")
    }
    fn grants(&self, _: &str) -> Result<Vec<Arc<GarageReferenceGrant>>, NotReady> {
        Ok(Vec::new())
    }
    fn namespace_labels(&self, _: &str) -> Result<Option<BTreeMap<String, String>>, NotReady> {
        Ok(None)
    }
    fn child(&self, _: ExposureKind, _: &str, _: &str) -> Option<Arc<Child>> {
        None
    }
    fn refused(&self, _: ExposureKind) -> Option<String> {
        None
    }
}

struct NoChildren;

impl ChildCache for NoChildren {
    fn child(&self, _: &ApiKind, _: &str, _: &str) -> Lookup {
        Lookup::Absent
    }
}

/// The stack of the ingress controller around a planner with a bug: the panic is said on the bucket, counted, and tried
/// again with back-off.
#[tokio::test(start_paused = true)]
async fn a_panic_while_planning_is_a_condition_and_a_retry() {
    let server = server(false);
    put(&server, bucket(by_ingress()));
    let client = server.client_as(OPERATOR);
    let presence = Arc::new(|_: &ApiKind| Presence::Served);
    let metrics = Metrics::default();
    let reporting = Reporting::new(
        CONTRACT,
        Arc::new(KubeStatusWriter(client.clone())),
        Arc::new(NoEvents),
    );
    let parts = Parts {
        planner: Arc::new(ExposurePlanner::<IngressExposer>::new(
            Arc::new(Broken),
            true,
            presence.clone(),
        )),
        features: [IngressExposer::FEATURE].into(),
        presence,
        metadata: Arc::new(OperatorMetadata::standard(
            "routewright",
            "one",
            IngressExposer::NAME,
        )),
        owned: Arc::new(Owned {
            manager: "m".into(),
            prefix: "routewright.dev".into(),
            cache: Arc::new(NoChildren),
            writer: Arc::new(KubeChildWriter::new(client, "m")),
            memory: WriteMemory::default(),
            metrics: metrics.clone(),
            squatters: None,
        }),
        reporting: Arc::new(reporting),
        lease: Arc::new(|| true),
        metrics: metrics.clone(),
        backoff: Backoff::default(),
        timeouts: Timeouts::default(),
    };
    let bucket: Arc<GarageBucket> = Arc::new(server.get_typed("GarageBucket", "web", "blog").unwrap());
    let outcome = parts.stack().oneshot(Request::new(bucket)).await.unwrap();
    let Outcome::Failed { class, retry } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(class.label(), "panic");
    assert!(
        retry.is_some_and(|retry| retry < Duration::from_secs(2)),
        "{retry:?}"
    );
    let (status, reason, text) = condition(&server, "blog").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ReconcileFailed"));
    assert!(
        !text.contains("a bug"),
        "what a panic says is for the log: {text}"
    );
    assert!(metrics.encode().contains("panic"), "{}", metrics.encode());
}
