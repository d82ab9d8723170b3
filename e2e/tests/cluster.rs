//! What the other scenarios rest on: the cluster serves the product's API, counts requests, and lets real traffic
//! through a real gateway to a real Garage. One cluster for the whole file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use routewright_crds::cases::{CelCase, Expected, cel_cases};
use routewright_e2e::cluster::switched_on;
use routewright_e2e::garage::{Garage, GarageOptions, PAGE};
use routewright_e2e::{Scenario, audit, contour, scenario, wait};
use serde_json::{Value, json};

#[tokio::test]
async fn admission_decides_as_the_cases_say() {
    scenario("admission_decides_as_the_cases_say", async |s| {
        // Given the product's CRDs
        s.cluster.product_crds().await?;
        let client = s.client().await?;
        let discovery = kube::discovery::Discovery::new(client.clone())
            .filter(&[routewright_crds::GROUP, routewright_crds::TYK_GROUP])
            .run()
            .await?;
        // When every case is sent to the API server
        let mut wrong = Vec::new();
        for case in cel_cases() {
            if let Err(e) = send(&s, &client, &discovery, &case).await {
                wrong.push(format!("{}: {e}", case.name));
            }
        }
        // Then each gets the answer that it names
        assert!(
            wrong.is_empty(),
            "{} cases differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        Ok(())
    })
    .await;
}

async fn send(
    s: &Scenario,
    client: &kube::Client,
    discovery: &kube::Discovery,
    case: &CelCase,
) -> Result<(), String> {
    let object = |value: &Value| serde_json::from_value::<DynamicObject>(value.clone()).unwrap();
    let text = |field: &str| case.object[field].as_str().unwrap().to_owned();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .map(|(g, v)| (g.to_owned(), v.to_owned()))
        .unwrap();
    let gvk = kube::core::GroupVersionKind::gvk(&group, &version, &text("kind"));
    let (resource, _) = discovery.resolve_gvk(&gvk).ok_or("kind is not served")?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), s.ns(), &resource);
    let name = case.object["metadata"]["name"].as_str().unwrap();
    let answer = match &case.old {
        None => api.create(&PostParams::default(), &object(&case.object)).await,
        Some(old) => {
            let made = api.create(&PostParams::default(), &object(old)).await;
            let mut stored = made.map_err(|e| format!("the old object was refused: {e}"))?;
            if let Some(status) = old.get("status") {
                let patch = Patch::Merge(json!({"status": status}));
                stored = api
                    .patch_status(name, &PatchParams::default(), &patch)
                    .await
                    .map_err(|e| format!("the old status was refused: {e}"))?;
            }
            let mut new = object(&case.object);
            new.metadata.resource_version = stored.metadata.resource_version;
            api.replace(name, &PostParams::default(), &new).await
        }
    };
    match (case.expected, answer) {
        (Expected::Accept, Ok(_)) => Ok(()),
        (Expected::Reject(part), Err(kube::Error::Api(e))) if e.code == 422 && e.message.contains(part) => {
            Ok(())
        }
        (expected, Ok(_)) => Err(format!("accepted, expected {expected:?}")),
        (expected, Err(e)) => Err(format!("{e}, expected {expected:?}")),
    }
}

