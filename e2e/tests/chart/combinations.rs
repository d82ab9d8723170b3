//! Every combination of the toggles as running Pods, installed by Helm: it gets ready, nothing that it asks for is
//! refused, and in a life of buckets that needs every right, the rights that it uses are those that it has.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use routewright_e2e::cluster::Namespace;
use routewright_e2e::garage::{ADMIN, Garage, GarageOptions};
use routewright_e2e::sh::say;
use routewright_e2e::stage::{DOMAIN, GARAGE, Kind, Stage, squatter};
use routewright_e2e::tyk::{NAME, Tyk, Which};
use routewright_e2e::{Error, Result, Scenario, scenario, wait};
use serde_json::{Value, json};

use crate::TURN;
use crate::release::{Release, SOON, apply_crds, crds, tyk_crds, without_crds};

/// Which controllers are on.
#[derive(Clone, Copy, Debug)]
struct Toggles {
    ingress: bool,
    gateway: bool,
    garage: bool,
    /// Never for some namespaces only.
    tyk: bool,
}

impl Toggles {
    fn all() -> impl Iterator<Item = Self> {
        (0..16).map(|n| Self {
            ingress: n & 1 > 0,
            gateway: n & 2 > 0,
            garage: n & 4 > 0,
            tyk: n & 8 > 0,
        })
    }

    fn name(self) -> String {
        let mark = |on: bool, c: char| if on { c } else { 'x' };
        [
            mark(self.ingress, 'i'),
            mark(self.gateway, 'g'),
            mark(self.garage, 'b'),
            mark(self.tyk, 't'),
        ]
        .iter()
        .collect()
    }

    fn on(self, kind: Kind) -> bool {
        match kind {
            Kind::Ingress => self.ingress,
            Kind::Route => self.gateway,
        }
    }

    fn values(self, watch: &[&str]) -> Value {
        json!({
            "ingress": {"enabled": self.ingress}, "gatewayAPI": {"enabled": self.gateway},
            "garageBuckets": {"enabled": self.garage, "cleanupOnUninstall": false}, "watchNamespaces": watch,
            "tyk": {"enabled": self.tyk, "keepApis": true}, "crds": {"garage": {"enabled": false}},
            // The life below has buckets that the policy would refuse.
            "admissionPolicy": {"enabled": false},
        })
    }
}

/// How many are installed at once.
const AT_ONCE: usize = 4;

#[tokio::test]
async fn every_combination_runs_and_uses_exactly_its_rights() {
    scenario("every_combination_runs_and_uses_exactly_its_rights", async |s| {
        let _turn = TURN.lock().await;
        without_crds(s.cluster).await?;
        apply_crds(&s, &crds(|_| {}))?;
        apply_crds(&s, &tyk_crds())?;
        s.cluster.gateway_crds("standard").await?;
        let garage = Garage::deploy(s.cluster, s.ns(), "garage", &GarageOptions::default()).await?;
        // Given one for Tyk alone, then it has no right on the other half, and no word on its buckets
        tyk_alone(&s).await?;
        // And each combination for all namespaces, while there is nothing to do
        stream::iter(Toggles::all().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |toggles| idle(&s, toggles))
            .await?;
        // And each for its own two namespaces, eight releases beside each other in one
        let narrow = Toggles::all()
            .filter(|toggles| !toggles.tyk)
            .map(|toggles| alone(&s, &garage, toggles));
        let outcomes: Vec<Result<()>> = stream::iter(narrow).buffer_unordered(AT_ONCE).collect().await;
        for outcome in outcomes {
            outcome?;
        }
        // And all of it for all namespaces
        let all = Toggles {
            ingress: true,
            gateway: true,
            garage: true,
            tyk: true,
        };
        let (home, away) = (namespace(&s, "home").await?, namespace(&s, "away").await?);
        let release = Release::new(s.cluster, "everywhere", s.ns())?;
        release.install(all.values(&[])).await?;
        live(&s, &release, all, &garage, (&home, &away)).await?;
        let stage = Stage::in_namespace(&s, home.name()).await?;
        routed(&s, &stage).await?;
        finish(release, all, &[]).await?;
        unrouted(&stage).await
    })
    .await;
}

/// A release for Tyk alone, in a namespace with a bucket that asks for an Ingress.
async fn tyk_alone(s: &Scenario) -> Result<()> {
    let toggles = Toggles {
        ingress: false,
        gateway: false,
        garage: false,
        tyk: true,
    };
    let home = namespace(s, "tyk").await?;
    let stage = Stage::in_namespace(s, home.name()).await?;
    let exposure = Kind::Ingress.exposure(&[], json!({}));
    stage.new_bucket("unseen", &exposure).await?;
    let release = Release::new(s.cluster, "tyk-alone", s.ns())?;
    release.install(toggles.values(&[])).await?;
    routed(s, &stage).await?;
    release.calm().await?;
    let bucket = stage.get("GarageBucket", "unseen").await?.unwrap();
    assert_eq!(bucket.pointer("/status/conditions"), None, "{bucket}");
    finish(release, toggles, &[]).await?;
    stage.delete("GarageBucket", "unseen").await?;
    unrouted(&stage).await
}

