//! Deletion, and the controllers of a control plane that act on it: garbage collection, namespaces, CRDs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Failure;
use super::fields::FieldSet;
use super::kinds::ResourceDef;
use super::ssa::Owners;
use super::store::{
    CRD_GROUP, DeleteOptions, Deleted, Gc, Id, Resource, Store, Target, finalizers, is_crd, is_namespace,
    is_terminating, namespace_id, text,
};
use super::write::clean_metadata;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl Store {
    pub(crate) fn delete(
        &mut self,
        target: &Target<'_>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Failure> {
        let def = target.def;
        let id = target.id();
        let Some(live) = self.get(&id) else {
            return Err(Failure::not_found(def, target.name));
        };
        if let Some(uid) = &options.uid
            && uid != text(&live, "uid")
        {
            return Err(Failure::precondition(
                def,
                target.name,
                format!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                    text(&live, "uid")
                ),
            ));
        }
        if let Some(version) = &options.resource_version
            && version != text(&live, "resourceVersion")
        {
            return Err(Failure::precondition(
                def,
                target.name,
                format!(
                    "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                    text(&live, "resourceVersion")
                ),
            ));
        }
        if options.dry_run {
            return Ok(Deleted::Gone(live));
        }
        let out = self.start_deletion(&id, &live, options.propagation.as_deref());
        self.settle();
        Ok(out)
    }

    pub(super) fn start_deletion(
        &mut self,
        id: &Id,
        live: &Arc<Value>,
        propagation: Option<&str>,
    ) -> Deleted {
        let extra = match propagation {
            Some("Foreground") => Some(FOREGROUND),
            Some("Orphan") => Some(ORPHAN),
            _ => None,
        };
        let waits = !finalizers(live).is_empty() || extra.is_some() || is_namespace(id) || is_crd(id);
        if !waits {
            return match self.remove(id) {
                Some(last) => Deleted::Gone(last),
                None => Deleted::Gone(live.clone()),
            };
        }
        if is_terminating(live) {
            return Deleted::Terminating(live.clone());
        }
        let mut object = (**live).clone();
        object["metadata"]["deletionTimestamp"] = json!(self.now());
        if !is_namespace(id) {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        if let Some(generation) = object["metadata"]["generation"].as_i64() {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if let Some(extra) = extra {
            let mut all: Vec<String> = finalizers(live).iter().map(|f| (*f).to_owned()).collect();
            all.push(extra.to_owned());
            object["metadata"]["finalizers"] = json!(all);
        }
        if is_namespace(id) {
            object["status"]["phase"] = json!("Terminating");
        }
        if is_crd(id) {
            let now = self.now();
            let conditions = object["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let mut conditions: Vec<Value> = conditions
                .into_iter()
                .filter(|c| c["type"] != "Terminating")
                .collect();
            conditions.push(json!({
                "type": "Terminating",
                "status": "True",
                "reason": "InstanceDeletionInProgress",
                "message": "CustomResource deletion is in progress",
                "lastTransitionTime": now,
            }));
            object["status"]["conditions"] = json!(conditions);
        }
        let object = self.commit(id, object);
        self.gc_queue.push_back(id.clone());
        Deleted::Terminating(object)
    }

    /// Marks a namespace as terminating and leaves it so, contents included.
    pub(crate) fn hold_namespace(&mut self, name: &str) {
        self.held.insert(name.to_owned());
        let id = namespace_id(name);
        if let Some(live) = self.get(&id) {
            self.start_deletion(&id, &live, None);
        }
    }

    /// Lets the controller of namespaces finish what [`Store::hold_namespace`] began.
    pub(crate) fn release_namespace(&mut self, name: &str) {
        if self.held.remove(name) {
            self.settle();
        }
    }

    // ---- the controllers of the control plane ----

    pub(super) fn settle(&mut self) {
        if self.gc == Gc::Immediate {
            self.collect_garbage();
        }
        self.finish_namespaces();
        self.finish_crds();
    }

    /// Deletes what has lost its owners and finishes foreground and orphaning deletions.
    pub(crate) fn collect_garbage(&mut self) {
        while let Some(id) = self.gc_queue.pop_front() {
            let Some(object) = self.get(&id) else { continue };
            if is_terminating(&object) {
                self.finish_propagation(&id, &object);
            }
            let Some(object) = self.get(&id) else { continue };
            self.collect(&id, &object);
        }
    }

    fn finish_propagation(&mut self, id: &Id, object: &Arc<Value>) {
        let uid = text(object, "uid").to_owned();
        let dependents: Vec<Id> = self.dependents.get(&uid).into_iter().flatten().cloned().collect();
        let done = if finalizers(object).contains(&ORPHAN) {
            for dependent in &dependents {
                self.strip_owners(dependent, std::slice::from_ref(&uid));
            }
            Some(ORPHAN)
        } else if finalizers(object).contains(&FOREGROUND) {
            for dependent in &dependents {
                if let Some(live) = self.get(dependent) {
                    self.start_deletion(dependent, &live, None);
                }
            }
            let all_gone = dependents.iter().all(|d| self.get(d).is_none());
            all_gone.then_some(FOREGROUND)
        } else {
            None
        };
        if let Some(done) = done {
            self.drop_finalizer(id, done);
        }
    }

    fn drop_finalizer(&mut self, id: &Id, finalizer: &str) {
        let Some(live) = self.get(id) else { return };
        let left: Vec<&str> = finalizers(&live)
            .into_iter()
            .filter(|f| *f != finalizer)
            .collect();
        if left.is_empty() {
            self.remove(id);
            return;
        }
        let mut object = (*live).clone();
        object["metadata"]["finalizers"] = json!(left);
        self.commit(id, object);
    }

    fn strip_owners(&mut self, id: &Id, uids: &[String]) {
        let Some(live) = self.get(id) else { return };
        let mut object = (*live).clone();
        let mut gone = FieldSet::default();
        if let Some(list) = object["metadata"]["ownerReferences"].as_array_mut() {
            list.retain(|o| !uids.iter().any(|u| o["uid"] == u.as_str()));
        }
        for uid in uids {
            gone.insert(&[
                "f:metadata".to_owned(),
                "f:ownerReferences".to_owned(),
                format!("k:{}", json!({ "uid": uid })),
            ]);
        }
        let mut owners = Owners::of(&object);
        owners.disown(&gone);
        object["metadata"]["managedFields"] = owners.to_json();
        clean_metadata(&mut object);
        self.commit(id, object);
    }

    fn collect(&mut self, id: &Id, object: &Arc<Value>) {
        let owners = object["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if owners.is_empty() {
            return;
        }
        let mut absent = Vec::new();
        for owner in &owners {
            let field = |name: &str| owner[name].as_str().unwrap_or_default();
            if self.dead.contains(field("uid")) {
                absent.push(field("uid").to_owned());
                continue;
            }
            // An owner of a kind that is not served may well exist: leave the child alone.
            let Some(def) = self.def_of(field("apiVersion"), field("kind")) else {
                continue;
            };
            let place = Id {
                resource: (def.group.clone(), def.plural.clone()),
                namespace: if def.namespaced {
                    id.namespace.clone()
                } else {
                    String::new()
                },
                name: field("name").to_owned(),
            };
            if self.get(&place).is_none_or(|o| text(&o, "uid") != field("uid")) {
                absent.push(field("uid").to_owned());
            }
        }
        if absent.len() == owners.len() {
            self.start_deletion(id, object, None);
        } else if !absent.is_empty() {
            self.strip_owners(id, &absent);
        }
    }

    fn finish_namespaces(&mut self) {
        let terminating: Vec<String> = self
            .list(&namespace_id("").resource, "")
            .iter()
            .filter(|ns| is_terminating(ns))
            .map(|ns| text(ns, "name").to_owned())
            .filter(|name| !self.held.contains(name))
            .collect();
        for namespace in terminating {
            let resources: Vec<Resource> = self.objects.keys().cloned().collect();
            let mut left = false;
            for resource in resources {
                for id in self
                    .ids(&resource)
                    .into_iter()
                    .filter(|id| id.namespace == namespace)
                {
                    if let Some(live) = self.get(&id) {
                        self.start_deletion(&id, &live, None);
                    }
                    left |= self.get(&id).is_some();
                }
            }
            if !left {
                self.remove(&namespace_id(&namespace));
            }
        }
    }

    fn finish_crds(&mut self) {
        let resource = (CRD_GROUP.to_owned(), "customresourcedefinitions".to_owned());
        for id in self.ids(&resource) {
            let Some(crd) = self.get(&id).filter(|crd| is_terminating(crd)) else {
                continue;
            };
            let of = (
                crd["spec"]["group"].as_str().unwrap_or_default().to_owned(),
                crd["spec"]["names"]["plural"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            );
            self.closing.insert(of.clone());
            for instance in self.ids(&of) {
                if let Some(live) = self.get(&instance) {
                    self.start_deletion(&instance, &live, None);
                }
            }
            if self.ids(&of).is_empty() && finalizers(&crd).is_empty() {
                self.remove(&id);
            }
        }
        if self.gc == Gc::Immediate && !self.gc_queue.is_empty() {
            self.collect_garbage();
        }
    }

    /// Serves the kinds of a CRD object and says so in its status.
    pub(super) fn sync_crd(&mut self, id: &Id, previous: Option<&Value>) {
        let Some(crd) = self.get(id) else { return };
        let defs = ResourceDef::from_crd(&crd);
        let resource = (
            crd["spec"]["group"].as_str().unwrap_or_default().to_owned(),
            crd["spec"]["names"]["plural"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
        if previous.is_some_and(|old| old["spec"] != crd["spec"]) {
            // A changed CRD ends the watches of its kind, and their resource versions are worth nothing afterwards.
            self.watchers.close(&resource, None);
            self.compacted_of.insert(resource.clone(), self.revision);
            self.history.remove(&resource);
        }
        self.defs
            .retain(|d| !(d.group == resource.0 && d.plural == resource.1));
        for def in defs {
            self.serve(def);
        }
        if previous.is_some() {
            self.decode_again(&resource);
        }
        let now = self.now();
        let mut object = (*crd).clone();
        let stored: Vec<Value> = crd["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|v| v["storage"] == true)
            .map(|v| v["name"].clone())
            .collect();
        let condition = |kind: &str, reason: &str, message: &str| json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now });
        object["status"]["acceptedNames"] = crd["spec"]["names"].clone();
        if object["status"]["storedVersions"].is_null() {
            object["status"]["storedVersions"] = json!(stored);
        }
        if object["status"]["conditions"].is_null() {
            object["status"]["conditions"] = json!([
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition(
                    "Established",
                    "InitialNamesAccepted",
                    "the initial names have been accepted"
                ),
            ]);
        }
        if object != *crd {
            self.commit(id, object);
        }
    }

    /// Custom resources are pruned when they are read, too: fields that the schema has lost are not seen, and are there
    /// again with the next schema that knows them, unless the object was written meanwhile.
    fn decode_again(&mut self, resource: &Resource) {
        let def = self
            .defs
            .iter()
            .find(|d| d.group == resource.0 && d.plural == resource.1);
        let Some(def) = def.cloned() else { return };
        for id in self.ids(resource) {
            let Some(seen) = self.get(&id) else { continue };
            let same = |field: &str, other: &Value| text(other, field) == text(&seen, field);
            let stored = self.unseen.remove(&id);
            let stored = stored.filter(|one| same("uid", one) && same("resourceVersion", one));
            let stored = stored.unwrap_or_else(|| seen.clone());
            let mut decoded = (*stored).clone();
            super::schema::prune(&def.schema, &mut decoded);
            if decoded != *stored {
                self.unseen.insert(id.clone(), stored);
            }
            if let Some(all) = self.objects.get_mut(resource) {
                all.insert((id.namespace, id.name), Arc::new(decoded));
            }
        }
    }
}
