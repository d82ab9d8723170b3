//! One GarageBucket and its bucket in Garage: what has to happen next, and the driver that does it.
//!
//! [`next`] decides and is pure. [`drive`] answers its questions, performs its steps one by one, and may be killed
//! between any two: a bucket in Garage is always either recorded in `status.bucketId` or carries the reservation
//! alias that the next run looks for. No Kubernetes client and no clock lives here.

use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use kube::ResourceExt as _;
use reconcile_kit::ReconcileError;
use reconcile_kit::StatusField;
use routewright_crds::bucket::QuotaUsage;
use routewright_crds::{DeletionPolicy, GarageBucket, GarageBucketSpec, Quantity, WebsiteConfigStatus};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::admin::{
    AdminError, AdminErrorClass, BucketId, BucketInfo, BucketQuotas, BucketUpdate, GarageAdmin,
    WebsiteDocuments, WebsiteUpdate,
};

/// Annotation that records the reservation alias before the bucket is created.
pub const RESERVATION_ANNOTATION: &str = "garage.rajsingh.info/bucket-reservation-alias";
/// Annotation that lists, separated by commas, the global aliases that were or are about to be bound for this
/// object: those that a change of `spec.globalAlias` takes away again.
pub const ALIASES_ANNOTATION: &str = "routewright.dev/bucket-aliases";
/// How reservation aliases begin.
pub const RESERVATION_PREFIX: &str = "garage-rsv-";
/// How reservation aliases of COSI drivers begin.
pub const COSI_RESERVATION_PREFIX: &str = "cosi-rsv-";
/// Served for `/` when the spec names no index document.
pub const DEFAULT_INDEX_DOCUMENT: &str = "index.html";
/// Usage figures change the status at most this often.
pub const USAGE_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// More steps than any way through [`next`] has.
const STEP_LIMIT: usize = 32;

// --- inputs -----------------------------------------------------------------------------------------------

/// What the object asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// metadata.namespace
    pub namespace: String,
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// spec.globalAlias; metadata.name when absent or empty
    pub global_alias: Option<String>,
    /// spec.bucketId: an existing bucket to adopt
    pub bucket_id: Option<String>,
    /// The website's documents; `None` when it is switched off or not mentioned.
    pub website: Option<WebsiteDocuments>,
    /// spec.quotas.maxSize
    pub max_size: Option<Size>,
    /// spec.quotas.maxObjects
    pub max_objects: Option<i64>,
    /// The cluster's effective web root domain; `None` while its web API is off.
    pub web_root: Option<String>,
    /// Something that the spec asks for and that is not done: nothing at all is done then.
    pub unsupported: Option<Unsupported>,
    /// Set once the object is being deleted.
    pub deletion: Option<Deletion>,
}

/// A part of the spec that is refused rather than passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Its path.
    pub field: &'static str,
    /// Why, and the way out.
    pub why: &'static str,
}

impl Unsupported {
    /// The first one in a spec.
    #[must_use]
    pub fn of(spec: &GarageBucketSpec) -> Option<Self> {
        let some =
            |list: &Option<Vec<routewright_crds::Open>>| list.as_ref().is_some_and(|list| !list.is_empty());
        if some(&spec.local_aliases) {
            return Some(Self {
                field: "spec.localAliases",
                why: "local aliases are not managed: one changes what a name means to the owner of a key, and there is no \
                      way to ask that owner. Remove the field; give the alias with Garage's own tools",
            });
        }
        some(&spec.key_permissions).then_some(Self {
            field: "spec.keyPermissions",
            why: "rights of keys are not managed. Remove the field; give them with Garage's own tools, which are left as \
                  they are (`garage bucket allow --read --write <bucket> --key <key>`)",
        })
    }
}

/// A size in the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// Understood, in bytes.
    Bytes(u64),
    /// Not a size: the text as it was written.
    Bad(String),
}

/// What deleting the object does to the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Removes it if it is empty, waits otherwise.
    Delete,
    /// Leaves it alone. No call is made.
    Retain,
}

/// What earlier runs wrote down on the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// status.bucketId
    pub bucket_id: Option<String>,
    /// [`RESERVATION_ANNOTATION`]
    pub reservation: Option<String>,
    /// [`ALIASES_ANNOTATION`], taken apart with [`parse_aliases`]
    pub aliases: Vec<String>,
    /// Another GarageBucket (`namespace/name`) that has the bucket which this one records or wants to adopt. It keeps
    /// it: this one neither adopts, changes nor deletes it.
    pub claimed_by: Option<String>,
    /// Creations for this object that were not answered.
    pub creation: Creation,
}

/// What is to be expected of creations that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// Nothing: each was answered, or none was sent.
    #[default]
    Settled,
    /// One was not answered and may still take effect.
    Open,
    /// One was not answered, so long ago that it took effect by now or never will. Nobody has looked since.
    Late,
}

