//! Buckets in Garage and the handles that lead there: condition `Ready` and phase by the tables of reasons, and what
//! Garage holds.
//!
//! If several reasons hold at once, the oracle accepts each of them. Lenient: the tables give no order.

use serde_json::Value;

use super::{
    Judgement,
    exposure::{cluster_of, is_granted, usable_cluster},
    snapshot::{Flags, GARAGE, GarageBucket, Object, Quotas, Website, World, at, list, secret_value, text},
};

const FINALIZER: &str = "routewright.dev/garage-bucket";
const RESERVATION: &str = "garage-rsv-";
const RESERVATION_ANNOTATION: &str = "garage.rajsingh.info/bucket-reservation-alias";

/// Judges handles, buckets and what Garage holds.
pub(crate) fn judge(world: &World<'_>, judgement: &mut Judgement) {
    let installations = &world.snapshot.installations;
    if !installations.iter().any(|flags| flags.enable_garage_buckets) {
        return;
    }
    for (group, kind) in [(GARAGE, "GarageCluster"), (GARAGE, "GarageBucket")] {
        if !world.is_served(group, kind) {
            return judgement.skip("buckets: GarageBucket or GarageCluster is not served");
        }
    }
    for cluster in world.all(GARAGE, "GarageCluster") {
        if let Some(flags) = manager_of(world, cluster, judgement) {
            judge_handle(world, flags, cluster, judgement);
        }
    }
    for bucket in world.all(GARAGE, "GarageBucket") {
        if let Some(flags) = manager_of(world, bucket, judgement) {
            match forbidden(flags, bucket) {
                Some(reason) => judgement.skip(reason),
                None if bucket.is_deleting() => judge_deleted(world, flags, bucket, judgement),
                None => judge_bucket(world, flags, bucket, judgement),
            }
        }
    }
    judge_reservations(world, judgement);
    judge_gone(world, judgement);
}

/// The installation that manages buckets of the object's namespace, if it is one.
fn manager_of<'a>(world: &World<'a>, object: Object<'_>, judgement: &mut Judgement) -> Option<&'a Flags> {
    let all = world.snapshot.installations.iter();
    let managing: Vec<&Flags> = all
        .filter(|flags| flags.enable_garage_buckets && flags.watches(object.namespace()))
        .collect();
    match managing.as_slice() {
        [] => None,
        [flags] => Some(flags),
        _ => {
            judgement.skip("buckets: several installations manage the object");
            None
        }
    }
}

/// States of a bucket that forbid a judgement.
fn forbidden(flags: &Flags, bucket: Object<'_>) -> Option<&'static str> {
    let foreign = |finalizer: &String| {
        let of_kubernetes = ["foregroundDeletion", "orphan"].contains(&finalizer.as_str());
        !of_kubernetes && !finalizer.starts_with("routewright.dev/")
    };
    if !at(bucket.spec(), "/clusterRef/kubeConfigSecretRef").is_null() {
        Some("buckets: a field that is not supported")
    } else if bucket.finalizers().iter().any(foreign) {
        Some("buckets: another operator's finalizer")
    } else if is_written_by_another(bucket) {
        Some("buckets: another manager owns the condition")
    } else if bucket.annotation("routewright.dev/reconcile") == Some("paused") {
        // Lenient: whether a pause holds for the bucket in Garage is left open.
        Some("buckets: paused")
    } else if !flags.watches(cluster_of(bucket).0) {
        Some("buckets: the cluster's namespace is not watched")
    } else {
        None
    }
}

/// Whether another operator's field manager owns condition or phase.
fn is_written_by_another(object: Object<'_>) -> bool {
    // A key that stays the same stays the operator's when another client writes the rest.
    let condition = |field| ["f:status", "f:conditions", "k:{\"type\":\"Ready\"}", field];
    let phase = ["f:status", "f:phase"];
    // Who owns it as well keeps it as it is, too.
    let another = |path: &[&str]| {
        let mut managers = object.managers_of(path).into_iter();
        managers.any(|manager| !manager.starts_with("routewright-"))
    };
    let condition = ["f:status", "f:reason", "f:message"].map(condition);
    condition.iter().any(|path| another(path)) || another(&phase)
}

/// What the condition `Ready` and the phase may say.
#[derive(Clone, Debug)]
struct Said {
    status: &'static str,
    reason: &'static str,
    /// Phases that go with it; empty for any.
    phases: &'static [&'static str],
}

