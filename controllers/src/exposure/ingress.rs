//! The Ingress of an exposure as an object body, and what is read back from a live one. Builds only what was resolved.

use serde_json::{Map, Value, json};

use super::resolve::{BackendPort, IngressSettings, Resolved, metadata};

/// The parts of our Ingress that hold what was resolved and nothing else: they decide which hosts and certificates it serves.
/// Where the bucket names no class, the API server chooses it.
pub const WHOLE: &[&str] = &["/spec/defaultBackend", "/spec/tls", "/spec/rules"];

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

/// Addresses that the load balancer of a live Ingress has, each once and sorted: the order in its status may change with
/// every write of it.
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
    found.sort();
    found
}

/// Where cert-manager's HTTP-01 solver puts its path while it edits an Ingress in place.
const ACME_PATH: &str = "/.well-known/acme-challenge/";

/// Takes out of the live rules what cert-manager adds for a while under hosts of ours, so that it is not reverted.
/// `live` and `desired` are objects with a `spec`.
pub fn tolerate_acme_solver(live: &mut Value, desired: &Value) {
    let host = |rule: &Value| rule.get("host").and_then(Value::as_str).map(str::to_owned);
    let ours: Vec<String> = desired
        .pointer("/spec/rules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(host)
        .collect();
    let Some(rules) = live.pointer_mut("/spec/rules").and_then(Value::as_array_mut) else {
        return;
    };
    rules.retain_mut(|rule| {
        if host(rule).is_none_or(|host| !ours.contains(&host)) {
            return true;
        }
        let Some(paths) = rule.pointer_mut("/http/paths").and_then(Value::as_array_mut) else {
            return true;
        };
        let before = paths.len();
        paths.retain(|path| {
            let path = path.get("path").and_then(Value::as_str);
            !path.is_some_and(|path| path.starts_with(ACME_PATH))
        });
        // A rule that held nothing but a solver is the solver's own.
        before == paths.len() || !paths.is_empty()
    });
}

/// Puts the solver paths that the live rules have under hosts of ours in front of our paths, so that a change of ours
/// does not end a challenge: cert-manager does not look again at what it has presented. `body` and `live` are objects
/// with a `spec`.
pub fn keep_acme_solver(body: &mut Value, live: &Value) {
    let Some(ours) = body.pointer_mut("/spec/rules").and_then(Value::as_array_mut) else {
        return;
    };
    let theirs = live.pointer("/spec/rules").and_then(Value::as_array);
    for rule in theirs.into_iter().flatten() {
        let Some(own) = ours.iter_mut().find(|own| own.get("host") == rule.get("host")) else {
            continue;
        };
        let solving = |path: &&Value| {
            let path = path.get("path").and_then(Value::as_str);
            path.is_some_and(|path| path.starts_with(ACME_PATH))
        };
        let paths = rule.pointer("/http/paths").and_then(Value::as_array);
        let solvers: Vec<Value> = paths.into_iter().flatten().filter(solving).cloned().collect();
        if let Some(paths) = own.pointer_mut("/http/paths").and_then(Value::as_array_mut) {
            paths.splice(0..0, solvers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(paths: &[(&str, &str)]) -> Value {
        let rules: Vec<Value> = paths
            .iter()
            .map(|(host, path)| json!({ "host": host, "http": { "paths": [{ "path": path }] } }))
            .collect();
        json!({ "spec": { "rules": rules } })
    }

    #[test]
    fn a_solver_path_under_our_host_is_tolerated_in_either_shape() {
        let desired = rules(&[("a.example.com", "/")]);
        let own_rule = rules(&[
            ("a.example.com", "/"),
            ("a.example.com", "/.well-known/acme-challenge/t"),
        ]);
        let mut inside = desired.clone();
        inside["spec"]["rules"][0]["http"]["paths"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "path": "/.well-known/acme-challenge/t" }));
        for mut live in [own_rule, inside] {
            tolerate_acme_solver(&mut live, &desired);
            assert_eq!(live, desired);
        }
    }

    #[test]
    fn a_solver_path_is_kept_when_our_rules_change_and_nothing_else_is() {
        // Given what we want now, and an Ingress of before, edited by a solver and by somebody
        let desired = || {
            let mut desired = rules(&[("a.example.com", "/"), ("new.example.com", "/")]);
            desired["metadata"] = json!({ "name": "kept as it is" });
            desired
        };
        let solver = "/.well-known/acme-challenge/t";
        let mut inside = rules(&[("a.example.com", "/old"), ("gone.example.com", solver)]);
        inside["spec"]["rules"][0]["http"]["paths"]
            .as_array_mut()
            .unwrap()
            .extend([
                json!({ "path": solver, "pathType": "Exact" }),
                json!({ "path": "/admin" }),
            ]);
        let own_rule = rules(&[("a.example.com", "/"), ("a.example.com", solver)]);
        for (live, kept) in [
            (
                inside,
                json!([{ "path": solver, "pathType": "Exact" }, { "path": "/" }]),
            ),
            (own_rule, json!([{ "path": solver }, { "path": "/" }])),
            (rules(&[("a.example.com", "/")]), json!([{ "path": "/" }])),
            (json!({}), json!([{ "path": "/" }])),
        ] {
            // When it is applied over that
            let mut body = desired();
            keep_acme_solver(&mut body, &live);
            // Then the solver of a host that stays is in it, and the comparison calls it equal
            assert_eq!(body["spec"]["rules"][0]["http"]["paths"], kept);
            assert_eq!(body["spec"]["rules"][1], desired()["spec"]["rules"][1]);
            let mut stands = body.clone();
            tolerate_acme_solver(&mut stands, &desired());
            assert_eq!(stands, desired());
        }
    }

    #[test]
    fn anything_else_is_not() {
        let desired = rules(&[("a.example.com", "/")]);
        for added in [
            ("b.example.com", "/.well-known/acme-challenge/t"),
            ("a.example.com", "/admin"),
        ] {
            let mut live = rules(&[("a.example.com", "/"), added]);
            tolerate_acme_solver(&mut live, &desired);
            assert_ne!(live, desired, "{added:?}");
        }
    }

    #[test]
    fn addresses_are_listed_once_each_in_an_order_of_their_own() {
        let live = json!({ "status": { "loadBalancer": { "ingress": [
            { "ip": "192.0.2.1", "ports": [] }, { "hostname": "lb.example.com" }, { "ip": "192.0.2.1" }, { "ip": "" },
            { "ip": "192.0.2.0" },
        ] } } });
        assert_eq!(addresses(&live), ["192.0.2.0", "192.0.2.1", "lb.example.com"]);
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
