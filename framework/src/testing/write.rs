//! Creation and update: the order in which the API server checks, defaults, validates and stores a write.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::failure::{Cause, Failure};
use super::fields::FieldSet;
use super::kinds::ResourceDef;
use super::schema;
use super::ssa::{self, Owners, Writer};
use super::store::{
    Store, Target, Written, finalizers, is_crd, is_namespace, is_terminating, namespace_id, text,
};

/// How a whole object came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Put,
    Patch,
}

const UNCHECKED: &str = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Removes empty labels, annotations and so on, as the typed metadata of the real server does on storing.
pub(super) fn clean_metadata(object: &mut Value) {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|_, v| match v {
            Value::Null => false,
            Value::Object(fields) => !fields.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
}

/// Built-in types do not keep empty lists, empty maps of data, or nulls.
fn clean_builtin(object: &mut Value) {
    fn drop_empty_lists(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(drop_empty_lists);
                fields.retain(|_, v| v.as_array().is_none_or(|items| !items.is_empty()));
            }
            Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
            _ => {}
        }
    }
    drop_nulls(object);
    drop_empty_lists(object);
    clean_metadata(object);
    if let Some(fields) = object.as_object_mut() {
        for name in ["data", "binaryData", "stringData"] {
            if fields
                .get(name)
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty)
            {
                fields.remove(name);
            }
        }
    }
}

/// What the field manager takes for the object before its creation.
fn blank(def: &ResourceDef) -> Value {
    let mut out = json!({ "apiVersion": def.api_version(), "kind": def.kind, "metadata": {} });
    if def.builtin {
        for part in ["spec", "status"] {
            if def.schema.declares(part) {
                out[part] = json!({});
            }
        }
    }
    out
}

/// Fields that a write to this endpoint leaves alone.
fn ignored(def: &ResourceDef, subresource: &str) -> FieldSet {
    match (subresource, def.status_subresource, def.builtin) {
        ("", true, _) => FieldSet::of(&["status"]),
        ("", false, _) => FieldSet::default(),
        (_, _, true) => FieldSet::of(&["spec"]),
        (_, _, false) => FieldSet::of(&["metadata", "spec"]),
    }
}

impl Store {
    fn admit_creation(&self, target: &Target<'_>) -> Result<(), Failure> {
        let def = target.def;
        if def.namespaced {
            let id = namespace_id(target.namespace);
            let Some(namespace) = self.get(&id) else {
                return Err(Failure::not_found(&ResourceDef::namespace(), target.namespace));
            };
            if is_terminating(&namespace) {
                let mut failure = Failure::forbidden(
                    def,
                    target.name,
                    format!(
                        "unable to create new content in namespace {} because it is being terminated",
                        target.namespace
                    ),
                );
                if let Failure::Status(body) = &mut failure
                    && let Some(details) = &mut body.details
                {
                    details["causes"] = json!([{
                        "reason": "NamespaceTerminating",
                        "message": format!("namespace {} is being terminated", target.namespace),
                        "field": "metadata.namespace",
                    }]);
                }
                return Err(failure);
            }
        }
        if self.closing.contains(&target.id().resource) {
            return Err(Failure::forbidden(
                def,
                target.name,
                "create not allowed while custom resource definition is terminating",
            ));
        }
        Ok(())
    }

