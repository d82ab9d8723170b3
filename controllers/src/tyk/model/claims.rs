//! Claims on (Tyk, host, path): who serves where several routes, or several parents of one, want the same.
//!
//! Tyk renames an API whose host and path another API of the same data plane has, so at most one of them is written.
//! The unit that is lost is one API, never a route: a loss takes no other claim away, and there is no chain reaction.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::super::{
    objects::Key,
    verdict::{Connection, share_data_plane},
};

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
    /// The route is being deleted: it holds the place until its APIs are gone.
    pub(super) deleting: bool,
}

impl Claimant {
    /// Whether some gateway may load APIs of both: a test of pairs, not an equivalence.
    fn shares_data_plane(&self, other: &Self) -> bool {
        self.open_source || other.open_source || share_data_plane(&self.tags, &other.tags)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claimant() -> impl Strategy<Value = Claimant> {
        (
            any::<bool>(),
            proptest::collection::btree_set("[abc]", 0..3),
            0..4_usize,
        )
            .prop_map(|(open_source, tags, index)| Claimant {
                created: 0,
                route: Key::new("shop", "r"),
                index,
                gateway: Key::new("infra", "g"),
                open_source,
                tags: tags.into_iter().collect(),
                deleting: false,
            })
    }

    /// The gateways that may exist, by their tags (none: not segmented), and whether each loads an API.
    fn loads(claimant: &Claimant, gateway: &[&str]) -> bool {
        claimant.open_source
            || gateway.is_empty()
            || claimant.tags.iter().any(|tag| gateway.contains(&tag.as_str()))
    }

    proptest! {
        #[test]
        fn two_share_a_data_plane_in_both_directions_or_in_none(a in claimant(), b in claimant()) {
            prop_assert_eq!(a.shares_data_plane(&b), b.shares_data_plane(&a));
            prop_assert!(a.shares_data_plane(&a));
        }

        /// Tags on both sides that do not meet are the only way to stay apart.
        #[test]
        fn two_with_tags_share_what_some_segmented_gateway_loads(a in claimant(), b in claimant()) {
            let segmented: [&[&str]; 4] = [&["a"], &["b"], &["c"], &["a", "b", "c"]];
            let single = segmented.iter().take(3).any(|gateway| loads(&a, gateway) && loads(&b, gateway));
            let untagged = a.tags.is_empty() || b.tags.is_empty();
            prop_assert_eq!(a.shares_data_plane(&b), single || untagged || a.open_source || b.open_source);
        }

        /// Of one place: no two winners share a data plane, and each loser shares it with the winner that is named to it,
        /// which comes first.
        #[test]
        fn winners_of_a_place_share_nothing(all in proptest::collection::vec(claimant(), 0..8)) {
            let place = Arc::new(Place { site: "tyk".into(), host: None, path: "/".into() });
            let wanted: Vec<Claim> = all
                .into_iter()
                .enumerate()
                .map(|(index, claimant)| Claim {
                    place: Arc::clone(&place),
                    claimant: Arc::new(Claimant { index, ..claimant }),
                })
                .collect();
            let mut claims = Claims::default();
            claims.replace(&[], &wanted);
            claims.settle();
            let winners: Vec<&Claim> = wanted.iter().filter(|claim| claims.lost_to(claim).is_none()).collect();
            for claim in &wanted {
                let sharing = winners.iter().filter(|winner| winner.claimant.shares_data_plane(&claim.claimant));
                match claims.lost_to(claim) {
                    None => prop_assert_eq!(sharing.count(), 1),
                    Some(winner) => {
                        prop_assert!(*winner < *claim.claimant);
                        prop_assert!(winner.shares_data_plane(&claim.claimant));
                    }
                }
            }
        }
    }
}
