//! The decision: what should expose a bucket's website, or why nothing can.
//!
//! [`resolve`] is the one entry. It looks at a bucket, its cluster and the grants between them, never at flags, served
//! APIs or the live Ingress or HTTPRoute: what may be done about the decision is planned elsewhere.

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use routewright_crds::{
    BackendReference, GarageBucket, GarageCluster, GarageReferenceGrant, GatewayExposure, IngressExposure,
    WebsiteExposure,
};
use serde_json::{Map, Value, json};

use crate::garage::bucket::is_reservation;

use super::{
    ExposureKind,
    class::CLASS_ANNOTATION,
    cluster::{self, PortProblem, Shape, Unavailable, WEB_PORT_NAME},
    grant::{self, Denied, Reference},
    hostname::{self, HostnameProblem, Hostnames, HostnamesProblem, ListProblem, MAX_HOSTNAMES},
    httproute::httproute,
    ingress::ingress,
    lookup::Unseen,
    names::{BUCKET_LABEL, MAX_NAME, child_name, is_label_value, is_metadata_key, is_subdomain, label_value},
    tenancy::Guards,
};

/// Annotation on a bucket that stops every write for its exposure when it is [`RECONCILE_PAUSED`].
pub const RECONCILE_ANNOTATION: &str = "routewright.dev/reconcile";

/// Value of [`RECONCILE_ANNOTATION`] that pauses.
pub const RECONCILE_PAUSED: &str = "paused";

/// Most parents of an HTTPRoute.
const MAX_PARENTS: usize = 32;

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Everything that the decision depends on.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The bucket.
    pub bucket: &'a GarageBucket,
    /// The cluster that the bucket refers to ([`cluster_of`]).
    pub cluster: ClusterLookup<'a>,
    /// Grants of the cluster's namespace; others are ignored. Not read when both are in one namespace.
    pub grants: Vec<&'a GarageReferenceGrant>,
    /// Why some grants there cannot be seen, if so.
    pub unseen_grants: Option<Unseen>,
    /// Labels of the bucket's namespace, needed only if [`needs_namespace_labels`]. `None`: not found.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// What this installation lets its tenants ask for.
    pub guards: &'a Guards,
}

/// The result of looking for the cluster.
#[derive(Clone, Copy, Debug)]
pub enum ClusterLookup<'a> {
    /// The kind GarageCluster is not served.
    NotServed,
    /// There is no such cluster.
    Missing,
    /// It may exist, and cannot be seen.
    Unseen(&'a Unseen),
    /// This one.
    Found(&'a GarageCluster),
}

impl<'a> From<Option<&'a GarageCluster>> for ClusterLookup<'a> {
    fn from(found: Option<&'a GarageCluster>) -> Self {
        found.map_or(Self::Missing, Self::Found)
    }
}

/// What a bucket asks for, by its spec alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// No exposure.
    Unset,
    /// One kind.
    Kind(ExposureKind),
    /// Both kinds: admission refuses it, an older schema does not.
    Both,
    /// An exposure without a kind: admission refuses it, an older schema does not.
    Neither,
}

/// What the bucket asks for. Cheap.
pub fn selection(bucket: &GarageBucket) -> Selection {
    match &bucket.spec.website_exposure {
        None => Selection::Unset,
        Some(exposure) => match (&exposure.ingress, &exposure.gateway) {
            (Some(_), None) => Selection::Kind(ExposureKind::Ingress),
            (None, Some(_)) => Selection::Kind(ExposureKind::HttpRoute),
            (Some(_), Some(_)) => Selection::Both,
            (None, None) => Selection::Neither,
        },
    }
}

/// Namespace and name of the cluster that the bucket refers to.
pub fn cluster_of(bucket: &GarageBucket) -> (&str, &str) {
    let reference = &bucket.spec.cluster_ref;
    (
        text(&reference.namespace).unwrap_or_else(|| namespace_of(&bucket.metadata)),
        &reference.name,
    )
}

/// Whether the decision depends on the labels of the bucket's namespace.
pub fn needs_namespace_labels(bucket: &GarageBucket, grants: &[&GarageReferenceGrant]) -> bool {
    grant::depends_on_labels(reference(bucket), grants.iter().copied())
}

/// What exposes the website: enough to write the object down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Namespace of the bucket and of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Global alias of the bucket.
    pub alias: String,
    /// Hostnames, at least one, in the order of the spec.
    pub hostnames: Vec<String>,
    /// Where traffic goes.
    pub backend: Backend,
    /// Labels of the object: the user's and the bucket's name.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the object: the user's.
    pub annotations: BTreeMap<String, String>,
    /// What is particular to the kind.
    pub via: Via,
}

