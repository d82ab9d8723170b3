//! The table of conditions and retries, row by row, and what each state of a child makes of it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::from_value;

use super::{
    super::class::KnownClass,
    super::resolve::{
        Backend, BackendPort, ClusterProblem, IngressSettings, InvalidField, Parent, RouteSettings,
    },
    *,
};

const KINDS: [ExposureKind; 2] = [ExposureKind::Ingress, ExposureKind::HttpRoute];

/// A bucket `sites/blog` that selects this kind, with this condition and status block.
fn bucket(kind: ExposureKind, condition: Value, block: Value) -> GarageBucket {
    let exposure = match kind {
        ExposureKind::Ingress => json!({ "ingress": {} }),
        ExposureKind::HttpRoute => json!({ "gateway": { "parentRefs": [{ "name": "public" }] } }),
    };
    let mut bucket = json!({
        "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
        "metadata": { "name": "blog", "namespace": "sites", "uid": "u-1" },
        "spec": { "clusterRef": { "name": "garage" }, "website": { "enabled": true }, "websiteExposure": exposure },
        "status": { "bucketId": "abc", "globalAlias": "blog", "websiteUrl": "https://blog.example.com" },
    });
    if !condition.is_null() {
        let mut condition = condition;
        condition["type"] = json!("WebsiteExposed");
        condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        bucket["status"]["conditions"] = json!([condition]);
    }
    if !block.is_null() {
        bucket["status"]["websiteExposure"] = block;
    }
    from_value(bucket).unwrap()
}

fn fresh(kind: ExposureKind) -> GarageBucket {
    bucket(kind, Value::Null, Value::Null)
}

fn exposed_bucket(kind: ExposureKind) -> GarageBucket {
    let condition = json!({ "status": "True", "reason": "Exposed", "message": format!("{} sites/blog-website", kind.as_str()) });
    bucket(
        kind,
        condition,
        json!({ "type": kind.as_str(), "name": "blog-website", "hostnames": ["blog.example.com"] }),
    )
}

fn resolved(kind: ExposureKind) -> Resolved {
    let via = match kind {
        ExposureKind::Ingress => Via::Ingress(IngressSettings {
            class: Some("nginx".into()),
            tls_secret: None,
        }),
        ExposureKind::HttpRoute => Via::HttpRoute(RouteSettings {
            parents: vec![Parent {
                group: "gateway.networking.k8s.io".into(),
                kind: "Gateway".into(),
                namespace: "sites".into(),
                name: "public".into(),
                section_name: None,
                port: None,
            }],
            rewrite_to: None,
        }),
    };
    Resolved {
        namespace: "sites".into(),
        name: "blog-website".into(),
        alias: "blog".into(),
        hostnames: vec!["blog.example.com".into()],
        backend: Backend {
            group: String::new(),
            kind: "Service".into(),
            namespace: None,
            name: "garage".into(),
            port: BackendPort::Number(3902),
        },
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        via,
    }
}

fn child(kind: ExposureKind, state: ChildState, live: Option<Value>) -> Children {
    Children(vec![SettledChild {
        kind: kind.api(),
        namespace: "sites".into(),
        name: "blog-website".into(),
        state,
        live: live.map(|live| Arc::new(Child::from_value(live).unwrap())),
    }])
}

/// A live object of generation 3 whose Gateway and load balancer are content.
fn serving() -> Value {
    let condition = |type_: &str| json!({ "type": type_, "status": "True", "observedGeneration": 3 });
    json!({
        "metadata": { "namespace": "sites", "name": "blog-website", "generation": 3 },
        "status": {
            "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] },
            "parents": [{ "parentRef": { "name": "public" }, "conditions": [condition("Accepted"), condition("ResolvedRefs")] }],
        },
    })
}

/// Condition, status block, retry in seconds and events of a report, one line each.
fn told(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    match report.conditions.as_slice() {
        _ if report.untouched => lines.push("untouched".to_owned()),
        [] if report.keep_conditions => lines.push("condition kept".to_owned()),
        [] => lines.push("condition removed".to_owned()),
        [c] => lines.push(format!("{}/{}: {}", c.status.as_str(), c.reason, c.message)),
        more => panic!("{more:?}"),
    }
    match report.fields.as_slice() {
        [] => {}
        [("websiteExposure", StatusField::Clear)] => lines.push("status cleared".to_owned()),
        [("websiteExposure", StatusField::Set(value))] => lines.push(value.to_string()),
        other => panic!("{other:?}"),
    }
    if let Some(retry) = report.outcome.retry() {
        lines.push(format!("again in {} s", retry.as_secs()));
    }
    lines.extend(report.notes.iter().map(|note| {
        format!(
            "{} {}: {}",
            if note.warning { "Warning" } else { "Normal" },
            note.reason,
            note.message
        )
    }));
    lines
}

