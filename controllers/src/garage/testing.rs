//! A Garage in memory, an owner in memory, points at which a run can be killed, and the two suites that hold for the
//! one in memory and for a real Garage alike: [`garage_contract`] and [`crash_sweep`].
//!
//! For tests only. What the fake answers is what `tests/garage_real` measures on a real Garage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use reconcile_kit::{ErrorClass, ReconcileError};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::hex::hex;

use super::admin::{
    AdminError, AdminErrorClass, BucketId, BucketInfo, BucketQuotas, BucketUpdate, Call, ClusterHealth,
    GarageAdmin, WebsiteDocuments, WebsiteUpdate,
};
use super::bucket::{
    ALIASES_ANNOTATION, Deletion, DriveError, End, Known, OwnerPatch, RESERVATION_ANNOTATION, RefusalReason,
    Size, Wanted, check_alias, drive, is_reservation, parse_aliases, reservation_alias,
};

/// What the endpoint of the fake is called in its errors.
pub const FAKE_ENDPOINT: &str = "fake://garage";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// --- the fake ---------------------------------------------------------------------------------------------

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails and changes nothing.
    Before(AdminErrorClass),
    /// Takes effect, and the answer is lost.
    AfterEffect(AdminErrorClass),
    /// Changes nothing and never answers.
    Hang,
    /// Takes effect and never answers.
    HangAfterEffect,
}

#[derive(Clone, Debug, Default)]
struct FakeBucket {
    aliases: BTreeSet<String>,
    website: Option<WebsiteDocuments>,
    quotas: BucketQuotas,
    objects: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct FakeState {
    made: u64,
    buckets: BTreeMap<BucketId, FakeBucket>,
    log: Vec<(Call, String)>,
    faults: Vec<(Call, Fault)>,
    health: Option<ClusterHealth>,
}

/// A Garage in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct FakeGarage(Arc<Mutex<FakeState>>);

impl FakeGarage {
    /// An empty, healthy Garage.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with ids of its own: no two Garages share one.
    #[must_use]
    pub fn counting_from(made: u64) -> Self {
        let garage = Self::default();
        lock(&garage.0).made = made;
        garage
    }

    /// The next call of this name meets `fault`; faults of one call are used up in the order given.
    pub fn fail(&self, call: Call, fault: Fault) {
        lock(&self.0).faults.push((call, fault));
    }

    /// Every call so far, with what it was about.
    #[must_use]
    pub fn log(&self) -> Vec<(Call, String)> {
        lock(&self.0).log.clone()
    }

    /// The calls so far that could change something.
    #[must_use]
    pub fn writes(&self) -> Vec<Call> {
        lock(&self.0)
            .log
            .iter()
            .map(|(call, _)| *call)
            .filter(|call| call.writes())
            .collect()
    }

    /// Forgets the calls so far.
    pub fn clear_log(&self) {
        lock(&self.0).log.clear();
    }

    /// What `GetClusterHealth` answers from now on.
    pub fn set_health(&self, health: ClusterHealth) {
        lock(&self.0).health = Some(health);
    }

    /// Puts objects into a bucket, behind the Admin API's back.
    pub fn set_content(&self, id: &BucketId, objects: u64, bytes: u64) {
        if let Some(bucket) = lock(&self.0).buckets.get_mut(id) {
            bucket.objects = objects;
            bucket.bytes = bytes;
        }
    }

    /// Every bucket that there is.
    #[must_use]
    pub fn all_buckets(&self) -> Vec<BucketInfo> {
        let state = lock(&self.0);
        state
            .buckets
            .keys()
            .filter_map(|id| state.info(Call::GetBucketInfo, id).ok())
            .collect()
    }

    /// Takes a bucket away, behind the Admin API's back.
    pub fn lose(&self, id: &BucketId) {
        lock(&self.0).buckets.remove(id);
    }