async fn namespace(s: &Scenario, prefix: &str) -> Result<Namespace<'static>> {
    s.cluster.namespace(prefix).await
}

/// Ready with every controller that is on, without a bucket, and without a refusal.
async fn idle(s: &Scenario, toggles: Toggles) -> Result<()> {
    let release = Release::new(s.cluster, &format!("wide-{}", toggles.name()), s.ns())?;
    release.install(toggles.values(&[])).await?;
    assert_eq!(release.refused()?, Vec::<String>::new(), "{toggles:?}");
    let text = release.helm(&["get", "notes", &release.name]).await?;
    let next = match (toggles.ingress || toggles.gateway, toggles.garage) {
        (_, true) => "connect a Garage and make a bucket",
        (true, false) => "set spec.websiteExposure on a GarageBucket",
        (false, false) if toggles.tyk => "kubectl wait gatewayclass/<name>",
        (false, false) => "helm upgrade wide-xxxx <chart> -n",
    };
    assert!(text.contains(next), "{toggles:?}: {text}");
    let tyk = "Gateway API on Tyk: say where Tyk is";
    assert_eq!(text.contains(tyk), toggles.tyk, "{toggles:?}: {text}");
    release.uninstall().await
}

/// A release for two namespaces of its own, and a life in them.
async fn alone(s: &Scenario, garage: &Garage, toggles: Toggles) -> Result<()> {
    let (home, away) = (namespace(s, "home").await?, namespace(s, "away").await?);
    let watch = [home.name(), away.name()];
    let release = Release::new(s.cluster, &toggles.name(), s.ns())?;
    release.install(toggles.values(&watch)).await?;
    live(s, &release, toggles, garage, (&home, &away)).await?;
    finish(release, toggles, &watch).await
}

/// What is granted and what was used are the same.
async fn finish(release: Release, toggles: Toggles, watch: &[&str]) -> Result<()> {
    assert_eq!(release.refused()?, Vec::<String>::new(), "{toggles:?}");
    let granted = release.granted(watch)?;
    wait::eventually(
        &format!("{toggles:?}: rights used = rights granted"),
        SOON,
        || async {
            let used = release.used().map_err(|e| e.to_string())?;
            let idle: Vec<_> = granted.difference(&used).collect();
            let more: Vec<_> = used.difference(&granted).collect();
            match idle.is_empty() && more.is_empty() {
                true => Ok(()),
                false => Err(format!(
                    "granted and not used: {idle:?}; used and not granted: {more:?}\n{}",
                    release.logs()
                )),
            }
        },
    )
    .await?;
    say(format!("{}: {} rights, all used", release.name, granted.len()));
    release.uninstall().await
}

/// A life of buckets that needs every right: made, exposed either way, in the way of somebody, with clusters at home and
/// away behind a grant that selects namespaces, switched off, gone.
async fn live(
    s: &Scenario,
    release: &Release,
    toggles: Toggles,
    garage: &Garage,
    (home, away): (&Namespace<'_>, &Namespace<'_>),
) -> Result<()> {
    let (at_home, abroad) = (
        Stage::in_namespace(s, home.name()).await?,
        Stage::in_namespace(s, away.name()).await?,
    );
    handle(&at_home, toggles, garage).await?;
    at_home
        .apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant", "metadata": {"name": "by-label"},
            "spec": {"from": [{"kind": "GarageBucket", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": away.name()}}}]},
        }))
        .await?;
    for (kind, name) in [(Kind::Ingress, "by-ingress"), (Kind::Route, "by-route")] {
        // A name of its own: all releases share one Garage.
        let name = format!("{name}-{}-{}", release.name, home.name());
        let (child, mut exposure) = (format!("{name}-website"), kind.exposure(&[], json!({})));
        exposure["backendRef"] = json!({"name": "garage", "port": 3902});
        at_home.apply(squatter(kind, &child, json!({}))).await?;
        at_home.new_bucket(&name, &exposure).await?;
        in_garage(&at_home, toggles, &name).await?;
        if toggles.on(kind) {
            at_home.says(&name, "ReconcileFailed", "nobody").await?;
            at_home.delete(kind.name(), &child).await?;
            kind.settled(&at_home, &name).await?;
            at_home.expose(&name, &Value::Null).await?;
            at_home.gone(kind.name(), &child).await?;
        } else {
            let reason = if kind == Kind::Ingress {
                "IngressDisabled"
            } else {
                "GatewayAPIUnavailable"
            };
            at_home.reason(&name, reason).await?;
            at_home.delete(kind.name(), &child).await?;
        }
        at_home.delete("GarageBucket", &name).await?;
        at_home.gone("GarageBucket", &name).await?;
        // And one in another namespace than its cluster: an Ingress cannot reach there, a route may
        let name = format!("{name}-away");
        let mut bucket = json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": {"name": name},
            "spec": {"clusterRef": {"name": GARAGE, "namespace": home.name()}, "website": {"enabled": true}},
        });
        bucket["spec"]["websiteExposure"] = exposure;
        abroad.apply(bucket).await?;
        in_garage(&abroad, toggles, &name).await?;
        match (toggles.on(kind), kind) {
            (true, Kind::Ingress) => drop(abroad.reason(&name, "ReconcileFailed").await?),
            (true, Kind::Route) => kind.settled(&abroad, &name).await?,
            (false, Kind::Ingress) => drop(abroad.reason(&name, "IngressDisabled").await?),
            (false, Kind::Route) => drop(abroad.reason(&name, "GatewayAPIUnavailable").await?),
        }
        abroad.delete("GarageBucket", &name).await?;
        abroad.gone("GarageBucket", &name).await?;
    }
    Ok(())
}

