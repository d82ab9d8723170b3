//! The data plane: a request goes through the operations of its API and on to a backend, with its bytes as they are.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use regex::Regex;
use tokio::net::TcpStream;

use crate::{
    handle::Shared,
    plane::{Found, Place},
    program::{Headers, Operation, Program},
    reply::Reply,
    server::{AnyBody, decoded, full, respond},
    url,
};

const FORBIDDEN: &str = "Requested endpoint is forbidden";

/// A request on its way.
struct Way<'a> {
    place: &'a Place,
    /// Operations that are meant, in order.
    meant: Vec<&'a Operation>,
}

impl<'a> Way<'a> {
    fn program(&self) -> &'a Program {
        &self.place.program
    }

    /// The first operation that has something.
    fn first<T>(&self, what: impl Fn(&'a Operation) -> Option<T>) -> Option<T> {
        self.meant.iter().find_map(|operation| what(operation))
    }

    /// An error of the gateway, as the document wants it to look.
    fn error(&self, status: u16, message: &str) -> Response<AnyBody> {
        let found = self
            .program()
            .overrides
            .iter()
            .find(|one| one.of == status && one.message.is_match(message));
        let Some(found) = found else {
            return plain(
                status,
                &[("Content-Type", "application/json")],
                format!("{{\n    \"error\": \"{message}\"\n}}"),
            );
        };
        let headers: Vec<_> = found
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        plain(found.status, &headers, found.body.clone())
    }
}

fn plain(status: u16, headers: &[(&str, &str)], body: String) -> Response<AnyBody> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        put(response.headers_mut(), name, value);
    }
    response
}

fn put(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (
        HeaderName::from_bytes(name.as_bytes()),
        HeaderValue::from_bytes(value.as_bytes()),
    ) {
        headers.insert(name, value);
    }
}

/// Removes first, then sets. The host is not a header to Tyk.
fn transform(headers: &mut HeaderMap, change: &Headers) {
    for name in &change.remove {
        if !name.eq_ignore_ascii_case("host")
            && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
        {
            while headers.remove(&name).is_some() {}
        }
    }
    for (name, value) in &change.set {
        if !name.eq_ignore_ascii_case("host") {
            put(headers, name, value);
        }
    }
}

/// Headers that are for one connection only.
fn hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    for name in listed.iter().map(String::as_str).chain([
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]) {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            while headers.remove(&name).is_some() {}
        }
    }
}

/// Percent signs that begin no encoding: Go takes no such request.
fn broken(path: &str) -> bool {
    path.split('%').skip(1).any(|rest| {
        rest.as_bytes()
            .get(..2)
            .is_none_or(|pair| !pair.iter().all(u8::is_ascii_hexdigit))
    })
}

pub(crate) async fn answer(
    shared: Arc<Shared>,
    peer: SocketAddr,
    mut request: Request<Incoming>,
) -> Response<AnyBody> {
    let switches = shared.settings.switches;
    let raw = request.uri().path().to_owned();
    let query = request.uri().query().map(str::to_owned);
    if broken(&raw) {
        return respond(Reply::text(400, "400 Bad Request"));
    }
    let path = decoded(&raw);
    if !switches.skip_cleaning
        && request.method() != Method::CONNECT
        && let Some(clean) = url::cleaned(&path)
    {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        return plain(
            301,
            &[("Location", &format!("{}{query}", url::encoded(&clean)))],
            String::new(),
        );
    }
    // An absolute request line carries the host, otherwise the header does.
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str().to_owned(),
        None => request
            .headers()
            .get(header::HOST)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
    };
    let plane = shared.plane();
    let Found::Api(place) = plane.find(&host, &path, switches) else {
        return respond(Reply::text(404, "Not Found"));
    };
    let stripped = url::behind(&raw, place.taken(&path));
    let stripped = if stripped.is_empty() {
        "/".to_owned()
    } else {
        decoded(&stripped)
    };
    let meant = place
        .program
        .operations
        .iter()
        .filter(|operation| operation.matches(request.method().as_str(), &path, &stripped))
        .collect();
    let way = Way { place, meant };
    let program = way.program();

    // Lists: what is open comes first, then what is blocked, then what is allowed.
    let ignored = way.meant.iter().any(|operation| operation.ignore);
    if !ignored {
        let blocked = way.meant.iter().any(|operation| operation.block);
        let allowed = way.meant.iter().any(|operation| operation.allow);
        if blocked || (program.listed && !allowed) {
            return way.error(403, FORBIDDEN);
        }
        if let Some(refusal) = unauthorized(&shared, &way, request.headers()) {
            return refusal;
        }
    }

    let mut body: AnyBody;
    if let Some(validation) = way.first(|operation| operation.validation.as_ref()) {
        let (head, incoming) = request.into_parts();
        let Ok(collected) = incoming.collect().await else {
            return respond(Reply::text(400, "400 Bad Request"));
        };
        let bytes = collected.to_bytes();
        if !validation.accepts(&bytes) {
            return way.error(
                validation.status,
                "request body has an error: doesn't match the schema",
            );
        }
        body = full(bytes);
        let (head, _) = Request::from_parts(head, ()).into_parts();
        return go_on(
            &shared,
            &way,
            peer,
            head,
            body,
            None,
            &host,
            &raw,
            query.as_deref(),
        )
        .await;
    }
    let upgrade = (switches.websockets && request.headers().contains_key(header::UPGRADE))
        .then(|| hyper::upgrade::on(&mut request));
    let (head, incoming) = request.into_parts();
    body = incoming.map_err(io::Error::other).boxed();
    if head.headers.get(header::CONTENT_LENGTH).is_none()
        && head.headers.get(header::TRANSFER_ENCODING).is_none()
    {
        body = full(Bytes::new());
    }
    go_on(
        &shared,
        &way,
        peer,
        head,
        body,
        upgrade,
        &host,
        &raw,
        query.as_deref(),
    )
    .await
}