impl Wanted {
    /// What `bucket` asks for. `web_root` is the effective root domain of its cluster's web API, `None` while that is
    /// off.
    #[must_use]
    pub fn of(bucket: &GarageBucket, web_root: Option<&str>) -> Self {
        let spec = &bucket.spec;
        let website = spec.website.as_ref().filter(|w| w.enabled == Some(true));
        let quotas = spec.quotas.clone().unwrap_or_default();
        let deletion = bucket
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|_| match spec.deletion_policy {
                None | Some(DeletionPolicy::Delete) => Deletion::Delete,
                // Nothing is ever removed for a policy that this version does not know.
                Some(DeletionPolicy::Retain | DeletionPolicy::Unknown) => Deletion::Retain,
            });
        Self {
            namespace: bucket.namespace().unwrap_or_default(),
            name: bucket.name_any(),
            uid: bucket.uid().unwrap_or_default(),
            global_alias: spec.global_alias.clone(),
            bucket_id: spec.bucket_id.clone(),
            website: website
                .map(|w| website_documents(w.index_document.as_deref(), w.error_document.as_deref())),
            max_size: quotas.max_size.as_ref().map(Size::of),
            max_objects: quotas.max_objects,
            web_root: web_root.map(str::to_owned),
            unsupported: Unsupported::of(spec),
            deletion,
        }
    }
}

impl Size {
    /// The size that a quantity means.
    #[must_use]
    pub fn of(quantity: &Quantity) -> Self {
        quantity
            .bytes()
            .map_or_else(|| Self::Bad(quantity.0.clone()), Self::Bytes)
    }
}

impl Known {
    /// What was written down on `bucket`. `claimed_by` and `creation` cannot be seen on the object.
    #[must_use]
    pub fn of(bucket: &GarageBucket) -> Self {
        let annotation = |key: &str| bucket.annotations().get(key);
        Self {
            bucket_id: bucket
                .status
                .as_ref()
                .and_then(|s| s.bucket_id.clone())
                .filter(|id| !id.is_empty()),
            reservation: annotation(RESERVATION_ANNOTATION).cloned(),
            aliases: annotation(ALIASES_ANNOTATION)
                .map(|a| parse_aliases(a))
                .unwrap_or_default(),
            claimed_by: None,
            creation: Creation::Settled,
        }
    }
}

/// Takes [`ALIASES_ANNOTATION`] apart.
#[must_use]
pub fn parse_aliases(annotation: &str) -> Vec<String> {
    annotation
        .split(',')
        .map(str::trim)
        .filter(|a| !a.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lookup {
    /// Not asked yet.
    #[default]
    Unknown,
    /// Garage says that there is none.
    Absent,
    /// Garage has it.
    Found(BucketInfo),
}

/// What Garage was seen to hold, as far as it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The bucket with the recorded id, or with the id to adopt.
    pub by_id: Lookup,
    /// The bucket with this object's reservation alias.
    pub by_reservation: Lookup,
    /// The bucket with the wanted alias.
    pub by_alias: Lookup,
    /// Garage refused the wanted alias because another bucket has it.
    pub alias_taken: bool,
    /// Garage refused to delete because the bucket holds objects.
    pub not_empty: bool,
}

/// A look into Garage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Answered in [`Observed::by_id`].
    ById(BucketId),
    /// Answered in [`Observed::by_reservation`].
    ByReservation(String),
    /// Answered in [`Observed::by_alias`].
    ByAlias(String),
}

// --- outputs ----------------------------------------------------------------------------------------------

/// What has to happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask Garage.
    Look(Question),
    /// Write [`RESERVATION_ANNOTATION`] on the owner.
    PersistReservation {
        /// The alias to write down.
        alias: String,
    },
    /// Create the bucket with the reservation alias.
    Create {
        /// The reservation alias.
        alias: String,
    },
    /// Remove a bucket that an earlier run created and whose object has, or now adopts, another one.
    DiscardReserved {
        /// The bucket that goes.
        id: BucketId,
    },
    /// Write status.bucketId on the owner.
    PersistBucketId {
        /// The id to write down.
        id: BucketId,
    },
    /// Write [`ALIASES_ANNOTATION`] on the owner.
    PersistAliases {
        /// The aliases to write down.
        aliases: Vec<String>,
    },
    /// Bind the wanted alias.
    AddAlias {
        /// The bucket.
        id: BucketId,
        /// The wanted alias.
        alias: String,
    },
    /// Take the reservation alias away.
    DropReservation {
        /// The bucket.
        id: BucketId,
        /// The reservation alias.
        alias: String,
    },
    /// Take an alias away that this object bound earlier and no longer wants.
    RemoveOldAlias {
        /// The bucket.
        id: BucketId,
        /// The alias that goes.
        alias: String,
    },
    /// Bring website and quotas to what is wanted.
    Update {
        /// The bucket.
        id: BucketId,
        /// Only what differs.
        update: BucketUpdate,
    },
    /// Remove the bucket.
    Delete {
        /// The bucket.
        id: BucketId,
    },
    /// The end.
    End(End),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Garage holds what is wanted.
    Done(Box<StatusProjection>),
    /// It cannot be done until somebody changes something.
    Refuse(Refusal),
    /// Being deleted, and the bucket has to stay for now.
    Stay(Refusal),
    /// Being deleted, and nothing is left to do in Garage.
    Gone,
}

/// Why something is not done. The message holds no times and no ids of other buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable name of the reason.
    pub reason: RefusalReason,
    /// The field that has to change.
    pub field: &'static str,
    /// What is wrong and what to do; begins with the field.
    pub message: String,
}

