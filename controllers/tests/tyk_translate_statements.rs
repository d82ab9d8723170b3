//! The list of statements in the docs names tests that exist, at least one for each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = "docs/src/reference/tyk-statements.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// (section, statement, names of tests) of each row.
fn rows() -> Vec<(String, String, Vec<String>)> {
    let text = fs::read_to_string(root().join(PAGE)).unwrap();
    let mut section = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("##") {
            section = title.trim_start_matches('#').trim().to_owned();
        }
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            continue;
        };
        // A statement may hold anything but a bar; the tests are the last cell.
        let (statement, tests) = row.rsplit_once(" |").unwrap();
        if statement == "statement" {
            continue;
        }
        let names = tests.split('`').skip(1).step_by(2).map(ToOwned::to_owned);
        rows.push((section.clone(), statement.to_owned(), names.collect()));
    }
    rows
}

/// Names of the tests in a source: functions below `#[test]` or `#[tokio::test]`, and those listed in `stories![…]`
/// and `everywhere!(…)`, which run each of them in several ways.
fn tests_of(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // Whether the attributes above make the next function a test, and whether the line is in a list of stories.
    let (mut test, mut listed) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("stories![") || line == "everywhere!(" {
            listed = true;
        } else if listed && line.starts_with([']', ')']) {
            listed = false;
        } else if listed {
            found.extend(
                line.rsplit("::")
                    .next()
                    .map(|name| name.trim_end_matches(',').to_owned()),
            );
        } else if line == "#[test]" || line.starts_with("#[tokio::test") {
            test = true;
        } else if line.starts_with("#[") || line.starts_with("//") {
            // Further attributes and comments stand between.
        } else {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            if let Some((name, _)) = name.filter(|_| test) {
                found.insert(name.trim().to_owned());
            }
            test = false;
        }
    }
    found
}

#[test]
fn only_tests_count_as_tests() {
    let text = "
        fn helper() {}
        #[test]
        /// Says what.
        #[ignore = \"slow\"]
        fn plain() {
            helper();
        }
        fn after() {}
        #[tokio::test(flavor = \"current_thread\")]
        async fn waits() {}
        stories![
            methods::told,
        ]
        fn last() {}
        everywhere!(
            here_and_there,
        );
        async fn here_and_there(place: Where) {}";
    let found: Vec<_> = tests_of(text).into_iter().collect();
    assert_eq!(found, ["here_and_there", "plain", "told", "waits"]);
}

/// Names of the tests in the sources that hold some.
fn tests() -> BTreeSet<String> {
    fn walk(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.extend(tests_of(&text));
            }
        }
    }
    let mut found = BTreeSet::new();
    for folder in [
        "controllers/src/tyk",
        "controllers/src/cli",
        "controllers/tests",
        "crds/src",
        "crds/tests",
        "e2e/tests",
    ] {
        walk(&root().join(folder), &mut found);
    }
    found
}

#[test]
fn every_named_test_exists() {
    let rows = rows();
    assert!(
        rows.len() > 100,
        "only {} rows found: the test looks at the wrong text",
        rows.len()
    );
    let known = tests();
    let missing: Vec<_> = rows
        .iter()
        .flat_map(|(_, _, tests)| tests)
        .filter(|test| !known.contains(*test))
        .collect();
    assert!(
        missing.is_empty(),
        "{PAGE} names tests that are not there: {missing:?}"
    );
}

#[test]
fn every_statement_has_a_test() {
    let without: Vec<_> = rows()
        .into_iter()
        .filter(|(_, _, tests)| tests.is_empty())
        .map(|(section, statement, _)| format!("{section}: {statement}"))
        .collect();
    assert!(
        without.is_empty(),
        "{PAGE}: statements without a test:\n  {}",
        without.join("\n  ")
    );
}
