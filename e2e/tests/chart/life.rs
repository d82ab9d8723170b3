//! A release over time: upgraded, rolled back, beside another one, beside CRDs that are newer or older, removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use routewright_e2e::audit::Mark;
use routewright_e2e::garage::{ADMIN, Garage, GarageOptions};
use routewright_e2e::operator::chart;
use routewright_e2e::stage::{DOMAIN, GARAGE, Kind, Stage};
use routewright_e2e::{Cluster, Error, Result, scenario, sh, wait};
use serde_json::{Value, json};

use crate::TURN;
use crate::release::{CRDS, Release, SOON, apply_crds, crds, schema, without_crds};

/// A copy of the chart as a later version: its own number, and CRDs with one more field.
fn next_chart(cluster: &Cluster) -> Result<PathBuf> {
    let folder = cluster.scratch().join("next-chart");
    let _ = fs::remove_dir_all(&folder);
    let from = chart();
    sh::run(sh::command(
        "cp",
        ["-r".as_ref(), from.as_os_str(), folder.as_os_str()],
    ))?;
    let edit = |file: &str, change: &dyn Fn(String) -> String| {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        let changed = change(text.clone());
        assert_ne!(text, changed, "{file}");
        fs::write(path, changed).unwrap();
    };
    edit("Chart.yaml", &|text| {
        text.replace("version: 0.1.0", "version: 0.2.0")
            .replace("appVersion: \"0.1.0\"", "appVersion: \"0.2.0\"")
    });
    edit("files/crds/garage.rajsingh.info_garagebuckets.yaml", &|text| {
        let before = "              websiteExposure:\n                description: \"Makes";
        text.replace(
            before,
            &format!("              ofTheNext:\n                type: string\n{before}"),
        )
    });
    Ok(folder)
}

/// Whether the installed CRD has the field of the later version.
fn has_next(cluster: &Cluster) -> Result<bool> {
    let path =
        "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.ofTheNext.type}";
    Ok(cluster.kubectl(["get", "crd", CRDS[0], "-o", path])? == "string")
}

#[tokio::test]
async fn upgrade_and_rollback_write_nothing_but_the_crds() {
    scenario("upgrade_and_rollback_write_nothing_but_the_crds", async |s| {
        let _turn = TURN.lock().await;
        without_crds(s.cluster).await?;
        // Given a release that has installed its CRDs and exposed a bucket
        let release = Release::new(s.cluster, "routewright", s.ns())?;
        let values = json!({"ingress": {"enabled": true}, "watchNamespaces": [s.ns()]});
        release.install(values.clone()).await?;
        s.cluster.established()?;
        let stage = Stage::new(&s).await?;
        stage.usual_garage().await?;
        stage
            .bucket("site", &Kind::Ingress.exposure(&[], json!({})))
            .await?;
        stage.reason("site", "Exposed").await?;
        let child = stage.there("Ingress", "site-website").await?;
        let bucket = stage.there("GarageBucket", "site").await?;
        release.calm().await?;
        let log = s.cluster.audit()?;
        let mark = log.mark()?;
        // When it is upgraded to a version with a newer CRD and another image, and rolled back
        let next = release.of(&next_chart(s.cluster)?, "next");
        next.install(values).await?;
        assert!(has_next(s.cluster)?);
        assert_eq!(image(&release)?, "routewright.test/routewright:next");
        unchanged(&stage, &child, &bucket).await?;
        release
            .helm(&["rollback", &release.name, "1", "--wait", "--timeout", "300s"])
            .await?;
        assert!(!has_next(s.cluster)?);
        assert_eq!(image(&release)?, "routewright.test/routewright:dev");
        // Then the operator has written nothing in all this but its lease
        unchanged(&stage, &child, &bucket).await?;
        let writes: Vec<_> = log
            .of_user(mark, &release.user())?
            .into_iter()
            .filter(|r| r.is_write() && r.resource != "leases")
            .collect();
        assert!(writes.is_empty(), "{writes:#?}");
        // And still works
        stage.expose("site", &Value::Null).await?;
        stage.gone("Ingress", "site-website").await?;
        release.uninstall().await
    })
    .await;
}

