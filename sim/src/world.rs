//! The simulated world: API server, Garages, Tyks, installations of the operator with their replicas, and other software
//! that works in every cluster. Time goes in steps; every machine runs its part of a step, one after the other.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::{Body, ClientBuilder};
use reconcile_kit::{
    runtime::{Metrics, Scope, WriteGuard, leadership::Leadership},
    testing::ApiServer,
};
use routewright::{
    app::{App, Doors, Options, lease_config},
    exposure::tenancy::Guards,
    garage::{access::HttpAccess, admin::BucketInfo},
    telemetry::tyk::TykMeter,
    tyk::{
        self,
        client::http::{Limits, Pools},
        controllers,
        httproute::places::record_name,
        objects::Key,
    },
};
use routewright_tyk_double::Double;
use serde_json::Value;
use tower::Service as _;

use crate::{
    determinism,
    host::Host,
    judge::{Judge, OPERATOR_NAMESPACE, Who},
    net::Net,
    oracle,
    outside::Sites,
    rights::Rights,
    universe,
};

/// What an installation is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `--instance`
    pub instance: String,
    /// `--enable-ingress`
    pub ingress: bool,
    /// `--enable-gateway-api`
    pub gateway_api: bool,
    /// `--enable-garage-buckets`
    pub buckets: bool,
    /// `--enable-tyk` with this controller name.
    pub tyk: Option<String>,
    /// `--watch-namespaces`
    pub namespaces: Option<Vec<String>>,
}

/// One process of an installation.
pub struct Replica {
    who: Who,
    host: Option<Host>,
    app: Option<App>,
    net: Option<Net>,
    boots: u64,
    restart_at: Option<Duration>,
    /// It came for an upgrade, and does not come back.
    retired: bool,
    thaw_at: Option<Duration>,
    /// How far ahead its wall clock is after the next boot, in milliseconds.
    pub skew: i64,
}

/// One release of the operator.
pub struct Installation {
    /// Its flags.
    pub flags: Flags,
    /// Those that it had before.
    past: Vec<Flags>,
    /// Its processes.
    pub replicas: Vec<Replica>,
}

/// Everything.
pub struct World {
    /// The API server.
    pub server: ApiServer,
    /// Garages and Tyks.
    pub sites: Sites,
    /// What is seen.
    pub judge: Judge,
    /// Releases of the operator.
    pub installations: Vec<Installation>,
    /// Where everybody else lives: users, other software, the Tyks.
    platform: Host,
    seed: u64,
    now: Duration,
    seen: usize,
    calm_steps: u32,
    reflected: Duration,
    /// Revision that other software has seen, and in which turn.
    mirrored: (u64, u64),
    /// Other software that answers for Gateways and load balancers does its work.
    pub reflexes: bool,
    /// Namespaces whose Role has gone with them.
    roleless: BTreeSet<String>,
}

/// Stands for the replica that leads when something happens to it.
pub const LEADER: usize = usize::MAX;

const CLUSTER: &str = "cluster-1";
const DOMAIN: &str = "cluster.local";

/// A step while something happens; the clocks of two machines never differ by more.
const STEP: Duration = Duration::from_millis(20);
/// For how long a leader acts after its last renewal.
const FENCE: Duration = Duration::from_secs(10);
/// The longest step while nothing happens.
const LONGEST: Duration = Duration::from_millis(500);

impl World {
    /// A cluster with its platform, and these installations.
    pub fn begin(seed: u64, installations: Vec<(Flags, usize)>) -> Self {
        let mut platform = Host::boot(0);
        let server = platform.run(async { universe::server() });
        let (sites, judge) = (Sites::default(), Judge::default());
        for (url, token) in universe::GARAGES {
            sites.add_garage(url, token);
            judge.keep_secret(token);
        }
        for url in universe::TYKS {
            let double = if url == universe::TYKS[1] {
                Double::dashboard().org("o1")
            } else {
                Double::gateway()
            };
            let double = double
                .secret(universe::TYK_SECRET)
                .reload_tick(Duration::from_secs(1));
            sites.add_tyk(&mut platform, url, double);
        }
        judge.keep_secret(universe::TYK_SECRET);
        universe::populate_outside(&sites, &mut platform);
        let installations = installations
            .into_iter()
            .map(|(flags, replicas)| Installation {
                replicas: (0..replicas)
                    .map(|replica| Replica::new(&flags, replica))
                    .collect(),
                flags,
                past: Vec::new(),
            })
            .collect();
        let mut world = Self {
            server,
            sites,
            judge,
            installations,
            platform,
            seed,
            now: Duration::ZERO,
            seen: 0,
            calm_steps: 0,
            reflected: Duration::ZERO,
            mirrored: (0, 0),
            reflexes: true,
            roleless: BTreeSet::new(),
        };
        world.grant_rights();
        world
    }

