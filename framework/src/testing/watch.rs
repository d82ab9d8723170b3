//! Watch streams: who listens, what each listener sees of a change, and the response body. No storage.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::BoxError;

use super::selector::Selector;
use super::store::Resource;

/// How long the real server keeps a watch open after its kind is gone.
const CLOSING: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) kind: EventKind,
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
}

/// What a watch is about.
#[derive(Clone, Debug)]
pub(crate) struct Interest {
    pub(crate) resource: Resource,
    pub(crate) version: String,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) selector: Selector,
    pub(crate) metadata_only: bool,
}

impl Interest {
    fn sees(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace.as_str())
            && self.selector.matches(object)
    }

    /// The object as this watch shows it.
    pub(crate) fn show(&self, object: &Value) -> Value {
        present(object, &self.api_version, self.metadata_only)
    }

    /// The line for a change, or nothing when the watch does not see it. An object that leaves the selection is
    /// deleted for the watch, one that enters is added.
    pub(crate) fn line(&self, event: &Event) -> Option<Bytes> {
        let before = event.previous.as_deref().is_some_and(|o| self.sees(o));
        let now = event.kind != EventKind::Deleted && self.sees(&event.object);
        let kind = match (before, now) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let mut object = self.show(&event.object);
        if kind == "DELETED" && event.kind != EventKind::Deleted {
            // The last state that was selected, at the revision of the change.
            if let Some(previous) = &event.previous {
                object = self.show(previous);
                object["metadata"]["resourceVersion"] = json!(event.revision.to_string());
            }
        }
        Some(line(kind, &object))
    }
}

/// An object as a client asked for it: in its API version, whole or metadata only.
pub(crate) fn present(object: &Value, api_version: &str, metadata_only: bool) -> Value {
    if metadata_only {
        return json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        });
    }
    let mut out = object.clone();
    out["apiVersion"] = json!(api_version);
    out
}

pub(crate) fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({ "type": kind, "object": object }).to_string();
    text.push('\n');
    Bytes::from(text)
}

pub(crate) fn bookmark(interest: &Interest, revision: u64, end_of_initial: bool) -> Bytes {
    let (api_version, kind) = if interest.metadata_only {
        ("meta.k8s.io/v1", "PartialObjectMetadata")
    } else {
        (interest.api_version.as_str(), interest.kind.as_str())
    };
    let mut object = json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": { "resourceVersion": revision.to_string(), "creationTimestamp": null },
    });
    if end_of_initial {
        object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    line("BOOKMARK", &object)
}

enum Message {
    Line(Bytes),
    /// End after this time; events until then still come.
    End(Duration),
    /// Break the connection at once.
    Cut,
}

struct Watcher {
    interest: Interest,
    user: String,
    bookmarks: bool,
    tx: mpsc::UnboundedSender<Message>,
}

/// All open watches.
#[derive(Default)]
pub(crate) struct Watchers(Vec<Watcher>);

impl Watchers {
    pub(crate) fn send(&mut self, resource: &Resource, event: &Event) {
        self.0.retain(|w| !w.tx.is_closed());
        for watcher in self.0.iter().filter(|w| w.interest.resource == *resource) {
            if let Some(line) = watcher.interest.line(event) {
                let _ = watcher.tx.send(Message::Line(line));
            }
        }
    }

    pub(crate) fn open(
        &mut self,
        interest: Interest,
        user: &str,
        bookmarks: bool,
        first: Vec<Bytes>,
        timeout: Option<Duration>,
    ) -> WatchBody {
        let (tx, rx) = mpsc::unbounded_channel();
        for line in first {
            let _ = tx.send(Message::Line(line));
        }
        self.0.push(Watcher {
            interest,
            user: user.to_owned(),
            bookmarks,
            tx,
        });
        WatchBody {
            rx,
            end: timeout.map(|t| Box::pin(tokio::time::sleep(t))),
            over: false,
        }
    }

    /// Ends the watches of a resource (of one version, if given) as the real server does when the kind goes.
    pub(crate) fn close(&mut self, resource: &Resource, version: Option<&str>) {
        self.take(
            |w| w.interest.resource == *resource && version.is_none_or(|v| v == w.interest.version),
            || Message::End(CLOSING),
        );
    }

    /// Breaks watches with a connection error. Says how many.
    pub(crate) fn cut(&mut self, which: impl Fn(&Interest, &str) -> bool) -> usize {
        self.take(|w| which(&w.interest, &w.user), || Message::Cut)
    }

    /// Ends watches cleanly and at once. Says how many.
    pub(crate) fn end(&mut self, which: impl Fn(&Interest, &str) -> bool) -> usize {
        self.take(|w| which(&w.interest, &w.user), || Message::End(Duration::ZERO))
    }

    /// Sends a bookmark to those that asked for them.
    pub(crate) fn bookmark(&self, revision: u64) {
        for w in self.0.iter().filter(|w| w.bookmarks) {
            let _ = w.tx.send(Message::Line(bookmark(&w.interest, revision, false)));
        }
    }

    pub(crate) fn count(&mut self, which: impl Fn(&Interest, &str) -> bool) -> usize {
        self.0.retain(|w| !w.tx.is_closed());
        self.0.iter().filter(|w| which(&w.interest, &w.user)).count()
    }

    fn take(&mut self, which: impl Fn(&Watcher) -> bool, message: impl Fn() -> Message) -> usize {
        let (hit, kept): (Vec<_>, Vec<_>) = self
            .0
            .drain(..)
            .filter(|w| !w.tx.is_closed())
            .partition(|w| which(w));
        self.0 = kept;
        for w in &hit {
            let _ = w.tx.send(message());
        }
        hit.len()
    }
}

/// The body of a watch answer.
pub(crate) struct WatchBody {
    rx: mpsc::UnboundedReceiver<Message>,
    end: Option<Pin<Box<tokio::time::Sleep>>>,
    over: bool,
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        loop {
            match self.rx.poll_recv(cx) {
                Poll::Ready(Some(Message::Line(line))) => return Poll::Ready(Some(Ok(Frame::data(line)))),
                Poll::Ready(Some(Message::End(after))) => {
                    self.end = Some(Box::pin(tokio::time::sleep(after)));
                }
                Poll::Ready(Some(Message::Cut)) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(connection_reset())));
                }
                // The sender is dropped once a watch is being closed: the timer ends it.
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        match &mut self.end {
            Some(end) => match end.as_mut().poll(cx) {
                Poll::Ready(()) => {
                    self.over = true;
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Pending,
            },
            None => Poll::Pending,
        }
    }
}

/// The error of a connection that the server dropped.
pub(crate) fn connection_reset() -> BoxError {
    Box::new(std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "connection reset by the test server",
    ))
}
