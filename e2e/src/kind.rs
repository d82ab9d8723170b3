//! The other cluster: `kind`, where Docker exists. Only command lines; what they do is kind's business.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, IoContext, Result};
use crate::sh;

/// A kind cluster of that name.
#[derive(Debug, Clone)]
pub struct Kind {
    name: String,
    dir: PathBuf,
    path: Option<OsString>,
}

impl Kind {
    /// A cluster that is to be made; its files go to `dir`.
    pub fn new(name: &str, dir: &Path) -> Self {
        Self {
            name: name.to_owned(),
            dir: dir.to_path_buf(),
            path: None,
        }
    }

    /// Looks for programs in `path` instead of PATH.
    #[must_use]
    pub fn with_path(mut self, path: OsString) -> Self {
        self.path = Some(path);
        self
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut c = sh::command(program, args);
        if let Some(path) = &self.path {
            c.env("PATH", path);
        }
        c
    }

    /// Where its kubeconfig lies.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kind.kubeconfig")
    }

    /// Makes the cluster and waits until its node is Ready.
    ///
    /// # Errors
    /// [`Error::Missing`] without Docker or kind.
    pub fn create(&self) -> Result<()> {
        let docker = self.command("docker", &["info", "--format", "{{.ServerVersion}}"]);
        sh::run(docker)
            .map_err(|e| Error::Missing(format!("a running Docker for E2E_CLUSTER=kind ({e})")))?;
        let config = self.dir.join("kind.yaml");
        let text = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{role: control-plane}]\n";
        std::fs::write(&config, text).at("write", &config)?;
        let (config, kubeconfig) = (
            config.display().to_string(),
            self.kubeconfig().display().to_string(),
        );
        let mut args = vec!["create", "cluster", "--name", &self.name, "--config", &config];
        args.extend(["--kubeconfig", &kubeconfig, "--wait", "180s"]);
        match sh::run(self.command("kind", &args)) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Err(
                Error::Missing("kind for E2E_CLUSTER=kind (https://kind.sigs.k8s.io)".to_owned()),
            ),
            other => other.map(|_| ()),
        }
    }

    /// Loads an image archive into its node.
    ///
    /// # Errors
    /// When kind refuses it.
    pub fn load(&self, archive: &Path) -> Result<()> {
        let archive = archive.display().to_string();
        sh::run(self.command("kind", &["load", "image-archive", &archive, "--name", &self.name])).map(|_| ())
    }

    /// The command that removes the cluster.
    pub fn delete_command(&self) -> Command {
        let kubeconfig = self.kubeconfig().display().to_string();
        self.command(
            "kind",
            &[
                "delete",
                "cluster",
                "--name",
                &self.name,
                "--kubeconfig",
                &kubeconfig,
            ],
        )
    }

    /// The logs of its containers, into a folder.
    ///
    /// # Errors
    /// When Docker refuses.
    pub fn logs(&self, folder: &Path) -> Result<()> {
        let node = format!("{}-control-plane", self.name);
        let text = sh::run(self.command("docker", &["logs", &node]))?;
        std::fs::write(folder.join("kind.log"), text).at("write", folder.join("kind.log"))?;
        let folder = folder.join("kind").display().to_string();
        sh::run(self.command("kind", &["export", "logs", &folder, "--name", &self.name])).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Programs that write down how they were called, and fail when `FAIL` lies beside them.
    fn recorders(dir: &Path, programs: &[&str]) -> OsString {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for program in programs {
            let calls = dir.join("calls").display().to_string();
            let fail = dir.join(format!("fail-{program}")).display().to_string();
            let text = format!("#!/bin/sh\necho {program} \"$@\" >>{calls}\n[ ! -e {fail} ]\n");
            let file = bin.join(program);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        bin.into_os_string()
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("routewright-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_command_lines_of_a_whole_life() {
        let dir = scratch("kind");
        let path = recorders(&dir, &["kind", "docker"]);
        let kind = Kind::new("rw", &dir).with_path(path);
        // When a cluster is made, fed, asked for logs and removed
        kind.create().unwrap();
        kind.load(Path::new("/x/app.tar")).unwrap();
        kind.logs(&dir).unwrap();
        sh::run(kind.delete_command()).unwrap();
        // Then these programs ran, in this order
        let d = dir.display();
        let calls = std::fs::read_to_string(dir.join("calls")).unwrap();
        let expected = [
            "docker info --format {{.ServerVersion}}".to_owned(),
            format!(
                "kind create cluster --name rw --config {d}/kind.yaml --kubeconfig {d}/kind.kubeconfig --wait 180s"
            ),
            "kind load image-archive /x/app.tar --name rw".to_owned(),
            "docker logs rw-control-plane".to_owned(),
            format!("kind export logs {d}/kind --name rw"),
            format!("kind delete cluster --name rw --kubeconfig {d}/kind.kubeconfig"),
        ];
        assert_eq!(calls.lines().collect::<Vec<_>>(), expected);
        assert!(
            std::fs::read_to_string(dir.join("kind.yaml"))
                .unwrap()
                .contains("kind: Cluster")
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        let dir = scratch("kind-missing");
        // Given Docker without kind, and Docker that does not answer
        let no_kind = Kind::new("rw", &dir).with_path(recorders(&dir, &["docker"]));
        let text = no_kind.create().unwrap_err().to_string();
        assert!(
            text.starts_with("missing: kind") && !text.contains('\n'),
            "{text}"
        );
        std::fs::write(dir.join("fail-docker"), "").unwrap();
        let text = no_kind.create().unwrap_err().to_string();
        assert!(text.starts_with("missing: a running Docker"), "{text}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