fn found(kind: ExposureKind, bucket: &GarageBucket, finding: Finding, children: &Children) -> Vec<String> {
    told(&report(kind, bucket, &Verdict::Report(finding), children))
}

fn blocked(kind: ExposureKind, bucket: &GarageBucket, blocked: Blocked) -> Vec<String> {
    let finding = Finding::Blocked {
        blocked,
        serving: Vec::new(),
    };
    found(kind, bucket, finding, &Children::default())
}

fn standing_as(kind: ExposureKind, state: ChildState, live: Option<Value>) -> Vec<String> {
    let finding = Finding::Exposed {
        resolved: Box::new(resolved(kind)),
        classes: IngressClasses::Assumed,
        held: None,
        shared: Vec::new(),
    };
    found(kind, &fresh(kind), finding, &child(kind, state, live))
}

// ---- rows -----------------------------------------------------------------------------------------------------------

#[test]
fn row_no_bucket_yet_touches_nothing() {
    for kind in KINDS {
        assert_eq!(
            found(kind, &exposed_bucket(kind), Finding::Silent, &Children::default()),
            ["untouched"]
        );
    }
}

#[test]
fn row_unset_removes_condition_and_status() {
    let bucket = exposed_bucket(ExposureKind::Ingress);
    let removed = child(ExposureKind::Ingress, ChildState::Removed, None);
    assert_eq!(
        found(
            ExposureKind::Ingress,
            &bucket,
            Finding::Unset { leftover: None },
            &removed
        ),
        ["condition removed", "status cleared"]
    );
    let removed = child(ExposureKind::HttpRoute, ChildState::Removed, None);
    assert_eq!(
        found(
            ExposureKind::HttpRoute,
            &bucket,
            Finding::Aside { leftover: None },
            &removed
        ),
        ["untouched"],
        "the other controller removes its own kind and says nothing"
    );
}

#[test]
fn row_a_flag_is_off_or_an_api_is_not_served() {
    let held = |kind: ExposureKind, reason| {
        told(&report(
            kind,
            &exposed_bucket(kind),
            &Verdict::Hold(reason),
            &Children::default(),
        ))
    };
    let (ingress, route) = (ExposureKind::Ingress, ExposureKind::HttpRoute);
    assert_eq!(
        held(ingress, HoldReason::FeatureOff("enable-ingress")),
        [
            "False/IngressDisabled: Ingress support is switched off: start the operator with --enable-ingress (chart \
             value ingress.enabled), or use spec.websiteExposure.gateway",
            r#"{"name":"blog-website","type":"Ingress"}"#,
            "again in 300 s",
        ]
    );
    assert_eq!(
        held(route, HoldReason::FeatureOff("enable-gateway-api")),
        [
            "False/GatewayAPIUnavailable: Gateway API support is switched off: start the operator with \
             --enable-gateway-api (chart value gatewayAPI.enabled), or use spec.websiteExposure.ingress",
            r#"{"name":"blog-website","type":"HTTPRoute"}"#,
            "again in 300 s",
        ]
    );
    assert_eq!(
        held(route, HoldReason::ApiAbsent(route.api())),
        [
            "False/GatewayAPIUnavailable: the API server does not serve gateway.networking.k8s.io/v1 HTTPRoute: install \
             the Gateway API CRDs; the operator notices without a restart",
            r#"{"name":"blog-website","type":"HTTPRoute"}"#,
            "again in 300 s",
        ]
    );
    for kind in KINDS {
        assert_eq!(
            held(kind, HoldReason::ApiUnknown(kind.api())),
            ["untouched", "again in 60 s"]
        );
        assert_eq!(held(kind, HoldReason::Terminating), ["untouched"]);
    }
}

fn away(problem: ClusterProblem) -> Blocked {
    Blocked::ClusterUnavailable {
        namespace: "sites".into(),
        name: "garage".into(),
        problem,
    }
}

