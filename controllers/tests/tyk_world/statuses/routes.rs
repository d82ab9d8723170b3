//! Rows of HTTPRoutes and of the definitions that are attached to them.

use serde_json::{Value, json};

use super::{super::world::*, At, Row, SERVED, objects::*, row};

pub(super) fn routes() -> Vec<Row> {
    fn refused(
        given: impl IntoIterator<Item = Value>,
        name: &'static str,
        says: &'static [&'static str],
        words: &'static [&'static str],
    ) -> Row {
        row(given, At::Parent(name, 0), says, words)
    }
    macro_rules! accepted_false {
        ($reason:literal) => {
            &[
                concat!("Accepted False/", $reason),
                "ResolvedRefs True/ResolvedRefs",
            ]
        };
    }
    macro_rules! unresolved {
        ($reason:literal) => {
            &[
                "Accepted True/Accepted",
                concat!("ResolvedRefs False/", $reason),
            ]
        };
    }
    let mut timeouts = route_to("r-value", "public");
    timeouts["spec"]["rules"][0]["timeouts"] = json!({"request": "5s"});
    let mut partially = route_to("r-partially", "public");
    let mut second = partially["spec"]["rules"][0].clone();
    second["matches"][0]["path"]["value"] = json!("/timed");
    second["timeouts"] = json!({"request": "5s"});
    partially["spec"]["rules"].as_array_mut().unwrap().push(second);
    let mut loser = route_to("r-winner-is-older", "public");
    loser["spec"]["hostnames"] = json!(["r-served.example.com"]);
    loser["spec"]["rules"][0]["matches"] = json!([{"path": {"type": "PathPrefix", "value": "/r-served"}}]);
    let section = |name: &str, section: &str| {
        with(
            route_to(name, "public"),
            "/spec/parentRefs/0/sectionName",
            json!(section),
        )
    };
    let mut shared = route_to("r-shared", "public");
    shared["spec"]["parentRefs"] = json!([{"name": "public"}, {"name": "second"}]);
    let mut guest = json!([http("http", 80)]);
    guest[0]["allowedRoutes"] =
        json!({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"guest": "yes"}}}});
    let mut hosts = json!([http("http", 80)]);
    hosts[0]["hostname"] = json!("only.example.org");
    let mut spoken = service("spoken");
    spoken["spec"]["ports"][0]["appProtocol"] = json!("kubernetes.io/h2c");
    let attached = |name: &'static str, document: &str| -> Vec<Value> {
        let [map, definition] = definition(name, route_target(name), document);
        vec![map, definition, route_to(name, "public")]
    };
    vec![
        refused([route_to("r-served", "public")], "r-served", &SERVED, &["1 API"]),
        refused(
            [section("r-section", "absent")],
            "r-section",
            accepted_false!("NoMatchingParent"),
            &["Gateway web/public", "sectionName absent", "http (port 80)"],
        ),
        refused(
            [
                class_by("r-unreadable", Value::Null),
                of_class(named(gateway(), "r-unreadable"), "r-unreadable"),
                route_to("r-unusable", "r-unreadable"),
            ],
            "r-unusable",
            accepted_false!("NoMatchingParent"),
            &[
                "Gateway web/r-unreadable",
                "GatewayClass r-unreadable",
                "spec.parametersRef: missing",
            ],
        ),
        refused(
            class_without_secret("r-pending").into_iter().chain([
                of_class(named(gateway(), "r-pending"), "r-pending"),
                route_to("r-environment", "r-pending"),
            ]),
            "r-environment",
            accepted_false!("EnvironmentUnresolved"),
            &[
                "connection to Tyk",
                "GatewayClass r-pending",
                "Secret web/absent does not exist",
            ],
        ),
        refused(
            [
                gateway_with("r-guests", guest),
                route_to("r-stranger", "r-guests"),
            ],
            "r-stranger",
            accepted_false!("NotAllowedByListeners"),
            &["allowedRoutes", "Gateway web/r-guests", "namespace web"],
        ),
        refused(
            [gateway_with("r-hosts", hosts), route_to("r-hostname", "r-hosts")],
            "r-hostname",
            accepted_false!("NoMatchingListenerHostname"),
            &["spec.hostnames", "Gateway web/r-hosts", "only.example.org"],
        ),
        refused(
            [timeouts],
            "r-value",
            accepted_false!("UnsupportedValue"),
            &["spec.rules[0].timeouts"],
        ),
        refused(
            [
                without_map("r-no-map", route_target("r-no-map")),
                route_to("r-no-map", "public"),
            ],
            "r-no-map",
            accepted_false!("BaseDocumentUnresolved"),
            &[
                "TykOasApiDefinition web/r-no-map",
                "spec.tykOAS.configmapRef",
                "ConfigMap web/r-no-map does not exist",
            ],
        ),
        refused(
            attached("r-bad-map", "{}"),
            "r-bad-map",
            accepted_false!("BaseDocumentInvalid"),
            &[
                "TykOasApiDefinition web/r-bad-map",
                "ConfigMap web/r-bad-map, key oas.json",
                "x-tyk-api-gateway",
            ],
        ),
        refused(
            attached("r-conflict", OAS_WITH_OUR_PATH),
            "r-conflict",
            accepted_false!("AttachmentConflict"),
            &["/(?s).*"],
        ),
        row(
            [named(gateway(), "second"), shared],
            At::Parent("r-shared", 1),
            accepted_false!("DataPlaneShared"),
            &[
                "host r-shared.example.com, path /r-shared",
                "Gateway web/public",
                "different dataPlane.tags",
            ],
        ),
        refused(
            [route_to("r-refused-by-tyk", "public")],
            "r-refused-by-tyk",
            accepted_false!("TranslationFailed"),
            &[
                "host r-refused-by-tyk.example.com, path /r-refused-by-tyk",
                "400 what Tyk says",
            ],
        ),
        refused(
            [partially],
            "r-partially",
            &[SERVED[0], SERVED[1], "PartiallyInvalid True/UnsupportedValue"],
            &["Dropped Rule 1", "spec.rules[1].timeouts"],
        ),
        refused(
            [loser],
            "r-winner-is-older",
            &[SERVED[0], SERVED[1], "PartiallyInvalid True/UnsupportedValue"],
            &[
                "Dropped Rule 0",
                "host r-served.example.com, path /r-served",
                "HTTPRoute web/r-served",
                "take another host or path",
            ],
        ),
        refused(
            [to_backend(
                "r-kind",
                json!({"group": "example.org", "kind": "Lamp", "name": "x", "port": 80}),
            )],
            "r-kind",
            unresolved!("InvalidKind"),
            &["spec.rules[0].backendRefs[0]", "kind Lamp", "use a Service"],
        ),
        refused(
            [to_backend(
                "r-denied",
                json!({"name": "backend", "namespace": "storage", "port": 80}),
            )],
            "r-denied",
            unresolved!("RefNotPermitted"),
            &[
                "spec.rules[0].backendRefs[0]",
                "no ReferenceGrant in namespace storage",
            ],
        ),
        refused(
            [to_backend("r-absent", json!({"name": "absent", "port": 80}))],
            "r-absent",
            unresolved!("BackendNotFound"),
            &[
                "spec.rules[0].backendRefs[0]",
                "Service web/absent does not exist",
            ],
        ),
        refused(
            [to_backend("r-other-port", json!({"name": "backend", "port": 81}))],
            "r-other-port",
            unresolved!("BackendNotFound"),
            &["spec.rules[0].backendRefs[0]", "Service web/backend", "port 81"],
        ),
        refused(
            [
                spoken,
                to_backend("r-spoken", json!({"name": "spoken", "port": 80})),
            ],
            "r-spoken",
            unresolved!("UnsupportedProtocol"),
            &[
                "spec.rules[0].backendRefs[0]",
                "appProtocol kubernetes.io/h2c",
                "only http",
            ],
        ),
    ]
}

