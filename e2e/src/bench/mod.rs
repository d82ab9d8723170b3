//! `cargo bench-local`: the operator against raw API-server writes of the same objects, on one node, in one run. Figures
//! are written down (JSON, table, picture) and never asserted.

pub mod tyk;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{Cluster, repository};
use crate::error::{Error, IoContext, Result};
use crate::operator::Operator;
use crate::sh::{self, Process, say};
use crate::wait;

/// Writes in flight at once: what the operator has by default, and so the raw writer.
const CONCURRENCY: usize = 16;
/// Writes in flight while objects are prepared; not measured.
const PREPARING: usize = 32;
/// Nothing written for so long: done.
const QUIET: Duration = Duration::from_secs(4);
/// The longest that one measurement may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Ticks per second of /proc/PID/stat; the same on every Linux of today.
const TICKS: f64 = 100.0;
const CLASS: &str = "bench";

/// Figures of one size.
#[derive(Debug, Clone, Serialize)]
struct Figures {
    /// Buckets, and so children.
    buckets: usize,
    /// From the cluster's status to the last write of the operator.
    operator_seconds: f64,
    operator_writes: usize,
    /// The same objects by a loop of server-side applies with as many requests in flight.
    raw_seconds: f64,
    raw_writes: usize,
    /// Time per write, operator over raw.
    ratio: f64,
    /// Requests of the operator in that time, by `verb resource code`.
    requests: BTreeMap<String, usize>,
    /// Resident memory after it, MiB.
    rss_mib: f64,
    peak_rss_mib: f64,
    /// From the start of the process to all controllers running, everything being as wanted.
    cold_start_seconds: f64,
    /// Writes of that start without Lease and Events.
    cold_start_writes: usize,
    /// CPU seconds in the minute after it.
    idle_cpu_seconds: f64,
    /// Requests in that minute, by `verb resource code`.
    idle_requests: BTreeMap<String, usize>,
}

/// Runs the benchmark for each size and writes the results; returns their folder.
///
/// # Errors
/// When something does not run; never for a figure.
pub async fn run(cluster: &'static Cluster, sizes: &[usize]) -> Result<PathBuf> {
    let folder = folder()?;
    cluster.product_crds().await?;
    cluster.apply(
        &json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": CLASS},
            "spec": {"controller": "example.test/none"},
        })
        .to_string(),
    )?;
    let mut all = Vec::new();
    for size in sizes {
        all.push(measure(cluster, *size).await?);
        write(&folder, &all)?;
    }
    Ok(folder)
}

async fn measure(cluster: &'static Cluster, size: usize) -> Result<Figures> {
    let (bench, raw) = (format!("bench-{size}"), format!("raw-{size}"));
    say(format!("{size} buckets: preparing two namespaces"));
    let client = cluster.client().await?;
    for ns in [&bench, &raw] {
        prepare(cluster, &client, ns, size).await?;
    }
    say(format!("{size} buckets: the operator, waiting for its cluster"));
    let values = json!({
        "ingress": {"enabled": true}, "watchNamespaces": [bench], "logLevel": "info",
        "concurrency": CONCURRENCY,
    });
    let mut log = Tail::new(cluster)?;
    let mut operator = Operator::process(cluster, values).await?;
    let user = operator.user();
    // Every bucket says first that its cluster is not there.
    log.until_quiet(&user, 1).await?;

    say(format!("{size} buckets: the cluster runs"));
    log.forget();
    let begun = Timestamp::now();
    running(&client, &bench).await?;
    let seen = log.until_quiet(&user, 2 * size).await?;
    let operator_seconds = seen.since(begun);
    let (operator_writes, requests) = (seen.writes, seen.requests.clone());
    let process = operator.pid()?;
    let rss_mib = memory(process, "VmRSS:")?;
    let peak_rss_mib = memory(process, "VmHWM:")?;
    let template = Template::of(&client, &bench).await?;

    say(format!(
        "{size} buckets: cold start with nothing to do, and an idle minute"
    ));
    operator.terminate()?;
    log.until_quiet(&user, 0).await?;
    log.forget();
    let started = Instant::now();
    operator.restart()?;
    wait::eventually("the controller running", LIMIT, || async {
        let text = operator
            .probe("/readyz?verbose")
            .await
            .map_err(|e| e.to_string())?;
        let running = text.contains("controller ingress-exposure: Running") && text.contains("readyz: ok");
        if running { Ok(()) } else { Err(text) }
    })
    .await?;
    let cold_start_seconds = started.elapsed().as_secs_f64();
    let cold_start_writes = log.until_quiet(&user, 0).await?.writes;
    let process = operator.pid()?;
    log.forget();
    let before = cpu(process)?;
    // The minute is the measurement.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let idle_cpu_seconds = cpu(process)? - before;
    let idle_requests = log.read(&user)?.requests.clone();
    operator.terminate()?;

    say(format!("{size} buckets: the same objects by raw writes"));
    let (raw_seconds, raw_writes) = raw_writes(cluster, &raw, size, &template, &mut log).await?;
    let per = |seconds: f64, writes: usize| seconds / f64::from(u32::try_from(writes.max(1)).unwrap_or(1));
    let ratio = per(operator_seconds, operator_writes) / per(raw_seconds, raw_writes);
    Ok(Figures {
        buckets: size,
        operator_seconds,
        operator_writes,
        raw_seconds,
        raw_writes,
        ratio,
        requests,
        rss_mib,
        peak_rss_mib,
        cold_start_seconds,
        cold_start_writes,
        idle_cpu_seconds,
        idle_requests,
    })
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn buckets(client: &kube::Client, ns: &str) -> Api<DynamicObject> {
    let kind = kind("garage.rajsingh.info", "v1beta1", "GarageBucket", "garagebuckets");
    Api::namespaced_with(client.clone(), ns, &kind)
}

fn ingresses(client: &kube::Client, ns: &str) -> Api<DynamicObject> {
    let kind = kind("networking.k8s.io", "v1", "Ingress", "ingresses");
    Api::namespaced_with(client.clone(), ns, &kind)
}

fn object(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).map_err(|e| Error::other(format!("an object of the benchmark: {e}")))
}