const fn said(status: &'static str, reason: &'static str, phases: &'static [&'static str]) -> Said {
    Said {
        status,
        reason,
        phases,
    }
}

fn judge_said(rule: &'static str, object: Object<'_>, allowed: &[Said], judgement: &mut Judgement) {
    let ready = object.condition("Ready").unwrap_or(&Value::Null);
    let phase = text(object.status(), "/phase").unwrap_or_default();
    let fits = |said: &&Said| {
        text(ready, "/status") == Some(said.status)
            && text(ready, "/reason") == Some(said.reason)
            && (said.phases.is_empty() || said.phases.contains(&phase))
    };
    let current = at(ready, "/observedGeneration").as_i64() == Some(object.generation());
    let shown: Vec<String> = allowed
        .iter()
        .map(|said| format!("{}/{} in phase {:?}", said.status, said.reason, said.phases))
        .collect();
    judgement.check(
        rule,
        object,
        current && allowed.iter().any(|said| fits(&said)),
        format!("{} at generation {}", shown.join(", or "), object.generation()),
        format!("phase {phase}, {ready}"),
    );
}

// ---- handles --------------------------------------------------------------------------------------------------------

/// Where a cluster's Admin API is, and the object and key of its token.
struct Reach<'a> {
    url: String,
    cluster: Object<'a>,
    secret: String,
    key: String,
}

/// Why there is no way to a Garage: the handle's reason.
type NoReach = &'static str;

/// A connect-only cluster: Running when its Admin API answers, else Pending with the reason.
fn judge_handle(world: &World<'_>, flags: &Flags, cluster: Object<'_>, judgement: &mut Judgement) {
    let has = |field: &str| at(cluster.spec(), field).is_object();
    if has("/storage") || has("/gateway") || !has("/connectTo") {
        return;
    }
    if cluster.is_deleting() {
        return judgement.skip("handles: being deleted");
    }
    if is_written_by_another(cluster) {
        return judgement.skip("handles: another manager owns the status");
    }
    const PENDING: &[&str] = &["Pending"];
    const RUNNING: &[&str] = &["Running"];
    let allowed = match reach(world, flags, cluster).and_then(|reach| token(world, &reach).map(|()| reach)) {
        Err(reason) => vec![said("False", reason, PENDING)],
        // Lenient: whether Garage takes the token is not in the snapshot.
        Ok(reach) => match place_at(world, flags, &reach) {
            Some(_) => vec![
                said("True", "AdminAPIReachable", RUNNING),
                said("False", "Unauthorized", PENDING),
            ],
            None => vec![
                said("False", "AdminAPIUnreachable", PENDING),
                said("False", "NotGarage", PENDING),
                said("False", "Unauthorized", PENDING),
            ],
        },
    };
    judge_said("handles.ready", cluster, &allowed, judgement);
}

/// The Admin API of a cluster, through `connectTo.clusterRef` if the handle has no address of its own.
fn reach<'a>(world: &World<'a>, flags: &Flags, cluster: Object<'a>) -> Result<Reach<'a>, NoReach> {
    let mut cluster = cluster;
    for _ in 0..8 {
        let connect = at(cluster.spec(), "/connectTo");
        let tiers = at(cluster.spec(), "/storage").is_object() || at(cluster.spec(), "/gateway").is_object();
        if tiers {
            let reference = at(cluster.spec(), "/admin/adminTokenSecretRef");
            return with_token(cluster, tier_url(flags, cluster), reference);
        }
        if let Some(url) = text(connect, "/adminApiEndpoint") {
            let fine = url.starts_with("http://") || url.starts_with("https://");
            if !fine || url.contains(['@', '?', '#']) {
                return Err("InvalidSpec");
            }
            return with_token(cluster, url.to_owned(), at(connect, "/adminTokenSecretRef"));
        }
        let name = text(connect, "/clusterRef/name").ok_or("InvalidSpec")?;
        let namespace = text(connect, "/clusterRef/namespace").unwrap_or(cluster.namespace());
        if namespace != cluster.namespace() {
            return Err("InvalidSpec");
        }
        let next = world.get(GARAGE, "GarageCluster", namespace, name);
        cluster = next.ok_or("ClusterNotFound")?;
    }
    // A circle.
    Err("InvalidSpec")
}

fn with_token<'a>(cluster: Object<'a>, url: String, reference: &Value) -> Result<Reach<'a>, NoReach> {
    Ok(Reach {
        url,
        cluster,
        secret: text(reference, "/name").ok_or("InvalidSpec")?.to_owned(),
        key: text(reference, "/key").unwrap_or("admin-token").to_owned(),
    })
}

