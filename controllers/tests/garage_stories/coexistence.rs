//! Beside another operator of the same group. Companion mode: its script owns buckets and clusters and merge-patches them, we
//! only expose. What is its own is never touched: its CRDs, its conditions, its finalizer. And one that PUTs whole objects,
//! which is not supported: what is seen of it.

use std::time::Duration;

use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use reconcile_kit::testing::{ApiServer, Verb};
use routewright::app::Options;
use serde_json::{Value, json};

use super::{support::*, world::*};

const OTHER: &str = "system:serviceaccount:garage:other-operator";
const THEIRS: &str = "garagebucket.garage.rajsingh.info/finalizer";

/// The other operator, as far as it writes: as a user and a field manager of its own.
struct Script(Api<DynamicObject>);

impl Script {
    fn on(server: &ApiServer) -> Self {
        let kind = GroupVersionKind::gvk("garage.rajsingh.info", "v1beta1", "GarageBucket");
        let resource = ApiResource::from_gvk(&kind);
        Self(Api::namespaced_with(server.client_as(OTHER), "web", &resource))
    }

    fn params() -> PatchParams {
        PatchParams {
            field_manager: Some("other-operator".to_owned()),
            ..PatchParams::default()
        }
    }

    async fn merge(&self, patch: Value) {
        self.0
            .patch("blog", &Self::params(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Writes fields of status, and its own condition among those of others, as a careful client of lists has to: the list that
    /// was read, under the version that was read.
    async fn status(&self, fields: Value, ready: bool) {
        loop {
            let live = self.0.get("blog").await.unwrap();
            let mut conditions: Vec<Value> = live.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions.retain(|c| c["type"] != "Ready");
            conditions.push(json!({
                "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "Theirs", "message": "said by them",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
            let mut status = fields.clone();
            status["conditions"] = json!(conditions);
            let patch = json!({"metadata": {"resourceVersion": live.resource_version()}, "status": status});
            match self
                .0
                .patch_status("blog", &Self::params(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => return,
                Err(kube::Error::Api(refused)) if refused.code == 409 => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Writes the whole object back, as a client with typed structs does that knows no exposure.
    async fn put(&self) {
        let mut live = self.0.get("blog").await.unwrap();
        live.data["spec"]
            .as_object_mut()
            .unwrap()
            .remove("websiteExposure");
        self.0
            .replace("blog", &PostParams::default(), &live)
            .await
            .unwrap();
    }

    /// The same with the whole status.
    async fn put_status(&self) {
        let mut live = self.0.get("blog").await.unwrap();
        let status = live.data["status"].as_object_mut().unwrap();
        status.remove("websiteExposure");
        status["conditions"]
            .as_array_mut()
            .unwrap()
            .retain(|c| c["type"] != "WebsiteExposed");
        self.0
            .replace_status("blog", &PostParams::default(), &live)
            .await
            .unwrap();
    }
}

/// The condition WebsiteExposed as it stands, but for what follows the generation.
fn exposed(story: &Story) -> Value {
    let bucket = story.bucket();
    let conditions = bucket["status"]["conditions"].as_array().unwrap();
    let mut condition = conditions
        .iter()
        .find(|c| c["type"] == "WebsiteExposed")
        .unwrap()
        .clone();
    condition.as_object_mut().unwrap().remove("observedGeneration");
    condition
}

/// A cluster and a bucket of the other operator, exposed by us.
async fn companion() -> (Story, Script) {
    let mut bucket = bucket(by_ingress());
    bucket["metadata"]["finalizers"] = json!([THEIRS]);
    let status = bucket.as_object_mut().unwrap().remove("status").unwrap();
    let mut story = Story::begin(true, &both(), [cluster(), bucket]).await;
    story.settle().await;
    let script = Script::on(&story.server);
    script.status(status, true).await;
    assert_eq!(story.settle().await, INGRESS_CREATED);
    (story, script)
}

#[tokio::test(start_paused = true)]
async fn a_script_that_merge_patches_buckets_and_their_status_is_not_in_our_way_nor_we_in_its() {
    let (mut story, script) = companion().await;
    let (before, child) = (exposed(&story), story.ingress().unwrap());
    for round in 0..10_u32 {
        // what does not concern us costs nothing
        script
            .merge(json!({"metadata": {"annotations": {"garage.rajsingh.info/finalization-retries": round.to_string()}}}))
            .await;
        script
            .status(
                json!({"size": format!("{round} B"), "quotaUsage": {"sizeBytes": round}}),
                round % 2 == 0,
            )
            .await;
        assert_eq!(story.settle().await, NOTHING, "round {round}");
        // a new generation is acknowledged, once
        script
            .merge(json!({"spec": {"quotas": {"maxObjects": round + 1}}}))
            .await;
        assert_eq!(
            story.settle().await,
            ["APPLY garagebuckets/status blog -> 200"],
            "round {round}"
        );
    }
    let bucket = story.bucket();
    assert_eq!(exposed(&story), before, "our condition is as it was");
    assert_eq!(story.ingress().unwrap(), child, "and so is the child");
    assert!(bucket["spec"]["websiteExposure"].is_object() && bucket["status"]["websiteExposure"].is_object());
    // theirs is theirs
    assert_eq!(bucket["status"]["size"], "9 B");
    assert_eq!(bucket["status"]["phase"], "Ready");
    assert_eq!(ready(&story), "False/Theirs: said by them");
    assert_eq!(bucket["metadata"]["finalizers"], json!([THEIRS]));

    // What does concern us is followed at once
    script.status(json!({"globalAlias": "weblog"}), true).await;
    story.settle().await;
    assert_eq!(story.hosts(), ["weblog.site.test"]);

    // When the bucket goes, then nothing is done; its finalizer is theirs to take off, the child goes with its owner
    delete(&story);
    assert_eq!(story.settle().await, NOTHING);
    assert_eq!(story.bucket()["metadata"]["finalizers"], json!([THEIRS]));
    script.merge(json!({"metadata": {"finalizers": null}})).await;
    story.server.collect_garbage();
    story.settle().await;
    assert_eq!(story.server.get("GarageBucket", "web", "blog"), None);
    assert_eq!(story.ingress(), None);
}

#[tokio::test(start_paused = true)]
async fn the_buckets_of_another_operator_are_left_to_it_even_with_our_bucket_controller_on() {
    let world = World::new();
    let server = server(false);
    let mut theirs = bucket(by_ingress());
    theirs["metadata"]["finalizers"] = json!([THEIRS]);
    for object in [token(TOKEN), tiers(), theirs] {
        put(&server, object);
    }
    let flags = routewright::app::Options {
        enable_ingress: true,
        ..flags()
    };
    let mut story = Story::beside(server, &flags, Some(world.access())).await;
    assert_eq!(story.settle().await, INGRESS_CREATED, "exposed, and nothing else");
    let script = Script::on(&story.server);
    for round in 0..5_u32 {
        script
            .merge(json!({"spec": {"quotas": {"maxObjects": round + 1}}}))
            .await;
        script.status(json!({"phase": "Ready"}), true).await;
        story.settle().await;
    }
    delete(&story);
    story.settle().await;
    assert_eq!(world.calls(), NOTHING, "its Garage is not asked");
    assert_eq!(ready(&story), "True/Theirs: said by them");
    assert_eq!(story.bucket()["metadata"]["finalizers"], json!([THEIRS]));
}

#[tokio::test(start_paused = true)]
async fn crds_of_others_are_looked_at_and_never_written() {
    let world = World::new();
    let server = server(true);
    let crd = "garagebuckets.garage.rajsingh.info";
    server.edit("CustomResourceDefinition", "", crd, json!({"metadata": {
        "labels": {"app.kubernetes.io/managed-by": "other-operator"}, "annotations": {"meta.helm.sh/release-name": "theirs"},
    }}));
    let before = server.get("CustomResourceDefinition", "", crd);
    for object in [token(TOKEN), handle(), blog()] {
        put(&server, object);
    }
    let all = routewright::app::Options {
        enable_garage_buckets: true,
        ..both()
    };
    let mut story = Story::beside(server, &all, Some(world.access())).await;
    story.settle().await;
    assert_eq!(phase(&story), "Ready");
    delete(&story);
    story.settle().await;
    story.restart(&all).await;
    let written: Vec<String> = story
        .server
        .calls()
        .iter()
        .filter(|call| call.user == OPERATOR && call.verb.is_write())
        .map(|call| call.resource.clone())
        .filter(|resource| resource == "customresourcedefinitions")
        .collect();
    assert_eq!(written, NOTHING);
    assert!(
        story
            .server
            .calls()
            .iter()
            .any(|c| c.resource == "customresourcedefinitions" && c.verb == Verb::ListMetadata)
    );
    assert_eq!(story.server.get("CustomResourceDefinition", "", crd), before);
}

#[tokio::test(start_paused = true)]
async fn one_that_puts_whole_objects_drops_the_exposure_and_this_is_what_is_seen() {
    let (mut story, script) = companion().await;
    // Given an operator that writes back what it knows
    script.put().await;
    let calls = story.settle().await;
    // then the exposure is gone as if the user had removed it
    assert_eq!(
        calls,
        [
            "DELETE ingresses blog-website -> 200",
            "APPLY garagebuckets/status blog -> 200",
            "EVENT Normal WebsiteExposedRemoved",
        ]
    );
    assert_eq!(story.bucket()["spec"]["websiteExposure"], Value::Null);
    assert_eq!((story.says(), story.ingress()), ("–".to_owned(), None));
    // and whoever sets it again sees it come and go
    story.expose(by_ingress());
    assert_eq!(story.settle().await, INGRESS_CREATED);

    // When it writes back the whole status, then the condition vanishes and comes again, which is no news
    for _ in 0..2 {
        script.put_status().await;
        let calls = story.settle().await;
        assert_eq!(calls, ["APPLY garagebuckets/status blog -> 200"]);
        assert!(story.says().starts_with("True/Exposed: "), "{}", story.says());
    }
    // and the third time within a minute it is said, and begins to wait
    script.put_status().await;
    let calls = story.settle().await;
    assert_eq!(
        calls,
        [
            "EVENT Warning StatusContested",
            "APPLY garagebuckets/status blog -> 200"
        ]
    );
    // and the child is not touched by that
    assert!(story.ingress().is_some());
}

#[tokio::test(start_paused = true)]
async fn two_installations_that_disagree_about_a_bucket_say_so_once_and_write_ever_more_rarely() {
    // Given an installation that exposes by Gateway API, and a bucket that asks for it
    let mut story = Story::exposed(by_route()).await;
    let here = story.says();
    let first = story.events();
    // When a second one watches the same bucket, without that flag
    let other = Options {
        enable_ingress: true,
        instance: "two".into(),
        pod: Some("pod-2".into()),
        ..options()
    };
    let second = start(&story.server, &other);
    let calls = story.pass(Duration::from_secs(3600)).await;
    // Then the hour has no more than a few writes of each
    let counted = |line: &str| lines(&calls).iter().filter(|l| l.starts_with(line)).count();
    let status = counted("APPLY garagebuckets/status blog -> 200");
    assert!((20..=36).contains(&status), "{status}");
    assert_eq!(
        counted("APPLY httproutes") + counted("DELETE httproutes"),
        0,
        "the child stands"
    );
    // and two events besides the word of the second: each installation tells what is wrong
    let mut said: Vec<String> = story.events();
    said.retain(|event| !first.contains(event));
    said.sort();
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(
        said[0].starts_with("Warning GatewayAPIUnavailable: "),
        "{said:#?}"
    );
    let contested = "Warning StatusContested: somebody else overwrites this status again and again: its condition WebsiteExposed is ";
    assert!(
        said[1].starts_with(contested) && said[2].starts_with(contested),
        "{said:#?}"
    );
    // Once only one of them watches it, its word stands
    second.shutdown().await;
    story.pass(Duration::from_secs(601)).await;
    assert_eq!(story.says(), here);
    let calls = story.pass(Duration::from_secs(3600)).await;
    assert_eq!(lines(&calls), NOTHING);
}
