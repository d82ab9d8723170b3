//! `routewright translate`: what Tyk would serve for these manifests, and why not more, without a cluster. Reads, asks the
//! code that the controllers run, and prints. The decisions are in `tyk` and `exposure`.

pub mod answer;
mod buckets;
pub mod input;
mod table;

use std::{io::Write, path::PathBuf};

use clap::{Args, ValueEnum};

use self::{answer::Answer, input::Source};
use super::Failure;
use crate::tyk::{CONTROLLER_NAME, Settings};

/// Arguments of `routewright translate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TranslateArgs {
    /// File, folder (every .yaml, .yml and .json below it) or - for standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    pub filename: Vec<PathBuf>,

    /// How to print the answer.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,

    /// GatewayClasses with another controllerName are left alone.
    #[arg(long, env = "TYK_CONTROLLER_NAME", value_name = "NAME", default_value = CONTROLLER_NAME)]
    pub tyk_controller_name: String,

    /// DNS domain of the cluster.
    #[arg(
        long,
        env = "CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local"
    )]
    pub cluster_domain: String,
}

/// How the answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One YAML document: apis, generated, statuses, events, missing.
    #[default]
    Yaml,
    /// The same as JSON.
    Json,
    /// Tables for people; without the documents.
    Table,
}

const AFTER_HELP: &str = "\
Prints the Tyk OAS documents of every HTTPRoute, and the status and events that GatewayClasses, Gateways, listeners, \
HTTPRoutes, TykOasApiDefinitions and GarageBuckets would get. Takes several documents per file, `kind: List` and what \
`kubectl get -o yaml` prints. GarageBuckets are exposed as the operator would, and their HTTPRoutes are translated too.

What the input lacks (a GatewayClass, a Gateway, an OperatorContext, a Secret, a Service) is named with what to add. A \
Namespace that is not in the input has the label kubernetes.io/metadata.name alone.

Exit codes:
  0  nothing was rejected; an unresolved backend or an invalid listener is only told
  1  a route, a rule or a bucket's exposure was rejected, or not judged for what the input lacks
  2  the input could not be read or holds no object, or wrong usage";

/// Runs the command. The exit code is that of the failure, or 0 or 1.
pub fn run(args: &TranslateArgs) -> Result<u8, Failure> {
    let sources = input::read(&args.filename).map_err(unreadable)?;
    let settings = Settings {
        controller_name: args.tyk_controller_name.clone(),
        cluster_domain: args.cluster_domain.trim_matches('.').to_owned(),
    };
    let answer = answer_for(&sources, &settings).map_err(unreadable)?;
    let text = render(&answer, args.output)?;
    // A closed pipe is the reader's decision.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    let mut errors = std::io::stderr().lock();
    for line in answer.notes.iter().chain(&answer.missing) {
        let _ = writeln!(errors, "{line}");
    }
    Ok(u8::from(answer.rejected))
}

/// The answer for texts, or every place that could not be read.
pub fn answer_for(sources: &[Source], settings: &Settings) -> Result<Answer, Vec<String>> {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for source in sources {
        let (objects, wrong) = input::objects(source);
        found.extend(objects);
        errors.extend(wrong);
    }
    if found.is_empty() && errors.is_empty() {
        // A wrong folder must not look like a success.
        return Err(vec!["the input holds no Kubernetes object".to_owned()]);
    }
    match answer::answer(found, settings) {
        Ok(answer) if errors.is_empty() => Ok(answer),
        Ok(_) => Err(errors),
        Err(more) => {
            errors.extend(more);
            Err(errors)
        }
    }
}

/// The answer as text.
pub fn render(answer: &Answer, output: Output) -> Result<String, Failure> {
    let failed = |error: String| Failure::other(format!("translate: {error}"));
    match output {
        Output::Table => Ok(table::render(answer)),
        Output::Json => serde_json::to_string_pretty(answer)
            .map(|text| text + "\n")
            .map_err(|error| failed(error.to_string())),
        Output::Yaml => {
            // Through a JSON value: keys are sorted, and the text depends on the content alone.
            let value = serde_json::to_value(answer).map_err(|error| failed(error.to_string()))?;
            serde_saphyr::to_string(&value).map_err(|error| failed(error.to_string()))
        }
    }
}

fn unreadable(errors: Vec<String>) -> Failure {
    Failure::usage(errors.join("\n"))
}
