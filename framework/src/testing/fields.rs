//! Field sets and the four walks over a typed value that server-side apply is made of: list the fields of a value,
//! compare two values, merge one over another, remove fields. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::schema::{ANY, ListKind, Schema, Shape};

/// A set of field paths. A path element is written as in `fieldsV1`: `f:name`, `k:{"type":"Ready"}`, `v:"x"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    members: BTreeSet<String>,
    children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    pub(crate) fn insert(&mut self, path: &[String]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// A set from paths such as `metadata.name`.
    pub(crate) fn of(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<String> = path.split('.').map(|p| format!("f:{p}")).collect();
            set.insert(&path);
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(FieldSet::is_empty)
    }

    fn put_child(&mut self, name: &str, child: FieldSet) {
        if !child.is_empty() {
            self.children.insert(name.to_owned(), child);
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (name, child) in &other.children {
            let merged = out
                .children
                .get(name)
                .map_or_else(|| child.clone(), |own| own.union(child));
            out.put_child(name, merged);
        }
        out
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut out = Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            ..Self::default()
        };
        for (name, child) in &self.children {
            if let Some(theirs) = other.children.get(name) {
                out.put_child(name, child.intersection(theirs));
            }
        }
        out
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut out = Self {
            members: self.members.difference(&other.members).cloned().collect(),
            ..Self::default()
        };
        for (name, child) in &self.children {
            let left = other
                .children
                .get(name)
                .map_or_else(|| child.clone(), |theirs| child.difference(theirs));
            out.put_child(name, left);
        }
        out
    }

    /// Like `difference`, but a member of `other` takes everything below it along.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = Self {
            members: self.members.difference(&other.members).cloned().collect(),
            ..Self::default()
        };
        for (name, child) in self
            .children
            .iter()
            .filter(|(name, _)| !other.members.contains(*name))
        {
            let left = other
                .children
                .get(name)
                .map_or_else(|| child.clone(), |theirs| child.recursive_difference(theirs));
            out.put_child(name, left);
        }
        out
    }

    /// Adds the named fields on the way to a member (`spec` for `spec.a`), but not keys of maps.
    pub(crate) fn with_named_parents(&self, schema: &Schema) -> Self {
        let mut out = Self {
            members: self.members.clone(),
            ..Self::default()
        };
        for (element, child) in &self.children {
            let inner = match (&schema.shape, element.strip_prefix("f:")) {
                (_, Some(name)) => {
                    if schema.declares(name) {
                        out.members.insert(element.clone());
                    }
                    schema.field(name).unwrap_or(&ANY)
                }
                (Shape::List { item, .. }, None) => item,
                _ => &ANY,
            };
            out.children
                .insert(element.clone(), child.with_named_parents(inner));
        }
        out
    }

    /// Every path of the set, in order, as path elements.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        fn walk(set: &FieldSet, prefix: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
            for member in &set.members {
                prefix.push(member.clone());
                out.push(prefix.clone());
                prefix.pop();
            }
            for (name, child) in &set.children {
                prefix.push(name.clone());
                walk(child, prefix, out);
                prefix.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut out: Map<String, Value> = self
            .members
            .iter()
            .map(|m| (m.clone(), Value::Object(Map::new())))
            .collect();
        for (name, child) in self.children.iter().filter(|(_, child)| !child.is_empty()) {
            let mut inner = child.to_json();
            if self.members.contains(name) {
                inner["."] = Value::Object(Map::new());
            }
            out.insert(name.clone(), inner);
        }
        Value::Object(out)
    }

    pub(crate) fn from_json(value: &Value) -> Self {
        let mut out = Self::default();
        for (name, inner) in value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != ".")
        {
            let child = Self::from_json(inner);
            if child.is_empty() || inner.get(".").is_some() {
                out.members.insert(name.clone());
            }
            out.put_child(name, child);
        }
        out
    }
}

/// A path as it stands in conflict messages: `.status.conditions[type="Ready"].status`.
pub(crate) fn show_path(path: &[String]) -> String {
    let mut out = String::new();
    for element in path {
        if let Some(name) = element.strip_prefix("f:") {
            out.push('.');
            out.push_str(name);
        } else if let Some(keys) = element.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let mut pairs: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
            pairs.sort();
            out.push_str(&format!("[{}]", pairs.join(",")));
        } else if let Some(value) = element.strip_prefix("v:") {
            out.push_str(&format!("[={value}]"));
        }
    }
    out
}

