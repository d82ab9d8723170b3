//! The operator before Admin APIs that are not well, over real connections and in real time: what the handle says, and where
//! the token goes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use routewright::app::Options;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::{support::*, tls, world::*};

const HEALTHY: &str = r#"{"status":"healthy","partitions":256,"partitionsQuorum":256}"#;

/// A server that answers each request with what `answer` makes of its head; `None`: with silence.
struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Answer = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Server {
    async fn start(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, answer): (_, Answer) = (Arc::clone(&heads), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, seen, answer) = (tls.clone(), Arc::clone(&seen), Arc::clone(&answer));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &seen, &answer).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &seen, &answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, heads, task }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Vec<String>>, answer: &Answer) {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|w| w == b"\r\n\r\n") {
        let mut chunk = [0_u8; 1024];
        match stream.read(&mut chunk).await {
            Ok(n) if n > 0 => bytes.extend_from_slice(&chunk[..n]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    seen.lock().unwrap().push(head.clone());
    match answer(&head) {
        None => std::future::pending().await,
        Some(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }
}

fn http(status: &str, header: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{header}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// The operator with a handle for this address, and a bucket.
async fn operator(url: &str, extra_ca: Option<String>) -> Story {
    let server = server(false);
    let mut handle = handle();
    handle["spec"]["connectTo"]["adminApiEndpoint"] = json!(url);
    for object in [token(TOKEN), handle, blog()] {
        put(&server, object);
    }
    let options = Options {
        extra_ca: extra_ca.map(String::into_bytes),
        ..flags()
    };
    Story::on(server, &options).await
}

async fn handle_says(story: &Story) -> (Value, String) {
    eventually(&story.server, "the word of the handle", || {
        let handle = story.server.get("GarageCluster", "web", "garage")?;
        let ready = ready_of(Some(&handle));
        (ready != "–").then(|| (handle["status"]["phase"].clone(), ready))
    })
    .await
}

/// The handle is Pending for this reason, and the message says this.
async fn pending(url: &str, reason: &str, says: &str) {
    let story = operator(url, None).await;
    let (phase, ready) = handle_says(&story).await;
    assert!(
        ready.starts_with(&format!("False/{reason}: ")) && ready.contains(says),
        "{ready}"
    );
    assert!(ready.contains(url) && !ready.contains(TOKEN), "{ready}");
    assert_eq!(phase, "Pending");
}

#[tokio::test]
async fn a_redirect_is_refused_and_the_token_stays_here() {
    let target = Server::start(None, |_| Some(http("200 OK", "", HEALTHY))).await;
    let location = format!("location: {}/v2/GetClusterHealth\r\n", target.url());
    let server = Server::start(None, move |_| Some(http("307 Temporary Redirect", &location, ""))).await;
    pending(
        &server.url(),
        "NotGarage",
        "a redirect to another address on the same host",
    )
    .await;
    assert!(
        server.heads()[0].contains(TOKEN),
        "who is named is sent the token"
    );
    assert_eq!(target.heads(), NOTHING, "and nobody else");
}

#[tokio::test]
async fn a_wrong_token_a_page_and_a_broken_answer_are_told_apart() {
    let garage = r#"{"code":"AccessDenied","message":"no"}"#;
    for (answer, reason, says) in [
        (
            http("403 Forbidden", "", garage),
            "Unauthorized",
            "the token is wrong",
        ),
        (
            http("200 OK", "content-type: text/html\r\n", "<html>hello</html>"),
            "NotGarage",
            "Admin API v2",
        ),
        (
            http("404 Not Found", "", "<html>nothing</html>"),
            "NotGarage",
            "check the endpoint",
        ),
        (
            http(
                "503 Service Unavailable",
                "",
                r#"{"code":"ServiceUnavailable","message":"no quorum"}"#,
            ),
            "AdminAPIUnreachable",
            "503 Service Unavailable ServiceUnavailable",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{".to_owned(),
            "AdminAPIUnreachable",
            "GetClusterHealth",
        ),
        (
            "220 mail.example.com ESMTP\r\n".to_owned(),
            "AdminAPIUnreachable",
            "GetClusterHealth",
        ),
    ] {
        let server = Server::start(None, move |_| Some(answer.clone())).await;
        pending(&server.url(), reason, says).await;
    }
}

#[tokio::test]
async fn one_that_takes_the_connection_and_says_nothing_is_given_up() {
    let server = Server::start(None, |_| None).await;
    pending(
        &server.url(),
        "AdminAPIUnreachable",
        "no whole answer within 15000 ms",
    )
    .await;
}

#[tokio::test]
async fn one_that_is_half_dead_is_running_and_its_buckets_say_what_is_missing() {
    let server = Server::start(None, |head| {
        head.contains("/v2/GetClusterHealth")
            .then(|| http("200 OK", "", HEALTHY))
    })
    .await;
    let story = operator(&server.url(), None).await;
    assert_eq!(handle_says(&story).await.0, "Running");
    let says = eventually(&story.server, "the word of the bucket", || {
        let ready = ready(&story);
        ready.contains("GetBucketInfo").then_some(ready)
    })
    .await;
    assert!(
        says.starts_with("False/GarageUnavailable: ") && says.contains("no whole answer"),
        "{says}"
    );
    assert_eq!(phase(&story), "Creating");
}

#[tokio::test]
async fn a_private_authority_is_trusted_by_the_extra_bundle_alone() {
    let (tls, pem) = tls::self_signed();
    let server = Server::start(Some(tls), |_| Some(http("200 OK", "", HEALTHY))).await;
    let url = format!("https://{}", server.address);
    pending(&url, "AdminAPIUnreachable", "certificate").await;
    assert_eq!(server.heads(), NOTHING, "whoever is not trusted is sent nothing");
    let story = operator(&url, Some(pem)).await;
    assert_eq!(handle_says(&story).await.0, "Running");
}
