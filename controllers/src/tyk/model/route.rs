//! HTTPRoute by itself: attachment of each parentRef, rules, backends, the attached definition, and the claims that
//! follow. Who wins the claims is decided later.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use reconcile_kit::Condition;

use super::{
    super::{
        objects::{GATEWAY_GROUP, HttpRoute, Key, gateway::AllowedNamespaces, route::ParentRef},
        translate,
        verdict::{ApiPlan, BaseDocument, CertificateUse, Disposition, Notice, Target},
    },
    backend::{self, Resolved},
    claims::{Claim, Claimant, Place},
    class::Unusable,
    definition::Fault,
    gateway::GatewayFacts,
    graph, host,
    listener::ListenerFacts,
    rules::{self, Rules},
    selector, text,
    view::View,
    weights,
};

/// Why a parent is not accepted.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) disposition: Disposition,
}

impl Refusal {
    fn new(reason: &'static str, disposition: Disposition, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            disposition,
        }
    }
}

/// One parentRef of ours.
#[derive(Debug)]
pub(super) struct DraftParent {
    pub(super) parent: ParentRef,
    pub(super) gateway: Key,
    /// Listeners that admit the route, by index.
    pub(super) listeners: BTreeSet<usize>,
    /// Hosts of the listeners among them that serve.
    pub(super) hosts: BTreeSet<Option<String>>,
    /// Listeners among them that do not serve, and why.
    pub(super) unserved: Vec<String>,
    /// Refused by attachment.
    pub(super) refusal: Option<Refusal>,
}

/// What the parents of one Gateway amount to together.
#[derive(Debug)]
pub(super) struct DraftGateway {
    /// UnsupportedValue of all rules.
    pub(super) refusal: Option<Refusal>,
    /// The attached definition is in the way.
    pub(super) base_refusal: Option<Refusal>,
    /// Sorted by host and path; beside each the claim.
    pub(super) plans: Vec<(ApiPlan, Claim)>,
    /// Rules by path, for messages.
    pub(super) rules: BTreeMap<String, Vec<usize>>,
    /// Rules that are dropped: index and why.
    pub(super) dropped: Vec<(usize, String)>,
}

/// A route before claims are decided.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) parents: Vec<DraftParent>,
    pub(super) gateways: BTreeMap<Key, DraftGateway>,
    pub(super) resolved: Condition,
    pub(super) notices: Vec<Notice>,
    pub(super) deleting: bool,
}

impl Draft {
    /// Every claim of the route.
    pub(super) fn claims(&self) -> Vec<Claim> {
        self.gateways
            .values()
            .flat_map(|gateway| gateway.plans.iter().map(|(_, claim)| claim.clone()))
            .collect()
    }
}

