//! What is wrong with a spec or around it, and what a user sees of it: condition, event, phase, and how often it is looked at
//! again. One row each; the same rows stand in docs/src/reference/garage-conditions.md
//! (`UPDATE_DOCS=1 cargo test -p routewright --test garage_stories bad_input` writes them).

use std::time::Duration;

use routewright::garage::{
    admin::{AdminErrorClass, Call, GarageAdmin},
    testing::Fault,
};
use serde_json::{Value, json};

use super::{support::*, world::*};

/// How often a fault is looked at while nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Every(u64),
    Backoff,
    Once(u64),
}

impl Again {
    fn words(self) -> String {
        match self {
            Self::Every(seconds) => format!("{seconds} s"),
            Self::Backoff => "1 s, doubled up to 5 min".to_owned(),
            Self::Once(seconds) => format!("{seconds} s, once"),
        }
    }

    /// Whoever waits for something that is expected to come says so in a low voice.
    fn event(self) -> &'static str {
        match self {
            Self::Every(60) | Self::Once(_) => "Normal",
            Self::Every(_) | Self::Backoff => "Warning",
        }
    }

    /// How often in an hour, with the jitter of 10 %.
    fn in_an_hour(self) -> std::ops::RangeInclusive<u64> {
        match self {
            Self::Every(60) => 53..=67,
            Self::Every(300) => 10..=14,
            Self::Every(other) => panic!("every {other} s?"),
            // 1 + 2 + … + 256 s, then every 5 minutes.
            Self::Backoff => 15..=24,
            Self::Once(_) => 0..=3,
        }
    }
}

struct Row {
    /// The fault, as the table of the docs says it; also how [`arrange`] knows it.
    fault: &'static str,
    reason: &'static str,
    phase: &'static str,
    again: Again,
    /// What the message begins with.
    says: &'static str,
}

const fn row(
    fault: &'static str,
    reason: &'static str,
    phase: &'static str,
    again: Again,
    says: &'static str,
) -> Row {
    Row {
        fault,
        reason,
        phase,
        again,
        says,
    }
}

use Again::{Backoff, Every, Once};

const CLUSTER: &str = "GarageCluster web/garage: ";

