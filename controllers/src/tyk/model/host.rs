//! Hostnames: which of a listener and a route meet, and which overlap. Names are lower-case.

use std::collections::BTreeSet;

/// Whether `name` lies under the wildcard's suffix (`.b` of `*.b`), with at least one label in front.
fn under(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|front| !front.is_empty())
}

/// The more specific of two names that meet; `None` if they do not.
pub(super) fn intersect<'a>(a: &'a str, b: &'a str) -> Option<&'a str> {
    if a == b {
        return Some(a);
    }
    match (a.strip_prefix('*'), b.strip_prefix('*')) {
        (None, None) => None,
        (Some(suffix), _) if under(b.strip_prefix('*').unwrap_or(b), suffix) => Some(b),
        (_, Some(suffix)) if under(a.strip_prefix('*').unwrap_or(a), suffix) => Some(a),
        _ => None,
    }
}

/// Effective hostnames of a route on a listener (`None` in the set: any host). Empty: they do not meet.
pub(super) fn effective(listener: Option<&str>, route: &[String]) -> BTreeSet<Option<String>> {
    if route.is_empty() {
        return BTreeSet::from([listener.map(str::to_owned)]);
    }
    route
        .iter()
        .filter_map(|name| match listener {
            None => Some(Some(name.clone())),
            Some(listener) => intersect(listener, name).map(|host| Some(host.to_owned())),
        })
        .collect()
}

/// Whether a request can be for both, though they are not the same.
pub(super) fn overlap(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (None, None) => false,
        (None, _) | (_, None) => true,
        (Some(a), Some(b)) => a != b && intersect(a, b).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostnames_meet_as_gateway_api_says() {
        for (listener, route, meet) in [
            ("a.b", "a.b", Some("a.b")),
            ("a.b", "*.b", Some("a.b")),
            ("a.b", "c.b", None),
            ("*.b", "x.b", Some("x.b")),
            ("*.b", "x.y.b", Some("x.y.b")),
            ("*.b", "*.y.b", Some("*.y.b")),
            ("*.y.b", "*.b", Some("*.y.b")),
            ("*.b", "b", None),
            ("*.b", "xb", None),
            ("*.b", "*.c", None),
            ("*.b", "*.cb", None),
        ] {
            assert_eq!(intersect(listener, route), meet, "{listener} {route}");
        }
    }

    #[test]
    fn absent_names_take_the_other_sides() {
        let names = ["x.b".to_owned(), "x.c".to_owned()];
        assert_eq!(effective(None, &[]), BTreeSet::from([None]));
        assert_eq!(effective(Some("*.b"), &[]), BTreeSet::from([Some("*.b".into())]));
        assert_eq!(
            effective(None, &names),
            BTreeSet::from([Some("x.b".into()), Some("x.c".into())])
        );
        assert_eq!(
            effective(Some("*.b"), &names),
            BTreeSet::from([Some("x.b".into())])
        );
    }

    fn name() -> impl Strategy<Value = String> {
        proptest::collection::vec("[abc]", 1..4)
            .prop_flat_map(|labels| any::<bool>().prop_map(move |wild| (labels.clone(), wild)))
            .prop_map(|(labels, wild)| {
                if wild {
                    format!("*.{}", labels.join("."))
                } else {
                    labels.join(".")
                }
            })
    }

    /// What a name stands for, asked of one host.
    fn covers(name: &str, host: &str) -> bool {
        name == host
            || name
                .strip_prefix('*')
                .is_some_and(|suffix| host.ends_with(suffix) && host.len() > suffix.len())
    }

    proptest! {
        #[test]
        fn the_intersection_covers_exactly_what_both_cover(
            a in name(), b in name(), host in proptest::collection::vec("[abc]", 1..5)
        ) {
            let host = host.join(".");
            let both = covers(&a, &host) && covers(&b, &host);
            let met = intersect(&a, &b);
            prop_assert_eq!(met, intersect(&b, &a));
            prop_assert_eq!(met.is_some_and(|met| covers(met, &host)), both);
        }
    }
}