    /// POST, or a PUT that creates.
    pub(crate) fn create(&mut self, target: &Target<'_>, mut object: Value) -> Result<Written, Failure> {
        let def = target.def;
        let mut target = *target;
        self.check_identity(&target, &object)?;
        let generated;
        if target.name.is_empty() {
            let named = text(&object, "name").to_owned();
            generated = if named.is_empty() && !text(&object, "generateName").is_empty() {
                self.names += 1;
                format!("{}{:05}", text(&object, "generateName"), self.names)
            } else {
                named
            };
            target.name = &generated;
        }
        if target.name.is_empty() {
            let mut causes = vec![Cause::new(
                "FieldValueRequired",
                "metadata.name",
                "Required value: name or generateName is required".into(),
            )];
            if def.check.is_some() && !def.builtin {
                causes.push(Cause::invalid("<nil>", UNCHECKED.into()));
            }
            return Err(Failure::invalid(def, "", &causes));
        }
        self.admit_creation(&target)?;
        if !text(&object, "resourceVersion").is_empty() {
            return Err(Failure::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.decode(def, &mut object)?;
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("managedFields");
        }
        let ignored = ignored(def, "");
        let writer = Writer {
            manager: target.manager,
            api_version: &def.api_version(),
            subresource: "",
            ignored: &ignored,
        };
        let now = self.now();
        let owners = ssa::update(
            &def.schema,
            &blank(def),
            &object,
            Owners::default(),
            &writer,
            &now,
        );
        self.insert(&target, object, owners)
    }

    /// The common end of every creation.
    fn insert(&mut self, target: &Target<'_>, mut object: Value, owners: Owners) -> Result<Written, Failure> {
        let def = target.def;
        let id = target.id();
        if let Some(there) = self.get(&id) {
            return Err(Failure::already_exists(def, target.name, is_terminating(&there)));
        }
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        object["apiVersion"] = json!(def.api_version());
        object["kind"] = json!(def.kind);
        let now = self.now();
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let meta = &mut object["metadata"];
        meta["name"] = json!(target.name);
        meta["uid"] = json!(uid);
        meta["creationTimestamp"] = json!(now);
        if let Some(fields) = meta.as_object_mut() {
            for server_side in [
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "resourceVersion",
                "selfLink",
                "generation",
            ] {
                fields.remove(server_side);
            }
            if def.namespaced {
                fields.insert("namespace".into(), json!(target.namespace));
            } else {
                fields.remove("namespace");
            }
            if def.generation {
                fields.insert("generation".into(), json!(1));
            }
            if !owners.0.is_empty() {
                fields.insert("managedFields".into(), owners.to_json());
            }
        }
        if def.status_subresource
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        self.default(def, &mut object);
        self.fill_ingress_class(def, &mut object);
        self.validate(target, &object)?;
        let raw = object["metadata"].clone();
        clean_metadata(&mut object);
        let unclean = !def.builtin && raw != object["metadata"];
        if target.dry_run {
            return Ok(Written {
                object: Arc::new(object),
                created: true,
            });
        }
        let object = self.commit(&id, object);
        if unclean {
            self.unclean.insert(id.clone());
        }
        if is_crd(&id) {
            self.sync_crd(&id, None);
        }
        self.settle();
        // The answer is the object as created, whatever the collector did to it since.
        let object = if is_crd(&id) {
            self.get(&id).unwrap_or(object)
        } else {
            object
        };
        Ok(Written {
            object,
            created: true,
        })
    }

    /// PUT.
    pub(crate) fn put(&mut self, target: &Target<'_>, mut object: Value) -> Result<Written, Failure> {
        let def = target.def;
        self.check_identity(target, &object)?;
        let Some(live) = self.get(&target.id()) else {
            if def.create_by_put && target.subresource.is_empty() {
                let uid = text(&object, "uid").to_owned();
                if !uid.is_empty() {
                    return Err(Failure::conflict(def, target.name, uid_mismatch(&uid)));
                }
                return self.create(target, object);
            }
            return Err(Failure::not_found(def, target.name));
        };
        self.decode(def, &mut object)?;
        let owners = self.owners_after_update(target, &live, &object);
        self.replace(target, &live, object, owners, How::Put)
    }

    /// Merge or JSON patch: `patch` turns the live object into the wanted one.
    pub(crate) fn patch(
        &mut self,
        target: &Target<'_>,
        patch: impl FnOnce(Value) -> Result<Value, Failure>,
    ) -> Result<Written, Failure> {
        let def = target.def;
        let Some(live) = self.get(&target.id()) else {
            return Err(Failure::not_found(def, target.name));
        };
        let mut start = (*live).clone();
        start["apiVersion"] = json!(def.api_version());
        let mut object = patch(start)?;
        if !object.is_object() {
            return Err(Failure::bad_request("the patch did not leave an object"));
        }
        self.check_identity(target, &object)?;
        self.decode(def, &mut object).map_err(|failure| {
            // A patch whose result does not decode is an invalid patch, not a bad request.
            let text = failure.json().unwrap_or_default()["message"].to_string();
            Failure::invalid_kind(
                "",
                "",
                target.name,
                &[Cause::invalid("patch", format!("Invalid value: {text}"))],
            )
        })?;
        // What is empty in metadata is not there, and nobody's.
        clean_metadata(&mut object);
        let owners = self.owners_after_update(target, &live, &object);
        self.replace(target, &live, object, owners, How::Patch)
    }

    fn owners_after_update(&self, target: &Target<'_>, live: &Value, object: &Value) -> Owners {
        let def = target.def;
        let ignored = ignored(def, target.subresource);
        let writer = Writer {
            manager: target.manager,
            api_version: &def.api_version(),
            subresource: target.subresource,
            ignored: &ignored,
        };
        let owners = Owners::for_update(live, object, !target.subresource.is_empty());
        ssa::update(&def.schema, live, object, owners, &writer, &self.now())
    }

    /// Server-side apply.
    pub(crate) fn apply(
        &mut self,
        target: &Target<'_>,
        config: &Value,
        force: bool,
    ) -> Result<Written, Failure> {
        let def = target.def;
        if config["kind"].as_str().unwrap_or_default().is_empty() {
            return Err(Failure::bad_request(format!(
                "Object 'Kind' is missing in '{config}'"
            )));
        }
        if !config["metadata"]["managedFields"].is_null() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        self.check_identity(target, config)?;
        let id = target.id();
        let live = self.get(&id);
        if live.is_none() && !target.subresource.is_empty() {
            return Err(Failure::not_found(def, target.name));
        }
        if let Some(error) = schema::apply_error(&def.schema, config, "") {
            let name = target.name;
            let place = format!("{}/{name}", text(config, "namespace"));
            return Err(Failure::internal(format!(
                "failed to create typed patch object ({place}; {}/{}, Kind={}): {error}",
                def.group, def.version, def.kind
            )));
        }
        let ignored = ignored(def, target.subresource);
        let api_version = def.api_version();
        let writer = Writer {
            manager: target.manager,
            api_version: &api_version,
            subresource: target.subresource,
            ignored: &ignored,
        };
        let now = self.now();
        let Some(live) = live else {
            let (object, owners) = ssa::apply(&def.schema, &blank(def), config, &writer, force, &now)?;
            self.admit_creation(target)?;
            let uid = text(config, "uid");
            if !uid.is_empty() {
                return Err(Failure::conflict(def, target.name, uid_mismatch(uid)));
            }
            parse_version(&config["metadata"]["resourceVersion"])?;
            let mut object = object;
            self.decode(def, &mut object)?;
            return self.insert(target, object, owners);
        };
        let mut start = (*live).clone();
        start["apiVersion"] = json!(api_version);
        let (object, owners) = ssa::apply(&def.schema, &start, config, &writer, force, &now)?;
        self.replace(target, &live, object, owners, How::Patch)
    }

    /// The common end of every update.
    fn replace(
        &mut self,
        target: &Target<'_>,
        live: &Arc<Value>,
        mut object: Value,
        owners: Owners,
        how: How,
    ) -> Result<Written, Failure> {
        let def = target.def;
        let id = target.id();
        let status_of_custom = !target.subresource.is_empty() && !def.builtin;
        // Concurrency control.
        let wanted = parse_version(&object["metadata"]["resourceVersion"])?;
        let uid = text(&object, "uid").to_owned();
        if how == How::Put && !uid.is_empty() && uid != text(live, "uid") {
            return Err(Failure::conflict(
                def,
                target.name,
                format!(
                    "StorageError: invalid object, Code: 4, Key: /registry/{}/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    match (def.builtin, def.kind.as_str()) {
                        (true, "Ingress") => "ingress".to_owned(),
                        (true, _) => def.plural.clone(),
                        (false, _) => format!("{}/{}", def.group, def.plural),
                    },
                    target.namespace,
                    target.name,
                    text(live, "uid")
                ),
            ));
        }
        if wanted == 0 && !def.unconditional_update {
            return Err(Failure::invalid_kind(
                &def.group,
                &def.plural,
                target.name,
                &[Cause::invalid(
                    "metadata.resourceVersion",
                    "Invalid value: 0: must be specified for an update".into(),
                )],
            ));
        }
        if wanted != 0 && wanted.to_string() != text(live, "resourceVersion") {
            return Err(Failure::modified(def, target.name));
        }
        // Endpoints write their own part only.
        object["apiVersion"] = json!(def.api_version());
        object["kind"] = json!(def.kind);
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let keep_from_live = |object: &mut Value, field: &str| match (live.get(field), object.as_object_mut())
        {
            (Some(v), Some(fields)) => {
                fields.insert(field.to_owned(), v.clone());
            }
            (None, Some(fields)) => {
                fields.remove(field);
            }
            _ => {}
        };
        if target.subresource.is_empty() {
            if def.status_subresource {
                keep_from_live(&mut object, "status");
            }
        } else {
            let mut status = object["status"].take();
            if def.builtin {
                keep_from_live(&mut object, "spec");
            } else {
                object = (**live).clone();
                object["apiVersion"] = json!(def.api_version());
            }
            if status.is_null() {
                status = Value::Null;
                if let Some(fields) = object.as_object_mut() {
                    fields.remove("status");
                }
            }
            if !status.is_null() {
                object["status"] = status;
            }
        }
        if !status_of_custom && !uid.is_empty() && uid != text(live, "uid") {
            let cause = || {
                Cause::invalid(
                    "metadata.uid",
                    format!("Invalid value: {uid:?}: field is immutable"),
                )
            };
            return Err(Failure::invalid(def, target.name, &[cause(), cause()]));
        }
        if let (Some(meta), Some(old)) = (object["metadata"].as_object_mut(), live["metadata"].as_object()) {
            for server_side in [
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "generation",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "selfLink",
                "resourceVersion",
            ] {
                match old.get(server_side) {
                    Some(v) => meta.insert(server_side.to_owned(), v.clone()),
                    None => meta.remove(server_side),
                };
            }
            if owners.0.is_empty() {
                meta.remove("managedFields");
            } else {
                meta.insert("managedFields".into(), owners.to_json());
            }
        }
        self.default(def, &mut object);
        self.validate(target, &object)?;
        if is_terminating(live) {
            let old = finalizers(live);
            let new: Vec<&str> = finalizers(&object)
                .into_iter()
                .filter(|f| !old.contains(f))
                .collect();
            if !new.is_empty() {
                let cause = Cause::new(
                    "FieldValueForbidden",
                    "metadata.finalizers",
                    format!(
                        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                        new.iter()
                            .map(|f| format!("{f:?}"))
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                );
                return Err(Failure::invalid(def, target.name, &[cause.clone(), cause]));
            }
        }
        if target.def.kind == "ConfigMap" && live["immutable"] == true && live["data"] != object["data"] {
            let cause = Cause::new(
                "FieldValueForbidden",
                "data",
                "Forbidden: field is immutable when `immutable` is set".into(),
            );
            return Err(Failure::invalid(def, target.name, &[cause]));
        }
        // A write that changes nothing but times of ownership is no write. For custom resources an empty map in the
        // metadata counts as a change, although it is not stored.
        let raw = object.clone();
        clean_metadata(&mut object);
        let unclean = !def.builtin && raw["metadata"] != object["metadata"];
        if !unclean && !self.unclean.contains(&id) && same_but_times(live, &object) {
            return Ok(Written {
                object: live.clone(),
                created: false,
            });
        }
        if def.generation && target.subresource.is_empty() && content_changed(def, live, &object) {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = json!(generation);
        }
        if target.dry_run {
            return Ok(Written {
                object: Arc::new(object),
                created: false,
            });
        }
        if is_terminating(&object) && finalizers(&object).is_empty() && !is_namespace(&id) {
            self.remove(&id);
            self.settle();
            return Ok(Written {
                object: Arc::new(object),
                created: false,
            });
        }
        let object = self.commit(&id, object);
        if unclean {
            self.unclean.insert(id.clone());
        } else {
            self.unclean.remove(&id);
        }
        if is_crd(&id) && target.subresource.is_empty() {
            self.sync_crd(&id, Some(live));
        }
        self.settle();
        Ok(Written {
            object,
            created: false,
        })
    }

    /// What decoding does to a body: unknown fields go, custom resources get their defaults.
    fn decode(&self, def: &ResourceDef, object: &mut Value) -> Result<(), Failure> {
        if def.builtin {
            drop_nulls(object);
            if let Some(error) = wrong_type_of_builtin(def, object) {
                return Err(Failure::bad_request(error));
            }
        }
        schema::prune(&def.schema, object);
        if !def.builtin
            && let Some(error) = schema::apply_error(&schema::object_meta(), &object["metadata"], ".metadata")
            && !error.contains("associative list")
            && !error.contains("duplicate entries")
        {
            return Err(Failure::bad_request(format!(
                "{} cannot be handled: {error}",
                def.kind
            )));
        }
        if def.builtin
            && def.kind == "Secret"
            && let Some(plain) = object.as_object_mut().and_then(|o| o.remove("stringData"))
        {
            for (key, value) in plain.as_object().into_iter().flatten() {
                let bytes = k8s_openapi::ByteString(value.as_str().unwrap_or_default().as_bytes().to_vec());
                object["data"][key.as_str()] = json!(bytes);
            }
        }
        schema::fill_defaults(&def.schema, object);
        Ok(())
    }

    fn default(&self, def: &ResourceDef, object: &mut Value) {
        schema::fill_defaults(&def.schema, object);
        if !def.builtin {
            return;
        }
        clean_builtin(object);
        match def.kind.as_str() {
            "Ingress" if object["status"]["loadBalancer"].is_null() => {
                object["status"] = json!({ "loadBalancer": {} });
            }
            "Namespace" => {
                let name = object["metadata"]["name"].clone();
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
                if object["status"]["phase"].is_null() {
                    object["status"]["phase"] = json!("Active");
                }
                if object["spec"]["finalizers"].is_null() {
                    object["spec"]["finalizers"] = json!(["kubernetes"]);
                }
            }
            "CustomResourceDefinition" => {
                if object["spec"]["names"]["singular"].is_null()
                    && object["spec"]["names"]["kind"].is_string()
                {
                    let kind = object["spec"]["names"]["kind"]
                        .as_str()
                        .unwrap_or_default()
                        .to_lowercase();
                    object["spec"]["names"]["singular"] = json!(kind);
                    object["spec"]["names"]["listKind"] = json!(format!(
                        "{}List",
                        object["spec"]["names"]["kind"].as_str().unwrap_or_default()
                    ));
                }
                if object["spec"]["conversion"].is_null() {
                    object["spec"]["conversion"] = json!({ "strategy": "None" });
                }
            }
            _ => {}
        }
    }

    /// What the admission plugin DefaultIngressClass does on creation, and on no later write. No field manager owns it.
    fn fill_ingress_class(&self, def: &ResourceDef, object: &mut Value) {
        let annotated = &object["metadata"]["annotations"]["kubernetes.io/ingress.class"];
        if !def.builtin
            || def.kind != "Ingress"
            || !object["spec"]["ingressClassName"].is_null()
            || !annotated.is_null()
        {
            return;
        }
        let classes = (def.group.clone(), "ingressclasses".to_owned());
        let default = |class: &&Arc<Value>| {
            class["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"] == "true"
        };
        let all = self.list(&classes, "");
        if let Some(class) = all.iter().find(default)
            && let Some(spec) = object["spec"].as_object_mut()
        {
            spec.insert("ingressClassName".into(), class["metadata"]["name"].clone());
        }
    }

    fn check_identity(&self, target: &Target<'_>, object: &Value) -> Result<(), Failure> {
        let def = target.def;
        if !object.is_object() {
            return Err(Failure::bad_request("the body is no object"));
        }
        let kind = object["kind"].as_str().unwrap_or(&def.kind);
        if kind != def.kind && !def.builtin {
            let cause = Cause::invalid("kind", format!("Invalid value: {kind:?}: must be {}", def.kind));
            return Err(Failure::invalid_kind(
                &def.group,
                kind,
                text(object, "name"),
                &[cause],
            ));
        }
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        if kind != def.kind || (!api_version.is_empty() && api_version != def.api_version()) {
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {api_version}, Kind={kind}",
                def.kind
            )));
        }
        let (name, namespace) = (text(object, "name"), text(object, "namespace"));
        if !target.name.is_empty() && !name.is_empty() && name != target.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        if def.namespaced && !namespace.is_empty() && namespace != target.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    fn validate(&self, target: &Target<'_>, object: &Value) -> Result<(), Failure> {
        let def = target.def;
        let mut causes = Vec::new();
        validate_metadata(object, &mut causes);
        schema::invalid(&def.schema, &without_metadata(object), "", &mut causes);
        if !def.builtin && !target.subresource.is_empty() {
            // The status endpoint validates the status alone: texts name paths from there.
            for cause in &mut causes {
                cause.message = cause.message.replace(": status.", ": ");
            }
        }
        if let Some(check) = def.check {
            let blocked = causes.iter().any(|c| {
                matches!(
                    c.reason,
                    "FieldValueRequired"
                        | "FieldValueTypeInvalid"
                        | "FieldValueNotSupported"
                        | "FieldValueTooLong"
                        | "FieldValueTooMany"
                )
            });
            match (blocked, def.builtin) {
                (false, _) => check(object, &mut causes),
                (true, true) => {}
                (true, false) => causes.push(Cause::invalid("<nil>", UNCHECKED.into())),
            }
        }
        if causes.is_empty() {
            Ok(())
        } else {
            Err(Failure::invalid(def, target.name, &causes))
        }
    }
}

