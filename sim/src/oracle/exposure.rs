//! Website exposure: the row of the table of conditions that a GarageBucket falls in, and what the row wants of
//! condition, status block and child.
//!
//! If several rows of refusal hold at once, the oracle accepts each of them. Lenient: the table gives no order.

use serde_json::Value;

use super::{
    Judgement,
    children::{self, Readiness},
    hosts,
    snapshot::{Flags, GARAGE, GATEWAY, NETWORKING, Object, World, at, either, list, selects, text, texts},
};

/// Field manager of the exposure status.
const MANAGER: &str = "routewright-website-exposure";
const CONDITION: &str = "WebsiteExposed";

/// The kind that exposes a website.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ingress,
    HttpRoute,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Ingress, Self::HttpRoute];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::HttpRoute => "HTTPRoute",
        }
    }

    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Ingress => NETWORKING,
            Self::HttpRoute => GATEWAY,
        }
    }

    /// Value of the component label: the controller.
    pub(crate) fn component(self) -> &'static str {
        match self {
            Self::Ingress => "ingress-exposure",
            Self::HttpRoute => "httproute-exposure",
        }
    }

    pub(crate) fn is_enabled(self, flags: &Flags) -> bool {
        match self {
            Self::Ingress => flags.enable_ingress,
            Self::HttpRoute => flags.enable_gateway_api,
        }
    }

    /// Whether the operator may look at children of this kind.
    fn is_usable(self, world: &World<'_>, flags: &Flags) -> bool {
        self.is_enabled(flags) && world.is_served(self.group(), self.name())
    }

    fn settings(self) -> &'static str {
        match self {
            Self::Ingress => "/websiteExposure/ingress",
            Self::HttpRoute => "/websiteExposure/gateway",
        }
    }
}

/// Port of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Name(&'static str),
    Number(i64),
}

/// Everything that the child of a bucket is made of.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: Kind,
    pub(crate) bucket: Object<'a>,
    pub(crate) name: String,
    pub(crate) hostnames: Vec<String>,
    pub(crate) backend: Backend,
    /// The canonical host, when some hostname is not one that Garage resolves to the bucket.
    pub(crate) rewrite: Option<String>,
    /// `spec.websiteExposure.ingress` or `.gateway`.
    pub(crate) settings: &'a Value,
}

/// Where the traffic goes.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: Port,
}

/// What a condition may say: status, reason, and words of which the message holds one.
#[derive(Clone, Debug)]
struct Said {
    status: &'static str,
    reason: &'static str,
    words: Vec<String>,
    /// The condition may be older than the present generation.
    stale: bool,
}

impl Said {
    fn new(status: &'static str, reason: &'static str, words: &[&str]) -> Self {
        Self {
            status,
            reason,
            words: words.iter().map(|&word| word.to_owned()).collect(),
            stale: false,
        }
    }

    fn failed(words: &[&str]) -> Self {
        Self::new("False", "ReconcileFailed", words)
    }

    fn fits(&self, condition: &Value, generation: i64) -> bool {
        let message = text(condition, "/message").unwrap_or_default();
        text(condition, "/status") == Some(self.status)
            && text(condition, "/reason") == Some(self.reason)
            && (self.words.is_empty() || self.words.iter().any(|word| message.contains(word)))
            && (self.stale || at(condition, "/observedGeneration").as_i64() == Some(generation))
    }

    fn show(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| format!("{word:?}")).collect();
        match words.is_empty() {
            true => format!("{}/{}", self.status, self.reason),
            false => format!("{}/{} about {}", self.status, self.reason, words.join(" or ")),
        }
    }
}

/// What a row of refusal does to a child that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Removed,
}

/// A row of refusal.
#[derive(Clone, Debug)]
struct Refusal {
    said: Vec<Said>,
    fate: Fate,
}

impl Refusal {
    fn kept(said: Said) -> Self {
        let said = vec![said];
        Self {
            said,
            fate: Fate::Kept,
        }
    }

    fn removed(said: Said) -> Self {
        let said = vec![said];
        Self {
            said,
            fate: Fate::Removed,
        }
    }
}

