//! Reaching into the node's network namespace from outside: connections, a forwarded port, a plain HTTP GET.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Error, IoContext, Result};

/// A network namespace to open connections in.
#[derive(Debug, Clone)]
pub struct NetNs(Arc<File>);

impl NetNs {
    /// The network namespace of a process.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn of(pid: i32) -> Result<Self> {
        let path = format!("/proc/{pid}/ns/net");
        Ok(Self(Arc::new(File::open(&path).at("open", &path)?)))
    }

    /// Connects from inside the namespace. The socket stays there, whoever holds it.
    ///
    /// # Errors
    /// The system's own, e.g. connection refused.
    pub fn connect(&self, to: SocketAddr, limit: Duration) -> std::io::Result<TcpStream> {
        let ns = Arc::clone(&self.0);
        // Namespaces belong to threads: one that ends with the connection made.
        std::thread::spawn(move || {
            move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpStream::connect_timeout(&to, limit)
        })
        .join()
        .unwrap_or_else(|_| Err(std::io::Error::other("the connecting thread panicked")))
    }
}

/// A port of 127.0.0.1 that leads to an address inside the namespace, until dropped.
#[derive(Debug)]
pub struct Forward {
    local: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Forward {
    /// Opens a port, 0 for any, that leads to `to`.
    ///
    /// # Errors
    /// When the port cannot be opened.
    pub fn open(ns: &NetNs, port: u16, to: SocketAddr) -> Result<Self> {
        let what = || format!("127.0.0.1:{port}");
        let listener = TcpListener::bind(("127.0.0.1", port)).at("listen on", what())?;
        let local = listener.local_addr().at("listen on", what())?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ns, stopped) = (ns.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(client), ns) = (client, ns.clone()) else {
                    continue;
                };
                std::thread::spawn(move || {
                    if let Ok(server) = ns.connect(to, Duration::from_secs(5)) {
                        join(&client, &server);
                    }
                });
            }
        });
        Ok(Self { local, stop })
    }

    /// The address to connect to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect_timeout(&self.local, Duration::from_millis(200));
    }
}

/// Copies both ways until both sides are done.
fn join(a: &TcpStream, b: &TcpStream) {
    let _ = (a.set_nodelay(true), b.set_nodelay(true));
    let pump = |mut from: &TcpStream, mut to: &TcpStream| {
        let mut buffer = vec![0u8; 32 * 1024];
        while let Ok(n) = from.read(&mut buffer) {
            let Some(part) = buffer.get(..n).filter(|p| !p.is_empty()) else {
                break;
            };
            if to.write_all(part).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pump(a, b));
        pump(b, a);
    });
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// An answer from the bytes of a closed HTTP/1.1 connection.
    ///
    /// # Errors
    /// When they are no HTTP answer.
    pub fn parse(raw: &[u8]) -> Result<Self> {
        let bad = |why: &str| {
            let start: String = String::from_utf8_lossy(raw).chars().take(80).collect();
            Error::other(format!("no HTTP answer ({why}): {start:?}"))
        };
        let split = raw
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .ok_or_else(|| bad("no end of headers"))?;
        let (head, rest) = raw.split_at(split);
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|l| l.split_whitespace().nth(1))
            .and_then(|s| s.parse().ok())
            .ok_or_else(|| bad("no status line"))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|l| l.split_once(':'))
            .map(|(n, v)| (n.trim().to_ascii_lowercase(), v.trim().to_owned()))
            .collect();
        let mut answer = Self {
            status,
            headers,
            body: rest.iter().skip(4).copied().collect(),
        };
        if answer
            .header("transfer-encoding")
            .is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
        {
            answer.body = unchunk(&answer.body).ok_or_else(|| bad("cut chunks"))?;
        } else if let Some(n) = answer
            .header("content-length")
            .and_then(|v| v.parse::<usize>().ok())
        {
            if answer.body.len() < n {
                return Err(bad("cut body"));
            }
            answer.body.truncate(n);
        }
        Ok(answer)
    }
}

fn unchunk(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = raw.windows(2).position(|w| w == b"\r\n")?;
        let line = std::str::from_utf8(raw.get(..end)?).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        raw = raw.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(raw.get(..size)?);
        raw = raw.get(size + 2..)?;
    }
}

/// One HTTP/1.1 request on a connection of its own, from inside the namespace.
///
/// # Errors
/// When nothing answers at the address, or no HTTP.
pub fn request(
    ns: &NetNs,
    to: (IpAddr, u16),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer> {
    let to = SocketAddr::new(to.0, to.1);
    let stream = ns.connect(to, LIMIT).at("connect to", to.to_string())?;
    let raw = exchange(stream, method, path, headers, body).at("talk to", to.to_string())?;
    Answer::parse(&raw)
}

/// Like [`request`], from this process's own network namespace.
///
/// # Errors
/// As [`request`].
pub fn request_here(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer> {
    let stream = TcpStream::connect_timeout(&to, LIMIT).at("connect to", to.to_string())?;
    let raw = exchange(stream, method, path, headers, body).at("talk to", to.to_string())?;
    Answer::parse(&raw)
}

const LIMIT: Duration = Duration::from_secs(10);

fn exchange(
    mut stream: TcpStream,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "PUT" || method == "POST" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut raw = Vec::new();
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.read_to_end(&mut raw)?;
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunked_and_counted_bodies_are_read_and_cut_ones_refused() {
        let counted =
            Answer::parse(b"HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        assert_eq!(
            (counted.status, counted.text().as_str(), counted.header("x-a")),
            (404, "hi", Some("b"))
        );
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(Answer::parse(chunked).unwrap().text(), "abcde");
        assert!(Answer::parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi").is_err());
        assert!(Answer::parse(b"SSH-2.0").is_err());
    }

    #[test]
    fn a_forwarded_port_carries_both_ways_and_closes() {
        // Given a server that answers when its client has finished speaking, in this very namespace
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        std::thread::spawn(move || {
            for s in server.incoming() {
                let (mut s, mut text) = (s.unwrap(), String::new());
                s.read_to_string(&mut text).unwrap();
                s.write_all(text.to_uppercase().as_bytes()).unwrap();
            }
        });
        let ns = NetNs::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        if ns
            .connect(to, Duration::from_secs(1))
            .is_err_and(|e| e.raw_os_error() == Some(1))
        {
            crate::sh::say("skipped: entering a network namespace needs root");
            return;
        }
        // When a client speaks through the forwarded port, then it gets the whole answer
        let forward = Forward::open(&ns, 0, to).unwrap();
        let local = forward.local();
        let mut client = TcpStream::connect(local).unwrap();
        client.write_all(&b"hello ".repeat(100_000)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HELLO ".repeat(100_000));
        // When it is dropped, then the port closes
        drop(forward);
        crate::sh::wait_for(
            "closed port",
            Duration::from_secs(5),
            Duration::from_millis(10),
            || match TcpStream::connect_timeout(&local, Duration::from_millis(200)) {
                Ok(_) => Err("still open".to_owned()),
                Err(_) => Ok(()),
            },
        )
        .unwrap();
    }
}
