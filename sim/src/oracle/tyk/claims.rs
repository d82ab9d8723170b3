//! Claims: who serves a host and path on a data plane. The oldest route wins, then by namespace and name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::{
        hosts,
        snapshot::{GATEWAY, World, at, text},
    },
    Installation, Tri,
    platform::{Platform, normal_url},
    routes::{Apis, Route},
};

/// A host and a path on the data plane of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) gateway: usize,
    pub(super) host: Option<String>,
    pub(super) path: String,
}

/// How a route stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Served,
    Open,
    /// To a route, `namespace/name`.
    Lost(String),
}

/// Who owns a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// A document in Tyk.
#[derive(Clone, Debug)]
pub(super) struct Held<'a> {
    pub(super) url: String,
    /// The route that it belongs to, if it is one of this cluster and installation.
    pub(super) owner: Option<Owner>,
    pub(super) host: Option<String>,
    pub(super) path: String,
    pub(super) document: &'a Value,
}

/// What follows from routes and documents together.
pub(super) struct Claims {
    /// By route and place.
    outcomes: BTreeMap<(usize, Place), Outcome>,
    /// Place of each parent of each route.
    parents: BTreeMap<(usize, usize), Vec<Place>>,
    answering: BTreeSet<String>,
    urls: BTreeMap<usize, Option<String>>,
    crowded: BTreeSet<(usize, usize)>,
}

/// The documents of every Tyk.
pub(super) fn held<'a>(world: &World<'a>, installation: &Installation<'_>) -> Vec<Held<'a>> {
    let mut all = Vec::new();
    for (url, documents) in &world.snapshot.tyk {
        for document in documents {
            let owner = at(document, "/x-routewright-owner");
            let ours = text(owner, "/cluster") == Some(&installation.cluster)
                && text(owner, "/controller") == Some(&installation.tyk.controller_name);
            let field = |pointer| text(owner, pointer).unwrap_or_default().to_owned();
            let server = at(document, "/x-tyk-api-gateway/server");
            all.push(Held {
                url: normal_url(url),
                owner: ours.then(|| Owner {
                    namespace: field("/route/namespace"),
                    name: field("/route/name"),
                    uid: field("/route/uid"),
                }),
                host: text(server, "/customDomain/name").map(hosts::of_custom_domain),
                path: text(server, "/listenPath/value").unwrap_or_default().to_owned(),
                document,
            });
        }
    }
    all
}

/// A route that wants a place.
struct Contender<'b> {
    route: usize,
    place: Place,
    sure: Tri,
    seniority: (&'b str, &'b str, &'b str),
}

