//! Manifests as they are given: files, folders, standard input; YAML with several documents, JSON, lists. Out come objects
//! with the place that they stand at, and what could not be read, each with its place.

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;

/// A text with its name: a path as the user gave it, or `standard input`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What messages call it.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Name of the source.
    pub source: String,
    /// Which document of it, from 1, empty ones not counted.
    pub document: usize,
    /// The line that the document begins on, from 1; unknown for a further JSON value of one file.
    pub line: Option<usize>,
    /// Which item of a list, if the document is one.
    pub item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.source, self.document)?;
        if let Some(line) = self.line {
            write!(f, " (line {line})")?;
        }
        match self.item {
            Some(item) => write!(f, ", items[{item}]"),
            None => Ok(()),
        }
    }
}

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Where it stands.
    pub place: Place,
    /// The object.
    pub value: Value,
}

/// Largest file that is read, in bytes: far beyond what an API server takes, and a bound for what is held.
const MAX_BYTES: u64 = 64 << 20;

/// Deepest folder that is looked into: a bound, should links go round.
const MAX_DEPTH: usize = 32;

/// Reads what `-f` names, in the order given; the files of a folder by name. Every error is told, not only the first.
pub fn read(names: &[PathBuf]) -> Result<Vec<Source>, Vec<String>> {
    let mut sources = Vec::new();
    let mut errors = Vec::new();
    for name in names {
        if name.as_os_str() == "-" {
            let mut text = String::new();
            match io::stdin().lock().take(MAX_BYTES).read_to_string(&mut text) {
                Ok(_) => sources.push(Source {
                    name: "standard input".to_owned(),
                    text,
                }),
                Err(error) => errors.push(format!("standard input: {error}")),
            }
        } else {
            path(name, 0, &mut sources, &mut errors);
        }
    }
    if errors.is_empty() {
        Ok(sources)
    } else {
        Err(errors)
    }
}

/// A file, or every `.yaml`, `.yml` and `.json` below a folder.
fn path(name: &Path, depth: usize, sources: &mut Vec<Source>, errors: &mut Vec<String>) {
    let shown = name.display();
    let metadata = match fs::metadata(name) {
        Ok(metadata) => metadata,
        Err(error) => return errors.push(format!("{shown}: {error}")),
    };
    if !metadata.is_dir() {
        if metadata.len() > MAX_BYTES {
            return errors.push(format!("{shown}: larger than {} MiB", MAX_BYTES >> 20));
        }
        return match fs::read_to_string(name) {
            Ok(text) => sources.push(Source {
                name: shown.to_string(),
                text,
            }),
            Err(error) => errors.push(format!("{shown}: {error}")),
        };
    }
    if depth >= MAX_DEPTH {
        return errors.push(format!("{shown}: more than {MAX_DEPTH} folders deep"));
    }
    let mut below: Vec<PathBuf> = match fs::read_dir(name) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(error) => return errors.push(format!("{shown}: {error}")),
    };
    below.sort();
    for entry in below {
        let manifest = entry
            .extension()
            .and_then(|ending| ending.to_str())
            .is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending));
        if manifest || entry.is_dir() {
            path(&entry, depth + 1, sources, errors);
        }
    }
}

/// The objects of a source, lists taken apart; and what is wrong, with its place.
pub fn objects(source: &Source) -> (Vec<Found>, Vec<String>) {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
    for (place, value) in documents(source, text) {
        match value {
            Ok(value) => flatten(place, value, &mut found),
            Err(error) => errors.push(error),
        }
    }
    (found, errors)
}

type Documents = Vec<(Place, Result<Value, String>)>;

/// The documents of a YAML stream. One that begins with a brace may be several JSON values, or YAML in flow style.
fn documents(source: &Source, text: &str) -> Documents {
    let mut all = Documents::new();
    for (first, text) in split(text) {
        if !text.trim_start().starts_with('{') {
            all.extend(yaml(source, all.len() + 1, first, &text));
            continue;
        }
        let json = json(source, all.len(), first, &text);
        // What begins with a JSON value is JSON throughout.
        if json.first().is_some_and(|(_, value)| value.is_ok()) {
            all.extend(json);
            continue;
        }
        match yaml(source, all.len() + 1, first, &text) {
            Some((place, Ok(value))) => all.push((place, Ok(value))),
            // What is neither is mostly meant as JSON.
            _ => all.extend(json),
        }
    }
    all
}