const BUCKETS: [Row; 26] = [
    row(
        "`spec.clusterRef.kubeConfigSecretRef` is set",
        "InvalidSpec",
        "Failed",
        Every(60),
        "spec.clusterRef.kubeConfigSecretRef: ",
    ),
    row(
        "the cluster does not exist",
        "ClusterNotReady",
        "Pending",
        Every(60),
        CLUSTER,
    ),
    row(
        "the cluster is not Running",
        "ClusterNotReady",
        "Pending",
        Every(60),
        CLUSTER,
    ),
    row(
        "the cluster is being deleted",
        "ClusterNotReady",
        "Pending",
        Every(60),
        CLUSTER,
    ),
    row(
        "the cluster stops Running under a bucket that is there",
        "ClusterNotReady",
        "Ready",
        Every(60),
        CLUSTER,
    ),
    row(
        "a cluster with tiers names no token",
        "ClusterNotReady",
        "Pending",
        Every(60),
        "GarageCluster web/garage: spec.admin.adminTokenSecretRef: ",
    ),
    row(
        "a cluster with tiers names a Secret that does not exist",
        "ClusterNotReady",
        "Pending",
        Every(60),
        "GarageCluster web/garage: spec.admin.adminTokenSecretRef: Secret ",
    ),
    row(
        "the cluster is in another namespace, without a grant",
        "GrantDenied",
        "Failed",
        Every(60),
        "GarageBuckets of namespace web may not use ",
    ),
    row(
        "the grant is for another cluster, or for keys only",
        "GrantDenied",
        "Failed",
        Every(60),
        "GarageBuckets of namespace web may not use ",
    ),
    row(
        "`spec.globalAlias` is none that Garage takes",
        "InvalidAlias",
        "Failed",
        Every(300),
        "spec.globalAlias: \"Not_An_Alias\" ",
    ),
    row(
        "`spec.globalAlias` is a reservation alias",
        "InvalidAlias",
        "Failed",
        Every(300),
        "spec.globalAlias: \"garage-rsv-mine\" ",
    ),
    row(
        "the object's name is no alias, and none is given",
        "InvalidAlias",
        "Failed",
        Every(300),
        "metadata.name: \"xn--blog\" ",
    ),
    row(
        "another bucket has the alias",
        "AliasTaken",
        "Failed",
        Every(300),
        "metadata.name: the alias \"blog\" ",
    ),
    row(
        "`spec.bucketId` is no id",
        "InvalidBucketId",
        "Failed",
        Every(300),
        "spec.bucketId: ",
    ),
    row(
        "`spec.bucketId` names no bucket",
        "BucketNotFound",
        "Failed",
        Every(300),
        "spec.bucketId: ",
    ),
    row(
        "`spec.bucketId` names a bucket of another object",
        "BucketClaimed",
        "Failed",
        Every(300),
        "spec.bucketId: GarageBucket web/other ",
    ),
    row(
        "`spec.bucketId` is set later and differs",
        "BucketIdChanged",
        "Failed",
        Every(300),
        "spec.bucketId: differs ",
    ),
    row(
        "`spec.quotas.maxSize` is no size",
        "InvalidQuota",
        "Failed",
        Every(300),
        "spec.quotas.maxSize: \"10 apples\" ",
    ),
    row(
        "`spec.keyPermissions` or `spec.localAliases` is set",
        "Unsupported",
        "Failed",
        Every(300),
        "spec.keyPermissions: ",
    ),
    row(
        "the bucket vanishes from Garage",
        "BucketLost",
        "Failed",
        Every(300),
        "status.bucketId: ",
    ),
    row(
        "Garage refuses the token of a cluster with tiers",
        "ReconcileFailed",
        "Creating",
        Every(300),
        "Garage Admin API ",
    ),
    row(
        "the Admin API of a cluster with tiers redirects",
        "ReconcileFailed",
        "Creating",
        Every(300),
        "Garage Admin API ",
    ),
    row(
        "nobody answers, or not in time, or with an error that should pass",
        "GarageUnavailable",
        "Creating",
        Backoff,
        "Garage Admin API ",
    ),
    row(
        "what answers is not Garage",
        "GarageUnavailable",
        "Creating",
        Backoff,
        "Garage Admin API ",
    ),
    row(
        "deleted, and the bucket holds objects",
        "BucketNotEmpty",
        "Deleting",
        Every(60),
        "spec.deletionPolicy: ",
    ),
    row(
        "deleted, and the creation was not answered",
        "CreationUnanswered",
        "Deleting",
        Once(35),
        "status.bucketId: ",
    ),
];

