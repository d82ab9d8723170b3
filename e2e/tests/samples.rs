//! What the documentation shows is done on a real cluster: the quick start command by command, every sample, and the
//! health check for Argo CD.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use routewright_e2e::cluster::{repository, switched_on};
use routewright_e2e::node::random_token;
use routewright_e2e::operator::Operator;
use routewright_e2e::sh::say;
use routewright_e2e::stage::Stage;
use routewright_e2e::tools::{Part, Tools};
use routewright_e2e::{Result, Scenario, reader, scenario, sh};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The namespace of every sample, so that they are applied as they stand: one scenario at a time.
const NAMESPACE: &str = "storage";
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn the_quick_start_leads_from_an_empty_cluster_to_a_fetched_page() {
    scenario(
        "the_quick_start_leads_from_an_empty_cluster_to_a_fetched_page",
        async |s| {
            let _alone = ALONE.lock().await;
            // Given a cluster with a gateway, and nothing of ours
            reader::furnish(s.cluster).await?;
            assert!(s.cluster.kubectl(["get", "namespace", NAMESPACE]).is_err());
            let crds = [
                "garagebuckets.garage.rajsingh.info",
                "garageclusters.garage.rajsingh.info",
                "garagereferencegrants.garage.rajsingh.info",
            ];
            // The other scenario of this file may have been first.
            let gone = ["delete", "crd", "--ignore-not-found"];
            s.cluster.kubectl(gone.into_iter().chain(crds))?;
            // When the commands of the page are run one after the other, in a clone
            let blocks = reader::blocks(&page("quick-start.md"))?;
            let fetches = |text: &str| text.contains("curl ") && text.contains("Host: docs.web.example.com");
            assert!(
                blocks.iter().any(|(_, b)| fetches(b)),
                "the page does not fetch anything"
            );
            let said = reader::follow(s.cluster, &repository(), &blocks).await?;
            say(&said);
            // Then the page came back, a bucket by a Gateway was exposed too, and what was made is gone
            assert!(said.contains("<h1>It works</h1>"), "{said}");
            assert!(
                said.contains("garagebucket.garage.rajsingh.info/docs condition met"),
                "{said}"
            );
            assert!(
                said.contains("garagebucket.garage.rajsingh.info/blog condition met"),
                "{said}"
            );
            for namespace in [NAMESPACE, "routewright"] {
                assert!(
                    s.cluster.kubectl(["get", "namespace", namespace]).is_err(),
                    "{namespace} is still there"
                );
            }
            let left = s
                .cluster
                .kubectl(["get", "clusterrole,clusterrolebinding", "-o", "name"])?;
            assert!(!left.contains("routewright"), "{left}");
            // But the CRDs stay, and with them what others have
            s.cluster
                .kubectl(["get", "crd"].into_iter().chain(crds))
                .map(drop)
        },
    )
    .await;
}

/// A page of the documentation.
fn page(name: &str) -> PathBuf {
    repository().join("docs/src").join(name)
}

/// Applies a sample as it stands; the namespaces that it names are there before.
fn apply(s: &Scenario, file: &str) -> Result<()> {
    let path = repository().join("samples").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let namespaces: BTreeSet<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("  namespace: "))
        .collect();
    for namespace in namespaces {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        s.cluster.apply(&object.to_string())?;
    }
    s.cluster
        .kubectl(["apply", "-f", &path.display().to_string()])
        .map(drop)
}

