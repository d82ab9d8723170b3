//! What the scenarios stand on: a gateway, a Garage, an operator, and somebody who asks for pages.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use routewright_e2e::garage::{Garage, GarageOptions, PAGE};
use routewright_e2e::net::Answer;
use routewright_e2e::operator::Operator;
use routewright_e2e::s3::Key;
use routewright_e2e::stage::{Stage, both};
use routewright_e2e::{Cluster, Result, Scenario, contour, wait};
use serde_json::{Value, json};
use tokio::sync::RwLock;

/// Taken for writing by the scenario that takes the Gateway away.
pub(crate) static GATEWAY: RwLock<()> = RwLock::const_new(());

/// How long something must go on: a gateway that would answer otherwise does so well within.
pub(crate) const STABLE: Duration = Duration::from_secs(2);

/// A gateway, a Garage under the root domain `.ROOT`, and an operator with both kinds on.
pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) address: IpAddr,
    pub(crate) stage: Stage,
    pub(crate) operator: Operator,
    pub(crate) garage: Garage,
    pub(crate) key: Key,
}

impl World {
    /// The Garage is in the namespace of the scenario, unless `elsewhere` names another one.
    pub(crate) async fn new(s: &Scenario, root: &str, elsewhere: Option<&str>) -> Result<Self> {
        let address = contour::install(s.cluster).await?;
        let place = elsewhere.unwrap_or(s.ns());
        let options = GarageOptions {
            root_domain: Some(format!(".{root}")),
            gateway: true,
        };
        let garage = Garage::deploy(s.cluster, place, "garage", &options).await?;
        let mut values = both(s.ns());
        values["watchNamespaces"] = json!([s.ns(), place]);
        if place == s.ns() {
            values["watchNamespaces"] = json!([s.ns()]);
        }
        let operator = Operator::process(s.cluster, values).await?;
        let spec = json!({"storage": {}, "gateway": {}, "webApi": {"rootDomain": format!(".{root}")}});
        Stage::in_namespace(s, place)
            .await?
            .garage("garage", spec)
            .await?;
        let key = garage.create_key("author").await?;
        let stage = Stage::new(s).await?;
        Ok(Self {
            cluster: s.cluster,
            address,
            stage,
            operator,
            garage,
            key,
        })
    }

    /// A bucket in Garage under `alias` with these objects, and the GarageBucket `name` that asks for `exposure`.
    pub(crate) async fn bucket(
        &self,
        name: &str,
        alias: &str,
        objects: &[(&str, &str)],
        exposure: &Value,
    ) -> Result<()> {
        self.bucket_in(name, alias, objects, exposure, json!({"name": "garage"}))
            .await
    }

    pub(crate) async fn bucket_in(
        &self,
        name: &str,
        alias: &str,
        objects: &[(&str, &str)],
        exposure: &Value,
        cluster: Value,
    ) -> Result<()> {
        let id = self.garage.create_website(alias).await?;
        let website = json!({"enabled": true, "indexDocument": "index.html", "errorDocument": "404.html"});
        let change = json!({"websiteAccess": website});
        self.garage
            .admin("POST", &format!("/v2/UpdateBucket?id={id}"), Some(change))
            .await?;
        self.garage.allow(&id, &self.key).await?;
        for (object, text) in objects {
            self.garage.put(alias, object, &self.key, text.as_bytes()).await?;
        }
        let mut spec = json!({"clusterRef": cluster, "globalAlias": alias, "website": website});
        if !exposure.is_null() {
            spec["websiteExposure"] = exposure.clone();
        }
        self.stage
            .apply(json!({
                "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
                "metadata": {"name": name}, "spec": spec,
            }))
            .await?;
        let status = json!({"bucketId": id, "globalAlias": alias, "phase": "Ready"});
        self.stage
            .merge_status("GarageBucket", name, status)
            .await
            .map(drop)
    }

    /// Replaces what a bucket asks for; null unsets it.
    pub(crate) async fn ask(&self, name: &str, exposure: &Value) -> Result<()> {
        let mut exposure = exposure.clone();
        if let Some(fields) = exposure.as_object_mut() {
            for kind in ["ingress", "gateway"] {
                fields.entry(kind).or_insert(Value::Null);
            }
        }
        let change = json!({"spec": {"websiteExposure": exposure}});
        self.stage.merge("GarageBucket", name, change).await.map(drop)
    }

    pub(crate) async fn get(&self, host: &str, path: &str) -> Result<Answer> {
        self.cluster.fetch(host, self.address, 80, path).await
    }

    /// Waits for an answer with this status and this text in it.
    pub(crate) async fn answers(&self, host: &str, path: &str, status: u16, part: &str) -> Result<Answer> {
        wait::eventually(&format!("{status} under {host}{path}"), PAGE, || async {
            let answer = self.get(host, path).await.map_err(|e| e.to_string())?;
            if answer.status == status && answer.text().contains(part) {
                Ok(answer)
            } else {
                Err(format!("{} {}", answer.status, answer.text()))
            }
        })
        .await
    }

    /// Waits until nothing is served under a host; a closed port counts, Envoy opens it with the first site.
    pub(crate) async fn silent(&self, host: &str) -> Result<()> {
        wait::eventually(&format!("nothing under {host}"), PAGE, || async {
            match self.get(host, "/").await {
                Ok(answer) if answer.status < 400 => Err(format!("{} {}", answer.status, answer.text())),
                _ => Ok(()),
            }
        })
        .await
    }
}

pub(crate) fn by_route(hostnames: &[&str]) -> Value {
    json!({"hostnames": hostnames, "gateway": {"parentRefs": [
        {"name": contour::GATEWAY, "namespace": contour::NAMESPACE}]}})
}

pub(crate) fn by_ingress(hostnames: &[&str]) -> Value {
    json!({"hostnames": hostnames, "ingress": {"ingressClassName": contour::INGRESS_CLASS}})
}

/// Somebody who asks for a host without a pause, until the end is asked for.
pub(crate) struct Visitor {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    asked: tokio::task::JoinHandle<Vec<String>>,
}

impl Visitor {
    /// Begins; `wrong` says of an answer (none when the connection failed) whether it must not be, and how it was.
    pub(crate) fn of(
        world: &World,
        host: &'static str,
        wrong: fn(Option<&Answer>) -> Option<String>,
    ) -> Self {
        let (cluster, address) = (world.cluster, world.address);
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (end, answers) = (Arc::clone(&stop), Arc::clone(&count));
        let asked = tokio::spawn(async move {
            let mut found = Vec::new();
            while !end.load(Ordering::Relaxed) {
                let answer = cluster.fetch(host, address, 80, "/").await.ok();
                answers.fetch_add(usize::from(answer.is_some()), Ordering::Relaxed);
                found.extend(wrong(answer.as_ref()));
            }
            found
        });
        Self { stop, count, asked }
    }

    /// Goes on until there were many answers, ends, and holds that none of them was wrong.
    pub(crate) async fn content(self) {
        wait::eventually("a hundred answers", PAGE, || async {
            match self.count.load(Ordering::Relaxed) {
                0..100 => Err("fewer".to_owned()),
                _ => Ok(()),
            }
        })
        .await
        .unwrap();
        self.stop.store(true, Ordering::Relaxed);
        let found = self.asked.await.unwrap();
        assert!(found.is_empty(), "{}: {found:?}", found.len());
    }
}
