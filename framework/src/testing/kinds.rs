//! The kinds that the server serves, as data: names, scope, behaviour and schema; ready-made definitions and one from
//! a CustomResourceDefinition object.

use serde_json::{Value, json};

use super::failure::Cause;
use super::schema::{
    ListKind, Schema, any, boolean, conditions, integer, list, map, object, string, whole, with_meta,
};

/// A rule over a whole object that no schema expresses (cross-field rules, CEL).
pub(crate) type ObjectCheck = fn(&Value, &mut Vec<Cause>);

/// One served version of one resource.
#[derive(Clone, Debug)]
pub struct ResourceDef {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, for example `v1`.
    pub version: String,
    /// Kind, for example `Ingress`.
    pub kind: String,
    /// Plural resource name as it stands in paths, for example `ingresses`.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether `/status` is an endpoint of its own.
    pub status_subresource: bool,
    /// The whole object's type, metadata included.
    pub schema: Schema,
    /// A kind compiled into the API server, in contrast to one from a CRD. Built-in kinds drop empty values, accept
    /// writes without resourceVersion and come without apiVersion and kind inside lists.
    pub(crate) builtin: bool,
    /// Whether `metadata.generation` is kept.
    pub(crate) generation: bool,
    /// Whether a PUT to an absent name creates.
    pub(crate) create_by_put: bool,
    /// Whether a PUT may come without resourceVersion.
    pub(crate) unconditional_update: bool,
    pub(crate) check: Option<ObjectCheck>,
}

