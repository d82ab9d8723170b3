//! Memory, counted where it is taken: what an actor keeps of many documents is printed, and what an answer to a route with a
//! large attached document takes is bounded. A program of its own, since it counts all that is taken.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "tyk_sync/stage.rs"]
mod stage;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicIsize, Ordering},
    },
};

use async_trait::async_trait;
use routewright::cli::translate::{Output, answer_for, input::Source, render};
use routewright::tyk::{
    Settings,
    client::{Bundle, Listed, StoredCertificate, TykApi, TykError},
    sync::{Actors, Connector, Syncing as _},
    translate::{Owner, stamp},
    verdict::{CertificateUse, Connection, Mode},
};
use serde_json::{Value, json};

use stage::{Stage, api, id, owner, settings, trusted};

struct Counting;

static TAKEN: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);
/// One test counts at a time.
static COUNTS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

// Counts and passes on.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let before = TAKEN.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        MOST.fetch_max(before + layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as it came.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as it came.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUTES: u32 = 500;
const EACH: u32 = 10;

/// A Tyk that holds nothing and knows what it should hold: every document is made when it is asked for.
struct Made;

fn route(n: u32) -> Owner {
    owner(&format!("r{}", n / EACH))
}

#[async_trait]
impl TykApi for Made {
    fn mode(&self) -> Mode {
        Mode::OpenSource
    }
    async fn get(&self, wanted: &str) -> Result<Option<Value>, TykError> {
        let n = u32::from_str_radix(wanted.trim_start_matches("gwapi-"), 16).unwrap();
        assert_eq!(id(n), wanted);
        Ok(Some(stamp(api(n, &format!("/p{n}")), &route(n)).document))
    }
    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        Ok(Vec::new())
    }
    async fn put(&self, _: &str, _: &Value, _: bool) -> Result<(), TykError> {
        panic!("nothing is to be written")
    }
    async fn delete(&self, _: &str) -> Result<bool, TykError> {
        panic!("nothing is to be deleted")
    }
    async fn reload(&self) -> Result<(), TykError> {
        Ok(())
    }
    async fn certificate(&self, _: &str) -> Result<Option<StoredCertificate>, TykError> {
        Ok(None)
    }
    async fn upload(&self, _: &str, _: &Bundle) -> Result<String, TykError> {
        panic!("nothing is to be uploaded")
    }
    async fn replace(&self, _: &str, _: &Bundle) -> Result<String, TykError> {
        panic!("nothing is to be uploaded")
    }
}

struct Ready;

#[async_trait]
impl Connector for Ready {
    async fn connect(&self, _: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        Ok(Arc::new(Made))
    }
    async fn bundle(&self, _: &CertificateUse) -> Result<Bundle, TykError> {
        panic!("there are no certificates")
    }
}

#[tokio::test]
async fn memory_of_five_thousand_documents_is_printed() {
    let _alone = COUNTS.lock().await;
    let stage = Stage::new(Mode::OpenSource).await;
    let actors = Actors::new(Arc::new(Ready), Arc::new(|_| ()), Arc::new(|| true), settings());
    let before = TAKEN.load(Ordering::SeqCst);
    for number in 0..ROUTES {
        let apis = (0..EACH).map(|n| number * EACH + n);
        let apis = apis.map(|n| api(n, &format!("/p{n}"))).collect();
        let done = actors
            .submit(&stage.connection, trusted(&format!("r{number}"), apis))
            .await;
        assert!(done.is_clean(), "{done:?}");
    }
    let kept = TAKEN.load(Ordering::SeqCst) - before;
    let documents = ROUTES * EACH;
    println!(
        "{documents} documents of {ROUTES} routes: {} KiB, {} bytes each",
        kept / 1024,
        kept / isize::try_from(documents).unwrap()
    );
    for number in 0..ROUTES {
        let known = actors.known(&routewright::tyk::objects::Key::new("shop", format!("r{number}")));
        assert_eq!(known[0].1.len(), 10);
    }
}