fn image(release: &Release) -> Result<String> {
    let path = "jsonpath={.spec.template.spec.containers[0].image}";
    release
        .cluster
        .kubectl(["-n", &release.ns, "get", "deploy", &release.full(), "-o", path])
}

/// Neither the child nor the bucket has been written since.
async fn unchanged(stage: &Stage, child: &Value, bucket: &Value) -> Result<()> {
    for (kind, name, old) in [
        ("Ingress", "site-website", child),
        ("GarageBucket", "site", bucket),
    ] {
        let now = stage.there(kind, name).await?;
        assert_eq!(
            now["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"],
            "{kind} {name}"
        );
    }
    Ok(())
}

/// A CRD as a later version has it: fields that this operator does not know, in spec and status, and kept strictly.
fn newer() -> Vec<Value> {
    crds(|crd| {
        if crd["spec"]["names"]["kind"] == "GarageBucket" {
            let fields = schema(crd)
                .pointer_mut("/properties/spec/properties/websiteExposure/properties")
                .unwrap();
            fields["ofTheNext"] = json!({"type": "object", "properties": {"mode": {"type": "string"}}});
            fields["ingress"]["properties"]["ofTheNext"] = json!({"type": "string"});
        }
    })
}

/// A CRD as an earlier version had it: a status that knows nothing of exposure but its conditions, and refuses the rest.
fn older() -> Vec<Value> {
    crds(|crd| {
        if crd["spec"]["names"]["kind"] == "GarageBucket" {
            let status = schema(crd)
                .pointer_mut("/properties/status")
                .unwrap()
                .as_object_mut()
                .unwrap();
            status.remove("x-kubernetes-preserve-unknown-fields");
            status["properties"]
                .as_object_mut()
                .unwrap()
                .remove("websiteExposure");
        }
    })
}

#[tokio::test]
async fn a_newer_and_an_older_crd_do_not_stop_the_operator() {
    scenario("a_newer_and_an_older_crd_do_not_stop_the_operator", async |s| {
        let _turn = TURN.lock().await;
        without_crds(s.cluster).await?;
        // Given the CRDs of a later version, installed by hand, and this operator
        apply_crds(&s, &newer())?;
        let release = Release::new(s.cluster, "routewright", s.ns())?;
        release
            .install(json!({"ingress": {"enabled": true}, "watchNamespaces": [s.ns()]}))
            .await?;
        let stage = Stage::new(&s).await?;
        stage.usual_garage().await?;
        // When a bucket uses what only the later version knows
        let exposure =
            json!({"ofTheNext": {"mode": "x"}, "ingress": {"ingressClassName": "nobody", "ofTheNext": "y"}});
        stage.bucket("new", &exposure).await?;
        // Then it is exposed all the same, and the field stays
        stage.reason("new", "Exposed").await?;
        let bucket = stage.there("GarageBucket", "new").await?;
        assert_eq!(bucket["spec"]["websiteExposure"]["ofTheNext"]["mode"], "x");
        assert_eq!(bucket["spec"]["websiteExposure"]["ingress"]["ofTheNext"], "y");
        assert_eq!(bucket["status"]["websiteExposure"]["name"], "new-website");
        // When the CRDs become those of an earlier version under it
        apply_crds(&s, &older())?;
        let exposure = json!({"websiteExposure": {"type": "Ingress", "name": "x"}});
        stage
            .schema_is("GarageBucket", "new", exposure, "/status/websiteExposure", false)
            .await?;
        stage
            .bucket("old", &Kind::Ingress.exposure(&[], json!({})))
            .await?;
        // Then the condition is said, without the block that the CRD does not know
        stage.reason("old", "Exposed").await?;
        stage.there("Ingress", "old-website").await?;
        let bucket = stage.there("GarageBucket", "old").await?;
        assert!(bucket["status"].get("websiteExposure").is_none(), "{bucket}");
        // And it does not try again and again
        release.calm().await?;
        release.uninstall().await
    })
    .await;
}

/// The release that Helm says has installed a CRD.
fn owner(cluster: &Cluster, crd: &str) -> Result<String> {
    let path = "jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-name}";
    cluster.kubectl(["get", "crd", crd, "-o", path])
}

