//! HTTP to Tyk: pooled connections, limits, bounded repetition, the write fence, and messages that hold no secret.
//! Knows neither which calls there are nor what they answer; `gateway` and `dashboard` do.

use std::{
    collections::HashMap,
    fmt,
    io::{BufReader, Cursor, Read},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use reconcile_kit::runtime::jitter::{Jitter, doubled};
use reqwest::{
    Certificate, Client, Method, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER},
};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::{
    super::verdict::Mode,
    Listed, TykError,
    TykErrorClass::{self, Busy, Denied, Failing, Fenced, NoConnection, Refused, Unreachable},
};
use crate::telemetry::tyk::TykMeter;

/// What one operation may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To connect.
    pub connect: Duration,
    /// One attempt, but for a reload, which may use all of `operation`.
    pub attempt: Duration,
    /// All attempts of one operation with the waits between them.
    pub operation: Duration,
    /// Attempts of one operation.
    pub attempts: u32,
    /// Before the second attempt; doubles, with jitter. `Retry-After` beats it.
    pub wait: Duration,
    /// The largest answer that is read, in bytes. A longer one is refused, not cut.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            attempt: Duration::from_secs(10),
            operation: Duration::from_secs(30),
            attempts: 3,
            wait: Duration::from_millis(250),
            body: 16 * 1024 * 1024,
        }
    }
}

/// The longest text of an answer that goes into a message, in characters.
const TEXT: usize = 300;
/// More places than any installation has; a leak of contexts must not become one of connections.
const PLACES: usize = 64;

/// The longest wait that is asked for and believed, in seconds. Nothing waits longer than its operation anyway.
const LONGEST: u64 = 86_400;
/// The largest list that is read, in bytes. It is read while it comes, and only ids and owners are kept of it.
pub(super) const LIST: usize = 1024 * 1024 * 1024;
/// Pieces of a list that wait to be read.
const PIECES: usize = 4;
/// The longest time that a reload is waited for.
const RELOAD: Duration = Duration::from_secs(600);

/// Connections that are kept open to one Tyk while they are not in use. More than there are requests at once (8): a request
/// that finds none begins a new connection, and a look-up of the host with it, even if another becomes free before that
/// is there. With fewer, a burst of writes made hundreds of them, each with a thread for its look-up.
const IDLE: usize = 16;

/// Carries one request to Tyk and brings back the answer. Takes the place of the network in simulations.
pub type Wire = Arc<
    dyn Fn(reqwest::Request) -> BoxFuture<'static, Result<reqwest::Response, reqwest::Error>> + Send + Sync,
>;

/// Connections by place and trust. One for the process.
pub struct Pools {
    extra_ca: Vec<Certificate>,
    limits: Limits,
    wire: Option<Wire>,
    known: Mutex<HashMap<(String, bool), Client>>,
    patience: Patience,
}

/// How long a reload of each Tyk is waited for, by URL: it takes about a millisecond per API that is loaded, and longer on a
/// slow machine. Kept for the process, since clients are made anew when a credential changes.
#[derive(Clone, Default)]
pub(super) struct Patience(Arc<Mutex<HashMap<String, Duration>>>);

