//! Flags: what is off asks for nothing, and a flag that is switched off after use leaves what it made, and says so.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;

#[tokio::test(start_paused = true)]
async fn with_both_flags_off_no_request_names_either_kind() {
    let mut story = Story::begin(true, &options(), [cluster(), bucket(by_ingress())]).await;
    story.expose(by_route());
    story.settle().await;
    story.expose(Value::Null);
    story.settle().await;
    story.pass(Duration::from_secs(3600)).await;
    let calls = story.server.calls();
    for resource in ["ingresses", "ingressclasses", "httproutes"] {
        assert_eq!(about(&calls, resource), NOTHING);
    }
    let discovered: Vec<_> = calls
        .iter()
        .filter(|c| {
            c.user == OPERATOR
                && (c.resource.contains("gateway.networking") || c.resource.contains("networking.k8s.io"))
        })
        .collect();
    assert!(discovered.is_empty(), "{discovered:#?}");
    let crds = calls.iter().filter(|c| c.resource == "customresourcedefinitions");
    assert!(
        !crds
            .into_iter()
            .any(|c| c.selector.contains("httproutes") || c.name.contains("httproutes"))
    );
}

fn left_behind(story: &Story) -> Vec<String> {
    story
        .events()
        .into_iter()
        .filter(|event| event.starts_with("Warning LeftBehind: "))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_flag_went_off_stays_and_is_named_once_when_it_is_not_wanted_any_more() {
    for (exposure, kind, flag) in [
        (by_ingress(), "Ingress", "--enable-ingress"),
        (by_route(), "HTTPRoute", "--enable-gateway-api"),
    ] {
        for switched in [false, true] {
            let mut story = Story::exposed(exposure.clone()).await;
            let mut off = both();
            match kind {
                "Ingress" => off.enable_ingress = false,
                _ => off.enable_gateway_api = false,
            }
            story.restart(&off).await;
            let disabled = story.says();
            assert!(
                disabled.starts_with("False/IngressDisabled")
                    || disabled.starts_with("False/GatewayAPIUnavailable"),
                "{disabled}"
            );
            let child = story.server.get(kind, "web", "blog-website");
            assert!(child.is_some());
            assert_eq!(left_behind(&story), NOTHING, "it is still wanted");

            let other = match (switched, kind) {
                (false, _) => Value::Null,
                (true, "Ingress") => json!({"ingress": null, "gateway": by_route()["gateway"]}),
                (true, _) => json!({"gateway": null, "ingress": {}}),
            };
            story.edit(json!({"spec": {"websiteExposure": other}}));
            story.settle().await;
            let case = format!("{kind}, switched: {switched}");
            let events = left_behind(&story);
            assert_eq!(events.len(), 1, "{case}: {:#?}", story.events());
            assert!(
                events[0].contains(&format!("{kind} web/blog-website")) && events[0].contains(flag),
                "{events:#?}"
            );
            assert_eq!(
                story.server.get(kind, "web", "blog-website"),
                child,
                "{case}: it stays"
            );
            story.pass(Duration::from_secs(3600)).await;
            story.restart(&off).await;
            assert_eq!(left_behind(&story).len(), 1, "{case}: once");

            // The flag comes back: what is not wanted goes.
            let calls = story.restart(&both()).await;
            assert!(
                calls.iter().any(|line| line.starts_with("DELETE ")),
                "{case}: {calls:#?}"
            );
            assert!(story.server.get(kind, "web", "blog-website").is_none(), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_left_behind_while_the_operator_was_away_is_named_at_its_first_look() {
    for (exposure, kind) in [(by_ingress(), "Ingress"), (by_route(), "HTTPRoute")] {
        let other = match kind {
            "Ingress" => json!({"ingress": null, "gateway": by_route()["gateway"]}),
            _ => json!({"gateway": null, "ingress": {}}),
        };
        for wanted in [Value::Null, other] {
            let mut story = Story::exposed(exposure.clone()).await;
            story.stop().await;
            story.edit(json!({"spec": {"websiteExposure": wanted}}));
            let mut off = both();
            match kind {
                "Ingress" => off.enable_ingress = false,
                _ => off.enable_gateway_api = false,
            }
            story.restart(&off).await;
            assert_eq!(left_behind(&story).len(), 1, "{kind}: {:#?}", story.events());
            assert!(story.server.get(kind, "web", "blog-website").is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flag_that_comes_back_finds_its_child_as_it_was() {
    let mut story = Story::exposed(by_ingress()).await;
    let mut off = both();
    off.enable_ingress = false;
    assert_eq!(
        story.restart(&off).await,
        [
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Warning IngressDisabled"
        ]
    );
    assert_eq!(
        story.restart(&both()).await,
        ["APPLY garagebuckets/status blog -> 200", "EVENT Normal Exposed"]
    );
}
