//! The conformance suite of Gateway API, unmodified, against Routewright and a Tyk: which tests must pass, which are left
//! out and why, and how a run is made and counted. What the results mean for users is told in docs/conformance.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;

use crate::cluster::{Cluster, blocking, repository};
use crate::error::{Error, IoContext, Result};
use crate::operator::Operator;
use crate::sh::{self, say};
use crate::tools::{self, Part};
use crate::tyk::{Tyk, Which};

/// The GatewayClass of a run.
pub const CLASS: &str = "routewright";
/// Its controller.
pub const CONTROLLER: &str = "routewright.dev/tyk";
/// The only profile that there is something for.
pub const PROFILE: &str = "GATEWAY-HTTP";

/// What is expected of a core test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It looks at status alone, and passes.
    Status,
    /// It sends requests, and passes.
    Traffic,
    /// It needs what Tyk Operator 1.6 leaves out: the heading and the words of its documentation that say so.
    LeftOut(&'static str, &'static str),
}

const EXACT: Expected = Expected::LeftOut(
    "Matches",
    "`path` with `type: Exact` or `RegularExpression`: not supported",
);
const HEADERS: Expected = Expected::LeftOut("Matches", "`headers`: not supported");

/// The core tests of the profile. `GatewayInvalidParametersRef` was one up to v1.6.1; v1.6.3 counts it under the extended
/// feature GatewayInfrastructure, of which the rest asks for infrastructure of one's own. It is run all the same.
pub const CORE: [(&str, Expected); 37] = [
    ("GatewayClassObservedGenerationBump", Expected::Status),
    ("GatewayInvalidParametersRef", Expected::Status),
    ("GatewayInvalidRouteKind", Expected::Status),
    ("GatewayInvalidTLSConfiguration", Expected::Status),
    ("GatewayListenerUnsupportedProtocol", Expected::Status),
    ("GatewayModifyListeners", Expected::Status),
    ("GatewayObservedGenerationBump", Expected::Status),
    ("GatewaySecretInvalidReferenceGrant", Expected::Status),
    ("GatewaySecretMissingReferenceGrant", Expected::Status),
    ("GatewaySecretReferenceGrantAllInNamespace", Expected::Status),
    ("GatewaySecretReferenceGrantSpecific", Expected::Status),
    ("GatewayWithAttachedRoutes", Expected::Status),
    ("HTTPRouteCrossNamespace", Expected::Traffic),
    ("HTTPRouteExactPathMatching", EXACT),
    ("HTTPRouteHTTPSListener", Expected::Traffic),
    ("HTTPRouteHeaderMatching", HEADERS),
    ("HTTPRouteHostnameIntersection", Expected::Traffic),
    ("HTTPRouteInvalidBackendRefUnknownKind", Expected::Traffic),
    ("HTTPRouteInvalidCrossNamespaceBackendRef", Expected::Traffic),
    ("HTTPRouteInvalidCrossNamespaceParentRef", Expected::Status),
    ("HTTPRouteInvalidNonExistentBackendRef", Expected::Traffic),
    (
        "HTTPRouteInvalidParentRefNotMatchingSectionName",
        Expected::Status,
    ),
    ("HTTPRouteInvalidReferenceGrant", Expected::Traffic),
    ("HTTPRouteListenerHostnameMatching", Expected::Traffic),
    ("HTTPRouteMatching", HEADERS),
    ("HTTPRouteMatchingAcrossRoutes", HEADERS),
    (
        "HTTPRouteMultipleGateways",
        Expected::LeftOut(
            "HTTPRoute Conditions",
            "`DataPlaneShared`: another parent Gateway already serves this route on the same hostname and data plane",
        ),
    ),
    ("HTTPRouteNoBackendRefs", EXACT),
    ("HTTPRouteObservedGenerationBump", Expected::Status),
    (
        "HTTPRoutePartiallyInvalidViaInvalidReferenceGrant",
        Expected::Traffic,
    ),
    ("HTTPRoutePathMatchOrder", EXACT),
    (
        "HTTPRouteRedirectHostAndStatus",
        Expected::LeftOut(
            "Filters",
            "`RequestRedirect`: supported if `hostname` is set and `path.type` is `ReplaceFullPath`",
        ),
    ),
    ("HTTPRouteReferenceGrant", Expected::Traffic),
    (
        "HTTPRouteRequestHeaderModifier",
        Expected::LeftOut("Filters", "`RequestHeaderModifier`: `add` is not supported"),
    ),
    ("HTTPRouteServiceTypes", EXACT),
    ("HTTPRouteSimpleSameNamespace", Expected::Traffic),
    ("HTTPRouteWeight", Expected::Traffic),
];