#[tokio::test]
async fn crds_belong_to_the_release_that_installed_them() {
    scenario("crds_belong_to_the_release_that_installed_them", async |s| {
        let _turn = TURN.lock().await;
        without_crds(s.cluster).await?;
        let cluster = s.cluster;
        let other = cluster.namespace("other").await?;
        let first = Release::new(cluster, "routewright", s.ns())?;
        // The same name in another namespace: objects without a namespace must not collide.
        let second = Release::new(cluster, "routewright", other.name())?;
        let third = Release::new(cluster, "third", s.ns())?;
        let quiet = |more: Value| {
            let mut values = json!({"replicaCount": 0, "ingress": {"enabled": true}});
            for (key, value) in more.as_object().unwrap() {
                values[key] = value.clone();
            }
            values
        };
        // Given a release that installed the CRDs, and two more with the same values
        first.install(quiet(json!({}))).await?;
        second
            .install(quiet(json!({"watchNamespaces": [other.name()]})))
            .await?;
        third
            .install(quiet(json!({"watchNamespaces": [other.name()]})))
            .await?;
        for crd in CRDS {
            assert_eq!(owner(cluster, crd)?, "routewright", "{crd}");
            let path = "jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-namespace}";
            assert_eq!(cluster.kubectl(["get", "crd", crd, "-o", path])?, s.ns());
        }
        // When another one is upgraded to a version with newer CRDs, then they stay as they are
        let next = next_chart(cluster)?;
        second.of(&next, "next").install(quiet(json!({}))).await?;
        assert!(!has_next(cluster)?);
        // When the others are removed, then the CRDs and the first release's rights stay
        second.uninstall().await?;
        third.uninstall().await?;
        cluster.kubectl(["get", "clusterrole", &first.wide()])?;
        assert_eq!(owner(cluster, CRDS[0])?, "routewright");
        // When the first is removed, then they are kept with their objects, and it may take them up again
        let stage = Stage::new(&s).await?;
        stage.new_bucket("kept", &Value::Null).await?;
        first.uninstall().await?;
        stage.there("GarageBucket", "kept").await?;
        first.of(&next, "next").install(quiet(json!({}))).await?;
        assert!(has_next(cluster)?);
        // When a switch would delete them with every object, then it is refused
        let unkept = quiet(json!({"crds": {"keep": false}}));
        first.install(unkept).await?;
        let off = quiet(json!({"crds": {"keep": false, "garage": {"enabled": false}}}));
        let refused = first.install(off).await.unwrap_err().to_string();
        assert!(
            refused.contains("every object of it: upgrade once with crds.keep=true before"),
            "{refused}"
        );
        stage.there("GarageBucket", "kept").await?;
        // And by way of keep it is done, and they stay
        first.install(quiet(json!({}))).await?;
        first
            .install(quiet(json!({"crds": {"garage": {"enabled": false}}})))
            .await?;
        stage.there("GarageBucket", "kept").await?;
        first.uninstall().await?;
        cluster.kubectl(["get", "crd", CRDS[0]]).map(drop)
    })
    .await;
}

/// Objects of a release that are still there, whatever kind; without Pods on their way out and what Kubernetes makes.
fn left(release: &Release) -> Result<String> {
    let label = format!("app.kubernetes.io/instance={}", release.name);
    let kinds = "deploy,job,service,serviceaccount,configmap,role,rolebinding,networkpolicy,pdb,servicemonitor,prometheusrule";
    let wide = "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding";
    let here = release
        .cluster
        .kubectl(["-n", &release.ns, "get", kinds, "-l", &label, "-o", "name"])?;
    let everywhere = release
        .cluster
        .kubectl(["get", wide, "-l", &label, "-o", "name"])?;
    let ours: Vec<&str> = everywhere
        .lines()
        .filter(|name| name.contains(&release.wide()))
        .collect();
    Ok(here + &ours.join(" "))
}

