//! What the pure half of Gateway API on Tyk costs at 5 000 routes: everything from scratch, one edit, memory.
//!
//! `cargo bench -p routewright --bench tyk`. Figures are printed, not judged, because machines differ; goals stand
//! beside them. Times are of this thread on a CPU (where Linux tells), so that what else the machine does is not ours.
#![allow(
    unsafe_code, // a counting allocator cannot be written without; it only counts and passes on
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicI64, Ordering},
    time::Instant,
};

use routewright::tyk::{
    Settings,
    model::Model,
    objects::{Event, Key, Object},
    translate::translate,
};
use serde_json::{Value, json};

struct Counting;

/// Bytes in use.
static IN_USE: AtomicI64 = AtomicI64::new(0);

fn add(size: usize) {
    IN_USE.fetch_add(size as i64, Ordering::Relaxed);
}

fn sub(size: usize) {
    IN_USE.fetch_sub(size as i64, Ordering::Relaxed);
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        sub(layout.size());
        unsafe { System.realloc(old, layout, size) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        sub(layout.size());
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

const ROUTES: usize = 5_000;
/// Routes share their Services, as the hosts of a shop do.
const SERVICES: usize = 500;
const NAMESPACES: usize = 50;

fn seen(value: &Value) -> Event {
    Event::Seen(Box::new(Object::decode(value).unwrap().unwrap()))
}

/// A route with its own host: one rule, or two of which one has a header filter.
fn route(i: usize, version: usize, rules: usize) -> Value {
    let namespace = format!("team-{:02}", i % NAMESPACES);
    let backend = json!([{"name": format!("web-{:03}", i % SERVICES), "port": 8080}]);
    let all = [
        json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": backend}),
        json!({
            "matches": [{"path": {"type": "PathPrefix", "value": "/api"}}],
            "filters": [{"type": "RequestHeaderModifier",
                "requestHeaderModifier": {"set": [{"name": "X-Version", "value": format!("v{version}")}]}}],
            "backendRefs": backend,
        }),
    ];
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {
            "name": format!("route-{i:04}"), "namespace": namespace, "uid": format!("00000000-0000-0000-0000-{i:012}"),
            "generation": 1, "creationTimestamp": "2026-11-30T00:00:00Z",
        },
        "spec": {
            "parentRefs": [{"name": "edge", "namespace": "infra"}],
            "hostnames": [format!("site-{i:04}-{version}.example.com")],
            "rules": all.into_iter().take(rules).collect::<Vec<_>>(),
        },
    })
}

fn world(rules: usize) -> Vec<Event> {
    let mut events = vec![
        seen(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "tyk"},
            "spec": {"controllerName": "routewright.dev/tyk", "parametersRef": {
                "group": "tyk.tyk.io", "kind": "OperatorContext", "name": "class", "namespace": "infra"}},
        })),
        seen(&json!({
            "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
            "metadata": {"name": "class", "namespace": "infra"},
            "spec": {
                "env": {"mode": "pro", "url": "http://dashboard:3000", "auth": "bench", "org": "org"},
                "dataPlane": {"serviceRef": {"name": "tyk"}, "tags": ["edge"]},
            },
        })),
        seen(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "tyk", "namespace": "infra"},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80}]},
        })),
        seen(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "infra"},
            "spec": {"gatewayClassName": "tyk", "listeners": [
                {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}},
            ]},
        })),
    ];
    for i in 0..SERVICES {
        events.push(seen(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("web-{i:03}"), "namespace": format!("team-{:02}", i % NAMESPACES)},
            "spec": {"clusterIP": "10.0.0.2", "ports": [{"name": "http", "port": 8080}]},
        })));
    }
    events.extend((0..ROUTES).map(|i| seen(&route(i, 0, rules))));
    events
}

fn key(i: usize) -> Key {
    Key::new(format!("team-{:02}", i % NAMESPACES), format!("route-{i:04}"))
}

/// Translates every API of a route; how many there are, and how many bytes they come to.
fn documents(model: &Model, key: &Key, settings: &Settings) -> (usize, usize) {
    let verdict = model.route(key).unwrap();
    verdict.apis.iter().fold((0, 0), |(count, bytes), plan| {
        let api = translate(plan, settings).unwrap();
        (count + 1, bytes + api.document.to_string().len())
    })
}

fn row(name: &str, value: String, goal: &str) {
    println!("{name:<58} {value:>12}  {goal}");
}

/// Seconds that this thread has been on a CPU; without Linux, seconds since the first call.
fn clock() -> f64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let on_cpu = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    on_cpu.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

/// Milliseconds of CPU that something takes.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = clock();
    let result = work();
    (result, (clock() - start) * 1e3)
}

fn measure(rules: usize) {
    const EDITS: usize = 2_000;
    let settings = Settings::default();
    let events = world(rules);
    let base = IN_USE.load(Ordering::Relaxed);
    let mut model = Model::new(settings.clone());
    let ours = events.clone();
    let (_, modelled) = timed(|| model.apply_all(ours));
    let ((apis, bytes), translated) = timed(|| {
        (0..ROUTES).fold((0, 0), |(a, b), i| {
            let (count, bytes) = documents(&model, &key(i), &settings);
            (a + count, b + bytes)
        })
    });
    let held = IN_USE.load(Ordering::Relaxed) - base;
    println!(
        "{ROUTES} routes of {rules} rules: {apis} APIs, {} kB of documents",
        bytes / 1_000
    );
    row("  model from scratch, at once", format!("{modelled:.0} ms"), "");
    let whole = modelled + translated;
    row(
        "  model and translation from scratch",
        format!("{whole:.0} ms"),
        "goal < 1 s",
    );
    row(
        "  memory of the model",
        format!("{:.1} MB", held as f64 / 1e6),
        "goal < 40 MB",
    );

    // One by one, the Gateway last: the worst order for an incremental model.
    let mut one_by_one = Model::new(settings.clone());
    let mut late = events;
    late.reverse();
    let (_, worst) = timed(|| {
        for event in late {
            one_by_one.apply(event);
        }
    });
    row(
        "  model event by event, the Gateway last",
        format!("{worst:.0} ms"),
        "",
    );
    drop(one_by_one);

    // The hostname changes, and with it every API.
    let edits: Vec<(usize, Event)> = (0..EDITS)
        .map(|n| (n * 7 % ROUTES, n))
        .map(|(i, n)| (i, seen(&route(i, n + 1, rules))))
        .collect();
    let (_, edited) = timed(|| {
        for (i, event) in edits {
            let changes = model.apply(event);
            let (count, _) = documents(&model, &key(i), &settings);
            assert_eq!((changes.routes.len(), count), (1, rules));
        }
    });
    let mean = edited / EDITS as f64;
    row(
        "  one edit among them and its translation, mean",
        format!("{mean:.3} ms"),
        "goal < 1 ms",
    );
}

fn main() {
    if cfg!(debug_assertions) {
        println!("a debug build: the times mean nothing");
    }
    measure(1);
    measure(2);
}