/// Stable names of what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The wanted alias is none that Garage takes.
    InvalidAlias,
    /// Another bucket has the wanted alias.
    AliasTaken,
    /// An id that is no bucket id.
    InvalidBucketId,
    /// spec.bucketId names another bucket than the recorded one.
    BucketIdChanged,
    /// The bucket to adopt does not exist.
    BucketNotFound,
    /// The recorded bucket no longer exists.
    BucketLost,
    /// Another GarageBucket has the bucket to adopt.
    BucketClaimed,
    /// A quota that is no size or is negative.
    InvalidQuota,
    /// The bucket still holds objects.
    BucketNotEmpty,
    /// A creation was not answered, and its bucket may still appear.
    CreationUnanswered,
    /// The spec asks for something that is not done.
    Unsupported,
}

impl RefusalReason {
    /// Every reason, for tests and documentation.
    pub const ALL: [Self; 11] = [
        Self::InvalidAlias,
        Self::AliasTaken,
        Self::InvalidBucketId,
        Self::BucketIdChanged,
        Self::BucketNotFound,
        Self::BucketLost,
        Self::BucketClaimed,
        Self::InvalidQuota,
        Self::BucketNotEmpty,
        Self::CreationUnanswered,
        Self::Unsupported,
    ];

    /// The published spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidAlias => "InvalidAlias",
            Self::AliasTaken => "AliasTaken",
            Self::InvalidBucketId => "InvalidBucketId",
            Self::BucketIdChanged => "BucketIdChanged",
            Self::BucketNotFound => "BucketNotFound",
            Self::BucketLost => "BucketLost",
            Self::BucketClaimed => "BucketClaimed",
            Self::InvalidQuota => "InvalidQuota",
            Self::BucketNotEmpty => "BucketNotEmpty",
            Self::CreationUnanswered => "CreationUnanswered",
            Self::Unsupported => "Unsupported",
        }
    }
}

/// status.phase of a GarageBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its cluster cannot be used yet.
    Pending,
    /// Not in Garage yet.
    Creating,
    /// Garage holds what is wanted.
    Ready,
    /// Being deleted.
    Deleting,
    /// Refused until somebody changes something.
    Failed,
}

impl Phase {
    /// The published spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Creating => "Creating",
            Self::Ready => "Ready",
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
        }
    }

    /// The phase after a run. A run that broke off leaves a recorded bucket in the phase it had (`None`).
    #[must_use]
    pub fn after(run: &Result<End, DriveError>, wanted: &Wanted, known: &Known) -> Option<Self> {
        if wanted.deletion.is_some() {
            return Some(Self::Deleting);
        }
        match run {
            Ok(End::Done(_)) => Some(Self::Ready),
            Ok(End::Refuse(_)) => Some(Self::Failed),
            Ok(End::Stay(_) | End::Gone) => Some(Self::Deleting),
            Err(_) if known.bucket_id.is_none() => Some(Self::Creating),
            Err(_) => None,
        }
    }
}

/// What the status says about a bucket that is as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusProjection {
    /// status.bucketId
    pub bucket_id: BucketId,
    /// status.globalAlias: the wanted alias, which Garage has
    pub global_alias: String,
    /// status.phase
    pub phase: Phase,
    /// status.websiteEnabled
    pub website_enabled: bool,
    /// status.websiteUrl; empty when there is no website or no root domain
    pub website_url: String,
    /// status.websiteConfig
    pub website_config: Option<WebsiteDocuments>,
    /// status.quotaUsage as Garage counts now; [`usage_to_publish`] says whether to show it.
    pub usage: Usage,
    /// status.createdAt, RFC 3339
    pub created_at: Option<String>,
}

impl StatusProjection {
    /// The top-level fields of `status`, with the usage figures that [`usage_to_publish`] chose.
    #[must_use]
    pub fn fields(&self, usage: &Usage) -> Vec<(&'static str, StatusField)> {
        let text = |text: &str| match text {
            "" => StatusField::Clear,
            text => StatusField::Set(Value::from(text)),
        };
        let config = self.website_config.as_ref().map(|documents| WebsiteConfigStatus {
            index_document: Some(documents.index_document.clone()),
            error_document: documents.error_document.clone(),
        });
        vec![
            ("bucketId", text(self.bucket_id.as_str())),
            ("globalAlias", text(&self.global_alias)),
            ("phase", text(self.phase.as_str())),
            (
                "createdAt",
                text(
                    &self
                        .created_at
                        .as_deref()
                        .and_then(whole_seconds)
                        .unwrap_or_default(),
                ),
            ),
            (
                "websiteEnabled",
                StatusField::Set(Value::from(self.website_enabled)),
            ),
            ("websiteUrl", text(&self.website_url)),
            ("websiteConfig", object(config.as_ref())),
            ("quotaUsage", object(Some(&usage.to_status()))),
            ("size", text(&usage.size())),
        ]
    }
}

fn object<T: serde::Serialize>(value: Option<&T>) -> StatusField {
    value
        .and_then(|v| serde_json::to_value(v).ok())
        .map_or(StatusField::Clear, StatusField::Set)
}

