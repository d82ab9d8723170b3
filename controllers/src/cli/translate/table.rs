//! The answer as tables for people.

use serde_json::Value;

use super::answer::Answer;

/// The tables that have rows, with an empty line between them.
pub(super) fn render(answer: &Answer) -> String {
    let statuses = |kind: &'static str| {
        answer
            .statuses
            .iter()
            .filter(move |one| one.get("kind").and_then(Value::as_str) == Some(kind))
    };
    let mut tables = Vec::new();
    tables.push(table(
        &["API", "ROUTE", "GATEWAY", "HOST", "PATH", "METHODS", "UPSTREAM"],
        answer.apis.iter().map(|api| {
            vec![
                api.id.clone(),
                api.route.clone(),
                api.gateway.clone(),
                api.host.clone().unwrap_or_else(|| "*".to_owned()),
                api.path.clone(),
                if api.methods.len() == 8 {
                    "all".to_owned()
                } else {
                    api.methods.join(",")
                },
                upstream(&api.document),
            ]
        }),
    ));
    tables.push(table(
        &["GATEWAYCLASS", "ACCEPTED", "REASON", "MESSAGE"],
        statuses("GatewayClass").map(|one| {
            let accepted = condition(one.pointer("/status"), "Accepted");
            vec![name(one), accepted.status, accepted.reason, accepted.message]
        }),
    ));
    tables.push(table(
        &["GATEWAY", "ACCEPTED", "PROGRAMMED", "ADDRESSES", "MESSAGE"],
        statuses("Gateway").map(|one| {
            let status = one.pointer("/status");
            let (accepted, programmed) = (condition(status, "Accepted"), condition(status, "Programmed"));
            let addresses: Vec<&str> = items(status, "addresses")
                .filter_map(|address| address.get("value")?.as_str())
                .collect();
            let message = worst(&[&accepted, &programmed]);
            vec![
                name(one),
                accepted.short(),
                programmed.short(),
                addresses.join(","),
                message,
            ]
        }),
    ));
    tables.push(table(
        &[
            "LISTENER",
            "ROUTES",
            "ACCEPTED",
            "RESOLVED",
            "PROGRAMMED",
            "MESSAGE",
        ],
        statuses("Gateway").flat_map(|one| {
            items(one.pointer("/status"), "listeners").map(|listener| {
                let of = |type_| condition(Some(listener), type_);
                let (accepted, resolved, programmed) = (of("Accepted"), of("ResolvedRefs"), of("Programmed"));
                let message = worst(&[&accepted, &resolved, &programmed]);
                vec![
                    format!("{} {}", name(one), text(listener, "name")),
                    listener
                        .get("attachedRoutes")
                        .map(Value::to_string)
                        .unwrap_or_default(),
                    accepted.short(),
                    resolved.short(),
                    programmed.short(),
                    message,
                ]
            })
        }),
    ));
    tables.push(table(
        &["HTTPROUTE", "PARENT", "ACCEPTED", "RESOLVED", "MESSAGE"],
        statuses("HTTPRoute").flat_map(|one| {
            let ours = |parent: &&Value| text(parent, "controllerName") == answer.controller;
            items(one.pointer("/status"), "parents")
                .filter(ours)
                .map(|parent| {
                    let of = |type_| condition(Some(parent), type_);
                    let (accepted, resolved, partial) =
                        (of("Accepted"), of("ResolvedRefs"), of("PartiallyInvalid"));
                    let message = match (accepted.status.as_str(), partial.status.as_str()) {
                        ("True", "True") => partial.message.clone(),
                        _ => worst(&[&accepted, &resolved]),
                    };
                    let shown = if partial.status == "True" {
                        "Partially".to_owned()
                    } else {
                        accepted.short()
                    };
                    vec![
                        name(one),
                        parent_of(parent, one),
                        shown,
                        resolved.short(),
                        message,
                    ]
                })
        }),
    ));
    tables.push(table(
        &["TYKOASAPIDEFINITION", "ACCEPTED", "MESSAGE"],
        statuses("TykOasApiDefinition").map(|one| {
            let accepted = condition(one.pointer("/status"), "Accepted");
            vec![name(one), accepted.short(), accepted.message]
        }),
    ));
    tables.push(table(
        &["GARAGEBUCKET", "EXPOSED", "MESSAGE"],
        statuses("GarageBucket").map(|one| {
            let exposed = condition(one.pointer("/status"), "WebsiteExposed");
            vec![name(one), exposed.short(), exposed.message]
        }),
    ));
    tables.push(table(
        &["EVENT", "OBJECT", "REASON", "MESSAGE"],
        answer.events.iter().map(|event| {
            vec![
                event.type_.to_owned(),
                event.object.clone(),
                event.reason.clone(),
                event.message.clone(),
            ]
        }),
    ));
    let mut text = tables.into_iter().flatten().collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        text.push_str("nothing to serve and nothing to say\n");
    }
    text
}