    async fn call<T>(
        &self,
        call: Call,
        about: String,
        effect: impl FnOnce(&mut FakeState) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let fault = {
            let mut state = lock(&self.0);
            state.log.push((call, about));
            state
                .faults
                .iter()
                .position(|(c, _)| *c == call)
                .map(|at| state.faults.remove(at).1)
        };
        let run = || effect(&mut lock(&self.0));
        match fault {
            None => run(),
            Some(Fault::Before(class)) => Err(AdminError::new(class, call, FAKE_ENDPOINT, "injected")),
            Some(Fault::AfterEffect(class)) => {
                drop(run());
                Err(AdminError::new(
                    class,
                    call,
                    FAKE_ENDPOINT,
                    "injected after the effect",
                ))
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::HangAfterEffect) => {
                drop(run());
                std::future::pending().await
            }
        }
    }
}

fn refuse<T>(class: AdminErrorClass, call: Call, detail: &str) -> Result<T, AdminError> {
    Err(AdminError::new(class, call, FAKE_ENDPOINT, detail))
}

/// Garage itself takes reservation aliases; only [`check_alias`] refuses them as wanted ones.
fn garage_takes(alias: &str) -> bool {
    is_reservation(alias) || check_alias(alias).is_ok()
}

impl FakeState {
    fn info(&self, call: Call, id: &BucketId) -> Result<BucketInfo, AdminError> {
        let Some(bucket) = self.buckets.get(id) else {
            return refuse(AdminErrorClass::NotFound, call, "404 NoSuchBucket");
        };
        Ok(BucketInfo {
            id: id.clone(),
            global_aliases: bucket.aliases.iter().cloned().collect(),
            website_access: bucket.website.is_some(),
            website_config: bucket.website.clone(),
            objects: bucket.objects,
            bytes: bucket.bytes,
            quotas: bucket.quotas,
            created: Some("2026-01-01T00:00:00Z".to_owned()),
        })
    }

    fn owner_of(&self, alias: &str) -> Option<BucketId> {
        self.buckets
            .iter()
            .find(|(_, bucket)| bucket.aliases.contains(alias))
            .map(|(id, _)| id.clone())
    }

    fn new_id(&mut self) -> Result<BucketId, AdminError> {
        self.made += 1;
        match BucketId::parse(&hex(&Sha256::digest(self.made.to_be_bytes()))) {
            Some(id) => Ok(id),
            None => refuse(AdminErrorClass::Garbage, Call::CreateBucket, "no id"),
        }
    }
}

#[async_trait]
impl GarageAdmin for FakeGarage {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        let healthy = ClusterHealth {
            status: "healthy".into(),
            partitions: 256,
            partitions_quorum: 256,
        };
        self.call(Call::GetClusterHealth, String::new(), |s| {
            Ok(s.health.clone().unwrap_or(healthy))
        })
        .await
    }

    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.call(Call::GetBucketInfo, id.to_string(), |s| {
            s.info(Call::GetBucketInfo, id)
        })
        .await
    }

    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::GetBucketInfo, alias.to_owned(), |s| {
            match s.owner_of(alias) {
                Some(id) => s.info(Call::GetBucketInfo, &id),
                None => refuse(AdminErrorClass::NotFound, Call::GetBucketInfo, "404 NoSuchBucket"),
            }
        })
        .await
    }

    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::CreateBucket, alias.to_owned(), |s| {
            if !garage_takes(alias) {
                return refuse(AdminErrorClass::Invalid, Call::CreateBucket, "400 InvalidRequest");
            }
            if s.owner_of(alias).is_some() {
                return refuse(
                    AdminErrorClass::Conflict,
                    Call::CreateBucket,
                    "409 BucketAlreadyExists",
                );
            }
            let id = s.new_id()?;
            s.buckets.insert(
                id.clone(),
                FakeBucket {
                    aliases: [alias.to_owned()].into(),
                    ..Default::default()
                },
            );
            s.info(Call::CreateBucket, &id)
        })
        .await
    }

    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.call(Call::UpdateBucket, id.to_string(), |s| {
            let Some(bucket) = s.buckets.get_mut(id) else {
                return refuse(AdminErrorClass::NotFound, Call::UpdateBucket, "404 NoSuchBucket");
            };
            match &update.website {
                None => {}
                Some(WebsiteUpdate::Enable(documents)) => bucket.website = Some(documents.clone()),
                Some(WebsiteUpdate::Disable) => bucket.website = None,
            }
            if let Some(quotas) = update.quotas {
                bucket.quotas = quotas;
            }
            s.info(Call::UpdateBucket, id)
        })
        .await
    }

    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::AddBucketAlias, format!("{id} {alias}"), |s| {
            if !s.buckets.contains_key(id) {
                return refuse(
                    AdminErrorClass::NotFound,
                    Call::AddBucketAlias,
                    "404 NoSuchBucket",
                );
            }
            if !garage_takes(alias) {
                return refuse(
                    AdminErrorClass::Invalid,
                    Call::AddBucketAlias,
                    "400 InvalidBucketName",
                );
            }
            if s.owner_of(alias).is_some_and(|owner| owner != *id) {
                return refuse(
                    AdminErrorClass::AliasTaken,
                    Call::AddBucketAlias,
                    "400 InvalidRequest",
                );
            }
            if let Some(bucket) = s.buckets.get_mut(id) {
                bucket.aliases.insert(alias.to_owned());
            }
            s.info(Call::AddBucketAlias, id)
        })
        .await
    }

    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::RemoveBucketAlias, format!("{id} {alias}"), |s| {
            let Some(bucket) = s.buckets.get_mut(id) else {
                return refuse(
                    AdminErrorClass::NotFound,
                    Call::RemoveBucketAlias,
                    "404 NoSuchBucket",
                );
            };
            if !bucket.aliases.contains(alias) {
                return refuse(
                    AdminErrorClass::Unavailable,
                    Call::RemoveBucketAlias,
                    "500 InternalError",
                );
            }
            if bucket.aliases.len() == 1 {
                return refuse(
                    AdminErrorClass::Invalid,
                    Call::RemoveBucketAlias,
                    "400 InvalidRequest",
                );
            }
            bucket.aliases.remove(alias);
            s.info(Call::RemoveBucketAlias, id)
        })
        .await
    }

    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.call(Call::DeleteBucket, id.to_string(), |s| match s.buckets.get(id) {
            None => refuse(AdminErrorClass::NotFound, Call::DeleteBucket, "404 NoSuchBucket"),
            Some(bucket) if bucket.objects > 0 => refuse(
                AdminErrorClass::NotEmpty,
                Call::DeleteBucket,
                "409 BucketNotEmpty",
            ),
            Some(_) => {
                s.buckets.remove(id);
                Ok(())
            }
        })
        .await
    }
}

