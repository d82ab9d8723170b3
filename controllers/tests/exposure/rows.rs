//! The rows of the table of conditions, one story each: what is written, what is said, what stays.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;

#[tokio::test(start_paused = true)]
async fn an_ingress_appears_when_it_is_asked_for_and_goes_when_it_is_not() {
    let server = server(false);
    put(&server, cluster());
    put(&server, bucket(json!(null)));
    let operator = start(&server, &both());
    let mark = server.mark();
    quiet(&server, mark).await;

    let mark = server.mark();
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": by_ingress()}}),
    );
    assert_eq!(
        reason(&server, "blog", "Exposed").await,
        "Ingress web/blog-website"
    );
    let ingress = server.get("Ingress", "web", "blog-website").unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "blog.site.test");
    assert_eq!(
        ingress["metadata"]["labels"]["app.kubernetes.io/component"],
        "ingress-exposure"
    );
    assert_eq!(quiet(&server, mark).await, INGRESS_CREATED);

    let mark = server.mark();
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": null}}),
    );
    eventually(&server, "removal", || {
        server
            .get("Ingress", "web", "blog-website")
            .is_none()
            .then_some(())
    })
    .await;
    eventually(&server, "no condition", || {
        condition(&server, "blog").is_none().then_some(())
    })
    .await;
    let expected = [
        "DELETE ingresses blog-website -> 200",
        "APPLY garagebuckets/status blog -> 200",
        "EVENT Normal WebsiteExposedRemoved",
    ];
    assert_eq!(quiet(&server, mark).await, expected);
    operator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_waits_for_the_gateway_api_and_then_for_its_gateway() {
    let server = server(false);
    put(&server, cluster());
    put(&server, bucket(by_route()));
    let operator = start(&server, &both());
    reason(&server, "blog", "GatewayAPIUnavailable").await;

    install_gateway_api(&server);
    let message = reason(&server, "blog", "NotReady").await;
    assert!(message.contains("Gateway web/public"), "{message}");
    let route = server.get("HTTPRoute", "web", "blog-website").unwrap();
    assert_eq!(route["spec"]["hostnames"], json!(["blog.site.test"]));

    let generation = route["metadata"]["generation"].clone();
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "Fine", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    server.set_status(
        "HTTPRoute",
        "web",
        "blog-website",
        json!({"parents": [{
            "controllerName": "example.org/gateway", "parentRef": {"name": "public"},
            "conditions": [condition("Accepted"), condition("ResolvedRefs")],
        }]}),
    );
    assert_eq!(
        reason(&server, "blog", "Exposed").await,
        "HTTPRoute web/blog-website"
    );
    operator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_nothing_changed_writes_nothing_and_reads_nothing() {
    let server = server(true);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    let operator = start(&server, &both());
    reason(&server, "blog", "Exposed").await;
    let mark = server.mark();
    quiet(&server, mark).await;
    operator.shutdown().await;

    let mark = server.mark();
    let operator = start(&server, &both());
    assert_eq!(quiet(&server, mark).await, [""; 0]);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(lines(&server.calls_since(mark)), [""; 0], "an hour passes");
    operator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn before_the_bucket_is_there_in_garage_nothing_is_said_or_done() {
    let mut early = bucket(by_ingress());
    early["status"] = json!({"phase": "Pending"});
    let mut story = Story::begin(false, &both(), [cluster(), early]).await;
    assert_eq!(story.settle().await, NOTHING);
    assert_eq!(story.says(), "–");

    story.bucket_status(json!({"bucketId": "b1", "globalAlias": "blog"}));
    assert_eq!(story.settle().await, INGRESS_CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_being_deleted_is_left_alone_and_its_child_goes_with_it() {
    let mut story = Story::exposed(by_ingress()).await;
    story.edit(json!({"metadata": {"finalizers": ["example.org/wait"]}}));
    story.settle().await;
    story.server.delete("GarageBucket", "web", "blog");
    story.phase("Pending");
    assert_eq!(story.settle().await, NOTHING);
    assert!(story.ingress().is_some());
    story.edit(json!({"metadata": {"finalizers": null}}));
    assert_eq!(story.settle().await, NOTHING);
    assert!(story.ingress().is_none(), "garbage collection took it");
}

#[tokio::test(start_paused = true)]
async fn with_ingress_off_the_bucket_says_so_and_no_ingress_is_asked_for() {
    let mut story = Story::begin(true, &options(), [cluster(), bucket(by_ingress())]).await;
    let calls = story.calls().await;
    assert_eq!(
        lines(&calls),
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning IngressDisabled"
        ]
    );
    assert_eq!(about(&calls, "ingresses"), NOTHING);
    assert_eq!(about(&calls, "ingressclasses"), NOTHING);
    assert!(
        story.says().starts_with("False/IngressDisabled: "),
        "{}",
        story.says()
    );
    assert_eq!(story.block(), json!({"type": "Ingress"}), "no child exists");
    assert_eq!(
        lines(&story.pass(Duration::from_secs(1000)).await),
        NOTHING,
        "looked at again, without a write"
    );
}

#[tokio::test(start_paused = true)]
async fn with_the_gateway_api_off_or_absent_the_bucket_says_which() {
    for (flag, installed, text) in [
        (
            false,
            true,
            "False/GatewayAPIUnavailable: Gateway API support is switched off",
        ),
        (
            false,
            false,
            "False/GatewayAPIUnavailable: Gateway API support is switched off",
        ),
        (
            true,
            false,
            "False/GatewayAPIUnavailable: the API server does not serve gateway.networking.k8s.io/v1 HTTPRoute",
        ),
    ] {
        let mut options = options();
        options.enable_gateway_api = flag;
        let mut story = Story::begin(installed, &options, [cluster(), bucket(by_route())]).await;
        let calls = story.calls().await;
        assert_eq!(
            lines(&calls),
            [
                "APPLY garagebuckets/status blog -> 200",
                "EVENT Warning GatewayAPIUnavailable"
            ]
        );
        assert_eq!(about(&calls, "httproutes"), NOTHING);
        assert!(story.says().starts_with(text), "{}", story.says());
        assert_eq!(story.block(), json!({"type": "HTTPRoute"}), "no child exists");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_cluster_changes_nothing_that_stands() {
    for exposure in [by_ingress(), by_route()] {
        let mut story = Story::exposed(exposure).await;
        let (says, block) = (story.says(), story.block());
        for phase in ["Pending", "Failed", "Running"] {
            story.phase(phase);
            assert_eq!(story.settle().await, NOTHING, "{phase}");
        }
        story.server.edit(
            "GarageCluster",
            "web",
            "garage",
            json!({"metadata": {"finalizers": ["example.org/wait"]}}),
        );
        story.server.delete("GarageCluster", "web", "garage");
        assert_eq!(story.settle().await, NOTHING, "being deleted");
        story.server.edit(
            "GarageCluster",
            "web",
            "garage",
            json!({"metadata": {"finalizers": null}}),
        );
        assert_eq!(story.settle().await, NOTHING, "gone");
        assert_eq!((story.says(), story.block()), (says, block));
        assert!(
            story.ingress().is_some() != story.route().is_some(),
            "the child is kept"
        );
        assert_eq!(lines(&story.pass(Duration::from_secs(600)).await), NOTHING);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_exposure_says_what_is_wrong_with_its_cluster_step_by_step() {
    let mut story = Story::begin(false, &both(), [bucket(by_ingress())]).await;
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal ReconcileFailed"
        ]
    );
    assert_eq!(
        story.says(),
        "False/ReconcileFailed: GarageCluster web/garage: not found: create it or correct spec.clusterRef"
    );
    let mut pending = cluster();
    pending["status"]["phase"] = json!("Pending");
    put(&story.server, pending);
    story.settle().await;
    assert_eq!(
        story.says(),
        "False/ReconcileFailed: GarageCluster web/garage: status.phase is Pending: waiting for Running"
    );
    story.phase("Running");
    assert_eq!(story.settle().await, INGRESS_CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_switch_during_an_outage_does_not_go_on_praising_what_was_removed() {
    let mut story = Story::exposed(by_ingress()).await;
    story.phase("Pending");
    story.settle().await;
    story.edit(json!({"spec": {"websiteExposure": {"ingress": null, "gateway": by_route()["gateway"]}}}));
    let expected = [
        "APPLY garagebuckets/status blog -> 200",
        "DELETE ingresses blog-website -> 200",
        "EVENT Normal ReconcileFailed",
    ];
    assert_eq!(story.settle_sorted().await, expected);
    assert!(
        story
            .says()
            .starts_with("False/ReconcileFailed: GarageCluster web/garage: "),
        "{}",
        story.says()
    );
    assert_eq!(lines(&story.pass(Duration::from_secs(300)).await), NOTHING);
    story.phase("Running");
    assert_eq!(story.settle().await, ROUTE_CREATED);
}

#[tokio::test(start_paused = true)]
async fn without_a_recorded_alias_it_waits_even_with_hostnames_of_its_own() {
    for (exposure, alias) in [
        (by_ingress(), json!(null)),
        (
            json!({"hostnames": ["blog"], "ingress": {}}),
            json!("garage-rsv-1234"),
        ),
        (
            json!({"hostnames": ["www.example.net"], "gateway": by_route()["gateway"]}),
            json!(""),
        ),
    ] {
        let mut waiting = bucket(exposure);
        match alias {
            Value::Null => drop(waiting["status"].as_object_mut().unwrap().remove("globalAlias")),
            alias => waiting["status"]["globalAlias"] = alias,
        }
        let mut story = Story::begin(true, &both(), [cluster(), waiting]).await;
        assert_eq!(
            story.settle().await,
            [
                "APPLY garagebuckets/status blog -> 200",
                "EVENT Normal WaitingForAlias"
            ]
        );
        assert!(
            story.says().starts_with("False/WaitingForAlias: "),
            "{}",
            story.says()
        );
        assert!(
            story.ingress().is_none() && story.route().is_none(),
            "nothing half done"
        );
        story.bucket_status(json!({"globalAlias": "blog"}));
        let calls = story.settle().await;
        assert!(calls == INGRESS_CREATED || calls == ROUTE_CREATED, "{calls:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alias_that_is_lost_keeps_the_site_and_one_that_is_renamed_moves_it() {
    let mut story = Story::exposed(by_ingress()).await;
    story.bucket_status(json!({"globalAlias": null}));
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal WaitingForAlias"
        ]
    );
    assert!(
        story
            .says()
            .ends_with("; until then Ingress web/blog-website goes on serving blog.site.test"),
        "{}",
        story.says()
    );
    assert_eq!(story.block(), json!({"type": "Ingress", "name": "blog-website"}));

    story.bucket_status(json!({"globalAlias": "news"}));
    let expected = [
        "APPLY ingresses blog-website -> 200",
        "APPLY garagebuckets/status blog -> 200",
        "EVENT Normal Exposed",
    ];
    assert_eq!(story.settle().await, expected);
    assert_eq!(story.hosts(), ["news.site.test"]);

    story.bucket_status(json!({"globalAlias": "blog"}));
    assert_eq!(story.settle().await, expected[..2], "no transition, no event");
    assert_eq!(story.hosts(), ["blog.site.test"]);
    assert_eq!(story.block()["hostnames"], json!(["blog.site.test"]));
}

#[tokio::test(start_paused = true)]
async fn what_nothing_can_be_made_of_is_named_and_the_old_site_stays() {
    let gateway = by_route()["gateway"].clone();
    let cases: [(Value, &str); 5] = [
        (
            json!({"hostnames": ["www.example.net"], "ingress": {}}),
            "spec.websiteExposure.hostnames[0] \"www.example.net\"",
        ),
        (
            json!({"backendRef": {"name": "x", "kind": "ServiceImport", "group": "multicluster.x-k8s.io"}, "ingress": {}}),
            "spec.websiteExposure.backendRef.group",
        ),
        (
            json!({"backendRef": {"name": "x", "namespace": "storage"}, "ingress": {}}),
            "spec.websiteExposure.backendRef.namespace",
        ),
        (json!({}), "neither ingress nor gateway"),
        (
            json!({"ingress": {}, "gateway": gateway}),
            "both ingress and gateway",
        ),
    ];
    let mut story = Story::exposed(by_ingress()).await;
    let before = story.ingress();
    for (exposure, field) in cases {
        let block = story.block();
        let mut bucket = story.bucket();
        bucket["spec"]["websiteExposure"] = exposure.clone();
        story.server.update(bucket);
        let calls = story.settle().await;
        assert_eq!(
            calls.first().map(String::as_str),
            Some("APPLY garagebuckets/status blog -> 200"),
            "{exposure}"
        );
        assert!(calls.len() <= 2, "status and perhaps its event: {calls:#?}");
        let says = story.says();
        assert!(
            says.starts_with("False/ReconcileFailed: ") && says.contains(field),
            "{says}"
        );
        assert_eq!(
            (story.ingress(), story.block()),
            (before.clone(), block),
            "{exposure}"
        );
    }
    story.expose(by_ingress());
    let calls = story.settle().await;
    assert_eq!(
        calls,
        ["APPLY garagebuckets/status blog -> 200", "EVENT Normal Exposed"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_ingress_for_a_cluster_of_another_namespace_is_refused() {
    let mut there = cluster();
    there["metadata"]["namespace"] = json!("storage");
    let mut abroad = bucket(by_ingress());
    abroad["spec"]["clusterRef"]["namespace"] = json!("storage");
    let mut story = Story::begin(true, &both(), [there, abroad]).await;
    assert_eq!(
        story.settle().await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning ReconcileFailed"
        ]
    );
    assert!(
        story
            .says()
            .contains("spec.clusterRef.namespace is storage: an Ingress cannot reach"),
        "{}",
        story.says()
    );
}

#[tokio::test(start_paused = true)]
async fn a_website_that_is_switched_off_is_withdrawn_and_comes_back() {
    for exposure in [by_ingress(), by_route()] {
        let kind = if exposure.get("ingress").is_some() {
            "Ingress"
        } else {
            "HTTPRoute"
        };
        let mut story = Story::exposed(exposure).await;
        story.edit(json!({"spec": {"website": {"enabled": false}}}));
        let calls = story.settle().await;
        assert_eq!(
            (
                calls[0].split(' ').next(),
                calls[1].as_str(),
                calls[2].as_str(),
                calls.len()
            ),
            (
                Some("DELETE"),
                "APPLY garagebuckets/status blog -> 200",
                "EVENT Warning ReconcileFailed",
                3
            )
        );
        assert!(
            story.says().contains("needs spec.website.enabled: true"),
            "{}",
            story.says()
        );
        assert_eq!(story.block(), json!({"type": kind}));
        assert!(story.ingress().is_none() && story.route().is_none());

        story.edit(json!({"spec": {"website": {"enabled": true}}}));
        let calls = story.settle().await;
        assert!(calls == INGRESS_CREATED || calls == ROUTE_CREATED, "{calls:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_web_api_that_is_switched_off_withdraws_too() {
    let mut story = Story::exposed(by_ingress()).await;
    story.server.edit(
        "GarageCluster",
        "web",
        "garage",
        json!({"spec": {"webApi": {"enabled": false}}}),
    );
    let expected = [
        "DELETE ingresses blog-website -> 200",
        "APPLY garagebuckets/status blog -> 200",
        "EVENT Warning ReconcileFailed",
    ];
    assert_eq!(story.settle().await, expected);
    assert!(
        story.says().contains("spec.webApi.enabled is false"),
        "{}",
        story.says()
    );
    story.server.edit(
        "GarageCluster",
        "web",
        "garage",
        json!({"spec": {"webApi": {"enabled": null}}}),
    );
    assert_eq!(story.settle().await, INGRESS_CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_paused_bucket_changes_its_message_and_nothing_else() {
    let mut story = Story::exposed(by_ingress()).await;
    story.edit(json!({"metadata": {"annotations": {"routewright.dev/reconcile": "paused"}}}));
    assert_eq!(story.settle().await, ["APPLY garagebuckets/status blog -> 200"]);
    assert!(
        story
            .says()
            .starts_with("True/Exposed: paused: remove the annotation"),
        "{}",
        story.says()
    );

    story.edit(json!({"spec": {"websiteExposure": {"hostnames": ["blog"]}}}));
    let calls = story.settle().await;
    assert_eq!(
        calls,
        ["APPLY garagebuckets/status blog -> 200"],
        "observedGeneration"
    );
    story.server.delete("Ingress", "web", "blog-website");
    assert_eq!(story.settle().await, NOTHING, "not even created anew");

    story.edit(json!({"metadata": {"annotations": null}}));
    let expected = [
        "APPLY ingresses blog-website -> 201",
        "APPLY garagebuckets/status blog -> 200",
    ];
    assert_eq!(story.settle().await, expected);
    assert_eq!(
        (story.says().as_str(), story.hosts()),
        ("True/Exposed: Ingress web/blog-website", vec!["blog".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn an_exposed_bucket_says_what_stands_for_which_generation() {
    let mut story = Story::exposed(by_ingress()).await;
    assert_eq!(
        story.block(),
        json!({"type": "Ingress", "name": "blog-website", "hostnames": ["blog.site.test"]})
    );
    story.server.set_status(
        "Ingress",
        "web",
        "blog-website",
        json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}),
    );
    assert_eq!(story.settle().await, ["APPLY garagebuckets/status blog -> 200"]);
    assert_eq!(story.block()["addresses"], json!(["192.0.2.7"]));

    story.edit(json!({"spec": {"website": {"indexDocument": "home.html"}}}));
    assert_eq!(
        story.settle().await,
        ["APPLY garagebuckets/status blog -> 200"],
        "observedGeneration follows"
    );
    let bucket = story.bucket();
    assert_eq!(
        bucket["status"]["conditions"][0]["observedGeneration"],
        bucket["metadata"]["generation"]
    );
}

#[tokio::test(start_paused = true)]
async fn sixteen_hostnames_are_one_route_with_one_rule() {
    let hostnames: Vec<String> = (0..16).map(|n| format!("site-{n}.example.net")).collect();
    let exposure = json!({"hostnames": hostnames, "gateway": by_route()["gateway"]});
    let mut story = Story::begin(true, &both(), [cluster(), bucket(exposure)]).await;
    assert_eq!(story.settle().await, ROUTE_CREATED);
    let spec = story.route().unwrap()["spec"].clone();
    assert_eq!(spec["hostnames"], json!(hostnames));
    assert_eq!(spec["rules"].as_array().unwrap().len(), 1);
    let rewrite = &spec["rules"][0]["filters"][0]["urlRewrite"]["hostname"];
    assert_eq!(rewrite, "blog.site.test");
    assert_eq!(story.block()["hostnames"], json!(hostnames));
}

#[tokio::test(start_paused = true)]
async fn an_ingress_keeps_one_rule_per_hostname_and_tls_for_all() {
    let exposure = json!({"hostnames": ["blog.site.test", "blog"], "ingress": {"tlsSecretName": "cert"}});
    let mut story = Story::begin(false, &both(), [cluster(), bucket(exposure)]).await;
    let calls = story.calls().await;
    assert_eq!(lines(&calls), INGRESS_CREATED);
    assert_eq!(story.hosts(), ["blog.site.test", "blog"]);
    let applied = calls
        .iter()
        .find(|call| call.resource == "ingresses" && call.verb.is_write());
    // What was sent: the API server fills the default class in.
    let spec = applied.unwrap().body.clone().unwrap()["spec"].clone();
    assert_eq!(
        spec["tls"],
        json!([{"hosts": ["blog.site.test", "blog"], "secretName": "cert"}])
    );
    assert!(
        spec.get("ingressClassName").is_none(),
        "an empty class is left out"
    );
}

#[tokio::test(start_paused = true)]
async fn an_ingress_class_that_is_missing_is_said_and_followed() {
    let exposure = json!({"ingress": {"ingressClassName": "internal"}});
    let mut story = Story::begin(false, &both(), [cluster(), bucket(exposure)]).await;
    let calls = story.settle().await;
    assert_eq!(calls[..2], INGRESS_CREATED[..2]);
    let mut events = calls[2..].to_vec();
    events.sort();
    assert_eq!(
        events,
        ["EVENT Normal Exposed", "EVENT Warning IngressClassMissing"]
    );
    assert_eq!(
        story.says(),
        "True/Exposed: Ingress web/blog-website; there is no IngressClass internal, so no controller serves it yet"
    );
    assert_eq!(story.restart(&both()).await, NOTHING, "said once");
    story.server.create(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "internal"},
        "spec": {"controller": "example.org/controller"},
    }));
    assert_eq!(story.settle().await, ["APPLY garagebuckets/status blog -> 200"]);
    assert_eq!(story.says(), "True/Exposed: Ingress web/blog-website");
}

#[tokio::test(start_paused = true)]
async fn the_advertised_url_is_nobodys_business_here() {
    let mut advertised = bucket(by_ingress());
    advertised["status"]["websiteUrl"] = json!("https://blog.site.test");
    let mut story = Story::begin(true, &both(), [cluster(), advertised]).await;
    story.edit(json!({"spec": {"websiteExposure": {"ingress": null, "gateway": by_route()["gateway"]}}}));
    story.settle().await;
    story.expose(Value::Null);
    story.settle().await;
    assert_eq!(story.bucket()["status"]["websiteUrl"], "https://blog.site.test");
    let status = |call: &&reconcile_kit::testing::Call| call.user == OPERATOR && call.subresource == "status";
    let bodies: Vec<_> = story
        .server
        .calls()
        .iter()
        .filter(status)
        .filter_map(|call| call.body.clone())
        .collect();
    assert!(bodies.len() >= 3);
    assert!(
        bodies.iter().all(|body| !body.to_string().contains("websiteUrl")),
        "{bodies:#?}"
    );
}