fn name(n: usize) -> String {
    format!("bucket-{n:05}")
}

/// A namespace with a cluster that does not run yet and buckets as another operator would leave them.
async fn prepare(cluster: &'static Cluster, client: &kube::Client, ns: &str, size: usize) -> Result<()> {
    cluster.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}},
            {
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
                "metadata": {"name": "garage", "namespace": ns},
                "spec": {"storage": {}, "gateway": {}, "webApi": {"rootDomain": ".example.test"}},
            },
        ]})
        .to_string(),
    )?;
    let api = buckets(client, ns);
    futures::stream::iter(0..size)
        .map(Ok)
        .try_for_each_concurrent(PREPARING, |n| {
            let api = api.clone();
            async move {
                let bucket = object(json!({
                    "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
                    "metadata": {"name": name(n)},
                    "spec": {
                        "clusterRef": {"name": "garage"}, "website": {"enabled": true},
                        "websiteExposure": {"ingress": {"ingressClassName": CLASS}},
                    },
                }))?;
                api.create(&PostParams::default(), &bucket).await?;
                let status = json!({"status": {
                    "bucketId": format!("id-{n}"), "globalAlias": name(n), "phase": "Ready",
                }});
                api.patch_status(&name(n), &PatchParams::default(), &Patch::Merge(&status))
                    .await?;
                Ok::<_, Error>(())
            }
        })
        .await
}

/// The cluster says that it runs: now every bucket can be exposed.
async fn running(client: &kube::Client, ns: &str) -> Result<()> {
    let kind = kind(
        "garage.rajsingh.info",
        "v1beta2",
        "GarageCluster",
        "garageclusters",
    );
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), ns, &kind);
    let status = json!({"status": {"phase": "Running"}});
    api.patch_status("garage", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// What the operator wrote for the first bucket, to be written again under other names.
struct Template {
    ingress: String,
    status: String,
}

impl Template {
    async fn of(client: &kube::Client, ns: &str) -> Result<Self> {
        let bucket = buckets(client, ns).get(&name(0)).await?;
        let uid = bucket.metadata.uid.clone().unwrap_or_default();
        let mut status = bucket.data.get("status").cloned().unwrap_or_default();
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|field, _| field == "conditions" || field == "websiteExposure");
        }
        let child = format!("{}-website", name(0));
        let child = ingresses(client, ns).get(&child).await?;
        let mut ingress = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {
                "name": child.metadata.name, "labels": child.metadata.labels,
                "annotations": child.metadata.annotations, "ownerReferences": child.metadata.owner_references,
            },
            "spec": child.data.get("spec"),
        });
        if let Some(meta) = ingress.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|_, v| !v.is_null());
        }
        Ok(Self {
            ingress: ingress.to_string().replace(&uid, "OWNER"),
            status: status.to_string(),
        })
    }

    fn child(&self, n: usize, uid: &str) -> Result<Value> {
        let text = self.ingress.replace(&name(0), &name(n)).replace("OWNER", uid);
        serde_json::from_str(&text).map_err(|e| Error::other(e.to_string()))
    }

    fn status(&self, n: usize) -> Result<Value> {
        let status: Value = serde_json::from_str(&self.status.replace(&name(0), &name(n)))
            .map_err(|e| Error::other(e.to_string()))?;
        Ok(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": {"name": name(n)}, "status": status,
        }))
    }
}

