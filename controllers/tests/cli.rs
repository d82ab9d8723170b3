//! The program itself: what it says and how it ends on wrong input, and what it tells about a cluster that lacks
//! something. The API server is the in-process one behind a socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    fs,
    io::Read,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use reconcile_kit::testing::ApiServer;

#[path = "support/process.rs"]
mod process;

use process::{Folder, LIMIT, Running, on_a_socket, program};

/// Runs it to its end; kills it and fails when there is none. Its output is read meanwhile: a pipe holds 64 KiB.
fn ended(mut c: Command) -> Output {
    fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            pipe.read_to_end(&mut all).unwrap();
            all
        })
    }
    let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (
        drain(child.stdout.take().unwrap()),
        drain(child.stderr.take().unwrap()),
    );
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!(
                "it runs on: {:?}",
                (stdout.join().unwrap(), stderr.join().unwrap())
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

/// The one line that a refused start ends with.
fn complaint(c: Command) -> String {
    let out = ended(c);
    let (stdout, stderr) = (
        String::from_utf8(out.stdout).unwrap(),
        String::from_utf8(out.stderr).unwrap(),
    );
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    assert_eq!(stdout, "");
    assert_eq!(stderr.lines().count(), 1, "one line, not:\n{stderr}");
    let said = stderr.trim_end().strip_prefix("routewright: ");
    said.unwrap_or_else(|| panic!("{stderr}")).to_owned()
}

#[track_caller]
fn says(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "no {part:?} in: {line}");
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named_with_the_reason() {
    let folder = Folder::new();
    let good = fs::read_to_string(folder.kubeconfig("http://127.0.0.1:9")).unwrap();
    let cases = [
        ("unclosed", "a: [b".to_owned(), "line 1"),
        ("text", "just text".to_owned(), "failed to parse"),
        ("empty", String::new(), "current context"),
        (
            "context",
            good.replace("current-context: x", "current-context: other"),
            "other",
        ),
        ("address", good.replace("http://127.0.0.1:9", "no address"), "url"),
    ];
    for (name, text, why) in cases {
        let file = folder.file(name, &text);
        let line = complaint(program(Some(&file), &["run"]));
        says(&line, &["KUBECONFIG", &file.display().to_string(), why]);
    }
    // A certificate file that is not there is known when the client is made.
    let file = folder.file(
        "certificate",
        &good.replace("user: {}", "user: {client-certificate: /nonexistent/crt}"),
    );
    says(&complaint(program(Some(&file), &["run"])), &["/nonexistent/crt"]);
    says(
        &complaint(program(Some(Path::new("/nonexistent/config")), &["run"])),
        &["KUBECONFIG /nonexistent/config", "No such file"],
    );
    // Neither a file nor a Pod
    says(
        &complaint(program(None, &["run"])),
        &["KUBECONFIG is not set", "no Pod"],
    );
    // A file that is set and wrong is not passed over for the account of a Pod
    let mut in_a_pod = program(Some(Path::new("/nonexistent/config")), &["run"]);
    in_a_pod
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", "9");
    says(&complaint(in_a_pod), &["KUBECONFIG /nonexistent/config"]);
}

#[test]
fn a_wrong_flag_or_value_is_named() {
    let folder = Folder::new();
    let config = folder.kubeconfig("http://127.0.0.1:9");
    let cases: &[(&[&str], &[&str])] = &[
        (&["walk"], &["'walk'", "--help"]),
        (
            &["run", "--leader-elct"],
            &["'--leader-elct'", "'--leader-elect'"],
        ),
        (&["run", "--concurrency", "0"], &["--concurrency", "1..=256"]),
        (
            &["run", "--enable-ingress=maybe"],
            &["--enable-ingress", "maybe", "true, false"],
        ),
        (&["run", "--metrics-addr", "here"], &["--metrics-addr", "'here'"]),
        (&["run", "--log-format", "xml"], &["--log-format", "text, json"]),
        (
            &["run", "--log-level", "chatty"],
            &["--log-level", "chatty", "debug"],
        ),
        (
            &["run", "--log-level", "a=b=c"],
            &["--log-level", "a=b=c", "debug"],
        ),
        (
            &["run", "--watch-namespaces", "web,B_c"],
            &["--watch-namespaces", "B_c"],
        ),
        (
            &["run", "--enable-tyk", "--watch-namespaces", "web"],
            &["--watch-namespaces", "--enable-tyk", "second installation"],
        ),
        (
            &["run", "--tyk-controller-name", "tyk"],
            &["--tyk-controller-name", "tyk", "routewright.dev/tyk"],
        ),
        (
            &["run", "--tyk-cluster-id", "a b"],
            &["--tyk-cluster-id", "a b", "blanks"],
        ),
        (&["run", "--instance", "B_c"], &["--instance", "B_c"]),
        (
            &["run", "--cluster-domain", "no domain"],
            &["--cluster-domain", "no domain", "cluster.local"],
        ),
        (
            &["run", "--allowed-hostname-suffixes", "example.org,*.example.com"],
            &[
                "--allowed-hostname-suffixes",
                "*.example.com",
                "write example.com",
            ],
        ),
        (
            &["run", "--allowed-ingress-annotation-prefixes", "a b"],
            &["--allowed-ingress-annotation-prefixes", "a b", "cert-manager.io/"],
        ),
        (
            &["run", "--allowed-httproute-annotation-prefixes", "*"],
            &["--allowed-httproute-annotation-prefixes", "*"],
        ),
    ];
    for (words, parts) in cases {
        says(&complaint(program(Some(&config), words)), parts);
    }
    // An environment variable is named by its flag
    let mut c = program(Some(&config), &["run"]);
    c.env("ENABLE_GATEWAY_API", "perhaps");
    says(&complaint(c), &["--enable-gateway-api", "perhaps"]);
}

#[test]
fn booleans_are_read_as_people_write_them_and_an_empty_variable_is_none() {
    let folder = Folder::new();
    let config = folder.kubeconfig("http://127.0.0.1:9");
    const SWITCHES: [&str; 6] = [
        "ENABLE_INGRESS",
        "ENABLE_GATEWAY_API",
        "ENABLE_GARAGE_BUCKETS",
        "ENABLE_TYK",
        "ENABLE_TYK_DEFINITIONS",
        "LEADER_ELECT",
    ];
    // `--concurrency 0` ends the start, so that the only complaint is about it.
    let told = |variables: &[(&str, &str)]| {
        let mut c = program(Some(&config), &["run", "--concurrency", "0"]);
        c.envs(variables.iter().copied());
        complaint(c)
    };
    for value in ["1", "TRUE", "yes", "On", "0", "False", "no", "off", ""] {
        for switch in SWITCHES {
            let line = told(&[(switch, value)]);
            assert!(
                line.contains("--concurrency") && !line.contains(switch),
                "{switch}={value:?}: {line}"
            );
        }
    }
    let mut c = program(Some(&config), &["run", "--watch-namespaces", "web"]);
    c.env("ENABLE_TYK", "1");
    says(&complaint(c), &["--watch-namespaces", "--enable-tyk"]);
    // Every other variable that is set to nothing is left out too
    let mut c = program(Some(&config), &["run", "--instance", "B_c"]);
    for variable in [
        "CONCURRENCY",
        "METRICS_ADDR",
        "LOG_FORMAT",
        "CLUSTER_DOMAIN",
        "EXTRA_CA_FILE",
        "INSTANCE",
    ] {
        c.env(variable, "");
    }
    says(&complaint(c), &["--instance", "B_c"]);
}

#[test]
fn a_variable_of_opentelemetry_that_cannot_be_used_is_named() {
    let folder = Folder::new();
    let config = folder.kubeconfig("http://127.0.0.1:9");
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a b"),
        ("OTEL_TRACES_EXPORTER", "console"),
    ] {
        let mut c = program(Some(&config), &["run"]);
        c.env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:9");
        c.env(variable, value);
        let line = complaint(c);
        says(&line, &["OTEL_", value]);
    }
}