/// Extended tests of features that are not claimed as a whole, but that pass: a second run of the same program, without
/// a report, asks for exactly these.
pub const BESIDES: [&str; 2] = [
    "GatewayInvalidParametersRef",
    "HTTPRouteInvalidParentRefSectionNameNotMatchingPort",
];
const BESIDES_FEATURES: &str =
    "Gateway,HTTPRoute,ReferenceGrant,GatewayInfrastructure,HTTPRouteParentRefPort";

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// The suite left it out, by the list or by its features.
    Skipped,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Each test that ran or was left out, with seconds.
    pub tests: BTreeMap<String, (Verdict, f64)>,
    /// The suite's own report, unchanged.
    pub report: String,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

impl Outcome {
    fn passed(&self, wanted: impl Fn(Expected) -> bool) -> (usize, usize) {
        let of = CORE.iter().filter(|(_, e)| wanted(*e));
        let names: Vec<&str> = of.map(|(name, _)| *name).collect();
        let good = |name: &&&str| self.tests.get(**name).is_some_and(|t| t.0 == Verdict::Passed);
        (names.iter().filter(good).count(), names.len())
    }

    /// Core tests that look at status alone: passed, of how many.
    pub fn status(&self) -> (usize, usize) {
        self.passed(|e| e == Expected::Status)
    }

    /// All core tests: passed, of how many.
    pub fn core(&self) -> (usize, usize) {
        self.passed(|_| true)
    }

    /// The tests that failed, one line each.
    pub fn failed(&self) -> Vec<String> {
        let failed = self.tests.iter().filter(|(_, t)| t.0 == Verdict::Failed);
        failed.map(|(name, _)| format!("{name} failed")).collect()
    }

    /// What is not as it must be, one line each: a failure, or a test that did not run and is not on the list.
    pub fn wrong(&self) -> Vec<String> {
        let mut lines = self.failed();
        for (name, expected) in CORE {
            let ran = self.tests.get(name).map(|t| t.0);
            let must = !matches!(expected, Expected::LeftOut(..));
            if must && !matches!(ran, Some(Verdict::Passed | Verdict::Failed)) {
                lines.push(format!("{name} did not run"));
            }
        }
        for name in BESIDES {
            if !self.tests.contains_key(name) {
                lines.push(format!("{name} did not run"));
            }
        }
        lines
    }

    /// The results as a table.
    pub fn table(&self) -> String {
        let mut text = String::from("| core test | kind | result |\n|---|---|---|\n");
        for (name, expected) in CORE {
            let kind = match expected {
                Expected::Status => "status",
                Expected::Traffic | Expected::LeftOut(..) => "traffic",
            };
            let result = match (self.tests.get(name), expected) {
                (Some((Verdict::Skipped, _)), Expected::LeftOut(heading, words)) => {
                    format!("skipped: {words} ({heading})")
                }
                (Some((verdict, seconds)), _) if *verdict != Verdict::Skipped => {
                    format!("{verdict}, {seconds:.1} s")
                }
                (Some((verdict, _)), _) => verdict.to_string(),
                (None, _) => "did not run".to_owned(),
            };
            let _ = writeln!(text, "| {name} | {kind} | {result} |");
        }
        let core: Vec<&str> = CORE.iter().map(|(name, _)| *name).collect();
        for (name, (verdict, seconds)) in &self.tests {
            if *verdict != Verdict::Skipped && !core.contains(&name.as_str()) {
                let _ = writeln!(text, "| {name} | extended | {verdict}, {seconds:.1} s |");
            }
        }
        text
    }

    /// The figures in a line.
    pub fn line(&self) -> String {
        let ((status, of_status), (core, of_core)) = (self.status(), self.core());
        let count = |v: Verdict| self.tests.values().filter(|t| t.0 == v).count();
        format!(
            "{status} of {of_status} core tests of status and {core} of {of_core} core tests in all pass; {} tests passed, {} failed",
            count(Verdict::Passed),
            count(Verdict::Failed)
        )
    }
}

