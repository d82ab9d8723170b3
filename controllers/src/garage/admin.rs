//! Garage's Admin API v2: the calls that buckets and handles need, their documents, their errors.
//!
//! Only the wire lives here. When a call is made, and what its answer means for a GarageBucket, is decided in
//! [`super::bucket`] and [`super::handle`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reconcile_kit::{ErrorClass, ReconcileError};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION};
use reqwest::{Certificate, Client, Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

/// The longest that one call may take, from connecting to the last byte of the answer.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest answer that is read, in bytes. A longer one is refused, not cut.
pub const BODY_CAP: usize = 10 * 1024 * 1024;
/// The longest text of an error that is kept, in bytes.
pub const ERROR_TEXT_CAP: usize = 500;
/// The longest message of Garage that is quoted, in bytes.
const QUOTE_CAP: usize = 200;

// --- what identifies things -------------------------------------------------------------------------------

/// The id of a bucket in Garage: 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct BucketId(String);

impl TryFrom<String> for BucketId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not a bucket id of 64 hexadecimal digits")
    }
}

impl BucketId {
    /// Takes an id that a person wrote. `None` if it is not 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (text.len() == 64 && text.bytes().all(hex)).then(|| Self(text.to_owned()))
    }

    /// The id as Garage writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bearer token of the Admin API. Neither `Debug` nor any error shows it.
#[derive(Clone)]
pub struct Token(String);

/// Why a text cannot be a token. Never quotes the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing but white space.
    #[error("the admin token is empty")]
    Empty,
    /// Something that cannot travel in an HTTP header.
    #[error("the admin token holds characters other than visible ASCII")]
    NotVisibleAscii,
    /// A static token with a dot, which Garage never accepts.
    #[error(
        "the static admin token contains '.': Garage looks such tokens up among those made with \
         `garage admin-token create`, so it is never accepted as admin_token; choose one without '.'"
    )]
    StaticWithDot,
}

impl Token {
    /// A token whose origin is not known: `admin_token` of garage.toml, or one made with
    /// `garage admin-token create`. Blanks and line ends around it are taken off.
    ///
    /// # Errors
    /// Empty, or not visible ASCII.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TokenError::NotVisibleAscii);
        }
        Ok(Self(text.to_owned()))
    }

    /// A token that goes into garage.toml as `admin_token`.
    ///
    /// # Errors
    /// As [`Token::new`], and [`TokenError::StaticWithDot`].
    pub fn new_static(text: &str) -> Result<Self, TokenError> {
        let token = Self::new(text)?;
        if token.has_dot() {
            return Err(TokenError::StaticWithDot);
        }
        Ok(token)
    }

    fn has_dot(&self) -> bool {
        self.0.contains('.')
    }

    /// Whether this is the token that a stand-in of Garage takes.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        self.0 == text
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Where an Admin API answers: `http` or `https`, a host, perhaps a port and a path before `/v2/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

/// Where an Admin API is, without the spelling of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    scheme: String,
    host: String,
    port: Option<u16>,
    path: String,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL at all.
    #[error("not a URL: {0}")]
    NotAUrl(String),
    /// A scheme other than http and https.
    #[error("the scheme must be http or https, not {0}")]
    Scheme(String),
    /// A user or password in the URL: they would end up in messages.
    #[error("a user or password in the URL is not allowed; the token belongs into a Secret")]
    UserInfo,
    /// A query or a fragment.
    #[error("a query or fragment is not allowed")]
    Query,
}

impl Endpoint {
    /// Takes an endpoint as it stands in a spec, e.g. `https://garage.example.com:3903`.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let url = Url::parse(text.trim()).map_err(|e| EndpointError::NotAUrl(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInfo);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(EndpointError::Query);
        }
        Ok(Self(url))
    }

    /// The same for two spellings of one address: case, a default port, a slash at the end, and whether the cluster's own
    /// domain is written out behind a Service (`garage.ns.svc`, `garage.ns.svc.cluster.local`). Any other domain behind it
    /// makes another host.
    pub fn place(&self, cluster_domain: &str) -> Place {
        let host = self.0.host_str().unwrap_or_default().trim_end_matches('.');
        let domain = cluster_domain.trim_matches('.').to_ascii_lowercase();
        let inside = host
            .strip_suffix(domain.as_str())
            .and_then(|rest| rest.strip_suffix('.'));
        let host = inside
            .filter(|rest| rest.ends_with(".svc"))
            .unwrap_or(host)
            .to_owned();
        let path = self.0.path().trim_end_matches('/').to_owned();
        Place {
            scheme: self.0.scheme().to_owned(),
            host,
            port: self.0.port_or_known_default(),
            path,
        }
    }

    fn call(&self, call: Call, query: &[(&str, &str)]) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!(
            "{}/v2/{}",
            self.0.path().trim_end_matches('/'),
            call.name()
        ));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// The calls of the Admin API that this product makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// `GET /v2/GetClusterHealth`
    GetClusterHealth,
    /// `GET /v2/GetBucketInfo`
    GetBucketInfo,
    /// `POST /v2/CreateBucket`
    CreateBucket,
    /// `POST /v2/UpdateBucket`
    UpdateBucket,
    /// `POST /v2/AddBucketAlias`
    AddBucketAlias,
    /// `POST /v2/RemoveBucketAlias`
    RemoveBucketAlias,
    /// `POST /v2/DeleteBucket`
    DeleteBucket,
}

