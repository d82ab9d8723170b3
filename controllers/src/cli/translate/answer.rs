//! From objects of manifests to what a cluster would answer: the operator's own decoding, planner, model and translation,
//! fed once. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use reconcile_kit::Condition;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    buckets::{Buckets, Exposed},
    input::{Found, Place},
};
use crate::tyk::{
    Settings,
    model::Model,
    objects::{Event, Key, Kind, Object, route::ParentRef},
    translate::translate,
    verdict::{ClassVerdict, GatewayVerdict, ListenerVerdict, Notice, ParentVerdict, RouteVerdict},
};

/// Everything that is printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// The APIs that Tyk would serve.
    pub apis: Vec<Api>,
    /// Ingresses and HTTPRoutes that the exposure controllers would write for buckets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<Value>,
    /// Status of every object that the operator would write one for: `apiVersion`, `kind`, `metadata`, `status`.
    pub statuses: Vec<Value>,
    /// Events that the operator would publish.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Told>,
    /// What the input lacks, with what to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What was assumed or passed over. Told on standard error.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The controllerName whose entries in the status of a route are the operator's.
    #[serde(skip)]
    pub controller: String,
    /// A route, a rule or a bucket's exposure was rejected, or could not be judged for what the input lacks.
    #[serde(skip)]
    pub rejected: bool,
}

