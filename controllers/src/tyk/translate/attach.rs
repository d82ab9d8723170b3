//! When an attached definition's operations collide with what the route must set: `AttachmentConflict`.
//!
//! Tyk takes the first operation that fits a path, for each middleware on its own, and paths of the definition mostly
//! come before the route's one for every path. So where both use the same middleware for the same method, the
//! definition's would take away what the route says.

use serde_json::{Map, Value};

use super::{
    EVERY_PATH, Refusal, base,
    middleware::{self, REQUEST_HEADERS, RESPONSE_HEADERS},
};
use crate::tyk::{objects::route::Method, verdict::ApiPlan};

/// Longest list of collisions that a message holds.
const MOST: usize = 5;

/// Why the plan's attached definition cannot be joined with it; `None` when it can, or when there is none.
///
/// # Errors
///
/// What the plan itself is refused for, with a definition or without ([`translate`](super::translate) says the same):
/// then nothing is known about collisions.
pub fn conflict(plan: &ApiPlan) -> Result<Option<String>, Refusal> {
    let Some(attached) = plan.base.as_ref() else {
        return Ok(None);
    };
    let Value::Object(theirs) = attached.document.value() else {
        return Ok(None);
    };
    let mut found = collisions(plan, &theirs)?;
    if found.is_empty() {
        return Ok(None);
    }
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    let mut message = format!(
        "TykOasApiDefinition {} conflicts with the route: {}",
        attached.definition,
        found.join("; ")
    );
    if more > 0 {
        message.push_str(&format!("; and {more} more"));
    }
    Ok(Some(message))
}

fn collisions(plan: &ApiPlan, theirs: &Map<String, Value>) -> Result<Vec<String>, Refusal> {
    let own = middleware::middleware(plan, Some(theirs))?;
    let mut found = Vec::new();
    let operations = base::operations(theirs);
    for operation in &operations {
        let place = format!("{} {}", operation.method.as_str().to_uppercase(), operation.path);
        if operation.path == EVERY_PATH {
            found.push(format!("{place} is the operation of the route itself"));
            continue;
        }
        if let Some(id) = operation.id.filter(|id| route_operation(id)) {
            found.push(format!(
                "{place} has the operationId `{id}`, which is that of the route's operation; give it another"
            ));
            continue;
        }
        let ours = own
            .operations
            .iter()
            .find(|(method, _)| *method == operation.method)
            .map(|(_, ours)| ours);
        let Some(wanted) = plan.operations.get(&operation.method) else {
            if operation.has("mockResponse") {
                found.push(format!(
                    "{place} has a mockResponse, but no rule of the route matches the method, which therefore answers 404"
                ));
            }
            continue;
        };
        let Some(ours) = ours else { continue };
        let uses = [
            (
                "mockResponse",
                wanted.redirect.is_some(),
                "the route redirects the method",
            ),
            (
                "urlRewrite",
                ours.rewrite.is_some(),
                "the route replaces the full path of a method, for which it rewrites this one",
            ),
            (
                REQUEST_HEADERS,
                !ours.request.is_empty(),
                "the route changes request headers for this method alone",
            ),
            (
                RESPONSE_HEADERS,
                !ours.response.is_empty(),
                "the route changes response headers for this method alone",
            ),
        ];
        for (name, used, why) in uses {
            if used && operation.has(name) {
                found.push(format!("{place} has a {name}, but {why}"));
            }
        }
    }
    // Settings for an operation that the document does not have would become those of the route's operation.
    let named = |id: &str| operations.iter().any(|operation| operation.id == Some(id));
    for id in base::entries(theirs).into_iter().flat_map(Map::keys) {
        if route_operation(id) && !named(id) {
            found.push(format!(
                "middleware.operations has `{id}`, which is the operationId of the route's operation; give it another"
            ));
        }
    }
    // For responses the global changes come last and would win over those of a single method.
    let (add, remove) = base::global(theirs, RESPONSE_HEADERS);
    for name in add.iter().chain(&remove).filter_map(base::header) {
        if own
            .operations
            .iter()
            .any(|(_, ours)| base::touches(&ours.response, name))
        {
            found.push(format!(
                "middleware.global.{RESPONSE_HEADERS} changes {name}, which the route changes for single methods only"
            ));
        }
    }
    Ok(found)
}

/// Whether an operationId is one that the route uses.
fn route_operation(id: &str) -> bool {
    Method::ALL.iter().any(|method| method.as_str() == id)
}
