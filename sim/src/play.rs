//! One history from start to verdict, and what is done with a bad one: it is shortened to what is needed, and told.

use std::{
    collections::BTreeMap,
    sync::Once,
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};

use crate::{
    cluster, determinism,
    history::{self, Action, BucketEdit, History, Step, Target},
    judge::Violation,
    oracle, universe,
    world::World,
};

/// What came of a history.
#[derive(Debug)]
pub struct Verdict {
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// What happened, line by line.
    pub story: Vec<String>,
    /// Simulated time.
    pub simulated: Duration,
    /// Writes of the operators.
    pub writes: u64,
    /// By field manager and kind of write.
    pub written: BTreeMap<(String, String), u64>,
    /// By kind of request and fault.
    pub disturbed: BTreeMap<(String, &'static str), u64>,
}

/// Nothing is written for so long: the world is quiet. Usage figures follow a bucket after 15 minutes, and a look at it.
const QUIET: Duration = Duration::from_secs(1_300);
/// It must be quiet after so long.
const LIMIT: Duration = Duration::from_secs(45 * 60);
/// And stay so for so long.
const REST: Duration = Duration::from_secs(3_600);
/// Requests of all replicas in a minute while everything goes wrong: more is a hot loop.
const REQUESTS: u64 = 3_000;

/// What the process makes once (compiled patterns, for example) takes random numbers from the thread that comes first:
/// a short history that counts for nothing comes first.
fn warm_up() {
    static WARM: Once = Once::new();
    WARM.call_once(|| {
        let done = std::thread::Builder::new().stack_size(STACK).spawn(|| {
            let history = history::everything();
            determinism::enter(history.seed);
            let mut world = World::begin(history.seed, history.installations);
            let (mut later, mut old) = (Vec::new(), BTreeMap::new());
            for step in &history.steps {
                let until = world.now() + step.after;
                world.run_until(until);
                act(&mut world, &step.action, &mut later, &mut old);
            }
            world.run_until(Duration::from_secs(60));
        });
        let _ = done.map(std::thread::JoinHandle::join);
    });
}

const STACK: usize = 16 << 20;

/// Plays a history on a thread of its own, so that nothing of one reaches the next.
pub fn play(history: &History) -> Verdict {
    warm_up();
    let history = history.clone();
    let seed = history.seed;
    let played = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            determinism::enter(history.seed);
            run(&history)
        })
        .expect("a thread can be started")
        .join();
    played.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Verdict {
            seed,
            violations: vec![Violation {
                rule: "something panics",
                at: 0,
                detail: text,
            }],
            story: Vec::new(),
            simulated: Duration::ZERO,
            writes: 0,
            written: BTreeMap::new(),
            disturbed: BTreeMap::new(),
        }
    })
}

fn run(history: &History) -> Verdict {
    let mut world = World::begin(history.seed, history.installations.clone());
    let mut later: Vec<(Duration, Later)> = Vec::new();
    let mut old: BTreeMap<String, Value> = BTreeMap::new();
    let mut at = Duration::ZERO;
    for step in &history.steps {
        at += step.after;
        pass(&mut world, at, &mut later);
        world.judge.tell(format!("* {}", step.action));
        act(&mut world, &step.action, &mut later, &mut old);
    }
    // Everything that is to pass has passed; whatever was broken works again.
    later.sort_by_key(|(at, _)| *at);
    let end = later.last().map_or(at, |(end, _)| (*end).max(at)) + Duration::from_secs(1);
    pass(&mut world, end, &mut later);
    world.calm();
    cluster::mend(&mut world);
    world.judge.tell("* everything works again".to_owned());
    come_to_rest(&mut world);
    let judge = world.judge.clone();
    Verdict {
        seed: history.seed,
        violations: judge.violations(),
        story: judge.story(),
        simulated: world.now(),
        writes: judge.writes(),
        written: judge.written(),
        disturbed: judge.disturbed(),
    }
}

