//! Which kinds are served, as a snapshot that costs nothing to ask. Only discovery decides; watches on the CRDs (by
//! name, metadata only) say when to ask it. A failing watch, an EOF, a 5xx or a time-out never says "absent": the last
//! known state stays.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use arc_swap::ArcSwap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, core::PartialObjectMeta};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    hub::{Change, Handle, Lookup, Scope, Selector, WatchHub},
    jitter::{Backoff, Jitter},
    metrics::{KindLabel, Metrics},
};
use crate::{ApiKind, error::classify, layers::api_presence::PresenceSnapshot};

pub use crate::layers::api_presence::Presence as ApiState;

/// Discovery is asked so often while the CRDs cannot be watched, or disagree with it.
const POLL: Duration = Duration::from_secs(30);
/// A discovery answer must come within this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Discovery lags behind a CRD, in both directions: asked again so long after each change of one.
const AFTER_CHANGE: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(7),
];
/// A served kind must be missing for so long before it counts as absent; longer while its CRD is there (a version that
/// is switched off, or an API server that is just starting).
const DOWN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// Where a kind comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A CRD, `<plural>.<group>`: may come and go.
    Crd,
    /// Built into the API server: confirmed once by discovery.
    Builtin,
    /// Taken for served without asking.
    Always,
}

type Snapshot = HashMap<ApiKind, ApiState>;

/// The snapshot. Cheap to clone; watching ends with the last clone.
#[derive(Clone, Debug)]
pub struct Presence {
    board: Arc<Board>,
    _tasks: Arc<Vec<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Board {
    snapshot: ArcSwap<Snapshot>,
    changed: watch::Sender<u64>,
    metrics: Option<Metrics>,
}

impl Board {
    fn set(&self, kind: ApiKind, state: ApiState) {
        let mut changed = false;
        self.snapshot.rcu(|old| {
            let mut new = Snapshot::clone(old);
            changed = new.insert(kind, state) != Some(state);
            new
        });
        if !changed {
            return;
        }
        if let Some(metrics) = &self.metrics {
            let label = KindLabel {
                kind: kind.to_string(),
            };
            metrics
                .api_served
                .get_or_create(&label)
                .set(i64::from(state == ApiState::Served));
        }
        tracing::info!(kind = %kind, state = ?state, "presence of an API");
        self.changed.send_modify(|n| *n += 1);
    }

    fn get(&self, kind: &ApiKind) -> ApiState {
        self.snapshot
            .load()
            .get(kind)
            .copied()
            .unwrap_or(ApiState::Unknown)
    }
}

impl Presence {
    /// Begins to watch these kinds.
    pub fn start(
        client: &Client,
        hub: &WatchHub,
        metrics: &Metrics,
        kinds: impl IntoIterator<Item = (ApiKind, Origin)>,
    ) -> Self {
        let board = Arc::new(Board::new(Some(metrics.clone())));
        let mut groups = HashMap::<(&str, &str), Vec<Member>>::new();
        for (kind, origin) in kinds {
            if board.snapshot.load().contains_key(&kind) {
                continue;
            }
            if origin == Origin::Always {
                board.set(kind, ApiState::Served);
                continue;
            }
            board.set(kind, ApiState::Unknown);
            let crd = (origin == Origin::Crd).then(|| {
                let name = format!("{}.{}", kind.plural, kind.group);
                hub.metadata::<CustomResourceDefinition>(
                    &Scope::All,
                    &Selector::fields(format!("metadata.name={name}")),
                )
            });
            groups
                .entry((kind.group, kind.version))
                .or_default()
                .push(Member {
                    kind,
                    crd,
                    missing_since: None,
                });
        }
        let tasks = groups
            .into_values()
            .map(|members| {
                let (client, board) = (client.clone(), Arc::clone(&board));
                AbortOnDropHandle::new(tokio::spawn(follow(client, board, members)))
            })
            .collect();
        Self {
            board,
            _tasks: Arc::new(tasks),
        }
    }

    /// A snapshot without watching, changed by [`Presence::set`]; for tests and for tools.
    pub fn fixed(states: impl IntoIterator<Item = (ApiKind, ApiState)>) -> Self {
        let board = Board::new(None);
        for (kind, state) in states {
            board.set(kind, state);
        }
        Self {
            board: Arc::new(board),
            _tasks: Arc::default(),
        }
    }

    /// Changes the snapshot by hand.
    pub fn set(&self, kind: ApiKind, state: ApiState) {
        self.board.set(kind, state);
    }

    /// Whether a kind is served, without any call. `Unknown` for kinds that are not watched.
    pub fn get(&self, kind: &ApiKind) -> ApiState {
        self.board.get(kind)
    }

    /// All kinds are served.
    pub fn all_served(&self, kinds: &[ApiKind]) -> bool {
        kinds.iter().all(|k| self.get(k) == ApiState::Served)
    }

    /// Counts changes; wakes at each.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.board.changed.subscribe()
    }
}

impl PresenceSnapshot for Presence {
    fn presence(&self, kind: &ApiKind) -> ApiState {
        self.get(kind)
    }
}

impl Board {
    fn new(metrics: Option<Metrics>) -> Self {
        Self {
            snapshot: ArcSwap::default(),
            changed: watch::Sender::new(0),
            metrics,
        }
    }
}

type CrdWatch = Handle<PartialObjectMeta<CustomResourceDefinition>>;

