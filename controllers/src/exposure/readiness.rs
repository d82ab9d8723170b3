//! Whether the Gateways serve an HTTPRoute, from the route's own status. Reads untyped JSON: entries of other
//! controllers may hold anything, and must never make the rest unreadable.

use std::fmt;

use reconcile_kit::error::{bounded, condition_text};
use routewright_crds::ExposureParentStatus;
use serde_json::Value;

use super::resolve::Parent;

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Whether every parent serves the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// One for each wanted parent, in the same order.
    pub parents: Vec<ParentReadiness>,
}

impl Readiness {
    /// Every parent serves the route. Not without any parent.
    pub fn ready(&self) -> bool {
        !self.parents.is_empty() && self.parents.iter().all(|parent| parent.ready)
    }

    /// What is missing, parent by parent; empty when ready. Stable as long as the status is.
    pub fn message(&self) -> String {
        let missing: Vec<String> = self
            .parents
            .iter()
            .filter(|parent| !parent.ready)
            .map(|parent| format!("{}: {}", parent.parent, parent.message))
            .collect();
        missing.join("; ")
    }

    /// Entries for `status.websiteExposure.parents`.
    pub fn status(&self) -> Vec<ExposureParentStatus> {
        self.parents.iter().map(ParentReadiness::status).collect()
    }
}

/// Whether one parent serves the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentReadiness {
    /// The parent.
    pub parent: Parent,
    /// Accepted is True for this generation of the route, in the entry that decided.
    pub accepted: bool,
    /// ResolvedRefs is True for this generation of the route, in the entry that decided.
    pub resolved_refs: bool,
    /// Some controller serves the route and none refuses it. This is the value that decides.
    pub ready: bool,
    /// What is missing; empty when ready.
    pub message: String,
}

impl ParentReadiness {
    fn status(&self) -> ExposureParentStatus {
        let parent = &self.parent;
        ExposureParentStatus {
            parent: format!("{}/{}", parent.namespace, parent.name),
            group: (parent.group != GATEWAY_GROUP).then(|| parent.group.clone()),
            kind: (parent.kind != "Gateway").then(|| parent.kind.clone()),
            section_name: parent.section_name.clone(),
            port: parent.port.map(i32::from),
            accepted: Some(self.accepted),
            resolved_refs: Some(self.resolved_refs),
            ready: Some(self.ready),
            message: (!self.message.is_empty()).then(|| self.message.clone()),
        }
    }
}

impl fmt::Display for Parent {
    /// `Gateway ns/name, listener https, port 443`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)?;
        if let Some(section) = &self.section_name {
            write!(f, ", listener {section}")?;
        }
        if let Some(port) = self.port {
            write!(f, ", port {port}")?;
        }
        Ok(())
    }
}

/// Reads the readiness of a live HTTPRoute for the parents that it should have.
///
/// A parent serves the route when a controller says Accepted and ResolvedRefs True for the route's present generation,
/// and no controller refuses it. A condition without observedGeneration may be about an older route and counts as such.
pub fn readiness(live: &Value, wanted: &[Parent]) -> Readiness {
    let generation = live.pointer("/metadata/generation").and_then(Value::as_i64);
    let namespace = live
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let entries = live
        .pointer("/status/parents")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let parents = wanted
        .iter()
        .map(|parent| {
            let verdicts: Vec<Verdict> = entries
                .iter()
                .filter(|entry| {
                    entry
                        .get("parentRef")
                        .is_some_and(|reference| refers_to(reference, namespace, parent))
                })
                .filter_map(|entry| judge(entry, generation))
                .collect();
            one_parent(parent, &verdicts)
        })
        .collect();
    Readiness { parents }
}

/// What one controller says about one parent.
struct Verdict {
    accepted: bool,
    resolved_refs: bool,
    /// Says no, for this generation.
    refuses: bool,
    /// What is missing; empty: it serves the route.
    missing: String,
}

