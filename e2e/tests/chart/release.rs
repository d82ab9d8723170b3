//! A release of the chart by the real Helm, and the CRDs around it. What it should do is the scenarios' business.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use routewright_e2e::audit::Mark;
use routewright_e2e::cluster::repository;
use routewright_e2e::operator::{binary, chart};
use routewright_e2e::sh;
use routewright_e2e::{Cluster, Error, Result, Scenario, image, wait};
use serde_json::{Value, json};

/// Repository of the operator's images on the test cluster.
const REPOSITORY: &str = "routewright.test/routewright";
/// The CRDs of the product.
pub(crate) const CRDS: [&str; 3] = [
    "garagebuckets.garage.rajsingh.info",
    "garageclusters.garage.rajsingh.info",
    "garagereferencegrants.garage.rajsingh.info",
];
/// What should take some seconds, on a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// How long nothing may be written for the writes to be over.
const CALM: Duration = Duration::from_secs(2);

/// Work that blocks, beside the others.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work);
    done.await.map_err(|e| Error::other(e.to_string()))?
}

/// A release, there or not.
#[derive(Clone)]
pub(crate) struct Release {
    pub(crate) cluster: &'static Cluster,
    pub(crate) name: String,
    pub(crate) ns: String,
    chart: PathBuf,
    tag: &'static str,
}

impl Release {
    /// A release of the chart under test in a namespace that enforces the restricted Pod security standard.
    pub(crate) fn new(cluster: &'static Cluster, name: &str, ns: &str) -> Result<Self> {
        let label = "pod-security.kubernetes.io/enforce=restricted";
        cluster.kubectl(["label", "--overwrite", "namespace", ns, label])?;
        Ok(Self {
            cluster,
            name: name.to_owned(),
            ns: ns.to_owned(),
            chart: chart(),
            tag: "dev",
        })
    }

    /// The same release of another chart and image.
    pub(crate) fn of(&self, chart: &Path, tag: &'static str) -> Self {
        Self {
            chart: chart.to_owned(),
            tag,
            ..self.clone()
        }
    }

    /// Name of the Deployment and the service account.
    pub(crate) fn full(&self) -> String {
        match self.name.contains("routewright") {
            true => self.name.clone(),
            false => format!("{}-routewright", self.name),
        }
    }

    /// Name of the objects without a namespace.
    pub(crate) fn wide(&self) -> String {
        format!("{}.{}", self.full(), self.ns)
    }

    /// Arguments of Helm that say which image and values.
    fn words(&self, values: &Value) -> Result<Vec<String>> {
        let unique = format!("{}-{}.json", self.ns, self.name);
        let file = self.cluster.scratch().join(unique);
        std::fs::write(&file, values.to_string()).map_err(|e| Error::other(e.to_string()))?;
        let (tag, values) = (self.tag, file.display());
        let set = format!("image.repository={REPOSITORY},image.tag={tag},image.pullPolicy=Never");
        let words = format!("-n {} --timeout 300s --set {set} -f {values}", self.ns);
        Ok(words.split(' ').map(str::to_owned).collect())
    }

    /// `helm upgrade --install` that waits until the Pods are ready.
    pub(crate) async fn install(&self, values: Value) -> Result<()> {
        // Nothing to wait for, and nothing to load.
        if values["replicaCount"] != 0 {
            load(self.cluster, self.tag).await?;
        }
        let mut words = self.words(&values)?;
        words.push("--wait".to_owned());
        let this = self.clone();
        blocking(move || {
            let mut c = this.cluster.helm_command(["upgrade", "--install", &this.name])?;
            c.arg(&this.chart).args(words);
            sh::run(c).map(drop).map_err(|e| {
                let pods = this
                    .cluster
                    .kubectl(["-n", &this.ns, "get", "pods,events", "-o", "wide"]);
                Error::other(format!("{e}\n{}", sh::tail(&pods.unwrap_or_default(), 15)))
            })
        })
        .await
    }

    /// `helm <words>` about this release; what it prints.
    pub(crate) async fn helm(&self, words: &[&str]) -> Result<String> {
        let (mut all, this) = (
            words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(),
            self.clone(),
        );
        all.extend(["-n".to_owned(), self.ns.clone()]);
        blocking(move || this.cluster.helm(all)).await
    }