/// Manifests of a route with `hosts` hostnames and `paths` paths, and of a document with a list of `zeros` zeros: short as
/// text, large when it is parsed.
fn manifests(hosts: usize, paths: usize, zeros: usize) -> String {
    let gateway = "gateway.networking.k8s.io/v1";
    let hostnames: Vec<String> = (0..hosts).map(|n| format!("h{n}.example.com")).collect();
    let rules: Vec<Value> = (0..paths)
        .map(|n| json!({"matches": [{"path": {"value": format!("/p{n}")}}], "backendRefs": [{"name": "s", "port": 80}]}))
        .collect();
    let document = format!(
        "{{\"openapi\":\"3.0.3\",\"paths\":{{}},\"x-pad\":[{}],\"x-tyk-api-gateway\":{{}}}}",
        vec!["0"; zeros].join(",")
    );
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "tyk", "name": "c"},
            "stringData": {"TYK_MODE": "ce", "TYK_URL": "http://tyk", "TYK_AUTH": "x"}},
        {"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext", "metadata": {"namespace": "tyk", "name": "c"},
            "spec": {"secretRef": {"name": "c"}, "dataPlane": {"serviceRef": {"name": "gw"}}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "tyk", "name": "gw"},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}},
        {"apiVersion": gateway, "kind": "GatewayClass", "metadata": {"name": "tyk"},
            "spec": {"controllerName": "routewright.dev/tyk",
                "parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": "c", "namespace": "tyk"}}},
        {"apiVersion": gateway, "kind": "Gateway", "metadata": {"namespace": "tyk", "name": "g"},
            "spec": {"gatewayClassName": "tyk", "listeners": [{"name": "h", "protocol": "HTTP", "port": 80,
                "allowedRoutes": {"namespaces": {"from": "All"}}}]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "t", "name": "s"},
            "spec": {"clusterIP": "10.0.0.2", "ports": [{"port": 80}]}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "t", "name": "d"}, "data": {"k": document}},
        {"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition", "metadata": {"namespace": "t", "name": "d"},
            "spec": {"tykOAS": {"configmapRef": {"name": "d", "keyName": "k"}},
                "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r"}]}},
        {"apiVersion": gateway, "kind": "HTTPRoute", "metadata": {"namespace": "t", "name": "r"},
            "spec": {"parentRefs": [{"name": "g", "namespace": "tyk"}], "hostnames": hostnames, "rules": rules}},
    ]})
    .to_string()
}

/// What `routewright translate` prints for them as a table, and the most memory that it had taken.
fn answered(hosts: usize, paths: usize, zeros: usize) -> (String, isize) {
    let source = Source {
        name: "manifests".to_owned(),
        text: manifests(hosts, paths, zeros),
    };
    let before = TAKEN.load(Ordering::SeqCst);
    MOST.store(before, Ordering::SeqCst);
    let answer = answer_for(&[source], &Settings::default()).unwrap();
    let table = render(&answer, Output::Table).unwrap();
    (table, MOST.load(Ordering::SeqCst) - before)
}

#[tokio::test]
async fn a_large_document_for_many_apis_is_refused_before_it_takes_memory() {
    let _alone = COUNTS.lock().await;
    for (hosts, paths, zeros, says) in [
        (
            16,
            16,
            50_000,
            "ConfigMap t/d, key k: has 100063 bytes as JSON without white space, 65536 are the most",
        ),
        (
            16,
            16,
            30_000,
            "2097152 are the most: 256 APIs, each with the 60063 bytes of TykOasApiDefinition t/d",
        ),
        // The most that one route may come to.
        (16, 2, 30_000, "32 APIs"),
    ] {
        let (table, most) = answered(hosts, paths, zeros);
        let table: String = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.contains(says), "{table}");
        println!(
            "{hosts} hosts, {paths} paths, {zeros} numbers: {} KiB",
            most / 1024
        );
        assert!(most < 96 * 1024 * 1024, "{hosts} {paths} {zeros}: {most}");
    }
}
