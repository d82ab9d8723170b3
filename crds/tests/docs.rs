//! The documentation is whole: links lead somewhere, every page is in the summary, every library has its reason, and
//! nothing names a machine. Lives here because this crate builds fastest; what the text *says* is checked elsewhere.
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Markdown files of the repository's top, `docs` and `samples`. The link `docs/src/decisions` is not followed.
fn pages() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                if path.file_name().is_some_and(|n| n != "book") {
                    walk(&path, found);
                }
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root.join("docs"), &mut found);
    walk(&root.join("samples"), &mut found);
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text outside of fenced blocks.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Targets of `[text](target)` and `![text](target)`.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The anchors that a Markdown renderer gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|heading| {
            heading
                .trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    let mut followed = 0;
    for page in pages() {
        let text = read(&page);
        for link in links(&prose(&text)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let fits = target.exists() && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
            if !fits {
                broken.push(format!(
                    "{}: {link}",
                    page.strip_prefix(root()).unwrap().display()
                ));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n  {}", broken.join("\n  "));
    assert!(
        followed > 20,
        "only {followed} links found: the test looks at the wrong text"
    );
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let summary = read(&root().join("docs/src/SUMMARY.md"));
    let listed: BTreeSet<PathBuf> = links(&summary)
        .into_iter()
        .map(|link| root().join("docs/src").join(link).canonicalize().unwrap())
        .collect();
    let missing: Vec<_> = pages()
        .into_iter()
        .filter(|page| page.starts_with(root().join("docs")) && !page.ends_with("SUMMARY.md"))
        .filter(|page| !listed.contains(&page.canonicalize().unwrap()))
        .collect();
    assert!(missing.is_empty(), "not in docs/src/SUMMARY.md: {missing:?}");
}

#[test]
fn every_library_has_its_reason() {
    let manifest = read(&root().join("Cargo.toml"));
    let (_, after) = manifest.split_once("[workspace.dependencies]").unwrap();
    let (table, _) = after.split_once("\n[").unwrap();
    let used: BTreeSet<&str> = table
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.contains("path = "))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim())
        .collect();
    let page = read(&root().join("docs/decisions/0005-libraries.md"));
    let explained: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split_once(" | "))
        .flat_map(|(names, _)| names.split(", "))
        .filter(|name| *name != "crate")
        .collect();
    let without: Vec<_> = used.difference(&explained).collect();
    let gone: Vec<_> = explained.difference(&used).collect();
    assert!(
        without.is_empty(),
        "docs/decisions/0005-libraries.md has no line for {without:?}"
    );
    assert!(
        gone.is_empty(),
        "docs/decisions/0005-libraries.md explains what is not used: {gone:?}"
    );
}

#[test]
fn every_decision_is_listed_with_its_date() {
    let folder = root().join("docs/decisions");
    let index = read(&folder.join("README.md"));
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let number: usize = name[..4]
            .parse()
            .unwrap_or_else(|_| panic!("{name}: four digits first"));
        let text = read(&path);
        let mut lines = text.lines();
        let title = lines.next().unwrap();
        assert!(title.starts_with(&format!("# {number}. ")), "{name}: {title}");
        let status = lines.nth(1).unwrap();
        let date = status.split(" · ").next().unwrap();
        let dated = date.len() == 10 && date.chars().all(|c| c.is_ascii_digit() || c == '-');
        assert!(dated, "{name}: the third line begins with a date, not {status:?}");
        assert!(
            index.contains(&format!("[{number}]({name})")),
            "{name} is not in README.md"
        );
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
}

/// Test programs and test functions of a package: `tests/x.rs` and `tests/x/main.rs` as `x`, everything else by path and name.
fn tests_of(package: &str) -> (BTreeSet<String>, Vec<String>) {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let folder = root().join(match package {
        "reconcile-kit" => "framework",
        "routewright-crds" => "crds",
        "routewright-e2e" => "e2e",
        "routewright" => "controllers",
        other => panic!("the docs name a package {other}"),
    });
    let mut files = Vec::new();
    walk(&folder.join("src"), &mut files);
    walk(&folder.join("tests"), &mut files);
    let tests = folder.join("tests");
    let program = |file: &PathBuf| {
        let main = file.file_name().is_some_and(|name| name == "main.rs");
        let entry = if main { file.parent()? } else { file };
        (entry.parent() == Some(&tests)).then(|| entry.file_stem().unwrap().to_string_lossy().into_owned())
    };
    let programs = files.iter().filter_map(program).collect();
    let mut names = Vec::new();
    for file in files {
        let path = file
            .strip_prefix(&folder)
            .unwrap()
            .to_string_lossy()
            .replace('/', "::");
        let text = read(&file);
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let Some((_, rest)) = line.split_once("fn ")
                // A story of a harness of its own has no mark.
                && (std::mem::take(&mut marked) || line.ends_with("-> Case {"))
            {
                names.push(format!("{path}::{}", rest.split('(').next().unwrap()));
            }
        }
    }
    (programs, names)
}

#[test]
fn commands_that_show_something_find_tests() {
    // given the commands of the table of promises
    let text = read(&root().join("docs/src/testing.md"));
    let (_, rest) = text.split_once("<!-- shown:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- shown:end -->").unwrap();
    let commands: Vec<&str> = table
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.starts_with("cargo test"))
        .collect();
    assert!(commands.len() > 10, "only {} commands found", commands.len());
    let mut empty = Vec::new();
    for command in commands {
        let mut words = command.split(' ').skip(2);
        let (mut package, mut program, mut filter) = ("", None, None);
        while let Some(word) = words.next() {
            match word {
                "-p" => package = words.next().unwrap(),
                "--test" => program = words.next(),
                "--features" => drop(words.next()),
                // Options of the test program follow, and they find nothing.
                "--" | "--nocapture" => {}
                word => filter = Some(word),
            }
        }
        // when they are looked up in the sources
        let (programs, names) = tests_of(package);
        let known = program.is_none_or(|program| programs.contains(program));
        let found = filter.is_none_or(|filter| names.iter().any(|name| name.contains(filter)));
        if !known || !found {
            empty.push(command);
        }
    }
    // then each finds something
    assert!(
        empty.is_empty(),
        "docs/src/testing.md: nothing to run for {empty:?}"
    );
}

#[test]
fn commands_of_every_page_find_scenarios() {
    // given every `cargo e2e test NAME` that a page names
    let mut names = Vec::new();
    let mut programs = BTreeSet::new();
    for package in ["routewright-e2e", "routewright"] {
        let (more, found) = tests_of(package);
        programs.extend(more);
        names.extend(found);
    }
    let (mut asked, mut empty) = (0, Vec::new());
    for page in pages() {
        for command in prose(&read(&page)).split('`').skip(1).step_by(2) {
            let Some((_, words)) = command.split_once("cargo e2e test ") else {
                continue;
            };
            // when its words are looked up in the sources
            let tier = |word: &&str| matches!(*word, "unit" | "fake-api" | "cluster");
            for word in words.split(' ').filter(|word| !tier(word)) {
                asked += 1;
                let place = word.contains(|c: char| c.is_uppercase() || c == '[');
                if !place && !programs.contains(word) && !names.iter().any(|name| name.contains(word)) {
                    empty.push(format!("{}: {command}", page.display()));
                }
            }
        }
    }
    // then each finds something
    assert!(empty.is_empty(), "nothing to run:\n{}", empty.join("\n"));
    assert!(asked > 8, "only {asked} commands found");
}
