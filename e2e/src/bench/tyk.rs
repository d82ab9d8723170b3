//! `cargo bench-local tyk`: 1 000 HTTPRoutes at once on one Gateway, by Routewright with the stand-in for Tyk and by Envoy
//! Gateway in the same run; then 5 000 routes with an edit a second. Figures are written down and never asserted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::{LIMIT, PREPARING, Tail, cpu, folder, kind, machine, memory, object};
use crate::cluster::{Cluster, blocking};
use crate::error::{Error, IoContext, Result};
use crate::operator::Operator;
use crate::sh::{self, Process, say};
use crate::tools::Part;
use crate::tyk::{HTTP, Tyk, Which};
use crate::{image, wait};

/// Routes of the first part.
const ROUTES: usize = 1_000;
/// Routes of the second part.
const MANY: usize = 5_000;
/// Length of the second part.
const EDITING: Duration = Duration::from_secs(60);
const GATEWAY: &str = "front";
const CLASS: &str = "bench-tyk";
const CONTROLLER: &str = "bench.test/tyk";
const PEER_CLASS: &str = "bench-envoy";
const PEER_CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const PEER_NAMESPACE: &str = "envoy-gateway-system";

/// Figures of one controller with [`ROUTES`] routes.
#[derive(Debug, Clone, Default, Serialize)]
struct Burst {
    routes: usize,
    /// All POSTs, as many in flight as the preparation has.
    create_seconds: f64,
    /// From the answer to the last POST to the Gateway's count being right.
    attached_seconds: f64,
    /// From the answer to the last POST to the last status of a route.
    last_status_seconds: f64,
    gateway_status_writes: usize,
    route_status_writes: usize,
    other_writes: usize,
    requests: BTreeMap<String, usize>,
    rss_mib: f64,
    peak_rss_mib: f64,
    cpu_seconds: f64,
    /// Writes in a start of the process with nothing to do, Lease and Events apart.
    restart_writes: usize,
    /// From the answer to the last DELETE to the count being 0.
    detached_seconds: f64,
}

/// Figures of the second part.
#[derive(Debug, Clone, Default, Serialize)]
struct Edits {
    routes: usize,
    attached_seconds: f64,
    edits: usize,
    /// Cores, on average.
    cpu_cores: f64,
    rss_mib: f64,
    peak_rss_mib: f64,
    requests: BTreeMap<String, usize>,
    /// CPU seconds in the idle minute after it.
    idle_cpu_seconds: f64,
    idle_requests: BTreeMap<String, usize>,
}

/// Runs all of it and writes the results; returns their folder.
///
/// # Errors
/// When something does not run; never for a figure.
pub async fn run(cluster: &'static Cluster, peer: bool) -> Result<PathBuf> {
    let folder = folder()?;
    cluster.gateway_crds("standard").await?;
    cluster.product_crds().await?;
    let client = cluster.client().await?;

    let ns = "bench-tyk";
    namespace(cluster, ns)?;
    let tyk = Tyk::deploy(cluster, ns, Which::Double).await?;
    tyk.class(CLASS, CONTROLLER)?;
    let values = json!({"tyk": {"enabled": true, "controllerName": CONTROLLER}, "logLevel": "info"});
    let mut operator = Operator::process(cluster, values).await?;
    let user = operator.user();
    front(cluster, &client, ns, CLASS).await?;
    say(format!("{ROUTES} routes: Routewright"));
    let mut log = Tail::new(cluster)?;
    let process = operator.pid()?;
    let mut ours = burst(&client, ns, &user, &mut log, process).await?;
    log.until_quiet(&user, 0).await?;
    operator.terminate()?;
    log.until_quiet(&user, 0).await?;
    log.forget();
    operator.restart()?;
    running(&operator).await?;
    ours.restart_writes = log.until_quiet(&user, 0).await?.writes;
    ours.detached_seconds = remove(&client, ns).await?;
    log.until_quiet(&user, 0).await?;

    say(format!("{MANY} routes, one edit a second"));
    let edits = edits(&client, ns, &user, &mut log, operator.pid()?).await?;
    drop(operator);
    let left = tyk.apis().await?.len();
    say(format!("documents in the stand-in at the end: {left}"));
    cluster.kubectl(["delete", "namespace", ns, "--wait=false"])?;

    let theirs = if peer {
        Some(envoy_gateway(cluster, &client).await?)
    } else {
        None
    };
    write(&folder, &ours, theirs.as_ref(), &edits)?;
    Ok(folder)
}

