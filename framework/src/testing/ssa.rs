//! Server-side apply: who owns which field, what an apply changes, which conflicts it meets. Pure: takes values and
//! gives values; the store decides what to keep.

use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::fields::{self, FieldSet, show_path};
use super::schema::Schema;

/// How a manager came to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: FieldSet,
}

impl Entry {
    /// Whether two entries belong to the same manager: an applier keeps its identity over API versions.
    fn is_same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let operation = match value["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Self {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: value["time"].as_str().map(str::to_owned),
            fields: FieldSet::from_json(&value["fieldsV1"]),
        })
    }

    fn to_json(&self) -> Value {
        let mut out = json!({
            "manager": self.manager,
            "operation": match self.operation { Operation::Apply => "Apply", Operation::Update => "Update" },
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        if let Some(time) = &self.time {
            out["time"] = json!(time);
        }
        if !self.subresource.is_empty() {
            out["subresource"] = json!(self.subresource);
        }
        if self.manager.is_empty()
            && let Some(fields) = out.as_object_mut()
        {
            fields.remove("manager");
        }
        out
    }

    /// The manager as conflict messages name it.
    fn show(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }
}

/// All owners of an object's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners(pub(crate) Vec<Entry>);

impl Owners {
    /// Reads `metadata.managedFields`. Of two entries of one manager the later one stays.
    pub(crate) fn of(object: &Value) -> Self {
        let mut out: Vec<Entry> = Vec::new();
        for entry in object["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
        {
            if let Some(entry) = Entry::from_json(entry) {
                out.retain(|e| !e.is_same_manager(&entry));
                out.push(entry);
            }
        }
        Self(out)
    }

    /// The owners that an update starts from: those of the request, when it names any, else the live ones.
    /// `[{}]` wipes them; a write to a subresource cannot change them.
    pub(crate) fn for_update(live: &Value, new: &Value, subresource: bool) -> Self {
        if subresource {
            return Self::of(live);
        }
        if let Some([only]) = new["metadata"]["managedFields"].as_array().map(Vec::as_slice)
            && only.as_object().is_some_and(serde_json::Map::is_empty)
        {
            return Self::default();
        }
        let named = Self::of(new);
        if named.0.is_empty() { Self::of(live) } else { named }
    }

    /// Sorted as the API server writes it: appliers first, then by time, manager, version, subresource.
    pub(crate) fn to_json(&self) -> Value {
        let mut sorted: Vec<&Entry> = self.0.iter().collect();
        sorted.sort_by(|a, b| {
            (a.operation, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
                b.operation,
                &b.time,
                &b.manager,
                &b.api_version,
                &b.subresource,
            ))
        });
        sorted.into_iter().map(Entry::to_json).collect()
    }

    /// Takes ownership of `fields` from everyone.
    pub(crate) fn disown(&mut self, fields: &FieldSet) {
        for entry in &mut self.0 {
            entry.fields = entry.fields.difference(fields);
        }
        self.0.retain(|e| !e.fields.is_empty());
    }
}

/// Who writes, and where.
#[derive(Clone, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    /// Fields that this endpoint does not write; nobody comes to own them through it.
    pub(crate) ignored: &'a FieldSet,
}

impl Writer<'_> {
    fn entry(&self, operation: Operation) -> Entry {
        Entry {
            manager: self.manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            fields: FieldSet::default(),
        }
    }
}

