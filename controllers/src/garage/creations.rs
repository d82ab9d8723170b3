//! Creations of buckets that were sent to Garage and not answered: they may take effect later, when their object has
//! gone already. In memory only; what an earlier process sent is presumed where it would matter.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    admin::{
        AdminError, AdminErrorClass, BucketId, BucketInfo, BucketUpdate, CALL_TIMEOUT, ClusterHealth,
        GarageAdmin,
    },
    bucket::Creation,
};

/// A creation that is not answered may take effect for so long. Twice the longest call.
pub const GRACE: Duration = Duration::from_secs(2 * CALL_TIMEOUT.as_secs());

/// When the unanswered creations of each object were sent, by its uid.
#[derive(Debug, Default)]
pub struct Creations(Mutex<HashMap<String, Vec<Instant>>>);

impl Creations {
    fn map(&self) -> MutexGuard<'_, HashMap<String, Vec<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent(&self, uid: &str) {
        self.map().entry(uid.to_owned()).or_default().push(Instant::now());
    }

    /// The one that was sent last has had its effect, or never will. Earlier ones stay open.
    fn answered(&self, uid: &str) {
        let mut map = self.map();
        if let Some(sent) = map.get_mut(uid) {
            sent.pop();
            if sent.is_empty() {
                map.remove(uid);
            }
        }
    }

    /// Another process may have sent one and died; it is counted from now. Nothing happens if one is known.
    pub fn presume(&self, uid: &str) {
        self.map()
            .entry(uid.to_owned())
            .or_insert_with(|| vec![Instant::now()]);
    }

    /// What is to be expected for this object.
    pub fn of(&self, uid: &str) -> Creation {
        match self.map().get(uid).and_then(|sent| sent.iter().max()) {
            None => Creation::Settled,
            Some(last) if last.elapsed() < GRACE => Creation::Open,
            Some(_) => Creation::Late,
        }
    }

    /// It was looked for after [`GRACE`], or the object is gone.
    pub fn forget(&self, uid: &str) {
        self.map().remove(uid);
    }
}

/// Whether after this answer the call has no effect still to come.
fn is_final(answer: &Result<BucketInfo, AdminError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => match error.class() {
            // Refused by what was reached, or not sent.
            AdminErrorClass::Conflict
            | AdminErrorClass::AliasTaken
            | AdminErrorClass::Invalid
            | AdminErrorClass::NotFound
            | AdminErrorClass::NotEmpty
            | AdminErrorClass::Unauthorized
            | AdminErrorClass::Redirect
            | AdminErrorClass::Fenced => true,
            // A part of the nodes may have it.
            AdminErrorClass::Unavailable
            | AdminErrorClass::Timeout
            | AdminErrorClass::Connect
            | AdminErrorClass::Garbage
            | AdminErrorClass::TooLarge => false,
        },
    }
}

/// A Garage whose creations for one object are written down.
pub struct Noted<'a> {
    /// The Garage.
    pub inner: &'a dyn GarageAdmin,
    /// Where.
    pub creations: &'a Creations,
    /// Of this object.
    pub uid: &'a str,
}

#[async_trait]
impl GarageAdmin for Noted<'_> {
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
        // Before the call: whoever drops it leaves it noted.
        self.creations.sent(self.uid);
        let answer = self.inner.create_bucket(alias).await;
        if is_final(&answer) {
            self.creations.answered(self.uid);
        }
        answer
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.inner.update_bucket(id, update).await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.inner.add_alias(id, alias).await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.inner.remove_alias(id, alias).await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.inner.delete_bucket(id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garage::{
        admin::Call,
        testing::{FakeGarage, Fault},
    };

    async fn create(creations: &Creations, garage: &FakeGarage, fault: Option<Fault>) {
        if let Some(fault) = fault {
            garage.fail(Call::CreateBucket, fault);
        }
        let noted = Noted {
            inner: garage,
            creations,
            uid: "u",
        };
        let _ = tokio::time::timeout(CALL_TIMEOUT, noted.create_bucket("garage-rsv-1")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_settles_a_creation_and_its_absence_keeps_it_open_for_a_while() {
        use AdminErrorClass as E;
        for (fault, expected) in [
            (None, Creation::Settled),
            (Some(Fault::Before(E::Conflict)), Creation::Settled),
            (Some(Fault::Before(E::Unauthorized)), Creation::Settled),
            (Some(Fault::Before(E::Unavailable)), Creation::Open),
            (Some(Fault::AfterEffect(E::Timeout)), Creation::Open),
            (Some(Fault::AfterEffect(E::Connect)), Creation::Open),
            (Some(Fault::AfterEffect(E::Garbage)), Creation::Open),
            (Some(Fault::Hang), Creation::Open),
        ] {
            let creations = Creations::default();
            create(&creations, &FakeGarage::new(), fault).await;
            assert_eq!(creations.of("u"), expected, "{fault:?}");
            assert_eq!(creations.of("another"), Creation::Settled);
            tokio::time::advance(GRACE).await;
            let later = if expected == Creation::Open {
                Creation::Late
            } else {
                expected
            };
            assert_eq!(creations.of("u"), later, "{fault:?}");
            creations.forget("u");
            assert_eq!(creations.of("u"), Creation::Settled);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_creation_that_is_answered_does_not_settle_the_first() {
        let (creations, garage) = (Creations::default(), FakeGarage::new());
        create(&creations, &garage, Some(Fault::Hang)).await;
        create(&creations, &garage, None).await;
        assert_eq!(creations.of("u"), Creation::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_process_may_have_sent_is_counted_from_the_first_thought_of_it() {
        let creations = Creations::default();
        creations.presume("u");
        tokio::time::advance(GRACE / 2).await;
        creations.presume("u");
        assert_eq!(creations.of("u"), Creation::Open);
        tokio::time::advance(GRACE / 2).await;
        assert_eq!(creations.of("u"), Creation::Late);
    }
}
