//! Two buckets and one name.

use routewright_e2e::sh::say;
use routewright_e2e::{scenario, wait};
use serde_json::Value;

use crate::world::{GATEWAY, STABLE, Visitor, World, by_ingress, by_route};

#[tokio::test]
async fn a_second_bucket_is_never_served_under_the_first_ones_name() {
    scenario(
        "a_second_bucket_is_never_served_under_the_first_ones_name",
        async |s| {
            let _shared = GATEWAY.read().await;
            let world = World::new(&s, "pair.test", None).await?;
            let (host, other) = ("first.pair.test", "second.pair.test");
            // Given a bucket that is served under its name, and somebody who asks for that name all the time
            world
                .bucket(
                    "first",
                    "first",
                    &[("index.html", "page of first")],
                    &by_route(&[host]),
                )
                .await?;
            world.stage.reason("first", "Exposed").await?;
            world.answers(host, "/", 200, "page of first").await?;
            let visitor = Visitor::of(&world, host, |answer| {
                let text = answer?.text();
                text.contains("second").then_some(text)
            });
            // When a second bucket asks for the first one's name by an Ingress, then that is refused
            world
                .bucket(
                    "second",
                    "second",
                    &[("index.html", "page of second")],
                    &by_ingress(&[host]),
                )
                .await?;
            world.stage.says("second", "ReconcileFailed", host).await?;
            assert_eq!(world.stage.get("Ingress", "second-website").await?, None);
            // When by a route, then the Gateway serves the older one, and the bucket has the Gateway's word for it
            world.ask("second", &by_route(&[host])).await?;
            let said = world
                .stage
                .says("second", "NotReady", "RuleMatchConflict")
                .await?;
            say(format!("a second route for one name: {}", said["message"]));
            wait::throughout("the first one's page", STABLE, || async {
                let answer = world.get(host, "/").await.map_err(|e| e.to_string())?;
                if answer.text() == "page of first" {
                    Ok(())
                } else {
                    Err(answer.text())
                }
            })
            .await?;
            // When it takes its own name, then it is served there, by either kind, and nowhere else
            for exposure in [by_route(&[other]), by_ingress(&[other]), by_route(&[other])] {
                world.ask("second", &exposure).await?;
                world.stage.reason("second", "Exposed").await?;
                world.answers(other, "/", 200, "page of second").await?;
            }
            // When the first one changes its kind and then gives its name up, then nobody is served under it
            world.ask("first", &by_ingress(&[host])).await?;
            world.stage.reason("first", "Exposed").await?;
            world.answers(host, "/", 200, "page of first").await?;
            world.ask("first", &Value::Null).await?;
            world.stage.gone("Ingress", "first-website").await?;
            world.silent(host).await?;
            world.answers(other, "/", 200, "page of second").await?;
            visitor.content().await;
            Ok(())
        },
    )
    .await;
}
