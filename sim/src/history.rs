//! What happens in a history, as data: written from a seed before anything runs, so that it can be shortened and told. The
//! writer draws from pools of names that occur in the world, and from the schemas of the kinds.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use crate::{
    cluster,
    net::{How, Kill, Sort, Which},
    outside::Mood,
    random::Random,
    schema, universe,
    world::{Flags, LEADER},
};

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// Its seed.
    pub seed: u64,
    /// The operator's installations, and how many replicas each has.
    pub installations: Vec<(Flags, usize)>,
    /// What happens, in the order of time.
    pub steps: Vec<Step>,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, after the step before it.
    pub after: Duration,
    /// What.
    pub action: Action,
}

/// An object that an action is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A user creates an object.
    Create {
        /// The user.
        user: &'static str,
        /// What.
        object: Value,
    },
    /// A user changes fields (a merge patch).
    Edit {
        /// The user.
        user: &'static str,
        /// Which object.
        target: Target,
        /// How.
        patch: Value,
    },
    /// A user changes a status (a merge patch).
    EditStatus {
        /// The user.
        user: &'static str,
        /// Which object.
        target: Target,
        /// How.
        patch: Value,
    },
    /// A user deletes an object.
    Delete {
        /// The user.
        user: &'static str,
        /// Which object.
        target: Target,
    },
    /// A user copies an object with all labels, annotations and finalizers, perhaps with its status.
    Copy {
        /// Of what.
        target: Target,
        /// Into this namespace.
        namespace: String,
        /// Under this name.
        name: String,
        /// With its status, as a backup tool may bring it.
        status: bool,
    },
    /// A tenant gives a route the ids of another route's APIs, at a place of the tenant's choice.
    Forge {
        /// The route that gets the annotation.
        target: Target,
        /// The route whose ids it names.
        victim: Target,
        /// `namespace/name` of a context with the digest that fits, or `None` for the place that the victim names.
        place: Option<String>,
    },
    /// A GitOps tool writes back a whole object as it was some time ago.
    PutOld {
        /// Which object.
        target: Target,
    },
    /// Requests of one replica go wrong.
    Disturb {
        /// Installation and replica.
        who: (usize, usize),
        /// Which requests.
        which: Which,
        /// What becomes of them.
        how: How,
        /// How many.
        times: u32,
        /// For how long, in seconds.
        seconds: u64,
    },
    /// A watch of one replica stands still.
    Stick {
        /// Installation and replica.
        who: (usize, usize),
        /// Plural of the kind.
        resource: &'static str,
        /// For how long, in seconds.
        seconds: u64,
        /// And breaks then: what was in it is lost.
        cut: bool,
    },
    /// The API server forgets the history of events.
    Compact,
    /// Every watch of a kind breaks.
    CutWatches {
        /// Plural of the kind.
        resource: &'static str,
    },
    /// The operator loses a right for a while.
    Deny {
        /// Installation.
        installation: usize,
        /// RBAC verb.
        verb: &'static str,
        /// Plural of the kind, perhaps with a subresource.
        resource: &'static str,
        /// For how long, in seconds.
        seconds: u64,
    },
    /// The kinds of Gateway API go, and come back.
    LoseGatewayApi {
        /// Plural of the kind.
        plural: &'static str,
        /// For how long, in seconds.
        seconds: u64,
    },
    /// A replica is killed between two writes.
    Kill {
        /// Installation and replica.
        who: (usize, usize),
        /// After how many, and whether the last answer is lost.
        kill: Kill,
    },
    /// A replica loses power and comes back with a clock that is wrong.
    PowerOff {
        /// Installation and replica.
        who: (usize, usize),
        /// For how long, in seconds.
        seconds: u64,
        /// Milliseconds that its wall clock is ahead afterwards.
        skew: i64,
    },
    /// A replica stands still.
    Freeze {
        /// Installation and replica.
        who: (usize, usize),
        /// For how long, in seconds.
        seconds: u64,
    },
    /// A replica is stopped in good order and starts again.
    Stop {
        /// Installation and replica.
        who: (usize, usize),
    },
    /// A Garage fares otherwise.
    Garage {
        /// Number of the site.
        site: usize,
        /// How it fares.
        mood: Mood,
    },
    /// A Tyk fares otherwise.
    Tyk {
        /// Number of the site.
        site: usize,
        /// How it fares.
        mood: Mood,
    },
    /// A Tyk loses its files.
    TykLosesFiles {
        /// Number of the site.
        site: usize,
    },
    /// A Tyk restarts.
    TykRestarts {
        /// Number of the site.
        site: usize,
    },
    /// Something happens to the cluster or to an installation.
    Cluster(cluster::Event),
    /// A user edits a document in Tyk, counted among those that are there.
    TykEdited {
        /// Number of the site.
        site: usize,
        /// Number of the document.
        nth: usize,
        /// It is removed instead.
        removed: bool,
    },
    /// A user changes a bucket in Garage behind the operator's back.
    GarageEdited {
        /// Number of the site.
        site: usize,
        /// Number of the bucket.
        nth: usize,
        /// What is done.
        what: BucketEdit,
    },
}