/// What is particular to the kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// An Ingress.
    Ingress(IngressSettings),
    /// An HTTPRoute.
    HttpRoute(RouteSettings),
}

/// Settings of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressSettings {
    /// Class; the cluster's default one when `None`.
    pub class: Option<String>,
    /// Secret with the certificate for all hostnames.
    pub tls_secret: Option<String>,
}

/// Settings of an HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSettings {
    /// Parents, at least one.
    pub parents: Vec<Parent>,
    /// The canonical host, if the Host must be rewritten to it because some hostname does not resolve by itself.
    pub rewrite_to: Option<String>,
}

/// A parent of an HTTPRoute with every default filled in: the key of an entry in `status.parents`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Listener.
    pub section_name: Option<String>,
    /// Port.
    pub port: Option<u16>,
}

/// Where traffic goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, only if it is not the bucket's.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Port.
    pub port: BackendPort,
}

/// Port of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendPort {
    /// By name. Only for an Ingress.
    Name(&'static str),
    /// By number.
    Number(u16),
}

impl Resolved {
    /// Kind of the object.
    pub fn kind(&self) -> ExposureKind {
        match self.via {
            Via::Ingress(_) => ExposureKind::Ingress,
            Via::HttpRoute(_) => ExposureKind::HttpRoute,
        }
    }

    /// Body of the object, without ownerReferences and the operator's own labels.
    pub fn body(&self) -> Value {
        match &self.via {
            Via::Ingress(settings) => ingress(self, settings),
            Via::HttpRoute(settings) => httproute(self, settings),
        }
    }
}

impl fmt::Display for Resolved {
    /// `Ingress ns/name` or `HTTPRoute ns/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind().as_str(), self.namespace, self.name)
    }
}

/// Metadata of a body. No empty maps: the API server would take them for a change each time.
pub(super) fn metadata(resolved: &Resolved) -> Value {
    let mut fields = Map::new();
    fields.insert("name".into(), json!(resolved.name));
    fields.insert("namespace".into(), json!(resolved.namespace));
    for (field, map) in [
        ("labels", &resolved.labels),
        ("annotations", &resolved.annotations),
    ] {
        if !map.is_empty() {
            fields.insert(field.into(), json!(map));
        }
    }
    fields.into()
}

/// A field with a value that nothing can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField {
    /// The object that holds it, `Kind ns/name`.
    pub object: String,
    /// Its path.
    pub field: String,
    /// What is wrong and what to do.
    pub reason: String,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.object, self.field, self.reason)
    }
}

/// Why a cluster cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterProblem {
    /// The kind is not served.
    NotServed,
    /// There is none of this name.
    Missing,
    /// It may exist, and cannot be seen.
    Unseen(Unseen),
    /// It is being deleted.
    Deleting,
    /// Its phase, which is not `Running`.
    NotRunning(Option<String>),
}

/// Why nothing can be exposed: one variant for each row of the table of conditions that needs no flag and no live child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The bucket is being deleted. Garbage collection takes the object.
    Deleting,
    /// `status.bucketId` is empty: there is no bucket yet.
    NoBucket,
    /// Paused by annotation.
    Paused,
    /// The bucket asks for no exposure.
    Unset,
    /// Both kinds or none.
    Ambiguous {
        /// Both; else none.
        both: bool,
    },
    /// `spec.website.enabled` is not true.
    WebsiteOff,
    /// A field that nothing can be made of.
    Invalid(InvalidField),
    /// The bucket may not use the cluster.
    GrantDenied(Box<Denied>),
    /// The cluster cannot be used now.
    ClusterUnavailable {
        /// Namespace of the cluster.
        namespace: String,
        /// Name of the cluster.
        name: String,
        /// Why.
        problem: ClusterProblem,
    },
    /// `spec.webApi.enabled` of the cluster is false.
    WebApiOff {
        /// Namespace of the cluster.
        namespace: String,
        /// Name of the cluster.
        name: String,
    },
    /// Garage has recorded no alias yet, or only a reservation.
    WaitingForAlias,
}

