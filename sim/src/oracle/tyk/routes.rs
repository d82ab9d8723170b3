//! HTTPRoutes: the verdict of each parent, in the order in which the reasons are asked.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::{
        Judgement, hosts,
        snapshot::{GATEWAY, Object, World, at, condition, list, text, texts},
    },
    Installation, Tri, backends,
    claims::Claims,
    definitions::{self, Attached},
    platform::{ClassState, Gateway, Platform, allows, judge_condition},
    rules::{self, Rules},
};

/// More APIs than these and the route is refused.
const MOST_APIS: usize = 256;
const FINALIZER: &str = "routewright.dev/tyk-httproute";
const MEMORY: &str = "routewright.dev/tyk-apis";
const DEFAULT_CONTROLLER: &str = "routewright.dev/tyk";

/// A host that a listener yields for a route.
pub(super) struct Yield {
    pub(super) listener: usize,
    pub(super) host: Option<String>,
    /// Whether APIs are served through the listener.
    pub(super) valid: Tri,
}

/// What becomes of the APIs of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apis {
    Written,
    /// Stay as last written; none is made.
    Stay,
    Removed,
    Open,
}

/// A parentRef that names a Gateway of this installation.
pub(super) struct Parent<'a> {
    pub(super) reference: &'a Value,
    pub(super) gateway: usize,
    /// Reasons that `Accepted` may have.
    pub(super) accepted: Vec<&'static str>,
    pub(super) apis: Apis,
    pub(super) yields: Vec<Yield>,
    /// Why the parent cannot be judged.
    pub(super) open: Option<&'static str>,
    pub(super) definition: Attached,
}

/// A route with parents of this installation.
pub(super) struct Route<'a> {
    pub(super) object: Object<'a>,
    pub(super) rules: Rules<'a>,
    pub(super) parents: Vec<Parent<'a>>,
}

impl Route<'_> {
    /// Paths of the APIs: those of the rules that are kept, and all that are written if the rules are open.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        let mut paths: BTreeSet<String> = self.rules.paths().into_keys().collect();
        if self.rules.open.is_some() {
            paths.extend(self.rules.literal.iter().cloned());
        }
        paths
    }
}

/// Every route with such a parent that is not being deleted.
pub(super) fn verdicts<'a>(
    world: &World<'a>,
    installation: &Installation<'_>,
    platform: &Platform<'a>,
) -> Vec<Route<'a>> {
    world
        .all(GATEWAY, "HTTPRoute")
        .into_iter()
        .filter(|route| !route.is_deleting())
        .filter_map(|object| verdict(world, installation, platform, object))
        .collect()
}

fn verdict<'a>(
    world: &World<'a>,
    installation: &Installation<'_>,
    platform: &Platform<'a>,
    object: Object<'a>,
) -> Option<Route<'a>> {
    let rules = rules::rules(object);
    let mut parents = Vec::new();
    for reference in list(object.spec(), "/parentRefs") {
        let Some((namespace, name)) = gateway_of(object, reference) else {
            continue;
        };
        if let Some(gateway) = platform.find(namespace, name) {
            parents.push(parent(
                world,
                installation,
                platform,
                object,
                &rules,
                reference,
                gateway,
            ));
        }
    }
    if parents.is_empty() {
        return None;
    }
    too_many_apis(&rules, &mut parents);
    shared_planes(platform, &mut parents);
    Some(Route {
        object,
        rules,
        parents,
    })
}

/// Namespace and name of the Gateway that a parentRef names.
pub(super) fn gateway_of<'a>(route: Object<'a>, reference: &'a Value) -> Option<(&'a str, &'a str)> {
    let group = at(reference, "/group").as_str().unwrap_or(GATEWAY);
    let kind = text(reference, "/kind").unwrap_or("Gateway");
    let is_gateway = group == GATEWAY && kind == "Gateway";
    let namespace = text(reference, "/namespace").unwrap_or(route.namespace());
    is_gateway.then_some((namespace, text(reference, "/name").unwrap_or_default()))
}

