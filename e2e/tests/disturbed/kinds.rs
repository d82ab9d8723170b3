//! Kinds that come after the start, go, are replaced in place, or hold what nobody can read.

use std::fs;
use std::time::{Duration, Instant};

use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, SOON, Stage, both, exposed, tally};
use routewright_e2e::{Result, Scenario, scenario, wait};
use serde_json::{Value, json};

use crate::ALONE;

const ROUTES: &str = "httproutes.gateway.networking.k8s.io";

/// The HTTPRoute CRD of the pinned module.
fn route_crd(s: &Scenario) -> Result<Value> {
    let module = s
        .cluster
        .tools()
        .go_module("gateway-api", "sigs.k8s.io/gateway-api")?;
    let folder = module.join("config/crd/standard");
    let path = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .find(|p| p.to_string_lossy().ends_with("_httproutes.yaml"))
        .unwrap();
    let mut c = s
        .cluster
        .kubectl_command(["create", "--dry-run=client", "-o", "json", "-f"])?;
    c.arg(path);
    Ok(serde_json::from_str(&routewright_e2e::sh::run(c)?).unwrap())
}

async fn served(s: &Scenario, stage: &Stage) -> Result<()> {
    stage
        .until("established", "CustomResourceDefinition", ROUTES, |crd| {
            let conditions = crd.pointer("/status/conditions")?.as_array()?;
            conditions
                .iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
                .then_some(())
        })
        .await?;
    // Discovery and the handler of the objects follow the condition a moment later.
    s.cluster.established()
}

/// Serves routes, whatever an earlier scenario has left.
pub(crate) async fn route_served(s: &Scenario) -> Result<()> {
    s.cluster.gateway_crds("standard").await?;
    let stage = Stage::new(s).await?;
    stage.apply(route_crd(s)?).await?;
    served(s, &stage).await
}

fn gauge(text: &str, name: &str, part: &str) -> Option<String> {
    text.lines()
        .find(|l| l.starts_with(&format!("{name}{{")) && l.contains(part))
        .and_then(|l| l.rsplit(' ').next())
        .map(str::to_owned)
}

#[tokio::test]
async fn the_gateway_api_comes_after_the_start_and_goes_again() {
    let _alone = ALONE.lock().await;
    scenario(
        "the_gateway_api_comes_after_the_start_and_goes_again",
        async |s| {
            let stage = Stage::new(&s).await?;
            let crd = route_crd(&s)?;
            let _ = s
                .cluster
                .kubectl(["delete", "crd", ROUTES, "--ignore-not-found", "--wait=true"])?;
            // Given an operator that started without the Gateway API, and a bucket that wants a route
            let operator = Operator::process(s.cluster, both(s.ns())).await?;
            let pid = operator.pid()?;
            stage.usual_garage().await?;
            stage
                .bucket("site", &Kind::Route.exposure(&[], json!({})))
                .await?;
            stage
                .bucket("other", &Kind::Ingress.exposure(&[], json!({})))
                .await?;
            stage
                .says("site", "GatewayAPIUnavailable", "install the Gateway API CRDs")
                .await?;
            stage.reason("other", "Exposed").await?;
            let exposure = stage.there("GarageBucket", "site").await?["status"]["websiteExposure"].clone();
            assert_eq!(exposure["type"], "HTTPRoute", "{exposure}");

            // When the CRD is installed
            let begun = Instant::now();
            stage.apply(crd.clone()).await?;
            served(&s, &stage).await?;
            let established = begun.elapsed();
            // Then the route appears, before a look at what is served would be due, and the condition flips, without a
            // restart (how long it takes of the operator's own time is shown with the in-process API server)
            stage.there("HTTPRoute", "site-website").await?;
            let took = begun.elapsed();
            say(format!(
                "the kind was served {} ms after its CRD was sent, the route was there after {} ms",
                established.as_millis(),
                took.as_millis()
            ));
            assert!(took < Duration::from_secs(20), "{took:?}");
            stage.reason("site", "NotReady").await?;
            stage.accept("site-website").await?;
            stage.reason("site", "Exposed").await?;
            assert!(
                gauge(
                    &operator.metrics().await?,
                    "routewright_cache_objects",
                    "HTTPRoute"
                )
                .is_some()
            );

            // When the CRD is replaced in place (a label, a column), then nothing is lost and nothing is written
            stage.calm(&operator).await?;
            let mark = stage.mark()?;
            let mut newer = crd.clone();
            newer["metadata"]["labels"] = json!({"example.test/release": "newer"});
            let column = json!({"name": "Newer", "type": "string", "jsonPath": ".metadata.name"});
            newer["spec"]["versions"][0]["additionalPrinterColumns"]
                .as_array_mut()
                .unwrap()
                .push(column);
            stage.apply(newer).await?;
            stage.costs("CRD replaced in place", &operator, mark, &[]).await?;
            stage
                .expose("site", &Kind::Route.exposure(&["new.example.test"], json!({})))
                .await?;
            stage
                .until("changed", "HTTPRoute", "site-website", |o| {
                    (o["spec"]["hostnames"] == json!(["new.example.test"])).then_some(())
                })
                .await?;
            stage.accept("site-website").await?;
            stage.reason("site", "Exposed").await?;

            // When the CRD goes, then the condition flips back
            stage.calm(&operator).await?;
            let mark = stage.mark()?;
            let begun = Instant::now();
            s.cluster.kubectl(["delete", "crd", ROUTES, "--wait=true"])?;
            stage.reason("site", "GatewayAPIUnavailable").await?;
            say(format!(
                "the condition flipped back {} ms after the removal began",
                begun.elapsed().as_millis()
            ));
            // And the cache is dropped
            wait::eventually("cache of routes dropped", SOON, || async {
                let text = operator.metrics().await.map_err(|e| e.to_string())?;
                let watched = operator
                    .probe("/readyz?verbose")
                    .await
                    .map_err(|e| e.to_string())?;
                let (objects, served) = (
                    gauge(&text, "routewright_cache_objects", "HTTPRoute"),
                    gauge(&text, "routewright_api_served", "HTTPRoute"),
                );
                let dropped =
                    objects.as_deref().is_none_or(|n| n == "0") && !watched.contains("watch HTTPRoute");
                if dropped && served.as_deref() == Some("0") {
                    Ok(())
                } else {
                    Err(format!("objects {objects:?}, served {served:?}\n{watched}"))
                }
            })
            .await?;
            // And nobody asks for routes in vain, over and over
            let settled = stage.mark()?;
            wait::throughout("few requests", Duration::from_secs(15), || async {
                let all = stage.everything(&operator, settled).map_err(|e| e.to_string())?;
                let about = all.iter().filter(|r| r.resource.contains("httproutes")).count();
                if about <= 3 {
                    Ok(())
                } else {
                    Err(format!("{:?}", tally(&all)))
                }
            })
            .await?;
            let mut since = stage.everything(&operator, mark)?;
            // The lease is renewed as long as it takes.
            since.retain(|r| r.resource != "leases");
            say(format!("requests since the removal: {:?}", tally(&since)));
            assert!(since.len() < 60, "{:?}", tally(&since));
            let bucket = stage.there("GarageBucket", "other").await?;
            assert_eq!(exposed(&bucket).unwrap()["reason"], "Exposed");

            // When it comes again, then so does the route; all this with one process
            stage.apply(crd.clone()).await?;
            served(&s, &stage).await?;
            stage.there("HTTPRoute", "site-website").await?;
            assert_eq!(operator.pid()?, pid);
            assert!(pid.alive());
            operator.ready().await
        },
    )
    .await;
}

