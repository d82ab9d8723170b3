//! GarageBuckets of the input: what the exposure controllers would make of them, by their own planner and reports.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;
use reconcile_kit::{
    Child, ChildPlan, ChildState, Children, Desired, Report, Verdict, settled::SettledChild,
};
use routewright_crds::{GROUP, GarageBucket, GarageCluster, GarageReferenceGrant};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    exposure::{
        ExposureKind,
        class::{CLASS_ANNOTATION, IngressClasses, KnownClass},
        names::child_name,
        plan::{Facts, Finding, FoundCluster, NotReady, Reach, plan, speaks},
        resolve::cluster_of,
        status,
    },
    tyk::objects::Key,
};

/// Buckets and what their exposure depends on.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    buckets: BTreeMap<Key, (GarageBucket, Value)>,
    clusters: BTreeMap<Key, Arc<GarageCluster>>,
    grants: BTreeMap<String, Vec<Arc<GarageReferenceGrant>>>,
    classes: Vec<(String, bool)>,
}

/// What was planned for a bucket.
#[derive(Debug)]
pub(super) struct Exposed {
    /// Namespace and name of the bucket.
    pub(super) key: Key,
    /// The bucket, as it was given.
    pub(super) value: Value,
    /// The Ingress or HTTPRoute that would stand.
    pub(super) child: Option<Value>,
    /// What was taken for granted, for people.
    pub(super) assumed: Vec<String>,
    /// What the input lacks, with what to add.
    pub(super) missing: Vec<String>,
    bucket: GarageBucket,
    kind: ExposureKind,
    finding: Option<Finding>,
    foreign: Option<String>,
}

impl Exposed {
    /// Namespace and name of the child.
    pub(super) fn child_key(&self) -> Key {
        Key::new(&self.key.namespace, child_name(&self.key.name))
    }

    /// Generation of the bucket.
    pub(super) fn generation(&self) -> i64 {
        self.bucket.metadata.generation.unwrap_or(1)
    }
}