    /// `helm uninstall`, hooks included.
    pub(crate) async fn uninstall(&self) -> Result<()> {
        self.uninstall_within("300s").await
    }

    /// The same with another patience.
    pub(crate) async fn uninstall_within(&self, time: &str) -> Result<()> {
        self.helm(&["uninstall", &self.name, "--timeout", time])
            .await
            .map(drop)
    }

    /// Its user name, as the audit log has it.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.ns, self.full())
    }

    /// Every right of its account as `verb resource`, and `verb resource name` where a rule names objects. Rights that
    /// are given in several namespaces count once.
    pub(crate) fn granted(&self, namespaces: &[&str]) -> Result<BTreeSet<String>> {
        let (wide, lease) = (self.wide(), format!("{}-lease", self.full()));
        let mut roles = vec![
            vec!["get", "clusterrole", &wide],
            vec!["-n", &self.ns, "get", "role", &lease],
        ];
        // Those that not every release has.
        let (places, finalizers) = (
            format!("{}-tyk-places", self.full()),
            format!("{wide}-finalizers"),
        );
        let optional = [
            vec!["-n", &self.ns, "get", "role", &places],
            vec!["get", "clusterrole", &finalizers],
        ];
        for words in optional {
            let there = words.iter().chain(&["--ignore-not-found", "-o", "name"]);
            if !self.cluster.kubectl(there)?.trim().is_empty() {
                roles.push(words);
            }
        }
        roles.extend(namespaces.iter().map(|ns| vec!["-n", ns, "get", "role", &wide]));
        let mut all = BTreeSet::new();
        for words in roles {
            let text = self.cluster.kubectl(words.iter().chain(&["-o", "json"]))?;
            all.extend(rights(&serde_json::from_str(&text).unwrap(), ""));
        }
        Ok(all)
    }

    /// Every right that it has used since its start, in the same words. A right counts where the API server went on
    /// after asking for it: the answer is not 403. What server-side apply makes (201) needs `create` besides `patch`.
    pub(crate) fn used(&self) -> Result<BTreeSet<String>> {
        let mut used = BTreeSet::new();
        for r in self.cluster.audit()?.of_user(Mark::START, &self.user())? {
            if r.code == 403 || r.resource.starts_with('/') {
                continue;
            }
            let verbs = match (r.verb.as_str(), r.code) {
                ("apply", 201) => vec!["patch", "create"],
                ("apply", _) => vec!["patch"],
                (verb, _) => vec![verb],
            };
            for verb in verbs {
                let named = match r.resource.as_str() {
                    "customresourcedefinitions" => true,
                    "leases" => verb != "create",
                    // Of ConfigMaps, the record that a rule names.
                    "configmaps" => verb == "patch" && r.name.ends_with("-tyk-places"),
                    _ => false,
                };
                used.insert(match named {
                    true => format!("{verb} {} {}", r.resource, r.name),
                    false => format!("{verb} {}", r.resource),
                });
            }
        }
        Ok(used)
    }

    /// Requests that were refused for want of a right.
    pub(crate) fn refused(&self) -> Result<Vec<String>> {
        let all = self.cluster.audit()?.of_user(Mark::START, &self.user())?;
        Ok(all
            .iter()
            .filter(|r| r.code == 403)
            .map(|r| format!("{} {} {}", r.verb, r.resource, r.name))
            .collect())
    }

    /// Waits until it has written nothing but its lease for some seconds.
    pub(crate) async fn calm(&self) -> Result<()> {
        let log = self.cluster.audit()?;
        let writes = || -> Result<usize, String> {
            let all = log
                .of_user(Mark::START, &self.user())
                .map_err(|e| e.to_string())?;
            Ok(all
                .iter()
                .filter(|r| r.is_write() && r.resource != "leases")
                .count())
        };
        let mut seen = (usize::MAX, Instant::now());
        wait::eventually("no more writes", SOON, || {
            let now = writes();
            let answer = now.and_then(|now| {
                if now != seen.0 {
                    seen = (now, Instant::now());
                }
                match seen.1.elapsed() > CALM {
                    true => Ok(()),
                    false => Err(format!("{now} writes\n{}", self.logs())),
                }
            });
            async move { answer }
        })
        .await
    }

    /// The log of its Pods.
    pub(crate) fn logs(&self) -> String {
        let deployment = format!("deploy/{}", self.full());
        let words = ["-n", &self.ns, "logs", &deployment, "--all-pods", "--tail=20"];
        self.cluster.kubectl(words).unwrap_or_else(|e| e.to_string())
    }
}