/// Runs the suite against a Tyk in a namespace of its own, with the operator from its chart.
///
/// # Errors
/// When something does not get ready or the program cannot be started; never for a test that fails.
pub async fn run(cluster: &'static Cluster, which: Which, only: Option<&str>) -> Result<Outcome> {
    cluster.gateway_crds("standard").await?;
    cluster.product_crds().await?;
    cluster.load_part(Part::GatewayApi).await?;
    let namespace = cluster.namespace("tyk").await?;
    let tyk = Tyk::deploy(cluster, namespace.name(), which).await?;
    tyk.class(CLASS, CONTROLLER)?;
    let values = json!({"tyk": {"enabled": true}});
    let operator = Operator::pod(cluster, values).await?;
    say(format!("the conformance suite against {}", tyk.which.name()));
    let name = only.unwrap_or_default().to_owned();
    let outcome = blocking(move || suite(cluster, &name)).await;
    let kept = cluster.scratch().join("conformance-operator.log");
    let _ = fs::write(&kept, operator.logs().unwrap_or_default());
    let outcome = outcome?;
    for line in outcome.table().lines() {
        say(line);
    }
    say(outcome.line());
    Ok(outcome)
}

/// The program of the suite, twice: with the report, and for what is not claimed. `only`: one test, without a report.
fn suite(cluster: &Cluster, only: &str) -> Result<Outcome> {
    let program = cluster.tools().program(Part::GatewayApi, "conformance.test")?;
    let log = cluster.scratch().join("conformance.log");
    let report = cluster.scratch().join("report.yaml");
    let mut outcome = Outcome::default();
    if !only.is_empty() {
        go(
            cluster,
            &program,
            &log,
            &[format!("-run-test={only}")],
            &mut outcome,
        )?;
        return Ok(outcome);
    }
    let left_out: Vec<&str> = CORE
        .iter()
        .filter(|(_, e)| matches!(e, Expected::LeftOut(..)))
        .map(|(name, _)| *name)
        .collect();
    let version = operator_version();
    let args = [
        // A test takes the names of an earlier one's routes; while those wait for their finalizer, the suite would
        // overwrite what is being deleted, finalizer included. The suite's own setting leaves them the time.
        "-timeout-config-overrides=TestIsolation:2".to_owned(),
        // Nothing is said of features: the suite takes what the GatewayClass says, and the core of the profile.
        format!("-conformance-profiles={PROFILE}"),
        format!("-skip-tests={}", left_out.join(",")),
        format!("-report-output={}", report.display()),
        "-organization=routewright".to_owned(),
        "-project=routewright".to_owned(),
        "-url=https://routewright.dev".to_owned(),
        format!("-version={version}"),
        "-contact=https://routewright.dev".to_owned(),
    ];
    go(cluster, &program, &log, &args, &mut outcome)?;
    outcome.report = fs::read_to_string(&report).at("read", &report)?;
    let args = [
        format!("-supported-features={BESIDES_FEATURES}"),
        format!("-test.run=^TestConformance$/^({})$", BESIDES.join("|")),
    ];
    go(cluster, &program, &log, &args, &mut outcome)?;
    Ok(outcome)
}

fn operator_version() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

fn go(cluster: &Cluster, program: &Path, log: &Path, args: &[String], outcome: &mut Outcome) -> Result<()> {
    let mut words = vec![
        program.display().to_string(),
        "-test.v".to_owned(),
        "-test.timeout=40m".to_owned(),
        format!("-gateway-class={CLASS}"),
        // The node goes with the run.
        "-cleanup-base-resources=false".to_owned(),
    ];
    if !args.iter().any(|a| a.starts_with("-test.run")) {
        words.push("-test.run=^TestConformance$".to_owned());
    }
    words.extend(args.iter().cloned());
    let mut c = cluster.own_node()?.command(words);
    let file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .at("open", log)?;
    let errors = file.try_clone().at("open", log)?;
    let mut child = c
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .at("start", program)?;
    let mut file = std::io::BufWriter::new(file);
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    let mut seen = 0usize;
    for line in lines.into_iter().flatten() {
        let line = line.at("read", program)?;
        writeln!(file, "{line}").at("write", log)?;
        if let Some(name) = begun(&line) {
            say(name);
        }
        if let Some((name, verdict, seconds)) = result(&line) {
            seen += 1;
            if verdict != Verdict::Skipped {
                say(format!("{name}: {verdict} ({seconds:.1} s)"));
            }
            let known = outcome.tests.get(&name).is_some_and(|t| t.0 != Verdict::Skipped);
            if !(known && verdict == Verdict::Skipped) {
                outcome.tests.insert(name, (verdict, seconds));
            }
        }
    }
    file.flush().at("write", log)?;
    let status = child.wait().at("wait for", program)?;
    if seen == 0 {
        let text = fs::read_to_string(log).unwrap_or_default();
        return Err(Error::other(format!(
            "the suite ended ({status}) without a test:\n{}",
            sh::tail(&text, 25)
        )));
    }
    Ok(())
}