    /// The time that has passed.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Runs everything until a moment of the history.
    pub fn run_until(&mut self, until: Duration) {
        while self.now < until {
            let step = match self.calm_steps {
                0..50 => STEP,
                50..100 => STEP * 5,
                _ => LONGEST,
            };
            let next = (self.now + step).min(until);
            determinism::set_now(self.now);
            self.care_for_replicas();
            self.platform.run_until(next);
            for installation in &mut self.installations {
                for replica in &mut installation.replicas {
                    if let Some(host) = &mut replica.host {
                        host.run_until(next);
                    }
                }
            }
            self.now = next;
            determinism::set_now(next);
            if self.reflexes && self.now >= self.reflected + Duration::from_secs(1) {
                self.reflected = self.now;
                // In some histories the order of addresses is another one every minute.
                let turn = if self.seed.is_multiple_of(8) {
                    self.now.as_secs() / 60
                } else {
                    0
                };
                let seen = (self.revision(), turn);
                if seen != self.mirrored {
                    universe::reflect(&self.server, &self.installations_flags(), turn);
                    self.mirrored = seen;
                }
            }
            let seen = self.activity();
            self.calm_steps = if seen == self.seen { self.calm_steps + 1 } else { 0 };
            self.seen = seen;
        }
    }

    fn installations_flags(&self) -> Vec<Flags> {
        let all = self.installations.iter();
        all.flat_map(|one| one.past.iter().chain([&one.flags]).cloned())
            .collect()
    }

    /// The server's revision without the renewals of Leases, which nobody watches and which never end.
    fn revision(&self) -> u64 {
        self.server.revision() - self.judge.renewals()
    }

    /// Grows with everything that anybody does but renew a Lease.
    fn activity(&self) -> usize {
        let tyks: usize = self
            .sites
            .tyks()
            .values()
            .map(|site| usize::try_from(site.handle.counts().requests).unwrap_or(0))
            .sum();
        usize::try_from(self.revision()).unwrap_or(0) + tyks
    }

    /// Starts what is to start, buries what met its end.
    fn care_for_replicas(&mut self) {
        for installation in 0..self.installations.len() {
            for replica in 0..self.installations[installation].replicas.len() {
                let now = self.now;
                let one = &mut self.installations[installation].replicas[replica];
                if one.net.as_ref().is_some_and(Net::is_dead) {
                    self.judge.tell(format!("{} is killed", one.who));
                    self.judge.elects(&one.who, None);
                    one.bury();
                    one.restart_at = (!one.retired).then_some(now + Duration::from_secs(2));
                }
                if one.thaw_at.is_some_and(|at| at <= now) {
                    one.thaw_at = None;
                    if let Some(host) = &mut one.host {
                        self.judge.tell(format!("{} goes on", one.who));
                        host.thaw();
                    }
                }
                if one.restart_at.is_some_and(|at| at <= now) {
                    self.boot(installation, replica);
                }
            }
        }
    }

