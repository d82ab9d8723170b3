//! References to backends: whether they resolve, and who gets which share of the traffic.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::snapshot::{GATEWAY, Object, World, at, list, text},
    Installation, Tri,
    platform::is_granted,
    rules::Rules,
};

/// The upstream of a reference that does not resolve.
pub(super) const UNRESOLVED: &str = "http://unresolved.backend.invalid";

/// Shares of the traffic by authority; `None` for what is not resolved.
pub(super) type Shares = BTreeMap<Option<String>, f64>;

/// What a reference comes to.
enum Target {
    Authorities(Vec<String>),
    Unresolved(&'static str),
    /// Lenient: an appProtocol that the contract does not decide.
    Open,
}

/// Grant first; a core Service with a port that it has; no ExternalName; plain http.
fn target(
    world: &World<'_>,
    installation: &Installation<'_>,
    route: Object<'_>,
    reference: &Value,
) -> Target {
    let namespace = text(reference, "/namespace").unwrap_or(route.namespace());
    let name = text(reference, "/name").unwrap_or_default();
    let group = at(reference, "/group").as_str().unwrap_or_default();
    let kind = text(reference, "/kind").unwrap_or("Service");
    let from = (GATEWAY, "HTTPRoute", route.namespace());
    if !is_granted(world, from, (group, kind, namespace, name)) {
        return Target::Unresolved("RefNotPermitted");
    }
    let Some(port) = at(reference, "/port")
        .as_i64()
        .filter(|_| group.is_empty() && kind == "Service")
    else {
        return Target::Unresolved("InvalidKind");
    };
    let Some(service) = world.get("", "Service", namespace, name) else {
        return Target::Unresolved("BackendNotFound");
    };
    if text(service.spec(), "/type") == Some("ExternalName") {
        return Target::Unresolved("InvalidKind");
    }
    let ports = list(service.spec(), "/ports").iter();
    let tcp = |entry: &&Value| text(entry, "/protocol").is_none_or(|protocol| protocol == "TCP");
    let mut same = ports
        .filter(|entry| at(entry, "/port").as_i64() == Some(port))
        .filter(tcp);
    let Some(entry) = same.next() else {
        return Target::Unresolved("BackendNotFound");
    };
    match text(entry, "/appProtocol") {
        None | Some("http") => {}
        Some("https" | "grpc" | "kubernetes.io/h2c") => return Target::Unresolved("UnsupportedProtocol"),
        Some(_) => return Target::Open,
    }
    if text(service.spec(), "/clusterIP") == Some("None") {
        return Target::Authorities(addresses(world, service, entry));
    }
    let domain = &installation.flags.cluster_domain;
    Target::Authorities(vec![format!("{name}.{namespace}.svc.{domain}:{port}")])
}

/// Ready addresses of a headless Service with the port of the same name.
fn addresses(world: &World<'_>, service: Object<'_>, port: &Value) -> Vec<String> {
    let port_name = text(port, "/name").unwrap_or_default();
    let mut all = BTreeSet::new();
    for slice in world.all("discovery.k8s.io", "EndpointSlice") {
        let of_service = slice.label("kubernetes.io/service-name") == Some(service.name());
        if slice.namespace() != service.namespace() || !of_service {
            continue;
        }
        let ports = list(slice.0, "/ports").iter();
        let mut named = ports.filter(|entry| {
            text(entry, "/name").unwrap_or_default() == port_name
                && text(entry, "/protocol").is_none_or(|protocol| protocol == "TCP")
        });
        let Some(number) = named.next().and_then(|entry| at(entry, "/port").as_i64()) else {
            continue;
        };
        for endpoint in list(slice.0, "/endpoints") {
            if at(endpoint, "/conditions/ready") == &Value::Bool(false) {
                continue;
            }
            for address in list(endpoint, "/addresses").iter().filter_map(Value::as_str) {
                all.insert(match address.contains(':') {
                    true => format!("[{address}]:{number}"),
                    false => format!("{address}:{number}"),
                });
            }
        }
    }
    all.into_iter().collect()
}

/// Reasons that `ResolvedRefs` may have. References of rules that are dropped, and those of weight 0, may count.
pub(super) fn resolved_refs(
    world: &World<'_>,
    installation: &Installation<'_>,
    route: Object<'_>,
    rules: &Rules<'_>,
) -> Vec<&'static str> {
    let mut must = BTreeSet::new();
    let mut may = BTreeSet::new();
    let kept: Vec<*const Value> = rules
        .kept
        .iter()
        .flat_map(|rule| rule.backends.iter().map(std::ptr::from_ref))
        .collect();
    for rule in list(route.spec(), "/rules") {
        for reference in list(rule, "/backendRefs") {
            let counts = kept.contains(&std::ptr::from_ref(reference)) && weight(reference) > 0;
            match target(world, installation, route, reference) {
                Target::Authorities(_) => {}
                Target::Unresolved(reason) if counts && rules.open.is_none() => {
                    must.insert(reason);
                }
                Target::Unresolved(reason) => {
                    may.insert(reason);
                }
                Target::Open => {
                    may.insert("UnsupportedProtocol");
                }
            }
        }
    }
    let mut reasons: Vec<&'static str> = if must.is_empty() {
        vec!["ResolvedRefs"]
    } else {
        Vec::new()
    };
    reasons.extend(must.union(&may));
    reasons
}

fn weight(reference: &Value) -> u64 {
    at(reference, "/weight").as_u64().unwrap_or(1)
}

/// Who gets which share of the traffic of these references. `Maybe`: a reference is open.
pub(super) fn shares(
    world: &World<'_>,
    installation: &Installation<'_>,
    route: Object<'_>,
    references: &[Value],
) -> (Shares, Tri) {
    let mut shares = Shares::new();
    let mut sure = Tri::Yes;
    for reference in references.iter().filter(|reference| weight(reference) > 0) {
        let share = weight(reference) as f64;
        match target(world, installation, route, reference) {
            Target::Authorities(all) if !all.is_empty() => {
                for authority in &all {
                    *shares.entry(Some(authority.clone())).or_default() += share / all.len() as f64;
                }
            }
            // Lenient: a headless Service without ready addresses beside other backends is left open.
            Target::Authorities(_) => {
                sure = Tri::Maybe;
                *shares.entry(None).or_default() += share;
            }
            Target::Unresolved(_) => *shares.entry(None).or_default() += share,
            Target::Open => sure = Tri::Maybe,
        }
    }
    if shares.is_empty() {
        shares.insert(None, 1.0);
    }
    let sum: f64 = shares.values().sum();
    shares.values_mut().for_each(|share| *share /= sum);
    (shares, sure)
}
