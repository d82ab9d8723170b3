//! Two replicas as Pods: the leader is frozen, cut off from the API server, killed; each time the other one, which was
//! warm, goes on, and nothing is ever written by one that does not hold the lease. What a frozen process itself says is in
//! `leader`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use routewright_e2e::audit::{Mark, Request};
use routewright_e2e::operator::{Operator, RELEASE};
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both};
use routewright_e2e::{Error, Result, Scenario, scenario, wait};
use rustix::process::Signal;
use serde_json::json;

/// A lease lasts 15 s; a follower competes anew every few.
const TAKEOVER: Duration = Duration::from_secs(60);

/// What happens to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    /// SIGSTOP.
    Frozen,
    /// Its packets to the API server are lost.
    Cut,
    /// SIGKILL; Kubernetes starts the container again.
    Killed,
}

/// A Pod that leads, and the other one.
struct Pair {
    leader: String,
    follower: String,
    addresses: BTreeMap<String, IpAddr>,
}

async fn pair(s: &Scenario, operator: &Operator) -> Result<Pair> {
    wait::eventually("one Pod leads and one follows", TAKEOVER, || async {
        let addresses = operator.pods().await.map_err(|e| e.to_string())?;
        let holder = holder(s, operator.ns()).map_err(|e| e.to_string())?;
        let leads = |pod: &&String| holder.starts_with(pod.as_str());
        let leader = addresses.keys().find(leads).cloned();
        let follower = addresses.keys().find(|pod| !leads(pod)).cloned();
        match (leader, follower, addresses.len()) {
            (Some(leader), Some(follower), 2) => Ok(Pair {
                leader,
                follower,
                addresses,
            }),
            _ => Err(format!("{holder:?} of {addresses:?}")),
        }
    })
    .await
}

fn holder(s: &Scenario, ns: &str) -> Result<String> {
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

/// Waits until a Pod says all of this of itself.
async fn says(operator: &Operator, ip: IpAddr, parts: &[&str]) -> Result<String> {
    wait::eventually(&format!("a Pod says {parts:?}"), TAKEOVER, || async {
        let text = operator
            .probe_pod(ip, "/readyz?verbose")
            .await
            .map_err(|e| e.to_string())?;
        match parts.iter().all(|part| text.contains(part)) {
            true => Ok(text),
            false => Err(text),
        }
    })
    .await
}

/// The lines about watches: what is cached, and how much of it.
fn caches(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("watch ")).collect()
}

const TABLE: &str = "routewright-e2e-cut";

/// Packets between a Pod and the API server are lost from now on, or not any more. Both ways: what it still heard of would
/// make it start writes, within its time, that arrive when the packets do.
fn cut(s: &Scenario, ip: Option<IpAddr>) -> Result<()> {
    let node = s.cluster.own_node()?;
    let nft = |words: &[&str]| {
        let words = ["nft"].iter().chain(words);
        node.exec(words).map(drop)
    };
    let Some(ip) = ip else {
        return nft(&["delete", "table", "ip", TABLE]);
    };
    let ip = ip.to_string();
    nft(&["add", "table", "ip", TABLE])?;
    // Before the address of the Service becomes that of the API server.
    for (chain, hook, address, port) in [
        ("from", "prerouting", "saddr", "dport"),
        ("to", "output", "daddr", "sport"),
    ] {
        let hook = format!("{{ type filter hook {hook} priority -310; }}");
        nft(&["add", "chain", "ip", TABLE, chain, &hook])?;
        let ports = "{ 443, 6443 }";
        nft(&[
            "add", "rule", "ip", TABLE, chain, "ip", address, &ip, "tcp", port, ports, "drop",
        ])?;
    }
    Ok(())
}

/// A write that was not the lease's.
fn writes(request: &&Request) -> bool {
    request.is_write() && request.resource != "leases"
}