impl Patience {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, url: &str, limit: Duration) {
        let mut known = self.known();
        if known.len() >= PLACES && !known.contains_key(url) {
            known.clear();
        }
        known.insert(url.to_owned(), limit.min(RELOAD));
    }

    /// The limit, `least` or more.
    fn limit(&self, url: &str, least: Duration) -> Duration {
        self.known().get(url).map_or(least, |known| least.max(*known))
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

impl Pools {
    /// `extra_ca` is a PEM bundle that is trusted beside the system's certificates.
    ///
    /// # Errors
    /// The bundle holds no certificate or a broken one.
    pub fn new(extra_ca: Option<&[u8]>, limits: Limits) -> Result<Self, TykError> {
        let extra_ca = match extra_ca {
            None => Vec::new(),
            Some(pem) => Certificate::from_pem_bundle(pem)
                .ok()
                .filter(|found| !found.is_empty())
                .ok_or_else(|| {
                    TykError::new(NoConnection, "extra CA bundle: no valid PEM certificate in it")
                })?,
        };
        Ok(Self {
            extra_ca,
            limits,
            wire: None,
            known: Mutex::default(),
            patience: Patience::default(),
        })
    }

    /// Sends every request through `wire` instead of the network.
    #[must_use]
    pub fn through(mut self, wire: Wire) -> Self {
        self.wire = Some(wire);
        self
    }

    fn client(&self, url: &str, insecure: bool) -> Result<Client, TykError> {
        let key = (url.to_owned(), insecure);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&key) {
            return Ok(client.clone());
        }
        let base = || {
            // Nothing from the environment, no redirect (the credential would go with it); repetition is decided here.
            Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .no_proxy()
                .connect_timeout(self.limits.connect)
                .pool_max_idle_per_host(IDLE)
                .pool_idle_timeout(Duration::from_secs(30))
                .tls_danger_accept_invalid_certs(insecure)
        };
        let client = match base().tls_certs_merge(self.extra_ca.clone()).build() {
            Ok(client) => client,
            // An image without system certificates: http still has to work, https then trusts nobody else.
            Err(_) => base()
                .tls_certs_only(self.extra_ca.clone())
                .build()
                .map_err(|error| TykError::new(NoConnection, format!("HTTP client: {}", chain(&error))))?,
        };
        if known.len() >= PLACES {
            known.clear();
        }
        known.insert(key, client.clone());
        Ok(client)
    }
}

/// Asked before every attempt of a write.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where Tyk is and what it takes to be let in.
pub struct Access {
    /// Base URL without trailing slash.
    pub url: String,
    /// Organisation id; may be empty.
    pub org: String,
    /// Sent with every request, never shown.
    pub credential: String,
    /// Certificates are not verified.
    pub insecure: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("url", &self.url)
            .field("org", &self.org)
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

/// One call: what is asked.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// For metrics and traces.
    pub(super) verb: &'static str,
    pub(super) method: Method,
    /// Path behind the base URL; its segments need no escaping (ids are ours).
    pub(super) path: String,
    pub(super) query: &'a [(&'a str, &'a str)],
    /// Content type and bytes.
    pub(super) body: Option<(&'a str, &'a [u8])>,
    /// It changes something: the fence is asked.
    pub(super) writes: bool,
    /// It may take as long as the whole operation.
    pub(super) long: bool,
    /// The largest answer that is read instead of [`Limits::body`].
    pub(super) most: Option<usize>,
    /// Repeating it after an answer that did not come, or a 5xx, does no harm.
    pub(super) repeat: bool,
    /// A 5xx with this text is an answer, not a failure.
    pub(super) answer: Option<&'static str>,
    /// Reads a successful answer while it comes, instead of holding all of it.
    pub(super) parse: Option<Parse>,
}

/// Reads a list.
pub(super) type Parse = fn(&mut dyn Read) -> Result<Vec<Listed>, serde_json::Error>;

/// The pieces of an answer, for a reader that blocks.
struct Pieces {
    rest: tokio::sync::mpsc::Receiver<Vec<u8>>,
    now: Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = self.now.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.rest.blocking_recv() {
                Some(piece) => self.now = Cursor::new(piece),
                None => return Ok(0),
            }
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(verb: &'static str, method: Method, path: impl Into<String>) -> Self {
        Self {
            verb,
            writes: method != Method::GET,
            method,
            path: path.into(),
            query: &[],
            body: None,
            long: false,
            most: None,
            repeat: true,
            answer: None,
            parse: None,
        }
    }

    pub(super) fn body(mut self, content_type: &'a str, bytes: &'a [u8]) -> Self {
        self.body = Some((content_type, bytes));
        self
    }

    pub(super) fn query(mut self, query: &'a [(&'a str, &'a str)]) -> Self {
        self.query = query;
        self
    }
}

