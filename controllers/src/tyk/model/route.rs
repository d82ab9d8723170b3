//! HTTPRoute by itself: attachment of each parentRef, rules, backends, the attached definition, and the claims that
//! follow. Who wins the claims is decided later.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use reconcile_kit::Condition;

use super::{
    super::{
        httproute::{memory::Memory, names},
        objects::{HttpRoute, Key, gateway::AllowedNamespaces, route::ParentRef},
        translate,
        verdict::{ApiPlan, BaseDocument, CertificateUse, Disposition, Mode, Notice, Target},
    },
    backend::{self, Resolved},
    claims::{Claim, Claimant, Place},
    class::Unusable,
    definition::{Attached, Fault},
    gateway::GatewayFacts,
    graph, host,
    listener::ListenerFacts,
    rules::{self, Rules},
    selector, text,
    view::View,
    weights,
};

/// The most APIs that a route may make: 16 hostnames on one Gateway with a path in each of 16 rules. All their ids
/// must be remembered on the route, and a change of one backend is a change of all of them.
pub(super) const MOST_APIS: usize = 256;

/// The most bytes that the documents of a route may have together, as estimated without making them. All of them are held
/// while they wait to be written, and Tyk parses all of them at each reload.
pub(super) const MOST_BYTES: usize = 2 * 1024 * 1024;

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
    /// Hosts of all of them.
    pub(super) reach: BTreeSet<Option<String>>,
    /// Hosts of the listeners among them that serve.
    pub(super) hosts: BTreeSet<Option<String>>,
    /// Listeners among them that do not serve, and why.
    pub(super) unserved: Vec<String>,
    /// Refused by attachment.
    pub(super) refusal: Option<Refusal>,
}

impl DraftParent {
    /// Whether it attaches, also if nothing can be written now.
    fn stands(&self) -> bool {
        self.refusal
            .as_ref()
            .is_none_or(|refusal| refusal.disposition == Disposition::Keep)
    }
}

/// What the parents of one Gateway amount to together.
#[derive(Debug, Default)]
pub(super) struct DraftGateway {
    /// UnsupportedValue of all rules.
    pub(super) refusal: Option<Refusal>,
    /// The attached definition is in the way.
    pub(super) base_refusal: Option<Refusal>,
    /// Sorted by host and path; beside each the claim.
    pub(super) plans: Vec<(ApiPlan, Claim)>,
    /// Host and path of what would be planned if there were a connection.
    pub(super) unplanned: Vec<(Option<String>, String)>,
    /// Paths that have no document, and why.
    pub(super) failed: BTreeMap<String, String>,
    /// Rules by path, for messages.
    pub(super) rules: BTreeMap<String, Vec<usize>>,
    /// Rules that are dropped: index and why.
    pub(super) dropped: Vec<(usize, String)>,
}

/// A route before claims are decided.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) route: Key,
    pub(super) parents: Vec<DraftParent>,
    pub(super) gateways: BTreeMap<Key, DraftGateway>,
    pub(super) resolved: Condition,
    pub(super) notices: Vec<Notice>,
    pub(super) deleting: bool,
    /// It is being deleted, and nothing of it is in Tyk any more: its finalizer is off. Others may hold it for ever.
    pub(super) let_go: bool,
    /// It is being deleted, and remembers these APIs. `None`: it is not, or its annotation is gone and nothing is known.
    pub(super) remembers: Option<Memory>,
}

impl Draft {
    /// Every claim of the route.
    pub(super) fn claims(&self) -> Vec<Claim> {
        if self.let_go {
            return Vec::new();
        }
        let plans = self.gateways.values().flat_map(|gateway| &gateway.plans);
        plans
            .filter(|(plan, _)| {
                // What is gone from a Tyk is in nobody's way there, whatever else keeps the route.
                self.remembers
                    .as_ref()
                    .is_none_or(|memory| memory.knows(&plan.connection.digest(), &translate::identity(plan)))
            })
            .map(|(_, claim)| claim.clone())
            .collect()
    }
}

