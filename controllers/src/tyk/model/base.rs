//! The seam to translation for attached definitions: what a document must be, and what goes against a route.

use serde_json::Value;

use super::super::verdict::ApiPlan;

/// Whether a document can be the base of an API.
pub(super) fn check(document: &Value) -> Result<(), String> {
    match document.get("x-tyk-api-gateway") {
        Some(Value::Object(_)) => Ok(()),
        _ => Err("the document has no x-tyk-api-gateway object".to_owned()),
    }
}

/// Why a plan does not go with its base document, if it does not.
pub(super) fn conflict(_plan: &ApiPlan) -> Option<String> {
    None
}