/// An answer other than a failure: 2xx or 4xx.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// Of a call with [`Call::parse`] that succeeded; `None` as well when the answer is no such list.
    pub(super) listed: Option<Vec<Listed>>,
}

impl Answer {
    pub(super) fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether its text holds these words, whatever their case.
    pub(super) fn says(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.body)
            .to_ascii_lowercase()
            .contains(&words.to_ascii_lowercase())
    }
}

/// The HTTP side of one connection.
pub(super) struct Http {
    client: Client,
    wire: Option<Wire>,
    base: Url,
    header: (HeaderName, HeaderValue),
    credential: String,
    limits: Limits,
    patience: Patience,
    may_write: MayWrite,
    meter: TykMeter,
    mode: Mode,
    jitter: Jitter,
}

/// When an operation of several calls must be over.
pub(super) type Deadline = Instant;

impl Http {
    /// `header` is the header that carries the credential.
    pub(super) fn new(
        pools: &Pools,
        access: &Access,
        header: HeaderName,
        mode: Mode,
        may_write: MayWrite,
        meter: TykMeter,
    ) -> Result<Self, TykError> {
        let no = |why: &str| TykError::new(NoConnection, format!("Tyk at {}: {why}", access.url));
        let base = Url::parse(&access.url).map_err(|_| no("this is no URL"))?;
        let credential = access.credential.trim();
        if credential.is_empty() {
            return Err(no("the credential (auth, TYK_AUTH) is empty"));
        }
        let mut value = HeaderValue::from_str(credential).map_err(|_| {
            no("the credential (auth, TYK_AUTH) holds characters that no HTTP header can carry")
        })?;
        value.set_sensitive(true);
        Ok(Self {
            client: pools.client(&access.url, access.insecure)?,
            wire: pools.wire.clone(),
            base,
            header: (header, value),
            credential: credential.to_owned(),
            limits: pools.limits,
            patience: pools.patience.clone(),
            may_write,
            meter,
            mode,
            jitter: Jitter::random(),
        })
    }

    pub(super) fn deadline(&self) -> Deadline {
        Instant::now() + self.limits.operation
    }

    /// When a reload that begins now has to be over.
    pub(super) fn reload_deadline(&self) -> Deadline {
        Instant::now() + self.patience.limit(self.base.as_str(), self.limits.operation)
    }

    /// A reload took so long. `over`: it was not waited for to the end, so that the next one is given more time.
    pub(super) fn reloaded(&self, took: Duration, over: bool) {
        let url = self.base.as_str();
        if over {
            let limit = self.patience.limit(url, self.limits.operation);
            self.patience.record(url, limit.saturating_mul(2));
        } else {
            // Others load the machine at other times.
            self.patience.record(url, took.saturating_mul(3));
        }
    }

    pub(super) fn meter(&self) -> &TykMeter {
        &self.meter
    }

