//! A single-node Kubernetes in Linux namespaces of its own: start, look inside, disturb, remove.
//! What runs on it (Garage, the operator, tests) does not belong here.
//!
//! Everything lies in one state folder and one set of namespaces; nothing of it is visible outside. A keeper
//! process removes it all when the process that started the node ends, however it ends.

mod pki;

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

pub(crate) use pki::kubeconfig;
pub use pki::random_token;

use crate::audit::AuditLog;
use crate::error::{Error, IoContext, Result};
use crate::image;
use crate::net::{Answer, Forward, NetNs, request};
use crate::sh::{self, Process, say, wait_for};
use crate::tools::{self, Need, PATIENCE, Part, Tools};

/// Fixed addresses. They exist only inside the node's network namespace.
pub mod addr {
    /// The node, and the API server on port 6443.
    pub const NODE: &str = "172.31.255.2";
    /// A neighbour that does not exist.
    pub const GATEWAY: &str = "172.31.255.1";
    /// Cluster DNS.
    pub const DNS: &str = "10.96.0.10";
    /// The Service `kubernetes`.
    pub const API_SERVICE: &str = "10.96.0.1";
    /// Services.
    pub const SERVICES: &str = "10.96.0.0/16";
    /// Pods of the cluster.
    pub const PODS: &str = "10.244.0.0/16";
    /// Pods of the node.
    pub const NODE_PODS: &str = "10.244.0.0/24";
    /// First three octets of LoadBalancer addresses.
    pub const LOAD_BALANCERS: &str = "172.31.254";

    /// URL of the API server, from inside.
    pub fn api() -> String {
        format!("https://{NODE}:6443")
    }
}

/// Name of the kubeconfig, in the state folder of a kept node, that works outside of it.
pub const OUTSIDE: &str = "outside.kubeconfig";

const INIT: &str = include_str!("node/init.sh");
const KEEPER: &str = include_str!("node/keeper.sh");
const DNS: &str = include_str!("node/dns.yaml");

/// One of the node's own processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// Container runtime.
    Containerd,
    /// Store.
    Etcd,
    /// API server.
    Apiserver,
    /// Controller manager.
    ControllerManager,
    /// Scheduler.
    Scheduler,
    /// Kubelet.
    Kubelet,
    /// kube-proxy.
    Proxy,
}

impl Service {
    /// Name of its log and pid files.
    pub fn name(self) -> &'static str {
        match self {
            Service::Containerd => "containerd",
            Service::Etcd => "etcd",
            Service::Apiserver => "apiserver",
            Service::ControllerManager => "controller-manager",
            Service::Scheduler => "scheduler",
            Service::Kubelet => "kubelet",
            Service::Proxy => "proxy",
        }
    }
}

/// How to start a node.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the node, its state folder and its cgroups: one at a time per name.
    pub name: String,
    /// Ends by itself after this time, whatever happens.
    pub ttl: Duration,
    /// Outlives the process that started it.
    pub keep: bool,
    /// Image archives to load besides pause and CoreDNS.
    pub images: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: format!("rw-{}", std::process::id()),
            ttl: Duration::from_secs(2 * 3600),
            keep: false,
            images: Vec::new(),
        }
    }
}

/// What is written down about a run, for other processes.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    name: String,
    keeper: Process,
    owner: Process,
    keep: bool,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    name: String,
    state: PathBuf,
    init: Process,
    keeper: Process,
    /// Ends the node when it closes; `None` for a kept one and for a node that another process started.
    life: Mutex<Option<(ChildStdin, Child)>>,
}

/// Where the state folders lie: `ROUTEWRIGHT_STATE`, else a folder in the temporary directory. Not under /run, /etc,
/// /var or /opt, which the node replaces.
pub fn state_root() -> PathBuf {
    std::env::var_os("ROUTEWRIGHT_STATE")
        .filter(|v| !v.is_empty())
        .map_or_else(|| std::env::temp_dir().join("routewright-nodes"), PathBuf::from)
}

