//! What follows from the objects: the answers of the model, and the border between model and translation.
//!
//! Plain data, comparable, without clients and times. Controllers write it, `routewright translate` prints it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use reconcile_kit::Condition;
use sha2::{Digest as _, Sha256};

use super::objects::{
    Key,
    core::Certificate,
    document::Document,
    hex,
    route::{HeaderEdit, Method, ParentRef},
};

/// Objects whose answer changed by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// GatewayClasses by name.
    pub classes: BTreeSet<String>,
    /// Gateways, attached counts included.
    pub gateways: BTreeSet<Key>,
    /// HTTPRoutes.
    pub routes: BTreeSet<Key>,
    /// TykOasApiDefinitions.
    pub definitions: BTreeSet<Key>,
}

/// A Warning or Normal event to publish on a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A Warning, or else Normal.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Answer for a GatewayClass of our controllerName.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassVerdict {
    /// Accepted, and SupportedVersion once the bundle is known.
    pub conditions: Vec<Condition>,
    /// status.supportedFeatures, sorted.
    pub supported_features: Vec<&'static str>,
    /// At least one Gateway names it: the gateway-exists finalizer is due.
    pub in_use: bool,
}

/// A readable connection to Tyk. Which Tyk it leads to: [`Connection::tyk`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection {
    /// Normalised base URL: lower-case scheme and host, default port and trailing slashes removed.
    pub url: String,
    /// Organisation id; empty when none is given.
    pub org: String,
    /// Dashboard or gateway.
    pub mode: Mode,
    /// The context that it was read from; the credential is read there again when it is needed.
    pub context: Key,
    /// Changes with the credential or any other field.
    pub fingerprint: super::objects::Fingerprint,
}

impl Connection {
    /// What tells one Tyk from another: URL, and organisation of a Dashboard. An open-source gateway is one Tyk whatever
    /// the organisation says: ids, hosts and paths are compared without it, so that what looked like a copy elsewhere would
    /// be the very same API.
    pub fn tyk(&self) -> (&str, &str) {
        match self.mode {
            Mode::OpenSource => (&self.url, ""),
            Mode::Dashboard => (&self.url, &self.org),
        }
    }

    /// [`Connection::tyk`] in eight hexadecimal digits, as annotations and documents name it.
    pub fn digest(&self) -> String {
        let (url, org) = self.tyk();
        let mut digest = Sha256::new();
        digest.update(url.as_bytes());
        digest.update(b"\n");
        digest.update(org.as_bytes());
        hex(digest.finalize().iter().take(4))
    }
}

/// What stands behind a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// `ce`: the API of an open-source gateway.
    OpenSource,
    /// `pro`: Tyk Dashboard.
    Dashboard,
}

/// Returns whether some gateway of one connection loads APIs with either of two sets of segment tags.
///
/// A gateway that is not segmented loads every API, tagged or not, and an untagged API may be meant for such gateways only:
/// so an API without tags shares a data plane with each other one. Symmetric, and no equivalence: to be asked of pairs.
pub(super) fn share_data_plane<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|tag| other.contains(tag))
}

/// Answer for a Gateway of a class of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayVerdict {
    /// Accepted, Programmed.
    pub conditions: Vec<Condition>,
    /// status.addresses as (type, value), at most 16.
    pub addresses: Vec<(&'static str, String)>,
    /// One per spec listener, in order.
    pub listeners: Vec<ListenerVerdict>,
    /// Events that hold while the Gateway looks like this (no data-plane context, …).
    pub notices: Vec<Notice>,
}

/// Answer for a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerVerdict {
    /// Its name.
    pub name: String,
    /// (group, kind) of the routes that may attach; may be empty, is always written.
    pub supported_kinds: Vec<(&'static str, &'static str)>,
    /// Routes that attach and are accepted.
    pub attached_routes: u32,
    /// Accepted, ResolvedRefs, Programmed; Conflicted and OverlappingTLSConfig only while True.
    pub conditions: Vec<Condition>,
}

