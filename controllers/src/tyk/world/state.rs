//! The model with what is not known yet: which answers may be given, and who must be told of a change. No I/O, no clock.

use std::collections::BTreeSet;

use super::super::{
    model::Model,
    objects::{Event, Key, Kind},
    verdict::Changes,
};

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    model: Model,
    /// Every cache is complete, and everything that it names was asked for.
    open: bool,
    /// What changed and was not told yet.
    withheld: Changes,
    /// Objects that are there, and of which nothing is known.
    unknown: BTreeSet<(Kind, Key)>,
    /// Answers that hang on them, by what they hang on: each of them asks.
    hanging: Vec<((Kind, Key), Changes)>,
}

/// Adds what another set names.
pub(super) fn join(into: &mut Changes, other: Changes) {
    into.classes.extend(other.classes);
    into.gateways.extend(other.gateways);
    into.routes.extend(other.routes);
    into.definitions.extend(other.definitions);
}

/// What one set names and another does not.
fn without(all: Changes, other: &Changes) -> Changes {
    fn less<T: Ord>(mut all: BTreeSet<T>, other: &BTreeSet<T>) -> BTreeSet<T> {
        if !other.is_empty() {
            all.retain(|one| !other.contains(one));
        }
        all
    }
    Changes {
        classes: less(all.classes, &other.classes),
        gateways: less(all.gateways, &other.gateways),
        routes: less(all.routes, &other.routes),
        definitions: less(all.definitions, &other.definitions),
    }
}

fn names(changes: &Changes, kind: Kind, key: &Key) -> bool {
    match kind {
        Kind::GatewayClass => changes.classes.contains(&key.name),
        Kind::Gateway => changes.gateways.contains(key),
        Kind::HttpRoute => changes.routes.contains(key),
        Kind::TykOasApiDefinition => changes.definitions.contains(key),
        _ => false,
    }
}