/// A time of Garage, which counts milliseconds, as Kubernetes writes times.
fn whole_seconds(time: &str) -> Option<String> {
    let time: jiff::Timestamp = time.parse().ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

// --- aliases ----------------------------------------------------------------------------------------------

/// The alias under which the bucket of one object is created: `garage-rsv-` and 32 hexadecimal digits that only this
/// incarnation of the object has.
#[must_use]
pub fn reservation_alias(namespace: &str, name: &str, uid: &str) -> String {
    let digest = Sha256::digest([namespace, name, uid].join("\0"));
    digest
        .iter()
        .take(16)
        .fold(RESERVATION_PREFIX.to_owned(), |mut alias, byte| {
            // Writing into a String does not fail.
            let _ = write!(alias, "{byte:02x}");
            alias
        })
}

/// Whether an alias is one under which buckets are only created, never reached.
#[must_use]
pub fn is_reservation(alias: &str) -> bool {
    alias.starts_with(RESERVATION_PREFIX) || alias.starts_with(COSI_RESERVATION_PREFIX)
}

/// Whether Garage takes `alias` as a global alias; if not, why.
///
/// # Errors
/// What is wrong, to be put behind the alias and a colon.
pub fn check_alias(alias: &str) -> Result<(), &'static str> {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = alias.as_bytes();
    if !(3..=63).contains(&bytes.len()) {
        return Err("must have 3 to 63 characters");
    }
    if !bytes
        .iter()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-'))
    {
        return Err("only lower-case letters, digits, '.' and '-' are allowed");
    }
    if !edge(bytes.first()) || !edge(bytes.last()) {
        return Err("must begin and end with a letter or a digit");
    }
    if alias.parse::<std::net::IpAddr>().is_ok() {
        return Err("must not be an IP address");
    }
    if alias.split('.').any(|label| label.starts_with("xn--")) {
        return Err("labels that begin with 'xn--' are not allowed");
    }
    if alias.ends_with("-s3alias") {
        return Err("must not end with '-s3alias'");
    }
    if is_reservation(alias) {
        return Err("must not begin with 'garage-rsv-' or 'cosi-rsv-', which mark buckets being created");
    }
    Ok(())
}

fn wanted_alias(wanted: &Wanted) -> Result<&str, Refusal> {
    let (alias, field, hint) = match wanted.global_alias.as_deref().filter(|a| !a.is_empty()) {
        Some(alias) => (alias, "spec.globalAlias", ""),
        None => (wanted.name.as_str(), "metadata.name", "; set spec.globalAlias"),
    };
    check_alias(alias).map(|()| alias).map_err(|fault| Refusal {
        reason: RefusalReason::InvalidAlias,
        field,
        message: format!("{field}: {alias:?} is not a valid bucket alias: {fault}{hint}"),
    })
}

// --- quotas, website, usage -------------------------------------------------------------------------------

fn wanted_quotas(wanted: &Wanted) -> Result<BucketQuotas, Refusal> {
    let refuse = |field: &'static str, what: String| Refusal {
        reason: RefusalReason::InvalidQuota,
        field,
        message: format!("{field}: {what}"),
    };
    let max_size = match &wanted.max_size {
        None => None,
        Some(Size::Bytes(bytes)) => Some(*bytes),
        Some(Size::Bad(text)) => {
            let what = format!("{text:?} is not a size; write a number of bytes, or e.g. 10Gi");
            return Err(refuse("spec.quotas.maxSize", what));
        }
    };
    let max_objects = match wanted.max_objects {
        None => None,
        Some(count) => Some(u64::try_from(count).map_err(|_| {
            refuse(
                "spec.quotas.maxObjects",
                format!("{count} is negative; leave it out for no limit"),
            )
        })?),
    };
    Ok(BucketQuotas {
        max_size,
        max_objects,
    })
}

/// What has to change in Garage, if anything.
fn difference(
    info: &BucketInfo,
    website: Option<&WebsiteDocuments>,
    quotas: BucketQuotas,
) -> Option<BucketUpdate> {
    let website = match website {
        None => info.website_access.then_some(WebsiteUpdate::Disable),
        Some(documents) => (!info.website_access || info.website_config.as_ref() != Some(documents))
            .then(|| WebsiteUpdate::Enable(documents.clone())),
    };
    let quotas = (info.quotas != quotas).then_some(quotas);
    (website.is_some() || quotas.is_some()).then_some(BucketUpdate { website, quotas })
}

/// Documents in the form in which Garage stores them: an index document always, no empty error document.
#[must_use]
pub fn website_documents(index: Option<&str>, error: Option<&str>) -> WebsiteDocuments {
    let given = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(str::to_owned);
    WebsiteDocuments {
        index_document: given(index).unwrap_or_else(|| DEFAULT_INDEX_DOCUMENT.to_owned()),
        error_document: given(error),
    }
}

/// Address of the website inside Garage's own naming, without port. Empty when there is none.
fn website_url(info: &BucketInfo, alias: &str, web_root: Option<&str>) -> String {
    match web_root.map(|root| root.trim_start_matches('.')) {
        Some(root) if info.website_access && !root.is_empty() => format!("http://{alias}.{root}"),
        _ => String::new(),
    }
}

