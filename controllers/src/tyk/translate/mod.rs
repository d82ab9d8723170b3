//! From a plan to a Tyk OAS document: canonical JSON, equal meaning, equal bytes. Decides nothing about routes.
//!
//! Here: identity, the whole, canonical bytes, refusals. `middleware` says what each method of an API does and how,
//! `rewrite` how a path is replaced, `token_free` what a rewrite may capture, `upstream` where requests go, `base` what a definition's document may hold and how
//! both are joined, `spelling` which keys of it Tyk takes for others, `attach` when they cannot be joined, `stamp` the
//! owner's mark.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub mod attach;
pub mod base;
mod certain;
mod middleware;
mod rewrite;
mod spelling;
pub mod stamp;
mod token_free;
mod upstream;

pub use certain::certain;
pub(super) use rewrite::group;
pub use stamp::{Owner, stamp};
pub use upstream::UNRESOLVED;

use super::{
    Settings,
    objects::{
        Key,
        document::{self, find_token},
    },
    verdict::{ApiPlan, CertificateUse},
};

/// Path key of the operations: every path in every mode of the gateway, also one with an encoded newline.
pub const EVERY_PATH: &str = "/(?s).*";

/// The extension of an OpenAPI document that makes it an API of Tyk.
pub const EXTENSION: &str = "x-tyk-api-gateway";

/// What all ids begin with.
pub const ID: &str = "gwapi-";

/// One Tyk OAS API: its id and its document.
#[derive(Clone, Debug, PartialEq)]
pub struct TykApi {
    /// `gwapi-` and 20 hexadecimal digits; also `info.id` of the extension.
    pub id: String,
    /// The Tyk OAS document.
    pub document: Value,
}

impl TykApi {
    /// The document as JSON without white space, the keys of every object sorted: equal documents, equal bytes.
    pub fn canonical(&self) -> Vec<u8> {
        canonical(&self.document)
    }
}

/// Why a plan has no document. Reported as `TranslationFailed`; decoding refuses the same values earlier and with their
/// field path, so that seeing one of these means that a check is missing there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A value holds what Tyk would replace by a secret or a variable. The value itself is not repeated.
    #[error(
        "{place} holds `{token}`, which Tyk replaces by a secret or a variable: write the value without it"
    )]
    Token {
        /// Where in the document.
        place: String,
        /// The reference that was found, without what follows it.
        token: &'static str,
    },
    /// A rewrite would take a part of a path for a captured group.
    #[error("{place} holds `$` followed by a digit, which a rewrite of Tyk takes for a captured group")]
    Group {
        /// Which value.
        place: &'static str,
    },
    /// A replacement or redirect that is no absolute path or holds more than a path.
    #[error("{place} must start with `/` and hold neither `?`, `#` nor control characters")]
    Path {
        /// Which value.
        place: &'static str,
    },
    /// No method is matched, so that an allow list would be empty and would let everything through.
    #[error("the API matches no method")]
    NoMethod,
    /// The attached definition's document cannot be joined with what the route sets.
    #[error("the attached definition's document: {0}")]
    Base(String),
}

/// The id of an API: derived from route, path, Gateway and hostname, and from nothing else (source: API Identity).
///
/// The fields are hashed with their lengths in front, so that no two lists of fields read alike.
pub fn identity(plan: &ApiPlan) -> String {
    identity_of(&plan.route, &plan.gateway, plan.host.as_deref(), &plan.path)
}

/// [`identity`] of what has no plan: it needs no connection.
pub fn identity_of(route: &Key, gateway: &Key, host: Option<&str>, path: &str) -> String {
    let fields = [
        route.namespace.as_str(),
        &route.name,
        path,
        &gateway.namespace,
        &gateway.name,
        host.unwrap_or_default(),
    ];
    let mut digest = Sha256::new();
    for field in fields {
        digest.update((field.len() as u64).to_be_bytes());
        digest.update(field.as_bytes());
    }
    format!("{ID}{}", super::objects::hex(digest.finalize().iter().take(10)))
}

/// The Tyk OAS API of a plan (source: API Configuration).
///
/// Pure; the same plan gives the same bytes. With an attached definition the document is the definition's, completed by
/// what the route sets; [`attach::conflict`] must have found nothing.
///
/// # Errors
///
/// See [`Refusal`]: no document is made that holds a substitution token, whoever brought it, or whose rewrites would not
/// do what the route says.
pub fn translate(plan: &ApiPlan, _settings: &Settings) -> Result<TykApi, Refusal> {
    if plan.operations.is_empty() {
        return Err(Refusal::NoMethod);
    }
    let id = identity(plan);
    let theirs = match &plan.base {
        None => None,
        Some(base) => match base.document.value() {
            Value::Object(theirs) => Some(theirs),
            _ => return Err(Refusal::Base("is not an object".to_owned())),
        },
    };
    let own = own(plan, &id, theirs.as_ref())?;
    let document = Value::Object(base::join(theirs.unwrap_or_default(), &own)?);
    if let Some((place, token)) = find_token(&document) {
        return Err(Refusal::Token { place, token });
    }
    Ok(TykApi { id, document })
}

/// What the route sets, before it is joined with an attached document.
#[derive(Debug)]
struct Own {
    id: String,
    org: String,
    listen_path: String,
    custom_domain: Option<Value>,
    gateway_tags: Option<Value>,
    upstream: Map<String, Value>,
    middleware: middleware::Middleware,
}

fn own(plan: &ApiPlan, id: &str, theirs: Option<&Map<String, Value>>) -> Result<Own, Refusal> {
    let organisation = &plan.connection.org;
    Ok(Own {
        id: id.to_owned(),
        org: organisation.clone(),
        listen_path: plan.path.clone(),
        custom_domain: plan
            .host
            .as_deref()
            .map(|host| custom_domain(host, organisation, &plan.certificates)),
        gateway_tags: (!plan.tags.is_empty()).then(|| json!({"enabled": true, "tags": plan.tags})),
        upstream: upstream::upstream(plan),
        middleware: middleware::middleware(plan, theirs)?,
    })
}

/// Tyk's id of a certificate: the organisation and the digest of the leaf. Known without asking Tyk.
pub fn certificate_id(organisation: &str, certificate: &super::objects::core::Certificate) -> String {
    format!("{organisation}{}", certificate.leaf.0)
}

fn custom_domain(host: &str, organisation: &str, certificates: &[CertificateUse]) -> Value {
    let name = match host.strip_prefix("*.") {
        Some(rest) => format!("{{h:.+}}.{rest}"),
        None => host.to_owned(),
    };
    let mut ids: Vec<String> = certificates
        .iter()
        .map(|used| certificate_id(organisation, &used.certificate))
        .collect();
    ids.sort();
    ids.dedup();
    let mut domain = Map::new();
    domain.insert("enabled".to_owned(), Value::Bool(true));
    domain.insert("name".to_owned(), Value::String(name));
    if !ids.is_empty() {
        domain.insert("certificates".to_owned(), json!(ids));
    }
    Value::Object(domain)
}

/// JSON without white space and with sorted keys.
pub(in crate::tyk) fn canonical(value: &Value) -> Vec<u8> {
    document::canonical(value).into_bytes()
}