/// The Service of a cluster with tiers.
fn tier_url(flags: &Flags, cluster: Object<'_>) -> String {
    let admin = at(cluster.spec(), "/admin");
    let bound = text(admin, "/bindAddress").and_then(|address| address.rsplit_once(':'));
    let port = bound
        .and_then(|(_, port)| port.parse::<u16>().ok())
        .map(i64::from)
        .or(at(admin, "/bindPort").as_i64())
        .unwrap_or(3903);
    let (name, namespace) = (cluster.name(), cluster.namespace());
    format!("http://{name}.{namespace}.svc.{}:{port}", flags.cluster_domain)
}

/// Whether the token is there and can be one.
fn token(world: &World<'_>, reach: &Reach<'_>) -> Result<(), NoReach> {
    let secret = world.get("", "Secret", reach.cluster.namespace(), &reach.secret);
    let value = secret.and_then(|secret| secret_value(secret, &reach.key));
    let value = value.ok_or("TokenNotFound")?;
    let trimmed = value.trim_ascii();
    match trimmed.is_empty() || !trimmed.iter().all(u8::is_ascii_graphic) {
        true => Err("InvalidToken"),
        false => Ok(()),
    }
}

/// The buckets of the Garage that a way leads to; `None` if none answers there.
fn place_at<'a>(
    world: &World<'a>,
    flags: &Flags,
    reach: &Reach<'_>,
) -> Option<(&'a str, &'a [GarageBucket])> {
    let url = normal_url(flags, &reach.url);
    let object = format!("{}/{}", reach.cluster.namespace(), reach.cluster.name());
    let mut places = world.snapshot.garage.iter();
    let found = places.find(|(key, _)| normal_url(flags, key) == url || **key == object);
    found.map(|(key, buckets)| (key.as_str(), buckets.as_slice()))
}

/// A URL without its trailing slash and with the short name of a Service.
fn normal_url(flags: &Flags, url: &str) -> String {
    let long = format!(".svc.{}", flags.cluster_domain);
    url.trim_end_matches('/')
        .replace(&long, ".svc")
        .to_ascii_lowercase()
}

// ---- buckets --------------------------------------------------------------------------------------------------------

const FAILED: &[&str] = &["Failed"];
const ANY: &[&str] = &[];

/// A living bucket: one of the reasons that hold, or Ready with Garage as wanted.
fn judge_bucket(world: &World<'_>, flags: &Flags, bucket: Object<'_>, judgement: &mut Judgement) {
    let mut must = spec_faults(bucket);
    let recorded = text(bucket.status(), "/bucketId");
    match is_granted(world, bucket) {
        Err(reason) => return judgement.skip(reason),
        // A bucket that is there keeps its phase. Lenient: for a denied grant the table does not say so.
        Ok(false) => must.push(said(
            "False",
            "GrantDenied",
            if recorded.is_some() { ANY } else { FAILED },
        )),
        Ok(true) => {}
    }
    let (namespace, name) = cluster_of(bucket);
    let reach = usable_cluster(world, namespace, name)
        .and_then(|cluster| reach(world, flags, cluster).ok())
        .filter(|reach| token(world, reach).is_ok());
    let Some(reach) = reach else {
        let phases: &[&str] = if recorded.is_some() { ANY } else { &["Pending"] };
        must.push(said("False", "ClusterNotReady", phases));
        return judge_said("buckets.ready", bucket, &must, judgement);
    };
    if usable_cluster(world, namespace, name).is_some_and(is_written_by_another) {
        // It may say Running of a Garage that refuses the token.
        return judgement.skip("buckets: another manager owns the cluster's status");
    }
    let Some((place, held)) = place_at(world, flags, &reach) else {
        return judgement.skip("buckets: no Garage answers");
    };
    let mut may = Vec::new();
    garage_faults(world, flags, bucket, (place, held), &mut must, &mut may);
    match must.is_empty() {
        false => {
            must.append(&mut may);
            judge_said("buckets.ready", bucket, &must, judgement);
        }
        true => {
            let mut allowed = vec![said("True", "BucketReady", &["Ready"])];
            let open = !may.is_empty();
            allowed.append(&mut may);
            judge_said("buckets.ready", bucket, &allowed, judgement);
            let ready = bucket.condition("Ready").and_then(|ready| text(ready, "/status")) == Some("True");
            if ready || !open {
                judge_held(bucket, held, judgement);
            }
        }
    }
}