#[tokio::test]
async fn a_route_that_nobody_can_read_hurts_nobody() {
    let _alone = ALONE.lock().await;
    scenario("a_route_that_nobody_can_read_hurts_nobody", async |s| {
        let stage = Stage::new(&s).await?;
        // Given a CRD that lets everything through
        let mut crd = route_crd(&s)?;
        stage.apply(crd.clone()).await?;
        served(&s, &stage).await?;
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"] =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        }
        crd["metadata"]["annotations"]["api-approved.kubernetes.io"] = json!("unapproved, a test");
        stage.apply_as("scenario", &crd).await?;
        let mut operator = Operator::process(s.cluster, both(s.ns())).await?;
        stage.usual_garage().await?;
        stage
            .bucket("site", &Kind::Route.exposure(&[], json!({})))
            .await?;
        Kind::Route.settled(&stage, "site").await?;
        // When a route with our labels holds what is no route, and one of ours is made unreadable
        let nonsense = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "nonsense", "labels": {
                "app.kubernetes.io/managed-by": "routewright", "app.kubernetes.io/instance": "routewright"}},
            "spec": 7, "status": {"parents": "none"},
        });
        wait::eventually("nonsense is taken", SOON, || async {
            stage
                .apply(nonsense.clone())
                .await
                .map(drop)
                .map_err(|e| e.to_string())
        })
        .await?;
        stage
            .merge(
                "HTTPRoute",
                "site-website",
                json!({"spec": {"rules": "none", "hostnames": 5}}),
            )
            .await?;
        // Then ours is put right, and others go on: new ones, changed ones, also after a restart
        stage
            .until("put right", "HTTPRoute", "site-website", |o| {
                (o["spec"]["hostnames"] == json!(["site.example.test"]) && o["spec"]["rules"].is_array())
                    .then_some(())
            })
            .await?;
        stage
            .bucket("second", &Kind::Route.exposure(&[], json!({})))
            .await?;
        stage.there("HTTPRoute", "second-website").await?;
        routewright_e2e::stage::restart(&mut operator).await?;
        stage
            .bucket("third", &Kind::Route.exposure(&[], json!({})))
            .await?;
        Kind::Route.settled(&stage, "third").await?;
        stage.calm(&operator).await?;
        assert_eq!(stage.there("HTTPRoute", "nonsense").await?["spec"], 7);
        stage.delete("HTTPRoute", "nonsense").await?;
        s.cluster.kubectl(["delete", "crd", ROUTES, "--wait=true"])?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_older_bucket_crd_costs_a_field_and_not_the_condition() {
    let _alone = ALONE.lock().await;
    scenario(
        "an_older_bucket_crd_costs_a_field_and_not_the_condition",
        async |s| {
            let name = "garagebuckets.garage.rajsingh.info";
            let stage = Stage::new(&s).await?;
            s.cluster.product_crds().await?;
            let whole = stage.there("CustomResourceDefinition", name).await?;
            // Given a CRD from before status.websiteExposure.addresses, and an Ingress controller that gives addresses
            let mut older = whole.clone();
            for version in older["spec"]["versions"].as_array_mut().unwrap() {
                let status = &mut version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
                let fields = status["websiteExposure"]["properties"].as_object_mut().unwrap();
                assert!(fields.remove("addresses").is_some());
            }
            let known = async |keeps: bool| {
                let exposure = json!({"type": "Ingress", "name": "x", "addresses": ["192.0.2.9"]});
                let (status, place) = (
                    json!({"websiteExposure": exposure}),
                    "/status/websiteExposure/addresses",
                );
                stage
                    .schema_is("GarageBucket", "probe", status, place, keeps)
                    .await
            };
            stage.new_bucket("probe", &Value::Null).await?;
            replace(&s, &older)?;
            known(false).await?;
            let operator = Operator::process(s.cluster, both(s.ns())).await?;
            stage.usual_garage().await?;
            // When a bucket is exposed and gets an address
            stage
                .bucket("site", &Kind::Ingress.exposure(&[], json!({})))
                .await?;
            stage.reason("site", "Exposed").await?;
            let address = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}});
            stage.merge_status("Ingress", "site-website", address).await?;
            stage.calm(&operator).await?;
            // Then the condition stands, the field is left out, and nobody tries again and again
            let bucket = stage.there("GarageBucket", "site").await?;
            assert_eq!(exposed(&bucket).unwrap()["reason"], "Exposed", "{bucket}");
            assert!(
                bucket["status"]["websiteExposure"]["addresses"].is_null(),
                "{bucket}"
            );
            let mark = stage.mark()?;
            stage
                .costs("a field that the CRD does not know", &operator, mark, &[])
                .await?;
            // When the CRD is upgraded and the bucket changes, then the address is there
            replace(&s, &whole)?;
            known(true).await?;
            stage
                .expose("site", &Kind::Ingress.exposure(&["site.example.test"], json!({})))
                .await?;
            stage
                .until("address", "GarageBucket", "site", |o| {
                    o.pointer("/status/websiteExposure/addresses/0").map(drop)
                })
                .await
        },
    )
    .await;
}

