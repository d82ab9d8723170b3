//! What each verb answers: RBAC, parameters, lists, watches; the meaning of a write is in the store.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::discovery;
use super::failure::{Cause, Failure};
use super::faults::Fault;
use super::http::{Parsed, Reply};
use super::kinds::ResourceDef;
use super::log::{Call, Verb};
use super::patch;
use super::selector::Selector;
use super::server::Inner;
use super::store::{DeleteOptions, Deleted, Id, Target, Written};
use super::watch::{self, Interest};

impl Inner {
    pub(super) fn answer(&mut self, request: &Parsed, fault: Option<&Fault>) -> Reply {
        if !request.has_resource {
            return match discovery::answer(&self.store.defs, &request.path, &request.accept) {
                Ok(Some(value)) => Reply::Json(StatusCode::OK, value),
                Ok(None) => Reply::Text(StatusCode::OK, "ok"),
                Err(()) => Reply::Failure(Failure::Text404),
            };
        }
        self.resource(request, fault).unwrap_or_else(Reply::Failure)
    }

    /// RBAC: a refusal comes before anything else, also for kinds that are not served.
    fn authorize(&self, call: &Call, verb: &str) -> Result<(), Failure> {
        let full = if call.subresource.is_empty() {
            call.resource.clone()
        } else {
            format!("{}/{}", call.resource, call.subresource)
        };
        if !self
            .denials
            .iter()
            .any(|d| d.covers(&call.user, verb, &full, &call.namespace))
        {
            return Ok(());
        }
        let scope = if call.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", call.namespace)
        };
        let qualified = if call.group.is_empty() {
            call.resource.clone()
        } else {
            format!("{}.{}", call.resource, call.group)
        };
        let subject = if call.name.is_empty() {
            qualified
        } else {
            format!("{qualified} {:?}", call.name)
        };
        let mut details = json!({ "kind": call.resource });
        if !call.name.is_empty() {
            details["name"] = json!(call.name);
        }
        if !call.group.is_empty() {
            details["group"] = json!(call.group);
        }
        Err(Failure::new(
            403,
            "Forbidden",
            format!(
                "{subject} is forbidden: User {:?} cannot {verb} resource {full:?} in API group {:?} {scope}",
                call.user, call.group
            ),
        )
        .details(details))
    }

    fn resource(&mut self, request: &Parsed, fault: Option<&Fault>) -> Result<Reply, Failure> {
        let call = &request.call;
        self.authorize(call, call.verb.rbac())?;
        let def = self
            .store
            .def(&call.group, &call.version, &call.resource)
            .ok_or(Failure::Text404)?;
        if !call.namespace.is_empty() && !def.namespaced {
            return Err(Failure::Text404);
        }
        match call.subresource.as_str() {
            "" => {}
            "status" if def.status_subresource => {}
            // The handler of custom resources answers for each of them; built-in kinds have no such path at all.
            "status" if !def.builtin => return Err(Failure::not_found(&def, &call.name)),
            _ => return Err(Failure::Text404),
        }
        let param = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let metadata_only = request.accept.contains("as=PartialObjectMetadata");
        let manager = if param("fieldManager").is_empty() {
            "unknown"
        } else {
            param("fieldManager")
        };
        let target = Target {
            def: &def,
            namespace: &call.namespace,
            name: &call.name,
            subresource: &call.subresource,
            manager,
            dry_run: param("dryRun") == "All",
        };
        let id = Id {
            resource: (def.group.clone(), def.plural.clone()),
            namespace: call.namespace.clone(),
            name: call.name.clone(),
        };
        let show = |object: &Value| watch::present(object, &def.api_version(), metadata_only);
        let written = |written: Written| {
            let code = if written.created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Ok(Reply::Json(code, show(&written.object)))
        };
        if call.verb.is_write() && param("fieldManager").len() > 128 {
            return Err(patch_options(
                "fieldManager",
                "FieldValueTooLong",
                "Too long: may not be more than 128 bytes",
            ));
        }
        match call.verb {
            Verb::Get | Verb::GetMetadata => {
                let object = self
                    .store
                    .get(&id)
                    .ok_or_else(|| Failure::not_found(&def, &call.name))?;
                Ok(Reply::Json(StatusCode::OK, show(&object)))
            }
            Verb::List | Verb::ListMetadata => self.list(&def, request, metadata_only),
            Verb::Watch | Verb::WatchMetadata => self.watch(&def, request, metadata_only, fault),
            Verb::Create => {
                if def.namespaced && call.namespace.is_empty() {
                    return Err(method_not_allowed());
                }
                let body = json_body(request)?;
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                written(self.store.create(&Target { name, ..target }, body.clone())?)
            }
            Verb::Update => {
                let body = json_body(request)?;
                written(self.store.put(&target, body.clone())?)
            }
            Verb::MergePatch => {
                let body = json_body(request)?;
                written(self.store.patch(&target, |object| patch::merge(object, body))?)
            }
            Verb::JsonPatch => {
                let body = json_body(request)?;
                written(self.store.patch(&target, |object| patch::json(object, body))?)
            }
            Verb::Apply => {
                if param("fieldManager").is_empty() {
                    return Err(patch_options(
                        "fieldManager",
                        "FieldValueRequired",
                        "Required value: is required for apply patch",
                    ));
                }
                if self.store.get(&id).is_none() {
                    self.authorize(call, "create")?;
                }
                let body = json_body(request)?;
                written(
                    self.store
                        .apply(&target, body, matches!(param("force"), "true" | "1"))?,
                )
            }
            Verb::Delete => {
                let options = delete_options(request);
                match self.store.delete(&target, &options)? {
                    Deleted::Terminating(object) => Ok(Reply::Json(StatusCode::OK, show(&object))),
                    Deleted::Gone(object) => {
                        let mut details = json!({ "name": call.name, "kind": def.plural, "uid": object["metadata"]["uid"] });
                        if !def.group.is_empty() {
                            details["group"] = json!(def.group);
                        }
                        Ok(Reply::Json(
                            StatusCode::OK,
                            json!({
                                "kind": "Status",
                                "apiVersion": "v1",
                                "metadata": {},
                                "status": "Success",
                                "details": details,
                            }),
                        ))
                    }
                }
            }
            Verb::DeleteCollection => {
                let options = delete_options(request);
                let selector = Selector::parse(param("labelSelector"), param("fieldSelector"), def.builtin)?;
                let mut deleted = Vec::new();
                for object in self.store.list(&id.resource, &call.namespace) {
                    if !selector.matches(&object) {
                        continue;
                    }
                    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
                    let (namespace, name) = (field("namespace"), field("name"));
                    let one = Target {
                        namespace: &namespace,
                        name: &name,
                        ..target
                    };
                    if self.store.delete(&one, &options).is_ok() {
                        deleted.push(show(&object));
                    }
                }
                let revision = self.store.revision();
                Ok(Reply::Json(
                    StatusCode::OK,
                    list_json(&def, deleted, revision, metadata_only),
                ))
            }
            Verb::Discovery => Err(Failure::Text404),
        }
    }

    fn list(&mut self, def: &ResourceDef, request: &Parsed, metadata_only: bool) -> Result<Reply, Failure> {
        let param = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let selector = Selector::parse(param("labelSelector"), param("fieldSelector"), def.builtin)?;
        let resource = (def.group.clone(), def.plural.clone());
        let limit: usize = param("limit").parse().unwrap_or(0);
        let (mut revision, after) = match param("continue") {
            "" => (self.store.revision(), None),
            token => {
                let (revision, key) = token
                    .split_once(':')
                    .and_then(|(r, key)| Some((r.parse::<u64>().ok()?, key.to_owned())))
                    .ok_or_else(|| Failure::bad_request("continue key is not valid"))?;
                if revision < self.store.oldest_revision(&resource) {
                    return Err(Failure::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
                    ));
                }
                (revision, Some(key))
            }
        };
        if revision == 0 {
            revision = self.store.revision();
        }
        let key = |o: &Value| {
            let field = |name: &str| o["metadata"][name].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", field("namespace"), field("name"))
        };
        let mut found: Vec<Arc<Value>> = self
            .store
            .list(&resource, &request.call.namespace)
            .into_iter()
            .filter(|o| {
                selector.only_name().is_none_or(|n| o["metadata"]["name"] == n) && selector.matches(o)
            })
            .filter(|o| after.as_ref().is_none_or(|a| key(o) > *a))
            .collect();
        found.sort_by_key(|o| key(o));
        let mut more = None;
        if limit > 0 && found.len() > limit {
            let left = found.len() - limit;
            found.truncate(limit);
            more = found.last().map(|o| (format!("{revision}:{}", key(o)), left));
        }
        let items: Vec<Value> = found
            .iter()
            .map(|o| {
                let mut shown = watch::present(o, &def.api_version(), metadata_only);
                if def.builtin
                    && !metadata_only
                    && let Some(fields) = shown.as_object_mut()
                {
                    fields.remove("kind");
                    fields.remove("apiVersion");
                }
                shown
            })
            .collect();
        let mut out = list_json(def, items, revision, metadata_only);
        if !def.builtin && !metadata_only {
            out["metadata"]["continue"] = json!("");
        }
        if let Some((token, left)) = more {
            out["metadata"]["continue"] = json!(token);
            // Only a list without selectors knows how many are left.
            if param("labelSelector").is_empty() && param("fieldSelector").is_empty() {
                out["metadata"]["remainingItemCount"] = json!(left);
            }
        }
        Ok(Reply::Json(StatusCode::OK, out))
    }

    fn watch(
        &mut self,
        def: &ResourceDef,
        request: &Parsed,
        metadata_only: bool,
        fault: Option<&Fault>,
    ) -> Result<Reply, Failure> {
        let param = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let selector = Selector::parse(param("labelSelector"), param("fieldSelector"), def.builtin)?;
        let resource = (def.group.clone(), def.plural.clone());
        let interest = Interest {
            resource: resource.clone(),
            version: def.version.clone(),
            api_version: def.api_version(),
            kind: def.kind.clone(),
            namespace: request.call.namespace.clone(),
            selector,
            metadata_only,
        };
        let bookmarks = param("allowWatchBookmarks") == "true";
        let initial = param("sendInitialEvents") == "true";
        if initial && param("resourceVersionMatch") != "NotOlderThan" {
            return Err(Failure::invalid_kind(
                "meta.k8s.io",
                "ListOptions",
                "",
                &[Cause::new(
                    "FieldValueForbidden",
                    "resourceVersionMatch",
                    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                        .into(),
                )],
            ));
        }
        let timeout = param("timeoutSeconds")
            .parse()
            .ok()
            .filter(|s| *s > 0)
            .map(Duration::from_secs);
        let from = param("resourceVersion");
        let mut first = Vec::new();
        let mut over = fault == Some(&Fault::WatchEnds);
        let current = self.store.revision();
        let number: u64 = from.parse().unwrap_or(0);
        if fault == Some(&Fault::WatchExpired)
            || (number != 0 && number < self.store.oldest_revision(&resource) && !initial)
        {
            let oldest = self.store.oldest_revision(&resource);
            let status = Failure::expired(format!("too old resource version: {from} ({oldest})"));
            first.push(watch::line("ERROR", &status.json().unwrap_or_default()));
            over = true;
        } else if !over {
            if initial || number == 0 {
                for object in self.store.list(&resource, &interest.namespace) {
                    if interest.selector.matches(&object) {
                        first.push(watch::line("ADDED", &interest.show(&object)));
                    }
                }
                if initial && bookmarks {
                    first.push(watch::bookmark(&interest, current, true));
                }
            } else {
                first.extend(
                    self.store
                        .events_after(&resource, number)
                        .iter()
                        .filter_map(|e| interest.line(e)),
                );
            }
        }
        let timeout = if over { Some(Duration::ZERO) } else { timeout };
        let body = self
            .store
            .watchers
            .open(interest, &request.call.user, bookmarks, first, timeout);
        Ok(Reply::Watch(body))
    }
}

