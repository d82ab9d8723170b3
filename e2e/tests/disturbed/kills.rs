//! SIGKILL between any two writes, and the same end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use routewright_e2e::audit::AuditLog;
use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, SOON, Stage, both, exposed, looked, tally};
use routewright_e2e::{Result, Scenario, scenario, wait};
use serde_json::{Value, json};

use crate::ALONE;

/// What is done to a bucket, and how far that goes: the steps of a life for one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Create,
    Change,
    Switch,
    Unset,
}

const LIFE: [Step; 4] = [Step::Create, Step::Change, Step::Switch, Step::Unset];

struct Life<'a> {
    stage: &'a Stage,
    kind: Kind,
    bucket: String,
}

impl Life<'_> {
    fn wanted(&self, step: Step) -> (Kind, Value) {
        let host = format!("{}.example.test", self.bucket);
        match step {
            Step::Create => (
                self.kind,
                self.kind.exposure(&[&host], json!({"example.test/team": "red"})),
            ),
            Step::Change => (
                self.kind,
                self.kind.exposure(&[&host], json!({"example.test/team": "blue"})),
            ),
            Step::Switch => (self.kind.other(), self.kind.other().exposure(&[&host], json!({}))),
            Step::Unset => (self.kind.other(), Value::Null),
        }
    }

    async fn act(&self, step: Step) -> Result<()> {
        let (_, exposure) = self.wanted(step);
        if step == Step::Create {
            self.stage.bucket(&self.bucket, &exposure).await.map(drop)
        } else {
            self.stage.expose(&self.bucket, &exposure).await
        }
    }

    /// What stands in the end: the children's specs and labels, and what the bucket says.
    async fn end(&self, step: Step) -> Result<Value> {
        let (kind, _) = self.wanted(step);
        let child = format!("{}-website", self.bucket);
        wait::eventually("the end of the step", SOON, || async {
            let bucket = self
                .stage
                .there("GarageBucket", &self.bucket)
                .await
                .map_err(|e| e.to_string())?;
            let mut children = BTreeMap::new();
            for kind in [Kind::Ingress, Kind::Route] {
                if let Some(live) = self
                    .stage
                    .get(kind.name(), &child)
                    .await
                    .map_err(|e| e.to_string())?
                {
                    let mut annotations = live["metadata"]["annotations"].clone();
                    annotations
                        .as_object_mut()
                        .map(|a| a.remove("routewright.dev/applied-hash"));
                    children.insert(
                        kind.name(),
                        json!([live["spec"], live["metadata"]["labels"], annotations]),
                    );
                }
            }
            let condition = exposed(&bucket).cloned().unwrap_or_default();
            let seen = json!({
                "children": children,
                "condition": [condition["status"], condition["reason"], condition["message"]],
                "status": bucket["status"]["websiteExposure"],
            });
            let current = condition.get("observedGeneration") == bucket.pointer("/metadata/generation");
            let done = match step {
                Step::Unset => children.is_empty() && condition.is_null() && seen["status"].is_null(),
                _ => {
                    let spec = serde_json::to_string(&children.get(kind.name())).unwrap();
                    let changed = step != Step::Change || spec.contains("blue");
                    let reason = if kind == Kind::Ingress {
                        "Exposed"
                    } else {
                        "NotReady"
                    };
                    children.len() == 1
                        && children.contains_key(kind.name())
                        && changed
                        && current
                        && condition["reason"] == reason
                }
            };
            // Names of buckets differ from life to life.
            let text = seen.to_string().replace(&self.bucket, "BUCKET");
            if done {
                Ok(serde_json::from_str(&text).unwrap())
            } else {
                Err(text)
            }
        })
        .await
    }
}

