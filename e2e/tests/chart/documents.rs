//! What is written about the chart is what the chart is: the tables of values and of rights. Drift is shown with the
//! command that mends it:
//!
//!     UPDATE_DOCS=1 cargo e2e test documents

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use routewright_e2e::cluster::{repository, switched_on};
use routewright_e2e::operator::chart;
use serde_json::Value;

use crate::release::rights;
use crate::text::{HOOKS, render};

/// Compares the part of a file between two marks with what it should be, or writes it.
fn same(path: &str, mark: &str, wanted: &str) {
    let file = repository().join(path);
    let text = fs::read_to_string(&file).unwrap();
    let (begin, end) = (format!("<!-- {mark}:begin -->\n"), format!("<!-- {mark}:end -->"));
    let (_, rest) = text
        .split_once(&begin)
        .unwrap_or_else(|| panic!("{path}: no {begin}"));
    let written = rest
        .split_once(&end)
        .unwrap_or_else(|| panic!("{path}: no {end}"))
        .0;
    if written == wanted {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_DOCS").is_some(),
        "{path} is out of date: UPDATE_DOCS=1 cargo e2e test documents"
    );
    fs::write(
        &file,
        text.replacen(&format!("{begin}{written}"), &format!("{begin}{wanted}"), 1),
    )
    .unwrap();
}

/// One row of the table of values.
#[derive(Debug)]
struct Row {
    path: Vec<String>,
    what: String,
}

/// The rows that values.yaml describes, in its order. A key with a comment right above it is a row, with all below it
/// as its default; one without must have rows below.
fn rows() -> Vec<Row> {
    let text = fs::read_to_string(chart().join("values.yaml")).unwrap();
    let (mut rows, mut comment) = (Vec::<Row>::new(), Vec::<&str>::new());
    // Path by indentation; the depth of the row that is open.
    let (mut path, mut open): (Vec<(usize, String)>, Option<usize>) = (Vec::new(), None);
    for (n, line) in text.lines().enumerate() {
        let (indent, trimmed) = (line.len() - line.trim_start().len(), line.trim());
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let words = std::mem::take(&mut comment);
        let Some((key, _)) = trimmed.split_once(':') else {
            continue;
        };
        path.retain(|(i, _)| *i < indent);
        path.push((indent, key.to_owned()));
        if open.is_some_and(|i| indent > i) {
            assert!(words.is_empty(), "values.yaml:{}: a comment below a row", n + 1);
            continue;
        }
        open = None;
        if !words.is_empty() {
            open = Some(indent);
            let path = path.iter().map(|(_, key)| key.clone()).collect();
            rows.push(Row {
                path,
                what: words.join(" "),
            });
        }
    }
    rows
}

fn values() -> Value {
    serde_saphyr::from_str(&fs::read_to_string(chart().join("values.yaml")).unwrap()).unwrap()
}

/// The paths of everything that is no section of rows.
fn leaves(value: &Value, rows: &BTreeSet<Vec<String>>, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) if !rows.contains(path) => {
            for (key, inner) in map {
                path.push(key.clone());
                leaves(inner, rows, path, found);
                path.pop();
            }
        }
        _ => found.push(path.clone()),
    }
}

#[test]
fn every_value_is_described_and_known_to_the_schema() {
    let (rows, values) = (rows(), values());
    let described: BTreeSet<Vec<String>> = rows.iter().map(|r| r.path.clone()).collect();
    // Given the defaults, then each is a row, and each row is there
    let mut found = Vec::new();
    leaves(&values, &described, &mut Vec::new(), &mut found);
    let without: Vec<_> = found.iter().filter(|path| !described.contains(*path)).collect();
    assert!(without.is_empty(), "values.yaml: no comment above {without:?}");
    assert_eq!(found.len(), described.len());
    // And the schema knows each and no other
    let text = fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let resolve = |part: &Value| -> Value {
        match part["$ref"].as_str() {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap().clone(),
            None => part.clone(),
        }
    };
    let mut known = BTreeSet::new();
    let mut todo = vec![(Vec::<String>::new(), schema.clone())];
    while let Some((path, part)) = todo.pop() {
        match part["properties"]
            .as_object()
            .filter(|_| !described.contains(&path))
        {
            Some(properties) => {
                assert_eq!(
                    part["additionalProperties"], false,
                    "{path:?} accepts unknown keys"
                );
                for (key, inner) in properties {
                    let mut path = path.clone();
                    path.push(key.clone());
                    todo.push((path, resolve(inner)));
                }
            }
            None => drop(known.insert(path)),
        }
    }
    // Helm gives it to a chart that is part of another.
    assert!(known.remove(&vec!["global".to_owned()]));
    // A parent's condition; Helm takes it out of nothing.
    assert!(known.remove(&vec!["enabled".to_owned()]));
    assert_eq!(known, described);
}