    fn boot(&mut self, installation: usize, replica: usize) {
        let flags = self.installations[installation].flags.clone();
        let one = &mut self.installations[installation].replicas[replica];
        one.restart_at = None;
        one.boots += 1;
        let seed = self
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(installation as u64 * 100 + replica as u64 * 10 + one.boots * 1_000);
        one.who.controller = flags.tyk.clone().unwrap_or_default();
        let who = one.who.clone();
        self.judge.tell(format!("{who} starts"));
        let lease = format!("{}-leader", flags.instance);
        let is_deleted = self.server.get("Lease", OPERATOR_NAMESPACE, &lease).is_none();
        if is_deleted && self.judge.leading(&flags.instance) > 0 {
            // Nothing tells this process of the holder, which makes the Lease anew at its next renewal: decision 24.
            self.judge.excuse(&flags.instance, self.now + FENCE);
        }
        let identity = format!("{who}-{}", one.boots);
        let mut host = Host::boot(one.skew);
        let user = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:{}", flags.instance);
        let net = Net::new(
            self.server.clone(),
            &user,
            seed,
            (1, 6),
            self.judge
                .witness(who.clone(), Rights::of(&flags, OPERATOR_NAMESPACE)),
        );
        let (sites, judge, lease_net) = (self.sites.clone(), self.judge.clone(), net.clone());
        let client_net = net.clone();
        let (app, leadership) = host.run(async move {
            let metrics = Metrics::new("routewright");
            let lease = lease_config(OPERATOR_NAMESPACE, &flags.instance, &identity);
            let lease_client = ClientBuilder::new(lease_net, "default").build();
            let leadership = Leadership::start(lease, lease_client, &metrics).expect("the lease is valid");
            let client = ClientBuilder::new(client_net, "default")
                .with_layer(&WriteGuard::new(leadership.clone()).layer())
                .build();
            let heard = {
                let (judge, who) = (judge.clone(), who.clone());
                Arc::new(move |call| judge.heard(&who, &call))
            };
            let may_write = {
                let leadership = leadership.clone();
                Arc::new(move || leadership.is_leader())
            };
            let connect = sites.connect(&who.to_string(), seed ^ 1, may_write, heard.clone());
            let options = options(&flags);
            let wire = sites.wire(&who.to_string(), seed ^ 2, heard);
            let doors = Doors {
                garage: Some(Arc::new(HttpAccess::connecting(client.clone(), DOMAIN, connect))),
                tyk: Some(Arc::new(move |ground, drifted| {
                    let pools = Pools::new(None, Limits::default()).expect("no bundle, no error");
                    let pools = Arc::new(pools.through(wire.clone()));
                    let lease = Arc::clone(&ground.lease);
                    let meter = TykMeter::new(&ground.metrics);
                    controllers::reach(
                        &ground.client,
                        pools,
                        Arc::new(move || lease.held()),
                        drifted,
                        meter,
                    )
                })),
            };
            let app = App::start_with(client, leadership.clone(), metrics, &options, doors)
                .expect("options are valid");
            (app, leadership)
        });
        let one = &mut self.installations[installation].replicas[replica];
        self.judge.elects(&one.who, Some(leadership));
        one.app = Some(app);
        one.host = Some(host);
        one.net = Some(net);
    }

    /// The number of a replica; of the one that leads now, or else of the first, for [`LEADER`].
    fn number(&self, installation: usize, replica: usize) -> usize {
        if replica != LEADER {
            return replica;
        }
        let name = self
            .installations
            .get(installation)
            .map(|one| &one.flags.instance);
        name.and_then(|name| self.judge.leader(name)).unwrap_or(0)
    }

    fn replica(&mut self, installation: usize, replica: usize) -> Option<&mut Replica> {
        let replica = self.number(installation, replica);
        self.installations
            .get_mut(installation)?
            .replicas
            .get_mut(replica)
    }

    /// The network of a replica, while it runs.
    pub fn net(&self, installation: usize, replica: usize) -> Option<(&Net, tokio::time::Instant)> {
        let replica = self.number(installation, replica);
        let one = self.installations.get(installation)?.replicas.get(replica)?;
        let host = one.host.as_ref()?;
        let now = host.within(tokio::time::Instant::now);
        Some((one.net.as_ref()?, now))
    }

    /// A replica stands still for a while.
    pub fn freeze(&mut self, installation: usize, replica: usize, time: Duration) {
        let until = self.now + time;
        let Some(one) = self.replica(installation, replica) else {
            return;
        };
        if let Some(host) = &mut one.host {
            host.freeze();
            one.thaw_at = Some(until);
        }
    }

    /// A replica ends at once, without a farewell, and starts again later.
    pub fn power_off(&mut self, installation: usize, replica: usize, time: Duration, skew: i64) {
        let (until, judge) = (self.now + time, self.judge.clone());
        let Some(one) = self.replica(installation, replica) else {
            return;
        };
        if one.host.is_some() {
            judge.elects(&one.who, None);
            one.bury();
            one.skew = skew;
            one.restart_at = Some(until);
        }
    }