/// One API with what it is for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Api {
    /// Its id.
    pub id: String,
    /// `namespace/name` of the HTTPRoute.
    pub route: String,
    /// `namespace/name` of the Gateway.
    pub gateway: String,
    /// Effective hostname; left out for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path of the match.
    pub path: String,
    /// Methods that are served, in upper case.
    pub methods: Vec<String>,
    /// The Tyk OAS document.
    pub document: Value,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Told {
    /// `Kind namespace/name`.
    pub object: String,
    /// `Warning` or `Normal`.
    #[serde(rename = "type")]
    pub type_: &'static str,
    /// CamelCase reason.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What the input holds, sorted out.
#[derive(Debug, Default)]
struct Input {
    objects: BTreeMap<(Kind, Key), (Object, Value)>,
    places: BTreeMap<String, Place>,
    buckets: Buckets,
    bundles: Option<BTreeMap<String, Option<String>>>,
    unhandled: BTreeMap<String, usize>,
    notes: Vec<String>,
    errors: Vec<String>,
}

/// Shown where the API server would allocate an address.
const ALLOCATED: &str = "<allocated by the cluster>";

/// The answer, or every object that could not be read.
pub fn answer(found: Vec<Found>, settings: &Settings) -> Result<Answer, Vec<String>> {
    let mut input = Input::default();
    for one in found {
        input.take(one);
    }
    if !input.errors.is_empty() {
        return Err(input.errors);
    }
    let mut answer = Answer {
        controller: settings.controller_name.clone(),
        ..Answer::default()
    };
    let exposed = input.expose(&mut answer);
    let mut model = Model::new(settings.clone());
    let bundles = input.bundles.take().map(Event::Bundles);
    let seen = input
        .objects
        .values()
        .map(|(object, _)| Event::Seen(Box::new(object.clone())));
    model.apply_all(bundles.into_iter().chain(seen));
    answer.read(&input, &model, settings);
    for bucket in &exposed {
        answer.bucket(bucket, &input.buckets, &model, settings);
    }
    answer.events.sort();
    answer.missing.sort();
    for (kind, count) in &input.unhandled {
        let objects = if *count == 1 { "object" } else { "objects" };
        input
            .notes
            .push(format!("{kind} is not handled: {count} {objects} passed over"));
    }
    let mut told = BTreeSet::new();
    input.notes.retain(|note| told.insert(note.clone()));
    answer.notes.append(&mut input.notes);
    Ok(answer)
}

impl Input {
    fn take(&mut self, Found { place, mut value }: Found) {
        as_created(&mut value);
        match Object::decode(&value) {
            Ok(Some(object)) => {
                let (kind, key) = object.id();
                let id = (kind, key.clone());
                self.once(&format!("{kind} {key}"), place);
                self.objects.insert(id, (object, value));
            }
            Err(error) => self.errors.push(format!("{place}: {error}")),
            Ok(None) => {
                let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
                let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
                if (api_version.as_str(), kind.as_str())
                    == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
                {
                    return self.crd(&value);
                }
                match self.buckets.take(&api_version, &kind, value) {
                    Some(Ok(name)) => self.once(&format!("{kind} {name}"), place),
                    Some(Err(error)) => self.errors.push(format!("{place}: {error}")),
                    None => *self.unhandled.entry(format!("{api_version} {kind}")).or_default() += 1,
                }
            }
        }
    }

    /// Remembers where an object stands, and tells when it stood somewhere else before.
    fn once(&mut self, name: &str, place: Place) {
        if let Some(before) = self.places.insert(name.to_owned(), place.clone()) {
            self.notes.push(format!(
                "{name} stands twice, in {before} and in {place}: the later one counts"
            ));
        }
    }

    /// Of a CRD of Gateway API its release is read, as the operator reads it from the cluster.
    fn crd(&mut self, value: &Value) {
        let group = value.pointer("/spec/group").and_then(Value::as_str);
        let name = value.pointer("/metadata/name").and_then(Value::as_str);
        let (Some(crate::tyk::objects::GATEWAY_GROUP), Some(name)) = (group, name) else {
            let kind = "apiextensions.k8s.io/v1 CustomResourceDefinition";
            *self.unhandled.entry(kind.to_owned()).or_default() += 1;
            return;
        };
        let version = value
            .pointer("/metadata/annotations/gateway.networking.k8s.io~1bundle-version")
            .and_then(Value::as_str)
            .map(str::to_owned);
        self.bundles
            .get_or_insert_default()
            .insert(name.to_owned(), version);
    }

    /// Plans the exposure of every bucket; the HTTPRoutes join the input.
    fn expose(&mut self, answer: &mut Answer) -> Vec<Exposed> {
        let namespaces = self
            .objects
            .values()
            .filter_map(|(object, _)| match object {
                Object::Namespace(namespace) => Some((namespace.key.name.clone(), namespace.labels.clone())),
                _ => None,
            })
            .collect();
        let routes = self
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::HttpRoute)
            .map(|((_, key), (_, value))| (key.clone(), value.clone()))
            .collect();
        let exposed = self.buckets.plan(namespaces, routes);
        for one in &exposed {
            self.notes.extend(one.assumed.iter().cloned());
            answer.missing.extend(one.missing.iter().cloned());
            let Some(child) = &one.child else { continue };
            answer.generated.push(child.clone());
            if let Ok(Some(object)) = Object::decode(child) {
                let (kind, key) = object.id();
                let id = (kind, key.clone());
                self.objects.insert(id, (object, child.clone()));
            }
        }
        exposed
    }
}

/// What the API server fills in when an object is created, as far as an answer depends on it.
fn as_created(value: &mut Value) {
    let service = value.get("kind").and_then(Value::as_str) == Some("Service")
        && value.get("apiVersion").and_then(Value::as_str) == Some("v1");
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("generation").or_insert_with(|| json!(1));
    }
    if service && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        let external = spec.get("type").and_then(Value::as_str) == Some("ExternalName");
        let empty = spec
            .get("clusterIP")
            .is_none_or(|address| address.is_null() || address.as_str() == Some(""));
        if empty && !external {
            spec.insert("clusterIP".to_owned(), json!(ALLOCATED));
        }
    }
}