impl fmt::Display for Blocked {
    /// Stable: the same inputs give the same text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleting => f.write_str("the bucket is being deleted"),
            Self::NoBucket => f.write_str("status.bucketId is empty: waiting for the bucket to be created in Garage"),
            Self::Paused => write!(
                f,
                "paused: remove the annotation {RECONCILE_ANNOTATION}: {RECONCILE_PAUSED} from the bucket to go on"
            ),
            Self::Unset => f.write_str("spec.websiteExposure is not set"),
            Self::Ambiguous { both } => write!(
                f,
                "spec.websiteExposure sets {} ingress {} gateway: set exactly one",
                if *both { "both" } else { "neither" },
                if *both { "and" } else { "nor" },
            ),
            Self::WebsiteOff => {
                f.write_str("spec.websiteExposure needs spec.website.enabled: true: switch the website on or remove the exposure")
            }
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::GrantDenied(denied) => denied.fmt(f),
            Self::ClusterUnavailable { namespace, name, problem } => {
                write!(f, "GarageCluster {namespace}/{name}: ")?;
                match problem {
                    ClusterProblem::NotServed => {
                        f.write_str("the API server does not serve GarageCluster v1beta2: install its CRD")
                    }
                    ClusterProblem::Missing => f.write_str("not found: create it or correct spec.clusterRef"),
                    ClusterProblem::Unseen(unseen) => unseen.fmt(f),
                    ClusterProblem::Deleting => f.write_str("is being deleted"),
                    ClusterProblem::NotRunning(Some(phase)) => {
                        write!(f, "status.phase is {phase}: waiting for Running")
                    }
                    ClusterProblem::NotRunning(None) => f.write_str("status.phase is not set: waiting for Running"),
                }
            }
            Self::WebApiOff { namespace, name } => write!(
                f,
                "GarageCluster {namespace}/{name}: spec.webApi.enabled is false, so it serves no websites: switch it \
                 on or remove spec.websiteExposure"
            ),
            Self::WaitingForAlias => f.write_str(
                "status.globalAlias holds no alias of the bucket yet: the hostnames that Garage resolves are not known",
            ),
        }
    }
}

/// Reason of the condition `WebsiteExposed` when something is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedReason {
    /// `ReconcileFailed`
    ReconcileFailed,
    /// `WaitingForAlias`
    WaitingForAlias,
}

/// What a block means for the condition `WebsiteExposed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionEffect {
    /// Left as it is.
    Untouched,
    /// Removed.
    Removed,
    /// False with this reason and the block's message.
    False(BlockedReason),
    /// Left as it is if it tells of an object that stands, else False with this reason and the block's message.
    FalseUnlessPresent(BlockedReason),
    /// Status and reason stay, the block's message is written.
    MessageOnly,
}

/// What a block means for the generated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEffect {
    /// Not looked at.
    Untouched,
    /// Kept if it is there, not created.
    Kept,
    /// Removed.
    Removed,
}

/// What a block means for `status.websiteExposure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusEffect {
    /// Left as it is.
    Kept,
    /// Removed.
    Cleared,
    /// Only `type`.
    TypeOnly,
    /// Only `type` and `name`.
    TypeAndName,
}

/// One row of the table of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Condition `WebsiteExposed`.
    pub condition: ConditionEffect,
    /// The generated object.
    pub child: ChildEffect,
    /// `status.websiteExposure`.
    pub status: StatusEffect,
    /// When to look again without any change; `None`: on change only.
    pub retry: Option<Duration>,
}

impl Blocked {
    /// What follows from the block.
    pub fn effect(&self) -> Effect {
        use BlockedReason::{ReconcileFailed, WaitingForAlias};
        let effect = |condition, child, status, retry: Option<u64>| Effect {
            condition,
            child,
            status,
            retry: retry.map(Duration::from_secs),
        };
        match self {
            Self::Deleting | Self::NoBucket => effect(
                ConditionEffect::Untouched,
                ChildEffect::Untouched,
                StatusEffect::Kept,
                None,
            ),
            Self::Paused => effect(
                ConditionEffect::MessageOnly,
                ChildEffect::Untouched,
                StatusEffect::Kept,
                None,
            ),
            Self::Unset => effect(
                ConditionEffect::Removed,
                ChildEffect::Removed,
                StatusEffect::Cleared,
                None,
            ),
            Self::ClusterUnavailable { .. } => effect(
                ConditionEffect::FalseUnlessPresent(ReconcileFailed),
                ChildEffect::Kept,
                StatusEffect::Kept,
                Some(60),
            ),
            Self::WaitingForAlias => effect(
                ConditionEffect::False(WaitingForAlias),
                ChildEffect::Kept,
                StatusEffect::TypeAndName,
                Some(60),
            ),
            Self::WebsiteOff | Self::WebApiOff { .. } => effect(
                ConditionEffect::False(ReconcileFailed),
                ChildEffect::Removed,
                StatusEffect::TypeOnly,
                Some(300),
            ),
            Self::Ambiguous { .. } | Self::Invalid(_) | Self::GrantDenied(_) => effect(
                ConditionEffect::False(ReconcileFailed),
                ChildEffect::Kept,
                StatusEffect::Kept,
                Some(300),
            ),
        }
    }
}

