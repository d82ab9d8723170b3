//! What the documentation says about the program is what the program says: flags, reasons, metrics, error classes.
//! `UPDATE_DOCS=1 cargo test -p routewright --test docs` writes the table of flags.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use routewright::cli::Cli;
use routewright::exposure::status::{CONDITION, Reason};
use routewright::tyk::httproute::ledger;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

fn page(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The part of a page between two lines.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}"));
    rest.split_once(end)
        .unwrap_or_else(|| panic!("no {end:?} after {begin:?}"))
        .0
}

/// The words in backticks that stand in column `index` of the tables in a text.
fn words_in_column(text: &str, index: usize) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(index + 1))
        .filter_map(|cell| {
            cell.trim()
                .strip_prefix('`')?
                .strip_suffix('`')
                .map(str::to_owned)
        })
        .collect()
}

#[test]
fn every_reason_is_explained_and_no_other() {
    // given the table of reasons
    let text = page("docs/src/exposure.md");
    let table = between(&text, &format!("## The condition `{CONDITION}`"), "\n#");
    // then it holds exactly the reasons of the program
    let explained = words_in_column(table, 1);
    let known: BTreeSet<String> = Reason::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(explained, known);
}

#[test]
fn every_reason_of_buckets_and_handles_is_explained_and_no_other() {
    use routewright::garage::{
        bucket::RefusalReason,
        bucket_controller::{BlockReason, FAILED_REASON, READY_REASON, UNAVAILABLE_REASON},
        handle::HandleReason,
    };
    let text = page("docs/src/reference/garage-conditions.md");
    let explained = |table: &str| {
        let (begin, end) = (format!("<!-- {table}:begin -->"), format!("<!-- {table}:end -->"));
        words_in_column(between(&text, &begin, &end), 0)
    };
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let mut buckets = vec![READY_REASON, UNAVAILABLE_REASON, FAILED_REASON];
    buckets.extend(RefusalReason::ALL.map(RefusalReason::as_str));
    buckets.extend(BlockReason::ALL.map(BlockReason::as_str));
    assert_eq!(explained("bucket-reasons"), owned(buckets));
    assert_eq!(
        explained("handle-reasons"),
        owned(HandleReason::ALL.map(HandleReason::as_str).to_vec())
    );
}

#[test]
fn every_call_of_the_admin_api_is_in_the_table_of_scopes() {
    use routewright::garage::admin::Call;
    let text = page("docs/src/how-to/buckets-and-credentials.md");
    let table = between(&text, "<!-- calls:begin -->\n", "<!-- calls:end -->");
    let rows = Call::ALL.map(|call| format!("| `{call}` | {} |\n", call.purpose()));
    assert_eq!(
        table,
        format!("| call | needed for |\n|---|---|\n{}", rows.concat())
    );
    let scope = Call::ALL.map(Call::name).join(",");
    assert!(text.contains(&format!("--scope {scope}\n")), "{scope}");
}

/// The rows between `<!-- name:begin -->` and `<!-- name:end -->` as their first columns in backticks or plain.
fn rows(text: &str, name: &str, columns: usize) -> BTreeSet<Vec<String>> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    between(text, &begin, &end)
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells = line.split('|').skip(1).take(columns);
            cells
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}

/// Source of what decides about statuses for Tyk, the model and the controllers of routes, without tests.
fn tyk_model() -> String {
    let mut text = String::new();
    for folder in ["model", "httproute"] {
        for entry in fs::read_dir(file("controllers/src/tyk").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let helper = name.ends_with("_tests.rs") || matches!(name.as_str(), "fixtures.rs" | "random.rs");
            if name.ends_with(".rs") && !helper {
                let source = fs::read_to_string(&path).unwrap();
                text.push_str(source.split("#[cfg(test)]\nmod tests {").next().unwrap());
            }
        }
    }
    for name in ["gatewayclass.rs", "gateway.rs", "definition.rs"] {
        text.push_str(&page(&format!("controllers/src/tyk/{name}")));
    }
    text
}

