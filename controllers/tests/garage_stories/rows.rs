//! What is decided before Garage is asked, and what is said afterwards, row by row; plain values only.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use reconcile_kit::{
    Child, Children, ErrorClass, Outcome, Planner, ReconcileError, Report, StatusField, Verdict,
    condition::ConditionStatus,
};
use routewright::{
    exposure::{
        ExposureKind,
        lookup::Unseen,
        plan::{Facts, FoundCluster, NotReady},
        tenancy::Guards,
    },
    garage::{
        access::admin_spec,
        admin::BucketId,
        bucket::{End, Phase, Refusal, RefusalReason, StatusProjection, Usage},
        bucket_controller::{self as bucket, BlockReason, BucketPlanner, DRIFT, plan, report},
        cluster_controller::{self as cluster, ClusterPlanner},
        handle::{HANDLE_INTERVAL, HandlePhase, HandleReason, HandleSpec, HandleVerdict, TokenRef},
    },
};
use routewright_crds::{GarageBucket, GarageCluster, GarageReferenceGrant};
use serde_json::{Value, from_value, json};

use super::world::{blog_with, handle};

const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

// ---- a world of plain values ----------------------------------------------------------------------------------------

#[derive(Clone)]
struct World {
    cluster: Result<FoundCluster, NotReady>,
    grants: Vec<Value>,
    labels: Option<BTreeMap<String, String>>,
    crd_gone: bool,
    guards: Guards,
}

impl World {
    fn with(cluster: Value) -> Self {
        Self {
            cluster: Ok(FoundCluster::Found(Arc::new(from_value(cluster).unwrap()))),
            grants: Vec::new(),
            labels: None,
            crd_gone: false,
            guards: Guards::default(),
        }
    }
    /// The handle `web/garage`, Running.
    fn running() -> Self {
        let mut cluster = handle();
        cluster["status"] = json!({"phase": "Running"});
        Self::with(cluster)
    }
}

impl Facts for World {
    fn cluster(&self, namespace: &str, name: &str) -> Result<FoundCluster, NotReady> {
        assert_eq!((namespace, name), ("web", "garage"));
        self.cluster.clone()
    }
    fn clusters_are_gone(&self) -> bool {
        self.crd_gone
    }
    fn guards(&self) -> &Guards {
        &self.guards
    }
    fn grants(&self, namespace: &str) -> Result<Vec<Arc<GarageReferenceGrant>>, NotReady> {
        assert_eq!(namespace, "web");
        let grants = self.grants.iter();
        Ok(grants.map(|g| Arc::new(from_value(g.clone()).unwrap())).collect())
    }
    fn namespace_labels(&self, namespace: &str) -> Result<Option<BTreeMap<String, String>>, NotReady> {
        assert_eq!(namespace, "storage");
        Ok(self.labels.clone())
    }
    fn child(&self, _: ExposureKind, _: &str, _: &str) -> Option<Arc<Child>> {
        None
    }
    fn refused(&self, _: ExposureKind) -> Option<String> {
        None
    }
}

fn grant(from: Value) -> Value {
    json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
        "metadata": {"namespace": "web", "name": "buckets"}, "spec": {"from": [from]},
    })
}

/// The blog with this change of the spec, and what a controller may find on it.
fn blog(spec: Value, more: Value) -> GarageBucket {
    let mut bucket = blog_with(spec);
    bucket["metadata"]["uid"] = json!("u-1");
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "status" => bucket["status"] = value.clone(),
            field => bucket["metadata"][field] = value.clone(),
        }
    }
    from_value(bucket).unwrap()
}

fn abroad() -> GarageBucket {
    let spec = json!({"clusterRef": {"name": "garage", "namespace": "web"}});
    blog(spec, json!({"namespace": "storage"}))
}