impl State {
    pub(super) fn new(model: Model) -> Self {
        Self {
            model,
            open: false,
            withheld: Changes::default(),
            unknown: BTreeSet::new(),
            hanging: Vec::new(),
        }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Takes events in. Nothing is told before [`State::publish`].
    pub(super) fn apply(&mut self, events: impl IntoIterator<Item = Event>) {
        let changes = self.model.apply_all(events);
        join(&mut self.withheld, changes);
    }

    /// These should be looked at, though no answer changed.
    pub(super) fn look(&mut self, at: Changes) {
        join(&mut self.withheld, at);
    }

    /// The route does not count for these Gateways; whom to tell at once.
    pub(super) fn fail(&mut self, route: &Key, gateways: BTreeSet<Key>) -> Changes {
        let changes = self.model.fail(route, gateways);
        if self.open && self.withheld == Changes::default() {
            return changes;
        }
        join(&mut self.withheld, changes);
        Changes::default()
    }

    /// The object is there, and nothing is known of it; or something is known of it now, or it is gone.
    pub(super) fn unknown(&mut self, kind: Kind, key: &Key, is: bool) {
        if is {
            self.unknown.insert((kind, key.clone()));
        } else if !self.unknown.is_empty() {
            self.unknown.remove(&(kind, key.clone()));
        }
    }

    /// Nothing may be concluded until the next [`State::publish`].
    pub(super) fn close(&mut self) {
        self.open = false;
    }

    /// From now on answers are given; tells whom to wake: whose answer changed, and whose answer hangs on nothing any
    /// more.
    pub(super) fn publish(&mut self) -> Changes {
        if !std::mem::replace(&mut self.open, true) {
            // Answers that are as they were before may stand in no status any more.
            let model = &self.model;
            let all = Changes {
                classes: model.classes().map(|(name, _)| name.to_owned()).collect(),
                gateways: model.gateways().map(|(key, _)| key.clone()).collect(),
                routes: model.routes().map(|(key, _)| key.clone()).collect(),
                definitions: model.definitions().map(|(key, _)| key.clone()).collect(),
            };
            join(&mut self.withheld, all);
        }
        let hanging = self.unknown.iter().map(|(kind, key)| {
            let on = self.model.depends(*kind, key);
            ((*kind, key.clone()), on)
        });
        let hanging = hanging.collect();
        let all = |hanging: &[(_, Changes)]| {
            let mut all = Changes::default();
            hanging.iter().for_each(|(_, on)| join(&mut all, on.clone()));
            all
        };
        let hung = all(&std::mem::replace(&mut self.hanging, hanging));
        let mut told = without(hung, &all(&self.hanging));
        join(&mut told, std::mem::take(&mut self.withheld));
        told
    }

    /// What an answer waits for; `None` if it may be given.
    pub(super) fn waits(&self, kind: Kind, key: &Key) -> Option<(Kind, Key)> {
        if !self.open {
            return Some((kind, key.clone()));
        }
        if self.unknown.contains(&(kind, key.clone())) {
            return Some((kind, key.clone()));
        }
        if let Some((on, _)) = self.hanging.iter().find(|(_, on)| names(on, kind, key)) {
            return Some(on.clone());
        }
        names(&self.withheld, kind, key).then(|| (kind, key.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tyk::{Settings, objects::Object};

    const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";
    const TYK: &str = "tyk.tyk.io/v1alpha1";

    fn object(api: &str, kind: &str, name: &str, spec: Value) -> Value {
        json!({"apiVersion": api, "kind": kind, "metadata": {"namespace": "web", "name": name, "uid": name, "generation": 1},
            "spec": spec})
    }

    /// Everything that one route with a definition rests on.
    fn objects() -> Vec<Object> {
        let reference = |name: &str| json!({"group": "tyk.tyk.io", "kind": "OperatorContext", "name": name});
        let mut of_class = reference("tyk");
        of_class["namespace"] = json!("web");
        let document = r#"{"x-tyk-api-gateway": {}, "openapi": "3.0.3", "info": {}, "paths": {}}"#;
        let all = [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "web", "name": "connection"},
                "stringData": {"TYK_MODE": "ce", "TYK_URL": "http://tyk", "TYK_AUTH": "x"}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "web", "name": "doc"},
                "data": {"k": document}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web", "labels": {"a": "b"}}}),
            object(
                TYK,
                "OperatorContext",
                "tyk",
                json!({"secretRef": {"name": "connection"}}),
            ),
            object(
                TYK,
                "OperatorContext",
                "plane",
                json!({"dataPlane": {"serviceRef": {"name": "gateways"}}}),
            ),
            object(
                "v1",
                "Service",
                "gateways",
                json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}),
            ),
            object(
                "v1",
                "Service",
                "backend",
                json!({"clusterIP": "10.0.0.2", "ports": [{"port": 80}]}),
            ),
            object(
                GATEWAY_API,
                "GatewayClass",
                "tyk",
                json!({"controllerName": "routewright.dev/tyk", "parametersRef": of_class}),
            ),
            object(
                GATEWAY_API,
                "Gateway",
                "public",
                json!({
                "gatewayClassName": "tyk", "infrastructure": {"parametersRef": reference("plane")},
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces":
                    {"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}}}]}),
            ),
            object(
                GATEWAY_API,
                "HTTPRoute",
                "shop",
                json!({"parentRefs": [{"name": "public"}], "rules": [
                {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "backend", "port": 80}]}]}),
            ),
            object(
                TYK,
                "TykOasApiDefinition",
                "access",
                json!({
                "tykOAS": {"configmapRef": {"name": "doc", "keyName": "k"}},
                "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"}]}),
            ),
        ];
        all.iter()
            .map(|value| Object::decode(value).unwrap().unwrap())
            .collect()
    }

    fn route() -> Key {
        Key::new("web", "shop")
    }

    fn seen(object: &Object) -> Event {
        Event::Seen(Box::new(object.clone()))
    }

    #[test]
    fn nothing_is_concluded_from_an_object_of_which_nothing_is_known() {
        for missing in objects() {
            let (kind, key) = missing.id();
            // Given everything but one object, which is there and cannot be read
            let mut state = State::new(Model::new(Settings::default()));
            state.apply(
                objects()
                    .iter()
                    .filter(|object| object.id() != missing.id())
                    .map(seen),
            );
            state.unknown(kind, key, true);
            state.publish();
            // then the route's answer waits for it, whatever would follow if it were absent
            assert_eq!(
                state.waits(Kind::HttpRoute, &route()),
                Some((kind, key.clone())),
                "{kind} {key}"
            );
            // when it is known, then the route is told, and the answer is the one from scratch
            state.unknown(kind, key, false);
            state.apply([seen(&missing)]);
            let told = state.publish();
            assert!(told.routes.contains(&route()), "{kind} {key}: {told:?}");
            assert_eq!(state.waits(Kind::HttpRoute, &route()), None);
            let mut scratch = Model::new(Settings::default());
            scratch.apply_all(objects().iter().map(seen));
            assert_eq!(state.model().route(&route()), scratch.route(&route()));
            assert!(!scratch.route(&route()).unwrap().apis.is_empty());
        }
    }

    #[test]
    fn who_hangs_on_nothing_unknown_is_answered_all_the_same() {
        let mut state = State::new(Model::new(Settings::default()));
        state.apply(objects().iter().map(seen));
        state.unknown(Kind::Secret, &Key::new("web", "nobody-names-it"), true);
        state.unknown(Kind::TykOasApiDefinition, &Key::new("elsewhere", "odd"), true);
        assert!(
            state.waits(Kind::HttpRoute, &route()).is_some(),
            "nothing before the first word"
        );
        state.publish();
        assert_eq!(state.waits(Kind::HttpRoute, &route()), None);
        assert_eq!(state.waits(Kind::GatewayClass, &Key::cluster("tyk")), None);
    }

    #[test]
    fn a_change_is_told_once_and_not_answered_before() {
        let mut state = State::new(Model::new(Settings::default()));
        state.apply(objects().iter().map(seen));
        state.publish();
        assert_eq!(state.publish(), Changes::default());
        state.apply([Event::Gone(Kind::Service, Key::new("web", "backend"))]);
        assert!(state.waits(Kind::HttpRoute, &route()).is_some());
        assert_eq!(
            state.waits(Kind::Gateway, &Key::new("web", "public")),
            None,
            "it did not change"
        );
        let told = state.publish();
        assert!(told.routes.contains(&route()) && told.gateways.is_empty());
        // after a time without answers everything is told
        state.close();
        assert!(state.waits(Kind::HttpRoute, &route()).is_some());
        let told = state.publish();
        assert_eq!(
            (
                told.routes.len(),
                told.gateways.len(),
                told.classes.len(),
                told.definitions.len()
            ),
            (1, 1, 1, 1)
        );
    }

    #[test]
    fn a_route_that_cannot_be_served_does_not_count() {
        let gateway = Key::new("web", "public");
        let attached = |state: &State| state.model().gateway(&gateway).unwrap().listeners[0].attached_routes;
        let mut state = State::new(Model::new(Settings::default()));
        state.apply(objects().iter().map(seen));
        state.publish();
        assert_eq!(attached(&state), 1);
        // Given that Tyk refuses its APIs, then the Gateway is told at once, and again when it works
        let told = state.fail(&route(), [gateway.clone()].into());
        assert_eq!((told.gateways.len(), attached(&state)), (1, 0));
        assert_eq!(state.fail(&route(), [gateway.clone()].into()), Changes::default());
        // whatever else changes meanwhile
        state.apply([Event::Gone(Kind::Service, Key::new("web", "backend"))]);
        state.publish();
        assert_eq!(attached(&state), 0);
        let told = state.fail(&route(), BTreeSet::new());
        assert_eq!((told.gateways.len(), attached(&state)), (1, 1));
        // and a route that goes leaves nothing behind
        state.fail(&route(), [gateway.clone()].into());
        state.apply([Event::Gone(Kind::HttpRoute, route())]);
        state.apply(
            objects()
                .iter()
                .filter(|object| object.id().0 == Kind::HttpRoute)
                .map(seen),
        );
        state.publish();
        assert_eq!(attached(&state), 1);
    }

    #[test]
    fn a_right_that_is_missing_is_named_where_the_object_is_missed() {
        let mut state = State::new(Model::new(Settings::default()));
        state.apply(objects().iter().map(seen));
        let key = Key::new("web", "connection");
        state.apply([Event::Unreadable(
            Kind::Secret,
            key.clone(),
            "cannot be read: no right".into(),
        )]);
        let said = |state: &State| state.model().class("tyk").unwrap().conditions[0].message.clone();
        assert!(
            said(&state).contains("Secret web/connection cannot be read: no right"),
            "{}",
            said(&state)
        );
        state.apply([Event::Gone(Kind::Secret, key)]);
        assert!(said(&state).contains("does not exist"), "{}", said(&state));
    }
}
