//! A gateway to ask: the stand-in; or the given Tyk Gateway, or one that is started for the test, with Redis, and stopped
//! after it.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use routewright::tyk::translate::TykApi;
use routewright_tyk_double as double;
use serde_json::{Value, json};

use crate::wire::{self, Answer};

/// Which gateway is asked.
pub(crate) enum Given {
    /// The stand-in.
    Double,
    /// A program to start, with its templates.
    Program { program: PathBuf, templates: PathBuf },
    /// One that runs.
    Url { address: SocketAddr, secret: String },
}

impl Given {
    pub(crate) fn from_environment() -> Result<Self, String> {
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
}

/// Custom domains, strict routes, prefix and suffix matching: all on, as Tyk's charts have it, or all off, as the bare
/// program has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switches {
    On,
    Off,
}

/// A gateway that answers.
pub(crate) struct Gateway {
    address: SocketAddr,
    secret: String,
    pub(crate) switches: Switches,
    /// Stopped in this order.
    children: Vec<Child>,
    folder: Option<PathBuf>,
    /// The stand-in, and the threads that it runs on.
    double: Option<(double::Running, tokio::runtime::Runtime)>,
}

impl Gateway {
    pub(crate) fn start(given: &Given, switches: Switches) -> Self {
        match given {
            Given::Double => Self::stand_in(switches),
            Given::Url { address, secret } => Self {
                address: *address,
                secret: secret.clone(),
                switches,
                children: Vec::new(),
                folder: None,
                double: None,
            },
            Given::Program { program, templates } => Self::run(program, templates, switches),
        }
    }

    fn stand_in(switches: Switches) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let secret = "secret-of-the-test".to_owned();
        let settings = double::Double::gateway()
            .secret(&secret)
            .switches(match switches {
                Switches::On => double::Switches::ON,
                Switches::Off => double::Switches::OFF,
            });
        let running = runtime.block_on(settings.start()).unwrap();
        Self {
            address: running.address(),
            secret,
            switches,
            children: Vec::new(),
            folder: None,
            double: Some((running, runtime)),
        }
    }

    fn run(program: &Path, templates: &Path, switches: Switches) -> Self {
        let folder = std::env::temp_dir().join(format!(
            "routewright-tyk-{}-{}",
            std::process::id(),
            u8::from(switches == Switches::On)
        ));
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
        let secret = "secret-of-the-test".to_owned();
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
            secret,
            switches,
            children: vec![redis],
            folder: Some(folder.clone()),
            double: None,
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
            TcpStream::connect(gateway.address).is_ok() && gateway.ask("GET", "/ready").status == 200
        });
        gateway
    }

    // --- data ---------------------------------------------------------------------------------------------

    pub(crate) fn ask(&self, method: &str, target: &str) -> Answer {
        wire::send(self.address, method, target, &[], b"")
    }

    pub(crate) fn ask_with(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        wire::send(self.address, method, target, headers, b"")
    }

    pub(crate) fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        wire::send(self.address, method, target, headers, body.as_bytes())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    // --- control ------------------------------------------------------------------------------------------

    pub(crate) fn control(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        let headers = [("x-tyk-authorization", self.secret.as_str())];
        wire::send(self.address, method, target, &headers, body)
    }

    pub(crate) fn post(&self, api: &TykApi) {
        let answer = self.control("POST", "/tyk/apis/oas", &api.canonical());
        assert_eq!(
            answer.status, 200,
            "{}: {}\n{}",
            api.id, answer.body, api.document
        );
    }

    /// The document as it is loaded.
    pub(crate) fn get(&self, id: &str) -> Value {
        let answer = self.control("GET", &format!("/tyk/apis/oas/{id}"), b"");
        assert_eq!(answer.status, 200, "{id} is not loaded: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    pub(crate) fn reload(&self) {
        let answer = self.control("GET", "/tyk/reload/?block=true", b"");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Leaves nothing behind in a gateway that is not ours to stop.
    pub(crate) fn clean(&self, ids: &[String]) {
        if self.folder.is_none() && self.double.is_none() {
            for id in ids {
                self.control("DELETE", &format!("/tyk/apis/oas/{id}"), b"");
            }
            self.reload();
        }
    }

    pub(crate) fn show_log(&self) {
        if let Some(folder) = &self.folder
            && let Ok(log) = fs::read_to_string(folder.join("gateway.log"))
        {
            let lines: Vec<_> = log.lines().collect();
            let last = lines.len().saturating_sub(60);
            eprintln!("--- end of the gateway's log\n{}", lines[last..].join("\n"));
        }
    }
}

impl Drop for Gateway {
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