#[test]
fn every_reason_of_gateway_api_on_tyk_is_explained_and_no_other() {
    // given the words in CamelCase of the model and the controllers that are neither kinds nor values of fields
    const OTHER: [&str; 30] = [
        "API",
        "ClusterIP",
        "DoesNotExist",
        "Exists",
        "ExternalName",
        "GRPCRoute",
        "Gateway",
        "HTTP",
        "HTTPRoute",
        "HTTPRouteNamedRouteRule",
        "HTTPS",
        "Hostname",
        "IPAddress",
        "In",
        "LoadBalancer",
        "Near",
        "None",
        "NotIn",
        "Opaque",
        "OperatorContext",
        "ReferenceGrant",
        "Secret",
        "Service",
        "TCP",
        "Terminate",
        "Bucket",
        "PartiallyInvalid",
        // Names in Debug output.
        "Made",
        "Standing",
        "Work",
    ];
    const TYPES: [&str; 4] = ["Accepted", "Programmed", "ResolvedRefs", "SupportedVersion"];
    let source = tyk_model();
    let camel = |word: &&str| {
        word.len() > 1
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    let known: BTreeSet<String> = source
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '"'))
        .filter_map(|token| token.strip_prefix('"')?.strip_suffix('"'))
        .filter(camel)
        .filter(|word| !OTHER.contains(word) && !["Conflicted", "OverlappingTLSConfig"].contains(word))
        .map(str::to_owned)
        .collect();
    assert!(
        known.len() > 25,
        "found only {known:?}: the test looks for the wrong text"
    );
    // when they are compared with the reasons and events of the page
    let text = page("docs/src/tyk/conditions.md");
    let tables = ["gatewayclass", "gateway", "listener", "httproute", "definition"];
    let mut explained: BTreeSet<String> = tables
        .iter()
        .flat_map(|table| rows(&text, &format!("reasons:{table}"), 3))
        .map(|row| row[2].clone())
        .collect();
    explained.extend(rows(&text, "events", 1).into_iter().map(|row| row[0].clone()));
    // then each is there
    let missing: Vec<_> = known.difference(&explained).collect();
    assert!(
        missing.is_empty(),
        "docs/src/tyk/conditions.md does not explain {missing:?}"
    );
    // and no other, but for what the controllers add to the model's answers
    let added: BTreeSet<String> = TYK_EVENTS.map(str::to_owned).into();
    assert!(added.is_subset(&explained), "{added:?}");
    let types: BTreeSet<String> = TYPES.map(str::to_owned).into();
    let more: Vec<_> = explained
        .difference(&known)
        .filter(|word| !added.contains(*word) && !types.contains(*word))
        .collect();
    assert!(
        more.is_empty(),
        "docs/src/tyk/conditions.md explains {more:?}, which nobody says"
    );
}

/// Events of the controllers, and of the framework below them.
const TYK_EVENTS: [&str; 11] = [
    "AcceptedRemoved",
    "ReportOutsideContract",
    "StatusContested",
    "StatusNotWritten",
    "StatusOwnedByAnother",
    "StatusTruncated",
    "ReconcileFailed",
    ledger::CERT_UPLOAD_FAILED,
    ledger::DELETION_FAILED,
    ledger::CLEANUP_BLOCKED,
    ledger::DRIFT_MENDED,
];

#[test]
fn every_event_is_explained_and_no_other() {
    // given the events that are published besides those of a condition, read from the sources that publish them
    let status = page("controllers/src/exposure/status.rs");
    let noted = status
        .split(".note(")
        .skip(1)
        .filter_map(|rest| rest.split('"').nth(1));
    let framework = page("framework/src/layers/conditions.rs");
    let contested = framework
        .split("reason: \"")
        .skip(1)
        .filter_map(|rest| rest.split_once("\".into()"))
        .map(|(reason, _)| reason);
    let constants = framework
        .split("/// Reason of the event")
        .skip(1)
        .filter_map(|rest| rest.split('"').nth(1));
    let published: BTreeSet<String> = noted
        .chain(contested)
        .chain(constants)
        .map(str::to_owned)
        .collect();
    assert!(
        published.len() > 3,
        "found only {published:?}: the test looks for the wrong text"
    );
    // when they are compared with the table
    let text = page("docs/src/exposure.md");
    let explained = words_in_column(between(&text, "### Events", "\n#"), 0);
    // then they are the same
    assert_eq!(explained, published);
}

