//! Names that are rewritten, names that Garage takes as they are, and the documents under them.

use routewright_e2e::scenario;
use serde_json::Value;

use crate::world::{GATEWAY, World, by_ingress, by_route};

#[tokio::test]
async fn rewritten_and_bare_names_serve_index_and_error_documents() {
    scenario(
        "rewritten_and_bare_names_serve_index_and_error_documents",
        async |s| {
            let _shared = GATEWAY.read().await;
            let world = World::new(&s, "names.test", None).await?;
            // Given a bucket with an index, a folder and an error document, under a name of its owner's and its own
            let objects = [
                ("index.html", "the front"),
                ("guide/index.html", "the guide"),
                ("404.html", "nothing of that name"),
            ];
            let names = ["www.customer.example", "docs.names.test"];
            world.bucket("docs", "docs", &objects, &by_route(&names)).await?;
            world.stage.reason("docs", "Exposed").await?;
            // Then the same documents come under both, also those for folders and for what is not there
            for host in names {
                world.answers(host, "/", 200, "the front").await?;
                world.answers(host, "/guide/", 200, "the guide").await?;
                world
                    .answers(host, "/nothing", 404, "nothing of that name")
                    .await?;
                // And a redirect into a folder does not tell the name that Garage was asked by
                let moved = world.get(host, "/guide").await?;
                assert_eq!(
                    (moved.status, moved.header("location")),
                    (302, Some("/guide/")),
                    "{moved:?}"
                );
            }
            // Given a bucket whose alias is a host of its own, outside of the root domain: an Ingress takes it as it is
            world
                .bucket(
                    "bare",
                    "www.bare.example",
                    &[("index.html", "bare")],
                    &by_ingress(&["www.bare.example"]),
                )
                .await?;
            world.stage.reason("bare", "Exposed").await?;
            world.answers("www.bare.example", "/", 200, "bare").await?;
            // Given an alias that ends in the root domain, which Garage reads as the shorter alias of somebody else
            world
                .bucket(
                    "short",
                    "www",
                    &[("index.html", "of the bucket www")],
                    &Value::Null,
                )
                .await?;
            let trap = "www.names.test";
            assert!(
                world
                    .garage
                    .web(trap, "/")
                    .await?
                    .text()
                    .contains("of the bucket www")
            );
            world
                .bucket(
                    "long",
                    trap,
                    &[("index.html", "of the long alias")],
                    &by_ingress(&[trap]),
                )
                .await?;
            // Then an Ingress, which cannot rewrite, is refused, and a route serves the right bucket
            world
                .stage
                .says("long", "ReconcileFailed", "spec.websiteExposure.hostnames[0]")
                .await?;
            assert_eq!(world.stage.get("Ingress", "long-website").await?, None);
            world.silent(trap).await?;
            world.ask("long", &by_route(&[trap])).await?;
            world.stage.reason("long", "Exposed").await?;
            world.answers(trap, "/", 200, "of the long alias").await?;
            // And no name but those listed leads anywhere
            for host in [
                "names.test",
                "bare.names.test",
                "long.names.test",
                "customer.example",
                "www.names.test.names.test",
            ] {
                assert_eq!(world.get(host, "/").await?.status, 404, "{host}");
            }
            Ok(())
        },
    )
    .await;
}