/// Decides what exposes the website of a bucket.
///
/// The order of the questions is the order of what a user can act on: first what the bucket says by itself, then
/// whether it may use the cluster (before anything about the cluster is told), then the cluster, then both together.
pub fn resolve(inputs: &Inputs<'_>) -> Result<Resolved, Blocked> {
    let bucket = inputs.bucket;
    let wanted = wanted(bucket)?;
    check_bucket(bucket, &wanted)?;
    check_guards(bucket, &wanted, inputs.guards)?;

    // Where nothing of a namespace is seen, whether a grant is missing there is not known.
    if let ClusterLookup::Unseen(Unseen::NotWatched { .. }) = inputs.cluster {
        usable_cluster(inputs)?;
    }
    grant::check(
        reference(bucket),
        inputs.grants.iter().copied(),
        inputs.namespace_labels,
    )
    .map_err(|denied| Blocked::GrantDenied(denied.where_unseen(inputs.unseen_grants.clone())))?;
    let cluster = usable_cluster(inputs)?;

    let alias = recorded_alias(bucket).ok_or(Blocked::WaitingForAlias)?;
    let hostnames = hostnames(&wanted, bucket, cluster, alias)?;
    check_default_hostname(bucket, &wanted, &hostnames, inputs.guards)?;
    let backend = backend(&wanted, bucket, cluster)?;
    let (labels, annotations, via) = match wanted.via {
        WantedVia::Ingress(ingress) => {
            if let Some((index, host)) = hostnames.first_to_rewrite() {
                return Err(not_resolved(bucket, &hostnames, index, host, alias));
            }
            let settings = IngressSettings {
                class: text(&ingress.ingress_class_name).map(str::to_owned),
                tls_secret: text(&ingress.tls_secret_name).map(str::to_owned),
            };
            (&ingress.labels, &ingress.annotations, Via::Ingress(settings))
        }
        WantedVia::Gateway(gateway) => {
            let rewrite = hostnames.first_to_rewrite().is_some();
            let rewrite_to = hostnames.canonical.clone().filter(|_| rewrite);
            let parents = parents(bucket, gateway)?;
            (
                &gateway.labels,
                &gateway.annotations,
                Via::HttpRoute(RouteSettings { parents, rewrite_to }),
            )
        }
    };
    let name = name_of(&bucket.metadata);
    let mut labels = labels.clone().unwrap_or_default();
    labels.insert(BUCKET_LABEL.to_owned(), label_value(name));
    Ok(Resolved {
        namespace: namespace_of(&bucket.metadata).to_owned(),
        name: child_name(name),
        alias: alias.to_owned(),
        hostnames: hostnames.entries.into_iter().map(|host| host.name).collect(),
        backend,
        labels,
        annotations: annotations.clone().unwrap_or_default(),
        via,
    })
}

/// The exposure that a bucket wants, with the kind told apart.
struct Wanted<'a> {
    exposure: &'a WebsiteExposure,
    via: WantedVia<'a>,
}

#[derive(Clone, Copy)]
enum WantedVia<'a> {
    Ingress(&'a IngressExposure),
    Gateway(&'a GatewayExposure),
}

/// Why nothing at all is planned for this bucket, if so: it is being deleted, has no bucket in Garage yet, or is paused.
pub fn set_aside(bucket: &GarageBucket) -> Option<Blocked> {
    if bucket.metadata.deletion_timestamp.is_some() {
        return Some(Blocked::Deleting);
    }
    let status = bucket.status.as_ref();
    if status.and_then(|status| text(&status.bucket_id)).is_none() {
        return Some(Blocked::NoBucket);
    }
    // A bucket that was never exposed has nothing to pause, and nothing should be said about it.
    let exposed_before = status.is_some_and(|status| status.website_exposure.is_some());
    let concerned = bucket.spec.website_exposure.is_some() || exposed_before;
    (paused(&bucket.metadata) && concerned).then_some(Blocked::Paused)
}

/// What the bucket wants, or why its exposure is not touched or not there.
fn wanted(bucket: &GarageBucket) -> Result<Wanted<'_>, Blocked> {
    if let Some(blocked) = set_aside(bucket) {
        return Err(blocked);
    }
    let exposure = bucket.spec.website_exposure.as_ref().ok_or(Blocked::Unset)?;
    let via = match (&exposure.ingress, &exposure.gateway) {
        (Some(ingress), None) => WantedVia::Ingress(ingress),
        (None, Some(gateway)) => WantedVia::Gateway(gateway),
        (ingress, _) => {
            return Err(Blocked::Ambiguous {
                both: ingress.is_some(),
            });
        }
    };
    if bucket.spec.website.as_ref().and_then(|website| website.enabled) != Some(true) {
        return Err(Blocked::WebsiteOff);
    }
    Ok(Wanted { exposure, via })
}

fn paused(metadata: &ObjectMeta) -> bool {
    let annotation = metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(RECONCILE_ANNOTATION));
    annotation.is_some_and(|value| value == RECONCILE_PAUSED)
}

