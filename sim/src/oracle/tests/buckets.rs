//! Buckets and handles.

use serde_json::{Value, json};

use super::{
    super::{GarageBucket, Gone, Quotas, Website},
    *,
};

const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const URL: &str = "http://garage.web.svc:3903";

fn ready(status: &str, reason: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": "m", "observedGeneration": 1}])
}

fn standing() -> Snapshot {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "web", "name": "token"},
        "data": {"admin-token": "b3BlbnNlc2FtZQ=="}});
    let cluster = json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": {"namespace": "web", "name": "garage", "generation": 1},
        "spec": {"connectTo": {"adminApiEndpoint": "http://garage.web.svc.cluster.local:3903/",
                               "adminTokenSecretRef": {"name": "token"}}},
        "status": {"phase": "Running", "conditions": ready("True", "AdminAPIReachable")},
    });
    let bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": {"namespace": "web", "name": "blog", "uid": "u-1", "generation": 1,
                     "creationTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["routewright.dev/garage-bucket"]},
        "spec": {"clusterRef": {"name": "garage"}, "website": {"enabled": true},
                 "quotas": {"maxSize": "1.5Ki", "maxObjects": 5}},
        "status": {"bucketId": ID, "globalAlias": "blog", "phase": "Ready", "websiteEnabled": true,
                   "conditions": ready("True", "BucketReady")},
    });
    let mut snapshot = world(vec![secret, cluster, bucket]);
    snapshot.installations[0].enable_garage_buckets = true;
    let held = GarageBucket {
        id: ID.to_owned(),
        aliases: vec!["another".to_owned(), "blog".to_owned()],
        website: Some(Website {
            index: "index.html".to_owned(),
            error: None,
        }),
        quotas: Quotas {
            max_size: Some(1536),
            max_objects: Some(5),
        },
        objects: 0,
    };
    snapshot.garage.insert(URL.to_owned(), vec![held]);
    snapshot
}

fn held(snapshot: &mut Snapshot) -> &mut GarageBucket {
    &mut snapshot.garage.get_mut(URL).unwrap()[0]
}

#[test]
fn a_bucket_and_its_handle_are_right() {
    right(
        &standing(),
        &[
            "handles.ready",
            "buckets.ready",
            "buckets.finalizer",
            "buckets.status",
            "garage.bucket",
            "garage.alias",
            "garage.website",
            "garage.quotas",
            "garage.reservation",
        ],
    );
}

#[test]
fn everything_wrong_is_found() {
    each_is_found(
        standing,
        &[
            ("garage.alias", |s| {
                held(s).aliases.retain(|alias| alias != "blog")
            }),
            ("garage.website", |s| held(s).website = None),
            ("garage.quotas", |s| held(s).quotas.max_size = None),
            ("garage.reservation", |s| {
                held(s).aliases.push("garage-rsv-1".to_owned())
            }),
            ("garage.bucket", |s| {
                s.garage.get_mut(URL).unwrap().clear();
                set(s, "GarageBucket", "blog", "/status/bucketId", json!(""));
            }),
            ("buckets.ready", |s| s.garage.get_mut(URL).unwrap().clear()),
            ("buckets.ready", |s| {
                set(s, "GarageBucket", "blog", "/spec/globalAlias", json!("UPPER"))
            }),
            ("buckets.ready", |s| {
                set(s, "GarageBucket", "blog", "/spec/quotas/maxSize", json!("much"))
            }),
            ("buckets.ready", |s| {
                set(s, "GarageBucket", "blog", "/spec/keyPermissions", json!([{}]))
            }),
            ("buckets.ready", |s| {
                set(s, "GarageBucket", "blog", "/status/phase", json!("Creating"))
            }),
            ("buckets.ready", |s| {
                set(s, "GarageCluster", "garage", "/status/phase", json!("Pending"))
            }),
            ("buckets.status", |s| {
                set(s, "GarageBucket", "blog", "/status/globalAlias", json!("another"))
            }),
            ("buckets.finalizer", |s| {
                set(s, "GarageBucket", "blog", "/metadata/finalizers", json!([]))
            }),
            ("handles.ready", |s| remove(s, "Secret", "token")),
            ("handles.ready", |s| s.garage.clear()),
            ("buckets.release", |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/metadata/deletionTimestamp",
                    json!("2026-01-01T00:00:00Z"),
                )
            }),
            ("garage.deleted", |s| {
                remove(s, "GarageBucket", "blog");
                s.gone.push(Gone {
                    object: "web/blog".to_owned(),
                    place: URL.to_owned(),
                    id: ID.to_owned(),
                    retain: false,
                });
            }),
            ("garage.retained", |s| {
                s.garage.get_mut(URL).unwrap().clear();
                s.gone.push(Gone {
                    object: "web/blog".to_owned(),
                    place: URL.to_owned(),
                    id: ID.to_owned(),
                    retain: true,
                });
            }),
        ],
    );
}