/// How much a bucket holds and may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in it.
    pub size_bytes: u64,
    /// Bytes allowed; `None` for no limit.
    pub size_limit: Option<u64>,
    /// Objects in it.
    pub object_count: u64,
    /// Objects allowed; `None` for no limit.
    pub object_limit: Option<u64>,
}

impl Usage {
    fn of(info: &BucketInfo) -> Self {
        Self {
            size_bytes: info.bytes,
            size_limit: info.quotas.max_size,
            object_count: info.objects,
            object_limit: info.quotas.max_objects,
        }
    }

    /// Share of the size limit in per cent, rounded down.
    #[must_use]
    pub fn size_percent(&self) -> Option<u32> {
        self.size_limit.map(|limit| percent(self.size_bytes, limit))
    }

    /// Share of the object limit in per cent, rounded down.
    #[must_use]
    pub fn object_percent(&self) -> Option<u32> {
        self.object_limit.map(|limit| percent(self.object_count, limit))
    }

    /// As it stands in the status; larger figures than the status can hold are written as the largest.
    #[must_use]
    pub fn to_status(&self) -> QuotaUsage {
        let wide = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let narrow = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        QuotaUsage {
            size_bytes: Some(wide(self.size_bytes)),
            size_limit: self.size_limit.map(wide),
            size_percent: self.size_percent().map(narrow),
            object_count: Some(wide(self.object_count)),
            object_limit: self.object_limit.map(wide),
            object_percent: self.object_percent().map(narrow),
        }
    }

    /// What a status shows; `None` if it shows no figures.
    #[must_use]
    pub fn from_status(shown: &QuotaUsage) -> Option<Self> {
        let count = |n: i64| u64::try_from(n).ok();
        Some(Self {
            size_bytes: shown.size_bytes.and_then(count)?,
            size_limit: shown.size_limit.and_then(count),
            object_count: shown.object_count.and_then(count)?,
            object_limit: shown.object_limit.and_then(count),
        })
    }

    /// `size_bytes` for people: `0 B`, `1.5 MiB`.
    #[must_use]
    pub fn size(&self) -> String {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut tenths = u128::from(self.size_bytes) * 10;
        let mut unit = None;
        for name in UNITS {
            if tenths < 10 * 1024 {
                break;
            }
            tenths /= 1024;
            unit = Some(name);
        }
        match unit {
            None => format!("{} B", self.size_bytes),
            Some(unit) => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        }
    }
}

fn percent(used: u64, limit: u64) -> u32 {
    if limit == 0 {
        // Nothing is allowed, so whatever there is fills it.
        return 100;
    }
    u32::try_from(u128::from(used) * 100 / u128::from(limit)).unwrap_or(u32::MAX)
}

/// Which usage figures the status shows: a new limit at once, new counts only when one of them moved by at least 1 %
/// of what is shown, and no sooner than [`USAGE_INTERVAL`] after the last change.
///
/// `since_shown` is the time since the shown figures were written; `None` when this process does not know it.
#[must_use]
pub fn usage_to_publish(shown: Option<Usage>, since_shown: Option<Duration>, fresh: Usage) -> Usage {
    let Some(shown) = shown else { return fresh };
    if (shown.size_limit, shown.object_limit) != (fresh.size_limit, fresh.object_limit) {
        return fresh;
    }
    let moved = |from: u64, to: u64| {
        let by = from.abs_diff(to);
        by > 0 && u128::from(by) * 100 >= u128::from(from)
    };
    let worth_it = moved(shown.size_bytes, fresh.size_bytes) || moved(shown.object_count, fresh.object_count);
    let due = since_shown.is_none_or(|since| since >= USAGE_INTERVAL);
    if worth_it && due { fresh } else { shown }
}

// --- the decision -----------------------------------------------------------------------------------------

/// What has to happen next, given what is wanted, what was written down, and what Garage was seen to hold.
#[must_use]
pub fn next(wanted: &Wanted, known: &Known, observed: &Observed) -> Step {
    let step = match wanted.deletion {
        Some(deletion) => next_deleting(wanted, known, observed, deletion),
        None => next_living(wanted, known, observed),
    };
    step.unwrap_or_else(|refusal| Step::End(End::Refuse(refusal)))
}

fn next_living(wanted: &Wanted, known: &Known, observed: &Observed) -> Result<Step, Refusal> {
    if let Some(Unsupported { field, why }) = &wanted.unsupported {
        return Err(Refusal {
            reason: RefusalReason::Unsupported,
            field,
            message: format!("{field}: {why}"),
        });
    }
    let alias = wanted_alias(wanted)?;
    let quotas = wanted_quotas(wanted)?;
    let recorded = recorded_id(known)?;
    let asked_for = match wanted.bucket_id.as_deref().filter(|id| !id.is_empty()) {
        None => None,
        Some(text) => Some(BucketId::parse(text).ok_or_else(|| Refusal {
            reason: RefusalReason::InvalidBucketId,
            field: "spec.bucketId",
            message:
                "spec.bucketId: must be the bucket's whole id, 64 lower-case hexadecimal digits".to_owned(),
        })?),
    };
    match (recorded, asked_for) {
        (Some(recorded), Some(asked_for)) if recorded != asked_for => Err(Refusal {
            reason: RefusalReason::BucketIdChanged,
            field: "spec.bucketId",
            message: "spec.bucketId: differs from status.bucketId; this object keeps the bucket it has, \
                      create another GarageBucket to adopt another one"
                .to_owned(),
        }),
        (Some(id), _) => {
            if let Some(other) = &known.claimed_by {
                return Err(Refusal {
                    reason: RefusalReason::BucketClaimed,
                    field: "status.bucketId",
                    message: format!(
                        "status.bucketId: the older GarageBucket {other} has this bucket too and keeps it; this object \
                         changes nothing in Garage. Delete it, which leaves the bucket alone, or delete the other one"
                    ),
                });
            }
            next_recorded(wanted, known, observed, &id, alias, quotas)
        }
        (None, Some(id)) => next_adopting(wanted, known, observed, id),
        (None, None) => next_creating(wanted, known, observed, alias),
    }
}

