//! Gateway: contexts, data plane, addresses, the conditions that sum up its listeners.

use std::{net::IpAddr, sync::Arc};

use reconcile_kit::Condition;

use super::{
    super::{
        objects::{
            Gateway, Key, Service, class::GATEWAY_NAMESPACES, core::IngressAddress, text::is_object_name,
        },
        verdict::{Connection, GatewayVerdict, Mode, Notice},
    },
    claims,
    class::{self, ClassFacts, Plane, Unusable},
    listener::{self, Judged, ListenerFacts},
    text,
    view::View,
};

/// The most addresses that status.addresses may hold.
const MOST_ADDRESSES: usize = 16;

/// What routes need to know of a Gateway of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayFacts {
    pub(super) key: Key,
    /// The connection, or why routes cannot use the Gateway.
    pub(super) connection: Result<Arc<Connection>, Unusable>,
    /// The Tyk behind the connection, as claims compare it.
    pub(super) site: Option<Arc<str>>,
    /// Segment tags.
    pub(super) tags: Arc<[String]>,
    pub(super) listeners: Vec<ListenerFacts>,
}

/// Where the gateways are.
enum Reach<'a> {
    /// Nobody says.
    Unknown(String),
    /// The Service that says.
    At(&'a Service),
}

/// Answer (without counts of routes) and facts of a Gateway of ours.
pub(super) fn gateway(
    view: &View<'_>,
    gateway: &Gateway,
    class: &ClassFacts,
) -> (GatewayVerdict, GatewayFacts) {
    let key = &gateway.meta.key;
    let own = gateway.parameters.as_ref().map(|parameters| {
        class::context(
            view,
            "spec.infrastructure.parametersRef",
            parameters,
            &key.namespace,
        )
    });
    // Why the whole Gateway is refused: reason of Accepted, and the message.
    let closed = class
        .namespaces
        .as_ref()
        .is_some_and(|allowed| !allowed.contains(&key.namespace));
    let refused = if closed {
        Some((
            "Invalid",
            format!(
                "GatewayClass {} allows no Gateways of namespace {}: the namespaces that it allows are in its annotation \
                 {GATEWAY_NAMESPACES}",
                gateway.class, key.namespace
            ),
        ))
    } else if let Err(Unusable::Unreadable(why)) = &class.connection {
        Some(("Invalid", format!("GatewayClass {}: {why}", gateway.class)))
    } else if let Some(Err(why)) = &own {
        Some(("InvalidParameters", why.clone()))
    } else if !gateway.problems.is_empty() {
        let problems = text::list(gateway.problems.iter().map(ToString::to_string));
        Some(("Invalid", problems))
    } else {
        None
    };
    let own_plane = own
        .as_ref()
        .and_then(|own| own.as_ref().ok())
        .and_then(|own| Plane::of(own));
    let plane = merge(class.plane.as_ref(), own_plane);
    let reach = reach(view, gateway, class, plane.as_ref());
    let service = match &reach {
        Reach::At(service) => Some(*service),
        Reach::Unknown(_) => None,
    };
    let unusable = match (&refused, &class.connection) {
        (Some((_, why)), _) => Some(("Invalid", why.as_str())),
        (None, Err(Unusable::Environment(why) | Unusable::Unreadable(why))) => {
            Some(("Pending", why.as_str()))
        }
        (None, Ok(_)) => None,
    };
    let listeners = listener::judge(view, gateway, service, unusable);
    let (addresses, unaddressed) = match &reach {
        Reach::Unknown(why) => (Vec::new(), Some(("UnsupportedAddress", why.clone()))),
        Reach::At(service) => addresses(service, &view.settings.cluster_domain),
    };
    let conditions = conditions(
        gateway,
        class,
        refused.as_ref(),
        &listeners,
        &addresses,
        unaddressed,
    );
    let notices = notices(class, plane.as_ref());
    let connection = match (&class.connection, refused) {
        (_, Some((_, why))) if closed => Err(Unusable::Unreadable(why)),
        (Err(why), _) => Err(match why {
            Unusable::Unreadable(why) => {
                Unusable::Unreadable(format!("GatewayClass {}: {why}", gateway.class))
            }
            Unusable::Environment(why) => {
                Unusable::Environment(format!("GatewayClass {}: {why}", gateway.class))
            }
        }),
        (Ok(_), Some((_, why))) => Err(Unusable::Unreadable(why)),
        (Ok(connection), None) => Ok(Arc::clone(connection)),
    };
    let tags = plane.and_then(|plane| plane.tags).unwrap_or_default().1;
    let site = connection.as_ref().ok().map(|c| claims::site(c));
    let (verdicts, facts) = listeners.into_iter().map(|l| (l.verdict, l.facts)).unzip();
    (
        GatewayVerdict {
            conditions,
            addresses,
            listeners: verdicts,
            notices,
        },
        GatewayFacts {
            key: key.clone(),
            connection,
            site,
            tags: tags.into(),
            listeners: facts,
        },
    )
}