impl Call {
    /// Every call, for tests that sweep over them.
    pub const ALL: [Self; 7] = [
        Self::GetClusterHealth,
        Self::GetBucketInfo,
        Self::CreateBucket,
        Self::UpdateBucket,
        Self::AddBucketAlias,
        Self::RemoveBucketAlias,
        Self::DeleteBucket,
    ];

    /// The name in the URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GetClusterHealth => "GetClusterHealth",
            Self::GetBucketInfo => "GetBucketInfo",
            Self::CreateBucket => "CreateBucket",
            Self::UpdateBucket => "UpdateBucket",
            Self::AddBucketAlias => "AddBucketAlias",
            Self::RemoveBucketAlias => "RemoveBucketAlias",
            Self::DeleteBucket => "DeleteBucket",
        }
    }

    /// What the call is needed for, for people who give a token its scope.
    #[must_use]
    pub fn purpose(self) -> &'static str {
        match self {
            Self::GetClusterHealth => {
                "the probe of a connect-only GarageCluster; without it the phase shows only that the token is accepted"
            }
            Self::GetBucketInfo => {
                "every bucket: find it and compare it; the probe, where GetClusterHealth is refused"
            }
            Self::CreateBucket => "a bucket without `spec.bucketId`",
            Self::UpdateBucket => "website and quotas",
            Self::AddBucketAlias => "the wanted alias",
            Self::RemoveBucketAlias => {
                "an alias that is no longer wanted, and the alias that a creation begins with"
            }
            Self::DeleteBucket => "`deletionPolicy: Delete`; not needed with `Retain`",
        }
    }

    /// Whether the call can change something in Garage.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::GetClusterHealth | Self::GetBucketInfo)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// --- documents --------------------------------------------------------------------------------------------

/// What Garage says about its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHealth {
    /// `healthy`, `degraded` or `unavailable`.
    pub status: String,
    /// Partitions of the layout; 0 before a layout was applied.
    #[serde(default)]
    pub partitions: u64,
    /// Partitions that can be written.
    #[serde(default)]
    pub partitions_quorum: u64,
}

/// The documents of a website.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteDocuments {
    /// Served for `/` and `…/`.
    pub index_document: String,
    /// Served instead of a missing object.
    #[serde(default)]
    pub error_document: Option<String>,
}

/// The quotas of a bucket. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketQuotas {
    /// Bytes.
    #[serde(default)]
    pub max_size: Option<u64>,
    /// Number of objects.
    #[serde(default)]
    pub max_objects: Option<u64>,
}

/// A bucket as Garage describes it, reduced to what is used here. Unknown fields are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketInfo {
    /// Its id.
    pub id: BucketId,
    /// Its global aliases, sorted.
    pub global_aliases: Vec<String>,
    /// Whether it is served as a website.
    #[serde(default)]
    pub website_access: bool,
    /// The website's documents; absent while it is not a website.
    #[serde(default)]
    pub website_config: Option<WebsiteDocuments>,
    /// Objects in it.
    #[serde(default)]
    pub objects: u64,
    /// Bytes in it.
    #[serde(default)]
    pub bytes: u64,
    /// Its quotas.
    #[serde(default)]
    pub quotas: BucketQuotas,
    /// When it was created, RFC 3339.
    #[serde(default)]
    pub created: Option<String>,
}

