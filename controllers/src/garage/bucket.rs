//! One GarageBucket and its bucket in Garage: what has to happen next, and the driver that does it.
//!
//! [`next`] decides and is pure. [`drive`] answers its questions, performs its steps one by one, and may be killed
//! between any two: a bucket in Garage is always either recorded in `status.bucketId` or carries the reservation
//! alias that the next run looks for. No Kubernetes client and no clock lives here.
//!
//! In this file stand the words that the decision, the driver and the values of a bucket are told in.

use std::time::Duration;

use kube::ResourceExt as _;
use reconcile_kit::StatusField;
use routewright_crds::{DeletionPolicy, GarageBucket, GarageBucketSpec, Quantity, WebsiteConfigStatus};
use serde_json::Value;

use super::admin::{BucketId, BucketInfo, BucketUpdate, WebsiteDocuments};

mod decide;
mod drive;
mod values;

pub use decide::next;
pub use drive::{DriveError, OwnerPatch, drive};
pub use values::{
    Usage, check_alias, is_reservation, reservation_alias, usage_to_publish, website_documents,
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

#[cfg(test)]
mod tests;
