//! A Garage in memory behind a door that checks the token in the Secret, can be shut, and can fall silent for ever at
//! any call; and the objects that the stories are about. No assertion about the product.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use reconcile_kit::testing::{ApiServer, Crash, Matcher};
use routewright::{
    app::Options,
    garage::{
        access::{Access, HttpAccess},
        admin::{
            AdminError, AdminErrorClass, BucketId, BucketInfo, BucketUpdate, Call, ClusterHealth, GarageAdmin,
        },
        testing::{FAKE_ENDPOINT, FakeGarage, GarageWorld},
    },
};
use serde_json::{Value, json};

use super::support::*;

/// What the Garage takes as its admin token. Must never be seen anywhere but in the Secret.
pub(crate) const TOKEN: &str = "tok3n-that-nobody-may-see";

/// Where a process dies among its calls to Garage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The call is not made.
    Before,
    /// The call takes effect, and its answer never comes.
    After,
}

#[derive(Default)]
struct Door {
    shut: bool,
    /// What every call ends with.
    broken: Option<AdminErrorClass>,
    /// Calls that the scope of the token lacks.
    lacking: Vec<Call>,
    /// How often the Garage got another token; clients made before know only an old one.
    rotations: usize,
    /// Dies at the n-th call from now, counted from 0; probes of the cluster do not count.
    death: Option<(usize, Death)>,
}

/// The Garage and its door. Clones share both.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) garage: FakeGarage,
    door: Arc<Mutex<Door>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            garage: FakeGarage::new(),
            door: Arc::default(),
        }
    }

    /// Nobody answers any more, or again.
    pub(crate) fn shut(&self, shut: bool) {
        self.door.lock().unwrap().shut = shut;
    }

    /// Every call ends with this, or with what Garage says again.
    pub(crate) fn breaks(&self, how: Option<AdminErrorClass>) {
        self.door.lock().unwrap().broken = how;
    }

    /// The scope of the token lacks these calls from now on.
    pub(crate) fn lacks(&self, calls: &[Call]) {
        self.door.lock().unwrap().lacking = calls.to_vec();
    }

    /// The Garage takes a new token, which the Secret holds already.
    pub(crate) fn rotate(&self) {
        self.door.lock().unwrap().rotations += 1;
    }

    /// The operator dies at its n-th call from now.
    pub(crate) fn die_at(&self, call: usize, how: Death) {
        self.door.lock().unwrap().death = Some((call, how));
    }

    /// Calls since the last time, without probes: `CreateBucket garage-rsv-…`; ids are left out.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = self.garage.log();
        self.garage.clear_log();
        log.into_iter()
            .filter(|(call, _)| *call != Call::GetClusterHealth)
            .map(|(call, about)| {
                let words: Vec<String> = about
                    .split(' ')
                    .filter(|word| BucketId::parse(word).is_none())
                    .map(|word| {
                        if word.starts_with("garage-rsv-") {
                            "garage-rsv-…".to_owned()
                        } else {
                            word.to_owned()
                        }
                    })
                    .collect();
                format!("{call} {}", words.join(" ")).trim().to_owned()
            })
            .collect()
    }

    /// How often the cluster was probed since the last [`World::calls`].
    pub(crate) fn probes(&self) -> usize {
        let log = self.garage.log();
        log.iter()
            .filter(|(call, _)| *call == Call::GetClusterHealth)
            .count()
    }

    /// Every bucket by its aliases.
    pub(crate) async fn buckets(&self) -> Vec<Vec<String>> {
        let buckets = GarageWorld::buckets(&self.garage).await;
        let mut aliases: Vec<Vec<String>> = buckets.values().map(|a| a.iter().cloned().collect()).collect();
        aliases.sort();
        aliases
    }

    /// The only bucket there is.
    pub(crate) async fn only(&self) -> BucketInfo {
        let buckets = GarageWorld::buckets(&self.garage).await;
        assert_eq!(buckets.len(), 1, "{buckets:?}");
        let id = buckets.into_keys().next().unwrap();
        // A client of the test's own, whose call is not the operator's.
        let log = self.garage.log();
        let info = self.garage.bucket_by_id(&id).await.unwrap();
        assert_eq!(self.garage.log().len(), log.len() + 1);
        info
    }

    /// The way to this Garage, for each new process.
    pub(crate) fn access(&self) -> NewAccess {
        let world = self.clone();
        Arc::new(move |server| {
            let (world, api) = (world.clone(), server.clone());
            let connect = move |_, _| {
                let admin: Arc<dyn GarageAdmin> = Arc::new(Client {
                    world: world.clone(),
                    known: secret(&api).is_some_and(|token| token == TOKEN),
                    rotations: world.door.lock().unwrap().rotations,
                    api: api.clone(),
                });
                Ok(admin)
            };
            let access =
                HttpAccess::connecting(server.client_as(OPERATOR), "cluster.local", Arc::new(connect));
            let access: Arc<dyn Access> = Arc::new(access);
            access
        })
    }

    /// A story on this Garage.
    pub(crate) async fn story(&self, objects: impl IntoIterator<Item = Value>) -> Story {
        let server = server(false);
        for object in objects {
            put(&server, object);
        }
        Story::beside(server, &flags(), Some(self.access())).await
    }

    /// A story with a handle that is Running and this bucket, which is Ready; what led there is past.
    pub(crate) async fn ready(&self, bucket: Value) -> Story {
        let mut story = self.story([token(TOKEN), handle(), bucket]).await;
        story.settle().await;
        assert_eq!(ready(&story), "True/BucketReady: Garage holds what is wanted");
        self.calls();
        story
    }
}