/// Metadata that the server itself writes: never owned.
fn never_owned() -> FieldSet {
    FieldSet::of(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
}

fn without_owners(object: &Value) -> Value {
    let mut out = object.clone();
    if let Some(meta) = out["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    out
}

/// Moves ownership after a change from `old` to `new` made by the entry `own`, and says who else lost what.
fn settle(
    schema: &Schema,
    old: &Value,
    new: &Value,
    owners: &mut Owners,
    own: &Entry,
    ignored: &FieldSet,
    force: bool,
) -> Result<fields::Comparison, Failure> {
    let full = fields::compare(schema, old, new);
    let change = full.without(ignored);
    let written = change.modified.union(&change.added);
    let others = |e: &Entry| !e.is_same_manager(own);
    let mut conflicts: Vec<(String, Vec<String>)> = Vec::new();
    for entry in owners.0.iter().filter(|e| others(e)) {
        for path in entry.fields.intersection(&written).paths() {
            conflicts.push((entry.show(), path));
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(conflict_failure(&mut conflicts));
    }
    for entry in owners.0.iter_mut().filter(|e| others(e)) {
        entry.fields = entry.fields.difference(&written).difference(&change.removed);
    }
    owners.0.retain(|e| !others(e) || !e.fields.is_empty());
    Ok(full)
}

fn conflict_failure(conflicts: &mut [(String, Vec<String>)]) -> Failure {
    conflicts.sort();
    let causes: Vec<Cause> = conflicts
        .iter()
        .map(|(who, path)| {
            Cause::new(
                "FieldManagerConflict",
                &show_path(path),
                format!("conflict with {who}"),
            )
        })
        .collect();
    let message = match &*conflicts {
        [(who, path)] => format!(
            "Apply failed with 1 conflict: conflict with {who}: {}",
            show_path(path)
        ),
        many => {
            let mut lines = Vec::new();
            let mut last = "";
            for (who, path) in many {
                if who != last {
                    lines.push(format!("conflicts with {who}:"));
                    last = who;
                }
                lines.push(format!("- {}", show_path(path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let causes: Vec<Value> = causes
        .iter()
        .map(|c| json!({ "reason": c.reason, "message": c.message, "field": c.field }))
        .collect();
    Failure::new(409, "Conflict", message).details(json!({ "causes": causes }))
}

/// Ownership after a plain write (POST, PUT, merge or JSON patch) that turns `live` into `new`.
///
/// `live` is an empty object on creation. `owners` is where the write starts from. The entry gets `now` when its
/// fields changed.
pub(crate) fn update(
    schema: &Schema,
    live: &Value,
    new: &Value,
    mut owners: Owners,
    writer: &Writer<'_>,
    now: &str,
) -> Owners {
    let (live, new) = (without_owners(live), without_owners(new));
    let mut own = writer.entry(Operation::Update);
    // A forced settle never fails.
    let Ok(change) = settle(schema, &live, &new, &mut owners, &own, writer.ignored, true) else {
        return owners;
    };
    let before = owners
        .0
        .iter()
        .position(|e| e.is_same_manager(&own))
        .map(|i| owners.0.remove(i));
    let old_fields = before.as_ref().map(|e| e.fields.clone()).unwrap_or_default();
    own.fields = old_fields
        .difference(&change.removed)
        .union(&change.modified)
        .union(&change.added)
        .recursive_difference(writer.ignored)
        .difference(&never_owned());
    if !own.fields.is_empty() {
        own.time = match before {
            Some(before) if before.fields == own.fields => before.time,
            _ => Some(now.to_owned()),
        };
        owners.0.push(own);
    }
    owners
}

/// The object and the ownership after `config` is applied to `live` (an empty object on creation).
///
/// # Errors
/// 409 with `FieldManagerConflict` causes, when not forced; 500 without reason when `config` does not fit the schema.
pub(crate) fn apply(
    schema: &Schema,
    live: &Value,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
    now: &str,
) -> Result<(Value, Owners), Failure> {
    let mut owners = Owners::of(live);
    let live = without_owners(live);
    let mut own = writer.entry(Operation::Apply);
    let last = owners
        .0
        .iter()
        .position(|e| e.is_same_manager(&own))
        .map(|i| owners.0.remove(i));

    let merged = fields::merge(schema, &live, config);
    own.fields = fields::fields_of(schema, config).recursive_difference(writer.ignored);
    owners.0.push(own.clone());

    let new = match &last {
        Some(last) if !last.fields.is_empty() => prune(schema, &merged, &owners, &last.fields),
        _ => merged,
    };
    settle(schema, &live, &new, &mut owners, &own, writer.ignored, force)?;
    if let Some(entry) = owners.0.iter_mut().find(|e| e.is_same_manager(&own)) {
        entry.fields = entry.fields.difference(&never_owned());
        // Without a change in the object the time stays, so that a repeated apply is no write.
        entry.time = match &last {
            Some(last) if new == live && last.fields == entry.fields => last.time.clone(),
            _ => Some(now.to_owned()),
        };
    }
    owners.0.retain(|e| !e.fields.is_empty());
    Ok((new, owners))
}

/// Removes what the manager applied last time, not this time, and nobody else owns.
fn prune(schema: &Schema, merged: &Value, owners: &Owners, last: &FieldSet) -> Value {
    let named = |set: &FieldSet| set.with_named_parents(schema);
    let owned = owners
        .0
        .iter()
        .fold(FieldSet::default(), |all, e| all.union(&e.fields));
    let all = named(&fields::fields_of(schema, merged));
    let left_of = |value: &Value| named(&fields::fields_of(schema, value));

    let stripped = fields::remove(schema, merged, &named(last));
    let unowned = all.difference(&left_of(&stripped).union(&named(&owned)));
    let kept = fields::remove(schema, merged, &unowned);
    let dropped = all.difference(&left_of(&kept)).intersection(&named(last));
    fields::remove(schema, merged, &dropped)
}
