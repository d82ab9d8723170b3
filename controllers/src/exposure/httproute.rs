//! The HTTPRoute of an exposure as an object body. Builds only what was resolved.

use serde_json::{Map, Value, json};

use super::resolve::{BackendPort, Parent, Resolved, RouteSettings, metadata};

/// The parts of our HTTPRoute that hold what was resolved and nothing else: which hosts it serves, where and how.
pub const WHOLE: &[&str] = &["/spec/parentRefs", "/spec/hostnames", "/spec/rules"];

/// Body of the HTTPRoute: all hostnames, one rule for every path, a URLRewrite when some hostname needs it.
///
/// What the API server would default is written out, so that a second apply of the same body changes nothing and a
/// comparison with the live object needs no knowledge of defaults. Without ownerReferences and the operator's own
/// labels: those are the same for every child and added by the layers below the planner.
pub fn httproute(resolved: &Resolved, settings: &RouteSettings) -> Value {
    let backend = &resolved.backend;
    let mut backend_ref = Map::new();
    backend_ref.insert("group".into(), json!(backend.group));
    backend_ref.insert("kind".into(), json!(backend.kind));
    backend_ref.insert("name".into(), json!(backend.name));
    if let Some(namespace) = &backend.namespace {
        backend_ref.insert("namespace".into(), json!(namespace));
    }
    // A route knows port numbers only; `resolve` never gives it a name.
    if let BackendPort::Number(number) = backend.port {
        backend_ref.insert("port".into(), json!(number));
    }
    backend_ref.insert("weight".into(), json!(1));

    let mut rule = Map::new();
    rule.insert(
        "matches".into(),
        json!([{ "path": { "type": "PathPrefix", "value": "/" } }]),
    );
    if let Some(canonical) = &settings.rewrite_to {
        let rewrite = json!({ "type": "URLRewrite", "urlRewrite": { "hostname": canonical } });
        rule.insert("filters".into(), json!([rewrite]));
    }
    rule.insert("backendRefs".into(), json!([backend_ref]));

    let parents: Vec<Value> = settings.parents.iter().map(parent_ref).collect();
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(resolved),
        "spec": {
            "parentRefs": parents,
            "hostnames": resolved.hostnames,
            "rules": [rule],
        },
    })
}

fn parent_ref(parent: &Parent) -> Value {
    let mut fields = Map::new();
    fields.insert("group".into(), json!(parent.group));
    fields.insert("kind".into(), json!(parent.kind));
    fields.insert("namespace".into(), json!(parent.namespace));
    fields.insert("name".into(), json!(parent.name));
    if let Some(section) = &parent.section_name {
        fields.insert("sectionName".into(), json!(section));
    }
    if let Some(port) = parent.port {
        fields.insert("port".into(), json!(port));
    }
    fields.into()
}