/// The Gateway's own context overrides that of the class, field by field.
fn merge(class: Option<&Plane>, own: Option<Plane>) -> Option<Plane> {
    match (class, own) {
        (class, None) => class.cloned(),
        (None, own) => own,
        (Some(class), Some(own)) => Some(Plane {
            context: own.context,
            service: own.service.or_else(|| class.service.clone()),
            tags: own.tags.or_else(|| class.tags.clone()),
        }),
    }
}

fn reach<'a>(view: &View<'a>, gateway: &Gateway, class: &ClassFacts, plane: Option<&Plane>) -> Reach<'a> {
    let Some(plane) = plane else {
        let why = match &gateway.parameters {
            None => {
                "no address is known: set spec.infrastructure.parametersRef to an OperatorContext with \
                 spec.dataPlane.serviceRef"
            }
            Some(_) => "no address is known: set spec.dataPlane.serviceRef in the Gateway's OperatorContext",
        };
        return Reach::Unknown(why.to_owned());
    };
    let Some((context, service)) = &plane.service else {
        let default = class
            .plane
            .as_ref()
            .map_or("", |_| " or in that of the GatewayClass");
        return Reach::Unknown(format!(
            "no address is known: set spec.dataPlane.serviceRef in OperatorContext {}{default}",
            plane.context
        ));
    };
    match view.service(service) {
        Some(service) => Reach::At(service),
        None => Reach::Unknown(format!(
            "OperatorContext {context}: spec.dataPlane.serviceRef: Service {service} does not exist"
        )),
    }
}

type Addresses = (Vec<(&'static str, String)>, Option<(&'static str, String)>);

/// An address as status.addresses takes it; what it does not take would cost the whole status. Kubernetes takes more: a
/// name with a dot at its end, numbers with zeros in front.
fn usable(address: &IngressAddress) -> Option<(&'static str, String)> {
    match address {
        IngressAddress::Ip(ip) => ip.parse::<IpAddr>().ok().map(|_| ("IPAddress", ip.clone())),
        IngressAddress::Hostname(name) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            is_object_name(&name).then_some(("Hostname", name))
        }
    }
}

/// status.addresses after the Service, or why there are none.
fn addresses(service: &Service, domain: &str) -> Addresses {
    let (written, none) = match service.type_.as_str() {
        "LoadBalancer" => (service.ingress.clone(), "the load balancer has no address yet"),
        "ExternalName" => {
            let name = service.external_name.clone().filter(|name| !name.is_empty());
            let name = name.map(IngressAddress::Hostname);
            (name.into_iter().collect(), "spec.externalName is empty")
        }
        _ => {
            let address = service.cluster_ip.as_deref().map(|ip| match ip {
                "None" => {
                    let Key { namespace, name } = &service.key;
                    IngressAddress::Hostname(format!("{name}.{namespace}.svc.{domain}"))
                }
                ip => IngressAddress::Ip(ip.to_owned()),
            });
            (address.into_iter().collect(), "it has no cluster IP yet")
        }
    };
    let found: Vec<_> = written.iter().filter_map(usable).take(MOST_ADDRESSES).collect();
    if !found.is_empty() {
        return (found, None);
    }
    let why = if written.is_empty() {
        none.to_owned()
    } else {
        let written = written.into_iter().map(|address| match address {
            IngressAddress::Ip(text) | IngressAddress::Hostname(text) => text,
        });
        format!("it has nothing that is an address: {}", text::list(written))
    };
    let why = format!("Service {}: {why}", service.key);
    (found, Some(("AddressNotAssigned", why)))
}

