//! `routewright cleanup --tyk`: deletes the operator's APIs from Tyk, and takes its traces off HTTPRoutes, GatewayClasses,
//! Gateways and TykOasApiDefinitions, so that nothing waits for an operator that is gone.
//!
//! What a route remembers says where to look; whose an API is, its owner says. What cannot be deleted is named, and holds
//! nothing up.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use kube::{
    Client, Resource, ResourceExt,
    api::{Api, DynamicObject, ListParams, ObjectList, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use reconcile_kit::{ErrorClass, error::classify};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    super::connect,
    roads::{Answer, Outcome, Remembering, Roads},
    speakers::Speakers,
};
use crate::tyk::{
    definition::owns_accepted,
    httproute::{memory::Memory, names, places::Record},
    objects::{GATEWAY_GROUP, Key, TYK_GROUP},
    sync::{Contexts, Syncing},
    translate::Owner,
};

pub use crate::tyk::gatewayclass::FINALIZER as CLASS_FINALIZER;

/// Field manager of what is written here.
const MANAGER: &str = "routewright-cleanup";
/// Objects per page, and routes asked about at once.
const PAGE: u32 = 500;
const AT_ONCE: usize = 32;
/// How often a write of one object is tried again after a conflict or a fault that passes, and the pause before.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// A way to Tyk.
pub struct Way {
    /// Deletes.
    pub sync: Arc<dyn Syncing>,
    /// What a remembered context leads to.
    pub contexts: Arc<dyn Contexts>,
    /// What contexts led to while a GatewayClass named them.
    pub record: Arc<dyn Record>,
    /// Tells this cluster's APIs from those of others.
    pub cluster: String,
    /// How long deleting is tried in all. Afterwards the rest is named, and everything else is done.
    pub limit: Duration,
}

/// An API that may still be in Tyk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its id.
    pub id: String,
    /// Its route.
    pub route: Key,
    /// The context that leads to its Tyk.
    pub context: Key,
    /// Why.
    pub why: String,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            route,
            context,
            why,
        } = self;
        write!(
            f,
            "left in Tyk: {id} of HTTPRoute {route}, by OperatorContext {context}: {why}"
        )
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// APIs that are gone from Tyk.
    pub deleted: usize,
    /// APIs that may still be there.
    pub left: Vec<Left>,
    /// Remembered ids under which somebody else's API stands, with its owner.
    pub foreign: Vec<Left>,
    /// HTTPRoutes without the finalizer now.
    pub routes: usize,
    /// Entries removed from status.parents.
    pub entries: usize,
    /// GatewayClasses without the finalizer now.
    pub classes: usize,
    /// GatewayClasses, Gateways and definitions whose conditions were withdrawn.
    pub withdrawn: usize,
    /// What the API server refused, object by object.
    pub refused: Vec<String>,
}

impl Report {
    /// Nothing of the operator is left that this command should have removed.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.refused.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "APIs deleted from Tyk: {}", self.deleted)?;
        writeln!(f, "HTTPRoutes freed of their finalizer: {}", self.routes)?;
        writeln!(f, "entries removed from status.parents: {}", self.entries)?;
        writeln!(f, "GatewayClasses freed of {CLASS_FINALIZER}: {}", self.classes)?;
        write!(
            f,
            "GatewayClasses, Gateways, TykOasApiDefinitions that say nothing any more: {}",
            self.withdrawn
        )
    }
}

/// Does it. `controller`: controllerName of the operator. Without a `way` the APIs stay in Tyk, and with them what is
/// said and remembered of them: only what holds objects is taken off.
///
/// # Errors
/// A list that the API server does not give. What it refuses of single objects stands in the report.
pub async fn clean(client: &Client, controller: &str, way: Option<&Way>) -> Result<Report, kube::Error> {
    let cleaner = Cleaner {
        client,
        controller,
        keep: way.is_none(),
    };
    let mut report = Report::default();
    let gone = match way {
        Some(way) => cleaner.delete_apis(way, &mut report).await?,
        None => HashMap::new(),
    };
    cleaner.routes(&gone, &mut report).await?;
    let classes = cleaner.classes(&mut report).await?;
    if !cleaner.keep {
        cleaner.gateways(&classes, &mut report).await?;
        cleaner.definitions(&mut report).await?;
    }
    report
        .left
        .sort_by(|a, b| (&a.route, &a.id).cmp(&(&b.route, &b.id)));
    report
        .foreign
        .sort_by(|a, b| (&a.route, &a.id).cmp(&(&b.route, &b.id)));
    Ok(report)
}