#[test]
fn each_refusal_has_its_reason() {
    type Change = fn(&mut Snapshot);
    let rows: [(Change, &str, &str); 7] = [
        (|s| s.garage.get_mut(URL).unwrap().clear(), "BucketLost", "Failed"),
        (
            |s| set(s, "GarageBucket", "blog", "/spec/globalAlias", json!("a")),
            "InvalidAlias",
            "Failed",
        ),
        (
            |s| set(s, "GarageBucket", "blog", "/spec/quotas/maxSize", json!("-1")),
            "InvalidQuota",
            "Failed",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageCluster",
                    "garage",
                    "/metadata/deletionTimestamp",
                    json!("x"),
                )
            },
            "ClusterNotReady",
            "Ready",
        ),
        (
            |s| {
                set(
                    s,
                    "GarageBucket",
                    "blog",
                    "/spec/clusterRef/namespace",
                    json!("else"),
                )
            },
            "GrantDenied",
            "Ready",
        ),
        (
            |s| {
                held(s).aliases.clear();
                let other = GarageBucket {
                    id: "f".repeat(64),
                    aliases: vec!["blog".to_owned()],
                    ..GarageBucket::default()
                };
                s.garage.get_mut(URL).unwrap().push(other);
            },
            "AliasTaken",
            "Failed",
        ),
        (
            |s| {
                let mut older = object(s, "GarageBucket", "blog").clone();
                older["metadata"] = json!({"namespace": "web", "name": "older", "uid": "u-0", "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["example.org/other"]});
                s.objects.push(older);
            },
            "BucketClaimed",
            "Failed",
        ),
    ];
    for (change, reason, phase) in rows {
        let mut snapshot = standing();
        change(&mut snapshot);
        set(
            &mut snapshot,
            "GarageBucket",
            "blog",
            "/status/conditions",
            ready("False", reason),
        );
        set(
            &mut snapshot,
            "GarageBucket",
            "blog",
            "/status/phase",
            json!(phase),
        );
        right(&snapshot, &["buckets.ready"]);
    }
}

#[test]
fn a_deleted_bucket_with_objects_waits_and_a_foreign_one_is_skipped() {
    let mut snapshot = standing();
    held(&mut snapshot).objects = 3;
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/status/conditions",
        ready("False", "BucketNotEmpty"),
    );
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/status/phase",
        json!("Deleting"),
    );
    right(&snapshot, &["buckets.release"]);
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/spec/deletionPolicy",
        json!("Retain"),
    );
    assert!(broken(&snapshot).contains("buckets.release"));
    set(
        &mut snapshot,
        "GarageBucket",
        "blog",
        "/metadata/finalizers",
        json!(["example.org/other"]),
    );
    let skipped = right(&snapshot, &[]).skipped;
    assert_eq!(skipped.get("buckets: another operator's finalizer"), Some(&1));
}
