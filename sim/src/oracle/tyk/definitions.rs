//! TykOasApiDefinitions: which one is attached to a route, whether it is valid, and what it says.

use serde_json::Value;

use super::{
    super::{
        Judgement,
        snapshot::{GATEWAY, Object, TYK, World, at, list, text},
    },
    Installation,
    platform::{ClassState, Platform, judge_condition},
    routes::Route,
};

/// Settings that come from the route.
const OWNED: [&str; 8] = [
    "/info/id",
    "/info/dbId",
    "/server/listenPath",
    "/server/customDomain",
    "/server/gatewayTags",
    "/upstream/url",
    "/upstream/loadBalancing",
    "/upstream/preserveHostHeader",
];

/// The document that is attached to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attached {
    None,
    Good,
    Invalid,
    Unresolved,
    /// The oracle does not know.
    Open,
}

/// The route's own definition, else that of its Gateway.
pub(super) fn of_route(
    world: &World<'_>,
    installation: &Installation<'_>,
    route: Object<'_>,
    gateway: Object<'_>,
) -> Attached {
    let own = oldest(world, "HTTPRoute", route);
    match own.or_else(|| oldest(world, "Gateway", gateway)) {
        None => Attached::None,
        Some(_) if !installation.tyk.definitions => Attached::Open,
        Some(definition) => document(world, definition),
    }
}

/// Of the definitions with one target the oldest counts, then by name, also if it is not valid.
fn oldest<'a>(world: &World<'a>, kind: &str, target: Object<'_>) -> Option<Object<'a>> {
    let aims = |definition: &Object<'a>| {
        definition.namespace() == target.namespace()
            && list(definition.spec(), "/targetRefs").iter().any(|reference| {
                text(reference, "/group") == Some(GATEWAY)
                    && text(reference, "/kind") == Some(kind)
                    && text(reference, "/name") == Some(target.name())
            })
    };
    let all = world.all(TYK, "TykOasApiDefinition");
    all.into_iter()
        .filter(aims)
        .min_by_key(|definition| (definition.created(), definition.name()))
}

/// The document of a definition: ConfigMap, key, extension, nothing that the route sets.
fn document(world: &World<'_>, definition: Object<'_>) -> Attached {
    let known = ["tykOAS", "targetRefs"];
    let odd =
        |fields: &serde_json::Map<String, Value>| fields.keys().any(|key| !known.contains(&key.as_str()));
    if definition.is_deleting() || definition.spec().as_object().is_some_and(odd) {
        return Attached::Open;
    }
    let reference = at(definition.spec(), "/tykOAS/configmapRef");
    let (Some(name), Some(key)) = (text(reference, "/name"), text(reference, "/keyName")) else {
        return Attached::Invalid;
    };
    if text(reference, "/namespace").is_some_and(|namespace| namespace != definition.namespace()) {
        return Attached::Invalid;
    }
    let Some(map) = world.get("", "ConfigMap", definition.namespace(), name) else {
        return Attached::Unresolved;
    };
    let content = at(map.0, "/data").get(key).and_then(Value::as_str);
    let Some(content) = content else {
        return match at(map.0, "/binaryData").get(key) {
            Some(_) => Attached::Open,
            None => Attached::Invalid,
        };
    };
    match serde_json::from_str::<Value>(content) {
        Ok(document) if document.is_object() => judge_document(&document),
        Ok(_) => Attached::Invalid,
        // It may be YAML.
        Err(_) => Attached::Open,
    }
}

fn judge_document(document: &Value) -> Attached {
    let extension = at(document, "/x-tyk-api-gateway");
    if !extension.is_object() || OWNED.iter().any(|owned| extension.pointer(owned).is_some()) {
        return Attached::Invalid;
    }
    let plain = [
        "openapi",
        "info",
        "paths",
        "x-tyk-api-gateway",
        "components",
        "security",
    ];
    let known = document
        .as_object()
        .is_some_and(|all| all.keys().all(|key| plain.contains(&key.as_str())));
    let settings = ["info", "server", "upstream"];
    let settings = extension
        .as_object()
        .is_some_and(|all| all.keys().all(|key| settings.contains(&key.as_str())));
    let tokens = document.to_string();
    let empty_paths = at(document, "/paths")
        .as_object()
        .is_some_and(serde_json::Map::is_empty);
    match known && settings && empty_paths && !tokens.contains('$') && !tokens.contains("://") {
        true => Attached::Good,
        // Operations, middleware and odd keys may collide with the route or be refused.
        false => Attached::Open,
    }
}