/// The token that the Secret holds now.
fn secret(server: &ApiServer) -> Option<String> {
    let secret = server.get("Secret", "web", "garage-admin")?;
    let data: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
    let bytes = data.data?.remove("admin-token")?.0;
    Some(String::from_utf8(bytes).unwrap())
}

/// A client that was made with one token.
struct Client {
    world: World,
    api: ApiServer,
    known: bool,
    rotations: usize,
}

impl Client {
    async fn call<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<T, AdminError> {
        let refuse = |class, why: &str| Err(AdminError::new(class, call, FAKE_ENDPOINT, why));
        if self.api.is_killed() {
            return std::future::pending().await;
        }
        let (death, known) = {
            let mut door = self.world.door.lock().unwrap();
            if door.shut {
                return refuse(AdminErrorClass::Connect, "connection refused");
            }
            if let Some(how) = door.broken {
                return refuse(how, "so it is");
            }
            if door.lacking.contains(&call) {
                return refuse(AdminErrorClass::Unauthorized, "403 AccessDenied");
            }
            let known = self.known && self.rotations == door.rotations;
            let death = match &mut door.death {
                Some((0, how)) if call != Call::GetClusterHealth => {
                    let how = *how;
                    door.death = None;
                    Some(how)
                }
                Some((left, _)) if call != Call::GetClusterHealth => {
                    *left -= 1;
                    None
                }
                _ => None,
            };
            (death, known)
        };
        if !known {
            return refuse(AdminErrorClass::Unauthorized, "403 AccessDenied");
        }
        let die = || {
            self.api.kill_after(Matcher::any().user(OPERATOR), 0, Crash::Hang);
        };
        match death {
            Some(Death::Before) => {
                die();
                std::future::pending().await
            }
            Some(Death::After) => {
                drop(work.await);
                die();
                std::future::pending().await
            }
            None => work.await,
        }
    }
}

