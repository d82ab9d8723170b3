//! Gateway and its listeners, as far as decisions need them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    DecodeError, GATEWAY_GROUP, Meta, Problem, Scope,
    class::ParametersRef,
    text::hostname,
    walk::{Name, Node, Place},
};

/// A Gateway of any class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Metadata.
    pub meta: Meta,
    /// spec.gatewayClassName
    pub class: String,
    /// spec.listeners
    pub listeners: Vec<Listener>,
    /// spec.infrastructure.parametersRef
    pub parameters: Option<ParametersRef>,
    /// How many addresses spec.addresses asks for, with type and value as written.
    pub addresses: Vec<(String, String)>,
    /// Fields that do not decode.
    pub problems: Vec<Problem>,
}

/// One listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// name
    pub name: String,
    /// port
    pub port: u16,
    /// protocol, as written.
    pub protocol: String,
    /// hostname, lower-cased; `None` when absent or empty.
    pub hostname: Option<String>,
    /// tls
    pub tls: Option<ListenerTls>,
    /// allowedRoutes.namespaces
    pub namespaces: AllowedNamespaces,
    /// allowedRoutes.kinds as (group, kind), the group defaulted; empty when left out.
    pub kinds: Vec<(String, String)>,
    /// Fields of this listener that do not decode.
    pub problems: Vec<Problem>,
}

/// TLS of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    /// mode, as written; `Terminate` when left out.
    pub mode: String,
    /// certificateRefs
    pub certificates: Vec<CertificateRef>,
}

/// A reference to a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRef {
    /// API group, empty for core.
    pub group: String,
    /// Kind; `Secret` when left out.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, if written (default: the Gateway's).
    pub namespace: Option<String>,
}

/// Whose routes may attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// Those of the Gateway's namespace (the default).
    #[default]
    Same,
    /// All.
    All,
    /// Those of namespaces that the selector matches.
    Selector(LabelSelector),
    /// A value of `from` that is not known: admits nothing.
    Unknown(String),
}

/// A label selector; without any requirement it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// matchLabels
    pub labels: BTreeMap<String, String>,
    /// matchExpressions as (key, operator, values).
    pub expressions: Vec<(String, String, Vec<String>)>,
}

impl Gateway {
    /// Reads a Gateway. Fields that are not looked at are passed over, except those that would make it stricter.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut gateway = Self {
            meta: Meta::decode(value, Scope::Namespaced)?,
            ..Self::default()
        };
        let problems = &mut Vec::new();
        if let Some(spec) = value.get("spec").filter(|spec| !spec.is_null())
            && let Some(spec) = Node::of(Place::Root("spec"), spec, problems)
        {
            gateway.class = spec
                .text("gatewayClassName", problems)
                .unwrap_or_default()
                .to_owned();
            gateway.listeners = spec.each("listeners", problems, |listener, _| {
                Some(Listener::read(listener))
            });
            gateway.parameters = spec
                .with("infrastructure", problems, ParametersRef::below)
                .flatten();
            gateway.addresses = spec.each("addresses", problems, |address, problems| {
                Some((
                    address.filled("type", problems).unwrap_or("IPAddress").to_owned(),
                    address.text("value", problems).unwrap_or_default().to_owned(),
                ))
            });
            spec.with("tls", problems, |tls, problems| {
                if tls.get("frontend").is_some() {
                    problems.push(tls.at("frontend").problem(
                        "client certificates are not verified for a Gateway; remove the field and attach a \
                         TykOasApiDefinition with mutual TLS",
                    ));
                }
            });
        }
        gateway.problems = std::mem::take(problems);
        Ok(gateway)
    }
}

