//! With a real Garage: pages through the Services that a cluster's tiers have, and buckets through a handle.

use std::net::IpAddr;

use routewright_e2e::garage::{ADMIN, Garage, GarageOptions, PAGE};
use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both};
use routewright_e2e::{Result, Scenario, contour, scenario, wait};
use serde_json::{Value, json};

async fn page(s: &Scenario, address: IpAddr, host: &str, wanted: &str) -> Result<()> {
    wait::eventually(&format!("page under {host}"), PAGE, || async {
        let answer = s
            .cluster
            .fetch(host, address, 80, "/")
            .await
            .map_err(|e| e.to_string())?;
        if answer.text() == wanted {
            Ok(())
        } else {
            Err(format!("{} {}", answer.status, answer.text()))
        }
    })
    .await
}

#[tokio::test]
async fn default_backends_and_hosts_serve_the_pages_of_their_tiers() {
    scenario("default_backends_and_hosts_serve_the_pages_of_their_tiers", async |s| {
        // Given a gateway and two Garages: one has the Services of storage alone, one those of both tiers
        let address = contour::install(s.cluster).await?;
        let stage = Stage::new(&s).await?;
        let _operator = Operator::process(s.cluster, both(s.ns())).await?;
        for (name, tiers, service) in [("lone", false, "lone"), ("twin", true, "twin-gateway")] {
            let root = format!(".{name}.example.test");
            let options = GarageOptions { root_domain: Some(root.clone()), gateway: tiers };
            let garage = Garage::deploy(s.cluster, s.ns(), name, &options).await?;
            let mut spec = json!({"storage": {}, "webApi": {"rootDomain": root}});
            if tiers {
                spec["gateway"] = json!({});
            }
            stage.garage(name, spec).await?;
            // When a bucket of each asks for each kind, naming neither backend nor host
            for kind in [Kind::Ingress, Kind::Route] {
                let bucket = format!("{name}-{}", kind.name().to_lowercase());
                let exposure = match kind {
                    Kind::Ingress => json!({"ingress": {"ingressClassName": contour::INGRESS_CLASS}}),
                    Kind::Route => json!({"gateway": {"parentRefs": [
                        {"name": contour::GATEWAY, "namespace": contour::NAMESPACE}]}}),
                };
                let id = garage.create_website(&bucket).await?;
                garage.put_page(&bucket, &format!("<h1>{bucket}</h1>")).await?;
                stage
                    .apply(json!({
                        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
                        "metadata": {"name": bucket},
                        "spec": {"clusterRef": {"name": name}, "website": {"enabled": true}, "websiteExposure": exposure},
                    }))
                    .await?;
                let status = json!({"bucketId": id, "globalAlias": bucket, "phase": "Ready"});
                stage.merge_status("GarageBucket", &bucket, status).await?;
                stage.reason(&bucket, "Exposed").await?;
                // Then it leads to the Service of the tier, and the page comes back under the default host
                let object = stage.there(kind.name(), &format!("{bucket}-website")).await?;
                let backend = match kind {
                    Kind::Ingress => object.pointer("/spec/rules/0/http/paths/0/backend/service/name"),
                    Kind::Route => object.pointer("/spec/rules/0/backendRefs/0/name"),
                };
                assert_eq!(backend, Some(&json!(service)), "{object}");
                page(&s, address, &format!("{bucket}.{name}.example.test"), &format!("<h1>{bucket}</h1>")).await?;
            }
            let other = format!("other.{name}.example.test");
            assert_eq!(s.cluster.fetch(&other, address, 80, "/").await?.status, 404);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_handle_brings_buckets_into_a_real_garage_and_out_again() {
    scenario("a_handle_brings_buckets_into_a_real_garage_and_out_again", async |s| {
        // Given a Garage, and the operator that looks after buckets
        let address = contour::install(s.cluster).await?;
        let stage = Stage::new(&s).await?;
        let options = GarageOptions { root_domain: Some(".handle.example.test".to_owned()), gateway: false };
        let garage = Garage::deploy(s.cluster, s.ns(), "store", &options).await?;
        let values = json!({
            "ingress": {"enabled": true}, "garageBuckets": {"enabled": true}, "watchNamespaces": [s.ns()],
        });
        let operator = Operator::process(s.cluster, values).await?;
        // When a handle has a wrong token, then it says so; with the right one it runs
        let handle = |key: &str| {
            json!({
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "metadata": {"name": "garage"},
                "spec": {
                    "connectTo": {
                        "adminApiEndpoint": format!("http://{}", garage.address(ADMIN)),
                        "adminTokenSecretRef": {"name": "store-admin-token", "key": key},
                    },
                    "webApi": {"rootDomain": ".handle.example.test"},
                },
            })
        };
        stage.apply(handle("absent")).await?;
        let phase = |wanted: &'static str| move |o: &Value| (o.pointer("/status/phase")? == wanted).then_some(());
        stage.until("Pending", "GarageCluster", "garage", phase("Pending")).await?;
        stage.apply(handle("token")).await?;
        stage.until("Running", "GarageCluster", "garage", phase("Running")).await?;
        // When a bucket asks for a website through an Ingress
        let mut exposure = json!({"ingress": {"ingressClassName": contour::INGRESS_CLASS}});
        exposure["backendRef"] = json!({"name": "store"});
        stage.new_bucket("site", &exposure).await?;
        // Then Garage has it, under its name, as a website; status and finalizer say so
        stage.reason("site", "Exposed").await?;
        let bucket = stage.until("Ready", "GarageBucket", "site", |o| {
            (o.pointer("/status/phase")? == "Ready").then(|| o.clone())
        }).await?;
        let id = garage.bucket_id("site").await?;
        assert_eq!(bucket["status"]["bucketId"], id);
        assert_eq!(bucket["status"]["globalAlias"], "site");
        assert_eq!(bucket["metadata"]["finalizers"], json!(["routewright.dev/garage-bucket"]));
        let info = garage.admin("GET", &format!("/v2/GetBucketInfo?id={id}"), None).await?;
        assert_eq!(info["websiteAccess"], true, "{info}");
        assert_eq!(info["globalAliases"], json!(["site"]), "{info}");
        // And a page that is put there comes back through the generated Ingress
        garage.put_page("site", "<h1>made by its bucket</h1>").await?;
        page(&s, address, "site.handle.example.test", "<h1>made by its bucket</h1>").await?;
        // When it is deleted while it holds a page, then it stays, with the reason; the page is still served
        stage.delete("GarageBucket", "site").await?;
        stage
            .until("held back", "GarageBucket", "site", |o| {
                let ready = o.pointer("/status/conditions")?.as_array()?.iter().find(|c| c["type"] == "Ready")?;
                let message = ready["message"].as_str()?;
                (o.pointer("/metadata/deletionTimestamp").is_some() && message.contains("object")).then(|| say(message))
            })
            .await?;
        assert_eq!(garage.bucket_id("site").await?, id);
        // When another one is empty, then it goes from Garage and then from here
        let empty = json!({"ingress": {"ingressClassName": contour::INGRESS_CLASS}, "backendRef": {"name": "store"}});
        stage.new_bucket("empty", &empty).await?;
        stage.reason("empty", "Exposed").await?;
        garage.bucket_id("empty").await?;
        stage.delete("GarageBucket", "empty").await?;
        stage.gone("GarageBucket", "empty").await?;
        assert!(garage.bucket_id("empty").await.is_err());
        stage.gone("Ingress", "empty-website").await?;
        assert!(!operator.logs()?.contains(garage.token()), "the admin token is in the log");
        Ok(())
    })
    .await;
}
