//! What kube's `watcher` leaves open: a watch that ends at once is re-opened at once, without an error and without a
//! pause, and a request whose answer never begins waits for ever. One paced client per watch closes both.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use kube::{Client, client::Body};
use tokio::time::{Instant, sleep_until, timeout};
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
pub(crate) fn paced(client: &Client, metadata_only: bool) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
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
        let (client, pace) = (client.clone(), Arc::clone(&pace));
        async move {
            if is_watch(&request) {
                let start = lock(&pace).next_start(Instant::now());
                sleep_until(start).await;
            }
            match timeout(ANSWER_LIMIT, client.send(request)).await {
                Ok(answer) => answer.map_err(BoxError::from),
                Err(_) => Err(BoxError::from(ReconcileError::new(
                    ErrorClass::Timeout,
                    "the API server did not begin to answer in time",
                ))),
            }
        }
    });
    Client::new(service, namespace)
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