/// The first reason that holds.
fn parent<'a>(
    world: &World<'a>,
    installation: &Installation<'_>,
    platform: &Platform<'a>,
    route: Object<'a>,
    rules: &Rules<'_>,
    reference: &'a Value,
    index: usize,
) -> Parent<'a> {
    let gateway = &platform.gateways[index];
    let yields = yields(world, gateway, route, reference);
    let definition = definitions::of_route(world, installation, route, gateway.object);
    let mut parent = Parent {
        reference,
        gateway: index,
        accepted: Vec::new(),
        apis: Apis::Removed,
        yields: Vec::new(),
        open: gateway.open,
        definition,
    };
    let state = &platform.classes[gateway.class].state;
    let early: &[&'static str] = match (state, yields) {
        (ClassState::Unreadable, _) => &["NoMatchingParent"],
        // Lenient: without a connection and with a wrong context of its own, either may be the reason.
        (ClassState::NoConnection(_), _) if gateway.bad_context => {
            parent.apis = Apis::Open;
            &["NoMatchingParent", "EnvironmentUnresolved"]
        }
        _ if gateway.bad_context => &["NoMatchingParent"],
        (ClassState::Open, _) => {
            parent.apis = Apis::Open;
            &["NoMatchingParent", "EnvironmentUnresolved"]
        }
        (_, Yields::NoListener) => &["NoMatchingParent"],
        (ClassState::NoConnection(_), found) => {
            parent.apis = Apis::Stay;
            parent.yields = found.into_all();
            &["EnvironmentUnresolved"]
        }
        (_, Yields::NotAllowed) => &["NotAllowedByListeners"],
        (_, Yields::NoHostname) => &["NoMatchingListenerHostname"],
        (_, Yields::Open(reason)) => {
            parent.open = Some(reason);
            &[]
        }
        (ClassState::Connected(..), found) => {
            parent.yields = found.into_all();
            &[]
        }
    };
    parent.accepted.extend(early);
    if early.is_empty() {
        late_reasons(rules, &mut parent);
    }
    parent
}

/// Reasons that depend on rules and definition.
fn late_reasons(rules: &Rules<'_>, parent: &mut Parent<'_>) {
    if let Some(reason) = rules.open {
        parent.open = parent.open.or(Some(reason));
        parent.apis = Apis::Open;
        return;
    }
    if rules.kept.is_empty() {
        parent.accepted.push("UnsupportedValue");
        return;
    }
    let (reason, apis) = match parent.definition {
        Attached::None | Attached::Good => ("Accepted", Apis::Written),
        Attached::Unresolved => ("BaseDocumentUnresolved", Apis::Stay),
        Attached::Invalid => ("BaseDocumentInvalid", Apis::Stay),
        Attached::Open => {
            parent.open = parent
                .open
                .or(Some("tyk: a definition that the oracle does not know"));
            parent.apis = Apis::Open;
            return;
        }
    };
    parent.accepted.push(reason);
    parent.apis = apis;
}

/// What the listeners of a Gateway yield for a parentRef.
enum Yields {
    NoListener,
    NotAllowed,
    NoHostname,
    Open(&'static str),
    Hosts(Vec<Yield>),
}

impl Yields {
    fn into_all(self) -> Vec<Yield> {
        match self {
            Self::Hosts(all) => all,
            _ => Vec::new(),
        }
    }
}

/// sectionName and port, then allowedRoutes, then hostnames. A listener's validity is not asked.
fn yields(world: &World<'_>, gateway: &Gateway<'_>, route: Object<'_>, reference: &Value) -> Yields {
    let section = text(reference, "/sectionName");
    let port = at(reference, "/port").as_i64();
    let selected: Vec<usize> = (0..gateway.listeners.len())
        .filter(|&index| {
            let listener = &gateway.listeners[index];
            section.is_none_or(|section| section == listener.name)
                && port.is_none_or(|port| port == listener.port)
        })
        .collect();
    if selected.is_empty() {
        return Yields::NoListener;
    }
    let mut allowed = Vec::new();
    for index in selected {
        let listener = &gateway.listeners[index];
        match (
            listener.admits,
            allows(world, gateway.object, listener.value, route.namespace()),
        ) {
            (Tri::No, _) | (_, Tri::No) => {}
            (Tri::Yes, Tri::Yes) => allowed.push(index),
            _ => return Yields::Open("tyk: a listener that may admit the route"),
        }
    }
    if allowed.is_empty() {
        return Yields::NotAllowed;
    }
    let hostnames = texts(route.spec(), "/hostnames");
    let mut all = Vec::new();
    for index in allowed {
        let listener = &gateway.listeners[index];
        for host in hosts::effective(&hostnames, listener.hostname.as_deref()) {
            all.push(Yield {
                listener: index,
                host,
                valid: listener.valid,
            });
        }
    }
    match all.is_empty() {
        true => Yields::NoHostname,
        false => Yields::Hosts(all),
    }
}

/// At most 256 APIs over all Gateways, listeners that are not valid included.
fn too_many_apis(rules: &Rules<'_>, parents: &mut [Parent<'_>]) {
    let mut places = BTreeSet::new();
    for parent in parents.iter() {
        places.extend(parent.yields.iter().map(|one| (parent.gateway, one.host.clone())));
    }
    if places.len() * rules.paths().len() <= MOST_APIS {
        return;
    }
    for parent in parents.iter_mut().filter(|parent| parent.apis != Apis::Removed) {
        parent.accepted = vec!["UnsupportedValue"];
        parent.apis = Apis::Removed;
    }
}

