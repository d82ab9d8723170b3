//! Writers that have so many requests on their way at once and no more. For a controller whose reconciles wait for
//! another system most of their time: many of them may wait together, and each request that is on its way to the API
//! server at once costs a connection. Nothing here knows what is written.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    ReconcileError,
    api::Target,
    owner::{OwnerWrite, OwnerWriter},
    status::StatusContract,
    status_writer::{StatusAnswer, StatusError, StatusWriter},
};

/// A writer that makes callers wait, in their order, while so many of its writes are on their way.
#[derive(Clone)]
pub struct AtOnce<W> {
    inner: W,
    places: Arc<Semaphore>,
}

impl<W> AtOnce<W> {
    /// `most` writes at once; 0 counts as 1.
    pub fn new(inner: W, most: u16) -> Self {
        Self {
            inner,
            places: Arc::new(Semaphore::new(usize::from(most.max(1)))),
        }
    }
}

#[async_trait]
impl<W: OwnerWriter> OwnerWriter for AtOnce<W> {
    async fn write(
        &self,
        target: Target<'_>,
        version: &str,
        manager: &str,
        write: &OwnerWrite,
    ) -> Result<Value, ReconcileError> {
        // It is never closed.
        let _place = self.places.acquire().await;
        self.inner.write(target, version, manager, write).await
    }
}

#[async_trait]
impl<W: StatusWriter> StatusWriter for AtOnce<W> {
    async fn apply(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        body: &Value,
    ) -> Result<StatusAnswer, StatusError> {
        let _place = self.places.acquire().await;
        self.inner.apply(contract, target, version, body).await
    }

    async fn remove(
        &self,
        contract: &StatusContract,
        target: Target<'_>,
        version: &str,
        paths: &[String],
    ) -> Result<StatusAnswer, StatusError> {
        let _place = self.places.acquire().await;
        self.inner.remove(contract, target, version, paths).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::ApiKind;

    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
        done: AtomicUsize,
    }

    /// One less, however it ends.
    struct Over<'a>(&'a AtomicUsize);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[async_trait]
    impl OwnerWriter for Arc<Slow> {
        async fn write(
            &self,
            _: Target<'_>,
            _: &str,
            _: &str,
            _: &OwnerWrite,
        ) -> Result<Value, ReconcileError> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            let _over = Over(&self.now);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.done.fetch_add(1, Ordering::SeqCst);
            Ok(json!({}))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_wait_and_a_few_write_and_whoever_gives_up_gives_its_place_back() {
        let slow = Arc::new(Slow::default());
        let writer = AtOnce::new(Arc::clone(&slow), 3);
        let kind = ApiKind::new("", "v1", "ConfigMap", "configmaps");
        let target = || Target {
            kind: &kind,
            namespace: "ns",
            name: "n",
        };
        // given one that gives up while it writes, and one while it waits
        let patch = OwnerWrite::Finalizers(Vec::new());
        let soon = Duration::from_millis(500);
        let given_up = (0..5).map(|_| tokio::time::timeout(soon, writer.write(target(), "1", "m", &patch)));
        futures::future::join_all(given_up).await;
        // when many write at once, then all of them do in the end, three by three
        let begun = tokio::time::Instant::now();
        let all = (0..9).map(|_| writer.write(target(), "1", "m", &patch));
        assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
        assert_eq!(
            (slow.most.load(Ordering::SeqCst), slow.done.load(Ordering::SeqCst)),
            (3, 9)
        );
        assert_eq!(begun.elapsed().as_secs(), 3);
    }
}