fn recorded_id(known: &Known) -> Result<Option<BucketId>, Refusal> {
    match known.bucket_id.as_deref().filter(|id| !id.is_empty()) {
        None => Ok(None),
        Some(text) => BucketId::parse(text).map(Some).ok_or_else(|| Refusal {
            reason: RefusalReason::InvalidBucketId,
            field: "status.bucketId",
            message: "status.bucketId: is not a bucket id; only this operator may write the status"
                .to_owned(),
        }),
    }
}

/// This object's own reservation alias, and whether it was written down. An annotation with another alias counts for
/// nothing: it would be a way to reach for the bucket of another object.
fn own_reservation(wanted: &Wanted, known: &Known) -> (String, bool) {
    let own = reservation_alias(&wanted.namespace, &wanted.name, &wanted.uid);
    let written = known.reservation.as_deref() == Some(own.as_str());
    (own, written)
}

fn next_creating(wanted: &Wanted, known: &Known, observed: &Observed, alias: &str) -> Result<Step, Refusal> {
    let (own, written) = own_reservation(wanted, known);
    if written {
        match &observed.by_reservation {
            Lookup::Unknown => return Ok(Step::Look(Question::ByReservation(own))),
            Lookup::Found(info) => return Ok(Step::PersistBucketId { id: info.id.clone() }),
            Lookup::Absent => {}
        }
    }
    match &observed.by_alias {
        Lookup::Unknown => Ok(Step::Look(Question::ByAlias(alias.to_owned()))),
        Lookup::Found(_) => Err(alias_taken(wanted, alias)),
        Lookup::Absent if written => Ok(Step::Create { alias: own }),
        Lookup::Absent => Ok(Step::PersistReservation { alias: own }),
    }
}

fn next_adopting(wanted: &Wanted, known: &Known, observed: &Observed, id: BucketId) -> Result<Step, Refusal> {
    if let Some(other) = &known.claimed_by {
        return Err(Refusal {
            reason: RefusalReason::BucketClaimed,
            field: "spec.bucketId",
            message: format!("spec.bucketId: GarageBucket {other} already has this bucket"),
        });
    }
    // An earlier run may have created a bucket before the object asked for another one.
    let (own, written) = own_reservation(wanted, known);
    if written {
        match &observed.by_reservation {
            Lookup::Unknown => return Ok(Step::Look(Question::ByReservation(own))),
            Lookup::Found(_) if observed.not_empty => {
                return Err(Refusal {
                    reason: RefusalReason::BucketNotEmpty,
                    field: "spec.bucketId",
                    message: format!(
                        "spec.bucketId: the bucket that was created for this object before (alias {own}) \
                         holds objects; empty it, or remove spec.bucketId to keep it"
                    ),
                });
            }
            Lookup::Found(info) if info.id != id => return Ok(Step::DiscardReserved { id: info.id.clone() }),
            Lookup::Found(_) | Lookup::Absent => {}
        }
    }
    match &observed.by_id {
        Lookup::Unknown => Ok(Step::Look(Question::ById(id))),
        Lookup::Found(info) if info.global_aliases.iter().any(|a| is_reservation(a) && *a != own) => {
            Err(Refusal {
                reason: RefusalReason::BucketClaimed,
                field: "spec.bucketId",
                message:
                    "spec.bucketId: this bucket is being created for another object (it has a reservation \
                          alias); if that object is gone, remove the reservation alias in Garage"
                        .to_owned(),
            })
        }
        Lookup::Found(_) => Ok(Step::PersistBucketId { id }),
        Lookup::Absent => Err(Refusal {
            reason: RefusalReason::BucketNotFound,
            field: "spec.bucketId",
            message: "spec.bucketId: Garage has no bucket with this id".to_owned(),
        }),
    }
}