impl BucketInfo {
    /// Whether `alias` is one of its global aliases.
    #[must_use]
    pub fn has_alias(&self, alias: &str) -> bool {
        self.global_aliases.iter().any(|a| a == alias)
    }
}

/// What `UpdateBucket` shall say about the website.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebsiteUpdate {
    /// Serve it with these documents.
    Enable(WebsiteDocuments),
    /// Stop serving it. Sends no documents: Garage answers 400 to documents beside `enabled: false`.
    Disable,
}

/// The body of `UpdateBucket`. A part that is `None` stays as it is in Garage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketUpdate {
    /// The website.
    pub website: Option<WebsiteUpdate>,
    /// Both quotas; Garage replaces them as a pair.
    pub quotas: Option<BucketQuotas>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WebsiteAccessBody<'a> {
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_document: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_document: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    website_access: Option<WebsiteAccessBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quotas: Option<BucketQuotas>,
}

impl<'a> From<&'a BucketUpdate> for UpdateBody<'a> {
    fn from(update: &'a BucketUpdate) -> Self {
        let website_access = update.website.as_ref().map(|website| match website {
            WebsiteUpdate::Enable(documents) => WebsiteAccessBody {
                enabled: true,
                index_document: Some(&documents.index_document),
                error_document: documents.error_document.as_deref(),
            },
            WebsiteUpdate::Disable => WebsiteAccessBody {
                enabled: false,
                index_document: None,
                error_document: None,
            },
        });
        Self {
            website_access,
            quotas: update.quotas,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreateBody<'a> {
    global_alias: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AliasBody<'a> {
    bucket_id: &'a str,
    global_alias: &'a str,
}

/// Garage's error document.
#[derive(Deserialize)]
struct ErrorDocument {
    code: String,
    #[serde(default)]
    message: String,
}

// --- errors -----------------------------------------------------------------------------------------------

/// What kind of failure a call met. The labels are stable: they appear in metrics and conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminErrorClass {
    /// Garage itself says that the bucket does not exist. A 404 of anything else is [`Self::Garbage`].
    NotFound,
    /// The name is taken (creating).
    Conflict,
    /// The alias belongs to another bucket (adding an alias).
    AliasTaken,
    /// The bucket still holds objects (deleting).
    NotEmpty,
    /// The token is missing, wrong, expired or not allowed to make this call.
    Unauthorized,
    /// Garage refuses the request as wrong.
    Invalid,
    /// Garage cannot answer now: 5xx, 429, quorum lost, layout not ready.
    Unavailable,
    /// No whole answer within [`CALL_TIMEOUT`]. The call may have taken effect.
    Timeout,
    /// An answer that is not Garage's.
    Garbage,
    /// An answer larger than [`BODY_CAP`].
    TooLarge,
    /// A redirect; none is ever followed, because the token would go with it.
    Redirect,
    /// No connection, or it broke. The call may have taken effect.
    Connect,
    /// Not sent: this process may not write now.
    Fenced,
}

impl AdminErrorClass {
    /// The stable label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::AliasTaken => "alias_taken",
            Self::NotEmpty => "not_empty",
            Self::Unauthorized => "unauthorized",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Garbage => "garbage",
            Self::TooLarge => "too_large",
            Self::Redirect => "redirect",
            Self::Connect => "connect",
            Self::Fenced => "fenced",
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn transient(self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::Timeout | Self::Connect | Self::Fenced
        )
    }
}

impl fmt::Display for AdminErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A call that failed. Says which call, at which endpoint, and why; never holds the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Garage Admin API {endpoint}: {call}: {detail}")]
pub struct AdminError {
    class: AdminErrorClass,
    call: Call,
    endpoint: String,
    detail: String,
}

impl AdminError {
    /// An error of `call` at `endpoint`. `detail` is cut to [`ERROR_TEXT_CAP`] bytes and freed of control characters.
    #[must_use]
    pub fn new(class: AdminErrorClass, call: Call, endpoint: impl fmt::Display, detail: &str) -> Self {
        Self {
            class,
            call,
            endpoint: endpoint.to_string(),
            detail: printable(detail),
        }
    }