#[tokio::test]
async fn the_audit_log_counts_what_a_service_account_asks() {
    scenario("the_audit_log_counts_what_a_service_account_asks", async |s| {
        let log = s.cluster.audit()?;
        // Given a service account that may do everything with ConfigMaps of its namespace
        s.cluster.apply(&format!(
            r#"{{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {{"name": "op", "namespace": "{ns}"}}}}
---
{{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {{"name": "op", "namespace": "{ns}"}},
  "rules": [{{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}}]}}
---
{{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {{"name": "op", "namespace": "{ns}"}},
  "roleRef": {{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "op"}},
  "subjects": [{{"kind": "ServiceAccount", "name": "op", "namespace": "{ns}"}}]}}"#,
            ns = s.ns()
        ))?;
        let api: Api<ConfigMap> = Api::namespaced(s.cluster.client_as(s.ns(), "op").await?, s.ns());
        // (the API server hears of its own rules through a watch)
        wait::eventually("the account has its rights", Duration::from_secs(60), || async {
            api.list(&Default::default()).await.map(drop).map_err(|e| e.to_string())
        })
        .await?;
        // When it applies, reads, patches and is refused after the mark
        let mark = log.mark()?;
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        api.patch("a", &PatchParams::apply("me").force(), &Patch::Apply(&body)).await?;
        api.patch("a", &PatchParams::default(), &Patch::Merge(&json!({"data": {"k": "w"}}))).await?;
        assert!(api.get("b").await.is_err());
        let other: Api<ConfigMap> = Api::namespaced(s.cluster.client_as(s.ns(), "op").await?, "kube-system");
        assert!(other.list(&Default::default()).await.is_err());
        // Then exactly these are in the log, told apart
        let requests = log.of_account(mark, s.ns(), "op")?;
        let expected = [("apply", 201), ("get", 404), ("list", 403), ("patch", 200)]
            .map(|(verb, code)| ((verb.to_owned(), "configmaps".to_owned(), code), 1));
        assert_eq!(audit::count(&requests), expected.into());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn garage_runs_without_a_cluster_too() {
    if !switched_on("garage_runs_without_a_cluster_too") {
        return;
    }
    // Given a Garage on the loopback with a bucket under two names
    let garage = Garage::local(".example.test").await.unwrap();
    let id = garage.create_website("site").await.unwrap();
    assert_eq!(garage.bucket_id("site").await.unwrap(), id);
    garage.put_page("site", "<h1>local</h1>").await.unwrap();
    // Then its own host resolution serves the page under the root domain and bare, and nowhere else
    for (host, status) in [
        ("site.example.test", 200),
        ("site", 200),
        ("example.test", 404),
        ("x.org", 404),
    ] {
        assert_eq!(garage.web(host, "/").await.unwrap().status, status, "{host}");
    }
    // And an error of its Admin API names the call and the status
    let error = garage
        .admin("GET", "/v2/GetBucketInfo?globalAlias=none", None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("GetBucketInfo") && error.contains("404"),
        "{error}"
    );
}

#[tokio::test]
async fn a_page_in_garage_comes_back_through_ingress_and_gateway() {
    scenario(
        "a_page_in_garage_comes_back_through_ingress_and_gateway",
        async |s| {
            // Given Contour, a Garage and a page in it
            let address = contour::install(s.cluster).await?;
            let options = GarageOptions {
                root_domain: Some(".example.test".to_owned()),
                gateway: true,
            };
            let garage = Garage::deploy(s.cluster, s.ns(), "garage", &options).await?;
            garage.create_website("site").await?;
            garage.put_page("site", "<h1>made for a test</h1>").await?;
            assert_eq!(
                garage.web("site.example.test", "/").await?.text(),
                "<h1>made for a test</h1>"
            );
            assert_eq!(garage.web("other.example.test", "/").await?.status, 404);
            // When an Ingress and an HTTPRoute lead to it, each under a host of its own
            s.cluster.apply(
            &json!({"apiVersion": "v1", "kind": "List", "items": [
                {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                 "metadata": {"name": "site", "namespace": s.ns()},
                 "spec": {"ingressClassName": contour::INGRESS_CLASS, "rules": [{
                    "host": "site.example.test", "http": {"paths": [{
                        "path": "/", "pathType": "Prefix",
                        "backend": {"service": {"name": "garage-gateway", "port": {"name": "web"}}}}]}}]}},
                {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                 "metadata": {"name": "site", "namespace": s.ns()},
                 "spec": {"parentRefs": [{"name": contour::GATEWAY, "namespace": contour::NAMESPACE}],
                    "hostnames": ["www.example.org"],
                    "rules": [{
                        "filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "site.example.test"}}],
                        "backendRefs": [{"name": "garage", "port": 3902}]}]}},
            ]})
            .to_string(),
        )?;
            // Then the page comes back under both, and nothing under a third
            for host in ["site.example.test", "www.example.org"] {
                wait::eventually(&format!("page under {host}"), PAGE, || async {
                    let answer = s
                        .cluster
                        .fetch(host, address, 80, "/")
                        .await
                        .map_err(|e| e.to_string())?;
                    match answer.text() == "<h1>made for a test</h1>" {
                        true => Ok(()),
                        false => Err(format!("{} {}", answer.status, answer.text())),
                    }
                })
                .await?;
            }
            assert_eq!(
                s.cluster
                    .fetch("elsewhere.example.org", address, 80, "/")
                    .await?
                    .status,
                404
            );
            Ok(())
        },
    )
    .await;
}
