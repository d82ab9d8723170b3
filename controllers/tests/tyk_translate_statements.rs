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

/// Names of the functions in the sources that hold tests.
fn functions() -> BTreeSet<String> {
    fn walk(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.extend(
                    text.split("fn ")
                        .skip(1)
                        .filter_map(|rest| rest.split_once('('))
                        .map(|(name, _)| name.trim().to_owned()),
                );
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
    let known = functions();
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
