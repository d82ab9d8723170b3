//! `cargo demo tyk`: Gateway API on Tyk on a real cluster, each step said, every line that claims something shown by a
//! command. Ends with a failure when a step does not do what it says.

use std::time::Instant;

use serde_json::{Value, json};

use crate::cluster::{Cluster, blocking};
use crate::demo::{self, note, seconds, tell};
use crate::error::{Error, Result};
use crate::operator::Operator;
use crate::tools::{PATIENCE, Part};
use crate::tyk::{self, Tyk, Which};
use crate::{image, net::Answer, wait};

/// Hostname of the demo's route.
pub const HOST: &str = "shop.example.test";
/// Namespace of the application and its route.
pub const NAMESPACE: &str = "shop";
/// Namespace of Tyk, its connection and the Gateway.
const PLATFORM: &str = "tyk";
/// Path of the route.
pub const PATH: &str = "/orders";
const STEPS: usize = 9;

/// What it runs on its node, besides a Tyk Gateway that is given.
const PARTS: [Part; 2] = [Part::Helm, Part::TestApp];

/// The GatewayClass is made with the connection; this is what a platform team adds.
const GATEWAY: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: tyk}
spec:
  gatewayClassName: tyk
  listeners:
    - name: http
      protocol: HTTP
      port: 80
      allowedRoutes: {namespaces: {from: All}}
";

/// What an application team writes.
const ROUTE: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: public, namespace: tyk}]
  hostnames: [shop.example.test]
  rules:
    - matches: [{path: {type: PathPrefix, value: /orders}}]
      backendRefs: [{name: web, port: 80}]
";

fn step(number: usize, title: &str, why: &str) {
    demo::step_of(number, STEPS, title, why);
}

/// Says what comes and builds what is missing.
///
/// # Errors
/// When something cannot be built, or a Tyk Gateway is given by half.
pub fn prepare() -> Result<()> {
    tell(
        "Routewright makes Tyk serve Gateways and HTTPRoutes. You will see one HTTP request, always the same, sent to a",
    );
    tell(
        "Tyk: it fails, then an HTTPRoute makes it work, then a route that Tyk cannot serve is refused, by name.",
    );
    step(
        1,
        "Programs",
        "Kubernetes, the operator and a Tyk, built from source once and kept in a cache.",
    );
    Which::given()?;
    demo::programs(&[&Part::NODE[..], &PARTS].concat())
}

/// Runs the demo on a cluster that has been up since `started`; `keep` leaves the route served. Returns the command that
/// asks for its page.
///
/// # Errors
/// The step that failed.
pub async fn run(cluster: &'static Cluster, started: Instant, keep: bool) -> Result<String> {
    note(format!("up after {}", seconds(started)));

    let which = Which::given()?.unwrap_or(Which::Double);
    let what = match which {
        Which::Double => {
            "The stand-in that the tests use, since no Tyk Gateway is given (TYK_GATEWAY_BIN): it takes the same calls to the\n\
             REST API as an open-source gateway and serves what was written. One Pod behind a Service."
        }
        Which::Real { .. } => {
            "The open-source Tyk Gateway that you gave, with Redis. One Pod behind a Service."
        }
    };
    step(3, "Tyk", what);
    let begun = Instant::now();
    for namespace in [PLATFORM, NAMESPACE] {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
        ))?;
    }
    let tyk = Tyk::deploy(cluster, PLATFORM, which).await?;
    note(format!(
        "serves on {}, with no APIs, after {}",
        tyk.address,
        seconds(begun)
    ));

    step(
        4,
        "Routewright, from its Helm chart",
        "As a Pod, with the rights that Gateway API on Tyk needs, and nothing else.",
    );
    let begun = Instant::now();
    cluster.gateway_crds("standard").await?;
    note("values: tyk.enabled = true");
    // Its log is read by people here.
    let values = json!({"tyk": {"enabled": true}, "logLevel": "info"});
    let operator = Operator::pod(cluster, values).await?;
    note(format!("ready after {}", seconds(begun)));
    // The node takes it along; a kept one needs it.
    std::mem::forget(operator);

    story(cluster, &tyk, keep).await?;
    Ok(format!("curl -s -H 'Host: {HOST}' http://{}{PATH}", tyk.address))
}