/// Whether this machine can run a node at all.
///
/// # Errors
/// [`Error::Missing`] with what is missing and what there is without it.
pub fn possible() -> Result<()> {
    let other = "without it there are the other tiers: cargo test-all unit fake-api";
    if !cfg!(target_os = "linux") {
        return Err(Error::Missing(format!(
            "Linux, for a cluster without Docker; {other}"
        )));
    }
    if !tools::is_root() {
        return Err(Error::Missing(format!(
            "root, for a cluster without Docker; {other}"
        )));
    }
    tools::require(&Need::NODE)?;
    let probe = sh::command(
        "unshare",
        [
            "--mount",
            "--pid",
            "--net",
            "--cgroup",
            "--fork",
            "mount",
            "--make-rprivate",
            "/",
        ],
    );
    sh::run(probe).map(|_| ()).map_err(|e| {
        let why = e.to_string().replace('\n', " ");
        Error::Missing(format!(
            "the right to make namespaces and mounts, CAP_SYS_ADMIN ({why}); {other}"
        ))
    })
}

impl Node {
    /// Starts a node and waits until it is Ready and cluster DNS answers. Removes what earlier runs left.
    ///
    /// # Errors
    /// [`Error::Missing`] when this machine cannot; else the step that failed, with the end of the logs.
    pub fn up(tools: &Tools, options: &Options) -> Result<Self> {
        possible()?;
        let bins: Vec<PathBuf> = Part::NODE.iter().map(|p| tools.part(*p)).collect::<Result<_>>()?;
        let mut images = vec![
            image::of_part(tools, Part::Pause)?,
            image::of_part(tools, Part::CoreDns)?,
        ];
        images.extend(options.images.iter().cloned());
        clean_stale()?;

        let begun = Instant::now();
        let state = state_root().join(&options.name);
        if state.exists() {
            return Err(Error::other(format!(
                "a node named {} runs already ({}); `e2e down` ends it",
                options.name,
                state.display()
            )));
        }
        for folder in ["log", "bin", "pid", "containerd", "etcd", "kubelet"] {
            fs::create_dir_all(state.join(folder)).at("create", state.join(folder))?;
        }
        for bin in &bins {
            for entry in fs::read_dir(bin)
                .at("read", bin)?
                .flatten()
                .filter(|e| sh::is_executable(&e.path()))
            {
                let link = state.join("bin").join(entry.file_name());
                std::os::unix::fs::symlink(entry.path(), &link).at("link", &link)?;
            }
        }
        pki::write(&state, &options.name)?;
        configs(&state, &options.name)?;
        let node = match Self::hold(&state, options) {
            Ok(node) => node,
            Err(e) => {
                let text = format!("{e}\n{}", logs(&state));
                let _ = fs::remove_dir_all(&state);
                return Err(Error::other(text));
            }
        };
        match node.begin(&images, begun) {
            Ok(()) => Ok(node),
            Err(e) => {
                let text = format!("node {}: {e}\n{}", options.name, logs(&state));
                let _ = node.down();
                Err(Error::other(text))
            }
        }
    }

    /// The node of that name, started by another process.
    ///
    /// # Errors
    /// When there is none.
    pub fn attach(name: &str) -> Result<Self> {
        let state = state_root().join(name);
        let record = record(&state).ok_or_else(|| Error::other(format!("no node named {name}: `e2e up`")))?;
        let init = init_of(&state).filter(Process::alive);
        let init =
            init.ok_or_else(|| Error::other(format!("node {name} has ended: `e2e down` cleans up")))?;
        Ok(Self {
            name: record.name,
            state,
            init,
            keeper: record.keeper,
            life: Mutex::new(None),
        })
    }