    /// Makes a call, repeats it where that may help, and gives the answer of Tyk.
    pub(super) async fn call(&self, call: &Call<'_>, until: Deadline) -> Result<Answer, TykError> {
        let span = tracing::debug_span!(
            "tyk",
            otel.name = call.verb,
            otel.kind = "client",
            http.request.method = call.method.as_str(),
            url.path = call.path,
            server.address = self.base.host_str().unwrap_or_default(),
            http.response.status_code = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        let outcome = self.attempts(call, until).instrument(span.clone()).await;
        if outcome.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        outcome
    }

    async fn attempts(&self, call: &Call<'_>, until: Deadline) -> Result<Answer, TykError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            if call.writes && !(self.may_write)() {
                return Err(self.error(Fenced, call, "not sent: this process does not hold the lease"));
            }
            let end = if call.long {
                until
            } else {
                until.min(Instant::now() + self.limits.attempt)
            };
            let (failure, asked) = match timeout_at(end, self.exchange(call)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    self.meter.request(self.mode, call.verb, 0);
                    (self.error(Unreachable, call, "no whole answer in time"), None)
                }
            };
            let again = failure.class == Busy || (call.repeat && failure.passes());
            let wait = asked.unwrap_or_else(|| {
                let wait = doubled(self.limits.wait, self.limits.operation, attempt - 1);
                self.jitter.around(wait, 0.5)
            });
            if !again || attempt >= self.limits.attempts || Instant::now() + wait >= until {
                return Err(failure);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// One attempt. A failure comes with the wait that Tyk asked for.
    async fn exchange(&self, call: &Call<'_>) -> Result<Answer, (TykError, Option<Duration>)> {
        let mut url = self.base.clone();
        url.set_path(&format!(
            "{}{}",
            self.base.path().trim_end_matches('/'),
            call.path
        ));
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        let mut request = self
            .client
            .request(call.method.clone(), url)
            .header(self.header.0.clone(), self.header.1.clone())
            .header(ACCEPT, "application/json");
        if let Some((content_type, bytes)) = call.body {
            request = request.header(CONTENT_TYPE, content_type).body(bytes.to_vec());
        }
        let lost = |error: &reqwest::Error| {
            self.meter.request(self.mode, call.verb, 0);
            (self.error(Unreachable, call, &chain(error)), None)
        };
        let sent = match &self.wire {
            None => request.send().await,
            Some(wire) => match request.build() {
                Ok(request) => wire(request).await,
                Err(error) => Err(error),
            },
        };
        let mut response = sent.map_err(|error| lost(&error))?;
        let status = response.status();
        tracing::Span::current().record("http.response.status_code", status.as_u16());
        let asked = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(|seconds: u64| Duration::from_secs(seconds.min(LONGEST)));
        let to = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .map_or_else(|| "nowhere".to_owned(), place);
        let most = call.most.unwrap_or(self.limits.body);
        let mut body = Vec::new();
        let mut reading = call.parse.filter(|_| status.is_success()).map(|parse| {
            let (pieces, rest) = tokio::sync::mpsc::channel(PIECES);
            let now = Cursor::default();
            let mut reader = BufReader::new(Pieces { rest, now });
            (pieces, tokio::task::spawn_blocking(move || parse(&mut reader)))
        });
        let mut length = 0;
        while let Some(chunk) = response.chunk().await.map_err(|error| lost(&error))? {
            length += chunk.len();
            if length > most {
                self.meter.request(self.mode, call.verb, status.as_u16());
                let detail = format!("the answer is over {most} bytes");
                return Err((self.error(Refused, call, &detail), None));
            }
            match &reading {
                // A reader that has found something wrong needs no more.
                Some((pieces, _)) if pieces.send(chunk.to_vec()).await.is_err() => break,
                Some(_) => {}
                None => body.extend_from_slice(&chunk),
            }
        }
        let mut listed = None;
        if let Some((pieces, read)) = reading.take() {
            drop(pieces);
            listed = read.await.ok().and_then(Result::ok);
        }
        self.meter.request(self.mode, call.verb, status.as_u16());
        let answer = Answer {
            status: status.as_u16(),
            body,
            listed,
        };
        if status.is_redirection() {
            let detail = format!(
                "answers {} with a redirect to {to}; redirects are not followed, give the address itself as url",
                status.as_u16()
            );
            return Err((self.error(NoConnection, call, &detail), None));
        }
        if answer.status == 429 {
            return Err((self.answered(Busy, call, &answer, ""), asked));
        }
        if status.is_server_error() && !call.answer.is_some_and(|words| answer.says(words)) {
            return Err((self.answered(Failing, call, &answer, ""), asked));
        }
        Ok(answer)
    }

    /// An error that repeats what Tyk answered, and adds a hint.
    pub(super) fn answered(
        &self,
        class: TykErrorClass,
        call: &Call<'_>,
        answer: &Answer,
        hint: &str,
    ) -> TykError {
        let text = said(&answer.body);
        let text = one_line(&self.scrub(&text), TEXT);
        let gap = if text.is_empty() { "" } else { ": " };
        self.error(
            class,
            call,
            &format!("answered {}{gap}{text}{hint}", answer.status),
        )
    }

    /// What a 4xx means that no call knows better: a refused credential, or a refused request.
    pub(super) fn refused(&self, call: &Call<'_>, answer: &Answer) -> TykError {
        let denied = answer.status == 401
            || (answer.status == 403
                && (!call.writes
                    || [
                        "administrative access",
                        // Not "authority": a certificate has one.
                        "authoris",
                        "authoriz",
                        "access denied",
                        "permission",
                        "access disallowed",
                    ]
                    .iter()
                    .any(|words| answer.says(words))));
        if denied {
            return self.answered(Denied, call, answer, "; check the credential (auth, TYK_AUTH)");
        }
        if answer.status == 404 {
            let hint = "; this does not look like Tyk's API, check url (TYK_URL) and mode (TYK_MODE)";
            return self.answered(Failing, call, answer, hint);
        }
        self.answered(Refused, call, answer, "")
    }

    /// The body as JSON; what is none is no answer of Tyk.
    pub(super) fn json(&self, call: &Call<'_>, answer: &Answer) -> Result<serde_json::Value, TykError> {
        serde_json::from_slice(&answer.body).map_err(|_| {
            let hint = "; this is no JSON, so not Tyk's API: check url (TYK_URL) and mode (TYK_MODE)";
            self.answered(Failing, call, answer, hint)
        })
    }

    pub(super) fn error(&self, class: TykErrorClass, call: &Call<'_>, detail: &str) -> TykError {
        let url = self.base.as_str().trim_end_matches('/');
        let text = format!("{} {url}{}: {}", call.method, call.path, self.scrub(detail));
        TykError::new(class, text)
    }

    /// A server may echo what it was sent.
    fn scrub(&self, text: &str) -> String {
        text.replace(&self.credential, "(credential)")
    }
}

/// Where a redirect leads, as far as it helps: a page to log in at has another query each time.
fn place(location: &str) -> String {
    let end = location.find(['?', '#']).unwrap_or(location.len());
    one_line(location.get(..end).unwrap_or_default(), TEXT)
}

/// What an error document says, without its envelope; else the text as it is.
fn said(body: &[u8]) -> String {
    serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|value| {
            let message = value.get("message").or_else(|| value.get("Message"))?;
            Some(message.as_str()?.to_owned())
        })
        .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}

