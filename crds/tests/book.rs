//! The built book: every link of every page leads to a file and a place that are there. The source's links are checked
//! by `docs`; between the two lies a renderer with ideas of its own. `.ci/run` builds the book and names its folder.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the book was built.
const VARIABLE: &str = "ROUTEWRIGHT_BOOK";

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "html") {
            found.push(path);
        }
    }
}

/// What `href` and `src` say in the text of a page, without the book's own frame.
fn links(page: &str) -> Vec<String> {
    let text = page
        .split_once("<main>")
        .and_then(|(_, rest)| rest.split_once("</main>"));
    let Some((text, _)) = text else {
        return Vec::new();
    };
    ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|attribute| text.split(attribute).skip(1))
        .filter_map(|rest| rest.split_once('"'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// Why a link of a page leads nowhere.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => page.parent().unwrap().join(file),
    };
    let Ok(text) = fs::read(&target) else {
        return Some(format!("{}: {link}: no such file", page.display()));
    };
    let named = anchor.is_empty() || String::from_utf8_lossy(&text).contains(&format!("id=\"{anchor}\""));
    (!named).then(|| format!("{}: {link}: no such place", page.display()))
}

#[test]
fn every_link_of_the_built_book_leads_somewhere() {
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        eprintln!("skipped: no built book; `mdbook build docs --dest-dir DIR` and {VARIABLE}=DIR");
        return;
    };
    // Given the pages of the book, but those that only gather others
    let mut all = Vec::new();
    pages(&folder, &mut all);
    all.retain(|p| {
        !["print.html", "404.html", "toc.html"]
            .iter()
            .any(|n| p.ends_with(n))
    });
    assert!(all.len() > 20, "only {} pages in {}", all.len(), folder.display());
    // When each link to a place of the book is followed
    let (mut followed, mut wrong) = (0, Vec::new());
    for page in all {
        for link in links(&fs::read_to_string(&page).unwrap()) {
            if !link.contains("://") && !link.starts_with("mailto:") {
                followed += 1;
                wrong.extend(broken(&page, &link));
            }
        }
    }
    // Then there is something
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > 100, "only {followed} links followed");
}

#[test]
fn a_link_into_nothing_is_found() {
    let folder = std::env::temp_dir().join(format!("routewright-book-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let page = folder.join("a.html");
    let text = "<nav><a href=\"frame.html\"></nav><main><h1 id=\"here\"><a href=\"#here\"><a href=\"b.html\"><img src=\"c.svg\">\
                <a href=\"a.html#there\"></main>";
    fs::write(&page, text).unwrap();
    let wrong: Vec<String> = links(text)
        .iter()
        .filter_map(|link| broken(&page, link))
        .collect();
    let ends: Vec<&str> = wrong.iter().map(|w| w.split_once(": ").unwrap().1).collect();
    assert_eq!(
        ends,
        [
            "b.html: no such file",
            "a.html#there: no such place",
            "c.svg: no such file"
        ]
    );
    fs::remove_dir_all(&folder).unwrap();
}
