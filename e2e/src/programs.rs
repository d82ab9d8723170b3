//! Test programs of the workspace: built by one call of Cargo, with the features of the whole workspace, so that no
//! library is built twice for two selections of packages; run one after the other, each as Cargo would. Which program
//! belongs to which tier is said in `tiers`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cluster::{SWITCH, repository};
use crate::error::{Error, IoContext, Result};
use crate::sh::{self, say};

/// What selects the features of everything that tests are made of.
pub const FEATURES: [&str; 2] = ["--workspace", "--all-features"];

/// A built test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Folder of its package in the repository.
    pub folder: String,
    /// Name of the package.
    pub package: String,
    /// Name of the target.
    pub name: String,
    /// It lies in the package's folder `tests`; else it holds the tests of a library or of a program.
    pub integration: bool,
    /// The executable.
    pub path: PathBuf,
}

impl Program {
    /// What Cargo says about an artifact, if it is a test program.
    fn of(message: &Value) -> Option<Self> {
        let path = message.get("executable")?.as_str()?;
        if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
            return None;
        }
        let manifest = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
        // path+file:///…/controllers#routewright@0.1.0, without the name where the folder has it
        let id = message.get("package_id")?.as_str()?.rsplit_once('#')?.1;
        let folder = manifest.file_name()?.to_string_lossy().into_owned();
        Some(Self {
            package: id
                .split_once('@')
                .map_or(folder.as_str(), |(name, _)| name)
                .to_owned(),
            folder,
            name: message.pointer("/target/name")?.as_str()?.to_owned(),
            integration: message.pointer("/target/kind/0")?.as_str()? == "test",
            path: path.into(),
        })
    }

    /// The command by which a reader runs it alone.
    pub fn shown(&self) -> String {
        let target = match self.integration {
            true => format!("--test {}", self.name),
            false => "--lib".to_owned(),
        };
        format!("cargo test -p {} --all-features {target}", self.package)
    }

    /// Its process, as Cargo starts it: in the folder of its package.
    pub fn command(&self, filter: &[String], environment: &[(&str, &str)]) -> Command {
        let folder = repository().join(&self.folder);
        let mut c = sh::command(&self.path, filter);
        c.current_dir(&folder)
            .env("CARGO_MANIFEST_DIR", folder)
            // Only the tier decides whether scenarios run.
            .env_remove(SWITCH)
            .envs(environment.iter().copied());
        c
    }
}

/// Builds the test programs of these targets (`--lib`, `--test NAME`) in every package that has such a target.
///
/// # Errors
/// A package does not build; Cargo's message is on standard error.
pub fn build(targets: &[String]) -> Result<Vec<Program>> {
    let mut c = sh::command(
        "cargo",
        ["test", "--no-run", "--message-format", "json-render-diagnostics"],
    );
    c.args(FEATURES).args(targets).current_dir(repository());
    say(sh::shown(&c));
    let mut child = c.stdout(Stdio::piped()).spawn().at("start", "cargo")?;
    let mut programs = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        for line in BufReader::new(pipe).lines() {
            let message: Value = serde_json::from_str(&line.at("read", "cargo")?).unwrap_or_default();
            programs.extend(Program::of(&message));
        }
    }
    let status = child.wait().at("wait for", "cargo")?;
    if !status.success() {
        return Err(Error::other(format!(
            "the test programs do not build ({status}); Cargo's message is above"
        )));
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_artifact_with_tests_is_a_program() {
        let mut message = json!({
            "reason": "compiler-artifact", "package_id": "path+file:///x/controllers#routewright@0.1.0",
            "manifest_path": "/x/controllers/Cargo.toml", "target": {"kind": ["test"], "name": "exposure"},
            "profile": {"test": true}, "executable": "/x/target/debug/deps/exposure-1",
        });
        let program = Program::of(&message).unwrap();
        assert_eq!(
            (program.folder.as_str(), program.name.as_str()),
            ("controllers", "exposure")
        );
        assert_eq!(
            program.shown(),
            "cargo test -p routewright --all-features --test exposure"
        );
        message["package_id"] = json!("path+file:///x/e2e#0.1.0");
        message["manifest_path"] = json!("/x/e2e/Cargo.toml");
        message["target"]["kind"] = json!(["lib"]);
        assert_eq!(
            Program::of(&message).unwrap().shown(),
            "cargo test -p e2e --all-features --lib"
        );
        message["profile"]["test"] = json!(false);
        assert_eq!(Program::of(&message), None, "the program itself");
        assert_eq!(Program::of(&json!({"reason": "build-finished"})), None);
    }
}
