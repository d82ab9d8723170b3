//! A status that somebody else writes too, over and over: what tells an overwriting from a change of our own mind, and
//! how long the next rewriting waits. Two operators that watch one object and disagree would write in turns for ever.
//! Memory only, of objects whose status was written; no I/O, and the clock comes from outside.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Report, StatusField,
    condition::find,
    runtime::jitter::doubled,
    status::{LiveStatus, StatusContract, Transition},
};

/// So many overwritings are mended at once: a user's mistake, or a tool's.
pub(crate) const FREE_REWRITES: u32 = 2;
/// The next one waits this long since the last write, each further one twice as long.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// But no longer than this.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// What stood as written for so long, and for twice the present pause, is a contest no more. Twice: of two that wait
/// alike, each sees its own word stand for just about one pause.
pub(crate) const CALM: Duration = Duration::from_secs(60);
/// So many of our latest decisions about one generation are remembered.
const DECISIONS: usize = 4;

/// Which object. The generation is the one that was decided on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: Option<i64>,
}

/// Parts of status, each by name with a hash of its content: conditions, and the fields that a report names.
pub(crate) type Parts = Box<[(&'static str, u64)]>;

/// A word that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// What was decided, times aside.
    decision: u64,
    /// What stands now of the parts that it is about.
    standing: Parts,
}

/// What a write left behind.
#[derive(Debug)]
pub(crate) struct Left<'a> {
    pub(crate) parts: Parts,
    /// What it said of each condition type of the contract.
    pub(crate) said: Box<[Option<u64>]>,
    /// The resourceVersion that it led to.
    pub(crate) version: &'a str,
}

/// What came of asking whether a word may be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Not before this much later.
    pub(crate) wait: Option<Duration>,
    /// We said so before, and somebody else wrote something else since.
    pub(crate) again: bool,
    /// This has to be told, once.
    pub(crate) tell: bool,
    /// Somebody else wrote since our last word: what that was of each condition type of the contract.
    pub(crate) said: Option<Box<[Option<u64>]>>,
}

/// Contests of all objects of one contract.
#[derive(Debug, Default)]
pub(crate) struct Contests(Mutex<HashMap<String, HashMap<String, Record>>>);

/// What was written about one object.
#[derive(Debug)]
struct Record {
    uid: u64,
    generation: Option<i64>,
    /// The latest decisions about this generation; the last one is what we wrote last.
    made: Vec<u64>,
    /// What our last write left behind.
    left: Parts,
    /// The resourceVersion that it led to.
    version: u64,
    said: Box<[Option<u64>]>,
    written: Instant,
    /// When the overwriting that is not mended yet was seen first.
    seen: Option<Instant>,
    /// Overwritings mended since the last calm.
    rewrites: u32,
    told: bool,
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The pause before the next rewriting, after so many.
fn pause(rewrites: u32) -> Duration {
    match rewrites.checked_sub(FREE_REWRITES) {
        None => Duration::ZERO,
        Some(n) => doubled(FIRST_PAUSE, LONGEST_PAUSE, n),
    }
}

impl Word {
    /// What `report` says while `live` stands.
    pub(crate) fn new(contract: &StatusContract, report: &Report, live: &LiveStatus) -> Self {
        let said = (&report.conditions, report.keep_conditions, &report.fields);
        Self {
            decision: hash(format!("{said:?}")),
            standing: parts(contract, report, live),
        }
    }
}

/// The parts of a status that a report is about.
pub(crate) fn parts(contract: &StatusContract, report: &Report, live: &LiveStatus) -> Parts {
    let ours = contract
        .conditions
        .iter()
        .filter_map(|type_| find(&live.conditions, type_));
    let conditions: Vec<_> = ours
        .map(|c| (&c.type_, &c.status, &c.reason, &c.message, c.observed_generation))
        .collect();
    let fields = report.fields.iter().map(|(name, field)| {
        let content = match (live.fields.get(name), field) {
            (Some(Value::Array(list)), StatusField::Entries(entries)) => {
                Some(timeless(&entries.share(list, contract.conditions)))
            }
            (value, _) => value.cloned(),
        };
        (*name, hash(content.map(|c| c.to_string())))
    });
    std::iter::once(("conditions", hash(conditions)))
        .chain(fields)
        .collect()
}

/// What is said of each condition type of the contract.
pub(crate) fn said(contract: &StatusContract, conditions: &[MetaCondition]) -> Box<[Option<u64>]> {
    let types = contract.conditions.iter();
    let said =
        types.map(|type_| find(conditions, type_).map(|c| hash((c.status.as_str(), c.reason.as_str()))));
    said.collect()
}

/// Leaves only transitions from our own last word, not from what somebody else wrote over it.
pub(crate) fn keep_own(contract: &StatusContract, said: &[Option<u64>], transitions: &mut Vec<Transition>) {
    transitions.retain(|t| {
        let place = contract.conditions.iter().position(|type_| *type_ == t.type_);
        let before = place.and_then(|place| said.get(place).copied().flatten());
        before
            != t.status
                .as_ref()
                .map(|status| hash((status.as_str(), t.reason.as_str())))
    });
}

/// A status body without its transition times.
pub(crate) fn timeless(body: &Value) -> Value {
    match body {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "lastTransitionTime");
            let kept = kept.map(|(key, value)| (key.clone(), timeless(value)));
            Value::Object(kept.collect())
        }
        Value::Array(list) => list.iter().map(timeless).collect(),
        other => other.clone(),
    }
}