#[test]
fn every_metric_is_explained_and_no_other() {
    // given the names in the registry of the operator, also those that have no series yet
    let names = routewright::telemetry::metric_names();
    let registered: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(
        registered.len(),
        names.len(),
        "a name is registered twice: {names:?}"
    );
    // when they are compared with the tables
    let text = page("docs/src/reference/metrics.md");
    let explained = words_in_column(
        between(&text, "<!-- metrics:begin -->", "<!-- metrics:end -->"),
        0,
    );
    // then they are the same
    assert_eq!(explained, registered);
}

#[test]
fn every_error_class_is_named() {
    use reconcile_kit::ErrorClass as Class;
    let text = page("docs/src/reference/metrics.md");
    for class in [
        Class::Transient,
        Class::Conflict,
        Class::RateLimited(None),
        Class::Forbidden,
        Class::Invalid,
        Class::Foreign,
        Class::NotServed,
        Class::NotFound,
        Class::Timeout,
        Class::Panic,
        Class::Shutdown,
        Class::NotReady,
    ] {
        // A new class must be added to the list above.
        match class {
            Class::Transient
            | Class::Conflict
            | Class::RateLimited(_)
            | Class::Forbidden
            | Class::Invalid
            | Class::Foreign
            | Class::NotServed
            | Class::NotFound
            | Class::Timeout
            | Class::Panic
            | Class::Shutdown
            | Class::NotReady => {}
        }
        let label = class.label();
        assert!(
            text.contains(&format!("`{label}`")),
            "docs/src/reference/metrics.md does not name {label}"
        );
    }
}

/// Chart values by the environment variable that they set.
fn chart_keys() -> BTreeMap<String, String> {
    page("charts/routewright/templates/deployment.yaml")
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once("- {name: ")?;
            let (variable, value) = rest.split_once(", value: ")?;
            let (_, key) = value.split_once(".Values.")?;
            let key = key.split([' ', '}', ')']).next()?;
            Some((variable.to_owned(), key.to_owned()))
        })
        .collect()
}

/// The table of flags of `routewright run`, from clap.
fn flags_table() -> String {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").unwrap();
    let chart = chart_keys();
    let mut table = "| flag | environment | chart | default | what |\n|---|---|---|---|---|\n".to_owned();
    for arg in run.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let Some(long) = arg.get_long() else { continue };
        let Some(variable) = arg.get_env().and_then(|name| name.to_str()) else {
            assert!(
                matches!(long, "help" | "version"),
                "--{long} has no environment variable"
            );
            continue;
        };
        let code = |text: &str| match text {
            "" => "–".to_owned(),
            text => format!("`{text}`"),
        };
        let default = arg
            .get_default_values()
            .first()
            .and_then(|v| v.to_str())
            .unwrap_or_default();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty() && !help.contains('|'), "--{long}: {help:?}");
        table.push_str(&format!(
            "| `--{long}` | `{variable}` | {} | {} | {help} |\n",
            code(chart.get(variable).map_or("", String::as_str)),
            code(default),
        ));
    }
    table
}

#[test]
fn the_table_of_flags_is_what_the_program_takes() {
    const PAGE: &str = "docs/src/reference/flags.md";
    let (begin, end) = ("<!-- flags:begin -->\n", "<!-- flags:end -->");
    let text = page(PAGE);
    let written = between(&text, begin, end);
    let table = flags_table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(file(PAGE), text.replace(written, &table)).unwrap();
        return;
    }
    assert_eq!(
        written, table,
        "UPDATE_DOCS=1 cargo test -p routewright --test docs writes {PAGE}"
    );
}

#[test]
fn every_variable_that_the_chart_sets_is_a_flag() {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").unwrap();
    let known: BTreeSet<&str> = run
        .get_arguments()
        .filter_map(|arg| arg.get_env()?.to_str())
        .collect();
    let chart = chart_keys();
    assert!(
        chart.len() > 5,
        "found only {chart:?}: the test looks for the wrong text"
    );
    let unknown: Vec<&String> = chart
        .keys()
        .filter(|name| !known.contains(name.as_str()))
        .collect();
    assert!(
        unknown.is_empty(),
        "the chart sets {unknown:?}, which the program does not read"
    );
}

