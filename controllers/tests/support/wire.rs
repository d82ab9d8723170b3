//! HTTP as bytes: a client that sends exactly what a test says, and a backend that answers with exactly what it got.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Start line, headers by lower-case name (several values joined by a bar), body.
#[derive(Debug, Default)]
pub struct Message {
    pub start: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// Reads a message; without a length the body of an answer goes on to the end, that of a request is empty.
fn read(stream: &TcpStream, answer: bool, bodyless: bool) -> Option<Message> {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut text = Vec::new();
        let read = reader.read_until(b'\n', &mut text).ok()?;
        (read > 0).then(|| String::from_utf8_lossy(&text).trim_end().to_owned())
    };
    let mut message = Message {
        start: line()?,
        ..Message::default()
    };
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        message
            .headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|old| *old = format!("{old}|{}", value.trim()))
            .or_insert_with(|| value.trim().to_owned());
    }
    let length = message
        .headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    if bodyless {
        return Some(message);
    }
    let chunked = message
        .headers
        .get("transfer-encoding")
        .is_some_and(|coding| coding == "chunked");
    if chunked {
        loop {
            let mut text = String::new();
            reader.read_line(&mut text).ok()?;
            let size = usize::from_str_radix(text.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            chunk.truncate(size);
            message.body.extend(chunk);
        }
    } else if let Some(length) = length {
        message.body = vec![0; length];
        reader.read_exact(&mut message.body).ok()?;
    } else if answer {
        reader.read_to_end(&mut message.body).ok()?;
    }
    Some(message)
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    /// What the backend got, as it said. Fails the test when the answer is not from a backend.
    pub fn echo(&self) -> Value {
        assert_eq!(
            self.headers.get("x-echo").map(String::as_str),
            Some("1"),
            "{self:?}"
        );
        serde_json::from_str(&self.body).unwrap()
    }

    /// Request target that the backend got.
    pub fn target(&self) -> String {
        self.echo()["target"].as_str().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Sends one request on a connection of its own.
pub fn send(to: SocketAddr, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut head = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("Host: {to}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let message =
        read(&stream, true, method == "HEAD").unwrap_or_else(|| panic!("{method} {target}: no answer"));
    Answer {
        status: message.start.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: message.headers,
        body: String::from_utf8_lossy(&message.body).into_owned(),
    }
}

/// A backend on loopback. Lives until the process ends.
pub struct Echo {
    /// `127.0.0.1:port`, as a plan's authority.
    pub authority: String,
}

impl Echo {
    pub fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(name, stream));
            }
        });
        Self { authority }
    }
}

/// Answers 200, or what the query asks for with `status=…`, with the request as JSON.
fn answer(name: &str, mut stream: TcpStream) -> Option<()> {
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request = read(&stream, false, false)?;
    let mut words = request.start.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let status = target.split_once("status=").map_or("200", |(_, rest)| &rest[..3]);
    let body = json!({
        "backend": name,
        "method": method,
        "target": target,
        "headers": request.headers,
        "body": String::from_utf8_lossy(&request.body),
    })
    .to_string();
    let length = body.len();
    let body = if method == "HEAD" { "" } else { &body };
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         X-Echo: 1\r\nX-Powered-By: echo\r\nX-Old: 1\r\n\r\n{body}"
    )
    .ok()
}
