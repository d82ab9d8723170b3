//! TykOasApiDefinition: its document, which definition counts for a target, and the answer for each definition.

use std::sync::Arc;

use reconcile_kit::{Condition, ConditionStatus};

use super::{
    super::{
        objects::{Key, Kind, TykOasApiDefinition},
        translate,
        verdict::{BaseDocument, DefinitionVerdict},
    },
    graph::Target,
    store, text,
    view::View,
};

/// Why a definition gives no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its ConfigMap is not there.
    Unresolved(String),
    /// It is there and wrong.
    Invalid(String),
}

/// The definition that counts for a target: the oldest, whether or not it is valid. A younger one in its place would
/// change how the API is protected, because someone made a mistake.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attached {
    pub(super) definition: Key,
    pub(super) document: Result<Arc<BaseDocument>, Fault>,
}

/// Which definition counts for a target.
pub(super) fn attached(view: &View<'_>, target: Target, key: &Key) -> Option<Attached> {
    let definition = view.definitions_of(target, key).into_iter().next()?;
    Some(Attached {
        definition: definition.meta.key.clone(),
        document: document(view, definition),
    })
}

fn document(view: &View<'_>, definition: &TykOasApiDefinition) -> Result<Arc<BaseDocument>, Fault> {
    let own = &definition.meta.key;
    if !definition.problems.is_empty() {
        let problems = text::list(definition.problems.iter().map(ToString::to_string));
        return Err(Fault::Invalid(problems));
    }
    if !definition.route_owned.is_empty() {
        return Err(Fault::Invalid(format!(
            "{}: comes from the route; remove it",
            text::list(definition.route_owned.iter().cloned())
        )));
    }
    let invalid = |why: &str| Fault::Invalid(why.to_owned());
    let reference = definition
        .config_map
        .as_ref()
        .ok_or_else(|| invalid("spec.tykOAS.configmapRef: missing"))?;
    let key = reference
        .key
        .as_ref()
        .filter(|key| !key.is_empty())
        .ok_or_else(|| invalid("spec.tykOAS.configmapRef.keyName: missing"))?;
    if reference.namespace.as_ref().is_some_and(|n| *n != own.namespace) {
        return Err(invalid(
            "spec.tykOAS.configmapRef.namespace: an attached definition reads ConfigMaps of its own namespace only",
        ));
    }
    let name = Key::new(&own.namespace, &reference.name);
    let config_map = view.config_map(&name).ok_or_else(|| {
        let why = view.absence(Kind::ConfigMap, &name);
        Fault::Unresolved(format!("spec.tykOAS.configmapRef: ConfigMap {name} {why}"))
    })?;
    let document = match config_map.documents.get(key) {
        None => {
            return Err(Fault::Invalid(format!(
                "spec.tykOAS.configmapRef.keyName: ConfigMap {name} has no key {key}"
            )));
        }
        Some(Err(why)) => return Err(Fault::Invalid(format!("ConfigMap {name}, key {key}: {why}"))),
        Some(Ok(document)) => document,
    };
    translate::base::check(&document.value())
        .map_err(|faults| Fault::Invalid(format!("ConfigMap {name}, key {key}: {}", text::list(faults))))?;
    Ok(Arc::new(BaseDocument {
        definition: own.clone(),
        document: document.clone(),
    }))
}

/// Reasons, the one that is reported first when targets differ.
const SEVERITY: [&str; 6] = [
    "UnsupportedTarget",
    "DocumentInvalid",
    "BaseDocumentUnresolved",
    "NotAttached",
    "AttachmentConflict",
    "Attached",
];

/// The answer for a definition; `None` without targetRefs. Of several installations in a cluster the one speaks whose the
/// first target is that is anybody's; to the others it is as if there were no targetRefs.
pub(super) fn definition(view: &View<'_>, definition: &TykOasApiDefinition) -> Option<DefinitionVerdict> {
    if definition.targets.is_empty() {
        return None;
    }
    let own = &definition.meta.key;
    let mut ours = false;
    let mut speaks = None;
    let mut said: Vec<(&'static str, String)> = Vec::new();
    match document(view, definition) {
        Ok(_) => {}
        Err(Fault::Unresolved(why)) => said.push(("BaseDocumentUnresolved", why)),
        Err(Fault::Invalid(why)) => said.push(("DocumentInvalid", why)),
    }
    for (index, reference) in definition.targets.iter().enumerate() {
        let place = format!("spec.targetRefs[{index}]");
        let Some((target, key)) = store::target(own, reference) else {
            let why = format!(
                "{place}: kind {} of group {} is not supported; use HTTPRoute or Gateway of gateway.networking.k8s.io",
                reference.kind, reference.group
            );
            said.push(("UnsupportedTarget", why));
            continue;
        };
        let name = text::object(&reference.kind, &key);
        let (exists, is_ours) = match target {
            Target::Gateway => {
                let facts = view.gateway(&key);
                (facts.is_some() || view.gateway_exists(&key), facts.is_some())
            }
            Target::Route => (view.route_object(&key).is_some(), view.route_ours(&key)),
        };
        ours |= is_ours;
        speaks = speaks.or_else(|| speaker(view, target, &key));
        if !exists {
            said.push(("NotAttached", format!("{place}: {name} does not exist")));
        } else if !is_ours {
            let why = match target {
                Target::Gateway => "is not of a GatewayClass of this operator",
                Target::Route => "has no parent Gateway of this operator",
            };
            said.push(("NotAttached", format!("{place}: {name} {why}")));
        } else {
            match view.attached(target, &key) {
                Some(attached) if attached.definition != *own => {
                    let why = format!(
                        "{place}: {name} has TykOasApiDefinition {}, which comes first (the oldest, then by name)",
                        attached.definition
                    );
                    said.push(("AttachmentConflict", why));
                }
                _ => said.push(("Attached", format!("{place}: applies to {name}"))),
            }
        }
    }
    if speaks == Some(false) {
        return None;
    }
    let reason = SEVERITY
        .into_iter()
        .find(|reason| said.iter().any(|(r, _)| r == reason))
        .unwrap_or("NotAttached");
    // What is wrong first, then what is right; within that, in the order of the spec.
    said.sort_by_key(|(r, _)| SEVERITY.iter().position(|reason| reason == r));
    let wrong = |r: &str| r != "Attached";
    let message = text::list(
        said.iter()
            .filter(|(r, _)| !wrong(reason) || wrong(r))
            .map(|(_, message)| message.clone()),
    );
    Some(DefinitionVerdict {
        condition: Condition::new("Accepted", reason == "Attached", reason, message),
        ours,
    })
}

/// Whether a target is this installation's (`true`) or another one's (`false`); `None`: nobody's. A route of several is
/// that of its first parent's, so that each installation comes to the same.
fn speaker(view: &View<'_>, target: Target, key: &Key) -> Option<bool> {
    let of = |gateway: &Key| match view.gateway(gateway) {
        Some(_) => Some(true),
        None => view.elsewhere(gateway).then_some(false),
    };
    match target {
        Target::Gateway => of(key),
        Target::Route => view
            .route_object(key)?
            .parents
            .iter()
            .filter_map(|parent| parent.gateway(key))
            .find_map(|gateway| of(&gateway)),
    }
}

/// What a definition with targetRefs gets while Gateway API on Tyk is off, or Gateway API is not served.
pub fn unavailable(why: &str) -> Condition {
    Condition::new("Accepted", ConditionStatus::Unknown, "GatewayAPIUnavailable", why)
}
