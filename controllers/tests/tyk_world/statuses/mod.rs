//! Given these objects, then this status: every condition and reason of the page "Conditions, reasons, events", through
//! all controllers to what is written. The rows and the tables of the page are compared, so that neither can have a
//! reason that the other lacks; that the page has what the program can say is shown by `controllers/tests/docs.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use reconcile_kit::{
    runtime::{Metrics, leadership::Leadership},
    testing::ApiServer,
};
use routewright::{
    app::{App, Doors, Options},
    ground::Ground,
    tyk::{
        client::{TykError, TykErrorClass},
        controllers::{self, Reach},
        httproute::contexts::KubeContexts,
        objects::Key,
        sync::{Done, Job, Syncing, Trouble},
        verdict::Connection,
    },
};
use serde_json::{Value, json};

use super::{contents::certificate, support, world::*};
use objects::*;

mod around;
mod objects;
mod page;
mod platform;
mod routes;

/// Where a status is read: the kind and name of an object, and the part of its status.
#[derive(Clone, Copy)]
enum At {
    Class(&'static str),
    Gateway(&'static str),
    Listener(&'static str, &'static str),
    /// The n-th own entry of `status.parents`.
    Parent(&'static str, usize),
    Definition(&'static str),
}

impl At {
    /// The table of the page that has its rows.
    fn table(self) -> &'static str {
        match self {
            Self::Class(_) => "gatewayclass",
            Self::Gateway(_) => "gateway",
            Self::Listener(..) => "listener",
            Self::Parent(..) => "httproute",
            Self::Definition(_) => "definition",
        }
    }

    fn status(self, server: &ApiServer) -> Value {
        let get = |kind: &str, namespace: &str, name: &str| {
            let object = server.get(kind, namespace, name);
            object.unwrap_or_else(|| panic!("no {kind} {name}"))["status"].clone()
        };
        match self {
            Self::Class(name) => get("GatewayClass", "", name),
            Self::Gateway(name) => get("Gateway", "web", name),
            Self::Definition(name) => get("TykOasApiDefinition", "web", name),
            Self::Listener(gateway, listener) => {
                let status = get("Gateway", "web", gateway);
                let list = status["listeners"].as_array().cloned().unwrap_or_default();
                let found = list.into_iter().find(|entry| entry["name"] == listener);
                found.unwrap_or_default()
            }
            Self::Parent(route, n) => get("HTTPRoute", "web", route)["parents"][n].clone(),
        }
    }
}

/// A row: given these objects beside the platform, then the status at this place says exactly this, and the message of
/// its first condition that is out of order holds these words: object, field, way out.
struct Row {
    given: Vec<Value>,
    at: At,
    says: &'static [&'static str],
    words: &'static [&'static str],
}

fn row(
    given: impl IntoIterator<Item = Value>,
    at: At,
    says: &'static [&'static str],
    words: &'static [&'static str],
) -> Row {
    Row {
        given: given.into_iter().collect(),
        at,
        says,
        words,
    }
}

/// The condition that a row's words are about: the first that says that something is the matter.
fn remarkable(says: &[&str]) -> Option<String> {
    let fine = |said: &&&str| {
        let (type_, rest) = said.split_once(' ').unwrap();
        rest.split_once('/').unwrap().1 == type_ && rest.starts_with("True")
    };
    let found = says.iter().find(|said| !fine(said))?;
    Some(found.split(' ').next().unwrap().to_owned())
}

const FINE: [&str; 3] = [
    "Accepted True/Accepted",
    "ResolvedRefs True/ResolvedRefs",
    "Programmed True/Programmed",
];
const SERVED: [&str; 2] = ["Accepted True/Accepted", "ResolvedRefs True/ResolvedRefs"];

/// A Tyk that takes everything but what this route wants.
struct Choosy;

