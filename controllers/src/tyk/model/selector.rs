//! Label selectors on Namespaces.

use std::collections::BTreeMap;

use super::super::objects::gateway::LabelSelector;

/// Whether labels satisfy a selector. An operator that is not known satisfies nothing.
pub(super) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector
        .labels
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && selector.expressions.iter().all(|(key, operator, values)| {
            let value = labels.get(key);
            match operator.as_str() {
                "In" => value.is_some_and(|value| values.contains(value)),
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_operators() {
        let labels = BTreeMap::from([("team".to_owned(), "red".to_owned())]);
        for (key, operator, values, yes) in [
            ("team", "In", vec!["red", "blue"], true),
            ("team", "In", vec!["blue"], false),
            ("zone", "In", vec!["red"], false),
            ("team", "NotIn", vec!["blue"], true),
            ("team", "NotIn", vec!["red"], false),
            ("zone", "NotIn", vec!["red"], true),
            ("team", "Exists", vec![], true),
            ("zone", "Exists", vec![], false),
            ("zone", "DoesNotExist", vec![], true),
            ("team", "DoesNotExist", vec![], false),
            ("team", "Near", vec!["red"], false),
        ] {
            let selector = LabelSelector {
                expressions: vec![(
                    key.to_owned(),
                    operator.to_owned(),
                    values.into_iter().map(str::to_owned).collect(),
                )],
                ..LabelSelector::default()
            };
            assert_eq!(matches(&selector, &labels), yes, "{selector:?}");
        }
        assert!(matches(&LabelSelector::default(), &labels));
        let red = LabelSelector {
            labels: labels.clone(),
            ..LabelSelector::default()
        };
        assert!(matches(&red, &labels));
        assert!(!matches(&red, &BTreeMap::new()));
    }
}
