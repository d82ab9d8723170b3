//! Shares of backends as small integers. Pure arithmetic.

use std::collections::BTreeMap;

use super::super::verdict::Target;

/// What the shares of one API add up to at most (but for the rule that none becomes 0): Tyk expands them to a list.
pub(super) const SUM: u128 = 1_000;
/// Precision when the exact common denominator would be too large.
const DENOMINATOR: u128 = 1 << 40;

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: u128, b: u128) -> Option<u128> {
    (a / gcd(a, b)).checked_mul(b).filter(|l| *l <= DENOMINATOR)
}

/// Targets of an API from its backends, each with its weight and the authorities that share it evenly (`None`: could
/// not be resolved). Sorted; equal authorities are merged; weight 0 is left out; no share is ever 0.
pub(super) fn targets(backends: &[(u32, Vec<Option<String>>)]) -> Vec<Target> {
    let live = || {
        backends
            .iter()
            .filter(|(weight, authorities)| *weight > 0 && !authorities.is_empty())
    };
    let denominator = live()
        .try_fold(1, |l, (_, authorities)| lcm(l, authorities.len() as u128))
        .unwrap_or(DENOMINATOR);
    let mut shares: BTreeMap<&Option<String>, u128> = BTreeMap::new();
    for (weight, authorities) in live() {
        let share = (u128::from(*weight) * denominator / authorities.len() as u128).max(1);
        for authority in authorities {
            *shares.entry(authority).or_default() += share;
        }
    }
    let sum: u128 = reduce(&mut shares);
    if sum > SUM {
        for share in shares.values_mut() {
            *share = ((*share * SUM + sum / 2) / sum).max(1);
        }
        reduce(&mut shares);
    }
    shares
        .into_iter()
        .map(|(authority, share)| Target {
            authority: authority.clone(),
            weight: u32::try_from(share).unwrap_or(u32::MAX),
        })
        .collect()
}

/// Divides by the common divisor; the sum after that.
fn reduce(shares: &mut BTreeMap<&Option<String>, u128>) -> u128 {
    let divisor = shares.values().fold(0, |d, share| gcd(d, *share)).max(1);
    shares.values_mut().for_each(|share| *share /= divisor);
    shares.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(backends: &[(u32, &[&str])]) -> Vec<(Option<String>, u32)> {
        let backends: Vec<_> = backends
            .iter()
            .map(|(w, names)| {
                let names = names
                    .iter()
                    .map(|n| (*n != "?").then(|| (*n).to_owned()))
                    .collect();
                (*w, names)
            })
            .collect();
        targets(&backends)
            .into_iter()
            .map(|t| (t.authority, t.weight))
            .collect()
    }

    fn some(name: &str, weight: u32) -> (Option<String>, u32) {
        (Some(name.to_owned()), weight)
    }

    #[test]
    fn weights_are_reduced_and_shares_divided() {
        assert_eq!(of(&[(70, &["a"]), (30, &["b"])]), [some("a", 7), some("b", 3)]);
        assert_eq!(of(&[(1, &["b"]), (0, &["a"])]), [some("b", 1)]);
        assert_eq!(of(&[(0, &["a"])]), []);
        // a Service of two Pods beside one of one: 1/2 is divided into 1/4 + 1/4
        assert_eq!(
            of(&[(1, &["a1", "a2"]), (1, &["b"])]),
            [some("a1", 1), some("a2", 1), some("b", 2)]
        );
        assert_eq!(of(&[(1, &["a"]), (3, &["?"])]), [(None, 3), some("a", 1)]);
        assert_eq!(
            of(&[(1_000_000, &["a"]), (1, &["b"])]),
            [some("a", 1_000), some("b", 1)]
        );
        assert_eq!(of(&[(2, &["a"]), (4, &["a"])]), [some("a", 1)]);
    }

    proptest! {
        #[test]
        fn weights_keep_every_target_and_their_proportions(
            backends in proptest::collection::vec((0..1_000_000u32, 1..20usize), 0..17)
        ) {
            let named: Vec<_> = backends.iter().enumerate()
                .map(|(i, (w, n))| (*w, (0..*n).map(|j| Some(format!("{i:02}-{j:02}"))).collect::<Vec<_>>()))
                .collect();
            let got = targets(&named);
            let live: Vec<_> = named.iter().filter(|(w, _)| *w > 0).collect();
            prop_assert_eq!(got.len(), live.iter().map(|(_, a)| a.len()).sum::<usize>());
            prop_assert!(got.iter().all(|t| t.weight >= 1));
            let sum: u128 = got.iter().map(|t| u128::from(t.weight)).sum();
            prop_assert!(sum <= SUM + 2 * got.len() as u128);
            let total: f64 = live.iter().map(|(w, _)| f64::from(*w)).sum();
            for (weight, authorities) in live {
                for authority in authorities {
                    let t = got.iter().find(|t| t.authority == *authority).unwrap();
                    let want = f64::from(*weight) / total / authorities.len() as f64;
                    #[allow(clippy::cast_precision_loss)]
                    let have = f64::from(t.weight) / sum as f64;
                    // at most one unit of the sum, and what the floor of 1 takes from the others
                    prop_assert!((want - have).abs() <= 0.0015 + got.len() as f64 * want / 1_000.0, "{want} {have}");
                }
            }
        }
    }
}