#[async_trait]
impl Syncing for Choosy {
    async fn submit(&self, _: &Arc<Connection>, job: Job) -> Done {
        let mut done = Done::default();
        if job.owner.route.name == "r-refused-by-tyk" {
            let why = || TykError::new(TykErrorClass::Refused, "POST /tyk/apis/oas: 400 what Tyk says");
            done.troubled = job
                .apis
                .into_iter()
                .map(|api| (api.id.clone(), Trouble::Failed(why())))
                .collect();
        }
        done
    }
    fn forget(&self, _: &Key) {}
}

fn start(server: &ApiServer, options: &Options) -> App {
    let doors = Doors {
        tyk: Some(Arc::new(|ground: &Ground, _| Reach {
            sync: Arc::new(Choosy),
            contexts: Arc::new(KubeContexts(ground.client.clone())),
        })),
        ..Doors::default()
    };
    let client = server.client_as(support::OPERATOR);
    App::start_with(client, Leadership::always(), Metrics::default(), options, doors).unwrap()
}

/// Starts the operator on these objects and waits until it has said all; then the rows hold.
async fn hold(server: ApiServer, options: &Options, rows: &[Row]) {
    server.create(certificate("web", "good"));
    server.create(certificate("storage", "good"));
    for object in rows.iter().flat_map(|row| &row.given) {
        server.create(object.clone());
    }
    let mark = server.mark();
    let operator = start(&server, options);
    support::quiet(&server, mark).await;
    let mut wrong = Vec::new();
    for row in rows {
        let status = row.at.status(&server);
        let said = conditions(&status);
        if said != row.says {
            wrong.push(format!("{status:#}\nsays {said:?}\nnot  {:?}", row.says));
            continue;
        }
        let Some(type_) = remarkable(row.says).or(row.words.first().map(|_| "Accepted".to_owned())) else {
            continue;
        };
        assert!(!row.words.is_empty(), "{:?}: no word about {type_}", row.says);
        let message = message(&status, &type_);
        for word in row.words.iter().filter(|word| !message.contains(**word)) {
            wrong.push(format!("{type_}: {message:?} lacks {word:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    operator.shutdown().await;
}

/// All rows of the world in which Gateway API on Tyk is on.
fn served_rows() -> Vec<Row> {
    [
        platform::classes(),
        platform::gateways(),
        platform::listeners(),
        routes::routes(),
        routes::definitions(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn unknown_bundle_rows() -> Vec<Row> {
    vec![row(
        [],
        At::Class("tyk"),
        &[
            "Accepted True/Accepted",
            "SupportedVersion False/UnsupportedVersion",
        ],
        &[
            "gateways.gateway.networking.k8s.io: v1.99.0",
            "known are v1.2 to v1.7",
        ],
    )]
}

fn switched_off_rows() -> Vec<Row> {
    vec![row(
        [without_map("d-off", route_target("r"))],
        At::Definition("d-off"),
        &["Accepted Unknown/GatewayAPIUnavailable"],
        &["--enable-tyk"],
    )]
}

#[tokio::test(start_paused = true)]
async fn given_these_objects_then_this_status() {
    hold(ready(), &on(), &served_rows()).await;
}

#[tokio::test(start_paused = true)]
async fn given_a_bundle_that_is_not_known_then_this_status() {
    let server = ready();
    let bundle =
        json!({"metadata": {"annotations": {"gateway.networking.k8s.io/bundle-version": "v1.99.0"}}});
    let crd = "gateways.gateway.networking.k8s.io";
    server.edit("CustomResourceDefinition", "", crd, bundle);
    hold(server, &on(), &unknown_bundle_rows()).await;
}

#[tokio::test(start_paused = true)]
async fn given_gateway_api_on_tyk_switched_off_then_this_status() {
    let options = Options {
        tyk: controllers::Options {
            definitions: true,
            ..Default::default()
        },
        ..support::options()
    };
    hold(ready(), &options, &switched_off_rows()).await;
}
