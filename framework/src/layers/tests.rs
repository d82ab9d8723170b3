//! A toy planner and recording seams, shared by the tests of single layers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition as MetaCondition};
use serde_json::{Value, json};

use crate::{
    ApiKind, Children, Condition, Desired, Needs, Outcome, Plan, Planner, ReconcileError, Report, Request,
    Verdict,
    api::Target,
    owner::{OwnerWrite, OwnerWriter},
    plan::ApplyOptions,
};

/// The API that toys need.
pub(crate) const TOY_API: ApiKind = ApiKind::new("toys.example.org", "v1", "Toy", "toys");

/// Plans nothing; needs a feature and an API.
pub(crate) struct Toy;

impl Planner for Toy {
    type Object = ConfigMap;
    type Verdict = u32;
    const NAME: &'static str = "toy";

    fn needs(_: &ConfigMap) -> Needs {
        Needs {
            features: &["toys"],
            apis: &[TOY_API],
        }
    }
    async fn plan(&self, _: &Request<ConfigMap>) -> Result<Plan<u32>, ReconcileError> {
        Ok(Plan::report(7))
    }
    fn report(_: &ConfigMap, verdict: &Verdict<u32>, children: &Children) -> Report {
        let message = format!(
            "{verdict:?} {:?}",
            children.0.iter().map(|c| &c.state).collect::<Vec<_>>()
        );
        Report::new(Outcome::Done).condition(Condition::new("Ready", true, "Fine", message))
    }
    fn report_error(_: &ConfigMap, error: &ReconcileError) -> Report {
        Report::new(Outcome::Done).condition(Condition::new("Ready", false, "Failed", error.message.clone()))
    }
    fn conditions(_: &ConfigMap) -> &[MetaCondition] {
        &[]
    }
    fn status_field(_: &ConfigMap, _: &str) -> Option<Value> {
        None
    }
}

/// A request for a ConfigMap `ns/name`.
pub(crate) fn object(name: &str) -> Request<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("ns".into());
    object.metadata.name = Some(name.into());
    object.metadata.uid = Some("owner-uid".into());
    object.metadata.resource_version = Some("5".into());
    object.metadata.generation = Some(1);
    Request::new(Arc::new(object))
}

/// A wanted child `ns/name`.
pub(crate) fn desired(name: &str) -> Desired {
    Desired {
        kind: TOY_API,
        namespace: "ns".into(),
        name: name.into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        body: json!({"spec": {"size": 1}}),
        options: ApplyOptions::default(),
    }
}

/// Records owner patches and answers with the patched object.
#[derive(Clone, Default)]
pub(crate) struct OwnerLog(Arc<Mutex<Vec<OwnerWrite>>>);

impl OwnerLog {
    pub(crate) fn writes(&self) -> Vec<OwnerWrite> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl OwnerWriter for OwnerLog {
    async fn write(
        &self,
        target: Target<'_>,
        version: &str,
        _: &str,
        write: &OwnerWrite,
    ) -> Result<Value, ReconcileError> {
        self.0.lock().unwrap().push(write.clone());
        let next = version.parse::<u64>().unwrap() + 1;
        let mut object = json!({"metadata": {
            "namespace": target.namespace, "name": target.name, "uid": "owner-uid",
            "resourceVersion": next.to_string(), "generation": 1,
        }});
        if let OwnerWrite::Finalizers(list) = write {
            object["metadata"]["finalizers"] = json!(list);
        }
        Ok(object)
    }
}
