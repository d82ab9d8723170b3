//! Which TykOasApiDefinitions another installation of Gateway API on Tyk speaks for. The operator's own model decides it,
//! by what the cluster shows: its rule is the only one.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use serde_json::Value;

use super::tyk::key;
use crate::tyk::{
    Settings,
    model::Model,
    objects::{
        DecodeError, Event, GATEWAY_GROUP, Gateway, GatewayClass, HttpRoute, Key, Object, TYK_GROUP,
        TykOasApiDefinition,
    },
};

/// Gathers objects, then says of which definitions somebody else speaks. Pure.
pub(super) struct Speakers<'a> {
    controller: &'a str,
    /// Other controllerNames of classes that lead to an OperatorContext and are answered for.
    others: BTreeSet<String>,
    objects: Vec<Object>,
    definitions: BTreeSet<Key>,
    routes: BTreeSet<Key>,
}

impl<'a> Speakers<'a> {
    /// Of these definitions, for the installation with this controllerName. For one that nobody can read, or without
    /// targetRefs, nobody speaks.
    pub(super) fn new(controller: &'a str, definitions: &[DynamicObject]) -> Self {
        let mut speakers = Self {
            controller,
            others: BTreeSet::new(),
            objects: Vec::new(),
            definitions: BTreeSet::new(),
            routes: BTreeSet::new(),
        };
        let read = definitions
            .iter()
            .filter_map(|object| TykOasApiDefinition::decode(&value(object)).ok());
        for definition in read.filter(|definition| !definition.targets.is_empty()) {
            let own = &definition.meta.key;
            speakers.definitions.insert(own.clone());
            let routes = definition
                .targets
                .iter()
                .filter(|target| target.group == GATEWAY_GROUP && target.kind == "HTTPRoute");
            let routes = routes.map(|target| Key::new(&own.namespace, &target.name));
            speakers.routes.extend(routes);
            speakers.objects.push(Object::TykOasApiDefinition(definition));
        }
        speakers
    }

    /// Whether any definition has a target: otherwise classes need not be asked for.
    pub(super) fn need_classes(&self) -> bool {
        !self.definitions.is_empty()
    }

    /// Whether there is another installation: otherwise Gateways need not be asked for.
    pub(super) fn need_gateways(&self) -> bool {
        !self.others.is_empty()
    }

    /// Whether a target is an HTTPRoute: otherwise routes need not be asked for.
    pub(super) fn need_routes(&self) -> bool {
        self.need_gateways() && !self.routes.is_empty()
    }

    /// These GatewayClasses are there.
    pub(super) fn classes(&mut self, page: Vec<DynamicObject>) {
        for found in page {
            let answered = answered(&found);
            let Ok(class) = GatewayClass::decode(&value(&found)) else {
                continue;
            };
            let leads = class
                .parameters
                .as_ref()
                .is_some_and(|to| to.group == TYK_GROUP && to.kind == "OperatorContext");
            if leads && answered && class.controller_name != self.controller {
                self.others.insert(class.controller_name.clone());
            }
            self.objects.push(Object::GatewayClass(class));
        }
    }

    /// These Gateways are there.
    pub(super) fn gateways(&mut self, page: Vec<DynamicObject>) {
        self.objects
            .extend(read(&page, Gateway::decode).map(Object::Gateway));
    }

    /// These HTTPRoutes are there. Those that no definition names are passed over.
    pub(super) fn routes(&mut self, mut page: Vec<DynamicObject>) {
        page.retain(|route| self.routes.contains(&key(route)));
        self.objects
            .extend(read(&page, HttpRoute::decode).map(Object::HttpRoute));
    }

    /// The definitions that another installation speaks for. Of those whose targets are nobody's all say the same, and none
    /// more than another.
    pub(super) fn elsewhere(self) -> BTreeSet<Key> {
        let mut theirs = BTreeSet::new();
        for controller_name in self.others {
            let mut model = Model::new(Settings {
                controller_name,
                ..Settings::default()
            });
            let seen = self.objects.iter().cloned();
            model.apply_all(seen.map(|object| Event::Seen(Box::new(object))));
            let speaks = |key: &&Key| model.definition(key).is_some_and(|verdict| verdict.ours);
            theirs.extend(self.definitions.iter().filter(speaks).cloned());
        }
        theirs
    }
}

/// Whether somebody answers for a class: one that was cleaned up reads as before anybody looked, and an installation that is
/// gone speaks for nothing.
fn answered(class: &DynamicObject) -> bool {
    let conditions = class.data.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| {
        let text = condition.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| text(c, "type") == "Accepted" && text(c, "status") != "Unknown")
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// What nobody can read serves nobody.
fn read<T>(page: &[DynamicObject], decode: fn(&Value) -> Result<T, DecodeError>) -> impl Iterator<Item = T> {
    page.iter().filter_map(move |found| decode(&value(found)).ok())
}