impl Answer {
    fn read(&mut self, input: &Input, model: &Model, settings: &Settings) {
        let mut unanswered: Vec<(Kind, Key)> = Vec::new();
        for ((kind, key), (object, value)) in &input.objects {
            let generation = generation(value);
            let status = match object {
                Object::GatewayClass(_) => model.class(&key.name).map(|verdict| class(verdict, generation)),
                Object::Gateway(_) => model.gateway(key).map(|verdict| {
                    self.tell(*kind, key, &verdict.notices);
                    gateway(verdict, generation)
                }),
                Object::HttpRoute(route) if route.meta.deleting => {
                    self.notes.push(format!(
                        "HTTPRoute {key} is being deleted: its APIs are removed from Tyk, and its status stays as it is"
                    ));
                    continue;
                }
                Object::HttpRoute(_) => model.route(key).map(|verdict| {
                    self.tell(*kind, key, &verdict.notices);
                    self.translate(key, verdict, settings);
                    self.rejected |= verdict.parents.iter().any(refuses);
                    let mut entries = foreign_parents(value, settings);
                    entries.extend(parents(verdict, generation, settings));
                    json!({ "parents": entries })
                }),
                Object::TykOasApiDefinition(_) => model
                    .definition(key)
                    .map(|verdict| json!({"conditions": conditions([&verdict.condition], generation)})),
                _ => continue,
            };
            match status {
                Some(status) => self.status(value, key, status),
                None => unanswered.push((*kind, key.clone())),
            }
        }
        let missing = model.missing();
        self.missing
            .extend(missing.iter().map(|(kind, key)| lacking(*kind, key, settings)));
        for (kind, key) in unanswered {
            self.unanswered(kind, &key, input, &missing, settings);
        }
    }

    fn tell(&mut self, kind: Kind, key: &Key, notices: &[Notice]) {
        for notice in notices {
            self.events.push(Told {
                object: format!("{kind} {key}"),
                type_: if notice.warning { "Warning" } else { "Normal" },
                reason: notice.reason.to_owned(),
                message: notice.message.clone(),
            });
        }
    }

    fn translate(&mut self, key: &Key, verdict: &RouteVerdict, settings: &Settings) {
        for plan in &verdict.apis {
            match translate(plan, settings) {
                Ok(api) => self.apis.push(Api {
                    id: api.id,
                    route: plan.route.to_string(),
                    gateway: plan.gateway.to_string(),
                    host: plan.host.clone(),
                    path: plan.path.clone(),
                    methods: plan
                        .operations
                        .keys()
                        .map(|method| method.as_str().to_uppercase())
                        .collect(),
                    document: api.document,
                }),
                // What the controller would report once it is about to write.
                Err(refusal) => {
                    self.rejected = true;
                    self.events.push(Told {
                        object: format!("{} {key}", Kind::HttpRoute),
                        type_: "Warning",
                        reason: "TranslationFailed".to_owned(),
                        message: refusal.to_string(),
                    });
                }
            }
        }
    }

