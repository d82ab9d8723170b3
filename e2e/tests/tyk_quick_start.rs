//! The quick start of Gateway API on Tyk and the page about authentication, command by command on a real cluster: what
//! the pages say that they print, they print. The stand-in takes the place of the Tyk that the reader has.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;

use routewright_e2e::cluster::{repository, switched_on};
use routewright_e2e::operator::chart;
use routewright_e2e::sh::{self, say};
use routewright_e2e::tools::{PATIENCE, Part, Tools};
use routewright_e2e::{Result, Scenario, image, reader, scenario, tyk, wait};
use serde_json::{Value, json};
use tokio::sync::Mutex;

const PAGE: &str = "docs/src/tyk/quick-start.md";
const AUTHENTICATION: &str = "docs/src/tyk/authentication.md";
const HOST: &str = "shop.example.com";

/// What the pages make, beside the objects of the whole cluster.
const NAMESPACES: [&str; 3] = ["shop", "tyk", "routewright"];

/// Both pages have the same names: one scenario at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What the reader has before step 1: a Tyk as samples/tyk/platform.yaml expects it, and Pods for samples/tyk/shop.yaml.
async fn given(s: &Scenario) -> Result<()> {
    let cluster = s.cluster;
    cluster.gateway_crds("standard").await?;
    reader::furnish(cluster).await?;
    cluster.load_part(Part::TestApp).await?;
    let load = move || {
        let archive = cluster.scratch().join("tyk-double.tar");
        image::of_double(&tyk::double()?, &archive)?;
        cluster.load(&archive)
    };
    tokio::task::spawn_blocking(load).await.unwrap()?;
    let pod = |namespace: &str, name: &str, container: Value| {
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
               "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}})
    };
    let container = |image: &str, probe: &str| {
        json!({"name": "one", "image": image, "imagePullPolicy": "Never",
               "readinessProbe": {"httpGet": {"path": probe, "port": 8080}, "periodSeconds": 1}})
    };
    let mut gateway = container(image::TYK_DOUBLE, "/hello");
    gateway["env"] = json!([{"name": "TYK_DOUBLE_SECRET", "value": "change-me"}]);
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let objects = json!([
        namespace("tyk"),
        namespace("shop"),
        pod("tyk", "gateway", gateway),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gateway", "namespace": "tyk"},
         "spec": {"type": "LoadBalancer", "selector": {"app": "gateway"}, "ports": [{"port": 8080}]}},
        pod("shop", "web", container(image::TESTAPP, "/readyz")),
    ]);
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    for (namespace, pod) in [("tyk", "pod/gateway"), ("shop", "pod/web")] {
        let words = [
            "-n",
            namespace,
            "wait",
            "--for=condition=Ready",
            pod,
            "--timeout=300s",
        ];
        cluster.kubectl(words)?;
    }
    Ok(())
}