// --- the owner --------------------------------------------------------------------------------------------

/// The annotations and the status of one GarageBucket, in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct FakeOwner(Arc<Mutex<OwnerState>>);

#[derive(Debug, Default)]
struct OwnerState {
    annotations: BTreeMap<String, String>,
    bucket_id: Option<String>,
    writes: Vec<String>,
    conflicts: usize,
}

impl FakeOwner {
    /// An object on which nothing was written down yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the next run finds on the object.
    #[must_use]
    pub fn known(&self) -> Known {
        let state = lock(&self.0);
        Known {
            bucket_id: state.bucket_id.clone(),
            reservation: state.annotations.get(RESERVATION_ANNOTATION).cloned(),
            aliases: state
                .annotations
                .get(ALIASES_ANNOTATION)
                .map(|a| parse_aliases(a))
                .unwrap_or_default(),
            ..Known::default()
        }
    }

    /// Every write so far: the annotation's key, or `status.bucketId`.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        lock(&self.0).writes.clone()
    }

    /// The next `count` writes find that somebody else wrote.
    pub fn conflict(&self, count: usize) {
        lock(&self.0).conflicts = count;
    }

    fn write(&self, what: &str, effect: impl FnOnce(&mut OwnerState)) -> Result<(), ReconcileError> {
        let mut state = lock(&self.0);
        if state.conflicts > 0 {
            state.conflicts -= 1;
            return Err(ReconcileError::new(
                ErrorClass::Conflict,
                "the object has been modified",
            ));
        }
        state.writes.push(what.to_owned());
        effect(&mut state);
        Ok(())
    }
}

#[async_trait]
impl OwnerPatch for FakeOwner {
    async fn persist_annotation(&self, key: &str, value: Option<&str>) -> Result<(), ReconcileError> {
        self.write(key, |state| {
            match value {
                Some(value) => state.annotations.insert(key.to_owned(), value.to_owned()),
                None => state.annotations.remove(key),
            };
        })
    }

    async fn persist_status_bucket_id(&self, id: &BucketId) -> Result<(), ReconcileError> {
        self.write("status.bucketId", |state| state.bucket_id = Some(id.to_string()))
    }
}

// --- kill points ------------------------------------------------------------------------------------------

