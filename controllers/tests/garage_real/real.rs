//! A real Garage on loopback: the program is found, started, asked and stopped. No assertion about the product.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, DirEntry};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::Method;
use routewright::garage::admin::{
    AdminClient, AdminHttp, BucketId, CALL_TIMEOUT, Endpoint, GarageAdmin, Token,
};
use routewright::garage::testing::GarageWorld;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The admin token of every Garage.
pub(crate) const TOKEN: &str = "token-of-the-test";
const REGION: &str = "garage";

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
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let Ok(meta) = fs::metadata(&path) else {
            continue;
        };
        if meta.is_file() && path.file_name().is_some_and(|n| n == "garage") {
            found.extend(meta.modified().ok().map(|at| (at, path)));
        } else if meta.is_dir() && depth > 0 {
            let deeper = find(&path, depth - 1);
            found.extend(deeper.and_then(|p| Some((fs::metadata(&p).ok()?.modified().ok()?, p))));
        }
    }
    found.into_iter().max().map(|(_, path)| path)
}

/// A single-node Garage in a folder of its own, on free ports. Stopped and removed on drop.
pub(crate) struct RealGarage {
    pub(crate) process: Child,
    folder: PathBuf,
    pub(crate) admin_address: SocketAddr,
    s3_address: SocketAddr,
    pub(crate) web_address: SocketAddr,
    http: reqwest::Client,
    pub(crate) admin: AdminClient,
    key: Option<(String, String)>,
}

impl Drop for RealGarage {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!(
                "the last lines of Garage's log, youngest first:\n{}",
                tail.join("\n")
            );
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl RealGarage {
    /// One that has a layout, a key and no bucket. `None` when these tests are left out.
    pub(crate) async fn start(root_domain: &str) -> Option<Self> {
        let mut garage = Self::spawn(root_domain, true).await?;
        let key = garage.call("CreateKey", json!({ "name": "test" })).await;
        let text = |field: &str| key[field].as_str().unwrap().to_owned();
        garage.key = Some((text("accessKeyId"), text("secretAccessKey")));
        Some(garage)
    }

    pub(crate) async fn spawn(root_domain: &str, layout: bool) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let program = program()?;
        // Another process may take a free port before Garage does: try again with others.
        for _ in 0..5 {
            let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
            let folder = std::env::temp_dir().join(format!("routewright-garage-{unique}"));
            fs::create_dir_all(&folder).unwrap();
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
            fs::write(folder.join("garage.toml"), config).unwrap();
            let log = fs::File::create(folder.join("log")).unwrap();
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
    pub(crate) async fn ready(&mut self, layout: bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(120);
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
    pub(crate) async fn call(&self, name: &str, body: Value) -> Value {
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
    pub(crate) async fn check(&self, host: &str) -> u16 {
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
    pub(crate) async fn s3(&self, method: Method, id: &BucketId, object: &str, query: &str, body: &str) {
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
    pub(crate) async fn counts(&self, id: &BucketId, objects: u64) {
        let deadline = Instant::now() + Duration::from_secs(120);
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

    /// Stops it, and waits until every thread stands: one on another processor might still answer.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.process.id());
        let moves = |task: DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // A thread that has ended in between has no state.
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| !rest.starts_with('T'))
        };
        while fs::read_dir(&tasks).unwrap().flatten().any(moves) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Goes on after [`Self::freeze`].
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

pub(crate) fn client(address: SocketAddr, token: &str, timeout: Duration) -> AdminClient {
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
