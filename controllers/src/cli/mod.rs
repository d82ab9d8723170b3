//! The command line. Each command has a file; `main` only parses and dispatches.

pub mod cleanup;
pub mod connect;
pub mod crds;
pub mod logging;
pub mod namespaces;
pub mod run;
pub mod translate;

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};

/// Website exposure for Garage buckets, and Gateway API on Tyk.
#[derive(Debug, Parser)]
#[command(
    name = "routewright",
    version,
    about,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator.
    Run(Box<run::RunArgs>),
    /// Print the CustomResourceDefinitions, ready for `kubectl apply --server-side -f -`.
    Crds,
    /// Take back what would keep objects from being deleted without the operator; the chart does on uninstall.
    Cleanup(cleanup::CleanupArgs),
    /// Print what Tyk would serve for manifests, and the statuses that they would get. Needs no cluster.
    Translate(translate::TranslateArgs),
    /// Print a completion script for a shell, e.g. `source <(routewright completions bash)`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print version and the API versions that this build knows.
    Version,
}

/// A command that could not do what it was asked: one line, and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For people: what is wrong, and the way out.
    pub message: String,
    /// Exit code: 2 for usage and configuration, 1 for anything else.
    pub code: u8,
}

impl Failure {
    /// Wrong usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 2,
        }
    }

    /// Anything that went wrong while doing it.
    pub fn other(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 1,
        }
    }
}

/// The command line, or what ends the process: help is printed as it is, a wrong use becomes one line.
pub fn parse(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, Failure> {
    Cli::try_parse_from(words).map_err(|error| {
        // Help and version: to standard output, a success.
        if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            error.exit();
        }
        let text = error.to_string();
        let said: Vec<&str> = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
            .filter(|line| !line.is_empty())
            .collect();
        let said = said.join(" ");
        Failure::usage(format!("{}; try --help", said.trim_start_matches("error: ")))
    })
}

/// `routewright version`
#[allow(clippy::print_stdout)]
pub fn version() {
    println!("routewright {}", env!("CARGO_PKG_VERSION"));
    println!(
        "garage.rajsingh.info: GarageBucket v1beta1, GarageCluster v1beta2, GarageReferenceGrant v1beta1"
    );
    println!("networking.k8s.io/v1 Ingress, gateway.networking.k8s.io/v1 HTTPRoute");
    println!("tyk.tyk.io: OperatorContext v1alpha1, TykOasApiDefinition v1alpha1");
}

/// `routewright completions`: a script for a shell, from the same definitions as the commands.
pub fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "routewright", &mut script);
    // A closed pipe is the reader's decision.
    let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), &script);
}

/// The one line that a failed command ends with.
#[allow(clippy::print_stderr)]
pub fn complain(failure: &Failure) {
    eprintln!("routewright: {failure}");
}
