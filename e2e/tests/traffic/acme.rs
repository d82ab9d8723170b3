//! cert-manager proves a name by HTTP-01 through an Ingress of ours, which it edits in place.

use routewright_e2e::stage::{Stage, restart};
use routewright_e2e::tools::Part;
use routewright_e2e::{Result, Scenario, contour, image, scenario};
use serde_json::json;

use crate::gateway::{gateway_as, gateway_with};
use crate::world::{GATEWAY, World, by_ingress};

/// A Secret with a certificate that nobody looks at.
async fn certificate(stage: &Stage, name: &str) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["some.test".to_owned()]).unwrap();
    stage
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()},
        }))
        .await
        .map(drop)
}

/// What answers an HTTP-01 challenge.
async fn solver(s: &Scenario) -> Result<()> {
    s.cluster.load_part(Part::TestApp).await?;
    let labels = json!({"app": "cm-acme-http-solver"});
    let objects = json!([
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "cm-acme-http-solver", "namespace": s.ns()},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "solver", "image": image::TESTAPP, "imagePullPolicy": "Never",
                                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}}],
            }}},
        },
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "cm-acme-http-solver", "namespace": s.ns()},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 8089, "targetPort": 8080}]},
        },
    ]);
    s.cluster
        .apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    s.cluster.rollout(s.ns(), "deploy/cm-acme-http-solver").await
}

#[tokio::test]
async fn cert_managers_solver_edit_is_tolerated() {
    scenario("cert_managers_solver_edit_is_tolerated", async |s| {
        let _alone = GATEWAY.write().await;
        let mut world = World::new(&s, "acme.test", None).await?;
        // Contour takes no path of a rule but the first while its Gateway has no listener for HTTPS
        let gateways = Stage::in_namespace(&s, contour::NAMESPACE).await?;
        let gateway = gateways.there("Gateway", contour::GATEWAY).await?;
        certificate(&gateways, "some").await?;
        let https = json!({"name": "https", "protocol": "HTTPS", "port": 443,
                           "tls": {"certificateRefs": [{"name": "some"}]},
                           "allowedRoutes": {"namespaces": {"from": "All"}}});
        gateway_with(&gateways, &gateway, https).await?;
        solver(&s).await?;
        // Given a site by an Ingress that cert-manager may edit in place
        let host = "site.acme.test";
        let mut exposure = by_ingress(&[host]);
        exposure["ingress"]["annotations"] =
            json!({"cert-manager.io/cluster-issuer": "acme", "acme.cert-manager.io/http01-edit-in-place": "true"});
        world.bucket("site", "site", &[("index.html", "the page")], &exposure).await?;
        world.stage.reason("site", "Exposed").await?;
        world.answers(host, "/", 200, "the page").await?;
        world.stage.calm(&world.operator).await?;
        // When it puts the path of its solver in front of ours, by PUT as it does
        let challenge = "/.well-known/acme-challenge/token-1";
        let path = json!({"path": challenge, "pathType": "ImplementationSpecific", "backend": {"service": {
            "name": "cm-acme-http-solver", "port": {"number": 8089}}}});
        let mut edited = world.stage.there("Ingress", "site-website").await?;
        edited["metadata"]["managedFields"].take();
        let paths = edited["spec"]["rules"][0]["http"]["paths"].as_array_mut().unwrap();
        paths.insert(0, path);
        let mark = world.stage.mark()?;
        let edited = world.stage.put("cert-manager-challenges", &edited).await?;
        // Then the challenge is answered, the page is served as before, and nothing is written
        world.answers(host, challenge, 200, challenge).await?;
        world.answers(host, "/", 200, "the page").await?;
        world.stage.costs("the solver's path is there", &world.operator, mark, &[]).await?;
        // Nor by a restart, nor by a change of the bucket that the Ingress has no part in
        restart(&mut world.operator).await?;
        let note = json!({"metadata": {"annotations": {"example.test/note": "x"}}});
        world.stage.merge("GarageBucket", "site", note).await?;
        world.stage.costs("restart beside the solver", &world.operator, mark, &[]).await?;
        let live = world.stage.there("Ingress", "site-website").await?;
        assert_eq!(live["spec"], edited["spec"]);
        // When the bucket changes meanwhile, then that is applied, once, and the challenge goes on
        exposure["ingress"]["annotations"]["example.test/team"] = json!("red");
        world.ask("site", &exposure).await?;
        let change = [("apply ingresses 200", 1), ("apply garagebuckets/status 200", 1)];
        world.stage.costs("a change beside the solver", &world.operator, mark, &change).await?;
        let live = world.stage.there("Ingress", "site-website").await?;
        assert_eq!(live["metadata"]["annotations"]["example.test/team"], "red");
        assert_eq!(live["spec"], edited["spec"]);
        world.answers(host, challenge, 200, challenge).await?;
        let mark = world.stage.mark()?;
        // When cert-manager takes it away, then nothing is written either
        let mut done = live;
        done["metadata"]["managedFields"].take();
        done["spec"]["rules"][0]["http"]["paths"].as_array_mut().unwrap().remove(0);
        world.stage.put("cert-manager-challenges", &done).await?;
        world.stage.costs("the solver's path is gone", &world.operator, mark, &[]).await?;
        world.answers(host, challenge, 404, "").await?;
        world.answers(host, "/", 200, "the page").await?;
        // When somebody adds a path that is no challenge, then it is taken out again, once
        let mut foreign = world.stage.there("Ingress", "site-website").await?;
        foreign["metadata"]["managedFields"].take();
        let paths = foreign["spec"]["rules"][0]["http"]["paths"].as_array_mut().unwrap();
        let mut path = paths[0].clone();
        path["path"] = json!("/admin");
        paths.insert(0, path);
        world.stage.put("somebody", &foreign).await?;
        world.stage.costs("another path", &world.operator, mark, &[("apply ingresses 200", 1)]).await?;
        let live = world.stage.there("Ingress", "site-website").await?;
        assert_eq!(live["spec"]["rules"][0]["http"]["paths"].as_array().unwrap().len(), 1, "{live}");
        gateway_as(&gateways, &gateway, gateway["spec"]["listeners"].clone()).await
    })
    .await;
}