/// The answer to a missing or wrong token.
fn unauthorized(shared: &Shared, way: &Way<'_>, headers: &HeaderMap) -> Option<Response<AnyBody>> {
    let program = way.program();
    let name = program.token.as_ref()?;
    let token = headers
        .get(name.as_str())
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let token = token
        .strip_prefix("Bearer ")
        .or_else(|| token.strip_prefix("bearer "))
        .unwrap_or(token);
    if token.is_empty() {
        return Some(way.error(401, "Authorization field missing"));
    }
    let state = shared.state();
    let known = state
        .keys
        .get(token)
        .is_some_and(|apis| apis.contains(&program.id));
    (!known).then(|| way.error(403, "Access to this API has been disallowed"))
}

/// From the header changes on.
#[allow(clippy::too_many_arguments)]
async fn go_on(
    shared: &Shared,
    way: &Way<'_>,
    peer: SocketAddr,
    mut head: http::request::Parts,
    body: AnyBody,
    upgrade: Option<hyper::upgrade::OnUpgrade>,
    host: &str,
    raw: &str,
    query: Option<&str>,
) -> Response<AnyBody> {
    let program = way.program();
    let asked = head.method.clone();
    let switched = upgrade
        .as_ref()
        .and_then(|_| head.headers.get(header::UPGRADE).cloned());
    hop_by_hop(&mut head.headers);
    let changes = [
        program.request.as_ref(),
        way.first(|operation| operation.request.as_ref()),
    ];
    let forwarded = head
        .headers
        .get("x-forwarded-for")
        .and_then(|value| value.to_str().ok())
        .map_or_else(|| peer.ip().to_string(), |old| format!("{old}, {}", peer.ip()));
    for change in changes.into_iter().flatten() {
        transform(&mut head.headers, change);
    }
    let mut target = None;
    let mut path = raw.to_owned();
    let mut query = query.map(str::to_owned);
    if let Some(rewrite) = way.first(|operation| operation.rewrite.as_ref()) {
        let seen = match (head.uri.scheme_str(), head.uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
            _ => String::new(),
        };
        let whole = match &query {
            Some(query) => format!("{seen}{raw}?{query}"),
            None => format!("{seen}{raw}"),
        };
        // A URL that the pattern does not fit is tried once more without escapes; then it is looked through as it is.
        let plain = decoded(&whole);
        let captures = rewrite.pattern.captures(&whole);
        let environment = &shared.settings.environment;
        let made = match captures.or_else(|| rewrite.pattern.captures(&plain)) {
            Some(captures) => Some(substituted(&replaced(&rewrite.to, &captures), environment)),
            None => Some(substituted(&whole, environment)).filter(|made| *made != whole),
        };
        if let Some(to) = made {
            let (to, rest) = match to.split_once('?') {
                Some((to, query)) => (to.to_owned(), Some(query.to_owned())),
                None => (to, None),
            };
            query = rest;
            match url::split(&to) {
                Some((_, _, below)) => {
                    path = below.to_owned();
                    target = Some(to.clone());
                }
                None => path = to,
            }
        }
    }
    if let Some(method) = way.first(|operation| operation.to_method.as_ref())
        && let Ok(method) = Method::from_bytes(method.as_bytes())
    {
        head.method = method;
    }
    let response_changes = [
        way.first(|operation| operation.response.as_ref()),
        program.response.as_ref(),
    ];
    let finish = |mut response: Response<AnyBody>| {
        for change in response_changes.into_iter().flatten() {
            transform(response.headers_mut(), change);
        }
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            put(response.headers_mut(), name, "0");
        }
        response
    };
    if let Some(mock) = way.first(|operation| operation.mock.as_ref()) {
        let headers: Vec<_> = mock
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        return finish(plain(mock.status, &headers, mock.body.clone()));
    }

    let absolute = target.is_some();
    let chosen = target.or_else(|| program.target().map(str::to_owned));
    let Some((scheme, authority, below)) = chosen.as_deref().and_then(url::split) else {
        return way.error(500, "There was a problem proxying the request");
    };
    let onward = if absolute {
        url::joined(below, "")
    } else {
        let rest = if program.strip {
            url::behind(&path, way.place.taken(&decoded(&path)))
        } else {
            path
        };
        url::joined(below, &rest)
    };
    let onward = match query {
        Some(query) => format!("{onward}?{query}"),
        None => onward,
    };
    let Ok(uri) = onward.parse::<Uri>() else {
        return way.error(500, "There was a problem proxying the request");
    };
    if scheme != "http" {
        return way.error(500, "There was a problem proxying the request");
    }
    let removed = |name: &str| {
        let all = changes.into_iter().flatten();
        all.flat_map(|change| &change.remove)
            .any(|one| one.eq_ignore_ascii_case(name))
    };
    if !removed("x-forwarded-for") {
        put(&mut head.headers, "x-forwarded-for", &forwarded);
    }
    if !head.headers.contains_key(header::USER_AGENT) {
        put(&mut head.headers, "user-agent", "Tyk/v5.14.0");
    }
    let host = if program.keep_host { host } else { authority };
    put(&mut head.headers, "host", host);
    if let Some(protocol) = &switched {
        head.headers.insert(header::UPGRADE, protocol.clone());
        put(&mut head.headers, "connection", "Upgrade");
    }
    let mut onward = Request::new(body);
    *onward.method_mut() = head.method;
    *onward.uri_mut() = uri;
    *onward.headers_mut() = head.headers;
    match sent(authority, onward).await {
        Err(Failed::Lookup) => way.error(500, "Upstream host lookup failed"),
        Err(Failed::Other) => way.error(500, "There was a problem proxying the request"),
        Ok(mut response) => {
            if response.status() == StatusCode::SWITCHING_PROTOCOLS
                && let Some(ours) = upgrade
            {
                let theirs = hyper::upgrade::on(&mut response);
                let mut over = shared.over.subscribe();
                tokio::spawn(async move {
                    let (Ok(ours), Ok(theirs)) = (ours.await, theirs.await) else {
                        return;
                    };
                    let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs) => {}
                        _ = over.wait_for(|over| *over) => {}
                    }
                });
                return response.map(|_| full(Bytes::new()));
            }
            hop_by_hop(response.headers_mut());
            let response = response.map(|body| {
                if asked == Method::HEAD {
                    full(Bytes::new())
                } else {
                    body.map_err(io::Error::other).boxed()
                }
            });
            finish(response)
        }
    }
}

