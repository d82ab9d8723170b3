//! The ways to Tyk of one pass over the routes, and what came of each remembered API.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;

use super::tyk::{Left, Way};
use crate::tyk::{
    client::{TykError, TykErrorClass},
    httproute::{
        memory::{Memory, Place},
        places::{Astray, lead},
    },
    objects::Key,
    sync::{Done, Job, Trouble},
    translate::Owner,
    verdict::Connection,
};

/// A route that remembers something.
pub(super) struct Remembering {
    pub(super) owner: Owner,
    pub(super) memory: Memory,
}

/// What became of it.
pub(super) enum Outcome {
    Gone,
    Foreign,
    Left { passes: bool },
}

/// One remembered API.
pub(super) struct Answer {
    pub(super) place: Place,
    pub(super) left: Left,
    pub(super) outcome: Outcome,
}

/// The ways to Tyk of one pass. One that leads nowhere is not tried again for the next route.
pub(super) struct Roads<'a> {
    way: &'a Way,
    /// Contexts that GatewayClasses of the operator name.
    named: &'a BTreeSet<Key>,
    end: Instant,
    known: Mutex<BTreeMap<Key, Result<Arc<Connection>, TykError>>>,
}

impl<'a> Roads<'a> {
    pub(super) fn new(way: &'a Way, named: &'a BTreeSet<Key>, end: Instant) -> Self {
        Self {
            way,
            named,
            end,
            known: Mutex::default(),
        }
    }

    fn remember(&self, context: &Key, found: Result<Arc<Connection>, TykError>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(context.clone(), found);
    }

    async fn connection(&self, place: &Place) -> Result<Arc<Connection>, TykError> {
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&place.context).cloned()
        };
        let found = match known {
            Some(found) => found,
            None => {
                let (way, context) = (self.way, &place.context);
                let named = self.named.contains(context);
                let found = lead(&*way.contexts, &*way.record, named, context).await;
                let found = found.map_err(Astray::detailed);
                self.remember(&place.context, found.clone());
                found
            }
        }?;
        if found.digest() == place.tyk {
            return Ok(found);
        }
        Err(TykError::new(
            TykErrorClass::NoConnection,
            "it leads to another Tyk than when the API was written (its url or org is another)",
        ))
    }

    /// What became of everything that a route remembers.
    pub(super) async fn route(&self, route: &Remembering) -> Vec<Answer> {
        let mut answers = Vec::new();
        for (place, ids) in route.memory.places() {
            let done = match tokio::time::timeout_at(self.end, self.place(route, place, ids)).await {
                Ok(done) => done,
                Err(_) => Err(TykError::new(TykErrorClass::Unreachable, "no answer in time")),
            };
            answers.extend(ids.iter().map(|id| answer(route, place, id, &done)));
        }
        answers
    }

    async fn place(
        &self,
        route: &Remembering,
        place: &Place,
        ids: &BTreeSet<String>,
    ) -> Result<Done, TykError> {
        let connection = self.connection(place).await?;
        let job = Job {
            owner: route.owner.clone(),
            apis: Vec::new(),
            remove: ids.iter().cloned().collect(),
            certificates: Vec::new(),
            trusted: false,
        };
        let done = self.way.sync.submit(&connection, job).await;
        self.way.sync.forget(&route.owner.route);
        let dead = done.remaining.values().find_map(|trouble| match trouble {
            Trouble::Failed(error)
                if matches!(
                    error.class,
                    TykErrorClass::Unreachable | TykErrorClass::Denied | TykErrorClass::NoConnection
                ) =>
            {
                Some(error.clone())
            }
            _ => None,
        });
        if let Some(error) = dead {
            self.remember(&place.context, Err(error));
        }
        Ok(done)
    }
}

fn answer(route: &Remembering, place: &Place, id: &str, done: &Result<Done, TykError>) -> Answer {
    let failed = |error: &TykError| {
        (
            Outcome::Left {
                passes: error.passes(),
            },
            error.message.clone(),
        )
    };
    let (outcome, why) = match done {
        Err(error) => failed(error),
        Ok(done) => match done.remaining.get(id) {
            None => (Outcome::Gone, String::new()),
            Some(Trouble::Failed(error)) => failed(error),
            Some(Trouble::Foreign { owner }) => (Outcome::Foreign, format!("it belongs to {owner}")),
            Some(Trouble::Renamed { .. } | Trouble::NotLoaded) => {
                (Outcome::Left { passes: true }, "it is still there".to_owned())
            }
        },
    };
    Answer {
        place: place.clone(),
        left: Left {
            id: id.to_owned(),
            route: route.owner.route.clone(),
            context: place.context.clone(),
            why,
        },
        outcome,
    }
}
