//! What is judged: cluster, Garage and Tyk at one moment, and short ways to read the objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A quiet world.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Every object of the cluster as the API server holds it: apiVersion, kind, metadata, spec, status.
    pub objects: Vec<Value>,
    /// Group and kind of what the API server serves now.
    pub served: BTreeSet<(String, String)>,
    /// The buckets of each Garage that answers, by the base URL of its Admin API, or by `namespace/name` of a
    /// GarageCluster.
    pub garage: BTreeMap<String, Vec<GarageBucket>>,
    /// The documents of each Tyk that answers, by its base URL.
    pub tyk: BTreeMap<String, Vec<Value>>,
    /// The operators that run.
    pub installations: Vec<Flags>,
    /// GarageBuckets that were deleted and released by the operator, for the rules about what stays in Garage. May be
    /// left empty.
    pub gone: Vec<Gone>,
}

/// A bucket in Garage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GarageBucket {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Global aliases.
    pub aliases: Vec<String>,
    /// Website documents; `None` while website access is off.
    pub website: Option<Website>,
    /// Limits.
    pub quotas: Quotas,
    /// Number of objects.
    pub objects: u64,
}

/// Website documents of a bucket in Garage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Website {
    /// Index document.
    pub index: String,
    /// Error document.
    pub error: Option<String>,
}

/// Limits of a bucket in Garage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// In bytes.
    pub max_size: Option<u64>,
    /// In objects.
    pub max_objects: Option<u64>,
}

/// A GarageBucket that is gone, and what it recorded last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// `namespace/name`.
    pub object: String,
    /// Key of [`Snapshot::garage`].
    pub place: String,
    /// Id of the bucket in Garage.
    pub id: String,
    /// Whether its deletionPolicy was Retain.
    pub retain: bool,
}

/// Flags of one installation.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--instance`
    pub instance: String,
    /// `--enable-ingress`
    pub enable_ingress: bool,
    /// `--enable-gateway-api`
    pub enable_gateway_api: bool,
    /// `--enable-garage-buckets`
    pub enable_garage_buckets: bool,
    /// `--enable-tyk` and its sisters; `None` while it is off.
    pub tyk: Option<TykFlags>,
    /// `--watch-namespaces`; `None` for all.
    pub namespaces: Option<Vec<String>>,
    /// `--cluster-domain`
    pub cluster_domain: String,
}

impl Flags {
    /// Whether this installation has anything to do with buckets: one for Gateway API on Tyk alone has not.
    pub(crate) fn has_garage_half(&self) -> bool {
        self.enable_ingress || self.enable_gateway_api || self.enable_garage_buckets || self.tyk.is_none()
    }

    /// Whether this installation looks at objects of a namespace.
    pub(crate) fn watches(&self, namespace: &str) -> bool {
        let listed = |all: &Vec<String>| all.iter().any(|one| one == namespace);
        self.namespaces.as_ref().is_none_or(listed)
    }
}

/// Flags of Gateway API on Tyk.
#[derive(Clone, Debug, Default)]
pub struct TykFlags {
    /// `--tyk-controller-name`
    pub controller_name: String,
    /// `--tyk-cluster-id`; `None` for the uid of the Namespace kube-system.
    pub cluster_id: Option<String>,
    /// `--enable-tyk-definitions`
    pub definitions: bool,
}

/// Group of GarageBucket, GarageCluster, GarageReferenceGrant.
pub(crate) const GARAGE: &str = "garage.rajsingh.info";
/// Group of Gateway API.
pub(crate) const GATEWAY: &str = "gateway.networking.k8s.io";
/// Group of Ingress.
pub(crate) const NETWORKING: &str = "networking.k8s.io";
/// Group of OperatorContext and TykOasApiDefinition.
pub(crate) const TYK: &str = "tyk.tyk.io";

static NULL: Value = Value::Null;
static NO_VALUES: Vec<Value> = Vec::new();
static NO_MAP: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// A value at a JSON pointer, or null.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&NULL)
}

/// A text that is there and not empty.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    at(value, pointer).as_str().filter(|text| !text.is_empty())
}

/// A list, or an empty one.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    at(value, pointer).as_array().unwrap_or(&NO_VALUES)
}

