//! The operator is killed at any moment of a burst of changes: what it finds when it comes back is put right.

use std::time::Duration;

use routewright_e2e::stage::SOON;
use routewright_e2e::{Error, Result, scenario, wait};

use crate::world::{World, route};

const ROUTES: usize = 10;
const ROUNDS: usize = 6;

fn host(n: usize) -> String {
    format!("host-{n}.kills.test")
}

fn name(n: usize) -> String {
    format!("route-{n}")
}

fn deleted(n: usize, round: usize) -> bool {
    (n + round).is_multiple_of(3)
}

/// One round of changes: each route gets another path, every third one is deleted, and comes back in the next round.
async fn burst(world: &World, round: usize) -> Result<()> {
    for n in 0..ROUTES {
        if deleted(n, round) {
            // One of an earlier round may have gone by now, or go in this moment.
            match world.stage.delete("HTTPRoute", &name(n)).await {
                Err(Error::Kube(kube::Error::Api(e))) if e.is_not_found() => {}
                deleted => deleted?,
            }
        } else {
            let path = format!("/round-{round}");
            world
                .stage
                .apply(route(&name(n), &host(n), &path, "echo"))
                .await?;
        }
    }
    Ok(())
}

/// Waits until the object is not being deleted.
async fn settled(world: &World, name: &str) -> Result<()> {
    wait::eventually(&format!("{name} not Terminating"), SOON, || async {
        match world.stage.get("HTTPRoute", name).await {
            Ok(Some(route)) if route["metadata"]["deletionTimestamp"].is_string() => {
                Err("Terminating".to_owned())
            }
            Ok(_) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await
}

#[tokio::test]
async fn killed_in_a_burst_nothing_is_forgotten_and_nothing_is_left_over() {
    scenario(
        "killed_in_a_burst_nothing_is_forgotten_and_nothing_is_left_over",
        async |s| {
            let mut world = World::new(&s).await?;
            world.echo("echo").await?;
            // When the operator is killed again and again, each time a little later after the changes began
            for round in 0..ROUNDS {
                let delay = Duration::from_millis(40 + 170 * u64::try_from(round).unwrap());
                let (changed, ()) = tokio::join!(burst(&world, round), tokio::time::sleep(delay));
                world.operator.kill()?;
                changed?;
                world.operator.restart()?;
                world.operator.ready().await?;
            }
            // Then what was deleted in the last round is gone, with its finalizer
            let last = ROUNDS - 1;
            for n in (0..ROUTES).filter(|n| deleted(*n, last)) {
                world.stage.gone("HTTPRoute", &name(n)).await?;
            }
            // And each of the others is accepted and served under the path of the last round, and no other
            let left: Vec<usize> = (0..ROUTES).filter(|n| !deleted(*n, last)).collect();
            for n in &left {
                settled(&world, &name(*n)).await?;
                // What was applied while an earlier deletion waited for its finalizer went with it
                world
                    .stage
                    .apply(route(&name(*n), &host(*n), &format!("/round-{last}"), "echo"))
                    .await?;
                world.accepted(&name(*n), "True", "Accepted").await?;
                world
                    .tyk
                    .answers(&host(*n), &format!("/round-{last}"), 200, "")
                    .await?;
                let old = world.tyk.get(&host(*n), &format!("/round-{}", last - 1)).await?;
                assert_eq!(old.status, 404, "{}", host(*n));
            }
            // And Tyk has nothing else
            world.documents(left.len()).await?;
            world.attached(left.len()).await
        },
    )
    .await;
}
