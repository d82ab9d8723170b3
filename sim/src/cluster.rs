//! What happens to a whole cluster and to whole installations: upgrades, Leases that other clients edit, namespaces that end,
//! CRDs of another release. As data, how it is drawn, and how it is done. What goes wrong with single requests is `net`'s.

use std::{fmt, time::Duration};

use http::Method;
use serde_json::{Value, json};

use crate::{
    history::{Action, Target},
    judge::OPERATOR_NAMESPACE,
    random::Random,
    universe,
    world::{Flags, World},
};

/// Something that happens to the cluster or to an installation.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The chart is applied with other values: rights change at once, replicas restart one after the other.
    Upgrade {
        /// Number of the installation.
        installation: usize,
        /// The new flags.
        flags: Flags,
        /// Seconds between two restarts.
        pause: u64,
        /// One more replica runs meanwhile.
        surge: bool,
    },
    /// A user deletes the Lease.
    LeaseDeleted {
        /// Number of the installation.
        installation: usize,
    },
    /// A user edits the Lease (a merge patch).
    LeaseEdited {
        /// Number of the installation.
        installation: usize,
        /// How.
        patch: Value,
    },
    /// A stranger takes the Lease and renews it for a while, without asking who holds it.
    LeaseContested {
        /// Number of the installation.
        installation: usize,
        /// For how long, in seconds.
        seconds: u64,
    },
    /// A user deletes a namespace: its objects go one by one, in any order.
    NamespaceDeleted {
        /// Its name.
        namespace: &'static str,
        /// Seconds until the last object is deleted.
        seconds: u64,
        /// Seconds from then on until users make it anew.
        back: u64,
        /// Decides the order.
        order: u64,
    },
    /// A CRD is replaced by one without a field, and comes back.
    FieldLost {
        /// Name of the CRD.
        crd: &'static str,
        /// The field, as its names joined by dots.
        field: &'static str,
        /// For how long, in seconds.
        seconds: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upgrade {
                installation, flags, ..
            } => write!(f, "installation {installation} is upgraded to {flags:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What follows from an event later.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// A replica is stopped in good order.
    Restart(usize, usize),
    /// The replica that came for the upgrade goes.
    Retire(usize),
    /// The stranger renews the Lease.
    Renew(usize),
    /// The next object of a namespace is deleted.
    DeleteOne(&'static str, u64),
    /// Everything else of a namespace is deleted, and it goes when it is empty.
    DeleteRest(&'static str),
    /// Users make a namespace anew, with what the platform team keeps in it.
    NamespaceBack(&'static str),
    /// A CRD is as it was.
    FieldBack(&'static str),
}

/// Who holds a Lease and is no replica.
const STRANGER: &str = "stranger";
/// A Lease that lasts longer has to be mended by hand.
const MENDED_BY_HAND: u64 = 300;

/// Fields that CRDs of older releases do not have.
const FIELDS: [(&str, &str); 8] = [
    (BUCKETS, "spec.websiteExposure"),
    (BUCKETS, "spec.websiteExposure.hostnames"),
    (BUCKETS, "spec.websiteExposure.backendRef"),
    (BUCKETS, "spec.quotas"),
    (BUCKETS, "status.websiteExposure"),
    (BUCKETS, "status.websiteEnabled"),
    (CLUSTERS, "spec.connectTo"),
    (CLUSTERS, "spec.webApi"),
];
const BUCKETS: &str = "garagebuckets.garage.rajsingh.info";
const CLUSTERS: &str = "garageclusters.garage.rajsingh.info";

const NAMESPACES: [&str; 5] = ["web", "shop", "evil", "infra", "tyk"];

/// The namespaces that an installation is limited to, mostly none.
pub fn watched(random: &mut Random) -> Option<Vec<String>> {
    let some: &[&str] = match random.below(24) {
        0 => &["web"],
        1 => &["web", "shop"],
        2 => &["evil"],
        3 => &["evil", "web"],
        _ => return None,
    };
    Some(some.iter().map(|&one| one.to_owned()).collect())
}

/// Draws something.
pub fn draw(random: &mut Random, installations: &[(Flags, usize)]) -> Action {
    let installation = usize::try_from(random.below(installations.len() as u64)).unwrap_or(0);
    Action::Cluster(match random.below(12) {
        0..=3 => {
            // Beside a release for Tyk alone nothing may be switched on a second time.
            let flags = if installation == 0 {
                other_flags(random, installations)
            } else {
                installations[installation].0.clone()
            };
            Event::Upgrade {
                installation,
                flags,
                pause: random.between(1, 60),
                surge: random.chance(1, 2),
            }
        }
        4 => Event::LeaseDeleted { installation },
        5 | 6 => Event::LeaseEdited {
            installation,
            patch: lease_edit(random, &installations[installation]),
        },
        7 => Event::LeaseContested {
            installation,
            seconds: random.between(1, 120),
        },
        8 => Event::NamespaceDeleted {
            namespace: *random.pick(&NAMESPACES),
            seconds: random.between(1, 60),
            back: random.between(1, 90),
            order: random.below(u64::MAX),
        },
        9 => {
            let (crd, field) = *random.pick(&FIELDS);
            Event::FieldLost {
                crd,
                field,
                seconds: random.between(1, 200),
            }
        }
        _ => return status_edit(random),
    })
}

/// The flags that an installation began with, or with one or two of them turned.
fn other_flags(random: &mut Random, installations: &[(Flags, usize)]) -> Flags {
    let mut flags = installations[0].0.clone();
    if random.chance(1, 3) {
        return flags;
    }
    for _ in 0..random.between(1, 3) {
        match random.below(5) {
            0 => flags.ingress = !flags.ingress,
            1 => flags.gateway_api = !flags.gateway_api,
            2 => flags.buckets = !flags.buckets,
            3 => {
                let used = |name: &str| {
                    let others = installations.iter().skip(1);
                    others
                        .into_iter()
                        .any(|(other, _)| other.tyk.as_deref() == Some(name))
                };
                let free = universe::CONTROLLERS.into_iter().find(|name| !used(name));
                flags.tyk = match flags.tyk {
                    Some(_) => None,
                    None => free.map(str::to_owned),
                };
            }
            _ => flags.namespaces = watched(random),
        }
    }
    // The chart refuses both.
    if flags.tyk.is_some() {
        flags.namespaces = None;
    }
    flags
}

fn lease_edit(random: &mut Random, (flags, replicas): &(Flags, usize)) -> Value {
    let spec = match random.below(9) {
        0 => json!({"holderIdentity": null}),
        1 => json!({"holderIdentity": ""}),
        2 => json!({"holderIdentity": STRANGER}),
        3 => json!({"holderIdentity": STRANGER, "leaseDurationSeconds": 100_000}),
        4 => json!({"leaseDurationSeconds": random.pick(&[1, 100_000])}),
        5 => json!({"renewTime": random.pick(&[json!("2200-01-01T00:00:00.000000Z"), Value::Null])}),
        6 => json!({"leaseTransitions": random.pick(&[json!(i32::MAX), Value::Null])}),
        7 => json!({"holderIdentity": format!("{}-{}-1", flags.instance, random.below(*replicas as u64))}),
        _ => return json!({"metadata": {"labels": {"team": "web"}, "finalizers": null}}),
    };
    json!({"spec": spec})
}

/// A status that a tenant writes, who may write the status of own objects, or that a backup tool brings back.
fn status_edit(random: &mut Random) -> Action {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Forged", "message": "forged",
               "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let bucket = |name: &str| ("GarageBucket", "web", name.to_owned());
    let route = |random: &mut Random| {
        let (namespace, name) = *random.pick(&[("shop", "a"), ("shop", "b"), ("shop", "c"), ("evil", "d")]);
        ("HTTPRoute", namespace, name.to_owned())
    };
    let entry = |gateway: &str, controller: &str, status: &str| {
        json!({"parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": gateway},
               "controllerName": controller, "conditions": [condition("Accepted", status), condition("ResolvedRefs", status)]})
    };
    let ours = universe::CONTROLLERS[0];
    let status = *random.pick(&["True", "False", "Unknown"]);
    let (target, status) = match random.below(9) {
        0 => (route(random), json!({"parents": []})),
        1 => (route(random), json!({"parents": [entry("edge", ours, status)]})),
        2 => (route(random), json!({"parents": [entry("none", ours, status)]})),
        3 => (
            route(random),
            json!({"parents": [entry("edge", "example.org/other", status), entry("edge", ours, status)]}),
        ),
        4 => (
            ("Gateway", "infra", "edge".to_owned()),
            json!({"conditions": [condition("Accepted", status), condition("Programmed", status), condition("Mine", status)]}),
        ),
        5 => (
            ("Gateway", "infra", "inner".to_owned()),
            random
                .pick(&[
                    json!({"listeners": []}),
                    json!({"addresses": null, "listeners": null}),
                ])
                .clone(),
        ),
        6 => (
            bucket(*random.pick(&["blog", "docs"])),
            json!({"conditions": [condition("WebsiteExposed", status)], "websiteExposure": null}),
        ),
        7 => (
            bucket(*random.pick(&["blog", "docs", "plain"])),
            json!({"phase": "Failed", "conditions": [condition("Ready", status)]}),
        ),
        _ => (
            ("GarageCluster", "web", "garage".to_owned()),
            json!({"phase": random.pick(&["Running", "Pending", "Failed"])}),
        ),
    };
    let (kind, namespace, name) = target;
    Action::EditStatus {
        user: *random.pick(&["tenant", "backup"]),
        target: Target {
            kind: kind.into(),
            namespace: namespace.into(),
            name,
        },
        patch: json!({"status": status}),
    }
}

/// Does it, and gives what follows at which time.
pub fn act(world: &mut World, event: &Event) -> Vec<(Duration, Then)> {
    let now = world.now();
    let after = |seconds: u64| now + Duration::from_secs(seconds);
    match event {
        Event::Upgrade {
            installation,
            flags,
            pause,
            surge,
        } => {
            let replicas = world.upgrade(*installation, flags.clone(), *surge);
            let mut all: Vec<(Duration, Then)> = (0..replicas)
                .map(|replica| {
                    (
                        after(pause * (replica as u64 + 1)),
                        Then::Restart(*installation, replica),
                    )
                })
                .collect();
            if *surge {
                let last = all.last().map_or(now, |(at, _)| *at);
                all.push((last + Duration::from_secs(*pause), Then::Retire(*installation)));
            }
            all
        }
        Event::LeaseDeleted { installation } => {
            let path = lease(world, *installation);
            world.ask("user", Method::DELETE, &path, "application/json", None);
            Vec::new()
        }
        Event::LeaseEdited { installation, patch } => {
            edit_lease(world, *installation, patch);
            Vec::new()
        }
        Event::LeaseContested {
            installation,
            seconds,
        } => (0..=*seconds)
            .step_by(3)
            .map(|at| (after(at), Then::Renew(*installation)))
            .collect(),
        Event::NamespaceDeleted {
            namespace,
            seconds,
            back,
            order,
        } => {
            if world.server.get("Namespace", "", namespace).is_none() {
                return Vec::new();
            }
            world.server.terminate_namespace(namespace);
            let mut all: Vec<(Duration, Then)> = (0..DELETIONS)
                .map(|nth| {
                    let at = Duration::from_millis(seconds * 1_000 * nth / DELETIONS);
                    let which = order.rotate_left(u32::try_from(nth).unwrap_or(0) * 5);
                    (now + at, Then::DeleteOne(namespace, which))
                })
                .collect();
            all.push((after(*seconds), Then::DeleteRest(namespace)));
            all.push((after(seconds + back), Then::NamespaceBack(namespace)));
            all
        }
        Event::FieldLost { crd, field, seconds } => {
            if let Some(mut object) = world.server.get("CustomResourceDefinition", "", crd) {
                for version in object["spec"]["versions"].as_array_mut().into_iter().flatten() {
                    drop_field(&mut version["schema"]["openAPIV3Schema"], field);
                }
                world.server.update(object);
            }
            vec![(after(*seconds), Then::FieldBack(crd))]
        }
    }
}

/// Objects of a namespace that are deleted one by one before the rest.
const DELETIONS: u64 = 10;

/// Does what was to follow.
pub fn follow(world: &mut World, then: &Then) {
    match then {
        Then::Restart(installation, replica) => world.stop(*installation, *replica),
        Then::Retire(installation) => world.retire(*installation),
        Then::Renew(installation) => {
            let now = world.now();
            let time = format!(
                "2026-06-01T00:{:02}:{:02}.{:06}Z",
                now.as_secs() / 60 % 60,
                now.as_secs() % 60,
                now.subsec_micros()
            );
            let spec = json!({"holderIdentity": STRANGER, "leaseDurationSeconds": 15, "renewTime": time});
            edit_lease(world, *installation, &json!({"spec": spec}));
        }
        Then::DeleteOne(namespace, which) => {
            let all: Vec<(String, String, String)> = universe::KINDS
                .iter()
                .filter(|kind| kind.namespaced)
                .flat_map(|kind| world.server.list(kind.kind, namespace))
                .filter(|object| object["metadata"]["deletionTimestamp"].is_null())
                .map(|object| universe::id_of(&object))
                .collect();
            let nth = usize::try_from(which % (all.len() as u64 + 1)).unwrap_or(0);
            match all.get(nth) {
                Some((kind, namespace, name)) => {
                    world.server.delete(kind, namespace, name);
                }
                // The Role is one of the objects.
                None => world.lose_role(namespace),
            }
        }
        Then::DeleteRest(namespace) => {
            world.lose_role(namespace);
            world.server.release_namespace(namespace);
        }
        Then::NamespaceBack(namespace) => {
            if world.server.get("Namespace", "", namespace).is_some() {
                return;
            }
            world.server.namespace(namespace);
            for object in universe::platform() {
                if object["metadata"]["namespace"] == *namespace {
                    world.server.create(object);
                }
            }
            world.give_role(namespace);
        }
        Then::FieldBack(crd) => {
            let all = routewright_crds::all().expect("the CRDs are generated");
            let wanted = all.iter().map(|crd| json!(crd));
            let wanted = wanted
                .into_iter()
                .find(|wanted| wanted["metadata"]["name"] == *crd);
            if let (Some(wanted), Some(mut live)) =
                (wanted, world.server.get("CustomResourceDefinition", "", crd))
            {
                live["spec"] = wanted["spec"].clone();
                world.server.update(live);
            }
        }
    }
}

/// Mends what no time mends: a Lease of a holder that does not exist, for longer than anybody waits.
pub fn mend(world: &mut World) {
    for installation in 0..world.installations.len() {
        let name = lease_name(world, installation);
        let Some(lease) = world.server.get("Lease", OPERATOR_NAMESPACE, &name) else {
            continue;
        };
        let lasts = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0);
        if lasts > MENDED_BY_HAND {
            let patch = json!({"spec": {"holderIdentity": null}});
            edit_lease(world, installation, &patch);
        }
    }
}

/// In the end one replica of each installation leads.
pub fn judge_leaders(world: &World) {
    for one in &world.installations {
        let leading = world.judge.leading(&one.flags.instance);
        if leading != 1 {
            let detail = format!("{leading} replicas of {} lead", one.flags.instance);
            world.judge.violated("in the end one replica leads", detail);
        }
    }
}

fn lease_name(world: &World, installation: usize) -> String {
    format!("{}-leader", world.installations[installation].flags.instance)
}

fn lease(world: &World, installation: usize) -> String {
    let name = lease_name(world, installation);
    universe::kind_of("Lease")
        .map(|kind| universe::path(kind, OPERATOR_NAMESPACE, &name))
        .unwrap_or_default()
}

fn edit_lease(world: &mut World, installation: usize, patch: &Value) {
    let path = format!("{}?fieldManager=user", lease(world, installation));
    world.ask(
        "user",
        Method::PATCH,
        &path,
        "application/merge-patch+json",
        Some(patch),
    );
}

/// Takes a field out of a schema.
fn drop_field(schema: &mut Value, field: &str) {
    let (parents, last) = field.rsplit_once('.').unwrap_or(("", field));
    let mut at = schema;
    for name in parents.split('.').filter(|name| !name.is_empty()) {
        at = &mut at["properties"][name];
    }
    if let Some(all) = at["properties"].as_object_mut() {
        all.remove(last);
    }
    if let Some(all) = at["required"].as_array_mut() {
        all.retain(|name| name != last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_to_lose_is_in_its_schema() {
        let all = routewright_crds::all().expect("the CRDs are generated");
        let all: Vec<Value> = all.iter().map(|crd| json!(crd)).collect();
        for (name, field) in FIELDS {
            let crd = all.iter().find(|crd| crd["metadata"]["name"] == name);
            let before = &crd.expect("the CRD is there")["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let mut after = before.clone();
            drop_field(&mut after, field);
            assert_ne!(*before, after, "{name} {field}");
        }
    }
}
