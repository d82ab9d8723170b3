//! The network between one process and the API server: latency, and everything that may go wrong with a request or a
//! watch, each process by itself. What is asked and answered is the in-process API server's; what a write may do is
//! judged by a [`Witness`]. Knows no product.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use reconcile_kit::testing::{AnswerBody, ApiServer};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Service};

use crate::random::Random;

/// A client gives a request up after this time, as the operator's client does.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: Method,
    /// It opens a watch.
    pub watch: bool,
    /// API group; empty for core.
    pub group: String,
    /// Plural of the kind; empty for discovery.
    pub resource: String,
    /// Namespace; empty for cluster scope, or for all.
    pub namespace: String,
    /// Name; empty for lists and creations.
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
    /// Field manager.
    pub manager: String,
    /// The name that a field selector asks for; empty without one.
    pub selected: String,
}

impl Asked {
    /// Reads a request's line.
    pub fn of(method: &Method, uri: &http::Uri) -> Self {
        let segments: Vec<&str> = uri.path().split('/').filter(|s| !s.is_empty()).collect();
        let (group, rest): (&str, &[&str]) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (group, rest),
            _ => ("", &[]),
        };
        let (namespace, resource, name, subresource) = match rest {
            ["namespaces", ns] => ("", "namespaces", *ns, ""),
            ["namespaces", ns, resource] => (*ns, *resource, "", ""),
            ["namespaces", ns, resource, name] => (*ns, *resource, *name, ""),
            ["namespaces", ns, resource, name, sub, ..] => (*ns, *resource, *name, *sub),
            [resource] => ("", *resource, "", ""),
            [resource, name] => ("", *resource, *name, ""),
            [resource, name, sub, ..] => ("", *resource, *name, *sub),
            [] => ("", "", "", ""),
        };
        let parameter = |name: &str| {
            uri.query()
                .unwrap_or_default()
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            method: method.clone(),
            watch: matches!(parameter("watch").as_str(), "1" | "true"),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            manager: parameter("fieldManager"),
            selected: parameter("fieldSelector")
                .strip_prefix("metadata.name%3D")
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// It wants to change something.
    pub fn writes(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }
}

/// Which requests a disturbance meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Which {
    /// What they want.
    pub sort: Sort,
    /// Of this plural resource; `None`: of any.
    pub resource: Option<&'static str>,
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// GET and LIST.
    Reads,
    /// Everything that changes something but the Lease.
    Writes,
    /// Watches.
    Watches,
    /// The Lease.
    Lease,
    /// Everything.
    All,
}

impl Which {
    fn meets(&self, asked: &Asked) -> bool {
        let lease = asked.resource == "leases";
        (match self.sort {
            Sort::Reads => !asked.writes() && !asked.watch && !lease,
            Sort::Writes => asked.writes() && !lease,
            Sort::Watches => asked.watch,
            Sort::Lease => lease,
            Sort::All => true,
        }) && self.resource.is_none_or(|resource| resource == asked.resource)
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Refused with this status; nothing is done.
    Refused(u16),
    /// The connection breaks before the server sees the request.
    Broken,
    /// The server does it; the answer is lost.
    AnswerLost,
    /// It reaches the server late by this number of milliseconds.
    Late(u32),
    /// The server does it at once; the answer is late by this number of milliseconds.
    AnswerLate(u32),
}

impl How {
    /// Its column in the table of coverage.
    pub fn label(self) -> &'static str {
        match self {
            Self::Refused(409) => "409",
            Self::Refused(429) => "429",
            Self::Refused(403) => "403",
            Self::Refused(_) => "5xx",
            Self::Broken => "broken",
            Self::AnswerLost => "answer lost",
            Self::Late(_) => "late",
            Self::AnswerLate(_) => "answer late",
        }
    }
}

struct Disturbance {
    which: Which,
    how: How,
    times: u32,
    until: Instant,
}

#[derive(Default)]
struct Watches {
    /// By resource: until when nothing comes through.
    stuck: BTreeMap<String, Instant>,
    /// By resource: watches that began before this count are cut.
    cut: BTreeMap<String, u64>,
    begun: u64,
}

struct State {
    random: Random,
    latency: (u64, u64),
    disturbances: Vec<Disturbance>,
    watches: Watches,
    dead: bool,
    kill: Option<Kill>,
    requests: u64,
}

/// The process ends after a number of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Writes that still succeed.
    pub writes: u32,
    /// The server does the last one, and its answer is lost.
    pub lose_answer: bool,
    /// Renewals of the Lease and events count too.
    pub any: bool,
}