/// One line of at most `room` characters, the last one an ellipsis if any are missing.
fn one_line(text: &str, room: usize) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .take(room)
        .collect();
    let text = words.join(" ");
    if text.chars().nth(room).is_none() {
        return text;
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// An error with what caused it, without the URL.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = match error.downcast_ref::<reqwest::Error>() {
            // reqwest writes the URL behind its own words; it is named elsewhere.
            Some(error) => {
                let text = error.to_string();
                text.split(" for url ").next().unwrap_or_default().to_owned()
            }
            None => error.to_string(),
        };
        if parts.last() != Some(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    one_line(&parts.join(": "), TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tyk_says_is_one_short_line() {
        for (body, says) in [
            (r#"{"status":"error","message":"API not found"}"#, "API not found"),
            (
                r#"{"Status":"Error","Message":"same\n url","Meta":null}"#,
                "same url",
            ),
            ("<html>\n  bad   gateway</html>", "<html> bad gateway</html>"),
            ("", ""),
        ] {
            assert_eq!(one_line(&said(body.as_bytes()), TEXT), says);
        }
        assert_eq!(one_line(&"a".repeat(500), 10), format!("{}…", "a".repeat(9)));
    }

    #[test]
    fn where_a_redirect_leads_is_the_same_each_time_and_short() {
        for (location, says) in [
            (
                "https://login.example.com/oauth?state=4f6c#x",
                "https://login.example.com/oauth",
            ),
            ("/elsewhere/", "/elsewhere/"),
            ("?", ""),
        ] {
            assert_eq!(place(location), says);
        }
        assert_eq!(place(&"a".repeat(100_000)).chars().count(), TEXT);
    }
}