/// Drafts the answer for a route; `None` if no parent is ours.
pub(super) fn draft(view: &View<'_>, route: &HttpRoute) -> Option<Draft> {
    let own = &route.meta.key;
    let mut parents: Vec<DraftParent> = Vec::new();
    let mut facts: BTreeMap<Key, &Arc<GatewayFacts>> = BTreeMap::new();
    for parent in &route.parents {
        if parent.group != GATEWAY_GROUP || parent.kind != "Gateway" {
            continue;
        }
        // The same reference twice is one entry.
        if parents.iter().any(|known| known.parent == *parent) {
            continue;
        }
        let key = Key::new(parent.namespace.as_ref().unwrap_or(&own.namespace), &parent.name);
        let Some(gateway) = view.gateway(&key) else {
            continue;
        };
        parents.push(attach(view, route, parent, gateway));
        facts.insert(key, gateway);
    }
    if parents.is_empty() {
        return None;
    }
    let resolved = backend::resolve_all(view, route);
    let attachment = view.attached(graph::Target::Route, own);
    let mut gateways = BTreeMap::new();
    let mut notices = BTreeSet::new();
    for (key, facts) in facts {
        let of: Vec<&DraftParent> = parents
            .iter()
            .filter(|parent| parent.gateway == key && parent.refusal.is_none())
            .collect();
        if of.is_empty() {
            continue;
        }
        let index = parents
            .iter()
            .position(|parent| parent.gateway == key)
            .unwrap_or_default();
        let attached = attachment.or_else(|| view.attached(graph::Target::Gateway, &key));
        let base = match attached.map(|attached| (&attached.definition, &attached.document)) {
            None => Ok(None),
            Some((_, Ok(document))) => Ok(Some(Arc::clone(document))),
            Some((definition, Err(fault))) => {
                let (reason, why) = match fault {
                    Fault::Unresolved(why) => ("BaseDocumentUnresolved", why),
                    Fault::Invalid(why) => ("BaseDocumentInvalid", why),
                };
                let message = format!("TykOasApiDefinition {definition}: {why}");
                Err(Refusal::new(reason, Disposition::Keep, message))
            }
        };
        let draft = serve(route, facts, &of, index, &resolved, base);
        for (plan, _) in &draft.plans {
            reserved(&plan.path, &mut notices);
        }
        overlapping(&draft.plans, &mut notices);
        gateways.insert(key, draft);
    }
    Some(Draft {
        parents,
        gateways,
        resolved: backend::condition(&resolved),
        notices: notices
            .into_iter()
            .map(|(reason, message)| Notice {
                warning: true,
                reason,
                message,
            })
            .collect(),
        deleting: route.meta.deleting,
    })
}

/// What one parentRef attaches to.
fn attach(view: &View<'_>, route: &HttpRoute, parent: &ParentRef, gateway: &GatewayFacts) -> DraftParent {
    let mut draft = DraftParent {
        parent: parent.clone(),
        gateway: gateway.key.clone(),
        listeners: BTreeSet::new(),
        hosts: BTreeSet::new(),
        unserved: Vec::new(),
        refusal: None,
    };
    let name = text::object("Gateway", &gateway.key);
    let remove = |reason, message: String| Some(Refusal::new(reason, Disposition::Remove, message));
    if let Err(Unusable::Unreadable(why)) = &gateway.connection {
        draft.refusal = remove("NoMatchingParent", format!("{name} cannot be used: {why}"));
        return draft;
    }
    let named: Vec<(usize, &ListenerFacts)> = gateway
        .listeners
        .iter()
        .enumerate()
        .filter(|(_, l)| {
            parent.section_name.as_ref().is_none_or(|s| *s == l.name)
                && parent.port.is_none_or(|port| port == l.port)
        })
        .collect();
    if named.is_empty() {
        let asked = [
            parent.section_name.as_ref().map(|s| format!("sectionName {s}")),
            parent.port.map(|port| format!("port {port}")),
        ];
        let asked: Vec<String> = asked.into_iter().flatten().collect();
        let have = text::list(
            gateway
                .listeners
                .iter()
                .map(|l| format!("{} (port {})", l.name, l.port)),
        );
        draft.refusal = remove(
            "NoMatchingParent",
            format!(
                "{name} has no listener for {}; it has: {have}",
                asked.join(" and ")
            ),
        );
        return draft;
    }
    if let Err(Unusable::Environment(why)) = &gateway.connection {
        draft.refusal = Some(Refusal::new(
            "EnvironmentUnresolved",
            Disposition::Keep,
            format!("the connection to Tyk cannot be read: {why}"),
        ));
        return draft;
    }
    let admitting: Vec<_> = named
        .into_iter()
        .filter(|(_, l)| l.admits_routes && admits(view, route, &gateway.key, &l.namespaces))
        .collect();
    if admitting.is_empty() {
        draft.refusal = remove(
            "NotAllowedByListeners",
            format!(
                "allowedRoutes of the listeners of {name} admit no HTTPRoute of namespace {}",
                route.meta.key.namespace
            ),
        );
        return draft;
    }
    for (index, listener) in &admitting {
        let hosts = host::effective(listener.hostname.as_deref(), &route.hostnames);
        if hosts.is_empty() {
            continue;
        }
        draft.listeners.insert(*index);
        match &listener.broken {
            None => draft.hosts.extend(hosts),
            Some((reason, _)) => draft.unserved.push(format!(
                "listener {} of {name} serves nothing: {reason}",
                listener.name
            )),
        }
    }
    if draft.listeners.is_empty() {
        let have = text::list(admitting.iter().filter_map(|(_, l)| l.hostname.clone()));
        draft.refusal = remove(
            "NoMatchingListenerHostname",
            format!("spec.hostnames: none goes with a listener of {name}; they have: {have}"),
        );
    }
    draft
}