    fn hold(state: &Path, options: &Options) -> Result<Self> {
        for (file, text) in [("init.sh", INIT), ("keeper.sh", KEEPER)] {
            fs::write(state.join(file), text).at("write", state.join(file))?;
        }
        let log = state.join("log/keeper.log");
        let out = File::create(&log).at("create", &log)?;
        let err = out.try_clone().at("open", &log)?;
        let mut c = keeper(state, &options.name, "hold");
        c.env("TTL", options.ttl.as_secs().to_string())
            .env("KEEP", if options.keep { "1" } else { "0" });
        c.stdin(if options.keep {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(out)
        .stderr(err);
        let mut child = c.spawn().at("start", state.join("keeper.sh"))?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        let keeper = Process::of(pid).ok_or_else(|| Error::other("the keeper has ended at once"))?;
        let owner = Process::me().unwrap_or(keeper);
        let record = Record {
            name: options.name.clone(),
            keeper,
            owner,
            keep: options.keep,
        };
        let text = serde_json::to_string(&record).unwrap_or_default();
        fs::write(state.join("run.json"), text).at("write", state.join("run.json"))?;
        let prepared = wait_for(
            "namespaces of the node",
            PATIENCE,
            Duration::from_millis(20),
            || match init_of(state) {
                Some(init) if state.join("prepared").exists() => Ok(Ok(init)),
                Some(init) if !init.alive() => Ok(Err(Error::other("pid 1 of the node has ended"))),
                _ => Err("not prepared".to_owned()),
            },
        );
        let init = match prepared {
            Ok(Ok(init)) => init,
            Ok(Err(e)) | Err(e) => {
                let text = format!("{e}\n{}", logs(state));
                let _ = keeper.signal(Signal::TERM);
                let _ = keeper.wait_gone(PATIENCE);
                return Err(Error::other(text));
            }
        };
        let life = child.stdin.take().map(|pipe| (pipe, child));
        Ok(Self {
            name: options.name.clone(),
            state: state.to_path_buf(),
            init,
            keeper,
            life: Mutex::new(life),
        })
    }

    fn begin(&self, images: &[PathBuf], begun: Instant) -> Result<()> {
        let since = || format!("{:.1} s", begun.elapsed().as_secs_f64());
        let every = Duration::from_millis(50);
        for service in [Service::Containerd, Service::Etcd, Service::Apiserver] {
            self.start(service)?;
        }
        self.wait_api()?;
        for service in [
            Service::ControllerManager,
            Service::Scheduler,
            Service::Kubelet,
            Service::Proxy,
        ] {
            self.start(service)?;
        }
        let control_plane = since();
        let c = || self.command(["ctr", "version"]);
        wait_for("containerd", PATIENCE, every, || {
            sh::run(c()).map_err(|e| e.to_string())
        })?;
        self.import(images)?;
        let dns = DNS
            .replace("CLUSTER_DNS", addr::DNS)
            .replace("IMAGE", image::COREDNS);
        self.apply(&dns)?;
        wait_for("Node object", PATIENCE, every, || {
            self.kubectl(["get", "node", &self.name])
                .map_err(|e| e.to_string())
        })?;
        self.kubectl([
            "wait",
            "--for=condition=Ready",
            &format!("node/{}", self.name),
            "--timeout=120s",
        ])?;
        let ready = since();
        self.kubectl([
            "-n",
            "kube-system",
            "rollout",
            "status",
            "deploy/coredns",
            "--timeout=120s",
        ])?;
        say(format!(
            "node {}: control plane after {control_plane}, Ready after {ready}, DNS after {}",
            self.name,
            since()
        ));
        Ok(())
    }

    /// Waits until the API server says that it is ready.
    ///
    /// # Errors
    /// [`Error::Timeout`]; an error at once when it has ended.
    pub fn wait_api(&self) -> Result<()> {
        let ns = self.netns()?;
        let to: SocketAddr = format!("{}:6443", addr::NODE)
            .parse()
            .map_err(|_| Error::other("node address"))?;
        wait_for("API server ready", PATIENCE, Duration::from_millis(50), || {
            if !self.process(Service::Apiserver).is_some_and(|p| p.alive()) {
                return Ok(Err(Error::other("the API server has ended")));
            }
            // Cheap first: kubectl costs more than the server has to spare while it starts.
            ns.connect(to, Duration::from_secs(1))
                .map_err(|e| e.to_string())?;
            self.kubectl(["get", "--raw", "/readyz"])
                .map(Ok)
                .map_err(|e| e.to_string())
        })?
        .map(|_| ())
    }

    /// Its name, also the name of the Node object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its state folder: logs in `log/`, audit log in `log/audit.log`, certificates in `pki/`.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Its network namespace.
    ///
    /// # Errors
    /// When the node has ended.
    pub fn netns(&self) -> Result<NetNs> {
        NetNs::of(self.init.pid)
    }

    /// Whether it outlives the process that started it; then another process attends to it.
    pub fn kept(&self) -> bool {
        record(&self.state).is_some_and(|r| r.keep)
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        self.init.alive()
    }

    /// A program to be run inside the node, in the current folder, with the admin's kubeconfig.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut c = self.enter();
        // nsenter lands in the root folder of the other mount namespace.
        c.args(["sh", "-c", r#"cd "$0" 2>/dev/null || cd /; exec "$@""#]);
        c.arg(std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")));
        c.args(words);
        c
    }

    fn enter(&self) -> Command {
        let mut c = sh::command("nsenter", ["-t", &self.init.pid.to_string()]);
        c.args(["-m", "-u", "-i", "-n", "-p", "-C", "--"]);
        let path = std::env::var("PATH").unwrap_or_default();
        c.env("PATH", format!("{}:{path}", self.state.join("bin").display()))
            .env("KUBECONFIG", self.state.join("admin.kubeconfig"))
            .env("KUBECACHEDIR", self.state.join("kubecache"))
            .env("CONTAINERD_NAMESPACE", "k8s.io");
        c
    }

    /// Starts a program inside that goes on when this call returns; its output is appended to `log`.
    ///
    /// # Errors
    /// When the node has ended or the program cannot be started.
    pub fn spawn(&self, words: impl IntoIterator<Item = String>, log: &Path) -> Result<Process> {
        use std::os::unix::process::CommandExt as _;
        File::options()
            .create(true)
            .append(true)
            .open(log)
            .at("open", log)?;
        // Pid 1 of the node becomes its parent. A parent outside would stop with it (as nsenter does), not reap it
        // then, and the node could not end. On cgroup v2 it must not sit in a group outside the node's own.
        let script = r#"echo 0 2>/dev/null >/sys/fs/cgroup/init/cgroup.procs
            "$@" </dev/null >>"$0" 2>&1 & echo $!"#;
        let mut c = self.enter();
        c.args(["sh", "-c", script]).arg(log).args(words);
        // An own process group: an interrupt at the terminal is for the harness.
        c.process_group(0);
        let line = sh::shown(&c);
        let inner = sh::run(c)?.trim().parse::<i32>();
        let inner = inner.map_err(|_| Error::other(format!("no process id from {line}")))?;
        Process::inside(self.init, inner)
            .ok_or_else(|| Error::other(format!("ended at once, see {}: {line}", log.display())))
    }

    /// Runs a program inside and returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn exec<S: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Result<String> {
        sh::run(self.command(words))
    }

    /// `kubectl` as admin, inside.
    ///
    /// # Errors
    /// When it fails.
    pub fn kubectl<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let mut words = vec!["kubectl".to_owned()];
        words.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self.exec(words)
    }

    /// `kubectl apply` of YAML text.
    ///
    /// # Errors
    /// When it fails.
    pub fn apply(&self, yaml: &str) -> Result<String> {
        sh::run_with_input(
            self.command(["kubectl", "apply", "--server-side", "-f", "-"]),
            yaml,
        )
    }

    /// Loads image archives.
    ///
    /// # Errors
    /// When containerd refuses one.
    pub fn import(&self, archives: &[PathBuf]) -> Result<()> {
        for archive in archives {
            let mut c = self.command(["ctr", "images", "import", "--local"]);
            c.arg(archive.canonicalize().at("find", archive)?);
            sh::run(c)?;
        }
        Ok(())
    }

    /// The process of a service, as far as known.
    pub fn process(&self, service: Service) -> Option<Process> {
        let text = fs::read_to_string(self.state.join("pid").join(service.name())).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Starts a service that does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, service: Service) -> Result<()> {
        if service == Service::Apiserver {
            self.api_port_free()?;
        }
        let log = self.state.join("log").join(format!("{}.log", service.name()));
        let process = self.spawn(self.service(service), &log)?;
        let file = self.state.join("pid").join(service.name());
        fs::write(&file, serde_json::to_string(&process).unwrap_or_default()).at("write", &file)
    }

    /// Waits until nobody listens on the API server's port: a killed one is gone before the last of its threads is.
    fn api_port_free(&self) -> Result<()> {
        let (Ok(ns), Ok(to)) = (self.netns(), format!("{}:6443", addr::NODE).parse()) else {
            return Ok(());
        };
        let what = "the port of the API server is free";
        wait_for(
            what,
            Duration::from_secs(20),
            Duration::from_millis(20),
            || match ns.connect(to, Duration::from_millis(200)) {
                Err(_) => Ok(()),
                Ok(_) => Err("somebody listens on it".to_owned()),
            },
        )
    }

    fn started(&self, service: Service) -> Result<Process> {
        let process = self.process(service);
        process.ok_or_else(|| Error::other(format!("{} was never started", service.name())))
    }

    /// SIGTERM, and waits for the end (SIGKILL after 20 s).
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&self, service: Service) -> Result<()> {
        let Some(process) = self.process(service).filter(Process::alive) else {
            return Ok(());
        };
        let _ = process.signal(Signal::TERM);
        if process.wait_gone(Duration::from_secs(20)).is_err() {
            let _ = process.signal(Signal::KILL);
        }
        process.wait_gone(PATIENCE)
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill(&self, service: Service) -> Result<()> {
        let Some(process) = self.process(service).filter(Process::alive) else {
            return Ok(());
        };
        let _ = process.signal(Signal::KILL);
        process.wait_gone(PATIENCE)
    }

    /// Freezes a service ([`Process::freeze`]); [`Self::resume`] goes on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, service: Service) -> Result<()> {
        self.started(service)?.freeze()
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, service: Service) -> Result<()> {
        self.started(service)?.thaw()
    }

    /// Stops and starts a service; for the API server, waits until it is ready again.
    ///
    /// # Errors
    /// When it does not end or start.
    pub fn restart(&self, service: Service) -> Result<()> {
        self.stop(service)?;
        self.start(service)?;
        if service == Service::Apiserver {
            self.wait_api()
        } else {
            Ok(())
        }
    }

    /// Opens a port of this machine's 127.0.0.1 that leads to the API server, and writes a kubeconfig for it
    /// into the state folder.
    ///
    /// # Errors
    /// When the port or the file cannot be made.
    pub fn forward_api(&self, file: &str) -> Result<(Forward, PathBuf)> {
        let to: SocketAddr = format!("{}:6443", addr::NODE)
            .parse()
            .map_err(|_| Error::other("node address"))?;
        let forward = Forward::open(&self.netns()?, 0, to)?;
        let tokens = self.state.join("pki/tokens.csv");
        let text = fs::read_to_string(&tokens).at("read", &tokens)?;
        let token = text.split(',').next().unwrap_or_default();
        let server = format!("https://{}", forward.local());
        let file = self.state.join(file);
        // Renamed into place: who waits for the file must find all of it.
        let partial = file.with_extension("tmp");
        let text = kubeconfig(&server, &self.state.join("pki/ca.crt"), token);
        fs::write(&partial, text).at("write", &partial)?;
        fs::rename(&partial, &file).at("rename", &partial)?;
        Ok((forward, file))
    }

    /// A plain HTTP GET from inside the node, with a Host header of one's own.
    ///
    /// # Errors
    /// When nothing answers.
    pub fn fetch(&self, host: &str, ip: IpAddr, port: u16, path: &str) -> Result<Answer> {
        request(&self.netns()?, (ip, port), "GET", path, &[("Host", host)], &[])
    }

    /// Its audit log.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.state.join("log/audit.log"))
    }