impl Record {
    fn judge(&mut self, generation: Option<i64>, word: &Word, now: Instant) -> Judged {
        if self.generation != generation {
            self.generation = generation;
            self.made.clear();
            self.calm();
        }
        let standing = |name| word.standing.iter().find(|(other, _)| *other == name);
        let overwritten = self
            .left
            .iter()
            .any(|(name, left)| standing(*name).is_some_and(|(_, now)| now != left));
        let said = overwritten.then(|| self.said.clone());
        // Our last word stands and is ours to change, or this is news.
        let is_last = self.made.last() == Some(&word.decision);
        if !self.made.contains(&word.decision) || !(overwritten || is_last) {
            return Judged {
                said,
                ..Judged::default()
            };
        }
        let due = self.written + pause(self.rewrites);
        // What was seen long ago and not mended when it was due has mended itself meanwhile.
        let seen = self
            .seen
            .filter(|seen| now <= due.max(*seen) + CALM)
            .unwrap_or(now);
        self.seen = Some(seen);
        if seen.duration_since(self.written) >= CALM.max(2 * pause(self.rewrites)) {
            self.calm();
        }
        let wait = (self.written + pause(self.rewrites)).saturating_duration_since(now);
        let tell = self.rewrites >= FREE_REWRITES && !self.told;
        self.told |= tell;
        Judged {
            wait: (!wait.is_zero()).then_some(wait),
            again: true,
            tell,
            said,
        }
    }

    fn calm(&mut self) {
        (self.rewrites, self.told) = (0, false);
    }
}

impl Contests {
    fn map(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this word may be written now.
    pub(crate) fn judge(&self, about: About<'_>, word: &Word, now: Instant) -> Judged {
        let mut map = self.map();
        let names = map.get_mut(about.namespace);
        let record = names.and_then(|names| names.get_mut(about.name));
        match record.filter(|record| record.uid == hash(about.uid)) {
            Some(record) => record.judge(about.generation, word, now),
            None => Judged::default(),
        }
    }

    /// Whether our last word stands, though it compares as different: the API server spells a value in its own way, adds a
    /// default, or the type that the cache decodes into loses something. A second write would change nothing. `version`: the
    /// object's, if what stands is what the cache shows; at the very version of our write it is ours, however it looks.
    pub(crate) fn stands(&self, about: About<'_>, word: &Word, version: Option<&str>) -> bool {
        let mut map = self.map();
        let names = map.get_mut(about.namespace);
        let record = names.and_then(|names| names.get_mut(about.name));
        let Some(record) = record.filter(|record| record.uid == hash(about.uid)) else {
            return false;
        };
        if record.generation != about.generation || record.made.last() != Some(&word.decision) {
            return false;
        }
        if version.is_some_and(|version| hash(version) == record.version) {
            record.left.clone_from(&word.standing);
            return true;
        }
        record.left == word.standing
    }

    /// It was written, and this stands since.
    pub(crate) fn wrote(&self, about: About<'_>, word: &Word, again: bool, left: Left, now: Instant) {
        let Left { parts, said, version } = left;
        let version = hash(version);
        let mut map = self.map();
        if !map.contains_key(about.namespace) {
            map.insert(about.namespace.to_owned(), HashMap::new());
        }
        let Some(names) = map.get_mut(about.namespace) else {
            return;
        };
        let uid = hash(about.uid);
        match names.get_mut(about.name).filter(|record| record.uid == uid) {
            Some(record) => {
                record.made.retain(|made| *made != word.decision);
                if record.made.len() >= DECISIONS {
                    record.made.remove(0);
                }
                record.made.push(word.decision);
                record.rewrites = record.rewrites.saturating_add(u32::from(again));
                (record.left, record.said, record.written, record.seen) = (parts, said, now, None);
                record.version = version;
            }
            None => {
                let record = Record {
                    uid,
                    generation: about.generation,
                    made: vec![word.decision],
                    left: parts,
                    version,
                    said,
                    written: now,
                    seen: None,
                    rewrites: 0,
                    told: false,
                };
                names.insert(about.name.to_owned(), record);
            }
        }
    }

    /// The object is gone.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let mut map = self.map();
        if let Some(names) = map.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                map.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About<'_> = About {
        namespace: "ns",
        name: "n",
        uid: "u",
        generation: Some(1),
    };

