//! Listeners of one Gateway: protocol, port, conflicts, kinds, certificates. Routes come later.

use std::collections::BTreeSet;

use reconcile_kit::Condition;

use super::{
    super::{
        objects::{
            GATEWAY_GROUP, Gateway, Key, Kind, Service,
            gateway::{AllowedNamespaces, CertificateRef, Listener},
        },
        verdict::{CertificateUse, ListenerVerdict},
    },
    grants::{self, Reference},
    host, text,
    view::View,
};

/// The kind of routes that attach here.
const ROUTE: (&str, &str) = (GATEWAY_GROUP, "HTTPRoute");

/// What routes need to know of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListenerFacts {
    pub(super) name: String,
    pub(super) port: u16,
    /// HTTPS, else HTTP.
    pub(super) secure: bool,
    pub(super) hostname: Option<String>,
    /// A hostname is written that is none: no host is meant by it, least of all any host.
    pub(super) nameless: bool,
    pub(super) namespaces: AllowedNamespaces,
    /// HTTPRoutes are among its kinds.
    pub(super) admits_routes: bool,
    /// Why it serves nothing: reason and message; `None` for a listener that serves.
    pub(super) broken: Option<(&'static str, String)>,
    /// Sorted; empty without TLS.
    pub(super) certificates: Vec<CertificateUse>,
}

impl ListenerFacts {
    /// Effective hostnames of a route here (`None` in the set: any host). Empty: they do not meet.
    pub(super) fn effective(&self, route: &[String]) -> BTreeSet<Option<String>> {
        if self.nameless {
            return BTreeSet::new();
        }
        host::effective(self.hostname.as_deref(), route)
    }
}

/// A listener with its conditions.
pub(super) struct Judged {
    pub(super) verdict: ListenerVerdict,
    pub(super) facts: ListenerFacts,
    /// Nothing at all is wrong with it.
    pub(super) clean: bool,
}