/// Checks whatever needs the bucket alone. Admission does the same; objects can be older than it, or escape it.
fn check_bucket(bucket: &GarageBucket, wanted: &Wanted<'_>) -> Result<(), Blocked> {
    let invalid = |field: &str, reason: String| Err(in_bucket(bucket, field, reason));
    let name = child_name(name_of(&bucket.metadata));
    if name.len() > MAX_NAME {
        let reason = format!("makes the name {name}, longer than {MAX_NAME} characters: use a shorter one");
        return invalid("metadata.name", reason);
    }
    if bucket.spec.cluster_ref.kube_config_secret_ref.is_some() {
        return invalid(
            "spec.clusterRef.kubeConfigSecretRef",
            "is not supported: remove it".into(),
        );
    }
    if bucket.spec.cluster_ref.name.is_empty() {
        return invalid("spec.clusterRef.name", "is empty: name a GarageCluster".into());
    }
    let listed = wanted.exposure.hostnames.as_deref().unwrap_or_default();
    hostname::check_list(listed).map_err(|problem| bad_list(bucket, listed, &problem))?;
    if let Some(backend) = &wanted.exposure.backend_ref {
        check_backend_ref(bucket, backend, wanted.via)?;
    }
    match wanted.via {
        WantedVia::Ingress(_) => {
            let (namespace, cluster) = cluster_of(bucket);
            if namespace != namespace_of(&bucket.metadata) {
                let reason = format!(
                    "is {namespace}: an Ingress cannot reach GarageCluster {namespace}/{cluster} in another \
                     namespace; use spec.websiteExposure.gateway"
                );
                return invalid("spec.clusterRef.namespace", reason);
            }
            Ok(())
        }
        WantedVia::Gateway(gateway) => parents(bucket, gateway).map(|_| ()),
    }?;
    match wanted.via {
        WantedVia::Ingress(ingress) => {
            check_metadata(bucket, "ingress", &ingress.labels, &ingress.annotations)?;
            check_ingress_names(bucket, ingress)
        }
        WantedVia::Gateway(gateway) => {
            check_metadata(bucket, "gateway", &gateway.labels, &gateway.annotations)
        }
    }
}

/// Checks what the bucket itself asks for against the limits of the installation.
fn check_guards(bucket: &GarageBucket, wanted: &Wanted<'_>, guards: &Guards) -> Result<(), Blocked> {
    let listed = wanted.exposure.hostnames.as_deref().unwrap_or_default();
    for (index, host) in listed.iter().enumerate() {
        if !guards.allows_hostname(host) {
            let field = format!("spec.websiteExposure.hostnames[{index}]");
            let reason = format!("{host:?} {}", outside(guards));
            return Err(in_bucket(bucket, &field, reason));
        }
    }
    let (kind, field, annotations) = match wanted.via {
        WantedVia::Ingress(ingress) => (ExposureKind::Ingress, "ingress", &ingress.annotations),
        WantedVia::Gateway(gateway) => (ExposureKind::HttpRoute, "gateway", &gateway.annotations),
    };
    let labels = match wanted.via {
        WantedVia::Ingress(ingress) => &ingress.labels,
        WantedVia::Gateway(gateway) => &gateway.labels,
    };
    if let Some(key) = keys_of(labels).find(|key| !guards.allows_label(key)) {
        return Err(in_bucket(
            bucket,
            &format!("spec.websiteExposure.{field}.labels"),
            format!(
                "{key:?} is not allowed here: keys begin with {}",
                guards.label_prefixes.join(" or ")
            ),
        ));
    }
    match keys_of(annotations).find(|key| !guards.allows_annotation(kind, key)) {
        None => Ok(()),
        Some(key) => Err(in_bucket(
            bucket,
            &format!("spec.websiteExposure.{field}.annotations"),
            format!(
                "{key:?} is not allowed here: keys begin with {}",
                guards.annotation_prefixes(kind).join(" or ")
            ),
        )),
    }
}

fn keys_of(map: &Option<BTreeMap<String, String>>) -> impl Iterator<Item = &String> {
    map.iter().flat_map(BTreeMap::keys)
}

/// Checks what the API server would refuse on the generated object, where its message names no field of the bucket.
fn check_metadata(
    bucket: &GarageBucket,
    section: &str,
    labels: &Option<BTreeMap<String, String>>,
    annotations: &Option<BTreeMap<String, String>>,
) -> Result<(), Blocked> {
    const KEY: &str = "is no key: it has at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both \
                       ends, perhaps behind a DNS name and '/'";
    let invalid = |part: &str, reason: String| {
        Err(in_bucket(
            bucket,
            &format!("spec.websiteExposure.{section}.{part}"),
            reason,
        ))
    };
    for (part, map) in [("labels", labels), ("annotations", annotations)] {
        if let Some(key) = keys_of(map).find(|key| !is_metadata_key(key)) {
            return invalid(part, format!("{key:?} {KEY}"));
        }
    }
    let bad = labels.iter().flatten().find(|(_, value)| !is_label_value(value));
    if let Some((key, value)) = bad {
        let reason = format!(
            "{key:?}: {value:?} is no label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at \
             both ends"
        );
        return invalid("labels", reason);
    }
    Ok(())
}

