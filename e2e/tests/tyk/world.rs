//! What the scenarios stand on: a Tyk, an operator with its controllers for it, a class and a Gateway of its own, backends.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use routewright_e2e::operator::Operator;
use routewright_e2e::stage::{SOON, Stage, looked_by};
use routewright_e2e::tools::Part;
use routewright_e2e::tyk::{HTTP, Tyk, Which};
use routewright_e2e::{Cluster, Result, Scenario, image, wait};
use serde_json::{Value, json};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Routes are watched in all namespaces, so that every operator here sees every bucket; those with other flags would
/// say something else of it. A scenario with a bucket has the cluster for itself.
static BUCKETS: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

/// Held for as long as the operator runs.
pub(crate) enum Turn {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

/// Name of the Gateway.
pub(crate) const GATEWAY: &str = "front";

/// The given Tyk Gateway, else the stand-in.
pub(crate) fn which() -> Result<Which> {
    Ok(Which::given()?.unwrap_or(Which::Double))
}

pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) stage: Stage,
    pub(crate) tyk: Tyk,
    pub(crate) operator: Operator,
    /// The GatewayClass, named after the namespace: several operators share the cluster.
    pub(crate) class: String,
    _turn: Turn,
}

impl World {
    /// Beside others of its kind, with no more than `tyk.enabled`.
    pub(crate) async fn new(s: &Scenario) -> Result<Self> {
        let _guard = BUCKETS.clone().read_owned().await;
        Self::within(s, json!({}), Turn::Shared { _guard }).await
    }

    /// When the others are done and before more begin, with these values over `tyk.enabled`.
    pub(crate) async fn alone(s: &Scenario, values: Value) -> Result<Self> {
        let _guard = BUCKETS.clone().write_owned().await;
        Self::within(s, values, Turn::Alone { _guard }).await
    }

    async fn within(s: &Scenario, mut values: Value, turn: Turn) -> Result<Self> {
        s.cluster.gateway_crds("standard").await?;
        s.cluster.product_crds().await?;
        let class = s.ns().to_owned();
        let controller = controller(&class);
        let tyk = Tyk::deploy(s.cluster, s.ns(), which()?).await?;
        tyk.class(&class, &controller)?;
        values["tyk"] = json!({"enabled": true, "controllerName": controller});
        let operator = Operator::process(s.cluster, values).await?;
        let stage = Stage::new(s).await?;
        let world = Self {
            cluster: s.cluster,
            stage,
            tyk,
            operator,
            class,
            _turn: turn,
        };
        world.gateway().await?;
        Ok(world)
    }

    /// The Gateway, as the scenarios want it; waits until it is programmed.
    pub(crate) async fn gateway(&self) -> Result<()> {
        self.stage.apply(gateway(&self.class)).await?;
        self.stage
            .until("programmed", "Gateway", GATEWAY, |gateway| {
                (state(gateway.pointer("/status/conditions")?, "Programmed")? == "True").then_some(())
            })
            .await
    }

    /// An echo server of this name, with a Service on port 80.
    pub(crate) async fn echo(&self, name: &str) -> Result<()> {
        self.cluster.load_part(Part::TestApp).await?;
        let (labels, ns) = (json!({"app": name}), self.stage.ns());
        let objects = json!([
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": ns, "labels": labels},
             "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                 {"name": "app", "image": image::TESTAPP, "imagePullPolicy": "Never",
                  "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}}]}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": ns},
             "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}},
        ]);
        self.cluster
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        self.cluster
            .kubectl([
                "-n",
                ns,
                "wait",
                "--for=condition=Ready",
                &format!("pod/{name}"),
                "--timeout=300s",
            ])
            .map(drop)
    }

    /// Waits until our entry for the Gateway says this of `Accepted`, at the route's generation; the condition.
    pub(crate) async fn accepted(&self, name: &str, status: &str, reason: &str) -> Result<Value> {
        self.stage
            .until(
                &format!("Accepted {status} {reason}"),
                "HTTPRoute",
                name,
                |route| {
                    let entry = entry(route, &controller(&self.class))?;
                    let condition = condition(entry.get("conditions")?, "Accepted")?;
                    let current = condition["observedGeneration"] == route["metadata"]["generation"];
                    (current && condition["status"] == status && condition["reason"] == reason)
                        .then(|| condition.clone())
                },
            )
            .await
    }

    /// Waits until all four controllers have nothing to do, as they say themselves.
    pub(crate) async fn looked(&self) -> Result<()> {
        looked_by(
            &self.operator,
            &["tyk-gatewayclass", "tyk-gateway", "tyk-httproute"],
        )
        .await
    }

    /// Waits until the Gateway counts so many routes on its listener.
    pub(crate) async fn attached(&self, count: usize) -> Result<()> {
        self.stage
            .until(
                &format!("{count} routes attached"),
                "Gateway",
                GATEWAY,
                |gateway| (*gateway.pointer("/status/listeners/0/attachedRoutes")? == count).then_some(()),
            )
            .await
    }

    /// Waits until the ids of the documents in Tyk number so many.
    pub(crate) async fn documents(&self, count: usize) -> Result<()> {
        wait::eventually(&format!("{count} documents in Tyk"), SOON, || async {
            let apis = self.tyk.apis().await.map_err(|e| e.to_string())?;
            let titles: Vec<String> = apis
                .values()
                .map(|api| api["info"]["title"].to_string())
                .collect();
            if apis.len() == count {
                Ok(())
            } else {
                Err(format!("{titles:?}"))
            }
        })
        .await
    }
}

/// The controllerName of a class.
pub(crate) fn controller(class: &str) -> String {
    format!("scenario.test/{class}")
}

fn gateway(class: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": GATEWAY},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "protocol": "HTTP", "port": HTTP}]},
    })
}

/// A route of one hostname and one path to an echo server.
pub(crate) fn route(name: &str, host: &str, path: &str, backend: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name},
        "spec": {"parentRefs": [{"name": GATEWAY}], "hostnames": [host], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": path}}],
            "backendRefs": [{"name": backend, "port": 80}]}]},
    })
}

/// The entry of a controller in a route's status.
pub(crate) fn entry<'a>(route: &'a Value, controller: &str) -> Option<&'a Value> {
    let entries = route.pointer("/status/parents")?.as_array()?;
    entries.iter().find(|e| e["controllerName"] == controller)
}

/// The condition of this type.
pub(crate) fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|c| c["type"] == kind)
}

fn state<'a>(conditions: &'a Value, kind: &str) -> Option<&'a str> {
    condition(conditions, kind)?["status"].as_str()
}

/// How long what must not happen is watched for.
pub(crate) const WATCHED: Duration = Duration::from_secs(5);
