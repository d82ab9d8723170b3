//! Objects, kinds and the event history: what is there, and the two ways in which it changes. What a write means is in
//! `write`, what follows from a deletion in `control`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::ResourceDef;
use super::watch::{Event, EventKind, Watchers};

/// Group and plural name: all versions of a resource share their objects.
pub(crate) type Resource = (String, String);

/// One object's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) resource: Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// When dependents of a deleted owner go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gc {
    /// Within the same call, right after the owner. The default.
    Immediate,
    /// When the test calls `collect_garbage`.
    Manual,
}

/// Where and how a write goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) def: &'a ResourceDef,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
}

impl Target<'_> {
    pub(super) fn id(&self) -> Id {
        Id {
            resource: (self.def.group.clone(), self.def.plural.clone()),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
        }
    }
}

/// An object and whether the request created it.
pub(crate) struct Written {
    pub(crate) object: Arc<Value>,
    pub(crate) created: bool,
}

/// `DeleteOptions`, as far as they matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<String>,
    pub(crate) dry_run: bool,
}

/// What a DELETE answers with.
pub(crate) enum Deleted {
    /// Gone; the last state.
    Gone(Arc<Value>),
    /// Marked, waiting for finalizers.
    Terminating(Arc<Value>),
}

pub(super) const CRD_GROUP: &str = "apiextensions.k8s.io";
/// Where resource versions start: what a client may use as "never matches" lies below.
const FIRST_REVISION: u64 = 1000;
pub(crate) struct Store {
    pub(super) revision: u64,
    pub(super) uids: u64,
    pub(super) names: u64,
    pub(crate) defs: Vec<Arc<ResourceDef>>,
    /// Resources whose CRD is being deleted: no creation.
    pub(super) closing: BTreeSet<Resource>,
    pub(super) objects: BTreeMap<Resource, BTreeMap<(String, String), Arc<Value>>>,
    /// Owner uid → objects that name it.
    pub(super) dependents: HashMap<String, BTreeSet<Id>>,
    pub(super) dead: BTreeSet<String>,
    /// Custom resources whose stored bytes hold empty metadata collections that no reader ever sees. The next write
    /// differs from the bytes, and so is a write, even when it changes nothing.
    pub(super) unclean: BTreeSet<Id>,
    pub(super) gc_queue: VecDeque<Id>,
    pub(crate) gc: Gc,
    /// Namespaces that stay terminating.
    pub(super) held: BTreeSet<String>,
    /// Custom resources as they are stored, where the present schema hides fields of them.
    pub(super) unseen: BTreeMap<Id, Arc<Value>>,
    pub(super) history: HashMap<Resource, Vec<Event>>,
    /// Oldest revision that a watch may start from.
    pub(super) compacted: u64,
    pub(super) compacted_of: HashMap<Resource, u64>,
    pub(crate) watchers: Watchers,
    pub(super) epoch: jiff::Timestamp,
    pub(super) started: tokio::time::Instant,
}

pub(super) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

pub(super) fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub(super) fn is_crd(id: &Id) -> bool {
    id.resource.0 == CRD_GROUP && id.resource.1 == "customresourcedefinitions"
}

pub(super) fn is_namespace(id: &Id) -> bool {
    id.resource.0.is_empty() && id.resource.1 == "namespaces"
}

impl Store {
    pub(crate) fn new(epoch: jiff::Timestamp) -> Self {
        Self {
            revision: FIRST_REVISION,
            uids: 0,
            names: 0,
            defs: Vec::new(),
            closing: BTreeSet::new(),
            objects: BTreeMap::new(),
            dependents: HashMap::new(),
            dead: BTreeSet::new(),
            unclean: BTreeSet::new(),
            gc_queue: VecDeque::new(),
            gc: Gc::Immediate,
            held: BTreeSet::new(),
            unseen: BTreeMap::new(),
            history: HashMap::new(),
            compacted: FIRST_REVISION,
            compacted_of: HashMap::new(),
            watchers: Watchers::default(),
            epoch,
            started: tokio::time::Instant::now(),
        }
    }

