//! The Admin API client and the bucket driver against a real Garage: the contract that the one in memory keeps too, kills,
//! stalls, a life, the phases of a handle.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::Method;
use routewright::garage::admin::{
    AdminClient, AdminError, AdminErrorClass, BucketId, BucketInfo, BucketUpdate, CALL_TIMEOUT,
    ClusterHealth, Endpoint, GarageAdmin,
};
use routewright::garage::bucket::{Deletion, DriveError, End, Wanted, drive, website_documents};
use routewright::garage::handle::{HandlePhase, HandleReason, probed};
use routewright::garage::testing::{FakeOwner, GarageWorld, crash_sweep, drive_until, garage_contract};
use serde_json::{Value, json};

use super::real::{RealGarage, TOKEN, client};

#[tokio::test]
async fn a_real_garage_keeps_the_contract_that_the_fake_keeps() {
    let Some(garage) = RealGarage::start(".web.example.com").await else {
        return;
    };
    garage_contract(&garage, "contract").await.unwrap();
}

#[tokio::test]
async fn no_kill_leaks_or_steals_a_bucket_in_a_real_garage() {
    let Some(garage) = RealGarage::start(".web.example.com").await else {
        return;
    };
    let begun = Instant::now();
    let points = crash_sweep(&garage, "sweep").await.unwrap();
    println!(
        "crash sweep on a real Garage: {points} points in {:.1?}",
        begun.elapsed()
    );
    assert!(
        points >= 90,
        "only {points} points: the sweep does not reach what it is for"
    );
}

/// A Garage that stops before the n-th call is answered: the call is sent, times out here, and is carried out, if at
/// all, when Garage goes on.
struct Stalling<'a> {
    garage: &'a RealGarage,
    impatient: AdminClient,
    calls: AtomicUsize,
    at: usize,
}

impl Stalling<'_> {
    async fn stall<T>(&self, call: impl Future<Output = Result<T, AdminError>>) -> Result<T, AdminError> {
        let stalls = self.calls.fetch_add(1, Ordering::SeqCst) == self.at;
        if stalls {
            self.garage.freeze();
        }
        let answer = call.await;
        if stalls {
            self.garage.thaw();
        }
        answer
    }
}

#[async_trait]
impl GarageAdmin for Stalling<'_> {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        self.stall(self.impatient.health()).await
    }
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.stall(self.impatient.bucket_by_id(id)).await
    }
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.stall(self.impatient.bucket_by_alias(alias)).await
    }
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.stall(self.impatient.create_bucket(alias)).await
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.stall(self.impatient.update_bucket(id, update)).await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.stall(self.impatient.add_alias(id, alias)).await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.stall(self.impatient.remove_alias(id, alias)).await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.stall(self.impatient.delete_bucket(id)).await
    }
}

#[tokio::test]
async fn a_garage_that_stalls_under_any_call_ends_with_one_bucket_and_then_none() {
    let Some(garage) = RealGarage::start(".web.example.com").await else {
        return;
    };
    let mut stalled = 0;
    for at in 0.. {
        let wanted = Wanted {
            namespace: "team".into(),
            name: format!("stall-{at}"),
            uid: format!("uid-{at}"),
            website: Some(website_documents(None, None)),
            ..Wanted::default()
        };
        let owner = FakeOwner::new();
        let stalling = Stalling {
            garage: &garage,
            impatient: client(garage.admin_address, TOKEN, Duration::from_secs(2)),
            calls: AtomicUsize::new(0),
            at,
        };

        // When Garage stalls under one call, the run breaks off,
        let end = match drive(&stalling, &owner, &wanted, &mut owner.known()).await {
            Ok(end) => end,
            Err(DriveError::Admin(error)) => {
                assert_eq!(error.class(), AdminErrorClass::Timeout, "{error}");
                stalled += 1;
                // then the runs that follow bring it to its end
                drive_until(&garage.admin, &owner, &wanted, 5).await.unwrap()
            }
            Err(other) => panic!("{other}"),
        };
        assert!(matches!(end, End::Done(_)), "stalled under call {at}: {end:?}");
        // and deleting leaves nothing.
        let deleted = Wanted {
            deletion: Some(Deletion::Delete),
            ..wanted
        };
        assert_eq!(
            drive_until(&garage.admin, &owner, &deleted, 5).await,
            Ok(End::Gone)
        );
        assert_eq!(garage.buckets().await, BTreeMap::new(), "stalled under call {at}");
        if stalling.calls.load(Ordering::SeqCst) <= at {
            break;
        }
    }
    println!("stalled under {stalled} calls");
    assert!(stalled >= 6, "only {stalled} calls were stalled");
}

