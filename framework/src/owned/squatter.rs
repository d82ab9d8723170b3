//! While a foreign object stands in the way of a child: one metadata watch on that name, so that ours is created within
//! seconds of its going. The same for an own object that is terminating and in no cache. Bounded; beyond the bound
//! the slow retry of the Conditions layer has to do.

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

    /// Watches the object that has the name. Idempotent. `false`: there are [`MAX_WATCHES`] already, so that only a retry
    /// notices its end.
    pub fn watch(&self, key: &ChildKey, live: &Child) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.contains_key(key) {
            return true;
        }
        if watched.len() >= MAX_WATCHES {
            return false;
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
        true
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

    /// Releases the names of this owner that are not among these.
    pub fn keep_wanted(&self, namespace: &str, owner: &str, is_wanted: impl Fn(&ChildKey) -> bool) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|key, _| key.namespace != namespace || key.owner != owner || is_wanted(key));
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
        deletion_timestamp: meta.deletion_timestamp.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiKind;

    #[tokio::test(start_paused = true)]
    async fn watches_are_bounded_and_end_with_the_wish_for_the_name() {
        let client = crate::testing::ApiServer::new().client();
        let squatters = Squatters::new(client, Arc::new(|_, _| {}));
        let key = |name: usize, owner: &str| ChildKey {
            kind: ApiKind::new("", "v1", "ConfigMap", "configmaps"),
            namespace: "ns".into(),
            name: name.to_string(),
            owner: owner.into(),
        };
        let live = Child::default();
        for n in 0..MAX_WATCHES {
            assert!(squatters.watch(&key(n, "o"), &live));
        }
        assert!(
            !squatters.watch(&key(MAX_WATCHES, "o"), &live),
            "it says that it is full"
        );
        assert!(squatters.watch(&key(0, "o"), &live), "this one is watched");
        squatters.keep_wanted("ns", "another", |_| false);
        assert_eq!(squatters.len(), MAX_WATCHES);
        squatters.keep_wanted("ns", "o", |key| key.name == "7");
        assert_eq!(squatters.len(), 1);
        squatters.keep_wanted("ns", "o", |_| false);
        assert!(squatters.is_empty());
    }
}
