//! `e2e`: scenarios, and the test cluster by hand. Parses the command line; everything else is in the library.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use routewright_e2e::cluster::{self, Cluster};
use routewright_e2e::node::{self, Node, Options, Service, clean_stale};
use routewright_e2e::sh::{self, say};
use routewright_e2e::tiers::{self, Tier, Wanted};
use routewright_e2e::tools::{PATIENCE, Part, Tools};
use routewright_e2e::tyk::Which;
use routewright_e2e::{Error, Result, bench, conformance, demo, demo_tyk, proof, reader};

/// Scenarios on a real cluster, and that cluster by hand: a single-node Kubernetes in Linux namespaces of its own,
/// without Docker. Without a command: `test cluster`.
#[derive(Parser)]
#[command(name = "e2e", version)]
struct Cli {
    /// Name of the node.
    #[arg(long, global = true, default_value = "routewright")]
    name: String,
    #[command(subcommand)]
    command: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Run tests by tier, with the environment that each needs, and count them.
    ///
    /// `test` runs every tier, `test unit fake-api` these two, `test NAME` the scenarios with that part of a name or of
    /// the file e2e/tests/NAME, `test unit NAME` such tests of that tier. The last lines are `TIER: N passed, N failed, N skipped`; the exit
    /// code is 0 only if every tier ran, passed something and failed nothing.
    Test {
        /// Tiers (unit, fake-api, sim, cluster); what follows goes to the test programs, e.g. a part of a test's name.
        #[arg(value_name = "TIER", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// The main job on a cluster of its own: a request that fails, then comes back through an Ingress and an HTTPRoute.
    ///
    /// `demo tyk`: an HTTPRoute that Tyk serves, and one that is refused; with the stand-in for Tyk, or with a Tyk Gateway if
    /// `TYK_GATEWAY_BIN` and `TYK_GATEWAY_TEMPLATES` give one.
    Demo {
        /// Which part of the product.
        #[arg(value_enum, default_value_t = Chapter::Website)]
        chapter: Chapter,
        /// Leave the cluster running.
        #[arg(long)]
        keep: bool,
    },
    /// Play histories of the whole operator in simulated time: `sim --seeds 10000 --from 1`, `sim --seed 7` replays one and
    /// tells it line by line, `sim --proof [NAME]` puts known faults back, one by one, and finds them. `sim --help` lists the rest.
    #[command(disable_help_flag = true)]
    Sim {
        /// Arguments of the simulator.
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Measure the operator; results in target/bench. Numbers: against raw writes of the same objects, with so many
    /// buckets. `tyk`: Gateway API on Tyk, beside Envoy Gateway; `tyk-alone`: without it.
    Bench {
        /// How many buckets, one measurement each; or `tyk`, `tyk-alone`.
        #[arg(value_name = "WHAT", default_values_t = ["1000".to_owned(), "10000".to_owned()])]
        what: Vec<String>,
    },
    /// The conformance suite of Gateway API, unmodified: against the stand-in for Tyk, and against a Tyk Gateway if
    /// `TYK_GATEWAY_BIN` and `TYK_GATEWAY_TEMPLATES` give one. Reports go to docs/conformance.
    Conformance {
        /// Only against this one.
        #[arg(long, value_enum)]
        against: Option<Against>,
        /// Only this test of the suite, without a report.
        #[arg(long, value_name = "TEST")]
        test: Option<String>,
    },
    /// Build what a node consists of, or everything, into the cache.
    Tools {
        /// Also Helm, Contour, Envoy, Garage, Lua, echo servers, the conformance suite and the peers of the benchmarks.
        #[arg(long)]
        all: bool,
    },
    /// Start a node that stays, until `down` or the end of its time.
    Up {
        /// Hours after which it ends by itself.
        #[arg(long, default_value_t = 8)]
        hours: u64,
        /// With what the quick start needs: Contour and Envoy, the images of Garage and of the operator, Helm.
        #[arg(long)]
        furnished: bool,
    },
    /// Run a program inside the node, e.g. `e2e exec -- kubectl get pods -A`.
    Exec {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<String>,
    },
    /// Load image archives.
    Import {
        /// OCI archives.
        #[arg(required = true)]
        archives: Vec<std::path::PathBuf>,
    },
    /// Stop and start one of the node's services.
    Restart {
        /// The service.
        service: Service,
    },
    /// End the node and remove everything of it.
    Down,
    /// Start a node that lives no longer than this process.
    #[command(hide = true)]
    Hold,
    /// Serve a kept node: a port to its API server, addresses for LoadBalancer Services. Ends with the node.
    #[command(hide = true)]
    Attend,
}

/// Which half of the product a demo shows.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Chapter {
    /// A website in a Garage bucket is made reachable.
    Website,
    /// Gateway API on Tyk.
    Tyk,
}

/// What serves the routes of the suite.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// The stand-in for Tyk.
    StandIn,
    /// The given Tyk Gateway.
    TykGateway,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(e) => {
            say(e.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command.unwrap_or(What::Test {
        words: vec![Tier::Cluster.name().to_owned()],
    }) {
        What::Test { words } => {
            let passed = tiers::run(&Wanted::of(&words))?;
            return Ok(if passed {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        What::Demo { chapter, keep } => return show(chapter, keep),
        What::Sim { words } => {
            if let [first, rest @ ..] = words.as_slice()
                && first == "--proof"
            {
                let found = proof::run(rest.first().map_or("", String::as_str))?;
                return Ok(if found {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                });
            }
            return status(&mut tiers::simulator(&words));
        }
        What::Bench { what } => return measure(&what),
        What::Conformance { against, test } => return conform(against, test.as_deref()),
        What::Tools { all } => {
            let tools = Tools::open()?;
            let parts: &[Part] = if all { &Part::ALL } else { &Part::NODE };
            for part in parts {
                say(format!("{}: {}", part.name(), tools.part(*part)?.display()));
            }
        }
        What::Up { hours, furnished } => {
            let node = up(&cli.name, hours)?;
            if furnished {
                furnish(&cli.name)?;
                say(
                    "`cargo e2e exec -- bash` is a shell in it, with kubectl and helm: docs/src/quick-start.md",
                );
            }
            say(format!(
                "export KUBECONFIG={}",
                node.state().join(node::OUTSIDE).display()
            ));
            say("`cargo e2e exec -- kubectl get pods -A`; `cargo e2e down` ends it");
            say(format!("logs in {}", node.state().join("log").display()));
        }
        What::Exec { words } => {
            let node = Node::attach(&cli.name)?;
            return status(node.command(words).stdin(Stdio::inherit()));
        }
        What::Import { archives } => Node::attach(&cli.name)?.import(&archives)?,
        What::Restart { service } => Node::attach(&cli.name)?.restart(service)?,
        What::Down => match Node::attach(&cli.name) {
            Ok(node) => node.down()?,
            Err(_) => clean_stale()?,
        },
        What::Hold => {
            let _node = Node::up(
                &Tools::open()?,
                &Options {
                    name: cli.name,
                    ..Options::default()
                },
            )?;
            loop {
                std::thread::park();
            }
        }
        What::Attend => {
            let node = Node::attach(&cli.name)?;
            let (_forward, kubeconfig) = node.forward_api(node::OUTSIDE)?;
            let alive = Node::attach(&cli.name)?;
            cluster::hand_out_addresses(kubeconfig, move || alive.alive());
            while node.alive() {
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn status(c: &mut std::process::Command) -> Result<ExitCode> {
    let status = c.status().map_err(|source| Error::Io {
        what: format!("start {}", sh::shown(c)),
        source,
    })?;
    Ok(ExitCode::from(
        u8::try_from(status.code().unwrap_or(1)).unwrap_or(1),
    ))
}

/// Starts a kept node and the process that attends to it.
fn up(name: &str, hours: u64) -> Result<Node> {
    use std::os::unix::process::CommandExt as _;
    let ttl = Duration::from_secs(hours * 3600);
    let options = Options {
        name: name.to_owned(),
        ttl,
        keep: true,
        ..Options::default()
    };
    let node = Node::up(&Tools::open()?, &options)?;
    let io = |source| Error::Io {
        what: "start the attendant".to_owned(),
        source,
    };
    let log = std::fs::File::create(node.state().join("log/attend.log")).map_err(io)?;
    let mut c = sh::command(std::env::current_exe().map_err(io)?, ["--name", name, "attend"]);
    c.stdin(Stdio::null())
        .stdout(log.try_clone().map_err(io)?)
        .stderr(log);
    c.process_group(0).spawn().map_err(io)?;
    let kubeconfig = node.state().join(node::OUTSIDE);
    sh::wait_for(
        "port to the API server",
        PATIENCE,
        Duration::from_millis(20),
        || {
            if kubeconfig.exists() {
                Ok(())
            } else {
                Err("no kubeconfig".to_owned())
            }
        },
    )?;
    Ok(node)
}

/// Puts what a reader of the documentation needs on a kept node.
fn furnish(name: &str) -> Result<()> {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::attach(name)?));
    let runtime = runtime()?;
    let address = runtime.block_on(reader::furnish(cluster))?;
    say(format!(
        "Contour's Envoy answers on {address}, inside of the node"
    ));
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().map_err(|source| Error::Io {
        what: "start the runtime".to_owned(),
        source,
    })
}

/// A node for this process alone; it lives until it is taken down.
fn own_node(name: &str) -> Result<&'static Cluster> {
    Ok(Box::leak(Box::new(Cluster::node(&Options {
        name: format!("{name}-{}", std::process::id()),
        ..Options::default()
    })?)))
}

fn measure(what: &[String]) -> Result<ExitCode> {
    const PROFILE: &str = "E2E_PROFILE";
    let tyk = what.first().is_some_and(|w| w.starts_with("tyk"));
    let unknown = |w: &String| {
        Error::other(format!(
            "{w:?} is neither a number of buckets nor tyk nor tyk-alone"
        ))
    };
    let sizes: Vec<usize> = match what {
        [word] if word == "tyk" || word == "tyk-alone" => Vec::new(),
        words => words
            .iter()
            .map(|w| w.parse().map_err(|_| unknown(w)))
            .collect::<Result<_>>()?,
    };
    if std::env::var_os(PROFILE).is_none() {
        // Figures are of the release build: this program again, with the profile set.
        let program = std::env::current_exe().map_err(|source| Error::Io {
            what: "find this program".to_owned(),
            source,
        })?;
        let mut c = sh::command(program, std::env::args_os().skip(1));
        return status(c.env(PROFILE, "release"));
    }
    let cluster = own_node("routewright-bench")?;
    let runtime = runtime()?;
    let peer = what.iter().any(|w| w == "tyk");
    let done = if tyk {
        runtime.block_on(bench::tyk::run(cluster, peer))
    } else {
        runtime.block_on(bench::run(cluster, &sizes))
    };
    cluster.down()?;
    let folder = done?;
    if !tyk {
        bench::stack(&folder)?;
    }
    say(format!("results in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Runs the suite on a node of its own for each Tyk. Success only if everything that must pass passes.
fn conform(against: Option<Against>, test: Option<&str>) -> Result<ExitCode> {
    let mut all = Vec::new();
    if against != Some(Against::TykGateway) {
        all.push(Which::Double);
    }
    if against != Some(Against::StandIn) {
        match Which::given()? {
            Some(which) => all.push(which),
            None if against.is_some() => {
                return Err(Error::Missing(
                    "TYK_GATEWAY_BIN and TYK_GATEWAY_TEMPLATES: a Tyk Gateway and its templates".to_owned(),
                ));
            }
            None => say("no Tyk Gateway is given (TYK_GATEWAY_BIN): the stand-in alone"),
        }
    }
    let mut good = true;
    for which in all {
        let cluster = own_node("rw-conformance")?;
        let runtime = runtime()?;
        let ran = runtime.block_on(conformance::run(cluster, which.clone(), test));
        let wrong = match (&ran, test) {
            (Ok(outcome), None) => outcome.wrong(),
            (Ok(outcome), Some(_)) => outcome.failed(),
            (Err(e), _) => vec![e.to_string()],
        };
        if !wrong.is_empty() {
            say(format!(
                "evidence in {}",
                cluster.evidence("conformance", &[]).display()
            ));
        }
        cluster.down()?;
        let outcome = ran?;
        if test.is_none() {
            say(format!(
                "report in {}",
                conformance::keep(&which, &outcome)?.display()
            ));
        }
        for line in &wrong {
            say(line);
        }
        good &= wrong.is_empty();
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn show(chapter: Chapter, keep: bool) -> Result<ExitCode> {
    let (name, begun) = (demo::NODE, Instant::now());
    if Node::attach(name).is_ok() {
        return Err(Error::other(format!(
            "a demo runs already: `cargo e2e --name {name} down` ends it"
        )));
    }
    node::possible()?;
    match chapter {
        Chapter::Website => demo::prepare()?,
        Chapter::Tyk => demo_tyk::prepare()?,
    }
    demo::announce_cluster();
    let started = Instant::now();
    let cluster = if keep {
        up(name, 8)?;
        Cluster::attach(name)?
    } else {
        // Ends with this process, also when that is interrupted.
        Cluster::node(&Options {
            name: name.to_owned(),
            ..Options::default()
        })?
    };
    // For the rest of the process: what the demo makes refers to it.
    let cluster: &'static Cluster = Box::leak(Box::new(cluster));
    let runtime = runtime()?;
    let (shown, ns, get, edit) = match chapter {
        Chapter::Website => {
            let address = runtime.block_on(demo::run(cluster, started, keep));
            let curl = address.map(|ip| format!("curl -s -H 'Host: {}' http://{ip}/", demo::HOST));
            (
                curl,
                demo::NAMESPACE,
                "garagebuckets -o wide",
                "garagebucket hello",
            )
        }
        Chapter::Tyk => (
            runtime.block_on(demo_tyk::run(cluster, started, keep)),
            demo_tyk::NAMESPACE,
            "httproute shop -o yaml",
            "httproute shop",
        ),
    };
    if keep {
        let e2e = format!("cargo e2e --name {name}");
        demo::tell("\nThe cluster stays, for 8 hours at most. To play with:");
        if let Ok(curl) = &shown {
            demo::tell(format!("  {e2e} exec -- {curl}"));
        }
        demo::tell(format!("  {e2e} exec -- kubectl -n {ns} get {get}"));
        demo::tell(format!("  {e2e} exec -- kubectl -n {ns} edit {edit}"));
        demo::tell(format!("  {e2e} down"));
    } else {
        cluster.down()?;
    }
    shown?;
    let left = if keep {
        ""
    } else {
        " Everything that was started has ended."
    };
    demo::tell(format!("\nDone in {}.{left}", demo::seconds(begun)));
    Ok(ExitCode::SUCCESS)
}
