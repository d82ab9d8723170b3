//! A Tyk Gateway for tests: found by the environment, started on loopback with a Redis of its own and stopped with the
//! test, and asked over its REST API. No assertion about the product.
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
    collections::BTreeMap,
    fs::{self, File},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

#[path = "wire.rs"]
pub mod wire;

use wire::Answer;

/// Which gateway there is.
#[derive(Clone, Debug)]
pub enum Given {
    /// A program to start, with its templates.
    Program {
        /// The gateway.
        program: PathBuf,
        /// The folder `templates` of its source.
        templates: PathBuf,
    },
    /// One that runs. It has to be an empty one of the test's own.
    Url {
        /// Of its REST API.
        address: SocketAddr,
        /// Its secret.
        secret: String,
    },
}

impl Given {
    /// What the environment names, or why there is none.
    pub fn from_environment() -> Result<Self, String> {
        let var = |name| {
            std::env::var(name)
                .ok()
                .filter(|value: &String| !value.is_empty())
        };
        if let Some(url) = var("TYK_GATEWAY_URL") {
            let secret = var("TYK_GATEWAY_SECRET").ok_or("TYK_GATEWAY_URL needs TYK_GATEWAY_SECRET")?;
            let host = url
                .strip_prefix("http://")
                .map(|rest| rest.trim_end_matches('/'))
                .ok_or("TYK_GATEWAY_URL must be http://HOST:PORT")?;
            let address = host
                .to_socket_addrs()
                .ok()
                .and_then(|mut found| found.next())
                .ok_or("TYK_GATEWAY_URL names no address")?;
            return Ok(Self::Url { address, secret });
        }
        let program = var("TYK_GATEWAY_BIN").ok_or("neither TYK_GATEWAY_BIN nor TYK_GATEWAY_URL is set")?;
        let templates = var("TYK_GATEWAY_TEMPLATES").ok_or(
            "TYK_GATEWAY_BIN needs TYK_GATEWAY_TEMPLATES, the folder `templates` of the gateway's source",
        )?;
        let redis = std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file())
        });
        if !redis {
            return Err("redis-server is not in PATH".to_owned());
        }
        Ok(Self::Program {
            program: program.into(),
            templates: templates.into(),
        })
    }

    /// The gateway, or a line on standard output that says why the test is not run.
    pub fn or_say() -> Option<Self> {
        match Self::from_environment() {
            Ok(given) => Some(given),
            Err(why) => {
                #[allow(clippy::print_stdout)]
                {
                    println!("not run before a Tyk Gateway: {why}");
                }
                None
            }
        }
    }
}

/// Custom domains, strict routes, prefix and suffix matching: all on, as Tyk's charts have it, or all off, as the bare
/// program has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switches {
    /// All on.
    On,
    /// All off.
    Off,
}

/// A Tyk Gateway that answers.
pub struct TykGateway {
    /// Of its REST API and its data plane.
    pub address: SocketAddr,
    /// Its secret.
    pub secret: String,
    /// Stopped in this order.
    children: Vec<Child>,
    folder: Option<PathBuf>,
}

impl TykGateway {
    /// `secret`: of one that is started.
    pub fn start(given: &Given, switches: Switches, secret: &str) -> Self {
        match given {
            Given::Url { address, secret } => Self {
                address: *address,
                secret: secret.clone(),
                children: Vec::new(),
                folder: None,
            },
            Given::Program { program, templates } => Self::run(program, templates, switches, secret),
        }
    }