    /// Its class.
    #[must_use]
    pub fn class(&self) -> AdminErrorClass {
        self.class
    }

    /// The call that failed.
    #[must_use]
    pub fn call(&self) -> Call {
        self.call
    }

    /// What happened, without call and endpoint.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// One line of at most [`ERROR_TEXT_CAP`] bytes.
fn printable(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .take(ERROR_TEXT_CAP)
        .collect();
    cut(words.join(" "), ERROR_TEXT_CAP)
}

/// At most `room` bytes, ending in an ellipsis if any are missing.
fn cut(mut text: String, room: usize) -> String {
    if text.len() <= room {
        return text;
    }
    text.truncate(text.floor_char_boundary(room.saturating_sub('…'.len_utf8())));
    text.push('…');
    text
}

/// Codes of Garage's Admin API that this client can meet. The message behind any other code is not quoted: the endpoint
/// is whatever a GarageCluster names, and an answer of something else is not to be shown on its condition.
const GARAGE_CODES: [&str; 11] = [
    "AccessDenied",
    "BucketAlreadyExists",
    "BucketNotEmpty",
    "InternalError",
    "InvalidBucketName",
    "InvalidRequest",
    "MissingContentLength",
    "NoSuchBucket",
    "NoSuchKey",
    "NotImplemented",
    "ServiceUnavailable",
];

/// The stable core of an answer that is no success: the status, and of Garage's own error documents the code and, where
/// the request is at fault, the message. Messages about Garage's own trouble count nodes and answers, so they change from
/// try to try.
fn stable_core(status: StatusCode, document: Option<&ErrorDocument>) -> String {
    match document {
        Some(document) if GARAGE_CODES.contains(&document.code.as_str()) => {
            let code = &document.code;
            if status.is_server_error() || document.message.is_empty() {
                return format!("{status} {code}");
            }
            let message = cut(printable(&document.message), QUOTE_CAP);
            format!("{status} {code}: {message}")
        }
        _ => status.to_string(),
    }
}

/// Where a redirect leads, without what the server says of it.
fn direction(from: &Url, location: Option<&str>) -> &'static str {
    let Some(to) = location.and_then(|text| from.join(text).ok()) else {
        return "nowhere";
    };
    match (to.host_str() == from.host_str(), to.scheme()) {
        (true, "https") if from.scheme() != "https" => "https on the same host",
        (true, _) => "another address on the same host",
        (false, _) => "another host",
    }
}

/// What an HTTP status and Garage's error code mean for `call`.
fn classify(call: Call, status: StatusCode, code: Option<&str>) -> AdminErrorClass {
    match (status.as_u16(), code) {
        (401 | 403, _) => AdminErrorClass::Unauthorized,
        (300..=399, _) => AdminErrorClass::Redirect,
        (429 | 500..=599, _) => AdminErrorClass::Unavailable,
        (404, Some("NoSuchBucket")) => AdminErrorClass::NotFound,
        (409, Some("BucketNotEmpty")) => AdminErrorClass::NotEmpty,
        (409, Some(_)) => AdminErrorClass::Conflict,
        (400, Some("InvalidRequest")) if call == Call::AddBucketAlias => AdminErrorClass::AliasTaken,
        (400..=499, Some(_)) => AdminErrorClass::Invalid,
        _ => AdminErrorClass::Garbage,
    }
}

impl From<&AdminError> for ReconcileError {
    fn from(error: &AdminError) -> Self {
        let class = match error.class {
            AdminErrorClass::Unavailable | AdminErrorClass::Connect | AdminErrorClass::Garbage => {
                ErrorClass::Transient
            }
            AdminErrorClass::Timeout => ErrorClass::Timeout,
            AdminErrorClass::Unauthorized => ErrorClass::Forbidden,
            AdminErrorClass::NotFound => ErrorClass::NotFound,
            AdminErrorClass::Conflict | AdminErrorClass::NotEmpty => ErrorClass::Conflict,
            AdminErrorClass::AliasTaken => ErrorClass::Foreign,
            AdminErrorClass::Invalid | AdminErrorClass::Redirect | AdminErrorClass::TooLarge => {
                ErrorClass::Invalid
            }
            AdminErrorClass::Fenced => ErrorClass::Shutdown,
        };
        Self::new(class, error.to_string())
    }
}

