//! Traces, told by the program as a process against the in-process API server and a real OTLP/gRPC receiver: one trace
//! per reconcile, whole and without secrets; nothing while idle; a collector that is away harms nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use reconcile_kit::testing::{ApiServer, Verb};
use serde_json::{Value, json};
use tonic::transport::{Identity, Server, ServerTlsConfig};

mod collector;
#[path = "../support/tyk_places.rs"]
mod places;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
mod tyk;
#[path = "../support/tyk_gateway.rs"]
mod tyk_gateway;
#[path = "../support/tyk_objects.rs"]
mod tyk_objects;

use collector::{Collector, attributes, hex, nowhere, reserved};
use process::{Folder, LIMIT, Running, on_a_socket};

// --- a cluster ---------------------------------------------------------------------------------------------------------

const TOKEN: &str = "a-token-that-nobody-may-see";

/// The CRDs, a running cluster with a bucket `web/blog` that is exposed, and a handle of a Garage at `garage`.
fn cluster(garage: SocketAddr) -> ApiServer {
    let server = ApiServer::new();
    server.namespace("web").namespace("default");
    for crd in routewright_crds::all().unwrap() {
        server.create(json!(crd));
    }
    server.create(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "public"},
        "spec": {"controller": "example.org/controller"},
    }));
    server.create(json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "garage"},
        "spec": {"storage": {"replicas": 1}, "webApi": {"rootDomain": ".site.test"}},
    }));
    server.set_status("GarageCluster", "web", "garage", json!({"phase": "Running"}));
    let token = k8s_openapi::ByteString(TOKEN.as_bytes().to_vec());
    server.create(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"namespace": "web", "name": "garage-admin"}, "data": {"admin-token": token},
    }));
    server.create(json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "elsewhere"},
        "spec": {"connectTo": {
            "adminApiEndpoint": format!("http://{garage}"), "adminTokenSecretRef": {"name": "garage-admin"},
        }},
    }));
    server.create(json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog"},
        "spec": {
            "clusterRef": {"name": "garage"}, "website": {"enabled": true},
            "websiteExposure": {"ingress": {"ingressClassName": "public"}},
        },
    }));
    server.set_status(
        "GarageBucket",
        "web",
        "blog",
        json!({"bucketId": "b1", "globalAlias": "blog", "phase": "Ready"}),
    );
    server
}

/// A Garage that is not well: every call is answered with 503.
async fn garage() -> SocketAddr {
    let router = axum::Router::new().fallback(|| async { axum::http::StatusCode::SERVICE_UNAVAILABLE });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Waits until `wanted` gives something.
async fn eventually<T>(what: &str, mut wanted: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(found) = wanted().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not come about");
}

async fn exposed(server: &ApiServer) {
    eventually("an Ingress", async || {
        server.get("Ingress", "web", "blog-website")
    })
    .await;
    eventually("WebsiteExposed", async || {
        let bucket = server.get("GarageBucket", "web", "blog")?;
        let conditions = bucket["status"]["conditions"].as_array()?;
        conditions.iter().find(|c| c["reason"] == "Exposed").cloned()
    })
    .await;
}

/// How many reconciles the operator has counted.
async fn counted(operator: &Running) -> Option<u64> {
    let answer = reqwest::get(format!("http://{}/metrics", operator.metrics))
        .await
        .ok()?;
    let text = answer.text().await.ok()?;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("controller_runtime_reconcile_total{"));
    Some(
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum(),
    )
}

fn children<'a>(spans: &'a [Span], root: &'a Span) -> impl Iterator<Item = &'a Span> {
    spans.iter().filter(|span| span.parent_span_id == root.span_id)
}

/// Whether there was this call in a reconcile, with this answer.
fn called(spans: &[Span], root: &Span, call: &str, of: &str, code: &str) -> bool {
    children(spans, root).any(|span| {
        let said = attributes(&span.attributes);
        let code_of = said.get("http.status_code").map(String::as_str);
        span.name == call && said["http.url"].contains(of) && code_of == Some(code)
    })
}

/// The reconciles of exposure by an Ingress.
fn exposures(spans: &[Span]) -> impl Iterator<Item = &Span> {
    spans.iter().filter(|span| {
        span.name == "reconcile" && attributes(&span.attributes)["controller"] == "ingress-exposure"
    })
}

/// The reconcile that wrote that the bucket is exposed.
fn made(spans: &[Span]) -> Option<&Span> {
    let status = |root: &&Span| called(spans, root, "patch_status", "/garagebuckets/blog/status", "200");
    exposures(spans).find(status)
}

const FLAGS: [&str; 3] = ["--enable-ingress", "--log-format=json", "--instance=sites"];