    /// A process that says things about one object. What stands is a number: the decision that was written last.
    struct Process {
        contests: Contests,
        now: Instant,
    }

    impl Process {
        fn begin() -> Self {
            Self {
                contests: Contests::default(),
                now: Instant::now(),
            }
        }
        fn word(decision: u64, standing: u64) -> Word {
            Word {
                decision,
                standing: Box::new([("conditions", standing)]),
            }
        }
        fn judge(&self, decision: u64, standing: u64) -> Judged {
            self.contests
                .judge(ABOUT, &Self::word(decision, standing), self.now)
        }
        /// Says it, waiting as long as has to be; how long that was, in seconds, and what was judged first.
        fn say(&mut self, decision: u64, standing: u64) -> (u64, Judged) {
            let first = self.judge(decision, standing);
            let begun = self.now;
            let mut judged = first.clone();
            while let Some(wait) = judged.wait {
                self.now += wait;
                judged = self.judge(decision, standing);
            }
            let left = Left {
                parts: Box::new([("conditions", decision)]),
                said: Box::new([Some(decision)]),
                version: "7",
            };
            let word = Self::word(decision, standing);
            self.contests.wrote(ABOUT, &word, judged.again, left, self.now);
            ((self.now - begun).as_secs(), first)
        }
        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    const THEIRS: u64 = 99;

    #[test]
    fn two_overwritings_are_mended_at_once_and_the_third_is_told_and_waits_twice_as_long_each_time() {
        let mut us = Process::begin();
        assert_eq!(us.say(1, 0), (0, Judged::default()));
        let said: Vec<_> = (0..14).map(|_| us.say(1, THEIRS)).collect();
        let waits: Vec<u64> = said.iter().map(|(wait, _)| *wait).collect();
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        let told: Vec<usize> = (0..14).filter(|n| said[*n].1.tell).collect();
        assert_eq!(told, [2], "once");
        assert!(said.iter().all(|(_, judged)| judged.again));
    }

    #[test]
    fn a_change_of_our_own_mind_is_never_held_back_however_quick() {
        let mut us = Process::begin();
        us.say(1, 0);
        for round in 0..50_u64 {
            // what stands is what we said last
            let (decision, standing) = (1 + (round + 1) % 2, 1 + round % 2);
            assert_eq!(
                us.say(decision, standing),
                (0, Judged::default()),
                "round {round}"
            );
        }
    }

    #[test]
    fn news_go_out_at_once_even_in_a_contest_and_do_not_end_it() {
        let mut us = Process::begin();
        us.say(1, 0);
        for _ in 0..6 {
            us.say(1, THEIRS);
        }
        let (wait, judged) = us.say(2, THEIRS);
        assert_eq!((wait, judged.again), (0, false));
        assert_eq!(
            judged.said,
            Some(Box::from([Some(1)])),
            "compared with our own last word"
        );
        assert_eq!(us.say(2, THEIRS).0, 16, "the pause goes on");
        assert_eq!(us.say(1, THEIRS).0, 32, "a word that was said before is no news");
    }

