//! Takes part in the election: reads the Lease, takes, renews and releases it. `lease` decides each step, this file sends
//! its request.
//!
//! Every write carries the resourceVersion that its decision rests on, so that of two candidates one is refused whatever
//! both have read. Only a renewal that the API server confirmed opens the fence, from the moment of its sending.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    jitter::{Backoff, Jitter},
    leadership::{Claim, LeaseConfig},
    lease::{Step, Terms, View},
};
use crate::{ErrorClass, error::classify};

/// No answer to a request within this time counts as a failure, or earlier if the fence leaves less room for another try.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How long giving the Lease back may take.
pub(super) const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// First pause after a request that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause while this process may still act: every lost second counts.
const HOLDING_LIMIT: Duration = Duration::from_secs(1);
/// Longest pause while the API server does not answer.
const AWAY_LIMIT: Duration = Duration::from_secs(5);
/// Longest pause while the API server refuses: people mend this, not time.
const REFUSED_LIMIT: Duration = Duration::from_secs(30);
/// Pauses after a conflict: another client writes the same Lease, which ends by itself.
const CONFLICTS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The API server's limit for the name of a field manager, in bytes.
const MANAGER_LIMIT: usize = 128;

/// Tells the time of day for the records that people and older releases read. No decision rests on it.
pub(super) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The time of day of this machine.
pub(super) fn wall_clock() -> WallClock {
    Arc::new(Timestamp::now)
}

/// One process in the election.
pub(super) struct Candidate {
    config: LeaseConfig,
    api: Api<Lease>,
    manager: String,
    terms: Terms,
    answer_limit: Duration,
    jitter: Jitter,
    wall_clock: WallClock,
    view: View,
    poll: Duration,
    /// When the last successful renewal was sent.
    sent: Option<Instant>,
    /// A write was sent that may have made this process the holder.
    claimed: bool,
    backoff: Backoff,
    conflicts: Backoff,
    problem: Option<String>,
    /// The last write failed: a read that works proves nothing.
    refused: bool,
    /// The holder that the log named last.
    waits_for: Option<String>,
}

enum Failure {
    /// Another client wrote in between.
    Conflict,
    /// The Lease to write is not there.
    Gone,
    Other(ErrorClass, String),
}

impl Candidate {
    pub(super) fn new(
        config: LeaseConfig,
        client: Client,
        (jitter, backoff, conflicts): (Jitter, Jitter, Jitter),
        wall_clock: WallClock,
    ) -> Self {
        let duration = Duration::from_secs(config.duration);
        let renew = duration.saturating_sub(Duration::from_secs(config.grace));
        let room = config.fence.saturating_sub(renew) / 2;
        Self {
            api: Api::namespaced(client, &config.namespace),
            manager: manager(&config.field_manager, &config.identity),
            terms: Terms {
                identity: config.identity.clone(),
                duration,
                renew,
            },
            answer_limit: ANSWER_LIMIT.min(room),
            jitter,
            wall_clock,
            view: View::new(),
            poll: renew,
            sent: None,
            claimed: false,
            backoff: Backoff::new(PAUSE, REFUSED_LIMIT, backoff),
            conflicts: Backoff::new(CONFLICTS.0, CONFLICTS.1, conflicts),
            problem: None,
            refused: false,
            waits_for: None,
            config,
        }
    }

