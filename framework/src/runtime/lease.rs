//! Decides the next step of a candidate for a Lease. Pure: it reads no clock and sends no request, so that every moment of
//! an election can be played through in a test.
//!
//! The rule of expiry is client-go's: a Lease is free when this process has not seen it change for as long as the record
//! says that it lasts, by the monotonic clock of this process. Times that other processes wrote are never compared.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::time::Instant;

/// What a candidate needs to know to decide.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Identity of this process.
    pub(super) identity: String,
    /// Duration of a Lease that names none.
    pub(super) duration: Duration,
    /// Time between the sending of two renewals.
    pub(super) renew: Duration,
}

/// The Lease as this process knows it.
#[derive(Debug)]
pub(super) struct View {
    record: Record,
    /// The last record, also while the present one is unknown.
    last: Option<(Option<String>, LeaseSpec)>,
    /// When this process first saw that record.
    since: Option<Instant>,
    /// Another holder may act until then, also after the deletion of its Lease.
    taken_until: Option<Instant>,
    /// When the present record was read.
    read: Option<Instant>,
    /// This process has written its identity into the Lease, as far as it knows.
    claimed: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Record {
    /// Not read yet, or a write may have changed it.
    Unknown,
    /// The API server has no such Lease.
    Absent,
    Present {
        version: String,
        spec: LeaseSpec,
    },
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Read the Lease.
    Read,
    /// Create the Lease with this process as its holder.
    Create,
    /// Take the Lease of this version.
    Acquire { version: String, transitions: i32 },
    /// Renew the own Lease of this version.
    Renew { version: String },
    /// Do nothing before this moment.
    Wait(Instant),
}

impl View {
    /// Nothing is known.
    pub(super) fn new() -> Self {
        Self {
            record: Record::Unknown,
            last: None,
            since: None,
            taken_until: None,
            read: None,
            claimed: false,
        }
    }

    /// A write is sent that may make this process the holder.
    pub(super) fn claim(&mut self) {
        self.claimed = true;
    }

    /// The API server has answered with this Lease; `None`: no such Lease. `now` is the moment of the answer.
    pub(super) fn observe(&mut self, lease: Option<Lease>, terms: &Terms, now: Instant) {
        self.read = Some(now);
        let Some(lease) = lease else {
            if self.record != Record::Absent {
                // Nothing holds longer than the candidates' own duration once its Lease is gone, whatever was in it.
                self.taken_until = self.taken_until.map(|until| until.min(now + terms.duration));
            }
            self.record = Record::Absent;
            return;
        };
        let spec = lease.spec.unwrap_or_default();
        let was_own = self.claimed && self.holder() == Some(&terms.identity);
        let known = (lease.metadata.uid, spec);
        if self.last.as_ref() != Some(&known) {
            self.since = Some(now);
            self.last = Some(known.clone());
        }
        let (_, spec) = known;
        let since = self.since.unwrap_or(now);
        self.taken_until = match holder(&spec) {
            // An identity that this process never wrote is the edit of another client: the holder may still act.
            Some(holder) if holder != terms.identity || !self.claimed => {
                Some(since + lasts(&spec, terms.duration))
            }
            Some(_) => None,
            None if was_own => None,
            // The holder gives its Lease back without a duration, client-go with one second. Where one is left, another
            // client has emptied the record, and the holder acts until it looks.
            None => duration_of(&spec).map(|left| since + left.min(terms.duration)),
        };
        // What it wrote before does not count any more when another client writes its identity later.
        self.claimed &= holder(&spec) == Some(&terms.identity);
        self.record = Record::Present {
            version: lease.metadata.resource_version.unwrap_or_default(),
            spec,
        };
    }

    /// The record may have changed: it has to be read before the next write.
    pub(super) fn invalidate(&mut self) {
        self.record = Record::Unknown;
    }

