//! Lists in status whose entries belong to several writers (`HTTPRoute.status.parents`), or have conditions of their
//! own (`Gateway.status.listeners`): what such a list should be, given the live one. Pure, and on raw JSON, so that
//! what is somebody else's passes as it stands.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use crate::{
    Condition,
    report::{Entries, Entry, Limits},
    status::Transition,
};

/// Name of the list of conditions in an entry.
const CONDITIONS: &str = "conditions";

/// A list as it should be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Merged {
    /// All of it, foreign entries included.
    pub(crate) list: Vec<Value>,
    /// It differs from the live one, times aside.
    pub(crate) changed: bool,
    /// Conditions of our entries that are new, changed status or reason, or are gone.
    pub(crate) transitions: Vec<EntryTransition>,
}

/// A condition of an entry that changed its status or reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTransition {
    /// The field of status.
    pub field: &'static str,
    /// The entry's identity, as text.
    pub entry: String,
    /// What changed.
    pub condition: Transition,
}

fn items(live: Option<&Value>) -> &[Value] {
    live.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl Entries {
    fn is_ours(&self, entry: &Value) -> bool {
        self.ours
            .as_ref()
            .is_none_or(|(key, name)| entry.get(key).and_then(Value::as_str) == Some(name))
    }

    /// The first entry of this identity; a second one in a report counts for nothing.
    fn named(&self, identity: Option<&Value>) -> Option<&Entry> {
        self.entries.iter().find(|e| Some(&e.identity) == identity)
    }

    /// The list as it should be. `types` are the condition types that are ours even where an entry does not name them.
    pub(crate) fn merge(
        &self,
        field: &'static str,
        live: Option<&Value>,
        types: &[&str],
        generation: Option<i64>,
        now: &Time,
    ) -> Merged {
        let live = items(live);
        let mut merged = Merged {
            list: Vec::with_capacity(live.len()),
            changed: false,
            transitions: Vec::new(),
        };
        let mut seen: Vec<&Value> = Vec::new();
        let mut room = self.room(live);
        for before in live {
            if !self.is_ours(before) {
                merged.list.push(before.clone());
                continue;
            }
            let identity = before.get(self.identity);
            match (self.named(identity), identity) {
                (Some(entry), Some(identity)) if room > 0 && !seen.contains(&identity) => {
                    room -= 1;
                    seen.push(identity);
                    let after = self.entry(Some(before), entry, types, generation, now);
                    merged.note(field, identity, Some(before), Some(&after));
                    merged.changed |= after != *before;
                    merged.list.push(after);
                }
                // A parent that is no more, or a second entry for one that is there.
                (_, identity) => {
                    merged.changed = true;
                    let identity = identity.unwrap_or(&Value::Null);
                    if !seen.contains(&identity) {
                        merged.note(field, identity, Some(before), None);
                    }
                }
            }
        }
        let mut added: Vec<&Value> = Vec::new();
        for entry in &self.entries {
            if seen.contains(&&entry.identity) || added.contains(&&entry.identity) {
                continue;
            }
            if room == 0 {
                break;
            }
            room -= 1;
            added.push(&entry.identity);
            let after = self.entry(None, entry, types, generation, now);
            merged.note(field, &entry.identity, None, Some(&after));
            merged.changed = true;
            merged.list.push(after);
        }
        merged
    }

    /// How many own entries the list takes.
    fn room(&self, live: &[Value]) -> usize {
        let theirs = live.iter().filter(|entry| !self.is_ours(entry)).count();
        self.limits.entries.saturating_sub(theirs)
    }

    /// Says which own entries or conditions the list of this field has no room for.
    pub(crate) fn overflow(&self, field: &str, live: Option<&Value>) -> Option<String> {
        if self.limits == Limits::default() {
            return None;
        }
        let live = items(live);
        let named =
            |at: usize, entry: &Entry| !self.entries.iter().take(at).any(|e| e.identity == entry.identity);
        let wanted = self
            .entries
            .iter()
            .enumerate()
            .filter(|(at, entry)| named(*at, entry))
            .count();
        let over = wanted.saturating_sub(self.room(live));
        if over > 0 {
            return Some(format!(
                "status.{field} takes {} entries: {over} of {wanted} of this controller are left out, as other \
                 controllers have the rest",
                self.limits.entries
            ));
        }
        let full = self.entries.iter().find(|entry| {
            let stands = live
                .iter()
                .find(|l| self.is_ours(l) && l.get(self.identity) == Some(&entry.identity));
            let theirs = items(stands.and_then(|s| s.get(CONDITIONS))).iter();
            let theirs = theirs.filter(|c| entry.conditions.iter().all(|own| own.type_ != text(c, "type")));
            theirs.count().saturating_add(entry.conditions.len()) > self.limits.conditions
        })?;
        Some(format!(
            "an entry of status.{field} takes {} conditions: some of this controller are left out of {}",
            self.limits.conditions, full.identity
        ))
    }

    /// Whether an own entry was reported at a later generation than the known one.
    pub(crate) fn is_newer(&self, live: Option<&Value>, generation: i64) -> bool {
        let ours = items(live).iter().filter(|entry| self.is_ours(entry));
        let conditions = ours.flat_map(|entry| items(entry.get(CONDITIONS)));
        let observed = conditions.filter_map(|c| c.get("observedGeneration")?.as_i64());
        observed.into_iter().any(|observed| observed > generation)
    }

    /// Our entry as it should be: what the report says, and the conditions of others that stand in it.
    fn entry(
        &self,
        live: Option<&Value>,
        entry: &Entry,
        types: &[&str],
        generation: Option<i64>,
        now: &Time,
    ) -> Value {
        let mut out = entry.rest.clone();
        out.insert(self.identity.to_owned(), entry.identity.clone());
        if let Some((key, name)) = &self.ours {
            out.insert((*key).to_owned(), name.as_str().into());
        }
        let live = live.and_then(|l| l.get(CONDITIONS));
        let mut seen: Vec<&str> = Vec::new();
        let mut conditions = Vec::new();
        for before in items(live) {
            let type_ = text(before, "type");
            match entry.conditions.iter().find(|c| c.type_ == type_) {
                Some(_) if seen.contains(&type_) => {}
                Some(condition) => {
                    seen.push(type_);
                    conditions.push(stamped(condition, Some(before), generation, now));
                }
                None if types.contains(&type_) => {}
                None => conditions.push(before.clone()),
            }
        }
        for condition in &entry.conditions {
            if !seen.contains(&condition.type_) && conditions.len() < self.limits.conditions {
                seen.push(condition.type_);
                conditions.push(stamped(condition, None, generation, now));
            }
        }
        out.remove(CONDITIONS);
        if !conditions.is_empty() || live.is_some() {
            out.insert(CONDITIONS.to_owned(), conditions.into());
        }
        Value::Object(out)
    }

    /// What of a merged list belongs into a server-side-apply body: our entries, without the conditions of others.
    pub(crate) fn share(&self, merged: &[Value], types: &[&str]) -> Value {
        let own = merged.iter().filter(|entry| self.is_ours(entry));
        let own = own.map(|entry| {
            let named = self.named(entry.get(self.identity));
            let ours = |c: &Value| {
                let type_ = text(c, "type");
                types.contains(&type_)
                    || named.is_some_and(|entry| entry.conditions.iter().any(|c| c.type_ == type_))
            };
            let mut entry = entry.clone();
            if let Some(list) = entry.get_mut(CONDITIONS).and_then(Value::as_array_mut) {
                list.retain(ours);
            }
            entry
        });
        Value::Array(own.collect())
    }

    /// What of ours is still in the list that was answered though it is over, because an older manager holds a share
    /// of it. Later items come first, so that removing one moves no other.
    pub(crate) fn leftovers(&self, field: &str, answered: &Value, types: &[&str]) -> Vec<String> {
        let list = items(Some(answered));
        let mut over = Vec::new();
        for (index, entry) in list.iter().enumerate().rev().filter(|(_, e)| self.is_ours(e)) {
            let identity = entry.get(self.identity);
            let before = list.iter().take(index);
            let twice = before
                .filter(|e| self.is_ours(e))
                .any(|e| e.get(self.identity) == identity);
            let Some(named) = self.named(identity).filter(|_| !twice) else {
                over.push(format!("{field}/{index}"));
                continue;
            };
            let is_over = |c: &Value| {
                let type_ = text(c, "type");
                types.contains(&type_) && named.conditions.iter().all(|c| c.type_ != type_)
            };
            let conditions = items(entry.get(CONDITIONS)).iter().enumerate().rev();
            over.extend(
                conditions
                    .filter(|(_, c)| is_over(c))
                    .map(|(place, _)| format!("{field}/{index}/{CONDITIONS}/{place}")),
            );
        }
        over
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The condition as it should be; as it stands, to the byte, if it says the same already.
fn stamped(condition: &Condition, live: Option<&Value>, generation: Option<i64>, now: &Time) -> Value {
    let fresh = condition.stamped(None, generation, now);
    let Some(live) = live else { return json!(fresh) };
    let status = text(live, "status") == fresh.status;
    let observed = live.get("observedGeneration").and_then(Value::as_i64);
    if status
        && text(live, "reason") == fresh.reason
        && text(live, "message") == fresh.message
        && observed == generation
    {
        return live.clone();
    }
    let since = live
        .get("lastTransitionTime")
        .filter(|time| status && time.is_string());
    let mut out = json!(fresh);
    if let (Some(since), Some(out)) = (since, out.as_object_mut()) {
        out.insert("lastTransitionTime".to_owned(), since.clone());
    }
    out
}

impl Merged {
    fn note(&mut self, field: &'static str, identity: &Value, before: Option<&Value>, after: Option<&Value>) {
        let list =
            |entry: Option<&Value>| -> Vec<Value> { items(entry.and_then(|e| e.get(CONDITIONS))).to_vec() };
        let (before, after) = (list(before), list(after));
        let entry = || match identity {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        let mut push = |condition| {
            self.transitions.push(EntryTransition {
                field,
                entry: entry(),
                condition,
            });
        };
        for now in &after {
            let was = before.iter().find(|c| text(c, "type") == text(now, "type"));
            let same = was.is_some_and(|was| {
                text(was, "status") == text(now, "status") && text(was, "reason") == text(now, "reason")
            });
            if !same {
                push(Transition {
                    type_: text(now, "type").to_owned(),
                    status: Some(text(now, "status").to_owned()),
                    reason: text(now, "reason").to_owned(),
                    message: text(now, "message").to_owned(),
                });
            }
        }
        for was in &before {
            if after.iter().all(|c| text(c, "type") != text(was, "type")) {
                push(Transition {
                    type_: text(was, "type").to_owned(),
                    status: None,
                    reason: String::new(),
                    message: String::new(),
                });
            }
        }
    }
}

/// The merge patch (RFC 7386) that makes `before` into `after`: keys that go are null.
pub(crate) fn patch_of(before: Option<&Value>, after: &Value) -> Value {
    let (Some(Value::Object(before)), Value::Object(after)) = (before, after) else {
        return after.clone();
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let changed = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), patch_of(before.get(key), value)));
    Value::Object(gone.chain(changed).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    const TYPES: &[&str] = &["Accepted", "PartiallyInvalid"];

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }
    fn entry(parent: &str, yes: bool, reason: &'static str) -> Entry {
        Entry {
            identity: json!({"name": parent}),
            rest: Map::new(),
            conditions: vec![Condition::new("Accepted", yes, reason, "m")],
        }
    }
    fn ours(entries: Vec<Entry>) -> Entries {
        Entries {
            ours: Some(("controllerName", "we.example.org/us".to_owned())),
            identity: "parentRef",
            entries,
            limits: Limits::default(),
        }
    }
    fn theirs(parent: &str) -> Value {
        json!({
            "controllerName": "they.example.org/them", "parentRef": {"name": parent}, "odd": [1, null],
            "conditions": [{"type": "Accepted", "observedGeneration": 99, "lastTransitionTime": "yesterday"}],
        })
    }
    fn merge(entries: &Entries, live: Option<&Value>, generation: i64, second: i64) -> Merged {
        entries.merge("parents", live, TYPES, Some(generation), &at(second))
    }
    fn written(entries: &Entries, live: Option<&Value>, generation: i64, second: i64) -> Value {
        let merged = merge(entries, live, generation, second);
        assert!(merged.changed);
        Value::Array(merged.list)
    }

    #[test]
    fn a_list_that_is_not_there_is_made_and_said_twice_is_written_once() {
        let wanted = ours(vec![entry("a", true, "Accepted"), entry("b", true, "Accepted")]);
        let list = written(&wanted, None, 1, 10);
        assert_eq!(
            list[0],
            json!({
                "parentRef": {"name": "a"}, "controllerName": "we.example.org/us",
                "conditions": [{
                    "type": "Accepted", "status": "True", "reason": "Accepted", "message": "m",
                    "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:10Z",
                }],
            })
        );
        let again = merge(&wanted, Some(&list), 1, 99);
        assert_eq!(
            (again.changed, &again.list, again.transitions),
            (false, list.as_array().unwrap(), vec![])
        );
    }

    #[test]
    fn nothing_of_ours_in_and_nothing_to_say_is_no_write_whether_there_is_a_list_or_not() {
        for live in [None, Some(json!([])), Some(json!([theirs("a")]))] {
            assert!(!merge(&ours(vec![]), live.as_ref(), 1, 10).changed, "{live:?}");
        }
    }

    #[test]
    fn foreign_entries_stay_to_the_byte_and_in_their_place() {
        let wanted = ours(vec![entry("a", true, "Accepted")]);
        let own = written(&wanted, None, 1, 10)[0].clone();
        let live = json!([theirs("x"), own, theirs("a"), theirs("a")]);
        let flipped = ours(vec![
            entry("a", false, "NoMatchingParent"),
            entry("b", true, "Accepted"),
        ]);
        let list = written(&flipped, Some(&live), 2, 20);
        assert_eq!(list.as_array().unwrap().len(), 5);
        for place in [0, 2, 3] {
            assert_eq!(list[place].to_string(), live[place].to_string());
        }
        assert_eq!(list[1]["conditions"][0]["reason"], "NoMatchingParent");
        assert_eq!(list[4]["parentRef"]["name"], "b");
    }

    #[test]
    fn an_empty_list_is_left_when_ours_was_the_only_entry() {
        let live = written(&ours(vec![entry("a", true, "Accepted")]), None, 1, 10);
        assert_eq!(written(&ours(vec![]), Some(&live), 1, 20), json!([]));
    }

    #[test]
    fn stale_parents_go_and_doubles_collapse_into_the_first() {
        let wanted = ours(vec![entry("a", true, "Accepted")]);
        let old = written(&wanted, None, 1, 10)[0].clone();
        let mut double = old.clone();
        double["conditions"][0]["lastTransitionTime"] = json!("1970-01-01T00:00:50Z");
        let mut gone = old.clone();
        gone["parentRef"]["name"] = json!("gone");
        let nameless = json!({"controllerName": "we.example.org/us"});
        let live = json!([gone, old, theirs("x"), double, nameless]);
        let merged = merge(&wanted, Some(&live), 1, 99);
        assert!(merged.changed);
        assert_eq!(merged.list, [old, theirs("x")]);
        let told: Vec<_> = merged.transitions.iter().map(|t| t.entry.as_str()).collect();
        assert_eq!(told, [r#"{"name":"gone"}"#], "a double is no transition");
    }

    #[test]
    fn a_report_that_names_an_entry_twice_means_the_first() {
        let wanted = ours(vec![entry("a", true, "Accepted"), entry("a", false, "Pending")]);
        let live = written(&wanted, None, 1, 10);
        assert_eq!(live.as_array().unwrap().len(), 1);
        assert_eq!(live[0]["conditions"][0]["reason"], "Accepted");
        assert!(!merge(&wanted, Some(&live), 1, 20).changed);
    }

    #[test]
    fn times_move_with_the_status_alone_and_stay_as_they_are_spelled() {
        let mut live = written(&ours(vec![entry("a", true, "Accepted")]), None, 1, 10);
        live[0]["conditions"][0]["lastTransitionTime"] = json!("1970-01-01T00:00:10.5+00:00");
        let reworded = written(&ours(vec![entry("a", true, "Other")]), Some(&live), 2, 20);
        let condition = &reworded[0]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:10.5+00:00");
        assert_eq!(condition["observedGeneration"], 2);
        let flipped = written(&ours(vec![entry("a", false, "Other")]), Some(&reworded), 2, 30);
        assert_eq!(
            flipped[0]["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:30Z"
        );
    }

    #[test]
    fn in_an_entry_of_ours_conditions_of_others_stay_and_ours_go_when_they_are_not_named() {
        let mut full = entry("a", true, "Accepted");
        full.conditions
            .push(Condition::new("PartiallyInvalid", true, "UnsupportedValue", ""));
        let mut live = written(&ours(vec![full]), None, 1, 10);
        let foreign = json!({"type": "example.org/Policy", "status": "True", "own": {"x": 1}});
        live[0]["conditions"]
            .as_array_mut()
            .unwrap()
            .insert(0, foreign.clone());
        let wanted = ours(vec![entry("a", true, "Accepted")]);
        let merged = merge(&wanted, Some(&live), 1, 20);
        let after = merged.list[0]["conditions"].as_array().unwrap();
        assert_eq!(after.len(), 2);
        assert_eq!(after[0], foreign);
        assert_eq!(after[1], live[0]["conditions"][1]);
        assert_eq!(merged.transitions.len(), 1);
        assert_eq!(merged.transitions[0].condition.type_, "PartiallyInvalid");
        assert_eq!(merged.transitions[0].condition.status, None);
        let share = wanted.share(&merged.list, TYPES);
        assert_eq!(
            share[0]["conditions"].as_array().unwrap().len(),
            1,
            "apply takes only what is ours"
        );
    }

    #[test]
    fn a_later_generation_on_an_entry_of_ours_is_seen_and_on_another_is_not() {
        let wanted = ours(vec![entry("a", false, "Pending")]);
        let live = written(&ours(vec![entry("a", true, "Accepted")]), None, 5, 10);
        assert!(wanted.is_newer(Some(&live), 4) && !wanted.is_newer(Some(&live), 5));
        // It may come from another cluster, by a restore: it is written over all the same.
        assert!(merge(&wanted, Some(&live), 4, 20).changed);
        let foreign = json!([theirs("a")]);
        assert!(!wanted.is_newer(Some(&foreign), 1), "theirs is not our clock");
    }

    #[test]
    fn what_the_list_does_not_take_is_left_out_from_the_end_and_nothing_of_others() {
        let limits = Limits {
            entries: 4,
            conditions: 2,
        };
        let wanted = Entries {
            limits,
            ..ours(
                ["a", "b", "c", "c", "d"]
                    .map(|p| entry(p, true, "Accepted"))
                    .into(),
            )
        };
        let live = json!([theirs("x"), theirs("y")]);
        let list = written(&wanted, Some(&live), 1, 10);
        let parents: Vec<_> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["parentRef"]["name"].clone())
            .collect();
        assert_eq!(parents, ["x", "y", "a", "b"]);
        assert!(!merge(&wanted, Some(&list), 1, 20).changed);
        let said = wanted.overflow("parents", Some(&list)).unwrap();
        assert!(
            said.starts_with("status.parents takes 4 entries: 2 of 4 of this controller"),
            "{said}"
        );
        let full = json!([theirs("x"), theirs("y"), theirs("z"), theirs("v"), theirs("w")]);
        assert!(!merge(&wanted, Some(&full), 1, 20).changed);
        let few = Entries {
            limits,
            ..ours(vec![entry("a", true, "Accepted")])
        };
        assert_eq!(few.overflow("parents", Some(&live)), None);
        // One condition of another writer in the entry leaves room for one own condition.
        let mut busy = written(&few, None, 1, 10);
        busy[0]["conditions"] = json!([{"type": "Theirs"}, {"type": "Accepted"}]);
        let mut two = entry("a", true, "Accepted");
        two.conditions
            .push(Condition::new("PartiallyInvalid", true, "R", ""));
        let two = Entries {
            limits,
            ..ours(vec![two])
        };
        let list = written(&two, Some(&busy), 1, 20);
        let types: Vec<_> = list[0]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["type"].clone())
            .collect();
        assert_eq!(types, ["Theirs", "Accepted"]);
        assert!(
            two.overflow("parents", Some(&list))
                .unwrap()
                .contains("takes 2 conditions")
        );
    }

    #[test]
    fn a_list_that_is_all_ours_keeps_nothing_that_is_not_named() {
        let listener = |name: &str, routes: u32| Entry {
            identity: json!(name),
            rest: Map::from_iter([("attachedRoutes".to_owned(), json!(routes))]),
            conditions: vec![Condition::new("Accepted", true, "Accepted", "")],
        };
        let list = |entries| Entries {
            ours: None,
            identity: "name",
            entries,
            limits: Limits::default(),
        };
        let live = written(
            &list(vec![listener("http", 1), listener("https", 0)]),
            None,
            1,
            10,
        );
        let merged = merge(&list(vec![listener("http", 2)]), Some(&live), 1, 20);
        assert_eq!(merged.list.len(), 1);
        assert_eq!(merged.list[0]["attachedRoutes"], 2);
        assert_eq!(merged.transitions.len(), 1, "a number is no transition");
        assert_eq!(merged.transitions[0].entry, "https");
    }

    #[test]
    fn what_is_over_and_still_answered_is_named_from_the_end() {
        let wanted = ours(vec![entry("a", true, "Accepted")]);
        let own = |parent: &str, types: &[&str]| {
            let conditions: Vec<Value> = types.iter().map(|t| json!({ "type": t })).collect();
            json!({"controllerName": "we.example.org/us", "parentRef": {"name": parent}, "conditions": conditions})
        };
        let answered = json!([
            own("a", &["PartiallyInvalid", "example.org/Policy", "Accepted"]),
            own("gone", &["Accepted"]),
            theirs("gone"),
            own("a", &["Accepted"]),
        ]);
        assert_eq!(
            wanted.leftovers("parents", &answered, TYPES),
            ["parents/3", "parents/1", "parents/0/conditions/0"]
        );
    }

    #[test]
    fn a_merge_patch_takes_away_what_is_over() {
        let before = json!({"a": 1, "b": {"x": 1, "y": 2}, "c": [1], "d": 4});
        let after = json!({"a": 1, "b": {"x": 1, "z": 3}, "c": [], "d": {"e": 5}});
        let patch = patch_of(Some(&before), &after);
        assert_eq!(patch, json!({"b": {"y": null, "z": 3}, "c": [], "d": {"e": 5}}));
        assert_eq!(patch_of(None, &after), after);
    }
}
