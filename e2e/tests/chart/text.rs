//! The chart as text: each toggle brings its rights and nothing else; wrong values are refused. No cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use routewright_e2e::cluster::{repository, switched_on};
use routewright_e2e::operator::chart;
use routewright_e2e::sh;
use routewright_e2e::tools::{Part, Tools};
use serde_json::{Value, json};

fn helm(words: &[&str]) -> Result<String, String> {
    let helm = Tools::open().unwrap().program(Part::Helm, "helm").unwrap();
    sh::run(sh::command(helm, words)).map_err(|e| e.to_string())
}

pub(crate) fn render(sets: &[&str]) -> Result<Vec<Value>, String> {
    render_of(&chart(), sets)
}

fn render_of(chart: &Path, sets: &[&str]) -> Result<Vec<Value>, String> {
    let words: Vec<&str> = sets.iter().flat_map(|s| ["--set", *s]).collect();
    render_with(chart, &words)
}

fn render_with(chart: &Path, words: &[&str]) -> Result<Vec<Value>, String> {
    let chart = chart.display().to_string();
    let text = helm(&[&["template", "routewright", &chart, "-n", "ns1"], words].concat())?;
    // A key that is there twice is an error of the parser, as it is of kustomize.
    text.split("\n---\n")
        .filter_map(|t| {
            serde_saphyr::from_str::<Option<Value>>(t)
                .map_err(|e| e.to_string())
                .transpose()
        })
        .collect()
}

/// The rendering with these values, as a file gives them.
fn render_values(values: &Value) -> Result<Vec<Value>, String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "routewright-values-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, values.to_string()).unwrap();
    let objects = render_with(&chart(), &["-f", &file.display().to_string()]);
    std::fs::remove_file(&file).unwrap();
    objects
}

/// Needed to see the hooks, which a rendering without a cluster has for Argo CD alone.
pub(crate) const HOOKS: &str = "hooksRunBy=argocd";

/// Every right of a kind of role as `verb group/resource`, with the name where a rule has one.
fn rights(objects: &[Value], kind: &str) -> BTreeSet<String> {
    let cleanup = |role: &Value| role["metadata"]["name"].as_str().unwrap().ends_with("-cleanup");
    let roles = objects.iter().filter(|o| o["kind"] == kind && !cleanup(o));
    roles.flat_map(|role| crate::release::rights(role, "/")).collect()
}

#[test]
fn each_toggle_brings_its_rights_and_nothing_else() {
    if !switched_on("each_toggle_brings_its_rights_and_nothing_else") {
        return;
    }
    // Given the rights of the chart with every controller off
    let base = rights(&render(&[]).unwrap(), "ClusterRole");
    let more = |set: &str| -> BTreeSet<String> {
        rights(&render(&[set]).unwrap(), "ClusterRole")
            .difference(&base)
            .cloned()
            .collect()
    };
    let writes: Vec<&String> = base
        .iter()
        .filter(|r| !r.starts_with("list ") && !r.starts_with("watch "))
        .collect();
    assert_eq!(
        writes,
        [
            "create events.k8s.io/events",
            "patch garage.rajsingh.info/garagebuckets/status"
        ]
    );
    // When one is switched on, then exactly its rights are added
    let of = |resource: &str, verbs: &[&str]| -> BTreeSet<String> {
        verbs.iter().map(|v| format!("{v} {resource}")).collect()
    };
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    let classes = of("networking.k8s.io/ingressclasses", &["list", "watch"]);
    let mut ingress = of("networking.k8s.io/ingresses", &all);
    ingress.extend(classes);
    assert_eq!(more("ingress.enabled=true"), ingress);
    let mut routes = of("gateway.networking.k8s.io/httproutes", &all);
    let crd = "apiextensions.k8s.io/customresourcedefinitions";
    routes.extend(["list", "watch"].map(|v| format!("{v} {crd} httproutes.gateway.networking.k8s.io")));
    assert_eq!(more("gatewayAPI.enabled=true"), routes);
    let mut buckets = BTreeSet::new();
    buckets.extend(
        [
            "get /secrets",
            "patch garage.rajsingh.info/garagebuckets",
            "patch garage.rajsingh.info/garageclusters/status",
        ]
        .map(str::to_owned),
    );
    assert_eq!(more("garageBuckets.enabled=true"), buckets);
    // Gateway API on Tyk: reads what the model is made of, writes status, and the metadata of classes and routes
    let gateway_api = |resource: &str| format!("gateway.networking.k8s.io/{resource}");
    let tyk_io = |resource: &str| format!("tyk.tyk.io/{resource}");
    let seen = ["list", "watch"];
    let mut tyk = BTreeSet::new();
    for kind in ["gatewayclasses", "gateways", "httproutes", "referencegrants"] {
        tyk.extend(of(&gateway_api(kind), &seen));
        tyk.extend(seen.map(|v| format!("{v} {crd} {kind}.gateway.networking.k8s.io")));
    }
    for kind in [
        "gatewayclasses",
        "gatewayclasses/status",
        "gateways/status",
        "httproutes",
        "httproutes/status",
    ] {
        tyk.extend(of(&gateway_api(kind), &["patch"]));
    }
    let mut definitions = of(&tyk_io("tykoasapidefinitions"), &seen);
    definitions.extend(of(&tyk_io("tykoasapidefinitions/status"), &["patch"]));
    definitions.extend(seen.map(|v| format!("{v} {crd} tykoasapidefinitions.tyk.tyk.io")));
    tyk.extend(definitions.clone());
    tyk.extend(of(&tyk_io("operatorcontexts"), &["get", "list", "watch"]));
    tyk.extend(seen.map(|v| format!("{v} {crd} operatorcontexts.tyk.tyk.io")));
    tyk.extend(of("/services", &seen));
    tyk.extend(of("discovery.k8s.io/endpointslices", &seen));
    for kind in ["/secrets", "/configmaps"] {
        tyk.extend(of(kind, &["get", "list", "watch"]));
    }
    assert_eq!(more("tyk.enabled=true"), tyk);
    // Definitions alone: the rights on their status, and nothing for Garage
    let mut alone = rights(&render(&["tyk.definitions=true"]).unwrap(), "ClusterRole");
    assert!(alone.remove("create events.k8s.io/events"));
    assert_eq!(alone, definitions);
    // And no rule has a wildcard
    let everything = render(&[
        "ingress.enabled=true",
        "gatewayAPI.enabled=true",
        "garageBuckets.enabled=true",
        "tyk.enabled=true",
    ])
    .unwrap();
    for kind in ["Role", "ClusterRole"] {
        let text = rights(&everything, kind);
        assert!(
            !text.is_empty() && !text.iter().any(|r| r.contains('*')),
            "{text:?}"
        );
    }
}

