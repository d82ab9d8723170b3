//! The driver: answers the questions of the decision, performs its steps one by one, and may be killed between any two.

use async_trait::async_trait;
use reconcile_kit::ReconcileError;

use super::super::admin::{AdminError, AdminErrorClass, BucketId, BucketInfo, GarageAdmin};
use super::decide::next;
use super::{
    ALIASES_ANNOTATION, End, Known, Lookup, Observed, Question, RESERVATION_ANNOTATION, Step, Wanted,
};

/// More steps than any way through [`next`] has.
const STEP_LIMIT: usize = 32;

/// Writes on the owner that must stand before the next call to Garage. Each is guarded by the resourceVersion of the
/// object that the run was planned from, and by its uid.
#[async_trait]
pub trait OwnerPatch: Send + Sync {
    /// Asked right before an id is recorded: another object (`namespace/name`) that has this bucket, or records it at this
    /// moment. It keeps it.
    fn claim(&self, _: &BucketId) -> Option<String> {
        None
    }
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

/// Performs steps until the end. `known` is what stands on the object; what is written down there is noted here too, so
/// that a run that broke off can be followed by another one without a new look at the object.
///
/// # Errors
/// The first call or write that failed in a way that [`next`] has no answer to.
pub async fn drive(
    admin: &dyn GarageAdmin,
    owner: &dyn OwnerPatch,
    wanted: &Wanted,
    known: &mut Known,
) -> Result<End, DriveError> {
    let mut observed = Observed::default();
    let mut done: Vec<Step> = Vec::new();
    for _ in 0..STEP_LIMIT {
        let step = next(wanted, known, &observed);
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
                if let Some(other) = owner.claim(&id) {
                    known.claimed_by = Some(other);
                    continue;
                }
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
