//! The client against loopback servers that behave, misbehave, and lie.

use std::net::SocketAddr;
use std::sync::Mutex;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::*;

// That of the integration tests: a line of path costs less than a third copy.
#[path = "../../../tests/support/tls.rs"]
mod tls;

const TOKEN: &str = "s3cr3t-t0ken";
const ID: &str = "52aeafb07876d25151168a49e34186f554365aead88fe16d4fa0e57e3898cc45";

fn id() -> BucketId {
    BucketId::parse(ID).unwrap()
}

/// A server that answers everything with one function, and remembers what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug, PartialEq)]
struct Asked {
    line: String,
    authorization: String,
    body: String,
}

impl Server {
    async fn answering(answer: impl Fn(&Asked) -> Response<Body> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&asked), Arc::new(answer));
        let app = Router::new().fallback(move |request: Request| {
            let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
            async move {
                let (head, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let asked = Asked {
                    line: format!("{} {}", head.method, head.uri),
                    authorization: head.headers[AUTHORIZATION].to_str().unwrap().to_owned(),
                    body: String::from_utf8(body.to_vec()).unwrap(),
                };
                let response = answer(&asked);
                seen.lock().unwrap().push(asked);
                response
            }
        });
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            asked,
            _task: AbortOnDropHandle::new(task),
        }
    }

    async fn with(status: u16, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::answering(move |_| answer(status, &body)).await
    }

    fn client(&self) -> AdminClient {
        client(self.address, CALL_TIMEOUT)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(status: u16, body: &str) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(Body::from(body.to_owned()))
        .unwrap()
}

/// A server below HTTP: each connection is handed to `serve`.
async fn raw<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (SocketAddr, AbortOnDropHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    (address, AbortOnDropHandle::new(task))
}

async fn read_request(stream: &mut TcpStream) {
    let mut buffer = [0_u8; 4096];
    let _ = stream.read(&mut buffer).await.unwrap();
}

fn client(address: SocketAddr, timeout: Duration) -> AdminClient {
    let http = AdminHttp::new(None).unwrap().with_limits(timeout, 64 * 1024);
    let endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
    AdminClient::new(http, endpoint, Token::new(TOKEN).unwrap()).unwrap()
}

fn bucket(more: serde_json::Value) -> String {
    let mut bucket = serde_json::json!({ "id": ID, "globalAliases": ["site"] });
    bucket
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    bucket.to_string()
}

async fn call(client: &AdminClient, call: Call) -> Result<(), AdminError> {
    match call {
        Call::GetClusterHealth => client.health().await.map(drop),
        Call::GetBucketInfo => client.bucket_by_id(&id()).await.map(drop),
        Call::CreateBucket => client.create_bucket("site").await.map(drop),
        Call::UpdateBucket => client
            .update_bucket(&id(), &BucketUpdate::default())
            .await
            .map(drop),
        Call::AddBucketAlias => client.add_alias(&id(), "site").await.map(drop),
        Call::RemoveBucketAlias => client.remove_alias(&id(), "site").await.map(drop),
        Call::DeleteBucket => client.delete_bucket(&id()).await,
    }
}