    /// Ends the node and removes everything of it.
    ///
    /// # Errors
    /// When something stays.
    pub fn down(&self) -> Result<()> {
        let life = self.life.lock().map(|mut l| l.take()).unwrap_or_default();
        if let Some((pipe, mut child)) = life {
            drop(pipe);
            let _ = child.wait();
        } else if self.keeper.alive() {
            let _ = self.keeper.signal(Signal::TERM);
            self.keeper.wait_gone(PATIENCE)?;
        }
        if self.state.exists() {
            sh::run(keeper(&self.state, &self.name, "clean"))?;
        }
        Ok(())
    }

    /// The command line of a service.
    fn service(&self, service: Service) -> Vec<String> {
        let s = self.state.display();
        let p = format!("{s}/pki");
        let text = match service {
            Service::Containerd => format!("containerd --config {s}/containerd.toml"),
            Service::Etcd => format!(
                "etcd --data-dir {s}/etcd --listen-client-urls http://127.0.0.1:2379 \
                 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
                 --unsafe-no-fsync --logger zap --log-level warn"
            ),
            Service::Apiserver => format!(
                "kube-apiserver --etcd-servers http://127.0.0.1:2379 --secure-port 6443 --bind-address 0.0.0.0 \
                 --advertise-address {node} --tls-cert-file {p}/apiserver.crt --tls-private-key-file {p}/apiserver.key \
                 --client-ca-file {p}/ca.crt --token-auth-file {p}/tokens.csv \
                 --service-account-key-file {p}/sa.pub --service-account-signing-key-file {p}/sa.key \
                 --service-account-issuer https://kubernetes.default.svc.cluster.local \
                 --kubelet-preferred-address-types InternalIP --kubelet-certificate-authority {p}/ca.crt \
                 --kubelet-client-certificate {p}/apiserver-kubelet.crt \
                 --kubelet-client-key {p}/apiserver-kubelet.key \
                 --requestheader-client-ca-file {p}/ca.crt --requestheader-allowed-names front-proxy \
                 --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
                 --requestheader-extra-headers-prefix X-Remote-Extra- \
                 --proxy-client-cert-file {p}/front-proxy.crt --proxy-client-key-file {p}/front-proxy.key \
                 --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
                 --service-cluster-ip-range {services} --allow-privileged=true --profiling=false \
                 --audit-policy-file {s}/audit.yaml --audit-log-path {s}/log/audit.log --audit-log-maxsize 4000",
                node = addr::NODE,
                services = addr::SERVICES,
            ),
            Service::ControllerManager => format!(
                "kube-controller-manager --kubeconfig {s}/kcm.kubeconfig \
                 --authentication-kubeconfig {s}/kcm.kubeconfig --authorization-kubeconfig {s}/kcm.kubeconfig \
                 --service-account-private-key-file {p}/sa.key --use-service-account-credentials \
                 --root-ca-file {p}/ca.crt --cluster-cidr {pods} --allocate-node-cidrs --leader-elect=false \
                 --bind-address 127.0.0.1 --enable-hostpath-provisioner --kube-api-qps 300 --kube-api-burst 600 \
                 --cluster-signing-cert-file {p}/ca.crt --cluster-signing-key-file {p}/ca.key",
                pods = addr::PODS,
            ),
            Service::Scheduler => format!(
                "kube-scheduler --kubeconfig {s}/scheduler.kubeconfig \
                 --authentication-kubeconfig {s}/scheduler.kubeconfig \
                 --authorization-kubeconfig {s}/scheduler.kubeconfig --leader-elect=false --bind-address 127.0.0.1"
            ),
            Service::Kubelet => {
                return kubelet(&format!(
                    "kubelet --config {s}/kubelet.yaml --kubeconfig {s}/kubelet.kubeconfig --root-dir {s}/kubelet \
                     --hostname-override {name} --node-ip {node}",
                    name = self.name,
                    node = addr::NODE,
                ));
            }
            Service::Proxy => format!("kube-proxy --config {s}/proxy.yaml"),
        };
        text.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Only a node that lives and dies with this process; a kept one is left alone.
        if self.life.lock().is_ok_and(|l| l.is_some()) {
            let _ = self.down();
        }
    }
}

