//! A Tyk on the cluster for scenarios, conformance and benchmarks: the stand-in as a Pod, or a given Tyk Gateway with
//! Redis as one, and the objects that lead Routewright to it. Knows its REST API; asserts nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::{Cluster, blocking};
use crate::error::{Error, IoContext, Result};
use crate::net::Answer;
use crate::node::random_token;
use crate::operator;
use crate::tools::{PATIENCE, Part};
use crate::{image, sh, wait};

/// Port of the REST API.
pub const CONTROL: u16 = 8080;
/// Port of the Service for plain HTTP.
pub const HTTP: u16 = 80;
/// Port of the Service for HTTPS.
pub const HTTPS: u16 = 443;
/// Name of the Pod's Deployment, of the Service of the data plane and of the OperatorContext.
pub const NAME: &str = "tyk";
/// Organisation of everything that is made.
pub const ORG: &str = "routewright";

/// Which Tyk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The stand-in.
    Double,
    /// A gateway of Tyk: the program, and the folder `templates` of its source.
    Real {
        /// The program.
        program: PathBuf,
        /// The folder.
        templates: PathBuf,
    },
}

impl Which {
    /// The gateway that `TYK_GATEWAY_BIN` and `TYK_GATEWAY_TEMPLATES` give, if they do.
    ///
    /// # Errors
    /// [`Error::Missing`] when only one is set, a path is not there, or there is no `redis-server`.
    pub fn given() -> Result<Option<Self>> {
        let var = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let Some(program) = var("TYK_GATEWAY_BIN") else {
            return Ok(None);
        };
        let templates = var("TYK_GATEWAY_TEMPLATES").ok_or_else(|| {
            Error::Missing(
                "TYK_GATEWAY_TEMPLATES beside TYK_GATEWAY_BIN: the folder `templates` of the gateway's source"
                    .to_owned(),
            )
        })?;
        for path in [&program, &templates] {
            fs::metadata(path).at("find", path)?;
        }
        if sh::which("redis-server").is_none() {
            return Err(Error::Missing(
                "redis-server in PATH, beside the given gateway (Debian: apt-get install redis-server)"
                    .to_owned(),
            ));
        }
        Ok(Some(Self::Real { program, templates }))
    }

    /// In a few words.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Double => "the stand-in",
            Self::Real { .. } => "Tyk Gateway",
        }
    }
}

/// A Tyk that runs.
pub struct Tyk {
    cluster: &'static Cluster,
    /// Its namespace.
    pub namespace: String,
    /// Which one.
    pub which: Which,
    /// Where the data plane answers, on [`HTTP`] and [`HTTPS`].
    pub address: IpAddr,
    control: IpAddr,
    secret: String,
}

impl std::fmt::Debug for Tyk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tyk")
            .field("namespace", &self.namespace)
            .field("which", &self.which)
            .finish_non_exhaustive()
    }
}

/// The stand-in's program: `TYK_DOUBLE_BINARY`, else built by Cargo as the operator's is.
///
/// # Errors
/// When the build fails.
pub fn double() -> Result<PathBuf> {
    operator::built("TYK_DOUBLE_BINARY", "routewright-tyk-double", "tyk-double")
}