/// What is taken out of a route's memory: deleted, or not ours.
type Gone = HashMap<Key, Memory>;

struct Cleaner<'a> {
    client: &'a Client,
    controller: &'a str,
    keep: bool,
}

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(super) fn key(object: &DynamicObject) -> Key {
    Key::new(object.namespace().unwrap_or_default(), object.name_any())
}

fn remembered(object: &DynamicObject, annotation: &str) -> Memory {
    object
        .annotations()
        .get(annotation)
        .map_or_else(Memory::default, |text| Memory::parse(text))
}

/// Does something again while it fails in a way that passes.
async fn persistently<T, F: Future<Output = Result<T, kube::Error>>>(
    mut act: impl FnMut() -> F,
) -> Result<T, kube::Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match act().await {
            Err(error) if tries < TRIES && passes(&error) => tokio::time::sleep(PAUSE).await,
            other => return other,
        }
    }
}

fn passes(error: &kube::Error) -> bool {
    matches!(
        classify(error).0,
        ErrorClass::Transient | ErrorClass::Conflict | ErrorClass::RateLimited(_) | ErrorClass::Timeout
    )
}

impl Cleaner<'_> {
    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, resource),
        }
    }

    /// Calls `each` with every page; a kind that is not served has no objects.
    async fn pages(
        &self,
        resource: &ApiResource,
        mut each: impl AsyncFnMut(Vec<DynamicObject>),
    ) -> Result<(), kube::Error> {
        let api = self.api(resource, "");
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list: ObjectList<DynamicObject> = match persistently(|| api.list(&page)).await {
                Ok(list) => list,
                Err(error) if classify(&error).0 == ErrorClass::NotServed => return Ok(()),
                Err(error) => return Err(error),
            };
            each(list.items).await;
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => page = page.continue_token(&token),
                _ => return Ok(()),
            }
        }
    }

    /// Deletes what the routes remember, as far as it is theirs.
    async fn delete_apis(&self, way: &Way, report: &mut Report) -> Result<Gone, kube::Error> {
        let mut routes = Vec::new();
        let annotation = names::annotation(self.controller);
        self.pages(&kind(GATEWAY_GROUP, "v1", "HTTPRoute"), async |page| {
            routes.extend(page.iter().filter_map(|route| {
                let memory = remembered(route, &annotation);
                (!memory.is_empty()).then(|| Remembering {
                    owner: Owner {
                        cluster: way.cluster.clone(),
                        controller: self.controller.to_owned(),
                        route: key(route),
                        uid: route.uid().unwrap_or_default(),
                    },
                    memory,
                })
            }));
        })
        .await?;
        if routes.is_empty() {
            return Ok(Gone::new());
        }
        let named = self.named_contexts().await?;
        let end = Instant::now() + way.limit;
        let mut gone = Gone::new();
        loop {
            let roads = Roads::new(way, &named, end);
            let done: Vec<Vec<Answer>> = stream::iter(&routes)
                .map(|route| roads.route(route))
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            report.left.clear();
            let mut hopeless = true;
            for answer in done.into_iter().flatten() {
                match answer.outcome {
                    Outcome::Gone => report.deleted += 1,
                    Outcome::Foreign => report.foreign.push(answer.left.clone()),
                    Outcome::Left { passes } => {
                        hopeless &= !passes;
                        report.left.push(answer.left);
                        continue;
                    }
                }
                let known = gone.entry(answer.left.route.clone()).or_default();
                known.add(&answer.place, answer.left.id);
            }
            for route in &mut routes {
                for (place, ids) in gone.get(&route.owner.route).into_iter().flat_map(Memory::places) {
                    ids.iter().for_each(|id| route.memory.take(place, id));
                }
            }
            routes.retain(|route| !route.memory.is_empty());
            if routes.is_empty() || hopeless || Instant::now() + PAUSE >= end {
                return Ok(gone);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The OperatorContexts that classes of the operator name. A context that only an annotation names is followed no more
    /// than by the operator itself.
    async fn named_contexts(&self) -> Result<BTreeSet<Key>, kube::Error> {
        let mut named = BTreeSet::new();
        self.pages(&kind(GATEWAY_GROUP, "v1", "GatewayClass"), async |page| {
            for class in page {
                let text = |path: &str| {
                    class
                        .data
                        .pointer(path)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                let parameters = |field: &str| text(&format!("/spec/parametersRef/{field}")).to_owned();
                if text("/spec/controllerName") == self.controller
                    && (parameters("group").as_str(), parameters("kind").as_str())
                        == (TYK_GROUP, "OperatorContext")
                {
                    named.insert(Key::new(parameters("namespace"), parameters("name")));
                }
            }
        })
        .await?;
        Ok(named)
    }

    /// Frees every HTTPRoute: finalizer, memory of what is gone, own entries of status.
    async fn routes(&self, gone: &Gone, report: &mut Report) -> Result<(), kube::Error> {
        let resource = kind(GATEWAY_GROUP, "v1", "HTTPRoute");
        self.pages(&resource, async |page| {
            for route in page {
                let (mut freed, mut entries) = (0, 0);
                let said = self
                    .until_done(&resource, route, async |route| {
                        self.free_route(&resource, route, gone, &mut freed, &mut entries)
                            .await
                    })
                    .await;
                report.routes += freed;
                report.entries += entries;
                report.refused.extend(said.err());
            }
        })
        .await
    }

    async fn free_route(
        &self,
        resource: &ApiResource,
        route: DynamicObject,
        gone: &Gone,
        freed: &mut usize,
        entries: &mut usize,
    ) -> Result<(), kube::Error> {
        let key = key(&route);
        let (finalizer, annotation) = (
            names::finalizer(self.controller),
            names::annotation(self.controller),
        );
        let held = route.finalizers().iter().any(|f| *f == finalizer);
        let before = route.annotations().get(annotation.as_ref()).cloned();
        let mut memory = remembered(&route, &annotation);
        for (place, ids) in gone.get(&key).into_iter().flat_map(Memory::places) {
            ids.iter().for_each(|id| memory.take(place, id));
        }
        let after = if self.keep { before.clone() } else { memory.text() };
        let mut version = route.resource_version();
        if held || before != after {
            let rest: Vec<&String> = route.finalizers().iter().filter(|f| **f != finalizer).collect();
            let mut metadata = Map::from_iter([("resourceVersion".to_owned(), json!(version))]);
            if held {
                metadata.insert("finalizers".to_owned(), json!(rest));
            }
            if before != after {
                metadata.insert("annotations".to_owned(), json!({annotation.as_ref(): after}));
            }
            let api = self.api(resource, &key.namespace);
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let written = api.patch_metadata(&key.name, &params(), &patch).await?;
            version = written.metadata.resource_version;
            *freed += usize::from(held);
            // The last finalizer of one that was to be deleted: there is nothing left to say anything of.
            if route.meta().deletion_timestamp.is_some() && rest.is_empty() {
                return Ok(());
            }
        }
        let parents = route.data.pointer("/status/parents").and_then(Value::as_array);
        let parents = parents.map_or(&[][..], Vec::as_slice);
        let ours =
            |entry: &&Value| entry.get("controllerName").and_then(Value::as_str) == Some(self.controller);
        let foreign: Vec<&Value> = parents.iter().filter(|entry| !ours(entry)).collect();
        if self.keep || foreign.len() == parents.len() {
            return Ok(());
        }
        // The list is one value: with the version that was read, or a foreign entry would be lost.
        self.patch_status(resource, &key, version, json!({ "parents": foreign }))
            .await?;
        *entries += parents.len() - foreign.len();
        Ok(())
    }

    /// Frees the classes of the operator; their names.
    async fn classes(&self, report: &mut Report) -> Result<BTreeSet<String>, kube::Error> {
        let resource = kind(GATEWAY_GROUP, "v1", "GatewayClass");
        let mut names = BTreeSet::new();
        self.pages(&resource, async |page| {
            for class in page {
                let controller = class.data.pointer("/spec/controllerName").and_then(Value::as_str);
                if controller != Some(self.controller) {
                    continue;
                }
                names.insert(class.name_any());
                let (mut freed, mut withdrawn) = (0, 0);
                let said = self
                    .until_done(&resource, class, async |class| {
                        self.free_class(&resource, class, &mut freed, &mut withdrawn)
                            .await
                    })
                    .await;
                report.classes += freed;
                report.withdrawn += withdrawn;
                report.refused.extend(said.err());
            }
        })
        .await?;
        Ok(names)
    }

    async fn free_class(
        &self,
        resource: &ApiResource,
        class: DynamicObject,
        freed: &mut usize,
        withdrawn: &mut usize,
    ) -> Result<(), kube::Error> {
        let key = key(&class);
        let mut version = class.resource_version();
        if class.finalizers().iter().any(|f| f == CLASS_FINALIZER) {
            let rest: Vec<&String> = class
                .finalizers()
                .iter()
                .filter(|f| *f != CLASS_FINALIZER)
                .collect();
            let patch = json!({"metadata": {"resourceVersion": version, "finalizers": rest}});
            let api = self.api(resource, "");
            let written = api
                .patch_metadata(&key.name, &params(), &Patch::Merge(patch))
                .await?;
            version = written.metadata.resource_version;
            *freed += 1;
            if class.meta().deletion_timestamp.is_some() && rest.is_empty() {
                return Ok(());
            }
        }
        let withdrawal = withdrawal(&class, &["Accepted", "SupportedVersion"], &["supportedFeatures"]);
        let Some(status) = withdrawal.filter(|_| !self.keep) else {
            return Ok(());
        };
        self.patch_status(resource, &key, version, status).await?;
        *withdrawn += 1;
        Ok(())
    }

    /// Gateways of these classes say again what they said before anybody looked.
    async fn gateways(&self, classes: &BTreeSet<String>, report: &mut Report) -> Result<(), kube::Error> {
        let resource = kind(GATEWAY_GROUP, "v1", "Gateway");
        self.pages(&resource, async |page| {
            for gateway in page {
                let class = gateway
                    .data
                    .pointer("/spec/gatewayClassName")
                    .and_then(Value::as_str);
                if !class.is_some_and(|class| classes.contains(class)) {
                    continue;
                }
                self.withdraw(&resource, gateway, report, |gateway| {
                    withdrawal(gateway, &["Accepted", "Programmed"], &["listeners", "addresses"])
                })
                .await;
            }
        })
        .await
    }

    /// Definitions whose Accepted is the operator's say nothing any more, unless another installation speaks for them.
    async fn definitions(&self, report: &mut Report) -> Result<(), kube::Error> {
        let resource = kind(TYK_GROUP, "v1alpha1", "TykOasApiDefinition");
        let ours = |definition: &DynamicObject| {
            let managed = definition.metadata.managed_fields.as_deref();
            withdrawal(definition, &["Accepted"], &[]).filter(|_| owns_accepted(managed.unwrap_or_default()))
        };
        let mut said = Vec::new();
        self.pages(&resource, async |page| {
            said.extend(page.into_iter().filter(|definition| ours(definition).is_some()));
        })
        .await?;
        let theirs = self.spoken_for(&said).await?;
        for definition in said {
            if !theirs.contains(&key(&definition)) {
                self.withdraw(&resource, definition, report, ours).await;
            }
        }
        Ok(())
    }

    /// Which of these definitions another installation speaks for. All installations write under the same names, so that
    /// only what the definitions are attached to tells.
    async fn spoken_for(&self, definitions: &[DynamicObject]) -> Result<BTreeSet<Key>, kube::Error> {
        let mut speakers = Speakers::new(self.controller, definitions);
        let of = |name| kind(GATEWAY_GROUP, "v1", name);
        if speakers.need_classes() {
            self.pages(&of("GatewayClass"), async |page| speakers.classes(page))
                .await?;
        }
        if speakers.need_gateways() {
            self.pages(&of("Gateway"), async |page| speakers.gateways(page))
                .await?;
        }
        if speakers.need_routes() {
            self.pages(&of("HTTPRoute"), async |page| speakers.routes(page))
                .await?;
        }
        Ok(speakers.elsewhere())
    }

    /// Takes out of an object's status what `patch` names, if anything, and counts it.
    async fn withdraw(
        &self,
        resource: &ApiResource,
        object: DynamicObject,
        report: &mut Report,
        patch: impl Fn(&DynamicObject) -> Option<Value>,
    ) {
        let mut withdrawn = 0;
        let said = self
            .until_done(resource, object, async |object| {
                let Some(status) = patch(&object) else {
                    return Ok(());
                };
                let version = object.resource_version();
                self.patch_status(resource, &key(&object), version, status)
                    .await?;
                withdrawn += 1;
                Ok(())
            })
            .await;
        report.withdrawn += withdrawn;
        report.refused.extend(said.err());
    }

    /// Runs `act` on an object, and on what it has become while that fails in a way that passes. An object that is gone
    /// is done.
    async fn until_done(
        &self,
        resource: &ApiResource,
        first: DynamicObject,
        mut act: impl AsyncFnMut(DynamicObject) -> Result<(), kube::Error>,
    ) -> Result<(), String> {
        let key = key(&first);
        let api = self.api(resource, &key.namespace);
        let mut object = first;
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match act(object).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match classify(&error).0 {
                ErrorClass::NotFound => return Ok(()),
                _ if tries < TRIES && passes(&error) => {}
                _ => {
                    let why = connect::one_line(&error);
                    return Err(format!("{} {key}: {why}", resource.kind));
                }
            }
            tokio::time::sleep(PAUSE).await;
            // The list is at hand, so no right to read single objects is needed: a list of one.
            let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
            let found = api
                .list(&one)
                .await
                .ok()
                .and_then(|list| list.items.into_iter().next());
            match found {
                Some(found) => object = found,
                None => return Ok(()),
            }
        }
    }

    async fn patch_status(
        &self,
        resource: &ApiResource,
        key: &Key,
        version: Option<String>,
        status: Value,
    ) -> Result<(), kube::Error> {
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let api = self.api(resource, &key.namespace);
        api.patch_status(&key.name, &params(), &Patch::Merge(patch))
            .await
            .map(drop)
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// A status patch that takes out conditions of these types and these lists; `None` if there is nothing but what the CRD
/// gives by default.
fn withdrawal(object: &DynamicObject, types: &[&str], lists: &[&str]) -> Option<Value> {
    let items = |field: &str| -> &[Value] {
        let status = object.data.get("status");
        let list = status.and_then(|status| status.get(field)?.as_array());
        list.map_or(&[], Vec::as_slice)
    };
    let text = |condition: &Value, field: &str| {
        let text = condition.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let ours = |condition: &&Value| types.contains(&text(condition, "type").as_str());
    let untouched =
        |condition: &Value| text(condition, "status") == "Unknown" && text(condition, "reason") == "Pending";
    let conditions = items("conditions");
    let full = lists.iter().any(|list| !items(list).is_empty());
    if !full && conditions.iter().filter(ours).all(untouched) {
        return None;
    }
    let foreign: Vec<&Value> = conditions.iter().filter(|c| !ours(c)).collect();
    // Without any, the field goes, and comes back with the CRD's default.
    let left = if foreign.is_empty() {
        Value::Null
    } else {
        json!(foreign)
    };
    let mut status = Map::from_iter([("conditions".to_owned(), left)]);
    status.extend(lists.iter().map(|list| ((*list).to_owned(), Value::Null)));
    Some(Value::Object(status))
}