/// A write that the server has done.
#[derive(Debug)]
pub struct Write<'a> {
    /// What was asked.
    pub asked: &'a Asked,
    /// The body as it was sent.
    pub sent: &'a Value,
    /// The object before.
    pub before: Option<&'a Value>,
    /// The object after; `None` where it is gone.
    pub after: Option<&'a Value>,
}

/// Hears of each request that a process sent, and of each write in the moment that it took effect.
pub trait Witness: Send + Sync {
    /// The process sends this.
    fn asked(&self, asked: &Asked, sent: &Value);
    /// The server has done this.
    fn wrote(&self, write: &Write<'_>);
    /// The server refused it.
    fn refused(&self, asked: &Asked, status: u16);
    /// It met this fault on its way.
    fn disturbed(&self, asked: &Asked, fault: &'static str);
    /// Whether the cluster's rules of access let it pass.
    fn is_allowed(&self, asked: &Asked) -> bool;
}

/// The network of one process. Clones are the same one.
#[derive(Clone)]
pub struct Net {
    server: ApiServer,
    user: Arc<str>,
    state: Arc<Mutex<State>>,
    witness: Arc<dyn Witness>,
}

impl Net {
    /// A quiet network. `latency` in milliseconds, one way.
    pub fn new(
        server: ApiServer,
        user: &str,
        seed: u64,
        latency: (u64, u64),
        witness: Arc<dyn Witness>,
    ) -> Self {
        Self {
            server,
            user: Arc::from(user),
            state: Arc::new(Mutex::new(State {
                random: Random::seeded(seed),
                latency,
                disturbances: Vec::new(),
                watches: Watches::default(),
                dead: false,
                kill: None,
                requests: 0,
            })),
            witness,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Disturbs the next `times` of these requests, none after `until`.
    pub fn disturb(&self, which: Which, how: How, times: u32, until: Instant) {
        self.lock().disturbances.push(Disturbance {
            which,
            how,
            times,
            until,
        });
    }

    /// Nothing comes through the watches of this resource before `until`; then all of it.
    pub fn stick(&self, resource: &str, until: Instant) {
        self.lock().watches.stuck.insert(resource.to_owned(), until);
    }

    /// Breaks the open watches of this resource: what has not come through is lost.
    pub fn cut(&self, resource: &str) {
        let mut state = self.lock();
        let begun = state.watches.begun;
        state.watches.cut.insert(resource.to_owned(), begun);
    }

    /// Ends the process after some writes.
    pub fn kill(&self, kill: Kill) {
        let mut state = self.lock();
        if kill.writes == 0 {
            state.dead = true;
        } else {
            state.kill = Some(kill);
        }
    }

    /// Whether the process met its end.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// Ends every disturbance.
    pub fn calm(&self) {
        let mut state = self.lock();
        state.disturbances.clear();
        state.watches.stuck.clear();
        state.kill = None;
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    fn disturbance(&self, asked: &Asked) -> Option<How> {
        let mut state = self.lock();
        let now = Instant::now();
        state.disturbances.retain(|d| d.until > now && d.times > 0);
        let found = state.disturbances.iter_mut().find(|d| d.which.meets(asked))?;
        found.times -= 1;
        Some(found.how)
    }

    fn latency(&self) -> Duration {
        let mut state = self.lock();
        let (from, to) = state.latency;
        Duration::from_micros(1_000 * from + state.random.below(1_000 * (to - from).max(1)))
    }

    fn target(asked: &Asked, sent: &Value) -> (String, String) {
        let name = if asked.name.is_empty() {
            sent["metadata"]["name"].as_str().unwrap_or_default().to_owned()
        } else {
            asked.name.clone()
        };
        (asked.namespace.clone(), name)
    }

    async fn exchange(self, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let asked = Asked::of(request.method(), request.uri());
        if self.is_dead() {
            return std::future::pending().await;
        }
        self.lock().requests += 1;
        let (head, body) = request.into_parts();
        let bytes = body
            .collect()
            .await
            .map_err(Box::<dyn std::error::Error + Send + Sync>::from)?;
        let bytes = bytes.to_bytes();
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        self.witness.asked(&asked, &sent);
        tokio::time::sleep(self.latency()).await;
        let how = self.disturbance(&asked);
        if let Some(how) = how {
            self.witness.disturbed(&asked, how.label());
        }
        match how {
            Some(How::Refused(status)) => return Ok(refusal(status, &asked)),
            Some(How::Broken) => return Err(reset()),
            Some(How::Late(millis)) => tokio::time::sleep(Duration::from_millis(u64::from(millis))).await,
            _ => {}
        }
        if self.is_dead() {
            return std::future::pending().await;
        }
        if !self.witness.is_allowed(&asked) {
            self.witness.refused(&asked, 403);
            return Ok(refusal(403, &asked));
        }
        let target = asked.writes().then(|| Self::target(&asked, &sent));
        let look = || {
            let (namespace, name) = target.as_ref()?;
            self.server.find(&asked.group, &asked.resource, namespace, name)
        };
        let before = look();
        let request = Request::from_parts(head, Body::from(bytes));
        // Answers in one poll: nothing comes between the two looks.
        let answer = self.server.service_as(&self.user).call(request).await?;
        let mut lost = how == Some(How::AnswerLost);
        if asked.writes() {
            if answer.status().is_success() {
                self.witness.wrote(&Write {
                    asked: &asked,
                    sent: &sent,
                    before: before.as_ref(),
                    after: look().as_ref(),
                });
                lost |= self.count(&asked);
                if self.is_dead() {
                    self.witness.disturbed(&asked, "killed");
                }
            } else {
                self.witness.refused(&asked, answer.status().as_u16());
            }
        } else if answer.status() == StatusCode::FORBIDDEN {
            self.witness.refused(&asked, 403);
        }
        if self.is_dead() {
            return std::future::pending().await;
        }
        if lost {
            return Err(reset());
        }
        if let Some(How::AnswerLate(millis)) = how {
            tokio::time::sleep(Duration::from_millis(u64::from(millis))).await;
        }
        tokio::time::sleep(self.latency()).await;
        if !asked.watch {
            return Ok(answer);
        }
        let begun = {
            let mut state = self.lock();
            state.watches.begun += 1;
            state.watches.begun
        };
        let net = self.clone();
        Ok(answer.map(|inner| {
            Gate {
                inner,
                net,
                resource: asked.resource,
                begun,
                waiting: None,
            }
            .boxed_unsync()
        }))
    }

    /// Counts a write towards the end of the process; true if its answer is lost with it.
    fn count(&self, asked: &Asked) -> bool {
        let mut state = self.lock();
        let Some(kill) = &mut state.kill else {
            return false;
        };
        if !kill.any && matches!(asked.resource.as_str(), "leases" | "events") {
            return false;
        }
        kill.writes -= 1;
        if kill.writes > 0 {
            return false;
        }
        let lose = kill.lose_answer;
        state.kill = None;
        state.dead = true;
        lose
    }
}

fn reset() -> BoxError {
    Box::new(std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "connection reset by the simulated network",
    ))
}

fn refusal(status: u16, asked: &Asked) -> Response<AnswerBody> {
    let (reason, message) = match status {
        403 => ("Forbidden", format!("{} is forbidden: simulated", asked.resource)),
        409 => (
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {:?}: the object has been modified",
                asked.resource, asked.name
            ),
        ),
        429 => ("TooManyRequests", "too many requests, simulated".to_owned()),
        503 => (
            "ServiceUnavailable",
            "the server is unavailable, simulated".to_owned(),
        ),
        _ => (
            "InternalError",
            "an internal error occurred, simulated".to_owned(),
        ),
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason,
                      "message": message});
    let body = Full::new(Bytes::from(body.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    if status == 429 {
        headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

impl Service<Request<Body>> for Net {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watch = Asked::of(request.method(), request.uri()).watch;
        let exchange = self.clone().exchange(request);
        Box::pin(async move {
            if watch {
                return exchange.await;
            }
            match tokio::time::timeout(PATIENCE, exchange).await {
                Ok(answer) => answer,
                Err(_) => Err(Box::from("no answer in time, simulated")),
            }
        })
    }
}

/// The body of a watch, as far as the network lets it through.
struct Gate {
    inner: AnswerBody,
    net: Net,
    resource: String,
    begun: u64,
    waiting: Option<Pin<Box<Sleep>>>,
}

/// How often an open watch looks whether it was cut or is stuck.
const LOOK: Duration = Duration::from_secs(2);

impl HttpBody for Gate {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let (cut, stuck, dead) = {
                let state = this.net.lock();
                let cut = state
                    .watches
                    .cut
                    .get(&this.resource)
                    .is_some_and(|upto| this.begun <= *upto);
                let stuck = state.watches.stuck.get(&this.resource).copied();
                (cut, stuck.filter(|until| *until > Instant::now()), state.dead)
            };
            if dead {
                return Poll::Pending;
            }
            if cut {
                return Poll::Ready(Some(Err(reset())));
            }
            if stuck.is_none() {
                match Pin::new(&mut this.inner).poll_frame(cx) {
                    Poll::Pending => {}
                    ready => return ready,
                }
            }
            // A disturbance that begins while nothing happens must be noticed too.
            let waiting = this
                .waiting
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
            match waiting.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => this.waiting = None,
            }
        }
    }
}
