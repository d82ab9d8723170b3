//! The stand-in as a front of another Tyk: faults, stops and the journal are its own, what is asked is answered there.

use std::{net::SocketAddr, sync::atomic::Ordering};

use http::{HeaderName, Method, Request, header};
use http_body_util::BodyExt as _;

use crate::{
    gateway,
    handle::Shared,
    proxy,
    reply::{Body, Reply},
    server::{Cut, full},
};

/// Headers that mean something to the REST API.
const PASSED: [HeaderName; 3] = [header::CONTENT_TYPE, header::ACCEPT, header::AUTHORIZATION];
const SECRET: &str = "x-tyk-authorization";

/// What the Tyk at `target` answers; a cut connection if it gives no answer.
pub(crate) async fn answer(
    shared: &Shared,
    target: SocketAddr,
    request: &gateway::Request,
    path: &str,
) -> Result<Reply, Cut> {
    let mut onward = Request::new(full(request.body.clone()));
    *onward.method_mut() = Method::from_bytes(request.method.as_bytes()).map_err(|_| Cut)?;
    *onward.uri_mut() = path.parse().map_err(|_| Cut)?;
    let host = target.to_string().parse().map_err(|_| Cut)?;
    onward.headers_mut().insert(header::HOST, host);
    for name in PASSED.into_iter().chain([HeaderName::from_static(SECRET)]) {
        if let Some(value) = request.headers.get(&name) {
            onward.headers_mut().insert(name, value.clone());
        }
    }
    let answer = proxy::sent(&target.to_string(), onward).await.map_err(|_| Cut)?;
    let status = answer.status().as_u16();
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let bytes = answer.into_body().collect().await.map_err(|_| Cut)?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if status < 300 {
        count(shared, request);
    }
    Ok(Reply {
        status,
        body: if json { Body::Raw(text) } else { Body::Text(text) },
    })
}

/// As the stand-in itself counts.
fn count(shared: &Shared, request: &gateway::Request) {
    let counters = &shared.counters;
    let counter = match (
        request.method.as_str(),
        request.segments.first().map(String::as_str),
    ) {
        ("POST" | "PUT", Some("apis")) => &counters.writes,
        ("DELETE", Some("apis")) => &counters.deletes,
        ("POST", Some("certs")) => &counters.uploads,
        ("GET", Some("reload")) => &counters.reloads,
        _ => return,
    };
    counter.fetch_add(1, Ordering::SeqCst);
}