/// A change of a bucket in Garage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketEdit {
    /// It is gone.
    Lost,
    /// It holds objects.
    Filled,
    /// It is empty again.
    Emptied,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { user, object } => {
                let (kind, namespace, name) = universe::id_of(object);
                write!(f, "{user} creates {kind} {namespace}/{name}: {}", object["spec"])
            }
            Self::Edit { user, target, patch } => write!(f, "{user} edits {target}: {patch}"),
            Self::EditStatus { user, target, patch } => {
                write!(f, "{user} edits the status of {target}: {patch}")
            }
            Self::Delete { user, target } => write!(f, "{user} deletes {target}"),
            Self::Copy {
                target,
                namespace,
                name,
                status,
            } => {
                let with = if *status { " with its status" } else { "" };
                write!(f, "{target} is copied to {namespace}/{name}{with}")
            }
            Self::Forge {
                target,
                victim,
                place,
            } => {
                let place = place.as_deref().unwrap_or("the same place");
                write!(f, "tenant gives {target} the ids of {victim} at {place}")
            }
            Self::Cluster(event) => write!(f, "{event}"),
            Self::PutOld { target } => write!(f, "an old copy of {target} is written back"),
            other => {
                let text = format!("{other:?}").replace(&LEADER.to_string(), "leader");
                f.write_str(&text)
            }
        }
    }
}

const USERS: [&str; 3] = ["user", "gitops", "tenant"];
const HOSTS: [&str; 6] = [
    "a.example.com",
    "b.example.com",
    "blog.example.com",
    "*.example.com",
    "web-blog.web.test",
    "Bad_Host",
];
const PATHS: [&str; 5] = ["/", "/x", "/x/y", "/evil", "//"];
const WATCHED: [&str; 10] = [
    "garagebuckets",
    "garageclusters",
    "ingresses",
    "httproutes",
    "gateways",
    "gatewayclasses",
    "operatorcontexts",
    "secrets",
    "services",
    "namespaces",
];
const WRITTEN: [&str; 6] = [
    "garagebuckets",
    "ingresses",
    "httproutes",
    "gateways",
    "gatewayclasses",
    "garageclusters",
];

/// Every object of the world, and an operator that does everything; nothing goes wrong.
pub fn everything() -> History {
    let flags = Flags {
        instance: "rw".into(),
        ingress: true,
        gateway_api: true,
        buckets: true,
        tyk: Some(universe::CONTROLLERS[0].to_owned()),
        namespaces: None,
    };
    let create = |object| Step {
        after: Duration::from_millis(500),
        action: Action::Create { user: "user", object },
    };
    History {
        seed: 0,
        installations: vec![(flags, 1)],
        steps: universe::templates().into_iter().map(create).collect(),
    }
}