#[test]
fn watched_namespaces_are_the_only_ones_with_rights() {
    if !switched_on("watched_namespaces_are_the_only_ones_with_rights") {
        return;
    }
    let objects = render(&["ingress.enabled=true", "watchNamespaces={a,b}"]).unwrap();
    // Then cluster-wide there is only what has no namespace
    let wide = rights(&objects, "ClusterRole");
    assert!(
        wide.iter()
            .all(|r| r.contains("customresourcedefinitions") || r.contains("/namespaces")),
        "{wide:?}"
    );
    // And the rest is in these namespaces and the lease's
    let places: BTreeSet<&str> = objects
        .iter()
        .filter(|o| o["kind"] == "Role")
        .map(|o| o["metadata"]["namespace"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["a", "b", "ns1"].into());
    assert!(rights(&objects, "Role").contains("create networking.k8s.io/ingresses"));
    // And where buckets are managed, their finalizers can be taken off although a namespace has lost its Role
    let buckets = render(&["garageBuckets.enabled=true", "watchNamespaces={a,b}"]).unwrap();
    let more: Vec<&Value> = buckets
        .iter()
        .filter(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "routewright.ns1-finalizers")
        .collect();
    assert_eq!(more.len(), 1);
    assert_eq!(
        more[0]["rules"],
        json!([{"apiGroups": ["garage.rajsingh.info"], "resources": ["garagebuckets"], "verbs": ["patch"]}])
    );
    let binding = buckets
        .iter()
        .find(|o| o["kind"] == "ClusterRoleBinding" && o["metadata"]["name"] == "routewright.ns1-finalizers")
        .unwrap();
    assert_eq!(binding["roleRef"]["name"], "routewright.ns1-finalizers");
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "routewright", "namespace": "ns1"}])
    );
    assert_eq!(
        rights(&buckets, "ClusterRole")
            .difference(&wide)
            .collect::<Vec<_>>(),
        ["patch garage.rajsingh.info/garagebuckets"]
    );
    // And for all namespaces no such role is needed
    let all = render(&["garageBuckets.enabled=true"]).unwrap();
    assert!(
        !all.iter()
            .any(|o| o["metadata"]["name"] == "routewright.ns1-finalizers")
    );
}

