//! Where the API server is: `KUBECONFIG`, else `~/.kube/config`, else the Pod that this is. What is wrong is said in one
//! line that names the file.

use std::path::PathBuf;

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::Failure;

/// The configuration of the client.
///
/// A `KUBECONFIG` that is set must be good: falling back to the Pod's account would act on a cluster that nobody asked for.
pub async fn config() -> Result<Config, Failure> {
    let set = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    let (named, read) = match (set, home.filter(|file| file.exists())) {
        (Some(value), _) => (
            format!("KUBECONFIG {}", PathBuf::from(value).display()),
            Kubeconfig::from_env(),
        ),
        (None, Some(file)) => (file.display().to_string(), Kubeconfig::read_from(&file).map(Some)),
        (None, None) if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            return Config::incluster()
                .map_err(|error| Failure::usage(format!("the account of this Pod: {}", one_line(&error))));
        }
        (None, None) => {
            return Err(Failure::usage(
                "no cluster: KUBECONFIG is not set, there is no ~/.kube/config, and this is no Pod",
            ));
        }
    };
    let failed = |why: String| Failure::usage(format!("{named}: {why}"));
    let kubeconfig = read
        .map_err(|error| failed(one_line(&error)))?
        .ok_or_else(|| failed("names no file".to_owned()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(one_line(&error)))
}

/// An error and its causes in one line, without the excerpts that parsers draw.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let first = |text: String| text.lines().next().unwrap_or_default().trim_end().to_owned();
    let mut text = first(error.to_string());
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = first(inner.to_string());
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    // Paths come quoted twice.
    text.replace("'\"", "").replace("\"'", "")
}