    fn status(&mut self, value: &Value, key: &Key, status: Value) {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), json!(key.name));
        if !key.namespace.is_empty() {
            metadata.insert("namespace".to_owned(), json!(key.namespace));
        }
        self.statuses.push(json!({
            "apiVersion": value.get("apiVersion"),
            "kind": value.get("kind"),
            "metadata": metadata,
            "status": status,
        }));
    }

    /// An object that nothing is said about: whether it is somebody else's, or nobody's for what the input lacks.
    fn unanswered(
        &mut self,
        kind: Kind,
        key: &Key,
        input: &Input,
        missing: &BTreeSet<(Kind, Key)>,
        settings: &Settings,
    ) {
        let ours = &settings.controller_name;
        match input.objects.get(&(kind, key.clone())).map(|(object, _)| object) {
            Some(Object::GatewayClass(class)) => self.notes.push(format!(
                "GatewayClass {key} is left to its controller {:?}: --tyk-controller-name is {ours:?}",
                class.controller_name
            )),
            Some(Object::Gateway(gateway)) => {
                if missing.contains(&(Kind::GatewayClass, Key::cluster(&gateway.class))) {
                    self.rejected = true;
                } else {
                    self.notes.push(format!(
                        "Gateway {key} is left to the controller of its class {:?}",
                        gateway.class
                    ));
                }
            }
            Some(Object::HttpRoute(route)) => {
                let lacks = route
                    .parents
                    .iter()
                    .filter_map(|parent| gateway_of(parent, key))
                    .any(|gateway| {
                        missing.contains(&(Kind::Gateway, gateway.clone()))
                            || self.is_unjudged(&gateway, input, missing)
                    });
                if lacks {
                    self.rejected = true;
                } else {
                    self.notes.push(format!(
                        "HTTPRoute {key} is left alone: none of its parents is a Gateway of a class of {ours:?}"
                    ));
                }
            }
            Some(Object::TykOasApiDefinition(_)) => self.notes.push(format!(
                "TykOasApiDefinition {key} is left to Tyk Operator: it has no targetRefs"
            )),
            _ => {}
        }
    }

    /// Whether a Gateway of the input has a class that the input lacks.
    fn is_unjudged(&self, gateway: &Key, input: &Input, missing: &BTreeSet<(Kind, Key)>) -> bool {
        match input.objects.get(&(Kind::Gateway, gateway.clone())) {
            Some((Object::Gateway(gateway), _)) => {
                missing.contains(&(Kind::GatewayClass, Key::cluster(&gateway.class)))
            }
            _ => false,
        }
    }

    /// What the exposure controllers say about a bucket, once the parents of its HTTPRoute have spoken.
    fn bucket(&mut self, bucket: &Exposed, buckets: &Buckets, model: &Model, settings: &Settings) {
        let mut live = bucket.child.clone();
        if let Some(route) = live.as_mut()
            && let Some(verdict) = model.route(&bucket.child_key())
        {
            let generation = generation(route);
            if let Some(fields) = route.as_object_mut() {
                let parents = parents(verdict, generation, settings);
                fields.insert("status".to_owned(), json!({ "parents": parents }));
            }
        }
        let Some(report) = buckets.report(bucket, live) else {
            return;
        };
        let mut status = Map::new();
        status.insert(
            "conditions".to_owned(),
            conditions(&report.conditions, bucket.generation()),
        );
        for (name, field) in report.fields {
            if let reconcile_kit::StatusField::Set(value) = field {
                status.insert(name.to_owned(), value);
            }
        }
        self.rejected |= report
            .conditions
            .iter()
            .any(|condition| condition.status.as_str() == "False" && condition.reason != "NotReady");
        for note in report.notes {
            self.events.push(Told {
                object: format!("GarageBucket {}", bucket.key),
                type_: if note.warning { "Warning" } else { "Normal" },
                reason: note.reason.to_string(),
                message: note.message,
            });
        }
        self.status(&bucket.value, &bucket.key, status.into());
    }
}

/// The Gateway that a parentRef names.
fn gateway_of(parent: &ParentRef, route: &Key) -> Option<Key> {
    let gateway = parent.group == crate::tyk::objects::GATEWAY_GROUP && parent.kind == "Gateway";
    let namespace = parent.namespace.as_deref().unwrap_or(&route.namespace);
    gateway.then(|| Key::new(namespace, &parent.name))
}

/// Whether a parent takes less than the whole route.
fn refuses(parent: &ParentVerdict) -> bool {
    let is = |type_: &str, status: &str| {
        parent
            .conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status.as_str() == status)
    };
    !is("Accepted", "True") || is("PartiallyInvalid", "True")
}

