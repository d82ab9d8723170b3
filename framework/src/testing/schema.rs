//! Schemas of the served kinds: what server-side apply needs to know of a type (which lists are atomic, which
//! fields exist), plus defaults and the simple validation rules. No object state, no HTTP.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::failure::Cause;

/// How the items of a list are owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// One manager owns the whole list. The default.
    Atomic,
    /// Scalars, each owned on its own.
    Set,
    /// Objects, each owned by the value of these keys.
    Map(Vec<String>),
}

/// What may stand in an object besides its named fields.
#[derive(Clone, Debug)]
pub(crate) enum Rest {
    /// Nothing: an unknown field is an error for apply and is dropped by every other write.
    Closed,
    /// Anything (`x-kubernetes-preserve-unknown-fields`).
    Open,
    /// A map: every key has this type.
    Of(Box<Schema>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Not described: objects are granular, lists atomic, everything is accepted.
    Any,
    Scalar(Scalar),
    Object {
        fields: BTreeMap<String, Schema>,
        rest: Rest,
        atomic: bool,
        required: Vec<String>,
    },
    List {
        item: Box<Schema>,
        kind: ListKind,
    },
}

/// Limits that the fake checks. Patterns and CEL are left to [`Check`] functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) one_of: Vec<Value>,
    pub(crate) min: Option<i64>,
    pub(crate) max: Option<i64>,
    pub(crate) min_len: Option<u64>,
    pub(crate) max_len: Option<u64>,
}

/// A hand-written rule for one value: `Err` is the detail that stands after "Invalid value".
pub(crate) type Check = fn(&Value) -> Result<(), String>;

/// The type of one value.
///
/// Build it with [`string`], [`integer`], [`object`], [`list`] and so on, or read it from an OpenAPI v3
/// structural schema with [`Schema::from_openapi`].
#[derive(Clone, Debug)]
pub struct Schema {
    pub(crate) shape: Shape,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) limits: Limits,
    pub(crate) check: Option<Check>,
}

fn plain(shape: Shape) -> Schema {
    Schema {
        shape,
        default: None,
        nullable: false,
        limits: Limits::default(),
        check: None,
    }
}

/// Anything at all, undescribed.
pub fn any() -> Schema {
    plain(Shape::Any)
}

/// A string.
pub fn string() -> Schema {
    plain(Shape::Scalar(Scalar::String))
}

/// An integer.
pub fn integer() -> Schema {
    plain(Shape::Scalar(Scalar::Integer))
}

/// A boolean.
pub fn boolean() -> Schema {
    plain(Shape::Scalar(Scalar::Boolean))
}

/// An integer or a string, as ports and quantities are.
pub fn int_or_string() -> Schema {
    plain(Shape::Scalar(Scalar::IntOrString))
}

/// An object with these fields and no others.
pub fn object<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    plain(Shape::Object {
        fields: fields
            .into_iter()
            .map(|(name, schema)| (name.to_owned(), schema))
            .collect(),
        rest: Rest::Closed,
        atomic: false,
        required: Vec::new(),
    })
}

/// A map from strings to `item`, owned key by key.
pub fn map(item: Schema) -> Schema {
    plain(Shape::Object {
        fields: BTreeMap::new(),
        rest: Rest::Of(Box::new(item)),
        atomic: false,
        required: Vec::new(),
    })
}

/// A list of `item`, atomic unless [`Schema::keyed`] or [`Schema::set`] says otherwise.
pub fn list(item: Schema) -> Schema {
    plain(Shape::List {
        item: Box::new(item),
        kind: ListKind::Atomic,
    })
}

impl Schema {
    /// This type with a default, filled in wherever the field is absent.
    pub fn or(mut self, default: impl Into<Value>) -> Self {
        self.default = Some(default.into());
        self
    }

    /// Fields that must be there.
    pub fn required<const N: usize>(mut self, names: [&str; N]) -> Self {
        if let Shape::Object { required, .. } = &mut self.shape {
            *required = names.iter().map(|n| (*n).to_owned()).collect();
        }
        self
    }

    /// Unknown fields of this object are kept and accepted.
    pub fn open(mut self) -> Self {
        if let Shape::Object { rest, .. } = &mut self.shape {
            *rest = Rest::Open;
        }
        self
    }

