//! `routewright cleanup --tyk` as the program, after the program has run: before the stand-in for Tyk as gateway and as
//! Dashboard, and before a Tyk Gateway if one is given.

use std::{
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use reconcile_kit::testing::ApiServer;
use routewright::tyk::httproute::names::{ANNOTATION, FINALIZER};
use routewright_tyk_double::Fault;
use serde_json::{Value, json};

use crate::{
    places::{CREDENTIAL, Kind, ORG, Place},
    process::{Folder, LIMIT, Running, on_a_socket, program},
    tyk_objects::{class, context, gateway, installed, route, route_named},
};

const CLUSTER: (&str, &str) = ("TYK_CLUSTER_ID", "cluster-1");

/// A cluster behind a socket.
struct Cluster {
    server: ApiServer,
    folder: Folder,
    url: String,
}

impl Cluster {
    async fn new() -> Self {
        let server = installed();
        server.delete("OperatorContext", "tyk", "main");
        let url = format!("http://{}", on_a_socket(&server).await);
        Self {
            server,
            folder: Folder::new(),
            url,
        }
    }

    /// An OperatorContext that leads to a Tyk.
    fn leads(&self, name: &str, kind: &Kind, tyk: &Place) {
        let mut context = context(name, &tyk.handle().url());
        context["spec"]["env"]["mode"] = json!(kind.mode());
        context["spec"]["env"]["org"] = json!(ORG);
        self.server.create(context);
    }

    fn operator(&self) -> Running {
        let variables = [("LEADER_ELECT", "false"), CLUSTER];
        Running::start_with(&self.folder, &self.url, &["--enable-tyk"], &variables)
    }

    /// The operator runs until every route says this, and ends.
    async fn operated(&self, wanted: &[(&str, &str)]) {
        let mut operator = self.operator();
        let end = Instant::now() + LIMIT;
        while !wanted.iter().all(|(name, says)| self.accepted(name) == *says) {
            let said: Vec<_> = wanted.iter().map(|(name, _)| self.accepted(name)).collect();
            assert!(Instant::now() < end, "{said:?}\n{}", operator.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (code, log) = tokio::task::spawn_blocking(move || operator.terminate())
            .await
            .unwrap();
        assert_eq!(code, Some(0), "{log}");
    }

    /// `routewright cleanup --tyk` with these words.
    async fn cleanup(&self, words: &[&str]) -> Output {
        let config = self.folder.kubeconfig(&self.url);
        let mut command = program(Some(&config), &["cleanup", "--tyk"]);
        command.args(words).env(CLUSTER.0, CLUSTER.1);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    fn route(&self, name: &str) -> Value {
        self.server.get("HTTPRoute", "shop", name).unwrap_or_default()
    }

    fn accepted(&self, name: &str) -> String {
        let route = self.route(name);
        let conditions = route["status"]["parents"][0]["conditions"].as_array().cloned();
        let found = conditions.into_iter().flatten().find(|c| c["type"] == "Accepted");
        found.map_or("-".into(), |c| {
            format!("{}: {}", c["reason"], c["message"]).replace('"', "")
        })
    }

    /// Finalizer, memory and entries of a route: is any of them there?
    fn traces(&self, name: &str) -> [bool; 3] {
        let route = self.route(name);
        let finalizers = route["metadata"]["finalizers"].as_array().cloned();
        [
            finalizers
                .into_iter()
                .flatten()
                .any(|finalizer| finalizer == FINALIZER),
            route["metadata"]["annotations"].get(ANNOTATION).is_some(),
            route["status"]["parents"]
                .as_array()
                .is_some_and(|list| !list.is_empty()),
        ]
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(output: &Output) -> String {
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

fn deleted(number: usize) -> String {
    format!("APIs deleted from Tyk: {number}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_operator_made_goes_and_nothing_else() {
    for kind in Kind::all() {
        // given an operator that has served two routes, and another cluster's API in the same Tyk
        let tyk = kind.start().await;
        let cluster = Cluster::new().await;
        cluster.leads("main", &kind, &tyk);
        cluster.server.create(route(&["/a", "/b"]));
        cluster.server.create(route_named("s", "b.example.com", &["/"]));
        cluster
            .operated(&[("r", "Accepted: 2 APIs"), ("s", "Accepted: 1 API")])
            .await;
        assert_eq!(tyk.loaded().len(), 3, "{kind:?}");
        let mut theirs = tyk.files().into_values().next().unwrap();
        let foreign = "gwapi-00000000000000000001";
        theirs["x-routewright-owner"]["cluster"] = json!("cluster-2");
        theirs["x-tyk-api-gateway"]["info"]["id"] = json!(foreign);
        theirs["x-tyk-api-gateway"]["info"]["name"] = json!("theirs");
        theirs["x-tyk-api-gateway"]["server"]["listenPath"]["value"] = json!("/theirs");
        tyk.put(theirs);
        let before = tyk.files()[foreign].clone();
        // when the clean-up runs after it
        let output = cluster.cleanup(&[]).await;
        // then the operator's APIs are gone, and the other one is what it was
        assert_eq!(output.status.code(), Some(0), "{kind:?}: {}", said(&output));
        assert!(text(&output.stdout).contains(&deleted(3)), "{}", said(&output));
        assert_eq!(
            tyk.loaded().into_keys().collect::<Vec<_>>(),
            [foreign],
            "{kind:?}"
        );
        assert_eq!(tyk.files()[foreign], before);
        for name in ["r", "s"] {
            assert_eq!(
                cluster.traces(name),
                [false; 3],
                "{kind:?}: {}",
                cluster.route(name)
            );
        }
        // and what it says of Tyk is no secret
        assert!(!said(&output).contains(CREDENTIAL), "{}", said(&output));
        // and again there is nothing to do
        let steps = tyk.handle().steps();
        let again = cluster.cleanup(&[]).await;
        assert_eq!(again.status.code(), Some(0), "{}", said(&again));
        assert!(text(&again.stdout).contains(&deleted(0)), "{}", said(&again));
        assert_eq!(tyk.handle().steps(), steps, "{kind:?}: nothing is asked of Tyk");
        // and nothing holds the objects
        cluster.server.delete("HTTPRoute", "shop", "r");
        cluster.server.delete("Gateway", "infra", "edge");
        cluster.server.delete("GatewayClass", "", "tyk");
        assert!(cluster.server.get("HTTPRoute", "shop", "r").is_none());
        assert!(cluster.server.get("GatewayClass", "", "tyk").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tyk_that_does_not_let_it_in_is_told_and_another_one_is_emptied() {
    for (here, there) in [(Kind::Gateway, Kind::Dashboard), (Kind::Dashboard, Kind::Gateway)] {
        // given a route in each of two Tyks
        let (near, far) = (here.start().await, there.start().await);
        let cluster = Cluster::new().await;
        cluster.leads("main", &here, &near);
        cluster.leads("second", &there, &far);
        cluster.server.create(class("two", "second"));
        cluster.server.create(gateway("far", "two"));
        cluster.server.create(route(&["/a"]));
        let mut other = route_named("s", "b.example.com", &["/"]);
        other["spec"]["parentRefs"] = json!([{"name": "far", "namespace": "infra"}]);
        cluster.server.create(other);
        cluster
            .operated(&[("r", "Accepted: 1 API"), ("s", "Accepted: 1 API")])
            .await;
        assert_eq!((near.loaded().len(), far.loaded().len()), (1, 1));
        let id = far.loaded().into_keys().next().unwrap();
        for (fault, why) in [
            (Fault::on("", "/").always().drop_before(), "no answer"),
            (Fault::on("", "/").always().status(503, "later"), "503"),
            (Fault::on("", "/").always().status(401, "who are you"), "401"),
        ] {
            // when one of them does not answer, or not as it should
            far.handle().inject(fault);
            let output = cluster.cleanup(&["--tyk-timeout", "4"]).await;
            // then the other one is emptied, what is left is named, and no finalizer stays
            assert_eq!(output.status.code(), Some(1), "{}", said(&output));
            let error = text(&output.stderr);
            let line = format!("left in Tyk: {id} of HTTPRoute shop/s, by OperatorContext tyk/second: ");
            assert!(
                error.contains(&line) && error.contains("APIs left in Tyk: 1,"),
                "{error}"
            );
            println!("{there:?}, {why}: {}", error.lines().next().unwrap());
            assert!(!said(&output).contains(CREDENTIAL), "{}", said(&output));
            assert_eq!((near.loaded().len(), far.loaded().len()), (0, 1));
            assert_eq!(cluster.traces("r"), [false; 3]);
            let [finalizer, memory, _] = cluster.traces("s");
            assert_eq!((finalizer, memory), (false, true), "{}", cluster.route("s"));
            far.handle().clear_faults();
        }
        // when it lets it in again, then the rest goes
        let output = cluster.cleanup(&[]).await;
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(text(&output.stdout).contains(&deleted(1)), "{}", said(&output));
        assert_eq!((far.loaded().len(), cluster.traces("s")), (0, [false; 3]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apis_that_are_kept_are_taken_up_by_the_next_operator() {
    for kind in Kind::all() {
        let tyk = kind.start().await;
        let cluster = Cluster::new().await;
        cluster.leads("main", &kind, &tyk);
        cluster.server.create(route(&["/a", "/b"]));
        cluster.operated(&[("r", "Accepted: 2 APIs")]).await;
        let (before, counts) = (tyk.loaded(), tyk.handle().counts());
        // when everything but the APIs is cleaned up
        let output = cluster.cleanup(&["--keep-apis"]).await;
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        // then nobody asked Tyk, no finalizer holds the route, and it is known what is there
        assert_eq!(tyk.handle().counts().requests, counts.requests);
        assert_eq!(
            (tyk.loaded(), cluster.traces("r")),
            (before.clone(), [false, true, true])
        );
        // when an operator comes back, then it goes on with what is there, and can be cleaned up after
        let operator = cluster.operator();
        let end = Instant::now() + LIMIT;
        while !cluster.traces("r")[0] {
            assert!(Instant::now() < end, "no finalizer: {}", cluster.route("r"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(operator);
        assert_eq!(tyk.loaded(), before, "{kind:?}");
        assert_eq!(
            tyk.handle().counts().writes,
            counts.writes,
            "{kind:?}: nothing was written"
        );
        let output = cluster.cleanup(&[]).await;
        assert!(text(&output.stdout).contains(&deleted(2)), "{}", said(&output));
        assert_eq!((tyk.loaded().len(), cluster.traces("r")), (0, [false; 3]));
    }
}
