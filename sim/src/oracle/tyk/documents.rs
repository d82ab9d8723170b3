//! Documents in Tyk: exactly one for every place that a route serves, with its backends and methods, and no other with
//! our owner key.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::{
        Judgement,
        snapshot::{GATEWAY, World, at, list, map, text, texts},
    },
    Installation, Tri,
    backends::{self, Shares, UNRESOLVED},
    claims::{Claims, Held, Outcome, Place, held},
    definitions::Attached,
    platform::{ClassState, Platform},
    routes::{Apis, Route},
    rules::Rewrite,
};

/// What shares may differ by: Tyk's weights are small integers.
const TOLERANCE: f64 = 0.0025;

/// Compares what Tyk holds with what the routes want.
pub(super) fn judge_documents(
    world: &World<'_>,
    installation: &Installation<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    claims: &Claims,
    judgement: &mut Judgement,
) {
    let held = held(world, installation);
    for (index, route) in routes.iter().enumerate() {
        for place in claims.places(index) {
            judge_place(
                world,
                installation,
                platform,
                (route, place),
                (claims, index),
                &held,
                judgement,
            );
        }
    }
    for document in &held {
        judge_reason(world, platform, routes, claims, document, judgement);
    }
    judge_once(&held, judgement);
}

fn is_of(held: &Held<'_>, route: &Route<'_>) -> bool {
    held.owner
        .as_ref()
        .is_some_and(|owner| owner.namespace == route.object.namespace() && owner.name == route.object.name())
}

/// Whether a document is that of a place. A Dashboard's also has the tags of the Gateway.
fn is_at(platform: &Platform<'_>, held: &Held<'_>, place: &Place) -> bool {
    let gateway = &platform.gateways[place.gateway];
    let Some(connection) = &gateway.connection else {
        return false;
    };
    let tags: BTreeSet<String> = texts(held.document, "/x-tyk-api-gateway/server/gatewayTags/tags")
        .into_iter()
        .collect();
    held.url == connection.url
        && held.host == place.host
        && held.path == place.path
        && (connection.is_open_source || tags == gateway.tags)
}