    /// A replica ends as after SIGTERM, and starts again.
    pub fn stop(&mut self, installation: usize, replica: usize) {
        let Some(one) = self.replica(installation, replica) else {
            return;
        };
        if let (Some(app), Some(host)) = (one.app.take(), &one.host) {
            host.within(|| {
                tokio::spawn(app.shutdown());
            });
            // The kubelet waits 30 seconds.
            let net = one.net.clone();
            host.within(|| {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    if let Some(net) = net {
                        net.kill(crate::net::Kill {
                            writes: 0,
                            lose_answer: false,
                            any: true,
                        });
                    }
                })
            });
        }
    }

    /// Gives an installation other flags: rights change at once, replicas find the flags when they start. Gives the number
    /// of those to restart; one more comes at once if there is a `surge`.
    pub fn upgrade(&mut self, installation: usize, flags: Flags, surge: bool) -> usize {
        let now = self.now;
        let one = &mut self.installations[installation];
        let old = std::mem::replace(&mut one.flags, flags);
        one.past.push(old);
        let replicas = one.replicas.iter().filter(|replica| !replica.retired).count();
        if surge {
            if one.replicas.len() == replicas {
                one.replicas.push(Replica::new(&one.flags, replicas));
            }
            let more = &mut one.replicas[replicas];
            more.retired = true;
            if more.host.is_none() {
                more.restart_at = Some(now);
            }
        }
        self.grant_rights();
        replicas
    }

    /// Stops the replica that came for an upgrade.
    pub fn retire(&mut self, installation: usize) {
        let replicas = &self.installations[installation].replicas;
        if let Some(replica) = replicas.iter().position(|one| one.retired) {
            self.installations[installation].replicas[replica].restart_at = None;
            self.stop(installation, replica);
        }
    }

    /// The Role in a namespace is gone.
    pub fn lose_role(&mut self, namespace: &str) {
        self.roleless.insert(namespace.to_owned());
        self.grant_rights();
    }

    /// The Role in a namespace is made anew.
    pub fn give_role(&mut self, namespace: &str) {
        self.roleless.remove(namespace);
        self.grant_rights();
    }

    fn grant_rights(&mut self) {
        for one in &self.installations {
            let mut flags = one.flags.clone();
            if let Some(namespaces) = &mut flags.namespaces {
                namespaces.retain(|namespace| !self.roleless.contains(namespace));
            }
            let rights = Rights::of(&flags, OPERATOR_NAMESPACE);
            self.judge.grant(&flags.instance, rights);
        }
    }

    /// Ends every disturbance and thaws every replica.
    pub fn calm(&mut self) {
        self.sites.calm();
        for one in self.installations.iter_mut().flat_map(|i| &mut i.replicas) {
            if let Some(net) = &one.net {
                net.calm();
            }
            if let (Some(host), Some(_)) = (&mut one.host, one.thaw_at.take()) {
                host.thaw();
            }
        }
    }

    /// Requests that operators have sent so far, but for the Lease.
    pub fn requests(&self) -> u64 {
        let replicas = self.installations.iter().flat_map(|i| &i.replicas);
        replicas
            .filter_map(|one| Some(one.net.as_ref()?.requests()))
            .sum()
    }

    /// Sends a request to the API server as a user; returns status and answer.
    pub fn ask(
        &mut self,
        user: &str,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let mut service = self.server.service_as(user);
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(Body::from(body.into_bytes()))
            .expect("a request of the simulator can be built");
        self.platform.run(async move {
            let answer = service
                .call(request)
                .await
                .expect("nothing disturbs the platform");
            let status = answer.status().as_u16();
            let bytes = answer
                .into_body()
                .collect()
                .await
                .map(|body| body.to_bytes())
                .unwrap_or_default();
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        })
    }

    /// Checks that resources of other owners in Garage and Tyk are as they were, and that no credential reached another Tyk.
    pub fn check_outside(&self) {
        for (url, site) in self.sites.tyks() {
            let files = site.handle.files();
            for document in universe::foreign_documents() {
                let id = document["x-tyk-api-gateway"]["info"]["id"]
                    .as_str()
                    .unwrap_or_default();
                if url == universe::TYKS[0] && site.lost_at_least_once() {
                    continue;
                }
                if url == universe::TYKS[0]
                    && files
                        .get(id)
                        .is_none_or(|found| found["info"] != document["info"])
                {
                    let detail = format!("the API {id} of another owner in {url}");
                    self.judge
                        .violated("a resource of another owner in Garage or Tyk is changed", detail);
                }
            }
            let credentials = site.credentials();
            let stolen = credentials.iter().any(|sent| sent == universe::TYK_SECRET);
            if url == universe::TYKS[2] && stolen {
                let detail = format!("the platform's credential for Tyk went to {url}");
                self.judge.violated("a secret leaves", detail);
            }
        }
        if let Some(site) = self.sites.garages().get(universe::GARAGES[0].0) {
            let kept = site.garage.all_buckets().into_iter().any(|bucket| {
                bucket.global_aliases == [universe::FOREIGN_ALIAS] && bucket.website_config.is_none()
            });
            if !kept {
                self.judge.violated(
                    "a resource of another owner in Garage or Tyk is changed",
                    format!("the bucket {} in Garage", universe::FOREIGN_ALIAS),
                );
            }
        }
    }

    /// Cluster, Garages and Tyks as the oracle reads them.
    pub fn snapshot(&self) -> oracle::Snapshot {
        let served = universe::KINDS
            .iter()
            .filter(|kind| self.server.serves(kind.kind));
        let group = |kind: &universe::Kind| {
            let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
            (group.to_owned(), kind.kind.to_owned())
        };
        let bucket = |info: BucketInfo| oracle::GarageBucket {
            id: info.id.to_string(),
            aliases: info.global_aliases,
            website: info.website_config.map(|documents| oracle::Website {
                index: documents.index_document,
                error: documents.error_document,
            }),
            quotas: oracle::Quotas {
                max_size: info.quotas.max_size,
                max_objects: info.quotas.max_objects,
            },
            objects: info.objects,
        };
        let flags = |one: &Installation| oracle::Flags {
            instance: one.flags.instance.clone(),
            enable_ingress: one.flags.ingress,
            enable_gateway_api: one.flags.gateway_api,
            enable_garage_buckets: one.flags.buckets,
            tyk: one.flags.tyk.clone().map(|controller_name| oracle::TykFlags {
                controller_name,
                cluster_id: Some(CLUSTER.to_owned()),
                definitions: true,
            }),
            namespaces: one.flags.namespaces.clone(),
            cluster_domain: DOMAIN.to_owned(),
        };
        let garages = self.sites.garages().into_iter();
        let tyks = self.sites.tyks().into_iter();
        oracle::Snapshot {
            objects: self.objects(),
            served: served.map(group).collect(),
            garage: garages
                .map(|(url, site)| (url, site.garage.all_buckets().into_iter().map(bucket).collect()))
                .collect(),
            tyk: tyks
                .map(|(url, site)| (url, site.handle.files().into_values().collect()))
                .collect(),
            installations: self.installations.iter().map(flags).collect(),
            gone: Vec::new(),
        }
    }

    /// Every object of the cluster.
    pub fn objects(&self) -> Vec<Value> {
        let kinds: BTreeSet<&str> = universe::KINDS.iter().map(|kind| kind.kind).collect();
        kinds.iter().flat_map(|kind| self.server.list(kind, "")).collect()
    }
}