/// Checks the names in the settings of an Ingress.
fn check_ingress_names(bucket: &GarageBucket, ingress: &IngressExposure) -> Result<(), Blocked> {
    let invalid = |part: &str, reason: String| {
        Err(in_bucket(
            bucket,
            &format!("spec.websiteExposure.ingress.{part}"),
            reason,
        ))
    };
    for (part, name) in [
        ("ingressClassName", &ingress.ingress_class_name),
        ("tlsSecretName", &ingress.tls_secret_name),
    ] {
        if let Some(name) = text(name).filter(|name| !is_subdomain(name)) {
            let reason = format!("{name:?} is no name: use lower-case letters, digits, '-' and '.'");
            return invalid(part, reason);
        }
    }
    let annotated = ingress
        .annotations
        .as_ref()
        .and_then(|all| all.get(CLASS_ANNOTATION));
    if let (Some(annotated), Some(class)) = (annotated, text(&ingress.ingress_class_name))
        && annotated != class
    {
        let reason =
            format!("{CLASS_ANNOTATION} is {annotated}, and ingressClassName is {class}: remove one of them");
        return invalid("annotations", reason);
    }
    Ok(())
}

/// The hostname that stands where none is listed keeps to the same limits.
fn check_default_hostname(
    bucket: &GarageBucket,
    wanted: &Wanted<'_>,
    hostnames: &Hostnames,
    guards: &Guards,
) -> Result<(), Blocked> {
    if !wanted
        .exposure
        .hostnames
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        return Ok(());
    }
    match hostnames
        .entries
        .iter()
        .find(|host| !guards.allows_hostname(&host.name))
    {
        None => Ok(()),
        Some(host) => Err(in_bucket(
            bucket,
            "spec.websiteExposure.hostnames",
            format!(
                "is not set, and the default hostname {:?} {}",
                host.name,
                outside(guards)
            ),
        )),
    }
}

fn outside(guards: &Guards) -> String {
    format!(
        "is not allowed here: use {} or a name below",
        guards.hostname_suffixes.join(" or ")
    )
}

fn check_backend_ref(
    bucket: &GarageBucket,
    backend: &BackendReference,
    via: WantedVia<'_>,
) -> Result<(), Blocked> {
    const FIELD: &str = "spec.websiteExposure.backendRef";
    let invalid = |field: &str, reason: String| Err(in_bucket(bucket, &format!("{FIELD}.{field}"), reason));
    if backend.name.is_empty() {
        return invalid("name", "is empty: name the backend".into());
    }
    if backend
        .port
        .is_some_and(|port| cluster::port_number(port).is_none())
    {
        return invalid("port", "must be a port from 1 to 65535".into());
    }
    if let WantedVia::Gateway(_) = via {
        return Ok(());
    }
    let group = text(&backend.group).unwrap_or_default();
    if !group.is_empty() {
        return invalid(
            "group",
            format!("is {group}: an Ingress can only point to a core Service; use gateway"),
        );
    }
    let kind = text(&backend.kind).unwrap_or("Service");
    if kind != "Service" {
        return invalid(
            "kind",
            format!("is {kind}: an Ingress can only point to a core Service; use gateway"),
        );
    }
    match text(&backend.namespace) {
        Some(namespace) if namespace != namespace_of(&bucket.metadata) => invalid(
            "namespace",
            format!(
                "is {namespace}: an Ingress can only point to a Service of its own namespace; use gateway"
            ),
        ),
        _ => Ok(()),
    }
}