/// How a value of a type is walked.
enum View<'s> {
    Leaf,
    Items { item: &'s Schema, kind: &'s ListKind },
    Fields,
}

fn view<'s>(schema: &'s Schema, value: &Value) -> View<'s> {
    match &schema.shape {
        Shape::Scalar(_) => View::Leaf,
        Shape::List {
            kind: ListKind::Atomic,
            ..
        } => View::Leaf,
        Shape::List { item, kind } => View::Items { item, kind },
        Shape::Object { atomic: true, .. } => View::Leaf,
        Shape::Object { .. } => View::Fields,
        Shape::Any if value.is_object() => View::Fields,
        Shape::Any => View::Leaf,
    }
}

/// The type of a field; what is not declared counts as undescribed (`apply_error` has refused it where it matters).
fn field_of<'s>(schema: &'s Schema, name: &str) -> &'s Schema {
    schema.field(name).unwrap_or(&ANY)
}

pub(super) fn element(item: &Schema, kind: &ListKind, value: &Value) -> String {
    match kind {
        ListKind::Map(keys) => {
            let mut found = BTreeMap::new();
            for key in keys {
                let default = || item.field(key).and_then(|f| f.default.clone());
                if let Some(v) = value.get(key.as_str()).cloned().or_else(default) {
                    found.insert(key.clone(), v);
                }
            }
            format!("k:{}", serde_json::to_string(&found).unwrap_or_default())
        }
        _ => format!("v:{value}"),
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

/// The fields that a manager who applies `value` owns.
pub(crate) fn fields_of(schema: &Schema, value: &Value) -> FieldSet {
    let mut out = FieldSet::default();
    collect(schema, value, &mut Vec::new(), &mut out);
    out
}

fn collect(schema: &Schema, value: &Value, path: &mut Vec<String>, out: &mut FieldSet) {
    match view(schema, value) {
        View::Leaf => out.insert(path),
        View::Items { item, kind } => {
            for v in items(Some(value)) {
                path.push(element(item, kind, v));
                collect(item, v, path, out);
                out.insert(path);
                path.pop();
            }
        }
        View::Fields => {
            for (name, v) in value.as_object().into_iter().flatten() {
                path.push(format!("f:{name}"));
                collect(field_of(schema, name), v, path, out);
                let empty_map = v.as_object().is_some_and(Map::is_empty);
                if v.is_null() || empty_map || !schema.declares(name) {
                    out.insert(path);
                }
                path.pop();
            }
        }
    }
}

/// What changed from one value to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    pub(crate) fn without(&self, fields: &FieldSet) -> Self {
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }
}

/// Compares two values of a type.
pub(crate) fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let mut out = Comparison::default();
    compare_at(schema, Some(old), Some(new), &mut Vec::new(), &mut out);
    out
}

fn compare_at(
    schema: &Schema,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    out: &mut Comparison,
) {
    let Some(shown) = new.or(old) else { return };
    // An undescribed value that changes between object and something else is one changed leaf.
    let same_view = match (old, new) {
        (Some(a), Some(b)) if matches!(schema.shape, Shape::Any) => a.is_object() == b.is_object(),
        _ => true,
    };
    let walk = view(schema, shown);
    if !same_view || matches!(walk, View::Leaf) || (is_hollow(old) && is_hollow(new)) {
        match (old, new) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            (Some(a), Some(b)) if a != b => out.modified.insert(path),
            _ => {}
        }
        return;
    }
    match walk {
        View::Leaf => {}
        View::Items { item, kind } => {
            let index = |value: Option<&Value>| -> Vec<(String, Value)> {
                items(value)
                    .iter()
                    .map(|v| (element(item, kind, v), v.clone()))
                    .collect()
            };
            let (left, right) = (index(old), index(new));
            let find = |side: &[(String, Value)], pe: &str| -> Option<Value> {
                side.iter().find(|(e, _)| e == pe).map(|(_, v)| v.clone())
            };
            let all: BTreeSet<&String> = left.iter().chain(&right).map(|(pe, _)| pe).collect();
            for pe in all {
                path.push(pe.clone());
                compare_at(
                    item,
                    find(&left, pe).as_ref(),
                    find(&right, pe).as_ref(),
                    path,
                    out,
                );
                path.pop();
            }
        }
        View::Fields => {
            let empty = Map::new();
            let left = old.and_then(Value::as_object).unwrap_or(&empty);
            let right = new.and_then(Value::as_object).unwrap_or(&empty);
            let all: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in all {
                path.push(format!("f:{name}"));
                compare_at(field_of(schema, name), left.get(name), right.get(name), path, out);
                path.pop();
            }
        }
    }
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        _ => {}
    }
}