type Fault = (&'static str, String);

/// What speaks against a listener by itself; `None` if its protocol is served.
fn protocol_fault(listener: &Listener) -> Option<Fault> {
    let wrong = match listener.protocol.as_str() {
        "HTTP" => return None,
        "HTTPS" => {
            let mode = listener.tls.as_ref().map_or("Terminate", |tls| tls.mode.as_str());
            if mode == "Terminate" {
                return None;
            }
            format!("tls.mode {mode} is not supported; use Terminate")
        }
        other => format!("protocol {other} is not supported; use HTTP or HTTPS"),
    };
    Some(("UnsupportedProtocol", wrong))
}

/// Whether a listener can be in another's way. One that is refused for itself is not: what it lacks, such as a
/// hostname that cannot be read, would look like something that it says.
fn counts(listener: &Listener) -> bool {
    listener.problems.is_empty() && protocol_fault(listener).is_none()
}

/// Conflicts on one port: every listener that has one is refused.
fn conflict(index: usize, listeners: &[Listener]) -> Option<Fault> {
    let this = listeners.get(index).filter(|this| counts(this))?;
    let others: Vec<&Listener> = listeners
        .iter()
        .enumerate()
        .filter(|(i, other)| *i != index && other.port == this.port && counts(other))
        .map(|(_, other)| other)
        .collect();
    let named = |found: Vec<&Listener>| text::list(found.iter().map(|l| l.name.clone()));
    let by_protocol: Vec<_> = others
        .iter()
        .copied()
        .filter(|other| other.protocol != this.protocol)
        .collect();
    if !by_protocol.is_empty() {
        let message = format!(
            "port {} has another protocol on listener {}; one of them needs another port",
            this.port,
            named(by_protocol)
        );
        return Some(("ProtocolConflict", message));
    }
    let by_host: Vec<_> = others
        .into_iter()
        .filter(|other| other.hostname == this.hostname)
        .collect();
    (!by_host.is_empty()).then(|| {
        let message = format!(
            "port {} has the same hostname on listener {}; one of them needs another hostname or port",
            this.port,
            named(by_host)
        );
        ("HostnameConflict", message)
    })
}

/// The certificates of an HTTPS listener; or what is wrong with them, the denied reference first.
fn certificates(view: &View<'_>, gateway: &Key, listener: &Listener) -> Result<Vec<CertificateUse>, Fault> {
    let refs = listener
        .tls
        .as_ref()
        .map_or(&[][..], |tls| tls.certificates.as_slice());
    if refs.is_empty() {
        return Err((
            "InvalidCertificateRef",
            "tls.certificateRefs: an HTTPS listener needs a certificate".to_owned(),
        ));
    }
    let mut found = BTreeSet::new();
    let (mut denied, mut invalid) = (Vec::new(), Vec::new());
    for (index, reference) in refs.iter().enumerate() {
        let place = format!("tls.certificateRefs[{index}]");
        match certificate(view, gateway, reference) {
            Ok(use_) => {
                found.insert(use_);
            }
            Err(("RefNotPermitted", why)) => denied.push(format!("{place}: {why}")),
            Err((_, why)) => invalid.push(format!("{place}: {why}")),
        }
    }
    if !denied.is_empty() {
        return Err(("RefNotPermitted", text::list(denied)));
    }
    if !invalid.is_empty() {
        return Err(("InvalidCertificateRef", text::list(invalid)));
    }
    Ok(found.into_iter().collect())
}

fn certificate(view: &View<'_>, gateway: &Key, reference: &CertificateRef) -> Result<CertificateUse, Fault> {
    let invalid = |why: String| ("InvalidCertificateRef", why);
    if !reference.group.is_empty() || reference.kind != "Secret" {
        return Err(invalid("must refer to a Secret of the core group".to_owned()));
    }
    let namespace = reference.namespace.as_ref().unwrap_or(&gateway.namespace);
    let key = Key::new(namespace, &reference.name);
    // Before anything about the target is said.
    let permitted = grants::permitted(
        view,
        &Reference {
            from_group: GATEWAY_GROUP,
            from_kind: "Gateway",
            from_namespace: &gateway.namespace,
            group: "",
            kind: "Secret",
            namespace,
            name: &reference.name,
        },
    );
    if !permitted {
        return Err((
            "RefNotPermitted",
            format!(
                "no ReferenceGrant in namespace {namespace} allows Gateways of namespace {} to use Secret {key}",
                gateway.namespace
            ),
        ));
    }
    let secret = view.secret(&key).ok_or_else(|| {
        let why = view.absence(Kind::Secret, &key);
        invalid(format!("Secret {key} {why}"))
    })?;
    if secret.type_ != "kubernetes.io/tls" {
        return Err(invalid(format!("Secret {key} is not of type kubernetes.io/tls")));
    }
    match &secret.tls {
        Some(Ok(certificate)) => Ok(CertificateUse {
            certificate: certificate.clone(),
            secret: key,
        }),
        Some(Err(why)) => Err(invalid(format!("Secret {key}: {why}"))),
        None => Err(invalid(format!("Secret {key} holds no certificate"))),
    }
}

/// What is to be known of the names in a listener's certificates: Tyk chooses a certificate by them alone.
fn about_names(listener: &Listener, gateway: &Gateway, certificates: &[CertificateUse]) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(host) = listener.hostname.as_deref()
        && !certificates.is_empty()
        && !certificates.iter().any(|used| used.certificate.is_for(host))
    {
        said.push(format!(
            "no certificate is for {host}: Tyk answers it with another one; name a Secret whose certificate has the hostname"
        ));
    }
    let known = |name: &str| {
        let mut listeners = gateway.listeners.iter().filter(|listener| counts(listener));
        listeners.any(|listener| {
            let of = |host: &str| host::intersect(host, name).is_some();
            listener.hostname.as_deref().is_none_or(of)
        })
    };
    for used in certificates {
        let foreign: Vec<String> = used
            .certificate
            .names
            .iter()
            .filter(|name| !known(name))
            .cloned()
            .collect();
        if !foreign.is_empty() {
            said.push(format!(
                "the certificate of Secret {} is also for {}, which no listener of this Gateway has: Tyk uses it for every \
                 API of these names; take them out of the certificate unless they are meant",
                used.secret,
                text::list(foreign)
            ));
        }
    }
    said
}

/// The kinds that may attach, and what is wrong with the list of kinds.
fn kinds(listener: &Listener) -> (Vec<(&'static str, &'static str)>, Option<Fault>) {
    if protocol_fault(listener).is_some() {
        return (Vec::new(), None);
    }
    let is_route = |(group, kind): &&(String, String)| (group.as_str(), kind.as_str()) == ROUTE;
    let other: Vec<String> = listener
        .kinds
        .iter()
        .filter(|kind| !is_route(kind))
        .map(|(group, kind)| {
            if group.is_empty() {
                kind.clone()
            } else {
                format!("{group}/{kind}")
            }
        })
        .collect();
    let supported = if listener.kinds.is_empty() || listener.kinds.iter().any(|kind| is_route(&kind)) {
        vec![ROUTE]
    } else {
        Vec::new()
    };
    let fault = (!other.is_empty()).then(|| {
        let message = format!(
            "allowedRoutes.kinds: not supported: {}; only HTTPRoute is",
            text::list(other)
        );
        ("InvalidRouteKinds", message)
    });
    (supported, fault)
}

