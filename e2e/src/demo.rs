//! `cargo demo`: the product's main job on a real cluster, each step said, every line that claims something shown by
//! a command. Ends with a failure when a step does not do what it says.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, blocking, repository};
use crate::error::{Error, Result};
use crate::garage::{Garage, GarageOptions, PAGE};
use crate::operator::Operator;
use crate::tools::{PATIENCE, Part, Tools};
use crate::{contour, net::Answer, sh, wait};

/// Hostname of the demo's website.
pub const HOST: &str = "hello.example.test";
/// Namespace of the demo's objects.
pub const NAMESPACE: &str = "demo";
/// Name of the demo's node.
pub const NODE: &str = "routewright-demo";
const PAGE_TEXT: &str = "<h1>Hello from a bucket</h1>\n";
/// How long the page must come through the route alone.
const STABLE: Duration = Duration::from_secs(3);
const STEPS: usize = 9;

/// What the demo runs on its node; the echo server is for tests.
const PARTS: [Part; 4] = [Part::Helm, Part::Contour, Part::Envoy, Part::Garage];

/// One line for the reader. On standard output, so that it can be told from the messages of builds.
pub fn tell(line: impl AsRef<str>) {
    // A closed pipe is the reader's decision.
    let _ = writeln!(std::io::stdout(), "{}", line.as_ref());
}

fn step(number: usize, title: &str, why: &str) {
    step_of(number, STEPS, title, why);
}

/// Begins a step of so many.
pub(crate) fn step_of(number: usize, steps: usize, title: &str, why: &str) {
    tell(format!("\n[{number}/{steps}] {title}"));
    note(why);
}

/// Lines below a step.
pub(crate) fn note(text: impl AsRef<str>) {
    for line in text.as_ref().trim_end().lines() {
        tell(format!("      {line}"));
    }
}

/// Says what comes and builds what is missing: the programs of the cluster, and the operator.
///
/// # Errors
/// When something cannot be built.
pub fn prepare() -> Result<()> {
    tell(
        "Routewright makes a website in a Garage bucket reachable. You will see one HTTP request, always the same,",
    );
    tell(
        "sent to a gateway: it fails, then comes back with the page through an Ingress, then through an HTTPRoute.",
    );
    step(
        1,
        "Programs",
        "Kubernetes, Contour, Envoy, Garage and the operator, built from source once and kept in a cache.",
    );
    programs(&[&Part::NODE[..], &PARTS].concat())
}

/// Builds those of these programs that are missing, and the operator.
pub(crate) fn programs(parts: &[Part]) -> Result<()> {
    let (begun, tools) = (Instant::now(), Tools::open()?);
    let mut missing = Vec::new();
    for part in parts.iter().copied() {
        if !tools.present(part)? {
            missing.push(part);
        }
    }
    if missing.is_empty() {
        note(format!("all in {}", tools.root().display()));
    } else {
        let minutes: u32 = missing.iter().map(|p| p.minutes()).sum();
        let names: Vec<&str> = missing.iter().map(|p| p.name()).collect();
        note(format!(
            "missing: {}; at most {minutes} minutes on two cores, this once",
            names.join(", ")
        ));
    }
    for part in missing {
        tools.part(part)?;
    }
    build_operator()?;
    note(format!("ready after {}", seconds(begun)));
    Ok(())
}

/// Builds what [`crate::operator::binary`] will look for, with Cargo's progress in sight.
fn build_operator() -> Result<()> {
    let var = |name| std::env::var(name).ok().filter(|v: &String| !v.is_empty());
    if var("ROUTEWRIGHT_BINARY").is_some() {
        return Ok(());
    }
    let profile = var("E2E_PROFILE").unwrap_or_else(|| "dev".to_owned());
    let words = [
        "build",
        "--profile",
        &profile,
        "-p",
        "routewright",
        "--bin",
        "routewright",
    ];
    let mut c = sh::command("cargo", words);
    let status = c.current_dir(repository()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Error::other(format!(
            "`{}` failed; its message is above",
            sh::shown(&c)
        ))),
    }
}

/// Says that the cluster starts. Both demos have it as their second step of nine.
pub fn announce_cluster() {
    step(
        2,
        "A Kubernetes cluster",
        "One node in Linux namespaces of its own: no Docker, nothing installed on this machine.",
    );
}