/// Between the parents of one route the first Gateway that serves a host keeps it; the other is DataPlaneShared.
fn shared_planes(platform: &Platform<'_>, parents: &mut [Parent<'_>]) {
    for index in 1..parents.len() {
        let (earlier, rest) = parents.split_at_mut(index);
        let parent = &mut rest[0];
        if parent.apis != Apis::Written {
            continue;
        }
        let keeps = |host: &Option<String>| {
            let mut keeps = Tri::No;
            for other in earlier.iter() {
                let shares = other.gateway != parent.gateway && platform.share(other.gateway, parent.gateway);
                let serves = other
                    .yields
                    .iter()
                    .any(|one| one.host == *host && one.valid != Tri::No);
                match other.apis {
                    _ if !shares || !serves => {}
                    Apis::Written if other.accepted == ["Accepted"] => keeps = Tri::Yes,
                    Apis::Removed => {}
                    _ if keeps == Tri::No => keeps = Tri::Maybe,
                    _ => {}
                }
            }
            keeps
        };
        let served: Vec<&Yield> = parent.yields.iter().filter(|one| one.valid != Tri::No).collect();
        let taken: Vec<Tri> = served.iter().map(|one| keeps(&one.host)).collect();
        if taken.iter().all(|taken| *taken == Tri::No) {
            continue;
        }
        if taken.iter().all(|taken| *taken == Tri::Yes) {
            parent.accepted = vec!["DataPlaneShared"];
            parent.apis = Apis::Removed;
        } else {
            // Lenient: a parent that loses some of its hosts may be accepted or not.
            parent.accepted = vec!["Accepted", "DataPlaneShared"];
            parent.apis = Apis::Open;
        }
    }
}

// ---- status ---------------------------------------------------------------------------------------------------------

/// Entries, conditions and finalizer of every route.
pub(super) fn judge_routes(
    world: &World<'_>,
    installation: &Installation<'_>,
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    claims: &Claims,
    judgement: &mut Judgement,
) {
    for object in world.all(GATEWAY, "HTTPRoute") {
        if object.is_deleting() {
            judgement.skip("tyk: the route is being deleted");
        } else if !routes.iter().any(|route| route.object.uid() == object.uid()) {
            judge_no_entries(installation, object, judgement);
        }
    }
    for (index, route) in routes.iter().enumerate() {
        judge_entries(installation, route, judgement);
        for (number, parent) in route.parents.iter().enumerate() {
            match parent.open {
                Some(reason) => judgement.skip(reason),
                None => {
                    let place = (index, number);
                    judge_parent(
                        world,
                        installation,
                        platform,
                        (route, parent),
                        claims,
                        place,
                        judgement,
                    );
                }
            }
        }
        judge_finalizer(installation, index, route, claims, judgement);
    }
}

fn own_entries<'a>(installation: &Installation<'_>, route: Object<'a>) -> Vec<&'a Value> {
    let ours = |entry: &&Value| text(entry, "/controllerName") == Some(&installation.tyk.controller_name);
    list(route.status(), "/parents").iter().filter(ours).collect()
}

/// No entry for a Gateway that does not exist or is not ours.
fn judge_no_entries(installation: &Installation<'_>, route: Object<'_>, judgement: &mut Judgement) {
    let found = own_entries(installation, route).len();
    judgement.check("tyk.entries", route, found == 0, "no own entry", found);
}

/// The text of a parentRef that identifies its entry.
fn key(route: Object<'_>, reference: &Value) -> String {
    let (namespace, name) = gateway_of(route, reference).unwrap_or_default();
    let section = text(reference, "/sectionName").unwrap_or_default();
    format!(
        "{namespace}/{name} section {section:?} port {}",
        at(reference, "/port")
    )
}

/// One entry for each parentRef of this installation and no other.
fn judge_entries(installation: &Installation<'_>, route: &Route<'_>, judgement: &mut Judgement) {
    let mut found: Vec<String> = own_entries(installation, route.object)
        .iter()
        .map(|entry| key(route.object, at(entry, "/parentRef")))
        .collect();
    found.sort();
    let mut must: Vec<String> = Vec::new();
    let mut open = false;
    for parent in &route.parents {
        // Lenient: a Gateway that is being deleted may count as gone.
        open |= parent.open.is_some();
        must.push(key(route.object, parent.reference));
    }
    must.sort();
    let repeated = must.windows(2).any(|pair| pair[0] == pair[1]);
    let fits = match open || repeated {
        true => found.iter().all(|entry| must.contains(entry)),
        false => found == must,
    };
    judgement.check(
        "tyk.entries",
        route.object,
        fits,
        format!("{must:?}"),
        format!("{found:?}"),
    );
}