// --- the seam ---------------------------------------------------------------------------------------------

/// Garage's Admin API as far as it is used: a real one ([`AdminClient`]) or one in memory
/// (`garage::testing::FakeGarage`). One call is one request; nothing is repeated below this seam.
#[async_trait]
pub trait GarageAdmin: Send + Sync {
    /// Whether the API answers and accepts the token.
    async fn health(&self) -> Result<ClusterHealth, AdminError>;
    /// The bucket with this id.
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError>;
    /// The bucket that has this global alias.
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError>;
    /// Makes a bucket with one global alias.
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError>;
    /// Changes website and quotas.
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError>;
    /// Gives a bucket a further global alias. Nothing happens if it has it already.
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError>;
    /// Takes a global alias from a bucket. Garage refuses to take the last one.
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError>;
    /// Removes an empty bucket with its aliases.
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError>;
}

/// Refuses calls that write while `may_write` says no: a leader that lost its lease finishes nothing.
pub struct Fenced<A> {
    inner: A,
    may_write: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl<A> Fenced<A> {
    /// Puts the fence before `inner`.
    pub fn new(inner: A, may_write: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self { inner, may_write }
    }

    fn check(&self, call: Call) -> Result<(), AdminError> {
        if (self.may_write)() {
            return Ok(());
        }
        Err(AdminError::new(
            AdminErrorClass::Fenced,
            call,
            "(not sent)",
            "this process does not hold the lease",
        ))
    }
}

#[async_trait]
impl<A: GarageAdmin> GarageAdmin for Fenced<A> {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        self.inner.health().await
    }
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.inner.bucket_by_id(id).await
    }
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.inner.bucket_by_alias(alias).await
    }
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.check(Call::CreateBucket)?;
        self.inner.create_bucket(alias).await
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.check(Call::UpdateBucket)?;
        self.inner.update_bucket(id, update).await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.check(Call::AddBucketAlias)?;
        self.inner.add_alias(id, alias).await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.check(Call::RemoveBucketAlias)?;
        self.inner.remove_alias(id, alias).await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.check(Call::DeleteBucket)?;
        self.inner.delete_bucket(id).await
    }
}

// --- the client -------------------------------------------------------------------------------------------

/// Why [`AdminHttp`] could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HttpError(String);

/// The HTTP side, made once and shared by the clients of all Garage clusters: connections, trust, limits.
///
/// No proxy from the environment is used, no redirect followed, nothing retried.
#[derive(Clone, Debug)]
pub struct AdminHttp {
    client: Client,
    timeout: Duration,
    body_cap: usize,
}

impl AdminHttp {
    /// `extra_ca` is a PEM bundle that is trusted beside the system's certificates.
    ///
    /// # Errors
    /// The bundle holds no certificate or a broken one.
    pub fn new(extra_ca: Option<&[u8]>) -> Result<Self, HttpError> {
        let extra = match extra_ca {
            None => Vec::new(),
            Some(pem) => {
                let certificates = Certificate::from_pem_bundle(pem)
                    .map_err(|e| HttpError(format!("extra CA bundle: {}", chain(&e))))?;
                if certificates.is_empty() {
                    return Err(HttpError("no PEM certificate in it".to_owned()));
                }
                certificates
            }
        };
        let base = || {
            Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .no_proxy()
                .pool_max_idle_per_host(4)
                .pool_idle_timeout(Duration::from_secs(30))
        };
        let client = match base().tls_certs_merge(extra.clone()).build() {
            Ok(client) => client,
            // An image without system certificates: http still has to work, https then trusts nobody.
            Err(_) if extra.is_empty() => base()
                .tls_certs_only(Vec::new())
                .build()
                .map_err(|e| HttpError(format!("HTTP client: {}", chain(&e))))?,
            Err(e) => {
                return Err(HttpError(format!(
                    "HTTP client with the extra CA bundle: {}",
                    chain(&e)
                )));
            }
        };
        Ok(Self {
            client,
            timeout: CALL_TIMEOUT,
            body_cap: BODY_CAP,
        })
    }

