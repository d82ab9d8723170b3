//! While a foreign object stands in the way of a child: one metadata watch on that name, so that ours is created within
//! seconds of its going. Bounded; beyond the bound the slow retry has to do.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client,
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::watcher,
};
use tokio_util::task::AbortOnDropHandle;

use super::memory::ChildKey;
use crate::{
    Child,
    runtime::pace::{Pulse, paced},
};

/// How many names are watched at the most.
pub const MAX_WATCHES: usize = 256;

/// Called with the owner's namespace and name when the object in the way changed or went.
pub type Wake = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The watches of one controller.
#[derive(Clone)]
pub struct Squatters {
    client: Client,
    wake: Wake,
    watched: Arc<Mutex<HashMap<ChildKey, Watched>>>,
}

/// What stands under a name, as far as it matters; `None` while it is not known.
type Seen = Arc<Mutex<Option<Arc<Child>>>>;

struct Watched {
    seen: Seen,
    _task: AbortOnDropHandle<()>,
}

fn see(seen: &Seen, meta: Option<&ObjectMeta>) {
    *seen.lock().unwrap_or_else(PoisonError::into_inner) =
        meta.map(|meta| Arc::new(Child::of_metadata(whose(meta))));
}

impl Squatters {
    /// No watch yet. `wake` must only note the trigger, not work.
    pub fn new(client: Client, wake: Wake) -> Self {
        Self {
            client,
            wake,
            watched: Arc::default(),
        }
    }

    /// This foreign object has the name. Idempotent.
    pub fn watch(&self, key: &ChildKey, live: &Child) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() >= MAX_WATCHES || watched.contains_key(key) {
            return;
        }
        let seen = Seen::default();
        see(&seen, Some(&live.metadata));
        let task = tokio::spawn(run(
            self.client.clone(),
            key.clone(),
            Arc::clone(&self.wake),
            Arc::clone(&seen),
        ));
        let task = AbortOnDropHandle::new(task);
        watched.insert(key.clone(), Watched { seen, _task: task });
    }

    /// What is known to have the name: while its watch works, nobody need ask the API server again.
    pub fn seen(&self, key: &ChildKey) -> Option<Arc<Child>> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = &watched.get(key)?.seen;
        seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nothing foreign has the name any more. Idempotent.
    pub fn release(&self, key: &ChildKey) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.remove(key);
    }

    /// The owner is gone: nobody waits for its names any more.
    pub fn forget_owner(&self, namespace: &str, owner: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|key, _| key.namespace != namespace || key.owner != owner);
    }

    /// Names that are watched now.
    pub fn len(&self) -> usize {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// No name is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What decides whose an object is. Anything else about it (its status, say) is no reason to look again.
fn whose(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        uid: meta.uid.clone(),
        owner_references: meta.owner_references.clone(),
        annotations: meta.annotations.clone(),
        ..ObjectMeta::default()
    }
}

async fn run(client: Client, key: ChildKey, wake: Wake, seen: Seen) {
    let client = paced(&client, false, &Pulse::default());
    let api: Api<PartialObjectMeta<DynamicObject>> =
        Api::namespaced_with(client, &key.namespace, &key.kind.api_resource());
    let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let wake = || wake(&key.namespace, &key.owner);
    let first = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut known = first.map(|child| child.metadata.clone());
    let mut listed = false;
    let mut pause = Duration::from_secs(1);
    let mut events = watcher(api, config).boxed();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(o) | watcher::Event::InitApply(o))) => {
                let now = whose(&o.metadata);
                see(&seen, Some(&now));
                if known.as_ref().is_some_and(|known| *known != now) {
                    wake();
                }
                known = Some(now);
                listed = true;
            }
            Ok(Some(watcher::Event::Delete(_))) => {
                known = None;
                see(&seen, None);
                wake();
            }
            Ok(Some(watcher::Event::Init)) => listed = false,
            Ok(Some(watcher::Event::InitDone)) => {
                pause = Duration::from_secs(1);
                // Gone between the refusal and this list, or during a disconnection.
                if !listed {
                    known = None;
                    see(&seen, None);
                    wake();
                }
            }
            Ok(None) => return,
            Err(error) => {
                see(&seen, None);
                tracing::debug!(kind = key.kind.kind, name = key.name, %error, "watch on a foreign object");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(60));
            }
        }
    }
}
