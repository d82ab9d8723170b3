//! The model: holds what was seen last and answers what follows. `apply` is incremental; the answer is the same
//! whatever the order of events.
//!
//! Answers are made in stages (class, gateway, attached definition, route, claims, counts, definition). Each stage is a
//! function of a [`view::View`], in a file of its own; the view notes what was read, and a change looks again only at
//! what read it. No I/O, no clock, no secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Settings,
    objects::{Event, Key, Kind},
    verdict::{Changes, ClassVerdict, DefinitionVerdict, GatewayVerdict, RouteVerdict},
};

mod backend;
mod claims;
mod class;
mod definition;
mod finish;
mod gateway;
mod grants;
mod graph;
mod host;
mod listener;
mod route;
mod rules;
mod selector;
mod store;
mod text;
mod view;
mod weights;

#[cfg(test)]
mod catalogue_tests;
#[cfg(test)]
mod class_tests;
#[cfg(test)]
mod definition_tests;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod gateway_tests;
#[cfg(test)]
mod incremental_tests;
#[cfg(test)]
mod keep_tests;
#[cfg(test)]
mod random;
#[cfg(test)]
mod route_tests;

pub use definition::unavailable;

use claims::{Claim, Claims};
use class::ClassFacts;
use definition::Attached;
use gateway::GatewayFacts;
use graph::{Cell, Graph, Target, What};
use route::Draft;
use store::{Store, Touched};
use view::View;

#[derive(Debug)]
struct ClassAnswer {
    verdict: ClassVerdict,
    facts: Arc<ClassFacts>,
}

#[derive(Debug)]
struct GatewayAnswer {
    verdict: GatewayVerdict,
    facts: Arc<GatewayFacts>,
}

#[derive(Debug)]
struct RouteAnswer {
    verdict: RouteVerdict,
    claims: Box<[Claim]>,
    counted: Box<[(Key, usize)]>,
}

/// What follows from the objects, by stage.
#[derive(Debug, Default)]
struct Answers {
    classes: BTreeMap<String, ClassAnswer>,
    gateways: BTreeMap<Key, GatewayAnswer>,
    attached: BTreeMap<(Target, Key), Arc<Attached>>,
    routes: BTreeMap<Key, RouteAnswer>,
    definitions: BTreeMap<Key, DefinitionVerdict>,
}

/// What is to be looked at again, by stage.
#[derive(Debug, Default)]
struct Dirty {
    classes: BTreeSet<String>,
    gateways: BTreeSet<Key>,
    attached: BTreeSet<(Target, Key)>,
    routes: BTreeSet<Key>,
    definitions: BTreeSet<Key>,
}

impl Dirty {
    fn reader(&mut self, cell: &Cell) {
        match cell.what {
            What::Class => {
                self.classes.insert(cell.key.name.clone());
            }
            What::Gateway => {
                self.gateways.insert(cell.key.clone());
            }
            What::Attachment(target) => {
                self.attached.insert((target, cell.key.clone()));
            }
            What::Route => {
                self.routes.insert(cell.key.clone());
            }
            What::Definition => {
                self.definitions.insert(cell.key.clone());
            }
            // These do not read.
            What::Object(_) | What::Slices | What::Grants | What::RouteOurs => {}
        }
    }

    fn touch(&mut self, graph: &Graph, cell: &Cell) {
        graph.readers(cell).for_each(|reader| self.reader(reader));
    }

    fn absorb(&mut self, graph: &Graph, touched: Touched) {
        self.classes.extend(touched.classes);
        self.gateways.extend(touched.gateways);
        self.attached.extend(touched.attachments);
        self.routes.extend(touched.routes);
        self.definitions.extend(touched.definitions);
        for cell in &touched.cells {
            self.touch(graph, cell);
        }
    }
}

/// Objects seen, and the answers that follow from them.
#[derive(Debug)]
pub struct Model {
    settings: Settings,
    store: Store,
    graph: Graph,
    answers: Answers,
    claims: Claims,
    /// Routes that count for a listener: Gateway → by index.
    counts: BTreeMap<Key, BTreeMap<usize, u32>>,
}