#[test]
fn the_tables_of_values_are_those_of_the_chart() {
    let values = values();
    let mut table = "| value | default | what |\n|---|---|---|\n".to_owned();
    for row in rows() {
        let default = row.path.iter().fold(&values, |value, key| &value[key]);
        let default = match default {
            Value::String(text) if text.is_empty() => "`\"\"`".to_owned(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        assert!(!row.what.contains('|') && row.what.ends_with('.'), "{row:?}");
        table.push_str(&format!(
            "| `{}` | {default} | {} |\n",
            row.path.join("."),
            row.what
        ));
    }
    for path in ["charts/routewright/README.md", "docs/src/reference/chart.md"] {
        same(path, "values", &table);
    }
}

/// Rights of a rendering: `kind of role` and the right.
fn granted(sets: &[&str]) -> BTreeSet<(String, String)> {
    let objects = render(&[sets, &[HOOKS]].concat()).unwrap();
    let roles = objects
        .iter()
        .filter(|o| o["kind"] == "ClusterRole" || o["kind"] == "Role");
    roles
        .flat_map(|role| {
            let kind = match role["metadata"]["name"].as_str().unwrap() {
                name if name.ends_with("-lease") || name.ends_with("-tyk-places") => "own",
                name if name.ends_with("-cleanup") => "uninstall",
                _ if role["kind"] == "Role" => "namespaced",
                _ => "cluster",
            };
            rights(role, "/")
                .into_iter()
                .map(move |right| (kind.to_owned(), right))
        })
        .collect()
}

/// Each switch that brings rights, as the page names it.
const SWITCHES: [(&str, &str); 6] = [
    ("`ingress.enabled`", "ingress.enabled=true"),
    ("`gatewayAPI.enabled`", "gatewayAPI.enabled=true"),
    ("`garageBuckets.enabled`", "garageBuckets.enabled=true"),
    ("`tyk.enabled`", TYK),
    ("`tyk.definitions`", "tyk.definitions=true"),
    ("`leaderElection.enabled`", "leaderElection.enabled=true"),
];
/// Verbs by when, group, resource and place.
type Rights = BTreeMap<(String, String, String, String), BTreeSet<String>>;

/// The same, a row per resource.
fn summary(table: &Rights) -> String {
    let mut rows: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for ((when, group, resource, place), verbs) in table {
        let (resource, name) = resource.split_once(' ').unwrap_or((resource, ""));
        let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
        let of = match (resource, name) {
            (_, "") => String::new(),
            // Too many to list here; the page of rights has them.
            ("customresourcedefinitions", _) => ", each by its name".to_owned(),
            (_, name) => format!(" of {name}"),
        };
        let place = match place.as_str() {
            place if place.contains("Job") => " (the Job on uninstall)",
            place if place.contains("release's namespace") => " (in the release's namespace)",
            _ => "",
        };
        rows.entry((group.clone(), resource.to_owned()))
            .or_default()
            .insert(format!("{}{of}{place}: {when}", verbs.join(", ")));
    }
    let mut text = "| group | resource | verbs, and when |\n|---|---|---|\n".to_owned();
    for ((group, resource), rights) in rows {
        let rights: Vec<String> = rights.into_iter().collect();
        text.push_str(&format!("| {group} | {resource} | {} |\n", rights.join("; ")));
    }
    text
}

/// Never for some namespaces only.
const TYK: &str = "tyk.enabled=true";
/// Everything off.
const NOTHING: &str = "leaderElection.enabled=false";
/// Makes Roles of what has a namespace.
const NARROW: &str = "watchNamespaces={team}";

#[test]
fn the_page_of_rights_is_the_superset_of_the_chart() {
    if !switched_on("the_page_of_rights_is_the_superset_of_the_chart") {
        return;
    }
    // Given the rights with every switch on, for all namespaces and for one
    let on: Vec<&str> = SWITCHES.iter().map(|(_, set)| *set).collect();
    let all = granted(&on);
    let some = on.iter().copied().filter(|set| *set != TYK).chain([NARROW]);
    let narrow = granted(&some.collect::<Vec<_>>());
    let (base, base_narrow) = (granted(&[NOTHING]), granted(&[NOTHING, NARROW]));
    let alone: Vec<(&str, BTreeSet<(String, String)>)> = SWITCHES
        .iter()
        .map(|(name, set)| (*name, granted(&[NOTHING, set])))
        .collect();
    // When for each is asked which switch alone brings it
    let mut table = Rights::new();
    for (kind, right) in &all {
        let mut words = right.splitn(3, ' ');
        let (verb, resource, name) = (
            words.next().unwrap(),
            words.next().unwrap(),
            words.next().unwrap_or(""),
        );
        let (group, resource) = resource.split_once('/').unwrap();
        let here = (kind.clone(), right.clone());
        let by: Vec<&str> = alone
            .iter()
            .filter(|(_, brings)| brings.contains(&here))
            .map(|(name, _)| *name)
            .collect();
        let when = match (base.contains(&here), by.as_slice()) {
            // A switch may take rights too: Tyk alone needs none on Garage's kinds.
            (true, _) => {
                let without = alone.iter().filter(|(_, brings)| !brings.contains(&here));
                let without: Vec<&str> = without.map(|(name, _)| *name).collect();
                match without.is_empty() {
                    true => "always".to_owned(),
                    false => format!("always, but not with {} alone", without.join(" or ")),
                }
            }
            (false, []) => panic!("{right}: no switch alone brings it"),
            (false, by) => by.join(", "),
        };
        let place = match kind.as_str() {
            "own" => "Role in the release's namespace",
            "uninstall" => "for the Job on uninstall alone",
            _ if narrow.contains(&("namespaced".to_owned(), right.clone())) => match narrow.contains(&here) {
                true => "ClusterRole, and Role in each of `watchNamespaces`",
                false => "ClusterRole, or Role in each of `watchNamespaces`",
            },
            _ if narrow.contains(&here) => "ClusterRole",
            _ => "ClusterRole; not with `watchNamespaces`",
        };
        let group = if group.is_empty() { "core" } else { group };
        let resource = if name.is_empty() {
            resource.to_owned()
        } else {
            format!("{resource} `{name}`")
        };
        table
            .entry((when, group.to_owned(), resource, place.to_owned()))
            .or_default()
            .insert(verb.to_owned());
    }
    assert!(base_narrow.iter().all(|right| narrow.contains(right)));
    same("SECURITY.md", "rights", &summary(&table));
    let mut text = "| when | group | resource | verbs | where |\n|---|---|---|---|---|\n".to_owned();
    for ((when, group, resource, place), verbs) in &table {
        let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
        text.push_str(&format!(
            "| {when} | {group} | {resource} | {} | {place} |\n",
            verbs.join(", ")
        ));
    }
    same("docs/src/reference/rbac.md", "rights", &text);
    // And the whole of it as rules
    let objects = render(&[on.as_slice(), &[HOOKS]].concat()).unwrap();
    let mut yaml = "```yaml\n".to_owned();
    for role in objects
        .iter()
        .filter(|o| o["kind"] == "ClusterRole" || o["kind"] == "Role")
    {
        let short = serde_json::json!({"kind": role["kind"], "metadata": {"name": role["metadata"]["name"]}, "rules": role["rules"]});
        yaml.push_str(&format!("---\n{}", serde_saphyr::to_string(&short).unwrap()));
    }
    yaml.push_str("```\n");
    same("docs/src/reference/rbac.md", "superset", &yaml);
}