const HANDLES: [Row; 14] = [
    row(
        "neither address nor reference",
        "InvalidSpec",
        "Pending",
        Every(60),
        "spec.connectTo.adminApiEndpoint: is needed",
    ),
    row(
        "the address is no URL",
        "InvalidSpec",
        "Pending",
        Every(60),
        "spec.connectTo.adminApiEndpoint: ",
    ),
    row(
        "the address has a password in it",
        "InvalidSpec",
        "Pending",
        Every(60),
        "spec.connectTo.adminApiEndpoint: a user or password",
    ),
    row(
        "no Secret is named",
        "InvalidSpec",
        "Pending",
        Every(60),
        "spec.connectTo.adminTokenSecretRef: is needed",
    ),
    row(
        "`clusterRef` leads in a circle",
        "InvalidSpec",
        "Pending",
        Every(60),
        "spec.connectTo.clusterRef: leads in a circle",
    ),
    row(
        "`clusterRef` leads into another namespace",
        "InvalidSpec",
        "Pending",
        Every(60),
        "spec.connectTo.clusterRef.namespace: ",
    ),
    row(
        "`clusterRef` names a cluster that does not exist",
        "ClusterNotFound",
        "Pending",
        Every(60),
        "spec.connectTo.clusterRef: GarageCluster real ",
    ),
    row(
        "the Secret does not exist",
        "TokenNotFound",
        "Pending",
        Every(60),
        "spec.connectTo.adminTokenSecretRef: Secret garage-admin ",
    ),
    row(
        "the Secret has no such key",
        "TokenNotFound",
        "Pending",
        Every(60),
        "spec.connectTo.adminTokenSecretRef: Secret garage-admin has no key ",
    ),
    row(
        "the Secret may not be read",
        "TokenUnreadable",
        "Pending",
        Every(60),
        "spec.connectTo.adminTokenSecretRef: Secret garage-admin cannot be read",
    ),
    row(
        "the token is empty, or not visible ASCII",
        "InvalidToken",
        "Pending",
        Every(60),
        "spec.connectTo.adminTokenSecretRef: key admin-token ",
    ),
    row(
        "Garage refuses the token",
        "Unauthorized",
        "Pending",
        Every(60),
        "Garage Admin API ",
    ),
    row(
        "nobody answers, or not in time, or without quorum",
        "AdminAPIUnreachable",
        "Pending",
        Every(60),
        "Garage Admin API ",
    ),
    row(
        "what answers is not Garage, or redirects",
        "NotGarage",
        "Pending",
        Every(60),
        "Garage Admin API ",
    ),
];