impl Claims {
    pub(super) fn of(
        world: &World<'_>,
        installation: &Installation<'_>,
        platform: &Platform<'_>,
        routes: &[Route<'_>],
    ) -> Self {
        let held = held(world, installation);
        let mut claims = Self {
            outcomes: BTreeMap::new(),
            parents: BTreeMap::new(),
            answering: world.snapshot.tyk.keys().map(|url| normal_url(url)).collect(),
            urls: BTreeMap::new(),
            crowded: BTreeSet::new(),
        };
        for (index, gateway) in platform.gateways.iter().enumerate() {
            let url = gateway
                .connection
                .as_ref()
                .map(|connection| connection.url.clone());
            claims.urls.insert(index, url);
        }
        let mut contenders = contenders(routes);
        contenders.sort_by(|a, b| (a.seniority, &a.place).cmp(&(b.seniority, &b.place)));
        let mut winners: Vec<(&Contender<'_>, Tri)> = Vec::new();
        for contender in &contenders {
            let outcome = outcome(platform, routes, contender, &winners);
            // Lenient: a place that another route still has a document at, without wanting it for sure, is open.
            let outcome = match stands_in_the_way(world, &claims, routes, contender, &held) {
                true if outcome == Outcome::Served => Outcome::Open,
                _ => outcome,
            };
            match outcome {
                Outcome::Served => winners.push((contender, Tri::Yes)),
                Outcome::Open => winners.push((contender, Tri::Maybe)),
                Outcome::Lost(_) => {}
            }
            claims
                .outcomes
                .insert((contender.route, contender.place.clone()), outcome);
        }
        claims.assign(routes);
        claims.crowd(&held);
        claims
    }

    /// Which places belong to which parent of a route.
    fn assign(&mut self, routes: &[Route<'_>]) {
        for (index, route) in routes.iter().enumerate() {
            for (number, parent) in route.parents.iter().enumerate() {
                let mut places = BTreeSet::new();
                for one in parent.yields.iter() {
                    for path in route.paths() {
                        places.insert(Place {
                            gateway: parent.gateway,
                            host: one.host.clone(),
                            path,
                        });
                    }
                }
                self.parents.insert((index, number), places.into_iter().collect());
            }
        }
    }

    /// Lenient: where a document of another owner has host and path, Tyk may refuse or rename ours.
    fn crowd(&mut self, held: &[Held<'_>]) {
        for (place_of, places) in &self.parents {
            let foreign = |place: &Place| {
                let url = self.urls.get(&place.gateway).cloned().flatten();
                held.iter().any(|held| {
                    held.owner.is_none()
                        && Some(&held.url) == url.as_ref()
                        && held.host == place.host
                        && held.path == place.path
                })
            };
            if places.iter().any(foreign) {
                self.crowded.insert(*place_of);
            }
        }
    }

    /// Whether the Tyk at a normalised URL answers.
    pub(super) fn answers(&self, url: &str) -> bool {
        self.answering.contains(url)
    }

    /// Whether a foreign document may be in the way of a parent.
    pub(super) fn is_crowded(&self, route: usize, parent: usize) -> bool {
        self.crowded.contains(&(route, parent))
    }

    fn of_parent(&self, route: usize, parent: usize) -> impl Iterator<Item = (&Place, &Outcome)> {
        let places = self.parents.get(&(route, parent)).into_iter().flatten();
        places.filter_map(move |place| Some((place, self.outcomes.get(&(route, place.clone()))?)))
    }

    /// Places that a parent lost for sure: host, path, winner.
    pub(super) fn lost(&self, route: usize, parent: usize) -> Vec<(String, String, String)> {
        self.of_parent(route, parent)
            .filter_map(|(place, outcome)| match outcome {
                Outcome::Lost(winner) => {
                    let host = place.host.clone().unwrap_or_default();
                    Some((host, place.path.clone(), winner.clone()))
                }
                _ => None,
            })
            .collect()
    }

    /// Whether some place of a parent is open.
    pub(super) fn is_open(&self, route: usize, parent: usize) -> bool {
        self.of_parent(route, parent)
            .any(|(_, outcome)| *outcome == Outcome::Open)
    }

    /// How a route stands at a place.
    pub(super) fn outcome(&self, route: usize, place: &Place) -> Option<&Outcome> {
        self.outcomes.get(&(route, place.clone()))
    }

    /// Whether some place of a route is lost or open. Lenient: whether a later parent is DataPlaneShared then is left open.
    pub(super) fn loses(&self, route: usize) -> bool {
        let mut all = self.outcomes.iter();
        all.any(|((index, _), outcome)| *index == route && *outcome != Outcome::Served)
    }

    /// Every place that a route serves for sure.
    pub(super) fn places(&self, route: usize) -> Vec<&Place> {
        let all = self.outcomes.iter();
        let served = all.filter(|((index, _), outcome)| *index == route && **outcome == Outcome::Served);
        served.map(|((_, place), _)| place).collect()
    }

    /// Whether a route has APIs for sure, and whether it may have more.
    pub(super) fn served(&self, route: usize) -> (bool, bool) {
        let of_route = |outcome: &Outcome| {
            let mut all = self.outcomes.iter();
            all.any(|((index, _), found)| *index == route && found == outcome)
        };
        (of_route(&Outcome::Served), of_route(&Outcome::Open))
    }

    /// Whether every Tyk that a route has APIs at answers.
    pub(super) fn all_answer(&self, route: usize) -> bool {
        self.places(route).iter().all(|place| {
            let url = self.urls.get(&place.gateway).cloned().flatten();
            url.is_some_and(|url| self.answers(&url))
        })
    }

    /// Routes that are attached to a listener: at least, at most.
    pub(super) fn attached(&self, routes: &[Route<'_>], gateway: usize, listener: usize) -> (i64, i64) {
        let (mut least, mut most) = (0, 0);
        for (index, route) in routes.iter().enumerate() {
            let mut attached = Tri::No;
            for (number, parent) in route.parents.iter().enumerate() {
                if parent.gateway != gateway {
                    continue;
                }
                let yields = parent.yields.iter().any(|one| one.listener == listener);
                let failed = !self.all_answer(index) || self.is_crowded(index, number);
                let this = match (yields, parent.accepted.as_slice()) {
                    _ if parent.open.is_some() => Tri::Maybe,
                    (false, _) => Tri::No,
                    (true, ["Accepted"]) if !failed => Tri::Yes,
                    (true, accepted) if accepted.contains(&"Accepted") => Tri::Maybe,
                    (true, ["DataPlaneShared"]) if self.loses(index) => Tri::Maybe,
                    (true, _) => Tri::No,
                };
                attached = match (attached, this) {
                    (Tri::Yes, _) | (_, Tri::Yes) => Tri::Yes,
                    (Tri::Maybe, _) | (_, Tri::Maybe) => Tri::Maybe,
                    _ => Tri::No,
                };
            }
            least += i64::from(attached == Tri::Yes);
            most += i64::from(attached != Tri::No);
        }
        (least, most)
    }
}

/// Every place that a route wants and that a listener may serve, each once per route.
fn contenders<'b>(routes: &'b [Route<'_>]) -> Vec<Contender<'b>> {
    let mut all: BTreeMap<(usize, Place), Contender<'b>> = BTreeMap::new();
    for (index, route) in routes.iter().enumerate() {
        for parent in &route.parents {
            let base = match parent.apis {
                _ if parent.open.is_some() => Tri::Maybe,
                Apis::Written => Tri::Yes,
                Apis::Open | Apis::Stay => Tri::Maybe,
                Apis::Removed => continue,
            };
            for one in &parent.yields {
                for path in route.paths() {
                    let place = Place {
                        gateway: parent.gateway,
                        host: one.host.clone(),
                        path,
                    };
                    let sure = match (base, one.valid) {
                        (Tri::Yes, Tri::Yes) => Tri::Yes,
                        // Lenient: whether a place behind an invalid listener is claimed is left open; it is not served.
                        (_, Tri::No) => continue,
                        _ => Tri::Maybe,
                    };
                    let contender = all.entry((index, place.clone())).or_insert(Contender {
                        route: index,
                        place,
                        sure,
                        seniority: route.object.seniority(),
                    });
                    if sure == Tri::Yes {
                        contender.sure = Tri::Yes;
                    }
                }
            }
        }
    }
    all.into_values().collect()
}

/// Against the older winners of the place: a sure one takes it, one that may have it leaves it open.
fn outcome(
    platform: &Platform<'_>,
    routes: &[Route<'_>],
    contender: &Contender<'_>,
    winners: &[(&Contender<'_>, Tri)],
) -> Outcome {
    let rivals = winners.iter().filter(|(winner, _)| {
        let (one, other) = (&winner.place, &contender.place);
        winner.route != contender.route
            && one.host == other.host
            && one.path == other.path
            && platform.share(one.gateway, other.gateway)
    });
    let mut open = contender.sure != Tri::Yes;
    for (winner, sure) in rivals {
        if *sure == Tri::Yes && contender.sure == Tri::Yes {
            let object = routes[winner.route].object;
            return Outcome::Lost(format!("{}/{}", object.namespace(), object.name()));
        }
        open = true;
    }
    if open { Outcome::Open } else { Outcome::Served }
}

/// Whether a route that is being deleted, or whose APIs stay as last written, has a document at the place.
fn stands_in_the_way(
    world: &World<'_>,
    claims: &Claims,
    routes: &[Route<'_>],
    contender: &Contender<'_>,
    held: &[Held<'_>],
) -> bool {
    let own = routes[contender.route].object;
    let url = claims.urls.get(&contender.place.gateway).cloned().flatten();
    held.iter().any(|held| {
        let Some(owner) = &held.owner else { return false };
        let same = held.host == contender.place.host
            && held.path == contender.place.path
            && Some(&held.url) == url.as_ref();
        let another = (owner.namespace.as_str(), owner.name.as_str()) != (own.namespace(), own.name());
        let stays = || {
            let route = world.get(GATEWAY, "HTTPRoute", &owner.namespace, &owner.name);
            let parents = routes.iter().find(|route| {
                route.object.namespace() == owner.namespace && route.object.name() == owner.name
            });
            let kept = |route: &Route<'_>| {
                route.parents.iter().any(|parent| {
                    parent.open.is_some() || !matches!(parent.apis, Apis::Written | Apis::Removed)
                })
            };
            route.is_some_and(|route| route.is_deleting()) || parents.is_some_and(kept)
        };
        same && another && stays()
    })
}