/// A map, or an empty one.
pub(crate) fn map<'a>(value: &'a Value, pointer: &str) -> &'a Map<String, Value> {
    at(value, pointer).as_object().unwrap_or(&NO_MAP)
}

/// A list of texts.
pub(crate) fn texts(value: &Value, pointer: &str) -> Vec<String> {
    let all = list(value, pointer).iter();
    all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// A map of texts.
pub(crate) fn text_map(value: &Value, pointer: &str) -> BTreeMap<String, String> {
    map(value, pointer)
        .iter()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// A condition of this type in a list of conditions.
pub(crate) fn condition<'a>(holder: &'a Value, type_: &str) -> Option<&'a Value> {
    let all = list(holder, "/conditions").iter();
    let mut found = all.filter(|condition| text(condition, "/type") == Some(type_));
    found.next()
}

/// An object of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<'a>(pub(crate) &'a Value);

impl<'a> Object<'a> {
    pub(crate) fn name(self) -> &'a str {
        text(self.0, "/metadata/name").unwrap_or_default()
    }

    pub(crate) fn namespace(self) -> &'a str {
        text(self.0, "/metadata/namespace").unwrap_or_default()
    }

    pub(crate) fn kind(self) -> &'a str {
        text(self.0, "/kind").unwrap_or_default()
    }

    pub(crate) fn group(self) -> &'a str {
        let version = text(self.0, "/apiVersion").unwrap_or_default();
        version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    pub(crate) fn uid(self) -> &'a str {
        text(self.0, "/metadata/uid").unwrap_or_default()
    }

    pub(crate) fn generation(self) -> i64 {
        at(self.0, "/metadata/generation").as_i64().unwrap_or_default()
    }

    /// Time of creation; RFC 3339 in UTC with whole seconds sorts as text.
    pub(crate) fn created(self) -> &'a str {
        text(self.0, "/metadata/creationTimestamp").unwrap_or_default()
    }

    pub(crate) fn is_deleting(self) -> bool {
        text(self.0, "/metadata/deletionTimestamp").is_some()
    }

    pub(crate) fn label(self, key: &str) -> Option<&'a str> {
        map(self.0, "/metadata/labels").get(key)?.as_str()
    }

    pub(crate) fn annotation(self, key: &str) -> Option<&'a str> {
        map(self.0, "/metadata/annotations").get(key)?.as_str()
    }

    pub(crate) fn finalizers(self) -> Vec<String> {
        texts(self.0, "/metadata/finalizers")
    }

    pub(crate) fn spec(self) -> &'a Value {
        at(self.0, "/spec")
    }

    pub(crate) fn status(self) -> &'a Value {
        at(self.0, "/status")
    }

    pub(crate) fn condition(self, type_: &str) -> Option<&'a Value> {
        condition(self.status(), type_)
    }

    /// The owner that controls the object, if there is one.
    pub(crate) fn controller(self) -> Option<&'a Value> {
        let owners = list(self.0, "/metadata/ownerReferences").iter();
        let mut found = owners.filter(|owner| at(owner, "/controller") == &Value::Bool(true));
        found.next()
    }

    /// Age and then name: the order in which objects win over each other.
    pub(crate) fn seniority(self) -> (&'a str, &'a str, &'a str) {
        (self.created(), self.namespace(), self.name())
    }

    /// Whether another field manager than `ours` owns the field, alone or as well, as managedFields tell: it cannot be
    /// changed without force. `path` is the keys of fieldsV1 from the top.
    pub(crate) fn is_owned_by_another(self, ours: &str, path: &[&str]) -> bool {
        self.managers_of(path).into_iter().any(|owner| owner != ours)
    }

    /// The field managers that own a field, as managedFields tell.
    pub(crate) fn managers_of(self, path: &[&str]) -> Vec<&'a str> {
        let holds = |entry: &&Value| {
            let fields = at(entry, "/fieldsV1");
            path.iter()
                .try_fold(fields, |inner, key| inner.get(*key))
                .is_some()
        };
        list(self.0, "/metadata/managedFields")
            .iter()
            .filter(holds)
            .filter_map(|entry| text(entry, "/manager"))
            .collect()
    }
}

impl std::fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace() {
            "" => write!(f, "{} {}", self.kind(), self.name()),
            namespace => write!(f, "{} {namespace}/{}", self.kind(), self.name()),
        }
    }
}