#[tokio::test]
async fn every_sample_becomes_what_its_table_says() {
    scenario("every_sample_becomes_what_its_table_says", async |s| {
        let _alone = ALONE.lock().await;
        let check = health_check("GarageBucket");
        // Given a gateway, the images, the operator with everything on, and the namespace with its Secret
        reader::furnish(s.cluster).await?;
        let everything =
            json!({"ingress": {"enabled": true}, "gatewayAPI": {"enabled": true}, "garageBuckets": {"enabled": true}});
        let mut operator = Operator::process(s.cluster, everything).await?;
        s.cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        }).to_string())?;
        let stage = Stage::in_namespace(&s, NAMESPACE).await?;
        stage
            .apply(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "garage-admin"},
                "stringData": {"admin-token": format!("{0}{0}", random_token()?), "rpc-secret": format!("{0}{0}", random_token()?)},
            }))
            .await?;
        let mut seen = BTreeSet::new();
        // When the samples are applied in the order of their table
        for file in ordered() {
            apply(&s, &file)?;
            // Then each becomes what it says there
            match file.as_str() {
                "garage-to-try.yaml" => s.cluster.rollout(NAMESPACE, "deploy/garage").await?,
                "garage-cluster.yaml" => {
                    let running = |o: &Value| (o.pointer("/status/phase")? == "Running").then_some(());
                    stage.until("Running", "GarageCluster", "garage", running).await?;
                }
                "bucket-ingress.yaml" => {
                    let said = stage.reason("docs", "Exposed").await?;
                    assert_eq!(said["message"], format!("Ingress {NAMESPACE}/docs-website"));
                }
                "bucket-gateway.yaml" => {
                    let said = stage.reason("blog", "Exposed").await?;
                    assert_eq!(said["message"], format!("HTTPRoute {NAMESPACE}/blog-website"));
                }
                "reference-grant.yaml" => {
                    granted(&s, "team-a", json!({})).await?;
                    granted(&s, &format!("gold-{}", std::process::id()), json!({"tenant": "gold"})).await?;
                }
                "tyk/platform.yaml" => accepted(&s, "tyk", "gatewayclass/tyk,gateway/public,operatorcontext/public")?,
                "tyk/shop.yaml" => accepted(&s, "shop", "httproute/shop")?,
                "tyk/authentication.yaml" => accepted(&s, "shop", "tykoasapidefinition/shop-access")?,
                other => panic!("samples/{other}: say here what it becomes"),
            }
            seen.insert(file);
        }
        // And Argo CD would say so of the buckets
        for (name, status) in [("docs", "Healthy"), ("blog", "Healthy")] {
            let bucket = stage.there("GarageBucket", name).await?;
            assert_eq!(health(&check, &bucket).0, status, "{bucket}");
        }
        let files: BTreeSet<String> = ["", "tyk/"]
            .iter()
            .flat_map(|folder| {
                let entries = fs::read_dir(repository().join("samples").join(folder)).unwrap();
                entries.map(move |e| format!("{folder}{}", e.unwrap().file_name().to_string_lossy()))
            })
            .filter(|n| n.ends_with(".yaml"))
            .collect();
        assert_eq!(seen, files, "samples/README.md has no row for one");
        comes_back(&s, &stage, &mut operator).await?;
        s.cluster.kubectl(["-n", NAMESPACE, "delete", "garagebucket", "--all"])?;
        s.cluster.kubectl(["delete", "namespace", NAMESPACE]).map(drop)
    })
    .await;
}

/// The buckets are saved, lost and restored by the commands of the page on backups, and are the same ones in Garage.
async fn comes_back(s: &Scenario, stage: &Stage, operator: &mut Operator) -> Result<()> {
    let steps = reader::blocks(&page("how-to/backup-restore.md"))?;
    let (save, restore) = steps.split_at(2);
    let folder = s.cluster.scratch();
    let mut ids = Vec::new();
    for name in ["docs", "blog"] {
        ids.push((
            name,
            stage.there("GarageBucket", name).await?["status"]["bucketId"].clone(),
        ));
    }
    reader::follow(s.cluster, folder, save).await?;
    // Nobody is there to ask Garage for anything while all of it is lost
    operator.terminate()?;
    let ns = ["-n", NAMESPACE];
    for (name, _) in &ids {
        stage
            .merge("GarageBucket", name, json!({"metadata": {"finalizers": null}}))
            .await?;
    }
    s.cluster.kubectl(ns.into_iter().chain([
        "delete",
        "garagebucket,garagecluster,garagereferencegrant",
        "--all",
    ]))?;
    stage.gone("Ingress", "docs-website").await?;
    stage.gone("HTTPRoute", "blog-website").await?;
    operator.restart()?;
    operator.ready().await?;
    let said = reader::follow(s.cluster, folder, restore).await?;
    say(&said);
    for (name, id) in ids {
        stage.reason(name, "Exposed").await?;
        let bucket = stage.there("GarageBucket", name).await?;
        assert_eq!(bucket["status"]["bucketId"], id, "{bucket}");
    }
    Ok(())
}

