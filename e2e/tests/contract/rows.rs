//! Rows of the table of conditions that only a real API server, or a real gateway, can show.

use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::{Kind, Stage, both};
use routewright_e2e::{contour, scenario};
use serde_json::{Value, json};

#[tokio::test]
async fn an_alias_is_waited_for() {
    scenario("an_alias_is_waited_for", async |s| {
        let stage = Stage::new(&s).await?;
        let operator = Operator::process(
            s.cluster,
            json!({"ingress": {"enabled": true}, "watchNamespaces": [s.ns()]}),
        )
        .await?;
        stage.usual_garage().await?;
        // Given buckets that Garage has, under a reservation alias alone
        for (name, hosts) in [("plain", vec![]), ("named", vec!["named.example.test"])] {
            stage
                .new_bucket(name, &Kind::Ingress.exposure(&hosts, json!({})))
                .await?;
            let status = json!({"bucketId": "1", "globalAlias": format!("garage-rsv-{name}")});
            stage.merge_status("GarageBucket", name, status).await?;
            // Then the alias is waited for, and nothing is made, explicit hostnames or not
            stage.reason(name, "WaitingForAlias").await?;
            assert!(stage.get("Ingress", &format!("{name}-website")).await?.is_none());
            // When the alias is recorded, then it is exposed
            stage.made(name).await?;
            stage.reason(name, "Exposed").await?;
            let ingress = stage.there("Ingress", &format!("{name}-website")).await?;
            assert_eq!(
                ingress["spec"]["rules"][0]["host"],
                format!("{name}.example.test")
            );
        }
        stage.calm(&operator).await
    })
    .await;
}

#[tokio::test]
async fn a_route_says_what_its_gateway_says() {
    scenario("a_route_says_what_its_gateway_says", async |s| {
        // Given a real gateway, and a bucket whose backend is in another namespace
        contour::install(s.cluster).await?;
        let stage = Stage::new(&s).await?;
        let elsewhere = s.cluster.namespace("elsewhere").await?;
        let there = Stage::in_namespace(&s, elsewhere.name()).await?;
        there
            .apply(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "garage"},
                "spec": {"ports": [{"name": "web", "port": 3902}]},
            }))
            .await?;
        let _operator = Operator::process(s.cluster, both(s.ns())).await?;
        stage.usual_garage().await?;
        let exposure = |gateway: &str| {
            json!({
                "gateway": {"parentRefs": [{"name": gateway, "namespace": contour::NAMESPACE}]},
                "backendRef": {"name": "garage", "namespace": elsewhere.name(), "port": 3902},
            })
        };
        // When its Gateway does not exist, then the condition says that nobody has answered
        stage.bucket("site", &exposure("absent")).await?;
        let said = stage.says("site", "NotReady", "absent").await?;
        say(format!("no such Gateway: {}", said["message"]));
        // When it does, but no grant lets the route use the backend, then the condition has the gateway's own words
        stage.expose("site", &exposure(contour::GATEWAY)).await?;
        let words = stage
            .until("refused by the gateway", "HTTPRoute", "site-website", |route| {
                let conditions = route.pointer("/status/parents/0/conditions")?.as_array()?;
                let refs = conditions.iter().find(|c| c["type"] == "ResolvedRefs" && c["status"] == "False")?;
                refs["message"].as_str().map(str::to_owned)
            })
            .await?;
        assert!(!words.is_empty());
        let said = stage.says("site", "NotReady", &words).await?;
        say(format!("no ReferenceGrant: {}", said["message"]));
        // When the grant is there, then it is exposed
        there
            .apply(json!({
                "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
                "metadata": {"name": "routes"},
                "spec": {
                    "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": s.ns()}],
                    "to": [{"group": "", "kind": "Service"}],
                },
            }))
            .await?;
        stage.reason("site", "Exposed").await?;
        let bucket = stage.there("GarageBucket", "site").await?;
        assert_eq!(bucket["status"]["websiteExposure"]["parents"][0]["ready"], true);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_admission_lets_through_is_refused_with_the_field() {
    scenario("what_admission_lets_through_is_refused_with_the_field", async |s| {
        s.cluster.gateway_crds("standard").await?;
        let stage = Stage::new(&s).await?;
        let operator = Operator::process(s.cluster, both(s.ns())).await?;
        stage.usual_garage().await?;
        stage.garage("odd", json!({"storage": {}, "webApi": {"rootDomain": ".Odd_Domain."}})).await?;
        stage.garage("silent", json!({"storage": {}, "webApi": {"enabled": false, "rootDomain": ".a.test"}})).await?;
        let connect = json!({"connectTo": {"adminApiEndpoint": "http://nowhere.test", "adminTokenSecretRef": {"name": "t", "key": "k"}}});
        stage.garage("handle", connect.clone()).await?;
            let mut located = connect;
            located["webApi"] = json!({"rootDomain": ".located.test"});
            stage.garage("located", located).await?;
        let ingress = json!({"ingressClassName": "nobody"});
        let gateway = json!({"parentRefs": [{"name": "nobody"}]});
        // Given specs that the CRD's own rules cannot judge
        let cases: [(&str, &str, Value, &str); 7] = [
            (
                "cross",
                "garage",
                json!({"ingress": ingress, "backendRef": {"name": "b", "namespace": "elsewhere"}}),
                "backendRef.namespace",
            ),
            ("unresolved", "garage", json!({"ingress": ingress, "hostnames": ["www.example.org"]}), "hostnames"),
            ("odd", "odd", json!({"gateway": gateway}), "webApi.rootDomain"),
            ("silent", "silent", json!({"ingress": ingress}), "webApi.enabled"),
            ("nobackend", "located", json!({"ingress": ingress}), "backendRef"),
            ("nodomain", "handle", json!({"ingress": ingress, "backendRef": {"name": "b"}}), "webApi.rootDomain"),
            ("missing", "none", json!({"ingress": ingress}), "none"),
        ];
        for (name, cluster, exposure, field) in &cases {
            let bucket = json!({
                "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": {"name": name},
                "spec": {"clusterRef": {"name": cluster}, "website": {"enabled": true}, "websiteExposure": exposure},
            });
            // When the API server has taken one
            stage.apply(bucket).await?;
            stage.made(name).await?;
            // Then the condition names the field, and nothing is made
            let said = stage.says(name, "ReconcileFailed", field).await?;
            say(format!("{name}: {}", said["message"]));
            for kind in ["Ingress", "HTTPRoute"] {
                assert!(stage.get(kind, &format!("{name}-website")).await?.is_none(), "{kind} of {name}");
            }
        }
        // And nobody is asked again and again
        stage.calm(&operator).await
    })
    .await;
}
