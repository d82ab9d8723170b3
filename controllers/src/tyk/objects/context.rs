//! OperatorContext: connection to Tyk and data plane. Never holds what is secret.

use serde_json::Value;

use super::{
    DecodeError, Fingerprint, Key, Meta, Problem, Scope,
    text::unsafe_text,
    walk::{Node, Place},
};

/// An OperatorContext. The connection counts only in a GatewayClass's context; in a Gateway's own context `env`,
/// `secret_ref` and `connection_problems` are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorContext {
    /// Namespace and name.
    pub key: Key,
    /// spec.env
    pub env: Option<ConnectionFields>,
    /// spec.secretRef: name, and namespace if written (default: the context's own).
    pub secret_ref: Option<(String, Option<String>)>,
    /// spec.dataPlane
    pub data_plane: Option<DataPlane>,
    /// Fields that do not decode, but for those of the connection. Any of them makes the context unreadable.
    pub problems: Vec<Problem>,
    /// Fields of the connection (`env`, `secret_ref`) that do not decode. Any of them makes a class's context unreadable.
    pub connection_problems: Vec<Problem>,
}

/// Fields of a connection, from `spec.env` or from a Secret's `TYK_…` keys. A Secret's value beats that of `env`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFields {
    /// `ce` or `pro`, as written.
    pub mode: Option<String>,
    /// Base URL, as written: of the gateway for `ce`, of the Dashboard for `pro`. Never with a user name, a password, a
    /// query or a fragment: credentials stand in those, and this is not kept secret.
    pub url: Option<String>,
    /// The credential, as a fingerprint. `None` when absent or empty.
    pub auth: Option<Fingerprint>,
    /// Organisation id.
    pub org: Option<String>,
    /// Certificates of the API are not verified.
    pub insecure_skip_verify: Option<bool>,
    /// Dashboard users that own what is created.
    pub user_owners: Vec<String>,
    /// Dashboard groups that own what is created.
    pub user_group_owners: Vec<String>,
    /// What is wrong with them, e.g. an organisation id that Tyk would replace. Any makes the connection unreadable; a
    /// value that has a problem is left out. Paths are those of the object that the fields were read from.
    pub problems: Vec<Problem>,
}

/// Which gateways serve, and where they are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlane {
    /// Service of the gateways: name, and namespace if written (default: the context's own).
    pub service_ref: Option<(String, Option<String>)>,
    /// Segment tags, in the order written, without duplicates. `None` when the field is left out, so that a Gateway's
    /// context which sets only `serviceRef` keeps the tags of the class.
    pub tags: Option<Vec<String>>,
}

impl OperatorContext {
    /// Reads an OperatorContext.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut context = Self {
            key: Meta::decode(value, Scope::Namespaced)?.key,
            ..Self::default()
        };
        let problems = &mut Vec::new();
        if let Some(spec) = value.get("spec").filter(|spec| !spec.is_null())
            && let Some(spec) = Node::of(Place::Root("spec"), spec, problems)
        {
            let connection = &mut context.connection_problems;
            context.env = spec.with("env", connection, ConnectionFields::from_env);
            context.secret_ref = spec.with("secretRef", connection, named).flatten();
            context.data_plane = spec.with("dataPlane", problems, DataPlane::read);
        }
        context.problems = std::mem::take(problems);
        Ok(context)
    }
}

/// A reference by name, and namespace if written.
fn named(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<(String, Option<String>)> {
    let name = node.required("name", problems)?.to_owned();
    Some((name, node.filled("namespace", problems).map(str::to_owned)))
}

impl DataPlane {
    fn read(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Self {
        let service_ref = node.with("serviceRef", problems, named).flatten();
        let tags = node.get("tags").map(|_| {
            let place = node.at("tags");
            let mut tags: Vec<String> = Vec::new();
            for (index, tag) in node.texts("tags", problems) {
                let wrong = match unsafe_text(tag) {
                    Some(why) => Some(why),
                    None => tag.trim().is_empty().then(|| "must not be empty".to_owned()),
                };
                match wrong {
                    Some(why) => problems.push(place.item(index).problem(why)),
                    None if tags.iter().any(|known| known == tag) => {}
                    None => tags.push(tag.to_owned()),
                }
            }
            tags
        });
        Self { service_ref, tags }
    }
}

impl ConnectionFields {
    /// From `spec.env`. Problems go to the context too.
    fn from_env(env: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Self {
        let mut own = Vec::new();
        let mut fields = Self {
            mode: env.filled("mode", &mut own).map(str::to_owned),
            url: env.filled("url", &mut own).map(str::to_owned),
            auth: env
                .filled("auth", &mut own)
                .map(|auth| Fingerprint::of(auth.as_bytes())),
            org: env.filled("org", &mut own).map(str::to_owned),
            insecure_skip_verify: env.flag("insecureSkipVerify", &mut own),
            user_owners: owned(env.texts("user_owners", &mut own)),
            user_group_owners: owned(env.texts("user_group_owners", &mut own)),
            problems: Vec::new(),
        };
        fields.check_url(&env.at("url"), &mut own);
        fields.check_org(&env.at("org"), &mut own);
        problems.extend(own.iter().cloned());
        fields.problems = own;
        fields
    }

    /// From the `TYK_…` keys of a Secret.
    pub(super) fn from_secret(value: impl Fn(&str) -> Option<String>) -> Self {
        let filled = |key: &str| {
            value(key)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let listed = |key: &str| -> Vec<String> {
            let text = filled(key).unwrap_or_default();
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            items.map(str::to_owned).collect()
        };
        let mut fields = Self {
            mode: filled("TYK_MODE"),
            url: filled("TYK_URL"),
            auth: filled("TYK_AUTH").map(|auth| Fingerprint::of(auth.as_bytes())),
            org: filled("TYK_ORG"),
            insecure_skip_verify: filled("TYK_TLS_INSECURE_SKIP_VERIFY")
                .map(|text| text.eq_ignore_ascii_case("true") || text == "1"),
            user_owners: listed("TYK_USER_OWNERS"),
            user_group_owners: listed("TYK_USER_GROUP_OWNERS"),
            problems: Vec::new(),
        };
        let mut own = Vec::new();
        fields.check_url(&Place::Root("data").field("TYK_URL"), &mut own);
        fields.check_org(&Place::Root("data").field("TYK_ORG"), &mut own);
        fields.problems = own;
        fields
    }

    /// The URL is shown and logged. Looked at as text, since what is no URL may hold a password too.
    fn check_url(&mut self, place: &Place<'_>, problems: &mut Vec<Problem>) {
        let why = match self.url.as_deref() {
            Some(url) if url.contains('@') => {
                "must not hold a user name or password; the credential is auth (TYK_AUTH)"
            }
            Some(url) if url.contains(['?', '#']) => "must not have a query or a fragment",
            _ => return,
        };
        problems.push(place.problem(why));
        self.url = None;
    }

    /// The organisation stands in every document.
    fn check_org(&mut self, place: &Place<'_>, problems: &mut Vec<Problem>) {
        if let Some(why) = self.org.as_deref().and_then(unsafe_text) {
            problems.push(place.problem(why));
            self.org = None;
        }
    }
}

fn owned(texts: Vec<(usize, &str)>) -> Vec<String> {
    texts.into_iter().map(|(_, text)| text.to_owned()).collect()
}
