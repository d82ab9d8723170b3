//! The program as a process, with the in-process API server behind a socket: what tests of the whole binary are told with.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use axum::{Router, extract::Request};
use kube::client::Body;
use reconcile_kit::testing::ApiServer;
use tower::ServiceExt as _;

const PROGRAM: &str = env!("CARGO_BIN_EXE_routewright");
/// Nothing takes so long.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("routewright-cli-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A good kubeconfig for a server without encryption.
    pub fn kubeconfig(&self, server: &str) -> PathBuf {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: x, clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], \
             users: [{{name: u, user: {{}}}}], contexts: [{{name: x, context: {{cluster: c, user: u}}}}]}}"
        );
        self.file("kubeconfig", &text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program with nothing of the developer's environment, and ports that nobody else has.
pub fn program(kubeconfig: Option<&Path>, words: &[&str]) -> Command {
    let mut c = Command::new(PROGRAM);
    c.env_clear().env("HOME", "/nonexistent");
    if let Some(file) = kubeconfig {
        c.env("KUBECONFIG", file);
    }
    c.env("METRICS_ADDR", "127.0.0.1:0")
        .env("PROBE_ADDR", "127.0.0.1:0");
    c.args(words).stdin(Stdio::null());
    c
}

/// The in-process API server behind a socket, until the runtime ends.
pub async fn on_a_socket(server: &ApiServer) -> SocketAddr {
    let service = server.service_as("operator");
    let router = Router::new().fallback(move |request: Request| {
        let service = service.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let request = http::Request::from_parts(head, Body::from(body.to_vec()));
            let answer = service.oneshot(request).await.unwrap();
            answer.map(axum::body::Body::new)
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A running operator; killed with the test.
pub struct Running {
    child: Child,
    /// Reads what it logs: a pipe holds 64 KiB, and a full one would stop it.
    reader: Option<JoinHandle<()>>,
    read: Arc<Mutex<Vec<u8>>>,
    /// Where its probes are.
    pub probes: SocketAddr,
    /// Where its metrics are.
    pub metrics: SocketAddr,
}

impl Running {
    /// Without a lease.
    pub fn start(folder: &Folder, server: &str, words: &[&str]) -> Self {
        Self::start_with(folder, server, words, &[("LEADER_ELECT", "false")])
    }

    /// With these variables.
    pub fn start_with(folder: &Folder, server: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let config = folder.kubeconfig(server);
        let mut c = program(Some(&config), &["run"]);
        c.args(words).envs(variables.iter().copied());
        let mut child = c.stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = BufReader::new(child.stderr.take().unwrap());
        let (found, places) = mpsc::channel();
        let read: Arc<Mutex<Vec<u8>>> = Arc::default();
        let log = Arc::clone(&read);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while pipe.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
                let line = String::from_utf8_lossy(&bytes);
                if let (Some(probes), Some(metrics)) = (place(&line, "probes"), place(&line, "metrics")) {
                    let _ = found.send((probes, metrics));
                }
                log.lock().unwrap().append(&mut bytes);
            }
        });
        // It takes ports of its own, and says which: one that was looked for before might be somebody else's by then.
        let Ok((probes, metrics)) = places.recv_timeout(LIMIT) else {
            let _ = child.kill();
            let _ = reader.join();
            let log = read.lock().unwrap();
            panic!(
                "it does not say where it listens:\n{}",
                String::from_utf8_lossy(&log)
            );
        };
        Self {
            child,
            reader: Some(reader),
            read,
            probes,
            metrics,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, waits until it has, and returns its exit code and its log.
    pub fn terminate(&mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, self.logged())
    }

    /// Waits until `/readyz?verbose` contains every part.
    pub async fn tells(&mut self, parts: &[&str]) -> String {
        let url = format!("http://{}/readyz?verbose", self.probes);
        let end = Instant::now() + LIMIT;
        let mut last = String::new();
        while Instant::now() < end {
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "it has ended: {}",
                self.log()
            );
            if let Ok(answer) = reqwest::get(&url).await {
                last = answer.text().await.unwrap();
                if parts.iter().all(|p| last.contains(p)) {
                    return last;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not all of {parts:?} in:\n{last}\n{}", self.log());
    }

    pub fn log(&mut self) -> String {
        let _ = self.child.kill();
        self.logged()
    }

    /// What it has logged until now.
    pub fn log_so_far(&self) -> String {
        String::from_utf8_lossy(&self.read.lock().unwrap()).into_owned()
    }

    /// Its whole log, when it has ended.
    fn logged(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.log_so_far()
    }
}

/// The address in this field of a log line, as text or as JSON.
fn place(line: &str, field: &str) -> Option<SocketAddr> {
    let (_, rest) = line
        .split_once("routewright starts")
        .and_then(|_| line.split_once(field))?;
    let rest = rest.trim_start_matches(['"', ':', '=']);
    rest.split(['"', ' ', '\n']).next()?.parse().ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.logged();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.len().saturating_sub(100);
            eprintln!("--- end of the operator's log\n{}", lines[last..].join("\n"));
        }
    }
}