fn one_parent(parent: &Parent, verdicts: &[Verdict]) -> ParentReadiness {
    let refusal = verdicts.iter().find(|verdict| verdict.refuses);
    let serving = verdicts.iter().find(|verdict| verdict.missing.is_empty());
    let (ready, decided) = match (refusal, serving) {
        (Some(refusal), _) => (false, Some(refusal)),
        (None, Some(serving)) => (true, Some(serving)),
        (None, None) => (false, verdicts.first()),
    };
    let message = match decided {
        None => "no controller has reported on it yet: does it exist, and does its GatewayClass have a controller?".to_owned(),
        Some(_) if ready => String::new(),
        // All who are not content: with several controllers the first alone could mislead.
        Some(_) => {
            let missing: Vec<&str> =
                verdicts.iter().map(|v| v.missing.as_str()).filter(|missing| !missing.is_empty()).collect();
            missing.join("; ")
        }
    };
    ParentReadiness {
        parent: parent.clone(),
        accepted: decided.is_some_and(|verdict| verdict.accepted),
        resolved_refs: decided.is_some_and(|verdict| verdict.resolved_refs),
        ready,
        message,
    }
}

/// Whether a parentRef of the status is this parent, its defaults filled in.
fn refers_to(reference: &Value, route_namespace: &str, parent: &Parent) -> bool {
    let field = |name: &str| reference.get(name).and_then(Value::as_str);
    let filled = |name: &str| field(name).filter(|text| !text.is_empty());
    field("group").unwrap_or(GATEWAY_GROUP) == parent.group
        && filled("kind").unwrap_or("Gateway") == parent.kind
        && filled("namespace").unwrap_or(route_namespace) == parent.namespace
        && field("name") == Some(parent.name.as_str())
        && filled("sectionName") == parent.section_name.as_deref()
        && reference.get("port").and_then(Value::as_i64) == parent.port.map(i64::from)
}

/// How a condition stands, for the present generation of the route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    True,
    False,
    /// `Unknown`, or anything else.
    Unknown,
    /// About an older generation.
    Older,
    /// About no generation in particular.
    Undated,
}

/// What a controller says, or `None` if the entry is not about acceptance (controllers of policies write such ones).
fn judge(entry: &Value, generation: Option<i64>) -> Option<Verdict> {
    let conditions = entry
        .get("conditions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let find = |type_: &str| {
        conditions
            .iter()
            .find(|c| c.get("type").and_then(Value::as_str) == Some(type_))
    };
    let accepted = find("Accepted")?;
    let resolved_refs = find("ResolvedRefs");
    let (is_accepted, is_resolved) = (
        state(Some(accepted), generation),
        state(resolved_refs, generation),
    );

    let mut missing = Vec::new();
    let mut refuses = false;
    for (name, condition, state) in [
        ("Accepted", Some(accepted), is_accepted),
        ("ResolvedRefs", resolved_refs, is_resolved),
    ] {
        refuses |= state == State::False;
        match state {
            State::True => {}
            State::Absent => missing.push(format!("{name} is not reported yet")),
            State::Older => missing.push(format!("{name} is about an older generation of the route")),
            State::Undated => missing.push(format!(
                "{name} has no observedGeneration, so it may be about an older generation of the route"
            )),
            State::False => missing.push(describe(name, "False", condition)),
            State::Unknown => missing.push(describe(name, "not True", condition)),
        }
    }
    // Not every Gateway knows Ready; one that does must say True, for whichever generation.
    let ready = find("Ready");
    if let Some(status) = ready.map(status_of).filter(|status| *status != "True") {
        refuses |= status == "False";
        missing.push(describe(
            "Ready",
            if status == "False" { "False" } else { "not True" },
            ready,
        ));
    }
    let partially_invalid = find("PartiallyInvalid");
    if partially_invalid.map(status_of) == Some("True") {
        refuses = true;
        missing.push(describe("PartiallyInvalid", "True", partially_invalid));
    }
    Some(Verdict {
        accepted: is_accepted == State::True,
        resolved_refs: is_resolved == State::True,
        refuses,
        missing: missing.join(", "),
    })
}