#[tokio::test]
async fn uninstall_leaves_nothing_stuck() {
    scenario("uninstall_leaves_nothing_stuck", async |s| {
        let _turn = TURN.lock().await;
        without_crds(s.cluster).await?;
        let cluster = s.cluster;
        // Given everything on, with its own CRDs and those of the Prometheus Operator
        let release = Release::new(cluster, "routewright", s.ns())?;
        monitoring_crds(cluster)?;
        let ca = rcgen::generate_simple_self_signed(vec!["garage.example.test".to_owned()]).unwrap();
        let own = Stage::new(&s).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "private-ca"}, "stringData": {"ca.crt": ca.cert.pem()}});
        own.apply(secret).await?;
        let everything = |keep: bool| {
            json!({
                "ingress": {"enabled": true}, "gatewayAPI": {"enabled": true}, "garageBuckets": {"enabled": true},
                "replicaCount": 2, "networkPolicy": {"enabled": true}, "grafanaDashboard": {"enabled": true},
                "serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true},
                "extraCA": {"secretName": "private-ca"}, "crds": {"keep": keep},
                "guards": {
                    "allowedHostnameSuffixes": ["example.com"], "allowedIngressAnnotationPrefixes": ["cert-manager.io/"],
                    "allowedHTTPRouteAnnotationPrefixes": ["external-dns.alpha.kubernetes.io/"],
                    "allowedLabelPrefixes": ["team.example.com/"],
                },
                // Nobody listens there, and that must do no harm.
                "otel": {"endpoint": "http://127.0.0.1:4317"},
            })
        };
        cluster.gateway_crds("standard").await?;
        release.install(everything(true)).await?;
        cluster.established()?;
        // And a Garage with two buckets of the operator, one with a page in it
        let garage = Garage::deploy(cluster, s.ns(), "garage", &GarageOptions::default()).await?;
        let home = cluster.namespace("tenant").await?;
        let stage = Stage::in_namespace(&s, home.name()).await?;
        connect(&stage, &garage).await?;
        for name in ["empty", "full"] {
            stage.new_bucket(&format!("{name}-{}", s.ns()), &Value::Null).await?;
            held(&stage, &format!("{name}-{}", s.ns())).await?;
        }
        let (empty, full) = (format!("empty-{}", s.ns()), format!("full-{}", s.ns()));
        garage.put_page(&full, "<h1>kept</h1>").await?;
        // When the controller is switched off, then they are let go; and taken again when it is switched on
        let mut off = everything(true);
        off["garageBuckets"]["enabled"] = json!(false);
        release.install(off).await?;
        for name in [&empty, &full] {
            let free = stage.there("GarageBucket", name).await?;
            assert!(free["metadata"].get("finalizers").is_none(), "{free}");
        }
        release.install(everything(true)).await?;
        for name in [&empty, &full] {
            held(&stage, name).await?;
        }
        // And one is being deleted, and cannot be: there is a page in it
        stage.delete("GarageBucket", &full).await?;
        // When the release is removed
        release.uninstall().await?;
        // Then nothing of it is left, and no bucket is held
        wait::eventually("objects of the release gone", SOON, || async {
            let left = left(&release).map_err(|e| e.to_string())?;
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await?;
        stage.gone("GarageBucket", &full).await?;
        let stays = stage.there("GarageBucket", &empty).await?;
        assert!(stays["metadata"].get("finalizers").is_none(), "{stays}");
        stage.delete("GarageBucket", &empty).await?;
        stage.gone("GarageBucket", &empty).await?;
        // And the Job has used exactly its rights
        let account = format!("{}-cleanup", release.full());
        let asked = cluster.audit()?.of_account(Mark::START, s.ns(), &account)?;
        let used: BTreeSet<String> = asked
            .iter()
            // 404: the Deployment, once it is gone.
            .filter(|r| !r.resource.starts_with('/') && r.code != 404)
            .map(|r| format!("{} {} {}", r.verb, r.resource, r.code))
            .collect();
        // A merge patch that names its field manager is told from an apply by nothing in the log.
        let expected = ["list garagebuckets 200", "apply garagebuckets 200", "get deployments 200"];
        assert_eq!(used, expected.map(str::to_owned).into());
        // And what is in Garage is not touched
        garage.bucket_id(&full).await?;
        garage.bucket_id(&empty).await?;
        // And installed again without keep, the CRDs go with the release, though a bucket was held
        release.install(everything(true)).await?;
        release.install(everything(false)).await?;
        let last = format!("last-{}", s.ns());
        stage.new_bucket(&last, &Value::Null).await?;
        held(&stage, &last).await?;
        release.uninstall().await?;
        wait::eventually("CRDs gone", SOON, || async {
            let crds = cluster.kubectl(["get", "crd", "-o", "name"]).map_err(|e| e.to_string())?;
            if CRDS.iter().all(|crd| !crds.contains(crd)) { Ok(()) } else { Err(crds) }
        })
        .await?;
        garage.bucket_id(&last).await?;
        // And the tenant's namespace can go
        cluster.kubectl(["delete", "namespace", home.name(), "--timeout=300s"]).map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_namespace_that_loses_its_role_first_can_still_go() {
    scenario(
        "a_namespace_that_loses_its_role_first_can_still_go",
        async |s| {
            let _turn = TURN.lock().await;
            without_crds(s.cluster).await?;
            let cluster = s.cluster;
            // Given a release for one namespace, with a bucket that the operator holds
            let garage = Garage::deploy(cluster, s.ns(), "garage", &GarageOptions::default()).await?;
            let home = cluster.namespace("tenant").await?;
            let release = Release::new(cluster, "routewright", s.ns())?;
            release
                .install(json!({
                    "garageBuckets": {"enabled": true, "cleanupOnUninstall": false}, "watchNamespaces": [home.name()],
                }))
                .await?;
            cluster.established()?;
            let stage = Stage::in_namespace(&s, home.name()).await?;
            connect(&stage, &garage).await?;
            let name = format!("held-{}", s.ns());
            stage.new_bucket(&name, &Value::Null).await?;
            held(&stage, &name).await?;
            // When the namespace goes, and the operator's rights in it before the bucket
            let wide = release.wide();
            for kind in ["rolebinding", "role"] {
                cluster.kubectl(["-n", home.name(), "delete", kind, &wide])?;
            }
            // Then nothing is left that holds it
            cluster
                .kubectl(["delete", "namespace", home.name(), "--timeout=180s"])
                .map_err(|e| Error::other(format!("{e}\n{}", release.logs())))?;
            release.uninstall().await
        },
    )
    .await;
}

/// The kinds of the Prometheus Operator that the chart may make.
fn monitoring_crds(cluster: &Cluster) -> Result<()> {
    let module = "github.com/prometheus-operator/prometheus-operator";
    let folder = cluster
        .tools()
        .go_module("prometheus-operator", module)?
        .join("example/prometheus-operator-crd");
    for kind in ["servicemonitors", "prometheusrules"] {
        let text = fs::read_to_string(folder.join(format!("monitoring.coreos.com_{kind}.yaml"))).unwrap();
        cluster.apply(&text)?;
    }
    cluster.established()
}

/// A handle to the Garage, once it runs.
async fn connect(stage: &Stage, garage: &Garage) -> Result<()> {
    let token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"token": garage.token()}});
    stage.apply(token).await?;
    let spec = json!({
        "connectTo": {
            "adminApiEndpoint": format!("http://{}", garage.address(ADMIN)),
            "adminTokenSecretRef": {"name": "token", "key": "token"},
        },
        "webApi": {"rootDomain": DOMAIN},
    });
    let cluster = json!({"apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "metadata": {"name": GARAGE}, "spec": spec});
    stage.apply(cluster).await?;
    let running = |cluster: &Value| (cluster.pointer("/status/phase")? == "Running").then_some(());
    stage.until("Running", "GarageCluster", GARAGE, running).await
}

/// Waits until the bucket is in Garage and carries the operator's finalizer.
async fn held(stage: &Stage, name: &str) -> Result<()> {
    stage
        .until("in Garage", "GarageBucket", name, |bucket| {
            let finalizers = bucket.pointer("/metadata/finalizers")?.as_array()?;
            (finalizers.iter().any(|f| f == "routewright.dev/garage-bucket")
                && bucket.pointer("/status/globalAlias")?.is_string())
            .then_some(())
        })
        .await
}