    /// This object has one owner as a whole.
    pub fn atomic(mut self) -> Self {
        if let Shape::Object { atomic, .. } = &mut self.shape {
            *atomic = true;
        }
        self
    }

    /// This list is a map list with these keys.
    pub fn keyed<const N: usize>(mut self, keys: [&str; N]) -> Self {
        if let Shape::List { kind, .. } = &mut self.shape {
            *kind = ListKind::Map(keys.iter().map(|k| (*k).to_owned()).collect());
        }
        self
    }

    /// This list is a set of scalars.
    pub fn set(mut self) -> Self {
        if let Shape::List { kind, .. } = &mut self.shape {
            *kind = ListKind::Set;
        }
        self
    }

    /// Only these values.
    pub fn one_of<const N: usize>(mut self, values: [&str; N]) -> Self {
        self.limits.one_of = values.iter().map(|v| json!(v)).collect();
        self
    }

    /// Number of items (lists), characters (strings) or properties (maps) that is allowed.
    pub fn len(mut self, min: u64, max: u64) -> Self {
        self.limits.min_len = (min > 0).then_some(min);
        self.limits.max_len = Some(max);
        self
    }

    /// Smallest and largest number that is allowed.
    pub fn within(mut self, min: i64, max: i64) -> Self {
        self.limits.min = Some(min);
        self.limits.max = Some(max);
        self
    }

    /// A rule of its own.
    pub(crate) fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// Changes the kind of the list that lies at `path`, for example `spec.rules` or `status.parents[].conditions`.
    /// A path that leads to no described list is ignored.
    pub fn with_list(mut self, path: &str, kind: ListKind) -> Self {
        fn descend(schema: &mut Schema, steps: &[&str], kind: &ListKind) {
            match (&mut schema.shape, steps.split_first()) {
                (Shape::List { kind: own, .. }, None) => *own = kind.clone(),
                (Shape::List { item, .. }, Some(_)) => descend(item, steps, kind),
                (Shape::Object { fields, .. }, Some((step, rest))) => {
                    if let Some(field) = fields.get_mut(*step) {
                        descend(field, rest, kind);
                    }
                }
                _ => {}
            }
        }
        let steps: Vec<&str> = path.split('.').map(|s| s.trim_end_matches("[]")).collect();
        descend(&mut self, &steps, &kind);
        self
    }