/// Writes the history of a seed.
pub fn write(seed: u64) -> History {
    let mut random = Random::seeded(seed);
    let installations = installations(&mut random);
    let templates = universe::templates();
    let mut steps = Vec::new();
    // A start: most objects are there from the beginning, in some order.
    let mut order: Vec<usize> = (0..templates.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap_or(0));
    }
    for at in order {
        if random.chance(3, 4) {
            let object = templates[at].clone();
            steps.push(Step {
                after: Duration::from_millis(random.between(1, 2_000)),
                action: Action::Create { user: "user", object },
            });
        }
    }
    // A name that a child needs is taken, mostly for a while.
    let squatter = random
        .chance(1, 4)
        .then(|| random.pick(&universe::squatters()).clone());
    if let Some(object) = &squatter {
        let (action, after) = (
            Action::Create {
                user: "user",
                object: object.clone(),
            },
            Duration::ZERO,
        );
        steps.insert(0, Step { after, action });
    }
    // Trouble that is there from the beginning meets the first writes of everything.
    if random.chance(1, 3) {
        let at = usize::try_from(random.below(steps.len().max(1) as u64)).unwrap_or(0);
        steps.insert(
            at,
            Step {
                after: Duration::ZERO,
                action: disturb(&mut random, &installations),
            },
        );
    }
    for _ in 0..random.between(4, 24) {
        // What goes wrong with a request shows when there is one: some trouble, and then its occasion.
        if random.chance(1, 3) {
            let trouble = match random.below(3) {
                0 => Action::Kill {
                    who: who(&mut random, &installations),
                    kill: Kill {
                        writes: u32::try_from(random.between(1, 5)).unwrap_or(1),
                        lose_answer: random.chance(1, 2),
                        any: random.chance(1, 8),
                    },
                },
                _ => disturb(&mut random, &installations),
            };
            steps.push(Step {
                after: pause(&mut random),
                action: trouble,
            });
            let occasion = match random.below(4) {
                0 => Action::Delete {
                    user: "user",
                    target: target(&mut random, &templates, &USER_KINDS),
                },
                1 => child_edit(&mut random),
                _ => edit(&mut random, "user", &templates),
            };
            steps.push(Step {
                after: Duration::from_millis(random.between(1, 2_000)),
                action: occasion,
            });
        }
        steps.push(Step {
            after: pause(&mut random),
            action: action(&mut random, &installations, &templates),
        });
    }
    if let Some(object) = squatter
        && random.chance(3, 4)
    {
        let (kind, namespace, name) = universe::id_of(&object);
        let action = Action::Delete {
            user: "user",
            target: Target {
                kind,
                namespace,
                name,
            },
        };
        let at = usize::try_from(random.between(1, steps.len() as u64 + 1)).unwrap_or(1);
        steps.insert(
            at,
            Step {
                after: pause(&mut random),
                action,
            },
        );
    }
    History {
        seed,
        installations,
        steps,
    }
}

fn pause(random: &mut Random) -> Duration {
    Duration::from_millis(match random.below(4) {
        0 => random.between(1, 100),
        1 => random.between(100, 3_000),
        2 => random.between(3_000, 20_000),
        _ => random.between(20_000, 90_000),
    })
}

fn installations(random: &mut Random) -> Vec<(Flags, usize)> {
    let replicas = |random: &mut Random| usize::try_from(random.between(1, 4)).unwrap_or(1);
    let namespaces = cluster::watched(random);
    // Not for some namespaces only.
    let tyk = random.chance(4, 5) && namespaces.is_none();
    let first = Flags {
        instance: "rw".into(),
        ingress: random.chance(4, 5),
        gateway_api: random.chance(4, 5),
        buckets: random.chance(3, 4),
        tyk: tyk.then(|| universe::CONTROLLERS[0].to_owned()),
        namespaces,
    };
    let mut all = vec![(first, replicas(random))];
    if random.chance(1, if tyk { 4 } else { 2 }) {
        // Another release, for Gateways of its own.
        let second = Flags {
            instance: "two".into(),
            ingress: false,
            gateway_api: false,
            buckets: false,
            tyk: Some(universe::CONTROLLERS[usize::from(tyk)].to_owned()),
            namespaces: None,
        };
        all.push((second, replicas(random)));
    }
    all
}

fn who(random: &mut Random, installations: &[(Flags, usize)]) -> (usize, usize) {
    let installation = usize::try_from(random.below(installations.len() as u64)).unwrap_or(0);
    // Mostly the one that leads: what happens to another one is rarely seen.
    if random.chance(1, 2) {
        return (installation, LEADER);
    }
    let replica = usize::try_from(random.below(installations[installation].1 as u64)).unwrap_or(0);
    (installation, replica)
}

fn target(random: &mut Random, templates: &[Value], kinds: &[&str]) -> Target {
    let fitting: Vec<&Value> = templates
        .iter()
        .filter(|object| kinds.iter().any(|kind| object["kind"] == *kind))
        .collect();
    let (kind, namespace, name) = universe::id_of(*random.pick(&fitting));
    Target {
        kind,
        namespace,
        name,
    }
}

const USER_KINDS: [&str; 7] = [
    "GarageBucket",
    "GarageCluster",
    "HTTPRoute",
    "Gateway",
    "ReferenceGrant",
    "GarageReferenceGrant",
    "OperatorContext",
];

