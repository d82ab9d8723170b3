//! Limits how often the load-balancer addresses in a bucket's status change: a controller whose replicas disagree writes
//! another set every few seconds. Memory of one process; no write.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Addresses that are shown change at most this often.
pub const INTERVAL: Duration = Duration::from_secs(60);

/// The addresses shown last, by namespace and name of the bucket.
#[derive(Debug, Default)]
pub struct AddressPace(Mutex<HashMap<(String, String), Shown>>);

#[derive(Debug)]
struct Shown {
    uid: String,
    addresses: Vec<String>,
    at: Instant,
}

impl AddressPace {
    /// Decides whether `fresh` addresses of a bucket are shown. `None`: they are. Otherwise the addresses to show for
    /// now, and when to look again. The first addresses after none never wait.
    pub fn hold(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        fresh: &[String],
    ) -> Option<(Vec<String>, Duration)> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(shown) = map.get(&key).filter(|shown| shown.uid == uid) {
            if shown.addresses == fresh {
                return None;
            }
            let wait = (shown.at + INTERVAL).saturating_duration_since(Instant::now());
            if !shown.addresses.is_empty() && !wait.is_zero() {
                return Some((shown.addresses.clone(), wait));
            }
        }
        let shown = Shown {
            uid: uid.to_owned(),
            addresses: fresh.to_vec(),
            at: Instant::now(),
        };
        map.insert(key, shown);
        None
    }

    /// Drops what is known of a bucket that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.remove(&(namespace.to_owned(), name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(|a| (*a).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_shown_at_once_and_the_next_one_a_minute_later() {
        let pace = AddressPace::default();
        let hold = |addresses: &[&str]| pace.hold("web", "blog", "u", &list(addresses));
        assert_eq!(hold(&[]), None);
        assert_eq!(hold(&["a"]), None, "the first addresses never wait");
        tokio::time::advance(INTERVAL / 2).await;
        assert_eq!(hold(&["b"]), Some((list(&["a"]), INTERVAL / 2)));
        assert_eq!(hold(&["a"]), None, "nothing has changed");
        assert_eq!(hold(&[]), Some((list(&["a"]), INTERVAL / 2)));
        tokio::time::advance(INTERVAL / 2).await;
        assert_eq!(hold(&["b"]), None);
        assert_eq!(hold(&["a"]), Some((list(&["b"]), INTERVAL)));
        assert_eq!(
            pace.hold("web", "blog", "another", &list(&["a"])),
            None,
            "a bucket of the same name is another one"
        );
        pace.forget("web", "blog");
        assert_eq!(hold(&["a"]), None);
    }
}