/// Reads one JSON value after the other. `before`: how many documents precede the text; `first`: its first line.
fn json(source: &Source, before: usize, first: usize, text: &str) -> Documents {
    let mut documents = Documents::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let place = Place {
            source: source.name.clone(),
            document: before + documents.len() + 1,
            line: documents.is_empty().then_some(first),
            item: None,
        };
        let value = value.map_err(|error| {
            let what = error.to_string();
            let what = what
                .rsplit_once(" at line ")
                .map_or(what.as_str(), |(what, _)| what);
            format!(
                "{}, document {}, line {}, column {}: {what}",
                place.source,
                place.document,
                first + error.line().saturating_sub(1),
                error.column()
            )
        });
        let broken = value.is_err();
        documents.push((place, value));
        if broken {
            break;
        }
    }
    documents
}

/// Parses one YAML document, the `number`th, that begins on line `first`. Each document is parsed by itself: a broken one
/// hides no other. `None` for an empty document.
fn yaml(source: &Source, number: usize, first: usize, text: &str) -> Option<(Place, Result<Value, String>)> {
    let place = Place {
        source: source.name.clone(),
        document: number,
        line: Some(first),
        item: None,
    };
    // Options of the parser: its messages quote no content, which may be a Secret's.
    let parsed: Result<Option<Value>, _> = serde_saphyr::from_str_with_options(
        text,
        serde_saphyr::options! {
            with_snippet: false,
        },
    );
    let value = match parsed {
        Ok(None | Some(Value::Null)) => return None,
        Ok(Some(value)) => Ok(value),
        Err(error) => {
            let at = error.location();
            let line = at.map_or(first, |at| {
                first + usize::try_from(at.line()).unwrap_or(1).saturating_sub(1)
            });
            let column = at.map_or(String::new(), |at| format!(", column {}", at.column()));
            Err(format!(
                "{}, document {number}, line {line}{column}: {}",
                place.source,
                plain(&error.to_string())
            ))
        }
    };
    Some((place, value))
}

/// The first line of a parser's message, without the place that is told in front of it.
fn plain(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let end = line.rfind(" at line ").unwrap_or(line.len());
    let line = line.get(..end).unwrap_or(line);
    match line.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, what)) => what.to_owned(),
        None => line.to_owned(),
    }
}

/// Documents between lines that begin with `---`, each with the number of its first line that says something.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut documents = Vec::new();
    let mut current = String::new();
    let mut first = 1;
    let mut end = |first: usize, text: String| {
        let skipped = text
            .lines()
            .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
            .count();
        // Comments and blank lines alone are no document.
        if skipped < text.lines().count() {
            let kept: Vec<&str> = text.lines().skip(skipped).collect();
            documents.push((first + skipped, kept.join("\n") + "\n"));
        }
    };
    for (index, line) in text.lines().enumerate() {
        let marker = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        match marker {
            Some(rest) => {
                end(first, std::mem::take(&mut current));
                first = index + 1;
                // What stands behind the marker belongs to the document.
                current.push_str(rest);
            }
            None => current.push_str(line),
        }
        current.push('\n');
    }
    end(first, current);
    documents
}