/// What is taken back later.
enum Later {
    Allow(reconcile_kit::testing::RuleId),
    Serve,
    Cut((usize, usize), &'static str),
    Cluster(cluster::Then),
}

/// Lets time pass, taking back on the way what is due, and counts requests.
fn pass(world: &mut World, until: Duration, later: &mut Vec<(Duration, Later)>) {
    loop {
        later.sort_by_key(|(at, _)| *at);
        let next = later.first().map_or(until, |(at, _)| (*at).min(until));
        walk(world, next);
        if later.first().is_none_or(|(at, _)| *at > until) {
            break;
        }
        match later.remove(0).1 {
            Later::Allow(rule) => {
                world.server.undeny(rule);
            }
            Later::Serve => {
                finish_deletions(world);
                universe::install_gateway_api(&world.server);
            }
            Later::Cluster(then) => cluster::follow(world, &then),
            Later::Cut(who, resource) => {
                if let Some((net, _)) = world.net(who.0, who.1) {
                    net.cut(resource);
                }
            }
        }
    }
}

/// Takes the finalizers off the objects that keep a deleted CRD, as an impatient administrator does.
fn finish_deletions(world: &mut World) {
    for kind in ["HTTPRoute", "Gateway", "ReferenceGrant"] {
        for object in world.server.list(kind, "") {
            if object["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            let (kind, namespace, name) = universe::id_of(&object);
            let target = Target {
                kind,
                namespace,
                name,
            };
            if let Some(path) = path(&target, "") {
                let patch = json!({"metadata": {"finalizers": null}});
                world.ask(
                    "user",
                    Method::PATCH,
                    &path,
                    "application/merge-patch+json",
                    Some(&patch),
                );
            }
        }
    }
}

fn walk(world: &mut World, until: Duration) {
    while world.now() < until {
        let next = until.min(world.now() + Duration::from_secs(60));
        let before = world.requests();
        world.run_until(next);
        let requests = world.requests().saturating_sub(before);
        if requests > REQUESTS {
            let detail = format!("{requests} requests in a minute");
            world.judge.violated("requests are bounded", detail);
        }
    }
}

fn come_to_rest(world: &mut World) {
    let begun = world.now();
    let mut quiet_since = world.now();
    let mut writes = world.judge.writes();
    while world.now() - quiet_since < QUIET {
        if world.now() - begun > LIMIT {
            let detail = format!("writes go on for {} minutes", LIMIT.as_secs() / 60);
            world.judge.violated("the world comes to rest", detail);
            return;
        }
        let next = world.now() + Duration::from_secs(10);
        walk(world, next);
        if world.judge.writes() != writes {
            writes = world.judge.writes();
            quiet_since = world.now();
        }
    }
    world.judge.tell("* the world is quiet".to_owned());
    world.check_outside();
    cluster::judge_leaders(world);
    let judgement = oracle::judge(&world.snapshot());
    for found in &judgement.violations {
        world.judge.violated(found.rule, found.to_string());
    }
    let until = world.now() + REST;
    walk(world, until);
    let more = world.judge.writes() - writes;
    if more > 0 {
        let story = world.judge.story();
        let last: Vec<&str> = story.iter().rev().take(3).map(String::as_str).collect();
        let detail = format!("{more} writes in an hour; the last: {}", last.join("; "));
        world
            .judge
            .violated("nothing is written while nothing changes", detail);
    }
}

fn act(
    world: &mut World,
    action: &Action,
    later: &mut Vec<(Duration, Later)>,
    old: &mut BTreeMap<String, Value>,
) {
    const MERGE: &str = "application/merge-patch+json";
    const JSON: &str = "application/json";
    let now = world.now();
    match action {
        Action::Create { user, object } => {
            let (kind, namespace, _) = universe::id_of(object);
            if let Some(kind) = universe::kind_of(&kind) {
                let path = format!("{}?fieldManager={user}", universe::path(kind, &namespace, ""));
                world.ask(user, Method::POST, &path, JSON, Some(object));
            }
        }
        Action::Edit { user, target, patch } => {
            remember(world, target, old);
            if let Some(path) = path(target, "") {
                world.ask(
                    user,
                    Method::PATCH,
                    &format!("{path}?fieldManager={user}"),
                    MERGE,
                    Some(patch),
                );
            }
        }
        Action::EditStatus { user, target, patch } => {
            if let Some(path) = path(target, "/status") {
                world.ask(
                    user,
                    Method::PATCH,
                    &format!("{path}?fieldManager={user}"),
                    MERGE,
                    Some(patch),
                );
            }
        }
        Action::Delete { user, target } => {
            remember(world, target, old);
            if let Some(path) = path(target, "") {
                world.ask(user, Method::DELETE, &path, JSON, None);
            }
        }
        Action::Copy {
            target,
            namespace,
            name,
            status,
        } => copy(world, target, namespace, name, *status),
        Action::Forge {
            target,
            victim,
            place,
        } => forge(world, target, victim, place.as_deref()),
        Action::PutOld { target } => {
            let live = world.server.get(&target.kind, &target.namespace, &target.name);
            if let (Some(mut object), Some(path)) = (old.get(&target.to_string()).cloned(), path(target, ""))
            {
                match live {
                    Some(live) => {
                        object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone()
                    }
                    None => return,
                }
                world.ask(
                    "gitops",
                    Method::PUT,
                    &format!("{path}?fieldManager=gitops"),
                    JSON,
                    Some(&object),
                );
            }
        }
        Action::Disturb {
            who,
            which,
            how,
            times,
            seconds,
        } => {
            if let Some((net, instant)) = world.net(who.0, who.1) {
                net.disturb(
                    which.clone(),
                    *how,
                    *times,
                    instant + Duration::from_secs(*seconds),
                );
            }
        }
        Action::Stick {
            who,
            resource,
            seconds,
            cut,
        } => {
            let time = Duration::from_secs(*seconds);
            if let Some((net, instant)) = world.net(who.0, who.1) {
                net.stick(resource, instant + time);
                if *cut {
                    later.push((now + time, Later::Cut(*who, resource)));
                }
            }
        }
        Action::Compact => {
            world.server.compact();
        }
        Action::CutWatches { resource } => {
            world.server.cut_watches(resource);
        }
        Action::Deny {
            installation,
            verb,
            resource,
            seconds,
        } => {
            let instance = &world.installations[*installation].flags.instance;
            let user = format!(
                "system:serviceaccount:{}:{instance}",
                crate::judge::OPERATOR_NAMESPACE
            );
            let rule = world.server.deny(&user, verb, resource);
            later.push((now + Duration::from_secs(*seconds), Later::Allow(rule)));
        }
        Action::LoseGatewayApi { plural, seconds } => {
            let crd = format!("{plural}.gateway.networking.k8s.io");
            if let Some(path) = path(
                &Target {
                    kind: "CustomResourceDefinition".into(),
                    namespace: String::new(),
                    name: crd,
                },
                "",
            ) {
                world.ask("user", Method::DELETE, &path, JSON, None);
            }
            later.push((now + Duration::from_secs(*seconds), Later::Serve));
        }
        Action::Kill { who, kill } => {
            if let Some((net, _)) = world.net(who.0, who.1) {
                net.kill(*kill);
            }
        }
        Action::PowerOff { who, seconds, skew } => {
            world.power_off(who.0, who.1, Duration::from_secs(*seconds), *skew);
        }
        Action::Freeze { who, seconds } => world.freeze(who.0, who.1, Duration::from_secs(*seconds)),
        Action::Stop { who } => world.stop(who.0, who.1),
        Action::Garage { site, mood } => {
            if let Some(site) = world.sites.garages().values().nth(*site) {
                site.set_mood(*mood);
            }
        }
        Action::Tyk { site, mood } => {
            if let Some(site) = world.sites.tyks().get(universe::TYKS[*site]) {
                site.set_mood(*mood);
            }
        }
        Action::TykLosesFiles { site } => {
            world.judge.tamper();
            if let Some(site) = world.sites.tyks().get(universe::TYKS[*site]) {
                site.lose_files();
            }
        }
        Action::TykRestarts { site } => {
            if let Some(site) = world.sites.tyks().get(universe::TYKS[*site]) {
                site.handle.restart();
            }
        }
        Action::Cluster(event) => {
            let follows = cluster::act(world, event).into_iter();
            later.extend(follows.map(|(at, then)| (at, Later::Cluster(then))));
        }
        Action::TykEdited { site, nth, removed } => {
            world.judge.tamper();
            if let Some(site) = world.sites.tyks().get(universe::TYKS[*site]) {
                let ours = |id: &String| id.starts_with("gwapi-");
                let ids: Vec<String> = site.handle.files().into_keys().filter(ours).collect();
                if let Some(id) = ids.get(nth % ids.len().max(1)) {
                    if *removed {
                        site.handle.remove(id);
                    } else {
                        site.handle
                            .edit(id, |document| document["info"]["title"] = json!("edited"));
                    }
                }
            }
        }
        Action::GarageEdited { site, nth, what } => {
            if let Some(site) = world.sites.garages().values().nth(*site) {
                let mut buckets = site.garage.all_buckets();
                buckets.retain(|bucket| bucket.global_aliases != [universe::FOREIGN_ALIAS]);
                if let Some(bucket) = buckets.get(nth % buckets.len().max(1)) {
                    match what {
                        BucketEdit::Lost => site.garage.lose(&bucket.id),
                        BucketEdit::Filled => site.garage.set_content(&bucket.id, 3, 3_000),
                        BucketEdit::Emptied => site.garage.set_content(&bucket.id, 0, 0),
                    }
                }
            }
        }
    }
}

fn path(target: &Target, sub: &str) -> Option<String> {
    let kind = universe::kind_of(&target.kind)?;
    Some(format!(
        "{}{sub}",
        universe::path(kind, &target.namespace, &target.name)
    ))
}

fn remember(world: &World, target: &Target, old: &mut BTreeMap<String, Value>) {
    if let Some(object) = world.server.get(&target.kind, &target.namespace, &target.name) {
        old.entry(target.to_string()).or_insert(object);
    }
}

const APIS: &str = "routewright.dev/tyk-apis";

fn forge(world: &mut World, target: &Target, victim: &Target, place: Option<&str>) {
    let victim = world.server.get(&victim.kind, &victim.namespace, &victim.name);
    let named = victim
        .as_ref()
        .and_then(|route| route["metadata"]["annotations"][APIS].as_str())
        .unwrap_or("tyk/main@00000000=0123456789abcdef0123");
    let forged = match (place, named.split_once('=')) {
        (Some(place), Some((_, ids))) => format!("{place}={ids}"),
        _ => named.to_owned(),
    };
    let patch = json!({"metadata": {"annotations": {APIS: forged}}});
    if let Some(path) = path(target, "") {
        let path = format!("{path}?fieldManager=tenant");
        world.ask(
            "tenant",
            Method::PATCH,
            &path,
            "application/merge-patch+json",
            Some(&patch),
        );
    }
}

fn copy(world: &mut World, target: &Target, namespace: &str, name: &str, status: bool) {
    let Some(mut object) = world.server.get(&target.kind, &target.namespace, &target.name) else {
        return;
    };
    let Some(kind) = universe::kind_of(&target.kind) else {
        return;
    };
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            metadata.remove(field);
        }
        metadata.insert("namespace".into(), json!(namespace));
        metadata.insert("name".into(), json!(name));
    }
    let brought = object["status"].clone();
    let place = universe::path(kind, namespace, "");
    let (code, made) = world.ask(
        "backup",
        Method::POST,
        &format!("{place}?fieldManager=backup"),
        "application/json",
        Some(&object),
    );
    if code == 201 && status && !brought.is_null() {
        let mut whole = made;
        whole["status"] = brought;
        let place = format!(
            "{}/status?fieldManager=backup",
            universe::path(kind, namespace, name)
        );
        world.ask("backup", Method::PUT, &place, "application/json", Some(&whole));
    }
}