/// Why a bucket has no wanted child.
enum NotWanted {
    /// Rows that hold.
    Refused(Vec<Refusal>),
    /// The state forbids a judgement.
    Skipped(&'static str),
}

/// Judges the exposure of every bucket.
pub(crate) fn judge(world: &World<'_>, judgement: &mut Judgement) {
    if !world.is_served(GARAGE, "GarageBucket") {
        return judgement.skip("exposure: GarageBucket is not served");
    }
    for bucket in world.all(GARAGE, "GarageBucket") {
        let installations = world.snapshot.installations.iter();
        let watching: Vec<&Flags> = installations
            .filter(|flags| flags.has_garage_half() && flags.watches(bucket.namespace()))
            .collect();
        match watching.as_slice() {
            [] => judgement.skip("exposure: no installation watches the namespace"),
            [flags] => {
                judge_website_url(bucket, judgement);
                match forbidden(world, bucket) {
                    Some(reason) => judgement.skip(reason),
                    None => judge_bucket(world, flags, bucket, judgement),
                }
            }
            _ => judgement.skip("exposure: several installations watch the bucket"),
        }
    }
}

/// States of a bucket that forbid a judgement.
fn forbidden(world: &World<'_>, bucket: Object<'_>) -> Option<&'static str> {
    // A key that stays the same stays the operator's when another client writes the rest.
    let by_another = |field: &str| {
        let condition = "k:{\"type\":\"WebsiteExposed\"}";
        bucket.is_owned_by_another(MANAGER, &["f:status", "f:conditions", condition, field])
    };
    let namespace = world.get("", "Namespace", "", bucket.namespace());
    if !at(bucket.spec(), "/clusterRef/kubeConfigSecretRef").is_null() {
        Some("exposure: a field that is not supported")
    } else if bucket.is_deleting() {
        Some("exposure: the bucket is being deleted")
    } else if namespace.is_some_and(Object::is_deleting) {
        Some("exposure: the namespace is being deleted")
    } else if bucket.annotation("routewright.dev/reconcile") == Some("paused") {
        Some("exposure: paused")
    } else if text(bucket.status(), "/bucketId").is_none() {
        // Row "status.bucketId empty": untouched, whatever it was.
        Some("exposure: status.bucketId is empty")
    } else if ["f:status", "f:reason", "f:message"].into_iter().any(by_another) {
        Some("exposure: another manager owns the condition")
    } else {
        None
    }
}

/// I5: status.websiteUrl is never touched by exposure.
fn judge_website_url(bucket: Object<'_>, judgement: &mut Judgement) {
    let managers = bucket.managers_of(&["f:status", "f:websiteUrl"]);
    judgement.check(
        "exposure.I5",
        bucket,
        !managers.contains(&MANAGER),
        "status.websiteUrl not written by exposure",
        managers.join(", "),
    );
}

fn judge_bucket(world: &World<'_>, flags: &Flags, bucket: Object<'_>, judgement: &mut Judgement) {
    let selected = Kind::ALL.map(|kind| at(bucket.spec(), kind.settings()).is_object());
    match selected {
        _ if !at(bucket.spec(), "/websiteExposure").is_object() => {
            judge_unset(world, flags, bucket, judgement)
        }
        [true, false] => judge_selected(world, flags, bucket, Kind::Ingress, judgement),
        [false, true] => judge_selected(world, flags, bucket, Kind::HttpRoute, judgement),
        // Decision: neither or both kinds, ingress-exposure says ReconcileFailed. What is done to children is left open.
        _ => judge_condition(bucket, &[Said::failed(&["websiteExposure"])], judgement),
    }
}

/// Row "unset": condition and status block are gone, and each controller removes its own kind.
fn judge_unset(world: &World<'_>, flags: &Flags, bucket: Object<'_>, judgement: &mut Judgement) {
    let condition = bucket.condition(CONDITION);
    judgement.check(
        "exposure.unset",
        bucket,
        condition.is_none(),
        "no condition WebsiteExposed",
        condition.unwrap_or(&Value::Null),
    );
    let block = at(bucket.status(), "/websiteExposure");
    judgement.check(
        "exposure.unset",
        bucket,
        block.is_null(),
        "no status.websiteExposure",
        block,
    );
    for kind in Kind::ALL {
        judge_removed(world, flags, bucket, kind, judgement);
    }
}

