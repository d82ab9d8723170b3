//! From a bucket to its page: GarageBucket, HTTPRoute, Gateway on Tyk, Tyk, Garage.

use routewright_e2e::garage::{Garage, GarageOptions};
use routewright_e2e::scenario;
use routewright_e2e::sh::say;
use routewright_e2e::stage::Stage;
use serde_json::{Value, json};

use crate::world::{GATEWAY, World};

const ROOT: &str = "chain.test";

fn bucket(hostnames: &[&str]) -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": {"name": "site"},
        "spec": {
            "clusterRef": {"name": "garage"}, "globalAlias": "site",
            "website": {"enabled": true, "indexDocument": "index.html"},
            "websiteExposure": {"hostnames": hostnames, "gateway": {"parentRefs": [{"name": GATEWAY}]}},
        },
    })
}

#[tokio::test]
async fn a_buckets_page_is_served_through_tyk() {
    scenario("a_buckets_page_is_served_through_tyk", async |s| {
        // Given a Garage with a page, and both halves of Routewright in one process: exposure, and Gateway API on Tyk
        let options = GarageOptions {
            root_domain: Some(format!(".{ROOT}")),
            gateway: true,
        };
        let garage = Garage::deploy(s.cluster, s.ns(), "garage", &options).await?;
        let world = World::alone(&s, json!({"gatewayAPI": {"enabled": true}})).await?;
        let stage = Stage::new(&s).await?;
        let spec = json!({"storage": {}, "gateway": {}, "webApi": {"rootDomain": format!(".{ROOT}")}});
        stage.garage("garage", spec).await?;
        let id = garage.create_website("site").await?;
        garage.put_page("site", "from bucket to page").await?;
        // When its bucket asks for a route of the Gateway
        let host = format!("site.{ROOT}");
        stage.apply(bucket(&[&host])).await?;
        stage
            .merge_status(
                "GarageBucket",
                "site",
                json!({"bucketId": id, "globalAlias": "site", "phase": "Ready"}),
            )
            .await?;
        // Then the bucket says that it is exposed, and the page is served under its hostname, and under no other
        stage.reason("site", "Exposed").await?;
        world.tyk.answers(&host, "/", 200, "from bucket to page").await?;
        world
            .tyk
            .answers(&host, "/index.html", 200, "from bucket to page")
            .await?;
        assert_eq!(world.tyk.get("other.chain.test", "/").await?.status, 404);
        world.attached(1).await?;
        // When another hostname is asked for that Garage would have to see under another name, which Tyk does not do
        stage.apply(bucket(&[&host, "www.elsewhere.test"])).await?;
        // Then its route is refused by the field, and the bucket repeats the message
        let said = stage.says("site", "NotReady", "urlRewrite.hostname").await?;
        say(format!("rewritten hostname: {}", said["message"]));
        assert!(
            said["message"].as_str().unwrap().contains("UnsupportedValue"),
            "{said}"
        );
        // And nothing is served half: the rule is one for all hostnames, so the first one goes with it
        world.documents(0).await?;
        world.tyk.answers(&host, "/", 404, "").await?;
        assert_eq!(world.tyk.get("www.elsewhere.test", "/").await?.status, 404);
        // When the hostname is taken out, then the page is there again
        stage.apply(bucket(&[&host])).await?;
        stage.reason("site", "Exposed").await?;
        world.tyk.answers(&host, "/", 200, "from bucket to page").await?;
        // When the bucket asks for nothing more, then nothing is left of it, in the cluster and in Tyk
        stage
            .merge("GarageBucket", "site", json!({"spec": {"websiteExposure": null}}))
            .await?;
        stage.gone("HTTPRoute", "site-website").await?;
        world.documents(0).await?;
        world.tyk.answers(&host, "/", 404, "").await?;
        world.attached(0).await
    })
    .await;
}