    /// Competes until `stop`, then gives the Lease back.
    pub(super) async fn run(mut self, claim: &Claim, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let step = self
                .view
                .next_step(&self.terms, self.sent, self.poll, Instant::now());
            let wait = match step {
                Step::Wait(until) => until,
                // A request is never cancelled half-way: its answer says what has to be given back.
                step => match self.perform(&step, claim).await {
                    Ok(()) => continue,
                    Err(failure) => {
                        self.refused |= step != Step::Read;
                        Instant::now() + self.pause_after(failure, claim)
                    }
                },
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep_until(wait) => {}
            }
        }
        claim.lost();
        if timeout(RELEASE_LIMIT, self.release()).await.is_err() {
            tracing::warn!(lease = %self.name(), "the Lease could not be given back in time; it ends by itself");
        }
    }

    async fn perform(&mut self, step: &Step, claim: &Claim) -> Result<(), Failure> {
        let sent = Instant::now();
        let result = match step {
            Step::Wait(_) => return Ok(()),
            Step::Read => self.read().await,
            Step::Create => self.create().await,
            Step::Acquire { version, transitions } => {
                let now = self.now();
                let spec = json!({
                    "holderIdentity": self.terms.identity,
                    "leaseDurationSeconds": self.config.duration,
                    "acquireTime": now,
                    "renewTime": now,
                    "leaseTransitions": transitions,
                });
                self.write(version, spec).await
            }
            Step::Renew { version } => {
                let spec = json!({
                    "holderIdentity": self.terms.identity,
                    "leaseDurationSeconds": self.config.duration,
                    "renewTime": self.now(),
                });
                self.write(version, spec).await
            }
        };
        let read = *step == Step::Read;
        let lease = match result {
            Ok(lease) => Some(lease),
            Err(Failure::Gone) => None,
            Err(failure) => {
                // What a write without an answer did, only the next look tells.
                self.view.invalidate();
                return Err(failure);
            }
        };
        self.view.observe(lease, &self.terms, Instant::now());
        let lost = self.view.lost(&self.terms);
        if !read || !self.refused || lost {
            self.works();
        }
        self.poll = self.jitter.around(self.terms.renew, 0.2);
        if self.view.holder() == Some(&self.terms.identity) {
            if !read {
                self.sent = Some(sent);
                self.waits_for = None;
                claim.renewed(sent);
            }
        } else if lost {
            self.sent = None;
            self.claimed = false;
            claim.lost();
            self.tell_holder();
        }
        Ok(())
    }

    async fn read(&self) -> Result<Lease, Failure> {
        answered(self.answer_limit, self.api.get(&self.config.name)).await
    }

    async fn create(&mut self) -> Result<Lease, Failure> {
        let now = self.now();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.terms.identity.clone()),
                lease_duration_seconds: i32::try_from(self.config.duration).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        let params = PostParams {
            field_manager: Some(self.manager.clone()),
            ..PostParams::default()
        };
        self.claimed = true;
        self.view.claim();
        let answer = answered(self.answer_limit, self.api.create(&params, &lease)).await;
        match answer {
            // The namespace is missing, not the Lease.
            Err(Failure::Gone) => Err(Failure::Other(
                ErrorClass::NotFound,
                format!("there is no namespace {}", self.config.namespace),
            )),
            answer => answer,
        }
    }

    async fn write(&mut self, version: &str, spec: Value) -> Result<Lease, Failure> {
        let params = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "spec": spec }));
        self.claimed = true;
        self.view.claim();
        let asked = self.api.patch(&self.config.name, &params, &patch);
        answered(self.answer_limit, asked).await
    }

    /// Gives the Lease back if this process holds it.
    async fn release(&mut self) {
        while self.claimed {
            let version = match self.view.next_step(&self.terms, None, self.poll, Instant::now()) {
                Step::Renew { version } => version,
                Step::Read => match self.read().await {
                    Ok(lease) => {
                        self.view.observe(Some(lease), &self.terms, Instant::now());
                        continue;
                    }
                    Err(Failure::Gone) => return,
                    Err(_) => {
                        sleep(self.conflicts.next_wait()).await;
                        continue;
                    }
                },
                // This process does not hold it.
                _ => return,
            };
            let nothing = json!({
                "holderIdentity": null,
                "leaseDurationSeconds": null,
                "acquireTime": null,
                "renewTime": null,
            });
            match self.write(&version, nothing).await {
                Ok(_) | Err(Failure::Gone) => return,
                Err(_) => {
                    self.view.invalidate();
                    sleep(self.conflicts.next_wait()).await;
                }
            }
        }
    }

    /// Tells a new problem once, and how long to pause.
    fn pause_after(&mut self, failure: Failure, claim: &Claim) -> Duration {
        let (class, text) = match failure {
            Failure::Conflict => return self.conflicts.next_wait(),
            Failure::Gone => return PAUSE,
            Failure::Other(class, text) => (class, text),
        };
        if self.problem.as_ref() != Some(&text) {
            tracing::warn!(
                lease = %self.name(),
                class = class.label(),
                "the Lease cannot be read or written, and is tried again; the operator needs the verbs get and patch on it, \
                 and create on leases: {text}"
            );
            self.problem = Some(text);
        }
        let limit = if claim.is_fresh() {
            HOLDING_LIMIT
        } else if matches!(
            class,
            ErrorClass::Forbidden | ErrorClass::Invalid | ErrorClass::NotFound | ErrorClass::NotServed
        ) {
            REFUSED_LIMIT
        } else {
            AWAY_LIMIT
        };
        self.backoff.next_wait_up_to(limit)
    }

    fn works(&mut self) {
        self.refused = false;
        self.backoff.reset();
        self.conflicts.reset();
        if self.problem.take().is_some() {
            tracing::info!(lease = %self.name(), "the Lease can be read and written again");
        }
    }

    fn tell_holder(&mut self) {
        let holder = self.view.holder().map(str::to_owned);
        if holder.is_some() && holder != self.waits_for {
            tracing::info!(
                lease = %self.name(),
                holder = holder.as_deref(),
                "waits for the Lease, until its holder gives it back or does not renew it for {} s",
                self.view.lasts(&self.terms).as_secs()
            );
        }
        self.waits_for = holder;
    }

    /// The time of day, never the one that the record carries already: a renewal has to change the record.
    fn now(&self) -> MicroTime {
        let known = self.view.renew_time().map(|time| time.0.as_microsecond());
        let now = (self.wall_clock)().as_microsecond();
        let now = if known == Some(now) { now + 1 } else { now };
        MicroTime(Timestamp::from_microsecond(now).unwrap_or_default())
    }

    fn name(&self) -> String {
        format!("{}/{}", self.config.namespace, self.config.name)
    }
}

async fn answered<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match timeout(limit, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Failure::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 && status.reason == "NotFound" => {
            Err(Failure::Gone)
        }
        Ok(Err(error)) => {
            let (class, text) = classify(&error);
            Err(Failure::Other(class, text))
        }
        Err(_) => Err(Failure::Other(
            ErrorClass::Timeout,
            "the API server did not answer in time".to_owned(),
        )),
    }
}

/// A field manager of this process alone. The end of the identity tells processes apart, so its beginning is cut.
fn manager(prefix: &str, identity: &str) -> String {
    let room = MANAGER_LIMIT.saturating_sub(prefix.len() + 1);
    let mut from = identity.len().saturating_sub(room);
    while !identity.is_char_boundary(from) {
        from += 1;
    }
    format!("{prefix}-{}", identity.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_field_manager_of_its_own_that_the_api_server_takes() {
        assert_eq!(manager("op-lease", "pod-1-ab"), "op-lease-pod-1-ab");
        let long = |end: &str| manager("op-lease", &format!("{}é{end}", "x".repeat(300)));
        assert!(long("1").len() <= MANAGER_LIMIT);
        assert_ne!(long("1"), long("2"));
        let umlauts = manager("op", &"é".repeat(100));
        assert!(
            umlauts.len() <= MANAGER_LIMIT && umlauts.ends_with('é'),
            "{umlauts}"
        );
    }
}
