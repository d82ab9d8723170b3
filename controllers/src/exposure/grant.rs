//! Whether an object may refer to one in another namespace: GarageReferenceGrant, read fail-closed.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use routewright_crds::{GarageReferenceGrant, GrantFrom, GrantTo};

use super::lookup::Unseen;

/// Kinds that an empty `spec.to` covers. A GarageKey must always be listed.
const COVERED_BY_EMPTY_TO: [&str; 2] = ["GarageCluster", "GarageBucket"];

/// A reference from one object to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Kind of the referring object.
    pub from_kind: &'a str,
    /// Namespace of the referring object.
    pub from_namespace: &'a str,
    /// Kind of the target.
    pub to_kind: &'a str,
    /// Namespace of the target.
    pub to_namespace: &'a str,
    /// Name of the target.
    pub to_name: &'a str,
}

/// No grant permits a reference. The message names the grant to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    from_kind: String,
    from_namespace: String,
    to_kind: String,
    to_namespace: String,
    to_name: String,
    /// A grant selects namespaces by label, and the labels were not known.
    labels_unknown: bool,
    /// Why some grants of the target's namespace cannot be seen, if so.
    unseen: Option<Unseen>,
}

impl Denied {
    /// The same, told that some grants there cannot be seen.
    #[must_use]
    pub fn where_unseen(mut self: Box<Self>, unseen: Option<Unseen>) -> Box<Self> {
        self.unseen = unseen;
        self
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from_kind,
            from_namespace,
            to_kind,
            to_namespace,
            to_name,
            labels_unknown,
            unseen,
        } = self;
        write!(
            f,
            "{from_kind}s of namespace {from_namespace} may not use {to_kind} {to_namespace}/{to_name}: create a \
             GarageReferenceGrant in namespace {to_namespace} with spec.from \
             [{{kind: {from_kind}, namespace: {from_namespace}}}] and spec.to [{{kind: {to_kind}, name: {to_name}}}]"
        )?;
        if *labels_unknown {
            write!(
                f,
                " (a grant there selects namespaces by label, but the labels of namespace {from_namespace} are not known: it \
                 was not found, or this installation may not read namespaces; name it in the grant)"
            )?;
        }
        if let Some(unseen) = unseen {
            write!(
                f,
                " (there may be one: GarageReferenceGrants of namespace {to_namespace}: {unseen})"
            )?;
        }
        Ok(())
    }
}

/// Whether `reference` is permitted.
///
/// Within one namespace always. Otherwise some grant in the target's namespace must list the source, by the name of its
/// namespace or by its labels, and cover the target. `namespace_labels` are the labels of the source's namespace;
/// `None`: it was not found, and no selector matches it. Grants of other namespaces are ignored.
pub fn check<'a>(
    reference: Reference<'_>,
    grants: impl IntoIterator<Item = &'a GarageReferenceGrant>,
    namespace_labels: Option<&BTreeMap<String, String>>,
) -> Result<(), Box<Denied>> {
    if reference.from_namespace == reference.to_namespace {
        return Ok(());
    }
    let mut labels_unknown = false;
    for from in relevant(reference, grants) {
        match (&from.namespace, &from.namespace_selector) {
            (Some(namespace), None) if namespace == reference.from_namespace => return Ok(()),
            (None, Some(selector)) => match namespace_labels {
                Some(labels) if selects(selector, labels) => return Ok(()),
                Some(_) => {}
                None => labels_unknown = true,
            },
            // Both, neither, or another namespace.
            _ => {}
        }
    }
    Err(Box::new(Denied {
        from_kind: reference.from_kind.to_owned(),
        from_namespace: reference.from_namespace.to_owned(),
        to_kind: reference.to_kind.to_owned(),
        to_namespace: reference.to_namespace.to_owned(),
        to_name: reference.to_name.to_owned(),
        labels_unknown,
        unseen: None,
    }))
}

/// Whether the answer of [`check`] depends on the labels of the source's namespace: a grant for it selects by label and
/// none names it. Namespaces need to be watched only then.
pub fn depends_on_labels<'a>(
    reference: Reference<'_>,
    grants: impl IntoIterator<Item = &'a GarageReferenceGrant>,
) -> bool {
    if reference.from_namespace == reference.to_namespace {
        return false;
    }
    let mut by_label = false;
    for from in relevant(reference, grants) {
        match (&from.namespace, &from.namespace_selector) {
            (Some(namespace), None) if namespace == reference.from_namespace => return false,
            (None, Some(_)) => by_label = true,
            _ => {}
        }
    }
    by_label
}

