//! The suites against the Garage in memory, and runs that meet faults.

use std::time::Duration;

use super::*;
use crate::garage::admin::Fenced;

fn wanted() -> Wanted {
    Wanted {
        namespace: "team".into(),
        name: "site".into(),
        uid: "7f3c".into(),
        website: Some(WebsiteDocuments {
            index_document: "index.html".into(),
            error_document: None,
        }),
        web_root: Some(".web.example.com".into()),
        ..Wanted::default()
    }
}

#[tokio::test]
async fn the_fake_keeps_the_contract() {
    garage_contract(&FakeGarage::new(), "contract").await.unwrap();
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn no_kill_leaks_or_steals_a_bucket() {
    let points = crash_sweep(&FakeGarage::new(), "sweep").await.unwrap();
    println!("crash sweep on the Garage in memory: {points} points");
    assert!(
        points >= 90,
        "only {points} points: the sweep does not reach what it is for"
    );
}

#[tokio::test]
async fn the_sweep_notices_a_run_that_records_nothing() {
    // Given an owner that forgets what it is told,
    struct Forgetful;
    #[async_trait]
    impl OwnerPatch for Forgetful {
        async fn persist_annotation(&self, _: &str, _: Option<&str>) -> Result<(), ReconcileError> {
            Ok(())
        }
        async fn persist_status_bucket_id(&self, _: &BucketId) -> Result<(), ReconcileError> {
            Ok(())
        }
    }
    // when a bucket is created,
    let (garage, stories) = (FakeGarage::new(), stories("sweep"));
    let story = &stories[0];
    drive(&garage, &Forgetful, &story.before, &mut Known::default())
        .await
        .unwrap();
    // then the invariant that the sweep checks does not hold.
    let broken = accounted(&garage, story, &FakeOwner::new(), &BTreeMap::new())
        .await
        .unwrap_err();
    assert!(broken.to_string().starts_with("leaked"), "{broken}");
}

#[tokio::test]
async fn creating_writes_down_before_it_acts_and_costs_one_look_afterwards() {
    let (garage, owner) = (FakeGarage::new(), FakeOwner::new());

    let end = drive(&garage, &owner, &wanted(), &mut owner.known())
        .await
        .unwrap();

    let End::Done(status) = end else { panic!("{end:?}") };
    assert_eq!(status.global_alias, "site");
    assert_eq!(status.website_url, "http://site.web.example.com");
    assert_eq!(
        garage.writes(),
        [
            Call::CreateBucket,
            Call::AddBucketAlias,
            Call::RemoveBucketAlias,
            Call::UpdateBucket
        ]
    );
    assert_eq!(
        owner.writes(),
        [RESERVATION_ANNOTATION, "status.bucketId", ALIASES_ANNOTATION]
    );

    // and once it stands, a run is one GET and no write
    garage.clear_log();
    drive(&garage, &owner, &wanted(), &mut owner.known())
        .await
        .unwrap();
    assert_eq!(
        garage.log(),
        [(Call::GetBucketInfo, status.bucket_id.to_string())]
    );
    assert_eq!(owner.writes().len(), 3);
}

#[tokio::test]
async fn a_fault_of_any_call_is_survived_by_the_next_run() {
    for call in Call::ALL
        .into_iter()
        .filter(|c| *c != Call::GetClusterHealth && *c != Call::DeleteBucket)
    {
        for fault in [
            Fault::Before(AdminErrorClass::Unavailable),
            Fault::Before(AdminErrorClass::Connect),
            Fault::AfterEffect(AdminErrorClass::Timeout),
            Fault::AfterEffect(AdminErrorClass::Unavailable),
        ] {
            let (garage, owner) = (FakeGarage::new(), FakeOwner::new());
            garage.fail(call, fault);

            let first = drive(&garage, &owner, &wanted(), &mut owner.known()).await;
            assert!(
                matches!(first, Err(DriveError::Admin(_))),
                "{call} {fault:?}: {first:?}"
            );
            let second = drive_until(&garage, &owner, &wanted(), 1).await;

            assert!(matches!(second, Ok(End::Done(_))), "{call} {fault:?}: {second:?}");
            assert_eq!(garage.buckets().await.len(), 1, "{call} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_lost_answer_to_delete_is_survived() {
    let (garage, owner) = (FakeGarage::new(), FakeOwner::new());
    drive(&garage, &owner, &wanted(), &mut owner.known())
        .await
        .unwrap();
    garage.fail(Call::DeleteBucket, Fault::AfterEffect(AdminErrorClass::Timeout));

    let deleted = Wanted {
        deletion: Some(Deletion::Delete),
        ..wanted()
    };
    assert!(
        drive(&garage, &owner, &deleted, &mut owner.known())
            .await
            .is_err()
    );
    assert_eq!(
        drive(&garage, &owner, &deleted, &mut owner.known()).await,
        Ok(End::Gone)
    );
}

#[tokio::test]
async fn a_call_that_never_answers_is_left_when_the_run_is_cancelled() {
    for fault in [Fault::Hang, Fault::HangAfterEffect] {
        let (garage, owner) = (FakeGarage::new(), FakeOwner::new());
        garage.fail(Call::CreateBucket, fault);

        let (wanted, mut known) = (wanted(), owner.known());
        let run = drive(&garage, &owner, &wanted, &mut known);
        assert!(
            tokio::time::timeout(Duration::from_millis(20), run)
                .await
                .is_err(),
            "it hangs"
        );

        assert!(
            matches!(drive_until(&garage, &owner, &wanted, 1).await, Ok(End::Done(_))),
            "{fault:?}"
        );
        assert_eq!(garage.buckets().await.len(), 1);
    }
}

#[tokio::test]
async fn a_write_conflict_on_the_owner_stops_the_run_before_garage_is_changed() {
    let (garage, owner) = (FakeGarage::new(), FakeOwner::new());
    owner.conflict(1);

    let run = drive(&garage, &owner, &wanted(), &mut owner.known()).await;

    assert!(
        matches!(&run, Err(DriveError::Owner(e)) if e.class == ErrorClass::Conflict),
        "{run:?}"
    );
    assert_eq!(garage.writes(), []);
}

#[tokio::test]
async fn behind_the_fence_nothing_is_written() {
    let (garage, owner) = (FakeGarage::new(), FakeOwner::new());
    let fenced = Fenced::new(garage.clone(), Arc::new(|| false));

    let run = drive(&fenced, &owner, &wanted(), &mut owner.known()).await;

    assert!(
        matches!(&run, Err(DriveError::Admin(e)) if e.class() == AdminErrorClass::Fenced),
        "{run:?}"
    );
    assert_eq!(garage.writes(), []);
    let id = BucketId::parse(&"a".repeat(64)).unwrap();
    assert!(fenced.update_bucket(&id, &BucketUpdate::default()).await.is_err());
    assert!(fenced.add_alias(&id, "a-name").await.is_err());
    assert!(fenced.remove_alias(&id, "a-name").await.is_err());
    assert!(fenced.delete_bucket(&id).await.is_err());
    assert_eq!(garage.writes(), []);
    assert!(fenced.health().await.is_ok());
}

#[tokio::test]
async fn a_bucket_that_takes_no_update_ends_in_one_clear_error() {
    // Given a Garage that says yes and does nothing
    struct Deaf(FakeGarage);
    #[async_trait]
    impl GarageAdmin for Deaf {
        async fn health(&self) -> Result<ClusterHealth, AdminError> {
            self.0.health().await
        }
        async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
            self.0.bucket_by_id(id).await
        }
        async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
            self.0.bucket_by_alias(alias).await
        }
        async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
            self.0.create_bucket(alias).await
        }
        async fn update_bucket(&self, id: &BucketId, _: &BucketUpdate) -> Result<BucketInfo, AdminError> {
            self.0.update_bucket(id, &BucketUpdate::default()).await
        }
        async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
            self.0.add_alias(id, alias).await
        }
        async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
            self.0.remove_alias(id, alias).await
        }
        async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
            self.0.delete_bucket(id).await
        }
    }
    let (garage, owner) = (Deaf(FakeGarage::new()), FakeOwner::new());

    let run = drive(&garage, &owner, &wanted(), &mut owner.known()).await;

    assert_eq!(run, Err(DriveError::Restless));
    assert_eq!(
        garage
            .0
            .writes()
            .iter()
            .filter(|c| **c == Call::UpdateBucket)
            .count(),
        1
    );
}

#[tokio::test]
async fn a_creation_that_happens_late_is_cleaned_up_with_the_bucket() {
    // Given a bucket that stands, and a creation of an earlier run that Garage performs only now,
    let (garage, owner) = (FakeGarage::new(), FakeOwner::new());
    drive(&garage, &owner, &wanted(), &mut owner.known())
        .await
        .unwrap();
    let late = owner.known().reservation.unwrap();
    garage.create_bucket(&late).await.unwrap();
    // when the object is deleted,
    let deleted = Wanted {
        deletion: Some(Deletion::Delete),
        ..wanted()
    };
    assert_eq!(
        drive(&garage, &owner, &deleted, &mut owner.known()).await,
        Ok(End::Gone)
    );
    // then nothing is left.
    assert_eq!(garage.buckets().await, BTreeMap::new());
}