fn namespace(cluster: &Cluster, ns: &str) -> Result<()> {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend", "namespace": ns},
                         "spec": {"selector": {"app": "backend"}, "ports": [{"port": 80}]}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [namespace, service]});
    cluster.apply(&list.to_string()).map(drop)
}

fn api(client: &kube::Client, ns: &str, what: &str, plural: &str) -> Api<DynamicObject> {
    let kind = kind("gateway.networking.k8s.io", "v1", what, plural);
    Api::namespaced_with(client.clone(), ns, &kind)
}

fn routes(client: &kube::Client, ns: &str) -> Api<DynamicObject> {
    api(client, ns, "HTTPRoute", "httproutes")
}

fn name(n: usize) -> String {
    format!("route-{n:05}")
}

fn route(n: usize, path: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name(n)},
        "spec": {"parentRefs": [{"name": GATEWAY}], "hostnames": [format!("host-{n:05}.bench.test")], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": path}}],
            "backendRefs": [{"name": "backend", "port": 80}]}]},
    })
}

/// The Gateway; waits until it is accepted.
async fn front(cluster: &'static Cluster, client: &kube::Client, ns: &str, class: &str) -> Result<()> {
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": GATEWAY, "namespace": ns},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "protocol": "HTTP", "port": HTTP}]},
    });
    cluster.apply(&gateway.to_string())?;
    let gateways = api(client, ns, "Gateway", "gateways");
    wait::eventually("the Gateway accepted", LIMIT, || async {
        let gateway = gateways.get(GATEWAY).await.map_err(|e| e.to_string())?;
        let conditions = gateway
            .data
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let good = |c: &&Value| {
            c.get("type").is_some_and(|t| t == "Accepted") && c.get("status").is_some_and(|s| s == "True")
        };
        match conditions.and_then(|all| all.iter().find(good)) {
            Some(_) => Ok(()),
            None => Err(gateway
                .data
                .get("status")
                .cloned()
                .unwrap_or_default()
                .to_string()),
        }
    })
    .await
}

