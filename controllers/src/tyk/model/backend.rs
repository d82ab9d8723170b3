//! Backend references of a route: where each leads, or why nowhere. Shares are made elsewhere.

use std::collections::BTreeSet;

use reconcile_kit::Condition;

use super::{
    super::objects::{GATEWAY_GROUP, HttpRoute, Key, core::ServicePort, route::BackendRef, text::is_label},
    grants::{self, Reference},
    text,
    view::View,
};

/// The authorities that share a backend's weight evenly (`None`: none is known), or reason and message.
pub(super) type Resolved = Result<Vec<Option<String>>, (&'static str, String)>;

/// Reasons of ResolvedRefs, the one that is reported first when several hold.
const SEVERITY: [&str; 4] = [
    "RefNotPermitted",
    "InvalidKind",
    "BackendNotFound",
    "UnsupportedProtocol",
];

/// Resolves every backend of every rule.
pub(super) fn resolve_all(view: &View<'_>, route: &HttpRoute) -> Vec<Vec<Resolved>> {
    route
        .rules
        .iter()
        .map(|rule| {
            rule.backends
                .iter()
                .map(|backend| resolve(view, &route.meta.key.namespace, backend))
                .collect()
        })
        .collect()
}

/// ResolvedRefs of a route.
pub(super) fn condition(resolved: &[Vec<Resolved>]) -> Condition {
    let faults = || {
        resolved.iter().enumerate().flat_map(|(rule, backends)| {
            backends
                .iter()
                .enumerate()
                .filter_map(move |(index, result)| Some((rule, index, result.as_ref().err()?)))
        })
    };
    let Some(reason) = SEVERITY
        .into_iter()
        .find(|reason| faults().any(|(_, _, fault)| fault.0 == *reason))
    else {
        return Condition::new("ResolvedRefs", true, "ResolvedRefs", "");
    };
    let message = text::list(
        faults().map(|(rule, index, fault)| format!("spec.rules[{rule}].backendRefs[{index}]: {}", fault.1)),
    );
    Condition::new("ResolvedRefs", false, reason, message)
}

fn resolve(view: &View<'_>, namespace: &str, backend: &BackendRef) -> Resolved {
    if backend.is_unreadable() {
        // The rule is not served, and its problem is told in Accepted.
        return Ok(Vec::new());
    }
    let target = backend.namespace.as_deref().unwrap_or(namespace);
    let key = Key::new(target, &backend.name);
    // Before anything about the target is said.
    let reference = Reference {
        from_group: GATEWAY_GROUP,
        from_kind: "HTTPRoute",
        from_namespace: namespace,
        group: &backend.group,
        kind: &backend.kind,
        namespace: target,
        name: &backend.name,
    };
    if !grants::permitted(view, &reference) {
        let message = format!(
            "no ReferenceGrant in namespace {target} allows HTTPRoutes of namespace {namespace} to use {} {key}",
            backend.kind
        );
        return Err(("RefNotPermitted", message));
    }
    if !backend.group.is_empty() || backend.kind != "Service" {
        let group = if backend.group.is_empty() {
            "core"
        } else {
            &backend.group
        };
        let message = format!(
            "kind {} of group {group} is not supported; use a Service",
            backend.kind
        );
        return Err(("InvalidKind", message));
    }
    let Some(port) = backend.port else {
        return Err(("InvalidKind", format!("port is missing: Service {key} needs one")));
    };
    if !is_label(&backend.name) {
        let message = format!("{:?} is no name that a Service can have", backend.name);
        return Err(("BackendNotFound", message));
    }
    let Some(service) = view.service(&key) else {
        return Err(("BackendNotFound", format!("Service {key} does not exist")));
    };
    if service.type_ == "ExternalName" {
        let message = format!(
            "Service {key} is of type ExternalName, which is not supported; use one with a cluster IP"
        );
        return Err(("InvalidKind", message));
    }
    let Some(found) = service.ports.iter().find(|p| p.port == port) else {
        let ports = text::list(service.ports.iter().map(|p| p.port.to_string()));
        let ports = if ports.is_empty() { "none" } else { &ports };
        let message = format!("Service {key} has no TCP port {port}; it has: {ports}");
        return Err(("BackendNotFound", message));
    };
    if let Some(protocol) = found
        .app_protocol
        .as_deref()
        .filter(|p| !matches!(*p, "" | "http"))
    {
        let message =
            format!("port {port} of Service {key} has appProtocol {protocol}; only http is supported");
        return Err(("UnsupportedProtocol", message));
    }
    if service.cluster_ip.as_deref() == Some("None") {
        return Ok(endpoints(view, &key, found));
    }
    let Key { namespace, name } = &key;
    let domain = &view.settings.cluster_domain;
    Ok(vec![Some(format!("{name}.{namespace}.svc.{domain}:{port}"))])
}

/// Ready addresses of a headless Service, each once.
fn endpoints(view: &View<'_>, service: &Key, port: &ServicePort) -> Vec<Option<String>> {
    let mut found = BTreeSet::new();
    for slice in view.slices(service) {
        for (_, number) in slice.ports.iter().filter(|(name, _)| *name == port.name) {
            found.extend(slice.ready.iter().map(|address| {
                if address.contains(':') {
                    format!("[{address}]:{number}")
                } else {
                    format!("{address}:{number}")
                }
            }));
        }
    }
    if found.is_empty() {
        return vec![None];
    }
    found.into_iter().map(Some).collect()
}