/// Child and status of every bucket by plain server-side apply, as a service account.
async fn raw_writes(
    cluster: &'static Cluster,
    ns: &str,
    size: usize,
    template: &Template,
    log: &mut Tail,
) -> Result<(f64, usize)> {
    cluster.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "raw", "namespace": ns}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "raw", "namespace": ns},
                "rules": [
                    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["create", "patch"]},
                    {"apiGroups": ["garage.rajsingh.info"], "resources": ["garagebuckets/status"], "verbs": ["patch"]},
                    {"apiGroups": ["garage.rajsingh.info"], "resources": ["garagebuckets/finalizers"],
                     "verbs": ["update"]},
                ],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "raw", "namespace": ns},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "raw"},
                "subjects": [{"kind": "ServiceAccount", "name": "raw", "namespace": ns}],
            },
        ]})
        .to_string(),
    )?;
    let admin = cluster.client().await?;
    let list = buckets(&admin, ns)
        .list(&kube::api::ListParams::default())
        .await?;
    let mut uids: Vec<(String, String)> = list
        .items
        .into_iter()
        .filter_map(|b| Some((b.metadata.name?, b.metadata.uid?)))
        .collect();
    uids.sort();
    let client = cluster.client_as(ns, "raw").await?;
    let (children, owners) = (ingresses(&client, ns), buckets(&client, ns));
    let params = PatchParams::apply("raw").force();
    // The binding is seen a moment after it was made.
    wait::eventually("rights of the raw writer", LIMIT, || async {
        let dry = PatchParams {
            dry_run: true,
            ..params.clone()
        };
        let (_, uid) = uids.first().ok_or("no buckets")?;
        let child = template.child(0, uid).map_err(|e| e.to_string())?;
        let child_name = format!("{}-website", name(0));
        let tried = children.patch(&child_name, &dry, &Patch::Apply(&child)).await;
        tried.map(|_| ()).map_err(|e| e.to_string())
    })
    .await?;
    let user = format!("system:serviceaccount:{ns}:raw");
    log.read(&user)?;
    log.forget();
    let begun = Timestamp::now();
    futures::stream::iter(uids.iter().enumerate())
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, |(n, (_, uid))| {
            let (children, owners, params) = (children.clone(), owners.clone(), params.clone());
            async move {
                let child = template.child(n, uid)?;
                let child_name = format!("{}-website", name(n));
                children
                    .patch(&child_name, &params, &Patch::Apply(&child))
                    .await?;
                let status = template.status(n)?;
                owners
                    .patch_status(&name(n), &params, &Patch::Apply(&status))
                    .await?;
                Ok::<_, Error>(())
            }
        })
        .await?;
    let seen = log.until_quiet(&user, 2 * size).await?;
    Ok((seen.since(begun), seen.writes))
}

/// What one user did since the last [`Tail::forget`].
#[derive(Debug, Clone, Default)]
struct Seen {
    requests: BTreeMap<String, usize>,
    writes: usize,
    last: Option<Timestamp>,
}

impl Seen {
    /// Seconds from `begun` to the last write.
    fn since(&self, begun: Timestamp) -> f64 {
        self.last
            .map_or(0.0, |last| last.duration_since(begun).as_secs_f64())
    }
}

/// The audit log, read on.
struct Tail {
    path: PathBuf,
    offset: u64,
    seen: Seen,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    stage_timestamp: Timestamp,
    #[serde(default)]
    object_ref: Option<Object>,
    #[serde(default)]
    response_status: Option<Code>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
}

impl Tail {
    fn new(cluster: &Cluster) -> Result<Self> {
        let path = cluster.own_node()?.state().join("log/audit.log");
        let offset = path.metadata().at("look at", &path)?.len();
        Ok(Self {
            path,
            offset,
            seen: Seen::default(),
        })
    }

    fn forget(&mut self) {
        self.seen = Seen::default();
    }