fn uid_mismatch(uid: &str) -> String {
    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found")
}

/// A resourceVersion of a body: absent, null and empty are 0; anything that is no number is an internal error.
fn parse_version(value: &Value) -> Result<u64, Failure> {
    match value.as_str() {
        None | Some("") => Ok(0),
        Some(text) => text
            .parse()
            .map_err(|_| Failure::internal(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))),
    }
}

fn without_metadata(object: &Value) -> Value {
    let mut out = object.clone();
    if let Some(fields) = out.as_object_mut() {
        fields.remove("metadata");
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    out
}

fn content_changed(def: &ResourceDef, old: &Value, new: &Value) -> bool {
    let content = |object: &Value| {
        let mut out = without_metadata(object);
        if def.status_subresource
            && let Some(fields) = out.as_object_mut()
        {
            fields.remove("status");
        }
        out
    };
    content(old) != content(new)
}

fn same_but_times(old: &Value, new: &Value) -> bool {
    let timeless = |object: &Value| {
        let mut out = object.clone();
        out["apiVersion"] = Value::Null;
        for entry in out["metadata"]["managedFields"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if let Some(fields) = entry.as_object_mut() {
                fields.remove("time");
            }
        }
        out
    };
    let (mut old, mut new) = (timeless(old), timeless(new));
    let owners = |v: &mut Value| {
        let mut list = v["metadata"]["managedFields"].take();
        if let Some(items) = list.as_array_mut() {
            items.sort_by_key(Value::to_string);
        }
        if let Some(meta) = v["metadata"].as_object_mut() {
            meta.remove("managedFields");
        }
        list
    };
    owners(&mut old) == owners(&mut new) && old == new
}

fn wrong_type_of_builtin(def: &ResourceDef, object: &Value) -> Option<String> {
    let mut pruned = object.clone();
    schema::prune(&def.schema, &mut pruned);
    let error = schema::apply_error(&def.schema, &pruned, "")?;
    (!error.contains("associative list") && !error.contains("duplicate entries")).then(|| {
        format!(
            "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal: {error}",
            def.kind, def.version, def.kind
        )
    })
}

/// Owner references with their fields in the order in which the API server prints them.
fn shown_owners(owners: &[Value]) -> String {
    let one = |owner: &Value| {
        let fields: Vec<String> = [
            "apiVersion",
            "kind",
            "name",
            "uid",
            "controller",
            "blockOwnerDeletion",
        ]
        .iter()
        .filter(|name| !owner[**name].is_null())
        .map(|name| format!("{name:?}:{}", owner[*name]))
        .collect();
        format!("{{{}}}", fields.join(","))
    };
    format!("[{}]", owners.iter().map(one).collect::<Vec<_>>().join(","))
}

fn validate_metadata(object: &Value, causes: &mut Vec<Cause>) {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let fits = !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !fits {
        causes.push(Cause::invalid(
            "metadata.name",
            format!("Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"),
        ));
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) if text.len() > 63 => causes.push(Cause::invalid(
                "metadata.labels",
                format!("Invalid value: {text:?}: must be no more than 63 bytes"),
            )),
            Some(text) => {
                let ok = text.is_empty()
                    || (text
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
                        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
                        && text.ends_with(|c: char| c.is_ascii_alphanumeric()));
                if !ok {
                    causes.push(Cause::invalid(
                        "metadata.labels",
                        format!("Invalid value: {text:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"),
                    ));
                }
            }
            None => causes.push(Cause::of_type(
                &format!("metadata.labels.{key}"),
                "Invalid value: must be of type string".into(),
            )),
        }
    }
    let size: usize = meta["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
        .sum();
    if size > 262_144 {
        causes.push(Cause::new(
            "FieldValueTooLong",
            "metadata.annotations",
            "Too long: may not be more than 262144 bytes".into(),
        ));
    }
    let owners = meta["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    if owners.iter().filter(|o| o["controller"] == true).count() > 1 {
        let named: Vec<String> = owners
            .iter()
            .filter(|o| o["controller"] == true)
            .map(|o| {
                let field = |name: &str| o[name].as_str().unwrap_or_default();
                format!("{}/{}", field("kind"), field("name"))
            })
            .collect();
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            format!(
                "Invalid value: {}: Only one reference can have Controller set to true. Found \"true\" in references for {}",
                shown_owners(owners),
                named.join(" and ")
            ),
        ));
    }
    for owner in owners {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::invalid(
                    &format!("metadata.ownerReferences.{field}"),
                    "Invalid value: \"\": must not be empty".into(),
                ));
            }
        }
    }
}
