//! HTTP to and from the test server: requests taken apart, answers put together, faults acted on, the tower services.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::Value;
use tower::{BoxError, Service};

use super::failure::Failure;
use super::faults::{Crash, Fault};
use super::kinds::ResourceDef;
use super::log::{Answer, Call, Verb};
use super::server::{AnswerBody, ApiServer, DEFAULT_USER, UserService};
use super::watch::{self, connection_reset};

/// A request, taken apart.
pub(super) struct Parsed {
    pub(super) call: Call,
    pub(super) path: String,
    pub(super) query: HashMap<String, String>,
    pub(super) accept: String,
    pub(super) body: Bytes,
    pub(super) has_resource: bool,
}

fn parse(user: &str, method: &Method, uri: &http::Uri, headers: &HeaderMap, body: Bytes) -> Parsed {
    let path = uri.path().to_owned();
    let query: HashMap<String, String> = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect();
    let header = |name: http::header::HeaderName| -> String {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let accept = header(http::header::ACCEPT);
    let content_type = header(http::header::CONTENT_TYPE);
    let segments: Vec<String> = path
        .split('/')
        .filter(|s| !s.is_empty())
        .map(|s| {
            form_urlencoded::parse(format!("x={}", s.replace('+', "%2B")).as_bytes())
                .next()
                .map_or_else(String::new, |(_, v)| v.into_owned())
        })
        .collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest): (&str, &str, &[&str]) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (group, version, rest),
        _ => ("", "", &[]),
    };
    let (namespace, resource, name, subresource) = match rest {
        ["namespaces"] => ("", "namespaces", "", ""),
        ["namespaces", ns] => ("", "namespaces", *ns, ""),
        ["namespaces", ns, sub @ ("status" | "finalize")] => ("", "namespaces", *ns, *sub),
        ["namespaces", ns, resource] => (*ns, *resource, "", ""),
        ["namespaces", ns, resource, name] => (*ns, *resource, *name, ""),
        ["namespaces", ns, resource, name, sub @ ..] => {
            (*ns, *resource, *name, sub.first().copied().unwrap_or(""))
        }
        [resource] => ("", *resource, "", ""),
        [resource, name] => ("", *resource, *name, ""),
        [resource, name, sub, ..] => ("", *resource, *name, *sub),
        [] => ("", "", "", ""),
    };
    let metadata_only = accept.contains("as=PartialObjectMetadata");
    let truthy = |name: &str| {
        query
            .get(name)
            .is_some_and(|v| v == "true" || v == "1" || v.is_empty())
    };
    let has_resource = !resource.is_empty();
    let verb = if !has_resource {
        Verb::Discovery
    } else if *method == Method::GET || *method == Method::HEAD {
        match (truthy("watch"), name.is_empty(), metadata_only) {
            (true, _, false) => Verb::Watch,
            (true, _, true) => Verb::WatchMetadata,
            (false, true, false) => Verb::List,
            (false, true, true) => Verb::ListMetadata,
            (false, false, false) => Verb::Get,
            (false, false, true) => Verb::GetMetadata,
        }
    } else if *method == Method::POST {
        Verb::Create
    } else if *method == Method::PUT {
        Verb::Update
    } else if *method == Method::PATCH {
        if content_type.starts_with("application/apply-patch") {
            Verb::Apply
        } else if content_type.starts_with("application/json-patch") {
            Verb::JsonPatch
        } else {
            Verb::MergePatch
        }
    } else if name.is_empty() {
        Verb::DeleteCollection
    } else {
        Verb::Delete
    };
    let selectors: Vec<&str> = ["labelSelector", "fieldSelector"]
        .iter()
        .filter_map(|n| query.get(*n).map(String::as_str))
        .filter(|s| !s.is_empty())
        .collect();
    let call = Call {
        user: user.to_owned(),
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        resource: if has_resource {
            resource.to_owned()
        } else {
            path.clone()
        },
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        field_manager: query.get("fieldManager").cloned().unwrap_or_default(),
        selector: selectors.join(";"),
        answer: Answer::Pending,
        body: if body.is_empty() {
            None
        } else {
            serde_json::from_slice(&body).ok()
        },
    };
    Parsed {
        call,
        path,
        query,
        accept,
        body,
        has_resource,
    }
}

pub(super) enum Reply {
    Json(StatusCode, Value),
    Text(StatusCode, &'static str),
    Failure(Failure),
    Watch(watch::WatchBody),
}

impl Reply {
    fn code(&self) -> u16 {
        match self {
            Reply::Json(code, _) | Reply::Text(code, _) => code.as_u16(),
            Reply::Failure(failure) => failure.code().as_u16(),
            Reply::Watch(_) => 200,
        }
    }