/// The parents of the route with every default filled in.
fn parents(bucket: &GarageBucket, gateway: &GatewayExposure) -> Result<Vec<Parent>, Blocked> {
    const FIELD: &str = "spec.websiteExposure.gateway.parentRefs";
    let refs = &gateway.parent_refs;
    if refs.is_empty() {
        return Err(in_bucket(
            bucket,
            FIELD,
            "is empty: name at least one Gateway".into(),
        ));
    }
    if refs.len() > MAX_PARENTS {
        return Err(in_bucket(
            bucket,
            FIELD,
            format!("has {} entries: at most {MAX_PARENTS} are possible", refs.len()),
        ));
    }
    let parents: Vec<Parent> = refs
        .iter()
        .enumerate()
        .map(|(index, parent)| {
            if parent.name.is_empty() {
                return Err(in_bucket(
                    bucket,
                    &format!("{FIELD}[{index}].name"),
                    "is empty: name the Gateway".into(),
                ));
            }
            let port = match parent.port {
                None => None,
                Some(port) => Some(cluster::port_number(port).ok_or_else(|| {
                    in_bucket(
                        bucket,
                        &format!("{FIELD}[{index}].port"),
                        "must be a port from 1 to 65535".into(),
                    )
                })?),
            };
            Ok(Parent {
                // An empty group is the core group; only an absent one has a default.
                group: parent.group.clone().unwrap_or_else(|| GATEWAY_GROUP.to_owned()),
                kind: text(&parent.kind).unwrap_or("Gateway").to_owned(),
                namespace: text(&parent.namespace)
                    .unwrap_or_else(|| namespace_of(&bucket.metadata))
                    .to_owned(),
                name: parent.name.clone(),
                section_name: text(&parent.section_name).map(str::to_owned),
                port,
            })
        })
        .collect::<Result<_, _>>()?;
    for (index, parent) in parents.iter().enumerate() {
        let same = |other: &&Parent| {
            (&other.group, &other.kind, &other.namespace, &other.name)
                == (&parent.group, &parent.kind, &parent.namespace, &parent.name)
        };
        let whole = |parent: &Parent| parent.section_name.is_none() && parent.port.is_none();
        let before = parents.iter().take(index).filter(same);
        let clash = |other: &Parent| other == parent || whole(other) || whole(parent);
        if before.clone().any(clash) {
            let reason = format!(
                "names {} {}/{} again: leave it out, or give each entry of one parent a sectionName of its own",
                parent.kind, parent.namespace, parent.name
            );
            return Err(in_bucket(bucket, &format!("{FIELD}[{index}]"), reason));
        }
    }
    Ok(parents)
}