/// Answer for an HTTPRoute with at least one parent of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteVerdict {
    /// One per parentRef that is ours, in spec order.
    pub parents: Vec<ParentVerdict>,
    /// What to do about the APIs of each own Gateway.
    pub gateways: BTreeMap<Key, Disposition>,
    /// The APIs of the Gateways whose disposition is [`Disposition::Serve`], sorted by (gateway, host, path).
    pub apis: Vec<ApiPlan>,
    /// Ids ([`super::translate::identity`]) that may stand besides `apis`, by Gateway: where a parent says
    /// [`Disposition::Keep`], those of its hosts and paths that the route still has, that no other route took, and that
    /// a valid listener still serves. Whatever else was written for the Gateway is removed. Nothing is created from it.
    pub keep: BTreeMap<Key, BTreeSet<String>>,
    /// Events that hold while the route looks like this (a reserved path, overlapping hosts, …).
    pub notices: Vec<Notice>,
}

/// Answer for one parentRef.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentVerdict {
    /// The reference, as it goes to status.
    pub parent: ParentRef,
    /// The Gateway that it names.
    pub gateway: Key,
    /// Accepted and ResolvedRefs always; PartiallyInvalid only while True.
    pub conditions: Vec<Condition>,
}

/// What happens to the APIs of a route on one Gateway (design page on Tyk, §4, table).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The listed APIs should stand, and no others but those in [`RouteVerdict::keep`].
    Serve,
    /// What was written last stays as far as [`RouteVerdict::keep`] names it; nothing is created.
    Keep,
    /// None should stand.
    Remove,
}

/// Answer for a TykOasApiDefinition with targetRefs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionVerdict {
    /// Accepted.
    pub condition: Condition,
    /// A target is ours: the condition is ours to write. Otherwise it is written only if nobody else owns it.
    pub ours: bool,
}

/// One Tyk OAS API to be: everything that its document is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiPlan {
    /// The route that it serves.
    pub route: Key,
    /// Its parent Gateway.
    pub gateway: Key,
    /// Where it is written to.
    pub connection: Arc<Connection>,
    /// Effective hostname, lower-cased, maybe `*.…`; `None` for any.
    pub host: Option<String>,
    /// Path value of the match (normalised).
    pub path: String,
    /// dataPlane.tags
    pub tags: Vec<String>,
    /// Certificates of the listeners that yielded the host, sorted; empty without a host.
    pub certificates: Vec<CertificateUse>,
    /// Where requests go. Empty: nothing (a 500, or only redirects).
    pub targets: Vec<Target>,
    /// ReplacePrefixMatch: what stands in place of `path`; `None` for the path itself.
    pub prefix: Option<String>,
    /// One per matched method.
    pub operations: BTreeMap<Method, OperationPlan>,
    /// The attached definition's document.
    pub base: Option<Arc<BaseDocument>>,
}

/// A certificate, and the Secret to upload it from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateUse {
    /// Its identity.
    pub certificate: Certificate,
    /// Where it is.
    pub secret: Key,
}

/// What one method of an API does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OperationPlan {
    /// Changes to request headers; shared by the methods of a rule.
    pub request_headers: Arc<HeaderEdit>,
    /// Changes to response headers; shared by the methods of a rule.
    pub response_headers: Arc<HeaderEdit>,
    /// ReplaceFullPath
    pub full_path: Option<String>,
    /// A redirect instead of a backend.
    pub redirect: Option<StaticRedirect>,
}

/// A redirect with everything decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StaticRedirect {
    /// Value of the Location header.
    pub location: String,
    /// Status code.
    pub status: u16,
}

/// One backend with its share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// `host:port` without scheme; `None` for one that could not be resolved.
    pub authority: Option<String>,
    /// Share, at least 1; reduced by the common divisor.
    pub weight: u32,
}

/// A definition's document, checked: it has an `x-tyk-api-gateway` object and sets nothing that the route sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseDocument {
    /// The TykOasApiDefinition that it comes from.
    pub definition: Key,
    /// The document.
    pub document: Document,
}
