//! What the pure half of Gateway API on Tyk costs at 5 000 routes: everything from scratch, one edit, memory.
//!
//! `cargo bench -p routewright --bench tyk`. Figures are printed, not judged, because machines differ; goals stand
//! beside them.
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

/// A route with its own host, two rules, a header filter: two APIs.
fn route(i: usize, version: usize) -> Value {
    let namespace = format!("team-{:02}", i % NAMESPACES);
    let backend = json!([{"name": format!("web-{:03}", i % SERVICES), "port": 8080}]);
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {
            "name": format!("route-{i:04}"), "namespace": namespace, "uid": format!("00000000-0000-0000-0000-{i:012}"),
            "generation": 1, "creationTimestamp": "2026-11-30T00:00:00Z",
        },
        "spec": {
            "parentRefs": [{"name": "edge", "namespace": "infra"}],
            "hostnames": [format!("site-{i:04}.example.com")],
            "rules": [
                {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": backend},
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/api"}}],
                    "filters": [{"type": "RequestHeaderModifier",
                        "requestHeaderModifier": {"set": [{"name": "X-Version", "value": format!("v{version}")}]}}],
                    "backendRefs": backend,
                },
            ],
        },
    })
}

fn world() -> Vec<Event> {
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
    events.extend((0..ROUTES).map(|i| seen(&route(i, 0))));
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

fn main() {
    if cfg!(debug_assertions) {
        println!("a debug build: the times mean nothing");
    }
    let settings = Settings::default();
    let events = world();

    let base = IN_USE.load(Ordering::Relaxed);
    let mut model = Model::new(settings.clone());
    let ours = events.clone();
    let start = Instant::now();
    model.apply_all(ours);
    let modelled = start.elapsed();
    let (apis, bytes) = (0..ROUTES).fold((0, 0), |(a, b), i| {
        let (count, bytes) = documents(&model, &key(i), &settings);
        (a + count, b + bytes)
    });
    let whole = start.elapsed();
    let held = IN_USE.load(Ordering::Relaxed) - base;
    println!("{ROUTES} routes, {apis} APIs, {} kB of documents", bytes / 1_000);
    row(
        "model from scratch, at once",
        format!("{:.0} ms", modelled.as_secs_f64() * 1e3),
        "",
    );
    row(
        "model and translation from scratch",
        format!("{:.0} ms", whole.as_secs_f64() * 1e3),
        "goal < 1 s",
    );
    row(
        "memory of the model",
        format!("{:.1} MB", held as f64 / 1e6),
        "goal < 40 MB",
    );

    // One by one, the Gateway last: the worst order for an incremental model.
    let mut one_by_one = Model::new(settings.clone());
    let mut late = events;
    late.reverse();
    let start = Instant::now();
    for event in late {
        one_by_one.apply(event);
    }
    row(
        "model from scratch, event by event, Gateway last",
        format!("{:.0} ms", start.elapsed().as_secs_f64() * 1e3),
        "",
    );
    drop(one_by_one);

    let mut times: Vec<f64> = (0..500)
        .map(|n| {
            let i = n * 7 % ROUTES;
            let event = seen(&route(i, n + 1));
            let start = Instant::now();
            let changes = model.apply(event);
            let (count, _) = documents(&model, &key(i), &settings);
            assert_eq!((changes.routes.len(), count), (1, 2));
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let most = times.last().copied().unwrap_or_default();
    row(
        "one edit among them, and its translation: mean",
        format!("{mean:.3} ms"),
        "goal < 1 ms",
    );
    row("… the slowest of 500", format!("{most:.3} ms"), "");
    let start = Instant::now();
    model.apply(seen(&route(ROUTES, 0)));
    row(
        "one route more (counts of the Gateway move)",
        format!("{:.3} ms", start.elapsed().as_secs_f64() * 1e3),
        "",
    );
}