fn judge_parent(
    world: &World<'_>,
    installation: &Installation<'_>,
    platform: &Platform<'_>,
    (route, parent): (&Route<'_>, &Parent<'_>),
    claims: &Claims,
    (index, number): (usize, usize),
    judgement: &mut Judgement,
) {
    let wanted = key(route.object, parent.reference);
    let entries = own_entries(installation, route.object);
    let mut same = entries
        .iter()
        .filter(|entry| key(route.object, at(entry, "/parentRef")) == wanted);
    let Some(entry) = same.next() else {
        // Told by the rule about entries.
        return;
    };
    let gateway = &platform.gateways[parent.gateway];
    let mut accepted = parent.accepted.clone();
    if accepted == ["DataPlaneShared"] && claims.loses(index) {
        accepted.push("Accepted");
    }
    let answers = gateway.connection.as_ref().is_none_or(|c| claims.answers(&c.url));
    if accepted.contains(&"Accepted") && (!answers || claims.is_crowded(index, number)) {
        accepted.push("TranslationFailed");
    }
    judge_condition(
        "tyk.route.accepted",
        route.object,
        (entry, "Accepted"),
        &accepted,
        judgement,
    );
    let resolved = backends::resolved_refs(world, installation, route.object, &route.rules);
    judge_condition(
        "tyk.route.resolved",
        route.object,
        (entry, "ResolvedRefs"),
        &resolved,
        judgement,
    );
    if accepted == ["Accepted"] {
        judge_partially(route, parent, entry, claims, (index, number), judgement);
    }
}

/// PartiallyInvalid: True while a rule is dropped or a place is lost, else absent; the message names the winner.
fn judge_partially(
    route: &Route<'_>,
    parent: &Parent<'_>,
    entry: &Value,
    claims: &Claims,
    (index, number): (usize, usize),
    judgement: &mut Judgement,
) {
    let lost = claims.lost(index, number);
    let expected = match (
        route.rules.dropped > 0 || !lost.is_empty(),
        claims.is_open(index, number),
    ) {
        (true, _) => Tri::Yes,
        (false, true) => Tri::Maybe,
        (false, false) => Tri::No,
    };
    let found = condition(entry, "PartiallyInvalid").unwrap_or(&Value::Null);
    let message = text(found, "/message").unwrap_or_default();
    let told = text(found, "/status") == Some("True")
        && text(found, "/reason") == Some("UnsupportedValue")
        && at(found, "/observedGeneration").as_i64() == Some(route.object.generation())
        && message.starts_with("Dropped Rule");
    let fits = match expected {
        Tri::Yes => told && lost.iter().take(1).all(|(_, _, winner)| message.contains(winner)),
        Tri::Maybe => told || found.is_null(),
        Tri::No => found.is_null(),
    };
    let shown = match expected {
        Tri::No => "no PartiallyInvalid".to_owned(),
        _ => format!(
            "PartiallyInvalid: {} rules dropped, lost {lost:?}",
            route.rules.dropped
        ),
    };
    judgement.check("tyk.route.partial", route.object, fits, shown, found);
    let serves_none = parent.yields.iter().all(|one| one.valid == Tri::No);
    let accepted = condition(entry, "Accepted").unwrap_or(&Value::Null);
    if serves_none {
        let message = text(accepted, "/message").unwrap_or_default();
        judgement.check(
            "tyk.route.message",
            route.object,
            message.contains("0 APIs"),
            "0 APIs",
            message,
        );
    }
}

/// The finalizer holds a route that has APIs; a route without APIs and without memory has none.
fn judge_finalizer(
    installation: &Installation<'_>,
    index: usize,
    route: &Route<'_>,
    claims: &Claims,
    judgement: &mut Judgement,
) {
    if installation.tyk.controller_name != DEFAULT_CONTROLLER {
        return judgement.skip("tyk: marks of another controllerName");
    }
    let has = route
        .object
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == FINALIZER);
    let remembers = route
        .object
        .annotation(MEMORY)
        .is_some_and(|memory| !memory.is_empty());
    let (sure, open) = claims.served(index);
    let answered = claims.all_answer(index);
    let fits = match (sure, open) {
        (true, _) => (has && remembers) || !answered,
        (false, true) => true,
        (false, false) => has == remembers,
    };
    judgement.check(
        "tyk.route.finalizer",
        route.object,
        fits,
        format!("APIs for sure: {sure}, perhaps: {open}"),
        format!("finalizer {has}, memory {remembers}"),
    );
}
