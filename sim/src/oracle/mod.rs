//! The oracle: computes from scratch what a quiet world must look like, and compares.
//!
//! A second, independent model of the contracts. It shares no code with the product: it reads the objects as the API
//! server holds them, the buckets as Garage holds them and the documents as Tyk holds them, and derives condition,
//! child, bucket and document of each object again. It knows no history, so a rule that depends on what was before
//! (the rows that keep a child, the documents that stay as last written) accepts every state that some history allows.
//!
//! ```text
//! snapshot   what is judged, and reading it          hosts    names of hosts: canonical, valid, in common
//! exposure   GarageBucket -> condition, block, child  children what the generated Ingress or HTTPRoute must be
//! buckets    handles and buckets in Garage            tyk      GatewayClass, Gateway, HTTPRoute, documents in Tyk
//! ```
//!
//! Where the contract leaves something open, the oracle accepts each reading and marks the place with `Lenient:`.
//! Where an object's state forbids a judgement, the object is counted in [`Judgement::skipped`].

pub mod buckets;
pub mod children;
pub mod exposure;
pub mod hosts;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod tyk;

use std::collections::BTreeMap;
use std::fmt::Display;

pub use snapshot::{Flags, GarageBucket, Gone, Quotas, Snapshot, TykFlags, Website};

use snapshot::World;

/// A state that the contracts do not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule, `area.what`.
    pub rule: &'static str,
    /// The object, `Kind namespace/name`.
    pub object: String,
    /// What the contract wants.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}\n  expected {}\n  found    {}",
            self.rule, self.object, self.expected, self.found
        )
    }
}

/// The outcome of one look at a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Everything that is not as the contracts want it.
    pub violations: Vec<Violation>,
    /// How often each rule was applied.
    pub judged: BTreeMap<&'static str, usize>,
    /// How many objects were not judged, by reason.
    pub skipped: BTreeMap<&'static str, usize>,
}

impl Judgement {
    /// Applies a rule: the violation is recorded unless `holds`.
    pub(crate) fn check(
        &mut self,
        rule: &'static str,
        object: impl Display,
        holds: bool,
        expected: impl Display,
        found: impl Display,
    ) {
        *self.judged.entry(rule).or_default() += 1;
        if !holds {
            self.violations.push(Violation {
                rule,
                object: object.to_string(),
                expected: expected.to_string(),
                found: found.to_string(),
            });
        }
    }

    /// Counts an object that cannot be judged.
    pub(crate) fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }
}

/// Judges a quiet world. No violations: everything that could be judged is right.
pub fn judge(snapshot: &Snapshot) -> Judgement {
    let world = World::of(snapshot);
    let mut judgement = Judgement::default();
    exposure::judge(&world, &mut judgement);
    children::judge_invariants(&world, &mut judgement);
    buckets::judge(&world, &mut judgement);
    tyk::judge(&world, &mut judgement);
    judgement
}