#[tokio::test]
async fn a_bucket_goes_through_its_life() {
    let Some(garage) = RealGarage::start(".web.example.com").await else {
        return;
    };
    let owner = FakeOwner::new();
    let wanted = Wanted {
        namespace: "team".into(),
        name: "site".into(),
        uid: "1".into(),
        website: Some(website_documents(None, None)),
        web_root: Some(".web.example.com".into()),
        ..Wanted::default()
    };
    let run = |wanted: Wanted| {
        let (owner, garage) = (owner.clone(), &garage);
        async move {
            drive(&garage.admin, &owner, &wanted, &mut owner.known())
                .await
                .unwrap()
        }
    };
    let status = |end: End| match end {
        End::Done(status) => *status,
        other => panic!("{other:?}"),
    };

    // Created, and served under its canonical host.
    let created = status(run(wanted.clone()).await);
    garage.put_object(&created.bucket_id).await;
    assert_eq!(created.website_url, "http://site.web.example.com");
    assert_eq!(garage.check("site.web.example.com").await, 200);

    // Renamed: served under the new name only.
    let renamed = Wanted {
        global_alias: Some("www".into()),
        ..wanted
    };
    assert_eq!(
        status(run(renamed.clone()).await).website_url,
        "http://www.web.example.com"
    );
    assert_eq!(garage.check("www.web.example.com").await, 200);
    assert_eq!(garage.check("site.web.example.com").await, 404);

    // Switched off: served no more.
    let off = Wanted {
        website: None,
        ..renamed
    };
    let switched = status(run(off.clone()).await);
    assert!(
        !switched.website_enabled && switched.website_url.is_empty(),
        "{switched:?}"
    );
    assert_eq!(
        (switched.usage.object_count, switched.usage.size()),
        (1, "5 B".to_owned())
    );
    assert_eq!(garage.check("www.web.example.com").await, 404);

    // Deleted: not while it holds something.
    let deleted = Wanted {
        deletion: Some(Deletion::Delete),
        ..off
    };
    let stays = run(deleted.clone()).await;
    assert!(matches!(stays, End::Stay(_)), "{stays:?}");
    garage.remove_object(&created.bucket_id).await;
    assert_eq!(run(deleted.clone()).await, End::Gone);
    assert_eq!(run(deleted).await, End::Gone, "and again");
    assert_eq!(garage.buckets().await, BTreeMap::new());
}

#[tokio::test]
async fn an_unfinished_upload_does_not_keep_a_bucket() {
    let Some(garage) = RealGarage::start(".web.example.com").await else {
        return;
    };
    let bucket = garage.admin.create_bucket("uploads").await.unwrap();
    garage.s3(Method::POST, &bucket.id, "film", "uploads=", "").await;
    garage.admin.delete_bucket(&bucket.id).await.unwrap();
}

#[tokio::test]
async fn the_phase_of_a_handle_follows_its_garage() {
    // Given a Garage that has no layout yet
    let Some(mut garage) = RealGarage::spawn(".web.example.com", false).await else {
        return;
    };
    let phase = async |token: &str, address: SocketAddr| {
        let endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
        let verdict = probed(&endpoint, &client(address, token, CALL_TIMEOUT).health().await);
        (verdict.phase, verdict.reason, verdict.message)
    };
    let address = garage.admin_address;

    let (state, reason, message) = phase(TOKEN, address).await;
    assert_eq!(
        (state, reason),
        (HandlePhase::Running, HandleReason::AdminAPIReachable)
    );
    assert!(message.contains("no layout"), "{message}");
    let refused = garage.admin.create_bucket("early").await.unwrap_err();
    assert_eq!(refused.class(), AdminErrorClass::Unavailable);
    // (The text of a failure is another one each time: the code is what stays.)
    assert!(refused.to_string().contains("InternalError"), "{refused}");

    for (token, says) in [
        ("wr0ng-t0ken", "the token is wrong"),
        ("wr0ng.d0tted", "contains '.'"),
    ] {
        let (state, reason, message) = phase(token, address).await;
        assert_eq!(
            (state, reason),
            (HandlePhase::Pending, HandleReason::Unauthorized)
        );
        assert!(message.contains(says) && !message.contains("wr0ng"), "{message}");
    }

    // A token that Garage made itself has a dot, and is taken as far as its scope goes.
    let status = garage.call("GetClusterStatus", Value::Null).await;
    let role =
        json!({ "id": status["nodes"][0]["id"], "zone": "z", "capacity": 1_000_000_000_u64, "tags": [] });
    garage
        .call("UpdateClusterLayout", json!({ "roles": [role] }))
        .await;
    garage.call("ApplyClusterLayout", json!({ "version": 1 })).await;
    assert!(garage.ready(true).await);
    let scope = json!({ "name": "op", "scope": ["GetClusterHealth"], "neverExpires": true });
    let made = garage.call("CreateAdminToken", scope).await;
    let made = made["secretToken"].as_str().unwrap();
    assert!(made.contains('.'));
    assert_eq!(phase(made, address).await.0, HandlePhase::Running);
    let lacking = client(address, made, CALL_TIMEOUT)
        .bucket_by_alias("site")
        .await
        .unwrap_err();
    assert_eq!(lacking.class(), AdminErrorClass::Unauthorized, "{lacking}");

    // The web port is not the Admin API, and nobody is nobody.
    let (state, reason, message) = phase(TOKEN, garage.web_address).await;
    assert_eq!(
        (state, reason),
        (HandlePhase::Pending, HandleReason::NotGarage),
        "{message}"
    );
    garage.process.kill().unwrap();
    garage.process.wait().unwrap();
    let (state, reason, message) = phase(TOKEN, address).await;
    assert_eq!(
        (state, reason),
        (HandlePhase::Pending, HandleReason::AdminAPIUnreachable),
        "{message}"
    );
}
