//! The node itself: what may be done to it, that nothing of it stays, that it ends with its owner.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use routewright_e2e::cluster::{Cluster, switched_on};
use routewright_e2e::node::{Node, Options, Service, state_root};
use routewright_e2e::operator::{RELEASE, chart};
use routewright_e2e::sh::{self, Process, wait_for};
use routewright_e2e::tools::Tools;
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(180);
const EVERY: Duration = Duration::from_millis(50);

fn name(what: &str) -> String {
    format!("rw-{what}-{}", std::process::id())
}

/// The cgroups that a node may have made, as it wrote them down.
fn cgroups(state: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(state.join("cgroups")).unwrap();
    let groups: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
    assert!(!groups.is_empty());
    groups
}

#[test]
fn services_can_be_frozen_killed_and_restarted_and_nothing_stays() {
    if !switched_on("services_can_be_frozen_killed_and_restarted_and_nothing_stays") {
        return;
    }
    // Given a node
    let options = Options {
        name: name("services"),
        ..Options::default()
    };
    let node = Node::up(&Tools::open().unwrap(), &options).unwrap();
    // When its API server is frozen, then it does not answer; and goes on afterwards
    node.pause(Service::Apiserver).unwrap();
    assert!(node.kubectl(["get", "ns", "--request-timeout=1s"]).is_err());
    node.resume(Service::Apiserver).unwrap();
    node.wait_api().unwrap();
    // When etcd is killed and started again, then what was stored is there
    node.kubectl(["create", "configmap", "kept"]).unwrap();
    node.kill(Service::Etcd).unwrap();
    node.start(Service::Etcd).unwrap();
    wait_for("stored object", LIMIT, EVERY, || {
        node.kubectl(["get", "configmap", "kept"])
            .map_err(|e| e.to_string())
    })
    .unwrap();
    node.restart(Service::Apiserver).unwrap();
    // When it is taken down with a frozen service, then no process, file or cgroup of it is left
    node.pause(Service::Kubelet).unwrap();
    let (state, groups) = (node.state().to_path_buf(), cgroups(node.state()));
    node.down().unwrap();
    assert!(!node.alive() && !state.exists());
    for group in groups {
        assert!(!group.exists(), "{}", group.display());
    }
}

#[test]
fn a_node_ends_with_its_owner_however_that_ends() {
    if !switched_on("a_node_ends_with_its_owner_however_that_ends") {
        return;
    }
    for (what, signal) in [("kill", Signal::KILL), ("interrupt", Signal::INT)] {
        // Given a process that holds a node
        let name = name(what);
        // A shell that runs the tests in the background has SIGINT ignored, and that is inherited: not what is meant here.
        let words = [
            "--default-signal=INT",
            env!("CARGO_BIN_EXE_e2e"),
            "--name",
            &name,
            "hold",
        ];
        let mut owner = sh::command("env", words).spawn().unwrap();
        let state = state_root().join(&name);
        let outside = Process::of(i32::try_from(owner.id()).unwrap()).unwrap();
        wait_for("API server of the node", LIMIT, EVERY, || {
            let node = Node::attach(&name).map_err(|e| e.to_string())?;
            node.kubectl(["get", "--raw", "/readyz"])
                .map_err(|e| e.to_string())
        })
        .unwrap();
        let (node, groups) = (Node::attach(&name).unwrap(), cgroups(&state));
        // When the process ends without a chance to clean up
        outside.signal(signal).unwrap();
        owner.wait().unwrap();
        // Then the node, its files and its cgroups go
        wait_for("end of the node", LIMIT, EVERY, || {
            if node.alive() || state.exists() {
                Err("still there".to_owned())
            } else {
                Ok(())
            }
        })
        .unwrap();
        for group in groups {
            assert!(!group.exists(), "{}", group.display());
        }
    }
}

#[test]
fn the_chart_installs_its_crds_and_leaves_those_of_others_alone() {
    if !switched_on("the_chart_installs_its_crds_and_leaves_those_of_others_alone") {
        return;
    }
    let options = Options {
        name: name("chart"),
        ..Options::default()
    };
    let cluster = Cluster::node(&options).unwrap();
    let chart = chart().display().to_string();
    let install = |namespace: &str, more: &[&str]| {
        let words = [
            "upgrade",
            "--install",
            RELEASE,
            &chart,
            "--create-namespace",
            "-n",
            namespace,
        ];
        cluster
            .helm(words.iter().chain(["--set", "replicaCount=0"].iter()).chain(more))
            .unwrap();
    };
    let crd = |path: &str| {
        let name = "garagebuckets.garage.rajsingh.info";
        cluster
            .kubectl(["get", "crd", name, "-o", &format!("jsonpath={{{path}}}")])
            .unwrap()
    };
    let owner = r".metadata.annotations.meta\.helm\.sh/release-namespace";
    // Given a cluster without the CRDs: when the chart is installed, then it installs them
    install("one", &[]);
    cluster.established().unwrap();
    assert_eq!(crd(owner), "one");
    // When it is installed in another namespace, then the CRDs stay the first one's
    install("two", &["--set", "ingress.enabled=true"]);
    assert_eq!(crd(owner), "one");
    // When somebody changes the CRD, then the next upgrade of the first puts it right
    let name = "garagebuckets.garage.rajsingh.info";
    let patch = r#"{"spec": {"names": {"shortNames": ["other"]}}}"#;
    cluster
        .kubectl(["patch", "crd", name, "--type=merge", "-p", patch])
        .unwrap();
    install("two", &[]);
    assert_eq!(crd(".spec.names.shortNames[0]"), "other");
    install("one", &["--force-conflicts"]);
    assert_ne!(crd(".spec.names.shortNames[0]"), "other");
    // When both are removed, then the CRDs, and with them the users' objects, stay
    for namespace in ["one", "two"] {
        cluster.helm(["uninstall", RELEASE, "-n", namespace]).unwrap();
    }
    assert_eq!(crd(".metadata.name"), name);
    let left = cluster
        .kubectl(["get", "clusterroles,clusterrolebindings", "-o", "name"])
        .unwrap();
    assert!(!left.contains(RELEASE), "{left}");
    cluster.down().unwrap();
}
