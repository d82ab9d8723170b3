//! The one error type of the harness. Messages name what failed and the way out; no secrets.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What can go wrong while a test cluster is prepared or driven.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks something; the text says what, and which other way exists.
    #[error("missing: {0}")]
    Missing(String),
    /// A program ended with a failure.
    #[error("`{command}` failed ({status}): {output}")]
    Command {
        /// The command line as it could be typed.
        command: String,
        /// Exit code or signal.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A condition did not come true in time.
    #[error("not within {limit:?}: {what}; last seen: {last}")]
    Timeout {
        /// The condition.
        what: String,
        /// How long it was waited for.
        limit: Duration,
        /// What was seen last.
        last: String,
    },
    /// A file or socket operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and the path.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The API server refused or could not be reached.
    #[error("kubernetes API: {0}")]
    Kube(#[from] kube::Error),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// Result with the harness's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An [`Error::Other`] from anything printable.
    pub fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}

/// Adds the operation and the path to an I/O error.
pub trait IoContext<T> {
    /// `what` is a verb, `path` what it was done to.
    fn at(self, what: &str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn at(self, what: &str, path: impl AsRef<Path>) -> Result<T> {
        let path: PathBuf = path.as_ref().to_path_buf();
        self.map_err(|source| Error::Io {
            what: format!("{what} {}", path.display()),
            source,
        })
    }
}
