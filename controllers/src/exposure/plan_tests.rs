//! What each controller plans and says, told as tables and properties: every cell of flag × API × kind selected, for
//! both controllers, behind the same gates as in the running operator; and the invariants of the contract.

use std::sync::Mutex;

use proptest::prelude::*;
use reconcile_kit::{
    ChildState, HoldReason, Outcome, StatusField,
    layers::{api_presence::ApiPresenceLayer, feature_gate::FeatureGateLayer, planner::PlannerService},
    settled::SettledChild,
};
use serde_json::from_value;
use tower::{ServiceBuilder, ServiceExt};

use super::{
    super::{cluster, hostname},
    *,
};

// ---- a world of plain values ----------------------------------------------------------------------------------------

/// What the caches hold, as plain values.
#[derive(Clone)]
struct World {
    cluster: Result<FoundCluster, NotReady>,
    grants: Result<Vec<Arc<GarageReferenceGrant>>, NotReady>,
    labels: Result<Option<BTreeMap<String, String>>, NotReady>,
    classes: IngressClasses,
    child: Option<Arc<Child>>,
    refused: Option<String>,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl World {
    /// A running cluster `garage` under `.example.com`, and nothing else.
    fn running() -> Self {
        Self {
            cluster: Ok(FoundCluster::Found(Arc::new(cluster_object(
                "sites",
                json!({ "storage": {}, "webApi": { "rootDomain": ".example.com" } }),
                "Running",
            )))),
            grants: Ok(Vec::new()),
            labels: Ok(None),
            classes: IngressClasses::Assumed,
            child: None,
            refused: None,
            asked: Arc::default(),
        }
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

impl Facts for World {
    fn cluster(&self, _: &str, _: &str) -> Result<FoundCluster, NotReady> {
        self.note("cluster");
        self.cluster.clone()
    }
    fn grants(&self, _: &str) -> Result<Vec<Arc<GarageReferenceGrant>>, NotReady> {
        self.note("grants");
        self.grants.clone()
    }
    fn namespace_labels(&self, _: &str) -> Result<Option<BTreeMap<String, String>>, NotReady> {
        self.note("labels");
        self.labels.clone()
    }
    fn ingress_classes(&self) -> IngressClasses {
        self.classes.clone()
    }
    fn child(&self, _: ExposureKind, _: &str, _: &str) -> Option<Arc<Child>> {
        self.child.clone()
    }
    fn refused(&self, _: ExposureKind) -> Option<String> {
        self.refused.clone()
    }
}

fn cluster_object(namespace: &str, spec: Value, phase: &str) -> GarageCluster {
    from_value(json!({
        "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
        "metadata": { "name": "garage", "namespace": namespace },
        "spec": spec, "status": { "phase": phase },
    }))
    .unwrap()
}

/// A bucket `sites/blog` that is there in Garage, with a website and this exposure (`null`: none).
fn bucket(exposure: Value) -> GarageBucket {
    let mut bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": { "name": "blog", "namespace": "sites", "uid": "u-1", "generation": 2 },
        "spec": { "clusterRef": { "name": "garage" }, "website": { "enabled": true } },
        "status": { "bucketId": "abc", "globalAlias": "blog" },
    });
    if !exposure.is_null() {
        bucket["spec"]["websiteExposure"] = exposure;
    }
    from_value(bucket).unwrap()
}

/// The same after an exposure of this kind.
fn exposed_before(kind: ExposureKind, exposure: Value) -> GarageBucket {
    let mut bucket = bucket(exposure);
    let status = bucket.status.as_mut().unwrap();
    status.website_exposure =
        Some(from_value(json!({ "type": kind.as_str(), "name": "blog-website" })).unwrap());
    bucket
}

fn by_ingress() -> Value {
    json!({ "ingress": {} })
}

fn by_route() -> Value {
    json!({ "gateway": { "parentRefs": [{ "name": "public" }] } })
}

fn selections() -> [(&'static str, Value); 5] {
    let both = json!({ "ingress": {}, "gateway": { "parentRefs": [{ "name": "public" }] } });
    [
        ("ingress", by_ingress()),
        ("gateway", by_route()),
        ("unset", Value::Null),
        ("both", both),
        ("neither", json!({})),
    ]
}

/// The plan as it leaves the gates. What a flag switches off is never looked for, and counts as served.
fn gated<E: Exposer>(
    bucket: &GarageBucket,
    flag: bool,
    api: Presence,
    world: &World,
) -> Result<Plan<Finding>, ReconcileError> {
    let api = if flag { api } else { Presence::Served };
    let presence: Arc<dyn PresenceSnapshot> = Arc::new(move |_: &ApiKind| api);
    let planner = ExposurePlanner::<E>::new(Arc::new(world.clone()), flag, Arc::clone(&presence));
    let features: &[&'static str] = if flag { &[E::FEATURE] } else { &[] };
    let stack = ServiceBuilder::new()
        .layer(ApiPresenceLayer::<ExposurePlanner<E>>::new(presence))
        .layer(FeatureGateLayer::<ExposurePlanner<E>>::new(features.into()))
        .service(PlannerService::new(Arc::new(planner)));
    let request = Request::new(Arc::new(bucket.clone()));
    futures::executor::block_on(stack.oneshot(request))
}

/// Children as they stand when everything went well.
fn applied(plan: &Plan<Finding>) -> Children {
    let children = plan.children.iter().map(|child| match child {
        ChildPlan::Want(desired) => SettledChild {
            kind: desired.kind,
            namespace: desired.namespace.clone(),
            name: desired.name.clone(),
            state: ChildState::Created,
            live: Some(Arc::new(Child::from_value(desired.body.clone()).unwrap())),
        },
        ChildPlan::Gone {
            kind,
            namespace,
            name,
            ..
        } => SettledChild {
            kind: *kind,
            namespace: namespace.clone(),
            name: name.clone(),
            state: ChildState::Removed,
            live: None,
        },
    });
    Children(children.collect())
}

/// `want Ingress`, `remove HTTPRoute`, `–`.
fn children_of(plan: &Plan<Finding>) -> String {
    let children = plan.children.iter().map(|child| match child {
        ChildPlan::Want(desired) => format!("want {}", desired.kind.kind),
        ChildPlan::Gone { kind, .. } => format!("remove {}", kind.kind),
    });
    let all: Vec<String> = children.collect();
    if all.is_empty() {
        "–".to_owned()
    } else {
        all.join(", ")
    }
}

/// `silent`, `clears`, or condition and status block.
fn said(report: &Report) -> String {
    if report.untouched {
        return "silent".to_owned();
    }
    let block = match report.fields.as_slice() {
        [] => "status kept".to_owned(),
        [("websiteExposure", StatusField::Clear)] => "status cleared".to_owned(),
        [("websiteExposure", StatusField::Set(value))] => {
            let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            keys.join("+")
        }
        other => format!("{other:?}"),
    };
    let condition = match report.conditions.as_slice() {
        [] if report.keep_conditions => "condition kept".to_owned(),
        [] => "condition removed".to_owned(),
        [one] => format!("{}/{}", one.status.as_str(), one.reason),
        more => format!("{} conditions", more.len()),
    };
    format!("{condition}, {block}")
}

/// One cell: what `E` does and says.
fn cell<E: Exposer>(bucket: &GarageBucket, flag: bool, api: Presence) -> (String, Option<Report>) {
    match gated::<E>(bucket, flag, api, &World::running()) {
        Err(error) => (format!("looks again ({})", error.class.label()), None),
        Ok(plan) => {
            let report = ExposurePlanner::<E>::report(bucket, &plan.verdict, &applied(&plan));
            (
                format!("{} | {}", children_of(&plan), said(&report)),
                Some(report),
            )
        }
    }
}

const APIS: [Presence; 3] = [Presence::Served, Presence::Absent, Presence::Unknown];

fn grid<E: Exposer>() -> Vec<String> {
    let mut rows = Vec::new();
    for (name, exposure) in selections() {
        for flag in [true, false] {
            for api in APIS {
                let (cell, _) = cell::<E>(&bucket(exposure.clone()), flag, api);
                let flag = if flag { "on" } else { "off" };
                rows.push(format!("{name:<7} {flag:<3} {:<7} | {cell}", format!("{api:?}")));
            }
        }
    }
    rows
}

fn rows(table: &str) -> Vec<&str> {
    table
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn every_cell_of_the_ingress_controller() {
    let table = "
        ingress on  Served  | want Ingress | True/Exposed, hostnames+name+type
        ingress on  Absent  | – | False/ReconcileFailed, type
        ingress on  Unknown | – | silent
        ingress off Served  | – | False/IngressDisabled, type
        ingress off Absent  | – | False/IngressDisabled, type
        ingress off Unknown | – | False/IngressDisabled, type
        gateway on  Served  | remove Ingress | silent
        gateway on  Absent  | – | silent
        gateway on  Unknown | looks again (not_ready)
        gateway off Served  | – | silent
        gateway off Absent  | – | silent
        gateway off Unknown | – | silent
        unset   on  Served  | remove Ingress | condition removed, status cleared
        unset   on  Absent  | – | condition removed, status cleared
        unset   on  Unknown | looks again (not_ready)
        unset   off Served  | – | condition removed, status cleared
        unset   off Absent  | – | condition removed, status cleared
        unset   off Unknown | – | condition removed, status cleared
        both    on  Served  | – | False/ReconcileFailed, status kept
        both    on  Absent  | – | False/ReconcileFailed, status kept
        both    on  Unknown | – | False/ReconcileFailed, status kept
        both    off Served  | – | False/ReconcileFailed, status kept
        both    off Absent  | – | False/ReconcileFailed, status kept
        both    off Unknown | – | False/ReconcileFailed, status kept
        neither on  Served  | – | False/ReconcileFailed, status kept
        neither on  Absent  | – | False/ReconcileFailed, status kept
        neither on  Unknown | – | False/ReconcileFailed, status kept
        neither off Served  | – | False/ReconcileFailed, status kept
        neither off Absent  | – | False/ReconcileFailed, status kept
        neither off Unknown | – | False/ReconcileFailed, status kept
    ";
    assert_eq!(grid::<IngressExposer>(), rows(table));
}

#[test]
fn every_cell_of_the_route_controller() {
    let table = "
        ingress on  Served  | remove HTTPRoute | silent
        ingress on  Absent  | – | silent
        ingress on  Unknown | looks again (not_ready)
        ingress off Served  | – | silent
        ingress off Absent  | – | silent
        ingress off Unknown | – | silent
        gateway on  Served  | want HTTPRoute | False/NotReady, hostnames+name+parents+type
        gateway on  Absent  | – | False/GatewayAPIUnavailable, type
        gateway on  Unknown | – | silent
        gateway off Served  | – | False/GatewayAPIUnavailable, type
        gateway off Absent  | – | False/GatewayAPIUnavailable, type
        gateway off Unknown | – | False/GatewayAPIUnavailable, type
        unset   on  Served  | remove HTTPRoute | silent
        unset   on  Absent  | – | silent
        unset   on  Unknown | looks again (not_ready)
        unset   off Served  | – | silent
        unset   off Absent  | – | silent
        unset   off Unknown | – | silent
        both    on  Served  | – | silent
        both    on  Absent  | – | silent
        both    on  Unknown | – | silent
        both    off Served  | – | silent
        both    off Absent  | – | silent
        both    off Unknown | – | silent
        neither on  Served  | – | silent
        neither on  Absent  | – | silent
        neither on  Unknown | – | silent
        neither off Served  | – | silent
        neither off Absent  | – | silent
        neither off Unknown | – | silent
    ";
    assert_eq!(grid::<HttpRouteExposer>(), rows(table));
}

/// Over all combinations of both flags, both APIs, what is selected and what was exposed before: exactly one controller
/// speaks, and it is the one of the selected kind; nobody speaks only while it is not known whether that kind is served.
#[test]
fn exactly_one_controller_speaks() {
    let mut cells = 0;
    for (name, exposure) in selections() {
        for before in [None, Some(ExposureKind::Ingress), Some(ExposureKind::HttpRoute)] {
            let bucket = match before {
                None => bucket(exposure.clone()),
                Some(kind) => exposed_before(kind, exposure.clone()),
            };
            for (flags, apis) in [(true, true), (true, false), (false, true), (false, false)]
                .into_iter()
                .flat_map(|flags| {
                    APIS.iter()
                        .flat_map(move |a| APIS.iter().map(move |b| (flags, (*a, *b))))
                })
            {
                let speaks = |report: Option<Report>| report.is_some_and(|report| !report.untouched);
                let ingress = speaks(cell::<IngressExposer>(&bucket, flags.0, apis.0).1);
                let route = speaks(cell::<HttpRouteExposer>(&bucket, flags.1, apis.1).1);
                let unknown = |flag: bool, api: Presence| flag && api == Presence::Unknown;
                let expected = match name {
                    "ingress" => (!unknown(flags.0, apis.0), false),
                    "gateway" => (false, !unknown(flags.1, apis.1)),
                    // Nothing may be concluded about an Ingress that may be there.
                    "unset" => (!unknown(flags.0, apis.0), false),
                    _ => (true, false),
                };
                assert_eq!((ingress, route), expected, "{name} {before:?} {flags:?} {apis:?}");
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 5 * 3 * 4 * 9);
}

// ---- removal --------------------------------------------------------------------------------------------------------

fn plan_of(kind: ExposureKind, bucket: &GarageBucket, reach: Reach, world: &World) -> Plan<Finding> {
    plan(kind, bucket, reach, world).unwrap()
}

#[test]
fn what_status_tells_of_is_looked_for_even_if_the_cache_does_not_show_it() {
    let verify = |bucket: &GarageBucket, kind| match plan_of(kind, bucket, Reach::Full, &World::running())
        .children
        .as_slice()
    {
        [
            ChildPlan::Gone {
                verify,
                namespace,
                name,
                ..
            },
        ] => {
            assert_eq!((namespace.as_str(), name.as_str()), ("sites", "blog-website"));
            *verify
        }
        other => panic!("{other:?}"),
    };
    for kind in [ExposureKind::Ingress, ExposureKind::HttpRoute] {
        assert!(verify(&exposed_before(kind, Value::Null), kind));
        assert!(!verify(&bucket(Value::Null), kind), "never exposed: no call");
    }
    let was_route = exposed_before(ExposureKind::HttpRoute, Value::Null);
    assert!(!verify(&was_route, ExposureKind::Ingress), "the other kind");
}

#[test]
fn a_child_that_nobody_may_look_at_stays_and_is_named() {
    for (exposure, kind, text) in [
        (
            Value::Null,
            ExposureKind::Ingress,
            "Ingress sites/blog-website is no longer wanted and stays, because --enable-ingress is off: delete it by hand, \
             or switch the flag on",
        ),
        (
            by_route(),
            ExposureKind::Ingress,
            "Ingress sites/blog-website is no longer wanted and stays, because --enable-ingress is off: delete it by hand, \
             or switch the flag on",
        ),
        (
            by_ingress(),
            ExposureKind::HttpRoute,
            "HTTPRoute sites/blog-website is no longer wanted and stays, because --enable-gateway-api is off: delete it by \
             hand, or switch the flag on",
        ),
    ] {
        let bucket = exposed_before(kind, exposure);
        let plan = plan_of(kind, &bucket, Reach::FlagOff, &World::running());
        assert_eq!(plan.children, []);
        let report = status::report(kind, &bucket, &plan.verdict, &Children::default());
        let notes: Vec<_> = report
            .notes
            .iter()
            .map(|n| (n.warning, &*n.reason, n.message.as_str()))
            .collect();
        assert_eq!(notes, [(true, "LeftBehind", text)]);
    }
}

#[test]
fn a_kind_that_is_not_served_has_left_nothing_behind() {
    let bucket = exposed_before(ExposureKind::HttpRoute, by_ingress());
    let plan = plan_of(
        ExposureKind::HttpRoute,
        &bucket,
        Reach::NotServed,
        &World::running(),
    );
    assert_eq!(plan, Plan::report(Finding::Aside { leftover: None }));
}

#[test]
fn nothing_is_concluded_while_it_is_not_known_whether_the_kind_is_served() {
    let bucket = exposed_before(ExposureKind::HttpRoute, by_ingress());
    let error = plan(
        ExposureKind::HttpRoute,
        &bucket,
        Reach::Unknown,
        &World::running(),
    )
    .unwrap_err();
    assert_eq!(error.class, ErrorClass::NotReady);
}

#[test]
fn a_missing_right_to_see_the_child_is_said_where_there_is_something_to_see() {
    let world = World {
        refused: Some("forbidden: cannot list ingresses".into()),
        ..World::running()
    };
    let text = "watch Ingress sites/blog-website: forbidden: cannot list ingresses";
    let forbidden = |bucket: &GarageBucket| {
        let error = plan(ExposureKind::Ingress, bucket, Reach::Full, &world).unwrap_err();
        assert_eq!(
            (error.class, error.message.as_str()),
            (ErrorClass::Forbidden, text)
        );
        status::report_error(ExposureKind::Ingress, bucket, &error)
    };
    assert_eq!(
        said(&forbidden(&bucket(by_ingress()))),
        "False/ReconcileFailed, type"
    );
    // The name of what was there stays on record.
    assert_eq!(
        said(&forbidden(&exposed_before(ExposureKind::Ingress, by_ingress()))),
        "False/ReconcileFailed, name+type"
    );
    let report = forbidden(&exposed_before(ExposureKind::Ingress, Value::Null));
    assert_eq!((said(&report).as_str(), report.notes.len()), ("silent", 1));
    let report = forbidden(&exposed_before(ExposureKind::Ingress, by_route()));
    assert_eq!((said(&report).as_str(), report.notes.len()), ("silent", 1));

    let plan = plan_of(ExposureKind::Ingress, &bucket(Value::Null), Reach::Full, &world);
    assert_eq!(plan.children, [], "nothing was ever there");
}

// ---- what is read ---------------------------------------------------------------------------------------------------

fn foreign_cluster() -> GarageBucket {
    let mut bucket = bucket(by_route());
    bucket.spec.cluster_ref.namespace = Some("storage".into());
    bucket
}

fn grant(from: Value) -> Arc<GarageReferenceGrant> {
    Arc::new(
        from_value(json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageReferenceGrant",
            "metadata": { "name": "g", "namespace": "storage" }, "spec": { "from": [from] },
        }))
        .unwrap(),
    )
}

#[test]
fn caches_are_asked_only_for_what_the_decision_needs() {
    let by_name = grant(json!({ "kind": "GarageBucket", "namespace": "sites" }));
    let by_label = grant(json!({ "kind": "GarageBucket", "namespaceSelector": {} }));
    let asked = |bucket: GarageBucket, kind, grants: &[Arc<GarageReferenceGrant>]| {
        let world = World {
            grants: Ok(grants.to_vec()),
            ..World::running()
        };
        plan_of(kind, &bucket, Reach::Full, &world);
        world.asked.lock().unwrap().clone()
    };
    assert_eq!(
        asked(bucket(by_ingress()), ExposureKind::Ingress, &[]),
        ["cluster"]
    );
    let route = ExposureKind::HttpRoute;
    assert_eq!(asked(foreign_cluster(), route, &[by_name]), ["cluster", "grants"]);
    assert_eq!(
        asked(foreign_cluster(), route, &[by_label]),
        ["cluster", "grants", "labels"]
    );
    for aside in [bucket(by_ingress()), bucket(Value::Null)] {
        assert_eq!(
            asked(aside, route, &[]),
            [""; 0],
            "not selected: nothing to decide"
        );
    }
}

#[test]
fn an_incomplete_cache_concludes_nothing() {
    let not_ready = |world: World, bucket: GarageBucket| {
        let error = plan(ExposureKind::HttpRoute, &bucket, Reach::Full, &world).unwrap_err();
        assert_eq!(error.class, ErrorClass::NotReady, "{error}");
        error.message
    };
    let cluster = World {
        cluster: Err(NotReady("GarageCluster")),
        ..World::running()
    };
    assert_eq!(
        not_ready(cluster, bucket(by_route())),
        "the cache of GarageCluster is not complete yet"
    );
    let grants = World {
        grants: Err(NotReady("GarageReferenceGrant")),
        ..World::running()
    };
    not_ready(grants, foreign_cluster());
    let labels = World {
        grants: Ok(vec![grant(
            json!({ "kind": "GarageBucket", "namespaceSelector": {} }),
        )]),
        labels: Err(NotReady("Namespace")),
        ..World::running()
    };
    not_ready(labels, foreign_cluster());
}

#[test]
fn what_goes_on_being_served_is_read_from_our_own_child_only() {
    let child = |uid: &str, body: Value| {
        let mut object = body;
        object["metadata"] = json!({
            "name": "blog-website", "namespace": "sites",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "GarageBucket", "name": "blog", "uid": uid, "controller": true }],
        });
        Some(Arc::new(Child::from_value(object).unwrap()))
    };
    let mut waiting = bucket(by_ingress());
    waiting.status.as_mut().unwrap().global_alias = None;
    let serving = |kind, bucket: &GarageBucket, child| {
        let world = World {
            child,
            ..World::running()
        };
        match plan_of(kind, bucket, Reach::Full, &world).verdict {
            Verdict::Report(Finding::Blocked { serving, .. }) => serving,
            other => panic!("{other:?}"),
        }
    };
    let ingress = json!({ "spec": { "rules": [{ "host": "a" }, {}, { "host": "b" }] } });
    assert_eq!(
        serving(ExposureKind::Ingress, &waiting, child("u-1", ingress.clone())),
        ["a", "b"]
    );
    assert_eq!(
        serving(ExposureKind::Ingress, &waiting, child("u-2", ingress)),
        [""; 0]
    );
    waiting.spec.website_exposure = Some(from_value(by_route()).unwrap());
    let route = json!({ "spec": { "hostnames": ["c"] } });
    assert_eq!(
        serving(ExposureKind::HttpRoute, &waiting, child("u-1", route)),
        ["c"]
    );
}

// ---- invariants -----------------------------------------------------------------------------------------------------

/// Everything that a plan and a report depend on.
#[derive(Clone, Debug)]
struct Case {
    bucket: GarageBucket,
    cluster: FoundCluster,
    granted: bool,
    flag: bool,
    api: Presence,
    refused: bool,
    state: ChildState,
}

fn any_name() -> impl Strategy<Value = String> {
    let names = [
        "blog",
        "blog",
        "blog",
        "blog.example.com",
        "blog.example.com",
        "www",
        "www.other.net",
        "example.com",
        "garage-rsv-1",
        "*.x",
        "Blog",
        "",
    ];
    prop::sample::select(names.to_vec()).prop_map(str::to_owned)
}

fn any_state() -> impl Strategy<Value = ChildState> {
    let text = "the API server said no".to_owned();
    prop::sample::select(vec![
        ChildState::Unchanged,
        ChildState::Created,
        ChildState::Updated,
        ChildState::Waiting,
        ChildState::Absent,
        ChildState::Removed,
        ChildState::Foreign {
            owner: "Deployment other".into(),
        },
        ChildState::Contested {
            manager: "kubectl".into(),
            retry: std::time::Duration::from_secs(9),
        },
        ChildState::Failed(ErrorClass::Forbidden, text.clone()),
        ChildState::Failed(ErrorClass::Invalid, text.clone()),
        ChildState::Failed(ErrorClass::Transient, text),
        ChildState::Held(HoldReason::Terminating),
    ])
}

prop_compose! {
    fn any_case()(
        selected in prop::sample::select(vec![0, 0, 0, 1, 1, 1, 2, 3, 4usize]),
        hostnames in prop::collection::vec(any_name(), 0..3),
        alias in prop::option::weighted(0.9, any_name()),
        before in 0..3usize,
        condition in prop::option::of(prop::sample::select(status::Reason::ALL.to_vec())),
        marks in (any::<bool>(), 0..8u8, 0..8u8, 0..8u8),
        cluster in 0..9usize,
        (granted, flag, refused) in (any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.1)),
        api in prop::sample::select(vec![Presence::Served, Presence::Served, Presence::Absent, Presence::Unknown]),
        state in any_state(),
    ) -> Case {
        let (elsewhere, website, paused, deleting) = marks;
        let mut exposure = selections()[selected].1.clone();
        if !exposure.is_null() && !hostnames.is_empty() {
            exposure["hostnames"] = json!(hostnames);
        }
        let mut bucket = match before {
            0 => bucket(exposure),
            1 => exposed_before(ExposureKind::Ingress, exposure),
            _ => exposed_before(ExposureKind::HttpRoute, exposure),
        };
        let status = bucket.status.as_mut().unwrap();
        status.global_alias = alias;
        status.conditions = condition.map(|reason| vec![from_value(json!({
            "type": "WebsiteExposed", "status": if reason == status::Reason::Exposed { "True" } else { "False" },
            "reason": reason.as_str(), "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })).unwrap()]);
        bucket.spec.website.as_mut().unwrap().enabled = Some(website > 0);
        if paused == 0 {
            bucket.metadata.annotations = Some(BTreeMap::from([("routewright.dev/reconcile".into(), "paused".into())]));
        }
        if deleting == 0 {
            bucket.metadata.deletion_timestamp = Some(from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }
        let there = if elsewhere { "storage" } else { "sites" };
        bucket.spec.cluster_ref.namespace = Some(there.to_owned());
        let found = |spec, phase| FoundCluster::Found(Arc::new(cluster_object(there, spec, phase)));
        let web = json!({ "rootDomain": ".example.com" });
        let cluster = match cluster {
            0 => FoundCluster::NotServed,
            1 => FoundCluster::Missing,
            2 => found(json!({ "storage": {}, "webApi": web }), "Pending"),
            3 => found(json!({ "storage": {}, "webApi": { "enabled": false } }), "Running"),
            4 => found(json!({ "storage": {}, "gateway": {}, "webApi": web }), "Running"),
            _ => found(json!({ "storage": {}, "webApi": web }), "Running"),
        };
        Case { bucket, cluster, granted, flag, api, refused, state }
    }
}

impl Case {
    fn world(&self) -> World {
        World {
            cluster: Ok(self.cluster.clone()),
            grants: Ok(if self.granted {
                vec![grant(json!({ "kind": "GarageBucket", "namespace": "sites" }))]
            } else {
                Vec::new()
            }),
            refused: self.refused.then(|| "forbidden".to_owned()),
            ..World::running()
        }
    }

    fn run<E: Exposer>(&self) -> (Option<Plan<Finding>>, Report) {
        match gated::<E>(&self.bucket, self.flag, self.api, &self.world()) {
            Err(error) => (None, status::report_error(E::KIND, &self.bucket, &error)),
            Ok(plan) => {
                let mut children = applied(&plan);
                for child in &mut children.0 {
                    child.state = self.state.clone();
                }
                let report = ExposurePlanner::<E>::report(&self.bucket, &plan.verdict, &children);
                (Some(plan), report)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// I1: no host, no object; nothing matches a host that is not listed. I2: nothing outside the bucket's namespace,
    /// nothing but the two kinds, no metadata that the user did not write. I3: every hostname reaches this bucket.
    #[test]
    fn what_is_planned_keeps_the_invariants(case in any_case()) {
        for (kind, plan) in [
            (ExposureKind::Ingress, case.run::<IngressExposer>().0),
            (ExposureKind::HttpRoute, case.run::<HttpRouteExposer>().0),
        ] {
            let Some(plan) = plan else { continue };
            prop_assert!(plan.children.len() <= 1);
            for child in &plan.children {
                match child {
                    ChildPlan::Gone { kind: gone, namespace, name, .. } => {
                        prop_assert_eq!((*gone, namespace.as_str(), name.as_str()), (kind.api(), "sites", "blog-website"));
                    }
                    ChildPlan::Want(desired) => {
                        prop_assert_eq!(desired.kind, kind.api());
                        prop_assert_eq!((desired.namespace.as_str(), desired.name.as_str()), ("sites", "blog-website"));
                        prop_assert_eq!(&desired.labels, &BTreeMap::from([("routewright.dev/bucket".to_owned(), "blog".to_owned())]));
                        prop_assert!(desired.annotations.is_empty());
                        let keys: Vec<_> = desired.body.as_object().unwrap().keys().collect();
                        prop_assert_eq!(keys, ["spec"], "a status or a Service is never written");
                        check_hosts(&case, kind, &desired.body)?;
                    }
                }
            }
        }
    }

    /// I4 and I5, and what a report may hold at all: one condition, one status field, nothing of `websiteUrl`; a foreign
    /// object is refused by name and never reported as standing; and everything is the same when it is asked again.
    #[test]
    fn what_is_said_keeps_the_invariants(case in any_case()) {
        for (run, kind) in [
            (Case::run::<IngressExposer> as fn(&Case) -> _, ExposureKind::Ingress),
            (Case::run::<HttpRouteExposer>, ExposureKind::HttpRoute),
        ] {
            let (plan, report) = run(&case);
            prop_assert_eq!(&run(&case).1, &report);
            prop_assert!(report.conditions.len() <= 1);
            prop_assert!(report.conditions.iter().all(|c| c.type_ == status::CONDITION));
            prop_assert!(report.fields.len() <= 1 && report.fields.iter().all(|(name, _)| *name == status::FIELD));
            let whole = format!("{report:?}");
            prop_assert!(!whole.contains("websiteUrl"));
            if report.untouched {
                prop_assert!(report.conditions.is_empty() && report.fields.is_empty());
            } else {
                prop_assert!(speaks(kind, &case.bucket));
            }
            for condition in &report.conditions {
                prop_assert_eq!(condition.status.as_str() == "True", condition.reason == "Exposed");
                prop_assert!(!condition.message.is_empty() && !condition.message.contains('\n'));
            }
            let wants = plan.as_ref().is_some_and(|p| p.children.iter().any(|c| matches!(c, ChildPlan::Want(_))));
            if let (true, ChildState::Foreign { owner }) = (wants, &case.state) {
                prop_assert_eq!(said(&report), "False/ReconcileFailed, type");
                let message = &report.conditions[0].message;
                let object = format!("{} sites/blog-website", kind.as_str());
                prop_assert!(message.contains(owner.as_str()) && message.contains(&object), "{}", message);
            }
            if !wants && !matches!(report.outcome, Outcome::Waiting { .. }) {
                prop_assert!(
                    report.conditions.iter().all(|c| c.reason != "Exposed" || c.message.starts_with("paused")),
                    "nothing is exposed that was not planned: {:?}", report
                );
            }
        }
    }
}

/// I1 and I3 for one body.
fn check_hosts(case: &Case, kind: ExposureKind, body: &Value) -> Result<(), TestCaseError> {
    let FoundCluster::Found(found) = &case.cluster else {
        return Err(TestCaseError::fail("planned without a cluster"));
    };
    let alias = case.bucket.status.as_ref().unwrap().global_alias.clone().unwrap();
    let root = cluster::root_domain(found).unwrap().unwrap();
    let listed = case
        .bucket
        .spec
        .website_exposure
        .as_ref()
        .unwrap()
        .hostnames
        .clone()
        .unwrap_or_default();
    let allowed = if listed.is_empty() {
        vec![format!("{alias}.example.com")]
    } else {
        listed
    };
    let spec = &body["spec"];
    prop_assert!(spec.get("defaultBackend").is_none());
    let hosts: Vec<String> = match kind {
        ExposureKind::Ingress => from_value(
            spec["rules"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rule| rule["host"].clone())
                .collect(),
        )
        .unwrap(),
        ExposureKind::HttpRoute => from_value(spec["hostnames"].clone()).unwrap(),
    };
    prop_assert_eq!(&hosts, &allowed);
    let rewrite = spec
        .pointer("/rules/0/filters/0/urlRewrite/hostname")
        .and_then(Value::as_str);
    for host in &hosts {
        let sent = rewrite.unwrap_or(host);
        prop_assert_eq!(
            hostname::resolve(sent, root.as_str()),
            Some(alias.clone()),
            "{}",
            sent
        );
    }
    Ok(())
}

/// The generator reaches what the invariants are about.
#[test]
fn the_generator_reaches_every_kind_of_plan() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..3000 {
        let case = any_case().new_tree(&mut runner).unwrap().current();
        for plan in [case.run::<IngressExposer>().0, case.run::<HttpRouteExposer>().0] {
            let key = plan.map_or("error".to_owned(), |plan| match plan.verdict {
                Verdict::Hold(_) => "hold".to_owned(),
                Verdict::Report(Finding::Blocked { blocked, .. }) => format!("{blocked:?}")
                    .split([' ', '('])
                    .next()
                    .unwrap()
                    .to_owned(),
                Verdict::Report(_) => children_of(&plan),
            });
            *seen.entry(key).or_default() += 1;
        }
    }
    for wanted in [
        "Ambiguous",
        "ClusterUnavailable",
        "GrantDenied",
        "Invalid",
        "Paused",
        "WaitingForAlias",
        "WebApiOff",
        "WebsiteOff",
        "error",
        "hold",
        "remove HTTPRoute",
        "remove Ingress",
        "want HTTPRoute",
        "want Ingress",
    ] {
        assert!(seen.get(wanted).is_some_and(|n| *n >= 10), "{wanted}: {seen:#?}");
    }
}