    /// The holder by the present record.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.record {
            Record::Present { spec, .. } => holder(spec),
            Record::Unknown | Record::Absent => None,
        }
    }

    /// The present record names another holder, or none: what this process held is lost.
    pub(super) fn lost(&self, terms: &Terms) -> bool {
        matches!(self.record, Record::Present { .. }) && self.holder() != Some(&terms.identity)
    }

    /// The renewTime of the last record.
    pub(super) fn renew_time(&self) -> Option<&MicroTime> {
        self.last.as_ref().and_then(|(_, spec)| spec.renew_time.as_ref())
    }

    /// For how long another holder keeps the Lease without a renewal.
    pub(super) fn lasts(&self, terms: &Terms) -> Duration {
        let spec = self.last.as_ref().map(|(_, spec)| spec);
        spec.map_or(terms.duration, |spec| lasts(spec, terms.duration))
    }

    /// The next step. `sent` is when the last successful renewal was sent, `poll` the pause between two reads.
    pub(super) fn next_step(
        &self,
        terms: &Terms,
        sent: Option<Instant>,
        poll: Duration,
        now: Instant,
    ) -> Step {
        let Some(read) = self.read else { return Step::Read };
        let free = match &self.record {
            Record::Unknown => return Step::Read,
            Record::Present { version, spec } => match holder(spec) {
                Some(holder) if holder == terms.identity && self.claimed => {
                    // No renewal is known: the answer to the acquisition was lost.
                    let due = sent.map_or(now, |sent| sent + terms.renew);
                    return match now < due {
                        true => Step::Wait(due),
                        false => Step::Renew {
                            version: version.clone(),
                        },
                    };
                }
                _ => Step::Acquire {
                    version: version.clone(),
                    transitions: spec.lease_transitions.unwrap_or(0).saturating_add(1),
                },
            },
            Record::Absent => Step::Create,
        };
        match self.taken_until {
            // The record is compared once more when the time is over.
            Some(until) if read < until => {
                let next = (read + poll).min(until);
                if now < next { Step::Wait(next) } else { Step::Read }
            }
            _ => free,
        }
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    // client-go releases a Lease with an empty text.
    spec.holder_identity.as_deref().filter(|h| !h.is_empty())
}

fn duration_of(spec: &LeaseSpec) -> Option<Duration> {
    let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
    seconds.filter(|s| *s > 0).map(Duration::from_secs)
}