/// Whether a grant selects namespaces by label, so that these have to be watched.
pub fn has_selector(grant: &GarageReferenceGrant) -> bool {
    grant
        .spec
        .from
        .iter()
        .any(|from| from.namespace_selector.is_some())
}

/// Sources of the right kind in grants that cover the target.
fn relevant<'a>(
    reference: Reference<'_>,
    grants: impl IntoIterator<Item = &'a GarageReferenceGrant>,
) -> impl Iterator<Item = &'a GrantFrom> {
    grants
        .into_iter()
        .filter(move |grant| {
            grant.metadata.namespace.as_deref() == Some(reference.to_namespace)
                && covers(grant.spec.to.as_deref().unwrap_or_default(), reference)
        })
        .flat_map(|grant| &grant.spec.from)
        .filter(move |from| from.kind == reference.from_kind)
}

fn covers(to: &[GrantTo], reference: Reference<'_>) -> bool {
    if to.is_empty() {
        return COVERED_BY_EMPTY_TO.contains(&reference.to_kind);
    }
    to.iter().any(|to| {
        to.kind == reference.to_kind
            && to
                .name
                .as_deref()
                .is_none_or(|name| name.is_empty() || name == reference.to_name)
    })
}

/// A selector that Kubernetes would call invalid selects nothing; an empty one selects everything.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let valid = selector.match_expressions.iter().flatten().all(|requirement| {
        let values = requirement.values.as_deref().unwrap_or_default();
        match requirement.operator.as_str() {
            "In" | "NotIn" => !values.is_empty(),
            _ => values.is_empty(),
        }
    });
    valid && Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn grant(namespace: &str, spec: Value) -> GarageReferenceGrant {
        serde_json::from_value(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1",
            "kind": "GarageReferenceGrant",
            "metadata": { "name": "g", "namespace": namespace },
            "spec": spec,
        }))
        .unwrap()
    }

    const REFERENCE: Reference<'static> = Reference {
        from_kind: "GarageBucket",
        from_namespace: "sites",
        to_kind: "GarageCluster",
        to_namespace: "storage",
        to_name: "garage",
    };

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn allowed(spec: Value) -> bool {
        allowed_with(spec, Some(&labels(&[("team", "web")])))
    }

    fn allowed_with(spec: Value, namespace_labels: Option<&BTreeMap<String, String>>) -> bool {
        check(REFERENCE, &[grant("storage", spec)], namespace_labels).is_ok()
    }

    #[test]
    fn the_same_namespace_needs_no_grant() {
        let reference = Reference {
            to_namespace: "sites",
            ..REFERENCE
        };
        assert_eq!(check(reference, &[], None), Ok(()));
        assert!(!depends_on_labels(reference, &[]));
    }

    #[test]
    fn another_namespace_needs_a_grant_there() {
        let spec = json!({ "from": [{ "kind": "GarageBucket", "namespace": "sites" }] });
        assert!(allowed(spec.clone()));
        let denied = check(
            REFERENCE,
            &[grant("sites", spec.clone()), grant("other", spec)],
            None,
        )
        .unwrap_err();
        assert_eq!(
            denied.to_string(),
            "GarageBuckets of namespace sites may not use GarageCluster storage/garage: create a \
             GarageReferenceGrant in namespace storage with spec.from [{kind: GarageBucket, namespace: sites}] and \
             spec.to [{kind: GarageCluster, name: garage}]"
        );
    }

    #[test]
    fn kind_and_namespace_of_the_source_must_match() {
        assert!(!allowed(
            json!({ "from": [{ "kind": "GarageKey", "namespace": "sites" }] })
        ));
        assert!(!allowed(
            json!({ "from": [{ "kind": "GarageBucket", "namespace": "site" }] })
        ));
        assert!(!allowed(json!({ "from": [] })));
        assert!(allowed(json!({ "from": [
            { "kind": "GarageKey", "namespace": "other" }, { "kind": "GarageBucket", "namespace": "sites" },
        ] })));
    }

    #[test]
    fn the_target_must_be_covered() {
        let to = |to: Value| json!({ "from": [{ "kind": "GarageBucket", "namespace": "sites" }], "to": to });
        assert!(allowed(to(json!([]))));
        assert!(allowed(to(json!([{ "kind": "GarageCluster" }]))));
        assert!(allowed(to(json!([{ "kind": "GarageCluster", "name": "" }]))));
        assert!(allowed(to(
            json!([{ "kind": "GarageCluster", "name": "x" }, { "kind": "GarageCluster", "name": "garage" }])
        )));
        assert!(!allowed(to(
            json!([{ "kind": "GarageCluster", "name": "other" }])
        )));
        assert!(!allowed(to(
            json!([{ "kind": "GarageBucket", "name": "garage" }])
        )));
    }

    #[test]
    fn an_empty_list_of_targets_covers_clusters_and_buckets_but_no_keys() {
        let all = [grant(
            "storage",
            json!({ "from": [{ "kind": "GarageBucket", "namespace": "sites" }] }),
        )];
        let to = |to_kind| Reference { to_kind, ..REFERENCE };
        assert!(check(to("GarageCluster"), &all, None).is_ok());
        assert!(check(to("GarageBucket"), &all, None).is_ok());
        assert!(check(to("GarageKey"), &all, None).is_err());
    }

    #[test]
    fn selectors_match_the_labels_of_the_namespace() {
        let by =
            |selector: Value| json!({ "from": [{ "kind": "GarageBucket", "namespaceSelector": selector }] });
        let expression = |key: &str, operator: &str, values: Value| {
            by(json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }))
        };
        assert!(
            allowed(by(json!({}))),
            "an empty selector selects every namespace"
        );
        assert!(allowed(by(json!({ "matchLabels": { "team": "web" } }))));
        assert!(!allowed(by(json!({ "matchLabels": { "team": "data" } }))));
        assert!(!allowed(by(
            json!({ "matchLabels": { "team": "web", "env": "prod" } })
        )));
        assert!(allowed(expression("team", "In", json!(["data", "web"]))));
        assert!(!allowed(expression("team", "NotIn", json!(["data", "web"]))));
        assert!(allowed(expression("env", "NotIn", json!(["prod"]))));
        assert!(allowed(expression("team", "Exists", json!([]))));
        assert!(allowed(expression("env", "DoesNotExist", json!([]))));
        assert!(!allowed(expression("team", "DoesNotExist", json!([]))));
    }

    #[test]
    fn what_cannot_be_understood_permits_nothing() {
        let from = |from: Value| json!({ "from": [from] });
        assert!(!allowed(from(json!({ "kind": "GarageBucket" }))), "neither");
        assert!(
            !allowed(from(
                json!({ "kind": "GarageBucket", "namespace": "sites", "namespaceSelector": {} })
            )),
            "both"
        );
        for bad in [
            json!({ "key": "team", "operator": "NotIn", "values": [] }),
            json!({ "key": "env", "operator": "NotIn" }),
            json!({ "key": "team", "operator": "Exists", "values": ["web"] }),
            json!({ "key": "team", "operator": "Like", "values": [] }),
        ] {
            let selector = json!({ "matchExpressions": [bad] });
            assert!(
                !allowed(from(
                    json!({ "kind": "GarageBucket", "namespaceSelector": selector })
                )),
                "{selector}"
            );
        }
    }

    #[test]
    fn an_unknown_namespace_is_selected_by_nothing_and_the_message_says_so() {
        let by_label = [grant(
            "storage",
            json!({ "from": [{ "kind": "GarageBucket", "namespaceSelector": {} }] }),
        )];
        let denied = check(REFERENCE, &by_label, None).unwrap_err();
        assert!(
            denied
                .to_string()
                .contains("but the labels of namespace sites are not known"),
            "{denied}"
        );
    }

    #[test]
    fn labels_matter_only_while_a_selector_could_decide() {
        let named = grant(
            "storage",
            json!({ "from": [{ "kind": "GarageBucket", "namespace": "sites" }] }),
        );
        let by_label = grant(
            "storage",
            json!({ "from": [{ "kind": "GarageBucket", "namespaceSelector": {} }] }),
        );
        let for_keys = grant(
            "storage",
            json!({ "from": [{ "kind": "GarageKey", "namespaceSelector": {} }] }),
        );
        assert!(depends_on_labels(REFERENCE, [&by_label]));
        assert!(!depends_on_labels(REFERENCE, [&by_label, &named]));
        assert!(!depends_on_labels(REFERENCE, [&for_keys]));
        assert!(!depends_on_labels(REFERENCE, []));
    }
}
