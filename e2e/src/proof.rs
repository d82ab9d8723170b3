//! Shows that the simulator finds faults: each known fault (`sim/faults/*.patch`) is put into a copy of the sources, one at a
//! time, and the simulator must break a rule within a number of seeds. Prints the table of docs/src/simulator.md.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::repository;
use crate::error::{Error, IoContext, Result};
use crate::sh::{self, say};

/// Histories in which a fault must be found.
const SEEDS: u32 = 2_000;

/// A fault that is put back.
struct Fault {
    name: String,
    patch: PathBuf,
}

/// What came of one.
struct Found {
    name: String,
    /// `seed N | rule`, or why the fault was not found.
    what: String,
    good: bool,
}

/// Puts back every fault whose name holds `filter`, one after the other. True when each was found.
///
/// # Errors
/// A patch does not apply, or the sources do not build.
pub fn run(filter: &str) -> Result<bool> {
    let folder = repository().join("target/proof");
    let (sources, target) = (folder.join("sources"), folder.join("target"));
    let mut found = Vec::new();
    for fault in faults(filter)? {
        say(format!("fault: {}", fault.name));
        copy_sources(&sources)?;
        apply(&sources, &fault.patch)?;
        found.push(search(&sources, &target, fault.name)?);
    }
    if found.is_empty() {
        return Err(Error::other(format!("no fault in sim/faults is called {filter}")));
    }
    let mut out = std::io::stdout().lock();
    use std::io::Write as _;
    for one in &found {
        // A closed pipe is the reader's decision.
        let _ = writeln!(out, "| `{}` | {} |", one.name, one.what);
    }
    let missed = found.iter().filter(|one| !one.good).count();
    let _ = writeln!(out, "faults: {} put back, {missed} not found", found.len());
    Ok(missed == 0)
}

fn faults(filter: &str) -> Result<Vec<Fault>> {
    let folder = repository().join("sim/faults");
    let mut all: Vec<Fault> = fs::read_dir(&folder)
        .at("read", &folder)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "patch"))
        .filter_map(|patch| {
            let name = patch.file_stem()?.to_string_lossy().into_owned();
            Some(Fault { name, patch })
        })
        .filter(|fault| fault.name.contains(filter))
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// What is committed or about to be, without what is built. Files keep their times, so that only what a patch touches is
/// built again.
fn copy_sources(to: &Path) -> Result<()> {
    fs::create_dir_all(to).at("create", to)?;
    let mut list = sh::command("git", ["ls-files", "-z"]);
    list.current_dir(repository());
    let files = sh::run(list)?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (repository().join(file), to.join(file));
        if from.is_symlink() || !from.exists() {
            continue;
        }
        let same = fs::read(&to).is_ok_and(|old| fs::read(&from).is_ok_and(|new| new == old));
        if !same {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).at("create", folder)?;
            }
            fs::copy(&from, &to).at("copy", &from)?;
        }
    }
    Ok(())
}

fn apply(sources: &Path, patch: &Path) -> Result<()> {
    let mut c = sh::command("patch", ["-p1", "--force", "--silent", "-i"]);
    c.arg(patch).current_dir(sources);
    sh::run(c).map(drop)
}

fn search(sources: &Path, target: &Path, name: String) -> Result<Found> {
    let mut build = sh::command(
        "cargo",
        [
            "build",
            "--profile",
            "sim",
            "-p",
            "routewright-sim",
            "--bin",
            "sim",
        ],
    );
    build.current_dir(sources).env("CARGO_TARGET_DIR", target);
    sh::run(build)?;
    let seeds = SEEDS.to_string();
    let mut c = sh::command(
        target.join("sim/sim"),
        ["--seeds", &seeds, "--from", "1", "--most", "1", "--shorten", "0"],
    );
    c.current_dir(sources);
    let text = sh::output(c)?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let mut lines = text.lines();
    let seed = lines.find(|line| line.starts_with("seed "));
    let rule = lines.next().map(str::trim).unwrap_or_default();
    Ok(match seed.and_then(|line| line.split(':').next()) {
        Some(seed) => Found {
            name,
            what: format!("{seed} | {}", rule.split(" (at ").next().unwrap_or_default()),
            good: true,
        },
        None => Found {
            name,
            what: format!("not within {SEEDS} seeds | "),
            good: false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_applies_to_the_sources() {
        for fault in faults("").unwrap() {
            let mut c = sh::command("patch", ["-p1", "--dry-run", "--force", "--silent", "-i"]);
            c.arg(&fault.patch).current_dir(repository());
            sh::run(c).unwrap_or_else(|e| panic!("{}: {e}", fault.name));
        }
    }
}