/// A child of a kind that the bucket does not want is gone, unless the operator has no right to look at the kind.
fn judge_removed(
    world: &World<'_>,
    flags: &Flags,
    bucket: Object<'_>,
    kind: Kind,
    judgement: &mut Judgement,
) {
    if !kind.is_usable(world, flags) {
        return;
    }
    let child = own_child(world, bucket, kind);
    // A finalizer of another controller may hold a child that was deleted.
    let stands = child.is_some_and(|child| !child.is_deleting());
    judgement.check(
        "exposure.removed",
        bucket,
        !stands,
        format!("no {} {}", kind.name(), child_name(bucket)),
        "it stands",
    );
}

pub(crate) fn child_name(bucket: Object<'_>) -> String {
    format!("{}-website", bucket.name())
}

/// The child of a bucket: right name, and controlled by the bucket.
fn own_child<'a>(world: &World<'a>, bucket: Object<'_>, kind: Kind) -> Option<Object<'a>> {
    let name = child_name(bucket);
    let found = world.get(kind.group(), kind.name(), bucket.namespace(), &name)?;
    is_controlled(found, bucket).then_some(found)
}

fn is_controlled(child: Object<'_>, bucket: Object<'_>) -> bool {
    child
        .controller()
        .is_some_and(|owner| text(owner, "/uid") == Some(bucket.uid()))
}

fn judge_selected(
    world: &World<'_>,
    flags: &Flags,
    bucket: Object<'_>,
    kind: Kind,
    judgement: &mut Judgement,
) {
    for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
        judge_removed(world, flags, bucket, other, judgement);
    }
    if let Some(said) = switched_off(world, flags, kind) {
        // Rows "flag off" and "API not served": the child is untouched.
        judge_condition(bucket, &[said], judgement);
        judge_block_type(bucket, kind, judgement);
        return;
    }
    match resolve(world, flags, bucket, kind) {
        Err(NotWanted::Skipped(reason)) => judgement.skip(reason),
        Err(NotWanted::Refused(rows)) => judge_refused(world, flags, bucket, kind, &rows, judgement),
        Ok(wanted) => judge_wanted(world, flags, &wanted, judgement),
    }
}

fn switched_off(world: &World<'_>, flags: &Flags, kind: Kind) -> Option<Said> {
    if kind.is_usable(world, flags) {
        return None;
    }
    Some(match kind {
        Kind::Ingress => Said::new("False", "IngressDisabled", &["--enable-ingress"]),
        Kind::HttpRoute => Said::new(
            "False",
            "GatewayAPIUnavailable",
            &["--enable-gateway-api", "HTTPRoute"],
        ),
    })
}

/// The condition says one of these.
fn judge_condition(bucket: Object<'_>, allowed: &[Said], judgement: &mut Judgement) {
    let generation = bucket.generation();
    let found = bucket.condition(CONDITION);
    let fits = found.is_some_and(|condition| allowed.iter().any(|said| said.fits(condition, generation)));
    let shown: Vec<String> = allowed.iter().map(Said::show).collect();
    judgement.check(
        "exposure.condition",
        bucket,
        fits,
        format!("{} at generation {generation}", shown.join(", or ")),
        found.unwrap_or(&Value::Null),
    );
}

/// The status block names the selected kind and its child, if it names anything. Lenient: whether a block without a
/// child names one is left open.
fn judge_block_type(bucket: Object<'_>, kind: Kind, judgement: &mut Judgement) {
    let block = at(bucket.status(), "/websiteExposure");
    let name = child_name(bucket);
    // Lenient: a row that keeps the block may keep the one of the kind that was selected before, without a name.
    let kept = text(block, "/name").is_none()
        && bucket
            .condition(CONDITION)
            .is_some_and(|condition| text(condition, "/reason") == Some("ReconcileFailed"));
    let fits = kept
        || text(block, "/type").is_none_or(|type_| type_ == kind.name())
            && text(block, "/name").is_none_or(|found| found == name);
    judgement.check(
        "exposure.block",
        bucket,
        fits,
        format!("type {}, name {name}", kind.name()),
        block,
    );
}

/// Rows of refusal: the condition names one of them; the child is kept or removed.
fn judge_refused(
    world: &World<'_>,
    flags: &Flags,
    bucket: Object<'_>,
    kind: Kind,
    rows: &[Refusal],
    judgement: &mut Judgement,
) {
    let said: Vec<Said> = rows.iter().flat_map(|row| row.said.clone()).collect();
    judge_condition(bucket, &said, judgement);
    judge_block_type(bucket, kind, judgement);
    if rows.iter().all(|row| row.fate == Fate::Removed) {
        judge_removed(world, flags, bucket, kind, judgement);
    }
}