    /// Reads a structural OpenAPI v3 schema as it stands in a CustomResourceDefinition.
    pub fn from_openapi(schema: &Value) -> Self {
        let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
        let sub = |v: &Value| Box::new(Schema::from_openapi(v));
        let strings = |v: &Value| -> Vec<String> {
            v.as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let shape = if flag("x-kubernetes-int-or-string") {
            Shape::Scalar(Scalar::IntOrString)
        } else {
            match schema["type"].as_str() {
                Some("string") => Shape::Scalar(Scalar::String),
                Some("integer") => Shape::Scalar(Scalar::Integer),
                Some("number") => Shape::Scalar(Scalar::Number),
                Some("boolean") => Shape::Scalar(Scalar::Boolean),
                Some("array") => Shape::List {
                    item: sub(&schema["items"]),
                    kind: match schema["x-kubernetes-list-type"].as_str() {
                        Some("set") => ListKind::Set,
                        Some("map") => ListKind::Map(strings(&schema["x-kubernetes-list-map-keys"])),
                        _ => ListKind::Atomic,
                    },
                },
                Some("object") => {
                    let fields: BTreeMap<String, Schema> = schema["properties"]
                        .as_object()
                        .into_iter()
                        .flatten()
                        .map(|(name, v)| (name.clone(), Schema::from_openapi(v)))
                        .collect();
                    let rest = match &schema["additionalProperties"] {
                        Value::Object(item) => Rest::Of(sub(&Value::Object(item.clone()))),
                        Value::Bool(true) => Rest::Open,
                        _ if flag("x-kubernetes-preserve-unknown-fields") => Rest::Open,
                        _ => Rest::Closed,
                    };
                    let atomic = schema["x-kubernetes-map-type"] == "atomic";
                    Shape::Object {
                        fields,
                        rest,
                        atomic,
                        required: strings(&schema["required"]),
                    }
                }
                _ => Shape::Any,
            }
        };
        let number = |name: &str| {
            schema[name]
                .as_i64()
                .or_else(|| schema[name].as_f64().map(|f| f as i64))
        };
        let count = |names: [&str; 3]| names.iter().find_map(|n| schema[*n].as_u64());
        Schema {
            shape,
            default: schema.get("default").cloned(),
            nullable: flag("nullable"),
            limits: Limits {
                one_of: schema["enum"].as_array().cloned().unwrap_or_default(),
                min: number("minimum"),
                max: number("maximum"),
                min_len: count(["minItems", "minLength", "minProperties"]),
                max_len: count(["maxItems", "maxLength", "maxProperties"]),
            },
            check: None,
        }
    }

    /// The type of the field `name` of an object of this type.
    pub(crate) fn field(&self, name: &str) -> Option<&Schema> {
        match &self.shape {
            Shape::Object { fields, rest, .. } => fields.get(name).or(match rest {
                Rest::Of(item) => Some(item),
                Rest::Open => Some(&ANY),
                Rest::Closed => None,
            }),
            Shape::Any => Some(&ANY),
            _ => None,
        }
    }

    /// Whether `name` is a declared field, in contrast to a key of a map.
    pub(crate) fn declares(&self, name: &str) -> bool {
        matches!(&self.shape, Shape::Object { fields, .. } if fields.contains_key(name))
    }
}

/// The undescribed type, for borrowing.
pub(crate) static ANY: Schema = Schema {
    shape: Shape::Any,
    default: None,
    nullable: false,
    limits: Limits {
        one_of: Vec::new(),
        min: None,
        max: None,
        min_len: None,
        max_len: None,
    },
    check: None,
};

/// `metadata` of every kind.
pub(crate) fn object_meta() -> Schema {
    object([
        ("name", string()),
        ("generateName", string()),
        ("namespace", string()),
        ("selfLink", string()),
        ("uid", string()),
        ("resourceVersion", string()),
        ("generation", integer()),
        ("creationTimestamp", string()),
        ("deletionTimestamp", string()),
        ("deletionGracePeriodSeconds", integer()),
        ("labels", map(string())),
        ("annotations", map(string())),
        ("finalizers", list(string()).set()),
        (
            "ownerReferences",
            list(
                object([
                    ("apiVersion", string()),
                    ("kind", string()),
                    ("name", string()),
                    ("uid", string()),
                    ("controller", boolean()),
                    ("blockOwnerDeletion", boolean()),
                ])
                .atomic(),
            )
            .keyed(["uid"]),
        ),
        ("managedFields", list(any())),
    ])
}

/// A whole object of a kind: the given fields plus apiVersion, kind and metadata.
pub(crate) fn whole<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    with_meta(object(fields))
}

/// Adds apiVersion, kind and metadata to a root schema.
pub(crate) fn with_meta(mut root: Schema) -> Schema {
    if let Shape::Object { fields, .. } = &mut root.shape {
        fields.insert("apiVersion".into(), string());
        fields.insert("kind".into(), string());
        fields.insert("metadata".into(), object_meta());
    }
    root
}