#[tokio::test]
async fn whatever_happens_to_the_leader_the_other_one_goes_on_and_nobody_writes_without_the_lease() {
    scenario(
        "whatever_happens_to_the_leader_the_other_one_goes_on_and_nobody_writes_without_the_lease",
        async |s| {
            s.cluster.gateway_crds("standard").await?;
            let stage = Stage::new(&s).await?;
            // Given two replicas that have exposed a bucket of each kind
            let mut values = both(s.ns());
            values["replicaCount"] = json!(2);
            let operator = Operator::pod(s.cluster, values).await?;
            stage.usual_garage().await?;
            for (name, kind) in [("site", Kind::Ingress), ("shop", Kind::Route)] {
                stage.bucket(name, &kind.exposure(&[], json!({}))).await?;
                kind.settled(&stage, name).await?;
            }
            stage.calm(&operator).await?;
            for (round, blow) in [Blow::Frozen, Blow::Cut, Blow::Killed].into_iter().enumerate() {
                // Then the follower has everything in its caches that the leader has
                let Pair {
                    leader,
                    follower,
                    addresses,
                } = pair(&s, &operator).await?;
                let followed = addresses[&follower];
                says(
                    &operator,
                    followed,
                    &["leader: false", "WaitingForLease", "readyz: ok"],
                )
                .await?;
                wait::eventually("the follower is warm", TAKEOVER, || async {
                    let parts = ["leader: true", "readyz: ok"];
                    let leading = says(&operator, addresses[&leader], &parts).await;
                    let following = operator.probe_pod(followed, "/readyz?verbose").await;
                    let (leading, following) = (
                        leading.map_err(|e| e.to_string())?,
                        following.map_err(|e| e.to_string())?,
                    );
                    let same = caches(&following) == caches(&leading) && caches(&leading).len() >= 4;
                    match same && !following.contains("syncing") {
                        true => Ok(()),
                        false => Err(format!("{leading}\n{following}")),
                    }
                })
                .await?;

                // When the leader is struck, and an object is edited meanwhile
                let mark = stage.mark()?;
                let process = operator.process_of_pod(&leader)?;
                match blow {
                    Blow::Frozen => process.freeze()?,
                    Blow::Cut => cut(&s, Some(addresses[&leader]))?,
                    Blow::Killed => process.end(Signal::KILL, TAKEOVER)?,
                }
                let begun = Instant::now();
                let edit =
                    |value: String| json!({"metadata": {"labels": {"app.kubernetes.io/component": value}}});
                let edited =
                    async |name: &str, value: String| stage.merge("Ingress", name, edit(value)).await;
                edited("site-website", format!("theirs-{round}")).await?;
                // Then the edit is undone once, by the one that leads, and nothing else is written
                let row = format!("{blow:?} leader, one edit");
                stage
                    .costs(&row, &operator, mark, &[("apply ingresses 200", 1)])
                    .await?;
                say(format!(
                    "{row}: undone within {:.1} s",
                    begun.elapsed().as_secs_f32()
                ));
                let by = stage.everything(&operator, mark)?;
                let by: Vec<_> = by.iter().filter(writes).map(|r| r.pod.as_str()).collect();
                if blow != Blow::Killed {
                    assert_eq!(by, [follower.as_str()], "{blow:?}");
                    // It had nothing to list: it was warm
                    let lists = stage.everything(&operator, mark)?;
                    let lists: Vec<_> = lists
                        .iter()
                        .filter(|r| r.verb == "list" && r.pod == follower)
                        .map(|r| &r.resource)
                        .collect();
                    assert!(lists.is_empty(), "{blow:?}: the new leader lists {lists:?}");
                }

                // When the old leader is itself again, with an edit that it may see first, then the one that leads undoes it
                let mark = stage.mark()?;
                match blow {
                    Blow::Frozen => {
                        edited("site-website", format!("again-{round}")).await?;
                        // On a slow machine its liveness probe may have ended it before.
                        let thawed = process.thaw();
                        if process.alive() {
                            thawed?;
                        }
                    }
                    Blow::Cut => {
                        // It has noticed by its own clock, long before anybody told it
                        says(&operator, addresses[&leader], &["leader: false"]).await?;
                        cut(&s, None)?;
                        edited("site-website", format!("again-{round}")).await?;
                    }
                    Blow::Killed => {
                        operator.ready().await?;
                        edited("site-website", format!("again-{round}")).await?;
                    }
                }
                let row = format!("{blow:?} leader, back");
                stage
                    .costs(&row, &operator, mark, &[("apply ingresses 200", 1)])
                    .await?;
                operator.ready().await?;
            }
            pair(&s, &operator).await?;
            never_without_the_lease(&stage.everything(&operator, Mark::START)?)
        },
    )
    .await;
}

/// Whoever wrote was the last one to take or renew the lease, and had done so within the time that it gives itself.
fn never_without_the_lease(requests: &[Request]) -> Result<()> {
    /// How long after sending a renewal a process acts, and a little for a request on its way.
    const FENCE: Duration = Duration::from_secs(10 + 2);
    let mut ordered: Vec<&Request> = requests.iter().collect();
    ordered.sort_by_key(|r| r.received);
    let mut renewed: Option<&Request> = None;
    let mut count = 0_usize;
    for request in ordered {
        let lease = request.resource == "leases" && request.is_write() && request.code < 300;
        if lease {
            renewed = Some(request);
        } else if writes(&request) {
            count += 1;
            let fresh = renewed.is_some_and(|r| {
                r.pod == request.pod && request.received.duration_since(r.received).unsigned_abs() < FENCE
            });
            if !fresh {
                return Err(Error::other(format!(
                    "written without the lease: {request:?} after {renewed:?}"
                )));
            }
        }
    }
    say(format!("{count} writes, each by the holder of the lease"));
    if count < 8 {
        return Err(Error::other(format!("only {count} writes were looked at")));
    }
    Ok(())
}
