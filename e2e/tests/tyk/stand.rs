//! What the other scenarios stand on: the Tyk in its Pod serves a document that somebody posts by hand.

use routewright_e2e::tools::Part;
use routewright_e2e::tyk::{ORG, Tyk};
use routewright_e2e::{image, scenario};
use serde_json::json;

use crate::world::which;

#[tokio::test]
async fn a_document_posted_by_hand_is_served() {
    scenario("a_document_posted_by_hand_is_served", async |s| {
        // Given a Tyk and an echo server
        let tyk = Tyk::deploy(s.cluster, s.ns(), which()?).await?;
        s.cluster.load_part(Part::TestApp).await?;
        let labels = json!({"app": "echo"});
        let objects = json!([
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "echo", "namespace": s.ns(), "labels": labels},
             "spec": {"terminationGracePeriodSeconds": 1,
                      "containers": [{"name": "app", "image": image::TESTAPP, "imagePullPolicy": "Never"}]}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo", "namespace": s.ns()},
             "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}},
        ]);
        s.cluster
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        // When a document is posted and loaded
        let document = json!({
            "openapi": "3.0.3", "info": {"title": "by hand", "version": "1"}, "paths": {},
            "x-tyk-api-gateway": {
                "info": {"id": "by-hand", "name": "by hand", "orgId": ORG, "state": {"active": true}},
                "server": {"listenPath": {"value": "/hand", "strip": true},
                           "customDomain": {"enabled": true, "name": "hand.test"}},
                "upstream": {"url": format!("http://echo.{}.svc.cluster.local", s.ns())},
            },
        });
        let answer = tyk.rest("POST", "/tyk/apis/oas", Some(&document)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = tyk.rest("GET", "/tyk/reload/?block=true", None).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        // Then it is listed, and served under its host alone
        assert!(tyk.apis().await?.contains_key("by-hand"));
        tyk.answers("hand.test", "/hand/x", 200, "/x").await?;
        assert_eq!(tyk.get("other.test", "/hand/x").await?.status, 404);
        Ok(())
    })
    .await;
}