/// Waits until the Gateway counts so many; the moment.
async fn counted(client: &kube::Client, ns: &str, wanted: usize) -> Result<Instant> {
    let gateways = api(client, ns, "Gateway", "gateways");
    let end = Instant::now() + LIMIT;
    loop {
        let gateway = gateways.get(GATEWAY).await?;
        let count = gateway
            .data
            .pointer("/status/listeners/0/attachedRoutes")
            .and_then(Value::as_u64);
        if count.and_then(|c| usize::try_from(c).ok()) == Some(wanted) {
            return Ok(Instant::now());
        }
        if Instant::now() > end {
            return Err(Error::other(format!(
                "{count:?} routes attached, and not {wanted}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn create(client: &kube::Client, ns: &str, numbers: std::ops::Range<usize>) -> Result<()> {
    let api = routes(client, ns);
    futures::stream::iter(numbers)
        .map(Ok)
        .try_for_each_concurrent(PREPARING, |n| {
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &object(route(n, "/"))?)
                    .await?;
                Ok::<_, Error>(())
            }
        })
        .await
}

async fn burst(
    client: &kube::Client,
    ns: &str,
    user: &str,
    log: &mut Tail,
    process: Process,
) -> Result<Burst> {
    log.read(user)?;
    log.forget();
    let (begun, before) = (Instant::now(), cpu(process)?);
    create(client, ns, 0..ROUTES).await?;
    let (last, last_stamp) = (Instant::now(), Timestamp::now());
    let attached = counted(client, ns, ROUTES).await?;
    let seen = log.until_quiet(user, ROUTES).await?;
    let of = |resource: &str| -> usize {
        let words = |key: &&String| key.split(' ').nth(1).is_some_and(|r| r == resource);
        seen.requests
            .iter()
            .filter(|(k, _)| words(k))
            .map(|(_, n)| n)
            .sum()
    };
    let (gateway, route) = (of("gateways/status"), of("httproutes/status"));
    Ok(Burst {
        routes: ROUTES,
        create_seconds: last.duration_since(begun).as_secs_f64(),
        attached_seconds: attached.duration_since(last).as_secs_f64(),
        last_status_seconds: seen.since(last_stamp),
        gateway_status_writes: gateway,
        route_status_writes: route,
        other_writes: seen.writes.saturating_sub(gateway + route),
        requests: seen.requests.clone(),
        rss_mib: memory(process, "VmRSS:")?,
        peak_rss_mib: memory(process, "VmHWM:")?,
        cpu_seconds: cpu(process)? - before,
        restart_writes: 0,
        detached_seconds: 0.0,
    })
}

/// Deletes all routes; seconds from the last DELETE to the count being 0.
async fn remove(client: &kube::Client, ns: &str) -> Result<f64> {
    let api = routes(client, ns);
    let all = api.list_metadata(&ListParams::default()).await?;
    let names = all.items.into_iter().filter_map(|r| r.metadata.name);
    futures::stream::iter(names)
        .map(Ok)
        .try_for_each_concurrent(PREPARING, |name| {
            let api = api.clone();
            async move {
                api.delete(&name, &DeleteParams::default()).await?;
                Ok::<_, Error>(())
            }
        })
        .await?;
    let last = Instant::now();
    let seconds = counted(client, ns, 0).await?.duration_since(last).as_secs_f64();
    wait::eventually("every route gone", LIMIT, || async {
        let left = api
            .list_metadata(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        if left.items.is_empty() {
            Ok(())
        } else {
            Err(format!("{} left", left.items.len()))
        }
    })
    .await?;
    Ok(seconds)
}

async fn edits(
    client: &kube::Client,
    ns: &str,
    user: &str,
    log: &mut Tail,
    process: Process,
) -> Result<Edits> {
    create(client, ns, 0..MANY).await?;
    let last = Instant::now();
    let attached = counted(client, ns, MANY).await?;
    log.until_quiet(user, 0).await?;
    log.forget();
    let api = routes(client, ns);
    let before = cpu(process)?;
    let begun = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut done = 0usize;
    while begun.elapsed() < EDITING {
        tick.tick().await;
        // Spread over all of them; 37 has no divisor in common with their number.
        let n = done * 37 % MANY;
        let rule = route(n, &format!("/edit-{done}"));
        let patch = json!({"spec": {"rules": rule.pointer("/spec/rules")}});
        api.patch(&name(n), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        done += 1;
    }
    let cores = (cpu(process)? - before) / begun.elapsed().as_secs_f64();
    let requests = log.until_quiet(user, 0).await?.requests.clone();
    let rss_mib = memory(process, "VmRSS:")?;
    log.forget();
    let before = cpu(process)?;
    // The minute is the measurement.
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(Edits {
        routes: MANY,
        attached_seconds: attached.duration_since(last).as_secs_f64(),
        edits: done,
        cpu_cores: cores,
        rss_mib,
        peak_rss_mib: memory(process, "VmHWM:")?,
        requests,
        idle_cpu_seconds: cpu(process)? - before,
        idle_requests: log.read(user)?.requests.clone(),
    })
}

async fn running(operator: &Operator) -> Result<()> {
    operator.ready().await?;
    wait::eventually("the controllers running", LIMIT, || async {
        let text = operator
            .probe("/readyz?verbose")
            .await
            .map_err(|e| e.to_string())?;
        let all = ["tyk-gatewayclass", "tyk-gateway", "tyk-httproute"];
        let good = all
            .iter()
            .all(|c| text.contains(&format!("controller {c}: Running")));
        if good { Ok(()) } else { Err(text) }
    })
    .await
}

/// The same script with Envoy Gateway, from its chart, its Envoys included.
async fn envoy_gateway(cluster: &'static Cluster, client: &kube::Client) -> Result<Burst> {
    say("Envoy Gateway, from its chart");
    blocking(move || install(cluster)).await?;
    let user = format!("system:serviceaccount:{PEER_NAMESPACE}:envoy-gateway");
    let ns = "bench-envoy";
    namespace(cluster, ns)?;
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": PEER_CLASS},
        "spec": {"controllerName": PEER_CONTROLLER},
    });
    cluster.apply(&class.to_string())?;
    front(cluster, client, ns, PEER_CLASS).await?;
    let mut log = Tail::new(cluster)?;
    say(format!("{ROUTES} routes: Envoy Gateway"));
    let mut theirs = burst(client, ns, &user, &mut log, peer_process()?).await?;
    log.until_quiet(&user, 0).await?;
    log.forget();
    let rollout =
        |what: &str| cluster.kubectl(["-n", PEER_NAMESPACE, "rollout", what, "deploy/envoy-gateway"]);
    rollout("restart")?;
    rollout("status")?;
    theirs.restart_writes = log.until_quiet(&user, 0).await?.writes;
    theirs.detached_seconds = remove(client, ns).await?;
    Ok(theirs)
}

fn install(cluster: &Cluster) -> Result<()> {
    let tools = cluster.tools();
    cluster.load(&image::of_part(tools, Part::EnvoyGateway)?)?;
    cluster.load(&image::of_part(tools, Part::Envoy)?)?;
    let module = tools.go_module("envoy-gateway", "github.com/envoyproxy/gateway")?;
    let crds = module.join("charts/gateway-helm/charts/crds/crds/generated");
    for entry in fs::read_dir(&crds).at("read", &crds)?.flatten() {
        cluster.apply(&fs::read_to_string(entry.path()).at("read", entry.path())?)?;
    }
    cluster.established()?;
    // The module has the chart as its release fills it in.
    let chart = cluster.scratch().join("gateway-helm");
    copy(&module.join("charts/gateway-helm"), &chart)?;
    let template = chart.join("values.tmpl.yaml");
    let values = fs::read_to_string(&template).at("read", &template)?;
    let values = values
        .replace("${GatewayImagePullPolicy}", "Never")
        .replace("${GatewayImage}", image::ENVOY_GATEWAY);
    fs::write(chart.join("values.yaml"), values).at("write", &chart)?;
    let proxy = format!("global.images.envoyProxy.image={}", image::ENVOY);
    let mut c = cluster.helm_command(["install", "eg"])?;
    c.arg(&chart).args([
        "-n",
        PEER_NAMESPACE,
        "--create-namespace",
        "--skip-crds",
        "--set",
        "crds.enabled=false",
        "--set",
        &proxy,
        "--set",
        "global.images.envoyProxy.pullPolicy=Never",
        "--wait",
        "--timeout",
        "180s",
    ]);
    sh::run(c).map(drop)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).at("create", to)?;
    for entry in fs::read_dir(from).at("read", from)?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            // Files of the module cache are read-only; the copy is not.
            fs::write(&target, fs::read(&source).at("read", &source)?).at("write", &target)?;
        }
    }
    Ok(())
}