#[async_trait]
impl GarageAdmin for Client {
    async fn health(&self) -> Result<ClusterHealth, AdminError> {
        self.call(Call::GetClusterHealth, self.world.garage.health())
            .await
    }
    async fn bucket_by_id(&self, id: &BucketId) -> Result<BucketInfo, AdminError> {
        self.call(Call::GetBucketInfo, self.world.garage.bucket_by_id(id))
            .await
    }
    async fn bucket_by_alias(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::GetBucketInfo, self.world.garage.bucket_by_alias(alias))
            .await
    }
    async fn create_bucket(&self, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::CreateBucket, self.world.garage.create_bucket(alias))
            .await
    }
    async fn update_bucket(&self, id: &BucketId, update: &BucketUpdate) -> Result<BucketInfo, AdminError> {
        self.call(Call::UpdateBucket, self.world.garage.update_bucket(id, update))
            .await
    }
    async fn add_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::AddBucketAlias, self.world.garage.add_alias(id, alias))
            .await
    }
    async fn remove_alias(&self, id: &BucketId, alias: &str) -> Result<BucketInfo, AdminError> {
        self.call(Call::RemoveBucketAlias, self.world.garage.remove_alias(id, alias))
            .await
    }
    async fn delete_bucket(&self, id: &BucketId) -> Result<(), AdminError> {
        self.call(Call::DeleteBucket, self.world.garage.delete_bucket(id))
            .await
    }
}

// ---- objects --------------------------------------------------------------------------------------------------------

/// The flag of the Garage controllers on.
pub(crate) fn flags() -> Options {
    Options {
        enable_garage_buckets: true,
        ..options()
    }
}

/// The Secret `web/garage-admin` with this token.
pub(crate) fn token(token: &str) -> Value {
    let bytes = k8s_openapi::ByteString(token.as_bytes().to_vec());
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"namespace": "web", "name": "garage-admin"},
        "data": {"admin-token": bytes},
    })
}

/// The handle `web/garage`; nothing is said about it yet.
pub(crate) fn handle() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "garage"},
        "spec": {
            "connectTo": {
                "adminApiEndpoint": "http://garage.example.com:3903",
                "adminTokenSecretRef": {"name": "garage-admin"},
            },
            "webApi": {"rootDomain": ".site.test"},
        },
    })
}

/// The cluster `web/garage` with a tier, Running, and its token.
pub(crate) fn tiers() -> Value {
    let mut cluster = super::support::cluster();
    cluster["spec"]["admin"] = json!({"adminTokenSecretRef": {"name": "garage-admin"}});
    cluster
}

/// The bucket `web/blog` with a website; nothing is said about it yet.
pub(crate) fn blog() -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog"},
        "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true}},
    })
}

/// The blog with a further spec.
pub(crate) fn blog_with(spec: Value) -> Value {
    let mut bucket = blog();
    for (field, value) in spec.as_object().unwrap() {
        bucket["spec"][field] = value.clone();
    }
    bucket
}

/// The condition Ready of an object as `status/reason: message`.
pub(crate) fn ready_of(object: Option<&Value>) -> String {
    let conditions = object.and_then(|o| o["status"]["conditions"].as_array());
    let ready = conditions.into_iter().flatten().find(|c| c["type"] == "Ready");
    ready.map_or("–".to_owned(), |c| {
        let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}: {}", text("status"), text("reason"), text("message"))
    })
}

/// Ready of the blog.
pub(crate) fn ready(story: &Story) -> String {
    ready_of(story.server.get("GarageBucket", "web", "blog").as_ref())
}

/// `status.phase` of the blog.
pub(crate) fn phase(story: &Story) -> Value {
    story.bucket()["status"]["phase"].clone()
}

/// Writes only: a handle reads its Secret every minute.
pub(crate) fn writes(lines: Vec<String>) -> Vec<String> {
    lines
        .into_iter()
        .filter(|line| !line.starts_with("GET secrets "))
        .collect()
}

/// What the operator wrote since the last time.
pub(crate) async fn written(story: &mut Story) -> Vec<String> {
    writes(story.settle().await)
}

/// Lets time pass; what the operator wrote in it.
pub(crate) async fn after(story: &mut Story, seconds: u64) -> Vec<String> {
    writes(lines(&story.pass(Duration::from_secs(seconds)).await))
}

/// Waits until the blog is gone; what has to be looked at twice takes more than a minute.
pub(crate) async fn gone(story: &Story) {
    for _ in 0..8000 {
        if story.server.get("GarageBucket", "web", "blog").is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the bucket does not go: {}", ready(story));
}

/// The blog is deleted by a user.
pub(crate) fn delete(story: &Story) {
    story.server.delete("GarageBucket", "web", "blog");
}
