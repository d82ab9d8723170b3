//! A real Garage for tests: as a Deployment with the Services that a Garage operator makes, or as a process on the
//! loopback for tests without a cluster. Talks to its Admin API and S3; asserts nothing.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::{Error, IoContext, Result};
use crate::net::Answer;
use crate::node::random_token;
use crate::s3::{self, Key};
use crate::tools::{PATIENCE, Part, Tools};
use crate::{image, sh};

/// Region of the S3 API.
pub const REGION: &str = "garage";
/// Port of the S3 API.
pub const S3: u16 = 3900;
/// Port of the website endpoint.
pub const WEB: u16 = 3902;
/// Port of the Admin API.
pub const ADMIN: u16 = 3903;

/// How a Garage is set up.
#[derive(Debug, Clone)]
pub struct GarageOptions {
    /// `root_domain` of the website endpoint; `.NAME.NAMESPACE.svc` when `None`.
    pub root_domain: Option<String>,
    /// With a second Service `NAME-gateway`, as a cluster with storage and gateway tiers has.
    pub gateway: bool,
}

impl Default for GarageOptions {
    fn default() -> Self {
        Self {
            root_domain: None,
            gateway: true,
        }
    }
}

/// A Garage.
pub struct Garage {
    place: Place,
    /// Name of the Services and of the token Secret (`NAME-admin-token`, key `token`); `local` for a process.
    pub name: String,
    /// Namespace; empty for a process.
    pub namespace: String,
    token: String,
}

enum Place {
    Cluster {
        cluster: &'static Cluster,
        ip: IpAddr,
    },
    Local {
        child: Child,
        dir: PathBuf,
        ports: Ports,
    },
}

/// Ports of a process.
#[derive(Debug, Clone, Copy)]
struct Ports {
    rpc: u16,
    s3: u16,
    web: u16,
    admin: u16,
}

impl std::fmt::Debug for Garage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Garage")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

fn config(meta: &str, root_domain: &str, ip: &str, ports: Ports) -> String {
    format!(
        "metadata_dir = \"{meta}/meta\"\ndata_dir = \"{meta}/data\"\ndb_engine = \"sqlite\"\n\
         replication_factor = 1\nrpc_bind_addr = \"{ip}:{rpc}\"\nrpc_public_addr = \"127.0.0.1:{rpc}\"\n\
         [s3_api]\ns3_region = \"{REGION}\"\napi_bind_addr = \"{ip}:{s3}\"\n\
         [s3_web]\nbind_addr = \"{ip}:{web}\"\nroot_domain = \"{root_domain}\"\n\
         [admin]\napi_bind_addr = \"{ip}:{admin}\"\n",
        rpc = ports.rpc,
        s3 = ports.s3,
        web = ports.web,
        admin = ports.admin,
    )
}