/// Points that a run passes: one before and one after each call and each owner write. At one of them it can be killed.
#[derive(Debug, Default)]
pub struct Points {
    kill_at: Option<usize>,
    passed: AtomicUsize,
    killed: Notify,
}

impl Points {
    /// Kills at the `kill_at`-th point, counted from 0; `None` only counts.
    #[must_use]
    pub fn new(kill_at: Option<usize>) -> Self {
        Self {
            kill_at,
            ..Self::default()
        }
    }

    /// How many points were passed or died at.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }

    async fn pass(&self) {
        if Some(self.passed.fetch_add(1, Ordering::SeqCst)) == self.kill_at {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Runs `work` until its end, or until it dies at its point (`None`).
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.killed.notified() => None,
            end = work => Some(end),
        }
    }

    async fn around<T>(&self, work: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = work.await;
        self.pass().await;
        answer
    }
}

/// A Garage, fake or real, whose every call has a point before and one after it.
pub struct KillableAdmin<'a> {
    /// The Garage.
    pub inner: &'a dyn GarageAdmin,
    /// The points.
    pub points: &'a Points,
}

#[async_trait]
impl GarageAdmin for KillableAdmin<'_> {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        self.points.around(self.inner.health()).await
    }
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.points.around(self.inner.bucket_by_id(id)).await
    }
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.points.around(self.inner.bucket_by_alias(alias)).await
    }
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.points.around(self.inner.create_bucket(alias)).await
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.points.around(self.inner.update_bucket(id, update)).await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.points.around(self.inner.add_alias(id, alias)).await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.points.around(self.inner.remove_alias(id, alias)).await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.points.around(self.inner.delete_bucket(id)).await
    }
}

/// An owner whose every write has a point before and one after it.
pub struct KillableOwner<'a> {
    /// The owner.
    pub inner: &'a dyn OwnerPatch,
    /// The points.
    pub points: &'a Points,
}

#[async_trait]
impl OwnerPatch for KillableOwner<'_> {
    async fn persist_annotation(&self, key: &str, value: Option<&str>) -> Result<(), ReconcileError> {
        self.points
            .around(self.inner.persist_annotation(key, value))
            .await
    }
    async fn persist_status_bucket_id(&self, id: &BucketId) -> Result<(), ReconcileError> {
        self.points.around(self.inner.persist_status_bucket_id(id)).await
    }
}

// --- a Garage to test against -----------------------------------------------------------------------------

/// A Garage, fake or real, seen from outside: what the suites need besides the Admin API calls of the product.
#[async_trait]
pub trait GarageWorld: Send + Sync {
    /// The seam under test.
    fn admin(&self) -> &dyn GarageAdmin;
    /// Every bucket there is, with its global aliases.
    async fn buckets(&self) -> BTreeMap<BucketId, BTreeSet<String>>;
    /// Puts one object into a bucket.
    async fn put_object(&self, id: &BucketId);
    /// Removes that object.
    async fn remove_object(&self, id: &BucketId);
}

#[async_trait]
impl GarageWorld for FakeGarage {
    fn admin(&self) -> &dyn GarageAdmin {
        self
    }
    async fn buckets(&self) -> BTreeMap<BucketId, BTreeSet<String>> {
        lock(&self.0)
            .buckets
            .iter()
            .map(|(id, bucket)| (id.clone(), bucket.aliases.clone()))
            .collect()
    }
    async fn put_object(&self, id: &BucketId) {
        self.set_content(id, 1, 5);
    }
    async fn remove_object(&self, id: &BucketId) {
        self.set_content(id, 0, 0);
    }
}

// --- suites -----------------------------------------------------------------------------------------------

/// A failed expectation of a suite.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

type Suite<T = ()> = Result<T, Broken>;

fn expect(holds: bool, what: impl FnOnce() -> String) -> Suite {
    if holds { Ok(()) } else { Err(Broken(what())) }
}

fn ok<T, E: std::fmt::Display>(answer: Result<T, E>, what: &str) -> Suite<T> {
    answer.map_err(|e| Broken(format!("{what}: {e}")))
}

fn fails<T: std::fmt::Debug>(answer: Result<T, AdminError>, class: AdminErrorClass, what: &str) -> Suite {
    match answer {
        Err(e) if e.class() == class => Ok(()),
        other => Err(Broken(format!("{what}: expected {class}, got {other:?}"))),
    }
}