/// A handle to the Garage with its token; played by the test where the operator does not do it.
async fn handle(stage: &Stage, toggles: Toggles, garage: &Garage) -> Result<()> {
    stage
        .apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"token": garage.token()}}))
        .await?;
    let spec = json!({
        "connectTo": {
            "adminApiEndpoint": format!("http://{}", garage.address(ADMIN)),
            "adminTokenSecretRef": {"name": "token", "key": "token"},
        },
        "webApi": {"rootDomain": DOMAIN},
    });
    if toggles.garage {
        let cluster = json!({
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "metadata": {"name": GARAGE}, "spec": spec,
        });
        stage.apply(cluster).await?;
        let running = |cluster: &Value| (cluster.pointer("/status/phase")? == "Running").then_some(());
        stage.until("Running", "GarageCluster", GARAGE, running).await
    } else {
        stage.garage(GARAGE, spec).await
    }
}

/// The bucket is in Garage: made by the operator, or said to be by the test.
async fn in_garage(stage: &Stage, toggles: Toggles, name: &str) -> Result<()> {
    if !toggles.garage {
        return stage.made(name).await;
    }
    let made = |bucket: &Value| bucket.pointer("/status/globalAlias")?.as_str().map(drop);
    stage
        .until("in Garage", "GarageBucket", name, made)
        .await
        .map_err(|e| Error::other(format!("{name}: {e}")))
}

/// The class of this scenario alone.
const CLASS: &str = "chart-combinations";

/// What was held for Tyk can go after the release.
async fn unrouted(stage: &Stage) -> Result<()> {
    for (kind, name) in [("HTTPRoute", "tyk"), ("Gateway", "tyk"), ("GatewayClass", CLASS)] {
        stage.delete(kind, name).await?;
        stage.gone(kind, name).await?;
    }
    Ok(())
}

/// A class, a Gateway and a route with an attached definition on a Tyk that then has another address: whatever is written
/// to Kubernetes is written.
async fn routed(s: &Scenario, stage: &Stage) -> Result<()> {
    let double = Tyk::deploy(s.cluster, stage.ns(), Which::Double).await?;
    double.class(CLASS, "routewright.dev/tyk")?;
    let gateway = |kind: &str, spec: Value| json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": "tyk"}, "spec": spec});
    let document = json!({
        "openapi": "3.0.3", "info": {"title": "x", "version": "1"}, "paths": {},
        "x-tyk-api-gateway": {"info": {"name": "x", "state": {"active": true}}, "server": {}, "upstream": {}},
    });
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tyk"}, "data": {"oas.json": document.to_string()}}),
        json!({
            "apiVersion": "tyk.tyk.io/v1alpha1", "kind": "TykOasApiDefinition", "metadata": {"name": "tyk"},
            "spec": {
                "tykOAS": {"configmapRef": {"name": "tyk", "keyName": "oas.json"}},
                "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "tyk"}],
            },
        }),
        gateway(
            "Gateway",
            json!({"gatewayClassName": CLASS, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}),
        ),
        gateway(
            "HTTPRoute",
            json!({"parentRefs": [{"name": "tyk"}], "rules": [{"backendRefs": [{"name": NAME, "port": 80}]}]}),
        ),
    ] {
        stage.apply(object).await?;
    }
    let condition = |object: &Value, path: &str, kind: &str| -> Option<String> {
        let conditions = object.pointer(path)?.as_array()?;
        let found = conditions.iter().find(|c| c["type"] == kind)?;
        Some(format!(
            "{} {}",
            found["status"].as_str()?,
            found["reason"].as_str()?
        ))
    };
    for (kind, name, path, expected) in [
        ("GatewayClass", CLASS, "/status/conditions", "True Accepted"),
        ("Gateway", "tyk", "/status/conditions", "True Accepted"),
        (
            "TykOasApiDefinition",
            "tyk",
            "/status/conditions",
            "True Attached",
        ),
        (
            "HTTPRoute",
            "tyk",
            "/status/parents/0/conditions",
            "True Accepted",
        ),
    ] {
        let says = |object: &Value| (condition(object, path, "Accepted")? == expected).then_some(());
        stage.until(expected, kind, name, says).await?;
    }
    // The same Tyk by another name: the record of those that the context led to is changed, not created.
    let moved = double.url().replace(".svc.cluster.local", ".svc");
    let secret = json!({"stringData": {"TYK_URL": moved}});
    stage.merge("Secret", NAME, secret).await.map(drop)
}
