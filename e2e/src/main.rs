//! `e2e`: the test cluster by hand. Parses the command line; everything else is in the library.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::{Parser, Subcommand};
use routewright_e2e::node::{Node, Options, Service, clean_stale};
use routewright_e2e::sh::say;
use routewright_e2e::tools::{Part, Tools};
use routewright_e2e::{Error, Result};

/// A single-node Kubernetes in Linux namespaces of its own, without Docker.
#[derive(Parser)]
#[command(name = "e2e", version)]
struct Cli {
    /// Name of the node.
    #[arg(long, global = true, default_value = "routewright")]
    name: String,
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Build what a node consists of, or everything, into the cache.
    Tools {
        /// Also Helm, Contour, Envoy and Garage.
        #[arg(long)]
        all: bool,
    },
    /// Start a node that stays, until `down` or the end of its time.
    Up {
        /// Hours after which it ends by itself.
        #[arg(long, default_value_t = 8)]
        hours: u64,
    },
    /// Run a program inside the node, e.g. `e2e exec -- kubectl get pods -A`.
    Exec {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, required = true)]
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
    match cli.command {
        What::Tools { all } => {
            let tools = Tools::open()?;
            let parts: &[Part] = if all { &Part::ALL } else { &Part::NODE };
            for part in parts {
                say(format!("{}: {}", part.name(), tools.part(*part)?.display()));
            }
        }
        What::Up { hours } => {
            let ttl = Duration::from_secs(hours * 3600);
            let options = Options {
                name: cli.name,
                ttl,
                keep: true,
                ..Options::default()
            };
            let node = Node::up(&Tools::open()?, &options)?;
            say(format!(
                "`e2e exec -- kubectl get pods -A`; logs in {}",
                node.state().join("log").display()
            ));
        }
        What::Exec { words } => {
            let status = Node::attach(&cli.name)?
                .command(words)
                .stdin(Stdio::inherit())
                .status()
                .map_err(|source| Error::Io {
                    what: "start nsenter".to_owned(),
                    source,
                })?;
            return Ok(ExitCode::from(
                u8::try_from(status.code().unwrap_or(1)).unwrap_or(1),
            ));
        }
        What::Import { archives } => Node::attach(&cli.name)?.import(&archives)?,
        What::Restart { service } => Node::attach(&cli.name)?.restart(service)?,
        What::Down => match Node::attach(&cli.name) {
            Ok(node) => node.down()?,
            Err(_) => clean_stale()?,
        },
    }
    Ok(ExitCode::SUCCESS)
}