/// A line that says which test of the suite begins; those that are left out have none.
fn begun(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Running ")?;
    rest.split_once(", relying on the following features")
        .map(|(name, _)| name)
}

/// A line that says how a test of the suite ended: `    --- PASS: TestConformance/NAME (1.23s)`.
fn result(line: &str) -> Option<(String, Verdict, f64)> {
    let (verdict, rest) = line
        .trim_start()
        .strip_prefix("--- ")?
        .split_once(": TestConformance/")?;
    let (name, seconds) = rest.split_once(" (")?;
    if name.contains('/') {
        return None;
    }
    let verdict = match verdict {
        "PASS" => Verdict::Passed,
        "FAIL" => Verdict::Failed,
        "SKIP" => Verdict::Skipped,
        _ => return None,
    };
    let seconds = seconds.trim_end_matches("s)").parse().ok()?;
    Some((name.to_owned(), verdict, seconds))
}

/// Writes report and table of a run into docs/conformance.
///
/// # Errors
/// When a file cannot be written.
pub fn keep(which: &Which, outcome: &Outcome) -> Result<PathBuf> {
    let name = match which {
        Which::Double => "stand-in",
        Which::Real { .. } => "tyk-gateway",
    };
    let folder = repository().join("docs/conformance").join(name);
    fs::create_dir_all(&folder).at("create", &folder)?;
    let report = format!("standard-{}-default-report.yaml", tools::GATEWAY_API);
    let text = format!("{}.\n\n{}", outcome.line(), outcome.table());
    for (file, text) in [(report.as_str(), &outcome.report), ("results.txt", &text)] {
        let path = folder.join(file);
        fs::write(&path, text).at("write", &path)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_what_the_page_says() {
        let count = |wanted: fn(Expected) -> bool| CORE.iter().filter(|(_, e)| wanted(*e)).count();
        assert_eq!(count(|e| e == Expected::Status), 15);
        assert_eq!(count(|e| !matches!(e, Expected::LeftOut(..))), 27);
        let page = fs::read_to_string(repository().join("docs/conformance/README.md")).unwrap();
        for (name, expected) in CORE {
            if let Expected::LeftOut(heading, words) = expected {
                let row = page
                    .lines()
                    .find(|l| l.contains(&format!("| {name} |")))
                    .unwrap_or_default();
                assert!(
                    row.contains(words) && row.contains(heading),
                    "docs/conformance/README.md, row of {name}: {row:?}"
                );
            }
        }
    }

    #[test]
    fn a_line_of_the_suite_becomes_a_result() {
        let line = "    --- PASS: TestConformance/HTTPRouteWeight (12.30s)";
        assert_eq!(
            result(line),
            Some(("HTTPRouteWeight".to_owned(), Verdict::Passed, 12.3))
        );
        assert_eq!(
            result("        --- PASS: TestConformance/HTTPRouteWeight/Requests (1.00s)"),
            None
        );
        assert_eq!(result("--- FAIL: TestConformance (300.00s)"), None);
        assert_eq!(result("=== RUN   TestConformance/HTTPRouteWeight"), None);
    }

    #[test]
    fn a_test_that_did_not_run_is_wrong_and_one_left_out_is_not() {
        // Given everything passed, but for what is left out
        let mut outcome = Outcome::default();
        let must = CORE.iter().filter(|(_, e)| !matches!(e, Expected::LeftOut(..)));
        for name in must.map(|(name, _)| *name).chain(BESIDES) {
            outcome.tests.insert(name.to_owned(), (Verdict::Passed, 1.0));
        }
        assert_eq!((outcome.status(), outcome.core()), ((15, 15), (27, 37)));
        assert_eq!(outcome.wrong(), Vec::<String>::new());
        // When one is missing and another one fails, then both are said
        outcome.tests.remove("HTTPRouteWeight");
        outcome
            .tests
            .insert("HTTPRouteMatching".to_owned(), (Verdict::Failed, 1.0));
        assert_eq!(
            outcome.wrong(),
            ["HTTPRouteMatching failed", "HTTPRouteWeight did not run"]
        );
    }
}