/// For how long a holder may act. An edit of the record does not make it look earlier, so its duration counts only where
/// it is longer than the own one.
fn lasts(spec: &LeaseSpec, own: Duration) -> Duration {
    duration_of(spec).map_or(own, |named| named.max(own))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kube::core::ObjectMeta;

    use super::*;

    const POLL: Duration = Duration::from_secs(5);

    fn terms() -> Terms {
        Terms {
            identity: "us".to_owned(),
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(5),
        }
    }

    fn lease(version: &str, holder: Option<&str>, renewed: i64) -> Lease {
        Lease {
            metadata: ObjectMeta {
                uid: Some("uid".to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
                lease_duration_seconds: Some(15),
                lease_transitions: Some(3),
                ..LeaseSpec::default()
            }),
        }
    }

    fn acquire(version: &str) -> Step {
        Step::Acquire {
            version: version.to_owned(),
            transitions: 4,
        }
    }

    /// A candidate that reads at these seconds, and its steps afterwards.
    struct Story(View, Instant);

    impl Story {
        fn new() -> Self {
            Self(View::new(), Instant::now())
        }

        fn at(&self, second: u64) -> Instant {
            self.1 + Duration::from_secs(second)
        }

        fn reads(&mut self, second: u64, lease: Option<Lease>) -> Step {
            let now = self.at(second);
            self.0.observe(lease, &terms(), now);
            self.0.next_step(&terms(), None, POLL, now)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_free_when_it_was_not_seen_to_change_for_its_duration_whatever_time_it_carries() {
        // the wall clock of the holder: an hour behind, right, an hour ahead
        for renewed in [0, 3_600, 7_200] {
            let mut story = Story::new();
            assert_eq!(
                story.0.next_step(&terms(), None, POLL, story.1),
                Step::Read,
                "nothing is known"
            );
            let dead = || Some(lease("7", Some("them"), renewed));
            assert_eq!(story.reads(0, dead()), Step::Wait(story.at(5)));
            assert_eq!(story.reads(5, dead()), Step::Wait(story.at(10)));
            assert_eq!(story.reads(12, dead()), Step::Wait(story.at(15)));
            assert_eq!(story.reads(14, dead()), Step::Wait(story.at(15)));
            assert_eq!(story.reads(15, dead()), acquire("7"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_starts_the_time_anew_and_a_foreign_label_does_not() {
        let mut story = Story::new();
        story.reads(0, Some(lease("7", Some("them"), 100)));
        // a label: another version of the same record
        story.reads(10, Some(lease("8", Some("them"), 100)));
        assert_eq!(story.reads(15, Some(lease("9", Some("them"), 100))), acquire("9"));
        // a renewal, whose time may lie in the past
        let step = story.reads(16, Some(lease("10", Some("them"), 40)));
        assert_eq!(step, Step::Wait(story.at(21)));
        assert_eq!(
            story.reads(30, Some(lease("10", Some("them"), 40))),
            Step::Wait(story.at(31))
        );
        assert_eq!(
            story.reads(31, Some(lease("10", Some("them"), 40))),
            acquire("10")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_without_a_holder_is_free_at_once() {
        for empty in [None, Some("")] {
            let mut released = lease("7", empty, 100);
            if let Some(spec) = &mut released.spec {
                spec.lease_duration_seconds = None;
            }
            assert_eq!(Story::new().reads(0, Some(released)), acquire("7"));
        }
        let empty = Lease {
            spec: None,
            ..lease("7", None, 0)
        };
        assert_eq!(
            Story::new().reads(0, Some(empty)),
            Step::Acquire {
                version: "7".to_owned(),
                transitions: 1
            }
        );
        assert_eq!(Story::new().reads(0, None), Step::Create);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_client_emptied_is_free_when_its_holder_cannot_act_any_more() {
        let mut story = Story::new();
        story.reads(0, Some(lease("7", Some("them"), 100)));
        for emptied in [None, Some("")] {
            let mut story = Story::new();
            assert_eq!(
                story.reads(3, Some(lease("8", emptied, 100))),
                Step::Wait(story.at(8))
            );
            assert_eq!(story.reads(18, Some(lease("8", emptied, 100))), acquire("8"));
        }
        // however long the record says that it lasts
        let mut long = lease("8", None, 100);
        if let Some(spec) = &mut long.spec {
            spec.lease_duration_seconds = Some(100_000);
        }
        story.reads(3, Some(long.clone()));
        assert_eq!(story.reads(18, Some(long)), acquire("8"));
        // its holder takes it back at once
        let mut story = Story::new();
        story.0.claim();
        story.reads(0, Some(lease("7", Some("us"), 100)));
        assert_eq!(story.reads(5, Some(lease("8", None, 100))), acquire("8"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_client_gives_to_this_process_is_taken_when_its_holder_cannot_act_any_more()
    {
        let mut story = Story::new();
        story.reads(0, Some(lease("7", Some("them"), 100)));
        assert_eq!(
            story.reads(3, Some(lease("8", Some("us"), 100))),
            Step::Wait(story.at(8))
        );
        assert_eq!(story.reads(18, Some(lease("8", Some("us"), 100))), acquire("8"));
        // also to one that held it before
        let mut story = Story::new();
        story.0.claim();
        story.reads(0, Some(lease("7", Some("us"), 100)));
        story.reads(3, Some(lease("8", Some("them"), 103)));
        assert_eq!(
            story.reads(6, Some(lease("9", Some("us"), 103))),
            Step::Wait(story.at(11))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_that_shortens_a_lease_does_not_end_it_before_its_holder_looks() {
        let mut story = Story::new();
        let mut short = lease("8", Some("them"), 100);
        if let Some(spec) = &mut short.spec {
            spec.lease_duration_seconds = Some(1);
        }
        story.reads(0, Some(short.clone()));
        assert_eq!(story.reads(3, Some(short.clone())), Step::Wait(story.at(8)));
        assert_eq!(story.reads(15, Some(short)), acquire("8"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_lease_is_made_when_its_holder_cannot_act_any_more() {
        let mut story = Story::new();
        story.reads(0, Some(lease("7", Some("them"), 100)));
        assert_eq!(story.reads(5, None), Step::Wait(story.at(10)));
        assert_eq!(story.reads(14, None), Step::Wait(story.at(15)));
        assert_eq!(story.reads(15, None), Step::Create);
        // its own one is made anew at once
        let mut story = Story::new();
        story.0.claim();
        story.reads(0, Some(lease("7", Some("us"), 100)));
        assert_eq!(story.reads(5, None), Step::Create);
        // one that somebody had lengthened for days does not last beyond its deletion
        let mut long = lease("7", Some("them"), 100);
        if let Some(spec) = &mut long.spec {
            spec.lease_duration_seconds = Some(100_000);
        }
        let mut story = Story::new();
        story.reads(0, Some(long));
        assert_eq!(story.reads(5, None), Step::Wait(story.at(10)));
        assert_eq!(story.reads(19, None), Step::Wait(story.at(20)));
        assert_eq!(story.reads(20, None), Step::Create);
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_renews_in_time_and_reads_again_after_a_write_of_unknown_end() {
        let mut story = Story::new();
        story.0.claim();
        let renew = |version: &str| Step::Renew {
            version: version.to_owned(),
        };
        assert_eq!(
            story.reads(0, Some(lease("7", Some("us"), 100))),
            renew("7"),
            "the answer to the acquisition was lost"
        );
        let sent = Some(story.at(1));
        let step = |story: &Story, second| story.0.next_step(&terms(), sent, POLL, story.at(second));
        assert_eq!(step(&story, 2), Step::Wait(story.at(6)));
        assert_eq!(step(&story, 6), renew("7"));
        story.0.invalidate();
        assert_eq!(step(&story, 7), Step::Read);
        assert!(!story.0.lost(&terms()));
        story.reads(8, Some(lease("9", Some("them"), 100)));
        assert!(story.0.lost(&terms()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stood_still_compares_the_record_before_it_takes_the_lease() {
        let mut story = Story::new();
        story.reads(0, Some(lease("7", Some("them"), 100)));
        let later = story.at(3_600);
        assert_eq!(story.0.next_step(&terms(), None, POLL, later), Step::Read);
    }
}