impl Tyk {
    /// Runs it in a namespace that exists, and waits until its REST API and its address are there.
    ///
    /// # Errors
    /// When an image cannot be made or it does not get ready.
    pub async fn deploy(cluster: &'static Cluster, namespace: &str, which: Which) -> Result<Self> {
        let secret = random_token()?;
        let (images, own) = (which.clone(), which.clone());
        blocking(move || load(cluster, &images)).await?;
        if matches!(which, Which::Real { .. }) {
            cluster.load_part(Part::Envoy).await?;
        }
        let mut objects = match own {
            Which::Double => of_double(namespace, &secret),
            Which::Real { .. } => of_gateway(namespace, &secret)?,
        };
        let port =
            |name: &str, port: u16, target: &str| json!({"name": name, "port": port, "targetPort": target});
        let service = |name: &str, kind: &str, ports: Value| {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
                   "spec": {"type": kind, "selector": labels(), "ports": ports}})
        };
        objects.push(service(
            NAME,
            "LoadBalancer",
            json!([port("http", HTTP, "http"), port("https", HTTPS, "https")]),
        ));
        objects.push(service(
            &format!("{NAME}-control"),
            "ClusterIP",
            json!([port("control", CONTROL, "control")]),
        ));
        cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        cluster.rollout(namespace, &format!("deploy/{NAME}")).await?;
        let tyk = Self {
            cluster,
            namespace: namespace.to_owned(),
            which,
            address: cluster.address(namespace, NAME).await?,
            control: cluster.cluster_ip(namespace, &format!("{NAME}-control")).await?,
            secret,
        };
        wait::eventually("the REST API of Tyk", PATIENCE, || async {
            match tyk.rest("GET", "/tyk/apis/oas", None).await {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(format!("{} {}", answer.status, answer.text())),
                Err(e) => Err(e.to_string()),
            }
        })
        .await?;
        Ok(tyk)
    }

    /// URL of the REST API, from inside the cluster.
    pub fn url(&self) -> String {
        format!(
            "http://{NAME}-control.{}.svc.cluster.local:{CONTROL}",
            self.namespace
        )
    }

    /// The connection Secret, the OperatorContext with connection and data plane, and a GatewayClass of this name whose
    /// controller is `controller`. Base Gateways of the conformance suite have no context of their own, so the class's
    /// must do.
    ///
    /// # Errors
    /// When the API server refuses.
    pub fn class(&self, name: &str, controller: &str) -> Result<()> {
        let ns = &self.namespace;
        let metadata = json!({"name": NAME, "namespace": ns});
        let objects = json!([
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {
                "TYK_MODE": "ce", "TYK_URL": self.url(), "TYK_AUTH": self.secret, "TYK_ORG": ORG}},
            {"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext", "metadata": metadata, "spec": {
                "secretRef": {"name": NAME}, "dataPlane": {"serviceRef": {"name": NAME}}}},
            {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name}, "spec": {
                "controllerName": controller,
                "parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext", "name": NAME, "namespace": ns}}},
        ]);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.cluster.apply(&list.to_string()).map(drop)
    }

    /// A request to the REST API, with the credential.
    ///
    /// # Errors
    /// When nothing answers.
    pub async fn rest(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let headers = [
            ("Host".to_owned(), "tyk".to_owned()),
            ("X-Tyk-Authorization".to_owned(), self.secret.clone()),
        ];
        let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        self.cluster
            .request(self.control, CONTROL, method, path, &headers, body)
            .await
    }

    /// The documents that are loaded, by id.
    ///
    /// # Errors
    /// When the answer is not a list.
    pub async fn apis(&self) -> Result<BTreeMap<String, Value>> {
        let answer = self.rest("GET", "/tyk/apis/oas", None).await?;
        let list: Vec<Value> = serde_json::from_slice(&answer.body)
            .map_err(|e| Error::other(format!("list of APIs: {} {e}", answer.status)))?;
        let id = |api: &Value| Some(api.pointer("/x-tyk-api-gateway/info/id")?.as_str()?.to_owned());
        Ok(list
            .into_iter()
            .filter_map(|api| Some((id(&api)?, api)))
            .collect())
    }

    /// A request to the data plane over plain HTTP.
    ///
    /// # Errors
    /// When nothing answers.
    pub async fn get(&self, host: &str, path: &str) -> Result<Answer> {
        self.cluster.fetch(host, self.address, HTTP, path).await
    }

    /// Waits until the data plane answers with this status and this text in it.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn answers(&self, host: &str, path: &str, status: u16, part: &str) -> Result<Answer> {
        wait::eventually(&format!("{status} under {host}{path}"), PATIENCE, || async {
            let answer = self.get(host, path).await.map_err(|e| e.to_string())?;
            if answer.status == status && answer.text().contains(part) {
                Ok(answer)
            } else {
                Err(format!("{} {}", answer.status, answer.text()))
            }
        })
        .await
    }
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "tyk"})
}

fn load(cluster: &'static Cluster, which: &Which) -> Result<()> {
    let at = |name: &str| cluster.scratch().join(name);
    match which {
        Which::Double => {
            let archive = at("tyk-double.tar");
            if !archive.exists() {
                image::of_double(&double()?, &archive)?;
            }
            cluster.load(&archive)
        }
        Which::Real { program, templates } => {
            let (gateway, redis) = (at("tyk.tar"), at("redis.tar"));
            if !gateway.exists() {
                // Half of it is what a debugger wants.
                let lean = at("tyk");
                sh::run({
                    let mut c = sh::command("strip", ["-o"]);
                    c.arg(&lean).arg(program);
                    c
                })?;
                image::Image::new(image::TYK)
                    .folder(templates, "/tyk/templates")?
                    .program(&lean, "/tyk/tyk")
                    .port(CONTROL)
                    .write(&gateway)?;
            }
            if !redis.exists() {
                let program =
                    sh::which("redis-server").unwrap_or_else(|| Path::new("redis-server").to_path_buf());
                image::Image::new(image::REDIS)
                    .program(&program, "/redis-server")
                    .write(&redis)?;
            }
            cluster.load(&gateway)?;
            cluster.load(&redis)
        }
    }
}