/// A bucket from this fault, its operator having come to rest.
async fn bucket_with(fault: &str) -> (World, Story) {
    const OTHER_ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let world = World::new();
    let usual = |bucket: Value| vec![token(TOKEN), handle(), bucket];
    let with = |spec: Value| usual(blog_with(spec));
    let tier = |change: Value| {
        let mut cluster = tiers();
        for (field, value) in change.as_object().unwrap() {
            cluster[field] = value.clone();
        }
        cluster
    };
    let grant = |to: Value, kind: &str| {
        json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
            "metadata": {"namespace": "storage", "name": format!("g-{}", kind.to_lowercase())},
            "spec": {"from": [{"kind": kind, "namespace": "web"}], "to": to},
        })
    };
    let abroad = || blog_with(json!({"clusterRef": {"name": "garage", "namespace": "storage"}}));
    let objects = match fault {
        "`spec.clusterRef.kubeConfigSecretRef` is set" => with(
            json!({"clusterRef": {"name": "garage", "kubeConfigSecretRef": {"name": "far", "key": "k"}}}),
        ),
        "the cluster does not exist" => vec![blog()],
        "the cluster is not Running" => vec![
            token(TOKEN),
            tier(json!({"status": {"phase": "Degraded"}})),
            blog(),
        ],
        "the cluster is being deleted" => {
            let mut cluster = tiers();
            cluster["metadata"]["finalizers"] = json!(["example.org/held"]);
            vec![token(TOKEN), cluster]
        }
        "a cluster with tiers names no token" => vec![super::support::cluster(), blog()],
        "a cluster with tiers names a Secret that does not exist" => vec![tiers(), blog()],
        "the cluster is in another namespace, without a grant" => vec![token(TOKEN), handle(), abroad()],
        "the grant is for another cluster, or for keys only" => {
            let another = grant(
                json!([{"kind": "GarageCluster", "name": "another"}]),
                "GarageBucket",
            );
            vec![another, grant(json!([]), "GarageKey"), abroad()]
        }
        "`spec.globalAlias` is none that Garage takes" => with(json!({"globalAlias": "Not_An_Alias"})),
        "`spec.globalAlias` is a reservation alias" => with(json!({"globalAlias": "garage-rsv-mine"})),
        "another bucket has the alias" => {
            world.garage.create_bucket("blog").await.unwrap();
            usual(blog())
        }
        "`spec.bucketId` is no id" => with(json!({"bucketId": "blog"})),
        "`spec.bucketId` names no bucket" => with(json!({"bucketId": OTHER_ID})),
        "`spec.bucketId` names a bucket of another object" => {
            let mut other = blog_with(json!({"bucketId": OTHER_ID, "website": {"enabled": false}}));
            other["metadata"]["name"] = json!("other");
            // Asleep, so that what is counted is the blog.
            other["metadata"]["finalizers"] = json!(["garagebucket.garage.rajsingh.info/finalizer"]);
            other["status"] = json!({"bucketId": OTHER_ID});
            vec![
                token(TOKEN),
                handle(),
                other,
                blog_with(json!({"bucketId": OTHER_ID})),
            ]
        }
        "`spec.quotas.maxSize` is no size" => with(json!({"quotas": {"maxSize": "10 apples"}})),
        "`spec.keyPermissions` or `spec.localAliases` is set" => {
            with(json!({"keyPermissions": [{"keyRef": {"name": "app"}, "read": true}]}))
        }
        "deleted, and the creation was not answered" => {
            let fault = Fault::Before(AdminErrorClass::Timeout);
            world.garage.fail(Call::CreateBucket, fault);
            vec![token(TOKEN), tiers(), blog()]
        }
        "the object's name is no alias, and none is given" => vec![token(TOKEN), handle()],
        _ => vec![token(TOKEN), tiers(), blog()],
    };
    let broken = match fault {
        "Garage refuses the token of a cluster with tiers" => Some(AdminErrorClass::Unauthorized),
        "the Admin API of a cluster with tiers redirects" => Some(AdminErrorClass::Redirect),
        "nobody answers, or not in time, or with an error that should pass" => Some(AdminErrorClass::Timeout),
        "what answers is not Garage" => Some(AdminErrorClass::Garbage),
        _ => None,
    };
    world.breaks(broken);
    let mut story = world.story(objects).await;
    match fault {
        "the cluster is being deleted" => {
            story.server.delete("GarageCluster", "web", "garage");
            put(&story.server, blog());
        }
        "the cluster stops Running under a bucket that is there" => {
            story.settle().await;
            story.phase("Degraded");
        }
        "the object's name is no alias, and none is given" => {
            // A name that Kubernetes takes and Garage does not; the stories are about `blog`, so it is told here.
            let mut bucket = blog();
            bucket["metadata"]["name"] = json!("xn--blog");
            put(&story.server, bucket);
        }
        "`spec.bucketId` is set later and differs" => story.edit(json!({"spec": {"bucketId": OTHER_ID}})),
        "the bucket vanishes from Garage" => {
            story.settle().await;
            world.garage.lose(&world.only().await.id);
            story.edit(json!({"spec": {"website": {"enabled": false}}}));
        }
        "deleted, and the bucket holds objects" => {
            story.settle().await;
            world.garage.set_content(&world.only().await.id, 1, 5);
            delete(&story);
        }
        "deleted, and the creation was not answered" => delete(&story),
        _ => {}
    }
    (world, story)
}

/// A handle from this fault.
async fn handle_with(fault: &str) -> (World, Story) {
    let world = World::new();
    let with = |connect: Value| {
        let mut handle = handle();
        handle["spec"]["connectTo"] = connect;
        handle
    };
    let address = "http://garage.example.com:3903";
    let secret = json!({"name": "garage-admin"});
    let handle = match fault {
        "neither address nor reference" => with(json!({"adminTokenSecretRef": secret})),
        "the address is no URL" => {
            with(json!({"adminApiEndpoint": "garage:3903:x", "adminTokenSecretRef": secret}))
        }
        "the address has a password in it" => {
            with(json!({"adminApiEndpoint": "http://u:p@garage", "adminTokenSecretRef": secret}))
        }
        "no Secret is named" => with(json!({"adminApiEndpoint": address})),
        "`clusterRef` leads in a circle" => with(json!({"clusterRef": {"name": "garage"}})),
        "`clusterRef` leads into another namespace" => {
            with(json!({"clusterRef": {"name": "real", "namespace": "storage"}}))
        }
        "`clusterRef` names a cluster that does not exist" => with(json!({"clusterRef": {"name": "real"}})),
        "the Secret has no such key" => with(json!({
            "adminApiEndpoint": address, "adminTokenSecretRef": {"name": "garage-admin", "key": "other"},
        })),
        _ => handle(),
    };
    let mut objects = vec![handle];
    match fault {
        "the Secret does not exist" => {}
        "the token is empty, or not visible ASCII" => objects.push(token(" \n")),
        "Garage refuses the token" => objects.push(token("an0ther-token")),
        _ => objects.push(token(TOKEN)),
    }
    world.breaks(match fault {
        "nobody answers, or not in time, or without quorum" => Some(AdminErrorClass::Timeout),
        "what answers is not Garage, or redirects" => Some(AdminErrorClass::Redirect),
        _ => None,
    });
    let server = server(false);
    if fault == "the Secret may not be read" {
        server.deny(OPERATOR, "get", "secrets");
    }
    for object in objects {
        put(&server, object);
    }
    let story = Story::beside(server, &flags(), Some(world.access())).await;
    (world, story)
}