/// What the product relies on in Garage. Holds for [`FakeGarage`] and for a real one; `tag` keeps names of runs on
/// one Garage apart (lower-case letters and digits).
///
/// # Errors
/// The first expectation that does not hold.
pub async fn garage_contract(world: &dyn GarageWorld, tag: &str) -> Suite {
    use AdminErrorClass as E;
    let admin = world.admin();
    let name = |n: &str| format!("{tag}-{n}");
    let nobody = BucketId::parse(&"0".repeat(64)).ok_or_else(|| Broken("no id".into()))?;

    let health = ok(admin.health().await, "health")?;
    expect(health.status == "healthy" && health.partitions > 0, || {
        format!("{health:?}")
    })?;

    // Nothing there.
    fails(
        admin.bucket_by_id(&nobody).await,
        E::NotFound,
        "look up an unknown id",
    )?;
    fails(
        admin.bucket_by_alias(&name("one")).await,
        E::NotFound,
        "look up an unknown alias",
    )?;
    fails(
        admin.bucket_by_alias("Not_An_Alias").await,
        E::NotFound,
        "look up an impossible alias",
    )?;
    fails(
        admin.update_bucket(&nobody, &BucketUpdate::default()).await,
        E::NotFound,
        "update nothing",
    )?;
    fails(
        admin.add_alias(&nobody, &name("one")).await,
        E::NotFound,
        "alias for nothing",
    )?;
    fails(
        admin.remove_alias(&nobody, &name("one")).await,
        E::NotFound,
        "unalias nothing",
    )?;
    fails(admin.delete_bucket(&nobody).await, E::NotFound, "delete nothing")?;

    // Creating.
    for bad in [
        "Not_An_Alias",
        "ab",
        "1.2.3.4",
        "xn--a",
        "a-s3alias",
        "-ab",
        "ab.",
    ] {
        fails(
            admin.create_bucket(bad).await,
            E::Invalid,
            &format!("create {bad}"),
        )?;
    }
    let one = ok(admin.create_bucket(&name("one")).await, "create one")?;
    expect(one.global_aliases == [name("one")], || {
        format!("aliases {:?}", one.global_aliases)
    })?;
    expect(
        !one.website_access && one.quotas == BucketQuotas::default(),
        || format!("{one:?}"),
    )?;
    expect(one.created.is_some(), || "no creation time".into())?;
    fails(
        admin.create_bucket(&name("one")).await,
        E::Conflict,
        "create one twice",
    )?;
    let found = ok(admin.bucket_by_alias(&name("one")).await, "find one")?;
    expect(found.id == one.id, || "found another bucket".into())?;
    let two = ok(admin.create_bucket(&name("two")).await, "create two")?;
    expect(one.id != two.id, || "one id twice".into())?;

    // Aliases.
    fails(
        admin.add_alias(&one.id, &name("two")).await,
        E::AliasTaken,
        "take the alias of two",
    )?;
    fails(
        admin.add_alias(&one.id, "Not_An_Alias").await,
        E::Invalid,
        "add an impossible alias",
    )?;
    let info = ok(admin.add_alias(&one.id, &name("one")).await, "add what is there")?;
    expect(info.global_aliases == [name("one")], || {
        format!("aliases {:?}", info.global_aliases)
    })?;
    fails(
        admin.remove_alias(&one.id, &name("one")).await,
        E::Invalid,
        "remove the last alias",
    )?;
    fails(
        admin.remove_alias(&one.id, &name("none")).await,
        E::Unavailable,
        "remove an absent alias",
    )?;
    fails(
        admin.remove_alias(&one.id, &name("two")).await,
        E::Unavailable,
        "remove the alias of two",
    )?;
    let info = ok(
        admin.add_alias(&one.id, &name("a-first")).await,
        "add a second alias",
    )?;
    expect(info.global_aliases == [name("a-first"), name("one")], || {
        format!("{:?}", info.global_aliases)
    })?;
    let info = ok(
        admin.remove_alias(&one.id, &name("a-first")).await,
        "remove the second alias",
    )?;
    expect(info.global_aliases == [name("one")], || {
        format!("aliases {:?}", info.global_aliases)
    })?;
    let info = ok(
        admin.add_alias(&two.id, &name("a-first")).await,
        "bind a freed alias elsewhere",
    )?;
    expect(info.id == two.id && info.has_alias(&name("a-first")), || {
        format!("{info:?}")
    })?;

    // Website and quotas.
    let enable = |index: &str, error: Option<&str>| BucketUpdate {
        website: Some(WebsiteUpdate::Enable(WebsiteDocuments {
            index_document: index.to_owned(),
            error_document: error.map(str::to_owned),
        })),
        quotas: None,
    };
    let quotas = |max_size, max_objects| BucketQuotas {
        max_size,
        max_objects,
    };
    let mut both = enable("i.html", Some("e.html"));
    both.quotas = Some(quotas(Some(1 << 40), Some(7)));
    let info = ok(
        admin.update_bucket(&one.id, &both).await,
        "website and quotas at once",
    )?;
    let documents = info.website_config.clone().unwrap_or_default();
    expect(
        info.website_access && documents.index_document == "i.html",
        || format!("{info:?}"),
    )?;
    expect(documents.error_document.as_deref() == Some("e.html"), || {
        format!("{info:?}")
    })?;
    expect(info.quotas == quotas(Some(1 << 40), Some(7)), || {
        format!("{info:?}")
    })?;
    let info = ok(
        admin.update_bucket(&one.id, &enable("i.html", None)).await,
        "no error document",
    )?;
    expect(
        info.website_config.is_some_and(|c| c.error_document.is_none()),
        || "it stayed".into(),
    )?;
    expect(info.quotas == quotas(Some(1 << 40), Some(7)), || {
        "quotas changed unasked".into()
    })?;
    let only_quotas = BucketUpdate {
        website: None,
        quotas: Some(quotas(None, Some(0))),
    };
    let info = ok(
        admin.update_bucket(&one.id, &only_quotas).await,
        "quotas as a pair",
    )?;
    expect(
        info.quotas == quotas(None, Some(0)) && info.website_access,
        || format!("{info:?}"),
    )?;
    let none = BucketUpdate {
        website: Some(WebsiteUpdate::Disable),
        quotas: Some(quotas(None, None)),
    };
    for what in ["switch off", "switch off twice"] {
        let info = ok(admin.update_bucket(&one.id, &none).await, what)?;
        expect(!info.website_access && info.website_config.is_none(), || {
            format!("{what}: {info:?}")
        })?;
        expect(info.quotas == quotas(None, None), || format!("{what}: {info:?}"))?;
    }

    // Deleting.
    world.put_object(&one.id).await;
    fails(
        admin.delete_bucket(&one.id).await,
        E::NotEmpty,
        "delete a bucket with an object",
    )?;
    let info = ok(admin.bucket_by_id(&one.id).await, "it is still there")?;
    expect(info.objects == 1 && info.bytes > 0, || format!("{info:?}"))?;
    world.remove_object(&one.id).await;
    ok(admin.delete_bucket(&one.id).await, "delete an empty bucket")?;
    fails(admin.delete_bucket(&one.id).await, E::NotFound, "delete twice")?;
    fails(
        admin.bucket_by_id(&one.id).await,
        E::NotFound,
        "find what was deleted",
    )?;
    fails(
        admin.bucket_by_alias(&name("one")).await,
        E::NotFound,
        "find its alias",
    )?;
    let again = ok(admin.create_bucket(&name("one")).await, "its alias is free again")?;
    ok(admin.delete_bucket(&again.id).await, "clean up")?;
    ok(admin.delete_bucket(&two.id).await, "clean up")
}

