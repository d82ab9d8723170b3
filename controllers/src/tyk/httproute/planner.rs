//! The planner of `tyk-httproute`: asks the model, makes the documents, and puts beside them what the route remembers.
//! What is to be done with it is decided in `intent`; what is said at the end is said here.

use std::{fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::{Resource, ResourceExt};
use reconcile_kit::{
    Children, Condition, ErrorClass, Needs, Note, Outcome, Plan, Planner, ReconcileError, Report, Request,
    StatusField, Verdict,
    status::{StatusContract, StatusMode},
};
use serde_json::Value;

use super::{
    entries::{self, FIELD},
    intent::Wanted,
    memory::Memory,
    names,
};
use crate::tyk::{
    Settings,
    objects::{Key, route::ParentRef},
    sync::Routes,
    translate::Owner,
    verdict::{Connection, Notice, ParentVerdict, RouteVerdict},
    world::{Answer, WatchedRoute, World},
};

/// What is ours in the status of a route. The list of parents is atomic and others write it too.
pub const CONTRACT: StatusContract = StatusContract {
    manager: "routewright-tyk-httproute",
    conditions: &["Accepted", "ResolvedRefs", "PartiallyInvalid"],
    fields: &[FIELD],
    mode: StatusMode::Patch,
};

/// Event about anything that keeps a route from being looked at to the end.
pub const FAILED_REASON: &str = "ReconcileFailed";

/// What the planner and its effects ask of the model. A seam, so that both can be tested alone.
pub trait Known: Send + Sync + 'static {
    /// Tells this cluster's APIs from those of others; `None` while it is not known.
    fn cluster(&self) -> Option<String>;
    /// The model's answer for a route.
    fn route(&self, route: &Key) -> Answer<RouteVerdict>;
    /// Gateways some of whose APIs of the route do not stand: their listeners do not count it.
    fn failing(&self, route: &Key, gateways: std::collections::BTreeSet<Key>);
    /// Whether a GatewayClass of this installation names an OperatorContext now.
    fn names(&self, context: &Key) -> bool;
    /// The Secret that an OperatorContext names.
    fn secret_of(&self, context: &Key) -> Option<Key>;
}

impl Known for World {
    fn cluster(&self) -> Option<String> {
        World::cluster(self)
    }
    fn route(&self, route: &Key) -> Answer<RouteVerdict> {
        World::route(self, route)
    }
    fn failing(&self, route: &Key, gateways: std::collections::BTreeSet<Key>) {
        World::failing(self, route, gateways);
    }
    fn names(&self, context: &Key) -> bool {
        World::names(self, context)
    }
    fn secret_of(&self, context: &Key) -> Option<Key> {
        World::secret_of(self, context)
    }
}

/// The routes of the cluster, for whoever looks for what has none.
pub struct Present {
    /// Shows them.
    pub world: World,
    /// controllerName of this installation.
    pub controller: String,
}

impl Routes for Present {
    fn installation(&self) -> Option<(String, String)> {
        Some((self.world.cluster()?, self.controller.clone()))
    }
    fn exists(&self, route: &Key) -> Option<bool> {
        self.world.exists(route)
    }
    fn leads_to(&self, connection: &Connection) -> bool {
        let same = |led: &Arc<Connection>| led.mode == connection.mode && led.tyk() == connection.tyk();
        self.world.names(&connection.context) || self.world.connections().iter().any(same)
    }
}

/// What is known of a route.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// This is to be made true.
    Work(Box<Work>),
    /// This came of it.
    Said(Box<Said>),
}

/// What a run needs.
#[derive(Clone, PartialEq)]
pub struct Work {
    /// The route as an owner of APIs.
    pub owner: Owner,
    /// What is wanted; of a route that is being deleted, nothing.
    pub wanted: Wanted,
    /// What its annotation remembers.
    pub memory: Memory,
    /// The digest of the documents that stood when the annotation was written.
    pub digest: Option<String>,
    /// What is said of each parent of ours, if everything stands.
    pub parents: Vec<ParentVerdict>,
    /// Events that hold while the route is like this.
    pub notices: Vec<Notice>,
    /// Status says that everything stands as it is wanted now.
    pub confirmed: bool,
}

