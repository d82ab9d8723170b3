//! The Admin API client, the bucket driver and the host rules against a real Garage on loopback.
//!
//! The program is found by `GARAGE_BIN`, or in the tool cache of the e2e crate. Without it these tests fail, unless
//! `ROUTEWRIGHT_SKIP_REAL_GARAGE=1` says that they may be left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::Method;
use routewright::exposure::hostname::{ResolutionRow, resolution_table, resolve};
use routewright::garage::admin::{
    AdminClient, AdminError, AdminErrorClass, AdminHttp, BucketId, BucketInfo, BucketUpdate, CALL_TIMEOUT,
    ClusterHealth, Endpoint, GarageAdmin, Token, WebsiteUpdate,
};
use routewright::garage::bucket::{Deletion, DriveError, End, Wanted, drive, website_documents};
use routewright::garage::handle::{HandlePhase, HandleReason, probed};
use routewright::garage::testing::{FakeOwner, GarageWorld, crash_sweep, drive_until, garage_contract};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TOKEN: &str = "token-of-the-test";
const REGION: &str = "garage";

// --- the real one -----------------------------------------------------------------------------------------

/// The Garage program, or `None` when the tests may be left out.
fn program() -> Option<PathBuf> {
    let var = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let cache = var("ROUTEWRIGHT_TOOLS")
        .or_else(|| var("XDG_CACHE_HOME").map(|c| c.join("routewright/tools")))
        .or_else(|| var("HOME").map(|h| h.join(".cache/routewright/tools")));
    if let Some(program) = var("GARAGE_BIN").or_else(|| cache.as_deref().and_then(|c| find(c, 4))) {
        return Some(program);
    }
    if var("ROUTEWRIGHT_SKIP_REAL_GARAGE").is_some_and(|v| v.as_os_str() == "1") {
        eprintln!("left out: no Garage program, and ROUTEWRIGHT_SKIP_REAL_GARAGE=1");
        return None;
    }
    panic!(
        "no Garage program: set GARAGE_BIN (made by `cargo install garage --version 2.5.0 --locked`), run \
         `cargo e2e tools --all` once, or set ROUTEWRIGHT_SKIP_REAL_GARAGE=1 to leave these tests out"
    );
}

/// The youngest file named `garage` below a folder.
fn find(folder: &Path, depth: usize) -> Option<PathBuf> {
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let Ok(meta) = std::fs::metadata(&path) else {
            continue;
        };
        if meta.is_file() && path.file_name().is_some_and(|n| n == "garage") {
            found.extend(meta.modified().ok().map(|at| (at, path)));
        } else if meta.is_dir() && depth > 0 {
            let deeper = find(&path, depth - 1);
            found.extend(deeper.and_then(|p| Some((std::fs::metadata(&p).ok()?.modified().ok()?, p))));
        }
    }
    found.into_iter().max().map(|(_, path)| path)
}

/// A single-node Garage in a folder of its own, on free ports. Stopped and removed on drop.
struct RealGarage {
    process: Child,
    folder: PathBuf,
    admin_address: SocketAddr,
    s3_address: SocketAddr,
    web_address: SocketAddr,
    http: reqwest::Client,
    admin: AdminClient,
    key: Option<(String, String)>,
}

impl Drop for RealGarage {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!(
                "the last lines of Garage's log, youngest first:\n{}",
                tail.join("\n")
            );
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl RealGarage {
    /// One that has a layout, a key and no bucket. `None` when these tests are left out.
    async fn start(root_domain: &str) -> Option<Self> {
        let mut garage = Self::spawn(root_domain, true).await?;
        let key = garage.call("CreateKey", json!({ "name": "test" })).await;
        let text = |field: &str| key[field].as_str().unwrap().to_owned();
        garage.key = Some((text("accessKeyId"), text("secretAccessKey")));
        Some(garage)
    }

    async fn spawn(root_domain: &str, layout: bool) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let program = program()?;
        // Another process may take a free port before Garage does: try again with others.
        for _ in 0..5 {
            let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
            let folder = std::env::temp_dir().join(format!("routewright-garage-{unique}"));
            std::fs::create_dir_all(&folder).unwrap();
            let listeners: Vec<TcpListener> = (0..4)
                .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
                .collect();
            let ports: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
            drop(listeners);
            let config = format!(
                "metadata_dir = \"{at}/meta\"\ndata_dir = \"{at}/data\"\ndb_engine = \"sqlite\"\n\
                 replication_factor = 1\nrpc_bind_addr = \"{rpc}\"\nrpc_public_addr = \"{rpc}\"\n\
                 rpc_secret = \"{secret}\"\n[s3_api]\ns3_region = \"{REGION}\"\napi_bind_addr = \"{s3}\"\n\
                 [s3_web]\nbind_addr = \"{web}\"\nroot_domain = \"{root_domain}\"\n\
                 [admin]\napi_bind_addr = \"{admin}\"\nadmin_token = \"{TOKEN}\"\n",
                at = folder.display(),
                rpc = ports[0],
                s3 = ports[1],
                web = ports[2],
                admin = ports[3],
                secret = "0f".repeat(32),
            );
            std::fs::write(folder.join("garage.toml"), config).unwrap();
            let log = std::fs::File::create(folder.join("log")).unwrap();
            let mut command = Command::new(&program);
            command.arg("-c").arg(folder.join("garage.toml")).arg("server");
            if layout {
                command.arg("--single-node");
            }
            let process = command
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
            let mut garage = Self {
                process,
                folder,
                admin_address: ports[3],
                s3_address: ports[1],
                web_address: ports[2],
                http: reqwest::Client::builder().no_proxy().build().unwrap(),
                admin: client(ports[3], TOKEN, CALL_TIMEOUT),
                key: None,
            };
            if garage.ready(layout).await {
                return Some(garage);
            }
        }
        panic!("Garage did not start");
    }