impl Model {
    /// An empty model.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            store: Store::default(),
            graph: Graph::default(),
            answers: Answers::default(),
            claims: Claims::default(),
            counts: BTreeMap::new(),
        }
    }

    /// Takes an event in and tells whose answer changed.
    pub fn apply(&mut self, event: Event) -> Changes {
        self.apply_all([event])
    }

    /// Takes several events in at once: the answers are those after the last, and so are the changes. Cheaper than one
    /// by one when much arrives together, as at the start.
    pub fn apply_all(&mut self, events: impl IntoIterator<Item = Event>) -> Changes {
        let mut dirty = Dirty::default();
        for event in events {
            let touched = match event {
                Event::Seen(object) => self.store.put(*object),
                Event::Gone(kind, key) => self.store.remove(kind, &key),
                Event::Bundles(bundles) => {
                    let known = self.store.bundles.replace(bundles);
                    if known != self.store.bundles {
                        dirty.classes.extend(self.answers.classes.keys().cloned());
                    }
                    continue;
                }
            };
            dirty.absorb(&self.graph, touched);
        }
        self.settle(dirty)
    }

    /// Answer for a GatewayClass; `None` if it is not there or not ours.
    pub fn class(&self, name: &str) -> Option<&ClassVerdict> {
        self.answers.classes.get(name).map(|answer| &answer.verdict)
    }

    /// Answer for a Gateway; `None` if it is not there or its class is not ours.
    pub fn gateway(&self, key: &Key) -> Option<&GatewayVerdict> {
        self.answers.gateways.get(key).map(|answer| &answer.verdict)
    }

    /// Answer for an HTTPRoute; `None` if it is not there or has no parent of ours.
    pub fn route(&self, key: &Key) -> Option<&RouteVerdict> {
        self.answers.routes.get(key).map(|answer| &answer.verdict)
    }

    /// Answer for a TykOasApiDefinition; `None` if it is not there or has no targetRefs.
    pub fn definition(&self, key: &Key) -> Option<&DefinitionVerdict> {
        self.answers.definitions.get(key)
    }

    /// Every answer for a GatewayClass, by name.
    pub fn classes(&self) -> impl Iterator<Item = (&str, &ClassVerdict)> {
        self.answers
            .classes
            .iter()
            .map(|(name, answer)| (name.as_str(), &answer.verdict))
    }

    /// Every answer for a Gateway, by namespace and name.
    pub fn gateways(&self) -> impl Iterator<Item = (&Key, &GatewayVerdict)> {
        self.answers
            .gateways
            .iter()
            .map(|(key, answer)| (key, &answer.verdict))
    }

    /// Every answer for an HTTPRoute, by namespace and name.
    pub fn routes(&self) -> impl Iterator<Item = (&Key, &RouteVerdict)> {
        self.answers
            .routes
            .iter()
            .map(|(key, answer)| (key, &answer.verdict))
    }

    /// Every answer for a TykOasApiDefinition, by namespace and name.
    pub fn definitions(&self) -> impl Iterator<Item = (&Key, &DefinitionVerdict)> {
        self.answers.definitions.iter()
    }

    /// Objects that answers looked for and that are not there, sorted: what a set of manifests lacks. A GatewayClass is
    /// among them only if a Gateway names it. Targets that no ReferenceGrant allows were not looked for.
    pub fn missing(&self) -> BTreeSet<(Kind, Key)> {
        let mut missing: BTreeSet<(Kind, Key)> = self
            .graph
            .read()
            .filter_map(|cell| {
                let kind = match cell.what {
                    What::Object(kind) => kind,
                    What::Gateway => Kind::Gateway,
                    _ => return None,
                };
                // A Namespace needs no object: it has its name as a label.
                (kind != Kind::Namespace && !self.store.has(kind, &cell.key))
                    .then(|| (kind, cell.key.clone()))
            })
            .collect();
        let classes = self
            .store
            .gateways
            .values()
            .map(|gateway| Key::cluster(&gateway.class));
        missing.extend(
            classes
                .filter(|class| !self.store.classes.contains_key(class))
                .map(|class| (Kind::GatewayClass, class)),
        );
        missing
    }

    /// Looks again at everything that is dirty, stage by stage: a stage reads earlier ones only.
    fn settle(&mut self, mut dirty: Dirty) -> Changes {
        let mut changes = Changes::default();
        for name in std::mem::take(&mut dirty.classes) {
            self.class_again(name, &mut dirty, &mut changes);
        }
        let mut before: BTreeMap<Key, Option<GatewayVerdict>> = BTreeMap::new();
        for key in std::mem::take(&mut dirty.gateways) {
            self.gateway_again(&key, &mut dirty, &mut before);
        }
        for at in std::mem::take(&mut dirty.attached) {
            self.attached_again(at, &mut dirty);
        }
        self.routes_again(&mut dirty, &mut changes, &mut before);
        for (key, old) in before {
            if self.gateway(&key) != old.as_ref() {
                changes.gateways.insert(key);
            }
        }
        for key in std::mem::take(&mut dirty.definitions) {
            self.definition_again(key, &mut changes);
        }
        changes
    }

    fn class_again(&mut self, name: String, dirty: &mut Dirty, changes: &mut Changes) {
        let key = Key::cluster(&name);
        let view = View::new(&self.settings, &self.store, &self.answers);
        let class = self
            .store
            .classes
            .get(&key)
            .filter(|class| class.controller_name == self.settings.controller_name);
        let new = class.map(|object| {
            class::class(
                &view,
                object,
                self.store.bundles.as_ref(),
                self.store.class_in_use(&name),
            )
        });
        let reads = view.into_reads();
        let cell = Cell::new(What::Class, &key);
        let old = self.answers.classes.get(&name);
        if old.map(|old| &old.verdict) != new.as_ref().map(|(verdict, _)| verdict) {
            changes.classes.insert(name.clone());
        }
        if old.map(|old| &*old.facts) != new.as_ref().map(|(_, facts)| facts) {
            dirty.touch(&self.graph, &cell);
        }
        match new {
            Some((verdict, facts)) => {
                let facts = Arc::new(facts);
                self.answers.classes.insert(name, ClassAnswer { verdict, facts });
            }
            None => {
                self.answers.classes.remove(&name);
            }
        }
        self.graph.record(cell, reads);
    }

    fn gateway_again(
        &mut self,
        key: &Key,
        dirty: &mut Dirty,
        before: &mut BTreeMap<Key, Option<GatewayVerdict>>,
    ) {
        let view = View::new(&self.settings, &self.store, &self.answers);
        let new = self.store.gateways.get(key).and_then(|object| {
            let class = view.class(&object.class)?;
            Some(gateway::gateway(&view, object, class))
        });
        let reads = view.into_reads();
        let cell = Cell::new(What::Gateway, key);
        let old = self.answers.gateways.get(key);
        before.insert(key.clone(), old.map(|old| old.verdict.clone()));
        if old.map(|old| &*old.facts) != new.as_ref().map(|(_, facts)| facts) {
            dirty.touch(&self.graph, &cell);
        }
        match new {
            Some((mut verdict, facts)) => {
                let counts = self.counts.get(key);
                for (index, listener) in verdict.listeners.iter_mut().enumerate() {
                    listener.attached_routes = counts
                        .and_then(|counts| counts.get(&index))
                        .copied()
                        .unwrap_or_default();
                }
                let facts = Arc::new(facts);
                self.answers
                    .gateways
                    .insert(key.clone(), GatewayAnswer { verdict, facts });
            }
            None => {
                self.answers.gateways.remove(key);
            }
        }
        self.graph.record(cell, reads);
    }

    fn attached_again(&mut self, at: (Target, Key), dirty: &mut Dirty) {
        let view = View::new(&self.settings, &self.store, &self.answers);
        let new = definition::attached(&view, at.0, &at.1);
        let reads = view.into_reads();
        let cell = Cell::new(What::Attachment(at.0), &at.1);
        if self.answers.attached.get(&at).map(|old| &**old) != new.as_ref() {
            dirty.touch(&self.graph, &cell);
            match new {
                Some(new) => {
                    self.answers.attached.insert(at, Arc::new(new));
                }
                None => {
                    self.answers.attached.remove(&at);
                }
            }
        }
        self.graph.record(cell, reads);
    }

    /// Drafts what is dirty, settles claims, and finishes these and those whose claims turned out differently.
    fn routes_again(
        &mut self,
        dirty: &mut Dirty,
        changes: &mut Changes,
        before: &mut BTreeMap<Key, Option<GatewayVerdict>>,
    ) {
        let mut drafts: BTreeMap<Key, Option<Draft>> = BTreeMap::new();
        for key in std::mem::take(&mut dirty.routes) {
            let draft = self.draft(&key);
            let new: Box<[Claim]> = draft.as_ref().map(Draft::claims).unwrap_or_default().into();
            match self.answers.routes.get_mut(&key) {
                Some(answer) => {
                    self.claims.replace(&answer.claims, &new);
                    answer.claims = new;
                }
                None => self.claims.replace(&[], &new),
            }
            drafts.insert(key, draft);
        }
        for key in self.claims.settle() {
            drafts.entry(key).or_insert_with_key(|key| self.draft(key));
        }
        for (key, draft) in drafts {
            let claims: Box<[Claim]> = draft.as_ref().map(Draft::claims).unwrap_or_default().into();
            let new = draft.map(|draft| finish::finish(draft, &self.claims));
            let old = self.answers.routes.remove(&key);
            if old.as_ref().map(|old| &old.verdict) != new.as_ref().map(|(verdict, _)| verdict) {
                changes.routes.insert(key.clone());
            }
            if old.is_some() != new.is_some() {
                dirty.touch(&self.graph, &Cell::new(What::RouteOurs, &key));
            }
            let (had, has): (&[_], &[_]) = (
                old.as_ref().map_or(&[], |old| &old.counted),
                new.as_ref().map_or(&[], |(_, counted)| counted),
            );
            self.recount(had, has, before);
            if let Some((verdict, counted)) = new {
                let counted = counted.into();
                self.answers.routes.insert(
                    key,
                    RouteAnswer {
                        verdict,
                        claims,
                        counted,
                    },
                );
            }
        }
    }

    fn draft(&mut self, key: &Key) -> Option<Draft> {
        let view = View::new(&self.settings, &self.store, &self.answers);
        let draft = self
            .store
            .routes
            .get(key)
            .and_then(|object| route::draft(&view, object));
        let reads = view.into_reads();
        self.graph.record(Cell::new(What::Route, key), reads);
        draft
    }

    /// Moves the counts of listeners from what a route counted for to what it counts for.
    fn recount(
        &mut self,
        had: &[(Key, usize)],
        has: &[(Key, usize)],
        before: &mut BTreeMap<Key, Option<GatewayVerdict>>,
    ) {
        let gone = had.iter().filter(|at| !has.contains(at)).map(|at| (at, false));
        let come = has.iter().filter(|at| !had.contains(at)).map(|at| (at, true));
        let moves: Vec<(&(Key, usize), bool)> = gone.chain(come).collect();
        for ((key, index), up) in moves {
            let counts = self.counts.entry(key.clone()).or_default();
            let count = counts.entry(*index).or_default();
            *count = if up { *count + 1 } else { count.saturating_sub(1) };
            let count = *count;
            if count == 0 {
                counts.remove(index);
                if counts.is_empty() {
                    self.counts.remove(key);
                }
            }
            if let Some(answer) = self.answers.gateways.get_mut(key) {
                before
                    .entry(key.clone())
                    .or_insert_with(|| Some(answer.verdict.clone()));
                if let Some(listener) = answer.verdict.listeners.get_mut(*index) {
                    listener.attached_routes = count;
                }
            }
        }
    }

    fn definition_again(&mut self, key: Key, changes: &mut Changes) {
        let view = View::new(&self.settings, &self.store, &self.answers);
        let new = self
            .store
            .definitions
            .get(&key)
            .and_then(|object| definition::definition(&view, object));
        let reads = view.into_reads();
        self.graph.record(Cell::new(What::Definition, &key), reads);
        if self.answers.definitions.get(&key) != new.as_ref() {
            changes.definitions.insert(key.clone());
        }
        match new {
            Some(new) => {
                self.answers.definitions.insert(key, new);
            }
            None => {
                self.answers.definitions.remove(&key);
            }
        }
    }
}