/// The child that a bucket wants, or the rows of refusal that hold.
fn resolve<'a>(
    world: &World<'a>,
    flags: &Flags,
    bucket: Object<'a>,
    kind: Kind,
) -> Result<Wanted<'a>, NotWanted> {
    let mut rows = Vec::new();
    rows.extend(website_off(bucket));
    rows.extend(bad_hostnames(bucket));
    rows.extend(bad_names(bucket, kind));
    rows.extend(bad_backend(bucket, kind));
    if child_name(bucket).len() > 253 {
        rows.push(Refusal::kept(Said::failed(&["name", "253"])));
    }
    let alias = recorded_alias(bucket);
    if alias.is_none() {
        rows.push(Refusal::kept(Said::new("False", "WaitingForAlias", &[])));
    }
    let (namespace, name) = cluster_of(bucket);
    if !flags.watches(namespace) {
        return Err(NotWanted::Skipped(
            "exposure: the cluster's namespace is not watched",
        ));
    }
    if let Some(row) = grant_denied(world, bucket).map_err(NotWanted::Skipped)? {
        rows.push(row);
    }
    let cluster = match usable_cluster(world, namespace, name) {
        Some(cluster) => cluster,
        None => {
            rows.push(cluster_away(bucket, kind, namespace, name));
            return Err(NotWanted::Refused(rows));
        }
    };
    let site = Site::of(cluster)?;
    rows.extend(site.web_off());
    rows.extend(cross_namespace(bucket, kind, cluster));
    rows.extend(no_service(bucket, &site));
    let Some(alias) = alias else {
        return Err(NotWanted::Refused(rows));
    };
    match site.hosts(bucket, kind, alias) {
        Ok((hostnames, rewrite)) if rows.is_empty() => Ok(Wanted {
            kind,
            bucket,
            name: child_name(bucket),
            hostnames,
            rewrite,
            backend: backend(bucket, kind, &site),
            settings: at(bucket.spec(), kind.settings()),
        }),
        Ok(_) => Err(NotWanted::Refused(rows)),
        Err(row) => {
            rows.push(row);
            Err(NotWanted::Refused(rows))
        }
    }
}

/// Row "website.enabled not true".
fn website_off(bucket: Object<'_>) -> Option<Refusal> {
    let on = at(bucket.spec(), "/website/enabled") == &Value::Bool(true);
    (!on).then(|| Refusal::removed(Said::failed(&["website.enabled"])))
}

/// What names another object has to be a name.
fn bad_names(bucket: Object<'_>, kind: Kind) -> Vec<Refusal> {
    let settings = at(bucket.spec(), kind.settings());
    let is_name = |text: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        !text.is_empty() && text.len() <= 253 && text.chars().all(inner)
    };
    let wrong = |field: &&str| text(settings, &format!("/{field}")).is_some_and(|found| !is_name(found));
    let fields = ["tlsSecretName", "ingressClassName"];
    let wrong = fields.into_iter().filter(wrong);
    wrong.map(|field| Refusal::kept(Said::failed(&[field]))).collect()
}

/// Row "bad hostname": lower-case DNS names, no wildcard, no IP address, no duplicates.
fn bad_hostnames(bucket: Object<'_>) -> Option<Refusal> {
    let hosts = texts(bucket.spec(), "/websiteExposure/hostnames");
    let mut seen = std::collections::BTreeSet::new();
    let good = hosts
        .iter()
        .all(|host| hosts::is_dns_name(host) && seen.insert(host.to_ascii_lowercase()));
    (!good).then(|| Refusal::kept(Said::failed(&["hostnames"])))
}

/// Row "bad backendRef": an Ingress takes only a core Service of the bucket's namespace.
fn bad_backend(bucket: Object<'_>, kind: Kind) -> Option<Refusal> {
    let reference = at(bucket.spec(), "/websiteExposure/backendRef");
    let is_service = text(reference, "/group").is_none()
        && text(reference, "/kind").is_none_or(|kind| kind == "Service")
        && text(reference, "/namespace").is_none_or(|namespace| namespace == bucket.namespace());
    let bad = kind == Kind::Ingress && reference.is_object() && !is_service;
    bad.then(|| Refusal::kept(Said::failed(&["backendRef"])))
}