impl Replica {
    fn new(flags: &Flags, replica: usize) -> Self {
        Self {
            who: Who {
                installation: flags.instance.clone(),
                replica,
                controller: flags.tyk.clone().unwrap_or_default(),
            },
            host: None,
            app: None,
            net: None,
            boots: 0,
            restart_at: Some(Duration::ZERO),
            retired: false,
            thaw_at: None,
            skew: 0,
        }
    }

    fn bury(&mut self) {
        // First what hears, then what it runs on.
        let app = self.app.take();
        match &self.host {
            Some(host) => host.within(|| drop(app)),
            None => drop(app),
        }
        self.host = None;
        self.net = None;
        self.thaw_at = None;
    }
}

fn options(flags: &Flags) -> Options {
    Options {
        enable_ingress: flags.ingress,
        enable_gateway_api: flags.gateway_api,
        enable_garage_buckets: flags.buckets,
        scope: match &flags.namespaces {
            None => Scope::All,
            Some(namespaces) => Scope::Namespaces(namespaces.clone()),
        },
        cluster_domain: DOMAIN.into(),
        concurrency: 16,
        instance: flags.instance.clone(),
        pod: Some("pod".into()),
        extra_ca: None,
        guards: Guards::default(),
        tyk: controllers::Options {
            enabled: flags.tyk.is_some(),
            definitions: flags.tyk.is_some(),
            settings: match &flags.tyk {
                Some(name) => tyk::Settings {
                    controller_name: name.clone(),
                    ..tyk::Settings::default()
                },
                None => tyk::Settings::default(),
            },
            cluster: Some(CLUSTER.into()),
            record: Some(Key::new(OPERATOR_NAMESPACE, record_name(&flags.instance))),
        },
    }
}