impl ResourceDef {
    /// A custom resource as a CRD would define it: namespaced, with `/status`, undescribed `spec` and `status`
    /// except for `status.conditions`, a map list by type. Chain the other methods to change that.
    pub fn custom(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced: true,
            status_subresource: true,
            schema: whole([
                ("spec", any()),
                (
                    "status",
                    object([("conditions", list(any()).keyed(["type"]))]).open(),
                ),
            ]),
            builtin: false,
            generation: true,
            create_by_put: false,
            unconditional_update: false,
            check: None,
        }
    }

    fn builtin(group: &str, version: &str, kind: &str, plural: &str, schema: Schema) -> Self {
        Self {
            status_subresource: false,
            schema,
            builtin: true,
            generation: false,
            unconditional_update: true,
            ..Self::custom(group, version, kind, plural)
        }
    }

    /// The same kind without namespaces.
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The same kind without a status subresource.
    pub fn without_status(mut self) -> Self {
        self.status_subresource = false;
        self
    }

    /// The same kind with another type. `root` has the fields beside apiVersion, kind and metadata.
    pub fn with_schema(mut self, root: Schema) -> Self {
        self.schema = with_meta(root);
        self
    }

    /// The same kind with another list type at `path`, for example `("spec.rules", ListKind::Atomic)`.
    pub fn with_list(mut self, path: &str, kind: ListKind) -> Self {
        self.schema = self.schema.with_list(path, kind);
        self
    }

    /// The served versions of a CustomResourceDefinition object, in its order.
    pub fn from_crd(crd: &Value) -> Vec<Self> {
        let spec = &crd["spec"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        spec["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|v| v["served"] == true)
            .map(|v| {
                let openapi = &v["schema"]["openAPIV3Schema"];
                let preserve = openapi.is_null() || openapi["x-kubernetes-preserve-unknown-fields"] == true;
                let schema = with_meta(if openapi.is_null() {
                    object([]).open()
                } else if preserve {
                    Schema::from_openapi(openapi).open()
                } else {
                    Schema::from_openapi(openapi)
                });
                let mut def = Self::custom(
                    &text(&spec["group"]),
                    &text(&v["name"]),
                    &text(&spec["names"]["kind"]),
                    &text(&spec["names"]["plural"]),
                );
                def.namespaced = spec["scope"] == "Namespaced";
                def.status_subresource = !v["subresources"]["status"].is_null();
                def.schema = schema;
                if def.group == "gateway.networking.k8s.io" && def.kind == "HTTPRoute" {
                    def.check = Some(check_http_route);
                }
                def
            })
            .collect()
    }

    /// `group/version`, or only the version for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as messages name the resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `networking.k8s.io/v1` Ingress.
    pub fn ingress() -> Self {
        let backend_port = || object([("name", string()), ("number", integer())]);
        let local_ref = || object([("apiGroup", string()), ("kind", string()), ("name", string())]).atomic();
        let backend = || {
            object([
                ("service", object([("name", string()), ("port", backend_port())])),
                ("resource", local_ref()),
            ])
        };
        let path = object([("path", string()), ("pathType", string()), ("backend", backend())]);
        let rule = object([("host", string()), ("http", object([("paths", list(path))]))]);
        let tls = object([("hosts", list(string())), ("secretName", string())]);
        let port = object([("port", integer()), ("protocol", string()), ("error", string())]);
        let address = object([("ip", string()), ("hostname", string()), ("ports", list(port))]);
        let spec = object([
            ("ingressClassName", string()),
            ("defaultBackend", backend()),
            ("rules", list(rule)),
            ("tls", list(tls)),
        ]);
        let status = object([("loadBalancer", object([("ingress", list(address))]))]);
        Self {
            status_subresource: true,
            generation: true,
            check: Some(check_ingress),
            ..Self::builtin(
                "networking.k8s.io",
                "v1",
                "Ingress",
                "ingresses",
                whole([("spec", spec), ("status", status)]),
            )
        }
    }

    /// `networking.k8s.io/v1` IngressClass.
    pub fn ingress_class() -> Self {
        let parameters = object([
            ("apiGroup", string()),
            ("kind", string()),
            ("name", string()),
            ("namespace", string()),
            ("scope", string()),
        ]);
        Self {
            generation: true,
            ..Self::builtin(
                "networking.k8s.io",
                "v1",
                "IngressClass",
                "ingressclasses",
                whole([(
                    "spec",
                    object([("controller", string()), ("parameters", parameters)]),
                )]),
            )
        }
        .cluster_scoped()
    }

    /// `v1` ConfigMap.
    pub fn config_map() -> Self {
        Self::builtin(
            "",
            "v1",
            "ConfigMap",
            "configmaps",
            whole([
                ("data", map(string())),
                ("binaryData", map(string())),
                ("immutable", boolean()),
            ]),
        )
    }

    /// `v1` Secret.
    pub fn secret() -> Self {
        Self::builtin(
            "",
            "v1",
            "Secret",
            "secrets",
            whole([
                ("data", map(string())),
                ("stringData", map(string())),
                ("immutable", boolean()),
                ("type", string().or("Opaque")),
            ]),
        )
    }

    /// `v1` Service, with the parts that routes look at described and the rest open.
    pub fn service() -> Self {
        Self {
            status_subresource: true,
            ..Self::builtin(
                "",
                "v1",
                "Service",
                "services",
                whole([
                    ("spec", object([("selector", map(string()))]).open()),
                    ("status", any()),
                ]),
            )
        }
    }

    /// `v1` Namespace.
    pub fn namespace() -> Self {
        Self {
            status_subresource: true,
            ..Self::builtin(
                "",
                "v1",
                "Namespace",
                "namespaces",
                whole([
                    ("spec", object([("finalizers", list(string()))])),
                    (
                        "status",
                        object([("phase", string()), ("conditions", list(any()).keyed(["type"]))]),
                    ),
                ]),
            )
        }
        .cluster_scoped()
    }

    /// `events.k8s.io/v1` Event.
    pub fn event() -> Self {
        let reference = || {
            object([
                ("apiVersion", string()),
                ("kind", string()),
                ("name", string()),
                ("namespace", string()),
                ("uid", string()),
                ("resourceVersion", string()),
                ("fieldPath", string()),
            ])
            .atomic()
        };
        Self {
            create_by_put: true,
            ..Self::builtin(
                "events.k8s.io",
                "v1",
                "Event",
                "events",
                whole([
                    ("eventTime", string()),
                    (
                        "series",
                        object([("count", integer()), ("lastObservedTime", string())]),
                    ),
                    ("reportingController", string()),
                    ("reportingInstance", string()),
                    ("action", string()),
                    ("reason", string()),
                    ("regarding", reference()),
                    ("related", reference()),
                    ("note", string()),
                    ("type", string()),
                    ("deprecatedSource", any()),
                    ("deprecatedFirstTimestamp", string()),
                    ("deprecatedLastTimestamp", string()),
                    ("deprecatedCount", integer()),
                ]),
            )
        }
    }

    /// `coordination.k8s.io/v1` Lease.
    pub fn lease() -> Self {
        Self {
            create_by_put: true,
            unconditional_update: false,
            ..Self::builtin(
                "coordination.k8s.io",
                "v1",
                "Lease",
                "leases",
                whole([(
                    "spec",
                    object([
                        ("holderIdentity", string()),
                        ("leaseDurationSeconds", integer()),
                        ("acquireTime", string()),
                        ("renewTime", string()),
                        ("leaseTransitions", integer()),
                        ("strategy", string()),
                        ("preferredHolder", string()),
                    ]),
                )]),
            )
        }
    }

    /// `apiextensions.k8s.io/v1` CustomResourceDefinition. Objects of it make the server serve their kinds.
    pub fn crd() -> Self {
        Self {
            status_subresource: true,
            generation: true,
            unconditional_update: false,
            ..Self::builtin(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
                "customresourcedefinitions",
                whole([
                    ("spec", any()),
                    (
                        "status",
                        object([("conditions", list(any()).keyed(["type"]))]).open(),
                    ),
                ]),
            )
        }
        .cluster_scoped()
    }

    /// `gateway.networking.k8s.io/v1` HTTPRoute with the defaults of Gateway API 1.6 (standard channel).
    pub fn http_route() -> Self {
        Self {
            check: Some(check_http_route),
            ..Self::custom("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
                .with_schema(http_route_root())
        }
    }

    /// `gateway.networking.k8s.io/v1` GatewayClass.
    pub fn gateway_class() -> Self {
        Self::custom(
            "gateway.networking.k8s.io",
            "v1",
            "GatewayClass",
            "gatewayclasses",
        )
        .cluster_scoped()
        .with_schema(object([
            ("spec", any()),
            (
                "status",
                object([
                    (
                        "conditions",
                        conditions().or(json!([unknown_condition("Accepted")])),
                    ),
                    (
                        "supportedFeatures",
                        list(object([("name", string())])).keyed(["name"]),
                    ),
                ])
                .or(json!({ "conditions": [unknown_condition("Accepted")] })),
            ),
        ]))
    }

    /// `gateway.networking.k8s.io/v1` Gateway.
    pub fn gateway() -> Self {
        let kinds = object([
            ("group", string().or("gateway.networking.k8s.io")),
            ("kind", string()),
        ]);
        let listener_status = object([
            ("name", string()),
            ("attachedRoutes", integer()),
            ("supportedKinds", list(kinds)),
            ("conditions", conditions()),
        ])
        .required(["name", "attachedRoutes", "conditions"]);
        let address = object([("type", string().or("IPAddress")), ("value", string())]);
        let status = object([
            (
                "conditions",
                conditions().or(json!([
                    unknown_condition("Accepted"),
                    unknown_condition("Programmed")
                ])),
            ),
            ("listeners", list(listener_status).keyed(["name"])),
            ("addresses", list(address)),
            ("attachedListenerSets", integer()),
        ])
        .or(json!({ "conditions": [unknown_condition("Accepted"), unknown_condition("Programmed")] }));
        let namespaces = object([("from", string().or("Same")), ("selector", any())]);
        let allowed = object([
            ("namespaces", namespaces.or(json!({ "from": "Same" }))),
            ("kinds", list(any())),
        ]);
        let listener = object([
            ("name", string()),
            ("hostname", string()),
            ("port", integer()),
            ("protocol", string()),
            ("tls", any()),
            (
                "allowedRoutes",
                allowed.or(json!({ "namespaces": { "from": "Same" } })),
            ),
        ]);
        let spec = object([
            ("gatewayClassName", string()),
            ("listeners", list(listener).keyed(["name"])),
            ("addresses", list(any())),
            ("infrastructure", any()),
            ("allowedListeners", any()),
            ("tls", any()),
        ]);
        Self::custom("gateway.networking.k8s.io", "v1", "Gateway", "gateways")
            .with_schema(object([("spec", spec), ("status", status)]))
    }

    /// `gateway.networking.k8s.io/v1` ReferenceGrant.
    pub fn reference_grant() -> Self {
        Self::custom(
            "gateway.networking.k8s.io",
            "v1",
            "ReferenceGrant",
            "referencegrants",
        )
        .without_status()
        .with_schema(object([("spec", any())]))
    }
}

fn unknown_condition(kind: &str) -> Value {
    json!({
        "type": kind,
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    })
}

fn http_route_root() -> Schema {
    let gateway = "gateway.networking.k8s.io";
    let parent = || {
        object([
            ("group", string().or(gateway)),
            ("kind", string().or("Gateway")),
            ("namespace", string()),
            ("name", string()),
            ("sectionName", string()),
            ("port", integer().within(1, 65535)),
        ])
        .required(["name"])
    };
    let object_ref = || {
        [
            ("group", string().or("")),
            ("kind", string().or("Service")),
            ("name", string()),
            ("namespace", string()),
            ("port", integer().within(1, 65535)),
        ]
    };
    let header = || object([("name", string()), ("value", string())]).required(["name", "value"]);
    let header_filter = || {
        object([
            ("set", list(header()).keyed(["name"])),
            ("add", list(header()).keyed(["name"])),
            ("remove", list(string()).set()),
        ])
    };
    let rewrite_path = || {
        object([
            ("type", string().one_of(["ReplaceFullPath", "ReplacePrefixMatch"])),
            ("replaceFullPath", string()),
            ("replacePrefixMatch", string()),
        ])
        .required(["type"])
    };
    let redirect = || {
        object([
            ("scheme", string().one_of(["http", "https"])),
            ("hostname", string().checked(hostname)),
            ("path", rewrite_path()),
            ("port", integer().within(1, 65535)),
            ("statusCode", integer().or(302)),
        ])
    };
    let mirror = || {
        object([
            ("backendRef", object(object_ref()).required(["name"])),
            ("percent", integer().within(0, 100)),
            (
                "fraction",
                object([("numerator", integer()), ("denominator", integer().or(100))]),
            ),
        ])
        .required(["backendRef"])
    };
    let cors = || {
        object([
            ("allowOrigins", list(string()).set()),
            ("allowCredentials", boolean()),
            ("allowMethods", list(string()).set()),
            ("allowHeaders", list(string()).set()),
            ("exposeHeaders", list(string()).set()),
            ("maxAge", integer().or(5)),
        ])
    };
    let filter = || {
        object([
            (
                "type",
                string().one_of([
                    "RequestHeaderModifier",
                    "ResponseHeaderModifier",
                    "RequestMirror",
                    "RequestRedirect",
                    "URLRewrite",
                    "ExtensionRef",
                    "CORS",
                ]),
            ),
            ("requestHeaderModifier", header_filter()),
            ("responseHeaderModifier", header_filter()),
            ("requestMirror", mirror()),
            ("requestRedirect", redirect()),
            (
                "urlRewrite",
                object([("hostname", string().checked(hostname)), ("path", rewrite_path())]),
            ),
            (
                "extensionRef",
                object([("group", string()), ("kind", string()), ("name", string())]),
            ),
            ("cors", cors()),
        ])
        .required(["type"])
    };
    let backend = || {
        let [group, kind, name, namespace, port] = object_ref();
        object([
            group,
            kind,
            name,
            namespace,
            port,
            ("weight", integer().or(1).within(0, 1_000_000)),
            ("filters", list(filter()).len(0, 16)),
        ])
        .required(["name"])
    };
    let named_match = || {
        object([
            (
                "type",
                string().or("Exact").one_of(["Exact", "RegularExpression"]),
            ),
            ("name", string()),
            ("value", string()),
        ])
        .required(["name", "value"])
    };
    let root_path = json!({ "type": "PathPrefix", "value": "/" });
    let path = object([
        (
            "type",
            string()
                .or("PathPrefix")
                .one_of(["Exact", "PathPrefix", "RegularExpression"]),
        ),
        ("value", string().or("/")),
    ])
    .or(root_path.clone())
    .checked(absolute_path);
    let route_match = object([
        ("path", path),
        ("method", string()),
        ("headers", list(named_match()).keyed(["name"])),
        ("queryParams", list(named_match()).keyed(["name"])),
    ]);
    let rule = object([
        ("name", string()),
        (
            "matches",
            list(route_match).len(0, 64).or(json!([{ "path": root_path }])),
        ),
        ("filters", list(filter()).len(0, 16)),
        ("backendRefs", list(backend()).len(0, 16)),
        (
            "timeouts",
            object([("request", string()), ("backendRequest", string())]),
        ),
    ]);
    let spec = object([
        ("parentRefs", list(parent()).len(0, 32)),
        ("hostnames", list(string().checked(hostname)).len(0, 16)),
        (
            "rules",
            list(rule)
                .len(1, 16)
                .or(json!([{ "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }] }])),
        ),
    ]);
    let route_parent = object([
        ("parentRef", parent()),
        ("controllerName", string().checked(controller_name)),
        ("conditions", conditions().len(1, 8)),
    ])
    .required(["parentRef", "controllerName", "conditions"]);
    let status = object([("parents", list(route_parent).len(0, 32))]).required(["parents"]);
    object([("spec", spec), ("status", status)]).required(["spec"])
}

fn controller_name(value: &Value) -> Result<(), String> {
    match value.as_str() {
        Some(name) if name.contains('/') => Ok(()),
        _ => Err(
            "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\\/.+$'".into(),
        ),
    }
}

/// A lower-case DNS name, with `*.` allowed in front.
fn hostname(value: &Value) -> Result<(), String> {
    let Some(name) = value.as_str() else { return Ok(()) };
    let plain = name.strip_prefix("*.").unwrap_or(name);
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    if plain.len() <= 253 && plain.split('.').all(label) {
        Ok(())
    } else {
        Err(
            "should match '^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'"
                .into(),
        )
    }
}

fn absolute_path(value: &Value) -> Result<(), String> {
    let regular = value["type"] == "RegularExpression";
    match value["value"].as_str() {
        Some(path) if !regular && !path.starts_with('/') => Err(
            "value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']"
                .into(),
        ),
        _ => Ok(()),
    }
}

/// The cross-field rules of HTTPRoute that the Gateway API states in CEL.
fn check_http_route(route: &Value, out: &mut Vec<Cause>) {
    let parents = route["spec"]["parentRefs"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let same_target = |a: &Value, b: &Value| {
        ["group", "kind", "name", "namespace"]
            .iter()
            .all(|k| a[*k] == b[*k])
    };
    for (i, a) in parents.iter().enumerate() {
        for b in parents.iter().skip(i + 1).filter(|b| same_target(a, b)) {
            let (sa, sb) = (&a["sectionName"], &b["sectionName"]);
            if sa.is_null() != sb.is_null() {
                out.push(Cause::invalid(
                    "spec.parentRefs",
                    "Invalid value: sectionName must be specified when parentRefs includes 2 or more references to the same parent".into(),
                ));
                return;
            }
            if sa == sb && a["port"] == b["port"] {
                out.push(Cause::invalid(
                    "spec.parentRefs",
                    "Invalid value: sectionName must be unique when parentRefs includes 2 or more references to the same parent".into(),
                ));
                return;
            }
        }
    }
    for (i, rule) in route["spec"]["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        for (j, backend) in rule["backendRefs"].as_array().into_iter().flatten().enumerate() {
            if backend["kind"] == "Service" && backend["group"] == "" && backend["port"].is_null() {
                out.push(Cause::invalid(
                    &format!("spec.rules[{i}].backendRefs[{j}]"),
                    "Invalid value: Must have port for Service reference".into(),
                ));
            }
        }
    }
}

/// The rules of the Ingress strategy that a planner may break.
fn check_ingress(ingress: &Value, out: &mut Vec<Cause>) {
    let spec = &ingress["spec"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    if spec["ingressClassName"] == "" {
        out.push(Cause::invalid(
            "spec.ingressClassName",
            "Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character".into(),
        ));
    }
    let class = &ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"];
    if let (Some(old), Some(new)) = (class.as_str(), spec["ingressClassName"].as_str())
        && old != new
    {
        out.push(Cause::invalid(
            "metadata.annotations[kubernetes.io/ingress.class]",
            format!("Invalid value: {old:?}: must match `ingressClassName` when both are specified"),
        ));
    }
    let rules = spec["rules"].as_array().map_or(&[][..], Vec::as_slice);
    if rules.is_empty() && spec["defaultBackend"].is_null() {
        out.push(Cause::invalid(
            "spec",
            "Invalid value: null: either `defaultBackend` or `rules` must be specified".into(),
        ));
    }
    for (i, tls) in spec["tls"].as_array().into_iter().flatten().enumerate() {
        for (j, host) in tls["hosts"].as_array().into_iter().flatten().enumerate() {
            if let Err(detail) = hostname(host) {
                out.push(Cause::invalid(
                    &format!("spec.tls[{i}].hosts[{j}]"),
                    format!("Invalid value: {host}: {detail}"),
                ));
            }
        }
    }
    for (i, rule) in rules.iter().enumerate() {
        let host = text(&rule["host"]);
        let field = format!("spec.rules[{i}].host");
        if host.parse::<std::net::IpAddr>().is_ok() {
            out.push(Cause::invalid(
                &field,
                format!("Invalid value: {host:?}: must be a DNS name, not an IP address"),
            ));
        } else if !host.is_empty()
            && let Err(detail) = hostname(&rule["host"])
        {
            out.push(Cause::invalid(
                &field,
                format!("Invalid value: {host:?}: {detail}"),
            ));
        }
        for (j, path) in rule["http"]["paths"].as_array().into_iter().flatten().enumerate() {
            let under = format!("spec.rules[{i}].http.paths[{j}]");
            match path["pathType"].as_str() {
                None => out.push(Cause::new(
                    "FieldValueRequired",
                    &format!("{under}.pathType"),
                    "Required value: pathType must be specified".into(),
                )),
                Some("Exact" | "Prefix") if !text(&path["path"]).starts_with('/') => out.push(Cause::invalid(
                    &format!("{under}.path"),
                    format!("Invalid value: {:?}: must be an absolute path", text(&path["path"])),
                )),
                Some("Exact" | "Prefix" | "ImplementationSpecific") => {}
                Some(other) => out.push(Cause::new(
                    "FieldValueNotSupported",
                    &format!("{under}.pathType"),
                    format!(
                        "Unsupported value: {other:?}: supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\""
                    ),
                )),
            }
        }
    }
}