    /// Time of the server: the epoch plus what tokio's clock says has passed. Whole seconds.
    pub(crate) fn now(&self) -> String {
        let passed = self.started.elapsed().as_secs() as i64;
        let at = self
            .epoch
            .checked_add(jiff::SignedDuration::from_secs(passed))
            .unwrap_or(self.epoch);
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    // ---- kinds ----

    pub(crate) fn serve(&mut self, def: ResourceDef) {
        self.defs
            .retain(|d| !(d.group == def.group && d.plural == def.plural && d.version == def.version));
        self.defs.push(Arc::new(def));
    }

    pub(crate) fn def(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceDef>> {
        self.defs
            .iter()
            .find(|d| d.group == group && d.version == version && d.plural == plural)
            .cloned()
    }

    /// By kind name, `Kind` or `Kind.group`.
    pub(crate) fn def_of_kind(&self, kind: &str) -> Option<Arc<ResourceDef>> {
        let (kind, group) = kind.split_once('.').map_or((kind, None), |(k, g)| (k, Some(g)));
        self.defs
            .iter()
            .find(|d| d.kind == kind && group.is_none_or(|g| d.group == g))
            .cloned()
    }

    /// By apiVersion and kind of an object.
    pub(crate) fn def_of(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceDef>> {
        self.defs
            .iter()
            .find(|d| d.kind == kind && d.api_version() == api_version)
            .cloned()
    }

    /// Stops serving every version of a resource: instances vanish, watches end after the second that it takes the
    /// real server.
    pub(crate) fn unserve(&mut self, resource: &Resource) {
        let ids: Vec<Id> = self.ids(resource);
        for id in ids {
            self.remove(&id);
        }
        self.defs
            .retain(|d| !(d.group == resource.0 && d.plural == resource.1));
        self.closing.remove(resource);
        self.watchers.close(resource, None);
        self.compacted_of.insert(resource.clone(), self.revision);
        self.history.remove(resource);
    }

    /// Stops serving one version: watches of it end without a word about the instances.
    pub(crate) fn unserve_version(&mut self, group: &str, version: &str, plural: &str) {
        self.defs
            .retain(|d| !(d.group == group && d.plural == plural && d.version == version));
        self.watchers
            .close(&(group.to_owned(), plural.to_owned()), Some(version));
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    pub(crate) fn oldest_revision(&self, resource: &Resource) -> u64 {
        self.compacted
            .max(self.compacted_of.get(resource).copied().unwrap_or(0))
    }

    pub(crate) fn events_after(&self, resource: &Resource, revision: u64) -> Vec<Event> {
        self.history
            .get(resource)
            .into_iter()
            .flatten()
            .filter(|e| e.revision > revision)
            .cloned()
            .collect()
    }

    // ---- reading ----

    pub(crate) fn get(&self, id: &Id) -> Option<Arc<Value>> {
        self.objects
            .get(&id.resource)?
            .get(&(id.namespace.clone(), id.name.clone()))
            .cloned()
    }

    /// Sorted by namespace and name. An empty namespace means all.
    pub(crate) fn list(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Value>> {
        self.objects
            .get(resource)
            .into_iter()
            .flatten()
            .filter(|((ns, _), _)| namespace.is_empty() || ns == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub(super) fn ids(&self, resource: &Resource) -> Vec<Id> {
        self.objects
            .get(resource)
            .into_iter()
            .flatten()
            .map(|((namespace, name), _)| Id {
                resource: resource.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
            })
            .collect()
    }

    // ---- the lowest level: every change goes through these two ----

    pub(super) fn index(&mut self, id: &Id, object: &Value, there: bool) {
        for owner in object["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let Some(uid) = owner["uid"].as_str() else {
                continue;
            };
            let set = self.dependents.entry(uid.to_owned()).or_default();
            if there {
                set.insert(id.clone());
            } else {
                set.remove(id);
            }
            if set.is_empty() {
                self.dependents.remove(uid);
            }
        }
    }

    pub(super) fn record(
        &mut self,
        id: &Id,
        kind: EventKind,
        object: Arc<Value>,
        previous: Option<Arc<Value>>,
    ) {
        let event = Event {
            revision: self.revision,
            kind,
            object,
            previous,
        };
        self.watchers.send(&id.resource, &event);
        self.history.entry(id.resource.clone()).or_default().push(event);
    }

    pub(super) fn commit(&mut self, id: &Id, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let old = self.get(id);
        if let Some(old) = &old {
            self.index(id, old, false);
        }
        self.index(id, &object, true);
        let has_owners = !object["metadata"]["ownerReferences"].is_null();
        let object = Arc::new(object);
        self.objects
            .entry(id.resource.clone())
            .or_default()
            .insert((id.namespace.clone(), id.name.clone()), object.clone());
        let kind = if old.is_some() {
            EventKind::Modified
        } else {
            EventKind::Added
        };
        self.record(id, kind, object.clone(), old);
        if has_owners {
            self.gc_queue.push_back(id.clone());
        }
        object
    }

    pub(super) fn remove(&mut self, id: &Id) -> Option<Arc<Value>> {
        let old = self
            .objects
            .get_mut(&id.resource)?
            .remove(&(id.namespace.clone(), id.name.clone()))?;
        self.revision += 1;
        self.unclean.remove(id);
        self.index(id, &old, false);
        let mut last = (*old).clone();
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        self.record(id, EventKind::Deleted, last.clone(), Some(old));
        let uid = text(&last, "uid").to_owned();
        for dependent in self.dependents.get(&uid).cloned().unwrap_or_default() {
            self.gc_queue.push_back(dependent);
        }
        self.dead.insert(uid);
        if is_crd(id) {
            let group = last["spec"]["group"].as_str().unwrap_or_default().to_owned();
            let plural = last["spec"]["names"]["plural"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            self.unserve(&(group, plural));
        }
        Some(last)
    }
}

pub(crate) fn namespace_id(name: &str) -> Id {
    Id {
        resource: (String::new(), "namespaces".to_owned()),
        namespace: String::new(),
        name: name.to_owned(),
    }
}
