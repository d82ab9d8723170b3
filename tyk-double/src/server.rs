//! Listeners, connections, and the way of a request: faults, crash points, REST API or data plane.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::watch};

use crate::{
    dashboard, document,
    double::{Double, Mode, Running},
    fault::{self, Wrong},
    front,
    gateway::{self, Done},
    handle::{Handle, Shared, locked},
    proxy,
    reply::{Body, Reply},
    steps::Side,
    tls,
};

/// A body of either side.
pub(crate) type AnyBody = BoxBody<Bytes, io::Error>;

/// The connection is to be cut.
#[derive(Debug)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut")
    }
}

impl std::error::Error for Cut {}

pub(crate) fn full(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed()
}

/// Which half of the stand-in a listener has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Halves {
    Both,
    DataOnly,
    ControlOnly,
}

/// A stand-in without listeners: it is asked by [`Handle::ask`] alone. Its host is the one of `settings.listen`.
pub(crate) fn start_unbound(settings: Double) -> Running {
    let (address, data) = (settings.listen, settings.data.unwrap_or(settings.listen));
    let shared = Arc::new(shared(settings, address, data, None));
    let mut tasks = Vec::new();
    if !shared.settings.tick.is_zero() {
        tasks.push(tokio::spawn(tick(Arc::clone(&shared))));
    }
    Running {
        handle: Handle { shared },
        tasks,
    }
}

fn shared(settings: Double, address: SocketAddr, data: SocketAddr, tls: Option<SocketAddr>) -> Shared {
    Shared {
        listen: address.to_string(),
        settings,
        address,
        data,
        tls,
        state: Default::default(),
        plane: Default::default(),
        served: Default::default(),
        faults: Default::default(),
        journal: Default::default(),
        pending: Default::default(),
        steps: Default::default(),
        counters: Default::default(),
        loads: watch::Sender::new(0),
        wanted: Default::default(),
        frozen: watch::Sender::new(false),
        deaf: Default::default(),
        over: watch::Sender::new(false),
    }
}

pub(crate) async fn start(settings: Double) -> io::Result<Running> {
    let listener = TcpListener::bind(settings.listen).await?;
    let address = listener.local_addr()?;
    let data = match settings.data {
        Some(address) => Some(TcpListener::bind(address).await?),
        None => None,
    };
    let data_address = match &data {
        Some(listener) => listener.local_addr()?,
        None => address,
    };
    let tls = match settings.tls {
        Some(address) => Some(TcpListener::bind(address).await?),
        None => None,
    };
    let tls_address = match &tls {
        Some(listener) => Some(listener.local_addr()?),
        None => None,
    };
    let shared = Arc::new(shared(settings, address, data_address, tls_address));
    let mut tasks = Vec::new();
    let halves = if data.is_some() {
        Halves::ControlOnly
    } else {
        Halves::Both
    };
    tasks.push(tokio::spawn(accept(listener, Arc::clone(&shared), halves)));
    if let Some(listener) = data {
        tasks.push(tokio::spawn(accept(
            listener,
            Arc::clone(&shared),
            Halves::DataOnly,
        )));
    }
    if let Some(listener) = tls {
        let acceptor = tls::acceptor(Arc::clone(&shared.served))?;
        tasks.push(tokio::spawn(accept_tls(listener, acceptor, Arc::clone(&shared))));
    }
    if !shared.settings.tick.is_zero() {
        tasks.push(tokio::spawn(tick(Arc::clone(&shared))));
    }
    Ok(Running {
        handle: Handle { shared },
        tasks,
    })
}

/// Loads at the tick if somebody asked since the last one.
async fn tick(shared: Arc<Shared>) {
    let mut every = tokio::time::interval(shared.settings.tick);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if shared.wanted.swap(false, Ordering::SeqCst) {
            gateway::cost(&shared).await;
            shared.load();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, halves: Halves) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        shared.counters.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            serve(TokioIo::new(stream), shared, halves, peer).await;
        });
    }
}

async fn accept_tls(listener: TcpListener, acceptor: tokio_rustls::TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(TokioIo::new(stream), shared, Halves::DataOnly, peer).await;
            }
        });
    }
}

/// One connection, until it ends or the stand-in does.
async fn serve<I>(io: I, shared: Arc<Shared>, halves: Halves, peer: SocketAddr)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut over = shared.over.subscribe();
    let service = service_fn(move |request| one(Arc::clone(&shared), halves, peer, request));
    let connection = http1::Builder::new()
        .serve_connection(io, service)
        .with_upgrades();
    tokio::select! {
        // A cut connection is one that the test asked for, or the peer's matter.
        _ = connection => {}
        _ = over.wait_for(|over| *over) => {}
    }
}

/// Segments of a path behind the first one, decoded.
fn segments(path: &str) -> Vec<String> {
    let mut segments: Vec<String> = path.split('/').skip(2).map(decoded).collect();
    // `/tyk/reload/` and `/tyk/reload` are one.
    if segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    segments
}

/// Percent-decoded; what is no encoding stays.
pub(crate) fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&decoded_bytes(text)).into_owned()
}

pub(crate) fn decoded_bytes(text: &str) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let pair = text
            .get(at + 1..at + 3)
            .filter(|pair| byte == b'%' && pair.bytes().all(|c| c.is_ascii_hexdigit()));
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(value) => {
                found.push(value);
                at += 3;
            }
            None => {
                found.push(byte);
                at += 1;
            }
        }
    }
    found
}