/// Reasons that follow from the object alone.
fn spec_faults(bucket: Object<'_>) -> Vec<Said> {
    let spec = bucket.spec();
    let mut faults = Vec::new();
    let mut fault = |holds: bool, reason: &'static str| {
        if holds {
            faults.push(said("False", reason, FAILED));
        }
    };
    let recorded = text(bucket.status(), "/bucketId");
    let asked = text(spec, "/bucketId");
    fault(
        at(spec, "/clusterRef/kubeConfigSecretRef").is_object(),
        "InvalidSpec",
    );
    let unmanaged = ["/keyPermissions", "/localAliases"];
    fault(
        unmanaged.iter().any(|field| !list(spec, field).is_empty()),
        "Unsupported",
    );
    fault(!is_alias(wanted_alias(bucket)), "InvalidAlias");
    fault(
        [recorded, asked].iter().flatten().any(|id| !is_bucket_id(id)),
        "InvalidBucketId",
    );
    let differ = matches!((recorded, asked), (Some(recorded), Some(asked)) if recorded != asked);
    fault(differ, "BucketIdChanged");
    fault(quotas(spec).is_err(), "InvalidQuota");
    faults
}

/// Reasons that follow from what Garage holds and what other objects record. `may`: the contract leaves it open.
fn garage_faults(
    world: &World<'_>,
    flags: &Flags,
    bucket: Object<'_>,
    (place, held): (&str, &[GarageBucket]),
    must: &mut Vec<Said>,
    may: &mut Vec<Said>,
) {
    let recorded = text(bucket.status(), "/bucketId");
    let asked = text(bucket.spec(), "/bucketId");
    let own = recorded.or(asked);
    let exists = |id: &str| held.iter().any(|bucket| bucket.id == id);
    match (recorded, asked) {
        (Some(id), asked) if !exists(id) => {
            must.push(said("False", "BucketLost", FAILED));
            if asked.is_some() {
                may.push(said("False", "BucketNotFound", FAILED));
            }
        }
        (None, Some(id)) if !exists(id) => must.push(said("False", "BucketNotFound", FAILED)),
        _ => {}
    }
    if asked.is_some() {
        // Objects in a bucket that was made before spec.bucketId was set.
        may.push(said("False", "BucketNotEmpty", FAILED));
    }
    match own.map(|id| claim(world, flags, bucket, place, id)) {
        Some(Claim::Another) => must.push(said("False", "BucketClaimed", FAILED)),
        Some(Claim::Open) => may.push(said("False", "BucketClaimed", FAILED)),
        _ => {}
    }
    let alias = wanted_alias(bucket);
    let has_alias = |bucket: &GarageBucket| bucket.aliases.iter().any(|one| one == alias);
    let taken = held
        .iter()
        .any(|other| has_alias(other) && Some(other.id.as_str()) != own);
    if taken {
        must.push(said("False", "AliasTaken", FAILED));
    }
}

/// Whose a bucket in Garage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Own,
    Another,
    /// Lenient: the other object is being deleted, cannot be placed, or adopts and does not record yet.
    Open,
}

/// Of the objects that record an id the oldest living one has the bucket, then by namespace and name.
fn claim(world: &World<'_>, flags: &Flags, bucket: Object<'_>, place: &str, id: &str) -> Claim {
    let mut claim = Claim::Own;
    for rival in world.all(GARAGE, "GarageBucket") {
        let same = rival.uid() == bucket.uid();
        let records = text(rival.status(), "/bucketId") == Some(id);
        if same || !(records || text(rival.spec(), "/bucketId") == Some(id)) {
            continue;
        }
        let (namespace, name) = cluster_of(rival);
        let cluster = world.get(GARAGE, "GarageCluster", namespace, name);
        let theirs = cluster
            .and_then(|cluster| reach(world, flags, cluster).ok())
            .and_then(|reach| place_at(world, flags, &reach));
        let recorded = text(bucket.status(), "/bucketId") == Some(id);
        match theirs {
            Some((theirs, _)) if theirs != place => {}
            Some(_) if !flags.watches(rival.namespace()) => claim = Claim::Open,
            Some(_) if rival.is_deleting() || !records => claim = Claim::Open,
            Some(_) if !recorded || rival.seniority() < bucket.seniority() => return Claim::Another,
            Some(_) => {}
            None => claim = Claim::Open,
        }
    }
    claim
}