/// One story of the sweep.
struct Story {
    name: &'static str,
    /// What the object asks for until the kill.
    before: Wanted,
    /// What it asks for afterwards.
    after: Wanted,
    /// Aliases of buckets of others.
    foreign: Vec<String>,
    /// The one among them that `after` adopts.
    adopts: Option<String>,
    /// Runs before the killed one.
    first: Option<Wanted>,
}

fn stories(tag: &str) -> Vec<Story> {
    let base = |story: &str| Wanted {
        namespace: "team".into(),
        name: format!("{tag}-{story}"),
        uid: format!("uid-{tag}-{story}"),
        website: Some(WebsiteDocuments {
            index_document: "index.html".into(),
            error_document: None,
        }),
        max_size: Some(Size::Bytes(10 << 30)),
        web_root: Some(".web.example.com".into()),
        ..Wanted::default()
    };
    let alias = |wanted: &Wanted, alias: &str| Wanted {
        global_alias: Some(format!("{}-{alias}", wanted.name)),
        ..wanted.clone()
    };
    let deleted = |wanted: &Wanted| Wanted {
        deletion: Some(Deletion::Delete),
        ..wanted.clone()
    };
    let plain = |name: &'static str, before: Wanted, after: Wanted| Story {
        name,
        before,
        after,
        foreign: vec![format!("{tag}-bystander")],
        adopts: None,
        first: None,
    };
    let create = base("create");
    let renamed = base("rename");
    let changed = base("change");
    let deleting = base("delete");
    let undone = base("undo");
    let taken = base("taken");
    let switched = base("switch");
    let adopted = format!("{tag}-theirs");
    vec![
        plain("create", create.clone(), create),
        Story {
            first: Some(renamed.clone()),
            ..plain("rename", alias(&renamed, "b"), alias(&renamed, "b"))
        },
        Story {
            first: Some(changed.clone()),
            ..plain(
                "rename, then another name",
                alias(&changed, "b"),
                alias(&changed, "c"),
            )
        },
        plain(
            "create, then another name",
            alias(&undone, "b"),
            alias(&undone, "c"),
        ),
        Story {
            first: Some(deleting.clone()),
            ..plain("delete", deleted(&deleting), deleted(&deleting))
        },
        plain("create, then delete", base("early"), deleted(&base("early"))),
        Story {
            foreign: vec![taken.name.clone()],
            ..plain("the alias is taken", taken.clone(), taken)
        },
        Story {
            foreign: vec![adopted.clone()],
            adopts: Some(adopted.clone()),
            ..plain(
                "create, then adopt instead",
                switched.clone(),
                alias(&switched, "b"),
            )
        },
    ]
}