impl Listener {
    fn read(node: &Node<'_, '_>) -> Self {
        let problems = &mut Vec::new();
        let mut listener = Self {
            name: node.required("name", problems).unwrap_or_default().to_owned(),
            protocol: node.required("protocol", problems).unwrap_or_default().to_owned(),
            ..Self::default()
        };
        match node.get("port") {
            None => problems.push(node.at("port").problem("must be set")),
            Some(_) => listener.port = node.port("port", problems).unwrap_or_default(),
        }
        if let Some(text) = node.filled("hostname", problems) {
            match hostname(text, true) {
                Ok(name) => listener.hostname = Some(name),
                Err(why) => problems.push(node.at("hostname").problem(why)),
            }
        }
        listener.tls = node.with("tls", problems, ListenerTls::read);
        node.with("allowedRoutes", problems, |allowed, problems| {
            listener.namespaces = match allowed.get("namespaces") {
                None => AllowedNamespaces::Same,
                // What does not decode admits nothing.
                Some(_) => allowed
                    .with("namespaces", problems, AllowedNamespaces::read)
                    .unwrap_or_else(|| AllowedNamespaces::Unknown(String::new())),
            };
            listener.kinds = allowed.each("kinds", problems, |kind, problems| {
                Some((
                    kind.text("group", problems).unwrap_or(GATEWAY_GROUP).to_owned(),
                    kind.required("kind", problems)?.to_owned(),
                ))
            });
        });
        listener.problems = std::mem::take(problems);
        listener
    }
}

impl ListenerTls {
    fn read(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Self {
        if node.get("frontendValidation").is_some() {
            problems.push(node.at("frontendValidation").problem(
                "client certificates are not verified for a listener; remove the field and attach a \
                 TykOasApiDefinition with mutual TLS",
            ));
        }
        Self {
            mode: node.filled("mode", problems).unwrap_or("Terminate").to_owned(),
            certificates: node.each("certificateRefs", problems, |reference, problems| {
                Some(CertificateRef {
                    group: reference.text("group", problems).unwrap_or_default().to_owned(),
                    kind: reference.filled("kind", problems).unwrap_or("Secret").to_owned(),
                    name: reference
                        .required("name", problems)
                        .unwrap_or_default()
                        .to_owned(),
                    namespace: reference.filled("namespace", problems).map(str::to_owned),
                })
            }),
        }
    }
}

impl AllowedNamespaces {
    fn read(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Self {
        match node.text("from", problems) {
            None if node.get("from").is_some() => Self::Unknown(String::new()),
            None | Some("Same") => Self::Same,
            Some("All") => Self::All,
            Some("Selector") => match node.get("selector") {
                // The API asks for a selector here; without one nothing was selected.
                None => {
                    problems.push(node.at("selector").problem("must be set when from is Selector"));
                    Self::Unknown("Selector".to_owned())
                }
                Some(_) => node
                    .with("selector", problems, LabelSelector::read)
                    .flatten()
                    .map_or_else(|| Self::Unknown("Selector".to_owned()), Self::Selector),
            },
            Some(other) => {
                problems.push(node.at("from").problem(format!(
                    "{} is not supported; use Same, All or Selector",
                    Name(other)
                )));
                Self::Unknown(Name(other).to_string())
            }
        }
    }
}

impl LabelSelector {
    /// `None` if any part does not decode: leaving one out would select more.
    fn read(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        node.only(&["matchLabels", "matchExpressions"], problems);
        let labels = node
            .with("matchLabels", problems, |labels, problems| {
                labels
                    .names()
                    .filter_map(|name| Some((name.to_owned(), labels.text(name, problems)?.to_owned())))
                    .collect()
            })
            .unwrap_or_default();
        let expressions = node.each("matchExpressions", problems, |expression, problems| {
            let operator = expression.required("operator", problems)?;
            if !["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator) {
                problems.push(expression.at("operator").problem(format!(
                    "{} is not supported; use In, NotIn, Exists or DoesNotExist",
                    Name(operator)
                )));
            }
            let values = expression.texts("values", problems);
            Some((
                expression.required("key", problems)?.to_owned(),
                operator.to_owned(),
                values.into_iter().map(|(_, value)| value.to_owned()).collect(),
            ))
        });
        (problems.len() == before).then_some(Self { labels, expressions })
    }
}
