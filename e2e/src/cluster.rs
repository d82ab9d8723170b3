//! The cluster that scenarios run on, whichever kind it is: clients, namespaces, images, requests, evidence.
//! What is installed on it belongs to `operator`, `garage` and `contour`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Service, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Config};
use serde_json::json;

use crate::audit::AuditLog;
use crate::error::{Error, IoContext, Result};
use crate::kind::Kind;
use crate::net::{Answer, Forward, request};
use crate::node::{Node, Options, addr, kubeconfig};
use crate::sh::{self, say};
use crate::tools::{PATIENCE, Part, Tools};
use crate::{image, wait};

/// Set to 1 by `cargo e2e`: scenarios run, and one that cannot is a failure. Otherwise they say that they were skipped.
pub const SWITCH: &str = "ROUTEWRIGHT_E2E";

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    backend: Backend,
    tools: Tools,
    kubeconfig: PathBuf,
    kubectl: OnceLock<PathBuf>,
    helm: OnceLock<PathBuf>,
    courier: tokio::sync::OnceCell<String>,
    loaded: Mutex<Vec<PathBuf>>,
    once: tokio::sync::Mutex<Vec<String>>,
    scratch: PathBuf,
}

#[derive(Debug)]
enum Backend {
    /// The order matters: the port closes before the node goes.
    Node {
        _forward: Forward,
        node: Arc<Node>,
    },
    /// The process deletes the cluster when its input closes, however this one ends.
    Kind {
        kind: Kind,
        reaper: Mutex<Option<(ChildStdin, Child)>>,
    },
    Existing,
}

static SHARED: tokio::sync::OnceCell<Cluster> = tokio::sync::OnceCell::const_new();