fn next_recorded(
    wanted: &Wanted,
    known: &Known,
    observed: &Observed,
    id: &BucketId,
    alias: &str,
    quotas: BucketQuotas,
) -> Result<Step, Refusal> {
    let info = match &observed.by_id {
        Lookup::Unknown => return Ok(Step::Look(Question::ById(id.clone()))),
        Lookup::Found(info) => info,
        Lookup::Absent => {
            return Err(Refusal {
                reason: RefusalReason::BucketLost,
                field: "status.bucketId",
                message:
                    "status.bucketId: the bucket no longer exists in Garage; nothing is created in its place \
                          unasked: delete this GarageBucket and create it again for a new, empty bucket"
                        .to_owned(),
            });
        }
    };
    let id = id.clone();
    if !known.aliases.iter().any(|a| a == alias) {
        // Written down before it is bound, so that a later change of the spec finds it. What is not on the bucket
        // need not be remembered.
        let mut aliases: Vec<String> = known
            .aliases
            .iter()
            .filter(|a| info.has_alias(a))
            .cloned()
            .collect();
        aliases.push(alias.to_owned());
        return Ok(Step::PersistAliases { aliases });
    }
    if !info.has_alias(alias) {
        if observed.alias_taken {
            return Err(alias_taken(wanted, alias));
        }
        return Ok(Step::AddAlias {
            id,
            alias: alias.to_owned(),
        });
    }
    let (own, _) = own_reservation(wanted, known);
    if info.has_alias(&own) {
        return Ok(Step::DropReservation { id, alias: own });
    }
    if let Some(old) = known.aliases.iter().find(|a| *a != alias && info.has_alias(a)) {
        return Ok(Step::RemoveOldAlias {
            id,
            alias: old.clone(),
        });
    }
    if known.aliases.len() != 1 {
        return Ok(Step::PersistAliases {
            aliases: vec![alias.to_owned()],
        });
    }
    if let Some(update) = difference(info, wanted.website.as_ref(), quotas) {
        return Ok(Step::Update { id, update });
    }
    if known.creation == Creation::Late {
        match &observed.by_reservation {
            Lookup::Unknown => return Ok(Step::Look(Question::ByReservation(own))),
            // A second bucket for one object, made by a creation that nobody waited for any more.
            Lookup::Found(stray) if stray.id != id && !observed.not_empty => {
                return Ok(Step::DiscardReserved { id: stray.id.clone() });
            }
            Lookup::Found(_) | Lookup::Absent => {}
        }
    }
    Ok(Step::End(End::Done(Box::new(StatusProjection {
        bucket_id: id,
        global_alias: alias.to_owned(),
        phase: Phase::Ready,
        website_enabled: info.website_access,
        website_url: website_url(info, alias, wanted.web_root.as_deref()),
        website_config: info.website_config.clone().filter(|_| info.website_access),
        usage: Usage::of(info),
        created_at: info.created.clone(),
    }))))
}

fn next_deleting(
    wanted: &Wanted,
    known: &Known,
    observed: &Observed,
    deletion: Deletion,
) -> Result<Step, Refusal> {
    if deletion == Deletion::Retain || known.claimed_by.is_some() {
        return Ok(Step::End(End::Gone));
    }
    if observed.not_empty {
        return Ok(Step::End(End::Stay(Refusal {
            reason: RefusalReason::BucketNotEmpty,
            field: "spec.deletionPolicy",
            message: "spec.deletionPolicy: the bucket still holds objects and is kept; empty \
                      it, or set deletionPolicy: Retain"
                .to_owned(),
        })));
    }
    if let Some(id) = recorded_id(known)?
        && observed.by_id != Lookup::Absent
    {
        return Ok(Step::Delete { id });
    }
    // A run may have been killed after creating a bucket and before recording it, and a creation that was given up
    // may have happened late.
    let (own, written) = own_reservation(wanted, known);
    Ok(match &observed.by_reservation {
        _ if !written => Step::End(End::Gone),
        Lookup::Unknown => Step::Look(Question::ByReservation(own)),
        Lookup::Absent if known.creation == Creation::Open => Step::End(End::Stay(Refusal {
            reason: RefusalReason::CreationUnanswered,
            field: "status.bucketId",
            message: "status.bucketId: the creation of a bucket was not answered, so one may still appear in Garage; it \
                      is looked for once more before this object goes"
                .to_owned(),
        })),
        Lookup::Absent => Step::End(End::Gone),
        Lookup::Found(info) => Step::Delete { id: info.id.clone() },
    })
}

fn alias_taken(wanted: &Wanted, alias: &str) -> Refusal {
    let field = if wanted.global_alias.as_deref().is_some_and(|a| !a.is_empty()) {
        "spec.globalAlias"
    } else {
        "metadata.name"
    };
    // The other bucket's id is not told: who knows it could adopt that bucket.
    Refusal {
        reason: RefusalReason::AliasTaken,
        field,
        message: format!(
            "{field}: the alias {alias:?} belongs to another bucket in Garage; choose another spec.globalAlias, or \
             set spec.bucketId to take that bucket over"
        ),
    }
}

// --- the driver -------------------------------------------------------------------------------------------

/// Writes on the owner that must stand before the next call to Garage. Each is guarded by the resourceVersion of the
/// object that the run was planned from, and by its uid.
#[async_trait]
pub trait OwnerPatch: Send + Sync {
    /// Sets an annotation, or removes it.
    async fn persist_annotation(&self, key: &str, value: Option<&str>) -> Result<(), ReconcileError>;
    /// Sets status.bucketId.
    async fn persist_status_bucket_id(&self, id: &BucketId) -> Result<(), ReconcileError>;
}

