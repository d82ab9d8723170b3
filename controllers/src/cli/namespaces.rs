//! The flag that names the namespaces to look at, for every command that has it.

/// Namespaces of buckets.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WatchNamespaces {
    /// Namespaces to look at, separated by commas; empty for all.
    #[arg(
        long,
        env = "WATCH_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub watch_namespaces: Vec<String>,
}

impl WatchNamespaces {
    /// The names that were given, without blanks; none: all namespaces.
    pub fn named(&self) -> Vec<String> {
        let names = self.watch_namespaces.iter().map(|name| name.trim());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}