/// A place that is served has its document, and the document says what the route says.
fn judge_place(
    world: &World<'_>,
    installation: &Installation<'_>,
    platform: &Platform<'_>,
    (route, place): (&Route<'_>, &Place),
    (claims, index): (&Claims, usize),
    held: &[Held<'_>],
    judgement: &mut Judgement,
) {
    let gateway = &platform.gateways[place.gateway];
    let Some(connection) = &gateway.connection else {
        return;
    };
    if !claims.answers(&connection.url) {
        return judgement.skip("tyk: Tyk does not answer");
    }
    let parents = || {
        route
            .parents
            .iter()
            .enumerate()
            .filter(|(_, p)| p.gateway == place.gateway)
    };
    if parents().any(|(number, _)| claims.is_crowded(index, number)) {
        return judgement.skip("tyk: a document of another owner is in the way");
    }
    let mut found = held
        .iter()
        .filter(|held| is_of(held, route) && is_at(platform, held, place));
    let shown = format!(
        "host {:?}, path {} at {}",
        place.host.as_deref().unwrap_or("any"),
        place.path,
        connection.url
    );
    let Some(found) = found.next() else {
        return judgement.check("tyk.document", route.object, false, shown, "none");
    };
    judgement.check("tyk.document", route.object, true, &shown, "");
    let attached = parents().any(|(_, parent)| parent.definition != Attached::None);
    judge_frame(route, found, &shown, judgement);
    judge_upstream(world, installation, (route, place), found, &shown, judgement);
    if attached {
        judgement.skip("tyk: methods of a document with a definition");
    } else {
        judge_methods(route, place, found, &shown, judgement);
    }
}

/// Identity, owner, strip, state, Host header.
fn judge_frame(route: &Route<'_>, held: &Held<'_>, shown: &str, judgement: &mut Judgement) {
    let extension = at(held.document, "/x-tyk-api-gateway");
    let id = text(extension, "/info/id").unwrap_or_default();
    let hex = id.strip_prefix("gwapi-").unwrap_or_default();
    let good_id = hex.len() == 20
        && hex
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    let uid = held
        .owner
        .as_ref()
        .map(|owner| owner.uid.as_str())
        .unwrap_or_default();
    for (what, fits, found) in [
        ("an id of 20 hexadecimal digits", good_id, id.to_owned()),
        (
            "title and name are the id",
            text(held.document, "/info/title") == Some(id) && text(extension, "/info/name") == Some(id),
            at(held.document, "/info").to_string(),
        ),
        ("the uid of the route", uid == route.object.uid(), uid.to_owned()),
        (
            "a hash",
            text(held.document, "/x-routewright-hash").is_some(),
            "none".to_owned(),
        ),
        (
            "active",
            at(extension, "/info/state/active") == &Value::Bool(true),
            at(extension, "/info/state").to_string(),
        ),
        (
            "strip",
            at(extension, "/server/listenPath/strip") == &Value::Bool(true),
            at(extension, "/server/listenPath").to_string(),
        ),
        (
            "the Host header preserved",
            at(extension, "/upstream/preserveHostHeader/enabled") == &Value::Bool(true),
            at(extension, "/upstream/preserveHostHeader").to_string(),
        ),
    ] {
        judgement.check(
            "tyk.document.frame",
            route.object,
            fits,
            format!("{shown}: {what}"),
            found,
        );
    }
}

/// Backends with their shares, each with the path that is put back in front.
fn judge_upstream(
    world: &World<'_>,
    installation: &Installation<'_>,
    (route, place): (&Route<'_>, &Place),
    held: &Held<'_>,
    shown: &str,
    judgement: &mut Judgement,
) {
    let rules: Vec<_> = route
        .rules
        .kept
        .iter()
        .filter(|rule| rule.paths.contains_key(&place.path))
        .collect();
    let Some(first) = rules.first() else { return };
    let (shares, sure) = backends::shares(world, installation, route.object, first.backends);
    if sure != Tri::Yes {
        return judgement.skip("tyk: a backend that the oracle does not know");
    }
    let prefix = rules.iter().find_map(|rule| match &rule.rewrite {
        Rewrite::Prefix(prefix) => Some(prefix.clone()),
        _ => None,
    });
    let full = rules.iter().any(|rule| rule.rewrite == Rewrite::Full);
    let path = match (full, prefix) {
        (true, _) => String::new(),
        (false, Some(prefix)) => prefix,
        (false, None) => place.path.clone(),
    };
    let expected = with_path(&shares, &path);
    let found = upstream(held.document);
    let fits = expected.len() == found.len()
        && expected.iter().all(|(url, share)| {
            let found = found.get(url);
            found.is_some_and(|found| (found - share).abs() < TOLERANCE)
        });
    judgement.check(
        "tyk.document.upstream",
        route.object,
        fits,
        format!("{shown}: {expected:?}"),
        format!("{found:?}"),
    );
}

fn with_path(shares: &Shares, path: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for (authority, share) in shares {
        let url = match authority {
            Some(authority) => format!("http://{authority}{}", path.trim_end_matches('/')),
            None => UNRESOLVED.to_owned(),
        };
        *all.entry(url).or_default() += share;
    }
    all
}

/// URLs of a document and their shares.
fn upstream(document: &Value) -> BTreeMap<String, f64> {
    let upstream = at(document, "/x-tyk-api-gateway/upstream");
    let balancing = at(upstream, "/loadBalancing");
    let normal = |url: &str| url.trim_end_matches('/').to_owned();
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    if at(balancing, "/enabled") == &Value::Bool(true) {
        for target in list(balancing, "/targets") {
            let weight = at(target, "/weight").as_f64().unwrap_or_default();
            *all.entry(normal(text(target, "/url").unwrap_or_default()))
                .or_default() += weight;
        }
    }
    if all.is_empty() {
        all.insert(normal(text(upstream, "/url").unwrap_or_default()), 1.0);
    }
    let sum: f64 = all.values().sum();
    all.values_mut().for_each(|weight| *weight /= sum);
    all
}

/// Methods that no rule matches answer 404: an allow list of the others, or none if every method is matched.
fn judge_methods(route: &Route<'_>, place: &Place, held: &Held<'_>, shown: &str, judgement: &mut Judgement) {
    let expected = route.rules.paths().remove(&place.path).flatten();
    let found = allowed(held.document);
    // Lenient: with each of the eight methods matched a list may be there or not.
    let all = expected.as_ref().is_some_and(|methods| methods.len() == 8);
    let fits = expected == found || (all && found.is_none());
    judgement.check(
        "tyk.document.methods",
        route.object,
        fits,
        format!("{shown}: {expected:?}"),
        format!("{found:?}"),
    );
}

/// The methods of the allow list; `None` without one.
fn allowed(document: &Value) -> Option<BTreeSet<String>> {
    let mut methods = BTreeSet::new();
    for operations in map(document, "/paths").values() {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let id = text(operation, "/operationId").unwrap_or_default();
            let middleware = at(document, "/x-tyk-api-gateway/middleware/operations");
            let allow = middleware.get(id).unwrap_or(&Value::Null);
            if at(allow, "/allow/enabled") == &Value::Bool(true) {
                methods.insert(method.to_ascii_uppercase());
            }
        }
    }
    (!methods.is_empty()).then_some(methods)
}

/// Every document with our owner key is wanted by its route, or stays as last written.
fn judge_reason(
    world: &World<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    claims: &Claims,
    held: &Held<'_>,
    judgement: &mut Judgement,
) {
    let Some(owner) = &held.owner else { return };
    let connected = platform.classes.iter().any(|class| match &class.state {
        ClassState::Connected(_, connection) => connection.url == held.url,
        _ => false,
    });
    if !connected {
        return judgement.skip("tyk: a document at a Tyk that no class leads to");
    }
    let shown = format!(
        "document at host {:?}, path {} of {}",
        held.host, held.path, held.url
    );
    let name = format!("HTTPRoute {}/{}", owner.namespace, owner.name);
    let Some(object) = world.get(GATEWAY, "HTTPRoute", &owner.namespace, &owner.name) else {
        return judgement.check(
            "tyk.orphan",
            shown,
            false,
            format!("no document of {name}, which is gone"),
            "it",
        );
    };
    if object.is_deleting() {
        return judgement.skip("tyk: a document of a route that is being deleted");
    }
    let Some(index) = routes.iter().position(|route| is_of(held, route)) else {
        return judgement.check(
            "tyk.leftover",
            shown,
            false,
            format!("none: {name} has no parent of this installation"),
            "it",
        );
    };
    let route = &routes[index];
    let at_place = |place: &&Place| is_at(platform, held, place);
    let wanted = claims.places(index).iter().any(at_place) || may_have(platform, claims, index, route, held);
    judgement.check(
        "tyk.leftover",
        shown,
        wanted,
        format!("nothing that {name} does not want"),
        "it",
    );
}

/// Lenient: documents of open places, and those that stay as last written.
fn may_have(
    platform: &Platform<'_>,
    claims: &Claims,
    index: usize,
    route: &Route<'_>,
    held: &Held<'_>,
) -> bool {
    let paths = route.paths();
    route.parents.iter().any(|parent| {
        let open = parent.open.is_some();
        if open && (parent.yields.is_empty() || route.rules.open.is_some()) {
            return true;
        }
        parent
            .yields
            .iter()
            .filter(|one| one.host == held.host)
            .any(|one| {
                let place = Place {
                    gateway: parent.gateway,
                    host: one.host.clone(),
                    path: held.path.clone(),
                };
                let outcome = claims.outcome(index, &place);
                let stays = matches!(parent.apis, Apis::Stay | Apis::Open) || open;
                let lost = matches!(outcome, Some(Outcome::Lost(_)));
                let at_place =
                    is_at(platform, held, &place) || platform.gateways[parent.gateway].connection.is_none();
                paths.contains(&held.path)
                    && at_place
                    && (outcome == Some(&Outcome::Open) || (stays && !lost && one.valid != Tri::No))
            })
    })
}

/// No two documents of one route for one place. The tags tell Gateways of a Dashboard apart.
fn judge_once(held: &[Held<'_>], judgement: &mut Judgement) {
    let mut seen = BTreeSet::new();
    for one in held {
        let Some(owner) = &one.owner else { continue };
        let tags = texts(one.document, "/x-tyk-api-gateway/server/gatewayTags/tags");
        let key = (
            one.url.clone(),
            owner.clone(),
            one.host.clone(),
            one.path.clone(),
            tags,
        );
        let first = seen.insert(key);
        let name = format!("HTTPRoute {}/{}", owner.namespace, owner.name);
        judgement.check(
            "tyk.once",
            name,
            first,
            "one document for a place",
            format!("path {}", one.path),
        );
    }
}