/// Row "cross-namespace Ingress", with `backendRef` or without: the policy of admission asks for no `backendRef` either.
fn cross_namespace(bucket: Object<'_>, kind: Kind, cluster: Object<'_>) -> Option<Refusal> {
    let abroad = kind == Kind::Ingress && cluster.namespace() != bucket.namespace();
    abroad.then(|| Refusal::kept(Said::failed(&["namespace"])))
}

/// Decision 5: a connect-only cluster has no Service, so exposure needs backendRef.
fn no_service(bucket: Object<'_>, site: &Site<'_>) -> Option<Refusal> {
    let own = !at(bucket.spec(), "/websiteExposure/backendRef").is_object();
    (own && site.connect_only).then(|| Refusal::kept(Said::failed(&["backendRef"])))
}

/// Decision 4: the alias that status records; reservations do not count.
fn recorded_alias<'a>(bucket: Object<'a>) -> Option<&'a str> {
    let reserved = |alias: &&str| alias.starts_with("garage-rsv-") || alias.starts_with("cosi-rsv-");
    text(bucket.status(), "/globalAlias").filter(|alias| !reserved(alias))
}

/// Namespace and name of the cluster of a bucket.
pub(crate) fn cluster_of<'a>(bucket: Object<'a>) -> (&'a str, &'a str) {
    let namespace = text(bucket.spec(), "/clusterRef/namespace").unwrap_or(bucket.namespace());
    let name = text(bucket.spec(), "/clusterRef/name").unwrap_or_default();
    (namespace, name)
}

/// A cluster that is there, Running and not being deleted.
pub(crate) fn usable_cluster<'a>(world: &World<'a>, namespace: &str, name: &str) -> Option<Object<'a>> {
    let served = world.is_served(GARAGE, "GarageCluster");
    let cluster = world.get(GARAGE, "GarageCluster", namespace, name)?;
    let running = text(cluster.status(), "/phase") == Some("Running");
    (served && running && !cluster.is_deleting()).then_some(cluster)
}

/// Row "cluster missing, not Running, deleting, not served": what stands is kept, a condition too if it says that the
/// selected kind is exposed or not ready. Lenient: whether it said so before is not known.
fn cluster_away(bucket: Object<'_>, kind: Kind, namespace: &str, name: &str) -> Refusal {
    let child = format!("{} {}/{}", kind.name(), bucket.namespace(), child_name(bucket));
    let stale = |said: Said| Said { stale: true, ..said };
    let cluster = format!("{namespace}/{name}");
    Refusal {
        said: vec![
            Said::failed(&[&cluster]),
            stale(Said::new("True", "Exposed", &[&child])),
            stale(Said::new("False", "NotReady", &[])),
        ],
        fate: Fate::Kept,
    }
}

/// Row "grant denied".
fn grant_denied(world: &World<'_>, bucket: Object<'_>) -> Result<Option<Refusal>, &'static str> {
    let granted = is_granted(world, bucket)?;
    let row = || Refusal::kept(Said::failed(&["GarageReferenceGrant"]));
    Ok((!granted).then(row))
}

/// Whether a bucket may use its cluster: the same namespace, or a GarageReferenceGrant there.
pub(crate) fn is_granted(world: &World<'_>, bucket: Object<'_>) -> Result<bool, &'static str> {
    let (namespace, name) = cluster_of(bucket);
    if namespace == bucket.namespace() {
        return Ok(true);
    }
    if !world.is_served(GARAGE, "GarageReferenceGrant") {
        return Err("exposure: GarageReferenceGrant is not served");
    }
    let labels = world.namespace_labels(bucket.namespace());
    let mut granted = false;
    for grant in world.all(GARAGE, "GarageReferenceGrant") {
        if grant.namespace() != namespace {
            continue;
        }
        let to = list(grant.spec(), "/to");
        let covers = |to: &Value| {
            text(to, "/kind") == Some("GarageCluster") && text(to, "/name").is_none_or(|to| to == name)
        };
        if !to.is_empty() && !to.iter().any(covers) {
            continue;
        }
        for from in list(grant.spec(), "/from") {
            let named = text(from, "/namespace");
            let selector = at(from, "/namespaceSelector");
            granted |= text(from, "/kind") == Some("GarageBucket")
                && match (named, selector.is_object()) {
                    (Some(named), false) => named == bucket.namespace(),
                    (None, true) => {
                        selects(selector, &labels).ok_or("exposure: unknown selector operator")?
                    }
                    // Both or neither: matches nothing.
                    _ => false,
                };
        }
    }
    Ok(granted)
}