/// What to add for an object that answers looked for.
fn lacking(kind: Kind, key: &Key, settings: &Settings) -> String {
    let what = match kind {
        Kind::GatewayClass => format!(
            "its Gateways and their routes are not judged: add it, with spec.controllerName {:?} and a parametersRef to \
             an OperatorContext",
            settings.controller_name
        ),
        Kind::Gateway => "the routes that name it are not judged by it: add it".to_owned(),
        Kind::OperatorContext => "add it: it holds the connection to Tyk or the data plane".to_owned(),
        Kind::Secret => "add it; its values may be invented".to_owned(),
        Kind::Service => "add it, or what refers to it cannot be resolved".to_owned(),
        Kind::EndpointSlice => "add it, or its Service has no address".to_owned(),
        Kind::ConfigMap => "add it: a definition takes its document from it".to_owned(),
        Kind::HttpRoute | Kind::TykOasApiDefinition | Kind::ReferenceGrant | Kind::Namespace => {
            "add it, or what refers to it refers to nothing".to_owned()
        }
    };
    format!("{kind} {key} is not in the input: {what}")
}

fn generation(value: &Value) -> i64 {
    value
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or(1)
}

/// Conditions as the API server stores them, without the time, which depends on when they are written.
fn conditions<'a>(list: impl IntoIterator<Item = &'a Condition>, generation: i64) -> Value {
    list.into_iter()
        .map(|condition| {
            json!({
                "type": condition.type_,
                "status": condition.status.as_str(),
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
            })
        })
        .collect()
}

fn class(verdict: &ClassVerdict, generation: i64) -> Value {
    let features: Vec<Value> = verdict
        .supported_features
        .iter()
        .map(|name| json!({ "name": name }))
        .collect();
    json!({
        "conditions": conditions(&verdict.conditions, generation),
        "supportedFeatures": features,
    })
}

fn gateway(verdict: &GatewayVerdict, generation: i64) -> Value {
    let addresses: Vec<Value> = verdict
        .addresses
        .iter()
        .map(|(type_, value)| json!({"type": type_, "value": value}))
        .collect();
    let listeners: Vec<Value> = verdict
        .listeners
        .iter()
        .map(|one| listener(one, generation))
        .collect();
    json!({
        "addresses": addresses,
        "conditions": conditions(&verdict.conditions, generation),
        "listeners": listeners,
    })
}

fn listener(verdict: &ListenerVerdict, generation: i64) -> Value {
    let kinds: Vec<Value> = verdict
        .supported_kinds
        .iter()
        .map(|(group, kind)| json!({"group": group, "kind": kind}))
        .collect();
    json!({
        "name": verdict.name,
        "attachedRoutes": verdict.attached_routes,
        "supportedKinds": kinds,
        "conditions": conditions(&verdict.conditions, generation),
    })
}

/// Entries of other controllers in `status.parents`, which stay as they are.
fn foreign_parents(route: &Value, settings: &Settings) -> Vec<Value> {
    let entries = route.pointer("/status/parents").and_then(Value::as_array);
    let foreign = |entry: &&Value| {
        entry.get("controllerName").and_then(Value::as_str) != Some(settings.controller_name.as_str())
    };
    entries.into_iter().flatten().filter(foreign).cloned().collect()
}

/// Entries for `status.parents`.
fn parents(verdict: &RouteVerdict, generation: i64, settings: &Settings) -> Vec<Value> {
    verdict
        .parents
        .iter()
        .map(|parent| {
            json!({
                "parentRef": parent_ref(&parent.parent),
                "controllerName": settings.controller_name,
                "conditions": conditions(&parent.conditions, generation),
            })
        })
        .collect()
}

fn parent_ref(parent: &ParentRef) -> Value {
    let mut fields = Map::new();
    fields.insert("group".to_owned(), json!(parent.group));
    fields.insert("kind".to_owned(), json!(parent.kind));
    if let Some(namespace) = &parent.namespace {
        fields.insert("namespace".to_owned(), json!(namespace));
    }
    fields.insert("name".to_owned(), json!(parent.name));
    if let Some(section) = &parent.section_name {
        fields.insert("sectionName".to_owned(), json!(section));
    }
    if let Some(port) = parent.port {
        fields.insert("port".to_owned(), json!(port));
    }
    fields.into()
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}: {}",
            self.type_, self.object, self.reason, self.message
        )
    }
}