/// The files of the table in samples/README.md, in its order.
fn ordered() -> Vec<String> {
    let text = fs::read_to_string(repository().join("samples/README.md")).unwrap();
    let files = text
        .lines()
        .filter_map(|l| l.strip_prefix("| [")?.split_once(']'));
    files.map(|(file, _)| file.to_owned()).collect()
}

/// The API server has taken them as they stand; there is no Tyk here that would do more.
fn accepted(s: &Scenario, namespace: &str, objects: &str) -> Result<()> {
    for object in objects.split(',') {
        s.cluster.kubectl(["-n", namespace, "get", object])?;
    }
    Ok(())
}

/// A bucket of a namespace that the sample grants something: ready with the grant, refused in another namespace.
async fn granted(s: &Scenario, namespace: &str, labels: Value) -> Result<()> {
    s.cluster.apply(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
            .to_string(),
    )?;
    let bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": {"name": "guest"},
        "spec": {"clusterRef": {"name": "garage", "namespace": NAMESPACE},
                 "globalAlias": format!("guest-{namespace}")},
    });
    let ready = |wanted: &'static str| {
        move |o: &Value| {
            let conditions = o.pointer("/status/conditions")?.as_array()?;
            let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
            (ready["status"] == wanted).then(|| ready.clone())
        }
    };
    let there = Stage::in_namespace(s, namespace).await?;
    there.apply(bucket.clone()).await?;
    there
        .until("Ready", "GarageBucket", "guest", ready("True"))
        .await?;
    // The scenario's own namespace is in no grant.
    let stranger = Stage::new(s).await?;
    stranger.apply(bucket).await?;
    let said = stranger
        .until("refused", "GarageBucket", "guest", ready("False"))
        .await?;
    assert!(
        said["message"].as_str().unwrap().contains("GarageReferenceGrant"),
        "{said}"
    );
    stranger.delete("GarageBucket", "guest").await?;
    stranger.gone("GarageBucket", "guest").await?;
    there.delete("GarageBucket", "guest").await?;
    there.gone("GarageBucket", "guest").await?;
    s.cluster
        .kubectl(["delete", "namespace", namespace, "--wait=false"])
        .map(drop)
}

/// The health check of a kind in the page on Argo CD.
fn health_check(kind: &str) -> String {
    let path = repository().join("docs/src/how-to/argocd.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks = text
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"));
    let (block, _) = blocks
        .into_iter()
        .find(|(block, _)| block.contains("argocd-cm"))
        .unwrap();
    let config: Value = serde_saphyr::from_str(block).unwrap();
    let key = format!("resource.customizations.health.garage.rajsingh.info_{kind}");
    config["data"][&key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key}"))
        .to_owned()
}

/// A value as Lua writes it.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => {
            let bytes: String = s.bytes().map(|b| format!("\\{b:03}")).collect();
            format!("\"{bytes}\"")
        }
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(k, v)| format!("[{}]={}", lua(&json!(k)), lua(v)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
    }
}

/// Status and message that a health check gives an object, by the interpreter that Argo CD embeds.
fn health(check: &str, object: &Value) -> (String, String) {
    let program = Tools::open().unwrap().program(Part::Lua, "glua").unwrap();
    let file = std::env::temp_dir().join(format!("routewright-health-{}.lua", std::process::id()));
    let script = format!(
        "obj = {}\nlocal function check()\n{check}\nend\nlocal hs = check()\nprint(hs.status)\nprint(hs.message)\n",
        lua(object)
    );
    fs::write(&file, script).unwrap();
    let said = sh::run(sh::command(program, [Path::new(&file)])).unwrap();
    fs::remove_file(&file).unwrap();
    let mut lines = said.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap_or_default())
}

