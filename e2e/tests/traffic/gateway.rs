//! What the Gateway says of a route is what the bucket says.

use routewright_e2e::audit::Mark;
use routewright_e2e::sh::say;
use routewright_e2e::stage::Stage;
use routewright_e2e::{Result, contour, scenario};
use serde_json::{Value, json};

use crate::world::{GATEWAY, World};

/// The Gateway of Contour as it was, with one more listener.
pub(crate) async fn gateway_with(gateways: &Stage, was: &Value, listener: Value) -> Result<()> {
    let mut listeners = was["spec"]["listeners"].as_array().unwrap().clone();
    listeners.push(listener);
    gateway_as(gateways, was, json!(listeners)).await
}

pub(crate) async fn gateway_as(gateways: &Stage, was: &Value, listeners: Value) -> Result<()> {
    let spec = json!({"gatewayClassName": was["spec"]["gatewayClassName"], "listeners": listeners});
    let object = json!({
        "apiVersion": was["apiVersion"], "kind": "Gateway", "metadata": {"name": contour::GATEWAY}, "spec": spec,
    });
    gateways.apply(object).await.map(drop)
}

#[tokio::test]
async fn readiness_is_the_gateways_own_word() {
    scenario("readiness_is_the_gateways_own_word", async |s| {
        let _alone = GATEWAY.write().await;
        // Given a Garage in a namespace of its own whose owner consents to buckets from here
        let store = s.cluster.namespace("store").await?;
        let world = World::new(&s, "narrow.test", Some(store.name())).await?;
        let owner = Stage::in_namespace(&s, store.name()).await?;
        let gateways = Stage::in_namespace(&s, contour::NAMESPACE).await?;
        owner
            .apply(json!({
                "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
                "metadata": {"name": "buckets"},
                "spec": {"from": [{"kind": "GarageBucket", "namespace": s.ns()}],
                         "to": [{"kind": "GarageCluster", "name": "garage"}]},
            }))
            .await?;
        // And no Gateway
        let gateway = gateways.there("Gateway", contour::GATEWAY).await?;
        gateways.delete("Gateway", contour::GATEWAY).await?;
        gateways.gone("Gateway", contour::GATEWAY).await?;
        // When a bucket asks for a route of one of its listeners, under a name that this listener does not serve
        let parent = json!({"name": contour::GATEWAY, "namespace": contour::NAMESPACE, "sectionName": "narrow"});
        let exposure = json!({"hostnames": ["site.wide.test"], "gateway": {"parentRefs": [parent]}});
        let cluster = json!({"name": "garage", "namespace": store.name()});
        let objects = [("index.html", "from the other namespace")];
        world.bucket_in("site", "site", &objects, &exposure, cluster).await?;
        // Then the route stands, and waits for whoever should answer for it
        let said = world.stage.says("site", "NotReady", contour::GATEWAY).await?;
        say(format!("Gateway absent: {}", said["message"]));
        let waiting = said["message"].as_str().unwrap().to_owned();
        // When the Gateway comes, then its refusal is the bucket's
        let narrow = json!({"name": "narrow", "protocol": "HTTP", "port": 80, "hostname": "*.narrow.test",
                            "allowedRoutes": {"namespaces": {"from": "All"}}});
        gateway_with(&gateways, &gateway, narrow).await?;
        let own = world
            .stage
            .until("the Gateway's refusal", "HTTPRoute", "site-website", |route| {
                let conditions = route.pointer("/status/parents/0/conditions")?.as_array()?;
                let accepted = conditions.iter().find(|c| c["type"] == "Accepted")?;
                let refused = (&accepted["status"], &accepted["reason"]);
                (refused == (&json!("False"), &json!("NoMatchingListenerHostname"))).then(|| accepted.clone())
            })
            .await?;
        let refused = world.stage.says("site", "NotReady", own["message"].as_str().unwrap()).await?;
        assert_ne!(refused["message"], waiting.as_str());
        say(format!("hostname of another listener: {}", refused["message"]));
        world.silent("site.wide.test").await?;
        // When the name fits, then the backend of another namespace is what is missing
        let host = "site.narrow.test";
        world.ask("site", &json!({"hostnames": [host], "gateway": {"parentRefs": [parent]}})).await?;
        let said = world.stage.says("site", "NotReady", "ReferenceGrant").await?;
        say(format!("no ReferenceGrant: {}", said["message"]));
        world.silent(host).await?;
        // When the owner of the Service grants it, then the page is there; and it goes with the grant
        let grant = json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": "routes"},
            "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": s.ns()}],
                     "to": [{"group": "", "kind": "Service"}]},
        });
        owner.apply(grant).await?;
        world.stage.reason("site", "Exposed").await?;
        world.answers(host, "/", 200, "from the other namespace").await?;
        owner.delete("ReferenceGrant", "routes").await?;
        world.stage.says("site", "NotReady", "ReferenceGrant").await?;
        world.silent(host).await?;
        // And all of it without a write that says nothing: the audit log knows no other requests than these kinds
        let all = world.stage.everything(&world.operator, Mark::START)?;
        let applied = all.iter().filter(|r| r.resource == "httproutes" && r.is_write()).count();
        assert_eq!(applied, 2, "one creation and one change of hostnames");
        // In the end the Gateway is as the other scenarios want it
        gateway_as(&gateways, &gateway, gateway["spec"]["listeners"].clone()).await
    })
    .await;
}