impl Cluster {
    /// The one cluster of this process; started by the first who asks. `E2E_KUBECONFIG` names an existing one;
    /// `E2E_CLUSTER` is `node` (the default) or `kind`.
    ///
    /// # Errors
    /// [`Error::Missing`] when this machine cannot; else what failed.
    pub async fn shared() -> Result<&'static Cluster> {
        SHARED
            .get_or_try_init(|| async {
                let started = tokio::task::spawn_blocking(Self::start);
                started
                    .await
                    .map_err(|e| Error::other(format!("starting the cluster: {e}")))?
            })
            .await
    }

    fn start() -> Result<Self> {
        let var = |name| std::env::var(name).ok().filter(|v: &String| !v.is_empty());
        match (var("E2E_KUBECONFIG"), var("E2E_CLUSTER").as_deref()) {
            (Some(file), _) => Self::existing(Path::new(&file)),
            (None, None | Some("node")) => Self::node(&Options::default()),
            (None, Some("kind")) => Self::kind(),
            (None, Some(other)) => Err(Error::Missing(format!(
                "E2E_CLUSTER={other} is unknown; it is node or kind"
            ))),
        }
    }

    /// A node of one's own, for tests that disturb or count everything. It ends with the value or the process.
    ///
    /// # Errors
    /// As [`Node::up`].
    pub fn node(options: &Options) -> Result<Self> {
        let tools = Tools::open()?;
        let node = Arc::new(Node::up(&tools, options)?);
        Self::on(tools, node)
    }

    /// A node that runs already, e.g. by `e2e up`.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn attach(name: &str) -> Result<Self> {
        Self::on(Tools::open()?, Arc::new(Node::attach(name)?))
    }

    fn on(tools: Tools, node: Arc<Node>) -> Result<Self> {
        let (forward, kubeconfig) = node.forward_api(&format!("{}.kubeconfig", std::process::id()))?;
        let scratch = node.state().join("scratch");
        let cluster = Self::new(
            Backend::Node {
                _forward: forward,
                node: Arc::clone(&node),
            },
            tools,
            kubeconfig,
            scratch,
        )?;
        if !node.kept() {
            hand_out_addresses(cluster.kubeconfig.clone(), move || node.alive());
        }
        Ok(cluster)
    }

    fn kind() -> Result<Self> {
        let name = format!("rw-{}", std::process::id());
        let scratch = std::env::temp_dir().join(format!("routewright-{name}"));
        fs::create_dir_all(&scratch).at("create", &scratch)?;
        let kind = Kind::new(&name, &scratch);
        let delete = kind.delete_command();
        let mut c = sh::command("sh", ["-c", r#"read -r _; "$@" >/dev/null 2>&1; rm -rf "$0""#]);
        c.arg(&scratch).arg(delete.get_program()).args(delete.get_args());
        let mut child = c
            .stdin(Stdio::piped())
            .spawn()
            .at("start", "the keeper of the kind cluster")?;
        let reaper = child.stdin.take().map(|pipe| (pipe, child));
        let backend = Backend::Kind {
            kind: kind.clone(),
            reaper: Mutex::new(reaper),
        };
        kind.create()?;
        let cluster = Self::new(backend, Tools::open()?, kind.kubeconfig(), scratch)?;
        hand_out_addresses(cluster.kubeconfig.clone(), || true);
        Ok(cluster)
    }

    fn existing(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = kubeconfig.canonicalize().at("find", kubeconfig)?;
        let scratch = std::env::temp_dir().join(format!("routewright-e2e-{}", std::process::id()));
        Self::new(Backend::Existing, Tools::open()?, kubeconfig, scratch)
    }

    fn new(backend: Backend, tools: Tools, kubeconfig: PathBuf, scratch: PathBuf) -> Result<Self> {
        fs::create_dir_all(&scratch).at("create", &scratch)?;
        Ok(Self {
            backend,
            tools,
            kubeconfig,
            kubectl: OnceLock::new(),
            helm: OnceLock::new(),
            courier: tokio::sync::OnceCell::new(),
            loaded: Mutex::default(),
            once: tokio::sync::Mutex::default(),
            scratch,
        })
    }

    /// The cache of built programs.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// A kubeconfig with all rights, for use outside.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A folder for files of this run; removed with the cluster.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The node, where the cluster is one of ours.
    ///
    /// # Errors
    /// [`Error::Missing`] on other clusters.
    pub fn own_node(&self) -> Result<&Arc<Node>> {
        match &self.backend {
            Backend::Node { node, .. } => Ok(node),
            _ => Err(Error::Missing(
                "a node of ours (E2E_CLUSTER=node) for this scenario".to_owned(),
            )),
        }
    }

    /// The audit log.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none.
    pub fn audit(&self) -> Result<AuditLog> {
        Ok(self.own_node()?.audit())
    }

    /// A client with all rights. A new one each time: a client belongs to the runtime that made it.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(config(&self.kubeconfig).await?)?)
    }

    /// A token of a service account, for an hour.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        };
        let ask = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        let answer = api
            .create_token_request(account, &PostParams::default(), &ask)
            .await?;
        answer
            .status
            .and_then(|s| s.token)
            .ok_or_else(|| Error::other("token request without a token"))
    }

    /// A client with the rights of a service account.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn client_as(&self, namespace: &str, account: &str) -> Result<Client> {
        let token = self.token(namespace, account).await?;
        let mut config = config(&self.kubeconfig).await?;
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.into()),
            ..Default::default()
        };
        Ok(Client::try_from(config)?)
    }

    /// A kubeconfig file with the rights of a service account, for use inside the node.
    ///
    /// # Errors
    /// When there is no such account, or the cluster is not a node of ours.
    pub async fn kubeconfig_as(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let node = self.own_node()?;
        let token = self.token(namespace, account).await?;
        let text = kubeconfig(&addr::api(), &node.state().join("pki/ca.crt"), &token);
        let file = self.scratch.join(format!("{namespace}-{account}.kubeconfig"));
        let mut options = fs::File::options();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&file);
        std::io::Write::write_all(&mut opened.at("create", &file)?, text.as_bytes()).at("write", &file)?;
        Ok(file)
    }

    /// A new namespace whose name begins with `prefix`; deleted when dropped.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace<'_>> {
        let api: Api<NamespaceObject> = Api::all(self.client().await?);
        let labels = [("routewright.test/run".to_owned(), std::process::id().to_string())];
        let metadata = ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        let made = api
            .create(
                &PostParams::default(),
                &NamespaceObject {
                    metadata,
                    ..NamespaceObject::default()
                },
            )
            .await?;
        Ok(Namespace {
            cluster: self,
            name: made.metadata.name.unwrap_or_default(),
        })
    }

    /// `kubectl` with all rights, prepared.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn kubectl_command<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Command> {
        let program = cached(&self.kubectl, || self.tools.program(Part::Kubernetes, "kubectl"))?;
        let mut c = sh::command(program, args);
        c.env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.scratch.join("kubecache"));
        Ok(c)
    }

    /// Runs `kubectl` with all rights.
    ///
    /// # Errors
    /// When it fails.
    pub fn kubectl<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        sh::run(self.kubectl_command(args)?)
    }

    /// `kubectl apply --server-side` of YAML text.
    ///
    /// # Errors
    /// When it fails.
    pub fn apply(&self, yaml: &str) -> Result<String> {
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        sh::run_with_input(self.kubectl_command(args)?, yaml)
    }

    /// `helm` with all rights, prepared.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn helm_command<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Command> {
        let program = cached(&self.helm, || self.tools.program(Part::Helm, "helm"))?;
        let mut c = sh::command(program, args);
        let home = |name| self.scratch.join("helm").join(name);
        c.env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", home("cache"))
            .env("HELM_CONFIG_HOME", home("config"))
            .env("HELM_DATA_HOME", home("data"));
        Ok(c)
    }

    /// Runs `helm` with all rights.
    ///
    /// # Errors
    /// When it fails.
    pub fn helm<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        sh::run(self.helm_command(args)?)
    }

    /// Loads an image archive, once per file name and size.
    ///
    /// # Errors
    /// When the cluster refuses it; on an existing cluster always: the image must be there.
    pub fn load(&self, archive: &Path) -> Result<()> {
        let archive = archive.canonicalize().at("find", archive)?;
        let mut loaded = self
            .loaded
            .lock()
            .map_err(|_| Error::other("an earlier load panicked"))?;
        if loaded.contains(&archive) {
            return Ok(());
        }
        match &self.backend {
            Backend::Node { node, .. } => node.import(std::slice::from_ref(&archive))?,
            Backend::Kind { kind, .. } => kind.load(&archive)?,
            Backend::Existing => {
                say(format!(
                    "existing cluster: {} must be there already",
                    archive.display()
                ));
            }
        }
        loaded.push(archive);
        Ok(())
    }

    /// Makes the image of a part and loads it.
    ///
    /// # Errors
    /// As [`image::of_part`] and [`Self::load`].
    pub async fn load_part(&'static self, part: Part) -> Result<()> {
        blocking(move || self.load(&image::of_part(&self.tools, part)?)).await
    }

    /// Runs `work` unless something under this name has been done on this cluster; others wait for it.
    ///
    /// # Errors
    /// What `work` fails with; the next one tries again.
    pub async fn once<F: Future<Output = Result<()>>>(&self, name: &str, work: F) -> Result<()> {
        let mut done = self.once.lock().await;
        if done.iter().any(|d| d == name) {
            return Ok(());
        }
        work.await?;
        done.push(name.to_owned());
        Ok(())
    }

    /// Installs the product's CRDs and waits until they are served.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn product_crds(&self) -> Result<()> {
        self.once("product CRDs", async {
            for file in yaml_files(&repository().join("crds/yaml"))? {
                self.apply(&fs::read_to_string(&file).at("read", &file)?)?;
            }
            self.established()
        })
        .await
    }

    /// Installs the Gateway API CRDs of a channel (`standard` or `experimental`), read from the pinned module.
    ///
    /// # Errors
    /// When the module cannot be had or the API server refuses.
    pub async fn gateway_crds(&self, channel: &str) -> Result<()> {
        self.once(&format!("Gateway API CRDs {channel}"), async {
            let module = self.tools.go_module("gateway-api", "sigs.k8s.io/gateway-api")?;
            for file in yaml_files(&module.join("config/crd").join(channel))? {
                if file.file_name().is_some_and(|n| n != "kustomization.yaml") {
                    self.apply(&fs::read_to_string(&file).at("read", &file)?)?;
                }
            }
            self.established()
        })
        .await
    }

    /// Waits until every CRD is served: its condition says that it will be, discovery and the handler of its objects
    /// follow a moment later.
    ///
    /// # Errors
    /// When one is not, in time.
    pub fn established(&self) -> Result<()> {
        // A client belongs to the runtime that made it, and who asks may have one or none.
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .at("start", "a runtime")?;
            runtime.block_on(self.all_served())
        };
        std::thread::scope(|scope| scope.spawn(ask).join())
            .unwrap_or_else(|_| Err(Error::other("asking for CRDs panicked")))
    }

    async fn all_served(&self) -> Result<()> {
        let client = self.client().await?;
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        wait::eventually("every CRD is served", PATIENCE, || async {
            for crd in crds
                .list(&ListParams::default())
                .await
                .map_err(|e| e.to_string())?
            {
                // One on its way out is served no more.
                if crd.metadata.deletion_timestamp.is_none() {
                    served(&client, &crd.spec).await?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Waits until a workload's rollout is complete.
    ///
    /// # Errors
    /// When it is not, in time; with what its Pods say.
    pub async fn rollout(&'static self, namespace: &str, workload: &str) -> Result<()> {
        let (namespace, workload) = (namespace.to_owned(), workload.to_owned());
        blocking(move || {
            let args = ["-n", &namespace, "rollout", "status", &workload, "--timeout=300s"];
            self.kubectl(args).map(|_| ()).map_err(|e| {
                let pods = self
                    .kubectl(["-n", &namespace, "get", "pods", "-o", "wide"])
                    .unwrap_or_default();
                let events = self
                    .kubectl(["-n", &namespace, "get", "events"])
                    .unwrap_or_default();
                Error::other(format!("{e}\n{pods}\n{}", sh::tail(&events, 10)))
            })
        })
        .await
    }

    /// A plain HTTP GET from inside the cluster, with a Host header of one's own.
    ///
    /// # Errors
    /// When nothing answers at the address.
    pub async fn fetch(&'static self, host: &str, ip: IpAddr, port: u16, path: &str) -> Result<Answer> {
        let (host, path) = (host.to_owned(), path.to_owned());
        self.request(ip, port, "GET", &path, &[("Host".to_owned(), host)], Vec::new())
            .await
    }

    /// An HTTP request from inside the cluster. Other clusters than a node of ours know GET with a Host alone.
    ///
    /// # Errors
    /// When nothing answers at the address.
    pub async fn request(
        &'static self,
        ip: IpAddr,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Answer> {
        let (method, path, headers) = (method.to_owned(), path.to_owned(), headers.to_vec());
        if let Backend::Node { node, .. } = &self.backend {
            return blocking(move || {
                let headers: Vec<(&str, &str)> =
                    headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                request(&node.netns()?, (ip, port), &method, &path, &headers, &body)
            })
            .await;
        }
        if method != "GET" {
            return Err(Error::Missing(format!(
                "a node of ours for {method} requests from inside"
            )));
        }
        let courier = self.courier().await?;
        let host = headers
            .iter()
            .find(|(n, _)| n == "Host")
            .map(|(_, v)| v.clone())
            .unwrap_or_default();
        blocking(move || {
            let url = format!("http://{}{path}", SocketAddr::new(ip, port));
            let args = [
                "-n", courier, "exec", "courier", "--", "/app", "fetch", &host, &url,
            ];
            Answer::parse(self.kubectl(args)?.as_bytes())
        })
        .await
    }

    /// A Pod that carries requests where the network of the cluster cannot be entered.
    async fn courier(&'static self) -> Result<&'static str> {
        let namespace = self
            .courier
            .get_or_try_init(|| async {
                self.load_part(Part::TestApp).await?;
                let name = format!("routewright-courier-{}", std::process::id());
                self.apply(&format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n\
                     {{apiVersion: v1, kind: Pod, metadata: {{name: courier, namespace: {name}}}, \
                     spec: {{containers: [{{name: app, image: \"{}\"}}]}}}}\n",
                    image::TESTAPP
                ))?;
                self.kubectl([
                    "-n",
                    &name,
                    "wait",
                    "--for=condition=Ready",
                    "pod/courier",
                    "--timeout=300s",
                ])?;
                Ok::<_, Error>(name)
            })
            .await?;
        Ok(namespace)
    }

    /// The first address of a LoadBalancer Service.
    ///
    /// # Errors
    /// When it gets none in time.
    pub async fn address(&self, namespace: &str, service: &str) -> Result<IpAddr> {
        let api: Api<Service> = Api::namespaced(self.client().await?, namespace);
        wait::eventually(
            &format!("address of Service {namespace}/{service}"),
            PATIENCE,
            || async {
                let found = api.get(service).await.map_err(|e| e.to_string())?;
                let ip = found.status.and_then(|s| s.load_balancer).and_then(|l| l.ingress);
                let ip = ip.and_then(|i| i.into_iter().next()).and_then(|i| i.ip);
                ip.and_then(|ip| ip.parse().ok())
                    .ok_or_else(|| "no address".to_owned())
            },
        )
        .await
    }

    /// The cluster IP of a Service.
    ///
    /// # Errors
    /// When there is no such Service, or it is headless.
    pub async fn cluster_ip(&self, namespace: &str, service: &str) -> Result<IpAddr> {
        let found = Api::<Service>::namespaced(self.client().await?, namespace)
            .get(service)
            .await?;
        let ip = found
            .spec
            .and_then(|s| s.cluster_ip)
            .and_then(|ip| ip.parse().ok());
        ip.ok_or_else(|| Error::other(format!("Service {namespace}/{service} has no cluster IP")))
    }

    /// Writes what explains a failure into a folder and returns it: objects without Secrets, events, Pod logs, the
    /// node's logs.
    pub fn evidence(&self, scenario: &str, namespaces: &[String]) -> PathBuf {
        let folder = evidence_root().join(format!("{scenario}-{}", std::process::id()));
        let _ = fs::create_dir_all(&folder);
        let put = |name: &str, text: Result<String>| {
            let _ = fs::write(folder.join(name), text.unwrap_or_else(|e| e.to_string()));
        };
        put(
            "events.txt",
            self.kubectl(["get", "events", "-A", "--sort-by=.metadata.creationTimestamp"]),
        );
        put("pods.txt", self.kubectl(["get", "pods", "-A", "-o", "wide"]));
        let kinds = self.kubectl(["api-resources", "--verbs=list", "--namespaced", "-o", "name"]);
        let kinds: Vec<String> = kinds
            .unwrap_or_default()
            .lines()
            .filter(|k| !["secrets", "events", "events.events.k8s.io"].contains(k))
            .map(str::to_owned)
            .collect();
        for namespace in namespaces {
            let get = [
                "-n",
                namespace,
                "get",
                &kinds.join(","),
                "-o",
                "yaml",
                "--ignore-not-found",
            ];
            put(&format!("{namespace}.yaml"), self.kubectl(get));
            let pods = self
                .kubectl(["-n", namespace, "get", "pods", "-o", "name"])
                .unwrap_or_default();
            for pod in pods.lines() {
                let logs = ["-n", namespace, "logs", pod, "--all-containers", "--prefix"];
                put(
                    &format!("{namespace}-{}.log", pod.trim_start_matches("pod/")),
                    self.kubectl(logs),
                );
            }
        }
        match &self.backend {
            Backend::Node { node, .. } => {
                for entry in fs::read_dir(node.state().join("log"))
                    .into_iter()
                    .flatten()
                    .flatten()
                {
                    let name = format!("node-{}", entry.file_name().to_string_lossy());
                    let _ = fs::copy(entry.path(), folder.join(name));
                }
            }
            Backend::Kind { kind, .. } => drop(kind.logs(&folder)),
            Backend::Existing => {}
        }
        copy_logs(&self.scratch, &folder);
        folder
    }

    /// Ends it, as far as it is ours.
    ///
    /// # Errors
    /// When something stays.
    pub fn down(&self) -> Result<()> {
        match &self.backend {
            Backend::Node { node, .. } => node.down(),
            Backend::Kind { reaper, .. } => {
                if let Some((pipe, mut child)) = reaper.lock().map(|mut r| r.take()).unwrap_or_default() {
                    drop(pipe);
                    let _ = child.wait();
                }
                Ok(())
            }
            Backend::Existing => Ok(()),
        }
    }
}

/// Whether each version of a CRD is in discovery and its objects can be listed.
async fn served(client: &Client, crd: &CustomResourceDefinitionSpec) -> Result<(), String> {
    let (group, plural) = (&crd.group, &crd.names.plural);
    for version in crd.versions.iter().filter(|version| version.served) {
        let version = format!("{group}/{}", version.name);
        let why = |e: String| format!("{plural}.{version}: {e}");
        let found = client.list_api_group_resources(&version).await;
        let found = found.map_err(|e| why(e.to_string()))?;
        if !found.resources.iter().any(|resource| resource.name == *plural) {
            return Err(why("not in discovery".to_owned()));
        }
        let list = http::Request::get(format!("/apis/{version}/{plural}?limit=1")).body(Vec::new());
        let list = list.map_err(|e| why(e.to_string()))?;
        client.request_text(list).await.map_err(|e| why(e.to_string()))?;
    }
    Ok(())
}

fn copy_logs(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|e| e == "log") {
            let _ = fs::copy(
                entry.path(),
                to.join(format!("node-{}", entry.file_name().to_string_lossy())),
            );
        }
    }
}

/// Where the evidence of failures goes: `E2E_EVIDENCE`, else a folder of the build directory.
fn evidence_root() -> PathBuf {
    let target =
        || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    std::env::var_os("E2E_EVIDENCE").map_or_else(|| target().join("e2e-evidence"), PathBuf::from)
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .at("read", folder)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    Ok(files)
}

fn cached(cell: &OnceLock<PathBuf>, make: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = cell.get() {
        return Ok(path.clone());
    }
    let path = make()?;
    Ok(cell.get_or_init(|| path).clone())
}

/// Runs what blocks on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::other(e.to_string()))?
}

async fn config(file: &Path) -> Result<Config> {
    let bad = |e: String| Error::other(format!("{}: {e}", file.display()));
    let kubeconfig = Kubeconfig::read_from(file).map_err(|e| bad(e.to_string()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| bad(e.to_string()))
}

/// Gives every LoadBalancer Service an address, for as long as `alive`. kube-proxy answers on it; nothing else is
/// needed inside the cluster.
pub fn hand_out_addresses(kubeconfig: PathBuf, alive: impl Fn() -> bool + Send + 'static) {
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            while alive() {
                if let Err(e) = addresses(&kubeconfig).await {
                    tracing::debug!("LoadBalancer addresses: {e}");
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    });
}

async fn addresses(kubeconfig: &Path) -> Result<()> {
    let client = Client::try_from(config(kubeconfig).await?)?;
    let all: Api<Service> = Api::all(client.clone());
    let mut stream = std::pin::pin!(
        watcher(all, watcher::Config::default())
            .default_backoff()
            .applied_objects()
    );
    let mut next = 10u8;
    while let Some(service) = stream.try_next().await.map_err(|e| Error::other(e.to_string()))? {
        let (Some(name), Some(namespace)) = (&service.metadata.name, &service.metadata.namespace) else {
            continue;
        };
        if service.spec.as_ref().and_then(|s| s.type_.as_deref()) != Some("LoadBalancer") {
            continue;
        }
        let ingress = service
            .status
            .as_ref()
            .and_then(|s| s.load_balancer.as_ref())
            .and_then(|l| l.ingress.as_ref());
        if let Some(given) = ingress.and_then(|i| i.first()).and_then(|i| i.ip.as_ref()) {
            // After a restart of this loop: go on behind what was given.
            let last = given.rsplit('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            next = next.max(last);
            continue;
        }
        next = next.wrapping_add(1).max(11);
        let ip = format!("{}.{next}", addr::LOAD_BALANCERS);
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}});
        let api: Api<Service> = Api::namespaced(client.clone(), namespace);
        if let Err(e) = api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
        {
            tracing::debug!("Service {namespace}/{name}: {e}");
        }
    }
    Ok(())
}

/// A namespace of one test.
#[derive(Debug)]
pub struct Namespace<'c> {
    cluster: &'c Cluster,
    name: String,
}

impl Namespace<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for Namespace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let args = [
            "delete",
            "namespace",
            &self.name,
            "--wait=false",
            "--ignore-not-found",
        ];
        let _ = self.cluster.kubectl(args);
    }
}

/// What a scenario works with.
pub struct Scenario {
    /// The cluster, shared with the other scenarios of this process.
    pub cluster: &'static Cluster,
    /// A namespace of its own.
    pub namespace: Namespace<'static>,
    /// Its name.
    pub name: &'static str,
}

impl Scenario {
    /// The name of its namespace.
    pub fn ns(&self) -> &str {
        self.namespace.name()
    }

    /// A client with all rights.
    ///
    /// # Errors
    /// As [`Cluster::client`].
    pub async fn client(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// Deletes an object by the API and waits until it is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn remove<K>(&self, api: &Api<K>, name: &str) -> Result<()>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        api.delete(name, &DeleteParams::default()).await?;
        wait::eventually(&format!("{name} gone"), PATIENCE, || async {
            match api.get(name).await {
                Ok(_) => Err("still there".to_owned()),
                Err(kube::Error::Api(e)) if e.is_not_found() => Ok(()),
                Err(e) => Err(e.to_string()),
            }
        })
        .await
    }
}

/// Whether scenarios are to run ([`SWITCH`]); says so when not.
pub fn switched_on(name: &str) -> bool {
    let on = std::env::var(SWITCH).is_ok_and(|v| v == "1");
    if !on {
        say(format!(
            "skipped {name}: it needs a cluster; {SWITCH}=1 (`cargo e2e`) starts one"
        ));
    }
    on
}

/// Runs a scenario on the shared cluster in a namespace of its own. When it fails, by error or panic, evidence is
/// written and the test fails with where it lies. Without the switch ([`SWITCH`]) it says that it was skipped.
///
/// # Panics
/// When the scenario fails, or cannot run although the switch is set.
#[allow(clippy::panic)]
pub async fn scenario<F>(name: &'static str, body: impl FnOnce(Arc<Scenario>) -> F)
where
    F: Future<Output = Result<()>>,
{
    if !switched_on(name) {
        return;
    }
    let cluster = match Cluster::shared().await {
        Ok(cluster) => cluster,
        Err(e) => panic!("{name} cannot run: {e}"),
    };
    let prefix: String = name.replace('_', "-").chars().take(40).collect();
    let namespace = match cluster.namespace(&prefix).await {
        Ok(namespace) => namespace,
        Err(e) => panic!("{name}: no namespace: {e}"),
    };
    let own = namespace.name().to_owned();
    let scenario = Arc::new(Scenario {
        cluster,
        namespace,
        name,
    });
    let outcome = std::panic::AssertUnwindSafe(body(Arc::clone(&scenario)))
        .catch_unwind()
        .await;
    let failed = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(e)) => Ok(e),
        Err(panic) => Err(panic),
    };
    let folder = cluster.evidence(name, &[own]);
    say(format!("{name} failed; evidence in {}", folder.display()));
    match failed {
        Ok(e) => panic!("{name}: {e}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
