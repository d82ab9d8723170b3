//! Another controller writes status on the same routes: nobody's entry is lost, and nobody goes round in circles.

use routewright_e2e::stage::{SOON, Stage};
use routewright_e2e::{Result, contour, scenario, wait};
use serde_json::{Value, json};

use crate::world::{GATEWAY, WATCHED, World, condition, controller, entry, route};

const OTHER: &str = "other.test/controller";

/// Contour's own name for itself in the entries that it writes.
const CONTOUR: &str = "projectcontour.io/gateway-controller";

#[tokio::test]
async fn contour_and_tyk_serve_one_route() {
    scenario("contour_and_tyk_serve_one_route", async |s| {
        // Given a real second controller, with a Gateway for routes of all namespaces
        let theirs = contour::install(s.cluster).await?;
        let world = World::new(&s).await?;
        world.echo("echo").await?;
        // When a route has a parent of each
        let host = "both.together.test";
        let mut object = route("both", host, "/", "echo");
        object["spec"]["parentRefs"] = json!([
            {"name": GATEWAY}, {"name": contour::GATEWAY, "namespace": contour::NAMESPACE}]);
        world.stage.apply(object.clone()).await?;
        // Then both accept it, in entries of their own, and both serve it
        world.accepted("both", "True", "Accepted").await?;
        contours_word(&world.stage, "both").await?;
        world.tyk.answers(host, "/x", 200, "/x").await?;
        wait::eventually("the page through Contour", SOON, || async {
            match s.cluster.fetch(host, theirs, 80, "/x").await {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(format!("{} {}", answer.status, answer.text())),
                Err(e) => Err(e.to_string()),
            }
        })
        .await?;
        // When the route changes again and again
        let mark = world.stage.mark()?;
        let changes = 10;
        for n in 0..changes {
            object["spec"]["rules"][0]["matches"][0]["path"]["value"] = json!(format!("/{n}"));
            world.stage.apply(object.clone()).await?;
        }
        world.accepted("both", "True", "Accepted").await?;
        contours_word(&world.stage, "both").await?;
        // Then there are two entries still, each at the last generation, and it ends there
        let route = world.stage.there("HTTPRoute", "both").await?;
        assert_eq!(
            route["status"]["parents"].as_array().map(Vec::len),
            Some(2),
            "{route}"
        );
        world.stage.calm(&world.operator).await?;
        let version = world.stage.there("HTTPRoute", "both").await?["metadata"]["resourceVersion"].clone();
        wait::throughout("no loop", WATCHED, || async {
            let now = world
                .stage
                .there("HTTPRoute", "both")
                .await
                .map_err(|e| e.to_string())?;
            if now["metadata"]["resourceVersion"] == version {
                Ok(())
            } else {
                Err(now["status"].to_string())
            }
        })
        .await?;
        let all = world.stage.asked(&world.operator, mark)?;
        let written = all
            .iter()
            .filter(|r| r.resource == "httproutes/status" && r.code < 300)
            .count();
        assert!(
            written <= changes,
            "{written} status writes for {changes} changes"
        );
        // When the parent on Tyk goes, then our entry goes, and Contour's stays
        object["spec"]["parentRefs"].as_array_mut().unwrap().remove(0);
        world.stage.apply(object).await?;
        world
            .stage
            .until("our entry gone", "HTTPRoute", "both", |route| {
                entry(route, &controller(&world.class)).is_none().then_some(())
            })
            .await?;
        world.documents(0).await?;
        contours_word(&world.stage, "both").await
    })
    .await;
}

async fn contours_word(stage: &Stage, name: &str) -> Result<()> {
    stage
        .until("accepted by Contour", "HTTPRoute", name, |route| {
            let entry = entry(route, CONTOUR)?;
            let accepted = condition(entry.get("conditions")?, "Accepted")?;
            let current = accepted["observedGeneration"] == route["metadata"]["generation"];
            (current && accepted["status"] == "True").then_some(())
        })
        .await
}

/// The entry of a controller that writes what no type of ours knows.
fn theirs(n: usize, generation: &Value) -> Value {
    json!({"parentRef": {"name": "elsewhere"}, "controllerName": OTHER, "conditions": [{
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": format!("word {n}"),
        "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

#[tokio::test]
async fn a_writer_that_never_rests_loses_nothing() {
    scenario("a_writer_that_never_rests_loses_nothing", async |s| {
        let world = World::new(&s).await?;
        world.echo("echo").await?;
        let mut object = route("shared", "shared.together.test", "/", "echo");
        object["spec"]["parentRefs"] = json!([{"name": GATEWAY}, {"name": "elsewhere"}]);
        world.stage.apply(object.clone()).await?;
        world.accepted("shared", "True", "Accepted").await?;
        // When another controller rewrites its entry by read and write again and again, while the route changes
        let (rounds, mut conflicts) = (40, 0);
        for n in 0..rounds {
            if n % 4 == 0 {
                object["spec"]["rules"][0]["matches"][0]["path"]["value"] = json!(format!("/{n}"));
                world.stage.apply(object.clone()).await?;
            }
            conflicts += usize::from(!write(&world.stage, n).await?);
        }
        let last = rounds;
        wait::eventually("their last word", SOON, || async {
            match write(&world.stage, last).await {
                Ok(true) => Ok(()),
                Ok(false) => Err("409".to_owned()),
                Err(e) => Err(e.to_string()),
            }
        })
        .await?;
        // Then theirs is as they wrote it last, byte for byte, ours is at the last generation, and it ends there
        world.accepted("shared", "True", "Accepted").await?;
        world.stage.calm(&world.operator).await?;
        let route = world.stage.there("HTTPRoute", "shared").await?;
        let entries = route["status"]["parents"].as_array().unwrap();
        assert_eq!(entries.len(), 2, "{entries:?}");
        let stored = entry(&route, OTHER).unwrap();
        let message = &condition(&stored["conditions"], "Accepted").unwrap()["message"];
        assert_eq!(*message, format!("word {last}"), "{conflicts} conflicts");
        world.documents(1).await
    })
    .await;
}

/// Reads, replaces the own entry and writes with the resourceVersion that was read; false on a conflict.
async fn write(stage: &Stage, n: usize) -> Result<bool> {
    let route = stage.there("HTTPRoute", "shared").await?;
    let own = theirs(n, &route["metadata"]["generation"]);
    let mut entries = route["status"]["parents"].as_array().cloned().unwrap_or_default();
    match entries.iter_mut().find(|e| e["controllerName"] == OTHER) {
        Some(entry) => *entry = own,
        None => entries.push(own),
    }
    let status = json!({"parents": entries});
    stage
        .status_at(
            "HTTPRoute",
            "shared",
            &route["metadata"]["resourceVersion"],
            status,
        )
        .await
}
