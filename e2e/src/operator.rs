//! The operator under test, from its chart: as a Pod, or as a process inside the node's namespaces for what needs
//! signals. Rights, flags and environment are the chart's in both. What it should do is the scenarios' business.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, blocking, repository};
use crate::error::{Error, IoContext, Result};
use crate::sh::{self, Process, say};
use crate::tools::PATIENCE;
use crate::{image, wait};

/// Release name, and so the name of the Deployment and the service account.
pub const RELEASE: &str = "routewright";

/// The chart's folder.
pub fn chart() -> PathBuf {
    repository().join("charts/routewright")
}

/// The operator's binary: `ROUTEWRIGHT_BINARY`, else built by Cargo ([`built`]).
///
/// # Errors
/// When the build fails.
pub fn binary() -> Result<PathBuf> {
    built("ROUTEWRIGHT_BINARY", "routewright", "routewright")
}

/// A program of the workspace: the one that the environment variable names, else built by Cargo: in the `dev` profile,
/// whose dependencies the tests have built already, or the one that `E2E_PROFILE` names; figures want `release`.
///
/// # Errors
/// When the build fails.
pub fn built(variable: &str, package: &str, program: &str) -> Result<PathBuf> {
    let var = |name| std::env::var(name).ok().filter(|v: &String| !v.is_empty());
    if let Some(path) = var(variable).map(PathBuf::from) {
        return path.canonicalize().at("find", &path);
    }
    let profile = var("E2E_PROFILE").unwrap_or_else(|| "dev".to_owned());
    say(format!("building {program} (cargo build --profile {profile})"));
    let mut c = sh::command(
        "cargo",
        ["build", "--profile", &profile, "-p", package, "--bin", program],
    );
    c.args(["--message-format", "json-render-diagnostics"])
        .current_dir(repository());
    let text = sh::run(c)?;
    let artifact = text
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .filter_map(|v| v.get("executable")?.as_str().map(PathBuf::from))
        .find(|p| p.file_name().is_some_and(|n| n == program));
    artifact.ok_or_else(|| Error::other(format!("cargo built no program named {program}")))
}

/// A running operator with a namespace of its own.
#[derive(Debug)]
pub struct Operator {
    cluster: &'static Cluster,
    namespace: Namespace<'static>,
    how: How,
}

#[derive(Debug)]
enum How {
    Pod,
    Process(Running),
}

#[derive(Debug)]
struct Running {
    process: Process,
    start: Start,
}

/// Everything needed to start the process again.
#[derive(Debug, Clone)]
struct Start {
    binary: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    kubeconfig: PathBuf,
    log: PathBuf,
    metrics: u16,
    probes: u16,
}

impl Operator {
    /// Installs the chart with `values` by Helm and waits until its Pods are ready. The product's CRDs are there
    /// before; the namespace enforces the restricted Pod security standard.
    ///
    /// # Errors
    /// When the image cannot be made, Helm refuses, or the Pods do not get ready.
    pub async fn pod(cluster: &'static Cluster, values: Value) -> Result<Self> {
        let namespace = own_namespace(cluster).await?;
        cluster.product_crds().await?;
        let name = namespace.name().to_owned();
        blocking(move || {
            let archive = cluster.scratch().join("operator.tar");
            if !archive.exists() {
                image::of_operator(&binary()?, image::OPERATOR, &archive)?;
            }
            cluster.load(&archive)
        })
        .await?;
        let operator = Self {
            cluster,
            namespace,
            how: How::Pod,
        };
        operator
            .upgrade(values)
            .await
            .map_err(|e| Error::other(format!("operator in {name}: {e}")))?;
        Ok(operator)
    }

