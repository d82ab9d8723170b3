//! Logs: text or JSON on standard error, one filter, changeable while running.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::{
    EnvFilter, Registry, filter::LevelFilter, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use super::Failure;

/// Form of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

/// Changes the filter of a running process.
pub type Level = reload::Handle<EnvFilter, Registry>;

/// kube says at level ERROR, once more, what each caller of a failed request says with the object's name.
const TWICE: &str = "kube_client::client::builder=off";

/// Starts logging. `level` is a tracing filter: `info`, `debug`, `info,reconcile_kit=debug`.
pub fn start(format: Format, level: &str) -> Result<Level, Failure> {
    let wrong = |why: String| {
        Failure::usage(format!(
            "--log-level {level:?}: {why}; it is error, warn, info, debug or trace, or a filter such as \
             info,kube_client=debug"
        ))
    };
    // A lone word is taken for a target, and then nothing else is logged.
    let lone = |part: &&str| !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err();
    if let Some(word) = level.split(',').map(str::trim).find(lone) {
        return Err(wrong(format!("{word:?} is no level")));
    }
    let text = if level.contains("kube_client") {
        level.to_owned()
    } else {
        format!("{level},{TWICE}")
    };
    let filter = EnvFilter::try_new(text).map_err(|_| wrong("is no filter".to_owned()))?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        Format::Text => registry.with(lines).try_init(),
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| Failure::other(format!("logging: {error}")))?;
    Ok(handle)
}