/// The control plane of the peer, seen from here because the node is made of namespaces only.
fn peer_process() -> Result<Process> {
    let is_it = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|b| *b == 0);
        let program = words.next().is_some_and(|w| w.ends_with(b"envoy-gateway"));
        // The Pods of its Envoys run the same program to shut down.
        program && words.next().is_some_and(|w| w == b"server")
    };
    let entries = fs::read_dir("/proc").at("read", "/proc")?.flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.into_iter().find(|pid| is_it(*pid)).and_then(Process::of);
    found.ok_or_else(|| Error::other("no process of Envoy Gateway"))
}

fn write(folder: &Path, ours: &Burst, theirs: Option<&Burst>, edits: &Edits) -> Result<()> {
    let put = |name: &str, text: &str| fs::write(folder.join(name), text).at("write", folder.join(name));
    let machine = machine();
    let date = Timestamp::now().to_string().chars().take(10).collect::<String>();
    let whole = json!({"date": date, "machine": machine, "routewright": ours, "envoy_gateway": theirs, "edits": edits});
    put(
        "tyk.json",
        &serde_json::to_string_pretty(&whole).unwrap_or_default(),
    )?;
    let table = table(ours, theirs, edits);
    put("tyk.md", &format!("{date}, {machine}\n\n{table}"))?;
    for line in table.lines() {
        say(line);
    }
    Ok(())
}