    #[test]
    fn a_word_stands_in_the_servers_spelling_and_in_no_other() {
        let mut us = Process::begin();
        let stands = |us: &Process, decision, standing, version| {
            us.contests
                .stands(ABOUT, &Process::word(decision, standing), version)
        };
        us.say(1, 0);
        assert!(stands(&us, 1, 1, None) && !stands(&us, 1, THEIRS, None) && !stands(&us, 2, 1, None));
        // At the version of our write, what stands is ours; from then on so it is at others.
        assert!(stands(&us, 1, 5, Some("7")) && stands(&us, 1, 5, Some("8")));
        assert!(!stands(&us, 1, 1, Some("8")));
        let about = About {
            generation: Some(2),
            ..ABOUT
        };
        assert!(!us.contests.stands(about, &Process::word(1, 5), None));
    }

    #[test]
    fn a_new_generation_begins_anew() {
        let mut us = Process::begin();
        us.say(1, 0);
        for _ in 0..6 {
            us.say(1, THEIRS);
        }
        let word = Process::word(1, THEIRS);
        let about = About {
            generation: Some(2),
            ..ABOUT
        };
        let judged = us.contests.judge(about, &word, us.now);
        assert_eq!((judged.wait, judged.again), (None, false));
        let another = About { uid: "v", ..ABOUT };
        assert_eq!(us.contests.judge(another, &word, us.now), Judged::default());
    }

    #[test]
    fn what_stood_long_enough_is_calm_again() {
        let mut us = Process::begin();
        us.say(1, 0);
        let mistake = |us: &mut Process| {
            us.pass(60);
            us.say(1, THEIRS)
        };
        for _ in 0..10 {
            let (wait, judged) = mistake(&mut us);
            assert_eq!((wait, judged.tell), (0, false), "now and then is no contest");
        }
        for _ in 0..9 {
            us.say(1, THEIRS);
        }
        // The present pause is 256 s now.
        us.pass(511);
        assert!(us.judge(1, THEIRS).wait.is_none() && !us.judge(1, THEIRS).tell);
        us.say(1, THEIRS);
        us.pass(1024);
        let (wait, judged) = us.say(1, THEIRS);
        assert_eq!((wait, judged.tell), (0, false));
        assert_eq!(us.say(1, THEIRS).0, 0, "counted from the start");
        assert!(us.say(1, THEIRS).1.tell, "and told again");
    }

    #[test]
    fn an_overwriting_that_was_undone_by_whoever_did_it_is_not_counted_as_seen_for_ever() {
        let mut us = Process::begin();
        us.say(1, 0);
        for _ in 0..4 {
            us.say(1, THEIRS);
        }
        assert!(us.judge(1, THEIRS).wait.is_some());
        // It was taken back before the pause was over, so nothing was written; an hour later a user errs.
        us.pass(3600);
        let (wait, judged) = us.say(1, THEIRS);
        assert_eq!((wait, judged.tell), (0, false));
        assert_eq!(us.say(1, THEIRS).0, 0);
    }

    #[test]
    fn a_field_that_only_one_of_two_words_names_is_not_compared() {
        let contests = Contests::default();
        let now = Instant::now();
        let word = |decision, standing: &[(&'static str, u64)]| Word {
            decision,
            standing: standing.into(),
        };
        let say = |word: &Word, left: &[(&'static str, u64)]| {
            let judged = contests.judge(ABOUT, word, now);
            let left = Left {
                parts: left.into(),
                said: Box::default(),
                version: "",
            };
            contests.wrote(ABOUT, word, judged.again, left, now);
            judged
        };
        say(
            &word(1, &[("conditions", 0), ("parents", 0)]),
            &[("conditions", 1), ("parents", 1)],
        );
        say(&word(2, &[("conditions", 1)]), &[("conditions", 2)]);
        let back = say(
            &word(1, &[("conditions", 2), ("parents", 7)]),
            &[("conditions", 1)],
        );
        assert_eq!(back, Judged::default());
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut us = Process::begin();
        us.say(1, 0);
        us.contests.forget("ns", "n");
        assert!(us.contests.map().is_empty());
    }
}