/// Runs the demo on a cluster that has been up since `started`; `keep` leaves the page exposed. Returns the address
/// under which Envoy serves it.
///
/// # Errors
/// The step that failed.
pub async fn run(cluster: &'static Cluster, started: Instant, keep: bool) -> Result<IpAddr> {
    note(format!("up after {}", seconds(started)));

    step(
        3,
        "Contour and Envoy",
        "A gateway: it serves Ingresses of class \"contour\" and routes of Gateway \"contour\", on one address.",
    );
    let begun = Instant::now();
    let address = contour::install(cluster).await?;
    note(format!("Envoy answers on {address} after {}", seconds(begun)));

    step(
        4,
        "Garage",
        "The object store that holds the page; one Pod behind a Service.",
    );
    let begun = Instant::now();
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
    ))?;
    let options = GarageOptions {
        root_domain: Some(".example.test".to_owned()),
        gateway: false,
    };
    let garage = Garage::deploy(cluster, NAMESPACE, "garage", &options).await?;
    note(format!("healthy after {}", seconds(begun)));

    step(
        5,
        "Routewright, from its Helm chart",
        "As a Pod with a service account that may do what these three switches need, and nothing else.",
    );
    let begun = Instant::now();
    let values = json!({
        "garageBuckets": {"enabled": true}, "ingress": {"enabled": true}, "gatewayAPI": {"enabled": true},
        "logLevel": "info",
    });
    note("values: garageBuckets.enabled, ingress.enabled, gatewayAPI.enabled = true");
    let operator = Operator::pod(cluster, values).await?;
    note(format!("ready after {}", seconds(begun)));

    let told = story(cluster, &garage, address, keep).await;
    // The node takes them along; a kept one needs them.
    std::mem::forget(operator);
    told.map(|()| address)
}

/// The main job.
async fn story(cluster: &'static Cluster, garage: &Garage, address: IpAddr, keep: bool) -> Result<()> {
    step(
        6,
        "A bucket with a page, and nothing that leads to it",
        "A GarageCluster says where Garage is; a GarageBucket asks for a bucket with a website. No websiteExposure yet.",
    );
    cluster.apply(&objects().to_string())?;
    let phase = |b: &Value| text(b, "/status/phase") == "Ready";
    until(cluster, "the bucket in Garage", phase).await?;
    garage.put_page("hello", PAGE_TEXT).await?;
    let inside = garage.web(HOST, "/").await?;
    if inside.text() != PAGE_TEXT {
        return Err(Error::other(format!(
            "Garage does not serve the page: {} {}",
            inside.status,
            inside.text()
        )));
    }
    note("index.html is in the bucket, and Garage serves it to whoever is inside the cluster. From outside:");
    // Envoy opens its port with the first site: until then the connection itself is refused.
    match request(cluster, address).await {
        Ok(answer) if answer.status < 400 => {
            return Err(Error::other(
                "the request must fail before websiteExposure is set",
            ));
        }
        Ok(_) => note("FAILS, as it should: the gateway knows no such site."),
        Err(_) => note("FAILS, as it should: the gateway has no site to serve."),
    }
    kubectl(cluster, &["get", "garagebucket,ingress,httproute"])?;

    step(
        7,
        "spec.websiteExposure with an Ingress class",
        "Routewright makes the Ingress, keeps it right, and says so in one condition, WebsiteExposed.",
    );
    let by_ingress = json!({
        "backendRef": {"name": "garage"}, "ingress": {"ingressClassName": contour::INGRESS_CLASS},
    });
    patch(cluster, &by_ingress)?;
    let took = page(cluster, address, "Ingress", "httproute").await?;
    note(format!(
        "The page, from the real Garage through the generated Ingress, {took} after the patch."
    ));

    step(
        8,
        "The same bucket through the Gateway API instead",
        "One field changes; Routewright makes the HTTPRoute and takes its Ingress away.",
    );
    let parent = json!({"name": contour::GATEWAY, "namespace": contour::NAMESPACE});
    let by_route = json!({"ingress": null, "gateway": {"parentRefs": [parent]}});
    patch(cluster, &by_route)?;
    let took = page(cluster, address, "HTTPRoute", "ingress").await?;
    // A gateway may serve what it was told before for a moment: what comes later cannot be the Ingress.
    wait::throughout("the page through the HTTPRoute", STABLE, || async {
        let answer = cluster.fetch(HOST, address, 80, "/").await;
        let answer = answer.map_err(|e| e.to_string())?;
        if answer.text() == PAGE_TEXT {
            Ok(())
        } else {
            Err(format!("HTTP {} {}", answer.status, answer.text()))
        }
    })
    .await?;
    note(format!(
        "The page again, {took} after the patch, and {} s on with the Ingress gone: the HTTPRoute carries it.",
        STABLE.as_secs()
    ));

    if keep {
        step(STEPS, "The page stays", "You asked for it (--keep).");
        return Ok(());
    }
    step(
        STEPS,
        "websiteExposure taken away",
        "Routewright removes the HTTPRoute; bucket and page stay in Garage.",
    );
    patch(cluster, &Value::Null)?;
    wait::eventually("the request fails", PAGE, || async {
        match cluster.fetch(HOST, address, 80, "/").await {
            Ok(answer) if answer.status < 400 => Err(format!("HTTP {}", answer.status)),
            _ => Ok(()),
        }
    })
    .await?;
    kubectl(cluster, &["get", "garagebucket,ingress,httproute"])?;
    let _ = request(cluster, address).await;
    note("FAILS again: nothing else led to the page.");
    Ok(())
}

