//! Bad input with secrets in it: they are seen nowhere, nothing is half-applied, and nobody else is harmed.

use std::{cell::RefCell, sync::Once};

use serde_json::json;
use tracing_subscriber::fmt::format::FmtSpan;

use super::{
    bench::*,
    tyks::{Where, everywhere},
};

everywhere!(secrets_are_in_no_log_line_span_event_or_status,);

thread_local! {
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where each thread logs for itself: tests run side by side, and each in one thread.
struct Own;

impl std::io::Write for Own {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.extend_from_slice(bytes));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Logs and spans of this thread from now on. One subscriber for the program: one per thread is not seen by call sites
/// that another thread has come by before.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(|| Own)
            .init();
    });
}

const SECRETS: [&str; 4] = [
    "s3cret-credential",
    "s3cret-key",
    "s3cret-authorization",
    "s3cret-token",
];

async fn secrets_are_in_no_log_line_span_event_or_status(place: Where) {
    listen();
    let mut bench = Bench::at_with(&place, [route_named("neighbour", "n.example.com", &["/"])]).await;
    let neighbour = bench.tyk.at(URL);
    // given a definition with a credential in it, one that cannot be used, a broken key, a token in a header
    let document = json!({"openapi": "3.0.3", "info": {"title": "auth", "version": "1"}, "paths": {},
        "x-tyk-api-gateway": {"info": {"name": "auth", "state": {"active": true}},
            "upstream": {"url": "http://user:s3cret-token@elsewhere"},
            "middleware": {"global": {"transformRequestHeaders": {"enabled": true,
                "add": [{"name": "Authorization", "value": "Bearer s3cret-authorization"}]}}}}});
    bench
        .server
        .create(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": "doc"}, "data": {"oas.json": document.to_string()}}));
    bench.server.create(
        json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition",
        "metadata": {"namespace": "shop", "name": "auth"},
        "spec": {"tykOAS": {"configmapRef": {"name": "doc", "keyName": "oas.json"}},
                 "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r"}]}}),
    );
    let key = k8s_openapi::ByteString(b"s3cret-key".to_vec());
    bench.server.create(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "infra", "name": "cert"}, "data": {"tls.crt": key, "tls.key": key}}),
    );
    bench.server.edit(
        "Gateway",
        "infra",
        "edge",
        json!({"spec": {"listeners": [
        {"name": "web", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}},
        {"name": "tls", "protocol": "HTTPS", "port": 443, "allowedRoutes": {"namespaces": {"from": "All"}},
         "tls": {"certificateRefs": [{"name": "cert"}]}}]}}),
    );
    bench.server.create(route(&["/a"]));
    let mut token = rule("/t");
    token["filters"] = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [
        {"name": "X-A", "value": "$secret_env.s3cret-token"}]}}]);
    let mut bad = route_named("bad", "b.example.com", &[]);
    bad["spec"]["rules"] = json!([token]);
    bench.server.create(bad);
    bench.settle().await;
    // when the definition becomes good and everything is deleted again
    let mut good = document.clone();
    good["x-tyk-api-gateway"]
        .as_object_mut()
        .unwrap()
        .remove("upstream");
    bench.server.edit(
        "ConfigMap",
        "shop",
        "doc",
        json!({"data": {"oas.json": good.to_string()}}),
    );
    bench.settle().await;
    let stands = bench.tyk.at(URL)[&id("/a")].to_string();
    assert!(
        stands.contains("s3cret-authorization"),
        "it is written to Tyk, as asked"
    );
    bench.server.delete("Secret", "tyk", "credential");
    bench.server.delete("HTTPRoute", "shop", "r");
    bench.settle().await;
    bench.retry().await;
    // then no place where people look has them
    let logged = LOGGED.with_borrow(|logged| String::from_utf8_lossy(logged).into_owned());
    assert!(
        logged.contains("tyk-httproute"),
        "something was logged:\n{logged}"
    );
    let events = bench.server.list("Event", "");
    assert!(!events.is_empty());
    let routes = bench.server.list("HTTPRoute", "");
    let statuses: Vec<_> = routes.iter().map(|r| (&r["status"], &r["metadata"])).collect();
    let seen = format!("{logged}\n{}\n{statuses:?}", json!(events));
    for secret in SECRETS {
        assert!(!seen.contains(secret), "{secret} is seen");
    }
    // and the neighbour's API is what it was
    for (id, before) in neighbour {
        assert_eq!(bench.tyk.at(URL).get(&id), Some(&before));
    }
}