pub(super) fn definitions() -> Vec<Row> {
    let served = |name: &str| route_to(name, "public");
    let bad = |name: &'static str, words, given: [Value; 2]| {
        row(
            given.into_iter().chain([route_to(name, "public")]),
            At::Definition(name),
            &["Accepted False/DocumentInvalid"],
            words,
        )
    };
    let edited = |name: &'static str, pointer: &str| -> [Value; 2] {
        let [map, mut definition] = definition(name, route_target(name), OAS);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        definition
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(key);
        [map, definition]
    };
    let [older_map, older] = definition("d-a", route_target("d-two"), OAS);
    let [younger_map, younger] = definition("d-b", route_target("d-two"), OAS);
    vec![
        row(
            definition("d-good", route_target("d-good"), OAS)
                .into_iter()
                .chain([served("d-good")]),
            At::Definition("d-good"),
            &["Accepted True/Attached"],
            &["spec.targetRefs[0]: applies to HTTPRoute web/d-good"],
        ),
        row(
            definition("d-absent", route_target("d-absent"), OAS),
            At::Definition("d-absent"),
            &["Accepted False/NotAttached"],
            &["spec.targetRefs[0]", "HTTPRoute web/d-absent does not exist"],
        ),
        row(
            [
                without_map("d-no-map", route_target("d-no-map")),
                served("d-no-map"),
            ],
            At::Definition("d-no-map"),
            &["Accepted False/BaseDocumentUnresolved"],
            &[
                "spec.tykOAS.configmapRef",
                "ConfigMap web/d-no-map does not exist",
            ],
        ),
        bad(
            "d-no-ref",
            &["spec.tykOAS.configmapRef: missing"],
            edited("d-no-ref", "/spec/tykOAS/configmapRef"),
        ),
        bad(
            "d-no-key",
            &["spec.tykOAS.configmapRef.keyName: missing"],
            edited("d-no-key", "/spec/tykOAS/configmapRef/keyName"),
        ),
        bad(
            "d-other-key",
            &[
                "spec.tykOAS.configmapRef.keyName",
                "ConfigMap web/d-other-key has no key oas.json",
            ],
            {
                let [map, definition] = definition("d-other-key", route_target("d-other-key"), OAS);
                [with(map, "/data", json!({"else": OAS})), definition]
            },
        ),
        bad(
            "d-no-extension",
            &["ConfigMap web/d-no-extension, key oas.json", "x-tyk-api-gateway"],
            definition("d-no-extension", route_target("d-no-extension"), "{}"),
        ),
        bad(
            "d-owned",
            &["ConfigMap web/d-owned, key oas.json", "listenPath"],
            definition("d-owned", route_target("d-owned"), OAS_WITH_LISTEN_PATH),
        ),
        row(
            [older_map, older, younger_map, younger, served("d-two")],
            At::Definition("d-b"),
            &["Accepted False/AttachmentConflict"],
            &[
                "spec.targetRefs[0]",
                "HTTPRoute web/d-two",
                "TykOasApiDefinition web/d-a",
                "the oldest",
            ],
        ),
        row(
            definition(
                "d-kind",
                json!({"group": "", "kind": "Service", "name": "backend"}),
                OAS,
            ),
            At::Definition("d-kind"),
            &["Accepted False/UnsupportedTarget"],
            &["spec.targetRefs[0]", "kind Service", "use HTTPRoute or Gateway"],
        ),
    ]
}