async fn one(
    shared: Arc<Shared>,
    halves: Halves,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<AnyBody>, Cut> {
    let path = request.uri().path().to_owned();
    let first = path.split('/').nth(1).unwrap_or_default();
    let health = matches!(path.as_str(), "/hello" | "/ready");
    let control = match shared.settings.mode {
        Mode::Gateway => path.starts_with("/tyk/") || health,
        Mode::Dashboard => first == "api",
    };
    if halves != Halves::DataOnly && control {
        return control_request(shared, request).await;
    }
    if halves == Halves::DataOnly && health {
        return Ok(respond(gateway::health(path == "/ready")));
    }
    if halves == Halves::ControlOnly {
        return Ok(respond(Reply::text(404, "Not Found")));
    }
    Ok(proxy::answer(shared, peer, request).await)
}

async fn control_request(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<AnyBody>, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    control(shared, Request::from_parts(head, body))
        .await
        .map(respond)
}

/// Answers a request to the REST API whose body has come whole.
pub(crate) async fn control(shared: Arc<Shared>, request: Request<Bytes>) -> Result<Reply, Cut> {
    let (head, body) = request.into_parts();
    let path = head
        .uri
        .path_and_query()
        .map_or_else(String::new, |whole| whole.as_str().to_owned());
    let number = locked(&shared.journal).begin(head.method.as_str(), &path);
    let body = body.to_vec();
    locked(&shared.journal).sends(number, document::id_of(&body));
    let header = |name: &str| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let asked = gateway::Request {
        method: head.method.to_string(),
        segments: segments(head.uri.path()),
        query: form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect(),
        content_type: header("content-type"),
        body,
        headers: head.headers.clone(),
    };
    let open = matches!(head.uri.path(), "/hello" | "/ready");
    let allowed = open
        || header(match shared.settings.mode {
            Mode::Gateway => "x-tyk-authorization",
            Mode::Dashboard => "authorization",
        }) == shared.settings.secret;
    // In a task of its own: a caller that goes away does not take back what it sent.
    let pending = Pending::begin(&shared);
    let working = worked(Arc::clone(&shared), asked, path, allowed, open);
    let task = tokio::spawn(async move {
        let _pending = pending;
        working.await
    });
    let reply = task.await.map_err(|_| Cut)??;
    locked(&shared.journal).end(number, reply.status);
    Ok(reply)
}

/// A request that is being answered, as long as it lives.
struct Pending(Arc<Shared>);

impl Pending {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.pending.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A request to the REST API with all that may go wrong.
async fn worked(
    shared: Arc<Shared>,
    request: gateway::Request,
    path: String,
    allowed: bool,
    open: bool,
) -> Result<Reply, Cut> {
    let mut frozen = shared.frozen.subscribe();
    let _ = frozen.wait_for(|frozen| !*frozen).await;
    if !shared.settings.latency.is_zero() {
        tokio::time::sleep(shared.settings.latency).await;
    }
    let wrong = fault::take(&mut locked(&shared.faults), &request.method, &path);
    let error = |status: u16, message: String| match shared.settings.mode {
        Mode::Gateway => Reply::error(status, message),
        Mode::Dashboard => Reply::refusal(status, message),
    };
    match &wrong {
        Some(Wrong::Status(status, message)) => return Ok(error(*status, message.clone())),
        Some(Wrong::Hang) => pending().await,
        Some(Wrong::DropBefore) => return Err(Cut),
        Some(Wrong::Garbage) => {
            return Ok(Reply::text(
                200,
                "<html><body>Welcome to the portal</body></html>",
            ));
        }
        Some(Wrong::Slow(delay)) => tokio::time::sleep(*delay).await,
        None | Some(Wrong::DropAfter | Wrong::StatusAfter(..)) => {}
    }
    let behind = shared.settings.behind;
    if open && behind.is_none() {
        return Ok(gateway::health(path == "/ready"));
    }
    if !allowed && behind.is_none() {
        return Ok(match shared.settings.mode {
            Mode::Gateway => gateway::denied(),
            Mode::Dashboard => dashboard::denied(),
        });
    }
    let changes = match shared.settings.mode {
        Mode::Gateway => gateway::changes(&request),
        Mode::Dashboard => dashboard::changes(&request),
    };
    let step = changes.then(|| shared.steps.begin());
    if let Some(step) = step
        && !shared.steps.pass(step, Side::Before).await
    {
        return Err(Cut);
    }
    let reply = match shared.settings.mode {
        _ if let Some(tyk) = behind => front::answer(&shared, tyk, &request, &path).await?,
        Mode::Dashboard => dashboard::answer(&shared, &request),
        Mode::Gateway => match gateway::answer(&shared, &request) {
            Done::Answer(reply) => reply,
            Done::Reload => {
                gateway::reload(&shared, true).await;
                gateway::ok()
            }
            Done::ReloadLater => {
                gateway::reload(&shared, false).await;
                gateway::ok()
            }
        },
    };
    if let Some(step) = step
        && !shared.steps.pass(step, Side::After).await
    {
        return Err(Cut);
    }
    match wrong {
        Some(Wrong::DropAfter) => Err(Cut),
        Some(Wrong::StatusAfter(status, message)) => Ok(error(status, message)),
        _ => Ok(reply),
    }
}

pub(crate) fn respond(reply: Reply) -> Response<AnyBody> {
    whole(reply).map(full)
}

/// The answer as HTTP, its body in one piece.
pub(crate) fn whole(reply: Reply) -> Response<Bytes> {
    let (kind, text) = match reply.body {
        Body::Json(value) => ("application/json", format!("{value}\n")),
        Body::Raw(text) => ("application/json", text),
        Body::Text(text) => ("text/plain; charset=utf-8", text),
    };
    let built = Response::builder()
        .status(reply.status)
        .header(CONTENT_TYPE, kind)
        .body(Bytes::from(text));
    // Fails only for a status that is none.
    built.unwrap_or_else(|_| Response::new(Bytes::new()))
}