// Without the documents.
impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("route", &self.owner.route)
            .field("wanted", &self.wanted)
            .field("memory", &self.memory)
            .field("confirmed", &self.confirmed)
            .finish_non_exhaustive()
    }
}

/// What is said of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Value of controllerName in own entries.
    pub controller: String,
    /// Own parents with their conditions.
    pub parents: Vec<(ParentRef, Vec<Condition>)>,
    /// Events that hold while it is like this.
    pub notes: Vec<Note>,
    /// When to look again.
    pub outcome: Outcome,
}

/// The controller.
pub struct RoutePlanner {
    world: Arc<dyn Known>,
    settings: Settings,
}

impl RoutePlanner {
    /// Asks this world.
    pub fn new(world: Arc<dyn Known>, settings: Settings) -> Self {
        Self { world, settings }
    }

    fn look(&self, route: &WatchedRoute, deleting: bool) -> Result<Work, ReconcileError> {
        let key = route.key();
        let cluster = self
            .world
            .cluster()
            .ok_or_else(|| ReconcileError::new(ErrorClass::NotReady, "the cluster's id is not known yet"))?;
        let verdict = match deleting {
            // What goes needs nobody's opinion.
            true => None,
            false => match self.world.route(&key) {
                Answer::None => None,
                Answer::Known(verdict) => Some(verdict),
                Answer::Pending(kind, of) => {
                    let message = format!("{kind:?} {of} has not been read yet");
                    return Err(ReconcileError::new(ErrorClass::NotReady, message));
                }
            },
        };
        let controller = self.settings.controller_name.clone();
        let owner = Owner {
            cluster,
            controller: controller.clone(),
            uid: route.uid().unwrap_or_default(),
            route: key,
        };
        let annotation = route.annotation(&names::annotation(&controller));
        let memory = annotation.map(Memory::parse).unwrap_or_default();
        let digest = annotation.and_then(Memory::digest);
        let Some(verdict) = verdict else {
            return Ok(Work {
                owner,
                wanted: Wanted::default(),
                memory,
                digest,
                parents: Vec::new(),
                notices: Vec::new(),
                confirmed: false,
            });
        };
        Ok(Work {
            owner,
            wanted: Wanted::of(&verdict, &self.settings),
            memory,
            digest,
            confirmed: entries::confirmed(
                route.status_field(FIELD).as_ref(),
                &controller,
                &verdict.parents,
                route.meta().generation,
            ),
            parents: verdict.parents,
            notices: verdict.notices,
        })
    }
}

impl Planner for RoutePlanner {
    type Object = WatchedRoute;
    type Verdict = Finding;
    const NAME: &'static str = "tyk-httproute";

    fn needs(_: &WatchedRoute) -> Needs {
        // Flag and APIs decide whether the controller runs at all.
        Needs::default()
    }

    async fn plan(&self, request: &Request<WatchedRoute>) -> Result<Plan<Finding>, ReconcileError> {
        let deleting = request.deleting || request.object.meta().deletion_timestamp.is_some();
        let work = self.look(&request.object, deleting)?;
        Ok(Plan::report(Finding::Work(Box::new(work))))
    }

    fn report(route: &WatchedRoute, verdict: &Verdict<Finding>, _: &Children) -> Report {
        let said = match verdict {
            Verdict::Report(Finding::Said(said)) => said,
            // Nothing was done, so there is nothing to say.
            Verdict::Report(Finding::Work(_)) | Verdict::Hold(_) => return Report::untouched(Outcome::Done),
        };
        let mut report = match route.meta().deletion_timestamp.is_some() {
            // Nobody waits for the status of what goes; what holds it back is an event.
            true => Report::untouched(said.outcome.clone()),
            false => Report::new(said.outcome.clone()).field(
                FIELD,
                StatusField::Entries(entries::entries(&said.controller, said.parents.clone())),
            ),
        };
        report.notes.clone_from(&said.notes);
        report
    }

    fn conditions(route: &WatchedRoute) -> &[MetaCondition] {
        route.conditions()
    }

    fn status_field(route: &WatchedRoute, field: &str) -> Option<Value> {
        route.status_field(field)
    }

    fn report_error(_: &WatchedRoute, error: &ReconcileError) -> Report {
        // What stands in Tyk and in status is as it was.
        Report::untouched(Outcome::Done).note(true, FAILED_REASON, error.message.clone())
    }
}
