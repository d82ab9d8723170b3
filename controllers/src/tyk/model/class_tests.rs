//! GatewayClass: the source's conditions, the connection, versions.

use std::collections::BTreeMap;

use super::{
    super::objects::{Event, Kind, Problem, Secret, class::ParametersRef, context::ConnectionFields},
    connection_of,
    fixtures::*,
};

fn accepted(world: &World) -> (String, String) {
    let verdict = world.0.class("tyk").unwrap();
    (
        said(&verdict.conditions, "Accepted"),
        message(&verdict.conditions, "Accepted").to_owned(),
    )
}

#[test]
fn gatewayclass_accepted_true_accepted() {
    assert_eq!(accepted(&World::new()).0, "True Accepted");
}

#[test]
fn gatewayclass_accepted_false_invalid_parameters() {
    // given everything that can be wrong with the reference or its context
    let mut none = class();
    none.parameters = None;
    let reference = |change: fn(&mut ParametersRef)| {
        let mut object = class();
        change(object.parameters.as_mut().unwrap());
        World::new().with(object)
    };
    let in_context = |change: fn(&mut super::super::objects::OperatorContext)| {
        let mut object = context();
        change(&mut object);
        World::new().with(object)
    };
    for (world, words) in [
        (World::new().with(none), "spec.parametersRef: missing"),
        (
            reference(|r| r.group = "other.io".into()),
            "group tyk.tyk.io, kind OperatorContext",
        ),
        (
            reference(|r| r.kind = "ConfigMap".into()),
            "group tyk.tyk.io, kind OperatorContext",
        ),
        (
            reference(|r| r.namespace = None),
            "spec.parametersRef.namespace: missing",
        ),
        (
            reference(|r| r.name = "nothing".into()),
            "OperatorContext infra/nothing does not exist",
        ),
        (
            in_context(|c| c.env = None),
            "neither spec.env nor spec.secretRef",
        ),
        (
            in_context(|c| {
                c.env = None;
                c.secret_ref = Some(("conn".into(), None));
            }),
            "Secret infra/conn does not exist",
        ),
        (
            in_context(|c| {
                c.problems
                    .push(Problem::new("spec.dataPlane.tags", "must be a list"))
            }),
            "spec.dataPlane.tags: must be a list",
        ),
        (
            in_context(|c| {
                c.connection_problems
                    .push(Problem::new("spec.env.url", "must not have a query"))
            }),
            "spec.env.url: must not have",
        ),
        (in_context(|c| c.env.as_mut().unwrap().auth = None), "no auth"),
        (in_context(|c| c.env.as_mut().unwrap().url = None), "no url"),
        (
            in_context(|c| c.env.as_mut().unwrap().url = Some("ftp://u:pass@x".into())),
            "url: must",
        ),
        (
            in_context(|c| c.env.as_mut().unwrap().mode = Some("both".into())),
            "ce (open-source",
        ),
        (in_context(|c| c.env.as_mut().unwrap().mode = None), "TYK_MODE"),
    ] {
        // then it is said, with the place
        let (status, message) = accepted(&world);
        assert_eq!(status, "False InvalidParameters", "{words}");
        assert!(message.contains(words), "{message}");
        assert!(!message.contains("pass"), "a secret: {message}");
    }
}

#[test]
fn a_value_of_the_secret_that_cannot_be_used_is_no_connection() {
    // given a Secret with an organisation that Tyk would replace by another value
    let mut object = context();
    object.secret_ref = Some(("conn".into(), None));
    let mut secret = Secret {
        key: key("infra", "conn"),
        type_: "Opaque".into(),
        ..Secret::default()
    };
    secret.connection.problems = vec![Problem::new("data.TYK_ORG", "holds a reference")];
    let mut world = World::new()
        .with(object)
        .with(secret.clone())
        .with(route("r", &[]));
    // then the one of env is not taken in its place
    let (status, message) = accepted(&world);
    assert_eq!(status, "False InvalidParameters");
    assert!(
        message.ends_with("Secret infra/conn: data.TYK_ORG: holds a reference"),
        "{message}"
    );
    let route = |world: &World| said(&world.parent("r").conditions, "Accepted");
    assert_eq!(route(&world), "False EnvironmentUnresolved");
    secret.connection.problems.clear();
    world.put(secret);
    assert_eq!(route(&world), "True Accepted");
}