fn admits(view: &View<'_>, route: &HttpRoute, gateway: &Key, allowed: &AllowedNamespaces) -> bool {
    let namespace = &route.meta.key.namespace;
    match allowed {
        AllowedNamespaces::Same => *namespace == gateway.namespace,
        AllowedNamespaces::All => true,
        AllowedNamespaces::Selector(selector) => match view.namespace(namespace) {
            Some(found) => selector::matches(selector, &found.labels),
            // What every Namespace has, also one that is not seen yet (or not among the manifests).
            None => {
                let name = ("kubernetes.io/metadata.name".to_owned(), namespace.clone());
                selector::matches(selector, &BTreeMap::from([name]))
            }
        },
        AllowedNamespaces::Unknown(_) => false,
    }
}

/// What a route becomes on one Gateway.
fn serve(
    route: &HttpRoute,
    gateway: &GatewayFacts,
    parents: &[&DraftParent],
    index: usize,
    resolved: &[Vec<Resolved>],
    base: Result<Option<Arc<BaseDocument>>, Refusal>,
) -> DraftGateway {
    let mut draft = DraftGateway {
        refusal: None,
        base_refusal: None,
        plans: Vec::new(),
        rules: BTreeMap::new(),
        dropped: Vec::new(),
    };
    let (Ok(connection), Some(site)) = (&gateway.connection, &gateway.site) else {
        return draft;
    };
    let unsupported = |why: String| Some(Refusal::new("UnsupportedValue", Disposition::Remove, why));
    if !route.problems.is_empty() {
        draft.refusal = unsupported(text::list(route.problems.iter().map(ToString::to_string)));
        return draft;
    }
    let listeners: BTreeSet<usize> = parents.iter().flat_map(|p| p.listeners.iter().copied()).collect();
    let facts = || listeners.iter().filter_map(|i| gateway.listeners.get(*i));
    // Whether a rule is served must not depend on which of its listeners happen to be valid.
    let entrances: rules::Entrances = facts().map(|l| (l.secure, l.port)).collect();
    let Rules { groups, dropped } = rules::group(route, &entrances);
    if groups.is_empty() {
        draft.refusal = unsupported(if dropped.is_empty() {
            "spec.rules: there is no rule".to_owned()
        } else {
            text::list(dropped.into_iter().map(|(_, why)| why))
        });
        return draft;
    }
    draft.dropped = dropped;
    let certificates = certificates(route, facts().filter(|l| l.broken.is_none()));
    let hosts: BTreeSet<&Option<String>> = parents.iter().flat_map(|p| &p.hosts).collect();
    let (base, refusal) = match base {
        Ok(base) => (base, None),
        Err(refusal) => (None, Some(refusal)),
    };
    draft.base_refusal = refusal;
    let claimant = Arc::new(Claimant {
        created: route.meta.created,
        route: route.meta.key.clone(),
        index,
        gateway: gateway.key.clone(),
        open_source: connection.mode == super::super::verdict::Mode::OpenSource,
        tags: Arc::clone(&gateway.tags),
    });
    for (path, group) in &groups {
        let plan = ApiPlan {
            route: route.meta.key.clone(),
            gateway: gateway.key.clone(),
            connection: Arc::clone(connection),
            host: None,
            path: (*path).to_owned(),
            tags: gateway.tags.to_vec(),
            certificates: Vec::new(),
            targets: targets(route, group.backends, resolved),
            prefix: group.prefix.clone(),
            operations: group.operations.clone(),
            base: base.clone(),
        };
        if draft.base_refusal.is_none() {
            // No host comes into this, so it is found also while no listener serves.
            draft.base_refusal = translate::attach::conflict(&plan)
                .map(|why| Refusal::new("AttachmentConflict", Disposition::Keep, text::cut(why, 4_000)));
        }
        for host in &hosts {
            let mut plan = plan.clone();
            plan.host = (*host).clone();
            plan.certificates = host
                .as_ref()
                .and_then(|host| certificates.get(host).cloned())
                .unwrap_or_default();
            let place = Arc::new(Place {
                site: Arc::clone(site),
                host: host.as_deref().map(Into::into),
                path: (*path).into(),
            });
            let claim = Claim {
                place,
                claimant: Arc::clone(&claimant),
            };
            draft.plans.push((plan, claim));
        }
    }
    draft
        .plans
        .sort_by(|(a, _), (b, _)| (&a.host, &a.path).cmp(&(&b.host, &b.path)));
    draft.rules = groups
        .into_iter()
        .map(|(path, group)| (path.to_owned(), group.rules))
        .collect();
    draft
}

