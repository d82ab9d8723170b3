//! Logs: text or JSON on standard error, one filter, changeable while running.

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

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

/// Starts logging. `level` is a tracing filter: `info`, `debug`, `info,reconcile_kit=debug`.
pub fn start(format: Format, level: &str) -> Result<Level, Failure> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        Failure::usage(format!("--log-level {level:?}: {error}; try info, debug or warn"))
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        Format::Text => registry.with(lines).try_init(),
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| Failure::other(format!("logging: {error}")))?;
    Ok(handle)
}