/// References to secrets and variables in a rewritten URL. Of all that Tyk knows only the environment has values here.
fn substituted(url: &str, environment: &BTreeMap<String, String>) -> String {
    static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\$(?:secret_(?:env|conf|vault|consul|file)|tyk_(?:context|meta))\.([A-Za-z0-9_./-]+)")
            .ok()
    });
    let Some(reference) = REFERENCE.as_ref() else {
        return url.to_owned();
    };
    let value = |found: &regex::Captures<'_>| {
        let (whole, name) = (found.get(0), found.get(1));
        let name = name.map_or("", |name| name.as_str()).to_uppercase();
        whole
            .filter(|whole| whole.as_str().starts_with("$secret_env."))
            .and_then(|_| environment.get(&format!("TYK_SECRET_{name}")))
            .cloned()
            .unwrap_or_default()
    };
    reference.replace_all(url, value).into_owned()
}

/// `$1` and so on. What a group brings in is looked through again for the groups that follow.
fn replaced(to: &str, captures: &regex::Captures<'_>) -> String {
    let mut text = to.to_owned();
    let bytes = to.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes
            .get(at + 1..)
            .unwrap_or_default()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if bytes.get(at) == Some(&b'$') && digits > 0 {
            let token = to.get(at..at + 1 + digits).unwrap_or_default();
            let group = token.get(1..).and_then(|n| n.parse::<usize>().ok());
            if let Some(group) = group.filter(|group| *group < captures.len()) {
                let value = captures.get(group).map_or("", |found| found.as_str());
                text = text.replace(token, value);
            }
            at += digits;
        }
        at += 1;
    }
    text
}

pub(crate) enum Failed {
    Lookup,
    Other,
}

/// Sends a request on a connection of its own.
pub(crate) async fn sent(authority: &str, request: Request<AnyBody>) -> Result<Response<Incoming>, Failed> {
    let with_port = if authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    // Reserved for what must not resolve, wherever the test runs.
    let name = with_port.rsplit_once(':').map_or("", |(name, _)| name);
    if name.ends_with(".invalid") {
        return Err(Failed::Lookup);
    }
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&with_port)
        .await
        .map_err(|_| Failed::Lookup)?
        .collect();
    let stream = TcpStream::connect(addresses.as_slice())
        .await
        .map_err(|_| Failed::Other)?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Failed::Other)?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender.send_request(request).await.map_err(|_| Failed::Other)
}