fn deployment(namespace: &str, containers: Value, volumes: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels()}, "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels()}, "spec": {
                "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                "securityContext": {"runAsNonRoot": true, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": containers, "volumes": volumes}}},
    })
}

fn confined() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

fn of_double(namespace: &str, secret: &str) -> Vec<Value> {
    let container = json!({
        "name": "double", "image": image::TYK_DOUBLE, "imagePullPolicy": "Never", "securityContext": confined(),
        "args": ["--listen", format!("0.0.0.0:{CONTROL}"), "--data", "0.0.0.0:8000", "--tls", "0.0.0.0:8443"],
        "env": [{"name": "TYK_DOUBLE_SECRET", "value": secret}],
        "ports": [{"name": "control", "containerPort": CONTROL}, {"name": "http", "containerPort": 8000},
                  {"name": "https", "containerPort": 8443}],
        "readinessProbe": {"httpGet": {"path": "/hello", "port": "control"}, "periodSeconds": 1},
    });
    vec![deployment(namespace, json!([container]), json!([]))]
}

/// One listener of the gateway is either plain or TLS: it is TLS here, and the other port is a byte-for-byte forward
/// into it, so that both ports have the same APIs.
fn of_gateway(namespace: &str, secret: &str) -> Result<Vec<Value>> {
    let certificate = rcgen::generate_simple_self_signed(vec!["default.tyk.test".to_owned()])
        .map_err(|e| Error::other(format!("the gateway's own certificate: {e}")))?;
    let config = json!({
        "listen_address": "0.0.0.0", "listen_port": 8443, "secret": secret,
        "template_path": "/tyk/templates", "app_path": "/apps", "use_db_app_configs": false,
        "allow_insecure_configs": true, "enable_analytics": false, "log_level": "info",
        "storage": {"type": "redis", "host": "127.0.0.1", "port": 6379},
        "policies": {"policy_source": "file", "policy_path": "/config/policies.json"},
        "security": {"private_certificate_encoding_secret": "encoding-of-the-test"},
        "enable_custom_domains": true,
        "http_server_options": {
            "enable_strict_routes": true, "enable_path_prefix_matching": true, "enable_path_suffix_matching": true,
            "use_ssl": true, "ssl_insecure_skip_verify": true,
            "certificates": [{"domain_name": "default.tyk.test", "cert_file": "/config/tls.crt", "key_file": "/config/tls.key"}],
        },
    });
    let envoy = json!({"static_resources": {
        "listeners": ([8000, CONTROL]).map(|port| json!({
            "name": port.to_string(), "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
            "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": "tyk", "cluster": "tyk"}}]}]})),
        "clusters": [{
            "name": "tyk", "connect_timeout": "2s", "type": "STATIC",
            "load_assignment": {"cluster_name": "tyk", "endpoints": [{"lb_endpoints": [{"endpoint": {
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": 8443}}}}]}]},
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": "default.tyk.test"}}}],
    }});
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let containers = json!([
        {"name": "redis", "image": image::REDIS, "imagePullPolicy": "Never", "securityContext": confined(),
         "args": ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"]},
        {"name": "gateway", "image": image::TYK, "imagePullPolicy": "Never", "securityContext": confined(),
         "args": ["--conf", "/config/tyk.json"], "workingDir": "/state",
         "env": [{"name": "TYK_GW_PIDFILELOCATION", "value": "/state/tyk.pid"}],
         "ports": [{"name": "https", "containerPort": 8443}],
         "readinessProbe": {"httpGet": {"path": "/hello", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 1},
         "volumeMounts": [mount("config", "/config"), mount("apps", "/apps"), mount("state", "/state")]},
        {"name": "plain", "image": image::ENVOY, "imagePullPolicy": "Never", "securityContext": confined(),
         "args": ["-c", "/config/envoy.json", "--concurrency", "1", "--log-level", "warn"],
         "ports": [{"name": "http", "containerPort": 8000}, {"name": "control", "containerPort": CONTROL}],
         "volumeMounts": [mount("config", "/config")]},
    ]);
    let volumes = json!([
        {"name": "config", "secret": {"secretName": "tyk-config"}},
        {"name": "apps", "emptyDir": {}}, {"name": "state", "emptyDir": {}},
    ]);
    let files = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tyk-config", "namespace": namespace},
        "stringData": {
            "tyk.json": config.to_string(), "policies.json": "{}", "envoy.json": envoy.to_string(),
            "tls.crt": certificate.cert.pem(), "tls.key": certificate.signing_key.serialize_pem(),
        },
    });
    Ok(vec![files, deployment(namespace, containers, volumes)])
}
