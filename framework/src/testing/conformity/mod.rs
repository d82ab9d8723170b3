//! The conformity suite: what the test server fakes, written down once as requests and run against any API server.
//!
//! A check sends requests and notes what came back, line by line, with uids, resource versions and the namespace made
//! comparable. `expected.txt` holds the notes that a real kube-apiserver 1.36 gave. A server conforms when it gives
//! the same. [`observe`] prints notes in the format of that file, for a new server version.

mod checks;
mod notes;

use kube::Client;

pub use notes::Notes;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Every line is as expected.
    Passed,
    /// The server does not serve what the check needs.
    Skipped(String),
    /// The first difference, with the lines before it.
    Failed(String),
}

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Name of the check, with the kind it ran for: `apply twice / Ingress`.
    pub name: String,
    /// What came of it.
    pub outcome: CheckOutcome,
}

impl CheckResult {
    /// Whether the server differs from what is expected.
    pub fn is_failure(&self) -> bool {
        matches!(self.outcome, CheckOutcome::Failed(_))
    }
}

impl std::fmt::Display for CheckResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.outcome {
            CheckOutcome::Passed => write!(f, "ok      {}", self.name),
            CheckOutcome::Skipped(why) => write!(f, "skipped {}: {why}", self.name),
            CheckOutcome::Failed(why) => write!(f, "FAILED  {}\n{why}", self.name),
        }
    }
}

/// User without any right that the RBAC check impersonates. A test server has to deny it everything.
pub const NOBODY: &str = "conformity-nobody";

const EXPECTED: &str = include_str!("expected.txt");

/// Runs all checks as an administrator. `namespace` is created when it is missing; the checks use it, two more whose
/// names start with it, and the CRD group `conformity.reconcile-kit.dev`, and remove what they made, except the
/// namespace itself.
pub async fn run(client: Client, namespace: &str) -> Vec<CheckResult> {
    run_only(client, namespace, "").await
}

/// Runs the checks whose name contains `filter`.
pub async fn run_only(client: Client, namespace: &str, filter: &str) -> Vec<CheckResult> {
    let mut results = Vec::new();
    checks::all(client, namespace, filter, |name, seen| {
        let outcome = match seen {
            Err(why) => CheckOutcome::Skipped(why),
            Ok(lines) => compare(&expected(&name), &lines),
        };
        results.push(CheckResult { name, outcome });
    })
    .await;
    results
}

/// Runs the checks whose name contains `filter` and hands over their notes, one check at a time, in the format of
/// `expected.txt`.
pub async fn observe(client: Client, namespace: &str, filter: &str, mut notes: impl FnMut(&str)) {
    checks::all(client, namespace, filter, |name, seen| {
        let lines = match seen {
            Err(why) => format!("# skipped: {why}\n"),
            Ok(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
        };
        notes(&format!("## {name}\n{lines}\n"));
    })
    .await;
}

fn expected(name: &str) -> Vec<String> {
    EXPECTED
        .lines()
        .skip_while(|line| line.strip_prefix("## ") != Some(name))
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| !line.is_empty() && !line.starts_with("# "))
        .map(str::to_owned)
        .collect()
}

fn compare(expected: &[String], seen: &[String]) -> CheckOutcome {
    let nothing = "(nothing)".to_owned();
    for i in 0..expected.len().max(seen.len()) {
        let (wanted, got) = (
            expected.get(i).unwrap_or(&nothing),
            seen.get(i).unwrap_or(&nothing),
        );
        if wanted != got {
            return CheckOutcome::Failed(format!("  expected {wanted}\n  got      {got}"));
        }
    }
    CheckOutcome::Passed
}