#[async_trait]
impl OwnerPatch for reconcile_kit::owner::OwnerPatch {
    async fn persist_annotation(&self, key: &str, value: Option<&str>) -> Result<(), ReconcileError> {
        self.annotate(key, value).await
    }
    async fn persist_status_bucket_id(&self, id: &BucketId) -> Result<(), ReconcileError> {
        self.status(serde_json::json!({ "bucketId": id.as_str() })).await
    }
}

/// Why a run broke off. The next run goes on where this one stood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// A call to Garage failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A write on the owner failed.
    #[error(transparent)]
    Owner(#[from] ReconcileError),
    /// A write succeeded and is wanted again.
    #[error(
        "the bucket in Garage does not keep what is written; does something else work on it at the same time?"
    )]
    Restless,
}

impl From<DriveError> for ReconcileError {
    fn from(error: DriveError) -> Self {
        match error {
            DriveError::Admin(error) => Self::from(&error),
            DriveError::Owner(error) => error,
            DriveError::Restless => Self::new(reconcile_kit::ErrorClass::Conflict, error.to_string()),
        }
    }
}

/// Performs steps until the end. `known` is what stood on the object when the run began.
///
/// # Errors
/// The first call or write that failed in a way that [`next`] has no answer to.
pub async fn drive(
    admin: &dyn GarageAdmin,
    owner: &dyn OwnerPatch,
    wanted: &Wanted,
    known: &Known,
) -> Result<End, DriveError> {
    let mut known = known.clone();
    let mut observed = Observed::default();
    let mut done: Vec<Step> = Vec::new();
    for _ in 0..STEP_LIMIT {
        let step = next(wanted, &known, &observed);
        // A write that is wanted again did not do what it was made for.
        if !matches!(step, Step::Look(_)) {
            if done.contains(&step) {
                return Err(DriveError::Restless);
            }
            done.push(step.clone());
        }
        tracing::debug!(?step, "bucket step");
        match step {
            Step::End(end) => return Ok(end),
            Step::Look(Question::ById(id)) => observed.by_id = lookup(admin.bucket_by_id(&id).await)?,
            Step::Look(Question::ByReservation(alias)) => {
                observed.by_reservation = lookup(admin.bucket_by_alias(&alias).await)?;
            }
            Step::Look(Question::ByAlias(alias)) => {
                observed.by_alias = lookup(admin.bucket_by_alias(&alias).await)?;
            }
            Step::PersistReservation { alias } => {
                owner
                    .persist_annotation(RESERVATION_ANNOTATION, Some(&alias))
                    .await?;
                known.reservation = Some(alias);
            }
            Step::PersistAliases { aliases } => {
                owner
                    .persist_annotation(ALIASES_ANNOTATION, Some(&aliases.join(",")))
                    .await?;
                known.aliases = aliases;
            }
            Step::PersistBucketId { id } => {
                owner.persist_status_bucket_id(&id).await?;
                known.bucket_id = Some(id.to_string());
                // What was found under the reservation alias is what is recorded now.
                if let Lookup::Found(info) = &observed.by_reservation
                    && info.id == id
                {
                    observed.by_id = observed.by_reservation.clone();
                }
            }
            Step::Create { alias } => match admin.create_bucket(&alias).await {
                Ok(info) => observed.by_reservation = Lookup::Found(info),
                // Created by a call whose answer was lost: look again.
                Err(e) if e.class() == AdminErrorClass::Conflict => observed.by_reservation = Lookup::Unknown,
                Err(e) => return Err(e.into()),
            },
            Step::AddAlias { id, alias } => match admin.add_alias(&id, &alias).await {
                Err(e) if e.class() == AdminErrorClass::AliasTaken => observed.alias_taken = true,
                answer => observed.by_id = lookup(answer)?,
            },
            Step::DropReservation { id, alias } | Step::RemoveOldAlias { id, alias } => {
                observed.by_id = lookup(admin.remove_alias(&id, &alias).await)?;
            }
            Step::Update { id, update } => {
                observed.by_id = lookup(admin.update_bucket(&id, &update).await)?;
            }
            Step::DiscardReserved { id } => match admin.delete_bucket(&id).await {
                Err(e) if e.class() == AdminErrorClass::NotEmpty => observed.not_empty = true,
                answer => observed.by_reservation = gone(answer)?,
            },
            Step::Delete { id } => match admin.delete_bucket(&id).await {
                Err(e) if e.class() == AdminErrorClass::NotEmpty => observed.not_empty = true,
                answer => {
                    let absent = gone(answer)?;
                    if known.bucket_id.as_deref() == Some(id.as_str()) {
                        observed.by_id = absent;
                    } else {
                        observed.by_reservation = absent;
                    }
                }
            },
        }
    }
    Err(DriveError::Restless)
}

fn lookup(answer: Result<BucketInfo, AdminError>) -> Result<Lookup, AdminError> {
    match answer {
        Ok(info) => Ok(Lookup::Found(info)),
        Err(e) if e.class() == AdminErrorClass::NotFound => Ok(Lookup::Absent),
        Err(e) => Err(e),
    }
}

fn gone(answer: Result<(), AdminError>) -> Result<Lookup, AdminError> {
    match answer {
        Ok(()) => Ok(Lookup::Absent),
        Err(e) if e.class() == AdminErrorClass::NotFound => Ok(Lookup::Absent),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests;
