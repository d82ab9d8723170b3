//! Stories of the running half on a scripted API and a paused clock.

mod controller;
mod found;
mod hub;
mod leadership;
mod presence;
mod supervisor;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::lock;

/// What the thread of a test logs, as text.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Logs until the guard goes.
    pub(super) fn start(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Lines with this text.
    pub(super) fn lines(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(lock(&self.0).clone()).unwrap();
        log.lines()
            .filter(|line| line.contains(text))
            .map(str::to_owned)
            .collect()
    }
}

/// Waits for a condition with a deadline on the (paused) clock; says what did not come.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "did not come: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