fn list_json(def: &ResourceDef, items: Vec<Value>, revision: u64, metadata_only: bool) -> Value {
    let (kind, api_version) = if metadata_only {
        (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        )
    } else {
        (format!("{}List", def.kind), def.api_version())
    };
    json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": { "resourceVersion": revision.to_string() },
        "items": items,
    })
}

fn json_body(request: &Parsed) -> Result<&Value, Failure> {
    if let Some(body) = &request.call.body {
        return Ok(body);
    }
    let error = serde_json::from_slice::<Value>(&request.body).err();
    Err(Failure::bad_request(format!(
        "the body is no JSON: {}",
        error.map_or_else(|| "it is empty".to_owned(), |e| e.to_string())
    )))
}

fn delete_options(request: &Parsed) -> DeleteOptions {
    let body = request.call.body.clone().unwrap_or_default();
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let param = |name: &str| request.query.get(name).cloned();
    DeleteOptions {
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        propagation: text(&body["propagationPolicy"]).or_else(|| param("propagationPolicy")),
        dry_run: body["dryRun"][0] == "All" || param("dryRun").is_some_and(|v| v == "All"),
    }
}

fn patch_options(field: &str, reason: &'static str, message: &str) -> Failure {
    Failure::invalid_kind(
        "meta.k8s.io",
        "PatchOptions",
        "",
        &[Cause::new(reason, field, message.to_owned())],
    )
}

fn method_not_allowed() -> Failure {
    Failure::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
    .details(json!({}))
}
