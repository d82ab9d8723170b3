//! GatewayClass: its context, the connection to Tyk, the version of Gateway API. Says nothing about Gateways.

use std::{collections::BTreeMap, sync::Arc};

use reconcile_kit::Condition;
use sha2::{Digest, Sha256};

use super::{
    super::{
        Settings,
        objects::{
            Fingerprint, GatewayClass, Key, Kind, Object, OperatorContext, Problem, Secret, TYK_GROUP,
            class::ParametersRef,
            context::{ConnectionFields, DataPlane},
            hex,
        },
        verdict::{ClassVerdict, Connection, Mode},
    },
    Answers,
    store::Store,
    text,
    view::View,
};

/// Minors of Gateway API that are known; any patch of them is accepted.
const MINORS: std::ops::RangeInclusive<u32> = 2..=7;

/// What the operator supports of the suite's features, sorted.
const FEATURES: [&str; 4] = [
    "Gateway",
    "HTTPRoute",
    "HTTPRouteNamedRouteRule",
    "ReferenceGrant",
];

/// Why a Gateway cannot be used by routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// An object that it needs cannot be read, or is not valid.
    Unreadable(String),
    /// The connection cannot be read: Secret, url or credential missing.
    Environment(String),
}

/// The data plane of a context, its namespace resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plane {
    /// The context that says so; of two, the Gateway's own.
    pub(super) context: Key,
    /// Service of the gateways, after the context that names it.
    pub(super) service: Option<(Key, Key)>,
    /// Segment tags, if the field is written, after the context that does.
    pub(super) tags: Option<(Key, Vec<String>)>,
}

impl Plane {
    pub(super) fn of(context: &OperatorContext) -> Option<Self> {
        let DataPlane { service_ref, tags } = context.data_plane.as_ref()?;
        let service = service_ref
            .as_ref()
            .map(|(name, namespace)| Key::new(namespace.as_ref().unwrap_or(&context.key.namespace), name));
        let here = || context.key.clone();
        Some(Self {
            context: here(),
            service: service.map(|service| (here(), service)),
            tags: tags.clone().map(|tags| (here(), tags)),
        })
    }
}

/// What Gateways need to know of their class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassFacts {
    /// The connection, or why there is none.
    pub(super) connection: Result<Arc<Connection>, Unusable>,
    /// Defaults of the data plane.
    pub(super) plane: Option<Plane>,
    /// Namespaces whose Gateways may be of the class; `None` for all.
    pub(super) namespaces: Option<Vec<String>>,
}

/// The context that a reference names, or why it cannot be read. `namespace` is where it must be looked for.
pub(super) fn context<'a>(
    view: &View<'a>,
    field: &str,
    parameters: &ParametersRef,
    namespace: &str,
) -> Result<&'a OperatorContext, String> {
    if parameters.group != TYK_GROUP || parameters.kind != "OperatorContext" {
        return Err(format!(
            "{field}: must refer to group {TYK_GROUP}, kind OperatorContext"
        ));
    }
    let key = Key::new(namespace, &parameters.name);
    let context = view
        .context(&key)
        .ok_or_else(|| format!("{field}: OperatorContext {key} does not exist"))?;
    valid(field, &key, &context.problems)?;
    Ok(context)
}

fn valid(field: &str, context: &Key, problems: &[Problem]) -> Result<(), String> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{field}: OperatorContext {context} is not valid: {}",
        text::list(problems.iter().map(ToString::to_string))
    ))
}