// --- stories -----------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn each_reconcile_is_one_trace_with_its_calls_and_nothing_else_is_one() {
    let folder = Folder::new();
    let collector = Collector::default();
    let endpoint = format!("http://{}", collector.listen(nowhere()));
    let server = cluster(garage().await);
    let address = on_a_socket(&server).await;
    // given: an operator with a lease, the Garage controllers, and the variables that OpenTelemetry names
    let mut operator = Running::start_with(
        &folder,
        &format!("http://{address}"),
        &[FLAGS.as_slice(), &["--enable-garage-buckets"]].concat(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=web"),
            ("OTEL_SERVICE_NAME", "sites"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("POD_NAME", "rw-0"),
        ],
    );
    exposed(&server).await;

    // then: as many traces as reconciles, each with one root. What runs has sent calls and no root yet, and those that
    // are looked at below must have come.
    let told = async || {
        let (counted, spans) = (counted(&operator).await?, collector.spans());
        let roots = spans.iter().filter(|span| span.name == "reconcile");
        let ended: BTreeSet<_> = roots.map(|span| span.trace_id.clone()).collect();
        let whole = spans.iter().all(|span| ended.contains(&span.trace_id));
        let garage = spans.iter().any(|span| span.name == "GetClusterHealth");
        let settled = counted == ended.len() as u64 && counted > 3;
        (settled && whole && garage && made(&spans).is_some()).then_some(spans)
    };
    let spans = eventually("as many whole traces as reconciles", told).await;
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(ids.len(), spans.len(), "a span was sent twice");
    let mut traces: BTreeMap<Vec<u8>, Vec<&Span>> = BTreeMap::new();
    for span in &spans {
        traces.entry(span.trace_id.clone()).or_default().push(span);
    }
    for (trace, spans) in &traces {
        let roots: Vec<_> = spans
            .iter()
            .filter(|span| span.parent_span_id.is_empty())
            .collect();
        assert_eq!(
            roots.len(),
            1,
            "trace {} has {} roots: {spans:#?}",
            hex(trace),
            roots.len()
        );
        assert_eq!(roots[0].name, "reconcile");
        for span in spans.iter().filter(|span| !span.parent_span_id.is_empty()) {
            let parent = spans.iter().find(|other| other.span_id == span.parent_span_id);
            assert!(parent.is_some(), "{} has a parent in another trace", span.name);
        }
    }

    // and: the reconcile that exposed the bucket says what it was about, and its calls are its children. The Garage
    // controllers write to the same bucket, so it may have been the second one.
    assert!(exposures(&spans).any(|root| called(&spans, root, "patch", "/ingresses/blog-website", "201")));
    let made = made(&spans).expect("the reconcile that wrote the status");
    let said = attributes(&made.attributes);
    for (attribute, value) in [
        ("k8s.namespace.name", "web"),
        ("object.kind", "GarageBucket"),
        ("object.name", "blog"),
        ("generation", "1"),
        ("outcome", "success"),
    ] {
        assert_eq!(
            said.get(attribute).map(String::as_str),
            Some(value),
            "{attribute} in {said:?}"
        );
    }
    assert!(!said["object.uid"].is_empty());
    assert!(said["attempt"].parse::<u32>().is_ok(), "{said:?}");
    assert!(children(&spans, made).all(|span| span.kind == SpanKind::Client as i32));

    // and: so is the call to a Garage that is not well, with its class and without its secrets
    let call = spans
        .iter()
        .find(|span| span.name == "GetClusterHealth")
        .expect("the call to Garage");
    let root = spans
        .iter()
        .find(|span| span.span_id == call.parent_span_id)
        .unwrap();
    assert_eq!(attributes(&root.attributes)["controller"], "garage-cluster");
    let said = attributes(&call.attributes);
    assert_eq!(said["http.response.status_code"], "503", "{said:?}");
    assert_eq!(said["error.class"], "unavailable");
    assert_eq!(said["server.address"], "127.0.0.1");
    let sent = format!("{spans:?}");
    assert!(!sent.contains(TOKEN), "the token is in a span");

    // and: who sent is told, as the environment says
    {
        let received = collector.0.lock().unwrap();
        for (attribute, value) in [
            ("service.name", "sites"),
            ("deployment.environment.name", "test"),
            ("k8s.pod.name", "rw-0"),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ] {
            assert_eq!(
                received.resource.get(attribute).map(String::as_str),
                Some(value),
                "{:?}",
                received.resource
            );
        }
        assert_eq!(received.tenant.as_deref(), Some("web"));
    }

    // and: the log lines of that reconcile name its trace
    let (code, log) = operator.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(TOKEN), "the token is in the log");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let transitions = lines.iter().filter(|line| line["condition"] == "WebsiteExposed");
    let named: Vec<_> = transitions.map(|line| line["trace_id"].clone()).collect();
    assert!(named.contains(&json!(hex(&made.trace_id))), "{named:?}\n{log}");
    let start = lines
        .iter()
        .find(|line| line["message"] == "routewright starts")
        .unwrap();
    assert!(start.get("trace_id").is_none(), "{start}");
    assert_eq!(start["traces"], endpoint);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_operator_sends_no_span() {
    let folder = Folder::new();
    let collector = Collector::default();
    let endpoint = format!("http://{}", collector.listen(nowhere()));
    let server = cluster(nowhere());
    let address = on_a_socket(&server).await;
    let operator = Running::start_with(
        &folder,
        &format!("http://{address}"),
        &FLAGS,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ],
    );
    exposed(&server).await;
    let settled = async || {
        let (counted, sent) = (counted(&operator).await?, collector.reconciles().len() as u64);
        (counted == sent && counted > 0).then_some(())
    };
    eventually("as many traces as reconciles", settled).await;
    let renewals = || {
        let calls = server.calls();
        let writes = calls
            .iter()
            .filter(|call| call.resource == "leases" && call.verb != Verb::Get);
        writes.count()
    };
    // (its own writes may bring one more look: until there was none for as long as a renewal takes)
    let mut last = (u64::MAX, 0);
    eventually("no more looks", async || {
        let (counted, renewals) = (counted(&operator).await?, renewals());
        if counted != last.0 {
            last = (counted, renewals);
        }
        (renewals >= last.1 + 2 && counted == collector.reconciles().len() as u64).then_some(())
    })
    .await;
    // when: nothing happens but that the lease is renewed, twice
    let (before, spans) = (renewals(), collector.spans().len());
    eventually("two renewals of the lease", async || {
        (renewals() >= before + 2).then_some(())
    })
    .await;
    // then: nothing was sent, and nothing reconciled
    assert_eq!(collector.spans().len(), spans, "{:#?}", collector.spans());
    assert_eq!(
        counted(&operator).await,
        Some(collector.reconciles().len() as u64)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_sent_yet_is_sent_at_the_end() {
    let folder = Folder::new();
    let collector = Collector::default();
    let endpoint = format!("http://{}", collector.listen(nowhere()));
    let server = cluster(nowhere());
    let address = on_a_socket(&server).await;
    // given: a batch that is sent once in an hour
    let mut operator = Running::start_with(
        &folder,
        &format!("http://{address}"),
        &FLAGS,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        ],
    );
    exposed(&server).await;
    assert_eq!(collector.spans().len(), 0);
    // when: it is asked to end
    let (code, log) = operator.terminate();
    // then: everything is there
    assert_eq!(code, Some(0), "{log}");
    assert!(!collector.reconciles().is_empty());
    assert!(
        collector.spans().iter().any(|span| span.name == "patch"),
        "{:#?}",
        collector.spans()
    );
}