/// A snapshot with its objects by group, kind, namespace and name.
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a Snapshot,
    index: BTreeMap<(&'a str, &'a str), ByName<'a>>,
}

/// Objects by namespace and name.
type ByName<'a> = BTreeMap<(&'a str, &'a str), Object<'a>>;

impl<'a> World<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let mut index: BTreeMap<_, ByName<'_>> = BTreeMap::new();
        for object in snapshot.objects.iter().map(Object) {
            let kinds = index.entry((object.group(), object.kind())).or_default();
            kinds.insert((object.namespace(), object.name()), object);
        }
        Self { snapshot, index }
    }

    /// Every object of a kind, by namespace and name.
    pub(crate) fn all(&self, group: &str, kind: &str) -> Vec<Object<'a>> {
        let found = self.index.get(&(group, kind));
        found
            .map(|all| all.values().copied().collect())
            .unwrap_or_default()
    }

    /// One object.
    pub(crate) fn get(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Object<'a>> {
        self.index.get(&(group, kind))?.get(&(namespace, name)).copied()
    }

    pub(crate) fn is_served(&self, group: &str, kind: &str) -> bool {
        let served = &self.snapshot.served;
        served.contains(&(group.to_owned(), kind.to_owned()))
    }

    /// Labels of a namespace. A Namespace that is missing has only its name as label.
    pub(crate) fn namespace_labels(&self, namespace: &str) -> BTreeMap<String, String> {
        let object = self.get("", "Namespace", "", namespace);
        let mut labels = object
            .map(|object| text_map(object.0, "/metadata/labels"))
            .unwrap_or_default();
        labels
            .entry("kubernetes.io/metadata.name".to_owned())
            .or_insert_with(|| namespace.to_owned());
        labels
    }
}

/// Whether labels match a label selector. `None`: the selector has an operator that is not known.
pub(crate) fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> Option<bool> {
    let mut matches = text_map(selector, "/matchLabels")
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value));
    for expression in list(selector, "/matchExpressions") {
        let value = labels.get(text(expression, "/key").unwrap_or_default());
        let values = texts(expression, "/values");
        matches &= match text(expression, "/operator")? {
            "In" => value.is_some_and(|value| values.contains(value)),
            "NotIn" => value.is_none_or(|value| !values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => return None,
        };
    }
    Some(matches)
}

/// `one`, `one or two`: a set of texts for a message.
pub(crate) fn either<'b>(texts: impl IntoIterator<Item = &'b str>) -> String {
    let all: Vec<&str> = texts.into_iter().collect();
    all.join(" or ")
}

/// What a value of a Secret holds; `None` if it is not there or no base64.
pub(crate) fn secret_value(secret: Object<'_>, key: &str) -> Option<Vec<u8>> {
    if let Some(plain) = map(secret.0, "/stringData").get(key).and_then(Value::as_str) {
        return Some(plain.as_bytes().to_vec());
    }
    decode_base64(map(secret.0, "/data").get(key)?.as_str()?)
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for c in text.bytes().filter(|c| !c.is_ascii_whitespace() && *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_decoded() {
        let secret = json!({"data": {"a": "b3BlbiBzZXNhbWU=", "b": "*"}, "stringData": {"c": "x"}});
        let value = |key| secret_value(Object(&secret), key);
        assert_eq!(value("a"), Some(b"open sesame".to_vec()));
        assert_eq!(
            (value("b"), value("c"), value("d")),
            (None, Some(b"x".to_vec()), None)
        );
    }

    #[test]
    fn selectors_know_four_operators() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let one = |operator: &str, key: &str| {
            let expression = json!({"key": key, "operator": operator, "values": ["1"]});
            selects(&json!({"matchExpressions": [expression]}), &labels)
        };
        assert_eq!((one("In", "a"), one("In", "b")), (Some(true), Some(false)));
        assert_eq!((one("NotIn", "a"), one("NotIn", "b")), (Some(false), Some(true)));
        assert_eq!(
            (one("Exists", "a"), one("DoesNotExist", "a")),
            (Some(true), Some(false))
        );
        assert_eq!(one("Gt", "a"), None);
        assert_eq!(selects(&json!({}), &labels), Some(true));
        assert_eq!(selects(&json!({"matchLabels": {"a": "2"}}), &labels), Some(false));
    }
}