/// Answer and facts of a class of ours.
pub(super) fn class(
    view: &View<'_>,
    class: &GatewayClass,
    bundles: Option<&BTreeMap<String, Option<String>>>,
    in_use: bool,
) -> (ClassVerdict, ClassFacts) {
    let (connection, plane) = match class_context(view, class) {
        Err(why) => (Err(Unusable::Unreadable(why)), None),
        Ok(context) => (
            connection(view, context).map_err(Unusable::Environment),
            Plane::of(context),
        ),
    };
    let accepted = match &connection {
        Ok(_) => Condition::new(
            "Accepted",
            true,
            "Accepted",
            format!("managed by {}", view.settings.controller_name),
        ),
        Err(Unusable::Unreadable(why) | Unusable::Environment(why)) => {
            Condition::new("Accepted", false, "InvalidParameters", why.clone())
        }
    };
    let verdict = ClassVerdict {
        conditions: std::iter::once(accepted)
            .chain(bundles.map(supported_version))
            .collect(),
        supported_features: FEATURES.to_vec(),
        in_use,
    };
    let connection = connection.map(Arc::new);
    let namespaces = class.gateway_namespaces.clone();
    let facts = ClassFacts {
        connection,
        plane,
        namespaces,
    };
    (verdict, facts)
}

fn class_context<'a>(view: &View<'a>, class: &GatewayClass) -> Result<&'a OperatorContext, String> {
    let parameters = class.parameters.as_ref().ok_or(
        "spec.parametersRef: missing; it must refer to an OperatorContext with the connection to Tyk",
    )?;
    // The kind is named before the namespace: without the right kind, a namespace helps nobody.
    let namespace = parameters.namespace.as_deref().unwrap_or_default();
    if namespace.is_empty() && parameters.group == TYK_GROUP && parameters.kind == "OperatorContext" {
        return Err("spec.parametersRef.namespace: missing; an OperatorContext has a namespace".to_owned());
    }
    let context = context(view, "spec.parametersRef", parameters, namespace)?;
    // A Gateway's own context has a connection that nobody reads, so this is asked here only.
    valid("spec.parametersRef", &context.key, &context.connection_problems)?;
    Ok(context)
}

/// The connection of a context. A Secret's value beats that of `env`.
fn connection(view: &View<'_>, context: &OperatorContext) -> Result<Connection, String> {
    let name = text::object("OperatorContext", &context.key);
    if context.env.is_none() && context.secret_ref.is_none() {
        return Err(format!("{name}: sets neither spec.env nor spec.secretRef"));
    }
    let empty = ConnectionFields::default();
    let env = context.env.as_ref().unwrap_or(&empty);
    let (secret, place) = match &context.secret_ref {
        None => (&empty, String::new()),
        Some((secret, namespace)) => {
            let key = Key::new(namespace.as_ref().unwrap_or(&context.key.namespace), secret);
            let found = view.secret(&key).ok_or_else(|| {
                let why = view.absence(Kind::Secret, &key);
                format!("{name}: spec.secretRef: Secret {key} {why}")
            })?;
            let problems = &found.connection.problems;
            if !problems.is_empty() {
                let problems = text::list(problems.iter().map(ToString::to_string));
                return Err(format!("{name}: spec.secretRef: Secret {key}: {problems}"));
            }
            (&found.connection, format!(" or in Secret {key}"))
        }
    };
    let missing = |field: &str, key: &str| format!("{name}: no {field}: set spec.env.{field}{place} ({key})");
    let pick = |a: &Option<String>, b: &Option<String>| {
        a.as_ref()
            .filter(|v| !v.is_empty())
            .or(b.as_ref().filter(|v| !v.is_empty()))
            .cloned()
    };
    let mode = match pick(&secret.mode, &env.mode).as_deref() {
        Some("ce") => Mode::OpenSource,
        Some("pro") => Mode::Dashboard,
        Some(_) => {
            return Err(format!(
                "{name}: mode must be ce (open-source gateway) or pro (Tyk Dashboard)"
            ));
        }
        None => return Err(missing("mode", "TYK_MODE")),
    };
    let url = pick(&secret.url, &env.url).ok_or_else(|| missing("url", "TYK_URL"))?;
    let url = normalise(&url).map_err(|why| format!("{name}: url: {why}"))?;
    let auth = secret
        .auth
        .as_ref()
        .or(env.auth.as_ref())
        .ok_or_else(|| missing("auth", "TYK_AUTH"))?;
    let org = pick(&secret.org, &env.org).unwrap_or_default();
    let insecure = secret
        .insecure_skip_verify
        .or(env.insecure_skip_verify)
        .unwrap_or_default();
    fn owners<'a>(a: &'a [String], b: &'a [String]) -> &'a [String] {
        if a.is_empty() { b } else { a }
    }
    let users = owners(&secret.user_owners, &env.user_owners);
    let groups = owners(&secret.user_group_owners, &env.user_group_owners);

    let mut digest = Sha256::new();
    let mut field = |value: &str| {
        digest.update((value.len() as u64).to_be_bytes());
        digest.update(value.as_bytes());
    };
    field(if mode == Mode::OpenSource { "ce" } else { "pro" });
    field(&url);
    field(&auth.0);
    field(&org);
    field(if insecure { "insecure" } else { "" });
    for list in [users, groups] {
        field(&list.len().to_string());
        list.iter().for_each(|owner| field(owner));
    }
    let fingerprint = hex(digest.finalize().iter().take(16));
    Ok(Connection {
        url,
        org,
        mode,
        context: context.key.clone(),
        fingerprint: Fingerprint(fingerprint),
    })
}