/// Conditions as the API conventions have them: a map list by type.
pub(crate) fn conditions() -> Schema {
    list(
        object([
            ("type", string()),
            ("status", string()),
            ("reason", string()),
            ("message", string()),
            ("lastTransitionTime", string()),
            ("observedGeneration", integer()),
        ])
        .required(["type", "status", "reason", "message", "lastTransitionTime"]),
    )
    .keyed(["type"])
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn scalar_fits(scalar: Scalar, value: &Value) -> bool {
    match scalar {
        Scalar::String => value.is_string(),
        Scalar::Integer => value.is_i64() || value.is_u64(),
        Scalar::Number => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::IntOrString => value.is_string() || value.is_number(),
    }
}

/// The first thing about `value` that makes it no typed patch, in the words of structured-merge-diff.
pub(crate) fn apply_error(schema: &Schema, value: &Value, path: &str) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match &schema.shape {
        Shape::Any => None,
        Shape::Scalar(scalar) if scalar_fits(*scalar, value) => None,
        Shape::Scalar(scalar) => {
            let go = format!("&value.valueUnstructured{{Value:{value}}}");
            Some(match scalar {
                Scalar::String => format!("{path}: expected string, got {go}"),
                Scalar::Boolean => format!("{path}: expected boolean, got {go}"),
                Scalar::Integer | Scalar::Number => {
                    let kind = match value {
                        Value::Bool(_) => "bool",
                        Value::String(_) => "string",
                        Value::Array(_) => "[]interface {}",
                        _ => "map[string]interface {}",
                    };
                    format!("{path}: expected numeric (int or float), got {kind}")
                }
                Scalar::IntOrString => format!("{path}: expected any scalar, got {go}"),
            })
        }
        Shape::List { item, kind } => match value {
            Value::Array(items) => items.iter().enumerate().find_map(|(i, v)| {
                if *kind != ListKind::Atomic {
                    let key = |v: &Value| super::fields::element(item, kind, v);
                    if items.iter().take(i).any(|other| key(other) == key(v)) {
                        let key = super::fields::show_path(&[key(v)]);
                        return Some(format!("{path}: duplicate entries for key {key}"));
                    }
                }
                if let ListKind::Map(keys) = kind
                    && !keys.iter().any(|k| !v[k.as_str()].is_null())
                    && !keys.iter().any(|k| item.field(k).is_some_and(|f| f.default.is_some()))
                {
                    return Some(format!(
                        "{path}: element {i}: associative list with keys has an element that omits key field {:?} (and doesn't have default value)",
                        keys.first().map_or("", String::as_str)
                    ));
                }
                apply_error(item, v, &format!("{path}[{i}]"))
            }),
            other => Some(format!("{path}: expected list, got &{{{other}}}")),
        },
        Shape::Object { .. } => match value {
            Value::Object(fields) => fields.iter().find_map(|(name, v)| match schema.field(name) {
                Some(inner) => apply_error(inner, v, &format!("{path}.{name}")),
                None => Some(format!("{path}.{name}: field not declared in schema")),
            }),
            other => Some(format!("{path}: expected map, got &{{{other}}}")),
        },
    }
}

/// Drops fields that the schema does not know, as every write but apply does.
pub(crate) fn prune(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::List { item, .. }, Value::Array(items)) => items.iter_mut().for_each(|v| prune(item, v)),
        (Shape::Object { .. }, Value::Object(fields)) => {
            fields.retain(|name, v| match schema.field(name) {
                Some(inner) => {
                    prune(inner, v);
                    true
                }
                None => false,
            });
        }
        _ => {}
    }
}

/// Fills in defaults below every object that is there. A null where null is not allowed takes the default too.
pub(crate) fn fill_defaults(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::List { item, .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|v| fill_defaults(item, v))
        }
        (Shape::Object { fields, rest, .. }, Value::Object(values)) => {
            for (name, field) in fields {
                let Some(default) = &field.default else { continue };
                let missing = match values.get(name) {
                    None => true,
                    Some(Value::Null) => !field.nullable,
                    Some(_) => false,
                };
                if missing {
                    values.insert(name.clone(), default.clone());
                }
            }
            for (name, v) in values.iter_mut() {
                match (fields.get(name), rest) {
                    (Some(field), _) => fill_defaults(field, v),
                    (None, Rest::Of(item)) => fill_defaults(item, v),
                    (None, _) => {}
                }
            }
        }
        _ => {}
    }
}