fn conditions(
    gateway: &Gateway,
    class: &ClassFacts,
    refused: Option<&(&'static str, String)>,
    listeners: &[Judged],
    addresses: &[(&'static str, String)],
    unaddressed: Option<(&'static str, String)>,
) -> Vec<Condition> {
    let broken: Vec<String> = listeners
        .iter()
        .filter(|l| !l.clean)
        .map(|l| {
            let why = l
                .verdict
                .conditions
                .iter()
                .find(|c| c.status == reconcile_kit::ConditionStatus::False && c.type_ != "Programmed");
            format!("{}: {}", l.verdict.name, why.map_or("", |c| c.reason))
        })
        .collect();
    let serving = listeners.iter().any(|l| l.facts.broken.is_none());
    let accepted = match refused {
        Some((reason, why)) => Condition::new("Accepted", false, reason, why.clone()),
        None if !serving => Condition::new(
            "Accepted",
            false,
            "ListenersNotValid",
            if broken.is_empty() {
                "spec.listeners: no listener".to_owned()
            } else {
                format!("no listener is valid: {}", text::list(broken))
            },
        ),
        None if !broken.is_empty() => Condition::new(
            "Accepted",
            true,
            "ListenersNotValid",
            format!("some listeners are not valid: {}", text::list(broken)),
        ),
        None => Condition::new("Accepted", true, "Accepted", ""),
    };
    let mut programmed = match (refused, serving, &class.connection, unaddressed) {
        (Some((_, why)), _, _, _) => Condition::new("Programmed", false, "Invalid", why.clone()),
        (None, false, _, _) => Condition::new("Programmed", false, "Invalid", "no listener is valid"),
        (None, true, _, Some((reason, why))) => Condition::new("Programmed", false, reason, why),
        (None, true, Err(Unusable::Environment(why) | Unusable::Unreadable(why)), None) => Condition::new(
            "Programmed",
            false,
            "Pending",
            format!("GatewayClass {}: {why}", gateway.class),
        ),
        (None, true, Ok(_), None) => Condition::new("Programmed", true, "Programmed", ""),
    };
    // What was asked for and is not to be had is said, in the condition that speaks of addresses.
    let unmet: Vec<String> = gateway
        .addresses
        .iter()
        .filter(|(type_, value)| {
            // Without a value any address of the type will do.
            let had = |(of, have): &(_, String)| have == value || (value.is_empty() && of == type_);
            !addresses.iter().any(had)
        })
        .map(|(type_, value)| {
            if value.is_empty() {
                format!("any {type_}")
            } else {
                value.clone()
            }
        })
        .collect();
    if !unmet.is_empty() {
        if !programmed.message.is_empty() {
            programmed.message.push_str("; ");
        }
        programmed.message.push_str(&format!(
            "spec.addresses is ignored ({}): the address is that of the Service of the data plane",
            text::list(unmet)
        ));
    }
    vec![accepted, programmed]
}

fn notices(class: &ClassFacts, plane: Option<&Plane>) -> Vec<Notice> {
    let Ok(connection) = &class.connection else {
        return Vec::new();
    };
    let tags = plane
        .and_then(|plane| plane.tags.as_ref())
        .filter(|(_, tags)| !tags.is_empty());
    let (reason, message) = match (plane, connection.mode, tags) {
        (None, _, _) => (
            "NoDataPlane",
            "there is no data-plane context: every Tyk Gateway that is not segmented loads the APIs of this \
             Gateway's routes; set spec.infrastructure.parametersRef to an OperatorContext with spec.dataPlane.tags"
                .to_owned(),
        ),
        (Some(plane), Mode::Dashboard, None) => (
            "NoGatewayTags",
            format!(
                "spec.dataPlane.tags is not set in OperatorContext {}: every Tyk Gateway that is not segmented loads \
                 the APIs of this Gateway's routes",
                plane.context
            ),
        ),
        (Some(_), Mode::OpenSource, Some((context, _))) => (
            "GatewayTagsIgnored",
            format!(
                "an open-source Tyk Gateway ignores tags: spec.dataPlane.tags of OperatorContext {context} separate \
                 nothing; remove them, and give a data plane of its own a GatewayClass of its own"
            ),
        ),
        _ => return Vec::new(),
    };
    vec![Notice {
        warning: true,
        reason,
        message,
    }]
}
