//! Error answers: the `Status` bodies of the API server, with the texts and details that clients classify by.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::kinds::ResourceDef;

/// One entry of `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self {
            reason,
            field: field.to_owned(),
            message,
        }
    }

    pub(crate) fn invalid(field: &str, message: String) -> Self {
        Self::new("FieldValueInvalid", field, message)
    }

    pub(crate) fn of_type(field: &str, message: String) -> Self {
        Self::new("FieldValueTypeInvalid", field, message)
    }

    fn json(&self) -> Value {
        json!({ "reason": self.reason, "message": self.message, "field": self.field })
    }
}

/// A refused request.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// `404 page not found` as text: the path is not served.
    Text404,
    /// A `Status` object. Boxed: it is much larger than the other answers.
    Status(Box<StatusBody>),
}

/// The variable parts of a `Status`.
#[derive(Clone, Debug)]
pub(crate) struct StatusBody {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    pub(crate) retry_after: Option<u32>,
}

fn plural_details(def: &ResourceDef, name: &str) -> Map<String, Value> {
    let mut details = Map::new();
    if !name.is_empty() {
        details.insert("name".into(), json!(name));
    }
    if !def.group.is_empty() {
        details.insert("group".into(), json!(def.group));
    }
    details.insert("kind".into(), json!(def.plural));
    details
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Failure::Status(Box::new(StatusBody {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
        }))
    }

    pub(crate) fn details(mut self, details: impl Into<Value>) -> Self {
        if let Failure::Status(body) = &mut self {
            body.details = Some(details.into());
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        if let Failure::Status(body) = &mut self {
            body.retry_after = Some(seconds);
            let mut details = body.details.take().unwrap_or_else(|| json!({}));
            details["retryAfterSeconds"] = json!(seconds);
            body.details = Some(details);
        }
        self
    }

    pub(crate) fn code(&self) -> StatusCode {
        let code = match self {
            Failure::Text404 => 404,
            Failure::Status(body) => body.code,
        };
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The `Status` object; for the text answer there is none.
    pub(crate) fn json(&self) -> Option<Value> {
        let Failure::Status(body) = self else { return None };
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": body.message,
        });
        if !body.reason.is_empty() {
            status["reason"] = json!(body.reason);
        }
        if let Some(details) = &body.details {
            status["details"] = details.clone();
        }
        status["code"] = json!(body.code);
        Some(status)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn not_found(def: &ResourceDef, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", def.qualified()))
            .details(plural_details(def, name))
    }

    pub(crate) fn already_exists(def: &ResourceDef, name: &str, terminating: bool) -> Self {
        let prefix = if terminating {
            "object is being deleted: "
        } else {
            ""
        };
        Self::new(
            409,
            "AlreadyExists",
            format!("{prefix}{} {name:?} already exists", def.qualified()),
        )
        .details(plural_details(def, name))
    }

    pub(crate) fn conflict(def: &ResourceDef, name: &str, what: impl std::fmt::Display) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {name:?}: {what}",
                def.qualified()
            ),
        )
        .details(plural_details(def, name))
    }

    /// A refusal that names the kind where others name the resource, as preconditions of DELETE do.
    pub(crate) fn precondition(def: &ResourceDef, name: &str, what: impl std::fmt::Display) -> Self {
        let full = if def.group.is_empty() {
            def.kind.clone()
        } else {
            format!("{}.{}", def.kind, def.group)
        };
        let mut details = json!({ "name": name, "kind": def.kind });
        if !def.group.is_empty() {
            details["group"] = json!(def.group);
        }
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {full} {name:?}: {what}"),
        )
        .details(details)
    }

    pub(crate) fn modified(def: &ResourceDef, name: &str) -> Self {
        Self::conflict(
            def,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn invalid(def: &ResourceDef, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_kind(&def.group, &def.kind, name, causes)
    }

    pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let full = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), json!(name));
        }
        if !group.is_empty() {
            details.insert("group".into(), json!(group));
        }
        details.insert("kind".into(), json!(kind));
        details.insert("causes".into(), causes.iter().map(Cause::json).collect());
        Self::new(422, "Invalid", format!("{full} {name:?} is invalid: {text}")).details(details)
    }

    /// A JSON patch that does not fit: 422 without details.
    pub(crate) fn patch_refused() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .details(json!({}))
    }

    pub(crate) fn forbidden(def: &ResourceDef, name: &str, why: impl std::fmt::Display) -> Self {
        let subject = if name.is_empty() {
            def.qualified()
        } else {
            format!("{} {name:?}", def.qualified())
        };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}"))
            .details(plural_details(def, name))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }
}