    /// `helm upgrade --install` with `values` over the defaults of tests; waits for the rollout.
    ///
    /// # Errors
    /// As [`Self::pod`]; on an operator that runs as a process.
    pub async fn upgrade(&self, values: Value) -> Result<()> {
        if !matches!(self.how, How::Pod) {
            return Err(Error::other("a process has no release to upgrade"));
        }
        let file = write_values(self.cluster, self.ns(), &values)?;
        let (cluster, ns) = (self.cluster, self.ns().to_owned());
        blocking(move || {
            let mut c = cluster.helm_command(["upgrade", "--install", RELEASE])?;
            c.arg(chart())
                .args(["-n", &ns, "--wait", "--timeout", "300s", "-f"])
                .arg(&file);
            sh::run(c).map(|_| ()).map_err(|e| {
                let pods = cluster
                    .kubectl(["-n", &ns, "get", "pods", "-o", "wide"])
                    .unwrap_or_default();
                let events = cluster.kubectl(["-n", &ns, "get", "events"]).unwrap_or_default();
                let logs = cluster.kubectl(["-n", &ns, "logs", &format!("deploy/{RELEASE}"), "--tail=20"]);
                Error::other(format!(
                    "{e}\n{pods}\n{}\n{}",
                    sh::tail(&events, 8),
                    logs.unwrap_or_default()
                ))
            })
        })
        .await
    }

    /// Renders the chart with `values`, applies everything but the Deployment, and runs the Deployment's command line
    /// inside the node under the chart's service account; waits until it is ready.
    ///
    /// # Errors
    /// [`Error::Missing`] on a cluster that is not a node of ours; when it does not get ready.
    pub async fn process(cluster: &'static Cluster, values: Value) -> Result<Self> {
        let operator = Self::process_unready(cluster, values).await?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Like [`Self::process`], without waiting: for what must not get ready.
    ///
    /// # Errors
    /// As [`Self::process`], but for readiness.
    pub async fn process_unready(cluster: &'static Cluster, values: Value) -> Result<Self> {
        cluster.own_node()?;
        let namespace = own_namespace(cluster).await?;
        cluster.product_crds().await?;
        let binary = blocking(binary).await?;
        let start = render(cluster, namespace.name(), &values, binary).await?;
        let process = run(cluster, &start, namespace.name())?;
        Ok(Self {
            cluster,
            namespace,
            how: How::Process(Running { process, start }),
        })
    }

    /// A second process of the same release, e.g. to race for the lease. It shares the namespace by name only: it
    /// must end before the first.
    ///
    /// # Errors
    /// When this operator is no process.
    pub fn sibling(&self) -> Result<Sibling> {
        let mut start = self.running()?.start.clone();
        let n = NEXT_PORT.load(Ordering::Relaxed);
        start.log = start.log.with_file_name(format!("{}-sibling-{n}.log", self.ns()));
        start.place_ports();
        start.env.insert("POD_NAME".to_owned(), format!("{RELEASE}-{n}"));
        let process = run(self.cluster, &start, self.ns())?;
        Ok(Sibling {
            cluster: self.cluster,
            running: Running { process, start },
        })
    }

    /// Its namespace.
    pub fn ns(&self) -> &str {
        self.namespace.name()
    }

    /// The user name of its service account, as the audit log has it.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{RELEASE}", self.ns())
    }

    fn running(&self) -> Result<&Running> {
        match &self.how {
            How::Process(running) => Ok(running),
            How::Pod => Err(Error::other(
                "this operator runs as a Pod: signals need Operator::process",
            )),
        }
    }

    /// Waits until /readyz says so.
    ///
    /// # Errors
    /// When it does not in time, or the process has ended; with the end of its log.
    pub async fn ready(&self) -> Result<()> {
        match &self.how {
            How::Pod => {
                self.cluster
                    .rollout(self.ns(), &format!("deploy/{RELEASE}"))
                    .await
            }
            How::Process(running) => running.ready(self.cluster).await,
        }
    }