/// Drafts the answer for a route; `None` if no parent is ours.
pub(super) fn draft(view: &View<'_>, route: &HttpRoute) -> Option<Draft> {
    let own = &route.meta.key;
    let mut parents: Vec<DraftParent> = Vec::new();
    let mut facts: BTreeMap<Key, &Arc<GatewayFacts>> = BTreeMap::new();
    for parent in &route.parents {
        let Some(key) = parent.gateway(own) else {
            continue;
        };
        // The same reference twice is one entry.
        if parents.iter().any(|known| known.parent == *parent) {
            continue;
        }
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
    // The rules by Gateway, and how many APIs they come to: before any is made.
    let mut amount = Amount::default();
    let mut wanted: Vec<(Key, &Arc<GatewayFacts>, Rules<'_>, Base)> = Vec::new();
    for (key, facts) in facts {
        let of = || {
            parents
                .iter()
                .filter(|parent| parent.gateway == key && parent.stands())
        };
        if of().next().is_none() {
            continue;
        }
        let listeners: BTreeSet<usize> = of().flat_map(|p| p.listeners.iter().copied()).collect();
        // Whether a rule is served must not depend on which of its listeners happen to be valid.
        let entrances: rules::Entrances = listeners
            .iter()
            .filter_map(|i| facts.listeners.get(*i))
            .map(|l| (l.secure, l.port))
            .collect();
        let reach: BTreeSet<&Option<String>> = of().flat_map(|p| &p.reach).collect();
        let back = |destination: rules::Destination<'_>| returns(facts, &reach, destination);
        let rules = rules::group(route, &entrances, &back);
        let base = base(attachment.or_else(|| view.attached(graph::Target::Gateway, &key)));
        amount.add(
            reach.len(),
            &rules,
            &resolved,
            base.as_ref().ok().and_then(Option::as_ref),
        );
        wanted.push((key, facts, rules, base));
    }
    let serving = Serving {
        view,
        route,
        parents: &parents,
        resolved: &resolved,
        amount,
    };
    let mut gateways = BTreeMap::new();
    let mut notices = BTreeSet::new();
    for (key, facts, rules, base) in wanted {
        let draft = serving.serve(facts, rules, base);
        for (plan, _) in &draft.plans {
            reserved(&plan.path, &mut notices);
        }
        overlapping(&draft.plans, &mut notices);
        gateways.insert(key, draft);
    }
    Some(Draft {
        route: own.clone(),
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
        let_go: route.meta.deleting
            && !route
                .held_by
                .iter()
                .any(|finalizer| *finalizer == names::finalizer(&view.settings.controller_name)),
        remembers: route
            .marks
            .get(&*names::annotation(&view.settings.controller_name))
            .map(|text| Memory::parse(text)),
    })
}

/// Whether a redirect leads to a host that the route has on the Gateway, through a listener that takes it: of any route,
/// since listeners do not isolate.
fn returns(
    gateway: &GatewayFacts,
    reach: &BTreeSet<&Option<String>>,
    (secure, port, name): rules::Destination<'_>,
) -> bool {
    let covers = |host: Option<&str>| host.is_none_or(|host| host::intersect(host, name) == Some(name));
    let mut listeners = gateway.listeners.iter();
    reach.iter().any(|host| covers(host.as_deref()))
        && listeners.any(|listener| {
            (listener.secure, listener.port) == (secure, port)
                && !listener.nameless
                && covers(listener.hostname.as_deref())
        })
}

/// The attached document that the APIs of a Gateway are made from (`None` without one), or why it cannot be used.
type Base = Result<Option<Arc<BaseDocument>>, Refusal>;

fn base(attached: Option<&Arc<Attached>>) -> Base {
    let Some(attached) = attached else {
        return Ok(None);
    };
    attached.document.clone().map(Some).map_err(|fault| {
        let (reason, why) = match fault {
            Fault::Unresolved(why) => ("BaseDocumentUnresolved", why),
            Fault::Invalid(why) => ("BaseDocumentInvalid", why),
        };
        let message = format!("TykOasApiDefinition {}: {why}", attached.definition);
        Refusal::new(reason, Disposition::Keep, message)
    })
}

/// What a route comes to on all its Gateways.
#[derive(Debug, Default)]
struct Amount {
    apis: usize,
    /// Of all documents together, estimated.
    bytes: usize,
    /// The largest attached document, and whose it is.
    base: Option<(usize, Key)>,
}

impl Amount {
    /// Adds the APIs of one Gateway. `hosts`: the number of hosts that the route has through it.
    fn add(
        &mut self,
        hosts: usize,
        rules: &Rules<'_>,
        resolved: &[Vec<Resolved>],
        base: Option<&Arc<BaseDocument>>,
    ) {
        let attached = base.map_or(0, |base| base.document.bytes());
        for (path, group) in &rules.groups {
            let targets = group.backends.and_then(|rule| resolved.get(rule));
            let document = attached
                .saturating_add(group.bytes(path))
                .saturating_add(targets.map_or(0, |targets| bytes_of_targets(path, group, targets)));
            self.bytes = self.bytes.saturating_add(document.saturating_mul(hosts));
        }
        self.apis = self.apis.saturating_add(hosts.saturating_mul(rules.groups.len()));
        if let Some(base) = base
            && self.base.as_ref().is_none_or(|(bytes, _)| *bytes < attached)
        {
            self.base = Some((attached, base.definition.clone()));
        }
    }

    /// Why it is too much.
    fn excess(&self) -> Option<String> {
        let Self { apis, bytes, base } = self;
        if *apis > MOST_APIS {
            return Some(format!(
                "spec: comes to {apis} APIs, one for each Gateway, hostname and path; {MOST_APIS} are the most: split the \
                 route, or name fewer parents, hostnames or paths"
            ));
        }
        if *bytes <= MOST_BYTES {
            return None;
        }
        let attached = base.as_ref().map_or_else(String::new, |(bytes, definition)| {
            format!(", each with the {bytes} bytes of TykOasApiDefinition {definition}")
        });
        let smaller = base.as_ref().map_or("", |_| ", or attach a smaller document");
        Some(format!(
            "spec: comes to about {bytes} bytes of documents in Tyk, {MOST_BYTES} are the most: {}{attached}; split the \
             route, name fewer parents, hostnames, paths or headers{smaller}",
            text::count(*apis, "API")
        ))
    }
}

/// About how many bytes the targets of a path take in its document.
fn bytes_of_targets(path: &str, group: &rules::Group<'_>, backends: &[Resolved]) -> usize {
    /// Braces, keys and the weight.
    const FRAME: usize = 40;
    let path = group.prefix.as_deref().unwrap_or(path).len();
    let targets = backends.iter().flatten().flatten();
    targets
        .map(|authority| authority.as_ref().map_or(0, String::len) + path + FRAME)
        .sum()
}

/// What one parentRef attaches to.
fn attach(view: &View<'_>, route: &HttpRoute, parent: &ParentRef, gateway: &GatewayFacts) -> DraftParent {
    let mut draft = DraftParent {
        parent: parent.clone(),
        gateway: gateway.key.clone(),
        listeners: BTreeSet::new(),
        reach: BTreeSet::new(),
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
    if gateway.listeners.is_empty() {
        draft.refusal = remove("NoMatchingParent", format!("{name} has no listeners"));
        return draft;
    }
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
    // It comes before what follows, which is looked at all the same: it decides what may stand meanwhile.
    let environment = match &gateway.connection {
        Err(Unusable::Environment(why)) => Some(Refusal::new(
            "EnvironmentUnresolved",
            Disposition::Keep,
            format!("the connection to Tyk cannot be read: {why}"),
        )),
        _ => None,
    };
    let (admitting, others): (Vec<_>, Vec<_>) = named
        .into_iter()
        .partition(|(_, l)| l.admits_routes && admits(view, route, &gateway.key, &l.namespaces));
    if admitting.is_empty() {
        draft.refusal = environment.or_else(|| {
            let against = others.iter().map(|(_, l)| {
                let why = match &l.broken {
                    Some(("UnsupportedProtocol", why)) => why,
                    _ if !l.admits_routes => "allowedRoutes.kinds names others",
                    _ => "allowedRoutes.namespaces names others",
                };
                format!("listener {}: {why}", l.name)
            });
            remove(
                "NotAllowedByListeners",
                format!(
                    "no listener of {name} admits an HTTPRoute of namespace {}: {}",
                    route.meta.key.namespace,
                    text::list(against)
                ),
            )
        });
        return draft;
    }
    for (index, listener) in &admitting {
        let hosts = listener.effective(&route.hostnames);
        if hosts.is_empty() {
            continue;
        }
        draft.listeners.insert(*index);
        draft.reach.extend(hosts.iter().cloned());
        match &listener.broken {
            None => draft.hosts.extend(hosts),
            Some((reason, _)) => draft.unserved.push(format!(
                "listener {} of {name} serves nothing: {reason}",
                listener.name
            )),
        }
    }
    let unmatched = || {
        let have = text::list(admitting.iter().filter_map(|(_, l)| match &l.hostname {
            None if l.nameless => Some(format!("what is no hostname, on listener {}", l.name)),
            hostname => hostname.clone(),
        }));
        remove(
            "NoMatchingListenerHostname",
            format!("spec.hostnames: none goes with a listener of {name}; they have: {have}"),
        )
    };
    draft.refusal = environment.or_else(|| draft.listeners.is_empty().then(unmatched).flatten());
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

/// A route, and what holds for all its Gateways.
struct Serving<'a> {
    view: &'a View<'a>,
    route: &'a HttpRoute,
    parents: &'a [DraftParent],
    resolved: &'a [Vec<Resolved>],
    /// What it comes to on all of them.
    amount: Amount,
}

impl Serving<'_> {
    /// Parents of a Gateway that attach, with their place in spec.parentRefs.
    fn parents<'b>(&'b self, gateway: &'b Key) -> impl Iterator<Item = (usize, &'b DraftParent)> {
        self.parents
            .iter()
            .enumerate()
            .filter(move |(_, parent)| parent.gateway == *gateway && parent.stands())
    }

    /// Why nothing of the route can be served.
    fn unsupported(&self, rules: &Rules<'_>) -> Option<String> {
        if !self.route.problems.is_empty() {
            return Some(text::list(self.route.problems.iter().map(ToString::to_string)));
        }
        if rules.groups.is_empty() {
            return Some(if rules.dropped.is_empty() {
                "spec.rules: there is no rule".to_owned()
            } else {
                text::list(rules.dropped.iter().map(|(_, why)| why.clone()))
            });
        }
        self.amount.excess()
    }

    /// What a route becomes on one Gateway.
    fn serve(&self, gateway: &GatewayFacts, rules: Rules<'_>, base: Base) -> DraftGateway {
        let route = self.route;
        let mut draft = DraftGateway::default();
        if let Some(why) = self.unsupported(&rules) {
            draft.refusal = Some(Refusal::new("UnsupportedValue", Disposition::Remove, why));
            return draft;
        }
        let Rules { groups, dropped } = rules;
        draft.dropped = dropped;
        // Each host with the first parent that serves it: that is its place among the route's parents.
        let mut hosts: BTreeMap<&Option<String>, usize> = BTreeMap::new();
        for (index, parent) in self.parents(&gateway.key) {
            for host in &parent.hosts {
                hosts.entry(host).or_insert(index);
            }
        }
        let (Ok(connection), Some(site)) = (&gateway.connection, &gateway.site) else {
            draft.unplanned = hosts
                .keys()
                .flat_map(|host| groups.keys().map(|path| ((*host).clone(), (*path).to_owned())))
                .collect();
            return draft;
        };
        let listeners: BTreeSet<usize> = self
            .parents(&gateway.key)
            .flat_map(|(_, p)| p.listeners.iter().copied())
            .collect();
        let valid = listeners
            .iter()
            .filter_map(|i| gateway.listeners.get(*i))
            .filter(|l| l.broken.is_none());
        let certificates = certificates(route, valid);
        let (base, refusal) = match base {
            Ok(base) => (base, None),
            Err(refusal) => (None, Some(refusal)),
        };
        draft.base_refusal = refusal;
        let claimants: BTreeMap<usize, Arc<Claimant>> = hosts
            .values()
            .map(|index| {
                let claimant = Claimant {
                    created: route.meta.created,
                    route: route.meta.key.clone(),
                    index: *index,
                    gateway: gateway.key.clone(),
                    open_source: connection.mode == Mode::OpenSource,
                    tags: Arc::clone(&gateway.tags),
                    deleting: route.meta.deleting,
                };
                (*index, Arc::new(claimant))
            })
            .collect();
        for (path, group) in &groups {
            let plan = ApiPlan {
                route: route.meta.key.clone(),
                gateway: gateway.key.clone(),
                connection: Arc::clone(connection),
                host: None,
                path: (*path).to_owned(),
                tags: gateway.tags.to_vec(),
                certificates: Vec::new(),
                targets: targets(route, group.backends, self.resolved),
                prefix: group.prefix.clone(),
                operations: group.operations.clone(),
                base: base.clone(),
            };
            if draft.base_refusal.is_none() {
                // No host comes into this, so it is found also while no listener serves. What translation refuses,
                // decoding refuses with a field path; but nothing is called accepted that has no document.
                let judged = translate::attach::conflict(&plan).and_then(|conflict| match conflict {
                    None if !translate::certain(&plan) => {
                        translate::translate(&plan, self.view.settings).map(|_| None)
                    }
                    conflict => Ok(conflict),
                });
                match judged {
                    Ok(None) => {}
                    Ok(Some(why)) => {
                        let why = text::cut(why, 4_000);
                        let refusal = Refusal::new("AttachmentConflict", Disposition::Keep, why);
                        draft.base_refusal = Some(refusal);
                    }
                    Err(refusal) => {
                        draft.failed.insert((*path).to_owned(), refusal.to_string());
                    }
                }
            }
            for (host, index) in &hosts {
                let Some(claimant) = claimants.get(index) else {
                    continue;
                };
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
                    claimant: Arc::clone(claimant),
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
}

/// Certificates by host: those of every HTTPS listener that yields it, as far as they are for the host. Tyk would serve any
/// other for the names in it alone.
fn certificates<'a>(
    route: &HttpRoute,
    listeners: impl Iterator<Item = &'a ListenerFacts>,
) -> BTreeMap<String, Vec<CertificateUse>> {
    let mut found: BTreeMap<String, BTreeSet<&CertificateUse>> = BTreeMap::new();
    for listener in listeners.filter(|l| !l.certificates.is_empty()) {
        for host in listener.effective(&route.hostnames).into_iter().flatten() {
            let fitting = listener
                .certificates
                .iter()
                .filter(|used| used.certificate.is_for(&host));
            let fitting: Vec<&CertificateUse> = fitting.collect();
            found.entry(host).or_default().extend(fitting);
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
                    "host {wild} covers {}: Tyk Gateway does not prefer the more specific host; give them different paths, or \
                     different data planes",
                    text::list(covered)
                ),
            ));
        }
    }
}