/// Whether another HTTPS listener of the port can be meant by the same name.
fn overlapping(index: usize, listeners: &[Listener]) -> Option<Condition> {
    let this = listeners.get(index).filter(|this| this.problems.is_empty())?;
    if this.protocol != "HTTPS" {
        return None;
    }
    let others: Vec<String> = listeners
        .iter()
        .enumerate()
        .filter(|(i, other)| {
            *i != index
                && other.problems.is_empty()
                && other.protocol == "HTTPS"
                && other.port == this.port
                && host::overlap(this.hostname.as_deref(), other.hostname.as_deref())
        })
        .map(|(_, other)| other.name.clone())
        .collect();
    (!others.is_empty()).then(|| {
        let message = format!(
            "the hostname overlaps with that of listener {}",
            text::list(others)
        );
        Condition::new("OverlappingTLSConfig", true, "OverlappingHostnames", message)
    })
}

/// Judges the listeners of a Gateway. `service`: the data plane's, if it is known and exists. `unusable`: why the
/// Gateway as a whole serves nothing, as reason of Programmed and message.
pub(super) fn judge(
    view: &View<'_>,
    gateway: &Gateway,
    service: Option<&Service>,
    unusable: Option<(&'static str, &str)>,
) -> Vec<Judged> {
    (0..gateway.listeners.len())
        .filter_map(|index| one(view, gateway, index, service, unusable))
        .collect()
}

fn one(
    view: &View<'_>,
    gateway: &Gateway,
    index: usize,
    service: Option<&Service>,
    unusable: Option<(&'static str, &str)>,
) -> Option<Judged> {
    let listener = gateway.listeners.get(index)?;
    let conflict = conflict(index, &gateway.listeners);
    let refused = if let Some(problem) = listener.problems.first() {
        Some(("UnsupportedValue", problem.to_string()))
    } else {
        protocol_fault(listener)
            .or_else(|| conflict.clone())
            .or_else(|| port_fault(listener, service))
    };
    let (supported_kinds, wrong_kinds) = kinds(listener);
    let secured = listener.protocol == "HTTPS" && protocol_fault(listener).is_none();
    let (certificates, bad_certificates) = if secured {
        match certificates(view, &gateway.meta.key, listener) {
            Ok(certificates) => (certificates, None),
            Err(fault) => (Vec::new(), Some(fault)),
        }
    } else {
        (Vec::new(), None)
    };
    let only_wrong_kinds = wrong_kinds.clone().filter(|_| supported_kinds.is_empty());
    let broken = refused
        .clone()
        .or_else(|| bad_certificates.clone())
        .or(only_wrong_kinds);
    let unresolved = bad_certificates.or(wrong_kinds);
    let clean = refused.is_none() && unresolved.is_none();

    let names = text::list(about_names(listener, gateway, &certificates));
    let accepted = match &refused {
        None => Condition::new("Accepted", true, "Accepted", ""),
        Some((reason, message)) => Condition::new("Accepted", false, reason, message.clone()),
    };
    let resolved = match unresolved {
        None => Condition::new("ResolvedRefs", true, "ResolvedRefs", names),
        Some((reason, message)) => Condition::new("ResolvedRefs", false, reason, message),
    };
    let programmed = match (unusable, &conflict, &broken) {
        (Some((reason, why)), _, _) => Condition::new("Programmed", false, reason, why),
        (None, Some((reason, message)), _) => Condition::new("Programmed", false, reason, message.clone()),
        (None, None, Some((_, message))) => Condition::new("Programmed", false, "Invalid", message.clone()),
        (None, None, None) => Condition::new("Programmed", true, "Programmed", ""),
    };
    let mut conditions = vec![accepted, resolved, programmed];
    conditions.extend(conflict.map(|(reason, message)| Condition::new("Conflicted", true, reason, message)));
    conditions.extend(overlapping(index, &gateway.listeners));
    Some(Judged {
        facts: ListenerFacts {
            name: listener.name.clone(),
            port: listener.port,
            secure: listener.protocol == "HTTPS",
            hostname: listener.hostname.clone(),
            nameless: listener.hostname.is_none()
                && listener
                    .problems
                    .iter()
                    .any(|problem| problem.path.ends_with(".hostname")),
            namespaces: listener.namespaces.clone(),
            admits_routes: !supported_kinds.is_empty(),
            broken,
            certificates,
        },
        verdict: ListenerVerdict {
            name: listener.name.clone(),
            supported_kinds,
            attached_routes: 0,
            conditions,
        },
        clean,
    })
}

fn port_fault(listener: &Listener, service: Option<&Service>) -> Option<Fault> {
    let service = service.filter(|service| !service.ports.is_empty() || service.other_ports)?;
    let exposed = service.ports.iter().any(|port| port.port == listener.port);
    (!exposed).then(|| {
        let ports = text::list(service.ports.iter().map(|port| port.port.to_string()));
        let ports = if ports.is_empty() { "none of TCP" } else { &ports };
        let message = format!(
            "port {} is not a port of Service {} of the data plane; it has: {ports}",
            listener.port, service.key
        );
        ("PortUnavailable", message)
    })
}