fn action(random: &mut Random, installations: &[(Flags, usize)], templates: &[Value]) -> Action {
    let user = *random.pick(&USERS);
    if random.chance(1, 6) {
        return cluster::draw(random, installations);
    }
    match random.below(24) {
        0..=6 => edit(random, user, templates),
        7 => Action::Delete {
            user,
            target: target(random, templates, &USER_KINDS),
        },
        8 => Action::Create {
            user,
            object: random.pick(templates).clone(),
        },
        9 if random.chance(1, 2) => Action::Forge {
            target: target(random, templates, &["HTTPRoute"]),
            victim: target(random, templates, &["HTTPRoute"]),
            place: random
                .pick(&[None, Some("evil/trap"), Some("evil/own")])
                .map(|context| format!("{context}@{}", universe::EVIL_DIGEST)),
        },
        9 => Action::Copy {
            target: target(random, templates, &["HTTPRoute", "GarageBucket"]),
            namespace: (*random.pick(&["shop", "evil", "web"])).into(),
            name: (*random.pick(&["copy", "a", "blog"])).into(),
            status: random.chance(1, 2),
        },
        10 => Action::PutOld {
            target: target(random, templates, &USER_KINDS),
        },
        11 => child_edit(random),
        12 => platform_edit(random),
        13 | 14 => disturb(random, installations),
        15 => Action::Stick {
            who: who(random, installations),
            resource: *random.pick(&WATCHED),
            seconds: random.between(1, 200),
            cut: random.chance(1, 2),
        },
        16 => {
            if random.chance(1, 2) {
                Action::Compact
            } else {
                Action::CutWatches {
                    resource: *random.pick(&WATCHED),
                }
            }
        }
        17 => Action::Deny {
            installation: who(random, installations).0,
            verb: *random.pick(&["patch", "get", "list", "watch", "delete", "create"]),
            resource: *random.pick(&[
                "ingresses",
                "httproutes",
                "garagebuckets",
                "garagebuckets/status",
                "httproutes/status",
                "secrets",
                "leases",
                "events",
            ]),
            seconds: random.between(1, 120),
        },
        18 => Action::LoseGatewayApi {
            plural: *random.pick(&["httproutes", "gateways", "referencegrants"]),
            seconds: random.between(1, 120),
        },
        19 => Action::Kill {
            who: who(random, installations),
            kill: Kill {
                writes: u32::try_from(random.below(6)).unwrap_or(0),
                lose_answer: random.chance(1, 2),
                any: random.chance(1, 3),
            },
        },
        20 => match random.below(3) {
            0 => Action::PowerOff {
                who: who(random, installations),
                seconds: random.between(1, 40),
                skew: i64::try_from(random.below(400_000)).unwrap_or(0) - 200_000,
            },
            1 => Action::Freeze {
                who: who(random, installations),
                seconds: random.between(1, 60),
            },
            _ => Action::Stop {
                who: who(random, installations),
            },
        },
        21 => Action::Garage {
            site: usize::try_from(random.below(2)).unwrap_or(0),
            mood: mood(random),
        },
        22 => Action::Tyk {
            site: usize::try_from(random.below(2)).unwrap_or(0),
            mood: mood(random),
        },
        _ => match random.below(4) {
            0 => Action::TykLosesFiles { site: 0 },
            1 => Action::TykRestarts { site: 0 },
            2 => Action::TykEdited {
                site: usize::try_from(random.below(2)).unwrap_or(0),
                nth: usize::try_from(random.below(8)).unwrap_or(0),
                removed: random.chance(1, 2),
            },
            _ => Action::GarageEdited {
                site: 0,
                nth: usize::try_from(random.below(4)).unwrap_or(0),
                what: *random.pick(&[BucketEdit::Lost, BucketEdit::Filled, BucketEdit::Emptied]),
            },
        },
    }
}

/// Requests of one replica go wrong: mostly writes, since what a write leaves undone matters most.
fn disturb(random: &mut Random, installations: &[(Flags, usize)]) -> Action {
    Action::Disturb {
        who: who(random, installations),
        which: Which {
            sort: *random.pick(&[
                Sort::Writes,
                Sort::Writes,
                Sort::Writes,
                Sort::All,
                Sort::Reads,
                Sort::Watches,
                Sort::Lease,
            ]),
            resource: random.chance(1, 4).then(|| *random.pick(&WRITTEN)),
        },
        how: match random.below(8) {
            0 => How::Refused(409),
            1 => How::Refused(429),
            2 => How::Refused(403),
            3 => How::Refused(*random.pick(&[500, 503])),
            4 => How::Broken,
            5 => How::AnswerLost,
            6 => How::Late(u32::try_from(random.between(10, 4_000)).unwrap_or(10)),
            _ => How::AnswerLate(u32::try_from(random.between(10, 9_000)).unwrap_or(10)),
        },
        times: u32::try_from(random.between(1, 20)).unwrap_or(1),
        seconds: random.between(1, 90),
    }
}