fn state(condition: Option<&Value>, generation: Option<i64>) -> State {
    let Some(condition) = condition else {
        return State::Absent;
    };
    match condition.get("observedGeneration").and_then(Value::as_i64) {
        None => State::Undated,
        Some(observed) if Some(observed) != generation => State::Older,
        Some(_) => match status_of(condition) {
            "True" => State::True,
            "False" => State::False,
            _ => State::Unknown,
        },
    }
}

fn status_of(condition: &Value) -> &str {
    condition
        .get("status")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Limit in bytes of a mirrored Gateway message: a condition may hold 32 KiB, and a route has up to 32 parents.
const MAX_MIRRORED: usize = 1_024;

/// `Accepted is False (NoMatchingParent): the Gateway's own message`
fn describe(name: &str, status: &str, condition: Option<&Value>) -> String {
    let field = |field: &str| {
        let text = condition
            .and_then(|c| c.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default();
        text.trim()
    };
    let mut text = format!("{name} is {status}");
    match field("reason") {
        "" => {}
        reason => text.push_str(&format!(" ({reason})")),
    }
    match field("message") {
        "" => {}
        message => {
            let message = condition_text(message);
            text.push_str(&format!(": {}", bounded(&message, MAX_MIRRORED)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_of_a_gateway_is_mirrored_up_to_a_limit() {
        let condition = json!({"reason": "R", "message": "ü".repeat(20_000)});
        let text = describe("Accepted", "False", Some(&condition));
        assert!(text.len() < 1_100 && text.starts_with("Accepted is False (R): üü") && text.ends_with('…'));
    }

    fn gateway(name: &str) -> Parent {
        Parent {
            group: GATEWAY_GROUP.into(),
            kind: "Gateway".into(),
            namespace: "gw".into(),
            name: name.into(),
            section_name: None,
            port: None,
        }
    }

    fn condition(type_: &str, status: &str) -> Value {
        json!({
            "type": type_, "status": status, "observedGeneration": 3,
            "reason": format!("{type_}Reason"), "message": format!("about {type_}"),
        })
    }

    /// An entry of the controller `example.com/a` for Gateway gw/public.
    fn entry(conditions: Vec<Value>) -> Value {
        json!({
            "parentRef": { "namespace": "gw", "name": "public" },
            "controllerName": "example.com/a",
            "conditions": conditions,
        })
    }

    fn good() -> Vec<Value> {
        vec![condition("Accepted", "True"), condition("ResolvedRefs", "True")]
    }

    fn route(parents: Vec<Value>) -> Value {
        json!({
            "metadata": { "namespace": "sites", "name": "blog-website", "generation": 3 },
            "status": { "parents": parents },
        })
    }

    fn read(parents: Vec<Value>) -> Readiness {
        readiness(&route(parents), &[gateway("public")])
    }

    fn flags(readiness: &Readiness) -> Vec<(bool, bool, bool)> {
        readiness
            .parents
            .iter()
            .map(|p| (p.accepted, p.resolved_refs, p.ready))
            .collect()
    }

    #[test]
    fn accepted_and_resolved_for_this_generation_is_ready() {
        let found = read(vec![entry(good())]);
        assert!(found.ready());
        assert_eq!(found.message(), "");
        assert_eq!(
            serde_json::to_value(found.status()).unwrap(),
            json!([{ "parent": "gw/public", "accepted": true, "resolvedRefs": true, "ready": true }])
        );
    }

    #[test]
    fn no_status_is_not_ready() {
        for live in [
            route(vec![]),
            json!({ "metadata": { "generation": 1 } }),
            json!({}),
        ] {
            let found = readiness(&live, &[gateway("public")]);
            assert!(!found.ready());
            assert!(
                found
                    .message()
                    .starts_with("Gateway gw/public: no controller has reported"),
                "{}",
                found.message()
            );
        }
        assert!(
            !readiness(&route(vec![entry(good())]), &[]).ready(),
            "a route without parents is served by nobody"
        );
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_gateway() {
        let found = read(vec![entry(vec![
            condition("Accepted", "False"),
            condition("ResolvedRefs", "True"),
        ])]);
        assert_eq!(flags(&found), [(false, true, false)]);
        assert_eq!(
            found.message(),
            "Gateway gw/public: Accepted is False (AcceptedReason): about Accepted"
        );
        let found = read(vec![entry(vec![
            condition("Accepted", "True"),
            condition("ResolvedRefs", "False"),
        ])]);
        assert_eq!(flags(&found), [(true, false, false)]);
        assert_eq!(
            found.message(),
            "Gateway gw/public: ResolvedRefs is False (ResolvedRefsReason): about ResolvedRefs"
        );
    }

    #[test]
    fn what_is_pending_or_left_out_is_not_ready() {
        let found = read(vec![entry(vec![
            condition("Accepted", "Unknown"),
            condition("ResolvedRefs", "True"),
        ])]);
        assert!(
            found.message().contains("Accepted is not True (AcceptedReason)"),
            "{}",
            found.message()
        );
        let found = read(vec![entry(vec![condition("Accepted", "True")])]);
        assert_eq!(flags(&found), [(true, false, false)]);
        assert_eq!(
            found.message(),
            "Gateway gw/public: ResolvedRefs is not reported yet"
        );
    }

    #[test]
    fn an_older_generation_does_not_count_and_neither_does_none() {
        for (observed, text) in [
            (json!(2), "Accepted is about an older generation of the route"),
            (json!(4), "Accepted is about an older generation of the route"),
            (Value::Null, "Accepted has no observedGeneration"),
        ] {
            for status in ["True", "False"] {
                let mut accepted = condition("Accepted", status);
                accepted["observedGeneration"] = observed.clone();
                let found = read(vec![entry(vec![accepted, condition("ResolvedRefs", "True")])]);
                assert_eq!(flags(&found), [(false, true, false)], "{observed} {status}");
                assert!(found.message().contains(text), "{}", found.message());
            }
        }
        let mut resolved = condition("ResolvedRefs", "True");
        resolved["observedGeneration"] = json!(2);
        assert!(!read(vec![entry(vec![condition("Accepted", "True"), resolved])]).ready());
    }

    #[test]
    fn ready_blocks_only_if_it_is_there_and_not_true() {
        let with = |status: &str| {
            let mut conditions = good();
            conditions.push(condition("Ready", status));
            read(vec![entry(conditions)])
        };
        assert!(with("True").ready());
        assert!(!with("False").ready());
        let unknown = with("Unknown");
        assert_eq!(
            flags(&unknown),
            [(true, true, false)],
            "`ready` is the value that decides"
        );
        assert_eq!(
            unknown.message(),
            "Gateway gw/public: Ready is not True (ReadyReason): about Ready"
        );
    }

    #[test]
    fn partially_invalid_blocks() {
        let with = |status: &str| {
            let mut conditions = good();
            conditions.push(condition("PartiallyInvalid", status));
            read(vec![entry(conditions)])
        };
        assert!(with("False").ready());
        assert!(!with("True").ready());
        assert!(
            with("True")
                .message()
                .contains("PartiallyInvalid is True (PartiallyInvalidReason): about")
        );
    }

    #[test]
    fn entries_of_policy_controllers_are_skipped() {
        let policy = entry(vec![
            condition("SomePolicyAffected", "False"),
            condition("ResolvedRefs", "False"),
        ]);
        assert!(read(vec![policy.clone(), entry(good())]).ready());
        assert!(
            read(vec![policy])
                .message()
                .contains("no controller has reported")
        );
    }

    #[test]
    fn of_several_controllers_one_must_serve_and_none_refuse() {
        let pending = entry(vec![condition("Accepted", "Unknown")]);
        let refusing = entry(vec![
            condition("Accepted", "False"),
            condition("ResolvedRefs", "True"),
        ]);
        assert!(read(vec![pending.clone(), entry(good())]).ready());
        let refused = read(vec![entry(good()), refusing]);
        assert_eq!(flags(&refused), [(false, true, false)]);
        assert!(!read(vec![pending.clone(), pending]).ready());
    }

    #[test]
    fn every_wanted_parent_needs_its_own_entry() {
        let found = readiness(
            &route(vec![entry(good())]),
            &[gateway("public"), gateway("private")],
        );
        assert_eq!(flags(&found), [(true, true, true), (false, false, false)]);
        assert!(!found.ready());
        assert!(
            found
                .message()
                .starts_with("Gateway gw/private: no controller has reported"),
            "{}",
            found.message()
        );
    }

    #[test]
    fn an_entry_is_found_by_the_whole_reference() {
        let wanted = Parent {
            section_name: Some("https".into()),
            port: Some(443),
            ..gateway("public")
        };
        let at = |reference: Value| {
            let mut entry = entry(good());
            entry["parentRef"] = reference;
            readiness(&route(vec![entry]), std::slice::from_ref(&wanted)).ready()
        };
        let full = json!({
            "group": GATEWAY_GROUP, "kind": "Gateway", "namespace": "gw", "name": "public",
            "sectionName": "https", "port": 443,
        });
        assert!(at(full.clone()));
        for (field, other) in [
            ("group", json!("example.com")),
            ("kind", json!("Service")),
            ("namespace", json!("sites")),
            ("name", json!("private")),
            ("sectionName", json!("http")),
            ("port", json!(80)),
        ] {
            let mut reference = full.clone();
            reference[field] = other;
            assert!(!at(reference), "{field}");
        }
        for left_out in ["namespace", "name", "sectionName", "port"] {
            let mut reference = full.clone();
            reference.as_object_mut().unwrap().remove(left_out);
            assert!(!at(reference), "{left_out}");
        }
        for defaulted in ["group", "kind"] {
            let mut reference = full.clone();
            reference.as_object_mut().unwrap().remove(defaulted);
            assert!(at(reference), "{defaulted}");
        }
    }

    #[test]
    fn a_reference_without_namespace_means_the_routes_own() {
        let mut entry = entry(good());
        entry["parentRef"] = json!({ "name": "public" });
        let own = Parent {
            namespace: "sites".into(),
            ..gateway("public")
        };
        assert!(readiness(&route(vec![entry.clone()]), &[own]).ready());
        assert!(!readiness(&route(vec![entry]), &[gateway("public")]).ready());
    }

    #[test]
    fn a_malformed_status_is_not_ready_and_does_no_harm() {
        for parents in [
            json!(7),
            json!([7, null, {}]),
            json!([{ "parentRef": [], "conditions": {} }]),
        ] {
            let live = json!({ "metadata": { "generation": 3 }, "status": { "parents": parents } });
            assert!(!readiness(&live, &[gateway("public")]).ready());
        }
    }

    #[test]
    fn status_entries_carry_what_tells_them_apart() {
        let wanted = Parent {
            group: String::new(),
            kind: "Service".into(),
            section_name: Some("web".into()),
            port: Some(80),
            ..gateway("mesh")
        };
        let found = readiness(&route(vec![]), &[wanted]);
        let status = serde_json::to_value(found.status()).unwrap();
        assert_eq!(status[0]["parent"], "gw/mesh");
        assert_eq!(status[0]["group"], "");
        assert_eq!(status[0]["kind"], "Service");
        assert_eq!(status[0]["sectionName"], "web");
        assert_eq!(status[0]["port"], 80);
        assert_eq!(status[0]["ready"], false);
    }
}