fn replace(s: &Scenario, crd: &Value) -> Result<()> {
    let mut crd = crd.clone();
    for field in ["resourceVersion", "uid", "managedFields", "creationTimestamp"] {
        crd["metadata"].as_object_mut().unwrap().remove(field);
    }
    crd.as_object_mut().unwrap().remove("status");
    let c = s.cluster.kubectl_command(["replace", "-f", "-"])?;
    routewright_e2e::sh::run_with_input(c, &crd.to_string()).map(|_| ())
}

#[tokio::test]
async fn an_operator_for_all_namespaces_is_refused_nothing_and_knows_the_classes() {
    let _alone = ALONE.lock().await;
    scenario(
        "an_operator_for_all_namespaces_is_refused_nothing_and_knows_the_classes",
        async |s| {
            route_served(&s).await?;
            let stage = Stage::new(&s).await?;
            // Given an operator for all namespaces, and a bucket whose Ingress class nobody has made
            let values = json!({"ingress": {"enabled": true}, "gatewayAPI": {"enabled": true}});
            let operator = Operator::process(s.cluster, values).await?;
            stage.usual_garage().await?;
            stage
                .bucket("site", &Kind::Ingress.exposure(&[], json!({})))
                .await?;
            // Then it is exposed, and the message says what is missing
            stage.says("site", "Exposed", "no IngressClass nobody").await?;
            // When the class is made, then the message is right again
            let class = json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nobody"},
                "spec": {"controller": "example.test/nobody"},
            });
            stage.apply(class).await?;
            stage
                .until("without suffix", "GarageBucket", "site", |bucket| {
                    (!exposed(bucket)?["message"].as_str()?.contains("IngressClass")).then_some(())
                })
                .await?;
            stage.delete("IngressClass", "nobody").await?;
            stage.says("site", "Exposed", "no IngressClass nobody").await?;
            stage.calm(&operator).await?;
            // And nothing that it asked for was refused
            let refused: Vec<_> = stage
                .everything(&operator, routewright_e2e::audit::Mark::START)?
                .into_iter()
                // A namespace on its way out, of an earlier scenario, takes nothing new.
                .filter(|r| r.code == 403 && (r.namespace.is_empty() || r.namespace == s.ns()))
                .collect();
            assert!(refused.is_empty(), "{refused:#?}");
            Ok(())
        },
    )
    .await;
}
