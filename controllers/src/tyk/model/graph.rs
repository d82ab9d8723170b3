//! Who read what: the record from which a change finds the answers that it may alter. Knows nothing of meaning.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::super::objects::{Key, Kind};

/// What a definition may be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    Gateway,
    Route,
}

/// What kind of thing a [`Cell`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum What {
    /// An object, there or not.
    Object(Kind),
    /// The EndpointSlices of a Service.
    Slices,
    /// The ReferenceGrants of a namespace (the key's namespace).
    Grants,
    /// What follows for a GatewayClass (the key's name).
    Class,
    /// What follows for a Gateway.
    Gateway,
    /// The definition that counts for a target.
    Attachment(Target),
    /// Whether a route has a parent of ours.
    RouteOurs,
    /// The answer for a route.
    Route,
    /// The answer for a definition.
    Definition,
}

/// Something that can be read, or that reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) what: What,
    pub(super) key: Key,
}

impl Cell {
    pub(super) fn new(what: What, key: &Key) -> Self {
        Self {
            what,
            key: key.clone(),
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    cell: Option<Arc<Cell>>,
    /// Sorted, without duplicates.
    reads: Box<[u32]>,
    readers: BTreeSet<u32>,
}

/// Cells in use, by number. A cell that nobody reads and that reads nothing is forgotten.
#[derive(Debug, Default)]
pub(super) struct Graph {
    ids: HashMap<Arc<Cell>, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Secrets and ConfigMaps among the cells with readers: asked for at each event, and few among many cells.
    contents: BTreeSet<(Kind, Key)>,
}

/// The object that a cell is, if it is one whose content is read on demand.
fn content(cell: &Cell) -> Option<(Kind, Key)> {
    match cell.what {
        What::Object(kind @ (Kind::Secret | Kind::ConfigMap)) => Some((kind, cell.key.clone())),
        _ => None,
    }
}

fn index(id: u32) -> usize {
    id as usize
}

impl Graph {
    fn intern(&mut self, cell: Cell) -> u32 {
        if let Some(id) = self.ids.get(&cell) {
            return *id;
        }
        let cell = Arc::new(cell);
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = self.slots.get_mut(index(id)) {
            slot.cell = Some(Arc::clone(&cell));
        }
        self.ids.insert(cell, id);
        id
    }

    fn release(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(index(id)) else {
            return;
        };
        if slot.readers.is_empty()
            && slot.reads.is_empty()
            && let Some(cell) = slot.cell.take()
        {
            self.ids.remove(&cell);
            self.free.push(id);
        }
    }

    /// Notes that `reader` has read exactly this; nothing forgets the reader.
    pub(super) fn record(&mut self, reader: Cell, reads: Vec<Cell>) {
        if reads.is_empty() && !self.ids.contains_key(&reader) {
            return;
        }
        let reader = self.intern(reader);
        let mut new: Vec<u32> = reads.into_iter().map(|cell| self.intern(cell)).collect();
        new.sort_unstable();
        new.dedup();
        let old = match self.slots.get_mut(index(reader)) {
            Some(slot) if *slot.reads != *new => {
                std::mem::replace(&mut slot.reads, new.clone().into_boxed_slice())
            }
            _ => {
                self.release(reader);
                return;
            }
        };
        for id in &new {
            if old.binary_search(id).is_err()
                && let Some(slot) = self.slots.get_mut(index(*id))
            {
                if slot.readers.is_empty() {
                    self.contents.extend(slot.cell.as_deref().and_then(content));
                }
                slot.readers.insert(reader);
            }
        }
        for id in &*old {
            if new.binary_search(id).is_err() {
                if let Some(slot) = self.slots.get_mut(index(*id)) {
                    slot.readers.remove(&reader);
                    if slot.readers.is_empty()
                        && let Some(content) = slot.cell.as_deref().and_then(content)
                    {
                        self.contents.remove(&content);
                    }
                }
                self.release(*id);
            }
        }
        self.release(reader);
    }

    /// Those who read a cell.
    pub(super) fn readers(&self, cell: &Cell) -> impl Iterator<Item = &Cell> {
        self.ids
            .get(cell)
            .and_then(|id| self.slots.get(index(*id)))
            .into_iter()
            .flat_map(|slot| &slot.readers)
            .filter_map(|id| self.slots.get(index(*id))?.cell.as_deref())
    }

    /// Every cell that somebody reads.
    pub(super) fn read(&self) -> impl Iterator<Item = &Cell> {
        self.slots
            .iter()
            .filter(|slot| !slot.readers.is_empty())
            .filter_map(|slot| slot.cell.as_deref())
    }

    /// Returns the Secrets and ConfigMaps that have readers.
    pub(super) fn contents(&self) -> &BTreeSet<(Kind, Key)> {
        &self.contents
    }

    /// How many cells are held.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(what: What, name: &str) -> Cell {
        Cell::new(what, &Key::new("ns", name))
    }

    #[test]
    fn contents_are_the_secrets_and_config_maps_with_readers() {
        let mut graph = Graph::default();
        let (one, two) = (cell(What::Route, "one"), cell(What::Route, "two"));
        let (secret, config) = (
            cell(What::Object(Kind::Secret), "s"),
            cell(What::Object(Kind::ConfigMap), "c"),
        );
        graph.record(
            one.clone(),
            vec![secret.clone(), cell(What::Object(Kind::Service), "x")],
        );
        graph.record(two.clone(), vec![secret.clone(), config]);
        assert_eq!(graph.contents().len(), 2);
        graph.record(two, vec![]);
        assert_eq!(*graph.contents(), [(Kind::Secret, secret.key)].into());
        graph.record(one, vec![]);
        assert!(graph.contents().is_empty());
    }

    #[test]
    fn what_was_read_last_counts_and_nothing_is_left_behind() {
        // given a route that read a Gateway and a Service
        let mut graph = Graph::default();
        let route = cell(What::Route, "r");
        let gateway = cell(What::Gateway, "g");
        let service = cell(What::Object(Kind::Service), "s");
        graph.record(
            route.clone(),
            vec![gateway.clone(), service.clone(), gateway.clone()],
        );
        assert_eq!(graph.readers(&service).collect::<Vec<_>>(), [&route]);
        // when it reads the Gateway alone
        graph.record(route.clone(), vec![gateway.clone()]);
        // then the Service finds it no longer
        assert_eq!(graph.readers(&service).count(), 0);
        assert_eq!(graph.readers(&gateway).count(), 1);
        // and when it reads nothing, the graph is empty, and numbers are used again
        graph.record(route.clone(), vec![]);
        assert_eq!(graph.len(), 0);
        graph.record(route, vec![service]);
        assert_eq!(graph.slots.len(), 3);
    }
}