fn table(ours: &Burst, theirs: Option<&Burst>, edits: &Edits) -> String {
    let mut text = format!(
        "| {ROUTES} routes at once on one Gateway | Routewright | Envoy Gateway | ratio |\n|---|---|---|---|\n"
    );
    let mut row = |what: &str, unit: &str, value: &dyn Fn(&Burst) -> f64| {
        let digits = if unit == " s" { 2 } else { 0 };
        let shown = |b: &Burst| format!("{:.digits$}{unit}", value(b));
        let (peer, ratio) = theirs.map_or(("–".to_owned(), "–".to_owned()), |b| {
            let ratio = if value(ours) > 0.0 {
                format!("{:.1}", value(b) / value(ours))
            } else {
                "–".to_owned()
            };
            (shown(b), ratio)
        });
        let _ = writeln!(text, "| {what} | {} | {peer} | {ratio} |", shown(ours));
    };
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    row("all POSTs", " s", &|b| b.create_seconds);
    row("last POST to the right count (goal ≤ 2 s)", " s", &|b| {
        b.attached_seconds
    });
    row("last POST to the last write", " s", &|b| b.last_status_seconds);
    row("status writes of the Gateway (goal ≤ 20)", "", &|b| {
        count(b.gateway_status_writes)
    });
    row("status writes of routes (goal: 1 each)", "", &|b| {
        count(b.route_status_writes)
    });
    row("other writes", "", &|b| count(b.other_writes));
    row("writes of a restart (goal 0)", "", &|b| count(b.restart_writes));
    row("CPU time", " s", &|b| b.cpu_seconds);
    row("resident memory", " MiB", &|b| b.rss_mib);
    row("its peak", " MiB", &|b| b.peak_rss_mib);
    row("last DELETE to a count of 0", " s", &|b| b.detached_seconds);
    let list = |requests: &BTreeMap<String, usize>| {
        let all: Vec<String> = requests.iter().map(|(k, n)| format!("{n} × {k}")).collect();
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    };
    let _ = write!(
        text,
        "\n| {} routes, {} edits in a minute | Routewright |\n|---|---|\n\
         | last POST to the right count | {:.2} s |\n| CPU while edited (goal ≤ 0.10 cores) | {:.3} cores |\n\
         | resident memory (goal ≤ 100 MiB) | {:.0} MiB, peak {:.0} MiB |\n| requests for the edits | {} |\n\
         | CPU in the idle minute after it | {:.2} s |\n| requests in it | {} |\n",
        edits.routes,
        edits.edits,
        edits.attached_seconds,
        edits.cpu_cores,
        edits.rss_mib,
        edits.peak_rss_mib,
        list(&edits.requests),
        edits.idle_cpu_seconds,
        list(&edits.idle_requests)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_theirs_over_ours_and_none_without_them() {
        let ours = Burst {
            attached_seconds: 0.5,
            ..Burst::default()
        };
        let theirs = Burst {
            attached_seconds: 16.5,
            ..Burst::default()
        };
        let text = table(&ours, Some(&theirs), &Edits::default());
        assert!(text.contains("| 0.50 s | 16.50 s | 33.0 |"), "{text}");
        let text = table(&ours, None, &Edits::default());
        assert!(text.contains("| 0.50 s | – | – |"), "{text}");
    }
}