/// Encryption is rustls with aws-lc-rs, and trusts the extra certificates beside the system's.
#[tokio::test(flavor = "multi_thread")]
async fn traces_are_encrypted_for_a_collector_with_a_private_certificate() {
    let folder = Folder::new();
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let identity = Identity::from_pem(signed.cert.pem(), signed.signing_key.serialize_pem());
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .unwrap();
    let collector = Collector::default();
    let endpoint = format!("https://{}", collector.listen_as(nowhere(), server));
    let trusted = folder.file("ca.pem", &signed.cert.pem()).display().to_string();
    for (variable, sent) in [
        (None, false),
        (Some("EXTRA_CA_FILE"), true),
        (Some("OTEL_EXPORTER_OTLP_CERTIFICATE"), true),
    ] {
        let server = cluster(nowhere());
        let address = on_a_socket(&server).await;
        let mut variables = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
        variables.extend(variable.map(|name| (name, trusted.as_str())));
        let mut operator = Running::start_with(&folder, &format!("http://{address}"), &FLAGS, &variables);
        exposed(&server).await;
        let (code, log) = operator.terminate();
        assert_eq!(code, Some(0), "{log}");
        assert_eq!(!collector.reconciles().is_empty(), sent, "{variable:?}\n{log}");
        collector.0.lock().unwrap().spans.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_harms_nothing_and_is_said_once() {
    let folder = Folder::new();
    // given: an address at which nobody listens yet, and a queue for two spans
    let collector = Collector::default();
    let (place, address) = reserved();
    let endpoint = format!("http://{address}");
    let server = cluster(nowhere());
    let api = on_a_socket(&server).await;
    let mut operator = Running::start_with(
        &folder,
        &format!("http://{api}"),
        &FLAGS,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            // It tries as long as this before it says so, and a collector that is there may be slow.
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "2"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
        ],
    );
    // when: it works as ever, with many changes
    exposed(&server).await;
    for round in 0..20_u32 {
        let host = format!("blog{round}.site.test");
        server.set_status(
            "GarageBucket",
            "web",
            "blog",
            json!({"bucketId": "b1", "globalAlias": format!("blog{round}"), "phase": "Ready"}),
        );
        eventually(&host, async || {
            let ingress = server.get("Ingress", "web", "blog-website")?;
            // (until it has said so: who writes the same status in between makes it wait, ever longer)
            let bucket = server.get("GarageBucket", "web", "blog")?;
            let said = &bucket["status"]["websiteExposure"]["hostnames"];
            (ingress["spec"]["rules"][0]["host"] == *host && *said == json!([host])).then_some(())
        })
        .await;
    }
    let says = async |text: &str| {
        eventually(text, async || operator.log_so_far().contains(text).then_some(())).await;
    };
    says("traces cannot be sent").await;
    // and: the collector comes
    collector.listen_in(place);
    let mut round = 0_u32;
    eventually("a span", async || {
        round += 1;
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        server.edit("GarageBucket", "web", "blog", label);
        (!collector.spans().is_empty()).then_some(())
    })
    .await;
    says("traces are sent again").await;
    // then: it ended well, and said it once, as it did that it was over
    let (code, log) = operator.terminate();
    assert_eq!(code, Some(0), "{log}");
    let said = |text: &str| log.matches(text).count();
    assert_eq!(said("traces cannot be sent"), 1, "{log}");
    assert_eq!(said("traces are sent again"), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_off_is_not_there() {
    let collector = Collector::default();
    let endpoint = format!("http://{}", collector.listen(nowhere()));
    let exporter = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let names =
            tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
        names.into_iter().any(|name| name.starts_with("OpenTelemetry"))
    };
    for (variables, there) in [
        (vec![], false),
        (
            vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
                ("OTEL_SDK_DISABLED", "true"),
            ],
            false,
        ),
        (
            vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
                ("OTEL_TRACES_SAMPLER", "always_off"),
            ],
            true,
        ),
    ] {
        let folder = Folder::new();
        let server = cluster(nowhere());
        let address = on_a_socket(&server).await;
        let mut operator = Running::start_with(&folder, &format!("http://{address}"), &FLAGS, &variables);
        exposed(&server).await;
        assert_eq!(exporter(operator.pid()), there, "{variables:?}");
        let (code, log) = operator.terminate();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("trace_id"), "{log}");
    }
    assert_eq!(collector.spans().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_is_changed_while_running_and_nonsense_is_refused() {
    let folder = Folder::new();
    let server = cluster(nowhere());
    let address = on_a_socket(&server).await;
    let mut operator = Running::start(&folder, &format!("http://{address}"), &FLAGS);
    exposed(&server).await;
    let url = format!("http://{}/loglevel", operator.probes);
    let client = reqwest::Client::new();
    let put = async |level: &'static str| {
        let answer = client.put(&url).body(level).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let get = async || client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(get().await, "info\n");
    // given: what is no filter is refused in one clear line, and nothing changes
    for (level, said) in [
        ("chatty", "\"chatty\" is no level"),
        ("", "is empty"),
        ("a=b=c", "is no filter"),
    ] {
        let (code, text) = put(level).await;
        assert_eq!(code, 400, "{text}");
        assert!(text.contains(said) && text.lines().count() == 1, "{text}");
    }
    assert_eq!(get().await, "info\n");
    // when: the level is raised and something happens
    assert_eq!(
        put("debug,hyper_util=off").await,
        (200, "debug,hyper_util=off\n".to_owned())
    );
    assert_eq!(get().await, "debug,hyper_util=off\n");
    server.delete("Ingress", "web", "blog-website");
    eventually("the Ingress again", async || {
        server.get("Ingress", "web", "blog-website")
    })
    .await;
    // then: it is seen
    let (_, log) = operator.terminate();
    assert!(log.lines().any(|line| line.contains("\"DEBUG\"")), "{log}");
    assert!(log.contains("\"message\":\"log level\""), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_comes_while_it_starts_ends_it_in_good_order() {
    let folder = Folder::new();
    let collector = Collector::default();
    let endpoint = format!("http://{}", collector.listen(nowhere()));
    // given: nobody at the address of the API server
    let mut operator = Running::start_with(
        &folder,
        "http://127.0.0.1:9",
        &FLAGS,
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)],
    );
    // when: it is asked to end as soon as it listens, which is before anything else of it runs
    eventually("it listens", async || {
        tokio::net::TcpStream::connect(operator.probes).await.ok()
    })
    .await;
    let (code, log) = operator.terminate();
    // then: it ends by itself
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"message\":\"stopped\""), "{log}");
}