/// The kubelet insists on some kernel settings, which belong to the whole machine. It gets a mount namespace of its
/// own where the files hold what it wants to see, so it writes none.
fn kubelet(line: &str) -> Vec<String> {
    let script = r#"mount --make-rprivate /proc; mkdir -p /run/sysctl
        for kv in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
                  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
            k=${kv%=*}; f=/run/sysctl/$(echo $k | tr / .); echo ${kv#*=} >$f; mount --bind $f /proc/sys/$k
        done
        exec "$@""#;
    let mut words: Vec<String> = [
        "unshare",
        "--mount",
        "--propagation",
        "unchanged",
        "sh",
        "-c",
        script,
        "sh",
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend(line.split_whitespace().map(str::to_owned));
    words
}

fn keeper(state: &Path, name: &str, what: &str) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut c = sh::command("bash", [&state.join("keeper.sh")]);
    c.arg(what)
        .env("STATE", state)
        .env("NAME", name)
        .env("BIN", state.join("bin"))
        .env("INIT", state.join("init.sh"))
        .env("NODE_IP", addr::NODE)
        .env("NODE_GATEWAY", addr::GATEWAY)
        .env("CLUSTER_DNS", addr::DNS)
        .env("POD_CIDR", addr::NODE_PODS)
        .env(
            "CGROUP",
            if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
                "2"
            } else {
                "1"
            },
        )
        .process_group(0);
    c
}