/// `over` merged onto `base`: leaves of `over` win, keyed lists and maps are merged item by item.
pub(crate) fn merge(schema: &Schema, base: &Value, over: &Value) -> Value {
    merge_at(schema, Some(base), Some(over)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merge_at(schema: &Schema, base: Option<&Value>, over: Option<&Value>) -> Option<Value> {
    let shown = over.or(base)?;
    let walk = view(schema, shown);
    if matches!(walk, View::Leaf) || (is_hollow(base) && is_hollow(over)) {
        return Some(shown.clone());
    }
    match walk {
        View::Leaf => Some(shown.clone()),
        View::Items { item, kind } => {
            let (left, right) = (items(base), items(over));
            let keys =
                |side: &[Value]| -> Vec<String> { side.iter().map(|v| element(item, kind, v)).collect() };
            let (left_keys, right_keys) = (keys(left), keys(right));
            // Shared items keep the order of `over`; items of `base` alone stay before the shared one they preceded.
            let mut out: Vec<Value> = Vec::new();
            let mut taken = 0;
            for (pe, v) in left_keys.iter().zip(left) {
                match right_keys.iter().position(|k| k == pe) {
                    None => out.extend(merge_at(item, Some(v), None)),
                    Some(at) if at < taken => {}
                    Some(at) => {
                        for i in taken..=at {
                            let mine = left_keys
                                .iter()
                                .position(|k| *k == right_keys[i])
                                .map(|p| &left[p]);
                            out.extend(merge_at(item, mine, Some(&right[i])));
                        }
                        taken = at + 1;
                    }
                }
            }
            for v in right.iter().skip(taken) {
                out.extend(merge_at(item, None, Some(v)));
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        View::Fields => {
            let empty = Map::new();
            let left = base.and_then(Value::as_object).unwrap_or(&empty);
            let right = over.and_then(Value::as_object).unwrap_or(&empty);
            let all: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            let out: Map<String, Value> = all
                .into_iter()
                .filter_map(|name| {
                    Some((
                        name.clone(),
                        merge_at(field_of(schema, name), left.get(name), right.get(name))?,
                    ))
                })
                .collect();
            (!out.is_empty()).then_some(Value::Object(out))
        }
    }
}

/// `value` without the fields of `unwanted`. What becomes empty becomes null, as on the real server.
pub(crate) fn remove(schema: &Schema, value: &Value, unwanted: &FieldSet) -> Value {
    match view(schema, value) {
        // A scalar stays; of an atomic list or map nothing may be kept in part.
        View::Leaf if value.is_array() || value.is_object() => Value::Null,
        View::Leaf => value.clone(),
        View::Items { item, kind } => {
            let kept: Vec<Value> = items(Some(value))
                .iter()
                .filter_map(|v| {
                    let pe = element(item, kind, v);
                    if unwanted.members.contains(&pe) {
                        return None;
                    }
                    Some(match unwanted.children.get(&pe).filter(|set| !set.is_empty()) {
                        Some(below) => remove(item, v, below),
                        None => v.clone(),
                    })
                })
                .collect();
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        View::Fields => {
            let kept: Map<String, Value> = value
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, v)| {
                    let pe = format!("f:{name}");
                    if unwanted.members.contains(&pe) {
                        return None;
                    }
                    let left = match unwanted.children.get(&pe).filter(|set| !set.is_empty()) {
                        Some(below) => remove(field_of(schema, name), v, below),
                        None => v.clone(),
                    };
                    Some((name.clone(), left))
                })
                .collect();
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
    }
}