fn mood(random: &mut Random) -> Mood {
    *random.pick(&[
        Mood::Well,
        Mood::Slow(700),
        Mood::Slow(20_000),
        Mood::Down,
        Mood::Lossy,
        Mood::Failing,
    ])
}

/// The schemas of the kinds that the operator brings along.
fn schema_of(kind: &str) -> Option<Value> {
    let crds = routewright_crds::all().ok()?;
    let crd = crds
        .iter()
        .map(|crd| json!(crd))
        .find(|crd| crd["spec"]["names"]["kind"] == kind)?;
    Some(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
}

fn edit(random: &mut Random, user: &'static str, templates: &[Value]) -> Action {
    let target = target(random, templates, &USER_KINDS);
    if random.chance(1, 3)
        && let Some(schema) = schema_of(&target.kind)
        && let Some(patch) = schema::edit(random, &schema)
    {
        return Action::Edit { user, target, patch };
    }
    let host = *random.pick(&HOSTS);
    let path = *random.pick(&PATHS);
    let spec = match target.kind.as_str() {
        "GarageBucket" => match random.below(11) {
            0 => json!({"websiteExposure": null}),
            1 => json!({"websiteExposure": {"ingress": {"ingressClassName": "public"}, "gateway": null}}),
            2 => {
                json!({"websiteExposure": {"ingress": null, "gateway": {"parentRefs": [{"name": "public"}]}}})
            }
            3 => json!({"websiteExposure": {"hostnames": [host]}}),
            4 => {
                json!({"websiteExposure": {"ingress": {"tlsSecretName": random.pick(&[json!("tls"), Value::Null])}}})
            }
            5 => json!({"website": {"enabled": random.chance(1, 2)}}),
            6 => json!({"globalAlias": random.pick(&["web-blog", "other", "x"])}),
            7 => json!({"deletionPolicy": random.pick(&["Delete", "Retain"])}),
            8 => json!({"clusterRef": {"name": random.pick(&["garage", "none"]),
                                       "namespace": random.pick(&[json!("web"), json!("evil"), Value::Null])}}),
            9 => json!({"quotas": {"maxObjects": random.pick(&[json!(0), json!(5), Value::Null])}}),
            _ => {
                json!({"websiteExposure": {"ingress": {"ingressClassName": random.pick(&[json!("none"), Value::Null]),
                                                        "annotations": {"a": "b"}}}})
            }
        },
        "GarageCluster" => match random.below(4) {
            0 => json!({"webApi": {"rootDomain": random.pick(&[".web.test", "web.test", ".", "BAD", ""])}}),
            1 => json!({"webApi": {"enabled": random.chance(1, 2)}}),
            2 => {
                json!({"connectTo": {"adminApiEndpoint": random.pick(&[universe::GARAGES[0].0, universe::GARAGES[1].0])}})
            }
            _ => {
                json!({"connectTo": {"adminTokenSecretRef": {"name": random.pick(&["garage-token", "none"])}}})
            }
        },
        "HTTPRoute" => match random.below(8) {
            0 => json!({"hostnames": [host]}),
            1 => json!({"hostnames": null}),
            2 => {
                json!({"parentRefs": [{"namespace": "infra", "name": random.pick(&["edge", "inner", "none"])}]})
            }
            3 => {
                json!({"parentRefs": [{"namespace": "infra", "name": "edge"}, {"namespace": "infra", "name": "inner"}]})
            }
            4 => json!({"rules": [{"matches": [{"path": {"type": "PathPrefix", "value": path}}],
                                   "backendRefs": [{"name": random.pick(&["web", "api", "none"]), "port": 80}]}]}),
            5 => {
                json!({"rules": [{"matches": [{"path": {"type": "PathPrefix", "value": path}, "method": "GET"}],
                                   "backendRefs": [{"name": "web", "namespace": "shop", "port": 80, "weight": 3},
                                                   {"name": "api", "namespace": "shop", "port": 80}]}]})
            }
            6 => json!({"rules": [{"matches": [{"headers": [{"name": "x", "value": "y"}]}]}]}),
            _ => {
                json!({"rules": [{"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]})
            }
        },
        "Gateway" => match random.below(5) {
            0 => json!({"gatewayClassName": random.pick(&["tyk", "foreign", "none"])}),
            1 => json!({"listeners": [{"name": "web", "protocol": "HTTP", "port": 80,
                                       "allowedRoutes": {"namespaces": {"from": random.pick(&["All", "Same"])}}}]}),
            2 => json!({"listeners": [{"name": "web", "protocol": "HTTP", "port": 80, "hostname": host,
                                       "allowedRoutes": {"namespaces": {"from": "All"}}}]}),
            3 => json!({"listeners": [{"name": "other", "protocol": "HTTP", "port": 81},
                                      {"name": "web", "protocol": "HTTP", "port": 80,
                                       "allowedRoutes": {"namespaces": {"from": "All"}}}]}),
            _ => {
                json!({"infrastructure": {"parametersRef": {"group": "tyk.tyk.io", "kind": "OperatorContext",
                                                             "name": random.pick(&["main", "trap", "none"])}}})
            }
        },
        "OperatorContext" => match random.below(3) {
            0 => json!({"env": {"url": random.pick(&universe::TYKS)}}),
            1 => json!({"secretRef": {"namespace": random.pick(&["tyk", "evil"]), "name": "credential"}}),
            _ => json!({"dataPlane": {"tags": random.pick(&[json!(["main"]), json!([]), Value::Null])}}),
        },
        _ => json!({}),
    };
    let mut patch = json!({"spec": spec});
    if spec_is_empty(&patch) || random.chance(1, 6) {
        patch = json!({"metadata": forged(random)});
    }
    Action::Edit { user, target, patch }
}

fn spec_is_empty(patch: &Value) -> bool {
    patch["spec"].as_object().is_some_and(serde_json::Map::is_empty)
}

/// Metadata that a hostile tenant writes, or a user who copies objects.
fn forged(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!({"annotations": {"routewright.dev/tyk-apis": format!("evil/trap@{}=0123456789abcdef0123",
                                                                        random.pick(&["0badc0de", "1c5f7e1f"]))}}),
        1 => {
            json!({"annotations": {"routewright.dev/reconcile": random.pick(&[json!("paused"), Value::Null])}})
        }
        2 => {
            json!({"labels": {"app.kubernetes.io/managed-by": random.pick(&[json!("routewright"), Value::Null])}})
        }
        3 => json!({"finalizers": ["example.org/mine"]}),
        4 => json!({"finalizers": null}),
        _ => json!({"annotations": null}),
    }
}

/// An edit of what the operator owns.
fn child_edit(random: &mut Random) -> Action {
    let (kind, name) = *random.pick(&[("Ingress", "blog-website"), ("HTTPRoute", "docs-website")]);
    let target = Target {
        kind: kind.into(),
        namespace: "web".into(),
        name: name.into(),
    };
    let patch = match random.below(7) {
        0 => return Action::Delete { user: "user", target },
        1 => json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}),
        2 => json!({"metadata": {"annotations": {"routewright.dev/applied-hash": "0"}}}),
        3 => json!({"metadata": {"labels": {"team": "web"}}}),
        4 if kind == "Ingress" => {
            json!({"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}})
        }
        5 if kind == "Ingress" => json!({"spec": {"rules": []}}),
        4 => json!({"spec": {"hostnames": ["stolen.example.com"]}}),
        5 => json!({"spec": {"parentRefs": [{"name": "other"}]}}),
        _ => json!({"metadata": {"ownerReferences": null}}),
    };
    Action::Edit {
        user: "gitops",
        target,
        patch,
    }
}

/// A change of what the platform team keeps.
fn platform_edit(random: &mut Random) -> Action {
    let target = |kind: &str, namespace: &str, name: &str| Target {
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    match random.below(6) {
        0 => Action::Delete {
            user: "user",
            target: target("Secret", "tyk", "credential"),
        },
        1 => Action::Edit {
            user: "user",
            target: target("GatewayClass", "", "tyk"),
            patch: json!({"spec": {"parametersRef": {"name": random.pick(&["main", "second", "none"])}}}),
        },
        2 => Action::Delete {
            user: "user",
            target: target("IngressClass", "", "public"),
        },
        3 => Action::Delete {
            user: "user",
            target: target("Service", "shop", *random.pick(&["web", "api"])),
        },
        4 => Action::Delete {
            user: "user",
            target: target("GatewayClass", "", "tyk"),
        },
        _ => Action::Delete {
            user: "user",
            target: target("Secret", "web", "garage-token"),
        },
    }
}
