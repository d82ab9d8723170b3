//! One paced client per watch, for what kube's `watcher` leaves open: it re-opens a watch that ends at once without a pause,
//! waits without end for an answer that never begins, and notices a dead connection after 295 s only.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use kube::{Client, client::Body};
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep_until, timeout},
};
use tower::BoxError;

use super::{jitter::doubled, lock};
use crate::{ErrorClass, ReconcileError};

/// The head of an answer must come within this time; the API server answers a watch at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Watches that start less than this apart are a series.
const SERIES: Duration = Duration::from_secs(30);
/// The second quick restart waits this long, then doubling.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_LIMIT: Duration = Duration::from_secs(15);

/// The API server sends a bookmark about each minute on a watch that it serves from its cache. After the first one, silence
/// for this long means that the connection is dead. (A server without bookmarks is not held to them.)
const SILENCE_LIMIT: Duration = Duration::from_secs(90);
/// A watch that has been open for this long works.
const OPEN: Duration = Duration::from_secs(5);

/// When a watch began, for its loop.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(watch::Sender<Option<Instant>>);

impl Default for Pulse {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Pulse {
    fn began(&self) -> Instant {
        let now = Instant::now();
        self.0.send_replace(Some(now));
        now
    }

    /// The watch that began then has ended, or is known to work.
    fn ended(&self, began: Instant) {
        self.0
            .send_if_modified(|now| now.take_if(|now| *now == began).is_some());
    }

    /// Completes once per watch, when it has been open for a while.
    pub(crate) async fn stays_open(&self) {
        let mut began = self.0.subscribe();
        loop {
            let since = *began.borrow_and_update();
            let open = async {
                match since {
                    Some(since) => sleep_until(since + OPEN).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = open => {
                    if let Some(since) = since {
                        self.ended(since);
                    }
                    return;
                }
                // (the sender lives as long as this)
                _ = began.changed() => {}
            }
        }
    }
}

#[derive(Default)]
struct Pace {
    last: Option<Instant>,
    series: u32,
}

impl Pace {
    /// When the watch that is asked for now may start. The first restart of a series is free: a CRD update or a restart
    /// of the API server ends every watch once.
    fn next_start(&mut self, now: Instant) -> Instant {
        let start = match self.last {
            Some(last) if now.duration_since(last) < SERIES => {
                self.series += 1;
                match self.series {
                    1 => now,
                    n => now.max(last + doubled(PAUSE, PAUSE_LIMIT, n - 2)),
                }
            }
            _ => {
                self.series = 0;
                now
            }
        };
        self.last = Some(start);
        start
    }
}

/// A client for one watch. With `metadata_only` the API server leaves out all but metadata.
pub(crate) fn paced(client: &Client, metadata_only: bool, pulse: &Pulse) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (client, pulse) = (client.clone(), pulse.clone());
    let pace = Arc::new(Mutex::new(Pace::default()));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        if metadata_only {
            let form = if is_watch(&request) {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            } else {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            };
            let form = http::HeaderValue::from_static(form);
            request.headers_mut().insert(http::header::ACCEPT, form);
        }
        let (client, pace, pulse) = (client.clone(), Arc::clone(&pace), pulse.clone());
        async move {
            let watches = is_watch(&request);
            if watches {
                let start = lock(&pace).next_start(Instant::now());
                sleep_until(start).await;
            }
            match timeout(ANSWER_LIMIT, client.send(request)).await {
                Ok(Ok(answer)) if watches && answer.status().is_success() => {
                    let open = Open {
                        began: pulse.began(),
                        pulse,
                        silence: None,
                    };
                    Ok(answer.map(|inner| Answer {
                        inner,
                        watch: Some(open),
                    }))
                }
                Ok(answer) => answer
                    .map(|answer| answer.map(|inner| Answer { inner, watch: None }))
                    .map_err(BoxError::from),
                Err(_) => Err(BoxError::from(ReconcileError::new(
                    ErrorClass::Timeout,
                    "the API server did not begin to answer in time",
                ))),
            }
        }
    });
    Client::new(service, namespace)
}

/// Body of an answer; that of a watch fails when bookmarks stop coming.
struct Answer {
    inner: Body,
    watch: Option<Open>,
}

/// A watch that has begun.
struct Open {
    pulse: Pulse,
    began: Instant,
    /// Armed by the first bookmark.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Open {
    fn received(&mut self, data: Option<&Bytes>) {
        let until = Instant::now() + SILENCE_LIMIT;
        match &mut self.silence {
            Some(silence) => silence.as_mut().reset(until),
            None if data.is_some_and(|data| is_bookmark(data)) => {
                self.silence = Some(Box::pin(sleep_until(until)));
            }
            None => {}
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.pulse.ended(self.began);
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        let Some(open) = &mut self.watch else {
            return frame.map_err(BoxError::from);
        };
        if let Poll::Ready(frame) = frame {
            let data = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref());
            open.received(data);
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let Some(silence) = &mut open.silence else {
            return Poll::Pending;
        };
        silence.as_mut().poll(cx).map(|()| {
            let why = "the API server has sent nothing on a watch for 90 s: the connection is dead";
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, why);
            Some(Err(error.into()))
        })
    }
}

/// A bookmark comes in a small frame of its own: the API server flushes after each event. Inside of an object the quotes
/// would be escaped.
fn is_bookmark(data: &[u8]) -> bool {
    const MARK: &[u8] = br#""type":"BOOKMARK""#;
    data.len() <= 4_096 && data.windows(MARK.len()).any(|part| part == MARK)
}

fn is_watch(request: &Request<Body>) -> bool {
    request
        .uri()
        .query()
        .is_some_and(|q| q.split('&').any(|p| matches!(p, "watch=true" | "watch=1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_end_at_once_are_spaced_out_and_a_long_one_ends_the_series() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let start = now;
        let mut gaps = Vec::new();
        for _ in 0..8 {
            let next = pace.next_start(now);
            gaps.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(gaps, [0, 0, 500, 1_000, 2_000, 4_000, 8_000, 15_000]);
        assert!(now - start > Duration::from_secs(30));
        now += Duration::from_secs(290);
        assert_eq!(pace.next_start(now), now);
    }
}