fn wanted_alias<'a>(bucket: Object<'a>) -> &'a str {
    text(bucket.spec(), "/globalAlias").unwrap_or(bucket.name())
}

/// Garage's rules of an alias, without reservations.
fn is_alias(alias: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    (3..=63).contains(&alias.len())
        && alias.chars().all(inner)
        && edge(alias.chars().next())
        && edge(alias.chars().last())
        && alias.parse::<std::net::IpAddr>().is_err()
        && !alias.split('.').any(|label| label.starts_with("xn--"))
        && !alias.ends_with("-s3alias")
        && !alias.starts_with(RESERVATION)
        && !alias.starts_with("cosi-rsv-")
}

fn is_bucket_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Limits as Garage has them. `Ok(None)`: a size that is no whole number of bytes. `Err`: no size, or negative.
fn quotas(spec: &Value) -> Result<Option<Quotas>, ()> {
    let max_objects = match at(spec, "/quotas/maxObjects") {
        Value::Null => None,
        value => Some(value.as_u64().ok_or(())?),
    };
    let max_size = match at(spec, "/quotas/maxSize") {
        Value::Null => None,
        Value::Number(number) => Some(number.as_u64().ok_or(())?),
        Value::String(text) => match bytes_of(text)? {
            Some(bytes) => Some(bytes),
            None => return Ok(None),
        },
        _ => return Err(()),
    };
    Ok(Some(Quotas {
        max_size,
        max_objects,
    }))
}

/// Bytes of a quantity: digits with a fraction, and a binary or decimal suffix or an exponent.
fn bytes_of(quantity: &str) -> Result<Option<u64>, ()> {
    let end = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(drop)?;
    let factor: u128 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1000_u128.pow(2),
        "G" => 1000_u128.pow(3),
        "T" => 1000_u128.pow(4),
        "P" => 1000_u128.pow(5),
        "E" => 1000_u128.pow(6),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        "m" | "u" | "n" => return Ok(None),
        other => {
            let exponent = other.strip_prefix(['e', 'E']).ok_or(())?;
            let exponent: u32 = exponent.trim_start_matches('+').parse().map_err(drop)?;
            10_u128.checked_pow(exponent).ok_or(())?
        }
    };
    let scale = 10_u128
        .checked_pow(u32::try_from(fraction.len()).map_err(drop)?)
        .ok_or(())?;
    let scaled = digits.checked_mul(factor).ok_or(())?;
    Ok((scaled % scale == 0)
        .then_some(scaled / scale)
        .and_then(|bytes| u64::try_from(bytes).ok()))
}

/// Row Ready: Garage has the bucket with alias, website and quotas, and status says so.
fn judge_held(bucket: Object<'_>, held: &[GarageBucket], judgement: &mut Judgement) {
    let status = bucket.status();
    let id = text(status, "/bucketId").unwrap_or_default();
    let found = held.iter().find(|found| found.id == id);
    judgement.check(
        "garage.bucket",
        bucket,
        found.is_some(),
        "one bucket in Garage",
        format!("id {id:?}"),
    );
    let has_finalizer = bucket.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    judgement.check("buckets.finalizer", bucket, has_finalizer, FINALIZER, "none");
    let Some(found) = found else { return };
    let alias = wanted_alias(bucket);
    judgement.check(
        "garage.alias",
        bucket,
        found.aliases.iter().any(|one| one == alias),
        alias,
        found.aliases.join(", "),
    );
    let recorded = text(status, "/globalAlias").unwrap_or_default();
    judgement.check(
        "buckets.status",
        bucket,
        recorded == alias,
        format!("globalAlias {alias}"),
        recorded,
    );
    let website = website(bucket.spec());
    judgement.check(
        "garage.website",
        bucket,
        found.website == website,
        format!("{website:?}"),
        format!("{:?}", found.website),
    );
    let told = at(status, "/websiteEnabled").as_bool().unwrap_or_default();
    judgement.check(
        "buckets.status",
        bucket,
        told == website.is_some(),
        format!("websiteEnabled {}", website.is_some()),
        told,
    );
    match quotas(bucket.spec()) {
        Ok(Some(quotas)) => judgement.check(
            "garage.quotas",
            bucket,
            found.quotas == quotas,
            format!("{quotas:?}"),
            format!("{:?}", found.quotas),
        ),
        // Lenient: how a fraction of a byte is rounded is left open.
        _ => judgement.skip("buckets: a quota that is no whole number"),
    }
}