fn record(state: &Path) -> Option<Record> {
    serde_json::from_str(&fs::read_to_string(state.join("run.json")).ok()?).ok()
}

fn init_of(state: &Path) -> Option<Process> {
    let text = fs::read_to_string(state.join("init.pid")).ok()?;
    let (pid, start) = text.trim().split_once(' ')?;
    Some(Process {
        pid: pid.parse().ok()?,
        start: start.parse().ok()?,
    })
}

/// Removes the nodes whose owner has ended (unless they are to be kept) and the rests of ended ones.
///
/// # Errors
/// When something stays.
pub fn clean_stale() -> Result<()> {
    let Ok(entries) = fs::read_dir(state_root()) else {
        return Ok(());
    };
    for state in entries.flatten().map(|e| e.path()) {
        let name = state
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (keeper_alive, wanted) = match record(&state) {
            Some(r) => (r.keeper.alive().then_some(r.keeper), r.keep || r.owner.alive()),
            // Just being made, or a rest from before the keeper; only an old one is a rest.
            None => (None, recent(&state)),
        };
        let init_alive = init_of(&state).is_some_and(|i| i.alive());
        match (keeper_alive, wanted) {
            (Some(_), true) => {}
            (Some(keeper), false) => keeper.wait_gone(PATIENCE)?,
            (None, true) if init_alive || record(&state).is_none() => {}
            (None, _) => {
                say(format!("removing what is left of node {name}"));
                fs::write(state.join("keeper.sh"), KEEPER).at("write", &state)?;
                sh::run(keeper(&state, &name, "clean"))?;
            }
        }
    }
    Ok(())
}