    fn into_response(self) -> Response<AnswerBody> {
        let whole = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        let code = self.code();
        let (kind, retry_after, body) = match self {
            Reply::Json(_, value) => ("application/json", None, whole(Bytes::from(value.to_string()))),
            Reply::Text(_, text) => (
                "text/plain; charset=utf-8",
                None,
                whole(Bytes::from_static(text.as_bytes())),
            ),
            Reply::Failure(failure) => match (failure.json(), &failure) {
                (Some(value), Failure::Status(status)) => (
                    "application/json",
                    status.retry_after,
                    whole(Bytes::from(value.to_string())),
                ),
                _ => (
                    "text/plain; charset=utf-8",
                    None,
                    whole(Bytes::from_static(b"404 page not found\n")),
                ),
            },
            Reply::Watch(body) => ("application/json", None, body.boxed_unsync()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        if let Some(seconds) = retry_after {
            headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
        }
        response
    }
}

fn failure_of(fault: &Fault, def: Option<&ResourceDef>, call: &Call) -> Option<Failure> {
    Some(match fault {
        Fault::Conflict => match def {
            Some(def) => Failure::modified(def, &call.name),
            None => Failure::new(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
        },
        Fault::TooManyRequests { retry_after } => Failure::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        )
        .retry_after(*retry_after),
        Fault::Status(code) => match code {
            400 => Failure::bad_request("the server could not understand the request"),
            401 => Failure::new(401, "Unauthorized", "Unauthorized"),
            403 => Failure::new(
                403,
                "Forbidden",
                format!("{} is forbidden: refused by the test", call.resource),
            ),
            404 => Failure::Text404,
            409 => Failure::new(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => Failure::expired("too old resource version"),
            429 => Failure::new(429, "TooManyRequests", "too many requests").retry_after(1),
            500 => Failure::new(
                500,
                "InternalError",
                "Internal error occurred: injected by the test",
            ),
            503 => Failure::new(
                503,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => Failure::new(
                504,
                "Timeout",
                "request did not complete within the allotted timeout",
            ),
            other => Failure::new(*other, "", "injected by the test"),
        },
        _ => return None,
    })
}

impl ApiServer {
    async fn handle(self, user: Arc<str>, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|e| Box::new(e) as BoxError)?
            .to_bytes();
        // Impersonation, as an administrator may do it.
        let user = match parts
            .headers
            .get("impersonate-user")
            .and_then(|v| v.to_str().ok())
        {
            Some(other) => Arc::from(other),
            None => user,
        };
        let parsed = parse(&user, &parts.method, &parts.uri, &parts.headers, body);

        let (at, dead, fault) = {
            let mut inner = self.lock();
            let at = inner.log.len();
            inner.log.push(parsed.call.clone());
            let dead = inner
                .dead
                .as_ref()
                .filter(|(matcher, _)| matcher.matches(&parsed.call))
                .map(|(_, how)| *how);
            let fault = if dead.is_none() {
                inner.take_fault(&parsed.call)
            } else {
                None
            };
            (at, dead, fault)
        };
        let settle = |answer: Answer| {
            if let Some(call) = self.lock().log.get_mut(at) {
                call.answer = answer;
            }
        };
        match dead {
            Some(Crash::Hang) => return std::future::pending().await,
            Some(Crash::Error) => {
                settle(Answer::Broken);
                return Err(connection_reset());
            }
            None => {}
        }
        match &fault {
            Some(Fault::Hang) => return std::future::pending().await,
            Some(Fault::ConnectionError) => {
                settle(Answer::Broken);
                return Err(connection_reset());
            }
            Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(fault) => {
                let def =
                    self.lock()
                        .store
                        .def(&parsed.call.group, &parsed.call.version, &parsed.call.resource);
                if let Some(failure) = failure_of(fault, def.as_deref(), &parsed.call) {
                    settle(Answer::Code(failure.code().as_u16()));
                    return Ok(Reply::Failure(failure).into_response());
                }
            }
            None => {}
        }
        let (reply, lost) = {
            let mut inner = self.lock();
            let reply = inner.answer(&parsed, fault.as_ref());
            let lost = inner.count_write(&parsed.call, reply.code()) || fault == Some(Fault::AnswerLost);
            (reply, lost)
        };
        if lost {
            settle(Answer::Lost(reply.code()));
            return Err(connection_reset());
        }
        match fault {
            Some(Fault::AnswerHangs) => {
                settle(Answer::Lost(reply.code()));
                return std::future::pending().await;
            }
            Some(Fault::AnswerDelay(time)) => {
                settle(Answer::Code(reply.code()));
                tokio::time::sleep(time).await;
            }
            _ => settle(Answer::Code(reply.code())),
        }
        Ok(reply.into_response())
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, BoxError>> + Send>>;

impl Service<Request<Body>> for UserService {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        Box::pin(self.server.clone().handle(self.user.clone(), request))
    }
}

impl Service<Request<Body>> for ApiServer {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        Box::pin(self.clone().handle(Arc::from(DEFAULT_USER), request))
    }
}
