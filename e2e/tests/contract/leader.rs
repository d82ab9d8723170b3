//! Two replicas and one lease: who leads acts, the other takes over, and neither writes what stands already.

use std::time::{Duration, Instant};

use routewright_e2e::operator::{Operator, RELEASE};
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both, looked, tally};
use routewright_e2e::{scenario, wait};
use rustix::process::Signal;
use serde_json::json;

/// A lease lasts 15 s; a follower competes anew every few.
const TAKEOVER: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_follower_takes_over_and_who_was_paused_does_not_write() {
    scenario(
        "a_follower_takes_over_and_who_was_paused_does_not_write",
        async |s| {
            s.cluster.gateway_crds("standard").await?;
            let stage = Stage::new(&s).await?;
            // Given a leader that has exposed a bucket, and a follower
            let mut leader = Operator::process(s.cluster, both(s.ns())).await?;
            stage.usual_garage().await?;
            stage
                .bucket("site", &Kind::Ingress.exposure(&[], json!({})))
                .await?;
            stage.reason("site", "Exposed").await?;
            looked(&leader).await?;
            let follower = leader.sibling()?;
            wait::eventually("the follower is warm", TAKEOVER, || async {
                let text = follower
                    .probe("/readyz?verbose")
                    .await
                    .map_err(|e| e.to_string())?;
                if text.contains("leader: false") && text.contains("WaitingForLease") {
                    Ok(())
                } else {
                    Err(text)
                }
            })
            .await?;
            stage.calm(&leader).await?;
            // When the leader is frozen and an object is edited meanwhile
            let mark = stage.mark()?;
            let written = |log: &str| log.matches("child updated").count();
            let before = written(&leader.logs()?);
            leader.pause()?;
            let begun = Instant::now();
            let edit = json!({"metadata": {"labels": {"app.kubernetes.io/component": "theirs"}}});
            stage.merge("Ingress", "site-website", edit).await?;
            // Then the follower leads and undoes the edit; nothing else is written
            wait::eventually("the follower leads", TAKEOVER, || async {
                let text = follower
                    .probe("/readyz?verbose")
                    .await
                    .map_err(|e| e.to_string())?;
                if text.contains("leader: true") {
                    Ok(())
                } else {
                    Err(text)
                }
            })
            .await?;
            say(format!(
                "the follower led {:.1} s after the leader was frozen",
                begun.elapsed().as_secs_f32()
            ));
            stage
                .costs(
                    "failover with one edit",
                    &leader,
                    mark,
                    &[("apply ingresses 200", 1)],
                )
                .await?;
            // When the old leader wakes up behind its deadline, with work that came meanwhile
            let mark = stage.mark()?;
            let pid = leader.pid()?;
            stage
                .merge(
                    "Ingress",
                    "site-website",
                    json!({"metadata": {"labels": {"app.kubernetes.io/component": "again"}}}),
                )
                .await?;
            leader.resume()?;
            // Then it does not write: the edit is undone once, by the one that leads
            stage
                .costs(
                    "the old leader wakes up",
                    &leader,
                    mark,
                    &[("apply ingresses 200", 1)],
                )
                .await?;
            wait::eventually("the old one follows", TAKEOVER, || async {
                if !pid.alive() {
                    return Ok(());
                }
                let text = leader.probe("/readyz?verbose").await.map_err(|e| e.to_string())?;
                if text.contains("leader: false") {
                    Ok(())
                } else {
                    Err(text)
                }
            })
            .await?;
            // (a line is logged when the answer is there, which the audit log does not wait for)
            wait::eventually("the new leader says both", TAKEOVER, || async {
                match written(&follower.logs().map_err(|e| e.to_string())?) {
                    0 | 1 => Err("fewer".to_owned()),
                    _ => Ok(()),
                }
            })
            .await?;
            assert_eq!(written(&leader.logs()?), before, "the old leader wrote");
            assert_eq!(written(&follower.logs()?), 2);
            // When the one that leads is killed, then the old one leads again and goes on
            let mark = stage.mark()?;
            follower.pid().end(Signal::KILL, TAKEOVER)?;
            if !pid.alive() {
                leader.restart()?;
            }
            stage
                .bucket("late", &Kind::Ingress.exposure(&[], json!({})))
                .await?;
            wait::eventually("the second bucket is exposed", TAKEOVER, || async {
                stage
                    .reason("late", "Exposed")
                    .await
                    .map(drop)
                    .map_err(|e| e.to_string())
            })
            .await?;
            let asked = tally(&stage.asked(&leader, mark)?);
            assert_eq!(asked.get("apply ingresses 201"), Some(&1), "{asked:?}");
            assert!(asked.values().sum::<usize>() <= 3, "{asked:?}");
            Ok(())
        },
    )
    .await;
}

#[tokio::test]
async fn a_rolling_restart_of_two_replicas_writes_nothing() {
    scenario("a_rolling_restart_of_two_replicas_writes_nothing", async |s| {
        s.cluster.gateway_crds("standard").await?;
        let stage = Stage::new(&s).await?;
        // Given two replicas that have exposed a bucket of each kind
        let mut values = both(s.ns());
        values["replicaCount"] = json!(2);
        let operator = Operator::pod(s.cluster, values).await?;
        stage.usual_garage().await?;
        stage
            .bucket("site", &Kind::Ingress.exposure(&[], json!({})))
            .await?;
        stage
            .bucket("shop", &Kind::Route.exposure(&[], json!({})))
            .await?;
        Kind::Ingress.settled(&stage, "site").await?;
        Kind::Route.settled(&stage, "shop").await?;
        stage.calm(&operator).await?;
        // When both are replaced, one after the other, then nothing is written but the lease
        let mark = stage.mark()?;
        let deployment = format!("deploy/{RELEASE}");
        s.cluster
            .kubectl(["-n", operator.ns(), "rollout", "restart", &deployment])?;
        operator.ready().await?;
        wait::eventually("one of them leads", TAKEOVER, || async {
            let lease = holder(&s, operator.ns()).map_err(|e| e.to_string())?;
            let pods = s
                .cluster
                .kubectl(["-n", operator.ns(), "get", "pods", "-o", "name"])
                .map_err(|e| e.to_string())?;
            let mut names = pods.lines().map(|l| l.trim_start_matches("pod/"));
            let leads = names.any(|pod| lease.starts_with(pod));
            if leads && pods.lines().count() == 2 {
                Ok(())
            } else {
                Err(format!("{lease}\n{pods}"))
            }
        })
        .await?;
        stage.costs("rolling restart", &operator, mark, &[]).await?;
        // And who leads now acts
        stage
            .bucket("late", &Kind::Ingress.exposure(&[], json!({})))
            .await?;
        stage.reason("late", "Exposed").await.map(drop)
    })
    .await;
}

fn holder(s: &routewright_e2e::Scenario, ns: &str) -> routewright_e2e::Result<String> {
    let lease = format!("{RELEASE}-leader");
    s.cluster.kubectl([
        "-n",
        ns,
        "get",
        "lease",
        &lease,
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ])
}
