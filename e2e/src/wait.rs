//! Waiting for a condition with a deadline. The only way a test lets time pass.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Asks until the answer is `Ok`; after `limit` fails with the last `Err` text, which should say what was seen
/// instead of what was wanted.
///
/// # Errors
/// [`Error::Timeout`].
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= end => {
                return Err(Error::Timeout {
                    what: what.to_owned(),
                    limit,
                    last,
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Checks for all of `span` that the answer stays `Ok`: for what must *not* happen.
///
/// # Errors
/// The first `Err` text.
pub async fn throughout<F: Future<Output = Result<(), String>>>(
    what: &str,
    span: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<()> {
    let end = Instant::now() + span;
    while Instant::now() < end {
        probe()
            .await
            .map_err(|seen| Error::other(format!("{what}: {seen}")))?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