fn website(spec: &Value) -> Option<Website> {
    let website = at(spec, "/website");
    let enabled = at(website, "/enabled") == &Value::Bool(true);
    enabled.then(|| Website {
        index: text(website, "/indexDocument").unwrap_or("index.html").to_owned(),
        error: text(website, "/errorDocument").map(str::to_owned),
    })
}

// ---- deletion -------------------------------------------------------------------------------------------------------

/// A bucket that is being deleted is there only while its bucket in Garage holds objects, or Garage cannot be asked.
fn judge_deleted(world: &World<'_>, flags: &Flags, bucket: Object<'_>, judgement: &mut Judgement) {
    if !bucket.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return judgement.skip("buckets: being deleted, and released by us");
    }
    let mut released = |because: &str| {
        judgement.check(
            "buckets.release",
            bucket,
            false,
            format!("released: {because}"),
            "our finalizer",
        );
    };
    match text(bucket.spec(), "/deletionPolicy") {
        None | Some("Delete") => {}
        _ => return released("deletionPolicy is not Delete"),
    }
    let (namespace, name) = cluster_of(bucket);
    let reach = usable_cluster(world, namespace, name)
        .and_then(|cluster| reach(world, flags, cluster).ok())
        .filter(|reach| token(world, reach).is_ok());
    let Some((place, held)) = reach.and_then(|reach| place_at(world, flags, &reach)) else {
        return judgement.skip("buckets: being deleted while Garage cannot be asked");
    };
    let id = text(bucket.status(), "/bucketId").unwrap_or_default();
    let found = held.iter().find(|found| found.id == id);
    let reason = bucket.condition("Ready").and_then(|ready| text(ready, "/reason"));
    if found.is_none() && reason == Some("CreationUnanswered") {
        return judgement.skip("buckets: a creation was not answered");
    }
    match found {
        None => released("Garage has no such bucket"),
        Some(found) if found.objects == 0 => released("the bucket in Garage is empty"),
        Some(_) => match claim(world, flags, bucket, place, id) {
            Claim::Own => judge_said(
                "buckets.release",
                bucket,
                &[said("False", "BucketNotEmpty", &["Deleting"])],
                judgement,
            ),
            Claim::Another => released("another object has the bucket"),
            Claim::Open => judgement.skip("buckets: being deleted with an open claim"),
        },
    }
}

/// No reservation alias is left in a Garage, but for a creation that goes on.
fn judge_reservations(world: &World<'_>, judgement: &mut Judgement) {
    let objects = world.all(GARAGE, "GarageBucket");
    let is_going_on = |alias: &str| {
        objects.iter().any(|object| {
            let ready = object.condition("Ready").and_then(|ready| text(ready, "/status"));
            object.annotation(RESERVATION_ANNOTATION) == Some(alias) && ready != Some("True")
        })
    };
    for (place, held) in &world.snapshot.garage {
        for bucket in held {
            let leaked = |alias: &&String| alias.starts_with(RESERVATION) && !is_going_on(alias);
            let leaked = bucket.aliases.iter().find(leaked);
            judgement.check(
                "garage.reservation",
                format!("bucket {} at {place}", bucket.id),
                leaked.is_none(),
                "no reservation alias",
                leaked.cloned().unwrap_or_default(),
            );
        }
    }
}

/// Deleted objects: with Retain the bucket stays, else it is gone unless another object has it.
fn judge_gone(world: &World<'_>, judgement: &mut Judgement) {
    for gone in &world.snapshot.gone {
        let Some(held) = world.snapshot.garage.get(&gone.place) else {
            judgement.skip("buckets: gone, and no Garage answers");
            continue;
        };
        let stands = held.iter().any(|bucket| bucket.id == gone.id);
        let object = format!("GarageBucket {}", gone.object);
        if gone.retain {
            judgement.check(
                "garage.retained",
                object,
                stands,
                "the bucket stays",
                "it is gone",
            );
            continue;
        }
        let lives_on = world.all(GARAGE, "GarageBucket").into_iter().any(|bucket| {
            let ids = [
                text(bucket.status(), "/bucketId"),
                text(bucket.spec(), "/bucketId"),
            ];
            ids.contains(&Some(gone.id.as_str()))
        });
        judgement.check(
            "garage.deleted",
            object,
            !stands || lives_on,
            format!("no bucket {}", gone.id),
            "it stands",
        );
    }
}