/// Every right of a role as `verb resource` or `verb resource name`; with `group/` before the resource when `separator`
/// is not empty.
pub(crate) fn rights(role: &Value, separator: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let list =
            |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap_or_default() };
        let (groups, names) = (list("apiGroups"), list("resourceNames"));
        for (group, resource) in groups
            .iter()
            .flat_map(|g| list("resources").into_iter().map(move |r| (g, r)))
        {
            let resource = match separator {
                "" => resource,
                separator => format!("{group}{separator}{resource}"),
            };
            for verb in list("verbs") {
                match names.as_slice() {
                    [] => drop(found.insert(format!("{verb} {resource}"))),
                    names => found.extend(names.iter().map(|name| format!("{verb} {resource} {name}"))),
                }
            }
        }
    }
    found
}

/// Makes the operator's image under a tag and loads it, once.
pub(crate) async fn load(cluster: &'static Cluster, tag: &'static str) -> Result<()> {
    cluster
        .once(&format!("image {tag}"), async {
            blocking(move || {
                let archive = cluster.scratch().join(format!("operator-{tag}.tar"));
                image::of_operator(&binary()?, &format!("{REPOSITORY}:{tag}"), &archive)?;
                cluster.load(&archive)
            })
            .await
        })
        .await
}

/// A cluster as if no release had ever been: without the product's CRDs and all their objects, whoever holds them, and
/// without what a scenario that failed may have left.
///
/// On a node of the test's own only: on a cluster that somebody uses this would delete their buckets.
pub(crate) async fn without_crds(cluster: &'static Cluster) -> Result<()> {
    cluster.own_node()?;
    let wide = "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding";
    cluster.kubectl([
        "delete",
        wide,
        "-l",
        "app.kubernetes.io/name=routewright",
        "--ignore-not-found",
    ])?;
    let left = || {
        cluster
            .kubectl(["get", "crd", "-o", "name"])
            .map_err(|e| e.to_string())
    };
    let there = |left: &str| {
        CRDS.iter()
            .filter(|crd| left.contains(*crd))
            .copied()
            .collect::<Vec<_>>()
    };
    let found = there(&left().map_err(Error::other)?);
    for crd in &found {
        let template = "{range .items[*]}{.metadata.namespace} {.metadata.name}{\"\\n\"}{end}";
        let objects = cluster.kubectl(["get", crd, "-A", "-o", &format!("jsonpath={template}")])?;
        for (ns, name) in objects.lines().filter_map(|l| l.split_once(' ')) {
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            let _ = cluster.kubectl(["-n", ns, "patch", crd, name, "--type=merge", "-p", patch]);
        }
        cluster.kubectl(["delete", "crd", crd, "--wait=false", "--ignore-not-found"])?;
    }
    wait::eventually("CRDs gone", SOON, || async {
        let left = left()?;
        if there(&left).is_empty() {
            Ok(())
        } else {
            Err(left)
        }
    })
    .await
}

/// The product's CRDs for Garage as the types generate them, changed by `change`, as JSON.
pub(crate) fn crds(change: impl Fn(&mut Value)) -> Vec<Value> {
    let mut crds = of_group("garage.");
    crds.iter_mut().for_each(change);
    crds
}

/// CRDs of a group by the first part of its name.
fn of_group(prefix: &str) -> Vec<Value> {
    let mut files: Vec<_> = std::fs::read_dir(repository().join("crds/yaml"))
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .collect();
    files.sort();
    files
        .iter()
        .filter(|f| f.file_name().unwrap().to_string_lossy().starts_with(prefix))
        .map(|file| serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap())
        .collect()
}

/// The CRDs of Tyk's group.
pub(crate) fn tyk_crds() -> Vec<Value> {
    of_group("tyk.")
}

/// Installs CRDs by hand, as somebody else does, and waits until they are served.
pub(crate) fn apply_crds(s: &Scenario, crds: &[Value]) -> Result<()> {
    s.cluster
        .apply(&json!({"apiVersion": "v1", "kind": "List", "items": crds}).to_string())?;
    s.cluster.established()
}

/// The schema of the only version of a CRD.
pub(crate) fn schema(crd: &mut Value) -> &mut Value {
    crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
}
