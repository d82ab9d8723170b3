//! The command line. Each command has a file; `main` only parses and dispatches.

pub mod cleanup;
pub mod connect;
pub mod crds;
pub mod logging;
pub mod namespaces;
pub mod run;
pub mod translate;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

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
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command)));
    cli.map_err(|error| {
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

/// The commands and their flags. A variable that is set to nothing counts as left out, so that the flag has its default:
/// templates write such variables.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        command.mut_args(|flag| {
            let value = flag.get_env().and_then(std::env::var_os);
            match value.is_some_and(|value| value.is_empty()) {
                true => flag.env(clap::builder::Resettable::Reset),
                false => flag,
            }
        })
    })
}

/// Reads a boolean as people write it in values and variables.
///
/// # Errors
/// The text is no boolean.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "t" | "y" => Ok(true),
        "false" | "no" | "off" | "0" | "f" | "n" => Ok(false),
        _ => Err("must be one of true, false, yes, no, on, off, 1, 0".to_owned()),
    }
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