/// The web API of a cluster.
struct Site<'a> {
    cluster: Object<'a>,
    connect_only: bool,
    unified: bool,
    enabled: bool,
    port: i64,
}

impl<'a> Site<'a> {
    fn of(cluster: Object<'a>) -> Result<Self, NotWanted> {
        let has = |field: &str| at(cluster.spec(), field).is_object();
        Ok(Self {
            cluster,
            connect_only: !has("/storage") && !has("/gateway"),
            unified: has("/storage") && has("/gateway"),
            enabled: at(cluster.spec(), "/webApi/enabled") != &Value::Bool(false),
            port: web_port(cluster.spec())?,
        })
    }

    /// Row "webApi.enabled false".
    fn web_off(&self) -> Option<Refusal> {
        (!self.enabled).then(|| Refusal::removed(Said::failed(&["webApi.enabled"])))
    }

    /// The root domain as Garage has it; a connect-only cluster has no default.
    fn root(&self) -> Option<String> {
        let spec = self.cluster.spec();
        let default = || format!(".{}.{}.svc", self.cluster.name(), self.cluster.namespace());
        match at(spec, "/webApi/rootDomain").as_str() {
            Some(root) => Some(root.to_owned()),
            None => (!self.connect_only).then(default),
        }
    }

    /// Decisions 2, 3, 5: the hostnames, and the host to rewrite to, if one needs it.
    fn hosts(
        &self,
        bucket: Object<'_>,
        kind: Kind,
        alias: &str,
    ) -> Result<(Vec<String>, Option<String>), Refusal> {
        let explicit = texts(bucket.spec(), "/websiteExposure/hostnames");
        let Some(root) = self.root() else {
            // Without a root domain only a bare alias without a dot is known to resolve.
            let bare =
                !explicit.is_empty() && explicit.iter().all(|host| host == alias && !host.contains('.'));
            return match bare {
                true => Ok((explicit, None)),
                false => Err(Refusal::kept(Said::failed(&["webApi.rootDomain"]))),
            };
        };
        if !hosts::is_root_domain(&root) {
            return Err(Refusal::kept(Said::failed(&["webApi.rootDomain"])));
        }
        let canonical = hosts::canonical(alias, &root);
        if !hosts::is_dns_name(&canonical) {
            // Lenient: alias or root domain, whichever is named.
            return Err(Refusal::kept(Said::failed(&["rootDomain", "lias", "hostname"])));
        }
        let hostnames = match explicit.is_empty() {
            true => vec![canonical.clone()],
            false => explicit,
        };
        let resolves = |host: &String| hosts::garage_alias(host, &root) == alias;
        match (kind, hostnames.iter().all(resolves)) {
            (_, true) => Ok((hostnames, None)),
            (Kind::HttpRoute, false) => Ok((hostnames, Some(canonical))),
            // I3: an Ingress rewrites nothing.
            (Kind::Ingress, false) => Err(Refusal::kept(Said::failed(&["hostnames"]))),
        }
    }
}

/// Decision 6: the port of bindAddress, else bindPort, else 3902.
fn web_port(spec: &Value) -> Result<i64, NotWanted> {
    let bind_port = at(spec, "/webApi/bindPort").as_i64().filter(|port| *port > 0);
    match text(spec, "/webApi/bindAddress") {
        None => Ok(bind_port.unwrap_or(3902)),
        Some(address) => {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let port = port.filter(|port| (1..=65535).contains(port));
            // Lenient: what an address without a port means is left open.
            port.ok_or(NotWanted::Skipped("exposure: webApi.bindAddress without a port"))
        }
    }
}

/// Decision 6: the cluster's own Service, or backendRef.
fn backend(bucket: Object<'_>, kind: Kind, site: &Site<'_>) -> Backend {
    let reference = at(bucket.spec(), "/websiteExposure/backendRef");
    let default_port = match kind {
        Kind::Ingress => Port::Name("web"),
        Kind::HttpRoute => Port::Number(site.port),
    };
    if !reference.is_object() {
        let suffix = if site.unified { "-gateway" } else { "" };
        return Backend {
            group: String::new(),
            kind: "Service".to_owned(),
            namespace: site.cluster.namespace().to_owned(),
            name: format!("{}{suffix}", site.cluster.name()),
            port: default_port,
        };
    }
    let field = |pointer: &str, default: &str| text(reference, pointer).unwrap_or(default).to_owned();
    Backend {
        group: field("/group", ""),
        kind: field("/kind", "Service"),
        namespace: field("/namespace", bucket.namespace()),
        name: field("/name", ""),
        port: at(reference, "/port").as_i64().map_or(default_port, Port::Number),
    }
}