    /// The same with other limits than [`CALL_TIMEOUT`] and [`BODY_CAP`].
    #[must_use]
    pub fn with_limits(mut self, timeout: Duration, body_cap: usize) -> Self {
        self.timeout = timeout;
        self.body_cap = body_cap;
        self
    }
}

/// The Admin API of one Garage cluster over HTTP.
#[derive(Clone)]
pub struct AdminClient {
    http: AdminHttp,
    endpoint: Endpoint,
    token: Token,
    authorization: HeaderValue,
}

impl fmt::Debug for AdminClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminClient")
            .field("endpoint", &self.endpoint.to_string())
            .finish_non_exhaustive()
    }
}

impl AdminClient {
    /// A client for `endpoint`. Connects only when a call is made.
    ///
    /// # Errors
    /// Never for a [`Token`] that its constructors made.
    pub fn new(http: AdminHttp, endpoint: Endpoint, token: Token) -> Result<Self, TokenError> {
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {}", token.0)).map_err(|_| TokenError::NotVisibleAscii)?;
        authorization.set_sensitive(true);
        Ok(Self {
            http,
            endpoint,
            token,
            authorization,
        })
    }

    async fn call<B: Serialize + Sync>(
        &self,
        call: Call,
        query: &[(&str, &str)],
        body: Option<&B>,
    ) -> Result<Vec<u8>, AdminError> {
        // The name of the call and nothing of its query, body or headers: a trace is read by more people than a Secret.
        let span = tracing::info_span!(
            "garage",
            otel.name = call.name(),
            otel.kind = "client",
            http.request.method = self.method(call).as_str(),
            server.address = self.endpoint.0.host_str().unwrap_or_default(),
            http.response.status_code = tracing::field::Empty,
            error.class = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        let exchange = self.exchange(call, query, body).instrument(span.clone());
        let answer = match tokio::time::timeout(self.http.timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(self.error(
                AdminErrorClass::Timeout,
                call,
                &format!("no whole answer within {} ms", self.http.timeout.as_millis()),
            )),
        };
        if let Err(error) = &answer {
            span.record("error.class", error.class().label());
            // To look for a bucket that is not there is no failure.
            if error.class() != AdminErrorClass::NotFound {
                span.record("otel.status_code", "ERROR");
            }
        }
        answer
    }

    fn method(&self, call: Call) -> Method {
        if call.writes() { Method::POST } else { Method::GET }
    }

    async fn exchange<B: Serialize + Sync>(
        &self,
        call: Call,
        query: &[(&str, &str)],
        body: Option<&B>,
    ) -> Result<Vec<u8>, AdminError> {
        let mut request = self
            .http
            .client
            .request(self.method(call), self.endpoint.call(call, query))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json");
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(|e| self.transport(call, &e))?;
        let status = response.status();
        tracing::Span::current().record("http.response.status_code", status.as_u16());
        if status.is_redirection() {
            let location = response.headers().get(LOCATION).and_then(|v| v.to_str().ok());
            let target = direction(&self.endpoint.0, location);
            let detail = format!(
                "answers {status} with a redirect to {target}; redirects are not followed, give the address \
                 itself as endpoint"
            );
            return Err(self.error(AdminErrorClass::Redirect, call, &detail));
        }
        let cap = self.http.body_cap;
        let mut bytes = Vec::new();
        let too_large = || {
            self.error(
                AdminErrorClass::TooLarge,
                call,
                &format!("the answer is over {cap} bytes"),
            )
        };
        if response
            .content_length()
            .is_some_and(|length| length > cap as u64)
        {
            return Err(too_large());
        }
        while let Some(chunk) = response.chunk().await.map_err(|e| self.transport(call, &e))? {
            if bytes.len() + chunk.len() > cap {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            Ok(bytes)
        } else {
            Err(self.refusal(call, status, &bytes))
        }
    }

    async fn read<T: DeserializeOwned>(
        &self,
        call: Call,
        query: &[(&str, &str)],
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<T, AdminError> {
        let bytes = self.call(call, query, body).await?;
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        serde_path_to_error::deserialize(&mut json).map_err(
            |e: serde_path_to_error::Error<serde_json::Error>| {
                // Only where, never what: the endpoint is whatever a GarageCluster names.
                let at = match e.path().to_string() {
                    path if path == "." => String::new(),
                    path => format!(" at {path}"),
                };
                let what = if e.inner().is_data() {
                    "another form"
                } else {
                    "no JSON"
                };
                let detail = format!(
                    "the answer is not what Garage's Admin API v2 sends: {what}{at}; check the endpoint"
                );
                self.error(AdminErrorClass::Garbage, call, &detail)
            },
        )
    }

    /// As [`Self::read`], for calls about one bucket: an answer about another one is none of ours.
    async fn read_bucket(
        &self,
        call: Call,
        id: &BucketId,
        query: &[(&str, &str)],
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<BucketInfo, AdminError> {
        let info: BucketInfo = self.read(call, query, body).await?;
        if info.id == *id {
            return Ok(info);
        }
        Err(self.error(
            AdminErrorClass::Garbage,
            call,
            "the answer is about another bucket than asked",
        ))
    }

    /// An answer other than success.
    fn refusal(&self, call: Call, status: StatusCode, bytes: &[u8]) -> AdminError {
        let document: Option<ErrorDocument> = serde_json::from_slice(bytes).ok();
        let class = classify(call, status, document.as_ref().map(|d| d.code.as_str()));
        let scrubbed = document.map(|document| ErrorDocument {
            message: self.scrub(&document.message),
            ..document
        });
        let text = stable_core(status, scrubbed.as_ref());
        let hint = match class {
            AdminErrorClass::Unauthorized if self.token.has_dot() => format!(
                "; the token contains '.', so Garage looks it up among those made with `garage admin-token create`: it is \
                 wrong, expired, or its scope lacks {call}; as static admin_token one with a dot never works"
            ),
            AdminErrorClass::Unauthorized => {
                format!("; the token is wrong, expired, or its scope lacks {call}")
            }
            AdminErrorClass::Garbage => {
                "; this does not look like Garage's Admin API v2, check the endpoint".to_owned()
            }
            _ => String::new(),
        };
        self.error(class, call, &(text + &hint))
    }

    /// No answer, or one that broke off.
    fn transport(&self, call: Call, error: &reqwest::Error) -> AdminError {
        let class = if error.is_timeout() {
            AdminErrorClass::Timeout
        } else {
            AdminErrorClass::Connect
        };
        self.error(class, call, &chain(error))
    }

    fn error(&self, class: AdminErrorClass, call: Call, detail: &str) -> AdminError {
        AdminError::new(class, call, &self.endpoint, &self.scrub(detail))
    }

    /// A server may echo what it was sent.
    fn scrub(&self, text: &str) -> String {
        text.replace(&self.token.0, "(token)")
    }
}

/// An error with what caused it, without the URL.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = match error.downcast_ref::<reqwest::Error>() {
            // reqwest writes the URL behind its own words; the endpoint is named elsewhere.
            Some(e) => e
                .to_string()
                .split(" for url ")
                .next()
                .unwrap_or_default()
                .to_owned(),
            None => error.to_string(),
        };
        if parts.last() != Some(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}

const NO_BODY: Option<&()> = None;

#[async_trait]
impl GarageAdmin for AdminClient {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        self.read(Call::GetClusterHealth, &[], NO_BODY).await
    }
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.read_bucket(Call::GetBucketInfo, id, &[("id", id.as_str())], NO_BODY)
            .await
    }
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.read(Call::GetBucketInfo, &[("globalAlias", alias)], NO_BODY)
            .await
    }
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.read(Call::CreateBucket, &[], Some(&CreateBody { global_alias: alias }))
            .await
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.read_bucket(
            Call::UpdateBucket,
            id,
            &[("id", id.as_str())],
            Some(&UpdateBody::from(update)),
        )
        .await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        let body = AliasBody {
            bucket_id: id.as_str(),
            global_alias: alias,
        };
        self.read_bucket(Call::AddBucketAlias, id, &[], Some(&body)).await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        let body = AliasBody {
            bucket_id: id.as_str(),
            global_alias: alias,
        };
        self.read_bucket(Call::RemoveBucketAlias, id, &[], Some(&body))
            .await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.call(Call::DeleteBucket, &[("id", id.as_str())], NO_BODY)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests;
