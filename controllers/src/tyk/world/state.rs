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
    /// Answers that hang on them.
    hanging: Changes,
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
            hanging: Changes::default(),
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
        let mut hanging = Changes::default();
        for (kind, key) in &self.unknown {
            join(&mut hanging, self.model.depends(*kind, key));
        }
        let free = std::mem::replace(&mut self.hanging, hanging);
        let mut told = without(free, &self.hanging);
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
        if names(&self.hanging, kind, key) {
            let on = |(of, at): &&(Kind, Key)| names(&self.model.depends(*of, at), kind, key);
            let on = self.unknown.iter().find(on).cloned();
            return Some(on.unwrap_or_else(|| (kind, key.clone())));
        }
        names(&self.withheld, kind, key).then(|| (kind, key.clone()))
    }
}
