//! What each method of an API does, in terms of Tyk's middleware.
//!
//! Header changes that all matched methods share are global, so that the operations of an attached definition cannot
//! shadow them and methods outside of OpenAPI have them too. Methods that no rule matches get 404 in one of two ways.

use serde_json::{Map, Value, json};

use super::{Refusal, base, rewrite};
use crate::tyk::{
    objects::route::{HeaderEdit, Method},
    verdict::ApiPlan,
};

/// What the route sets in `middleware` and `errorOverrides`.
#[derive(Clone, Debug, Default)]
pub(super) struct Middleware {
    /// `global.transformRequestHeaders`
    pub(super) request: HeaderEdit,
    /// `global.transformResponseHeaders`
    pub(super) response: HeaderEdit,
    /// One per operation of the document, matched or not.
    pub(super) operations: Vec<(Method, Operation)>,
    /// Methods that some rule matches.
    pub(super) matched: Vec<Method>,
    /// The gateway's answer to what is not in the allow list becomes 404.
    pub(super) not_found: bool,
}

/// What one operation of the route sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Operation {
    pub(super) allow: bool,
    pub(super) request: HeaderEdit,
    pub(super) response: HeaderEdit,
    pub(super) rewrite: Option<rewrite::Rewrite>,
    pub(super) mock: Option<Mock>,
}

/// An answer of the gateway itself, open to everyone.
#[derive(Clone, Debug, Default)]
pub(super) struct Mock {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
}

/// Decides how.
///
/// 404 for methods that no rule matches (source: API Identity): an allow list of the matched ones whose refusal is
/// turned into 404 before authentication, which also covers methods outside of OpenAPI. Where the attached definition
/// brings an allow list of its own, entries of the route would widen it: there the other methods of OpenAPI get a fixed
/// answer instead.
pub(super) fn middleware(plan: &ApiPlan, theirs: Option<&Map<String, Value>>) -> Result<Middleware, Refusal> {
    let some_unmatched = plan.operations.len() < Method::ALL.len();
    let mocks = some_unmatched && theirs.is_some_and(base::has_allow_list);
    let allow = some_unmatched && !mocks;

    // A request to a redirect goes nowhere, so what happens to its headers does not matter.
    let request = shared(
        plan.operations
            .values()
            .filter(|operation| operation.redirect.is_none())
            .map(|operation| &*operation.request_headers),
    );
    let response = shared(
        plan.operations
            .values()
            .map(|operation| &*operation.response_headers),
    );

    let mut operations = Vec::new();
    for method in Method::ALL {
        let Some(wanted) = plan.operations.get(&method) else {
            if mocks {
                operations.push((method, not_found()));
            }
            continue;
        };
        let own = |shared: Option<&HeaderEdit>, edit: &HeaderEdit| match shared {
            Some(_) => HeaderEdit::default(),
            None => edit.clone(),
        };
        operations.push((
            method,
            Operation {
                allow,
                request: match &wanted.redirect {
                    Some(_) => HeaderEdit::default(),
                    None => own(request, &wanted.request_headers),
                },
                response: own(response, &wanted.response_headers),
                rewrite: rewrite::rewrite(plan, wanted)?,
                mock: wanted.redirect.as_ref().map(|redirect| Mock {
                    status: redirect.status,
                    headers: vec![("Location", redirect.location.clone())],
                    body: "",
                }),
            },
        ));
    }
    Ok(Middleware {
        request: request.cloned().unwrap_or_default(),
        response: response.cloned().unwrap_or_default(),
        operations,
        matched: plan.operations.keys().copied().collect(),
        not_found: allow,
    })
}

/// The changes, if they are the same everywhere.
fn shared<'a>(mut edits: impl Iterator<Item = &'a HeaderEdit>) -> Option<&'a HeaderEdit> {
    let first = edits.next()?;
    edits.all(|edit| edit == first).then_some(first)
}

fn not_found() -> Operation {
    Operation {
        mock: Some(Mock {
            status: 404,
            headers: vec![("Content-Type", "text/plain; charset=utf-8".to_owned())],
            body: NOT_FOUND,
        }),
        ..Operation::default()
    }
}

/// Body of the gateway's own 404.
const NOT_FOUND: &str = "Not Found";

/// `errorOverrides` rule: the refusal of an allow list, and nothing else that is 403.
pub(super) fn not_found_rule() -> Value {
    json!({
        "match": {"messagePattern": "^Requested endpoint is forbidden$"},
        "response": {
            "statusCode": 404,
            "body": NOT_FOUND,
            "headers": {"Content-Type": "text/plain; charset=utf-8"},
        },
    })
}

impl Operation {
    /// Its entry in `middleware.operations`; empty when the operation does nothing of its own.
    pub(super) fn settings(&self) -> Map<String, Value> {
        let mut entry = Map::new();
        if self.allow {
            entry.insert("allow".to_owned(), json!({"enabled": true}));
        }
        if let Some(mock) = &self.mock {
            let headers: Vec<Value> = mock
                .headers
                .iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            entry.insert(
                "mockResponse".to_owned(),
                json!({"enabled": true, "code": mock.status, "body": mock.body, "headers": headers}),
            );
            entry.insert("ignoreAuthentication".to_owned(), json!({"enabled": true}));
        }
        if let Some(rewrite) = &self.rewrite {
            entry.insert(
                "urlRewrite".to_owned(),
                json!({"enabled": true, "pattern": rewrite.pattern, "rewriteTo": rewrite.to}),
            );
        }
        for (name, edit) in [
            (REQUEST_HEADERS, &self.request),
            (RESPONSE_HEADERS, &self.response),
        ] {
            if !edit.is_empty() {
                entry.insert(name.to_owned(), transform(&[], &[], edit));
            }
        }
        entry
    }
}

/// Name of the middleware that changes request headers.
pub(super) const REQUEST_HEADERS: &str = "transformRequestHeaders";
/// Name of the middleware that changes response headers.
pub(super) const RESPONSE_HEADERS: &str = "transformResponseHeaders";

/// A header middleware: others' entries first, then those of the route, sorted by name.
pub(super) fn transform(add: &[Value], remove: &[Value], edit: &HeaderEdit) -> Value {
    let add: Vec<Value> = add
        .iter()
        .cloned()
        .chain(
            edit.set
                .iter()
                .map(|(name, value)| json!({"name": name, "value": value})),
        )
        .collect();
    let remove: Vec<Value> = remove
        .iter()
        .cloned()
        .chain(edit.remove.iter().cloned().map(Value::String))
        .collect();
    let mut entry = Map::new();
    entry.insert("enabled".to_owned(), Value::Bool(true));
    if !add.is_empty() {
        entry.insert("add".to_owned(), Value::Array(add));
    }
    if !remove.is_empty() {
        entry.insert("remove".to_owned(), Value::Array(remove));
    }
    Value::Object(entry)
}