/// A handle for the Garage that runs, and a bucket that serves a website but is not exposed.
fn objects() -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
            "metadata": {"name": "garage", "namespace": NAMESPACE},
            "spec": {
                "connectTo": {
                    "adminApiEndpoint": format!("http://garage.{NAMESPACE}.svc:3903"),
                    "adminTokenSecretRef": {"name": "garage-admin-token", "key": "token"},
                },
                "webApi": {"rootDomain": ".example.test"},
            },
        },
        {
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": {"name": "hello", "namespace": NAMESPACE},
            "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true}},
        },
    ]})
}

/// The request of the demo, shown with its answer.
async fn request(cluster: &'static Cluster, address: IpAddr) -> Result<Answer> {
    note(format!("$ curl -H 'Host: {HOST}' http://{address}/"));
    let answer = cluster.fetch(HOST, address, 80, "/").await;
    match &answer {
        Ok(a) => note(format!("HTTP {} {}", a.status, a.text().trim())),
        Err(e) => note(e.to_string()),
    }
    answer
}

/// Sets `spec.websiteExposure`, shown as the command that does it.
fn patch(cluster: &Cluster, exposure: &Value) -> Result<()> {
    let change = json!({"spec": {"websiteExposure": exposure}}).to_string();
    note(format!(
        "$ kubectl -n {NAMESPACE} patch garagebucket hello --type=merge -p '{change}'"
    ));
    let words = [
        "-n",
        NAMESPACE,
        "patch",
        "garagebucket",
        "hello",
        "--type=merge",
        "-p",
        &change,
    ];
    cluster.kubectl(words).map(|_| ())
}

/// Waits until the bucket is exposed through `via` and nothing of the `other` kind is left, then makes the request.
/// Returns how long all of it took.
async fn page(cluster: &'static Cluster, address: IpAddr, via: &str, other: &str) -> Result<String> {
    let begun = Instant::now();
    let exposed = |b: &Value| {
        text(b, "/status/websiteExposure/type") == via
            && condition(b, "WebsiteExposed").is_some_and(is_current(b))
    };
    until(cluster, &format!("WebsiteExposed by {via}"), exposed).await?;
    wait::eventually(&format!("no {other} left"), PATIENCE, || async {
        match cluster.kubectl(["-n", NAMESPACE, "get", other, "-o", "name"]) {
            Ok(left) if left.trim().is_empty() => Ok(()),
            Ok(left) => Err(left),
            Err(e) => Err(e.to_string()),
        }
    })
    .await?;
    let served = wait::eventually("the page through the gateway", PAGE, || async {
        let answer = cluster.fetch(HOST, address, 80, "/").await;
        match answer {
            Ok(a) if a.text() == PAGE_TEXT => Ok(()),
            Ok(a) => Err(format!("HTTP {} {}", a.status, a.text())),
            Err(e) => Err(e.to_string()),
        }
    });
    served.await?;
    let took = seconds(begun);
    kubectl(cluster, &["get", "garagebucket"])?;
    kubectl(cluster, &["get", "ingress,httproute"])?;
    let answer = request(cluster, address).await?;
    if answer.status != 200 || answer.text() != PAGE_TEXT {
        return Err(Error::other("the page came back once and not again"));
    }
    Ok(took)
}

/// Runs kubectl in the demo's namespace and shows command and output.
fn kubectl(cluster: &Cluster, words: &[&str]) -> Result<()> {
    note(format!("$ kubectl -n {NAMESPACE} {}", words.join(" ")));
    let out = cluster.kubectl(["-n", NAMESPACE].iter().chain(words))?;
    note(if out.trim().is_empty() { "(nothing)" } else { &out });
    Ok(())
}

/// Waits for the bucket to be as wanted; shows it when it does not get there.
async fn until(cluster: &'static Cluster, what: &str, done: impl Fn(&Value) -> bool) -> Result<()> {
    let done = &done;
    let seen = wait::eventually(what, PATIENCE, || async move {
        let words = ["-n", NAMESPACE, "get", "garagebucket", "hello", "-o", "json"];
        let found = blocking(move || cluster.kubectl(words))
            .await
            .map_err(|e| e.to_string())?;
        let bucket: Value = serde_json::from_str(&found).map_err(|e| e.to_string())?;
        if done(&bucket) {
            Ok(())
        } else {
            Err(bucket.get("status").map(Value::to_string).unwrap_or_default())
        }
    });
    seen.await
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    all.iter().find(|c| text(c, "/type") == kind)
}

/// True, and said of the spec as it is now.
fn is_current(object: &Value) -> impl Fn(&Value) -> bool {
    let generation = object.pointer("/metadata/generation");
    move |c| text(c, "/status") == "True" && c.get("observedGeneration") == generation
}

/// Time since then, as people say it.
pub fn seconds(since: Instant) -> String {
    let took: Duration = since.elapsed();
    match took.as_secs() {
        0..10 => format!("{:.1} s", took.as_secs_f32()),
        s @ 10..120 => format!("{s} s"),
        s => format!("{} min {} s", s / 60, s % 60),
    }
}
