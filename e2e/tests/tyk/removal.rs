//! Whatever is deleted first, what was made in Tyk goes in the end, and nothing stays Terminating.

use routewright_e2e::stage::SOON;
use routewright_e2e::{scenario, wait};
use serde_json::json;

use crate::world::{GATEWAY, World, route};

#[tokio::test]
async fn a_route_goes_after_its_class_and_gateway() {
    scenario("a_route_goes_after_its_class_and_gateway", async |s| {
        let world = World::new(&s).await?;
        world.echo("echo").await?;
        world
            .stage
            .apply(route("site", "site.removal.test", "/", "echo"))
            .await?;
        world.accepted("site", "True", "Accepted").await?;
        world.documents(1).await?;
        world
            .stage
            .until("held", "GatewayClass", &world.class, |class| {
                let held = class["metadata"]["finalizers"].as_array()?;
                (!held.is_empty()).then_some(())
            })
            .await?;
        // When the class is deleted, then it waits for its Gateways
        world.stage.delete("GatewayClass", &world.class).await?;
        let class = world.stage.there("GatewayClass", &world.class).await?;
        assert!(class["metadata"]["deletionTimestamp"].is_string(), "{class}");
        // When the Gateway is deleted, then both go, and so does what was served through it
        world.stage.delete("Gateway", GATEWAY).await?;
        world.stage.gone("Gateway", GATEWAY).await?;
        world.stage.gone("GatewayClass", &world.class).await?;
        world.documents(0).await?;
        // When the route is deleted, then nothing keeps it
        world.stage.delete("HTTPRoute", "site").await?;
        world.stage.gone("HTTPRoute", "site").await
    })
    .await;
}

#[tokio::test]
async fn a_route_waits_for_the_connection_that_its_apis_were_made_through() {
    scenario(
        "a_route_waits_for_the_connection_that_its_apis_were_made_through",
        async |s| {
            let world = World::new(&s).await?;
            world.echo("echo").await?;
            world.stage.apply(route("site", "site.removal.test", "/", "echo")).await?;
            world.accepted("site", "True", "Accepted").await?;
            world.documents(1).await?;
            let secret = world.stage.there("Secret", "tyk").await?;
            // When the Secret with the credential goes first, and then the route
            world.stage.delete("Secret", "tyk").await?;
            world.accepted("site", "False", "EnvironmentUnresolved").await?;
            world.documents(1).await?;
            world.stage.delete("HTTPRoute", "site").await?;
            // Then it stays, and an event says why
            wait::eventually("the event CleanupBlocked", SOON, || async {
                let args = ["-n", s.ns(), "get", "events", "-o", "jsonpath={.items[*].reason}"];
                let reasons = s.cluster.kubectl(args).map_err(|e| e.to_string())?;
                if reasons.contains("CleanupBlocked") { Ok(()) } else { Err(reasons) }
            })
            .await?;
            world.stage.there("HTTPRoute", "site").await?;
            world.documents(1).await?;
            // When the Secret is back, then the API goes, and the route
            let back = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tyk"}, "data": secret["data"]});
            world.stage.apply(back).await?;
            world.stage.gone("HTTPRoute", "site").await?;
            world.documents(0).await
        },
    )
    .await;
}