#[test]
fn the_health_check_for_argo_cd_says_what_the_conditions_say() {
    if !switched_on("the_health_check_for_argo_cd_says_what_the_conditions_say") {
        return;
    }
    let check = health_check("GarageBucket");
    let condition = |kind: &str, status: &str, reason: &str, seen: u32| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("as {reason}"),
               "observedGeneration": seen})
    };
    let ready = condition("Ready", "True", "BucketReady", 2);
    let bucket = |deleting: bool, exposure: bool, phase: &str, conditions: Value| {
        let mut o = json!({"metadata": {"name": "b", "generation": 2}, "spec": {}, "status": {"conditions": conditions}});
        if deleting {
            o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if exposure {
            o["spec"]["websiteExposure"] = json!({"ingress": {}});
        }
        if !phase.is_empty() {
            o["status"]["phase"] = json!(phase);
        }
        o
    };
    let exposed = |status: &str, reason: &str, seen: u32| condition("WebsiteExposed", status, reason, seen);
    // Given a bucket in each state, then its health is this
    for (object, status, message) in [
        (
            json!({"metadata": {"generation": 1}, "spec": {}}),
            "Progressing",
            "waiting for the bucket controller",
        ),
        (
            bucket(false, false, "Ready", json!([ready])),
            "Healthy",
            "as BucketReady",
        ),
        (
            bucket(
                false,
                false,
                "Failed",
                json!([condition("Ready", "False", "X", 2)]),
            ),
            "Degraded",
            "as X",
        ),
        (
            bucket(
                false,
                false,
                "Pending",
                json!([condition("Ready", "False", "X", 2)]),
            ),
            "Progressing",
            "as X",
        ),
        (
            bucket(false, true, "Ready", json!([ready])),
            "Progressing",
            "waiting for WebsiteExposed",
        ),
        (
            bucket(
                false,
                true,
                "Ready",
                json!([ready, exposed("True", "Exposed", 2)]),
            ),
            "Healthy",
            "as Exposed",
        ),
        (
            bucket(
                false,
                true,
                "Ready",
                json!([ready, exposed("True", "Exposed", 1)]),
            ),
            "Progressing",
            "waiting for WebsiteExposed",
        ),
        (
            bucket(
                false,
                true,
                "Ready",
                json!([ready, exposed("False", "NotReady", 2)]),
            ),
            "Progressing",
            "as NotReady",
        ),
        (
            bucket(
                false,
                true,
                "Ready",
                json!([ready, exposed("False", "WaitingForAlias", 2)]),
            ),
            "Progressing",
            "as WaitingForAlias",
        ),
        (
            bucket(
                false,
                true,
                "Ready",
                json!([ready, exposed("False", "IngressDisabled", 2)]),
            ),
            "Degraded",
            "as IngressDisabled",
        ),
        (
            bucket(
                false,
                true,
                "Ready",
                json!([ready, exposed("False", "ReconcileFailed", 2)]),
            ),
            "Degraded",
            "as ReconcileFailed",
        ),
        (
            bucket(true, true, "Ready", json!([ready, exposed("True", "Exposed", 2)])),
            "Progressing",
            "being deleted",
        ),
        // Another operator writes the phase, and no Ready of ours
        (
            bucket(false, false, "Ready", json!([])),
            "Healthy",
            "the bucket is ready",
        ),
        (
            bucket(false, true, "Ready", json!([exposed("True", "Exposed", 2)])),
            "Healthy",
            "as Exposed",
        ),
    ] {
        assert_eq!(
            health(&check, &object),
            (status.to_owned(), message.to_owned()),
            "{object}"
        );
    }
    // And a handle in each
    let check = health_check("GarageCluster");
    let handle = |phase: &str, ready: Value| json!({"status": {"phase": phase, "conditions": [ready]}});
    for (object, status, message) in [
        (json!({"metadata": {}}), "Progressing", ""),
        (
            handle("Running", condition("Ready", "True", "AdminAPIReachable", 1)),
            "Healthy",
            "as AdminAPIReachable",
        ),
        (
            handle("Pending", condition("Ready", "False", "Unauthorized", 1)),
            "Degraded",
            "as Unauthorized",
        ),
        (
            handle("Pending", condition("Ready", "False", "AdminAPIUnreachable", 1)),
            "Progressing",
            "as AdminAPIUnreachable",
        ),
        (json!({"status": {"phase": "Degraded"}}), "Degraded", "Degraded"),
        (json!({"status": {"phase": "Running"}}), "Healthy", "Running"),
    ] {
        assert_eq!(
            health(&check, &object),
            (status.to_owned(), message.to_owned()),
            "{object}"
        );
    }
}