impl Buckets {
    /// Takes an object of one of the kinds in; `None` if it is of none of them.
    pub(super) fn take(
        &mut self,
        api_version: &str,
        kind: &str,
        mut value: Value,
    ) -> Option<Result<String, String>> {
        if (api_version, kind) == ("networking.k8s.io/v1", "IngressClass") {
            let name = value
                .pointer("/metadata/name")
                .and_then(Value::as_str)?
                .to_owned();
            let default = value
                .pointer("/metadata/annotations/ingressclass.kubernetes.io~1is-default-class")
                .and_then(Value::as_str)
                == Some("true");
            self.classes.push((name.clone(), default));
            return Some(Ok(name));
        }
        let (GROUP, version) = api_version.split_once('/')? else {
            return None;
        };
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("namespace").or_insert_with(|| json!("default"));
        }
        let taken = match (kind, version) {
            ("GarageBucket", "v1beta1") => self.bucket(value),
            ("GarageCluster", "v1beta2") => typed::<GarageCluster>(&value).map(|(key, cluster)| {
                self.clusters.insert(key.clone(), Arc::new(cluster));
                key
            }),
            ("GarageReferenceGrant", "v1beta1") => {
                typed::<GarageReferenceGrant>(&value).map(|(key, grant)| {
                    let own = self.grants.entry(key.namespace.clone()).or_default();
                    own.retain(|known| known.name_any() != key.name);
                    own.push(Arc::new(grant));
                    key
                })
            }
            _ => return None,
        };
        Some(taken.map(|key| key.to_string()))
    }

    fn bucket(&mut self, mut value: Value) -> Result<Key, String> {
        // Owner of its child, as the cluster would make it.
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata
                .entry("uid")
                .or_insert_with(|| json!("00000000-0000-0000-0000-000000000000"));
        }
        let (key, bucket) = typed::<GarageBucket>(&value)?;
        self.buckets.insert(key.clone(), (bucket, value));
        Ok(key)
    }

    /// Plans for every bucket that asks for exposure. `routes`: HTTPRoutes that stand already.
    pub(super) fn plan(
        &self,
        namespaces: BTreeMap<String, BTreeMap<String, String>>,
        routes: BTreeMap<Key, Value>,
    ) -> Vec<Exposed> {
        let facts = Manifests {
            clusters: self.clusters.clone(),
            grants: self.grants.clone(),
            classes: self.classes.clone(),
            namespaces,
            routes,
        };
        self.buckets
            .iter()
            .filter(|(_, (bucket, _))| bucket.spec.website_exposure.is_some())
            .map(|(key, (bucket, value))| self.one(key, bucket, value, &facts))
            .collect()
    }

    fn one(&self, key: &Key, bucket: &GarageBucket, value: &Value, facts: &Manifests) -> Exposed {
        let mut bucket = bucket.clone();
        let mut assumed = Vec::new();
        let status = bucket.status.get_or_insert_default();
        if status.bucket_id.is_none() && status.global_alias.is_none() {
            let alias = bucket
                .spec
                .global_alias
                .clone()
                .filter(|alias| !alias.is_empty())
                .unwrap_or_else(|| key.name.clone());
            assumed.push(format!(
                "GarageBucket {key} has no status: taken as made by Garage with the alias {alias:?}"
            ));
            status.bucket_id = Some("0".repeat(64));
            status.global_alias = Some(alias);
        }
        let kind = if speaks(ExposureKind::HttpRoute, &bucket) {
            ExposureKind::HttpRoute
        } else {
            ExposureKind::Ingress
        };
        let (namespace, name) = cluster_of(&bucket);
        let cluster = Key::new(namespace, name);
        let mut missing = Vec::new();
        match self.clusters.get(&cluster) {
            None => missing.push(format!(
                "GarageCluster {cluster} is not in the input: add it, or its buckets are not exposed"
            )),
            Some(known) if known.status.as_ref().is_none_or(|status| status.phase.is_none()) => {
                assumed.push(format!("GarageCluster {cluster} has no status: taken as running"));
            }
            Some(_) => {}
        }
        let (mut child, mut foreign) = (None, None);
        let finding = match plan(kind, &bucket, Reach::Full, facts) {
            Ok(planned) => {
                for one in planned.children {
                    if let ChildPlan::Want(desired) = one {
                        foreign = facts.foreign(kind, &desired, &bucket);
                        child = foreign.is_none().then(|| {
                            object(
                                &desired,
                                facts.routes.get(&Key::new(&desired.namespace, &desired.name)),
                            )
                        });
                    }
                }
                match planned.verdict {
                    Verdict::Report(finding) => Some(finding),
                    Verdict::Hold(_) => None,
                }
            }
            Err(error) => {
                assumed.push(format!("GarageBucket {key}: {}", error.message));
                None
            }
        };
        Exposed {
            key: key.clone(),
            value: value.clone(),
            child,
            assumed,
            missing,
            bucket,
            kind,
            finding,
            foreign,
        }
    }

    /// What the controller would say, with the child as it would stand.
    pub(super) fn report(&self, exposed: &Exposed, live: Option<Value>) -> Option<Report> {
        let finding = exposed.finding.clone()?;
        let live = live.map(|live| self.admitted(exposed.kind, live));
        let child = live.and_then(|live| Child::from_value(live).ok()).map(Arc::new);
        let state = match &exposed.foreign {
            Some(owner) => ChildState::Foreign { owner: owner.clone() },
            None => ChildState::Created,
        };
        let settled = SettledChild {
            kind: exposed.kind.api(),
            namespace: exposed.key.namespace.clone(),
            name: child_name(&exposed.key.name),
            state,
            live: child,
        };
        Some(status::report(
            exposed.kind,
            &exposed.bucket,
            &Verdict::Report(finding),
            &Children(vec![settled]),
        ))
    }
}

impl Buckets {
    /// The object as the API server would keep it: it gives an Ingress without a class the default one.
    fn admitted(&self, kind: ExposureKind, mut live: Value) -> Value {
        let annotated = live
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(CLASS_ANNOTATION));
        let default = self.classes.iter().find(|(_, default)| *default);
        if kind == ExposureKind::Ingress
            && annotated.is_none()
            && let Some((name, _)) = default
            && let Some(spec) = live.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.entry("ingressClassName").or_insert_with(|| json!(name));
        }
        live
    }
}

