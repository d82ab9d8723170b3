//! What an operator with routes asks of the API server and of Tyk: once for a change, nothing when it starts again, nothing
//! while nothing happens.

use std::time::Duration;

use routewright_e2e::audit::{Mark, Request};
use routewright_e2e::stage::CALM;
use routewright_e2e::{Result, scenario, wait};

use crate::world::{World, controller, entry, route};

const ROUTES: usize = 12;

fn host(n: usize) -> String {
    format!("host-{n}.costs.test")
}

/// What is neither the lease nor the beginning of a watch.
fn asked(world: &World, mark: Mark) -> Result<Vec<Request>> {
    world.stage.asked(&world.operator, mark)
}

fn writes(world: &World, mark: Mark) -> Result<Vec<Request>> {
    Ok(asked(world, mark)?
        .into_iter()
        .filter(Request::is_write)
        .collect())
}

#[tokio::test]
async fn a_route_costs_one_status_and_a_restart_costs_nothing() {
    scenario(
        "a_route_costs_one_status_and_a_restart_costs_nothing",
        async |s| {
            let mut world = World::new(&s).await?;
            world.echo("echo").await?;
            world.stage.calm(&world.operator).await?;
            let mark = world.stage.mark()?;
            // When routes come
            for n in 0..ROUTES {
                let name = format!("route-{n}");
                world.stage.apply(route(&name, &host(n), "/", "echo")).await?;
            }
            for n in 0..ROUTES {
                world.accepted(&format!("route-{n}"), "True", "Accepted").await?;
            }
            world.attached(ROUTES).await?;
            world.stage.calm(&world.operator).await?;
            // Then each has one write for what must be remembered, and one status
            let all = writes(&world, mark)?;
            let of = |resource: &str| {
                all.iter()
                    .filter(|r| r.resource == resource && r.code < 300)
                    .count()
            };
            assert_eq!(of("httproutes/status"), ROUTES, "{all:?}");
            assert_eq!(of("httproutes"), ROUTES, "{all:?}");
            assert!(of("gateways/status") <= ROUTES, "{all:?}");
            world.tyk.answers(&host(0), "/", 200, "/").await?;
            // And Tyk has what was said
            let before = world.tyk.apis().await?;
            assert_eq!(before.len(), ROUTES);
            let statuses = statuses(&world).await?;
            // When the operator starts again with nothing changed
            world.operator.terminate()?;
            let mark = world.stage.mark()?;
            world.operator.restart()?;
            world.operator.ready().await?;
            world.looked().await?;
            // Then it writes nothing, and goes on to write nothing
            let nothing = || async {
                let all = writes(&world, mark).map_err(|e| e.to_string())?;
                if all.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{all:?}"))
                }
            };
            wait::throughout("no write after a restart", 3 * CALM, nothing).await?;
            assert_eq!(self::statuses(&world).await?, statuses);
            assert_eq!(world.tyk.apis().await?, before);
            // And in a minute without a change there is no request at all
            let mark = world.stage.mark()?;
            let idle = || async {
                let all = asked(&world, mark).map_err(|e| e.to_string())?;
                if all.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{all:?}"))
                }
            };
            wait::throughout("an idle minute", Duration::from_secs(60), idle).await
        },
    )
    .await;
}

async fn statuses(world: &World) -> Result<Vec<serde_json::Value>> {
    let mut all = Vec::new();
    for n in 0..ROUTES {
        let route = world.stage.there("HTTPRoute", &format!("route-{n}")).await?;
        all.push(
            entry(&route, &controller(&world.class))
                .cloned()
                .unwrap_or_default(),
        );
    }
    Ok(all)
}