/// The cluster, if it can be used and serves websites.
fn usable_cluster<'a>(inputs: &Inputs<'a>) -> Result<&'a GarageCluster, Blocked> {
    let (namespace, name) = cluster_of(inputs.bucket);
    let unavailable = |problem| Blocked::ClusterUnavailable {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        problem,
    };
    let cluster = match inputs.cluster {
        ClusterLookup::NotServed => return Err(unavailable(ClusterProblem::NotServed)),
        ClusterLookup::Missing => return Err(unavailable(ClusterProblem::Missing)),
        ClusterLookup::Unseen(unseen) => return Err(unavailable(ClusterProblem::Unseen(unseen.clone()))),
        ClusterLookup::Found(cluster) => cluster,
    };
    cluster::availability(cluster).map_err(|why| match why {
        Unavailable::Deleting => unavailable(ClusterProblem::Deleting),
        Unavailable::NotRunning => unavailable(ClusterProblem::NotRunning(
            cluster::phase(cluster).map(str::to_owned),
        )),
    })?;
    if cluster::web_enabled(&cluster.spec) {
        Ok(cluster)
    } else {
        Err(Blocked::WebApiOff {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// The alias that Garage has recorded for the bucket. A reservation does not count.
pub fn recorded_alias(bucket: &GarageBucket) -> Option<&str> {
    text(&bucket.status.as_ref()?.global_alias).filter(|alias| !is_reservation(alias))
}

fn hostnames(
    wanted: &Wanted<'_>,
    bucket: &GarageBucket,
    cluster: &GarageCluster,
    alias: &str,
) -> Result<Hostnames, Blocked> {
    const ROOT_DOMAIN: &str = "spec.webApi.rootDomain";
    let root = cluster::root_domain(cluster).map_err(|problem| {
        let configured = cluster
            .spec
            .web_api
            .as_ref()
            .and_then(|web| web.root_domain.as_deref());
        let reason = match problem {
            HostnameProblem::Empty => "holds no domain: set one, for example .example.com".to_owned(),
            problem => format!("{:?} {problem}", configured.unwrap_or_default()),
        };
        in_cluster(cluster, ROOT_DOMAIN, reason)
    })?;
    let listed = wanted.exposure.hostnames.as_deref().unwrap_or_default();
    hostname::for_exposure(listed, alias, root.as_ref()).map_err(|problem| match problem {
        HostnamesProblem::List(problem) => bad_list(bucket, listed, &problem),
        HostnamesProblem::Canonical { host, problem } => in_bucket(
            bucket,
            "status.globalAlias",
            format!("and the root domain of the cluster make {host:?}, which {problem}: choose another spec.globalAlias"),
        ),
        HostnamesProblem::RootDomainNeeded => in_cluster(
            cluster,
            ROOT_DOMAIN,
            "is not set, and it cannot be guessed for a Garage that runs elsewhere: set it to the root_domain of its \
             [s3_web]"
                .to_owned(),
        ),
    })
}

fn backend(wanted: &Wanted<'_>, bucket: &GarageBucket, cluster: &GarageCluster) -> Result<Backend, Blocked> {
    let own_namespace = namespace_of(&bucket.metadata);
    let elsewhere = |namespace: &str| (namespace != own_namespace).then(|| namespace.to_owned());
    let default_port = || match wanted.via {
        WantedVia::Ingress(_) => Ok(BackendPort::Name(WEB_PORT_NAME)),
        WantedVia::Gateway(_) => cluster::web_port(cluster.spec.web_api.as_ref())
            .map(BackendPort::Number)
            .map_err(|problem: PortProblem| in_cluster(cluster, problem.field(), problem.hint().to_owned())),
    };
    if let Some(reference) = &wanted.exposure.backend_ref {
        return Ok(Backend {
            group: text(&reference.group).unwrap_or_default().to_owned(),
            kind: text(&reference.kind).unwrap_or("Service").to_owned(),
            namespace: text(&reference.namespace).and_then(elsewhere),
            name: reference.name.clone(),
            port: match reference.port.and_then(cluster::port_number) {
                Some(port) => BackendPort::Number(port),
                None => default_port()?,
            },
        });
    }
    let (namespace, name) = cluster_of(bucket);
    let service = Shape::of(&cluster.spec).web_service(name).ok_or_else(|| {
        let reason = format!(
            "is not set, and GarageCluster {namespace}/{name} runs elsewhere and has no Service: name the backend"
        );
        in_bucket(bucket, "spec.websiteExposure.backendRef", reason)
    })?;
    Ok(Backend {
        group: String::new(),
        kind: "Service".to_owned(),
        namespace: elsewhere(namespace),
        name: service,
        port: default_port()?,
    })
}

/// The reference of a bucket to its cluster, as grants see it.
pub fn reference(bucket: &GarageBucket) -> Reference<'_> {
    let (to_namespace, to_name) = cluster_of(bucket);
    Reference {
        from_kind: "GarageBucket",
        from_namespace: namespace_of(&bucket.metadata),
        to_kind: "GarageCluster",
        to_namespace,
        to_name,
    }
}

fn bad_list(bucket: &GarageBucket, listed: &[String], problem: &ListProblem) -> Blocked {
    const FIELD: &str = "spec.websiteExposure.hostnames";
    let at = |index: &usize| {
        let host = listed.get(*index).map(String::as_str).unwrap_or_default();
        (format!("{FIELD}[{index}]"), format!("{host:?}"))
    };
    match problem {
        ListProblem::TooMany(count) => in_bucket(
            bucket,
            FIELD,
            format!("has {count} entries: at most {MAX_HOSTNAMES} are possible"),
        ),
        ListProblem::Bad { index, problem } => {
            let (field, host) = at(index);
            in_bucket(bucket, &field, format!("{host} {problem}"))
        }
        ListProblem::Duplicate { index } => {
            let (field, host) = at(index);
            in_bucket(bucket, &field, format!("{host} is listed twice: remove one"))
        }
    }
}

/// An Ingress cannot rewrite the Host, so a hostname that Garage would resolve to something else is refused.
fn not_resolved(
    bucket: &GarageBucket,
    hostnames: &Hostnames,
    index: usize,
    host: &str,
    alias: &str,
) -> Blocked {
    let alternatives = match &hostnames.canonical {
        // A bare alias with dots may be a name under the root domain, which Garage resolves to something else.
        Some(canonical) if !alias.contains('.') => format!("{canonical} or {alias}"),
        Some(canonical) => canonical.clone(),
        None => alias.to_owned(),
    };
    in_bucket(
        bucket,
        &format!("spec.websiteExposure.hostnames[{index}]"),
        format!(
            "{host:?} is not resolved to this bucket by Garage, and an Ingress cannot rewrite it: use {alternatives}, \
             or spec.websiteExposure.gateway"
        ),
    )
}

fn in_bucket(bucket: &GarageBucket, field: &str, reason: String) -> Blocked {
    invalid("GarageBucket", &bucket.metadata, field, reason)
}

fn in_cluster(cluster: &GarageCluster, field: &str, reason: String) -> Blocked {
    invalid("GarageCluster", &cluster.metadata, field, reason)
}

fn invalid(kind: &str, metadata: &ObjectMeta, field: &str, reason: String) -> Blocked {
    Blocked::Invalid(InvalidField {
        object: format!("{kind} {}/{}", namespace_of(metadata), name_of(metadata)),
        field: field.to_owned(),
        reason,
    })
}

fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn namespace_of(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

/// An optional text; an empty one counts as left out, as in every client that omits empty fields.
fn text(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