/// Everything wrong with `value`, as causes of a 422. `path` has no leading dot.
pub(crate) fn invalid(schema: &Schema, value: &Value, path: &str, out: &mut Vec<Cause>) {
    let shown = |v: &Value| match v {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => v.to_string(),
        Value::Null => "\"null\"".to_owned(),
        other => format!("\"{}\"", type_name(other)),
    };
    let wrong_type = |wanted: &str, out: &mut Vec<Cause>| {
        let got = type_name(value);
        out.push(Cause::of_type(
            path,
            format!("Invalid value: \"{got}\": {path} in body must be of type {wanted}: \"{got}\""),
        ));
    };
    if value.is_null() && schema.nullable {
        return;
    }
    match &schema.shape {
        Shape::Any => {}
        Shape::Scalar(scalar) => {
            if !scalar_fits(*scalar, value) {
                let wanted = match scalar {
                    Scalar::String => "string",
                    Scalar::Integer => "integer",
                    Scalar::Number => "number",
                    Scalar::Boolean => "boolean",
                    Scalar::IntOrString => "integer,string",
                };
                return wrong_type(wanted, out);
            }
            if !schema.limits.one_of.is_empty() && !schema.limits.one_of.contains(value) {
                let all: Vec<String> = schema.limits.one_of.iter().map(Value::to_string).collect();
                out.push(Cause::new(
                    "FieldValueNotSupported",
                    path,
                    format!("Unsupported value: {value}: supported values: {}", all.join(", ")),
                ));
            }
            if let Some(text) = value.as_str() {
                let len = text.chars().count() as u64;
                if let Some(max) = schema.limits.max_len.filter(|max| len > *max) {
                    out.push(Cause::new(
                        "FieldValueTooLong",
                        path,
                        format!("Too long: may not be more than {max} bytes"),
                    ));
                }
                if let Some(min) = schema.limits.min_len.filter(|min| len < *min) {
                    out.push(Cause::invalid(
                        path,
                        format!("Invalid value: {value}: {path} in body should be at least {min} chars long"),
                    ));
                }
            }
            if let Some(n) = value.as_i64() {
                if let Some(min) = schema.limits.min.filter(|min| n < *min) {
                    out.push(Cause::invalid(
                        path,
                        format!(
                            "Invalid value: {n}: {path} in body should be greater than or equal to {min}"
                        ),
                    ));
                }
                if let Some(max) = schema.limits.max.filter(|max| n > *max) {
                    out.push(Cause::invalid(
                        path,
                        format!("Invalid value: {n}: {path} in body should be less than or equal to {max}"),
                    ));
                }
            }
        }
        Shape::List { item, kind } => {
            let Value::Array(items) = value else {
                return wrong_type("array", out);
            };
            let len = items.len() as u64;
            if let Some(max) = schema.limits.max_len.filter(|max| len > *max) {
                out.push(Cause::new(
                    "FieldValueTooMany",
                    path,
                    format!("Too many: {len}: must have at most {max} items"),
                ));
            }
            if let Some(min) = schema.limits.min_len.filter(|min| len < *min) {
                out.push(Cause::invalid(
                    path,
                    format!("Invalid value: {len}: {path} in body should have at least {min} items"),
                ));
            }
            for (i, v) in items.iter().enumerate() {
                let here = format!("{path}[{i}]");
                let same = |other: &Value| match kind {
                    ListKind::Atomic => false,
                    ListKind::Set => other == v,
                    ListKind::Map(keys) => keys.iter().all(|k| other[k.as_str()] == v[k.as_str()]),
                };
                if items.iter().take(i).any(same) {
                    let key = match kind {
                        ListKind::Map(keys) => {
                            let keys: Map<String, Value> =
                                keys.iter().map(|k| (k.clone(), v[k.as_str()].clone())).collect();
                            Value::Object(keys).to_string()
                        }
                        _ => v.to_string(),
                    };
                    out.push(Cause::new(
                        "FieldValueDuplicate",
                        &here,
                        format!("Duplicate value: {key}"),
                    ));
                }
                invalid(item, v, &here, out);
            }
        }
        Shape::Object {
            fields,
            rest,
            required,
            ..
        } => {
            let Value::Object(values) = value else {
                return wrong_type("object", out);
            };
            let under = |name: &str| {
                if path.is_empty() {
                    name.to_owned()
                } else {
                    format!("{path}.{name}")
                }
            };
            for name in required.iter().filter(|n| !values.contains_key(*n)) {
                out.push(Cause::new(
                    "FieldValueRequired",
                    &under(name),
                    "Required value".to_owned(),
                ));
            }
            for (name, v) in values {
                match (fields.get(name), rest) {
                    (Some(field), _) => invalid(field, v, &under(name), out),
                    (None, Rest::Of(item)) => invalid(item, v, &under(name), out),
                    (None, _) => {}
                }
            }
        }
    }
    if let Some(check) = schema.check
        && let Err(detail) = check(value)
    {
        // CEL rules on objects do not repeat the value.
        let what = if value.is_object() {
            String::new()
        } else {
            format!("{}: ", shown(value))
        };
        out.push(Cause::invalid(path, format!("Invalid value: {what}{detail}")));
    }
}