/// Waits until this many writes of the operator are in the log, or time is up. As close to the write as it gets: the
/// log is written before the answer is sent.
fn writes(
    log: &AuditLog,
    mark: routewright_e2e::audit::Mark,
    user: &str,
    n: usize,
    limit: Duration,
) -> usize {
    let begun = Instant::now();
    loop {
        let all = log.of_user(mark, user).unwrap_or_default();
        let seen = all
            .iter()
            .filter(|r| r.is_write() && r.resource != "leases")
            .count();
        if seen >= n || begun.elapsed() > limit {
            return seen;
        }
        std::hint::spin_loop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_any_two_writes_ends_the_same() {
    let _alone = ALONE.lock().await;
    scenario("a_kill_between_any_two_writes_ends_the_same", async |s| {
        crate::kinds::route_served(&s).await?;
        let stage = Stage::new(&s).await?;
        // A killed leader does not give its lease back; without one the sweep takes seconds instead of minutes.
        let mut values = both(s.ns());
        values["leaderElection"] = json!({"enabled": false});
        let mut operator = Operator::process(s.cluster, values).await?;
        stage.usual_garage().await?;
        looked_if_any(&operator).await?;
        let mut points = Vec::new();
        for kind in [Kind::Ingress, Kind::Route] {
            sweep(&s, &stage, &mut operator, kind, &mut points).await?;
        }
        // Then the sweep had points, and each was reached
        say(format!(
            "killed at {} points: {}",
            points.len(),
            points.join(", ")
        ));
        assert!(points.len() >= 16, "{points:?}");
        Ok(())
    })
    .await;
}

async fn looked_if_any(operator: &Operator) -> Result<()> {
    wait::eventually("both run", SOON, || async {
        let text = operator
            .probe("/readyz?verbose")
            .await
            .map_err(|e| e.to_string())?;
        if text.matches(": Running").count() >= 2 {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await
}

async fn sweep(
    s: &Scenario,
    stage: &Stage,
    operator: &mut Operator,
    kind: Kind,
    points: &mut Vec<String>,
) -> Result<()> {
    let log = s.cluster.audit()?;
    let prefix = kind.plural();
    // Given a life without a kill: its end states, and its writes as the list of points
    let calm = Life {
        stage,
        kind,
        bucket: format!("{prefix}-calm"),
    };
    let mut ends = Vec::new();
    let mut costs = Vec::new();
    for step in LIFE {
        let mark = stage.mark()?;
        calm.act(step).await?;
        ends.push(calm.end(step).await?);
        stage.calm(operator).await?;
        let asked: Vec<_> = stage
            .asked(operator, mark)?
            .into_iter()
            .filter(|r| r.is_write())
            .collect();
        costs.push(asked.len());
        assert!(!asked.is_empty(), "{step:?} writes nothing");
        say(format!("{} {step:?}: {:?}", kind.name(), tally(&asked)));
    }
    // When it is killed before, between and behind any two writes of each step, and started again
    let mut missed = 0;
    for (index, step) in LIFE.into_iter().enumerate() {
        for n in 0..=costs[index] {
            let life = Life {
                stage,
                kind,
                bucket: format!("{prefix}-{index}-{n}"),
            };
            for earlier in LIFE.into_iter().take(index) {
                life.act(earlier).await?;
                life.end(earlier).await?;
            }
            let mut reached = true;
            let user = operator.user();
            let mark = stage.mark()?;
            let (watch, pid) = (log.clone(), operator.pid()?);
            let killer = tokio::task::spawn_blocking(move || {
                let seen = writes(&watch, mark, &user, n, Duration::from_secs(30));
                let killed = pid.signal(rustix::process::Signal::KILL);
                (seen, killed)
            });
            if n == 0 {
                // Before the first write: dead when the change comes.
                killer.await.unwrap().1?;
                life.act(step).await?;
            } else {
                life.act(step).await?;
                let (seen, killed) = killer.await.unwrap();
                killed?;
                if seen < n {
                    say(format!(
                        "{} {step:?}: {seen} writes this time, {n} before",
                        kind.name()
                    ));
                    missed += 1;
                    reached = false;
                }
            }
            pid.wait_gone(SOON)?;
            operator.restart()?;
            operator.ready().await?;
            // Then the end is the same
            let end = life.end(step).await?;
            assert_eq!(end, ends[index], "{} {step:?} after {n} writes", kind.name());
            if reached {
                points.push(format!("{} {step:?}/{n}", kind.name()));
            }
        }
    }
    // A write more or less is chance (two deletes of one object); most points must have been reached.
    assert!(missed <= 2, "{missed} points were not reached");
    looked(operator).await
}
