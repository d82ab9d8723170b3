//! The Ingress of an exposure as an object body, and what is read back from a live one. Builds only what was resolved.

use serde_json::{Map, Value, json};

use super::resolve::{BackendPort, IngressSettings, Resolved, metadata};

/// Body of the Ingress: one rule per hostname, path `/`, no default backend.
///
/// Without ownerReferences and the operator's own labels: those are the same for every child and added by the layers
/// below the planner.
pub fn ingress(resolved: &Resolved, settings: &IngressSettings) -> Value {
    let port = match resolved.backend.port {
        BackendPort::Name(name) => json!({ "name": name }),
        BackendPort::Number(number) => json!({ "number": number }),
    };
    let backend = json!({ "service": { "name": resolved.backend.name, "port": port } });
    let rules: Vec<Value> = resolved
        .hostnames
        .iter()
        .map(|host| {
            let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
            json!({ "host": host, "http": { "paths": [path] } })
        })
        .collect();
    let mut spec = Map::new();
    if let Some(class) = &settings.class {
        spec.insert("ingressClassName".into(), json!(class));
    }
    if let Some(secret) = &settings.tls_secret {
        spec.insert(
            "tls".into(),
            json!([{ "hosts": resolved.hostnames, "secretName": secret }]),
        );
    }
    spec.insert("rules".into(), rules.into());
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata(resolved),
        "spec": spec,
    })
}

/// Addresses that the load balancer of a live Ingress has, each once, in the order of its status.
pub fn addresses(live: &Value) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let entries = live
        .pointer("/status/loadBalancer/ingress")
        .and_then(Value::as_array);
    for entry in entries.into_iter().flatten() {
        for field in ["ip", "hostname"] {
            if let Some(address) = entry.get(field).and_then(Value::as_str).filter(|a| !a.is_empty())
                && !found.iter().any(|known| known == address)
            {
                found.push(address.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_listed_once_each() {
        let live = json!({ "status": { "loadBalancer": { "ingress": [
            { "ip": "192.0.2.1", "ports": [] }, { "hostname": "lb.example.com" }, { "ip": "192.0.2.1" }, { "ip": "" },
        ] } } });
        assert_eq!(addresses(&live), ["192.0.2.1", "lb.example.com"]);
    }

    #[test]
    fn no_status_has_no_addresses() {
        for live in [
            json!({}),
            json!({ "status": {} }),
            json!({ "status": { "loadBalancer": { "ingress": "odd" } } }),
        ] {
            assert!(addresses(&live).is_empty(), "{live}");
        }
    }
}