impl Garage {
    /// Deploys a single-node Garage named `name` and waits until its Admin API answers. Its data are gone with its Pod.
    ///
    /// # Errors
    /// When the image cannot be made or it does not get ready.
    pub async fn deploy(
        cluster: &'static Cluster,
        namespace: &str,
        name: &str,
        options: &GarageOptions,
    ) -> Result<Self> {
        cluster.load_part(Part::Garage).await?;
        let (token, rpc) = (random_token()?, format!("{}{}", random_token()?, random_token()?));
        let root = options
            .root_domain
            .clone()
            .unwrap_or_else(|| format!(".{name}.{namespace}.svc"));
        let ports = Ports {
            rpc: 3901,
            s3: S3,
            web: WEB,
            admin: ADMIN,
        };
        let labels = json!({
            "app.kubernetes.io/name": "garage", "app.kubernetes.io/instance": name,
            "garage.rajsingh.info/cluster": name,
        });
        let service = |service: &str| {
            let port = |n: &str, p: u16| json!({"name": n, "port": p, "targetPort": p, "protocol": "TCP"});
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": service, "namespace": namespace, "labels": labels},
                "spec": {"selector": labels, "ports": [port("s3", S3), port("admin", ADMIN), port("web", WEB)]},
            })
        };
        let secret = format!("{name}-admin-token");
        let from = |key: &str| json!({"secretKeyRef": {"name": secret, "key": key}});
        let mut objects = vec![
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": secret, "namespace": namespace},
                "stringData": {"token": token, "rpc": rpc},
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("{name}-config"), "namespace": namespace},
                "data": {"garage.toml": config("/data", &root, "0.0.0.0", ports)},
            }),
            service(name),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 2,
                        "securityContext": {
                            "runAsNonRoot": true, "fsGroup": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [{
                            "name": "garage", "image": image::GARAGE, "imagePullPolicy": "Never",
                            "args": ["-c", "/config/garage.toml", "server", "--single-node"],
                            "env": [
                                {"name": "GARAGE_ADMIN_TOKEN", "valueFrom": from("token")},
                                {"name": "GARAGE_RPC_SECRET", "valueFrom": from("rpc")},
                            ],
                            "readinessProbe": {
                                "httpGet": {"path": "/health", "port": ADMIN}, "periodSeconds": 1,
                            },
                            "securityContext": {
                                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [
                                {"name": "config", "mountPath": "/config"},
                                {"name": "data", "mountPath": "/data"},
                            ],
                        }],
                        "volumes": [
                            {"name": "config", "configMap": {"name": format!("{name}-config")}},
                            {"name": "data", "emptyDir": {}},
                        ],
                    }},
                },
            }),
        ];
        if options.gateway {
            objects.push(service(&format!("{name}-gateway")));
        }
        cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        cluster.rollout(namespace, &format!("deploy/{name}")).await?;
        let ip = cluster.cluster_ip(namespace, name).await?;
        let place = Place::Cluster { cluster, ip };
        let mut garage = Self {
            place,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            token,
        };
        garage.healthy().await?;
        Ok(garage)
    }

    /// Starts a Garage on the loopback and waits until it answers; ends when dropped.
    ///
    /// # Errors
    /// When it cannot be built or does not get ready; with the end of its log.
    pub async fn local(root_domain: &str) -> Result<Self> {
        let program = crate::cluster::blocking(|| Tools::open()?.program(Part::Garage, "garage")).await?;
        // Another process may take a port that was free before Garage does: then it ends, and others are tried.
        let mut attempts = 0;
        loop {
            attempts += 1;
            let token = random_token()?;
            let dir = std::env::temp_dir().join(format!("routewright-garage-{}", random_token()?));
            fs::create_dir_all(&dir).at("create", &dir)?;
            let ports = free_ports()?;
            let file = dir.join("garage.toml");
            fs::write(
                &file,
                config(&dir.display().to_string(), root_domain, "127.0.0.1", ports),
            )
            .at("write", &file)?;
            let child = start_local(&program, &dir, &token)?;
            let mut garage = Self {
                place: Place::Local {
                    child,
                    dir: dir.clone(),
                    ports,
                },
                name: "local".to_owned(),
                namespace: String::new(),
                token,
            };
            let Err(e) = garage.healthy().await else {
                return Ok(garage);
            };
            if attempts == 5 || !garage.ended() {
                let log = fs::read_to_string(dir.join("garage.log")).unwrap_or_default();
                return Err(Error::other(format!("{e}\n{}", sh::tail(&log, 15))));
            }
        }
    }

    /// Whether it was a process and is none any more.
    fn ended(&mut self) -> bool {
        match &mut self.place {
            Place::Cluster { .. } => false,
            Place::Local { child, .. } => child.try_wait().is_ok_and(|status| status.is_some()),
        }
    }

    /// The admin token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Where a port lies: of the Service in a cluster, of the loopback otherwise.
    pub fn address(&self, port: u16) -> SocketAddr {
        match &self.place {
            Place::Cluster { ip, .. } => SocketAddr::new(*ip, port),
            Place::Local { ports, .. } => {
                let local = match port {
                    S3 => ports.s3,
                    WEB => ports.web,
                    ADMIN => ports.admin,
                    other => other,
                };
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), local)
            }
        }
    }

    /// Waits until it answers; fails at once when it was a process and has ended.
    async fn healthy(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let last = match self.http(ADMIN, "GET", "/health", &[], Vec::new()).await {
                Ok(a) if a.status == 200 => return Ok(()),
                Ok(a) => format!("{} {}", a.status, a.text()),
                Err(e) => e.to_string(),
            };
            if self.ended() {
                return Err(Error::other(format!("Garage has ended: {last}")));
            }
            if Instant::now() > end {
                return Err(Error::Timeout {
                    what: "Garage healthy".to_owned(),
                    limit: PATIENCE,
                    last,
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn http(
        &self,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Answer> {
        let to = self.address(port);
        let mut all = headers.to_vec();
        if !all.iter().any(|(n, _)| n == "Host") {
            all.push(("Host".to_owned(), to.to_string()));
        }
        match &self.place {
            Place::Cluster { cluster, ip } => cluster.request(*ip, port, method, path, &all, body).await,
            Place::Local { .. } => {
                let (method, path) = (method.to_owned(), path.to_owned());
                crate::cluster::blocking(move || {
                    let all: Vec<(&str, &str)> = all.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                    crate::net::request_here(to, &method, &path, &all, &body)
                })
                .await
            }
        }
    }

    /// A call of the Admin API, e.g. `("POST", "/v2/CreateBucket", json)`; the decoded answer, null when empty.
    ///
    /// # Errors
    /// When it answers with another status than 2xx.
    pub async fn admin(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
        let headers = [
            ("Authorization".to_owned(), format!("Bearer {}", self.token)),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let answer = self.http(ADMIN, method, path, &headers, body).await?;
        if !(200..300).contains(&answer.status) {
            return Err(Error::other(format!(
                "Garage {method} {path}: {} {}",
                answer.status,
                answer.text()
            )));
        }
        serde_json::from_slice(&answer.body).or(Ok(Value::Null))
    }

    /// A new access key.
    ///
    /// # Errors
    /// When Garage refuses.
    pub async fn create_key(&self, name: &str) -> Result<Key> {
        let answer = self
            .admin("POST", "/v2/CreateKey", Some(json!({"name": name})))
            .await?;
        let text = |field: &str| answer.get(field).and_then(Value::as_str).map(str::to_owned);
        match (text("accessKeyId"), text("secretAccessKey")) {
            (Some(id), Some(secret)) => Ok(Key { id, secret }),
            _ => Err(Error::other("Garage CreateKey: no key in the answer")),
        }
    }

    /// The id of the bucket with this global alias.
    ///
    /// # Errors
    /// When there is none.
    pub async fn bucket_id(&self, alias: &str) -> Result<String> {
        let found = self
            .admin("GET", &format!("/v2/GetBucketInfo?globalAlias={alias}"), None)
            .await?;
        let id = found.get("id").and_then(Value::as_str).map(str::to_owned);
        id.ok_or_else(|| Error::other(format!("Garage: no id of bucket {alias}")))
    }

    /// A bucket that serves a website under this global alias; its id.
    ///
    /// # Errors
    /// When Garage refuses.
    pub async fn create_website(&self, alias: &str) -> Result<String> {
        let made = self
            .admin("POST", "/v2/CreateBucket", Some(json!({"globalAlias": alias})))
            .await?;
        let id = made.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = id.ok_or_else(|| Error::other("Garage CreateBucket: no id in the answer"))?;
        let website = json!({"websiteAccess": {"enabled": true, "indexDocument": "index.html"}});
        self.admin("POST", &format!("/v2/UpdateBucket?id={id}"), Some(website))
            .await?;
        Ok(id)
    }

    /// Gives a key all rights on a bucket.
    ///
    /// # Errors
    /// When Garage refuses.
    pub async fn allow(&self, bucket_id: &str, key: &Key) -> Result<()> {
        let body = json!({
            "bucketId": bucket_id, "accessKeyId": key.id,
            "permissions": {"read": true, "write": true, "owner": true},
        });
        self.admin("POST", "/v2/AllowBucketKey", Some(body))
            .await
            .map(|_| ())
    }

    /// Puts an object into the bucket with this alias.
    ///
    /// # Errors
    /// When Garage refuses.
    pub async fn put(&self, alias: &str, object: &str, key: &Key, body: &[u8]) -> Result<()> {
        let (host, path) = (self.address(S3).to_string(), format!("/{alias}/{object}"));
        let mut headers = s3::sign(key, REGION, "PUT", &host, &path, body, &s3::stamp());
        headers.push(("Content-Type".to_owned(), "text/html".to_owned()));
        let answer = self.http(S3, "PUT", &path, &headers, body.to_vec()).await?;
        if answer.status == 200 {
            return Ok(());
        }
        Err(Error::other(format!(
            "Garage PUT {path}: {} {}",
            answer.status,
            answer.text()
        )))
    }

    /// Puts `index.html` into the bucket with this alias, with a key made for it.
    ///
    /// # Errors
    /// When Garage refuses.
    pub async fn put_page(&self, alias: &str, html: &str) -> Result<()> {
        let key = self.create_key("page").await?;
        self.allow(&self.bucket_id(alias).await?, &key).await?;
        self.put(alias, "index.html", &key, html.as_bytes()).await
    }

    /// GET of the website endpoint itself with a Host of one's own.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn web(&self, host: &str, path: &str) -> Result<Answer> {
        self.http(
            WEB,
            "GET",
            path,
            &[("Host".to_owned(), host.to_owned())],
            Vec::new(),
        )
        .await
    }
}

fn start_local(program: &Path, dir: &Path, token: &str) -> Result<Child> {
    let log = dir.join("garage.log");
    let out = fs::File::create(&log).at("create", &log)?;
    let err = out.try_clone().at("open", &log)?;
    let mut c = Command::new(program);
    c.arg("-c")
        .arg(dir.join("garage.toml"))
        .args(["server", "--single-node"]);
    c.env("GARAGE_ADMIN_TOKEN", token)
        .env("GARAGE_RPC_SECRET", format!("{0}{0}", random_token()?));
    c.stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .at("start", program)
}

/// Four ports that nobody has; held until all are known, so that they differ.
fn free_ports() -> Result<Ports> {
    let free = || TcpListener::bind("127.0.0.1:0").at("listen on", "127.0.0.1");
    let port = |listener: &TcpListener| -> Result<u16> {
        Ok(listener.local_addr().at("listen on", "127.0.0.1")?.port())
    };
    let (rpc, s3, web, admin) = (free()?, free()?, free()?, free()?);
    Ok(Ports {
        rpc: port(&rpc)?,
        s3: port(&s3)?,
        web: port(&web)?,
        admin: port(&admin)?,
    })
}

impl Drop for Garage {
    fn drop(&mut self) {
        if let Place::Local { child, dir, .. } = &mut self.place {
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// How long a page may take to come through a gateway after its route is ready.
pub const PAGE: Duration = Duration::from_secs(90);