/// Rows under a head, columns as wide as they need; nothing without rows.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Option<String> {
    let mut all: Vec<Vec<String>> = vec![head.iter().map(|cell| (*cell).to_owned()).collect()];
    all.extend(rows.map(|row| {
        row.into_iter()
            .map(|cell| match cell.as_str() {
                "" => "-".to_owned(),
                _ => cell.replace(['\n', '\r', '\t'], " "),
            })
            .collect()
    }));
    if all.len() == 1 {
        return None;
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let width = |row: &Vec<String>| row.get(column).map_or(0, |cell| cell.chars().count());
            all.iter().map(width).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}   "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Some(text)
}

/// What one condition says; empty where there is none.
#[derive(Default)]
struct Said {
    status: String,
    reason: String,
    message: String,
}

impl Said {
    /// The status, and the reason unless it says the same.
    fn short(&self) -> String {
        match self.status.as_str() {
            "True" | "" => self.status.clone(),
            status => format!("{status}/{}", self.reason),
        }
    }
}

fn condition(of: Option<&Value>, type_: &str) -> Said {
    items(of, "conditions")
        .find(|condition| text(condition, "type") == type_)
        .map(|condition| Said {
            status: text(condition, "status"),
            reason: text(condition, "reason"),
            message: text(condition, "message"),
        })
        .unwrap_or_default()
}

/// The message of the first condition that is not True, or of the first.
fn worst(conditions: &[&Said]) -> String {
    conditions
        .iter()
        .find(|one| one.status != "True" && !one.status.is_empty())
        .or(conditions.first())
        .map(|one| one.message.clone())
        .unwrap_or_default()
}

fn items<'a>(of: Option<&'a Value>, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    of.and_then(|value| value.get(name))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text(value: &Value, name: &str) -> String {
    value
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn name(object: &Value) -> String {
    let of = |field: &str| {
        object
            .pointer(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    match of("/metadata/namespace").as_str() {
        "" => of("/metadata/name"),
        namespace => format!("{namespace}/{}", of("/metadata/name")),
    }
}

fn parent_of(parent: &Value, route: &Value) -> String {
    let reference = parent.get("parentRef").unwrap_or(&Value::Null);
    let namespace = match text(reference, "namespace").as_str() {
        "" => route
            .pointer("/metadata/namespace")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        namespace => namespace.to_owned(),
    };
    let section = match text(reference, "sectionName").as_str() {
        "" => String::new(),
        section => format!(" {section}"),
    };
    let port = match reference.get("port") {
        Some(port) => format!(":{port}"),
        None => String::new(),
    };
    format!("{namespace}/{}{section}{port}", text(reference, "name"))
}

/// Where an API sends its requests, in short.
fn upstream(document: &Value) -> String {
    let upstream = document
        .pointer("/x-tyk-api-gateway/upstream")
        .unwrap_or(&Value::Null);
    let targets: Vec<String> = upstream
        .pointer("/loadBalancing/targets")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|target| {
            let weight = target.get("weight").map(Value::to_string).unwrap_or_default();
            format!("{} ×{weight}", text(target, "url"))
        })
        .collect();
    if targets.is_empty() {
        text(upstream, "url")
    } else {
        targets.join(", ")
    }
}