/// How many reconciles of this controller are counted.
fn reconciles(story: &Story, controller: &str) -> u64 {
    let metrics = story.metrics();
    metrics
        .lines()
        .filter(|line| line.starts_with("controller_runtime_reconcile_total{") && line.contains(controller))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Asserts a row about this object.
async fn shows(row: &Row, mut story: Story, kind: &str, name: &str, controller: &str) {
    let Row {
        fault,
        reason,
        phase,
        again,
        says,
    } = row;
    let events = story.settle().await;
    let event = format!("EVENT {} {reason}", again.event());
    let object = story.server.get(kind, "web", name);
    let ready = ready_of(object.as_ref());
    let begins = format!("False/{reason}: {says}");
    assert!(ready.starts_with(&begins), "{fault}: {ready}, not {begins}");
    assert!(events.contains(&event), "{fault}: no {event} in {events:#?}");
    assert_eq!(object.unwrap()["status"]["phase"], *phase, "{fault}");
    let before = reconciles(&story, controller);
    let calls = writes(lines(&story.pass(Duration::from_secs(3600)).await));
    let looks = reconciles(&story, controller) - before;
    assert!(
        again.in_an_hour().contains(&looks),
        "{fault}: {looks} looks in an hour, not {again:?}"
    );
    if !matches!(again, Once(_)) {
        assert_eq!(calls, NOTHING, "{fault}: it is said once");
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_of_a_bucket_has_its_condition_event_and_interval() {
    for row in &BUCKETS {
        let (_world, story) = bucket_with(row.fault).await;
        let name = if row.fault.starts_with("the object's name") {
            "xn--blog"
        } else {
            "blog"
        };
        shows(row, story, "GarageBucket", name, "garage-bucket").await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_of_a_handle_has_its_condition_event_and_interval() {
    for row in &HANDLES {
        let (_world, story) = handle_with(row.fault).await;
        shows(row, story, "GarageCluster", "garage", "garage-cluster").await;
    }
}

#[test]
fn the_docs_have_the_same_rows() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/src/reference/garage-conditions.md"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let mut table = "\n| what is wrong | `Ready` is False with | event | phase | looked at again |\n|---|---|---|---|---|\n".to_owned();
    for (object, rows) in [("bucket", &BUCKETS[..]), ("handle", &HANDLES[..])] {
        for Row {
            fault,
            reason,
            phase,
            again,
            ..
        } in rows
        {
            table.push_str(&format!(
                "| {object}: {fault} | `{reason}` | {} | {phase} | {} |\n",
                again.event(),
                again.words()
            ));
        }
    }
    let (begin, end) = ("<!-- bad-input:begin -->", "<!-- bad-input:end -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (written, tail) = rest.split_once(end).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, [head, begin, &table, end, tail].concat()).unwrap();
        return;
    }
    assert_eq!(
        written, table,
        "UPDATE_DOCS=1 cargo test -p routewright --test garage_stories bad_input writes it"
    );
}