#[test]
fn row_the_cluster_is_away_keeps_what_stands() {
    let missing = "GarageCluster sites/garage: not found: create it or correct spec.clusterRef";
    for (problem, text) in [
        (ClusterProblem::Missing, missing),
        (
            ClusterProblem::Deleting,
            "GarageCluster sites/garage: is being deleted",
        ),
        (
            ClusterProblem::NotRunning(Some("Pending".into())),
            "GarageCluster sites/garage: status.phase is Pending: waiting for Running",
        ),
        (
            ClusterProblem::NotRunning(None),
            "GarageCluster sites/garage: status.phase is not set: waiting for Running",
        ),
        (
            ClusterProblem::NotServed,
            "GarageCluster sites/garage: the API server does not serve GarageCluster v1beta2: install its CRD",
        ),
    ] {
        for kind in KINDS {
            assert_eq!(
                blocked(kind, &exposed_bucket(kind), away(problem.clone())),
                ["condition kept", "again in 60 s"]
            );
            assert_eq!(
                blocked(kind, &fresh(kind), away(problem.clone())),
                [
                    format!("False/ReconcileFailed: {text}"),
                    "again in 60 s".to_owned()
                ]
            );
        }
    }
}

#[test]
fn row_the_cluster_is_away_does_not_keep_words_that_are_over() {
    let kind = ExposureKind::HttpRoute;
    let away = || away(ClusterProblem::Missing);
    let new = [
        "False/ReconcileFailed: GarageCluster sites/garage: not found: create it or correct spec.clusterRef",
        "again in 60 s",
    ];
    let route = json!({ "type": "HTTPRoute", "name": "blog-website" });
    for reason in [
        "GatewayAPIUnavailable",
        "IngressDisabled",
        "ReconcileFailed",
        "WaitingForAlias",
    ] {
        let old = json!({ "status": "False", "reason": reason, "message": "from before" });
        assert_eq!(
            blocked(kind, &bucket(kind, old, route.clone()), away()),
            new,
            "{reason}"
        );
    }
    let other_kind = exposed_bucket(ExposureKind::Ingress);
    assert_eq!(
        blocked(kind, &other_kind, away()),
        [new[0], r#"{"type":"HTTPRoute"}"#, new[1]],
        "that Ingress has been removed"
    );
    let not_ready =
        json!({ "status": "False", "reason": "NotReady", "message": "HTTPRoute sites/blog-website: …" });
    assert_eq!(
        blocked(kind, &bucket(kind, not_ready, route), away()),
        ["condition kept", "again in 60 s"]
    );
}

#[test]
fn row_no_alias_names_what_goes_on_being_served() {
    for kind in KINDS {
        let block = format!(r#"{{"type":"{}"}}"#, kind.as_str());
        assert_eq!(
            blocked(kind, &fresh(kind), Blocked::WaitingForAlias),
            [
                "False/WaitingForAlias: status.globalAlias holds no alias of the bucket yet: the hostnames that Garage \
                 resolves are not known",
                block.as_str(),
                "again in 60 s",
            ]
        );
        let finding = Finding::Blocked {
            blocked: Blocked::WaitingForAlias,
            serving: vec!["a.x".into(), "b.x".into()],
        };
        let told = found(kind, &exposed_bucket(kind), finding, &Children::default());
        let suffix = format!(
            "; until then {} sites/blog-website goes on serving a.x, b.x",
            kind.as_str()
        );
        assert!(told[0].ends_with(&suffix), "{told:#?}");
        let named = format!(r#"{{"name":"blog-website","type":"{}"}}"#, kind.as_str());
        assert_eq!(told[1], named);
    }
}

#[test]
fn row_a_field_that_nothing_can_be_made_of_keeps_status() {
    let invalid = Blocked::Invalid(InvalidField {
        object: "GarageBucket sites/blog".into(),
        field: "spec.websiteExposure.hostnames[0]".into(),
        reason: "is wrong: mend it".into(),
    });
    for kind in KINDS {
        assert_eq!(
            blocked(kind, &exposed_bucket(kind), invalid.clone()),
            [
                "False/ReconcileFailed: GarageBucket sites/blog: spec.websiteExposure.hostnames[0] is wrong: mend it",
                "again in 300 s",
            ]
        );
    }
    for (both, text) in [
        (true, "both ingress and gateway"),
        (false, "neither ingress nor gateway"),
    ] {
        assert_eq!(
            blocked(
                ExposureKind::Ingress,
                &fresh(ExposureKind::Ingress),
                Blocked::Ambiguous { both }
            ),
            [
                format!("False/ReconcileFailed: spec.websiteExposure sets {text}: set exactly one"),
                "again in 300 s".into()
            ]
        );
    }
}

#[test]
fn row_no_website_leaves_the_type() {
    for kind in KINDS {
        let block = format!(r#"{{"type":"{}"}}"#, kind.as_str());
        let named = format!(r#"{{"name":"blog-website","type":"{}"}}"#, kind.as_str());
        for why in [
            Blocked::WebsiteOff,
            Blocked::WebApiOff {
                namespace: "sites".into(),
                name: "garage".into(),
            },
        ] {
            let finding = |blocked| Finding::Blocked {
                blocked,
                serving: Vec::new(),
            };
            let text = format!("False/ReconcileFailed: {why}");
            let gone = child(kind, ChildState::Removed, None);
            assert_eq!(
                found(kind, &exposed_bucket(kind), finding(why.clone()), &gone),
                [text.as_str(), &block, "again in 300 s"]
            );
            let failed = child(
                kind,
                ChildState::Failed(ErrorClass::Forbidden, "delete: no right".into()),
                None,
            );
            assert_eq!(
                found(kind, &exposed_bucket(kind), finding(why), &failed),
                [
                    text.as_str(),
                    &named,
                    "again in 300 s",
                    "Warning CleanupFailed: delete: no right"
                ],
                "the name stays, so that the removal is not forgotten"
            );
        }
    }
}

#[test]
fn row_foreign_names_object_owner_and_the_way_out() {
    for kind in KINDS {
        let foreign = ChildState::Foreign {
            owner: "Deployment shop".into(),
        };
        assert_eq!(
            standing_as(kind, foreign, Some(serving())),
            [
                format!(
                    "False/ReconcileFailed: {0} sites/blog-website exists and is not this bucket's (controlled by \
                     Deployment shop), so it is left alone: delete or rename it, or, if nobody controls it, hand it over \
                     with the annotation routewright.dev/adopt set to the bucket's uid",
                    kind.as_str()
                ),
                // The name on record is never that of another owner's object.
                format!(r#"{{"type":"{}"}}"#, kind.as_str()),
                "again in 300 s".into(),
            ]
        );
    }
}

#[test]
fn row_failures_keep_status_unless_a_right_is_missing() {
    for kind in KINDS {
        for class in [
            ErrorClass::Transient,
            ErrorClass::Invalid,
            ErrorClass::Timeout,
            ErrorClass::NotFound,
        ] {
            assert_eq!(
                standing_as(kind, ChildState::Failed(class, "apply: no".into()), None),
                ["False/ReconcileFailed: apply: no"],
                "{class:?}"
            );
        }
        assert_eq!(
            standing_as(
                kind,
                ChildState::Failed(ErrorClass::Forbidden, "apply: no right".into()),
                None
            ),
            [
                "False/ReconcileFailed: apply: no right".to_owned(),
                format!(r#"{{"type":"{}"}}"#, kind.as_str()),
            ]
        );
        let panic = ReconcileError::new(ErrorClass::Panic, "the reconcile panicked");
        assert_eq!(
            told(&report_error(kind, &exposed_bucket(kind), &panic)),
            ["False/ReconcileFailed: the reconcile panicked"]
        );
    }
}

#[test]
fn a_failure_of_the_other_controller_is_an_event_and_no_condition() {
    let panic = ReconcileError::new(ErrorClass::Panic, "the reconcile panicked");
    let bucket = exposed_bucket(ExposureKind::Ingress);
    assert_eq!(
        told(&report_error(ExposureKind::HttpRoute, &bucket, &panic)),
        ["untouched", "Warning CleanupFailed: the reconcile panicked"]
    );
    let failed = child(
        ExposureKind::HttpRoute,
        ChildState::Failed(ErrorClass::Forbidden, "delete: no right".into()),
        None,
    );
    assert_eq!(
        found(
            ExposureKind::HttpRoute,
            &bucket,
            Finding::Aside { leftover: None },
            &failed
        ),
        ["untouched", "Warning CleanupFailed: delete: no right"]
    );
    for passing in [ErrorClass::Conflict, ErrorClass::NotReady] {
        let failed = child(
            ExposureKind::HttpRoute,
            ChildState::Failed(passing, "again".into()),
            None,
        );
        assert_eq!(
            found(
                ExposureKind::HttpRoute,
                &bucket,
                Finding::Aside { leftover: None },
                &failed
            ),
            ["untouched"],
            "the next look mends it"
        );
    }
}

#[test]
fn row_not_ready_tells_the_gateways_own_words() {
    let kind = ExposureKind::HttpRoute;
    let mut live = serving();
    live["status"]["parents"][0]["conditions"][0]["status"] = json!("False");
    live["status"]["parents"][0]["conditions"][0]["message"] = json!("no listener takes this host");
    assert_eq!(
        standing_as(kind, ChildState::Unchanged, Some(live)),
        [
            "False/NotReady: HTTPRoute sites/blog-website: Gateway sites/public: Accepted is False: no listener takes this \
             host",
            r#"{"hostnames":["blog.example.com"],"name":"blog-website","parents":[{"accepted":false,"message":"Accepted is False: no listener takes this host","parent":"sites/public","ready":false,"resolvedRefs":true}],"type":"HTTPRoute"}"#,
            "again in 60 s",
        ]
    );
}

#[test]
fn row_our_own_child_on_its_way_out_is_waited_for() {
    for kind in KINDS {
        let told = standing_as(kind, ChildState::Waiting, None);
        assert_eq!(
            told[0],
            format!(
                "False/NotReady: {} sites/blog-website is being deleted and held back by a finalizer: it is created anew \
                 once it is gone",
                kind.as_str()
            )
        );
        assert_eq!(told[2..], ["again in 60 s"]);
    }
}

#[test]
fn row_ok_tells_what_stands_and_looks_again_on_change_only() {
    for state in [
        ChildState::Unchanged,
        ChildState::Created,
        ChildState::Updated,
        ChildState::Contested {
            manager: "kubectl".into(),
            retry: LONG,
        },
    ] {
        assert_eq!(
            standing_as(ExposureKind::Ingress, state.clone(), Some(serving())),
            [
                "True/Exposed: Ingress sites/blog-website",
                r#"{"addresses":["192.0.2.1"],"hostnames":["blog.example.com"],"name":"blog-website","type":"Ingress"}"#,
            ]
        );
        assert_eq!(
            standing_as(ExposureKind::HttpRoute, state, Some(serving())),
            [
                "True/Exposed: HTTPRoute sites/blog-website",
                r#"{"hostnames":["blog.example.com"],"name":"blog-website","parents":[{"accepted":true,"parent":"sites/public","ready":true,"resolvedRefs":true}],"type":"HTTPRoute"}"#,
            ]
        );
    }
}

#[test]
fn an_ingress_without_a_class_to_serve_it_is_exposed_and_says_so() {
    let kind = ExposureKind::Ingress;
    let with = |known: &[&str], name: Option<&str>| {
        let known = known.iter().map(|name| KnownClass {
            name: (*name).to_owned(),
            default: false,
        });
        let mut resolved = resolved(kind);
        resolved.via = Via::Ingress(IngressSettings {
            class: name.map(str::to_owned),
            tls_secret: None,
        });
        let finding = Finding::Exposed {
            resolved: Box::new(resolved),
            classes: IngressClasses::Known(known.collect()),
            held: None,
            shared: Vec::new(),
        };
        let mut told = found(
            kind,
            &fresh(kind),
            finding,
            &child(kind, ChildState::Created, Some(serving())),
        );
        told.remove(1);
        told
    };
    assert_eq!(
        with(&["nginx"], Some("nginx")),
        ["True/Exposed: Ingress sites/blog-website"]
    );
    let text = "Ingress sites/blog-website; there is no IngressClass nginx, so no controller serves it yet";
    assert_eq!(
        with(&[], Some("nginx")),
        [
            format!("True/Exposed: {text}"),
            format!(
                "Warning IngressClassMissing: {}",
                text.replace("; there", ": there")
            ),
        ]
    );
    let told = with(&["nginx"], None);
    assert!(
        told[0].ends_with(
            "it names no class and no IngressClass is the default, so no controller serves it yet"
        )
    );
    assert!(told[1].starts_with("Warning IngressClassMissing: "));
}

#[test]
fn paused_changes_the_message_alone() {
    let kind = ExposureKind::Ingress;
    let text = "paused: remove the annotation routewright.dev/reconcile: paused from the bucket to go on";
    assert_eq!(
        blocked(kind, &exposed_bucket(kind), Blocked::Paused),
        [format!("True/Exposed: {text}")]
    );
    let failed = json!({ "status": "False", "reason": "ReconcileFailed", "message": "m" });
    assert_eq!(
        blocked(kind, &bucket(kind, failed, Value::Null), Blocked::Paused),
        [format!("False/ReconcileFailed: {text}")]
    );
    assert_eq!(blocked(kind, &fresh(kind), Blocked::Paused), ["condition kept"]);
}

/// Every reason is reachable: the tests above name each of them in its published spelling.
#[test]
fn reasons_are_spelled_as_published() {
    let all: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let published = [
        "Exposed",
        "NotReady",
        "WaitingForAlias",
        "IngressDisabled",
        "GatewayAPIUnavailable",
        "ReconcileFailed",
    ];
    assert_eq!(all, published);
    let this = include_str!("status_tests.rs");
    for reason in Reason::ALL {
        assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        assert!(this.contains(&format!("/{reason}: ")), "no row tells {reason}");
    }
}

/// What is remembered as exposed needs a name: a status block that was cut down to its type tells of a removal.
#[test]
fn only_a_named_object_is_on_record() {
    let record = |block: Value| recorded(&bucket(ExposureKind::Ingress, Value::Null, block));
    assert_eq!(
        record(json!({ "type": "Ingress", "name": "blog-website" })),
        Some(ExposureKind::Ingress)
    );
    assert_eq!(
        record(json!({ "type": "HTTPRoute", "name": "blog-website" })),
        Some(ExposureKind::HttpRoute)
    );
    assert_eq!(record(json!({ "type": "Ingress" })), None);
    assert_eq!(record(json!({ "type": "Service", "name": "blog-website" })), None);
    assert_eq!(record(Value::Null), None);
}

#[test]
fn the_contract_covers_one_condition_and_one_field() {
    assert_eq!(CONTRACT.manager, "routewright-website-exposure");
    assert_eq!(
        (CONTRACT.conditions, CONTRACT.fields),
        (&["WebsiteExposed"][..], &["websiteExposure"][..])
    );
}

#[test]
fn a_hostname_of_an_older_bucket_is_said_for_as_long_as_the_object_stands() {
    let shared = vec![Shared {
        hostname: "www.example.org".into(),
        namespace: "shop".into(),
        name: "front".into(),
    }];
    for kind in KINDS {
        let say = |state| {
            let finding = Finding::Exposed {
                resolved: Box::new(resolved(kind)),
                classes: IngressClasses::Assumed,
                held: None,
                shared: shared.clone(),
            };
            found(kind, &fresh(kind), finding, &child(kind, state, Some(serving())))
        };
        // Which one it is, is not for other namespaces to know.
        let text = "www.example.org is also exposed by an older GarageBucket of another namespace";
        // On the condition, and as a warning.
        let standing = say(ChildState::Created);
        assert!(
            standing[0].ends_with(&format!("sites/blog-website; {text}")),
            "{standing:?}"
        );
        assert!(
            standing
                .iter()
                .any(|line| line.contains("HostnameShared") && line.contains(text)),
            "{standing:?}"
        );
        // A failure has its own message.
        let failed = say(ChildState::Failed(ErrorClass::Transient, "no".into()));
        assert!(
            failed.iter().all(|line| !line.contains("also exposed")),
            "{failed:?}"
        );
    }
}

#[test]
fn hostnames_that_admission_changed_are_told_and_the_live_ones_are_shown() {
    for kind in KINDS {
        let host = "blog.example.com.stage.example";
        let mut live = serving();
        live["spec"] = match kind {
            ExposureKind::Ingress => json!({ "rules": [{ "host": host }, { "host": host }] }),
            ExposureKind::HttpRoute => json!({ "hostnames": [host] }),
        };
        let finding = Finding::Exposed {
            resolved: Box::new(resolved(kind)),
            classes: IngressClasses::Assumed,
            held: None,
            shared: Vec::new(),
        };
        let told = found(
            kind,
            &fresh(kind),
            finding,
            &child(kind, ChildState::Created, Some(live)),
        );
        assert!(
            told[0].starts_with("True/Exposed: ")
                && told[0].ends_with(&format!(
                    "; it serves {host} in place of blog.example.com: an admission webhook or policy, or another client, \
                     changes its hostnames"
                )),
            "{told:#?}"
        );
        assert!(
            told[1].contains(&format!(r#""hostnames":["{host}"]"#)),
            "{told:#?}"
        );
    }
}