#[tokio::test]
async fn each_call_is_one_request_as_garage_wants_it() {
    let server = Server::answering(|asked| match asked.line.as_str() {
        "GET /v2/GetClusterHealth" => answer(200, r#"{"status":"healthy","partitions":256}"#),
        line if line.contains("DeleteBucket") => answer(200, "null"),
        _ => answer(200, &bucket(serde_json::json!({}))),
    })
    .await;
    let client = server.client();
    let documents = WebsiteDocuments {
        index_document: "i.html".into(),
        error_document: None,
    };
    let enable = BucketUpdate {
        website: Some(WebsiteUpdate::Enable(documents)),
        quotas: Some(BucketQuotas {
            max_size: Some(5),
            max_objects: None,
        }),
    };
    let disable = BucketUpdate {
        website: Some(WebsiteUpdate::Disable),
        quotas: None,
    };

    client.health().await.unwrap();
    client.bucket_by_id(&id()).await.unwrap();
    client.bucket_by_alias("a&b c").await.unwrap();
    client.create_bucket("site").await.unwrap();
    client.update_bucket(&id(), &enable).await.unwrap();
    client.update_bucket(&id(), &disable).await.unwrap();
    client.add_alias(&id(), "www").await.unwrap();
    client.remove_alias(&id(), "www").await.unwrap();
    client.delete_bucket(&id()).await.unwrap();

    let alias = format!(r#"{{"bucketId":"{ID}","globalAlias":"www"}}"#);
    let expected = [
        ("GET /v2/GetClusterHealth".to_owned(), ""),
        (format!("GET /v2/GetBucketInfo?id={ID}"), ""),
        ("GET /v2/GetBucketInfo?globalAlias=a%26b+c".to_owned(), ""),
        ("POST /v2/CreateBucket".to_owned(), r#"{"globalAlias":"site"}"#),
        (
            format!("POST /v2/UpdateBucket?id={ID}"),
            r#"{"websiteAccess":{"enabled":true,"indexDocument":"i.html"},"quotas":{"maxSize":5,"maxObjects":null}}"#,
        ),
        (
            format!("POST /v2/UpdateBucket?id={ID}"),
            r#"{"websiteAccess":{"enabled":false}}"#,
        ),
        ("POST /v2/AddBucketAlias".to_owned(), alias.as_str()),
        ("POST /v2/RemoveBucketAlias".to_owned(), alias.as_str()),
        (format!("POST /v2/DeleteBucket?id={ID}"), ""),
    ];
    let asked = server.asked();
    for (asked, (line, body)) in asked.iter().zip(&expected) {
        assert_eq!((asked.line.as_str(), asked.body.as_str()), (line.as_str(), *body));
        assert_eq!(asked.authorization, format!("Bearer {TOKEN}"));
    }
    assert_eq!(asked.len(), expected.len());
}

#[tokio::test]
async fn an_answer_may_say_more_and_leave_out_what_has_a_default() {
    let full = bucket(serde_json::json!({
        "created": "2026-11-29T22:10:29.731Z", "websiteAccess": true, "objects": 2, "bytes": 10,
        "websiteConfig": { "indexDocument": "i", "errorDocument": null, "routingRules": [{ "new": 1 }] },
        "quotas": { "maxSize": null, "maxObjects": 18446744073709551615_u64, "maxWishes": 3 },
        "keys": [{ "accessKeyId": "GK" }], "someday": {},
    }));
    let server = Server::with(200, full).await;
    let info = server.client().bucket_by_id(&id()).await.unwrap();
    assert_eq!(info.website_config.unwrap().index_document, "i");
    assert_eq!(
        info.quotas,
        BucketQuotas {
            max_size: None,
            max_objects: Some(u64::MAX)
        }
    );

    let server = Server::with(200, bucket(serde_json::json!({}))).await;
    let info = server.client().bucket_by_id(&id()).await.unwrap();
    assert!(!info.website_access && info.quotas == BucketQuotas::default());
}

#[tokio::test]
async fn every_refusal_has_its_class() {
    use AdminErrorClass as E;
    use Call as C;
    let garage = |code: &str| format!(r#"{{"code":"{code}","message":"m","region":"garage","path":"/"}}"#);
    for (status, body, asked, class) in [
        (404, garage("NoSuchBucket"), C::GetBucketInfo, E::NotFound),
        (404, garage("NoSuchBucket"), C::DeleteBucket, E::NotFound),
        (409, garage("BucketAlreadyExists"), C::CreateBucket, E::Conflict),
        (409, garage("BucketNotEmpty"), C::DeleteBucket, E::NotEmpty),
        (400, garage("InvalidRequest"), C::AddBucketAlias, E::AliasTaken),
        (400, garage("InvalidBucketName"), C::AddBucketAlias, E::Invalid),
        (400, garage("InvalidRequest"), C::RemoveBucketAlias, E::Invalid),
        (400, garage("InvalidRequest"), C::CreateBucket, E::Invalid),
        (400, garage("InvalidRequest"), C::UpdateBucket, E::Invalid),
        (403, garage("AccessDenied"), C::GetClusterHealth, E::Unauthorized),
        (401, String::new(), C::GetClusterHealth, E::Unauthorized),
        (500, garage("InternalError"), C::RemoveBucketAlias, E::Unavailable),
        (500, garage("InternalError"), C::CreateBucket, E::Unavailable),
        (
            503,
            garage("ServiceUnavailable"),
            C::GetBucketInfo,
            E::Unavailable,
        ),
        (
            502,
            "<html>bad gateway</html>".into(),
            C::GetBucketInfo,
            E::Unavailable,
        ),
        (429, String::new(), C::GetBucketInfo, E::Unavailable),
        // a 404 that is not Garage's says nothing about a bucket
        (404, "<html>not found</html>".into(), C::GetBucketInfo, E::Garbage),
        (404, garage("NoSuchKey"), C::DeleteBucket, E::Invalid),
        (404, "{}".into(), C::DeleteBucket, E::Garbage),
        (400, "no".into(), C::AddBucketAlias, E::Garbage),
        (418, String::new(), C::CreateBucket, E::Garbage),
    ] {
        let server = Server::with(status, body.clone()).await;
        let error = call(&server.client(), asked).await.unwrap_err();
        assert_eq!(error.class(), class, "{status} {body} on {asked}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("http://{}: {asked}: ", server.address)),
            "{text}"
        );
        assert!(text.contains(&status.to_string()), "{text}");
    }
}

#[tokio::test]
async fn answers_that_are_not_garages_are_garbage() {
    let other = format!(r#"{{"id":"{}","globalAliases":[]}}"#, "a".repeat(64));
    for body in [
        "",
        "null",
        "[]",
        "<html>hello</html>",
        r#"{"id":"52ae","globalAliases":[]}"#,
        &format!(r#"{{"id":"{ID}"}}"#),
        &format!(r#"{{"id":"{ID}","globalAliases":"site"}}"#),
        &format!(r#"{{"id":"{ID}","globalAliases":[],"quotas":{{"maxSize":-1}}}}"#),
        &format!(r#"{{"id":"{ID}","globalAliases":[]"#),
        &other,
    ] {
        let server = Server::with(200, body).await;
        let error = server.client().bucket_by_id(&id()).await.unwrap_err();
        assert_eq!(error.class(), AdminErrorClass::Garbage, "{body}");
    }
    let server = Server::with(200, "hello").await;
    assert_eq!(
        server.client().health().await.unwrap_err().class(),
        AdminErrorClass::Garbage
    );
}

#[tokio::test]
async fn a_redirect_is_an_error_and_takes_the_token_nowhere() {
    let target = Server::with(200, bucket(serde_json::json!({}))).await;
    let location = format!("http://{}/v2/GetBucketInfo", target.address);
    let location_of = target.address.to_string();
    for status in [301, 302, 307, 308] {
        let location = location.clone();
        let server = Server::answering(move |_| {
            Response::builder()
                .status(status)
                .header(LOCATION, &location)
                .body(Body::empty())
                .unwrap()
        })
        .await;
        for asked in [Call::GetBucketInfo, Call::DeleteBucket] {
            let error = call(&server.client(), asked).await.unwrap_err();
            assert_eq!(error.class(), AdminErrorClass::Redirect);
            let text = error.to_string();
            assert!(
                text.contains(&server.address.to_string()),
                "names the endpoint: {text}"
            );
            // Where it leads is the server's word, and the server is whatever a GarageCluster names.
            assert!(
                text.contains("another address on the same host") && !text.contains(&location_of),
                "{text}"
            );
        }
    }
    assert_eq!(target.asked(), []);
}

#[tokio::test]
async fn too_large_an_answer_is_refused_announced_or_not() {
    let large = "x".repeat(64 * 1024 + 1);
    let server = Server::with(200, large.clone()).await;
    let error = server.client().health().await.unwrap_err();
    assert_eq!(error.class(), AdminErrorClass::TooLarge);

    // An error answer too.
    let server = Server::with(500, large).await;
    assert_eq!(
        server.client().health().await.unwrap_err().class(),
        AdminErrorClass::TooLarge
    );

    // A stream without length and without end.
    let (address, _task) = raw(|mut stream| async move {
        read_request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        let chunk = format!("1000\r\n{}\r\n", "y".repeat(0x1000));
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let error = client(address, CALL_TIMEOUT).health().await.unwrap_err();
    assert_eq!(error.class(), AdminErrorClass::TooLarge);
}

#[tokio::test]
async fn a_server_that_is_slow_or_half_dead_times_out() {
    let short = Duration::from_millis(100);
    // Takes the connection and says nothing.
    let (silent, _a) = raw(|stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    // Begins an answer and does not end it.
    let (dribbling, _b) = raw(|mut stream| async move {
        read_request(&mut stream).await;
        let begin = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(begin).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    for address in [silent, dribbling] {
        let error = client(address, short).health().await.unwrap_err();
        assert_eq!(error.class(), AdminErrorClass::Timeout, "{error}");
        assert!(error.to_string().contains("within 100 ms"), "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_fails_or_breaks_is_said_so() {
    // Nobody listens, nor can anybody else begin to.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let closed = held.local_addr().unwrap();
    // Hangs up before, and in the middle of, the answer.
    let (early, _a) = raw(|stream| async move { drop(stream) }).await;
    let (broken, _b) = raw(|mut stream| async move {
        read_request(&mut stream).await;
        let begin = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(begin).await.unwrap();
    })
    .await;
    let (not_http, _c) = raw(|mut stream| async move {
        let _ = stream.write_all(b"220 mail.example.com ESMTP\r\n").await;
        read_request(&mut stream).await;
    })
    .await;
    for address in [closed, early, broken, not_http] {
        let error = client(address, CALL_TIMEOUT).health().await.unwrap_err();
        assert_eq!(error.class(), AdminErrorClass::Connect, "{error}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("Garage Admin API http://{address}: ")),
            "{error}"
        );
        assert!(
            !error.detail().is_empty() && !error.detail().contains("http://"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_unauthorized_answer_says_what_may_be_wrong_with_the_token() {
    let server = Server::with(403, r#"{"code":"AccessDenied","message":"Forbidden"}"#).await;
    let plain = server.client().health().await.unwrap_err().to_string();
    assert!(plain.contains("its scope lacks GetClusterHealth"), "{plain}");

    let endpoint = Endpoint::parse(&format!("http://{}", server.address)).unwrap();
    let dotted = Token::new("abc.def").unwrap();
    let client = AdminClient::new(AdminHttp::new(None).unwrap(), endpoint, dotted).unwrap();
    let hint = client.health().await.unwrap_err().to_string();
    assert!(
        hint.contains("the token contains '.'")
            && hint.contains("its scope lacks GetClusterHealth")
            && !hint.contains("abc.def"),
        "{hint}"
    );
}

#[tokio::test]
async fn nothing_shows_the_token_even_if_the_server_echoes_it() {
    // Given a server that puts the token anywhere into its message, also where a long message is cut,
    let length = Arc::new(Mutex::new(0));
    let filler = Arc::clone(&length);
    let server = Server::answering(move |asked| {
        let message = format!("{} {}", "x".repeat(*filler.lock().unwrap()), asked.authorization);
        answer(
            403,
            &format!(r#"{{"code":"AccessDenied","message":"{message}"}}"#),
        )
    })
    .await;
    let client = server.client();
    let mut seen_replaced = false;
    for at in 150..ERROR_TEXT_CAP {
        *length.lock().unwrap() = at;
        // when a call fails, then no text holds any of it.
        let error = client.health().await.unwrap_err();
        for shown in [format!("{error:?}"), error.to_string()] {
            assert!(!shown.contains("s3cr"), "{shown}");
        }
        assert!(error.detail().len() <= ERROR_TEXT_CAP);
        seen_replaced |= error.detail().contains("(token)");
    }
    assert!(seen_replaced);
    for shown in [
        format!("{client:?}"),
        format!("{:?}", client.token),
        format!("{:?}", client.authorization),
    ] {
        assert!(!shown.contains("s3cr"), "{shown}");
    }
}

#[tokio::test]
async fn an_answer_of_something_else_is_not_quoted() {
    const SECRET: &str = "internal-host-and-more";
    let document = |code: &str| format!(r#"{{"code":"{code}","message":"{SECRET}"}}"#);
    for (status, body) in [
        (404, format!("<html>{SECRET}</html>")),
        (418, SECRET.to_owned()),
        (400, document("Whatever")),
        (403, document("Whatever")),
        // Garage's own trouble: its message counts nodes and answers, so it differs from try to try.
        (503, document("ServiceUnavailable")),
        (200, format!(r#"{{"status":{{"{SECRET}":1}}}}"#)),
        (200, format!(r#""{SECRET}""#)),
        (200, SECRET.to_owned()),
    ] {
        let server = Server::with(status, body.clone()).await;
        let error = server.client().health().await.unwrap_err().to_string();
        assert!(!error.contains(SECRET), "{status} {body}: {error}");
    }
    let server = Server::answering(|_| {
        let target = format!("https://{SECRET}/{SECRET}?{SECRET}");
        Response::builder()
            .status(302)
            .header(LOCATION, target)
            .body(Body::empty())
            .unwrap()
    })
    .await;
    let error = server.client().health().await.unwrap_err().to_string();
    assert!(
        error.contains("a redirect to another host") && !error.contains(SECRET),
        "{error}"
    );
    // What Garage says about a request at fault is quoted, and not at any length.
    let long = format!(
        r#"{{"code":"InvalidRequest","message":"{}"}}"#,
        "x".repeat(10_000)
    );
    let server = Server::with(400, long).await;
    let error = server.client().health().await.unwrap_err();
    assert!(
        error.detail().contains("InvalidRequest: xxx") && error.detail().len() < 300,
        "{error}"
    );
}

#[test]
fn texts_of_errors_are_one_short_line() {
    let text = |t: &str| {
        AdminError::new(AdminErrorClass::Invalid, Call::CreateBucket, "e", t)
            .detail()
            .to_owned()
    };
    assert_eq!(text("a\r\n\tb   c\u{0}d"), "a b c d");
    let long = text(&"ä".repeat(2 * ERROR_TEXT_CAP));
    assert!(
        (ERROR_TEXT_CAP - 2..=ERROR_TEXT_CAP).contains(&long.len()),
        "{}",
        long.len()
    );
    assert!(long.ends_with('…'));
    assert_eq!(text(&"b".repeat(ERROR_TEXT_CAP)), "b".repeat(ERROR_TEXT_CAP));
}

#[test]
fn tokens_are_checked_and_hidden() {
    assert!(Token::new(" s3cret\n").is_ok());
    for (text, fault) in [
        ("", TokenError::Empty),
        (" \n", TokenError::Empty),
        ("a b", TokenError::NotVisibleAscii),
        ("a\nb", TokenError::NotVisibleAscii),
        ("süd", TokenError::NotVisibleAscii),
    ] {
        assert_eq!(Token::new(text).unwrap_err(), fault, "{text:?}");
    }
    assert!(
        Token::new("prefix.secret").is_ok(),
        "made with `garage admin-token create`"
    );
    let fault = Token::new_static("prefix.secret").unwrap_err();
    assert!(
        fault.to_string().contains("'.'") && !fault.to_string().contains("prefix"),
        "{fault}"
    );
    assert_eq!(
        format!("{:?}", Token::new_static("s3cret").unwrap()),
        "Token(hidden)"
    );
}

#[test]
fn endpoints_may_have_a_path_but_nothing_else() {
    let url = |text: &str| Endpoint::parse(text).map(|e| e.call(Call::GetClusterHealth, &[]).to_string());
    assert_eq!(
        url("http://garage:3903").unwrap(),
        "http://garage:3903/v2/GetClusterHealth"
    );
    assert_eq!(
        url("https://[::1]:3903/").unwrap(),
        "https://[::1]:3903/v2/GetClusterHealth"
    );
    assert_eq!(
        url("http://garage/admin/").unwrap(),
        "http://garage/admin/v2/GetClusterHealth"
    );
    for bad in [
        "",
        "garage",
        "garage:3903",
        "ftp://garage",
        "http://u@garage",
        "http://g/?a=b",
        "http://g/#a",
    ] {
        assert!(Endpoint::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(
        Endpoint::parse("http://garage:3903/").unwrap().to_string(),
        "http://garage:3903"
    );
}

#[test]
fn a_ca_bundle_without_certificates_is_refused() {
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (pem, says) in [
        ("", "no PEM certificate"),
        ("hello", "no PEM certificate"),
        (broken, "extra CA bundle"),
    ] {
        let error = AdminHttp::new(Some(pem.as_bytes())).unwrap_err();
        assert!(error.to_string().contains(says), "{pem:?}: {error}");
    }
}

#[test]
fn labels_are_stable_and_retries_follow_the_class() {
    use AdminErrorClass as E;
    for (class, label, own) in [
        (E::NotFound, "not_found", ErrorClass::NotFound),
        (E::Conflict, "conflict", ErrorClass::Conflict),
        (E::AliasTaken, "alias_taken", ErrorClass::Foreign),
        (E::NotEmpty, "not_empty", ErrorClass::Conflict),
        (E::Unauthorized, "unauthorized", ErrorClass::Forbidden),
        (E::Invalid, "invalid", ErrorClass::Invalid),
        (E::Unavailable, "unavailable", ErrorClass::Transient),
        (E::Timeout, "timeout", ErrorClass::Timeout),
        (E::Garbage, "garbage", ErrorClass::Transient),
        (E::TooLarge, "too_large", ErrorClass::Invalid),
        (E::Redirect, "redirect", ErrorClass::Invalid),
        (E::Connect, "connect", ErrorClass::Transient),
        (E::Fenced, "fenced", ErrorClass::Shutdown),
    ] {
        assert_eq!(class.label(), label);
        let error = AdminError::new(class, Call::CreateBucket, "http://garage", "why");
        let reconcile = ReconcileError::from(&error);
        assert_eq!(
            (reconcile.class, reconcile.message.as_str()),
            (own, error.to_string().as_str())
        );
    }
    let writes: Vec<_> = Call::ALL.into_iter().filter(|c| c.writes()).collect();
    assert_eq!(writes.len(), 5, "{writes:?}");
}

#[tokio::test]
async fn https_is_trusted_through_the_extra_ca_and_not_without_it() {
    // Given a server whose certificate only the extra bundle vouches for,
    let (acceptor, pem) = tls::self_signed();
    let (address, _task) = raw(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let mut buffer = [0_u8; 4096];
            let _ = stream.read(&mut buffer).await;
            let body = r#"{"status":"healthy","partitions":256}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let health = async |extra_ca: Option<&[u8]>| {
        let endpoint = Endpoint::parse(&format!("https://{address}")).unwrap();
        let http = AdminHttp::new(extra_ca).unwrap();
        AdminClient::new(http, endpoint, Token::new(TOKEN).unwrap())
            .unwrap()
            .health()
            .await
    };

    // when it is asked with the bundle, it answers; without, it is not trusted.
    assert_eq!(health(Some(pem.as_bytes())).await.unwrap().status, "healthy");
    let refused = health(None).await.unwrap_err();
    assert_eq!(refused.class(), AdminErrorClass::Connect);
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[test]
fn two_spellings_of_one_address_are_one_place() {
    let place = |text: &str| Endpoint::parse(text).unwrap().place("cluster.local");
    let one = place("http://garage.storage.svc:3903");
    for same in [
        "http://garage.storage.svc:3903/",
        "http://GARAGE.storage.svc.:3903",
        "http://garage.storage.svc.cluster.local:3903",
    ] {
        assert_eq!(place(same), one, "{same}");
    }
    assert_eq!(
        place("https://garage.example.com"),
        place("https://garage.example.com:443/")
    );
    for other in [
        "http://garage.storage.svc:3904",
        "https://garage.storage.svc:3903",
        "http://garage.other.svc:3903",
        "http://garage.storage.svc:3903/behind",
        // Another domain, even if it begins like a Service.
        "http://garage.storage.svc.evil.example:3903",
        "http://garage.storage.svc.cluster.local.evil.example:3903",
        "http://garage.storage.svc.evil-cluster.local:3903",
        "http://garage.storage.svccluster.local:3903",
        "http://garage.storage.cluster.local:3903",
    ] {
        assert_ne!(place(other), one, "{other}");
    }
}
