//! Stands between the operator and a real Garage, and cuts the connection at one call: before it is sent on, after it was
//! answered, or so that it arrives late. Knows nothing of what the calls mean.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What happens at the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The connection ends and Garage never hears of the call.
    Before,
    /// Garage carries the call out; its answer is lost with the connection.
    After,
    /// The connection ends at once; Garage hears of the call so much later.
    Late(Duration),
    /// Garage never hears of the call and the connection stays: for a process that dies here.
    Hold,
    /// Garage carries the call out, and the answer waits for ever: for a process that dies here.
    HoldAnswer,
}

#[derive(Default)]
struct State {
    /// The cut, after so many calls more.
    armed: Option<(usize, Cut)>,
    calls: Vec<String>,
    late: usize,
}

/// The proxy. Probes of the cluster pass and do not count.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    fired: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Request {
    method: Method,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Proxy {
    /// In front of this Admin API.
    pub(crate) async fn start(garage: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let fired = Arc::new(Notify::new());
        let (shared, told) = (Arc::clone(&state), Arc::clone(&fired));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, fired, http) = (Arc::clone(&shared), Arc::clone(&told), http.clone());
                tokio::spawn(async move { serve(stream, garage, &state, &fired, &http).await });
            }
        });
        Self {
            address,
            state,
            fired,
            task,
        }
    }

    /// Cuts at the n-th call from now, counted from 0.
    pub(crate) fn arm(&self, call: usize, cut: Cut) {
        self.state.lock().unwrap().armed = Some((call, cut));
    }

    /// Completes when the cut has been made. A cut that was made before counts.
    pub(crate) async fn cut(&self) {
        self.fired.notified().await;
    }

    /// The calls since the last time, by name.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// How many late calls have arrived at Garage.
    pub(crate) fn arrived(&self) -> usize {
        self.state.lock().unwrap().late
    }
}

async fn serve(
    mut stream: TcpStream,
    garage: SocketAddr,
    state: &Arc<Mutex<State>>,
    fired: &Notify,
    http: &reqwest::Client,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let name = request
        .target
        .split(['/', '?'])
        .nth(2)
        .unwrap_or_default()
        .to_owned();
    let cut = {
        let mut state = state.lock().unwrap();
        if name == "GetClusterHealth" {
            None
        } else {
            state.calls.push(name);
            match state.armed.take() {
                Some((0, cut)) => Some(cut),
                Some((left, cut)) => {
                    state.armed = Some((left - 1, cut));
                    None
                }
                None => None,
            }
        }
    };
    match cut {
        None => {
            if let Some(answer) = forward(&request, garage, http).await {
                let _ = stream.write_all(&answer).await;
            }
        }
        Some(Cut::Before) => fired.notify_one(),
        Some(Cut::After) => {
            forward(&request, garage, http).await;
            fired.notify_one();
        }
        Some(Cut::Late(delay)) => {
            drop(stream);
            fired.notify_one();
            tokio::time::sleep(delay).await;
            forward(&request, garage, http).await;
            state.lock().unwrap().late += 1;
        }
        Some(Cut::Hold) => {
            fired.notify_one();
            std::future::pending().await
        }
        Some(Cut::HoldAnswer) => {
            forward(&request, garage, http).await;
            fired.notify_one();
            std::future::pending().await
        }
    }
}

/// One request; a connection carries no second one.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        let mut chunk = [0_u8; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.parse().ok()?, first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes[end + 4..].to_vec();
    while body.len() < length {
        let mut chunk = [0_u8; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|n| *n > 0)?;
        body.extend_from_slice(&chunk[..read]);
    }
    Some(Request {
        method,
        target,
        headers,
        body,
    })
}

/// Garage's answer, as bytes to be sent on.
async fn forward(request: &Request, garage: SocketAddr, http: &reqwest::Client) -> Option<Vec<u8>> {
    let url = format!("http://{garage}{}", request.target);
    let mut sent = http
        .request(request.method.clone(), url)
        .body(request.body.clone());
    for (name, value) in &request.headers {
        if matches!(name.as_str(), "authorization" | "content-type" | "accept") {
            sent = sent.header(name, value);
        }
    }
    let answer = sent.send().await.ok()?;
    let status = answer.status();
    let body = answer.bytes().await.ok()?;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    Some([head.as_bytes(), &body].concat())
}