/// The connection that a context stands for, whether or not a class names it; or why there is none. `secret`: the one
/// that its secretRef names, if it exists.
///
/// # Errors
///
/// What is missing or wrong, as the class that named the context would be told.
pub fn connection_of(context: OperatorContext, secret: Option<Secret>) -> Result<Connection, String> {
    let name = text::object("OperatorContext", &context.key);
    let problems = context.problems.iter().chain(&context.connection_problems);
    let problems: Vec<String> = problems.map(ToString::to_string).collect();
    if !problems.is_empty() {
        return Err(format!("{name} is not valid: {}", text::list(problems)));
    }
    let key = context.key.clone();
    let (settings, answers, mut store) = (Settings::default(), Answers::default(), Store::default());
    store.put(Object::OperatorContext(context));
    if let Some(secret) = secret {
        store.put(Object::Secret(secret));
    }
    let view = View::new(&settings, &store, &answers);
    let context = view
        .context(&key)
        .ok_or_else(|| format!("{name} does not exist"))?;
    connection(&view, context)
}

/// A base URL in one spelling. Says why not without repeating it: it may hold a password.
fn normalise(url: &str) -> Result<String, &'static str> {
    let parsed =
        reqwest::Url::parse(url.trim()).map_err(|_| "is not a URL such as http://gateway.tyk.svc:8080")?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err("must start with http:// or https://");
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("must not hold a user name or password; the credential is auth (TYK_AUTH)");
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err("must not have a query or a fragment");
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

/// `1.6.3` → `6`, if the major is 1.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').splitn(3, '.');
    (parts.next()? == "1").then_some(())?;
    let minor = parts.next()?.parse().ok()?;
    // A third part must be there: `1.6` is no release.
    parts.next()?;
    Some(minor)
}

fn supported_version(bundles: &BTreeMap<String, Option<String>>) -> Condition {
    let known = format!("v1.{} to v1.{}", MINORS.start(), MINORS.end());
    let bad: Vec<String> = bundles
        .iter()
        .filter(|(_, version)| {
            !version
                .as_deref()
                .and_then(minor)
                .is_some_and(|minor| MINORS.contains(&minor))
        })
        .map(|(crd, version)| format!("{crd}: {}", version.as_deref().unwrap_or("no version")))
        .collect();
    if bundles.is_empty() {
        let message = format!("no CRD of Gateway API is installed; known are {known}");
        return Condition::new("SupportedVersion", false, "UnsupportedVersion", message);
    }
    if bad.is_empty() {
        let mut versions: Vec<_> = bundles.values().flatten().cloned().collect();
        versions.sort();
        versions.dedup();
        let message = format!("installed: {}", text::list(versions));
        Condition::new("SupportedVersion", true, "SupportedVersion", message)
    } else {
        let message = format!(
            "not known: {}; known are {known}; what is there is used as far as it goes",
            text::list(bad)
        );
        Condition::new("SupportedVersion", false, "UnsupportedVersion", message)
    }
}