/// Certificates by host: those of every HTTPS listener that yields it.
fn certificates<'a>(
    route: &HttpRoute,
    listeners: impl Iterator<Item = &'a ListenerFacts>,
) -> BTreeMap<String, Vec<CertificateUse>> {
    let mut found: BTreeMap<String, BTreeSet<&CertificateUse>> = BTreeMap::new();
    for listener in listeners.filter(|l| !l.certificates.is_empty()) {
        for host in host::effective(listener.hostname.as_deref(), &route.hostnames)
            .into_iter()
            .flatten()
        {
            found.entry(host).or_default().extend(&listener.certificates);
        }
    }
    found
        .into_iter()
        .map(|(host, uses)| (host, uses.into_iter().cloned().collect()))
        .collect()
}

fn targets(route: &HttpRoute, rule: Option<usize>, resolved: &[Vec<Resolved>]) -> Vec<Target> {
    let Some((rule, resolved)) = rule.and_then(|i| Some((route.rules.get(i)?, resolved.get(i)?))) else {
        return Vec::new();
    };
    let backends: Vec<(u32, Vec<Option<String>>)> = rule
        .backends
        .iter()
        .zip(resolved)
        .map(|(backend, result)| {
            let authorities = result.as_ref().map_or_else(|_| vec![None], Clone::clone);
            (backend.weight, authorities)
        })
        .collect();
    weights::targets(&backends)
}

/// Paths that a Tyk Gateway answers itself, unless it has a control port of its own.
fn reserved(path: &str, notices: &mut BTreeSet<(&'static str, String)>) {
    if matches!(path, "/hello" | "/ready" | "/tyk") || path.starts_with("/tyk/") {
        notices.insert((
            "ReservedPath",
            format!("path {path}: Tyk Gateway answers this itself, unless control_api_port is set"),
        ));
    }
}

/// A wildcard host and one that it covers: Tyk looks at the path first, and does not rank hosts.
fn overlapping(plans: &[(ApiPlan, Claim)], notices: &mut BTreeSet<(&'static str, String)>) {
    let hosts: BTreeSet<&str> = plans
        .iter()
        .filter_map(|(plan, _)| plan.host.as_deref())
        .collect();
    for wild in hosts.iter().filter(|host| host.starts_with('*')) {
        let covered: Vec<String> = hosts
            .iter()
            .filter(|host| {
                host::overlap(Some(wild), Some(host)) && host::intersect(wild, host) == Some(**host)
            })
            .map(|host| (*host).to_owned())
            .collect();
        if !covered.is_empty() {
            notices.insert((
                "OverlappingHosts",
                format!(
                    "host {wild} covers {}: Tyk Gateway does not prefer the more specific host",
                    text::list(covered)
                ),
            ));
        }
    }
}