/// Kills a run at every one of its points, in every story, and checks after each kill and after the run that follows:
/// no bucket leaked, no bucket or alias of others touched, and the end is the one that was wanted. Gives the number
/// of points.
///
/// # Errors
/// The first expectation that does not hold, with the story and the point.
pub async fn crash_sweep(world: &dyn GarageWorld, tag: &str) -> Suite<usize> {
    let mut points = 0;
    for story in stories(tag) {
        for at in 0.. {
            let killed = crash_once(world, &story, at)
                .await
                .map_err(|Broken(what)| Broken(format!("{} killed at point {at}: {what}", story.name)))?;
            if !killed {
                break;
            }
            points += 1;
        }
    }
    Ok(points)
}

async fn crash_once(world: &dyn GarageWorld, story: &Story, at: usize) -> Suite<bool> {
    let admin = world.admin();
    let outset = world.buckets().await;
    expect(outset.is_empty(), || format!("left over: {outset:?}"))?;
    let owner = FakeOwner::new();
    let mut foreign = BTreeMap::new();
    for alias in &story.foreign {
        foreign.insert(
            ok(admin.create_bucket(alias).await, "foreign bucket")?.id,
            BTreeSet::from([alias.clone()]),
        );
    }
    if let Some(first) = &story.first {
        ok(drive(admin, &owner, first, &mut owner.known()).await, "first run")?;
    }

    // The run that is killed.
    let points = Points::new(Some(at));
    let run = points
        .run(drive(
            &KillableAdmin {
                inner: admin,
                points: &points,
            },
            &KillableOwner {
                inner: &owner,
                points: &points,
            },
            &story.before,
            &mut owner.known(),
        ))
        .await;
    let killed = run.is_none();
    accounted(world, story, &owner, &foreign).await?;

    // The run that follows.
    let mut after = story.after.clone();
    if let Some(adopts) = &story.adopts
        && owner.known().bucket_id.is_none()
    {
        after.bucket_id = Some(
            ok(admin.bucket_by_alias(adopts).await, "the bucket to adopt")?
                .id
                .to_string(),
        );
    }
    let end = ok(
        drive(admin, &owner, &after, &mut owner.known()).await,
        "the run that follows",
    )?;
    settled(world, story, &after, &owner, &foreign, &end).await?;
    let again = ok(
        drive(admin, &owner, &after, &mut owner.known()).await,
        "one more run",
    )?;
    expect(again == end, || format!("not settled: {end:?}, then {again:?}"))?;

    for id in world.buckets().await.into_keys() {
        ok(admin.delete_bucket(&id).await, "clean up")?;
    }
    Ok(killed)
}

