//! What the documentation says about the program is what the program says: reasons, conditions, metrics, error classes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{collections::BTreeSet, fs, path::Path};

use routewright::exposure::status::{CONDITION, Reason};

fn page(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path);
    fs::read_to_string(&file).unwrap_or_else(|e| panic!("{path}: {e}"))
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
fn every_metric_is_explained_and_no_other() {
    // given the names that the framework registers; an empty family is not encoded, so they are read from its source
    let source = page("framework/src/runtime/metrics.rs");
    let compact: String = source.split_whitespace().collect();
    let registered: BTreeSet<String> = compact
        .split("r.register(\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(
        registered.len() > 10,
        "found only {registered:?}: the test looks for the wrong text"
    );
    // when they are compared with the table, whose counters end in _total
    let text = page("docs/src/reference/metrics.md");
    let explained: BTreeSet<String> = words_in_column(
        between(&text, "<!-- metrics:begin -->", "<!-- metrics:end -->"),
        0,
    )
    .into_iter()
    .map(|name| {
        let name = name.strip_prefix("routewright_").unwrap_or(&name).to_owned();
        name.strip_suffix("_total").map(str::to_owned).unwrap_or(name)
    })
    .collect();
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
