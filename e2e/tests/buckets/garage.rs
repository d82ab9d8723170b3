//! With a real Garage: a handle that refers to another, a grant by label, a bucket's whole life, and two objects about one bucket.

use routewright_e2e::garage::{ADMIN, Garage, GarageOptions};
use routewright_e2e::operator::Operator;
use routewright_e2e::stage::Stage;
use routewright_e2e::{Result, scenario};
use serde_json::{Value, json};

/// The condition Ready as `status/reason`.
fn ready(object: &Value) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    Some(format!(
        "{}/{}",
        ready["status"].as_str()?,
        ready["reason"].as_str()?
    ))
}

/// Waits until Ready says this about the present generation.
async fn says(stage: &Stage, kind: &str, name: &str, wanted: &str) -> Result<Value> {
    stage
        .until(wanted, kind, name, |object| {
            let conditions = object.pointer("/status/conditions")?.as_array()?;
            let condition = conditions.iter().find(|c| c["type"] == "Ready")?;
            let fresh = condition["observedGeneration"] == object["metadata"]["generation"];
            (fresh && ready(object)? == wanted).then(|| object.clone())
        })
        .await
}

/// How many buckets the Garage has.
async fn buckets(garage: &Garage) -> Result<usize> {
    let list = garage.admin("GET", "/v2/ListBuckets", None).await?;
    Ok(list.as_array().map_or(0, Vec::len))
}

#[tokio::test]
async fn a_bucket_of_another_namespace_lives_by_a_grant_and_dies_without_one() {
    scenario("a_bucket_of_another_namespace_lives_by_a_grant_and_dies_without_one", async |s| {
        // Given a Garage, a handle of it, and a second handle that refers to the first
        let home = Stage::new(&s).await?;
        let namespace = s.cluster.namespace("away").await?;
        let away = Stage::in_namespace(&s, namespace.name()).await?;
        let options = GarageOptions { root_domain: Some(".buckets.example.test".to_owned()), gateway: false };
        let garage = Garage::deploy(s.cluster, s.ns(), "store", &options).await?;
        let values = json!({"garageBuckets": {"enabled": true}, "watchNamespaces": [s.ns(), away.ns()]});
        let operator = Operator::process(s.cluster, values).await?;
        home.apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "metadata": {"name": "garage"},
            "spec": {"connectTo": {
                "adminApiEndpoint": format!("http://{}", garage.address(ADMIN)),
                "adminTokenSecretRef": {"name": "store-admin-token", "key": "token"},
            }},
        }))
        .await?;
        home.apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster", "metadata": {"name": "same"},
            "spec": {"connectTo": {"clusterRef": {"name": "garage"}}},
        }))
        .await?;
        for handle in ["garage", "same"] {
            says(&home, "GarageCluster", handle, "True/AdminAPIReachable").await?;
        }
        // When a bucket of another namespace wants it, then it is denied, and nothing is made
        let bucket = |spec: Value| {
            let mut object = json!({
                "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": {"name": "docs"},
                "spec": {"clusterRef": {"name": "same", "namespace": s.ns()}},
            });
            for (field, value) in spec.as_object().into_iter().flatten() {
                object["spec"][field] = value.clone();
            }
            object
        };
        away.apply(bucket(json!({}))).await?;
        says(&away, "GarageBucket", "docs", "False/GrantDenied").await?;
        // and a grant by label, to all that is here, makes no difference before the namespace has the label
        home.apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant", "metadata": {"name": "blue"},
            "spec": {"from": [{"kind": "GarageBucket", "namespaceSelector": {"matchLabels": {"team": "blue"}}}]},
        }))
        .await?;
        assert_eq!(buckets(&garage).await?, 0);
        home.merge("Namespace", away.ns(), json!({"metadata": {"labels": {"team": "blue"}}})).await?;
        // Then it is made, under its name
        let made = says(&away, "GarageBucket", "docs", "True/BucketReady").await?;
        let id = made["status"]["bucketId"].as_str().unwrap().to_owned();
        assert_eq!(garage.bucket_id("docs").await?, id);
        // When everything about it changes, then Garage has it so
        away.apply(bucket(json!({
            "globalAlias": "handbook", "quotas": {"maxSize": "1Gi", "maxObjects": 5},
            "website": {"enabled": true, "indexDocument": "start.html", "errorDocument": "404.html"},
        })))
        .await?;
        let changed = says(&away, "GarageBucket", "docs", "True/BucketReady").await?;
        assert_eq!(changed["status"]["globalAlias"], "handbook");
        let info = garage.admin("GET", &format!("/v2/GetBucketInfo?id={id}"), None).await?;
        assert_eq!(info["globalAliases"], json!(["handbook"]), "{info}");
        assert_eq!(info["quotas"], json!({"maxSize": 1 << 30, "maxObjects": 5}), "{info}");
        assert_eq!(info["websiteConfig"]["indexDocument"], "start.html", "{info}");
        // When another object wants the bucket through the other handle, then it is refused
        home.apply(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": {"name": "thief"},
            "spec": {"clusterRef": {"name": "garage"}, "bucketId": id},
        }))
        .await?;
        says(&home, "GarageBucket", "thief", "False/BucketClaimed").await?;
        home.delete("GarageBucket", "thief").await?;
        home.gone("GarageBucket", "thief").await?;
        assert_eq!(garage.bucket_id("handbook").await?, id);
        // When the grant goes, then nothing more is changed
        home.delete("GarageReferenceGrant", "blue").await?;
        let denied = says(&away, "GarageBucket", "docs", "False/GrantDenied").await?;
        assert_eq!(denied["status"]["bucketId"], json!(id));
        away.apply(bucket(json!({"globalAlias": "other"}))).await?;
        says(&away, "GarageBucket", "docs", "False/GrantDenied").await?;
        assert_eq!(garage.bucket_id("handbook").await?, id);
        // and its deletion needs no grant
        away.delete("GarageBucket", "docs").await?;
        away.gone("GarageBucket", "docs").await?;
        assert_eq!(buckets(&garage).await?, 0);
        assert!(!operator.logs()?.contains(garage.token()), "the admin token is in the log");
        Ok(())
    })
    .await;
}
