//! `routewright crds`: the CRDs that this build was made for, as YAML documents.

use std::io::Write;

use super::Failure;

/// Writes all CRDs to standard output.
pub fn print() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let files =
        routewright_crds::generate::files().map_err(|error| Failure::other(format!("crds: {error}")))?;
    for (_, text) in files {
        // A closed pipe is the reader's decision.
        if writeln!(out, "---\n{}", text.trim_end()).is_err() {
            break;
        }
    }
    Ok(())
}