#[test]
fn a_value_of_the_secret_beats_that_of_env() {
    // given a context with both
    let mut both = context();
    both.secret_ref = Some(("conn".into(), Some("vault".into())));
    let secret = Secret {
        key: key("vault", "conn"),
        type_: "Opaque".into(),
        connection: ConnectionFields {
            url: Some("HTTPS://Tyk.Example.COM:443/base/".into()),
            ..ConnectionFields::default()
        },
        ..Secret::default()
    };
    let world = World::new().with(both).with(secret).with(route("r", &[]));
    // then the Secret's URL counts, in one spelling, and the rest is env's
    let connection = &world.route("r").apis[0].connection;
    assert_eq!(connection.url, "https://tyk.example.com/base");
    assert_eq!(connection.org, "org");
}

#[test]
fn the_connection_changes_with_the_credential_and_shows_none() {
    let mut world = World::new().with(route("r", &[]));
    let before = world.route("r").apis[0].connection.clone();
    let mut other = context();
    other.env.as_mut().unwrap().auth = Some(super::super::objects::Fingerprint("other".into()));
    // when only the credential changes
    let changes = world.put(other);
    // then the routes are to be looked at again
    assert!(changes.routes.contains(&key("shop", "r")));
    let after = &world.route("r").apis[0].connection;
    assert_eq!((&before.url, &before.org), (&after.url, &after.org));
    assert_ne!(before.fingerprint, after.fingerprint);
}

#[test]
fn a_class_in_use_says_so_for_its_finalizer() {
    let mut world = World::new();
    assert!(world.0.class("tyk").unwrap().in_use);
    let changes = world.gone(Kind::Gateway, "infra", "edge");
    assert!(changes.classes.contains("tyk"));
    assert!(!world.0.class("tyk").unwrap().in_use);
}

#[test]
fn a_class_of_another_controller_gets_no_answer() {
    let mut other = class();
    other.controller_name = "example.org/other".into();
    let world = World::new().with(other).with(route("r", &[]));
    assert!(world.0.class("tyk").is_none());
    assert!(world.0.gateway(&key("infra", "edge")).is_none());
    assert!(world.0.route(&key("shop", "r")).is_none());
}

fn version(crds: &[(&str, Option<&str>)]) -> (String, String) {
    let mut world = World::new();
    let bundles: BTreeMap<String, Option<String>> = crds
        .iter()
        .map(|(crd, version)| ((*crd).to_owned(), version.map(Into::into)))
        .collect();
    let changes = world.0.apply(Event::Bundles(bundles));
    assert!(changes.classes.contains("tyk"));
    let verdict = world.0.class("tyk").unwrap();
    // best effort: Accepted stays
    assert_eq!(said(&verdict.conditions, "Accepted"), "True Accepted");
    (
        said(&verdict.conditions, "SupportedVersion"),
        message(&verdict.conditions, "SupportedVersion").to_owned(),
    )
}

/// A version gate that refuses valid bundles locks users out: patches and mixed leftovers are taken.
#[test]
fn row_31_any_patch_of_a_known_minor_is_accepted_and_nothing_is_refused() {
    for good in ["v1.6.3", "v1.6.0-rc.1", "v1.2.99", "1.5.0"] {
        assert_eq!(
            version(&[("gateways", Some(good))]).0,
            "True SupportedVersion",
            "{good}"
        );
    }
    for bad in [
        None,
        Some("v0.8.1"),
        Some("v2.0.0"),
        Some("v1.99.0"),
        Some("v1.6"),
        Some("x"),
        Some(""),
    ] {
        let (status, message) = version(&[("gateways", Some("v1.6.3")), ("httproutes", bad)]);
        assert_eq!(status, "False UnsupportedVersion", "{bad:?}");
        assert!(
            message.contains(&format!("httproutes: {}", bad.unwrap_or("no version"))),
            "{message}"
        );
        assert!(!message.contains("gateways:"), "{message}");
    }
    assert_eq!(version(&[]).0, "False UnsupportedVersion");
}

#[test]
fn supported_features_are_sorted() {
    let world = World::new();
    let features = &world.0.class("tyk").unwrap().supported_features;
    assert!(features.is_sorted());
    assert!(features.contains(&"HTTPRoute"));
}

#[test]
fn a_context_by_itself_is_the_connection_that_its_class_reads() {
    // given a class whose routes are written through its context
    let world = World::new().with(route("r", &["a.example.com"]));
    let by_class = (*world.route("r").apis[0].connection).clone();
    assert_eq!(connection_of(context(), None), Ok(by_class));
    // when the credential is missing, then both say the same
    let mut dead = context();
    dead.env.as_mut().unwrap().auth = None;
    let why = connection_of(dead.clone(), None).unwrap_err();
    assert!(accepted(&World::new().with(dead)).1.contains(&why), "{why}");
}