/// The condition Accepted of definitions with one target.
pub(super) fn judge(
    world: &World<'_>,
    installation: &Installation<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    judgement: &mut Judgement,
) {
    if !installation.tyk.definitions {
        return;
    }
    for definition in world.all(TYK, "TykOasApiDefinition") {
        let targets = list(definition.spec(), "/targetRefs");
        let owner = ["f:status", "f:conditions", "k:{\"type\":\"Accepted\"}"];
        let foreign = definition
            .managers_of(&owner)
            .iter()
            .any(|manager| !manager.starts_with("routewright-"));
        match targets.as_slice() {
            // Those without targets are another operator's.
            [] => {}
            _ if definition.is_deleting() => judgement.skip("tyk: the definition is being deleted"),
            _ if foreign => judgement.skip("tyk: another manager owns the definition's condition"),
            [target] => judge_definition(world, platform, routes, (definition, target), judgement),
            // Lenient: which of several targets the condition describes is left open.
            _ => judgement.skip("tyk: a definition with several targets"),
        }
    }
}

fn judge_definition(
    world: &World<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    (definition, target): (Object<'_>, &Value),
    judgement: &mut Judgement,
) {
    let kind = text(target, "/kind").unwrap_or_default();
    let name = text(target, "/name").unwrap_or_default();
    let mut reasons: Vec<&'static str> = Vec::new();
    if text(target, "/group") != Some(GATEWAY) || !["HTTPRoute", "Gateway"].contains(&kind) {
        reasons.push("UnsupportedTarget");
    }
    let attaches = attaches(world, platform, routes, definition.namespace(), (kind, name));
    if reasons.is_empty() {
        match attaches {
            super::Tri::Yes => {}
            super::Tri::No => reasons.push("NotAttached"),
            super::Tri::Maybe => return judgement.skip("tyk: a definition whose target may be ours"),
        }
        let object = world.get(GATEWAY, kind, definition.namespace(), name);
        let winner = object.and_then(|object| oldest(world, kind, object));
        if winner.is_some_and(|winner| winner.name() != definition.name()) {
            reasons.push("AttachmentConflict");
        }
    }
    match document(world, definition) {
        Attached::Open => return judgement.skip("tyk: a definition that the oracle does not know"),
        Attached::Invalid => reasons.push("DocumentInvalid"),
        Attached::Unresolved => reasons.push("BaseDocumentUnresolved"),
        Attached::None | Attached::Good => {}
    }
    if reasons.is_empty() {
        reasons.push("+Attached");
    }
    judge_condition(
        "tyk.definition",
        definition,
        (definition.status(), "Accepted"),
        &reasons,
        judgement,
    );
}

/// Whether the target is served by this operator.
fn attaches(
    world: &World<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    namespace: &str,
    (kind, name): (&str, &str),
) -> super::Tri {
    let Some(object) = world.get(GATEWAY, kind, namespace, name) else {
        return super::Tri::No;
    };
    if object.is_deleting() {
        return super::Tri::Maybe;
    }
    let led = |gateway: usize| {
        let gateway = &platform.gateways[gateway];
        let state = &platform.classes[gateway.class].state;
        matches!(state, ClassState::Connected(..)) && gateway.open.is_none()
    };
    match kind {
        "Gateway" => match platform.find(namespace, name) {
            None => super::Tri::No,
            Some(gateway) if led(gateway) => super::Tri::Yes,
            Some(_) => super::Tri::Maybe,
        },
        _ => match routes.iter().find(|route| route.object.uid() == object.uid()) {
            None => super::Tri::No,
            // Lenient: whether a definition applies to a route that is refused is left open.
            Some(route) => {
                let fine = route.parents.iter().any(|parent| {
                    led(parent.gateway)
                        && parent.open.is_none()
                        && ["Accepted", "BaseDocumentInvalid", "BaseDocumentUnresolved"]
                            .iter()
                            .any(|reason| parent.accepted == [*reason])
                });
                if fine { super::Tri::Yes } else { super::Tri::Maybe }
            }
        },
    }
}