    /// Reads on and counts what this user did.
    fn read(&mut self, user: &str) -> Result<&Seen> {
        let mut file = File::open(&self.path).at("open", &self.path)?;
        file.seek(SeekFrom::Start(self.offset)).at("read", &self.path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at("read", &self.path)?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let text = bytes.get(..whole).unwrap_or_default();
        self.offset += u64::try_from(whole).unwrap_or(0);
        for line in text.split(|b| *b == b'\n') {
            if let Ok(line) = serde_json::from_slice::<Line>(line)
                && line.user.username == user
            {
                self.seen.add(&line);
            }
        }
        Ok(&self.seen)
    }

    /// Reads until there are so many writes and then none for [`QUIET`].
    async fn until_quiet(&mut self, user: &str, writes: usize) -> Result<Seen> {
        let (end, mut since, mut last) = (Instant::now() + LIMIT, Instant::now(), self.seen.writes);
        loop {
            let now = self.read(user)?.writes;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if now >= writes && since.elapsed() > QUIET {
                return Ok(self.seen.clone());
            }
            if Instant::now() > end || since.elapsed() > 30 * QUIET {
                return Err(Error::other(format!(
                    "{user} wrote {now} times and not {writes}: {:?}",
                    self.seen.requests
                )));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

impl Seen {
    fn add(&mut self, line: &Line) {
        let watch = line.verb == "watch";
        // A watch is counted when it begins.
        if watch != (line.stage == "ResponseStarted") {
            return;
        }
        let object = line.object_ref.as_ref();
        let resource = match object {
            Some(o) if o.subresource.is_empty() => o.resource.clone(),
            Some(o) => format!("{}/{}", o.resource, o.subresource),
            None => "other".to_owned(),
        };
        let code = line.response_status.as_ref().map_or(0, |s| s.code);
        *self
            .requests
            .entry(format!("{} {resource} {code}", line.verb))
            .or_default() += 1;
        let upkeep = matches!(resource.as_str(), "leases" | "events");
        if matches!(line.verb.as_str(), "create" | "update" | "patch" | "delete") && !upkeep {
            self.writes += 1;
            self.last = self.last.max(Some(line.stage_timestamp));
        }
    }
}

/// A figure of /proc/PID/status in MiB.
fn memory(process: Process, field: &str) -> Result<f64> {
    let path = format!("/proc/{}/status", process.pid);
    let text = fs::read_to_string(&path).at("read", &path)?;
    let kib = text.lines().find_map(|l| l.strip_prefix(field));
    let kib = kib.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|k| k / 1024.0)
        .ok_or_else(|| Error::other(format!("no {field} in {path}")))
}

/// CPU seconds that the process has used.
fn cpu(process: Process) -> Result<f64> {
    let path = format!("/proc/{}/stat", process.pid);
    let text = fs::read_to_string(&path).at("read", &path)?;
    // Behind the name, which may hold anything.
    let fields: Vec<&str> = text
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / TICKS)
}

fn folder() -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    let folder = target.join("bench");
    fs::create_dir_all(&folder).at("create", &folder)?;
    Ok(folder)
}

/// The machine in a line: figures mean nothing without it.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map(|l| l.trim_start_matches([' ', '\t', ':']).to_owned());
    let memory = read("/proc/meminfo");
    let gib = memory
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
        .map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    format!(
        "{cpus} CPUs ({}), {gib:.0} GiB, load at the end {load}",
        model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
    )
}

fn write(folder: &Path, all: &[Figures]) -> Result<()> {
    let put = |name: &str, text: &str| fs::write(folder.join(name), text).at("write", folder.join(name));
    let machine = machine();
    let date = Timestamp::now().to_string().chars().take(10).collect::<String>();
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let whole = json!({"date": date, "machine": machine, "raw_writer_profile": profile, "figures": all});
    put(
        "results.json",
        &serde_json::to_string_pretty(&whole).unwrap_or_default(),
    )?;
    let table = table(all);
    put("results.md", &format!("{date}, {machine}\n\n{table}"))?;
    put("results.svg", &picture(all))?;
    for line in table.lines() {
        say(line);
    }
    Ok(())
}

fn table(all: &[Figures]) -> String {
    let mut text = String::from("| |");
    for f in all {
        let _ = write!(text, " {} buckets |", f.buckets);
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(all.len()));
    let mut row = |what: &str, value: &dyn Fn(&Figures) -> String| {
        let _ = write!(text, "\n| {what} |");
        for f in all {
            let _ = write!(text, " {} |", value(f));
        }
    };
    row("operator: children and status of all buckets", &|f| {
        format!("{:.1} s, {} writes", f.operator_seconds, f.operator_writes)
    });
    row("raw writes of the same objects", &|f| {
        format!("{:.1} s, {} writes", f.raw_seconds, f.raw_writes)
    });
    row("time per write, operator ÷ raw (goal ≤ 1.2)", &|f| {
        format!("{:.2}", f.ratio)
    });
    row("resident memory (goal ≤ 120 MB at 10 000)", &|f| {
        format!("{:.0} MiB, peak {:.0} MiB", f.rss_mib, f.peak_rss_mib)
    });
    row("cold start with nothing to do", &|f| {
        format!("{:.1} s, {} writes", f.cold_start_seconds, f.cold_start_writes)
    });
    row("CPU in an idle minute", &|f| {
        format!("{:.2} s", f.idle_cpu_seconds)
    });
    row("requests in an idle minute", &|f| {
        let all: Vec<String> = f
            .idle_requests
            .iter()
            .map(|(k, n)| format!("{n} × {k}"))
            .collect();
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    });
    row("requests of the operator for all buckets", &|f| {
        let all: Vec<String> = f.requests.iter().map(|(k, n)| format!("{n} × {k}")).collect();
        all.join(", ")
    });
    text.push('\n');
    text
}

/// Two bars per size, as high as the time per write.
fn picture(all: &[Figures]) -> String {
    let per =
        |seconds: f64, writes: usize| seconds * 1e3 / f64::from(u32::try_from(writes.max(1)).unwrap_or(1));
    let bars: Vec<(String, f64, &str)> = all
        .iter()
        .flat_map(|f| {
            [
                (
                    format!("operator, {}", f.buckets),
                    per(f.operator_seconds, f.operator_writes),
                    "#2b6cb0",
                ),
                (
                    format!("raw, {}", f.buckets),
                    per(f.raw_seconds, f.raw_writes),
                    "#a0aec0",
                ),
            ]
        })
        .collect();
    let most = bars.iter().map(|b| b.1).fold(f64::MIN_POSITIVE, f64::max);
    let height = 30 + 28 * bars.len();
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"560\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<text x=\"8\" y=\"18\">Time per write, ms (one after the other, {CONCURRENCY} in flight)</text>\n"
    );
    for (n, (label, value, colour)) in bars.iter().enumerate() {
        let y = 28 + 28 * n;
        let _ = writeln!(
            text,
            "<text x=\"8\" y=\"{}\">{label}</text><rect x=\"140\" y=\"{y}\" width=\"{:.0}\" height=\"20\" \
             fill=\"{colour}\"/><text x=\"{:.0}\" y=\"{}\">{value:.2}</text>",
            y + 15,
            340.0 * value / most,
            148.0 + 340.0 * value / most,
            y + 15
        );
    }
    text.push_str("</svg>\n");
    text
}