/// Leaves out of a bad history what it does not need to be bad by the same rule, as long as there is time.
pub fn shorten(history: &History, rule: &str, until: Instant) -> History {
    let bad = |history: &History| play(history).violations.iter().any(|found| found.rule == rule);
    let mut best = history.clone();
    let mut chunk = (best.steps.len() / 2).max(1);
    loop {
        let mut at = 0;
        while at < best.steps.len() {
            if Instant::now() > until {
                return best;
            }
            let mut shorter = best.clone();
            let end = (at + chunk).min(shorter.steps.len());
            let skipped: Duration = shorter.steps.drain(at..end).map(|step| step.after).sum();
            // Time passes all the same.
            if let Some(next) = shorter.steps.get_mut(at) {
                next.after += skipped;
            }
            if bad(&shorter) {
                best = shorter;
            } else {
                at = end;
            }
        }
        if chunk == 1 {
            return best;
        }
        chunk = (chunk / 2).max(1);
    }
}

/// The steps of a history, as people read them.
pub fn tell(history: &History) -> String {
    let mut at = Duration::ZERO;
    let mut text = format!(
        "seed {}, installations {:?}\n",
        history.seed, history.installations
    );
    for Step { after, action } in &history.steps {
        at += *after;
        text.push_str(&format!("{:>8.1} s  {action}\n", at.as_secs_f64()));
    }
    text
}
