//! A stand-in is set up and started here.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    ops::Deref,
    time::Duration,
};

use crate::{handle::Handle, server};

/// Which of the two REST APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The open-source gateway: files and reloads.
    Gateway,
    /// Tyk Dashboard: a database, and no reloads.
    Dashboard,
}

/// Settings of the gateway that change how requests are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// `enable_custom_domains`: without it hosts are not looked at.
    pub custom_domains: bool,
    /// `enable_strict_routes`: `/a` does not match `/ab`.
    pub strict_routes: bool,
    /// `enable_path_prefix_matching`: patterns of operations are anchored at the start.
    pub prefix_matching: bool,
    /// `enable_path_suffix_matching`: and at the end.
    pub suffix_matching: bool,
    /// `enable_websockets`: without it an upgrade is dropped.
    pub websockets: bool,
    /// `skip_url_cleaning`: `//` and dots are not answered with 301.
    pub skip_cleaning: bool,
}

impl Switches {
    /// Custom domains, strict routes, prefix and suffix matching, as Tyk's charts have it.
    pub const ON: Self = Self {
        custom_domains: true,
        strict_routes: true,
        prefix_matching: true,
        suffix_matching: true,
        websockets: false,
        skip_cleaning: false,
    };
    /// None of them, as the bare program has it.
    pub const OFF: Self = Self {
        custom_domains: false,
        strict_routes: false,
        prefix_matching: false,
        suffix_matching: false,
        websockets: false,
        skip_cleaning: false,
    };
}

/// A stand-in that is not started yet.
#[derive(Clone)]
pub struct Double {
    pub(crate) mode: Mode,
    pub(crate) secret: String,
    pub(crate) org: String,
    pub(crate) switches: Switches,
    pub(crate) tick: Duration,
    pub(crate) load_cost: Duration,
    pub(crate) latency: Duration,
    pub(crate) duplicate_slugs: bool,
    pub(crate) listen: SocketAddr,
    pub(crate) data: Option<SocketAddr>,
    pub(crate) tls: Option<SocketAddr>,
    pub(crate) log: bool,
    pub(crate) behind: Option<SocketAddr>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Double")
            .field("mode", &self.mode)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl Double {
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            secret: "secret-of-the-double".to_owned(),
            org: "org1".to_owned(),
            switches: Switches::ON,
            tick: Duration::ZERO,
            load_cost: Duration::ZERO,
            latency: Duration::ZERO,
            duplicate_slugs: true,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data: None,
            tls: None,
            log: false,
            behind: None,
            environment: BTreeMap::new(),
        }
    }

    /// An open-source gateway.
    pub fn gateway() -> Self {
        Self::new(Mode::Gateway)
    }

    /// A Dashboard, with a gateway behind it that serves at once.
    pub fn dashboard() -> Self {
        Self::new(Mode::Dashboard)
    }

    /// What callers must send: `x-tyk-authorization`, or `Authorization` for the Dashboard.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = secret.into();
        self
    }

    /// The organisation of the Dashboard's user. `org1` if not said.
    pub fn org(mut self, org: impl Into<String>) -> Self {
        self.org = org.into();
        self
    }

    /// Settings of the gateway. All on if not said.
    pub fn switches(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    /// Distance of the moments at which asked reloads happen; a real gateway has 1 s. Zero (the default): at once.
    pub fn reload_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Time that a load takes per API; a real gateway needs about 1 ms. Zero if not said.
    pub fn load_cost(mut self, per_api: Duration) -> Self {
        self.load_cost = per_api;
        self
    }

    /// Time that each call of the REST API takes. Zero if not said.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// `enable_duplicate_slugs` of the Dashboard: two APIs may have one listen path. On if not said.
    pub fn duplicate_slugs(mut self, allowed: bool) -> Self {
        self.duplicate_slugs = allowed;
        self
    }

    /// Where REST API and data plane listen. A free port of 127.0.0.1 if not said.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Another place for the data plane, without the REST API.
    pub fn data_listen(mut self, address: SocketAddr) -> Self {
        self.data = Some(address);
        self
    }

    /// The data plane over TLS, with the certificates of the store by server name.
    pub fn tls_listen(mut self, address: SocketAddr) -> Self {
        self.tls = Some(address);
        self
    }

    /// A variable of the gateway's environment: `TYK_SECRET_X` is what `$secret_env.x` in a rewritten URL becomes.
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// A front of the Tyk at this address, which answers all that the REST API is asked, and alone knows what it holds:
    /// here are the faults, the stops, the requests and the counts.
    pub fn before(mut self, tyk: SocketAddr) -> Self {
        self.behind = Some(tyk);
        self
    }

    /// One line on standard output per change. Off if not said.
    pub fn log(mut self, log: bool) -> Self {
        self.log = log;
        self
    }

    /// Starts it on the current tokio runtime without any listener: [`Handle::ask`] is the only way to it. Nothing of it
    /// touches the network, so it works in simulated time.
    pub fn start_unbound(self) -> Running {
        server::start_unbound(self)
    }

    /// Starts it on the current tokio runtime. An error is one of the listeners'.
    pub async fn start(self) -> io::Result<Running> {
        server::start(self).await
    }
}

/// A stand-in that answers, until it is dropped. Everything that a test does with it is in [`Handle`].
pub struct Running {
    pub(crate) handle: Handle,
    pub(crate) tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl Running {
    /// A handle that may outlive this value; what it is for has stopped then.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Deref for Running {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.handle.stop();
    }
}
