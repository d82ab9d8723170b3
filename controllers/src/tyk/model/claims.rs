//! Claims on (Tyk, host, path): who serves where several routes, or several parents of one, want the same.
//!
//! Tyk renames an API whose host and path another API of the same data plane has, so at most one of them is written.
//! The unit that is lost is one API, never a route: a loss takes no other claim away, and there is no chain reaction.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::super::{objects::Key, verdict::Connection};

/// What a data plane is part of: the Tyk of a connection.
pub(super) fn site(connection: &Connection) -> Arc<str> {
    let (url, org) = connection.tyk();
    format!("{url}\n{org}").into()
}

/// Where an API wants to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) site: Arc<str>,
    pub(super) host: Option<Box<str>>,
    pub(super) path: Box<str>,
}

/// Who wants it: a route through a Gateway. Ordered by precedence: oldest route, then its namespace and name, then the
/// place of the Gateway in its parentRefs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claimant {
    pub(super) created: i64,
    pub(super) route: Key,
    pub(super) index: usize,
    pub(super) gateway: Key,
    /// An open-source gateway loads everything that its API has.
    pub(super) open_source: bool,
    pub(super) tags: Arc<[String]>,
}

impl Claimant {
    /// Whether some gateway may load APIs of both: a test of pairs, not an equivalence.
    fn shares_data_plane(&self, other: &Self) -> bool {
        self.open_source
            || other.open_source
            || (self.tags.is_empty() && other.tags.is_empty())
            || self.tags.iter().any(|tag| other.tags.contains(tag))
    }
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) place: Arc<Place>,
    pub(super) claimant: Arc<Claimant>,
}

#[derive(Debug)]
struct Entry {
    claimant: Arc<Claimant>,
    /// The winner that stands in the way.
    lost_to: Option<Arc<Claimant>>,
}

/// All claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Claims by place, those of a place in order of precedence.
    places: HashMap<Arc<Place>, Vec<Entry>>,
    unsettled: BTreeSet<Arc<Place>>,
}

impl Claims {
    /// Replaces claims of one route; [`Claims::settle`] decides.
    pub(super) fn replace(&mut self, old: &[Claim], new: &[Claim]) {
        let (old, new): (BTreeSet<&Claim>, BTreeSet<&Claim>) = (old.iter().collect(), new.iter().collect());
        for claim in old.difference(&new) {
            if let Some(entries) = self.places.get_mut(&claim.place) {
                entries.retain(|entry| entry.claimant != claim.claimant);
            }
            self.unsettled.insert(Arc::clone(&claim.place));
        }
        for claim in new.difference(&old) {
            let entries = self.places.entry(Arc::clone(&claim.place)).or_default();
            let at = entries.partition_point(|entry| entry.claimant < claim.claimant);
            let entry = Entry {
                claimant: Arc::clone(&claim.claimant),
                lost_to: None,
            };
            entries.insert(at, entry);
            self.unsettled.insert(Arc::clone(&claim.place));
        }
    }

    /// Decides what is undecided: a claimant wins unless an earlier winner shares its data plane. Routes whose outcome
    /// is another than before.
    pub(super) fn settle(&mut self) -> BTreeSet<Key> {
        let mut changed = BTreeSet::new();
        for place in std::mem::take(&mut self.unsettled) {
            let Some(entries) = self.places.get_mut(&place) else {
                continue;
            };
            if entries.is_empty() {
                self.places.remove(&place);
                continue;
            }
            let mut winners: Vec<Arc<Claimant>> = Vec::new();
            for entry in entries {
                let lost_to = winners
                    .iter()
                    .find(|winner| winner.shares_data_plane(&entry.claimant))
                    .cloned();
                if lost_to.is_none() {
                    winners.push(Arc::clone(&entry.claimant));
                }
                if lost_to != entry.lost_to {
                    changed.insert(entry.claimant.route.clone());
                    entry.lost_to = lost_to;
                }
            }
        }
        changed
    }

    /// Who stands in the way of a claim, if anyone does.
    pub(super) fn lost_to(&self, claim: &Claim) -> Option<&Claimant> {
        let entries = self.places.get(&claim.place)?;
        // Sorted: every route of a cluster may want one place.
        let at = entries
            .binary_search_by(|entry| entry.claimant.cmp(&claim.claimant))
            .ok()?;
        entries.get(at)?.lost_to.as_deref()
    }

    /// How many places are claimed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}