#[test]
fn the_pod_meets_the_restricted_standard_and_is_told_its_flags() {
    if !switched_on("the_pod_meets_the_restricted_standard_and_is_told_its_flags") {
        return;
    }
    let objects = render(&["gatewayAPI.enabled=true", "metrics.port=9000"]).unwrap();
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    let env = |name: &str| {
        let all = container["env"].as_array().unwrap();
        all.iter()
            .find(|e| e["name"] == name)
            .map(|e| e["value"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(env("ENABLE_GATEWAY_API").as_deref(), Some("true"));
    assert_eq!(env("ENABLE_INGRESS").as_deref(), Some("false"));
    assert_eq!(env("METRICS_ADDR").as_deref(), Some("0.0.0.0:9000"));
    assert_eq!(container["ports"][0]["containerPort"], 9000);
}

#[test]
fn wrong_values_are_refused_by_name() {
    if !switched_on("wrong_values_are_refused_by_name") {
        return;
    }
    for (sets, word) in [
        (&["ingres.enabled=true"][..], "ingres"),
        (&["logFormat=xml"][..], "logFormat"),
        (
            &["replicaCount=2", "leaderElection.enabled=false"][..],
            "leaderElection",
        ),
        (&["watchNamespaces={Not_A_Namespace}"][..], "watchNamespaces"),
        (&["otel.endpont=http://x"][..], "endpont"),
        (
            &["guards.allowedHostnameSuffixes={*.example.com}"][..],
            "allowedHostnameSuffixes",
        ),
        (
            &["guards.allowedIngressAnnotationPrefixes={a b}"][..],
            "allowedIngressAnnotationPrefixes",
        ),
        (
            &["guards.allowedLabelPrefixes={a/b/c d}"][..],
            "allowedLabelPrefixes",
        ),
        (
            &["extraCA.secretName=a", "extraCA.configMapName=b"][..],
            "extraCA",
        ),
        (
            &["serviceMonitor.enabled=true", "metrics.service.enabled=false"][..],
            "metrics.service",
        ),
        (&["image.digest=sha256:12"][..], "digest"),
        (
            &["prometheusRule.enabled=true"][..],
            "needs serviceMonitor.enabled, or the labels of your own scraping in prometheusRule.selector",
        ),
        (
            &["podLabels.app\\.kubernetes\\.io/name=x"][..],
            "podLabels: the label app.kubernetes.io/name",
        ),
        (
            &["podLabels.routewright\\.dev/tyk=on"][..],
            "podLabels: the label routewright.dev/tyk",
        ),
        (
            &[
                "serviceMonitor.enabled=true",
                "serviceMonitor.labels.app\\.kubernetes\\.io/instance=x",
            ][..],
            "serviceMonitor.labels: the label app.kubernetes.io/instance",
        ),
        (
            &[
                "extraEnv[0].name=A",
                "extraEnv[0].value=a",
                "extraEnv[1].name=A",
                "extraEnv[1].value=b",
            ][..],
            "extraEnv: A is there twice",
        ),
        (&["hooksRunBy=kubectl"][..], "hooksRunBy"),
        (
            &["tyk.enabled=true", "watchNamespaces={a}"][..],
            "tyk.enabled needs all namespaces",
        ),
        (&["tyk.definitions=perhaps"][..], "definitions"),
        (&["tyk.controllerName=no-domain"][..], "controllerName"),
        (&["tyk.clusterId=a b"][..], "clusterId"),
    ] {
        let error = render(sets).unwrap_err();
        assert!(error.contains(word), "{sets:?}: {error}");
    }
    // And the chart is sound as it is, and with everything on
    let chart = chart().display().to_string();
    helm(&["lint", "--strict", &chart]).unwrap();
    let everything = "ingress.enabled=true,gatewayAPI.enabled=true,garageBuckets.enabled=true,tyk.enabled=true,replicaCount=2,\
        serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true,networkPolicy.enabled=true,\
        extraCA.configMapName=ca,otel.endpoint=http://collector:4317,guards.allowedHostnameSuffixes={example.org}";
    helm(&["lint", "--strict", &chart, "--set", everything]).unwrap();
}

/// `kind name` of every object that a rendering has more than another.
fn added(sets: &[&str]) -> BTreeSet<String> {
    let names = |sets: &[&str]| -> BTreeSet<String> {
        let objects = render(sets).unwrap();
        objects
            .iter()
            .map(|o| {
                format!(
                    "{} {}",
                    o["kind"].as_str().unwrap(),
                    o["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect()
    };
    names(sets).difference(&names(&[])).cloned().collect()
}

#[test]
fn what_is_optional_comes_with_its_switch() {
    if !switched_on("what_is_optional_comes_with_its_switch") {
        return;
    }
    // Given each switch, then exactly its objects are added
    for (sets, expected) in [
        (&["replicaCount=2"][..], &["PodDisruptionBudget routewright"][..]),
        (&["replicaCount=2", "podDisruptionBudget.enabled=false"], &[]),
        (&["serviceMonitor.enabled=true"], &["ServiceMonitor routewright"]),
        (
            &["prometheusRule.enabled=true", "prometheusRule.selector=job=\"x\""],
            &["PrometheusRule routewright"],
        ),
        (
            &["grafanaDashboard.enabled=true"],
            &["ConfigMap routewright-dashboard"],
        ),
        (&["networkPolicy.enabled=true"], &["NetworkPolicy routewright"]),
        (
            &["crds.tyk.enabled=true"],
            &[
                "CustomResourceDefinition operatorcontexts.tyk.tyk.io",
                "CustomResourceDefinition tykoasapidefinitions.tyk.tyk.io",
            ],
        ),
    ] {
        assert_eq!(
            added(sets),
            expected.iter().map(|e| (*e).to_owned()).collect(),
            "{sets:?}"
        );
    }
    // And what is there by default can be left out
    let objects = render(&[
        "admissionPolicy.enabled=false",
        "crds.garage.enabled=false",
        "metrics.service.enabled=false",
    ])
    .unwrap();
    let kinds: BTreeSet<&str> = objects.iter().map(|o| o["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "ClusterRole",
            "ClusterRoleBinding",
            "Deployment",
            "Role",
            "RoleBinding",
            "ServiceAccount"
        ]
        .into()
    );
}

#[test]
fn alerts_are_those_of_the_release() {
    if !switched_on("alerts_are_those_of_the_release") {
        return;
    }
    let on = [
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "prometheusRule.labels.team=web",
    ];
    let objects = render(&on).unwrap();
    let rule = objects.iter().find(|o| o["kind"] == "PrometheusRule").unwrap();
    assert_eq!(rule["metadata"]["labels"]["team"], "web");
    let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() >= 8);
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        let selectors = expression.matches('{').count();
        let own = expression
            .matches("{namespace=\"ns1\",service=\"routewright-metrics\"")
            .count();
        assert!(selectors > 0 && selectors == own, "{expression}");
        // The placeholders of the Prometheus Operator have not been taken for Helm's.
        assert!(!rule.to_string().contains("<no value>"), "{rule}");
    }
}

#[test]
fn a_crd_of_another_group_needs_its_file_and_nothing_else() {
    if !switched_on("a_crd_of_another_group_needs_its_file_and_nothing_else") {
        return;
    }
    // Given the chart with one more file
    let folder = std::env::temp_dir().join(format!("routewright-group-{}", std::process::id()));
    sh::run(sh::command(
        "cp",
        ["-r".as_ref(), chart().as_os_str(), folder.as_os_str()],
    ))
    .unwrap();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.tyk.tyk.io}\nspec: {}\n";
    std::fs::write(folder.join("files/crds/tyk.tyk.io_things.yaml"), crd).unwrap();
    let crds = |sets: &[&str]| -> BTreeSet<String> {
        let objects = render_of(&folder, sets).unwrap();
        let crds = objects.iter().filter(|o| o["kind"] == "CustomResourceDefinition");
        crds.map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let garage =
        ["buckets", "clusters", "referencegrants"].map(|k| format!("garage{k}.garage.rajsingh.info"));
    let tyk = ["operatorcontexts", "things", "tykoasapidefinitions"].map(|k| format!("{k}.tyk.tyk.io"));
    // Then each group follows its own switch
    assert_eq!(crds(&["crds.tyk.enabled=false"]), garage.into());
    assert_eq!(
        crds(&["crds.tyk.enabled=true", "crds.garage.enabled=false"]),
        tyk.into()
    );
    // And all are kept, or none
    let kept = |sets: &[&str]| -> BTreeSet<String> {
        let objects = render_of(&folder, sets).unwrap();
        let crds = objects.iter().filter(|o| o["kind"] == "CustomResourceDefinition");
        crds.map(|o| o["metadata"]["annotations"]["helm.sh/resource-policy"].to_string())
            .collect()
    };
    assert_eq!(kept(&["crds.tyk.enabled=true"]), ["\"keep\"".to_owned()].into());
    assert_eq!(
        kept(&["crds.tyk.enabled=true", "crds.keep=false"]),
        ["null".to_owned()].into()
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The environment of the container as `name=value`; what comes from elsewhere as `name<source`.
fn environment(sets: &[&str]) -> BTreeSet<String> {
    let objects = render(sets).unwrap();
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let text = |variable: &Value| match variable["value"].as_str() {
        Some(value) => format!("{}={value}", variable["name"].as_str().unwrap()),
        None => format!("{}<{}", variable["name"].as_str().unwrap(), variable["valueFrom"]),
    };
    container["env"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn settings_become_variables_and_files() {
    if !switched_on("settings_become_variables_and_files") {
        return;
    }
    let more = |sets: &[&str]| -> BTreeSet<String> {
        environment(sets).difference(&environment(&[])).cloned().collect()
    };
    // Traces: the variables of the standard, none without an endpoint
    assert!(!environment(&[]).iter().any(|v| v.starts_with("OTEL_")));
    let sets = [
        "otel.endpoint=http://c:4317",
        "otel.sampler=traceidratio",
        "otel.samplerArg=0.1",
        "otel.headersSecret.name=h",
        "otel.resourceAttributes.team=web",
        "otel.resourceAttributes.deployment\\.tier=a",
        "otel.serviceName=edge",
    ];
    assert_eq!(
        more(&sets),
        [
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317",
            "OTEL_EXPORTER_OTLP_HEADERS<{\"secretKeyRef\":{\"key\":\"headers\",\"name\":\"h\"}}",
            "OTEL_RESOURCE_ATTRIBUTES=deployment.tier=a,team=web",
            "OTEL_SERVICE_NAME=edge",
            "OTEL_TRACES_SAMPLER=traceidratio",
            "OTEL_TRACES_SAMPLER_ARG=0.1",
        ]
        .map(str::to_owned)
        .into()
    );
    // Gateway API on Tyk: what is not said is left to the program
    assert_eq!(
        more(&["tyk.enabled=true"]),
        ["ENABLE_TYK=true"].map(str::to_owned).into()
    );
    assert_eq!(
        more(&[
            "tyk.definitions=false",
            "tyk.controllerName=a.example/tyk",
            "tyk.clusterId=east"
        ]),
        [
            "ENABLE_TYK_DEFINITIONS=false",
            "TYK_CLUSTER_ID=east",
            "TYK_CONTROLLER_NAME=a.example/tyk"
        ]
        .map(str::to_owned)
        .into()
    );
    // Guards: lists with commas
    assert_eq!(
        more(&[
            "guards.allowedHostnameSuffixes={a.org,b.net}",
            "guards.allowedHTTPRouteAnnotationPrefixes={x/}",
            "guards.allowedLabelPrefixes={team/,y/}"
        ]),
        [
            "ALLOWED_HOSTNAME_SUFFIXES=a.org,b.net",
            "ALLOWED_HTTPROUTE_ANNOTATION_PREFIXES=x/",
            "ALLOWED_LABEL_PREFIXES=team/,y/"
        ]
        .map(str::to_owned)
        .into()
    );
    // A private CA: the file is where the variable says
    for (set, source) in [
        ("extraCA.secretName=ca", "secret"),
        ("extraCA.configMapName=ca", "configMap"),
    ] {
        assert_eq!(
            more(&[set]),
            ["EXTRA_CA_FILE=/etc/routewright/extra-ca/ca.crt".to_owned()].into()
        );
        let objects = render(&[set]).unwrap();
        let pod = &objects.iter().find(|o| o["kind"] == "Deployment").unwrap()["spec"]["template"]["spec"];
        assert_eq!(
            pod["containers"][0]["volumeMounts"][0]["mountPath"],
            "/etc/routewright/extra-ca"
        );
        assert_eq!(
            pod["containers"][0]["volumeMounts"][0]["name"],
            pod["volumes"][0]["name"]
        );
        assert!(pod["volumes"][0][source].is_object(), "{pod}");
    }
    // Egress follows the settings
    let ports = |sets: &[&str]| -> BTreeSet<i64> {
        let objects = render(&[&["networkPolicy.enabled=true"], sets].concat()).unwrap();
        let policy = objects.iter().find(|o| o["kind"] == "NetworkPolicy").unwrap();
        let rules = policy["spec"]["egress"].as_array().unwrap().iter();
        rules
            .flat_map(|r| r["ports"].as_array().unwrap())
            .map(|p| p["port"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(ports(&[]), [53, 443, 6443].into());
    assert_eq!(
        ports(&["garageBuckets.enabled=true", "otel.endpoint=http://c:4318/x"]),
        [53, 443, 3903, 4318, 6443].into()
    );
    assert_eq!(
        ports(&["tyk.enabled=true", "networkPolicy.tykPorts={3000}"]),
        [53, 443, 3000, 6443].into()
    );
    assert_eq!(
        ports(&["otel.endpoint=https://collector"]),
        [53, 443, 6443].into()
    );
    assert_eq!(
        ports(&["otel.endpoint=http://collector"]),
        [53, 80, 443, 6443].into()
    );
}

#[test]
fn each_clean_up_has_its_moment_and_its_rights() {
    if !switched_on("each_clean_up_has_its_moment_and_its_rights") {
        return;
    }
    // Given everything on, then each Job comes at its time with its account, and one that fails stays to be read
    let job = |sets: &[&str], name: &str| -> Option<Value> {
        let objects = render(sets).unwrap();
        let here = objects
            .iter()
            .find(|o| o["kind"] == "Job" && o["metadata"]["name"] == name);
        here.cloned()
    };
    let on = ["garageBuckets.enabled=true", "tyk.enabled=true", HOOKS];
    for (name, when, args) in [
        (
            "routewright-cleanup",
            "post-delete",
            json!(["cleanup", "--garage", "--unless-deployed=routewright"]),
        ),
        (
            "routewright-tyk-cleanup",
            "pre-delete",
            json!([
                "cleanup",
                "--tyk",
                "--stop-deployment=routewright",
                "--after-pods=app.kubernetes.io/name=routewright,app.kubernetes.io/instance=routewright,routewright.dev/tyk=true"
            ]),
        ),
    ] {
        let job = job(&on, name).unwrap();
        let annotations = &job["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], when);
        assert_eq!(
            annotations["helm.sh/hook-delete-policy"],
            "before-hook-creation,hook-succeeded"
        );
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["args"], args, "{name}");
        assert_eq!(pod["serviceAccountName"], name);
    }
    // And the Pods that the second waits for have the label
    let labels = |sets: &[&str]| {
        let objects = render(sets).unwrap();
        let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
        deployment["spec"]["template"]["metadata"]["labels"]["routewright.dev/tyk"].clone()
    };
    assert_eq!((labels(&on), labels(&[])), (json!("true"), Value::Null));
    // When the APIs are to stay, then the Job has neither a word on Tyk nor a right to read a Secret
    let keep = ["tyk.enabled=true", "tyk.keepApis=true", HOOKS];
    let kept = job(&keep, "routewright-tyk-cleanup").unwrap();
    assert_eq!(
        kept["spec"]["template"]["spec"]["containers"][0]["args"][2],
        "--keep-apis"
    );
    let rights: BTreeSet<String> = render(&keep)
        .unwrap()
        .iter()
        .filter(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "routewright.ns1-tyk-cleanup")
        .flat_map(|role| crate::release::rights(role, "/"))
        .collect();
    let expected = ["gatewayclasses", "httproutes"]
        .iter()
        .flat_map(|kind| ["list", "patch"].map(|verb| format!("{verb} gateway.networking.k8s.io/{kind}")));
    assert_eq!(rights, expected.collect());
    // With network policies there is one for its Pods, which lets them out to Tyk
    let objects = render(&[
        "tyk.enabled=true",
        "networkPolicy.enabled=true",
        "networkPolicy.tykPorts={3000}",
        HOOKS,
    ])
    .unwrap();
    let find = |kind: &str| {
        let named = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == "routewright-tyk-cleanup";
        objects.iter().find(named).unwrap()
    };
    let policy = &find("NetworkPolicy")["spec"];
    assert_eq!(
        policy["podSelector"]["matchLabels"],
        find("Job")["spec"]["template"]["metadata"]["labels"]
    );
    assert!(policy["egress"].to_string().contains("3000"), "{policy}");
    // And without the switch, or without the controller, there is none
    for sets in [
        &["tyk.enabled=true", "tyk.cleanupOnUninstall=false", HOOKS][..],
        &[HOOKS],
    ] {
        assert_eq!(job(sets, "routewright-tyk-cleanup"), None, "{sets:?}");
    }
}

#[test]
fn a_rendering_that_is_applied_has_no_hook() {
    if !switched_on("a_rendering_that_is_applied_has_no_hook") {
        return;
    }
    // Given both controllers with a clean-up on, and a rendering without a cluster, as kubectl and kustomize apply it
    let on = ["garageBuckets.enabled=true", "tyk.enabled=true"];
    let hooks = |sets: &[&str]| {
        let objects = render(sets).unwrap();
        objects
            .iter()
            .filter(|o| o["metadata"]["annotations"]["helm.sh/hook"].is_string())
            .count()
    };
    // Then it has no hook, which would run with the rest, nor its account and rights
    assert_eq!(hooks(&on), 0);
    // And with Argo CD named, which runs hooks as hooks, it has
    assert!(hooks(&[on[0], on[1], HOOKS]) > 0);
    // And the Deployment tells by labels what a clean-up would take back
    let label = |sets: &[&str], name: &str| {
        let objects = render(sets).unwrap();
        let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
        deployment["spec"]["template"]["metadata"]["labels"][name].clone()
    };
    for (set, name) in [
        (on[0], "routewright.dev/garage-buckets"),
        (on[1], "routewright.dev/tyk"),
    ] {
        assert_eq!(
            (label(&[set], name), label(&[], name)),
            (json!("true"), Value::Null)
        );
    }
}

#[test]
fn null_is_the_default_and_each_key_is_there_once() {
    if !switched_on("null_is_the_default_and_each_key_is_there_once") {
        return;
    }
    let read = |name: &str| std::fs::read_to_string(chart().join(name)).unwrap();
    // Given the defaults as templates see them, then they are those of values.yaml
    assert_eq!(
        read("files/values.yaml"),
        read("values.yaml"),
        "cp charts/routewright/values.yaml charts/routewright/files/values.yaml"
    );
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    // When every section is null, or every value, but for maps that users fill as they like
    const FREE: [&str; 4] = ["labels", "resources", "podSecurityContext", "securityContext"];
    fn nulls(value: &Value, depth: usize) -> Value {
        match value.as_object().filter(|map| depth > 0 && !map.is_empty()) {
            Some(map) => map
                .iter()
                .filter(|(key, _)| !FREE.contains(&key.as_str()))
                .map(|(key, inner)| (key.clone(), nulls(inner, depth - 1)))
                .collect(),
            None => Value::Null,
        }
    }
    let default = render(&[]).unwrap();
    for depth in 1..=4 {
        let mut values = nulls(&values, depth);
        assert_eq!(render_values(&values).unwrap(), default, "{values}");
        // And so in a release with everything on
        let on = json!({"enabled": true});
        for key in [
            "ingress",
            "gatewayAPI",
            "garageBuckets",
            "tyk",
            "serviceMonitor",
            "prometheusRule",
            "networkPolicy",
        ] {
            values[key] = on.clone();
        }
        render_values(&values).unwrap();
    }
    // When the user names a label or a variable that the chart has too, then it is there once, and the user's
    let own = json!({
        "podLabels": {"app.kubernetes.io/name": "routewright", "app.kubernetes.io/version": "9", "team": "web"},
        "serviceMonitor": {"enabled": true, "labels": {"helm.sh/chart": "x"}},
        "prometheusRule": {"enabled": true, "labels": {"helm.sh/chart": "x"}},
        "grafanaDashboard": {"enabled": true, "labels": {"helm.sh/chart": "x"}},
        "extraEnv": [{"name": "LOG_LEVEL", "value": "debug"}],
    });
    let objects = render_values(&own).unwrap();
    let find = |kind: &str| objects.iter().find(|o| o["kind"] == kind).unwrap();
    for kind in ["ServiceMonitor", "PrometheusRule", "ConfigMap"] {
        assert_eq!(find(kind)["metadata"]["labels"]["helm.sh/chart"], "x", "{kind}");
    }
    let template = &find("Deployment")["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/version"], "9");
    assert_eq!(template["metadata"]["labels"]["team"], "web");
    let levels: Vec<&Value> = template["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|variable| variable["name"] == "LOG_LEVEL")
        .map(|variable| &variable["value"])
        .collect();
    assert_eq!(levels, ["debug"]);
}

#[test]
fn a_parent_chart_switches_it_by_a_condition_and_by_null() {
    if !switched_on("a_parent_chart_switches_it_by_a_condition_and_by_null") {
        return;
    }
    // Given a chart that has this one as a part, on by a condition
    let folder = std::env::temp_dir().join(format!("routewright-parent-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("charts")).unwrap();
    let copy = folder.join("charts/routewright");
    sh::run(sh::command(
        "cp",
        ["-r".as_ref(), chart().as_os_str(), copy.as_os_str()],
    ))
    .unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let dependency = json!({"name": "routewright", "version": version, "condition": "routewright.enabled"});
    let parent =
        json!({"apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [dependency]});
    std::fs::write(folder.join("Chart.yaml"), parent.to_string()).unwrap();
    let values = json!({"global": {"a": 1}, "routewright": {"enabled": true, "ingress": {"enabled": null}, "tyk": null}});
    std::fs::write(folder.join("values.yaml"), values.to_string()).unwrap();
    // Then the condition is no unknown value, null takes the default, and off is off
    let kinds = |sets: &[&str]| render_of(&folder, sets).unwrap().len();
    assert_eq!(kinds(&[]), render(&[]).unwrap().len());
    assert_eq!(kinds(&["routewright.enabled=false"]), 0);
    helm(&["lint", &folder.display().to_string()]).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn each_half_has_no_right_of_the_other() {
    if !switched_on("each_half_has_no_right_of_the_other") {
        return;
    }
    let everything = |sets: &[&str]| -> (BTreeSet<String>, BTreeSet<String>) {
        let objects = render(sets).unwrap();
        let rights = ["ClusterRole", "Role"]
            .iter()
            .flat_map(|kind| rights(&objects, kind))
            .collect();
        let kinds = objects
            .iter()
            .map(|o| o["kind"].as_str().unwrap().to_owned())
            .collect();
        (rights, kinds)
    };
    // Given a release for Tyk alone, then it has nothing for Garage: no right, no watch of its CRDs, no policy
    let (tyk, kinds) = everything(&["tyk.enabled=true", "crds.garage.enabled=false"]);
    assert!(!tyk.iter().any(|right| right.contains("garage")), "{tyk:?}");
    assert!(
        !kinds.iter().any(|kind| kind.starts_with("ValidatingAdmission")),
        "{kinds:?}"
    );
    // And neither has one for its definitions alone, which looks at no namespace's labels either
    let (definitions, kinds) = everything(&["tyk.definitions=true", "crds.garage.enabled=false"]);
    for word in ["garage", "/namespaces"] {
        assert!(
            !definitions.iter().any(|right| right.contains(word)),
            "{definitions:?}"
        );
    }
    assert!(
        !kinds.iter().any(|kind| kind.starts_with("ValidatingAdmission")),
        "{kinds:?}"
    );
    // And the record of its Tyks is one ConfigMap by name
    let places: Vec<&String> = tyk.iter().filter(|right| right.contains("tyk-places")).collect();
    assert_eq!(places, ["patch /configmaps routewright-tyk-places"]);
    // Given one for Garage alone, then it has no right that only Tyk needs
    let garage = [
        "ingress.enabled=true",
        "gatewayAPI.enabled=true",
        "garageBuckets.enabled=true",
    ];
    let (garage, _) = everything(&garage);
    for word in [
        "tyk",
        "gateways",
        "gatewayclasses",
        "configmaps",
        "endpointslices",
        "/services",
        "list /secrets",
    ] {
        assert!(
            !garage.iter().any(|right| right.contains(word)),
            "{word}: {garage:?}"
        );
    }
    // And one switch of Garage's half beside Tyk brings its rights and its policy
    for set in [
        "ingress.enabled=true",
        "gatewayAPI.enabled=true",
        "garageBuckets.enabled=true",
    ] {
        let (both, kinds) = everything(&["tyk.enabled=true", set]);
        assert!(both.contains("list garage.rajsingh.info/garagebuckets"), "{set}");
        assert!(kinds.contains("ValidatingAdmissionPolicy"), "{set}");
    }
}

#[test]
fn leader_election_can_be_switched_off_on_a_live_release() {
    if !switched_on("leader_election_can_be_switched_off_on_a_live_release") {
        return;
    }
    let strategy = |sets: &[&str]| {
        let objects = render(sets).unwrap();
        let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
        deployment["spec"]["strategy"].clone()
    };
    // Server-side apply takes back only what it has set: a rollingUpdate that the API server put there would stay, and be
    // refused beside Recreate. Null does not help there: it was tried on an API server.
    let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
    assert_eq!(
        strategy(&[]),
        json!({"type": "RollingUpdate", "rollingUpdate": rolling})
    );
    assert_eq!(
        strategy(&["leaderElection.enabled=false"]),
        json!({"type": "Recreate"})
    );
}

#[test]
fn the_policy_is_the_releases_own() {
    if !switched_on("the_policy_is_the_releases_own") {
        return;
    }
    let policy = |sets: &[&str]| -> (Value, Value) {
        let objects = render(sets).unwrap();
        let find = |kind: &str| objects.iter().find(|o| o["kind"] == kind).unwrap().clone();
        (
            find("ValidatingAdmissionPolicy"),
            find("ValidatingAdmissionPolicyBinding"),
        )
    };
    let rules = |policy: &Value| policy["spec"]["validations"].as_array().unwrap().len();
    // Given a release with its own CRDs, then the policy has its name and what CRDs cannot see
    let (own, binding) = policy(&[]);
    assert_eq!(own["metadata"]["name"], "routewright.ns1");
    assert_eq!(binding["spec"]["policyName"], "routewright.ns1");
    assert!(binding["spec"].get("matchResources").is_none());
    assert_eq!(rules(&own), 2);
    // And with namespaces of its own it judges these alone
    let (_, narrow) = policy(&["watchNamespaces={a,b}"]);
    let selector = &narrow["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(
        selector,
        &json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]})
    );
    // And each guard is one rule more for each field; without own CRDs come all rules of exposure
    let guards = [
        "guards.allowedHostnameSuffixes={a.org}",
        "guards.allowedIngressAnnotationPrefixes={x/}",
        "guards.allowedLabelPrefixes={team/}",
    ];
    // Labels are those of an Ingress and of an HTTPRoute.
    assert_eq!(rules(&policy(&guards).0), 6);
    assert_eq!(rules(&policy(&["crds.garage.enabled=false"]).0), 14);
    // And every rule says what is wrong, and in which field
    for rule in policy(&[&guards[..], &["crds.garage.enabled=false"]].concat()).0["spec"]["validations"]
        .as_array()
        .unwrap()
    {
        let text = rule["message"]
            .as_str()
            .or(rule["messageExpression"].as_str())
            .unwrap();
        assert!(text.trim_start_matches('\'').starts_with("spec."), "{text}");
        assert_eq!(rule["reason"], "Invalid");
    }
}

/// Names of metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let names = expression.split(word).filter(|w| {
        ["routewright_", "controller_runtime_", "workqueue_"]
            .iter()
            .any(|p| w.starts_with(p))
    });
    names.map(str::to_owned).collect()
}

/// Labels that an expression selects or groups by.
fn labels(expression: &str) -> BTreeSet<String> {
    let selected = expression
        .split('{')
        .skip(1)
        .flat_map(|rest| rest.split('}').next().unwrap().split(','));
    let grouped = expression
        .split(" by (")
        .skip(1)
        .flat_map(|rest| rest.split(')').next().unwrap().split(','));
    let name = |part: &str| part.split(['=', '!', '~']).next().unwrap().trim().to_owned();
    selected
        .chain(grouped)
        .map(name)
        .filter(|name| name != "$release")
        .collect()
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_there_are() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    // Given the metrics of the reference page, histograms with what is made of them
    let page = read("docs/src/reference/metrics.md");
    let mut known = metrics(&page);
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim));
    let labels_of: BTreeMap<String, Vec<String>> = rows
        .map(|mut row| {
            let (name, labels) = (row.nth(1).unwrap(), row.next().unwrap());
            (
                name.trim_matches('`').to_owned(),
                labels.split(", ").map(str::to_owned).collect(),
            )
        })
        .collect();
    known.extend(known.clone().into_iter().map(|name| format!("{name}_bucket")));
    // When alerts and panels are read
    let alerts: Value = serde_saphyr::from_str(&read("charts/routewright/files/alerts.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("charts/routewright/files/dashboard.json")).unwrap();
    let panels = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|p| p["targets"].as_array().unwrap());
    let expressions: Vec<&str> = alerts
        .as_array()
        .unwrap()
        .iter()
        .chain(panels)
        .map(|x| x["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() > 15);
    // Then each asks for something, and all of it is known
    for expression in expressions {
        let asked = metrics(expression);
        assert!(!asked.is_empty(), "{expression}");
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "{expression}: docs/src/reference/metrics.md does not know {unknown:?}"
        );
        // By labels that these metrics have, or that scraping gives them
        let mut has: BTreeSet<String> = ["namespace", "service", "le"].map(str::to_owned).into();
        has.extend(
            asked
                .iter()
                .flat_map(|name| &labels_of[name.trim_end_matches("_bucket")])
                .cloned(),
        );
        let unknown: Vec<_> = labels(expression).difference(&has).cloned().collect();
        assert!(
            unknown.is_empty(),
            "{expression}: no metric in it has {unknown:?}"
        );
        let count = |c: char| expression.matches(c).count();
        assert!(
            count('(') == count(')') && count('{') == count('}') && count('[') == count(']'),
            "{expression}"
        );
    }
    // And every alert says what to do
    for alert in alerts.as_array().unwrap() {
        for field in ["summary", "description"] {
            assert!(
                alert["annotations"][field].as_str().is_some_and(|t| t.len() > 10),
                "{alert}"
            );
        }
        assert!(alert["labels"]["severity"].is_string(), "{alert}");
    }
}