/// The object that would be applied, without the operator's own labels and the owner, which the layers add. One that
/// stands already keeps its identity and age.
fn object(desired: &Desired, live: Option<&Value>) -> Value {
    let of_live = |name: &str| live.and_then(|live| live.pointer(&format!("/metadata/{name}")));
    let mut metadata = json!({"name": desired.name, "namespace": desired.namespace, "generation": 1});
    for name in ["generation", "uid", "creationTimestamp"] {
        if let (Some(fields), Some(value)) = (metadata.as_object_mut(), of_live(name)) {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(fields) = metadata.as_object_mut() {
        for (name, map) in [("labels", &desired.labels), ("annotations", &desired.annotations)] {
            if !map.is_empty() {
                fields.insert(name.to_owned(), json!(map));
            }
        }
    }
    let kind = &desired.kind;
    json!({
        "apiVersion": format!("{}/{}", kind.group, kind.version),
        "kind": kind.kind,
        "metadata": metadata,
        "spec": desired.body.get("spec"),
    })
}

/// An object of a kind with a type; errors name the field.
fn typed<K: DeserializeOwned + ResourceExt>(value: &Value) -> Result<(Key, K), String> {
    let object: K = serde_path_to_error::deserialize(value)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
    let name = object.meta().name.clone().filter(|name| !name.is_empty());
    let name = name.ok_or("metadata.name: must be set")?;
    Ok((Key::new(object.namespace().unwrap_or_default(), name), object))
}

/// What the manifests hold, as the planner asks for it.
#[derive(Debug)]
struct Manifests {
    clusters: BTreeMap<Key, Arc<GarageCluster>>,
    grants: BTreeMap<String, Vec<Arc<GarageReferenceGrant>>>,
    classes: Vec<(String, bool)>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    routes: BTreeMap<Key, Value>,
}

impl Manifests {
    /// Whose the object is that has the name already, if it is not the bucket's.
    fn foreign(&self, kind: ExposureKind, desired: &Desired, bucket: &GarageBucket) -> Option<String> {
        let live = self.child(kind, &desired.namespace, &desired.name)?;
        match live.controller() {
            Some(owner) if Some(&owner.uid) == bucket.metadata.uid.as_ref() => None,
            Some(owner) => Some(format!("{} {}", owner.kind, owner.name)),
            None => Some("nobody".to_owned()),
        }
    }
}

impl Facts for Manifests {
    fn cluster(&self, namespace: &str, name: &str) -> Result<FoundCluster, NotReady> {
        Ok(match self.clusters.get(&Key::new(namespace, name)) {
            None => FoundCluster::Missing,
            Some(cluster) => {
                let mut cluster = cluster.as_ref().clone();
                let status = cluster.status.get_or_insert_default();
                status.phase.get_or_insert_with(|| {
                    routewright_crds::cluster::GarageClusterStatus::RUNNING.to_owned()
                });
                FoundCluster::Found(Arc::new(cluster))
            }
        })
    }

    fn grants(&self, namespace: &str) -> Result<Vec<Arc<GarageReferenceGrant>>, NotReady> {
        Ok(self.grants.get(namespace).cloned().unwrap_or_default())
    }

    fn namespace_labels(&self, namespace: &str) -> Result<Option<BTreeMap<String, String>>, NotReady> {
        let known = self.namespaces.get(namespace).cloned();
        Ok(Some(known.unwrap_or_else(|| {
            [("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())].into()
        })))
    }

    fn ingress_classes(&self) -> IngressClasses {
        // Without any class in the input nothing is known about classes.
        if self.classes.is_empty() {
            return IngressClasses::Assumed;
        }
        let known = |(name, default): &(String, bool)| KnownClass {
            name: name.clone(),
            default: *default,
        };
        IngressClasses::Known(self.classes.iter().map(known).collect())
    }

    fn child(&self, kind: ExposureKind, namespace: &str, name: &str) -> Option<Arc<Child>> {
        let route =
            (kind == ExposureKind::HttpRoute).then(|| self.routes.get(&Key::new(namespace, name)))??;
        Child::from_value(route.clone()).ok().map(Arc::new)
    }

    fn refused(&self, _: ExposureKind) -> Option<String> {
        None
    }
}
