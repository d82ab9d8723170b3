//! Companion mode: a script plays the operator that owns buckets, merge-patches them and writes their status.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use routewright_e2e::operator::Operator;
use routewright_e2e::stage::{Kind, Stage, both, exposed};
use routewright_e2e::{Result, Scenario, scenario};
use serde_json::{Value, json};

const THEIRS: &str = "garagebucket.garage.rajsingh.info/finalizer";

/// The other operator, as far as it writes.
struct Script(Api<DynamicObject>);

impl Script {
    fn new(client: Client, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk("garage.rajsingh.info", "v1beta1", "GarageBucket");
        Self(Api::namespaced_with(
            client,
            namespace,
            &ApiResource::from_gvk(&kind),
        ))
    }

    fn params() -> PatchParams {
        PatchParams {
            field_manager: Some("other-operator".to_owned()),
            ..PatchParams::default()
        }
    }

    async fn merge(&self, patch: Value) -> Result<()> {
        self.0
            .patch("site", &Self::params(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Fields of status, and its own condition among those of others: the list that was read, under the version that was read.
    async fn status(&self, fields: Value, ready: bool) -> Result<()> {
        loop {
            let live = self.0.get("site").await?;
            let conditions = live.data.pointer("/status/conditions").and_then(Value::as_array);
            let mut conditions: Vec<Value> = conditions.cloned().unwrap_or_default();
            conditions.retain(|c| c["type"] != "Ready");
            conditions.push(json!({
                "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "Theirs",
                "message": "said by them", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
            let mut status = fields.clone();
            status["conditions"] = json!(conditions);
            let patch = json!({"metadata": {"resourceVersion": live.resource_version()}, "status": status});
            let params = Self::params();
            match self.0.patch_status("site", &params, &Patch::Merge(patch)).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(refused)) if refused.code == 409 => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
}

#[tokio::test]
async fn beside_a_script_an_ingress_is_exposed_and_nobody_loses_a_field() {
    scenario(
        "beside_a_script_an_ingress_is_exposed_and_nobody_loses_a_field",
        async |s| beside(&s, Kind::Ingress).await,
    )
    .await;
}

#[tokio::test]
async fn beside_a_script_a_route_is_exposed_and_nobody_loses_a_field() {
    scenario(
        "beside_a_script_a_route_is_exposed_and_nobody_loses_a_field",
        async |s| beside(&s, Kind::Route).await,
    )
    .await;
}

async fn beside(s: &Scenario, kind: Kind) -> Result<()> {
    s.cluster.gateway_crds("standard").await?;
    let stage = Stage::new(s).await?;
    let operator = Operator::process(s.cluster, both(s.ns())).await?;
    let script = Script::new(s.client().await?, s.ns());
    stage.usual_garage().await?;
    // Given a bucket of the other operator, exposed by us
    stage.new_bucket("site", &kind.exposure(&[], json!({}))).await?;
    script
        .merge(json!({"metadata": {"finalizers": [THEIRS]}}))
        .await?;
    let made = json!({"bucketId": "id-of-site", "globalAlias": "site", "phase": "Ready"});
    script.status(made, true).await?;
    kind.settled(&stage, "site").await?;
    stage.calm(&operator).await?;
    let said = |bucket: &Value| {
        let mut condition = exposed(bucket).cloned().unwrap_or_default();
        condition.as_object_mut().map(|c| c.remove("observedGeneration"));
        condition
    };
    let before = said(&stage.there("GarageBucket", "site").await?);
    assert_eq!(before["reason"], "Exposed");
    let child = stage.there(kind.name(), "site-website").await?;

    // When it writes what does not concern us, then that costs nothing; a new generation is acknowledged, once
    for round in 0..2_u32 {
        let mark = stage.mark()?;
        let retries = json!({"garage.rajsingh.info/finalization-retries": round.to_string()});
        script
            .merge(json!({"metadata": {"annotations": retries}}))
            .await?;
        let usage = json!({"size": format!("{round} B"), "quotaUsage": {"sizeBytes": round}});
        script.status(usage, round == 0).await?;
        stage
            .costs("a script's annotation and status", &operator, mark, &[])
            .await?;
        let mark = stage.mark()?;
        script
            .merge(json!({"spec": {"quotas": {"maxObjects": round + 1}}}))
            .await?;
        let status = "apply garagebuckets/status 200";
        stage
            .costs("a script's spec", &operator, mark, &[(status, 1)])
            .await?;
    }
    // Then our condition and the child are as they were, and theirs is theirs
    let bucket = stage.there("GarageBucket", "site").await?;
    assert_eq!(said(&bucket), before);
    assert_eq!(stage.there(kind.name(), "site-website").await?, child);
    assert!(bucket["spec"]["websiteExposure"].is_object() && bucket["status"]["websiteExposure"].is_object());
    assert_eq!(bucket["status"]["size"], "1 B");
    assert_eq!(bucket["status"]["phase"], "Ready");
    let conditions = bucket["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|c| c["reason"] == "Theirs"),
        "{conditions:?}"
    );

    // When it records another alias, then that is followed
    script.status(json!({"globalAlias": "weblog"}), true).await?;
    stage
        .until("the new alias", "GarageBucket", "site", |bucket| {
            let hosts = bucket.pointer("/status/websiteExposure/hostnames")?;
            (hosts == &json!(["weblog.example.test"])).then_some(())
        })
        .await?;

    // When the bucket goes, then it is theirs to let go, and the child goes with its owner
    stage.calm(&operator).await?;
    let mark = stage.mark()?;
    stage.delete("GarageBucket", "site").await?;
    stage
        .costs("a script's bucket goes", &operator, mark, &[])
        .await?;
    let bucket = stage.there("GarageBucket", "site").await?;
    assert_eq!(bucket["metadata"]["finalizers"], json!([THEIRS]));
    script.merge(json!({"metadata": {"finalizers": null}})).await?;
    stage.gone("GarageBucket", "site").await?;
    stage.gone(kind.name(), "site-website").await
}