/// Rows "ok", "foreign object", "own child terminating", "route parents not ready".
fn judge_wanted(world: &World<'_>, flags: &Flags, wanted: &Wanted<'_>, judgement: &mut Judgement) {
    let (bucket, kind) = (wanted.bucket, wanted.kind);
    let shown = format!("{} {}/{}", kind.name(), bucket.namespace(), wanted.name);
    let Some(child) = world.get(kind.group(), kind.name(), bucket.namespace(), &wanted.name) else {
        return judgement.check("exposure.child", bucket, false, shown, "nothing");
    };
    if !is_controlled(child, bucket) {
        return judge_foreign(wanted, child, &shown, judgement);
    }
    if child.is_deleting() {
        let said = Said::new("False", "NotReady", &[]);
        judge_condition(bucket, &[said], judgement);
        return judge_block_type(bucket, kind, judgement);
    }
    children::judge_child(flags, wanted, child, judgement);
    let exposed = Said::new("True", "Exposed", &[&shown]);
    let not_ready = Said::new("False", "NotReady", &[]);
    let allowed = match kind {
        Kind::Ingress => vec![exposed],
        Kind::HttpRoute => match children::readiness(child) {
            Readiness::Ready => vec![exposed],
            Readiness::NotReady => vec![not_ready],
            Readiness::Either => vec![exposed, not_ready],
        },
    };
    judge_condition(bucket, &allowed, judgement);
    judge_block(wanted, child, judgement);
}

/// Row "foreign object": refused, named, and untouched. An object that is handed over by annotation is taken.
fn judge_foreign(wanted: &Wanted<'_>, child: Object<'_>, shown: &str, judgement: &mut Judgement) {
    let bucket = wanted.bucket;
    let handed = child.annotation("routewright.dev/adopt") == Some(bucket.uid());
    if handed && child.controller().is_none() && !child.is_deleting() {
        return judgement.check(
            "exposure.adopt",
            bucket,
            false,
            format!("{shown} taken over"),
            "ownerless",
        );
    }
    judge_condition(bucket, &[Said::failed(&[&wanted.name])], judgement);
    judge_block_type(bucket, wanted.kind, judgement);
}

/// The status block of a child that stands: type, name, hostnames, and addresses or parents.
fn judge_block(wanted: &Wanted<'_>, child: Object<'_>, judgement: &mut Judgement) {
    let block = at(wanted.bucket.status(), "/websiteExposure");
    let mut expected = vec![
        ("type", Value::from(wanted.kind.name())),
        ("name", Value::from(wanted.name.clone())),
        ("hostnames", Value::from(wanted.hostnames.clone())),
    ];
    match wanted.kind {
        Kind::Ingress => expected.push(("addresses", Value::from(children::addresses(child)))),
        Kind::HttpRoute => expected.push(("parents", children::parents(child))),
    }
    for (field, expected) in expected {
        let found = block.get(field).unwrap_or(&Value::Null);
        let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let fits = (is_empty(found) && is_empty(&expected)) || fits_block(found, &expected);
        judgement.check(
            "exposure.block",
            wanted.bucket,
            fits,
            format!("{field}: {expected}"),
            found,
        );
    }
}

/// Whether every expected field has its value; lists have equal length. Messages of parents are not compared.
fn fits_block(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found
                    .iter()
                    .zip(expected)
                    .all(|(found, expected)| fits_block(found, expected))
        }
        (Value::Object(_), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| match (value, found.get(key)) {
                // A flag that no entry tells may be left out.
                (Value::Bool(false), None) => true,
                // Lenient: the reading is open.
                (Value::Null, _) => true,
                (value, found) => found.is_some_and(|found| fits_block(found, value)),
            })
        }
        _ => found == expected,
    }
}

/// For messages: the kinds.
pub(crate) fn kinds() -> String {
    either(Kind::ALL.map(Kind::name))
}