    fn run(program: &Path, templates: &Path, switches: Switches, secret: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("routewright-tyk-{unique}"));
        fs::create_dir_all(folder.join("apps")).unwrap();
        let [gateway_port, redis_port] = free_ports();
        let redis = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--port",
            ])
            .arg(redis_port.to_string())
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(File::create(folder.join("redis.log")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let on = switches == Switches::On;
        let config = json!({
            "listen_address": "127.0.0.1",
            "listen_port": gateway_port,
            "secret": secret,
            "template_path": templates,
            "app_path": folder.join("apps"),
            "use_db_app_configs": false,
            "allow_insecure_configs": true,
            "enable_analytics": false,
            "storage": {"type": "redis", "host": "127.0.0.1", "port": redis_port},
            "policies": {"policy_source": "file", "policy_path": folder.join("policies.json")},
            "security": {"private_certificate_encoding_secret": "encoding-of-the-test"},
            "enable_custom_domains": on,
            "http_server_options": {
                "enable_strict_routes": on,
                "enable_path_prefix_matching": on,
                "enable_path_suffix_matching": on,
            },
        });
        fs::write(folder.join("policies.json"), "{}").unwrap();
        let file = folder.join("tyk.json");
        fs::write(&file, config.to_string()).unwrap();
        let mut gateway = Self {
            address: SocketAddr::from(([127, 0, 0, 1], gateway_port)),
            secret: secret.to_owned(),
            children: vec![redis],
            folder: Some(folder.clone()),
        };
        let until = Instant::now() + Duration::from_secs(120);
        let wait = |what: &str, ready: &dyn Fn() -> bool| {
            while !ready() {
                assert!(Instant::now() < until, "{what} does not answer");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let redis = SocketAddr::from(([127, 0, 0, 1], redis_port));
        wait("redis-server", &|| TcpStream::connect(redis).is_ok());
        let log = File::create(folder.join("gateway.log")).unwrap();
        let child = Command::new(program)
            .arg("--conf")
            .arg(&file)
            .current_dir(&folder)
            // Variables of the gateway that surround the test must not change it.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // What must not get out: `$secret_env.of_the_test`.
            .env("TYK_SECRET_OF_THE_TEST", "the-secret-itself")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        gateway.children.insert(0, child);
        wait("the gateway", &|| {
            TcpStream::connect(gateway.address).is_ok()
                && wire::send(gateway.address, "GET", "/ready", &[], b"").status == 200
        });
        gateway
    }

    /// It was started for the test.
    pub fn is_own(&self) -> bool {
        self.folder.is_some()
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks the REST API with the secret.
    pub fn control(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        let headers = [("x-tyk-authorization", self.secret.as_str())];
        wire::send(self.address, method, target, &headers, body)
    }

    /// Makes what was written be served.
    pub fn reload(&self) {
        let answer = self.control("GET", "/tyk/reload/?block=true", b"");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// What is loaded, by id.
    pub fn documents(&self) -> BTreeMap<String, Value> {
        let answer = self.control("GET", "/tyk/apis/oas", b"");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let list: Option<Vec<Value>> = serde_json::from_str(&answer.body).unwrap();
        let id = |document: &Value| {
            let id = &document["x-tyk-api-gateway"]["info"]["id"];
            id.as_str().unwrap().to_owned()
        };
        list.into_iter().flatten().map(|d| (id(&d), d)).collect()
    }

    /// Writes a document; it is loaded with the next reload.
    pub fn post(&self, document: &Value) {
        let answer = self.control("POST", "/tyk/apis/oas", document.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Ids of an organisation's certificates.
    pub fn certificates(&self, org: &str) -> Vec<String> {
        let answer = self.control("GET", &format!("/tyk/certs?org_id={org}"), b"");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let found: Value = serde_json::from_str(&answer.body).unwrap();
        let ids = found["certs"].as_array().cloned().unwrap_or_default();
        ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    /// Removes every certificate of an organisation.
    pub fn empty_store(&self, org: &str) {
        for id in self.certificates(org) {
            self.control("DELETE", &format!("/tyk/certs/{id}?org_id={org}"), b"");
        }
    }

    /// Removes every API, also those that were written and not loaded yet.
    pub fn empty(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            self.reload();
            let found = self.documents();
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "these stay: {:?}", found.keys());
            for id in found.keys() {
                self.control("DELETE", &format!("/tyk/apis/oas/{id}"), b"");
            }
        }
    }

    /// The end of its log, on standard error.
    pub fn show_log(&self) {
        if let Some(folder) = &self.folder
            && let Ok(log) = fs::read_to_string(folder.join("gateway.log"))
        {
            let lines: Vec<_> = log.lines().collect();
            let last = lines.len().saturating_sub(60);
            eprintln!("--- end of the gateway's log\n{}", lines[last..].join("\n"));
        }
    }
}

impl Drop for TykGateway {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
