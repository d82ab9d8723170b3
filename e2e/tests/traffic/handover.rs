//! An Ingress that somebody wrote by hand becomes one of ours while people look at the page.

use routewright_e2e::net::Answer;
use routewright_e2e::{contour, scenario};
use serde_json::{Value, json};

use crate::world::{GATEWAY, Visitor, World, by_ingress};

/// Anything but the page.
fn not_the_page(answer: Option<&Answer>) -> Option<String> {
    match answer {
        Some(answer) if answer.status == 200 && answer.text() == "the page" => None,
        Some(answer) => Some(format!("{} {}", answer.status, answer.text())),
        None => Some("no answer".to_owned()),
    }
}

/// To the Service that ours leads to: with another one it is up to the gateway whether a request falls into the change
/// (Contour's Envoy was seen to answer one with 503).
fn by_hand(name: &str, host: &str) -> Value {
    let backend = json!({"service": {"name": "garage-gateway", "port": {"number": 3902}}});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "annotations": {"example.test/mine": "stays"}},
        "spec": {"ingressClassName": contour::INGRESS_CLASS, "rules": [
            {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
    })
}

#[tokio::test]
async fn a_hand_written_ingress_is_handed_over_while_its_page_is_served() {
    scenario(
        "a_hand_written_ingress_is_handed_over_while_its_page_is_served",
        async |s| {
            let _shared = GATEWAY.read().await;
            let world = World::new(&s, "hand.test", None).await?;
            let page = [("index.html", "the page")];
            // Given a page that is served by an Ingress of the name that ours would have, and one of another name
            for (bucket, ingress, host) in [
                ("same", "same-website", "same.hand.test"),
                ("other", "mine", "other.hand.test"),
            ] {
                world.stage.apply(by_hand(ingress, host)).await?;
                world.bucket(bucket, bucket, &page, &Value::Null).await?;
                world.answers(host, "/", 200, "the page").await?;
            }
            let visitors =
                ["same.hand.test", "other.hand.test"].map(|host| Visitor::of(&world, host, not_the_page));
            // When the bucket asks for the first name, then the Ingress is somebody's and is left alone
            world.ask("same", &by_ingress(&["same.hand.test"])).await?;
            let before = world.stage.there("Ingress", "same-website").await?;
            world
                .stage
                .says("same", "ReconcileFailed", "same-website")
                .await?;
            assert_eq!(
                world.stage.there("Ingress", "same-website").await?["spec"],
                before["spec"]
            );
            // When its owner hands it over by the bucket's uid, then it is the bucket's; what is not ours on it stays
            let bucket = world.stage.there("GarageBucket", "same").await?;
            let adopt =
                json!({"metadata": {"annotations": {"routewright.dev/adopt": bucket["metadata"]["uid"]}}});
            world.stage.merge("Ingress", "same-website", adopt).await?;
            world.stage.reason("same", "Exposed").await?;
            let ours = world.stage.there("Ingress", "same-website").await?;
            assert_eq!(ours["metadata"]["uid"], before["metadata"]["uid"]);
            assert_eq!(
                ours["metadata"]["ownerReferences"][0]["uid"], bucket["metadata"]["uid"],
                "{ours}"
            );
            assert_eq!(ours["metadata"]["annotations"]["example.test/mine"], "stays");
            let port = ours.pointer("/spec/rules/0/http/paths/0/backend/service/port");
            assert_eq!(port, Some(&json!({"name": "web"})), "{ours}");
            // When the other bucket is exposed beside the Ingress of another name, and that is deleted then
            world.ask("other", &by_ingress(&["other.hand.test"])).await?;
            world.stage.reason("other", "Exposed").await?;
            world.stage.delete("Ingress", "mine").await?;
            world.stage.gone("Ingress", "mine").await?;
            world.answers("other.hand.test", "/", 200, "the page").await?;
            // Then nobody who looked saw anything but the page
            for visitor in visitors {
                visitor.content().await;
            }
            Ok(())
        },
    )
    .await;
}