fn deleted(mut bucket: GarageBucket) -> GarageBucket {
    bucket.metadata.deletion_timestamp = Some(from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    bucket
}

fn recorded() -> Value {
    json!({"status": {"bucketId": ID}})
}

/// What a finding comes to, in a word or in its message.
fn found(bucket: &GarageBucket, world: &World, claimed: Option<&str>) -> String {
    match plan(bucket, world, claimed.map(str::to_owned)) {
        Err(NotReady(kind)) => format!("wait for {kind}"),
        Ok(bucket::Finding::NotOurs) => "not ours".into(),
        Ok(bucket::Finding::Work(_)) => "work".into(),
        Ok(bucket::Finding::Ended { end, usage: None }) if *end == End::Gone => "gone".into(),
        Ok(bucket::Finding::Blocked {
            reason,
            message,
            released,
        }) => format!(
            "{}{}: {message}",
            if released { "released " } else { "" },
            reason.as_str()
        ),
        Ok(other) => panic!("{other:?}"),
    }
}

// ---- plan -----------------------------------------------------------------------------------------------------------

#[test]
fn before_garage_is_asked_everything_else_has_to_be_right() {
    let none = json!({});
    let with = |change: fn(&mut World)| {
        let mut world = World::running();
        change(&mut world);
        world
    };
    let phase = |phase: Value| {
        let mut cluster = handle();
        cluster["status"] = json!({"phase": phase});
        World::with(cluster)
    };
    let going = {
        let mut cluster = handle();
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        cluster["status"] = json!({"phase": "Running"});
        World::with(cluster)
    };
    let missing = with(|w| w.cluster = Ok(FoundCluster::Missing));
    let not_served = with(|w| w.cluster = Ok(FoundCluster::NotServed));
    let unreachable = {
        let mut cluster = handle();
        cluster["status"] = json!({"phase": "Pending", "conditions": [{
            "type": "Ready", "status": "False", "reason": "AdminAPIUnreachable", "message": "not repeated here",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        World::with(cluster)
    };
    let astray = {
        let mut cluster = handle();
        cluster["spec"] = json!({"connectTo": {"clusterRef": {"name": "garage"}}});
        cluster["status"] = json!({"phase": "Running"});
        World::with(cluster)
    };
    let plain = blog(none.clone(), none.clone());
    let known = blog(none.clone(), recorded());
    let foreign = blog(
        none.clone(),
        json!({"finalizers": ["routewright.dev/garage-bucket", bucket::FOREIGN_FINALIZER]}),
    );
    let elsewhere = blog(
        json!({"clusterRef": {"name": "garage", "kubeConfigSecretRef": {"name": "far", "key": "kubeconfig"}}}),
        none.clone(),
    );
    let gone_message =
        "ClusterNotReady: GarageCluster web/garage: not found; create it or correct spec.clusterRef";
    for (bucket, world, says) in [
        (&plain, &World::running(), "work"),
        (&foreign, &World::running(), "not ours"),
        (&deleted(foreign.clone()), &missing, "not ours"),
        (
            &elsewhere,
            &World::running(),
            "InvalidSpec: spec.clusterRef.kubeConfigSecretRef: is not supported; remove it",
        ),
        (&plain, &missing, gone_message),
        (
            &plain,
            &not_served,
            "ClusterNotReady: GarageCluster web/garage: the API server does not serve GarageCluster v1beta2; install \
             its CRD",
        ),
        (
            &plain,
            &with(|w| w.cluster = Err(NotReady("GarageCluster"))),
            "wait for GarageCluster",
        ),
        (
            &plain,
            &phase(Value::Null),
            "ClusterNotReady: GarageCluster web/garage: status.phase is not set; waiting for Running",
        ),
        (
            &plain,
            &phase(json!("Pending")),
            "ClusterNotReady: GarageCluster web/garage: status.phase is Pending; waiting for Running",
        ),
        (
            &plain,
            &going,
            "ClusterNotReady: GarageCluster web/garage: is being deleted",
        ),
        (
            &known,
            &going,
            "ClusterNotReady: GarageCluster web/garage: is being deleted; the bucket in Garage stays as it is meanwhile",
        ),
        (
            &known,
            &unreachable,
            "ClusterNotReady: GarageCluster web/garage: status.phase is Pending (AdminAPIUnreachable, see its condition \
             Ready); waiting for Running; the bucket in Garage stays as it is meanwhile",
        ),
        (
            &plain,
            &astray,
            "ClusterNotReady: GarageCluster web/garage: spec.connectTo.clusterRef: leads in a circle or too far (garage \
             -> garage); name the cluster that runs Garage, or set adminApiEndpoint and adminTokenSecretRef",
        ),
    ] {
        assert_eq!(found(bucket, world, None), says);
    }
}

#[test]
fn a_deletion_waits_only_for_what_it_needs() {
    let none = json!({});
    let recorded_blog = deleted(blog(none.clone(), recorded()));
    let reserved = |uid: &str| {
        let alias = routewright::garage::bucket::reservation_alias("web", "blog", uid);
        let key = routewright::garage::bucket::RESERVATION_ANNOTATION;
        deleted(blog(none.clone(), json!({"annotations": {key: alias}})))
    };
    let missing = World {
        cluster: Ok(FoundCluster::Missing),
        ..World::running()
    };
    let not_served = World {
        cluster: Ok(FoundCluster::NotServed),
        ..World::running()
    };
    let unserved_and_gone = World {
        crd_gone: true,
        ..not_served.clone()
    };
    let unseen = |unseen: Unseen| World {
        cluster: Ok(FoundCluster::Unseen(unseen)),
        ..World::running()
    };
    let not_watched = unseen(Unseen::NotWatched {
        namespace: "web".into(),
    });
    let misfit = unseen(Unseen::Undecodable {
        error: "spec.webApi: no".into(),
    });
    let forbidden = unseen(Unseen::Forbidden {
        message: "no right".into(),
    });
    let unknown = World {
        cluster: Err(NotReady("GarageCluster")),
        ..World::running()
    };
    let pending = World::with(handle());
    let retained = deleted(blog(json!({"deletionPolicy": "Retain"}), recorded()));
    let far = deleted(blog(
        json!({"clusterRef": {"name": "garage", "kubeConfigSecretRef": {"name": "far", "key": "kubeconfig"}}}),
        recorded(),
    ));
    for (bucket, world, claimed, says) in [
        (&recorded_blog, &World::running(), None, "work"),
        (&recorded_blog, &pending, None, "work"),
        (&far, &World::running(), None, "work"),
        (
            &recorded_blog,
            &missing,
            None,
            "released ClusterNotReady: GarageCluster web/garage: not found; create it or correct spec.clusterRef",
        ),
        (
            &recorded_blog,
            &not_served,
            None,
            "ClusterNotReady: GarageCluster web/garage: the API server does not serve GarageCluster v1beta2; install \
             its CRD",
        ),
        (
            &recorded_blog,
            &unserved_and_gone,
            None,
            "released ClusterNotReady: GarageCluster web/garage: the API server does not serve GarageCluster v1beta2; install \
             its CRD",
        ),
        (
            &recorded_blog,
            &not_watched,
            None,
            "ClusterNotVisible: GarageCluster web/garage: namespace web is not watched: add it to --watch-namespaces (chart \
             value watchNamespaces); until then the bucket in Garage is not removed. Or set spec.deletionPolicy: Retain, \
             which leaves it there",
        ),
        (
            &recorded_blog,
            &misfit,
            None,
            "ClusterNotVisible: GarageCluster web/garage: exists and cannot be read, because a field does not fit: \
             spec.webApi: no; correct it; until then the bucket in Garage is not removed. Or set spec.deletionPolicy: \
             Retain, which leaves it there",
        ),
        (
            &recorded_blog,
            &forbidden,
            None,
            "ClusterNotVisible: GarageCluster web/garage: cannot be read, because a right is missing: no right; until then the \
             bucket in Garage is not removed. Or set spec.deletionPolicy: Retain, which leaves it there",
        ),
        (&retained, &not_watched, None, "gone"),
        (&recorded_blog, &unknown, None, "wait for GarageCluster"),
        // A bucket may be there that was never recorded, but only under this object's own reservation.
        (&reserved("u-1"), &pending, None, "work"),
        (&reserved("u-2"), &unknown, None, "gone"),
        (&deleted(blog(none.clone(), none.clone())), &unknown, None, "gone"),
        (&retained, &unknown, None, "gone"),
        (&retained, &not_served, None, "gone"),
        (&recorded_blog, &unknown, Some("web/other"), "gone"),
    ] {
        assert_eq!(found(bucket, world, claimed), says);
    }
    let mut taken = deleted(abroad());
    taken.status = Some(from_value(json!({"bucketId": ID})).unwrap());
    assert_eq!(
        found(&taken, &World::running(), None),
        "work",
        "a grant that was taken away"
    );
}

#[test]
fn an_alias_that_is_a_hostname_keeps_to_the_limits_for_hostnames() {
    let world = World {
        guards: Guards {
            hostname_suffixes: vec!["example.com".into()],
            ..Guards::default()
        },
        ..World::running()
    };
    let none = json!({});
    for (alias, says) in [
        ("docs", "work"),
        ("www.example.com", "work"),
        (
            "www.bank.test",
            "InvalidSpec: spec.globalAlias: the alias \"www.bank.test\" is a hostname for Garage's web API and is not allowed \
             here: set a spec.globalAlias without '.', or example.com or a name below",
        ),
    ] {
        let spec = json!({"globalAlias": alias});
        assert_eq!(found(&blog(spec.clone(), none.clone()), &world, None), says);
        // A bucket that is no longer allowed can still be removed.
        assert_eq!(found(&deleted(blog(spec, recorded())), &world, None), "work");
    }
}

#[test]
fn another_namespace_needs_a_grant_by_name_or_by_label() {
    let by_label =
        grant(json!({"kind": "GarageBucket", "namespaceSelector": {"matchLabels": {"team": "blue"}}}));
    let labels = |team: &str| Some(BTreeMap::from([("team".to_owned(), team.to_owned())]));
    for (grants, labels, allowed) in [
        (vec![], None, false),
        (
            vec![grant(json!({"kind": "GarageBucket", "namespace": "storage"}))],
            None,
            true,
        ),
        (
            vec![grant(json!({"kind": "GarageKey", "namespace": "storage"}))],
            None,
            false,
        ),
        (vec![by_label.clone()], labels("blue"), true),
        (vec![by_label.clone()], labels("red"), false),
        (vec![by_label], None, false),
    ] {
        let world = World {
            grants: grants.clone(),
            labels,
            ..World::running()
        };
        let says = found(&abroad(), &world, None);
        if allowed {
            assert_eq!(says, "work", "{grants:?}");
        } else {
            assert!(
                says.starts_with("GrantDenied: ")
                    && says.contains("create a GarageReferenceGrant in namespace web"),
                "{says}"
            );
        }
    }
}

#[test]
fn the_web_root_is_the_clusters_and_only_while_it_serves_websites() {
    let root = |change: Value| {
        let mut cluster = handle();
        cluster["status"] = json!({"phase": "Running"});
        cluster["spec"]["webApi"] = change;
        match plan(&blog(json!({}), json!({})), &World::with(cluster), None) {
            Ok(bucket::Finding::Work(work)) => work.wanted.web_root,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        root(json!({"rootDomain": ".site.test"})).as_deref(),
        Some("site.test")
    );
    assert_eq!(root(json!({"rootDomain": ".site.test", "enabled": false})), None);
    assert_eq!(root(json!({"rootDomain": "UPPER"})), None, "exposure's to tell");
    assert_eq!(
        root(json!({})),
        None,
        "a Garage that runs elsewhere does not tell"
    );
}

// ---- report ---------------------------------------------------------------------------------------------------------

fn field<'a>(report: &'a Report, name: &str) -> Option<&'a StatusField> {
    report
        .fields
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, value)| value)
}

fn phase_is(report: &Report, phase: &str) -> bool {
    report.fields.iter().filter(|(name, _)| *name == "phase").count() == 1
        && field(report, "phase") == Some(&StatusField::Set(phase.into()))
}

fn only(report: &Report) -> (&str, bool, &str) {
    assert_eq!(report.conditions.len(), 1);
    let condition = &report.conditions[0];
    assert_ne!(condition.status, ConditionStatus::Unknown);
    (
        condition.type_,
        condition.status == ConditionStatus::True,
        condition.reason,
    )
}

fn refusal(reason: RefusalReason) -> Refusal {
    Refusal {
        reason,
        field: "spec",
        message: "spec: why".into(),
    }
}

#[test]
fn every_finding_has_its_words_and_its_next_look() {
    let living = blog(json!({}), json!({}));
    let going = deleted(living.clone());
    let blocked = |reason| bucket::Finding::Blocked {
        reason,
        message: "why".into(),
        released: false,
    };
    let ended = |end: End| bucket::Finding::Ended {
        end: Box::new(end),
        usage: None,
    };
    let waits = |report: &Report| match report.outcome {
        Outcome::Waiting { retry, .. } => (true, retry),
        Outcome::RequeueAfter(retry) => (false, retry),
        ref other => panic!("{other:?}"),
    };
    let minute = Duration::from_secs(60);

    for (finding, bucket, phase, reason, next) in [
        (
            blocked(BlockReason::GrantDenied),
            &living,
            "Failed",
            "GrantDenied",
            (true, minute),
        ),
        (
            blocked(BlockReason::GrantDenied),
            &going,
            "Deleting",
            "GrantDenied",
            (true, minute),
        ),
        (
            blocked(BlockReason::InvalidSpec),
            &living,
            "Failed",
            "InvalidSpec",
            (true, minute),
        ),
        (
            blocked(BlockReason::ClusterNotReady),
            &living,
            "Pending",
            "ClusterNotReady",
            (true, minute),
        ),
        (
            blocked(BlockReason::ClusterNotReady),
            &going,
            "Deleting",
            "ClusterNotReady",
            (true, minute),
        ),
        (
            ended(End::Refuse(refusal(RefusalReason::AliasTaken))),
            &living,
            "Failed",
            "AliasTaken",
            (false, DRIFT),
        ),
        (
            ended(End::Refuse(refusal(RefusalReason::InvalidBucketId))),
            &going,
            "Deleting",
            "InvalidBucketId",
            (false, DRIFT),
        ),
        (
            ended(End::Stay(refusal(RefusalReason::BucketNotEmpty))),
            &going,
            "Deleting",
            "BucketNotEmpty",
            (true, minute),
        ),
        (
            ended(End::Stay(refusal(RefusalReason::BucketClaimed))),
            &going,
            "Deleting",
            "BucketClaimed",
            (true, DRIFT),
        ),
        (
            ended(End::Stay(refusal(RefusalReason::CreationUnanswered))),
            &going,
            "Deleting",
            "CreationUnanswered",
            (true, Duration::from_secs(35)),
        ),
    ] {
        let report = report(bucket, &finding);
        assert!(phase_is(&report, phase), "{finding:?}: {report:?}");
        assert_eq!(only(&report), ("Ready", false, reason));
        assert_eq!(waits(&report), next, "{finding:?}");
        assert_eq!(report.fields.len(), 1, "nothing else of the status is touched");
        assert!(!report.untouched);
    }
    // An outage does not make a bucket that is there one that is awaited.
    let known = report(
        &blog(json!({}), recorded()),
        &blocked(BlockReason::ClusterNotReady),
    );
    assert_eq!(only(&known), ("Ready", false, "ClusterNotReady"));
    assert!(known.fields.is_empty() && !known.untouched, "{known:?}");
    for finding in [bucket::Finding::NotOurs, ended(End::Gone)] {
        assert_eq!(report(&living, &finding), Report::untouched(Outcome::Done));
    }
}

#[test]
fn a_bucket_that_is_done_shows_everything_that_is_ours_and_the_chosen_figures() {
    let fresh = Usage {
        size_bytes: 2048,
        object_count: 2,
        ..Usage::default()
    };
    let done = |usage| bucket::Finding::Ended {
        end: Box::new(End::Done(Box::new(StatusProjection {
            bucket_id: BucketId::parse(ID).unwrap(),
            global_alias: "blog".into(),
            phase: Phase::Ready,
            website_enabled: false,
            website_url: String::new(),
            website_config: None,
            usage: fresh,
            created_at: Some("2026-01-01T00:00:00.123Z".into()),
        }))),
        usage,
    };
    let shown = Usage {
        size_bytes: 1024,
        ..fresh
    };
    let bucket = blog(json!({}), json!({}));
    for (usage, size) in [(Some(shown), "1.0 KiB"), (None, "2.0 KiB")] {
        let report = report(&bucket, &done(usage));
        assert_eq!(only(&report), ("Ready", true, "BucketReady"));
        assert_eq!(report.outcome, Outcome::RequeueAfter(DRIFT));
        assert_eq!(field(&report, "size"), Some(&StatusField::Set(size.into())));
        assert_eq!(
            field(&report, "createdAt"),
            Some(&StatusField::Set("2026-01-01T00:00:00Z".into()))
        );
        assert_eq!(field(&report, "websiteUrl"), Some(&StatusField::Clear));
        assert_eq!(field(&report, "websiteConfig"), Some(&StatusField::Clear));
        assert_eq!(
            field(&report, "websiteEnabled"),
            Some(&StatusField::Set(false.into()))
        );
        let mut named: Vec<&str> = report.fields.iter().map(|(name, _)| *name).collect();
        let mut ours = bucket::CONTRACT.fields.to_vec();
        named.sort_unstable();
        ours.sort_unstable();
        assert_eq!(named, ours, "each field of the contract once");
    }
}

#[test]
fn every_field_of_the_contract_is_read_back_as_it_is_written() {
    let status = json!({
        "bucketId": ID, "phase": "Ready", "globalAlias": "blog", "createdAt": "2026-01-01T00:00:00Z",
        "websiteEnabled": true, "websiteUrl": "http://blog.site.test",
        "websiteConfig": {"indexDocument": "index.html"},
        "quotaUsage": {"sizeBytes": 1, "objectCount": 1}, "size": "1 B",
    });
    let shown = blog(json!({}), json!({"status": status}));
    for name in bucket::CONTRACT.fields {
        assert_eq!(
            BucketPlanner::status_field(&shown, name),
            Some(status[name].clone()),
            "{name}"
        );
        assert_eq!(
            BucketPlanner::status_field(&blog(json!({}), json!({})), name),
            None
        );
    }
    assert_eq!(BucketPlanner::status_field(&shown, "websiteExposure"), None);
}

#[test]
fn an_error_keeps_the_phase_of_what_is_recorded_and_says_whose_fault_it_is() {
    let living = blog(json!({}), json!({}));
    let known = blog(json!({}), recorded());
    let empty = blog(json!({}), json!({"status": {"bucketId": ""}}));
    for (class, reason) in [
        (ErrorClass::Transient, "GarageUnavailable"),
        (ErrorClass::Timeout, "GarageUnavailable"),
        (ErrorClass::RateLimited(None), "GarageUnavailable"),
        (ErrorClass::Forbidden, "ReconcileFailed"),
        (ErrorClass::Invalid, "ReconcileFailed"),
        (ErrorClass::Conflict, "ReconcileFailed"),
        (ErrorClass::Panic, "ReconcileFailed"),
    ] {
        let error = ReconcileError::new(class, "why");
        for (bucket, phase) in [
            (&living, Some("Creating")),
            (&empty, Some("Creating")),
            (&known, None),
            (&deleted(known.clone()), Some("Deleting")),
        ] {
            let report = BucketPlanner::report_error(bucket, &error);
            assert_eq!(only(&report), ("Ready", false, reason));
            match phase {
                Some(phase) => assert!(phase_is(&report, phase), "{report:?}"),
                None => assert!(report.fields.is_empty(), "{report:?}"),
            }
        }
        let foreign = blog(json!({}), json!({"finalizers": [bucket::FOREIGN_FINALIZER]}));
        assert!(BucketPlanner::report_error(&foreign, &error).untouched);
        assert!(!bucket::wants_finalizer(&foreign));
    }
    assert!(bucket::wants_finalizer(&living));
}

// ---- handles --------------------------------------------------------------------------------------------------------

fn typed(cluster: Value) -> GarageCluster {
    from_value(cluster).unwrap()
}

#[test]
fn a_probed_handle_says_its_phase_and_nothing_else_is_said_of_others() {
    let none = Children::default();
    let verdict = |phase, reason| {
        Verdict::Report(cluster::Finding::Probed(HandleVerdict {
            phase,
            reason,
            message: "why".into(),
            retry: HANDLE_INTERVAL,
        }))
    };
    let handle = typed(handle());
    let report = ClusterPlanner::report(
        &handle,
        &verdict(HandlePhase::Running, HandleReason::AdminAPIReachable),
        &none,
    );
    assert_eq!(only(&report), ("Ready", true, "AdminAPIReachable"));
    assert!(phase_is(&report, "Running"));
    assert_eq!(report.outcome, Outcome::RequeueAfter(HANDLE_INTERVAL));

    let report = ClusterPlanner::report(
        &handle,
        &verdict(HandlePhase::Pending, HandleReason::Unauthorized),
        &none,
    );
    assert_eq!(only(&report), ("Ready", false, "Unauthorized"));
    assert!(phase_is(&report, "Pending"));
    assert!(matches!(report.outcome, Outcome::Waiting { retry, .. } if retry == HANDLE_INTERVAL));

    let report = ClusterPlanner::report(&handle, &Verdict::Report(cluster::Finding::NotOurs), &none);
    assert_eq!(report, Report::untouched(Outcome::Done));

    let error = ReconcileError::new(ErrorClass::Transient, "why");
    let report = ClusterPlanner::report_error(&handle, &error);
    assert!(report.untouched && report.notes.len() == 1, "{report:?}");
    let tiers = typed(super::support::cluster());
    assert_eq!(
        ClusterPlanner::report_error(&tiers, &error),
        Report::untouched(Outcome::Done)
    );
}

// ---- access ---------------------------------------------------------------------------------------------------------

#[test]
fn the_admin_api_is_where_the_spec_says_or_behind_the_clusters_service() {
    let token = |name: &str| {
        Some(TokenRef {
            name: name.into(),
            key: None,
        })
    };
    assert_eq!(
        admin_spec(&typed(handle()), "cluster.local"),
        HandleSpec {
            endpoint: Some("http://garage.example.com:3903".into()),
            token: token("garage-admin"),
        }
    );
    let own = |admin: Value| {
        let mut cluster = super::support::cluster();
        cluster["spec"]["admin"] = admin;
        admin_spec(&typed(cluster), "k8s.test")
    };
    let secret = json!({"name": "admin"});
    for (admin, port) in [
        (json!({}), 3903),
        (json!({"bindPort": 4000}), 4000),
        (json!({"bindPort": 0}), 3903),
        (json!({"bindPort": 70000}), 3903),
        (json!({"bindPort": 4000, "bindAddress": "0.0.0.0:5000"}), 5000),
        (json!({"bindAddress": "[::]:5000"}), 5000),
        (json!({"bindPort": 4000, "bindAddress": "[::]"}), 4000),
        (json!({"bindAddress": "0.0.0.0:0"}), 3903),
    ] {
        let mut with = admin.clone();
        with["adminTokenSecretRef"] = secret.clone();
        assert_eq!(
            own(with),
            HandleSpec {
                endpoint: Some(format!("http://garage.web.svc.k8s.test:{port}")),
                token: token("admin"),
            },
            "{admin}"
        );
    }
    assert_eq!(own(json!({})).token, None);
    assert_eq!(own(Value::Null).token, None);
}