    /// Waits until it answers; `false` if it ended instead.
    async fn ready(&mut self, layout: bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            match self.admin.health().await {
                Ok(health) if health.status == "healthy" || !layout => return true,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("Garage was not ready in time");
    }

    /// A call of the Admin API that the product does not make.
    async fn call(&self, name: &str, body: Value) -> Value {
        let url = format!("http://{}/v2/{name}", self.admin_address);
        let request = if body.is_null() {
            self.http.get(url)
        } else {
            self.http.post(url).json(&body)
        };
        let answer = request.bearer_auth(TOKEN).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{name}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The status of `GET /` on the web port with this Host header, byte by byte.
    async fn check(&self, host: &str) -> u16 {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let exchange = async {
            let mut stream = tokio::net::TcpStream::connect(self.web_address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        let answer = tokio::time::timeout(CALL_TIMEOUT, exchange)
            .await
            .unwrap()
            .unwrap();
        answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("{host}: no HTTP answer: {answer:?}"))
    }

    /// A request to the S3 API for one object, signed with AWS Signature Version 4. `query` is empty, or `name=`.
    async fn s3(&self, method: Method, id: &BucketId, object: &str, query: &str, body: &str) {
        let (key, secret) = self.key.clone().expect("a key");
        let allow = json!({
            "bucketId": id.as_str(), "accessKeyId": key,
            "permissions": { "read": true, "write": true, "owner": false },
        });
        self.call("AllowBucketKey", allow).await;
        let alias = self.admin.bucket_by_id(id).await.unwrap().global_aliases[0].clone();
        let path = format!("/{alias}/{object}");
        let payload = hex(&Sha256::digest(body));
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        let headers = format!(
            "host:{}\nx-amz-content-sha256:{payload}\nx-amz-date:{time}\n",
            self.s3_address
        );
        let names = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{payload}");
        let scope = format!("{day}/{REGION}/s3/aws4_request");
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            hex(&Sha256::digest(canonical))
        );
        let mut signing = hmac(format!("AWS4{secret}").as_bytes(), day.as_bytes());
        for part in [REGION, "s3", "aws4_request"] {
            signing = hmac(&signing, part.as_bytes());
        }
        let signature = hex(&hmac(&signing, to_sign.as_bytes()));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        let answer = self
            .http
            .request(method, format!("http://{}{path}?{query}", self.s3_address))
            .header("x-amz-content-sha256", payload)
            .header("x-amz-date", &time)
            .header("authorization", authorization)
            .body(body.to_owned())
            .send()
            .await
            .unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "S3 {path}: {status} {text}");
    }

    /// Waits until Garage counts `objects` in the bucket.
    async fn counts(&self, id: &BucketId, objects: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let counted = self.admin.bucket_by_id(id).await.unwrap().objects;
            if counted == objects {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "Garage counts {counted} objects, not {objects}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .arg(signal)
            .arg(self.process.id().to_string())
            .status()
            .unwrap();
        assert!(status.success());
    }
}

fn client(address: SocketAddr, token: &str, timeout: Duration) -> AdminClient {
    let http = AdminHttp::new(None).unwrap().with_limits(timeout, 1 << 20);
    let endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
    AdminClient::new(http, endpoint, Token::new(token).unwrap()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// HMAC-SHA-256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |with: u8| block.iter().map(|b| b ^ with).collect::<Vec<u8>>();
    let inner = Sha256::digest([pad(0x36).as_slice(), message].concat());
    Sha256::digest([pad(0x5c).as_slice(), inner.as_slice()].concat()).to_vec()
}

#[async_trait]
impl GarageWorld for RealGarage {
    fn admin(&self) -> &dyn GarageAdmin {
        &self.admin
    }

    async fn buckets(&self) -> BTreeMap<BucketId, BTreeSet<String>> {
        let list = self.call("ListBuckets", Value::Null).await;
        let bucket = |bucket: &Value| {
            let id = BucketId::parse(bucket["id"].as_str().unwrap()).unwrap();
            let aliases = bucket["globalAliases"].as_array().unwrap();
            (
                id,
                aliases.iter().map(|a| a.as_str().unwrap().to_owned()).collect(),
            )
        };
        list.as_array().unwrap().iter().map(bucket).collect()
    }

    async fn put_object(&self, id: &BucketId) {
        self.s3(Method::PUT, id, "index.html", "", "hello").await;
        self.counts(id, 1).await;
    }

    async fn remove_object(&self, id: &BucketId) {
        self.s3(Method::DELETE, id, "index.html", "", "").await;
        self.counts(id, 0).await;
    }
}

// --- tests ------------------------------------------------------------------------------------------------

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
            self.garage.signal("-STOP");
        }
        let answer = call.await;
        if stalls {
            self.garage.signal("-CONT");
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
        let end = match drive(&stalling, &owner, &wanted, &owner.known()).await {
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
            drive(&garage.admin, &owner, &wanted, &owner.known())
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
    assert!(refused.to_string().contains("Layout not ready"), "{refused}");

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

#[tokio::test]
async fn hosts_resolve_as_the_exposure_rules_assume() {
    // Given the observations that the rules rest on, by root domain and by aliases of the one bucket,
    let mut roots: BTreeMap<&str, BTreeMap<&[&str], Vec<ResolutionRow>>> = BTreeMap::new();
    for row in resolution_table() {
        roots
            .entry(row.root_domain)
            .or_default()
            .entry(row.aliases)
            .or_default()
            .push(row);
    }
    let mut checked = 0;
    for (root, buckets) in roots {
        let Some(garage) = RealGarage::start(root).await else {
            return;
        };
        for (aliases, rows) in buckets {
            let id = garage.admin.create_bucket(aliases[0]).await.unwrap().id;
            for alias in &aliases[1..] {
                garage.admin.add_alias(&id, alias).await.unwrap();
            }
            let website = Some(WebsiteUpdate::Enable(website_documents(None, None)));
            let update = BucketUpdate {
                website,
                quotas: None,
            };
            garage.admin.update_bucket(&id, &update).await.unwrap();
            garage.put_object(&id).await;
            // when each host is asked for, then a real Garage answers what was written down.
            for row in rows {
                assert_eq!(garage.check(row.host).await, row.status, "{row:?}");
                checked += 1;
            }
            garage.remove_object(&id).await;
            garage.admin.delete_bucket(&id).await.unwrap();
        }
    }
    println!("{checked} hosts checked");
    assert_eq!(checked, resolution_table().len());
}

/// Hosts made from parts that are right, nearly right and wrong, each once.
fn generated_hosts() -> BTreeSet<String> {
    let names = [
        "site",
        "SITE",
        "a.b",
        "www",
        "www.example.com",
        "other.net",
        "xsite",
        "b",
        "-",
        "",
    ];
    let roots = [
        "example.com",
        "Example.COM",
        "example.com.",
        "xexample.com",
        "com",
        "example.org",
        "",
    ];
    let mut hosts = BTreeSet::new();
    for name in names {
        for joint in ["", ".", ".."] {
            for root in roots {
                for port in ["", ":80"] {
                    hosts.insert(format!("{name}{joint}{root}{port}"));
                }
            }
        }
    }
    // Without a name there is no host to resolve, only a malformed request.
    hosts.retain(|host| !host.is_empty() && !host.starts_with(':'));
    hosts
}

#[tokio::test]
async fn generated_hosts_resolve_as_the_exposure_rules_say() {
    // Given a bucket with aliases beside, under and equal to the root domain,
    const ROOT: &str = ".example.com";
    const ALIASES: [&str; 4] = ["site", "a.b", "www.example.com", "other.net"];
    let Some(garage) = RealGarage::start(ROOT).await else {
        return;
    };
    let id = garage.admin.create_bucket(ALIASES[0]).await.unwrap().id;
    for alias in &ALIASES[1..] {
        garage.admin.add_alias(&id, alias).await.unwrap();
    }
    let update = BucketUpdate {
        website: Some(WebsiteUpdate::Enable(website_documents(None, None))),
        quotas: None,
    };
    garage.admin.update_bucket(&id, &update).await.unwrap();
    garage.put_object(&id).await;
    // when hosts of all shapes are asked for, then Garage serves those that the rules resolve to an alias, and only those.
    let (mut served, mut unknown) = (0, 0);
    for host in generated_hosts() {
        let expected = match resolve(&host, ROOT) {
            None => 400,
            Some(alias) if ALIASES.contains(&alias.as_str()) => 200,
            Some(_) => 404,
        };
        assert_eq!(garage.check(&host).await, expected, "{host}");
        if expected == 200 {
            served += 1;
        } else {
            unknown += 1;
        }
    }
    println!("{} generated hosts checked, {served} served", served + unknown);
    assert!(served > 10 && unknown > 100, "{served} {unknown}");
}
