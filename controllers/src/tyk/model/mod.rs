//! The model: holds what was seen last and answers what follows. `apply` is incremental; the answer is the same
//! whatever the order of events.
//!
//! Answers are made in stages (class, gateway, attached definition, route, claims, counts, definition). Each stage is a
//! function of a [`view::View`], in a file of its own; the view notes what was read, and a change looks again only at
//! what read it. No I/O, no clock, no secrets.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Settings,
    objects::{Event, GatewayClass, Key, Kind, TYK_GROUP, class::ParametersRef},
    verdict::{Changes, ClassVerdict, DefinitionVerdict, GatewayVerdict, Notice, RouteVerdict},
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
mod neighbours;
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
#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod tenancy_tests;

pub use class::connection_of;
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
    /// Message of Accepted without what neighbours add.
    accepted: String,
}

impl GatewayAnswer {
    /// Sets or clears the notice that hosts are shared with other Gateways.
    fn set_shared(&mut self, message: Option<&String>) {
        self.verdict.notices.retain(|notice| notice.reason != SHARED_HOST);
        self.verdict.notices.extend(message.map(|message| Notice {
            warning: true,
            reason: SHARED_HOST,
            message: message.clone(),
        }));
        let mut conditions = self.verdict.conditions.iter_mut();
        if let Some(accepted) = conditions.find(|condition| condition.type_ == "Accepted") {
            let said = [Some(&self.accepted).filter(|said| !said.is_empty()), message];
            let said: Vec<&str> = said.into_iter().flatten().map(String::as_str).collect();
            accepted.message = said.join("; ");
        }
    }
}