/// Right after a kill: each bucket is known to somebody, and those of others are as they were.
async fn accounted(
    world: &dyn GarageWorld,
    story: &Story,
    owner: &FakeOwner,
    foreign: &BTreeMap<BucketId, BTreeSet<String>>,
) -> Suite {
    let wanted = &story.before;
    let known = owner.known();
    let reservation = reservation_alias(&wanted.namespace, &wanted.name, &wanted.uid);
    let mut ours = 0;
    for (id, aliases) in world.buckets().await {
        if let Some(theirs) = foreign.get(&id) {
            expect(aliases == *theirs, || {
                format!("a foreign bucket has {aliases:?} instead of {theirs:?}")
            })?;
            continue;
        }
        ours += 1;
        let recorded = known.bucket_id.as_deref() == Some(id.as_str());
        let found =
            aliases.contains(&reservation) && known.reservation.as_deref() == Some(reservation.as_str());
        expect(recorded || found, || {
            format!("leaked: {id} with {aliases:?}, known is {known:?}")
        })?;
        // Every alias on it is one that the next run keeps or takes away.
        let remembered = |a: &String| *a == reservation || known.aliases.contains(a);
        expect(aliases.iter().all(remembered), || {
            format!("forgotten among {aliases:?}: {known:?}")
        })?;
    }
    expect(ours <= 1, || format!("{ours} buckets for one object"))
}

/// After the run that follows: exactly what `after` asks for.
async fn settled(
    world: &dyn GarageWorld,
    story: &Story,
    after: &Wanted,
    owner: &FakeOwner,
    foreign: &BTreeMap<BucketId, BTreeSet<String>>,
    end: &End,
) -> Suite {
    let alias = after.global_alias.clone().unwrap_or_else(|| after.name.clone());
    let mut buckets = world.buckets().await;
    for (id, theirs) in foreign {
        if after.bucket_id.as_deref() == Some(id.as_str()) {
            continue;
        }
        let aliases = buckets.remove(id);
        expect(aliases.as_ref() == Some(theirs), || {
            format!("a foreign bucket has {aliases:?}, not {theirs:?}")
        })?;
    }
    if after.deletion.is_some() {
        expect(*end == End::Gone, || format!("ended with {end:?}"))?;
        return expect(buckets.is_empty(), || format!("leaked: {buckets:?}"));
    }
    if story.foreign.contains(&alias) {
        expect(
            matches!(end, End::Refuse(refusal) if refusal.reason == RefusalReason::AliasTaken),
            || format!("ended with {end:?}"),
        )?;
        return expect(buckets.is_empty(), || format!("created for nothing: {buckets:?}"));
    }
    let End::Done(status) = end else {
        return Err(Broken(format!("ended with {end:?}")));
    };
    let recorded = owner.known().bucket_id;
    expect(recorded.as_deref() == Some(status.bucket_id.as_str()), || {
        format!("recorded {recorded:?}")
    })?;
    expect(status.global_alias == alias && status.website_enabled, || {
        format!("{status:?}")
    })?;
    expect(status.usage.size_limit == Some(10 << 30), || {
        format!("{status:?}")
    })?;
    let mut aliases = BTreeSet::from([alias]);
    if after.bucket_id.is_some() {
        // What the adopted bucket was called before stays.
        aliases.extend(story.adopts.clone());
    }
    let expected = BTreeMap::from([(status.bucket_id.clone(), aliases)]);
    expect(buckets == expected, || {
        format!("Garage holds {buckets:?}, not {expected:?}")
    })
}

/// Drives one object to its end on a Garage, as a controller would that runs again after each failure.
///
/// # Errors
/// The error of the last of `attempts` runs.
pub async fn drive_until(
    admin: &dyn GarageAdmin,
    owner: &FakeOwner,
    wanted: &Wanted,
    attempts: usize,
) -> Result<End, DriveError> {
    let mut last = Err(DriveError::Restless);
    for _ in 0..attempts {
        last = drive(admin, owner, wanted, &mut owner.known()).await;
        if last.is_ok() {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests;