/// Names of test functions in every crate of the workspace.
fn test_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders: Vec<PathBuf> = ["framework", "crds", "controllers", "tyk-double", "e2e"]
        .map(file)
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                // A macro makes tests of functions too: they are listed in its call, in a line or in lines of their own.
                let listed: BTreeSet<&str> = text
                    .lines()
                    .map(|line| line.trim().trim_end_matches([',', ';', ')']))
                    .map(|line| line.split_once("!(").map_or(line, |(_, call)| call))
                    .collect();
                // Between an attribute that makes a test and the name of its function there are attributes alone.
                let mut is_test = false;
                for line in text.lines().map(str::trim) {
                    is_test |=
                        line.starts_with("#[test]") || line.contains("::test]") || line.contains("::test(");
                    let function = line.trim_start_matches("async ").strip_prefix("fn ");
                    if let Some((name, _)) = function.and_then(|rest| rest.split_once('('))
                        && (is_test || listed.contains(name))
                    {
                        names.insert(name.to_owned());
                    }
                    is_test &= line.starts_with('#') || line.is_empty() || line.starts_with("//");
                }
            }
        }
    }
    names
}

#[test]
fn every_finding_is_shown_by_tests_that_exist_and_is_counted() {
    let known = test_names();
    let text = page("docs/src/findings.md");
    let mut mended = 0;
    for area in ["framework", "exposure", "tyk", "files"] {
        let (begin, end) = (
            format!("<!-- findings:{area}:begin -->"),
            format!("<!-- findings:{area}:end -->"),
        );
        let rows = between(&text, &begin, &end)
            .lines()
            .filter(|line| line.starts_with('|'))
            .skip(2);
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            assert!(
                cells.len() == 5 && cells.iter().all(|cell| !cell.is_empty()),
                "{row}"
            );
            let shown: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
            let missing: Vec<&&str> = shown.iter().filter(|name| !known.contains(**name)).collect();
            assert!(
                missing.is_empty(),
                "docs/src/findings.md: no test {missing:?} in: {row}"
            );
            let stands = cells[2];
            assert!(
                ["mended", "left", "not a fault", "not worth it"]
                    .iter()
                    .any(|word| stands.starts_with(word)),
                "{row}"
            );
            // What is mended has a test, or is a matter of documents and versions alone.
            if stands.starts_with("mended") {
                assert!(
                    !shown.is_empty() || stands.ends_with("by documents") || cells[0] == "m12",
                    "{row}"
                );
                mended += 1;
            }
        }
    }
    assert!(mended > 80, "found only {mended}");
}

#[test]
fn every_attack_of_the_threat_model_is_played_by_tests_that_exist() {
    // given the tests of the workspace
    let known = test_names();
    assert!(
        known.len() > 500,
        "found only {}: the test looks for the wrong text",
        known.len()
    );
    // when the rows of the tables of attacks are read
    let text = page("docs/src/threat-model.md");
    let mut attacks = 0;
    for table in ["websites", "garage", "tyk", "installation"] {
        let (begin, end) = (
            format!("<!-- attacks:{table}:begin -->"),
            format!("<!-- attacks:{table}:end -->"),
        );
        let rows = between(&text, &begin, &end)
            .lines()
            .filter(|line| line.starts_with('|'))
            .skip(2);
        for row in rows {
            // then each says what is seen, logged and left, and names tests that there are
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            assert!(
                cells.len() == 5 && cells.iter().all(|cell| !cell.is_empty()),
                "{row}"
            );
            let shown: Vec<&str> = cells[4].split(", ").map(|name| name.trim_matches('`')).collect();
            let missing: Vec<&&str> = shown.iter().filter(|name| !known.contains(**name)).collect();
            assert!(
                missing.is_empty(),
                "docs/src/threat-model.md: no test {missing:?} in: {row}"
            );
            attacks += 1;
        }
    }
    assert!(
        attacks > 15,
        "found only {attacks}: the test looks for the wrong text"
    );
}
