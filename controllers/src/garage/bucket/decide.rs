//! The decision: what has to happen next. Pure.

use super::super::admin::{BucketId, BucketQuotas};
use super::values::{
    difference, is_reservation, reservation_alias, wanted_alias, wanted_quotas, website_url,
};
use super::{
    Creation, Deletion, End, Known, Lookup, Observed, Phase, Question, Refusal, RefusalReason,
    StatusProjection, Step, Unsupported, Usage, Wanted,
};

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