    /// The text of /metrics. Of the first Pod that stays, when it runs as Pods.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        let (ip, port) = match &self.how {
            How::Process(running) => (LOCALHOST, running.start.metrics),
            How::Pod => (self.pod_ip().await?, 8080),
        };
        get(self.cluster, ip, port, "/metrics").await
    }

    /// The text of a path of the probe port, e.g. `/readyz?verbose`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn probe(&self, path: &str) -> Result<String> {
        let (ip, port) = match &self.how {
            How::Process(running) => (LOCALHOST, running.start.probes),
            How::Pod => (self.pod_ip().await?, 8081),
        };
        get(self.cluster, ip, port, path).await
    }

    /// The Pods that stay, by name, with their addresses.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn pods(&self) -> Result<BTreeMap<String, IpAddr>> {
        let api: Api<Pod> = Api::namespaced(self.cluster.client().await?, self.ns());
        let label = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
        let pods = api.list(&label).await?;
        // A Pod on its way out still answers.
        let stays = pods
            .items
            .iter()
            .filter(|p| p.metadata.deletion_timestamp.is_none());
        let addressed = stays.filter_map(|p| {
            let ip = p.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
            Some((p.metadata.name.clone()?, ip))
        });
        Ok(addressed.collect())
    }

    async fn pod_ip(&self) -> Result<IpAddr> {
        let ip = self.pods().await?.into_values().next();
        ip.ok_or_else(|| Error::other(format!("no operator Pod with an address in {}", self.ns())))
    }

    /// The text of a path of the probe port of one Pod.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn probe_pod(&self, ip: IpAddr, path: &str) -> Result<String> {
        get(self.cluster, ip, 8081, path).await
    }

    /// The process of a Pod, for signals. It is seen from here because the node is made of namespaces only.
    ///
    /// # Errors
    /// When there is none.
    pub fn process_of_pod(&self, pod: &str) -> Result<Process> {
        let wanted = format!("POD_NAME={pod}");
        let folder = Path::new("/proc");
        let is_it = |pid: i32| {
            let file = |name: &str| fs::read(folder.join(pid.to_string()).join(name)).unwrap_or_default();
            file("comm") == b"routewright\n"
                && file("environ").split(|b| *b == 0).any(|v| v == wanted.as_bytes())
        };
        let pids = fs::read_dir(folder).at("read", folder)?.flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let found = pids.into_iter().find(|pid| is_it(*pid)).and_then(Process::of);
        found.ok_or_else(|| Error::other(format!("no process of Pod {pod}")))
    }

    /// Everything that it has logged.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn logs(&self) -> Result<String> {
        match &self.how {
            How::Process(running) => running.logs(),
            How::Pod => {
                let deployment = format!("deploy/{RELEASE}");
                self.cluster
                    .kubectl(["-n", self.ns(), "logs", &deployment, "--all-pods", "--tail=-1"])
            }
        }
    }

    /// The process.
    ///
    /// # Errors
    /// On an operator that runs as a Pod.
    pub fn pid(&self) -> Result<Process> {
        Ok(self.running()?.process)
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// When it is no process or has ended.
    pub fn kill(&self) -> Result<()> {
        self.running()?.end(Signal::KILL)
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When it is no process or does not end.
    pub fn terminate(&self) -> Result<()> {
        self.running()?.end(Signal::TERM)
    }

    /// Freezes it ([`Process::freeze`]); [`Self::resume`] goes on.
    ///
    /// # Errors
    /// When it is no process or has ended.
    pub fn pause(&self) -> Result<()> {
        self.running()?.process.freeze()
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Errors
    /// When it is no process or has ended.
    pub fn resume(&self) -> Result<()> {
        self.running()?.process.thaw()
    }

    /// Starts the process again after its end, with the same command line.
    ///
    /// # Errors
    /// When it is no process or still runs.
    pub fn restart(&mut self) -> Result<()> {
        let (cluster, ns) = (self.cluster, self.ns().to_owned());
        match &mut self.how {
            How::Process(running) if !running.process.alive() => {
                running.process = run(cluster, &running.start, &ns)?;
                Ok(())
            }
            How::Process(_) => Err(Error::other("the operator still runs")),
            How::Pod => Err(Error::other("a Pod is restarted by Kubernetes")),
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        match &self.how {
            How::Process(running) => {
                let _ = running.process.thaw();
                let _ = running.end(Signal::KILL);
            }
            How::Pod => {
                // A failed scenario drops its operator before its evidence is collected.
                let log = self.cluster.scratch().join(format!("{}.log", self.ns()));
                let _ = fs::write(log, self.logs().unwrap_or_default());
            }
        }
        // Cluster-scoped rights would stay behind when only the namespace went.
        let name = format!("{RELEASE}.{}", self.ns());
        for kind in ["clusterrolebinding", "clusterrole"] {
            let _ = self
                .cluster
                .kubectl(["delete", kind, &name, "--ignore-not-found", "--wait=false"]);
        }
    }
}

/// A second process of a release.
#[derive(Debug)]
pub struct Sibling {
    cluster: &'static Cluster,
    running: Running,
}

impl Sibling {
    /// Waits until /readyz says so.
    ///
    /// # Errors
    /// As [`Operator::ready`].
    pub async fn ready(&self) -> Result<()> {
        self.running.ready(self.cluster).await
    }

    /// The text of a path of the probe port.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn probe(&self, path: &str) -> Result<String> {
        get(self.cluster, LOCALHOST, self.running.start.probes, path).await
    }

    /// The text of /metrics.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        get(self.cluster, LOCALHOST, self.running.start.metrics, "/metrics").await
    }

    /// The process.
    pub fn pid(&self) -> Process {
        self.running.process
    }

    /// Everything that it has logged.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn logs(&self) -> Result<String> {
        self.running.logs()
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        let _ = self.running.end(Signal::KILL);
    }
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Processes share the node's network namespace, so each gets ports of its own.
static NEXT_PORT: AtomicU16 = AtomicU16::new(21_000);

impl Start {
    fn place_ports(&mut self) {
        self.metrics = NEXT_PORT.fetch_add(2, Ordering::Relaxed);
        self.probes = self.metrics + 1;
        self.env
            .insert("METRICS_ADDR".to_owned(), format!("127.0.0.1:{}", self.metrics));
        self.env
            .insert("PROBE_ADDR".to_owned(), format!("127.0.0.1:{}", self.probes));
    }
}

impl Running {
    fn logs(&self) -> Result<String> {
        fs::read_to_string(&self.start.log).at("read", &self.start.log)
    }

    fn end(&self, signal: Signal) -> Result<()> {
        self.process.end(signal, Duration::from_secs(40))
    }

    async fn ready(&self, cluster: &'static Cluster) -> Result<()> {
        let waited = wait::eventually("operator ready", PATIENCE, || async {
            if !self.process.alive() {
                return Ok(Err(Error::other("the operator has ended")));
            }
            let answer = cluster
                .fetch("localhost", LOCALHOST, self.start.probes, "/readyz")
                .await;
            match answer {
                Ok(a) if a.status == 200 => Ok(Ok(())),
                Ok(a) => Err(format!("/readyz: {} {}", a.status, a.text())),
                Err(e) => Err(e.to_string()),
            }
        });
        waited.await.and_then(|inner| inner).map_err(|e| {
            Error::other(format!(
                "{e}\nits log:\n{}",
                sh::tail(&self.logs().unwrap_or_default(), 25)
            ))
        })
    }
}

async fn get(cluster: &'static Cluster, ip: IpAddr, port: u16, path: &str) -> Result<String> {
    Ok(cluster.fetch("localhost", ip, port, path).await?.text())
}

async fn own_namespace(cluster: &'static Cluster) -> Result<Namespace<'static>> {
    let namespace = cluster.namespace("operator").await?;
    let label = "pod-security.kubernetes.io/enforce=restricted";
    cluster.kubectl(["label", "namespace", namespace.name(), label])?;
    Ok(namespace)
}

/// The values of a test over what every test wants.
fn write_values(cluster: &Cluster, ns: &str, values: &Value) -> Result<PathBuf> {
    let (repository, tag) = image::OPERATOR
        .rsplit_once(':')
        .unwrap_or((image::OPERATOR, "dev"));
    let mut all = json!({
        "fullnameOverride": RELEASE,
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "crds": {"garage": {"enabled": false}},
        // Objects that it would refuse are what some scenarios are about.
        "admissionPolicy": {"enabled": false},
        "logLevel": "debug",
    });
    merge(&mut all, values);
    let file = cluster.scratch().join(format!("{ns}-values.json"));
    fs::write(&file, all.to_string()).at("write", &file)?;
    Ok(file)
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Renders the chart, applies all but the Deployment and turns that into a command line.
async fn render(cluster: &'static Cluster, ns: &str, values: &Value, binary: PathBuf) -> Result<Start> {
    let file = write_values(cluster, ns, values)?;
    let mut c = cluster.helm_command(["template", RELEASE])?;
    // What runs on uninstall is not what runs.
    c.arg(chart()).args(["-n", ns, "--no-hooks", "-f"]).arg(&file);
    let rendered = blocking(move || sh::run(c)).await?;
    let (deployment, rest) = split(&rendered)?;
    let rest_text = rest.join("\n---\n");
    blocking(move || cluster.apply(&rest_text)).await?;
    in_force(cluster, ns, &rest).await?;
    let (args, env) = command_line(&deployment, ns)?;
    let kubeconfig = cluster.kubeconfig_as(ns, RELEASE).await?;
    let log = cluster.own_node()?.state().join("log").join(format!("{ns}.log"));
    let mut start = Start {
        binary,
        args,
        env,
        kubeconfig,
        log,
        metrics: 0,
        probes: 0,
    };
    start.place_ports();
    Ok(start)
}

/// The Deployment of a rendered chart, and the texts of the other objects.
fn split(rendered: &str) -> Result<(Deployment, Vec<String>)> {
    let (mut deployment, mut rest) = (None, Vec::new());
    for text in rendered.split("\n---\n").map(|t| t.trim_start_matches("---\n")) {
        if text.lines().any(|l| l == "kind: Deployment") {
            let parsed = serde_saphyr::from_str::<Deployment>(text);
            deployment = Some(parsed.map_err(|e| Error::other(format!("the chart's Deployment: {e}")))?);
        } else if text.lines().any(|l| l.starts_with("kind:")) {
            rest.push(text.to_owned());
        }
    }
    let deployment = deployment.ok_or_else(|| Error::other("the chart renders no Deployment"))?;
    Ok((deployment, rest))
}

/// Waits until the API server grants what these objects say: it hears of its own rules through a watch, and a process is
/// there sooner than a Pod. One right of each binding is asked for, since a role becomes known as a whole.
async fn in_force(cluster: &'static Cluster, ns: &str, objects: &[String]) -> Result<()> {
    let parsed = objects.iter().map(|text| serde_saphyr::from_str::<Value>(text));
    let parsed = parsed.collect::<std::result::Result<Vec<_>, _>>();
    let asked = asked(
        ns,
        &parsed.map_err(|e| Error::other(format!("the chart's objects: {e}")))?,
    );
    let api: Api<SubjectAccessReview> = Api::all(cluster.client().await?);
    wait::eventually("the rights of the release are in force", PATIENCE, || async {
        for review in &asked {
            let answer = api.create(&PostParams::default(), review).await;
            let status = answer.map_err(|e| e.to_string())?.status;
            if !status.is_some_and(|status| status.allowed) {
                return Err(format!("{:?}", review.spec.resource_attributes));
            }
        }
        Ok(())
    })
    .await
}

/// For each binding of the release's account a question about one right that its role gives.
fn asked(ns: &str, objects: &[Value]) -> Vec<SubjectAccessReview> {
    let text = |value: &Value, pointer: &str| {
        let found = value.pointer(pointer).and_then(Value::as_str);
        found.map(str::to_owned).unwrap_or_default()
    };
    let bindings = objects
        .iter()
        .filter(|o| matches!(text(o, "/kind").as_str(), "RoleBinding" | "ClusterRoleBinding"))
        .filter(|o| text(o, "/subjects/0/name") == RELEASE);
    let questions = bindings.filter_map(|binding| {
        let namespace = text(binding, "/metadata/namespace");
        let role = objects.iter().find(|role| {
            text(role, "/kind") == text(binding, "/roleRef/kind")
                && text(role, "/metadata/name") == text(binding, "/roleRef/name")
                && text(role, "/metadata/namespace") == namespace
        })?;
        let rule = role.pointer("/rules/0")?;
        let whole = text(rule, "/resources/0");
        let (resource, subresource) = whole.split_once('/').unwrap_or((&whole, ""));
        let attributes = ResourceAttributes {
            namespace: Some(namespace),
            verb: Some(text(rule, "/verbs/0")),
            group: Some(text(rule, "/apiGroups/0")),
            resource: Some(resource.to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(text(rule, "/resourceNames/0")),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{ns}:{RELEASE}")),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        Some(SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        })
    });
    questions.collect()
}

type CommandLine = (Vec<String>, BTreeMap<String, String>);

/// Arguments and environment of the only container, with the downward API answered as a kubelet would.
fn command_line(deployment: &Deployment, ns: &str) -> Result<CommandLine> {
    let pod = deployment.spec.as_ref().and_then(|s| s.template.spec.as_ref());
    let Some([container]) = pod.map(|p| p.containers.as_slice()) else {
        return Err(Error::other("the chart's Deployment must have one container"));
    };
    let mut env = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let field = variable.value_from.as_ref().and_then(|v| v.field_ref.as_ref());
        let value = match (field.map(|f| f.field_path.as_str()), &variable.value) {
            (Some("metadata.name"), _) => format!("{RELEASE}-0"),
            (Some("metadata.namespace"), _) => ns.to_owned(),
            (Some("status.podIP"), _) => LOCALHOST.to_string(),
            (Some(other), _) => {
                return Err(Error::other(format!(
                    "environment variable from field {other}: unknown to tests"
                )));
            }
            (None, Some(value)) => value.clone(),
            (None, None) => String::new(),
        };
        env.insert(variable.name.clone(), value);
    }
    let args = [&container.command, &container.args]
        .into_iter()
        .flatten()
        .flatten()
        .cloned()
        .collect();
    Ok((args, env))
}

fn run(cluster: &Cluster, start: &Start, ns: &str) -> Result<Process> {
    let node = cluster.own_node()?;
    // A clean environment, as in a Pod: nothing of the developer's machine may decide what the operator does.
    let mut words = vec!["env".to_owned(), "-i".to_owned()];
    words.extend(start.env.iter().map(|(k, v)| format!("{k}={v}")));
    words.push(format!("KUBECONFIG={}", start.kubeconfig.display()));
    words.push(start.binary.display().to_string());
    words.extend(start.args.iter().cloned());
    node.spawn(words, &start.log)
        .map_err(|e| Error::other(format!("operator process in {ns}: {e}")))
}

/// Compares the chart's copies of the CRDs with what the types generate.
///
/// # Errors
/// Names the file that differs and the command that copies it.
pub fn check_chart_crds() -> Result<()> {
    let (from, to) = (repository().join("crds/yaml"), chart().join("files/crds"));
    let names = |folder: &Path| -> Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).at("read", folder)?.flatten() {
            let text = fs::read(entry.path()).at("read", entry.path())?;
            files.insert(entry.file_name().to_string_lossy().into_owned(), text);
        }
        Ok(files)
    };
    let (from, to) = (names(&from)?, names(&to)?);
    let differs = from.keys().chain(to.keys()).find(|k| from.get(*k) != to.get(*k));
    match differs {
        None => Ok(()),
        Some(file) => Err(Error::other(format!(
            "charts/routewright/files/crds/{file} is not crds/yaml/{file}: \
             rm charts/routewright/files/crds/*; cp crds/yaml/*.yaml charts/routewright/files/crds/"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_carries_the_generated_crds() {
        check_chart_crds().unwrap();
    }

    #[test]
    fn a_rendered_deployment_becomes_a_command_line() {
        let rendered = "---\n# Source: a\nkind: ServiceAccount\nmetadata: {name: x}\n---\napiVersion: apps/v1\n\
            kind: Deployment\nspec:\n  selector: {}\n  template:\n    spec:\n      containers:\n      - name: a\n        \
            args: [run, --x]\n        env:\n        - {name: A, value: \"b\"}\n        \
            - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}\n";
        let (deployment, rest) = split(rendered).unwrap();
        assert_eq!(rest.len(), 1);
        let (args, env) = command_line(&deployment, "ns1").unwrap();
        assert_eq!(args, ["run", "--x"]);
        assert_eq!(
            env.into_iter().collect::<Vec<_>>(),
            [
                ("A".to_owned(), "b".to_owned()),
                ("NS".to_owned(), "ns1".to_owned())
            ]
        );
    }

    #[test]
    fn each_binding_of_the_account_is_asked_for_by_a_right_of_its_role() {
        let object = |kind: &str, namespace: &str, more: Value| {
            let mut object = json!({"kind": kind, "metadata": {"name": "rw", "namespace": namespace}});
            merge(&mut object, &more);
            object
        };
        let rules = |resource: &str| json!({"rules": [{"apiGroups": ["g"], "resources": [resource], "verbs": ["list"]}]});
        let binds = |kind: &str| json!({"roleRef": {"kind": kind, "name": "rw"}, "subjects": [{"kind": "ServiceAccount", "name": RELEASE}]});
        // Given a role in each of two namespaces, a wide one, and a binding of somebody else's
        let mut other = object("ClusterRoleBinding", "", binds("ClusterRole"));
        other["subjects"][0]["name"] = json!("another");
        let objects = [
            object("Role", "a", rules("things")),
            object("Role", "b", rules("things/status")),
            object("ClusterRole", "", rules("wide")),
            object("RoleBinding", "a", binds("Role")),
            object("RoleBinding", "b", binds("Role")),
            object("ClusterRoleBinding", "", binds("ClusterRole")),
            other,
        ];
        // Then each binding is one question
        let found: Vec<_> = asked("ns1", &objects)
            .into_iter()
            .map(|review| {
                assert_eq!(
                    review.spec.user.as_deref(),
                    Some("system:serviceaccount:ns1:routewright")
                );
                let asked = review.spec.resource_attributes.unwrap();
                (
                    asked.namespace.unwrap(),
                    asked.resource.unwrap(),
                    asked.subresource.unwrap(),
                )
            })
            .collect();
        let wanted = [("a", "things", ""), ("b", "things", "status"), ("", "wide", "")];
        assert_eq!(
            found,
            wanted.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()))
        );
    }

    #[test]
    fn values_of_a_test_win_over_the_defaults() {
        let mut all = json!({"image": {"tag": "dev", "pullPolicy": "Never"}});
        merge(
            &mut all,
            &json!({"image": {"tag": "x"}, "ingress": {"enabled": true}}),
        );
        assert_eq!(
            all,
            json!({"image": {"tag": "x", "pullPolicy": "Never"}, "ingress": {"enabled": true}})
        );
    }
}