/// What the layers cost when nothing is to be done, by the framework's own benchmark; needs no cluster.
///
/// # Errors
/// When it does not build or run.
pub fn stack(folder: &Path) -> Result<()> {
    if !repository().join("framework/benches/noop.rs").exists() {
        say("the layers per no-op are left out: framework/benches/noop.rs is not there");
        return Ok(());
    }
    say("the layers per no-op (cargo bench -p reconcile-kit --bench noop)");
    let mut c = sh::command("cargo", ["bench", "-q", "-p", "reconcile-kit", "--bench", "noop"]);
    c.args(["--all-features"]).current_dir(repository());
    let text = sh::run(c)?;
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        say(line);
    }
    let file = folder.join("noop.txt");
    fs::write(&file, text).at("write", &file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_counted_and_upkeep_is_not() {
        let line = |verb: &str, resource: &str, second: u8| -> Line {
            serde_json::from_value(json!({
                "stage": "ResponseComplete", "verb": verb, "user": {"username": "a"},
                "stageTimestamp": format!("2026-01-01T00:00:0{second}.500000Z"),
                "objectRef": {"resource": resource}, "responseStatus": {"code": 200},
            }))
            .unwrap()
        };
        let mut seen = Seen::default();
        seen.add(&line("patch", "ingresses", 3));
        seen.add(&line("patch", "ingresses", 2));
        seen.add(&line("update", "leases", 9));
        seen.add(&line("list", "ingresses", 9));
        assert_eq!((seen.writes, seen.requests["patch ingresses 200"]), (2, 2));
        let begun: Timestamp = "2026-01-01T00:00:01Z".parse().unwrap();
        assert!((seen.since(begun) - 2.5).abs() < 1e-9);
    }
}