async fn story(cluster: &'static Cluster, tyk: &Tyk, keep: bool) -> Result<()> {
    step(
        5,
        "The platform's side: how Tyk is reached, and a Gateway",
        "A Secret and an OperatorContext are the connection; a GatewayClass names it; a Gateway is of that class.",
    );
    tyk.class("tyk", "routewright.dev/tyk")?;
    note("The Secret \"tyk\" has TYK_MODE, TYK_URL, TYK_AUTH and TYK_ORG. What refers to it:");
    let spec = [
        "-n",
        PLATFORM,
        "get",
        "operatorcontext/tyk",
        "gatewayclass/tyk",
        "-o",
    ];
    let each = r#"jsonpath={range .items[*]}{.kind}: {.spec}{"\n"}{end}"#;
    kubectl(cluster, &[&spec[..], &[each]].concat())?;
    apply(cluster, GATEWAY)?;
    says(
        cluster,
        PLATFORM,
        "gateway/public",
        "/status/conditions",
        "Programmed",
        "True",
    )
    .await?;
    kubectl(cluster, &["-n", PLATFORM, "get", "gatewayclass,gateway"])?;

    step(
        6,
        "An application, and nothing that leads to it",
        "A Pod that answers with what it was asked, and its Service.",
    );
    cluster.load_part(Part::TestApp).await?;
    cluster.apply(&application().to_string())?;
    cluster.kubectl([
        "-n",
        NAMESPACE,
        "wait",
        "--for=condition=Ready",
        "pod/web",
        "--timeout=120s",
    ])?;
    let answer = request(tyk).await?;
    expect(&answer, 404, "before there is a route")?;
    note("FAILS, as it should: Tyk knows no such host and path.");

    step(
        7,
        "An HTTPRoute",
        "Routewright writes one API into Tyk, has it loaded, asks whether it is served, and then says so on the route.",
    );
    let begun = Instant::now();
    apply(cluster, ROUTE)?;
    accepted(cluster, "True").await?;
    note(format!("Accepted after {}. What Tyk has now:", seconds(begun)));
    show(tyk).await?;
    kubectl(cluster, &SAID)?;
    let answer = request(tyk).await?;
    expect(&answer, 200, "with an accepted route")?;
    note("The application, through Tyk.");

    step(
        8,
        "What Tyk cannot serve is refused, and the refusal names the field",
        "Tyk chooses an API by host and path. A match by header would be served to everybody, so it is not served at all.",
    );
    let headers =
        r#"[{"op":"add","path":"/spec/rules/0/matches/0/headers","value":[{"name":"x-team","value":"a"}]}]"#;
    let patch = [
        "-n",
        NAMESPACE,
        "patch",
        "httproute",
        "shop",
        "--type=json",
        "-p",
        headers,
    ];
    kubectl(cluster, &patch)?;
    accepted(cluster, "False").await?;
    kubectl(cluster, &SAID)?;
    let answer = request(tyk).await?;
    expect(&answer, 404, "with a refused route")?;
    note("FAILS, as it should. Back to the route as it was:");
    apply(cluster, ROUTE)?;
    accepted(cluster, "True").await?;
    let answer = request(tyk).await?;
    expect(&answer, 200, "with the route as it was")?;

    if keep {
        step(STEPS, "The route stays", "You asked for it (--keep).");
        return Ok(());
    }
    step(
        STEPS,
        "The route is deleted",
        "It stays, by a finalizer, until its API is gone from Tyk.",
    );
    kubectl(
        cluster,
        &["-n", NAMESPACE, "delete", "httproute", "shop", "--timeout=60s"],
    )?;
    show(tyk).await?;
    if !tyk.apis().await?.is_empty() {
        return Err(Error::other("an API is left in Tyk after its route is gone"));
    }
    let answer = request(tyk).await?;
    expect(&answer, 404, "after the route is gone")?;
    note("FAILS again, and nothing is left in Tyk.");
    Ok(())
}