/// A list becomes its items. An item of a typed list that leaves out its kind gets it from the list.
fn flatten(place: Place, mut value: Value, found: &mut Vec<Found>) {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let Some(of) = kind.strip_suffix("List").map(str::to_owned) else {
        return found.push(Found { place, value });
    };
    let api_version = value.get("apiVersion").cloned();
    let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) else {
        return found.push(Found { place, value });
    };
    for (index, mut item) in items.into_iter().enumerate() {
        if let (false, Some(fields)) = (of.is_empty(), item.as_object_mut()) {
            fields.entry("kind").or_insert_with(|| of.clone().into());
            if let Some(version) = &api_version {
                fields.entry("apiVersion").or_insert_with(|| version.clone());
            }
        }
        let place = Place {
            item: Some(index),
            ..place.clone()
        };
        found.push(Found { place, value: item });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            name: "shop.yaml".to_owned(),
            text: text.to_owned(),
        }
    }

    fn seen(text: &str) -> (Vec<String>, Vec<String>) {
        let (found, errors) = objects(&source(text));
        let found = found
            .into_iter()
            .map(|one| format!("{}: {}", one.place, one.value["kind"].as_str().unwrap_or("?")))
            .collect();
        (found, errors)
    }

    #[test]
    fn documents_are_counted_with_their_first_line_and_empty_ones_are_none() {
        let text =
            "# a comment\n---\n\n# b\nkind: A\n---\n---\n# only this\n--- # c\nkind: B\n--- {kind: C}\n";
        let (found, errors) = seen(text);
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            found,
            [
                "shop.yaml, document 1 (line 5): A",
                "shop.yaml, document 2 (line 10): B",
                "shop.yaml, document 3 (line 11): C",
            ]
        );
    }

    #[test]
    fn a_marker_inside_a_block_is_text() {
        let (found, errors) = seen("kind: A\ndata:\n  x: |\n    a\n    ---\n    b\n");
        assert_eq!((found.len(), errors.len()), (1, 0));
    }

    #[test]
    fn a_broken_document_is_told_with_its_line_and_the_others_are_read() {
        let (found, errors) = seen("kind: A\n---\nkind: B\nfoo: [hunter2\n---\nkind: C\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("shop.yaml, document 2, line "),
            "{errors:?}"
        );
        assert!(!errors[0].contains("hunter2"), "{errors:?}");
        let (_, errors) = seen("kind: A\nkind: B\n");
        assert!(
            errors[0].starts_with("shop.yaml, document 1, line 2"),
            "{errors:?}"
        );
    }

    #[test]
    fn json_may_hold_several_values() {
        let (found, errors) = seen("{\"kind\": \"A\"}\n{\"kind\": \"B\"}\n{\"kind\": }");
        assert_eq!(
            found,
            ["shop.yaml, document 1 (line 1): A", "shop.yaml, document 2: B"]
        );
        assert_eq!(
            errors,
            ["shop.yaml, document 3, line 3, column 10: expected value"]
        );
    }

    #[test]
    fn a_document_that_begins_with_a_brace_is_json_or_yaml() {
        // flow style: no text that JSON knows
        let (found, errors) = seen("{kind: A, metadata: {name: a}}\n");
        assert_eq!(errors, [""; 0]);
        assert_eq!(found, ["shop.yaml, document 1 (line 1): A"]);
        // JSON documents between markers, several values in one of them, and YAML beside them
        let (found, errors) = seen(
            "{\"kind\": \"A\"}\n---\n{\"kind\": \"B\"}\n{\"kind\": \"C\"}\n---\nkind: D\n---\n{kind: E}\n",
        );
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            found,
            [
                "shop.yaml, document 1 (line 1): A",
                "shop.yaml, document 2 (line 3): B",
                "shop.yaml, document 3: C",
                "shop.yaml, document 4 (line 6): D",
                "shop.yaml, document 5 (line 8): E",
            ]
        );
        // and one that is neither hides no other
        let (found, errors) = seen("{\"kind\": \"A\"}\n---\n{\"kind\": }}\n---\n{kind: C}\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(
            errors,
            ["shop.yaml, document 2, line 3, column 10: expected value"]
        );
    }

    #[test]
    fn lists_are_taken_apart() {
        let (found, errors) = seen(
            "apiVersion: v1\nkind: List\nitems:\n- {kind: A}\n- {kind: B}\n---\napiVersion: x/v1\nkind: ThingList\nitems: [{metadata: {}}]\n",
        );
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            found,
            [
                "shop.yaml, document 1 (line 1), items[0]: A",
                "shop.yaml, document 1 (line 1), items[1]: B",
                "shop.yaml, document 2 (line 7), items[0]: Thing",
            ]
        );
    }
}
