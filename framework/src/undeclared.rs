//! Fields of status that the installed schema does not take, so that reports leave them out: those that it does not
//! declare, for all objects of a controller, and values of another type, for the one object that has them. For an hour: the
//! CRD may be upgraded meanwhile. Memory only, bounded.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::{Entry, Report, StatusField};

/// How long a path is left out.
pub(crate) const LEFT_OUT: Duration = Duration::from_secs(3_600);
/// How many paths are remembered, of all objects and of one. Keys that users choose may be unknown without an end.
const MOST: usize = 64;

/// A path that the installed schema does not take.
#[derive(Clone, Debug)]
struct Refused {
    path: String,
    /// The value of the field of status that it is in; `None`: any value.
    value: Option<u64>,
    until: Instant,
}

/// Paths that are left out.
#[derive(Debug, Default)]
pub(crate) struct Refusals(VecDeque<Refused>);

impl Refusals {
    /// Leaves these paths out from now on; with `report`, only while it has the values that it has. Whether one of them was
    /// not known before: if not, leaving them out has not helped.
    pub(crate) fn learn(&mut self, paths: &[String], report: Option<&Report>) -> bool {
        let now = Instant::now();
        self.0.retain(|refused| refused.until > now);
        let mut is_new = false;
        for path in paths {
            let value = report.map(|report| value_of(report, path));
            if self
                .0
                .iter()
                .any(|known| known.path == *path && known.value == value)
            {
                continue;
            }
            is_new = true;
            if self.0.len() >= MOST {
                self.0.pop_front();
            }
            self.0.push_back(Refused {
                path: path.clone(),
                value,
                until: now + LEFT_OUT,
            });
        }
        is_new
    }

    /// Paths of a report that are known not to be taken, each with the time until when. Values are those of the whole report.
    pub(crate) fn over(&self, report: &Report) -> Vec<(String, Instant)> {
        let now = Instant::now();
        let known = self.0.iter().filter(|refused| refused.until > now);
        let over = known.filter(|refused| match refused.value {
            Some(value) => value == value_of(report, &refused.path),
            None => field_of(report, &refused.path).is_some(),
        });
        over.map(|refused| (refused.path.clone(), refused.until))
            .collect()
    }
}

/// The report without these paths.
pub(crate) fn without(report: &Report, paths: &[(String, Instant)]) -> Report {
    let mut report = report.clone();
    for (path, _) in paths {
        remove_path(&mut report, &names(path));
    }
    report
}

/// Paths that are left out of the reports about all objects.
#[derive(Debug, Default)]
pub(crate) struct Undeclared {
    // 0 means that nothing need be locked: the common case.
    known: AtomicUsize,
    paths: Mutex<Refusals>,
}

impl Undeclared {
    fn lock(&self) -> MutexGuard<'_, Refusals> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Refusals::learn`].
    pub(crate) fn learn(&self, paths: &[String]) -> bool {
        let mut known = self.lock();
        let is_new = known.learn(paths, None);
        self.known.store(known.0.len(), Ordering::Release);
        is_new
    }

    /// See [`Refusals::over`].
    pub(crate) fn over(&self, report: &Report) -> Vec<(String, Instant)> {
        if self.known.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.lock().over(report)
    }
}

fn field_of<'a>(report: &'a Report, path: &str) -> Option<&'a StatusField> {
    let names = names(path);
    let first = names.first()?;
    report
        .fields
        .iter()
        .find(|(name, _)| name == first)
        .map(|(_, field)| field)
}

fn value_of(report: &Report, path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    field_of(report, path)
        .map(|field| format!("{field:?}"))
        .hash(&mut hasher);
    hasher.finish()
}

/// The names in `.status.a.b[key="x.y"].c`, without `status` and without what selects list items.
fn names(path: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let split = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == '.' && depth == 0
    };
    let parts = path.split(split).skip(2);
    parts.map(|part| part.split('[').next().unwrap_or(part)).collect()
}

fn remove_path(report: &mut Report, path: &[&str]) {
    let Some((field, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        report.fields.retain(|(name, _)| name != field);
    }
    for (name, value) in &mut report.fields {
        match value {
            StatusField::Set(value) if name == field => remove(value, rest),
            StatusField::Entries(entries) if name == field => {
                for entry in &mut entries.entries {
                    cut_entry(entry, entries.identity, rest);
                }
            }
            _ => {}
        }
    }
}

fn cut_entry(entry: &mut Entry, identity: &str, path: &[&str]) {
    match path {
        [] => {}
        [first, rest @ ..] if *first == identity => remove(&mut entry.identity, rest),
        [last] => drop(entry.rest.remove(*last)),
        [first, rest @ ..] => {
            if let Some(inner) = entry.rest.get_mut(*first) {
                remove(inner, rest);
            }
        }
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match (value, path) {
        (Value::Array(list), path) => list.iter_mut().for_each(|item| remove(item, path)),
        (Value::Object(map), [last]) => drop(map.remove(*last)),
        (Value::Object(map), [first, rest @ ..]) => {
            if let Some(inner) = map.get_mut(*first) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use serde_json::json;

    fn report(value: Value) -> Report {
        Report::new(Outcome::Done).field("where", StatusField::Set(value))
    }
    fn paths(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_schema_does_not_know_is_left_out_of_all_reports_for_an_hour() {
        let known = Undeclared::default();
        let whole = || report(json!({"a": 1, "b": 2, "l": [{"x": 1, "y": 2}]}));
        let cut = || {
            let over = known.over(&whole());
            (!over.is_empty()).then(|| without(&whole(), &over).fields)
        };
        assert_eq!(cut(), None);
        assert!(known.learn(&paths(&[".status.where.a", ".status.where.l.x"])));
        assert!(
            !known.learn(&paths(&[".status.where.a"])),
            "it was left out, and refused"
        );
        let left = json!({"b": 2, "l": [{"y": 2}]});
        assert_eq!(cut(), Some(report(left).fields));
        assert!(known.learn(&paths(&[".status.where"])));
        assert_eq!(cut(), Some(vec![]));
        tokio::time::advance(LEFT_OUT + Duration::from_secs(1)).await;
        assert_eq!(cut(), None, "the CRD may know it by now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_of_another_type_is_left_out_while_it_is_the_same() {
        let mut known = Refusals::default();
        let bad = report(json!({"count": "many", "kind": "K"}));
        assert!(known.learn(&paths(&[".status.where.count"]), Some(&bad)));
        let cut = |report: &Report| without(report, &known.over(report));
        assert_eq!(cut(&bad), report(json!({"kind": "K"})));
        let good = report(json!({"count": 5, "kind": "K"}));
        assert_eq!(cut(&good), good);
    }

    #[tokio::test(start_paused = true)]
    async fn paths_that_users_choose_do_not_pile_up() {
        let known = Undeclared::default();
        for n in 0..10_000 {
            known.learn(&[format!(".status.where.{n}")]);
        }
        assert_eq!(known.lock().0.len(), MOST);
    }

    #[test]
    fn names_of_a_path_do_not_stumble_over_what_selects_list_items() {
        assert_eq!(names(".status.a[name=\"x.y\"].b[0].c"), ["a", "b", "c"]);
        assert_eq!(names(".status"), [""; 0]);
    }
}