/// What the route says of its one Gateway.
const SAID: [&str; 7] = [
    "-n",
    NAMESPACE,
    "get",
    "httproute",
    "shop",
    "-o",
    r#"jsonpath={range .status.parents[0].conditions[*]}{.type}{"\t"}{.status}{"\t"}{.reason}{"\t"}{.message}{"\n"}{end}"#,
];

fn application() -> Value {
    let labels = json!({"app": "web"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": NAMESPACE, "labels": labels},
         "spec": {"containers": [{"name": "app", "image": image::TESTAPP, "imagePullPolicy": "Never",
             "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}}]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
         "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}},
    ]})
}

/// Applies a manifest, shown as it is.
fn apply(cluster: &Cluster, manifest: &str) -> Result<()> {
    note("$ kubectl apply -f - <<'END'");
    note(manifest);
    note("END");
    cluster.apply(manifest).map(drop)
}

/// Runs kubectl, and shows command and output.
fn kubectl(cluster: &Cluster, words: &[&str]) -> Result<()> {
    let shown: Vec<String> = words
        .iter()
        .map(|word| match word.contains(['{', '[', ' ']) {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        })
        .collect();
    note(format!("$ kubectl {}", shown.join(" ")));
    note(cluster.kubectl(words)?);
    Ok(())
}

/// The request of the demo, shown with its answer.
async fn request(tyk: &Tyk) -> Result<Answer> {
    note(format!("$ curl -H 'Host: {HOST}' http://{}{PATH}", tyk.address));
    let answer = tyk.get(HOST, PATH).await?;
    note(format!("HTTP {} {}", answer.status, answer.text().trim()));
    Ok(answer)
}

fn expect(answer: &Answer, status: u16, when: &str) -> Result<()> {
    if answer.status == status && (status != 200 || answer.text().contains(PATH)) {
        return Ok(());
    }
    Err(Error::other(format!(
        "HTTP {} {when}, and not {status}",
        answer.status
    )))
}

/// The APIs that Tyk has, by id, with what they listen on and lead to.
async fn show(tyk: &Tyk) -> Result<()> {
    note(format!(
        "$ curl -H \"x-tyk-authorization: $SECRET\" {}/tyk/apis/oas",
        tyk.url()
    ));
    let apis = tyk.apis().await?;
    if apis.is_empty() {
        note("[]");
    }
    for (id, api) in apis {
        let text = |pointer: &str| api.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
        note(format!(
            "{id}: {}{} -> {}",
            text("/x-tyk-api-gateway/server/customDomain/name"),
            text("/x-tyk-api-gateway/server/listenPath/value"),
            text("/x-tyk-api-gateway/upstream/url"),
        ));
    }
    Ok(())
}

async fn accepted(cluster: &'static Cluster, status: &str) -> Result<()> {
    let conditions = "/status/parents/0/conditions";
    says(
        cluster,
        NAMESPACE,
        "httproute/shop",
        conditions,
        "Accepted",
        status,
    )
    .await
}

/// Waits until an object says this of its present generation.
async fn says(
    cluster: &'static Cluster,
    namespace: &'static str,
    object: &'static str,
    conditions: &str,
    type_: &str,
    status: &str,
) -> Result<()> {
    wait::eventually(&format!("{type_} {status} of {object}"), PATIENCE, || async {
        let read = move || cluster.kubectl(["-n", namespace, "get", object, "-o", "json"]);
        let found = blocking(read).await.map_err(|e| e.to_string())?;
        let found: Value = serde_json::from_str(&found).map_err(|e| e.to_string())?;
        let list = found.pointer(conditions).and_then(Value::as_array);
        let current = |c: &&Value| {
            c.get("type").is_some_and(|t| t == type_)
                && c.get("observedGeneration") == found.pointer("/metadata/generation")
        };
        match list.into_iter().flatten().find(current) {
            Some(c) if c.get("status").is_some_and(|s| s == status) => Ok(()),
            _ => Err(found.get("status").map(Value::to_string).unwrap_or_default()),
        }
    })
    .await
}

/// Port of the Gateway; the demo's text has it too.
const _: () = assert!(tyk::HTTP == 80);