/// Reason of the notice that Gateways share hosts.
const SHARED_HOST: &str = "SharedHost";

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
    /// Tyks whose Gateways are others, or have other listeners.
    sites: BTreeSet<Arc<str>>,
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
    /// Gateways by the Tyk that they lead to.
    sites: BTreeMap<Arc<str>, BTreeSet<Key>>,
    /// Messages for Gateways that share hosts with other Gateways.
    shared: BTreeMap<Key, String>,
    /// Routes that count for a listener: Gateway → by index.
    counts: BTreeMap<Key, BTreeMap<usize, u32>>,
    /// Gateways through which a route cannot be served just now: it does not count for their listeners.
    failing: BTreeMap<Key, BTreeSet<Key>>,
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
            sites: BTreeMap::new(),
            shared: BTreeMap::new(),
            counts: BTreeMap::new(),
            failing: BTreeMap::new(),
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
                Event::Unreadable(kind, key, why) => self.store.unreadable(kind, &key, why),
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

    /// These Gateways' listeners do not count the route, whatever is decided about it: its APIs could not be written. The
    /// last word holds until the next one, or until the route is gone.
    pub fn fail(&mut self, route: &Key, gateways: BTreeSet<Key>) -> Changes {
        let counted = |model: &Self| -> Vec<(Key, usize)> {
            let answer = model.answers.routes.get(route);
            let counted = answer.map_or(&[][..], |answer| &answer.counted);
            model.effective(route, counted).into_owned()
        };
        let had = counted(self);
        // Of a route that is gone meanwhile nothing is kept: the next one of its name has failed at nothing.
        match gateways.is_empty() || !self.answers.routes.contains_key(route) {
            true => self.failing.remove(route),
            false => self.failing.insert(route.clone(), gateways),
        };
        let has = counted(self);
        let mut before = BTreeMap::new();
        self.recount(&had, &has, &mut before);
        let mut changes = Changes::default();
        self.told(before, &mut changes);
        changes
    }

    /// Listeners for which a route counts, of those for which it would.
    fn effective<'a>(&self, route: &Key, counted: &'a [(Key, usize)]) -> Cow<'a, [(Key, usize)]> {
        match self.failing.get(route) {
            None => Cow::Borrowed(counted),
            Some(failing) => {
                let works = |(gateway, _): &&(Key, usize)| !failing.contains(gateway);
                counted.iter().filter(works).cloned().collect::<Vec<_>>().into()
            }
        }
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

    /// The Tyks that classes of ours lead to.
    pub fn connections(&self) -> impl Iterator<Item = &Arc<super::verdict::Connection>> {
        let classes = self.answers.classes.values();
        classes.filter_map(|answer| answer.facts.connection.as_ref().ok())
    }

    /// Whether a GatewayClass of this installation names an OperatorContext, readable or not.
    pub fn names(&self, context: &Key) -> bool {
        let ours = |class: &&GatewayClass| class.controller_name == self.settings.controller_name;
        let named = |parameters: &ParametersRef| {
            (parameters.group.as_str(), parameters.kind.as_str()) == (TYK_GROUP, "OperatorContext")
                && parameters.name == context.name
                && parameters.namespace.as_ref() == Some(&context.namespace)
        };
        let mut parameters = self.store.classes.values().filter(ours);
        parameters.any(|class| class.parameters.as_ref().is_some_and(named))
    }

    /// The Secret that an OperatorContext names.
    pub fn secret_of(&self, context: &Key) -> Option<Key> {
        let (name, namespace) = self.store.contexts.get(context)?.secret_ref.as_ref()?;
        Some(Key::new(namespace.as_ref().unwrap_or(&context.namespace), name))
    }

    /// Whether the object was seen, and is not gone.
    pub fn has(&self, kind: Kind, key: &Key) -> bool {
        self.store.has(kind, key)
    }

    /// uid and generation of an object that an answer is about, as it was seen last.
    pub fn stamp(&self, kind: Kind, key: &Key) -> Option<(&str, i64)> {
        let meta = match kind {
            Kind::GatewayClass => &self.store.classes.get(key)?.meta,
            Kind::Gateway => &self.store.gateways.get(key)?.meta,
            Kind::HttpRoute => &self.store.routes.get(key)?.meta,
            Kind::TykOasApiDefinition => &self.store.definitions.get(key)?.meta,
            _ => return None,
        };
        Some((&meta.uid, meta.generation))
    }

    /// Secrets and ConfigMaps that answers looked for, there or not.
    pub fn named(&self) -> BTreeSet<(Kind, Key)> {
        self.graph.contents().clone()
    }

    /// Whose answer may be another once more is known of this object.
    pub fn depends(&self, kind: Kind, key: &Key) -> Changes {
        let mut open: Vec<Cell> = match kind {
            Kind::GatewayClass => vec![Cell::new(What::Object(kind), key), Cell::new(What::Class, key)],
            Kind::Gateway => vec![
                Cell::new(What::Object(kind), key),
                Cell::new(What::Gateway, key),
                Cell::new(What::Attachment(Target::Gateway), key),
            ],
            Kind::HttpRoute => vec![Cell::new(What::Object(kind), key), Cell::new(What::Route, key)],
            Kind::ReferenceGrant => vec![Cell::new(What::Grants, &Key::new(&key.namespace, ""))],
            // It may be meant for anything in its namespace.
            Kind::TykOasApiDefinition => {
                let here = |of: &&Key| of.namespace == key.namespace;
                let gateways = self.answers.gateways.keys().filter(here);
                let routes = self.answers.routes.keys().filter(here);
                std::iter::once(Cell::new(What::Definition, key))
                    .chain(gateways.map(|key| Cell::new(What::Attachment(Target::Gateway), key)))
                    .chain(routes.map(|key| Cell::new(What::Route, key)))
                    .collect()
            }
            _ => vec![Cell::new(What::Object(kind), key)],
        };
        let mut met: BTreeSet<Cell> = BTreeSet::new();
        let mut found = Changes::default();
        while let Some(cell) = open.pop() {
            if !met.insert(cell.clone()) {
                continue;
            }
            match cell.what {
                What::Class => {
                    found.classes.insert(cell.key.name.clone());
                }
                What::Gateway => {
                    found.gateways.insert(cell.key.clone());
                }
                What::Route => {
                    found.routes.insert(cell.key.clone());
                    open.push(Cell::new(What::RouteOurs, &cell.key));
                }
                What::Definition => {
                    found.definitions.insert(cell.key.clone());
                }
                What::Object(_) | What::Slices | What::Grants | What::Attachment(_) | What::RouteOurs => {}
            }
            open.extend(self.graph.readers(&cell).cloned());
        }
        found
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
        for site in std::mem::take(&mut dirty.sites) {
            self.neighbours_again(&site, &mut before);
        }
        for at in std::mem::take(&mut dirty.attached) {
            self.attached_again(at, &mut dirty);
        }
        self.routes_again(&mut dirty, &mut changes, &mut before);
        self.told(before, &mut changes);
        for key in std::mem::take(&mut dirty.definitions) {
            self.definition_again(key, &mut changes);
        }
        changes
    }

    /// Gateways whose answer is another than before.
    fn told(&self, before: BTreeMap<Key, Option<GatewayVerdict>>, changes: &mut Changes) {
        for (key, old) in before {
            if self.gateway(&key) != old.as_ref() {
                changes.gateways.insert(key);
            }
        }
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
        let (had, has) = (
            old.and_then(|old| old.facts.site.clone()),
            new.as_ref().and_then(|(_, facts)| facts.site.clone()),
        );
        if old.map(|old| &*old.facts) != new.as_ref().map(|(_, facts)| facts) {
            dirty.touch(&self.graph, &cell);
            dirty.sites.extend([&had, &has].into_iter().flatten().cloned());
        }
        if had != has {
            if let Some(had) = had
                && let Some(gateways) = self.sites.get_mut(&had)
            {
                gateways.remove(key);
                if gateways.is_empty() {
                    self.sites.remove(&had);
                }
            }
            if let Some(has) = &has {
                self.sites.entry(Arc::clone(has)).or_default().insert(key.clone());
            }
        }
        if has.is_none() {
            self.shared.remove(key);
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
                let accepted = verdict
                    .conditions
                    .iter()
                    .find(|condition| condition.type_ == "Accepted");
                let accepted = accepted.map(|condition| condition.message.clone());
                let mut answer = GatewayAnswer {
                    verdict,
                    facts: Arc::new(facts),
                    accepted: accepted.unwrap_or_default(),
                };
                answer.set_shared(self.shared.get(key));
                self.answers.gateways.insert(key.clone(), answer);
            }
            None => {
                self.answers.gateways.remove(key);
            }
        }
        self.graph.record(cell, reads);
    }

    /// Looks again at which Gateways of a Tyk share hosts.
    fn neighbours_again(&mut self, site: &Arc<str>, before: &mut BTreeMap<Key, Option<GatewayVerdict>>) {
        let keys = self.sites.get(site).cloned().unwrap_or_default();
        let facts = keys.iter().filter_map(|key| self.answers.gateways.get(key));
        let facts: Vec<Arc<GatewayFacts>> = facts.map(|answer| Arc::clone(&answer.facts)).collect();
        let mut shared = neighbours::shared(&facts.iter().map(|facts| &**facts).collect::<Vec<_>>());
        for key in keys {
            let new = shared.remove(&key);
            if self.shared.get(&key) == new.as_ref() {
                continue;
            }
            if let Some(answer) = self.answers.gateways.get_mut(&key) {
                before
                    .entry(key.clone())
                    .or_insert_with(|| Some(answer.verdict.clone()));
                answer.set_shared(new.as_ref());
            }
            match new {
                Some(new) => self.shared.insert(key, new),
                None => self.shared.remove(&key),
            };
        }
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
            let (had, has) = (self.effective(&key, had), self.effective(&key, has));
            self.recount(&had, &has, before);
            if new.is_none() {
                self.failing.remove(&key);
            }
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
