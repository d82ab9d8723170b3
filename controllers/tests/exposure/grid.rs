//! Every cell of flags × API × what is selected, by the whole operator: who speaks, what it says, what is created, and
//! that nothing is asked about a kind whose flag is off.

use serde_json::{Value, json};

use super::support::*;

/// What a bucket selects.
const SELECTIONS: [&str; 5] = ["ingress", "gateway", "unset", "both", "neither"];

fn selected(name: &str) -> Value {
    match name {
        "ingress" => by_ingress(),
        "gateway" => by_route(),
        "both" => json!({"ingress": {}, "gateway": by_route()["gateway"]}),
        "neither" => json!({}),
        _ => Value::Null,
    }
}

/// Condition and child that a cell comes to.
fn expected(
    selection: &str,
    ingress: bool,
    gateway: bool,
    installed: bool,
) -> (&'static str, Option<&'static str>) {
    match selection {
        "ingress" if ingress => ("True/Exposed", Some("Ingress")),
        "ingress" => ("False/IngressDisabled", None),
        "gateway" if gateway && installed => ("False/NotReady", Some("HTTPRoute")),
        "gateway" => ("False/GatewayAPIUnavailable", None),
        "unset" => ("–", None),
        _ => ("False/ReconcileFailed", None),
    }
}

#[tokio::test(start_paused = true)]
async fn every_cell_at_the_start() {
    let mut cells = 0;
    for bits in 0..8u8 {
        let (ingress, gateway, installed) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
        let mut options = options();
        (options.enable_ingress, options.enable_gateway_api) = (ingress, gateway);
        for selection in SELECTIONS {
            let cell = format!("{selection}: ingress {ingress}, gateway {gateway}, CRDs {installed}");
            let mut story = Story::begin(installed, &options, [cluster(), bucket(selected(selection))]).await;
            let calls = story.calls().await;
            let (says, child) = expected(selection, ingress, gateway, installed);
            assert_eq!(story.says().split(':').next(), Some(says), "{cell}");
            assert_eq!(story.ingress().is_some(), child == Some("Ingress"), "{cell}");
            assert_eq!(
                installed && story.route().is_some(),
                child == Some("HTTPRoute"),
                "{cell}"
            );
            // One writer of status, and one write.
            let writes = lines(&calls);
            let status = writes.iter().filter(|line| line.contains("/status")).count();
            assert_eq!(status, usize::from(says != "–"), "{cell}: {writes:#?}");
            assert_eq!(
                writes.len(),
                status * 2 + usize::from(child.is_some()),
                "{cell}: {writes:#?}"
            );
            for (flag, resources) in [
                (ingress, &["ingresses", "ingressclasses"][..]),
                (gateway, &["httproutes"]),
            ] {
                for resource in resources {
                    assert!(
                        flag || about(&calls, resource).is_empty(),
                        "{cell}: {resource} was asked for"
                    );
                }
            }
            // The same again is nothing.
            assert_eq!(story.restart(&options).await, NOTHING, "{cell}: a restart");
            story.stop().await;
            cells += 1;
        }
    }
    assert_eq!(cells, 40);
}

/// From every selection to every other: what was there goes, what is wanted comes, and one write of status tells of it.
#[tokio::test(start_paused = true)]
async fn every_change_of_what_is_selected() {
    for from in SELECTIONS {
        for to in SELECTIONS {
            let mut story = Story::exposed(selected(from)).await;
            let mut bucket = story.bucket();
            let spec = bucket["spec"].as_object_mut().unwrap();
            match selected(to) {
                Value::Null => spec.remove("websiteExposure"),
                exposure => spec.insert("websiteExposure".into(), exposure),
            };
            story.server.update(bucket);
            let calls = story.settle_sorted().await;
            let (says, child) = expected(to, true, true, true);
            assert_eq!(story.says().split(':').next(), Some(says), "{from} → {to}");
            let keeps_old = matches!(to, "both" | "neither");
            for (kind, here, was) in [
                ("Ingress", story.ingress().is_some(), from == "ingress"),
                ("HTTPRoute", story.route().is_some(), from == "gateway"),
            ] {
                assert_eq!(
                    here,
                    child == Some(kind) || keeps_old && was,
                    "{from} → {to}: {kind}"
                );
            }
            let count = |verb: &str, resource: &str| {
                let start = format!("{verb} {resource} ");
                calls.iter().filter(|line| line.starts_with(&start)).count()
            };
            let (old, new) = (
                ["ingress", "gateway"].contains(&from),
                ["ingress", "gateway"].contains(&to),
            );
            let moved = from != to;
            assert_eq!(
                count("DELETE", "ingresses") + count("DELETE", "httproutes"),
                usize::from(old && moved && !keeps_old),
                "{from} → {to}: {calls:#?}"
            );
            assert_eq!(
                count("APPLY", "ingresses") + count("APPLY", "httproutes"),
                usize::from(new && moved),
                "{from} → {to}: {calls:#?}"
            );
            assert!(
                count("APPLY", "garagebuckets/status") <= 1,
                "{from} → {to}: {calls:#?}"
            );
            assert!(
                !calls.iter().any(|line| line.starts_with("GET")),
                "{from} → {to}: {calls:#?}"
            );
        }
    }
}