/// What a page says that its commands print: the lines of its `text` blocks, in order.
fn promised(page: &str) -> Vec<String> {
    let page = fs::read_to_string(repository().join(page)).unwrap();
    let blocks = page
        .split("```text\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"));
    let lines = blocks.flat_map(|(block, _)| block.lines());
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_tyk_quick_start_leads_from_a_tyk_to_a_served_route_and_says_what_it_refuses() {
    let name = "the_tyk_quick_start_leads_from_a_tyk_to_a_served_route_and_says_what_it_refuses";
    scenario(name, async |s| {
        let _alone = ALONE.lock().await;
        // Given a cluster with Gateway API, a Tyk and an application
        given(&s).await?;
        let (page, folder) = (repository().join(PAGE), repository());
        let blocks = reader::blocks(&page)?;
        let (way, away) = blocks.split_at(blocks.len() - 1);
        assert!(away[0].1.contains("helm uninstall"), "the last block of the page");
        // When the commands of the page are run one after the other, in a clone
        let said = reader::follow(s.cluster, &folder, way).await?;
        say(&said);
        // Then they print what the page says, in this order
        let promised = promised(PAGE);
        assert!(promised.len() >= 5, "found only {promised:?}");
        let mut lines = said.lines();
        for line in &promised {
            assert!(
                lines.any(|l| l == line),
                "{line:?} is not printed (there) in:\n{said}"
            );
        }
        // And the application has answered through Tyk, and asks for a key now
        assert!(said.contains("\"/orders\""), "{said}");
        let address = s.cluster.address("tyk", "gateway").await?;
        wait::eventually("401 without a key", PATIENCE, || async {
            let answer = s.cluster.fetch(HOST, address, 8080, "/orders").await;
            let answer = answer.map_err(|e| e.to_string())?;
            if answer.status == 401 {
                Ok(())
            } else {
                Err(format!("{} {}", answer.status, answer.text()))
            }
        })
        .await?;
        // When what was made is taken away, then Tyk serves nothing of it and nothing of the release is left
        reader::follow(s.cluster, &folder, away).await?;
        wait::eventually("404 of Tyk", PATIENCE, || async {
            let answer = s.cluster.fetch(HOST, address, 8080, "/orders").await;
            let answer = answer.map_err(|e| e.to_string())?;
            match answer.status {
                404 => Ok(()),
                status => Err(format!("{status} {}", answer.text())),
            }
        })
        .await?;
        let left = ["get", "clusterrole,clusterrolebinding,gatewayclass", "-o", "name"];
        let left = s.cluster.kubectl(left)?;
        assert!(
            !left.contains("routewright") && !left.contains("gatewayclass.gateway.networking.k8s.io/tyk"),
            "{left}"
        );
        for namespace in NAMESPACES {
            s.cluster.kubectl(["delete", "namespace", namespace])?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_page_about_authentication_leads_from_an_open_route_to_keys_and_back() {
    let name = "the_page_about_authentication_leads_from_an_open_route_to_keys_and_back";
    scenario(name, async |s| {
        let _alone = ALONE.lock().await;
        // Given a reader of the quick start after step 5: the application answers through Tyk
        given(&s).await?;
        let folder = repository();
        let start = reader::blocks(&folder.join(PAGE))?;
        let asks = start.iter().position(|(_, block)| block.contains("curl "));
        let said = reader::follow(s.cluster, &folder, &start[..=asks.expect("a request")]).await?;
        assert!(said.contains("\"/orders\""), "{said}");
        // When the commands of the page are run one after the other, in the same clone
        let said = reader::follow(s.cluster, &folder, &reader::blocks(&folder.join(AUTHENTICATION))?).await?;
        say(&said);
        // Then they print what the page says, in this order, and no other answer of Tyk
        let promised = promised(AUTHENTICATION);
        for status in ["200", "401", "403"] {
            assert!(promised.iter().any(|line| line == status), "{promised:?}");
        }
        let status = |line: &&str| line.len() == 3 && line.parse::<u16>().is_ok();
        let printed: Vec<&str> = said.lines().filter(status).collect();
        assert_eq!(printed, promised, "{said}");
        // And what was said beforehand about the API is how Tyk has it: its id
        let memory = r"jsonpath={.metadata.annotations.routewright\.dev/tyk-apis}";
        let memory = s
            .cluster
            .kubectl(["-n", "shop", "get", "httproute", "shop", "-o", memory])?;
        let (ids, _) = memory.trim().split_once(';').expect("ids and a digest");
        let (_, id) = ids.split_once('=').expect("a connection and an id");
        assert!(
            said.contains(&format!("gwapi-{id}")),
            "{memory} is not in:\n{said}"
        );
        // Nothing is left for the other scenario
        let (_, away) = start.last().expect("step 8");
        let away = away.replace("kubectl delete ", "kubectl delete --ignore-not-found ");
        reader::follow(s.cluster, &folder, &[(0, away)]).await?;
        for namespace in NAMESPACES {
            s.cluster.kubectl(["delete", "namespace", namespace])?;
        }
        Ok(())
    })
    .await;
}

#[test]
fn the_notes_of_the_chart_name_the_crds_that_are_missing() {
    let name = "the_notes_of_the_chart_name_the_crds_that_are_missing";
    if !switched_on(name) {
        return;
    }
    // Given no cluster, and so no CRD of anybody
    let helm = Tools::open().unwrap().program(Part::Helm, "helm").unwrap();
    let notes = |sets: &[&str]| {
        let chart = chart().display().to_string();
        let mut words = vec!["install", "rw", &chart, "--dry-run=client"];
        words.extend(sets.iter().flat_map(|set| ["--set", *set]));
        let mut c = sh::command(&helm, &words);
        c.env("KUBECONFIG", "/nowhere");
        sh::run(c).unwrap()
    };
    let (gateway_api, tyk) = (
        "Gateway API is not installed",
        "The CRDs of tyk.tyk.io are not installed",
    );
    // Then whoever switches Tyk on is told what is missing and how to get it
    let said = notes(&["tyk.enabled=true"]);
    assert!(said.contains(gateway_api) && said.contains(tyk), "{said}");
    let said = notes(&["tyk.enabled=true", "crds.tyk.enabled=true"]);
    assert!(said.contains(gateway_api) && !said.contains(tyk), "{said}");
    // And nobody else
    let said = notes(&["ingress.enabled=true"]);
    assert!(!said.contains(gateway_api) && !said.contains(tyk), "{said}");
}