#[test]
fn a_bundle_without_certificates_is_named() {
    let folder = Folder::new();
    let config = folder.kubeconfig("http://127.0.0.1:9");
    let empty = folder.file("empty.pem", "");
    let half = folder.file(
        "half.pem",
        "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n",
    );
    for (file, why) in [
        (Path::new("/nonexistent/ca.pem"), "No such file"),
        (&folder.0, "directory"),
        (&empty, "no PEM certificate"),
        (&half, "certificate"),
    ] {
        let shown = file.display().to_string();
        let line = complaint(program(Some(&config), &["run", "--extra-ca-file", &shown]));
        says(&line, &["--extra-ca-file", &shown, why]);
    }
}

#[test]
fn a_port_in_use_is_named_before_anything_is_started() {
    let folder = Folder::new();
    let config = folder.kubeconfig("http://127.0.0.1:9");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--metrics-addr", "--probe-addr"] {
        let line = complaint(program(Some(&config), &["run", flag, &address]));
        says(&line, &[flag, &address, "in use"]);
    }
}

#[test]
fn crds_and_version_are_those_of_this_build() {
    let text = |words: &[&str]| {
        let out = ended(program(None, words));
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    // Given the committed files, then `crds` prints them one after the other
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/yaml");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let committed: String = files
        .iter()
        .map(|f| format!("---\n{}\n", fs::read_to_string(f).unwrap().trim_end()))
        .collect();
    assert!(files.len() >= 3);
    assert_eq!(text(&["crds"]), committed);
    let version = text(&["version"]);
    assert!(version.starts_with(concat!("routewright ", env!("CARGO_PKG_VERSION"), "\n")));
    assert!(version.contains("GarageBucket v1beta1"), "{version}");
    // And help speaks of every command and of flags with their variables
    let help = text(&["--help"]);
    assert!(
        ["run", "crds", "version"].iter().all(|c| help.contains(c)),
        "{help}"
    );
    let help = text(&["run", "--help"]);
    says(
        &help,
        &[
            "--enable-ingress",
            "ENABLE_INGRESS",
            "Off: no right on Ingresses is needed",
        ],
    );
}

// --- a cluster that lacks something ----------------------------------------------------------------------------

#[tokio::test]
async fn without_an_api_server_it_stays_up_and_says_so() {
    let folder = Folder::new();
    // given nobody at the address
    let mut operator = Running::start(&folder, "http://127.0.0.1:9", &["--enable-ingress"]);
    // then it runs on, is not ready, and names the reason
    operator
        .tells(&["the API server cannot be reached", "readyz: not ready"])
        .await;
}

#[tokio::test]
async fn a_missing_crd_is_named_until_it_comes() {
    let folder = Folder::new();
    // given a cluster without the CRDs of Garage
    let server = ApiServer::new();
    let address = on_a_socket(&server).await;
    let mut operator = Running::start(&folder, &format!("http://{address}"), &["--enable-ingress"]);
    operator
        .tells(&[
            "controller ingress-exposure: WaitingForApi",
            "missing GarageBucket.garage.rajsingh.info/v1beta1",
        ])
        .await;
    // when they are installed, then the same process goes on
    for crd in routewright_crds::all().unwrap() {
        server.create(serde_json::json!(crd));
    }
    operator
        .tells(&["controller ingress-exposure: Running", "readyz: ok"])
        .await;
}

#[tokio::test]
async fn a_missing_right_is_named_until_it_is_given() {
    let folder = Folder::new();
    // given a cluster where the operator's account may not list buckets
    let server = ApiServer::new();
    for crd in routewright_crds::all().unwrap() {
        server.create(serde_json::json!(crd));
    }
    let denied = server.deny("operator", "list", "garagebuckets");
    let address = on_a_socket(&server).await;
    let mut operator = Running::start(&folder, &format!("http://{address}"), &["--enable-ingress"]);
    let told = operator
        .tells(&["watch GarageBucket", "forbidden", "garagebuckets"])
        .await;
    assert!(told.contains("readyz: not ready"), "{told}");
    // when the right is given, then the same process goes on
    server.undeny(denied);
    operator
        .tells(&["controller ingress-exposure: Running", "readyz: ok"])
        .await;
}