/// One kind of a group version.
struct Member {
    kind: ApiKind,
    crd: Option<CrdWatch>,
    missing_since: Option<Instant>,
}

impl Member {
    /// Whether the CRD exists; `None` if that cannot be told now.
    fn crd_exists(&self) -> Option<bool> {
        let crd = self.crd.as_ref()?;
        (crd.is_ready() && crd.problem().is_none()).then(|| {
            let crds: Lookup<_> = crd.store();
            !crds.is_empty()
        })
    }

    /// Nothing needs to be asked until something happens.
    fn settled(&self, board: &Board) -> bool {
        let state = board.get(&self.kind);
        match (&self.crd, self.crd_exists()) {
            // built in: once is enough
            (None, _) => state == ApiState::Served,
            (Some(_), Some(exists)) => state != ApiState::Unknown && exists == (state == ApiState::Served),
            (Some(_), None) => false,
        }
    }

    /// Takes in what discovery said; tells how long to wait before a missing kind may be taken for absent.
    fn learn(&mut self, board: &Board, served: bool, now: Instant) -> Option<Duration> {
        if served {
            self.missing_since = None;
            board.set(self.kind, ApiState::Served);
            return None;
        }
        if board.get(&self.kind) != ApiState::Served {
            board.set(self.kind, ApiState::Absent);
            return None;
        }
        let since = *self.missing_since.get_or_insert(now);
        let patience = match self.crd_exists() {
            Some(true) => DOWN.1,
            _ => DOWN.0,
        };
        let waited = now.duration_since(since);
        if waited >= patience {
            self.missing_since = None;
            board.set(self.kind, ApiState::Absent);
            return None;
        }
        Some(patience - waited)
    }
}

/// Follows the kinds of one group version: one discovery answer is about all of them.
async fn follow(client: Client, board: Arc<Board>, mut members: Vec<Member>) {
    let (changed, listed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut watching = Vec::new();
    for member in &members {
        if let Some(crd) = &member.crd {
            let (changed, listed) = (Arc::clone(&changed), Arc::clone(&listed));
            let first = AtomicBool::new(true);
            let listening = crd.listen(Box::new(move |change| match change {
                Change::Ready => {
                    first.store(false, Ordering::Relaxed);
                    listed.notify_one();
                }
                Change::Stopped => first.store(true, Ordering::Relaxed),
                // The first list is no news: discovery is asked anyway.
                _ if first.load(Ordering::Relaxed) => {}
                Change::Applied { .. } | Change::Deleted { .. } => changed.notify_one(),
            }));
            watching.push((listening, crd.start()));
        }
    }
    let Some((group, version)) = members.first().map(|m| (m.kind.group, m.kind.version)) else {
        return;
    };
    let jitter = Jitter::random();
    let mut backoff = Backoff::new(Duration::from_secs(1), POLL, Jitter::random());
    let mut after_change = AFTER_CHANGE.len();
    let mut ask = true;
    let mut look_again = false;
    let mut problem: Option<String> = None;
    loop {
        let mut wait: Option<Duration> = None;
        let mut sooner = |other: Duration| wait = Some(wait.map_or(other, |w: Duration| w.min(other)));
        if ask {
            match discover(&client, group, version).await {
                Ok(kinds) => {
                    backoff.reset();
                    if problem.take().is_some() {
                        tracing::info!(group, version, "discovery works again");
                    }
                    let now = Instant::now();
                    for member in &mut members {
                        let served = kinds
                            .iter()
                            .any(|(kind, plural)| kind == member.kind.kind && plural == member.kind.plural);
                        if let Some(patience) = member.learn(&board, served, now) {
                            sooner(patience);
                        }
                    }
                }
                Err(error) => {
                    if problem.as_ref() != Some(&error) {
                        tracing::warn!(
                            group,
                            version,
                            "discovery fails and is tried again, the last known state stays: {error}"
                        );
                        problem = Some(error);
                    }
                    sooner(backoff.next_wait());
                }
            }
        }
        let settled = members.iter().all(|m| m.settled(&board));
        if std::mem::take(&mut look_again) && !settled {
            after_change = 0;
        }
        if ask && let Some(next) = AFTER_CHANGE.get(after_change) {
            sooner(*next);
            after_change += 1;
        }
        let due = wait.is_some();
        let wait = wait.unwrap_or_else(|| jitter.around(POLL, 0.2));
        tokio::select! {
            () = changed.notified() => {
                after_change = 0;
                ask = true;
            }
            () = listed.notified() => {
                look_again = true;
                ask = true;
            }
            // What is settled is left in peace; a watch that fails meanwhile is noticed here.
            () = tokio::time::sleep(wait) => ask = due || !members.iter().all(|m| m.settled(&board)),
        }
    }
}

/// Kinds (with plural) of a group version; none if it is not served at all.
async fn discover(client: &Client, group: &str, version: &str) -> Result<Vec<(String, String)>, String> {
    let asked = async {
        if group.is_empty() {
            client.list_core_api_resources(version).await
        } else {
            client
                .list_api_group_resources(&format!("{group}/{version}"))
                .await
        }
    };
    match timeout(ANSWER_LIMIT, asked).await {
        Err(_) => Err("no answer in time".to_owned()),
        Ok(Ok(list)) => Ok(list.resources.into_iter().map(|r| (r.kind, r.name)).collect()),
        // Only the API server's own "not found" is an answer.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(Vec::new()),
        Ok(Err(error)) => Err(classify(&error).1),
    }
}
