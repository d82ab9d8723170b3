//! Answers of the REST APIs.

use serde_json::{Value, json};

/// Status and body.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// JSON and a line break, as Go's encoder writes it.
    Json(Value),
    /// Bytes of JSON that were put together already.
    Raw(String),
    /// Plain text.
    Text(String),
}

impl Reply {
    pub(crate) fn json(status: u16, value: Value) -> Self {
        Self {
            status,
            body: Body::Json(value),
        }
    }

    pub(crate) fn text(status: u16, text: impl Into<String>) -> Self {
        Self {
            status,
            body: Body::Text(text.into()),
        }
    }

    /// An error of the gateway.
    pub(crate) fn error(status: u16, message: impl Into<String>) -> Self {
        Self::json(status, json!({"status": "error", "message": message.into()}))
    }

    /// An error of the Dashboard.
    pub(crate) fn refusal(status: u16, message: impl Into<String>) -> Self {
        Self::json(
            status,
            json!({"Status": "Error", "Message": message.into(), "Meta": null}),
        )
    }
}