fn recent(path: &Path) -> bool {
    let age = path
        .metadata()
        .and_then(|m| m.modified())
        .ok()
        .and_then(|t| t.elapsed().ok());
    age.is_some_and(|a| a < Duration::from_secs(60))
}

/// The end of every log.
fn logs(state: &Path) -> String {
    let Ok(entries) = fs::read_dir(state.join("log")) else {
        return String::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.sort();
    files
        .iter()
        .filter(|f| f.file_name().is_some_and(|n| n != "audit.log"))
        .filter_map(|f| {
            let text = fs::read_to_string(f).ok().filter(|t| !t.trim().is_empty())?;
            Some(format!(
                "== {}\n{}",
                f.file_name()?.to_string_lossy(),
                sh::tail(&text, 5)
            ))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn configs(state: &Path, name: &str) -> Result<()> {
    let s = state.display();
    let put = |file: &str, text: String| fs::write(state.join(file), text).at("write", state.join(file));
    put(
        "audit.yaml",
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
         - {level: None, nonResourceURLs: [/readyz*, /livez*, /healthz*]}\n- {level: Metadata}\n"
            .to_owned(),
    )?;
    put(
        "containerd.toml",
        format!(
            "version = 4\nroot = '{s}/containerd'\nstate = '/run/containerd'\n\
             disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.internal.v1.tracing', \
             'io.containerd.tracing.processor.v1.otlp']\n\
             [plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = '{pause}'\n\
             [plugins.'io.containerd.cri.v1.runtime']\n  restrict_oom_score_adj = true\n\
             [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
             runtime_type = 'io.containerd.runc.v2'\n\
             [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
             BinaryName = '{s}/bin/runc'\n  SystemdCgroup = false\n",
            pause = image::PAUSE,
        ),
    )?;
    put(
        "kubelet.yaml",
        format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             failCgroupV1: false\ncgroupDriver: cgroupfs\ncgroupRoot: /{name}\n\
             containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\nfailSwapOn: false\n\
             address: 0.0.0.0\ntlsCertFile: {s}/pki/kubelet.crt\ntlsPrivateKeyFile: {s}/pki/kubelet.key\n\
             authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, \
             x509: {{clientCAFile: {s}/pki/ca.crt}}}}\n\
             authorization: {{mode: Webhook}}\nclusterDNS: [{dns}]\nclusterDomain: cluster.local\n\
             resolvConf: /run/resolv.conf\nenforceNodeAllocatable: [pods]\n\
             evictionHard: {{memory.available: \"0%\", nodefs.available: \"0%\", nodefs.inodesFree: \"0%\", \
             imagefs.available: \"0%\", imagefs.inodesFree: \"0%\"}}\n\
             imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n\
             nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 1m\nsyncFrequency: 10s\nmaxPods: 110\n\
             serializeImagePulls: false\nrotateCertificates: false\nshutdownGracePeriod: 0s\nregisterNode: true\n\
             logging: {{verbosity: 2}}\n",
            dns = addr::DNS,
        ),
    )?;
    put(
        "proxy.yaml",
        format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n\
             clientConnection: {{kubeconfig: {s}/proxy.kubeconfig}}\nclusterCIDR: {pods}\n\
             hostnameOverride: {name}\n\
             conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}\n\
             nftables: {{minSyncPeriod: 100ms, syncPeriod: 30s}}\n",
            pods = addr::PODS,
        ),
    )
}
